"""Prefix reductions as scans: n steps instead of n windows of n elements.

A kernel stores, for i in 0..N-1, a value computed from R(i) = op over r in 0..n-1 of T(i, r). Let T depend on i + r alone, T(i, r)
= t(i + r), and let t be the identity of op below both n-1 and N-1. No window then has other terms than the identity before its
last one, or loses one to the next: R(i) = op(R(i-1), t(i+n-1)), with R(-1) the identity. Both conditions are proved by the normal
form of index arithmetic: substituting i + r into t gives T again, and t on 0..max(n, N)-2 folds to the identity.

A kernel may have several scans over one i. Loops inside i on which they depend are columns, which take a step together: REG memory
holds an accumulator for each, so that memory is read row by row. Many columns are cut into tiles that fit this memory.

Cores share the rows, or the columns if there is one row of them. Of one long row each core has a part, and first reduces
everything before it: reading costs less than the dependence chain of the steps. Spec: prefix_sum among the compositions; R32 (a
Reduce may take any order), R49 (listing helpers), R57 (order of Ranges), R91 (cache tiling), R133 (THREAD on a CPU).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.accumulators import (
    accumulator_dtype,
    build_register_and_clear_effect,
    cast_value_or_factors_to_accumulator,
    combine_with_accumulator,
    element_address,
    reduction_identity,
)
from uops.compiler.ir.affine import build_affine_sum, extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.passes.optimize.schedule.moves import largest_divisor
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, make_loop_or_zero, next_id, tile_index
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import RING_OPS, Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by

#: Fewest steps of a scan, and elements of a window, that pay for a loop-carried value.
LEAST = 8
#: Most parts of one row; the last part reads everything before it.
_MOST_PARTS = 4
#: Elements that are read side by side while the prefix of a part is reduced.
LANES = 64


def build_prefix_scan_body(s: Schedule, uniques: Iterator[int], machine: MachineModel = PLAIN) -> UOp | None:
    """Return the SCHEDULED body of a kernel with prefix reductions over an output loop, or None for any other kernel.

    `uniques` numbers the accumulators. If loops must keep their order, only the innermost one can be the scan's.
    """
    reduces = nodes_with_op(s.effect, Op.REDUCE)
    if not reduces:
        return None
    needs = open_ranges(toposort(s.effect))
    reduces = [u for u in reduces if needs[u].issubset(s.outputs) and len(ranges_closed_by(u)) == 1]  # not nested
    simplify = Rewriter(INDEXING)
    for i in reversed(s.outputs[-1:] if s.ordered_ids else s.outputs):
        terms = {u: _match_prefix_reduce_and_get_last_term(u, i, simplify) for u in reduces if i in needs[u]}
        inner = s.outputs[s.outputs.index(i) + 1 :]
        scans = [(u, term) for u, term in terms.items() if term is not None]
        columns = bool(scans) and not needs[scans[0][0]].isdisjoint(inner)
        scans = [(u, term) for u, term in scans if needs[u].isdisjoint(inner) is not columns]
        if scans:
            loops = _choose_scan_threads_and_column_tiles(s, i, columns, machine, accumulator_dtype(scans[0][0].dtype))
            return _build_scan_body(s, scans, i, loops, uniques)
    return None


def _match_prefix_reduce_and_get_last_term(u: UOp, i: UOp, simplify: Rewriter) -> UOp | None:
    """Return t(i + n-1) if Reduce `u` is a prefix reduction over `i`, else None."""
    (r,) = ranges_closed_by(u)
    n, steps = axis_of(r).extent, axis_of(i).extent
    if not isinstance(n, int) or not isinstance(steps, int) or min(n, steps) < LEAST:
        return None
    for x in nodes_with_op(u.operand, Op.INDEX):  # an early exit for products and sums of rows
        strides = extract_affine_sum(x.positions[0]).terms
        if strides.get(i, 0) != strides.get(r, 0):
            return None
    at = UOp(Op.RANGE, (index_constant(steps + n - 1),), RangeArg(-1, AxisType.LOOP))
    term = simplify(substitute(u.operand, {i: index_constant(0), r: at}))
    windowed = _normalize_index_sums(simplify(substitute(term, {at: UOp(Op.ADD, (i, r))})))
    if windowed is not _normalize_index_sums(simplify(u.operand)):
        return None
    before = UOp(Op.RANGE, (index_constant(max(n, steps) - 1),), at.arg)  # what window 0 starts with, and what windows lose
    early = _fold_disabled_loads(simplify(substitute(term, {at: before})), simplify)
    if early is not reduction_identity(u.arg.op, u.dtype):
        return None
    return simplify(substitute(term, {at: UOp(Op.ADD, (i, index_constant(n - 1)))}))


def _normalize_index_sums(u: UOp) -> UOp:
    """Multiply out every sum of loops in `u`, so that (i + r) * -1 and i * -1 + r * -1 become one node."""
    done: dict[UOp, UOp] = {}
    for x in toposort(u):
        y = x.replace(src=tuple(done[s] for s in x.src))
        done[x] = build_affine_sum(extract_affine_sum(y)) if y.dtype is dt.index and y.op in RING_OPS else y
    return done[u]


def _fold_disabled_loads(u: UOp, simplify: Rewriter) -> UOp:
    """Replace every Load whose gate is constant false by its alternative (R52: Load)."""
    gated = [(x, x.alternative, x.gate) for x in toposort(u) if x.op is Op.LOAD]
    dead = {x: alternative for x, alternative, gate in gated if alternative and gate and gate.op is Op.CONST and not gate.arg.value}
    return simplify(substitute(u, dead)) if dead else u


class _ScanLoops(NamedTuple):
    """The loops of a scan.

    `outer` are around, `i` is the loop of the steps, and `inner` are inside each step. `clear_loops` clear the accumulators of
    columns. `substitutions` maps former loops to what replaces them. `prefix_index_and_loops` is an index before step 0, and the
    loops that run it through all of them.
    """

    outer: tuple[UOp, ...]
    i: UOp
    inner: tuple[UOp, ...] = ()
    clear_loops: tuple[UOp, ...] = ()
    substitutions: dict[UOp, UOp] = {}  # noqa: RUF012
    prefix_index_and_loops: tuple[UOp, ...] = ()


def _build_scan_body(
    s: Schedule, reduces_and_last_terms: Sequence[tuple[UOp, UOp]], i: UOp, scan_loops: _ScanLoops, uniques: Iterator[int]
) -> UOp:
    """Return the body: each step adds the last term of every Reduce to its accumulator, in order."""
    columns = scan_loops.inner if scan_loops.clear_loops else ()
    sizes = [constant_extent(r) for r in columns]
    effect, stores = substitute(s.effect, scan_loops.substitutions), list[UOp]()
    for k, (u, term) in enumerate(reduces_and_last_terms):
        register, cleared = build_register_and_clear_effect(
            u, scan_loops.outer, next(uniques), _renumber_loops_for_reduce(scan_loops.clear_loops, k)
        )
        if scan_loops.prefix_index_and_loops:
            index, *loops = scan_loops.prefix_index_and_loops
            renumbered = _renumber_loops_for_reduce(loops, k)
            index = substitute(index, dict(zip(loops, renumbered, strict=True)))
            start = u.replace(src=(substitute(cast_value_or_factors_to_accumulator(term), {i: index}), *renumbered))
            cleared = B.store(cleared.buffer, B.cast(start, register.dtype))
        running = element_address(B.after(register, cleared, scan_loops.i), columns, sizes)
        total = combine_with_accumulator(u, running, substitute(term, scan_loops.substitutions))
        stores.append(B.store(running, total))
        effect = substitute(effect, {substitute(u, scan_loops.substitutions): B.cast(total, u.dtype)})
    body = B.group(*stores, effect if columns else B.wrap_in_one_end_per_loop(effect, scan_loops.inner))
    return UOp(
        Op.SINK,
        (Rewriter(INDEXING)(B.wrap_in_one_end_per_loop(body, [*scan_loops.outer, scan_loops.i, *columns])),),
        SinkArg(s.name),
    )


def _renumber_loops_for_reduce(loops: Sequence[UOp], k: int) -> list[UOp]:
    """Return copies of the loops, which have the highest axis ids, with new ids for the k-th Reduce."""
    return [r.replace(arg=RangeArg(int(r.arg.axis_id) + k * len(loops), r.arg.type)) for r in loops]


def _choose_scan_threads_and_column_tiles(
    s: Schedule, i: UOp, has_columns: bool, machine: MachineModel, sum_dtype: DType
) -> _ScanLoops:
    """Return the loops as they are, tiled, or with one for the cores."""
    k = s.outputs.index(i)
    outer, inner, threads = s.outputs[:k], s.outputs[k + 1 :], dict[UOp, UOp]()
    extents = [n for n in (axis_of(r).extent for r in s.outputs) if isinstance(n, int)]
    constant = len(extents) == len(s.outputs)
    cores = machine.cores if not s.ordered_ids and constant and math.prod(extents) >= machine.thresholds.shared_scan_elements else 1
    if cores > 1 and outer:
        first, *rest = outer
        threads[first] = first.replace(arg=RangeArg(first.arg.axis_id, AxisType.THREAD))
        outer, cores = (threads[first], *rest), 1
    loops = _ScanLoops(outer, i, inner, substitutions=threads)
    if has_columns and constant:
        return _tile_scan_columns(loops, machine.lanes(sum_dtype), machine.thresholds.scan_columns, cores, next_id(s))
    if has_columns:  # of symbolic extents: one column after the other
        return _ScanLoops((*outer, *inner), i)
    return loops if cores == 1 or inner else _split_scan_across_cores_with_prefix_reduces(i, cores, next_id(s))


def _tile_scan_columns(scan_loops: _ScanLoops, lanes: int, max_columns: int, cores: int, first_free_id: int) -> _ScanLoops:
    """Let all inner loops take a step together, in tiles of at most `max_columns` that fit a core's share."""
    ids, substitutions = itertools.count(first_free_id), dict(scan_loops.substitutions)
    around: list[UOp] = []
    columns: list[UOp] = []
    room = max_columns
    for k, r in reversed([*enumerate(scan_loops.inner)]):
        n = constant_extent(r)
        shared = k == 0 and cores > 1 and n % (cores * lanes) == 0
        size = largest_divisor(n, max(1, min(room, n // cores if shared else n)))
        width = lanes if r is scan_loops.inner[-1] and size % lanes == 0 else 1
        far = make_loop_or_zero(n // size, next(ids), AxisType.THREAD if shared else AxisType.LOOP)
        near, lane = make_loop_or_zero(size // width, next(ids)), make_loop_or_zero(width, next(ids), AxisType.UPCAST)
        substitutions[r] = tile_index(far, size, tile_index(near, width, lane))
        around, columns, room = [far, *around], [near, lane, *columns], room // size
    around, columns = ([r for r in loops if r.op is Op.RANGE] for loops in (around, columns))
    clear_loops = tuple(make_loop_or_zero(constant_extent(r), next(ids), r.arg.type) for r in columns)
    return _ScanLoops((*scan_loops.outer, *around), scan_loops.i, tuple(columns), clear_loops, substitutions)


def _split_scan_across_cores_with_prefix_reduces(i: UOp, cores: int, first_free_id: int) -> _ScanLoops:
    """Split the steps of one row into parts, each of which first reduces everything before it."""
    n = constant_extent(i)
    parts = min(cores, _MOST_PARTS)
    size = -(-n // parts // LANES) * LANES
    part = UOp(Op.RANGE, (index_constant(-(-n // size)),), RangeArg(first_free_id, AxisType.THREAD))
    steps = index_constant(size)
    if n % size:
        left = UOp(Op.SUB, (index_constant(n), UOp(Op.MUL, (part, index_constant(size)))))
        steps = UOp(Op.WHERE, (UOp(Op.CMPLT, (left, index_constant(size))), left, index_constant(size)))
    step = UOp(Op.RANGE, (steps,), RangeArg(first_free_id + 1, AxisType.LOOP))
    whole, block, lane = (
        UOp(Op.RANGE, (bound,), RangeArg(first_free_id + k, kind))
        for k, bound, kind in (
            (2, part, AxisType.REDUCE),
            (3, index_constant(size // LANES), AxisType.REDUCE),
            (4, index_constant(LANES), AxisType.UNROLL),
        )
    )
    prefix = tile_index(tile_index(whole, size // LANES, block), LANES, lane)
    substitutions = {i: tile_index(part, size, step)}
    return _ScanLoops((part,), step, substitutions=substitutions, prefix_index_and_loops=(prefix, whole, block, lane))
