"""Integers, bool and index: wrap, floor division, shifts, bitwise, Threefry (R01 to R09, R22, R29)."""

import itertools
import random

import pytest

from uops.interp.exact import evaluate_canonical, evaluate_op
from uops.interp.exact.numbers.formats import decode_integer, wrap_integer
from uops.interp.exact.numbers.threefry import threefry
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir.dtypes import INTS, bool_, float32, index, int8, int32, int64, uint8, uint32, uint64
from uops.spec.ir.ops import ALU, Op

#: Op -> its mathematical value on integers, before wrapping; written apart from the table under test.
MATHS = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.MAX: lambda a, b: a if a > b else b,
    Op.MIN: lambda a, b: a if a < b else b,
    Op.XOR: lambda a, b: (a | b) - (a & b),
    Op.OR: lambda a, b: a + b - (a & b),
    Op.AND: lambda a, b: a + b - (a | b),
}


def value_of(dtype, bits):
    """Two's complement, from the weights of the bits."""
    top = bits >> (dtype.bits - 1)
    return bits - (top << dtype.bits) if dtype.is_signed else bits


@pytest.mark.parametrize("dtype", [int8, uint8], ids=str)
@pytest.mark.parametrize("op", MATHS, ids=lambda o: o.name)
def test_r05_every_8_bit_pair_wraps(op, dtype):
    for a, b in itertools.product(range(256), repeat=2):
        expected = MATHS[op](value_of(dtype, a), value_of(dtype, b)) % 256
        assert evaluate_canonical(op, (dtype, dtype), dtype, a, b) == expected


@pytest.mark.parametrize("dtype", [int8, uint8], ids=str)
def test_r01_r02_r03_every_8_bit_division(dtype):
    """a = b q + r with r between 0 and b, r having b's sign; for b = 0, q = 0 and r = a. R04: the quotient wraps."""
    for a, b in itertools.product(range(256), repeat=2):
        q = evaluate_canonical(Op.IDIV, (dtype, dtype), dtype, a, b)
        r = evaluate_canonical(Op.MOD, (dtype, dtype), dtype, a, b)
        assert (b * q + r - a) % 256 == 0
        rest, divisor = value_of(dtype, r), value_of(dtype, b)
        if not b:
            assert q == 0 and r == a
        elif (value_of(dtype, a), divisor) == (-128, -1):
            assert (q, r) == (128, 0)
        else:
            assert 0 <= rest < divisor or divisor < rest <= 0
            assert divisor * value_of(dtype, q) + rest == value_of(dtype, a)


@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=lambda o: o.name)
def test_r03_core_leaves_a_zero_divisor_free(op):
    assert evaluate_op(op, (int8, int8), int8, (5, 0), "core").anything
    assert evaluate_op(op, (int8, int8), int8, (5, 3), "core").is_exact
    assert evaluate_op(op, (int8, int8), int8, (5, 0)).is_exact


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_r04_least_over_minus_one(dtype):
    if dtype.is_signed:
        least, minus = wrap_integer(dtype, int(dtype.min)), wrap_integer(dtype, -1)
        assert evaluate_canonical(Op.IDIV, (dtype, dtype), dtype, least, minus) == least
        assert evaluate_canonical(Op.MOD, (dtype, dtype), dtype, least, minus) == 0
    top = wrap_integer(dtype, int(dtype.max))
    assert evaluate_canonical(Op.ADD, (dtype, dtype), dtype, top, 1) == wrap_integer(dtype, int(dtype.min))


def test_r21_neg_wraps():
    assert evaluate_canonical(Op.NEG, (uint8,), uint8, 1) == 255
    assert evaluate_canonical(Op.NEG, (int8,), int8, 128) == 128
    assert evaluate_canonical(Op.NEG, (index,), index, 1 << 70) == -(1 << 70)


@pytest.mark.parametrize("dtype", [int8, uint8], ids=str)
def test_r06_r07_every_8_bit_shift(dtype):
    for a, n in itertools.product(range(256), repeat=2):
        left = evaluate_canonical(Op.SHL, (dtype, uint8), dtype, a, n)
        right = evaluate_canonical(Op.SHR, (dtype, uint8), dtype, a, n)
        assert left == (a * 2**n) % 256
        assert right == (value_of(dtype, a) // 2**n) % 256
        core = [evaluate_op(op, (dtype, uint8), dtype, (a, n), "core").anything for op in (Op.SHL, Op.SHR)]
        assert core == [n >= 8] * 2


def test_r06_a_signed_count_is_read_as_unsigned():
    assert evaluate_canonical(Op.SHL, (int32, int8), int32, 5, wrap_integer(int8, -1)) == 0
    assert evaluate_canonical(Op.SHR, (int32, int8), int32, wrap_integer(int32, -5), wrap_integer(int8, -1)) == wrap_integer(
        int32, -1
    )
    assert evaluate_canonical(Op.SHR, (uint32, int64), uint32, 0xFFFFFFFF, wrap_integer(int64, -(1 << 63))) == 0


def test_r29_index_is_unbounded():
    big = 1 << 200
    assert evaluate_canonical(Op.MUL, (index, index), index, big, -3) == -3 * big
    assert evaluate_canonical(Op.SHL, (index, index), index, -5, 100) == -5 * 2**100
    assert evaluate_canonical(Op.SHR, (index, uint8), index, -5, 255) == -1
    assert evaluate_canonical(Op.SHR, (index, index), index, -5, 1) == -3
    assert evaluate_canonical(Op.XOR, (index, index), index, -1, big) == -1 - big
    assert evaluate_canonical(Op.IDIV, (index, index), index, -7, 2) == -4
    assert evaluate_canonical(Op.MOD, (index, index), index, -7, 0) == -7


@pytest.mark.parametrize("op", [Op.SHL, Op.SHR], ids=lambda o: o.name)
def test_r29_a_negative_count_traps(op):
    for dtypes, bits in (((index, index), (3, -1)), ((index, int8), (3, 255)), ((int8, index), (3, -1))):
        with pytest.raises(Trap, match="R29"):
            evaluate_op(op, dtypes, dtypes[0], bits)


def test_an_index_shift_beyond_all_memory_is_refused():
    with pytest.raises(Unsupported):
        evaluate_op(Op.SHL, (index, index), index, (1, 1 << 40))
    assert evaluate_canonical(Op.SHL, (index, index), index, 0, 1 << 40) == 0


BOOL = {  # R09, as truth tables over (0, 0) (0, 1) (1, 0) (1, 1)
    Op.ADD: (0, 1, 1, 1),
    Op.OR: (0, 1, 1, 1),
    Op.MAX: (0, 1, 1, 1),
    Op.MUL: (0, 0, 0, 1),
    Op.AND: (0, 0, 0, 1),
    Op.MIN: (0, 0, 0, 1),
    Op.XOR: (0, 1, 1, 0),
    Op.CMPLT: (0, 1, 0, 0),
    Op.CMPNE: (0, 1, 1, 0),
    Op.CMPGT: (0, 0, 1, 0),
    Op.CMPGE: (1, 0, 1, 1),
    Op.CMPLE: (1, 1, 0, 1),
    Op.CMPEQ: (1, 0, 0, 1),
}


@pytest.mark.parametrize("op", BOOL, ids=lambda o: o.name)
def test_r09_bool_truth_tables(op):
    found = tuple(evaluate_canonical(op, (bool_, bool_), bool_, a, b) for a, b in itertools.product((0, 1), repeat=2))
    assert found == BOOL[op]


def test_r09_not_and_bool_mulacc():
    assert [evaluate_canonical(Op.NOT, (bool_,), bool_, b) for b in (0, 1)] == [1, 0]
    cases = list(itertools.product((0, 1), repeat=3))
    assert [evaluate_canonical(Op.MULACC, (bool_,) * 3, bool_, *c) for c in cases] == [a * b or c for a, b, c in cases]


@pytest.mark.parametrize("op", [Op.NEG, Op.SUB, Op.IDIV, Op.MOD, Op.RECIP, Op.SHL, Op.SHR, Op.DIV], ids=lambda o: o.name)
def test_r09_ill_formed_on_bool(op):
    arity = 1 if op in (Op.NEG, Op.RECIP) else 2
    with pytest.raises(SpecError, match="R10"):
        evaluate_op(op, (bool_,) * arity, bool_, (1,) * arity)


def test_r09_not_is_for_bool_only():
    with pytest.raises(SpecError, match="R09"):
        evaluate_op(Op.NOT, (int8,), int8, (1,))


def test_r10_shift_of_a_float_is_ill_formed():
    with pytest.raises(SpecError, match="R10"):
        evaluate_op(Op.SHL, (float32, uint8), float32, (1, 1))


@pytest.mark.parametrize("dtype", [int8, uint64, index, bool_], ids=str)
def test_r10_trunc_of_integers_is_the_identity(dtype):
    assert all(evaluate_canonical(Op.TRUNC, (dtype,), dtype, b) == b for b in (0, 1))


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_comparisons_and_mulacc_of_random_integers(dtype):
    r = random.Random(dtype.name)
    for _ in range(300):
        a, b, c = (r.getrandbits(dtype.bits) for _ in range(3))
        b = r.choice((a, b))
        x, y, z = (value_of(dtype, n) for n in (a, b, c))
        got = [
            evaluate_canonical(op, (dtype, dtype), bool_, a, b)
            for op in (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ)
        ]
        assert got == [x < y, x != y, x > y, x >= y, x <= y, x == y]
        assert evaluate_canonical(Op.MULACC, (dtype,) * 3, dtype, a, b, c) == (x * y + z) % 2**dtype.bits
        assert decode_integer(dtype, a) == x and wrap_integer(dtype, x) == a


# fmt: off
VECTORS = [  # counter (low, high), key (low, high), result (low, high): Random123's known answers
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
# fmt: on


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_r22_threefry_known_answers(counter, key, result):
    words = [low | high << 32 for low, high in (counter, key, result)]
    assert threefry(words[0], words[1]) == words[2]
    assert evaluate_canonical(Op.THREEFRY, (uint64, uint64), uint64, words[0], words[1]) == words[2]


def test_r22_threefry_is_for_uint64_only():
    with pytest.raises(SpecError, match="R22"):
        evaluate_op(Op.THREEFRY, (uint32, uint32), uint32, (1, 1))


def test_every_alu_op_has_a_meaning_and_no_other():
    from uops.interp.exact import MEANING

    assert set(MEANING) == ALU
    with pytest.raises(SpecError, match="not elementwise"):
        evaluate_op(Op.PERMUTE, (int8,), int8, (1,))
