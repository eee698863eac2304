"""Machine instructions in CUDA C, for Ins: functions that nvrtc makes one instruction of.

Spec: Ins; R168 (Ins and Custom on a target).
"""

from __future__ import annotations

from uops.compiler.native import register_or_withdraw_instruction
from uops.spec.ir import dtypes as dt


def register_popcnt_and_bswap() -> None:
    """Register the instructions for the target `cuda`, on integers of 32 and 64 bits."""
    register_or_withdraw_instruction("cuda", "popcnt", (dt.uint32,), dt.uint32, "(u32)__popc({0})")
    register_or_withdraw_instruction("cuda", "popcnt", (dt.uint64,), dt.uint64, "(u64)__popcll({0})")
    register_or_withdraw_instruction("cuda", "bswap", (dt.uint32,), dt.uint32, "__byte_perm({0}, 0, 0x0123)")
    low, high = "__byte_perm((u32){0}, 0, 0x0123)", "__byte_perm((u32)({0} >> 32), 0, 0x0123)"
    register_or_withdraw_instruction("cuda", "bswap", (dt.uint64,), dt.uint64, f"((u64){low} << 32 | {high})")
