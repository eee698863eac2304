"""Block fusion: a chain of kernels computed block by block, so that intermediate values stay in the cache.

Takes: KERNEL. Gives: KERNEL, with some kernels fused. Spec: Lowering Pipeline/Optimize ("insert local buffers"); R59 (After), R61
(fresh buffers), R91 (cache tiling), R128 (private memory).

In a chain, each kernel writes memory that only the next one reads. Two neighbours share their outer output loops as far as all
accesses to that memory advance alike in them. The last shared loop is cut into blocks, and the memory of a block is LOCAL:

    for r: for j: m[r, j] = f            for b: {  for r', j: local[r', j] = f
    for r: for k: y[r, k] = g(m[r, .])   ->        for r', k: y[b, r', k] = g(local[r', .])  }

This pays where the memory between two kernels exceeds the second cache. That of a block must fit it, beside the operands that
every block reads again. Each part of a fused kernel is scheduled by itself (`parts`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.affine import AffineSum, build_affine_sum, extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent, finite_bounds
from uops.compiler.log import log_one_graphs_part_in_fusion, log_transform
from uops.compiler.passes.optimize.heuristics.scan import build_prefix_scan_body
from uops.compiler.passes.optimize.schedule.schedule import create_initial_schedule, replace_ranges, tile_index
from uops.compiler.target import MachineModel
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, is_variable, open_ranges

#: Most bytes of LOCAL memory for a chain: it is on the stack of a thread.
_MOST_BYTES = 1 << 19


class ChainKernel(NamedTuple):
    """One kernel of a chain: its Call, its Store, and its output loops, outermost first."""

    call: UOp
    effect: UOp
    loops: tuple[UOp, ...]

    def argument(self, slot: int) -> UOp:
        """Return the argument that the Call binds to the Param of a slot."""
        return self.call.arguments[slot]

    def loads(self, memory: UOp) -> list[UOp]:
        """Return the Loads from the memory that the Call passes as `memory`."""
        return [u for u in toposort(self.effect) if u.op is Op.LOAD and self.argument(u.buffer.operand.arg.slot) is memory]


def fuse_kernel_chains(root: UOp, memory_used_outside_launch: Collection[UOp], machine: MachineModel) -> UOp:
    """Fuse each chain of kernels in a launch into one kernel, on a machine with vectors and caches.

    `memory_used_outside_launch` is memory that is accessed outside the launch.
    """
    if not machine.vector_bytes or machine.workgroup or len(machine.caches) < 2 or len(root.src) < 2:
        return root
    chains = _ChainFinder(root.src, memory_used_outside_launch, machine)
    calls, fused, k = list[UOp](), dict[UOp, UOp](), 0
    while k < len(root.src):
        chain, common = chains.find_longest_chain_and_loop_count(k)
        rows = _choose_rows_per_block_or_zero(chain, common, machine) if common > 1 else 0
        calls.append(_fuse_chain(chain, common, rows) if rows else root.src[k])
        if rows:
            fused.update({p.call: calls[-1] for p in chain})
        k += len(chain) if rows else 1
    launch = root.replace(src=tuple(calls))
    log_transform("join", root, launch, fused)
    return launch


# ------------------------------------------------------------------------------------------------------------------ chains


class _ChainFinder:
    """The chains in a launch. The loops that two neighbours share are computed once, for all chains that are tried."""

    def __init__(self, calls: Sequence[UOp], external: Collection[UOp], machine: MachineModel) -> None:
        self.calls, self.external, self.machine = calls, external, machine
        self.uses = Counter(a for c in calls for a in dict.fromkeys(c.arguments))
        self._kernels: dict[int, ChainKernel | None] = {}
        self._common_loops: dict[int, int] = {}

    def find_longest_chain_and_loop_count(self, first_index: int) -> tuple[list[ChainKernel], int]:
        """Find the longest chain that begins with call `first_index`, and the number of loops that its kernels share: 0 if fusion
        cannot pay."""
        first = self.get_chain_kernel(first_index)
        if first is None:
            return [], 0
        chain, arguments, common, row = [first], {*first.call.arguments}, len(first.loops), 0
        while shared := self.count_loops_shared_with_sole_reader(first_index + len(chain) - 1):
            part = self.get_chain_kernel(first_index + len(chain))
            if part is None or part.argument(0) in arguments:
                break
            chain.append(part)
            arguments.update(part.call.arguments)
            row = row + _row_bytes(chain[-2], common) if shared >= common else sum(_row_bytes(p, shared) for p in chain[:-1])
            common = min(common, shared)
            if self.is_unprofitable_however_extended(first, common, row):
                return chain, 0
        return chain, common if len(chain) > 1 else 0

    def get_chain_kernel(self, call_index: int) -> ChainKernel | None:
        """Return call `call_index` as a kernel of a chain, or None if it cannot be one."""
        if call_index not in self._kernels:
            self._kernels[call_index] = _make_chain_kernel_if_fusible(self.calls[call_index])
        return self._kernels[call_index]

    def count_loops_shared_with_sole_reader(self, writer_index: int) -> int:
        """Count the loops that call `writer_index` and the next one share, if the next one is its only reader; else 0."""
        if writer_index not in self._common_loops:
            self._common_loops[writer_index] = self._count_loops_shared_with_next_kernel(writer_index)
        return self._common_loops[writer_index]

    def _count_loops_shared_with_next_kernel(self, writer_index: int) -> int:
        writer = self.get_chain_kernel(writer_index)
        if writer is None or writer_index + 1 == len(self.calls):
            return 0
        memory = writer.argument(0)
        if memory.op is not Op.BUFFER or memory in self.external or self.uses[memory] != 2:
            return 0
        reader = self.get_chain_kernel(writer_index + 1) if memory in self.calls[writer_index + 1].arguments[1:] else None
        return _count_loops_advancing_alike(writer, reader, memory) if reader else 0

    def is_unprofitable_however_extended(self, first: ChainKernel, common_loop_count: int, row_bytes: int) -> bool:
        """Return True if no chain that begins with `first` pays: as it grows, rows take more bytes and no more loops are shared."""
        extents = [constant_extent(r) for r in first.loops[:common_loop_count]]
        return (
            common_loop_count < 2
            or max(extents) < self.machine.thresholds.block_rows
            or max(extents[:-1]) < self.machine.cores
            or row_bytes * self.machine.thresholds.block_rows > _max_block_bytes(self.machine)
        )


def _make_chain_kernel_if_fusible(call: UOp) -> ChainKernel | None:
    """Return a kernel that stores one element per iteration of parallel loops of constant extents; None for any other kernel.

    A copy from another device is none: what it reads stays on that device.
    """
    if len({base_memory(a).device for a in call.arguments} - {None}) > 1:
        return None
    s = create_initial_schedule(call.body)
    if s is None or call.arg.written != (0,) or s.ordered_ids or s.effect.gate is not None or len(s.outputs) < 2:
        return None
    order = toposort(s.effect, *s.outputs)
    constant = all(u.bound.op is Op.CONST for u in order if u.op is Op.RANGE)
    only_params = all(u.operand.op is Op.PARAM and u.operand.arg.name is None for u in order if u.op is Op.INDEX)
    if not constant or not only_params or build_prefix_scan_body(s, itertools.count()) is not None:
        return None
    return ChainKernel(call, s.effect, s.outputs)


def _count_loops_advancing_alike(writer: ChainKernel, reader: ChainKernel, memory: UOp) -> int:
    """Count the outer loops in which the Store of `writer` and all Loads of `reader` advance alike through `memory`."""
    strides = _strides(writer.loops)
    if extract_affine_sum(writer.effect.buffer.positions[0]) != AffineSum(dict(zip(writer.loops, strides, strict=True)), 0):
        return 0
    loads = [extract_affine_sum(u.buffer.positions[0]) for u in reader.loads(memory)]
    matching = 0
    for a, b, stride in zip(writer.loops, reader.loops, strides):
        if a.bound is not b.bound or any(t.terms.get(b) != stride for t in loads):
            break
        matching += 1
    while matching and not all(_is_offset_within_block(t, reader.loops[:matching], strides[matching - 1]) for t in loads):
        matching -= 1
    return matching


def _strides(loops: Sequence[UOp]) -> list[int]:
    """Return the row-major strides of nested loops."""
    return [math.prod(map(constant_extent, loops[k + 1 :])) for k in range(len(loops))]


def _is_offset_within_block(address: AffineSum, loops_to_ignore: Sequence[UOp], block_size: int) -> bool:
    """Return True if an address, without the terms of `loops_to_ignore`, is in [0, `block_size`)."""
    low = high = address.constant
    for u, k in address.terms.items():
        if u not in loops_to_ignore:
            bounds = finite_bounds(u)
            if bounds is None:
                return False
            ends = sorted(x * k for x in bounds)
            low, high = low + ends[0], high + ends[1]
    return 0 <= low and high < block_size


# --------------------------------------------------------------------------------------------------------------- cost model


def _choose_rows_per_block_or_zero(chain: Sequence[ChainKernel], common_loop_count: int, machine: MachineModel) -> int:
    """Return the number of rows per block, or 0 if fusion does not pay."""
    cache, row = machine.caches[1], sum(_row_bytes(p, common_loop_count) for p in chain[:-1])
    rows = math.prod(constant_extent(r) for r in chain[0].loops[:common_loop_count])
    n = constant_extent(chain[0].loops[common_loop_count - 1])
    most = _max_block_bytes(machine) // row
    block = next((k for k in range(min(n, most), machine.thresholds.block_rows - 1, -1) if n % k == 0), 0)
    reread = sum(_count_bytes_reread_in_each_block(p, common_loop_count) for p in chain)
    outer = max(constant_extent(r) for r in chain[0].loops[: common_loop_count - 1])
    return block if rows * row > cache and reread <= cache // 2 and outer >= machine.cores else 0


def _row_bytes(part: ChainKernel, common_loop_count: int) -> int:
    """Return the bytes of one row that a kernel stores."""
    return _strides(part.loops)[common_loop_count - 1] * part.effect.value.dtype.itemsize


def _max_block_bytes(machine: MachineModel) -> int:
    """Return the most bytes that a block may take: half of the second cache, within the stack."""
    return min(machine.caches[1] // 2, _MOST_BYTES)


def _count_bytes_reread_in_each_block(part: ChainKernel, common_loop_count: int) -> int:
    """Count the bytes that a kernel reads again in each block."""
    loads = [u for u in toposort(part.effect) if u.op is Op.LOAD]
    needs = open_ranges(toposort(part.effect))
    block, outer = part.loops[common_loop_count - 1], part.loops[:common_loop_count]
    sizes = [(u, math.prod(constant_extent(r) for r in needs[u] if r not in outer)) for u in loads if block not in needs[u]]
    return sum(n * u.dtype.itemsize for u, n in sizes)


# ------------------------------------------------------------------------------------------------------------- construction


class _ChainFusion:
    """The kernel under construction for a chain: the shared loops around, and new numbers for loops and Params."""

    def __init__(self, chain: Sequence[ChainKernel], common: int, rows: int) -> None:
        self.common, self.rows = common, rows
        extents = [constant_extent(r) for r in chain[0].loops[:common]]
        extents[-1] //= rows
        self.around = [UOp(Op.RANGE, (index_constant(n),), RangeArg(k, AxisType.LOOP)) for k, n in enumerate(extents)]
        used = (int(u.arg.axis_id) for part in chain for u in toposort(part.effect, *part.loops) if u.op is Op.RANGE)
        self.axis = 1 + max(used)  # a new loop is none of those that it replaces, or stands beside
        self.arguments = [chain[-1].argument(0)]
        self.local: dict[UOp, UOp] = {}  # memory between two kernels -> LOCAL memory of a block

    def new_range(self, like: UOp, bound: UOp) -> UOp:
        """Return a new loop with the type of `like`."""
        self.axis += 1
        return UOp(Op.RANGE, (bound,), RangeArg(self.axis - 1, like.arg.type))

    def renumber_param_and_add_argument(self, param: UOp, call_argument: UOp) -> UOp:
        """Return Param `param` with the slot of `call_argument` in the fused Call."""
        if call_argument not in self.arguments:
            self.arguments.append(call_argument)
        return param.replace(arg=replace(param.arg, slot=self.arguments.index(call_argument)))

    def translate_effect_and_inner_loops(self, part: ChainKernel, local_buffer_number: int) -> tuple[UOp, list[UOp]]:
        """Return a kernel's effect inside the shared loops, and its remaining loops. `local_buffer_number` numbers its LOCAL
        Buffer."""
        row = self.new_range(part.loops[self.common - 1], index_constant(self.rows))
        memory = part.argument(0)
        last = memory is self.arguments[0]
        if not last:
            size = self.rows * _strides(part.loops)[self.common - 1]
            self.local[memory] = UOp(
                Op.BUFFER, (), BufferArg(size, part.effect.value.dtype, "CPU", AddrSpace.LOCAL, local_buffer_number)
            )
        redirected = self._map_params_and_local_addresses(part, row)
        effect = substitute(part.effect, redirected)
        log_transform("join", part.call.body, effect, redirected)
        loops: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {r: (a, (a,)) for r, a in zip(part.loops, self.around[:-1])}
        loops[part.loops[self.common - 1]] = (tile_index(self.around[-1], self.rows, row), (row,))
        inner = sorted({u for u in toposort(part.effect) if u.op is Op.RANGE} - loops.keys(), key=lambda r: int(r.arg.axis_id))
        loops.update({r: (n, (n,)) for r in inner if (n := self.new_range(r, r.bound))})
        return replace_ranges(effect, loops), [row, *(loops[r][0] for r in part.loops[self.common :])]

    def _map_params_and_local_addresses(self, part: ChainKernel, row_in_block: UOp) -> dict[UOp, UOp]:
        """Map the Params and addresses of a kernel to those of the fused kernel, where memory between two kernels is LOCAL."""
        order = toposort(part.effect)
        variables = {u: self.renumber_param_and_add_argument(u, part.argument(u.arg.slot)) for u in order if is_variable(u)}
        redirected = dict(variables)
        for u in order:
            if u.op is not Op.INDEX:
                continue
            argument = part.argument(u.operand.arg.slot)
            if argument not in self.local:
                redirected[u.operand] = self.renumber_param_and_add_argument(u.operand, argument)
                continue
            t, outer = extract_affine_sum(u.positions[0]), part.loops[: self.common]
            terms = {row_in_block: t.terms[outer[-1]], **{x: k for x, k in t.terms.items() if x not in outer}}
            position = substitute(build_affine_sum(AffineSum(terms, t.constant)), variables)
            redirected[u] = UOp(Op.INDEX, (self.local[argument], position))
        return redirected


def _fuse_chain(chain: Sequence[ChainKernel], common_loop_count: int, rows_per_block: int) -> UOp:
    """Return the Call of one kernel that computes a chain in blocks of `rows_per_block`."""
    fusion, ready, parts = (
        _ChainFusion(chain, common_loop_count, rows_per_block),
        dict[UOp, UOp](),
        list[tuple[UOp, dict[UOp, UOp], UOp, UOp]](),
    )
    call = chain[-1].call
    for k, part in enumerate(chain):
        effect, loops = fusion.translate_effect_and_inner_loops(part, 1 + k)
        inner, local = substitute(effect, ready), fusion.local.get(part.argument(0))
        if local is None:
            name = f"joined_{call.body.arg.name}" if call.body.arg else "joined"
            outer = UOp(Op.SINK, (B.wrap_in_one_end_per_loop(inner, [*fusion.around, *loops]),), SinkArg(name))
        else:
            outer = B.after(local, B.wrap_in_one_end_per_loop(inner, loops))
        parts.append((effect, dict(ready), inner, outer))
        if local is not None:
            ready[local] = outer
    body = parts[-1][-1]
    for effect, replacements, inner, outer in parts:
        log_one_graphs_part_in_fusion("join", effect, body, replacements, inner, outer)
    return call.replace(src=(body, *fusion.arguments))
