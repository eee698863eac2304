"""Float formats in integers: bit patterns are decoded to exact dyadic numbers and encoded by one rounding (R15, R16, R19).

An element is held as its *bit pattern*, a Python int: 0 or 1 for bool, 0 .. 2**n - 1 for an n-bit dtype, and the unbounded signed
value itself for `index` (R28, R29). Finite floats are `(-1)**sign * m * 2**e` with integers m >= 0 and e, so nothing here rounds
unless it says so.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import NamedTuple

from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import FLOATS, DType, DTypeKind, float64

#: Kinds of a `Real`.
FINITE, INFINITE, NAN = 0, 1, 2
#: (m, e), which stands for m * 2**e.
Dyadic = tuple[int, int]


class Real(NamedTuple):
    """A decoded float: `kind` is FINITE (zero included, m = 0), INFINITE or NAN; m and e matter for FINITE only."""

    kind: int
    sign: int
    m: int
    e: int


class FloatFormat:
    """The layout of one float dtype, as integers.

    `unit` is the exponent of the least subnormal, `top` that of the last binade's spacing. `max_mag` and `inf_mag` are
    magnitudes: bit patterns without the sign. In a finite-only dtype `inf_mag` is the NaN pattern, which stands for infinity (R15).
    """

    __slots__ = (
        "_decoded", "bits", "dtype", "has_inf", "hidden", "inf_mag", "mag_mask", "man_bits", "max_mag", "nan", "precision",
        "sign_bit", "top", "unit",
    )  # fmt: skip

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.bits = dtype.bits
        self.man_bits = dtype.man_bits
        self.precision = dtype.man_bits + 1
        self.hidden = 1 << dtype.man_bits
        self.sign_bit = 1 << (dtype.bits - 1)
        self.mag_mask = self.sign_bit - 1
        self.has_inf = dtype.has_inf
        self.unit = dtype.min_exponent - dtype.man_bits
        self.inf_mag = ((1 << dtype.exp_bits) - 1) << dtype.man_bits if dtype.has_inf else self.mag_mask
        self.max_mag = self.inf_mag - 1
        self.nan = self.inf_mag | (self.hidden >> 1) if dtype.has_inf else self.mag_mask
        self.top = (self.max_mag >> self.man_bits) - 1 + self.unit
        self._decoded: dict[int, Real] = {}

    def __repr__(self) -> str:
        return f"FloatFormat({self.dtype.name})"

    def decode(self, bits: int) -> Real:
        """Return the exact number of a bit pattern; patterns of at most 16 bits are memoized."""
        real = self._decoded.get(bits)
        if real is None:
            real = self._decode_pattern(bits)
            if self.bits <= 16:
                self._decoded[bits] = real
        return real

    def _decode_pattern(self, bits: int) -> Real:
        mag, sign = bits & self.mag_mask, bits >> (self.bits - 1)
        if mag > self.max_mag:
            return Real(INFINITE if self.has_inf and mag == self.inf_mag else NAN, sign, 0, 0)
        field = mag >> self.man_bits
        if not field:
            return Real(FINITE, sign, mag, self.unit)
        return Real(FINITE, sign, (mag & (self.hidden - 1)) | self.hidden, self.unit + field - 1)

    def is_nan(self, bits: int) -> bool:
        """Return True if a bit pattern is a NaN."""
        mag = bits & self.mag_mask
        return mag > self.inf_mag or (mag == self.inf_mag and not self.has_inf)

    def encode(self, sign: int, m: int, e: int) -> int:
        """Return `(-1)**sign * m * 2**e` rounded once to nearest even.

        Subnormals are kept (R19), and an overflow gives infinity, or NaN in a finite-only dtype.
        """
        shift = m.bit_length() + e - self.precision
        if shift < self.unit:
            shift = self.unit
        shift -= e
        if shift <= 0:
            r = m << -shift
        else:
            r = m >> shift
            rest, half = m & ((1 << shift) - 1), 1 << (shift - 1)
            if rest > half or (rest == half and r & 1):
                r += 1
        # r carries its hidden bit, which adds one to the exponent field; so does a carry out of the rounding
        mag = ((e + shift - self.unit) << self.man_bits) + r if r else 0
        if mag > self.max_mag:
            mag = self.inf_mag
        return mag | self.sign_bit if sign else mag

    def round_without_overflow(self, m: int, e: int) -> Dyadic:
        """Return m * 2**e, m > 0, rounded to nearest even without an upper limit, as (r, q) with r < 2**precision."""
        q = max(m.bit_length() + e - self.precision, self.unit)
        shift = q - e
        if shift <= 0:
            return m << -shift, q
        r = m >> shift
        rest, half = m & ((1 << shift) - 1), 1 << (shift - 1)
        if rest > half or (rest == half and r & 1):
            r += 1
        return (r >> 1, q + 1) if r == self.hidden << 1 else (r, q)

    def infinity(self, sign: int) -> int:
        """Return infinity, or in a finite-only dtype the NaN that stands for it."""
        return self.inf_mag | (self.sign_bit if sign else 0)

    def zero(self, sign: int) -> int:
        """Return the zero of a sign."""
        return self.sign_bit if sign else 0

    @property
    def one(self) -> int:
        """The bit pattern of 1."""
        return self.encode(0, 1, 0)

    # Keys: the non-NaN values in order, as signed magnitudes. Both zeros have key 0; infinity is one above the largest finite.

    def key(self, bits: int) -> int:
        """Return the order key of a bit pattern that is no NaN."""
        mag = bits & self.mag_mask
        return -mag if bits & self.sign_bit else mag

    def from_key(self, key: int) -> int:
        """Return the bit pattern with an order key; +0.0 for key 0."""
        return key if key >= 0 else -key | self.sign_bit

    def _round_magnitude_down_or_up(self, m: int, e: int, up: bool) -> int:
        """Return the magnitude of the nearest float at or below m * 2**e >= 0, or at or above it if `up`; at most `inf_mag`."""
        shift = max(m.bit_length() + e - self.precision, self.unit) - e
        r = m << -shift if shift <= 0 else m >> shift
        if up and shift > 0 and m & ((1 << shift) - 1):
            r += 1
        return min(((e + shift - self.unit) << self.man_bits) + r, self.inf_mag) if r else 0

    def key_floor(self, m: int, e: int) -> int:
        """Return the key of the greatest float at or below m * 2**e, m of either sign.

        Infinity counts as the next power of two. The NaN that stands for it in fp8e4m3 counts as 480, one spacing above 448.
        """
        return self._round_magnitude_down_or_up(m, e, False) if m >= 0 else -self._round_magnitude_down_or_up(-m, e, True)

    def key_ceil(self, m: int, e: int) -> int:
        """Return the key of the least float at or above m * 2**e."""
        return self._round_magnitude_down_or_up(m, e, True) if m >= 0 else -self._round_magnitude_down_or_up(-m, e, False)


#: The format of each float dtype.
FORMATS: dict[DType, FloatFormat] = {d: FloatFormat(d) for d in FLOATS}


def round_fraction(sign: int, value: Fraction, fmt: FloatFormat) -> int:
    """Return the bits of (-1)**sign * value, value >= 0, rounded once to nearest even."""
    m, e = divide_with_sticky_bit(value.numerator, value.denominator, fmt.precision + 3)
    return fmt.encode(sign, m, e)


def divide_with_sticky_bit(num: int, den: int, bits: int) -> Dyadic:
    """Return num / den >= 0 as (m, e) with at least `bits` bits, the last one set if the division left a rest.

    To round m * 2**e to fewer than bits - 1 bits is to round num / den itself.
    """
    e = min(num.bit_length() - den.bit_length() - bits, 0)
    q, rest = divmod(num << -e, den)
    return (q << 1) | (1 if rest else 0), e - 1


def round_to(dtype: DType, value: Fraction | int, sign: int | None = None) -> int:
    """Return the bits of `value` rounded once to `dtype`; `sign` (0 or 1) decides the sign of a zero result."""
    negative = value < 0 or (value == 0 and bool(sign))
    return round_fraction(int(negative), abs(Fraction(value)), FORMATS[dtype])


def decode_integer(dtype: DType, bits: int) -> int:
    """Return the integer of a bit pattern of a bool, machine integer or index."""
    if dtype.kind is DTypeKind.INT and bits >> (dtype.bits - 1):
        return bits - (1 << dtype.bits)
    return bits


def wrap_integer(dtype: DType, value: int) -> int:
    """Return the bit pattern of an integer reduced modulo 2**n (R05); index keeps it."""
    return value if dtype.kind is DTypeKind.INDEX else value & ((1 << dtype.bits) - 1)


def bits_of(dtype: DType, value: bool | int | float | Fraction) -> int:
    """Return the bit pattern of a Python number: integers wrap to an integer dtype, reals round once to a float dtype.

    A NaN keeps its sign and the leading bits of its payload. Raises SpecError for a fraction in an integer dtype.
    """
    if dtype.kind is DTypeKind.FLOAT:
        if isinstance(value, float):
            return _encode_python_float(FORMATS[dtype], value)
        return round_to(dtype, value)
    if dtype.kind is DTypeKind.VOID or value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise SpecError(f"R23: {value!r} is not a value of {dtype.name}")
    return int(bool(value)) if dtype.kind is DTypeKind.BOOL else wrap_integer(dtype, int(value))


def _encode_python_float(fmt: FloatFormat, value: float) -> int:
    wide = FORMATS[float64]
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    if fmt is wide:
        return bits
    real = wide.decode(bits)
    if real.kind == FINITE:
        return fmt.encode(real.sign, real.m, real.e)
    if real.kind == INFINITE:
        return fmt.infinity(real.sign)
    payload = (bits & (wide.hidden - 1)) >> (wide.man_bits - fmt.man_bits) if fmt.has_inf else 0
    return fmt.nan | payload | fmt.zero(real.sign)


def python_number(dtype: DType, bits: int) -> bool | int | float:
    """Return the Python number of a bit pattern; it is exact, as every float dtype fits in a Python float."""
    if dtype.kind is DTypeKind.FLOAT:
        real = FORMATS[dtype].decode(bits)
        if real.kind == NAN:
            return float("nan")
        wide = FORMATS[float64]
        out = wide.infinity(real.sign) if real.kind == INFINITE else wide.encode(real.sign, real.m, real.e)
        return float(struct.unpack("<d", struct.pack("<Q", out))[0])
    return bool(bits) if dtype.kind is DTypeKind.BOOL else decode_integer(dtype, bits)


def exact_fraction(dtype: DType, bits: int) -> Fraction | None:
    """Return the exact value of a bit pattern; None for a NaN or an infinity."""
    if dtype.kind is not DTypeKind.FLOAT:
        return Fraction(decode_integer(dtype, bits))
    real = FORMATS[dtype].decode(bits)
    return dyadic(-real.m if real.sign else real.m, real.e) if real.kind == FINITE else None


def dyadic(m: int, e: int) -> Fraction:
    """Return m * 2**e as a Fraction."""
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)
