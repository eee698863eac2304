"""Rules of casts (R15, Cast): a cast to the same dtype does nothing, and a lossless cast before another cast is redundant."""

from __future__ import annotations

from collections.abc import Mapping

from uops.compiler.rewrite.pattern import TypeVar, cast, var
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind

_INTEGERS = (*dt.INTS, dt.index)


def is_lossless_cast(source: DType, target: DType) -> bool:
    """Return True if every value of `source` is a value of `target`."""
    if source is target or source.kind is DTypeKind.BOOL:
        return True
    if target is dt.index:
        return source.is_integer
    if source is dt.index or target.kind is DTypeKind.BOOL:
        return False
    if source.is_float:
        return (
            target.is_float
            and (source.has_inf <= target.has_inf)
            and source.man_bits <= target.man_bits
            and source.exp_bits <= target.exp_bits
        )
    if target.is_float:
        return source.bits - source.is_signed <= target.man_bits + 1 and source.bits <= target.bias
    return target.min <= source.min and source.max <= target.max


def _keeps(types: Mapping[str, DType]) -> bool:
    """Return True if the first cast is lossless and the second treats it like the source: integers wrap, floats saturate."""
    s, a, b = types["S"], types["A"], types["B"]
    return is_lossless_cast(s, a) and (s.is_float == a.is_float or b not in dt.INTS or is_lossless_cast(s, b))


def _integral(types: Mapping[str, DType]) -> bool:
    """Return True if the first cast of an integer keeps it modulo the width of the last dtype."""
    a, b = types["A"], types["B"]
    return b is not dt.index and (a is dt.index or a.bits >= b.bits)


def _same(types: Mapping[str, DType]) -> bool:
    return types["S"] is types["A"]


_A, _B = TypeVar("A"), TypeVar("B")
_AI, _BI = TypeVar("A", _INTEGERS), TypeVar("B", dt.INTS)
x, n = var("x"), var("n", _INTEGERS)

RULES = (
    Rule("cast-same", cast(x, _A), x, types=_same),
    Rule("cast-lossless", cast(cast(x, _A), _B), cast(x, _B), types=_keeps),
    # A value modulo 2^a, taken modulo 2^b, is the value modulo 2^b for b <= a.
    Rule("cast-wrap", cast(cast(n, _AI), _BI), cast(n, _BI), types=_integral),
)
