"""Intel AMX: whole tiles of 16 rows of 64 bytes, held by one thread.

A tile's elements are numbered row by row. B's tile has K/2 rows (bfloat16) or K/4 rows (8 bits). It has the VNNI layout: each
4-byte group of a row holds consecutive rows of the matrix.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.wmma.descriptor import Accumulator, AccumulatorBasis, Citation, Descriptor, LaneMapStatus
from uops.spec.wmma.maps import affine_map

_MANUAL = "Intel 64 and IA-32 Architectures Software Developer's Manual, Volume 2"
_SDM = "https://www.intel.com/content/www/us/en/developer/articles/technical/intel-sdm.html"
_BF16 = Citation(_MANUAL, "TDPBF16PS, Description and Operation", _SDM)
_INT8 = Citation(_MANUAL, "TDPBSSD/TDPBSUD/TDPBUSD/TDPBUUD, Description and Operation", _SDM)

_FMA = Accumulator(
    "float32, fused multiply-adds to nearest, even and odd products apart, subnormals are zero",
    AccumulatorBasis.DOCUMENTED,
    _BF16,
    bits=23,
    flushes=True,
)
_WRAPS = Accumulator("int32, wraps modulo 2^32", AccumulatorBasis.DOCUMENTED, _INT8)
_C = affine_map("", "16:col 16:row")
_CONFIRMED = LaneMapStatus.CONFIRMED
# fmt: off
DESCRIPTORS = (
    Descriptor("tdpbf16ps", "Intel", "AMX-BF16", (16, 16, 32), dt.bfloat16, dt.float32, 1,
               affine_map("", "32:col 16:row"), affine_map("", "2:row 16:col 16:row*2"), _C, _FMA,   _BF16, _CONFIRMED),
    Descriptor("tdpbssd",   "Intel", "AMX-INT8", (16, 16, 64), dt.int8,     dt.int32,   1,
               affine_map("", "64:col 16:row"), affine_map("", "4:row 16:col 16:row*4"), _C, _WRAPS, _INT8, _CONFIRMED),
    Descriptor("tdpbuud",   "Intel", "AMX-INT8", (16, 16, 64), dt.uint8,    dt.int32,   1,
               affine_map("", "64:col 16:row"), affine_map("", "4:row 16:col 16:row*4"), _C, _WRAPS, _INT8, _CONFIRMED),
)
# fmt: on
