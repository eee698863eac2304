"""Schedules of a campaign's kernels: sequences of OptOps from the legality table, and illegal ones that must be rejected.

A sequence is text, so that a reproducer can hold and shrink it: `KERNEL:OPTOP` parts between semicolons, kernels counted as the
optimizer meets them.

    0:global; 0:split 1 4 UPCAST; 0:split 0 8 LOOP top; 0:padto 2 5; 1:swap 0 1; 1:nolocals

`draw N` stands for what the seed N draws for each kernel, `beam N` for what it draws among the schedules that a search may choose
(`uops.compiler.passes.optimize.search.beam`): those start from the hand-written choice (`0:chosen`), from joined walks through
memory (`0:joined`) or from the kernel's own loops. `passes(chosen)` is the pipeline with such a schedule in place of the compiler's
choice; what is not legal any more, after a program was made smaller, is left out. Spec: Kernel Optimizations (OptOps); R90 to R98.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.ir.bodies import each
from uops.compiler.passes.optimize.optimize import Choose, hand_written, scheduled
from uops.compiler.passes.optimize.schedule.accesses import merged
from uops.compiler.passes.optimize.schedule.optops import apply, greatest, lanes_of, reason_against
from uops.compiler.passes.optimize.schedule.schedule import Rejected, Schedule, begin, typed
from uops.compiler.passes.optimize.search.beam import STARTS, moves
from uops.compiler.pipeline import Lowering, Pass, run_pass
from uops.compiler.target import Machine, Target, machine_of
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kinds import number
from uops.fuzz.oracles.stages import Fault
from uops.spec.ir.axes import AXIS_TABLE, AxisType, Direction
from uops.spec.ir.node import UOp
from uops.spec.optops import TC, TILED, WORKGROUP, Axis, Nolocals, OptOp, Padto, Split, Swap

FACTORS = (2, 3, 4, 5, 7, 8, 16, 0)  # 0: the whole axis
#: Lanes side by side, lanes of a workgroup, and iterations of one kernel, at most.
_SIDE_BY_SIDE, _LANES, _MOST = 64, 64, 1 << 15
_TRIES = 24
#: Moves of a search that are looked at in one step.
_MOVES = 64
#: A sequence that a seed draws.
_DRAWN = re.compile(r"\s*(draw|beam) (\d+)\s*")


# -------------------------------------------------------------------------------------------------------------------- text


def spell(opt: OptOp) -> str:
    """An OptOp as it stands in a sequence."""
    if isinstance(opt, Split):
        return f"split {opt.axis} {opt.factor} {opt.target.name}{' top' if opt.top else ''}"
    if isinstance(opt, Padto):
        return f"padto {opt.axis} {opt.multiple}"
    if isinstance(opt, Swap):
        return f"swap {opt.axis} {opt.other}"
    return f"tc {opt.axis} {opt.tc} {opt.opt} {opt.mode}" if isinstance(opt, TC) else "nolocals"


def parse(text: str) -> OptOp:
    """The inverse of `spell`."""
    name, *words = text.split()
    if name == "split":
        return Split(int(words[0]), int(words[1]), AxisType[words[2]], words[3:] == ["top"])
    kinds: dict[str, Callable[..., OptOp]] = {"padto": Padto, "swap": Swap, "tc": TC, "nolocals": Nolocals}
    return kinds[name](*map(int, words))


def _pieces(opts: str) -> list[str]:
    return [p for p in map(str.strip, opts.split(";")) if p]


def _parts(opts: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for part in _pieces(opts):
        k, _, text = part.partition(":")
        found.setdefault(int(k), []).append(text.strip())
    return found


def unreadable(opts: str) -> str | None:
    """The first part of a sequence that says nothing; None where all can be read."""
    if _DRAWN.fullmatch(opts):
        return None
    for part in _pieces(opts):
        k, _, text = part.partition(":")
        try:
            _ = int(k), text.strip() in ("global", *STARTS) or parse(text)
        except (ValueError, LookupError, TypeError):
            return part
    return None


def kinds_of(opts: str) -> list[str]:
    """What a sequence does, without numbers: each part, and each pair of neighbours in one kernel."""
    found = []
    for parts in _parts(opts).values():
        kinds = [re.sub(r" -?\d+", "", p) for p in parts]
        found += kinds + [f"{a} > {b}" for a, b in pairwise(kinds)]
    return found


# ---------------------------------------------------------------------------------------------------------------- sequences


class Sequencer:
    """A choice of schedules, as `uops.compiler.passes.optimize.optimize` takes one. `done` is the text of what it chose."""

    def __init__(self, opts: str) -> None:
        drawn = _DRAWN.fullmatch(opts)
        self._draws = {"draw": self._drawn, "beam": self._searched}[drawn.group(1)] if drawn else None
        self._seed = int(drawn.group(2)) if drawn else 0
        self._given = {} if drawn else _parts(opts)
        self._kernel = 0
        self._done: list[str] = []

    @property
    def done(self) -> str:
        return "; ".join(self._done)

    def __call__(self, s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
        k, self._kernel = self._kernel, self._kernel + 1
        step = functools.partial(self._step, machine=machine, uniques=uniques, k=k)
        if self._draws is not None:
            return self._draws(s, machine, step, SeededDraw(number(self._seed, k)))
        for text in self._given.get(k, ()):
            s = step(s, text)
        return s

    def _step(self, s: Schedule, text: str, machine: Machine, uniques: Iterator[int], k: int) -> Schedule:
        """One part of a sequence; nothing where it may not be applied."""
        try:
            if text == "global":
                after = typed(s, dict.fromkeys(_free(s), AxisType.GLOBAL))
            elif text in STARTS:
                after = _start(s, text, machine, uniques)
            else:
                opt = parse(text)
                after = apply(s, opt, machine) if _may(s, opt, machine) else s
        except Rejected:
            return s
        if after is not s:
            self._done.append(f"{k}:{text}")
        return after

    def _drawn(self, s: Schedule, machine: Machine, step: Step, draw: SeededDraw) -> Schedule:
        if _free(s) and draw.chance(60):
            s = step(s, "global")
        for _ in range(draw.integer(1, 6)):
            opt = _legal(s, machine, draw)
            if opt is not None:
                s = step(s, spell(opt))
        return s

    def _searched(self, s: Schedule, machine: Machine, step: Step, draw: SeededDraw) -> Schedule:
        start = draw.choice(STARTS)
        s = step(s, start)
        if start != "chosen" and machine.workgroup and _free(s):
            s = step(s, "global")
        for _ in range(draw.integer(0, 3)):
            options = list(islice(moves(s, machine), _MOVES))
            for opt in draw.choice(options) if options else ():
                s = step(s, spell(opt))
        return s


#: Does one part of a sequence.
Step = Callable[[Schedule, str], Schedule]


def _start(s: Schedule, name: str, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Where a search starts; the kernel itself is `plain`."""
    if s.done or name == "plain":
        return s
    return hand_written(s, machine, uniques) if name == "chosen" else merged(s)


def _free(s: Schedule) -> list[UOp]:
    """Output loops whose iterations need no order."""
    return [r for r in s.outputs if r.arg.axis_id not in s.fixed]


def _legal(s: Schedule, machine: Machine, draw: SeededDraw) -> OptOp | None:
    """A legal OptOp of an even choice of kinds, where a few draws find one; Padto goes with what it makes divisible."""
    for _ in range(_TRIES):
        axes = s.axes
        kind = draw.choice((_any_split, _any_split, _any_split, _any_padto, _any_swap, _any_nolocals))
        opt = kind(axes, draw) if axes else None
        if opt is not None and _may(s, opt, machine):
            return opt
    return None


def _may(s: Schedule, opt: OptOp, machine: Machine) -> bool:
    return reason_against(s, opt, machine) is None and _bearable(s, opt, machine)


def _bearable(s: Schedule, opt: OptOp, machine: Machine) -> bool:
    """Whether what comes out is small enough to run."""
    if isinstance(opt, Nolocals):
        return not any(isinstance(o, Nolocals) for o in s.done)
    axes = apply(s, opt, machine)
    side = math.prod(greatest(a.extent) for a in axes.axes if a.type in (AxisType.UPCAST, AxisType.UNROLL))
    symbolic = any(a.type in WORKGROUP | {AxisType.UPCAST, AxisType.UNROLL} and not isinstance(a.extent, int) for a in axes.axes)
    total = math.prod(max(1, greatest(a.extent)) for a in axes.axes)
    return not symbolic and side <= _SIDE_BY_SIDE and lanes_of(axes) <= _LANES and total <= _MOST


def _any_split(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    """A Split that the table of axis types has: type and direction fit, the factor may not."""
    k = draw.integer(0, len(axes) - 1)
    source, extent = axes[k].type, axes[k].extent
    targets = [t for t, row in AXIS_TABLE.items() if source in row.split_from or (t is source and t in TILED)]
    if not targets:
        return None
    target = draw.choice(targets)
    direction = Direction.EITHER if target is source else AXIS_TABLE[target].direction
    top = direction is Direction.OUTER or (direction is Direction.EITHER and draw.chance(50))
    divisors = [f for f in FACTORS if f and isinstance(extent, int) and extent % f == 0]
    factor = draw.choice(divisors) if divisors and draw.chance(70) else draw.choice(FACTORS)
    return Split(k, factor or (extent if isinstance(extent, int) else 2), target, top)


def _any_padto(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    return Padto(draw.integer(0, len(axes) - 1), draw.choice(FACTORS[:-1]))


def _any_swap(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    a = draw.integer(0, len(axes) - 1)
    others = [k for k, x in enumerate(axes) if k != a and x.type is axes[a].type]
    return Swap(a, draw.choice(others)) if others else None


def _any_nolocals(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    return Nolocals()


# ---------------------------------------------------------------------------------------------------------------- pipelines


def passes(chosen: Choose) -> tuple[Pass, ...]:
    """The pipeline with another choice of schedules."""

    def run(root: UOp, state: Lowering) -> UOp:
        return each(root, lambda body: scheduled(body, machine_of(state.target), chosen))

    return tuple(replace(p, run=run) if p.name == "optimize" else p for p in pipeline.PIPELINE)


def lowered(graph: UOp, target: Target, through: Sequence[Pass], upto: str = "render") -> UOp:
    """The graph after the pass `upto`, by these passes."""
    state = Lowering(target, Config(reuse=False))
    for p in through:
        graph = run_pass(p, graph, state)
        if p.name == upto:
            break
    return graph


# ------------------------------------------------------------------------------------------------------------ illegal ones


def _splits_not_dividing(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    found = [
        Split(k, f, t, AXIS_TABLE[t].direction is Direction.OUTER)
        for k, a in enumerate(axes)
        for t, row in AXIS_TABLE.items()
        for f in (2, 3, 5, 7, 11)
        if a.type in row.split_from and isinstance(a.extent, int) and a.extent % f
    ]
    return draw.choice(found) if found else None


def _split_of_other_type(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    k = draw.integer(0, len(axes) - 1)
    source = axes[k].type
    wrong = [t for t, row in AXIS_TABLE.items() if source not in row.split_from and not (t is source and t in TILED)]
    return Split(k, 1, draw.choice(wrong), draw.chance(50))


def _split_of_wrong_half(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    found = [
        Split(k, 1, t, row.direction is Direction.INNER)
        for k, a in enumerate(axes)
        for t, row in AXIS_TABLE.items()
        if a.type in row.split_from and row.direction in (Direction.INNER, Direction.OUTER)
    ]
    return draw.choice(found) if found else None


def _beyond(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    k = draw.choice((-1, len(axes), len(axes) + 7))
    options: list[OptOp] = [Split(k, 1, AxisType.UPCAST), Padto(k, 2), Swap(k, 0), Swap(0, k)]
    return draw.choice(options)


def _no_number(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    k, n = draw.integer(0, len(axes) - 1), draw.choice((0, -1, -4))
    return Padto(k, n) if draw.chance(50) else Split(k, n, AxisType.UPCAST)


def _swap_of_other_types(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    a = draw.integer(0, len(axes) - 1)
    others = [k for k, x in enumerate(axes) if x.type is not axes[a].type]
    return Swap(a, draw.choice([a, *others]))


def _no_tensor_core(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    return TC(draw.integer(-1, 3), draw.choice((-2, 5)), draw.choice((-1, 3)), draw.choice((0, 3)))


#: OptOps that no kernel admits, each by one clause of the rulings.
ILLEGAL = (
    _splits_not_dividing, _split_of_other_type, _split_of_wrong_half, _beyond, _no_number, _swap_of_other_types, _no_tensor_core,
)  # fmt: skip
_REASON = re.compile(r"\(R\d+")


def illegal_faults(graph: UOp, target: Target, draw: SeededDraw, most: int = 8) -> Fault | None:
    """Whether illegal OptOps, on the kernels of `graph` after a few legal ones, are rejected with a reason that cites a ruling."""
    machine = machine_of(target)
    root = lowered(graph, target, pipeline.PIPELINE, "rangeify")
    for body in dict.fromkeys(c.src[0] for c in root.src):
        s = begin(body)
        if s is None or not s.axes:
            continue
        for _ in range(draw.integer(0, 2)):
            opt = _legal(s, machine, draw)
            s = s if opt is None else apply(s, opt, machine)
        for _ in range(most):
            opt = draw.choice(ILLEGAL)(s.axes, draw)
            fault = None if opt is None else _accepted(s, opt, machine)
            if fault is not None:
                return fault
    return None


def _accepted(s: Schedule, opt: OptOp, machine: Machine) -> Fault | None:
    """What is wrong with how an illegal OptOp is received."""
    axes = ", ".join(f"{a.type.name} {a.extent}" for a in s.axes)
    try:
        apply(s, opt, machine)
    except Rejected as e:
        return None if _REASON.search(str(e)) else Fault("reason", f"{spell(opt)} on {axes}: rejected without a ruling: {e}")
    except Exception as e:
        return Fault(type(e).__name__.lower(), f"{spell(opt)} on {axes}: {e}")
    return Fault("accepted", f"{spell(opt)} on {axes} is not legal, and was applied")
