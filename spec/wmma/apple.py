"""Apple: `simdgroup_multiply_accumulate` of 8x8 matrices, 32 lanes of 2 elements each.

The Metal Shading Language Specification (6.7) gives the operation and leaves the lane map out. The map here is the one that MLX, a
library of Apple's, relies on for A, B and the result alike.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.wmma.descriptor import Accumulator, Basis, Descriptor, Source, Status
from uops.spec.wmma.maps import affine

_MLX = Source(
    "MLX, steel GEMM",
    "mlx/backend/metal/kernels/steel/gemm/mma.h, BaseMMAFrag::get_coord",
    "https://github.com/ml-explore/mlx/blob/main/mlx/backend/metal/kernels/steel/gemm/mma.h",
)
_METAL = Source(
    "Metal Shading Language Specification",
    "6.7 SIMD-Group Matrix Functions",
    "https://developer.apple.com/metal/Metal-Shading-Language-Specification.pdf",
)
_MAP = affine("2:col*2 4:row 2:col*4 2:row*4", "2:col")


def _descriptor(d: dt.DType) -> Descriptor:
    sums = Accumulator(f"{d}, any rounding, order unspecified", Basis.ASSUMED, _METAL, bits=d.man_bits, nearest=False, flushes=True)
    name = "simdgroup_multiply_accumulate"
    return Descriptor(name, "Apple", "Apple7", (8, 8, 8), d, d, 32, _MAP, _MAP, _MAP, sums, _MLX, Status.UNCONFIRMED)


DESCRIPTORS = tuple(_descriptor(d) for d in (dt.float32, dt.float16, dt.bfloat16))
