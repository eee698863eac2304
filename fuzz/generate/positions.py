"""Producers of values that depend on where an element stands, and of arithmetic on indices.

A compiler has closed forms for them - a sum over a loop of what a comparison with the loop's number selects - and laws that hold
for indices alone. Sequences are sums of ones, as programs spell them that have no op for them. Bounds of what indices are made of
are known, and often negative. Each `make_...` is what `uops.fuzz.generate.producers.Producer` calls `make`.
"""

from __future__ import annotations

import math

from uops.backends.testing.values import array
from uops.fuzz.generate.maker import Maker
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Shape = tuple[int, ...]
COMPARISONS = (Op.CMPLT, Op.CMPGE, Op.CMPGT, Op.CMPLE, Op.CMPEQ, Op.CMPNE)
#: Longer sequences are not made: their sums have as many terms as the square.
_LONGEST = 12
_STEPS = (1, 1, 1, -1, 2, 3, -2)
_STARTS = (0, 0, 1, -1, 3, 120, 250, -130, 32760)
#: Integers that indices are made of: of few values, so that bounds say something.
_SMALL = (dt.int8, dt.uint8, dt.int16)
_FACTORS = (2, 3, 4, 5, 8)


def filled(c: UOp, shape: Shape) -> UOp:
    """A scalar in every element."""
    return c if not shape else b.expand(b.reshape(c, (1,) * len(shape)), shape)


# ---------------------------------------------------------------------------------------------------------------- sequences


def _ramp(n: int, d: DType) -> UOp:
    """0, 1, ..., n - 1: sums of ones over the rows of a square, of which those behind the diagonal are padded."""
    ones = b.expand(b.reshape(b.const(1, d), (1,)), (n,))
    rows = b.expand(b.reshape(b.pad_by(ones, (n - 1, 0)), (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    square = b.shrink_to(b.reshape(rows, ((n + 1) * (2 * n - 1),)), 2 * n * n)
    square = b.shrink_to(b.reshape(square, (n, 2 * n)), n, n)
    return b.sub(b.reshape(b.reduce(square, Op.ADD, (1,)), (n,)), 1)


def _along(m: Maker, shape: Shape, axis: int, d: DType) -> UOp:
    """start + step * position along an axis, the same along all others."""
    if d is dt.index:  # of which bounds are known that leave room (R08)
        found = b.cast(_ramp(shape[axis], dt.int16), d)
    else:
        found = b.cast(_ramp(shape[axis], m.draw.choice(m.declared.of((dt.int32, dt.int64)))), m.draw.choice((d, d, dt.int32)))
    step, start = m.draw.choice(_STEPS), m.draw.choice(_STARTS)
    found = found if step == 1 else b.mul(found, b.const(step, found.dtype))
    found = found if start == 0 else b.add(found, b.const(start, found.dtype))
    return b.expand(b.reshape(b.cast(found, d), [n if k == axis else 1 for k, n in enumerate(shape)]), shape)


def _axes(shape: Shape) -> list[int]:
    """Those along which a sequence is not too long."""
    return [k for k, n in enumerate(shape) if 0 < n <= _LONGEST]


def make_sequence(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    axes = _axes(shape)
    return _along(m, shape, m.draw.choice(axes), d) if axes and 0 not in shape else m.value(d, shape, budget)


# ------------------------------------------------------------------------------------------------------- sums of a selection


def make_selected(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A Reduce, over a new first axis, of what a condition on the position there selects."""
    n = m.draw.integer(1, min(_LONGEST, max(1, m.max_elements // max(1, math.prod(shape)))))
    full = (n, *shape)
    op = m.draw.choice((Op.ADD, Op.ADD, Op.MAX))
    condition = _condition(m, full)
    if m.draw.chance(30):
        condition = UOp(Op.NOT, (condition,))
    elif m.draw.chance(30):
        condition = UOp(Op.AND, (condition, _condition(m, full)))
    value = m.value(d, m.draw.choice((full, (1, *shape), (1,) * len(full))), budget // 2)
    rest = filled(b.const(0 if op is Op.ADD or m.draw.chance(40) else d.min, d), full)
    value = b.expand(value, full)
    e = UOp(Op.WHERE, (b.expand(condition, full), *((value, rest) if m.draw.chance(65) else (rest, value))))
    return b.reshape(b.reduce(e, op, (0,)), shape)


def _condition(m: Maker, full: Shape) -> UOp:
    """The position along the first axis against another integer; sometimes two floats, NaNs among them: of data that do not depend
    on it, or of functions of a position."""
    if m.draw.chance(20):
        d = m.draw.choice(m.declared.of(dt.FLOATS))
        if m.draw.chance(75):
            return UOp(m.draw.choice(COMPARISONS), (_function(m, full, d), _function(m, full, d)))
        shape = (1, *full[1:])
        other = m.value(d, shape, 1) if m.inside is not None else m.given(d, array(m.draw, d, shape, "special"))
        return UOp(m.draw.choice(COMPARISONS), (m.value(d, shape, 1), other))
    d = m.draw.choice(m.declared.of((dt.int32, dt.int32, dt.int8, dt.uint8, dt.int16, dt.int64)))
    mine, others = _along(m, full, 0, d), [k for k in _axes(full) if k]
    if others and 0 not in full and m.draw.chance(50):
        other = _along(m, full, m.draw.choice(others), d)
    else:
        constant = b.const(m.draw.integer(-2, 2 * full[0]), d)
        other = filled(constant, full) if m.draw.chance(50) else b.expand(m.value(d, (1, *full[1:]), 1), full)
    return b.alu(m.draw.choice(COMPARISONS), *((mine, other) if m.draw.chance(70) else (other, mine)))


def _function(m: Maker, full: Shape, d: DType) -> UOp:
    """A float that a position decides, along another axis than the first where there is one, often NaN for some; or a constant."""
    if m.draw.chance(40):
        return filled(b.const(m.draw.choice((0.0, 1.0, 2.0, -1.0, math.inf, math.nan)), d), full)
    axis = m.draw.choice([k for k in _axes(full) if k] or [0])
    x = b.sub(_along(m, full, axis, d), b.const(float(m.draw.integer(0, full[axis])), d))
    op = m.draw.choice((None, Op.SQRT, Op.LOG2, Op.DIV))
    return x if op is None else UOp(op, (x, x) if op is Op.DIV else (x,))


# ---------------------------------------------------------------------------------------------------- arithmetic of indices


def make_indices(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """An index expression of what has bounds, as a value of another dtype."""
    e = index_value(m, shape)
    for _ in range(m.draw.integer(1, 3)):
        e = m.draw.choice((_scaled, _divided, _divided, _of_a_factor, _joined))(m, shape, e)
    if d is dt.bool_:
        e = b.alu(m.draw.choice(COMPARISONS), e, index_value(m, shape))
    return b.cast(e, d)


def index_value(m: Maker, shape: Shape) -> UOp:
    """Positions, numbers from data, a variable or a constant."""
    if m.draw.chance(15):
        return filled(b.index(m.draw.integer(-4, 9)), shape)
    if m.inside is None and m.draw.chance(25):
        lo = m.draw.integer(-5, 3)
        return filled(m.variable(lo, lo + m.draw.integer(0, 9)), shape)
    if _axes(shape) and 0 not in shape and m.draw.chance(30):
        return _along(m, shape, m.draw.choice(_axes(shape)), dt.index)
    return b.cast(m.param(m.draw.choice(m.declared.of(_SMALL)), shape), dt.index)


def _scaled(m: Maker, shape: Shape, e: UOp) -> UOp:
    return b.add(b.mul(e, m.draw.choice((1, 2, 3, 4, -1, -3))), m.draw.integer(-4, 9))


def _divided(m: Maker, shape: Shape, e: UOp) -> UOp:
    """By a constant; of what is within bounds, sometimes by one that is just greater than all of it."""
    _, most = e.min_max or (0, 0)
    near = (int(most) + 1, int(most)) if 0 < most < 1 << 20 else (16, 1)
    return UOp(m.draw.choice((Op.IDIV, Op.MOD)), (e, b.index(m.draw.choice((*_FACTORS, -3, *near)))))


def _of_a_factor(m: Maker, shape: Shape, e: UOp) -> UOp:
    """(q g + r) by g, or by a multiple of g: a law where 0 <= r < g."""
    g, k = m.draw.choice(_FACTORS), m.draw.choice((1, *_FACTORS))
    return UOp(m.draw.choice((Op.IDIV, Op.MOD)), (with_rest(m, shape, e, g), b.index(g * k)))


def with_rest(m: Maker, shape: Shape, e: UOp, g: int) -> UOp:
    """A multiple of g and something less than that, or not much more, or negative."""
    r = index_value(m, shape)
    r = b.mod(r, g) if m.draw.chance(60) else b.add(b.mod(r, m.draw.choice(_FACTORS)), m.draw.integer(-2, 2))
    return b.add(b.mul(e, g), r)


def _joined(m: Maker, shape: Shape, e: UOp) -> UOp:
    return b.alu(m.draw.choice((Op.ADD, Op.SUB, Op.MAX)), e, index_value(m, shape))
