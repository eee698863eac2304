"""Marker ops: identity on data."""

from __future__ import annotations

from uops.spec.ir.ops import Family, Op
from uops.spec.rows.table.base import RowTable

r = RowTable(Family.MARKER)
# fmt: off
r(Op.CONTIGUOUS,          "Contiguous",         "Contiguous",         "T", "T, laid out row-major in memory.")
r(Op.CONTIGUOUS_BACKWARD, "ContiguousBackward", "ContiguousBackward", "T", "T, whose gradient is laid out row-major in memory.")
r(Op.DETACH,              "Detach",             "Detach",             "T", "T, through which no gradient passes.")
# fmt: on
ROWS = tuple(r.rows)
