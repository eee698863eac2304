"""Rules compiled to Python: one function per op that finds the first rule that fits a node.

`Rule.apply` is the definition of what a rule does; `steps(rules)` gives for an op a function `step(u)` that answers as trying every
rule of that op in order would: (rule, replacement, binding) of the first that applies, or None. Tests hold the two together
for every rule. A function is written when its op is first met: the forms of all its rules as one sequence of tests, the cheap ones
first, so that most rules are refused by the ops of the sources. A rule's tail - the witness, the condition and the right side - is
written when the left side first fits: most rules never meet a node in a process, and compiling is what they cost. Conditions over
integers are read off the bounds of their operands, without a node for the comparison.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from uops.compiler.ir.affine import same_sum
from uops.compiler.rewrite.pattern import VALUES, Binding, Pattern, TypeVar, literal, same_number, variables
from uops.compiler.rewrite.rule import Rule, bound_types, holds
from uops.spec.errors import Crash
from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: What a node becomes: by which rule, what, and under which binding.
Applied = tuple[Rule, UOp, Binding]
Step = Callable[[UOp], "Applied | None"]


def nothing(u: UOp) -> None:
    """The step of an op without rules."""
    return


class Steps(dict[Op, Step]):
    """The step of each op, written when it is first asked for."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_op: dict[Op, list[Rule]] = {}
        for rule in rules:
            if rule.lhs.op is None:
                raise Crash(f"{rule} matches every node")
            self.by_op.setdefault(rule.lhs.op, []).append(rule)

    def __missing__(self, op: Op) -> Step:
        rules = self.by_op.get(op)
        found = self[op] = nothing if rules is None else _Writer().step(op, rules)
        return found


_MOST = 64
_known: OrderedDict[tuple[int, ...], tuple[Sequence[Rule], Steps]] = OrderedDict()


def steps(rules: Sequence[Rule]) -> Steps:
    """The steps of a list of rules, made once for as long as they are in use."""
    key = (id(rules),) if rules.__class__ is tuple else tuple(map(id, rules))
    found = _known.get(key)
    if found is None:
        found = _known[key] = tuple(rules), Steps(rules)  # what the ids name is kept, so that they stay its own
        if len(_known) > _MOST:
            _known.popitem(last=False)
    return found[1]


def make(value: bool | int | float, d: DType) -> UOp:
    """The Const of a literal."""
    return UOp(Op.CONST, (), A.ConstArg(literal(value, d), d))


_COMPARISONS = {
    Op.CMPLT: "{a}[1] < {b}[0]",
    Op.CMPLE: "{a}[1] <= {b}[0]",
    Op.CMPGT: "{a}[0] > {b}[1]",
    Op.CMPGE: "{a}[0] >= {b}[1]",
    Op.CMPNE: "({a}[1] < {b}[0] or {b}[1] < {a}[0])",
    Op.CMPEQ: "{a}[0] == {a}[1] == {b}[0] == {b}[1]",
}


class _Writer:
    """The text of one function; `space` holds the values that it names, which are its own, so that threads do not meet here."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"UOp": UOp, "make": make, "same_sum": same_sum, "same_number": same_number}
        self.fresh = 0

    def name(self, value: object, hint: str) -> str:
        """A name for a value."""
        for name, known in self.space.items():
            if known is value:
                return name
        name = f"{hint}_{len(self.space)}"
        self.space[name] = value
        return name

    def op(self, op: Op) -> str:
        return self.name(op, op.name)

    def dtype(self, d: DType) -> str:
        return self.name(d, d.name)

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def step(self, op: Op, rules: Sequence[Rule]) -> Step:
        self.put(0, "def step(u):")
        self.put(1, "src = u.src")
        self.put(1, "n = len(src)")
        for arity in sorted({len(r.lhs.src) for r in rules}):
            self.put(1, f"if n == {arity}:")
            self.put(2, "".join(f"s{k}, " for k in range(arity)) + "= src")
            for k in range(arity):
                self.put(2, f"o{k} = s{k}.op")
            for rule in rules:
                if len(rule.lhs.src) == arity:
                    _Matcher(self, rule).write(2)
        self.put(1, "return None")
        made: Step = self.made("step", f"<rules of {op.name}>")
        return made

    def made(self, name: str, origin: str) -> Any:
        """The function that the lines define."""
        exec(compile("\n".join(self.lines), origin, "exec"), self.space)
        return self.space[name]

    # What follows a match.

    def following(self, rule: Rule) -> str:
        """The name of a rule's tail."""
        name = f"tail_{len(self.space)}"

        def first(*arguments: Any) -> Applied | None:
            tail = self.space[name] = _Writer().tail(rule)
            return tail(*arguments)

        self.space[name] = first
        return name

    def tail(self, rule: Rule) -> Callable[..., Applied | None]:
        """`tail(u, variables...)`: the answer for a node that has the form of the left side."""
        bound = list(_bound(rule.lhs))
        self.put(0, f"def tail(u{''.join(f', {v}_' for v in bound)}):")
        self.put(1, "found = {" + ", ".join(f"{v!r}: {v}_" for v in bound) + "}")
        if rule.types is not None:
            self.put(1, f"if not {self.name(rule.types, 'types')}({self.name(bound_types, 'bound_types')}(found)): return None")
        if rule.witness is not None:
            self.put(1, f"proposed = {self.name(rule.witness, 'witness')}(found)")
            self.put(1, "if proposed is None: return None")
            self.put(1, "found.update(proposed)")
            proposed = [v for p in (rule.when, rule.rhs) if p is not None for v in variables(p) if v not in bound]
            for v in dict.fromkeys(proposed):
                self.put(1, f"{v}_ = found[{v!r}]")
        for condition in _conjuncts(rule.when):
            self.put(1, f"if not ({self.condition(condition)}): return None")
        self.put(1, f"return {self.name(rule, 'rule')}, {self.built(rule.rhs, 'u.dtype')}, found")
        made: Callable[..., Applied | None] = self.made("tail", f"<rule {rule.name}>")
        return made

    def condition(self, p: Pattern) -> str:
        """An expression that says whether a comparison is proved."""
        if p.op not in _COMPARISONS or not all(_is_integer(q) for q in p.src):
            return f"{self.name(holds, 'holds')}({self.name(p, 'condition')}, found)"
        nodes = self.operands(p, None)
        bounds = [f"({q.value!r}, {q.value!r})" if n is None else self.local(f"{n}.min_max") for q, n in zip(p.src, nodes)]
        text = _COMPARISONS[p.op].format(a=bounds[0], b=bounds[1])
        if p.op is Op.CMPLT and None not in nodes:  # a loop is below its bound
            text = f"({text} or {nodes[0]}.op is {self.op(Op.RANGE)} and {nodes[0]}.src[0] is {nodes[1]})"
        if p.op is Op.CMPEQ:
            known = next(n for n in nodes if n is not None)
            a, b = (f"make({q.value!r}, {known}.dtype)" if n is None else n for q, n in zip(p.src, nodes))
            text = f"{text} or ({known}.dtype is {self.dtype(dt.index)} and same_sum({a}, {b}))"
        return text

    def operands(self, p: Pattern, like: str | None) -> list[str | None]:
        """Local variables that hold the sources of `p`; None for a literal."""
        return [None if q.op is None and q.name is None else self.local(self.built(q, like)) for q in p.src]

    def local(self, expression: str) -> str:
        if expression.isidentifier():
            return expression
        self.fresh += 1
        self.put(1, f"t{self.fresh} = {expression}")
        return f"t{self.fresh}"

    def built(self, p: Pattern, like: str | None) -> str:
        """An expression for the node that `p` spells: as `pattern.instantiate` does it."""
        if p.name is not None:
            return f"{p.name}_"
        if p.op is None:
            if like is None:
                raise Crash(f"literal {p.value!r} has no neighbour to take its dtype from")
            return f"make({p.value!r}, {like})"
        built = self.operands(p, None)
        first = 1 if p.op is Op.WHERE else 0
        typed = next((f"{b}.dtype" for b in built[first:] if b is not None), like)
        sources = [
            b if b is not None else self.built(q, self.dtype(dt.bool_) if k < first else typed)
            for k, (q, b) in enumerate(zip(p.src, built))
        ]
        return f"UOp({self.op(p.op)}, ({', '.join(sources)},){self.argument(p)})"

    def argument(self, p: Pattern) -> str:
        if p.to is None:
            return ""
        form = A.BitcastArg if p.op is Op.BITCAST else A.CastArg
        if isinstance(p.to, TypeVar):
            return f", {self.name(form, form.__name__)}(found[{p.to.name!r}])"
        return f", {self.name(form(p.to), 'arg')}"


class _Matcher:
    """The tests of one left side, written in nested conditions."""

    def __init__(self, writer: _Writer, rule: Rule) -> None:
        self.w, self.rule = writer, rule
        self.bound: dict[str, str] = {}
        self.types: dict[str, str] = {}

    def write(self, depth: int) -> None:
        w, rule = self.w, self.rule
        depth = self.cast(rule.lhs, "u", depth)
        depth = self.sources(rule.lhs, "s", depth, known=True)
        arguments = "".join(f", {self.bound.get(v) or self.types[v]}" for v in _bound(rule.lhs))
        w.put(depth, f"r = {w.following(rule)}(u{arguments})")
        w.put(depth, "if r is not None: return r")

    def sources(self, p: Pattern, prefix: str, depth: int, known: bool = False) -> int:
        """The tests on the sources of a node, which are in the local variables `prefix`0, `prefix`1, ..."""
        ops = [f"o{k}" if known else f"{prefix}{k}.op" for k in range(len(p.src))]
        if tests := [t for k, q in enumerate(p.src) for t in self.early(q, f"{prefix}{k}", ops[k])]:
            depth = self.when(" and ".join(tests), depth)
        for k, q in enumerate(p.src):
            if late := list(self.late(q, f"{prefix}{k}")):
                depth = self.when(" and ".join(late), depth)
        for k, q in enumerate(p.src):
            if q.op is not None:
                at = f"{prefix}{k}_"
                self.w.put(depth, "".join(f"{at}{j}, " for j in range(len(q.src))) + f"= {prefix}{k}.src")
                depth = self.cast(q, f"{prefix}{k}", depth)
                depth = self.sources(q, at, depth)
        return depth

    def when(self, test: str, depth: int) -> int:
        self.w.put(depth, f"if {test}:")
        return depth + 1

    def early(self, q: Pattern, at: str, op: str) -> Iterator[str]:
        """Tests by op, and of the number behind a constant."""
        if q.op is not None:
            yield f"{op} is {self.w.op(q.op)}"
            yield f"len({at}.src) == {len(q.src)}"
        elif q.name is None or q.constant:
            yield f"{op} is {self.w.op(Op.CONST)}"
        if q.op is None and q.name is None and q.value == q.value:
            yield f"{at}.arg.value == {q.value!r}"

    def late(self, q: Pattern, at: str) -> Iterator[str]:
        """Tests of a variable's identity and dtype, and of a literal's bits."""
        if q.op is not None:
            return
        if q.name is None:
            yield f"same_number({at}.arg, {q.value!r})"
        elif q.name in self.bound:
            yield f"{at} is {self.bound[q.name]}"
        else:
            self.bound[q.name] = at
            d = f"{at}.dtype"
            if len(q.dtypes) == 1:
                yield f"{d} is {self.w.dtype(q.dtypes[0])}"
            elif q.dtypes == VALUES:
                yield f"{d} is not {self.w.dtype(dt.void)}"
            else:
                yield f"{d} in {self.w.name(frozenset(q.dtypes), 'dtypes')}"

    def cast(self, q: Pattern, at: str, depth: int) -> int:
        """The test of what a Cast or Bitcast casts to."""
        if q.to is None:
            return depth
        if isinstance(q.to, DType):
            return self.when(f"{at}.arg.dtype is {self.w.dtype(q.to)}", depth)
        to = f"{at}.arg.dtype"
        seen = self.types.setdefault(q.to.name, to)
        test = f"{to} in {self.w.name(frozenset(q.to.among), 'among')}"
        return self.when(test if seen == to else f"{seen} is {to} and {test}", depth)


def _bound(p: Pattern) -> dict[str, None]:
    """What a match of `p` binds: variables and type variables, in the order of `pattern.match`."""
    found: dict[str, None] = {}
    pending = [p]
    while pending:
        q = pending.pop()
        if q.name is not None:
            found[q.name] = None
        elif isinstance(q.to, TypeVar):
            found[q.to.name] = None
        pending.extend(reversed(q.src))
    return found


def _conjuncts(p: Pattern | None) -> Iterator[Pattern]:
    if p is not None and p.op is Op.AND:
        for q in p.src:
            yield from _conjuncts(q)
    elif p is not None:
        yield p


def _is_integer(p: Pattern) -> bool:
    """Whether every value of the pattern is a bool or an integer, so that bounds decide a comparison."""
    if p.name is not None:
        return not any(d.is_float for d in p.dtypes)
    if p.op is None:
        return isinstance(p.value, int)
    if p.op is Op.CAST:
        return isinstance(p.to, DType) and not p.to.is_float
    return all(_is_integer(q) for q in p.src)
