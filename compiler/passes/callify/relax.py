"""Fast-math: a program that computes the same over the real numbers with less work (`Config.fast_math`; R156, fast-math).

Takes: CALLIFIED, or TENSOR. Gives: the same dialect, with the same arguments, Stores and shapes of values.

The rules of `uops.compiler.rewrite.rules.fast_math` are applied to nodes of every shape. That happens before kernels are split, so
that each node still has one value (R27, one node, one value). By the laws of the same module, two more changes are made in float32
and float64. A factor or divisor that all addends of a sum share is hoisted out of the sum. So is a constant behind movement ops, if
that takes no more multiplications. A divisor that whole rows share is inverted once per row. In narrower floats, sums keep
the scale of their addends, because they might overflow.

Kernels written by hand stay as they are (R166, kernels written by hand): a list of instructions has no place for new ones.

A Store that no longer needs a value is no longer ordered after it. A program that would then read changing memory in another order
stays as it is (R27; R161, references used as values).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from uops.compiler.decompose import WIDE
from uops.compiler.log import log_transform
from uops.compiler.passes.callify.hazards import keeps_order_of_copies_and_stores
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules.fast_math import RELAXING
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, nodes_with_op, toposort
from uops.spec.ir.ops import ALU, RESHAPING, TO_SHAPE, Op
from uops.spec.ir.scope import ranges_closed_by

#: Most factors of one product that are considered.
_MAX_FACTORS = 16


def apply_fast_math_if_order_kept(root: UOp) -> UOp:
    """Return the program after the rules of fast-math, or `root` if they would change the order of reads and Stores."""
    kernels = [u.body for u in nodes_with_op(root, Op.CALL) if u is not root]
    kept = frozenset(toposort(*kernels))
    first, hoister, last = _FastMathRewriter(kept), _FactorHoister(kept), _FastMathRewriter(kept)
    simple = first(root)
    for u in toposort(simple):
        hoister.rebuild_and_hoist_factors_or_reciprocal(u)
    hoisted = hoister.done[simple]
    log_transform("relax", simple, hoisted, hoister.done)
    relaxed = last(hoisted)
    replacements = {u: last.done[v] for u, w in first.done.items() if (v := hoister.done.get(w)) in last.done}
    return relaxed if keeps_order_of_copies_and_stores(root, relaxed, replacements) else root


class _FastMathRewriter(Rewriter):
    """A Rewriter by the rules of fast-math, for floats and conditions of any shape, but for the nodes `kept`.

    A splat of a constant counts as the constant, and a result that loses its shape is broadcast. Index expressions stay, because
    callers know the shapes of arguments by them.
    """

    def __init__(self, kept: Collection[UOp]) -> None:
        super().__init__(RELAXING)
        self.kept = kept

    def apply_first_rule(self, u: UOp) -> UOp | None:
        """Merge splats into `u`, else apply the first matching rule and keep the shape of `u`."""
        if u.op not in ALU or not (u.dtype.is_float or u.dtype is dt.bool_) or u in self.kept:
            return None
        plain = u.replace(src=tuple([_match_splat_constant(s) or s for s in u.src]))
        if plain is not u and plain.shape == u.shape:
            return plain
        after = super().apply_first_rule(u)
        return after if after is None or after.shape == u.shape else _broadcast(after, u.shape)


def _match_splat_constant(view: UOp) -> UOp | None:
    """Return the constant of which every element of `view` is a copy, if there is one."""
    while view.op in TO_SHAPE:
        view = view.operand
    return view if view.op is Op.CONST else None


def _broadcast(u: UOp, shape: tuple[Dim, ...]) -> UOp:
    padded = (1,) * (len(shape) - len(u.shape)) + u.shape
    return B.expand(u if padded == u.shape else B.reshape(u, padded), shape)


class _ConstantMultiple(NamedTuple):
    """A value as `core` times `constants`; `saved` counts the multiplications of elements that hoisting the constants saves."""

    core: UOp
    constants: tuple[UOp, ...] = ()
    saved: int = 0


class _FactorHoister:
    """The hoisting of factors and divisors out of sums, node by node, sources first, but for the nodes `kept`."""

    def __init__(self, kept: Collection[UOp]) -> None:
        self.kept = kept
        self.done: dict[UOp, UOp] = {}
        self.scaled_values: dict[UOp, _ConstantMultiple] = {}

    def rebuild_and_hoist_factors_or_reciprocal(self, u: UOp) -> None:
        """Rebuild `u` on its new sources, and hoist factors if it is a sum or a quotient."""
        src = tuple([self.done[s] for s in u.src])
        v = u if src == u.src else u.replace(src=src)
        if v.dtype in WIDE and v not in self.kept:
            if v.op is Op.REDUCE and v.arg.op is Op.ADD:
                v = self._hoist_invariant_factors_from_sum(v)
            elif v.op is Op.DIV:
                v = self._multiply_by_reciprocal_if_row_shared(v)
            self._record_constant_multiple_if_any(v)
        self.done[u] = v

    def _build_scaled(self, op: Op, *src: UOp) -> UOp:
        v = UOp(op, src)
        self._record_constant_multiple_if_any(v)
        return v

    def _scaled_form(self, u: UOp) -> _ConstantMultiple:
        return self.scaled_values.get(u) or _ConstantMultiple(u)

    def _record_constant_multiple_if_any(self, v: UOp) -> None:
        """Record the constants that multiply `v`, if there are any."""
        scaled = None
        if v.op is Op.MUL and v.rhs.op is Op.CONST:
            core, constants, saved = self._scaled_form(v.lhs)
            scaled = _ConstantMultiple(core, (*constants, v.rhs), saved + _static_size(v.shape))
        elif v.op is Op.MUL:
            a, b = map(self._scaled_form, v.src)
            scaled = _ConstantMultiple(UOp(Op.MUL, (a.core, b.core)), a.constants + b.constants, a.saved + b.saved)
        elif v.op in RESHAPING or (v.op is Op.REDUCE and v.arg.op is Op.ADD):
            operand, *parameters = v.src  # a view's offsets and extents
            a = self._scaled_form(operand)
            scaled = _ConstantMultiple(v.replace(src=(a.core, *parameters)), a.constants, a.saved)
        if scaled is not None and 0 < len(scaled.constants) <= _MAX_FACTORS and scaled.core.shape == v.shape:
            self.scaled_values[v] = scaled

    def _hoist_invariant_factors_from_sum(self, add_reduce: UOp) -> UOp:
        """Apply the factors and divisors that all addends of a sum share once, to the sum."""
        term = add_reduce.operand
        factors, divisors = _split_factors_and_divisors(term)
        inner_factors = [f for f in factors if not _is_same_for_all_addends(f, add_reduce)]
        outer_factors = [f for f in factors if _is_same_for_all_addends(f, add_reduce)]
        outer_divisors = [d for d in divisors if _is_same_for_all_addends(d, add_reduce)]
        if not inner_factors:
            return add_reduce
        inner = inner_factors[0]
        for f in inner_factors[1:]:
            inner = self._build_scaled(Op.MUL, inner, f)
        for d in divisors:
            inner = inner if d in outer_divisors else self._build_scaled(Op.DIV, inner, d)
        scaled = self._scaled_form(inner)
        if scaled.saved < _static_size(add_reduce.shape):
            scaled = _ConstantMultiple(inner)
        if not (outer_factors or outer_divisors or scaled.constants) or scaled.core.shape != term.shape:
            return add_reduce
        total = add_reduce.replace(src=(scaled.core, *ranges_closed_by(add_reduce)))
        for f in (*outer_factors, *scaled.constants):
            total = self._build_scaled(Op.MUL, total, _strip_expands(f))
        for d in outer_divisors:
            total = self._build_scaled(Op.DIV, total, _strip_expands(d))
        return total if total.shape == add_reduce.shape else add_reduce

    def _multiply_by_reciprocal_if_row_shared(self, quotient: UOp) -> UOp:
        """Multiply by the reciprocal of a divisor that whole rows share, which is computed once per row."""
        divisor = _strip_expands(quotient.rhs)
        is_per_element = divisor.shape and divisor.shape[-1] != 1
        if not quotient.shape or quotient.shape[-1] == 1 or divisor.op is Op.CONST or is_per_element:
            return quotient
        product = self._build_scaled(Op.MUL, quotient.lhs, UOp(Op.RECIP, (divisor,)))
        return product if product.shape == quotient.shape else quotient


def _split_factors_and_divisors(term: UOp) -> tuple[list[UOp], list[UOp]]:
    """Return the factors of a term, and its divisors."""
    factors, divisors, pending = list[UOp](), list[UOp](), [term]
    while pending:
        u = pending.pop()
        if len(factors) + len(pending) >= _MAX_FACTORS or u.op not in (Op.MUL, Op.DIV):
            factors.append(u)
        elif u.op is Op.MUL:
            pending += (u.rhs, u.lhs)
        else:
            pending.append(u.lhs)
            divisors.append(u.rhs)
    return factors, divisors


def _strip_expands(value: UOp) -> UOp:
    """Return the value that Expands only repeat."""
    while value.op is Op.EXPAND:
        value = value.operand
    return value


def _is_same_for_all_addends(factor: UOp, add_reduce: UOp) -> bool:
    """Return True if a factor is the same for all addends of a sum of several."""
    shape, rank = _strip_expands(factor).shape, len(add_reduce.shape)
    fixed = all(a < rank - len(shape) or shape[a - (rank - len(shape))] == 1 for a in add_reduce.arg.axes)
    return fixed and any(add_reduce.operand.shape[a] != 1 for a in add_reduce.arg.axes)


def _static_size(shape: tuple[Dim, ...]) -> int:
    """Return the number of elements of a shape; 0 for a symbolic one."""
    return 0 if any(isinstance(n, UOp) for n in shape) else math.prod(shape)
