"""A kernel under scheduling: its effect, its loops, and the OptOps applied so far.

Takes: the Sink of a KERNEL body (`create_initial_schedule`). Gives: the SCHEDULED body (`close_output_loops_into_sink`).

`optops` in this folder applies OptOps with the helpers below: they replace Ranges throughout an effect and gate memory accesses.
Spec: Kernel Optimizations (OptOps); R90 to R98 (the OptOps).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.accumulators import reduction_identity
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent, loop_extent
from uops.compiler.ir.loops import sort_by_nesting, unwrap_nested_ends
from uops.compiler.ir.zero_trip import gate_loads_of_zero_trip_loops, infer_valid_element_count_by_param
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.parallel import find_race_free_loops_of_stores
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import MachineModel
from uops.spec.errors import UopsError
from uops.spec.ir import build as B
from uops.spec.ir.args import RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, nodes_with_op, toposort
from uops.spec.ir.ops import LOOP_CLOSERS, Op
from uops.spec.ir.scope import ranges_closed_by
from uops.spec.ir.sizes import divides
from uops.spec.optops import Axis, OptOp, Padto


class RejectedOptOp(UopsError):
    """An OptOp that must not be applied. The message gives the reason and its ruling."""


@dataclass(frozen=True)
class Schedule:
    """A kernel with open output loops, as OptOps transform it.

    `effect` is the kernel's Store (or Group) without the Ends of its output loops, which are `outputs`. Loops inside `effect` are
    closed there: those of Reduces and those that fill LOCAL memory. `done` are the OptOps applied so far.

    `ordered_ids` are the axis ids of output loops that keep their order, because two of their iterations may write one element.
    `initialized_sizes` pairs memory with the number of its leading elements that hold a value, as far as it is known.
    `shared` are the loops around a part of a fused kernel. LOCAL memory that the part reads is filled anew in each iteration.
    """

    name: str
    effect: UOp
    outputs: tuple[UOp, ...]
    done: tuple[OptOp, ...] = ()
    ordered_ids: frozenset[int] = frozenset()
    initialized_sizes: tuple[tuple[UOp, Dim], ...] = ()
    shared: tuple[UOp, ...] = ()

    @functools.cached_property
    def ranges(self) -> tuple[UOp, ...]:
        """Every loop, in axis order (R95: by priority, then by id)."""
        closers = nodes_with_op(self.effect, Op.END) + nodes_with_op(self.effect, Op.REDUCE)
        inner = dict.fromkeys([r for u in closers for r in ranges_closed_by(u)])
        return tuple(sort_by_nesting(dict.fromkeys((*self.outputs, *inner))))

    @functools.cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of `ranges`, as the specification's OptOps take them."""
        return tuple(axis_of(r) for r in self.ranges)


#: Chooses the schedule of a kernel: (initial schedule, machine, numbers for LOCAL Buffers) -> schedule.
Scheduler = Callable[[Schedule, MachineModel, Iterator[int]], Schedule]


def axis_of(r: UOp) -> Axis:
    """Return the id, type and extent of a Range; a symbolic extent is a node."""
    return Axis(r.arg.axis_id, r.arg.type, loop_extent(r))


def create_initial_schedule(sink: UOp) -> Schedule | None:
    """Return the schedule of a kernel as rangeify leaves it, or None if the body has another form and must keep its loops."""
    if sink.op is not Op.SINK or len(sink.effects) != 1 or (sink.arg is not None and sink.arg.scheduled):
        return None
    (effect,) = sink.effects
    effect, outputs = unwrap_nested_ends(effect)
    if effect.op is not Op.STORE:
        return None
    name, parallel = sink.arg.name if sink.arg else "kernel", find_race_free_loops_of_stores(effect)
    ordered_ids = frozenset(int(r.arg.axis_id) for r in outputs if r not in parallel)
    return Schedule(name, effect, outputs, (), ordered_ids, tuple(infer_valid_element_count_by_param(sink).items()))


def close_output_loops_into_sink(s: Schedule) -> UOp:
    """Return the SCHEDULED body of a kernel.

    Output loops nest by priority, then by id (R95, R109: the total order of axes), THREAD loops outside all others (R133: THREAD
    on a CPU). Loops of one iteration are dropped, and addresses are in normal form.
    """
    single = {r: (index_constant(0), ()) for r in s.ranges if axis_of(r).extent == 1}
    effect = Rewriter(INDEXING)(replace_ranges(s.effect, single))
    body = B.wrap_in_one_end_per_loop(effect, sorted([r for r in s.outputs if r not in single], key=lambda r: _nesting_key(s, r)))
    sink = UOp(Op.SINK, (body,), SinkArg(s.name))
    log_transform("loops", effect, sink)
    return gate_loads_of_zero_trip_loops(sink, Rewriter(INDEXING), dict(s.initialized_sizes))


def _nesting_key(s: Schedule, r: UOp) -> tuple[bool, int, int]:
    """Return the sort key of an output loop, outermost first. A THREAD loop stays inside loops that must keep their order."""
    return bool(s.ordered_ids) or r.arg.type is not AxisType.THREAD, r.arg.type.priority, int(r.arg.axis_id)


def set_output_loop_types_before_optops(s: Schedule, type_by_loop: Mapping[UOp, AxisType]) -> Schedule:
    """Give output loops another type: GLOBAL instead of LOOP.

    Raises RejectedOptOp after the first OptOp (R94: first types), or if iterations of a loop must keep their order.
    """
    late = f"types must be set before the first OptOp, {len(s.done)} are applied (R94)" if s.done else None
    if late or any(r.arg.axis_id in s.ordered_ids for r in type_by_loop):
        raise RejectedOptOp(late or "iterations may meet in one element, and GLOBAL has no order (R55, R57)")
    new = {r: r.replace(arg=range_arg(r, type=t)) for r, t in type_by_loop.items()}
    return replace_schedule_ranges(s, {r: (n, (n,)) for r, n in new.items()})


def pad_loop_and_mask_added_iterations(s: Schedule, opt: Padto) -> Schedule:
    """Round a loop's extent up to a multiple, with its accesses beyond the old bound gated off (R92: Padto masks added
    iterations)."""
    r = s.ranges[opt.axis]
    bound, multiple = r.bound, index_constant(opt.multiple)
    if bound.op is Op.CONST:
        padded = index_constant(round_up(r, opt.multiple))
    else:  # simplified, so that it is the node which the loop's closer refers to
        quotient = divide_bound(UOp(Op.ADD, (bound, index_constant(opt.multiple - 1))), opt.multiple)
        padded = Rewriter(INDEXING)(UOp(Op.MUL, (quotient, multiple)))
    if padded is bound or divides(opt.multiple, axis_of(r).extent):
        return s
    longer = UOp(Op.RANGE, (padded,), r.arg)
    outputs = tuple(longer if x is r else x for x in s.outputs)
    return replace(
        s,
        effect=replace_range_and_mask_iterations(s.effect, r, (longer, (longer,)), UOp(Op.CMPLT, (longer, bound))),
        outputs=outputs,
    )


def divide_bound(bound: UOp, divisor: int) -> UOp:
    """Return the bound divided by `divisor`, rounded down."""
    if bound.op is Op.CONST:
        return index_constant(int(bound.arg.value) // divisor)
    return Rewriter(INDEXING)(UOp(Op.IDIV, (bound, index_constant(divisor))))


def round_up(r: UOp, multiple: int) -> int:
    """Return the constant extent of a loop, rounded up to a multiple."""
    return -(-constant_extent(r) // multiple) * multiple


def range_arg(r: UOp, *, axis_id: int | None = None, type: AxisType | None = None) -> RangeArg:
    """Return the arg of a loop with another axis id or type."""
    return RangeArg(r.arg.axis_id if axis_id is None else axis_id, r.arg.type if type is None else type, r.arg.renumbered)


def next_id(s: Schedule) -> int:
    """Return the first axis id that no loop has."""
    return 1 + max([int(r.arg.axis_id) for r in s.ranges], default=0)


def make_loop_or_zero(extent: int, axis_id: int, kind: AxisType = AxisType.LOOP) -> UOp:
    """Return a loop, or the constant 0 in place of a loop of one iteration."""
    return UOp(Op.RANGE, (index_constant(extent),), RangeArg(axis_id, kind)) if extent > 1 else index_constant(0)


def tile_index(tile: UOp, size: int, inner: UOp) -> UOp:
    """Return the index `tile * size + inner` of an element in a tile."""
    return UOp(Op.ADD, (UOp(Op.MUL, (tile, index_constant(size))), inner))


#: Maps a Range to the value that replaces it and to the Ranges that are closed in its place, outermost first.
RangeReplacements = Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]


def replace_schedule_ranges(s: Schedule, replacements: RangeReplacements) -> Schedule:
    """Replace Ranges, their values and their closers, in the effect and among the output loops."""
    outputs = tuple(n for r in s.outputs for n in (replacements[r][1] if r in replacements else (r,)))
    return replace(s, effect=replace_ranges(s.effect, replacements), outputs=outputs)


def replace_ranges(root: UOp, replacements: RangeReplacements) -> UOp:
    """Replace Ranges, their values and their closers, in all of `root`."""
    if not replacements:
        return root
    done = {r: value for r, (value, _) in replacements.items()}
    changed = set(done)
    for u in toposort(root):
        if changed.isdisjoint(u.src) or u in replacements:
            continue
        changed.add(u)
        closed = ranges_closed_by(u) if u.op in LOOP_CLOSERS else ()
        if any(r in replacements for r in closed):
            ranges = [n for r in closed for n in (replacements[r][1] if r in replacements else (done.get(r, r),))]
            value = done.get(u.src[0], u.src[0])  # operand of a Reduce, body of an End
            done[u] = UOp(u.op, (value, *ranges), u.arg, u.tag) if ranges else value
        else:
            done[u] = UOp(u.op, tuple([done.get(x, x) for x in u.src]), u.arg, u.tag)
    log_transform("replace ranges", root, done.get(root, root), done)
    return done.get(root, root)


# ------------------------------------------------------------------------------------------------------------------- masks


def replace_range_and_mask_iterations(effect: UOp, r: UOp, replacement: tuple[UOp, tuple[UOp, ...]], inside: UOp) -> UOp:
    """Replace Range `r` by a value and loops, and mask the iterations for which `inside` is false (R92).

    In those iterations no memory is accessed, and a Reduce over `r` takes its identity.
    """
    value, loops = replacement
    done, depends = {r: value}, {r}  # the new form of each changed node; the nodes that depend on the loop
    for u in toposort(effect):
        if done.keys().isdisjoint(u.src):
            continue
        closes = u.op in LOOP_CLOSERS and r in ranges_closed_by(u)
        if not closes and not depends.isdisjoint(u.src):
            depends.add(u)
        if closes:
            src = [n for x in u.src for n in (loops if x is r else (done.get(x, x),))]
        else:
            src = list(map(done.get, u.src, u.src))
        if u.op is Op.LOAD and u.buffer in depends:
            src = _add_load_gate(src, u.dtype, inside)
        elif u.op is Op.STORE and u in depends:
            src = [*src[:2], combine_gates(src[2] if len(src) > 2 else None, inside)]
        elif closes and u.op is Op.REDUCE:
            src[0] = UOp(Op.WHERE, (inside, src[0], reduction_identity(u.arg.op, u.dtype)))
        done[u] = UOp(u.op, tuple(src), u.arg, u.tag)
    masked = done.get(effect, effect)
    log_transform("gate", effect, masked, done)
    return masked


def gate_load(load: UOp, inside: UOp) -> UOp:
    """Return the Load with one more gate, `inside`."""
    return load.replace(src=_add_load_gate(load.src, load.dtype, inside))


def _add_load_gate(src: Sequence[UOp], d: DType, inside: UOp) -> list[UOp]:
    """Return the sources of a Load of dtype `d` with one more gate."""
    return [*src[:2], combine_gates(src[2], inside)] if len(src) > 1 else [*src, B.const(0, d), inside]


def combine_gates(a: UOp | None, b: UOp) -> UOp:
    """Return the conjunction of two gates, of which the first may be absent."""
    return b if a is None else UOp(Op.AND, (a, b))
