"""The CUDA renderer: a LINEAR kernel as one CUDA C kernel.

Takes: LINEAR over SELECTED ops. Gives: CUDA C text, which is also C for the shim (`uops.backends.cuda.shim`). The first line is
a comment that describes the launch, so the text alone is enough. A buffer is passed as a pointer, and a variable as a long. A
launch has one dimension of blocks and one of threads. LOCAL buffers lie in the dynamic shared memory of a block.
"""

from __future__ import annotations

import math

from uops.backends.cstyle import atomic
from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import Language, WorkgroupSyntax
from uops.backends.cstyle.launch import MAX_LANES, plan_launch
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

ENTRY = "entry"
#: The kind of an argument that the kernel only reads, one that it may write, and a variable.
READ, WRITTEN, SCALAR = "buffer", "written", "scalar"
#: ptxas 13.0 extends the sign of a 16-bit number before they negate it, not after, so that -(-32768) is 32768 (N01). This
#: conversion to 16 bits is nothing that its passes see through, so they negate 32 bits.
_WRAP_I16 = """static __device__ inline i16 wrap_i16(u32 x) {
#ifdef __CUDACC__
  asm("bfe.s32 %0, %1, 0, 16;" : "=r"(x) : "r"(x));
#endif
  return (i16)x;
}
"""
#: nvrtc 13.0 folds constants, and takes 0.0 / 0.0 for a number (N03): it cannot see through an empty instruction.
_OPAQUE = """static __device__ inline {0} opaque_{0}({0} x) {{
#ifdef __CUDACC__
  asm volatile("" : "+{1}"(x));
#endif
  return x;
}}
"""
CUDA = Language(
    name="cuda",
    bool_type="bool",
    pragmas=(),
    function_head="static __device__ inline",
    buffer="m{}",
    scalar="n{}",
    # The forms that round to nearest whatever the compiler's options say. `trunc` is exact in any case.
    functions={
        (Op.MULACC, dt.float32): "__fmaf_rn", (Op.MULACC, dt.float64): "__fma_rn",
        (Op.SQRT, dt.float32): "__fsqrt_rn", (Op.SQRT, dt.float64): "__dsqrt_rn",
        (Op.TRUNC, dt.float32): "truncf", (Op.TRUNC, dt.float64): "trunc",
    },
    spaces={},
    workgroups=WorkgroupSyntax(
        group="blockIdx.x",
        lane="threadIdx.x",
        dimensions=1,
        barrier="__syncthreads();",
        exchanges={
            4: "atomicCAS((u32 *){}, {}, {})",
            8: "atomicCAS((unsigned long long *){}, {}, {})",
        },
        dynamic="(u32)n{}",
        local_pool="shared",
    ),
    # The shim's TinyCC would call its runtime library.
    wide_unsigned=False,
    opaque_functions={d: (f"opaque_{t}", _OPAQUE.format(t, c)) for d, t, c in ((dt.float32, "f32", "f"), (dt.float64, "f64", "d"))},
    unroll_hint="#pragma unroll {}",
    wrapping_functions={dt.int16: ("wrap_i16", _WRAP_I16)},
)  # fmt: skip
OPS = family.OPS
#: Instructions of native text, which may write to any memory that they are given.
_NATIVE_TEXT = frozenset({Op.CUSTOM, Op.INS})


def render(linear: UOp) -> str:
    """Render a kernel. Raises Unsupported, CompileError (R60: barriers), and Crash for a malformed LINEAR kernel."""
    plan = plan_launch(linear.src, CUDA)
    kernel = family.CKernelRenderer(linear, CUDA, plan.index_expressions, atomic.render_atomic_add_call)
    body = kernel.render_body()
    written = _find_written_slots(kernel.instructions)
    kinds = {u.arg.slot: SCALAR if u.arg.name else WRITTEN if u.arg.slot in written else READ for u in kernel.params()}
    slots = range(max(kinds, default=-1) + 1)
    arguments = [f"i64 n{k}" if kinds[k] == SCALAR else f"u8 *m{k}" for k in slots if k in kinds]
    comment = plan.launch_comment([kinds.get(k, "") for k in slots], kernel.local_bytes, kernel.private_bytes)
    return "\n".join(
        (
            comment,
            *kernel.w.render_preamble(),
            "#ifdef __cplusplus",
            'extern "C"',
            "#endif",
            f"__global__ void __launch_bounds__({_max_lanes(plan.lanes)}) {ENTRY}({', '.join(arguments)}) {{",
            *(["  extern __shared__ __align__(16) u8 shared[];"] if kernel.local_bytes else []),
            *body,
            "}",
        )
    ) + "\n"  # fmt: skip


def _max_lanes(lanes: list[int | str]) -> int:
    """Return the largest number of lanes of a block, which bounds the registers of each."""
    return max(1, math.prod(n for n in lanes if isinstance(n, int))) if all(isinstance(n, int) for n in lanes) else MAX_LANES


def _find_written_slots(instructions: tuple[UOp, ...]) -> set[int]:
    """Return the slots of Params that a kernel may write."""
    touched: set[UOp] = set()
    for u in instructions:
        if u.op is Op.STORE:
            touched.add(base_memory(u.buffer))
        elif u.op is Op.ATOMICADD:
            touched.add(base_memory(u.index))
        elif u.op in _NATIVE_TEXT:
            return {v.arg.slot for v in instructions if v.op is Op.PARAM}
    return {u.arg.slot for u in touched if u.op is Op.PARAM}
