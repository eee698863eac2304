"""Exp2, Log2, Sin and Sqrt's core bound: correctly rounded results by interval arithmetic in big integers (R17).

An *enclosure* is (low, high, e) with low * 2**e <= |f(x)| <= high * 2**e. `correctly_rounded` asks for tighter ones until both ends
round to the same float; the results are irrational where it is used, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.interp.exact.answers import Answer, any_nan, hull, near, settled
from uops.interp.exact.numbers.arithmetic import mul, root
from uops.interp.exact.numbers.constants import ln2, pi
from uops.interp.exact.numbers.formats import INFINITE, NAN, Format, Real
from uops.spec.errors import Crash
from uops.spec.ir.dtypes import float32, float64

Enclosure = tuple[int, int, int]
_GUARD = 24
_LIMIT = 1 << 16


def allowance(fmt: Format, core: bool) -> int:
    """Units in the last place that R17 grants."""
    return 4 if core else 2 if fmt.dtype in (float32, float64) else 1


def correctly_rounded(fmt: Format, enclose: Callable[[int], Enclosure], start: int = 0) -> tuple[int, int]:
    """`Format.grid` of a positive irrational number; `enclose(p)` has about p correct bits, starting with `start` more."""
    bits = fmt.precision + _GUARD + start
    while bits < _LIMIT:
        low, high, e = enclose(bits)
        if low > 0:
            found = fmt.grid(low, e)
            if found == fmt.grid(high, e):
                return found
        bits *= 2
    raise Crash("an enclosure did not converge: its number is a midpoint or a zero")


def scaled(m: int, e: int, bits: int) -> int:
    """floor(m * 2**(e + bits))."""
    return m << (e + bits) if e + bits >= 0 else m >> -(e + bits)


# Exp2


def exp2_fixed(x: int, bits: int) -> tuple[int, int, int]:
    """2**(x / 2**bits) is y * 2**(k - bits) with y within `error` units, y about 2**bits; gives (y, error, k)."""
    k, f = x >> bits, x & ((1 << bits) - 1)
    t = f * ln2(bits) >> bits
    y = term = 1 << bits
    n = 0
    while term:
        n += 1
        term = (term * t >> bits) // n
        y += term
    return y, 3 * n + 16, k


def exp2_enclosure(m: int, e: int, bits: int) -> Enclosure:
    """2**(m * 2**e), m of either sign."""
    y, error, k = exp2_fixed(scaled(m, e, bits), bits)
    return y - error, y + error, k - bits


def exp2_grid(fmt: Format, m: int, e: int) -> tuple[int, int] | None:
    """Correctly rounded 2**(m * 2**e) without an upper limit; None if the exponent is no integer within reach of the format."""
    if m.bit_length() + e > fmt.dtype.exp_bits + 4:
        return None
    if e >= 0 or not m & ((1 << -e) - 1):
        return fmt.grid(1, scaled(m, e, 0))
    return correctly_rounded(fmt, lambda bits: exp2_enclosure(m, e, bits))


def exp2(fmt: Format, core: bool, a: int) -> Answer:
    x = fmt.decode(a)
    if x.kind == NAN:
        return any_nan(fmt)
    if x.kind == INFINITE:
        return settled(fmt, 0 if x.sign else fmt.infinity(0))
    m = -x.m if x.sign else x.m
    found = exp2_grid(fmt, m, x.e)
    if found is None:
        return near(fmt, 0, 0, fmt.unit, allowance(fmt, core)) if x.sign else settled(fmt, fmt.infinity(0))
    r, q = found
    whole = x.e >= 0 or not x.m & ((1 << -x.e) - 1)
    if whole and r:
        return settled(fmt, fmt.encode(0, r, q))
    return near(fmt, 0, r, q, allowance(fmt, core))


# Log2


def log2_enclosure(m: int, e: int, bits: int) -> tuple[int, Enclosure]:
    """Sign of log2(m * 2**e) and an enclosure of its size with about `bits` correct bits; m > 0, not a power of two times 2**e."""
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


def log2(fmt: Format, core: bool, a: int) -> Answer:
    x = fmt.decode(a)
    special = _log2_special(fmt, x)
    if special is not None:
        return special
    if not x.m & (x.m - 1):  # a power of two: exact
        k = x.m.bit_length() - 1 + x.e
        return settled(fmt, fmt.encode(int(k < 0), abs(k), 0))
    sign = log2_enclosure(x.m, x.e, 8)[0]
    r, q = correctly_rounded(fmt, lambda bits: log2_enclosure(x.m, x.e, bits)[1])
    return near(fmt, sign, r, q, allowance(fmt, core))


def _log2_special(fmt: Format, x: Real) -> Answer | None:
    if x.kind == NAN or (x.sign and (x.kind == INFINITE or x.m)):
        return any_nan(fmt)
    if x.kind == INFINITE:
        return settled(fmt, fmt.infinity(0))
    return None if x.m else settled(fmt, fmt.infinity(1))


# Sin


def sin_enclosure(m: int, e: int, bits: int) -> tuple[int, Enclosure]:
    """Sign of sin(m * 2**e), m > 0, and an enclosure of its size; about `bits` correct bits of the unit, not of the result."""
    length = m.bit_length() + e
    work = bits + 4
    fine = work + max(length, 0) + 2
    half = pi(fine - 1)  # pi / 2 in units of 2**-fine
    x = scaled(m, e, fine)
    n = (2 * x + half) // (2 * half)
    r = (x - n * half) >> (fine - work)  # n * (error of half) is below one unit of 2**-work
    value = _cos(r, work) if n & 1 else _sin(r, work)
    if n & 2:
        value = -value
    error = 3 * work.bit_length() * 4 + 64
    size = abs(value)
    return int(value < 0), (size - error, size + error, -work)


def _sin(r: int, work: int) -> int:
    """sin(r / 2**work) for |r| below pi / 4 and a little."""
    u = abs(r)
    square = u * u >> work
    total = term = u
    n = 1
    while term:
        term = (term * square >> work) // ((n + 1) * (n + 2))
        n += 2
        total += -term if n & 2 else term
    return -total if r < 0 else total


def _cos(r: int, work: int) -> int:
    square = r * r >> work
    total = term = 1 << work
    n = 0
    while term:
        term = (term * square >> work) // ((n + 1) * (n + 2))
        n += 2
        total += -term if n & 2 else term
    return total


def _sin_small(m: int, e: int, precision: int) -> Enclosure:
    """x - x**3 / 6 < sin x < x, for 0 < x < 2**-precision."""
    return (m << 2 * precision) - m, m << 2 * precision, e - 2 * precision


def sin(fmt: Format, core: bool, a: int) -> Answer:
    x = fmt.decode(a)
    if x.kind:
        return any_nan(fmt)
    if not x.m:
        return settled(fmt, a)
    length = x.m.bit_length() + x.e
    if length < -fmt.precision:
        sign, (low, _, e) = 0, _sin_small(x.m, x.e, fmt.precision)
        r, q = fmt.grid(low, e)
    else:
        r, q, sign = _sin_grid(fmt, x.m, x.e, max(-length, 0))
    return near(fmt, sign ^ x.sign, r, q, allowance(fmt, core), -20 if core else None)


def _sin_grid(fmt: Format, m: int, e: int, start: int) -> tuple[int, int, int]:
    signs = [0]

    def enclose(bits: int) -> Enclosure:
        signs[0], found = sin_enclosure(m, e, bits)
        return found

    r, q = correctly_rounded(fmt, enclose, start)
    return r, q, signs[0]


# Decompositions, evaluated with core's freedom (P3)


def through_exp2(fmt: Format, logs: Answer, factor: int) -> Answer:
    """All results of Exp2(Mul(L, factor)), rounded per op with core's allowances, for L in the answer set `logs`."""
    ends = [logs.best]
    if logs.span:
        ends += [fmt.from_key(k) for k in logs.span]
    if logs.nan:
        ends.append(fmt.nan)
    answers = [exp2(fmt, True, mul(fmt, True, end, factor).best) for end in ends]
    out = answers[0]
    for other in answers[1:]:
        out = hull(out, other)
    return out


def sqrt(fmt: Format, core: bool, a: int) -> Answer:
    """Correctly rounded; core also allows what Exp2(0.5 * Log2(a)) can give (R16)."""
    right = settled(fmt, root(fmt, fmt.decode(a)))
    if not core:
        return right
    return hull(right, through_exp2(fmt, log2(fmt, True, a), fmt.encode(0, 1, -1)))
