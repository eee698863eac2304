"""The probe finds what a device computes wrongly: here the text is changed, and the device is right."""

from __future__ import annotations

import pytest

from uops.backends.opencl import probe
from uops.backends.opencl.choice import open_device, unavailable_reason
from uops.backends.opencl.kernel import OpenClKernel
from uops.backends.opencl.render import OPENCL, describe_language
from uops.spec.ir.ops import Op

pytestmark = pytest.mark.skipif(unavailable_reason("pocl") is not None, reason=str(unavailable_reason("pocl")))
BY_FLOAT64 = frozenset({Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC})


def fault(text: str) -> str | None:
    d, arrays = open_device("pocl"), probe.create_probe_arrays()
    kernel = OpenClKernel(d, text, is_linear=False)
    with d.memory.lend_arrays(arrays):
        kernel([a.ctypes.data for a in arrays], [0] * len(arrays))
    return probe.find_arithmetic_fault(arrays)


def test_arithmetic_by_float64_is_that_of_float32() -> None:
    language = describe_language(open_device("pocl").traits, BY_FLOAT64)
    text = probe.render_probe(language)
    assert "fma_f32(" in text and fault(text) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("= fma(v12, v15, v39);", "= v12 * v15 + v39;", "a product and sum, rounded once of float32"),
        ("= fma(v12, v15, v39);", "= (f32)fma((f64)v12, (f64)v15, (f64)v39);", "a product and sum, rounded once of float32"),
        ("= v12 / v15;", "= v12 * (1.0f / v15);", "a quotient of float32"),
        ("= v12 * v15;", "= fabs(v12 * v15) < 0x1p-126f ? 0.0f : v12 * v15;", "a product of float32"),
        ("= v51 / v53;", "= (f64)((f32)v51 / (f32)v53);", "a quotient of float64"),
        ("= (f32)v51;", "= convert_float_rtz(v51);", "a conversion to float32 of float64"),
        ("= (f64)v12;", "= fabs(v12) < 0x1p-126f ? 0.0 : (f64)v12;", "a conversion to float64 of float32"),
    ],
)
def test_a_wrong_result_is_named(old: str, new: str, words: str) -> None:
    text = probe.render_probe(OPENCL)
    assert text.count(old) == 1
    assert str(fault(text.replace(old, new))).startswith(f"{words} is wrong: of ")
