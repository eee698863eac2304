"""The rows of the five derived properties.

The rule of each op stands in the row of the op. The column `rules` names each rule of a property, with the rows of its ops.
"""

from __future__ import annotations

from collections.abc import Mapping

from uops.spec.ir.node import RULES
from uops.spec.ir.ops import Op
from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims
from uops.spec.rows.table.base import name_rule

_CHECKS = "uops.interp.tensor.checks:check_derived_properties"
_DERIVE = "uops.spec.ir.derive"

#: Property -> semantics, claims and what executes it beside the rules.
_PROPERTIES: dict[str, tuple[str, tuple[Statement, ...], ExecutedBy]] = {
    "dtype": (
        "The type of each element; void where a node has no value.",
        (
            ("the value of a node has the dtype that is derived for it", ""),
            ("an ALU op has the dtype of its operands, Where that of its branches, Cast that of its arg, a comparison bool", "R25"),
            ("Tuple, Function, Call, Store, End, Group, Sink and Linear are void", "R77"),
        ),
        ExecutedBy((f"{_DERIVE}.dtype:RULES", _CHECKS), (f"{_DERIVE}.dtype:RULES", "uops.compiler.passes.select.select:select")),
    ),
    "shape": (
        "The extents of a value, outermost first.",
        (
            ("the value of a node has the shape that is derived for it", ""),
            ("shapes broadcast: right-aligned, each extent equal or 1, and the result has the greater one", "R41"),
            ("a value has at most 64 axes", "R65"),
        ),
        ExecutedBy(
            (f"{_DERIVE}.shape:RULES", _CHECKS), (f"{_DERIVE}.shape:RULES", "uops.compiler.passes.rangeify.rangeify:rangeify")
        ),
    ),
    "device": (
        "The device that a value is on, n devices, or null.",
        (
            ("the devices of an op's sources are equal or null, and the result is on that device", "R72"),
            ("only Load changes the device", "R82"),
            ("a Const has none", "R72"),
        ),
        ExecutedBy(
            (f"{_DERIVE}.device:RULES", "uops.interp.bestiary.devices:eval_mselect"),
            (f"{_DERIVE}.device:RULES", "uops.compiler.passes.callify.callify:convert_graph_to_call"),
        ),
    ),
    "min_max": (
        "Bounds of the elements of a value that are not NaN.",
        (
            ("no element that is not NaN lies outside of the bounds", "R71"),
            ("bounds of floats are rounded outward; where integers may overflow, the bounds are those of the dtype", "R70"),
        ),
        ExecutedBy(
            (f"{_DERIVE}.minmax:RULES", "uops.interp.tensor.checks:check_min_max"),
            (f"{_DERIVE}.minmax:RULES", "uops.compiler.passes.select.index_widths:lower_index_arithmetic"),
        ),
    ),
    "axis": (
        "The axis along which a value is sharded over n devices, or null.",
        (
            ("a Buffer on n devices has axis 0", "R73"),
            ("Load to n devices has axis 0, Load to one device null", "R74"),
            ("Permute and Reshape move the axis with its elements, so that each device keeps its shard", "R74"),
            ("Reduce or Replicated over the axis gives null", "R74"),
            ("the axes of ALU sources, right-aligned, agree or are null", "R74"),
        ),
        ExecutedBy(
            (f"{_DERIVE}.axis:RULES", "uops.interp.bestiary.devices:eval_mselect"),
            ("uops.compiler.passes.callify.partition:partition_over_devices",),
        ),
    ),
}


def _list_ops_by_rule(name: str, row_ids: Mapping[Op, str]) -> dict[str, list[str]]:
    by_rule: dict[str, list[str]] = {}
    for op, row_id in row_ids.items():
        by_rule.setdefault(name_rule(RULES[f"_{name}"][op]), []).append(row_id)
    return by_rule


def make_property_rows(row_ids: Mapping[Op, str]) -> tuple[NamedRow, ...]:
    """Return the rows of the properties; `row_ids` has the row of each op."""
    return tuple(
        NamedRow(
            f"Property/{name}",
            name,
            None,
            semantics,
            state_claims(f"Property/{name}", statements),
            executed_by,
            RowSubject.SPECIFICATION,
            {"rules": _list_ops_by_rule(name, row_ids)},
        )
        for name, (semantics, statements, executed_by) in _PROPERTIES.items()
    )
