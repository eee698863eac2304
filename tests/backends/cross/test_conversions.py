"""Vectors of floats that are truncated lane by lane."""

from __future__ import annotations

from uops.backends.cross.conversions import truncate_lane_by_lane
from uops.backends.llvm import binding

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
    text = truncate_lane_by_lane(_TEXT)
    assert "fptosi <" not in text and "call <" not in text and text.count("fptosi double") == 2
    assert text.count("call double @llvm.trunc.f64") == 2 and text.count("declare double @llvm.trunc.f64(double)") == 1
    assert truncate_lane_by_lane(text) == text
    host = binding.detect_host_without_gfni()
    for tier in binding.LlvmTier:
        assert binding.compile_object(text, host, tier)


def test_scalars_stay() -> None:
    text = "define i32 @f(float %x) {\n  %n = fptosi float %x to i32\n  ret i32 %n\n}\n"
    assert truncate_lane_by_lane(text) == text
