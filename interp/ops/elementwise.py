"""Kernels of every elementwise and decomposed op: `KERNELS[op][dtype of the first source]` is a function of arrays.

Kernels broadcast by NumPy's rule, which is that of R41 (operand shapes), and never change their arguments. A dtype that is
missing from a row is ill-formed for that op (R09, R10: dtype legality). Cast has its target in the arg, so it stands in
`rounding.CASTS`.

Each op rounds once (R16). float16, float32 and float64 use NumPy's own arithmetic, whose result is the rounded exact one.
bfloat16 and fp8 compute in float32, which has more than twice their bits plus two. So the second rounding is harmless for +, -,
*, / and the square root. The transcendental functions go through float64 (R17, R18: their accuracy). Exp2, Log2 and Sin of the
narrow floats are looked up in a table over all bit patterns. float64 itself uses `uops.interp.libm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from uops.interp import libm
from uops.interp.ops import integers, mulacc
from uops.interp.ops.rounding import NARROW
from uops.interp.ops.threefry import threefry
from uops.interp.tensor.storage import BITS, NATIVE, NUMPY, SMALL, Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, SHIFT, Op

#: A function of arrays that returns an array, or a NumPy scalar when the shape of every argument is ().
Kernel = Callable[..., Any]
#: The kernels of one op, by the dtype of its first source.
Row = dict[DType, Kernel]

F32, F64, BOOL = NUMPY[dt.float32], NUMPY[dt.float64], NUMPY[dt.bool_]
STORABLE = dt.STORABLE
NUMBERS = (*dt.INTS, *dt.FLOATS)


def _unary_via_float32(function: Callable[..., Any], d: DType) -> Kernel:
    """Return a kernel that computes `function` of one argument in float32 and rounds once to `d`."""
    target = NUMPY[d]
    return lambda x: np.asarray(function(x.astype(F32))).astype(target)


def _binary_via_float32(function: Callable[..., Any], d: DType) -> Kernel:
    """Return a kernel that computes `function` of two arguments in float32 and rounds once to `d`."""
    target = NUMPY[d]
    return lambda a, b: np.asarray(function(a.astype(F32), b.astype(F32))).astype(target)


def _compare_via_float32(ufunc: np.ufunc) -> Kernel:
    """Return a kernel that compares in float32."""
    return lambda a, b: ufunc(a.astype(F32), b.astype(F32))


def _float_row(ufunc: np.ufunc) -> Row:
    """Return the kernels of `ufunc` on all floats."""
    through = _unary_via_float32 if ufunc.nin == 1 else _binary_via_float32
    return {**dict.fromkeys(NATIVE, ufunc), **{d: through(ufunc, d) for d in SMALL}}


def _identity(x: Array) -> Array:
    return x


def _reciprocal_kernel(d: DType) -> Kernel:
    """Return the kernel 1 / x of dtype `d`."""
    one = np.array(1, NUMPY[d])
    return lambda x: np.divide(one, x)


def _sign_flip_kernel(d: DType) -> Kernel:
    """Return the kernel of Neg on the float `d`, which flips the sign bit, of NaN too (R21)."""
    bits, target = BITS[d], NUMPY[d]
    sign = bits.type(1 << (d.bits - 1))
    return lambda x: np.asarray(x.view(bits) ^ sign).view(target)


# Transcendental functions


def _unary_via_float64(function: Callable[..., Any], d: DType) -> Kernel:
    """Return a kernel that computes `function` in float64 and rounds once to `d`."""
    finish = NARROW[d]
    return lambda x: finish(np.asarray(function(x.astype(F64))))


def _tabulate_small_float_function(function: Callable[[Array], Any], d: DType) -> Kernel:
    """Return a kernel that looks `function` up in a table of all values of `d`, made on first use; `d` has up to 16 bits."""
    bits = BITS[d]

    @cache
    def table() -> Array:
        all_values = np.arange(1 << d.bits, dtype=bits).view(NUMPY[d])
        with np.errstate(all="ignore"):
            return NARROW[d](np.asarray(function(all_values.astype(F64))))

    return lambda x: table()[x.view(bits)]


def _transcendental_row(accurate_for_float32: Callable[[Array], Any], accurate_for_other_floats: Callable[[Array], Any]) -> Row:
    """Return the kernels of a function of one argument.

    `accurate_for_float32` is accurate enough for float32, `accurate_for_other_floats` for float64.
    """
    return {
        dt.float64: accurate_for_other_floats,
        dt.float32: _unary_via_float64(accurate_for_float32, dt.float32),
        **{d: _tabulate_small_float_function(accurate_for_other_floats, d) for d in dt.FLOATS if d.bits <= 16},
    }


def _ieee_pow_via_numpy(x: Array, y: Array) -> Any:
    """Return x^y of float64 by NumPy's pow, with its deviations from R18 (IEEE 754 pow) mended.

    A signalling NaN must not spoil 1^NaN = 1 and NaN^0 = 1. Where the exponent is a single 0.5, NumPy takes a square root,
    which is another function at -inf and -0.0. So it gets one exponent per element.
    """
    shape = np.broadcast_shapes(x.shape, y.shape)
    out = np.power(x, np.array(np.broadcast_to(y, shape or (1,)), order="C")).reshape(shape)
    return out if not np.count_nonzero(out != out) else np.where((x == 1) | (y == 0), 1.0, out)


def _pow_via_float64(d: DType) -> Kernel:
    """Return the kernel of Pow that computes in float64 and rounds once to `d`."""
    finish = NARROW[d]
    return lambda x, y: finish(np.asarray(_ieee_pow_via_numpy(x.astype(F64), y.astype(F64))))


# Where


def _where(p: Array, a: Array, b: Array) -> Any:
    """Select by a condition of any dtype, which means CmpNe(condition, 0) (R14), as NumPy reads one."""
    return np.where(p, a, b)


def _where_small_float(p: Array, a: Array, b: Array) -> Any:
    """Select by a condition in a small float, which NumPy cannot test itself."""
    return np.where(p.astype(F32).astype(BOOL), a, b)


_WHERE: Row = {
    **dict.fromkeys((dt.bool_, *dt.INTS, *NATIVE, dt.index), _where),
    **dict.fromkeys(SMALL, _where_small_float),
}


# Rows


def _arithmetic_row(ufunc: np.ufunc, on_index: Kernel) -> Row:
    """Return the kernels of Add, Mul or Max.

    On bool they are or, and, or (R09). Integers wrap (R05). Max gives NaN if either operand is NaN (R11).
    """
    return {dt.bool_: ufunc, **dict.fromkeys(dt.INTS, ufunc), **_float_row(ufunc), dt.index: on_index}


def _comparison_row(ufunc: np.ufunc) -> Row:
    """Return the kernels of a comparison, by IEEE 754 for floats (R12, R13)."""
    return {
        **dict.fromkeys((dt.bool_, *dt.INTS, *NATIVE), ufunc),
        **dict.fromkeys(SMALL, _compare_via_float32(ufunc)),
        dt.index: integers.make_index_comparison(ufunc),
    }


def _integer_row(fixed_width: Kernel, on_index: Kernel) -> Row:
    """Return the kernels of an op on fixed-width integers and on index."""
    return {**dict.fromkeys(dt.INTS, fixed_width), dt.index: on_index}


def _bitwise_row(ufunc: np.ufunc) -> Row:
    """Return the kernels of a bitwise op on bool, fixed-width integers and index."""
    return {dt.bool_: ufunc, **_integer_row(ufunc, integers.make_same_width_index_kernel(ufunc))}


def _shift_row(ufunc: np.ufunc, on_index: Kernel) -> Row:
    """Return the kernels of a shift whose count has the dtype of its operand."""
    return {**{d: integers.make_shift_reading_count_as_unsigned(ufunc, d) for d in dt.INTS}, dt.index: on_index}


def _fixed_width_mulacc(a: Array, b: Array, c: Array) -> Any:
    return np.add(np.multiply(a, b), c)


_MULACC: Row = {
    **dict.fromkeys((dt.bool_, *dt.INTS), _fixed_width_mulacc),
    **{
        d: (mulacc.make_fp8_mulacc_via_float64 if mulacc.is_mulacc_exact_in_float64(d) else mulacc.make_mulacc_via_float64)(d)
        for d in dt.FLOATS
        if d is not dt.float64
    },
    dt.float64: mulacc.mulacc_float64,
    dt.index: integers.mulacc_index,
}

_RECIP: Row = {
    **{d: _reciprocal_kernel(d) for d in NATIVE},
    **{d: _unary_via_float32(_reciprocal_kernel(dt.float32), d) for d in SMALL},
}

# fmt: off
#: op -> dtype of the first source -> kernel.
KERNELS: dict[Op, Row] = {
    Op.RECIP:    _RECIP,
    Op.TRUNC:    {**_float_row(np.trunc), **dict.fromkeys((dt.bool_, *dt.INTS, dt.index), _identity)},
    Op.ADD:      _arithmetic_row(np.add, integers.add_index),
    Op.MUL:      _arithmetic_row(np.multiply, integers.mul_index),
    Op.MAX:      _arithmetic_row(np.maximum, integers.make_same_width_index_kernel(np.maximum)),
    Op.MOD:      _integer_row(integers.fixed_width_mod, integers.mod_index),
    Op.IDIV:     _integer_row(integers.fixed_width_idiv, integers.floor_divide_index),
    Op.CMPLT:    _comparison_row(np.less),
    Op.CMPNE:    _comparison_row(np.not_equal),
    Op.XOR:      _bitwise_row(np.bitwise_xor),
    Op.OR:       _bitwise_row(np.bitwise_or),
    Op.AND:      _bitwise_row(np.bitwise_and),
    Op.SHR:      _shift_row(np.right_shift, integers.shr_index),
    Op.SHL:      _shift_row(np.left_shift, integers.shl_index),
    Op.WHERE:    _WHERE,
    Op.NEG:      {**dict.fromkeys(dt.INTS, np.negative), **{d: _sign_flip_kernel(d) for d in dt.FLOATS},
                  dt.index: integers.neg_index},
    Op.SUB:      {**dict.fromkeys(dt.INTS, np.subtract), **_float_row(np.subtract), dt.index: integers.sub_index},
    Op.DIV:      _float_row(np.divide),
    Op.CMPGT:    _comparison_row(np.greater),
    Op.CMPGE:    _comparison_row(np.greater_equal),
    Op.CMPLE:    _comparison_row(np.less_equal),
    Op.CMPEQ:    _comparison_row(np.equal),
    Op.NOT:      {dt.bool_: np.logical_not},
    Op.EXP2:     _transcendental_row(np.exp2, libm.exp2),
    Op.LOG2:     _transcendental_row(np.log2, libm.log2),
    Op.SIN:      _transcendental_row(np.sin, libm.sin),
    Op.SQRT:     _float_row(np.sqrt),
    Op.POW:      {**{d: _pow_via_float64(d) for d in dt.FLOATS}, dt.float64: libm.pow_},
    Op.MULACC:   _MULACC,
    Op.THREEFRY: {dt.uint64: threefry},
}
# fmt: on
assert KERNELS.keys() | {Op.CAST, Op.MIN} == ALU, f"interp/ops/elementwise.py: add kernels of {ALU - KERNELS.keys()}"


def _wrap_with_negative_count_trap(kernel: Kernel) -> Kernel:
    """Return `kernel` with a check of its shift counts, which are of dtype index."""

    def checked_shift(a: Array, b: Array) -> Any:
        integers.reject_negative_shift_counts(b)
        return kernel(a, b)

    return checked_shift


#: Kernels of shifts of fixed-width integers by counts of dtype index (R81: a negative count is a Trap).
BY_INDEX: dict[Op, Row] = {op: {d: _wrap_with_negative_count_trap(KERNELS[op][d]) for d in dt.INTS} for op in SHIFT}


def kernel_of(op: Op, sources: Sequence[UOp]) -> Kernel:
    """Return the kernel of `op` on these sources.

    It is that of the first source's dtype, except for shifts by an index (R81).
    """
    d = sources[0].dtype
    if op in BY_INDEX and d is not dt.index and sources[1].dtype is dt.index:
        return BY_INDEX[op][d]
    return KERNELS[op][d]
