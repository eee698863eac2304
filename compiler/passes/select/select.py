"""Instruction selection: only ops and dtypes that the target has.

Takes: EXPANDED. Gives: SELECTED (no Reduce, no index arithmetic, no small float; ops of the target only).
Spec: Lowering Pipeline/Instruction Selection; Decomposed elementwise ops; R08, R15 to R22, R32.

Steps per kernel: reductions become accumulators (`accumulate`), index values get a machine width (`widths`), ops are decomposed
and small floats become the unsigned integers of their bits, rounded once per op (`uops.compiler.decompose`), and the values are
simplified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from uops.compiler.decompose import SMALL, lower, storage
from uops.compiler.decompose.elementary import WIDE_RULES, is_elementary
from uops.compiler.decompose.small import is_small
from uops.compiler.decompose.threefry import threefry
from uops.compiler.ir.accumulators import accumulate
from uops.compiler.ir.bodies import each
from uops.compiler.log import note
from uops.compiler.passes.callify.callify import uniques
from uops.compiler.passes.select.devectorise import devectorise
from uops.compiler.passes.select.index_widths import machine_widths
from uops.compiler.passes.select.vectors import has_shape
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.target import Target, machine_of
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op

#: What is done to each kernel, in this order.
STEPS = ("accumulate", "widths", "decompose", "simplify")


def select(root: UOp, target: Target, steps: dict[str, UOp] | None = None) -> UOp:
    """Every kernel in the target's ops and dtypes; raises CompileError or Unsupported. Arguments stay: a small float's bits are its
    memory. `steps` receives the graph after each of STEPS."""
    found = {body: selected(body, target) for body in dict.fromkeys(c.src[0] for c in root.src)}
    if steps is not None:
        steps.update({name: each(root, lambda body, k=k: found[body][k]) for k, name in enumerate(STEPS)})  # type: ignore[misc]
    return each(root, lambda body: found[body][-1])


def selected(body: UOp, target: Target) -> tuple[UOp, ...]:
    """One body after each of STEPS."""
    shaped = has_shape(toposort(body))
    accumulated = devectorise(body, machine_of(target), uniques(body)) if shaped else accumulate(body, uniques(body))
    sized = accumulated if shaped else machine_widths(accumulated)
    primitive = _primitive(sized, target.ops)
    simplified = (Scalars if shaped else Rewriter)(VALUES)(primitive)
    foreign = {u.op for u in toposort(simplified)} & ALU - target.ops
    if foreign:
        raise Unsupported(min(op.name for op in foreign), target.name)
    return accumulated, sized, primitive, simplified


class Scalars(Rewriter):
    """Rewrites scalars: the rules are written for them. A vector is left to the target's own compiler."""

    def applied(self, u: UOp) -> UOp | None:
        return Rewriter.applied(self, u) if not u.shape else None


def _primitive(body: UOp, native: frozenset[Op]) -> UOp:
    """`body` with its elementwise ops decomposed, those that are not `native`, and its small floats as bits."""
    order = toposort(body)
    small = not {u.arg.dtype for u in order if u.op in _NAMING}.isdisjoint(SMALL)
    if not small and not any(_may_lower(u) for u in [u for u in order if u.op in _CHANGED]):
        return body
    done: dict[UOp, UOp] = {}  # what became of the nodes that are not the same
    for u in order:
        if u.op in _LOWERED or (small and u.op in ALU) or not done.keys().isdisjoint(u.src):
            made = _lower(u, tuple([done.get(s, s) for s in u.src]), native)
            if made is not u:
                done[u] = made
    note("decompose", body, done.get(body, body), done)
    return done.get(body, body)


def _lower(u: UOp, src: tuple[UOp, ...], native: frozenset[Op]) -> UOp:
    if u.op in (Op.PARAM, Op.BUFFER) and u.dtype in SMALL:
        return u.replace(src=src, arg=replace(u.arg, dtype=storage(u.dtype)))
    own = _OWN.get(u.op)
    if own is not None and own[0](u):
        return own[1](u.replace(src=src))
    if u.op is Op.CONST and u.dtype not in SMALL:
        return u
    if u.op in _CONVERTED or (u.op in ALU and (is_small(u) or (is_elementary(u) and u.op not in native))):
        return lower([u], dict(zip(u.src, src)))[0]
    return u if src == u.src else u.replace(src=src)


#: Ops that may hold small floats whatever they do.
_CONVERTED = frozenset({Op.CONST, Op.CAST, Op.BITCAST})
#: Ops that name the dtype of their value; where none of them names a small float, there is none.
_NAMING = _CONVERTED | {Op.PARAM, Op.BUFFER}


def _may_lower(u: UOp) -> bool:
    """Whether one of _CHANGED may become something else: of a kernel without such a node, and without small floats, all stays."""
    return u.op is not Op.CAST or u.src[0].dtype is not dt.index


def _fused_integers(u: UOp) -> UOp:
    a, b, c = u.src
    return UOp(Op.ADD, (UOp(Op.MUL, (a, b)), c))


def _fragments(u: UOp) -> UOp:
    """A tensor core takes small floats as they are: the bits, read as what they mean."""
    wanted = (u.arg.dtype_in, u.arg.dtype_in, u.arg.dtype_out)
    src = [s if s.dtype is d else UOp(Op.BITCAST, (s,), BitcastArg(d)) for s, d in zip(u.src, wanted, strict=True)]
    return u.replace(src=tuple(src))


def _whole(u: UOp) -> bool:
    return not u.dtype.is_float


#: Ops that are lowered here rather than by `uops.compiler.decompose`: op -> (for which nodes, how).
_OWN: dict[Op, tuple[Callable[[UOp], bool], Callable[[UOp], UOp]]] = {
    Op.THREEFRY: (lambda u: True, threefry),
    Op.MULACC: (_whole, _fused_integers),
    Op.TRUNC: (_whole, lambda u: u.src[0]),
    Op.CAST: (lambda u: u.src[0].dtype is dt.index, lambda u: u),
    Op.WMMA: (lambda u: True, _fragments),
}
#: Ops that are lowered, and with those that name the dtypes that are.
_CHANGED = frozenset({*_OWN, *WIDE_RULES})
_LOWERED = _CHANGED | _NAMING
