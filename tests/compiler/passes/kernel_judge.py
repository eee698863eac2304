"""Kernels written by hand, compiled for the CPU and judged by the interpreter, bit by bit or as the test says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from uops.backends.c.target import TinyTarget
from uops.backends.cache import ObjectCache
from uops.backends.cuda.target import ShimTarget
from uops.backends.llvm.target import LlvmTarget, LlvmTier
from uops.backends.opencl.target import OpenClTarget
from uops.compiler.config import Config
from uops.compiler.runtime.program import Compiled
from uops.compiler.target import Target
from uops.interp import run
from uops.spec.errors import Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

CONFIG = Config(reuse=False, verify=True)

_TARGETS: dict[str, Callable[[], Target]] = {
    "c": TinyTarget, "llvm": lambda: LlvmTarget(LlvmTier.FAST, ObjectCache(None)), "opencl": OpenClTarget,
    "cuda:shim": ShimTarget,
}  # fmt: skip


@functools.cache
def target(name: str) -> Target:
    """The target; the test that asks for one that is absent is skipped with the reason."""
    try:
        return _TARGETS[name]()
    except Unsupported as e:
        pytest.skip(str(e))


def judge(
    graph: UOp, inputs: Mapping[str, Any], dialect: Dialect = Dialect.SCHEDULED, targets: tuple[str, ...] = ("c", "llvm")
) -> dict[str, Any]:
    """Check that the compiled kernel leaves the memory that the interpreter leaves, bit by bit; gives the latter."""
    expected = run(graph, dict(inputs)).buffers
    for name in targets:
        found = Compiled(graph, target(name), CONFIG, dialect)(dict(inputs)).buffers
        for key, value in expected.items():
            assert np.asarray(value).tobytes() == np.asarray(found[key]).tobytes(), f"{name}: {key} is {found[key]}, not {value}"
    return dict(expected)


def special(name: str, bound: Dim) -> UOp:
    return UOp(Op.SPECIAL, (bound if isinstance(bound, UOp) else b.index(bound),), SpecialArg(name))


def local(size: int, dtype: dt.DType = dt.int32, unique: int = 1) -> UOp:
    return b.buffer(size, dtype, addrspace=AddrSpace.LOCAL, unique=unique)


def register(size: int, dtype: dt.DType = dt.int32, unique: int = 2) -> UOp:
    return b.buffer(size, dtype, addrspace=AddrSpace.REG, unique=unique)


def barrier(*effects: UOp) -> UOp:
    return UOp(Op.BARRIER, effects)


def kernel(*effects: UOp) -> UOp:
    return b.sink(*effects, name="k")


def count(op: Op, root: UOp) -> int:
    return sum(u.op is op for u in toposort(root))
