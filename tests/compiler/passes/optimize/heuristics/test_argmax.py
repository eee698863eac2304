"""Where a row is greatest, in one pass: what two passes find, for ties, NaN, infinities and every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.config import Config
from uops.compiler.pipeline import lower
from uops.compiler.tensor.realize import capture
from uops.fuzz.bisect.bisect import bisect
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

TARGET = LlvmTarget()
pytestmark = pytest.mark.skipif(not TARGET.machine.vector_bytes, reason="this host has no vectors")
NAN, INF = np.nan, np.inf


def registers(t: Tensor) -> list[UOp]:
    """The REG memory of the one kernel of a Tensor."""
    (call,) = lower(capture(t).graph, TARGET, "optimize", Config(reuse=False)).src
    return [u for u in toposort(call.src[0]) if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG]


def rows(dtype: str, n: int = 96) -> Any:
    """Random rows with ties; of floats also rows of infinities, of zeros, and with NaN at several places."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 7, (24, n)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[0], x[1], x[2], x[3, 5:] = -INF, INF, 0.0, -INF
        x[4, ::2], x[5, 50], x[6, -1], x[7, 0] = -0.0, NAN, NAN, NAN
        x[8], x[9, 33:], x[10, [70, 40, 71]] = NAN, NAN, NAN
        x[11, 40:], x[11, 80] = INF, NAN
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint16", "int64"])
def test_the_first_greatest_element_is_found(dtype: str) -> None:
    x = rows(dtype)
    t = Tensor.from_numpy(x)
    assert registers(t.argmax(1))
    np.testing.assert_array_equal(t.argmax(1).numpy(), x.argmax(1))
    np.testing.assert_array_equal(t.argmax().numpy(), x.argmax())
    finite = x[12:]
    np.testing.assert_array_equal(Tensor.from_numpy(finite).argmin(1).numpy(), finite.argmin(1))


def test_every_stage_of_a_search_keeps_its_values() -> None:
    graph, inputs = capture(Tensor.from_numpy(rows("float32", 160)).argmax(1))
    assert bisect(graph, inputs, TARGET, config=Config(reuse=False, verify=True)) is None


@pytest.mark.parametrize("n", [80, 128, 160, 4096])
def test_rows_of_whole_vectors_are_read_once(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    t = Tensor.from_numpy(x)
    assert registers(t.argmax(1))
    np.testing.assert_array_equal(t.argmax(1).numpy(), x.argmax(1))
    np.testing.assert_array_equal((t * 2 + 1).argmax(1).numpy(), (x * 2 + 1).argmax(1))


# fmt: off
TWICE: dict[str, Any] = {
    "no vector divides the rows":     lambda t: t[:, :61].argmax(1),
    "columns are asked for":          lambda t: t.argmax(0),
    "memory has the rows backwards":  lambda t: t.flip(1).argmax(1),
}
# fmt: on


@pytest.mark.parametrize("why", TWICE)
def test_two_passes_stay_where(why: str) -> None:
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    assert not registers(TWICE[why](Tensor.from_numpy(x)))


def test_the_last_place_is_found_in_two_passes() -> None:
    """A value that grows along the row: the last of equal elements wins."""
    t = Tensor.from_numpy(rows("int32"))
    places = t.eq(t.max(1, keepdim=True)).where(Tensor.arange(96), -1).max(1)
    assert not registers(places)
    with uops.use("llvm"):
        found = places.numpy()
    np.testing.assert_array_equal(found, 95 - rows("int32")[:, ::-1].argmax(1))


@pytest.mark.parametrize(("first", "is_one_pass"), [(255, True), (200, False)])
def test_a_value_that_wraps_does_not_decrease(first: int, is_one_pass: bool) -> None:
    """200 - 201 is 255 in uint8 (R05), which is greater than the value of the first place."""
    t = Tensor.from_numpy(np.full((3, 256), 7, np.int32))
    places = t.eq(t.max(1, keepdim=True)).where(first - Tensor.arange(256).cast(dt.uint8), 0).max(1)
    assert bool(registers(places)) is is_one_pass
    with uops.use("llvm"):
        found = places.numpy()
    np.testing.assert_array_equal(found, [255, 255, 255])
