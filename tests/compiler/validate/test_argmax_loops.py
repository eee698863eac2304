"""Argmax in one sweep stores what two reductions do, and a sweep with a fault is not proved."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.tensor import Tensor
from uops.compiler.tensor.realize import capture
from uops.compiler.validate.fingerprints.argmax_loops import rewrite_argmax_loops_as_reduces
from uops.compiler.validate.values import decide_equal_terms
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

pytest.importorskip("llvmlite")


@cache
def lower_argmax(dtype: str, columns: int = 128) -> tuple[UOp, UOp]:
    """Return the body of an argmax of rows, and the same after `widths`."""
    rows = Tensor(np.zeros((2, columns), dtype))
    lowered = record_lowering_up_to_plan(capture(rows.argmax(1)).graph, create_backend("llvm").target, Config(reuse=False))
    return lowered.graphs_by_pass["join"].src[0].body, lowered.graphs_by_select_step["widths"].src[0].body


def is_proved(before: UOp, after: UOp) -> bool:
    """Return True if a sweep is restated, and stores what the body does."""
    restated = rewrite_argmax_loops_as_reduces(after)
    return restated is not after and decide_equal_terms(before, restated).is_proved


@pytest.mark.parametrize("columns", [128, 8192])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_sweep_is_two_reductions(dtype: str, columns: int) -> None:
    """The loop over a row is gone from the places, and the comparison proves the rest."""
    assert is_proved(*lower_argmax(dtype, columns))


def change_each(op: Op, change: Callable[[UOp], UOp | None]) -> Callable[[UOp], list[UOp]]:
    """Return a function from a body to the bodies in each of which one node of `op` is changed."""

    def bodies(body: UOp) -> list[UOp]:
        return [substitute(body, {u: new}) for u in nodes_with_op(body, op) if (new := change(u)) is not None]

    return bodies


def starts_elsewhere(store: UOp) -> UOp | None:
    """Return the Store of a start that is one too small."""
    is_start = store.value.op is Op.SUB and base_memory(store.buffer).op is Op.BUFFER
    return store.replace(src=(store.buffer, b.sub(store.value, 1))) if is_start else None


def counts_fewer(body: UOp) -> list[UOp]:
    """Return the bodies in which a reduction misses its last iteration."""
    loops = [u for u in nodes_with_op(body, Op.RANGE) if u.arg.type is AxisType.REDUCE]
    return [substitute(body, {r: r.replace(src=(b.index(int(r.bound.arg.value) - 1),))}) for r in loops]


def compares_with_part(body: UOp) -> list[UOp]:
    """Return the bodies in which one operand of a Max is lost."""
    return [substitute(body, {u: u.src[k]}) for u in nodes_with_op(body, Op.MAX) for k in (0, 1)]


FAULTS = {
    "the last of equal elements": change_each(Op.CMPLE, lambda u: UOp(Op.CMPLT, u.src)),
    "the least element": change_each(Op.CMPLE, lambda u: UOp(Op.CMPLE, u.src[::-1])),
    "places that start elsewhere": change_each(Op.STORE, starts_elsewhere),
    "another element than the greatest": change_each(Op.CMPEQ, lambda u: UOp(Op.CMPLE, u.src)),
    "no NaN": change_each(Op.CMPNE, lambda u: UOp(Op.CMPLT, u.src)),
    "a choice the other way": change_each(Op.WHERE, lambda u: UOp(Op.WHERE, (u.src[0], u.src[2], u.src[1]))),
    "fewer elements": counts_fewer,
    "the greatest of some": compares_with_part,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sweep_with_a_fault_is_not_proved(fault: str) -> None:
    """Whether the law applies and what it states both depend on every node of the sweep."""
    before, after = lower_argmax("float32")
    spoiled = FAULTS[fault](after)
    assert spoiled
    assert not any(is_proved(before, s) for s in spoiled)


def test_places_that_are_used_otherwise_stay() -> None:
    """A place that is stored as it is has no Reduce in its stead."""
    _, after = lower_argmax("int32")
    (choice, *_) = [u for u in nodes_with_op(after, Op.WHERE) if u.if_true.op is Op.LOAD and u.if_false.op is not Op.LOAD]
    used = substitute(after, {choice: b.add(choice, choice.if_true)})
    assert toposort(used) != toposort(after)
    assert rewrite_argmax_loops_as_reduces(used) is used


# ------------------------------------------------------------------------------------------- sweeps that an adversary wrote


def sweep(
    started_outside: str = "", is_guarded: bool = False, missing: int = 0, initial: int = dt.int32.min, maximum: int | None = None
) -> UOp:
    """Return a sweep over each of 2 rows of 4 elements, one memory of which may be started once for all rows."""
    out, x = b.param(0, (2,), dt.int32), b.param(1, (8,), dt.int32)
    row, r = b.range_(2, 0), b.range_(4, 1, AxisType.REDUCE)
    column = b.cast(r, dt.int32)
    zero = b.const(0, dt.int32)
    memories = {name: b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=n) for n, name in enumerate(("greatest", "place"), 1)}

    def at(name: str, *effects: UOp) -> UOp:
        return UOp(Op.INDEX, (b.after(memories[name], *effects), zero))

    starts = {"greatest": b.const(initial, dt.int32), "place": b.const(4, dt.int32)}
    loops = {name: () if name == started_outside else (row,) for name in memories}
    at_start = {name: UOp(Op.INDEX, (b.after(memories[name], *loops[name]), zero)) for name in memories}
    started = {name: b.group(b.store(at_start[name], starts[name])) for name in memories}
    guard = (UOp(Op.IF, (b.ne(column, b.const(2, dt.int32)),)),) if is_guarded else ()
    address = {name: at(name, started[name], *(() if loops[name] else (row,)), r) for name in memories}
    if guard:
        address["place"] = at("place", started["place"], r, *guard)
    old = {name: b.load(address[name]) for name in memories}
    element = b.load(UOp(Op.INDEX, (x, b.add(b.mul(b.cast(row, dt.int32), 4), column))))
    better = UOp(Op.CMPLT, (old["greatest"], element))
    new = {"greatest": element, "place": b.sub(b.const(4, dt.int32), column)}
    stores = [b.store(address[name], b.where(better, new[name], old[name])) for name in memories]
    done = b.end(b.group(*stores, *(UOp(Op.ENDIF, (g,)) for g in guard)), r)
    greatest, place = (b.load(at(name, done)) for name in memories)
    compared = greatest if maximum is None else b.const(maximum, dt.int32)
    chosen = b.where(UOp(Op.CMPEQ, (greatest, compared)), place, b.const(missing, dt.int32))
    return b.sink(b.end(b.store(UOp(Op.INDEX, (out, b.cast(row, dt.int32))), chosen), row), name="k")


def test_a_sweep_of_scalars_is_restated() -> None:
    """The law does not need vectors."""
    body = sweep()
    assert rewrite_argmax_loops_as_reduces(body) is not body


@pytest.mark.parametrize("memory", ["greatest", "place"])
def test_memory_that_is_started_once_for_all_rows_is_not_restated(memory: str) -> None:
    """It begins a row with what the row before has left."""
    body = sweep(started_outside=memory)
    assert rewrite_argmax_loops_as_reduces(body) is body


def test_a_guarded_sweep_is_not_restated() -> None:
    """An If may skip the Store of a place."""
    body = sweep(is_guarded=True)
    assert rewrite_argmax_loops_as_reduces(body) is body


@pytest.mark.parametrize(("missing", "is_rewritten"), [(1, True), (2, False)])
def test_a_value_for_no_maximum_is_at_most_every_index(missing: int, is_rewritten: bool) -> None:
    """A Max over the row would give it in place of a lesser index."""
    body = sweep(missing=missing)
    assert (rewrite_argmax_loops_as_reduces(body) is not body) is is_rewritten


@pytest.mark.parametrize("fault", [{"initial": 0}, {"maximum": 7}], ids=["start", "comparison"])
def test_a_loop_that_starts_higher_or_is_compared_with_no_maximum_is_not_rewritten(fault: dict[str, int]) -> None:
    """Elements below the start are never seen, and a lesser element may equal what is no maximum."""
    body = sweep(**fault)  # type: ignore[arg-type]
    assert rewrite_argmax_loops_as_reduces(body) is body
