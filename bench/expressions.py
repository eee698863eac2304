"""Index expressions as data, for two simplifiers to meet on: a list of rows, sources before uses, the last one the root.

Rows: `["const", value]` (an integer or a bool), `["var", name, lo, hi]`, `["loop", id, row]` (0 up to an extent), and
`[op, row, ...]` with an op of OPS. Division and remainder round down (R01, R02), and by zero they are 0 and the dividend (R03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Row = list[Any]
Expression = list[Row]
DIVISIONS = ("idiv", "mod")


def _quotient(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, np.floor_divide(a, safe))


OPS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "idiv": _quotient,
    "mod": lambda a, b: a - b * _quotient(a, b),
    "max": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}


class Writer:
    """Rows made once each, in one language: what differs only in how it is spelt is one row.

    A difference is a sum with a product by -1, `a > b` is `b < a`, `a >= b` is `not a < b` read as one row `le` with its sides
    exchanged, and a Not of a comparison is the other comparison.
    """

    def __init__(self) -> None:
        self.rows: Expression = []
        self.known: dict[tuple[Any, ...], int] = {}

    def row(self, *row: Any) -> int:
        key = tuple((type(v), v) for v in row)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = len(self.rows)
            self.rows.append(list(row))
        return found

    def put(self, op: str, *src: int) -> int:
        if op == "sub":
            return self.row("add", src[0], self.put("neg", src[1]))
        if op == "neg":
            return self.row("mul", src[0], self.row("const", -1))
        if op in ("gt", "ge"):
            return self.row({"gt": "lt", "ge": "le"}[op], src[1], src[0])
        if op == "not" and self.rows[src[0]][0] in _OPPOSITE:
            other, a, b = self.rows[src[0]]
            return self.row(_OPPOSITE[other], *((b, a) if other in ("lt", "le") else (a, b)))
        return self.row(op, *src)

    def expression(self, root: int) -> Expression:
        """The rows below a root."""
        return live([*self.rows, self.rows[root]] if root != len(self.rows) - 1 else self.rows)


_OPPOSITE = {"lt": "le", "le": "lt", "eq": "ne", "ne": "eq"}


def sources(row: Row) -> list[int]:
    """The rows that a row is made of."""
    return [] if row[0] in ("const", "var") else row[2:] if row[0] == "loop" else row[1:]


def live(rows: Expression) -> Expression:
    """The rows that the last one needs, in order."""
    wanted = {len(rows) - 1}
    for k in range(len(rows) - 1, -1, -1):
        if k in wanted:
            wanted.update(sources(rows[k]))
    new = {old: k for k, old in enumerate(sorted(wanted))}
    return [_renumbered(rows[k], new) for k in sorted(wanted)]


def _renumbered(row: Row, new: dict[int, int]) -> Row:
    keep = {"const": len(row), "var": len(row), "loop": 2}.get(row[0], 1)
    return [*row[:keep], *(new[k] for k in row[keep:])]


def counts(rows: Expression) -> tuple[int, int]:
    """(nodes, divisions and remainders); the extent of a loop is no part of the expression."""
    wanted = {len(rows) - 1}
    for k in range(len(rows) - 1, -1, -1):
        if k in wanted and rows[k][0] != "loop":
            wanted.update(sources(rows[k]))
    return len(wanted), sum(rows[k][0] in DIVISIONS for k in wanted)


def evaluate(rows: Expression, leaves: dict[str, Any], count: int, seed: int) -> Any:
    """The root's values at `count` random points; `leaves` keeps the values drawn, so that other expressions meet the same."""
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for row in rows:
        name = f"{row[0]} {row[1]}"
        if row[0] == "const":
            found.append(np.array(row[1]))
        elif row[0] in ("var", "loop"):
            if name not in leaves:
                lo, size = (row[2], row[3] - row[2] + 1) if row[0] == "var" else (0, found[row[2]])
                leaves[name] = lo + np.floor(rng.random(count) * size).astype(np.int64)
            found.append(leaves[name])
        else:
            found.append(OPS[row[0]](*(found[k] for k in row[1:])))
    return np.broadcast_to(found[-1], (count,)).astype(np.int64)


def spell(rows: Expression) -> str:
    """An expression as a person writes it."""
    signs = {"add": "+", "mul": "*", "idiv": "//", "mod": "%", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|"}
    found: list[str] = []
    for row in rows:
        src = [found[k] for k in sources(row)]
        if row[0] in signs:
            found.append(f"({src[0]} {signs[row[0]]} {src[1]})")
        elif row[0] == "loop":
            found.append(f"r{row[1]}<{src[0]}")
        else:
            found.append(str(row[1]) if row[0] in ("const", "var") else f"{row[0]}({', '.join(src)})")
    return found[-1]


def same(a: Sequence[int], b: Sequence[int]) -> bool:
    return bool(np.array_equal(a, b))
