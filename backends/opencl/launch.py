"""Which loops of a LINEAR kernel become the launch: GLOBAL ranges number workgroups, LOCAL ones and their like work-items.

Takes: the instructions of a kernel. Gives: a `Launch`, with the expression of each Range and Special that the launch numbers, and
the sizes. A kernel with no such axis is one work-item. Spec: Range, Special, Barrier; R55, R57, R60.

A range becomes part of the launch if nothing but ranges of the launch are around it and every effect of the kernel is inside of it:
then every work-item runs the whole kernel once per iteration, and for itself what comes before and concerns registers alone, unless
that reads what the kernel writes. Iterations of a GLOBAL range or of one over lanes are unordered (R57), so that they may run at
the same time. Whatever is no such range stays a loop, which is as right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from uops.backends.facts import memory, within
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

GROUPS = frozenset({AxisType.GLOBAL, AxisType.THREAD})
LANES = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE})
#: OpenCL numbers work-items in three dimensions; a further range is a loop.
DIMENSIONS = 3
#: Work-items of one group, at most; the least that the device of PoCL has, and it keeps every private array per work-item.
MAX_LANES = 1024
_EFFECTS = frozenset({Op.STORE, Op.ATOMICADD, Op.BARRIER, Op.IF, Op.CUSTOM, Op.INS})
#: Names of Specials that number workgroups; all others number lanes (R125).
_GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")
_MARK = "// launch "

#: A number of iterations: known, or the value of the variable in a slot.
Extent = int | str


@dataclass(slots=True)
class Launch:
    """`groups` and `lanes` are the extents in each dimension; a str is the slot of a variable. `placed` has the expressions."""

    groups: list[Extent] = field(default_factory=list)
    lanes: list[Extent] = field(default_factory=list)
    placed: dict[UOp, str] = field(default_factory=dict)

    def comment(self, arguments: Sequence[str]) -> str:
        """A line of the source that says how to launch it: the kinds of the arguments by slot, and the extents."""
        return _MARK + json.dumps({"arguments": list(arguments), "groups": self.groups, "lanes": self.lanes})

    def add(self, u: UOp, extent: Extent, *, group: bool) -> None:
        """Give the next dimension to a Range or Special."""
        self.number([u], [extent], group=group)

    def place(self, ranges: Sequence[UOp], *, group: bool) -> None:
        """Give dimensions to ranges: one each while there are enough, then known extents share the last one. A range of an extent
        that the launch cannot know, or that has no dimension left, stays a loop."""
        extents = self.groups if group else self.lanes
        sized = [(u, e) for u in ranges if (e := _extent(u)) is not None]
        alone = [(u, e) for u, e in sized if isinstance(e, str)]
        counted = [(u, e) for u, e in sized if not isinstance(e, str)]
        for u, e in alone[: max(0, DIMENSIONS - len(extents) - bool(counted))]:
            self.add(u, e, group=group)
        left = DIMENSIONS - len(extents)
        if left <= 0 or not counted:
            return
        shared = len(counted) - left + 1 if len(counted) > left else 1
        for u, e in counted[: len(counted) - shared]:
            self.add(u, e, group=group)
        last = counted[len(counted) - shared :]
        self.number([u for u, _ in last], [e for _, e in last], group=group)

    def number(self, nodes: Sequence[UOp], sizes: Sequence[Extent], *, group: bool) -> None:
        """Give one dimension to several nodes, the last of them fastest."""
        extents, name = (self.groups, "get_group_id") if group else (self.lanes, "get_local_id")
        where, below = f"{name}({len(extents)})", 1
        if len(nodes) == 1:
            self.placed[nodes[0]] = where
            extents.append(sizes[0])
            return
        for u, n in reversed(list(zip(nodes, sizes, strict=True))):
            over = where if below == 1 else f"({where} / {below})"
            self.placed[u] = f"({over} % {max(1, int(n))})"
            below *= int(n)
        extents.append(below)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a source says about its launch."""

    arguments: tuple[str, ...]
    groups: tuple[Extent, ...]
    lanes: tuple[Extent, ...]

    def sizes(self, scalars: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Work-items in all and per group, in each dimension; None where there are none (R57)."""
        n = max(1, len(self.groups), len(self.lanes))
        groups, lanes = (_dimensions(e, n, scalars) for e in (self.groups, self.lanes))
        if min(*groups, *lanes) < 1:
            return None
        return tuple(g * w for g, w in zip(groups, lanes)), lanes


def _dimensions(extents: Sequence[Extent], n: int, scalars: Sequence[int]) -> tuple[int, ...]:
    found = [scalars[int(e)] if isinstance(e, str) else e for e in extents]
    return tuple(found + [1] * (n - len(found)))


def read(source: str) -> Shape:
    """The launch that the first line of a source describes."""
    found = json.loads(source.partition("\n")[0].removeprefix(_MARK))
    return Shape(tuple(found["arguments"]), tuple(found["groups"]), tuple(found["lanes"]))


def launch(instructions: Sequence[UOp]) -> Launch:
    """The launch of a kernel. Raises CompileError for a Barrier that not all lanes of a group would reach."""
    made = Launch()
    for u in sorted((u for u in instructions if u.op is Op.SPECIAL), key=lambda u: str(u.arg.name)):
        extent = _extent(u)
        if extent is None:
            raise Unsupported(f"SPECIAL {quote_name(str(u.arg.name))} of an extent that the launch cannot know", "opencl")
        made.add(u, extent, group=str(u.arg.name).startswith(_GROUP_NAMES))
    if max(len(made.groups), len(made.lanes)) > DIMENSIONS or math.prod(e for e in made.lanes if isinstance(e, int)) > MAX_LANES:
        raise Unsupported(f"SPECIAL in a launch of groups {made.groups} and lanes {made.lanes}", "opencl")
    outer = _outermost(instructions)
    groups = [u for u in outer if u.arg.type in GROUPS]
    made.place(groups, group=True)
    # A group that runs several iterations of a GLOBAL range would need a barrier between them for its local memory (R61).
    if made.placed.keys() >= set(groups) or not any(_is_local(u) for u in instructions):
        made.place(_fitting([u for u in outer if u.arg.type in LANES], made), group=False)
    _check_barriers(instructions, made)
    return made


def _fitting(ranges: Sequence[UOp], made: Launch) -> list[UOp]:
    """Lanes, as long as a group of them is not too large; their number is fixed."""
    total, found = math.prod(max(1, e) for e in made.lanes if isinstance(e, int)), list[UOp]()
    for u in ranges:
        extent = _extent(u)
        if isinstance(extent, int) and total * max(1, extent) <= MAX_LANES:
            total *= max(1, extent)
            found.append(u)
    return found


def _is_local(u: UOp) -> bool:
    return u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL


def _outermost(instructions: Sequence[UOp]) -> list[UOp]:
    """The ranges that nothing but such ranges are around, and that every effect is inside of, outermost first. What stands before
    them and ends in registers, every work-item does for itself: they are its own."""
    found: list[UOp] = []
    written = {memory(u.src[0]) for u in instructions if u.op in (Op.STORE, Op.ATOMICADD) and _is_effect(u)}
    k = 0
    while k < len(instructions):
        u = instructions[k]
        if not found and u.op is Op.LOAD and memory(u.src[0]) in written:
            break
        if u.op is Op.RANGE and u.arg.type in GROUPS | LANES:
            found.append(u)
        elif u.op is Op.RANGE:
            end = next(j for j, e in enumerate(instructions) if e.op is Op.END and u in e.src[1:])
            block = instructions[k : end + 1]
            launched = any(_is_effect(x) or (x.op is Op.RANGE and x.arg.type in GROUPS | LANES) for x in block)
            if launched or (not found and any(x.op is Op.LOAD and memory(x.src[0]) in written for x in block)):
                break
            k = end
        elif _is_effect(u):
            break
        k += 1
    inside = _effects_inside(instructions, found)
    return [u for k, u in enumerate(found) if all(inside(r) for r in found[: k + 1])]


def _is_effect(u: UOp) -> bool:
    """Whether others than the work-item itself see what an instruction does."""
    if u.op is Op.STORE:
        target = memory(u.src[0])
        return target.op is not Op.BUFFER or target.arg.addrspace is not AddrSpace.REG
    return u.op in _EFFECTS


def _effects_inside(instructions: Sequence[UOp], ranges: Sequence[UOp]) -> Callable[[UOp], bool]:
    """Whether no effect follows the End of a range."""
    ended: set[UOp] = set()
    left: set[UOp] = set()
    for u in instructions:
        if u.op is Op.END:
            ended |= {r for r in u.src[1:] if r in ranges}
        elif _is_effect(u):
            left |= ended
    return lambda r: r not in left


def _extent(u: UOp) -> Extent | None:
    """The extent of a Range or Special where a launch can know it: a number, or the slot of a variable."""
    bound = u.src[0] if u.src else u
    while bound.op is Op.CAST and within(bound.src[0], bound.dtype.min, bound.dtype.max):
        bound = bound.src[0]
    if bound.op is Op.CONST:
        return int(bound.arg.value)
    if bound.op is Op.PARAM and bound.arg.name is not None:
        return str(bound.arg.slot)
    return None


def _check_barriers(instructions: Sequence[UOp], made: Launch) -> None:
    """R60: the lanes of a group can only meet if each of them is a work-item."""
    loops = [u for u in instructions if u.op is Op.RANGE and u.arg.type in LANES and u not in made.placed]
    open_: set[UOp] = set()
    for u in instructions:
        if u in loops:
            open_.add(u)
        elif u.op is Op.END:
            open_ -= set(u.src[1:])
        elif u.op is Op.BARRIER and open_:
            axes = sorted(r.arg.axis_id for r in open_)
            raise CompileError(f"R60 (Barrier): the lanes of axes {axes} are a loop here, and would not meet at {u!r}")
