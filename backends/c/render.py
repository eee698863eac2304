"""The C renderer: a LINEAR kernel as one C function `void kernel(void *const *buffers, const i64 *scalars)`.

Takes: LINEAR over SELECTED ops. Gives: C11 text without includes, freestanding but for `LIBRARY`. TinyCC, gcc and clang take the
same text.
"""

from __future__ import annotations

from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import Language
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

ENTRY = "kernel"
#: The functions of libm that a kernel may call. Each is correctly rounded or exact, in glibc and as an instruction.
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
    # TinyCC would call its runtime library, and a kernel is not linked with that.
    wide_unsigned=False,
)
OPS = family.OPS - family.WORKGROUP


def render(linear: UOp) -> str:
    """Render a kernel as C text. Raises Unsupported for an op or dtype that C lacks, and Crash for a malformed LINEAR kernel."""
    kernel = family.CKernelRenderer(linear, C)
    body = kernel.render_body()
    head = f"void {ENTRY}(void *const *buffers, const i64 *scalars) {{"
    return "\n".join((*kernel.w.render_preamble(), head, *body, "}")) + "\n"
