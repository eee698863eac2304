"""A kernel under scheduling: its effect, its loops, and the OptOps done to it.

Takes the Sink of a KERNEL body. `apply` does one OptOp and gives a new Schedule; it raises Rejected with the reason that
`spec.optops.legal` gives. `sink` gives the SCHEDULED body. Spec: Kernel Optimizations (OptOps); R90 to R98.

An OptOp is a substitution of ranges. Split of r by k: r becomes r' * k + s, with s of extent k, or s * (n / k) + r' with top;
what closed r closes r' and s. Padto: r gets the longer extent, and whatever touches memory at an iteration that was added is gated
off; a Reduce over r takes its identity there (R92). Swap: two loops change their numbers, hence their places.

Beside what the axes alone say, an OptOp is rejected where a kernel's memory forbids it: iterations that share LOCAL memory or meet
in one element keep their order (R55), and a workgroup has no more lanes than the machine (R140).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.linear import number
from uops.compiler.log import decided, note
from uops.compiler.loops import in_order
from uops.compiler.optimize.parallel import free_loops, memory_of
from uops.compiler.passes.accumulate import identity
from uops.compiler.passes.idle import find_held, gated
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.compiler.target import PLAIN, Machine
from uops.spec import build as B
from uops.spec.args import AddrSpace, RangeArg, SinkArg
from uops.spec.axes import AxisType
from uops.spec.dtypes import DType
from uops.spec.errors import UopsError
from uops.spec.node import Dim, UOp, nodes_of, toposort
from uops.spec.ops import Op
from uops.spec.optops import TC, WORKGROUP, Axis, Nolocals, OptOp, Padto, Split, Swap, legal
from uops.spec.scope import closed_by, open_ranges
from uops.spec.sizes import divides

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


def reason_against(s: Schedule, opt: OptOp, machine: Machine = PLAIN) -> str | None:
    """None if the OptOp may be applied for this machine."""
    reason = legal(opt, s.axes, done=s.done, descriptors=machine.tensor_cores)
    if reason is None and isinstance(opt, Split):
        reason = _memory_forbids(s, opt)
    if reason is None and isinstance(opt, Swap):
        reason = _swap_reorders(s, opt)
    if reason is None and isinstance(opt, TC):
        reason = _no_product(s, opt, machine)
    return reason or _accumulated(s, opt) or _too_many_lanes(s, opt, machine)


def _no_product(s: Schedule, opt: TC, machine: Machine) -> str | None:
    from uops.compiler.optimize.tensor_core import match  # which builds on this module

    found = match(s, opt, machine.tensor_cores)
    return found if isinstance(found, str) else None


def _accumulated(s: Schedule, opt: OptOp) -> str | None:
    """Why the loops of an accumulator, which an End closes, those around it, and those around a Wmma are left alone."""
    if not isinstance(opt, (Split, Padto)):
        return None
    r = s.ranges[opt.axis]
    target = opt.target if isinstance(opt, Split) else None
    stepped = r.arg.type is AxisType.REDUCE and any(r in u.src[1:] for u in nodes_of(s.effect, Op.END))
    if target is not AxisType.REDUCE and stepped:
        return f"axis {opt.axis} runs through the steps of an accumulator, one after the other (R142)"
    if (target is None or target in _VECTOR) and _stands_in(r, s.effect, Op.WMMA):
        return f"a Wmma stands in axis {opt.axis}: it is done whole, and not side by side (R142)"
    if target in _VECTOR and r in around_fills(s.effect, registers=True):
        return f"registers are filled once per iteration of axis {opt.axis}, and {target.name} iterations share them (R55, R128)"
    return None


def _stands_in(r: UOp, effect: UOp, op: Op) -> bool:
    """Whether a node of this op stands in a loop."""
    found = nodes_of(effect, op)
    needs = open_ranges(toposort(effect)) if found else {}
    return any(r in needs[u] for u in found)


def _memory_forbids(s: Schedule, opt: Split) -> str | None:
    r = s.ranges[opt.axis]
    if opt.target not in _OWN_MEMORY and r in around_fills(s.effect):
        return f"LOCAL memory is filled once per iteration of axis {opt.axis}, and {opt.target.name} iterations share it (R55)"
    if r.arg.axis_id in s.fixed and opt.target is not AxisType.LOOP:
        return f"iterations of axis {opt.axis} may meet in one element, and {opt.target.name} has no order (R55, R57)"
    return _split_reorders(s, opt)


def _split_reorders(s: Schedule, opt: Split) -> str | None:
    """The reason why a Split would change the order of iterations that may meet: its new loop nests inside of all others."""
    r = s.ranges[opt.axis]
    if r.arg.axis_id in s.fixed and (opt.top or any(k > r.arg.axis_id for k in s.fixed)):
        inside = "it counts in the longer steps" if opt.top else "another such axis stands between them"
        return f"iterations of axis {opt.axis} may meet in one element, and the new loop is the innermost: {inside} (R57, R158)"
    return None


def _swap_reorders(s: Schedule, opt: Swap) -> str | None:
    """The reason why a Swap would change the order of iterations that may meet."""
    low, high = sorted(int(s.ranges[k].arg.axis_id) for k in (opt.axis, opt.other))
    if len(s.fixed & {low, high}) == 2 or (s.fixed & {low, high} and any(low < k < high for k in s.fixed)):
        return f"iterations of axes {opt.axis} and {opt.other}, or between them, may meet in one element (R57, R158)"
    return None


def _too_many_lanes(s: Schedule, opt: OptOp, machine: Machine) -> str | None:
    if not machine.workgroup or not isinstance(opt, (Split, Padto)):
        return None
    makes = opt.target in WORKGROUP if isinstance(opt, Split) else s.ranges[opt.axis].arg.type in WORKGROUP
    lanes = lanes_of(_APPLY[type(opt)](s, opt)) if makes else 0
    if lanes <= machine.workgroup:
        return None
    return f"a workgroup of {lanes} lanes, the machine has at most {machine.workgroup} (R140)"


def lanes_of(s: Schedule) -> int:
    """Lanes of one workgroup; a symbolic extent counts with its greatest value. Reduces one after the other share theirs, where
    they have as many; one inside of another's loops does not."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    shared: Counter[int] = Counter()
    for u in order:
        if u.op is Op.REDUCE:
            shared |= Counter(greatest(axis_of(r).extent) for r in needs[u.src[0]] if r.arg.type is AxisType.GROUP_REDUCE)
    own = [greatest(axis_of(r).extent) for r in s.outputs if r.arg.type in WORKGROUP]
    return math.prod((*own, *shared.elements()))


def greatest(extent: Dim) -> int:
    """The most iterations of a loop."""
    return extent if isinstance(extent, int) else int((extent.min_max or (0, 1 << 62))[1])


_VECTOR = frozenset({AxisType.UPCAST, AxisType.UNROLL})
#: Types whose iterations run one after the other, or have LOCAL memory of their own (R57, R128).
_OWN_MEMORY = frozenset({AxisType.LOOP, AxisType.REDUCE, AxisType.GLOBAL, AxisType.THREAD})


def around_fills(effect: UOp, registers: bool = False) -> frozenset[UOp]:
    """The loops around those that fill LOCAL memory, or registers too, which vector lanes have in common."""
    fills = [u for u in nodes_of(effect, Op.END) if registers or not _in_registers(u)]
    if not fills:
        return frozenset()
    needs = open_ranges(toposort(effect))
    return frozenset().union(*(needs[u] for u in fills))


def _in_registers(end: UOp) -> bool:
    """Whether the loop that an End closes stores into registers, which are a lane's own."""
    while end.op in (Op.END, Op.GROUP):
        end = end.src[0]
    memory = memory_of(end.src[0])
    return memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG


def apply(s: Schedule, opt: OptOp, machine: Machine = PLAIN) -> Schedule:
    """The schedule after one OptOp; raises Rejected."""
    reason = reason_against(s, opt, machine)
    if reason is not None:
        raise Rejected(f"{opt}: {reason}")
    changed = _tensor_core(s, opt, machine) if isinstance(opt, TC) else _APPLY[type(opt)](s, opt)
    decided((opt,), s.effect, changed.effect)
    return replace(changed, done=(*s.done, opt))


def typed(s: Schedule, types: Mapping[UOp, AxisType]) -> Schedule:
    """The schedule with other types for some output loops: GLOBAL for LOOP, before the first OptOp (R94); raises Rejected."""
    late = "other types come before the first OptOp (R94)" if s.done else None
    if late or any(r.arg.axis_id in s.fixed for r in types):
        raise Rejected(late or "iterations may meet in one element, and GLOBAL has no order (R55, R57)")
    new = {r: r.replace(arg=_arg(r, type=t)) for r, t in types.items()}
    return _replaced(s, {r: (n, (n,)) for r, n in new.items()})


# ----------------------------------------------------------------------------------------------------------------- OptOps


def padded_split(s: Schedule, pad: Padto, opt: Split) -> Schedule:
    """What `apply` makes of Padto and then of a Split of the same loop, whose constant extent the multiple does not divide, in one
    substitution; raises Rejected."""
    r = s.ranges[opt.axis]
    bound, multiple = r.src[0], number(_up(r, pad.multiple))
    longer = [*s.axes]
    longer[opt.axis] = Axis(r.arg.axis_id, r.arg.type, multiple.arg.value)
    reason = reason_against(s, pad) or legal(opt, longer, done=(*s.done, pad)) or _memory_forbids(s, opt) or _accumulated(s, opt)
    if reason is not None or pad.axis != opt.axis:
        raise Rejected(f"{pad}, {opt}: {reason or 'two loops'}")
    put = _halves(s, r, multiple, opt)
    changed = _closing(s, r, put, _masked(s.effect, r, put, UOp(Op.CMPLT, (put[0], bound))))
    decided((pad, opt), s.effect, changed.effect)
    return replace(changed, done=(*s.done, pad, opt))


def whole_split(s: Schedule, opt: Split) -> Schedule:
    """What `apply` makes of a Split of a loop by its constant extent, but that no value names the loop of one iteration that stays,
    which `sink` drops; raises Rejected."""
    reason = reason_against(s, opt)
    r = s.ranges[opt.axis]
    if reason is not None or r.src[0] is not number(opt.factor):
        raise Rejected(f"{opt}: {reason or 'not the whole axis'}")
    new = UOp(Op.RANGE, r.src, RangeArg(next_id(s), opt.target))
    put = new, (UOp(Op.RANGE, (number(1),), r.arg), new)
    changed = _closing(s, r, put, replace_ranges(s.effect, {r: put}))
    decided((opt,), s.effect, changed.effect)
    return replace(changed, done=(*s.done, opt))


def _split(s: Schedule, opt: Split) -> Schedule:
    r = s.ranges[opt.axis]
    put = _halves(s, r, r.src[0], opt)
    return _closing(s, r, put, replace_ranges(s.effect, {r: put}))


def _halves(s: Schedule, r: UOp, bound: UOp, opt: Split) -> tuple[UOp, tuple[UOp, UOp]]:
    """What the value of loop `r`, of extent `bound`, becomes, and the two loops."""
    left = divided(bound, opt.factor)
    outer = UOp(Op.RANGE, (left,), r.arg)
    new = UOp(Op.RANGE, (number(opt.factor),), RangeArg(next_id(s), opt.target))
    return _sum(new, left, outer) if opt.top else _sum(outer, number(opt.factor), new), (outer, new)


def _closing(s: Schedule, r: UOp, put: tuple[UOp, tuple[UOp, UOp]], effect: UOp) -> Schedule:
    """The schedule whose loop `r` is split."""
    outputs = tuple(n for x in s.outputs for n in (put[1] if x is r else (x,)))
    fixed = s.fixed | {int(put[1][1].arg.axis_id)} if r.arg.axis_id in s.fixed else s.fixed
    return replace(s, effect=effect, outputs=outputs, fixed=fixed)


def divided(bound: UOp, k: int) -> UOp:
    """bound / k for a bound that k divides."""
    if bound.op is Op.CONST:
        return number(int(bound.arg.value) // k)
    return Rewriter(INDEXING)(UOp(Op.IDIV, (bound, number(k))))


def _sum(major: UOp, stride: UOp, minor: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (major, stride)), minor))


def _padto(s: Schedule, opt: Padto) -> Schedule:
    r = s.ranges[opt.axis]
    bound = r.src[0]
    up = divided(UOp(Op.ADD, (bound, number(opt.multiple - 1))), opt.multiple) if bound.op is not Op.CONST else None
    whole = None if up is None else Rewriter(INDEXING)(UOp(Op.MUL, (up, number(opt.multiple))))  # as the loop's closer will name it
    m = number(_up(r, opt.multiple)) if whole is None else whole
    if m is bound or divides(opt.multiple, axis_of(r).extent):
        return s
    longer = UOp(Op.RANGE, (m,), r.arg)
    outputs = tuple(longer if x is r else x for x in s.outputs)
    return replace(s, effect=_masked(s.effect, r, (longer, (longer,)), UOp(Op.CMPLT, (longer, bound))), outputs=outputs)


def _up(r: UOp, multiple: int) -> int:
    """The constant extent of a loop, up to a multiple."""
    return -(-int(r.src[0].arg.value) // multiple) * multiple


def padded(s: Schedule, opt: Padto) -> Schedule:
    """What a Padto does, as part of another OptOp."""
    return _padto(s, opt)


def _tensor_core(s: Schedule, opt: TC, machine: Machine) -> Schedule:
    from uops.compiler.optimize.tensor_core import apply_tc, match

    found = match(s, opt, machine.tensor_cores)
    if isinstance(found, str):
        raise Rejected(found)
    return apply_tc(s, opt, found)


def _swap(s: Schedule, opt: Swap) -> Schedule:
    a, b = s.ranges[opt.axis], s.ranges[opt.other]
    new = {a: a.replace(arg=_arg(a, axis_id=b.arg.axis_id)), b: b.replace(arg=_arg(b, axis_id=a.arg.axis_id))}
    done = _replaced(s, {r: (n, (n,)) for r, n in new.items()})
    i, j = int(a.arg.axis_id), int(b.arg.axis_id)
    one = s.fixed & {i, j}
    return replace(done, fixed=s.fixed ^ {i, j}) if len(one) == 1 else done


_APPLY: dict[type, Callable[..., Schedule]] = {Split: _split, Padto: _padto, Swap: _swap, Nolocals: lambda s, opt: s}


def _arg(r: UOp, *, axis_id: int | None = None, type: AxisType | None = None) -> RangeArg:
    return RangeArg(r.arg.axis_id if axis_id is None else axis_id, r.arg.type if type is None else type, r.arg.renumbered)


def next_id(s: Schedule) -> int:
    """The first number that no loop has."""
    return 1 + max((int(r.arg.axis_id) for r in s.ranges), default=0)


#: A range -> what its value becomes, and the ranges that are closed in its place, outermost first.
Replacement = Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]


def _replaced(s: Schedule, new: Replacement) -> Schedule:
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


def _masked(effect: UOp, r: UOp, put: tuple[UOp, tuple[UOp, ...]], inside: UOp) -> UOp:
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
