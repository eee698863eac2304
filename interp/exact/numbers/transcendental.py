"""Exp2, Log2, Sin and Sqrt's core bound: correctly rounded results by interval arithmetic in big integers (R17).

An *enclosure* is (low, high, e) with low * 2**e <= |f(x)| <= high * 2**e. `round_irrational_by_enclosures` computes tighter ones
until both ends round to the same float. It ends because it is used for irrational results only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from uops.interp.exact.answers import AnswerSet, any_nan, float_result, floats_within_ulps, unite_in_float_hull
from uops.interp.exact.numbers.arithmetic import mul, sqrt_and_round
from uops.interp.exact.numbers.constants import ln2, pi
from uops.interp.exact.numbers.formats import INFINITE, NAN, Dyadic, FloatFormat, Real
from uops.spec.errors import Crash

#: (low, high, e)
Enclosure = tuple[int, int, int]
#: Bits of the first enclosure beyond the precision of the format.
_GUARD = 24
#: An enclosure of this many bits has failed to converge.
_MAX_BITS = 1 << 16


def ulp_allowance(fmt: FloatFormat, core: bool) -> int:
    """Return the error that R17 allows Exp2, Log2 and Sin, in units in the last place."""
    return 4 if core else 2 if fmt.dtype.bits >= 32 else 1


def round_irrational_by_enclosures(fmt: FloatFormat, enclose: Callable[[int], Enclosure], extra_start_bits: int = 0) -> Dyadic:
    """Return `FloatFormat.round_without_overflow` of a positive irrational number.

    `enclose(p)` gives an enclosure with about p correct bits. The first one has `extra_start_bits` bits more than usual.
    """
    bits = fmt.precision + _GUARD + extra_start_bits
    while bits < _MAX_BITS:
        low, high, e = enclose(bits)
        if low > 0:
            rounded = fmt.round_without_overflow(low, e)
            if rounded == fmt.round_without_overflow(high, e):
                return rounded
        bits *= 2
    raise Crash("an enclosure did not converge: its number is a midpoint or a zero")


def to_fixed_point(m: int, e: int, bits: int) -> int:
    """Return floor(m * 2**(e + bits))."""
    return m << (e + bits) if e + bits >= 0 else m >> -(e + bits)


# Exp2


def exp2_mantissa_error_exponent(fixed_x: int, bits: int) -> tuple[int, int, int]:
    """Return (y, error, k) so that 2**(fixed_x / 2**bits) is y * 2**(k - bits), y within `error` units and about 2**bits."""
    k, f = fixed_x >> bits, fixed_x & ((1 << bits) - 1)
    t = f * ln2(bits) >> bits
    y = term = 1 << bits
    n = 0
    while term:
        n += 1
        term = (term * t >> bits) // n
        y += term
    return y, 3 * n + 16, k


def enclose_exp2(m: int, e: int, bits: int) -> Enclosure:
    """Return an enclosure of 2**(m * 2**e), m of either sign."""
    y, error, k = exp2_mantissa_error_exponent(to_fixed_point(m, e, bits), bits)
    return y - error, y + error, k - bits


def round_exp2(fmt: FloatFormat, m: int, e: int) -> Dyadic | None:
    """Return 2**(m * 2**e) correctly rounded without an upper limit; None if the exponent is beyond reach of the format."""
    if m.bit_length() + e > fmt.dtype.exp_bits + 4:
        return None
    if e >= 0 or not m & ((1 << -e) - 1):
        return fmt.round_without_overflow(1, to_fixed_point(m, e, 0))
    return round_irrational_by_enclosures(fmt, lambda bits: enclose_exp2(m, e, bits))


def exp2(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Exp2."""
    x = fmt.decode(a)
    if x.kind == NAN:
        return any_nan(fmt)
    if x.kind == INFINITE:
        return float_result(fmt, 0 if x.sign else fmt.infinity(0))
    m = -x.m if x.sign else x.m
    rounded = round_exp2(fmt, m, x.e)
    if rounded is None:
        return floats_within_ulps(fmt, 0, 0, fmt.unit, ulp_allowance(fmt, core)) if x.sign else float_result(fmt, fmt.infinity(0))
    r, q = rounded
    is_integer = x.e >= 0 or not x.m & ((1 << -x.e) - 1)
    if is_integer and r:
        return float_result(fmt, fmt.encode(0, r, q))
    return floats_within_ulps(fmt, 0, r, q, ulp_allowance(fmt, core))


# Log2


def log2_sign_and_magnitude_enclosure(m: int, e: int, bits: int) -> tuple[int, Enclosure]:
    """Return the sign of log2(m * 2**e) and an enclosure of its size with about `bits` correct bits; m > 0 is no power of two."""
    length = m.bit_length()
    k = e + length - 1
    one = 1 << (length - 1)
    if 3 * m > 4 * one:
        k, one = k + 1, one << 1
    # m / one is in [2/3, 4/3]; its logarithm is 2 artanh(z) / ln 2, z = (m - one) / (m + one)
    top, bottom = abs(m - one), m + one
    work = bits + 4 + (bottom.bit_length() - top.bit_length() + 1 if k == 0 else 0)
    z = (top << work) // bottom
    square = z * z >> work
    total = term = z
    n = 1
    while term:
        n += 2
        term = term * square >> work
        total += term // n
    part = (2 * total << work) // ln2(work)
    value = (k << work) + (part if m > one else -part)
    error = 6 * n + 32
    size = abs(value)
    return int(value < 0), (size - error, size + error, -work)


def log2(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Log2."""
    x = fmt.decode(a)
    special = _log2_if_nan_infinite_zero_or_negative(fmt, x)
    if special is not None:
        return special
    if not x.m & (x.m - 1):  # a power of two: exact
        k = x.m.bit_length() - 1 + x.e
        return float_result(fmt, fmt.encode(int(k < 0), abs(k), 0))
    sign = log2_sign_and_magnitude_enclosure(x.m, x.e, 8)[0]
    r, q = round_irrational_by_enclosures(fmt, lambda bits: log2_sign_and_magnitude_enclosure(x.m, x.e, bits)[1])
    return floats_within_ulps(fmt, sign, r, q, ulp_allowance(fmt, core))


def _log2_if_nan_infinite_zero_or_negative(fmt: FloatFormat, x: Real) -> AnswerSet | None:
    if x.kind == NAN or (x.sign and (x.kind == INFINITE or x.m)):
        return any_nan(fmt)
    if x.kind == INFINITE:
        return float_result(fmt, fmt.infinity(0))
    return None if x.m else float_result(fmt, fmt.infinity(1))


# Sin


def sin_sign_and_magnitude_enclosure(m: int, e: int, bits: int) -> tuple[int, Enclosure]:
    """Return the sign of sin(m * 2**e), m > 0, and an enclosure of its size with about `bits` correct bits after the point."""
    length = m.bit_length() + e
    work = bits + 4
    fine = work + max(length, 0) + 2
    half = pi(fine - 1)  # pi / 2 in units of 2**-fine
    x = to_fixed_point(m, e, fine)
    n = (2 * x + half) // (2 * half)
    r = (x - n * half) >> (fine - work)  # n * (error of half) is below one unit of 2**-work
    value = _cos_taylor(r, work) if n & 1 else _sin_taylor(r, work)
    if n & 2:
        value = -value
    error = 3 * work.bit_length() * 4 + 64
    size = abs(value)
    return int(value < 0), (size - error, size + error, -work)


def _sin_taylor(r: int, fraction_bits: int) -> int:
    """Return sin(r / 2**b) in units of 2**-b, b = `fraction_bits`, for |r| / 2**b not much above pi / 4."""
    u = abs(r)
    square = u * u >> fraction_bits
    total = term = u
    n = 1
    while term:
        term = (term * square >> fraction_bits) // ((n + 1) * (n + 2))
        n += 2
        total += -term if n & 2 else term
    return -total if r < 0 else total


def _cos_taylor(r: int, fraction_bits: int) -> int:
    """Return cos(r / 2**b) in units of 2**-b, b = `fraction_bits`, for |r| / 2**b not much above pi / 4."""
    square = r * r >> fraction_bits
    total = term = 1 << fraction_bits
    n = 0
    while term:
        term = (term * square >> fraction_bits) // ((n + 1) * (n + 2))
        n += 2
        total += -term if n & 2 else term
    return total


def _enclose_small_sin(m: int, e: int, precision: int) -> Enclosure:
    """Return x - x**3 / 6 < sin x < x as an enclosure, for 0 < x < 2**-precision."""
    return (m << 2 * precision) - m, m << 2 * precision, e - 2 * precision


def evaluate_sin_adding_absolute_error_in_core(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Sin."""
    x = fmt.decode(a)
    if x.kind:
        return any_nan(fmt)
    if not x.m:
        return float_result(fmt, a)
    length = x.m.bit_length() + x.e
    if length < -fmt.precision:
        sign, (low, _, e) = 0, _enclose_small_sin(x.m, x.e, fmt.precision)
        r, q = fmt.round_without_overflow(low, e)
    else:
        (r, q), sign = _round_sin_and_find_sign(fmt, x.m, x.e, max(-length, 0))
    return floats_within_ulps(fmt, sign ^ x.sign, r, q, ulp_allowance(fmt, core), -20 if core else None)


def _round_sin_and_find_sign(fmt: FloatFormat, m: int, e: int, extra_start_bits: int) -> tuple[Dyadic, int]:
    """Return the size of sin(m * 2**e) correctly rounded, and its sign."""
    signs = [0]

    def enclose(bits: int) -> Enclosure:
        signs[0], enclosure = sin_sign_and_magnitude_enclosure(m, e, bits)
        return enclosure

    rounded = round_irrational_by_enclosures(fmt, enclose, extra_start_bits)
    return rounded, signs[0]


# Decompositions, evaluated with the allowances of core (P3)


def hull_of_exp2_of_product(fmt: FloatFormat, logs: AnswerSet, factor_bits: int) -> AnswerSet:
    """Return the hull of Exp2(Mul(L, factor)), each op rounded with core's allowances, for L in the answers `logs`."""
    ends = [logs.best]
    if logs.span:
        ends += [fmt.from_key(k) for k in logs.span]
    if logs.nan:
        ends.append(fmt.nan)
    return reduce(unite_in_float_hull, [exp2(fmt, True, mul(fmt, True, end, factor_bits).best) for end in ends])


def evaluate_sqrt_with_core_decomposition(fmt: FloatFormat, core: bool, a: int) -> AnswerSet:
    """Return the allowed answers of Sqrt; core also allows the results of Exp2(0.5 * Log2(a)) (R16)."""
    rounded = float_result(fmt, sqrt_and_round(fmt, fmt.decode(a)))
    if not core:
        return rounded
    return unite_in_float_hull(rounded, hull_of_exp2_of_product(fmt, log2(fmt, True, a), fmt.encode(0, 1, -1)))
