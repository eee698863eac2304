"""Cast between every two kinds of dtype, each with one rounding (R15, R29)."""

from __future__ import annotations

from collections.abc import Callable

from uops.interp.exact.answers import Answer, anything, either, settled
from uops.interp.exact.numbers.formats import FINITE, FORMATS, INFINITE, NAN, Format, Real, int_value, wrap
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.dtypes import DType, Kind, fp8e4m3, fp8e5m2


def _whole(x: Real) -> int:
    """A finite float truncated toward zero."""
    size = x.m << x.e if x.e >= 0 else x.m >> -x.e
    return -size if x.sign else size


def _to_float(fmt: Format, x: Real, core: bool) -> Answer:
    """One rounding; an fp8 result that overflows may saturate under core."""
    if x.kind == NAN:
        return settled(fmt, fmt.nan)
    bits = fmt.encode(x.sign, x.m, x.e) if x.kind == FINITE else fmt.infinity(x.sign)
    if core and fmt.dtype in (fp8e4m3, fp8e5m2) and bits & fmt.mag_mask > fmt.max_mag:
        return either(fmt.dtype, bits, fmt.max_mag | fmt.zero(x.sign))
    return settled(fmt, bits)


def _float_to_float(source: DType, out: DType, bits: int, core: bool) -> Answer:
    if source is out:
        return settled(FORMATS[out], bits)
    return _to_float(FORMATS[out], FORMATS[source].decode(bits), core)


def _int_to_float(source: DType, out: DType, bits: int, core: bool) -> Answer:
    value = int_value(source, bits)
    return _to_float(FORMATS[out], Real(FINITE, int(value < 0), abs(value), 0), core)


def _float_to_int(source: DType, out: DType, bits: int, core: bool) -> Answer:
    """Truncates toward zero, saturates, NaN gives 0; core leaves everything out of range free."""
    x = FORMATS[source].decode(bits)
    low, high = int(out.min), int(out.max)
    value = _whole(x) if x.kind == FINITE else (0 if x.kind == NAN else (low if x.sign else high))
    inside = min(max(value, low), high)
    answer = Answer(out, wrap(out, inside))
    return anything(out, answer.best) if core and (x.kind != FINITE or value != inside) else answer


def _float_to_index(source: DType, out: DType, bits: int, core: bool) -> Answer:
    x = FORMATS[source].decode(bits)
    if x.kind != FINITE:
        raise Trap(f"R29: cast of {'an infinity' if x.kind == INFINITE else 'NaN'} to index")
    return Answer(out, _whole(x))


def _float_to_bool(source: DType, out: DType, bits: int, core: bool) -> Answer:
    return Answer(out, int(bits & FORMATS[source].mag_mask != 0))


def _int_to_bool(source: DType, out: DType, bits: int, core: bool) -> Answer:
    return Answer(out, int(bits != 0))


def _int_to_int(source: DType, out: DType, bits: int, core: bool) -> Answer:
    return Answer(out, wrap(out, int_value(source, bits)))


CastRule = Callable[[DType, DType, int, bool], Answer]
_WHOLE = (Kind.INT, Kind.UINT, Kind.INDEX)

CASTS: dict[tuple[Kind, Kind], CastRule] = {
    **{(a, b): _int_to_int for a in (*_WHOLE, Kind.BOOL) for b in _WHOLE},
    **{(a, Kind.BOOL): _int_to_bool for a in (*_WHOLE, Kind.BOOL)},
    **{(a, Kind.FLOAT): _int_to_float for a in (*_WHOLE, Kind.BOOL)},
    (Kind.FLOAT, Kind.FLOAT): _float_to_float,
    (Kind.FLOAT, Kind.BOOL): _float_to_bool,
    (Kind.FLOAT, Kind.INT): _float_to_int,
    (Kind.FLOAT, Kind.UINT): _float_to_int,
    (Kind.FLOAT, Kind.INDEX): _float_to_index,
}


def cast(source: DType, out: DType, bits: int, core: bool = False) -> Answer:
    """The element `bits` of `source` converted to `out`."""
    rule = CASTS.get((source.kind, out.kind))
    if rule is None:
        raise SpecError(f"R24: no cast from {source.name} to {out.name}")
    return rule(source, out, bits, core)
