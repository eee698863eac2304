"""Operands of a differentiation: the float values and Params of a graph, and Params for the cotangents of the values."""

from __future__ import annotations

from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_nodes


def list_float_values(graph: UOp) -> list[UOp]:
    """Return the values of a graph, or of its Tuple, that are floats."""
    return [u for u in (graph.values if graph.op is Op.TUPLE else (graph,)) if u.dtype.is_float]


def list_float_params(graph: UOp) -> list[UOp]:
    """Return the Params of floats outside of bodies, in order."""
    return [u for u in scope_nodes(graph) if u.op is Op.PARAM and u.arg.slot is not None and u.dtype.is_float]


def make_cotangent_params(graph: UOp, values: list[UOp]) -> list[UOp]:
    """Make a Param like each value, with a slot that the graph does not use."""
    slots = [u.arg.slot for u in scope_nodes(graph) if u.op is Op.PARAM and u.arg.slot is not None]
    return [b.param(k, u.shape, u.dtype) for k, u in enumerate(values, 1 + max(slots, default=-1))]
