"""The CUDA renderer: a LINEAR kernel as one CUDA C kernel.

Takes: LINEAR over SELECTED ops. Gives: CUDA C text, which is also C for the shim (`uops.backends.cuda.shim`). The first line is
a comment that describes the launch, so the text alone is enough. A buffer is passed as a pointer, and a variable as a long. A
launch has one dimension of blocks and one of threads. LOCAL buffers lie in the dynamic shared memory of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uops.backends.cstyle import atomic
from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import MAX_LANES, Language, WorkgroupSyntax
from uops.backends.cstyle.launch import Extent, LaunchPlan, plan_launch
from uops.backends.cstyle.neighbours import first_of_aligned_run
from uops.backends.cuda import accesses, mma
from uops.backends.facts import find_written_slots
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.wmma import find_descriptor

ENTRY = "entry"
#: The kinds of arguments: what the kernel only reads, the same at addresses that are multiples of 16, what it may write, variables.
READ, ALIGNED, WRITTEN, SCALAR = "buffer", "aligned", "written", "scalar"
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
        has_atomic_volatile_reads=True,
        dynamic="(u32)n{}",
        local_pool="shared",
    ),
    # The shim's TinyCC would call its runtime library.
    wide_unsigned=False,
    opaque_functions={d: (f"opaque_{t}", _OPAQUE.format(t, c)) for d, t, c in ((dt.float32, "f32", "f"), (dt.float64, "f64", "d"))},
    unroll_hint="#pragma unroll {}",
    wrapping_functions={dt.int16: ("wrap_i16", _WRAP_I16)},
)  # fmt: skip
OPS = family.OPS | {Op.WMMA}
_WAIT = "wait_for_copies();"


class CudaKernelRenderer(family.CKernelRenderer):
    """The rendering of one kernel as CUDA C, which has wide accesses, asynchronous copies and tensor cores."""

    def __init__(self, linear: UOp, plan: LaunchPlan) -> None:
        super().__init__(linear, CUDA, plan.index_expressions, atomic.render_atomic_add_statement_by_compare_exchange)
        self.written = find_written_slots(self.instructions)
        self.async_buffers = accesses.find_buffers_copied_and_read_after_barriers(self.instructions)
        self.aligned: set[int] = set()  # slots whose addresses must be multiples of 16
        self.position_in_list = {u: k for k, u in enumerate(self.instructions)}
        self.copies_async = False
        self.waited_in: tuple[UOp, ...] | None = None  # the open blocks of the last wait, if no copy came after it
        self.fragments: dict[tuple[UOp, UOp | None], Sequence[str]] = {}  # registers by fragment and innermost block

    def render_body(self) -> list[str]:
        """Render every instruction; return the lines. Before a Barrier, a lane waits for its copies."""
        lines = super().render_body()
        return lines if self.copies_async else [line for line in lines if line.strip() != _WAIT]

    def classify_argument_kind(self, param: UOp) -> str:
        """Return the kind of a Param's argument, once every instruction is rendered."""
        if param.arg.name:
            return SCALAR
        if param.arg.slot in self.written:
            return WRITTEN
        return ALIGNED if param.arg.slot in self.aligned else READ

    def _render_wait_for_async_copies(self) -> None:
        """Wait for this lane's copies, if any may be under way here. Another argument may name the memory that they read."""
        if self.async_buffers:
            self.w.write_line(_WAIT)
            self.waited_in = tuple(self.open_blocks)

    def render_barrier(self, u: UOp) -> None:
        """Render a Barrier, at which all lanes see the copies."""
        self._render_wait_for_async_copies()
        super().render_barrier(u)

    def render_atomic_add(self, u: UOp) -> None:
        """Render an atomic sum."""
        self._render_wait_for_async_copies()
        super().render_atomic_add(u)

    # Wide accesses.

    def render_load(self, u: UOp) -> None:
        """Render a read of neighbours as one access, any other lane by lane."""
        size = self._wide_access_bytes_or_zero_and_mark_aligned_slot(u.buffer, u.dtype, u.gate)
        if not size:
            super().render_load(u)
            return
        at, name, count = self.require_computed_memory_ref(u.buffer), f"v{self.number}", self._lane_count(u)
        self._declare_wide(name, u.dtype, size)
        load = f"{name}.wide = *(const w{size} *)&{at.element(0)};"
        if u.gate is None:
            self.w.write_line(load)
        else:
            alternatives = self.operand_text_by_lane(u.alternative) if u.alternative is not None else ("0",)
            others = "".join(f" {name}.one[{k}] = {alternatives[k % len(alternatives)]};" for k in range(count))
            self.w.write_line(f"if ({self.scalar_operand(u.gate)}) {load} else {{{others} }}")
        self.values[u] = tuple(f"{name}.one[{k}]" for k in range(count))

    def render_store(self, u: UOp) -> None:
        """Render a write of neighbours in LOCAL memory as one access or as an asynchronous copy, any other lane by lane."""
        size = (
            0
            if base_memory(u.buffer).op is not Op.BUFFER
            else self._wide_access_bytes_or_zero_and_mark_aligned_slot(u.buffer, u.value.dtype, u.gate)
        )
        if not size:
            if self.require_computed_memory_ref(u.buffer).space is AddrSpace.GLOBAL and self.waited_in != tuple(self.open_blocks):
                self._render_wait_for_async_copies()
            super().render_store(u)
            return
        at, gate = self.require_computed_memory_ref(u.buffer), "" if u.gate is None else f"if ({self.scalar_operand(u.gate)}) "
        source = u.value
        if base_memory(u.buffer) in self.async_buffers and self._is_async_source(source, size, u.gate):
            self.copies_async, self.waited_in = True, None
            self.w.define_function("copy_async", accesses.COPY_ASYNC)
            from_ = self.require_computed_memory_ref(source.buffer).element(0)
            self.w.write_line(f"{gate}copy_async((u8 *)&{at.element(0)}, (const u8 *)&{from_}, {size});")
            return
        values, name = self.operand_text_by_lane(source), f"v{self.number}"
        self._declare_wide(name, source.dtype, size)
        elements = " ".join(f"{name}.one[{k}] = {values[k % len(values)]};" for k in range(size // source.dtype.itemsize))
        self.w.write_line(elements)
        self.w.write_line(f"{gate}*(w{size} *)&{at.element(0)} = {name}.wide;")

    def _declare_wide(self, name: str, d: DType, size: int) -> None:
        self.w.define_function("w16", accesses.WIDE_TYPES)
        self.w.write_line(f"union {{ w{size} wide; {CUDA.native_storage_type(d)} one[{size // d.itemsize}]; }} {name};")

    def _wide_access_bytes_or_zero_and_mark_aligned_slot(self, reference: UOp, d: DType, gate: UOp | None) -> int:
        """Return the bytes of an access to neighbours that is one instruction; 0 for any other.

        A Param so read is added to `aligned`.
        """
        at = self.require_computed_memory_ref(reference)
        memory = base_memory(reference)
        if at.index is None or reference.op is not Op.INDEX or len(reference.positions) != 1 or d is dt.bool_:
            return 0
        count = len(at.index)
        size = count * d.itemsize
        if count == 1 or size not in accesses.WIDTHS or at.base != self.memory_refs[memory].base or memory.dtype is not d:
            return 0
        if first_of_aligned_run(reference.positions[0], count) is None or (gate is not None and gate.shape):
            return 0
        if memory.op is Op.BUFFER:
            return size if at.space is AddrSpace.LOCAL else 0
        if memory.op is not Op.PARAM or memory.arg.slot in self.written:
            return 0
        self.aligned.add(memory.arg.slot)
        return size

    def _is_async_source(self, value: UOp, size: int, gate: UOp | None) -> bool:
        """Return True if a stored value is a wide Load from GLOBAL memory under the Store's gate, or without one.

        The copy reads at the Store. So GLOBAL memory must not change after the Load: arguments may name the same memory.
        """
        return (
            value.op is Op.LOAD and base_memory(value.buffer).op is Op.PARAM and value.gate in (None, gate)
            and self._no_write_or_barrier_since([value], lambda memory: memory.op is Op.PARAM)
            and self._wide_access_bytes_or_zero_and_mark_aligned_slot(value.buffer, value.dtype, value.gate) == size
        )  # fmt: skip

    # Tensor cores.

    def render_language_specific_op(self, u: UOp) -> None:
        """Render a Wmma. Raises Unsupported for one without an instruction."""
        d = find_descriptor(u.arg) if u.op is Op.WMMA and mma.is_mma(u.arg) else None
        if d is None:
            raise Unsupported(u.op.name, self.language.name)
        function = self.w.define_function(mma.function_name(d), mma.render_function(d))
        fragments = [self._render_fragment_registers(s, d.dtype_in) for s in (u.lhs, u.rhs)]
        sums = mma.pack_registers(self.operand_text_by_lane(u.accumulator), d.dtype_out)
        registers = ", ".join(r for f in (*fragments, sums) for r in f)
        result = f"v{self.number}"
        self.w.write_line(f"{mma.result_type(d.dtype_out)} {result}[{mma.count_result_registers(d)}];")
        self.w.write_line(f"{function}({result}, {registers});")
        self.values[u] = tuple(mma.unpack_element(result, k, d.dtype_out) for k in range(d.c.elements))

    def _render_fragment_registers(self, fragment: UOp, d: DType) -> Sequence[str]:
        """Return the registers of a fragment, which matrices in LOCAL memory fill where it has that form."""
        key = fragment, self.open_blocks[-1] if self.open_blocks else None
        if key in self.fragments:
            return self.fragments[key]
        load = accesses.match_matrix_load(fragment, d.itemsize, self._is_own_memory_untouched_since)
        if load is None or self.launch_indices.get(load.warp) not in ("threadIdx.x", "(threadIdx.x % 32)"):
            registers: Sequence[str] = mma.pack_registers(self.operand_text_by_lane(fragment), d)
        else:
            name = f"f{len(self.fragments)}"
            function = self.w.define_function(*accesses.render_load_matrices(load.matrices, load.is_transposed))
            row = self._render_for_lane(load.position, load.warp, load.lane_of_row.replace("l", "(threadIdx.x % 32)"))
            offset = load.offset.replace("l", "(threadIdx.x % 32)")
            element = f"{self.require_computed_memory_ref(load.memory).base}[{row} + {offset}]"
            self.w.write_line(f"u32 {name}[{load.matrices}]; {function}({name}, (const u8 *)&{element});")
            registers = [f"{name}[{k}]" for k in range(load.matrices)]
        self.fragments[key] = registers
        return registers

    def _is_own_memory_untouched_since(self, loads: Sequence[UOp]) -> bool:
        """Return True if no instruction between Loads and this one writes to their memory, or is a Barrier."""
        return self._no_write_or_barrier_since(loads, {base_memory(x.buffer) for x in loads}.__contains__)

    def _no_write_or_barrier_since(self, loads: Sequence[UOp], is_read_memory: Callable[[UOp], bool]) -> bool:
        """Return True if no instruction between Loads and this one writes to memory that they may read, or is a Barrier."""
        since = self.instructions[min(self.position_in_list.get(x, 0) for x in loads) : self.number]
        return not any(
            u.op in (Op.BARRIER, Op.ATOMICADD, Op.CUSTOM, Op.INS, Op.RANGE, Op.END)
            or (u.op is Op.STORE and is_read_memory(base_memory(u.buffer)))
            for u in since
        )

    def _render_for_lane(self, u: UOp, warp: UOp, lane: str) -> str:
        """Return an index expression with another lane's number."""
        if u is warp:
            return f"(i32){lane}"
        if warp not in toposort(u):
            return self.scalar_operand(u)
        if u.op is Op.CAST:
            return self._render_for_lane(u.operand, warp, lane)
        left, right = (self._render_for_lane(s, warp, lane) for s in u.src)
        return f"({left} {accesses.OPERATORS[u.op]} {right})"


def render(linear: UOp) -> str:
    """Render a kernel. Raises Unsupported, CompileError (R60: barriers), and Crash for a malformed LINEAR kernel."""
    plan = plan_launch(linear.src, CUDA)
    kernel = CudaKernelRenderer(linear, plan)
    body = kernel.render_body()
    kinds = {u.arg.slot: kernel.classify_argument_kind(u) for u in kernel.params()}
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
            f"__global__ void __launch_bounds__({max_lanes(plan.lanes)}) {ENTRY}({', '.join(arguments)}) {{",
            *(["  extern __shared__ __align__(16) u8 shared[];"] if kernel.local_bytes else []),
            *body,
            "}",
        )
    ) + "\n"  # fmt: skip


def max_lanes(lanes: Sequence[Extent]) -> int:
    """Return the largest number of lanes of a block, which bounds the registers of each."""
    return max(1, math.prod(n for n in lanes if isinstance(n, int))) if all(isinstance(n, int) for n in lanes) else MAX_LANES
