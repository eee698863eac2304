"""Kernel cases of loops and order: Range with every axis type and bound, End, Linear, Sink, Group, After, Call and Reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from uops.backends.conformance.cases.common import SAMPLE, Inputs, add_buffer
from uops.backends.conformance.cases.launches import (
    KernelBuilder,
    build_single_kernel,
    copy_element,
    list_instructions,
    local_memory,
    make_launch,
    make_launch_case,
    register_memory,
    small_numbers,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import SEQUENTIAL, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Builds the effects of a kernel for a dtype, on memory that it adds to the builder.
BuildEffects = Callable[[DType, KernelBuilder], tuple[UOp, ...]]
#: Builds a launch, or a TENSOR graph with a Call of a kernel, and adds its data to the inputs.
BuildLaunch = Callable[[DType, Inputs], UOp]
#: Axis types of the language's kernels; the second document's Placeholder is none of them (R109).
KERNEL_AXES = tuple(t for t in AxisType if t is not AxisType.PLACEHOLDER)
#: Extent of most loops: no power of two, so that vectors and blocks have a remainder.
N = 11


def edge_of_axis(t: AxisType) -> str:
    """Return the edge class of an axis type: `group-reduce`."""
    return t.name.lower().replace("_", "-")


def single_kernel(build: BuildEffects) -> BuildLaunch:
    """Return the builder of a launch of one kernel."""
    return build_single_kernel(KernelBuilder, build)


# ---------------------------------------------------------------------------------------------------------------- Range


def reverse_in_loop_and_store_outside(t: AxisType, bound: int = N) -> BuildEffects:
    """Build a loop whose iterations copy one element each; one more element is stored beside it, whether it runs or not."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N), k.add_target(d, N + 1)
        i = k.make_range(bound, t)
        return (b.end(copy_element(target, b.sub(N - 1, i), source, i), i), copy_element(target, b.index(N), source, b.index(2)))

    return build


def keep_last_iteration_in_register(t: AxisType) -> BuildEffects:
    """Build a loop that overwrites a register: the last iteration decides, as the loop runs in order (R57)."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N * 4), k.add_target(d, 4)
        memory = register_memory(1, d)
        i, j = k.make_range(4), k.make_range(N, t)
        entered = b.after(memory, i)
        step = b.store(b.at(b.after(entered, j), 0), b.load(b.at(source, b.add(b.mul(i, N), j))))
        last = b.load(b.at(b.after(entered, b.end(step, j)), 0))
        return (b.end(b.store(b.at(target, i), last), i),)

    return build


def reverse_up_to_variable_and_store_outside(t: AxisType, value: int) -> BuildEffects:
    """Build a loop with a symbolic bound, which may be negative."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, N), k.add_target(d, N + 1)
        i = k.make_range(k.add_variable("n", -4, N, value), t)
        return (b.end(copy_element(target, b.sub(N - 1, i), source, i), i), copy_element(target, b.index(N), source, b.index(2)))

    return build


def _loop_to_loaded_bound(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build inner loops whose bounds are data, zero and negative ones among them."""
    source, target = k.add_source(d, N * 4), k.add_target(d, N * 4)
    bounds = k.add_source(dt.int32, 4, np.array([3, 0, -2, N], np.int32))
    i = k.make_range(4)
    j = k.make_range(b.cast(b.load(b.at(bounds, i)), dt.index))
    position = b.add(b.mul(i, N), j)
    return (b.end(b.end(copy_element(target, position, source, b.sub(4 * N - 1, position)), j), i),)


def _triangle(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build an inner loop whose bound is the counter of the outer one."""
    source, target = k.add_source(d, 25), k.add_target(d, 25)
    i = k.make_range(5)
    j = k.make_range(i)
    return (b.end(b.end(copy_element(target, b.add(b.mul(i, 5), j), source, b.add(b.mul(j, 5), i)), j), i),)


def _transpose_in(outer: AxisType, inner: AxisType) -> BuildEffects:
    """Build two nested loops that transpose a matrix."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target = k.add_source(d, 24), k.add_target(d, 24)
        i, j = k.make_range(4, outer), k.make_range(6, inner)
        store = copy_element(target, b.add(b.mul(j, 4), i), source, b.add(b.mul(i, 6), j))
        return (b.end(b.end(store, j), i),)

    return build


def _two_loops_in_order(first: AxisType, second: AxisType) -> BuildEffects:
    """Build a loop that reads in reverse what the loop before it wrote."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, between, target = k.add_source(d, N), k.add_target(d, N), k.add_target(d, N)
        i, j = k.make_range(N, first), k.make_range(N, second)
        filled = b.end(copy_element(between, b.sub(N - 1, i), source, i), i)
        return (b.end(copy_element(target, j, b.after(between, filled), b.mod(b.add(j, 3), N)), j),)

    return build


def _carry_dependence_over_three_iterations(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build a loop of which each iteration reads what the one three before it stored."""
    source, target = k.add_source(d, 4), k.add_target(d, N)
    i = k.make_range(N - 3)
    first = [copy_element(target, b.index(n), source, b.index(n + 1)) for n in range(3)]
    memory = b.after(target, *first, i)
    return (b.end(b.store(b.at(memory, b.add(i, 3)), b.load(b.at(memory, i))), i),)


# ------------------------------------------------------------------------------------------------------- other orders


def _one_end_of_two_loops(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    source, target = k.add_source(d, 24), k.add_target(d, 24)
    i, j = k.make_range(4), k.make_range(6)
    store = copy_element(target, b.add(b.mul(j, 4), i), source, b.add(b.mul(i, 6), j))
    return (b.end(store, i, j),)


def _store_after_inner_loop(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build a Store of the outer loop behind an inner loop, of whose result it reads the last element."""
    source, rows, target = k.add_source(d, 24), k.add_target(d, 24), k.add_target(d, 4)
    i, j = k.make_range(4), k.make_range(6)
    position = b.add(b.mul(i, 6), j)
    inner = b.end(copy_element(rows, position, source, b.sub(23, position)), j)
    last = b.load(b.at(b.after(rows, inner), b.add(b.mul(i, 6), 5)))
    return (b.end(b.store(b.at(target, i), last), i),)


def _two_effects(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    source, one, two = k.add_source(d, N), k.add_target(d, N), k.add_target(d, N)
    i, j = k.make_range(N), k.make_range(N)
    return (
        b.end(copy_element(one, i, source, b.sub(N - 1, i)), i),
        b.end(copy_element(two, j, source, b.mod(b.add(j, 4), N)), j),
    )


def _group_in_loop(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    source, one, two = k.add_source(d, N), k.add_target(d, N), k.add_target(d, N)
    i = k.make_range(N)
    stores = copy_element(one, i, source, b.sub(N - 1, i)), copy_element(two, b.sub(N - 1, i), source, b.mod(b.add(i, 4), N))
    return (b.end(b.group(*stores), i),)


def _read_between_two_stores(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    """Build two Stores to one element, and a Load between them that reads the first one's value."""
    source, memory, target = k.add_source(d, 2 * N), k.add_target(d, N), k.add_target(d, N)
    i = k.make_range(N)
    first = copy_element(memory, i, source, i)
    seen = b.load(b.at(b.after(memory, first), i))
    kept = b.store(b.at(target, b.sub(N - 1, i)), seen)
    second = b.store(b.at(b.after(memory, kept), i), b.load(b.at(source, b.add(i, N))))
    return (b.end(second, i),)


def run_two_calls(d: DType, inputs: Inputs) -> UOp:
    """Build two kernels: the second reverses what the first rotated."""
    first = KernelBuilder(inputs)
    source, between = first.add_source(d, N), first.add_target(d, N)
    i = first.make_range(N)
    rotate = first.call(b.end(copy_element(between, i, source, b.mod(b.add(i, 3), N)), i), name="rotate")
    second = KernelBuilder(inputs)
    left, target = second.add_argument(first.arguments[1]), second.add_target(d, N)
    j = second.make_range(N)
    return make_launch(rotate, second.call(b.end(copy_element(target, b.sub(N - 1, j), left, j), j), name="reverse"))


def _launch_one_call_twice(d: DType, inputs: Inputs) -> UOp:
    """Build a launch that executes one Call twice: its memory is rotated by two elements (R151)."""
    k = KernelBuilder(inputs)
    memory, copy = k.add_target(d, N), local_memory(N, d)
    i, j = k.make_range(N), k.make_range(N)
    saved = b.end(copy_element(copy, i, memory, i), i)
    call = k.call(b.end(copy_element(memory, j, b.after(copy, saved), b.mod(b.add(j, 1), N)), j))
    return make_launch(call, call)


def _instruction_list(d: DType, inputs: Inputs) -> UOp:
    k = KernelBuilder(inputs)
    source, target = k.add_source(d, 9), k.add_target(d, 9)
    i = k.make_range(9)
    counter = b.cast(i, dt.int32)
    store = copy_element(target, i, source, UOp(Op.SUB, (b.const(8), counter)))
    return make_launch(k.call_body(list_instructions(source, target, b.end(store, i))))


def _tensor_graph_with_kernel(d: DType, inputs: Inputs) -> UOp:
    """Build a TENSOR graph whose Call has a kernel for a body; a Store behind it reads what the kernel left (R166)."""
    k = KernelBuilder(inputs)
    source, between = k.add_source(d, N), k.add_target(d, N)
    i = k.make_range(N)
    call = k.call(b.end(copy_element(between, b.sub(N - 1, i), source, i), i))
    filled = b.after(k.arguments[1], call)
    out = add_buffer(d, N, inputs)
    return b.sink(b.store(out, b.stack(*(b.at(filled, (3 * n + 1) % N) for n in range(N)))))


def reduce_range(op: Op, t: AxisType) -> BuildEffects:
    """Build a Reduce over the iterations of a loop; a maximum of small whole numbers, or a sum of few."""

    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        values = small_numbers(d, 20)
        values[::5] = 0  # a result that is no other than 0, for bool too
        source = k.add_source(d, 20, values)
        target = k.add_target(d, 5)
        i, j = k.make_range(5), k.make_range(4, t)
        value = UOp(Op.REDUCE, (b.load(b.at(source, b.add(b.mul(j, 5), i))), j), ReduceArg(op, ()))
        return (b.end(b.store(b.at(target, i), value), i),)

    return build


# fmt: off
#: (op, edge class, builder) of each case.
TABLE: tuple[tuple[Op, str, BuildLaunch], ...] = (
    *((Op.RANGE, edge_of_axis(t), single_kernel(reverse_in_loop_and_store_outside(t))) for t in KERNEL_AXES),
    *((Op.RANGE, f"{edge_of_axis(t)}-in-order", single_kernel(keep_last_iteration_in_register(t))) for t in KERNEL_AXES
      if t in SEQUENTIAL),
    *((Op.RANGE, f"{edge_of_axis(t)}-zero-trip", single_kernel(reverse_in_loop_and_store_outside(t, 0))) for t in KERNEL_AXES),
    *((Op.RANGE, f"{edge_of_axis(t)}-negative-bound", single_kernel(reverse_in_loop_and_store_outside(t, -3)))
      for t in KERNEL_AXES),
    *((Op.RANGE, f"{edge_of_axis(t)}-symbolic", single_kernel(reverse_up_to_variable_and_store_outside(t, 7))) for t in KERNEL_AXES
      if t not in WORKGROUP | UNROLLED),
    *((Op.RANGE, f"{edge_of_axis(t)}-symbolic-negative", single_kernel(reverse_up_to_variable_and_store_outside(t, -1)))
      for t in KERNEL_AXES
      if t not in WORKGROUP | UNROLLED),
    *((Op.RANGE, f"{edge_of_axis(a)}-around-{edge_of_axis(c)}", single_kernel(_transpose_in(a, c))) for a, c in (
        (AxisType.LOOP, AxisType.LOOP), (AxisType.GLOBAL, AxisType.LOCAL), (AxisType.GLOBAL, AxisType.GLOBAL),
        (AxisType.THREAD, AxisType.LOOP), (AxisType.LOCAL, AxisType.UPCAST), (AxisType.LOOP, AxisType.UNROLL),
        (AxisType.UPCAST, AxisType.UPCAST), (AxisType.LOCAL, AxisType.LOOP), (AxisType.WARP, AxisType.LOCAL),
        (AxisType.LOCAL, AxisType.GROUP_REDUCE))),
    (Op.RANGE, "loaded-bound",     single_kernel(_loop_to_loaded_bound)),
    (Op.RANGE, "counter-bound",    single_kernel(_triangle)),
    (Op.RANGE, "carried",          single_kernel(_carry_dependence_over_three_iterations)),
    *((Op.RANGE, f"{edge_of_axis(a)}-before-{edge_of_axis(c)}", single_kernel(_two_loops_in_order(a, c))) for a, c in (
        (AxisType.LOOP, AxisType.LOOP), (AxisType.UPCAST, AxisType.LOOP), (AxisType.LOOP, AxisType.UNROLL))),
    (Op.END, "two-loops",          single_kernel(_one_end_of_two_loops)),
    (Op.END, "inner-loop",         single_kernel(_store_after_inner_loop)),
    (Op.LINEAR, "two-calls",       run_two_calls),
    (Op.LINEAR, "same-call-twice", _launch_one_call_twice),
    (Op.LINEAR, "instructions",    _instruction_list),
    (Op.SINK, "kernel",            single_kernel(_two_effects)),
    (Op.GROUP, "kernel",           single_kernel(_group_in_loop)),
    (Op.AFTER, "kernel",           single_kernel(_read_between_two_stores)),
    (Op.CALL, "kernel",            _tensor_graph_with_kernel),
    *((Op.REDUCE, f"kernel-{op.name.lower()}-{edge_of_axis(t)}", single_kernel(reduce_range(op, t)))
      for op in (Op.ADD, Op.MAX) for t in (AxisType.REDUCE, AxisType.UNROLL)),
)
# fmt: on


def generate_loop_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every loop row x dtype."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if "-add-" in edge and d is dt.bool_:
                continue
            inputs: Inputs = {}
            yield make_launch_case(op, d, edge, make(d, inputs), inputs)
