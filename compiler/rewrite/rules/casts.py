"""Casts (R15): a cast to the own dtype does nothing, and a cast that loses nothing may be skipped by the one after it."""

from __future__ import annotations

from collections.abc import Mapping

from uops.compiler.rewrite.pattern import TypeVar, cast, var
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind

_INTEGERS = (*dt.INTS, dt.index)


def lossless(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    if a is b or a.kind is Kind.BOOL:
        return True
    if b is dt.index:
        return a.is_integer
    if a is dt.index or b.kind is Kind.BOOL:
        return False
    if a.is_float:
        return b.is_float and (a.has_inf <= b.has_inf) and a.man_bits <= b.man_bits and a.exp_bits <= b.exp_bits
    if b.is_float:
        return a.bits - a.is_signed <= b.man_bits + 1 and a.bits <= b.bias
    return b.min <= a.min and a.max <= b.max


def _keeps(types: Mapping[str, DType]) -> bool:
    """The first cast loses nothing, and the second treats what it gets as it would the source: integers wrap, floats saturate."""
    s, a, b = types["S"], types["A"], types["B"]
    return lossless(s, a) and (s.is_float == a.is_float or b not in dt.INTS or lossless(s, b))


def _integral(types: Mapping[str, DType]) -> bool:
    """Whole numbers into a dtype that keeps them modulo the last one's width."""
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
    # Modulo 2^b is what is left of modulo 2^a for b <= a.
    Rule("cast-wrap", cast(cast(n, _AI), _BI), cast(n, _BI), types=_integral),
)
