"""Kernels written by hand, one family per form, for Calls in TENSOR programs.

Each `make_...` function makes the effects of a kernel on a `WrittenKernel`, which collects its Params.
`draw_kernel_call_on_placeholders` gives a Call whose arguments are placeholders: Buffers of the size and dtype that a Param needs,
and variables. Spec: AxisType table; R57 (Range), R60 (Barrier), R61 (fresh buffers), R125 (Special), R127 (loops of
a node), R166 (kernels written by hand).

Never generated: a race, a Trap, and sums of floats that round, as in `uops.fuzz.generate.kernels.scheduled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.kernels.scheduled import (
    DTYPES,
    KernelMaker,
    combine_exactly,
    loop_extent,
    make_kernel_call_and_output_buffer,
    make_load_at_affine_position,
    reduce_exactly,
    row_major_index,
)
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ParamArg, SinkArg, SpecialArg, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.ir.scope import is_instruction
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import find_broken_claims
from uops.spec.wmma import DESCRIPTORS

#: Unique number of the first placeholder.
_PLACEHOLDERS = 5000
#: Types of loops whose iterations run in any order.
_UNORDERED = (AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL, AxisType.WARP, AxisType.UPCAST)
#: Types of the lanes of a workgroup.
_LANES = (AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)
#: Bounds of loops: a bound <= 0 runs zero times (R57).
_BOUNDS = (-3, -1, 0, 1, 2, 3, 5)
#: Floats whose sums of a few small integers are exact, and of which no target has an atomic instruction.
_ATOMIC_FLOATS = (dt.float16, dt.bfloat16)
#: The instructions of warps that multiply integers, whose results are exact (R119). Of their elements no lane holds a copy.
_TENSOR_CORES = tuple(x for x in DESCRIPTORS if x.threads > 1 and x.copies_a == x.copies_b == 1 and not x.dtype_in.is_float)
#: Dtypes of lists of instructions, which every target of ours has.
_MACHINE = (dt.int32, dt.int64, dt.uint8, dt.uint32, dt.float32, dt.float64)


@dataclass
class WrittenKernel(KernelMaker):
    """A kernel under construction that numbers its Params itself. `written` holds the slots of those that it writes."""

    written: set[int] = field(default_factory=set)

    def make_memory_param_with_placeholder_argument(
        self, shape: int | tuple[int, ...], d: DType | None = None, *, is_written: bool = False
    ) -> UOp:
        """Make a Param of memory, with a placeholder for its argument."""
        shape, d, slot = (shape,) if isinstance(shape, int) else shape, d or self.dtype, len(self.params)
        self.arguments.append(b.buffer(math.prod(shape), d, unique=_PLACEHOLDERS + slot))
        self.params.append(b.param(slot, shape, d))
        self.written |= {slot} if is_written else set()
        return self.params[-1]

    def make_matrix_maybe_padded(self, rows: int, columns: int) -> UOp:
        """Make a Param of two dimensions; sometimes one with fewer rows, padded at the end or the beginning.

        Before it is padded, its elements may be loaded under gates of their own.
        """
        if rows == 1 or not self.draw.chance(30):
            return self.make_memory_param_with_placeholder_argument((rows, columns))
        fewer = self.draw.integer(max(1, rows - 2), rows - 1)
        matrix = self.make_memory_param_with_placeholder_argument((fewer, columns))
        if self.draw.chance(40):
            other, chosen = (self.make_memory_param_with_placeholder_argument((fewer, columns)) for _ in range(2))
            matrix = b.load(matrix, other, b.lt(chosen, b.const(self.draw.choice((1, 2)), self.dtype)))
        return b.pad(matrix, (self.draw.choice((0, 0, rows - fewer)), 0), (rows, columns))

    def make_variable_param_with_placeholder_argument(self, lo: int, hi: int) -> UOp:
        """Make a Param of a variable, with a placeholder for its argument."""
        name, slot = f"{self.name}v{len(self.params)}", len(self.params)
        self.arguments.append(b.variable(name, lo, hi))
        self.params.append(UOp(Op.PARAM, (b.SCALAR,), ParamArg(slot, dt.index, name=name, bounds=(lo, hi))))
        return self.params[-1]

    def make_private_buffer(self, size: int, space: AddrSpace, d: DType | None = None) -> UOp:
        """Make a Buffer of LOCAL or REG memory."""
        self.uniques += 1
        return b.buffer(size, d or self.dtype, addrspace=space, unique=self.uniques)

    def draw_ranges(self, axis_type_choices: Sequence[AxisType], max_range_count: int) -> list[UOp]:
        """Draw one to `max_range_count` ranges of these types, outermost first."""
        ranges = [
            self.make_range(self.draw.integer(1, 4), self.draw.choice(tuple(axis_type_choices)))
            for _ in range(self.draw.integer(1, max_range_count))
        ]
        return sorted(ranges, key=lambda r: r.arg.type.priority)

    def load_affine(self, *ranges: UOp) -> UOp:
        """Load from a Param of its own at a position that depends on these ranges."""
        if ranges and self.draw.chance(15):
            return self.load_inside_of_shorter_memory(self.draw.choice(ranges))
        self.ranges, before = list(ranges), self.ranges
        value = make_load_at_affine_position(
            self, self.make_memory_param_with_placeholder_argument(self.draw.choice((1, 3, 4, 8, 12))), []
        )
        self.ranges = before
        return value

    def load_inside_of_shorter_memory(self, counter: UOp) -> UOp:
        """Load the element that a counter numbers, under the gate that the memory has it, else a constant."""
        extent = loop_extent(counter)
        size = max(1, extent - self.draw.integer(0, 2))
        memory = self.make_memory_param_with_placeholder_argument(size)
        return b.load(b.at(memory, counter), b.const(self.draw.integer(0, 3), memory.dtype), b.lt(counter, size))

    def draw_special(self, name: str, most: int) -> UOp:
        """Draw a Special of 1 to `most` groups or lanes: a number, a variable, or computed from what memory holds."""
        if self.draw.chance(60):
            return _special(name, self.draw.integer(1, most))
        if self.draw.chance(40):
            return _special(name, self.make_variable_param_with_placeholder_argument(1, most))
        return self.make_special_counted_by_memory(name, self.make_memory_param_with_placeholder_argument(1, dt.int32), most)

    def make_special_counted_by_memory(self, name: str, memory: UOp, most: int) -> UOp:
        """Make a Special of 1 to `most` groups or lanes, computed from the first element of a memory."""
        return _special(name, b.add(b.mod(b.cast(b.load(b.at(memory, 0)), dt.index), most), 1))

    def draw_gate(self, counter: UOp, extent: int) -> tuple[UOp, ...]:
        """Draw no gate, or one that holds in a part of the iterations."""
        return (b.lt(counter, self.draw.integer(0, extent)),) if self.draw.chance(40) else ()


def _compute_at_cost(k: WrittenKernel, value: UOp) -> UOp:
    """Return an integer that takes many operations."""
    for n in range(k.draw.choice((0, 15, 15))):
        value = b.xor(b.mul(value, b.const(3, k.dtype)), b.add(value, b.const(n % 4, k.dtype)))
    return value


def _special(name: str, bound: int | UOp) -> UOp:
    return UOp(Op.SPECIAL, (b.index(bound) if isinstance(bound, int) else bound,), SpecialArg(name))


def _barrier(*effects: UOp) -> UOp:
    return UOp(Op.BARRIER, effects)


# ------------------------------------------------------------------------------------------------------------- the forms


def make_elementwise_of_matrix_and_other_transposed(k: WrittenKernel) -> list[UOp]:
    """Store a matrix, from another one and a transposed one: Params of two dimensions, read as values without a Load (R51)."""
    rows, columns = k.draw.integer(1, 4), k.draw.integer(1, 4)
    i, j = k.make_range(rows, k.draw.choice((AxisType.LOOP, AxisType.GLOBAL))), k.make_range(columns, AxisType.LOOP)
    out = k.make_memory_param_with_placeholder_argument((rows, columns), is_written=True)
    x, y = (
        b.at(k.make_matrix_maybe_padded(columns, rows), j, i),
        b.at(k.make_matrix_maybe_padded(rows, columns), i, j),
    )
    value = combine_exactly(k, x, b.load(y) if k.draw.chance(50) else y)
    return [b.wrap_in_one_end_per_loop(b.store(b.at(out, i, j), value, *k.draw_gate(j, columns)), (i, j))]


def make_update_in_place_maybe_via_aliased_params(k: WrittenKernel) -> list[UOp]:
    """Update each element of memory that two Params name, or one, in loops of any type."""
    ranges = k.draw_ranges((AxisType.LOOP, *_UNORDERED), 2)
    size, position = math.prod(map(loop_extent, ranges)), row_major_index(ranges)
    out = k.make_memory_param_with_placeholder_argument(size, is_written=True)
    source = k.make_memory_param_with_placeholder_argument(size, is_written=True) if k.draw.chance(50) else out
    if source is not out:
        k.arguments[source.arg.slot] = k.arguments[out.arg.slot]  # the same reference twice
        k.written.remove(source.arg.slot)
    value = combine_exactly(k, b.load(b.at(source, position)), k.load_affine(*ranges))
    return [b.wrap_in_one_end_per_loop(b.store(b.at(out, position), value, *k.draw_gate(position, size)), ranges)]


def make_recurrence_on_one_memory(k: WrittenKernel) -> list[UOp]:
    """Compute each element from others of the same memory, in the order of loops: one, or a reduction of several.

    A second Param may name the memory, too.
    """
    ranges = k.draw_ranges((AxisType.LOOP,), 2)
    position = row_major_index(ranges)
    size = math.prod(map(loop_extent, ranges)) + k.draw.integer(0, 2)
    out = source = k.make_memory_param_with_placeholder_argument(size, is_written=True)
    if k.draw.chance(60):
        source = k.make_memory_param_with_placeholder_argument(size)
        k.arguments[source.arg.slot] = k.arguments[out.arg.slot]  # the same reference twice (R166)
    other = b.add(b.mul(position, k.draw.choice((0, 1, 3))), k.draw.integer(0, size - 1))
    reduced = k.make_range(k.draw.choice((2, 4, 8)), AxisType.REDUCE) if k.draw.chance(40) else None
    if reduced is not None:
        other = b.add(other, b.mul(reduced, k.draw.choice((1, 1, 3))))
    loops = ranges if reduced is None else [*ranges, reduced]
    value = combine_exactly(k, b.load(b.at(source, b.mod(other, size))), k.load_affine(*loops))
    if reduced is not None:
        value = reduce_exactly(k, value, reduced)
    return [b.wrap_in_one_end_per_loop(b.store(b.at(out, position), value), ranges)]


def make_two_loops_maybe_bounded_by_counter(k: WrittenKernel) -> list[UOp]:
    """Update memory in the order of nested loops whose bounds may be 0, negative, variables, or counters of outer loops.

    A Load in the inner loop, which need not depend on its counter, may be in bounds only where the loop runs.
    """
    outer = k.make_range(
        k.make_variable_param_with_placeholder_argument(-2, 4) if k.draw.chance(50) else k.draw.choice(_BOUNDS), AxisType.LOOP
    )
    bounds: tuple[int | UOp, ...] = (
        k.draw.choice(_BOUNDS),
        b.sub(outer, 1),
        b.sub(2, outer),
        b.neg(outer),
        k.make_variable_param_with_placeholder_argument(-1, 3),
    )
    bound = k.draw.choice(bounds)
    inner = k.make_range(bound, AxisType.LOOP)
    size = k.draw.choice((1, 2, 5))
    element = b.at(
        k.make_memory_param_with_placeholder_argument(size, is_written=True),
        b.mod(b.add(outer, b.mul(inner, k.draw.choice((0, 1, 3)))), size),
    )
    added = k.load_affine(outer, inner)
    if k.draw.chance(40):  # a Load that the inner loop does not change, and that only its gate keeps inside of memory
        added = combine_exactly(k, added, k.load_inside_of_shorter_memory(outer))
    if bound is bounds[1] and k.draw.chance(60):
        memory, position = k.make_memory_param_with_placeholder_argument(4), b.sub(outer, 2)
        if k.draw.chance(50):
            memory = b.after(memory, inner)
        else:
            position = b.add(position, b.mul(inner, 0))
        added = combine_exactly(k, added, b.load(b.at(memory, position)))  # outer is at least 2 in the inner loop
    update = b.store(element, combine_exactly(k, b.load(element), added))
    return [
        b.end(update, outer, inner)
        if isinstance(bound, int) and k.draw.chance(30)
        else b.wrap_in_one_end_per_loop(update, (outer, inner))
    ]


def make_vector_axis_that_bounds_a_loop(k: WrittenKernel) -> list[UOp]:
    """Reduce or store in a loop whose bound an unordered axis around it counts."""
    outer = k.make_range(k.draw.integer(1, 4), k.draw.choice((AxisType.UPCAST, AxisType.UPCAST, *_UNORDERED)))
    bound = k.draw.choice((b.add(outer, k.draw.integer(0, 2)), b.sub(3, outer), b.sub(outer, 1)))
    most = loop_extent(outer) + 3
    if k.draw.chance(50):
        r = k.make_range(bound, AxisType.REDUCE)
        out = k.make_memory_param_with_placeholder_argument(loop_extent(outer), is_written=True)
        return [b.wrap_in_one_end_per_loop(b.store(b.at(out, outer), reduce_exactly(k, k.load_affine(outer, r), r)), (outer,))]
    inner = k.make_range(bound, AxisType.LOOP)
    out = k.make_memory_param_with_placeholder_argument(loop_extent(outer) * most, is_written=True)
    return [
        b.wrap_in_one_end_per_loop(
            b.store(b.at(out, b.add(b.mul(outer, most), inner)), k.load_affine(outer, inner)), (outer, inner)
        )
    ]


def make_registers_that_a_loop_may_keep(k: WrittenKernel) -> list[UOp]:
    """Fill registers in the first turns of a loop: under a gate, or in a loop inside that does not run in later turns.

    Later turns find what an earlier one left. Each turn uses other registers first.
    """
    outer = k.draw_ranges((AxisType.GLOBAL, AxisType.THREAD), 1) if k.draw.chance(40) else []
    turn, count = k.make_range(k.draw.integer(2, 4), AxisType.LOOP), k.draw.integer(1, 2)
    held, other = (k.make_private_buffer(count, AddrSpace.REG) for _ in range(2))
    loops = [*outer, turn]
    out = k.make_memory_param_with_placeholder_argument(2 * count * math.prod(map(loop_extent, loops)), is_written=True)
    first, filling_turns = b.mul(row_major_index(loops), 2 * count), k.draw.integer(1, loop_extent(turn))
    used = b.after(other, *[b.store(b.at(b.after(other, turn), n), k.load_affine(*loops)) for n in range(count)])
    stored = [b.store(b.at(out, b.add(first, n)), b.load(b.at(used, n))) for n in range(count)]
    if k.draw.chance(50):
        again = k.make_range(b.sub(filling_turns, turn), AxisType.LOOP)
        within = b.after(held, *stored, again)
        fills = [b.end(b.group(*[b.store(b.at(within, n), k.load_affine(*loops)) for n in range(count)]), again)]
    else:
        gate, within = b.lt(turn, filling_turns), b.after(held, *stored)
        fills = [b.store(b.at(within, n), k.load_affine(*loops), gate) for n in range(count)]
    done = b.after(held, *fills)
    results = [b.store(b.at(out, b.add(first, count + n)), b.load(b.at(done, n))) for n in range(count)]
    return [b.wrap_in_one_end_per_loop(b.group(*results), loops)]


def make_stores_that_wait_through_values(k: WrittenKernel) -> list[UOp]:
    """Store to an element what waits for earlier effects: a Load of the element, a Store to it, or a Store to other memory.

    The last Store is under a gate in some cases, and then its value may be costly.
    """
    ranges = k.draw_ranges((AxisType.LOOP, AxisType.GLOBAL), 2)
    position, size = row_major_index(ranges), math.prod(map(loop_extent, ranges))
    memory, other = (k.make_memory_param_with_placeholder_argument(size, is_written=True) for _ in range(2))
    element = b.at(memory, position)
    old = b.load(element)
    first = b.store(b.at(b.after(memory, old), position), k.load_affine(*ranges))
    second = b.store(b.at(other, position), k.load_affine(*ranges))
    waits = (first, second) if k.draw.chance(50) else (second, first)
    value = b.after(k.load_affine(*ranges), *waits)
    if k.draw.chance(60):
        value = combine_exactly(k, value, old if k.dtype.is_float else _compute_at_cost(k, old))
    target = memory if k.draw.chance(60) else other
    return [b.wrap_in_one_end_per_loop(b.store(b.at(target, position), value, *k.draw_gate(position, size)), ranges)]


def make_atomic_counts(k: WrittenKernel) -> list[UOp]:
    """Add one to three numbers to elements of memory at positions that memory holds, in loops or lanes of any type.

    Specials are the lanes of sums of integers alone: no target of ours adds small floats among concurrent lanes. All but the first
    number need not depend on every lane, and are added in each of them all the same.
    """
    if not k.dtype.is_float and k.draw.chance(30):
        ranges = [k.draw_special("gidx0", 3), k.draw_special("lidx0", 3)]
        closed: list[UOp] = []
    else:
        closed = ranges = k.draw_ranges((AxisType.LOOP, AxisType.REDUCE, *_UNORDERED), 2)
    cells = k.draw.choice((1, 2, 4))
    counts = k.make_memory_param_with_placeholder_argument(cells, is_written=True)
    adds: list[UOp] = []
    for _ in range(k.draw.choice((1, 1, 2, 3))):
        depended = ranges[: k.draw.integer(0, len(ranges))] if adds and not closed and k.draw.chance(60) else ranges
        size, position = math.prod(map(loop_extent, depended)), row_major_index(depended)
        key = b.load(b.at(k.make_memory_param_with_placeholder_argument(size, k.draw.choice(k.int_dtypes)), position))
        index = b.cast(b.mod(key, b.const(cells, key.dtype)), dt.index) if k.draw.chance(70) else b.mod(position, cells)
        added = k.load_affine(*depended) if k.draw.chance(60) else b.const(k.draw.choice((1, 3)), k.dtype)
        adds.append(UOp(Op.ATOMICADD, (b.at(counts, index), added)))
    adds = list(dict.fromkeys(adds))
    return [b.wrap_in_one_end_per_loop(b.group(*adds) if len(adds) > 1 else adds[0], closed)]


def make_update_beside_loops(k: WrittenKernel) -> list[UOp]:
    """Fill memory in loops, and update elements of other memory beside the inner ones of these loops."""
    ranges = k.draw_ranges((AxisType.LOOP, AxisType.GLOBAL, AxisType.GLOBAL, AxisType.LOCAL), 3)
    outer = ranges[: k.draw.integer(0, len(ranges) - 1)]
    inner = ranges[len(outer) :]
    filled, updated = (
        k.make_memory_param_with_placeholder_argument(math.prod(map(loop_extent, loops)), is_written=True)
        for loops in (ranges, outer)
    )
    element, added = b.at(updated, row_major_index(outer)), k.load_affine(*outer)
    if k.dtype.is_float or k.draw.chance(40):
        update = b.store(element, combine_exactly(k, b.load(element), added))
    else:
        update = UOp(Op.ATOMICADD, (element, added))
    target = b.after(filled, update) if k.draw.chance(50) else filled
    fill = b.wrap_in_one_end_per_loop(b.store(b.at(target, row_major_index(ranges)), k.load_affine(*ranges)), inner)
    return [b.wrap_in_one_end_per_loop(b.group(fill, update), outer)] if outer else [fill, update]


def make_accumulation_in_registers(k: WrittenKernel) -> list[UOp]:
    """Accumulate in one to three registers in a loop, and store them, or one of them at a position of the loops."""
    outer = k.draw_ranges((AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL), 2)
    inner = k.make_range(k.draw.choice((0, 1, 2, 5)), k.draw.choice((AxisType.LOOP, AxisType.REDUCE)))
    count = k.draw.integer(1, 3)
    registers = k.make_private_buffer(count, AddrSpace.REG)
    started = b.after(registers, *outer)
    starts = [b.store(b.at(started, n), k.load_affine(*outer) if k.draw.chance(50) else b.const(n, k.dtype)) for n in range(count)]
    within = b.after(registers, *starts, inner)
    number = b.mod(inner, count)
    added = combine_exactly(k, b.load(b.at(within, number)), k.load_affine(*outer, inner))
    done = b.after(registers, b.end(b.store(b.at(within, number), added, *k.draw_gate(inner, 3)), inner))
    out = k.make_memory_param_with_placeholder_argument(math.prod(map(loop_extent, outer)), is_written=True)
    position = row_major_index(outer)
    value = b.load(b.at(done, k.draw.integer(0, count - 1) if k.draw.chance(50) else b.mod(position, count)))
    return [b.wrap_in_one_end_per_loop(b.store(b.at(out, position), value), outer)]


def make_exchange_of_lanes(k: WrittenKernel) -> list[UOp]:
    """Exchange values of lanes through LOCAL memory, once or twice; workgroups and lanes are Specials or ranges."""
    groups, lanes = k.draw.integer(1, 3), k.draw.choice((1, 2, 4))
    if k.draw.chance(50):
        group, lane = _special(k.draw.choice(("gidx0", "blockIdx.x")), groups), _special(k.draw.choice(("lidx0", "widx")), lanes)
        closed: list[UOp] = []
    else:
        group, lane = k.make_range(groups, AxisType.GLOBAL), k.make_range(lanes, k.draw.choice(_LANES))
        closed = [group, lane]
    value = k.load_affine(group, lane)
    for _ in range(k.draw.integer(1, 2)):
        shared = k.make_private_buffer(lanes, AddrSpace.LOCAL)
        ready = b.after(shared, _barrier(b.store(b.at(shared, lane), value)))
        other = k.draw.choice((b.sub(lanes - 1, lane), b.mod(b.add(lane, 1), lanes), b.index(0)))
        value = combine_exactly(k, b.load(b.at(ready, other)), k.load_affine(group, lane))
    out = k.make_memory_param_with_placeholder_argument(groups * lanes, is_written=True)
    return [
        b.wrap_in_one_end_per_loop(b.store(b.at(out, b.add(b.mul(group, lanes), lane)), value, *k.draw_gate(lane, lanes)), closed)
    ]


def make_exchange_in_turns(k: WrittenKernel) -> list[UOp]:
    """Exchange values of lanes through one LOCAL memory in turns: of a loop, whose bound may be computed, or one by one."""
    lanes, most = k.draw.choice((2, 4)), 3
    lane = _special("lidx0", lanes) if k.draw.chance(50) else k.make_range(lanes, AxisType.LOCAL)
    closed = [] if lane.op is Op.SPECIAL else [lane]
    shared = k.make_private_buffer(lanes, AddrSpace.LOCAL)
    out = k.make_memory_param_with_placeholder_argument(most * lanes, is_written=True)
    other = k.draw.choice((b.sub(lanes - 1, lane), b.mod(b.add(lane, 1), lanes), b.index(0)))

    def exchange(reference: UOp, first: UOp | int, *turns: UOp) -> UOp:
        ready = b.after(shared, _barrier(b.store(b.at(reference, lane), k.load_affine(lane, *turns))))
        return b.store(b.at(out, b.add(first, lane)), combine_exactly(k, b.load(b.at(ready, other)), k.load_affine(lane)))

    if k.draw.chance(40):
        return [b.wrap_in_one_end_per_loop(exchange(b.after(shared, _barrier(exchange(shared, 0))), lanes), closed)]
    form = k.draw.choice(("constant", "variable", "loaded"))
    bound: int | UOp = k.draw.integer(0, most)
    if form == "variable":
        bound = k.make_variable_param_with_placeholder_argument(0, most)
    elif form == "loaded":
        counts = k.make_memory_param_with_placeholder_argument(1, dt.int32)
        bound = b.mod(b.cast(b.load(b.at(counts, 0)), dt.index), most + 1)
    done: tuple[UOp, ...] = ()
    for _ in range(k.draw.choice((1, 1, 2))):  # loops with the same bound, perhaps each in another loop
        around = [k.make_range(k.draw.integer(1, 2), AxisType.LOOP)] if k.draw.chance(40) else []
        turn = k.make_range(bound, AxisType.LOOP)
        exchanged = exchange(b.after(shared, *done, *around, turn), b.mul(turn, lanes), turn)
        done = (b.wrap_in_one_end_per_loop(b.end(_barrier(exchanged), turn), around),)
    return [b.wrap_in_one_end_per_loop(done[0], closed)]


def make_group_reduce(k: WrittenKernel) -> list[UOp]:
    """Reduce in lanes of GROUP_REDUCE: each lane a part, into LOCAL memory, and behind a Barrier all parts."""
    group, lane = k.make_range(k.draw.integer(1, 3), AxisType.GLOBAL), k.make_range(k.draw.choice((2, 4)), AxisType.GROUP_REDUCE)
    part = k.make_range(k.draw.integer(1, 3), AxisType.REDUCE)
    shared = k.make_private_buffer(loop_extent(lane), AddrSpace.LOCAL)
    partial = b.store(b.at(shared, lane), reduce_exactly(k, k.load_affine(group, lane, part), part))
    ready = b.after(shared, _barrier(b.end(partial, lane)))
    r = k.make_range(loop_extent(lane), k.draw.choice((AxisType.REDUCE, AxisType.UNROLL)))
    out = k.make_memory_param_with_placeholder_argument(loop_extent(group), is_written=True)
    return [b.end(b.store(b.at(out, group), reduce_exactly(k, b.load(b.at(ready, r)), r)), group)]


def make_product_of_fragments(k: WrittenKernel) -> list[UOp]:
    """Multiply the fragments of a warp, or of two, by a tensor-core instruction: once, or in turns that add to registers.

    Loads and Stores of a fragment have gates in some cases, which hold in some lanes or turns.
    """
    descriptor = k.draw.choice([x for x in _TENSOR_CORES if x.dtype_in is k.dtype])
    lanes = descriptor.threads * k.draw.choice((1, 1, 1, 2))
    lane = _special("lidx0", lanes) if k.draw.chance(50) else k.make_range(lanes, k.draw.choice((AxisType.WARP, AxisType.LOCAL)))
    closed = [] if lane.op is Op.SPECIAL else [lane]
    turn = k.make_range(k.draw.integer(0, 3), AxisType.LOOP) if k.draw.chance(60) else None
    counts = (descriptor.a.elements, descriptor.b.elements, descriptor.c.elements)

    def elements(memory: UOp, first: UOp | int, count: int) -> UOp:
        return b.at(memory, b.stack(*(b.add(first, e) for e in range(count))))

    def load_maybe_gated(reference: UOp, counter: UOp, extent: int) -> UOp:
        gate = k.draw_gate(counter, extent)
        others = b.stack(*[b.const(k.draw.integer(0, 2), reference.dtype)] * reference.shape[0])
        return b.load(reference, others, gate[0]) if gate else b.load(reference)

    fragments = []
    for count in counts[:2]:
        memory = k.make_memory_param_with_placeholder_argument(lanes * count + 3, k.dtype)
        first = b.add(b.mul(lane, count), turn if turn is not None else k.draw.integer(0, 3))
        fragments.append(load_maybe_gated(elements(memory, first, count), lane, lanes))
    d, count = descriptor.dtype_out, counts[2]
    source, out = (
        k.make_memory_param_with_placeholder_argument(lanes * count, d, is_written=is_written) for is_written in (False, True)
    )
    old = load_maybe_gated(elements(source, b.mul(lane, count), count), lane, lanes)
    form = (descriptor.name, descriptor.dims, descriptor.dtype_in, d, descriptor.vendor, descriptor.threads)
    if turn is not None:
        registers = k.make_private_buffer(count, AddrSpace.REG, d)
        filled = b.store(elements(b.after(registers, *closed), 0, count), old)
        within = elements(b.after(registers, filled, turn), 0, count)
        product = UOp(Op.WMMA, (*fragments, load_maybe_gated(within, turn, loop_extent(turn))), WmmaArg(*form))
        added = b.end(b.store(within, product, *k.draw_gate(turn, loop_extent(turn))), turn)
        product = b.load(elements(b.after(registers, added), 0, count))
    else:
        product = UOp(Op.WMMA, (*fragments, old), WmmaArg(*form))
    return [
        b.wrap_in_one_end_per_loop(b.store(elements(out, b.mul(lane, count), count), product, *k.draw_gate(lane, lanes)), closed)
    ]


def make_lanes_that_change_what_counts_them(k: WrittenKernel) -> list[UOp]:
    """Count lanes by memory that the kernel changes: before, behind or beside what the lanes store."""
    most = k.draw.integer(2, 4)
    counts = k.make_memory_param_with_placeholder_argument(1, dt.int32, is_written=True)
    lane = k.make_special_counted_by_memory(k.draw.choice(("lidx0", "gidx0")), counts, most)
    out = k.make_memory_param_with_placeholder_argument(most, is_written=True)
    new_count, is_first = b.const(k.draw.integer(0, 5), dt.int32), b.lt(lane, 1)
    order = k.draw.choice(("before", "behind", "beside")) if lane.arg.name == "lidx0" else "beside"
    if order == "before":
        changed = _barrier(b.store(b.at(counts, 0), new_count, is_first))
        return [b.store(b.at(b.after(out, changed), lane), k.load_affine(lane))]
    filled = b.store(b.at(out, lane), k.load_affine(lane))
    if order == "behind":
        return [b.store(b.at(b.after(counts, _barrier(filled)), 0), new_count, is_first)]
    return [filled, b.store(b.at(counts, 0), new_count, is_first)]


def make_two_loops_in_order(k: WrittenKernel) -> list[UOp]:
    """Fill memory in one loop, and read other elements of it in a second one that comes after it."""
    size = k.draw.integer(1, 6)
    i, j = k.make_range(size, AxisType.LOOP), k.make_range(size, AxisType.LOOP)
    first, second = (k.make_memory_param_with_placeholder_argument(size, is_written=True) for _ in range(2))
    filled = b.end(b.store(b.at(first, i), k.load_affine(i)), i)
    value = combine_exactly(k, b.load(b.at(b.after(first, filled), b.sub(size - 1, j))), k.load_affine(j))
    return [b.end(b.store(b.at(second, j), value), j)]


# ------------------------------------------------------------------------------------------------- lists of instructions


class _Instructions:
    """A list of instructions under construction: what an instruction needs is listed before it."""

    def __init__(self) -> None:
        self.items: list[UOp] = []

    def emit_with_unlisted_sources(self, *nodes: UOp) -> UOp:
        """List nodes, each after its sources; return the last one."""
        for u in toposort(*nodes):
            if u not in self.items and is_instruction(u):
                self.items.append(u)
        return nodes[-1]


def make_list_with_ifs(k: WrittenKernel) -> UOp:
    """Make a list of instructions: a loop with Stores under one or two Ifs, and perhaps a Special around it."""
    code, n = _Instructions(), k.draw.integer(0, 5)
    out, x = (
        k.make_memory_param_with_placeholder_argument(max(1, n), is_written=True),
        k.make_memory_param_with_placeholder_argument(max(1, n)),
    )
    lanes = k.draw.integer(1, 3)
    lane = code.emit_with_unlisted_sources(b.cast(_special("lidx0", lanes), dt.int32)) if k.draw.chance(30) else None
    i = code.emit_with_unlisted_sources(k.make_range(n, AxisType.LOOP))
    counter = b.cast(i, dt.int32)
    element = b.at(out, counter)
    before = b.load(element) if lane is None else b.const(2, k.dtype)  # another lane may have the element
    value = code.emit_with_unlisted_sources(counter, element, combine_machine(k, b.load(b.at(x, counter)), before))
    own = [b.eq(b.mod(counter, lanes), lane)] if lane is not None else []
    conditions = [*own, b.lt(counter, k.draw.integer(0, n)), b.lt(b.const(1, k.dtype), value)][: k.draw.integer(1, 2)]
    blocks = []
    for c in conditions:
        blocks.append(UOp(Op.IF, (c,)))
        code.emit_with_unlisted_sources(c, blocks[-1])
    last = code.emit_with_unlisted_sources(b.store(element, value))
    if k.draw.chance(50):
        last = code.emit_with_unlisted_sources(
            b.store(b.at(b.after(out, last), counter), combine_machine(k, value, b.const(1, k.dtype)))
        )
    for block in reversed(blocks):
        last = code.emit_with_unlisted_sources(UOp(Op.ENDIF, (block,)))
    code.emit_with_unlisted_sources(b.end(last, i))
    return UOp(Op.LINEAR, tuple(code.items))


def make_list_with_view_of_registers(k: WrittenKernel) -> UOp:
    """Make a list in which each lane reads its registers as narrower integers, perhaps behind a Barrier."""
    code, lanes = _Instructions(), k.draw.choice((2, 4))
    parts = [d for d in (dt.uint8, dt.int32, dt.uint32) if d.itemsize < k.dtype.itemsize] or [k.dtype]
    part = k.draw.choice(parts)
    out, x = (
        k.make_memory_param_with_placeholder_argument(lanes, is_written=True),
        k.make_memory_param_with_placeholder_argument(lanes),
    )
    lane = code.emit_with_unlisted_sources(b.cast(_special("lidx0", lanes), dt.int32))
    count = k.draw.integer(1, 2)
    registers = k.make_private_buffer(count, AddrSpace.REG)
    value = b.load(b.at(x, lane))
    stores = [
        code.emit_with_unlisted_sources(
            b.store(b.at(registers, b.const(n, dt.int32)), combine_machine(k, value, b.const(n, k.dtype)) if n else value)
        )
        for n in range(count)
    ]
    done = code.emit_with_unlisted_sources(_barrier(*stores)) if k.draw.chance(70) else stores[-1]
    view = b.after(registers, done) if part is k.dtype else b.bitcast(b.after(registers, done), part)
    read = b.load(b.at(view, b.const(k.draw.integer(0, view.shape[0] - 1), dt.int32)))
    code.emit_with_unlisted_sources(b.store(b.at(out, lane), read if part is k.dtype else b.cast(read, k.dtype)))
    return UOp(Op.LINEAR, tuple(code.items))


def combine_machine(k: WrittenKernel, x: UOp, y: UOp) -> UOp:
    """Combine two values by an op that is one instruction, and exact."""
    forms: tuple[Callable[[], UOp], ...] = (lambda: b.add(x, y), lambda: b.sub(x, y), lambda: b.where(b.lt(x, y), y, x))
    return k.draw.choice(forms)()


# ------------------------------------------------------------------------------------------------------------ the choice

#: (kernel) -> its effects, or the list of its instructions.
Form = Callable[[WrittenKernel], list[UOp]]
#: Name of a form -> the function that makes its effects. Draws depend on the order.
FORMS: dict[str, Form] = {
    "matrices": make_elementwise_of_matrix_and_other_transposed,
    "in_place": make_update_in_place_maybe_via_aliased_params,
    "recurrence": make_recurrence_on_one_memory,
    "bounds": make_two_loops_maybe_bounded_by_counter,
    "vector_bounds": make_vector_axis_that_bounds_a_loop,
    "atomic": make_atomic_counts,
    "beside": make_update_beside_loops,
    "registers": make_accumulation_in_registers,
    "held_registers": make_registers_that_a_loop_may_keep,
    "value_waits": make_stores_that_wait_through_values,
    "lanes": make_exchange_of_lanes,
    "turns": make_exchange_in_turns,
    "group": make_group_reduce,
    "fragments": make_product_of_fragments,
    "counted_lanes": make_lanes_that_change_what_counts_them,
    "in_order": make_two_loops_in_order,
}
#: Forms that are no effects of a Sink: a kernel of a launch (`uops.fuzz.generate.kernels.scheduled`), and a list of instructions.
SCHEDULED_FORM, LIST_FORM = "scheduled", "list"


def draw_kernel_call_on_placeholders(
    draw: ChoiceSource, kernel_name: str, declared: SupportedOpDtypes, preferred_dtypes: tuple[DType, ...] = ()
) -> UOp:
    """Draw a Call of a kernel named `kernel_name`, whose arguments are placeholders: Buffers, and variables named after it.

    The kernel computes in a dtype of `preferred_dtypes` if its form can.
    """
    form = draw.choice((*FORMS, SCHEDULED_FORM, SCHEDULED_FORM, LIST_FORM))
    return build_kernel_call_on_placeholders(draw, form, kernel_name, declared, preferred_dtypes)


def build_kernel_call_on_placeholders(
    draw: ChoiceSource, form: str, name: str, declared: SupportedOpDtypes, preferred: tuple[DType, ...] = ()
) -> UOp:
    """Draw a Call of a kernel of one form."""
    integers = declared.filter_dtypes(dt.INTS)
    dtypes = declared.filter_dtypes(
        {
            "atomic": (*dt.INTS, *_ATOMIC_FLOATS),
            LIST_FORM: _MACHINE,
            "fragments": tuple({x.dtype_in: None for x in _TENSOR_CORES}),
        }.get(form, (*dt.INTS, *DTYPES))
    )
    if not dtypes:  # the backend lacks what tensor cores multiply
        form, dtypes = "in_place", declared.filter_dtypes((*dt.INTS, *DTYPES))
    dtypes = tuple(d for d in preferred if d in dtypes) or dtypes
    k = WrittenKernel(draw, draw.choice(dtypes), name, int_dtypes=integers, takes_maxima=False)
    if form == SCHEDULED_FORM:
        memories = [b.buffer(draw.choice((4, 8, 12, 16)), k.dtype, unique=n) for n in range(1, draw.integer(2, 3) + 1)]
        call, _ = make_kernel_call_and_output_buffer(k, memories, 100)
        return call
    make_list = make_list_with_view_of_registers if form == LIST_FORM and k.draw.chance(30) else make_list_with_ifs
    body = make_list(k) if form == LIST_FORM else _draw_named_sink_or_other_root(k, FORMS[form](k))
    return b.call(body, *k.arguments, written=tuple(sorted(k.written)))


def generate_launch_of_kernels(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a LINEAR of one or two Calls of kernels of KERNEL. Kernels whose loops may be reordered are scheduled (R166)."""
    inputs: dict[str, Any] = {}
    calls: list[UOp] = []
    for n in range(draw.integer(1, 2)):
        call = _draw_call_of_kernel_dialect(draw, f"k{n}", declared)
        arguments = [
            a if a.op is Op.PARAM else a.replace(arg=replace(a.arg, unique=a.arg.unique + 100 * n)) for a in call.arguments
        ]
        for a in dict.fromkeys(arguments):
            if a.op is Op.PARAM:
                inputs[a.arg.name] = draw.integer(*a.arg.bounds)
            else:
                inputs[f"b{a.arg.unique}"] = draw_array(draw, a.dtype, a.shape, "small")
        calls.append(UOp(Op.CALL, (call.body, *arguments), call.arg))
    return FuzzCase(UOp(Op.LINEAR, tuple(calls)), inputs)


def _draw_call_of_kernel_dialect(draw: ChoiceSource, name: str, declared: SupportedOpDtypes) -> UOp:
    """Draw a Call until one is well-formed in KERNEL; a recurrence is."""
    for form in (*(draw.choice(tuple(FORMS)) for _ in range(4)), "recurrence"):
        call = build_kernel_call_on_placeholders(draw, form, name, declared)
        body = call.body
        if body.op is not Op.SINK or body.arg is None:
            body = UOp(Op.SINK, body.src if body.op in EFFECT_GROUPS else (body,), SinkArg(name))
        call = call.replace(src=(body, *call.arguments))
        if not find_broken_claims(UOp(Op.LINEAR, (call,)), Dialect.KERNEL):
            break
    return call


def _draw_named_sink_or_other_root(k: WrittenKernel, effects: list[UOp]) -> UOp:
    """Draw the root of a body: a Sink with a name, or another one, which is that of a kernel by its loops (R166)."""
    has_loops = any(u.op is Op.RANGE for u in toposort(*effects))
    roots: list[Any] = [lambda: UOp(Op.SINK, tuple(effects), SinkArg(k.name))] * 3
    if has_loops:
        roots += [lambda: b.sink(*effects), lambda: b.group(*effects), lambda: effects[0]]
    root: UOp = k.draw.choice(roots)()
    return root


__all__ = [
    "FORMS",
    "LIST_FORM",
    "SCHEDULED_FORM",
    "WrittenKernel",
    "build_kernel_call_on_placeholders",
    "draw_kernel_call_on_placeholders",
    "generate_launch_of_kernels",
]
