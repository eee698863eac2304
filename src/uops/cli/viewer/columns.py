"""What the page shows: a column per stage, a line per node, the links between the lines of neighbouring columns, and their causes.

Takes: a `Trace`. Gives: `View`, plain values that `page` spells. Lines and links are packed a group at a time, so that the page
reads only the kernels that are looked at. Spec: Lowering Pipeline; the families of the op tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from uops.cli.viewer.chunks import Chunks, NodeLine, pack_lines, pack_links
from uops.compiler.pipeline import PIPELINE
from uops.compiler.rewrite.rule import Step
from uops.compiler.trace import Cause, Links, Part, Trace
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import void
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.record import dataclass as record
from uops.spec.ir.scope import open_ranges
from uops.spec.ir.text import line, number
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import printable

Json = Any
#: Characters of a line, and of a term in the panel, before they are cut.
LINE, TERM = 180, 240
_DEPTH = 5


@dataclass(slots=True)
class Group:
    """The lines of one kernel, or its source; `first` counts the lines of the groups before it in its column.

    `chunks` hold the lines of its arguments and those of its body, or the source alone. `kernel` is the one kernel of the last
    column that it became, None where there are several."""

    name: str
    first: int
    size: int
    chunks: tuple[int, ...]
    decisions: tuple[str, ...] = ()
    kernel: int | None = None


@dataclass(slots=True)
class Column:
    """A stage. `same`: every kernel is as in the column before."""

    title: str
    dialect: str
    groups: list[Group]
    same: bool

    @property
    def size(self) -> int:
        return sum(g.size for g in self.groups)


@record(frozen=True, slots=True)
class Joint:
    """Group `source` of a column became group `target` of the next one; `chunk` holds the links between their lines.

    With `gap` no pass spoke of it."""

    source: int
    target: int
    chunk: int
    gap: bool


class Pool:
    """Values that occur often, by position."""

    def __init__(self) -> None:
        self.at: dict[Hashable, int] = {}
        self.values: list[Json] = []

    def __call__(self, key: Hashable, value: Json) -> int:
        if key not in self.at:
            self.at[key] = len(self.values)
            self.values.append(value)
        return self.at[key]


@dataclass(slots=True)
class View:
    """`joints[k]` is between columns k and k + 1. A chunk of links has its own causes, each a list of [pass, step or -1], and its
    own steps: [rule, before, after, what the rule bound]. `rules` has the text of every rule that is named."""

    columns: list[Column] = field(default_factory=list)
    joints: list[list[Joint]] = field(default_factory=list)
    chunks: Chunks = field(default_factory=Chunks)
    rules: dict[str, str] = field(default_factory=dict)
    families: set[str] = field(default_factory=set)


#: Hears how many parts of all stages are done, and of how many.
Progress = Callable[[int, int], None]


def view(found: Trace, progress: Progress = lambda done, total: None) -> View:
    """All columns of a trace and what links them."""
    return _Making(found, progress).view()


class _Making:
    """A view in the making."""

    def __init__(self, found: Trace, progress: Progress) -> None:
        self.trace, self.progress = found, progress
        self.parts = {stage: found.parts(stage) for stage in found.stages}
        self.total, self.done = sum(map(len, self.parts.values())), 0
        self.made = View()
        self.bodies: dict[UOp, int] = {}  # the chunk of a body that has no node in common with its arguments
        self.used: set[str] = set()

    def view(self) -> View:
        dialects = {p.stage: p.gives.value for p in PIPELINE}
        before: tuple[Part, ...] = ()
        old: list[Place] = []
        for stage, parts in self.parts.items():
            same = [(p.body, p.arguments, p.code) for p in parts] == [(p.body, p.arguments, p.code) for p in before]
            title = "source" if any(p.code is not None for p in parts) else stage
            column = Column(title, dialects.get(stage, "tensor"), [], same)
            self.made.columns.append(column)
            places = [self._group(column, part) for part in parts]
            if before:
                self._joints(stage, column, old, places)
            before, old = parts, places
        _assign_kernels(self.made)
        self.made.rules = {n: str(r) for n, r in self.trace.rules().items() if n in self.used}
        return self.made

    def _group(self, column: Column, part: Part) -> Place:
        """Add the group of a part, and say where its nodes are."""
        self.done += 1
        self.progress(self.done, self.total)
        first = column.groups[-1].first + column.groups[-1].size if column.groups else 0
        name = printable(part.name)
        if part.code is not None:
            column.groups.append(Group(name, first, 0, (self.made.chunks.add({"code": printable(part.code)}),)))
            return Place({}, {})
        names = named(part)
        column.groups.append(Group(name, first, len(names), self._lines(part, names)))
        return Place.of(part, names)

    def _lines(self, part: Part, names: dict[UOp, str]) -> tuple[int, int]:
        """The chunks of the arguments and of the body, which kernels may have in common."""
        outside = [u for u in toposort(*part.arguments) if u in names]
        shares = not {*outside}.isdisjoint(toposort(part.body))
        body = None if shares else self.bodies.get(part.body)
        if body is None:
            body = self._pack(lines(islice(names, len(outside), None), names, _depths(part)), len(outside))
            if not shares:
                self.bodies[part.body] = body
        return self._pack(lines(outside, names, {}), 0), body

    def _pack(self, found: Iterable[NodeLine], first: int) -> int:
        own = list(found)
        self.made.families.update(x.family for x in own)
        return self.made.chunks.add(pack_lines(own, first))

    def _joints(self, stage: str, column: Column, old: list[Place], new: list[Place]) -> None:
        joints = []
        for x in self.trace.links(stage):
            causes, steps = Pool(), Pool()
            rows = list(_rows(x, old[x.source], new[x.target], causes, steps))
            self.used.update(s[0] for s in steps.values)
            chunk = self.made.chunks.add(pack_links(rows, causes.values, steps.values))
            joints.append(Joint(x.source, x.target, chunk, x.gap))
            column.groups[x.target].decisions = tuple(d.replace("AxisType.", "") for d in x.decisions)
        self.made.joints.append(joints)


def _assign_kernels(made: View) -> None:
    """Give every group the one kernel of the last column that it became, if there is one."""
    became: list[set[int]] = [{k} for k in range(len(made.columns[-1].groups))]
    for k in reversed(range(len(made.columns))):
        for g, kernels in zip(made.columns[k].groups, became, strict=True):
            g.kernel = min(kernels) if len(kernels) == 1 else None
        if k:
            several = [set[int]() for _ in made.columns[k - 1].groups]
            for j in made.joints[k - 1]:
                several[j.source] |= became[j.target]
            became = several


@record(frozen=True, slots=True)
class Place:
    """The lines of a part: `own` of the nodes that have one, `inside` of those that are written in the lines of their users."""

    own: dict[UOp, int]
    inside: dict[UOp, tuple[int, ...]]

    @staticmethod
    def of(part: Part, names: dict[UOp, str]) -> Place:
        own, inside = {u: k for k, u in enumerate(names)}, dict[UOp, tuple[int, ...]]()
        for u in reversed(part.nodes()):
            lines = (own[u],) if u in own else inside.get(u, ())
            for s in u.src:
                if s not in own:
                    inside[s] = tuple(dict.fromkeys((*inside.get(s, ()), *lines)))
        return Place(own, inside)


def _rows(links: Links, source: Place, target: Place, causes: Pool, steps: Pool) -> Iterator[tuple[int, int, int, int]]:
    """Links between lines; a line whose only sources are written inside of others' lines was made for these."""
    lined = [x for x in links.links if x.target in target.own]
    reached = {x.target for x in lined if x.source in source.own}
    made: set[tuple[int, int]] = set()
    for x in lined:
        why = tuple(_cause(c, steps) for c in x.causes)
        at = target.own[x.target]
        if x.source in source.own:
            yield source.own[x.source], at, int(x.made), causes(why, why)
        elif x.target not in reached:
            for k in source.inside.get(x.source, ()):
                if (k, at) not in made:
                    made.add((k, at))
                    yield k, at, 1, causes(why, why)


def _cause(c: Cause, steps: Pool) -> tuple[str, int]:
    s = c.step
    return (c.by, -1) if s is None else (c.by, steps((s.rule, s.before, s.after), _step(s)))


def _step(s: Step) -> list[Json]:
    bound = {k: term(v) if isinstance(v, UOp) else str(getattr(v, "short", v)) for k, v in s.binding.items()}
    return [s.rule, term(s.before), term(s.after), bound]


# --------------------------------------------------------------------------------------------------------------- lines


def named(part: Part) -> dict[UOp, str]:
    """The nodes of a part that have a line, with their names, in order."""
    whole = UOp(Op.TUPLE, (*part.arguments, part.body))
    found = number(whole)
    del found[whole]
    return found


def lines(nodes: Iterable[UOp], names: dict[UOp, str], depth: Mapping[UOp, int]) -> Iterator[NodeLine]:
    """One line per node."""
    for u in nodes:
        op, _, rest = printable(line(u, names).partition(" = ")[2]).partition(" ")
        axis = u.arg.type.name.lower() if u.op is Op.RANGE else ""
        kind = type_of(u)
        own, _, shape = kind.partition(" ")
        yield NodeLine(op, cut(rest, LINE), shape if rest.endswith(f": {own}") else kind, family_of(u.op), axis, depth.get(u, 0))


def family_of(op: Op) -> str:
    """The family that gives a node its colour; what is decomposed is elementwise."""
    family = ROWS[op].family
    return "elementwise" if family is Family.DECOMPOSED else family.value.lower()


def type_of(u: UOp) -> str:
    """`f32 (2, 3)`; nothing for an effect."""
    try:
        shape = ", ".join(str(n) if isinstance(n, int) else "?" for n in u.shape)
        return "" if u.dtype is void else f"{u.dtype.short} ({shape})" if shape else u.dtype.short
    except SpecError:
        return "ill-formed"


def _depths(part: Part) -> dict[UOp, int]:
    """How many loops are around each node: those open where it stands in a list, those that it depends on in a graph."""
    if part.body.op is not Op.LINEAR:
        return {u: len(r) - (u.op is Op.RANGE) for u, r in open_ranges(toposort(part.body)).items()}
    found: dict[UOp, int] = {}
    depth = 0
    for u in part.body.src:
        depth -= u.op is Op.END
        for s in u.src:
            found.setdefault(s, depth)
        found[u] = depth
        depth += u.op is Op.RANGE
    return found


def cut(text: str, limit: int) -> str:
    """The text, or its two ends where it is long."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40].rstrip()} … {text[-30:].lstrip()}"


def term(u: UOp) -> str:
    """A node as a term, such as `add(mul(range1, 4), 2)`: what lies deep is left out."""
    return cut(_term(u, _DEPTH), TERM)


def _term(u: UOp, depth: int) -> str:
    name = u.op.name.lower()
    if u.op is Op.CONST:
        return str(u.arg.value)
    if u.op is Op.RANGE:
        return f"range{u.arg.axis_id}"
    if u.op in (Op.PARAM, Op.BUFFER):
        return f"{name}{u.arg.slot if u.op is Op.PARAM else u.arg.unique}"
    if depth == 0:
        return f"{name}(…)"
    inside = ", ".join(_term(s, depth - 1) for s in u.src)
    return f"{name}({inside})" if u.op is not Op.CAST else f"cast({inside}, {u.dtype.short})"
