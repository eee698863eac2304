"""Schedules of a campaign's kernels: sequences of legal OptOps, and illegal OptOps that must be rejected.

A sequence is text, so that a reproducer can hold and shrink it. It consists of parts `KERNEL:OPTOP` between semicolons; kernels
are numbered in the order in which the optimizer reaches them:

    0:global; 0:split 1 4 UPCAST; 0:split 0 8 LOOP top; 0:padto 2 5; 1:swap 0 1; 1:nolocals

`draw N` stands for OptOps that the seed N draws for each kernel. `beam N` stands for moves of the search that N draws
(`uops.compiler.passes.optimize.search.beam`). These start from the heuristics' schedule (`0:chosen`), from flattened loop nests
(`0:joined`) or from the kernel's own loops (`0:plain`). `pipeline_with_scheduler` is the pipeline with such a sequence in place
of the compiler's choice. Parts that are not legal, as after a program was made smaller, are skipped. `OptOpDrawer` chooses each
OptOp from the list of the legal ones, the simplest first, so that a driver that shrinks choices shrinks the sequence.

Spec: Kernel Optimizations (OptOps); R90 to R98 (rulings on OptOps).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from uops.backends.conformance.stage_judge import Fault
from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.passes.optimize.optimize import build_scan_or_scatter_or_schedule_kernel, choose_by_heuristics
from uops.compiler.passes.optimize.schedule.accesses import flatten_loop_nests
from uops.compiler.passes.optimize.schedule.optops import (
    apply,
    count_max_lanes_per_workgroup,
    find_rejection_reason,
    max_trip_count,
)
from uops.compiler.passes.optimize.schedule.schedule import (
    RejectedOptOp,
    Schedule,
    Scheduler,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.optimize.search.beam import STARTS, propose_optops
from uops.compiler.pipeline import LoweringState, Pass, run_pass_and_verify
from uops.compiler.target import MachineModel, Target
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kinds import stable_hash
from uops.spec.choices import ChoiceSource
from uops.spec.ir.axes import AXIS_TABLE, UNROLLED, WORKGROUP, AxisType, Direction
from uops.spec.ir.node import UOp
from uops.spec.optops import (
    OPTOPS,
    TC,
    Axis,
    Nolocals,
    OptOp,
    Padto,
    Split,
    Swap,
    apply_legal_optop_to_axes,
    illegality_reason,
    parse_optop,
    sort_axes,
    split_directions,
)  # fmt: skip

#: Maximum numbers of a kernel's vector lanes, of its lanes in a workgroup, and of its iterations.
_MAX_VECTOR_LANES, _MAX_WORKGROUP_LANES, _MAX_ITERATIONS = 64, 64, 1 << 15
#: Number of draws until a legal OptOp is given up.
_TRIES = 24
#: Maximum number of the search's proposals that one step chooses among.
_MOVES = 64
#: A sequence that stands for the draws of a seed.
_DRAWN = re.compile(r"\s*(draw|beam) (\d+)\s*")


# -------------------------------------------------------------------------------------------------------------------- text


def _split_parts(schedule_text: str) -> list[str]:
    return [p for p in map(str.strip, schedule_text.split(";")) if p]


def _parts_by_kernel(schedule_text: str) -> dict[int, list[str]]:
    parts: dict[int, list[str]] = {}
    for part in _split_parts(schedule_text):
        k, _, text = part.partition(":")
        parts.setdefault(int(k), []).append(text.strip())
    return parts


def find_unreadable_part(schedule_text: str) -> str | None:
    """Return the first part of a sequence that cannot be parsed, or None."""
    if _DRAWN.fullmatch(schedule_text):
        return None
    for part in _split_parts(schedule_text):
        k, _, text = part.partition(":")
        try:
            _ = int(k), text.strip() in ("global", *STARTS) or parse_optop(text)
        except (ValueError, LookupError, TypeError):
            return part
    return None


def list_part_kinds_and_neighbour_pairs(schedule_text: str) -> list[str]:
    """List the parts of a sequence without numbers, and each pair of neighbours in one kernel, for coverage."""
    names = []
    for parts in _parts_by_kernel(schedule_text).values():
        in_kernel = [re.sub(r" -?\d+", "", p) for p in parts]
        names += in_kernel + [f"{first} > {second}" for first, second in pairwise(in_kernel)]
    return names


# ---------------------------------------------------------------------------------------------------------------- sequences


class ScheduleTextFollower:
    """A choice of schedules that follows a sequence, for `uops.compiler.passes.optimize.optimize`."""

    def __init__(self, schedule_text: str) -> None:
        drawn = _DRAWN.fullmatch(schedule_text)
        choosers = {"draw": self._apply_random_optops, "beam": self._apply_random_search_moves}
        self._chooser = choosers[drawn.group(1)] if drawn else None
        self._seed = int(drawn.group(2)) if drawn else 0
        self._parts = {} if drawn else _parts_by_kernel(schedule_text)
        self._kernel = 0
        self._applied: list[str] = []

    @property
    def applied_text(self) -> str:
        """The parts that were applied so far, as the text of a sequence."""
        return "; ".join(self._applied)

    def __call__(self, s: Schedule, machine: MachineModel, buffer_ids: Iterator[int]) -> Schedule:
        """Schedule the next kernel. Raises what applying an OptOp raises, except RejectedOptOp."""
        k, self._kernel = self._kernel, self._kernel + 1
        step = functools.partial(self._apply_and_record_part_if_legal, machine=machine, buffer_ids=buffer_ids, kernel_number=k)
        if self._chooser is not None:
            return self._chooser(s, machine, step, SeededDraw(stable_hash(self._seed, k)))
        for text in self._parts.get(k, ()):
            s = step(s, text)
        return s

    def _apply_and_record_part_if_legal(
        self, s: Schedule, text: str, machine: MachineModel, buffer_ids: Iterator[int], kernel_number: int
    ) -> Schedule:
        """Apply one part of a sequence; return the schedule unchanged if it is not legal."""
        try:
            if text == "global":
                after = set_output_loop_types_before_optops(s, dict.fromkeys(_unordered_loops(s), AxisType.GLOBAL))
            elif text in STARTS:
                after = _choose_plain_flat_or_heuristic_start(s, text, machine, buffer_ids)
            else:
                opt = parse_optop(text)
                after = apply(s, opt, machine) if _is_applicable(s, opt, machine) else s
        except RejectedOptOp:
            return s
        if after is not s:
            self._applied.append(f"{kernel_number}:{text}")
        return after

    def _apply_random_optops(self, s: Schedule, machine: MachineModel, apply_part: Step, draw: SeededDraw) -> Schedule:
        if _unordered_loops(s) and draw.chance(60):
            s = apply_part(s, "global")
        for _ in range(draw.integer(1, 6)):
            opt = _try_to_draw_legal_optop(s, machine, draw)
            if opt is not None:
                s = apply_part(s, opt.spell())
        return s

    def _apply_random_search_moves(self, s: Schedule, machine: MachineModel, step: Step, draw: SeededDraw) -> Schedule:
        start = draw.choice(STARTS)
        s = step(s, start)
        if start != "chosen" and machine.workgroup and _unordered_loops(s):
            s = step(s, "global")
        for _ in range(draw.integer(0, 3)):
            options = list(islice(propose_optops(s, machine), _MOVES))
            for opt in draw.choice(options) if options else ():
                s = step(s, opt.spell())
        return s


#: (schedule, text of a part) -> the schedule with that part applied.
Step = Callable[[Schedule, str], Schedule]


def _choose_plain_flat_or_heuristic_start(s: Schedule, start: str, machine: MachineModel, buffer_ids: Iterator[int]) -> Schedule:
    """Return the schedule that a search starts from; `plain` is the kernel itself."""
    if s.done or start == "plain":
        return s
    return choose_by_heuristics(s, machine, buffer_ids) if start == "chosen" else flatten_loop_nests(s)


def _unordered_loops(s: Schedule) -> list[UOp]:
    """Return the output loops whose iterations may run in any order."""
    return [r for r in s.outputs if r.arg.axis_id not in s.ordered_ids]


#: The OptOps that are drawn, each as often as its weight.
_WEIGHTED = tuple(o for o in OPTOPS for _ in range(o.weight))


def _try_to_draw_legal_optop(s: Schedule, machine: MachineModel, draw: SeededDraw) -> OptOp | None:
    """Draw a legal OptOp by the weights of their classes, or None if a few draws give none."""
    for _ in range(_TRIES):
        axes = s.axes
        kind = draw.choice(_WEIGHTED)
        opt = kind.draw_candidate(axes, draw) if axes else None
        if opt is not None and _is_applicable(s, opt, machine):
            return opt
    return None


def _is_applicable(s: Schedule, opt: OptOp, machine: MachineModel) -> bool:
    return find_rejection_reason(s, opt, machine) is None and _leaves_kernel_small_enough_to_run(s, opt, machine)


def _leaves_kernel_small_enough_to_run(s: Schedule, opt: OptOp, machine: MachineModel) -> bool:
    """Return True if the kernel is small enough to run after the OptOp."""
    if isinstance(opt, Nolocals):
        return opt not in s.done
    after = apply(s, opt, machine)
    vector_lanes = math.prod(max_trip_count(a.extent) for a in after.axes if a.type in UNROLLED)
    symbolic = any(a.type in WORKGROUP | UNROLLED and not isinstance(a.extent, int) for a in after.axes)
    iterations = math.prod(max(1, max_trip_count(a.extent)) for a in after.axes)
    if symbolic or vector_lanes > _MAX_VECTOR_LANES:
        return False
    return count_max_lanes_per_workgroup(after) <= _MAX_WORKGROUP_LANES and iterations <= _MAX_ITERATIONS


# ------------------------------------------------------------------------------------------------------- lists of legal OptOps

#: Factors and multiples to choose from, the simplest first; a Split may also take the whole axis.
_FACTORS = (2, 3, 4, 5, 7, 8, 16)


#: Maximum number of iterations of a kernel after an OptOp of the list of legal ones.
_MAX_DRAWN_ITERATIONS = 1 << 13


def list_some_legal_optops(axes: Sequence[Axis], applied: Sequence[OptOp] = ()) -> list[OptOp]:
    """Return the legal OptOps of a kernel with these axes after the OptOps `applied`, the simplest first.

    There is one for each factor and multiple of a short list, but no TC, which needs a product and a target. An OptOp that would
    make the kernel large is left out.
    """
    return list(_list_legal_optops(tuple(sort_axes(axes)), tuple(applied)))


@functools.lru_cache(1024)
def _list_legal_optops(axes: tuple[Axis, ...], applied: tuple[OptOp, ...]) -> tuple[OptOp, ...]:
    legal = (o for o in _enumerate_candidate_optops(axes) if illegality_reason(o, axes, applied=applied) is None)
    again = Nolocals() in applied  # a second one changes nothing, and `_leaves_kernel_small_enough_to_run` leaves it out
    return tuple(o for o in legal if _keeps_kernel_small_enough_to_interpret(o, axes) and not (again and o == Nolocals()))


def _enumerate_candidate_optops(axes: Sequence[Axis]) -> Iterator[OptOp]:
    numbers = range(len(axes))
    extents = [a.extent for a in axes]
    for k, extent in enumerate(extents):
        factors = dict.fromkeys((*_FACTORS, extent) if isinstance(extent, int) else _FACTORS)
        yield from (Split(k, f, t, top) for f in factors if f != 1 for t in AXIS_TABLE for top in split_directions(axes[k].type, t))
    yield from (Swap(j, k) for k in numbers for j in numbers if j < k)
    yield from (Padto(k, f) for k, extent in enumerate(extents) for f in _FACTORS if isinstance(extent, int))
    yield Nolocals()


def _keeps_kernel_small_enough_to_interpret(opt: OptOp, axes: Sequence[Axis]) -> bool:
    """Return True if a kernel is small enough to interpret after an OptOp; an axis of symbolic extent is not split."""
    if isinstance(opt, Split) and not isinstance(axes[opt.axis].extent, int):
        return False
    after = apply_legal_optop_to_axes(opt, axes)
    lanes = math.prod(a.extent for a in after if a.type in UNROLLED and isinstance(a.extent, int))
    group = math.prod(a.extent for a in after if a.type in WORKGROUP and isinstance(a.extent, int))
    iterations = math.prod(max(1, a.extent) for a in after if isinstance(a.extent, int))
    return lanes <= _MAX_VECTOR_LANES and group <= _MAX_WORKGROUP_LANES and iterations <= _MAX_DRAWN_ITERATIONS


def draw_optop_sequence(source: ChoiceSource, axes: Sequence[Axis], max_optops: int = 4) -> list[OptOp]:
    """Draw up to `max_optops` OptOps, each legal after the ones before it."""
    applied: list[OptOp] = []
    current = list(axes)
    while len(applied) < max_optops and source.chance(75):
        legal = list_some_legal_optops(current, applied)
        if not legal:
            break
        applied.append(source.choice(legal))
        current = apply_legal_optop_to_axes(applied[-1], current)
    return applied


class OptOpDrawer:
    """A choice of schedules that draws legal OptOps for each kernel, for `uops.compiler.passes.optimize.optimize`.

    An OptOp that is legal but that the compiler rejects, as the memory of a kernel or the machine forbids it, is left out.
    """

    def __init__(self, source: ChoiceSource, max_optops: int = 4) -> None:
        self._source, self._max_optops = source, max_optops
        #: The OptOps that were applied, with the numbers of their kernels.
        self.applied: list[tuple[int, OptOp]] = []
        self._kernel = 0

    @property
    def applied_text(self) -> str:
        """The OptOps that were applied, as the text of a sequence (`uops.fuzz.generate.schedules`)."""
        return "; ".join(f"{k}:{o.spell()}" for k, o in self.applied)

    def __call__(self, s: Schedule, machine: MachineModel, buffer_ids: Iterator[int]) -> Schedule:
        """Schedule the next kernel."""
        kernel, self._kernel = self._kernel, self._kernel + 1
        for _ in range(self._max_optops):
            if not s.axes or not self._source.chance(75):
                break
            options = list_some_legal_optops(s.axes, s.done)
            if not options:
                break
            chosen = self._source.choice(options)
            if find_rejection_reason(s, chosen, machine) is None:
                s = apply(s, chosen, machine)
                self.applied.append((kernel, chosen))
        return s


# ---------------------------------------------------------------------------------------------------------------- pipelines


def pipeline_with_scheduler(scheduler: Scheduler) -> tuple[Pass, ...]:
    """Return the pipeline with another choice of schedules."""

    def run(body: UOp, state: LoweringState) -> UOp:
        return build_scan_or_scatter_or_schedule_kernel(body, state.target.machine, scheduler)

    return tuple(replace(p, run=run) if p.name == "optimize" else p for p in pipeline.PIPELINE)


def run_passes_up_to(graph: UOp, target: Target, pass_sequence: Sequence[Pass], last_pass: str = "render") -> UOp:
    """Lower a graph by these passes, up to and including `last_pass`."""
    state = LoweringState(target, Config(reuse=False))
    for p in pass_sequence:
        graph = run_pass_and_verify(p, graph, state)
        if p.name == last_pass:
            break
    return graph


# ------------------------------------------------------------------------------------------------------------ illegal ones


def _draw_indivisible_split(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    splits = [
        Split(k, f, t, AXIS_TABLE[t].direction is Direction.OUTER)
        for k, a in enumerate(axes)
        for t, row in AXIS_TABLE.items()
        for f in (2, 3, 5, 7, 11)
        if a.type in row.split_from and isinstance(a.extent, int) and a.extent % f
    ]
    return draw.choice(splits) if splits else None


def _draw_split_to_forbidden_type(axes: Sequence[Axis], draw: SeededDraw) -> Split:
    k = draw.integer(0, len(axes) - 1)
    source = axes[k].type
    targets = [t for t in AXIS_TABLE if not split_directions(source, t)]
    return Split(k, 1, draw.choice(targets), draw.chance(50))


def _draw_split_in_wrong_direction(axes: Sequence[Axis], draw: SeededDraw) -> OptOp | None:
    splits = [
        Split(k, 1, t, row.direction is Direction.INNER)
        for k, a in enumerate(axes)
        for t, row in AXIS_TABLE.items()
        if a.type in row.split_from and row.direction in (Direction.INNER, Direction.OUTER)
    ]
    return draw.choice(splits) if splits else None


def _draw_axis_out_of_range(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    k = draw.choice((-1, len(axes), len(axes) + 7))
    options: list[OptOp] = [Split(k, 1, AxisType.UPCAST), Padto(k, 2), Swap(k, 0), Swap(0, k)]
    return draw.choice(options)


def _draw_nonpositive_factor(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    k, n = draw.integer(0, len(axes) - 1), draw.choice((0, -1, -4))
    return Padto(k, n) if draw.chance(50) else Split(k, n, AxisType.UPCAST)


def _draw_swap_of_other_types(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    a = draw.integer(0, len(axes) - 1)
    others = [k for k, x in enumerate(axes) if x.type is not axes[a].type]
    return Swap(a, draw.choice([a, *others]))


def _draw_invalid_tensor_core(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    return TC(draw.integer(-1, 3), draw.choice((-2, 5)), draw.choice((-1, 3)), draw.choice((0, 3)))


#: Draws of OptOps that no kernel admits, each one against one clause of the rulings.
ILLEGAL = (
    _draw_indivisible_split, _draw_split_to_forbidden_type, _draw_split_in_wrong_direction, _draw_axis_out_of_range,
    _draw_nonpositive_factor, _draw_swap_of_other_types, _draw_invalid_tensor_core,
)  # fmt: skip
#: A ruling that the reason of a rejection cites.
_REASON = re.compile(r"\(R\d+")


def find_illegal_optop_not_rejected_citing_ruling(
    graph: UOp, target: Target, draw: SeededDraw, tries_per_kernel: int = 8
) -> Fault | None:
    """Check that illegal OptOps are rejected with a reason that cites a ruling, on the kernels of `graph` after a few legal
    OptOps. Return the first Fault, or None.
    """
    machine = target.machine
    root = run_passes_up_to(graph, target, pipeline.PIPELINE, "rangeify")
    for body in dict.fromkeys(call.body for call in root.src):
        s = create_initial_schedule(body)
        if s is None or not s.axes:
            continue
        for _ in range(draw.integer(0, 2)):
            opt = _try_to_draw_legal_optop(s, machine, draw)
            s = s if opt is None else apply(s, opt, machine)
        for _ in range(tries_per_kernel):
            opt = draw.choice(ILLEGAL)(s.axes, draw)
            fault = None if opt is None else _fault_unless_rejected_citing_ruling(s, opt, machine)
            if fault is not None:
                return fault
    return None


def _fault_unless_rejected_citing_ruling(s: Schedule, opt: OptOp, machine: MachineModel) -> Fault | None:
    """Apply an illegal OptOp; return a Fault unless it is rejected with a ruling."""
    axes = ", ".join(f"{a.type.name} {a.extent}" for a in s.axes)
    try:
        apply(s, opt, machine)
    except RejectedOptOp as e:
        return None if _REASON.search(str(e)) else Fault("reason", f"{opt.spell()} on {axes}: rejected without a ruling: {e}")
    except Exception as e:
        return Fault(type(e).__name__.lower(), f"{opt.spell()} on {axes}: {e}")
    return Fault("accepted", f"{opt.spell()} on {axes} is not legal, and was applied")
