"""Instruction selection: only ops and dtypes that the target has.

Takes: EXPANDED. Gives: SELECTED (no Reduce, no index arithmetic, no small float; ops of the target only).
Spec: Lowering Pipeline/Instruction Selection; Decomposed elementwise ops; R08, R15 to R22, R32.

Steps per kernel: reductions become accumulators (`accumulate`), index values get a machine width (`widths`), ops are decomposed
and small floats become the unsigned integers of their bits, rounded once per op (`uops.compiler.decompose`), and the values are
simplified.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from uops.compiler.decompose import SMALL, lower, storage
from uops.compiler.passes.accumulate import accumulate
from uops.compiler.passes.callify import highest_unique
from uops.compiler.passes.threefry import threefry
from uops.compiler.passes.widths import machine_widths
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import VALUES
from uops.compiler.target import Target
from uops.spec import dtypes as dt
from uops.spec.errors import Unsupported
from uops.spec.node import UOp, toposort
from uops.spec.ops import ALU, Op


def select(root: UOp, target: Target) -> UOp:
    """Every kernel in the target's ops and dtypes; raises CompileError or Unsupported. Arguments stay: a small float's bits are its
    memory."""
    uniques = itertools.count(highest_unique(toposort(root)) + 1)
    return root.replace(src=tuple(c.replace(src=(_kernel(c.src[0], target, uniques), *c.src[1:])) for c in root.src))


def _kernel(body: UOp, target: Target, uniques: Iterator[int]) -> UOp:
    body = Rewriter(VALUES)(_primitive(machine_widths(accumulate(body, uniques))))
    for u in toposort(body):
        if u.op in ALU and u.op not in target.ops:
            raise Unsupported(u.op.name, target.name)
    return body


def _primitive(body: UOp) -> UOp:
    """`body` with its elementwise ops decomposed and its small floats as bits."""
    done: dict[UOp, UOp] = {}
    for u in toposort(body):
        done[u] = _lower(u, tuple(done[s] for s in u.src))
    return done[body]


def _lower(u: UOp, src: tuple[UOp, ...]) -> UOp:
    if u.op in (Op.PARAM, Op.BUFFER) and u.dtype in SMALL:
        return u.replace(src=src, arg=replace(u.arg, dtype=storage(u.dtype)))
    own = _OWN.get(u.op)
    if own is not None and own[0](u):
        return own[1](u.replace(src=src))
    if u.op in ALU or u.op in (Op.CONST, Op.BITCAST):
        return lower([u], dict(zip(u.src, src)))[0]
    return u if src == u.src else u.replace(src=src)


def _fused_integers(u: UOp) -> UOp:
    a, b, c = u.src
    return UOp(Op.ADD, (UOp(Op.MUL, (a, b)), c))


def _whole(u: UOp) -> bool:
    return not u.dtype.is_float


#: Ops that are lowered here rather than by `uops.compiler.decompose`: op -> (for which nodes, how).
_OWN: dict[Op, tuple[Callable[[UOp], bool], Callable[[UOp], UOp]]] = {
    Op.THREEFRY: (lambda u: True, threefry),
    Op.MULACC: (_whole, _fused_integers),
    Op.TRUNC: (_whole, lambda u: u.src[0]),
    Op.CAST: (lambda u: u.src[0].dtype is dt.index, lambda u: u),
}
