"""Errors of float64 and Pow results against mpmath, which is imported here alone (extra `exhaustive`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.spec.ir.dtypes import DType

Array = npt.NDArray[Any]
#: Bits of precision beyond which a float64 result and any halfway point near it are told apart for these inputs.
PRECISION = 128


def errors(name: str, d: DType, operands: tuple[Array, ...], got: Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Per element: is it the correctly rounded result, and its error in ulp."""
    import mpmath

    right = np.zeros(len(got), np.bool_)
    error = np.zeros(len(got), np.float64)
    f = _FUNCTIONS[name]
    with mpmath.workprec(PRECISION):
        for k, result in enumerate(got.tolist()):
            arguments = [o[k].item() for o in operands]
            special = _SPECIAL[name](*arguments)
            if special is not None:
                same = (special != special and result != result) or (special == result and _sign(special) == _sign(result))
                right[k], error[k] = same, 0.0 if same else math.inf
            else:
                right[k], error[k] = _measure(f(mpmath, *arguments), result, d, mpmath)
    return right, error


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def _measure(exact: Any, result: float, d: DType, mpmath: Any) -> tuple[bool, float]:
    """`exact` is finite and not 0."""
    if result != result or (result != 0 and (result > 0) != (exact > 0)):
        return False, math.inf
    exponent = int(mpmath.floor(mpmath.log(abs(exact), 2)))
    if mpmath.ldexp(1, exponent + 1) <= abs(exact):
        exponent += 1
    exponent = max(min(exponent, d.bias), 1 - d.bias)
    ulp = mpmath.ldexp(1, exponent - d.man_bits)
    if math.isinf(result):
        beyond = (abs(exact) - mpmath.mpf(d.max_finite)) / ulp
        return bool(beyond >= 0.5), 0.0 if beyond >= 0.5 else float(1 - beyond)
    distance = float(abs(mpmath.mpf(result) - exact) / ulp)
    overflowed = abs(exact) >= mpmath.mpf(d.max_finite) + ulp / 2
    return distance <= 0.5 and not overflowed, distance


def _special_exp2(x: float) -> float | None:
    if x != x:
        return x
    if math.isinf(x):
        return math.inf if x > 0 else 0.0
    if x > 2000:
        return math.inf
    return 0.0 if x < -2000 else None


def _special_log2(x: float) -> float | None:
    if x != x or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if x == 1:
        return 0.0
    return math.inf if math.isinf(x) else None


def _special_sin(x: float) -> float | None:
    if x == 0:
        return x
    return math.nan if x != x or math.isinf(x) else None


def _special_sqrt(x: float) -> float | None:
    if x == 0 or x == math.inf:
        return x
    return math.nan if x != x or x < 0 else None


def _special_pow(x: float, y: float) -> float | None:
    """IEEE 754 pow where the result is not a finite non-zero number to be rounded (R18)."""
    if x == 1 or y == 0:
        return 1.0
    if x != x or y != y:
        return math.nan
    if x in (0.0, -1.0) or math.isinf(x) or math.isinf(y) or (x < 0 and y != math.floor(y)):
        try:
            return math.pow(x, y)
        except ValueError:  # C's domain and pole errors
            return _pole(x, y)
    scale = abs(y * math.log2(abs(x)))
    if scale > 3000:
        grows = (abs(x) > 1) == (y > 0)
        negative = x < 0 and y % 2 == 1
        return math.copysign(math.inf if grows else 0.0, -1.0 if negative else 1.0)
    return None


def _pole(x: float, y: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    return math.nan


_SPECIAL: dict[str, Any] = {
    "exp2": _special_exp2,
    "log2": _special_log2,
    "sin": _special_sin,
    "sqrt": _special_sqrt,
    "pow": _special_pow,
}


def _sin(m: Any, x: float) -> Any:
    """mpmath reduces the argument itself, at a precision that covers its exponent."""
    with m.workprec(PRECISION + max(0, math.frexp(x)[1])):
        return m.sin(m.mpf(x))


def _pow(m: Any, x: float, y: float) -> Any:
    magnitude = m.power(abs(m.mpf(x)), m.mpf(y))
    return -magnitude if x < 0 and y % 2 == 1 else magnitude


_FUNCTIONS: dict[str, Any] = {
    "exp2": lambda m, x: m.power(2, m.mpf(x)),
    "log2": lambda m, x: m.log(m.mpf(x), 2),
    "sin": _sin,
    "sqrt": lambda m, x: m.sqrt(m.mpf(x)),
    "pow": _pow,
}
