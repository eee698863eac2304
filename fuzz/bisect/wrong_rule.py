"""Test of rewrite steps: each step that a pass took is evaluated on values of its own.

Takes: the steps of a log (`uops.compiler.log`). Gives: the first step whose two sides differ. Nodes that are no arithmetic, as
Loads, Ranges and Params, are leaves. A leaf takes values within its min_max: both ends, neighbours of 0, and random ones; a
float may be NaN, too, which bounds do not exclude (R71: bounds of floats ignore NaN).

A rule must hold for all values of its leaves, so a step that differs is wrong. A step that does not differ may still be wrong.
Steps with a Range whose bound is another leaf are not tested. Which of two zeros a float Max gives is open (R11).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.testing.values import edge_bits, encode_representable_value_unchecked, from_bits
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import RewriteStep
from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import ALU, Op

Array = npt.NDArray[Any]
#: Number of tuples of values on which a step is evaluated.
TRIED = 256
#: Maximum distance of an index leaf's values from its value nearest to 0.
_FAR = 1 << 20
#: Number of evenly spaced floats between the bounds of a leaf.
_BETWEEN = 9
#: Ops that are evaluated; all others are leaves.
_INNER = ALU | {Op.CAST, Op.BITCAST, Op.CONST}


@contextmanager
def record_rewrite_steps() -> Iterator[list[RewriteStep]]:
    """Record the steps that Rewriters take inside the context. Memoized results of earlier rewrites are used as usual and
    not recorded again.
    """
    steps: list[RewriteStep] = []
    applied = Rewriter.apply_first_rule

    def apply_and_log(self: Rewriter, u: UOp) -> UOp | None:
        before, self.log = self.log, steps
        try:
            return applied(self, u)
        finally:
            self.log = before

    Rewriter.apply_first_rule = apply_and_log  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        Rewriter.apply_first_rule = applied  # type: ignore[method-assign]


def find_wrong_step(steps: Iterable[RewriteStep], seed: int = 0) -> RewriteStep | None:
    """Return the first step whose sides differ on some values, or None."""
    rng = np.random.Generator(np.random.SFC64(seed))
    return next((s for s in steps if _differs_on_drawn_values(s.before, s.after, rng)), None)


def _differs_on_drawn_values(before: UOp, after: UOp, rng: np.random.Generator) -> bool:
    leaves = [u for u in toposort(before, after, gate=lambda u: u.op in _INNER) if u.op not in _INNER]
    if any(u.shape != () or u.dtype is dt.void for u in (before, after, *leaves)) or any(map(_has_dynamic_bound, leaves)):
        return False
    params = {u: b.param(k, (TRIED,), u.dtype) for k, u in enumerate(leaves)}
    inputs = {f"p{k}": _draw_values_within_bounds(u, rng) for k, u in enumerate(leaves)}
    try:
        x, y = run(substitute(b.tuple_(before, after), params), inputs, check=False).values
    except (Trap, SpecError):  # the leaves cannot have these values together
        return False
    ignore_zero_sign = any(u.op is Op.MAX and u.dtype.is_float for u in toposort(before))
    x, y = np.broadcast_arrays(x, y)
    return not bool(np.all(_mask_equal_bits_or_nans(x, y, ignore_zero_sign)))


def _has_dynamic_bound(u: UOp) -> bool:
    return u.op is Op.RANGE and u.bound.op is not Op.CONST


def _mask_equal_bits_or_nans(x: Array, y: Array, ignore_zero_sign: bool) -> Array:
    """Return a mask of the elements that have equal bits or are both NaN; with `ignore_zero_sign`, zeros are equal, too."""
    if x.dtype.kind in "iubO":
        return np.asarray(x == y)
    bits = f"u{x.dtype.itemsize}"
    same = np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        a, b = x.astype(np.float64), y.astype(np.float64)
    return np.asarray(same | (np.isnan(a) & np.isnan(b)) | (ignore_zero_sign & (a == 0) & (b == 0)))


def _draw_values_within_bounds(leaf: UOp, rng: np.random.Generator) -> Array:
    d = leaf.dtype
    if d.is_float:
        return from_bits(rng.choice(_list_test_bits_within_bounds_and_nans(d, *(leaf.min_max or (-math.inf, math.inf))), TRIED), d)
    lo, hi = _test_bounds_of_leaf_near_zero_if_index(leaf)
    if d.kind is DTypeKind.BOOL:
        return rng.integers(lo, hi, TRIED, endpoint=True).astype(np.bool_)
    base = lo if d is dt.index and not -(1 << 63) <= lo <= hi < 1 << 63 else 0  # beyond int64, offsets from `lo` are drawn
    values = rng.integers(lo - base, hi - base, TRIED, STORAGE[d].type, endpoint=True)
    edges = [edge - base for edge in (lo, hi, lo + 1, hi - 1, -1, 0, 1, 2, 3) if lo <= edge <= hi]
    values[::3] = rng.choice(np.array(edges, STORAGE[d]), len(values[::3]))
    return values.astype(object) + base if base else values


@functools.lru_cache(256)
def _list_test_bits_within_bounds_and_nans(d: DType, lower_bound: float, upper_bound: float) -> Array:
    """Return the bits of NaNs and, within `lower_bound` and `upper_bound`, of edge cases, both ends and numbers between them."""
    edges = np.array(edge_bits(d), np.uint64)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        values = from_bits(edges, d).astype(np.float64)
    low, high = (min(max(v, -d.max_finite), d.max_finite) for v in (lower_bound, upper_bound))
    between = [encode_representable_value_unchecked(d, low * (1 - t) + high * t) for t in np.linspace(0, 1, _BETWEEN).tolist()]
    return np.concatenate(
        [edges[np.isnan(values) | ((lower_bound <= values) & (values <= upper_bound))], np.array(between, np.uint64)]
    )


def _test_bounds_of_leaf_near_zero_if_index(leaf: UOp) -> tuple[int, int]:
    lo, hi = leaf.min_max or (-_FAR, _FAR)
    if leaf.dtype is dt.index:
        near = min(max(0, lo), hi)
        lo, hi = max(lo, near - _FAR), min(hi, near + _FAR)
    return int(lo), int(hi)
