"""What a kernel borrows from a run of the tensor machine: values, and memory that it may change.

For whatever surrounds a kernel, all its accesses are those of one node - the Call, the End or Reduce, or the root - and are logged
as one read and one write per memory, with the elements that were touched (R55, R59, R63).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.interp.kernel.call.bodies import Body
from uops.interp.kernel.lane_machine.memory import Space, Window, space
from uops.interp.kernel.run import run_kernel
from uops.interp.tensor import memory as references
from uops.interp.tensor.machine import Machine
from uops.interp.tensor.memory import Access, Ref, Storage, describe
from uops.interp.tensor.scope import VOID, Cell, Scope
from uops.interp.tensor.storage import NUMPY, Array, check_variable, settle
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import is_variable


@dataclass(eq=False, slots=True)
class Launches:
    """What the kernels of one run share: the owners of arenas (R126), and per storage the accesses that were AtomicAdds alone."""

    arenas: dict[Storage, Owners] = field(default_factory=dict)
    added: dict[Storage, int] = field(default_factory=dict)


def launches(m: Machine) -> Launches:
    if m.launches is None:
        m.launches = Launches()
    found: Launches = m.launches
    return found


class Loans:
    """The memory and values that a kernel borrows from a run, under the cells that its leaves have there."""

    def __init__(self, m: Machine, scope: Scope, body: Body, cells: Mapping[UOp, Cell], arguments: Mapping[UOp, UOp]) -> None:
        self.m, self.scope, self.body, self.survey = m, scope, body, body.survey
        self.arguments = arguments
        self.operands: dict[UOp, Any] = {}
        self.loans: list[Loan] = []
        memory: dict[Storage, dict[UOp, Ref]] = {}
        sizes = body.sizes
        for leaf, cell in cells.items():
            if cell.__class__ is not Ref:
                if cell is not VOID:  # an effect that depends on no loop has happened
                    self.operands[leaf] = self._value(leaf, cell)
                continue
            storage = cell.storage
            if leaf in arguments:
                size = storage.data.size if cell.whole else math.prod(references.shape_of(cell))
                wanted = sizes[leaf]
                if (wanted[0] is not None and wanted[0] != size) or wanted[1] != cell.node.dtype.itemsize:
                    raise self._misfit(leaf, size, cell.node.dtype)
            if storage in memory:
                memory[storage][leaf] = cell
            else:
                memory[storage] = {leaf: cell}
        for storage, refs in memory.items():
            self._lend(storage, refs)

    def run(self, u: UOp, alone: bool = False) -> Cell:
        """Run the kernel as `u`, which, if `alone`, is all that the graph does."""
        m = self.m
        found = run_kernel(self.body.kernel, self.operands, check=m.check, schedule=m.schedule, lanes=m.lanes)
        accesses = Accesses(m, self.scope, u, alone)
        for loan in self.loans:
            loan.log(accesses)
        for loan in self.loans:
            loan.pay_back()
        return found

    def _lend(self, storage: Storage, refs: Mapping[UOp, Ref]) -> None:
        """One Space per set of elements; where sets overlap, one Space for the storage and a Window for each."""
        owners = launches(self.m).arenas.get(storage)
        if len(refs) == 1:
            for leaf, ref in refs.items():
                self.operands[leaf] = self._loan(ref, (leaf,), owners).space
            return
        groups: list[list[UOp]] = []
        for leaf, ref in refs.items():
            found = next((g for g in groups if _same(refs[g[0]], ref)), None)
            if found is None:
                groups.append([leaf])
            else:
                found.append(leaf)
        clash = _overlap([refs[g[0]] for g in groups])
        if clash is not None and owners is None:
            loan = self._loan(Ref(storage, self.scope, refs[groups[0][0]].node), list(refs), None)
            for leaf, ref in refs.items():
                self.operands[leaf] = Window(loan.space, references.places_of(ref))
            return
        if clash is not None and any(leaf in self.survey.changed for k in clash for leaf in groups[k]):
            one, other = (_slice_name(self.arguments.get(groups[k][0])) for k in clash)
            raise Trap(f"{one} and {other} overlap, and the kernel writes one of them (R126)")
        for g in groups:
            loan = self._loan(refs[g[0]], g, owners)
            self.operands.update(dict.fromkeys(g, loan.space))

    def _loan(self, ref: Ref, leaves: Sequence[UOp], owners: Owners | None) -> Loan:
        loan, found = Loan(ref, owners, self.arguments.get(leaves[0])), self.survey
        if found.changed.isdisjoint(leaves):
            loan.changes = False
        else:
            loan.space.borrowed = True
            loan.reads = not found.used.isdisjoint(leaves)
            loan.added = found.added.issuperset(leaves)
        self.loans.append(loan)
        return loan

    def _misfit(self, leaf: UOp, given: int, d: DType) -> SpecError:
        """R86: an argument has as many elements as its Param, of the same size."""
        wanted = self.body.sizes[leaf][0]
        return SpecError(f"argument {leaf.arg.slot} has {given} elements of {d}, its Param {wanted} of {leaf.dtype} (R86)")

    def _value(self, leaf: UOp, cell: Any) -> Array | Space:
        """What is no reference: a variable, or as an argument of a Call memory that can only be read."""
        value = self.m.read(cell)
        if leaf not in self.arguments:
            return value
        slot = leaf.arg.slot
        if is_variable(leaf):
            if value.shape != ():
                raise SpecError(f"argument {slot} is variable {leaf.arg.name!r} and has shape {value.shape} (R86)")
            number = int(value)
            if leaf.arg.bounds is not None:
                check_variable(leaf.arg.name, number, leaf.arg.bounds)
            return settle(number) if leaf.dtype is dt.index else np.array(number, NUMPY[leaf.dtype])
        if leaf in self.survey.changed:
            raise SpecError(f"the Call writes argument {slot}, which is a value and no memory (R51, R86)")
        elements, itemsize = self.body.sizes[leaf]
        d = self.arguments[leaf].dtype
        if (elements is not None and elements != value.size) or itemsize != d.itemsize:
            raise self._misfit(leaf, value.size, d)
        return space(f"argument {slot}", np.ascontiguousarray(value).reshape(-1))


def _same(a: Ref, b: Ref) -> bool:
    """Whether two references of one storage have the same elements in the same order."""
    if a.whole or b.whole:
        return a.whole and b.whole
    x, y = references.places_of(a), references.places_of(b)
    return a.node.dtype.itemsize == b.node.dtype.itemsize and x.size == y.size and bool((x.ravel() == y.ravel()).all())


def _overlap(refs: Sequence[Ref]) -> tuple[int, int] | None:
    """Two of these references of one storage that share a byte."""
    if len(refs) < 2:
        return None
    spans = [references.span(r, None) for r in refs]
    pairs = ((i, j) for i in range(len(refs)) for j in range(i))
    return next(((j, i) for i, j in pairs if (spans[i] & spans[j]).any()), None)


class Owners:
    """Which Slice of an arena last wrote each byte (R126): `at` holds numbers of `names`, 0 for none."""

    def __init__(self, arena: UOp) -> None:
        self.at = np.zeros(arena.arg.size * arena.dtype.itemsize, np.int32)
        self.names: list[UOp | None] = [None]

    def number(self, u: UOp) -> int:
        if u not in self.names:
            self.names.append(u)
        return self.names.index(u)


class Loan:
    """One memory lent to a kernel: all of a storage, or the elements of a view of it. `changes`, `reads`: whether the kernel may
    write it, and read it. `added`: whether AtomicAdds alone access it. `wrote`: whether it was written."""

    __slots__ = ("added", "changes", "owner", "owners", "places", "reads", "ref", "space", "storage", "whole", "wrote")

    def __init__(self, ref: Ref, owners: Owners | None, argument: UOp | None) -> None:
        self.ref, self.storage = ref, ref.storage
        self.whole = ref.whole
        self.places: Array | None = None
        self.owners, self.owner = owners, 0
        storage, data = ref.storage, ref.storage.data
        ready, marks = storage.ready, None
        if self.whole:
            flat = data.ravel()
            if ready is not None:
                marks = np.asarray(ready.reshape(-1) == references.written(ready.dtype))
        else:
            self.places = references.touched(ref, None)
            flat = references.flat_bytes(data)[self.places].reshape(-1).view(NUMPY[ref.node.dtype])
            if ready is not None:
                marks = np.asarray((references.flat_bytes(ready)[self.places] != 0).all(axis=1))
        self.changes, self.reads, self.added, self.wrote = True, True, False, False
        self.space: Space = space(storage.key, flat, marks)
        if owners is not None and argument is not None and argument.op is Op.SLICE:
            self._arena(owners, argument)

    def _arena(self, owners: Owners, argument: UOp) -> None:
        """What another Slice wrote is no value of this one."""
        self.owner = owners.number(argument)
        assert self.places is not None
        at = owners.at[self.places]
        mine = (at == self.owner).all(axis=1)
        ready = self.space.ready
        self.space.ready = mine if ready is None else mine & ready

        def lost(k: int) -> str:
            other = next((int(n) for n in at[k] if n and n != self.owner), 0)
            if not other:
                return ""
            return f"{_slice_name(owners.names[other])} has overwritten {_slice_name(argument)} (R126)"

        self.space.lost = lost

    def contents(self, u: UOp, written: bool) -> Array:
        """What a function of the device sees of an argument; one that it only reads must have been written before (R61)."""
        s = self.space
        if s.ready is not None and not written and not s.ready.all():
            k = int(np.argmin(s.ready))
            why = s.lost(k) if s.lost is not None else ""
            raise Trap(f"{describe(u)} reads element {k} of {s.name}, which {why or 'was never written (R61)'}")
        s.read[:] = True if s.ready is None else s.ready
        return s.data.copy()

    def replace(self, value: Any) -> None:
        """New contents, all of them."""
        s = self.space
        value = np.asarray(value)
        if value.size != s.data.size or value.dtype != s.data.dtype:
            raise SpecError(
                f"a CustomFunction gives {value.dtype} {value.shape} for {s.data.dtype} of {s.data.size} elements of {s.name} (R63)"
            )
        s.data = value.reshape(-1).copy()
        s.written[:] = True
        s.ready = None

    def log(self, accesses: Accesses) -> None:
        """Order what was touched with the accesses of other nodes; AtomicAdds do not race with each other (R56)."""
        s = self.space
        if self.reads and not self.added:
            accesses.read(self.storage, self.places, s.read)
        if self.changes:
            adds = launches(accesses.m).added if self.added else {}
            apart = adds.get(self.storage, 0)
            bit = accesses.write(self.storage, self.places, s.written, apart)
            adds[self.storage] = apart | bit
            self.wrote = bit != 0

    def pay_back(self) -> None:
        """Make the storage hold what the kernel wrote."""
        if not self.wrote:
            return
        s, storage = self.space, self.storage
        storage.version += 1
        if self.places is None:
            storage.data = s.data.reshape(storage.data.shape)
            ready = storage.ready
            if ready is not None:
                marked = ready.dtype.type(references.written(ready.dtype))
                _set_ready(storage, None if s.ready is None else np.where(s.ready, marked, ready.reshape(-1)))
            return
        at = self.places[s.written]
        data = storage.data.copy(order="C")
        data.reshape(-1).view(np.uint8)[at] = s.data.view(np.uint8).reshape(-1, self.ref.node.dtype.itemsize)[s.written]
        storage.data = data
        if storage.ready is not None:
            ready = storage.ready.copy(order="C")
            ready.reshape(-1).view(np.uint8)[at] = 1
            _set_ready(storage, ready)
        if self.owner and self.owners is not None:
            self.owners.at[at] = self.owner


def _set_ready(storage: Storage, ready: Array | None) -> None:
    """`ready` marks bytes, as `Storage.ready` does."""
    if ready is None or ready.view(np.uint8).all():
        storage.ready = None
    else:
        storage.ready = ready.reshape(storage.data.shape)


#: The reference of an access that knows itself what it touches, nothing twice.
_NOTHING = Ref(Storage("", np.zeros(0, np.uint8), None), None, UOp(Op.GROUP))


class Touch(Access):
    """An access to the elements that `marks` picks from a storage, or from the elements at `places` of it."""

    __slots__ = ("marks", "places", "storage")

    def __init__(self, bit: int, node: UOp, storage: Storage, places: Array | None, marks: Array) -> None:
        self.bit = bit
        self.node = node
        self.ref = _NOTHING
        self.storage = storage
        self.places = places
        self.marks = marks

    def span(self) -> Array:
        """Which bytes of the storage are touched."""
        data = self.storage.data
        if self.places is None:
            return np.repeat(self.marks, data.dtype.itemsize)
        found = np.zeros(data.nbytes, bool)
        found[self.places[self.marks]] = True
        return found


class Accesses:
    """The accesses of one node, each after the one before it; if `alone`, after all others too."""

    def __init__(self, m: Machine, scope: Scope, node: UOp, alone: bool = False) -> None:
        self.m, self.scope, self.node, self.alone = m, scope, node, alone
        self.own = scope.own.get(node, 0)
        self.mask: int | None = None

    def read(self, storage: Storage, places: Array | None, marks: Array) -> None:
        """Log a read of what is marked, if anything is."""
        if np.count_nonzero(marks):
            before = self._before(storage.write_bits)
            touch = Touch(self._next(), self.node, storage, places, marks)
            references.record_read(storage, touch.bit, touch, before)

    def write(self, storage: Storage, places: Array | None, marks: Array, apart: int) -> int:
        """Log a write that has nothing to do with the accesses `apart`; gives its bit."""
        if not np.count_nonzero(marks):
            return 0
        before = self._before(storage.read_bits | storage.write_bits)
        touch = Touch(self._next(), self.node, storage, places, marks)
        references.record_write(storage, touch, before | apart)
        return 1 << touch.bit

    def _before(self, others: int) -> int:
        """Which of the accesses `others` happen before the next one of the node; which they are is searched for only if need be."""
        if self.alone:
            return others
        if others & ~self.own and self.mask is None:
            self.mask = self.m.mask_of(self.scope, self.node)
        return self.own | (self.mask or 0)

    def _next(self) -> int:
        """The number of an access that is made now."""
        bit = self.m.tick()
        self.own |= 1 << bit
        self.scope.own[self.node] = self.own
        self.scope.masks.pop(self.node, None)
        return bit


def _slice_name(u: UOp | None) -> str:
    if u is None or u.op is not Op.SLICE:
        return "an argument"
    return f"slice of {u.arg.size} {u.arg.dtype} at {u.src[1].arg.value}"
