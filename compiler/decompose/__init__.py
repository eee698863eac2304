"""Elementwise operations as graphs of primitive operations, the same for every backend.

`decompose_node_or_keep_primitive(u)` replaces one node: Exp2, Log2, Sin and Pow, and every arithmetic op on float16, bfloat16 and
fp8. `lower_cast` converts between all dtypes with one rounding where small floats are held as unsigned integers.
`lower_elementwise` does both for a whole elementwise graph.

No graph here has a branch, a table in memory or a library call. Primitive ops are Const, Cast, Bitcast, Add, Sub, Mul, Mulacc
(one rounding), Div, Recip, Sqrt, Neg, Trunc, Max, CmpLt, CmpNe, CmpEq, Where, And, Or, Xor, Shl and Shr on float32, float64, bool
and the machine integers.
"""

from uops.compiler.decompose.casts import NATIVE, float_to_integer_saturating, integer_to_float_round_odd, lower_cast, soften_dtype
from uops.compiler.decompose.lower import decompose_node_or_keep_primitive, lower_elementwise
from uops.compiler.decompose.narrow import (
    SMALL,
    WIDE,
    encode_representable_small_float,
    round_to_small_float_bits,
    small_float_bits_to_float32,
)

__all__ = [
    "decompose_node_or_keep_primitive", "lower_elementwise", "lower_cast", "soften_dtype", "NATIVE", "SMALL", "WIDE",
    "round_to_small_float_bits", "small_float_bits_to_float32", "encode_representable_small_float", "float_to_integer_saturating",
    "integer_to_float_round_odd",
]  # fmt: skip
