"""The judge: what a case allows, and whether a result is within it.

Takes: a case and the arrays a backend gave. Gives: per segment the number of elements outside the allowed set, the first few as
failures, and the largest accepted distance in ulp. Values that only moved are compared by bits, NaN payloads included (R28);
all others by the allowed sets of `uops.interp.allowed` (R30, R31) at the level asked for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.model import Case, Failure, Level, Segment
from uops.interp.allowed import AllowedSet, allowed
from uops.spec.ir.dtypes import Kind
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.result import Result

Array = npt.NDArray[Any]

#: Ops that keep every bit (R28); a graph of these alone is judged by bits.
MOVES = MARKERS | {
    Op.PARAM, Op.BUFFER, Op.CONST, Op.BINARY, Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.STACK,
    Op.REPLICATED, Op.SLICE, Op.BITCAST, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP,
    Op.SINK, Op.WHERE,
}  # fmt: skip
MOST_FAILURES = 5


@dataclass(slots=True)
class Verdict:
    """One segment's; nothing was judged of one that was `refused`."""

    segment: Segment
    elements: int = 0
    failed: int = 0
    max_ulp: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    sets: dict[str, int] = field(default_factory=dict)
    refused: bool = False


class Expectation:
    """What a case allows, computed once and used for every backend and control."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.by_bits = all(u.op in MOVES and not _is_nan(u) for u in toposort(case.graph))

    @functools.cached_property
    def strict(self) -> dict[int | str, AllowedSet]:
        return _outputs(self.case, Level.STRICT)

    @functools.cached_property
    def core(self) -> dict[int | str, AllowedSet]:
        return _outputs(self.case, Level.CORE)

    def at(self, level: Level) -> dict[int | str, AllowedSet]:
        return self.strict if level is Level.STRICT else self.core

    def accepts(self, output: int | str, got: Array, level: Level) -> npt.NDArray[np.bool_]:
        """Per element, flattened; False everywhere if dtype or shape differ."""
        want = self.at(level)[output]
        if mismatch(want, got):
            return np.zeros(int(np.prod(want.shape)), np.bool_)
        if self.by_bits:
            return np.asarray(bits_of(got) == bits_of(want.best)).reshape(-1)
        return np.asarray(want.contains(got)).reshape(-1)


def _is_nan(u: UOp) -> bool:
    """A NaN constant is of the class, not of one bit pattern (R20)."""
    return u.op is Op.CONST and u.arg.value != u.arg.value


def _outputs(case: Case, level: Level) -> dict[int | str, AllowedSet]:
    found = allowed(case.graph, case.inputs, level=level.value)
    outputs: dict[int | str, AllowedSet] = dict(enumerate(found.values))
    outputs.update(found.buffers)
    return outputs


def outputs_of(result: Result) -> dict[int | str, Array]:
    """A run's values by position and its buffers by key."""
    return {**{k: np.asarray(v) for k, v in enumerate(result.values)}, **{k: np.asarray(v) for k, v in result.buffers.items()}}


def mismatch(want: AllowedSet, got: Array) -> str | None:
    """Why `got` cannot be compared at all."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    if got.dtype != np.asarray(want.best).dtype:
        return f"dtype {got.dtype}, expected {np.asarray(want.best).dtype}"
    return None


def judge(expected: Expectation, result: Result, level: Level) -> list[Verdict]:
    """One verdict per segment of the case."""
    got = outputs_of(result)
    return [_segment(expected, s, got.get(s.output), level) for s in expected.case.segments]


def _segment(expected: Expectation, s: Segment, got: Array | None, level: Level) -> Verdict:
    want = expected.at(level)[s.output]
    v = Verdict(s, elements=s.stop - s.start)
    wrong = "no such output" if got is None else mismatch(want, got)
    if wrong is not None or got is None:
        v.failed = max(1, v.elements)
        v.failures.append(Failure(expected.case.id, f"output {s.output}: {wrong}", s.output))
        return v
    inside = expected.accepts(s.output, got, level)[s.start : s.stop]
    v.failed = int(np.count_nonzero(~inside))
    v.sets = {k: n for k, n in want.kinds(slice(s.start, s.stop)).items() if n}
    v.max_ulp = _max_ulp(want, got, s, inside)
    for k in np.flatnonzero(~inside)[:MOST_FAILURES]:
        v.failures.append(_failure(expected, s, want, got, int(k) + s.start))
    return v


def _failure(expected: Expectation, s: Segment, want: AllowedSet, got: Array, k: int) -> Failure:
    operands = tuple(_operand(expected.case, key, k, want) for key in sorted(expected.case.inputs))
    return Failure(
        expected.case.id,
        f"element {k} of output {s.output} is outside the allowed set",
        s.output,
        k,
        tuple(o for o in operands if o),
        spell(got.reshape(-1)[k]),
        spell(np.asarray(want.best).reshape(-1)[k]) if expected.by_bits else want.describe(k),
    )


def _operand(case: Case, key: str, k: int, want: AllowedSet) -> str:
    """The input's element that met in element k: known where input and output have the same shape."""
    value = case.inputs[key]
    if not isinstance(value, np.ndarray):
        return f"{key} = {value}"
    if tuple(value.shape) != tuple(want.shape):
        return ""
    return f"{key} = {spell(value.reshape(-1)[k])}"


def spell(x: Any) -> str:
    """A value with its bits: `1.5 (0x3fc00000)`."""
    a = np.asarray(x)
    return f"{a.item()!r} (0x{int(bits_of(a).reshape(())):0{2 * a.dtype.itemsize}x})"


def bits_of(a: Any) -> Array:
    """Unsigned integers of the same width."""
    a = np.ascontiguousarray(a)
    return np.asarray(a.view(f"u{a.dtype.itemsize}"))


def _max_ulp(want: AllowedSet, got: Array, s: Segment, inside: npt.NDArray[np.bool_]) -> float:
    if not want.dtype.is_float or want.dtype.kind is Kind.BOOL:
        return 0.0
    distance = ulp_distance(np.asarray(want.best).reshape(-1)[s.start : s.stop], got.reshape(-1)[s.start : s.stop], want.dtype.bits)
    counted = distance[inside & np.isfinite(distance)]
    return float(counted.max()) if counted.size else 0.0


def ulp_distance(a: Array, b: Array, bits: int) -> npt.NDArray[np.float64]:
    """How many values of the dtype lie between, by order of their bit patterns; inf where either is not finite."""
    x, y = _ordered(a, bits), _ordered(b, bits)
    with np.errstate(all="ignore"):
        finite = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
    return np.where(finite, np.abs(x - y), np.inf)


def _ordered(a: Array, bits: int) -> npt.NDArray[np.float64]:
    u = bits_of(a).astype(np.float64) if bits < 64 else bits_of(a).astype(np.longdouble)
    sign = u >= 2.0 ** (bits - 1)
    return np.asarray(np.where(sign, 2.0 ** (bits - 1) - u, u))
