"""Machine instructions in OpenCL C, for Ins: expressions that its compilers make one instruction of.

Spec: Ins; R168 (Ins and Custom on a target).
"""

from __future__ import annotations

from uops.compiler.native import register_or_withdraw_instruction
from uops.spec.ir import dtypes as dt


def register_popcnt_and_bswap() -> None:
    """Register the instructions for the target `opencl`, on integers of 32 and 64 bits."""
    for d in (dt.uint32, dt.uint64):
        register_or_withdraw_instruction("opencl", "popcnt", (d,), d, "popcount({0})")
    register_or_withdraw_instruction("opencl", "bswap", (dt.uint32,), dt.uint32, "as_uint(as_uchar4((u32){0}).wzyx)")
    register_or_withdraw_instruction("opencl", "bswap", (dt.uint64,), dt.uint64, "as_ulong(as_uchar8((u64){0}).s76543210)")
