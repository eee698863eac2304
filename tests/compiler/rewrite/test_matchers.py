"""Compiled rules answer as `Rule.apply` does, for every rule, on random nodes of its form and near it; and the rewriting that they
drive ends, is idempotent, and gives the same values in whatever order the rules are tried."""

import math
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from digits import digits

from uops.compiler.prove.typings import enumerate_rule_typings
from uops.compiler.rewrite import matchers
from uops.compiler.rewrite.matchers import MatcherTable, _MatcherWriter, get_or_make_matcher_table
from uops.compiler.rewrite.pattern import (
    Pattern,
    TypeVar,
    as_pattern,
    coerce_literal,
    cst,
    match_pattern_and_bind,
    operation,
    var,
    where,
)
from uops.compiler.rewrite.rewriter import Rewriter, weighted_tree_cost
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING, VALUES
from uops.interp import run
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

TRIES = 300
DIGITS = digits()
BOUNDS = {"n0": (0, 7), "n1": (1, 3), "n2": (-5, 100), "t": (-20, 90), "n": (1, 30)}
NUMBERS = (0, 1, 2, 3, 4, 6, 8, 12, -1, -4)


class Nodes:
    """Random nodes by dtype: variables with and without bounds, loops, constants, and sums and products of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def constant(self, d: DType) -> UOp:
        value = self.rng.choice(NUMBERS)
        if d is dt.bool_:
            return b.const(bool(value % 2))
        if d.is_float:
            return UOp(Op.CONST, (), ConstArg(self.rng.choice((0.0, -0.0, 1.0, -2.0)), d))
        return UOp(Op.CONST, (), ConstArg(abs(value) if not d.is_signed else value, d))

    def leaf(self, d: DType) -> UOp:
        kind = self.rng.randrange(4)
        if d is dt.index and kind:
            k = self.rng.randrange(3)
            return b.range_((3, 4, 12)[k], k) if kind == 1 else b.variable(f"n{k}", (0, 1, -5)[k], (7, 3, 100)[k])
        return self.constant(d) if kind == 3 else b.param(self.rng.randrange(2), (), d)

    def value(self, d: DType, depth: int = 2) -> UOp:
        if d is dt.index and self.rng.random() < 0.3:
            return self.rng.choice(DIGITS)
        if depth == 0 or self.rng.random() < 0.4:
            return self.leaf(d)
        if d is dt.bool_:
            x, y = self.value(dt.index, depth - 1), self.value(dt.index, depth - 1)
            return UOp(self.rng.choice((Op.CMPLT, Op.CMPGE, Op.CMPNE)), (x, y))
        if d.is_float:
            return UOp(Op.ADD, (self.value(d, depth - 1), self.value(d, depth - 1)))
        op = self.rng.choice((Op.ADD, Op.MUL, Op.IDIV, Op.MOD, Op.SUB))
        second = self.constant(d) if op is not Op.ADD and self.rng.random() < 0.8 else self.value(d, depth - 1)
        return UOp(op, (self.value(d, depth - 1), second))

    def like(self, p: Pattern, d: DType | None, names: dict[str, UOp], types: dict[str, DType]) -> UOp:
        """A node of the form of `p`, or nearly: now and then something else stands where the pattern looks."""
        if self.rng.random() < 0.05:
            return self.value(d or dt.index)
        if p.name is not None:
            if p.name not in names or self.rng.random() < 0.05:
                wanted = d if d in p.dtypes else self.rng.choice(p.dtypes)
                names[p.name] = self.constant(wanted) if p.constant else self.value(wanted)
            return names[p.name]
        if p.op is None:
            assert p.value is not None
            return UOp(Op.CONST, (), ConstArg(coerce_literal(p.value, d or dt.index), d or dt.index))
        if p.op in (Op.CAST, Op.BITCAST):
            to = types.setdefault(p.to.name, self.rng.choice(p.to.among)) if isinstance(p.to, TypeVar) else p.to
            assert to is not None
            return UOp(p.op, (self.like(p.src[0], None, names, types),), (BitcastArg if p.op is Op.BITCAST else CastArg)(to))
        src: list[UOp] = []
        common = d if p.op not in _COMPARE else None
        for k, q in enumerate(p.src):
            own = dt.bool_ if p.op is Op.WHERE and k == 0 else common or _dtype(p.src, self.rng)
            src.append(self.like(q, own, names, types))
            common = common if p.op is Op.WHERE and k == 0 else src[-1].dtype
        return UOp(p.op, tuple(src))


_COMPARE = frozenset({Op.CMPLT, Op.CMPLE, Op.CMPGT, Op.CMPGE, Op.CMPEQ, Op.CMPNE})


def _dtype(operands: tuple[Pattern, ...], rng: random.Random) -> DType:
    """A dtype that the first variable among the operands, or below them, may have."""
    pending = list(operands)
    while pending:
        q = pending.pop(0)
        if q.name is not None:
            return rng.choice(q.dtypes)
        pending = [*q.src, *pending]
    return rng.choice((dt.index, dt.int32, dt.bool_))


def samples(rule: Rule, seed: int) -> Iterator[UOp]:
    nodes = Nodes(seed)
    for _ in range(TRIES):
        yield nodes.like(rule.lhs, None, {}, {})


def answer(rule: Rule, u: UOp) -> object:
    """What `apply` gives, or the kind of error it meets on an ill-formed node."""
    try:
        return rule.apply(u)
    except Exception as e:
        return type(e)


def compiled(table: MatcherTable, u: UOp) -> object:
    try:
        found = table[u.op](u)
    except Exception as e:
        return type(e)
    return None if found is None else found[1:]


def test_what_follows_a_match_is_written_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    compile_replacement = _MatcherWriter.compile_condition_and_replacement

    def counted(self: _MatcherWriter, rule: Rule) -> object:
        written.append(rule.name)
        return compile_replacement(self, rule)

    monkeypatch.setattr(_MatcherWriter, "compile_condition_and_replacement", counted)
    monkeypatch.setattr(matchers, "_matchers", OrderedDict())  # none is compiled already
    table = MatcherTable(INDEXING)
    x, zero = b.param(0, (), dt.int32), b.const(0, dt.int32)
    assert table[Op.ADD](UOp(Op.ADD, (x, x))) is None and not written
    for _ in range(2):
        found = table[Op.ADD](UOp(Op.ADD, (x, zero)))
        assert found is not None and found[1] is x and written == [found[0].name]


def test_tables_share_the_matchers_of_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "_matchers", OrderedDict())  # none is compiled already
    left_out = next(r for r in INDEXING if r.lhs.op is Op.CAST)
    table, smaller = MatcherTable(INDEXING), MatcherTable(tuple(r for r in INDEXING if r is not left_out))
    x, two = b.param(0, (), dt.int32), b.const(2, dt.int32)
    nodes = [UOp(Op.ADD, (x, x)), UOp(Op.MUL, (x, two)), b.cast(two, dt.int64)]
    expected = [table[u.op](u) for u in nodes[:2]]
    assert table[Op.CAST](nodes[2]) is not None
    compiled_lists: list[list[str]] = []
    compile_matcher = _MatcherWriter.compile_matcher

    def counted(self: _MatcherWriter, rules: Sequence[Rule]) -> object:
        compiled_lists.append([r.name for r in rules])
        return compile_matcher(self, rules)

    monkeypatch.setattr(_MatcherWriter, "compile_matcher", counted)
    assert [smaller[u.op](u) for u in nodes] == [*expected, None]
    assert len(compiled_lists) == 1 and left_out.name not in compiled_lists[0]


#: Literals, each with the CONSTS that it matches. It matches no others.
LITERALS: list[tuple[bool | int | float, set[tuple[DType, bool | int | float]]]] = [
    (True, {(dt.bool_, True)}),
    (0, {(dt.bool_, False), (dt.int32, 0), (dt.float32, 0.0)}),
    (1, {(dt.bool_, True), (dt.int32, 1), (dt.float32, 1.0)}),
    (2, {(dt.int32, 2), (dt.float32, 2.0)}),
    (2**24 + 1, {(dt.int32, 2**24 + 1)}),
    (-0.0, {(dt.float32, -0.0)}),
    (1.0, {(dt.float32, 1.0)}),
    (0.5, {(dt.float32, 0.5)}),
    (0.1, set()),
    (math.inf, {(dt.float32, math.inf)}),
    (-math.inf, {(dt.float32, -math.inf)}),
    (math.nan, {(dt.float32, math.nan)}),
]
CONSTS: list[tuple[DType, bool | int | float]] = [
    (dt.bool_, False), (dt.bool_, True), (dt.int32, 0), (dt.int32, 1), (dt.int32, 2), (dt.int32, 2**24 + 1), (dt.float32, 0.0),
    (dt.float32, -0.0), (dt.float32, 1.0), (dt.float32, 0.5), (dt.float32, 2.0), (dt.float32, float(2**24)), (dt.float32, math.inf),
    (dt.float32, -math.inf), (dt.float32, math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("literal", "consts"), LITERALS, ids=[str(v) for v, _ in LITERALS])
def test_a_literal_matches_in_the_dtypes_that_the_prover_tries(
    literal: bool | int | float, consts: set[tuple[DType, bool | int | float]]
) -> None:
    x = var("x")
    rule = Rule("literal", where(var("p", (dt.bool_,)), x, literal), x)
    table, matched = MatcherTable((rule,)), set()
    for d, value in CONSTS:
        u = b.where(b.param(0, (), dt.bool_), b.param(1, (), d), UOp(Op.CONST, (), ConstArg(value, d)))
        assert compiled(table, u) == rule.apply(u)
        if rule.apply(u) is not None:
            matched.add((d, value))
    assert matched == consts
    tried = {d for a in enumerate_rule_typings(rule) if (d := a.types["x"]) in (dt.bool_, dt.int32, dt.float32)}
    assert {d for d, _ in matched} == tried


@pytest.mark.parametrize("literal", [math.inf, -math.inf, math.nan])
def test_a_literal_of_a_replacement_need_not_be_finite(literal: float) -> None:
    x = var("x", dt.FLOATS)
    rule, u = Rule("literal", -x, x + literal), b.neg(b.param(0, (), dt.float32))
    found = MatcherTable((rule,))[Op.NEG](u)
    assert found is not None and found[1] is rule.apply(u)[0]  # type: ignore[index]


def test_the_ops_of_the_sources_refuse_rules() -> None:
    x, zero = b.param(0, (), dt.int32), b.const(0, dt.int32)
    rules = tuple(r for r in INDEXING if r.lhs.op is Op.ADD)
    select_rules = matchers._make_selector_of_rules_by_source_ops(rules)
    for sources in ((x, zero), (zero, x), (x, x), (zero, zero), (UOp(Op.MUL, (x, x)), zero)):
        accepted = select_rules(tuple(s.op for s in sources))
        assert len(accepted) < len(rules)
        for rule in set(rules) - set(accepted):
            assert not match_pattern_and_bind(rule.lhs, UOp(Op.ADD, sources), {})
    assert MatcherTable(rules)[Op.ADD](UOp(Op.ADD, (x,) * 5000)) is None


@pytest.mark.parametrize("rule", INDEXING, ids=lambda r: r.name)
def test_a_compiled_rule_answers_as_the_rule_does(rule: Rule) -> None:
    table, fired = get_or_make_matcher_table((rule,)), 0
    for seed in range(1, 40):  # few rules need more than one
        for u in samples(rule, seed):
            if u.op is rule.lhs.op:
                expected = answer(rule, u)
                assert compiled(table, u) == expected, f"{rule} at {u!r} on {u.src!r}"
                fired += isinstance(expected, tuple)
        if fired:
            break
    assert fired, f"{rule} never applied: nothing was compared"


def test_of_several_rules_the_first_that_applies_answers() -> None:
    table, fired = get_or_make_matcher_table(INDEXING), 0
    for k, rule in enumerate(INDEXING):
        for u in samples(rule, seed=2 + k):
            answers = ((r, answer(r, u)) for r in INDEXING if r.lhs.op is u.op)
            first, expected = next(((r, a) for r, a in answers if a is not None), (None, None))
            if not isinstance(expected, type):  # a node that is ill-formed may be met by another rule first
                found = table[u.op](u)
                assert (None if found is None else found[0]) is first
                fired += first is not None and first is not rule
    assert fired


def test_forms_that_no_rule_of_ours_has_are_compiled_too() -> None:
    x, y, p = var("x", (dt.int32,)), var("y"), var("p", (dt.bool_,))
    forms = (
        Rule("nested-same", operation(Op.ADD, operation(Op.MUL, x, y), operation(Op.MUL, y, x)), x),
        Rule("minus-zero", y + -0.0, y),
        Rule("condition-first", operation(Op.WHERE, p, as_pattern(1), as_pattern(0)), operation(Op.CAST, p, to=dt.int32)),
        Rule("constants-twice", operation(Op.SUB, cst("c"), cst("c")), as_pattern(0)),
        Rule("float-condition", operation(Op.MAX, y, cst("c")), y, when=cst("c") <= y),
    )
    for rule in forms:
        table = get_or_make_matcher_table((rule,))
        results = [(answer(rule, u), compiled(table, u)) for u in samples(rule, seed=3) if u.op is rule.lhs.op]
        assert all(a == c for a, c in results)
        assert any(isinstance(a, tuple) for a, _ in results) or rule.when is not None


def test_rules_are_compiled_once() -> None:
    assert get_or_make_matcher_table(VALUES) is get_or_make_matcher_table(VALUES)
    assert Rewriter(list(VALUES)).steps is Rewriter(list(VALUES)).steps


# Rewriting as a whole


def expressions(seed: int, count: int, depth: int = 4) -> Iterator[UOp]:
    nodes = Nodes(seed)
    for k in range(count):
        yield nodes.value((dt.index, dt.bool_, dt.int32, dt.uint8)[k % 4], depth)


def test_every_step_descends_and_a_normal_form_is_its_own() -> None:
    rewriter = Rewriter(VALUES, check=True)  # raises where a step does not lower the cost
    changed = 0
    for u in expressions(seed=4, count=400):
        done = rewriter(u)
        assert weighted_tree_cost(done) <= weighted_tree_cost(u)
        assert Rewriter(VALUES)(done) is done
        changed += done is not u
    assert changed > 100


def test_shuffled_rules_give_the_same_values() -> None:
    differ = 0
    for seed, u in enumerate(expressions(seed=6, count=60, depth=9)):
        rng = random.Random(seed)
        rules = list(VALUES)
        rng.shuffle(rules)
        before, after, other = u, Rewriter(VALUES)(u), Rewriter(rules)(u)
        differ += after is not other
        loops = {r for r in toposort(u) if r.op is Op.RANGE}
        for _ in range(4):
            at = {r: b.index(rng.randrange(r.src[0].arg.value)) for r in loops}
            inputs = {name: rng.randint(*bounds) for name, bounds in BOUNDS.items()}
            inputs |= {f"p{k}": rng.randrange(120) for k in range(2)}
            values = [valued(x, at, inputs) for x in (before, after, other)]
            assert values[0] == values[1] == values[2], f"seed {seed}"
    assert differ  # some order gives another form: values were compared, not nodes


def valued(u: UOp, at: dict[UOp, UOp], inputs: dict[str, int]) -> object:
    """The value of an expression with loops at given iterations."""
    done: dict[UOp, UOp] = {}
    for n in toposort(u):
        done[n] = at[n] if n in at else n.replace(src=tuple(done[s] for s in n.src))
    free = {n for n in toposort(done[u]) if n.op is Op.PARAM}
    arrays = {f"p{n.arg.slot}": np.asarray(inputs[f"p{n.arg.slot}"], NUMPY[n.dtype]) for n in free if n.arg.name is None}
    return run(done[u], arrays | {n.arg.name: inputs[n.arg.name] for n in free if n.arg.name}).values[0].item()
