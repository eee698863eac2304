"""Tools shared by the tests of the decompositions: the LLVM evaluator and the exact references that `bench/coefficients` holds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from uops.compiler.decompose import decompose_node_or_keep_primitive, lower_elementwise, soften_dtype
from uops.spec.ir import build as b
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

BENCH = Path(__file__).resolve().parents[3] / "bench" / "coefficients"


def _bench(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="session")
def derive() -> ModuleType:
    return _bench("derive")


@pytest.fixture(scope="session")
def accuracy() -> ModuleType:
    return _bench("accuracy")


@pytest.fixture(scope="session")
def points() -> ModuleType:
    return _bench("points")


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Any]:
    """compiled(roots, leaves): the graph as a function of arrays, by LLVM."""
    return _bench("evaluate").ElementwiseKernel  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def on_bits(compiled: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """on_bits(op, *dtypes): one elementwise node, lowered, as a function of arrays in the storage dtypes (bits for small
    floats)."""

    def make(op: Op, *dtypes: DType) -> Callable[..., Any]:
        leaves = [b.param(k, (), d) for k, d in enumerate(dtypes)]
        return graph_on_bits(compiled, b.build_alu_with_promotion(op, *leaves), leaves)

    return make


def graph_on_bits(compiled: Callable[..., Any], root: UOp, leaves: Sequence[UOp]) -> Callable[..., Any]:
    """`root` lowered to storage dtypes and compiled."""
    held = [b.param(k, (), soften_dtype(u.dtype)) for k, u in enumerate(leaves)]
    (graph,) = lower_elementwise([root], dict(zip(leaves, held, strict=True)))
    kernel: Callable[..., Any] = compiled(graph, held)
    return kernel


@pytest.fixture(scope="session")
def cast_kernel(compiled: Callable[..., Any]) -> Callable[[DType, DType], Callable[..., Any]]:
    """cast_kernel(src, dst): a lowered Cast."""

    def make(src: DType, dst: DType) -> Callable[..., Any]:
        leaf = b.param(0, (), src)
        return graph_on_bits(compiled, b.cast(leaf, dst), [leaf])

    return make


@pytest.fixture(scope="session")
def direct(compiled: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """direct(op, dtype): `decompose` of one node in float32 or float64, compiled."""

    def make(op: Op, d: DType) -> Callable[..., Any]:
        leaves = [b.param(k, (), d) for k in range(2 if op is Op.POW else 1)]
        kernel: Callable[..., Any] = compiled(decompose_node_or_keep_primitive(b.build_alu_with_promotion(op, *leaves)), leaves)
        return kernel

    return make


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield
