"""What a rendering decides before it writes: forms of index vectors, arithmetic of addresses, memory, buffers in registers.

Takes: the instructions of a LINEAR kernel. Spec: Load, Store, Buffer; R08, R61, and the forms of
`uops.compiler.passes.select.vectors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.backends.facts import bounds, memory
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


class Span(NamedTuple):
    """An index vector: a scalar (None for 0), and the distance of each lane from it."""

    base: UOp | None
    steps: tuple[int, ...]

    @property
    def starts_at_zero(self) -> bool:
        return self.base is None or (self.base.op is Op.CONST and self.base.arg.value == 0)

    @property
    def is_contiguous(self) -> bool:
        return self.steps == tuple(range(self.steps[0], self.steps[0] + len(self.steps)))


def span(index: UOp) -> Span | None:
    """The index vector as a scalar and constants, where it has one of these forms."""
    if index.op is Op.STACK:
        steps = index.spelt
        if steps is not None:
            return Span(None, steps)
        first = index.src[0]
        return Span(first, (0,) * len(index.src)) if index.src.count(first) == len(index.src) else None
    if index.op is Op.ADD:
        for a, b in (index.src, index.src[::-1]):
            base, steps = (span(a), b.spelt) if a.op is Op.STACK and b.op is Op.STACK else (None, None)
            if base is not None and steps is not None:
                return Span(base.base, tuple([x + y for x, y in zip(base.steps, steps)]) if any(base.steps) else steps)
    return None


_EXACT = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.CAST})


class Addresses(NamedTuple):
    """`wide`: integers that are computed in 64 bits, for addresses; `only`: nodes that nothing else needs.

    An address has 64 bits. Where a 32-bit sum provably does not wrap, it is the same in 64 bits, and the machine's addressing then
    does it for nothing.
    """

    wide: frozenset[UOp]
    only: frozenset[UOp]


def addresses(instructions: Sequence[UOp], references: Iterable[UOp]) -> Addresses:
    """Which integers are addresses, and which of them are nothing else."""
    memory = frozenset(references)
    wide: set[UOp] = set()
    other: set[UOp] = set()  # used otherwise
    only: set[UOp] = set()
    for u in reversed(instructions):  # users first: what is known of a node is complete
        if u.op is Op.INDEX and u.src[0] in memory:
            _need(u.src[1], wide, other)
            other.add(u.src[0])
            continue
        exact = u in wide and is_exact(u)
        if exact:
            wide.update(u.src)
        if u in wide and u not in other and (exact or u.shape != ()):
            only.add(u)
        else:
            other.update(u.src)
    return Addresses(frozenset(wide), frozenset(only))


def _need(index: UOp, wide: set[UOp], other: set[UOp]) -> None:
    """The scalars from which an access makes its addresses."""
    at = span(index) if index.shape != () else None
    if index.shape == ():
        wide.add(index)
    elif at is not None:
        wide.update((index, *index.src) if index.op is Op.ADD else (index,))
        if at.base is not None:
            wide.add(at.base)
    elif index.op is Op.STACK:
        wide.update((index, *index.src))
    else:
        other.add(index)


def is_exact(u: UOp) -> bool:
    """Whether a scalar integer node is the same number in 64 bits: nothing wraps."""
    if u.op not in _EXACT or u.shape != () or u.dtype not in (dt.int32, dt.int64):
        return False
    if u.op is Op.CAST:
        lo, hi = bounds(u.src[0])
        return u.src[0].dtype in (dt.index, dt.int32, dt.int64) and u.dtype.min <= lo and hi <= u.dtype.max
    (a, A), (b, B) = bounds(u.src[0]), bounds(u.src[1])
    if u.op is Op.MUL:
        ends = (a * b, a * B, A * b, A * B)
    else:
        ends = (a + b, A + B, a + B, A + b) if u.op is Op.ADD else (a - B, A - b, a - b, A - B)
    return u.dtype.min <= min(ends) and max(ends) <= u.dtype.max


#: Elements up to which a Buffer may be one vector.
_LANES = 64


def registers(instructions: Sequence[UOp]) -> frozenset[UOp]:
    """REG Buffers that are only read and written as a whole, without a gate: they are values, not memory."""
    whole = {u for u in instructions if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG and 0 < u.arg.size <= _LANES}
    if not whole:
        return frozenset()
    buffer_of: dict[UOp, UOp] = {u: u for u in whole}  # views
    for u in instructions:
        if buffer_of.keys().isdisjoint(u.src):
            continue
        for k, s in enumerate(u.src):
            if s in buffer_of and not _keeps_whole(u, k, buffer_of[s]):
                whole.discard(buffer_of[s])
        if u.op in (Op.AFTER, Op.INDEX) and u.src[0] in buffer_of:
            buffer_of[u] = buffer_of[u.src[0]]
    return frozenset(whole)


def _keeps_whole(u: UOp, k: int, buffer: UOp) -> bool:
    if u.op is Op.INDEX and k == 0:
        return u.src[0].op is not Op.INDEX and len(u.src) == 2 and _covers(u.src[1], buffer.arg.size)
    if u.op in (Op.LOAD, Op.STORE):
        return k == 0 and len(u.src) == (1 if u.op is Op.LOAD else 2)
    return u.op is Op.AFTER or u.op is Op.GROUP


def _covers(index: UOp, size: int) -> bool:
    if index.shape == ():
        return size == 1 and index.op is Op.CONST and index.arg.value == 0
    at = span(index)
    return at is not None and at.starts_at_zero and at.steps == tuple(range(size))


def references(instructions: Iterable[UOp]) -> set[UOp]:
    """Memory and views of it."""
    found: set[UOp] = set()
    for u in [u for u in instructions if u.op in _REFERRING]:
        if u.src[0] in found if u.op in _VIEWS else u.op is Op.BUFFER or u.arg.name is None:
            found.add(u)
    return found


_VIEWS = frozenset({Op.INDEX, Op.AFTER, Op.BITCAST})
_REFERRING = _VIEWS | {Op.PARAM, Op.BUFFER}


def changes(instructions: Iterable[UOp], kept: frozenset[UOp]) -> dict[UOp, list[UOp]]:
    """The registers that are stored to in each loop or If, in order."""
    if not kept:
        return {}
    found: dict[UOp, dict[UOp, None]] = {}
    opened: list[UOp] = []
    for u in instructions:
        if u.op not in _CHANGING:
            continue
        if u.op in (Op.RANGE, Op.IF):
            opened.append(u)
        elif u.op in (Op.END, Op.ENDIF):
            closed = set(u.src[1:] if u.op is Op.END else u.src)
            opened = [o for o in opened if o not in closed]
        elif u.op is Op.STORE and memory(u.src[0]) in kept:
            for o in opened:
                found.setdefault(o, {})[memory(u.src[0])] = None
    return {o: list(rs) for o, rs in found.items()}


_CHANGING = frozenset({Op.RANGE, Op.IF, Op.END, Op.ENDIF, Op.STORE})
