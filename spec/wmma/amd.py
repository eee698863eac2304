"""AMD: WMMA of RDNA3 (wave32), MFMA of CDNA3 and, for fp8, of CDNA4 (wave64).

The maps are those that AMD's matrix instruction calculator prints. An RDNA3 wave holds A and B twice: lanes 16 to 31 repeat lanes 0
to 15. A 16-bit result of RDNA3 takes one half of each register; an element here is that half, whichever OPSEL picks.

Not here: fp8 on CDNA3. Its formats are e4m3fnuz and e5m2fnuz (bias 8 and 16, no -0), which are no dtypes of this language (R24);
CDNA4 kept the instructions and took the OCP formats, which are.
"""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.wmma.descriptor import Accumulator, Basis, Descriptor, Source, Status
from uops.spec.wmma.maps import LaneMap, affine

_CALCULATOR = Source(
    "AMD Matrix Instruction Calculator", "--matrix-layout", "https://github.com/ROCm/amd_matrix_instruction_calculator"
)
_RDNA3_ISA = Source("RDNA3 Instruction Set Architecture Reference Guide", "7.9 Wave Matrix Multiply Accumulate")
_CDNA3_ISA = Source("CDNA3 Instruction Set Architecture Reference Guide", "7 Matrix Arithmetic Instructions")
_SIM = Source("Xie et al.: MMA-Sim, 2025", "mmasim/simulator/amd.py", "https://github.com/microsoft/MMA-Sim")
_GFX950 = Source("llvm-project pull request 123361", "gfx950 MFMA in ROCDL", "https://github.com/llvm/llvm-project/pull/123361")

# fmt: off
_WRAPS3 = Accumulator("int32, wraps modulo 2^32 (CLAMP 0)", Basis.DOCUMENTED, _RDNA3_ISA)
_RDNA3  = Accumulator("float32, any rounding and order", Basis.ASSUMED, _RDNA3_ISA, bits=23, nearest=False, flushes=True)
_HALF   = Accumulator("float16, any rounding and order", Basis.ASSUMED, _RDNA3_ISA, bits=10, nearest=False, flushes=True)
_BRAIN  = Accumulator("bfloat16, any rounding and order", Basis.ASSUMED, _RDNA3_ISA, bits=7, nearest=False, flushes=True)
_WRAPS  = Accumulator("int32, wraps modulo 2^32", Basis.DOCUMENTED, _CDNA3_ISA)
_CDNA3  = Accumulator("8 products aligned to 24 bits and truncated, then float32 to nearest", Basis.MEASURED, _SIM,
                      bits=23, block=8, align=24)
_DOUBLE = Accumulator("float64, fused multiply-adds, to nearest", Basis.MEASURED, _SIM, bits=52)
_CDNA4  = Accumulator("float32, any rounding, order unspecified", Basis.ASSUMED, _GFX950, bits=23, nearest=False, flushes=True)

Maps = tuple[tuple[int, int, int], LaneMap, LaneMap, LaneMap]

_WAVE32: Maps = ((16, 16, 16), affine("16:row 2:copy", "16:col"), affine("16:col 2:copy", "16:row"),
                 affine("16:col 2:row", "8:row*2"))
_C16D = affine("16:col 4:row", "4:row*4")
_C16, _C32 = affine("16:col 4:row*4", "4:row"), affine("32:col 2:row*4", "4:row 4:row*8")
#: Shape -> dims, A, B, C.
_MFMA: dict[str, Maps] = {
    "16x16x4":  ((16, 16, 4),  affine("16:row 4:col", ""),        affine("16:col 4:row", ""),        _C16D),
    "16x16x16": ((16, 16, 16), affine("16:row 4:col*4", "4:col"), affine("16:col 4:row*4", "4:row"), _C16),
    "32x32x8":  ((32, 32, 8),  affine("32:row 2:col*4", "4:col"), affine("32:col 2:row*4", "4:row"), _C32),
    "16x16x32": ((16, 16, 32), affine("16:row 4:col*8", "8:col"), affine("16:col 4:row*8", "8:row"), _C16),
    "32x32x16": ((32, 32, 16), affine("32:row 2:col*8", "8:col"), affine("32:col 2:row*8", "8:row"), _C32),
}

_WMMA_ROWS: tuple[tuple[str, DType, DType, Accumulator, str], ...] = (
    ("v_wmma_f32_16x16x16_f16",   dt.float16,  dt.float32,  _RDNA3,  ""),
    ("v_wmma_f32_16x16x16_bf16",  dt.bfloat16, dt.float32,  _RDNA3,  ""),
    ("v_wmma_f16_16x16x16_f16",   dt.float16,  dt.float16,  _HALF,   "one half of each C and D register"),
    ("v_wmma_bf16_16x16x16_bf16", dt.bfloat16, dt.bfloat16, _BRAIN,  "one half of each C and D register"),
    ("v_wmma_i32_16x16x16_iu8",   dt.int8,     dt.int32,    _WRAPS3, "NEG[1:0] = 3: both operands signed"),
    ("v_wmma_i32_16x16x16_iu8",   dt.uint8,    dt.int32,    _WRAPS3, "NEG[1:0] = 0: both operands unsigned"),
)
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


def _wmma(name: str, given: DType, out: DType, sums: Accumulator, note: str) -> Descriptor:
    dims, a, b, c = _WAVE32
    return Descriptor(
        name, "AMD", "RDNA3", dims, given, out, 32, a, b, c, sums, _CALCULATOR, Status.CONFIRMED, copies_a=2, copies_b=2, note=note
    )


def _mfma(arch: str, name: str, shape: str, given: DType, out: DType, sums: Accumulator) -> Descriptor:
    dims, a, b, c = _MFMA[shape]
    if arch == "CDNA3":
        return Descriptor(name, "AMD", arch, dims, given, out, 64, a, b, c, sums, _CALCULATOR, Status.CONFIRMED)
    note = "the layout is taken from CDNA3, of which it keeps the instruction"
    return Descriptor(name, "AMD", arch, dims, given, out, 64, a, b, c, sums, _GFX950, Status.UNCONFIRMED, note=note)


DESCRIPTORS = (*(_wmma(*row) for row in _WMMA_ROWS), *(_mfma(*row) for row in _MFMA_ROWS))
