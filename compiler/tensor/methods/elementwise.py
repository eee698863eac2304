"""Elementwise arithmetic: operators and functions, one value per element.

Operands are promoted (`uops.compiler.tensor.dtypes`) and broadcast (R41). Quotients and elementary functions of integers are
float32. Each composite states its formula; intermediate overflow never makes a NaN out of a finite argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self, TypeVar

from uops.compiler.tensor.core import Operand
from uops.compiler.tensor.dtypes import DTypeLike, Number, as_dtype, default_dtype, floating, promote, weak
from uops.compiler.tensor.faults import claim_of, fault
from uops.compiler.tensor.methods.movement import Movement
from uops.compiler.tensor.methods.powers import integer_power, whole_power
from uops.compiler.tensor.methods.remainder import floor_divide, remainder
from uops.compiler.tensor.numbers import check_fit, number
from uops.spec.errors import SpecError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.shape import broadcast
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Operations that some dtypes lack -> what the common dtype must be, and the claim that says so (R09, R10, R80).
_LEGAL: dict[Op, tuple[Callable[[DType], bool], str]] = {
    **{op: (lambda d: d.is_integer or d is dt.bool_, f"{op.name}.C3") for op in (Op.XOR, Op.OR, Op.AND)},
    **{op: (lambda d: d.is_integer, f"{op.name}.C2") for op in (Op.SHR, Op.SHL)},
    Op.SUB: (lambda d: d is not dt.bool_, "SUB.C3"),
    Op.NEG: (lambda d: d is not dt.bool_, "NEG.C2"),
    Op.IDIV: (lambda d: d is not dt.bool_, "IDIV.C3"),
    Op.MOD: (lambda d: d is not dt.bool_, "MOD.C3"),
}
_LOG2_E = 1 / math.log(2)
_LN_2 = math.log(2)


class Elementwise(Movement):
    """Operators, comparisons, bit operations and elementary functions."""

    __slots__ = ()
    __hash__ = object.__hash__  # == builds a Tensor; identity is what a dict of Tensors means

    # Two operands

    def _pair(self, other: Operand, reverse: bool = False, floats: bool = False) -> tuple[UOp, UOp]:
        like = floating(self.dtype) if floats else self.dtype
        a, b = self.uop, self._operand(other, like)
        if floats:
            common = floating(promote(a.dtype, b.dtype))
            a, b = B.cast(a, common), B.cast(b, common)
        return (b, a) if reverse else (a, b)

    def _binary(self, method: str, op: Op, other: Operand, reverse: bool = False, floats: bool = False) -> Self:
        a, b = self._pair(other, reverse, floats)
        legal, claim = _LEGAL.get(op, (None, ""))
        common = a.dtype if op in (Op.SHR, Op.SHL) else promote(a.dtype, b.dtype)
        if legal is not None and not legal(common):
            raise fault(method, claim, f"{a.dtype} and {b.dtype}", SpecTypeError)
        if op in (Op.SHR, Op.SHL) and not b.dtype.is_integer:
            raise fault(method, f"{op.name}.C3", f"a count of {b.dtype}", SpecTypeError)
        return self._alu(method, op, a, b)

    def _alu(self, method: str, op: Op, *nodes: UOp) -> Self:
        try:
            return self.of(B.alu(op, *nodes))
        except SpecError:
            self._check_shapes(method, op, *nodes)
            raise

    def add(self, other: Operand, reverse: bool = False) -> Self:
        return self._binary("add", Op.ADD, other, reverse)

    def sub(self, other: Operand, reverse: bool = False) -> Self:
        return self._binary("sub", Op.SUB, other, reverse)

    def mul(self, other: Operand, reverse: bool = False) -> Self:
        return self._binary("mul", Op.MUL, other, reverse)

    def div(self, other: Operand, reverse: bool = False) -> Self:
        """The quotient as a float; of integers in float32."""
        return self._binary("div", Op.DIV, other, reverse, floats=True)

    def idiv(self, other: Operand, reverse: bool = False) -> Self:
        """floor(a / b), of floats as in NumPy; 0 where an integer divisor is 0 (R01, R03)."""
        return self._divide("idiv", Op.IDIV, floor_divide, other, reverse)

    def mod(self, other: Operand, reverse: bool = False) -> Self:
        """a - b * floor(a / b), of floats exact and rounded once; a where an integer divisor is 0 (R02, R03)."""
        return self._divide("mod", Op.MOD, remainder, other, reverse)

    def _divide(self, method: str, op: Op, of_floats: Callable[[UOp, UOp], UOp], other: Operand, reverse: bool) -> Self:
        a, b = self._pair(other, reverse)
        common = promote(a.dtype, b.dtype)
        if not common.is_float:
            return self._binary(method, op, other, reverse)
        self._check_shapes(method, op, a, b)
        return self.of(of_floats(B.cast(a, common), B.cast(b, common)))

    @staticmethod
    def _check_shapes(method: str, op: Op, *nodes: UOp) -> None:
        shapes = [n.shape for n in nodes]
        try:
            broadcast(shapes)
        except SpecError as e:
            given = ", ".join(map(str, shapes))
            raise fault(method, claim_of(op, "shapes broadcast"), f"shapes {given} do not broadcast (R41)") from e

    def pow(self, other: Operand, reverse: bool = False) -> Self:
        """a ** b: of integers by products in their dtype (R165), of floats by products for a number from 0 to 4, else Pow (R18)."""
        if self.dtype.is_float and isinstance(other, int) and not reverse and 0 <= other <= 4:
            return self.of(whole_power(self.uop, other))
        a, b = self._pair(other, reverse)
        common = promote(a.dtype, b.dtype)
        if common.is_float:
            return self._binary("pow", Op.POW, other, reverse)
        self._check_shapes("pow", Op.POW, a, b)
        return self.of(integer_power(a, b, common))

    def maximum(self, other: Operand) -> Self:
        """NaN where either is NaN (R11)."""
        return self._binary("maximum", Op.MAX, other)

    def minimum(self, other: Operand) -> Self:
        """The negated maximum of the negated; of integers with ~, which reverses their order without overflow."""
        a, b = (self.of(u) for u in self._pair(other))
        common = promote(a.dtype, b.dtype)
        return a.cast(common)._reversed()._binary("minimum", Op.MAX, b.cast(common)._reversed())._reversed()

    def _reversed(self) -> Self:
        """An involution that reverses the order of the dtype's values."""
        return -self if self.dtype.is_float else ~self

    def __add__(self, o: Operand) -> Self:
        return self.add(o)

    def __radd__(self, o: Operand) -> Self:
        return self.add(o, True)

    def __sub__(self, o: Operand) -> Self:
        return self.sub(o)

    def __rsub__(self, o: Operand) -> Self:
        return self.sub(o, True)

    def __mul__(self, o: Operand) -> Self:
        return self.mul(o)

    def __rmul__(self, o: Operand) -> Self:
        return self.mul(o, True)

    def __truediv__(self, o: Operand) -> Self:
        return self.div(o)

    def __rtruediv__(self, o: Operand) -> Self:
        return self.div(o, True)

    def __floordiv__(self, o: Operand) -> Self:
        return self.idiv(o)

    def __rfloordiv__(self, o: Operand) -> Self:
        return self.idiv(o, True)

    def __mod__(self, o: Operand) -> Self:
        return self.mod(o)

    def __rmod__(self, o: Operand) -> Self:
        return self.mod(o, True)

    def __pow__(self, o: Operand) -> Self:
        return self.pow(o)

    def __rpow__(self, o: Operand) -> Self:
        return self.pow(o, True)

    # Bits

    def __and__(self, o: Operand) -> Self:
        return self._binary("__and__", Op.AND, o)

    def __or__(self, o: Operand) -> Self:
        return self._binary("__or__", Op.OR, o)

    def __xor__(self, o: Operand) -> Self:
        return self._binary("__xor__", Op.XOR, o)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, o: Operand) -> Self:
        return self._binary("__lshift__", Op.SHL, o)

    def __rshift__(self, o: Operand) -> Self:
        return self._binary("__rshift__", Op.SHR, o)

    def __rlshift__(self, o: Operand) -> Self:
        return self._binary("__rlshift__", Op.SHL, o, True)

    def __rrshift__(self, o: Operand) -> Self:
        return self._binary("__rrshift__", Op.SHR, o, True)

    def __invert__(self) -> Self:
        """Not of bools; every bit of integers."""
        if self.dtype is dt.bool_:
            return self.of(B.not_(self.uop))
        return self ^ (-1 if self.dtype.is_signed else int(self.dtype.max))

    bitwise_not = __invert__

    def logical_not(self) -> Self:
        """Whether the element is zero."""
        return self.of(B.not_(self.cast(dt.bool_).uop))

    # Comparisons

    def __lt__(self, o: Operand) -> Self:
        return self._binary("__lt__", Op.CMPLT, o)

    def __gt__(self, o: Operand) -> Self:
        return self._binary("__gt__", Op.CMPGT, o)

    def __le__(self, o: Operand) -> Self:
        return self._binary("__le__", Op.CMPLE, o)

    def __ge__(self, o: Operand) -> Self:
        return self._binary("__ge__", Op.CMPGE, o)

    def eq(self, other: Operand) -> Self:
        return self._binary("eq", Op.CMPEQ, other)

    def ne(self, other: Operand) -> Self:
        return self._binary("ne", Op.CMPNE, other)

    def __eq__(self, o: Operand) -> Self:  # type: ignore[override]
        return self.eq(o)

    def __ne__(self, o: Operand) -> Self:  # type: ignore[override]
        return self.ne(o)

    def isnan(self) -> Self:
        return self.ne(self)

    def isinf(self) -> Self:
        return self.eq(math.inf) | self.eq(-math.inf) if self.dtype.is_float else self.zeros_like(dtype=dt.bool_)

    # Selection

    def where(self, a: Operand, b: Operand) -> Self:
        """`a` where this Tensor is not zero, else `b` (R14); two Python numbers have the dtypes they have alone."""
        pair: list[UOp | None] = [None if isinstance(v, (bool, int, float)) else self._operand(v) for v in (a, b)]
        known = [u.dtype for u in pair if u is not None]
        if known:
            x, y = (u if u is not None else self._operand(v, known[0]) for u, v in zip(pair, (a, b)))
        else:
            x = weak(a, default_dtype(a))
            y = weak(b, x.dtype)
        return self._alu("where", Op.WHERE, self.cast(dt.bool_).uop, x, y)

    def masked_fill(self, mask: Operand, value: Operand) -> Self:
        """`value` where the mask holds."""
        return self.of(self._operand(mask)).where(value, self)

    def clamp(self, min_: Operand | None = None, max_: Operand | None = None) -> Self:
        """min(max(x, min_), max_), of which one may be None; NaN stays."""
        if min_ is None and max_ is None:
            raise fault("clamp", None, "neither a least nor a greatest value is given")
        t = self.of(self.uop) if min_ is None else self.maximum(min_)
        return t if max_ is None else t.minimum(max_)

    clip = clamp

    # One operand

    def _unary(self, op: Op) -> Self:
        """An op of floats; integers are float32 first."""
        return self.of(B.alu(op, self.cast(floating(self.dtype)).uop))

    def neg(self) -> Self:
        if self.dtype is dt.bool_:
            raise fault("neg", "NEG.C2", "bool; use logical_not", SpecTypeError)
        return self.of(B.neg(self.uop))

    __neg__ = neg

    def abs(self) -> Self:
        """0 - x where x <= 0 (so that |-0| is 0), else x."""
        if self.dtype is dt.bool_ or self.dtype.kind is Kind.UINT:
            return self.of(self.uop)
        return (self <= 0).where(0 - self, self)

    __abs__ = abs

    def sign(self) -> Self:
        """1, -1, or x itself where x is 0 or NaN."""
        if self.dtype is dt.bool_:
            return self.of(self.uop)
        below = self if self.dtype.kind is Kind.UINT else (self < 0).where(-1, self)
        return (self > 0).where(1, below)

    def square(self) -> Self:
        return self * self

    def reciprocal(self) -> Self:
        return self._unary(Op.RECIP)

    def sqrt(self) -> Self:
        return self._unary(Op.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return self.sqrt().reciprocal()

    def exp2(self) -> Self:
        return self._unary(Op.EXP2)

    def log2(self) -> Self:
        return self._unary(Op.LOG2)

    def exp(self) -> Self:
        """2^(x * log2(e)), narrow floats by way of float32; relative error at most (|x| + 3) units of the last place."""
        return self._widely(lambda t: (t * _LOG2_E).exp2())

    def log(self) -> Self:
        """log2(x) * ln(2)."""
        return self._widely(lambda t: t.log2() * _LN_2)

    def log1p(self) -> Self:
        """log(1 + x): with w = 1 + x rounded, x where w is 1, else log(w) * x / (w - 1), in which the rounding cancels (Kahan)."""

        def f(t: Self) -> Self:
            w = t + 1
            return w.eq(1).where(t, w.eq(math.inf).where(t, w.log() * (t / (w - 1))))

        return self._widely(f)

    def sin(self) -> Self:
        return self._unary(Op.SIN)

    def cos(self) -> Self:
        """1 - 2 sin(x/2)^2, whose argument is exact; the error is absolute, a few units of the last place of 1."""
        return self._widely(lambda t: 1 - (t * 0.5).sin().square() * 2)

    def tan(self) -> Self:
        """sin(x) / cos(x)."""
        return self.sin() / self.cos()

    def _widely(self, f: Callable[[Self], Self]) -> Self:
        """`f` in float32 at least, the result rounded once to the float dtype of this Tensor."""
        own = floating(self.dtype)
        return f(self.cast(own if own.bits >= 32 else dt.float32)).cast(own)

    # Rounding

    def trunc(self) -> Self:
        return self.of(B.trunc(self.uop)) if self.dtype.is_float else self.of(self.uop)

    def floor(self) -> Self:
        """trunc(x), less 1 where that is above x."""
        t = self.trunc()
        return (self < t).where(t - 1, t) if self.dtype.is_float else self.of(self.uop)

    def ceil(self) -> Self:
        """trunc(x), plus 1 where that is below x."""
        t = self.trunc()
        return (t < self).where(t + 1, t) if self.dtype.is_float else self.of(self.uop)

    def round(self) -> Self:
        """The nearest whole number, of two the even one; a zero has the sign of x."""
        if not self.dtype.is_float:
            return self.of(self.uop)
        low = self.floor()
        rest, half = self - low, low * 0.5
        up = (rest > 0.5) | (rest.eq(0.5) & half.floor().ne(half))
        whole = up.where(low + 1, low)
        return whole.eq(0).where(self * 0, whole)

    # Activations

    def relu(self) -> Self:
        """0 where x <= 0, else x: no gradient flows at 0, where a maximum would let half of it through (R78). NaN stays."""
        return (self <= 0).where(0, self)

    def leaky_relu(self, neg_slope: Number = 0.01) -> Self:
        """x where x > 0, else neg_slope * x."""
        return (self > 0).where(self, self * neg_slope)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)): exp overflows to infinity, of which the quotient is 0."""
        return self._widely(lambda t: ((-t).exp() + 1).reciprocal())

    def tanh(self) -> Self:
        """(1 - e) / (1 + e) with e = exp(-2|x|) and the sign of x; below 1/2, where that cancels, Lambert's fraction
        x / (1 + x^2 / (3 + x^2 / (5 + ...))), cut where its error is below half a unit of the last place."""
        return self._widely(_tanh)

    def silu(self) -> Self:
        """x * sigmoid(x)."""
        return self * self.sigmoid()

    swish = silu

    def gelu(self) -> Self:
        """x / 2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3): the form on the right has no
        cancellation."""
        c = 2 * math.sqrt(2 / math.pi)
        return self._widely(lambda t: t * (t * (t * t * (c * 0.044715) + c)).sigmoid())

    def softplus(self) -> Self:
        """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
        return self._widely(lambda t: t.relu() + (-t.abs()).exp().log1p())

    # Values like this one

    def full_like(self, value: Number, dtype: DTypeLike | None = None) -> Self:
        """`value` in this shape, and in this dtype unless another is given."""
        d = self.dtype if dtype is None else as_dtype(dtype)
        return self.of(B.const(check_fit(number(value), d), d))._broadcast("full_like", "EXPAND.C2", self.shape)

    def zeros_like(self, dtype: DTypeLike | None = None) -> Self:
        return self.full_like(0, dtype)

    def ones_like(self, dtype: DTypeLike | None = None) -> Self:
        return self.full_like(1, dtype)


#: Terms of Lambert's fraction for tanh below 1/2: 5 leave an error of 2^-33 of the value, 8 one of 2^-62.
_LAMBERT_TERMS = {dt.float32: 5, dt.float64: 8}
T = TypeVar("T", bound=Elementwise)
_Fraction = tuple[list[int], list[int]]


def lambert(terms: int) -> _Fraction:
    """Numerator (over x) and denominator of the cut fraction, as polynomials in x^2 with exact integer coefficients.

    P_k = (2k - 1) P_{k-1} + x^2 P_{k-2}, from 0, 1 for the numerator and 1, 1 for the denominator.
    """
    rows: list[_Fraction] = [([0], [1]), ([1], [1])]
    for k in range(2, terms + 1):
        (p, q), (r, s) = rows[-1], rows[-2]
        rows.append((_step(2 * k - 1, p, r), _step(2 * k - 1, q, s)))
    return rows[-1]


def _step(c: int, p: list[int], q: list[int]) -> list[int]:
    """c * p + x^2 * q, without zeros at the end."""
    shifted = [0, *q]
    n = max(len(p), len(shifted))
    out = [c * a + b for a, b in zip(p + [0] * (n - len(p)), shifted + [0] * (n - len(shifted)))]
    while not out[-1]:
        out.pop()
    return out


def _horner(coefficients: list[int], scale: int, x: T) -> T:
    """The polynomial at x, its coefficients divided by `scale`."""
    out = x.full_like(coefficients[-1] / scale)
    for c in reversed(coefficients[:-1]):
        out = out * x + c / scale
    return out


def _tanh(t: T) -> T:
    size, square = t.abs(), t * t
    e = (size * -2).exp()
    far = (1 - e) / (1 + e)
    p, q = lambert(_LAMBERT_TERMS[t.dtype])
    near = t * _horner(p, q[0], square) / _horner(q, q[0], square)
    return (size < 0.5).where(near, (t < 0).where(-far, far))
