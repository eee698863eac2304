"""Optimize: which loops are split, swapped, parallel or vectors, and what goes through local memory.

Takes: KERNEL. Gives: SCHEDULED. Spec: Lowering Pipeline/Optimize; Kernel Optimizations (OptOps).
Every kernel keeps its initial schedule: LOOP axes outside, REDUCE axes inside, in order (R57).
"""

from __future__ import annotations

from uops.spec.node import UOp


def optimize(root: UOp) -> UOp:
    """The scheduled form of each kernel."""
    return root
