"""The meaning of every elementwise and decomposed op: `KERNELS[op][dtype of the first source]` is a function of arrays.

Kernels broadcast by NumPy's rule, which is R41, and never change their arguments. A dtype that is missing from a row is ill-formed
for that op (R09, R10). Cast is not here, its target being in the arg: see `rounding.CASTS`.

One rounding per op (R16): float16, float32 and float64 use NumPy's own arithmetic, whose result is the rounded exact one; bfloat16
and fp8 compute in float32, which has more than twice their bits plus two, so that the second rounding is harmless for +, -, *, /
and the square root. The transcendental functions go through float64 (R17, R18): Exp2, Log2 and Sin of the narrow floats are looked
up in a table over all bit patterns; float64 itself uses `uops.interp.libm`.
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
from uops.spec.ir.ops import Op

#: Arrays to an array, or to a NumPy scalar when every argument is ().
Kernel = Callable[..., Any]
Row = dict[DType, Kernel]

F32, F64, BOOL = NUMPY[dt.float32], NUMPY[dt.float64], NUMPY[dt.bool_]
STORABLE = dt.STORABLE
NUMBERS = (*dt.INTS, *dt.FLOATS)


def _through32(function: Callable[..., Any], d: DType) -> Kernel:
    """Compute in float32, round once to `d`; of one argument."""
    target = NUMPY[d]
    return lambda x: np.asarray(function(x.astype(F32))).astype(target)


def _pair_through32(function: Callable[..., Any], d: DType) -> Kernel:
    """`_through32` of two arguments."""
    target = NUMPY[d]
    return lambda a, b: np.asarray(function(a.astype(F32), b.astype(F32))).astype(target)


def _compared32(ufunc: np.ufunc) -> Kernel:
    return lambda a, b: ufunc(a.astype(F32), b.astype(F32))


def _floats(ufunc: np.ufunc) -> Row:
    through = _through32 if ufunc.nin == 1 else _pair_through32
    return {**dict.fromkeys(NATIVE, ufunc), **{d: through(ufunc, d) for d in SMALL}}


def _same(x: Array) -> Array:
    return x


def _recip(d: DType) -> Kernel:
    one = np.array(1, NUMPY[d])
    return lambda x: np.divide(one, x)


def _flip_sign(d: DType) -> Kernel:
    """Neg of a float flips the sign bit, of NaN too (R21)."""
    bits, target = BITS[d], NUMPY[d]
    sign = bits.type(1 << (d.bits - 1))
    return lambda x: np.asarray(x.view(bits) ^ sign).view(target)


# Transcendental functions


def _through64(function: Callable[..., Any], d: DType) -> Kernel:
    finish = NARROW[d]
    return lambda x: finish(np.asarray(function(x.astype(F64))))


def _looked_up(function: Callable[[Array], Any], d: DType) -> Kernel:
    """A function of a float of up to 16 bits, tabulated on first use."""
    bits = BITS[d]

    @cache
    def table() -> Array:
        every = np.arange(1 << d.bits, dtype=bits).view(NUMPY[d])
        with np.errstate(all="ignore"):
            return NARROW[d](np.asarray(function(every.astype(F64))))

    return lambda x: table()[x.view(bits)]


def _transcendental(through: Callable[[Array], Any], exact: Callable[[Array], Any]) -> Row:
    return {
        dt.float64: exact,
        dt.float32: _through64(through, dt.float32),
        **{d: _looked_up(exact, d) for d in dt.FLOATS if d.bits <= 16},
    }


def _pow64(x: Array, y: Array) -> Any:
    """NumPy's pow, but for 1 and 0: a signalling NaN must not spoil 1^NaN and NaN^0 (R18). Where the exponent is one number NumPy
    takes a square root for the power 0.5, which is another function at -inf and -0.0: it is given one number per element."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    out = np.power(x, np.array(np.broadcast_to(y, shape or (1,)), order="C")).reshape(shape)
    return out if not np.count_nonzero(out != out) else np.where((x == 1) | (y == 0), 1.0, out)


def _pow_through64(d: DType) -> Kernel:
    finish = NARROW[d]
    return lambda x, y: finish(np.asarray(_pow64(x.astype(F64), y.astype(F64))))


# Where


def _where(p: Array, a: Array, b: Array) -> Any:
    """R14: the condition of a TENSOR Where means CmpNe(P, 0), which is how NumPy reads one."""
    return np.where(p, a, b)


def _where_small(p: Array, a: Array, b: Array) -> Any:
    return np.where(p.astype(F32).astype(BOOL), a, b)


_WHERE: Row = {
    **dict.fromkeys((dt.bool_, *dt.INTS, *NATIVE, dt.index), _where),
    **dict.fromkeys(SMALL, _where_small),
}


# Rows


def _arithmetic(ufunc: np.ufunc, on_index: Kernel) -> Row:
    """Add, Mul, Max: or, and, or on bool (R09); integers wrap (R05); Max gives NaN if either is NaN (R11)."""
    return {dt.bool_: ufunc, **dict.fromkeys(dt.INTS, ufunc), **_floats(ufunc), dt.index: on_index}


def _comparison(ufunc: np.ufunc) -> Row:
    """IEEE comparisons (R12, R13)."""
    return {
        **dict.fromkeys((dt.bool_, *dt.INTS, *NATIVE), ufunc),
        **dict.fromkeys(SMALL, _compared32(ufunc)),
        dt.index: integers.compare(ufunc),
    }


def _integers(machine: Kernel, on_index: Kernel) -> Row:
    return {**dict.fromkeys(dt.INTS, machine), dt.index: on_index}


def _bitwise(ufunc: np.ufunc) -> Row:
    return {dt.bool_: ufunc, **_integers(ufunc, integers.unwidened(ufunc))}


def _shift(ufunc: np.ufunc, on_index: Kernel) -> Row:
    return {**{d: integers.shift_machine(ufunc, d) for d in dt.INTS}, dt.index: on_index}


def _mulacc_machine(a: Array, b: Array, c: Array) -> Any:
    return np.add(np.multiply(a, b), c)


_MULACC: Row = {
    **dict.fromkeys((dt.bool_, *dt.INTS), _mulacc_machine),
    **{d: mulacc.mulacc_in64(d) if d.bits == 8 else mulacc.mulacc_through64(d) for d in dt.FLOATS if d is not dt.float64},
    dt.float64: mulacc.mulacc64,
    dt.index: integers.mulacc,
}

# fmt: off
KERNELS: dict[Op, Row] = {
    Op.RECIP:    {**{d: _recip(d) for d in NATIVE}, **{d: _through32(_recip(dt.float32), d) for d in SMALL}},
    Op.TRUNC:    {**_floats(np.trunc), **dict.fromkeys((dt.bool_, *dt.INTS, dt.index), _same)},
    Op.ADD:      _arithmetic(np.add, integers.add),
    Op.MUL:      _arithmetic(np.multiply, integers.mul),
    Op.MAX:      _arithmetic(np.maximum, integers.unwidened(np.maximum)),
    Op.MOD:      _integers(integers.mod_machine, integers.mod),
    Op.IDIV:     _integers(integers.idiv_machine, integers.idiv),
    Op.CMPLT:    _comparison(np.less),
    Op.CMPNE:    _comparison(np.not_equal),
    Op.XOR:      _bitwise(np.bitwise_xor),
    Op.OR:       _bitwise(np.bitwise_or),
    Op.AND:      _bitwise(np.bitwise_and),
    Op.SHR:      _shift(np.right_shift, integers.shr),
    Op.SHL:      _shift(np.left_shift, integers.shl),
    Op.WHERE:    _WHERE,
    Op.NEG:      {**dict.fromkeys(dt.INTS, np.negative), **{d: _flip_sign(d) for d in dt.FLOATS}, dt.index: integers.neg},
    Op.SUB:      {**dict.fromkeys(dt.INTS, np.subtract), **_floats(np.subtract), dt.index: integers.sub},
    Op.DIV:      _floats(np.divide),
    Op.CMPGT:    _comparison(np.greater),
    Op.CMPGE:    _comparison(np.greater_equal),
    Op.CMPLE:    _comparison(np.less_equal),
    Op.CMPEQ:    _comparison(np.equal),
    Op.NOT:      {dt.bool_: np.logical_not},
    Op.EXP2:     _transcendental(np.exp2, libm.exp2),
    Op.LOG2:     _transcendental(np.log2, libm.log2),
    Op.SIN:      _transcendental(np.sin, libm.sin),
    Op.SQRT:     _floats(np.sqrt),
    Op.POW:      {**{d: _pow_through64(d) for d in dt.FLOATS}, dt.float64: libm.pow_},
    Op.MULACC:   _MULACC,
    Op.THREEFRY: {dt.uint64: threefry},
}
# fmt: on


def _by_index(kernel: Kernel) -> Kernel:
    def checked(a: Array, b: Array) -> Any:
        integers.check_counts(b)
        return kernel(a, b)

    return checked


#: Shifts of machine integers by counts of dtype index (R81).
BY_INDEX: dict[Op, Row] = {op: {d: _by_index(KERNELS[op][d]) for d in dt.INTS} for op in (Op.SHL, Op.SHR)}


def kernel_of(op: Op, sources: Sequence[UOp]) -> Kernel:
    """The meaning of an op on these sources: that of the first one's dtype, but for shifts by an index."""
    d = sources[0].dtype
    if op in BY_INDEX and d is not dt.index and sources[1].dtype is dt.index:
        return BY_INDEX[op][d]
    return KERNELS[op][d]
