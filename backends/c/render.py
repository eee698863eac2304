"""The C renderer: a LINEAR kernel as the C function `void kernel(void *const *buffers, const i64 *scalars)`.

Takes: LINEAR over SELECTED ops. Gives: C11 text without includes, freestanding but for `LIBRARY`. TinyCC, gcc and clang take the
same text. If threads may share a loop of the kernel, the text also has `void part(buffers, scalars, i64 begin, i64 end)`, which
runs some iterations of the loop. `kernel` then calls `part` for all of them.
"""

from __future__ import annotations

from uops.backends.calling import ENTRY, PART
from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import Language, render_integer
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import WRITES, Op

#: First line of the text of a kernel that stores signed integers, and so may sum them in a loop (`driver`).
SIGNED_STORES = "// stores signed integers"
_TABLES = "void *const *buffers, const i64 *scalars"
#: The head of the function of a part. `kernel` calls the one beside it, even if the process has another function of that name.
_PART_HEAD = f'__attribute__((visibility("protected"))) void {PART}({_TABLES}, i64 begin, i64 end) {{'
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
    part_bounds=("begin", "end"),
)
OPS = family.OPS - family.WORKGROUP


def render(linear: UOp) -> str:
    """Render a kernel as C text. Raises Unsupported for an op or dtype that C lacks, and Crash for a malformed LINEAR kernel."""
    kernel = family.CKernelRenderer(linear, C)
    body = kernel.render_body()
    if kernel.thread_loop is not None:
        call = f"  {PART}(buffers, scalars, 0, {render_integer(kernel.thread_loop.bound.arg.value, dt.int64)});"
        body = [*body, "}", "", f"void {ENTRY}({_TABLES}) {{", call]
    head = f"void {ENTRY}({_TABLES}) {{" if kernel.thread_loop is None else _PART_HEAD
    first = [SIGNED_STORES] if any(map(_stores_signed_integer, kernel.instructions)) else []
    return "\n".join((*first, *kernel.w.render_preamble(), head, *body, "}")) + "\n"


def _stores_signed_integer(u: UOp) -> bool:
    return u.op in WRITES and u.value.dtype.kind in (DTypeKind.INT, DTypeKind.INDEX)


def find_functions(source: str) -> tuple[str, ...]:
    """Return the names of the functions of a rendered text that others call: `ENTRY`, and `PART` if there is one."""
    return (ENTRY, PART) if f"\n{_PART_HEAD}\n" in source else (ENTRY,)
