"""Kernels made by hand, and how to run them: the llvm backend without the compiler."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from uops.backends.llvm import binding
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.render import ENTRY, render
from uops.spec import build as B
from uops.spec.dtypes import DType
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op

Signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Kernels(NamedTuple):
    """The functions below, for tests."""

    linear: Callable[..., UOp]
    elementwise: Callable[..., UOp]
    execute: Callable[..., str]
    apply: Callable[..., Any]


def linear(*roots: UOp) -> UOp:
    """A LINEAR kernel with every node below `roots`, sources first."""
    return UOp(Op.LINEAR, tuple(toposort(*roots)))


def elementwise(n: int, out: DType, sources: Sequence[DType], make: Callable[..., UOp]) -> UOp:
    """p0[i] = make(p1[i], p2[i], ...) for i < n."""
    i = B.range_(n, 0)
    loads = [B.load(B.at(B.param(k, (n,), d), i)) for k, d in enumerate(sources, 1)]
    return linear(B.end(B.store(B.at(B.param(0, (n,), out), i), make(*loads)), i))


def execute(kernel: UOp, buffers: Sequence[Any], scalars: Sequence[int] = (), tier: Tier = Tier.FAST) -> str:
    """Compile and run on arrays (or addresses) in argument order; gives the source text."""
    source = render(kernel)
    loaded = binding.load_object(binding.compile_object(source, binding.host(), tier), ENTRY)
    places = [b if isinstance(b, int) else b.ctypes.data for b in buffers]
    table = (ctypes.c_void_p * max(1, len(places)))(*places)
    numbers = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
    Signature(loaded.address)(ctypes.addressof(table), ctypes.addressof(numbers))
    return source


def apply(make: Callable[..., UOp], out: DType, sources: Sequence[DType], columns: Sequence[Any], tier: Tier) -> Any:
    """Apply `make` to columns of values; an array of `out`."""
    arrays = [np.array(c, dtype=d.name) for c, d in zip(columns, sources)]
    result = np.zeros(len(arrays[0]), dtype=out.name)
    execute(elementwise(len(result), out, sources, make), [result, *arrays], tier=tier)
    return result


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels(linear, elementwise, execute, apply)


@pytest.fixture(params=list(Tier), ids=lambda tier: tier.name.lower())
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    return found
