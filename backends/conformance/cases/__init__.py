"""The suite's cases, generated from the rows of the specification."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from uops.backends.conformance.cases import (
    calls,
    elementwise,
    folding,
    kernels,
    loops,
    movement,
    native,
    optional,
    programs,
    reduce,
    schedules,
    tensor_cores,
)
from uops.backends.conformance.cases.bestiary.kernels import generate_bestiary_kernel_cases
from uops.backends.conformance.cases.bestiary.values import generate_bestiary_value_cases
from uops.backends.conformance.cases.named import devices, graphs, memory, tables
from uops.backends.conformance.cases.named.generate import generate_named_cases
from uops.backends.conformance.model import ConformanceCase, ConformanceTier

#: Generators of the suite's cases, in its order.
SOURCES = (
    programs.generate_program_cases,
    calls.generate_invocation_edge_lane_and_large_cases,
    movement.generate_movement_cases,
    reduce.generate_reduce_cases,
    elementwise.generate_elementwise_cases,
    folding.generate_constant_and_wrapped_range_cases,
    loops.generate_loop_cases,
    kernels.generate_kernel_cases,
    tensor_cores.generate_tensor_core_cases,
    generate_bestiary_value_cases,
    generate_bestiary_kernel_cases,
    native.generate_native_cases,
    schedules.generate_schedule_cases,
    lambda tier: generate_named_cases((*memory.CASES, *tables.CASES, *graphs.CASES, *devices.CASES), tier),
)


def generate_cases(tier: ConformanceTier, rows: str = "*") -> Iterator[ConformanceCase]:
    """Yield every case of `tier` whose row id matches the glob `rows`, in the suite's order."""
    for source in SOURCES:
        yield from (c for c in source(tier) if fnmatch.fnmatchcase(c.row, rows))


def generate_optional_cases(tier: ConformanceTier, rows: str = "*") -> Iterator[ConformanceCase]:
    """Yield every case of the optional rows (R188) that match, which are a suite apart."""
    yield from (c for c in optional.generate_cases_of_optional_rows(tier) if fnmatch.fnmatchcase(c.row, rows))
