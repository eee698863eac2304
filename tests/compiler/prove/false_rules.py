"""False rules: each must be refuted, with values on which the interpreter refutes it too.

By theme: PEERS are rules that other compilers have or had and that are wrong under our rulings; NEAR are near misses of our own,
with a guard dropped, a comparison loosened, an operand swapped, a dtype too many.
"""

from collections.abc import Mapping

from uops.compiler.rewrite.pattern import (
    BOOL,
    INDEX,
    Pattern,
    TypeVar,
    as_pattern,
    bitcast,
    cast,
    cst,
    eq,
    maximum,
    ne,
    not_,
    operation,
    var,
    where,
)  # fmt: skip
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

I8, U8, I32, U32, F16, F32 = (dt.int8,), (dt.uint8,), (dt.int32,), (dt.uint32,), (dt.float16,), (dt.float32,)
NARROW = (dt.int8, dt.uint8, dt.int16)
FLOATS = (dt.float16, dt.bfloat16, dt.float32)


def v(name: str, among: tuple[DType, ...]) -> Pattern:
    return var(name, among)


i, j, k, n, m = (var(name, INDEX) for name in "ijknm")
c, d, g = (cst(name, INDEX) for name in "cdg")
a8, b8, c8 = (v(name, NARROW) for name in "abc")
s8, t8 = v("s", I8), v("t", I8)
u8, w8 = v("u", U8), v("w", U8)
x, y, z = (v(name, FLOATS) for name in "xyz")
h, e = v("h", F16), v("e", F16)
p, q, r = (v(name, BOOL) for name in "pqr")
zero, one = as_pattern(0), as_pattern(1)


def div(a: object, b: object) -> Pattern:
    return operation(Op.DIV, a, b)


def recip(a: object) -> Pattern:
    return operation(Op.RECIP, a)


def mulacc(a: object, b: object, c: object) -> Pattern:
    return operation(Op.MULACC, a, b, c)


def trunc(a: object) -> Pattern:
    return operation(Op.TRUNC, a)


def to(a: Pattern, *path: DType) -> Pattern:
    for d in path:
        a = cast(a, d)
    return a


# fmt: off
PEERS = (
    # division by zero (R03)
    Rule("div-self", i // i, one),
    Rule("div-self-machine", a8 // a8, one),
    Rule("mod-self-is-divisor", i % i, i),
    Rule("mul-div-cancels", (i * n) // n, i),
    Rule("mul-div-cancels-machine", (a8 * b8) // b8, a8, when=ne(b8, 0)),
    Rule("mul-mod-vanishes", (a8 * b8) % b8, zero, when=ne(b8, 0)),
    # machine integers wrap (R05)
    Rule("add-then-less", (u8 + 250) < 5, u8 < as_pattern(5)),
    Rule("move-addend-across-less", (a8 + b8) < c8, a8 < (c8 - b8)),
    Rule("move-constant-across-less-unsigned", (v("x", U32) + 10) < 20, v("x", U32) < 10),
    Rule("sum-is-more", (a8 + 1) > a8, as_pattern(True)),
    Rule("scale-less", (s8 * 2) < (t8 * 2), s8 < t8),
    Rule("halve-double", (s8 * 2) // 2, s8),
    Rule("double-halve-shift", (s8 << 1) >> 1, s8),
    Rule("multiples-machine", (s8 * 4 + t8) // 4, s8, when=(t8 >= 0) & (t8 < 4)),
    Rule("multiples-left-machine", (s8 * 7 + t8) % 7, t8 % 7),
    Rule("div-div-wrapping-product", (v("x", (dt.int16,)) // 256) // 256, v("x", (dt.int16,)) // 0),
    Rule("negate-compare", (-s8) < (-t8), s8 > t8),
    Rule("abs-is-positive", where(s8 < 0, -s8, s8) >= 0, as_pattern(True)),
    Rule("sub-is-positive", (u8 - w8) >= 0, u8 >= w8),
    Rule("negate-unsigned", -u8, operation(Op.SUB, 255, u8)),
    # division rounds down (R01, R02), where C and its kin round toward zero
    Rule("truncating-negation", (-i) // c, -(i // c), when=c > 0),
    Rule("truncating-remainder", (-i) % c, -(i % c), when=c > 0),
    Rule("less-three-halved", (i - 3) // 2, i // 2 - 1),
    Rule("three-less-halved", operation(Op.SUB, 3, i) // 2, -((i - 3) // 2)),
    Rule("fives-by-six", (i * 5 + (j * 5 + 8)) // 6, (i + j) * 5 // 6 + 1),
    Rule("minus-nine-less-by-four", operation(Op.SUB, -9, i) // 4, operation(Op.SUB, -2, i // 4)),
    Rule("remainder-sign-of-dividend", i % c, where(i < 0, -((-i) % c), i % c), when=ne(c, 0)),
    Rule("power-of-two-mask", u8 & w8, u8 % (w8 + 1)),
    Rule("shift-is-division-toward-zero", s8 >> 1, where(s8 < 0, -((-s8) // 2), s8 // 2)),
    Rule("shift-beyond-width", u8 >> w8, u8 >> (w8 % 8)),
    Rule("shift-left-beyond-width", u8 << w8, u8 << (w8 & 7)),
    # floats: NaN, infinities, signed zeros, one rounding per op (R11 to R16)
    Rule("float-mul-zero", x * 0.0, as_pattern(0.0)),
    Rule("float-sub-self", x - x, as_pattern(0.0)),
    Rule("float-div-self", div(x, x), as_pattern(1.0)),
    Rule("float-mul-div", div(h * e, e), h),
    Rule("float-add-zero", x + 0.0, x),
    Rule("float-zero-sub", operation(Op.SUB, 0.0, x), -x),
    Rule("float-associativity", (h + e) + v("f", F16), h + (e + v("f", F16))),
    Rule("float-distribution", h * e + h * v("f", F16), h * (e + v("f", F16))),
    Rule("float-max-first", maximum(x, y), where(x < y, y, x)),
    Rule("float-max-second", maximum(x, y), where(x > y, x, y)),
    Rule("float-not-less", not_(x < y), x >= y),
    Rule("float-greater-equal", x >= y, not_(x < y)),
    Rule("float-equal-self", eq(x, x), as_pattern(True)),
    Rule("float-unequal-self", ne(x, x), as_pattern(False)),
    Rule("float-fused", h * e + v("f", F16), mulacc(h, e, v("f", F16))),
    Rule("float-div-is-recip-mul", div(h, e), h * recip(e)),
    Rule("float-recip-recip", recip(recip(h)), h),
    Rule("float-recip-of-product", recip(h * 3.0), recip(h) * 0.333251953125),
    Rule("float-one-less-recip", h * recip(h + 1.0), operation(Op.SUB, 1.0, recip(h + 1.0))),
    Rule("float-negated-difference", -(x - y), y - x),
    Rule("float-constant-across-less", (h + 1.0) < 2.0, h < 1.0),
    Rule("float-double-halve", (h * 2.0) * 0.5, h),
    Rule("float-trunc-trunc-sum", trunc(h + e), trunc(h) + trunc(e)),
    # casts (R15)
    Rule("cast-through-int8", to(v("x", I32), dt.int8, dt.int32), v("x", I32)),
    Rule("cast-through-half", to(v("x", F32), dt.float16, dt.float32), v("x", F32)),
    Rule("cast-through-bfloat", to(h, dt.bfloat16, dt.float16), h),
    Rule("cast-integer-through-half", to(v("x", (dt.int16,)), dt.float16, dt.int16), v("x", (dt.int16,))),
    Rule("cast-float-to-byte-through-int32", to(x, dt.uint8), to(x, dt.int32, dt.uint8)),
    Rule("cast-double-rounding", to(v("x", I32), dt.bfloat16), to(v("x", I32), dt.float32, dt.bfloat16)),
    Rule("cast-clamped-compare", to(v("x", I32), dt.int8) < 100, v("x", I32) < 100),
    Rule("cast-of-sum", to(s8 + t8, dt.int32), to(s8, dt.int32) + to(t8, dt.int32)),
    Rule("cast-to-bool-of-sum", to(s8 + t8, dt.bool_), to(s8, dt.bool_) | to(t8, dt.bool_)),
    Rule("cast-to-bool-as-integer", to(x, dt.bool_), to(x, dt.int32, dt.bool_)),
    Rule("cast-fp8-saturates", to(v("x", F16), dt.fp8e4m3), to(where(v("x", F16) > 448.0, 448.0, v("x", F16)), dt.fp8e4m3)),
    Rule("bitcast-as-cast", bitcast(v("x", I32), dt.float32), cast(v("x", I32), dt.float32)),
    # booleans (R09)
    Rule("bool-add-is-xor", p + q, p ^ q),
    Rule("bool-less-is-implies", p < q, not_(p) | q),
)

NEAR = (
    # Max twice is one node with one value: the sum is an infinity, never NaN (R11, R27)
    Rule(
        "max-of-zeros-twice",
        operation(Op.RECIP, maximum(x, y)) + operation(Op.RECIP, maximum(x, y)),
        where(eq(x, 0.0), float("nan"), 1.0),
        when=eq(x, 0.0) & eq(y, 0.0) & (operation(Op.RECIP, x) > operation(Op.RECIP, y)),
    ),
    # two casts of one value are no one node
    Rule("two-casts-equal", eq(to(v("x", I32), dt.uint8, dt.int32), to(v("x", I32), dt.int8, dt.int32)), as_pattern(True)),
    # two variables may match one node: then the two Max are one, too
    Rule(
        "max-of-zeros-of-two-variables",
        operation(Op.RECIP, maximum(x, z)) + operation(Op.RECIP, maximum(y, z)),
        where(eq(x, 0.0), float("nan"), 1.0),
        when=eq(x, 0.0) & eq(y, 0.0) & eq(z, 0.0) & (operation(Op.RECIP, x) > operation(Op.RECIP, z)),
    ),
    Rule("mod-small-unguarded-below", i % c, i, when=i < c),
    Rule("mod-small-unguarded-above", i % c, i, when=i >= 0),
    Rule("div-small-off-by-one", i // c, zero, when=(i >= 0) & (i <= c)),
    Rule("div-div-unguarded", (i // c) // d, i // (c * d)),
    Rule("div-div-half-guarded", (i // c) // d, i // (c * d), when=c > 0),
    Rule("mod-mod-not-dividing", (i % c) % d, i % d, when=(c > 0) & (d > 0)),
    Rule("mod-mod-divides-the-other-way", (i % c) % d, i % d, when=(d > 0) & eq(d % c, 0)),
    Rule("div-multiples-of-zero", (j * c + i) // c, j + i // c),
    Rule("mod-multiples-quotient", (j * c + i) % c, j + i % c, when=ne(c, 0)),
    Rule("div-factor-loose-rest", (j * g + i) // (d * g), j // d, when=(d > 0) & (g > 0) & (i >= 0) & (i <= g)),
    Rule("div-factor-negative-rest", (j * g + i) // (d * g), j // d, when=(d > 0) & (g > 0) & (i < g)),
    Rule("mod-factor-without-scale", (j * g + i) % (d * g), j % d + i, when=(d > 0) & (g > 0) & (i >= 0) & (i < g)),
    Rule("mod-window-too-low", i % c < d, (i >= 0) & (i < d), when=(c > 0) & (i >= d - c - 1) & (i < c)),
    Rule("mod-window-to-its-end", i % c < d, (i >= 0) & (i < d), when=(c > 0) & (i >= d - c) & (i <= c)),
    Rule("mod-then-div-swapped", (i % (k * c)) // c, (i % k) // c, when=(k > 0) & (c > 0)),
    Rule("recomposition-swapped", (i // c) * c + i // c, i, when=c > 0),
    Rule("div-compare-strict", i // c <= d, i <= c * d, when=c > 0),
    Rule("recombine-another-divisor", (i // c) * c + i % d, i, when=(c > 0) & (d > 0)),
    Rule("recombine-another-multiple", (i // c) * d + i % c, i, when=(c > 0) & (d > 0)),
    Rule("widen-unguarded", ((i // c) % d) * c + i % c, i % (c * d)),
    Rule("div-mod-unguarded", (i % (k * c)) // c, (i // c) % k),
    Rule("div-in-range-at-the-end", (j * c + i) // c, j, when=(c > 0) & (i >= 0) & (i <= c)),
    Rule("mod-in-range-below", (j * c + i) % c, i, when=(c > 0) & (i < c)),
    Rule("mod-period-not-dividing", (i % c + j) % d, (i + j) % d, when=(c > 0) & (d > 0)),
    Rule("div-sum-div-unscaled", (i // c + j) // d, (i + j) // (c * d), when=(c > 0) & (d > 0)),
    Rule("lt-multiples-any-rest", (j * g + i) < (d * g), j < d, when=(g > 0) & (i >= 0)),
    Rule("lt-quotient-closed", (i // c) < d, i <= c * d, when=c > 0),
    Rule("max-is-min", maximum(a8, b8), a8, when=a8 <= b8),
    Rule("sub-swapped", a8 - b8, b8 - a8),
    Rule("sub-self-wrong-zero", a8 - a8, one),
    Rule("and-absorbs", a8 & b8, a8),
    Rule("or-zero-absorbs", a8 | 0, zero),
    Rule("xor-self-keeps", a8 ^ a8, a8),
    Rule("xor-is-or", a8 ^ b8, a8 | b8),
    Rule("index-xor-is-or", i ^ j, i | j),
    Rule("de-morgan-half", not_(p & q), not_(p) & not_(q)),
    Rule("where-swapped", where(p, x, y), where(p, y, x)),
    Rule("where-not-kept", where(not_(p), a8, b8), where(p, a8, b8)),
    Rule("where-nested-wrong-arm", where(p, where(p, a8, b8), c8), where(p, b8, c8)),
    Rule("where-two-conditions", where(p, where(q, a8, b8), b8), where(p | q, a8, b8)),
    Rule("where-xor-and", where(p, not_(q), q), p & q),
    Rule("not-less-is-greater", not_(a8 < b8), a8 > b8),
    Rule("not-ge-is-le", not_(a8 >= b8), a8 <= b8),
    Rule("less-self-true", a8 < a8, as_pattern(True)),
    Rule("neg-neg-twice", operation(Op.NEG, operation(Op.NEG, -a8)), a8),
    Rule("shl-is-double", a8 << 1, a8 * 3),
    Rule("idiv-by-zero-keeps", a8 // 0, a8),
    Rule("imod-by-zero-vanishes", a8 % 0, zero),
    Rule("signed-as-unsigned-less", s8 < t8, to(s8, dt.uint8) < to(t8, dt.uint8)),
    Rule("narrow-compare", to(v("x", I32), dt.int16) < to(v("y", I32), dt.int16), v("x", I32) < v("y", I32)),
    Rule("cast-wraps-any", cast(cast(a8, TypeVar("A", (dt.int8, dt.int16))), dt.int32), cast(a8, dt.int32)),
    Rule("float-max-zero", maximum(x, 0.0), where(x > 0.0, x, 0.0)),
    Rule("float-less-is-not-ge", x < y, not_(x >= y)),
    Rule("float-mul-minus-one-is-sub", operation(Op.SUB, 0.0, x), x * -1.0),
    Rule("float-sqrt-square", operation(Op.SQRT, h * h), h),
    Rule("changes-dtype", a8 < b8, b8 - a8),
)
# fmt: on

FALSE: Mapping[str, Rule] = {rule.name: rule for rule in (*PEERS, *NEAR)}
