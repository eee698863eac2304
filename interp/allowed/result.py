"""The public face of the allowed sets: `allowed`, what it returns, and how an array is judged by it (R30, R31)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uops.interp.allowed.core import rules_of
from uops.interp.allowed.layout import LAYOUT, Array, Layout, keys, same_bits, span
from uops.interp.allowed.memory import Patchwork
from uops.interp.allowed.overlay import Overlay
from uops.interp.allowed.value import NAN, NINF, NZERO, PINF, PZERO, Loose, Value, settle
from uops.interp.run import _results
from uops.interp.tensor.machine import Machine
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Level = Literal["strict", "core"]
_FLAGS = ((NAN, "nan"), (PINF, "inf"), (NINF, "-inf"), (PZERO, "0.0"), (NZERO, "-0.0"))


class AllowedSet:
    """The allowed results of one array, element by element: one value, at most eight points, an interval with flags, or
    anything."""

    __slots__ = ("_layout", "_value", "dtype")

    def __init__(self, dtype: DType, value: Value) -> None:
        self.dtype = dtype
        self._layout: Layout = LAYOUT[dtype]
        self._value = value

    @property
    def best(self) -> Array:
        """The reference value, a member of the set."""
        v = self._value
        return v.best if isinstance(v, Loose) else v

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    @property
    def exact(self) -> bool:
        """Every element has one value."""
        return not isinstance(self._value, Loose)

    def contains(self, array: Any) -> NDArray[np.bool_]:
        """Where `array`, of this dtype and shape, is allowed. -0.0 and 0.0 differ; every NaN is the NaN."""
        got, f, v = np.asarray(array), self._layout, self._value
        if got.shape != self.shape or (got.dtype != f.np and self.dtype is not dt.index):
            raise ValueError(f"expected {f.np} of shape {self.shape}, got {got.dtype} of shape {got.shape}")
        with np.errstate(invalid="ignore"):
            return np.asarray(_members(f, v, got))

    def width_ulps(self) -> NDArray[np.float64]:
        """Steps of the dtype from the least to the greatest member, flagged ones apart: 0 of one value, infinite of *any*; of
        listed points their number less one."""
        v = self._value
        if not isinstance(v, Loose):
            return np.zeros(self.shape)
        if v.tri is None:
            width = _distinct(self._layout, v.points) - 1.0
        else:
            nan = np.isnan(v.rows).any(0)
            width = np.where(nan, 0, span(self._layout, v.rows[0], v.rows[2])).astype(np.float64)
            if v.pts is not None and v.disc is not None:
                width = np.where(v.disc, _distinct(self._layout, v.pts) - 1.0, width)
        lost = v.any()
        return np.asarray(width if lost is None else np.where(lost, np.inf, width), dtype=np.float64)

    def kinds(self, part: slice = slice(None)) -> dict[str, int]:
        """How many elements, of the flattened `part`, are of each kind (R31)."""
        kind = self._kind_codes().reshape(-1)[part]
        return {name: int(np.count_nonzero(kind == code)) for code, name in enumerate(("exact", "points", "interval", "any"))}

    def _kind_codes(self) -> Array:
        v = self._value
        if not isinstance(v, Loose):
            return np.zeros(self.shape, np.int8)
        listed = np.ones(self.shape, np.bool_) if v.tri is None else np.zeros(self.shape, np.bool_) if v.disc is None else v.disc
        with np.errstate(invalid="ignore"):
            kind = np.where(v.exact(), 0, np.where(listed, 1, 2))
        lost = v.any()
        return kind if lost is None else np.where(lost, 3, kind)

    def describe(self, k: int) -> str:
        """The set of flattened element `k`, for a message."""
        v, kind = self._value, int(self._kind_codes().reshape(-1)[k])
        if kind == 0 or not isinstance(v, Loose):
            return str(self.best.reshape(-1)[k].item())
        if kind == 3:
            return "any value"
        if kind == 1:
            points = dict.fromkeys(str(p.item()) for p in v.points.reshape(len(v.points), -1)[:, k])
            return "one of " + ", ".join(points)
        lo, best, hi = (x.item() for x in v.rows.reshape(3, -1)[:, k])
        flags = 0 if v.flags is None else int(v.flags.reshape(-1)[k])
        extra = "".join(f" or {name}" for flag, name in _FLAGS if flags & flag)
        return f"[{lo}, {hi}] around {best}{extra}"


def _members(f: Layout, v: Value, got: Array) -> Array:
    if not isinstance(v, Loose):
        return same_bits(f, got, v) if f.is_float else np.asarray(got == v)
    found = _in_points(f, v, got) if v.tri is None else _in_rows(f, v, got)
    lost = v.any()
    return found if lost is None else found | lost


def _in_points(f: Layout, v: Loose, got: Array) -> Array:
    same = np.asarray(same_bits(f, v.points, got) if f.is_float else v.points == got)
    return np.asarray(same.any(0))


def _in_rows(f: Layout, v: Loose, got: Array) -> Array:
    k, nan, empty = keys(f, got), np.isnan(got), np.isnan(v.rows[0])
    found = (keys(f, v.rows[0]) <= k) & (k <= keys(f, v.rows[2])) & ~nan & ~empty
    found |= nan & empty
    if v.flags is not None:
        members = (NAN, nan), (PINF, k == f.key_max + 1), (NINF, k == -f.key_max - 2), (PZERO, k == 0), (NZERO, k == -1)
        for flag, is_it in members:
            found |= ((v.flags & flag) != 0) & is_it & (nan if flag == NAN else ~nan)
    if v.pts is not None and v.disc is not None:
        found = np.where(v.disc, _in_points(f, v, got), found)
    return np.asarray(found)


def _distinct(f: Layout, pts: Array) -> Array:
    order = np.sort(keys(f, pts) if f.is_float else pts, axis=0)
    return np.asarray(1 + (order[1:] != order[:-1]).sum(0))


class AllowedResult(NamedTuple):
    """As `Result`: one set per value of the root, and one per Buffer written."""

    values: tuple[AllowedSet, ...]
    buffers: dict[str, AllowedSet]


def allowed(
    root: UOp, inputs: Mapping[str, Any], level: Level = "strict", *, ftz: bool = False, check: bool = True
) -> AllowedResult:
    """What `root` may give on `inputs`: the one answer of the rulings (strict), or with it what the seed's text leaves open (core).

    `ftz` adds, at the core level, flushing of subnormals (R19). Raises what `run` raises.
    """
    machine = Machine(inputs, check)
    with np.errstate(all="ignore"):
        try:
            cells = _results(machine, root, whole=False)
            bests = [machine.read(c) for c in cells]
            overlay = Overlay(machine, rules_of(level, ftz))
            overlay.walk()
            values = tuple(AllowedSet(u.dtype, _value(overlay, s, u, b)) for (s, u), b in zip(_nodes(machine, root), bests))
            buffers = {s.key: _contents(overlay, u, s) for u, s in machine.storages.items() if s.writes}
        finally:
            machine.close()
    return AllowedResult(values, buffers)


def _nodes(m: Machine, root: UOp) -> list[tuple[Any, UOp]]:
    """Scope and node of each value of the root, in the order of `run`."""
    if root.op is Op.FUNCTION:
        return [(m.root.inner[root], e) for e in root.src[0].src]
    if root.op is Op.TUPLE:
        return [(m.root, s) for s in root.src]
    if root.op in (Op.SINK, Op.GROUP):
        return [(m.root, s) for s in root.src if s.dtype is not dt.void]
    return [] if root.dtype is dt.void else [(m.root, root)]


def _value(overlay: Overlay, scope: Any, u: UOp, best: Array) -> Value:
    v = overlay.value(scope, u)
    return v if isinstance(v, Loose) else best


def _contents(overlay: Overlay, u: UOp, storage: Any) -> AllowedSet:
    history: list[tuple[int, Patchwork]] = overlay.memory.get(storage, [])
    value: Value = settle(history[-1][1].whole(storage.data)) if history else storage.data
    return AllowedSet(u.dtype, value)
