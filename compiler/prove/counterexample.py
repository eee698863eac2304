"""Counterexamples to rules: dtypes and values that refute a rule, and graphs that show it.

Takes: a rule and a refuted `ProofVerdict`. Gives: `CounterexampleGraphs`. The compiler does not run graphs; the command line and
the tests replay them in the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from uops.compiler.prove.model import WIDE_BITS, encode_bits_of_representable_float
from uops.compiler.prove.obligations import gives_index_as_word
from uops.compiler.prove.solver.solver import Number
from uops.compiler.prove.typings import RuleTyping, TypedPattern, enumerate_rule_typings
from uops.compiler.prove.verdicts import ProofVerdict
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
class CounterexampleGraphs:
    """The sides of a rule with Params for its variables, its conditions, and arguments that refute it.

    `inputs` has the dtype and value of each input; a float is given by its bits. `rhs` is None if it is ill-typed.
    `witness_equation` is the pattern that a witness evaluates, and the variable that gets its value.
    """

    lhs: UOp
    rhs: UOp | None
    conditions: tuple[UOp, ...]
    witness_equation: tuple[UOp, UOp] | None
    inputs: Mapping[str, tuple[DType, int]]


@dataclass(frozen=True, slots=True)
class RuleCounterexample:
    """Values of the variables of `rule` under one typing; over the reals, a float is a Fraction."""

    rule: Rule
    typing: RuleTyping
    values: Mapping[str, int | Fraction]

    @classmethod
    def from_refuted_verdict(cls, rule: Rule, verdict: ProofVerdict) -> RuleCounterexample:
        """Build the counterexample of a refuted verdict. A variable that the solver's model lacks is 0."""
        typing = next((a for a in enumerate_rule_typings(rule) if str(a) == verdict.obligation.typing), None)
        if typing is None:
            raise Crash(f"{rule.name} has no typing {verdict.obligation.typing}")
        model, index_is_word = dict(verdict.values), gives_index_as_word(verdict.by)
        real = rule.assumes is not None
        values = {
            n: Fraction(model.get(n, 0))
            if real and d.is_float
            else _decode_solver_value_as_integer(model.get(n, 0), d, index_is_word)
            for n, d in verdict.obligation.variables
        }
        return cls(rule, typing, values)

    def build_graphs_and_inputs(self) -> CounterexampleGraphs:
        """Build the graphs to evaluate; real numbers are rounded once to float64."""
        env, inputs = {}, {}
        for slot, (name, value) in enumerate(self.values.items()):
            d = self.typing.types[name]
            if isinstance(value, Fraction):
                env[name] = b.param(slot, (), dt.float64)
                inputs[f"p{slot}"] = (dt.float64, encode_bits_of_representable_float(_round_to_float64(value), dt.float64))
            elif d is dt.index:
                env[name] = b.variable(name, min(value, 0) - 1, max(value, 0) + 1)
                inputs[name] = (d, value)
            else:
                env[name] = b.param(slot, (), d)
                inputs[f"p{slot}"] = (d, value)
        a = self.typing if self.rule.assumes is None else _retype_floats_in_patterns_as_float64(self.typing)
        rhs = None if a.rhs is None else instantiate_typed_pattern(a.rhs, env)
        evaluated = self.rule.evaluated_pattern
        equation = (instantiate_typed_pattern(a.lhs, env), env["k"]) if evaluated is self.rule.lhs else None
        return CounterexampleGraphs(
            instantiate_typed_pattern(a.lhs, env), rhs, tuple(instantiate_typed_pattern(c, env) for c in a.when), equation, inputs
        )


def _round_to_float64(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _retype_floats_in_patterns_as_float64(a: RuleTyping) -> RuleTyping:
    """Return the typing with float64 in place of every float dtype."""
    return RuleTyping(
        a.types,
        _retype_pattern_as_float64(a.lhs),
        None if a.rhs is None else _retype_pattern_as_float64(a.rhs),
        tuple(map(_retype_pattern_as_float64, a.when)),
    )


def _retype_pattern_as_float64(t: TypedPattern) -> TypedPattern:
    """Return the typed pattern with float64 in place of every float dtype."""
    return TypedPattern(t.pattern, dt.float64 if t.dtype.is_float else t.dtype, tuple(map(_retype_pattern_as_float64, t.src)))


def _decode_solver_value_as_integer(solver_value: Number, d: DType, index_is_word: bool) -> int:
    """Return the integer that a solver's value encodes in dtype `d`.

    An index in the theory `slice` is one bit, which stands for all bits. A bit vector of a signed dtype, or of a WIDE index, is
    two's complement.
    """
    if d is dt.index and isinstance(solver_value, bool):
        return -1 if solver_value else 0
    bits = WIDE_BITS if d is dt.index and index_is_word else d.bits if d.is_integer and d.is_signed and d is not dt.index else None
    value = int(solver_value)
    return value if bits is None or value < 1 << (bits - 1) else value - (1 << bits)


def instantiate_typed_pattern(t: TypedPattern, nodes_by_name: Mapping[str, UOp]) -> UOp:
    """Build the graph of a typed pattern."""
    p = t.pattern
    if p.name is not None:
        return nodes_by_name[p.name]
    if p.op is None:
        assert p.value is not None
        value = bool(p.value) if t.dtype is dt.bool_ else float(p.value) if t.dtype.is_float else int(p.value)
        return UOp(Op.CONST, (), ConstArg(value, t.dtype))
    arg = CastArg(t.dtype) if p.op is Op.CAST else BitcastArg(t.dtype) if p.op is Op.BITCAST else None
    return UOp(p.op, tuple(instantiate_typed_pattern(s, nodes_by_name) for s in t.src), arg)
