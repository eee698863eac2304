"""Tensor-core instructions as data: lane maps, accumulators and their sources (R93, TC; R118 and R119, Wmma).

`find_descriptor(arg)` returns the `Descriptor` of a Wmma's arg, `find_operand_map_fault(d)` checks the lane maps of one and
`validate_and_register_descriptor(d)` adds one. `DESCRIPTORS` are those of this package: NVIDIA mma.sync, AMD WMMA and MFMA,
Apple simdgroup_matrix and Intel AMX. `str(d)` prints a descriptor with its maps as formulas. Each vendor's module names the
instructions that are left out because the language lacks a dtype for them.
"""

from uops.spec.wmma.descriptor import (
    OPERANDS,
    Accumulator,
    AccumulatorBasis,
    Citation,
    Descriptor,
    LaneMapStatus,
    find_all_holders_of_element,
    find_operand_map_fault,
)
from uops.spec.wmma.maps import (
    AffineLaneMap,
    LaneElement,
    LaneMap,
    MapDigit,
    Place,
    TableLaneMap,
    affine_map,
    lane_elements,
    lane_map_difference,
    lane_map_fault,
)
from uops.spec.wmma.registry import DESCRIPTORS, descriptors_named, find_descriptor, validate_and_register_descriptor

__all__ = [
    "DESCRIPTORS", "find_descriptor", "descriptors_named", "validate_and_register_descriptor",
    "Descriptor", "Accumulator", "Citation", "LaneMapStatus", "AccumulatorBasis", "OPERANDS", "find_operand_map_fault",
    "find_all_holders_of_element",
    "LaneMap", "AffineLaneMap", "MapDigit", "TableLaneMap", "Place", "LaneElement", "affine_map",
    "lane_elements", "lane_map_fault", "lane_map_difference",
]  # fmt: skip
