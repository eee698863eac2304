"""Loops, memory, gates and control of a LINEAR kernel, by running it: claims about any machine.

A test module of a backend imports the claims and says with the fixture `tier` on which machines they are tested.
"""

import functools

import numpy as np
import pytest

from uops.backends.worker.guard import GuardedMemory, GuardSide
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def cast(u: UOp, d: dt.DType) -> UOp:
    return UOp(Op.CAST, (u,), A.CastArg(d))


def register(size: int, d: dt.DType, unique: int) -> UOp:
    return B.buffer(size, d, addrspace=A.AddrSpace.REG, unique=unique)


def row_sum(rows: int, columns: int) -> UOp:
    """p0[i] = sum over j of p1[i, j], with an accumulator in a register buffer."""
    out, source, acc = B.param(0, (rows,), dt.float32), B.param(1, (rows * columns,), dt.float32), register(1, dt.float32, 901)
    i, j = B.range_(rows, 0), B.range_(columns, 1, AxisType.REDUCE)
    place = B.at(acc, 0)
    zero = B.store(place, B.const(0.0))
    fresh = B.at(B.after(acc, zero), 0)
    x = B.load(B.at(source, B.add(B.mul(i, B.index(columns)), j)))
    step = B.end(B.store(fresh, B.add(B.load(fresh), x)), j)
    done = B.load(B.at(B.after(acc, step), 0))
    return UOp(
        Op.LINEAR,
        (out, source, acc, i, place, zero, fresh.src[0], fresh, j, x.src[0].src[1].src[0], x.src[0].src[1], x.src[0], x)
        + (B.load(fresh), step.src[0].src[1], step.src[0], step, done.src[0].src[0], done.src[0], done)
        + (B.at(out, i), B.store(B.at(out, i), done), B.end(B.store(B.at(out, i), done), i)),
    )


def gated_copy(n: int) -> UOp:
    """p0[i] = p1[i + s2] where that is inside p1, else 7; rows with a true p3[i] only."""
    i, s = B.range_(n, 0), UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(2, dt.index, name="s", bounds=(-(10**9), 10**9)))
    out, source, mask = B.param(0, (n,), dt.int16), B.param(1, (n,), dt.int16), B.param(3, (n,), dt.bool_)
    at = B.add(i, s)
    inside = B.and_(B.ge(at, B.index(0)), B.lt(at, B.index(n)))
    value = B.load(B.at(source, at), B.const(7, dt.int16), inside)
    return linear(B.end(B.store(B.at(out, i), value, B.load(B.at(mask, i))), i))


def linear(root: UOp) -> UOp:
    return UOp(Op.LINEAR, tuple(toposort(root)))


def test_nested_loops_and_an_accumulator(kernels, tier) -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    out = np.full(5, -1, np.float32)
    kernels.execute(row_sum(5, 7), [out, x], tier=tier)
    assert out.tolist() == x.sum(1).tolist()


def interleaved_sum(op: Op, d: dt.DType, count: int, extent: int) -> UOp:
    """p0[0] = the sum of `count` accumulators, which one loop begins at 1 and joins by `op` with every `count`-th element of p1."""
    i, out, source = B.range_(extent, 0), B.param(0, (1,), d), B.param(1, (count * extent,), d)
    cells = [B.at(register(1, d, 910 + k), 0) for k in range(count)]
    begun = [B.store(c, B.const(1, d)) for c in cells]
    fresh = [B.at(B.after(c.src[0], s), 0) for c, s in zip(cells, begun, strict=True)]
    row = B.mul(B.cast(i, dt.int32), B.const(count, dt.int32))  # as kernels of the compiler count
    terms = [B.load(B.at(source, B.add(row, B.const(k, dt.int32)) if k else row)) for k in range(count)]
    steps = [B.store(c, UOp(op, (B.load(B.after(c, i)), x))) for c, x in zip(fresh, terms, strict=True)]
    done = B.end(B.group(*steps), i)
    total = functools.reduce(B.add, (B.load(B.at(B.after(c.src[0], done), 0)) for c in cells))
    first = [u for s in begun for u in toposort(s)]  # before the loop
    return UOp(Op.LINEAR, tuple(dict.fromkeys((*first, *toposort(B.store(B.at(out, 0), total))))))


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL], ids=lambda op: op.name)
@pytest.mark.parametrize("d", [dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint32, dt.float32], ids=str)
def test_a_loop_with_several_accumulators(kernels, tier, d: dt.DType, op: Op, count: int) -> None:
    function = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply}[op]
    for extent in (4, 16):
        x = (np.arange(extent * count) % 11 % 3 + 1).astype(d.name).reshape(extent, count)
        out, expected = np.zeros(1, d.name), functools.reduce(function, x, np.ones(count, d.name)).sum(dtype=d.name)
        kernels.execute(interleaved_sum(op, d, count, extent), [out, x], tier=tier)
        assert out[0] == expected


@pytest.mark.parametrize("shift", [0, 3, -3, 50, 10**9, -(10**9)])
def test_a_false_gate_leaves_the_address_untouched_R52(kernels, tier, shift: int) -> None:
    n = 37
    memory = [GuardedMemory(2 * n, side) for side in (GuardSide.END, GuardSide.START)]
    mask = np.arange(n) % 3 != 0
    source = np.arange(n, dtype=np.int16) + 100
    for guarded in memory:
        guarded.data.view(np.int16)[:] = source
        out = np.full(n, -1, np.int16)
        kernels.execute(gated_copy(n), [out, guarded.data, 0, mask], [0, 0, shift, 0], tier=tier)
        expected = [(source[k + shift] if 0 <= k + shift < n else 7) if mask[k] else -1 for k in range(n)]
        assert out.tolist() == expected


@pytest.mark.parametrize("bound", [-(2**62), -1, 0, 1, 5])
@pytest.mark.parametrize("d", [dt.index, dt.int64], ids=str)
def test_a_bound_below_one_runs_zero_times_R57(kernels, tier, bound: int, d: dt.DType) -> None:
    n = UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(1, d, name="n", bounds=(-(2**62), 8)))
    i, out = UOp(Op.RANGE, (n,), A.RangeArg(0, AxisType.LOOP)), B.param(0, (8,), dt.int8)
    got = np.zeros(8, np.int8)
    kernels.execute(linear(B.end(B.store(B.at(out, i), B.const(1, dt.int8)), i)), [got], [0, bound], tier=tier)
    assert got.tolist() == [1] * max(0, bound) + [0] * (8 - max(0, bound))


@pytest.mark.parametrize("d", [dt.int8, dt.uint8, dt.int32, dt.uint32, dt.int64, dt.uint64], ids=str)
def test_an_index_is_extended_by_its_sign(kernels, tier, d: dt.DType) -> None:
    """p0[0] = p1[p2[0]]: an unsigned index above half of its range must not become negative."""
    out, source, where = B.param(0, (1,), dt.int32), B.param(1, (201,), dt.int32), B.param(2, (1,), d)
    root = B.store(B.at(out, 0), B.load(UOp(Op.INDEX, (source, B.load(B.at(where, 0))))))
    place = 200 if not d.is_signed or d.bits > 8 else 100
    got = np.zeros(1, np.int32)
    kernels.execute(linear(root), [got, np.arange(201, dtype=np.int32), np.array([place], d.name)], tier=tier)
    assert got[0] == place


def test_a_named_param_is_read_from_the_scalars_R48(kernels, tier) -> None:
    out = B.param(0, (2,), dt.int64)
    a, b = (UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(k, d, name=f"v{k}", bounds=(-9, 9))) for k, d in ((1, dt.index), (2, dt.int32)))
    root = B.sink(*(B.store(B.at(out, k), cast(v, dt.int64)) for k, v in enumerate((a, b))))
    got = np.zeros(2, np.int64)
    kernels.execute(linear(root), [got], [0, -7, -3], tier=tier)
    assert got.tolist() == [-7, -3]


def test_params_of_one_slot_are_one_argument(kernels, tier) -> None:
    """A variable also stands in shapes, as an index; a buffer may be named with several shapes."""
    out, same = B.param(0, (2,), dt.int64), B.param(0, (1,), dt.int64)
    wide, narrow = (UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(1, d, name="v", bounds=(0, 9))) for d in (dt.index, dt.int32))
    got = np.zeros(2, np.int64)
    root = B.sink(B.store(B.at(out, 1), cast(narrow, dt.int64)), B.store(B.at(same, 0), cast(wide, dt.int64)))
    kernels.execute(linear(root), [got], [0, 6], tier=tier)
    assert got.tolist() == [6, 6]


def test_a_bool_is_stored_as_one_byte_of_0_or_1_R24(kernels, tier) -> None:
    out, source = B.param(0, (4,), dt.bool_), B.param(1, (4,), dt.int32)
    i = B.range_(4, 0)
    got = np.full(4, 0xEE, np.uint8)
    kernels.execute(
        linear(B.end(B.store(B.at(out, i), cast(B.load(B.at(source, i)), dt.bool_)), i)),
        [got, np.array([0, 256, -1, 2], np.int32)],
        tier=tier,
    )
    assert got.tolist() == [0, 1, 1, 1]


def test_a_foreign_bool_byte_stays_harmless_R26(kernels, tier) -> None:
    """Such a byte is a Trap of the language; here it reads as true wherever it is used."""
    flags = np.array([0, 1, 2, 0x80, 0xFF], np.uint8)
    out = np.zeros(5, np.int32)
    kernel = kernels.elementwise(5, dt.int32, (dt.bool_,), lambda p: B.add(cast(p, dt.int32), B.where(p, B.const(10), B.const(20))))
    kernels.execute(kernel, [out, flags], tier=tier)
    assert out.tolist() == [20, 11, 11, 11, 11]


@pytest.mark.parametrize("d", [dt.float32, dt.float64], ids=str)
def test_load_store_where_and_registers_keep_nan_payloads_R28(kernels, tier, d: dt.DType) -> None:
    unsigned = np.uint32 if d is dt.float32 else np.uint64
    words = np.array(
        [0x7F800001, 0xFFC12345, 0x7FA00000] if d is dt.float32 else [0x7FF0000000000001, 0xFFF8000000012345, 0x7FF4000000000000],
        unsigned,
    )
    reg, i = register(1, d, 902), B.range_(3, 0)
    x = B.load(B.at(B.param(1, (3,), d), i))
    kept = B.load(B.at(B.after(reg, B.store(B.at(reg, 0), x)), 0))
    root = B.end(B.store(B.at(B.param(0, (3,), d), i), UOp(Op.WHERE, (B.eq(i, i), kept, B.const(0.0, d)))), i)
    out = np.zeros(3, unsigned)
    kernels.execute(linear(root), [out, words], tier=tier)
    assert out.tolist() == words.tolist()


def test_an_if_runs_its_stores_only_when_the_gate_holds(kernels, tier) -> None:
    i, out = B.range_(6, 0), B.param(0, (6,), dt.int32)
    gate = B.eq(B.mod(i, B.index(2)), B.index(0))
    opened = UOp(Op.IF, (gate,))
    place = B.at(out, i)
    store = B.store(place, B.const(5))
    closed = UOp(Op.ENDIF, (opened,))
    kernel = UOp(Op.LINEAR, (out, i, gate.src[0], gate, opened, place, store, closed, UOp(Op.END, (closed, i))))
    got = np.zeros(6, np.int32)
    kernels.execute(kernel, [got], tier=tier)
    assert got.tolist() == [5, 0, 5, 0, 5, 0]


@pytest.mark.parametrize("d", [dt.int8, dt.float32, dt.uint64], ids=str)
def test_atomic_add_sums_R56(kernels, tier, d: dt.DType) -> None:
    i, out, source = B.range_(9, 0), B.param(0, (3,), d), B.param(1, (9,), d)
    add = UOp(Op.ATOMICADD, (B.at(out, B.mod(i, B.index(3))), B.load(B.at(source, i))))
    got, x = np.array([100, 0, 1], d.name), np.arange(9, dtype=d.name)
    kernels.execute(linear(B.end(add, i)), [got, x], tier=tier)
    assert got.tolist() == [109, 12, 16]


def test_a_bitcast_of_a_reference_is_the_same_address(kernels, tier) -> None:
    i = B.range_(4, 0)
    words = UOp(Op.BITCAST, (B.param(1, (4,), dt.float32),), A.BitcastArg(dt.uint32))
    out, x = np.zeros(4, np.uint32), np.array([1.0, -0.0, np.inf, 0.5], np.float32)
    kernels.execute(linear(B.end(B.store(B.at(B.param(0, (4,), dt.uint32), i), B.load(B.at(words, i))), i)), [out, x], tier=tier)
    assert out.tolist() == x.view(np.uint32).tolist()


def test_one_end_may_close_several_ranges_R58(kernels, tier) -> None:
    i, j, out = B.range_(3, 0), B.range_(2, 1), B.param(0, (6,), dt.int32)
    at = B.add(B.mul(i, B.index(2)), j)
    body = B.store(B.at(out, at), cast(at, dt.int32))
    got = np.full(6, -1, np.int32)
    kernels.execute(linear(UOp(Op.END, (body, i, j))), [got], tier=tier)
    assert got.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_floating_point_environment_is_left_alone_R19(kernels, tier) -> None:
    tiny = np.array([2.0**-149, 2.0**-140], np.float32)
    out = np.zeros(2, np.float32)
    kernels.execute(kernels.elementwise(2, dt.float32, (dt.float32,), lambda x: B.mul(x, B.const(2.0))), [out, tiny], tier=tier)
    assert out.tolist() == [2.0**-148, 2.0**-139]
    assert float(np.float32(2.0**-149) * np.float32(2)) == 2.0**-148  # in this process too, after the kernel


#: Kernels whose text is kept in tests/golden, by name; each takes the fixture `kernels`.
GOLDEN = {
    "row-sum": lambda _: row_sum(5, 7),
    "gated-copy": lambda _: gated_copy(37),
    "floor-division": lambda k: k.elementwise(
        64, dt.int32, (dt.int32, dt.int32), lambda x, y: B.sub(B.idiv(x, y), B.mod(x, B.const(8)))
    ),
}
