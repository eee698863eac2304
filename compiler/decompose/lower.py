"""Decomposition of one node, and lowering of a whole elementwise graph for targets without small floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from uops.compiler.decompose.build import Expr, build_constant_or_stack_of_copies
from uops.compiler.decompose.casts import NATIVE, lower_cast, soften_dtype
from uops.compiler.decompose.elementary import WIDE_RULES, is_elementary
from uops.compiler.decompose.narrow import SMALL, encode_representable_small_float
from uops.compiler.decompose.small import SMALL_RULES, SmallFloatNode, is_small
from uops.spec.ir.args import BitcastArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: The dtypes of a target that has every small float.
_ALL_DTYPES = NATIVE | frozenset(SMALL)


def decompose_node_or_keep_primitive(u: UOp) -> UOp:
    """Return a graph of primitive ops over `u.src` with the value of `u` (R16 to R20), or `u` itself if it is primitive.

    Takes: one elementwise node, whose sources are of shape () or vectors. Gives: for Exp2, Log2, Sin and Pow in float32 and
    float64, primitive ops of those dtypes, bool and the machine integers. For arithmetic ops and comparisons on small floats
    (float16, bfloat16, fp8): the same between Bitcasts and Casts to and from float32, which `lower_cast` lowers. Spec:
    Elementwise, Decomposed.
    """
    if is_small(u):
        return SMALL_RULES[u.op](SmallFloatNode(u, u.src, _ALL_DTYPES)).u
    return WIDE_RULES[u.op]([Expr.of(s) for s in u.src], u.src).u if is_elementary(u) else u


def lower_elementwise(
    roots: Sequence[UOp], lowered_by_leaf: Mapping[UOp, UOp], native_dtypes: frozenset[DType] = NATIVE
) -> list[UOp]:
    """Return `roots` in primitive ops, where a small float outside `native_dtypes` is the unsigned integer of its bits.

    Takes: elementwise nodes, constants and Stacks over `lowered_by_leaf`. Each leaf is replaced by its lowered value, of dtype
    `soften_dtype(leaf.dtype, native_dtypes)`. Gives: one lowered node for each root. Every other source of the graph must be among
    the leaves if its dtype is lowered.
    """
    done: dict[UOp, UOp] = dict(lowered_by_leaf)
    for u in toposort(*roots, gate=lambda n: n not in done):
        if u not in done:
            done[u] = _lower_node(u, tuple([done[s] for s in u.src]), native_dtypes)
    return [done[r] for r in roots]


def _lower_node(u: UOp, lowered_sources: tuple[UOp, ...], native_dtypes: frozenset[DType]) -> UOp:
    """Return `u` over its lowered sources; Where, Stack and the markers keep a small float's bits."""
    rule = _RULES.get(u.op)
    if rule is not None:
        return rule(u, lowered_sources, native_dtypes)
    if is_small(u):
        return SMALL_RULES[u.op](SmallFloatNode(u, lowered_sources, native_dtypes)).u
    if is_elementary(u):
        return WIDE_RULES[u.op]([Expr.of(s) for s in lowered_sources], u.src).u
    return u if lowered_sources == u.src else u.replace(src=lowered_sources)


def _lower_const(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    d = u.dtype
    return (
        u
        if d in native or d not in SMALL
        else build_constant_or_stack_of_copies(encode_representable_small_float(u.const, d), soften_dtype(d, native))
    )


def _lower_cast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    (operand,) = src
    return lower_cast(operand, u.operand.dtype, u.dtype, native)


def _lower_bitcast(u: UOp, src: tuple[UOp, ...], native: frozenset[DType]) -> UOp:
    (operand,) = src
    target = soften_dtype(u.dtype, native) if u.dtype in SMALL else u.dtype
    return operand if operand.dtype is target else UOp(Op.BITCAST, src, BitcastArg(target))


#: op -> its lowering, of the node, its lowered sources and the native dtypes
_RULES: dict[Op, Callable[[UOp, tuple[UOp, ...], frozenset[DType]], UOp]] = {
    Op.CONST: _lower_const,
    Op.CAST: _lower_cast,
    Op.BITCAST: _lower_bitcast,
}
