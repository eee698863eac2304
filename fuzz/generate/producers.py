"""One producer per way to make a value: which (dtype, shape) it admits, and how it asks for its sources.

A producer never fails: `admits` is the typing rule read backward. `always` ones are not subject to the swarm.
"""

from __future__ import annotations

import math
from dataclasses import replace

from uops.backends.testing.values import beside_halfway, beside_rounding, edge_bits, number, rounds
from uops.fuzz.generate import effects
from uops.fuzz.generate.maker import Maker, Producer, Shape
from uops.fuzz.generate.positions import COMPARISONS, filled, make_indices, make_selected, make_sequence
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

# --------------------------------------------------------------------------------------------------------- elementwise


def _narrow(m: Maker, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`: some axes 1, some leading axes gone."""
    if not shape or not m.draw.chance(30):
        return shape
    cut = m.draw.integer(0, len(shape))
    return tuple(1 if m.draw.chance(40) else n for n in shape[cut:])


def _operands(m: Maker, kinds: list[DType], shape: Shape, budget: int) -> list[UOp]:
    """One source per dtype; the first is of the full shape, the others may broadcast; order is kept."""
    full = m.draw.integer(0, len(kinds) - 1)
    shares = m.split(budget, len(kinds))
    return [m.value(d, shape if k == full else _narrow(m, shape), shares[k]) for k, d in enumerate(kinds)]


def _alu(op: Op, arity: int, kinds: str) -> Producer:
    """An op whose sources and result share a dtype; `kinds` are the kinds it admits: b(ool), i(nt), f(loat)."""

    def admits(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
        return ("f" if d.is_float else "b" if d.kind is Kind.BOOL else "i") in kinds

    def make(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
        return UOp(op, tuple(_operands(m, [d] * arity, shape, budget)))

    return Producer(op.name.lower(), admits, make)


def _shift(op: Op) -> Producer:
    def make(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
        count = d if m.draw.chance(50) else m.draw.choice(m.declared.of(dt.INTS))
        if m.draw.chance(25):
            return UOp(op, (m.value(d, shape, budget - 1), _count_near(m, count, d.bits, shape)))
        return UOp(op, tuple(_operands(m, [d, count], shape, budget)))

    return Producer(op.name.lower(), lambda m, d, s, n: d in dt.INTS, make)


def _count_near(m: Maker, d: DType, width: int, shape: Shape) -> UOp:
    """A count whose bounds end at the width, or beside it."""
    most = width + m.draw.choice((-1, 0, 0, 1))
    if m.draw.chance(50):
        ends = [filled(b.const(k, d), shape) for k in (most, m.draw.integer(0, most))]
        return UOp(Op.WHERE, (m.value(dt.bool_, shape, 1), *ends))
    return UOp(Op.MOD, (m.value(d, shape, 1), filled(b.const(most + 1, d), shape)))


def _compare(op: Op) -> Producer:
    def make(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
        kind = m.draw.choice(m.dtypes)
        return UOp(op, tuple(_operands(m, [kind, kind], shape, budget)))

    return Producer(op.name.lower(), lambda m, d, s, n: d is dt.bool_, make)


def _mulacc() -> Producer:
    plain = _alu(Op.MULACC, 3, "if")

    def make(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
        """Sometimes of floats whose sum is all but halfway between two numbers."""
        if not d.is_float or m.inside is not None or not m.draw.chance(20):
            return plain.make(m, d, shape, budget)
        return UOp(Op.MULACC, tuple(m.given(d, x) for x in beside_halfway(m.draw, d, shape)))

    return replace(plain, make=make)


def _make_where(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    return UOp(Op.WHERE, tuple(_operands(m, [m.draw.choice(m.dtypes), d, d], shape, budget)))


def _make_condition(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A comparison of integers, sometimes of a value with itself; and what is made of one condition twice."""
    kind = m.draw.choice(m.declared.of(dt.INTS))
    if m.draw.chance(20):
        operands = [m.value(kind, shape, budget)] * 2
    else:
        operands = _operands(m, [kind, kind], shape, budget)
    p = UOp(m.draw.choice(COMPARISONS), tuple(operands))
    p = UOp(Op.NOT, (p,)) if m.draw.chance(60) else p
    op = m.draw.choice((None, Op.AND, Op.OR, Op.XOR, Op.MAX))
    if op is None:
        return p
    other = m.draw.choice(("same", "negated", "another"))
    q = {"same": lambda: p, "negated": lambda: UOp(Op.NOT, (p,)), "another": lambda: m.value(d, shape, 1)}[other]()
    return UOp(op, (p, q))


def _make_choices(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Choices by one condition, one inside of the other, or by its negation."""
    p = m.value(dt.bool_, shape, budget // 2)
    x, y = _operands(m, [d, d], shape, budget - budget // 2)
    inner = UOp(Op.WHERE, (p, x, y))
    negated = UOp(Op.WHERE, (UOp(Op.NOT, (p,)), x, y))
    return m.draw.choice((UOp(Op.WHERE, (p, inner, y)), UOp(Op.WHERE, (p, x, inner)), negated))


def _make_cast(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Of any value, or of data of which every bit counts."""
    rounding = [k for k in m.dtypes if rounds(k, d)]
    if rounding and m.inside is None and m.draw.chance(30):
        source = m.draw.choice(rounding)
        return b.cast(m.given(source, beside_rounding(m.draw, source, d, shape)), d)
    return b.cast(m.value(m.draw.choice([k for k in m.dtypes if k is not d] or [d]), shape, budget), d)


def _make_threefry(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    return UOp(Op.THREEFRY, tuple(_operands(m, [d, d], shape, budget)))


# ------------------------------------------------------------------------------------------------------------ movement


def _make_permute(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    order = list(range(len(shape)))
    for k in range(len(order) - 1, 0, -1):
        j = m.draw.integer(0, k)
        order[k], order[j] = order[j], order[k]
    source = [0] * len(shape)
    for k, axis in enumerate(order):
        source[axis] = shape[k]
    return b.permute(m.value(d, tuple(source), budget), order)


def _make_flip(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    return b.flip(m.value(d, shape, budget), [m.draw.chance(50) for _ in shape])


def _factor(m: Maker, n: int) -> Shape:
    """A shape of exactly `n` elements."""
    if n == 0:
        return (0,) if m.draw.chance(50) else (0, m.extent(8))
    dims: list[int] = []
    while n > 1 and len(dims) < 3:
        f = m.draw.choice([k for k in range(1, min(n, 33) + 1) if n % k == 0])
        dims.append(f)
        n //= f
    return (*dims, n) if n > 1 or m.draw.chance(20) else tuple(dims)


def _make_reshape(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    return b.reshape(m.value(d, _factor(m, math.prod(shape)), budget), shape)


def _make_expand(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    source = tuple(1 if m.draw.chance(60) else n for n in shape)
    return b.expand(m.value(d, source, budget), shape)


def _make_pad(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    inner = [m.draw.integer(0, n) if m.draw.chance(60) else n for n in shape]
    offset = [m.draw.integer(0, n - k) for n, k in zip(shape, inner, strict=True)]
    return b.pad(m.value(d, tuple(inner), budget), offset, shape)


def _wider(m: Maker, shape: Shape) -> list[int]:
    """Extents at least `shape`'s, within the element cap."""
    room = m.max_elements // max(1, math.prod(max(1, n) for n in shape))
    outer = list(shape)
    for k, n in enumerate(shape):
        if room > 1 and m.draw.chance(60):
            more = m.draw.integer(0, min(4, max(1, n) * (room - 1)))
            outer[k] = n + more
            room = room * max(1, n) // max(1, n + more)
    return outer


def _make_shrink(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    outer = _wider(m, shape)
    offset: list[int | UOp] = [m.draw.integer(0, k - n) for n, k in zip(shape, outer, strict=True)]
    slack = [k for k, (n, o) in enumerate(zip(shape, outer, strict=True)) if o > n]
    if slack and m.inside is None and m.draw.chance(20):  # a symbolic offset (R48)
        k = m.draw.choice(slack)
        offset[k] = m.variable(0, outer[k] - shape[k])
    return b.shrink(m.value(d, tuple(outer), budget), offset, shape)


def _make_index(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Scalar index removes a leading axis; a vector index replaces it."""
    n = m.extent(max(1, m.max_elements // max(1, math.prod(shape))))
    if shape and m.draw.chance(60):
        where = _positions(m, shape[0], n)
        return UOp(Op.INDEX, (m.value(d, (n, *shape[1:]), budget), where))
    where = m.variable(0, n - 1) if m.inside is None and m.draw.chance(20) else b.index(m.draw.integer(0, n - 1))
    return UOp(Op.INDEX, (m.value(d, (n, *shape), budget), where))


def _positions(m: Maker, count: int, n: int) -> UOp:
    """A vector of `count` positions below `n`: constants, or run-time integers brought into range."""
    if 0 < count <= 8 and m.draw.chance(50):
        return b.stack(*(b.index(m.draw.integer(0, n - 1)) for _ in range(count)))
    raw = b.cast(m.param(m.draw.choice(m.declared.of(dt.INTS)), (count,)), dt.index)
    return UOp(Op.MOD, (raw, b.index(n)))


def _make_stack(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    shares = m.split(budget, shape[0])
    return b.stack(*(m.value(d, shape[1:], n) for n in shares))


def _bitcast_source(m: Maker, d: DType, shape: Shape) -> tuple[DType, Shape]:
    options: list[tuple[DType, Shape]] = []
    for k in m.declared.of(dt.STORABLE):
        if k.bits == d.bits:
            options.append((k, shape))
        elif shape and shape[-1] * d.itemsize % k.itemsize == 0 and shape[-1] * d.itemsize // k.itemsize <= 64:
            options.append((k, (*shape[:-1], shape[-1] * d.itemsize // k.itemsize)))
    return m.draw.choice(options or [(d, shape)])


def _make_bitcast(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    kind, source = _bitcast_source(m, d, shape)
    if kind.is_float:  # bits of an inexact float are anything (R30): take them from data
        return b.bitcast(m.param(kind, source), d)
    return b.bitcast(m.value(kind, source, budget), d)


def _make_slice(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A window of a buffer, aligned to the new dtype (R46)."""
    smaller = tuple(k for k in dt.STORABLE if k.itemsize <= d.itemsize and (k is not dt.bool_ or d is dt.bool_))
    kind = m.draw.choice(m.declared.of(smaller))
    unit = d.itemsize // kind.itemsize
    before, size = m.draw.integer(0, 3), math.prod(shape)
    buf = effects.buffer(m, kind, (before + size + m.draw.integer(0, 2)) * unit)
    return b.reshape(b.slice_(buf, before * unit, size, d), shape)


# ------------------------------------------------------------------------------------------------------------- reduce


def _reduce(op: Op) -> Producer:
    def make(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
        """Axes of extent 1 grow and are reduced; without one, a new axis is reduced and dropped."""
        room = max(1, m.max_elements // max(1, math.prod(shape)))
        axes = [k for k, n in enumerate(shape) if n == 1 and m.draw.chance(70)]
        if not axes:
            k = m.draw.integer(0, len(shape))
            n = 0 if m.draw.chance(4) else m.extent(room)
            grown = m.value(d, (*shape[:k], n, *shape[k:]), budget)
            return b.reshape(b.reduce(grown, op, (k,)), shape)
        source = list(shape)
        for k in axes:
            source[k] = m.extent(room)
            room = max(1, room // source[k])
        return b.reduce(m.value(d, tuple(source), budget), op, axes)

    return Producer(f"reduce_{op.name.lower()}", lambda m, d, s, n: True, make)


def _make_crossed(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A row beside what it gives with itself: for each of its elements a Reduce over all of them, or one Reduce for all."""
    outer, n = shape[:-1], shape[-1]
    ops = (Op.ADD, Op.MUL, Op.MAX) if d is not dt.bool_ else (Op.AND, Op.OR, Op.XOR)
    v = _costly(m, d, shape, budget // 2) if m.draw.chance(50) else m.value(d, shape, budget // 2)
    if math.prod(shape) * n > m.max_elements or m.draw.chance(40):
        total = b.reduce(v, m.draw.choice((Op.ADD, Op.MAX)), (len(outer),))
        return UOp(m.draw.choice(ops), (v, b.expand(b.reshape(total, (*outer, 1)), shape)))
    square = (*outer, n, n)
    other = b.expand(b.reshape(v, (*outer, 1, n)), square)
    mine = m.value(d, (n, n), 1) if m.draw.chance(50) else b.expand(b.reshape(v, (*outer, n, 1)), square)
    crossed = UOp(m.draw.choice(ops), (mine, other))
    if m.draw.chance(30):
        crossed = UOp(Op.WHERE, (UOp(m.draw.choice(COMPARISONS), (mine, other)), crossed, other))
    total = b.reduce(crossed, m.draw.choice((Op.ADD, Op.ADD, Op.MAX)), (len(shape),))
    return UOp(m.draw.choice(ops), (v, b.reshape(total, shape)))


def _costly(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """A value that a compiler may rather keep than compute twice."""
    x = m.value(d, shape, budget) if budget > 1 else m.param(d, shape)
    if d.is_float:
        return UOp(m.draw.choice((Op.EXP2, Op.LOG2)), (UOp(Op.SQRT, (x,)) if m.draw.chance(30) else x,))
    if d not in dt.INTS:
        return x
    by = filled(b.const(m.draw.choice((3, 5, 7)), d), shape) if m.draw.chance(30) else m.value(d, shape, 1)
    return UOp(m.draw.choice((Op.IDIV, Op.MOD)), (x, by))


def _make_marker(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    op = m.draw.choice((Op.CONTIGUOUS, Op.DETACH, Op.CONTIGUOUS_BACKWARD))
    return UOp(op, (m.value(d, shape, budget),))


# -------------------------------------------------------------------------------------------------------------- leaves


def _make_const(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    if m.draw.chance(40):
        value: float = number(m.draw.choice(edge_bits(d)), d)
    elif d.is_float:
        value = m.draw.choice((0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, math.inf, -math.inf, math.nan))
    else:
        value = m.draw.choice((0, 1, -1, 2, 3, 7, 8, int(d.max), int(d.min)))
    return filled(b.const(value, d), shape)


def _make_folded(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """Ops of constants alone."""
    leaves = tuple(p for p in LEAVES if p.name == "const")
    constants = replace(m, producers=ELEMENTWISE, leaves=leaves, made={}, inside=[])
    return filled(constants.value(d, (), m.draw.integer(2, 4)), shape)


def _make_variable(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    """An index, cast; or a variable of the dtype itself, of any of its numbers that an index has, too (R08)."""
    if d.is_integer and m.draw.chance(60):
        low, top = int(d.min), min(int(d.max), int(dt.int64.max))
        lo, hi = m.draw.choice(((low, top), (0, top), (low, low + 9), (top - 9, top), (0, 9)))
        return filled(m.variable(lo, hi, d), shape)
    lo = m.draw.integer(-3, 3)
    return filled(b.cast(m.variable(lo, lo + m.draw.integer(0, 9)), d), shape)


def _make_binary(m: Maker, d: DType, shape: Shape, budget: int) -> UOp:
    data = bytes(m.draw.integer(0, 255) for _ in range(math.prod(shape)))
    return b.reshape(b.binary(data), shape)


def _at_top(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
    return m.inside is None


def _anything(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
    return True


def _ranked(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
    return bool(shape)


def _divisible(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
    return bool(shape) and m.inside is None and any(shape[0] % k == 0 for k in (2, 3, 4))


def _doubling(m: Maker, d: DType, shape: Shape, budget: int) -> bool:
    return m.inside is None and 0 < math.prod(shape) <= m.max_elements // 2


LEAVES: tuple[Producer, ...] = (
    Producer("param", _anything, lambda m, d, s, n: m.param(d, s), always=True),
    Producer("const", _anything, _make_const, always=True),
    Producer("buffer", _at_top, lambda m, d, s, n: b.reshape(effects.buffer(m, d, math.prod(s)), s)),
    Producer("variable", lambda m, d, s, n: m.inside is None and d is not dt.bool_, _make_variable),
    Producer("binary", lambda m, d, s, n: d is dt.uint8 and math.prod(s) <= 16, _make_binary),
)

# fmt: off
ELEMENTWISE: tuple[Producer, ...] = (
    _alu(Op.ADD, 2, "bif"), _alu(Op.MUL, 2, "bif"), _alu(Op.MAX, 2, "bif"), _alu(Op.MOD, 2, "i"), _alu(Op.IDIV, 2, "i"),
    _alu(Op.XOR, 2, "bi"), _alu(Op.OR, 2, "bi"), _alu(Op.AND, 2, "bi"), _shift(Op.SHL), _shift(Op.SHR),
    _alu(Op.RECIP, 1, "f"), _alu(Op.TRUNC, 1, "if"), _alu(Op.NEG, 1, "if"), _alu(Op.SUB, 2, "if"), _alu(Op.DIV, 2, "f"),
    _alu(Op.NOT, 1, "b"), _alu(Op.EXP2, 1, "f"), _alu(Op.LOG2, 1, "f"), _alu(Op.SIN, 1, "f"), _alu(Op.SQRT, 1, "f"),
    _alu(Op.POW, 2, "f"), _mulacc(),
    Producer("threefry", lambda m, d, s, n: d is dt.uint64, _make_threefry),
    _compare(Op.CMPLT), _compare(Op.CMPNE), _compare(Op.CMPGT), _compare(Op.CMPGE), _compare(Op.CMPLE), _compare(Op.CMPEQ),
    Producer("where", _anything, _make_where, always=True),
    Producer("condition", lambda m, d, s, n: d is dt.bool_, _make_condition),
    Producer("choices", lambda m, d, s, n: n >= 2, _make_choices),
    Producer("cast", _anything, _make_cast, always=True),
)
PRODUCERS: tuple[Producer, ...] = (
    *ELEMENTWISE,
    Producer("folded", _anything, _make_folded),
    Producer("sequence", lambda m, d, s, n: bool(s) and d is not dt.bool_, make_sequence),
    Producer("selected", lambda m, d, s, n: n >= 2 and d is not dt.bool_, make_selected),
    Producer("indices", _anything, make_indices),
    Producer("permute", lambda m, d, s, n: len(s) > 1, _make_permute),
    Producer("flip", _ranked, _make_flip),
    Producer("reshape", _anything, _make_reshape),
    Producer("expand", _ranked, _make_expand),
    Producer("pad", _ranked, _make_pad),
    Producer("shrink", _ranked, _make_shrink),
    Producer("index", _anything, _make_index),
    Producer("stack", lambda m, d, s, n: bool(s) and 1 <= s[0] <= 4, _make_stack),
    Producer("bitcast", lambda m, d, s, n: d is not dt.bool_, _make_bitcast),
    Producer("slice", lambda m, d, s, n: m.inside is None and d is not dt.bool_, _make_slice),
    _reduce(Op.ADD), _reduce(Op.MUL), _reduce(Op.MAX),
    Producer("crossed", lambda m, d, s, n: bool(s) and s[-1] > 1 and n >= 3, _make_crossed),
    Producer("function", lambda m, d, s, n: n >= 3 and m.inside is None, effects.make_function),
    Producer("marker", _anything, _make_marker),
    Producer("load", _anything, effects.make_load),
    Producer("assign", _at_top, effects.make_assign),
    Producer("shards", _divisible, effects.make_shards),
    Producer("call", lambda m, d, s, n: n >= 3 and m.inside is None, effects.make_call),
    Producer("group", lambda m, d, s, n: n >= 2 and m.inside is None, effects.make_group),
    Producer("replicated", lambda m, d, s, n: 1 in s, effects.make_replicated),
    Producer("everywhere", _doubling, effects.make_everywhere),
)
# fmt: on
#: What a graph may have: the producers' names, and a root that is a Sink or Group of Stores.
FEATURES = frozenset({p.name for p in PRODUCERS} | {"sink"})
#: Without calls of opaque bodies, equal copies, roots of effects, and patterns of several ops: what the speed of evaluation is
#: measured on (`bench`).
VALUES = FEATURES - {"call", "group", "replicated", "everywhere", "sink", "folded", "sequence", "selected", "indices", "crossed"}
