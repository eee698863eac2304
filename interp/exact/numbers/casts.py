"""Casts between every two kinds of dtype, each with one rounding (R15, R29)."""

from __future__ import annotations

from collections.abc import Callable

from uops.interp.exact.answers import AnswerSet, anything, float_result, one_of
from uops.interp.exact.numbers.formats import FINITE, FORMATS, INFINITE, NAN, FloatFormat, Real, decode_integer, wrap_integer
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.dtypes import DType, DTypeKind


def _truncate(x: Real) -> int:
    """Return a finite float truncated toward zero."""
    size = x.m << x.e if x.e >= 0 else x.m >> -x.e
    return -size if x.sign else size


def _round_to_float_or_saturate_fp8_in_core(fmt: FloatFormat, x: Real, core: bool) -> AnswerSet:
    """Return a number rounded once; an fp8 result that overflows may saturate under core."""
    if x.kind == NAN:
        return float_result(fmt, fmt.nan)
    bits = fmt.encode(x.sign, x.m, x.e) if x.kind == FINITE else fmt.infinity(x.sign)
    if core and fmt.dtype.may_saturate and bits & fmt.mag_mask > fmt.max_mag:
        return one_of(fmt.dtype, bits, fmt.max_mag | fmt.zero(x.sign))
    return float_result(fmt, bits)


def _float_to_float(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    if source is out:
        return float_result(FORMATS[out], bits)
    return _round_to_float_or_saturate_fp8_in_core(FORMATS[out], FORMATS[source].decode(bits), core)


def _int_to_float(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    value = decode_integer(source, bits)
    return _round_to_float_or_saturate_fp8_in_core(FORMATS[out], Real(FINITE, int(value < 0), abs(value), 0), core)


def _float_to_int_with_saturation(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    """Truncate toward zero and saturate; NaN gives 0. Core allows anything for a value out of range (R15)."""
    x = FORMATS[source].decode(bits)
    low, high = int(out.min), int(out.max)
    value = _truncate(x) if x.kind == FINITE else (0 if x.kind == NAN else (low if x.sign else high))
    clamped = min(max(value, low), high)
    answer = AnswerSet(out, wrap_integer(out, clamped))
    return anything(out, answer.best) if core and (x.kind != FINITE or value != clamped) else answer


def _float_to_index_trapping_non_finite(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    x = FORMATS[source].decode(bits)
    if x.kind != FINITE:
        raise Trap(f"R29: cast of {'an infinity' if x.kind == INFINITE else 'NaN'} to index")
    return AnswerSet(out, _truncate(x))


def _float_to_bool(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    return AnswerSet(out, int(bits & FORMATS[source].mag_mask != 0))


def _int_to_bool(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    return AnswerSet(out, int(bits != 0))


def _int_to_int(source: DType, out: DType, bits: int, core: bool) -> AnswerSet:
    return AnswerSet(out, wrap_integer(out, decode_integer(source, bits)))


#: (source dtype, result dtype, bits, core level?) -> allowed answer
CastRule = Callable[[DType, DType, int, bool], AnswerSet]
_INTEGER_KINDS = (DTypeKind.INT, DTypeKind.UINT, DTypeKind.INDEX)

#: (kind of the source, kind of the result) -> its Cast
CASTS: dict[tuple[DTypeKind, DTypeKind], CastRule] = {
    **{(a, b): _int_to_int for a in (*_INTEGER_KINDS, DTypeKind.BOOL) for b in _INTEGER_KINDS},
    **{(a, DTypeKind.BOOL): _int_to_bool for a in (*_INTEGER_KINDS, DTypeKind.BOOL)},
    **{(a, DTypeKind.FLOAT): _int_to_float for a in (*_INTEGER_KINDS, DTypeKind.BOOL)},
    (DTypeKind.FLOAT, DTypeKind.FLOAT): _float_to_float,
    (DTypeKind.FLOAT, DTypeKind.BOOL): _float_to_bool,
    (DTypeKind.FLOAT, DTypeKind.INT): _float_to_int_with_saturation,
    (DTypeKind.FLOAT, DTypeKind.UINT): _float_to_int_with_saturation,
    (DTypeKind.FLOAT, DTypeKind.INDEX): _float_to_index_trapping_non_finite,
}


def cast(source: DType, out: DType, bits: int, core: bool = False) -> AnswerSet:
    """Return the element `bits` of dtype `source` converted to `out`. Raises SpecError if there is no such Cast (R24)."""
    rule = CASTS.get((source.kind, out.kind))
    if rule is None:
        raise SpecError(f"R24: no cast from {source.name} to {out.name}")
    return rule(source, out, bits, core)
