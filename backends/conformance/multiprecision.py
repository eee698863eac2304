"""Errors of float64 and Pow results against mpmath, which no other module imports (extra `exhaustive`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.spec.ir.dtypes import DType

Array = npt.NDArray[Any]
#: Precision of mpmath, in bits: enough to separate a float64 result from any halfway point near it, for these inputs.
PRECISION = 128


def judge_rounding_and_ulp_errors(
    function_name: str, d: DType, operands: tuple[Array, ...], got: Array
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return per element whether it is the correctly rounded result, and its error in ulp."""
    import mpmath  # late: mpmath is optional

    is_correct = np.zeros(len(got), np.bool_)
    error = np.zeros(len(got), np.float64)
    exact_function = _FUNCTIONS[function_name]
    with mpmath.workprec(PRECISION):
        for k, result in enumerate(got.tolist()):
            arguments = [o[k].item() for o in operands]
            special = _SPECIAL[function_name](*arguments)
            if special is not None:
                same = (special != special and result != result) or (special == result and _sign(special) == _sign(result))
                is_correct[k], error[k] = same, 0.0 if same else math.inf
            else:
                is_correct[k], error[k] = _judge_rounding_and_ulp_error(exact_function(mpmath, *arguments), result, d, mpmath)
    return is_correct, error


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def _judge_rounding_and_ulp_error(exact: Any, result: float, d: DType, mpmath: Any) -> tuple[bool, float]:
    """Return whether `result` is `exact`, finite and not 0, correctly rounded, and its error in ulp."""
    if result != result or (_sign(result) > 0) != (exact > 0):
        return False, math.inf
    exponent = int(mpmath.floor(mpmath.log(abs(exact), 2)))
    if mpmath.ldexp(1, exponent + 1) <= abs(exact):
        exponent += 1
    exponent = max(min(exponent, d.bias), d.min_exponent)
    ulp = mpmath.ldexp(1, exponent - d.man_bits)
    if math.isinf(result):
        beyond = (abs(exact) - mpmath.mpf(d.max_finite)) / ulp
        return bool(beyond >= 0.5), 0.0 if beyond >= 0.5 else float(1 - beyond)
    distance = float(abs(mpmath.mpf(result) - exact) / ulp)
    overflowed = abs(exact) >= mpmath.mpf(d.max_finite) + ulp / 2
    is_odd = distance == 0.5 and int(abs(mpmath.mpf(result)) / ulp) % 2 == 1  # of the two beside a tie, the even one is right
    return distance <= 0.5 and not is_odd and not overflowed, distance


def _exp2_special_result(x: float) -> float | None:
    if x != x:
        return x
    if math.isinf(x):
        return math.inf if x > 0 else 0.0
    if x > 2000:
        return math.inf
    return 0.0 if x < -2000 else None


def _log2_special_result(x: float) -> float | None:
    if x != x or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if x == 1:
        return 0.0
    return math.inf if math.isinf(x) else None


def _sin_special_result(x: float) -> float | None:
    if x == 0:
        return x
    return math.nan if x != x or math.isinf(x) else None


def _sqrt_special_result(x: float) -> float | None:
    if x == 0 or x == math.inf:
        return x
    return math.nan if x != x or x < 0 else None


def _pow_special_result(x: float, y: float) -> float | None:
    """Return IEEE 754 pow where the result is not a finite nonzero number to be rounded (R18); else None."""
    if x == 1 or y == 0:
        return 1.0
    if x != x or y != y:
        return math.nan
    if x in (0.0, -1.0) or math.isinf(x) or math.isinf(y) or (x < 0 and y != math.floor(y)):
        try:
            return math.pow(x, y)
        except ValueError:  # a domain error or a pole
            return _pow_at_pole(x, y)
    scale = abs(y * math.log2(abs(x)))
    if scale > 3000:
        grows = (abs(x) > 1) == (y > 0)
        negative = x < 0 and y % 2 == 1
        return math.copysign(math.inf if grows else 0.0, -1.0 if negative else 1.0)
    return None


def _pow_at_pole(x: float, y: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    return math.nan


_SPECIAL: dict[str, Any] = {
    "exp2": _exp2_special_result,
    "log2": _log2_special_result,
    "sin": _sin_special_result,
    "sqrt": _sqrt_special_result,
    "pow": _pow_special_result,
}


def _exact_sin(m: Any, x: float) -> Any:
    """Return sin(x). mpmath reduces the argument itself, at a precision that covers its exponent."""
    with m.workprec(PRECISION + max(0, math.frexp(x)[1])):
        return m.sin(m.mpf(x))


def _exact_pow(m: Any, x: float, y: float) -> Any:
    magnitude = m.power(abs(m.mpf(x)), m.mpf(y))
    return -magnitude if x < 0 and y % 2 == 1 else magnitude


_FUNCTIONS: dict[str, Any] = {
    "exp2": lambda m, x: m.power(2, m.mpf(x)),
    "log2": lambda m, x: m.log(m.mpf(x), 2),
    "sin": _exact_sin,
    "sqrt": lambda m, x: m.sqrt(m.mpf(x)),
    "pow": _exact_pow,
}
