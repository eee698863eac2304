"""CUDA kernels on the processor: the text of a kernel, between a header and a launcher in C, compiled by TinyCC in this process.

The threads of a block run in turns. Each has a stack of its own and runs up to the next Barrier; then the next one runs. They
take turns forwards in one round and backwards in the next, and so do blocks, so a missing Barrier or an order that is relied on
changes results. Shared memory is filled with a pattern before each block, and copies end with their block. A launch fails where
some threads of a block end and others wait at a Barrier (R60), which on a GPU may hang. The switch between stacks is machine
code of x86-64, so other processors have no shim.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading
from collections.abc import Sequence

from uops.backends.c import tinycc
from uops.backends.cstyle.launch import LaunchShape
from uops.backends.cuda import accesses, mma
from uops.backends.cuda.render import ENTRY, SCALAR, max_lanes
from uops.spec.errors import Crash

#: Bytes of stack of a thread besides its private memory, and per character of its text, which declares all its values.
_STACK, _STACK_PER_CHARACTER = 32 << 10, 2
_PAGE = mmap.PAGESIZE
#: What the launcher returns for threads that do not meet.
_DIVERGED = 1
_HEADER = """
#define bool _Bool
#define __global__
#define __device__
#define __shared__
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __fmaf_rn fmaf
#define __fma_rn fma
#define __fsqrt_rn sqrtf
#define __dsqrt_rn sqrt
float fmaf(float, float, float); double fma(double, double, double);
float sqrtf(float); double sqrt(double); float truncf(float); double trunc(double);
void *memset(void *, int, unsigned long);
typedef struct { unsigned x, y, z; } uops_position;
static uops_position blockIdx, threadIdx;
static unsigned char *shared;
static struct { void *scheduler, *thread; int ended; } uops_now;
void uops_switch(void **save, void *to);
static void uops_wait(void) { uops_switch(&uops_now.thread, uops_now.scheduler); }
#define __syncthreads() uops_wait()
#define atomicCAS(at, old, new) ({ __typeof__(at) uops_a = (at); __typeof__(*uops_a) uops_s = *uops_a; \\
  if (uops_s == (old)) *uops_a = (new); uops_s; })
static unsigned __popc(unsigned x) { unsigned n = 0; for (; x; x &= x - 1) n++; return n; }
static unsigned __popcll(unsigned long x) { return __popc((unsigned)x) + __popc((unsigned)(x >> 32)); }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long both = x | (unsigned long)y << 32; unsigned r = 0;
  for (int k = 0; k < 4; k++) r |= (unsigned)(both >> 8 * (s >> 4 * k & 7) & 255) << 8 * k;
  return r;
}
"""
#: Saves what a function of C keeps, switches stacks, and restores it.
_SWITCH = """
__asm__(
  ".text\\n.globl uops_switch\\nuops_switch:\\n"
  "push %rbp\\npush %rbx\\npush %r12\\npush %r13\\npush %r14\\npush %r15\\n"
  "mov %rsp, (%rdi)\\nmov %rsi, %rsp\\n"
  "pop %r15\\npop %r14\\npop %r13\\npop %r12\\npop %rbx\\npop %rbp\\nret\\n");
"""
_LAUNCHER = """
static unsigned long *uops_buffers; static long *uops_scalars;
static void uops_enter(void) { ENTRY(ARGUMENTS); }
static void uops_thread(void) { uops_enter(); uops_now.ended = 1; uops_wait(); }
typedef struct { unsigned long *buffers; long *scalars; long groups, lanes; unsigned char *shared; long shared_bytes;
  unsigned char *stacks; long stack_bytes; void **threads; long status; } uops_launch;
static int uops_block(uops_launch *l, int round) {
#ifdef UOPS_COPIES
  memset(uops_copy_counts, 0, sizeof uops_copy_counts);
#endif
  if (!MEETS) {
    for (long k = 0; k < l->lanes; k++) { threadIdx.x = round & 1 ? l->lanes - 1 - k : k; uops_enter(); }
    return 0;
  }
  for (long k = 0; k < l->lanes; k++) {
    void **top = (void **)(l->stacks + (k + 1) * l->stack_bytes) - 2;
    *--top = 0; *--top = (void *)uops_thread;
    for (int r = 0; r < 6; r++) *--top = 0;
    l->threads[k] = top;
  }
  for (long left = l->lanes; left; round++) {
    long ended = 0;
    for (long k = 0; k < l->lanes; k++) {
      long lane = round & 1 ? l->lanes - 1 - k : k;
      threadIdx.x = lane; uops_now.ended = 0;
      uops_now.thread = l->threads[lane];
      uops_switch(&uops_now.scheduler, uops_now.thread);
      l->threads[lane] = uops_now.thread; ended += uops_now.ended;
    }
    if (ended == left) return 0;
    if (ended) return DIVERGED;
  }
  return 0;
}
void uops_run(uops_launch *l, void *unused) {
  uops_buffers = l->buffers; uops_scalars = l->scalars; shared = l->shared;
  for (long k = 0; k < l->groups && !l->status; k++) {
    blockIdx.x = k & 1 && l->groups % 2 == 0 ? l->groups - k : k;
    if (l->shared_bytes) memset(shared, 0xA5, l->shared_bytes);
    l->status = uops_block(l, blockIdx.x & 1);
  }
}
"""


class _Launch(ctypes.Structure):
    """The launcher's `uops_launch`."""

    _fields_ = (
        ("buffers", ctypes.c_void_p), ("scalars", ctypes.c_void_p), ("groups", ctypes.c_long), ("lanes", ctypes.c_long),
        ("shared", ctypes.c_void_p), ("shared_bytes", ctypes.c_long), ("stacks", ctypes.c_void_p), ("stack_bytes", ctypes.c_long),
        ("threads", ctypes.c_void_p), ("status", ctypes.c_long),
    )  # fmt: skip


def unavailable_reason() -> str | None:
    """Return why there is no shim on this system, or None."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"CUDA's shim: it runs on x86-64, and this is {platform.machine()}"
    return tinycc.unavailable_reason()


def do_threads_meet(source: str) -> bool:
    """Return True if the threads of a block wait for each other: at a Barrier, or to exchange the operands of a Wmma."""
    return "__syncthreads" in source or "uops_wait" in source


def wrap_kernel_text(source: str, shape: LaunchShape) -> str:
    """Return C text that runs a kernel's launches."""
    arguments = [
        f"uops_scalars[{k}]" if kind == SCALAR else f"(unsigned char *)uops_buffers[{k}]"
        for k, kind in enumerate(shape.arguments)
        if kind
    ]
    meets = do_threads_meet(source)
    launcher = _LAUNCHER.replace("ENTRY", ENTRY).replace("ARGUMENTS", ", ".join(arguments))
    launcher = launcher.replace("MEETS", str(int(meets))).replace("DIVERGED", str(_DIVERGED))
    kernel = source.replace("extern __shared__ __align__(16) u8 shared[];", "", 1)  # the launcher's
    functions = mma.SHIM_FUNCTIONS + (accesses.SHIM_FUNCTIONS if "copy_async" in source or "load_matrices" in source else "")
    return (
        f"#define UOPS_LANES {max_lanes(shape.lanes)}\n"
        + _HEADER
        + functions
        + "#line 1\n"
        + kernel
        + (_SWITCH if meets else "void uops_switch(void **save, void *to) {}\n")
        + launcher
    )


#: One launch at a time: the launcher of a kernel keeps its state in variables of its own.
_lock = threading.Lock()


class ShimKernel:
    """A kernel of CUDA C as a function of this process."""

    def __init__(self, source: str, shape: LaunchShape) -> None:
        self.shape = shape
        self._code = tinycc.compile_in_memory(wrap_kernel_text(source, shape), "uops_run")
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._code.address)
        self._meets = do_threads_meet(source)
        size = _STACK + _STACK_PER_CHARACTER * len(source) + shape.private_bytes
        self._stack_bytes = -(-size // _PAGE) * _PAGE

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run the kernel once on host addresses. Raises Crash if threads of a block do not meet."""
        groups, lanes = self.shape.count_groups_and_lanes(scalars)
        if not groups * lanes:
            return
        table = (ctypes.c_uint64 * (len(buffers) or 1))(*buffers)
        values = (ctypes.c_int64 * (len(scalars) or 1))(*scalars)
        shared = ctypes.create_string_buffer(self.shape.local_bytes + 16)
        stacks = mmap.mmap(-1, lanes * self._stack_bytes if self._meets else _PAGE)
        threads = (ctypes.c_void_p * lanes)()
        aligned = ctypes.addressof(shared) + -ctypes.addressof(shared) % 16
        base = ctypes.c_char.from_buffer(stacks)
        launch = _Launch(
            ctypes.addressof(table), ctypes.addressof(values), groups, lanes, aligned, self.shape.local_bytes,
            ctypes.addressof(base), self._stack_bytes, ctypes.addressof(threads), 0,
        )  # fmt: skip
        with _lock:
            self._run(ctypes.addressof(launch), None)
        del base
        stacks.close()
        if launch.status == _DIVERGED:
            raise Crash("R60 (Barrier): some threads of a block ended while others waited at a barrier")
