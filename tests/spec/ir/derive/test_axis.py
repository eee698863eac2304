"""The sharded axis of a Reshape (R74)."""

import math

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.verify.verifier import find_broken_claims

ONE, TWO = ("CPU",), ("CPU:0", "CPU:1")


def _reshape(size: int, devices: tuple[str, ...], shape: tuple[int, ...]) -> UOp:
    return B.reshape(B.buffer(size, dt.int32, devices), shape)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), 0), ((1, 1), 0), ((4,), 0), ((1, 4), 1), ((1, 1, 4, 1), 2), ((2, 2), 0), ((4, 1), 0), ((1, 0), 1)]
)
def test_one_device_has_an_axis_in_every_shape(shape: tuple[int, ...], axis: int) -> None:
    size = math.prod(shape)
    t = _reshape(size, ONE, shape)
    assert t.axis == axis
    assert find_broken_claims(t) == []
    data = np.arange(size, dtype=np.int32)
    assert run(B.reshape(t, (*shape, 1)), {f"b{t.operand.arg.unique}": data}).values[0].ravel().tolist() == data.tolist()


def test_an_axis_of_extent_1_behind_the_sharded_one_is_no_axis_of_a_device() -> None:
    twice = B.reshape(_reshape(4, ONE, (4, 1)), (4, 1, 1))
    assert twice.axis == 0
    assert B.permute(twice, (1, 0, 2)).axis == 1


@pytest.mark.parametrize(("shape", "axis"), [((1, 4), 1), ((4, 1), 0), ((2, 2), 0), ((1, 2, 2), 1)])
def test_two_devices_have_the_axis_that_they_divide(shape: tuple[int, ...], axis: int) -> None:
    assert _reshape(2, TWO, shape).axis == axis


def test_no_axis_remains() -> None:
    t = B.buffer(3, dt.int32, TWO)
    with pytest.raises(SpecError, match="shards of axis 0"):
        _ = B.reshape(t, (3, 2)).axis
    with pytest.raises(SpecError, match="shards of axis 0"):
        _ = B.reshape(B.buffer(1, dt.int32, ONE), ()).axis
