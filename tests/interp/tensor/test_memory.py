"""References, Load, Store, order, races and uninitialised reads (R51 to R55, R59, R61)."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def buf(n=6, d=dt.int32, unique=1):
    return B.buffer(n, d, unique=unique)


def param(n, d=dt.int32, slot=0):
    return B.param(slot, (n,), d)


SIX = {"b1": np.arange(6, dtype=np.int32)}


def value(root, **inputs):
    (v,) = run(root, inputs).values
    return v.tolist()


def test_store_then_after_and_the_final_contents():
    b = buf()
    got = run(B.assign(b, B.add(b, 10)), SIX)
    assert got.values[0].tolist() == [10, 11, 12, 13, 14, 15]
    assert got.buffers["b1"].tolist() == [10, 11, 12, 13, 14, 15]
    assert SIX["b1"].tolist() == [0, 1, 2, 3, 4, 5], "an input is never written to"
    assert run(B.neg(b), SIX).buffers == {}


def test_r54_val_is_read_fully_before_the_first_write():
    b = buf()
    assert value(B.assign(b, B.flip(b, (True,))), **SIX) == [5, 4, 3, 2, 1, 0]
    square = B.reshape(b, (2, 3))
    moved = B.assign(B.reshape(B.permute(square, (1, 0)), (6,)), B.contiguous(B.reshape(square, (6,))))
    assert value(moved, **SIX) == [0, 1, 2, 3, 4, 5]
    assert run(moved, SIX).buffers["b1"].tolist() == [0, 2, 4, 1, 3, 5]


def test_r51_an_implicit_load_happens_once_and_before_a_store_that_uses_it():
    b = buf()
    new = B.assign(b, B.add(b, 10))
    assert value(B.sub(new, b), **SIX) == [10] * 6  # b was read before the Store, because the Store needs that value


# fmt: off
VIEWS = {
    "whole":   (lambda b: b,                                                  lambda x: x),
    "reshape": (lambda b: B.reshape(b, (2, 3)),                               lambda x: x.reshape(2, 3)),
    "permute": (lambda b: B.permute(B.reshape(b, (2, 3)), (1, 0)),            lambda x: x.reshape(2, 3).T),
    "flip":    (lambda b: B.flip(b, (True,)),                                 lambda x: x[::-1]),
    "shrink":  (lambda b: B.shrink(b, (2,), (3,)),                            lambda x: x[2:5]),
    "slice":   (lambda b: B.slice_(b, 1, 4),                                  lambda x: x[1:5]),
    "narrow":  (lambda b: B.slice_(b, 1, 4, dt.int16),                        lambda x: x[1:3].view(np.int16)),
    "wide":    (lambda b: B.slice_(b, 2, 2, dt.int64),                        lambda x: x[2:6].view(np.int64)),
    "bitcast": (lambda b: B.bitcast(b, dt.uint8),                             lambda x: x.view(np.uint8)),
    "join":    (lambda b: B.bitcast(B.shrink(b, (2,), (4,)), dt.uint64),      lambda x: x[2:6].view(np.uint64)),
    "index":   (lambda b: B.at(B.reshape(b, (2, 3)), 1),                      lambda x: x[3:6]),
    "gather":  (lambda b: B.at(b, B.stack(B.index(4), B.index(0))),           lambda x: x[[4, 0]]),
    "outer":   (lambda b: B.at(B.reshape(b, (2, 3)), B.stack(B.index(1), B.index(0)), B.stack(B.index(2))),
                lambda x: x.reshape(2, 3)[[1, 0]][:, [2]]),
    "element": (lambda b: B.at(B.reshape(b, (2, 3)), 1, 1),                   lambda x: x.reshape(2, 3)[1, 1]),
    "strided": (lambda b: B.reshape(B.permute(B.reshape(b, (2, 3)), (1, 0)), (6,)), lambda x: x.reshape(2, 3).T.reshape(6)),
    "after":   (lambda b: B.after(B.flip(B.after(b), (True,))),               lambda x: x[::-1]),
    "twice":   (lambda b: B.shrink(B.flip(B.reshape(b, (3, 2)), (True, True)), (1, 0), (2, 1)),
                lambda x: x.reshape(3, 2)[::-1, ::-1][1:3, 0:1]),
}
# fmt: on


@pytest.mark.parametrize("name", VIEWS)
def test_r51_store_and_load_through_a_view(name):
    make, see = VIEWS[name]
    view = make(buf())
    start = np.arange(100, 106, dtype=np.int32)
    assert np.array_equal(run(view, {"b1": start}).values[0], see(start))
    val = B.param(0, view.shape, view.dtype)
    new = np.arange(1, 1 + np.prod(view.shape, dtype=int)).reshape(view.shape).astype(see(start).dtype)
    stored = B.after(buf(), B.store(view, val))
    got = run(B.tuple_(stored, B.after(view, B.store(view, val))), {"b1": start, "p0": new})
    want = start.copy()
    places = see(np.arange(want.nbytes, dtype=np.uint8).view(np.int32)) if want.nbytes < 256 else None
    raw = want.view(np.uint8)
    raw[np.frombuffer(np.ascontiguousarray(places).tobytes(), np.uint8)] = np.frombuffer(new.tobytes(), np.uint8)
    assert got.values[0].tolist() == want.tolist()
    assert np.array_equal(got.values[1], new)
    gate = B.param(1, view.shape, dt.bool_)
    off = run(B.after(buf(), B.store(view, val, gate)), {"b1": start, "p0": new, "p1": np.zeros(view.shape, bool)})
    assert off.values[0].tolist() == start.tolist()


@pytest.mark.parametrize(
    "make", [lambda b: B.expand(B.reshape(b, (6, 1)), (6, 2)), lambda b: B.pad(b, (1,), (8,)), B.neg, B.load, B.contiguous]
)
def test_r51_store_to_what_is_no_reference_is_ill_formed(make):
    target = make(buf())
    root = B.store(target, B.cast(B.expand(B.reshape(B.const(1), (1,) * len(target.shape)), target.shape), dt.int32))
    with pytest.raises(SpecError) as broken:
        run(root, SIX)
    assert broken.value.claim == "STORE.C2"
    with pytest.raises(SpecError, match="R51"):
        run(root, SIX, check=False)


def test_r51_store_needs_equal_dtype_and_shape():
    for val in (B.const(1), B.param(0, (6,), dt.int64), B.param(0, (1,), dt.int32)):
        with pytest.raises(SpecError, match=r"Store"):
            run(B.store(buf(), val), {**SIX, "p0": np.zeros(val.shape, val.dtype.name)})


def test_store_gate():
    gate = np.array([1, 0, 0, 1, 0, 1], bool)
    new = B.after(buf(), B.store(buf(), param(6), B.param(1, (6,), dt.bool_)))
    assert value(new, **SIX, p0=np.full(6, -1, np.int32), p1=gate) == [-1, 1, 2, -1, 4, -1]
    scalar = B.after(buf(), B.store(buf(), param(6), B.param(1, (), dt.bool_)))
    assert value(scalar, **SIX, p0=np.full(6, -1, np.int32), p1=np.array(False)) == [0, 1, 2, 3, 4, 5]


def test_r45_r52_a_gate_protects_an_address():
    i = B.stack(B.index(4), B.index(9), B.index(-1))
    address = B.at(buf(), i)
    gate = B.param(1, (3,), dt.bool_)
    alt = B.param(0, (3,), dt.int32)
    inputs = {**SIX, "p0": np.array([70, 71, 72], np.int32)}
    good, bad = np.array([True, False, False]), np.array([True, True, False])
    assert value(B.load(address, alt, gate), **inputs, p1=good) == [4, 71, 72]
    for root in (B.load(address, alt, gate), B.store(address, alt, gate)):
        with pytest.raises(Trap, match="R45"):
            run(root, {**inputs, "p1": bad})
    for root in (address, B.load(address), B.store(address, alt), B.neg(address)):
        with pytest.raises(Trap, match="R45"):
            run(root, inputs)
    assert value(B.after(buf(), B.store(address, alt, gate)), **inputs, p1=good) == [0, 1, 2, 3, 70, 5]
    with pytest.raises(Trap, match="R45"):  # of a value: at once, whatever the gate says
        run(B.load(B.at(B.neg(buf()), i), alt, gate), {**inputs, "p1": good})
    moved = B.flip(B.reshape(address, (3, 1)), (True, False))
    wide = B.load(moved, B.reshape(alt, (3, 1)), B.reshape(gate, (3, 1)))
    assert value(wide, **inputs, p1=np.array([False, False, True])) == [[70], [71], [4]]


def test_r52_load_with_a_scalar_gate():
    gate = B.param(1, (), dt.bool_)
    loaded = B.load(buf(), param(6), gate)
    assert value(loaded, **SIX, p0=np.full(6, 9, np.int32), p1=np.array(True)) == [0, 1, 2, 3, 4, 5]
    assert value(loaded, p0=np.full(6, 9, np.int32), p1=np.array(False)) == [9] * 6  # b1 is not touched: it may be uninitialised


# R61


def test_r61_reading_an_unwritten_element_traps():
    b = buf()
    half = B.store(B.shrink(b, (0,), (3,)), param(3))
    given = {"p0": np.array([7, 8, 9], np.int32)}
    assert value(B.after(B.shrink(b, (0,), (3,)), half), **given) == [7, 8, 9]
    for root in (b, B.neg(b), B.after(b, half), B.after(B.shrink(b, (2,), (2,)), half), B.store(buf(unique=2), b)):
        with pytest.raises(Trap, match="R61"):
            run(root, given)
    got = run(half, given)
    assert got.buffers["b1"].tolist() == [7, 8, 9, 0, 0, 0]
    assert value(B.shrink(b, (2,), (0,))) == []
    rest = B.store(B.after(B.shrink(b, (3,), (3,)), half), param(3))
    assert value(B.after(b, rest), **given) == [7, 8, 9, 7, 8, 9]


@pytest.mark.parametrize("name", VIEWS)
def test_r61_a_store_through_a_view_makes_its_elements_and_no_others_readable(name):
    make, see = VIEWS[name]
    view = make(buf())
    new = np.arange(1, 1 + np.prod(view.shape, dtype=int)).reshape(view.shape).astype(see(np.arange(6, dtype=np.int32)).dtype)
    stored = B.store(view, B.param(0, view.shape, view.dtype))
    assert np.array_equal(run(B.after(view, stored), {"p0": new}).values[0], new)
    everything = B.after(buf(), stored)
    if new.nbytes == 24:
        assert run(everything, {"p0": new}).values[0].nbytes == 24
    else:
        with pytest.raises(Trap, match="R61"):
            run(everything, {"p0": new})


# R55


def test_r55_two_stores_to_one_element_race_even_when_equal():
    b = buf()
    one = B.store(b, param(6))
    other = B.store(B.shrink(b, (5,), (1,)), B.shrink(param(6), (5,), (1,)))
    with pytest.raises(Trap, match=r"race on element 5 of b1: STORE.* and STORE.* are unordered \(R55\)"):
        run(B.sink(one, other), {"p0": np.zeros(6, np.int32)})
    run(B.sink(B.store(B.after(b, other), param(6))), {"p0": np.zeros(6, np.int32)})


def test_r55_disjoint_elements_do_not_race():
    b = buf()
    low, high = B.store(B.shrink(b, (0,), (3,)), param(3)), B.store(B.shrink(b, (3,), (3,)), param(3))
    got = run(B.after(b, B.group(low, high)), {"p0": np.array([1, 2, 3], np.int32)})
    assert got.values[0].tolist() == [1, 2, 3, 1, 2, 3]
    even, odd = (B.store(B.at(b, B.stack(*(B.index(k) for k in ks))), param(3)) for ks in ((0, 2, 4), (1, 3, 5)))
    assert value(B.after(b, odd, even), p0=np.array([1, 2, 3], np.int32)) == [1, 1, 2, 2, 3, 3]


def test_r55_a_load_and_an_unordered_store_race():
    b = buf()
    write = B.store(B.shrink(b, (2,), (1,)), B.shrink(param(6), (0,), (1,)))
    inputs = {**SIX, "p0": np.zeros(6, np.int32)}
    for read in (B.neg(b), B.load(b), B.at(b, 2), B.load(b, param(6), B.const(True))):
        for root in (B.sink(write, read), B.sink(read, write), B.tuple_(read, B.after(b, write))):
            with pytest.raises(Trap, match=r"race on element 2 of b1: .* and .* are unordered \(R55\)"):
                run(root, inputs)
    run(B.sink(write, B.at(b, 3)), inputs)
    gate = B.param(1, (6,), dt.bool_)
    apart = np.array([1, 1, 0, 1, 1, 1], bool)
    assert run(B.sink(write, B.load(b, param(6), gate)), {**inputs, "p1": apart}).values[0].tolist() == [0, 1, 0, 3, 4, 5]
    with pytest.raises(Trap, match="R55"):
        run(B.sink(write, B.load(b, param(6), gate)), {**inputs, "p1": ~apart})


def test_r55_gated_stores_race_only_where_both_write():
    b, gate = buf(), B.param(1, (6,), dt.bool_)
    stores = B.sink(B.store(b, param(6), gate), B.store(b, B.neg(param(6)), B.not_(gate)))
    mask = np.array([1, 0, 1, 0, 1, 0], bool)
    got = run(stores, {**SIX, "p0": np.arange(1, 7, dtype=np.int32), "p1": mask})
    assert got.buffers["b1"].tolist() == [1, -2, 3, -4, 5, -6]
    with pytest.raises(Trap, match="R55"):
        run(B.sink(B.store(b, param(6), gate), B.store(b, B.neg(param(6)), gate)), {**SIX, "p0": np.zeros(6, np.int32), "p1": mask})


def test_r55_bytes_of_one_element_do_not_race_but_overlapping_views_do():
    b = buf(2, dt.uint32)
    raw = B.bitcast(b, dt.uint8)
    first, second = (B.store(B.shrink(raw, (k,), (4,)), B.param(0, (4,), dt.uint8)) for k in (0, 4))
    given = {"p0": np.array([1, 2, 3, 4], np.uint8)}
    assert value(B.after(b, first, second), **given) == [0x04030201] * 2
    across = B.store(B.shrink(raw, (2,), (4,)), B.param(0, (4,), dt.uint8))
    with pytest.raises(Trap, match="R55"):
        run(B.sink(first, across), given)


def test_r164_the_last_value_of_a_repeated_element_stays():
    x, i = np.zeros((3, 4), np.int32), np.array([2, 0, 2, 2, 0], np.int32)
    rows = B.reshape(buf(12), (3, 4))
    given = {"b1": np.zeros(12, np.int32), "p0": np.arange(20, dtype=np.int32).reshape(5, 4), "p1": i}
    got = run(B.after(rows, B.store(B.at(rows, B.param(1, (5,), dt.int32)), B.param(0, (5, 4), dt.int32))), given)
    x[i] = given["p0"]
    assert got.values[0].tolist() == x.tolist()
    columns = B.permute(B.at(B.permute(rows, (1, 0)), B.param(1, (5,), dt.int32)), (1, 0))
    got = run(
        B.after(rows, B.store(columns, B.reshape(B.param(0, (15,), dt.int32), (3, 5)))), {**given, "p0": np.arange(15, dtype="i4")}
    )
    y = np.zeros((3, 4), np.int32)
    y[:, i] = np.arange(15).reshape(3, 5)
    assert got.values[0].tolist() == y.tolist()
    with pytest.raises(Trap, match="out of bounds"):
        run(
            B.store(B.at(rows, B.param(1, (5,), dt.int32)), B.param(0, (5, 4), dt.int32)),
            {**given, "p1": np.array([1, 1, 1, 1, 3], np.int32)},
        )


def test_r55_r164_a_gate_picks_among_the_values_of_an_element():
    target = B.at(buf(), B.stack(B.index(1), B.index(1)))
    gate = B.param(1, (2,), dt.bool_)
    got = run(
        B.after(buf(), B.store(target, param(2), gate)), {**SIX, "p0": np.array([8, 9], np.int32), "p1": np.array([False, True])}
    )
    assert got.values[0].tolist() == [0, 9, 2, 3, 4, 5]


def test_r59_after_is_transitive_also_through_deps_without_effect():
    b = buf()
    first = B.store(b, param(6))
    through = B.add(B.reshape(B.const(5), (1,)), B.after(B.reshape(B.const(1), (1,)), B.group(first)))
    second = B.store(B.shrink(b, (0,), (1,)), through)
    got = run(B.sink(second), {"p0": np.zeros(6, np.int32)})
    assert got.buffers["b1"].tolist() == [6, 0, 0, 0, 0, 0]
    third = B.store(B.after(B.shrink(b, (0,), (1,)), second), B.reshape(B.const(3), (1,)))
    assert value(B.after(b, third), p0=np.zeros(6, np.int32)) == [3, 0, 0, 0, 0, 0]


def test_r59_a_read_after_each_of_many_stores():
    b = buf(3)
    state = B.assign(b, B.expand(B.reshape(B.const(0), (1,)), (3,)))
    for k in range(200):
        state = B.after(state, B.store(state, B.add(state, k)))
    assert value(state) == [sum(range(200))] * 3


def test_deep_views_need_no_python_stack():
    x = B.reshape(buf(), (2, 3))
    for k in range(4000):
        x = B.reshape(B.permute(x, (1, 0)), (2, 3)) if k % 3 else B.flip(x, (False, True))
    first = np.array(value(x, **SIX))
    assert sorted(first.ravel().tolist()) == [0, 1, 2, 3, 4, 5]
    got = run(B.after(buf(), B.store(x, B.param(0, (2, 3), dt.int32))), {**SIX, "p0": first.astype(np.int32)})
    assert got.values[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_free_param_can_be_written():
    p = param(3)
    data = np.array([1, 2, 3], np.int32)
    got = run(B.assign(p, B.mul(p, p)), {"p0": data})
    assert got.values[0].tolist() == [1, 4, 9]
    assert got.buffers["p0"].tolist() == [1, 4, 9]
    assert data.tolist() == [1, 2, 3]


def test_values_of_a_root_by_its_op():
    b, one = buf(), B.const(1)
    s = B.store(b, param(6))
    given = {"p0": np.zeros(6, np.int32)}
    assert run(s, given).values == ()
    assert len(run(B.sink(s, one, B.after(b, s)), given).values) == 2
    assert len(run(B.group(s), given).values) == 0
    assert [v.shape for v in run(B.tuple_(one, B.after(b, s)), given).values] == [(), (6,)]


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX])
def test_reading_one_reference_twice_is_one_load(op):
    b = buf()
    got = run(B.UOp(op, (b, b)), SIX)
    assert got.values[0].tolist() == {Op.ADD: [0, 2, 4, 6, 8, 10], Op.MUL: [0, 1, 4, 9, 16, 25], Op.MAX: [0, 1, 2, 3, 4, 5]}[op]


def test_written_buffers_are_no_memory_of_the_caller() -> None:
    given = np.array([4, 5, 6], np.int32)
    graph = B.store(B.param(0, (3,), dt.int32), B.param(1, (3,), dt.int32))
    written = run(graph, {"p0": np.zeros(3, np.int32), "p1": given}).buffers["p0"]
    written[0] = 99
    assert given.tolist() == [4, 5, 6]
    wide = B.store(B.param(0, (8,), dt.int32), B.expand(B.param(1, (1,), dt.int32), (8,)))
    written = run(wide, {"p0": np.zeros(8, np.int32), "p1": np.full(1, 3, np.int32)}).buffers["p0"]
    assert written.flags.writeable and written.flags.c_contiguous and written.tolist() == [3] * 8


@pytest.mark.parametrize("d", [dt.int8, dt.uint16, dt.float32], ids=str)
def test_a_gate_protects_a_view_of_words_whatever_their_size(d: dt.DType) -> None:
    i, memory = B.variable("i", 0, 9), B.param(0, (4, 8), dt.uint8)
    gate, inputs = B.lt(i, 4), {"p0": np.arange(32, dtype=np.uint8).reshape(4, 8)}
    n = 8 // d.itemsize
    alternative = B.expand(B.reshape(B.const(7, d), (1,)), (n,))
    words = B.bitcast(B.at(memory, i), d)
    load, store = B.load(words, alternative, gate), B.after(memory, B.store(words, alternative, gate))
    assert run(load, {**inputs, "i": 7}).values[0].tolist() == [7] * n
    assert run(load, {**inputs, "i": 2}).values[0].tobytes() == bytes(range(16, 24))
    assert run(store, {**inputs, "i": 7}).values[0].tolist() == inputs["p0"].tolist()
    with pytest.raises(Trap, match="R45"):
        run(B.load(words), {**inputs, "i": 7})


@pytest.mark.parametrize("positions", [(0, 9), (9, 0)])
def test_a_word_of_which_one_half_is_outside_is_no_view(positions: tuple[int, int]) -> None:
    at = B.param(1, (2,), dt.int32)
    word = B.bitcast(UOp(Op.INDEX, (B.param(0, (8,), dt.uint8), at)), dt.uint16)
    with pytest.raises(Trap, match="R45"):
        run(B.load(word), {"p0": np.arange(8, dtype=np.uint8), "p1": np.array(positions, np.int32)})
