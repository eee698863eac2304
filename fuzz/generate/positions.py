"""Producers of values that depend on an element's position, and of arithmetic on indices.

Compilers have closed forms for such values, as for a sum over a loop of a value that a comparison with the loop counter
selects. They also have laws that hold for indices alone. A sequence is a sum of ones, as programs without an op for it spell
it. The operands of indices have known bounds, which are often negative. Each `make_...` function with a budget is the `make` of
a producer (`uops.fuzz.generate.maker.Producer`).
"""

from __future__ import annotations

import math

import numpy as np

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.maker import GraphMaker, Shape
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Comparisons in the order in which a draw chooses among them.
COMPARISONS = (Op.CMPLT, Op.CMPGE, Op.CMPGT, Op.CMPLE, Op.CMPEQ, Op.CMPNE)
#: Maximum extent of a sequence, whose sums have the square of it as many terms.
_LONGEST = 12
#: Steps and starts of sequences; many starts are near the bounds of small dtypes.
_STEPS = (1, 1, 1, -1, 2, 3, -2)
_STARTS = (0, 0, 1, -1, 3, 120, 250, -130, 32760)
#: Dtypes that index expressions are cast from: narrow ones, so that their bounds are useful.
_SMALL = (dt.int8, dt.uint8, dt.int16)
#: Factors and divisors of indices.
_FACTORS = (2, 3, 4, 5, 8)


def broadcast_scalar(scalar: UOp, shape: Shape) -> UOp:
    """Expand a scalar to every element of `shape`."""
    return scalar if not shape else b.expand(b.reshape(scalar, (1,) * len(shape)), shape)


# ---------------------------------------------------------------------------------------------------------------- sequences


def _make_arange_by_summing_ones(n: int, d: DType) -> UOp:
    """Make 0, 1, ..., n - 1 as sums of ones over the rows of a square whose upper triangle is padding."""
    ones = b.expand(b.reshape(b.const(1, d), (1,)), (n,))
    rows = b.expand(b.reshape(b.pad_by(ones, (n - 1, 0)), (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    square = b.shrink_to(b.reshape(rows, ((n + 1) * (2 * n - 1),)), 2 * n * n)
    square = b.shrink_to(b.reshape(square, (n, 2 * n)), n, n)
    return b.sub(b.reshape(b.reduce(square, Op.ADD, (1,)), (n,)), 1)


def _make_arithmetic_sequence_on_axis(m: GraphMaker, shape: Shape, axis: int, d: DType) -> UOp:
    """Make start + step * position along an axis, constant along all others."""
    if d is dt.index:  # from int16, whose bounds leave room for arithmetic (R08: an index fits int64)
        sequence = b.cast(_make_arange_by_summing_ones(shape[axis], dt.int16), d)
    else:
        sequence = b.cast(
            _make_arange_by_summing_ones(shape[axis], m.draw.choice(m.declared.filter_dtypes((dt.int32, dt.int64)))),
            m.draw.choice((d, d, dt.int32)),
        )
    step, start = m.draw.choice(_STEPS), m.draw.choice(_STARTS)
    sequence = sequence if step == 1 else b.mul(sequence, b.const(step, sequence.dtype))
    sequence = sequence if start == 0 else b.add(sequence, b.const(start, sequence.dtype))
    return b.expand(b.reshape(b.cast(sequence, d), [n if k == axis else 1 for k, n in enumerate(shape)]), shape)


def _short_axes(shape: Shape) -> list[int]:
    """Return the axes along which a sequence is not too long."""
    return [k for k, n in enumerate(shape) if 0 < n <= _LONGEST]


def make_sequence_on_short_axis_or_any_value(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make an arithmetic sequence along a short axis; any value if there is no such axis."""
    axes = _short_axes(shape)
    return (
        _make_arithmetic_sequence_on_axis(m, shape, m.draw.choice(axes), d)
        if axes and 0 not in shape
        else m.make_value(d, shape, budget)
    )


# ------------------------------------------------------------------------------------------------------- sums of a selection


def make_reduce_of_where_on_position(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Reduce, over a new leading axis, a Where whose condition depends on the position there."""
    n = m.draw.integer(1, min(_LONGEST, max(1, m.max_elements // max(1, math.prod(shape)))))
    full_shape = (n, *shape)
    op = m.draw.choice((Op.ADD, Op.ADD, Op.MAX))
    condition = _compare_leading_axis_position_or_floats(m, full_shape)
    if m.draw.chance(30):
        condition = UOp(Op.NOT, (condition,))
    elif m.draw.chance(30):
        condition = UOp(Op.AND, (condition, _compare_leading_axis_position_or_floats(m, full_shape)))
    value = m.make_value(d, m.draw.choice((full_shape, (1, *shape), (1,) * len(full_shape))), budget // 2)
    otherwise = broadcast_scalar(b.const(0 if op is Op.ADD or m.draw.chance(40) else d.min, d), full_shape)
    value = b.expand(value, full_shape)
    masked = UOp(Op.WHERE, (b.expand(condition, full_shape), *((value, otherwise) if m.draw.chance(65) else (otherwise, value))))
    return b.reshape(b.reduce(masked, op, (0,)), shape)


def make_sums_into_segments(m: GraphMaker, d: DType, segments: int, columns: int) -> UOp:
    """Sum rows of data into segments that other data select, or -1 and `segments`, which are none; in `d` itself.

    Sums of floats are integers that float32 holds, and smaller floats do not.
    """
    rows, numbers = m.draw.choice((2, 5, 9, 24, 60)), _make_arange_by_summing_ones(segments, dt.int32)
    if m.draw.chance(30):
        numbers = b.sub(segments - 1, numbers)
    shape = (rows, segments, columns)
    targets = segments + 2 if m.draw.chance(50) else min(4, segments + 2)  # many rows in few segments
    selected = np.mod(draw_array(m.draw, dt.int32, (rows, 1, 1), "bits"), targets) - 1
    data = draw_array(m.draw, d, (rows, 1, columns), "small")
    if d.is_float:
        data = (data * data.dtype.type(m.draw.choice((1, 21, 37)))).astype(data.dtype)
    is_selected = b.eq(
        b.expand(m.make_param_with_data(dt.int32, selected.astype(np.int32)), shape),
        b.expand(b.reshape(numbers, (1, segments, 1)), shape),
    )
    zero = broadcast_scalar(b.const(0, d), shape)
    addends = b.where(is_selected, b.expand(m.make_param_with_data(d, data), shape), zero)
    return b.reshape(b.reduce(addends, Op.ADD, (0,)), (segments, columns))


def _compare_leading_axis_position_or_floats(m: GraphMaker, full_shape: Shape) -> UOp:
    """Compare the position along the leading axis with another integer, or sometimes two floats, NaNs among them. These
    floats are functions of a position, or data that is constant along the leading axis.
    """
    if m.draw.chance(20):
        d = m.draw.choice(m.declared.filter_dtypes(dt.FLOATS))
        if m.draw.chance(75):
            return UOp(
                m.draw.choice(COMPARISONS),
                (_make_float_of_position_or_constant(m, full_shape, d), _make_float_of_position_or_constant(m, full_shape, d)),
            )
        shape = (1, *full_shape[1:])
        other = (
            m.make_value(d, shape, 1)
            if m.body_params is not None
            else m.make_param_with_data(d, draw_array(m.draw, d, shape, "special"))
        )
        return UOp(m.draw.choice(COMPARISONS), (m.make_value(d, shape, 1), other))
    d = m.draw.choice(m.declared.filter_dtypes((dt.int32, dt.int32, dt.int8, dt.uint8, dt.int16, dt.int64)))
    positions, other_axes = _make_arithmetic_sequence_on_axis(m, full_shape, 0, d), [k for k in _short_axes(full_shape) if k]
    if other_axes and 0 not in full_shape and m.draw.chance(50):
        other = _make_arithmetic_sequence_on_axis(m, full_shape, m.draw.choice(other_axes), d)
    else:
        constant = b.const(m.draw.integer(-2, 2 * full_shape[0]), d)
        other = (
            broadcast_scalar(constant, full_shape)
            if m.draw.chance(50)
            else b.expand(m.make_value(d, (1, *full_shape[1:]), 1), full_shape)
        )
    return b.build_alu_with_promotion(
        m.draw.choice(COMPARISONS), *((positions, other) if m.draw.chance(70) else (other, positions))
    )


def _make_float_of_position_or_constant(m: GraphMaker, full_shape: Shape, d: DType) -> UOp:
    """Make a float that is a function of the position along an axis, NaN for some positions, or a constant. The axis is not
    the leading one if there is another.
    """
    if m.draw.chance(40):
        return broadcast_scalar(b.const(m.draw.choice((0.0, 1.0, 2.0, -1.0, math.inf, math.nan)), d), full_shape)
    axis = m.draw.choice([k for k in _short_axes(full_shape) if k] or [0])
    x = b.sub(_make_arithmetic_sequence_on_axis(m, full_shape, axis, d), b.const(float(m.draw.integer(0, full_shape[axis])), d))
    op = m.draw.choice((None, Op.SQRT, Op.LOG2, Op.DIV))
    return x if op is None else UOp(op, (x, x) if op is Op.DIV else (x,))


# ---------------------------------------------------------------------------------------------------- arithmetic of indices


def make_index_arithmetic_and_cast(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make an index expression over operands with known bounds, cast to a dtype."""
    index = make_index_operand(m, shape)
    for _ in range(m.draw.integer(1, 3)):
        index = m.draw.choice(
            (
                _scale_index,
                _divide_or_mod_by_constant,
                _divide_or_mod_by_constant,
                _divide_or_mod_by_factor_multiple,
                _combine_with_index_value,
            )
        )(m, shape, index)
    if d is dt.bool_:
        index = b.build_alu_with_promotion(m.draw.choice(COMPARISONS), index, make_index_operand(m, shape))
    return b.cast(index, d)


def make_index_operand(m: GraphMaker, shape: Shape) -> UOp:
    """Make an index: positions, narrow integers from data, a variable or a constant."""
    if m.draw.chance(15):
        return broadcast_scalar(b.index(m.draw.integer(-4, 9)), shape)
    if m.body_params is None and m.draw.chance(25):
        lo = m.draw.integer(-5, 3)
        return broadcast_scalar(m.make_variable_with_value(lo, lo + m.draw.integer(0, 9)), shape)
    if _short_axes(shape) and 0 not in shape and m.draw.chance(30):
        return _make_arithmetic_sequence_on_axis(m, shape, m.draw.choice(_short_axes(shape)), dt.index)
    return b.cast(m.make_param_with_data_or_of_body(m.draw.choice(m.declared.filter_dtypes(_SMALL)), shape), dt.index)


def _scale_index(m: GraphMaker, shape: Shape, index: UOp) -> UOp:
    return b.add(b.mul(index, m.draw.choice((1, 2, 3, 4, -1, -3))), m.draw.integer(-4, 9))


def _divide_or_mod_by_constant(m: GraphMaker, shape: Shape, index: UOp) -> UOp:
    """Take the quotient or remainder by a constant, which is sometimes just greater than the index can be."""
    _, greatest = index.min_max or (0, 0)
    near = (int(greatest) + 1, int(greatest)) if 0 < greatest < 1 << 20 else (16, 1)
    return UOp(m.draw.choice((Op.IDIV, Op.MOD)), (index, b.index(m.draw.choice((*_FACTORS, -3, *near)))))


def _divide_or_mod_by_factor_multiple(m: GraphMaker, shape: Shape, index: UOp) -> UOp:
    """Divide (index * factor + rest) by the factor or a multiple of it, which simplifies if 0 <= rest < factor."""
    factor, k = m.draw.choice(_FACTORS), m.draw.choice((1, *_FACTORS))
    return UOp(
        m.draw.choice((Op.IDIV, Op.MOD)), (make_index_times_factor_plus_any_rest(m, shape, index, factor), b.index(factor * k))
    )


def make_index_times_factor_plus_any_rest(m: GraphMaker, shape: Shape, index: UOp, factor: int) -> UOp:
    """Make index * factor + rest, where the rest is below the factor, slightly above it, or negative."""
    rest = make_index_operand(m, shape)
    rest = b.mod(rest, factor) if m.draw.chance(60) else b.add(b.mod(rest, m.draw.choice(_FACTORS)), m.draw.integer(-2, 2))
    return b.add(b.mul(index, factor), rest)


def _combine_with_index_value(m: GraphMaker, shape: Shape, index: UOp) -> UOp:
    return b.build_alu_with_promotion(m.draw.choice((Op.ADD, Op.SUB, Op.MAX)), index, make_index_operand(m, shape))
