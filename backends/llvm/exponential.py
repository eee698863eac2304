"""Exp2 by the instructions of AVX-512 that split and scale floats.

VREDUCE gives r = x - round(x), 0 for an infinite x. VSCALEF gives p * 2^n, rounded once, for any n. With the polynomial of
`uops.compiler.decompose.exp2`, every result has the bits that the decomposition gives, without its clamps and its two factors: 10
instructions instead of 17. Spec: R17 (Exp2 within ulps), R19 (subnormals are kept), R27 (one value per node).
"""

from __future__ import annotations

from uops.backends.llvm.binding import Host
from uops.backends.llvm.builder import IRBuilder
from uops.backends.llvm.types import lanes_of, llvm_type_of_value, render_literal, splat, split_vector_type, value_type, vector_type
from uops.compiler.decompose.exp2 import EXP2
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp

#: CPU features that the instructions need.
FEATURES = ("avx512dq", "avx512vl")
_NEAREST = 0
_NO_EXCEPTIONS = 4  # operand of a 512-bit instruction: round by the current mode


def has_native_exp2(host: Host) -> bool:
    """Return True if a host has the instructions."""
    return all(map(host.has, FEATURES))


def emit_avx512_exp2(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit 2^x in float32 or float64.

    Whole vector registers take one sequence, a scalar the first lane of a register, and other widths one sequence per lane.
    """
    t, w, d = llvm_type_of_value(u), lanes_of(u), u.dtype
    if w * d.bits in (128, 256, 512):
        return _emit_whole_register_exp2(b, d, t, x)
    if w == 1:
        return _emit_scalar_exp2(b, d, x)
    return b.insert_lanes_into_zero_vector(
        value_type(d), [_emit_scalar_exp2(b, d, b.emit(f"extractelement {t} {x}, i64 {k}")) for k in range(w)]
    )


def _emit_scalar_exp2(b: IRBuilder, d: DType, x: str) -> str:
    t, register = value_type(d), vector_type(value_type(d), 128 // d.bits)
    alone = b.emit(f"insertelement {register} zeroinitializer, {t} {x}, i64 0")
    return b.emit(f"extractelement {register} {_emit_whole_register_exp2(b, d, register, alone)}, i64 0")


def _emit_whole_register_exp2(b: IRBuilder, d: DType, t: str, x: str) -> str:
    """Emit 2^x of a whole register."""
    r = _call_avx512_with_full_mask(b, "reduce", d, t, (t, x), ("i32", str(_NEAREST)))
    n = b.emit(f"fsub {t} {x}, {r}")
    *low, highest = EXP2[d][0]
    p = splat(t, render_literal(highest, d))
    for c in (*reversed(low), 1.0):
        p = b.intrinsic("fma", t, p, r, splat(t, render_literal(c, d)))
    return _call_avx512_with_full_mask(b, "scalef", d, t, (t, p), (t, n))


def _call_avx512_with_full_mask(b: IRBuilder, name: str, d: DType, t: str, *operands: tuple[str, str]) -> str:
    """Call a masked instruction with every lane on."""
    lanes, bits = split_vector_type(t)[0], split_vector_type(t)[0] * d.bits
    mask = (f"i{max(8, lanes)}", "-1")
    rounding = (("i32", str(_NO_EXCEPTIONS)),) if bits == 512 else ()
    types, values = zip(*operands, (t, "zeroinitializer"), mask, *rounding)
    suffix = "ps" if d.bits == 32 else "pd"
    return b.call(f"llvm.x86.avx512.mask.{name}.{suffix}.{bits}", t, types, *values)
