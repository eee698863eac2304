"""Programs that a backend is given in the form of a stage: their results are those of the program as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.cases.compiled import enters_pipeline_at_or_before
from uops.backends.conformance.controls import Interp
from uops.backends.conformance.model import ConformanceTier
from uops.backends.contract import Backend, Inputs
from uops.backends.testing.lowered import run_in_dialect
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

LOWERED = [d for d in Dialect if d not in (Dialect.TENSOR, Dialect.BESTIARY)]
#: A value, a Buffer that is written, one that is only read, and an input that no result needs.
PROGRAM = b.tuple_(
    b.add(b.param(0, (2, 3), dt.int32), b.reshape(b.buffer(6, dt.int32, unique=1), (2, 3))),
    b.assign(b.buffer(3, dt.int32, unique=2), b.param(1, (3,), dt.int32)),
    b.sum_and_drop_axis(b.param(2, (0, 2), dt.int32), 0),
)
INPUTS = {
    "p0": np.arange(6, dtype=np.int32).reshape(2, 3),
    "p1": np.array([7, 8, 9], np.int32),
    "p2": np.zeros((0, 2), np.int32),
    "b1": np.full(6, 10, np.int32),
}


class Recorder(Interp):
    """The interpreter, which keeps the programs that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[UOp] = []

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        self.given.append(graph)
        return super().run(graph, inputs)


def assert_same(got: Result, expected: Result) -> None:
    assert [np.asarray(v).tolist() for v in got.values] == [np.asarray(v).tolist() for v in expected.values]
    assert {k: v.reshape(-1).tolist() for k, v in got.buffers.items()} == {
        k: v.reshape(-1).tolist() for k, v in expected.buffers.items()
    }


@pytest.mark.parametrize("dialect", LOWERED)
@pytest.mark.parametrize("name", ["llvm", "interp"])
def test_values_and_written_memory_are_those_of_the_program(name: str, dialect: Dialect) -> None:
    backend: Backend = Interp() if name == "interp" else registry.create_backend(name)
    assert_same(run_in_dialect(backend, PROGRAM, INPUTS, dialect), run(PROGRAM, INPUTS))


@pytest.mark.parametrize("dialect", LOWERED)
def test_the_backend_is_given_a_program_of_the_dialect(dialect: Dialect) -> None:
    recorder = Recorder()
    run_in_dialect(recorder, PROGRAM, INPUTS, dialect)
    (given,) = recorder.given
    assert given.op is (Op.CALL if dialect is Dialect.CALLIFIED else Op.LINEAR)
    if dialect is Dialect.PROGRAM:
        assert {call.body.op for call in given.src} == {Op.PROGRAM}


def test_a_kernel_of_the_dialect_is_given_as_it_is() -> None:
    recorder = Recorder()
    loop = b.range_(3, 0)
    kernel = b.sink(b.end(b.store(b.at(b.param(0, (3,), dt.int32), loop), b.const(5, dt.int32)), loop), name="k")
    launch = UOp(Op.LINEAR, (b.call(kernel, b.buffer(3, dt.int32, unique=1), written=(0,)),))
    result = run_in_dialect(recorder, launch, {}, infer_tensor_kernel_or_bestiary_dialect(launch))
    assert recorder.given == [launch] and result.buffers["b1"].tolist() == [5, 5, 5]


def test_programs_of_later_dialects_and_native_text_are_left_out() -> None:
    cases: dict[str, Any] = {c.id: c for c in generate_cases(ConformanceTier.SMOKE)}
    graph, kernel = cases["Movement/Permute/float32/transpose"], cases["Codegen/Barrier/float32/local"]
    native = next(c for c in cases.values() if c.row == "Codegen/Custom")
    assert enters_pipeline_at_or_before(graph, Dialect.CALLIFIED)
    assert not enters_pipeline_at_or_before(kernel, Dialect.CALLIFIED) and enters_pipeline_at_or_before(kernel, Dialect.LINEAR)
    assert not enters_pipeline_at_or_before(native, Dialect.LINEAR)


@pytest.mark.parametrize("number", [2.5, np.nan, np.inf])
def test_a_scalar_input_need_not_be_an_integer(number: float) -> None:
    n = b.variable("n", 1, 5)
    graph = b.expand(b.reshape(b.add(b.param(0, (), dt.float32), b.const(1.0)), (1,)), (n,))
    (value,) = run_in_dialect(Interp(), graph, {"p0": np.array(number, np.float32), "n": np.int64(2)}, Dialect.CALLIFIED).values
    np.testing.assert_array_equal(value, np.full(2, number + 1, np.float32))
