"""Shaped values of a kernel as native vectors and scalars: the parts of this folder put together."""

from __future__ import annotations

from collections.abc import Iterator

from uops.compiler.log import active, note
from uops.compiler.passes.select.vector_reduce import build_fold, plan_fold
from uops.compiler.passes.select.vectors import Vectors
from uops.compiler.target import Machine
from uops.spec.ir.node import UOp


def devectorise(kernel: UOp, machine: Machine, uniques: Iterator[int]) -> UOp:
    """`kernel` on vectors that the machine has; raises CompileError for a shape that is not constant."""
    state = Vectors(kernel, machine, uniques, plan_fold, build_fold)
    state.spread()
    built = state.build()
    if active() is not None:
        note("vectors", kernel, built, state.made())
    return built
