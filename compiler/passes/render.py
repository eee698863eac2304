"""Render: the machine code.

Takes: PLANNED. Gives: PROGRAM (each kernel body a Program of its instructions, source and binary). Spec: Lowering
Pipeline/Render; Program.
"""

from __future__ import annotations

from uops.compiler.target import Target
from uops.spec import build as B
from uops.spec.args import SourceArg
from uops.spec.node import UOp
from uops.spec.ops import Op


def render(root: UOp, target: Target) -> UOp:
    """`root` with every kernel rendered and compiled, equal kernels once."""
    programs: dict[UOp, UOp] = {}
    for call in root.src:
        if call.src[0] not in programs:
            programs[call.src[0]] = _program(call.src[0], target)
    return root.replace(src=tuple(c.replace(src=(programs[c.src[0]], *c.src[1:])) for c in root.src))


def _program(linear: UOp, target: Target) -> UOp:
    source = target.render(linear)
    return UOp(Op.PROGRAM, (linear, UOp(Op.SOURCE, (), SourceArg(source)), B.binary(target.compile(source))))
