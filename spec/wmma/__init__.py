"""Tensor-core instructions as data (R93, R118, R119): who holds which element, how products are summed, and who says so.

`find(arg)` gives the `Descriptor` of a Wmma's arg, `bijection_fault(d)` what is wrong with its lane maps, `register(d)` adds one.
`DESCRIPTORS` are those of this package: NVIDIA mma.sync, AMD WMMA and MFMA, Apple simdgroup_matrix, Intel AMX; `str(d)` prints one
with its maps as formulas. What each vendor has and the language has no dtype for is named in its module.
"""

from uops.spec.wmma.descriptor import OPERANDS, Accumulator, Basis, Descriptor, Source, Status, bijection_fault, copies_of
from uops.spec.wmma.maps import Affine, Digit, Holder, LaneMap, Place, Table, affine, holders, map_difference, map_fault
from uops.spec.wmma.registry import DESCRIPTORS, find, named, register

__all__ = [
    "DESCRIPTORS", "find", "named", "register",
    "Descriptor", "Accumulator", "Source", "Status", "Basis", "OPERANDS", "bijection_fault", "copies_of",
    "LaneMap", "Affine", "Digit", "Table", "Place", "Holder", "affine", "holders", "map_fault", "map_difference",
]  # fmt: skip
