"""The values of callified programs are those of their tensor graphs, and programs with other values are not proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from uops.compiler.log import CallifiedGraph
from uops.compiler.passes.callify.callify import convert_graph_to_call
from uops.compiler.validate.arrays.callified import decide_values_of_callified_program
from uops.compiler.validate.model import DecisionMethod, ValidationVerdict
from uops.compiler.validate.values import decide_equal_terms
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
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
