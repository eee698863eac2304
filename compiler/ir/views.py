"""Movement ops as pure functions on index tuples.

An element of the result of a movement op is an element of its source, at an index that is a function of its own: `STEP[op](u, idx)`
gives the source's index, and the condition under which there is such an element at all (else the result is 0, Pad). `indexing`
supplies the arithmetic, on index nodes, simplified by rules. Spec: rows Movement/*, R42 to R49.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.affine import number
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op

Index = tuple[UOp, ...]
#: Ops whose result refers to the memory of their first source, if that is a reference (R51).
VIEWS = frozenset({Op.INDEX, Op.SLICE, Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.BITCAST, Op.AFTER, Op.REPLICATED})
ZERO = number(0)
TRUE = B.const(True, dt.bool_)


def base(u: UOp) -> UOp:
    """The node whose memory a reference views; `u` itself where it is no view."""
    while u.op in VIEWS:
        u = u.src[0]
    return u


class Step(NamedTuple):
    """An element of a view's source, and the gate under which it exists (None: always)."""

    coords: Index
    gate: UOp | None = None


class Indexing:
    """Arithmetic on index expressions in normal form."""

    def __init__(self, simplify: Callable[[UOp], UOp]) -> None:
        self.simplify = simplify

    def alu(self, op: Op, *src: UOp) -> UOp:
        return self.simplify(UOp(op, src))

    def both(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The conjunction of two gates."""
        if a is None or b is None:
            return b if a is None else a
        return self.known(self.alu(Op.AND, a, b))

    def known(self, gate: UOp) -> UOp | None:
        """None for a gate that always holds."""
        return None if gate is TRUE else gate

    def inside(self, i: UOp, lo: UOp, hi: UOp) -> UOp | None:
        """The gate lo <= i < hi."""
        return self.both(self.known(self.alu(Op.CMPGE, i, lo)), self.known(self.alu(Op.CMPLT, i, hi)))

    def flatten(self, index: Sequence[UOp], shape: Sequence[Dim]) -> UOp:
        """The row-major position of an element."""
        flat = ZERO
        for i, n in zip(index, shape, strict=True):
            flat = UOp(Op.ADD, (UOp(Op.MUL, (flat, dim_node(n))), i)) if flat is not ZERO else i
        return self.simplify(flat)

    def unflatten(self, flat: UOp, shape: Sequence[Dim]) -> Index:
        """The index of the element at a row-major position."""
        found: list[UOp] = []
        for n in reversed(shape[1:]):
            if not isinstance(n, UOp) and n == 1:
                found.append(ZERO)
                continue
            size = dim_node(n)
            found.append(self.alu(Op.MOD, flat, size))
            flat = self.alu(Op.IDIV, flat, size)
        if shape:
            found.append(flat if shape[0] != 1 else ZERO)
        return tuple(reversed(found))

    def align(self, index: Index, shape: Sequence[Dim]) -> Index:
        """The index of the element that a value of `shape` gives to the element `index` of a broadcast (R41)."""
        own = index[len(index) - len(shape) :]
        if 1 not in shape:
            return own  # of as many axes `index` itself
        return tuple([ZERO if n == 1 else i for i, n in zip(own, shape, strict=True)])


def _permute(x: Indexing, u: UOp, index: Index) -> Step:
    found = [ZERO] * len(index)
    for k, axis in enumerate(u.arg.order):
        found[axis] = index[k]
    return Step(tuple(found))


def _flip(x: Indexing, u: UOp, index: Index) -> Step:
    last = (dim_node(n) for n in u.shape)
    flipped = (x.alu(Op.SUB, UOp(Op.SUB, (n, i)), number(1)) if f else i for i, n, f in zip(index, last, u.arg.flags, strict=True))
    return Step(tuple(flipped))


def _reshape(x: Indexing, u: UOp, index: Index) -> Step:
    """Row-major positions are equal in both shapes, hence in each group of axes of one number of elements."""
    return Step(reshaped(x, u.shape, u.src[0].shape, index))


def reshaped(x: Indexing, mine: Sequence[Dim], other: Sequence[Dim], index: Index) -> Index:
    """The index, in the shape `other`, of the element `index` of the shape `mine`."""
    found: list[UOp] = []
    for a, b in _groups(mine, other):
        own, extents = index[a], mine[a]
        if [n for n in extents if n != 1] == [n for n in other[b] if n != 1]:  # only axes of 1 come and go
            kept = iter([i for i, n in zip(own, extents, strict=True) if n != 1])
            found += [ZERO if n == 1 else next(kept) for n in other[b]]
        else:
            found += x.unflatten(x.flatten(own, extents), other[b])
    return tuple(found)


def _groups(old: Sequence[Dim], new: Sequence[Dim]) -> Iterator[tuple[slice, slice]]:
    """The smallest groups of consecutive axes of both shapes that have as many elements; axes of 1 go with the group before."""
    i = j = 0
    if 0 in old or any(isinstance(n, UOp) for n in (*old, *new)):
        lead = 0  # of symbolic shapes, only axes that are the same on the left are told apart
        while lead < min(len(old), len(new)) - 1 and old[lead] is new[lead] and 0 not in old:
            yield slice(lead, lead + 1), slice(lead, lead + 1)
            lead += 1
        yield slice(lead, None), slice(lead, None)
        return
    while i < len(old) or j < len(new):
        a, b, m, n = i, j, 1, 1
        while True:
            if i < len(old) and (m <= n or j == len(new)):
                m, i = m * int(old[i]), i + 1
            elif j < len(new):
                n, j = n * int(new[j]), j + 1
            if m == n and (j > b or j == len(new)) and (i > a or i == len(old)):
                break
        while i < len(old) and old[i] == 1:
            i += 1
        while j < len(new) and new[j] == 1:
            j += 1
        yield slice(a, i), slice(b, j)


def _expand(x: Indexing, u: UOp, index: Index) -> Step:
    return Step(x.align(index, u.src[0].shape))


def _pad(x: Indexing, u: UOp, index: Index) -> Step:
    """The source's element, where there is one."""
    gate: UOp | None = None
    found = []
    for i, o, n in zip(index, u.src[1].src, u.src[0].shape, strict=True):
        j = x.alu(Op.SUB, i, o)
        gate = x.both(gate, x.inside(j, ZERO, dim_node(n)))
        found.append(j)
    return Step(tuple(found), gate)


def _shrink(x: Indexing, u: UOp, index: Index) -> Step:
    return Step(tuple(x.alu(Op.ADD, i, o) for i, o in zip(index, u.src[1].src, strict=True)))


def _replicated(x: Indexing, u: UOp, index: Index) -> Step:
    """Any of the equal copies: the first (R47)."""
    return Step(tuple(ZERO if k in u.arg.axes else i for k, i in enumerate(index)))


def _same(x: Indexing, u: UOp, index: Index) -> Step:
    return Step(index)


#: op -> the element of the first source that an element of the result is.
STEP: dict[Op, Callable[[Indexing, UOp, Index], Step]] = {
    Op.PERMUTE: _permute,
    Op.FLIP: _flip,
    Op.RESHAPE: _reshape,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.REPLICATED: _replicated,
    Op.AFTER: _same,
}
