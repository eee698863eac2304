"""A LINEAR kernel as one C function, `void kernel(void *const *buffers, const i64 *scalars)`, freestanding but for `LIBRARY`.

Takes: LINEAR over SELECTED ops. Gives: C11 text without includes. The same text is for TinyCC, gcc and clang.
"""

from __future__ import annotations

from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import Language
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

ENTRY = "kernel"
#: Functions of libm that a kernel may call: each is correctly rounded or exact, in glibc and as an instruction.
LIBRARY = ("fma", "fmaf", "sqrt", "sqrtf", "trunc", "truncf")
C = Language(
    name="c",
    bool_type="_Bool",
    pragmas=(),
    function_head="static inline",
    buffer="buffers[{}]",
    scalar="scalars[{}]",
    functions={
        (op, d): name + suffix
        for op, name in ((Op.MULACC, "fma"), (Op.SQRT, "sqrt"), (Op.TRUNC, "trunc"))
        for d, suffix in ((dt.float32, "f"), (dt.float64, ""))
    },
    prototypes={
        **{f: f"f64 {f}(f64 x);" for f in ("sqrt", "trunc")},
        **{f: f"f32 {f}(f32 x);" for f in ("sqrtf", "truncf")},
        "fma": "f64 fma(f64 x, f64 y, f64 z);",
        "fmaf": "f32 fmaf(f32 x, f32 y, f32 z);",
    },
    # TinyCC calls a function of its library for it, and a kernel is linked with nothing of it.
    wide_unsigned=False,
)
OPS = family.OPS - family.WORKGROUP


def render(linear: UOp) -> str:
    """The text. Raises Unsupported for an op or dtype that C lacks, Crash for what is no LINEAR kernel."""
    kernel = family.Kernel(linear, C)
    body = kernel.body()
    head = f"void {ENTRY}(void *const *buffers, const i64 *scalars) {{"
    return "\n".join((*kernel.w.preamble(), head, *body, "}")) + "\n"
