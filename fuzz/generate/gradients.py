"""Backward graphs: the gradients of a random graph of floats with respect to its Params, as a program of its own.

The gradient rules of the specification make them (`uops.spec.rows.gradients`), so this kind tests that compilers evaluate such
graphs. Whether the rules are right is asked by the oracle `duals`.
"""

from __future__ import annotations

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase, generate_tensor_graph
from uops.fuzz.generate.producers import FEATURES
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_nodes
from uops.spec.rows.gradients.reverse import differentiate

#: Producers of what has no gradient (a Call without a registered rule), and of several devices.
_WITHOUT_GRADIENT = frozenset({"call", "shards", "everywhere", "sink"})


def generate_backward_graph(draw: ChoiceSource, nodes: int, max_elements: int, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate the gradients of a graph of about `nodes` nodes, sometimes with its values; the graph itself if it has none."""
    features = FEATURES - _WITHOUT_GRADIENT
    floats = declared.filter_dtypes(dt.FLOATS) or dt.FLOATS
    forward = generate_tensor_graph(
        draw, nodes=nodes, max_elements=max_elements, dtypes=floats, features=features, declared=declared
    )  # fmt: skip
    values = list_float_values(forward.graph)
    seeds, inputs = make_cotangent_params(forward.graph, values), dict(forward.inputs)
    for u, g in zip(values, seeds, strict=True):
        inputs[f"p{g.arg.slot}"] = draw_array(draw, u.dtype, g.shape)
    found = differentiate(add_cotangents_of_equal_values(values, seeds), set(list_float_params(forward.graph)))
    if not found:
        return forward
    kept = values if draw.chance(30) else []
    return FuzzCase(b.tuple_(*kept, *found.values()), inputs)


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


def add_cotangents_of_equal_values(values: list[UOp], cotangents: list[UOp]) -> dict[UOp, UOp]:
    """Return node -> cotangent; a Tuple may have one node twice."""
    seeds: dict[UOp, UOp] = {}
    for u, g in zip(values, cotangents, strict=True):
        seeds[u] = b.add(seeds[u], g) if u in seeds else g
    return seeds
