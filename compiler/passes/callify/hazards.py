"""Write-after-read hazards: values are computed before memory that they read changes.

Takes: a callified body. Gives: the same body with a Contiguous around every value that would else be read too late, so that in its
topological order each value may be computed at any place from its own to its last use. Spec: R27, R51, R54, R55, R59, R161.

A value without a buffer of its own is computed where it is used, and reads memory there. That is too late if a Store to that memory
came in between. A Store reads all it needs before it writes (R54): what it needs of its own memory is copied first, unless an
element is read by the iteration that overwrites it, or is not overwritten. A reference is read once for all that use it as a value
(R27, R161): where a Store stands between two of these, all of them read one copy. Orders that the graph leaves open do not matter:
two unordered accesses, one of them a write, are a Trap (R55).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from uops.compiler.ir.views import STEP, VIEWS
from uops.compiler.log import note
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ALU, Op

#: Ops that are a fresh copy of their source by definition (R52, R53).
COPIES = frozenset({Op.LOAD, Op.CONTIGUOUS})
_REFERRING = VIEWS | {Op.PARAM, Op.BUFFER}
_Reads = dict[UOp, int]
_Use = tuple[UOp, int]


def protect(body: UOp) -> UOp:
    """`body` with its hazards made explicit."""
    order = toposort(body)
    found = _Hazards(order)
    if not found.changing:
        return body
    found.scan(order)
    return _wrap(order, found.late, found.uses) if found.late or found.uses else body


def keeps_order(before: UOp, after: UOp, put: Mapping[UOp, UOp]) -> bool:
    """Whether the copies and Stores of a program in which hazards are explicit stand in the same order in `after`, where `put` says
    what became of them; if no memory that is read changes, they may stand in any."""
    order = toposort(before)
    if not _Hazards(order).changing:
        return True
    place = {u: k for k, u in enumerate(toposort(after))}
    found = [place[put[u]] for u in order if (u.op in COPIES or u.op is Op.STORE) and put.get(u) in place]
    return found == sorted(found)


def memories(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each reference among `order`, the Param or Buffer whose memory it views (R51)."""
    found: dict[UOp, UOp] = {}
    for u in [u for u in order if u.op in _REFERRING]:
        if u.op in VIEWS:
            if u.src[0] in found:
                found[u] = found[u.src[0]]
        elif u.op is Op.BUFFER or u.arg.name is None:
            found[u] = u
    return found


def _wrap(order: Sequence[UOp], late: set[UOp], uses: set[_Use]) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(_copy(done[s]) if (u, k) in uses else done[s] for k, s in enumerate(u.src))
        new = u if src == u.src else u.replace(src=src)
        done[u] = _copy(new) if u in late else new
    note("hazards", order[-1], done[order[-1]], done)
    return done[order[-1]]


def _copy(u: UOp) -> UOp:
    return u if u.op in COPIES else UOp(Op.CONTIGUOUS, (u,))


class _Hazards:
    """A walk in execution order that knows, per value, which contents of which memory it still has to read.

    `late`: values to compute at their own place. `uses`: (node, source position) where a reference is to be copied for that use
    only; the reference itself stays one, since a Store may target it later. `loads`: per reference, the version of its memory when
    it was first used as a value, and all such uses.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.memory: Mapping[UOp, UOp] = memories(order)
        read = {self.memory[s] for u in order for k, s in enumerate(u.src) if s in self.memory and _reads(u, k)}
        self.changing = {self.memory[u.src[0]] for u in order if u.op is Op.STORE} & read
        self.version: _Reads = dict.fromkeys(self.changing, 0)
        self.reads: dict[UOp, _Reads] = {}
        self.late: set[UOp] = set()
        self.uses: set[_Use] = set()
        self.loads: dict[UOp, tuple[int, list[_Use]]] = {}

    def scan(self, order: Sequence[UOp]) -> None:
        for u in order:
            if u.op is Op.STORE:
                self._store(u)
            elif u.dtype is not dt.void:
                found = self._visit(u)
                self.reads[u] = {} if u.op in COPIES else found

    def _visit(self, u: UOp) -> _Reads:
        """What computing `u` reads; of a reference, what its index operands read."""
        found: _Reads = {}
        for k in range(1 if u in self.memory and u.op in VIEWS else 0, len(u.src)):
            found.update(self._use(u, k))
        return found

    def _use(self, user: UOp, k: int) -> _Reads:
        """What source `k` of `user` reads; a value whose memory has changed since its place is late."""
        s = user.src[k]
        if s.dtype is dt.void or s in self.late:
            return {}
        found = {m: v for m, v in self.reads.get(s, {}).items() if self.version[m] == v}
        if len(found) < len(self.reads.get(s, {})):
            self._force(s)
            found = {}
        if self.memory.get(s) in self.changing:
            self._load(user, k, found)
        return found

    def _load(self, user: UOp, k: int, found: _Reads) -> None:
        """A reference used as a value: `found` has its memory too, unless a Store has changed that since another use."""
        s = user.src[k]
        memory = self.memory[s]
        first, uses = self.loads.setdefault(s, (self.version[memory], []))
        uses.append((user, k))
        if self.version[memory] == first:
            found[memory] = first
        else:
            self.uses.update(uses)

    def _force(self, s: UOp) -> None:
        """Compute `s` at its place; of a reference, its index operands."""
        if s not in self.memory:
            self.late.add(s)
            return
        for node, k in _operands(s):
            self._copy_operand(node, k)

    def _copy_operand(self, node: UOp, k: int) -> None:
        s = node.src[k]
        if s in self.memory:
            self.uses.add((node, k))
        elif s.op is not Op.CONST:
            self.late.add(s)

    def _store(self, u: UOp) -> None:
        """R54: what the Store needs is read fully before its first write."""
        memory = self.memory[u.src[0]]
        for k in range(1, len(u.src)):
            if memory in self._use(u, k):
                self._separate(u, k, memory)
        for node, k in _operands(u.src[0]):
            if memory in self._use(node, k):
                self._copy_operand(node, k)
        if memory in self.version:
            self.version[memory] += 1

    def _separate(self, store: UOp, position: int, memory: UOp) -> None:
        """Copy what a source of a Store reads of the Store's memory, but for elements that only the iteration which overwrites them
        reads, and for elements that are not overwritten: arithmetic by elements may change memory in place. Where there is more
        than one thing to copy, the source itself is."""
        found = self._overwritten(store, position, memory)
        if len(found) > 1 or (found and found[0][0] is store):
            self.uses.add((store, position))
        elif found:
            (user, k), s = found[0], found[0][0].src[found[0][1]]
            if s in self.memory:
                self.uses.add((user, k))
            else:
                self.late.add(s)

    def _overwritten(self, store: UOp, position: int, memory: UOp) -> list[_Use]:
        """The uses, below a source of a Store, of what reads elements that another iteration overwrites."""
        target = store.src[0]
        pending: list[tuple[UOp, int, bool]] = [(store, position, True)]  # with whether it is one element per iteration
        seen: set[tuple[UOp, bool]] = set()
        found: list[_Use] = []
        while pending:
            user, k, own = pending.pop()
            s = user.src[k]
            if (s, own) in seen or s in self.late or memory not in self._sees(s):
                continue
            own = own and s.shape == target.shape
            if s in self.memory:
                if not (own and is_same(s, target)) and not are_apart(s, target):
                    found.append((user, k))
                continue
            seen.add((s, own))
            if s.op in ALU and own:
                pending += [(s, j, True) for j in range(len(s.src))]
            elif s.op in STEP and user is not store:
                pending.append((s, 0, False))
            else:
                found.append((user, k))
        return found

    def _sees(self, s: UOp) -> _Reads:
        """What memory a value reads, or a reference is of."""
        found = dict(self.reads.get(s, {}))
        if s in self.memory:
            found[self.memory[s]] = 0
        return found


def _plain(reference: UOp) -> tuple[UOp, ...] | None:
    """The views of a reference, without After; None where one changes dtypes or takes elements at positions in data."""
    found: list[UOp] = []
    while reference.op in VIEWS:
        if reference.op in (Op.BITCAST, Op.SLICE, Op.INDEX, Op.REPLICATED):
            return None
        if reference.op is not Op.AFTER:
            found.append(reference)
        reference = reference.src[0]
    return tuple(found)


def is_same(a: UOp, b: UOp) -> bool:
    """Whether two references of one memory name the same element at every index: they are the same views."""
    x, y = _plain(a), _plain(b)
    if x is None or y is None or len(x) != len(y):
        return False
    return all(u.op is v.op and u.arg == v.arg and u.src[1:] == v.src[1:] for u, v in zip(x, y))


def are_apart(a: UOp, b: UOp) -> bool:
    """Whether two references of one memory have no element in common: Shrinks of one view that do not meet on some axis."""
    x, y = _plain(a), _plain(b)
    if x is None or y is None:
        return False
    common = 0
    for u, v in zip(reversed(x), reversed(y)):
        if u.op is not v.op or u.arg != v.arg or u.src[1:] != v.src[1:]:
            break
        common += 1
    if min(len(x), len(y)) <= common:
        return False
    u, v = x[-1 - common], y[-1 - common]
    if u.op is not Op.SHRINK or v.op is not Op.SHRINK:
        return False
    return any(
        _before(i, m, j) or _before(j, n, i) for i, m, j, n in zip(u.src[1].src, u.shape, v.src[1].src, v.shape, strict=True)
    )


def _before(start: UOp, n: Dim, other: UOp) -> bool:
    """Whether `n` elements from `start` end before `other`, as far as the numbers are known."""
    return start.op is Op.CONST and other.op is Op.CONST and isinstance(n, int) and int(start.arg.value) + n <= other.arg.value


def _reads(user: UOp, position: int) -> bool:
    """Whether this use of a reference may read its memory: not as a Store's target, nor as what a view is a view of."""
    return not (position == 0 and (user.op is Op.STORE or user.op in VIEWS))


def _operands(reference: UOp) -> list[_Use]:
    """The index operands of a reference, as (node, source position)."""
    found: list[_Use] = []
    while reference.op in VIEWS:
        if reference.op in (Op.INDEX, Op.SLICE):
            found += [(reference, k) for k in range(1, len(reference.src))]
        reference = reference.src[0]
    return found
