"""Rules compiled to Python: one function per op that finds the first rule that matches a node.

`Rule.apply` defines the meaning of a rule. `get_or_make_matcher_table(rules)` maps an op to a function `step(u)`, which gives the
result of trying every rule of that op in order: (rule, replacement, binding) of the first that applies, or None. Tests hold the
two together for every rule. A function is compiled when its op is first met. It tests the left sides of all its rules, cheap
tests first, so that most rules are refused by the ops of the sources. The tail of a rule is its witness, its condition and its
right side. It is compiled when the left side first matches, because most rules never match in a process and compilation is their
main cost. Conditions on integers are decided by the bounds of their operands, without a node for the comparison.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from uops.compiler.ir.affine import are_equal_sums
from uops.compiler.rewrite.pattern import VALUES, Binding, Pattern, TypeVar, coerce_literal, is_same_number, variables
from uops.compiler.rewrite.rule import Rule, collect_type_variables_and_cast_source_type, is_condition_proved
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
    """The step of each op, compiled on first use."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_op: dict[Op, list[Rule]] = {}
        for rule in rules:
            if rule.lhs.op is None:
                raise Crash(f"{rule} matches every node")
            self.by_op.setdefault(rule.lhs.op, []).append(rule)

    def __missing__(self, op: Op) -> OpMatcher:
        rules = self.by_op.get(op)
        step = (
            match_nothing if rules is None else _find_compiled_matcher(op, rules) or _MatcherWriter().compile_op_matcher(op, rules)
        )
        self[op] = step
        return step


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


def _find_compiled_matcher(op: Op, rules: Sequence[Rule]) -> OpMatcher | None:
    """Return the matcher of a table that has the same rules for `op` and has compiled them; None if there is none."""
    for _, table in list(_tables.values()):
        others = table.by_op.get(op, ())
        if op in table and len(others) == len(rules) and all(map(operator.is_, others, rules)):
            return table[op]
    return None


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
        self.namespace: dict[str, Any] = {"UOp": UOp, "make": make_const, "same_sum": are_equal_sums, "same_number": is_same_number}
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

    def compile_op_matcher(self, op: Op, rules: Sequence[Rule]) -> OpMatcher:
        """Compile `step(u)`, which tries `rules` in order on a node of `op`."""
        self.put_line(0, "def step(u):")
        self.put_line(1, "src = u.src")
        self.put_line(1, "n = len(src)")
        for arity in sorted({len(r.lhs.src) for r in rules}):
            self.put_line(1, f"if n == {arity}:")
            self.put_line(2, "".join(f"s{k}, " for k in range(arity)) + "= src")
            for k in range(arity):
                self.put_line(2, f"o{k} = s{k}.op")
            for rule in rules:
                if len(rule.lhs.src) == arity:
                    _LeftSideWriter(self, rule).write_match_tests_and_replacement_call(2)
        self.put_line(1, "return None")
        step: OpMatcher = self.compile_lines("step", f"<rules of {op.name}>")
        return step

    def compile_lines(self, name: str, origin: str) -> Any:
        """Return the function `name` that the lines define."""
        exec(compile("\n".join(self.lines), origin, "exec"), self.namespace)
        return self.namespace[name]

    # Tails: witness, condition and right side.

    def name_replacement_compiled_on_first_call(self, rule: Rule) -> str:
        """Return a global name for a rule's tail, which is compiled at its first call."""
        name = f"tail_{len(self.namespace)}"

        def compile_and_call_tail(*arguments: Any) -> RuleApplication | None:
            tail = self.namespace[name] = _MatcherWriter().compile_witness_condition_and_replacement(rule)
            return tail(*arguments)

        self.namespace[name] = compile_and_call_tail
        return name

    def compile_witness_condition_and_replacement(self, rule: Rule) -> Callable[..., RuleApplication | None]:
        """Compile `tail(u, variables...)`, which returns the result for a node that matches the left side, or None."""
        bound = list(_names_bound_by_match(rule.lhs))
        self.put_line(0, f"def tail(u{''.join(f', {v}_' for v in bound)}):")
        self.put_line(1, "binding = {" + ", ".join(f"{v!r}: {v}_" for v in bound) + "}")
        if rule.types is not None:
            collect = collect_type_variables_and_cast_source_type
            types = f"{self.get_or_make_global_name(collect, collect.__name__)}(binding)"
            self.put_line(1, f"if not {self.get_or_make_global_name(rule.types, 'types')}({types}): return None")
        if rule.witness is not None:
            self.put_line(1, f"proposed = {self.get_or_make_global_name(rule.witness, 'witness')}(binding)")
            self.put_line(1, "if proposed is None: return None")
            self.put_line(1, "binding.update(proposed)")
            proposed = [v for p in (rule.when, rule.rhs) if p is not None for v in variables(p) if v not in bound]
            for v in dict.fromkeys(proposed):
                self.put_line(1, f"{v}_ = binding[{v!r}]")
        for condition in _split_conjuncts(rule.when):
            self.put_line(1, f"if not ({self.build_condition_proof_expression(condition)}): return None")
        self.put_line(
            1, f"return {self.get_or_make_global_name(rule, 'rule')}, {self.build_node_expression(rule.rhs, 'u.dtype')}, binding"
        )
        tail: Callable[..., RuleApplication | None] = self.compile_lines("tail", f"<rule {rule.name}>")
        return tail

    def build_condition_proof_expression(self, p: Pattern) -> str:
        """Return an expression that is true if a comparison is proved."""
        if p.op not in _COMPARISONS or not all(_has_only_integer_values(q) for q in p.src):
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
            a, b = (f"make({q.value!r}, {typed}.dtype)" if n is None else n for q, n in zip(p.src, nodes))
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
            return f"make({p.value!r}, {literal_dtype})"
        built = self.assign_sources_to_locals_except_literals(p, None)
        first = 1 if p.op is Op.WHERE else 0
        typed = next((f"{b}.dtype" for b in built[first:] if b is not None), literal_dtype)
        sources = [
            b if b is not None else self.build_node_expression(q, self.name_dtype(dt.bool_) if k < first else typed)
            for k, (q, b) in enumerate(zip(p.src, built))
        ]
        return f"UOp({self.name_op(p.op)}, ({', '.join(sources)},){self.build_cast_argument_text(p)})"

    def build_cast_argument_text(self, p: Pattern) -> str:
        """Return the text of the `arg` of a Cast or Bitcast; empty for other ops."""
        if p.to is None:
            return ""
        form = A.BitcastArg if p.op is Op.BITCAST else A.CastArg
        if isinstance(p.to, TypeVar):
            return f", {self.get_or_make_global_name(form, form.__name__)}(binding[{p.to.name!r}])"
        return f", {self.get_or_make_global_name(form(p.to), 'arg')}"


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
        indentation = self.write_source_tests_and_return_depth(rule.lhs, "s", indentation, has_op_locals=True)
        arguments = "".join(f", {self.variable_locals.get(v) or self.type_locals[v]}" for v in _names_bound_by_match(rule.lhs))
        w.put_line(indentation, f"r = {w.name_replacement_compiled_on_first_call(rule)}(u{arguments})")
        w.put_line(indentation, "if r is not None: return r")

    def write_source_tests_and_return_depth(
        self, p: Pattern, local_prefix: str, indentation: int, has_op_locals: bool = False
    ) -> int:
        """Write the tests on the sources of a node, in local variables `local_prefix`0, `local_prefix`1, ...; return the depth
        inside them.

        With `has_op_locals`, their ops are in the variables o0, o1, ...
        """
        ops = [f"o{k}" if has_op_locals else f"{local_prefix}{k}.op" for k in range(len(p.src))]
        if tests := [t for k, q in enumerate(p.src) for t in self.op_and_number_tests(q, f"{local_prefix}{k}", ops[k])]:
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

    def op_and_number_tests(self, q: Pattern, source_local: str, op_expression: str) -> Iterator[str]:
        """Yield the tests of a source's op, and of a constant's number."""
        if q.op is not None:
            yield f"{op_expression} is {self.writer.name_op(q.op)}"
            yield f"len({source_local}.src) == {len(q.src)}"
        elif q.name is None or q.constant:
            yield f"{op_expression} is {self.writer.name_op(Op.CONST)}"
        if q.op is None and q.name is None and q.value == q.value:
            yield f"{source_local}.arg.value == {q.value!r}"

    def bind_and_yield_identity_dtype_bits_tests(self, q: Pattern, source_local: str) -> Iterator[str]:
        """Yield the tests of a variable's identity and dtype, and of a literal's bits."""
        if q.op is not None:
            return
        if q.name is None:
            yield f"same_number({source_local}.arg, {q.value!r})"
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


def _has_only_integer_values(p: Pattern) -> bool:
    """Return True if every value of the pattern is a bool or an integer, so that bounds decide a comparison."""
    if p.name is not None:
        return not any(d.is_float for d in p.dtypes)
    if p.op is None:
        return isinstance(p.value, int)
    if p.op is Op.CAST:
        return isinstance(p.to, DType) and not p.to.is_float
    return all(_has_only_integer_values(q) for q in p.src)
