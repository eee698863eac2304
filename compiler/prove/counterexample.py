"""A counterexample as data: a rule, the dtypes and the values that refute it, and the graphs on which anybody can see it.

The compiler does not run graphs; the command line and the tests replay `graphs` in the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from uops.compiler.prove.model import float_bits
from uops.compiler.prove.solver.solver import Number
from uops.compiler.prove.typings import Assignment, Typed, assignments
from uops.compiler.prove.verdicts import Verdict
from uops.compiler.rewrite.pattern import Pattern
from uops.compiler.rewrite.rule import Rule
from uops.spec.errors import Crash
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class Graphs:
    """Both sides of a rule with Params for its variables, what the rule assumes, and the arguments: integers by input name, of a
    float its bits. `rhs` is None where it is ill-typed."""

    lhs: UOp
    rhs: UOp | None
    conditions: tuple[UOp, ...]
    promised: tuple[UOp, UOp] | None
    inputs: Mapping[str, tuple[DType, int]]


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Values of the variables of `rule`, under one typing of it; over the reals a float is a Fraction."""

    rule: Rule
    typing: Assignment
    values: Mapping[str, int | Fraction]

    @classmethod
    def of(cls, rule: Rule, v: Verdict) -> Counterexample:
        """That of a refuted verdict. A variable of which the solver said nothing is 0."""
        typing = next((a for a in assignments(rule) if str(a) == v.obligation.at), None)
        if typing is None:
            raise Crash(f"{rule.name} has no typing {v.obligation.at}")
        found = dict(v.values)
        real = rule.assumes is not None
        values = {
            n: Fraction(found.get(n, 0)) if real and d.is_float else _whole(found.get(n, 0), d) for n, d in v.obligation.variables
        }
        return cls(rule, typing, values)

    def graphs(self) -> Graphs:
        """What to evaluate; real numbers in float64, rounded once."""
        env, inputs = {}, {}
        for slot, (name, value) in enumerate(self.values.items()):
            d = self.typing.types[name]
            if isinstance(value, Fraction):
                env[name] = b.param(slot, (), dt.float64)
                inputs[f"p{slot}"] = (dt.float64, float_bits(float(value), dt.float64))
            elif d is dt.index:
                env[name] = b.variable(name, min(value, 0) - 1, max(value, 0) + 1)
                inputs[name] = (d, value)
            else:
                env[name] = b.param(slot, (), d)
                inputs[f"p{slot}"] = (d, value)
        a = self.typing if self.rule.assumes is None else _widened(self.typing)
        rhs = None if a.rhs is None else node(a.rhs, env)
        form: Pattern | None = getattr(self.rule.witness, "evaluates", None)
        promised = (node(a.lhs, env), env["k"]) if form is self.rule.lhs else None
        return Graphs(node(a.lhs, env), rhs, tuple(node(c, env) for c in a.when), promised, inputs)


def _widened(a: Assignment) -> Assignment:
    """A typing with float64 for every float."""
    return Assignment(a.types, _wide(a.lhs), None if a.rhs is None else _wide(a.rhs), tuple(map(_wide, a.when)))


def _wide(t: Typed) -> Typed:
    return Typed(t.pattern, dt.float64 if t.dtype.is_float else t.dtype, tuple(map(_wide, t.src)))


def _whole(v: Number, d: DType) -> int:
    """A solver's value: one bit of an index stands for all of them, and a word for the integer that it spells."""
    if d is dt.index and isinstance(v, bool):
        return -1 if v else 0
    if d.is_integer and d.is_signed and d is not dt.index and v >= 1 << (d.bits - 1):
        return int(v) - (1 << d.bits)
    return int(v)


def node(t: Typed, env: Mapping[str, UOp]) -> UOp:
    """The graph of a typed pattern."""
    p = t.pattern
    if p.name is not None:
        return env[p.name]
    if p.op is None:
        assert p.value is not None
        value = bool(p.value) if t.dtype is dt.bool_ else float(p.value) if t.dtype.is_float else int(p.value)
        return UOp(Op.CONST, (), ConstArg(value, t.dtype))
    arg = CastArg(t.dtype) if p.op is Op.CAST else BitcastArg(t.dtype) if p.op is Op.BITCAST else None
    return UOp(p.op, tuple(node(s, env) for s in t.src), arg)
