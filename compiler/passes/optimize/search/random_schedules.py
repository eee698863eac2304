"""Schedules drawn by seed: any legal OptOps, useful or not, so that a suite of programs applies every kind of them.

`draw(seed)` gives a choice of schedules. What is drawn for a kernel depends on the seed and the kernel's body alone, so that a
failure comes back. A step draws one *move* - a kind of OptOp between two types of axes, say Split of REDUCE to GROUP_REDUCE from
outside - among those that the kernel's axes allow, and then its amount; where a factor does not divide the axis, a Padto goes
first. A machine without tensor cores gets the axes of a TC all the same, without its instruction: mode 2 of some descriptor (R97).
`taken()` gives how often each move was applied in this process since it was last asked.
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

from uops.compiler.passes.optimize.schedule.optops import apply, greatest, lanes_of, reason_against
from uops.compiler.passes.optimize.schedule.schedule import Schedule, typed
from uops.compiler.target import Machine
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, AxisType, Direction
from uops.spec.ir.text import show
from uops.spec.optops import TC, TILED, WORKGROUP, Axis, Nolocals, OptOp, Padto, Split, Swap
from uops.spec.wmma import DESCRIPTORS

#: Factors and multiples; 0 stands for the whole axis.
AMOUNTS = (2, 3, 4, 5, 8, 16, 0)
_STEPS = (1, 6)
#: Iterations side by side in one kernel, and lanes of a workgroup, at most; iterations in all: this many or as many as there were.
_SIDE_BY_SIDE, _LANES, _MOST = 64, 64, 1 << 16
_UNROLLED = frozenset({AxisType.UPCAST, AxisType.UNROLL})
#: Types that a kernel has only after a Split: how often their moves go first, as they would else be rare.
_MADE = frozenset({AxisType.THREAD, AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.UPCAST, AxisType.UNROLL})
_MADE_FIRST = 0.3
#: What divides the axes where the machine has no tensor cores.
_ANY = tuple(WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "CPU", d.threads) for d in DESCRIPTORS)
#: How often a TC goes first where it is legal: later it never is (R93).
_TC_FIRST = 0.7


@dataclass(frozen=True, slots=True)
class Move:
    """A kind of OptOp: its name, the type of the axis it takes, and for a Split the type it makes and where."""

    name: str
    source: AxisType | None = None
    target: AxisType | None = None
    top: bool = False

    def __str__(self) -> str:
        source = f" {self.source.name}" if self.source else ""
        target = f" to {self.target.name} {'outer' if self.top else 'inner'}" if self.target else ""
        return f"{self.name}{source}{target}"


def _splits() -> Iterator[Move]:
    for target, row in AXIS_TABLE.items():
        for source in sorted(row.split_from, key=lambda t: t.priority):
            for top in (False, True):
                if row.direction is Direction.EITHER or (row.direction is Direction.OUTER) is top:
                    yield Move("Split", source, target, top)
    for t in sorted(TILED, key=lambda t: t.priority):
        yield from (Move("Split", t, t, top) for top in (False, True))


_REAL = tuple(t for t in AxisType if t not in (AxisType.PLACEHOLDER, AxisType.WARP))
#: The move before all others, and those after it; WARP axes come from the first alone.
_FIRST = Move("TC", AxisType.REDUCE)
_LATER: tuple[Move, ...] = (*_splits(), *(Move(name, t) for name in ("Padto", "Swap") for t in _REAL), Move("Nolocals"))
#: Every move.
MOVES = (_FIRST, *_LATER)

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def taken() -> dict[str, int]:
    """Move and amount -> how often, since the last call."""
    with _lock:
        found = dict(_counts)
        _counts.clear()
    return found


def draw(seed: int) -> Callable[[Schedule, Machine, Iterator[int]], Schedule]:
    """A choice of schedules, as `passes.optimize` takes one."""

    def chosen(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
        return drawn(s, machine, seed)

    return chosen


def drawn(s: Schedule, machine: Machine, seed: int) -> Schedule:
    """The kernel under OptOps drawn for it."""
    text = "\n".join((str(seed), show(s.effect), *(f"{a.id} {a.extent}" for a in s.axes if isinstance(a.extent, int))))
    rng = random.Random(hashlib.sha256(text.encode()).digest())
    free = [r for r in s.outputs if r.arg.axis_id not in s.fixed]
    if free and rng.random() < 0.6:
        s = typed(s, dict.fromkeys(free, AxisType.GLOBAL))
    most = max(_MOST, _iterations(s))
    if rng.random() < _TC_FIRST:
        s = _product(s, machine, rng, most) or s
    for _ in range(rng.randint(*_STEPS)):
        s = _step(s, machine, rng, most)
    return s


def _product(s: Schedule, machine: Machine, rng: random.Random, most: int) -> Schedule | None:
    """The schedule after a TC, by an instruction of the machine or else as one would divide the axes; None where none is legal."""
    modes = (1, 2) if machine.tensor_cores else (2,)
    machine = replace(machine, tensor_cores=machine.tensor_cores or _ANY)
    reduces = sum(a.type is AxisType.REDUCE for a in s.axes)
    choices = list(itertools.product(range(reduces), range(len(machine.tensor_cores)), (0, 1, 2), modes))
    for opt in (TC(*choice) for choice in rng.sample(choices, len(choices))):
        if reason_against(s, opt, machine) is not None:
            continue
        after = apply(s, opt, machine)
        if _bearable(after, most) and lanes_of(after) <= (machine.workgroup or _LANES):
            _count(str(_FIRST))
            return after
    return None


def _step(s: Schedule, machine: Machine, rng: random.Random, most: int) -> Schedule:
    """One more move, of those that the axes allow; the schedule as it is where the first few drawn are too much."""
    order = rng.sample(_LATER, len(_LATER))
    if rng.random() < _MADE_FIRST:
        order.sort(key=lambda m: (m.source not in _MADE, m.name != "Swap"))
    axes = s.axes
    for move in order:
        at = [k for k, a in enumerate(axes) if move.source is None or a.type is move.source]
        if not at:
            continue
        for amount in rng.sample(AMOUNTS, len(AMOUNTS)):
            found = _tried(s, move, rng.choice(at), amount, machine, rng, most)
            if found is not None:
                return found
    return s


def _tried(
    s: Schedule, move: Move, k: int, amount: int, machine: Machine, rng: random.Random, most: int
) -> Schedule | None:  # fmt: skip
    """The schedule after a move on axis k, or None where it is not legal, changes nothing or makes too much of the kernel."""
    axis = s.axes[k]
    opt = _opt(s, move, k, amount, rng)
    if opt is None:
        return None
    done = s
    if isinstance(opt, Split) and reason_against(s, opt, machine) is not None:
        pad = Padto(k, opt.factor)
        if reason_against(s, pad, machine) is not None:
            return None
        done = apply(s, pad, machine)
        opt = _moved(opt, axis, done)
    if opt is None or reason_against(done, opt, machine) is not None:
        return None
    after = apply(done, opt, machine)
    if not _bearable(after, most) or (after.effect is s.effect and not isinstance(opt, Nolocals)):
        return None
    _count(f"{move} by {amount or 'all'}" if isinstance(opt, (Split, Padto)) else str(move))
    if done is not s:
        _count(f"Padto {axis.type.name} by {amount or 'all'}")
    return after


def _count(what: str) -> None:
    with _lock:
        _counts[what] += 1


def _moved(opt: Split, axis: Axis, s: Schedule) -> Split | None:
    at = next((k for k, a in enumerate(s.axes) if a.id == axis.id), None)
    return None if at is None else Split(at, opt.factor, opt.target, opt.top)


def _opt(s: Schedule, move: Move, k: int, amount: int, rng: random.Random) -> OptOp | None:
    extent = s.axes[k].extent
    if move.name in ("Split", "Padto"):
        factor = amount or (extent if isinstance(extent, int) else 0)
        if factor < 1 or (move.name == "Padto" and not amount):
            return None
        return Split(k, factor, move.target, move.top) if move.target else Padto(k, factor)
    if move.name == "Swap":
        others = [j for j, a in enumerate(s.axes) if j != k and a.type is move.source]
        return Swap(k, rng.choice(others)) if others else None
    return Nolocals() if not any(isinstance(o, Nolocals) for o in s.done) else None


def _iterations(s: Schedule) -> int:
    return math.prod(max(1, greatest(a.extent)) for a in s.axes)


def _bearable(s: Schedule, most: int) -> bool:
    side = [a for a in s.axes if a.type in _UNROLLED or a.type in WORKGROUP]
    if any(not isinstance(a.extent, int) for a in side):
        return False
    unrolled = math.prod(greatest(a.extent) for a in side if a.type in _UNROLLED)
    return unrolled <= _SIDE_BY_SIDE and lanes_of(s) <= _LANES and _iterations(s) <= most
