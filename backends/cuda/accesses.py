"""Accesses of several elements in CUDA C: wide loads and stores, asynchronous copies, and matrices for tensor cores.

What is rendered lane by lane in other languages is one instruction here, where the kernel shows that the elements are neighbours
and that the first one is aligned:

- Loads of 4 to 16 bytes from LOCAL memory, and from GLOBAL memory that the kernel only reads. The launch sees to the alignment of
  the argument (`uops.backends.cuda.target`). Stores of as many bytes to LOCAL memory.
- A Store of such a Load to LOCAL memory that is read after a Barrier alone: `cp.async`. Every Barrier waits for the copies.
- The fragment of a Wmma that is loaded from LOCAL memory: `ldmatrix`. The lanes of a warp name the rows of 8 by 8 matrices, and get
  the elements that the lane maps give them. Which rows those are is computed from the positions of the fragment's Loads, and
  checked for all lanes.

The shim copies asynchronously too, at the next wait, and exchanges the rows of matrices between lanes.

Spec: Load, Store, Barrier; R60 (Barrier), R118 (Wmma's fragments). PTX ISA: 9.7.9.25 (cp.async), 9.7.14.5.15 (ldmatrix).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from uops.backends.cstyle.neighbours import is_multiple_of
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

#: Bytes of one access, the widest first.
WIDTHS = (16, 8, 4)
#: Bytes of a row of a matrix that `ldmatrix` loads, and rows of one.
_ROW, _ROWS = 16, 8
_LANES = 32

WIDE_TYPES = """typedef struct __align__(16) { u32 word[4]; } w16;
typedef struct __align__(8) { u32 word[2]; } w8;
typedef u32 w4;
"""
COPY_ASYNC = """static __device__ inline void copy_async(u8 *to, const u8 *from, const int size) {
#ifdef __CUDACC__
  u32 at = (u32)__cvta_generic_to_shared(to);
  if (size == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
  else if (size == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(at), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(from) : "memory");
#else
  uops_copy_later(to, from, size);
#endif
}
static __device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  uops_copy_now();
#endif
}
"""
_LOAD_MATRICES = """static __device__ inline void load_matrices_{count}{suffix}(u32 *d, const u8 *row) {{
#ifdef __CUDACC__
  u32 at = (u32)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{qualifier}.shared.b16 {{{registers}}}, [%{count}];"
               : {outputs} : "r"(at) : "memory");
#else
  uops_load_matrices(d, row, {count}, {is_transposed});
#endif
}}
"""
#: C of the shim: copies that happen at the next wait, and matrices from rows that the lanes of a warp name.
SHIM_FUNCTIONS = """
#define UOPS_COPIES
static struct { unsigned char *to; const unsigned char *from; int size; } uops_copies[UOPS_LANES][64];
static int uops_copy_counts[UOPS_LANES];
static void uops_copy_now() {
  int n = uops_copy_counts[threadIdx.x];
  for (int k = 0; k < n; k++) for (int b = 0; b < uops_copies[threadIdx.x][k].size; b++)
    uops_copies[threadIdx.x][k].to[b] = uops_copies[threadIdx.x][k].from[b];
  uops_copy_counts[threadIdx.x] = 0;
}
static void uops_copy_later(unsigned char *to, const unsigned char *from, int size) {
  if (uops_copy_counts[threadIdx.x] == 64) uops_copy_now();
  int k = uops_copy_counts[threadIdx.x]++;
  uops_copies[threadIdx.x][k].to = to; uops_copies[threadIdx.x][k].from = from; uops_copies[threadIdx.x][k].size = size;
}
static const unsigned short *uops_rows[UOPS_LANES];
static void uops_load_matrices(unsigned *d, const unsigned char *row, int count, int transposed) {
  int lane = threadIdx.x % 32;
  uops_rows[threadIdx.x] = (const unsigned short *)row;
  uops_wait();
  const unsigned short **rows = uops_rows + threadIdx.x / 32 * 32;
  for (int k = 0; k < count; k++) {
    int r = transposed ? lane % 4 * 2 : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2;
    unsigned low = rows[8 * k + r][c], high = transposed ? rows[8 * k + r + 1][c] : rows[8 * k + r][c + 1];
    d[k] = low | high << 16;
  }
  uops_wait();
}
"""


def render_load_matrices(count: int, is_transposed: bool) -> tuple[str, str]:
    """Return the name and the definition of the function that loads 1, 2 or 4 matrices."""
    suffix, qualifier = ("_transposed", ".trans") if is_transposed else ("", "")
    registers = ", ".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"=r"(d[{k}])' for k in range(count))
    return f"load_matrices_{count}{suffix}", _LOAD_MATRICES.format(
        count=count, suffix=suffix, qualifier=qualifier, registers=registers, outputs=outputs, is_transposed=int(is_transposed)
    )


def find_buffers_copied_and_read_after_barriers(instructions: Sequence[UOp]) -> set[UOp]:
    """Return the LOCAL Buffers that copies may fill asynchronously: all reads follow Barriers, and all Stores are of loaded values.

    A kernel with atomic additions, or with instructions or code of the target, has none.
    """
    buffers = {u for u in instructions if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL}
    for u in instructions:
        if u.op is Op.LOAD and base_memory(u.buffer) in buffers:
            reference = u.buffer.operand if u.buffer.op is Op.INDEX else u.buffer
            after_barrier = reference.op is Op.AFTER and all(d.op is Op.BARRIER for d in reference.dependencies)
            if not after_barrier:
                buffers.discard(base_memory(u.buffer))
        elif u.op is Op.STORE and base_memory(u.buffer) in buffers and u.value.op is not Op.LOAD:
            buffers.discard(base_memory(u.buffer))
        elif u.op in (Op.ATOMICADD, Op.INS, Op.CUSTOM, Op.CUSTOMI):
            return set()
    return buffers


# --------------------------------------------------------------------------------------------------------------- matrices


class MatrixLoad(NamedTuple):
    """A fragment as matrices of rows in memory.

    Lane `l` names the row at `position(lane_of_row(l)) + offset(l)`, where `position` is that of the fragment's first element.
    `lane_of_row` and `offset` are C expressions of `l`; `matrices` is their number: 1, 2 or 4.
    """

    memory: UOp
    position: UOp
    warp: UOp
    lane_of_row: str
    offset: str
    matrices: int
    is_transposed: bool


def match_matrix_load(
    fragment: UOp, itemsize: int, is_untouched: Callable[[Sequence[UOp]], bool]
) -> MatrixLoad | None:  # fmt: skip
    """Return a fragment of elements of `itemsize` bytes as matrices that `ldmatrix` loads, or None.

    `is_untouched` says if no instruction after Loads changes the memory that they read.
    """
    loads = _loads_of_fragment(fragment)
    if itemsize > 2 or not loads or len({base_memory(x.buffer) for x in loads}) != 1 or not is_untouched(loads):
        return None
    memory = base_memory(loads[0].buffer)
    per_register, count = 4 // itemsize, len(loads) * itemsize // 4
    if memory.op is not Op.BUFFER or memory.arg.addrspace is not AddrSpace.LOCAL or count not in (1, 2, 4):
        return None
    positions = [x.buffer.positions[0] for x in loads]
    warps = [r for r in toposort(positions[0]) if r.op is Op.RANGE and r.arg.type is AxisType.WARP]
    if len(warps) != 1 or warps[0].bound.op is not Op.CONST or int(warps[0].bound.const) != _LANES:
        return None
    sums = [_split_sum(p, warps[0]) for p in positions]
    if any(s is None or s.common != sums[0].common for s in sums if sums[0] is not None) or sums[0] is None:
        return None
    table = [[s.of_lane[t] for s in sums if s is not None] for t in range(_LANES)]
    if not all(is_multiple_of(u, _ROW // itemsize) for u in sums[0].common):
        return None
    for is_transposed in (False, True) if itemsize == 2 else (False,):
        rows = _rows_of_matrices(table, per_register, count, is_transposed)
        if rows is not None and all(r % (_ROW // itemsize) == 0 for r in rows):
            described = _render_row_lane_and_offset(rows, table, count, is_transposed)
            if described is not None:
                return MatrixLoad(loads[0].buffer.operand, positions[0], warps[0], *described, count, is_transposed)
    return None


def _loads_of_fragment(u: UOp) -> list[UOp]:
    """Return the scalar Loads of a fragment's elements, without gates; none if an element is anything else."""
    while u.op is Op.BITCAST:
        u = u.operand
    if u.op is Op.STACK:
        parts = [_loads_of_fragment(s) for s in u.src]
        return [x for p in parts for x in p] if all(parts) else []
    is_plain = u.op is Op.LOAD and len(u.src) == 1 and u.shape == () and u.buffer.op is Op.INDEX and len(u.buffer.positions) == 1
    return [u] if is_plain else []


class _PositionSum(NamedTuple):
    """A position: the terms that all lanes share, and the rest by the number of the lane."""

    common: tuple[UOp, ...]
    of_lane: tuple[int, ...]


def _split_sum(position: UOp, warp: UOp) -> _PositionSum | None:
    """Split a position into what depends on the lane alone and what does not depend on it; None if a term does both."""
    common, own, constant = list[UOp](), list[UOp](), 0
    pending = [position]
    while pending:
        u = pending.pop()
        if u.op is Op.ADD:
            pending += u.src
        elif u.op is Op.CONST:
            constant += int(u.const)
        elif warp in toposort(u):
            own.append(u)
        else:
            common.append(u)
    values = [[evaluate_for_lane(u, warp, t) for u in own] for t in range(_LANES)]
    if any(v is None for row in values for v in row):
        return None
    return _PositionSum(tuple(sorted(common, key=id)), tuple(constant + sum(v or 0 for v in row) for row in values))


def evaluate_for_lane(u: UOp, warp: UOp, lane: int) -> int | None:
    """Return the value of an expression of the lane's number, or None if it depends on anything else.

    None also if any value on the way is no integer from 0 to the most of its dtype and of C's int. Within these bounds, `OPERATORS`
    compute the same without casts.
    """
    if u is warp:
        return lane
    if not u.dtype.is_integer:
        return None
    if u.op is Op.CONST:
        value: int | None = int(u.const)
    else:
        values = [evaluate_for_lane(s, warp, lane) for s in u.src]
        if u.op not in _EVALUATE or any(v is None for v in values):
            return None
        value = _EVALUATE[u.op](*values)
    return value if value is not None and 0 <= value <= min(u.dtype.max, dt.int32.max) else None


#: The values of ops for numbers that are not negative; None where C has none: divisions by 0, and shifts by all bits of an int.
_EVALUATE: dict[Op, Callable[..., int | None]] = {
    Op.CAST: lambda x: x,
    Op.ADD: lambda x, y: x + y,
    Op.MUL: lambda x, y: x * y,
    Op.IDIV: lambda x, y: x // y if y else None,
    Op.MOD: lambda x, y: x % y if y else None,
    Op.AND: lambda x, y: x & y,
    Op.SHL: lambda x, y: x << y if y < dt.int32.bits else None,
    Op.SHR: lambda x, y: x >> y if y < dt.int32.bits else None,
}
#: The same ops in C, for numbers that are not negative.
OPERATORS = {Op.ADD: "+", Op.MUL: "*", Op.IDIV: "/", Op.MOD: "%", Op.AND: "&", Op.SHL: "<<", Op.SHR: ">>"}


def _rows_of_matrices(table: Sequence[Sequence[int]], per_register: int, count: int, is_transposed: bool) -> list[int] | None:
    """Return the position of the row that each lane must name, or None if the elements are not those of such rows."""
    rows = [0] * (_ROWS * count)
    for k in range(count):
        for r in range(_ROWS):
            lane, element = (r // 2, r % 2) if is_transposed else (4 * r, 0)
            rows[_ROWS * k + r] = table[lane][per_register * k + element]
    for t in range(_LANES):
        for k in range(count):
            for e in range(per_register):
                r, c = (t % 4 * 2 + e, t // 4) if is_transposed else (t // 4, t % 4 * per_register + e)
                if table[t][per_register * k + e] != rows[_ROWS * k + r] + c:
                    return None
    return rows


def _render_row_lane_and_offset(
    rows: Sequence[int], table: Sequence[Sequence[int]], count: int, is_transposed: bool
) -> tuple[str, str] | None:  # fmt: skip
    """Return the lane whose first element begins a row, and the distance between them, as C expressions of the lane `l`."""
    first = [table[(r % _ROWS) // 2 if is_transposed else r % _ROWS * 4][0] for r in range(len(rows))]
    odd = rows[1] - first[1] if is_transposed else 0
    steps = [rows[_ROWS << b] - rows[0] for b in range(2) if _ROWS << b < len(rows)]
    for k, row in enumerate(rows):
        distance = odd * (k % 2) + sum(s * (k // _ROWS >> b & 1) for b, s in enumerate(steps))
        if row != first[k] + distance:
            return None
    lane = "(l % 8 / 2)" if is_transposed else "(l % 8 * 4)"
    terms = [f"l % 2 * {odd}"] if odd else []
    terms += [f"(l / {_ROWS << b}) % 2 * {s}" for b, s in enumerate(steps) if s]
    return lane, " + ".join(terms) or "0"
