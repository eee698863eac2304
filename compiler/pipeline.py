"""The pass pipeline: a table of passes, checked when it is imported, and the functions that run it.

Takes: TENSOR. Gives: any stage up to PROGRAM. Spec: Lowering Pipeline.

A pass says which dialect it takes and gives, and which earlier passes it relies on, with the reason. With `Config.verify` the
graph is judged against the dialect after every pass, so that a pass that breaks its contract is named by the error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.ir.bodies import Kept, each
from uops.compiler.log import Log, active, recording
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.expand import expanded
from uops.compiler.passes.linearize import linearized
from uops.compiler.passes.memory_plan import plan
from uops.compiler.passes.optimize.heuristics.block_fusion import joined
from uops.compiler.passes.optimize.optimize import Choose, choice, scheduled
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.render import Rendering, rendered
from uops.compiler.passes.select.select import select, selected
from uops.compiler.rewrite.lowering_cache import Memory, memory, remembering
from uops.compiler.target import Machine, Target, machine_of
from uops.spec.errors import Crash, SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.verify.dialects import Dialect

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
    memory: Memory = field(default_factory=lambda: memory() or Memory())

    @functools.cached_property
    def choose(self) -> Choose:
        """Who chooses the schedules of this program's kernels."""
        return choice(self.config, self.target)

    @functools.cached_property
    def key(self) -> Hashable:
        """All that decides what becomes of a kernel body."""
        t = self.target
        return type(t), t.name, t.key, t.ops, t.dtypes, machine_of(t), self.config


#: What a pass does to one kernel.
Body = Callable[[UOp, Lowering], UOp]


@record(frozen=True, slots=True)
class Pass:
    """`after` pairs the name of an earlier pass with the reason why it must be earlier. `body`: what the pass does to one kernel,
    if it does that to each by itself; a pass without, after kernels are split, leaves the bodies as they are."""

    name: str
    stage: str
    takes: Dialect
    gives: Dialect
    run: Callable[[UOp, Lowering], UOp]
    after: tuple[tuple[str, str], ...] = ()
    body: Body | None = None


def _callify(root: UOp, state: Lowering) -> UOp:
    called = callify(root)
    state.external = frozenset(called.src[1:])
    if not state.config.fast_math:
        return called
    from uops.compiler.passes.callify.relax import relax  # which only who asks for it needs

    return relax(called)


#: Programs of kernels, by body as rangeify leaves it.
_KEPT = Kept(256)


def _each(body: Body) -> Body:
    """The pass over a launch."""
    return lambda root, state: each(root, lambda u: body(u, state))


def _machine(state: Lowering) -> Machine:
    """The machine, with no more cores than the program may take."""
    machine, threads = machine_of(state.target), state.config.threads
    return replace(machine, cores=threads) if 0 < threads < machine.cores else machine


def _join(root: UOp, state: Lowering) -> UOp:
    """With hand-written choices only: a search and drawn OptOps are about single kernels."""
    config = state.config
    alone = not config.optimize or config.beam or config.forced is not None
    return root if alone else joined(root, state.external, _machine(state))


def _optimize(body: UOp, state: Lowering) -> UOp:
    return scheduled(body, _machine(state), state.choose) if state.config.optimize else body


def _select(root: UOp, state: Lowering) -> UOp:
    """With the graph after every step, if the caller asks for them."""
    return _each(_selected)(root, state) if state.steps is None else select(root, state.target, state.steps)


def _expand(body: UOp, state: Lowering) -> UOp:
    return expanded(body)


def _selected(body: UOp, state: Lowering) -> UOp:
    return selected(body, state.target)[-1]


def _linearize(body: UOp, state: Lowering) -> UOp:
    return linearized(body)


def _render(body: UOp, state: Lowering) -> UOp:
    return rendered(body, state.target)


# fmt: off
PIPELINE: tuple[Pass, ...] = (
    Pass("callify", "callify", Dialect.TENSOR, Dialect.CALLIFIED, _callify),
    Pass("rangeify", "rangeify", Dialect.CALLIFIED, Dialect.KERNEL, lambda u, s: rangeify(u),
         (("callify", "kernels are split from one body without Functions, with its hazards made explicit"),)),
    Pass("join", "optimize", Dialect.KERNEL, Dialect.SCHEDULED, _join,
         (("rangeify", "kernels have the loops by which they are joined"),)),
    Pass("optimize", "optimize", Dialect.SCHEDULED, Dialect.SCHEDULED, _each(_optimize),
         (("join", "each part of a kernel is scheduled by itself"),), _optimize),
    Pass("expand", "expand", Dialect.SCHEDULED, Dialect.EXPANDED, _each(_expand),
         (("optimize", "it decides which ranges become shape"),), _expand),
    Pass("select", "select", Dialect.EXPANDED, Dialect.SELECTED, _select,
         (("rangeify", "callers see dtypes and Reduces of the language, kernels those of the target"),
          ("expand", "accumulators are made per lane")), _selected),
    Pass("linearize", "linearize", Dialect.SELECTED, Dialect.LINEAR, _each(_linearize),
         (("select", "an instruction that is made later would have no place"),), _linearize),
    Pass("plan", "plan", Dialect.LINEAR, Dialect.PLANNED, lambda u, s: plan(u, s.external),
         (("callify", "memory that callers see keeps its place"),
          ("linearize", "lifetimes are those of the final order"))),
    Pass("render", "render", Dialect.PLANNED, Dialect.PROGRAM, _each(_render),
         (("linearize", "renderers take instruction lists"),), _render),
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
    state = Lowering(target, config or configuration.default())
    if upto == STAGES[-1] and not state.config.verify and not state.config.validate and active() is None:
        return _kernel_by_kernel(graph, state)
    with _heard(state):
        return next(found for stage, found in _run(graph, state) if stage == upto)


def _kernel_by_kernel(graph: UOp, state: Lowering) -> UOp:
    """What all passes give. Each kernel is lowered to the end before the next, so that its machine code is made meanwhile, and one
    that an earlier program had is not lowered at all."""
    first = next(k for k, p in enumerate(PIPELINE) if p.body is not None)
    with remembering(state.memory), Rendering(state.target) as rendering:
        for p in PIPELINE[:first]:
            graph = p.run(graph, state)
        kernels = dict.fromkeys(c.src[0] for c in graph.src)
        known = {body: _KEPT.get(body, state.key) for body in kernels} if state.config.reuse else {}
        lists = {body: _listed(body, state, rendering) if (k := known.get(body)) is None else k.src[0] for body in kernels}
        graph = each(graph, lambda body: lists[body])
        for p in PIPELINE[first:]:
            graph = graph if p.body is not None else p.run(graph, state)
        programs = {lists[body]: known.get(body) or rendering.program(lists[body]) for body in kernels}
    if state.config.reuse:
        for body in kernels:
            _KEPT.put(body, state.key, programs[lists[body]])
    return each(graph, lambda linear: programs[linear])


def _listed(body: UOp, state: Lowering, rendering: Rendering) -> UOp:
    """The instruction list of a kernel, whose machine code is begun."""
    *lowering, _ = [p.body for p in PIPELINE if p.body is not None]
    for change in lowering:
        body = change(body, state)
    rendering.add(body)
    return body


def stages(
    graph: UOp, target: Target, config: Config | None = None, reached: Callable[[str], None] = lambda stage: None
) -> dict[str, UOp]:
    """The graph itself under `tensor`, and after each stage under the stage's name; `reached` hears of each as it is reached."""
    state = Lowering(target, config or configuration.default())
    found = {"tensor": graph}
    with _heard(state):
        for stage, given in _run(graph, state):
            found[stage] = given
            reached(stage)
    return found


def record_lowering(graph: UOp, target: Target, config: Config | None = None) -> tuple[dict[str, UOp], dict[str, UOp], Log]:
    """Lower a program as far as its plan, and keep what `uops.compiler.validate.validate` takes: the graph after each pass, those
    after the steps of select, and the log. Raises what `lower` raises."""
    steps: dict[str, UOp] = {}
    state = Lowering(target, config or configuration.default(), steps=steps)
    passed: dict[str, UOp] = {}
    with recording() as log:
        for p in PIPELINE:
            graph = passed[p.name] = run_pass(p, graph, state)
            if p.name == "plan":
                break
    return passed, steps, log


def _heard(state: Lowering) -> AbstractContextManager[object]:
    """A log and the steps of passes, where kernels are to be validated."""
    if not state.config.validate:
        return nullcontext()
    state.steps = {}
    return recording() if active() is None else nullcontext()


def _run(graph: UOp, state: Lowering) -> Iterator[tuple[str, UOp]]:
    """(stage, graph) after each pass; a stage of several passes counts as reached when its last one has run."""
    _verify(graph, PIPELINE[0].takes, "", state)
    passed: dict[str, UOp] = {}
    for p, following in zip(PIPELINE, (*PIPELINE[1:], None)):
        graph = passed[p.name] = run_pass(p, graph, state)
        if p.name == "plan" and state.config.validate:
            _validate(passed, state)
        if following is None or following.stage != p.stage:
            yield p.stage, graph


def run_pass(p: Pass, graph: UOp, state: Lowering) -> UOp:
    """What one pass makes of `graph`; with `Config.verify`, a Crash where that is not well-formed."""
    with remembering(state.memory):
        graph = p.run(graph, state)
    _verify(graph, p.gives, p.name, state)
    return graph


def _validate(passed: dict[str, UOp], state: Lowering) -> None:
    """Raise Invalid where a kernel, or the plan, is not validated."""
    from uops.compiler.validate import validate  # which only who asks for it needs, and Z3

    log = active()
    assert log is not None and state.steps is not None
    validate(passed, state.steps, log).require()


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


def _verify(graph: UOp, dialect: Dialect, given_by: str, state: Lowering) -> None:
    """Judge what a pass gave, or, where none is named, the input."""
    if not state.config.verify:
        return
    from uops.spec.verify.verifier import verify  # the verifier is not needed to compile

    try:
        verify(graph, dialect, target=_Judged(state.target))
    except SpecError as e:
        if not given_by:
            raise
        raise Crash(f"pass {given_by} gave no well-formed {dialect.name}: {e}") from e
