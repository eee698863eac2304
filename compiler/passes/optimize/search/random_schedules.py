"""Random schedules by seed: any legal OptOps, useful or not, so that a suite of programs applies every kind of them.

`make_random_scheduler(seed)` returns a scheduler. The OptOps for a kernel depend on the seed and the kernel's body alone, so that a
failure is reproducible. A step draws an *OptOp kind* that the kernel's axes allow, such as Split of REDUCE to GROUP_REDUCE from
outside, and then its amount. If a factor does not divide the axis, a Padto goes first. A machine without tensor cores gets the axes
of a TC without its instruction: mode 2 of some descriptor (R97: TC argument). `take_and_reset_optop_counts()` returns how often
each kind was applied in this process since the last call.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from uops.compiler.passes.optimize.schedule.optops import (
    apply,
    count_max_lanes_per_workgroup,
    find_rejection_reason,
    max_trip_count,
)
from uops.compiler.passes.optimize.schedule.schedule import Schedule, Scheduler, set_output_loop_types_before_optops
from uops.compiler.target import MachineModel
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.text import show
from uops.spec.optops import TC, Axis, Nolocals, OptOp, Padto, Split, Swap, require_every_optop, split_directions
from uops.spec.wmma import DESCRIPTORS

#: Factors and multiples; 0 stands for the whole axis.
AMOUNTS = (2, 3, 4, 5, 8, 16, 0)
#: Fewest and most steps of a schedule.
_STEPS = (1, 6)
#: Most elements side by side in one kernel, most lanes of a workgroup, and most iterations in all (or as many as there were).
_SIDE_BY_SIDE, _LANES, _MOST = 64, 64, 1 << 16

#: Types that axes have only after a Split.
_SPLIT_TYPES = frozenset({AxisType.THREAD, AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.UPCAST, AxisType.UNROLL})
#: Probability that kinds for _SPLIT_TYPES go first, which would else be rare.
_SPLIT_TYPES_FIRST = 0.3
#: Instructions that divide the axes on a machine without tensor cores.
_ANY_DESCRIPTOR = tuple(WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "CPU", d.threads) for d in DESCRIPTORS)
#: Probability that a legal TC goes first; later it is never legal (R93: TC).
_TC_FIRST = 0.7


@dataclass(frozen=True, slots=True)
class OptOpKind:
    """A kind of OptOp: its class, the type of the axis it takes, and for a Split the type it makes and the side it splits from."""

    optop: type[OptOp]
    source: AxisType | None = None
    target: AxisType | None = None
    top: bool = False

    def __str__(self) -> str:
        source = f" {self.source.name}" if self.source else ""
        target = f" to {self.target.name} {'outer' if self.top else 'inner'}" if self.target else ""
        return f"{self.optop.__name__}{source}{target}"


def _enumerate_allowed_split_kinds() -> Iterator[OptOpKind]:
    """Yield every kind of Split that the specification allows, those into the axis' own type last."""
    by_priority = sorted(AxisType, key=lambda t: t.priority)
    pairs = [(source, target) for target in AXIS_TABLE for source in by_priority if source is not target]
    for source, target in (*pairs, *((t, t) for t in by_priority)):
        yield from (OptOpKind(Split, source, target, top) for top in split_directions(source, target))


_AXIS_TYPES = tuple(t for t in AxisType if t not in (AxisType.PLACEHOLDER, AxisType.WARP))


def _make_split(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> Split | None:
    extent = s.axes[k].extent
    factor = amount or (extent if isinstance(extent, int) else 0)
    return Split(k, factor, kind.target, kind.top) if kind.target and factor >= 1 else None


def _make_padto(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> Padto | None:
    return Padto(k, amount) if amount else None


def _make_swap(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> Swap | None:
    others = [j for j, a in enumerate(s.axes) if j != k and a.type is kind.source]
    return Swap(k, rng.choice(others)) if others else None


def _make_nolocals(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> Nolocals | None:
    return None if Nolocals() in s.done else Nolocals()


def _make_nothing(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> None:
    """Return None: a tensor core is tried before all other OptOps (`_try_random_tensor_core`)."""


class OptOpDraw(NamedTuple):
    """The drawing of a class of OptOps: its kinds, an OptOp of a kind, axis and amount, and whether the amount matters."""

    kinds: tuple[OptOpKind, ...]
    make: Callable[[Schedule, OptOpKind, int, int, random.Random], OptOp | None]
    by_amount: bool = False


_DRAWS: dict[type[OptOp], OptOpDraw] = {
    TC: OptOpDraw((OptOpKind(TC, AxisType.REDUCE),), _make_nothing),
    Split: OptOpDraw(tuple(_enumerate_allowed_split_kinds()), _make_split, by_amount=True),
    Padto: OptOpDraw(tuple(OptOpKind(Padto, t) for t in _AXIS_TYPES), _make_padto, by_amount=True),
    Swap: OptOpDraw(tuple(OptOpKind(Swap, t) for t in _AXIS_TYPES), _make_swap),
    Nolocals: OptOpDraw((OptOpKind(Nolocals),), _make_nolocals),
}
require_every_optop(_DRAWS, "compiler/passes/optimize/search/random_schedules.py")
#: Every kind of OptOp that is drawn.
MOVES = tuple(kind for draw in _DRAWS.values() for kind in draw.kinds)
#: The kind before all others, which alone makes WARP axes, and the kinds after it.
_FIRST, _LATER = MOVES[0], MOVES[1:]

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def take_and_reset_optop_counts() -> dict[str, int]:
    """Return how often each kind and amount was applied since the last call."""
    with _lock:
        counts = dict(_counts)
        _counts.clear()
    return counts


def make_random_scheduler(seed: int) -> Scheduler:
    """Return a scheduler that applies random OptOps, drawn by seed."""

    def schedule(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
        return schedule_randomly(s, machine, seed)

    return schedule


def schedule_randomly(s: Schedule, machine: MachineModel, seed: int) -> Schedule:
    """Apply OptOps drawn for the kernel."""
    text = "\n".join((str(seed), show(s.effect), *(f"{a.id} {a.extent}" for a in s.axes if isinstance(a.extent, int))))
    rng = random.Random(hashlib.sha256(text.encode()).digest())
    parallel = [r for r in s.outputs if r.arg.axis_id not in s.ordered_ids]
    if parallel and rng.random() < 0.6:
        s = set_output_loop_types_before_optops(s, dict.fromkeys(parallel, AxisType.GLOBAL))
    most = max(_MOST, _iterations(s))
    if rng.random() < _TC_FIRST:
        s = _try_random_tensor_core(s, machine, rng, most) or s
    for _ in range(rng.randint(*_STEPS)):
        s = _apply_first_fitting_optop_in_random_order(s, machine, rng, most)
    return s


def _try_random_tensor_core(s: Schedule, machine: MachineModel, rng: random.Random, max_iterations: int) -> Schedule | None:
    """Apply a random legal TC, by an instruction of the machine or else in mode 2 of any descriptor; None if there is none."""
    modes = (1, 2) if machine.tensor_cores else (2,)
    machine = replace(machine, tensor_cores=machine.tensor_cores or _ANY_DESCRIPTOR)
    reduces = sum(a.type is AxisType.REDUCE for a in s.axes)
    choices = list(itertools.product(range(reduces), range(len(machine.tensor_cores)), (0, 1, 2), modes))
    for opt in (TC(*choice) for choice in rng.sample(choices, len(choices))):
        if find_rejection_reason(s, opt, machine) is not None:
            continue
        after = apply(s, opt, machine)
        if _is_within_unroll_lane_and_iteration_limits(
            after, max_iterations
        ) and not 0 < machine.workgroup < count_max_lanes_per_workgroup(after):
            _count_applied(str(_FIRST))
            return after
    return None


def _apply_first_fitting_optop_in_random_order(
    s: Schedule, machine: MachineModel, rng: random.Random, max_iterations: int
) -> Schedule:
    """Apply one more OptOp that the axes allow, or return the schedule unchanged if none of those drawn fits."""
    order = rng.sample(_LATER, len(_LATER))
    if rng.random() < _SPLIT_TYPES_FIRST:
        order.sort(key=lambda m: (m.source not in _SPLIT_TYPES, m.optop is not Swap))
    axes = s.axes
    for kind in order:
        numbers = [k for k, a in enumerate(axes) if kind.source is None or a.type is kind.source]
        if not numbers:
            continue
        for amount in rng.sample(AMOUNTS, len(AMOUNTS)):
            after = _try_optop_padding_if_needed(s, kind, rng.choice(numbers), amount, machine, rng, max_iterations)
            if after is not None:
                return after
    return s


def _try_optop_padding_if_needed(
    s: Schedule, kind: OptOpKind, axis_number: int, factor_or_zero_for_all: int, machine: MachineModel, rng: random.Random,
    max_iterations: int
) -> Schedule | None:  # fmt: skip
    """Apply an OptOp of a kind to axis `axis_number`; None if it is illegal, changes nothing, or exceeds the limits."""
    axis = s.axes[axis_number]
    opt = _DRAWS[kind.optop].make(s, kind, axis_number, factor_or_zero_for_all, rng)
    if opt is None:
        return None
    padded = s
    if isinstance(opt, Split) and find_rejection_reason(s, opt, machine) is not None:
        pad = Padto(axis_number, opt.factor)
        if find_rejection_reason(s, pad, machine) is not None:
            return None
        padded = apply(s, pad, machine)
        opt = _relocate_split(opt, axis, padded)
    if opt is None or find_rejection_reason(padded, opt, machine) is not None:
        return None
    after = apply(padded, opt, machine)
    if not _is_within_unroll_lane_and_iteration_limits(after, max_iterations) or (
        after.effect is s.effect and kind.source is not None
    ):
        return None
    _count_applied(f"{kind} by {factor_or_zero_for_all or 'all'}" if _DRAWS[kind.optop].by_amount else str(kind))
    if padded is not s:
        _count_applied(f"Padto {axis.type.name} by {factor_or_zero_for_all or 'all'}")
    return after


def _count_applied(name: str) -> None:
    with _lock:
        _counts[name] += 1


def _relocate_split(opt: Split, axis: Axis, s: Schedule) -> Split | None:
    """Return the Split with the number that its axis has in `s`, or None if the axis is gone."""
    number = next((k for k, a in enumerate(s.axes) if a.id == axis.id), None)
    return None if number is None else Split(number, opt.factor, opt.target, opt.top)


def _iterations(s: Schedule) -> int:
    return math.prod(max(1, max_trip_count(a.extent)) for a in s.axes)


def _is_within_unroll_lane_and_iteration_limits(s: Schedule, max_iterations: int) -> bool:
    """Return True if a kernel has few enough elements side by side, lanes and iterations, at most `max_iterations`."""
    parallel = [a for a in s.axes if a.type in UNROLLED or a.type in WORKGROUP]
    if any(not isinstance(a.extent, int) for a in parallel):
        return False
    unrolled = math.prod(max_trip_count(a.extent) for a in parallel if a.type in UNROLLED)
    return unrolled <= _SIDE_BY_SIDE and count_max_lanes_per_workgroup(s) <= _LANES and _iterations(s) <= max_iterations
