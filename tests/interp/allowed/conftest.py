"""Random sets and members of them, for judging the set algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops.interp.allowed.layout import LAYOUT, Array, DTypeLayout, from_order_keys, to_order_keys, ulp
from uops.interp.allowed.result import AllowedSet
from uops.interp.allowed.value import NAN, NINF, NZERO, PINF, PZERO, ArrayOrSets, SetArray, from_points_widening_to_hull_or_any
from uops.spec.ir.dtypes import DType

_FLAGS = ((NAN, np.nan), (PINF, np.inf), (NINF, -np.inf), (PZERO, 0.0), (NZERO, -0.0))


class Sampler:
    """Draws sets of a float dtype with a bias to edges, and members of a set."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def _keys(self, f: DTypeLayout, m: int) -> Array:
        rng, top, extra = self.rng, f.key_max, int(f.dtype.has_inf)
        common = to_order_keys(f, rng.standard_normal(m).astype(np.float32).astype(f.np)).astype(np.int64)
        edges = (
            rng.integers(-3, 4, m),
            rng.integers(top - 2, top + 1 + extra, m),
            -rng.integers(top - 2, top + 2 + extra, m),
            rng.integers(-top - 1, top + 1, m),
        )
        return np.choose(np.minimum(rng.integers(0, 7, m), 4), (*edges, common))

    def set_of(self, d: DType, m: int) -> ArrayOrSets:
        """Exact values, narrow or wide intervals, intervals with flags, or lists of points."""
        f, rng = LAYOUT[d], self.rng
        kind, a = int(rng.integers(0, 7)), self._keys(f, m)
        if kind < 2:
            return from_order_keys(f, a)
        if kind == 2:
            return self._points(f, m)
        top = f.key_max + int(f.dtype.has_inf)
        near = np.clip(a + rng.integers(0, 6, m), -top - 1, top)
        b = self._keys(f, m) if kind == 3 else np.where(rng.random(m) < 0.5, a, near)
        lo, hi = np.minimum(a, b), np.maximum(a, b)
        best = np.clip(lo + ((hi.astype(float) - lo) * rng.random(m)).astype(np.int64), lo, hi)
        v = SetArray(f, np.stack([from_order_keys(f, lo), from_order_keys(f, best), from_order_keys(f, hi)]))
        if kind == 4:
            self._flag(v, m)
        return v

    def _flag(self, v: SetArray, m: int) -> None:
        flags = self.rng.integers(0, 32, m) * (self.rng.random(m) < 0.3)
        v.flags = (flags if v.layout.dtype.has_inf else flags & 0b11001).astype(np.uint8)
        v.rows[:, self.rng.random(m) < 0.1] = np.nan

    def _points(self, f: DTypeLayout, m: int) -> SetArray:
        rows = np.stack([from_order_keys(f, self._keys(f, m)) for _ in range(int(self.rng.integers(2, 5)))])
        rows[0, self.rng.random(m) < 0.05] = np.nan
        same = self.rng.random(m) < 0.3
        rows[:, same] = rows[0, same]
        return from_points_widening_to_hull_or_any(f, rows)

    def member(self, v: ArrayOrSets) -> Array:
        """One member per element, ends and specials more often."""
        if not isinstance(v, SetArray):
            return v
        f, rng, m = v.layout, self.rng, v.shape
        if not f.is_float:
            return np.take_along_axis(v.points, rng.integers(0, len(v.points), m)[None], 0)[0]
        lo, hi = to_order_keys(f, v.rows[0]).astype(np.int64), to_order_keys(f, v.rows[2]).astype(np.int64)
        inner = np.clip(lo + ((hi.astype(float) - lo) * rng.random(m)).astype(np.int64), np.minimum(lo, hi), np.maximum(lo, hi))
        k = np.choose(rng.integers(0, 3, m), (lo, hi, inner))
        for zero in (0, -1):
            k = np.where((rng.random(m) < 0.15) & (lo <= zero) & (zero <= hi), zero, k)
        x = np.where(np.isnan(v.rows).any(0), v.rows[0], from_order_keys(f, k))
        if v.flags is not None:
            for flag, special in _FLAGS:
                x = np.where(((v.flags & flag) != 0) & (rng.random(m) < 0.4), np.array(special).astype(f.np), x)
        if v.listed_points is not None and v.is_listed is not None:
            x = np.where(v.is_listed, np.take_along_axis(v.listed_points, rng.integers(0, len(v.listed_points), m)[None], 0)[0], x)
        return x

    def near(self, d: DType, y: Array, ulps: int, fixed: Array) -> Array:
        """y moved by up to `ulps` spacings of its dtype, where it is finite and not `fixed`."""
        f = LAYOUT[d]
        moved = y.astype(np.float64) + ulp(f, y) * self.rng.integers(-ulps, ulps + 1, y.shape)
        if not d.has_inf:
            moved = np.clip(moved, -f.max, f.max)
        stored = (moved.astype(np.float32) if f.np.itemsize == 1 else moved).astype(f.np)
        return np.where(fixed | ~np.isfinite(y), y, stored)


@pytest.fixture
def make_sampler() -> Callable[[int], Sampler]:
    return Sampler


@pytest.fixture
def judge() -> Callable[[DType, ArrayOrSets, Array, Any], None]:
    """Assert that every element of `got` lies in its set; names the first that does not."""

    def check(d: DType, v: ArrayOrSets, got: Array, why: Any) -> None:
        found = AllowedSet(d, v)
        inside = found.contains(got)
        if not inside.all():
            k = int(np.flatnonzero(~inside)[0])
            raise AssertionError(f"{why}: {got.reshape(-1)[k]!r} not in {found.describe(k)}, element {k}")

    return check


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
