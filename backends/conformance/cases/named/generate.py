"""The form of these cases, and their generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from uops.backends.conformance.cases.common import SAMPLE, Inputs, make_single_cell_case
from uops.backends.conformance.cases.launches import make_launch_case
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Builds a launch, or a graph of values, and adds its data to the inputs.
Build = Callable[[DType, Inputs], UOp]
NUMBERS = tuple(d for d in dt.STORABLE if d is not dt.bool_)


class NamedCase(NamedTuple):
    """A case of the row `row`: a launch, or a graph of values where a surface is given."""

    row: str
    edge: str
    build: Build
    surface: str | None = None
    dtypes: tuple[DType, ...] = dt.STORABLE


def generate_named_cases(cases: Iterable[NamedCase], tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield each case x dtype; in the smoke tier a sample of the dtypes, or the first one."""
    for case in cases:
        sample = [d for d in case.dtypes if d in SAMPLE] or list(case.dtypes[:1])
        for d in case.dtypes if tier is ConformanceTier.FULL else sample:
            inputs: Inputs = {}
            graph = case.build(d, inputs)
            made = (
                make_launch_case(Op.SINK, d, case.edge, graph, inputs)
                if case.surface is None
                else make_single_cell_case(Op.SINK, d, case.edge, graph, inputs, surface=case.surface)
            )
            yield replace(made, row=case.row)
