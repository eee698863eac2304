"""The pass pipeline: a table of passes, checked when it is imported, and the functions that run it.

Takes: TENSOR. Gives: any stage up to PROGRAM. Spec: Lowering Pipeline.

A pass says which dialect it takes and gives, and which earlier passes it relies on, with the reason. With `Config.verify` the
graph is judged against the dialect after every pass, so that a pass that breaks its contract is named by the error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.log import active
from uops.compiler.memory import Memory, remembering
from uops.compiler.passes.bodies import Kept, each
from uops.compiler.passes.callify import callify
from uops.compiler.passes.expand import expanded
from uops.compiler.passes.linearize import linearized
from uops.compiler.passes.optimize import Choose, choice, scheduled
from uops.compiler.passes.plan import plan
from uops.compiler.passes.rangeify import rangeify
from uops.compiler.passes.render import rendered
from uops.compiler.passes.select import select, selected
from uops.compiler.target import Target, machine_of
from uops.spec import dtypes as dt
from uops.spec.dialects import Dialect
from uops.spec.dtypes import DType
from uops.spec.errors import Crash, SpecError
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.record import dataclass as record

#: The stages in the specification's order, under its names.
STAGES = ("callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render")


@dataclass
class Lowering:
    """What passes share: the target, and `external`, the Buffers and Params that the caller sees (known after callify). A pass
    that works in steps leaves the graph after each of them in `steps`, where the caller asks for them."""

    target: Target
    config: Config
    external: frozenset[UOp] = field(default_factory=frozenset)
    steps: dict[str, UOp] | None = None
    memory: Memory = field(default_factory=Memory)

    @functools.cached_property
    def choose(self) -> Choose:
        """Who chooses the schedules of this program's kernels."""
        return choice(self.config, self.target)

    @functools.cached_property
    def key(self) -> Hashable:
        """All that decides what becomes of a kernel body."""
        t = self.target
        return type(t), t.name, t.key, t.ops, t.dtypes, machine_of(t), self.config


@record(frozen=True, slots=True)
class Pass:
    """`after` pairs the name of an earlier pass with the reason why it must be earlier."""

    name: str
    stage: str
    takes: Dialect
    gives: Dialect
    run: Callable[[UOp, Lowering], UOp]
    after: tuple[tuple[str, str], ...] = ()


def _callify(root: UOp, state: Lowering) -> UOp:
    called = callify(root)
    state.external = frozenset(called.src[1:])
    return called


#: Bodies kept per process, of every stage.
_KEPT = Kept(1024)


def _bodies(name: str, change: Callable[[UOp, Lowering], UOp]) -> Callable[[UOp, Lowering], UOp]:
    """The pass that changes each body by itself. What became of it is kept, but for whoever wants to see it happen."""

    def run(root: UOp, state: Lowering) -> UOp:
        if not state.config.reuse or state.config.verify or state.steps is not None or active() is not None:
            return each(root, lambda body: change(body, state))
        key = name, state.key
        return each(root, lambda body: _KEPT.get(body, key, lambda body: change(body, state)))

    return run


def _optimize(body: UOp, state: Lowering) -> UOp:
    if not state.config.optimize:
        return body
    machine, threads = machine_of(state.target), state.config.threads
    if 0 < threads < machine.cores:
        machine = replace(machine, cores=threads)
    return scheduled(body, machine, state.choose)


_select = _bodies("select", lambda u, s: selected(u, s.target)[-1])


# fmt: off
PIPELINE: tuple[Pass, ...] = (
    Pass("callify", "callify", Dialect.TENSOR, Dialect.CALLIFIED, _callify),
    Pass("rangeify", "rangeify", Dialect.CALLIFIED, Dialect.KERNEL, lambda u, s: rangeify(u),
         (("callify", "kernels are split from one body without Functions, with its hazards made explicit"),)),
    Pass("optimize", "optimize", Dialect.KERNEL, Dialect.SCHEDULED, _bodies("optimize", _optimize),
         (("rangeify", "there are no ranges to schedule before"),)),
    Pass("expand", "expand", Dialect.SCHEDULED, Dialect.EXPANDED, _bodies("expand", lambda u, s: expanded(u)),
         (("optimize", "it decides which ranges become shape"),)),
    Pass("select", "select", Dialect.EXPANDED, Dialect.SELECTED,
         lambda u, s: _select(u, s) if s.steps is None else select(u, s.target, s.steps),
         (("rangeify", "callers see dtypes and Reduces of the language, kernels those of the target"),
          ("expand", "accumulators are made per lane"))),
    Pass("linearize", "linearize", Dialect.SELECTED, Dialect.LINEAR, _bodies("linearize", lambda u, s: linearized(u)),
         (("select", "an instruction that is made later would have no place"),)),
    Pass("plan", "plan", Dialect.LINEAR, Dialect.PLANNED, lambda u, s: plan(u, s.external),
         (("callify", "memory that callers see keeps its place"),
          ("linearize", "lifetimes are those of the final order"))),
    Pass("render", "render", Dialect.PLANNED, Dialect.PROGRAM, _bodies("render", lambda u, s: rendered(u, s.target)),
         (("linearize", "renderers take instruction lists"),)),
)
# fmt: on


def check_pipeline(passes: Sequence[Pass]) -> None:
    """Raise Crash unless each pass takes what the one before gives, relies on earlier ones only, and the stages are all there in
    order."""
    seen: set[str] = set()
    for before, p in zip((None, *passes), passes):
        if before is not None and before.gives is not p.takes:
            raise Crash(f"pass {p.name} takes {p.takes.name}, but {before.name} gives {before.gives.name}")
        late = [name for name, _ in p.after if name not in seen]
        if late:
            raise Crash(f"pass {p.name} must come after {late[0]}: {dict(p.after)[late[0]]}")
        if any(not reason for _, reason in p.after):
            raise Crash(f"pass {p.name} gives no reason for its place")
        seen.add(p.name)
    if tuple(dict.fromkeys(p.stage for p in passes)) != STAGES:
        raise Crash(f"the stages are {STAGES}, got those of {[p.name for p in passes]}")


check_pipeline(PIPELINE)


def lower(graph: UOp, target: Target, upto: str = "render", config: Config | None = None) -> UOp:
    """`graph` after the stage `upto`. Raises SpecError, CompileError or Unsupported."""
    if upto not in STAGES:
        raise SpecError(f"no stage {upto!r}; the stages are {', '.join(STAGES)}")
    return next(found for stage, found in _run(graph, target, config) if stage == upto)


def stages(graph: UOp, target: Target, config: Config | None = None) -> dict[str, UOp]:
    """The graph itself under `tensor`, and after each stage under the stage's name."""
    return {"tensor": graph, **dict(_run(graph, target, config))}


def _run(graph: UOp, target: Target, config: Config | None) -> Iterator[tuple[str, UOp]]:
    """(stage, graph) after each pass; a stage of several passes counts as reached when its last one has run."""
    state = Lowering(target, config or configuration.default())
    _verify(graph, PIPELINE[0].takes, "the input", state)
    for p, following in zip(PIPELINE, (*PIPELINE[1:], None)):
        graph = run_pass(p, graph, state)
        if following is None or following.stage != p.stage:
            yield p.stage, graph


def run_pass(p: Pass, graph: UOp, state: Lowering) -> UOp:
    """What one pass makes of `graph`; with `Config.verify`, a Crash where that is not well-formed."""
    with remembering(state.memory):
        graph = p.run(graph, state)
    _verify(graph, p.gives, f"pass {p.name}", state)
    return graph


@record(frozen=True, slots=True)
class _Judged:
    """What kernels may use: the target's ops and dtypes, and the nodes that hold its own products."""

    target: Target

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def ops(self) -> frozenset[Op]:
        return self.target.ops | {Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.BINARY}

    @property
    def dtypes(self) -> frozenset[DType]:
        return self.target.dtypes | {dt.uint8}


def _verify(graph: UOp, dialect: Dialect, origin: str, state: Lowering) -> None:
    if not state.config.verify:
        return
    from uops.spec.verify import verify  # the verifier is not needed to compile

    try:
        verify(graph, dialect, target=_Judged(state.target))
    except SpecError as e:
        if dialect is PIPELINE[0].takes:
            raise
        raise Crash(f"{origin} gave no well-formed {dialect.name}: {e}") from e
