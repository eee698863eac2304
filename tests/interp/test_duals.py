"""Shifts of duals are those of the interpreter, of an index by any count included."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp import run
from uops.interp.duals.elementwise import NotRational
from uops.interp.duals.evaluate import evaluate_duals
from uops.spec.errors import Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def shift(op: Op, value: int, count: int, d: DType, count_dtype: DType) -> UOp:
    return UOp(op, (B.const(value, d), B.const(count, count_dtype)))


@pytest.mark.parametrize("op", [Op.SHL, Op.SHR])
@pytest.mark.parametrize("value", [0, 1, -1, 5, -7])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 63, 64, 70])
def test_index(op: Op, value: int, count: int) -> None:
    u = shift(op, value << 80 if op is Op.SHR else value, count, dt.index, dt.index)
    assert evaluate_duals(u, {})[0].value.item() == int(run(u, {}).values[0])


@pytest.mark.parametrize("op", [Op.SHL, Op.SHR])
@pytest.mark.parametrize("d", [dt.int8, dt.int32, dt.int64])
@pytest.mark.parametrize("value", [0, 1, -1, 100, -128])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 31, 32, 63, 64, 127, -1])
def test_integers(op: Op, d: DType, value: int, count: int) -> None:
    u = shift(op, value, count, d, dt.int8)
    assert evaluate_duals(u, {})[0].value.item() == int(run(u, {}).values[0])


def test_a_negative_count_of_an_index_traps() -> None:
    with pytest.raises(Trap, match="must not be negative"):
        evaluate_duals(shift(Op.SHR, 5, -1, dt.index, dt.index), {})


def test_an_index_of_too_many_bits_is_refused() -> None:
    with pytest.raises(NotRational):
        evaluate_duals(shift(Op.SHL, 5, 1 << 40, dt.index, dt.index), {})
    assert evaluate_duals(shift(Op.SHL, 0, 1 << 40, dt.index, dt.index), {})[0].value.item() == 0


@pytest.mark.parametrize(("d", "op"), [(dt.float32, Op.MUL), (dt.index, Op.MUL), (dt.float32, Op.DIV)])
def test_a_number_of_too_many_bits_is_refused(d: DType, op: Op) -> None:
    u = B.const(3, d)
    for _ in range(200):
        u = UOp(op, (u, UOp(op, (B.const(1, d), u)))) if op is Op.DIV else UOp(op, (u, u))
    with pytest.raises(NotRational, match="bits"):
        evaluate_duals(u, {})


X = B.param(0, (4,), dt.float32)
N = B.variable("n", -9, 9)
MOVED = {
    "SHRINK": B.shrink(X, (N,), (2,)),
    "SLICE": UOp(Op.SLICE, (X, N), B.slice_(X, 0, 2).arg),
    "PAD": B.pad(X, (N,), (6,)),
}


@pytest.mark.parametrize("is_view", [True, False], ids=["view", "value"])
@pytest.mark.parametrize("name", MOVED)
def test_r43_r44_r46_a_window_that_is_not_inside_traps(name: str, is_view: bool) -> None:
    u = MOVED[name] if is_view else MOVED[name].replace(src=(B.add(X, 1.0), *MOVED[name].src[1:]))
    for n in (-1, 0, 2, 3, 5):
        inputs = {"p0": np.arange(4, dtype=np.float32), "n": n}
        if 0 <= n <= 2:
            want = run(u, inputs, check=False).values[0]
            assert [float(x) for x in evaluate_duals(u, inputs)[0].value] == want.tolist()
            continue
        for evaluate in (lambda: run(u, inputs, check=False), lambda: evaluate_duals(u, inputs)):  # noqa: B023
            with pytest.raises(Trap):
                evaluate()


def test_r73_r182_memory_of_a_sharded_buffer_is_that_of_all_devices() -> None:
    u = B.mul(B.buffer(2, dt.float32, ("D0", "D1"), unique=1001), 2.0)
    inputs = {"b1001": np.array([1, 2, 3, 4], np.float32)}
    (found,) = evaluate_duals(u, inputs, {"b1001": np.ones(4)})
    assert [float(x) for x in found.value] == run(u, inputs).values[0].tolist() == [2, 4, 6, 8]
    assert found.tangent is not None and [float(x) for x in found.tangent] == [2, 2, 2, 2]


POSITION = B.variable("i", 0, 9)


@pytest.mark.parametrize("n", [3, 0])
def test_r45_r52_an_index_out_of_range_is_not_touched_where_its_gate_is_false(n: int) -> None:
    memory = UOp(Op.INDEX, (B.param(0, (n, 2), dt.float32), POSITION))
    gate, other = UOp(Op.CMPLT, (POSITION, B.const(n, dt.index))), B.expand(B.reshape(B.const(7.0), (1,)), (2,))
    gated, ungated = B.load(memory, other, gate), B.load(memory)
    stored = B.after(B.param(0, (n, 2), dt.float32), B.store(memory, other, gate))
    for i in range(5):
        inputs = {"p0": np.arange(2 * n, dtype=np.float32).reshape(n, 2), "i": np.int64(i)}
        for u in (gated, stored):
            want = run(u, inputs).values[0].tolist()
            assert evaluate_duals(u, inputs)[0].value.astype(float).tolist() == want
        if i >= n:
            for u in (ungated, B.add(memory, 1.0), B.after(B.param(0, (n, 2), dt.float32), B.store(memory, other))):
                with pytest.raises(Trap, match="R45"):
                    evaluate_duals(u, inputs)


def test_zeros_of_bools_are_bools() -> None:
    padded = evaluate_duals(B.pad(B.param(0, (2,), dt.bool_), [1], [4]), {"p0": np.array([True, False])})
    summed = evaluate_duals(B.reduce(B.param(0, (0,), dt.bool_), Op.ADD, [0]), {"p0": np.zeros(0, bool)})
    assert [x.__class__ for x in [*padded[0].value.ravel(), *summed[0].value.ravel()]] == [bool] * 5
