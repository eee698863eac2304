"""Elementwise ops on dual numbers: floats are fractions, casts between floats do not round, and ops mean what they mean for reals.

Source: R78 (gradients) for ties; the tables of elementwise ops for the rest.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from uops.spec.errors import Trap, Unsupported
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import SHIFT, Op

#: The most bits by which an index is shifted left; Python would try to allocate any number.
_MAX_INDEX_SHIFT = 1 << 16
#: The most bits of a product or a quotient. A product of a value with itself doubles them, so a few dozen would exhaust the memory.
_MAX_NUMBER_BITS = 1 << 12

Objects = np.ndarray[Any, np.dtype[np.object_]]


class Dual(NamedTuple):
    """The elements of a value, and their derivatives in one direction: fractions, or None for a value that is no float."""

    value: Objects
    tangent: Objects | None

    @property
    def tangent_of_float(self) -> Any:
        """The derivatives of a value that is a float."""
        assert self.tangent is not None
        return self.tangent


class NotRational(Unsupported):
    """A value or an op that has no meaning in exact fractions: infinities, NaN, roots and logarithms."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "the evaluator of duals")


def as_objects(elements: Any, broadcast_shape: tuple[int, ...] | None = None) -> Objects:
    """Return an array of Python objects; NumPy would take scalars out of arrays of no axes."""
    out = np.empty(np.shape(elements), object)
    out[...] = elements
    return out if broadcast_shape is None else np.broadcast_to(out, broadcast_shape)


_to_fraction = np.frompyfunc(Fraction, 1, 1)
_floor_divide = np.frompyfunc(lambda a, b: a // b if b else 0, 2, 1)
_modulo = np.frompyfunc(lambda a, b: a % b if b else a, 2, 1)
_truncate = np.frompyfunc(math.trunc, 1, 1)
_to_bool = np.frompyfunc(bool, 1, 1)
_to_int = np.frompyfunc(int, 1, 1)
_greatest = np.frompyfunc(max, 2, 1)
_is_long = np.frompyfunc(lambda x: x.numerator.bit_length() + x.denominator.bit_length() > _MAX_NUMBER_BITS, 1, 1)


#: Op -> the value of the result, for ops on integers, bools and floats alike.
_VALUES: dict[Op, Callable[..., Any]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.NEG: operator.neg,
    Op.MUL: operator.mul,
    Op.MULACC: lambda a, b, c: a * b + c,
    Op.MAX: _greatest,
    Op.MOD: _modulo,
    Op.IDIV: _floor_divide,
    Op.TRUNC: _truncate,
    Op.CMPLT: np.less,
    Op.CMPNE: np.not_equal,
    Op.CMPGT: np.greater,
    Op.CMPGE: np.greater_equal,
    Op.CMPLE: np.less_equal,
    Op.CMPEQ: np.equal,
    Op.XOR: operator.xor,
    Op.OR: operator.or_,
    Op.AND: operator.and_,
    Op.NOT: np.frompyfunc(operator.not_, 1, 1),
}
_BOOL_MEANING = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR}


def evaluate_elementwise(u: UOp, operands: list[Dual]) -> Dual:
    """Return the dual of an elementwise node. Raises NotRational."""
    op = _BOOL_MEANING.get(u.op, u.op) if u.dtype.kind is DTypeKind.BOOL else u.op
    if op is Op.CAST:
        return _cast_without_rounding_floats(u.operand.dtype, u.dtype, operands[0])
    if op is Op.WHERE:
        chosen = np.asarray(_to_bool(operands[0].value), bool)
        return _map_parts(lambda a, b: np.where(chosen, a, b), operands[1], operands[2])
    if op in (Op.DIV, Op.RECIP):
        return _divide_fractions_or_take_reciprocal(operands)
    if op in SHIFT:
        return Dual(_wrap(_shift_integers(u, *(d.value for d in operands)), u.dtype), None)
    if op not in _VALUES:
        raise NotRational(op.name)
    value = as_objects(_VALUES[op](*(d.value for d in operands)))
    if op in (Op.MUL, Op.MULACC) and (u.dtype.is_float or u.dtype.kind is DTypeKind.INDEX):
        _require_short_numbers(value)
    if not u.dtype.is_float:
        return Dual(_wrap(value, u.dtype), None)
    return Dual(as_objects(_to_fraction(value)), as_objects(_find_tangent(op, operands, value)))


def _require_short_numbers(value: Objects) -> None:
    """Raise NotRational for a number of more than `_MAX_NUMBER_BITS` bits."""
    if np.any(_is_long(value)):
        raise NotRational(f"a number of more than {_MAX_NUMBER_BITS} bits")


def _shift_integers(u: UOp, values: Objects, counts: Objects) -> Objects:
    """Shift integers by counts that are read as unsigned (R06, R07), or for dtype index must not be negative (R29, R81).

    Raises Trap for a negative count of an index, and NotRational for a left shift of an index by more than
    `_MAX_INDEX_SHIFT` bits.
    """
    is_index = u.dtype.kind is DTypeKind.INDEX

    def shift(a: int, count: int) -> int:
        if count < 0 and (is_index or u.rhs.dtype.kind is DTypeKind.INDEX):
            raise Trap(f"a shift count of dtype index must not be negative (R29, R81), got {count}")
        if not is_index and not 0 <= count < u.dtype.bits:
            count = u.dtype.bits
        if u.op is Op.SHR:
            return a >> count
        if a and count > _MAX_INDEX_SHIFT:
            raise NotRational(f"an index shifted left by {count}")
        return a << count if a else 0

    return as_objects(np.frompyfunc(shift, 2, 1)(values, counts))


def _map_parts(f: Callable[..., Any], *operands: Dual) -> Dual:
    """Apply a function that moves elements to values and tangents."""
    tangents = [d.tangent for d in operands]
    return Dual(as_objects(f(*(d.value for d in operands))), None if tangents[0] is None else as_objects(f(*tangents)))


def _find_tangent(op: Op, operands: list[Dual], value: Objects) -> Any:
    a, *others = operands
    da, db = a.tangent_of_float, others[0].tangent_of_float if others else None
    match op:
        case Op.ADD:
            return da + db
        case Op.SUB:
            return da - db
        case Op.NEG:
            return -da
        case Op.MUL:
            return da * others[0].value + a.value * db
        case Op.MULACC:
            return da * others[0].value + a.value * db + others[1].tangent_of_float
        case Op.MAX:
            weight = np.frompyfunc(lambda x, y: Fraction(1) if x > y else Fraction(0) if x < y else Fraction(1, 2), 2, 1)
            left = weight(a.value, others[0].value)
            return left * da + (1 - left) * db
        case Op.TRUNC:
            return as_objects(Fraction(0), value.shape)
    raise NotRational(f"{op.name} of floats")


def _divide_fractions_or_take_reciprocal(operands: list[Dual]) -> Dual:
    """Return a / b, or 1 / b of one operand: its tangent solves a' = y' * b + y * b'."""
    a, b = operands if len(operands) == 2 else (Dual(as_objects(Fraction(1)), as_objects(Fraction(0))), operands[0])
    if any(x == 0 for x in b.value.flat):
        raise NotRational("division by zero")
    y = as_objects(a.value / b.value)
    _require_short_numbers(y)
    return Dual(y, as_objects((a.tangent_of_float - y * b.tangent_of_float) / b.value))


def _cast_without_rounding_floats(source: DType, target: DType, d: Dual) -> Dual:
    if target.is_float:
        zeros = as_objects(Fraction(0), d.value.shape)
        return Dual(
            as_objects(_to_fraction(_to_int(d.value)) if d.tangent is None else d.value), zeros if d.tangent is None else d.tangent
        )
    if target.kind is DTypeKind.BOOL:
        return Dual(as_objects(_to_bool(d.value)), None)
    whole = as_objects(_truncate(d.value) if source.is_float else _to_int(d.value))
    if source.is_float and target.bits:  # saturates
        whole = as_objects(np.frompyfunc(lambda x: min(max(x, target.min), target.max), 1, 1)(whole))
    return Dual(_wrap(whole, target), None)


def _wrap(value: Objects, d: DType) -> Objects:
    """Return integers modulo 2^bits, and bools as bools."""
    if d.kind is DTypeKind.BOOL:
        return as_objects(_to_bool(value))
    if not d.bits:
        return value
    span, low = 1 << d.bits, int(d.min)
    return as_objects(np.frompyfunc(lambda x: (x - low) % span + low, 1, 1)(value))
