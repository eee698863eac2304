"""What the memory of a kernel holds, as fingerprints.

Takes: Params and Buffers, positions and values. Gives: their contents. Spec: R61 (fresh buffers), R128 (private memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uops.compiler.validate.fingerprints.integers import Integer, NotEvaluable, Numbers, add, with_rank
from uops.compiler.validate.fingerprints.mixing import Fingerprints, combine, fingerprint_of_words, to_integers
from uops.compiler.validate.fingerprints.operations import Mask, require_few_points
from uops.compiler.validate.fingerprints.terms import TermValue, fingerprint, ring_of_integer
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import WORKGROUP
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import numbers_workgroups

#: The low bits of the fingerprints of elements that were never stored, by which they are known.
_FRESH_BITS, _FRESH = np.uint64((1 << 24) - 1), np.uint64(0x5EED5E)


def fresh_elements(m: UOp, text: str, count: int) -> Fingerprints:
    """Return elements of a Buffer that were never stored. They are equal to nothing else, nor to those of another text."""
    positions = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = positions * fingerprint_of_words("stride") + fingerprint_of_words("uninitialized", m.arg.unique, text)
    return (x & ~_FRESH_BITS) | _FRESH


def may_be_fresh(x: Fingerprints) -> bool:
    """Return True if an element may never have been stored; of others with a chance of 2^-24 each."""
    return bool(((x & _FRESH_BITS) == _FRESH).any())


class StoredValues(NamedTuple):
    """Values that a Store writes to a Param: positions, fingerprints, and where the Store is executed (None for everywhere).

    `loops` are around the Store. One that `is_conditional` has a gate that depends on memory.
    """

    positions: Integer
    values: Fingerprints
    mask: Mask | None
    loops: frozenset[UOp] = frozenset()
    is_conditional: bool = False


@dataclass(eq=False, slots=True)
class MemoryContents:
    """The contents of a Param or Buffer. It has a copy for each iteration of the loops `private`, at `copy_offset`.

    Each copy holds the elements from the position `first` on. Once a sum is in it, `contents` are multisets of addends. `wraps` is
    that of some value in it. `is_stored` has the elements of a Param that were stored.
    """

    node: UOp
    private: tuple[UOp, ...]
    copy_offset: Numbers
    first: Integer
    contents: Fingerprints
    is_stored: Mask | None = None
    reduction: tuple[Op, DType] | None = None
    wraps: DType | None = None

    def find_elements(self, positions: Integer) -> Numbers:
        """Return where `contents` has the elements at these positions, in the copies of the iterations.

        Raises DependsOnCounter if they depend on other counters than the first element does.
        """
        rank = positions.numbers.ndim
        return add(positions, self.first.map_arrays(lambda x: with_rank(x, rank)), -1).require_numbers() + with_rank(
            self.copy_offset, rank
        )

    def mark_stored(self, at: Numbers, mask: Mask | None) -> None:
        """Note that elements of a Param are stored where a condition holds."""
        if self.is_stored is not None:
            self.is_stored[select_executed(at, mask)] = True

    def list_stored_values(self, is_stored: Mask) -> StoredValues:
        """Return the positions and values of the elements that were stored; sums are finished."""
        positions = list_positions_of_copies(self.first, self.copy_offset, self.contents.size // self.copy_offset.size)
        return StoredValues(positions.map_arrays(lambda x: x[is_stored]), finished_contents(self)[is_stored], None)


def select_executed(at: Numbers, mask: Mask | None) -> Numbers:
    """Return the elements at which a condition holds, along one axis."""
    at, executed = np.broadcast_arrays(at, True if mask is None else with_rank(mask, at.ndim))
    return np.asarray(at[executed])


def list_positions_of_copies(first: Integer, copy_offset: Numbers, size: int) -> Integer:
    """Return the positions of all elements of the copies of a memory: of each, `size` elements from the first one on."""
    order = np.argsort(copy_offset, axis=None)

    def repeat(x: Numbers) -> Numbers:
        return np.repeat(np.broadcast_to(x, copy_offset.shape).reshape(-1)[order], size)

    elements = np.tile(np.arange(size, dtype=np.int64), copy_offset.size)
    return add(first.map_arrays(repeat), Integer(elements))


def store_unambiguously(contents: Fingerprints, at: Numbers, values: Fingerprints, mask: Mask | None) -> None:
    """Store values in all iterations. Raises NotEvaluable if one element gets two values."""
    arrays: list[npt.NDArray[Any]] = [at, values, *([] if mask is None else [mask])]
    rank = max(a.ndim for a in arrays)
    arrays = [with_rank(a, rank) for a in arrays]
    require_few_points(*arrays)
    at, values, *masks = np.broadcast_arrays(*arrays)
    if masks:
        at, values = at[masks[0]], values[masks[0]]
    contents[at] = values
    if not (contents[at] == values).all():
        raise NotEvaluable("a Store writes two values to one element")


def finished_contents(memory: MemoryContents) -> Fingerprints:
    """Return the contents as values; sums are finished."""
    return fingerprint(TermValue(None, memory.contents, memory.reduction))


def initial_elements(m: UOp, positions: Integer | Fingerprints) -> Fingerprints:
    """Return the elements of a Param as the kernel is given them."""
    at = ring_of_integer(positions) if isinstance(positions, Integer) else to_integers(positions)
    return combine(fingerprint_of_words("element", m.dtype.name, m.arg.slot), at)


def may_have_copy_per_iteration(m: UOp, loop: UOp) -> bool:
    """Return True if each iteration of a loop may have a Buffer of its own: all but lanes that share LOCAL memory (R128).

    It has none where a sequential loop carries values in it. Such a Load then finds what is equal to nothing.
    """
    if m.arg.addrspace is not AddrSpace.LOCAL:
        return True
    return numbers_workgroups(loop) if loop.op is Op.SPECIAL else loop.arg.type not in WORKGROUP
