"""Reduce: exact integers, and float sets that hold every order and association and little more (R32, R09, R102)."""

import math
import random
from functools import cache

import pytest

from uops.interp.exact import (
    FORMATS,
    bits_of,
    evaluate_canonical,
    exact_fraction,
    python_number,
    reduce_dot,
    reduce_elements,
    round_to,
)
from uops.interp.exact.numbers.casts import cast
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import FLOATS, bfloat16, bool_, float16, float32, float64, fp8e4m3, fp8e5m2, index, int8, uint8
from uops.spec.ir.ops import Op

INF, NAN = math.inf, math.nan


def every_order(op, dtype, bits):
    """The results of all orders and associations of one op, by splitting the multiset in every way."""

    @cache
    def results(chosen):
        if not chosen & (chosen - 1):
            return frozenset({bits[chosen.bit_length() - 1]})
        out = set()
        part = (chosen - 1) & chosen
        while part:
            if part >= chosen ^ part:
                out |= {evaluate_canonical(op, (dtype, dtype), dtype, a, b) for a in results(part) for b in results(chosen ^ part)}
            part = (part - 1) & chosen
        return frozenset(out)

    return results((1 << len(bits)) - 1)


def some(dtype, r, n):
    """Elements from one of several ranges, so that cancellation, overflow and underflow all occur."""
    fmt = FORMATS[dtype]
    how = r.randrange(5)
    if how == 0:
        return [r.getrandbits(dtype.bits) for _ in range(n)]
    centre = (fmt.one, fmt.max_mag, fmt.hidden, 2 * fmt.hidden)[how - 1]
    spread = 3 * fmt.hidden if how > 1 else fmt.hidden // 2
    near = [min(max(centre + r.randint(-spread, spread), 0), fmt.max_mag) for _ in range(n)]
    return [b | (fmt.sign_bit if r.random() < 0.4 else 0) for b in near]


@pytest.mark.parametrize("dtype", [fp8e4m3, fp8e5m2, float16, bfloat16, float32], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=lambda o: o.name)
def test_r32_every_order_and_association_is_allowed(op, dtype):
    r = random.Random(f"{op}{dtype}")
    several = 0
    for _ in range(150):
        bits = some(dtype, r, r.randint(2, 5))
        answer = reduce_elements(op, dtype, bits)
        found = every_order(op, dtype, tuple(bits))
        several += len(found) > 1
        for out in found:
            assert answer.contains(out), (bits, out, answer)
    assert several > 20 if op in (Op.ADD, Op.MUL) else several == 0


@pytest.mark.parametrize("dtype", [fp8e4m3, fp8e5m2, float16, bfloat16], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL], ids=lambda o: o.name)
def test_r32_a_wider_accumulator_is_allowed(op, dtype):
    r = random.Random(f"wide{op}{dtype}")
    for _ in range(200):
        bits = some(dtype, r, r.randint(1, 6))
        total = cast(dtype, float32, bits[0]).best
        for b in bits[1:]:
            total = evaluate_canonical(op, (float32, float32), float32, total, cast(dtype, float32, b).best)
        assert reduce_elements(op, dtype, bits).contains(cast(float32, dtype, total).best), bits


@pytest.mark.parametrize("dtype", [fp8e4m3, fp8e5m2, float16, bfloat16, float32], ids=str)
def test_r32_dot_holds_fused_and_unfused_products(dtype):
    r = random.Random(f"dot{dtype}")
    for _ in range(200):
        n = r.randint(1, 6)
        a, b = some(dtype, r, n), some(dtype, r, n)
        answer = reduce_dot(FORMATS[dtype], a, b)
        products = [evaluate_canonical(Op.MUL, (dtype, dtype), dtype, x, y) for x, y in zip(a, b, strict=True)]
        unfused, fused = products[0], products[0]
        for k in range(1, n):
            unfused = evaluate_canonical(Op.ADD, (dtype, dtype), dtype, unfused, products[k])
            fused = evaluate_canonical(Op.MULACC, (dtype,) * 3, dtype, a[k], b[k], fused)
        assert answer.contains(unfused) and answer.contains(fused) and answer.contains(answer.best), (a, b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r32_best_is_the_exact_sum_rounded_once(dtype):
    r = random.Random(f"best{dtype}")
    fmt = FORMATS[dtype]
    for _ in range(200):
        bits = [r.randrange(fmt.max_mag) | r.choice((0, fmt.sign_bit)) for _ in range(r.randint(2, 9))]
        values = [exact_fraction(dtype, b) for b in bits]
        assert reduce_elements(Op.ADD, dtype, bits).best == round_to(dtype, sum(values))
        sign = sum(b >> (dtype.bits - 1) for b in bits) & 1
        assert reduce_elements(Op.MUL, dtype, bits).best == round_to(dtype, math.prod(values), sign)


@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
def test_r32_the_bound_of_a_sum_is_tight(dtype):
    """n - 1 roundings of positive terms near 1 in a sum near n: |error| <= (n - 1) u n, in units of 2 u at n."""
    n = 8
    one = bits_of(dtype, 1.0)
    answer = reduce_elements(Op.ADD, dtype, [one + k for k in range(n)])
    fmt = FORMATS[dtype]
    spacing = exact_fraction(dtype, answer.best + 1) - exact_fraction(dtype, answer.best)
    reach = (n - 1) * sum(exact_fraction(dtype, one + k) for k in range(n)) / (1 << fmt.precision) / spacing
    assert answer.span[1] - answer.best <= reach + 1 and answer.best - answer.span[0] <= 2 * (reach + 1)
    assert not answer.nan and not answer.points[1:]
    assert reach < 4


def test_r32_one_element_is_itself_but_for_the_sign_of_zero():
    for op in (Op.ADD, Op.MUL, Op.MAX):
        b = bits_of(float16, -2.5)
        assert reduce_elements(op, float16, [b]).best == b and reduce_elements(op, float16, [b]).value_count_nans_as_one == 1
    assert reduce_elements(Op.ADD, float16, [0x8000]).contains(0) and reduce_elements(Op.ADD, float16, [0]).contains(0x8000)
    assert not reduce_elements(Op.MUL, float16, [0x8000]).contains(0)


@pytest.mark.parametrize(
    ("values", "inside", "outside"),
    [
        ((65504.0, 65504.0, -65504.0), (65504.0, INF), (-INF, NAN, 0.0)),
        ((65504.0, 65504.0, -65504.0, -65504.0), (0.0, INF, -INF, NAN), (400.0,)),
        ((INF, 1.0), (INF,), (NAN, -INF, 65504.0)),
        ((INF, -INF), (NAN,), (INF, -INF, 0.0)),
        ((INF, -65504.0, -65504.0), (INF, NAN), (-INF, 0.0)),
        ((NAN, 1.0), (NAN,), (1.0, INF)),
        ((1.0, 2.0), (3.0,), (INF, NAN, 0.0)),
    ],
)
def test_r32_what_overflow_reaches_in_a_sum(values, inside, outside):
    answer = reduce_elements(Op.ADD, float16, [bits_of(float16, v) for v in values])
    assert [answer.contains(bits_of(float16, v)) for v in inside] == [True] * len(inside)
    assert [answer.contains(bits_of(float16, v)) for v in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    ("values", "inside", "outside"),
    [
        ((256.0, 256.0, 2.0**-10), (64.0, INF), (-INF, NAN, 0.0)),
        ((-256.0, 256.0, 2.0**-10), (-64.0, -INF), (INF, NAN, 0.0)),
        ((2.0**-13, 2.0**-13, 1024.0), (2.0**-16, 0.0), (INF, NAN, -1.0)),
        ((0.0, 256.0, 256.0), (0.0, NAN), (INF, 1.0)),
        ((0.0, 2.0), (0.0,), (-0.0, NAN, INF)),
        ((INF, 0.0), (NAN,), (INF, 0.0)),
        ((INF, -2.0), (-INF,), (INF, NAN)),
        ((1.5, -1.5), (-2.25,), (2.25, NAN, INF)),
    ],
)
def test_r32_what_overflow_and_underflow_reach_in_a_product(values, inside, outside):
    answer = reduce_elements(Op.MUL, float16, [bits_of(float16, v) for v in values])
    assert [answer.contains(bits_of(float16, v)) for v in inside] == [True] * len(inside)
    assert [answer.contains(bits_of(float16, v)) for v in outside] == [False] * len(outside)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r32_empty_gives_the_identity(dtype):
    assert python_number(dtype, reduce_elements(Op.ADD, dtype, []).best) == 0.0
    assert python_number(dtype, reduce_elements(Op.MUL, dtype, []).best) == 1.0
    low = -INF if dtype.has_inf else -448.0
    assert python_number(dtype, reduce_elements(Op.MAX, dtype, []).best) == low
    assert python_number(dtype, reduce_elements(Op.MIN, dtype, []).best) == -low


def test_r32_integers_are_exact_and_wrap():
    assert reduce_elements(Op.ADD, uint8, [200, 100, 7]).best == 51
    assert reduce_elements(Op.MUL, int8, [100, 100, 3]).best == 30000 % 256
    assert reduce_elements(Op.MAX, int8, [0x80, 0xFF]).best == 0xFF
    assert reduce_elements(Op.MIN, int8, [0x80, 0xFF]).best == 0x80
    assert reduce_elements(Op.MAX, int8, []).best == 0x80 and reduce_elements(Op.MIN, int8, []).best == 0x7F
    assert reduce_elements(Op.ADD, index, [1 << 70, 1]).best == (1 << 70) + 1
    with pytest.raises(SpecError):
        reduce_elements(Op.MAX, index, [])


def test_r09_bool_reductions():
    assert [reduce_elements(Op.ADD, bool_, b).best for b in ([], [0, 0], [1, 1], [0, 1])] == [0, 0, 1, 1]
    assert [reduce_elements(Op.MUL, bool_, b).best for b in ([], [0, 1], [1, 1])] == [1, 0, 1]
    assert [reduce_elements(Op.MAX, bool_, b).best for b in ([], [0, 1], [0, 0])] == [0, 1, 0]


def test_r11_max_of_both_zeros_is_either():
    answer = reduce_elements(Op.MAX, float32, [0x80000000, 0, bits_of(float32, -1.0)])
    assert answer.contains(0) and answer.contains(0x80000000) and answer.value_count_nans_as_one == 2
    assert reduce_elements(Op.MAX, float32, [0x80000000]).is_exact
