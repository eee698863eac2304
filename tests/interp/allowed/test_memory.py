"""Sets in buffers: Store, Load, After, Function and Call carry what is allowed, element by element (R28, R51, R54, R64)."""

from __future__ import annotations

import numpy as np

from uops.interp.allowed import compute_allowed_sets
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

X = np.random.default_rng(0).normal(size=8).astype(np.float32)


def _sine():
    return b.sin(b.param(0, (8,), dt.float32))


def _buffer(d=dt.float32, size=8, unique=1):
    return b.buffer(size, d, unique=unique)


def test_a_stored_set_is_loaded_and_left_in_the_buffer():
    want = compute_allowed_sets(_sine(), {"p0": X}).values[0]
    found = compute_allowed_sets(b.assign(_buffer(), _sine()), {"p0": X})
    for got in (found.values[0], found.buffers["b1"]):
        assert (
            got.kinds() == want.kinds()
            and (got.measure_width_in_ulps_or_points_less_one() == want.measure_width_in_ulps_or_points_less_one()).all()
        )
        assert got.contains(want.best).all()


def test_an_exact_store_over_a_set_makes_it_exact_again():
    buffer = _buffer()
    first = b.assign(buffer, _sine())
    half = b.shrink(first, (0,), (4,))
    found = compute_allowed_sets(
        b.after(first, b.store(half, b.shrink(b.param(1, (8,), dt.float32), (2,), (4,)))), {"p0": X, "p1": X}
    )
    assert (found.values[0].measure_width_in_ulps_or_points_less_one() > 0).tolist() == [False] * 4 + [True] * 4
    assert found.values[0].contains(np.concatenate([X[2:6], np.sin(X[4:])])).all()


def test_a_load_before_a_store_sees_what_was_there():
    buffer = _buffer()
    before = b.add(buffer, 0.0)
    stored = b.after(buffer, b.store(b.after(buffer, before), _sine()))
    found = compute_allowed_sets(b.tuple_(before, b.add(stored, 0.0)), {"p0": X, "b1": X})
    assert found.values[0].is_exact and not found.values[1].is_exact


def test_a_view_of_a_stored_set_moves_with_it():
    stored = b.assign(_buffer(), _sine())
    found = compute_allowed_sets(b.flip(b.reshape(stored, (2, 4)), (True, False)), {"p0": X}).values[0]
    want = compute_allowed_sets(b.flip(b.reshape(_sine(), (2, 4)), (True, False)), {"p0": X}).values[0]
    assert (
        found.measure_width_in_ulps_or_points_less_one() == want.measure_width_in_ulps_or_points_less_one()
    ).all() and found.contains(want.best).all()


def test_a_store_through_a_view_lands_where_it_should():
    buffer = _buffer()
    target = b.shrink(b.flip(buffer, (True,)), (2,), (3,))
    value = b.shrink(_sine(), (0,), (3,))
    found = compute_allowed_sets(b.sink(b.store(target, value)), {"p0": X, "b1": np.zeros(8, np.float32)}).buffers["b1"]
    assert (found.measure_width_in_ulps_or_points_less_one() > 0).tolist() == [False, False, False, True, True, True, False, False]
    assert found.contains(np.concatenate([[0, 0, 0], np.sin(X[2::-1]), [0, 0]]).astype(np.float32)).all()


def test_r164_the_last_set_of_an_element_stays():
    """Places 1, 1, 3, 3, 3: a number over a set, a set over a number, and a set that a gate leaves out over a set."""
    place = b.stack(*map(b.index, (1, 1, 3, 3, 3)))
    sine, plain = b.shrink(_sine(), (0,), (5,)), b.shrink(b.param(1, (8,), dt.float32), (0,), (5,))
    is_set = b.stack(*map(b.const, (True, False, False, True, True)))
    gate = b.stack(*map(b.const, (True, True, True, True, False)))
    store = b.store(b.at(_buffer(), place), b.where(is_set, sine, plain), gate)
    found = compute_allowed_sets(b.sink(store), {"p0": X, "p1": X, "b1": X}).buffers["b1"]
    want = X.copy()
    want[[1, 3]] = X[1], np.sin(X[3])
    assert found.contains(want).all()
    assert (found.measure_width_in_ulps_or_points_less_one() > 0).tolist() == [k == 3 for k in range(8)]
    other = want.copy()
    for wrong in ((1, np.sin(X[0])), (3, X[2]), (3, np.sin(X[4]))):
        other[:] = want
        other[wrong[0]] = wrong[1]
        assert not found.contains(other).all()


def test_r30_the_bits_of_a_stored_set_are_points_or_any():
    stored = b.assign(_buffer(), _sine())
    same = compute_allowed_sets(b.bitcast(stored, dt.uint32), {"p0": X}).values[0]
    assert same.kinds()["points"] == 8 and same.contains(np.sin(X).view(np.uint32)).all()
    split = compute_allowed_sets(b.bitcast(stored, dt.uint8), {"p0": X}).values[0]
    assert split.contains(np.sin(X).view(np.uint8)).all() and split.kinds()["any"] > 0


def test_r20_the_bits_of_a_nan_are_known_only_if_it_moved():
    nan = np.full(4, np.nan, np.float32)
    p = b.param(0, (4,), dt.float32)
    moved = compute_allowed_sets(b.bitcast(b.flip(b.contiguous(p), (True,)), dt.uint32), {"p0": nan}).values[0]
    computed = compute_allowed_sets(b.bitcast(b.add(p, 1.0), dt.uint32), {"p0": nan}).values[0]
    stored = compute_allowed_sets(b.bitcast(b.assign(_buffer(size=4), b.add(p, 1.0)), dt.uint32), {"p0": nan}).values[0]
    kept = compute_allowed_sets(b.bitcast(b.assign(_buffer(size=4), p), dt.uint32), {"p0": nan}).values[0]
    assert moved.is_exact and kept.is_exact
    assert computed.kinds()["any"] == stored.kinds()["any"] == 4


def test_r52_a_gated_load_takes_sets_from_both_sides():
    stored = b.assign(_buffer(), _sine())
    gate = np.array([True, False] * 4)
    alt = b.param(1, (8,), dt.float32)
    graph = b.load(stored, alt, b.param(2, (8,), dt.bool_))
    found = compute_allowed_sets(graph, {"p0": X, "p1": X, "p2": gate}).values[0]
    assert ((found.measure_width_in_ulps_or_points_less_one() > 0) == gate).all()
    assert found.contains(np.where(gate, np.sin(X), X)).all()


def test_r52_an_open_gate_of_a_load_opens_its_own_elements_alone():
    """Elsewhere the sets of memory and of the alternative stay: the gate compares sines with X, and with numbers beyond them."""
    stored = b.assign(_buffer(), _sine())
    bound = np.where([True] * 2 + [False] * 6, np.sin(X), [2, 2, 2, -2, -2, -2, 2, -2]).astype(np.float32)
    gate = b.lt(b.sin(b.param(2, (8,), dt.float32)), b.param(3, (8,), dt.float32))
    alternative = b.exp2(b.param(1, (8,), dt.float32))
    found = compute_allowed_sets(b.load(stored, alternative, gate), {"p0": X, "p1": X, "p2": X, "p3": bound}).values[0]
    assert found.kinds()["any"] == 2 and (found.measure_width_in_ulps_or_points_less_one()[2:] > 0).all()
    exact = np.where(np.sin(X) < bound, np.sin(X), np.exp2(X))
    assert found.contains(exact).all()
    assert not found.contains(np.where(np.sin(X) < bound, np.exp2(X), np.sin(X)))[2:].any()


def test_r52_an_open_gate_of_a_store_leaves_either():
    p = b.sin(b.param(0, (8,), dt.float32))
    gate = b.lt(p, b.param(1, (8,), dt.float32))
    x = np.sin(X.astype(float)).astype(np.float32)
    old = np.arange(8, dtype=np.float32)
    found = compute_allowed_sets(
        b.sink(b.store(_buffer(), b.param(2, (8,), dt.float32), gate)), {"p0": X, "p1": x, "p2": X, "b1": old}
    ).buffers["b1"]
    assert found.contains(old).all() and found.contains(X).all()


def test_r64_each_element_of_a_function_is_entered_when_it_is_asked_for():
    q0, q1 = b.param(0, (8,), dt.float32), b.param(1, (8,), dt.float32)
    body = b.tuple_(b.add(q0, 1.0), b.sub(q1, 1.0))
    x = b.param(0, (8,), dt.float32)
    f = b.function(body, b.exp2(x), b.sin(b.neg(x)))
    found = compute_allowed_sets(b.tuple_(b.get(f, 0), b.get(f, 1)), {"p0": X})
    assert all(not v.is_exact for v in found.values)
    assert found.values[1].contains(np.sin(-X) - np.float32(1)).all()
    direct = compute_allowed_sets(f, {"p0": X})
    assert [v.kinds() for v in direct.values] == [v.kinds() for v in found.values]


def test_r64_nested_functions_carry_sets_in_and_out():
    x = b.param(0, (8,), dt.float32)
    value = b.sin(x)
    for _ in range(20):
        value = b.get(b.function(b.neg(b.param(0, (8,), dt.float32)), value), 0)
    assert compute_allowed_sets(value, {"p0": X}).values[0].kinds() == compute_allowed_sets(b.sin(x), {"p0": X}).values[0].kinds()


def test_r63_a_call_writes_sets_through_its_params():
    out, source = b.param(0, (8,), dt.float32), b.param(1, (8,), dt.float32)
    body = b.sink(b.store(out, b.exp2(source)))
    buffer = _buffer()
    called = b.call(body, buffer, b.param(5, (8,), dt.float32))
    found = compute_allowed_sets(b.add(b.after(buffer, called), 0.0), {"p5": X})
    assert found.buffers["b1"].kinds()["interval"] == 8 and not found.values[0].is_exact
    assert found.buffers["b1"].contains(np.exp2(X)).all()


def test_a_slice_of_other_item_size_marks_the_elements_it_touches():
    stored = b.assign(_buffer(dt.float32), b.where(b.param(1, (8,), dt.bool_), _sine(), 0.0))
    mask = np.array([True] + [False] * 7)
    found = compute_allowed_sets(
        UOp(Op.SLICE, (stored, b.index(0)), b.slice_(b.param(9, (8,), dt.float32), 0, 4, dt.float64).arg), {"p0": X, "p1": mask}
    )
    assert found.values[0].kinds() == {"exact": 3, "points": 0, "interval": 0, "any": 1}


def test_bytes_that_are_written_over_a_set_are_known():
    """Of elements of four bytes: all of one, half of two, and the other half of one of these."""
    given = {"p0": X, "p1": np.zeros(2, np.uint16), "p2": np.zeros(4, np.uint8)}
    first = b.assign(_buffer(), _sine())
    word = _stored(first, dt.uint16, 6, b.param(1, (2,), dt.uint16))
    both = _stored(word, dt.uint8, 18, b.param(2, (4,), dt.uint8))
    rest = _stored(both, dt.uint8, 16, b.shrink(b.param(2, (4,), dt.uint8), (0,), (2,)))
    assert _any(both, given) == [4, 5] and _any(rest, given) == [5]
    assert not compute_allowed_sets(rest, given).values[0].measure_width_in_ulps_or_points_less_one()[3:5].any()
    assert _any(b.bitcast(both, dt.uint8), given) == [*range(12), 16, 17, *range(22, 32)]
    assert _any(b.bitcast(first, dt.uint8), given) == [*range(32)]


def _stored(memory: UOp, d: dt.DType, at: int, value: UOp) -> UOp:
    return b.after(memory, b.store(b.shrink(b.bitcast(memory, d), (at,), (value.shape[0],)), value))


def _any(u: UOp, given: dict[str, np.ndarray]) -> list[int]:
    """The elements that may be anything."""
    found = compute_allowed_sets(u, given).values[0]
    return [k for k in range(found.best.size) if found.kinds(slice(k, k + 1))["any"]]


def test_r20_a_nan_that_was_computed_has_free_bits_in_wider_memory_too():
    nan = {"p0": np.array([np.nan, 1.0], np.float16), "b1": np.zeros(1, np.int32)}
    memory = _buffer(dt.int32, 1)
    halves = b.bitcast(memory, dt.float16)
    p = b.param(0, (2,), dt.float16)
    computed = compute_allowed_sets(b.after(memory, b.store(halves, UOp(Op.TRUNC, (p,)))), nan).values[0]
    moved = compute_allowed_sets(b.after(memory, b.store(halves, b.flip(p, (True,)))), nan).values[0]
    assert computed.kinds()["any"] and moved.is_exact


def test_r20_a_nan_that_was_computed_has_free_bits_after_memory_and_a_choice():
    nan = {"p0": np.array([np.nan, 1.0], np.float32), "p1": np.array([True, False])}
    p, gate = b.param(0, (2,), dt.float32), b.param(1, (2,), dt.bool_)
    for value, free in ((UOp(Op.MAX, (p, b.const(0.0, dt.float32))), [0]), (b.flip(b.flip(p, (True,)), (True,)), [])):
        memory = b.assign(_buffer(size=2), value)
        for bits in (
            b.where(gate, memory, memory),
            b.load(memory, b.stack(b.const(2.0, dt.float32), b.const(2.0, dt.float32)), gate),
            b.stack(memory, memory),
        ):
            assert sorted({k % 2 for k in _any(b.bitcast(bits, dt.int32), nan)}) == free
    overwritten = b.assign(b.assign(_buffer(size=2), UOp(Op.MAX, (p, p))), p)
    assert _any(b.bitcast(b.where(gate, overwritten, overwritten), dt.int32), nan) == []


def test_an_inexact_index_selects_every_possible_element():
    t = np.arange(10, dtype=np.int32)
    where = b.cast(b.mul(b.sin(b.param(1, (2,), dt.float32)), 4.0), dt.int32)
    x = np.array([np.arcsin(0.75), np.arcsin(0.3)], np.float32)  # 4 sin x is just about 3; and 1.2
    found = compute_allowed_sets(b.at(b.param(0, (10,), dt.int32), where), {"p0": t, "p1": x}).values[0]
    assert found.kinds() == {"exact": 1, "points": 1, "interval": 0, "any": 0}
    assert found.contains(np.array([2, 1], np.int32)).all() and found.contains(np.array([3, 1], np.int32)).all()


def test_a_store_through_an_inexact_index_may_have_gone_anywhere():
    position = b.cast(b.mul(b.sin(b.param(1, (1,), dt.float32)), 4.0), dt.int32)
    view = b.at(_buffer(dt.int32), position)
    x = np.array([np.arcsin(0.75)], np.float32)
    found = compute_allowed_sets(
        b.sink(b.store(view, b.param(2, (1,), dt.int32))), {"p1": x, "p2": np.array([9], np.int32), "b1": np.zeros(8, np.int32)}
    )
    assert found.buffers["b1"].kinds()["any"] == 8


def _kernel(value):
    """The kernel that stores a value of each element of argument 1 in argument 0."""
    i = b.range_(8, 0)
    out, x = (b.at(b.param(k, (8,), dt.float32), i) for k in range(2))
    return b.sink(b.end(b.store(out, value(b.load(x))), i), name="k")


def _called(value, argument):
    return b.after(_buffer(), b.call(_kernel(value), _buffer(), argument, written=(0,)))


def test_a_kernel_of_exact_arguments_and_ops_has_one_answer():
    exact = b.param(0, (8,), dt.float32)
    found = compute_allowed_sets(_called(lambda x: b.add(x, x), exact), {"p0": X})
    assert found.values[0].is_exact and found.buffers["b1"].is_exact
    assert found.values[0].contains(X + X).all()


def test_a_kernel_with_several_answers_or_of_a_set_may_leave_anything():
    exact = b.param(0, (8,), dt.float32)
    for value, argument in ((b.exp2, exact), (lambda x: b.add(b.mul(x, x), x), exact), (lambda x: x, _sine())):
        found = compute_allowed_sets(_called(value, argument), {"p0": X})
        assert found.values[0].kinds()["any"] == found.buffers["b1"].kinds()["any"] == 8


def test_memory_that_held_a_set_may_hold_anything_once_a_kernel_wrote_it():
    assigned = b.assign(_buffer(), _sine())
    call = b.call(_kernel(lambda x: x), assigned, b.param(1, (8,), dt.float32), written=(0,))
    assert compute_allowed_sets(b.after(assigned, call), {"p0": X, "p1": X}).values[0].kinds()["any"] == 8


def _either_position(slot):
    """An index of shape (1,) that is 0 or 1: a comparison of Exp2(0.3) with its rounded value, an input of `EITHER`."""
    e = b.exp2(b.param(slot, (1,), dt.float32))
    return b.cast(b.lt(e, b.param(slot + 1, (1,), dt.float32)), dt.index)


_HALF = np.array([0.3], np.float32)
EITHER = {"p7": _HALF, "p8": np.exp2(_HALF)}


def test_r52_a_gated_load_through_an_inexact_index_has_every_element():
    reference, gate = b.at(b.param(0, (2,), dt.float32), _either_position(7)), b.param(1, (1,), dt.bool_)
    graph = b.load(reference, b.param(2, (1,), dt.float32), gate)
    inputs = {"p0": np.array([5, 7], np.float32), "p2": np.array([9], np.float32), **EITHER}
    for is_open, members in ((True, [5, 7]), (False, [9])):
        found = compute_allowed_sets(graph, {**inputs, "p1": np.array([is_open])}).values[0]
        got = [x for x in (0, 5, 7, 9) if found.contains(np.array([x], np.float32)).all()]
        assert got == members and found.best in members


def test_r61_a_closed_gate_reads_nothing_of_an_unwritten_buffer_through_an_inexact_index():
    graph = b.load(b.at(_buffer(size=2), _either_position(7)), b.param(2, (1,), dt.float32), b.param(1, (1,), dt.bool_))
    found = compute_allowed_sets(graph, {"p1": np.array([False]), "p2": np.array([9], np.float32), **EITHER}).values[0]
    assert found.is_exact and found.best == 9
