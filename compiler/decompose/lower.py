"""`decompose` for one node, and `lower` for a whole elementwise graph on targets without small floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from uops.compiler.decompose.build import E, constant
from uops.compiler.decompose.casts import NATIVE, lower_cast, storage
from uops.compiler.decompose.elementary import WIDE_RULES, is_elementary
from uops.compiler.decompose.narrow import SMALL, encode
from uops.compiler.decompose.small import SMALL_RULES, Site, is_small
from uops.spec.ir.args import BitcastArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

_EVERY = NATIVE | frozenset(SMALL)


def decompose(u: UOp) -> UOp:
    """A graph of primitive ops over `u.src` with the value of `u` (R16 to R20), or `u` where it is primitive already.

    Takes: one elementwise node; sources of any shape of integers, () or vectors. Gives: for Exp2, Log2, Sin, Pow in float32 and
    float64, primitive ops of those dtypes, bool and the machine integers. For small floats (float16, bfloat16, fp8) and every
    arithmetic op or comparison: the same between Casts to float32 and from it, and Bitcasts; `lower_cast` lowers those Casts.
    Spec: Elementwise, Decomposed.
    """
    if is_small(u):
        return SMALL_RULES[u.op](Site(u, u.src, _EVERY)).u
    return WIDE_RULES[u.op]([E.of(s) for s in u.src], u.src).u if is_elementary(u) else u


def lower(roots: Sequence[UOp], leaves: Mapping[UOp, UOp], native: frozenset[DType] = NATIVE) -> list[UOp]:
    """`roots` rewritten to primitive ops, a small float outside `native` being the unsigned integer of its bits.

    Takes: elementwise nodes, constants and Stacks over `leaves`, each of which is replaced by its lowered value, of dtype
    `storage(leaf.dtype, native)`. Gives: one lowered node for each root. Every other source of the graph must be among the leaves
    if its dtype is lowered.
    """
    done: dict[UOp, UOp] = dict(leaves)
    for u in toposort(*roots, gate=lambda n: n not in done):
        if u not in done:
            done[u] = _lower_node(u, tuple([done[s] for s in u.src]), native)
    return [done[r] for r in roots]


def _lower_node(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    """`u` over its lowered sources. Where, Stack and the markers keep a small float's bits as they are."""
    rule = _RULES.get(u.op)
    if rule is not None:
        return rule(u, src, native)
    if is_small(u):
        return SMALL_RULES[u.op](Site(u, src, native)).u
    if is_elementary(u):
        return WIDE_RULES[u.op]([E.of(s) for s in src], u.src).u
    return u if src == u.src else u.replace(src=src)


def _lower_const(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    d = u.dtype
    return u if d in native or d not in SMALL else constant(encode(u.const, d), storage(d, native))


def _lower_cast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    return lower_cast(src[0], u.src[0].dtype, u.dtype, native)


def _lower_bitcast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    target = storage(u.dtype, native) if u.dtype in SMALL else u.dtype
    return src[0] if src[0].dtype is target else UOp(Op.BITCAST, src, BitcastArg(target))


_RULES: dict[Op, Callable[[UOp, tuple[UOp, ...], frozenset[DType]], UOp]] = {
    Op.CONST: _lower_const,
    Op.CAST: _lower_cast,
    Op.BITCAST: _lower_bitcast,
}
