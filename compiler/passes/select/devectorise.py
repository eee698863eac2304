"""Lowering of the shaped values of a kernel to native vectors and scalars, by the modules of this folder."""

from __future__ import annotations

from collections.abc import Iterator

from uops.compiler.log import active_log, log_transform
from uops.compiler.passes.select.vector_reduce import build_needed_reduce_pieces, plan_reduce_and_request_terms
from uops.compiler.passes.select.vectors import VectorSelector
from uops.compiler.target import MachineModel
from uops.spec.ir.node import UOp


def lower_to_native_vectors(kernel: UOp, machine: MachineModel, uniques: Iterator[int]) -> UOp:
    """Lower a kernel to vectors that the machine has; `uniques` are ids for accumulators.

    Raises CompileError for an op that has no vectors.
    """
    selector = VectorSelector(kernel, machine, uniques, plan_reduce_and_request_terms, build_needed_reduce_pieces)
    selector.request_needed_pieces()
    lowered = selector.build_nodes()
    if active_log() is not None:
        log_transform("vectors", kernel, lowered, selector.collect_built_nodes())
    return lowered
