"""The rows of gradients: one for each op with a rule. Their cells judge the front end, which differentiates."""

from __future__ import annotations

from uops.spec.rows.gradients.reverse import GRADIENTS
from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, state_claims
from uops.spec.rows.table import call, codegen, decomposed, elementwise, marker, memory, movement, ordering, reduce, source

_EXECUTED_BY = ExecutedBy(
    ("uops.interp.duals.evaluate:evaluate_duals",), ("uops.compiler.tensor.methods.gradients:find_cotangents",)
)
_MODULES = (source, movement, reduce, call, memory, ordering, elementwise, decomposed, marker, codegen)


def _make_gradient_row(name: str, formula: str) -> NamedRow:
    row_id = f"Gradient/{name}"
    claims = state_claims(row_id, ((f"the cotangents of the operands are: {formula}", "R183"),))
    meaning = f"The vector-Jacobian product of {name}, as a graph."
    return NamedRow(row_id, None, None, meaning, claims, _EXECUTED_BY, RowSubject.FRONT_END)


#: The rows, in the order of the ops' own. g is the cotangent of the node, y the node.
ROWS = tuple(
    _make_gradient_row(row.name, row.gradient.formula) for module in _MODULES for row in module.ROWS if GRADIENTS[row.op].rule
)
