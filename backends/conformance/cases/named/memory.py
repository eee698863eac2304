"""Cases of the axis types and of the address spaces."""

from __future__ import annotations

from collections.abc import Iterator

from uops.backends.conformance.cases.bestiary import kernels as bestiary
from uops.backends.conformance.cases.kernels import (
    copy_through_local_memory_by_loops,
    keep_register_per_lane_across_barrier,
    make_lane_counters,
    reverse_in_workgroup,
)
from uops.backends.conformance.cases.loops import (
    KERNEL_AXES,
    BuildEffects,
    keep_last_iteration_in_register,
    reverse_in_loop_and_store_outside,
    reverse_up_to_variable_and_store_outside,
    run_two_calls,
    single_kernel,
)
from uops.backends.conformance.cases.named.generate import NamedCase
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import GRID, SEQUENTIAL, UNROLLED, WORKGROUP, AxisType


def _generate_loop_and_workgroup_cases_of_axis(t: AxisType) -> Iterator[NamedCase]:
    """Yield the cases of an axis type: the values of its counter, its order, and the memory and Barriers that its kind has."""
    builders: dict[str, BuildEffects] = {
        "counter": reverse_in_loop_and_store_outside(t),
        "zero-trip": reverse_in_loop_and_store_outside(t, 0),
    }
    if t in SEQUENTIAL:
        builders["in-order"] = keep_last_iteration_in_register(t)
    if t not in WORKGROUP | UNROLLED:
        builders["symbolic"] = reverse_up_to_variable_and_store_outside(t, 7)
    if t in WORKGROUP:
        builders["barrier"] = reverse_in_workgroup(make_lane_counters(t))
    if t in GRID:
        builders["own-memory"] = reverse_in_workgroup(make_lane_counters(AxisType.LOCAL, t))
    for edge, build in builders.items():
        yield NamedCase(f"AxisType/{t.name}", edge, single_kernel(build))


_REVERSED = reverse_in_workgroup(make_lane_counters(AxisType.LOCAL))
PLACEHOLDER = NamedCase(
    f"AxisType/{AxisType.PLACEHOLDER.name}",
    "counter",
    bestiary.single_kernel(bestiary.reverse_in_loop_and_store_outside(AxisType.PLACEHOLDER)),
)
SPACES = (
    NamedCase(f"AddrSpace/{AddrSpace.GLOBAL.name}", "two-kernels", run_two_calls),
    NamedCase(f"AddrSpace/{AddrSpace.LOCAL.name}", "one-workgroup", single_kernel(copy_through_local_memory_by_loops)),
    NamedCase(f"AddrSpace/{AddrSpace.LOCAL.name}", "per-workgroup", single_kernel(_REVERSED)),
    NamedCase(f"AddrSpace/{AddrSpace.REG.name}", "per-lane", single_kernel(keep_register_per_lane_across_barrier)),
)
CASES = (*(case for t in KERNEL_AXES for case in _generate_loop_and_workgroup_cases_of_axis(t)), PLACEHOLDER, *SPACES)
