"""The generator of SCHEDULED kernels: loops of every type, LOCAL memory that lanes share, and Barriers between phases.

A kernel is a chain of phases. Each phase computes one element per iteration of its loops: from inputs, or from values that
other lanes left in LOCAL memory before a Barrier. A kernel without lanes may fill a row of LOCAL memory and read it. The last
phase stores each element of GLOBAL memory once. Beside it, a counter in memory may be incremented in some of the loops. Kernels
of one launch use what earlier ones wrote.

All arithmetic is exact, so that there is one result: integers of any size wrap, and floats are small integers. Sums of floats
of 16 bits or fewer would round, so these are only selected by comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, CallArg, ParamArg, ReduceArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Dtypes of kernels; float32 and float64 are repeated to balance the many integers.
DTYPES = (*dt.INTS, *(dt.float32, dt.float64) * 2, *dt.FLOATS)
#: Floats in which the sums made here are exact.
_WIDE = tuple(d for d in dt.FLOATS if d.wide is d)
#: Types of the outer loops, outermost first.
_OUTER = (AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD)
#: Types of loops whose iterations become vector lanes.
_INNER = (AxisType.UPCAST,)


@dataclass
class KernelMaker:
    """The state of one kernel under construction."""

    draw: ChoiceSource
    dtype: DType
    name: str
    ranges: list[UOp] = field(default_factory=list)
    lanes: list[UOp] = field(default_factory=list)
    arguments: list[UOp] = field(default_factory=list)
    params: list[UOp] = field(default_factory=list)
    uniques: int = 0
    axes: int = 0
    int_dtypes: tuple[DType, ...] = dt.INTS  # integers that the backend has
    inputs: dict[str, Any] = field(default_factory=dict)
    takes_maxima: bool = True  # Max of floats may choose among zeros (R11)

    def make_range(self, n: int | UOp, kind: AxisType) -> UOp:
        """Make a range of a new axis."""
        self.axes += 1
        return b.range_(n, self.axes - 1, kind)

    def find_or_make_loop_bound_variable(self) -> UOp:
        """Return a variable for a loop bound, which may be 0 or negative: then the loop runs zero times (R57: a bound
        <= 0 runs zero times).
        """
        name, (lo, hi) = f"{self.name}n", (-2, 4)
        if name not in self.inputs:
            self.inputs[name] = self.draw.integer(lo, hi)
            self.arguments.append(b.variable(name, lo, hi))
            self.params.append(self.arguments[-1].replace(arg=ParamArg(len(self.params), dt.index, name=name, bounds=(lo, hi))))
        return self.params[self.arguments.index(b.variable(name, lo, hi))]

    def find_or_make_param_of_argument(self, argument: UOp) -> UOp:
        """Return the Param that stands for a Buffer of the launch."""
        if argument in self.arguments:
            return self.params[self.arguments.index(argument)]
        p = b.param(len(self.params), (argument.arg.size,), argument.dtype)
        self.arguments.append(argument)
        self.params.append(p)
        return p

    def make_local_buffer(self, size: int) -> UOp:
        """Make a Buffer in LOCAL memory."""
        self.uniques += 1
        return b.buffer(size, self.dtype, addrspace=AddrSpace.LOCAL, unique=self.uniques)


def generate_linear_of_one_or_two_kernels(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a LINEAR of one or two kernels."""
    inputs: dict[str, Any] = {}
    d = draw.choice(declared.filter_dtypes(DTYPES))
    memories = []
    for unique in range(1, draw.integer(2, 3) + 1):
        size = draw.choice((4, 8, 12, 16, 24))
        memories.append(b.buffer(size, d, unique=unique))
        inputs[f"b{unique}"] = draw_array(draw, d, (size,), draw.choice(("small", "mixed", "bits")) if not d.is_float else "small")
    calls = []
    for k in range(draw.integer(1, 2)):
        call, filled = make_kernel_call_and_output_buffer(
            KernelMaker(draw, d, f"k{k}", int_dtypes=declared.filter_dtypes(dt.INTS), inputs=inputs), memories, 100 + k
        )
        calls.append(call)
        memories.append(filled)
    return FuzzCase(UOp(Op.LINEAR, tuple(calls)), inputs)


def make_kernel_call_and_output_buffer(k: KernelMaker, input_memories: list[UOp], output_buffer_id: int) -> tuple[UOp, UOp]:
    """Make one kernel; return its Call and the Buffer that it fills."""
    draw = k.draw
    for kind in _OUTER:
        if draw.chance(40):
            k.ranges.append(k.make_range(draw.integer(1, 4), kind))
    if draw.chance(70):
        k.lanes.append(k.make_range(draw.choice((2, 3, 4, 8)), AxisType.LOCAL))
        if draw.chance(25):
            k.lanes.append(k.make_range(2, AxisType.LOCAL))
    if draw.chance(30):
        k.ranges.append(k.make_range(draw.choice((2, 4)), AxisType.UPCAST))
    ranges = [*k.ranges, *k.lanes] or [k.make_range(4, AxisType.LOOP)]
    k.ranges = [r for r in ranges if r not in k.lanes]
    total = math.prod(loop_extent(r) for r in ranges)
    out = b.buffer(total, k.dtype, unique=output_buffer_id)
    target = k.find_or_make_param_of_argument(out)
    value = _make_value_maybe_via_local_memory(
        k,
        [k.find_or_make_param_of_argument(m) for m in input_memories if draw.chance(70)]
        or [k.find_or_make_param_of_argument(input_memories[0])],
    )
    nest = sorted(ranges, key=lambda r: (r.arg.type.priority, r.arg.axis_id))
    # R60 (Barrier): all lanes of a workgroup reach a Barrier, so a kernel with LOCAL memory runs all its lanes to the end.
    if k.uniques or not draw.chance(60):
        fill = b.wrap_in_one_end_per_loop(b.store(b.at(target, row_major_index(ranges)), value), nest)
        return UOp(Op.CALL, (UOp(Op.SINK, (fill,), SinkArg(k.name)), *k.arguments), CallArg(written=(0,))), out
    count = len(nest) - draw.integer(1, len(nest))
    outer, inner = nest[:count], nest[count:]
    update = _make_update_of_counter(k, output_buffer_id + 100, outer[::-1])
    target = b.after(target, update) if draw.chance(40) else target  # the inner loops begin behind the update
    fill = b.wrap_in_one_end_per_loop(b.store(b.at(target, row_major_index(ranges)), value), inner)
    effects = [b.wrap_in_one_end_per_loop(b.group(update, fill), outer)] if outer else [fill, update]
    written = (0, len(k.params) - 1)
    return UOp(Op.CALL, (UOp(Op.SINK, tuple(effects), SinkArg(k.name)), *k.arguments), CallArg(written=written)), out


def _make_update_of_counter(k: KernelMaker, buffer_id: int, ranges: list[UOp]) -> UOp:
    """Make an effect that combines an element of memory with 1, once per iteration of some of the loops."""
    memory = b.buffer(math.prod(loop_extent(r) for r in ranges), k.dtype, unique=buffer_id)
    k.inputs[f"b{buffer_id}"] = draw_array(k.draw, k.dtype, tuple(memory.shape), "small")
    element = b.at(k.find_or_make_param_of_argument(memory), row_major_index(ranges))
    one = b.const(1, k.dtype)
    if not k.dtype.is_float and k.draw.chance(50):
        return UOp(Op.ATOMICADD, (element, one))
    return b.store(element, combine_exactly(k, b.load(element), one))


def loop_extent(r: UOp) -> int:
    """Return the number of iterations of a range, at least 0; that of a bound which is no constant is taken as 3."""
    return max(0, int(r.bound.arg.value)) if r.bound.op is Op.CONST else 3


def row_major_index(ranges: list[UOp]) -> UOp:
    """Return the row-major position of the iteration; 0 without loops."""
    position = b.index(0)
    for r in ranges:
        position = b.add(b.mul(position, loop_extent(r)), r)
    return position


def _make_value_maybe_via_local_memory(k: KernelMaker, loadable_memory: list[UOp]) -> UOp:
    """Make the value of an iteration, with a random number of exchanges between lanes."""
    value = _make_expression_of_loads(k, loadable_memory)
    has_vector_lanes = any(r.arg.type in _INNER for r in k.ranges)
    for _ in range(k.draw.integer(0, 2) if k.lanes and not has_vector_lanes else 0):
        value = _exchange_or_reduce_lanes_in_local_memory(k, value, loadable_memory)
    is_serial = not k.lanes and all(r.arg.type in (AxisType.LOOP, AxisType.UPCAST) for r in k.ranges)
    return (
        combine_exactly(k, value, _fill_local_row_and_read_or_reduce_it(k, loadable_memory))
        if is_serial and k.draw.chance(40)
        else value
    )


def _fill_local_row_and_read_or_reduce_it(k: KernelMaker, loadable_memory: list[UOp]) -> UOp:
    """Fill a row of LOCAL memory in a loop, and read one of its elements or reduce all of them."""
    n = k.draw.choice((2, 3, 4, 8))
    row, lane = k.make_local_buffer(n), k.make_range(n, k.draw.choice((AxisType.LOOP, AxisType.UPCAST)))
    inner, k.ranges = k.ranges, [r for r in k.ranges if r.arg.type not in _INNER]  # vector lanes share one row
    filled = b.end(b.store(b.at(row, lane), make_load_at_affine_position(k, k.draw.choice(loadable_memory), [lane])), lane)
    k.ranges = inner
    reduced = k.make_range(n, AxisType.REDUCE) if k.draw.chance(50) else None
    position = b.mod(b.add(row_major_index(k.ranges), k.draw.integer(0, n - 1)), n) if reduced is None else b.sub(n - 1, reduced)
    value = b.load(b.at(b.after(row, filled), position) if k.draw.chance(50) else b.after(b.at(row, position), filled))
    return value if reduced is None else reduce_exactly(k, value, reduced)


def _exchange_or_reduce_lanes_in_local_memory(k: KernelMaker, value: UOp, loadable_memory: list[UOp]) -> UOp:
    """Store each lane's value in LOCAL memory, and behind a Barrier read another lane's value or reduce all of them."""
    size = math.prod(loop_extent(r) for r in k.lanes)
    tile, lane = k.make_local_buffer(size), row_major_index(k.lanes)
    ready = b.after(tile, UOp(Op.BARRIER, (b.store(b.at(tile, lane), value),)))
    if k.draw.chance(40):
        reduced = k.make_range(size, AxisType.REDUCE)
        return reduce_exactly(k, b.load(b.at(ready, reduced)), reduced)
    other = k.draw.choice((b.sub(size - 1, lane), b.mod(b.add(lane, 1), size), lane))
    return combine_exactly(k, b.load(b.at(ready, other)), _make_expression_of_loads(k, loadable_memory))


def _make_expression_of_loads(k: KernelMaker, loadable_memory: list[UOp]) -> UOp:
    """Make an expression of loads whose positions depend on the loops, sometimes with a reduction."""
    value = make_load_at_affine_position(k, k.draw.choice(loadable_memory), [])
    for _ in range(k.draw.integer(0, 2)):
        value = combine_exactly(k, value, make_load_at_affine_position(k, k.draw.choice(loadable_memory), []))
    if k.draw.chance(35):
        bound, kind = k.draw.integer(1, 5), AxisType.UNROLL if k.draw.chance(25) else AxisType.REDUCE
        r = k.make_range(k.find_or_make_loop_bound_variable(), AxisType.REDUCE) if k.draw.chance(25) else k.make_range(bound, kind)
        value = combine_exactly(
            k, value, reduce_exactly(k, make_load_at_affine_position(k, k.draw.choice(loadable_memory), [r]), r)
        )
    return value


def combine_exactly(k: KernelMaker, x: UOp, y: UOp) -> UOp:
    """Combine two values by a random exact operation."""
    combiners = _exact_combiners(k.dtype)
    return k.draw.choice(combiners if k.takes_maxima or not k.dtype.is_float else combiners[1:])(k, x, y)


def reduce_exactly(k: KernelMaker, value: UOp, r: UOp) -> UOp:
    """Reduce a value over a range by a random operation that is exact in its dtype."""
    ops = (Op.ADD, Op.MAX, Op.MUL) if not k.dtype.is_float else (Op.ADD, Op.MAX) if k.dtype in _WIDE else (Op.MAX,)
    return UOp(Op.REDUCE, (value, r), ReduceArg(k.draw.choice(ops), ()))


def _exact_combiners(d: DType) -> tuple[_Combiner, ...]:
    return _INT_COMBINERS if not d.is_float else _SUM_COMBINERS if d in _WIDE else _SELECTING_COMBINERS


def _shift_combiner(op: Op) -> _Combiner:
    return lambda k, x, y: b.xor(UOp(op, (x, b.const(k.draw.integer(0, k.dtype.bits - 1), k.dtype))), y)


def _division_combiner(op: Op) -> _Combiner:
    return lambda k, x, y: b.add(UOp(op, (x, b.const(k.draw.choice((2, 3, 7)), k.dtype))), y)


def _combine_through_cast(k: KernelMaker, x: UOp, y: UOp) -> UOp:
    """Add two values, the first one cast to another integer dtype and back, which wraps it."""
    return b.add(b.cast(b.cast(x, k.draw.choice(k.int_dtypes)), k.dtype), y)


#: (kernel, x, y) -> a value of both that is computed without rounding.
_Combiner = Callable[[KernelMaker, UOp, UOp], UOp]
#: Combiners of small floats, of wide floats, and of integers; Max is the first.
_SELECTING_COMBINERS: tuple[_Combiner, ...] = (
    lambda k, x, y: b.maximum(x, y),
    lambda k, x, y: b.where(b.lt(x, y), y, x),
    lambda k, x, y: b.where(b.ne(x, y), x, b.const(1, k.dtype)),
)
_SUM_COMBINERS = (*_SELECTING_COMBINERS, lambda k, x, y: b.add(x, y), lambda k, x, y: b.sub(x, y))
_INT_COMBINERS = (
    *_SUM_COMBINERS,
    lambda k, x, y: b.mul(x, y),
    *(lambda k, x, y, op=op: UOp(op, (x, y)) for op in (Op.AND, Op.OR, Op.XOR)),
    *map(_shift_combiner, (Op.SHL, Op.SHR)),
    *map(_division_combiner, (Op.IDIV, Op.MOD)),
    _combine_through_cast,
)


def make_load_at_affine_position(k: KernelMaker, source: UOp, extra_ranges: list[UOp]) -> UOp:
    """Load at a random affine position of the loops, modulo the size; sometimes under a gate, with an alternative."""
    n = int(source.shape[0])
    position = b.index(k.draw.integer(0, n - 1))
    for r in (*k.ranges, *k.lanes, *extra_ranges):
        if k.draw.chance(70):
            position = b.add(position, b.mul(r, k.draw.choice((1, 1, 2, 3))))
    value = b.load(b.at(source, b.mod(position, n)))
    if k.draw.chance(15) and k.ranges:
        r = k.draw.choice(k.ranges)
        inside = b.lt(r, k.draw.integer(0, loop_extent(r)))
        alternative = b.const(k.draw.integer(0, 3), source.dtype) if k.draw.chance(50) else value
        value = b.load(b.at(source, b.mod(b.add(position, 1), n)), alternative, inside)
    return value
