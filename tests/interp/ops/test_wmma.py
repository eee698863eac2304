"""`multiply` against exact sums, rounded by a text of its own, and `allowed_error` against simulated accumulators.

The simulations are what descriptors describe: products joined in any order, addends cut where they are aligned, partial sums
rounded in one direction or another, subnormals flushed. Every one must lie within the bound; a lost product must not.
"""

import dataclasses
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.interp.ops.wmma import (
    allowed_error,
    gather_matrix_and_check_copies,
    multiply_fragments,
    scatter_fragments,
    sum_relative_errors_and_count,
)
from uops.spec.errors import SpecError, Trap
from uops.spec.wmma import DESCRIPTORS, OPERANDS, TableLaneMap, descriptors_named

pytestmark = pytest.mark.filterwarnings("error")


def _name(d):
    return f"{d.name}-{d.dtype_in}"


ALL = pytest.mark.parametrize("d", DESCRIPTORS, ids=_name)
FLOATS = [d for d in DESCRIPTORS if d.dtype_out.is_float]


def _dtype(d, operand):
    return d.dtype_out if operand == "C" else d.dtype_in


def _spread(d, operand, matrix):
    """Fragments of a matrix, lane by lane."""
    m = d.map(operand)
    return np.array([[matrix[m.place(t, e)] for e in range(m.elements)] for t in range(m.lanes)], matrix.dtype)


def _fragments(d, matrices):
    return [_spread(d, o, m) for o, m in zip(OPERANDS, matrices)]


def _product(d, matrices):
    """D's matrix, by way of fragments; D's fragments are read by hand."""
    fragments = multiply_fragments(d, *_fragments(d, matrices))
    out = np.empty(d.shape("C"), fragments.dtype)
    for t in range(d.c.lanes):
        for e in range(d.c.elements):
            out[d.c.place(t, e)] = fragments[t, e]
    return out


def _random(d, seed, scale=4.0):
    rng = np.random.default_rng(seed)
    matrices = []
    for o in OPERANDS:
        t = _dtype(d, o)
        if t.is_float:
            matrices.append((rng.standard_normal(d.shape(o)) * scale).astype(STORAGE[t]))
        else:
            matrices.append(rng.integers(t.min, t.max, d.shape(o), STORAGE[t], endpoint=True))
    return matrices


def _edges(d, seed):
    """Zeros, subnormals, least normals, ones and great values of each dtype, mixed."""
    rng = np.random.default_rng(seed)
    matrices = []
    for o in OPERANDS:
        t = _dtype(d, o)
        if t.is_float:
            low = 2.0 ** (1 - t.bias)
            pool = [
                0.0,
                -0.0,
                low * 2.0**-t.man_bits,
                -low * (1 - 2.0**-t.man_bits),
                low,
                1.0,
                -1.0,
                1.5,
                2.0 ** (t.bias // 2),
                t.max_finite,
            ]
        else:
            pool = [0, 1, t.min, t.max, t.max - 1, 2]
        matrices.append(rng.choice(np.array(pool, STORAGE[t]), d.shape(o)))
    return matrices


# Exact references


def cut(x, bits, mode, least):
    """The fraction x with `bits` fraction bits, and none below `least`; mode is nearest, zero, up or down."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = max(Fraction(2) ** (exponent - bits), least)
    steps = x / unit
    rounded = {"nearest": round, "zero": math.trunc, "up": math.ceil, "down": math.floor}[mode](steps)
    return rounded * unit


def least(d):
    return Fraction(2) ** (1 - d.bias - d.man_bits)


def _nearest(x, d):
    rounded = cut(x, d.man_bits, "nearest", least(d))
    return (math.inf if x > 0 else -math.inf) if abs(rounded) > d.max_finite else float(rounded)


def _terms(matrices, i, j):
    a, b, c = matrices
    products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j])]
    return products, Fraction(float(c[i, j]))


def _expected(d, matrices):
    a, b, c = matrices
    out = np.empty(d.shape("C"), np.float64 if d.dtype_out.is_float else STORAGE[d.dtype_out])
    for i, j in np.ndindex(*out.shape):
        if d.dtype_out.is_float:
            products, start = _terms(matrices, i, j)
            out[i, j] = _nearest(sum(products, start), d.dtype_out)
        else:
            exact = sum(int(x) * int(y) for x, y in zip(a[i], b[:, j])) + int(c[i, j])
            out[i, j] = (exact + 2**31) % 2**32 - 2**31
    return out


@ALL
def test_multiply_is_the_matrix_product_rounded_once(d):
    for matrices in (_random(d, 1), _edges(d, 2), _edges(d, 3)):
        got = _product(d, matrices)
        assert got.dtype == STORAGE[d.dtype_out]
        np.testing.assert_array_equal(got.astype(np.float64), _expected(d, matrices).astype(np.float64))


@pytest.mark.parametrize("d", [d for d in DESCRIPTORS if not d.dtype_out.is_float], ids=_name)
def test_integers_wrap(d):
    a, b, c = (np.ones(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS)
    got = _product(d, [a, b, c * np.int32(2**31 - 1)])
    assert (got == -(2**31) + d.dims[2] - 1).all()


def test_a_sum_next_to_a_midpoint_is_rounded_once():
    (d,) = descriptors_named("v_mfma_f32_16x16x16_bf16")
    a, b, c = (np.zeros(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS)
    a[:, 0], b[0] = 2.0**-12, 2.0**-12
    a[:, 1], b[1, 0], b[1, 1] = 2.0**-50, 2.0**-50, -(2.0**-50)
    c[:] = 1.0
    got = _product(d, [a, b, c])
    assert (got[:, 0] == 1 + 2.0**-23).all() and (got[:, 1:] == 1).all()


@pytest.mark.parametrize("d", FLOATS, ids=_name)
def test_infinities_and_nans_go_through(d):
    matrices = [np.ones(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS]
    a, b, c = matrices
    c[2, 3] = np.inf
    a[4, 1] = np.nan
    c[5, :] = -np.inf
    if d.dtype_in.has_inf:
        a[5, 2] = np.inf
        b[3, 6] = -np.inf
        b[3, 7], a[6, 3] = np.inf, 0.0
    got, bound = (
        _product(d, matrices).astype(np.float64),
        gather_matrix_and_check_copies(d, "C", _as_out(d, allowed_error(d, *_fragments(d, matrices)))),
    )
    assert got[2, 3] == np.inf and np.isnan(got[4]).all() and bound[2, 3] == bound[4, 0] == 0
    if d.dtype_in.has_inf:
        assert np.isnan(got[5]).all() and got[0, 6] == -np.inf and np.isnan(got[6, 7]) and np.isnan(got[6, 6])
        assert got[1, 7] == np.inf
    else:
        assert (got[5] == -np.inf).all()


def _as_out(d, bound):
    return bound.astype(STORAGE[d.dtype_out])


def test_finite_operands_cannot_spoil_an_infinity():
    (d,) = descriptors_named("v_mfma_f64_16x16x4_f64")
    a, b, c = (np.ones(d.shape(o)) for o in OPERANDS)
    a[0, 0], b[0, 0] = -1e200, 1e200
    c[0, 0] = np.inf
    got = _product(d, [a, b, c])
    assert got[0, 0] == np.inf and got[0, 1] == -1e200 and got[1, 0] == 1e200


# Maps


def test_a_swap_in_the_map_of_c_changes_these_two_elements():
    (d,) = descriptors_named("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    places = [[d.c.place(t, e) for e in range(4)] for t in range(32)]
    places[3][1], places[9][0] = places[9][0], places[3][1]
    wrong = dataclasses.replace(d, c=TableLaneMap(tuple(map(tuple, places))))
    a, b, c = _fragments(d, _random(d, 5))
    right, got = multiply_fragments(d, a, b, np.zeros_like(c)), multiply_fragments(wrong, a, b, np.zeros_like(c))
    assert np.argwhere(right != got).tolist() == [[3, 1], [9, 0]]
    assert right[3, 1] == got[9, 0] and right[9, 0] == got[3, 1]


@pytest.mark.parametrize("operand", ["A", "B"])
def test_copies_that_differ_are_a_trap_that_names_both(operand):
    (d,) = descriptors_named("v_wmma_f32_16x16x16_f16")
    fragments = _fragments(d, _random(d, 6))
    fragments[OPERANDS.index(operand)][19, 5] = 100.0
    place = "[3, 5]" if operand == "A" else "[5, 3]"
    kept = fragments[OPERANDS.index(operand)][3, 5]
    with pytest.raises(Trap) as told:
        multiply_fragments(d, *fragments)
    assert str(told.value) == (
        f"v_wmma_f32_16x16x16_f16: copies of {operand}{place} differ: "
        f"lane 3 element 5 holds {kept}, lane 19 element 5 holds 100.0 (R119)"
    )


def test_copies_are_compared_by_bits():
    (d,) = descriptors_named("v_wmma_f32_16x16x16_f16")
    matrices = _random(d, 7)
    matrices[0][3, 5] = np.nan
    fragments = _fragments(d, matrices)
    assert np.isnan(multiply_fragments(d, *fragments)).any()
    fragments[0][3, 6], fragments[0][19, 6] = 0.0, -0.0
    with pytest.raises(Trap, match=r"lane 3 element 6 holds 0.0, lane 19 element 6 holds -0.0"):
        multiply_fragments(d, *fragments)


@ALL
def test_gather_undoes_scatter(d):
    matrix = _random(d, 8)[2]
    np.testing.assert_array_equal(gather_matrix_and_check_copies(d, "C", scatter_fragments(d, matrix)), matrix)


def test_other_shapes_and_dtypes_are_refused():
    (d,) = descriptors_named("v_wmma_f32_16x16x16_f16")
    a, b, c = _fragments(d, _random(d, 9))
    for wrong in ((a[:, :8], b, c), (a, b.T, c), (a, b, c.astype(np.float64)), (a.astype(np.float32), b, c)):
        with pytest.raises(SpecError, match="R118"):
            multiply_fragments(d, *wrong)
        with pytest.raises(SpecError, match="R118"):
            allowed_error(d, *wrong)


# The allowed error


def _sequential(d, products, start, mode, rng):
    """One product after the other, or in a random tree, each sum rounded."""
    bits, low = d.accumulator.bits, least(d.dtype_out)
    left = [start, *products]
    rng.shuffle(left)
    tree = rng.random() < 0.5
    while len(left) > 1:
        x, y = left.pop(), left.pop(rng.randrange(len(left)) if tree else -1)
        left.append(cut(x + y, bits, mode, low))
    return left[0]


def _exponent(x, d):
    """Of a value of dtype d; a subnormal has the exponent of the least normal."""
    return max(math.frexp(float(x))[1] - 1, 1 - d.bias)


def _aligned(d, row, column, start, mode, rng):
    """Steps of `block` products; the addends are cut at the exponent of the greatest, where factors do not count as normalized."""
    sums, low = d.accumulator, least(d.dtype_out)
    pairs = list(zip(row, column))
    rng.shuffle(pairs)
    total = start
    for k in range(0, len(pairs), sums.block):
        step = [(Fraction(float(x)) * Fraction(float(y)), x, y) for x, y in pairs[k : k + sums.block]]
        exponents = [_exponent(x, d.dtype_in) + _exponent(y, d.dtype_in) for p, x, y in step if p]
        exponents += [_exponent(total, d.dtype_out)] if total else [-126]
        unit = Fraction(2) ** (max(exponents) - sums.align)
        whole = sum(math.trunc(t / unit) for t in [total, *(p for p, _, _ in step)]) * unit
        total = cut(whole, sums.bits, "nearest" if sums.nearest else mode, low)
    return total


def _flush(x, d):
    return Fraction(0) if abs(x) < Fraction(2) ** (1 - d.bias) else x


def _simulations(d, matrices, i, j, rng):
    a, b, _ = matrices
    products, start = _terms(matrices, i, j)
    for mode in ("nearest",) if d.accumulator.nearest else ("nearest", "zero", "up", "down"):
        if d.accumulator.align is None:
            yield _sequential(d, products, start, mode, rng)
        else:
            yield _aligned(d, a[i], b[:, j], start, mode, rng)
        if d.accumulator.flushes:
            kept = [_flush(Fraction(float(x)), d.dtype_in) * _flush(Fraction(float(y)), d.dtype_in) for x, y in zip(a[i], b[:, j])]
            yield _flush(_sequential(d, kept, _flush(start, d.dtype_out), mode, rng), d.dtype_out)


def _tiny(d, seed):
    """Values around the least normal of each dtype, where cuts and flushes are greatest."""
    rng = np.random.default_rng(seed)
    low = [2.0 ** (1 - _dtype(d, o).bias) for o in OPERANDS]
    return [(rng.uniform(-2, 2, d.shape(o)) * x).astype(STORAGE[_dtype(d, o)]) for o, x in zip(OPERANDS, low)]


def _spread_out(d, seed):
    """Exponents spread over the dtype's range, so that most products are cut; with cancellation."""
    rng = np.random.default_rng(seed)
    matrices = []
    for o in OPERANDS:
        t = _dtype(d, o)
        span = min(t.bias // 3, 12)
        matrices.append((rng.uniform(-2, 2, d.shape(o)) * 2.0 ** rng.integers(-span, span, d.shape(o))).astype(STORAGE[t]))
    matrices[0][:, 1::2] = -matrices[0][:, 0::2]
    matrices[1][1::2] = matrices[1][0::2]
    return matrices


def _underflowing(d, seed):
    """Products around the least subnormal of the result, and nothing else: what is lost is no part of the magnitudes."""
    rng = np.random.default_rng(seed)
    size = 2.0 ** ((1 - d.dtype_out.bias - d.dtype_out.man_bits) // 2)
    a, b = ((rng.uniform(-2, 2, d.shape(o)) * size).astype(STORAGE[d.dtype_in]) for o in "AB")
    return [a, b, np.zeros(d.shape("C"), STORAGE[d.dtype_out])]


def _inflated(d, seed):
    """A subnormal times a power of two: the product aligns at an exponent above its value, and cuts more off the others."""
    rng = np.random.default_rng(seed)
    t = d.dtype_in
    exponent = 1 - t.man_bits  # of the least subnormal times the greatest power of two
    half = exponent // 2
    a = (rng.uniform(1, 2, d.shape("A")) * 2.0**half).astype(STORAGE[t])
    b = (rng.uniform(1, 2, d.shape("B")) * 2.0 ** (exponent - half)).astype(STORAGE[t])
    a[:, 0], b[0] = math.ldexp(1.0, 1 - t.bias - t.man_bits), 2.0**t.bias
    return [a, b, np.zeros(d.shape("C"), STORAGE[d.dtype_out])]


@pytest.mark.parametrize("d", FLOATS, ids=_name)
def test_every_simulated_accumulator_is_within_the_bound(d):
    rng = random.Random(10)
    greatest = 0.0
    for matrices in (
        _random(d, 11),
        _random(d, 12, 0.01),
        _tiny(d, 13),
        _spread_out(d, 14),
        _underflowing(d, 15),
        _inflated(d, 16),
    ):
        given = _fragments(d, matrices)
        answer, bound = multiply_fragments(d, *given), allowed_error(d, *given)
        for t, e in ((0, 0), (d.threads // 2, 1 % d.c.elements), (d.threads - 1, d.c.elements - 1), (d.threads // 3, 0)):
            assert math.isfinite(bound[t, e])
            for result in _simulations(d, matrices, *d.c.place(t, e), rng):
                off = abs(result - Fraction(float(answer[t, e])))
                assert off <= Fraction(float(bound[t, e]))
                greatest = max(greatest, float(off / Fraction(float(bound[t, e]))))
    assert greatest > 0.01  # the simulations do err


@pytest.mark.parametrize("d", [d for d in FLOATS if d.accumulator.bits >= 10], ids=_name)
def test_a_lost_product_is_outside_of_the_bound(d):
    given = [np.ones(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS]
    assert (allowed_error(d, *_fragments(d, given)) < 1).all()


def test_the_bound_of_nearest_rounding_is_that_of_a_reduce():
    (d,) = descriptors_named("v_mfma_f64_16x16x4_f64")
    assert sum_relative_errors_and_count(d.accumulator, 4) == (4 * 2.0**-53, 4)
    given = [np.ones(d.shape(o)) for o in OPERANDS]
    np.testing.assert_allclose(allowed_error(d, *_fragments(d, given)), (4 + 1) * 2.0**-53 * 5, rtol=1e-9)


@pytest.mark.parametrize("bits", [0, 3, 4])
def test_the_bound_is_infinite_where_the_relative_errors_add_up_to_one(bits):
    (d,) = descriptors_named("v_wmma_bf16_16x16x16_bf16")
    d = dataclasses.replace(d, accumulator=dataclasses.replace(d.accumulator, bits=bits))
    assert sum_relative_errors_and_count(d.accumulator, d.dims[2])[0] >= 1
    given = [np.ones(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS]
    assert (allowed_error(d, *_fragments(d, given)) == np.inf).all()


def test_the_bound_counts_the_cuts_of_alignment():
    (d,) = descriptors_named("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert sum_relative_errors_and_count(d.accumulator, 16) == (2 * (10 * 2.0**-24 + 2.0**-23), 22)
    assert sum_relative_errors_and_count(dataclasses.replace(d.accumulator, block=16), 16) == (18 * 2.0**-24 + 2.0**-23, 19)


@pytest.mark.parametrize("d", FLOATS, ids=_name)
def test_the_bound_is_infinite_where_an_order_may_overflow(d):
    matrices = [np.zeros(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS]
    matrices[2][0, 0], matrices[2][1, 1] = d.dtype_out.max_finite, -d.dtype_out.max_finite
    bound = gather_matrix_and_check_copies(d, "C", _as_out(d, allowed_error(d, *_fragments(d, matrices))))
    assert bound[0, 0] == bound[1, 1] == np.inf and np.isfinite(bound[0, 1])


def test_a_flushed_factor_of_an_infinity_is_unsure():
    (d,) = descriptors_named("tdpbf16ps")
    matrices = [np.ones(d.shape(o), STORAGE[_dtype(d, o)]) for o in OPERANDS]
    matrices[0][0, 3] = 2.0**-130
    matrices[1][3, 4] = np.inf
    bound = gather_matrix_and_check_copies(d, "C", _as_out(d, allowed_error(d, *_fragments(d, matrices))))
    assert bound[0, 4] == np.inf and bound[1, 4] == 0


@pytest.mark.parametrize("d", [d for d in DESCRIPTORS if not d.dtype_out.is_float], ids=_name)
def test_integers_have_no_error(d):
    assert not allowed_error(d, *_fragments(d, _random(d, 15))).any()
