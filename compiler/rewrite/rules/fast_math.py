"""Rules that change values of floats, for whoever asks for them (`Config.fast_math`, R156): the algebra of the real numbers.

Each says what it assumes of the values, which nothing checks: flaws that floats have and real numbers do not, and conditions on its
variables. With all of that it is true, which is proved over the reals (`uops.compiler.prove.reals`); that without the flaws that it
names a float32 computes the same, up to rounding where rounding is one of them, is tested. A condition that stands under `when` is
checked by the matcher as always. A rule in several orders of its operands has a number behind its name.
"""

from __future__ import annotations

from collections.abc import Iterator

from uops.compiler.prove.admission import admitted
from uops.compiler.rewrite.pattern import (
    BOOL,
    Binding,
    Pattern,
    TypeVar,
    cast,
    cst,
    eq,
    lift,
    maximum,
    ne,
    not_,
    operation,
    spell,
    var,
    where,
)
from uops.compiler.rewrite.rule import Assumed, Flaw, Rule
from uops.compiler.rewrite.rules.folding import FOLDS, SWAPS, Evaluation
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)
N, I, Z, R = Flaw.NAN, Flaw.INFINITY, Flaw.ZERO, Flaw.ROUNDING  # noqa: E741

x, y, z = (var(name, FLOATS) for name in "xyz")
c, d, k = (cst(name, FLOATS) for name in "cdk")
p = var("p", BOOL)
zero, one = lift(0.0), lift(1.0)
_COMMUTES = frozenset({Op.ADD, Op.MUL, Op.MAX})


def div(a: object, b: object) -> Pattern:
    return operation(Op.DIV, a, b)


def recip(a: object) -> Pattern:
    return operation(Op.RECIP, a)


def sqrt(a: object) -> Pattern:
    return operation(Op.SQRT, a)


def exp2(a: object) -> Pattern:
    return operation(Op.EXP2, a)


def log2(a: object) -> Pattern:
    return operation(Op.LOG2, a)


def power(a: object, b: object) -> Pattern:
    return operation(Op.POW, a, b)


def minus(a: object, b: object) -> Pattern:
    return operation(Op.SUB, a, b)


class Normal(Evaluation):
    """Proposes `k` where its value is a normal number, or a sum: what underflowed or overflowed would be far from the exact one."""

    __slots__ = ()

    def __call__(self, found: Binding) -> dict[str, UOp] | None:
        proposed = super().__call__(found)
        if proposed is None:
            return None
        made = proposed["k"]
        least, most = 2.0 ** (1 - made.dtype.bias), made.dtype.max_finite
        summed = self.evaluates.op in (Op.ADD, Op.SUB)
        return proposed if abs(made.arg.value) <= most and (summed or abs(made.arg.value) >= least) else None


def _orders(q: Pattern) -> Iterator[Pattern]:
    """A pattern with the operands of its commutative ops in every order; constants stay right."""
    if not q.src:
        yield q
        return
    heads: list[list[Pattern]] = [[]]
    for s in q.src:
        heads = [[*head, t] for head in heads for t in _orders(s)]
    for src in heads:
        yield Pattern(q.op, tuple(src), to=q.to)
        if q.op in _COMMUTES and not (q.src[1].constant or q.src[1].value is not None):
            yield Pattern(q.op, tuple(src[::-1]), to=q.to)


def _form(q: Pattern, seen: dict[str, int]) -> str:
    """The text of a pattern with its variables numbered in the order of their first uses."""
    if q.name is not None:
        return f"{'c' if q.constant else 'v'}{seen.setdefault(q.name, len(seen))}"
    return spell(q) if q.op is None else f"{q.op.name}({' '.join(_form(s, seen) for s in q.src)})"


def _rules(
    name: str, lhs: Pattern, rhs: Pattern, *flaws: Flaw, values: Pattern | None = None, when: Pattern | None = None,
    k: Pattern | None = None,
) -> Iterator[Rule]:  # fmt: skip
    """The rule, in every order of operands that is another left side; `k` is what the constant of that name is."""
    seen: set[str] = set()
    for order in _orders(lhs):
        form = _form(order, {})
        if form not in seen:
            seen.add(form)
            number = "" if len(seen) == 1 else f"-{len(seen)}"
            yield Rule(name + number, order, rhs, when, None if k is None else Normal(k), assumes=Assumed(flaws, values))


SUMS = (
    *_rules("real-add-zero", x + 0.0, x, Z),
    *_rules("real-add-minus-zero", x + -0.0, x),
    *_rules("real-sub-zero", x - 0.0, x),
    *_rules("real-zero-sub", minus(0.0, x), -x, Z),
    *_rules("real-sub-self", x - x, zero, N),
    *_rules("real-add-negated", x + -y, x - y),
    *_rules("real-sub-negated", x - -y, x + y),
    *_rules("real-negated-sub", -(x - y), y - x, Z),
    *_rules("real-negated-twice", operation(Op.NEG, -x), x),
    # Constants meet.
    *_rules("real-sub-constant", x - c, x + k, k=-c),
    *_rules("real-add-constants", (x + c) + d, x + k, I, R, k=c + d),
    *_rules("real-constant-sub-sum", minus(c, x + d), minus(k, x), I, R, k=c - d),
    *_rules("real-constant-sub-sub", minus(c, minus(d, x)), x + k, I, R, k=c - d),
    *_rules("real-constant-sub-add", minus(c, x) + d, minus(k, x), I, R, k=c + d),
    # What is added and taken away again.
    *_rules("real-add-then-sub", (x + y) - y, x, N, I, R),
    *_rules("real-sub-then-add", (x - y) + y, x, N, I, R),
    *_rules("real-sub-difference", x - (x - y), y, N, I, R),
    *_rules("real-sub-sum", x - (x + y), -y, N, I, R),
    *_rules("real-difference-sub", (x - y) - x, -y, N, I, R),
    # A common factor, or divisor.
    *_rules("real-common-factor", x * y + x * z, x * (y + z), I, R),
    *_rules("real-common-factor-sub", x * y - x * z, x * (y - z), I, R),
    *_rules("real-factor-and-itself", x + x * c, x * k, I, R, k=c + 1.0),
    *_rules("real-factor-less-itself", x * c - x, x * k, I, R, k=c - 1.0),
    *_rules("real-itself-less-factor", x - x * c, x * k, I, R, k=minus(1.0, c)),
    *_rules("real-common-divisor", div(x, z) + div(y, z), div(x + y, z), I, R, values=ne(z, 0.0)),
    *_rules("real-common-divisor-sub", div(x, z) - div(y, z), div(x - y, z), I, R, values=ne(z, 0.0)),
)

_APART = ne(y, 0.0) & ne(z, 0.0)
PRODUCTS = (
    *_rules("real-mul-one", x * 1.0, x),
    *_rules("real-mul-minus-one", x * -1.0, -x),
    *_rules("real-mul-zero", x * 0.0, zero, N, Z),
    *_rules("real-mul-minus-zero", x * -0.0, zero, N, Z),
    *_rules("real-div-one", div(x, 1.0), x),
    *_rules("real-div-minus-one", div(x, -1.0), -x),
    *_rules("real-zero-div", div(0.0, x), zero, N, Z, values=ne(x, 0.0)),
    *_rules("real-one-div", div(1.0, x), recip(x), values=ne(x, 0.0)),
    *_rules("real-div-self", div(x, x), one, N, values=ne(x, 0.0)),
    # Constants and signs meet.
    *_rules("real-mul-constants", (x * c) * d, x * k, I, R, k=c * d),
    *_rules("real-scaled-product", (x * c) * (y * d), (x * y) * k, I, R, k=c * d),
    *_rules("real-negated-factors", -x * -y, x * y),
    *_rules("real-negated-by-constant", -x * c, x * k, k=-c),
    *_rules("real-negated-product", -(x * c), x * k, k=-c),
    *_rules("real-negated-quotient", div(-x, -y), div(x, y), values=ne(y, 0.0)),
    *_rules("real-div-constant", div(x, c), x * k, R, when=ne(c, 0.0), k=div(1.0, c)),
    *_rules("real-constant-div-scaled", div(c, x * d), div(k, x), R, values=ne(x, 0.0), when=ne(d, 0.0), k=div(c, d)),
    # Quotients of quotients.
    *_rules("real-div-div", div(div(x, y), z), div(x, y * z), N, I, R, values=_APART),
    *_rules("real-div-by-quotient", div(x, div(y, z)), div(x * z, y), N, I, R, values=_APART),
    *_rules("real-div-then-mul", div(x, y) * y, x, N, I, R, values=ne(y, 0.0)),
    *_rules("real-mul-then-div", div(x * y, y), x, N, I, R, values=ne(y, 0.0)),
    *_rules("real-mul-recip-self", x * recip(x), one, N, I, R, values=ne(x, 0.0)),
    *_rules("real-recip-twice", recip(recip(x)), x, R, values=ne(x, 0.0)),
    *_rules("real-recip-quotient", recip(div(x, y)), div(y, x), R, values=ne(x, 0.0) & ne(y, 0.0)),
    *_rules("real-recip-product", recip(x) * recip(y), recip(x * y), I, R, values=ne(x, 0.0) & ne(y, 0.0)),
    *_rules("real-div-by-recip", div(x, recip(y)), x * y, I, R, values=ne(y, 0.0)),
    # Products that are added, in one rounding (R16).
    *_rules("real-mulacc-zero", operation(Op.MULACC, x, y, 0.0), x * y, Z),
    *_rules("real-mulacc-one", operation(Op.MULACC, x, 1.0, y), x + y),
    *_rules("real-mulacc-by-zero", operation(Op.MULACC, x, 0.0, y), y, N, Z),
)

_POSITIVE = (x > 0.0) & (y > 0.0)
_ROOTS = (x >= 0.0) & (y >= 0.0)
FUNCTIONS = (
    *_rules("real-exp2-product", exp2(x) * exp2(y), exp2(x + y), I, R),
    *_rules("real-exp2-quotient", div(exp2(x), exp2(y)), exp2(x - y), N, I, R),
    *_rules("real-exp2-recip", recip(exp2(x)), exp2(-x), R),
    *_rules("real-log2-exp2", log2(exp2(x)), x, I, R),
    *_rules("real-exp2-log2", exp2(log2(x)), x, R, values=x > 0.0),
    *_rules("real-log2-sum", log2(x) + log2(y), log2(x * y), I, R, values=_POSITIVE),
    *_rules("real-log2-difference", log2(x) - log2(y), log2(div(x, y)), I, R, values=_POSITIVE),
    *_rules("real-log2-power", log2(power(x, y)), y * log2(x), N, I, R, values=x > 0.0),
    *_rules("real-power-half", power(x, 0.5), sqrt(x), R, values=x > 0.0),
    *_rules("real-power-minus-one", power(x, -1.0), recip(x), R, values=x > 0.0),
    *_rules("real-power-one", power(x, 1.0), x, R, values=x > 0.0),
    *_rules("real-sqrt-squared", sqrt(x) * sqrt(x), x, R, values=x >= 0.0),
    *_rules("real-sqrt-product", sqrt(x) * sqrt(y), sqrt(x * y), I, R, values=_ROOTS),
    *_rules("real-sqrt-quotient", div(sqrt(x), sqrt(y)), sqrt(div(x, y)), I, R, values=(x >= 0.0) & (y > 0.0)),
    *_rules("real-sqrt-of-square", sqrt(x * x), maximum(x, -x), I, R),
    *_rules("real-div-sqrt", div(x, sqrt(x)), sqrt(x), N, R, values=x > 0.0),
)

_T = TypeVar("T", FLOATS)
CHOICES = (
    *_rules("real-max-self", maximum(x, x), x),
    *_rules("real-max-again", maximum(maximum(x, y), y), maximum(x, y), Z),
    *_rules("real-where-lt-max", where(x < y, y, x), maximum(x, y), N, Z),
    *_rules("real-where-gt-max", where(x > y, x, y), maximum(x, y), N, Z),
    # A mask chooses.
    *_rules("real-mask-product", x * where(p, 1.0, 0.0), where(p, x, 0.0), N, Z),
    *_rules("real-mask-cast", x * cast(p, _T), where(p, x, 0.0), N, Z),
    *_rules("real-masks-sum", where(p, x, 0.0) + where(p, 0.0, y), where(p, x, y), Z),
    # A comparison and its opposite.
    *_rules("real-not-lt", not_(x < y), y <= x, N),
    *_rules("real-not-le", not_(x <= y), y < x, N),
    *_rules("real-not-gt", not_(x > y), x <= y, N),
    *_rules("real-not-ge", not_(x >= y), x < y, N),
    *_rules("real-eq-self", eq(x, x), lift(True), N),
    *_rules("real-ne-self", ne(x, x), lift(False), N),
    *_rules("real-lt-self", x < x, lift(False)),
    *_rules("real-le-self", x <= x, lift(True), N),
)

#: What `uops.compiler.passes.callify.relax` rests on beside the rules, by induction over the iterations of a sum.
LAWS = (
    *_rules("real-scaled-sum-of-none", zero * y, zero, N, Z),
    Rule("real-scaled-sum-one-more", x * y + z * y, (x + z) * y, assumes=Assumed((N, I, Z, R))),
    Rule("real-div-is-recip", div(x, y), x * recip(y), assumes=Assumed((N, I, Z, R), ne(y, 0.0))),
)

THEMES: dict[str, tuple[Rule, ...]] = {
    "fast-math/sums": SUMS,
    "fast-math/products": PRODUCTS,
    "fast-math/functions": FUNCTIONS,
    "fast-math/choices": CHOICES,
}
FAST_MATH: tuple[Rule, ...] = admitted(rule for rules in THEMES.values() for rule in rules)
#: With what makes constants of constants, and puts them right.
RELAXING: tuple[Rule, ...] = (*admitted((*FOLDS, *SWAPS)), *FAST_MATH)
