"""Checks of indices that are data: each names an element that exists, or the realization raises IndexError (R163).

A method that takes a Tensor of indices attaches IndexChecks to the node that it makes. It leaves them out where the range is
proved: by bounds, or by data whose memory nobody else holds. IndexChecks are no part of the graph. `realize` collects those of
what it computes. It looks at data before the run. For each computed index the program gives one number more, the index farthest
out of range.
A node that is made unchecked carries the tag UNCHECKED, which tells it from the same node with IndexChecks; no program has the tag.
"""

from __future__ import annotations

import functools
import weakref
from typing import NamedTuple

import numpy as np

from uops.compiler.tensor import storage
from uops.spec.errors import SpecIndexError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS

UNCHECKED = "unchecked"

#: NumPy's unsigned words, by bytes.
_UNSIGNED = {d.itemsize: np.dtype(d.name) for d in (dt.uint8, dt.uint16, dt.uint32, dt.uint64)}
#: Ops that give all elements of their first source, and no others.
_SAME_ELEMENTS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.EXPAND, Op.CAST})


class IndexCheck(NamedTuple):
    """The claim that each element of `node` names one of `extent` elements, negative ones from the end. `method` and `axis` are
    those of the user's call; the axis is None where the Tensor is flattened."""

    node: UOp
    extent: int
    method: str
    axis: int | None

    @property
    def least(self) -> int:
        """The least index allowed; the greatest is extent - 1."""
        return -self.extent if self.node.dtype.is_signed else 0

    def holds(self, low: float, high: float) -> bool:
        """Return True if indices from `low` to `high` are in range."""
        return self.least <= low and high < self.extent

    @property
    def is_proved(self) -> bool:
        """Return True if nothing is left to look at: no index, bounds in range, or data in range that nobody may change."""
        bounds = self.node.min_max
        return 0 in self.node.shape or (bounds is not None and self.holds(*bounds)) or self.is_of_data()

    # Data

    def look(self) -> bool:
        """Return True if the indices are data in range, False if they are computed. Raises SpecIndexError for data out of range."""
        data = storage.data_of(storage.known(self.node) or self.node)
        if data is None:
            return False
        greatest = np.maximum.reduce(data.view(_UNSIGNED[data.itemsize]))  # negative ones are great, too
        if greatest >= self.extent and not self.holds(int(data.min()), int(data.max())):
            self.find(data)
        return True

    def find(self, indices: storage.Array) -> None:
        """Raise SpecIndexError for the first of these indices that is out of range, if any is."""
        indices = np.reshape(indices, self.node.shape)
        outside = (indices < self.least) | (indices >= self.extent)
        if outside.any():
            position = tuple(map(int, np.unravel_index(int(np.argmax(outside)), indices.shape)))
            raise self.error(int(indices[position]), position)

    def is_of_data(self) -> bool:
        """Return True if the indices are elements, moved or cast, of data in range in memory of our own."""
        u, casts = self.node, list[DType]()
        while (bounds := storage.range_of(u)) is None:
            if u.op not in _SAME_ELEMENTS or not u.src[0].dtype.is_integer:
                return False
            casts += [u.dtype] if u.op is Op.CAST else []
            u = u.src[0]
        low, high = bounds
        return self.holds(low, high) and all(d.min <= low and high <= d.max for d in casts)

    # Computed indices

    def farthest(self, index: UOp) -> UOp:
        """The node whose value `judge` takes; `index` stands for the indices in the program."""
        return _farthest(index, self.least)

    def judge(self, number: storage.Array) -> None:
        """Raise SpecIndexError if the value of `farthest` says that an index is out of range."""
        found, word = int(np.asarray(number).item()), _unsigned_word(self.node.dtype)
        if found >= self.extent - self.least:
            index = (found + self.least) % (1 << word.bits)
            is_negative = self.node.dtype.is_signed and index >> (word.bits - 1)
            raise self.error(index - (1 << word.bits) if is_negative else index)

    def error(self, index: int, position: tuple[int, ...] | None = None) -> IndexOutOfRange:
        """The error for an index out of range, found at `position` of the indices if that is known."""
        at = "" if not position else f" at {position[0] if len(position) == 1 else position}"
        axis = "the flattened Tensor" if self.axis is None else f"axis {self.axis}"
        wanted = f"expected {self.least} to {self.extent - 1}" if self.extent else "it has no elements"
        return IndexOutOfRange(
            self,
            f"Tensor.{self.method}: index {index}{at} is out of range for {axis} of extent {self.extent}: {wanted} (R163)",
        )


class IndexOutOfRange(SpecIndexError):
    """An index of `check` is out of range."""

    def __init__(self, check: IndexCheck, message: str) -> None:
        super().__init__(message)
        self.check = check


_checks: weakref.WeakKeyDictionary[UOp, tuple[IndexCheck, ...]] = weakref.WeakKeyDictionary()


def attach(u: UOp, checks: tuple[IndexCheck, ...], unchecked: bool = False) -> UOp:
    """`u` with those of its IndexChecks that nothing proves; with the tag in their place if it is to be unchecked."""
    open_ = tuple(c for c in checks if not c.is_proved)
    if not open_:
        return u
    if unchecked:
        return u.replace(tag=UNCHECKED)
    _checks.setdefault(u, open_)
    return u


def attach_hoisted(u: UOp, checks: tuple[IndexCheck, ...]) -> UOp:
    """`u` with those of the IndexChecks of a body that its arguments do not prove. The bounds of the body's own nodes did not, and
    those of its arguments are not looked at: that would cost more than the check."""
    open_ = tuple(c for c in checks if not c.is_of_data())
    if open_:
        _checks.setdefault(u, open_)
    return u


def checks_of(u: UOp) -> tuple[IndexCheck, ...]:
    """The IndexChecks that come with a node."""
    return _checks.get(u, ())


def drop_assignments(root: UOp, check: IndexCheck) -> UOp:
    """`root` with the old contents in place of every assignment through an index of this check."""
    while True:
        failed = next((u for u in toposort(root) if _assigns_by(u, check)), None)
        if failed is None:
            return root
        copy = failed.src[0]
        root = _substitute(root, {failed: copy.src[1].src[1]})


def _assigns_by(u: UOp, check: IndexCheck) -> bool:
    """Return True for After(copy, Store(view of the copy, value)) whose view has an index of this check; a copy is
    After(memory, Store(memory, old))."""
    if u.op is not Op.AFTER or len(u.src) != 2 or u.src[1].op is not Op.STORE or u.src[0].op is not Op.AFTER:
        return False
    view = u.src[1].src[0]
    while view.op in VIEWS and view is not u.src[0]:
        if check in checks_of(view):
            return True
        view = view.src[0]
    return False


def _substitute(root: UOp, done: dict[UOp, UOp]) -> UOp:
    """`root` with each key of `done` replaced. What is made anew has the IndexChecks of what it stands for."""
    made: list[tuple[UOp, IndexCheck]] = []
    pending = [root]
    while pending:
        for u in toposort(pending.pop()):
            if u not in done:
                src = tuple([done[s] for s in u.src])
                done[u] = u if src == u.src else u.replace(src=src)
                if done[u] is not u:
                    made += [(u, c) for c in checks_of(u)]
                    pending += [c.node for c in checks_of(u)]
    for u, c in made:
        _checks[done[u]] = tuple(dict.fromkeys((*checks_of(done[u]), c._replace(node=done[c.node]))))
    return done[root]


def strip_tags(root: UOp) -> UOp:
    """`root` without the tag UNCHECKED on any node, of bodies too."""
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        src, tag = tuple([done[s] for s in u.src]), None if u.tag == UNCHECKED else u.tag
        done[u] = u if src == u.src and tag is u.tag else u.replace(src=src, tag=tag)
    return done[root]


@functools.lru_cache(256)
def _farthest(index: UOp, least: int) -> UOp:
    """The greatest of the indices, counted from the least one allowed, in unsigned words."""
    counted = B.cast(index, _unsigned_word(index.dtype))
    if least:
        counted = B.add(counted, B.const(-least, counted.dtype))
    return B.reduce(counted, Op.MAX, range(len(index.shape))) if index.shape else counted


def _unsigned_word(d: DType) -> DType:
    """Unsigned words of as many bits as an index has."""
    return dt.DTYPES[f"uint{d.bits or dt.int64.bits}"]
