"""AMD: WMMA of RDNA3 (wave32), MFMA of CDNA3 and, for fp8, of CDNA4 (wave64).

The maps are those that AMD's matrix instruction calculator prints. An RDNA3 wave holds A and B twice: lanes 16 to 31 repeat lanes 0
to 15. A 16-bit result of RDNA3 takes one half of each register. An element here is that half, whichever OPSEL selects.

fp8 on CDNA3 is left out. Its formats e4m3fnuz and e5m2fnuz (bias 8 and 16, no -0) are no dtypes of this language (R24). CDNA4 has
the same instructions with the OCP formats, which are.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.wmma.descriptor import Accumulator, AccumulatorBasis, Citation, Descriptor, LaneMapStatus
from uops.spec.wmma.maps import LaneMap, affine_map

_CALCULATOR = Citation(
    "AMD Matrix Instruction Calculator", "--matrix-layout", "https://github.com/ROCm/amd_matrix_instruction_calculator"
)
_RDNA3_ISA = Citation("RDNA3 Instruction Set Architecture Reference Guide", "7.9 Wave Matrix Multiply Accumulate")
_CDNA3_ISA = Citation("CDNA3 Instruction Set Architecture Reference Guide", "7 Matrix Arithmetic Instructions")
_SIM = Citation("Xie et al.: MMA-Sim, 2025", "mmasim/simulator/amd.py", "https://github.com/microsoft/MMA-Sim")
_GFX950 = Citation("llvm-project pull request 123361", "gfx950 MFMA in ROCDL", "https://github.com/llvm/llvm-project/pull/123361")
_DOCUMENTED, _MEASURED, _ASSUMED = AccumulatorBasis.DOCUMENTED, AccumulatorBasis.MEASURED, AccumulatorBasis.ASSUMED

# fmt: off
_WRAPS3 = Accumulator("int32, wraps modulo 2^32 (CLAMP 0)", _DOCUMENTED, _RDNA3_ISA)
_RDNA3  = Accumulator("float32, any rounding and order", _ASSUMED, _RDNA3_ISA, bits=23, nearest=False, flushes=True)
_HALF   = Accumulator("float16, any rounding and order", _ASSUMED, _RDNA3_ISA, bits=10, nearest=False, flushes=True)
_BRAIN  = Accumulator("bfloat16, any rounding and order", _ASSUMED, _RDNA3_ISA, bits=7, nearest=False, flushes=True)
_WRAPS  = Accumulator("int32, wraps modulo 2^32", _DOCUMENTED, _CDNA3_ISA)
_CDNA3  = Accumulator("8 products aligned to 24 bits and truncated, then float32 to nearest", _MEASURED, _SIM,
                      bits=23, block=8, align=24)
_DOUBLE = Accumulator("float64, fused multiply-adds, to nearest", _MEASURED, _SIM, bits=52)
_CDNA4  = Accumulator("float32, any rounding, order unspecified", _ASSUMED, _GFX950, bits=23, nearest=False, flushes=True)

#: (N, M, K), maps of A, B and C.
Maps = tuple[tuple[int, int, int], LaneMap, LaneMap, LaneMap]

_WAVE32: Maps = ((16, 16, 16), affine_map("16:row 2:copy", "16:col"), affine_map("16:col 2:copy", "16:row"),
                 affine_map("16:col 2:row", "8:row*2"))
_C16D = affine_map("16:col 4:row", "4:row*4")
_C16, _C32 = affine_map("16:col 4:row*4", "4:row"), affine_map("32:col 2:row*4", "4:row 4:row*8")
#: Shape -> (N, M, K), maps of A, B and C.
_MFMA: dict[str, Maps] = {
    "16x16x4":  ((16, 16, 4),  affine_map("16:row 4:col", ""),        affine_map("16:col 4:row", ""),        _C16D),
    "16x16x16": ((16, 16, 16), affine_map("16:row 4:col*4", "4:col"), affine_map("16:col 4:row*4", "4:row"), _C16),
    "32x32x8":  ((32, 32, 8),  affine_map("32:row 2:col*4", "4:col"), affine_map("32:col 2:row*4", "4:row"), _C32),
    "16x16x32": ((16, 16, 32), affine_map("16:row 4:col*8", "8:col"), affine_map("16:col 4:row*8", "8:row"), _C16),
    "32x32x16": ((32, 32, 16), affine_map("32:row 2:col*8", "8:col"), affine_map("32:col 2:row*8", "8:row"), _C32),
}

#: Name, dtype_in, dtype_out, accumulator, note.
_WMMA_ROWS: tuple[tuple[str, DType, DType, Accumulator, str], ...] = (
    ("v_wmma_f32_16x16x16_f16",   dt.float16,  dt.float32,  _RDNA3,  ""),
    ("v_wmma_f32_16x16x16_bf16",  dt.bfloat16, dt.float32,  _RDNA3,  ""),
    ("v_wmma_f16_16x16x16_f16",   dt.float16,  dt.float16,  _HALF,   "one half of each C and D register"),
    ("v_wmma_bf16_16x16x16_bf16", dt.bfloat16, dt.bfloat16, _BRAIN,  "one half of each C and D register"),
    ("v_wmma_i32_16x16x16_iu8",   dt.int8,     dt.int32,    _WRAPS3, "NEG[1:0] = 3: both operands signed"),
    ("v_wmma_i32_16x16x16_iu8",   dt.uint8,    dt.int32,    _WRAPS3, "NEG[1:0] = 0: both operands unsigned"),
)
#: Architecture, name, shape, dtype_in, dtype_out, accumulator.
_MFMA_ROWS: tuple[tuple[str, str, str, DType, DType, Accumulator], ...] = (
    ("CDNA3", "v_mfma_f32_16x16x16_f16",     "16x16x16", dt.float16,  dt.float32, _CDNA3),
    ("CDNA3", "v_mfma_f32_32x32x8_f16",      "32x32x8",  dt.float16,  dt.float32, _CDNA3),
    ("CDNA3", "v_mfma_f32_16x16x16_bf16",    "16x16x16", dt.bfloat16, dt.float32, _CDNA3),
    ("CDNA3", "v_mfma_f32_32x32x8_bf16",     "32x32x8",  dt.bfloat16, dt.float32, _CDNA3),
    ("CDNA3", "v_mfma_f64_16x16x4_f64",      "16x16x4",  dt.float64,  dt.float64, _DOUBLE),
    ("CDNA3", "v_mfma_i32_16x16x32_i8",      "16x16x32", dt.int8,     dt.int32,   _WRAPS),
    ("CDNA3", "v_mfma_i32_32x32x16_i8",      "32x32x16", dt.int8,     dt.int32,   _WRAPS),
    ("CDNA4", "v_mfma_f32_16x16x32_fp8_fp8", "16x16x32", dt.fp8e4m3,  dt.float32, _CDNA4),
    ("CDNA4", "v_mfma_f32_16x16x32_bf8_bf8", "16x16x32", dt.fp8e5m2,  dt.float32, _CDNA4),
)
# fmt: on


def _make_wmma_descriptor(name: str, dtype_in: DType, dtype_out: DType, accumulator: Accumulator, note: str) -> Descriptor:
    dims, a, b, c = _WAVE32
    return Descriptor(
        name,
        "AMD",
        "RDNA3",
        dims,
        dtype_in,
        dtype_out,
        32,
        a,
        b,
        c,
        accumulator,
        _CALCULATOR,
        LaneMapStatus.CONFIRMED,
        copies_a=2,
        copies_b=2,
        note=note,
    )


def _make_mfma_descriptor(
    arch: str, name: str, shape: str, dtype_in: DType, dtype_out: DType, accumulator: Accumulator
) -> Descriptor:
    dims, a, b, c = _MFMA[shape]
    if arch == "CDNA3":
        return Descriptor(
            name, "AMD", arch, dims, dtype_in, dtype_out, 64, a, b, c, accumulator, _CALCULATOR, LaneMapStatus.CONFIRMED
        )
    note = "the layout is taken from CDNA3, of which it keeps the instruction"
    return Descriptor(
        name, "AMD", arch, dims, dtype_in, dtype_out, 64, a, b, c, accumulator, _GFX950, LaneMapStatus.UNCONFIRMED, note=note
    )


DESCRIPTORS = (*(_make_wmma_descriptor(*row) for row in _WMMA_ROWS), *(_make_mfma_descriptor(*row) for row in _MFMA_ROWS))
