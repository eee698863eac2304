"""The optional rows (R188): functions that most libraries have and the documents lack (`OPTIONAL`)."""

from __future__ import annotations

from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, state_claims
from uops.spec.rows.optional import OPTIONAL, OptionalFunction


def _make_row(f: OptionalFunction) -> NamedRow:
    statements = (("the body of the Function says what it means", "R188"), *((claim, f.ruling) for claim in f.claims))
    executed_by = ExecutedBy(
        (f"uops.spec.rows.optional:{f.build_body.__name__}", "uops.interp.evaluation:run"), ("uops.compiler.pipeline:lower",)
    )
    columns = {"dtypes": [d.name for d in f.dtypes], "function": f.function_name}
    return NamedRow(f.row, None, None, f.semantics, state_claims(f.row, statements), executed_by, RowSubject.OPTIONAL, columns)


ROWS = tuple(map(_make_row, OPTIONAL.values()))
