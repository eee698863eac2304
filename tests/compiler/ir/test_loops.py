"""Which loops an access runs in, and which loop threads may share."""

from uops.compiler.ir.loops import (
    bind_accesses_to_loops_and_split_ends,
    find_parallelizable_outer_thread_loop,
    map_nodes_of_ops_to_enclosing_loops,
)
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CustomArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def _listed(*effects):
    return [u for u in toposort(*effects) if u.op is not Op.CONST and u.op is not Op.STACK]


def test_native_text_outside_of_a_loop_is_run_once():
    p, r = b.param(0, (4,), dt.int32), b.range_(4, 0, AxisType.THREAD)
    loop = b.end(b.store(b.at(p, r), b.cast(r, dt.int32)), r)
    text = UOp(Op.CUSTOM, (b.after(p, loop),), CustomArg("use({0});", dt.void))
    assert find_parallelizable_outer_thread_loop(_listed(text)) is None


def test_what_a_barrier_in_an_end_waits_for_runs_in_the_loop():
    p, r = b.param(0, (4,), dt.int32), b.range_(4, 0)
    store = b.store(b.at(p, 0), b.const(1, dt.int32))
    end = b.end(UOp(Op.BARRIER, (store,)), r)
    assert map_nodes_of_ops_to_enclosing_loops(toposort(end), frozenset({Op.STORE})) == {store: {r}}


def test_an_effect_runs_in_every_loop_that_its_end_closes():
    p, i, j = b.param(0, (4,), dt.int32), b.range_(4, 0), b.range_(2, 1)
    store = b.store(b.at(p, i), b.const(1, dt.int32))
    assert map_nodes_of_ops_to_enclosing_loops(toposort(b.end(store, j, i)), frozenset({Op.STORE})) == {store: {i, j}}
    assert map_nodes_of_ops_to_enclosing_loops(toposort(b.end(store, i, j)), frozenset({Op.STORE})) == {store: {i, j}}


def _load_into_loop(address, *, of_other_param=False):
    """Return a kernel that adds up elements of its first Param, and the memory that its Load reads once loops are bound."""
    p, r = b.param(0, (4,), dt.int32), b.range_(4, 0)
    source = b.param(1, (4,), dt.int32) if of_other_param else p
    stored = b.store(b.at(p, r), b.add(b.load(b.at(source, address(r))), b.const(1, dt.int32)))
    body = b.sink(b.end(stored, r))
    bound = bind_accesses_to_loops_and_split_ends(body, {0: 0, 1: 0} if of_other_param == "alias" else {})
    (load,) = [u for u in toposort(bound) if u.op is Op.LOAD]
    return load.buffer.operand, r


def test_a_position_that_may_be_folded_does_not_bind_a_load_to_its_loop():
    memory, r = _load_into_loop(lambda r: b.mod(b.mul(r, 0), 4))
    assert memory.op is Op.AFTER and memory.dependencies == (r,)
    memory, r = _load_into_loop(lambda r: b.mod(b.mul(r, 0), 4), of_other_param="alias")
    assert memory.op is Op.AFTER and memory.dependencies == (r,)


def test_a_position_that_counts_a_loop_binds_a_load_to_it():
    assert _load_into_loop(lambda r: b.sub(3, r))[0].op is Op.PARAM


def test_a_load_of_memory_that_the_kernel_does_not_write_may_leave_its_loop():
    assert _load_into_loop(lambda r: b.mod(b.mul(r, 0), 4), of_other_param=True)[0].op is Op.PARAM


def test_a_store_alone_needs_no_order_in_its_loop():
    """The kernel is scheduled as if its position were `r`."""
    p, r = b.param(0, (8,), dt.int32), b.range_(8, 0)
    stored = b.store(b.at(p, b.add(b.mul(b.idiv(r, 4), 4), b.mod(r, 4))), b.cast(r, dt.int32))
    body = b.sink(b.end(stored, r))
    assert bind_accesses_to_loops_and_split_ends(body) is body


def test_a_store_stays_in_a_loop_that_may_not_run():
    p, n = b.param(0, (1,), dt.int32), b.variable("n", 0, 4, slot=1)
    r = b.range_(n, 0)
    body = b.sink(b.end(b.store(b.at(p, b.mul(r, 0)), b.const(5, dt.int32)), r))
    (store,) = [u for u in toposort(bind_accesses_to_loops_and_split_ends(body)) if u.op is Op.STORE]
    assert store.buffer.operand.op is Op.AFTER and store.buffer.operand.dependencies == (r,)


def test_native_text_binds_what_it_may_write():
    p, r = b.param(0, (4,), dt.int32), b.range_(4, 0)
    text = UOp(Op.CUSTOM, (b.at(p, r), b.load(b.at(p, b.mul(r, 0)))), CustomArg("{0} = {1};", dt.void))
    (load,) = [u for u in toposort(bind_accesses_to_loops_and_split_ends(b.sink(b.end(text, r)))) if u.op is Op.LOAD]
    assert load.buffer.operand.op is Op.AFTER and load.buffer.operand.dependencies == (r,)
