"""Exp2 by the instructions of AVX-512 that take a float apart and put it together.

VREDUCE gives r = x - round(x), 0 for an infinite x, and VSCALEF p * 2^n, rounded once, for any n. With the polynomial of
`uops.compiler.decompose.exp2` every result has the bits that the decomposition gives, without its clamps and its two factors: 10
instructions instead of 17. R17, R19, R27.
"""

from __future__ import annotations

from uops.backends.llvm.binding import Host
from uops.backends.llvm.builder import Builder
from uops.backends.llvm.types import each, lanes_of, literal, parts, type_of, value_type, wide
from uops.compiler.decompose.exp2 import EXP2
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp

#: What the host has to have.
FEATURES = ("avx512dq", "avx512vl")
_NEAREST = 0
_NO_EXCEPTIONS = 4  # the operand with which a 512-bit instruction rounds as it always does


def is_native(host: Host) -> bool:
    """Whether a host has the instructions."""
    return all(map(host.has, FEATURES))


def exp2(b: Builder, u: UOp, x: str) -> str:
    """2^x in float32 or float64: whole vector registers at once, a scalar in the first lane of one, other widths lane by lane."""
    t, w, d = type_of(u), lanes_of(u), u.dtype
    if w * d.bits in (128, 256, 512):
        return _register(b, d, t, x)
    if w == 1:
        return _scalar(b, d, x)
    return b.gathered(value_type(d), [_scalar(b, d, b.emit(f"extractelement {t} {x}, i64 {k}")) for k in range(w)])


def _scalar(b: Builder, d: DType, x: str) -> str:
    t, register = value_type(d), wide(value_type(d), 128 // d.bits)
    alone = b.emit(f"insertelement {register} zeroinitializer, {t} {x}, i64 0")
    return b.emit(f"extractelement {register} {_register(b, d, register, alone)}, i64 0")


def _register(b: Builder, d: DType, t: str, x: str) -> str:
    r = _call(b, "reduce", d, t, (t, x), ("i32", str(_NEAREST)))
    n = b.emit(f"fsub {t} {x}, {r}")
    *low, highest = EXP2[d][0]
    p = each(t, literal(highest, d))
    for c in (*reversed(low), 1.0):
        p = b.intrinsic("fma", t, p, r, each(t, literal(c, d)))
    return _call(b, "scalef", d, t, (t, p), (t, n))


def _call(b: Builder, name: str, d: DType, t: str, *operands: tuple[str, str]) -> str:
    """A masked instruction with every lane on."""
    lanes, bits = parts(t)[0], parts(t)[0] * d.bits
    mask = (f"i{max(8, lanes)}", "-1")
    rounding = (("i32", str(_NO_EXCEPTIONS)),) if bits == 512 else ()
    types, values = zip(*operands, (t, "zeroinitializer"), mask, *rounding)
    suffix = "ps" if d.bits == 32 else "pd"
    return b.call(f"llvm.x86.avx512.mask.{name}.{suffix}.{bits}", t, types, *values)
