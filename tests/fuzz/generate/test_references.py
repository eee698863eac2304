"""Calls of Tensor methods give what their references in NumPy give, and each reference refuses what is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uops.backends.arrays import STORAGE
from uops.backends.testing.values import edge_bits, from_bits
from uops.compiler.tensor import Tensor
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import RecordingDraw, SeededDraw
from uops.fuzz.generate.methods import references
from uops.fuzz.generate.methods.calls.answers import (
    Estimate,
    ExactAnswer,
    cast_array,
    expect_same_bits,
    find_wrong_element,
    round_to_dtype,
    scalar,
    store_floats,
    to_float64,
)
from uops.fuzz.generate.methods.calls.creation import threefry
from uops.fuzz.generate.methods.calls.drawing import CallDraw, MethodRow
from uops.fuzz.generate.methods.calls.elementwise import compute_float_power
from uops.fuzz.generate.methods.references import ROWS, WITHOUT_REFERENCE, build_call, find_fault_of_built_call
from uops.fuzz.generate.strategies import HypothesisDraw
from uops.interp import run
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: Special methods that Python gives every class, pickling included, or that are no call of a user.
PYTHON = {"__annotations__", "__array_ufunc__", "__getattr__", "__module__", "__slotnames__", "__slots__", "__weakref__"}
#: Calls of each row that are drawn here.
CALLS = 40


@st.composite
def rows_and_calls(draw: Any) -> Any:
    return references.draw_call(HypothesisDraw(draw))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows_and_calls())
def test_methods_give_what_numpy_gives(call: Any) -> None:
    assert find_fault_of_built_call(build_call(call)) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.method)
def test_every_row_agrees_and_refuses_a_wrong_element(row: MethodRow) -> None:
    """Of results whose elements are not all free, most become wrong if one element changes."""
    refused = changed = 0
    for k in range(CALLS):
        built = build_call(row.draw(CallDraw(SeededDraw(k))))
        assert find_fault_of_built_call(built) is None
        if isinstance(built.call.answer, type):
            continue
        for answer, value in zip(built.call.answer, run(built.graph, built.inputs).values):
            result = np.asarray(value)
            if result.size and not (isinstance(answer, Estimate) and np.isinf(answer.error).all()):
                changed += 1
                refused += find_wrong_element(answer, change_one_element(answer, result, k)) is not None
    assert changed >= 3
    assert refused >= 0.8 * changed


def change_one_element(answer: Any, result: Any, seed: int) -> Any:
    """Change one element that is not free: by an eighth, or to another one of a few values."""
    free = np.isinf(answer.error).reshape(-1) if isinstance(answer, Estimate) else np.zeros(result.size, bool)
    position = np.flatnonzero(~free)[seed % np.count_nonzero(~free)]
    out = result.copy().reshape(-1)
    if out.dtype == bool:
        out[position] = not out[position]
    elif out.dtype.kind in "iu":
        out[position] ^= out.dtype.type(1)
    else:
        x = float(out[position])
        with np.errstate(over="ignore"):
            out[position] = x * 1.125 if math.isfinite(x) and float(out.dtype.type(x * 1.125)) != x else 3.0
    return out.reshape(result.shape)


def test_every_public_method_has_a_row_or_a_reason() -> None:
    public = {n for n in dir(Tensor) if not n.startswith("_")} | {
        n for n in dir(Tensor) if n.startswith("__") and (n not in dir(object) or n in ("__eq__", "__ne__", "__lt__", "__gt__"))
    }
    without = [n for names in WITHOUT_REFERENCE.values() for n in names]
    rows = {r.method for r in ROWS}
    assert len(rows) == len(ROWS)
    assert len(set(without)) == len(without)
    assert rows.isdisjoint(without)
    missing = public - PYTHON - rows - set(without)
    assert not missing, f"uops.fuzz.generate.methods.references: give {sorted(missing)} a row, or a reason in WITHOUT_REFERENCE"
    assert rows - {"Tensor"} <= set(dir(Tensor))
    assert set(without) <= set(dir(Tensor))


def test_draws_reach_large_tensors_errors_and_all_dtypes() -> None:
    calls = [references.draw_call(SeededDraw(k)) for k in range(3000)]
    arrays = [a for c in calls for a in c.args if isinstance(a, np.ndarray)]
    assert {a.dtype for a in arrays} == {STORAGE[d] for d in dt.STORABLE}
    assert sum(a.size > 32_768 for a in arrays) > 30
    assert {a.ndim for a in arrays} >= {0, 1, 2, 3, 4}
    assert sum(isinstance(c.answer, type) for c in calls) > 100
    assert sum(c.is_raised_on_realization for c in calls) >= 3
    assert sum(a.size == 0 for a in arrays) > 100


def test_texts_name_methods_arguments_dtypes_and_shapes() -> None:
    x = np.zeros((3, 5), np.float32)
    call = references.MethodCall("gather", (x, 1, np.zeros((3, 2), np.int32)), {"unchecked": True}, (expect_same_bits(x),))
    assert str(call) == "Tensor.gather(1, int32 (3, 2), unchecked=True) of float32 (3, 5)"


def test_wrong_errors_and_missing_errors_are_faults() -> None:
    x = np.zeros((2,), np.int32)
    wrong = references.MethodCall("sum", (x, 5), {}, (ExactAnswer(x),))
    fault = find_fault_of_built_call(build_call(wrong))
    assert fault is not None
    assert fault.kind == "error"
    assert "Tensor.sum(5) of int32 (2,) raises SpecIndexError" in fault.message
    accepted = references.MethodCall("sum", (x, 0), {}, IndexError)
    fault = find_fault_of_built_call(build_call(accepted))
    assert fault is not None
    assert fault.kind == "accepted"
    other = references.MethodCall("sum", (x, 5), {}, TypeError)
    fault = find_fault_of_built_call(build_call(other))
    assert fault is not None
    assert fault.kind == "error"


def test_samples_are_drawn_again_from_their_choices() -> None:
    for k in range(40):
        recorded = RecordingDraw(SeededDraw(k))
        sample = kinds.generate_sample_of_supported_cells_else_first(kinds.KINDS["methods"], recorded)
        assert sample.choices == tuple(recorded.choices)
        assert references.rebuild_call(sample.choices).graph is sample.graph


# ----------------------------------------------------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_values_are_rounded_as_numpy_and_ml_dtypes_round(d: DType) -> None:
    x = np.concatenate([to_float64(from_bits(np.array(edge_bits(e), np.uint64), e)) for e in dt.FLOATS if e.bits <= 32])
    with np.errstate(all="ignore"):
        x = x.astype(np.float32)  # ml_dtypes rounds twice from float64
        expected = x.astype(STORAGE[d]).astype(np.float64)
        result = store_floats(round_to_dtype(x.astype(np.float64), d), d).astype(np.float64)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32], ids=str)
def test_large_integers_are_rounded_once(d: DType) -> None:
    digits = d.man_bits + 1
    tie = (1 << 62) + (1 << (62 - digits))
    x = cast_array(np.array([tie, tie + 1, tie - 1, -tie - 1], np.int64), d).astype(np.float64)
    unit = 2.0 ** (63 - digits)
    if d.max_finite > 2.0**63:
        np.testing.assert_array_equal(x, [2.0**62, 2.0**62 + unit, 2.0**62, -(2.0**62) - unit])
    else:
        assert np.isinf(x).all()


def test_casts_to_integers_saturate() -> None:
    x = np.array([1e30, -1e30, math.nan, -1.9, math.inf, 127.5], np.float32)
    np.testing.assert_array_equal(cast_array(x, dt.int8), np.array([127, -128, 0, -1, 127, 127], np.int8))
    np.testing.assert_array_equal(cast_array(x, dt.uint64), np.array([2**64 - 1, 0, 0, 0, 2**64 - 1, 127], np.uint64))


def test_threefry_has_the_published_vectors() -> None:
    """The vectors of Random123's `kat_vectors` for threefry2x32 with 20 rounds."""
    ones = threefry(np.array([2**64 - 1], np.uint64), 2**64 - 1)[0]
    assert (int(ones) & 0xFFFFFFFF, int(ones) >> 32) == (0x1CB996FC, 0xBB002BE7)
    zeros = threefry(np.zeros(1, np.uint64), 0)[0]
    assert (int(zeros) & 0xFFFFFFFF, int(zeros) >> 32) == (0x6B200159, 0x99BA4EFE)


def test_estimates_hold_the_results_of_any_order() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(500).astype(np.float32)
    answer = Estimate.of(x, dt.float32).sum((0,))
    for order in (x, x[::-1], np.sort(x)):
        total = np.float32(0)
        for v in order:
            total = total + v
        assert find_wrong_element(answer, np.asarray(total)) is None
    assert find_wrong_element(answer, np.asarray(total + np.float32(5e-2))) is not None


def test_overflow_is_free_and_infinities_are_sure() -> None:
    big = np.array([3e38, 3e38, -3e38], np.float32)
    assert find_wrong_element(Estimate.of(big, dt.float32).sum((0,)), np.array(math.nan, np.float32)) is None
    infinite = Estimate.of(np.array([math.inf, 1], np.float32), dt.float32).sum((0,))
    assert find_wrong_element(infinite, np.array(math.inf, np.float32)) is None
    assert find_wrong_element(infinite, np.array(1, np.float32)) is not None
    nothing = Estimate.of(np.array([math.inf, -math.inf], np.float32), dt.float32).sum((0,))
    assert find_wrong_element(nothing, np.array(0, np.float32)) is not None
    assert find_wrong_element(nothing, np.array(math.nan, np.float32)) is None


def test_answers_refuse_other_dtypes_and_shapes() -> None:
    answer = expect_same_bits(np.zeros(3, np.float32))
    assert find_wrong_element(answer, np.zeros(3)) == "dtype float64, expected float32"
    assert find_wrong_element(answer, np.zeros((3, 1), np.float32)) == "shape (3, 1), expected (3,)"
    assert find_wrong_element(answer, np.array([0, -0.0, 0], np.float32)) is not None
    assert find_wrong_element(ExactAnswer(np.zeros(1, np.float32), either_zero=True), np.array([-0.0], np.float32)) is None
    assert Estimate.of(scalar(1.0), dt.float32).shape == ()


def test_powers_of_minus_infinity_are_no_square_roots() -> None:
    x = np.array([-math.inf, -0.0], np.float32)
    for exponent in (0.5, np.array([0.5], np.float32), np.array(0.5, np.float32)):
        answer = compute_float_power(x, np.asarray(exponent, np.float32))
        assert find_wrong_element(answer, np.array([math.inf, 0.0], np.float32)) is None
