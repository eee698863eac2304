"""The OpenCL renderer: a LINEAR kernel as one OpenCL C kernel.

Takes: LINEAR over SELECTED ops. Gives: OpenCL C 1.2 with float64. The first line is a comment that describes the launch, so the
text alone is enough. A buffer is passed as its memory object and an offset in bytes, and a variable as a long.
"""

from __future__ import annotations

from uops.backends.cstyle import atomic
from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import Language, WorkgroupSyntax
from uops.backends.cstyle.launch import plan_launch
from uops.compiler.decompose import WIDE
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

ENTRY = "entry"
OPENCL = Language(
    name="opencl",
    bool_type="bool",
    pragmas=("#pragma OPENCL EXTENSION cl_khr_fp64 : enable", "#pragma OPENCL FP_CONTRACT OFF"),
    function_head="static inline",
    buffer="(m{0} + o{0})",
    scalar="n{}",
    # Not trunc: PoCL 3.0 converts to an integer inside it, which is undefined for a NaN that its compiler has folded.
    functions={(op, d): name for op, name in ((Op.MULACC, "fma"), (Op.SQRT, "sqrt")) for d in WIDE},
    spaces={AddrSpace.GLOBAL: "__global ", AddrSpace.LOCAL: "__local "},
    workgroups=WorkgroupSyntax(
        group="get_group_id({})",
        lane="get_local_id({})",
        dimensions=3,
        barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
        exchanges={4: "atomic_cmpxchg({}, {}, {})", 8: "atom_cmpxchg({}, {}, {})"},
        exchange_pragmas={8: "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"},
    ),
    # PoCL 3.0 takes a smaller array that is cleared, and lives across a barrier, for one that all work-items share.
    least_private_bytes=16,
)
OPS = family.OPS


def render(linear: UOp) -> str:
    """Render a kernel. Raises Unsupported, CompileError (R60: barriers), and Crash for a malformed LINEAR kernel."""
    plan = plan_launch(linear.src, OPENCL)
    kernel = family.CKernelRenderer(linear, OPENCL, plan.index_expressions, atomic.render_atomic_add_call)
    body = kernel.render_body()
    kinds = {u.arg.slot: "buffer" if u.arg.name is None else "scalar" for u in kernel.params()}
    slots = range(max(kinds, default=-1) + 1)
    arguments = [_ARGUMENT[kinds[k]].format(k) for k in slots if k in kinds]
    head = [f"__kernel void {ENTRY}({', '.join(arguments)}) {{"]
    comment = plan.launch_comment([kinds.get(k, "") for k in slots])
    return "\n".join((comment, *kernel.w.render_preamble(), *head, *body, "}")) + "\n"


_ARGUMENT = {"buffer": "__global u8 *m{0}, i64 o{0}", "scalar": "i64 n{0}"}
