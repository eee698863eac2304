"""Counterexamples of the prover, seen in the interpreter.

Takes: a `Counterexample`. Gives: whether both sides differ there while the rule's condition holds, and what each is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.compiler.prove.counterexample import Counterexample
from uops.interp import run
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import Trap
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op


class Replay(NamedTuple):
    """`confirmed`: the interpreter refutes the rule; `words` say how, or why not."""

    confirmed: bool
    words: str


def replay(c: Counterexample) -> Replay:
    """Evaluate both sides on the values of a counterexample."""
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
