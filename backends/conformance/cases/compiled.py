"""The suite's programs that every target of the compiler takes."""

from __future__ import annotations

from dataclasses import replace

from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.contract import KERNEL_SURFACE, TENSOR_SURFACE
from uops.compiler.entry import convert_to_launch_or_tensor_graph, is_launch
from uops.spec.bestiary.legalize import legalize
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect


def list_programs_every_target_compiles(tier: ConformanceTier, row_glob: str = "*") -> list[ConformanceCase]:
    """List the programs of a tier that every target compiles; the tier `full` includes `smoke`.

    They are graphs of TENSOR and launches; those of the second document are in their legal form. Native text is of one target,
    and values on several devices of none.
    """
    tiers = (ConformanceTier.SMOKE, ConformanceTier.FULL) if tier is ConformanceTier.FULL else (tier,)
    cases = (c for t in tiers for c in generate_cases(t, row_glob) if c.surface in (TENSOR_SURFACE, KERNEL_SURFACE))
    legal = (
        replace(c, graph=legalize(c.graph)) if infer_tensor_kernel_or_bestiary_dialect(c.graph) is Dialect.BESTIARY else c
        for c in cases
    )
    return list({(c.id, c.graph): c for c in legal if c.surface == TENSOR_SURFACE or _has_no_call_in_loop(c.graph)}.values())


#: Dialects of the pipeline, in its order.
_ORDER: tuple[Dialect, ...] = tuple(d for d in Dialect if d is not Dialect.BESTIARY)


def enters_pipeline_at_or_before(case: ConformanceCase, dialect: Dialect) -> bool:
    """Return True for a program of every target that is of no later dialect."""
    if case.surface not in (TENSOR_SURFACE, KERNEL_SURFACE):
        return False
    legal = legalize(case.graph) if infer_tensor_kernel_or_bestiary_dialect(case.graph) is Dialect.BESTIARY else case.graph
    if case.surface == KERNEL_SURFACE and not _has_no_call_in_loop(legal):
        return False
    entry = convert_to_launch_or_tensor_graph(legal, infer_tensor_kernel_or_bestiary_dialect(legal)).dialect
    return _ORDER.index(entry) <= _ORDER.index(dialect)


def _has_no_call_in_loop(graph: UOp) -> bool:
    """Return True for a launch, and for a graph of TENSOR with Calls of kernels: no Call stands in a loop."""
    return (
        is_launch(graph) or not nodes_with_op(graph, Op.RANGE) or infer_tensor_kernel_or_bestiary_dialect(graph) is Dialect.TENSOR
    )
