"""Programs that enter the pipeline behind its first stage: launches of every dialect, bare kernels, and loops of tensor graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_call_programs import F32, PROGRAMS, Program, elementwise, floats, load, loop, param, special

from uops.backends.opencl.choice import unavailable_reason
from uops.backends.registry import create_backend
from uops.compiler import Config, compile
from uops.compiler.entry import (
    ProgramInterface,
    convert_to_launch_or_tensor_graph,
    describe_launch,
    find_unnamed_buffers,
    is_launch,
    mark_kernels_that_keep_their_loops,
)
from uops.compiler.passes.callify.loop_regions import has_kernel_forms_or_named_sink
from uops.compiler.pipeline import lower, passes_from
from uops.fuzz.reduce.corpus import find_check_failures, load_file_test
from uops.interp import bestiary, run
from uops.spec.bestiary import build as B
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import CompileError, SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BBufferArg, CallArg, DeviceArg, NameArg, ReduceArg, SinkArg, UniqueArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.verify.dialects import LAUNCH_DIALECTS, Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

FRESH = Config(verify=True, validate=False, reuse=False)
no_device = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
BACKENDS = ["llvm", "c", pytest.param("opencl", marks=no_device)]
EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "bestiary").glob("*.uops"))
#: The example whose op has no form of loops below: a Wmma is an instruction, which these targets do not have.
INSTRUCTIONS = {"wmma"}


def assert_same(got: Result, wanted: Result) -> None:
    assert set(got.buffers) == set(wanted.buffers)
    assert len(got.values) == len(wanted.values)
    for g, w in zip([*got.values, *(got.buffers[k] for k in wanted.buffers)], [*wanted.values, *wanted.buffers.values()]):
        np.testing.assert_array_equal(g, w)


def assert_agrees(graph: UOp, inputs: dict[str, Any], backend: str, dialect: Dialect) -> None:
    wanted = run(graph, inputs)
    got = compile(graph, create_backend(backend).target, FRESH, dialect)(inputs)
    assert_same(got, wanted)


# ---------------------------------------------------------------------------------------------------------- launches


def squares_of_sums() -> UOp:
    """A TENSOR graph of two kernels."""
    x = param(0, 4, 6)
    return b.mul(b.sum_and_drop_axis(b.add(x, 1.0), 1), b.contiguous(b.sum_and_drop_axis(x, 1)))


STAGE_OF_DIALECT = {
    Dialect.KERNEL: "rangeify",
    Dialect.SCHEDULED: "optimize",
    Dialect.EXPANDED: "expand",
    Dialect.SELECTED: "select",
    Dialect.LINEAR: "linearize",
    Dialect.PLANNED: "plan",
}


def test_there_is_a_launch_of_each_dialect() -> None:
    """A launch of programs is no input of a stage."""
    assert set(STAGE_OF_DIALECT) == set(LAUNCH_DIALECTS) - {Dialect.PROGRAM}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dialect", STAGE_OF_DIALECT, ids=lambda d: d.value)
def test_a_launch_of_each_dialect_enters_where_it_belongs(dialect: Dialect, backend: str) -> None:
    target, x = create_backend(backend).target, floats(4, 6)
    graph = squares_of_sums()
    launch = lower(graph, target, STAGE_OF_DIALECT[dialect], FRESH)
    program = compile(launch, target, FRESH, dialect)
    (result,) = [v for k, v in program({"p0": x}).buffers.items() if k == f"b{lower_output(graph)}"]
    np.testing.assert_array_equal(result, run(graph, {"p0": x}).values[0])
    entered = convert_to_launch_or_tensor_graph(launch, dialect).dialect
    assert entered is dialect
    assert all(p.gives is not Dialect.CALLIFIED for p in passes_from(entered))


def lower_output(graph: UOp) -> int:
    from uops.compiler.passes.callify.callify import outputs

    (output,) = outputs(graph)
    return int(output.buffer.arg.unique)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", [False, True], ids=["element", "row"])
def test_a_launch_may_view_memory_in_several_dimensions(row: bool, backend: str) -> None:
    x, y = (b.reshape(param(k, 12), (3, 4)) for k in (0, 1))
    i, j = b.range_(3, 0), b.range_(4, 1)
    backwards = b.sub(2, i)
    store = b.store(b.at(y, backwards), b.load(b.at(x, i))) if row else b.store(b.at(y, backwards, j), b.load(b.at(x, i, j)))
    kernel = b.sink(b.end(store, i) if row else b.end(b.end(store, j), i), name="k")
    launch = UOp(Op.LINEAR, (b.call(kernel, b.buffer(12, F32, unique=1), b.buffer(12, F32, unique=2), written=(1,)),))
    assert_agrees(launch, {"b1": floats(12), "b2": floats(12)}, backend, infer_tensor_kernel_or_bestiary_dialect(launch))


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_memory_of_a_kernel_of_a_launch_is_nobody_s_to_see(backend: str) -> None:
    own, x, y = b.buffer(4, F32, unique=9), param(0, 4), param(1, 4)
    i, j = b.range_(4, 0), b.range_(4, 1)
    filled = b.end(b.store(b.at(own, b.sub(3, i)), b.load(b.at(x, i))), i)
    kernel = b.sink(b.end(b.store(b.at(y, j), b.load(b.at(b.after(own, filled), j))), j), name="k")
    launch = UOp(Op.LINEAR, (b.call(kernel, b.buffer(4, F32, unique=1), b.buffer(4, F32, unique=2), written=(1,)),))
    got = compile(launch, create_backend(backend).target, FRESH, Dialect.KERNEL)({"b1": floats(4), "b2": floats(4)})
    np.testing.assert_array_equal(got.buffers["b2"], floats(4)[::-1])


def count(memory: UOp) -> UOp:
    return UOp(Op.ATOMICADD, (b.at(memory, 0), b.const(1.0)))


def effects_in_ends() -> dict[str, UOp]:
    x, y, r, q = param(0, 1), param(1, 3), b.range_(3, 0), b.range_(5, 1)
    inner = b.store(b.at(y, r), b.const(2.0))
    return {
        "AtomicAdd": b.end(count(x), r),
        "beside one that depends": b.end(b.group(count(x), inner), r),
        "inner loop": b.end(b.end(b.group(UOp(Op.ATOMICADD, (b.at(b.after(x, q), 0), b.const(1.0))), inner), q), r),
        "zero trips": b.end(count(x), b.range_(0, 2)),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", effects_in_ends())
def test_an_effect_that_does_not_depend_on_a_loop_runs_once(name: str, backend: str) -> None:
    """R127 (loops of a node)."""
    effect = effects_in_ends()[name]
    kernel = b.sink(effect, name="k")
    params = sorted(nodes_with_op(kernel, Op.PARAM), key=lambda u: int(u.arg.slot))
    assert_agrees(kernel, {f"p{u.arg.slot}": floats(*u.shape) for u in params}, backend, Dialect.KERNEL)
    buffers = [b.buffer(u.shape[0], F32, unique=k) for k, u in enumerate(params)]
    launch = UOp(Op.LINEAR, (b.call(kernel, *buffers, written=tuple(range(len(params)))),))
    assert_agrees(
        launch, {f"b{k}": floats(*u.shape) for k, u in enumerate(params)}, backend, infer_tensor_kernel_or_bestiary_dialect(launch)
    )


def doubling(memory: UOp) -> UOp:
    """A body of the second document that stores 2 x + 1."""
    return b.sink(B.store(B.at(memory, 0), b.add(b.mul(B.load(B.at(memory, 0)), b.const(2.0)), b.const(1.0))))


def calls_in_loops() -> dict[str, UOp]:
    x, r, q = B.buffer(1, F32, 1), B.range_(4, 0), B.range_(3, 1)
    row = B.at(b.reshape(B.buffer(6, F32, 1), (6, 1)), B.range_(6, 2))
    return {
        "counter among the arguments": b.call(doubling(B.param(0, 1, F32)), x, r),
        "two counters": b.call(doubling(B.param(0, 1, F32)), x, r, q),
        "memory of the body's own": b.call(doubling(x), r),
        "no counter": b.end(b.call(doubling(B.param(0, 1, F32)), x), r),
        "row": b.call(doubling(B.param(0, 1, F32)), row, row.positions[0]),
        "read behind": b.add(b.after(x, b.call(doubling(B.param(0, 1, F32)), x, r)), b.const(1.0)),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", calls_in_loops())
def test_a_call_runs_once_per_value_of_its_counters(name: str, backend: str) -> None:
    """R121 (CALL ends ranges)."""
    graph = calls_in_loops()[name]
    assert_agrees(graph, {"b1": floats(6 if name == "row" else 1)}, backend, Dialect.BESTIARY)


def test_a_launch_cannot_go_back_to_an_earlier_stage(pyref: Any) -> None:
    launch = lower(squares_of_sums(), pyref, "linearize", FRESH)
    with pytest.raises(SpecError, match="a program of the linear dialect is past the stage 'rangeify'"):
        lower(launch, pyref, "rangeify", FRESH, dialect=Dialect.LINEAR)


def test_a_launch_of_an_unknown_dialect_is_of_the_first_that_it_is_legal_in(pyref: Any) -> None:
    launch = lower(squares_of_sums(), pyref, "rangeify", FRESH)
    assert convert_to_launch_or_tensor_graph(launch, infer_tensor_kernel_or_bestiary_dialect(launch)).dialect is Dialect.KERNEL
    lanes = UOp(Op.LINEAR, (b.call(body_of("loops of lanes and a Barrier"), b.buffer(32, F32, unique=1), param(0, 32)),))
    assert convert_to_launch_or_tensor_graph(lanes, infer_tensor_kernel_or_bestiary_dialect(lanes)).dialect is Dialect.SCHEDULED


# ------------------------------------------------------------------------------------------------- callified programs


def assigned_and_read() -> UOp:
    """A TENSOR graph of four outputs in memory: two values, a copy that several read, and a Buffer that is assigned."""
    x, row = param(0, 4, 6), b.contiguous(b.sum_and_drop_axis(param(0, 4, 6), 1))
    return b.tuple_(b.add(x, 1.0), b.mul(row, row), row, b.assign(b.buffer(4, F32, unique=1), b.add(row, 2.0)))


def call_of(*effects: UOp, arguments: tuple[int, ...], written: tuple[int, ...] | None = None) -> UOp:
    """A CALLIFIED program on memory of 4 elements; `arguments` are the numbers of its Buffers."""
    return b.call(b.sink(*effects), *[b.buffer(4, F32, unique=k) for k in arguments], written=written)


def increase_in_turn() -> UOp:
    """A kernel whose loop may not be reordered: each element is added to the next."""
    i = loop(3)
    memory, after = param(0, 4), b.add(i, 1)
    return b.sink(b.end(b.store(b.at(memory, after), b.add(load(memory, i), load(memory, after))), i), name="k")


OUT, OTHER, X = (param(k, 4) for k in range(3))
CALLIFIED = {
    "an Add and a Reduce": b.tuple_(b.add(param(0, 4, 6), 1.0), b.sum_and_drop_axis(param(0, 4, 6), 1)),
    "a copy and an assigned Buffer": assigned_and_read(),
    "nothing declared": call_of(b.store(OUT, b.add(X, 1.0)), b.store(OTHER, b.mul(X, 2.0)), arguments=(1, 2, 3)),
    "too much declared": call_of(b.store(OUT, X), b.store(OTHER, X), arguments=(1, 2, 3), written=(0, 1, 2)),
    "one memory twice": call_of(b.store(OUT, b.add(X, 1.0)), b.store(OTHER, b.mul(X, 2.0)), arguments=(1, 2, 1), written=(0, 1)),
    "a hazard": call_of(b.store(OUT, b.flip(OUT, (True,))), b.store(OTHER, X), arguments=(1, 2, 3), written=(0, 1)),
    "a kernel": call_of(
        b.call(increase_in_turn(), b.after(OUT, b.store(OUT, b.mul(X, 3.0)))), b.store(OTHER, X), arguments=(1, 2, 3)
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLIFIED)
def test_a_callified_program_gives_its_results_in_the_memory_of_its_call(name: str, backend: str) -> None:
    target, given = create_backend(backend).target, CALLIFIED[name]
    call = given if given.op is Op.CALL else lower(given, target, "callify", FRESH)
    inputs = {"p0": floats(4, 6)} if call is not given else {f"b{a.arg.unique}": floats(4) for a in call.arguments}
    assert_agrees(call, inputs, backend, Dialect.CALLIFIED)


def test_callers_are_told_the_memory_of_a_callified_program(pyref: Any) -> None:
    call = lower(CALLIFIED["an Add and a Reduce"], pyref, "callify", FRESH)
    interfaces: list[ProgramInterface] = []
    planned = lower(call, pyref, "plan", FRESH, interfaces.append, Dialect.CALLIFIED)
    first, given, second = call.arguments
    assert interfaces == [ProgramInterface((), (first, given, second), frozenset({first, second}))]
    assert {a for c in planned.src for a in c.arguments} == set(call.arguments)


def test_a_callified_program_of_callify_enters_as_it_is(pyref: Any) -> None:
    for graph in (squares_of_sums(), assigned_and_read()):
        call = lower(graph, pyref, "callify", FRESH)
        assert convert_to_launch_or_tensor_graph(call, Dialect.CALLIFIED) == (call, Dialect.CALLIFIED, frozenset())


# ----------------------------------------------------------------------------------------------------------- kernels


def body_of(name: str) -> UOp:
    (call,) = nodes_with_op(PROGRAMS[name].graph, Op.CALL)
    body: UOp = call.body
    return body


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name",
    ["a prefix sum in place", "Params of two axes", "Specials and a Barrier", "AtomicAdd", "If in a list", "rows as vectors"],
)
def test_a_bare_kernel_becomes_a_launch_of_one_call(name: str, backend: str) -> None:
    body = body_of(name)
    entering = convert_to_launch_or_tensor_graph(body, infer_tensor_kernel_or_bestiary_dialect(body))
    assert is_launch(entering.graph)
    params = {p.arg.slot: p for p in nodes_with_op(body, Op.PARAM)}
    inputs = {f"p{k}": floats(*p.shape).astype(p.dtype.name) for k, p in params.items()}
    assert_agrees(body, inputs, backend, Dialect.KERNEL)


def test_only_loops_that_may_run_in_any_order_are_scheduled(pyref: Any) -> None:
    i = loop(8)
    x, y = b.buffer(8, F32, unique=1), b.buffer(9, F32, unique=2)
    free = b.call(elementwise(load(param(1, 8), i)), b.buffer(8, F32, unique=3), x, written=(0,))
    shift = b.sink(b.end(b.store(b.at(param(0, 9), b.add(i, 1)), load(param(0, 9), i)), i), name="shift")
    launch = UOp(Op.LINEAR, (free, b.call(shift, y, written=(0,))))
    entering = convert_to_launch_or_tensor_graph(launch, Dialect.KERNEL)
    assert [c.body.arg.scheduled for c in entering.graph.src] == [False, True]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dialect", [Dialect.KERNEL, Dialect.SCHEDULED])
def test_a_memory_that_a_launch_passes_twice_is_one(backend: str, dialect: Dialect) -> None:
    """FOUND 236. Each iteration doubles the first element, which it reads through the other Param, and stores it."""
    i, memory = loop(4), b.buffer(4, F32, unique=1)
    first = load(param(1, 4), b.mul(i, 0))
    body = b.sink(b.end(b.store(b.at(param(0, 4), i), b.add(first, first)), i), name="doubled")
    assert_agrees(UOp(Op.LINEAR, (b.call(body, memory, memory, written=(0,)),)), {"b1": floats(4) + 1}, backend, dialect)


@pytest.mark.parametrize("forced", [None, *range(6)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_whose_iterations_change_one_element_keeps_its_loops(backend: str, forced: int | None) -> None:
    """FOUND 237. Every iteration adds to the same element."""
    i = loop(4)
    place = b.at(param(0, 2), b.mod(b.mul(i, 2), 2))
    body = b.sink(b.end(b.store(place, b.add(b.load(place), load(param(1, 4), i))), i), name="sum")
    launch = UOp(Op.LINEAR, (b.call(body, b.buffer(2, F32, unique=1), b.buffer(4, F32, unique=2), written=(0,)),))
    inputs = {"b1": floats(2), "b2": floats(4)}
    config = replace(FRESH, forced=forced)
    assert_same(compile(launch, create_backend(backend).target, config, Dialect.KERNEL)(inputs), run(launch, inputs))


def test_a_launch_names_its_kernels(pyref: Any) -> None:
    """FOUND 238: it ended with an AttributeError."""
    i = loop(4)
    body = b.sink(b.end(b.store(b.at(param(0, 4), i), load(param(1, 4), i)), i))
    launch = UOp(Op.LINEAR, (b.call(body, b.buffer(4, F32, unique=1), b.buffer(4, F32, unique=2), written=(0,)),))
    with pytest.raises(SpecError, match="a Sink without a name"):
        lower(launch, pyref, dialect=Dialect.KERNEL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_that_gives_a_value_stores_it(backend: str) -> None:
    total = b.buffer(1, F32, addrspace=AddrSpace.REG, unique=1)
    j = loop(6, 0, AxisType.REDUCE)
    cleared = b.after(total, b.store(b.at(total, 0), b.const(0.0, F32)))
    added = b.store(b.at(cleared, 0), b.add(load(b.after(cleared, j), 0), load(param(0, 6), j)))
    graph = load(b.after(total, b.end(added, j)), 0)
    assert has_kernel_forms_or_named_sink(graph)
    assert_agrees(graph, {"p0": floats(6)}, backend, Dialect.KERNEL)


def test_lanes_of_a_launch_give_no_value(pyref: Any) -> None:
    graph = load(param(0, 4), special(4, "lidx0"))
    with pytest.raises(CompileError, match=r"R123 \(values of a launch\) at .*expected a Sink"):
        lower(graph, pyref, dialect=Dialect.KERNEL)


# ------------------------------------------------------------------------------------------- loops of a tensor graph


def sum_over(value: UOp, *ranges: UOp) -> UOp:
    return UOp(Op.REDUCE, (value, *ranges), ReduceArg(Op.ADD))


def reduce_of_computed_values() -> Program:
    """A value that is computed before, a view of a Param, a scalar of variables, and a value that goes on."""
    n, j = b.variable("n", 1, 5), loop(b.variable("n", 1, 5), 1, AxisType.REDUCE)
    doubled = b.mul(param(0, 6), 2.0)
    column = b.permute(b.reshape(param(1, 12), (2, 6)), (1, 0))
    total = sum_over(b.mul(b.at(doubled, j), b.load(b.at(column, b.sub(n, j), 1))), j)
    return Program(b.add(b.expand(b.reshape(total, (1,)), (6,)), doubled), {"p0": floats(6), "p1": floats(12), "n": 4})


def loops_in_turn() -> Program:
    """An End writes memory that the next one reads and changes, with values around them."""
    i, k, memory = loop(8), loop(8, 1), b.buffer(8, F32, unique=1)
    first = b.after(memory, b.end(b.store(b.at(memory, i), load(param(0, 8), i)), i))
    seen = b.add(b.load(first), 1.0)
    again = b.after(first, seen)
    second = b.after(first, b.end(b.store(b.at(again, k), b.mul(load(again, k), 3.0)), k))
    return Program(b.tuple_(seen, b.load(second)), {"p0": floats(8)})


def nested_reduces() -> Program:
    i, j = loop(4), loop(6, 1, AxisType.REDUCE)
    out, row = b.buffer(4, F32, unique=1), sum_over(load(param(0, 4, 6), i, j), j)
    most = sum_over(load(param(1, 3), loop(3, 2, AxisType.REDUCE)), loop(3, 2, AxisType.REDUCE))  # its own region: no open loop
    return Program(b.after(out, b.end(b.store(b.at(out, i), b.add(row, most)), i)), {"p0": floats(4, 6), "p1": floats(3)})


def effect_that_does_not_depend_on_its_loop() -> Program:
    i, out = loop(3), b.buffer(2, F32, unique=1)
    add_one = b.store(b.at(out, 0), b.add(load(out, 0), 1.0))
    return Program(b.after(out, b.end(add_one, i)), {"b1": floats(2)})


def reduce_of_an_index() -> Program:
    j = loop(5, 1, AxisType.REDUCE)
    return Program(sum_over(b.mul(j, j), j), {})


def loops_of_a_function() -> Program:
    j = loop(6, 1, AxisType.REDUCE)
    body = b.tuple_(sum_over(b.mul(load(param(0, 6), j), load(param(1, 6), j)), j))
    x = param(0, 6)
    first = b.get(b.function(body, x, b.add(x, 1.0)), 0)
    return Program(b.add(first, b.get(b.function(body, b.neg(x), x), 0)), {"p0": floats(6)})


def vector_of_a_reduce() -> Program:
    j = loop(5, 1, AxisType.REDUCE)
    return Program(b.mul(sum_over(b.load(b.at(param(0, 5, 3), j)), j), 2.0), {"p0": floats(5, 3)})


LOOPS = {
    "a Reduce of computed values": reduce_of_computed_values(),
    "Ends in turn": loops_in_turn(),
    "a Reduce of its own inside of loops": nested_reduces(),
    "an effect that does not depend on its loop": effect_that_does_not_depend_on_its_loop(),
    "a Reduce of an index": reduce_of_an_index(),
    "loops of a Function": loops_of_a_function(),
    "a Reduce that gives a vector": vector_of_a_reduce(),
}


@pytest.mark.parametrize("dialect", [Dialect.KERNEL, Dialect.TENSOR], ids=lambda d: d.value)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_a_tensor_graph_are_kernels(name: str, backend: str, dialect: Dialect) -> None:
    """R127 (loops of a node)."""
    assert_agrees(*LOOPS[name], backend, dialect)


def test_no_loop_is_left_outside_of_kernels() -> None:
    for graph, _ in LOOPS.values():
        entering = convert_to_launch_or_tensor_graph(graph, Dialect.KERNEL)
        assert entering.dialect is Dialect.TENSOR
        verify(entering.graph, Dialect.TENSOR)


def test_a_call_in_loops_is_refused(pyref: Any) -> None:
    i, out = loop(4), b.buffer(4, F32, unique=1)
    call = b.call(elementwise(b.const(1.0, F32)), b.shrink(out, (0,), (4,)), b.cast(i, dt.int32)).replace(arg=CallArg(written=(0,)))
    graph = b.after(out, b.end(b.store(b.at(b.after(out, call), i), b.const(2.0, F32)), i))
    with pytest.raises(CompileError, match=r"R127 \(loops of a node\) at .*: a Call stands in loops"):
        lower(graph, pyref, dialect=Dialect.KERNEL)


# ----------------------------------------------------------------------------------------------- the second document


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem not in INSTRUCTIONS], ids=lambda p: p.stem)
def test_an_example_of_the_second_document_gives_what_its_file_says(path: Path, backend: str) -> None:
    test = load_file_test(path)
    target = create_backend(backend).target
    if test.trap:
        with pytest.raises(Trap):
            compile(test.graph, target, FRESH, Dialect.BESTIARY)(test.inputs)
        return
    got = compile(test.graph, target, FRESH, Dialect.BESTIARY)(test.inputs)
    wanted = bestiary.run(test.graph, test.inputs)
    assert test.checks
    assert not find_check_failures(test, {**dict(enumerate(got.values)), **got.buffers})
    assert set(got.buffers) == set(wanted.buffers)
    for g, w in zip(
        [*got.values, *(got.buffers[k] for k in wanted.buffers)], [*wanted.values, *wanted.buffers.values()], strict=True
    ):
        np.testing.assert_array_equal(g, w)


def test_there_are_21_examples() -> None:
    assert len(EXAMPLES) == 21
    assert {p.stem for p in EXAMPLES} > INSTRUCTIONS


def test_an_example_with_an_instruction_has_the_forms_of_a_launch() -> None:
    """Each lane's fragment is kept in registers, of which its elements are stored one by one (R142)."""
    (path,) = [p for p in EXAMPLES if p.stem == "wmma"]
    launch, dialect, _ = convert_to_launch_or_tensor_graph(legalize(load_file_test(path).graph), Dialect.KERNEL)
    assert dialect is Dialect.SCHEDULED or dialect is Dialect.TENSOR
    verify(launch, dialect)


def test_memory_without_a_name_is_in_no_result() -> None:
    """R120: of a BUFFERIZE, and of what loops give."""
    test = load_file_test(next(p for p in EXAMPLES if p.stem == "bufferize"))
    program = compile(test.graph, create_backend("llvm").target, FRESH, Dialect.BESTIARY)
    assert program(test.inputs).buffers == {}
    assert program.keys == ("p0",)


def _keeps_its_loops(dialect, body, *arguments):
    launch = UOp(Op.LINEAR, (b.call(body, *arguments),))
    (call,) = mark_kernels_that_keep_their_loops(launch, dialect).src
    return call.body.arg.scheduled


def _reversal(n=8):
    r = b.range_(n, 0)
    out, values = b.param(0, (n,), dt.int32), b.param(1, (n,), dt.int32)
    return b.sink(b.end(b.store(b.at(out, r), b.load(b.at(values, b.sub(n - 1, r)))), r), name="reversal")


def test_a_kernel_that_gets_one_memory_twice_keeps_its_loops():
    x, y = b.buffer(8, dt.int32, unique=1), b.buffer(8, dt.int32, unique=2)
    x_again = b.after(x, b.group())
    assert not _keeps_its_loops(Dialect.KERNEL, _reversal(), x, y)
    assert _keeps_its_loops(Dialect.KERNEL, _reversal(), x, x)
    assert _keeps_its_loops(Dialect.KERNEL, _reversal(), x, x_again)
    assert _keeps_its_loops(Dialect.KERNEL, _reversal(), x_again, x)


def test_a_kernel_with_a_triangle_of_loops_keeps_them():
    i = b.range_(8, 0)
    j = b.range_(i, 1)
    out, values = b.param(0, (64,), dt.int32), b.param(1, (64,), dt.int32)
    at = b.add(b.mul(i, 8), j)
    body = b.sink(b.end(b.store(b.at(out, at), b.load(b.at(values, at))), i, j), name="triangle")
    assert _keeps_its_loops(Dialect.KERNEL, body, b.buffer(64, dt.int32, unique=1), b.buffer(64, dt.int32, unique=2))


def test_every_kernel_of_a_scheduled_launch_keeps_its_loops():
    x, y = b.buffer(8, dt.int32, unique=1), b.buffer(8, dt.int32, unique=2)
    assert _keeps_its_loops(Dialect.SCHEDULED, _reversal(), x, y)


def test_a_buffer_of_a_lunique_has_no_name_R120():
    def memory(identity, number):
        device = UOp(Op.DEVICE, (), DeviceArg("CPU"))
        return UOp(Op.B_BUFFER, (UOp(identity, (), UniqueArg(number)), device), BBufferArg(4, dt.float32))

    graph = b.sink(*[b.contiguous(memory(op, k)) for op, k in ((Op.UNIQUE, 0), (Op.LUNIQUE, 1))])
    legal = legalize(graph)
    assert [u.arg.unique for u in find_unnamed_buffers(graph, legal)] == [1]


def test_a_function_of_the_host_may_write_all_its_arguments():
    x, y = b.buffer(8, dt.int32, unique=1), b.buffer(8, dt.int32, unique=2)
    launch = UOp(Op.LINEAR, (b.call(UOp(Op.CUSTOM_FUNCTION, (), NameArg("sort")), x, y),))
    assert describe_launch(launch).written == {x, y}


@pytest.mark.parametrize("dialect", [Dialect.KERNEL, Dialect.SCHEDULED, Dialect.EXPANDED])
def test_a_load_stays_in_a_loop_that_folding_takes_from_its_position(dialect: Dialect) -> None:
    """R127 (loops of a node): each iteration reads what the one before stored."""
    p, r = b.param(0, (3,), dt.int32), b.range_(3, 0)
    first = b.load(b.at(p, b.mod(b.mul(r, 0), 3)))
    effect = b.end(b.store(b.at(p, r), b.add(first, b.const(1, dt.int32))), r)
    body = UOp(Op.SINK, (effect,), SinkArg("k", scheduled=dialect is not Dialect.KERNEL))
    launch = UOp(Op.LINEAR, (b.call(body, b.buffer(3, dt.int32, unique=1), written=(0,)),))
    program = compile(launch, create_backend("llvm").target, Config(reuse=False), dialect)
    assert program({"b1": np.array([5, 0, 0], np.int32)}).buffers["b1"].tolist() == [6, 7, 7]
