"""Arithmetic of the index dtype, which are mathematical integers (R08, R29), and the integer ops that NumPy defines otherwise.

Index arrays are int64 while the extremes of the operands prove that every operand and intermediate value fits. Otherwise the
work is done on Python integers, and the result becomes int64 again when it fits. Integers of a fixed width wrap (R05).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.tensor.storage import NUMPY, OBJECT, Array, to_index_array
from uops.spec.errors import Trap, Unsupported
from uops.spec.ir.dtypes import DType

#: The first magnitude that int64 does not hold.
_TOP = 1 << 63
#: The greatest index values, in bits: a limit of this interpreter, not of the language.
_WIDEST = 1 << 16


def magnitude_bound(a: Array) -> int:
    """Return a bound on every |element|: exact for int64, at least 2^63 for an object array."""
    if a.dtype == OBJECT:
        return max((abs(int(n)) for n in a.ravel()), default=0) | _TOP
    if a.ndim == 0:
        return abs(int(a))
    return max(-a.item(a.argmin()), a.item(a.argmax()), 0) if a.size else 0


def _apply_to_python_ints(ufunc: np.ufunc, *operands: Array) -> Array:
    """Return `ufunc` of the operands, computed on Python integers."""
    return to_index_array(ufunc(*(a.astype(object) for a in operands)))


def add_index(a: Array, b: Array) -> Any:
    """Return a + b."""
    return np.add(a, b) if magnitude_bound(a) + magnitude_bound(b) < _TOP else _apply_to_python_ints(np.add, a, b)


def sub_index(a: Array, b: Array) -> Any:
    """Return a - b."""
    return np.subtract(a, b) if magnitude_bound(a) + magnitude_bound(b) < _TOP else _apply_to_python_ints(np.subtract, a, b)


def mul_index(a: Array, b: Array) -> Any:
    """Return a * b. Raises Unsupported beyond `_WIDEST` bits."""
    m, n = magnitude_bound(a), magnitude_bound(b)
    if (m | n) < _TOP and m * n < _TOP:
        return np.multiply(a, b)
    if m.bit_length() + n.bit_length() > _WIDEST:
        raise Unsupported(f"index values beyond 2^{_WIDEST}", "interp")
    return _apply_to_python_ints(np.multiply, a, b)


def neg_index(a: Array) -> Any:
    """Return -a."""
    return np.negative(a) if magnitude_bound(a) < _TOP else _apply_to_python_ints(np.negative, a)


def mulacc_index(a: Array, b: Array, c: Array) -> Any:
    """Return a * b + c."""
    return add_index(np.asarray(mul_index(a, b)), c)


def _is_wide(a: Array, b: Array) -> bool:
    """Return True if an operand holds Python integers."""
    return a.dtype == OBJECT or b.dtype == OBJECT


def make_same_width_index_kernel(ufunc: np.ufunc) -> Callable[[Array, Array], Any]:
    """Return the index kernel of an op whose result is no wider than its operands."""
    return lambda a, b: _apply_to_python_ints(ufunc, a, b) if _is_wide(a, b) else ufunc(a, b)


def make_index_comparison(ufunc: np.ufunc) -> Callable[[Array, Array], Any]:
    """Return the index kernel of a comparison."""
    return lambda a, b: np.asarray(ufunc(a.astype(object), b.astype(object)), bool) if _is_wide(a, b) else ufunc(a, b)


def fixed_width_idiv(a: Array, b: Array) -> Any:
    """Return floor(a / b); a Idiv 0 = 0 (R03) and INT_MIN Idiv -1 = INT_MIN (R04), as in NumPy."""
    return np.floor_divide(a, b)


def fixed_width_mod(a: Array, b: Array) -> Any:
    """Return a Mod b with the sign of the divisor (R02); a Mod 0 = a (R03), where NumPy gives 0."""
    r = np.remainder(a, b)
    return r if np.count_nonzero(b) == b.size else np.where(b == 0, a, r)


def floor_divide_index(a: Array, b: Array) -> Any:
    """Return floor(a / b); a Idiv 0 = 0 (R03)."""
    if not _is_wide(a, b) and magnitude_bound(a) < _TOP:
        return fixed_width_idiv(a, b)
    return to_index_array(_divide_as_python_ints_or_at_zero(np.floor_divide, a, b, 0))


def mod_index(a: Array, b: Array) -> Any:
    """Return a Mod b with the sign of the divisor (R02); a Mod 0 = a (R03)."""
    return to_index_array(_divide_as_python_ints_or_at_zero(np.remainder, a, b, a)) if _is_wide(a, b) else fixed_width_mod(a, b)


def _divide_as_python_ints_or_at_zero(ufunc: np.ufunc, a: Array, b: Array, at_zero: Any) -> Array:
    """Return `ufunc(a, b)` on Python integers, `at_zero` where b is 0."""
    a, b = a.astype(object), b.astype(object)
    zero = np.asarray(b == 0, bool)
    quotient = np.asarray(ufunc(a, np.where(zero, 1, b)), object)  # for scalars an int, which may not fit 64 bits
    out: Array = np.where(zero, at_zero, quotient)
    return out


def reject_negative_shift_counts(b: Array) -> None:
    """Raise Trap for a negative shift count of dtype index (R29, R81)."""
    if b.size and b.item(b.argmin()) < 0:
        raise Trap("a shift count of dtype index must not be negative (R29, R81)")


def _reject_negative_and_cap_shift_counts(b: Array, cap: int) -> Array:
    """Return min(b, cap) as int64. Raises Trap for a negative count."""
    reject_negative_shift_counts(b)
    b = b if b.dtype.itemsize == 8 else b.astype(np.int64)  # a narrower dtype may not hold the cap
    counts: Array = np.asarray(np.minimum(b, cap)).astype(np.int64)
    return counts


def shl_index(a: Array, b: Array) -> Any:
    """Return a * 2^b (R29)."""
    counts = _reject_negative_and_cap_shift_counts(b, _WIDEST + 1)
    most = magnitude_bound(counts)
    if most < 63 and magnitude_bound(a) << most < _TOP:
        return np.left_shift(a, counts)
    if most > _WIDEST and np.logical_and(a != 0, counts > _WIDEST).any():
        raise Unsupported(f"index values beyond 2^{_WIDEST}", "interp")
    return _apply_to_python_ints(np.left_shift, a, np.where(a == 0, 0, counts))


def shr_index(a: Array, b: Array) -> Any:
    """Return floor(a / 2^b) (R29)."""
    if a.dtype == OBJECT:
        return _apply_to_python_ints(np.right_shift, a, _reject_negative_and_cap_shift_counts(b, 1 << 62))
    return np.right_shift(a, _reject_negative_and_cap_shift_counts(b, 63))


# Shifts of fixed-width integers


def make_shift_reading_count_as_unsigned(ufunc: np.ufunc, d: DType) -> Callable[[Array, Array], Any]:
    """Return the kernel of a shift of `d` whose count is read as unsigned, in its own width.

    A count at or beyond the width gives 0 or the sign fill (R06, R07). NumPy does so for a count of the same dtype. A count of
    another dtype is first converted to it, capped at the width.
    """
    target, bits = NUMPY[d], d.bits
    return lambda a, b: ufunc(a, b if b.dtype is target else cap_shift_counts_read_as_unsigned(b, bits).astype(target))


def cap_shift_counts_read_as_unsigned(b: Array, cap: int) -> Array:
    """Return min(b read as unsigned, cap); a negative index counts as beyond every width (unless it was rejected before)."""
    if b.dtype == OBJECT:
        return np.where(b < 0, cap, np.minimum(b, cap)).astype(np.int64)
    counts: Array = np.asarray(np.minimum(b.view(f"u{b.dtype.itemsize}"), cap))
    return counts
