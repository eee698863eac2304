"""Calls of kernels written by hand, in every legal form, give what the interpreter gives; what no launch can express is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call_programs import F32, PROGRAMS, Program, elementwise, floats, load, loop, on_memory, param, size

import uops
from uops.backends.opencl.choice import unavailable_reason
from uops.backends.registry import create_backend
from uops.compiler import Config, compile
from uops.compiler.ir.extents import max_elements
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.callify.kernel_calls import convert_kernel_calls_to_launch_form, find_written_slots
from uops.compiler.pipeline import lower
from uops.interp import run
from uops.spec.errors import CompileError, SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg, CustomArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

FRESH = Config(verify=True, validate=False, reuse=False)
no_device = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
BACKENDS = ["llvm", "c", pytest.param("opencl", marks=no_device)]


def as_bits(a: Any) -> bytes:
    return np.ascontiguousarray(a).tobytes()


def assert_agrees(program: Program, backend: str) -> None:
    verify(program.graph, Dialect.TENSOR)
    wanted = run(program.graph, program.inputs)
    got = compile(program.graph, create_backend(backend).target, FRESH)(program.inputs)
    assert set(got.buffers) == set(wanted.buffers)
    assert [as_bits(v) for v in got.values] == [as_bits(v) for v in wanted.values]
    assert {k: as_bits(v) for k, v in got.buffers.items()} == {k: as_bits(v) for k, v in wanted.buffers.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_the_interpreter_gives(name: str, backend: str) -> None:
    assert_agrees(PROGRAMS[name], backend)


def kernels_written_by_hand(graph: UOp) -> list[UOp]:
    return list(nodes_with_op(callify(graph).body, Op.CALL))


def has_copies(graph: UOp) -> bool:
    return any(u.op in (Op.STORE, Op.CONTIGUOUS) for c in kernels_written_by_hand(graph) for a in c.arguments for u in toposort(a))


def test_a_view_with_constant_offsets_is_passed_without_a_copy() -> None:
    (call,) = kernels_written_by_hand(PROGRAMS["views as arguments"].graph)
    assert all(a.op is Op.PARAM for a in call.arguments)
    assert has_copies(PROGRAMS["a view that a list of instructions writes"].graph)


@pytest.mark.parametrize("name", ["one memory as two arguments", "one view as two arguments"])
def test_arguments_that_are_one_reference_become_one(name: str) -> None:
    """Two Params would let a target assume that they do not overlap."""
    (call,) = kernels_written_by_hand(PROGRAMS[name].graph)
    assert len(call.arguments) == 1
    assert call.arg == CallArg(written=(0,))


def test_afters_of_one_memory_are_joined() -> None:
    memory, i = b.buffer(8, F32, unique=1), loop(8)
    body = elementwise(b.add(load(param(0, 8), i), load(param(1, 8), i)))
    filled = b.after(memory, b.store(memory, param(0, 8)))
    graph = b.after(filled, b.call(body, filled, memory, written=(0,)))
    (call,) = kernels_written_by_hand(graph)
    assert len(call.arguments) == 1
    result = compile(graph, create_backend("llvm").target, FRESH)({"p0": floats(8)})
    np.testing.assert_array_equal(result.values[0], 2 * floats(8))


def kernel_of(program: Program) -> UOp:
    (call,) = kernels_written_by_hand(program.graph)
    return call.body


def test_a_vector_that_is_used_once_is_an_upcast_loop() -> None:
    types = [u.arg.type for u in nodes_with_op(kernel_of(PROGRAMS["rows as vectors"]), Op.RANGE)]
    assert sorted(t.name for t in types) == ["LOOP", "UPCAST"]
    long = nodes_with_op(kernel_of(PROGRAMS["a long vector"]), Op.RANGE)
    assert [u.arg.type for u in long] == [AxisType.LOOP]


def test_each_element_of_a_vector_is_read_once() -> None:
    body = kernel_of(PROGRAMS["a vector used twice"])
    assert len(nodes_with_op(body, Op.LOAD)) == 4
    assert len(nodes_with_op(body, Op.STORE)) == 8


def test_an_access_that_is_not_provably_in_bounds_is_gated() -> None:
    """R45 (Index): the interpreter traps at position 9; compiled code stays inside of its memory."""
    i, k = loop(8), param(2, 8, dtype=dt.int64)
    position = b.cast(load(k, i), dt.index)
    store = b.store(b.at(param(0, 8), position), load(param(1, 6), position))
    program = on_memory(store, i, arguments=(param(0, 6), param(1, 8, dtype=dt.int64)), n=8, inputs={})
    body = kernel_of(program)
    assert all(u.gate is not None for u in nodes_with_op(body, Op.STORE))
    assert sum(u.gate is not None for u in nodes_with_op(body, Op.LOAD)) == 1
    inputs = {"p0": floats(6), "p1": np.array([9, -1, 2**62, 3, 2, 1, 0, 5]), "b1": -np.ones(8, np.float32)}
    got = compile(program.graph, create_backend("llvm").target, FRESH)(inputs).buffers["b1"]
    np.testing.assert_array_equal(got, [0, 1, 2, 3, -1, 5, -1, -1])


def test_a_position_that_is_in_bounds_stays_as_it_is() -> None:
    assert all(u.gate is None for u in nodes_with_op(kernel_of(PROGRAMS["a prefix sum in place"]), Op.LOAD))


def test_a_deep_body_needs_no_recursion() -> None:
    i = loop(4)
    value = load(param(1, 4), i)
    for _ in range(3000):
        value = b.add(value, 1.0)
    graph = on_memory(b.store(b.at(param(0, 4), i), value), i, arguments=(param(0, 4),), n=4, inputs={}).graph
    assert len(toposort(kernel_of(Program(graph, {})))) > 3000


OUT = b.buffer(16, F32, unique=1)
EIGHT = loop(8)
ILL: dict[str, tuple[UOp, type[Exception], str]] = {
    "different views of memory that is written": (
        b.call(elementwise(load(param(1, 8), EIGHT)), b.shrink(OUT, (0,), (8,)), b.shrink(OUT, (4,), (8,)), written=(0,)),
        CompileError,
        r"R166 \(kernels written by hand\) at .*: arguments 0 and 1 are different views of one memory, which the Call writes",
    ),
    "a scalar from memory": (
        b.call(
            b.sink(b.end(b.store(b.at(param(0, 16), loop(size(1))), b.const(1.0, F32)), loop(size(1))), name="n"),
            OUT,
            b.cast(load(param(0, 4, dtype=dt.int32), 0), dt.index),
        ),
        CompileError,
        r"R86 \(Call arguments\) at .*: the argument of a variable is computed by ",
    ),
    "a view of another element size": (
        b.call(elementwise(load(b.bitcast(param(1, 2), dt.uint8), EIGHT), out=param(0, 8, dtype=dt.uint8)),
               b.buffer(8, dt.uint8, unique=2), param(0, 2), written=(0,)),
        CompileError,
        r"R166 .*: a view of float32 as uint8, expected a dtype of the same size",
    ),
    "a vector that is too long for its use": (
        b.call(b.sink(b.store(param(0, 512), b.flip(b.load(param(0, 512)), (True,))), name="long"), b.buffer(512, F32, unique=3)),
        CompileError,
        r"R166 .*: a vector of shape .* in a kernel, expected at most 256 elements: use a Range",
    ),
    "a Range that nothing closes": (
        b.call(b.sink(b.store(b.at(param(0, 16), EIGHT), b.const(1.0, F32)), name="open"), OUT, written=(0,)),
        SpecError,
        r"KERNEL\.D\d+ \(every Range of the body is closed\) broken",
    ),
    "an If outside of a list": (
        b.call(b.sink(UOp(Op.IF, (b.const(True),)), b.store(b.at(param(0, 16), 0), b.const(1.0, F32)), name="if"), OUT),
        SpecError,
        r"SCHEDULED\.D1 \(the op belongs to the dialect\) broken at .*if ",
    ),
    "a Store to a value": (
        b.call(b.sink(b.end(b.store(b.neg(b.at(param(0, 16), EIGHT)), b.const(1.0, F32)), EIGHT), name="value"), OUT),
        CompileError,
        r"R166 .*: it writes a value, neg, expected a view of memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ILL)
def test_what_no_launch_expresses_is_refused(name: str) -> None:
    call, error, message = ILL[name]
    with pytest.raises(error, match=message):
        callify(b.sink(call))


def inc(precompile: bool) -> UOp:
    p = param(0, 4)
    memory = b.buffer(4, F32, unique=3)
    body = b.sink(b.store(p, b.add(b.load(p), 1.0)))
    filled = b.after(memory, b.store(memory, param(0, 4)))
    call = UOp(Op.CALL, (body, filled), CallArg(written=(0,), precompile=precompile))
    return b.tuple_(b.after(memory, call), b.mul(b.load(b.after(memory, call)), 2.0))


def two_uses(precompile: bool) -> UOp:
    """Two uses of one body, one on the values of the other, in unlike surroundings."""
    x, y, arg = param(0, 4, 8), param(1, 8, 4), CallArg(precompile=precompile)
    body = b.tuple_(b.add(b.sum_and_drop_axis(x, 1), 1.0), b.mul(b.permute(y, (1, 0)), x))
    first = b.function(body, b.mul(x, 2.0), y).replace(arg=arg)
    second = b.function(body, b.get(first, 1), b.permute(b.get(first, 1), (1, 0))).replace(arg=arg)
    return b.tuple_(b.add(b.get(first, 0), b.get(second, 0)), b.mul(b.get(second, 1), 3.0))


def symbolic_use(precompile: bool) -> UOp:
    n, m = b.variable("n", 1, 8), b.variable("m", 1, 8, 1)
    body = b.tuple_(b.mul(param(0, m), 2.0))
    doubled = b.function(body, b.shrink(param(0, 8), (0,), (n,)), n).replace(arg=CallArg(precompile=precompile))
    return b.reduce(b.add(b.get(doubled, 0), 1.0), Op.ADD, (0,))


def whole_program(precompile: bool) -> UOp:
    x = param(0, 4, 8)
    return b.function(b.tuple_(b.neg(x), b.mul(x, x)), x).replace(arg=CallArg(precompile=precompile))


PRECOMPILED = {
    "a Call with effects": (inc, {"p0": floats(4)}),
    "two uses": (two_uses, {"p0": floats(4, 8), "p1": floats(8, 4)}),
    "symbolic sizes": (symbolic_use, {"p0": floats(8), "n": 5}),
    "a Function as a whole program": (whole_program, {"p0": floats(4, 8)}),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PRECOMPILED)
def test_a_precompiled_body_gives_what_its_substitution_gives(name: str, backend: str) -> None:
    make, inputs = PRECOMPILED[name]
    target = create_backend(backend).target
    wanted = run(make(True), inputs)
    for precompile in (True, False):
        got = compile(make(precompile), target, FRESH)(inputs)
        assert set(got.buffers) == set(wanted.buffers)
        assert len(got.values) == len(wanted.values)
        for g, w in zip(got.values, wanted.values):
            np.testing.assert_allclose(g, w, rtol=1e-6)


def test_a_precompiled_body_is_lowered_by_itself_and_compiled_once() -> None:
    """R177 (precompile): both uses have the same kernels, in which nothing of the surroundings is computed."""
    target = create_backend("llvm").target
    calls = [c.body for c in lower(two_uses(True), target, "optimize", FRESH).src]
    shared = {body for body in calls if calls.count(body) == 2}
    assert len(shared) == 2
    alone = lower(b.tuple_(*nodes_with_op(two_uses(True), Op.FUNCTION)[0].body.src), target, "optimize", FRESH)
    assert {len(toposort(c.body)) for c in alone.src} == {len(toposort(body)) for body in shared}
    inlined = [c.body for c in lower(two_uses(False), target, "optimize", FRESH).src]
    assert len(set(inlined)) == len(inlined)


def _compiled(graph, inputs):
    return uops.compile(graph, "llvm")(inputs).values[0].tolist()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_call_waits_for_what_either_view_of_one_memory_waits_for(is_first):
    p = [b.param(k, (4,), dt.int32) for k in range(3)]
    r = b.range_(4, 0)
    total = b.add(b.load(b.at(p[1], r)), b.load(b.at(p[2], b.sub(3, r))))
    body = b.sink(b.end(b.store(b.at(p[0], r), total), r), name="k")
    out, memory = b.buffer(4, dt.int32, unique=1), b.buffer(4, dt.int32, unique=2)
    stored = b.after(memory, b.store(memory, b.param(0, (4,), dt.int32)))
    call = b.call(body, out, *((stored, memory) if is_first else (memory, stored)), written=(0,))
    x = {"p0": np.arange(4, dtype=np.int32), "b2": np.zeros(4, np.int32)}
    assert _compiled(b.contiguous(b.after(out, call)), x) == [3, 3, 3, 3]


def test_a_call_waits_for_what_a_view_that_its_body_follows_waits_for():
    p, q, r = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(4, 0)
    body = b.sink(b.end(b.store(b.at(p, r), b.load(b.at(q, r))), r), name="k")
    out, memory = b.buffer(4, dt.int32, unique=1), b.buffer(8, dt.int32, unique=2)
    stored = b.after(memory, b.store(memory, b.param(0, (8,), dt.int32)))
    call = b.call(body, out, b.flip(b.shrink(stored, (2,), (4,)), (True,)), written=(0,))
    x = {"p0": np.arange(8, dtype=np.int32), "b2": np.zeros(8, np.int32)}
    assert _compiled(b.contiguous(b.after(out, call)), x) == [5, 4, 3, 2]


def test_native_text_may_write_what_its_operands_refer_to_R168():
    p, q, r = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(4, 0)
    text = UOp(Op.CUSTOM, (b.at(p, r), b.load(b.at(q, r))), CustomArg("*{0} = {1};", dt.void))
    assert find_written_slots(b.sink(b.end(text, r), name="k")) == (0,)


def test_the_memory_of_a_symbolic_argument_has_all_its_axes():
    n, m = b.variable("n", 1, 4), b.variable("n", 1, 4, slot=2)
    p, q = b.param(0, (12,), dt.int32), b.param(1, (m, 3), dt.int32)
    i, j = b.range_(m, 0), b.range_(3, 1)
    body = b.sink(b.end(b.store(b.at(p, b.add(b.mul(i, 3), j)), b.load(b.at(q, i, j))), i, j), name="k")
    call = b.call(body, b.buffer(12, dt.int32, unique=1), b.param(0, (n, 3), dt.int32), n, written=(0,))
    new = convert_kernel_calls_to_launch_form(call, 2).root
    assert [max_elements(u.shape) for u in nodes_with_op(new.body, Op.PARAM) if u.arg.slot == 1 and u.shape] == [12]


def test_a_view_with_constant_offsets_of_symbolic_memory_is_copied():
    src, out = b.param(0, (b.variable("n", 2, 4), 3), dt.int32), b.buffer(6, dt.int32, unique=1)
    p, q, i, j = b.param(0, (6,), dt.int32), b.param(1, (2, 3), dt.int32), b.range_(2, 0), b.range_(3, 1)
    body = b.sink(b.end(b.store(b.at(p, b.add(b.mul(i, 3), j)), b.load(b.at(q, i, j))), i, j), name="k")
    call = b.call(body, out, b.shrink(b.flip(src, (True, False)), (0, 0), (2, 3)), written=(0,))
    x = {"p0": np.arange(9, dtype=np.int32).reshape(3, 3), "n": 3}
    assert _compiled(b.contiguous(b.after(out, call)), x) == [6, 7, 8, 3, 4, 5]
