"""The base of the subjects, against a tiny library that records what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.contract import Missing
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.library import GraphFunction
from uops.backends.subjects.numpy_adapter import Numpy
from uops.interp import run
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

f32, i32 = dt.float32, dt.int32
X = np.arange(6, dtype=np.float32)


class Tiny(Numpy):
    """A library of NumPy arrays with two dtypes and four functions, which records its calls."""

    name = "tiny"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def list_dtypes(self) -> dict[DType, Any]:
        return {d: super(Tiny, self).list_dtypes()[d] for d in (f32, i32, dt.int64, dt.uint8, dt.bool_)}

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        functions = super().list_functions()
        return {op: functions[op] for op in (Op.ADD, Op.MUL, Op.WHERE, Op.CMPLT, Op.CMPNE, Op.AND)}

    def apply(self, op: Op, values: Sequence[Any]) -> Any:
        self.asked.append(op.name)
        return super().apply(op, values)


class TinyCompiler(Tiny):
    """A library that compiles whole graphs, and counts how often."""

    name = "tiny:compiled"
    compiled = 0

    def compile(self, function: GraphFunction) -> GraphFunction:
        self.compiled += 1
        return lambda inputs: function(inputs)


class Picky(Tiny):
    """A library without Flip of int32."""

    name = "tiny:picky"
    is_probed = True

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        if x.dtype == np.int32:
            raise NotImplementedError("no flip for int32")
        return super().flip(x, axes)


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()


def same_as_interpreter(library: Evaluator, graph: UOp, **inputs: Any) -> bool:
    got, expected = library.run(graph, inputs), run(graph, inputs)
    values = all(np.array_equal(g, e) and g.dtype == e.dtype for g, e in zip(got.values, expected.values, strict=True))
    return values and all(np.array_equal(got.buffers[k], e) for k, e in expected.buffers.items())


def test_index_arithmetic_asks_nothing_of_the_library(tiny: Tiny) -> None:
    n = b.variable("n", 1, 5)
    x = b.param(0, (7,), f32)
    graph = b.shrink(x, (b.sub(n, 1),), (b.add(b.build_alu_with_promotion(Op.IDIV, n, 2), 1),))
    assert same_as_interpreter(tiny, graph, p0=np.arange(7, dtype=np.float32), n=4)
    assert tiny.asked == []


def test_a_variable_is_a_size_and_a_value(tiny: Tiny) -> None:
    n = b.variable("n", 1, 5)
    graph = b.tuple_(
        b.expand(b.reshape(b.const(1.5, f32), (1,)), (n,)), n, b.build_alu_with_promotion(Op.ADD, b.cast(n, i32), b.const(2, i32))
    )
    assert same_as_interpreter(tiny, graph, n=4)


def test_each_node_is_evaluated_once(tiny: Tiny) -> None:
    x = b.param(0, (6,), f32)
    y = b.add(x, x)
    assert same_as_interpreter(tiny, b.tuple_(b.mul(y, y), y), p0=X)
    assert tiny.asked == ["ADD", "MUL"]


def test_an_element_of_a_function_that_nothing_reads_is_not_evaluated(tiny: Tiny) -> None:
    inner = b.param(0, (6,), f32)
    body = b.tuple_(b.add(inner, inner), b.mul(inner, inner))
    assert same_as_interpreter(tiny, b.get(b.function(body, b.param(3, (6,), f32)), 1), p3=X)
    assert tiny.asked == ["MUL"]


def test_a_function_as_the_root_returns_all_its_values(tiny: Tiny) -> None:
    inner = b.param(0, (6,), f32)
    assert same_as_interpreter(tiny, b.function(b.tuple_(b.add(inner, inner), inner), b.param(0, (6,), f32)), p0=X)


def test_a_call_writes_the_memory_of_its_arguments(tiny: Tiny) -> None:
    target, source = b.param(1, (6,), f32), b.param(0, (6,), f32)
    memory = b.buffer(6, f32, unique=1)
    call = b.call(b.sink(b.store(target, b.add(source, source))), b.param(0, (6,), f32), memory, written=(1,))
    assert same_as_interpreter(tiny, b.after(memory, call), p0=X)


def test_a_value_that_was_loaded_stays_after_a_store(tiny: Tiny) -> None:
    memory = b.buffer(6, f32, unique=1)
    assert same_as_interpreter(tiny, b.add(b.after(memory, b.store(memory, b.add(memory, 1.0))), memory), b1=X)


VIEWS: dict[str, Callable[[UOp], UOp]] = {
    "whole": lambda m: m,
    "flipped": lambda m: b.flip(m, (True,)),
    "shrunk": lambda m: b.shrink(m, (2,), (3,)),
    "transposed": lambda m: b.permute(b.reshape(m, (2, 3)), (1, 0)),
    "row": lambda m: b.at(b.reshape(m, (2, 3)), 1),
    "bytes": lambda m: b.slice_(m, 1, 8, dt.uint8),
    "shrunk-flipped": lambda m: b.flip(b.shrink(m, (1,), (4,)), (True,)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_store_reaches_the_elements_of_a_view(tiny: Tiny, view: Callable[[UOp], UOp]) -> None:
    memory = b.buffer(6, f32, unique=1)
    target = view(memory)
    value = b.param(0, target.shape, target.dtype)
    given = np.arange(100, 100 + np.prod(target.shape)).astype(np.uint8 if target.dtype is dt.uint8 else np.float32)
    assert same_as_interpreter(tiny, b.sink(b.store(target, value)), b1=X, p0=given.reshape(target.shape))


@pytest.mark.parametrize("gate", [None, (1, 0, 1, 0), (1, 1, 0, 0), (0, 1, 0, 1), (0, 0, 0, 0)])
@pytest.mark.parametrize("view", [lambda m: m, lambda m: b.bitcast(b.bitcast(m, dt.uint8), i32)], ids=["elements", "words"])
def test_of_the_elements_that_one_store_names_twice_the_last_that_is_written_stays(
    tiny: Tiny, gate: tuple[int, ...] | None, view: Callable[[UOp], UOp]
) -> None:
    """R164: an element whose gate is false writes nothing, the old contents either."""
    target = UOp(Op.INDEX, (view(b.buffer(3, i32, unique=1)), b.shape_vector((2, 2, 0, 2))))
    given = {"b1": np.array([1, 2, 3], np.int32), "p0": np.array([7, 8, 9, 5], np.int32)}
    gates = () if gate is None else (b.param(1, (4,), dt.bool_),)
    given |= {} if gate is None else {"p1": np.array(gate, np.bool_)}
    assert same_as_interpreter(tiny, b.sink(UOp(Op.STORE, (target, b.param(0, (4,), i32), *gates))), **given)


def test_a_gated_load_may_be_out_of_bounds(tiny: Tiny) -> None:
    x, gate = b.param(0, (6,), f32), b.param(1, (2,), dt.bool_)
    graph = b.load(UOp(Op.INDEX, (x, b.shape_vector((1, 9)))), b.param(2, (2,), f32), gate)
    assert same_as_interpreter(tiny, graph, p0=X, p1=np.array([True, False]), p2=np.array([7, 8], np.float32))


def test_an_ungated_index_out_of_bounds_is_a_trap(tiny: Tiny) -> None:
    x = b.add(b.param(0, (6,), f32), 1.0)
    with pytest.raises(Trap):
        tiny.run(UOp(Op.INDEX, (x, b.shape_vector((1, 9)))), {"p0": X})


def test_positions_may_be_computed_from_data(tiny: Tiny) -> None:
    graph = UOp(Op.INDEX, (b.param(0, (6,), f32), b.cast(b.param(1, (2,), i32), dt.index)))
    assert same_as_interpreter(tiny, graph, p0=X, p1=np.array([4, 1], np.int32))


def test_inputs_stay_as_they_are(tiny: Tiny) -> None:
    memory, given = b.buffer(6, f32, unique=1), X.copy()
    tiny.run(b.sink(b.store(memory, b.add(memory, 1.0))), {"b1": given})
    assert np.array_equal(given, X)


def test_what_the_library_lacks_is_declared_and_refused_before_anything_is_evaluated(tiny: Tiny) -> None:
    x = b.param(0, (6,), f32)
    assert tiny.capabilities().missing("Decomposed/Sub", f32) is not None
    for graph in (b.build_alu_with_promotion(Op.SUB, b.add(x, x), x), b.cast(b.add(x, x), dt.bfloat16)):
        with pytest.raises(Unsupported, match=r"Decomposed/Sub|bfloat16"):
            tiny.run(graph, {"p0": X})
    assert tiny.asked == []


def test_a_row_that_the_library_refuses_is_declared_in_its_words() -> None:
    picky = Picky()
    missing = picky.capabilities().unsupported
    assert Missing("Movement/Flip", "int32", "NotImplementedError: no flip for int32") in missing
    assert not any(m.row == "Movement/Flip" and m.dtype != "int32" for m in missing)
    with pytest.raises(Unsupported, match="no flip"):
        picky.run(b.flip(b.param(0, (2,), i32), (True,)), {"p0": np.zeros(2, np.int32)})


def test_a_program_is_compiled_once() -> None:
    library, x = TinyCompiler(), b.param(0, (6,), f32)
    assert all(same_as_interpreter(library, b.add(x, x), p0=X + k) for k in range(3))
    assert library.compiled == 1


def test_a_compiled_graph_refuses_a_shape_that_depends_on_data() -> None:
    size = b.cast(b.at(b.param(1, (1,), i32), 0), dt.index)
    graph = b.shrink(b.param(0, (6,), f32), (size,), (2,))
    inputs = {"p0": X, "p1": np.array([3], np.int32)}
    assert np.array_equal(Tiny().run(graph, inputs).values[0], X[3:5])
    with pytest.raises(Unsupported, match="computed from data"):
        TinyCompiler().run(graph, inputs)


def test_an_absent_library_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from uops.backends.subjects.jax_adapter import Jax

    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SpecError, match=r"jax is not installed: pip install .*jax"):
        Jax()


def test_a_variable_that_is_a_parameter_of_a_function_is_its_argument_below_a_cast_to_index(tiny: Tiny) -> None:
    body = b.tuple_(b.cast(b.variable("n", 1, 5, slot=0, dtype=i32), dt.index))
    k, n = b.variable("k", 1, 5, dtype=i32), b.variable("n", 1, 5, dtype=i32)
    outer = b.tuple_(b.get(b.function(body, b.variable("m", 1, 5, slot=0, dtype=i32)), 0))
    for argument in (k, b.add(k, n), b.param(0, (), i32)):
        for f in (body, outer):
            graph = b.tuple_(b.get(b.function(f, argument), 0), b.cast(n, dt.index), b.cast(argument, dt.index))
            inputs = {"k": 3, "n": 2, "p0": np.array(3, np.int32)}
            used = {key: inputs[key] for key in collect_caller_input_nodes(graph)}
            assert same_as_interpreter(tiny, graph, **used), graph


def test_a_shape_may_have_a_variable_that_is_a_parameter_of_a_function() -> None:
    n = b.cast(b.variable("n", 1, 5, slot=0, dtype=i32), dt.index)
    body = b.tuple_(b.expand(b.reshape(b.const(1.5), (1,)), (n,)))
    graph = b.get(b.function(body, b.variable("k", 1, 5, dtype=i32)), 0)
    assert same_as_interpreter(TinyCompiler(), graph, k=4)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_gated_load_of_memory_without_elements_is_its_alternative(tiny: Tiny, is_dynamic: bool) -> None:
    position = b.cast(b.param(1, (), dt.int64), dt.index) if is_dynamic else b.index(0)
    for shape in ((0,), (0, 3), (2, 0)):
        address = b.at(b.param(2, shape, f32), *[position] * len(shape))
        graph = b.load(address, b.const(2.0), b.param(0, (), dt.bool_))
        inputs = {"p0": np.array(False), "p2": np.zeros(shape, np.float32)} | ({"p1": np.array(0)} if is_dynamic else {})
        assert same_as_interpreter(tiny, graph, **inputs), shape
