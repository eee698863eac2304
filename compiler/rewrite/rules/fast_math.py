"""Rules of the algebra of real numbers, which change values of floats (`Config.fast_math`; R156, fast-math).

Each rule names what it assumes of the values, which nothing checks: properties that real numbers do not have, and conditions on its
variables. Under these assumptions it is true, which is proved over the reals (`uops.compiler.prove.reals`). Tests check that a
float32 without the named flaws computes the same, up to rounding where rounding is one of the flaws. A condition under `when` is
checked by the matcher, as for other rules. A rule for several orders of its operands has a number behind its name.
"""

from __future__ import annotations

from collections.abc import Iterator

from uops.compiler.prove.admission import select_proved_rules_and_warn
from uops.compiler.rewrite.pattern import (
    BOOL,
    Pattern,
    TypeVar,
    as_pattern,
    cast,
    cst,
    eq,
    format_pattern,
    maximum,
    ne,
    not_,
    operation,
    var,
    where,
)
from uops.compiler.rewrite.rule import Assumptions, Flaw, Rule
from uops.compiler.rewrite.rules.folding import FOLDS, SWAPS
from uops.compiler.rewrite.witness import EvaluationWitness
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import REDUCTIONS, Op

FLOATS = tuple(d for d in dt.FLOATS if d.bits > 8)
N, I, Z, R = Flaw.NAN, Flaw.INFINITY, Flaw.ZERO, Flaw.ROUNDING  # noqa: E741

x, y, z = (var(name, FLOATS) for name in "xyz")
c, d, k = (cst(name, FLOATS) for name in "cdk")
p = var("p", BOOL)
zero, one = as_pattern(0.0), as_pattern(1.0)


def div(a: object, b: object) -> Pattern:
    """Return the pattern of a Div."""
    return operation(Op.DIV, a, b)


def recip(a: object) -> Pattern:
    """Return the pattern of a Recip."""
    return operation(Op.RECIP, a)


def sqrt(a: object) -> Pattern:
    """Return the pattern of a Sqrt."""
    return operation(Op.SQRT, a)


def exp2(a: object) -> Pattern:
    """Return the pattern of a Exp2."""
    return operation(Op.EXP2, a)


def log2(a: object) -> Pattern:
    """Return the pattern of a Log2."""
    return operation(Op.LOG2, a)


def power(a: object, b: object) -> Pattern:
    """Return the pattern of a Pow."""
    return operation(Op.POW, a, b)


def minus(a: object, b: object) -> Pattern:
    """Return the pattern of a Sub."""
    return operation(Op.SUB, a, b)


def _is_finite(k: UOp) -> bool:
    """Return True if the value of a constant is finite, as it is if it is near the exact one."""
    return bool(abs(k.arg.value) <= k.dtype.max_finite)


def _is_normal_number(k: UOp) -> bool:
    """Return True if a constant is a finite normal number. A product or quotient that is none may have underflowed."""
    return _is_finite(k) and abs(k.arg.value) >= k.dtype.smallest_normal


def _make_witness_near_exact_value(p: Pattern) -> EvaluationWitness:
    """Return a witness that proposes the value of a pattern only if it is near the exact one."""
    return EvaluationWitness(p, _is_finite if p.op in (Op.ADD, Op.SUB) else _is_normal_number)


def _enumerate_orders_of_nonconstant_operands(q: Pattern) -> Iterator[Pattern]:
    """Yield a pattern with the operands of its commutative ops in every order; constants stay on the right."""
    if not q.src:
        yield q
        return
    heads: list[list[Pattern]] = [[]]
    for s in q.src:
        heads = [[*head, t] for head in heads for t in _enumerate_orders_of_nonconstant_operands(s)]
    for src in heads:
        yield Pattern(q.op, tuple(src), to=q.to)
        if q.op in REDUCTIONS:  # they commute
            _, rhs = q.src
            if not (rhs.constant or rhs.value is not None):
                yield Pattern(q.op, tuple(src[::-1]), to=q.to)


def _text_with_variables_numbered(q: Pattern, numbers_by_variable: dict[str, int]) -> str:
    """Return the text of a pattern with its variables numbered in order of first use."""
    if q.name is not None:
        return f"{'c' if q.constant else 'v'}{numbers_by_variable.setdefault(q.name, len(numbers_by_variable))}"
    return (
        format_pattern(q)
        if q.op is None
        else f"{q.op.name}({' '.join(_text_with_variables_numbered(s, numbers_by_variable) for s in q.src)})"
    )


def _generate_commuted_rules(
    name: str, lhs: Pattern, rhs: Pattern, *flaws: Flaw, assumed_condition: Pattern | None = None, when: Pattern | None = None,
    value_of_constant_k: Pattern | None = None,
) -> Iterator[Rule]:  # fmt: skip
    """Yield the rule in every order of operands that gives another left side; the constant named k has the value of
    `value_of_constant_k`."""
    seen: set[str] = set()
    for order in _enumerate_orders_of_nonconstant_operands(lhs):
        form = _text_with_variables_numbered(order, {})
        if form not in seen:
            seen.add(form)
            number = "" if len(seen) == 1 else f"-{len(seen)}"
            yield Rule(
                name + number,
                order,
                rhs,
                when,
                None if value_of_constant_k is None else _make_witness_near_exact_value(value_of_constant_k),
                assumes=Assumptions(flaws, assumed_condition),
            )


SUMS = (
    *_generate_commuted_rules("real-add-zero", x + 0.0, x, Z),
    *_generate_commuted_rules("real-add-minus-zero", x + -0.0, x),
    *_generate_commuted_rules("real-sub-zero", x - 0.0, x),
    *_generate_commuted_rules("real-zero-sub", minus(0.0, x), -x, Z),
    *_generate_commuted_rules("real-sub-self", x - x, zero, N),
    *_generate_commuted_rules("real-add-negated", x + -y, x - y),
    *_generate_commuted_rules("real-sub-negated", x - -y, x + y),
    *_generate_commuted_rules("real-negated-sub", -(x - y), y - x, Z),
    *_generate_commuted_rules("real-negated-twice", operation(Op.NEG, -x), x),
    # Constants are merged.
    *_generate_commuted_rules("real-sub-constant", x - c, x + k, value_of_constant_k=-c),
    *_generate_commuted_rules("real-add-constants", (x + c) + d, x + k, I, R, value_of_constant_k=c + d),
    *_generate_commuted_rules("real-constant-sub-sum", minus(c, x + d), minus(k, x), I, R, value_of_constant_k=c - d),
    *_generate_commuted_rules("real-constant-sub-sub", minus(c, minus(d, x)), x + k, I, R, value_of_constant_k=c - d),
    *_generate_commuted_rules("real-constant-sub-add", minus(c, x) + d, minus(k, x), I, R, value_of_constant_k=c + d),
    # A term that is added and subtracted again.
    *_generate_commuted_rules("real-add-then-sub", (x + y) - y, x, N, I, R),
    *_generate_commuted_rules("real-sub-then-add", (x - y) + y, x, N, I, R),
    *_generate_commuted_rules("real-sub-difference", x - (x - y), y, N, I, R),
    *_generate_commuted_rules("real-sub-sum", x - (x + y), -y, N, I, R),
    *_generate_commuted_rules("real-difference-sub", (x - y) - x, -y, N, I, R),
    # A common factor, or divisor.
    *_generate_commuted_rules("real-common-factor", x * y + x * z, x * (y + z), I, R),
    *_generate_commuted_rules("real-common-factor-sub", x * y - x * z, x * (y - z), I, R),
    *_generate_commuted_rules("real-factor-and-itself", x + x * c, x * k, I, R, value_of_constant_k=c + 1.0),
    *_generate_commuted_rules("real-factor-less-itself", x * c - x, x * k, I, R, value_of_constant_k=c - 1.0),
    *_generate_commuted_rules("real-itself-less-factor", x - x * c, x * k, I, R, value_of_constant_k=minus(1.0, c)),
    *_generate_commuted_rules("real-common-divisor", div(x, z) + div(y, z), div(x + y, z), I, R, assumed_condition=ne(z, 0.0)),
    *_generate_commuted_rules("real-common-divisor-sub", div(x, z) - div(y, z), div(x - y, z), I, R, assumed_condition=ne(z, 0.0)),
)

_APART = ne(y, 0.0) & ne(z, 0.0)
PRODUCTS = (
    *_generate_commuted_rules("real-mul-one", x * 1.0, x),
    *_generate_commuted_rules("real-mul-minus-one", x * -1.0, -x),
    *_generate_commuted_rules("real-mul-zero", x * 0.0, zero, N, Z),
    *_generate_commuted_rules("real-mul-minus-zero", x * -0.0, zero, N, Z),
    *_generate_commuted_rules("real-div-one", div(x, 1.0), x),
    *_generate_commuted_rules("real-div-minus-one", div(x, -1.0), -x),
    *_generate_commuted_rules("real-zero-div", div(0.0, x), zero, N, Z, assumed_condition=ne(x, 0.0)),
    *_generate_commuted_rules("real-one-div", div(1.0, x), recip(x), assumed_condition=ne(x, 0.0)),
    *_generate_commuted_rules("real-div-self", div(x, x), one, N, assumed_condition=ne(x, 0.0)),
    # Constants and signs are merged.
    *_generate_commuted_rules("real-mul-constants", (x * c) * d, x * k, I, R, value_of_constant_k=c * d),
    *_generate_commuted_rules("real-scaled-product", (x * c) * (y * d), (x * y) * k, I, R, value_of_constant_k=c * d),
    *_generate_commuted_rules("real-negated-factors", -x * -y, x * y),
    *_generate_commuted_rules("real-negated-by-constant", -x * c, x * k, value_of_constant_k=-c),
    *_generate_commuted_rules("real-negated-product", -(x * c), x * k, value_of_constant_k=-c),
    *_generate_commuted_rules("real-negated-quotient", div(-x, -y), div(x, y), assumed_condition=ne(y, 0.0)),
    *_generate_commuted_rules("real-div-constant", div(x, c), x * k, R, when=ne(c, 0.0), value_of_constant_k=div(1.0, c)),
    *_generate_commuted_rules(
        "real-constant-div-scaled",
        div(c, x * d),
        div(k, x),
        R,
        assumed_condition=ne(x, 0.0),
        when=ne(d, 0.0),
        value_of_constant_k=div(c, d),
    ),
    # Quotients of quotients.
    *_generate_commuted_rules("real-div-div", div(div(x, y), z), div(x, y * z), N, I, R, assumed_condition=_APART),
    *_generate_commuted_rules("real-div-by-quotient", div(x, div(y, z)), div(x * z, y), N, I, R, assumed_condition=_APART),
    *_generate_commuted_rules("real-div-then-mul", div(x, y) * y, x, N, I, R, assumed_condition=ne(y, 0.0)),
    *_generate_commuted_rules("real-mul-then-div", div(x * y, y), x, N, I, R, assumed_condition=ne(y, 0.0)),
    *_generate_commuted_rules("real-mul-recip-self", x * recip(x), one, N, I, R, assumed_condition=ne(x, 0.0)),
    *_generate_commuted_rules("real-recip-twice", recip(recip(x)), x, R, assumed_condition=ne(x, 0.0)),
    *_generate_commuted_rules("real-recip-quotient", recip(div(x, y)), div(y, x), R, assumed_condition=ne(x, 0.0) & ne(y, 0.0)),
    *_generate_commuted_rules(
        "real-recip-product", recip(x) * recip(y), recip(x * y), I, R, assumed_condition=ne(x, 0.0) & ne(y, 0.0)
    ),
    *_generate_commuted_rules("real-div-by-recip", div(x, recip(y)), x * y, I, R, assumed_condition=ne(y, 0.0)),
    # Mulacc, which rounds once (R16, rounding).
    *_generate_commuted_rules("real-mulacc-zero", operation(Op.MULACC, x, y, 0.0), x * y, Z),
    *_generate_commuted_rules("real-mulacc-one", operation(Op.MULACC, x, 1.0, y), x + y),
    *_generate_commuted_rules("real-mulacc-by-zero", operation(Op.MULACC, x, 0.0, y), y, N, Z),
)

_POSITIVE = (x > 0.0) & (y > 0.0)
_ROOTS = (x >= 0.0) & (y >= 0.0)
FUNCTIONS = (
    *_generate_commuted_rules("real-exp2-product", exp2(x) * exp2(y), exp2(x + y), I, R),
    *_generate_commuted_rules("real-exp2-quotient", div(exp2(x), exp2(y)), exp2(x - y), N, I, R),
    *_generate_commuted_rules("real-exp2-recip", recip(exp2(x)), exp2(-x), R),
    *_generate_commuted_rules("real-log2-exp2", log2(exp2(x)), x, I, R),
    *_generate_commuted_rules("real-exp2-log2", exp2(log2(x)), x, R, assumed_condition=x > 0.0),
    *_generate_commuted_rules("real-log2-sum", log2(x) + log2(y), log2(x * y), I, R, assumed_condition=_POSITIVE),
    *_generate_commuted_rules("real-log2-difference", log2(x) - log2(y), log2(div(x, y)), I, R, assumed_condition=_POSITIVE),
    *_generate_commuted_rules("real-log2-power", log2(power(x, y)), y * log2(x), N, I, R, assumed_condition=x > 0.0),
    *_generate_commuted_rules("real-power-half", power(x, 0.5), sqrt(x), R, assumed_condition=x > 0.0),
    *_generate_commuted_rules("real-power-minus-one", power(x, -1.0), recip(x), R, assumed_condition=x > 0.0),
    *_generate_commuted_rules("real-power-one", power(x, 1.0), x, R, assumed_condition=x > 0.0),
    *_generate_commuted_rules("real-sqrt-squared", sqrt(x) * sqrt(x), x, R, assumed_condition=x >= 0.0),
    *_generate_commuted_rules("real-sqrt-product", sqrt(x) * sqrt(y), sqrt(x * y), I, R, assumed_condition=_ROOTS),
    *_generate_commuted_rules(
        "real-sqrt-quotient", div(sqrt(x), sqrt(y)), sqrt(div(x, y)), I, R, assumed_condition=(x >= 0.0) & (y > 0.0)
    ),
    *_generate_commuted_rules("real-sqrt-of-square", sqrt(x * x), maximum(x, -x), I, R),
    *_generate_commuted_rules("real-div-sqrt", div(x, sqrt(x)), sqrt(x), N, R, assumed_condition=x > 0.0),
)

_T = TypeVar("T", FLOATS)
CHOICES = (
    *_generate_commuted_rules("real-max-self", maximum(x, x), x),
    *_generate_commuted_rules("real-max-again", maximum(maximum(x, y), y), maximum(x, y), Z),
    *_generate_commuted_rules("real-where-lt-max", where(x < y, y, x), maximum(x, y), N, Z),
    *_generate_commuted_rules("real-where-gt-max", where(x > y, x, y), maximum(x, y), N, Z),
    # A product with a mask is a choice.
    *_generate_commuted_rules("real-mask-product", x * where(p, 1.0, 0.0), where(p, x, 0.0), N, Z),
    *_generate_commuted_rules("real-mask-cast", x * cast(p, _T), where(p, x, 0.0), N, Z),
    *_generate_commuted_rules("real-masks-sum", where(p, x, 0.0) + where(p, 0.0, y), where(p, x, y), Z),
    # A comparison and its opposite.
    *_generate_commuted_rules("real-not-lt", not_(x < y), y <= x, N),
    *_generate_commuted_rules("real-not-le", not_(x <= y), y < x, N),
    *_generate_commuted_rules("real-not-gt", not_(x > y), x <= y, N),
    *_generate_commuted_rules("real-not-ge", not_(x >= y), x < y, N),
    *_generate_commuted_rules("real-eq-self", eq(x, x), as_pattern(True), N),
    *_generate_commuted_rules("real-ne-self", ne(x, x), as_pattern(False), N),
    *_generate_commuted_rules("real-lt-self", x < x, as_pattern(False)),
    *_generate_commuted_rules("real-le-self", x <= x, as_pattern(True), N),
)

#: Laws that `uops.compiler.passes.callify.relax` uses beside the rules, by induction over the addends of a sum.
LAWS = (
    *_generate_commuted_rules("real-scaled-sum-of-none", zero * y, zero, N, Z),
    Rule("real-scaled-sum-one-more", x * y + z * y, (x + z) * y, assumes=Assumptions((N, I, Z, R))),
    Rule("real-div-is-recip", div(x, y), x * recip(y), assumes=Assumptions((N, I, Z, R), ne(y, 0.0))),
)

THEMES: dict[str, tuple[Rule, ...]] = {
    "fast-math/sums": SUMS,
    "fast-math/products": PRODUCTS,
    "fast-math/functions": FUNCTIONS,
    "fast-math/choices": CHOICES,
}
FAST_MATH: tuple[Rule, ...] = select_proved_rules_and_warn(rule for rules in THEMES.values() for rule in rules)
#: The rules of fast-math with those that fold constants and move them to the right.
RELAXING: tuple[Rule, ...] = (*select_proved_rules_and_warn((*FOLDS, *SWAPS)), *FAST_MATH)
