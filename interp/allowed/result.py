"""Allowed sets of a whole graph, and the judgement of arrays by them (R30: representation, R31: honesty of sets)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uops.interp.allowed.core import check_level_and_ftz_and_select_rules
from uops.interp.allowed.layout import LAYOUT, Array, DTypeLayout, same_bits_or_both_nan, to_order_keys, ulp_distance
from uops.interp.allowed.memory import StorageSets
from uops.interp.allowed.overlay import Overlay
from uops.interp.allowed.value import NAN, NINF, NZERO, PINF, PZERO, ArrayOrSets, SetArray, collapse_if_exact
from uops.interp.evaluation import _evaluate_root_cells
from uops.interp.tensor.machine import TensorMachine
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.verify.verifier import verify

Level = Literal["strict", "core"]
#: Flags with their names in messages.
_FLAG_NAMES = ((NAN, "nan"), (PINF, "inf"), (NINF, "-inf"), (PZERO, "0.0"), (NZERO, "-0.0"))


class AllowedSet:
    """The allowed results of one array, element by element.

    An element allows one value, at most eight points, an interval with flags, or anything.
    """

    __slots__ = ("_layout", "_value", "dtype")

    def __init__(self, dtype: DType, value: ArrayOrSets) -> None:
        self.dtype = dtype
        self._layout: DTypeLayout = LAYOUT[dtype]
        self._value = value

    @property
    def best(self) -> Array:
        """The reference value, a member of the set."""
        v = self._value
        return v.best if isinstance(v, SetArray) else v

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._value.shape

    @property
    def is_exact(self) -> bool:
        """True if every element has one allowed value."""
        return not isinstance(self._value, SetArray)

    def contains(self, array: Any) -> NDArray[np.bool_]:
        """Return where `array` is allowed; -0.0 and 0.0 differ, and all NaNs are the same.

        Raises ValueError for an array of another shape or dtype.
        """
        candidate, f, v = np.asarray(array), self._layout, self._value
        if candidate.shape != self.shape or (candidate.dtype != f.np and self.dtype is not dt.index):
            raise ValueError(f"expected {f.np} of shape {self.shape}, got {candidate.dtype} of shape {candidate.shape}")
        with np.errstate(invalid="ignore"):
            return np.asarray(_is_member(f, v, candidate))

    def measure_width_in_ulps_or_points_less_one(self) -> NDArray[np.float64]:
        """Return the steps of the dtype from the least to the greatest member, without flagged ones.

        The width is 0 for one value, and infinite for *any*. For listed points it is their number less one.
        """
        v = self._value
        if not isinstance(v, SetArray):
            return np.zeros(self.shape)
        if v.interval is None:
            width = _count_distinct(self._layout, v.points) - 1.0
        else:
            nan = np.isnan(v.rows).any(0)
            width = np.where(nan, 0, ulp_distance(self._layout, v.rows[0], v.rows[2])).astype(np.float64)
            if v.listed_points is not None and v.is_listed is not None:
                width = np.where(v.is_listed, _count_distinct(self._layout, v.listed_points) - 1.0, width)
        anything = v.anything_mask()
        return np.asarray(width if anything is None else np.where(anything, np.inf, width), dtype=np.float64)

    def kinds(self, part: slice = slice(None)) -> dict[str, int]:
        """Return the number of elements of each kind in `part` of the flattened array (R31: reports count them)."""
        kind = self._exact_points_interval_or_any_codes().reshape(-1)[part]
        return {name: int(np.count_nonzero(kind == code)) for code, name in enumerate(("exact", "points", "interval", "any"))}

    def _exact_points_interval_or_any_codes(self) -> Array:
        """Return 0 for one value, 1 for listed points, 2 for an interval and 3 for *any*."""
        v = self._value
        if not isinstance(v, SetArray):
            return np.zeros(self.shape, np.int8)
        is_listed = np.full(self.shape, v.interval is None) if v.is_listed is None else v.is_listed
        with np.errstate(invalid="ignore"):
            kind = np.where(v.exact_mask(), 0, np.where(is_listed, 1, 2))
        anything = v.anything_mask()
        return kind if anything is None else np.where(anything, 3, kind)

    def describe(self, flat_index: int) -> str:
        """Return the set of the flattened element `flat_index` as text for a message."""
        v, kind = self._value, int(self._exact_points_interval_or_any_codes().reshape(-1)[flat_index])
        if kind == 0 or not isinstance(v, SetArray):
            return str(self.best.reshape(-1)[flat_index].item())
        if kind == 3:
            return "any value"
        if kind == 1:
            points = dict.fromkeys(str(p.item()) for p in v.points.reshape(len(v.points), -1)[:, flat_index])
            return "one of " + ", ".join(points)
        lo, best, hi = (x.item() for x in v.rows.reshape(3, -1)[:, flat_index])
        flags = 0 if v.flags is None else int(v.flags.reshape(-1)[flat_index])
        extra = "".join(f" or {name}" for flag, name in _FLAG_NAMES if flags & flag)
        return f"[{lo}, {hi}] around {best}{extra}"


def _is_member(f: DTypeLayout, v: ArrayOrSets, array: Array) -> Array:
    if not isinstance(v, SetArray):
        return same_bits_or_both_nan(f, array, v) if f.is_float else np.asarray(array == v)
    member = _is_listed_point(f, v, array) if v.interval is None else _is_member_of_float_set(f, v, array)
    anything = v.anything_mask()
    return member if anything is None else member | anything


def _is_listed_point(f: DTypeLayout, v: SetArray, array: Array) -> Array:
    same = np.asarray(same_bits_or_both_nan(f, v.points, array) if f.is_float else v.points == array)
    return np.asarray(same.any(0))


def _is_member_of_float_set(f: DTypeLayout, v: SetArray, array: Array) -> Array:
    key, nan, empty = to_order_keys(f, array), np.isnan(array), np.isnan(v.rows[0])
    member = (to_order_keys(f, v.rows[0]) <= key) & (key <= to_order_keys(f, v.rows[2])) & ~nan & ~empty
    member |= nan & empty
    if v.flags is not None:
        flagged = (NAN, nan), (PINF, key == f.key_max + 1), (NINF, key == -f.key_max - 2), (PZERO, key == 0), (NZERO, key == -1)
        for flag, matches in flagged:
            member |= ((v.flags & flag) != 0) & matches & (nan if flag == NAN else ~nan)
    if v.listed_points is not None and v.is_listed is not None:
        member = np.where(v.is_listed, _is_listed_point(f, v, array), member)
    return np.asarray(member)


def _count_distinct(f: DTypeLayout, points: Array) -> Array:
    keys = np.sort(to_order_keys(f, points) if f.is_float else points, axis=0)
    return np.asarray(1 + (keys[1:] != keys[:-1]).sum(0))


class AllowedResult(NamedTuple):
    """The counterpart of `Result`: one set per value of the root, and one per Buffer written."""

    values: tuple[AllowedSet, ...]
    buffers: dict[str, AllowedSet]


def compute_allowed_sets(
    root: UOp, inputs: Mapping[str, Any], level: Level = "strict", *, ftz: bool = False, check: bool = True
) -> AllowedResult:
    """Return the results that `root` may give on `inputs`, at the level `strict` or `core`.

    `strict` is the answer of the rulings; `core` adds what the seed's text leaves open. `ftz` lets core flush subnormals (R19).
    With `check`, a graph that breaks a claim of its rows raises SpecError, as in `run`. Raises what `run` raises.
    """
    if check:
        verify(root)
    machine = TensorMachine(inputs, check)
    with np.errstate(all="ignore"):
        try:
            cells = _evaluate_root_cells(machine, root, is_kernel=False)
            bests = [machine.load_if_reference(c) for c in cells]
            overlay = Overlay(machine, check_level_and_ftz_and_select_rules(level, ftz))
            overlay.propagate_sets()
            values = tuple(
                AllowedSet(u.dtype, _set_of_result(overlay, s, u, b))
                for (s, u), b in zip(_scope_and_node_of_each_result(machine, root), bests)
            )
            buffers = {s.key: _set_of_buffer(overlay, u, s) for u, s in machine.storages.items() if s.writes}
        finally:
            machine.clear_cells_to_break_reference_cycles()
    return AllowedResult(values, buffers)


def _scope_and_node_of_each_result(m: TensorMachine, root: UOp) -> list[tuple[Any, UOp]]:
    """Return scope and node of each value of the root, in the order of `run`."""
    if root.op is Op.FUNCTION:
        return [(m.root.inner[root], value) for value in root.body.values]
    if root.op is Op.TUPLE:
        return [(m.root, value) for value in root.values]
    if root.op in EFFECT_GROUPS:
        return [(m.root, effect) for effect in root.effects if effect.dtype is not dt.void]
    return [] if root.dtype is dt.void else [(m.root, root)]


def _set_of_result(overlay: Overlay, scope: Any, u: UOp, best: Array) -> ArrayOrSets:
    v = overlay.set_of_node_loading_reference(scope, u)
    return v if isinstance(v, SetArray) else best


def _set_of_buffer(overlay: Overlay, u: UOp, storage: Any) -> AllowedSet:
    history: list[tuple[int, StorageSets]] = overlay.memory.get(storage, [])
    value: ArrayOrSets = collapse_if_exact(history[-1][1].sets_of_whole_storage(storage.data)) if history else storage.data
    return AllowedSet(u.dtype, value)
