"""Cases of the optional rows (R188): each function x dtype x edge class of its operands, and vectors to sort.

A case leaves out the operands for which a row says nothing: divisors of 0 of integers, and quotients of floats beyond the
integers that the dtype can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.common import SAMPLE
from uops.backends.conformance.cases.operands import generate_bits_by_edge_class, make_segmented_case
from uops.backends.conformance.model import ConformanceCase, ConformanceTier, Segment
from uops.backends.conformance.pools import edge_classes, ordinary_bits, random_bits, to_array
from uops.spec.ir import build as b
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.rows.optional import OPTIONAL, OptionalFunction

Array = npt.NDArray[Any]
#: Functions that are applied to quotients by one divisor, which compilers multiply by its reciprocal.
_OF_QUOTIENTS = ("floor", "ceil", "round_to_even")
#: Divisor and number of exact quotients.
_DIVISORS, _MULTIPLES = (3.0, 7.0, 49.0), 40
#: Extent of a vector to sort.
_SORTED = 37


def generate_cases_of_optional_rows(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield the cases of the tier: of all dtypes, or of a sample."""
    for f in OPTIONAL.values():
        for d in f.dtypes:
            if tier is ConformanceTier.SMOKE and d not in SAMPLE and d is not f.dtypes[-1]:
                continue
            if f.is_of_vector:
                yield from _generate_vectors(f, d)
                continue
            blocks = {
                edge: _leave_out_undefined(f, d, block) for edge, block in generate_bits_by_edge_class(f.name, (d,) * f.arity, tier)
            }
            yield make_segmented_case(f.row, d, (d,) * f.arity, blocks, "edges", f.build)
            if f.name in _OF_QUOTIENTS:
                yield from (_make_case_of_exact_quotients(f, d, divisor) for divisor in _DIVISORS)


def _leave_out_undefined(f: OptionalFunction, d: DType, block: Array) -> Array:
    """Return the operand tuples, as bits, for which the row says what the result is."""
    if not f.is_partial:
        return block
    x, y = (to_array(bits, d) for bits in block)
    if not d.is_float:
        return block[:, y != 0]
    with np.errstate(all="ignore"):
        quotient = np.abs(x.astype(np.float64) / y.astype(np.float64))
    return block[:, ~(np.isfinite(quotient) & (quotient >= 2.0**d.man_bits))]


def _make_case_of_exact_quotients(f: OptionalFunction, d: DType, divisor: float) -> ConformanceCase:
    """Create a case of the function of x / y, where y is one number and x its multiples that `d` holds."""
    numbers = np.arange(-_MULTIPLES, _MULTIPLES + 1) * divisor
    x = numbers[np.abs(numbers) <= 2.0 ** (d.man_bits + 1)].astype(STORAGE[d])
    p, q = b.param(0, x.shape, d), b.param(1, (), d)
    graph = f.build(b.div(p, b.expand(b.reshape(q, (1,)), x.shape)))
    inputs = {"p0": x, "p1": np.array(divisor, STORAGE[d])}
    return ConformanceCase(f.row, d, f"of-quotient-by-{divisor:g}", graph, inputs, (Segment("of-quotient", 0, 0, x.size),))


def _generate_vectors(f: OptionalFunction, d: DType) -> Iterator[ConformanceCase]:
    """Yield a case per edge class, with equal elements in each. Zeros have one sign, as libraries take them for equal."""
    for edge in ("ordinary", *edge_classes(d), "random"):
        pool = {"ordinary": ordinary_bits(d), "random": ()}.get(edge) or edge_classes(d).get(edge, ())
        bits = random_bits(d, _SORTED, f.name, edge).copy()
        bits[: len(pool)] = pool[:_SORTED]
        bits[::5] = bits[1]
        values = to_array(bits, d)
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            values[values == 0] = 0
        graph: UOp = f.build(b.param(0, values.shape, d))
        yield ConformanceCase(f.row, d, edge, graph, {"p0": values}, (Segment(edge, 0, 0, _SORTED),))
