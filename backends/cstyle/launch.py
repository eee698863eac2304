"""The mapping of a LINEAR kernel's loops to a launch: GLOBAL ranges number workgroups; LOCAL and the like number work-items.

Takes: the instructions of a kernel and the `WorkgroupSyntax` of a language. Gives: a `LaunchPlan` with the sizes, and an expression
for each Range and Special that the launch numbers. A kernel without such an axis is one work-item. Spec: Range, Special, Barrier;
R55, R57, R60.

A range becomes part of the launch if only ranges of the launch enclose it and it encloses every effect of the kernel. Then every
work-item runs the whole kernel once per iteration. It repeats the instructions before the ranges, which must affect registers alone
and must not read memory that the kernel writes. Iterations of a GLOBAL range or a range over lanes are unordered (R57), so they may
run concurrently. Any other range stays a loop, which is also correct.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from uops.backends.cstyle.language import Language, WorkgroupSyntax
from uops.backends.facts import is_within
from uops.compiler.ir.lanes import sort_specials_by_name
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import GRID, WORKGROUP, AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COLLECTIVE, Op
from uops.spec.ir.scope import base_memory, numbers_workgroups
from uops.spec.untrusted import escape_to_one_line

_LAUNCHED = GRID | WORKGROUP
#: Ops with effects beyond the work-item, whatever memory they touch.
_EFFECTS = frozenset({Op.STORE, Op.ATOMICADD, Op.BARRIER, Op.IF, Op.CUSTOM, Op.INS})
#: Order of lanes in a language of one dimension, the slowest first; 1 for all others. Lanes of outputs are faster than those of
#: reductions, because neighbours are neighbours in memory. The lanes of a warp are consecutive (R125, lanes of a warp).
_LANE_SPEED = {AxisType.GROUP_REDUCE: 0, AxisType.WARP: 2}
_MARK = "// launch "

#: A trip count: a constant, or the slot of the variable that holds it, as a str.
Extent = int | str


@dataclass(slots=True)
class LaunchPlan:
    """The launch of a kernel: `groups` and `lanes` are the extents in each dimension; a str is the slot of a variable.

    In a language of one dimension they are its factors, the slowest first. `index_expressions` maps each Range and Special that the
    launch numbers to its expression.
    """

    language: Language
    syntax: WorkgroupSyntax
    groups: list[Extent] = field(default_factory=list)
    lanes: list[Extent] = field(default_factory=list)
    index_expressions: dict[UOp, str] = field(default_factory=dict)
    _factors: dict[bool, list[UOp]] = field(default_factory=lambda: {True: [], False: []})

    @property
    def is_linear(self) -> bool:
        """True if all loops of the launch share one dimension."""
        return self.syntax.is_linear

    def launch_comment(self, arguments: Sequence[str], local_bytes: int = 0, private_bytes: int = 0) -> str:
        """Return the comment that describes the launch: the kinds of the arguments by slot, the extents, and, where LOCAL memory is
        a pool, its bytes and those of a work-item's REG buffers."""
        fields: dict[str, object] = {"arguments": list(arguments), "groups": self.groups, "lanes": self.lanes}
        return _MARK + json.dumps(fields | ({"local": local_bytes, "private": private_bytes} if self.syntax.local_pool else {}))

    def has_too_many_dimensions(self) -> bool:
        """Return True if more dimensions are assigned than the language has."""
        return not self.is_linear and max(len(self.groups), len(self.lanes)) > self.syntax.dimensions

    def assign_dimension(self, u: UOp, extent: Extent, *, in_grid: bool) -> None:
        """Assign the next dimension, or the next factor of the only one, to a Range or Special."""
        if self.is_linear:
            self._append_fastest_factor_and_reindex(u, extent, in_grid=in_grid)
        else:
            self._assign_shared_dimension([u], [extent], in_grid=in_grid)

    def assign_dimensions_or_leave_as_loops(self, ranges: Sequence[UOp], *, in_grid: bool) -> None:
        """Assign dimensions to ranges, outermost first: one each while there are enough, then constant extents share the last one.

        A range stays a loop if the launch cannot know its extent, or if no dimension is left.
        """
        extents = self.groups if in_grid else self.lanes
        sized = [(u, e) for u in ranges if (e := _find_launch_extent(u)) is not None]
        if self.is_linear:
            for u, e in sorted(sized, key=lambda node_and_extent: _LANE_SPEED.get(node_and_extent[0].arg.type, 1)):
                self._append_fastest_factor_and_reindex(u, e, in_grid=in_grid)
            return
        symbolic = [(u, e) for u, e in sized if isinstance(e, str)]
        constant = [(u, e) for u, e in sized if not isinstance(e, str)]
        for u, e in symbolic[: max(0, self.syntax.dimensions - len(extents) - bool(constant))]:
            self.assign_dimension(u, e, in_grid=in_grid)
        left = self.syntax.dimensions - len(extents)
        if left <= 0 or not constant:
            return
        shared = len(constant) - left + 1 if len(constant) > left else 1
        for u, e in constant[: len(constant) - shared]:
            self.assign_dimension(u, e, in_grid=in_grid)
        last = constant[len(constant) - shared :]
        self._assign_shared_dimension([u for u, _ in last], [e for _, e in last], in_grid=in_grid)

    def _assign_shared_dimension(self, nodes: Sequence[UOp], sizes: Sequence[Extent], *, in_grid: bool) -> None:
        """Assign one dimension to several nodes, of which the last varies fastest."""
        extents, form = (self.groups, self.syntax.group) if in_grid else (self.lanes, self.syntax.lane)
        position, stride = form.format(len(extents)), 1
        if len(nodes) == 1:
            self.index_expressions[nodes[0]] = position
            extents.append(sizes[0])
            return
        for u, n in reversed(list(zip(nodes, sizes, strict=True))):
            quotient = position if stride == 1 else f"({position} / {stride})"
            size = max(1, int(n))  # of an empty launch, no expression is evaluated
            self.index_expressions[u] = f"({quotient} % {size})"
            stride *= size
        extents.append(math.prod(max(0, int(n)) for n in sizes))

    def _append_fastest_factor_and_reindex(self, u: UOp, extent: Extent, *, in_grid: bool) -> None:
        """Number one more node by the only dimension, faster than those before, whose expressions change."""
        extents, form = (self.groups, self.syntax.group) if in_grid else (self.lanes, self.syntax.lane)
        extents.append(extent)
        nodes = self._factors[in_grid]
        nodes.append(u)
        constant_stride, stride = 1, list[str]()
        for k, node in reversed(list(enumerate(nodes))):
            factors = [*stride, *([str(constant_stride)] if constant_stride > 1 or not stride else [])]
            e = extents[k]
            text = self.syntax.dynamic.format(e) if isinstance(e, str) else str(max(1, e))
            quotient = form if factors == ["1"] else f"({form} / ({' * '.join(factors)}))"
            self.index_expressions[node] = quotient if k == 0 else f"({quotient} % {text})"
            if isinstance(e, str):
                stride.append(text)
            else:
                constant_stride *= max(1, e)


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The launch that a source's first line describes: the kind of each argument, the extents, and the bytes of a workgroup's LOCAL
    and of a work-item's REG memory."""

    arguments: tuple[str, ...]
    groups: tuple[Extent, ...]
    lanes: tuple[Extent, ...]
    local_bytes: int = 0
    private_bytes: int = 0

    def evaluate_global_local_sizes_unless_empty(self, scalars: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the work-items in all and per group, in each dimension; None for an empty launch (R57: no iterations)."""
        n = max(1, len(self.groups), len(self.lanes))
        groups, lanes = (_evaluate_extents(e, n, scalars) for e in (self.groups, self.lanes))
        if min(*groups, *lanes) < 1:
            return None
        return tuple(g * w for g, w in zip(groups, lanes)), lanes

    def count_groups_and_lanes(self, scalars: Sequence[int]) -> tuple[int, int]:
        """Return the workgroups in all and the work-items of one. Either is 0 for an empty launch (R57: no iterations)."""
        groups, lanes = (_evaluate_extents(e, len(e), scalars) for e in (self.groups, self.lanes))
        return math.prod(max(0, n) for n in groups), math.prod(max(0, n) for n in lanes)


def _evaluate_extents(extents: Sequence[Extent], n: int, scalars: Sequence[int]) -> tuple[int, ...]:
    values = [scalars[int(e)] if isinstance(e, str) else e for e in extents]
    return tuple(values + [1] * (n - len(values)))


def parse_launch_comment(source: str) -> LaunchShape:
    """Parse the launch that the first line of a source describes."""
    fields = json.loads(source.partition("\n")[0].removeprefix(_MARK))
    bytes_ = (int(fields.get(name, 0)) for name in ("local", "private"))
    return LaunchShape(tuple(fields["arguments"]), tuple(fields["groups"]), tuple(fields["lanes"]), *bytes_)


class _UnknownExtent(Unsupported):
    """A number of workgroups or lanes that is neither a constant nor a variable."""


def plan_launch(instructions: Sequence[UOp], language: Language) -> LaunchPlan:
    """Plan the launch of a kernel in a language that has workgroups.

    Raises Unsupported for a Special that the launch cannot number, and CompileError for a Barrier that not all lanes of a group
    reach.
    """
    if language.workgroups is None:
        raise Crash(f"{language.name} has no launch to plan")
    plan = LaunchPlan(language, language.workgroups)
    specials = sort_specials_by_name(u for u in instructions if u.op is Op.SPECIAL)
    for u in reversed(specials) if plan.is_linear else specials:  # number 0 varies fastest
        extent = _find_launch_extent(u)
        if extent is None:
            name = escape_to_one_line(str(u.arg.name))
            raise _UnknownExtent(f"SPECIAL {name} whose extent the launch cannot know", language.name)
        plan.assign_dimension(u, extent, in_grid=numbers_workgroups(u))
    if plan.has_too_many_dimensions() or math.prod(e for e in plan.lanes if isinstance(e, int)) > plan.syntax.max_lanes:
        raise Unsupported(f"SPECIAL in a launch of groups {plan.groups} and lanes {plan.lanes}", language.name)
    outer = _find_launchable_ranges_around_effects(instructions)
    groups = [u for u in outer if u.arg.type in GRID]
    plan.assign_dimensions_or_leave_as_loops(groups, in_grid=True)
    # A group that looped over a GLOBAL range would need barriers between iterations to reuse its local memory (R61).
    if plan.index_expressions.keys() >= set(groups) or not any(_is_local(u) for u in instructions):
        plan.assign_dimensions_or_leave_as_loops(
            _select_constant_lane_ranges_fitting_group([u for u in outer if u.arg.type in WORKGROUP], plan), in_grid=False
        )
    _check_collectives_outside_lane_loops(instructions, plan)
    return plan


def can_lanes_meet_at_barriers(linear: UOp, language: Language) -> bool:
    """Return True if a launch numbers all lanes of a kernel that meet at its Barriers.

    It numbers none if the kernel itself loads or computes how many there are.
    """
    try:
        plan_launch(linear.instructions, language)
    except (CompileError, _UnknownExtent):
        return False
    return True


def _select_constant_lane_ranges_fitting_group(ranges: Sequence[UOp], plan: LaunchPlan) -> list[UOp]:
    """Return the ranges of constant extent, outermost first, whose product fits into a group."""
    total, fitting = math.prod(max(1, e) for e in plan.lanes if isinstance(e, int)), list[UOp]()
    for u in ranges:
        extent = _find_launch_extent(u)
        if isinstance(extent, int) and total * max(1, extent) <= plan.syntax.max_lanes:
            total *= max(1, extent)
            fitting.append(u)
    return fitting


def _is_local(u: UOp) -> bool:
    return u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL


def _find_launchable_ranges_around_effects(instructions: Sequence[UOp]) -> list[UOp]:
    """Return the ranges that only such ranges enclose and that enclose every effect, outermost first.

    Every work-item repeats the instructions before the innermost of them, which end in registers. So none of them follows a Load of
    memory that the kernel writes: other work-items may have written it already.
    """
    outer: list[UOp] = []
    stores = [u for u in instructions if u.op is Op.STORE and _is_effect_visible_beyond_work_item(u)]
    written = {base_memory(u.buffer) for u in stores} | {base_memory(u.index) for u in instructions if u.op is Op.ATOMICADD}
    reads = [k for k, u in enumerate(instructions) if u.op is Op.LOAD and base_memory(u.buffer) in written]
    k = 0
    while k < len(instructions):
        u = instructions[k]
        if u.op is Op.RANGE and u.arg.type in _LAUNCHED:
            if reads and reads[0] < k:
                break
            outer.append(u)
        elif u.op is Op.RANGE:
            end = next(j for j, e in enumerate(instructions) if e.op is Op.END and u in e.ranges)
            block = instructions[k : end + 1]
            if any(_is_effect_visible_beyond_work_item(x) or (x.op is Op.RANGE and x.arg.type in _LAUNCHED) for x in block):
                break
            k = end
        elif _is_effect_visible_beyond_work_item(u):
            break
        k += 1
    inside = _make_no_effect_follows_end_test(instructions, outer)
    return [u for k, u in enumerate(outer) if all(inside(r) for r in outer[: k + 1])]


def _is_effect_visible_beyond_work_item(u: UOp) -> bool:
    """Return True if an instruction's effect is visible outside its work-item."""
    if u.op is Op.STORE:
        target = base_memory(u.buffer)
        return target.op is not Op.BUFFER or target.arg.addrspace is not AddrSpace.REG
    return u.op in _EFFECTS


def _make_no_effect_follows_end_test(instructions: Sequence[UOp], ranges: Sequence[UOp]) -> Callable[[UOp], bool]:
    """Return a predicate that is true for a range if no effect follows its End."""
    ended: set[UOp] = set()
    left: set[UOp] = set()
    for u in instructions:
        if u.op is Op.END:
            ended |= {r for r in u.ranges if r in ranges}
        elif _is_effect_visible_beyond_work_item(u):
            left |= ended
    return lambda r: r not in left


def _find_launch_extent(u: UOp) -> Extent | None:
    """Return the extent of a Range or Special if a launch can know it: a constant, or the slot of a variable."""
    bound = u.bound if u.src else u
    while bound.op is Op.CAST and is_within(bound.operand, bound.dtype.min, bound.dtype.max):
        bound = bound.operand
    if bound.op is Op.CONST:
        return int(bound.arg.value)
    if bound.op is Op.PARAM and bound.arg.name is not None:
        return str(bound.arg.slot)
    return None


def _check_collectives_outside_lane_loops(instructions: Sequence[UOp], plan: LaunchPlan) -> None:
    """Raise CompileError for a Barrier or a Wmma inside lanes that are a loop (R60: all lanes of a group meet at it)."""
    loops = [u for u in instructions if u.op is Op.RANGE and u.arg.type in WORKGROUP and u not in plan.index_expressions]
    open_: set[UOp] = set()
    for u in instructions:
        if u in loops:
            open_.add(u)
        elif u.op is Op.END:
            open_ -= set(u.ranges)
        elif u.op in COLLECTIVE and open_:
            axes = sorted(r.arg.axis_id for r in open_)
            raise CompileError(f"R60 (Barrier): the lanes of axes {axes} are a loop here, and would not meet at {u!r}")
