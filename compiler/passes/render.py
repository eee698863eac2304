"""Render: the machine code.

Takes: PLANNED. Gives: PROGRAM (each kernel body a Program of its instructions, source and binary). Spec: Lowering
Pipeline/Render; Program.
"""

from __future__ import annotations

from uops.compiler.passes.bodies import each
from uops.compiler.target import Target
from uops.spec import build as B
from uops.spec.args import SourceArg
from uops.spec.node import UOp
from uops.spec.ops import Op


def render(root: UOp, target: Target) -> UOp:
    """`root` with every kernel rendered and compiled, equal kernels once."""
    return each(root, lambda linear: rendered(linear, target))


def rendered(linear: UOp, target: Target) -> UOp:
    """The Program of one instruction list."""
    source = target.render(linear)
    return UOp(Op.PROGRAM, (linear, UOp(Op.SOURCE, (), SourceArg(source)), B.binary(target.compile(source))))
