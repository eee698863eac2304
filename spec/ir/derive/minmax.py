"""Rule column *min_max*: bounds of every non-NaN element (R70, R71).

Integers are computed exactly and widened to the dtype's range when a bound leaves it; floats are computed exactly and rounded
outward.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.dtype import tuple_element
from uops.spec.ir.derive.exact import round_down, round_up
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import MANY, UNSET, MinMax, Rule, UOp
from uops.spec.ir.ops import ALU, MARKERS, Op

INF = math.inf
_INDEX, _BOOL, _FLOAT = Kind.INDEX, Kind.BOOL, Kind.FLOAT  # a member is slow to reach through its class
_EXACT = 1 << 53  # integers up to here are floats
#: [dtype_min, dtype_max], one tuple per dtype: the commonest interval by far, so that rules and users may ask for it with `is`.
WHOLE: dict[DType, MinMax] = {d: (d.min, d.max) for d in dt.ALL if d is not dt.void}
BOOL: MinMax = WHOLE[dt.bool_]


def whole(d: DType) -> MinMax:
    """[dtype_min, dtype_max]."""
    return WHOLE[d]


def dtype_range(u: UOp) -> MinMax | None:
    return WHOLE.get(u.dtype)


def void(u: UOp) -> None:
    return None


def of_first(u: UOp) -> MinMax | None:
    source = u.src[0]
    p: MinMax | None = source._min_max
    return p if p is not UNSET else source.min_max


def of_const(u: UOp) -> MinMax:
    v, d = u.arg.value, u.arg.dtype
    return whole(d) if v != v else _widen(v, v) if d.kind is _INDEX else (v, v)


def of_param(u: UOp) -> MinMax | None:
    b: MinMax | None = u.arg.bounds
    return dtype_range(u) if b is None else b


#: Bounds of an index beyond this count as unbounded, which keeps chains of products cheap and every bound within a float's range.
_HUGE = 1 << 1000


def _widen(lo: float, hi: float) -> MinMax:
    return (lo if lo >= -_HUGE else -INF) if lo <= _HUGE else _HUGE, (hi if hi <= _HUGE else INF) if hi >= -_HUGE else -_HUGE


def fit(d: DType, lo: float, hi: float) -> MinMax:
    """An integer interval as it is when it fits in `d`, else the whole range: the wrapped values may be anywhere (R70)."""
    if d.kind is _INDEX:
        return _widen(lo, hi)
    least, most = all_of_it = WHOLE[d]
    return (lo, hi) if least <= lo and hi <= most else all_of_it


def hull(first: MinMax, *others: MinMax) -> MinMax:
    for p in others:
        if p is not first:
            first = min(first[0], p[0]), max(first[1], p[1])
    return first


def outward(d: DType, lo: float | Fraction | None, hi: float | Fraction | None) -> MinMax:
    """Exact float bounds rounded outward to `d`; None stands for a bound that NaN made unknown."""
    bounds = (d.min if lo is None else round_down(d, lo)), (d.max if hi is None else round_up(d, hi))
    return bounds if bounds != WHOLE[d] else WHOLE[d]


def _sum(a: float, b: float) -> float | Fraction | None:
    """The exact sum; a float where that is exact."""
    s = a + b
    if math.isinf(s) or s != s:
        return Fraction(a) + Fraction(b) if math.isfinite(a) and math.isfinite(b) else None if s != s else s
    part = s - a
    return s if (a - (s - part)) + (b - part) == 0 else Fraction(a) + Fraction(b)


def _product(a: float, b: float) -> float | Fraction | None:
    """The exact product; a float where that is exact."""
    p = a * b
    if math.isinf(a) or math.isinf(b):
        return None if p != p else p
    if a == 0 or b == 0:
        return 0.0
    if 1e-290 < abs(p) < 1e290 and _is_short(a) and _is_short(b):
        return p
    return Fraction(a) * Fraction(b)


def _is_short(x: float) -> bool:
    """At most 26 significant bits, so that the product of two is exact."""
    return math.ldexp(math.frexp(x)[0], 26).is_integer()


def _pairs(u: UOp) -> tuple[MinMax, MinMax]:
    a, b = u.src[0].min_max, u.src[1].min_max
    assert a is not None and b is not None
    return a, b


def of_add(u: UOp) -> MinMax:
    d, ((a, A), (b, B)) = u.dtype, (pairs := _pairs(u))
    if pairs[0] is pairs[1] is WHOLE[d]:  # as the rest would find, at more cost; so in the two rules below
        return pairs[0]
    if d.kind is _BOOL:
        return a or b, A or B
    if d.kind is not _FLOAT:
        return fit(d, a + b, A + B)
    return outward(d, _sum(a, b), _sum(A, B))


def of_sub(u: UOp) -> MinMax:
    d, ((a, A), (b, B)) = u.dtype, (pairs := _pairs(u))
    if pairs[0] is pairs[1] is WHOLE[d]:
        return pairs[0]
    if d.kind is not _FLOAT:
        return fit(d, a - B, A - b)
    return outward(d, _sum(a, -B), _sum(A, -b))


def of_neg(u: UOp) -> MinMax:
    d, p = u.dtype, u.src[0].min_max
    assert p is not None
    if p is WHOLE[d]:
        return p
    return (-p[1], -p[0]) if d.kind is _FLOAT else fit(d, -p[1], -p[0])


def _times(a: float, b: float) -> float:
    """Product of extended integers; 0 times an unbounded end is 0."""
    return 0 if a == 0 or b == 0 else a * b


def of_mul(u: UOp) -> MinMax:
    d, ((a, A), (b, B)) = u.dtype, (pairs := _pairs(u))
    if pairs[0] is pairs[1] is WHOLE[d]:
        return pairs[0]
    corners = ((a, b), (a, B), (A, b), (A, B))
    if d.kind is _BOOL:
        return a and b, A and B
    if d.kind is not _FLOAT:
        products = [_times(x, y) for x, y in corners]
        return fit(d, min(products), max(products))
    exact = [_product(x, y) for x, y in corners]
    if any(p is None for p in exact):
        return whole(d)
    known = [p for p in exact if p is not None]
    return outward(d, min(known), max(known))


def of_max(u: UOp) -> MinMax:
    p, q = _pairs(u)
    return p if p is q else (max(p[0], q[0]), max(p[1], q[1]))


def of_min(u: UOp) -> MinMax:
    p, q = _pairs(u)
    return p if p is q else (min(p[0], q[0]), min(p[1], q[1]))


def _floordiv(a: float, b: float) -> float:
    """floor(a / b) on extended integers, b not 0."""
    if math.isinf(a):
        return a if b > 0 else -a
    if math.isinf(b):
        return -1 if (a < 0) != (b < 0) and a != 0 else 0
    return a // b


def of_idiv(u: UOp) -> MinMax:
    """Monotonic on either side of zero; x Idiv 0 = 0 (R03)."""
    d, ((a, A), (b, B)) = u.dtype, _pairs(u)
    ends = [e for e in (b, B, -1, 1) if b <= e <= B and e != 0]
    values: list[float] = [_floordiv(x, y) for x in (a, A) for y in ends]
    if b <= 0 <= B:
        values.append(0)
    return fit(d, min(values), max(values))


def of_mod(u: UOp) -> MinMax:
    """Sign of the divisor, x Mod 0 = x (R02, R03)."""
    d, ((a, A), (b, B)) = u.dtype, _pairs(u)
    if b == B and b > 0 and not math.isinf(a) and not math.isinf(A) and a // b == A // b:
        return a % b, A % b
    lo: float = min(0, b + 1)
    hi: float = max(0, B - 1)
    if 0 <= a and b > 0:
        hi = min(hi, A)
    if b <= 0 <= B:
        lo, hi = min(lo, a), max(hi, A)
    return fit(d, lo, hi)


def of_shl(u: UOp) -> MinMax:
    """a * 2^b when nothing wraps; a count at or above the width gives 0 (R06)."""
    d, ((a, A), (b, B)) = u.dtype, _pairs(u)
    if not (0 <= b and B <= 4096) or math.isinf(a) or math.isinf(A):
        return whole(d)
    ends = [int(x) << int(n) for x in (a, A) for n in (b, B)]
    return fit(d, min(ends), max(ends))


def of_shr(u: UOp) -> MinMax:
    """floor(a / 2^b), also for counts at or above the width (R06, R07)."""
    d, ((a, A), (b, B)) = u.dtype, _pairs(u)
    if math.isinf(a) or math.isinf(A):
        return min(a, 0), max(A, 0)
    counts = [min(int(n), 4096) for n in (b, B)] if 0 <= b and not math.isinf(B) else [0, 4096]
    ends = [int(x) >> n for x in (a, A) for n in counts]
    return fit(d, min(ends), max(ends))


def of_bitwise(u: UOp) -> MinMax:
    """Two's complement of any width (R29): a negative x is ~p of a natural number p = ~x, whose bounds are known."""
    d, ((a, A), (b, B)) = u.dtype, (pairs := _pairs(u))
    if d.kind is _BOOL:
        return _bool_bitwise(u.op, a, A, b, B)
    if u.op is Op.AND and (a >= 0 or b >= 0):
        return 0, min(x for x, low in ((A, a), (B, b)) if low >= 0)
    if pairs[0] is pairs[1] is WHOLE[d] or any(map(math.isinf, (a, A, b, B))):
        return whole(d)
    lo, hi = hull(*[_BITWISE[u.op](*x, *y) for x in _halves(int(a), int(A)) for y in _halves(int(b), int(B))])
    return fit(d, lo, hi)


#: A number by its complement: (is it ~p?, least p, greatest p), p natural.
_Half = tuple[bool, int, int]


def _halves(a: int, A: int) -> list[_Half]:
    """An interval cut below 0."""
    return [h for h in ((False, max(a, 0), A), (True, ~min(A, -1), ~a)) if h[1] <= h[2]]


def _flip(p: MinMax) -> MinMax:
    return ~int(p[1]), ~int(p[0])


def _top(P: int, Q: int) -> int:
    """What P | Q cannot exceed."""
    return min((1 << max(P.bit_length(), Q.bit_length())) - 1, P + Q)


def _or(f: bool, p: int, P: int, g: bool, q: int, Q: int) -> MinMax:
    if f and g:  # ~(p & q), where p & q = p + q - (p | q)
        return _flip((max(0, p + q - _top(P, Q)), min(P, Q)))
    if f or g:  # ~(p & ~q), where p & ~q is p less some of the bits of q
        return _flip((max(0, p - Q), P) if f else (max(0, q - P), Q))
    return max(p, q), _top(P, Q)


def _and(f: bool, p: int, P: int, g: bool, q: int, Q: int) -> MinMax:
    return _flip(_or(not f, p, P, not g, q, Q))


def _xor(f: bool, p: int, P: int, g: bool, q: int, Q: int) -> MinMax:
    bounds = max(0, p - Q, q - P), _top(P, Q)
    return bounds if f is g else _flip(bounds)


_BITWISE = {Op.OR: _or, Op.AND: _and, Op.XOR: _xor}


def _bool_bitwise(op: Op, a: float, A: float, b: float, B: float) -> MinMax:
    if op is Op.AND:
        return a and b, A and B
    if op is Op.OR:
        return a or b, A or B
    return (a != b, a != b) if a == A and b == B else BOOL


def of_cmplt(u: UOp) -> MinMax:
    """A float comparison folds only to false: NaN compares false (R71)."""
    (a, A), (b, B) = _pairs(u)
    if a >= B:
        return False, False
    return (True, True) if A < b and not u.src[0].dtype.is_float else BOOL


def of_cmpgt(u: UOp) -> MinMax:
    (a, A), (b, B) = _pairs(u)
    if A <= b:
        return False, False
    return (True, True) if a > B and not u.src[0].dtype.is_float else BOOL


def of_cmpge(u: UOp) -> MinMax:
    (a, A), (b, B) = _pairs(u)
    if A < b:
        return False, False
    return (True, True) if a >= B and not u.src[0].dtype.is_float else BOOL


def of_cmple(u: UOp) -> MinMax:
    (a, A), (b, B) = _pairs(u)
    if a > B:
        return False, False
    return (True, True) if A <= b and not u.src[0].dtype.is_float else BOOL


def of_cmpne(u: UOp) -> MinMax:
    """A float CmpNe folds only to true (R71)."""
    (a, A), (b, B) = _pairs(u)
    if A < b or B < a:
        return True, True
    return (False, False) if a == A == b == B and not u.src[0].dtype.is_float else BOOL


def of_cmpeq(u: UOp) -> MinMax:
    (a, A), (b, B) = _pairs(u)
    if A < b or B < a:
        return False, False
    return (True, True) if a == A == b == B and not u.src[0].dtype.is_float else BOOL


def of_not(u: UOp) -> MinMax:
    p = u.src[0].min_max
    assert p is not None
    return not p[1], not p[0]


def of_where(u: UOp) -> MinMax:
    b, c = u.src[1].min_max, u.src[2].min_max
    assert b is not None and c is not None
    return hull(b, c)


def of_cast(u: UOp) -> MinMax:
    """R70: "clamped" is unsound under wrap; an interval is kept only where the cast is monotonic on it."""
    d, p, s = u.arg.dtype, u.src[0].min_max, u.src[0].dtype
    assert p is not None
    return _of_whole(s, d) if p is WHOLE[s] else _converted(s, d, p)


@cache
def _of_whole(s: DType, d: DType) -> MinMax:
    return _converted(s, d, WHOLE[s])


def _converted(s: DType, d: DType, p: MinMax) -> MinMax:
    if d.kind is _BOOL:
        return _to_bool(s, p)
    if d.kind is _FLOAT:
        return outward(d, *(x if isinstance(x, float) else float(x) if -_EXACT <= x <= _EXACT else Fraction(x) for x in p))
    if not s.is_float:
        return fit(d, int(p[0]) if not math.isinf(p[0]) else p[0], int(p[1]) if not math.isinf(p[1]) else p[1])
    least, most = WHOLE[d]
    lo, hi = (min(max(_trunc(x), least), most) for x in p)
    return (min(lo, 0), max(hi, 0)) if lo != least or hi != most else WHOLE[d]


def _trunc(x: float) -> float:
    return x if math.isinf(x) else math.trunc(x)


def _to_bool(source: DType, p: MinMax) -> MinMax:
    if source.is_float:
        return BOOL
    if p[0] == p[1] == 0:
        return False, False
    return (True, True) if p[0] > 0 or p[1] < 0 else BOOL


def of_trunc(u: UOp) -> MinMax | None:
    p = u.src[0].min_max
    assert p is not None
    if not u.dtype.is_float or p is WHOLE[u.dtype]:
        return p
    return float(_trunc(p[0])), float(_trunc(p[1]))


def with_zero(u: UOp) -> MinMax | None:
    """Pad: the fill is zero (R43)."""
    p = u.src[0].min_max
    assert p is not None
    return p if p[0] <= 0 <= p[1] else (min(p[0], type(p[0])(0)), max(p[1], type(p[1])(0)))


def of_stack(u: UOp) -> MinMax:
    if not u.src:
        return whole(u.dtype)
    if len(u.src) >= MANY and not u.dtype.is_float and (known := u.spelt) is not None:
        return fit(u.dtype, min(known), max(known))
    return hull(*[p for s in dict.fromkeys(u.src) if (p := s.min_max) is not None])


def of_load(u: UOp) -> MinMax | None:
    """The buffer's, with alt the hull (R77)."""
    p, alt = u.src[0].min_max, u.src[1].min_max if len(u.src) > 1 else None
    return p if p is None or alt is None else hull(p, alt)


def of_range(u: UOp) -> MinMax:
    """[0, max(0, n - 1)] (R57)."""
    bound = u.src[0].min_max
    assert bound is not None
    return 0, max(0, bound[1] - 1)


def of_tuple_element(u: UOp) -> MinMax | None:
    return tuple_element(u).min_max


def of_define_var(u: UOp) -> MinMax:
    return u.arg.min_val, u.arg.max_val


def of_vconst(u: UOp) -> MinMax:
    values = [c.value for c in u.arg.values]
    return whole(u.arg.dtype) if any(v != v for v in values) else (min(values), max(values))


def of_lanes(u: UOp) -> MinMax | None:
    return u.src[0].min_max


_VOID_OPS = (
    (Op.FUNCTION, Op.CALL, Op.TUPLE, Op.STORE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.BARRIER, Op.IF, Op.ENDIF, Op.ATOMICADD)
    + (Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE, Op.B_STORE, Op.B_PROGRAM, Op.B_IF, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE)
)  # fmt: skip

RULES: dict[Op, Rule] = {
    **dict.fromkeys(Op, dtype_range),
    **dict.fromkeys(_VOID_OPS, void),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys(ALU, dtype_range),
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
    Op.IDIV: of_idiv,
    Op.MOD: of_mod,
    Op.SHL: of_shl,
    Op.SHR: of_shr,
    Op.CMPLT: of_cmplt,
    Op.CMPGT: of_cmpgt,
    Op.CMPGE: of_cmpge,
    Op.CMPLE: of_cmple,
    Op.CMPNE: of_cmpne,
    Op.CMPEQ: of_cmpeq,
    Op.NOT: of_not,
    Op.WHERE: of_where,
}
