"""Backward graphs: the gradients of a random graph of floats with respect to its Params, as a program of its own.

The gradient rules of the specification make them (`uops.spec.rows.gradients`), so this kind tests that compilers evaluate such
graphs. Whether the rules are right is asked by the oracle `duals`.
"""

from __future__ import annotations

from uops.backends.testing.gradients import (
    list_float_params,
    list_float_values,
    make_cotangent_params,
)
from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase, generate_tensor_graph
from uops.fuzz.generate.producers import FEATURES
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.rows.gradients.reverse import add_cotangents_by_node, differentiate

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
    found = differentiate(add_cotangents_by_node(zip(values, seeds, strict=True)), set(list_float_params(forward.graph)))
    if not found:
        return forward
    kept = values if draw.chance(30) else []
    return FuzzCase(b.tuple_(*kept, *found.values()), inputs)
