"""The probe finds what a device computes wrongly: here the text is changed, and the device is right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from uops.backends.opencl import probe
from uops.backends.opencl.choice import open_device, unavailable_reason
from uops.backends.opencl.kernel import OpenClKernel
from uops.backends.opencl.render import OPENCL, describe_language
from uops.backends.opencl.target import OpenClTarget
from uops.compiler import compile as compile_for
from uops.interp import run
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

pytestmark = pytest.mark.skipif(unavailable_reason("pocl") is not None, reason=str(unavailable_reason("pocl")))
BY_FLOAT64 = frozenset({Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC, Op.CAST})


def fault(text: str) -> str | None:
    d, arrays = open_device("pocl"), probe.create_probe_arrays()
    kernel = OpenClKernel(d, text, is_linear=False)
    with d.memory.lend_arrays(arrays):
        kernel([a.ctypes.data for a in arrays], [0] * len(arrays))
    return probe.find_arithmetic_fault(arrays)


def test_arithmetic_by_float64_is_that_of_float32() -> None:
    language = describe_language(open_device("pocl").traits, BY_FLOAT64)
    text = probe.render_probe(language)
    assert "fma_f32(" in text and "from_wide_i64(" in text and fault(text) is None


def draw_operands(count: int) -> list[Any]:
    """x, y and z of float32, the sums x * y + z of many of which lie at the middle of two float32 but for a small z."""
    rng = np.random.default_rng(11)
    x, y, z = rng.integers(0, 1 << 32, (3, count), np.uint32).view(np.float32)
    short = 1 + rng.integers(0, 1 << 12, (2, count)) / np.float64(1 << 12)
    x[::4], y[::4] = (short * np.exp2(rng.integers(-80, 60, (2, count)))).astype(np.float32)[:, ::4]
    z[::4] = (
        x[::4].astype(np.float64) * y[::4] * np.exp2(rng.integers(-60, 3, count // 4)) * rng.choice([-1, 1], count // 4)
    ).astype(np.float32)
    return [x, y, z]


def test_float64_stands_in_for_float32_on_many_operands() -> None:
    n = 1 << 14
    x, y, z = (B.param(k, (n,), dt.float32) for k in range(3))
    wide = B.param(3, (n,), dt.int64)
    graph = B.tuple_(
        B.mulacc(x, y, z), B.div(x, y), B.build_alu_with_promotion(Op.SQRT, x), B.build_alu_with_promotion(Op.RECIP, y),
        B.cast(wide, dt.float32), B.cast(B.bitcast(wide, dt.uint64), dt.float32),
    )  # fmt: skip
    with np.errstate(all="ignore"):
        operands = draw_operands(n)
    rng = np.random.default_rng(12)
    integers = rng.integers(-(1 << 63), 1 << 63, n) >> rng.integers(0, 40, n)
    integers[::2] = (integers[::2] & ~((1 << 38) - 1)) | rng.integers(-1, 2, n // 2)
    given = {f"p{k}": v for k, v in enumerate((*operands, integers))}
    language = describe_language(open_device("pocl").traits, BY_FLOAT64)
    got = compile_for(graph, OpenClTarget("pocl", language))(given).values
    for a, b in zip(got, run(graph, given).values, strict=True):
        assert ((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all()


@pytest.mark.skipif(unavailable_reason("oclgrind") is not None, reason=str(unavailable_reason("oclgrind")))
def test_oclgrind_rounds_an_integer_twice_O01() -> None:
    d, arrays = open_device("oclgrind"), probe.create_probe_arrays()
    kernel = OpenClKernel(d, probe.render_probe(describe_language(d.traits)), is_linear=True)
    with d.memory.lend_arrays(arrays):
        kernel([a.ctypes.data for a in arrays], [0] * len(arrays))
    assert "a conversion of int64 to float32, with the bits of float64 is wrong" in str(probe.find_arithmetic_fault(arrays))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"(f32 \w+ = )fma\((\w+), (\w+), (\w+)\);", r"\1\2 * \3 + \4;", "a product and sum, rounded once of float32"),
        (r"(f32 \w+ = )fma\((\w+), (\w+), (\w+)\);", r"\1(f32)((f64)\2 * \3 + \4);", "a product and sum, rounded once of float32"),
        (r"(f32 \w+ = )(\w+) / (v\w+);", r"\1\2 * (1.0f / \3);", "a quotient of float32"),
        (r"(f32 \w+ = )(v\w+ \* v\w+);", r"\1fabs(\2) < 0x1p-126f ? 0.0f : \2;", "a product of float32"),
        (r"(f64 \w+ = )(v\w+) / (v\w+);", r"\1(f64)((f32)\2 / (f32)\3);", "a quotient of float64"),
        (r"(f32 \w+ = )\(f32\)(\w+);", r"\1convert_float_rtz(\2);", "a conversion to float32 of float64"),
        (r"(f64 \w+ = )\(f64\)(\w+);", r"\1fabs((f32)\2) < 0x1p-126f ? 0.0 : (f64)\2;", "a conversion to float64 of float32"),
    ],
)
def test_a_wrong_result_is_named(old: str, new: str, words: str) -> None:
    wrong, count = re.subn(old, new, probe.render_probe(OPENCL), count=1)
    assert count == 1
    assert str(fault(wrong)).startswith(f"{words} is wrong: of ")
