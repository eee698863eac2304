"""Kernel cases of lanes, memory and control: Barrier, Special, If, Endif, AtomicAdd, LOCAL and REG Buffers, gates and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from uops.backends.conformance.cases.common import SAMPLE, Inputs
from uops.backends.conformance.cases.launches import (
    KernelBuilder,
    barrier,
    copy_element,
    local_memory,
    make_launch,
    make_launch_case,
    register_memory,
    small_numbers,
    special,
)
from uops.backends.conformance.cases.loops import BuildEffects, BuildLaunch, single_kernel
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Lanes of most workgroups, and their number.
LANES, GROUPS = 8, 3
#: Makes the counters of groups and lanes, and the loops to close around the effects, outermost first.
MakeItems = Callable[[KernelBuilder], tuple[UOp, UOp, Sequence[UOp]]]


def make_lane_counters(kind: AxisType, groups: AxisType = AxisType.GLOBAL) -> MakeItems:
    """Return the maker of the counters of workgroups and of their lanes, as loops of these types."""

    def make(k: KernelBuilder) -> tuple[UOp, UOp, Sequence[UOp]]:
        g, i = k.make_range(GROUPS, groups), k.make_range(LANES, kind)
        return g, i, (g, i)

    return make


def _specials(k: KernelBuilder) -> tuple[UOp, UOp, Sequence[UOp]]:
    return special("gidx0", GROUPS), special("lidx0", LANES), ()


# ------------------------------------------------------------------------------------------------------------- Barrier


def reverse_in_workgroup(items: MakeItems) -> BuildEffects:
    """Build lanes that fill LOCAL memory, meet, and read each other's elements."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, GROUPS * LANES), k.add_target(d, GROUPS * LANES)
        tile = local_memory(LANES, d)
        g, i, loops = items(k)
        position = b.add(b.mul(g, LANES), i)
        met = barrier(copy_element(tile, i, source, position))
        return (b.wrap_in_one_end_per_loop(copy_element(target, position, b.after(tile, met), b.sub(LANES - 1, i)), loops),)

    return build


def _exchange_twice_through_local_memory(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that pass elements on twice through the same LOCAL memory, with a Barrier before each use of it."""
    source, target, tile = k.add_source(d, LANES), k.add_target(d, LANES), local_memory(LANES, d)
    i = k.make_range(LANES, AxisType.LOCAL)
    first = barrier(copy_element(tile, i, source, i))
    x = b.load(b.at(b.after(tile, first), b.sub(LANES - 1, i)))
    all_have_read = barrier(b.store(b.at(target, i), x))
    second = barrier(b.store(b.at(b.after(tile, all_have_read), i), x))
    y = b.load(b.at(b.after(tile, second), b.mod(b.add(i, 3), LANES)))
    return (b.end(b.store(b.at(b.after(target, second), i), y), i),)


def _rotate_local_memory_in_loop(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that rotate LOCAL memory once per iteration of a loop that holds two Barriers."""
    source, target, tile = k.add_source(d, LANES), k.add_target(d, LANES), local_memory(LANES, d)
    i, r = k.make_range(LANES, AxisType.LOCAL), k.make_range(2)
    filled = b.after(tile, barrier(copy_element(tile, i, source, i)))
    kept = register_memory(1, d, 2)
    entered = b.after(filled, r)
    read = barrier(b.store(b.at(kept, 0), b.load(b.at(entered, b.mod(b.add(i, 1), LANES)))))
    written = barrier(b.store(b.at(b.after(entered, read), i), b.load(b.at(b.after(kept, read), 0))))
    done = b.end(written, r)
    return (b.end(copy_element(target, i, b.after(filled, done), i), i),)


def _meet_over_global_memory(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that exchange elements in GLOBAL memory, which a Barrier orders, too (R60)."""
    source, between, target = k.add_source(d, LANES), k.add_target(d, LANES), k.add_target(d, LANES)
    i = k.make_range(LANES, AxisType.LOCAL)
    met = barrier(copy_element(between, i, source, i))
    return (b.end(copy_element(target, i, b.after(between, met), b.mod(b.add(i, 5), LANES)), i),)


def _transpose_local_memory_across_barrier(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build a workgroup of two dimensions that transposes LOCAL memory."""
    source, target, tile = k.add_source(d, 12), k.add_target(d, 12), local_memory(12, d)
    i, j = k.make_range(3, AxisType.LOCAL), k.make_range(4, AxisType.LOCAL)
    position = b.add(b.mul(i, 4), j)
    met = barrier(copy_element(tile, position, source, position))
    transposed = b.add(b.mul(b.mod(position, 3), 4), b.idiv(position, 3))
    return (b.end(b.end(copy_element(target, position, b.after(tile, met), transposed), j), i),)


# ------------------------------------------------------------------------------------------------------------- Special


def _copy_reversed_by_specials(*bounds: tuple[str, int]) -> BuildEffects:
    """Build a copy in reverse whose position is made of Specials, the first one slowest."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        n = int(np.prod([bound for _, bound in bounds]))
        source, target = k.add_source(d, n), k.add_target(d, n)
        position: UOp = b.index(0)
        for name, bound in bounds:
            position = b.add(b.mul(position, bound), special(name, bound))
        return (copy_element(target, position, source, b.sub(n - 1, position)),)

    return build


def _copy_reversed_by_symbolic_special(name: str) -> BuildEffects:
    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 9), k.add_target(d, 9)
        i = special(name, k.add_variable("n", 1, 9, 5))
        return (copy_element(target, b.sub(8, i), source, i),)

    return build


# ---------------------------------------------------------------------------------------------------------- If, Endif


def _counter(i: UOp) -> UOp:
    return b.cast(i, dt.int32)


def _list_with_blocks(d: DType, inputs: Inputs, make: Callable[[KernelBuilder, UOp, UOp, UOp, UOp], Sequence[UOp]]) -> UOp:
    """Build a list of instructions in a loop: `make` gives the instructions that follow source, target, gates and counter."""
    k = KernelBuilder(inputs)
    source, target = k.add_source(d, 9), k.add_target(d, 18)
    gates = k.add_source(dt.bool_, 9, np.array([1, 0, 1, 1, 0, 0, 1, 0, 1], np.bool_))
    i = k.make_range(9)
    items = make(k, source, target, gates, i)
    return make_launch(k.call_body(UOp(Op.LINEAR, (source, target, gates, i, *items))))


def _store_inside_and_after_if_in_list(d: DType, inputs: Inputs) -> UOp:
    """Build an If with a Store inside, and a Store behind its Endif that always happens."""

    def make(k: KernelBuilder, source: UOp, target: UOp, gates: UOp, i: UOp) -> Sequence[UOp]:
        gate_place, place, to = b.at(gates, i), b.at(source, i), b.at(target, i)
        gate, x = b.load(gate_place), b.load(place)
        shifted = UOp(Op.ADD, (_counter(i), b.const(9)))
        block, behind = UOp(Op.IF, (gate,)), b.at(target, shifted)
        stores = b.store(to, x), b.store(behind, x)
        head = (gate_place, place, to, gate, x, _counter(i), b.const(9), shifted, behind)
        return (*head, block, stores[0], UOp(Op.ENDIF, (block,)), stores[1], b.end(stores[1], i))

    return _list_with_blocks(d, inputs, make)


def _nested_ifs_with_store_behind_inner(d: DType, inputs: Inputs) -> UOp:
    """Build an If inside of an If, with a Store behind each Endif."""

    def make(k: KernelBuilder, source: UOp, target: UOp, gates: UOp, i: UOp) -> Sequence[UOp]:
        gate_place, place, to = b.at(gates, i), b.at(source, i), b.at(target, i)
        inner_gate, x, limit = b.load(gate_place), b.load(place), b.const(6)
        outer_gate = UOp(Op.CMPLT, (_counter(i), limit))
        shifted = UOp(Op.ADD, (_counter(i), b.const(9)))
        behind = b.at(target, shifted)
        outer, inner = UOp(Op.IF, (outer_gate,)), UOp(Op.IF, (inner_gate,))
        stores = b.store(to, x), b.store(behind, x)
        head = (gate_place, place, to, inner_gate, x, _counter(i), limit, outer_gate, b.const(9), shifted, behind)
        block = (outer, inner, stores[0], UOp(Op.ENDIF, (inner,)), stores[1], UOp(Op.ENDIF, (outer,)))
        return (*head, *block, b.end(stores[1], i))

    return _list_with_blocks(d, inputs, make)


def _loop_in_if(d: DType, inputs: Inputs) -> UOp:
    """Build an If with a loop inside, whose gate keeps an address out of bounds from being read."""

    def make(k: KernelBuilder, source: UOp, target: UOp, gates: UOp, i: UOp) -> Sequence[UOp]:
        c, limit, two, four = _counter(i), b.const(2), b.const(2), b.const(4)
        gate = UOp(Op.CMPLT, (c, limit))
        block, j = UOp(Op.IF, (gate,)), k.make_range(9)
        scaled = UOp(Op.MUL, (c, four))  # 4 i is out of bounds from i = 3 on
        gated = b.after(source, block)
        place = b.at(gated, scaled)
        x = b.load(place)
        doubled = UOp(Op.MUL, (_counter(j), two))
        position = UOp(Op.ADD, (doubled, c))
        to = b.at(target, position)
        store, endif = b.store(to, x), UOp(Op.ENDIF, (block,))
        inside = (gated, place, x, j, _counter(j), doubled, position, to, store, b.end(store, j))
        return (c, limit, gate, four, scaled, block, *inside, endif, b.end(endif, i))

    return _list_with_blocks(d, inputs, make)


def _store_in_if_block_of_graph(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build an If of a graph: what comes after it is in its block.

    SELECTED alone has it, so its address has machine width.
    """
    source, target = k.add_source(d, 9), k.add_target(d, 9)
    gates = k.add_source(dt.bool_, 9, np.array([1, 0, 1, 1, 0, 0, 1, 0, 1], np.bool_))
    i = k.make_range(9)
    block, backwards = UOp(Op.IF, (b.load(b.at(gates, i)),)), UOp(Op.SUB, (b.const(8), _counter(i)))
    store = b.store(b.at(b.after(target, block), backwards), b.load(b.at(source, i)))
    return (b.end(b.group(store, UOp(Op.ENDIF, (block,))), i),)


# ----------------------------------------------------------------------------------------------------------- AtomicAdd


def _add_atomically(t: AxisType, bins: int) -> BuildEffects:
    """Build iterations that add small numbers to a few elements, several of them to each."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 6, small_numbers(d, 6)), k.add_target(d, bins)
        k.inputs[f"b{k.arguments[-1].arg.unique}"] = small_numbers(d, bins)
        i = k.make_range(6, t)
        add = UOp(Op.ATOMICADD, (b.at(target, b.mod(b.mul(i, 2), bins)), b.load(b.at(source, i))))
        return (b.end(add, i),)

    return build


def _scatter_add(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build workgroups that add to elements whose positions are data."""
    positions = np.array([3, 0, 3, 1, 0, 3], np.int32)
    source, where = k.add_source(d, 6, small_numbers(d, 6)), k.add_source(dt.int32, 6, positions)
    target = k.add_target(d, 4)
    k.inputs[f"b{k.arguments[-1].arg.unique}"] = small_numbers(d, 4)
    g, i = k.make_range(2, AxisType.GLOBAL), k.make_range(3, AxisType.LOCAL)
    position = b.add(b.mul(g, 3), i)
    to = b.at(target, b.cast(b.load(b.at(where, position)), dt.index))
    return (b.end(b.end(UOp(Op.ATOMICADD, (to, b.load(b.at(source, position)))), i), g),)


# -------------------------------------------------------------------------------------------------------------- memory


def copy_through_local_memory_by_loops(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build a kernel without lanes that fills LOCAL memory in one loop and reads it in another."""
    source, target, row = k.add_source(d, 9), k.add_target(d, 9), local_memory(9, d)
    i, j = k.make_range(9), k.make_range(9)
    filled = b.end(copy_element(row, i, source, i), i)
    return (b.end(copy_element(target, j, b.after(row, filled), b.mod(b.add(b.mul(j, 2), 1), 9)), j),)


def keep_register_per_lane_across_barrier(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that keep an element in REG memory across a Barrier; each lane has its own (R128)."""
    source, target = k.add_source(d, GROUPS * LANES), k.add_target(d, GROUPS * LANES)
    kept, tile = register_memory(1, d), local_memory(LANES, d, 2)
    g, i = k.make_range(GROUPS, AxisType.GLOBAL), k.make_range(LANES, AxisType.LOCAL)
    position = b.add(b.mul(g, LANES), i)
    stored = copy_element(kept, b.index(0), source, position)
    met = barrier(b.group(stored, copy_element(tile, i, source, position)))
    mine, other = b.load(b.at(b.after(kept, met), 0)), b.load(b.at(b.after(tile, met), b.sub(LANES - 1, i)))
    value = b.where(b.lt(i, LANES // 2), mine, other)
    return (b.end(b.end(b.store(b.at(target, b.sub(GROUPS * LANES - 1, position)), value), i), g),)


def _index_registers_by_loop_counters(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build REG memory of several elements, filled and read by positions that loops compute."""
    source, target, memory = k.add_source(d, 12), k.add_target(d, 12), register_memory(4, d)
    i, j, m = k.make_range(3), k.make_range(4), k.make_range(4)
    row = b.after(memory, i)
    filled = b.end(copy_element(row, b.sub(3, j), source, b.add(b.mul(i, 4), j)), j)
    read = copy_element(target, b.add(b.mul(m, 3), i), b.after(row, filled), m)
    return (b.end(b.end(read, m), i),)


# --------------------------------------------------------------------------------------------------------------- gates


def _gated_load(shift: int) -> BuildEffects:
    """Build Loads at `shift` from the iteration: outside of the memory, the gate is false and the alternative counts (R52)."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, other, target = k.add_source(d, 9), k.add_source(d, 9), k.add_target(d, 9)
        i = k.make_range(9)
        at = b.add(i, shift)
        inside = b.and_(b.and_(b.ge(at, 0), b.lt(at, 9)), b.ne(b.mod(i, 4), 2))
        value = b.load(b.at(source, at), b.load(b.at(other, i)), inside)
        return (b.end(b.store(b.at(target, i), value), i),)

    return build


def _gated_store(t: AxisType, shift: int) -> BuildEffects:
    """Build Stores at `shift` from the iteration: outside of the memory, the gate is false and nothing is stored (R52)."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 9), k.add_target(d, 9)
        i = k.make_range(9, t)
        to = b.add(i, shift)
        inside = b.and_(b.and_(b.ge(to, 0), b.lt(to, 9)), b.ne(b.mod(i, 4), 2))
        return (b.end(b.store(b.at(target, to), b.load(b.at(source, i)), inside), i),)

    return build


# ------------------------------------------------------------------------------------------------------------- vectors


def _vector(first: UOp | int, step: int, lanes: int = 4) -> UOp:
    """Return positions `first`, `first + step`, ... as a vector."""
    return b.stack(*(b.add(first, step * n) if isinstance(first, UOp) else b.index(first + step * n) for n in range(lanes)))


def _copy_strided_vectors(load_lane_stride: int) -> BuildEffects:
    """Build a loop that loads vectors of four elements `load_lane_stride` apart, and stores them next to each other."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 24), k.add_target(d, 12)
        i = k.make_range(3)
        value = b.load(b.at(source, _vector(b.add(i, 3), load_lane_stride)))
        return (b.end(b.store(b.at(target, _vector(b.mul(i, 4), 1)), value), i),)

    return build


def _stack_lanes(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build vectors of elements that are loaded one by one."""
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i = k.make_range(3)
    lanes = [b.load(b.at(source, b.mod(b.add(b.mul(i, 5), 7 * n + 2), 12))) for n in range(4)]
    return (b.end(b.store(b.at(target, _vector(b.mul(i, 4), 1)), b.stack(*lanes)), i),)


def _extract_lanes_in_reverse(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build single lanes of a vector, in another order."""
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i = k.make_range(3)
    value = b.load(b.at(source, _vector(b.mul(i, 4), 1)))
    stores = [b.store(b.at(target, b.add(b.mul(i, 4), n)), b.at(value, 3 - n)) for n in range(4)]
    return (b.end(b.group(*stores), i),)


def _gate_vector_store_per_lane(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build a vector Store with a gate per lane."""
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i = k.make_range(3)
    at = _vector(b.mul(i, 4), 1)
    gate = b.stack(*(b.const(v) for v in (True, False, False, True)))
    return (b.end(b.store(b.at(target, at), b.load(b.at(source, b.stack(*reversed(at.src)))), gate), i),)


# fmt: off
#: (op, edge class, builder) of each case.
TABLE: tuple[tuple[Op, str, BuildLaunch], ...] = (
    *((Op.BARRIER, edge, single_kernel(build)) for edge, build in (
        ("local", reverse_in_workgroup(make_lane_counters(AxisType.LOCAL))),
        ("warp", reverse_in_workgroup(make_lane_counters(AxisType.WARP))),
        ("group-reduce", reverse_in_workgroup(make_lane_counters(AxisType.GROUP_REDUCE))),
        ("specials", reverse_in_workgroup(_specials)), ("two-meetings", _exchange_twice_through_local_memory),
        ("in-loop", _rotate_local_memory_in_loop), ("global-memory", _meet_over_global_memory),
        ("two-axes", _transpose_local_memory_across_barrier))),
    *((Op.SPECIAL, edge, single_kernel(build)) for edge, build in (
        ("groups", _copy_reversed_by_specials(("gidx0", 7))), ("lanes", _copy_reversed_by_specials(("lidx0", 7))),
        ("groups-and-lanes", _copy_reversed_by_specials(("gidx0", 3), ("lidx0", 4))),
        ("two-axes-each", _copy_reversed_by_specials(("gidx1", 2), ("gidx0", 3), ("lidx1", 2), ("lidx0", 4))),
        ("threads", _copy_reversed_by_specials(("threadpool0", 3))),
        ("one-item", _copy_reversed_by_specials(("gidx0", 1), ("lidx0", 5))),
        ("symbolic-groups", _copy_reversed_by_symbolic_special("gidx0")),
        ("symbolic-lanes", _copy_reversed_by_symbolic_special("lidx0")))),
    (Op.IF, "list",             _store_inside_and_after_if_in_list),
    (Op.IF, "list-nested",      _nested_ifs_with_store_behind_inner),
    (Op.IF, "list-loop",        _loop_in_if),
    (Op.IF, "graph",            single_kernel(_store_in_if_block_of_graph)),
    (Op.ENDIF, "store-behind",  _store_inside_and_after_if_in_list),
    (Op.ENDIF, "nested",        _nested_ifs_with_store_behind_inner),
    *((Op.ATOMICADD, f"{t.name.lower()}", single_kernel(_add_atomically(t, 3)))
      for t in (AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL, AxisType.UPCAST)),
    (Op.ATOMICADD, "one-element", single_kernel(_add_atomically(AxisType.GLOBAL, 1))),
    (Op.ATOMICADD, "scatter",   single_kernel(_scatter_add)),
    *((Op.BUFFER, edge, single_kernel(build)) for edge, build in (
        ("local", copy_through_local_memory_by_loops),
        ("local-per-group", reverse_in_workgroup(make_lane_counters(AxisType.LOCAL))),
        ("register-per-lane", keep_register_per_lane_across_barrier), ("registers", _index_registers_by_loop_counters))),
    *((Op.LOAD, f"kernel-gated-{name}", single_kernel(_gated_load(shift)))
      for name, shift in (("inside", 0), ("below", -4), ("above", 5), ("nowhere", 50))),
    *((Op.STORE, f"kernel-gated-{name}", single_kernel(_gated_store(t, shift))) for name, t, shift in (
        ("inside", AxisType.LOOP, 0), ("below", AxisType.LOOP, -4), ("above", AxisType.LOOP, 5),
        ("lanes", AxisType.LOCAL, 2), ("upcast", AxisType.UPCAST, 2))),
    (Op.INDEX, "lanes",         single_kernel(_copy_strided_vectors(1))),
    (Op.INDEX, "lanes-strided", single_kernel(_copy_strided_vectors(5))),
    (Op.INDEX, "lanes-reversed", single_kernel(_copy_strided_vectors(-1))),
    (Op.INDEX, "lane-of-vector", single_kernel(_extract_lanes_in_reverse)),
    (Op.STACK, "vector-of-loads", single_kernel(_stack_lanes)),
    (Op.STORE, "vector-gated",  single_kernel(_gate_vector_store_per_lane)),
)
# fmt: on


def generate_kernel_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every kernel row x dtype."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if op is Op.ATOMICADD and d is dt.bool_:
                continue
            inputs: Inputs = {}
            yield make_launch_case(op, d, edge, make(d, inputs), inputs)
