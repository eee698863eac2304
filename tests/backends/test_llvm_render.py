"""The llvm renderer: the claims about any machine, and what is particular to this one."""

import numpy as np
import pytest
from kernel_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import GOLDEN, linear, register

from uops.backends.llvm import binding
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.render import OPS, STACK_LIMIT, ZEROED, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.target import PLAIN_DTYPES, PLAIN_OPS
from uops.spec import args as A
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.node import UOp
from uops.spec.ops import Op


def test_the_renderer_has_every_op_that_selection_leaves() -> None:
    assert PLAIN_OPS <= OPS
    assert frozenset(NATIVE) == PLAIN_DTYPES


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
    assert ("freeze" in text) == (size > ZEROED)
    assert ("zeroinitializer" in text) == (size <= ZEROED)


@pytest.mark.parametrize("op", [Op.SPECIAL, Op.BARRIER, Op.WMMA, Op.CUSTOM, Op.INS], ids=lambda op: op.name)
def test_an_op_that_this_target_lacks_is_refused_by_name(op: Op) -> None:
    arg = {Op.SPECIAL: A.SpecialArg("g0"), Op.CUSTOM: A.CustomArg("x", dt.void), Op.INS: A.InsArg("nop", dt.void)}.get(op)
    with pytest.raises(Unsupported, match=op.name):
        render(UOp(Op.LINEAR, (UOp(op, (), arg),)))


def test_what_is_no_kernel_is_a_crash_of_ours() -> None:
    i, out = B.range_(3, 0), B.param(0, (3,), dt.int32)
    place = B.at(out, i)
    store = B.store(place, B.const(1))
    with pytest.raises(Crash, match="never closed"):
        render(UOp(Op.LINEAR, (out, i, place, store)))
    with pytest.raises(Crash, match="before it is computed"):
        render(UOp(Op.LINEAR, (out, place, i, store)))
    with pytest.raises(Crash, match="not the innermost"):
        render(UOp(Op.LINEAR, (out, i, place, store, B.end(store, i), B.end(store, i))))
    with pytest.raises(Crash, match="takes a Linear"):
        render(store)


def test_private_buffers_that_do_not_fit_the_stack_are_refused() -> None:
    with pytest.raises(CompileError, match="stack"):
        render(UOp(Op.LINEAR, (register(STACK_LIMIT // 4 + 1, dt.float32, 904),)))


@pytest.mark.parametrize(
    ("function", "call"), [("sinf", "call float @sinf(float 1.0)"), ("llvm.sin.f32", "call float @llvm.sin.f32(float 1.0)")]
)
def test_an_object_that_needs_a_library_is_refused(tier, function: str, call: str) -> None:
    source = (
        "define void @kernel(ptr %buffers, ptr %scalars) {\n  %x = load float, ptr %buffers\n"
        f"  %y = {call.replace('1.0', '%x')}\n  store float %y, ptr %buffers\n  ret void\n}}\ndeclare float @{function}(float)\n"
    )
    with pytest.raises(CompileError, match="sinf"):
        binding.compile_object(source, binding.host(), tier)


def test_fill_and_copy_loops_stay_loops(kernels) -> None:
    """LLVM would call memset and memcpy for these; an object must not need them."""
    fill = kernels.elementwise(4096, dt.uint8, (), lambda: B.const(0, dt.uint8))
    copy = kernels.elementwise(4096, dt.uint8, (dt.uint8,), lambda x: x)
    for kernel in (fill, copy):
        binding.check_symbols(binding.compile_object(render(kernel), binding.host(), Tier.FULL), binding.host())


def test_a_machine_without_the_instructions_may_call_libm_for_them() -> None:
    old = binding.Host("x86_64-unknown-linux-gnu", "x86-64", "+sse2", "0")
    assert old.allowed_symbols == {"fma", "fmaf", "trunc", "truncf"}
    assert binding.Host("x86_64-unknown-linux-gnu", "x", "+fma,+sse4.1", "0").allowed_symbols == frozenset()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rendered_text_is_the_golden_one(kernels, golden, name: str) -> None:
    golden(f"llvm-{name}.ll", render(GOLDEN[name](kernels)))
