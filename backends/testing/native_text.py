"""Native text in each language of `uops.backends.contract.LANGUAGES`, with what it means to the interpreter.

Spec: Codegen/Custom, CUSTOMI; R167 (native text), R168 (Ins and Custom on a target).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


class NativeText(NamedTuple):
    """A text in each language, and what it means: a function of the values of its sources."""

    c: str
    llvm: str
    meaning: Callable[..., Any]

    def in_language(self, language: str) -> str:
        """Return the text in a language: C is OpenCL C and CUDA C, too."""
        return self.llvm if language == "llvm" else self.c


def _xor_five(x: Any) -> Any:
    x = np.asarray(x)
    return x ^ x.dtype.type(5)


def _flip_sign_bit(x: Any) -> Any:
    x = np.asarray(x)
    word = np.dtype(f"u{x.dtype.itemsize}").type
    return (x.view(word) ^ word(1 << (8 * x.dtype.itemsize - 1))).view(x.dtype)


def text_that_changes(d: DType) -> NativeText:
    """Return the text of an expression that changes every value of a dtype: its sign, or some of its bits."""
    if d is dt.bool_:
        return NativeText("(!{0})", "xor i1 {0}, true", np.logical_not)
    if not d.is_float:
        return NativeText("({0} ^ 5)", f"xor i{d.bits} {{0}}, 5", _xor_five)
    if d.bits < 32:  # which is the unsigned integer of its bits
        sign = 1 << (d.bits - 1)
        return NativeText(f"(u{d.bits})({{0}} ^ {sign:#x})", f"xor i{d.bits} {{0}}, {-sign}", _flip_sign_bit)
    return NativeText("(-{0})", f"fneg {'float' if d is dt.float32 else 'double'} {{0}}", _flip_sign_bit)


def text_that_stores(d: DType) -> NativeText:
    """Return the text of a line that stores a value to an element."""
    kinds = {dt.bool_: "i1", dt.float32: "float", dt.float64: "double"}
    return NativeText("{0} = {1};", f"store {kinds.get(d, f'i{d.bits}')} {{1}}, ptr {{0}}", lambda place, x: place.store(x))
