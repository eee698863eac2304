"""Cases of the OptOps: a kernel with a sequence of OptOps applied is run, and must compute what the kernel did before.

Takes: kernels whose loops are LOOP and REDUCE, and sequences of OptOps. Gives: launches of SCHEDULED, whose `meaning` is the launch
of KERNEL. Spec: Kernel Optimizations (OptOps); R90 to R98 (the OptOps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.common import SAMPLE, Inputs
from uops.backends.conformance.cases.launches import KernelBuilder, make_groups_of_ones_and_twos, make_launch, make_launch_case
from uops.backends.conformance.cases.tensor_cores import group_descriptors_by_input_dtype
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.passes.optimize.schedule.group import lower_or_serialize_group_reduces
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import (
    close_output_loops_into_sink,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.rewrite.lowering_cache import LoweringCache, use_lowering_cache
from uops.compiler.target import MachineModel
from uops.spec import wmma
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Nolocals, OptOp, Padto, Split, Swap

#: A machine with workgroups and LOCAL memory, so that every axis type may be used.
_MACHINE = MachineModel(workgroup=64, local_memory=1 << 14)
#: Builds the one effect of a kernel.
BuildEffect = Callable[[DType, KernelBuilder], UOp]


def _transpose(d: DType, k: KernelBuilder) -> UOp:
    """Build a kernel of two output loops of 6 and 8 iterations, which are axes 0 and 1."""
    source, target = k.add_source(d, 48), k.add_target(d, 48)
    i, j = k.make_range(6), k.make_range(8)
    value = b.load(b.at(source, b.add(b.mul(i, 8), j)))
    return b.wrap_in_one_end_per_loop(b.store(b.at(target, b.add(b.mul(j, 6), i)), value), (i, j))


def _reduce(op: Op) -> BuildEffect:
    """Build a kernel of an output loop of 4 iterations and a Reduce of 12 elements, which are axes 0 and 1.

    A maximum is that of negative numbers where `d` has such, so that neither 0 nor 1 is its identity. A sum has two zeros in three.
    """

    def build(d: DType, k: KernelBuilder) -> UOp:
        ones_and_twos = make_groups_of_ones_and_twos(d, 4, 12).astype(int)
        if op is Op.MAX:
            groups = ones_and_twos - (0 if d is dt.bool_ else 3 if d.min < 0 else 1)
        else:
            groups = ones_and_twos * (np.arange(12) % 3 == 0)
        source, target = k.add_source(d, 48, groups.astype(STORAGE[d]).reshape(-1)), k.add_target(d, 4)
        i, r = k.make_range(4), k.make_range(12, AxisType.REDUCE)
        value = UOp(Op.REDUCE, (b.load(b.at(source, b.add(b.mul(i, 12), r))), r), ReduceArg(op, ()))
        return b.end(b.store(b.at(target, i), value), i)

    return build


def _multiply_matrices_by_reduce(descriptor: wmma.Descriptor, extents: tuple[int, int, int]) -> BuildEffect:
    """Build a matrix product of small whole numbers with the dtypes of a tensor core: axes 0 and 1 are rows and columns."""
    rows, columns, depth = extents

    def build(d: DType, k: KernelBuilder) -> UOp:
        out = descriptor.dtype_out
        x, y = (np.arange(n * depth).reshape(n, depth) * f % 7 % 3 == 1 for n, f in ((rows, 3), (columns, 5)))
        lhs, rhs = (k.add_source(d, v.size, v.astype(STORAGE[d]).reshape(-1)) for v in (x, y))
        target = k.add_target(out, rows * columns)
        i, j, r = k.make_range(rows), k.make_range(columns), k.make_range(depth, AxisType.REDUCE)
        factors = (b.load(b.at(m, b.add(b.mul(n, depth), r))) for m, n in ((lhs, i), (rhs, j)))
        product = UOp(Op.MUL, tuple(b.cast(f, out) for f in factors))
        value = UOp(Op.REDUCE, (product, r), ReduceArg(Op.ADD, ()))
        return b.wrap_in_one_end_per_loop(b.store(b.at(target, b.add(b.mul(i, columns), j)), value), (i, j))

    return build


class _ScheduleCase(NamedTuple):
    """A row of `TABLE`: with `parallel`, output loops are GLOBAL before the first OptOp (R94)."""

    optop: type[OptOp]
    edge: str
    build: BuildEffect
    optops: tuple[OptOp, ...]
    parallel: bool = False


_LOOP, _GLOBAL, _LOCAL, _UPCAST = AxisType.LOOP, AxisType.GLOBAL, AxisType.LOCAL, AxisType.UPCAST
_REDUCE, _UNROLL, _GROUP, _THREAD = AxisType.REDUCE, AxisType.UNROLL, AxisType.GROUP_REDUCE, AxisType.THREAD
_SUM, _MAX = _reduce(Op.ADD), _reduce(Op.MAX)
# fmt: off
TABLE: tuple[_ScheduleCase, ...] = (
    _ScheduleCase(Split, "loop",          _transpose, (Split(1, 4, _LOOP),)),
    _ScheduleCase(Split, "loop-top",      _transpose, (Split(0, 3, _LOOP, True),)),
    _ScheduleCase(Split, "loop-whole",    _transpose, (Split(0, 6, _LOOP),)),
    _ScheduleCase(Split, "upcast",        _transpose, (Split(1, 4, _UPCAST),)),
    _ScheduleCase(Split, "upcast-twice",  _transpose, (Split(1, 4, _UPCAST), Split(0, 2, _UPCAST))),
    _ScheduleCase(Split, "global",        _transpose, (Split(0, 2, _GLOBAL),), True),
    _ScheduleCase(Split, "local",         _transpose, (Split(0, 3, _LOCAL), Split(1, 4, _LOCAL)), True),
    _ScheduleCase(Split, "thread",        _transpose, (Split(0, 3, _THREAD, True),), True),
    _ScheduleCase(Split, "local-upcast",  _transpose, (Split(1, 4, _LOCAL), Split(2, 2, _UPCAST)), True),
    _ScheduleCase(Split, "reduce",        _MAX,       (Split(1, 4, _REDUCE),)),
    _ScheduleCase(Split, "reduce-top",    _SUM,       (Split(1, 3, _REDUCE, True),)),
    _ScheduleCase(Split, "unroll",        _SUM,       (Split(1, 4, _UNROLL),)),
    _ScheduleCase(Split, "group-reduce",  _SUM,       (Split(1, 4, _GROUP),), True),
    _ScheduleCase(Split, "group-top",     _MAX,       (Split(1, 4, _GROUP, True),), True),
    _ScheduleCase(Padto, "output",        _transpose, (Padto(0, 4),)),
    _ScheduleCase(Padto, "output-upcast", _transpose, (Padto(1, 5), Split(1, 5, _UPCAST))),
    _ScheduleCase(Padto, "reduce",        _SUM,       (Padto(1, 5),)),
    _ScheduleCase(Padto, "reduce-max",    _MAX,       (Padto(1, 8), Split(1, 8, _UNROLL))),
    _ScheduleCase(Swap,  "outputs",       _transpose, (Swap(0, 1),)),
    _ScheduleCase(Swap,  "parallel",      _transpose, (Swap(1, 0),), True),
    _ScheduleCase(Swap,  "after-split",   _transpose, (Split(1, 4, _LOOP), Swap(0, 2))),
    _ScheduleCase(Nolocals, "alone",      _transpose, (Nolocals(),), True),
    _ScheduleCase(Nolocals, "upcast",     _transpose, (Nolocals(), Split(1, 4, _UPCAST)), True),
    _ScheduleCase(Nolocals, "reduce",     _SUM,       (Nolocals(), Split(1, 3, _UNROLL)), True),
)
# fmt: on
#: Edge class of TC -> extents of rows, columns and depth for (N, M, K), and the OptOps.
_PRODUCTS: dict[str, tuple[Callable[[int, int, int], tuple[int, int, int]], tuple[OptOp, ...]]] = {
    "one-tile": (lambda n, m, k: (m, n, k), (TC(0, 0),)),
    "two-steps": (lambda n, m, k: (m, n, 2 * k), (TC(0, 0),)),
    "padded": (lambda n, m, k: (m - 1, n - 1, k - 1), (TC(0, 0, 2),)),
    "without-wmma": (lambda n, m, k: (m, n, k), (TC(0, 0, 0, 2),)),
}


def apply_optops(
    body: UOp, optops: tuple[OptOp, ...], machine: MachineModel = _MACHINE, *, make_output_loops_global: bool = False
) -> UOp:
    """Return the SCHEDULED body of a kernel after OptOps. Raises RejectedOptOp for one that is not legal."""
    with use_lowering_cache(LoweringCache()):
        start, fresh = create_initial_schedule(body), fresh_uniques(body)
        if start is None:
            raise ValueError("expected a kernel as rangeify leaves it")
        schedule = (
            set_output_loop_types_before_optops(start, dict.fromkeys(start.outputs, AxisType.GLOBAL))
            if make_output_loops_global
            else start
        )
        for optop in optops:
            schedule = apply(schedule, optop, machine)
        return close_output_loops_into_sink(lower_or_serialize_group_reduces(schedule, machine, fresh))


def _make_schedule_case(d: DType, case: _ScheduleCase, machine: MachineModel = _MACHINE) -> ConformanceCase:
    inputs: Inputs = {}
    k = KernelBuilder(inputs)
    call = k.call(case.build(d, k))
    body = apply_optops(call.body, case.optops, machine, make_output_loops_global=case.parallel)
    scheduled, unscheduled = make_launch(call.replace(src=(body, *call.arguments))), make_launch(call)
    made = make_launch_case(Op.SINK, d, case.edge, scheduled, inputs)
    return replace(made, row=f"OptOp/{case.optop.__name__}", meaning=unscheduled)


def _generate_tensor_core_schedules(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    for d, descriptors in group_descriptors_by_input_dtype().items():
        if tier is ConformanceTier.SMOKE and d not in SAMPLE:
            continue
        for descriptor in descriptors if tier is ConformanceTier.FULL else descriptors[:1]:
            instruction = WmmaArg(descriptor.name, descriptor.dims, d, descriptor.dtype_out, descriptor.vendor, descriptor.threads)
            machine = replace(_MACHINE, tensor_cores=(instruction,))
            shape = f"{descriptor.name}-{'x'.join(map(str, descriptor.dims))}-{descriptor.dtype_out.name}"
            for edge, (extents_of, optops) in _PRODUCTS.items():
                build = _multiply_matrices_by_reduce(descriptor, extents_of(*descriptor.dims))
                yield _make_schedule_case(d, _ScheduleCase(TC, f"{edge}-{shape}", build, optops), machine)


def generate_schedule_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every OptOp x dtype."""
    for case in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if not (case.build is _SUM and d is dt.bool_):  # a sum of bools is their Or
                yield _make_schedule_case(d, case)
    yield from _generate_tensor_core_schedules(tier)
