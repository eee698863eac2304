"""Inputs of a run without an array library: flat sequences of Python numbers, or exact bit patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uops.interp.exact.answers import AnswerSet
from uops.interp.exact.numbers.formats import bits_of
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.untrusted import escape_to_one_line


class Bits(tuple[int, ...]):
    """Elements given by bit pattern rather than by value."""

    __slots__ = ()


Number = bool | int | float
#: Row-major elements by value or as `Bits`; a bare number stands for one element.
Input = Number | Sequence[Number] | Bits
#: Inputs by name.
Inputs = Mapping[str, Input]


def check_and_convert_input(name: str, dtype: DType, count: int, data: Input) -> list[AnswerSet]:
    """Return the `count` elements of an input in `dtype`.

    Raises SpecError for another number of elements or a value outside the dtype, and Trap for a bool that is not 0 or 1 (R24).
    """
    if isinstance(data, Bits):
        patterns = [_check_bit_pattern(name, dtype, b) for b in data]
    else:
        numbers = list(data) if isinstance(data, Sequence) else [data]
        patterns = [_convert_number(name, dtype, v) for v in numbers]
    if len(patterns) != count:
        raise SpecError(f"input {escape_to_one_line(name)}: expected {count} elements, got {len(patterns)}")
    return [AnswerSet(dtype, b) for b in patterns]


def _trap_unless_zero_or_one_if_bool(name: str, dtype: DType, value: Number) -> None:
    if dtype.kind is DTypeKind.BOOL and value not in (0, 1):
        raise Trap(f"R24: input {escape_to_one_line(name)} holds a bool of {value!r}")


def _check_bit_pattern(name: str, dtype: DType, bits: int) -> int:
    _trap_unless_zero_or_one_if_bool(name, dtype, bits)
    if dtype.kind is not DTypeKind.INDEX and not 0 <= bits < 1 << dtype.bits:
        raise SpecError(f"input {escape_to_one_line(name)}: expected a bit pattern of {dtype.name}, got {bits}")
    return bits


def _convert_number(name: str, dtype: DType, value: Number) -> int:
    _trap_unless_zero_or_one_if_bool(name, dtype, value)
    if dtype.is_integer and not dtype.min <= value <= dtype.max:
        raise SpecError(f"input {escape_to_one_line(name)}: expected a value of {dtype.name}, got {value!r}")
    return bits_of(dtype, value)
