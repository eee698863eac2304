"""Powers of integers by repeated squaring, wrapping in the dtype of the result."""

from __future__ import annotations

from uops.compiler.tensor import storage
from uops.compiler.tensor.faults import fault
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def integer_power_refusing_negative_exponent(uncast_base: UOp, exponent: UOp, result_dtype: DType) -> UOp:
    """Return a ** b in `result_dtype`, an integer dtype or bool. Raises SpecValueError for a known negative exponent.

    A computed exponent may be negative: the result is then the whole part of the exact one, and 0 for 0 ** b (R165: powers of
    integers).
    """
    base, exponents = B.cast(uncast_base, result_dtype), storage.value_of(storage.find_realized_leaf(exponent) or exponent)
    if exponent.op is Op.CONST or (exponents is not None and exponents.size):
        least = exponent.arg.value if exponents is None else exponents.min().item()
        if least < 0:
            raise fault("pow", None, f"expected an exponent of at least 0 for integers, got {least}; cast the base to a float")
    return (
        power_by_squaring(base, int(exponent.arg.value))
        if exponent.op is Op.CONST
        else _integer_power_by_exponent_bits_or_sign(base, exponent)
    )


def power_by_squaring(base: UOp, exponent: int) -> UOp:
    """Return base ** exponent for an exponent of at least 0."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else B.mul(result, base)
        exponent >>= 1
        base = B.mul(base, base) if exponent else base
    one = B.const(1, base.dtype)
    return result if result is not None else B.expand(B.reshape(one, (1,) * len(base.shape)), base.shape) if base.shape else one


def _integer_power_by_exponent_bits_or_sign(base: UOp, exponent: UOp) -> UOp:
    """Return base ** exponent for a computed exponent: each bit selects the square or 1 as a factor."""
    one, e = B.const(1, base.dtype), exponent.dtype
    if e is dt.bool_:
        return B.where(exponent, base, one)
    result, square = None, base
    for k in range(e.bits - e.is_signed):
        factor = B.where(B.ne(B.and_(exponent, 1 << k), 0), square, one)
        result = factor if result is None else B.mul(result, factor)
        square = B.mul(square, square)
    assert result is not None
    return B.where(B.lt(exponent, 0), _power_by_negative_exponent(base, exponent), result) if e.is_signed else result


def _power_by_negative_exponent(base: UOp, exponent: UOp) -> UOp:
    """Return the whole part of base ** exponent for a negative exponent, which is 0 unless base is 1 or -1."""
    d = base.dtype
    one, zero = B.const(1, d), B.const(0, d)
    unsigned = B.where(B.eq(base, one), one, zero)
    if not d.is_signed:
        return unsigned
    minus = B.const(-1, d)
    return B.where(B.eq(base, minus), B.where(B.ne(B.and_(exponent, 1), 0), minus, one), unsigned)
