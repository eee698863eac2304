"""Apple: `simdgroup_multiply_accumulate` of 8x8 matrices, 32 lanes of 2 elements each.

The Metal Shading Language Specification (6.7) defines the operation but not the lane map. The map here is the one that Apple's
library MLX relies on, for A, B and the result alike.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.wmma.descriptor import Accumulator, AccumulatorBasis, Citation, Descriptor, LaneMapStatus
from uops.spec.wmma.maps import affine_map

_MLX = Citation(
    "MLX, steel GEMM",
    "mlx/backend/metal/kernels/steel/gemm/mma.h, BaseMMAFrag::get_coord",
    "https://github.com/ml-explore/mlx/blob/main/mlx/backend/metal/kernels/steel/gemm/mma.h",
)
_METAL = Citation(
    "Metal Shading Language Specification",
    "6.7 SIMD-Group Matrix Functions",
    "https://developer.apple.com/metal/Metal-Shading-Language-Specification.pdf",
)
_MAP = affine_map("2:col*2 4:row 2:col*4 2:row*4", "2:col")


def _make_simdgroup_descriptor(dtype: dt.DType) -> Descriptor:
    sums = Accumulator(
        f"{dtype}, any rounding, order unspecified",
        AccumulatorBasis.ASSUMED,
        _METAL,
        bits=dtype.man_bits,
        nearest=False,
        flushes=True,
    )
    name = "simdgroup_multiply_accumulate"
    return Descriptor(name, "Apple", "Apple7", (8, 8, 8), dtype, dtype, 32, _MAP, _MAP, _MAP, sums, _MLX, LaneMapStatus.UNCONFIRMED)


DESCRIPTORS = tuple(_make_simdgroup_descriptor(d) for d in (dt.float32, dt.float16, dt.bfloat16))
