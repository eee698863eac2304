"""Inputs of a run, without an array library: flat sequences of Python numbers, or exact bit patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uops.interp.exact.answers import Answer
from uops.interp.exact.numbers.formats import bits_of
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.untrusted import quote_name


class Bits(tuple[int, ...]):
    """Elements given by bit pattern rather than by value."""

    __slots__ = ()


Number = bool | int | float
#: Row-major elements by value or as `Bits`; a bare number stands for one element.
Input = Number | Sequence[Number] | Bits
Inputs = Mapping[str, Input]


def elements(name: str, dtype: DType, count: int, given: Input) -> list[Answer]:
    """`count` elements of an input in `dtype`; SpecError where they do not fit, Trap for a bool that is not 0 or 1 (R24)."""
    if isinstance(given, Bits):
        found = [_checked(name, dtype, b) for b in given]
    else:
        numbers = list(given) if isinstance(given, Sequence) else [given]
        found = [_converted(name, dtype, v) for v in numbers]
    if len(found) != count:
        raise SpecError(f"input {quote_name(name)}: expected {count} elements, got {len(found)}")
    return [Answer(dtype, b) for b in found]


def _checked(name: str, dtype: DType, bits: int) -> int:
    if dtype.kind is Kind.BOOL and bits not in (0, 1):
        raise Trap(f"R24: input {quote_name(name)} holds a bool of {bits}")
    if dtype.kind is not Kind.INDEX and not 0 <= bits < 1 << dtype.bits:
        raise SpecError(f"input {quote_name(name)}: {bits} is no bit pattern of {dtype.name}")
    return bits


def _converted(name: str, dtype: DType, value: Number) -> int:
    if dtype.is_integer and not dtype.min <= value <= dtype.max:
        raise SpecError(f"input {quote_name(name)}: {value!r} is outside {dtype.name}")
    return bits_of(dtype, value)
