"""The rows of both documents: `ROWS[op]`, look-ups by id, printed name and glob, and the whole as JSON.

`spec_hash()` identifies the specification. It changes with any row, claim, ruling, dialect or table.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from functools import cache
from typing import Any

from uops.spec.bestiary import rows as bestiary_rows
from uops.spec.bestiary.tables import AXIS_NAMES
from uops.spec.ir.axes import AXIS_TABLE, AxisType
from uops.spec.ir.fields import FIELDS, describe_type
from uops.spec.ir.node import Rule
from uops.spec.ir.ops import BINARY, TERNARY, UNARY, Op
from uops.spec.optops import OPTOPS
from uops.spec.rows.claims import Claim
from uops.spec.rows.table import call, codegen, decomposed, elementwise, marker, memory, movement, ordering, reduce, source
from uops.spec.rows.table.base import OpSpec
from uops.spec.rulings import RULINGS
from uops.spec.verify.dialects import DIALECTS, Dialect, dialects_of

__all__ = ["CLAIMS", "ROWS", "OpSpec", "claims_of", "map_printed_names_to_row_ids", "find_rows", "row_of", "spec_hash", "to_json"]

_MODULES = (source, movement, reduce, call, memory, ordering, elementwise, decomposed, marker, codegen, *bestiary_rows.MODULES)

#: Op -> its row, in the order of the documents.
ROWS: dict[Op, OpSpec] = {row.op: row for module in _MODULES for row in module.ROWS}
_BY_ID: dict[str, OpSpec] = {row.id.lower(): row for row in ROWS.values()}

#: Id -> claim, of all rows and dialects.
CLAIMS: dict[str, Claim] = {c.id: c for row in ROWS.values() for c in row.claims} | {
    c.id: c for d in DIALECTS.values() for c, _ in d.claims
}


def row_of(name: str) -> OpSpec:
    """Return the row with an id ("Movement/Pad") or op name ("PAD"); raises KeyError if there is none."""
    row = _BY_ID.get(name.lower())
    return row if row is not None else ROWS[Op[name.upper()]]


def find_rows(pattern: str) -> list[OpSpec]:
    """Return the rows whose id, op name or claim id matches a glob, in order; case is ignored."""
    glob = pattern.lower()
    return [
        row
        for row in ROWS.values()
        if fnmatch.fnmatchcase(row.id.lower(), glob)
        or fnmatch.fnmatchcase(row.op.name.lower(), glob)
        or any(fnmatch.fnmatchcase(c.id.lower(), glob) for c in row.claims)
    ]


def claims_of(op: Op) -> tuple[Claim, ...]:
    """Return the claims of an op's row."""
    return ROWS[op].claims


def _table_names() -> dict[str, tuple[str, ...]]:
    """Return name -> row ids for the names that are no ops: OptOps and axis types."""
    optops: dict[str, tuple[str, ...]] = {o.__name__: (f"OptOp/{o.__name__}",) for o in OPTOPS if o.row.printed}
    return optops | {t.name: (f"AxisType/{t.name}",) for t in AxisType}


@cache
def map_printed_names_to_row_ids(document: str) -> dict[str, tuple[str, ...]]:
    """Return name -> the ids of its rows, for every name that a document prints for an op, OptOp or axis type.

    `document` is "tinyspec" or "bestiary"; raises KeyError for another. A family name (`Unary(...)`) has several rows.
    """
    if document == "tinyspec":
        names: dict[str, tuple[str, ...]] = {row.tinyspec: (row.id,) for row in ROWS.values() if row.tinyspec}
        placeholder = AxisType.PLACEHOLDER.name
        return names | {"Copy": (ROWS[Op.LOAD].id,)} | {k: v for k, v in _table_names().items() if k != placeholder}
    if document != "bestiary":
        raise KeyError(document)
    names = {row.bestiary: (row.id,) for row in ROWS.values() if row.bestiary}
    families = {"Unary": UNARY, "Binary": BINARY, "Ternary": TERNARY}
    grouped = {name: tuple(ROWS[op].id for op in Op if op in ops) for name, ops in families.items()}
    axes = {name: (f"AxisType/{t.name}",) for name, t in AXIS_NAMES.items()}
    return names | grouped | axes


def _rule_name(rule: Rule) -> str:
    return f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"


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
        "derived": {column: _rule_name(getattr(row, column)) for column in ("dtype", "shape", "device", "min_max", "axis")},
        "claims": [_claim_json(c) for c in row.claims],
        "dialects": [d.value for d in dialects_of(row.op)],
        "decomposition": row.decomposition if isinstance(row.decomposition, str) else f"graph: {row.decomposition.__name__}",
        "gradient": row.gradient.remark,
    }


def _claim_json(c: Claim) -> dict[str, Any]:
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
        "dialects": [_dialect_json(d) for d in Dialect],
        "axis_types": [
            {
                "name": t.name,
                "letter": t.letter,
                "priority": a.priority,
                "split_from": sorted(s.letter for s in a.split_from),
                "direction": a.direction.value if a.direction else None,
                "ordered": a.ordered,
                "semantics": a.semantics,
            }
            for t, a in AXIS_TABLE.items()
        ],
        "optops": [{"name": o.__name__, "axis": o.row.axis, "arg": o.row.arg, "semantics": o.row.semantics} for o in OPTOPS],
        "names": {
            document: {k: list(v) for k, v in map_printed_names_to_row_ids(document).items()}
            for document in ("tinyspec", "bestiary")
        },
        "rulings": {r.id: {"topic": r.topic, "text": r.text} for r in RULINGS.values()},
    }


@cache
def spec_hash() -> str:
    """Return the SHA-256 of the canonical JSON of the specification: keys sorted, no spaces."""
    return hashlib.sha256(json.dumps(to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
