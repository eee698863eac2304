"""Register/memory plan: where intermediate values live.

Takes: LINEAR. Gives: PLANNED. Spec: Lowering Pipeline/Register-Memory Plan; Slice; R61.

Intermediate GLOBAL Buffers are those that no one outside sees: neither an argument of the callified program nor an output. Those whose
lifetimes do not meet share storage: each becomes a Slice of one arena.
"""

from __future__ import annotations

from uops.spec.node import UOp


def plan(root: UOp) -> UOp:
    return root
