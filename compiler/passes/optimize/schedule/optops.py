"""OptOps, applied to a Schedule.

`apply` does one OptOp and gives a new Schedule; it raises Rejected with the reason that `spec.optops.legal` gives, or a kernel's
memory. Spec: Kernel Optimizations (OptOps); R90 to R98.

An OptOp is a substitution of ranges. Split of r by k: r becomes r' * k + s, with s of extent k, or s * (n / k) + r' with top;
what closed r closes r' and s. Padto: r gets the longer extent, and whatever touches memory at an iteration that was added is gated
off; a Reduce over r takes its identity there (R92). Swap: two loops change their numbers, hence their places.

Beside what the axes alone say, an OptOp is rejected where a kernel's memory forbids it: iterations that share LOCAL memory or meet
in one element keep their order (R55), and a workgroup has no more lanes than the machine (R140).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from uops.compiler.ir.affine import number
from uops.compiler.log import decided
from uops.compiler.passes.optimize.schedule.parallel import memory_of
from uops.compiler.passes.optimize.schedule.schedule import (
    Rejected,
    Schedule,
    axis_of,
    divided,
    mask_accesses,
    next_id,
    pad_loop,
    range_arg,
    replace_ranges,
    round_up,
    with_ranges,
)
from uops.compiler.passes.optimize.schedule.tensor_core import apply_tc, match
from uops.compiler.target import PLAIN, Machine
from uops.spec.ir.args import AddrSpace, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import Dim, UOp, nodes_of, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges
from uops.spec.optops import TC, WORKGROUP, Axis, Nolocals, OptOp, Padto, Split, Swap, legal


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


def padded_split(s: Schedule, pad: Padto, opt: Split) -> Schedule:
    """What `apply` makes of Padto and then of a Split of the same loop, whose constant extent the multiple does not divide, in one
    substitution; raises Rejected."""
    r = s.ranges[opt.axis]
    bound, multiple = r.src[0], number(round_up(r, pad.multiple))
    longer = [*s.axes]
    longer[opt.axis] = Axis(r.arg.axis_id, r.arg.type, multiple.arg.value)
    reason = reason_against(s, pad) or legal(opt, longer, done=(*s.done, pad)) or _memory_forbids(s, opt) or _accumulated(s, opt)
    if reason is not None or pad.axis != opt.axis:
        raise Rejected(f"{pad}, {opt}: {reason or 'two loops'}")
    put = _halves(s, r, multiple, opt)
    changed = _closing(s, r, put, mask_accesses(s.effect, r, put, UOp(Op.CMPLT, (put[0], bound))))
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


def _sum(major: UOp, stride: UOp, minor: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (major, stride)), minor))


def _tensor_core(s: Schedule, opt: TC, machine: Machine) -> Schedule:
    found = match(s, opt, machine.tensor_cores)
    if isinstance(found, str):
        raise Rejected(found)
    return apply_tc(s, opt, found)


def _swap(s: Schedule, opt: Swap) -> Schedule:
    a, b = s.ranges[opt.axis], s.ranges[opt.other]
    new = {a: a.replace(arg=range_arg(a, axis_id=b.arg.axis_id)), b: b.replace(arg=range_arg(b, axis_id=a.arg.axis_id))}
    done = with_ranges(s, {r: (n, (n,)) for r, n in new.items()})
    i, j = int(a.arg.axis_id), int(b.arg.axis_id)
    one = s.fixed & {i, j}
    return replace(done, fixed=s.fixed ^ {i, j}) if len(one) == 1 else done


_APPLY: dict[type, Callable[..., Schedule]] = {Split: _split, Padto: pad_loop, Swap: _swap, Nolocals: lambda s, opt: s}
