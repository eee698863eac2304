"""A kernel under scheduling: its effect, its loops, and the OptOps done to it.

`begin` takes the Sink of a KERNEL body, and `sink` gives the SCHEDULED one. `uops.compiler.passes.optimize.schedule.optops` does
OptOps, by what is here: Ranges are replaced in all of an effect, and memory is gated off. Spec: Kernel Optimizations (OptOps); R90
to R98.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.accumulators import identity
from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.ir.zero_trip import find_held, gated
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.parallel import free_loops
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.errors import UopsError
from uops.spec.ir import build as B
from uops.spec.ir.args import RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, nodes_of, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by
from uops.spec.ir.sizes import divides
from uops.spec.optops import Axis, OptOp, Padto

#: What closes the loops of a kernel.
CLOSERS = frozenset({Op.REDUCE, Op.END})


class Rejected(UopsError):
    """An OptOp that may not be applied: the reason, with the ruling that gives it."""


@dataclass(frozen=True)
class Schedule:
    """`effect` is the Store (or Group) of the kernel without the Ends of its output loops, which are `outputs`.

    Loops inside of `effect` are closed there: those of Reduces, and those that fill LOCAL memory. `fixed` are the ids of output
    loops that keep their order: their iterations may meet in one element. `held` pairs memory with the number of its elements that
    hold a value, as far as one knows.
    """

    name: str
    effect: UOp
    outputs: tuple[UOp, ...]
    done: tuple[OptOp, ...] = ()
    fixed: frozenset[int] = frozenset()
    held: tuple[tuple[UOp, Dim], ...] = ()

    @functools.cached_property
    def ranges(self) -> tuple[UOp, ...]:
        """Every loop, in the order that numbers the axes (R95)."""
        inner = dict.fromkeys(r for op in (Op.END, Op.REDUCE) for u in nodes_of(self.effect, op) for r in closed_by(u))
        return tuple(in_order(dict.fromkeys((*self.outputs, *inner))))

    @functools.cached_property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(axis_of(r) for r in self.ranges)


def axis_of(r: UOp) -> Axis:
    bound = r.src[0]
    return Axis(r.arg.axis_id, r.arg.type, int(bound.arg.value) if bound.op is Op.CONST else bound)


def begin(sink: UOp) -> Schedule | None:
    """The schedule of a kernel as rangeify leaves it; None for a body of another form, which keeps its loops as they are."""
    if sink.op is not Op.SINK or len(sink.src) != 1:
        return None
    effect = sink.src[0]
    outputs: list[UOp] = []
    while effect.op is Op.END:
        outputs += effect.src[1:]
        effect = effect.src[0]
    if effect.op is not Op.STORE:
        return None
    free = free_loops(effect)
    fixed = frozenset(int(r.arg.axis_id) for r in outputs if r not in free)
    return Schedule(sink.arg.name if sink.arg else "kernel", effect, tuple(outputs), (), fixed, tuple(find_held(sink).items()))


def sink(s: Schedule) -> UOp:
    """The SCHEDULED body: output loops nest by priority, then by id (R95, R109), those of threads outside of all others (R133); a
    loop of one iteration is gone; addresses are in normal form."""
    single = {r: (number(0), ()) for r in s.ranges if axis_of(r).extent == 1}
    effect = Rewriter(INDEXING)(replace_ranges(s.effect, single))
    body = B.nested(effect, sorted((r for r in s.outputs if r not in single), key=lambda r: _depth(s, r)))
    done = UOp(Op.SINK, (body,), SinkArg(s.name))
    note("loops", effect, done)
    return gated(done, Rewriter(INDEXING), dict(s.held))


def _depth(s: Schedule, r: UOp) -> tuple[bool, int, int]:
    """What orders loops, outermost first. Where iterations of a loop that keeps its order may meet, threads stay inside of it."""
    return bool(s.fixed) or r.arg.type is not AxisType.THREAD, r.arg.type.priority, int(r.arg.axis_id)


def typed(s: Schedule, types: Mapping[UOp, AxisType]) -> Schedule:
    """The schedule with other types for some output loops: GLOBAL for LOOP, before the first OptOp (R94); raises Rejected."""
    late = "other types come before the first OptOp (R94)" if s.done else None
    if late or any(r.arg.axis_id in s.fixed for r in types):
        raise Rejected(late or "iterations may meet in one element, and GLOBAL has no order (R55, R57)")
    new = {r: r.replace(arg=range_arg(r, type=t)) for r, t in types.items()}
    return with_ranges(s, {r: (n, (n,)) for r, n in new.items()})


def pad_loop(s: Schedule, opt: Padto) -> Schedule:
    """The schedule with a loop whose extent is the next multiple, and which touches no memory beyond its old bound (R92)."""
    r = s.ranges[opt.axis]
    bound = r.src[0]
    up = divided(UOp(Op.ADD, (bound, number(opt.multiple - 1))), opt.multiple) if bound.op is not Op.CONST else None
    whole = None if up is None else Rewriter(INDEXING)(UOp(Op.MUL, (up, number(opt.multiple))))  # as the loop's closer will name it
    m = number(round_up(r, opt.multiple)) if whole is None else whole
    if m is bound or divides(opt.multiple, axis_of(r).extent):
        return s
    longer = UOp(Op.RANGE, (m,), r.arg)
    outputs = tuple(longer if x is r else x for x in s.outputs)
    return replace(s, effect=mask_accesses(s.effect, r, (longer, (longer,)), UOp(Op.CMPLT, (longer, bound))), outputs=outputs)


def divided(bound: UOp, k: int) -> UOp:
    """bound / k for a bound that k divides."""
    if bound.op is Op.CONST:
        return number(int(bound.arg.value) // k)
    return Rewriter(INDEXING)(UOp(Op.IDIV, (bound, number(k))))


def round_up(r: UOp, multiple: int) -> int:
    """The constant extent of a loop, up to a multiple."""
    return -(-int(r.src[0].arg.value) // multiple) * multiple


def range_arg(r: UOp, *, axis_id: int | None = None, type: AxisType | None = None) -> RangeArg:
    """The arg of a loop with another number or type."""
    return RangeArg(r.arg.axis_id if axis_id is None else axis_id, r.arg.type if type is None else type, r.arg.renumbered)


def next_id(s: Schedule) -> int:
    """The first number that no loop has."""
    return 1 + max((int(r.arg.axis_id) for r in s.ranges), default=0)


#: A range -> what its value becomes, and the ranges that are closed in its place, outermost first.
Replacement = Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]


def with_ranges(s: Schedule, new: Replacement) -> Schedule:
    """The schedule with values and closers of ranges replaced, in its output loops, too."""
    outputs = tuple(n for r in s.outputs for n in (new[r][1] if r in new else (r,)))
    return replace(s, effect=replace_ranges(s.effect, new), outputs=outputs)


def replace_ranges(root: UOp, new: Replacement) -> UOp:
    """`root` with values and closers of ranges replaced."""
    if not new:
        return root
    done = {r: value for r, (value, _) in new.items()}
    changed = set(done)
    for u in toposort(root):
        if changed.isdisjoint(u.src) or u in new:
            continue
        changed.add(u)
        closed = closed_by(u) if u.op in CLOSERS else ()
        if any(r in new for r in closed):
            ranges = [n for r in closed for n in (new[r][1] if r in new else (done.get(r, r),))]
            value = done.get(u.src[0], u.src[0])
            done[u] = UOp(u.op, (value, *ranges), u.arg, u.tag) if ranges else value
        else:
            done[u] = UOp(u.op, tuple([done.get(x, x) for x in u.src]), u.arg, u.tag)
    note("replace ranges", root, done.get(root, root), done)
    return done.get(root, root)


# ------------------------------------------------------------------------------------------------------------------- masks


def mask_accesses(effect: UOp, r: UOp, put: tuple[UOp, tuple[UOp, ...]], inside: UOp) -> UOp:
    """The value and the loops of `put` in the place of `r`: no access at an iteration for which `inside` is false, and the identity
    there in a Reduce over it (R92)."""
    done, depends = {r: put[0]}, {r}  # the nodes that are computed in the loop
    for u in toposort(effect):
        if done.keys().isdisjoint(u.src):
            continue
        closes = u.op in CLOSERS and r in closed_by(u)
        if not closes and not depends.isdisjoint(u.src):
            depends.add(u)
        src = [n for x in u.src for n in (put[1] if x is r else (done.get(x, x),))] if closes else [done.get(x, x) for x in u.src]
        if u.op is Op.LOAD and u.src[0] in depends:
            src = _gated(src, u.dtype, inside)
        elif u.op is Op.STORE and u in depends:
            src = [*src[:2], both(src[2] if len(src) > 2 else None, inside)]
        elif closes and u.op is Op.REDUCE:
            src[0] = UOp(Op.WHERE, (inside, src[0], identity(u.arg.op, u.dtype)))
        done[u] = UOp(u.op, tuple(src), u.arg, u.tag)
    gated = done.get(effect, effect)
    note("gate", effect, gated, done)
    return gated


def gated_load(load: UOp, inside: UOp) -> UOp:
    """A Load that touches its address only where `inside` holds, too."""
    return load.replace(src=_gated(load.src, load.dtype, inside))


def _gated(src: Sequence[UOp], d: DType, inside: UOp) -> list[UOp]:
    """The sources of a Load of `d` with one more gate."""
    return [*src[:2], both(src[2], inside)] if len(src) > 1 else [*src, B.const(0, d), inside]


def both(a: UOp | None, b: UOp) -> UOp:
    return b if a is None else UOp(Op.AND, (a, b))
