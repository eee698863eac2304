"""The loops of a kernel as read off its graph or list: nesting, order, guards, and what cannot be nested."""

from __future__ import annotations

import pytest

from uops.interp.kernel.structure.blocks import (
    KernelStructure,
    Loop,
    ScheduledBlock,
    build_kernel_structure,
    closed_ranges_outermost_first,
)
from uops.interp.kernel.structure.launch import wrap_specials_as_loops
from uops.interp.kernel.structure.shuffle import shuffle_item_order
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

P0, P1 = b.param(0, (64,), dt.int32), b.param(1, (64,), dt.int32)


def built(root: UOp) -> KernelStructure:
    return build_kernel_structure(root, lambda u: u.op is Op.PARAM)


def copy(i: UOp, source: UOp = P0, target: UOp = P1) -> UOp:
    return b.store(b.at(target, i), b.load(b.at(source, i)))


def position(block: ScheduledBlock, u: UOp) -> int:
    return next(k for k, x in enumerate(block.items) if x is u or (isinstance(x, Loop) and u in (x.range, x.closer)))


def before(block: ScheduledBlock, first: UOp, then: UOp) -> bool:
    return bool(block.before[position(block, then)] >> position(block, first) & 1)


def loop(block: ScheduledBlock, r: UOp) -> Loop:
    found = block.items[position(block, r)]
    assert isinstance(found, Loop)
    return found


def listed(*items: UOp) -> UOp:
    return UOp(Op.LINEAR, items)


# Nesting


def test_single_ends_nest_as_written() -> None:
    i, j = b.range_(4, 1), b.range_(3, 2)
    root = b.sink(b.end(b.end(copy(b.add(b.mul(i, 3), j)), j), i))
    outer = loop(built(root).block, i)
    assert loop(outer.block, j).closer.op is Op.END
    assert (outer.outermost, outer.innermost) == (True, True)


def test_ranges_of_one_end_nest_by_priority_then_axis_id() -> None:
    g, u, r = b.range_(2, 9, AxisType.GLOBAL), b.range_(2, 1, AxisType.UPCAST), b.range_(2, 0, AxisType.LOOP)
    index = b.add(b.add(b.mul(g, 4), b.mul(u, 2)), r)
    block = built(b.sink(b.end(copy(index), u, g, r))).block
    for kind, first, last in ((r, True, False), (g, False, False), (u, False, True)):
        found = loop(block, kind)
        assert (found.range, found.outermost, found.innermost) == (kind, first, last)
        block = found.block


def test_what_a_loop_does_not_change_stands_before_it() -> None:
    i = b.range_(4, 1)
    invariant = b.load(b.at(P0, 3))
    block = built(b.sink(b.end(b.store(b.at(P1, i), invariant), i))).block
    assert position(block, invariant) < position(block, i)
    assert before(block, invariant, i)


def test_an_after_puts_a_node_inside_a_loop() -> None:
    i = b.range_(4, 1)
    reg = b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=1)
    init = b.store(b.at(b.after(reg, i), 0), b.const(0, dt.int32))
    value = b.load(b.at(b.after(reg, init), 0))
    kernel = built(b.sink(b.end(b.store(b.at(P1, i), value), i)))
    assert kernel.path[init] == (i,)
    assert before(loop(kernel.block, i).block, init, value)


def test_a_bound_may_depend_on_an_outer_range() -> None:
    i = b.range_(4, 1)
    j = b.range_(b.add(i, 1), 2)
    kernel = built(b.sink(b.end(b.end(copy(j), j), i)))
    assert kernel.path[j] == (i,)
    assert loop(loop(kernel.block, i).block, j).range is j


def test_a_reduce_of_what_its_range_does_not_change_still_has_a_loop() -> None:
    r = b.range_(5, 1, AxisType.REDUCE)
    value = b.load(b.at(P0, 0))
    total = UOp(Op.REDUCE, (value, r), b.reduce(P0, Op.ADD, (0,)).arg.__class__(Op.ADD))
    block = built(b.sink(b.store(b.at(P1, 0), total))).block
    assert before(block, value, r)
    assert loop(block, r).block.items == ()


def test_equal_paths_of_many_nodes_are_one_tuple() -> None:
    i = b.range_(4, 1)
    kernel = built(b.sink(b.end(copy(b.add(b.add(i, 1), b.mul(i, 2))), i)))
    assert len({id(p) for u, p in kernel.path.items() if p}) <= 2


# Order


def test_unrelated_effects_are_unordered_and_dependencies_are_transitive() -> None:
    first, second = b.store(b.at(P0, 0), b.const(1, dt.int32)), b.store(b.at(P0, 1), b.const(2, dt.int32))
    then = b.store(b.at(b.after(P0, first), 2), b.const(3, dt.int32))
    last = b.store(b.at(b.after(P0, then), 3), b.const(4, dt.int32))
    block = built(b.sink(first, second, last)).block
    assert before(block, first, then)
    assert before(block, first, last)
    assert not before(block, first, second)
    assert not before(block, second, first)


def test_order_passes_through_groups_and_through_nodes_without_effect() -> None:
    first = b.store(b.at(P0, 0), b.const(1, dt.int32))
    second = b.store(b.at(P0, 1), b.const(1, dt.int32))
    value = b.after(b.const(5, dt.int32), b.group(b.group(first), second))
    last = b.store(b.at(P1, 0), b.add(value, 1))
    block = built(b.sink(last)).block
    assert before(block, first, last)
    assert before(block, second, last)


def test_a_loop_comes_after_what_its_inside_waits_for() -> None:
    first = b.store(b.at(P0, 0), b.const(1, dt.int32))
    i = b.range_(4, 1)
    end = b.end(b.store(b.at(P1, i), b.load(b.at(b.after(P0, first), i))), i)
    other = b.range_(4, 2)
    block = built(b.sink(end, b.end(b.store(b.at(b.after(P1, end), b.add(other, 4)), b.const(0, dt.int32)), other))).block
    assert before(block, first, i)
    assert before(block, i, other)
    assert before(block, first, other)


def test_shuffled_keeps_every_order_and_finds_others() -> None:
    stores = [b.store(b.at(P0, k), b.const(k, dt.int32)) for k in range(6)]
    last = b.store(b.at(b.after(P0, stores[0], stores[5]), 7), b.const(9, dt.int32))
    kernel = built(b.sink(*stores, last))
    orders = set()
    for seed in range(40):
        block = shuffle_item_order(kernel, seed).block
        order = [position(block, s) for s in stores]
        orders.add(tuple(order))
        for k, s in enumerate(stores):
            assert before(block, s, last) == (k in (0, 5))
            assert k not in (0, 5) or order[k] < position(block, last)
    assert len(orders) > 10


def test_shuffled_reaches_inner_blocks() -> None:
    i = b.range_(4, 1)
    effects = [b.store(b.at(P1, b.add(b.mul(i, 4), k)), b.const(k, dt.int32)) for k in range(4)]
    kernel = built(b.sink(b.end(b.group(*effects), i)))
    orders = {tuple(position(loop(shuffle_item_order(kernel, s).block, i).block, e) for e in effects) for s in range(20)}
    assert len(orders) > 3


def test_a_list_leaves_no_order_open() -> None:
    first, second = b.store(b.at(P0, 0), b.const(1, dt.int32)), b.store(b.at(P0, 1), b.const(2, dt.int32))
    kernel = built(listed(P0, first.src[0], first, second.src[0], second))
    assert before(kernel.block, first, second)
    assert not before(kernel.block, second, first)
    same = shuffle_item_order(kernel, 3).block
    assert same.items == kernel.block.items
    assert list(same.before) == [(1 << k) - 1 for k in range(len(same.items))]
    assert kernel.block.before[1:3] == [1, 3]


# Ifs


def test_an_if_guards_what_depends_on_it_and_no_more() -> None:
    condition = UOp(Op.IF, (b.lt(b.load(b.at(P0, 0)), 3),))
    inside = b.store(b.at(b.after(P1, condition), 0), b.const(1, dt.int32))
    outside = b.store(b.at(P1, 1), b.const(2, dt.int32))
    later = b.store(b.at(b.after(P1, inside), 2), b.const(3, dt.int32))
    block = built(b.sink(UOp(Op.ENDIF, (condition,)), inside, outside, later)).block
    guards = dict(zip(block.items, block.guards))
    assert guards[inside] == (condition,)
    assert guards[outside] == ()
    assert guards[later] == ()


def test_nested_ifs_guard_together() -> None:
    outer = UOp(Op.IF, (b.lt(b.load(b.at(P0, 0)), 3),))
    x = b.after(b.load(b.at(P0, 1)), outer)
    inner = UOp(Op.IF, (b.lt(x, 3),))
    inside = b.store(b.at(b.after(P1, inner), 0), b.const(1, dt.int32))
    block = built(b.sink(inside)).block
    guards = dict(zip(block.items, block.guards))
    assert set(guards[inside]) == {outer, inner}
    assert guards[inner] == (outer,)


def test_a_list_guards_by_position() -> None:
    gate = b.lt(b.load(b.at(P0, 0)), 3)
    condition = UOp(Op.IF, (gate,))
    inside, outside = b.store(b.at(P1, 0), b.const(1, dt.int32)), b.store(b.at(P1, 1), b.const(2, dt.int32))
    block = built(listed(gate.src[0], gate, condition, inside, UOp(Op.ENDIF, (condition,)), outside)).block
    guards = dict(zip(block.items, block.guards))
    assert guards[inside] == (condition,)
    assert guards[outside] == ()


# Specials


def test_specials_become_loops_workgroups_outside_sorted_by_name() -> None:
    names = ("lidx10", "gidx1", "lidx2", "gidx0", "other")
    specials = [UOp(Op.SPECIAL, (b.index(2),), SpecialArg(n)) for n in names]
    index = specials[0]
    for s in specials[1:]:
        index = b.add(index, s)
    kernel = wrap_specials_as_loops(built(b.sink(copy(index))))
    order, block = [], kernel.block
    while block.items and isinstance(block.items[0], Loop):
        order.append(block.items[0].range.arg.name)
        block = block.items[0].block
    assert order == ["gidx0", "gidx1", "lidx2", "lidx10", "other"]
    assert [x.op for x in block.items if isinstance(x, UOp)].count(Op.SPECIAL) == 0


def test_a_special_with_two_bounds_is_refused() -> None:
    x, y = (UOp(Op.SPECIAL, (b.index(n),), SpecialArg("lidx0")) for n in (2, 3))
    with pytest.raises(SpecError, match="'lidx0' has two bounds"):
        wrap_specials_as_loops(built(b.sink(copy(b.add(x, y)))))


# Faults


def test_a_range_that_nothing_closes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"axis 7 is used by .* and never closed"):
        built(b.sink(copy(b.range_(4, 7))))


def test_a_range_closed_twice_is_refused() -> None:
    i = b.range_(4, 1)
    with pytest.raises(SpecError, match="axis 1 is closed more than once"):
        built(b.sink(b.end(copy(i), i), b.end(copy(i, P1, P0), i)))


def test_ranges_of_which_neither_encloses_the_other_are_refused() -> None:
    i, j = b.range_(4, 1), b.range_(4, 2)
    v = b.load(b.at(P0, i))
    w = b.load(b.at(P0, j))
    root = b.sink(b.end(b.store(b.at(P1, i), v), i), b.end(b.store(b.at(P1, b.add(j, 8)), w), j), b.store(b.at(P1, 0), b.add(v, w)))
    with pytest.raises(SpecError, match=r"axes (1 and 2|2 and 1) are open at one node"):
        built(root)


def test_a_bound_that_depends_on_a_loop_inside_is_refused() -> None:
    j = b.range_(4, 2, AxisType.REDUCE)
    i = b.range_(b.add(j, 1), 1, AxisType.LOOP)
    with pytest.raises(SpecError, match="axis 1 stands inside of its own loop"):
        built(b.sink(b.end(b.end(copy(b.add(i, j)), j), i)))


def test_a_bound_puts_a_loop_inside_of_another_one_of_its_end() -> None:
    """R109: it goes before the types and the ids."""
    j = b.range_(4, 2, AxisType.REDUCE)
    i = b.range_(b.add(j, 1), 1, AxisType.LOOP)
    assert closed_ranges_outermost_first(b.end(copy(b.add(i, j)), i, j)) == (j, i)
    assert closed_ranges_outermost_first(b.end(copy(b.add(i, j)), j, i)) == (j, i)


def test_loops_that_wait_for_each_other_are_refused() -> None:
    """An outer loop's end that its own inside waits for."""
    i, j = b.range_(4, 1), b.range_(4, 2)
    first = b.end(copy(i), i)
    value = b.load(b.at(b.after(P0, first), i))
    with pytest.raises(SpecError, match=r"closed|waits|inside"):
        built(b.sink(b.end(b.store(b.at(P1, b.add(i, j)), value), j)))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (lambda i, j: (i, j, b.end(copy(i), i)), "end does not close the innermost block"),
        (lambda i, j: (i, copy(i)), "1 blocks are left open"),
        (lambda i, j: (i, b.end(copy(i), i), b.end(copy(j), j)), "end does not close"),
        (lambda i, j: (UOp(Op.ENDIF, (UOp(Op.IF, (b.const(True),)),)),), "endif does not close"),
        (lambda i, j: (UOp(Op.IF, (b.const(True),)),), "1 blocks are left open"),
        (lambda i, j: (i, UOp(Op.IF, (b.const(True),)), b.end(copy(i), i)), "end does not close"),
    ],
)
def test_a_list_whose_blocks_do_not_nest_is_refused(items: object, message: str) -> None:
    i, j = b.range_(4, 1), b.range_(4, 2)
    assert callable(items)
    with pytest.raises(SpecError, match=message):
        built(listed(*items(i, j)))


# Size


def test_a_graph_of_a_hundred_thousand_nodes_deep_is_no_problem() -> None:
    i = b.range_(4, 1)
    value = b.load(b.at(P0, i))
    one = b.const(1, dt.int32)
    for _ in range(100_000):
        value = UOp(Op.ADD, (value, one))
    kernel = built(b.sink(b.end(b.store(b.at(P1, i), value), i)))
    block = loop(kernel.block, i).block
    assert len(block.items) - 100_000 == 4
    assert len(loop(shuffle_item_order(kernel, 1).block, i).block.items) == len(block.items)


def test_a_long_list_of_effects_is_no_problem() -> None:
    stores = [b.store(b.at(P0, k % 64), b.const(k, dt.int32)) for k in range(20_000)]
    block = built(listed(P0, *(x for s in dict.fromkeys(stores) for x in (s,)))).block
    assert before(block, stores[0], stores[-1])


def test_shared_groups_are_not_walked_twice() -> None:
    node = b.store(b.at(P0, 0), b.const(1, dt.int32))
    for _ in range(60):
        node = b.group(node, node)
    last = b.store(b.at(b.after(P1, node), 0), b.const(1, dt.int32))
    assert len(built(b.sink(last)).block.items) > 2
