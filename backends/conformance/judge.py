"""The judge: the expectation of a case, and whether a result meets it.

Takes: a case and the arrays of a backend. Gives: per segment, the number of elements outside the allowed set, the first few of them
as failures, and the largest accepted distance in ulp. Values that only moved are compared by bits, NaN payloads included (R28:
moves keep every bit). So are launches of kernels and graphs of the second document, which have one result at both levels (R173).
All others are compared with the allowed sets of `uops.interp.allowed` (R30, R31) at the requested level.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import DTYPE_OF
from uops.backends.conformance.cases.native import MEANINGS
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, Failure, Segment
from uops.backends.contract import TENSOR_SURFACE
from uops.interp import run
from uops.interp.allowed import AllowedResult, AllowedSet, compute_allowed_sets
from uops.interp.opaque import use_meanings
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.result import Result

Array = npt.NDArray[Any]

#: Ops that keep every bit (R28); a graph of these alone is compared by bits.
MOVES = MARKERS | {
    Op.PARAM, Op.BUFFER, Op.CONST, Op.BINARY, Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.STACK,
    Op.REPLICATED, Op.SLICE, Op.BITCAST, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP,
    Op.SINK, Op.WHERE,
}  # fmt: skip
#: Number of failures reported per segment.
MOST_FAILURES = 5


@dataclass(slots=True)
class SegmentVerdict:
    """The verdict of one segment. Nothing was judged of one that was `refused`. `causes` counts the wrong elements by cause."""

    segment: Segment
    elements: int = 0
    failed: int = 0
    max_ulp: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    sets: dict[str, int] = field(default_factory=dict)
    refused: bool = False
    causes: dict[str, int] = field(default_factory=dict)


class Expectation:
    """The allowed results of a case, computed once and used for every backend and control.

    `flushes_subnormals` allows results of a flush to zero at level core, which a backend may declare (R19, subnormals).
    """

    def __init__(self, case: ConformanceCase, flushes_subnormals: bool = False) -> None:
        self.case, self._flushes_subnormals = case, flushes_subnormals
        self.by_bits = case.is_exact or all(u.op in MOVES and not _is_nan(u) for u in toposort(case.graph))

    @classmethod
    def of_program(cls, graph: UOp, inputs: Mapping[str, Any], surface: str = TENSOR_SURFACE) -> Expectation:
        """Return the expectation of a program that is no case of the suite: it has no segments."""
        return cls(ConformanceCase("", dt.void, "", graph, dict(inputs), (), surface))

    def get_whole_outputs_as_segments(self, level: ConformanceLevel) -> tuple[Segment, ...]:
        """Return one segment per output, with all of its elements."""
        return tuple(Segment("program", key, 0, math.prod(want.shape)) for key, want in self.at(level).items())

    @functools.cached_property
    def strict(self) -> dict[int | str, AllowedSet]:
        """The allowed set of each output at level `strict`."""
        return self._compute_allowed_outputs(ConformanceLevel.STRICT)

    @functools.cached_property
    def core(self) -> dict[int | str, AllowedSet]:
        """The allowed set of each output at level `core`."""
        return self._compute_allowed_outputs(ConformanceLevel.CORE)

    def _compute_allowed_outputs(self, level: ConformanceLevel) -> dict[int | str, AllowedSet]:
        if self.case.is_exact:
            return _compute_exact_outputs(self.case)
        sets = self.compute_allowed_sets_of_program(self.case.meaning or self.case.graph, self.case.inputs, level)
        outputs: dict[int | str, AllowedSet] = dict(enumerate(sets.values))
        outputs.update(sets.buffers)
        return outputs

    def compute_allowed_sets_of_program(self, graph: UOp, inputs: Mapping[str, Any], level: ConformanceLevel) -> AllowedResult:
        """Return the allowed sets of a program, of this case or a changed one, by what the backend declares."""
        may_flush = self._flushes_subnormals and level is ConformanceLevel.CORE
        return compute_allowed_sets(graph, inputs, level=level.value, ftz=may_flush)

    def at(self, level: ConformanceLevel) -> dict[int | str, AllowedSet]:
        """Return the allowed set of each output at a level."""
        return self.strict if level is ConformanceLevel.STRICT else self.core

    def accepts(self, output: int | str, got: Array, level: ConformanceLevel) -> npt.NDArray[np.bool_]:
        """Return per element, flattened, whether it is allowed; False everywhere if dtype or shape differ."""
        want = self.at(level)[output]
        if describe_shape_dtype_mismatch(want, got):
            return np.zeros(int(np.prod(want.shape)), np.bool_)
        if self.by_bits:
            return np.asarray(bits_of(got) == bits_of(want.best)).reshape(-1)
        return np.asarray(want.contains(got)).reshape(-1)


def _is_nan(u: UOp) -> bool:
    """Return True for a NaN constant, which stands for any NaN rather than one bit pattern (R20)."""
    return u.op is Op.CONST and u.arg.value != u.arg.value


def _compute_exact_outputs(case: ConformanceCase) -> dict[int | str, AllowedSet]:
    """Return what the interpreter gives, values and the memory that is written, as sets of one value."""
    result = interpret(case.meaning or case.graph, case.inputs)
    return {key: AllowedSet(DTYPE_OF[got.dtype], got) for key, got in outputs_of(result).items()}


def interpret(graph: UOp, inputs: Mapping[str, Any]) -> Result:
    """Return what the interpreter gives for a graph of the suite, whose native texts have their meanings."""
    with use_meanings(MEANINGS):
        return run(graph, inputs)


def outputs_of(result: Result) -> dict[int | str, Array]:
    """Return a run's values by position and its buffers by key."""
    return {**{k: np.asarray(v) for k, v in enumerate(result.values)}, **{k: np.asarray(v) for k, v in result.buffers.items()}}


def describe_shape_dtype_mismatch(want: AllowedSet, got: Array) -> str | None:
    """Describe a wrong shape or dtype, which makes a comparison impossible; None if both match."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    if got.dtype != np.asarray(want.best).dtype:
        return f"dtype {got.dtype}, expected {np.asarray(want.best).dtype}"
    return None


def judge(expected: Expectation, result: Result, level: ConformanceLevel) -> list[SegmentVerdict]:
    """Return one verdict per segment of the case; per output for a program that is no case."""
    got, segments = outputs_of(result), expected.case.segments or expected.get_whole_outputs_as_segments(level)
    return [_judge_segment(expected, s, got.get(s.output), level) for s in segments]


def _judge_segment(expected: Expectation, s: Segment, got: Array | None, level: ConformanceLevel) -> SegmentVerdict:
    want = expected.at(level)[s.output]
    v = SegmentVerdict(s, elements=s.stop - s.start)
    mismatch = "no such output" if got is None else describe_shape_dtype_mismatch(want, got)
    if mismatch is not None or got is None:
        v.failed = max(1, v.elements)
        v.failures.append(Failure(expected.case.id, f"output {s.output}: {mismatch}", s.output))
        return v
    accepted = expected.accepts(s.output, got, level)[s.start : s.stop]
    v.failed = int(np.count_nonzero(~accepted))
    v.sets = {k: n for k, n in want.kinds(slice(s.start, s.stop)).items() if n}
    v.max_ulp = _max_finite_accepted_ulp(want, got, s, accepted)
    for k in np.flatnonzero(~accepted)[:MOST_FAILURES]:
        v.failures.append(make_element_failure(expected, s, want, got, int(k) + s.start))
    return v


def make_element_failure(
    expected: Expectation, s: Segment, want: AllowedSet, got: Array, element_index: int, cause: str | None = None
) -> Failure:
    """Return the failure of one element of an output, with its operands and the allowed set in words."""
    operands = tuple(
        _format_operand_or_empty_if_shape_differs(expected.case, key, element_index, want) for key in sorted(expected.case.inputs)
    )
    return Failure(
        expected.case.id,
        f"element {element_index} of output {s.output} is outside the allowed set",
        s.output,
        element_index,
        tuple(o for o in operands if o),
        format_value_with_bits(got.reshape(-1)[element_index]),
        format_value_with_bits(np.asarray(want.best).reshape(-1)[element_index])
        if expected.by_bits
        else want.describe(element_index),
        cause=cause,
    )


def _format_operand_or_empty_if_shape_differs(case: ConformanceCase, key: str, element_index: int, want: AllowedSet) -> str:
    """Format an input that is a number, or its element at that index; empty for an array of another shape than the output."""
    value = case.inputs[key]
    if not isinstance(value, np.ndarray):
        return f"{key} = {value}"
    if tuple(value.shape) != tuple(want.shape):
        return ""
    return f"{key} = {format_value_with_bits(value.reshape(-1)[element_index])}"


def format_value_with_bits(x: Any) -> str:
    """Format a value with its bits: `1.5 (0x3fc00000)`."""
    a = np.asarray(x)
    return f"{a.item()!r} (0x{int(bits_of(a).reshape(())):0{2 * a.dtype.itemsize}x})"


def bits_of(a: Any) -> Array:
    """Return unsigned integers of the same width with the same bits."""
    a = np.ascontiguousarray(a)
    return np.asarray(a.view(f"u{a.dtype.itemsize}"))


def _max_finite_accepted_ulp(want: AllowedSet, got: Array, s: Segment, accepted: npt.NDArray[np.bool_]) -> float:
    if not want.dtype.is_float:
        return 0.0
    distance = ulp_distance(np.asarray(want.best).reshape(-1)[s.start : s.stop], got.reshape(-1)[s.start : s.stop], want.dtype.bits)
    counted = distance[accepted & np.isfinite(distance)]
    return float(counted.max()) if counted.size else 0.0


def ulp_distance(a: Array, b: Array, bits: int) -> npt.NDArray[np.float64]:
    """Return the number of values of the dtype between a and b, in the order of their bit patterns; inf for non-finite values."""
    x, y = _bits_to_ordinal(a, bits), _bits_to_ordinal(b, bits)
    with np.errstate(all="ignore"):
        finite = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
    return np.where(finite, np.abs(x - y), np.inf)


def _bits_to_ordinal(a: Array, bits: int) -> npt.NDArray[np.float64]:
    u = bits_of(a).astype(np.float64) if bits < 64 else bits_of(a).astype(np.longdouble)
    sign = u >= 2.0 ** (bits - 1)
    return np.asarray(np.where(sign, 2.0 ** (bits - 1) - u, u))
