"""Machine instructions in LLVM IR, for Ins: intrinsics, each of which is one instruction on a processor that has it.

Spec: Ins; R168 (Ins and Custom on a target).
"""

from __future__ import annotations

from uops.compiler.native import register_or_withdraw_instruction
from uops.spec.ir import dtypes as dt

#: Mnemonic of x86-64 -> intrinsic of LLVM.
_INTRINSICS = {"bswap": "bswap", "popcnt": "ctpop"}


def register_intrinsics() -> None:
    """Register the instructions for the target `llvm`, on integers of 32 and 64 bits."""
    for mnemonic, intrinsic in _INTRINSICS.items():
        for d, t in ((dt.uint32, "i32"), (dt.uint64, "i64")):
            register_or_withdraw_instruction("llvm", mnemonic, (d,), d, f"call {t} @llvm.{intrinsic}.{t}({t} {{0}})")
