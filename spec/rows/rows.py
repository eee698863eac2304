"""The rows of both documents: `ROWS[op]`, `NAMED_ROWS[id]`, look-ups by id, printed name and glob, and the whole as JSON.

`hash_spec_without_executors()` identifies the specification. It changes with any row, claim, ruling, dialect or table, and not with
the names of what executes a row.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from functools import cache
from typing import Any

from uops.spec.bestiary import rows as bestiary_rows
from uops.spec.ir.fields import FIELDS, describe_type
from uops.spec.ir.ops import BINARY, TERNARY, UNARY, Op
from uops.spec.rows.claims import Claim
from uops.spec.rows.executors import name_functions_that_execute_op
from uops.spec.rows.named import function, gradients, graphs, optional, properties, schedule, stages, tables
from uops.spec.rows.named.base import NamedRow, RowSubject, StatedClaim
from uops.spec.rows.table import call, codegen, decomposed, elementwise, marker, memory, movement, ordering, reduce, source
from uops.spec.rows.table.base import OpSpec, name_rule
from uops.spec.rulings import RULINGS
from uops.spec.verify.dialects import DIALECTS, Dialect, dialects_of

__all__ = ["CLAIMS", "NAMED_ROWS", "ROWS", "STATED_CLAIMS", "OpSpec", "claims_of", "find_rows", "map_printed_names_to_row_ids",
           "row_of", "rows_of_subject", "hash_spec_without_executors", "to_json"]  # fmt: skip

_MODULES = (source, movement, reduce, call, memory, ordering, elementwise, decomposed, marker, codegen, *bestiary_rows.MODULES)

#: Op -> its row, in the order of the documents.
ROWS: dict[Op, OpSpec] = {row.op: row for module in _MODULES for row in module.ROWS}
#: Id -> row, of all that the documents name beside ops: in the order of the first document, then the second's tables.
NAMED_ROWS: dict[str, NamedRow] = {
    row.id: row
    for row in (
        *properties.make_property_rows({op: row.id for op, row in ROWS.items()}),
        *schedule.ROWS,
        *graphs.ROWS,
        *function.ROWS,
        *gradients.ROWS,
        *stages.ROWS,
        *tables.ROWS,
        *optional.ROWS,
    )
}
_ALL_ROWS: tuple[OpSpec | NamedRow, ...] = (*ROWS.values(), *NAMED_ROWS.values())
_BY_ID = {row.id.lower(): row for row in _ALL_ROWS}

#: Id -> claim, of all ops and dialects: what the verifier checks.
CLAIMS: dict[str, Claim] = {c.id: c for row in ROWS.values() for c in row.claims} | {
    c.id: c for d in DIALECTS.values() for c, _ in d.claims
}
#: Id -> claim, of all other rows: what they mean.
STATED_CLAIMS: dict[str, StatedClaim] = {c.id: c for row in NAMED_ROWS.values() for c in row.claims}


def row_of(name: str) -> OpSpec | NamedRow:
    """Return the row with an id ("Movement/Pad", "Stage/expand") or op name ("PAD"); raises KeyError if there is none."""
    row = _BY_ID.get(name.lower())
    return row if row is not None else ROWS[Op[name.upper()]]


def rows_of_subject(subject: RowSubject) -> list[OpSpec | NamedRow]:
    """Return the rows whose cells judge a part, in order: those of ops judge a backend (R171)."""
    return [row for row in _ALL_ROWS if (row.subject if isinstance(row, NamedRow) else RowSubject.BACKEND) is subject]


def find_rows(pattern: str) -> list[OpSpec | NamedRow]:
    """Return the rows whose id, name or claim id matches a glob, in order; case is ignored. The name of an op's row is the op's."""
    glob = pattern.lower()
    return [row for row in _ALL_ROWS if any(fnmatch.fnmatchcase(text.lower(), glob) for text in _searched_texts(row))]


def _searched_texts(row: OpSpec | NamedRow) -> tuple[str, ...]:
    return (row.id, row.op.name if isinstance(row, OpSpec) else row.name, *(c.id for c in row.claims))


def claims_of(op: Op) -> tuple[Claim, ...]:
    """Return the claims of an op's row."""
    return ROWS[op].claims


@cache
def map_printed_names_to_row_ids(document: str) -> dict[str, tuple[str, ...]]:
    """Return name -> the ids of its rows, for every name that a document prints.

    `document` is "tinyspec" or "bestiary"; raises KeyError for another. A family name (`Unary(...)`) has several rows, and so has a
    name that is printed for different things: tinyspec's Expand is an op and a stage.
    """
    if document not in ("tinyspec", "bestiary"):
        raise KeyError(document)
    names: dict[str, tuple[str, ...]] = {}
    for row in _ALL_ROWS:
        if (name := getattr(row, document)) is not None:
            names[name] = (*names.get(name, ()), row.id)
    if document == "tinyspec":
        return names | {"Copy": (ROWS[Op.LOAD].id,), "Assign": (ROWS[Op.STORE].id, ROWS[Op.AFTER].id)}
    families = {"Unary": UNARY, "Binary": BINARY, "Ternary": TERNARY}
    return names | {name: tuple(ROWS[op].id for op in Op if op in ops) for name, ops in families.items()}


def _row_json(row: OpSpec) -> dict[str, Any]:
    arg = row.arg_type
    return {
        "op": row.op.name,
        "id": row.id,
        "family": row.family.value,
        "document": row.document,
        "names": {"tinyspec": row.tinyspec, "bestiary": row.bestiary},
        "schema": row.schema.text,
        "arg": None if arg is None else {"type": arg.__name__, "fields": {f.name: describe_type(f.hint) for f in FIELDS[arg]}},
        "semantics": row.semantics,
        "derived": {column: name_rule(getattr(row, column)) for column in ("dtype", "shape", "device", "min_max", "axis")},
        "claims": [_claim_json(c) for c in row.claims],
        "dialects": [d.value for d in dialects_of(row.op)],
        "decomposition": row.decomposition if isinstance(row.decomposition, str) else f"graph: {row.decomposition.__name__}",
        "gradient": row.gradient.formula,
        "subject": RowSubject.BACKEND.value,
        "executed_by": name_functions_that_execute_op(row.op).to_json(),
    }


def _named_row_json(row: NamedRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "family": row.family,
        "document": row.document,
        "names": {"tinyspec": row.tinyspec, "bestiary": row.bestiary},
        "semantics": row.semantics,
        "columns": dict(row.columns),
        "claims": [_claim_json(c) for c in row.claims],
        "subject": row.subject.value,
        "executed_by": row.executed_by.to_json(),
    }


def _claim_json(c: Claim | StatedClaim) -> dict[str, Any]:
    return {"id": c.id, "text": c.text, "ruling": c.ruling or None}


def _dialect_json(d: Dialect) -> dict[str, Any]:
    spec = DIALECTS[d]
    return {
        "dialect": d.value,
        "outer": [o.name for o in Op if o in spec.outer],
        "body": None if spec.body is None else [o.name for o in Op if o in spec.body],
        "claims": [_claim_json(c) for c, _ in spec.claims],
    }


def to_json() -> dict[str, Any]:
    """Return the specification as plain data, as `uops spec --json` prints it."""
    return {
        "ops": [_row_json(row) for row in ROWS.values()],
        "rows": [_named_row_json(row) for row in NAMED_ROWS.values()],
        "dialects": [_dialect_json(d) for d in Dialect],
        "names": {
            document: {k: list(v) for k, v in map_printed_names_to_row_ids(document).items()}
            for document in ("tinyspec", "bestiary")
        },
        "rulings": {r.id: {"topic": r.topic, "text": r.text} for r in RULINGS.values()},
    }


@cache
def hash_spec_without_executors() -> str:
    """Return the SHA-256 of the canonical JSON of the specification, but for `executed_by`: keys sorted, no spaces."""
    data = to_json()
    for row in (*data["ops"], *data["rows"]):
        del row["executed_by"]
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
