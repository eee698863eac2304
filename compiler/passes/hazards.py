"""Write-after-read hazards: values are computed before memory that they read changes.

Takes: a callified body. Gives: the same body with a Contiguous around every value that would else be read too late, so that in its
topological order each value may be computed at any place from its own to its last use. Spec: R51, R54, R55, R59.

A value without a buffer of its own is computed where it is used, and reads memory there. That is too late if a Store to that memory
came in between. Orders that the graph leaves open do not matter: two unordered accesses, one of them a write, are a Trap (R55).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from uops.compiler.log import note
from uops.compiler.passes.views import VIEWS
from uops.spec import dtypes as dt
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op

#: Ops that are a fresh copy of their source by definition (R52, R53).
COPIES = frozenset({Op.LOAD, Op.CONTIGUOUS})
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


def memories(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each reference among `order`, the Param or Buffer whose memory it views (R51)."""
    found: dict[UOp, UOp] = {}
    for u in order:
        if (u.op is Op.PARAM and u.arg.name is None) or u.op is Op.BUFFER:
            found[u] = u
        elif u.op in VIEWS and u.src[0] in found:
            found[u] = found[u.src[0]]
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
    only; the reference itself stays one, since a Store may target it later.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.memory: Mapping[UOp, UOp] = memories(order)
        read = {self.memory[s] for u in order for k, s in enumerate(u.src) if s in self.memory and _reads(u, k)}
        self.changing = {self.memory[u.src[0]] for u in order if u.op is Op.STORE} & read
        self.version: _Reads = dict.fromkeys(self.changing, 0)
        self.reads: dict[UOp, _Reads] = {}
        self.late: set[UOp] = set()
        self.uses: set[_Use] = set()

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
            found[self.memory[s]] = self.version[self.memory[s]]
        return found

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
                self.uses.add((u, k))
        for node, k in _operands(u.src[0]):
            if memory in self._use(node, k):
                self._copy_operand(node, k)
        if memory in self.version:
            self.version[memory] += 1


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
