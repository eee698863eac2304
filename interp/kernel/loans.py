"""What a kernel borrows from a run of the tensor machine: values, and memory that it may change.

For whatever surrounds a kernel, all its accesses are those of one node - the Call, the End or Reduce, or the root - and are logged
as one read and one write per memory, with the elements that were touched (R55, R59, R63).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from uops.interp import memory as references
from uops.interp.kernel.memory import Space, Window, space
from uops.interp.kernel.run import run_kernel
from uops.interp.kernel.structure import Kernel
from uops.interp.kernel.survey import survey
from uops.interp.memory import Access, Ref, Storage, describe
from uops.interp.scope import Cell, Scope
from uops.interp.storage import NUMPY, Array, check_variable, settle
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import SpecError, Trap
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.scope import is_variable

if TYPE_CHECKING:
    from uops.interp.machine import Machine


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

    def __init__(
        self, m: Machine, scope: Scope, kernel: Kernel, cells: Mapping[UOp, Cell], arguments: Mapping[UOp, UOp] | None = None
    ) -> None:
        self.m, self.scope, self.kernel = m, scope, kernel
        self.arguments = arguments or {}
        self.survey = survey(kernel)
        self.operands: dict[UOp, Any] = {}
        self.loans: list[Loan] = []
        memory: dict[Storage, dict[UOp, Ref]] = {}
        for leaf, cell in cells.items():
            if cell.__class__ is Ref:
                self._fits(leaf, cell)
                memory.setdefault(cell.storage, {})[leaf] = cell
            else:
                self.operands[leaf] = self._value(leaf, cell)
        for storage, refs in memory.items():
            self._lend(storage, refs)

    def run(self, u: UOp, alone: bool = False) -> Cell:
        """Run the kernel as `u`, which, if `alone`, is all that the graph does."""
        m = self.m
        found = run_kernel(self.kernel, self.operands, check=m.check, schedule=m.schedule, lanes=m.lanes)
        for loan in self.loans:
            loan.log(m, self.scope, u, alone)
        for loan in self.loans:
            loan.pay_back()
        return found

    def _lend(self, storage: Storage, refs: Mapping[UOp, Ref]) -> None:
        """One Space per set of elements; where sets overlap, one Space for the storage and a Window for each."""
        groups: list[list[UOp]] = []
        for leaf, ref in refs.items():
            found = next((g for g in groups if _same(refs[g[0]], ref)), None)
            if found is None:
                groups.append([leaf])
            else:
                found.append(leaf)
        owners = launches(self.m).arenas.get(storage)
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
        loan = Loan(ref, owners, self.arguments.get(leaves[0]))
        loan.added = all(leaf in self.survey.added for leaf in leaves)
        if any(leaf in self.survey.changed for leaf in leaves):
            loan.own()
        self.loans.append(loan)
        return loan

    def _fits(self, leaf: UOp, ref: Ref) -> None:
        if leaf in self.arguments:
            self._check_fit(leaf, int(np.prod(references.shape_of(ref), dtype=np.int64)), ref.node.dtype)

    def _check_fit(self, leaf: UOp, given: int, d: DType) -> None:
        """R86: an argument has as many elements as its Param, of the same size."""
        if any(not isinstance(n, int) for n in leaf.shape):
            return
        wanted = int(np.prod(leaf.shape, dtype=np.int64))
        if given != wanted or d.itemsize != leaf.dtype.itemsize:
            raise SpecError(f"argument {leaf.arg.slot} has {given} elements of {d}, its Param {wanted} of {leaf.dtype} (R86)")

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
        self._check_fit(leaf, value.size, self.arguments[leaf].dtype)
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
    """One memory lent to a kernel: all of a storage, or the elements of a view of it."""

    def __init__(self, ref: Ref, owners: Owners | None, argument: UOp | None) -> None:
        self.ref, self.storage = ref, ref.storage
        self.whole = ref.whole
        self.places: Array | None = None
        self.owners, self.owner = owners, 0
        storage, data = ref.storage, ref.storage.data
        ready = _ready_bytes(storage)
        if self.whole:
            flat = np.ascontiguousarray(data).reshape(-1)
            marks = None if ready is None else np.asarray(ready.reshape(-1, data.dtype.itemsize).all(axis=1))
        else:
            self.places = references.touched(ref, None)
            flat = references.flat_bytes(data)[self.places].reshape(-1).view(NUMPY[ref.node.dtype])
            marks = None if ready is None else np.asarray(ready[self.places].all(axis=1))
        self.owned = False
        self.added = False
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

    def own(self) -> None:
        """A copy that the kernel may write: a storage's array never changes."""
        if not self.owned:
            self.space.data = self.space.data.copy()
            self.space.ready = None if self.space.ready is None else self.space.ready.copy()
            self.owned = True

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
        self.owned = True

    def _span(self, marks: Array) -> Array:
        if self.whole:
            return np.repeat(marks, self.storage.data.dtype.itemsize)
        span = np.zeros(self.storage.data.nbytes, bool)
        assert self.places is not None
        span[self.places[marks]] = True
        return span

    def log(self, m: Machine, scope: Scope, u: UOp, alone: bool = False) -> None:
        """Order what was touched with the accesses of other nodes, as accesses of `u`; AtomicAdds do not race with each other
        (R56)."""
        s = self.space
        if self.added:
            adds = launches(m).added
            bit = self._record(m, scope, u, s.written, alone, adds.get(self.storage, 0))
            adds[self.storage] = adds.get(self.storage, 0) | bit
        else:
            self._record(m, scope, u, s.read, alone, None)
            self._record(m, scope, u, s.written, alone, 0)

    def _record(self, m: Machine, scope: Scope, u: UOp, marks: Array, alone: bool, apart: int | None) -> int:
        """Log a write that has nothing to do with the accesses `apart`, or a read where that is None; gives its bit."""
        if not marks.any():
            return 0
        access = Access(m.tick(), u, Ref(self.storage, scope, u), None)
        access.touches = self._span(marks)
        scope.own[u] = scope.own.get(u, 0) | 1 << access.bit
        scope.masks.pop(u, None)
        before = (1 << access.bit) - 1 if alone else m.mask_of(scope, u) & ~(1 << access.bit)
        if apart is None:
            references.record_read(self.storage, access.bit, access, before)
        else:
            references.record_write(self.storage, access, before | apart)
        return 1 << access.bit

    def pay_back(self) -> None:
        written, storage = self.space.written, self.storage
        if not written.any():
            return
        storage.version += 1
        if self.whole:
            storage.data = self.space.data.reshape(storage.data.shape)
            marks = self.space.ready
            _set_ready(storage, None if marks is None else np.repeat(marks, storage.data.dtype.itemsize))
            return
        assert self.places is not None
        at = self.places[written]
        data = storage.data.copy(order="C")
        size = self.ref.node.dtype.itemsize
        data.reshape(-1).view(np.uint8)[at] = self.space.data.view(np.uint8).reshape(-1, size)[written]
        storage.data = data
        ready = _ready_bytes(storage)
        if ready is not None:
            ready[at] = True
            _set_ready(storage, ready)
        if self.owner and self.owners is not None:
            self.owners.at[at] = self.owner


def _ready_bytes(storage: Storage) -> Array | None:
    """Which bytes were written; None means all."""
    return None if storage.ready is None else references.flat_bytes(storage.ready) != 0


def _set_ready(storage: Storage, written: Array | None) -> None:
    if written is None or written.all():
        storage.ready = None
    else:
        data = storage.data
        storage.ready = written.astype(np.uint8).view(f"u{data.dtype.itemsize}").reshape(data.shape)


def _slice_name(u: UOp | None) -> str:
    if u is None or u.op is not Op.SLICE:
        return "an argument"
    return f"slice of {u.arg.size} {u.arg.dtype} at {u.src[1].arg.value}"
