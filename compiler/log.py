"""The log of a lowering: what passes and Rewriters did, while somebody records it.

Takes: nothing. Gives: inside of `with record_transforms() as log:`, a `GraphTransform` for every graph that a pass turned into
another one. It has the replacement of each node, as far as the pass gives it, and the steps of every Rewriter. Off by default:
`log_transform` then costs one look-up. Only the recording context is logged, so threads do not mix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from uops.compiler.rewrite.rule import RewriteLog, RewriteStep, Rule
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.record import dataclass as record

#: node -> its replacement; a node without one is the same node on replaced sources
Replacements = Mapping[UOp, "UOp | tuple[UOp, ...]"]


@record(frozen=True, slots=True)
class GraphTransform:
    """A pass, or one of its steps, turned the graph `before` into `after`.

    - `kernel` is the position of the kernel that it was for; None if equal graphs of all kernels share one transform.
    - `steps` and `rules` are those of a Rewriter, whose memory `replacements` then is.
    - `terms` is the log of a Rewriter that simplified terms while `after` was built.
    - `extra_nodes` are nodes that a node needed beside its replacement.
    - With `is_part`, `before` is one of several graphs that `after` was put together of.
    """

    pass_name: str
    before: UOp
    after: UOp
    replacements: Replacements
    kernel: int | None = None
    steps: Sequence[RewriteStep] = ()
    rules: Sequence[Rule] = ()
    terms: RewriteLog | None = None
    extra_nodes: Replacements | None = None
    is_part: bool = False


@record(frozen=True, slots=True)
class CallifiedGraph:
    """A tensor graph, the Call that callify made of it, and the Buffer of each value of the graph."""

    root: UOp
    call: UOp
    buffers: tuple[UOp, ...]


@dataclass(slots=True)
class LoweringLog:
    """Transforms in the order in which they ended, and decisions about whole kernels: (the decision, before, after).

    `external` is the memory that the caller of the program sees, once it is known. `callified` is what callify made, if it ran.
    """

    transforms: list[GraphTransform] = field(default_factory=list)
    decisions: list[tuple[str, UOp, UOp]] = field(default_factory=list)
    external: frozenset[UOp] | None = None
    callified: CallifiedGraph | None = None

    @property
    def applications_by_assuming_rule(self) -> Counter[str]:
        """The number of applications of each rule that makes an assumption about values, as those of fast-math do."""
        counts: Counter[str] = Counter()
        for t in self.transforms:
            assuming = {r.name for r in t.rules if r.assumes is not None}
            counts.update(s.rule for s in t.steps if s.rule in assuming)
        return counts


_active: ContextVar[LoweringLog | None] = ContextVar("uops.compiler.log", default=None)


def active_log() -> LoweringLog | None:
    """Return the log that records here, or None."""
    return _active.get()


@contextmanager
def record_transforms() -> Iterator[LoweringLog]:
    """Record the transforms that are logged inside."""
    log = LoweringLog()
    token = _active.set(log)
    try:
        yield log
    finally:
        _active.reset(token)


def log_transform(
    pass_name: str, before: UOp, after: UOp, replacements: Replacements | None = None, *,
    kernel_number: int | None = None, term_rewrites: RewriteLog | None = None, extra_nodes: Replacements | None = None,
) -> None:  # fmt: skip
    """Log that `pass_name` turned `before` into `after`, if somebody records.

    `replacements` is not copied, so it must be complete by the end.
    """
    log = _active.get()
    if log is not None and before is not after:
        replacements = {} if replacements is None else replacements
        log.transforms.append(
            GraphTransform(pass_name, before, after, replacements, kernel_number, terms=term_rewrites, extra_nodes=extra_nodes)
        )


def log_callified_graph(root: UOp, call: UOp, buffers: Iterable[UOp]) -> None:
    """Log what callify made, if somebody records."""
    log = _active.get()
    if log is not None:
        log.callified = CallifiedGraph(root, call, tuple(buffers))


def log_one_graphs_part_in_fusion(
    pass_name: str, before: UOp, fused_graph: UOp, replacements: Replacements, replacement_of_before: UOp, wrapped_replacement: UOp
) -> None:
    """Log that `before` went into `fused_graph` beside other graphs, if somebody records.

    By `replacements` it became `replacement_of_before`, around which `wrapped_replacement` was built.
    """
    log = _active.get()
    if log is not None:
        inside = {*toposort(replacement_of_before)}
        extra_nodes = {before: tuple([u for u in toposort(wrapped_replacement) if u not in inside])}
        log.transforms.append(GraphTransform(pass_name, before, fused_graph, replacements, extra_nodes=extra_nodes, is_part=True))


def log_decisions(decisions: Iterable[object], before: UOp, after: UOp) -> None:
    """Log decisions, such as OptOps, that turned `before` into `after` by transforms of their own."""
    log = _active.get()
    if log is not None:
        log.decisions.append((", ".join(map(str, decisions)), before, after))
