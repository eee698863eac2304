"""Which of the rewrite steps that a pass took is wrong: each is tried on values of its own.

Takes: the steps of a log (`uops.compiler.log`). Gives: the first whose two sides differ. What is no arithmetic - a Load, a Range, a
Param - is a leaf, and gets values from its min_max: ends, neighbours of 0, and others drawn by a seed. A float may be NaN, too, of
which bounds say nothing (R71). A step that differs is wrong, since a rule must hold for all values of its leaves; one that does not
may still be. Nothing is said of a Range whose bound is another leaf. Which of two zeros a float Max gives is left open (R11).
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
from uops.backends.testing.values import edge_bits, float_bits, from_bits
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Step
from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import ALU, Op

Array = npt.NDArray[Any]
#: Tuples of values that a step is tried on.
TRIED = 256
#: How far index leaves go from the value nearest to 0 that they may have.
_FAR = 1 << 20
#: Floats tried that lie evenly between the ends of a leaf.
_BETWEEN = 9
_INNER = ALU | {Op.CAST, Op.BITCAST, Op.CONST}


@contextmanager
def taken() -> Iterator[list[Step]]:
    """The steps that Rewriters take inside, which remember what they did as they do where nobody asks."""
    steps: list[Step] = []
    applied = Rewriter.applied

    def heard(self: Rewriter, u: UOp) -> UOp | None:
        before, self.log = self.log, steps
        try:
            return applied(self, u)
        finally:
            self.log = before

    Rewriter.applied = heard  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        Rewriter.applied = applied  # type: ignore[method-assign]


def wrong_step(steps: Iterable[Step], seed: int = 0) -> Step | None:
    """The first step that does not keep the value."""
    rng = np.random.Generator(np.random.SFC64(seed))
    return next((s for s in steps if _differs(s.before, s.after, rng)), None)


def _differs(before: UOp, after: UOp, rng: np.random.Generator) -> bool:
    leaves = [u for u in toposort(before, after, gate=lambda u: u.op in _INNER) if u.op not in _INNER]
    if any(u.shape != () or u.dtype is dt.void for u in (before, after, *leaves)) or any(map(_is_bounded, leaves)):
        return False
    params = {u: b.param(k, (TRIED,), u.dtype) for k, u in enumerate(leaves)}
    inputs = {f"p{k}": _values(u, rng) for k, u in enumerate(leaves)}
    try:
        x, y = run(substitute(b.tuple_(before, after), params), inputs, check=False).values
    except (Trap, SpecError):  # these values are none that the leaves have together
        return False
    zeros = any(u.op is Op.MAX and u.dtype.is_float for u in toposort(before))
    x, y = np.broadcast_arrays(x, y)
    return not bool(np.all(_same(x, y, zeros)))


def _is_bounded(u: UOp) -> bool:
    return u.op is Op.RANGE and u.src[0].op is not Op.CONST


def _same(x: Array, y: Array, zeros: bool) -> Array:
    """Elements that are equal by bits, or NaN; with `zeros`, either zero is the other."""
    if x.dtype.kind in "iubO":
        return np.asarray(x == y)
    bits = f"u{x.dtype.itemsize}"
    same = np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        a, b = x.astype(np.float64), y.astype(np.float64)
    return np.asarray(same | (np.isnan(a) & np.isnan(b)) | (zeros & (a == 0) & (b == 0)))


def _values(u: UOp, rng: np.random.Generator) -> Array:
    d = u.dtype
    if d.is_float:
        return from_bits(rng.choice(_pool(d, *(u.min_max or (-math.inf, math.inf))), TRIED), d)
    lo, hi = _bounds(u)
    if d.kind is Kind.BOOL:
        return rng.integers(lo, hi, TRIED, endpoint=True).astype(np.bool_)
    base = lo if d is dt.index and not -(1 << 63) <= lo <= hi < 1 << 63 else 0  # what no array of words holds
    found = rng.integers(lo - base, hi - base, TRIED, STORAGE[d].type, endpoint=True)
    edges = [v - base for v in (lo, hi, lo + 1, hi - 1, -1, 0, 1, 2, 3) if lo <= v <= hi]
    found[::3] = rng.choice(np.array(edges, STORAGE[d]), len(found[::3]))
    return found.astype(object) + base if base else found


@functools.lru_cache(256)
def _pool(d: DType, lo: float, hi: float) -> Array:
    """The bits of NaNs, and from `lo` to `hi` of the edge cases, of both ends and of numbers between them."""
    edges = np.array(edge_bits(d), np.uint64)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        values = from_bits(edges, d).astype(np.float64)
    low, high = (min(max(v, -d.max_finite), d.max_finite) for v in (lo, hi))
    between = [float_bits(d, low * (1 - t) + high * t) for t in np.linspace(0, 1, _BETWEEN).tolist()]
    return np.concatenate([edges[np.isnan(values) | ((lo <= values) & (values <= hi))], np.array(between, np.uint64)])


def _bounds(u: UOp) -> tuple[int, int]:
    lo, hi = u.min_max or (-_FAR, _FAR)
    if u.dtype is dt.index:
        near = min(max(0, lo), hi)
        lo, hi = max(lo, near - _FAR), min(hi, near + _FAR)
    return int(lo), int(hi)
