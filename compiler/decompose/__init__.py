"""Elementwise operations as graphs of primitive operations, the same for every backend.

`decompose(u)` replaces one node: Exp2, Log2, Sin and Pow, and every arithmetic op on float16, bfloat16 and fp8. `lower_cast`
converts between all dtypes with one rounding where small floats are held as unsigned integers. `lower` does both for a whole
elementwise graph. No graph here has a branch, a table in memory or a library call; primitive ops are Const, Cast, Bitcast, Add,
Sub, Mul, Mulacc (one rounding), Div, Recip, Sqrt, Neg, Trunc, Max, CmpLt, CmpNe, CmpEq, Where, And, Or, Xor, Shl and Shr on
float32, float64, bool and the machine integers.
"""

from uops.compiler.decompose.casts import NATIVE, float_to_integer, integer_to_odd, lower_cast, storage
from uops.compiler.decompose.lower import decompose, lower
from uops.compiler.decompose.narrow import SMALL, encode, narrow, widen

__all__ = [
    "decompose", "lower", "lower_cast", "storage", "NATIVE", "SMALL",
    "narrow", "widen", "encode", "float_to_integer", "integer_to_odd",
]  # fmt: skip
