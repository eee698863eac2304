"""Kernels where they are used: Calls, launches, arenas, loops inside of a tensor graph, functions of the device."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops.interp import evaluate, find_executed_ops, opaque, run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, CustomArg, InsArg, NameArg, ReduceArg, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

I32, F32 = dt.int32, dt.float32
Agree = Callable[..., Result]
Fault = Callable[..., str]


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


def mapped(n: int, f: Callable[[UOp], UOp], d: dt.DType = I32, to: dt.DType | None = None) -> UOp:
    """The kernel that stores f of each element of argument 1 in argument 0."""
    i = b.range_(n, 1)
    return b.sink(b.end(b.store(b.at(p(0, n, to or d), i), f(b.load(b.at(p(1, n, d), i)))), i), name="map")


def filled(n: int, value: int, d: dt.DType = I32) -> UOp:
    i = b.range_(n, 1)
    return b.sink(b.end(b.store(b.at(p(0, n, d), i), b.const(value, d)), i), name="fill")


def launch(*calls: UOp) -> UOp:
    return UOp(Op.LINEAR, calls)


X, Y, Z = (b.buffer(4, I32, unique=k) for k in (1, 2, 3))

# Launches


def test_calls_of_a_launch_run_one_after_the_other(agree: Agree) -> None:
    root = launch(
        b.call(mapped(4, lambda x: b.mul(x, 2)), Y, X, written=(0,)),
        b.call(mapped(4, lambda x: b.add(x, 1)), Z, Y, written=(0,)),
        b.call(mapped(4, lambda x: b.neg(x)), X, Z),
    )
    found = agree(root, {"b1": i32(1, 2, 3, 4)})
    assert {k: v.tolist() for k, v in found.buffers.items()} == {"b2": [2, 4, 6, 8], "b3": [3, 5, 7, 9], "b1": [-3, -5, -7, -9]}


def test_an_argument_may_have_another_shape_than_its_param(agree: Agree) -> None:
    root = launch(b.call(mapped(6, lambda x: b.mul(x, x)), b.buffer(6, I32, unique=1), b.param(0, (2, 3), I32), written=(0,)))
    found = agree(root, {"p0": np.arange(6, dtype=np.int32).reshape(2, 3)})
    assert found.buffers["b1"].tolist() == [0, 1, 4, 9, 16, 25]


def test_an_argument_may_have_another_dtype_of_the_same_size(agree: Agree) -> None:
    body = mapped(2, lambda x: b.xor(x, 0x8000), dt.uint16)
    root = launch(b.call(body, b.buffer(2, dt.float16, unique=1), b.buffer(2, dt.float16, unique=2), written=(0,)))
    assert agree(root, {"b2": np.array([1.5, -2.0], np.float16)}).buffers["b1"].tolist() == [-1.5, 2.0]


@pytest.mark.parametrize("argument", [b.buffer(5, I32, unique=9), b.buffer(4, dt.int64, unique=9)])
def test_an_argument_that_does_not_fit_is_refused(argument: UOp) -> None:
    root, inputs = launch(b.call(mapped(4, lambda x: x), Y, argument)), {"b9": np.zeros(argument.shape, argument.dtype.name)}
    with pytest.raises(SpecError) as broken:
        run(root, inputs)
    assert broken.value.claim == "CALL.C4"
    with pytest.raises(SpecError, match=r"argument 1 has . elements of .*, its Param 4 of int32 \(R86\)"):
        run(root, inputs, check=False)


def test_an_argument_that_is_missing_is_refused() -> None:
    root = launch(b.call(mapped(4, lambda x: x), Y))
    with pytest.raises(SpecError) as broken:
        run(root, {})
    assert broken.value.claim == "CALL.C3"
    with pytest.raises(SpecError, match="Param 1 has no argument: 1 were given"):
        run(root, {}, check=False)


def test_variables_are_arguments_too(agree: Agree) -> None:
    n = b.variable("n", 0, 4, slot=1)
    i = b.range_(n, 1)
    body = b.sink(b.end(b.store(b.at(p(0, 4), i), b.const(7, I32)), i), name="k")
    root = launch(b.call(body, X, b.variable("n", 0, 4)))
    assert agree(root, {"b1": i32(0, 0, 0, 0), "n": 2}).buffers["b1"].tolist() == [7, 7, 0, 0]
    with pytest.raises(Trap, match="outside its bounds"):
        run(root, {"b1": i32(0, 0, 0, 0), "n": 5})


def test_a_variable_may_be_a_machine_integer_in_the_kernel(agree: Agree) -> None:
    n = b.variable("n", 0, 4, slot=1)
    n = n.replace(arg=n.arg.__class__(1, I32, name="n", bounds=(0, 4)))
    body = b.sink(b.store(b.at(p(0, 1), 0), b.mul(n, 3)), name="k")
    root = launch(b.call(body, b.buffer(1, I32, unique=1), b.variable("n", 0, 4)))
    assert agree(root, {"n": 3}).buffers["b1"].tolist() == [9]


def test_a_binary_is_an_argument_that_is_read(agree: Agree) -> None:
    i = b.range_(3, 1)
    body = b.sink(b.end(b.store(b.at(p(0, 3, dt.uint8), i), b.load(b.at(p(1, 3, dt.uint8), i))), i), name="k")
    root = launch(b.call(body, b.buffer(3, dt.uint8, unique=1), b.binary(b"\x07\x08\x09"), written=(0,)))
    assert agree(root, {}).buffers["b1"].tolist() == [7, 8, 9]


def test_writing_what_is_not_declared_is_refused() -> None:
    with pytest.raises(SpecError, match=r"the Call writes argument 0, but declares \(1,\) \(R63\)"):
        run(launch(b.call(filled(4, 1), X, Y, written=(1,))), {})


def test_one_memory_as_two_arguments_is_one_memory(agree: Agree, fault: Fault) -> None:
    assert agree(launch(b.call(mapped(4, lambda x: b.add(x, 1)), X, X)), {"b1": i32(1, 2, 3, 4)}).buffers["b1"].tolist() == [
        2,
        3,
        4,
        5,
    ]
    i = b.range_(4, 1, AxisType.GLOBAL)
    reverse = b.sink(b.end(b.store(b.at(p(0, 4), i), b.load(b.at(p(1, 4), b.sub(3, i)))), i), name="reverse")
    assert "race on element" in fault(launch(b.call(reverse, X, X)), {"b1": i32(1, 2, 3, 4)})


def test_overlapping_parts_of_a_memory_are_one_memory(agree: Agree, fault: Fault) -> None:
    big = b.buffer(5, I32, unique=1)
    low, high = b.shrink(big, (0,), (4,)), b.shrink(big, (1,), (4,))
    shifted = b.call(mapped(4, lambda x: x), low, high)
    assert agree(b.sink(shifted), {"b1": i32(1, 2, 3, 4, 5)}).buffers["b1"].tolist() == [2, 3, 4, 5, 5]
    i = b.range_(4, 1, AxisType.GLOBAL)
    body = b.sink(b.end(b.store(b.at(p(0, 4), i), b.load(b.at(p(1, 4), i))), i), name="k")
    message = fault(b.sink(b.call(body, low, high)), {"b1": i32(1, 2, 3, 4, 5)})
    assert "race on element 1 of b1" in message


def test_a_kernel_reads_what_nobody_wrote(fault: Fault) -> None:
    message = fault(launch(b.call(mapped(4, lambda x: x), Y, X)), {})
    assert message == "LOAD of iteration (axis 1=0) reads element 0 of b1, which was never written (R61)"


def test_elements_written_so_far_are_kept_across_calls(agree: Agree, fault: Fault) -> None:
    half = b.sink(b.end(b.store(b.at(p(0, 4), b.range_(2, 1)), b.const(1, I32)), b.range_(2, 1)), name="half")
    rest = b.sink(b.end(b.store(b.at(p(0, 4), b.add(b.range_(2, 1), 2)), b.const(2, I32)), b.range_(2, 1)), name="rest")
    read = b.call(mapped(4, lambda x: x), Y, X, written=(0,))
    assert agree(launch(b.call(half, X), b.call(rest, X), read), {}).buffers["b2"].tolist() == [1, 1, 2, 2]
    assert "reads element 2 of b1" in fault(launch(b.call(half, X), read), {})


@pytest.mark.parametrize("lanes", [False, True])
def test_a_run_changes_no_array_of_its_caller(lanes: bool) -> None:
    """One array as two inputs, one of which is written; the result is an array of its own."""
    given = i32(1, 2, 3, 4)
    root = launch(b.call(mapped(4, lambda x: b.mul(x, 2)), X, Y), b.call(mapped(4, lambda x: b.add(x, 1)), Z, X))
    found = run(root, {"b1": given, "b2": given}, lanes=lanes).buffers
    assert found["b1"].tolist() == [2, 4, 6, 8] and found["b3"].tolist() == [3, 5, 7, 9]
    assert given.tolist() == [1, 2, 3, 4]
    found["b1"][:] = 0
    assert run(root, {"b1": given, "b2": given}, lanes=lanes).buffers["b1"].tolist() == [2, 4, 6, 8]


def test_a_kernel_that_stores_a_constant_gives_an_array_of_its_own() -> None:
    one = b.buffer(1, F32, unique=1)
    root = launch(b.call(b.sink(b.store(b.at(p(0, 1, F32), 0), b.const(7.0, F32)), name="seven"), one))
    run(root, {}).buffers["b1"][:] = 0
    assert run(root, {}).buffers["b1"].tolist() == [7]


def test_one_value_in_two_memories_is_two_arrays() -> None:
    i = b.range_(4, 1)
    x = b.neg(b.load(b.at(p(2, 4), i)))
    both = b.sink(b.end(b.group(*[b.store(b.at(p(k, 4), i), x) for k in (0, 1)]), i), name="both")
    found = run(launch(b.call(both, X, Y, Z)), {"b3": i32(1, 2, 3, 4)}).buffers
    found["b1"][:] = 0
    assert found["b2"].tolist() == [-1, -2, -3, -4]


def test_a_value_that_is_stored_as_it_is_stays_the_callers(agree: Agree) -> None:
    """A leaf of loops in a tensor graph, whose array may be the input's own."""
    given = i32(1, 2, 3, 4)
    r = b.range_(1, 1)
    root = b.after(X, b.end(b.store(b.after(X, r), b.load(b.param(0, (4,), I32))), r))
    agree(root, {"p0": given})
    run(root, {"p0": given}).buffers["b1"][:] = 0
    assert given.tolist() == [1, 2, 3, 4]


def test_a_launch_leaves_nothing_to_the_garbage_collector() -> None:
    root, given = launch(b.call(mapped(4, lambda x: b.neg(x)), Y, X)), {"b1": i32(1, 2, 3, 4)}
    run(root, given)
    while gc.collect():  # what other tests left may need several passes
        pass
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run(root, given)
        assert (gc.collect(), gc.garbage) == (0, [])
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_a_call_is_refused_again_when_it_is_run_again() -> None:
    root = launch(b.call(filled(4, 1), X, written=()))
    for _ in range(2):
        with pytest.raises(SpecError, match="R63"):
            run(root, {})


def test_executed_names_the_ops_of_kernels() -> None:
    found = find_executed_ops(launch(b.call(filled(4, 3), X)), {})
    assert {Op.LINEAR, Op.CALL, Op.RANGE, Op.END, Op.STORE, Op.INDEX, Op.SINK} <= found


def test_evaluate_takes_a_launch() -> None:
    assert evaluate(launch(b.call(filled(4, 3), X)), {}) is not None


# Arenas


def arena(k: int, size: int = 4, d: dt.DType = I32, at: int | None = None) -> UOp:
    memory = b.buffer(64, dt.uint8, unique=8)
    return b.slice_(memory, 16 * k if at is None else at, size, d)


def test_values_of_an_arena_take_turns(agree: Agree) -> None:
    double = mapped(4, lambda x: b.mul(x, 2))
    root = launch(
        b.call(double, arena(0), X, written=(0,)),
        b.call(double, arena(1), arena(0), written=(0,)),
        b.call(double, arena(0, at=0), arena(1), written=(0,)),
        b.call(double, Y, arena(0), written=(0,)),
    )
    assert agree(root, {"b1": i32(1, 2, 3, 4)}).buffers["b2"].tolist() == [16, 32, 48, 64]


def test_a_live_value_that_was_overwritten_is_a_fault(fault: Fault) -> None:
    root = launch(
        b.call(filled(4, 1), arena(0), written=(0,)),
        b.call(filled(4, 2), arena(0, at=8), written=(0,)),
        b.call(mapped(4, lambda x: x), Y, arena(0), written=(0,)),
    )
    message = fault(root, {})
    assert "reads element 2 of b8" in message
    assert "slice of 4 int32 at 8 has overwritten slice of 4 int32 at 0 (R126)" in message


def test_another_dtype_is_another_value(fault: Fault) -> None:
    body = mapped(4, lambda x: x, F32)
    root = launch(b.call(filled(4, 1), arena(0)), b.call(body, b.buffer(4, F32, unique=2), arena(0, d=F32), written=(0,)))
    assert "slice of 4 int32 at 0 has overwritten slice of 4 float32 at 0 (R126)" in fault(root, {})


def test_slices_of_one_call_must_not_overlap(fault: Fault) -> None:
    root = launch(b.call(filled(4, 1), arena(0)), b.call(mapped(4, lambda x: x), arena(0, at=8), arena(0), written=(0,)))
    message = fault(root, {})
    assert message.startswith("slice of 4 int32 at ")
    assert message.endswith("overlap, and the Call writes one of them (R126)")


def test_slices_of_one_call_in_two_dtypes_are_two_values(fault: Fault) -> None:
    """R126: one of them written is a Trap; two that are read are not both the value that was written last."""
    converted = mapped(4, lambda x: b.cast(x, I32), F32, to=I32)
    first = b.call(filled(4, 1), arena(0), written=(0,))
    message = fault(launch(first, b.call(converted, arena(0), arena(0, d=F32), written=(0,))), {})
    assert message == "slice of 4 int32 at 0 and slice of 4 float32 at 0 overlap, and the Call writes one of them (R126)"
    for slices in ((arena(0), arena(0, d=F32)), (arena(0, d=F32), arena(0))):
        x, y = (b.cast(b.load(b.at(p(k, 4, s.dtype), 0)), I32) for k, s in enumerate(slices, 1))
        body = b.sink(b.store(b.at(p(0, 4), 0), b.add(x, y)), name="sum")
        message = fault(launch(first, b.call(body, Y, *slices, written=(0,))), {})
        assert message.endswith("slice of 4 int32 at 0 has overwritten slice of 4 float32 at 0 (R126)")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_pair_of_slices_of_a_call_is_looked_at(order: tuple[int, ...], fault: Fault) -> None:
    """Two slices that are read may overlap; of the third, which is written, only one of them shares bytes."""
    read = [b.store(b.at(p(3, 4), k), b.load(b.at(p(k, 4), 0))) for k in range(2)]
    effects = [*read, b.store(b.at(p(2, 4), 0), b.const(1, I32))]
    body = b.sink(*(effects[k] for k in order), name="k")
    message = fault(launch(b.call(filled(8, 1), arena(0, 8)), b.call(body, arena(0), arena(0, at=8), arena(0, at=16), Y)), {})
    assert "slice of 4 int32 at 8" in message and "slice of 4 int32 at 16" in message and message.endswith("(R126)")


def test_what_the_buffer_itself_was_given_every_slice_sees(agree: Agree, fault: Fault) -> None:
    """R61, R126: by a Call or by the caller; a Slice that was written since ends the value of another one again."""
    whole, read = b.buffer(64, dt.uint8, unique=8), b.call(mapped(4, lambda x: x), Y, arena(0), written=(0,))
    fill = b.call(filled(64, 1, dt.uint8), whole, written=(0,))
    other = b.call(filled(4, 2), arena(0, at=8), written=(0,))
    ones = [0x01010101] * 4
    for calls in ((fill,), (b.call(filled(4, 2), arena(0)), fill), (other, fill)):
        assert agree(launch(*calls, read), {}).buffers["b2"].tolist() == ones
    assert agree(launch(read), {"b8": np.ones(64, np.uint8)}).buffers["b2"].tolist() == ones
    part = b.call(b.sink(b.store(b.at(p(0, 64, dt.uint8), 8), b.const(1, dt.uint8)), name="part"), whole, written=(0,))
    for calls in ((fill, other), (fill, other, part)):
        assert "reads element 2 of b8, which slice of 4 int32 at 8 has overwritten" in fault(launch(*calls, read), {})
    assert fault(launch(part, read), {}).endswith("reads element 0 of b8, which was never written (R61)")


def test_the_buffer_itself_sees_every_byte(agree: Agree) -> None:
    i = b.range_(16, 1)
    body = b.sink(b.end(b.store(b.at(p(0, 16, dt.uint8), i), b.load(b.at(p(1, 64, dt.uint8), i))), i), name="k")
    root = launch(
        b.call(filled(4, 1), arena(0)),
        b.call(body, b.buffer(16, dt.uint8, unique=2), b.buffer(64, dt.uint8, unique=8), written=(0,)),
    )
    assert agree(root, {}).buffers["b2"].tolist() == [1, 0, 0, 0] * 4


# Kernels and loops in a tensor graph


def test_a_call_of_a_kernel_in_a_tensor_graph(agree: Agree) -> None:
    done = b.call(mapped(4, lambda x: b.mul(x, 2)), Y, b.param(0, (4,), I32), written=(0,))
    root = b.add(b.after(Y, done), 1)
    found = agree(root, {"p0": i32(1, 2, 3, 4)})
    assert found.values[0].tolist() == [3, 5, 7, 9]


def test_unordered_calls_of_kernels_race(fault: Fault, agree: Agree) -> None:
    first, second = b.call(filled(4, 1), X), b.call(filled(4, 2), X)
    assert (
        fault(b.sink(first, second), {})
        == "race on element 0 of b1: CALL of SINK, BUFFER and CALL of SINK, BUFFER are unordered (R55)"
    )
    assert agree(b.sink(b.call(filled(4, 2), b.after(X, first))), {}).buffers["b1"].tolist() == [2, 2, 2, 2]


def test_what_a_kernel_reads_of_a_memory_that_it_writes_may_race(agree: Agree, fault: Fault) -> None:
    x = p(0, 4)
    shifted = b.sink(b.store(b.at(x, 1), b.load(b.at(x, 0))), name="shifted")
    for k in (0, 2):
        other = b.sink(b.store(b.at(x, k), b.const(9, I32)), name="other")
        root = b.sink(b.call(shifted, X), b.call(other, X))
        if k:
            assert agree(root, {"b1": i32(1, 2, 3, 4)}).buffers["b1"].tolist() == [1, 1, 9, 4]
        else:
            assert "race on element 0 of b1" in fault(root, {"b1": i32(1, 2, 3, 4)})


def test_kernels_race_on_the_elements_they_touch_only(agree: Agree) -> None:
    low = b.sink(b.end(b.store(b.at(p(0, 4), b.range_(2, 1)), b.const(1, I32)), b.range_(2, 1)), name="low")
    high = b.sink(b.end(b.store(b.at(p(0, 4), b.add(b.range_(2, 1), 2)), b.const(2, I32)), b.range_(2, 1)), name="high")
    assert agree(b.sink(b.call(low, X), b.call(high, X)), {}).buffers["b1"].tolist() == [1, 1, 2, 2]


def test_atomic_adds_of_unordered_calls_do_not_race(agree: Agree, fault: Fault) -> None:
    body = b.sink(UOp(Op.ATOMICADD, (b.at(p(0, 4), 1), b.load(b.at(p(1, 4), 0)))), name="add")
    calls = [b.call(body, X, s, written=(0,)) for s in (Y, Z)]
    inputs = {f"b{k}": i32(k, 0, 0, 0) for k in (1, 2, 3)}
    assert agree(b.sink(*calls), inputs).buffers["b1"].tolist() == [1, 5, 0, 0]
    assert "unordered (R55)" in fault(b.sink(*calls, b.store(X, b.const(0, I32).replace() and Y)), inputs)


def test_a_loop_in_a_tensor_graph(agree: Agree) -> None:
    i = b.range_(4, 1)
    x = b.mul(b.param(0, (4,), I32), 10)
    end = b.end(b.store(b.at(Y, i), b.add(b.at(x, i), b.cast(i, I32))), i)
    found = agree(b.add(b.after(Y, end), 1), {"p0": i32(1, 2, 3, 4)})
    assert found.values[0].tolist() == [11, 22, 33, 44]
    assert found.buffers["b2"].tolist() == [10, 21, 32, 43]


def test_a_reduce_over_ranges_in_a_tensor_graph(agree: Agree) -> None:
    r = b.range_(4, 1, AxisType.REDUCE)
    total = UOp(Op.REDUCE, (b.mul(b.at(b.param(0, (4,), I32), r), 2), r), ReduceArg(Op.ADD))
    found = agree(b.add(total, b.param(0, (4,), I32)), {"p0": i32(1, 2, 3, 4)})
    assert found.values[0].tolist() == [21, 22, 23, 24]


def test_loops_of_a_tensor_graph_are_ordered_by_after(agree: Agree, fault: Fault) -> None:
    i, j = b.range_(4, 1), b.range_(4, 2)
    first = b.end(b.store(b.at(X, i), b.cast(i, I32)), i)
    reads = lambda place: b.end(b.store(b.at(Y, j), b.mul(b.load(b.at(place, j)), 3)), j)  # noqa: E731
    assert agree(b.sink(reads(b.after(X, first))), {}).buffers["b2"].tolist() == [0, 3, 6, 9]
    message = fault(b.sink(first, reads(X)), {"b1": i32(1, 1, 1, 1)})
    assert message.startswith("race on element 0 of b1: END")


def test_a_loop_and_a_store_of_the_tensor_graph_race(fault: Fault) -> None:
    i = b.range_(2, 1)
    loop = b.end(b.store(b.at(X, i), b.const(1, I32)), i)
    store = b.store(b.shrink(X, (1,), (2,)), b.param(0, (2,), I32))
    assert "race on element 1 of b1" in fault(b.sink(loop, store), {"p0": i32(1, 2)})


def test_views_around_a_loop_are_views_of_the_memory(agree: Agree) -> None:
    """What a loop stores through a view, and loads through another."""
    i = b.range_(2, 1)
    part = b.reshape(b.shrink(b.buffer(6, I32, unique=1), (1,), (4,)), (2, 2))
    end = b.end(b.store(b.at(part, i), b.at(b.param(0, (2, 2), I32), i)), i)
    found = agree(b.sink(end), {"p0": i32(1, 2, 3, 4).reshape(2, 2), "b1": np.zeros(6, np.int32)})
    assert found.buffers["b1"].tolist() == [0, 1, 2, 3, 4, 0]


def test_a_call_in_a_loop_of_a_tensor_graph_is_refused() -> None:
    """R127: such a loop is a kernel. R121 lowers a CALL of the second document to this form."""
    r = b.range_(4, 1)
    body = b.sink(b.store(p(0, 4), b.expand(b.reshape(b.param(1, (), I32), (1,)), (4,))))
    for root in (end := b.end(b.call(body, X, b.cast(r, I32)), r), b.after(X, end)):
        with pytest.raises(SpecError, match=r"a Call in a loop of a tensor graph.*R127"):
            run(root, {"b1": i32(0, 0, 0, 0)})


def test_an_effect_in_an_end_that_depends_on_none_of_its_loops_happens_once(agree: Agree) -> None:
    """R127."""
    r = b.range_(4, 1)
    for effect in (b.store(X, Y), b.call(b.sink(b.store(p(0, 4), p(1, 4))), X, Y)):
        found = agree(b.after(X, b.end(effect, r)), {"b2": i32(1, 2, 3, 4)})
        assert found.values[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("k", [0, 2])
def test_the_value_of_a_graph_that_is_one_kernel_is_read_behind_its_effects(agree: Agree, k: int) -> None:
    """R59: the root is memory after an AtomicAdd, which is no race."""
    found = agree(b.after(X, UOp(Op.ATOMICADD, (b.at(X, k), b.const(5, I32)))), {"b1": i32(1, 2, 3, 4)})
    assert found.values[0].tolist() == ([6, 2, 3, 4] if k == 0 else [1, 2, 8, 4])


def test_a_loop_with_its_own_registers_is_a_kernel_as_a_whole(agree: Agree) -> None:
    i, r = b.range_(2, 1), b.range_(2, 2, AxisType.REDUCE)
    acc = b.buffer(1, I32, addrspace=AddrSpace.REG, unique=5)
    init = b.store(b.at(b.after(acc, i), 0), b.const(0, I32))
    place = b.at(b.after(acc, init, r), 0)
    add = b.end(b.store(place, b.add(b.load(place), b.load(b.at(p(0, 4), b.add(b.mul(i, 2), r))))), r)
    root = b.end(b.store(b.at(p(1, 2), i), b.load(b.at(b.after(acc, add), 0))), i)
    assert agree(root, {"p0": i32(1, 2, 3, 4), "p1": i32(0, 0)}).buffers["p1"].tolist() == [3, 7]


def test_a_bare_store_with_a_special_is_a_kernel(agree: Agree) -> None:
    lane = UOp(Op.SPECIAL, (b.index(3),), SpecialArg("lidx0"))
    root = b.store(b.at(b.buffer(3, I32, unique=1), lane), b.cast(lane, I32))
    assert agree(root, {}).buffers["b1"].tolist() == [0, 1, 2]


def test_a_range_that_nothing_closes_is_refused() -> None:
    i = b.range_(4, 1)
    with pytest.raises(SpecError, match="never closed"):
        run(b.store(b.at(X, i), b.const(1, I32)), {})


def test_a_kernel_in_a_function(agree: Agree) -> None:
    i = b.range_(4, 1, AxisType.REDUCE)
    total = UOp(Op.REDUCE, (b.load(b.at(b.param(0, (4,), I32), i)), i), ReduceArg(Op.ADD))
    root = b.get(b.function(total, b.mul(b.param(3, (4,), I32), 2)), 0)
    assert agree(root, {"p3": i32(1, 2, 3, 4)}).values[0].tolist() == 20


# What only a backend knows


@pytest.fixture
def meanings() -> Iterator[Callable[..., None]]:
    given: list[tuple[Op, str]] = []

    def register(kind: Op, name: str, meaning: Any) -> None:
        given.append((kind, name))
        opaque.register(kind, name, meaning)

    yield register
    for kind, name in given:
        opaque.register(kind, name, None)


@pytest.mark.parametrize(
    ("kind", "name", "meaning", "expected"),
    [
        (Op.INS, "v_add_f32", lambda x, y: x + y, [3.0, 7.0]),
        (Op.INS, "v_max_f32", np.maximum, [2.0, 4.0]),
        (Op.CUSTOM, "({0} + {1})", lambda x, y: x + y, [3.0, 7.0]),
        (Op.CUSTOM, "max({0}, {1})", np.maximum, [2.0, 4.0]),
    ],
)
def test_an_instruction_means_what_was_registered(
    kind: Op, name: str, meaning: Any, expected: list[float], meanings: Callable[..., None], agree: Agree
) -> None:
    i = b.range_(2, 1)
    x, y = (b.load(b.at(p(0, 4, F32), b.add(b.mul(i, 2), k))) for k in (0, 1))
    value = UOp(kind, (x, y), InsArg(name, F32) if kind is Op.INS else CustomArg(name, F32))
    root = b.sink(b.end(b.store(b.at(p(1, 2, F32), i), value), i), name="k")
    inputs = {"p0": np.array([1, 2, 3, 4], np.float32), "p1": np.zeros(2, np.float32)}
    with pytest.raises(Trap, match=r"Opaque\("):
        run(root, inputs)
    meanings(kind, name, meaning)
    assert agree(root, inputs).buffers["p1"].tolist() == expected


def test_a_statement_may_change_memory(meanings: Callable[..., None], agree: Agree) -> None:
    meanings(Op.CUSTOM, "{0} += {1};", lambda place, x: place.store(place.load() + x))
    i = b.range_(3, 1)
    statement = UOp(Op.CUSTOM, (b.at(p(0, 3), i), b.cast(i, I32)), CustomArg("{0} += {1};", dt.void))
    assert agree(b.sink(b.end(statement, i), name="k"), {"p0": i32(5, 5, 5)}).buffers["p0"].tolist() == [5, 6, 7]


def test_a_statement_may_read_what_it_wrote(meanings: Callable[..., None], agree: Agree) -> None:
    """R55, R168: its accesses are in the order of its meaning, and other events are after both."""

    def store_and_return(place: Any, x: Any) -> Any:
        place.store(x + 1)
        return place.load()

    meanings(Op.INS, "add_one", store_and_return)
    i = b.range_(3, 1)
    value = UOp(Op.INS, (b.at(p(0, 3), i), b.cast(i, I32)), InsArg("add_one", I32))
    found = agree(b.sink(b.end(b.store(b.at(p(1, 3), i), value), i), name="k"), {"p0": i32(5, 5, 5), "p1": i32(0, 0, 0)})
    assert [found.buffers[k].tolist() for k in ("p0", "p1")] == [[1, 2, 3], [1, 2, 3]]


def test_a_statement_that_changes_memory_may_race(meanings: Callable[..., None], fault: Fault) -> None:
    meanings(Op.CUSTOM, "{0} = 1;", lambda place: place.store(1))
    i = b.range_(3, 1, AxisType.GLOBAL)
    statement = UOp(Op.CUSTOM, (b.at(b.after(p(0, 3), i), 0),), CustomArg("{0} = 1;", dt.void))
    assert "race on element 0 of p0: CUSTOM of group (axis 1=0)" in fault(
        b.sink(b.end(statement, i), name="k"), {"p0": i32(5, 5, 5)}
    )


def device(name: str) -> UOp:
    return UOp(Op.CUSTOM_FUNCTION, (), NameArg(name))


def test_a_function_of_the_device_means_what_was_registered(meanings: Callable[..., None]) -> None:
    with pytest.raises(Trap, match=r"Opaque\(fill_zero\)"):
        run(b.sink(b.call(device("fill_zero"), X)), {})
    meanings(Op.CUSTOM_FUNCTION, "fill_zero", lambda out: np.zeros_like(out))
    meanings(Op.CUSTOM_FUNCTION, "copy", lambda out, source: source)
    fill = b.call(device("fill_zero"), X)
    assert run(b.sink(fill), {}).buffers["b1"].tolist() == [0, 0, 0, 0]
    copy = b.call(device("copy"), Y, b.after(X, fill), written=(0,))
    assert run(b.add(b.after(Y, copy), 2), {}).values[0].tolist() == [2, 2, 2, 2]
    assert run(launch(b.call(device("copy"), Y, Z, written=(0,))), {"b3": i32(1, 2, 3, 4)}).buffers["b2"].tolist() == [1, 2, 3, 4]


def test_a_function_of_the_device_is_ordered_as_a_kernel_is(meanings: Callable[..., None]) -> None:
    meanings(Op.CUSTOM_FUNCTION, "copy", lambda out, source: source)
    copy = b.call(device("copy"), Y, X, written=(0,))
    with pytest.raises(Trap, match="which was never written"):
        run(b.sink(copy), {})
    with pytest.raises(Trap, match="race on element 0 of b2"):
        run(b.sink(copy, b.call(filled(4, 1), Y)), {"b1": i32(1, 2, 3, 4)})


def test_slices_of_a_call_of_a_function_must_not_overlap(meanings: Callable[..., None]) -> None:
    """R126, as for a kernel; the same Slice twice is one value, and what is read only may overlap."""
    meanings(Op.CUSTOM_FUNCTION, "copy", lambda out, source: source)
    meanings(Op.CUSTOM_FUNCTION, "first", lambda out, one, two: one)
    copy = device("copy")
    whole = b.call(filled(64, 1, dt.uint8), b.buffer(64, dt.uint8, unique=8), written=(0,))
    for call in (b.call(copy, arena(0, at=8), arena(0), written=(0,)), b.call(copy, arena(0), arena(0, d=F32))):
        with pytest.raises(Trap, match=r"overlap, and the Call writes one of them \(R126\)"):
            run(launch(whole, call), {})
    for call in (
        b.call(copy, arena(1), arena(1), written=(0,)),
        b.call(device("first"), Y, arena(0), arena(0, at=8), written=(0,)),
    ):
        run(launch(whole, call), {})


def test_a_function_of_the_device_must_give_what_the_call_writes(meanings: Callable[..., None]) -> None:
    meanings(Op.CUSTOM_FUNCTION, "wrong", lambda out: (out, out))
    with pytest.raises(SpecError, match="gives 2 arrays, its Call writes 1"):
        run(b.sink(b.call(device("wrong"), X)), {})
    meanings(Op.CUSTOM_FUNCTION, "short", lambda out: out[:2])
    with pytest.raises(SpecError, match="for int32 of 4 elements of b1"):
        run(b.sink(b.call(device("short"), X)), {})


def test_only_opaque_ops_take_a_meaning() -> None:
    with pytest.raises(SpecError, match="ADD is not opaque"):
        opaque.register(Op.ADD, "add", np.add)


def test_a_value_in_the_sink_of_a_kernel_is_refused() -> None:
    lane = UOp(Op.SPECIAL, (b.index(3),), SpecialArg("lidx0"))
    with pytest.raises(SpecError, match="mul is a value in the Sink of a kernel"):
        run(b.sink(b.store(b.at(X, lane), b.const(1, I32)), b.mul(lane, 2)), {})


def test_a_tensor_graph_loads_nothing_of_kernels() -> None:
    """In a fresh process: what kernels and the second document's dialect need is imported when a graph has them."""
    lines = (
        "import sys",
        "from uops.interp import run",
        "from uops.spec.ir import build as b, dtypes as dt",
        "import numpy",
        "run(b.reduce(b.load(b.buffer(4, dt.int32, unique=1)), b.add(1, 2).op, (0,)), {'b1': numpy.zeros(4, 'int32')})",
        "print([m for m in sys.modules if m.startswith(('uops.interp.kernel', 'uops.interp.bestiary'))])",
    )
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_other_dialect_is_dispatched() -> None:
    i = UOp(Op.B_RANGE, (b.const(4, dt.index),), b.range_(4, 1).arg)
    bestiary = UOp(Op.B_REDUCE, (b.cast(i, I32), i), ReduceArg(Op.ADD))
    assert run(bestiary, {}).values[0].tolist() == 6
    assert Op.B_REDUCE in find_executed_ops(bestiary, {})


def test_a_value_as_an_argument_is_memory_that_is_read(agree: Agree, fault: Fault) -> None:
    call = b.call(mapped(4, lambda x: b.mul(x, 2)), Y, b.add(b.param(0, (2, 2), I32), 1), written=(0,))
    assert agree(b.sink(call), {"p0": i32(1, 2, 3, 4).reshape(2, 2)}).buffers["b2"].tolist() == [4, 6, 8, 10]
    with pytest.raises(SpecError, match=r"the Call writes argument 0, which is a value and no memory"):
        run(b.sink(b.call(filled(4, 1), b.add(X, 1))), {"b1": i32(1, 2, 3, 4)})


def test_a_gate_protects_an_address_of_an_argument_that_is_a_value(agree: Agree) -> None:
    i = b.range_(4, 1)
    value = b.load(b.at(p(1, 2, dt.uint8), i), b.const(9, dt.uint8), b.lt(i, 2))
    body = b.sink(b.end(b.store(b.at(p(0, 4, dt.uint8), i), value), i), name="k")
    root = launch(b.call(body, b.buffer(4, dt.uint8, unique=1), b.binary(b"\x05\x06"), written=(0,)))
    assert agree(root, {}).buffers["b1"].tolist() == [5, 6, 9, 9]
