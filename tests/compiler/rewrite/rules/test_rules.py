"""Every rewrite rule is checked on all small values, at 4 and 8 bits or over a cube of integers, and wrong rules are refuted.

The evaluator here is a text of its own, for patterns rather than nodes: integers of any width, booleans, unbounded index values.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from uops.compiler.ir.affine import AffineSum, build_affine_sum
from uops.compiler.rewrite.fold import FOLD, fold_constant
from uops.compiler.rewrite.pattern import Pattern, TypeVar, as_pattern, cast, cst, format_pattern, maximum, var, variables, where
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import THEMES, VALUES, further
from uops.compiler.rewrite.rules.casts import is_lossless_cast
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COMPARE, Op

RULES = [(theme, rule) for theme, rules in (THEMES | further.THEMES).items() for rule in rules]
#: All assignments are checked where there are at most this many (two variables of 8 bits); more are sampled, with a fixed seed.
MOST = 1 << 17
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Width:
    """A domain of values: machine integers of `bits`, or (bits 0) index values, or booleans."""

    name: str
    bits: int
    signed: bool

    def wrap(self, n: Any) -> Any:
        if self.name == "bool":
            return np.asarray(n != 0).astype(np.int64)
        if self.name == "index":
            return n
        half = 1 << (self.bits - 1) if self.signed else 0
        return ((n + half) & ((1 << self.bits) - 1)) - half

    def values(self, count: int) -> list[int]:
        if self.name == "bool":
            return [0, 1]
        if self.name == "index":
            return list(range(-6, 7)) if count > 2 else list(range(-20, 21))
        low = -(1 << (self.bits - 1)) if self.signed else 0
        return list(range(low, low + (1 << self.bits)))


BOOL, INDEX = Width("bool", 1, False), Width("index", 0, True)
MACHINE = tuple(Width(f"{'i' if s else 'u'}{n}", n, s) for n in (4, 8) for s in (True, False))


def quotient(x: Any, y: Any) -> Any:
    """floor(x / y), and 0 for y = 0, from truncating division: R01, R03."""
    divisor = np.where(y == 0, 1, y)
    truncated = np.trunc(x / divisor).astype(np.int64)  # exact: |x| < 2^53 here
    return np.where(y == 0, 0, truncated - ((truncated * divisor > x) == (divisor > 0)) * (truncated * divisor != x))


def shift_left(w: Width, x: Any, n: Any) -> Any:
    return np.where(n < (w.bits or 32), w.wrap(x << np.minimum(n, 31)), 0)


OPS: dict[Op, Callable[..., Any]] = {
    Op.ADD: lambda w, x, y: w.wrap(x + y),
    Op.SUB: lambda w, x, y: w.wrap(x - y),
    Op.MUL: lambda w, x, y: w.wrap(x * y),
    Op.NEG: lambda w, x: w.wrap(-x),
    Op.MAX: lambda w, x, y: np.maximum(x, y),
    Op.IDIV: lambda w, x, y: w.wrap(quotient(x, y)),
    Op.MOD: lambda w, x, y: x - y * quotient(x, y),
    Op.AND: lambda w, x, y: x & y,
    Op.OR: lambda w, x, y: x | y,
    Op.XOR: lambda w, x, y: x ^ y,
    Op.SHL: shift_left,
    Op.SHR: lambda w, x, y: x >> np.minimum(y, 31),
    Op.NOT: lambda w, x: 1 - x,
    Op.TRUNC: lambda w, x: x,
    Op.WHERE: lambda w, p, x, y: np.where(p != 0, x, y),
    Op.CMPLT: lambda w, x, y: np.less(x, y).astype(np.int64),
    Op.CMPGT: lambda w, x, y: np.greater(x, y).astype(np.int64),
    Op.CMPLE: lambda w, x, y: np.less_equal(x, y).astype(np.int64),
    Op.CMPGE: lambda w, x, y: np.greater_equal(x, y).astype(np.int64),
    Op.CMPEQ: lambda w, x, y: np.equal(x, y).astype(np.int64),
    Op.CMPNE: lambda w, x, y: np.not_equal(x, y).astype(np.int64),
    Op.CAST: lambda w, x: x,  # to index: a whole number stays what it is (R29); casts between widths are checked by dtype below
}


def width_of(p: Pattern, widths: Mapping[str, Width]) -> Width | None:
    """The domain of a pattern's value; None for a literal."""
    if p.name is not None:
        return widths[p.name]
    if p.op is None:
        return None
    if p.op in COMPARE or p.op is Op.NOT:
        return BOOL
    if p.op is Op.CAST:
        return INDEX
    operands = p.src[1:] if p.op is Op.WHERE else p.src
    return next((w for q in operands if (w := width_of(q, widths)) is not None), None)


def evaluate(p: Pattern, values: Mapping[str, Ints], widths: Mapping[str, Width]) -> Any:
    if p.name is not None:
        return values[p.name]
    if p.op is None:
        assert p.value is not None
        return np.int64(p.value)
    operands = [evaluate(q, values, widths) for q in p.src]
    own = width_of(p, widths) if p.op not in COMPARE else next((w for q in p.src if (w := width_of(q, widths))), BOOL)
    return OPS[p.op](own, *operands)


def conjuncts(p: Pattern | None) -> list[Pattern]:
    if p is None:
        return []
    return [c for q in p.src for c in conjuncts(q)] if p.op is Op.AND else [p]


def solved(rule: Rule) -> dict[str, Pattern]:
    """Variables that the condition defines by an equation over others, s == q*c + r, or the folder by a pattern."""
    promised = rule.evaluated_pattern
    found: dict[str, Pattern] = {} if promised is None else {"k": promised}
    for c in conjuncts(rule.when):
        if c.op is Op.CMPEQ:
            for name, other in ((c.src[0].name, c.src[1]), (c.src[1].name, c.src[0])):
                if (
                    name is not None
                    and name not in found
                    and name not in variables(other)
                    and not set(variables(other)) & set(found)
                ):
                    found[name] = other
                    break
    return found


def domains(rule: Rule) -> Iterator[dict[str, Width]]:
    """Each way to give the variables domains: those that may be several take the same one."""
    names = {**variables(rule.lhs), **variables(rule.rhs), **(variables(rule.when) if rule.when is not None else {})}
    for shared in (BOOL, INDEX, *MACHINE):
        widths = {n: domain(v, shared) for n, v in names.items()}
        if all(w is not None for w in widths.values()):
            yield {n: w for n, w in widths.items() if w is not None}


def domain(v: Pattern, shared: Width) -> Width | None:
    if v.dtypes == (dt.bool_,):
        return BOOL
    if v.dtypes == (dt.index,):
        return INDEX
    allowed = {BOOL: dt.bool_ in v.dtypes, INDEX: dt.index in v.dtypes}
    return shared if allowed.get(shared, dt.int8 in v.dtypes) else None


def assignments(widths: Mapping[str, Width], free: list[str]) -> dict[str, Ints]:
    """One array per variable: every combination of values, or a sample of them."""
    pools = [np.array(widths[n].values(len(free)), np.int64) for n in free]
    if math.prod(map(len, pools)) <= MOST:
        grid = np.meshgrid(*pools, indexing="ij")
        return {n: g.ravel() for n, g in zip(free, grid)}
    rng = np.random.default_rng(len(free))
    return {n: rng.choice(pool, MOST) for n, pool in zip(free, pools)}


def refute(rule: Rule) -> str | None:
    """A counterexample to `when` implies lhs == rhs, or None; raises if the condition never held."""
    held = False
    for widths in domains(rule):
        equations = solved(rule)
        env = assignments(widths, [n for n in widths if n not in equations])
        for name, expression in equations.items():
            env[name] = widths[name].wrap(evaluate(expression, env, widths))
        holds = np.ones(next(iter(env.values())).shape, bool)
        for condition in conjuncts(rule.when):
            holds &= evaluate(condition, env, widths) != 0
        held |= bool(holds.any())
        left, right = (np.broadcast_to(evaluate(side, env, widths), holds.shape) for side in (rule.lhs, rule.rhs))
        wrong = np.flatnonzero(holds & (left != right))
        if len(wrong):
            at = {n: int(v[wrong[0]]) for n, v in env.items()}
            return f"{rule} at {at} of {[w.name for w in widths.values()]}: {left[wrong[0]]} is not {right[wrong[0]]}"
    if not held:
        raise AssertionError(f"the condition of {rule} never held: nothing was checked")
    return None


EVALUATED = ("fold-", "decide-", "cast-")
LOGICAL = [rule for _, rule in RULES if not rule.name.startswith(EVALUATED)]


@pytest.mark.parametrize("rule", LOGICAL, ids=lambda r: r.name)
def test_a_rule_holds_for_all_small_values(rule: Rule) -> None:
    assert refute(rule) is None


x, y = var("x", (*dt.INTS, dt.index)), var("y", (*dt.INTS, dt.index))
i, c, d, q = var("i", (dt.index,)), cst("c", (dt.index,)), cst("d", (dt.index,)), var("q", (dt.index,))
p = var("p", (dt.bool_,))
WRONG = (
    Rule("sub-swapped", x - y, y - x),
    Rule("mul-div", (x * y) // y, x),
    Rule("div-div-unguarded", (i // c) // d, i // (c * d)),
    Rule("mod-small-unguarded", i % c, i, when=i < c),
    Rule("div-small-off-by-one", i // c, as_pattern(0), when=(i >= 0) & (i <= c)),
    Rule("multiples-of-zero", (q * c + i) // c, q + i // c),
    Rule("mod-self", x % x, as_pattern(1)),
    Rule("max-min", maximum(x, y), x, when=x <= y),
    Rule("where-swapped", where(p, x, y), where(p, y, x)),
    Rule("wrapping-compare", (x + 1) > x, as_pattern(True)),
    Rule("and-or", p & True, as_pattern(True)),
    Rule("shift-mul", x << 1, x * 3),
    Rule("double-negation-of-compare", x < y, y <= x),
)


@pytest.mark.parametrize("rule", WRONG, ids=lambda r: r.name)
def test_a_wrong_rule_is_refuted(rule: Rule) -> None:
    assert refute(rule) is not None


def test_a_rule_whose_condition_cannot_hold_is_no_pass() -> None:
    with pytest.raises(AssertionError, match="never held"):
        refute(Rule("vacuous", i // 2, i, when=(i < 0) & (i > 0)))


def test_names_are_unique_and_every_rule_can_be_read() -> None:
    names = [rule.name for _, rule in RULES]
    assert len(names) == len(set(names))
    assert all(str(rule).startswith(f"{rule.name}: {format_pattern(rule.lhs)} -> ") for _, rule in RULES)


# Casts: every tuple of dtypes that the relation admits, on all values of 8 bits and on the edges of wider dtypes.


def edges(d: DType) -> list[Any]:
    if d is dt.bool_:
        return [False, True]
    if d is dt.index:
        return [0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**63, -(2**63) - 1, 2**64 + 3]
    if d.is_float:
        top = d.max_finite
        return [0.0, -0.0, 1.0, -1.5, 2.0**-6, top, -top, *([math.inf, -math.inf] if d.has_inf else []), math.nan]
    if d.bits == 8:
        return list(range(int(d.min), int(d.max) + 1))
    return [v for v in (0, 1, 2, d.min, d.max, d.max - 1, 127, 128, 255, -129, 2**15, 2**31, 2**63 - 1) if d.min <= v <= d.max]


def constant(v: Any, d: DType) -> UOp:
    return UOp(Op.CONST, (), ConstArg(v, d))


CAST_RULES = {rule.name: rule for theme, rule in RULES if theme == "casts"}


@pytest.mark.parametrize("name", CAST_RULES)
def test_a_cast_rule_holds_for_every_tuple_of_dtypes(name: str) -> None:
    rule, fired = CAST_RULES[name], 0
    for s, a, z in itertools.product((*dt.STORABLE, dt.index), repeat=3):
        for value in edges(s)[:: 7 if s.bits == 8 and not s.is_float else 1]:
            inner = UOp(Op.CAST, (constant(value, s),), CastArg(a))
            before = inner if name == "cast-same" else UOp(Op.CAST, (inner,), CastArg(z))
            applied = rule.apply(before)
            if applied is None:
                break
            fired += 1
            assert chain(before) == chain(applied[0]), f"{rule} for {s} {a} {z} at {value}"
    assert fired > 100 or name == "cast-same"
    assert fired


def chain(u: UOp) -> Any:
    """The value of nested casts of one constant, step by step."""
    steps: list[UOp] = []
    while u.op is Op.CAST:
        steps.append(u)
        u = u.src[0]
    value, d = u.arg.value, u.dtype
    for s in reversed(steps):
        value, d = fold_constant(UOp(Op.CAST, (constant(value, d),), s.arg)), s.dtype
        if value is None:
            return None
    return "nan" if value != value else (value, math.copysign(1, value))


def test_a_lossy_cast_is_not_called_lossless() -> None:
    lossy = [
        (dt.int32, dt.float32),
        (dt.float32, dt.float16),
        (dt.float16, dt.bfloat16),
        (dt.fp8e5m2, dt.fp8e4m3),
        (dt.int8, dt.uint8),
    ]
    lossy += [(dt.uint64, dt.int64), (dt.int64, dt.float64), (dt.float32, dt.index), (dt.uint8, dt.bool_), (dt.index, dt.int64)]
    assert [pair for pair in lossy if is_lossless_cast(*pair)] == []
    assert all(
        is_lossless_cast(*pair)
        for pair in [(dt.int16, dt.float32), (dt.uint8, dt.float16), (dt.bool_, dt.fp8e4m3), (dt.int8, dt.bfloat16)]
    )


def test_a_wrong_cast_rule_is_refuted() -> None:
    a, z = TypeVar("A"), TypeVar("B")
    wrong = Rule("cast-through-anything", cast(cast(var("v"), a), z), cast(var("v"), z))
    before = UOp(Op.CAST, (UOp(Op.CAST, (constant(300, dt.int32),), CastArg(dt.int8)),), CastArg(dt.int64))
    applied = wrong.apply(before)
    assert applied is not None
    assert chain(before) != chain(applied[0])


# Folding and decisions: the rule's own result on constants, against the evaluator above.

FOLDED = [rule for _, rule in RULES if rule.name.startswith("fold-") and rule.lhs.op in OPS and rule.lhs.op is not Op.CAST]


@pytest.mark.parametrize("rule", FOLDED, ids=lambda r: r.name)
def test_folding_gives_what_the_op_gives(rule: Rule) -> None:
    checked = 0
    for d, w in ((dt.int8, MACHINE[2]), (dt.uint8, MACHINE[3]), (dt.bool_, BOOL), (dt.index, INDEX)):
        if not legal(rule.lhs.op, d):
            continue
        rng = random.Random(w.name)
        for _ in range(300):
            values = [rng.choice(w.values(1)) for _ in rule.lhs.src]
            if rule.lhs.op in (Op.SHL, Op.SHR):
                values[1] = rng.randrange(10) if d is not dt.uint8 else rng.randrange(256)
            kinds = [dt.bool_ if k == 0 and rule.lhs.op is Op.WHERE else d for k in range(len(values))]
            values = [int(v != 0) if k is dt.bool_ else v for v, k in zip(values, kinds)]
            node = UOp(rule.lhs.op, tuple(constant(bool(v) if k is dt.bool_ else v, k) for v, k in zip(values, kinds)))
            applied = rule.apply(node)
            assert applied is not None
            wanted = OPS[rule.lhs.op](w, *map(np.int64, values))
            assert applied[0].arg.value == wanted, (rule.name, d, values)
            checked += 1
    assert checked


def legal(op: Op | None, d: DType) -> bool:
    if d is dt.bool_:
        return op in COMPARE or op in (Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.NOT, Op.WHERE)
    return op is not Op.NOT


def test_a_float_nan_is_not_folded_into_a_constant() -> None:
    node = UOp(Op.DIV, (b.const(0.0), b.const(0.0)))
    assert Rewriter(VALUES)(node) is node


# Whole expressions: random nodes before and after rewriting, evaluated by the folder's table.


def evaluate_node(root: UOp, leaves: Mapping[UOp, Any]) -> Any:
    found: dict[UOp, Any] = dict(leaves)
    for u in toposort(root, gate=lambda n: n not in found):
        if u not in found:
            found[u] = u.arg.value if u.op is Op.CONST else FOLD[u.op](u, *(found[s] for s in u.src))
    return found[root]


def random_index(rng: random.Random, leaves: list[UOp], depth: int) -> UOp:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves) if rng.random() < 0.7 else b.index(rng.choice([0, 1, 2, 3, 4, 6, 8, 12, -1, -3]))
    op = rng.choice([Op.ADD, Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.WHERE, Op.NEG])
    s = [random_index(rng, leaves, depth - 1) for _ in range(2)]
    if op is Op.MUL:
        return UOp(op, (s[0], b.index(rng.choice([1, 2, 3, 4, 8, -2]))))
    if op in (Op.IDIV, Op.MOD) and rng.random() < 0.9:
        return UOp(op, (s[0], b.index(rng.choice([1, 2, 3, 4, 6, 8, 12, -3, 0]))))
    if op is Op.WHERE:
        return UOp(op, (UOp(rng.choice(sorted(COMPARE, key=lambda o: int(o.value))), (s[0], s[1])), s[1], s[0]))
    return UOp(op, (s[0],)) if op is Op.NEG else UOp(op, tuple(s))


def test_random_index_expressions_keep_their_value_and_every_step_descends() -> None:
    ranges = [b.range_(n, k, AxisType.LOOP) for k, n in enumerate((2, 3, 4, 6, 8))]
    leaves = [*ranges, b.variable("n", -5, 7)]
    rng, log = random.Random(7), []
    rewriter = Rewriter(VALUES, log=log, check=True)
    r, n = ranges[2], leaves[-1]
    directed = [UOp(Op.MOD, (UOp(Op.ADD, (UOp(Op.MUL, (n, b.index(4))), r)), b.index(8))), b.mod(b.mod(n, 12), 4)]
    for e in [*directed, *(random_index(rng, leaves, 4) for _ in range(1500))]:
        after = rewriter(e)
        for _ in range(4):
            values = {r: rng.randrange(int(r.min_max[1]) + 1) for r in ranges} | {leaves[-1]: rng.randint(-5, 7)}  # type: ignore[index]
            assert evaluate_node(e, values) == evaluate_node(after, values)
    fired = {s.rule for s in log}
    expected = {"sum", "div-multiples", "mod-multiples", "div-factor", "mod-factor", "div-small", "mod-small", "div-div"}
    expected |= {"mod-period", "div-in-range", "mod-in-range", "lt-multiples", "div-mod"}
    assert expected <= fired


def random_machine(rng: random.Random, leaves: list[UOp], depth: int) -> UOp:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves) if rng.random() < 0.7 else b.const(rng.choice([0, 1, 2, 127, -128, -1]), dt.int8)
    ops = (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.IDIV, Op.MOD, Op.WHERE, Op.CAST, Op.SHL, Op.SHR)
    op = rng.choice(ops)
    s = [random_machine(rng, leaves, depth - 1) for _ in range(2)]
    if op is Op.CAST:
        return b.cast(b.cast(s[0], rng.choice([dt.int32, dt.uint8, dt.index, dt.float32, dt.bool_])), dt.int8)
    if op is Op.WHERE:
        gate = UOp(rng.choice(sorted(COMPARE, key=lambda o: int(o.value))), (s[0], s[1]))
        return UOp(op, (UOp(Op.NOT, (gate,)) if rng.random() < 0.3 else gate, s[0], s[1]))
    return UOp(op, (s[0],)) if op is Op.NEG else UOp(op, tuple(s))


def test_random_machine_expressions_keep_their_value() -> None:
    leaves = [b.param(k, (), dt.int8) for k in range(3)]
    rng = random.Random(11)
    rewriter = Rewriter(VALUES, check=True)
    changed = 0
    for _ in range(1500):
        e = random_machine(rng, leaves, 4)
        after = rewriter(e)
        changed += after is not e
        for _ in range(4):
            values = {leaf: rng.choice([0, 1, -1, 127, -128, rng.randint(-128, 127)]) for leaf in leaves}
            assert evaluate_node(e, values) == evaluate_node(after, values)
    assert changed > 300


def test_a_comparison_is_decided_by_a_size_whose_rest_is_bounded() -> None:
    """A greater size than that leaves a term without bounds in the rest."""
    a, x = b.variable("a", 0, 9), b.cast(b.param(0, (), dt.float32), dt.index)
    total = build_affine_sum(AffineSum({a: 4, x: 2}, 1))
    decided = Rewriter(VALUES)(b.lt(total, b.index(6)))
    assert decided is Rewriter(VALUES)(b.lt(build_affine_sum(AffineSum({a: 2, x: 1}, 0)), b.index(3)))
