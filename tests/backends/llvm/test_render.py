"""The llvm renderer: the claims about any machine, and what is particular to this one."""

import numpy as np
import pytest
from kernel_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import GOLDEN, linear, register
from render_claims import *  # noqa: F403 - the claims are tests
from render_claims import Renderer

from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.render import OPS, ZEROED, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.target import STACK_LIMIT
from uops.spec.errors import CompileError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(render, frozenset(OPS), frozenset(NATIVE), STACK_LIMIT)


@pytest.mark.parametrize("size", [1, ZEROED, ZEROED + 1, 300])
def test_reading_an_unwritten_register_is_no_undefined_behaviour_R61(kernels, tier, size: int) -> None:
    """The value is free, but it must be one value: a gate that depends on it is either true or false, in both of its uses."""
    reg, out, where = register(size, dt.int32, 903), B.param(0, (2,), dt.int32), B.param(1, (1,), dt.int32)
    x = B.load(B.at(reg, B.load(B.at(where, 0))))
    stores = (B.store(B.at(out, 0), x), B.store(B.at(out, 1), B.sub(B.const(0), x)))
    got = np.full(2, 77, np.int32)
    kernels.execute(linear(B.sink(*stores)), [got, np.zeros(1, np.int32)], tier=tier)
    assert got[0] == -got[1]
    text = render(linear(B.sink(*stores)))
    assert ("asm sideeffect" in text) == (size > ZEROED)
    assert ("zeroinitializer" in text) == (size <= ZEROED)


@pytest.mark.parametrize(
    ("function", "call"), [("sinf", "call float @sinf(float 1.0)"), ("llvm.sin.f32", "call float @llvm.sin.f32(float 1.0)")]
)
def test_an_object_that_needs_a_library_is_refused(tier, function: str, call: str) -> None:
    source = (
        "define void @kernel(ptr %buffers, ptr %scalars) {\n  %x = load float, ptr %buffers\n"
        f"  %y = {call.replace('1.0', '%x')}\n  store float %y, ptr %buffers\n  ret void\n}}\ndeclare float @{function}(float)\n"
    )
    with pytest.raises(CompileError, match="sinf"):
        binding.compile_object(source, binding.detect_host_without_gfni(), tier)


def test_fill_and_copy_loops_stay_loops(kernels) -> None:
    """LLVM would call memset and memcpy for these; an object must not need them."""
    fill = kernels.elementwise(4096, dt.uint8, (), lambda: B.const(0, dt.uint8))
    copy = kernels.elementwise(4096, dt.uint8, (dt.uint8,), lambda x: x)
    for kernel in (fill, copy):
        binding.check_undefined_symbols_if_elf(
            binding.compile_object(render(kernel), binding.detect_host_without_gfni(), LlvmTier.FULL),
            binding.detect_host_without_gfni(),
        )


def test_a_machine_without_the_instructions_may_call_libm_for_them() -> None:
    old = binding.Host("x86_64-unknown-linux-gnu", "x86-64", "+sse2", "0")
    assert old.libm_fallback_symbols == {"fma", "fmaf", "trunc", "truncf"}
    assert binding.Host("x86_64-unknown-linux-gnu", "x", "+fma,+sse4.1", "0").libm_fallback_symbols == frozenset()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rendered_text_is_the_golden_one(kernels, golden, name: str) -> None:
    golden(f"llvm-{name}.ll", render(GOLDEN[name](kernels)))
