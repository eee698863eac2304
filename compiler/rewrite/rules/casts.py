"""Rules of casts (R15, Cast): a cast to the same dtype does nothing, and a lossless cast before another cast is redundant."""

from __future__ import annotations

from collections.abc import Mapping

from uops.compiler.rewrite.pattern import TypeVar, cast, var
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind

_INTEGERS = (*dt.INTS, dt.index)


def is_lossless(a: DType, b: DType) -> bool:
    """Return True if every value of `a` is a value of `b`."""
    if a is b or a.kind is DTypeKind.BOOL:
        return True
    if b is dt.index:
        return a.is_integer
    if a is dt.index or b.kind is DTypeKind.BOOL:
        return False
    if a.is_float:
        return b.is_float and (a.has_inf <= b.has_inf) and a.man_bits <= b.man_bits and a.exp_bits <= b.exp_bits
    if b.is_float:
        return a.bits - a.is_signed <= b.man_bits + 1 and a.bits <= b.bias
    return b.min <= a.min and a.max <= b.max


def _keeps(types: Mapping[str, DType]) -> bool:
    """Return True if the first cast is lossless and the second treats it like the source: integers wrap, floats saturate."""
    s, a, b = types["S"], types["A"], types["B"]
    return is_lossless(s, a) and (s.is_float == a.is_float or b not in dt.INTS or is_lossless(s, b))


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
