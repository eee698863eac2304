"""Every workload of the benchmarks gives NumPy's result, compiled and interpreted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from uops import Dialect, verify
from uops.compiler.tensor import capture
from uops.interp import run


def load() -> ModuleType:
    """bench/ is no package."""
    import sys

    path = Path(__file__).parents[3] / "bench" / "workloads.py"
    spec = importlib.util.spec_from_file_location("uops_bench_workloads", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


W = load()


def judge(got: Any, want: Any, scale: Any, tolerance: float) -> None:
    assert got.shape == want.shape
    assert W.relative_error(got, want, scale) <= tolerance


@pytest.mark.parametrize("name", W.WORKLOADS)
def test_a_workload_gives_numpys_result(name: str) -> None:
    built = W.build(name)
    captured = capture(built.output)
    verify(captured.graph, Dialect.TENSOR)
    want, tolerance = built.reference(), W.WORKLOADS[name].tolerance
    scale = built.scale(want)
    judge(run(captured.graph, captured.inputs).values[0], want, scale, tolerance)
    judge(built.output.numpy(), want, scale, tolerance)


@pytest.mark.parametrize("name", [n for n in W.WORKLOADS if n not in ("gelu", "sum")])
def test_a_workload_of_full_size_is_a_graph_of_the_same_kind(name: str) -> None:
    """Building costs no memory beyond the inputs, and the graph of full size is well-formed."""
    built = W.build(name, full=True)
    captured = capture(built.output)
    verify(captured.graph, Dialect.TENSOR)
    assert len(captured.inputs) == len(built.inputs)


def test_there_are_nineteen_kernels_and_two_networks() -> None:
    assert len(W.KERNELS) == 19 and len(W.WORKLOADS) == 21


@pytest.mark.parametrize(
    ("name", "work"), [("gemm-256", 2 * 256**3), ("conv2d", 2 * 9 * 64 * 64 * 56 * 56), ("sum", 4 * 2**24), ("resnet18", 3.63e9)]
)
def test_work_is_counted(name: str, work: float) -> None:
    """1.8 billion multiplications and additions for ResNet-18 at 224 (He et al. 2015)."""
    w = W.WORKLOADS[name]
    assert w.work(w.full) == pytest.approx(work, rel=0.01)
