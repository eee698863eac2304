"""Checks of indices that are data: each must name an element, or the realization raises IndexError (R163: indices of Tensors).

A method that takes a Tensor of indices attaches IndexChecks to its node. It omits those whose range is proved: by bounds, or by
data whose memory nobody else holds. IndexChecks are no part of the graph. `realize` collects those of the nodes it computes. It
checks data before the run. For each computed index, the program computes one number more, the index farthest out of range.

A node that is made unchecked has the tag UNCHECKED, which tells it from the same node with IndexChecks. No program has the tag.
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

#: Tag of nodes whose indices are not checked.
UNCHECKED = "unchecked"

#: NumPy's unsigned words, by bytes.
_UNSIGNED = {d.itemsize: np.dtype(d.name) for d in (dt.uint8, dt.uint16, dt.uint32, dt.uint64)}
#: Ops that have all elements of their operand and no others.
_SAME_ELEMENTS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.EXPAND, Op.CAST})


class IndexCheck(NamedTuple):
    """The claim that each element of `node` names one of `extent` elements, negative ones from the end.

    `method` and `axis` are those of the user's call; the axis is None if the Tensor is flattened.
    """

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
        """True if nothing is left to check: no index, bounds in range, or data in range that nobody may change."""
        bounds = self.node.min_max
        return 0 in self.node.shape or (bounds is not None and self.holds(*bounds)) or self.is_proved_by_unshared_data()

    # Data

    def check_known_data_or_return_false(self) -> bool:
        """Return True if the indices are data in range, False if they are computed. Raises SpecIndexError for data out of range."""
        data = storage.data_of(storage.find_realized_leaf(self.node) or self.node)
        if data is None:
            return False
        greatest = np.maximum.reduce(data.view(_UNSIGNED[data.itemsize]))  # negative ones are large as unsigned words
        if greatest >= self.extent and not self.holds(int(data.min()), int(data.max())):
            self.raise_if_out_of_range(data)
        return True

    def raise_if_out_of_range(self, indices: storage.Array) -> None:
        """Raise SpecIndexError for the first of these indices that is out of range, if there is one."""
        indices = np.reshape(indices, self.node.shape)
        outside = (indices < self.least) | (indices >= self.extent)
        if outside.any():
            position = tuple(map(int, np.unravel_index(int(np.argmax(outside)), indices.shape)))
            raise self.make_error(int(indices[position]), position)

    def is_proved_by_unshared_data(self) -> bool:
        """Return True if the indices are elements, moved or cast, of data in range in memory of our own."""
        u, casts = self.node, list[DType]()
        while (bounds := storage.find_range_of_unshared_integer_buffer(u)) is None:
            if u.op not in _SAME_ELEMENTS or not u.operand.dtype.is_integer:
                return False
            casts += [u.dtype] if u.op is Op.CAST else []
            u = u.operand
        low, high = bounds
        return self.holds(low, high) and all(d.min <= low and high <= d.max for d in casts)

    # Computed indices

    def build_farthest_index(self, index: UOp) -> UOp:
        """Return the node whose value `raise_if_greatest_offset_outside` takes; `index` stands for the indices in the program."""
        return _build_greatest_offset_from_least(index, self.least)

    def raise_if_greatest_offset_outside(self, greatest_offset: storage.Array) -> None:
        """Raise SpecIndexError if the value of `build_farthest_index` says that an index is out of range."""
        distance, word = int(np.asarray(greatest_offset).item()), _unsigned_word(self.node.dtype)
        if distance >= self.extent - self.least:
            index = (distance + self.least) % (1 << word.bits)
            is_negative = self.node.dtype.is_signed and index >> (word.bits - 1)
            raise self.make_error(index - (1 << word.bits) if is_negative else index)

    def make_error(self, index: int, position: tuple[int, ...] | None = None) -> IndexOutOfRange:
        """Return the error for an index out of range, at `position` of the indices if that is known."""
        at = "" if not position else f" at {position[0] if len(position) == 1 else position}"
        axis = "the flattened Tensor" if self.axis is None else f"axis {self.axis}"
        expected = f"expected {self.least} to {self.extent - 1}" if self.extent else "it has no elements"
        return IndexOutOfRange(
            self,
            f"Tensor.{self.method}: index {index}{at} is out of range for {axis} of extent {self.extent}: {expected} (R163)",
        )


class IndexOutOfRange(SpecIndexError):
    """An index of `check` that is out of range."""

    def __init__(self, check: IndexCheck, message: str) -> None:
        super().__init__(message)
        self.check = check


_checks: weakref.WeakKeyDictionary[UOp, tuple[IndexCheck, ...]] = weakref.WeakKeyDictionary()


def attach_unproved_checks_or_tag(u: UOp, checks: tuple[IndexCheck, ...], tag_instead: bool = False) -> UOp:
    """Attach to `u` those IndexChecks that nothing proves, or the tag in their place if it is unchecked.

    A node keeps its first IndexChecks. An error of an assignment thus names the method of an earlier call that made the same view.
    """
    open_ = tuple(c for c in checks if not c.is_proved)
    if not open_:
        return u
    if tag_instead:
        return u.replace(tag=UNCHECKED)
    _checks.setdefault(u, open_)
    return u


def attach_body_checks_not_proved_by_data(u: UOp, checks: tuple[IndexCheck, ...]) -> UOp:
    """Attach to `u` the IndexChecks of a body that its arguments do not prove.

    Bounds of the body's own nodes did not prove them. Those of its arguments are not consulted, which would cost more than the
    check.
    """
    open_ = tuple(c for c in checks if not c.is_proved_by_unshared_data())
    if open_:
        _checks.setdefault(u, open_)
    return u


def checks_of(u: UOp) -> tuple[IndexCheck, ...]:
    """Return the IndexChecks attached to a node."""
    return _checks.get(u, ())


def undo_assignments_of_failed_check(root: UOp, check: IndexCheck) -> UOp:
    """Put the old contents in place of every assignment whose index has this check."""
    while True:
        failed = next((u for u in toposort(root) if _assigns_through_checked_index(u, check)), None)
        if failed is None:
            return root
        store, *_ = failed.buffer.dependencies  # of the old contents
        root = substitute_and_transfer_checks(root, {failed: store.value})


def _assigns_through_checked_index(u: UOp, check: IndexCheck) -> bool:
    """Return True for After(copy, Store(view of the copy, value)) whose view has an index of this check.

    A copy is After(memory, Store(memory, old)).
    """
    if u.op is not Op.AFTER or len(u.dependencies) != 1 or u.buffer.op is not Op.AFTER:
        return False
    (store,) = u.dependencies
    if store.op is not Op.STORE:
        return False
    view = store.buffer
    while view.op in VIEWS and view is not u.buffer:
        if check in checks_of(view):
            return True
        view = view.src[0]  # the viewed reference
    return False


def substitute_and_transfer_checks(root: UOp, replacements_to_extend: dict[UOp, UOp]) -> UOp:
    """Replace each key of `replacements_to_extend`. A rebuilt node gets the IndexChecks of the node that it replaces."""
    attached: list[tuple[UOp, IndexCheck]] = []
    pending = [root]
    while pending:
        for u in toposort(pending.pop()):
            if u not in replacements_to_extend:
                src = tuple([replacements_to_extend[s] for s in u.src])
                replacements_to_extend[u] = u if src == u.src else u.replace(src=src)
                if replacements_to_extend[u] is not u:
                    attached += [(u, c) for c in checks_of(u)]
                    pending += [c.node for c in checks_of(u)]
    for u, c in attached:
        _checks[replacements_to_extend[u]] = tuple(
            dict.fromkeys((*checks_of(replacements_to_extend[u]), c._replace(node=replacements_to_extend[c.node])))
        )
    return replacements_to_extend[root]


def strip_unchecked_tags(root: UOp) -> UOp:
    """Remove the tag UNCHECKED from all nodes, of bodies too."""
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        src, tag = tuple([done[s] for s in u.src]), None if u.tag == UNCHECKED else u.tag
        done[u] = u if src == u.src and tag is u.tag else u.replace(src=src, tag=tag)
    return done[root]


@functools.lru_cache(256)
def _build_greatest_offset_from_least(index: UOp, least: int) -> UOp:
    """Return the greatest index, counted from the least one allowed, as an unsigned word."""
    counted = B.cast(index, _unsigned_word(index.dtype))
    if least:
        counted = B.add(counted, B.const(-least, counted.dtype))
    return B.reduce(counted, Op.MAX, range(len(index.shape))) if index.shape else counted


def _unsigned_word(d: DType) -> DType:
    """Return the unsigned dtype with as many bits as an index has."""
    return dt.DTYPES[f"uint{d.bits or dt.int64.bits}"]
