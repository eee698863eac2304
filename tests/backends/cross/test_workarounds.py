"""Texts that keep clear of what an emulator gets wrong: what is left of it, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.target import CrossTarget
from uops.backends.cross.workarounds import hide_fpext_behind_inline_asm, scalarize_vector_fptoint_and_trunc
from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.spec.errors import Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt

_TEXT = """define void @f(ptr %p, ptr %q) {
  %x = load <2 x double>, ptr %p, align 16
  %n = fptosi <2 x double> %x to <2 x i32>
  store <2 x i32> %n, ptr %q, align 8
  %t = call <2 x double> @llvm.trunc.v2f64(<2 x double> %x)
  store <2 x double> %t, ptr %p, align 16
  ret void
}
declare <2 x double> @llvm.trunc.v2f64(<2 x double>)
"""


def test_every_vector_is_taken_apart_and_the_text_means_the_same() -> None:
    text = scalarize_vector_fptoint_and_trunc(_TEXT)
    assert "fptosi <" not in text and "call <" not in text and text.count("fptosi double") == 2
    assert text.count("call double @llvm.trunc.f64") == 2 and text.count("declare double @llvm.trunc.f64(double)") == 1
    assert scalarize_vector_fptoint_and_trunc(text) == text
    host = binding.detect_host_without_gfni()
    for tier in binding.LlvmTier:
        assert binding.compile_object(text, host, tier)


def test_scalars_stay() -> None:
    text = "define i32 @f(float %x) {\n  %n = fptosi float %x to i32\n  ret i32 %n\n}\n"
    assert scalarize_vector_fptoint_and_trunc(text) == text


def test_an_extension_is_hidden_from_its_users() -> None:
    text = hide_fpext_behind_inline_asm(
        "define double @f(float %x) {\n  %d = fpext float %x to double\n  %y = fmul double %d, %d\n  ret double %y\n}\n"
    )
    assert "%d.wide = fpext float %x to double\n" in text and '%d = call double asm "", "=f,0"(double %d.wide)' in text
    vector = "  %d = fpext <4 x float> %x to <4 x double>\n"
    assert hide_fpext_behind_inline_asm(vector) == vector


@pytest.mark.parametrize("tier", list(LlvmTier))
def test_a_product_of_extended_floats_is_right_on_s390x(kernels, tier: LlvmTier) -> None:
    """Case 101 of seed 1: qemu 7.2 takes the first operand of `mdebr` for a float of 64 bits."""
    try:
        target = CrossTarget(PROCESSORS["s390x"], tier, store=ObjectCache(None))
    except Unsupported as e:
        pytest.skip(str(e))
    product = kernels.elementwise(1, dt.float64, (dt.float32,), lambda v: B.mul(B.cast(v, dt.float64), B.cast(v, dt.float64)))
    x, out = np.array([3.0], np.float32), np.zeros(1)
    with target.lend([out, x]):
        target.load(target.compile(target.render(product)))([out.ctypes.data, x.ctypes.data], [0, 0])
    assert out[0] == 9.0
