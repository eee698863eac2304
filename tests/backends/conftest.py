"""Kernels made by hand, and how to run them on a target: without the compiler, without the cache."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest

from uops.backends.c.target import DriverTarget, TinyTarget
from uops.backends.cache import ObjectCache
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.target import CrossTarget
from uops.backends.cuda.target import CudaTarget, ShimTarget
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.opencl.platforms import POCL, find_traits
from uops.backends.opencl.render import describe_language
from uops.backends.opencl.target import OpenClTarget
from uops.compiler import Target
from uops.spec.errors import Unsupported
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

sys.path.insert(0, str(Path(__file__).parent / "claims"))  # test modules share the modules of claims
pytest.register_assert_rewrite("alu_claims", "kernel_claims", "render_claims", "thread_kernels", "workgroup_claims")


class Kernels(NamedTuple):
    """The functions below, for tests."""

    linear: Callable[..., UOp]
    elementwise: Callable[..., UOp]
    execute: Callable[..., str]
    apply: Callable[..., Any]


#: The text for other platforms, as far as PoCL can take it: vectors, launches of one dimension, and float32 by float64.
PLAIN_ON_POCL = describe_language(
    replace(find_traits(POCL), vector_lanes=(2, 4, 8), numbers_by_one_dimension=True),
    frozenset({Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC, Op.CAST}),
)
#: Machines by name: a Tier of LLVM, or one of these.
MACHINES: dict[str, Callable[[], Target]] = {
    "tcc": TinyTarget,
    "gcc": lambda: DriverTarget("gcc", ObjectCache(None)),
    "clang": lambda: DriverTarget("clang", ObjectCache(None)),
    "opencl": OpenClTarget,
    "opencl:intel": lambda: OpenClTarget("intel"),
    "opencl:oclgrind": lambda: OpenClTarget("oclgrind"),
    "opencl:plain": lambda: OpenClTarget("pocl", PLAIN_ON_POCL),
    "cuda": lambda: CudaTarget(ObjectCache(None)),
    "cuda:shim": ShimTarget,
    **{name: functools.partial(CrossTarget, p, LlvmTier.FAST, store=ObjectCache(None)) for name, p in PROCESSORS.items()},
    **{
        f"{name}:unicorn": functools.partial(CrossTarget, p, LlvmTier.FAST, "unicorn", ObjectCache(None))
        for name, p in PROCESSORS.items()
        if "unicorn" in p.engines
    },
}
#: Names of machines, separated by commas, whose absence fails a test instead of skipping it.
REQUIRED = "UOPS_REQUIRED_TARGETS"


def skip_unless_required(name: str, reason: Exception) -> NoReturn:
    """Skip the test, as the target `name` is absent; fail it if that target is required."""
    if name in os.environ.get(REQUIRED, "").split(","):
        pytest.fail(f"{name} is required ({REQUIRED}): {reason}")
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def skip_absent() -> Callable[[str, Exception], NoReturn]:
    return skip_unless_required


@functools.cache
def machine(tier: LlvmTier | str) -> Target:
    """The target; the test that asks for one that is absent is skipped with the reason, or fails if it is required."""
    try:
        return LlvmTarget(tier, ObjectCache(None)) if isinstance(tier, LlvmTier) else MACHINES[tier]()
    except Unsupported as e:
        skip_unless_required(str(tier), e)


def linear(*roots: UOp) -> UOp:
    """A LINEAR kernel with every node below `roots`, sources first."""
    return UOp(Op.LINEAR, tuple(toposort(*roots)))


def elementwise(n: int, out: DType, sources: Sequence[DType], make: Callable[..., UOp]) -> UOp:
    """p0[i] = make(p1[i], p2[i], ...) for i < n."""
    i = B.range_(n, 0)
    loads = [B.load(B.at(B.param(k, (n,), d), i)) for k, d in enumerate(sources, 1)]
    return linear(B.end(B.store(B.at(B.param(0, (n,), out), i), make(*loads)), i))


def execute(kernel: UOp, buffers: Sequence[Any], scalars: Sequence[int] = (), tier: LlvmTier | str = LlvmTier.FAST) -> str:
    """Compile and run on arrays in argument order (0 in the place of a variable); gives the source text."""
    target = machine(tier)
    source = target.render(kernel)
    loaded = target.load(target.compile(source))
    places = [b if isinstance(b, int) else b.ctypes.data for b in buffers]
    with target.lend([b for b in buffers if not isinstance(b, int)]):
        loaded(places, [*scalars, *([0] * (len(places) - len(scalars)))])
    return source


def apply(make: Callable[..., UOp], out: DType, sources: Sequence[DType], columns: Sequence[Any], tier: LlvmTier | str) -> Any:
    """Apply `make` to columns of values; an array of `out`."""
    arrays = [np.array(c, dtype=d.name) for c, d in zip(columns, sources)]
    result = np.zeros(len(arrays[0]), dtype=out.name)
    execute(elementwise(len(result), out, sources, make), [result, *arrays], tier=tier)
    return result


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels(linear, elementwise, execute, apply)


@pytest.fixture(params=list(LlvmTier), ids=lambda tier: tier.name.lower())
def tier(request: pytest.FixtureRequest) -> LlvmTier:
    found: LlvmTier = request.param
    return found
