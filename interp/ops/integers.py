"""Arithmetic of the index dtype: mathematical integers (R08, R29), and the integer ops that NumPy defines otherwise.

Index arrays are int64 while every operand and intermediate value is proved to fit, by the operands' actual extremes; otherwise the
work is done on Python integers and settles back into int64 when it fits again. The machine integers wrap (R05).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.tensor.storage import NUMPY, OBJECT, Array, settle
from uops.spec.errors import Trap, Unsupported
from uops.spec.ir.dtypes import DType

_TOP = 1 << 63
#: Index values beyond this many bits are a limit of this interpreter, not of the language.
_WIDEST = 1 << 16


def magnitude(a: Array) -> int:
    """A bound on every |element|; at least 2^63 for an object array."""
    if a.dtype == OBJECT:
        return max((abs(int(n)) for n in a.ravel()), default=0) | _TOP
    if a.ndim == 0:
        return abs(int(a))
    return max(-a.item(a.argmin()), a.item(a.argmax()), 0) if a.size else 0


def _exact(ufunc: np.ufunc, *operands: Array) -> Array:
    return settle(ufunc(*(a.astype(object) for a in operands)))


def add(a: Array, b: Array) -> Any:
    return np.add(a, b) if magnitude(a) + magnitude(b) < _TOP else _exact(np.add, a, b)


def sub(a: Array, b: Array) -> Any:
    return np.subtract(a, b) if magnitude(a) + magnitude(b) < _TOP else _exact(np.subtract, a, b)


def mul(a: Array, b: Array) -> Any:
    m, n = magnitude(a), magnitude(b)
    if (m | n) < _TOP and m * n < _TOP:
        return np.multiply(a, b)
    if m.bit_length() + n.bit_length() > _WIDEST:
        raise Unsupported(f"index values beyond 2^{_WIDEST}", "interp")
    return _exact(np.multiply, a, b)


def neg(a: Array) -> Any:
    return np.negative(a) if magnitude(a) < _TOP else _exact(np.negative, a)


def mulacc(a: Array, b: Array, c: Array) -> Any:
    return add(np.asarray(mul(a, b)), c)


def _is_wide(a: Array, b: Array) -> bool:
    return a.dtype == OBJECT or b.dtype == OBJECT


def unwidened(ufunc: np.ufunc) -> Callable[[Array, Array], Any]:
    """An op whose result is no wider than its operands."""
    return lambda a, b: _exact(ufunc, a, b) if _is_wide(a, b) else ufunc(a, b)


def compare(ufunc: np.ufunc) -> Callable[[Array, Array], Any]:
    return lambda a, b: np.asarray(ufunc(a.astype(object), b.astype(object)), bool) if _is_wide(a, b) else ufunc(a, b)


def idiv_machine(a: Array, b: Array) -> Any:
    """floor(a / b); a Idiv 0 = 0 (R03) and INT_MIN Idiv -1 = INT_MIN (R04), as NumPy has it too."""
    return np.floor_divide(a, b)


def mod_machine(a: Array, b: Array) -> Any:
    """Sign of the divisor (R02); a Mod 0 = a (R03), where NumPy has 0."""
    r = np.remainder(a, b)
    return r if np.count_nonzero(b) == b.size else np.where(b == 0, a, r)


def idiv(a: Array, b: Array) -> Any:
    if not _is_wide(a, b) and magnitude(a) < _TOP:
        return idiv_machine(a, b)
    return settle(_guarded(np.floor_divide, a, b, 0))


def mod(a: Array, b: Array) -> Any:
    return settle(_guarded(np.remainder, a, b, a)) if _is_wide(a, b) else mod_machine(a, b)


def _guarded(ufunc: np.ufunc, a: Array, b: Array, at_zero: Any) -> Array:
    a, b = a.astype(object), b.astype(object)
    zero = np.asarray(b == 0, bool)
    quotient = np.asarray(ufunc(a, np.where(zero, 1, b)), object)  # of scalars it is an int, which may not fit a machine word
    out: Array = np.where(zero, at_zero, quotient)
    return out


def check_counts(b: Array) -> None:
    """A negative shift count of dtype index is a Trap (R29, R81)."""
    if b.size and b.item(b.argmin()) < 0:
        raise Trap("negative shift count of dtype index (R29, R81)")


def _counts(b: Array, cap: int) -> Array:
    """Shift counts of index arithmetic, capped."""
    check_counts(b)
    b = b if b.dtype.itemsize == 8 else b.astype(np.int64)  # which a cap need not fit
    counts: Array = np.asarray(np.minimum(b, cap)).astype(np.int64)
    return counts


def shl(a: Array, b: Array) -> Any:
    """a * 2^b (R29)."""
    counts = _counts(b, _WIDEST + 1)
    most = magnitude(counts)
    if most < 63 and magnitude(a) << most < _TOP:
        return np.left_shift(a, counts)
    if most > _WIDEST and np.logical_and(a != 0, counts > _WIDEST).any():
        raise Unsupported(f"index values beyond 2^{_WIDEST}", "interp")
    return _exact(np.left_shift, a, np.where(a == 0, 0, counts))


def shr(a: Array, b: Array) -> Any:
    """floor(a / 2^b) (R29)."""
    if a.dtype == OBJECT:
        return _exact(np.right_shift, a, _counts(b, 1 << 62))
    return np.right_shift(a, _counts(b, 63))


# Shifts of machine integers


def shift_machine(ufunc: np.ufunc, d: DType) -> Callable[[Array, Array], Any]:
    """The count is read as unsigned, in its own width; at or beyond the width gives 0 or the sign fill (R06, R07).

    That is what NumPy does with a count of the same dtype; another one is first brought into that dtype, capped at the width.
    """
    target, bits = NUMPY[d], d.bits
    return lambda a, b: ufunc(a, b if b.dtype is target else unsigned_counts(b, bits).astype(target))


def unsigned_counts(b: Array, cap: int) -> Array:
    """min(b read as unsigned, cap); a negative index is beyond every width (where `check_counts` did not refuse it)."""
    if b.dtype == OBJECT:
        return np.where(b < 0, cap, np.minimum(b, cap)).astype(np.int64)
    counts: Array = np.asarray(np.minimum(b.view(f"u{b.dtype.itemsize}"), cap))
    return counts
