"""Relax: a program that computes the same over the real numbers, with less work (`Config.fast_math`; R156).

Takes: CALLIFIED, or TENSOR. Gives: the same dialect; arguments, Stores and the shapes of values stay.

The rules of `uops.compiler.rewrite.rules.fast_math` are applied to nodes of every shape, before kernels are split, so that each
node has one value still (R27). Beside them, by the laws there, in float32 and float64: what all addends of a sum are multiplied
with or divided by multiplies or divides the sum, also a constant behind movement ops, where that takes no more multiplications; and
a divisor that whole rows share is inverted once per row. Narrower floats would overflow: their sums keep the scale of the addends.

A Store that needs a value no more is not ordered after it any more. A program that would read changing memory in another order
stays as it is (R27, R161).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uops.compiler.log import note
from uops.compiler.passes.callify.hazards import keeps_order
from uops.compiler.rewrite.lowering_cache import remembered
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules.fast_math import RELAXING
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ALU, Op

_WIDE = (dt.float32, dt.float64)
#: Ops that move elements, or repeat them, or put zeros beside them: a constant factor moves through.
_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.SHRINK, Op.EXPAND, Op.PAD})
#: Factors of one product that are looked at.
_MOST = 16


@remembered
def relax(root: UOp) -> UOp:
    """The program with the rules of fast-math applied."""
    first, outside, last = _Relaxed(RELAXING), _Outside(), _Relaxed(RELAXING)
    simple = first(root)
    for u in toposort(simple):
        outside.visit(u)
    moved = outside.done[simple]
    note("relax", simple, moved, outside.done)
    found = last(moved)
    put = {u: last.done[v] for u, w in first.done.items() if (v := outside.done.get(w)) in last.done}
    return found if keeps_order(root, found, put) else root


class _Relaxed(Rewriter):
    """Rules on floats, and on what is said of them, of any shape: a constant that is repeated counts as a constant, and a node that
    lost its shape with a source is repeated. Index expressions stay, as what is outside knows them (shapes of arguments)."""

    def applied(self, u: UOp) -> UOp | None:
        if u.op not in ALU or not (u.dtype.is_float or u.dtype is dt.bool_):
            return None
        plain = u.replace(src=tuple([_repeated(s) or s for s in u.src]))
        if plain is not u and plain.shape == u.shape:
            return plain
        made = super().applied(u)
        return made if made is None or made.shape == u.shape else _broadcast(made, u.shape)


def _repeated(u: UOp) -> UOp | None:
    """The constant of which every element of `u` is a copy."""
    while u.op in (Op.RESHAPE, Op.EXPAND):
        u = u.src[0]
    return u if u.op is Op.CONST else None


def _broadcast(u: UOp, shape: tuple[Dim, ...]) -> UOp:
    padded = (1,) * (len(shape) - len(u.shape)) + u.shape
    return B.expand(u if padded == u.shape else B.reshape(u, padded), shape)


class _Scaled(NamedTuple):
    """A value as `core` times `constants`, which `saved` multiplications do."""

    core: UOp
    constants: tuple[UOp, ...] = ()
    saved: int = 0


class _Outside:
    """Moves factors out of sums; sources first."""

    def __init__(self) -> None:
        self.done: dict[UOp, UOp] = {}
        self.scaled: dict[UOp, _Scaled] = {}

    def visit(self, u: UOp) -> None:
        src = tuple([self.done[s] for s in u.src])
        v = u if src == u.src else u.replace(src=src)
        if v.dtype in _WIDE:
            if v.op is Op.REDUCE and v.arg.op is Op.ADD:
                v = self._sum(v)
            elif v.op is Op.DIV:
                v = self._quotient(v)
            self._scale(v)
        self.done[u] = v

    def _made(self, op: Op, *src: UOp) -> UOp:
        v = UOp(op, src)
        self._scale(v)
        return v

    def _of(self, u: UOp) -> _Scaled:
        return self.scaled.get(u) or _Scaled(u)

    def _scale(self, v: UOp) -> None:
        """Find the constants that multiply `v`."""
        found = None
        if v.op is Op.MUL and v.src[1].op is Op.CONST:
            core, constants, saved = self._of(v.src[0])
            found = _Scaled(core, (*constants, v.src[1]), saved + _size(v.shape))
        elif v.op is Op.MUL:
            a, b = map(self._of, v.src)
            found = _Scaled(UOp(Op.MUL, (a.core, b.core)), a.constants + b.constants, a.saved + b.saved)
        elif v.op in _VIEWS or (v.op is Op.REDUCE and v.arg.op is Op.ADD):
            a = self._of(v.src[0])
            found = _Scaled(v.replace(src=(a.core, *v.src[1:])), a.constants, a.saved)
        if found is not None and 0 < len(found.constants) <= _MOST and found.core.shape == v.shape:
            self.scaled[v] = found

    def _sum(self, v: UOp) -> UOp:
        """A sum of products: shared factors and divisors once, after it."""
        term = v.src[0]
        factors, divisors = _product(term)
        kept = [f for f in factors if not _is_shared(f, v)]
        outer = [f for f in factors if _is_shared(f, v)]
        under = [d for d in divisors if _is_shared(d, v)]
        if not kept:
            return v
        inner = kept[0]
        for f in kept[1:]:
            inner = self._made(Op.MUL, inner, f)
        for d in divisors:
            inner = inner if d in under else self._made(Op.DIV, inner, d)
        scaled = self._of(inner)
        if scaled.saved < _size(v.shape):
            scaled = _Scaled(inner)
        if not (outer or under or scaled.constants) or scaled.core.shape != term.shape:
            return v
        made = v.replace(src=(scaled.core,))
        for f in (*outer, *scaled.constants):
            made = self._made(Op.MUL, made, _row(f))
        for d in under:
            made = self._made(Op.DIV, made, _row(d))
        return made if made.shape == v.shape else v

    def _quotient(self, v: UOp) -> UOp:
        """A divisor that a row shares, inverted once for it."""
        x, y = v.src
        by = _row(y)
        if not v.shape or v.shape[-1] == 1 or by.op is Op.CONST or (by.shape and by.shape[-1] != 1):
            return v
        made = self._made(Op.MUL, x, UOp(Op.RECIP, (by,)))
        return made if made.shape == v.shape else v


def _product(term: UOp) -> tuple[list[UOp], list[UOp]]:
    """The factors of a term, and its divisors."""
    factors, divisors, pending = list[UOp](), list[UOp](), [term]
    while pending:
        u = pending.pop()
        if len(factors) + len(pending) >= _MOST or u.op not in (Op.MUL, Op.DIV):
            factors.append(u)
        elif u.op is Op.MUL:
            pending += u.src[::-1]
        else:
            pending.append(u.src[0])
            divisors.append(u.src[1])
    return factors, divisors


def _row(u: UOp) -> UOp:
    """A value without what only repeats it."""
    while u.op is Op.EXPAND:
        u = u.src[0]
    return u


def _is_shared(f: UOp, total: UOp) -> bool:
    """Whether a factor is the same for all addends of a sum."""
    shape, rank = _row(f).shape, len(total.shape)
    fixed = all(a < rank - len(shape) or shape[a - (rank - len(shape))] == 1 for a in total.arg.axes)
    return fixed and any(total.src[0].shape[a] != 1 for a in total.arg.axes)


def _size(shape: tuple[Dim, ...]) -> int:
    """The elements of a shape; none of one that is not known."""
    return 0 if any(isinstance(n, UOp) for n in shape) else math.prod(shape)
