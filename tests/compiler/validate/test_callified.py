"""The values of callified programs are those of their tensor graphs, and programs with other values are not proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from uops.compiler.log import CallifiedGraph
from uops.compiler.passes.callify.callify import convert_graph_to_call
from uops.compiler.validate.arrays.callified import decide_values_of_callified_program
from uops.compiler.validate.model import DecisionMethod, ValidationVerdict
from uops.compiler.validate.values import decide_equal_terms
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

TWO = ("CPU:0", "CPU:1")
FOUR = ("CPU:0", "CPU:1", "CPU:2", "CPU:3")
X = b.param(0, (8, 3), dt.float32)
SHARDED = b.reshape(UOp(Op.BUFFER, (), BufferArg(12, dt.float32, TWO, AddrSpace.GLOBAL, 7)), (8, 3))
COLUMNS = b.shrink(SHARDED, (0, 1), (8, 2))
Y = b.param(1, (3,), dt.float32)


def callified(root: UOp) -> CallifiedGraph:
    """Return what callify makes of a graph."""
    program = convert_graph_to_call(root)
    return CallifiedGraph(root, program.call, tuple(out.buffer for out in program.outputs))


def decide(program: CallifiedGraph) -> ValidationVerdict:
    """Return the verdict on a program."""
    return decide_values_of_callified_program(program, decide_equal_terms)


def sum_of_shards(devices: tuple[str, ...]) -> UOp:
    """Return sums of rows that are distributed over devices, then of all of them."""
    rows = b.reduce(b.mul(b.copy(X, devices), Y), Op.ADD, (1,))
    return b.add(b.reduce(rows, Op.ADD, (0,)), 1.0)


def in_function() -> UOp:
    """Return a value of two Functions, one in the other, of a variable and with copies."""
    inner = b.function(b.mul(b.param(0, (8, 3), dt.float32), 2.0), X)
    n = b.variable("n", 0, 7, dtype=dt.int32)
    scaled = b.mul(b.contiguous(b.get(inner, 0)), b.cast(n, dt.float32))
    return b.reduce(b.detach(scaled), Op.ADD, (1,))


SINGLE = {
    "sum": b.reduce(b.mul(X, Y), Op.ADD, (1,)),
    "two values": b.tuple_(b.add(X, Y), b.mul(X, Y)),
    "functions": in_function(),
    "assigned on one": b.after(X, b.store(X, b.mul(X, 2.0))),
}
SEVERAL = {
    "assigned": b.after(SHARDED, b.store(SHARDED, b.mul(SHARDED, 2.0))),
    "assigned in part": b.sink(
        b.store(b.permute(COLUMNS, (1, 0)), b.permute(b.shrink(b.add(b.copy(X, TWO), 1.0), (0, 0), (8, 2)), (1, 0)))
    ),
    "sum over devices": sum_of_shards(FOUR),
    "gathered": b.copy(b.mul(b.copy(X, TWO), Y), "CPU:1"),
    "moved": b.permute(b.flip(b.copy(X, FOUR), (False, True)), (1, 0)),
    "padded": b.pad_by(b.copy(X, TWO), (0, 0), (1, 1)),
    "joined": b.add(b.copy(b.copy(X, FOUR), "CPU:0"), b.copy(b.permute(b.copy(b.permute(X, (1, 0)), FOUR[:3]), (1, 0)), "CPU:0")),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_program_on_one_device_has_the_nodes_of_its_graph(name: str) -> None:
    """Functions are inlined and markers dropped by definition, so the values are the same nodes."""
    assert decide(callified(SINGLE[name])).by is DecisionMethod.STRUCTURE


@pytest.mark.parametrize("name", SEVERAL)
def test_parts_on_several_devices_have_the_elements_of_the_whole(name: str) -> None:
    """Each element of a value is one expression, in whichever part of memory it is."""
    assert decide(callified(SEVERAL[name])).by is DecisionMethod.FINGERPRINTS


def spoil(call: UOp) -> Iterator[tuple[str, UOp]]:
    """Yield Calls with one fault each: another offset, op or operand, or an effect that is lost."""
    for u in toposort(call.body):
        if u.op is Op.SHRINK and any(int(o) for o in u.offsets.constants_of_stack):
            yield "an offset", substitute(call, {u: u.replace(src=(u.operand, b.shape_vector([0] * len(u.shape)), u.src[2]))})
        if u.op is Op.ADD:
            yield "an op", substitute(call, {u: UOp(Op.MUL, u.src)})
            yield "an operand", substitute(call, {u: u.src[0]})
        if u.op is Op.AFTER and len(u.dependencies) > 1:
            for k, piece in enumerate(u.dependencies):
                if base_memory(piece.buffer) is base_memory(u):
                    kept = [d for j, d in enumerate(u.dependencies) if j != k]
                    yield "a piece", substitute(call, {u: b.after(u.buffer, *kept)})
        if u.op is Op.FLIP or u.op is Op.MUL:
            yield "a node", substitute(call, {u: u.src[0]})


@pytest.mark.parametrize("name", [*SEVERAL, *SINGLE])
def test_a_program_with_a_fault_is_not_proved(name: str) -> None:
    """A proof must not hold for a program that stores something else."""
    program = callified({**SEVERAL, **SINGLE}[name])
    spoiled = list(spoil(program.call))
    assert spoiled
    for what, call in spoiled:
        assert decide(replace(program, call=call)).by is DecisionMethod.INTERPRETER, what


def test_values_in_buffers_of_each_other_are_not_proved() -> None:
    """Which Buffer a caller reads for which value is part of the claim."""
    program = callified(SINGLE["two values"])
    assert decide(replace(program, buffers=program.buffers[::-1])).by is DecisionMethod.INTERPRETER
    assert decide(replace(program, buffers=program.buffers[:1] * 2)).by is DecisionMethod.INTERPRETER


def test_a_lost_effect_is_not_proved() -> None:
    """Each item of the graph has its effect."""
    program = callified(SINGLE["two values"])
    body = program.call.body
    lost = program.call.replace(src=(body.replace(src=body.src[:1]), *program.call.arguments))
    assert decide(replace(program, call=lost)).by is DecisionMethod.INTERPRETER


def test_pieces_that_overlap_are_not_proved() -> None:
    """Stores to the same elements of memory have no order, so either value may be there."""
    program = callified(SEVERAL["gathered"])
    stores = [u for u in toposort(program.call.body) if u.op is Op.STORE and u.buffer.op is Op.SHRINK]
    whole = stores[0].buffer.operand
    after = next(u for u in toposort(program.call.body) if u.op is Op.AFTER and stores[0] in u.src)
    both = after.replace(src=(*after.src, b.store(whole, b.const(0.0, dt.float32))))
    assert decide(replace(program, call=substitute(program.call, {after: both}))).by is DecisionMethod.INTERPRETER


# --------------------------------------------------------------------------------------- calls that an adversary wrote to be proved

X4 = b.param(0, (4,), dt.int32)
Y4 = b.param(1, (4,), dt.int32)
IOTA = b.stack(*[b.const(k, dt.int32) for k in range(4)])


def is_proved(root: UOp, effects: list[UOp], arguments: tuple[UOp, ...], written: tuple[int, ...]) -> bool:
    """Return True if a Call of these effects is proved to be a graph. `callify` gives the Buffers of its values."""
    call = UOp(Op.CALL, (b.sink(*effects), *arguments), CallArg(written=written))
    return decide(replace(callified(root), call=call)).by is not DecisionMethod.INTERPRETER


def output(root: UOp, k: int = 0) -> UOp:
    """Return the Buffer of a value of a graph."""
    return callified(root).buffers[k]


def on_cpu(slot: int) -> UOp:
    """Return the Param for memory of the program itself."""
    return b.param(slot, (4,), dt.int32, device="CPU")


def test_effects_in_the_view_of_an_output_are_effects() -> None:
    """A Store below the target of a Store is executed, too (FOUND 260)."""
    root = b.mul(X4, 2)
    hidden = b.after(on_cpu(1), b.store(b.param(0, (4,), dt.int32), b.mul(X4, 0)))
    assert not is_proved(root, [b.store(hidden, b.mul(X4, 2))], (X4, output(root)), (0, 1))
    assert is_proved(root, [b.store(on_cpu(1), b.mul(X4, 2))], (X4, output(root)), (1,))


@pytest.mark.parametrize("devices", [None, TWO], ids=["one", "two"])
def test_a_variable_of_the_body_is_the_one_that_is_passed(devices: tuple[str, ...] | None) -> None:
    """Which variable a Param stands for is said by the arguments."""
    n, m = (b.cast(b.variable(name, 0, 2), dt.int32) for name in "nm")
    root = b.add(b.mul(b.copy(X4, devices) if devices else X4, n), m)
    program = callified(root)
    named = [a for a in program.call.arguments if a.op is Op.PARAM and a.arg.name]
    swapped = dict(zip(named, named[::-1], strict=True))
    arguments = [swapped.get(a, a) for a in program.call.arguments]
    assert decide(program).by is not DecisionMethod.INTERPRETER
    call = program.call.replace(src=(program.call.body, *arguments))
    assert decide(replace(program, call=call)).by is DecisionMethod.INTERPRETER


def test_a_read_sees_all_stores_that_it_waits_for() -> None:
    """The positions of an Index are known before it reads, so it reads after the Stores for which they wait."""
    root = b.mul(b.copy(X4, TWO), 2)
    temporary, places = (b.buffer(4, dt.int32, unique=n) for n in (900, 901))
    p, out, t, j = b.param(0, (4,), dt.int32), on_cpu(1), on_cpu(2), on_cpu(3)
    first = b.store(t, b.mul(p, 2))
    second = b.store(b.after(t, first), b.mul(p, 3))
    position = b.cast(b.after(j, b.store(b.after(j, second), IOTA)), dt.index)
    late = b.at(b.after(t, first), position)
    assert not is_proved(root, [b.store(out, late)], (X4, output(root), temporary, places), (1, 2, 3))


def test_a_value_of_the_graph_is_read_after_what_it_waits_for() -> None:
    """The same in the graph: a body that reads early is another program."""
    doubled = b.store(X4, b.mul(X4, 2))
    root = b.at(X4, b.cast(b.after(Y4, b.store(b.after(Y4, doubled), IOTA)), dt.index))
    copied = b.contiguous(X4)
    first = b.store(X4, b.mul(copied, 2))
    effects = [b.store(on_cpu(2), copied), b.store(b.after(Y4, first), IOTA)]
    assert not is_proved(root, effects, (X4, Y4, output(root)), (0, 1, 2))


@pytest.mark.parametrize("value", [b.contiguous, lambda u: b.pad_by(u, (0, 0)), b.detach], ids=["copy", "padded", "detached"])
def test_a_value_that_waits_for_a_store_is_no_reference(value: Callable[[UOp], UOp]) -> None:
    """What waits is a value that was there before: it is not the memory after the Store."""
    root = b.after(X4, b.store(X4, b.mul(X4, 2)))
    done = b.after(value(X4), b.store(X4, b.mul(X4, 2)))
    assert not is_proved(root, [b.store(on_cpu(1), done)], (X4, output(root)), (0, 1))
    late = b.after(X4, b.store(X4, b.mul(X4, 2)))
    assert not is_proved(b.after(value(X4), b.store(X4, b.mul(X4, 2))), [b.store(on_cpu(1), late)], (X4, output(root)), (0, 1))


def test_an_argument_is_in_the_shape_of_its_param() -> None:
    """A Call passes elements in order, whatever shape they have (R86), and callify does so."""
    x, y = b.param(0, (2, 3), dt.int32), b.param(1, (6,), dt.int32)
    turned = b.reshape(b.permute(b.param(0, (3, 2), dt.int32), (1, 0)), (6,))
    root = b.after(y, b.call(b.sink(b.store(b.param(1, (6,), dt.int32), turned)), x, y, written=(1,)))
    assert decide(callified(root)).by is DecisionMethod.STRUCTURE
    wrong = b.after(y, b.store(y, b.reshape(b.permute(x, (1, 0)), (6,))))
    assert decide(replace(callified(root), root=wrong)).by is DecisionMethod.INTERPRETER


def test_a_param_of_the_caller_that_the_graph_does_not_name_is_left_alone() -> None:
    """Only Buffers of the program itself are its to write."""
    root = b.mul(b.copy(X4, TWO), 2)
    others = b.param(5, (4,), dt.int32)
    effects = [b.store(on_cpu(1), b.mul(X4, 2)), b.store(b.param(2, (4,), dt.int32), b.mul(X4, 0))]
    assert not is_proved(root, effects, (X4, output(root), others), (1, 2))
    assert is_proved(root, effects[:1], (X4, output(root)), (1,))


@pytest.mark.parametrize("is_ordered", [False, True])
def test_accesses_of_one_memory_are_ordered(is_ordered: bool) -> None:
    """Two values through one temporary are two values only if each is read before the next is stored (R55)."""
    root = b.tuple_(b.mul(b.copy(X4, TWO), 2), b.mul(b.copy(X4, TWO), 3))
    t = on_cpu(1)
    first = b.store(t, b.mul(X4, 2))
    second = b.store(b.after(t, first) if is_ordered else t, b.mul(X4, 3))
    effects = [b.store(on_cpu(2), b.after(t, first)), b.store(on_cpu(3), b.after(t, second))]
    arguments = (X4, b.buffer(4, dt.int32, unique=900), output(root), output(root, 1))
    assert not is_proved(root, effects, arguments, (1, 2, 3))


@pytest.mark.parametrize("root", [b.mul(X4, 2), b.mul(b.copy(X4, TWO), 2)], ids=["one", "two"])
def test_a_call_names_what_it_writes(root: UOp) -> None:
    """What is not declared is not written (R63)."""
    for written in ((), (0, 1)):
        assert not is_proved(root, [b.store(on_cpu(1), b.mul(X4, 2))], (X4, output(root)), written)


def test_memory_that_is_written_is_one_argument() -> None:
    """Two Params of one memory hide the order of its accesses, where the values are the same nodes, too."""
    first, second = (b.buffer(4, dt.int32, unique=n) for n in (900, 901))
    root = b.sink(b.store(first, b.mul(second, 2)), b.store(second, X4))
    p = [b.param(k, (4,), dt.int32) for k in range(4)]
    effects = [b.store(p[0], b.mul(p[1], 2)), b.store(p[3], p[2])]
    assert not is_proved(root, effects, (first, second, X4, second), (0, 3))


def test_stores_to_memory_of_symbolic_size_without_an_order_are_not_decided() -> None:
    """Whether they meet depends on variables."""
    n = b.variable("n", 1, 4)
    memory = b.param(0, (n,), dt.int32)
    root = b.sink(b.store(memory, b.mul(memory, 2)))
    effects = [b.store(b.param(0, (n,), dt.int32), b.const(k, dt.int32)) for k in (1, 2)]
    assert not is_proved(root, effects, (memory, n), (0,))
