"""Cases of the elementwise and decomposed rows: every op x dtype x edge class of its operands.

One case per (row, dtype) holds all classes as segments of one vector, so that a backend compiles one kernel for them;
broadcasting and empty shapes are a case of their own. 8-bit binary ops and 16-bit unary ops are exhaustive in the full tier.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.model import Case, Segment, Tier
from uops.backends.conformance.pools import classes, ordinary, random_bits, seeded, to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, SHIFT, TERNARY, UNARY, Op
from uops.spec.rows.rows import ROWS

Array = npt.NDArray[Any]
#: Ops whose operands may be any dtype (R14: Where's condition).
_RANDOM = {Tier.SMOKE: 64, Tier.FULL: 2048}
_PER_CLASS = {Tier.SMOKE: 24, Tier.FULL: 160}
OPS = tuple(op for op in Op if op in ALU and op is not Op.MIN)


def legal(op: Op, d: DType) -> bool:
    """R09 and R10: the dtypes of an op's operands (of the result, for Cast)."""
    if op is Op.THREEFRY:
        return d is dt.uint64
    if op is Op.NOT:
        return d is dt.bool_
    if op in (Op.RECIP, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.DIV, Op.POW):
        return d.is_float
    if op in (Op.IDIV, Op.MOD, Op.SHL, Op.SHR):
        return d in dt.INTS
    if op in (Op.XOR, Op.OR, Op.AND):
        return not d.is_float
    if op in (Op.NEG, Op.SUB, Op.TRUNC, Op.MULACC):
        return d.kind is not Kind.BOOL
    return True


def operand_dtypes(op: Op, d: DType) -> tuple[DType, ...]:
    """The dtypes of a case's operands; a shift count and a condition get variants of their own."""
    if op in UNARY or op is Op.CAST:
        return (d,)
    if op is Op.WHERE:
        return (dt.bool_, d, d)
    return (d, d, d) if op in TERNARY else (d, d)


def cases(tier: Tier) -> Iterator[Case]:
    """All elementwise cases of the tier."""
    for op in OPS:
        for d in dt.STORABLE:
            if not legal(op, d):
                continue
            if op is Op.CAST:
                yield from (_cast_case(source, d, tier) for source in dt.STORABLE if source is not d)
                continue
            yield _edge_case(op, d, operand_dtypes(op, d), tier, "edges")
            if op in SHIFT and tier is Tier.FULL:
                yield from (_edge_case(op, d, (d, count), tier, f"count-{count.short}") for count in dt.INTS if count is not d)
            if op is Op.WHERE and tier is Tier.FULL:
                yield from (_edge_case(op, d, (p, d, d), tier, f"condition-{p.short}") for p in dt.STORABLE if p is not dt.bool_)
            if op not in UNARY:
                yield _broadcast_case(op, d)
                yield _same_case(op, d)
            if tier is Tier.FULL and _exhaustible(op, d):
                yield _exhaustive_case(op, d)


def _params(kinds: tuple[DType, ...], shapes: list[tuple[int, ...]]) -> tuple[UOp, ...]:
    return tuple(b.param(k, s, d) for k, (d, s) in enumerate(zip(kinds, shapes, strict=True)))


def _edge_case(op: Op, d: DType, kinds: tuple[DType, ...], tier: Tier, name: str) -> Case:
    blocks = dict(_blocks(op, kinds, tier))
    return _segmented(op, d, kinds, blocks, name)


def _segmented(op: Op, d: DType, kinds: tuple[DType, ...], blocks: dict[str, Array], name: str) -> Case:
    """`blocks`: edge class -> (operands, n) bit patterns."""
    segments, at = [], 0
    for edge, block in blocks.items():
        segments.append(Segment(edge, 0, at, at + block.shape[1]))
        at += block.shape[1]
    whole = np.concatenate(list(blocks.values()), axis=1)
    params = _params(kinds, [(at,)] * len(kinds))
    inputs = {f"p{k}": to_array(whole[k], kind) for k, kind in enumerate(kinds)}
    return Case(ROWS[op].id, d, name, UOp(op, params), inputs, tuple(segments))


def _blocks(op: Op, kinds: tuple[DType, ...], tier: Tier) -> Iterator[tuple[str, Array]]:
    """One block per edge class: tuples in which at least one operand is of the class, after the witnesses."""
    witnesses = _witnesses(kinds)
    yield "ordinary", np.concatenate([witnesses, _mix(kinds, {}, 32, op, "ordinary")], axis=1)
    names = list(dict.fromkeys(c for k in kinds for c in classes(k)))
    for edge in names:
        chosen = _combine(kinds, edge, _PER_CLASS[tier], op)
        yield edge, np.concatenate([witnesses, chosen], axis=1)
    n = _RANDOM[tier]
    random = np.stack([random_bits(k, n, op.name, i) for i, k in enumerate(kinds)])
    yield "random", np.concatenate([witnesses, random], axis=1)


def _witnesses(kinds: tuple[DType, ...]) -> Array:
    """Ordinary operand tuples, all different but the last, whose operands are equal."""
    n = 8
    rows = [[ordinary(k)[(j + 3 * i * (1 + j // 4)) % 8] for j in range(n - 1)] + [ordinary(k)[3]] for i, k in enumerate(kinds)]
    return np.array(rows, np.uint64)


def _mix(kinds: tuple[DType, ...], pools: dict[int, tuple[int, ...]], n: int, op: Op, edge: str) -> Array:
    rng = seeded("mix", op.name, edge, *kinds)
    return np.stack([_pick(rng, pools.get(i, ordinary(k)), n) for i, k in enumerate(kinds)])


def _pick(rng: np.random.Generator, pool: tuple[int, ...], n: int) -> Array:
    return np.array(pool, np.uint64)[rng.integers(0, len(pool), n)]


def _combine(kinds: tuple[DType, ...], edge: str, most: int, op: Op) -> Array:
    """Tuples with operands of class `edge` against the class itself, ordinary values and the whole pool."""
    parts = []
    for i, k in enumerate(kinds):
        pool = classes(k).get(edge)
        if pool is None:
            continue
        rest = {j: (*ordinary(o), *(v for p in classes(o).values() for v in p)) for j, o in enumerate(kinds) if j != i}
        small = [pool] + [rest[j] for j in rest]
        if len(kinds) == 1:
            parts.append(np.array([pool[:most]], np.uint64))
        elif np.prod([float(len(s)) for s in small]) <= most:
            grid = np.array(list(itertools.product(*small)), np.uint64).T
            order = [i, *rest]
            parts.append(grid[np.argsort(order)])
        else:
            parts.append(_mix(kinds, {i: pool, **rest}, most, op, f"{edge}{i}"))
    return np.concatenate(parts, axis=1)


def _exhaustible(op: Op, d: DType) -> bool:
    if d.kind is Kind.BOOL or op in TERNARY:
        return False
    return d.bits <= 16 if op in UNARY else d.bits == 8


def _exhaustive_case(op: Op, d: DType) -> Case:
    """Every input of a unary op of at most 16 bits; every pair of an 8-bit binary op."""
    kinds = operand_dtypes(op, d)
    values = np.arange(1 << d.bits, dtype=np.uint64)
    block = values[None, :] if len(kinds) == 1 else np.stack([np.repeat(values, len(values)), np.tile(values, len(values))])
    return _segmented(op, d, kinds, {"exhaustive": block}, "exhaustive")


def _broadcast_case(op: Op, d: DType) -> Case:
    """R41: right-aligned, (1, n) against (m, 1) and ()."""
    kinds = operand_dtypes(op, d)
    shapes: list[tuple[int, ...]] = [(3, 1, 4), (5, 1), ()][: len(kinds)] if len(kinds) == 3 else [(3, 1), (2, 1, 4)]
    params = _params(kinds, shapes)
    inputs = {f"p{k}": to_array(_ring(kind, s, k), kind).reshape(s) for k, (kind, s) in enumerate(zip(kinds, shapes, strict=True))}
    graph = UOp(op, params)
    return Case(ROWS[op].id, d, "broadcast", graph, inputs, (Segment("broadcast", 0, 0, int(np.prod(graph.shape))),))


def _same_case(op: Op, d: DType) -> Case:
    """One node for all operands of a dtype, as in x - x and Where(c, x, x): identities that hold only for some values tempt here.

    Such a value may be all zeros or x itself: a second one, of different operands, is what doing nothing gets wrong. Both are
    halves of one graph that needs no other row: the op on x and itself, then on x and another operand of x's shape.
    """
    kinds = operand_dtypes(op, d)
    x = [*ordinary(d), *(v for pool in classes(d).values() for v in pool)]
    n = len(x) + 8
    columns = [_cycled(ordinary(k), n, 3 * j + (j > 1)) for j, k in enumerate(kinds)]
    params = _params(kinds, [(n,)] * len(kinds))
    own = params[-1] if op is Op.WHERE else params[0]
    columns[params.index(own)][: len(x)] = x
    same = UOp(op, tuple(own if p.dtype is own.dtype else p for p in params))
    inputs = {f"p{k}": to_array(c, kind) for k, (kind, c) in enumerate(zip(kinds, columns, strict=True))}
    segments = tuple(Segment("same-operand", k, 0, n) for k in (0, 1))
    return Case(ROWS[op].id, d, "same-operand", b.tuple_(same, UOp(op, params)), inputs, segments)


def _cycled(pool: tuple[int, ...], n: int, shift: int) -> list[int]:
    return [pool[(k + shift) % len(pool)] for k in range(n)]


def _ring(d: DType, shape: tuple[int, ...], shift: int) -> list[int]:
    pool = ordinary(d)
    return [pool[(k * (shift + 1) + shift) % len(pool)] for k in range(int(np.prod(shape)))]


def _cast_case(source: DType, d: DType, tier: Tier) -> Case:
    """Cast from one dtype: the cell's edge class names the source."""
    pool = [v for p in classes(source).values() for v in p]
    halfway = _halfway(source, d) if source.is_float and d.is_float and source.bits > d.bits else []
    full = source.bits <= 16 and tier is Tier.FULL and source.kind is not Kind.BOOL
    extra = np.arange(1 << source.bits, dtype=np.uint64) if full else random_bits(source, _RANDOM[tier], "cast", d.name)
    values = np.concatenate([np.array([*ordinary(source), *pool, *halfway], np.uint64), extra])
    x = b.param(0, (len(values),), source)
    graph = UOp(Op.CAST, (x,), CastArg(d))
    segment = Segment(f"from-{source.short}", 0, 0, len(values))
    return Case(ROWS[Op.CAST].id, d, f"from-{source.short}", graph, {"p0": to_array(values, source)}, (segment,))


def _halfway(source: DType, d: DType) -> list[int]:
    """Values halfway between neighbours of `d`, and one ulp of the source to either side (R15: one rounding)."""
    found = []
    for v in classes(d)["rounding"][:64] + classes(d).get("subnormal", ()) + classes(d)["limit"][:32]:
        low, high = (float(to_array([w], d).astype(np.float64)[0]) for w in (v, v + 1))
        middle = (low + high) / 2
        if np.isfinite(middle) and middle != 0:
            m = float_bits_of(source, middle)
            found += [m - 1, m, m + 1]
    return found


def float_bits_of(d: DType, value: float) -> int:
    """Bits of the value of `d` nearest to `value`."""
    from uops.backends.testing.values import float_bits

    return float_bits(d, round_to(d, value))


def round_to(d: DType, value: float) -> float:
    """`value` rounded to `d`, staying finite."""
    from uops.spec.ir.derive.exact import round_nearest

    r = round_nearest(d, value)
    return r if np.isfinite(r) else float(np.copysign(d.max_finite, value))
