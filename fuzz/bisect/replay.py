"""Counterexamples of the prover, seen in the interpreter.

Takes: a `Counterexample`. Gives: whether both sides differ there while the rule's condition holds, and what each is. One over the
real numbers is evaluated in fractions, where its ops have exact ones, and in float64, where more than rounding has to differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.compiler.prove.counterexample import Counterexample
from uops.compiler.prove.typings import conditions
from uops.compiler.rewrite.pattern import Pattern
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


class Replay(NamedTuple):
    """`confirmed`: the interpreter refutes the rule; `words` say how, or why not."""

    confirmed: bool
    words: str


def replay(c: Counterexample) -> Replay:
    """Evaluate both sides on the values of a counterexample."""
    if c.rule.assumes is not None:
        return _replay_real(c)
    g = c.graphs()
    inputs = {name: _input(d, v) for name, (d, v) in g.inputs.items()}
    unmet = [u for u in g.conditions if not _truth(u, inputs)]
    if unmet:
        return Replay(False, "not confirmed: the interpreter finds that the condition does not hold")
    if g.promised is not None and not _same(*(_value(u, inputs) for u in g.promised)):
        return Replay(False, "not confirmed: the value that the witness promises is another one")
    left = _value(g.lhs, inputs)
    if isinstance(left, Trap):
        return Replay(False, f"not confirmed: the left side traps ({left})")
    if g.rhs is None:
        return Replay(True, f"the right side has another dtype than {g.lhs.dtype}")
    right = _value(g.rhs, inputs)
    differs = isinstance(right, Trap) or not _same(left, right)
    said = f"the interpreter gives {_spelt(left)} for the left side and {_spelt(right)} for the right"
    return Replay(differs, said if differs else f"not confirmed: {said}")


#: What is more than rounding, of a sum or a product of numbers of one size.
_MORE = 1e-6


def _replay_real(c: Counterexample) -> Replay:
    g, rule = c.graphs(), c.rule
    inputs = {name: _input(d, v) for name, (d, v) in g.inputs.items()}
    form = getattr(rule.witness, "evaluates", None)
    if any(exact(p, c.values) in (False, None) for p in conditions(rule)):
        return Replay(False, "not confirmed: what the rule assumes does not hold")
    if form is not None and "k" in c.values and exact(form, c.values) not in (c.values["k"], UNKNOWN, None):
        return Replay(False, "not confirmed: the value that the witness promises is another one")
    left, right = exact(rule.lhs, c.values), exact(rule.rhs, c.values)
    if UNKNOWN not in (left, right) and left is not None and left == right:
        return Replay(False, f"not confirmed: both sides are {left}")
    if left is None:
        met = any(not np.isfinite(_value(u, inputs).astype(float)) for u in toposort(g.lhs) if u.dtype.is_float)
        return Replay(met, f"the left side has no value{', and the interpreter meets an infinity or NaN in it' if met else ''}")
    assert g.rhs is not None
    a, b = (_value(u, inputs).astype(float).item() for u in (g.lhs, g.rhs))
    differs = not (abs(a - b) <= _MORE * max(abs(a), abs(b)) and math.isfinite(a) and math.isfinite(b))
    said = f"in fractions {left} and {right}, the interpreter gives {a} for the left side and {b} for the right"
    return Replay(differs, said if differs else f"not confirmed: {said}")


class Unknown:
    """The value of what has no exact one here."""

    def __repr__(self) -> str:
        return "no fraction"


UNKNOWN = Unknown()
Exact = Fraction | bool | None | Unknown

_EXACT: dict[Op, Callable[..., Any]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.NEG: lambda a: -a,
    Op.DIV: lambda a, b: a / b if b else None,
    Op.RECIP: lambda a: 1 / a if a else None,
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


def exact(p: Pattern, values: Mapping[str, Any]) -> Exact:
    """The value of a pattern over the real numbers: None where it has none, UNKNOWN where it may be no fraction."""
    if p.name is not None:
        return values[p.name] if isinstance(values[p.name], Fraction) else bool(values[p.name])
    if p.op is None:
        return p.value if isinstance(p.value, bool) else Fraction(p.value or 0)
    src = [exact(q, values) for q in p.src]
    if None in src:
        return None
    found: Exact = UNKNOWN if UNKNOWN in src or p.op not in _EXACT else _EXACT[p.op](*src)
    return found


def _input(d: DType, v: int) -> Any:
    if d is dt.index:
        return v
    word = np.array(v % (1 << d.bits), f"u{d.itemsize}")
    return word.astype(np.bool_) if d is dt.bool_ else word.view(STORAGE[d])


def _value(u: UOp, inputs: dict[str, Any]) -> Any:
    try:
        return np.asarray(run(u, _used(u, inputs)).values[0])
    except Trap as e:
        return e


def _used(u: UOp, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the Params that are in the graph."""
    params = {p.arg.name or f"p{p.arg.slot}" for p in toposort(u) if p.op is Op.PARAM}
    return {k: v for k, v in inputs.items() if k in params}


def _truth(u: UOp, inputs: dict[str, Any]) -> bool:
    v = _value(u, inputs)
    return not isinstance(v, Trap) and bool(v)


def _same(a: Any, b: Any) -> bool:
    """Equal as values: NaN is NaN, -0 is not +0."""
    if a.dtype.kind in "iubO":
        return bool((a == b).all())
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(np.where(np.isnan(x), np.isnan(y), (x == y) & (np.signbit(x) == np.signbit(y))).all())


def _spelt(v: Any) -> str:
    return f"a trap ({v})" if isinstance(v, Trap) else str(v)
