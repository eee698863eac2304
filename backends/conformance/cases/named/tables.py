"""Cases of the second document's tables: an edge class per entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uops.backends.conformance.cases.bestiary import kernels as bestiary
from uops.backends.conformance.cases.bestiary.kernels import BestiaryKernelBuilder
from uops.backends.conformance.cases.common import Inputs
from uops.backends.conformance.cases.launches import make_groups_of_ones_and_twos
from uops.backends.conformance.cases.named.generate import Build, NamedCase
from uops.backends.conformance.cases.tensor_cores import group_descriptors_by_input_dtype, make_fragment_values
from uops.spec.bestiary import build as B
from uops.spec.bestiary.tables import EXPANDABLE_BY_NAME, RANGE_ENDING, REDUCE_OPS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BitcastArg, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EXTREMES, Op

#: Dtypes that some tensor core multiplies.
_MULTIPLIED = tuple(d for d in dt.STORABLE if d in group_descriptors_by_input_dtype())
_INTS = dt.INTS
_WORDS = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}

# ---------------------------------------------------------------------------------------------------------- range-ending


def _end_two_ranges(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target = k.add_source(d, 12), k.add_target(d, 12)
    i, j = k.make_range(3), k.make_range(4)
    store = B.store(B.at(target, b.add(b.mul(j, 3), i)), k.load_at(source, b.add(b.mul(i, 4), j)))
    return (b.end(store, i, j),)


def _call_per_iteration(d: DType, inputs: Inputs) -> UOp:
    """Build a CALL with a RANGE among its arguments, which it ends: each iteration moves the elements on by one (R121)."""
    k = BestiaryKernelBuilder(inputs)
    k.add_target(d, 5)
    memory = B.param(0, 5, d)
    elements = [B.load(B.at(memory, (n + 1) % 5)) for n in range(5)]
    body = b.sink(B.store(B.at(memory), B.vectorize(*elements)))
    return b.sink(b.call(body, *k.arguments, B.range_(3, 0), written=(0,)))


def _function_in_loop(d: DType, inputs: Inputs) -> UOp:
    """Build a FUNCTION of a loop's counter, in whose value the loop stays open (R64, R121)."""
    k = BestiaryKernelBuilder(inputs)
    k.add_source(d, 5)
    k.add_target(d, 5)
    source, target = k.arguments
    i = k.make_range(5)
    body = b.tuple_(b.sub(b.const(4, dt.int32), B.param(0, 1, dt.int32)))
    backwards = b.get(b.function(body, b.reshape(b.cast(i, dt.int32), (1,))), 0)
    position = b.cast(b.reshape(backwards, ()), dt.index)
    return b.sink(B.store(B.at(target, position), k.load_at(source, i), i))


def _end_reduce_range_by_wmma(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a WMMA that ends a REDUCE range: each iteration adds a product of small whole numbers (R178)."""
    descriptor = group_descriptors_by_input_dtype()[d][0]
    threads, maps = descriptor.threads, [descriptor.map(name) for name in "ABC"]
    counts = [m.elements for m in maps]
    steps = [np.concatenate([make_fragment_values(m, d, k) for k in range(2)]) for m in maps[:2]]
    values = [*steps, make_fragment_values(maps[2], descriptor.dtype_out, 2)]
    lhs, rhs, start = (k.add_source(e, v.size, v) for e, v in zip((d, d, descriptor.dtype_out), values, strict=True))
    target = k.add_target(descriptor.dtype_out, threads * counts[2])
    lane, r = k.make_range(threads, AxisType.WARP), k.make_range(2, AxisType.REDUCE)

    def positions(first: UOp, n: int) -> UOp:
        return B.vectorize(*(b.add(b.mul(first, n), e) for e in range(n)))

    step = b.add(b.mul(r, threads), lane)
    fragments = [B.load(B.at(m, positions(at, n))) for m, at, n in zip((lhs, rhs, start), (step, step, lane), counts)]
    arg = WmmaArg(descriptor.name, descriptor.dims, d, descriptor.dtype_out, descriptor.vendor, threads)
    product = UOp(Op.WMMA, (*fragments, r), arg)
    return (B.store(B.at(target, positions(lane, counts[2])), product, lane),)


#: Entry of the range-ending table -> its case.
_RANGE_ENDING: dict[Op, Build] = {
    Op.BUFFERIZE: bestiary.single_kernel(bestiary.bufferize_over_two_ranges(AddrSpace.LOCAL)),
    Op.B_REDUCE: bestiary.single_kernel(bestiary.reduce_inner_range(Op.MAX)),
    Op.B_STORE: bestiary.single_kernel(bestiary.close_two_loops_by_store),
    Op.WMMA: bestiary.single_kernel(_end_reduce_range_by_wmma),
    Op.END: bestiary.single_kernel(_end_two_ranges),
    Op.CALL: _call_per_iteration,
    Op.FUNCTION: _function_in_loop,
}

# ------------------------------------------------------------------------------------------------------------ expandable

#: The value after an op, from the lanes of an UNROLL, the memory that they are loaded from, and the kernel.
_Change = Callable[[DType, BestiaryKernelBuilder, UOp, UOp], UOp]


def _unroll_two_axes(d: DType, k: BestiaryKernelBuilder, source: UOp) -> tuple[UOp, tuple[tuple[int, int], ...]]:
    """Return the elements of memory of 6 elements as lanes over two axes, and the axes."""
    u, v = k.make_range(2, AxisType.UNROLL), k.make_range(3, AxisType.UNROLL)
    axes = ((u.arg.axis_id, 2), (v.arg.axis_id, 3))
    return B.unroll(k.load_at(source, b.add(b.mul(u, 3), v)), *axes), axes


def _count(n: int) -> UOp:
    return B.vectorize(*(b.index(k) for k in range(n)))


def _apply_op_and_contract_swapped_axes(apply_op: _Change) -> Build:
    """Build lanes that pass through an op, and are then put in the other order of their axes: they are still those lanes."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 6, make_groups_of_ones_and_twos(d, 3, 2).reshape(-1)), k.add_target(d, 6)
        lanes, axes = _unroll_two_axes(d, k, source)
        return (B.store(B.at(target, _count(6)), B.contract(apply_op(d, k, lanes, source), *reversed(axes))),)

    return bestiary.single_kernel(build)


def _store_all_lanes_at_once(*, in_loop: bool) -> Build:
    """Build a STORE of all lanes, in an END of a loop or not."""

    def build(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 6), k.add_target(d, 18)
        lanes, _ = _unroll_two_axes(d, k, source)
        if not in_loop:
            return (B.store(B.at(target, _count(6)), lanes),)
        i = k.make_range(3)
        positions = B.vectorize(*(b.sub(17 - n, b.mul(i, 6)) for n in range(6)))
        return (b.end(B.store(B.at(target, positions), lanes), i),)

    return bestiary.single_kernel(build)


def _reduce_lanes(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target = k.add_source(d, 12, make_groups_of_ones_and_twos(d, 4, 3).T.reshape(-1)), k.add_target(d, 4)
    i, u = k.make_range(4), k.make_range(3, AxisType.UNROLL)
    lanes = B.unroll(k.load_at(source, b.add(b.mul(u, 4), i)), (u.arg.axis_id, 3))
    return (B.store(B.at(target, i), B.reduce(lanes, Op.MAX), i),)


def _bufferize_one_lane_per_iteration(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a BUFFERIZE of one lane of each iteration."""
    source, target = k.add_source(d, 12), k.add_target(d, 4)
    i, j, u = k.make_range(4), k.make_range(4), k.make_range(3, AxisType.UNROLL)
    lanes = B.unroll(k.load_at(source, b.add(b.mul(i, 3), u)), (u.arg.axis_id, 3))
    kept = B.bufferize(B.gep(lanes, 2), i, space=AddrSpace.LOCAL)
    return (B.store(B.at(target, b.sub(3, j)), B.load(B.at(kept, j)), j),)


def _multiply_unrolled_fragments(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    """Build a WMMA whose fragments are lanes of an UNROLL."""
    descriptor = group_descriptors_by_input_dtype()[d][0]
    maps = [descriptor.map(name) for name in "ABC"]
    counts = [m.elements for m in maps]
    lane = k.make_range(descriptor.threads, AxisType.WARP)
    fragments = []
    for e, m, n in zip((d, d, descriptor.dtype_out), maps, counts, strict=True):
        memory = k.add_source(e, descriptor.threads * n, make_fragment_values(m, e, n))
        u = k.make_range(n, AxisType.UNROLL)
        fragments.append(B.unroll(k.load_at(memory, b.add(b.mul(lane, n), u)), (u.arg.axis_id, n)))
    target = k.add_target(descriptor.dtype_out, descriptor.threads * counts[2])
    arg = WmmaArg(descriptor.name, descriptor.dims, d, descriptor.dtype_out, descriptor.vendor, descriptor.threads)
    positions = B.vectorize(*(b.add(b.mul(lane, counts[2]), n) for n in range(counts[2])))
    return (B.store(B.at(target, positions), UOp(Op.WMMA, tuple(fragments), arg), lane),)


def _as_positions(x: UOp) -> UOp:
    """Return positions in memory of 6 elements, which data give: remainders, as a whole uint64 fits no index (R08, index dtype)."""
    return b.cast(b.mod(x, b.const(3, x.dtype)), dt.index)


#: Entry of the expandable table -> its case, and the dtypes that have one.
_EXPANDABLE: dict[str, tuple[Build, tuple[DType, ...]]] = {
    "Unary": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: UOp(Op.NOT if d is dt.bool_ else Op.NEG, (x,))), dt.STORABLE),
    "Binary": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: UOp(Op.MAX, (x, x))), dt.STORABLE),
    "Ternary": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: UOp(Op.WHERE, (UOp(Op.CMPNE, (x, x)), x, x))), dt.STORABLE),
    "Cast": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: b.cast(b.cast(x, dt.int32), d)), dt.STORABLE),
    "BitCast": (
        _apply_op_and_contract_swapped_axes(
            lambda d, k, x, m: UOp(Op.BITCAST, (UOp(Op.BITCAST, (x,), BitcastArg(_WORDS[d.itemsize])),), BitcastArg(d))
        ),
        tuple(d for d in dt.STORABLE if d is not dt.bool_),
    ), "Gep": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: B.gep(x, 1, 0, 2, 4, 3, 5)), dt.STORABLE), "Vectorize":
    (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: B.vectorize(*(B.gep(x, n) for n in (5, 0, 1, 2, 3, 4)))), dt.STORABLE),
    "Load": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: B.load(B.at(m, _as_positions(x)))), _INTS), "Store":
    (_store_all_lanes_at_once(in_loop=False), dt.STORABLE), "Index":
    (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: B.load(B.at(m, b.sub(3, _as_positions(x))))), _INTS), "PointerIndex": (
        _apply_op_and_contract_swapped_axes(lambda d, k, x, m: B.load(B.pointer(m, b.mul(_as_positions(x), d.itemsize)))), _INTS
    ),
    "Reduce": (bestiary.single_kernel(_reduce_lanes), dt.STORABLE),
    "End": (_store_all_lanes_at_once(in_loop=True), dt.STORABLE),
    "After": (_apply_op_and_contract_swapped_axes(lambda d, k, x, m: b.after(x, b.group())), dt.STORABLE),
    "Bufferize": (bestiary.single_kernel(_bufferize_one_lane_per_iteration), dt.STORABLE),
    "Wmma": (bestiary.single_kernel(_multiply_unrolled_fragments), _MULTIPLIED),
}  # fmt: skip


def _make_zero_trip_reduce_cases() -> tuple[NamedCase, ...]:
    return tuple(
        NamedCase(
            "Table/ReduceOp",
            f"{name.lower()}-of-nothing",
            bestiary.single_kernel(bestiary.make_zero_trip_reduce_and_running_reduce(op)),
            dtypes=tuple(d for d in dt.STORABLE if d is not dt.bool_ or op in EXTREMES),
        )
        for name, op in REDUCE_OPS.items()
    )


CASES = (
    *(
        NamedCase(
            "Table/RangeEnding",
            op.name.removeprefix("B_").lower(),
            _RANGE_ENDING[op],
            dtypes=_MULTIPLIED if op is Op.WMMA else dt.STORABLE,
        )
        for op in RANGE_ENDING
    ),
    *(
        NamedCase("Table/Expandable", name.lower(), _EXPANDABLE[name][0], dtypes=_EXPANDABLE[name][1])
        for name in EXPANDABLE_BY_NAME
    ),
    *_make_zero_trip_reduce_cases(),
)
