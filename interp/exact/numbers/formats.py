"""Float formats in integers: a bit pattern is decoded to an exact dyadic number and encoded by one rounding (R15, R16, R19).

An element is held as its *bit pattern*, a Python int: 0 or 1 for bool, 0 .. 2**n - 1 for an n-bit dtype, and the unbounded
signed value itself for `index` (R28, R29). Finite floats are `(-1)**sign * m * 2**e` with integers m >= 0 and e, so no arithmetic
here can round unless it says so.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import NamedTuple

from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import FLOATS, DType, Kind, float64

FINITE, INFINITE, NAN = 0, 1, 2


class Real(NamedTuple):
    """A decoded float: `kind` FINITE (zero included, m = 0), INFINITE or NAN; m and e matter for FINITE only."""

    kind: int
    sign: int
    m: int
    e: int


class Format:
    """One float dtype's layout, as integers.

    `unit` is the exponent of the least subnormal, `top` that of the last binade's spacing; `max_mag` and `inf_mag` are magnitudes
    (bit patterns without the sign). For fp8e4m3 `inf_mag` is the NaN pattern: that is what stands where infinity would (R15).
    """

    __slots__ = (
        "_known", "bits", "dtype", "has_inf", "hidden", "inf_mag", "mag_mask", "man_bits", "max_mag", "nan", "precision",
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
        self.unit = 1 - dtype.bias - dtype.man_bits
        self.inf_mag = ((1 << dtype.exp_bits) - 1) << dtype.man_bits if dtype.has_inf else self.mag_mask
        self.max_mag = self.inf_mag - 1
        self.nan = self.inf_mag | (self.hidden >> 1) if dtype.has_inf else self.mag_mask
        self.top = (self.max_mag >> self.man_bits) - 1 + self.unit
        self._known: dict[int, Real] = {}

    def __repr__(self) -> str:
        return f"Format({self.dtype.name})"

    def decode(self, bits: int) -> Real:
        """The exact number behind a bit pattern; patterns of at most 16 bits are remembered."""
        known = self._known.get(bits)
        if known is None:
            known = self._decode(bits)
            if self.bits <= 16:
                self._known[bits] = known
        return known

    def _decode(self, bits: int) -> Real:
        mag, sign = bits & self.mag_mask, bits >> (self.bits - 1)
        if mag > self.max_mag:
            return Real(INFINITE if self.has_inf and mag == self.inf_mag else NAN, sign, 0, 0)
        field = mag >> self.man_bits
        if not field:
            return Real(FINITE, sign, mag, self.unit)
        return Real(FINITE, sign, (mag & (self.hidden - 1)) | self.hidden, self.unit + field - 1)

    def is_nan(self, bits: int) -> bool:
        mag = bits & self.mag_mask
        return mag > self.inf_mag or (mag == self.inf_mag and not self.has_inf)

    def encode(self, sign: int, m: int, e: int) -> int:
        """`(-1)**sign * m * 2**e` rounded once to nearest even; subnormals kept, overflow to infinity (fp8e4m3: NaN)."""
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

    def grid(self, m: int, e: int) -> tuple[int, int]:
        """m * 2**e, m > 0, rounded to nearest even without an upper limit: (r, q) is r * 2**q, with r < 2**precision."""
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
        """Infinity, or the NaN that stands for it in fp8e4m3."""
        return self.inf_mag | (self.sign_bit if sign else 0)

    def zero(self, sign: int) -> int:
        return self.sign_bit if sign else 0

    @property
    def one(self) -> int:
        return self.encode(0, 1, 0)

    # Keys: the non-NaN values in order, as signed magnitudes. Both zeros have key 0; infinity is one above the largest finite.

    def key(self, bits: int) -> int:
        mag = bits & self.mag_mask
        return -mag if bits & self.sign_bit else mag

    def from_key(self, key: int) -> int:
        return key if key >= 0 else -key | self.sign_bit

    def _mag(self, m: int, e: int, up: bool) -> int:
        """Magnitude of the nearest float at or below (at or above if `up`) m * 2**e >= 0; from 2**(emax + 1) on, `inf_mag`."""
        shift = max(m.bit_length() + e - self.precision, self.unit) - e
        r = m << -shift if shift <= 0 else m >> shift
        if up and shift > 0 and m & ((1 << shift) - 1):
            r += 1
        return min(((e + shift - self.unit) << self.man_bits) + r, self.inf_mag) if r else 0

    def key_floor(self, m: int, e: int) -> int:
        """Key of the greatest float at or below m * 2**e, m of either sign; infinity counts as the next power of two."""
        return self._mag(m, e, False) if m >= 0 else -self._mag(-m, e, True)

    def key_ceil(self, m: int, e: int) -> int:
        return self._mag(m, e, True) if m >= 0 else -self._mag(-m, e, False)


FORMATS: dict[DType, Format] = {d: Format(d) for d in FLOATS}


def ratio(sign: int, value: Fraction, fmt: Format) -> int:
    """Bits of (-1)**sign * value, value >= 0, rounded once to nearest even."""
    m, e = sticky(value.numerator, value.denominator, fmt.precision + 3)
    return fmt.encode(sign, m, e)


def sticky(num: int, den: int, bits: int) -> tuple[int, int]:
    """num / den >= 0 as m * 2**e with at least `bits` bits, the last one set when the division left a rest.

    Rounding m * 2**e to fewer than bits - 1 bits is rounding num / den itself.
    """
    e = min(num.bit_length() - den.bit_length() - bits, 0)
    q, rest = divmod(num << -e, den)
    return (q << 1) | (1 if rest else 0), e - 1


def round_to(dtype: DType, value: Fraction | int, sign: int | None = None) -> int:
    """Bits of `value` rounded once to `dtype`; `sign` (0 or 1) decides the sign of a zero result."""
    negative = value < 0 or (value == 0 and bool(sign))
    return ratio(int(negative), abs(Fraction(value)), FORMATS[dtype])


def int_value(dtype: DType, bits: int) -> int:
    """The integer behind a bit pattern of a bool, machine integer or index."""
    if dtype.kind is Kind.INT and bits >> (dtype.bits - 1):
        return bits - (1 << dtype.bits)
    return bits


def wrap(dtype: DType, value: int) -> int:
    """Bit pattern of an integer reduced modulo 2**n (R05); index keeps it."""
    return value if dtype.kind is Kind.INDEX else value & ((1 << dtype.bits) - 1)


def bits_of(dtype: DType, value: bool | int | float | Fraction) -> int:
    """Bit pattern of a Python number: integers wrap to an integer dtype, reals round once to a float dtype.

    A NaN keeps its sign and the leading bits of its payload. Raises SpecError for a fraction in an integer dtype.
    """
    if dtype.kind is Kind.FLOAT:
        if isinstance(value, float):
            return _of_float(FORMATS[dtype], value)
        return round_to(dtype, value)
    if dtype.kind is Kind.VOID or value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise SpecError(f"R23: {value!r} is not a value of {dtype.name}")
    return int(bool(value)) if dtype.kind is Kind.BOOL else wrap(dtype, int(value))


def _of_float(fmt: Format, value: float) -> int:
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


def number(dtype: DType, bits: int) -> bool | int | float:
    """The Python number of a bit pattern; exact, since every float dtype fits in a Python float."""
    if dtype.kind is Kind.FLOAT:
        real = FORMATS[dtype].decode(bits)
        if real.kind == NAN:
            return float("nan")
        wide = FORMATS[float64]
        out = wide.infinity(real.sign) if real.kind == INFINITE else wide.encode(real.sign, real.m, real.e)
        return float(struct.unpack("<d", struct.pack("<Q", out))[0])
    return bool(bits) if dtype.kind is Kind.BOOL else int_value(dtype, bits)


def fraction(dtype: DType, bits: int) -> Fraction | None:
    """The exact value of a bit pattern, None for a NaN or an infinity."""
    if dtype.kind is not Kind.FLOAT:
        return Fraction(int_value(dtype, bits))
    real = FORMATS[dtype].decode(bits)
    return dyadic(-real.m if real.sign else real.m, real.e) if real.kind == FINITE else None


def dyadic(m: int, e: int) -> Fraction:
    """m * 2**e as a Fraction."""
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)
