"""Kernel cases of Wmma: one warp multiplies the fragments of each known tensor-core instruction.

Each lane loads its elements from where the lanes before it end, so the lane maps decide which elements of the matrices they are.
Values are 0, 1 and 2: every dtype holds their products and sums exactly, in any order and with any rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.common import SAMPLE, Array, Inputs
from uops.backends.conformance.cases.launches import KernelBuilder, make_launch, make_launch_case, special
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec import wmma
from uops.spec.ir import build as b
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def make_fragment_values(lane_map: wmma.LaneMap, d: DType, first: int) -> Array:
    """Return the fragments of all lanes; lanes that hold copies of an element agree (R119)."""
    places = [place for _, place in wmma.lane_elements(lane_map)]
    return np.array([(row * 7 + column * 4 + first) % 11 % 3 for row, column in places]).astype(STORAGE[d])


def _multiply_fragments(descriptor: wmma.Descriptor, inputs: Inputs, *, by_special: bool) -> UOp:
    k = KernelBuilder(inputs)
    operands = (("A", descriptor.dtype_in), ("B", descriptor.dtype_in), ("C", descriptor.dtype_out))
    maps = [descriptor.map(name) for name, _ in operands]
    counts = [m.elements for m in maps]
    sources = [
        k.add_source(d, descriptor.threads * m.elements, make_fragment_values(m, d, at))
        for at, ((_, d), m) in enumerate(zip(operands, maps))
    ]
    target = k.add_target(descriptor.dtype_out, descriptor.threads * counts[-1])
    lane = special("lidx0", descriptor.threads) if by_special else k.make_range(descriptor.threads, AxisType.WARP)

    def fragment_positions(count: int) -> UOp:
        return b.stack(*(b.add(b.mul(lane, count), e) for e in range(count)))

    fragments = [b.load(b.at(memory, fragment_positions(n))) for memory, n in zip(sources, counts)]
    arg = WmmaArg(
        descriptor.name, descriptor.dims, descriptor.dtype_in, descriptor.dtype_out, descriptor.vendor, descriptor.threads
    )
    store = b.store(b.at(target, fragment_positions(counts[-1])), UOp(Op.WMMA, tuple(fragments), arg))
    return make_launch(k.call(store if by_special else b.end(store, lane)))


def group_descriptors_by_input_dtype() -> dict[DType, list[wmma.Descriptor]]:
    """Return the instructions by the dtype that they multiply."""
    found: dict[DType, list[wmma.Descriptor]] = {}
    for descriptor in wmma.DESCRIPTORS:
        found.setdefault(descriptor.dtype_in, []).append(descriptor)
    return found


def generate_tensor_core_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every known instruction; in the smoke tier the first one of each sampled dtype."""
    for d, descriptors in group_descriptors_by_input_dtype().items():
        if tier is ConformanceTier.SMOKE and d not in SAMPLE:
            continue
        for k, descriptor in enumerate(descriptors if tier is ConformanceTier.FULL else descriptors[:1]):
            edge = f"{descriptor.name}-{'x'.join(map(str, descriptor.dims))}-{descriptor.dtype_out.name}"
            inputs: Inputs = {}
            graph = _multiply_fragments(descriptor, inputs, by_special=bool(k % 2))
            yield make_launch_case(Op.WMMA, d, edge, graph, inputs)
