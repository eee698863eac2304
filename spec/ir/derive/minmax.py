"""The rules of *min_max*, the bounds of every non-NaN element (R70 and R71, min_max).

Integer bounds are computed exactly and widened to the dtype's range if one leaves it. Float bounds are computed exactly and rounded
outward. In the rules `a` and `A` are the least and the greatest value of the first operand, `b` and `B` those of the second.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.dtype import node_selected_by_gettuple
from uops.spec.ir.derive.exact import round_down, round_up
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import MANY, UNSET, MinMax, Rule, UOp
from uops.spec.ir.ops import MARKERS, Op

INF = math.inf
_INDEX, _BOOL, _FLOAT = DTypeKind.INDEX, DTypeKind.BOOL, DTypeKind.FLOAT  # globals: access through the class is slow
#: Integers up to this magnitude are exact as a Python float.
_EXACT = 1 << 53
#: Dtype -> [dtype_min, dtype_max]. There is one tuple per dtype, so that this most frequent interval can be compared with `is`.
WHOLE: dict[DType, MinMax] = {d: (d.min, d.max) for d in dt.ALL if d is not dt.void}
#: The bounds of a bool of which nothing is known.
BOOL: MinMax = WHOLE[dt.bool_]


def full_range(d: DType) -> MinMax:
    """Return [dtype_min, dtype_max]."""
    return WHOLE[d]


def dtype_range(u: UOp) -> MinMax | None:
    """Return the range of the node's dtype; None for void."""
    return WHOLE.get(u.dtype)


def void(u: UOp) -> None:
    """Return None: an op without a value."""
    return


def of_first(u: UOp) -> MinMax | None:
    """Return the bounds of the first source, whatever its name."""
    source = u.src[0]  # the operand, the buffer of an After, the variable of a BIND
    p: MinMax | None = source._min_max
    return p if p is not UNSET else source.min_max


def of_const(u: UOp) -> MinMax:
    """Return the value of a Const as both bounds; the whole range for NaN."""
    v, d = u.arg.value, u.arg.dtype
    return full_range(d) if v != v else _widen_to_infinity(v, v) if d.kind is _INDEX else (v, v)


def of_param(u: UOp) -> MinMax | None:
    """Return the bounds of a named variable; the range of the dtype for any other Param."""
    b: MinMax | None = u.arg.bounds
    return dtype_range(u) if b is None else b


#: The magnitude beyond which the bound of an index counts as infinite. It keeps chains of products cheap and bounds in float range.
_HUGE = 1 << 1000


def _widen_to_infinity(lo: float, hi: float) -> MinMax:
    """Return index bounds in which those beyond `_HUGE` are infinite on the outer side."""
    return (lo if lo >= -_HUGE else -INF) if lo <= _HUGE else _HUGE, (hi if hi <= _HUGE else INF) if hi >= -_HUGE else -_HUGE


def widen_to_full_range_on_overflow(d: DType, lo: float, hi: float) -> MinMax:
    """Return an integer interval if it fits in `d`, else the whole range, since wrapped values may be anywhere (R70)."""
    if d.kind is _INDEX:
        return _widen_to_infinity(lo, hi)
    least, most = all_of_it = WHOLE[d]
    return (lo, hi) if least <= lo and hi <= most else all_of_it


def interval_hull(first: MinMax, *others: MinMax) -> MinMax:
    """Return the least interval that holds all the given ones."""
    for p in others:
        if p is not first:
            first = min(first[0], p[0]), max(first[1], p[1])
    return first


def round_outward(d: DType, lo: float | Fraction | None, hi: float | Fraction | None) -> MinMax:
    """Return exact float bounds rounded outward to `d`; a bound of None is unknown, as it comes from a NaN."""
    bounds = (d.min if lo is None else round_down(d, lo)), (d.max if hi is None else round_up(d, hi))
    return bounds if bounds != WHOLE[d] else WHOLE[d]


def _add_exactly_as_float_or_fraction(a: float, b: float) -> float | Fraction | None:
    """Return the exact sum, as a float where that is exact; None for inf - inf."""
    s = a + b
    if math.isinf(s) or s != s:
        return Fraction(a) + Fraction(b) if math.isfinite(a) and math.isfinite(b) else None if s != s else s
    part = s - a  # Knuth's TwoSum: the sum is exact if the error term is 0
    return s if (a - (s - part)) + (b - part) == 0 else Fraction(a) + Fraction(b)


def _multiply_exactly_as_float_or_fraction(a: float, b: float) -> float | Fraction | None:
    """Return the exact product, as a float where that is exact; None for 0 * inf."""
    p = a * b
    if math.isinf(a) or math.isinf(b):
        return None if p != p else p
    if a == 0 or b == 0:
        return 0.0
    if 1e-290 < abs(p) < 1e290 and _has_exact_square(a) and _has_exact_square(b):
        return p
    return Fraction(a) * Fraction(b)


def _has_exact_square(x: float) -> bool:
    """Return True for at most 26 significant bits; the product of two such floats is exact."""
    return math.ldexp(math.frexp(x)[0], 26).is_integer()


def _require_operand_bounds(u: UOp) -> tuple[MinMax, MinMax]:
    """Return the bounds of lhs and rhs."""
    lhs, rhs = u.src
    a, b = lhs.min_max, rhs.min_max
    assert a is not None and b is not None
    return a, b


def of_add(u: UOp) -> MinMax:
    """Return [a + b, A + B]."""
    d, ((a, A), (b, B)) = u.dtype, (pairs := _require_operand_bounds(u))
    if pairs[0] is pairs[1] is WHOLE[d]:  # a shortcut to the same result, also in the next rules
        return pairs[0]
    if d.kind is _BOOL:
        return a or b, A or B
    if d.kind is not _FLOAT:
        return widen_to_full_range_on_overflow(d, a + b, A + B)
    return round_outward(d, _add_exactly_as_float_or_fraction(a, b), _add_exactly_as_float_or_fraction(A, B))


def of_sub(u: UOp) -> MinMax:
    """Return [a - B, A - b]."""
    d, ((a, A), (b, B)) = u.dtype, (pairs := _require_operand_bounds(u))
    if pairs[0] is pairs[1] is WHOLE[d]:
        return pairs[0]
    if d.kind is not _FLOAT:
        return widen_to_full_range_on_overflow(d, a - B, A - b)
    return round_outward(d, _add_exactly_as_float_or_fraction(a, -B), _add_exactly_as_float_or_fraction(A, -b))


def of_neg(u: UOp) -> MinMax:
    """Return [-A, -a]."""
    d, p = u.dtype, u.operand.min_max
    assert p is not None
    if p is WHOLE[d]:
        return p
    return (-p[1], -p[0]) if d.kind is _FLOAT else widen_to_full_range_on_overflow(d, -p[1], -p[0])


def _multiply_with_infinities(a: float, b: float) -> float:
    """Return the product of extended integers; 0 times infinity is 0."""
    return 0 if a == 0 or b == 0 else a * b


def of_mul(u: UOp) -> MinMax:
    """Return the least and the greatest product of the bounds."""
    d, ((a, A), (b, B)) = u.dtype, (pairs := _require_operand_bounds(u))
    if pairs[0] is pairs[1] is WHOLE[d]:
        return pairs[0]
    corners = ((a, b), (a, B), (A, b), (A, B))
    if d.kind is _BOOL:
        return a and b, A and B
    if d.kind is not _FLOAT:
        products = [_multiply_with_infinities(x, y) for x, y in corners]
        return widen_to_full_range_on_overflow(d, min(products), max(products))
    exact = [p for x, y in corners if (p := _multiply_exactly_as_float_or_fraction(x, y)) is not None]
    return round_outward(d, min(exact), max(exact)) if len(exact) == len(corners) else full_range(d)


def of_max(u: UOp) -> MinMax:
    """Return [max(a, b), max(A, B)]."""
    p, q = _require_operand_bounds(u)
    return p if p is q else (max(p[0], q[0]), max(p[1], q[1]))


def of_min(u: UOp) -> MinMax:
    """Return [min(a, b), min(A, B)]."""
    p, q = _require_operand_bounds(u)
    return p if p is q else (min(p[0], q[0]), min(p[1], q[1]))


def _floor_divide_with_infinities(a: float, b: float) -> float:
    """Return floor(a / b) of extended integers, b not 0."""
    if math.isinf(a):
        return a if b > 0 else -a
    if math.isinf(b):
        return -1 if (a < 0) != (b < 0) and a != 0 else 0
    return a // b


def of_idiv_zero_for_zero_divisor(u: UOp) -> MinMax:
    """Return the hull of the quotients at the ends of the divisor, which is cut at zero; x Idiv 0 = 0 (R03).

    On either side of zero the quotient is monotonic in both operands.
    """
    d, ((a, A), (b, B)) = u.dtype, _require_operand_bounds(u)
    ends = [e for e in (b, B, -1, 1) if b <= e <= B and e != 0]
    values: list[float] = [_floor_divide_with_infinities(x, y) for x in (a, A) for y in ends]
    if b <= 0 <= B:
        values.append(0)
    return widen_to_full_range_on_overflow(d, min(values), max(values))


def of_mod(u: UOp) -> MinMax:
    """Return bounds of a - b * floor(a / b), which has the sign of the divisor (R02, Mod); x Mod 0 = x (R03)."""
    d, ((a, A), (b, B)) = u.dtype, _require_operand_bounds(u)
    if b == B and b > 0 and not math.isinf(a) and not math.isinf(A) and a // b == A // b:
        return a % b, A % b
    lo: float = min(0, b + 1)
    hi: float = max(0, B - 1)
    if 0 <= a and b > 0:
        hi = min(hi, A)
    if b <= 0 <= B:
        lo, hi = min(lo, a), max(hi, A)
    return widen_to_full_range_on_overflow(d, lo, hi)


def of_shl(u: UOp) -> MinMax:
    """Return bounds of a * 2^b if nothing wraps; a count at or above the width gives 0 (R06, shifts)."""
    d, ((a, A), (b, B)) = u.dtype, _require_operand_bounds(u)
    if not (0 <= b and B <= 4096) or math.isinf(a) or math.isinf(A):
        return full_range(d)
    ends = [int(x) << int(n) for x in (a, A) for n in (b, B)]
    return widen_to_full_range_on_overflow(d, min(ends), max(ends))


def of_shr_with_unlimited_counts(u: UOp) -> MinMax:
    """Return bounds of floor(a / 2^b), also for counts at or above the width (R06, shifts; R07, Shr)."""
    d, ((a, A), (b, B)) = u.dtype, _require_operand_bounds(u)
    if math.isinf(a) or math.isinf(A):
        return min(a, 0), max(A, 0)
    counts = [min(int(n), 4096) for n in (b, B)] if 0 <= b and not math.isinf(B) else [0, 4096]
    ends = [int(x) >> n for x in (a, A) for n in counts]
    return widen_to_full_range_on_overflow(d, min(ends), max(ends))


def of_bitwise(u: UOp) -> MinMax:
    """Return bounds of Xor, Or and And in two's complement of unlimited width (R29, index arithmetic).

    Each operand is cut at zero. A negative x is ~p of the natural number p = ~x, so all cases are ones of natural numbers.
    """
    d, ((a, A), (b, B)) = u.dtype, (pairs := _require_operand_bounds(u))
    if d.kind is _BOOL:
        return _bound_bool_bitwise(u.op, a, A, b, B)
    if u.op is Op.AND and (a >= 0 or b >= 0):
        return 0, min(x for x, low in ((A, a), (B, b)) if low >= 0)
    if pairs[0] is pairs[1] is WHOLE[d] or any(map(math.isinf, (a, A, b, B))):
        return full_range(d)
    lo, hi = interval_hull(
        *[_BITWISE[u.op](*x, *y) for x in _split_at_zero(int(a), int(A)) for y in _split_at_zero(int(b), int(B))]
    )
    return widen_to_full_range_on_overflow(d, lo, hi)


#: Numbers of one sign: (negative?, least p, greatest p). The numbers are the natural p, or ~p if negative.
_SignedPart = tuple[bool, int, int]


def _split_at_zero(a: int, A: int) -> list[_SignedPart]:
    """Return the nonnegative and the negative part of an interval, without empty ones."""
    return [part for part in ((False, max(a, 0), A), (True, ~min(A, -1), ~a)) if part[1] <= part[2]]


def _complement_bounds(p: MinMax) -> MinMax:
    return ~int(p[1]), ~int(p[0])


def _or_upper_bound(P: int, Q: int) -> int:
    """Return an upper bound of p | q for p <= P and q <= Q."""
    return min((1 << max(P.bit_length(), Q.bit_length())) - 1, P + Q)


def _bound_bitwise_or_of_complementable_naturals(
    left_is_complement: bool, p: int, P: int, right_is_complement: bool, q: int, Q: int
) -> MinMax:
    """Return the bounds of p | q, with ~p or ~q in place of p or q where that operand is negative."""
    if left_is_complement and right_is_complement:  # ~(p & q), where p & q = p + q - (p | q)
        return _complement_bounds((max(0, p + q - _or_upper_bound(P, Q)), min(P, Q)))
    if left_is_complement or right_is_complement:  # ~(p & ~q), where p & ~q is p without some of the bits of q
        return _complement_bounds((max(0, p - Q), P) if left_is_complement else (max(0, q - P), Q))
    return max(p, q), _or_upper_bound(P, Q)


def _bound_bitwise_and_of_signed_parts(left_negative: bool, p: int, P: int, right_negative: bool, q: int, Q: int) -> MinMax:
    return _complement_bounds(_bound_bitwise_or_of_complementable_naturals(not left_negative, p, P, not right_negative, q, Q))


def _bound_bitwise_xor_of_signed_parts(left_negative: bool, p: int, P: int, right_negative: bool, q: int, Q: int) -> MinMax:
    bounds = max(0, p - Q, q - P), _or_upper_bound(P, Q)
    return bounds if left_negative is right_negative else _complement_bounds(bounds)


_BITWISE = {
    Op.OR: _bound_bitwise_or_of_complementable_naturals,
    Op.AND: _bound_bitwise_and_of_signed_parts,
    Op.XOR: _bound_bitwise_xor_of_signed_parts,
}


def _bound_bool_bitwise(op: Op, a: float, A: float, b: float, B: float) -> MinMax:
    if op is Op.AND:
        return a and b, A and B
    if op is Op.OR:
        return a or b, A or B
    return (a != b, a != b) if a == A and b == B else BOOL


def of_cmplt_never_true_for_floats(u: UOp) -> MinMax:
    """Return false if a >= B, true if A < b; a float comparison is never known to be true, since NaN compares false (R71)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if a >= B:
        return False, False
    return (True, True) if A < b and not u.lhs.dtype.is_float else BOOL


def of_cmpgt_never_true_for_floats(u: UOp) -> MinMax:
    """Return false if A <= b, true if a > B (R71, as CmpLt)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if A <= b:
        return False, False
    return (True, True) if a > B and not u.lhs.dtype.is_float else BOOL


def of_cmpge_never_true_for_floats(u: UOp) -> MinMax:
    """Return false if A < b, true if a >= B (R71, as CmpLt)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if A < b:
        return False, False
    return (True, True) if a >= B and not u.lhs.dtype.is_float else BOOL


def of_cmple_never_true_for_floats(u: UOp) -> MinMax:
    """Return false if a > B, true if A <= b (R71, as CmpLt)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if a > B:
        return False, False
    return (True, True) if A <= b and not u.lhs.dtype.is_float else BOOL


def of_cmpne_never_false_for_floats(u: UOp) -> MinMax:
    """Return true for disjoint intervals, false for one common value; a float CmpNe is never known to be false (R71)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if A < b or B < a:
        return True, True
    return (False, False) if a == A == b == B and not u.lhs.dtype.is_float else BOOL


def of_cmpeq_never_true_for_floats(u: UOp) -> MinMax:
    """Return false for disjoint intervals, true for one common value (R71, as CmpNe)."""
    (a, A), (b, B) = _require_operand_bounds(u)
    if A < b or B < a:
        return False, False
    return (True, True) if a == A == b == B and not u.lhs.dtype.is_float else BOOL


def of_not(u: UOp) -> MinMax:
    """Return [not A, not a]."""
    p = u.operand.min_max
    assert p is not None
    return not p[1], not p[0]


def hull_of_where_branches(u: UOp) -> MinMax:
    """Return the hull of both branches."""
    b, c = u.src[1].min_max, u.src[2].min_max  # if_true, if_false
    assert b is not None and c is not None
    return interval_hull(b, c)


def of_cast(u: UOp) -> MinMax:
    """Return the bounds of a Cast (R70, min_max).

    An interval is converted where the cast is monotonic on it, else it becomes the range of the dtype. Clamping, as the seed
    document has it, would be unsound for integers that wrap.
    """
    target, bounds, source = u.arg.dtype, u.operand.min_max, u.operand.dtype
    assert bounds is not None
    return _cast_full_range(source, target) if bounds is WHOLE[source] else _cast_bounds(source, target, bounds)


@cache
def _cast_full_range(source: DType, target: DType) -> MinMax:
    return _cast_bounds(source, target, WHOLE[source])


def _cast_bounds(source: DType, target: DType, bounds: MinMax) -> MinMax:
    if target.kind is _BOOL:
        return _cast_integer_bounds_to_bool_else_unknown(source, bounds)
    if target.kind is _FLOAT:
        return round_outward(
            target, *(x if isinstance(x, float) else float(x) if -_EXACT <= x <= _EXACT else Fraction(x) for x in bounds)
        )
    if not source.is_float:
        return widen_to_full_range_on_overflow(
            target,
            int(bounds[0]) if not math.isinf(bounds[0]) else bounds[0],
            int(bounds[1]) if not math.isinf(bounds[1]) else bounds[1],
        )
    least, most = WHOLE[target]
    lo, hi = (min(max(_truncate(x), least), most) for x in bounds)
    return (min(lo, 0), max(hi, 0)) if lo != least or hi != most else WHOLE[target]


def _truncate(x: float) -> float:
    return x if math.isinf(x) else math.trunc(x)


def _cast_integer_bounds_to_bool_else_unknown(source: DType, bounds: MinMax) -> MinMax:
    if source.is_float:
        return BOOL
    if bounds[0] == bounds[1] == 0:
        return False, False
    return (True, True) if bounds[0] > 0 or bounds[1] < 0 else BOOL


def of_trunc(u: UOp) -> MinMax | None:
    """Return the truncated bounds."""
    p = u.operand.min_max
    assert p is not None
    if not u.dtype.is_float or p is WHOLE[u.dtype]:
        return p
    return float(_truncate(p[0])), float(_truncate(p[1]))


def with_zero(u: UOp) -> MinMax | None:
    """Return the operand's bounds, extended to include the zeros that a Pad adds (R43, Pad)."""
    p = u.operand.min_max
    assert p is not None
    return p if p[0] <= 0 <= p[1] else (min(p[0], type(p[0])(0)), max(p[1], type(p[1])(0)))


def of_stack(u: UOp) -> MinMax:
    """Return the hull of all elements (R77)."""
    if not u.src:
        return full_range(u.dtype)
    if len(u.src) >= MANY and not u.dtype.is_float and (values := u.constants_of_stack) is not None:
        return widen_to_full_range_on_overflow(u.dtype, min(values), max(values))
    return interval_hull(*[p for s in dict.fromkeys(u.src) if (p := s.min_max) is not None])


def of_load(u: UOp) -> MinMax | None:
    """Return the bounds of the buffer, or the hull with those of the alternative (R77)."""
    bounds, alternative = u.buffer.min_max, u.alternative
    if bounds is None or alternative is None or alternative.min_max is None:
        return bounds
    return interval_hull(bounds, alternative.min_max)


def of_range(u: UOp) -> MinMax:
    """Return [0, max(0, n - 1)] for a bound of at most n (R57, Range)."""
    bound = u.src[0].min_max  # bound
    assert bound is not None
    return 0, max(0, bound[1] - 1)


def of_tuple_element(u: UOp) -> MinMax | None:
    """Return the bounds of the element that a GetTuple selects."""
    return node_selected_by_gettuple(u).min_max


def of_define_var(u: UOp) -> MinMax:
    """Return the bounds that a DEFINE_VAR states."""
    return u.arg.min_val, u.arg.max_val


def of_vconst(u: UOp) -> MinMax:
    """Return the hull of the lane constants; the whole range if one is NaN."""
    values = [c.value for c in u.arg.values]
    return full_range(u.arg.dtype) if any(v != v for v in values) else (min(values), max(values))


_VOID_OPS = (
    (Op.FUNCTION, Op.CALL, Op.TUPLE, Op.STORE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.BARRIER, Op.IF, Op.ENDIF, Op.ATOMICADD)
    + (Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE, Op.B_STORE, Op.B_PROGRAM, Op.B_IF, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE)
)  # fmt: skip

#: Ops whose results have no closer bounds than their dtype.
_UNBOUNDED_OPS = (
    (Op.RECIP, Op.DIV, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.POW, Op.MULACC, Op.THREEFRY)
    + (Op.BUFFER, Op.BINARY, Op.SLICE, Op.BITCAST, Op.REDUCE, Op.INS, Op.WMMA, Op.CUSTOM, Op.CUSTOMI, Op.REDUCE_AXIS, Op.B_REDUCE)
    + (Op.ALLREDUCE, Op.B_BUFFER, Op.POINTER_INDEX, Op.B_LOAD, Op.PROGRAM_BINARY, Op.PTRCAT, Op.B_PARAM, Op.DEFINE_LOCAL)
    + (Op.DEFINE_REG, Op.BUFFER_VIEW)
)  # fmt: skip

#: Op -> its rule; no op is without one.
RULES: dict[Op, Rule] = {
    **dict.fromkeys(_UNBOUNDED_OPS, dtype_range),
    **dict.fromkeys(_VOID_OPS, void),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys(
        (Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.SHRINK, Op.INDEX, Op.REPLICATED, Op.AFTER, Op.B_SHRINK, Op.COPY, Op.GEP)
        + (Op.B_INDEX, Op.BIND, Op.MULTI, Op.MSELECT, Op.PRECAST, Op.B_BARRIER, Op.UNROLL, Op.CONTRACT, Op.BUFFERIZE),
        of_first,
    ),
    **dict.fromkeys((Op.VECTORIZE, Op.CAT, Op.MSTACK), of_stack),
    **dict.fromkeys((Op.XOR, Op.OR, Op.AND), of_bitwise),
    **dict.fromkeys((Op.RANGE, Op.B_RANGE, Op.SPECIAL), of_range),
    Op.CONST: of_const,
    Op.PARAM: of_param,
    Op.DEFINE_VAR: of_define_var,
    Op.VCONST: of_vconst,
    Op.PAD: with_zero,
    Op.B_PAD: with_zero,
    Op.STACK: of_stack,
    Op.LOAD: of_load,
    Op.GETTUPLE: of_tuple_element,
    Op.CAST: of_cast,
    Op.TRUNC: of_trunc,
    Op.ADD: of_add,
    Op.SUB: of_sub,
    Op.NEG: of_neg,
    Op.MUL: of_mul,
    Op.MAX: of_max,
    Op.MIN: of_min,
    Op.IDIV: of_idiv_zero_for_zero_divisor,
    Op.MOD: of_mod,
    Op.SHL: of_shl,
    Op.SHR: of_shr_with_unlimited_counts,
    Op.CMPLT: of_cmplt_never_true_for_floats,
    Op.CMPGT: of_cmpgt_never_true_for_floats,
    Op.CMPGE: of_cmpge_never_true_for_floats,
    Op.CMPLE: of_cmple_never_true_for_floats,
    Op.CMPNE: of_cmpne_never_false_for_floats,
    Op.CMPEQ: of_cmpeq_never_true_for_floats,
    Op.NOT: of_not,
    Op.WHERE: hull_of_where_branches,
}
