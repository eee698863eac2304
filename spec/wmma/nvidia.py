"""NVIDIA: `mma.sync`, one warp of 32 lanes.

The maps are those of the PTX ISA, in its terms groupID = lane/4 and threadID_in_group = lane%4. The language lacks the dtypes of
tf32 (m16n8k8), 4-bit and 1-bit integers, 4- and 6-bit floats. m8n8k4 of float16 computes four products at once and is omitted, too.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.wmma.descriptor import Accumulator, AccumulatorBasis, Citation, Descriptor, LaneMapStatus
from uops.spec.wmma.maps import affine_map

_PTX = "https://docs.nvidia.com/cuda/parallel-thread-execution/"
_MMA = Citation("PTX ISA 9.0", "9.7.14.5.14 mma, Precision and rounding", _PTX)
_SIM = Citation("Xie et al.: MMA-Sim, 2025", "mmasim/simulator/nv.py", "https://github.com/microsoft/MMA-Sim")
_DOCUMENTED, _MEASURED = AccumulatorBasis.DOCUMENTED, AccumulatorBasis.MEASURED

# fmt: off
# PTX promises at least single precision (half, where C and D are float16) in any order and rounding. By measurement, the hardware
# truncates the aligned addends: Turing and Ampere keep 24 fraction bits, Hopper 25, fp8 on Ada 13. Each row has the fewest bits and
# the shortest step of the architectures that run it. Float32 results are truncated, float16 results rounded to nearest.
_WRAPS  = Accumulator("int32, wraps modulo 2^32", _DOCUMENTED, _MMA)
_DOUBLE = Accumulator("float64, fused multiply-adds, to nearest", _DOCUMENTED, _MMA, bits=52)
_F32_75 = Accumulator("float32, truncated, order unspecified", _MEASURED, _SIM, bits=23, nearest=False, block=4, align=24)
_F16_75 = Accumulator("aligned to 24 bits and truncated, then float16 to nearest", _MEASURED, _SIM, bits=10, block=4, align=24)
_F32_80 = Accumulator("float32, truncated, order unspecified", _MEASURED, _SIM, bits=23, nearest=False, block=8, align=24)
_F16_80 = Accumulator("aligned to 24 bits and truncated, then float16 to nearest", _MEASURED, _SIM, bits=10, block=8, align=24)
_FP8    = Accumulator("13 fraction bits on sm_89 (25 on sm_90), truncated, order unspecified", _MEASURED, _SIM,
                      bits=13, nearest=False, block=16, align=13)

_16X8 = affine_map("4:col*2 8:row", "2:col 2:row*8")
_8X8  = affine_map("4:col*2 8:row", "2:col")
#: Shape -> section of the PTX ISA 9.0, maps of A, B and C.
_MAPS = {
    "m8n8k4": ("9.7.14.5.2",
        affine_map("4:col 8:row", ""), affine_map("4:row 8:col", ""), _8X8),
    "m8n8k16": ("9.7.14.5.3",
        affine_map("4:col*4 8:row", "4:col"), affine_map("4:row*4 8:col", "4:row"), _8X8),
    "m16n8k8": ("9.7.14.5.7",
        affine_map("4:col*2 8:row", "2:col 2:row*8"), affine_map("4:row*2 8:col", "2:row"), _16X8),
    "m16n8k16": ("9.7.14.5.8",
        affine_map("4:col*2 8:row", "2:col 2:row*8 2:col*8"), affine_map("4:row*2 8:col", "2:row 2:row*8"), _16X8),
    "m16n8k16i": ("9.7.14.5.9",
        affine_map("4:col*4 8:row", "4:col 2:row*8"), affine_map("4:row*4 8:col", "4:row"), _16X8),
    "m16n8k32": ("9.7.14.5.10",
        affine_map("4:col*4 8:row", "4:col 2:row*8 2:col*16"), affine_map("4:row*4 8:col", "4:row 2:row*16"), _16X8),
}
#: Shape -> (N, M, K).
_DIMS = {"m8n8k4": (8, 8, 4), "m8n8k16": (8, 8, 16), "m16n8k8": (8, 16, 8), "m16n8k16": (8, 16, 16),
         "m16n8k16i": (8, 16, 16), "m16n8k32": (8, 16, 32)}

#: Architecture, shape, dtype_in, dtype_out, accumulator.
_ROWS: tuple[tuple[str, str, DType, DType, Accumulator], ...] = (
    ("sm_75", "m16n8k8",   dt.float16,  dt.float32, _F32_75),
    ("sm_75", "m16n8k8",   dt.float16,  dt.float16, _F16_75),
    ("sm_75", "m8n8k16",   dt.int8,     dt.int32,   _WRAPS),
    ("sm_80", "m16n8k8",   dt.bfloat16, dt.float32, _F32_80),
    ("sm_80", "m16n8k16",  dt.float16,  dt.float32, _F32_80),
    ("sm_80", "m16n8k16",  dt.float16,  dt.float16, _F16_80),
    ("sm_80", "m16n8k16",  dt.bfloat16, dt.float32, _F32_80),
    ("sm_80", "m16n8k16i", dt.int8,     dt.int32,   _WRAPS),
    ("sm_80", "m16n8k32",  dt.int8,     dt.int32,   _WRAPS),
    ("sm_80", "m8n8k4",    dt.float64,  dt.float64, _DOUBLE),
    ("sm_89", "m16n8k32",  dt.fp8e4m3,  dt.float32, _FP8),
    ("sm_89", "m16n8k32",  dt.fp8e5m2,  dt.float32, _FP8),
)
#: Dtype -> its name in PTX.
_PTX_TYPE = {dt.float16: "f16", dt.bfloat16: "bf16", dt.float32: "f32", dt.float64: "f64", dt.int8: "s8", dt.int32: "s32",
             dt.fp8e4m3: "e4m3", dt.fp8e5m2: "e5m2"}
# fmt: on


def _make_mma_descriptor(arch: str, shape: str, dtype_in: DType, dtype_out: DType, accumulator: Accumulator) -> Descriptor:
    section, a, b, c = _MAPS[shape]
    printed = shape.rstrip("i")
    i, o = _PTX_TYPE[dtype_in], _PTX_TYPE[dtype_out]
    return Descriptor(
        name=f"mma.sync.aligned.{printed}.row.col.{o}.{i}.{i}.{o}",
        vendor="NVIDIA",
        arch=arch,
        dims=_DIMS[shape],
        dtype_in=dtype_in,
        dtype_out=dtype_out,
        threads=32,
        a=a,
        b=b,
        c=c,
        accumulator=accumulator,
        source=Citation("PTX ISA 9.0", f"{section} Matrix Fragments for mma.{printed}", _PTX),
        status=LaneMapStatus.CONFIRMED,
    )


DESCRIPTORS = tuple(_make_mma_descriptor(*row) for row in _ROWS)
