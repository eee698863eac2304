"""Machine instructions of x86-64 in C, for Ins: assembly, which TinyCC, gcc and clang take alike.

Spec: Ins; R168 (Ins and Custom on a target).
"""

from __future__ import annotations

import platform

from uops.compiler.native import register_or_withdraw_instruction
from uops.spec.ir import dtypes as dt


def register_bswap_and_popcnt_if_host_is_x86() -> None:
    """Register the instructions of this machine's processor for the target `c`; none for an unknown processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    for d, t, suffix in ((dt.uint32, "u32", "l"), (dt.uint64, "u64", "q")):
        swap = f'({{{{ {t} r = {{0}}; __asm__("bswap{suffix} %0" : "+r"(r)); r; }}}})'
        count = f'({{{{ {t} r; __asm__("popcnt{suffix} %1, %0" : "=r"(r) : "r"(({t}){{0}}) : "cc"); r; }}}})'
        register_or_withdraw_instruction("c", "bswap", (d,), d, swap)
        register_or_withdraw_instruction("c", "popcnt", (d,), d, count)
