"""Rules compiled to Python: functions that find the first rule that matches a node.

`Rule.apply` defines the meaning of a rule. `get_or_make_matcher_table(rules)` maps an op to a function `step(u)`, which gives the
result of trying every rule of that op in order: (rule, replacement, binding) of the first that applies, or None. Tests hold the
two together for every rule.

Compilation is the main cost of rules, because most never match in a process. So a step first looks up the ops of the node's
sources. They refuse most rules. A function that tests the left sides of the others is compiled when these ops are first met. The
right side and the condition of a rule are compiled when its left side first matches and its witness proposes values. Conditions on
integers are decided by the bounds of their operands, without a node for the comparison.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from uops.compiler.ir.affine import are_equal_sums
from uops.compiler.rewrite.pattern import VALUES, Binding, Pattern, TypeVar, coerce_literal, is_const_matched_by_literal, variables
from uops.compiler.rewrite.rule import Rule, is_condition_proved
from uops.spec.errors import Crash
from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: The result of a step: the rule that applies, the replacement, and the binding that justifies it.
RuleApplication = tuple[Rule, UOp, Binding]
#: A function that applies the first matching rule of one op to a node.
OpMatcher = Callable[[UOp], "RuleApplication | None"]


def match_nothing(u: UOp) -> None:
    """Return None: the step of an op without rules."""
    return


class MatcherTable(dict[Op, OpMatcher]):
    """The step of each op, made on first use."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_op: dict[Op, list[Rule]] = {}
        for rule in rules:
            if rule.lhs.op is None:
                raise Crash(f"{rule} matches every node")
            self.by_op.setdefault(rule.lhs.op, []).append(rule)

    def __missing__(self, op: Op) -> OpMatcher:
        rules = self.by_op.get(op)
        step = match_nothing if rules is None else _make_step_that_dispatches_on_source_ops(rules)
        self[op] = step
        return step


def _make_step_that_dispatches_on_source_ops(rules: Sequence[Rule]) -> OpMatcher:
    """Return the step of the rules of one op; a matcher is compiled when a tuple of the sources' ops is first met."""
    max_sources = max(len(r.lhs.src) for r in rules)
    select_rules = _make_selector_of_rules_by_source_ops(rules)
    matchers: dict[tuple[Op, ...], OpMatcher] = {}

    def step(u: UOp) -> RuleApplication | None:
        src = u.src
        if len(src) > max_sources:  # a tuple of thousands of ops is no key
            return None
        if len(src) == 2:
            first, second = src
            source_ops: tuple[Op, ...] = (first.op, second.op)
        else:
            source_ops = tuple([s.op for s in src])
        matcher = matchers.get(source_ops)
        if matcher is None:
            matcher = matchers[source_ops] = _get_or_compile_matcher(select_rules(source_ops))
        return None if matcher is match_nothing else matcher(u)

    return step


def _make_selector_of_rules_by_source_ops(rules: Sequence[Rule]) -> Callable[[tuple[Op, ...]], list[Rule]]:
    """Return a function that gives the rules, in order, whose left sides the ops of a node's sources do not refuse."""
    by_count: dict[int, list[tuple[Rule, tuple[Op | None, ...]]]] = {}
    for r in rules:
        by_count.setdefault(len(r.lhs.src), []).append((r, tuple(map(_required_op, r.lhs.src))))

    def select_rules(source_ops: tuple[Op, ...]) -> list[Rule]:
        candidates = by_count.get(len(source_ops), ())
        if len(source_ops) == 2:  # by far the most
            first, second = source_ops
            return [r for r, (a, b) in candidates if (a is None or a is first) and (b is None or b is second)]
        return [r for r, required in candidates if all(o is None or o is op for o, op in zip(required, source_ops))]

    return select_rules


def _required_op(p: Pattern) -> Op | None:
    """Return the op that a node needs in order to match, or None if a variable takes any."""
    if p.op is not None:
        return p.op
    return Op.CONST if p.name is None or p.constant else None


#: Most compiled matchers that are kept for other tables.
_MAX_MATCHERS = 1024
#: By the identities of the rules. Each entry keeps its rules alive, so that their identities stay theirs.
_matchers: OrderedDict[tuple[int, ...], tuple[Sequence[Rule], OpMatcher]] = OrderedDict()


def _get_or_compile_matcher(rules: Sequence[Rule]) -> OpMatcher:
    """Return the function that tries rules whose left sides accept the sources' ops, memoized by the identities of the rules."""
    if not rules:
        return match_nothing
    key = tuple(map(id, rules))
    entry = _matchers.get(key)
    if entry is None:
        entry = _matchers[key] = rules, _MatcherWriter().compile_matcher(rules)
        if len(_matchers) > _MAX_MATCHERS:
            _matchers.popitem(last=False)
    _, matcher = entry
    return matcher


#: Most lists of rules whose tables are kept.
_MAX_TABLES = 64
#: By the identities of the rules. Each entry keeps its rules alive, so that their identities stay theirs.
_tables: OrderedDict[tuple[int, ...], tuple[Sequence[Rule], MatcherTable]] = OrderedDict()


def get_or_make_matcher_table(rules: Sequence[Rule]) -> MatcherTable:
    """Return the steps of a list of rules, memoized by the identities of the rules."""
    key = (id(rules),) if rules.__class__ is tuple else tuple(map(id, rules))
    entry = _tables.get(key)
    if entry is None:
        entry = _tables[key] = tuple(rules), MatcherTable(rules)
        if len(_tables) > _MAX_TABLES:
            _tables.popitem(last=False)
    _, table = entry
    return table


def make_const(value: bool | int | float, d: DType) -> UOp:
    """Return the Const of a literal."""
    return UOp(Op.CONST, (), A.ConstArg(coerce_literal(value, d), d))


#: Comparison -> an expression for "the bounds a and b of its operands prove it".
_COMPARISONS = {
    Op.CMPLT: "{a}[1] < {b}[0]",
    Op.CMPLE: "{a}[1] <= {b}[0]",
    Op.CMPGT: "{a}[0] > {b}[1]",
    Op.CMPGE: "{a}[0] >= {b}[1]",
    Op.CMPNE: "({a}[1] < {b}[0] or {b}[1] < {a}[0])",
    Op.CMPEQ: "{a}[0] == {a}[1] == {b}[0] == {b}[1]",
}


class _MatcherWriter:
    """The source text of one function, and its global names.

    Each function has a namespace of its own, so that threads do not share one.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "UOp": UOp,
            "make": make_const,
            "same_sum": are_equal_sums,
            "same_number": is_const_matched_by_literal,
        }
        self.local_count = 0

    def get_or_make_global_name(self, value: object, name_prefix: str) -> str:
        """Return a global name for a value; `name_prefix` is part of a new name."""
        for name, named in self.namespace.items():
            if named is value:
                return name
        name = f"{name_prefix}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def name_op(self, op: Op) -> str:
        """Return a global name for an op."""
        return self.get_or_make_global_name(op, op.name)

    def name_dtype(self, d: DType) -> str:
        """Return a global name for a dtype."""
        return self.get_or_make_global_name(d, d.name)

    def put_line(self, depth: int, text: str) -> None:
        """Append a line, indented `depth` times."""
        self.lines.append("    " * depth + text)

    def compile_matcher(self, rules: Sequence[Rule]) -> OpMatcher:
        """Compile `match(u)`, which tries `rules` in order; their left sides accept the op of the node and those of its sources."""
        self.put_line(0, "def match(u):")
        if arity := len(rules[0].lhs.src):
            self.put_line(1, "".join(f"s{k}, " for k in range(arity)) + "= u.src")
        for rule in rules:
            _LeftSideWriter(self, rule).write_match_tests_and_replacement_call(1)
        self.put_line(1, "return None")
        matcher: OpMatcher = self.compile_lines("match", f"<{rules[0].name} and {len(rules) - 1} other rules>")
        return matcher

    def compile_lines(self, name: str, origin: str) -> Any:
        """Return the function `name` that the lines define."""
        exec(compile("\n".join(self.lines), origin, "exec"), self.namespace)
        return self.namespace[name]

    # Tails: what follows a match of the left side.

    def name_tail(self, rule: Rule) -> str:
        """Return a global name for the function that completes a match of the left side."""
        name = f"tail_{len(self.namespace)}"
        self.namespace[name] = _make_tail(rule)
        return name

    def compile_condition_and_replacement(self, rule: Rule) -> Callable[[UOp, Binding], RuleApplication | None]:
        """Compile `replace(u, binding)`, which returns the result if the condition is proved, else None."""
        self.put_line(0, "def replace(u, binding):")
        used = [v for p in (rule.when, rule.rhs) if p is not None for v in variables(p)]
        for v in dict.fromkeys(used):
            self.put_line(1, f"{v}_ = binding[{v!r}]")
        for condition in _split_conjuncts(rule.when):
            self.put_line(1, f"if not ({self.build_condition_proof_expression(condition)}): return None")
        self.put_line(
            1, f"return {self.get_or_make_global_name(rule, 'rule')}, {self.build_node_expression(rule.rhs, 'u.dtype')}, binding"
        )
        replace: Callable[[UOp, Binding], RuleApplication | None] = self.compile_lines("replace", f"<rule {rule.name}>")
        return replace

    def build_condition_proof_expression(self, p: Pattern) -> str:
        """Return an expression that is true if a comparison is proved."""
        if p.op not in _COMPARISONS or not all(_is_integer_valued(q) for q in p.src):
            holds = self.get_or_make_global_name(is_condition_proved, "holds")
            return f"{holds}({self.get_or_make_global_name(p, 'condition')}, binding)"
        nodes = self.assign_sources_to_locals_except_literals(p, None)
        bounds = [
            f"({q.value!r}, {q.value!r})" if n is None else self.assign_local_if_not_identifier(f"{n}.min_max")
            for q, n in zip(p.src, nodes)
        ]
        text = _COMPARISONS[p.op].format(a=bounds[0], b=bounds[1])
        if p.op is Op.CMPLT and None not in nodes:  # a loop counter is below the loop's bound
            text = f"({text} or {nodes[0]}.op is {self.name_op(Op.RANGE)} and {nodes[0]}.src[0] is {nodes[1]})"
        if p.op is Op.CMPEQ:
            typed = next(n for n in nodes if n is not None)
            a, b = (f"make({self.build_literal_text(q)}, {typed}.dtype)" if n is None else n for q, n in zip(p.src, nodes))
            text = f"{text} or ({typed}.dtype is {self.name_dtype(dt.index)} and same_sum({a}, {b}))"
        return text

    def assign_sources_to_locals_except_literals(self, p: Pattern, literal_dtype: str | None) -> list[str | None]:
        """Return the local variables that hold the sources of `p`; None for a literal."""
        return [
            None
            if q.op is None and q.name is None
            else self.assign_local_if_not_identifier(self.build_node_expression(q, literal_dtype))
            for q in p.src
        ]

    def assign_local_if_not_identifier(self, expression: str) -> str:
        """Return a local variable that holds an expression."""
        if expression.isidentifier():
            return expression
        self.local_count += 1
        self.put_line(1, f"t{self.local_count} = {expression}")
        return f"t{self.local_count}"

    def build_node_expression(self, p: Pattern, literal_dtype: str | None) -> str:
        """Return an expression for the node that `p` spells, as `pattern.instantiate` builds it."""
        if p.name is not None:
            return f"{p.name}_"
        if p.op is None:
            if literal_dtype is None:
                raise Crash(f"literal {p.value!r} has no neighbour to take its dtype from")
            return f"make({self.build_literal_text(p)}, {literal_dtype})"
        built = self.assign_sources_to_locals_except_literals(p, None)
        first = 1 if p.op is Op.WHERE else 0
        typed = next((f"{b}.dtype" for b in built[first:] if b is not None), literal_dtype)
        sources = [
            b if b is not None else self.build_node_expression(q, self.name_dtype(dt.bool_) if k < first else typed)
            for k, (q, b) in enumerate(zip(p.src, built))
        ]
        return f"UOp({self.name_op(p.op)}, ({', '.join(sources)},){self.build_cast_argument_text(p)})"

    def build_literal_text(self, p: Pattern) -> str:
        """Return an expression for the value of a literal; an infinity or a NaN has a global name."""
        if isinstance(p.value, float) and not math.isfinite(p.value):
            return self.get_or_make_global_name(p.value, "literal")
        return repr(p.value)

    def build_cast_argument_text(self, p: Pattern) -> str:
        """Return the text of the `arg` of a Cast or Bitcast; empty for other ops."""
        if p.to is None:
            return ""
        form = A.BitcastArg if p.op is Op.BITCAST else A.CastArg
        if isinstance(p.to, TypeVar):
            return f", {self.get_or_make_global_name(form, form.__name__)}(binding[{p.to.name!r}])"
        return f", {self.get_or_make_global_name(form(p.to), 'arg')}"


def _make_tail(rule: Rule) -> Callable[..., RuleApplication | None]:
    """Return `tail(u, values...)`, which takes the values that a match binds, and returns the result of the rule or None."""
    names, replace = tuple(_names_bound_by_match(rule.lhs)), None
    complete_binding = None if rule.types is None and rule.witness is None else rule.complete_binding

    def tail(u: UOp, *values: Any) -> RuleApplication | None:
        nonlocal replace
        binding: Binding = dict(zip(names, values))
        if complete_binding is not None and not complete_binding(binding):
            return None
        if replace is None:
            replace = _MatcherWriter().compile_condition_and_replacement(rule)
        return replace(u, binding)

    return tail


class _LeftSideWriter:
    """The tests of one left side, written as nested conditions."""

    def __init__(self, writer: _MatcherWriter, rule: Rule) -> None:
        self.writer, self.rule = writer, rule
        self.variable_locals: dict[str, str] = {}
        self.type_locals: dict[str, str] = {}

    def write_match_tests_and_replacement_call(self, indentation: int) -> None:
        """Write all tests, and the call of the rule's tail inside them."""
        w, rule = self.writer, self.rule
        indentation = self.write_cast_test_and_return_depth(rule.lhs, "u", indentation)
        indentation = self.write_source_tests_and_return_depth(rule.lhs, "s", indentation, knows_ops=True)
        arguments = "".join(f", {self.variable_locals.get(v) or self.type_locals[v]}" for v in _names_bound_by_match(rule.lhs))
        w.put_line(indentation, f"r = {w.name_tail(rule)}(u{arguments})")
        w.put_line(indentation, "if r is not None: return r")

    def write_source_tests_and_return_depth(self, p: Pattern, local_prefix: str, indentation: int, knows_ops: bool = False) -> int:
        """Write the tests on the sources of a node, in local variables `local_prefix`0, `local_prefix`1, ...; return the depth
        inside them.

        With `knows_ops`, their ops have been tested.
        """
        if tests := [
            t
            for k, q in enumerate(p.src)
            for t in self.yield_op_source_count_and_constant_tests(q, f"{local_prefix}{k}", knows_ops)
        ]:
            indentation = self.open_condition(" and ".join(tests), indentation)
        for k, q in enumerate(p.src):
            if late := list(self.bind_and_yield_identity_dtype_bits_tests(q, f"{local_prefix}{k}")):
                indentation = self.open_condition(" and ".join(late), indentation)
        for k, q in enumerate(p.src):
            if q.op is not None:
                at = f"{local_prefix}{k}_"
                self.writer.put_line(indentation, "".join(f"{at}{j}, " for j in range(len(q.src))) + f"= {local_prefix}{k}.src")
                indentation = self.write_cast_test_and_return_depth(q, f"{local_prefix}{k}", indentation)
                indentation = self.write_source_tests_and_return_depth(q, at, indentation)
        return indentation

    def open_condition(self, test: str, depth: int) -> int:
        """Write an `if`, and return the depth inside it."""
        self.writer.put_line(depth, f"if {test}:")
        return depth + 1

    def yield_op_source_count_and_constant_tests(self, q: Pattern, source_local: str, knows_op: bool) -> Iterator[str]:
        """Yield the tests of a source's op unless it is known, of the number of its sources, and of a constant's number."""
        required = _required_op(q)
        if required is not None and not knows_op:
            yield f"{source_local}.op is {self.writer.name_op(required)}"
        if q.op is not None:
            yield f"len({source_local}.src) == {len(q.src)}"
        if q.op is None and q.name is None and q.value == q.value:
            yield f"{source_local}.arg.value == {self.writer.build_literal_text(q)}"

    def bind_and_yield_identity_dtype_bits_tests(self, q: Pattern, source_local: str) -> Iterator[str]:
        """Yield the tests of a variable's identity and dtype, and of a literal's bits."""
        if q.op is not None:
            return
        if q.name is None:
            yield f"same_number({source_local}.arg, {self.writer.build_literal_text(q)})"
        elif q.name in self.variable_locals:
            yield f"{source_local} is {self.variable_locals[q.name]}"
        else:
            self.variable_locals[q.name] = source_local
            d = f"{source_local}.dtype"
            if len(q.dtypes) == 1:
                yield f"{d} is {self.writer.name_dtype(q.dtypes[0])}"
            elif q.dtypes == VALUES:
                yield f"{d} is not {self.writer.name_dtype(dt.void)}"
            else:
                yield f"{d} in {self.writer.get_or_make_global_name(frozenset(q.dtypes), 'dtypes')}"

    def write_cast_test_and_return_depth(self, q: Pattern, node_local: str, indentation: int) -> int:
        """Write the test of the dtype that a Cast or Bitcast casts to, and return the depth inside it."""
        if q.to is None:
            return indentation
        if isinstance(q.to, DType):
            return self.open_condition(f"{node_local}.arg.dtype is {self.writer.name_dtype(q.to)}", indentation)
        to = f"{node_local}.arg.dtype"
        seen = self.type_locals.setdefault(q.to.name, to)
        test = f"{to} in {self.writer.get_or_make_global_name(frozenset(q.to.among), 'among')}"
        return self.open_condition(test if seen == to else f"{seen} is {to} and {test}", indentation)


def _names_bound_by_match(p: Pattern) -> dict[str, None]:
    """Return the variables and type variables that a match of `p` binds, in the order of `match_pattern_and_bind`."""
    names: dict[str, None] = {}
    pending = [p]
    while pending:
        q = pending.pop()
        if q.name is not None:
            names[q.name] = None
        elif isinstance(q.to, TypeVar):
            names[q.to.name] = None
        pending.extend(reversed(q.src))
    return names


def _split_conjuncts(p: Pattern | None) -> Iterator[Pattern]:
    if p is not None and p.op is Op.AND:
        for q in p.src:
            yield from _split_conjuncts(q)
    elif p is not None:
        yield p


def _is_integer_valued(p: Pattern) -> bool:
    """Return True if every value of the pattern is a bool or an integer, so that bounds decide a comparison."""
    if p.name is not None:
        return not any(d.is_float for d in p.dtypes)
    if p.op is None:
        return isinstance(p.value, int)
    if p.op is Op.CAST:
        return isinstance(p.to, DType) and not p.to.is_float
    return all(_is_integer_valued(q) for q in p.src)
