"""Buffers of a program: their dtypes, their ids, and the ops that copy a value to one. Spec: Buffer; R29 (index arithmetic)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Ops that copy their source to fresh memory by definition (R52, Load; R53, Copy and Contiguous).
COPIES = frozenset({Op.LOAD, Op.CONTIGUOUS})


def storage_dtype(d: DType) -> DType:
    """Return the dtype of a Buffer for values of `d`: int64 for index, which memory cannot hold (R29, index arithmetic)."""
    return dt.int64 if d is dt.index else d


def highest_unique(nodes: Iterable[UOp]) -> int:
    """Return the greatest id of a Buffer among `nodes`; 0 if there is none."""
    return max([u.arg.unique for u in nodes if u.op is Op.BUFFER], default=0)


def fresh_uniques(body: UOp) -> Iterator[int]:
    """Yield ids for new Buffers of `body`. The body is searched for ids only when the first one is drawn."""
    yield from itertools.count(highest_unique(toposort(body)) + 1)


def byte_offset(a: UOp) -> int:
    """Return the position of an argument in its memory, in bytes."""
    return int(a.offset.arg.value) if a.op is Op.SLICE else 0
