"""Causes: each is found on results that have it, and on no result that has another or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.backends.arrays import flush_subnormals
from uops.backends.conformance import judge
from uops.backends.conformance.causes import find as f
from uops.backends.conformance.causes.elements import ELEMENT_CAUSES, INACCURATE_ULP, are_elements_misplaced
from uops.backends.conformance.causes.programs import PROGRAM_CAUSES
from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, Segment
from uops.interp import run
from uops.interp.allowed import compute_allowed_sets
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
    "narrow-shift-left-count": on(b.shl, (dt.uint16, [1, 3, 5]), (dt.uint16, [33, 20, 40])),
    "narrow-shift-right-count": on(b.shr, (dt.int8, [-9, 100, 5]), (dt.int8, [33, 12, 65])),
    "undefined-shift": on(b.shl, (I32, [1, 3, 5, 7]), (I32, [33, 1, -1, 2])),
    "least-by-minus-one": on(b.idiv, (dt.int8, [-128, 7, -128]), (dt.int8, [-1, -1, 3])),
    "ordered-inequality": on(b.ne, (F32, [NAN, 1.0, 2.0, 3.0]), (F32, [1.0, NAN, 3.0, 3.0])),
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
    "float-to-unsigned-all-ones": on(convert_to(dt.uint16), (F32, [-3.0, 70000.0, INF, 1.5])),
    "float-to-int-modulo": on(convert_to(U8), (F32, [1.5, -3.0, 300.0, INF, -INF])),
    "unsigned-as-signed": on(b.lt, (U32, [1, 2**31, 7]), (U32, [2**32 - 1, 3, 9])),
    "through-float32": on(convert_to(F16), (F64, [1 + 2**-11 + 2**-40, 2.0, 3.5])),
    "through-float32-flushed": on(convert_to(dt.bfloat16), (F64, [1 + 2**-8 + 2**-30, 1e-40, 2.0])),
    "power-of-subnormal": on(lambda x, y: UOp(Op.POW, (x, y)), (F32, [1e-40, 4.0, 2.0]), (F32, [0.5, 0.5, 3.0])),
    "fp8-nan-as-number": on(convert_to(dt.int16), (dt.fp8e4m3, [NAN, 3.0, -3.0])),
    "power-by-logarithm": on(lambda x, y: UOp(Op.POW, (x, y)), (F32, [-2.0, 0.0, 4.0]), (F32, [3.0, 0.0, 0.5])),
    "sine-of-reduced-argument": on(b.sin, (F32, [1e6, 0.5, 1e30])),
    "fp8-nan-compared": on(b.lt, (dt.fp8e4m3, [-NAN, NAN, -3.0]), (dt.fp8e4m3, [-7.0, 2.0, 4.0])),
    "float64-in-float32": on(b.sin, (F64, [2.5, 1e39, 0.0])),
    "excess-precision": on(lambda x, y: b.mul(b.add(x, y), y), (F16, [1.0, 2048.0, 3.0]), (F16, [2.0, 3.0, 4.0])),
    "reciprocal-division": on(b.div, (F32, [1.0, 5.0, 7.0, 9.0]), (F32, [3.0, 3.0, 11.0, 49.0])),
    "maximum-skips-nan": on(b.maximum, (F32, [NAN, 1.0, 2.0, NAN]), (F32, [1.0, NAN, 3.0, NAN])),
    "maximum-second": on(b.maximum, (F32, [NAN, 1.0, 2.0]), (F32, [1.0, NAN, 3.0])),
    "maximum-first": on(b.maximum, (F32, [1.0, NAN, 2.0]), (F32, [NAN, 1.0, 3.0])),
    "integers-in-float64": on(b.add, (I64, [2**53, 5, 2**60 + 1]), (I64, [1, 6, 7])),
    "remainder-of-rounded-quotient": on(b.mod, (I32, [1505919583, 5, 588245967]), (I32, [6, 0, 10])),
    "integers-in-float32": on(b.mul, (I32, [4097, 3, 70001]), (I32, [4097, 5, 3])),
    "bools-as-bits": on(b.add, (dt.bool_, [True, False, True]), (dt.bool_, [True, True, False])),
    "sum-of-bools-as-bits": on(lambda x: b.reduce(x, Op.ADD, (0,)), (dt.bool_, [True, True, False])),
    "truncating-remainder-or-zero": on(b.mod, (I32, [-7, 7, 5, 8]), (I32, [2, -2, 0, 3])),
    "exchanged-branches": on(b.where, (dt.bool_, [True, False]), (F32, [1.0, 2.0]), (F32, [3.0, 2.0])),
}
#: Ops -> operands on which they all differ.
OPERANDS: dict[tuple[Op, ...], tuple[tuple[DType, list[Any]], ...]] = {
    (Op.CMPLT, Op.CMPLE, Op.CMPGT, Op.CMPGE, Op.CMPEQ, Op.CMPNE): ((I32, [1, 2, 3]), (I32, [2, 2, 2])),
    (Op.XOR, Op.OR, Op.AND): ((U8, [12, 10, 0]), (U8, [10, 10, 0])),
    (Op.ADD, Op.SUB, Op.MUL, Op.MAX): ((I32, [7, 2, 0]), (I32, [2, 2, 0])),
    (Op.SHL, Op.SHR): ((I32, [8, 5]), (I32, [1, 0])),
    (Op.IDIV, Op.MOD): ((I32, [7, 9, 0]), (I32, [2, 4, 3])),
    (Op.DIV,): ((F32, [6.0, 2.0]), (F32, [3.0, 2.0])),
    (Op.POW,): ((F32, [2.0, 3.0]), (F32, [3.0, 3.0])),
    (Op.SQRT, Op.RECIP, Op.NEG, Op.TRUNC): ((F32, [4.0, 2.25, 1.0]),),
    (Op.EXP2, Op.LOG2, Op.SIN): ((F64, [4.0, 2.0]),),
}
# fmt: on
for cause in PROGRAM_CAUSES:
    for ops, operands in OPERANDS.items():
        for op in ops:
            if cause.id.startswith(f"{op.name.lower()}-as-") or cause.id == f"exchanged-{op.name.lower()}":
                SHOWS[cause.id] = on(lambda *src, op=op: UOp(op, src), *operands)


def expect(program: tuple[UOp, Mapping[str, Any]]) -> tuple[Expectation, Segment]:
    graph, inputs = program
    segment = Segment("all", 0, 0, int(np.prod(graph.shape)))
    return Expectation(ConformanceCase("A/B", graph.dtype, "edges", graph, dict(inputs), (segment,))), segment


def causes_of(expected: Expectation, segment: Segment, got: Any, level: ConformanceLevel) -> dict[str, int]:
    return {cause: int(mask.sum()) for cause, mask in f.find_causes(f.ChangedPrograms(expected, level), segment, got).items()}


def result_with(cause_id: str) -> Any:
    """What a backend with the cause gives for the program of `SHOWS`: subnormals flushed, or the changed program's result."""
    graph, inputs = SHOWS[cause_id]
    if cause_id == "flush-subnormals":
        return np.array([0.0, 6.0, 0.0, 0.0], np.float32)
    if cause_id == "undefined-shift":
        return np.array([77, 6, 99, 28], np.int32)
    cause = next(c for c in PROGRAM_CAUSES if c.id == cause_id)
    changed = cause.change(graph, inputs)
    assert changed is not None
    if cause_id == "sine-of-reduced-argument":
        return np.array([np.sin(1e6 + 0.25), np.sin(0.5), INF], np.float32)
    value = run(*changed).values[0]
    return flush_subnormals(value) if cause_id == "through-float32-flushed" else value


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
    if not len(right):  # one that is wrong becomes right
        got[0] = run(*SHOWS[cause_id]).values[0][0]
    elif got.dtype == bool:
        got[right[-1]] = not got[right[-1]]
    else:
        got[right[-1]] += np.ones((), got.dtype) * 3
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
    "smallest-normal-result": (dt.fp8e4m3, [2**-6, 1.0], [0.0, 1.0]),
    "repeated": (I32, [7, 9, 4, 3], [7, 7, 7, 3]),
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
        ("unsupported", "no fp8", "refused: no fp8"),
        ("timeout", "no answer within 60 s", f.TIMEOUT),
        ("crash", "ended by SIGSEGV", f.CRASH),
        ("trap", "index 7 is out of bounds", f.TRAP),
        ("error", "TypeError: slot 12 of 0x7f00ab has\nmore", "exception: TypeError: slot N of N has"),
        ("error", "", "exception: "),
    ],
)
def test_a_program_without_a_result_has_a_cause(status: str, message: str, cause: str) -> None:
    assert f.classify_run_without_result(status, message) == cause
    assert f.describe_cause(cause)


def test_the_value_of_a_backend_is_judged_by_the_level() -> None:
    """At `core` both roundings of a Cast to a narrow float may be allowed, so that nothing is wrong there."""
    expected, segment = expect(SHOWS["remainder-by-zero"])
    got = result_with("remainder-by-zero")
    assert causes_of(expected, segment, got, ConformanceLevel.CORE) == {}


# What earlier forms of the causes claimed falsely, or lost a run on.


@pytest.mark.parametrize(("op", "cause"), [(b.idiv, "truncating-division"), (b.mod, "truncating-remainder")])
def test_the_least_integer_is_divided_as_any_other(op: Any, cause: str) -> None:
    pairs = [(-128, 3), (5, -128), (-128, -128), (-128, -1), (127, -128), (-127, 9), (0, -128)]
    expected, segment = expect(on(op, (dt.int8, [x for x, _ in pairs]), (dt.int8, [y for _, y in pairs])))
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    exact = quotients if op is b.idiv else [x - q * y for q, (x, y) in zip(quotients, pairs)]
    assert list(causes_of(expected, segment, np.array(exact, np.int64).astype(np.int8), STRICT)) == [cause]


def test_a_zero_of_the_other_sign_is_no_flushed_subnormal() -> None:
    expected, segment = expect(on(b.neg, (F32, [0.0, 1e-40, 2.0])))
    got = np.array([0.0, -1e-40, -2.0], np.float32)
    assert causes_of(expected, segment, got, STRICT) == {"zero-sign": 1}


def test_index_arithmetic_and_deep_sums_lose_no_run() -> None:
    i = b.variable("i", 0, 3)
    shifted = b.neg(b.shrink(param(0, I32, 8), [b.add(i, 1)], [1]))
    expected, segment = expect((shifted, {"p0": np.arange(8, dtype=np.int32), "i": 2}))
    assert causes_of(expected, segment, np.array([77], np.int32), STRICT) == {f.UNEXPLAINED: 1}
    total = param(0, I32, 2)
    for _ in range(60):
        total = b.add(total, total)
    for _ in range(2000):
        total = b.add(total, 1)
    expected, segment = expect((b.lt(total, 5), {"p0": np.array([0, 7], np.int32)}))
    wrong = ~run(expected.case.graph, expected.case.inputs).values[0]
    assert sum(causes_of(expected, segment, wrong, STRICT).values()) == 2


def test_a_program_that_leaves_more_open_explains_nothing() -> None:
    """A sum of float32 above 2**24 is inexact, so that its allowed set accepts what no sum of integers is."""
    x = np.array([2**24 + 1, 2**25 + 3, 7, 2**26 + 1], np.int32)
    expected, segment = expect((b.reduce(param(0, I32, 4), Op.ADD, (0,)), {"p0": x}))
    assert causes_of(expected, segment, np.array([12345], np.int32), STRICT) == {f.UNEXPLAINED: 1}


@pytest.mark.parametrize("d", [dt.fp8e4m3, dt.fp8e5m2, dt.bfloat16, F16])
def test_a_narrow_float_that_is_twice_the_result_is_not_inaccurate(d: DType) -> None:
    expected, segment = expect(on(b.add, (d, [1.0, 2.0, 3.0, 4.0, 1.5]), (d, [1.0, 1.0, 0.5, 2.0, 1.5])))
    right = run(expected.case.graph, expected.case.inputs).values[0]
    assert "inaccurate" not in causes_of(expected, segment, (right.astype(np.float32) * 2).astype(right.dtype), STRICT)
    assert causes_of(expected, segment, np.zeros_like(right), STRICT) == {f.ZEROS: 5}


def test_exchanged_bools_are_not_misplaced() -> None:
    expected, segment = expect(on(b.lt, (F32, [1.0, 3.0, NAN, 5.0]), (F32, [2.0, 2.0, 1.0, 9.0])))
    right = run(expected.case.graph, expected.case.inputs).values[0]
    assert f.MISPLACED not in causes_of(expected, segment, ~right, STRICT)


def test_a_number_for_nan_or_of_the_other_sign_is_not_saturated() -> None:
    assert holding(F32, [NAN], [-dt.float32.max_finite])[0] == "nan-lost"
    assert "saturated-float" not in holding(F32, [INF], [-dt.float32.max_finite])
    assert holding(F32, [-INF], [-dt.float32.max_finite])[0] == "saturated-float"


def test_the_bits_of_a_nan_that_moves_decide() -> None:
    """A subnormal of another segment makes a program of flushed operands, which allows any NaN."""
    x = np.array([0x7F800001, 0x3F800000, 0x00000001], np.uint32).view(np.float32)
    expected, _ = expect((b.reshape(param(0, F32, 3), (3, 1)), {"p0": x}))
    got = x.copy().reshape(3, 1)
    got.view(np.uint32)[0] = 0x7FC00001
    assert causes_of(expected, Segment("nan", 0, 0, 2), got, STRICT) == {"nan-payload": 1}


@pytest.mark.parametrize("d", [I64, U64, U32])
def test_products_of_wide_integers_saturate(d: DType) -> None:
    most = int(d.max)
    expected, segment = expect(on(b.mul, (d, [most, most, 3]), (d, [most, 2, 4])))
    assert causes_of(expected, segment, np.array([most, most, 12], _numpy(d)), STRICT) == {"saturating-arithmetic": 2}


def test_of_two_causes_that_hold_the_simpler_one_is_claimed() -> None:
    """No pair has operands of different signs, so that a remainder that truncates is the same."""
    expected, segment = expect(on(b.mod, (I32, [5, 7, 9]), (I32, [0, 4, 3])))
    assert causes_of(expected, segment, np.array([0, 3, 0], np.int32), STRICT) == {"remainder-by-zero": 1}


def test_a_changed_program_is_evaluated_once_for_all_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = expect(on(b.mod, (I32, [5, 7, 9, 11]), (I32, [0, 4, 0, 3])))
    evaluated = list[Any]()
    monkeypatch.setattr(judge, "compute_allowed_sets", lambda *a, **k: evaluated.append(a) or compute_allowed_sets(*a, **k))
    changed, got = f.ChangedPrograms(expected, STRICT), np.array([0, 3, 0, 2], np.int32)
    for start in (0, 2):
        assert list(f.find_causes(changed, Segment("half", 0, start, start + 2), got)) == ["remainder-by-zero"]
    assert len(evaluated) == len({graph for graph, *_ in evaluated})


@pytest.mark.parametrize("cause_id", [c.id for c in PROGRAM_CAUSES if c.flushes_too])
def test_a_cause_that_flushes_too_explains_no_result_that_is_only_flushed(cause_id: str) -> None:
    base = (F32, [1e-20, 4.0]) if cause_id.startswith("power") else (F64, [1e-40, 2.0])
    program = on(lambda x: UOp(Op.POW, (x, b.const(2.0, F32))), base) if base[0] is F32 else on(convert_to(dt.bfloat16), base)
    expected, segment = expect(program)
    got = flush_subnormals(run(*program).values[0])
    assert list(causes_of(expected, segment, got, STRICT)) == ["subnormal-result"]
