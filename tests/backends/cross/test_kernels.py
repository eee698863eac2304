"""Kernels on other processors: the claims about any machine, on every processor and engine that is installed."""

from __future__ import annotations

import numpy as np
import pytest
from alu_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import linear

from uops.backends.cross.processors import PROCESSORS
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt


@pytest.fixture(params=[*PROCESSORS, "aarch64:unicorn"])
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_elements_of_every_size_keep_their_bytes_in_the_order_of_the_processor(kernels, tier: str) -> None:
    for d in (dt.int8, dt.int16, dt.int32, dt.int64, dt.float32, dt.float64):
        x = np.frombuffer(bytes(range(1, 1 + 4 * d.itemsize)), d.name).copy()
        out = np.zeros(4, d.name)
        kernels.execute(kernels.elementwise(4, d, (d,), lambda v: v), [out, x], tier=tier)
        assert out.tobytes() == x.tobytes(), d


def test_a_variable_of_64_bits_reaches_a_kernel_whole(kernels, tier: str) -> None:
    """A processor of 32 bits passes it in two registers."""
    v = B.variable("v", -(1 << 62), 1 << 62, 1, dt.int64)
    out = np.zeros(1, np.int64)
    kernels.execute(linear(B.store(B.at(B.param(0, (1,), dt.int64), 0), v)), [out, 0], (0, -(1 << 61) - 5), tier=tier)
    assert out[0] == -(1 << 61) - 5
