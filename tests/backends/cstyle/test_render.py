"""The declarations of a kernel's buffers in languages of the family."""

from __future__ import annotations

import pytest
from kernel_claims import linear
from workgroup_kernels import local

from uops.backends.c.render import render as render_c
from uops.backends.opencl.render import render as render_opencl
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@pytest.mark.parametrize(("d", "c", "opencl"), [
    (dt.uint8, "u8 r1[5] = {0};", "__local u8 r1[8] __attribute__((aligned(4)));"),
    (dt.int16, "i16 r1[5] = {0};", "__local i16 r1[6] __attribute__((aligned(4)));"),
    (dt.int32, "i32 r1[5] = {0};", "__local i32 r1[5];"),
])  # fmt: skip
def test_local_memory_beside_an_atomic_sum_starts_as_zeros_in_c_and_is_of_words_in_opencl(d: dt.DType, c: str, opencl: str) -> None:
    """A sum in C is plain. In OpenCL, words around the elements are exchanged."""
    i, out, buffer = B.range_(5, 0), B.param(0, (5,), d), local(5, d, 7)
    kernel = linear(B.end(UOp(Op.ATOMICADD, (B.at(out, i), B.load(B.at(buffer, i)))), i))
    assert c in map(str.strip, render_c(kernel).splitlines())
    assert opencl in map(str.strip, render_opencl(kernel).splitlines())
