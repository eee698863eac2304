"""Movement ops on values and references (R40 to R47), against nested Python lists."""

import itertools
import random

import pytest

from uops.interp.exact import Bits, run
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import bool_, float16, float32, fp8e4m3, index, int8, int16, int32, uint8, uint16
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def one(root, inputs=None, **options):
    (value,) = run(root, inputs or {}, **options).values
    return value


def numbers(root, inputs=None, **options):
    return list(one(root, inputs, **options).numbers)


def iota(*shape):
    n = 1
    for s in shape:
        n *= s
    return B.param(0, shape, int32), {"p0": list(range(n))}


def coordinates(shape):
    return itertools.product(*map(range, shape))


def at(shape, i):
    """Row-major position."""
    p = 0
    for n, k in zip(shape, i, strict=True):
        p = p * n + k
    return p


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_permute_moves_axis_order_k_to_k(order):
    x, inputs = iota(2, 3, 4)
    new = [(2, 3, 4)[k] for k in order]
    expected = []
    for i in coordinates(new):
        source = [0] * 3
        for k, axis in enumerate(order):
            source[axis] = i[k]
        expected.append(at((2, 3, 4), source))
    got = one(B.permute(x, order), inputs)
    assert got.shape == tuple(new) and list(got.numbers) == expected


@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=2)))
def test_flip_reverses_flagged_axes(flags):
    x, inputs = iota(2, 3)
    expected = [at((2, 3), [n - 1 - k if f else k for n, k, f in zip((2, 3), i, flags, strict=True)]) for i in coordinates((2, 3))]
    assert numbers(B.flip(x, flags), inputs) == expected


def test_reshape_keeps_row_major_order():
    x, inputs = iota(2, 6)
    got = one(B.reshape(x, (3, 2, 2)), inputs)
    assert got.shape == (3, 2, 2) and list(got.numbers) == list(range(12))
    assert one(B.reshape(B.const(7, int8), (1, 1))).shape == (1, 1)


def test_expand_repeats_axes_of_size_one():
    x, inputs = iota(2, 1)
    assert numbers(B.expand(x, (2, 3)), inputs) == [0, 0, 0, 1, 1, 1]
    assert one(B.expand(x, (2, 0)), inputs).shape == (2, 0)


def test_r43_pad_fills_with_zero_bits():
    x, inputs = iota(2, 2)
    assert numbers(B.pad(x, (1, 0), (3, 3)), inputs) == [0, 0, 0, 0, 1, 0, 2, 3, 0]
    f = B.param(0, (1,), float32)
    assert one(B.pad(f, (1,), (2,)), {"p0": [-0.0]}).bits == (0, 0x80000000)


def test_r44_shrink_is_the_inverse_of_pad():
    x, inputs = iota(3, 4)
    assert numbers(B.shrink(x, (1, 1), (2, 2)), inputs) == [5, 6, 9, 10]
    assert numbers(B.shrink(B.pad(x, (1, 2), (5, 7)), (1, 2), (3, 4)), inputs) == list(range(12))
    assert one(B.shrink(x, (3, 0), (0, 4)), inputs).shape == (0, 4)


# fmt: off
BROKEN = [
    (Op.RESHAPE, (B.shape_vector((4, 4)),)),
    (Op.EXPAND,  (B.shape_vector((3, 3)),)),
    (Op.PAD,     (B.shape_vector((-1, 0)), B.shape_vector((4, 4)))),
    (Op.PAD,     (B.shape_vector((2, 0)), B.shape_vector((3, 3)))),
    (Op.SHRINK,  (B.shape_vector((1, 0)), B.shape_vector((2, 3)))),
    (Op.SHRINK,  (B.shape_vector((-1, 0)), B.shape_vector((1, 1)))),
]
# fmt: on


@pytest.mark.parametrize(("op", "operands"), BROKEN)
def test_r43_r44_constant_operands_that_do_not_fit_are_ill_formed(op, operands):
    x, inputs = iota(2, 3)
    with pytest.raises(SpecError):
        run(UOp(op, (x, *operands)), inputs)


def test_r48_run_time_sizes_that_do_not_fit_trap():
    x, inputs = iota(4)
    n = B.variable("n", 0, 9)
    assert numbers(B.shrink(x, (1,), (n,)), {**inputs, "n": 3}, check=False) == [1, 2, 3]
    with pytest.raises(Trap, match="R44"):
        run(B.shrink(x, (1,), (n,)), {**inputs, "n": 4}, check=False)
    with pytest.raises(Trap, match="R48"):
        run(B.shrink(x, (1,), (n,)), {**inputs, "n": 10}, check=False)
    row, signed = B.shrink(x, (0,), (1,)), B.variable("n", -1, 9)
    assert numbers(B.expand(row, (signed,)), {**inputs, "n": 3}, check=False) == [0, 0, 0]
    with pytest.raises(Trap, match="cannot be expanded"):
        run(B.expand(row, (signed,)), {**inputs, "n": -1}, check=False)


def test_r45_index_is_outer_and_a_scalar_removes_the_axis():
    x, inputs = iota(3, 4, 2)
    rows, columns = B.stack(B.index(2), B.index(0)), B.stack(B.index(3), B.index(1), B.index(1))
    got = one(B.at(x, rows, columns), inputs)
    assert got.shape == (2, 3, 2)
    assert list(got.numbers) == [at((3, 4, 2), (r, c, k)) for r in (2, 0) for c in (3, 1, 1) for k in (0, 1)]
    got = one(B.at(x, 1, columns), inputs)
    assert got.shape == (3, 2) and list(got.numbers) == [at((3, 4, 2), (1, c, k)) for c in (3, 1, 1) for k in (0, 1)]


@pytest.mark.parametrize("bad", [-1, 3])
def test_r45_an_index_outside_a_value_traps_at_once(bad):
    x, inputs = iota(3)
    value = B.add(x, x)
    with pytest.raises(Trap, match="R45"):
        run(UOp(Op.TUPLE, (B.at(value, bad),)), inputs)
    table, inputs = iota(3, 4)
    with pytest.raises(Trap, match="R45"):
        run(B.at(B.add(table, 0), bad, 2), inputs)


def test_r45_an_index_outside_a_reference_traps_at_an_ungated_access_only():
    x, inputs = iota(3)
    i = B.stack(B.index(1), B.index(7))
    gate = B.stack(B.const(True), B.const(False))
    alt = B.expand(B.reshape(B.const(-1, int32), (1,)), (2,))
    assert numbers(B.load(B.at(x, i), alt, gate), inputs) == [1, -1]
    with pytest.raises(Trap, match="R45"):
        run(B.load(B.at(x, i)), inputs)
    with pytest.raises(Trap, match="R45"):
        run(B.add(B.at(x, i), 0), inputs)
    with pytest.raises(Trap, match="R45"):
        run(B.load(B.at(x, i), alt, UOp(Op.NOT, (gate,))), inputs)


def test_r40_stack_and_the_shape_of_nothing():
    x, inputs = iota(2)
    got = one(B.stack(x, B.flip(x, (True,))), inputs)
    assert got.shape == (2, 2) and list(got.numbers) == [0, 1, 1, 0]
    empty = one(UOp(Op.STACK))
    assert empty.dtype is index and empty.shape == (0,)


def test_r47_replicated_collapses_equal_copies():
    x, inputs = iota(1, 3)
    got = one(B.replicated(B.expand(x, (4, 3)), 0), inputs)
    assert got.shape == (1, 3) and list(got.numbers) == [0, 1, 2]
    y, inputs = iota(2, 3)
    with pytest.raises(Trap, match="R47"):
        run(B.replicated(y, 0), inputs)


def test_r47_copies_are_compared_by_bits():
    x = B.param(0, (2,), float32)
    with pytest.raises(Trap, match="R47"):
        run(B.replicated(x, 0), {"p0": [0.0, -0.0]})
    assert one(B.replicated(x, 0), {"p0": Bits((0x7FC00001, 0x7FC00001))}).bits == (0x7FC00001,)


def test_r46_bitcast_is_little_endian_and_scales_the_last_axis():
    x = B.param(0, (2, 2), uint8)
    inputs = {"p0": [0x34, 0x12, 0xCD, 0xAB]}
    wide = one(B.bitcast(x, uint16), inputs)
    assert wide.shape == (2, 1) and wide.bits == (0x1234, 0xABCD)
    assert one(B.bitcast(B.bitcast(x, uint16), uint8), inputs).bits == (0x34, 0x12, 0xCD, 0xAB)
    rows = B.param(0, (2, B.mul(B.variable("n", 0, 2), 2)), uint8)
    assert one(B.bitcast(rows, uint16), {**inputs, "n": 1}).bits == (0x1234, 0xABCD)
    value = B.add(x, 0)
    assert one(B.bitcast(value, uint16), inputs).bits == (0x1234, 0xABCD)
    assert one(B.bitcast(B.bitcast(value, int16), float16), inputs).bits == (0x1234, 0xABCD)


@pytest.mark.parametrize("target", [bool_, uint16, index], ids=str)
def test_r46_ill_formed_bitcasts(target):
    x = B.param(0, (3,), uint8)
    with pytest.raises(SpecError):
        run(UOp(Op.BITCAST, (x,), B.A.BitcastArg(target)), {"p0": [1, 2, 3]})


def test_r28_bitcast_keeps_nan_payloads():
    x = B.param(0, (2,), float32)
    nans = Bits((0x7FA00001, 0xFFC12345))
    assert one(B.bitcast(B.flip(x, (True,)), int32), {"p0": nans}).bits == (0xFFC12345, 0x7FA00001)


def test_r30_bitcast_of_an_inexact_value_is_points_or_any():
    x = B.param(0, (1,), float16)
    few = one(B.bitcast(B.sin(x), int16), {"p0": [1.0]}).elements[0]
    assert few.value_count_nans_as_one == 3 and not few.anything
    many = one(B.bitcast(B.add(x, x), int16), {"p0": Bits((0x7E00,))}).elements[0]
    assert many.anything
    y = B.param(0, (1,), fp8e4m3)
    every_nan = one(B.bitcast(B.add(y, y), uint8), {"p0": Bits((0x7F,))}).elements[0]
    assert every_nan.anything  # though fp8e4m3 has only two NaNs


def test_r46_slice_reinterprets_bytes_of_a_1d_source():
    x = B.param(0, (6,), uint8)
    inputs = {"p0": [1, 2, 3, 4, 5, 6]}
    assert numbers(B.slice_(x, 2, 3), inputs) == [3, 4, 5]
    assert one(B.slice_(x, 2, 2, uint16), inputs).bits == (0x0403, 0x0605)
    for offset, size, dtype in ((1, 1, uint16), (4, 3, uint8), (-1, 1, uint8), (4, 2, uint16)):
        with pytest.raises(SpecError, match="R46"):
            run(B.slice_(x, offset, size, dtype), inputs, check=False)


@pytest.mark.parametrize("given", [[2], [-1], Bits((2,)), [True], [0.0]], ids=repr)
def test_r24_an_input_bool_is_zero_or_one(given):
    x = B.param(0, (1,), bool_)
    if given[0] in (0, 1):
        assert numbers(x, {"p0": given}) == [given[0] == 1]
        return
    with pytest.raises(Trap, match="R24"):
        run(x, {"p0": given})


def test_r24_a_bool_byte_that_is_not_0_or_1_traps():
    x = B.param(0, (2,), uint8)
    assert numbers(B.slice_(x, 0, 2, bool_), {"p0": [0, 1]}, check=False) == [False, True]
    with pytest.raises(Trap, match="R24"):
        run(B.slice_(x, 0, 2, bool_), {"p0": [0, 2]}, check=False)
    with pytest.raises(Trap, match="R24"):
        run(B.param(1, (1,), bool_), {"p1": Bits((3,))})


def test_r41_elementwise_broadcasts_and_one_with_zero_gives_zero():
    a, b = B.param(0, (2, 1), int32), B.param(1, (3,), int32)
    got = one(B.add(a, b), {"p0": [10, 20], "p1": [1, 2, 3]})
    assert got.shape == (2, 3) and list(got.numbers) == [11, 12, 13, 21, 22, 23]
    empty = B.param(1, (0,), int32)
    assert one(B.add(a, empty), {"p0": [1, 2], "p1": []}).shape == (2, 0)


def test_values_above_the_limit_are_refused():
    x, inputs = iota(8)
    with pytest.raises(Unsupported, match="64"):
        run(B.expand(B.reshape(x, (8, 1)), (8, 9)), inputs)
    assert one(B.expand(B.reshape(x, (8, 1)), (8, 9)), inputs, max_elements=72).shape == (8, 9)


def test_random_movement_chains_agree_on_values_and_references():
    """A chain of views gives the same elements whether it is a view of storage or of a value."""
    r = random.Random(12)
    for _ in range(60):
        x, inputs = iota(2, 3, 4)
        ref, value = x, B.add(x, 0)
        for _ in range(r.randint(1, 5)):
            ref, value = (f(v) for f, v in zip(itertools.repeat(random_view(r, ref.shape)), (ref, value)))
        a, b = one(ref, inputs), one(value, inputs)
        assert a.shape == b.shape and a.numbers == b.numbers


def random_view(r, shape):
    rank = len(shape)
    kind = r.randrange(4)
    if kind == 0:
        order = r.sample(range(rank), rank)
        return lambda v: B.permute(v, order)
    if kind == 1:
        flags = [r.random() < 0.5 for _ in shape]
        return lambda v: B.flip(v, flags)
    if kind == 2:
        new = [r.randint(1, n) for n in shape]
        offset = [r.randint(0, n - s) for n, s in zip(shape, new, strict=True)]
        return lambda v: B.shrink(v, offset, new)
    return lambda v: B.reshape(v, (-1, *shape[:1]))


def test_int8_inputs_out_of_range_are_refused():
    with pytest.raises(SpecError, match="expected a value of int8"):
        run(B.param(0, (1,), int8), {"p0": [128]})
    with pytest.raises(SpecError, match="expected 2"):
        run(B.param(0, (2,), int8), {"p0": [1]})
    with pytest.raises(SpecError, match="expected a bit pattern"):
        run(B.param(0, (1,), int8), {"p0": Bits((256,))})
