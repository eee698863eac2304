"""Tensors on several devices: `to`, `shard`, what follows them, and what is refused (R74 to R76, R181)."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops import Tensor, function
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

PAIR = ("CPU:0", "CPU:1")
X = np.arange(24, dtype=np.float32).reshape(4, 6)
BACKENDS = ["c", "llvm"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_a_tensor_on_devices_has_the_same_values(backend, axis):
    t = Tensor(X).shard(PAIR, axis)
    assert t.device == PAIR
    assert t.sharded_axis == (None if axis is None else axis % 2)
    whole = Tensor(X).to(PAIR)
    assert whole.sharded_axis is None
    with uops.use(backend):
        assert np.array_equal((t * 2 + whole).numpy(), 3 * X)
        assert np.array_equal(t.sum(0).numpy(), X.sum(0)) and np.array_equal(t.max(1).numpy(), X.max(1))
        weights = (
            Tensor(np.eye(6, dtype=np.float32)).shard(PAIR, 0) if axis in (1, -1) else Tensor(np.eye(6, dtype=np.float32)).to(PAIR)
        )
        assert np.array_equal((t @ weights).numpy(), X)


def test_a_realized_tensor_stays_on_its_devices():
    t = (Tensor(X).shard(PAIR, 1) + 1).realize()
    assert t.is_realized and (t.device, t.sharded_axis) == (PAIR, 1)
    assert np.array_equal((t + t).numpy(), 2 * (X + 1))
    assert np.array_equal(t.to("CPU").numpy(), X + 1) and t.to("CPU").device == "CPU"
    one = (Tensor(X).to("GPU:1") * 2).realize()
    assert one.is_realized and one.device == "GPU:1" and np.array_equal((one + one).numpy(), 4 * X)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_shard_is_assigned_where_it_is(axis):
    t = Tensor(X).shard(PAIR, axis)
    t.assign(t + 1)
    assert (t.device, t.sharded_axis) == (PAIR, axis)
    part = t[:, 2:3] if axis == 0 else t[2:3]
    part.assign(part * 0)
    want = X + 1
    want[(slice(None), 2) if axis == 0 else 2] = 0
    assert np.array_equal(t.numpy(), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_takes_values_on_devices(backend):
    captured = Tensor(np.float32(3)).to(PAIR)

    @function
    def f(a, b):
        return (a * b + captured).sum(0), a

    with uops.use(backend):
        total, same = f(Tensor(X).shard(PAIR), Tensor(X).to(PAIR))
        assert (total.device, same.device, same.sharded_axis) == (PAIR, PAIR, 0)
        assert np.array_equal(total.numpy(), (X * X + 3).sum(0)) and np.array_equal(same.numpy(), X)


def test_operands_on_different_devices_are_refused():
    with pytest.raises(SpecError, match=r"ADD\.C4 \(source devices are equal or null\)"):
        (Tensor(X).shard(PAIR) + Tensor(X)).numpy()
    assert np.array_equal((Tensor(X).shard(PAIR) + 1).numpy(), X + 1)  # a constant is on no device


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda t: t.shard(("D0", "D1", "D2")), SpecValueError, "3 devices divide on axis 0 of shape"),
        (lambda t: t.shard("CPU"), SpecTypeError, "expected a sequence of devices, got 'CPU'"),
        (lambda t: t.shard(PAIR, 2), SpecError, "axis 2 is out of range"),
        (lambda t: t.to("MARS:7"), SpecValueError, "as in GPU:1, got 'MARS:7'"),
        (lambda t: t.to("CPU:64"), SpecValueError, "got 'CPU:64'"),
        (lambda t: t.to(7), SpecTypeError, "expected the name of a device, or several, got 7"),
        (lambda t: t.to(()), SpecTypeError, "expected the name of a device"),
        (lambda t: t.to(("D0", "D0")), SpecValueError, "expected distinct devices"),
        (lambda t: t.to(PAIR).assign(1.0), SpecValueError, "shard it first"),
    ],
)
def test_wrong_uses_are_one_clear_error(act, error, words):
    with pytest.raises(error, match=words):
        act(Tensor(X))


def test_an_unknown_device_is_refused_by_the_backend():
    with pytest.raises(Unsupported, match=r"MARS:7.*R181"):
        uops.compile(b.copy(b.param(0, (4,), dt.int32), "MARS:7"), "c")
