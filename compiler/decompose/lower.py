"""`decompose` for one node, and `lower` for a whole elementwise graph on targets without small floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from uops.compiler.decompose.build import constant
from uops.compiler.decompose.casts import NATIVE, lower_cast, storage
from uops.compiler.decompose.elementary import decompose_wide
from uops.compiler.decompose.narrow import SMALL, encode
from uops.compiler.decompose.small import SMALL_RULES
from uops.spec.args import BitcastArg
from uops.spec.dtypes import DType
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op


def decompose(u: UOp) -> UOp:
    """A graph of primitive ops over `u.src` with the value of `u` (R16 to R20), or `u` where it is primitive already.

    Takes: one elementwise node; sources of any shape of integers, () or vectors. Gives: for Exp2, Log2, Sin, Pow in float32 and
    float64, primitive ops of those dtypes, bool and the machine integers. For small floats (float16, bfloat16, fp8) and every
    arithmetic op or comparison: the same in float32 or float64 between Casts, and primitive but for the Casts, which
    `casts.lower_cast` lowers. Spec: Elementwise, Decomposed.
    """
    if u.op in SMALL_RULES and u.src[-1].dtype in SMALL:
        return SMALL_RULES[u.op](u)
    return decompose_wide(u)


def lower(roots: Sequence[UOp], leaves: Mapping[UOp, UOp], native: frozenset[DType] = NATIVE) -> list[UOp]:
    """`roots` rewritten to primitive ops, a small float outside `native` being the unsigned integer of its bits.

    Takes: elementwise nodes, constants and Stacks over `leaves`, each of which is replaced by its lowered value (dtype
    `storage(leaf.dtype)`). Gives: one lowered node for each root. Every other source of the graph must be among the leaves if its
    dtype is lowered.
    """
    done: dict[UOp, UOp] = dict(leaves)
    for u in toposort(*roots, gate=lambda n: n not in done):
        if u not in done:
            _lower_into(done, u, native)
    return [done[r] for r in roots]


def _lower_into(done: dict[UOp, UOp], u: UOp, native: frozenset[DType]) -> None:
    """Put the lowered `u` into `done`, whose keys hold its sources; the graph that `decompose` gives is lowered on the way."""
    new = decompose(u)
    for v in toposort(new, gate=lambda n: n not in done):
        if v not in done:
            rule = _RULES.get(v.op)
            src = tuple(done[s] for s in v.src)
            done[v] = rule(v, src, native) if rule else v if src == v.src else v.replace(src=src)
    done[u] = done[new]


def _lower_const(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    d = u.dtype
    return u if d in native or d not in SMALL else constant(encode(u.const, d), storage(d, native))


def _lower_cast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    return lower_cast(src[0], u.src[0].dtype, u.dtype, native)


def _lower_bitcast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    target = storage(u.dtype, native) if u.dtype in SMALL else u.dtype
    return src[0] if src[0].dtype is target else UOp(Op.BITCAST, src, BitcastArg(target))


#: Where, Stack and the markers keep a small float's bits as they are and need no rule.
_RULES: dict[Op, Callable[[UOp, tuple[UOp, ...], frozenset[DType]], UOp]] = {
    Op.CONST: _lower_const,
    Op.CAST: _lower_cast,
    Op.BITCAST: _lower_bitcast,
}
