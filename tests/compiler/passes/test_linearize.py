"""The block of an If holds what the If guards; lists written by hand get the memory that they leave out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from uops.compiler.passes.linearize import linearize_kernel
from uops.interp import run
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, LoadArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify


def test_params_and_buffers_that_are_not_listed_come_first() -> None:
    out, register = b.param(0, (1,), dt.int32), b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=1)
    zero = b.const(0, dt.int32)
    at, inner = b.at(out, zero), b.at(register, zero)
    first = b.store(inner, zero)
    value = b.load(b.at(b.after(register, first), zero))
    effect = b.store(at, value)
    listed = (at, inner, first, value.buffer.operand, value.buffer, value, effect)
    linear = linearize_kernel(UOp(Op.LINEAR, listed))
    assert linear.src == (out, register, *listed)
    assert linearize_kernel(linear) is linear


N = 3
OUT, OTHER, IN = (b.param(k, (N * N,), dt.int32) for k in range(3))
ROW, COLUMN = b.range_(N, 0), b.range_(N, 1)
CELL = b.add(b.mul(b.cast(ROW, dt.int32), b.const(N, dt.int32)), b.cast(COLUMN, dt.int32))


def load(memory: UOp, at: UOp) -> UOp:
    return UOp(Op.LOAD, (b.at(memory, at),), LoadArg())


def is_below(x: UOp, limit: int) -> UOp:
    return b.lt(x, b.const(limit, dt.int32))


def branch(condition: UOp) -> tuple[UOp, UOp]:
    """Return an If and its Endif."""
    opening = UOp(Op.IF, (condition,))
    return opening, UOp(Op.ENDIF, (opening,))


def check_list_against_graph(*effects: UOp) -> list[UOp]:
    """Linearize the loops of some effects, compare both forms in the interpreter, and return the instructions."""
    body = b.sink(*effects)
    buffers = [b.buffer(N * N, dt.int32, unique=k) for k in (1, 2, 3)]
    graph, listed = (UOp(Op.LINEAR, (b.call(x, *buffers, written=(0, 1)),)) for x in (body, linearize_kernel(body)))
    verify(listed, Dialect.LINEAR)
    values = np.array([0, 3, 1, 2, 0, 3, 2, 1, 1], np.int32)
    given = {"b1": np.full(N * N, -1, np.int32), "b2": np.full(N * N, -2, np.int32), "b3": values}
    want, got = run(graph, given).buffers, run(listed, given).buffers
    assert want.keys() == got.keys() and all(np.array_equal(want[k], got[k]) for k in want)
    return list(listed.src[0].body.src)


def block_of(instructions: list[UOp], opening: UOp) -> list[UOp]:
    """Return the instructions between an If and its Endif."""
    end = next(k for k, u in enumerate(instructions) if u.op is Op.ENDIF and u.if_node is opening)
    return instructions[instructions.index(opening) + 1 : end]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_the_block_of_an_if_holds_its_stores_and_no_other(order: tuple[int, ...]) -> None:
    opening, closing = branch(is_below(load(IN, ROW), 2))
    guarded = b.store(b.at(b.after(OUT, opening), ROW), b.cast(ROW, dt.int32))
    other = b.store(b.at(OTHER, ROW), b.cast(ROW, dt.int32))
    effects = (guarded, closing, other)
    listed = check_list_against_graph(b.end(b.group(*[effects[k] for k in order]), ROW))
    assert guarded in block_of(listed, opening) and other not in block_of(listed, opening)


def test_an_if_without_its_endif_gets_one() -> None:
    """R114: an Endif adds nothing, so a graph need not have it."""
    opening, _ = branch(is_below(load(IN, ROW), 2))
    guarded = b.store(b.at(b.after(OUT, opening), ROW), b.cast(ROW, dt.int32))
    assert guarded in block_of(check_list_against_graph(b.end(guarded, ROW)), opening)


def test_an_if_stands_in_a_loop_that_has_other_stores() -> None:
    """The condition depends on the rows alone; the loop over the columns has a Store that the If does not guard."""
    opening, closing = branch(is_below(load(IN, ROW), 2))
    guarded, other = b.store(b.at(b.after(OUT, opening), CELL), CELL), b.store(b.at(OTHER, CELL), CELL)
    listed = check_list_against_graph(b.end(b.group(b.end(b.group(guarded, other), COLUMN), closing), ROW))
    assert listed.index(opening) > listed.index(COLUMN)


def test_a_loop_stands_in_an_if_that_loads_before_it() -> None:
    opening, closing = branch(is_below(load(IN, ROW), 2))
    value = load(b.after(IN, opening), ROW)
    guarded = b.store(b.at(b.after(OUT, opening), CELL), value)
    listed = check_list_against_graph(b.end(b.group(b.end(guarded, COLUMN), closing), ROW))
    assert {COLUMN, value, guarded} <= set(block_of(listed, opening))


def test_a_store_that_waits_for_a_guarded_one_follows_the_block() -> None:
    opening, _ = branch(is_below(load(IN, ROW), 2))
    guarded = b.store(b.at(b.after(OUT, opening), ROW), b.cast(ROW, dt.int32))
    other = b.store(b.at(OTHER, ROW), load(b.after(OUT, guarded), ROW))
    listed = check_list_against_graph(b.end(b.group(other, guarded), ROW))
    assert other not in block_of(listed, opening) and listed.index(other) > listed.index(guarded)


@pytest.mark.parametrize("is_inner_guarded", [True, False])
def test_of_two_ifs_the_one_with_fewer_stores_stands_in_the_other(is_inner_guarded: bool) -> None:
    outer, _ = branch(is_below(load(IN, ROW), 3))
    inner, _ = branch(is_below(load(b.after(OTHER, outer) if is_inner_guarded else IN, ROW), 1))
    both = b.store(b.at(b.after(b.after(OUT, outer), inner), ROW), b.cast(ROW, dt.int32))
    one = b.store(b.at(b.after(OUT, outer), b.add(b.cast(ROW, dt.int32), b.const(N, dt.int32))), b.cast(ROW, dt.int32))
    listed = check_list_against_graph(b.end(b.group(both, one), ROW))
    assert {inner, both, one} <= set(block_of(listed, outer))
    assert [u for u in block_of(listed, inner) if u.op is Op.STORE] == [both]


def test_a_block_that_cannot_be_contiguous_is_refused() -> None:
    """A Store outside waits for one inside, and another one inside waits for it."""
    opening, _ = branch(is_below(load(IN, ROW), 2))
    first = b.store(b.at(b.after(OUT, opening), ROW), b.cast(ROW, dt.int32))
    second = b.store(b.at(OTHER, ROW), load(b.after(OUT, first), ROW))
    shifted = b.add(b.cast(ROW, dt.int32), b.const(N, dt.int32))
    third = b.store(b.at(b.after(b.after(OUT, second), opening), shifted), b.cast(ROW, dt.int32))
    with pytest.raises(CompileError, match=r"R58 \(End\) at .* its block would have to be entered twice"):
        linearize_kernel(b.sink(b.end(b.group(first, second, third), ROW)))


def test_an_unguarded_store_in_a_loop_inside_of_an_if_is_refused() -> None:
    opening, _ = branch(is_below(load(IN, ROW), 2))
    value = load(b.after(IN, opening), ROW)  # once per row, in the If, so the loop over the columns is in the If, too
    guarded, other = b.store(b.at(OUT, CELL), value), b.store(b.at(OTHER, CELL), CELL)
    with pytest.raises(CompileError, match=r"R114 \(If\) at .* = store .* inside of an If that does not guard it"):
        linearize_kernel(b.sink(b.end(b.end(b.group(guarded, other), COLUMN), ROW)))


def test_ifs_that_overlap_in_part_are_refused() -> None:
    first, second = (branch(is_below(load(IN, ROW), k))[0] for k in (1, 2))
    memories = (b.after(OUT, first), b.after(b.after(OTHER, first), second), b.after(IN, second))
    stores = [b.store(b.at(m, ROW), b.cast(ROW, dt.int32)) for m in memories]
    with pytest.raises(CompileError, match=r"R58 \(End\) at .* 2 ifs do not nest"):
        linearize_kernel(b.sink(b.end(b.group(*stores), ROW)))
