"""Pieces of shaped values: which elements a native vector holds, and index vectors as sums.

A piece of a value is a tuple of flat, row-major positions, one per lane; lanes that all hold one element are one lane. Reshape
keeps flat positions, other movement ops are a table from positions of the result to positions of the source.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from operator import add, mul
from typing import NamedTuple

import numpy as np

from uops.compiler.ir.affine import linear
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.derive.shape import dims_of
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Flat positions, one per lane; the scalars have the piece (0,).
Piece = tuple[int, ...]
SCALAR: Piece = (0,)
#: In a table: an element that no source has (Pad).
NOTHING = -1
MOVEMENT = frozenset({Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.PAD})


def size(u: UOp) -> int:
    """The number of elements of a value."""
    return math.prod(u.shape)


def narrow(piece: Piece) -> Piece:
    """One lane for lanes that hold one element."""
    first = piece[0]
    return piece if len(piece) == 1 or piece.count(first) < len(piece) else (first,)


def index_of(u: UOp) -> UOp:
    """The index operand of an access."""
    found: UOp = unordered(u.src[0]).src[1]
    return found


def unordered(reference: UOp) -> UOp:
    """A reference without what it has to come after."""
    while reference.op is Op.AFTER:
        reference = reference.src[0]
    return reference


def table(u: UOp) -> list[int]:
    """For each position of a movement's result that of its source."""
    shape = u.src[0].shape
    at = np.arange(math.prod(shape)).reshape(shape)
    if u.op is Op.EXPAND:
        at = np.broadcast_to(at, u.shape)
    elif u.op is Op.PERMUTE:
        at = at.transpose(u.arg.order)
    elif u.op is Op.FLIP:
        at = at[tuple(slice(None, None, -1 if f else 1) for f in u.arg.flags)]
    elif u.op is Op.SHRINK:
        at = at[tuple(slice(o, o + n) for o, n in zip(dims_of(u.src[1]), u.shape, strict=True))]
    else:
        whole = np.full(u.shape, NOTHING)
        whole[tuple(slice(o, o + n) for o, n in zip(dims_of(u.src[1]), shape, strict=True))] = at
        at = whole
    found: list[int] = at.reshape(-1).tolist()
    return found


def rows(u: UOp) -> list[list[int]]:
    """For each position of a Reduce over axes the positions that it combines, in row-major order."""
    shape, axes = u.src[0].shape, u.arg.axes
    kept = [k for k in range(len(shape)) if k not in axes]
    at = np.arange(math.prod(shape)).reshape(shape).transpose((*kept, *axes))
    found: list[list[int]] = at.reshape(math.prod(shape[k] for k in kept), -1).tolist()
    return found


@functools.lru_cache(maxsize=512)
def constants(values: tuple[int, ...], d: DType = dt.int32) -> UOp:
    """A vector of constants, as positions are; of one the scalar."""
    scalars = [UOp(Op.CONST, (), ConstArg(k, d)) for k in values]
    return scalars[0] if len(scalars) == 1 else UOp(Op.STACK, tuple(scalars))


@functools.lru_cache(maxsize=128)
def whole(w: int) -> UOp:
    """The index of all of a Buffer of `w` elements, in the form of a contiguous access."""
    return constants((0,)) if w == 1 else UOp(Op.ADD, (constants((0,) * w), constants(tuple(range(w)))))


#: A scalar in an index sum: an element of a value.
Term = tuple[UOp, int]


class Lanes(NamedTuple):
    """The lanes of an index vector: constant + sum of coefficient * term. Constants are one per lane, or one for all; a coefficient
    is a tuple only where the lanes differ."""

    terms: dict[Term, int | tuple[int, ...]]
    constant: tuple[int, ...]

    @property
    def steps(self) -> tuple[int, ...] | None:
        """The distance of each lane from the first; None where that is no constant."""
        if any(type(k) is tuple for k in self.terms.values()):
            return None
        return _distances(self.constant)


@functools.lru_cache(maxsize=512)
def _distances(lanes: tuple[int, ...]) -> tuple[int, ...]:
    first = lanes[0]
    return tuple([c - first for c in lanes])


def _spread(k: int | tuple[int, ...], n: int) -> tuple[int, ...]:
    return (k,) * n if isinstance(k, int) else k if len(k) == n else k * n


def _plus(a: int | tuple[int, ...], b: int | tuple[int, ...]) -> int | tuple[int, ...]:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    n = max(1 if isinstance(x, int) else len(x) for x in (a, b))
    return tuple(map(add, _spread(a, n), _spread(b, n)))


def _total(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) == 1 == len(b):
        return (a[0] + b[0],)
    n = max(len(a), len(b))
    return tuple(map(add, _spread(a, n), _spread(b, n)))


def _scaled(k: int | tuple[int, ...], by: tuple[int, ...]) -> int | tuple[int, ...]:
    if len(by) == 1:
        return k * by[0] if isinstance(k, int) else tuple([x * by[0] for x in k])
    return tuple(map(mul, _spread(k, len(by)), by))


class Sums:
    """Index values as sums, piece by piece; remembered for the life of the object."""

    def __init__(self) -> None:
        self.tables: dict[UOp, list[int]] = {}
        self.found: dict[tuple[UOp, Piece], Lanes | None] = {}
        self.scalars: dict[UOp, Lanes] = {}

    def moved(self, u: UOp, piece: Piece) -> Piece:
        """The piece of the source that a movement op shows; may hold NOTHING."""
        at = self.tables.get(u)
        if at is None:
            at = self.tables[u] = [] if u.op is Op.EXPAND and size(u.src[0]) == 1 else table(u)
        if not at:  # every element is the one that there is
            return SCALAR
        return narrow(tuple(map(at.__getitem__, piece)))

    def source(self, u: UOp, piece: Piece) -> tuple[UOp, Piece]:
        """What a chain of movement ops shows, but for Pad."""
        while u.op is Op.RESHAPE or (u.op in MOVEMENT and u.op is not Op.PAD):
            piece = piece if u.op is Op.RESHAPE else self.moved(u, piece)
            u = u.src[0]
        return u, piece

    def of(self, u: UOp, piece: Piece) -> Lanes | None:
        """The lanes of index value `u`, None where they are no sums of scalars. One lane always is, and a value of shape ()."""
        u, piece = self.source(u, piece if u.shape else SCALAR)
        key = (u, piece)
        if key not in self.found:
            found = self._scalar(u) if u.shape == () else self._lanes(u, piece)
            self.found[key] = Lanes({(u, piece[0]): 1}, (0,)) if found is None and len(piece) == 1 else found
        return self.found[key]

    def _scalar(self, u: UOp) -> Lanes:
        if u not in self.scalars:
            s = linear(u)
            self.scalars[u] = Lanes({(t, 0): k for t, k in s.terms.items()}, (s.constant,))
        return self.scalars[u]

    def _lanes(self, u: UOp, piece: Piece) -> Lanes | None:
        if u.op is Op.STACK:
            return self._stack(u, piece)
        if u.op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG):
            parts = [self.of(s, piece) for s in u.src]
            known = [p for p in parts if p is not None]
            return _COMBINE[u.op](*known) if len(known) == len(parts) else None
        return None

    def _stack(self, u: UOp, piece: Piece) -> Lanes | None:
        spelt = u.spelt
        if spelt is not None:
            return Lanes({}, tuple([spelt[p] for p in piece]))
        if u.src[0].shape != () or u.dtype is not dt.index:
            return None
        lanes = [self._scalar(u.src[p]) for p in piece]
        terms = dict.fromkeys(t for lane in lanes for t in lane.terms)
        sums = {t: tuple([int(lane.terms.get(t, 0)) for lane in lanes]) for t in terms}  # type: ignore[arg-type]
        return Lanes({t: k[0] if len(set(k)) == 1 else k for t, k in sums.items()}, tuple([lane.constant[0] for lane in lanes]))


def _add(a: Lanes, b: Lanes) -> Lanes:
    terms = dict(a.terms)
    for t, k in b.terms.items():
        terms[t] = _plus(terms[t], k) if t in terms else k
    return Lanes({t: k for t, k in terms.items() if k != 0}, _total(a.constant, b.constant))


def _scale(a: Lanes, by: tuple[int, ...]) -> Lanes:
    terms = {t: _scaled(k, by) for t, k in a.terms.items()}
    constant = _scaled(a.constant, by)
    assert isinstance(constant, tuple)
    return Lanes({t: k for t, k in terms.items() if k != 0}, constant)


def _multiply(a: Lanes, b: Lanes) -> Lanes | None:
    return _scale(a, b.constant) if not b.terms else _scale(b, a.constant) if not a.terms else None


_COMBINE: dict[Op, Callable[..., Lanes | None]] = {
    Op.ADD: _add,
    Op.SUB: lambda a, b: _add(a, _scale(b, (-1,))),
    Op.NEG: lambda a: _scale(a, (-1,)),
    Op.MUL: _multiply,
}
