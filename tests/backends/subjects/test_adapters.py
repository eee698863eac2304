"""The adapters: cells of the suite in process, and the faults of an adapter that the judge must find."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.judge import Expectation, judge
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier
from uops.backends.contract import TENSOR_SURFACE
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.numpy_adapter import Numpy
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS

FOLDER = Path(__file__).parents[3] / "docs" / "findings"
#: Subject -> the modules that it needs, which are also its extra.
NEEDS = {
    "numpy": (),
    "iree": ("iree",),
    "jax": ("jax",),
    "jax:jit": ("jax",),
    "mlx": ("mlx",),
    "mlx:compile": ("mlx",),
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
    "numba": ("numba",),
    "tvm": ("tvm",),
    "xla": ("jax",),
}
#: Rows that every subject meets.
ROWS_MET = ("Movement/Permute", "Movement/Shrink", "Call/Call", "Ordering/After", "Elementwise/Xor", "Movement/Index")


def create(name: str) -> Evaluator:
    for module in NEEDS[name]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra `{NEEDS[name][0]}`)")
    if name == "mlx:compile" and shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    backend = registry.create_backend(name)
    assert isinstance(backend, Evaluator)
    return backend


@cache
def list_all_tensor_cases() -> list[ConformanceCase]:
    return [c for c in generate_cases(ConformanceTier.SMOKE) if c.surface == TENSOR_SURFACE]


@cache
def find_expectation(case_id: str) -> Expectation:
    return next(Expectation(c) for c in list_all_tensor_cases() if c.id == case_id)


def list_failing_cells(backend: Evaluator, row: str, dtypes: tuple[str, ...]) -> list[str]:
    failing = []
    for case in list_all_tensor_cases():
        if case.row == row and case.dtype.name in dtypes and backend.capabilities().missing(row, case.dtype) is None:
            verdicts = judge(find_expectation(case.id), backend.run(case.graph, case.inputs), ConformanceLevel.STRICT)
            failing += [f"{case.id} {v.failures[0].message}" for v in verdicts if v.failed]
    return failing


@pytest.mark.parametrize("row", ROWS_MET)
@pytest.mark.parametrize("name", NEEDS)
def test_a_subject_meets_rows_without_arithmetic(name: str, row: str) -> None:
    assert list_failing_cells(create(name), row, ("float32", "int32")) == []


@pytest.mark.parametrize("name", NEEDS)
def test_every_elementwise_op_has_a_function_or_is_declared(name: str) -> None:
    backend = create(name)
    for op in (Op.MOD, Op.THREEFRY, Op.TRUNC, Op.EXP2, Op.MULACC):
        declared = backend.capabilities().missing(ROWS[op].id) or any(
            m.row == ROWS[op].id for m in backend.capabilities().unsupported
        )
        assert op in backend.functions or declared


def test_versions_name_the_library() -> None:
    assert re.fullmatch(r"numpy \S+, ml_dtypes \S+, Python \S+", Numpy().version())


def test_foreign_libraries_are_loaded_in_a_worker_alone() -> None:
    assert all(registry.is_foreign(name) for name in (*NEEDS, "torch:compile"))


def swap(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(b, a)


FAULTS: dict[Op, Callable[..., Any]] = {
    Op.SUB: swap(np.subtract),
    Op.CMPLT: swap(np.less),
    Op.IDIV: lambda a, b: np.trunc(np.divide(a, np.where(b == 0, 1, b))).astype(a.dtype),
    Op.MOD: np.fmod,
    Op.MAX: np.fmax,
    Op.WHERE: lambda p, a, b: np.where(p, b, a),
    Op.SHR: lambda a, n: np.right_shift(a.view("u4"), n.view("u4")).view(a.dtype),
}


@pytest.mark.parametrize("op", FAULTS, ids=lambda op: op.name)
def test_the_judge_finds_a_fault_that_is_planted_in_an_adapter(op: Op) -> None:
    faulty = Numpy()
    faulty.functions = {**faulty.functions, op: FAULTS[op]}
    dtypes = ("float32",) if op is Op.MAX else ("int32",)
    with np.errstate(all="ignore"):
        before, after = list_failing_cells(Numpy(), ROWS[op].id, dtypes), list_failing_cells(faulty, ROWS[op].id, dtypes)
    assert len(after) > len(before)


MOVEMENT_FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "Movement/Flip": ("flip", lambda x, axes: x),
    "Movement/Shrink": ("shrink", lambda x, starts, stops: x[tuple(slice(0, b - a) for a, b in zip(starts, stops, strict=True))]),
    "Movement/Pad": ("pad", lambda x, widths: np.pad(x, [(high, low) for low, high in widths])),
    "Movement/Stack": ("stack", lambda values: np.stack(values[::-1])),
    "Store/Store": ("scatter", lambda flat, positions, values: flat),
}


@pytest.mark.parametrize("row", MOVEMENT_FAULTS)
def test_the_judge_finds_a_fault_in_movement(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = Numpy()
    monkeypatch.setattr(faulty, *MOVEMENT_FAULTS[row])
    assert list_failing_cells(Numpy(), row, ("int64",)) == []
    assert list_failing_cells(faulty, row, ("int64",))


@pytest.mark.parametrize("subject", ["numpy", "iree", "jax", "mlx", "torch", "onnxruntime", "openvino", "numba", "tvm", "xla"])
def test_each_finding_has_a_script_of_the_library_alone(subject: str) -> None:
    prose = (FOLDER / f"{subject}.md").read_text(encoding="utf-8")
    scripts = {p.name for p in (FOLDER / "scripts").glob(f"{subject}-*.py")}
    assert scripts == set(re.findall(rf"scripts/({subject}-\w+\.py)", prose))
    for name in scripts:
        text = (FOLDER / "scripts" / name).read_text(encoding="utf-8")
        assert re.match(r'"""R\d\d', text), name
        assert "uops" not in text, name
