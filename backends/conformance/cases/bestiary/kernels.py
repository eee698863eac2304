"""Cases of the bestiary's rows that kernels have: loops, accesses, vectors of lanes, blocks, memory of a kernel, programs.

Each is a launch of one kernel whose body, arguments and memory are the second document's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uops.backends.conformance.cases.common import SAMPLE, Inputs
from uops.backends.conformance.cases.launches import (
    KernelBuilder,
    build_single_kernel,
    make_groups_of_ones_and_twos,
    make_launch,
    make_launch_case,
    small_numbers,
    special,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec.bestiary import build as B
from uops.spec.bestiary.tables import REDUCE_OPS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Extent of most loops.
N = 7
#: Lanes of a vector.
LANES = 4


class BestiaryKernelBuilder(KernelBuilder):
    """A kernel of the second document under construction."""

    def make_buffer(self, size: int, d: DType, unique: int) -> UOp:
        """Make a BUFFER of the launch."""
        return B.buffer(size, d, unique)

    def make_param(self, slot: int, memory: UOp) -> UOp:
        """Make the PARAM that stands for memory of the launch."""
        return B.param(slot, memory.arg.size, memory.dtype)

    def make_range(self, bound: int | UOp, kind: AxisType = AxisType.LOOP, *dependencies: UOp) -> UOp:
        """Make a RANGE of a new axis, inside of the loops that it depends on."""
        self.axes += 1
        return B.range_(bound, self.axes - 1, kind, *dependencies)

    def load_at(self, memory: UOp, position: UOp | int) -> UOp:
        """Return a LOAD of an element."""
        return B.load(B.at(memory, position))


#: Builds the effects of a kernel for a dtype, on memory that it adds to the builder.
BuildEffects = Callable[[DType, BestiaryKernelBuilder], tuple[UOp, ...]]
#: Builds a body in place of a Sink's effects.
BuildBody = Callable[[DType, BestiaryKernelBuilder], UOp]


def single_kernel(build: BuildEffects) -> Callable[[DType, Inputs], UOp]:
    """Return the builder of a launch of one kernel of the second document."""
    return build_single_kernel(BestiaryKernelBuilder, build)


# ----------------------------------------------------------------------------------------------------------------- loops


def reverse_in_loop_and_store_outside(kind: AxisType, bound: int = N) -> BuildEffects:
    """Build a loop that copies in reverse order, and a STORE beside it that happens whether the loop runs or not."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N + 1), k.add_target(d, N + 1)
        r = k.make_range(bound, kind)
        loop = B.store(B.at(target, b.sub(N - 1, r)), k.load_at(source, r), r)
        return loop, B.store(B.at(target, N), k.load_at(source, N))

    return build


def _loop_inside_by_dependency(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a RANGE that no address ties to the loop around it: in each of its iterations a register is read and written."""
    source, target, count = k.add_source(d, 3, small_numbers(d, 3)), k.add_target(d, 3), B.define_reg(0, 1, d)
    outer = k.make_range(3)
    cleared = B.store(B.at(b.after(count, outer), 0), b.const(0, d))
    inner = k.make_range(2, AxisType.LOOP, outer)
    seen = b.after(count, cleared, inner)
    largest = UOp(Op.MAX, (k.load_at(seen, 0), k.load_at(source, outer)))
    step = B.store(B.at(seen, 0), largest, inner)
    return (B.store(B.at(target, b.sub(2, outer)), k.load_at(b.after(count, step), 0), outer),)


def _triangle(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a loop whose bound is one more than the counter of the loop around it."""
    source, target = k.add_source(d, 16), k.add_target(d, 16)
    i = k.make_range(4)
    j = k.make_range(b.add(i, 1))
    position = b.add(b.mul(i, 4), j)
    return (B.store(B.at(target, position), k.load_at(source, b.sub(15, position)), j, i),)


def reduce_inner_range(op: Op) -> BuildEffects:
    """Build a REDUCE over a range, for each iteration of another one."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 12, make_groups_of_ones_and_twos(d, 4, 3).T.reshape(-1)), k.add_target(d, 4)
        i, r = k.make_range(4), k.make_range(3, AxisType.REDUCE)
        return (B.store(B.at(target, i), B.reduce(k.load_at(source, b.add(b.mul(r, 4), i)), op, r), i),)

    return build


def _reduce_lanes_and_range(op: Op) -> BuildEffects:
    """Build a reduction of the lanes of a vector, and over a range beside it (R105)."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        groups = make_groups_of_ones_and_twos(d, 4, 6).reshape(4, 2, 3).transpose(1, 0, 2)
        source, target = k.add_source(d, 24, groups.reshape(-1)), k.add_target(d, 4)
        i, r = k.make_range(4), k.make_range(2, AxisType.REDUCE)
        lanes = B.vectorize(*(k.load_at(source, b.add(b.mul(b.add(b.mul(r, 4), i), 3), n)) for n in (2, 0, 1)))
        return (B.store(B.at(target, i), B.reduce(lanes, op, r), i),)

    return build


def make_zero_trip_reduce_and_running_reduce(op: Op) -> BuildEffects:
    """Build a reduction over a loop that does not run, which gives the identity, beside one over a loop that runs."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 6, make_groups_of_ones_and_twos(d, 3, 2).reshape(-1)), k.add_target(d, 6)
        stores = []
        for start, extent in ((0, 0), (3, 2)):
            i, r = k.make_range(3), k.make_range(extent, AxisType.REDUCE)
            value = B.reduce(k.load_at(source, b.add(b.mul(i, 2), r)), op, r)
            stores.append(B.store(B.at(target, b.add(i, start)), value, i))
        return tuple(stores)

    return build


def bufferize_over_two_ranges(space: AddrSpace) -> BuildEffects:
    """Build a BUFFERIZE over two ranges, which is read in another order."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 12), k.add_target(d, 12)
        i, j, m, n = k.make_range(3), k.make_range(4), k.make_range(3), k.make_range(4)
        table = B.bufferize(k.load_at(source, b.add(b.mul(i, 4), j)), i, j, space=space)
        value = B.load(B.at(table, b.sub(2, m), b.sub(3, n)))
        return (B.store(B.at(target, b.add(b.mul(m, 4), n)), value, n, m),)

    return build


# -------------------------------------------------------------------------------------------------------------- accesses


def _index_two_axes(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target = b.reshape(k.add_source(d, 12), (3, 4)), b.reshape(k.add_target(d, 12), (4, 3))
    i, j = k.make_range(3), k.make_range(4)
    return (B.store(B.at(target, j, i), B.load(B.at(source, i, j)), j, i),)


def _index_row(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build an INDEX with fewer indices than axes, which is the address of a row."""
    source, target = b.reshape(k.add_source(d, 12), (3, 4)), b.reshape(k.add_target(d, 12), (3, 4))
    i = k.make_range(3)
    return (B.store(B.at(target, b.sub(2, i)), B.load(B.at(source, i)), i),)


def _positions(first: UOp, step: int) -> UOp:
    return B.vectorize(*(b.add(first, step * n) for n in range(LANES)))


def _load_strided_store_contiguous_lanes(step: int) -> BuildEffects:
    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 24), k.add_target(d, 12)
        i = k.make_range(3)
        value = B.load(B.at(source, _positions(b.add(i, 4), step)))
        return (B.store(B.at(target, _positions(b.mul(i, LANES), 1)), value, i),)

    return build


def _gated_load(shift: int, *, alternative: bool) -> BuildEffects:
    """Build LOADs at `shift` from the iteration: under a false gate, the alternative or 0 counts (R104)."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, other, target = k.add_source(d, N), k.add_source(d, N), k.add_target(d, N)
        i = k.make_range(N)
        position = b.add(i, shift)
        inside = b.and_(b.and_(b.ge(position, 0), b.lt(position, N)), b.ne(b.mod(i, 4), 2))
        value = B.load(B.at(source, position, gate=inside), *((k.load_at(other, i),) if alternative else ()))
        return (B.store(B.at(target, i), value, i),)

    return build


def _gated_store(shift: int) -> BuildEffects:
    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N), k.add_target(d, N)
        i = k.make_range(N)
        position = b.add(i, shift)
        inside = b.and_(b.and_(b.ge(position, 0), b.lt(position, N)), b.ne(b.mod(i, 4), 2))
        return (B.store(B.at(target, position, gate=inside), k.load_at(source, i), i),)

    return build


def close_two_loops_by_store(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a STORE that closes two ranges."""
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i, j = k.make_range(3), k.make_range(4)
    return (B.store(B.at(target, b.add(b.mul(j, 3), i)), k.load_at(source, b.add(b.mul(i, 4), j)), i, j),)


def _offset_in_bytes(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target = k.add_source(d, N), k.add_target(d, N)
    i = k.make_range(N)
    loaded = B.load(B.pointer(source, b.mul(i, d.itemsize)))
    return (B.store(B.pointer(target, b.mul(b.sub(N - 1, i), d.itemsize)), loaded, i),)


def _load_through_ptrcat(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a LOAD from a PTRCAT of an element, a vector, and an element under a gate."""
    source, target = k.add_source(d, 16), k.add_target(d, 12)
    i = k.make_range(3)
    pair = B.vectorize(b.add(i, 9), b.add(i, 2))
    gated = B.at(source, b.mul(i, 30), gate=b.lt(i, 1))
    value = B.load(B.ptrcat(B.at(source, b.add(i, 5)), B.at(source, pair), gated))
    return (B.store(B.at(target, _positions(b.mul(i, LANES), 1)), value, i),)


def _store_through_ptrcat(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i = k.make_range(3)
    value = B.load(B.at(source, _positions(b.mul(i, LANES), 1)))
    pair = B.vectorize(b.add(i, 6), b.add(i, 3))
    return (B.store(B.ptrcat(B.at(target, i), B.at(target, pair), B.at(target, b.sub(11, i))), value, i),)


# ----------------------------------------------------------------------------------------------------------------- lanes


def _unroll_two_axes(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build lanes over two axes, the first one outermost (R111)."""
    source, target = k.add_source(d, 18), k.add_target(d, 18)
    i, u, v = k.make_range(3), k.make_range(2, AxisType.UNROLL), k.make_range(3, AxisType.UNROLL)
    value = k.load_at(source, b.add(b.add(b.mul(i, 6), b.mul(v, 2)), u))
    lanes = B.unroll(value, (u.arg.axis_id, 2), (v.arg.axis_id, 3))
    positions = B.vectorize(*(b.add(b.mul(i, 6), n) for n in range(6)))
    return (B.store(B.at(target, positions), lanes, i),)


def _contract_axes(*order: int) -> BuildEffects:
    """Build a CONTRACT of lanes over two axes in the given order of these axes."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 6), k.add_target(d, 6)
        u, v = k.make_range(2, AxisType.UNROLL), k.make_range(3, AxisType.UNROLL)
        axes = ((u.arg.axis_id, 2), (v.arg.axis_id, 3))
        lanes = B.contract(B.unroll(k.load_at(source, b.add(b.mul(u, 3), v)), *axes), *(axes[n] for n in order))
        return (B.store(B.at(target, B.vectorize(*(b.index(5 - n) for n in range(6)))), lanes),)

    return build


def _contract_scalar(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a CONTRACT of a value without an UNROLL, which every lane gets (R106)."""
    source, target = k.add_source(d, 3), k.add_target(d, 12)
    i = k.make_range(3)
    lanes = B.contract(k.load_at(source, b.sub(2, i)), (90, LANES))
    return (B.store(B.at(target, _positions(b.mul(i, LANES), 1)), lanes, i),)


# ---------------------------------------------------------------------------------------------------- blocks and meetings


def _store_twice_in_if_and_once_outside(*, second_in_nested_if: bool, with_endif: bool) -> BuildEffects:
    """Build an IF with two STOREs in its body, one of them perhaps in an IF of its own, and a STORE that always happens."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N), k.add_target(d, 3 * N)
        i = k.make_range(N)
        value = k.load_at(source, i)
        first, second, always = (B.store(B.at(target, b.add(i, N * n)), value) for n in range(3))
        inner = B.if_(b.ne(b.mod(i, 3), 1), second) if second_in_nested_if else second
        block = B.if_(b.lt(i, 5), first, inner)
        return (b.end(b.group(UOp(Op.ENDIF, (block,)) if with_endif else block, always), i),)

    return build


def _reverse_in_workgroup(kind: AxisType | None) -> BuildEffects:
    """Build lanes that exchange elements through a DEFINE_LOCAL and meet at a BARRIER that passes this memory on."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target, tile = k.add_source(d, 8), k.add_target(d, 8), B.define_local(0, 4, d)
        if kind is None:
            g, lane = special("gidx0", 2), special("lidx0", 4)
        else:
            g, lane = k.make_range(2, AxisType.GLOBAL), k.make_range(4, kind)
        position = b.add(b.mul(g, 4), lane)
        met = B.barrier(tile, B.store(B.at(tile, lane), k.load_at(source, position)))
        return (B.store(B.at(target, position), k.load_at(met, b.sub(3, lane)), *(() if kind is None else (lane, g))),)

    return build


def _take_max_in_register_per_lane(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that each find the greatest of some elements in a DEFINE_REG of their own."""
    groups = make_groups_of_ones_and_twos(d, 4, 3).T.reshape(-1)
    source, target, kept = k.add_source(d, 12, groups), k.add_target(d, 4), B.define_reg(0, 1, d)
    lane, r = k.make_range(4, AxisType.LOCAL), k.make_range(3, AxisType.REDUCE)
    cleared = B.store(B.at(b.after(kept, lane), 0), b.const(0, d))
    here = b.after(kept, cleared, r)
    step = B.store(B.at(here, 0), UOp(Op.MAX, (k.load_at(here, 0), k.load_at(source, b.add(b.mul(r, 4), lane)))), r)
    return (B.store(B.at(target, lane), k.load_at(b.after(kept, step), 0), lane),)


def _keep_across_barrier(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build lanes that keep an element in a DEFINE_REG of their own until all have stored theirs."""
    source, target = k.add_source(d, 8), k.add_target(d, 8)
    kept, tile = B.define_reg(0, 1, d), B.define_local(1, 8, d)
    lane = k.make_range(8, AxisType.LOCAL)
    value = k.load_at(source, lane)
    stores = B.store(B.at(b.after(kept, lane), 0), value), B.store(B.at(tile, lane), value)
    own = k.load_at(b.after(kept, B.barrier(tile, *stores)), 0)
    other = k.load_at(B.barrier(tile, *stores), b.sub(7, lane))
    return (B.store(B.at(target, b.sub(7, lane)), b.where(b.lt(lane, 4), own, other), lane),)


# -------------------------------------------------------------------------------------------------------------- programs


def build_reversed_copy_as_sink_and_list(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, UOp]:
    """Return a kernel as a Sink and as the list of its instructions."""
    source, target = k.add_source(d, N), k.add_target(d, N)
    i = k.make_range(N)
    place, last, number = B.at(source, i), b.const(N - 1, dt.int32), b.cast(i, dt.int32)
    back = UOp(Op.SUB, (last, number))
    value, to = B.load(place), B.at(target, back)
    store = B.store(to, value)
    end = b.end(store, i)
    return b.sink(end, name="k"), B.linear(source, target, i, place, value, last, number, back, to, store, end)


def _program_of_sink(d: DType, k: BestiaryKernelBuilder) -> UOp:
    return B.program(build_reversed_copy_as_sink_and_list(d, k)[0])


def _program_of_instructions(d: DType, k: BestiaryKernelBuilder) -> UOp:
    return B.program(*build_reversed_copy_as_sink_and_list(d, k))


_REDUCES = tuple((name.lower(), op) for name, op in REDUCE_OPS.items())
# fmt: off
#: (op, edge class, builder of effects) of each case.
KERNELS: tuple[tuple[Op, str, BuildEffects], ...] = (
    (Op.B_RANGE,       "loop",           reverse_in_loop_and_store_outside(AxisType.LOOP)),
    (Op.B_RANGE,       "placeholder",    reverse_in_loop_and_store_outside(AxisType.PLACEHOLDER)),
    (Op.B_RANGE,       "global",         reverse_in_loop_and_store_outside(AxisType.GLOBAL)),
    (Op.B_RANGE,       "zero-trip",      reverse_in_loop_and_store_outside(AxisType.LOOP, 0)),
    (Op.B_RANGE,       "dependency",     _loop_inside_by_dependency),
    (Op.B_RANGE,       "triangle",       _triangle),
    *((Op.B_REDUCE, name, reduce_inner_range(op)) for name, op in _REDUCES),
    *((Op.B_REDUCE, f"{name}-lanes", _reduce_lanes_and_range(op)) for name, op in _REDUCES),
    *((Op.B_REDUCE, f"{name}-of-nothing", make_zero_trip_reduce_and_running_reduce(op)) for name, op in _REDUCES),
    (Op.BUFFERIZE,     "global",         bufferize_over_two_ranges(AddrSpace.GLOBAL)),
    (Op.BUFFERIZE,     "local",          bufferize_over_two_ranges(AddrSpace.LOCAL)),
    (Op.B_INDEX,       "element",        _index_two_axes),
    (Op.B_INDEX,       "row",            _index_row),
    (Op.B_INDEX,       "lanes",          _load_strided_store_contiguous_lanes(1)),
    (Op.B_INDEX,       "lanes-strided",  _load_strided_store_contiguous_lanes(5)),
    (Op.B_INDEX,       "gated",          _gated_load(2, alternative=True)),
    (Op.POINTER_INDEX, "bytes",          _offset_in_bytes),
    (Op.B_LOAD,        "element",        _index_two_axes),
    (Op.B_LOAD,        "alternative",    _gated_load(-3, alternative=True)),
    (Op.B_LOAD,        "no-alternative", _gated_load(3, alternative=False)),
    (Op.B_STORE,       "two-loops",      close_two_loops_by_store),
    (Op.B_STORE,       "gated",          _gated_store(2)),
    (Op.PTRCAT,        "load",           _load_through_ptrcat),
    (Op.PTRCAT,        "store",          _store_through_ptrcat),
    (Op.UNROLL,        "two-axes",       _unroll_two_axes),
    (Op.CONTRACT,      "same-order",     _contract_axes(0, 1)),
    (Op.CONTRACT,      "other-order",    _contract_axes(1, 0)),
    (Op.CONTRACT,      "scalar",         _contract_scalar),
    (Op.B_IF,          "stores",         _store_twice_in_if_and_once_outside(second_in_nested_if=False, with_endif=False)),
    (Op.B_IF,          "nested",         _store_twice_in_if_and_once_outside(second_in_nested_if=True, with_endif=False)),
    (Op.B_IF,          "endif",          _store_twice_in_if_and_once_outside(second_in_nested_if=False, with_endif=True)),
    (Op.B_BARRIER,     "local",          _reverse_in_workgroup(AxisType.LOCAL)),
    (Op.B_BARRIER,     "warp",           _reverse_in_workgroup(AxisType.WARP)),
    (Op.B_BARRIER,     "specials",       _reverse_in_workgroup(None)),
    (Op.DEFINE_LOCAL,  "per-group",      _reverse_in_workgroup(AxisType.LOCAL)),
    (Op.DEFINE_REG,    "per-lane",       _take_max_in_register_per_lane),
    (Op.DEFINE_REG,    "across-barrier", _keep_across_barrier),
)
#: (op, edge class, builder of a body) of each case whose kernel is not a Sink.
BODIES: tuple[tuple[Op, str, BuildBody], ...] = (
    (Op.B_PROGRAM,     "sink",           _program_of_sink),
    (Op.B_PROGRAM,     "linear",         _program_of_instructions),
)
# fmt: on


def generate_bestiary_kernel_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every row of kernels x dtype."""
    dtypes = dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE
    for op, edge, build in KERNELS:
        for d in dtypes:
            if d is dt.bool_ and edge.startswith(("add", "mul")):  # which are Or and And of bools
                continue
            inputs: Inputs = {}
            yield make_launch_case(op, d, edge, single_kernel(build)(d, inputs), inputs)
    for op, edge, build_body in BODIES:
        for d in dtypes:
            k = BestiaryKernelBuilder({})
            yield make_launch_case(op, d, edge, make_launch(k.call_body(build_body(d, k))), k.inputs)
