"""Replay of the prover's counterexamples in the interpreter.

Takes: a `RuleCounterexample`. Gives: whether both sides of the rule differ on its values while the condition holds, and the
value of each side. A counterexample over the real numbers is evaluated in fractions, as far as its ops have exact values, and
in float64, where the difference must exceed rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.typings import conditions
from uops.compiler.rewrite.pattern import Pattern
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


class ReplayOutcome(NamedTuple):
    """The result of a replay. `confirmed` says that the interpreter refutes the rule; `words` say how, or why not."""

    confirmed: bool
    words: str


def replay_counterexample(counterexample: RuleCounterexample) -> ReplayOutcome:
    """Evaluate both sides of a rule on the values of a counterexample."""
    if counterexample.rule.assumes is not None:
        return _replay_in_fractions_then_with_tolerance(counterexample)
    graphs = counterexample.build_graphs_and_inputs()
    inputs = {name: _decode_bits(d, v) for name, (d, v) in graphs.inputs.items()}
    unmet = [u for u in graphs.conditions if not _holds(u, inputs)]
    if unmet:
        return ReplayOutcome(False, "not confirmed: the interpreter finds that the condition does not hold")
    if graphs.witness_equation is not None and np.any(
        mask_differing_elements(*(_evaluate_or_return_trap(u, inputs) for u in graphs.witness_equation))
    ):
        return ReplayOutcome(False, "not confirmed: the value that the witness promises is another one")
    left = _evaluate_or_return_trap(graphs.lhs, inputs)
    if isinstance(left, Trap):
        return ReplayOutcome(False, f"not confirmed: the left side traps ({left})")
    if graphs.rhs is None:
        return ReplayOutcome(True, f"the right side has another dtype than {graphs.lhs.dtype}")
    right = _evaluate_or_return_trap(graphs.rhs, inputs)
    differs = isinstance(right, Trap) or bool(np.any(mask_differing_elements(left, right)))
    values_text = f"the interpreter gives {_format_value(left)} for the left side and {_format_value(right)} for the right"
    return ReplayOutcome(differs, values_text if differs else f"not confirmed: {values_text}")


#: Relative difference that exceeds the rounding of a few float64 ops.
_TOLERANCE = 1e-6


def _replay_in_fractions_then_with_tolerance(counterexample: RuleCounterexample) -> ReplayOutcome:
    graphs, rule = counterexample.build_graphs_and_inputs(), counterexample.rule
    inputs = {name: _decode_bits(d, v) for name, (d, v) in graphs.inputs.items()}
    witness = rule.evaluated_pattern
    values = counterexample.values
    if any(evaluate_exactly(p, values) in (False, None) for p in conditions(rule)):
        return ReplayOutcome(False, "not confirmed: what the rule assumes does not hold")
    if witness is not None and "k" in values and evaluate_exactly(witness, values) not in (values["k"], UNKNOWN, None):
        return ReplayOutcome(False, "not confirmed: the value that the witness promises is another one")
    left, right = evaluate_exactly(rule.lhs, values), evaluate_exactly(rule.rhs, values)
    if UNKNOWN not in (left, right) and left is not None and left == right:
        return ReplayOutcome(False, f"not confirmed: both sides are {left}")
    if left is None:
        meets_infinity = any(
            not np.isfinite(_evaluate_or_return_trap(u, inputs).astype(float)) for u in toposort(graphs.lhs) if u.dtype.is_float
        )
        return ReplayOutcome(
            meets_infinity,
            f"the left side has no value{', and the interpreter meets an infinity or NaN in it' if meets_infinity else ''}",
        )
    assert graphs.rhs is not None
    a, b = (_evaluate_or_return_trap(u, inputs).astype(float).item() for u in (graphs.lhs, graphs.rhs))
    if any(side is UNKNOWN and not math.isfinite(v) for side, v in ((left, a), (right, b))):
        return ReplayOutcome(False, f"not confirmed: float64 overflows: {a} for the left side and {b} for the right")
    differs = not (abs(a - b) <= _TOLERANCE * max(abs(a), abs(b)) and math.isfinite(a) and math.isfinite(b))
    values_text = f"in fractions {left} and {right}, the interpreter gives {a} for the left side and {b} for the right"
    return ReplayOutcome(differs, values_text if differs else f"not confirmed: {values_text}")


class UnknownReal:
    """The value of an expression that is not known as a fraction."""

    def __repr__(self) -> str:
        return "no fraction"


UNKNOWN = UnknownReal()
#: A value over the real numbers: None if it is undefined.
Exact = Fraction | bool | None | UnknownReal


def _compute_exact_root(a: Fraction) -> Exact:
    if a < 0:
        return None
    root = Fraction(math.isqrt(a.numerator), math.isqrt(a.denominator))
    return root if root * root == a else UNKNOWN


#: Op -> its function on fractions and bools. None stands for an undefined value, UNKNOWN for one that may be no fraction.
_EXACT: dict[Op, Callable[..., Any]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.NEG: lambda a: -a,
    Op.DIV: lambda a, b: a / b if b else None,
    Op.RECIP: lambda a: 1 / a if a else None,
    Op.SQRT: _compute_exact_root,
    Op.LOG2: lambda a: UNKNOWN if a > 0 else None,
    Op.MULACC: lambda a, b, c: a * b + c,
    Op.MAX: max,
    Op.WHERE: lambda p, a, b: a if p else b,
    Op.CAST: Fraction,
    Op.AND: lambda a, b: a and b,
    Op.NOT: lambda a: not a,
    Op.CMPLT: lambda a, b: a < b,
    Op.CMPLE: lambda a, b: a <= b,
    Op.CMPGT: lambda a, b: a > b,
    Op.CMPGE: lambda a, b: a >= b,
    Op.CMPEQ: lambda a, b: a == b,
    Op.CMPNE: lambda a, b: a != b,
}


def evaluate_exactly(pattern: Pattern, values: Mapping[str, Any]) -> Exact:
    """Evaluate a pattern over the real numbers. Returns None if it is undefined, UNKNOWN if it may be no fraction."""
    if pattern.name is not None:
        return values[pattern.name] if isinstance(values[pattern.name], Fraction) else bool(values[pattern.name])
    if pattern.op is None:
        return pattern.value if isinstance(pattern.value, bool) else Fraction(pattern.value or 0)
    operands = [evaluate_exactly(q, values) for q in pattern.src]
    if None in operands:
        return None
    value: Exact = UNKNOWN if UNKNOWN in operands or pattern.op not in _EXACT else _EXACT[pattern.op](*operands)
    return value


def _decode_bits(d: DType, bits: int) -> Any:
    if d is dt.index:
        return bits
    word = np.array(bits % (1 << d.bits), f"u{d.itemsize}")
    return word.astype(np.bool_) if d is dt.bool_ else word.view(STORAGE[d])


def _evaluate_or_return_trap(u: UOp, inputs: dict[str, Any]) -> Any:
    """Return the value of a node, or the Trap that it raises."""
    try:
        return np.asarray(run(u, _inputs_of_graph(u, inputs)).values[0])
    except Trap as e:
        return e


def _inputs_of_graph(u: UOp, inputs: dict[str, Any]) -> dict[str, Any]:
    """Select the inputs of the Params in the graph."""
    params = {p.arg.name or f"p{p.arg.slot}" for p in toposort(u) if p.op is Op.PARAM}
    return {k: v for k, v in inputs.items() if k in params}


def _holds(u: UOp, inputs: dict[str, Any]) -> bool:
    v = _evaluate_or_return_trap(u, inputs)
    return not isinstance(v, Trap) and bool(v)


def mask_differing_elements(left: Any, right: Any) -> Any:
    """Return a bool per element of two arrays of one shape. NaN equals NaN, and -0 differs from +0."""
    if left.dtype.kind in "iubO":
        return left != right
    with np.errstate(all="ignore"):
        x, y = left.astype(np.float64), right.astype(np.float64)
    return ~np.where(np.isnan(x), np.isnan(y), (x == y) & (np.signbit(x) == np.signbit(y)))


def _format_value(v: Any) -> str:
    return f"a trap ({v})" if isinstance(v, Trap) else str(v)
