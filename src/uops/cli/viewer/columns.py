"""What the page shows: a column per stage, a line per node, the links between the lines of neighbouring columns, and their causes.

Takes: a `Trace`. Gives: `View`, plain values that `page` spells. A line's number counts through its column, so that a link is a
pair of numbers. Spec: Lowering Pipeline; the families of the op tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from uops.compiler.pipeline import PIPELINE
from uops.compiler.rewrite import Step
from uops.compiler.trace import Cause, Links, Part, Trace
from uops.spec.dtypes import void
from uops.spec.errors import SpecError
from uops.spec.node import UOp, toposort
from uops.spec.ops import Family, Op
from uops.spec.record import dataclass as record
from uops.spec.rows import ROWS
from uops.spec.scope import open_ranges
from uops.spec.text import line, number

Json = Any
#: Characters of a line, and of a term in the panel, before they are cut.
LINE, TERM = 180, 240
_DEPTH = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One node: `%7 = add %5, %6` as its name, op and rest, with its type and the number of loops around it."""

    name: str
    op: str
    rest: str
    type: str
    family: str
    axis: str
    depth: int


@dataclass(slots=True)
class Group:
    """The lines of one kernel, or its source; `first` is the number of its first line."""

    name: str
    first: int
    lines: list[Line]
    code: str | None = None
    decisions: tuple[str, ...] = ()


@dataclass(slots=True)
class Column:
    """A stage. `same`: every kernel is as in the column before."""

    stage: str
    dialect: str
    groups: list[Group]
    same: bool

    @property
    def size(self) -> int:
        return sum(len(g.lines) for g in self.groups)


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
    """`links[k]` is between columns k and k + 1: [from, to, made, causes] with causes a position in `causes`, each a list of
    [pass, step or -1]; a step is [rule, before, after, what the rule bound]; `gaps` are groups that no pass spoke of."""

    columns: list[Column]
    links: list[list[list[int]]]
    causes: list[Json]
    steps: list[Json]
    rules: dict[str, str]
    gaps: list[list[int]] = field(default_factory=list)


def view(found: Trace) -> View:
    """All columns of a trace and what links them."""
    dialects = {p.stage: p.gives.value for p in PIPELINE}
    columns: list[Column] = []
    places: list[list[Place]] = []
    links: list[list[list[int]]] = []
    gaps: list[list[int]] = []
    causes, steps = Pool(), Pool()
    before: tuple[Part, ...] = ()
    for stage in found.stages:
        parts = found.parts(stage)
        column, place = _column(stage, dialects.get(stage, "tensor"), parts, before)
        if before:
            between = found.links(stage)
            old = places[-1]
            links.append([row for x in between for row in _rows(x, old[x.source], place[x.target], causes, steps)])
            gaps.append([x.target for x in between if x.gap])
            for x in between:
                column.groups[x.target].decisions = tuple(d.replace("AxisType.", "") for d in x.decisions)
        columns.append(column)
        places.append(place)
        before = parts
    used = {s[0] for s in steps.values}
    return View(columns, links, causes.values, steps.values, {n: str(r) for n, r in found.rules().items() if n in used}, gaps)


@record(frozen=True, slots=True)
class Place:
    """The lines of a part: `own` of the nodes that have one, `inside` of those that are written in the lines of their users."""

    own: dict[UOp, int]
    inside: dict[UOp, tuple[int, ...]]

    @staticmethod
    def of(part: Part, names: dict[UOp, str], first: int) -> Place:
        own, inside = {u: first + k for k, u in enumerate(names)}, dict[UOp, tuple[int, ...]]()
        for u in reversed(part.nodes()):
            lines = (own[u],) if u in own else inside.get(u, ())
            for s in u.src:
                if s not in own:
                    inside[s] = tuple(dict.fromkeys((*inside.get(s, ()), *lines)))
        return Place(own, inside)


def _column(stage: str, dialect: str, parts: Sequence[Part], before: Sequence[Part]) -> tuple[Column, list[Place]]:
    groups, places, first = [], list[Place](), 0
    for part in parts:
        if part.code is not None:
            groups.append(Group(part.name, first, [], part.code))
            places.append(Place({}, {}))
            continue
        names = named(part)
        groups.append(Group(part.name, first, list(lines(part, names))))
        places.append(Place.of(part, names, first))
        first += len(names)
    same = [(p.body, p.arguments, p.code) for p in parts] == [(p.body, p.arguments, p.code) for p in before]
    return Column(stage, dialect, groups, same), places


def _rows(links: Links, source: Place, target: Place, causes: Pool, steps: Pool) -> Iterator[list[int]]:
    """Links between lines; a line whose only sources are written inside of others' lines was made for these."""
    lined = [x for x in links.links if x.target in target.own]
    reached = {x.target for x in lined if x.source in source.own}
    made: set[tuple[int, int]] = set()
    for x in lined:
        why = tuple(_cause(c, steps) for c in x.causes)
        at = target.own[x.target]
        if x.source in source.own:
            yield [source.own[x.source], at, int(x.made), causes(why, why)]
        elif x.target not in reached:
            for k in source.inside.get(x.source, ()):
                if (k, at) not in made:
                    made.add((k, at))
                    yield [k, at, 1, causes(why, why)]


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


def lines(part: Part, names: dict[UOp, str]) -> Iterator[Line]:
    """One line per name."""
    depth = _depths(part)
    for u in names:
        head, _, rest = line(u, names).partition(" = ")
        op, _, rest = rest.partition(" ")
        axis = u.arg.type.name.lower() if u.op is Op.RANGE else ""
        kind = type_of(u)
        own, _, shape = kind.partition(" ")
        yield Line(head, op, cut(rest, LINE), shape if rest.endswith(f": {own}") else kind, family_of(u.op), axis, depth.get(u, 0))


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
