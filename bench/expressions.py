"""Index expressions as data, common to two simplifiers: a list of rows, sources before uses, the last one the root.

Rows: `["const", value]` (an integer or a bool), `["var", name, lo, hi]`, `["loop", id, row]` (0 up to an extent), and `[op, row,
...]` with an op of OPS. Division and remainder round down (R01, R02), and by zero they are 0 and the dividend (R03: division by
zero). The root may be `["masked", gate, address]`: an address that is used only where its gate is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Row = list[Any]
Expression = list[Row]
DIVISIONS = ("idiv", "mod")
#: The value of an address where its gate is false: any other address is as right there.
NO_ADDRESS = -1


def _quotient(a: Any, b: Any) -> Any:
    """Return the floored quotient, 0 for a divisor of 0."""
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
    "masked": lambda gate, address: np.where(gate, address, NO_ADDRESS),
}


class ExpressionWriter:
    """Rows in one canonical language, each written once: expressions that differ only in spelling become one row.

    A difference is a sum with a product by -1. `a > b` is `b < a`, and `a >= b` is the row `le` with its sides exchanged. A Not of
    a comparison is the opposite comparison.
    """

    def __init__(self) -> None:
        self.rows: Expression = []
        self.row_numbers: dict[tuple[Any, ...], int] = {}

    def add_row(self, *row: Any) -> int:
        """Return the number of a row, added if it is new."""
        key = tuple((type(v), v) for v in row)
        number = self.row_numbers.get(key)
        if number is None:
            number = self.row_numbers[key] = len(self.rows)
            self.rows.append(list(row))
        return number

    def add_op(self, op: str, *src: int) -> int:
        """Return the number of an op's row in canonical form."""
        if op == "sub":
            return self.add_row("add", src[0], self.add_op("neg", src[1]))
        if op == "neg":
            return self.add_row("mul", src[0], self.add_row("const", -1))
        if op in ("gt", "ge"):
            return self.add_row({"gt": "lt", "ge": "le"}[op], src[1], src[0])
        if op == "not" and self.rows[src[0]][0] in _OPPOSITE:
            other, a, b = self.rows[src[0]]
            return self.add_row(_OPPOSITE[other], *((b, a) if other in ("lt", "le") else (a, b)))
        return self.add_row(op, *src)

    def expression(self, root: int) -> Expression:
        """Return the rows on which a root depends."""
        return drop_dead_rows([*self.rows, self.rows[root]] if root != len(self.rows) - 1 else self.rows)


_OPPOSITE = {"lt": "le", "le": "lt", "eq": "ne", "ne": "eq"}


def sources(row: Row) -> list[int]:
    """Return the rows on which a row depends directly."""
    return [] if row[0] in ("const", "var") else row[2:] if row[0] == "loop" else row[1:]


def drop_dead_rows(rows: Expression) -> Expression:
    """Return the rows that the last one needs, in order."""
    needed = {len(rows) - 1}
    for k in range(len(rows) - 1, -1, -1):
        if k in needed:
            needed.update(sources(rows[k]))
    new = {old: k for k, old in enumerate(sorted(needed))}
    return [_renumber_row(rows[k], new) for k in sorted(needed)]


def _renumber_row(row: Row, new: dict[int, int]) -> Row:
    """Return a row with the new numbers of its sources."""
    keep = {"const": len(row), "var": len(row), "loop": 2}.get(row[0], 1)
    return [*row[:keep], *(new[k] for k in row[keep:])]


def count_nodes_and_divisions(rows: Expression) -> tuple[int, int]:
    """Return (nodes, divisions and remainders); the extent of a loop is no part of the expression."""
    needed = {len(rows) - 1}
    for k in range(len(rows) - 1, -1, -1):
        if k in needed and rows[k][0] != "loop":
            needed.update(sources(rows[k]))
    return len(needed), sum(rows[k][0] in DIVISIONS for k in needed)


def evaluate_at_random_points(rows: Expression, leaves: dict[str, Any], count: int, seed: int) -> Any:
    """Return the root's values at `count` random points.

    `leaves` keeps the values drawn, so that other expressions get the same.
    """
    rng = np.random.default_rng(seed)
    values: list[Any] = []
    for row in rows:
        name = f"{row[0]} {row[1]}"
        if row[0] == "const":
            values.append(np.array(row[1]))
        elif row[0] in ("var", "loop"):
            if name not in leaves:
                lo, size = (row[2], row[3] - row[2] + 1) if row[0] == "var" else (0, values[row[2]])
                leaves[name] = lo + np.floor(rng.random(count) * size).astype(np.int64)
            values.append(leaves[name])
        else:
            values.append(OPS[row[0]](*(values[k] for k in row[1:])))
    return np.broadcast_to(values[-1], (count,)).astype(np.int64)


def format_expression(rows: Expression) -> str:
    """Return an expression as people write it."""
    signs = {"add": "+", "mul": "*", "idiv": "//", "mod": "%", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|"}
    texts: list[str] = []
    for row in rows:
        src = [texts[k] for k in sources(row)]
        if row[0] in signs:
            texts.append(f"({src[0]} {signs[row[0]]} {src[1]})")
        elif row[0] == "loop":
            texts.append(f"r{row[1]}<{src[0]}")
        else:
            texts.append(str(row[1]) if row[0] in ("const", "var") else f"{row[0]}({', '.join(src)})")
    return texts[-1]


def same(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return True if all values are equal."""
    return bool(np.array_equal(a, b))
