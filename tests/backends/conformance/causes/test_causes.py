"""Causes: each is found on results that have it, and on no result that has another or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.backends.conformance.causes import find as f
from uops.backends.conformance.causes.elements import ELEMENT_CAUSES, INACCURATE_ULP, are_elements_misplaced
from uops.backends.conformance.causes.programs import PROGRAM_CAUSES
from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, Segment
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

STRICT = ConformanceLevel.STRICT
F16, F32, F64, I32, I64, U8, U32, U64 = (
    dt.float16, dt.float32, dt.float64, dt.int32, dt.int64, dt.uint8, dt.uint32, dt.uint64
)  # fmt: skip
NAN, INF = float("nan"), float("inf")


def param(slot: int, d: DType, n: int) -> UOp:
    return b.param(slot, (n,), d)


def on(op: Any, *operands: tuple[DType, list[Any]]) -> tuple[UOp, dict[str, Any]]:
    """A program of one op on Params with these elements."""
    arrays = [np.array(values, _numpy(d)) for d, values in operands]
    params = [param(k, d, len(values)) for k, (d, values) in enumerate(operands)]
    return op(*params), {f"p{k}": a for k, a in enumerate(arrays)}


def _numpy(d: DType) -> Any:
    return getattr(ml_dtypes, d.ml_dtypes_name) if d.ml_dtypes_name else d.array_name


def convert_to(d: DType) -> Any:
    return lambda x: b.cast(x, d)


FLOATS = [1.5, -3.0, 3e9, -3e9, 1e20, -1e20, INF, -INF, NAN]
# fmt: off
#: Cause -> a program with which it shows.
SHOWS: dict[str, tuple[UOp, Mapping[str, Any]]] = {
    "flush-subnormals": on(b.mul, (F32, [1e-40, 3.0, 1e-20, 1e-40]), (F32, [1.0, 2.0, 1e-20, 1e30])),
    "shift-left-count": on(b.shl, (I32, [1, 3, 5]), (I32, [33, 1, 40])),
    "shift-right-count": on(b.shr, (I32, [-9, 300, 5]), (I32, [33, 1, 64])),
    "truncating-division": on(b.idiv, (I32, [-7, 7, -7, 8]), (I32, [2, -2, -2, 3])),
    "truncating-remainder": on(b.mod, (I32, [-7, 7, -7, 8, 5]), (I32, [2, -2, -2, 3, 0])),
    "remainder-by-zero": on(b.mod, (U8, [5, 7, 0]), (U8, [0, 4, 0])),
    "quotient-by-zero": on(b.idiv, (I32, [5, 7, 0]), (I32, [0, 4, 0])),
    "saturating-arithmetic": on(b.sub, (dt.int8, [-128, 100, 3]), (dt.int8, [73, -50, 4])),
    "quotient-by-zero-adjusted": on(b.idiv, (I32, [5, 7, 0]), (I32, [0, 4, 0])),
    "saturating-negation": on(b.sub, (dt.int8, [-128, 100, 3]), (dt.int8, [-128, -50, 4])),
    "complement-comparison": on(b.ge, (F32, [NAN, 1.0, 2.0]), (F32, [1.0, NAN, 1.0])),
    "complement-strict": on(b.gt, (F32, [NAN, 1.0, 2.0]), (F32, [1.0, NAN, 1.0])),
    "comparison-before-wrapping": on(
        lambda x, y, z: b.lt(b.add(x, y), b.add(x, z)), (I32, [2**31 - 1, 2**31 - 1, 7]), (I32, [1, 1, 2]), (I32, [-1, 2, 1])
    ),
    "nan-to-bool": on(convert_to(dt.bool_), (F32, [NAN, 0.0, 2.0])),
    "float-to-int32": on(convert_to(dt.int16), (F32, FLOATS)),
    "float-to-int64": on(convert_to(I64), (F64, FLOATS)),
    "float-to-unsigned": on(convert_to(U64), (F64, FLOATS)),
    "float-to-int-modulo": on(convert_to(U8), (F32, [1.5, -3.0, 300.0, INF, -INF])),
    "unsigned-as-signed": on(b.lt, (U32, [1, 2**31, 7]), (U32, [2**32 - 1, 3, 9])),
    "through-float32": on(convert_to(F16), (F64, [1 + 2**-11 + 2**-40, 2.0, 3.5])),
    "excess-precision": on(lambda x, y: b.mul(b.add(x, y), y), (F16, [1.0, 2048.0, 3.0]), (F16, [2.0, 3.0, 4.0])),
    "reciprocal-division": on(b.div, (F32, [1.0, 5.0, 7.0, 9.0]), (F32, [3.0, 3.0, 11.0, 49.0])),
    "maximum-skips-nan": on(b.maximum, (F32, [NAN, 1.0, 2.0, NAN]), (F32, [1.0, NAN, 3.0, NAN])),
    "maximum-second": on(b.maximum, (F32, [NAN, 1.0, 2.0]), (F32, [1.0, NAN, 3.0])),
    "maximum-first": on(b.maximum, (F32, [1.0, NAN, 2.0]), (F32, [NAN, 1.0, 3.0])),
    "integers-in-float64": on(b.add, (I64, [2**53, 5, 2**60 + 1]), (I64, [1, 6, 7])),
    "integers-in-float32": on(b.mul, (I32, [4097, 3, 70001]), (I32, [4097, 5, 3])),
    "bools-as-bits": on(b.add, (dt.bool_, [True, False, True]), (dt.bool_, [True, True, False])),
    "sum-of-bools-as-bits": on(lambda x: b.reduce(x, Op.ADD, (0,)), (dt.bool_, [True, True, False])),
}
# fmt: on


def expect(program: tuple[UOp, Mapping[str, Any]]) -> tuple[Expectation, Segment]:
    graph, inputs = program
    segment = Segment("all", 0, 0, int(np.prod(graph.shape)))
    return Expectation(ConformanceCase("A/B", graph.dtype, "edges", graph, dict(inputs), (segment,))), segment


def causes_of(expected: Expectation, segment: Segment, got: Any, level: ConformanceLevel) -> dict[str, int]:
    return {cause: int(mask.sum()) for cause, mask in f.find_causes(expected, segment, got, level).items()}


def result_with(cause_id: str) -> Any:
    """What a backend with the cause gives for the program of `SHOWS`: subnormals flushed, or the changed program's result."""
    graph, inputs = SHOWS[cause_id]
    if cause_id == "flush-subnormals":
        return np.array([0.0, 6.0, 0.0, 0.0], np.float32)
    cause = next(c for c in PROGRAM_CAUSES if c.id == cause_id)
    changed = cause.change(graph, inputs)
    assert changed is not None
    return run(*changed).values[0]


def test_every_cause_that_is_a_program_has_a_program_with_which_it_shows() -> None:
    assert SHOWS.keys() == {c.id for c in PROGRAM_CAUSES}


@pytest.mark.parametrize("cause_id", SHOWS)
def test_a_result_of_another_program_has_its_cause(cause_id: str) -> None:
    expected, segment = expect(SHOWS[cause_id])
    counts = causes_of(expected, segment, result_with(cause_id), STRICT)
    assert list(counts) == [cause_id] and counts[cause_id] > 0


@pytest.mark.parametrize("cause_id", SHOWS)
def test_a_right_result_has_no_cause(cause_id: str) -> None:
    expected, segment = expect(SHOWS[cause_id])
    assert causes_of(expected, segment, run(*SHOWS[cause_id]).values[0], STRICT) == {}


@pytest.mark.parametrize("cause_id", [c for c in SHOWS if c != "sum-of-bools-as-bits"])  # which has one element
def test_one_element_more_that_is_wrong_refutes_the_cause(cause_id: str) -> None:
    expected, segment = expect(SHOWS[cause_id])
    got = result_with(cause_id).copy()
    right = np.flatnonzero(np.asarray(expected.accepts(0, got, STRICT)) & (got == got))
    assert len(right), "the program has no element that is right"
    got[right[-1]] = not got[right[-1]] if got.dtype == bool else got[right[-1]] + np.ones((), got.dtype) * 3
    assert cause_id not in causes_of(expected, segment, got, STRICT)


# fmt: off
#: Cause -> its dtype, and the expected and the given elements.
ELEMENTS: dict[str, tuple[DType, list[Any], list[Any]]] = {
    "nan-lost": (F32, [NAN, 1.0], [5.0, 1.0]),
    "nan-made": (F32, [2.0, 1.0], [NAN, 1.0]),
    "zero-sign": (F32, [0.0, 1.0, -0.0], [-0.0, 1.0, 0.0]),
    "subnormal-result": (F32, [1e-40, 1.0], [0.0, 1.0]),
    "saturated-float": (dt.fp8e4m3, [NAN, 1.0], [448.0, 1.0]),
    "early-infinity": (F16, [65504.0, 1.0], [INF, 1.0]),
    "inaccurate": (F32, [1.0, 2.0], [1.0 + 2**-18, 2.0]),
    "one-off": (I32, [7, 9, 4], [8, 9, 3]),
    "extreme-integer": (I32, [700, 9, 4], [2**31 - 1, 9, -(2**31)]),
}
# fmt: on


def holding(d: DType, want: list[Any], got: list[Any]) -> list[str]:
    expected, given = np.array(want, _numpy(d)), np.array(got, _numpy(d))
    wrong = expected.view(f"u{d.itemsize}") != given.view(f"u{d.itemsize}")
    return [c.id for c in ELEMENT_CAUSES if (c.holds(expected, given, d) & wrong).any()]


def test_every_cause_of_elements_has_elements_that_have_it() -> None:
    assert ELEMENTS.keys() == {c.id for c in ELEMENT_CAUSES} - {"nan-payload"}


@pytest.mark.parametrize("cause_id", ELEMENTS)
def test_elements_have_their_cause_first(cause_id: str) -> None:
    first, *_ = holding(*ELEMENTS[cause_id])
    assert first == cause_id


@pytest.mark.parametrize("cause_id", ELEMENTS)
def test_right_elements_and_those_of_another_cause_do_not_have_it(cause_id: str) -> None:
    (cause,) = [c for c in ELEMENT_CAUSES if c.id == cause_id]
    d, want, _ = ELEMENTS[cause_id]
    right = np.array([x for x in want if x == x and x not in (0, 1e-40)], _numpy(d))
    assert not cause.holds(right, right, d).any() or cause_id == "inaccurate"  # a distance of 0
    other = np.array([100] * len(right), _numpy(d))
    assert not cause.holds(right, other, d).any()


def test_a_nan_that_only_moves_and_changes_its_bits_has_its_cause() -> None:
    quiet = np.array([0x7FC00001, 0x3F800000], np.uint32).view(np.float32)
    (cause,) = [c for c in ELEMENT_CAUSES if c.id == "nan-payload"]
    assert cause.holds(quiet, np.array([NAN, 1.0], np.float32), F32).tolist() == [True, False]
    assert not cause.holds(quiet, quiet, F32).any()


def moved(values: list[float]) -> tuple[Expectation, Segment]:
    return expect((b.flip(param(0, F32, len(values)), (True,)), {"p0": np.array(values, np.float32)}))


def test_right_elements_at_other_places_are_misplaced() -> None:
    expected, segment = moved([1.0, 2.0, 3.0, 4.0])
    assert causes_of(expected, segment, np.array([1.0, 2.0, 3.0, 4.0], np.float32), STRICT) == {f.MISPLACED: 4}
    assert not are_elements_misplaced(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert not are_elements_misplaced(np.array([1.0, 2.0]), np.array([1.0, 1.0]))


def test_what_is_zero_everywhere_was_not_written_and_a_single_zero_is_unexplained() -> None:
    expected, segment = moved([10.0, 20.0, 30.0, 40.0])
    assert causes_of(expected, segment, np.zeros(4, np.float32), STRICT) == {f.ZEROS: 4}
    one = np.array([40.0, 0.0, 20.0, 10.0], np.float32)
    assert causes_of(expected, segment, one, STRICT) == {f.UNEXPLAINED: 1}


def test_weak_causes_explain_all_that_is_left_or_nothing() -> None:
    expected, segment = expect(on(b.neg, (I32, [1, 2, 3])))
    assert causes_of(expected, segment, np.array([0, -2, -4], np.int32), STRICT) == {"one-off": 2}
    assert causes_of(expected, segment, np.array([0, -2, 77], np.int32), STRICT) == {f.UNEXPLAINED: 2}


def test_a_strong_cause_leaves_the_rest_to_others() -> None:
    expected, segment = expect(on(b.sqrt, (F32, [NAN, 4.0, 2.0])))
    got = np.array([7.0, 2.0, 1.4142137], np.float32)
    assert not expected.accepts(0, got, STRICT)[[0, 2]].any()
    assert causes_of(expected, segment, got, STRICT) == {"nan-lost": 1, "inaccurate": 1}
    got[2] *= 1 + 2.0**-23 * 2 * INACCURATE_ULP
    assert causes_of(expected, segment, got, STRICT) == {"nan-lost": 1, f.UNEXPLAINED: 1}


@pytest.mark.parametrize("got", [None, np.zeros(3), np.zeros(2, np.int32)])
def test_an_output_of_another_form_is_a_cause(got: Any) -> None:
    expected, segment = expect(on(b.neg, (I32, [1, 2, 3])))
    assert causes_of(expected, segment, got, STRICT) == {f.FORM: 3}


@pytest.mark.parametrize(
    ("status", "message", "cause"),
    [
        ("unsupported", "no fp8", f.REFUSAL),
        ("timeout", "no answer within 60 s", f.TIMEOUT),
        ("crash", "ended by SIGSEGV", f.CRASH),
        ("trap", "index 7 is out of bounds", f.TRAP),
        ("error", "TypeError: slot 12 of 0x7f00ab has\nmore", "exception: TypeError: slot N of N has"),
        ("error", "", "exception: "),
    ],
)
def test_a_program_without_a_result_has_a_cause(status: str, message: str, cause: str) -> None:
    assert f.cause_of_ending(status, message) == cause
    assert f.describe_cause(cause)


def test_the_value_of_a_backend_is_judged_by_the_level() -> None:
    """At `core` both roundings of a Cast to a narrow float may be allowed, so that nothing is wrong there."""
    expected, segment = expect(SHOWS["remainder-by-zero"])
    got = result_with("remainder-by-zero")
    assert causes_of(expected, segment, got, ConformanceLevel.CORE) == {}
