"""What every stage of a lowering must give: the allowed sets of the TENSOR graph, and what each pass must keep besides.

Takes: a TENSOR graph, its inputs, and the graph after any pass. Gives: the outputs of a stage as the interpreter runs it (`outputs`
of callify says which Buffer holds which value), and the first `Fault` of them. Spec: Lowering Pipeline; R28, R30 to R32, R55, R61.

The TENSOR graph alone has allowed sets (strict), and they judge all stages. A pass that does not change how values are computed
must keep more, by `KEEPS`: every bit, or every bit unless there is an op of several answers. A NaN is any NaN, except where the
program only moves values (R28), and what may be anything has nothing to keep. Where a value is to be stored, memory holds something
else at first, so that an element that a stage forgets to write is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.judge import Expectation, bits_of, spell
from uops.backends.conformance.model import Case, Level
from uops.compiler.passes.callify.callify import outputs
from uops.interp import run
from uops.spec.errors import Unsound
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
Key = int | str
Outputs = dict[Key, Array]


class Keeps(Enum):
    """What a pass keeps of the values before it."""

    BITS = "every bit"
    ORDERED = "every bit, unless floats are reduced: the order is free (R32), and which of two zeros is the greatest (R11)"
    CODE = "every bit, unless floats go through Max (R11), through an Exp2 of the target's own (R17) or a tensor core (R119)"
    SET = "the allowed set"


# fmt: off
#: Pass -> what it keeps, and why. A pass that is not listed keeps the allowed set.
KEEPS: dict[str, tuple[Keeps, str]] = {
    "callify":   (Keeps.BITS, "it names memory and orders effects; the same ops compute every value"),
    "rangeify":  (Keeps.ORDERED, "the same ops compute each element, but a Reduce becomes loops, or a closed form"),
    "join":      (Keeps.ORDERED, "kernels become parts of one, in blocks of the same loops, on other memory between them"),
    "optimize":  (Keeps.ORDERED, "loops are split, swapped and made parallel, and with them the addends of a sum"),
    "expand":    (Keeps.ORDERED, "loops become lanes, and with them the addends of a sum"),
    "select":    (Keeps.SET,  "ops become approximations within their sets, and small floats accumulate in float32"),
    "linearize": (Keeps.BITS, "the order of instructions is none of the order of operations"),
    "plan":      (Keeps.BITS, "memory has another place and the same contents"),
    "render":    (Keeps.BITS, "the instructions are those of before"),
    "backend":   (Keeps.CODE, "what selection leaves is rounded once per op, so that there is one answer"),
}
# fmt: on


class Fault(NamedTuple):
    """Why a stage is wrong. `kind`: `value`, or how its run ended. `output` and `element` are there for a value."""

    kind: str
    message: str
    output: Key | None = None
    element: int | None = None
    got: str | None = None
    allowed: str | None = None


class Judge:
    """One program on one set of inputs. Raises what the program's own run raises: a Trap of it leaves nothing to judge."""

    def __init__(
        self, graph: UOp, inputs: Mapping[str, Any], schedules: int = 0, expected: Expectation | None = None
    ) -> None:  # fmt: skip
        self.graph = graph
        self.schedules = schedules
        self.results = outputs(graph)
        fresh = {_key(o.buffer) for o in self.results}  # dead code may have a Buffer of this number
        self.inputs = {k: v for k, v in inputs.items() if k not in fresh}
        self._expected = expected or Expectation(Case("", dt.void, "", graph, dict(inputs), ()))
        self.sets = self._expected.strict
        self.given = self.inputs | {_key(o.buffer): _other(o.buffer, self.best(k)) for k, o in enumerate(self.results)}

    def best(self, key: Key) -> Array:
        """The interpreter's own value of an output."""
        return np.asarray(self.sets[key].best)

    def outputs(self) -> Outputs:
        """What the TENSOR graph itself gives."""
        return {k: self.best(k) for k in self.sets}

    def run(self, stage: UOp) -> Outputs:
        """The outputs of a stage, interpreted; Unsound where a schedule changes them. Raises what the interpreter raises."""
        found = self.read(run(stage, self.given).buffers)
        if not self.schedules:
            return found
        first = self._by_lanes(stage) if _reorders(stage) else found
        for seed in range(self.schedules):
            again = self.read(run(stage, self.given, schedule=seed).buffers)
            fault = next((f for k in first.keys() & again.keys() if (f := differs(k, first[k], again[k]))), None)
            if fault:
                raise Unsound(f"schedule {seed} gives something else: {fault.message}")
        return found

    def _by_lanes(self, stage: UOp) -> Outputs:
        """What the machine that schedules are for gives, which adds floats in another order than whole arrays are added in."""
        found = self.read(run(stage, self.given, lanes=True).buffers)
        fault = next((f for k in self.sets.keys() & found.keys() if (f := outside(self._expected, k, found))), None)
        if fault:
            raise Unsound(f"lane by lane: {fault.message}")
        return found

    def read(self, buffers: Mapping[str, Array]) -> Outputs:
        """The outputs among the final contents of memory, as far as they were written. Raises Unsound where memory that the
        program only reads has changed."""
        found: Outputs = {}
        for key, s in self.sets.items():
            name = key if isinstance(key, str) else _key(self.results[key].buffer)
            size = int(np.prod(s.shape))
            if not size:
                found[key] = self.best(key)
            elif name in buffers:
                found[key] = buffers[name].reshape(-1)[:size].reshape(s.shape)
            elif name in self.inputs:  # a Store of what is there already may go
                found[key] = np.asarray(self.inputs[name]).reshape(-1)[:size].reshape(s.shape)
        changed = next(
            (k for k in sorted(self.inputs.keys() & buffers.keys()) if k not in found and self._changed(k, buffers)), None
        )
        if changed:
            raise Unsound(f"{changed} was changed, which the program only reads")
        return found

    def _changed(self, key: str, buffers: Mapping[str, Array]) -> bool:
        return not np.array_equal(bits_of(np.asarray(self.inputs[key])).reshape(-1), bits_of(buffers[key]).reshape(-1))

    def fault(self, name: str, graph: UOp, before: Outputs, after: Outputs) -> Fault | None:
        """The first thing wrong after pass `name` of `graph`, which gave `before`."""
        found = next((f for k in self.sets if (f := outside(self._expected, k, after))), None)
        if found is not None or not keeps_bits(name, graph):
            return found
        return next((f for k, s in self.sets.items() if (f := differs(k, before[k], after[k], np.isinf(s.width_ulps())))), None)


def outside(expected: Expectation, key: Key, after: Outputs) -> Fault | None:
    """Why an output is not one that the expectation allows, at the strict level."""
    if key not in after:
        return Fault("value", f"output {key} is never written", key)
    want, got = expected.strict[key], after[key]
    best = np.asarray(want.best)
    if want.dtype is dt.index:
        got = got.astype(best.dtype)
    if got.shape != tuple(want.shape) or got.dtype != best.dtype:
        wanted = f"{best.dtype} of shape {tuple(want.shape)}"
        return Fault("value", f"output {key} is {got.dtype} of shape {got.shape}, expected {wanted}", key)
    inside = expected.accepts(key, got, Level.STRICT)
    if inside.all():
        return None
    k = int(np.flatnonzero(~inside)[0])
    allowed = spell(best.reshape(-1)[k]) if expected.by_bits else want.describe(k)
    return _fault(key, k, got, allowed)


def keeps_bits(name: str, before: UOp) -> bool:
    """Whether pass `name` must keep every bit of what `before` gives."""
    keeps, _ = KEEPS.get(name, (Keeps.SET, ""))
    free = _FREE[keeps]
    return free is not None and not _has_floats(before, free)


def _reorders(graph: UOp) -> bool:
    """Whether the order in which `graph` is evaluated may show."""
    return _has_floats(graph, _REDUCING)


def _has_floats(graph: UOp, ops: frozenset[Op]) -> bool:
    return any(u.dtype.is_float and u.op in ops for u in toposort(graph))


#: Ops that combine floats in any order.
_REDUCING = frozenset({Op.REDUCE, Op.WMMA})
#: Ops on floats that have several answers, of which a pass may choose another; None: it may choose always.
_FREE: dict[Keeps, frozenset[Op] | None] = {
    Keeps.BITS: frozenset(),
    Keeps.ORDERED: _REDUCING,
    Keeps.CODE: frozenset({Op.MAX, Op.EXP2, Op.WMMA}),
    Keeps.SET: None,
}


def differs(key: Key, before: Array, after: Array, free: Array | None = None) -> Fault | None:
    """Bits that changed; from one NaN to another does not count, nor where they are `free`, as the bytes of a NaN are (R20)."""
    x, y = before.reshape(-1), after.reshape(-1)
    if x.dtype == object:
        x = x.astype(y.dtype)
    same = bits_of(x) == bits_of(y)
    if not same.all() and x.dtype.kind not in "iub":
        same |= np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))
    if free is not None:
        same |= free.reshape(-1)
    if same.all():
        return None
    k = int(np.flatnonzero(~same)[0])
    return _fault(key, k, after, f"{spell(x[k])}, as before")


def _fault(key: Key, k: int, got: Array, allowed: str) -> Fault:
    spelled = spell(got.reshape(-1)[k])
    return Fault("value", f"output {key}, element {k}: got {spelled}, allowed {allowed}", key, k, spelled, allowed)


def _key(buffer: UOp) -> str:
    return f"b{buffer.arg.unique}"


def _other(buffer: UOp, value: Array) -> Array:
    """First contents of an output's Buffer: in each element something else than the value that is to come."""
    if value.dtype == object:  # an index beyond int64, which no Buffer holds
        return np.zeros(buffer.arg.size, np.int64)
    found = np.zeros(buffer.arg.size, value.dtype)
    if value.dtype == np.bool_:
        found[: value.size] = ~value.reshape(-1)
    else:
        bits_of(found)[: value.size] = ~bits_of(value).reshape(-1)
    return found
