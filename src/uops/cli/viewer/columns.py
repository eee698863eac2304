"""The content of the page: a column per stage, a line per node, and the links between neighbouring columns with their causes.

Takes: a `Trace`. Gives: a `TraceView`, plain values that `page` renders. Lines and links are packed per group, so that the page
decodes only the kernels on view. Spec: Lowering Pipeline; the families of the op tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from uops.cli.viewer.chunks import ChunkStore, LineLink, NodeLine, delta_encode_links, pack_lines_as_templates_and_distances
from uops.compiler.pipeline import PIPELINE
from uops.compiler.rewrite.rule import RewriteStep
from uops.compiler.trace import LinkCause, LoweringTrace, PartLinks, ProgramPart
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import void
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Family, Op
from uops.spec.ir.record import dataclass as record
from uops.spec.ir.scope import open_ranges
from uops.spec.ir.text import format_node_as_line, name_nodes
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import escape_unprintable

Json = Any
#: Largest length of a line, and of a term in the panel, in characters.
LINE, TERM = 180, 240
#: Depth from which a term is elided.
_DEPTH = 5


@dataclass(slots=True)
class ColumnGroup:
    """The lines of one kernel, or its source. `first` counts the lines of the groups before it in its column.

    `chunks` hold the lines of its arguments and those of its body, or the source alone. `kernel` is the kernel of the last column
    that it became, or None where there are several.
    """

    name: str
    first: int
    size: int
    chunks: tuple[int, ...]
    decisions: tuple[str, ...] = ()
    kernel: int | None = None


@dataclass(slots=True)
class StageColumn:
    """A stage. `same` is true if every kernel is as in the column before."""

    title: str
    dialect: str
    groups: list[ColumnGroup]
    same: bool

    @property
    def size(self) -> int:
        """The number of lines."""
        return sum(g.size for g in self.groups)


@record(frozen=True, slots=True)
class GroupLink:
    """A link from group `source` of a column to group `target` of the next one; `chunk` holds the links of their lines.

    `gap` is true if no pass reported the link.
    """

    source: int
    target: int
    chunk: int
    gap: bool


class ValuePool:
    """A pool of values; calling it returns the position of a key's value."""

    def __init__(self) -> None:
        self.at: dict[Hashable, int] = {}
        self.values: list[Json] = []

    def __call__(self, key: Hashable, value: Json) -> int:
        if key not in self.at:
            self.at[key] = len(self.values)
            self.values.append(value)
        return self.at[key]


@dataclass(slots=True)
class TraceView:
    """The content of the page; `joints[k]` is between columns k and k + 1.

    A chunk of links has its own causes, each a list of [pass, step or -1]. It also has its own steps: [rule, before, after,
    bindings]. `rules` maps the named rules to their text.
    """

    columns: list[StageColumn] = field(default_factory=list)
    joints: list[list[GroupLink]] = field(default_factory=list)
    chunks: ChunkStore = field(default_factory=ChunkStore)
    rules: dict[str, str] = field(default_factory=dict)
    families: set[str] = field(default_factory=set)


#: Receives the number of finished parts of all stages, and their total.
Progress = Callable[[int, int], None]


def build_view(trace: LoweringTrace, progress: Progress = lambda done, total: None) -> TraceView:
    """Build all columns of a trace and their links."""
    return _ViewBuilder(trace, progress).build()


class _ViewBuilder:
    """The builder of a view."""

    def __init__(self, trace: LoweringTrace, progress: Progress) -> None:
        self.trace, self.progress = trace, progress
        self.parts = {stage: trace.parts_of_stage(stage) for stage in trace.stages}
        self.total, self.done = sum(map(len, self.parts.values())), 0
        self.result = TraceView()
        self.bodies: dict[UOp, int] = {}  # body that shares no node with its arguments -> its chunk
        self.used: set[str] = set()

    def build(self) -> TraceView:
        """Build the view."""
        dialects = {p.stage: p.gives.value for p in PIPELINE}
        old_parts: tuple[ProgramPart, ...] = ()
        old_indices: list[LineIndex] = []
        for stage, parts in self.parts.items():
            same = [(p.body, p.arguments, p.code) for p in parts] == [(p.body, p.arguments, p.code) for p in old_parts]
            title = "source" if any(p.code is not None for p in parts) else stage
            column = StageColumn(title, dialects.get(stage, "tensor"), [], same)
            self.result.columns.append(column)
            new_indices = [self._add_group_and_index_lines(column, part) for part in parts]
            if len(self.result.columns) > 1:
                self._add_links_and_decisions_of_groups(stage, column, old_indices, new_indices)
            old_parts, old_indices = parts, new_indices
        _set_final_kernel_where_exactly_one(self.result)
        self.result.rules = {n: str(r) for n, r in self.trace.rules().items() if n in self.used}
        return self.result

    def _add_group_and_index_lines(self, column: StageColumn, part: ProgramPart) -> LineIndex:
        """Add the group of a part, and return the lines of its nodes."""
        self.done += 1
        self.progress(self.done, self.total)
        first = column.groups[-1].first + column.groups[-1].size if column.groups else 0
        name = escape_unprintable(part.name)
        if part.code is not None:
            column.groups.append(
                ColumnGroup(name, first, 0, (self.result.chunks.add_once({"code": escape_unprintable(part.code)}),))
            )
            return LineIndex({}, {})
        names = name_nodes_with_lines(part)
        column.groups.append(ColumnGroup(name, first, len(names), self._store_argument_and_body_lines(part, names)))
        return LineIndex.from_part(part, names)

    def _store_argument_and_body_lines(self, part: ProgramPart, names: dict[UOp, str]) -> tuple[int, int]:
        """Store the lines of the arguments and of the body, which kernels may share, and return their chunks."""
        argument_nodes = [u for u in toposort(*part.arguments) if u in names]
        shares = not {*argument_nodes}.isdisjoint(toposort(part.body))
        body = None if shares else self.bodies.get(part.body)
        if body is None:
            body = self._store_lines(
                format_lines(islice(names, len(argument_nodes), None), names, _compute_loop_depths(part)), len(argument_nodes)
            )
            if not shares:
                self.bodies[part.body] = body
        return self._store_lines(format_lines(argument_nodes, names, {}), 0), body

    def _store_lines(self, lines: Iterable[NodeLine], first: int) -> int:
        line_list = list(lines)
        self.result.families.update(x.family for x in line_list)
        return self.result.chunks.add_once(pack_lines_as_templates_and_distances(line_list, first))

    def _add_links_and_decisions_of_groups(
        self, stage: str, column: StageColumn, old_indices: list[LineIndex], new_indices: list[LineIndex]
    ) -> None:
        joints = []
        for link in self.trace.links_into(stage):
            causes, steps = ValuePool(), ValuePool()
            line_links = list(_generate_line_links(link, old_indices[link.source], new_indices[link.target], causes, steps))
            self.used.update(step[0] for step in steps.values)
            chunk = self.result.chunks.add_once(delta_encode_links(line_links, causes.values, steps.values))
            joints.append(GroupLink(link.source, link.target, chunk, link.has_gap))
            column.groups[link.target].decisions = tuple(d.replace("AxisType.", "") for d in link.decisions)
        self.result.joints.append(joints)


def _set_final_kernel_where_exactly_one(view: TraceView) -> None:
    """Set the kernel of every group that became exactly one kernel of the last column."""
    kernels_of_group: list[set[int]] = [{k} for k in range(len(view.columns[-1].groups))]
    for k in reversed(range(len(view.columns))):
        for g, kernels in zip(view.columns[k].groups, kernels_of_group, strict=True):
            g.kernel = min(kernels) if len(kernels) == 1 else None
        if k:
            source_kernels = [set[int]() for _ in view.columns[k - 1].groups]
            for j in view.joints[k - 1]:
                source_kernels[j.source] |= kernels_of_group[j.target]
            kernels_of_group = source_kernels


@record(frozen=True, slots=True)
class LineIndex:
    """The lines of a part's nodes: `line_of` for nodes with a line, `user_lines` for nodes written inside their users' lines."""

    line_of: dict[UOp, int]
    user_lines: dict[UOp, tuple[int, ...]]

    @staticmethod
    def from_part(part: ProgramPart, names: dict[UOp, str]) -> LineIndex:
        """Index the lines of a part."""
        line_of, user_lines = {u: k for k, u in enumerate(names)}, dict[UOp, tuple[int, ...]]()
        for u in reversed(part.nodes()):
            lines = (line_of[u],) if u in line_of else user_lines.get(u, ())
            for s in u.src:
                if s not in line_of:
                    user_lines[s] = tuple(dict.fromkeys((*user_lines.get(s, ()), *lines)))
        return LineIndex(line_of, user_lines)


def _generate_line_links(
    links: PartLinks, source: LineIndex, target: LineIndex, causes: ValuePool, steps: ValuePool
) -> Iterator[LineLink]:
    """Yield links between lines.

    If all sources of a line are written inside other lines, the link starts from those.
    """
    links_to_lines = [link for link in links.links if link.target in target.line_of]
    reached = {link.target for link in links_to_lines if link.source in source.line_of}
    inner_links: set[tuple[int, int]] = set()
    for link in links_to_lines:
        why = tuple(_pool_cause(c, steps) for c in link.causes)
        target_line = target.line_of[link.target]
        if link.source in source.line_of:
            yield LineLink(source.line_of[link.source], target_line, link.is_indirect, causes(why, why))
        elif link.target not in reached:
            for k in source.user_lines.get(link.source, ()):
                if (k, target_line) not in inner_links:
                    inner_links.add((k, target_line))
                    yield LineLink(k, target_line, True, causes(why, why))


def _pool_cause(cause: LinkCause, steps: ValuePool) -> tuple[str, int]:
    step = cause.step
    return (cause.by, -1) if step is None else (cause.by, steps((step.rule, step.before, step.after), _step_to_json(step)))


def _step_to_json(step: RewriteStep) -> list[Json]:
    bound = {k: format_term(v) if isinstance(v, UOp) else str(getattr(v, "short", v)) for k, v in step.binding.items()}
    return [step.rule, format_term(step.before), format_term(step.after), bound]


# --------------------------------------------------------------------------------------------------------------- lines


def name_nodes_with_lines(part: ProgramPart) -> dict[UOp, str]:
    """Return the nodes of a part that have a line, with their names, in order."""
    whole = UOp(Op.TUPLE, (*part.arguments, part.body))
    names = name_nodes(whole)
    del names[whole]
    return names


def format_lines(nodes: Iterable[UOp], names: dict[UOp, str], depth: Mapping[UOp, int]) -> Iterator[NodeLine]:
    """Yield one line per node."""
    for u in nodes:
        op, _, rest = escape_unprintable(format_node_as_line(u, names).partition(" = ")[2]).partition(" ")
        axis = u.arg.type.name.lower() if u.op is Op.RANGE else ""
        type_text = format_type(u)
        dtype, _, shape = type_text.partition(" ")
        yield NodeLine(
            op,
            elide_middle(rest, LINE),
            shape if rest.endswith(f": {dtype}") else type_text,
            color_family(u.op),
            axis,
            depth.get(u, 0),
        )


def color_family(op: Op) -> str:
    """Return the family that decides a node's colour; decomposed ops count as elementwise."""
    family = ROWS[op].family
    return "elementwise" if family is Family.DECOMPOSED else family.value.lower()


def format_type(u: UOp) -> str:
    """Format the type of a node, such as `f32 (2, 3)`; empty for an effect."""
    try:
        shape = ", ".join(str(n) if isinstance(n, int) else "?" for n in u.shape)
        return "" if u.dtype is void else f"{u.dtype.short} ({shape})" if shape else u.dtype.short
    except SpecError:
        return "ill-formed"


def _compute_loop_depths(part: ProgramPart) -> dict[UOp, int]:
    """Return the number of loops around each node: those open at its position in a list, those that it depends on in a graph."""
    if part.body.op is not Op.LINEAR:
        return {u: len(r) - (u.op is Op.RANGE) for u, r in open_ranges(toposort(part.body)).items()}
    depths: dict[UOp, int] = {}
    depth = 0
    for u in part.body.src:
        depth -= u.op is Op.END
        for s in u.src:
            depths.setdefault(s, depth)
        depths[u] = depth
        depth += u.op is Op.RANGE
    return depths


def elide_middle(text: str, limit: int) -> str:
    """Return the text, without its middle if it is too long."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40].rstrip()} … {text[-30:].lstrip()}"


def format_term(u: UOp) -> str:
    """Format a node as a term, such as `add(mul(range1, 4), 2)`, without its deep parts."""
    return elide_middle(_format_term(u, _DEPTH), TERM)


def _format_term(u: UOp, max_depth: int) -> str:
    name = u.op.name.lower()
    if u.op is Op.CONST:
        return str(u.arg.value)
    if u.op is Op.RANGE:
        return f"range{u.arg.axis_id}"
    if u.op in MEMORY_ROOTS:
        return f"{name}{u.arg.slot if u.op is Op.PARAM else u.arg.unique}"
    if max_depth == 0:
        return f"{name}(…)"
    sources = ", ".join(_format_term(s, max_depth - 1) for s in u.src)
    return f"{name}({sources})" if u.op is not Op.CAST else f"cast({sources}, {u.dtype.short})"
