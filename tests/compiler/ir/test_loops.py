"""Which loops an access runs in, and which loop threads may share."""

from uops.compiler.ir.loops import find_parallelizable_outer_thread_loop, map_nodes_of_ops_to_enclosing_loops
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
