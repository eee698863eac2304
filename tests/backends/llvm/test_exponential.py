"""Exp2 by AVX-512's own instructions: the bits of the decomposition, in every width, so that one node has one value (R17, R27)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.exponential import FEATURES, has_native_exp2
from uops.backends.llvm.render import OPS, render
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.runtime.program import Compiled, compile
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

pytestmark = pytest.mark.skipif(
    not has_native_exp2(binding.detect_host_without_gfni()), reason=f"this host has not all of {', '.join(FEATURES)}"
)
BITS = {dt.float32: np.uint32, dt.float64: np.uint64}


class Decomposed(LlvmTarget):
    """The same machine without the op."""

    def __init__(self) -> None:
        super().__init__(LlvmTier.FAST)
        self.ops, self.key = OPS - {Op.EXP2}, self.key + "decomposed"


def inputs(d: DType) -> Any:
    """Results of every exponent, subnormals, exact points and their neighbours, NaN, infinities, and any bits."""
    rng, word = np.random.default_rng(7), BITS[d]
    top = d.bias + 160
    whole = np.arange(-top, top).astype(d.name)
    near = [np.nextafter(whole, np.asarray(to, d.name)) for to in (-np.inf, np.inf)]
    halves = [whole + np.asarray(h, d.name) for h in (0.5, -0.5)]
    anything = rng.integers(0, np.iinfo(word).max, 20_000, dtype=word).view(d.name)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40], d.name)
    return np.concatenate([whole, *near, *halves, rng.uniform(-top, top, 20_000).astype(d.name), anything, special])


def program(d: DType, n: int, target: LlvmTarget) -> Compiled:
    return compile(B.exp2(B.param(0, (n,), d)), target)


def bits(x: Any) -> Any:
    """The bits, all NaNs alike (R20)."""
    return np.where(np.isnan(x), 0, x.view(BITS[dt.float32 if x.dtype == np.float32 else dt.float64]))


@pytest.mark.parametrize("d", BITS, ids=lambda d: d.name)
def test_every_result_has_the_bits_of_the_decomposition(d: DType) -> None:
    x = inputs(d)
    native, other = (program(d, len(x), t) for t in (LlvmTarget(), Decomposed()))
    assert "scalef" in native.program.src[0].src[0].src[1].arg.code
    assert "scalef" not in other.program.src[0].src[0].src[1].arg.code
    np.testing.assert_array_equal(bits(native.function(x)), bits(other.function(x)))


@pytest.mark.parametrize("d", BITS, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_a_value_has_one_result_in_every_width_R27(d: DType, n: int) -> None:
    x = np.resize(inputs(d)[3::977], n)
    wide = program(d, 64, LlvmTarget()).function(np.resize(x, 64))
    np.testing.assert_array_equal(bits(program(d, n, LlvmTarget()).function(x)), bits(wide[:n]))


@pytest.mark.parametrize("w", [2, 3, 4, 8, 16, 32])
def test_a_vector_of_any_width_is_rendered(w: int) -> None:
    """Lanes that fill no register, or more than one, are computed one by one."""
    lanes = UOp(Op.STACK, tuple(B.const(k, dt.int32) for k in range(w)))
    place, source = (UOp(Op.INDEX, (B.param(k, (w,), dt.float32), lanes)) for k in range(2))
    order = toposort(B.store(place, B.exp2(B.load(source))))
    target = LlvmTarget(LlvmTier.FAST)
    kernel = target.load(target.compile(render(UOp(Op.LINEAR, tuple(u for u in order if u.op is not Op.CONST)))))
    out, x = np.zeros(w, np.float32), np.linspace(-3, 5, w, dtype=np.float32)
    kernel([out.ctypes.data, x.ctypes.data], [0, 0])
    np.testing.assert_array_equal(bits(out), bits(program(dt.float32, w, target).function(x)))
