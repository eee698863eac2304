"""The table of producers, one per way to make a value: which (dtype, shape) it admits, and how it asks for its sources.

A producer never fails: `admits` is the op's typing rule read from result to sources. The ones with `always` are not subject to
the swarm.
"""

from __future__ import annotations

import math
from dataclasses import replace

from uops.backends.testing.signatures import is_tested_dtype
from uops.backends.testing.values import (
    bits_to_number,
    cast_drops_digits,
    draw_mulacc_operands_with_halfway_product,
    draw_near_cast_ties_or_over_integer_range,
    edge_bits,
)
from uops.fuzz.generate import effects
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.maker import GraphMaker, Producer, Shape
from uops.fuzz.generate.positions import (
    COMPARISONS,
    broadcast_scalar,
    make_index_arithmetic_and_cast,
    make_reduce_of_where_on_position,
    make_sequence_on_short_axis_or_any_value,
)
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.signatures import operand_dtypes

# --------------------------------------------------------------------------------------------------------- elementwise


def _draw_broadcast_source_shape(m: GraphMaker, shape: Shape) -> Shape:
    """Draw a shape that broadcasts to `shape`: some axes become 1, some leading axes are dropped."""
    if not shape or not m.draw.chance(30):
        return shape
    first_axis = m.draw.integer(0, len(shape))
    return tuple(1 if m.draw.chance(40) else n for n in shape[first_axis:])


def _make_operands_that_broadcast(m: GraphMaker, dtypes: list[DType], shape: Shape, budget: int) -> list[UOp]:
    """Make one source per dtype, in order. One of them has the full shape; the others may broadcast."""
    full = m.draw.integer(0, len(dtypes) - 1)
    shares = m.split_budget(budget, len(dtypes))
    return [
        m.make_value(d, shape if k == full else _draw_broadcast_source_shape(m, shape), shares[k]) for k, d in enumerate(dtypes)
    ]


def _build_alu_producer(op: Op) -> Producer:
    """Build the producer of an op whose sources and result share a dtype, one that its row accepts."""
    dtypes = frozenset(d for d in (*dt.STORABLE, dt.index) if is_tested_dtype(op, d))

    def admits(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
        return d in dtypes

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
        return UOp(op, tuple(_make_operands_that_broadcast(m, [*operand_dtypes(op, d)], shape, budget)))

    return Producer(op.name.lower(), admits, make)


def _build_producer_of_shift_by_any_count(op: Op) -> Producer:
    """Build the producer of a shift, whose count may be of another integer dtype and is sometimes near the word's width."""

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
        count = d if m.draw.chance(50) else m.draw.choice(m.declared.filter_dtypes(dt.INTS))
        if m.draw.chance(25):
            return UOp(op, (m.make_value(d, shape, budget - 1), _make_shift_count_up_to_about_word_width(m, count, d.bits, shape)))
        return UOp(op, tuple(_make_operands_that_broadcast(m, [d, count], shape, budget)))

    return Producer(op.name.lower(), lambda m, d, s, n: d in dt.INTS, make)


def _make_shift_count_up_to_about_word_width(m: GraphMaker, d: DType, word_width: int, shape: Shape) -> UOp:
    """Make a shift count whose bounds end at the width of the word, or one beside it."""
    max_count = word_width + m.draw.choice((-1, 0, 0, 1))
    if m.draw.chance(50):
        ends = [broadcast_scalar(b.const(k, d), shape) for k in (max_count, m.draw.integer(0, max_count))]
        return UOp(Op.WHERE, (m.make_value(dt.bool_, shape, 1), *ends))
    return UOp(Op.MOD, (m.make_value(d, shape, 1), broadcast_scalar(b.const(max_count + 1, d), shape)))


def _build_compare_producer(op: Op) -> Producer:
    """Build the producer of a comparison of any dtype."""

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
        kind = m.draw.choice(m.dtypes)
        return UOp(op, tuple(_make_operands_that_broadcast(m, [kind, kind], shape, budget)))

    return Producer(op.name.lower(), lambda m, d, s, n: d is dt.bool_, make)


def _build_producer_of_mulacc_maybe_near_halfway() -> Producer:
    """Build the producer of MULACC, some of whose sums of floats lie almost halfway between two numbers."""
    plain = _build_alu_producer(Op.MULACC)

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:

        if not d.is_float or m.body_params is not None or not m.draw.chance(20):
            return plain.make(m, d, shape, budget)
        return UOp(
            Op.MULACC, tuple(m.make_param_with_data(d, x) for x in draw_mulacc_operands_with_halfway_product(m.draw, d, shape))
        )

    return replace(plain, make=make)


def _make_where(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    return UOp(Op.WHERE, tuple(_make_operands_that_broadcast(m, [m.draw.choice(m.dtypes), d, d], shape, budget)))


#: Ops that combine two conditions.
_COMBINATIONS = (Op.AND, Op.OR, Op.XOR, Op.MAX)


def _make_combined_or_negated_compare(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a condition out of comparisons of integers: of a value with itself, with its own negation, or combined with
    another condition.
    """
    kind = m.draw.choice(m.declared.filter_dtypes(dt.INTS))
    if m.draw.chance(20):
        operands = [m.make_value(kind, shape, budget)] * 2
    else:
        operands = _make_operands_that_broadcast(m, [kind, kind], shape, budget)
    p = UOp(m.draw.choice(COMPARISONS), tuple(operands))
    p = UOp(Op.NOT, (p,)) if m.draw.chance(60) else p
    op = m.draw.choice((None, *_COMBINATIONS))
    if op is None:
        return p
    other = m.draw.choice(("same", "negated", "another"))
    q = {"same": lambda: p, "negated": lambda: UOp(Op.NOT, (p,)), "another": lambda: m.make_value(d, shape, 1)}[other]()
    return UOp(op, (p, q))


def _make_nested_same_condition_or_negated_where(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Where by one condition that is nested in another one by the same condition, or a Where by its negation."""
    p = m.make_value(dt.bool_, shape, budget // 2)
    x, y = _make_operands_that_broadcast(m, [d, d], shape, budget - budget // 2)
    inner = UOp(Op.WHERE, (p, x, y))
    negated = UOp(Op.WHERE, (UOp(Op.NOT, (p,)), x, y))
    return m.draw.choice((UOp(Op.WHERE, (p, inner, y)), UOp(Op.WHERE, (p, x, inner)), negated))


def _make_cast_of_value_or_rounding_edges(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Cast a value of any dtype, or data in which every bit decides how the cast rounds."""
    rounding = [k for k in m.dtypes if cast_drops_digits(k, d)]
    if rounding and m.body_params is None and m.draw.chance(30):
        source = m.draw.choice(rounding)
        return b.cast(m.make_param_with_data(source, draw_near_cast_ties_or_over_integer_range(m.draw, source, d, shape)), d)
    return b.cast(m.make_value(m.draw.choice([k for k in m.dtypes if k is not d] or [d]), shape, budget), d)


# ------------------------------------------------------------------------------------------------------------ movement


def _make_permute(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    order = draw_permutation(m.draw, len(shape))
    source = [0] * len(shape)
    for k, axis in enumerate(order):
        source[axis] = shape[k]
    return b.permute(m.make_value(d, tuple(source), budget), order)


def _make_flip(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    return b.flip(m.make_value(d, shape, budget), [m.draw.chance(50) for _ in shape])


def _draw_shape_of_size(m: GraphMaker, size: int) -> Shape:
    """Draw a shape of exactly `size` elements."""
    if size == 0:
        return (0,) if m.draw.chance(50) else (0, m.draw_extent(8))
    dims: list[int] = []
    while size > 1 and len(dims) < 3:
        factor = m.draw.choice([k for k in range(1, min(size, 33) + 1) if size % k == 0])
        dims.append(factor)
        size //= factor
    return (*dims, size) if size > 1 or m.draw.chance(20) else tuple(dims)


def _make_reshape(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    return b.reshape(m.make_value(d, _draw_shape_of_size(m, math.prod(shape)), budget), shape)


def _make_expand(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    source = tuple(1 if m.draw.chance(60) else n for n in shape)
    return b.expand(m.make_value(d, source, budget), shape)


def _make_pad(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    inner = [m.draw.integer(0, n) if m.draw.chance(60) else n for n in shape]
    offset = [m.draw.integer(0, n - k) for n, k in zip(shape, inner, strict=True)]
    return b.pad(m.make_value(d, tuple(inner), budget), offset, shape)


def _draw_larger_shape(m: GraphMaker, shape: Shape) -> list[int]:
    """Draw extents that are at least those of `shape`, within the maximum of elements."""
    room = m.max_elements // max(1, math.prod(max(1, n) for n in shape))
    outer = list(shape)
    for k, n in enumerate(shape):
        if room > 1 and m.draw.chance(60):
            more = m.draw.integer(0, min(4, max(1, n) * (room - 1)))
            outer[k] = n + more
            room = room * max(1, n) // max(1, n + more)
    return outer


def _make_shrink(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    outer = _draw_larger_shape(m, shape)
    offset: list[int | UOp] = [m.draw.integer(0, k - n) for n, k in zip(shape, outer, strict=True)]
    slack = [k for k, (n, o) in enumerate(zip(shape, outer, strict=True)) if o > n]
    if slack and m.body_params is None and m.draw.chance(20):  # a symbolic offset (R48)
        k = m.draw.choice(slack)
        offset[k] = m.make_variable_with_value(0, outer[k] - shape[k])
    return b.shrink(m.make_value(d, tuple(outer), budget), offset, shape)


def _make_index_by_scalar_or_vector(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Index a leading axis by a scalar, which removes the axis, or by a vector, which replaces it."""
    n = m.draw_extent(max(1, m.max_elements // max(1, math.prod(shape))))
    if shape and m.draw.chance(60):
        position = _make_index_vector(m, shape[0], n)
        return UOp(Op.INDEX, (m.make_value(d, (n, *shape[1:]), budget), position))
    position = (
        m.make_variable_with_value(0, n - 1) if m.body_params is None and m.draw.chance(20) else b.index(m.draw.integer(0, n - 1))
    )
    return UOp(Op.INDEX, (m.make_value(d, (n, *shape), budget), position))


def _make_index_vector(m: GraphMaker, count: int, extent: int) -> UOp:
    """Make a vector of `count` positions below `extent`: constants, or run-time integers reduced modulo the extent."""
    if 0 < count <= 8 and m.draw.chance(50):
        return b.stack(*(b.index(m.draw.integer(0, extent - 1)) for _ in range(count)))
    raw = b.cast(m.make_param_with_data_or_of_body(m.draw.choice(m.declared.filter_dtypes(dt.INTS)), (count,)), dt.index)
    return UOp(Op.MOD, (raw, b.index(extent)))


def _make_stack(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    shares = m.split_budget(budget, shape[0])
    return b.stack(*(m.make_value(d, shape[1:], n) for n in shares))


def _draw_bitcast_source_type(m: GraphMaker, d: DType, shape: Shape) -> tuple[DType, Shape]:
    """Draw the dtype and shape of a value that Bitcast turns into this one: its last axis absorbs another item size."""
    options: list[tuple[DType, Shape]] = []
    for k in m.declared.filter_dtypes(dt.STORABLE):
        if k.bits == d.bits:
            options.append((k, shape))
        elif shape and shape[-1] * d.itemsize % k.itemsize == 0 and shape[-1] * d.itemsize // k.itemsize <= 64:
            options.append((k, (*shape[:-1], shape[-1] * d.itemsize // k.itemsize)))
    return m.draw.choice(options or [(d, shape)])


def _make_bitcast(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    kind, source = _draw_bitcast_source_type(m, d, shape)
    if kind.is_float:  # bits of an inexact float may be anything (R30: representation of allowed sets), so they come from data
        return b.bitcast(m.make_param_with_data_or_of_body(kind, source), d)
    return b.bitcast(m.make_value(kind, source, budget), d)


def _make_slice_of_buffer_of_no_wider_dtype(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a Slice of a Buffer at an offset that is aligned to the new dtype (R46: a Slice's byte range is aligned)."""
    smaller = tuple(k for k in dt.STORABLE if k.itemsize <= d.itemsize and (k is not dt.bool_ or d is dt.bool_))
    kind = m.draw.choice(m.declared.filter_dtypes(smaller))
    unit = d.itemsize // kind.itemsize
    before, size = m.draw.integer(0, 3), math.prod(shape)
    buffer = effects.make_buffer_with_data(m, kind, (before + size + m.draw.integer(0, 2)) * unit)
    return b.reshape(b.slice_(buffer, before * unit, size, d), shape)


# ------------------------------------------------------------------------------------------------------------- reduce


def _build_reduce_producer(op: Op) -> Producer:
    """Build the producer of a Reduce. It reduces axes to extent 1 where the shape has such axes, else an additional axis."""

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
        room = max(1, m.max_elements // max(1, math.prod(shape)))
        axes = [k for k, n in enumerate(shape) if n == 1 and m.draw.chance(70)]
        if not axes:
            k = m.draw.integer(0, len(shape))
            n = 0 if m.draw.chance(4) else m.draw_extent(room)
            grown = m.make_value(d, (*shape[:k], n, *shape[k:]), budget)
            return b.reshape(b.reduce(grown, op, (k,)), shape)
        source = list(shape)
        for k in axes:
            source[k] = m.draw_extent(room)
            room = max(1, room // source[k])
        return b.reduce(m.make_value(d, tuple(source), budget), op, axes)

    return Producer(f"reduce_{op.name.lower()}", lambda m, d, s, n: True, make)


def _combine_value_with_own_or_pairwise_reduce(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Combine a value with a reduction of pairs of its own elements, as attention does: one Reduce per element, or one
    Reduce for all.
    """
    outer, n = shape[:-1], shape[-1]
    ops = (Op.ADD, Op.MUL, Op.MAX) if d is not dt.bool_ else (Op.AND, Op.OR, Op.XOR)
    value = _make_expensive_value_if_number(m, d, shape, budget // 2) if m.draw.chance(50) else m.make_value(d, shape, budget // 2)
    if math.prod(shape) * n > m.max_elements or m.draw.chance(40):
        total = b.reduce(value, m.draw.choice((Op.ADD, Op.MAX)), (len(outer),))
        return UOp(m.draw.choice(ops), (value, b.expand(b.reshape(total, (*outer, 1)), shape)))
    square = (*outer, n, n)
    columns = b.expand(b.reshape(value, (*outer, 1, n)), square)
    rows = m.make_value(d, (n, n), 1) if m.draw.chance(50) else b.expand(b.reshape(value, (*outer, n, 1)), square)
    pairs = UOp(m.draw.choice(ops), (rows, columns))
    if m.draw.chance(30):
        pairs = UOp(Op.WHERE, (UOp(m.draw.choice(COMPARISONS), (rows, columns)), pairs, columns))
    total = b.reduce(pairs, m.draw.choice((Op.ADD, Op.ADD, Op.MAX)), (len(shape),))
    return UOp(m.draw.choice(ops), (value, b.reshape(total, shape)))


def _make_expensive_value_if_number(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a value that a compiler may prefer to store rather than to compute twice."""
    x = m.make_value(d, shape, budget) if budget > 1 else m.make_param_with_data_or_of_body(d, shape)
    if d.is_float:
        return UOp(m.draw.choice((Op.EXP2, Op.LOG2)), (UOp(Op.SQRT, (x,)) if m.draw.chance(30) else x,))
    if d not in dt.INTS:
        return x
    divisor = broadcast_scalar(b.const(m.draw.choice((3, 5, 7)), d), shape) if m.draw.chance(30) else m.make_value(d, shape, 1)
    return UOp(m.draw.choice((Op.IDIV, Op.MOD)), (x, divisor))


def _make_marker(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    op = m.draw.choice((Op.CONTIGUOUS, Op.DETACH, Op.CONTIGUOUS_BACKWARD))
    return UOp(op, (m.make_value(d, shape, budget),))


# -------------------------------------------------------------------------------------------------------------- leaves


def _make_const(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    if m.draw.chance(40):
        value: float = bits_to_number(m.draw.choice(edge_bits(d)), d)
    elif d.is_float:
        value = m.draw.choice((0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, math.inf, -math.inf, math.nan))
    else:
        value = m.draw.choice((0, 1, -1, 2, 3, 7, 8, int(d.max), int(d.min)))
    return broadcast_scalar(b.const(value, d), shape)


def make_constant_expression(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make an expression of constants alone."""
    leaves = tuple(p for p in LEAVES if p.name == "const")
    constants = replace(m, producers=ELEMENTWISE, leaves=leaves, values_by_type={}, body_params=[])
    return broadcast_scalar(constants.make_value(d, (), m.draw.integer(2, 4)), shape)


def _make_variable_as_value(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    """Make a variable as a value: an index that is cast, or one of the dtype itself over any bounds that index can hold
    (R08: an index reaches memory as at most int64).
    """
    if d.is_integer and m.draw.chance(60):
        least, greatest = int(d.min), min(int(d.max), int(dt.int64.max))
        lo, hi = m.draw.choice(((least, greatest), (0, greatest), (least, least + 9), (greatest - 9, greatest), (0, 9)))
        return broadcast_scalar(m.make_variable_with_value(lo, hi, d), shape)
    lo = m.draw.integer(-3, 3)
    return broadcast_scalar(b.cast(m.make_variable_with_value(lo, lo + m.draw.integer(0, 9)), d), shape)


def _make_binary(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
    data = bytes(m.draw.integer(0, 255) for _ in range(math.prod(shape)))
    return b.reshape(b.binary(data), shape)


def _is_outside_body(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
    return m.body_params is None


def _admits_anything(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
    return True


def _has_axes(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
    return bool(shape)


def _can_shard(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
    return bool(shape) and m.body_params is None and any(shape[0] % k == 0 for k in (2, 3, 4))


def _can_copy_to_devices(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
    return m.body_params is None and 0 < math.prod(shape) <= m.max_elements // 2


#: Producers of leaves. Draws depend on the order, here and below.
LEAVES: tuple[Producer, ...] = (
    Producer("param", _admits_anything, lambda m, d, s, n: m.make_param_with_data_or_of_body(d, s), always=True),
    Producer("const", _admits_anything, _make_const, always=True),
    Producer("buffer", _is_outside_body, lambda m, d, s, n: b.reshape(effects.make_buffer_with_data(m, d, math.prod(s)), s)),
    Producer("variable", lambda m, d, s, n: m.body_params is None and d is not dt.bool_, _make_variable_as_value),
    Producer("binary", lambda m, d, s, n: d is dt.uint8 and math.prod(s) <= 16, _make_binary),
)

#: Producers of elementwise ops.
# fmt: off
ELEMENTWISE: tuple[Producer, ...] = (
    *map(_build_alu_producer, (Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.XOR, Op.OR, Op.AND)),
    _build_producer_of_shift_by_any_count(Op.SHL), _build_producer_of_shift_by_any_count(Op.SHR),
    *map(_build_alu_producer, (Op.RECIP, Op.TRUNC, Op.NEG, Op.SUB, Op.DIV, Op.NOT, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.POW)),
    _build_producer_of_mulacc_maybe_near_halfway(), _build_alu_producer(Op.THREEFRY),
    _build_compare_producer(Op.CMPLT), _build_compare_producer(Op.CMPNE), _build_compare_producer(Op.CMPGT),
    _build_compare_producer(Op.CMPGE), _build_compare_producer(Op.CMPLE), _build_compare_producer(Op.CMPEQ),
    Producer("where", _admits_anything, _make_where, always=True),
    Producer("condition", lambda m, d, s, n: d is dt.bool_, _make_combined_or_negated_compare),
    Producer("choices", lambda m, d, s, n: n >= 2, _make_nested_same_condition_or_negated_where),
    Producer("cast", _admits_anything, _make_cast_of_value_or_rounding_edges, always=True),
)
#: All producers of values.
PRODUCERS: tuple[Producer, ...] = (
    *ELEMENTWISE,
    Producer("folded", _admits_anything, make_constant_expression),
    Producer("sequence", lambda m, d, s, n: bool(s) and d is not dt.bool_, make_sequence_on_short_axis_or_any_value),
    Producer("selected", lambda m, d, s, n: n >= 2 and d is not dt.bool_, make_reduce_of_where_on_position),
    Producer("indices", _admits_anything, make_index_arithmetic_and_cast),
    Producer("permute", lambda m, d, s, n: len(s) > 1, _make_permute),
    Producer("flip", _has_axes, _make_flip),
    Producer("reshape", _admits_anything, _make_reshape),
    Producer("expand", _has_axes, _make_expand),
    Producer("pad", _has_axes, _make_pad),
    Producer("shrink", _has_axes, _make_shrink),
    Producer("index", _admits_anything, _make_index_by_scalar_or_vector),
    Producer("stack", lambda m, d, s, n: bool(s) and 1 <= s[0] <= 4, _make_stack),
    Producer("bitcast", lambda m, d, s, n: d is not dt.bool_, _make_bitcast),
    Producer("slice", lambda m, d, s, n: m.body_params is None and d is not dt.bool_, _make_slice_of_buffer_of_no_wider_dtype),
    _build_reduce_producer(Op.ADD), _build_reduce_producer(Op.MUL), _build_reduce_producer(Op.MAX),
    Producer("crossed", lambda m, d, s, n: bool(s) and s[-1] > 1 and n >= 3, _combine_value_with_own_or_pairwise_reduce),
    Producer("function", lambda m, d, s, n: n >= 3 and m.body_params is None, effects.make_function_result),
    Producer("marker", _admits_anything, _make_marker),
    Producer("load", _admits_anything, effects.make_load_of_value_maybe_gated),
    Producer("assign", _is_outside_body, effects.make_store_and_read),
    Producer("shards", _can_shard, effects.make_scatter_gather_over_devices),
    Producer("call", lambda m, d, s, n: n >= 3 and m.body_params is None, effects.make_call_and_read_its_output),
    Producer("group", lambda m, d, s, n: n >= 2 and m.body_params is None, effects.make_group_of_disjoint_stores_and_read),
    Producer("replicated", lambda m, d, s, n: 1 in s, effects.make_expand_of_unit_axes_undone_by_replicated),
    Producer("everywhere", _can_copy_to_devices, effects.make_copy_to_devices_and_back),
)
# fmt: on
#: Names of the features a graph may have: the producers, and "sink" for a root that is a Sink or Group of Stores.
FEATURES = frozenset({p.name for p in PRODUCERS} | {"sink"})
#: The features on which `bench` measures the speed of evaluation: without calls of opaque bodies, equal copies, roots of
#: effects, and patterns of several ops.
VALUES = FEATURES - {"call", "group", "replicated", "everywhere", "sink", "folded", "sequence", "selected", "indices", "crossed"}
