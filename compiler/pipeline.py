"""The pass pipeline: a table of passes, checked when it is imported, and the functions that run it.

Takes: TENSOR. Gives: any stage up to PROGRAM. Spec: Lowering Pipeline.

A pass names the dialects that it takes and gives, and the earlier passes that it relies on, with reasons. With `Config.verify`
the graph is verified against the dialect after every pass, so the error names a pass that breaks its contract.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.ir.bodies import KernelBodyCache, map_kernel_bodies
from uops.compiler.log import LoweringLog, active_log, record_transforms
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.expand import expand_vector_axes
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.memory_plan import plan_memory
from uops.compiler.passes.optimize.heuristics.block_fusion import fuse_kernel_chains
from uops.compiler.passes.optimize.optimize import schedule_kernel, select_scheduler
from uops.compiler.passes.optimize.schedule.schedule import Scheduler
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.render import CompileQueue, render_and_compile
from uops.compiler.passes.select.select import select, select_instructions
from uops.compiler.rewrite.lowering_cache import LoweringCache, active_cache, use_lowering_cache
from uops.compiler.target import MachineModel, Target, machine_model_of
from uops.spec.errors import Crash, SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.verify.dialects import Dialect

#: The stages in the order and under the names of the specification.
STAGES = ("callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render")


@dataclass
class LoweringState:
    """The state that passes share.

    `external` are the Buffers and Params that the caller sees, known after callify. In `steps`, if the caller asks for it, a pass
    that works in steps leaves the graph after each of them.
    """

    target: Target
    config: Config
    external: frozenset[UOp] = field(default_factory=frozenset)
    steps: dict[str, UOp] | None = None
    memory: LoweringCache = field(default_factory=lambda: active_cache() or LoweringCache())

    @functools.cached_property
    def scheduler(self) -> Scheduler:
        """The function that chooses the schedules of this program's kernels."""
        return select_scheduler(self.config, self.target)

    @functools.cached_property
    def body_cache_key(self) -> Hashable:
        """All that determines the lowering of a kernel body."""
        t = self.target
        return type(t), t.name, t.key, t.ops, t.dtypes, machine_model_of(t), self.config


#: A pass on one kernel.
BodyPass = Callable[[UOp, LoweringState], UOp]


@record(frozen=True, slots=True)
class Pass:
    """One pass: its name, its stage, and the dialects that it takes and gives.

    `after` pairs the name of an earlier pass with the reason why it must be earlier. `per_kernel` is the pass on one kernel, if
    it works on each by itself. After kernels are split, a pass without it leaves the bodies as they are.
    """

    name: str
    stage: str
    takes: Dialect
    gives: Dialect
    run: Callable[[UOp, LoweringState], UOp]
    after: tuple[tuple[str, str], ...] = ()
    per_kernel: BodyPass | None = None


def _run_callify(root: UOp, state: LoweringState) -> UOp:
    call = callify(root)
    state.external = frozenset(call.arguments)
    if not state.config.fast_math:
        return call
    from uops.compiler.passes.callify.relax import apply_fast_math  # late: only fast-math needs it

    return apply_fast_math(call)


#: Programs of up to 256 kernels, by their body as rangeify leaves it.
_PROGRAMS = KernelBodyCache(256)


def _map_over_kernels(body_pass: BodyPass) -> BodyPass:
    """Return the pass over a launch that applies a pass to each kernel."""
    return lambda root, state: map_kernel_bodies(root, lambda body: body_pass(body, state))


def _machine_within_threads(state: LoweringState) -> MachineModel:
    """Return the machine model with no more cores than the program may use."""
    machine, threads = machine_model_of(state.target), state.config.threads
    return replace(machine, cores=threads) if 0 < threads < machine.cores else machine


def _fuse_kernels(root: UOp, state: LoweringState) -> UOp:
    """Fuse chains of kernels, if hand-written heuristics choose schedules.

    A search and drawn OptOps work on single kernels.
    """
    config = state.config
    single_kernels = not config.optimize or config.beam or config.forced is not None
    return root if single_kernels else fuse_kernel_chains(root, state.external, _machine_within_threads(state))


def _schedule_body(body: UOp, state: LoweringState) -> UOp:
    return schedule_kernel(body, _machine_within_threads(state), state.scheduler) if state.config.optimize else body


def _run_select(root: UOp, state: LoweringState) -> UOp:
    """Run select on all kernels, and keep the graph after every step if the caller asks for it."""
    return _map_over_kernels(_select_body)(root, state) if state.steps is None else select(root, state.target, state.steps)


def _expand_body(body: UOp, state: LoweringState) -> UOp:
    return expand_vector_axes(body)


def _select_body(body: UOp, state: LoweringState) -> UOp:
    *_, selected = select_instructions(body, state.target)
    return selected


def _linearize_body(body: UOp, state: LoweringState) -> UOp:
    return linearize_kernel(body)


def _render_body(body: UOp, state: LoweringState) -> UOp:
    return render_and_compile(body, state.target)


# fmt: off
#: All passes, in order.
PIPELINE: tuple[Pass, ...] = (
    Pass("callify", "callify", Dialect.TENSOR, Dialect.CALLIFIED, _run_callify),
    Pass("rangeify", "rangeify", Dialect.CALLIFIED, Dialect.KERNEL, lambda u, s: rangeify(u),
         (("callify", "kernels are split from one body without Functions, with its hazards made explicit"),)),
    Pass("join", "optimize", Dialect.KERNEL, Dialect.SCHEDULED, _fuse_kernels,
         (("rangeify", "kernels have the loops by which they are joined"),)),
    Pass("optimize", "optimize", Dialect.SCHEDULED, Dialect.SCHEDULED, _map_over_kernels(_schedule_body),
         (("join", "each part of a kernel is scheduled by itself"),), _schedule_body),
    Pass("expand", "expand", Dialect.SCHEDULED, Dialect.EXPANDED, _map_over_kernels(_expand_body),
         (("optimize", "it decides which ranges become shape"),), _expand_body),
    Pass("select", "select", Dialect.EXPANDED, Dialect.SELECTED, _run_select,
         (("rangeify", "callers see dtypes and Reduces of the language, kernels those of the target"),
          ("expand", "accumulators are made per lane")), _select_body),
    Pass("linearize", "linearize", Dialect.SELECTED, Dialect.LINEAR, _map_over_kernels(_linearize_body),
         (("select", "an instruction that is made later would have no place"),), _linearize_body),
    Pass("plan", "plan", Dialect.LINEAR, Dialect.PLANNED, lambda u, s: plan_memory(u, s.external),
         (("callify", "memory that callers see keeps its place"),
          ("linearize", "lifetimes are those of the final order"))),
    Pass("render", "render", Dialect.PLANNED, Dialect.PROGRAM, _map_over_kernels(_render_body),
         (("linearize", "renderers take instruction lists"),), _render_body),
)
# fmt: on


def check_pipeline(passes: Sequence[Pass]) -> None:
    """Raise Crash unless the passes fit together.

    Each must take the dialect that the one before gives, and rely on earlier ones only, with a reason. Together they must have
    all stages in order.
    """
    seen: set[str] = set()
    for before, p in zip((None, *passes), passes):
        if before is not None and before.gives is not p.takes:
            raise Crash(f"pass {p.name} takes {p.takes.name}, but {before.name} gives {before.gives.name}")
        for name, reason in p.after:
            if name not in seen:
                raise Crash(f"pass {p.name} must come after {name}: {reason}")
        if any(not reason for _, reason in p.after):
            raise Crash(f"pass {p.name} gives no reason for its place")
        seen.add(p.name)
    if tuple(dict.fromkeys(p.stage for p in passes)) != STAGES:
        raise Crash(f"the stages must be {STAGES}, got those of {[p.name for p in passes]}")


check_pipeline(PIPELINE)


def lower(graph: UOp, target: Target, upto: str = "render", config: Config | None = None) -> UOp:
    """Return `graph` after the stage `upto`. Raises SpecError, CompileError or Unsupported."""
    if upto not in STAGES:
        raise SpecError(f"no stage {upto!r}; the stages are {', '.join(STAGES)}")
    state = LoweringState(target, config or configuration.default_config())
    if upto == STAGES[-1] and not state.config.verify and not state.config.validate and active_log() is None:
        return _lower_kernel_by_kernel(graph, state)
    with _record_if_validating(state):
        return next(lowered for stage, lowered in _run_passes(graph, state) if stage == upto)


def _lower_kernel_by_kernel(graph: UOp, state: LoweringState) -> UOp:
    """Run all passes, one kernel to the end before the next.

    So the machine code of a kernel is compiled while the next is lowered. A kernel of an earlier program is not lowered again.
    """
    first = next(k for k, p in enumerate(PIPELINE) if p.per_kernel is not None)
    with use_lowering_cache(state.memory), CompileQueue(state.target) as queue:
        for p in PIPELINE[:first]:
            graph = p.run(graph, state)
        kernels = dict.fromkeys(call.body for call in graph.instructions)
        cached = {body: _PROGRAMS.get(body, state.body_cache_key) for body in kernels} if state.config.reuse else {}
        linears: dict[UOp, UOp] = {}
        for body in kernels:
            program = cached.get(body)
            if program is None:
                linears[body] = _lower_to_instructions(body, state, queue)
            else:
                linears[body], *_ = program.src
        graph = map_kernel_bodies(graph, lambda body: linears[body])
        for p in PIPELINE[first:]:
            graph = graph if p.per_kernel is not None else p.run(graph, state)
        programs = {linears[body]: cached.get(body) or queue.wait_for_program(linears[body]) for body in kernels}
    if state.config.reuse:
        for body in kernels:
            _PROGRAMS.put(body, state.body_cache_key, programs[linears[body]])
    return map_kernel_bodies(graph, lambda linear: programs[linear])


def _lower_to_instructions(body: UOp, state: LoweringState, queue: CompileQueue) -> UOp:
    """Return the instruction list of a kernel, after its compilation has been queued."""
    *body_passes, _ = [p.per_kernel for p in PIPELINE if p.per_kernel is not None]
    for body_pass in body_passes:
        body = body_pass(body, state)
    queue.submit(body)
    return body


def stages(
    graph: UOp, target: Target, config: Config | None = None, on_stage: Callable[[str], None] = lambda stage: None
) -> dict[str, UOp]:
    """Return the graph after each stage under the stage's name, and the graph itself under `tensor`.

    `on_stage` is called with the name of each stage when it is reached.
    """
    state = LoweringState(target, config or configuration.default_config())
    graphs = {"tensor": graph}
    with _record_if_validating(state):
        for stage, lowered in _run_passes(graph, state):
            graphs[stage] = lowered
            on_stage(stage)
    return graphs


def record_lowering(graph: UOp, target: Target, config: Config | None = None) -> tuple[dict[str, UOp], dict[str, UOp], LoweringLog]:
    """Lower a program as far as its plan, and return what `uops.compiler.validate.validate` takes.

    Returns the graph after each pass, the graphs after the steps of select, and the log. Raises what `lower` raises.
    """
    steps: dict[str, UOp] = {}
    state = LoweringState(target, config or configuration.default_config(), steps=steps)
    graphs: dict[str, UOp] = {}
    with record_transforms() as log:
        for p in PIPELINE:
            graph = graphs[p.name] = run_pass(p, graph, state)
            if p.name == "plan":
                break
    return graphs, steps, log


def _record_if_validating(state: LoweringState) -> AbstractContextManager[object]:
    """Keep a log and the steps of passes, if kernels are to be validated."""
    if not state.config.validate:
        return nullcontext()
    state.steps = {}
    return record_transforms() if active_log() is None else nullcontext()


def _run_passes(graph: UOp, state: LoweringState) -> Iterator[tuple[str, UOp]]:
    """Yield (stage, graph) after the last pass of each stage."""
    _verify_dialect(graph, PIPELINE[0].takes, "", state)
    graphs: dict[str, UOp] = {}
    for p, following in zip(PIPELINE, (*PIPELINE[1:], None)):
        graph = graphs[p.name] = run_pass(p, graph, state)
        if p.name == "plan" and state.config.validate:
            _validate_kernels(graphs, state)
        if following is None or following.stage != p.stage:
            yield p.stage, graph


def run_pass(p: Pass, graph: UOp, state: LoweringState) -> UOp:
    """Run one pass on `graph`; with `Config.verify`, raise Crash if the result is ill-formed."""
    with use_lowering_cache(state.memory):
        graph = p.run(graph, state)
    _verify_dialect(graph, p.gives, p.name, state)
    return graph


def _validate_kernels(graphs: dict[str, UOp], state: LoweringState) -> None:
    """Raise Invalid if a kernel, or the plan, fails its validation."""
    from uops.compiler.validate import validate  # late: Z3 is optional, and only validation needs it

    log = active_log()
    assert log is not None and state.steps is not None
    validate(graphs, state.steps, log).require()


@record(frozen=True, slots=True)
class _VerifierTarget:
    """The ops and dtypes that kernels may use: the target's, and those of the nodes that hold its products."""

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


def _verify_dialect(graph: UOp, dialect: Dialect, pass_name: str, state: LoweringState) -> None:
    """Verify the result of a pass, or the input if `pass_name` is empty."""
    if not state.config.verify:
        return
    from uops.spec.verify.verifier import verify  # late: compilation does not need the verifier

    try:
        verify(graph, dialect, target=_VerifierTarget(state.target))
    except SpecError as e:
        if not pass_name:
            raise
        raise Crash(f"pass {pass_name} gave no well-formed {dialect.name}: {e}") from e
