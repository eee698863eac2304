"""What passes and Rewriters say about their work while somebody records it.

Takes: nothing. Gives: inside of `with recording() as log:` a `Move` for every graph that a pass turns into another one, with the
replacement of each node that the pass knows, and the `Step`s of every Rewriter. Off by default: `note` then costs one look-up.
Only the context that records is heard, so threads do not mix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from uops.compiler.rewrite.rule import Rewrites, Rule, Step
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.record import dataclass as record

#: What became of nodes. A node that is not there is the same node on replaced sources.
Put = Mapping[UOp, "UOp | tuple[UOp, ...]"]


@record(frozen=True, slots=True)
class Move:
    """`by` made `after` of `before`. `kernel` is the position of the kernel for which it did, None where equal graphs of all
    kernels have one move; `steps` and `rules` are those of a Rewriter, whose memory `put` then is. `terms` is a Rewriter that
    simplified terms while `after` was built, `made` are nodes that a node needed beside what it became. With `part`, `before` is
    one of several graphs that `after` was put together of."""

    by: str
    before: UOp
    after: UOp
    put: Put
    kernel: int | None = None
    steps: Sequence[Step] = ()
    rules: Sequence[Rule] = ()
    terms: Rewrites | None = None
    made: Put | None = None
    part: bool = False


@dataclass(slots=True)
class Log:
    """Moves in the order of their ends, and decisions about whole kernels: (what was decided, before, after)."""

    moves: list[Move] = field(default_factory=list)
    decisions: list[tuple[str, UOp, UOp]] = field(default_factory=list)

    @property
    def assumed(self) -> Counter[str]:
        """How often each rule was applied that assumes something of the values: those of fast-math, and no others."""
        found: Counter[str] = Counter()
        for m in self.moves:
            assuming = {r.name for r in m.rules if r.assumes is not None}
            found.update(s.rule for s in m.steps if s.rule in assuming)
        return found


_active: ContextVar[Log | None] = ContextVar("uops.compiler.log", default=None)


def active() -> Log | None:
    """The log that records here, if one does."""
    return _active.get()


@contextmanager
def recording() -> Iterator[Log]:
    """Hear what passes note inside."""
    log = Log()
    token = _active.set(log)
    try:
        yield log
    finally:
        _active.reset(token)


def note(
    by: str, before: UOp, after: UOp, put: Put | None = None, *,
    kernel: int | None = None, terms: Rewrites | None = None, made: Put | None = None,
) -> None:  # fmt: skip
    """Tell whoever records that `by` made `after` of `before`; `put` is not copied, so it must be complete by the end."""
    log = _active.get()
    if log is not None and before is not after:
        log.moves.append(Move(by, before, after, {} if put is None else put, kernel, terms=terms, made=made))


def note_part(by: str, before: UOp, after: UOp, put: Put, inner: UOp, outer: UOp) -> None:
    """Tell whoever records that `before` went into `after` beside other graphs: by `put` it is `inner`, around which `outer` was
    built."""
    log = _active.get()
    if log is not None:
        inside = {*toposort(inner)}
        made = {before: tuple([u for u in toposort(outer) if u not in inside])}
        log.moves.append(Move(by, before, after, put, made=made, part=True))


def decided(what: Iterable[object], before: UOp, after: UOp) -> None:
    """Tell whoever records of decisions, such as OptOps, that made `after` of `before` by moves of their own."""
    log = _active.get()
    if log is not None:
        log.decisions.append((", ".join(map(str, what)), before, after))
