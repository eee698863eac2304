"""Mechanical mutants of our rules: each changes one thing, and most are wrong.

A mutant keeps the dtypes of its rule that lie in SAMPLE, which has one of each kind. Rules whose result the folder promises have no
mutants: what they say is that promise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from uops.compiler.rewrite.pattern import Pattern, TypeVar, variables
from uops.compiler.rewrite.rule import Assumptions, Rule
from uops.compiler.rewrite.rules import THEMES, fast_math, further
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

SAMPLE = (dt.bool_, dt.int8, dt.uint8, dt.int16, dt.float16, dt.index)
_STRICTER = {Op.CMPLT: Op.CMPLE, Op.CMPLE: Op.CMPLT, Op.CMPGT: Op.CMPGE, Op.CMPGE: Op.CMPGT, Op.CMPEQ: Op.CMPGE, Op.CMPNE: Op.CMPGE}
_OTHER = {
    Op.ADD: Op.SUB, Op.SUB: Op.ADD, Op.MUL: Op.ADD, Op.IDIV: Op.MOD, Op.MOD: Op.IDIV, Op.AND: Op.OR, Op.OR: Op.AND, Op.XOR: Op.OR,
    Op.SHL: Op.SHR, Op.SHR: Op.SHL, Op.MAX: Op.ADD, Op.DIV: Op.MUL, Op.EXP2: Op.LOG2, Op.LOG2: Op.EXP2,
}  # fmt: skip
_COMMUTES = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.CMPEQ, Op.CMPNE})


@dataclass(frozen=True)
class Mutant:
    """A changed rule, and what was changed."""

    rule: Rule
    change: str

    @property
    def name(self) -> str:
        return f"{self.rule.name}: {self.change}"


def _small(among: tuple[DType, ...]) -> tuple[DType, ...]:
    kept = tuple(d for d in among if d in SAMPLE)
    return kept or among[:1]


def narrowed(p: Pattern | None) -> Pattern | None:
    """A pattern on the dtypes of SAMPLE."""
    if p is None:
        return None
    to = TypeVar(p.to.name, _small(p.to.among)) if isinstance(p.to, TypeVar) else p.to
    src = tuple(n for s in p.src if (n := narrowed(s)) is not None)
    return Pattern(p.op, src, p.name, p.constant, _small(p.dtypes), p.value, to)


def _with(p: Pattern, **changes: object) -> Pattern:
    fields = {f: getattr(p, f) for f in ("op", "src", "name", "constant", "dtypes", "value", "to")}
    return Pattern(**{**fields, **changes})  # type: ignore[arg-type]


def _places(p: Pattern, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Pattern]]:
    yield path, p
    for k, s in enumerate(p.src):
        yield from _places(s, (*path, k))


def _put(p: Pattern, path: tuple[int, ...], new: Pattern) -> Pattern:
    if not path:
        return new
    return _with(p, src=tuple(_put(s, path[1:], new) if k == path[0] else s for k, s in enumerate(p.src)))


def _changed(p: Pattern, others: list[Pattern]) -> Iterator[tuple[str, Pattern]]:
    """Every pattern that differs from `p` in one place; `others` are variables that may stand for one of its own."""
    for path, q in _places(p):
        for what, new in _one(q, others):
            yield f"{what} at {path or 'root'}", _put(p, path, new)


def _one(q: Pattern, others: list[Pattern]) -> Iterator[tuple[str, Pattern]]:
    if q.name is not None:
        yield from ((f"{q.name} is {o.name}", o) for o in others if o.name != q.name and o.dtypes == q.dtypes)
    elif q.op is None:
        if isinstance(q.value, bool):
            yield f"{q.value} is not", _with(q, value=not q.value)
        elif q.value is not None:
            yield from ((f"{q.value} is {q.value + n}", _with(q, value=q.value + n)) for n in (1, -1))
    else:
        if q.op in _OTHER:
            yield f"{q.op.name} is {_OTHER[q.op].name}", _with(q, op=_OTHER[q.op])
        if q.op in _STRICTER:
            yield f"{q.op.name} is {_STRICTER[q.op].name}", _with(q, op=_STRICTER[q.op])
        if len(q.src) == 2 and q.op not in _COMMUTES:
            yield f"{q.op.name} swapped", _with(q, src=q.src[::-1])
        if q.op is Op.WHERE:
            yield "WHERE swapped", _with(q, src=(q.src[0], q.src[2], q.src[1]))
        if q.op in (Op.NOT, Op.NEG, Op.RECIP, Op.SQRT, Op.EXP2, Op.LOG2):
            yield f"{q.op.name} left out", q.src[0]


def _conditions(when: Pattern | None) -> Iterator[tuple[str, Pattern | None]]:
    """The condition less one conjunct, or with one comparison loosened."""
    if when is None:
        return
    parts = _conjuncts(when)
    for k in range(len(parts)):
        rest = [p for j, p in enumerate(parts) if j != k]
        yield f"without {parts[k]}", _joined(rest)
        for what, new in _changed(parts[k], []):
            yield f"{what} in {parts[k]}", _joined([new if j == k else p for j, p in enumerate(parts)])


def _conjuncts(p: Pattern) -> list[Pattern]:
    return [c for q in p.src for c in _conjuncts(q)] if p.op is Op.AND else [p]


def _joined(parts: list[Pattern]) -> Pattern | None:
    found = None
    for p in parts:
        found = p if found is None else found & p
    return found


def mutants() -> Iterator[Mutant]:
    """All of them, in the order of the rules."""
    for rules in (THEMES | further.THEMES).values():
        for rule in rules:
            if rule.evaluated_pattern is None:
                yield from _of(rule)


def real_mutants() -> Iterator[Mutant]:
    """Those of the rules of fast-math; what they assume of values is changed as a condition is."""
    for rules in fast_math.THEMES.values():
        for rule in rules:
            yield from _of(rule)
            assumed = rule.assumes
            assert assumed is not None
            for what, values in _conditions(narrowed(assumed.values)):
                kept = Assumptions(assumed.flaws, values)
                lhs, rhs = narrowed(rule.lhs), narrowed(rule.rhs)
                assert lhs is not None and rhs is not None
                yield Mutant(Rule(rule.name, lhs, rhs, narrowed(rule.when), rule.witness, assumes=kept), f"assumes: {what}")


def _of(rule: Rule) -> Iterator[Mutant]:
    lhs, rhs, when = narrowed(rule.lhs), narrowed(rule.rhs), narrowed(rule.when)
    assert lhs is not None and rhs is not None

    def made(
        change: str, rhs: Pattern = rhs, when: Pattern | None = when, lhs: Pattern = lhs, types: object = rule.types
    ) -> Mutant:
        assumed = rule.assumes and Assumptions(rule.assumes.flaws, narrowed(rule.assumes.values))
        return Mutant(Rule(rule.name, lhs, rhs, when, rule.witness, types, assumed), change)  # type: ignore[arg-type]

    bound = list(variables(lhs).values())
    yield from (made(f"right: {what}", rhs=new) for what, new in _changed(rhs, bound))
    yield from (made(f"left: {what}", lhs=new) for what, new in _changed(lhs, []) if new.op is not None)
    yield from (made(f"when: {what}", when=new) for what, new in _conditions(when))
    if rule.types is not None:
        yield made("without its relation of types", types=None)
    if any(v.dtypes == (dt.index,) for v in bound):
        for d in (dt.int8, dt.uint8):
            changed = [_retyped(p, d) for p in (lhs, rhs, when)]
            if changed[0] is not None and changed[1] is not None:
                yield made(f"{d} for index", lhs=changed[0], rhs=changed[1], when=changed[2])


def _retyped(p: Pattern | None, d: DType) -> Pattern | None:
    if p is None:
        return None
    src = tuple(n for s in p.src if (n := _retyped(s, d)) is not None)
    return _with(p, src=src, dtypes=(d,) if p.dtypes == (dt.index,) else p.dtypes, to=d if p.to is dt.index else p.to)
