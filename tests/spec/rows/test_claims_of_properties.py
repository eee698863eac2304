"""Each claim of the derived properties, on nodes, and on the values that the interpreter computes for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from all_examples import GOOD

from uops.interp import run
from uops.interp.tensor.checks import check_derived_properties, check_min_max
from uops.spec.errors import SpecError, Unsound
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BINARY, COMPARE, UNARY, Family, Op
from uops.spec.rows.rows import NAMED_ROWS, ROWS
from uops.spec.rows.signatures import accepts_dtypes
from uops.spec.verify.verifier import verify

D = ("d0", "d1")
X = b.param(0, (2, 3), dt.float32)
GRAPH = b.add(
    b.sum_and_drop_axis(b.mul(X, b.permute(b.param(1, (3, 2), dt.float32), (1, 0))), 1),
    b.cast(b.lt(b.param(2, (2,), dt.int8), 0), dt.float32),
)
INPUTS = {"p0": np.ones((2, 3), np.float32), "p1": np.ones((3, 2), np.float32), "p2": np.int8([-1, 1])}


def _values() -> Iterator[tuple[UOp, Any]]:
    """The nodes of a graph that have a value, each with it."""
    found: list[tuple[UOp, Any]] = []
    run(GRAPH, INPUTS, trace=lambda u, v: found.append((u, v)) if isinstance(v, np.ndarray) else None)
    assert len(found) > 5
    yield from found


class _StaticShapes:
    """Shapes without symbolic extents."""

    def shape(self, scope: Any, u: UOp) -> tuple[Any, ...]:
        return u.shape


def _is_refused(u: UOp, value: Any, what: str) -> None:
    with pytest.raises(Unsound, match=what):
        check_derived_properties(u, value, _StaticShapes(), None)


# ---------------------------------------------------------------------------------------------------------------- dtype


def _values_have_the_dtype() -> None:
    for u, value in _values():
        assert value.dtype == u.dtype.name
    _is_refused(X, np.ones((2, 3), np.float64), "dtype")


def _alu_ops_keep_the_dtype() -> None:
    for op, d in itertools.product(UNARY | BINARY, (dt.int32, dt.float32, dt.bool_)):
        arity = 1 if op in UNARY else 2
        if accepts_dtypes(op, (d,) * arity):
            assert UOp(op, (b.param(0, (), d),) * arity).dtype is (dt.bool_ if op in COMPARE | {Op.NOT} else d)
    assert b.where(b.param(0, (), dt.int8), 1.0, 2.0).dtype is dt.float32
    assert b.cast(X, dt.int8).dtype is dt.int8


def _effects_are_void() -> None:
    void = {Op.TUPLE, Op.FUNCTION, Op.CALL, Op.STORE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR}
    assert all((GOOD[op].dtype is dt.void) is (op in void) for op in void | {Op.ADD, Op.LOAD, Op.RANGE, Op.AFTER, Op.CONST})


# ---------------------------------------------------------------------------------------------------------------- shape


def _values_have_the_shape() -> None:
    for u, value in _values():
        assert value.shape == u.shape
    _is_refused(X, np.ones((3, 2), np.float32), "shape")


def _shapes_broadcast() -> None:
    for s, t in itertools.product([(), (1,), (3,), (2, 1), (2, 3), (1, 3), (0,), (4, 1, 3)], repeat=2):
        x, y = b.param(0, s, dt.float32), b.param(1, t, dt.float32)
        try:
            expected = np.broadcast_shapes(s, t)
        except ValueError:
            with pytest.raises(SpecError):
                verify(UOp(Op.ADD, (x, y)))
        else:
            assert UOp(Op.ADD, (x, y)).shape == expected


def _values_have_at_most_64_axes() -> None:
    verify(b.reshape(b.const(1.0), (1,) * 64))
    with pytest.raises(SpecError, match="64"):
        verify(b.reshape(b.const(1.0), (1,) * 65))


# --------------------------------------------------------------------------------------------------------------- device


def _on(device: Any, slot: int = 0) -> UOp:
    return b.param(slot, (4,), dt.float32, device)


def _devices_are_equal_or_null() -> None:
    assert b.add(_on("d0"), _on("d0", 1)).device == b.add(_on("d0"), 1.0).device == b.add(_on(None), _on("d0", 1)).device == "d0"
    with pytest.raises(SpecError, match=r"R72|devices"):
        verify(b.add(_on("d0"), _on("d1", 1)))


def _only_load_changes_the_device() -> None:
    assert b.copy(_on("d0"), "d1").device == "d1"
    for op, row in ROWS.items():
        u = GOOD[op]
        if row.family is not Family.BESTIARY and u.src and op not in (Op.LOAD, Op.PARAM, Op.BUFFER):
            assert u.device in {None, *(s.device for s in u.src)}, op


def _a_const_has_no_device() -> None:
    assert b.const(1.0).device is None


# -------------------------------------------------------------------------------------------------------------- min_max


def _values_lie_within_the_bounds() -> None:
    for d, op in itertools.product(
        (dt.index, dt.int8, dt.uint8), (Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.CMPLT, Op.XOR, Op.OR)
    ):
        n, m = (b.cast(b.variable(name, lo, hi), d) for name, lo, hi in (("n", -3, 4), ("m", -2, 2)))
        u = UOp(op, (n, m))
        assert u.min_max is not None
        lo, hi = u.min_max
        for x, y in itertools.product(range(-3, 5), range(-2, 3)):
            assert lo <= run(u, {"n": x, "m": y}).values[0] <= hi
    small = b.cast(b.variable("n", 0, 3), dt.int32)
    assert small.min_max == (0, 3)
    with pytest.raises(Unsound, match="min_max"):
        check_min_max(small, np.asarray(4, np.int32))
    check_min_max(b.mul(b.cast(small, dt.float32), 2.0), np.asarray(np.nan, np.float32))


def _bounds_are_rounded_outward() -> None:
    n = b.variable("n", -(2**24) - 1, 2**24 + 1)
    assert b.cast(n, dt.float32).min_max == (-(2**24) - 2, 2**24 + 2)
    narrow = b.cast(b.variable("n", 0, 200), dt.uint8)
    assert (b.add(narrow, 50).min_max, b.add(narrow, 100).min_max) == ((50, 250), (0, 255))


# ----------------------------------------------------------------------------------------------------------------- axis

SHARDED = b.buffer(6, dt.float32, device=D, unique=1)


def _a_buffer_on_devices_has_axis_0() -> None:
    assert SHARDED.axis == 0 and b.buffer(6, dt.float32, unique=1).axis is None


def _a_load_states_the_axis() -> None:
    assert b.copy(b.buffer(6, dt.float32, unique=1), D).axis == 0 and b.copy(SHARDED, "d0").axis is None


def _the_axis_moves_with_its_elements() -> None:
    rows = b.reshape(SHARDED, (4, 3))
    assert (rows.axis, b.permute(rows, (1, 0)).axis, b.reshape(rows, (1, 2, 6)).axis) == (0, 1, 1)
    with pytest.raises(SpecError):
        verify(b.reshape(SHARDED, (3, 4)))


def _a_collapsed_axis_is_null() -> None:
    rows = b.reshape(SHARDED, (4, 3))
    assert b.reduce(rows, Op.ADD, (0,)).axis is None and b.reduce(rows, Op.ADD, (1,)).axis == 0
    pair = b.reshape(SHARDED, (2, 6))
    assert b.replicated(pair, 0).axis is None and pair.axis == 0


def _axes_of_sources_agree() -> None:
    rows = b.reshape(SHARDED, (2, 6))
    assert b.add(rows, b.const(1.0)).axis == b.add(rows, rows).axis == 0
    square = b.reshape(b.buffer(2, dt.float32, device=D, unique=2), (2, 2))
    with pytest.raises(SpecError, match=r"axes|R74"):
        verify(b.add(square, b.permute(square, (1, 0))))


_CHECKS: dict[str, tuple[Callable[[], None], ...]] = {
    "dtype": (_values_have_the_dtype, _alu_ops_keep_the_dtype, _effects_are_void),
    "shape": (_values_have_the_shape, _shapes_broadcast, _values_have_at_most_64_axes),
    "device": (_devices_are_equal_or_null, _only_load_changes_the_device, _a_const_has_no_device),
    "min_max": (_values_lie_within_the_bounds, _bounds_are_rounded_outward),
    "axis": (
        _a_buffer_on_devices_has_axis_0,
        _a_load_states_the_axis,
        _the_axis_moves_with_its_elements,
        _a_collapsed_axis_is_null,
        _axes_of_sources_agree,
    ),
}
HOLDS = {
    claim.id: check
    for name, checks in _CHECKS.items()
    for claim, check in zip(NAMED_ROWS[f"Property/{name}"].claims, checks, strict=True)
}


def test_every_claim_of_a_property_has_a_test() -> None:
    assert set(HOLDS) == {claim.id for row in NAMED_ROWS.values() if row.family == "Property" for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(id: str) -> None:
    HOLDS[id]()


@pytest.mark.parametrize("name", _CHECKS)
def test_the_rules_of_a_property_are_those_of_every_row(name: str) -> None:
    rules = NAMED_ROWS[f"Property/{name}"].columns["rules"]
    ids = [row_id for rows in rules.values() for row_id in rows]
    assert sorted(ids) == sorted(row.id for row in ROWS.values())
    for row in ROWS.values():
        assert row.id in rules[f"{getattr(row, name).__module__.rpartition('.')[2]}.{getattr(row, name).__name__}"]
