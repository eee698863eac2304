"""The pass pipeline: a table of passes, checked when it is imported, and the functions that run it.

Takes: TENSOR. Gives: any stage up to PROGRAM. Spec: Lowering Pipeline.

A pass names the dialects that it takes and gives, and the earlier passes that it relies on, with reasons. With `Config.verify`
the graph is verified against the dialect after every pass, so the error names a pass that breaks its contract.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.decompose import SMALL
from uops.compiler.entry import (
    ProgramInterface,
    convert_to_launch_or_tensor_graph,
    describe_callified,
    describe_entering_program,
    describe_launch,
)
from uops.compiler.ir.bodies import KernelBodyCache, map_kernel_bodies
from uops.compiler.ir.devices import find_named_devices, require_known_device_names
from uops.compiler.log import LoweringLog, active_log, log_callified_graph, record_transforms
from uops.compiler.native import registry_version, require_programs_and_functions_for_target
from uops.compiler.passes.callify.callify import convert_graph_to_call
from uops.compiler.passes.expand import expand_vector_axes_and_split_ends
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.memory_plan import place_intermediates_in_arenas_per_device
from uops.compiler.passes.optimize.heuristics.block_fusion import fuse_kernel_chains
from uops.compiler.passes.optimize.optimize import (
    build_scan_or_scatter_or_schedule_kernel,
    select_random_beam_or_heuristic_scheduler,
)
from uops.compiler.passes.optimize.schedule.schedule import Scheduler
from uops.compiler.passes.private_memory import reuse_private_memory
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.render import CompileQueue, render_and_compile
from uops.compiler.passes.select.select import STEPS, select_instructions
from uops.compiler.passes.wmma import lower_all_wmmas_to_loops_unless_supported
from uops.compiler.passes.workgroups import WORKGROUP_OPS, lower_workgroups_to_loops_unless_supported
from uops.compiler.rewrite.lowering_cache import LoweringCache, active_cache, use_lowering_cache
from uops.compiler.target import MachineModel, Target
from uops.spec.errors import Crash, SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.verify.dialects import Dialect

#: The stages in the order and under the names of the specification.
STAGES = ("callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render")


@dataclass
class LoweringState:
    """The state that passes share.

    `external` are the Buffers and Params that the caller sees, known after callify; `private` are Buffers of the graph that no
    caller sees. In `steps`, if the caller asks for it, a pass that works in steps leaves the graph after each of them; `body_steps`
    has the bodies of the pass that runs, by step and by the body before it. `programs` compiles kernels while others are lowered,
    if the caller asks for programs alone.
    """

    target: Target
    config: Config
    external: frozenset[UOp] = field(default_factory=frozenset)
    private: frozenset[UOp] = frozenset()
    steps: dict[str, UOp] | None = None
    entry: Dialect = Dialect.TENSOR
    memory: LoweringCache = field(default_factory=lambda: active_cache() or LoweringCache())
    on_interface: Callable[[ProgramInterface], None] | None = None
    programs: KernelPrograms | None = field(default=None, init=False)
    body_steps: dict[str, dict[UOp, UOp]] = field(default_factory=dict, init=False)

    @functools.cached_property
    def scheduler(self) -> Scheduler:
        """The function that chooses the schedules of this program's kernels."""
        return select_random_beam_or_heuristic_scheduler(self.config, self.target)

    @functools.cached_property
    def body_cache_key(self) -> Hashable:
        """All that determines the lowering of a kernel body."""
        t = self.target
        return type(t), t.name, t.key, t.ops, t.dtypes, t.machine, self.config, registry_version()


#: Programs of up to 256 kernels, by their body as rangeify leaves it.
_PROGRAMS = KernelBodyCache(256)


class KernelPrograms:
    """The programs of a lowering's kernels: those of an earlier program, and those that a queue compiles."""

    def __init__(self, queue: CompileQueue, key: Hashable | None) -> None:
        self.queue, self.key = queue, key
        self.cached: dict[UOp, UOp] = {}  # instruction list -> its program, of an earlier lowering
        self.bodies: dict[UOp, list[UOp]] = {}  # instruction list -> the bodies that became it

    def find_cached_instructions_and_keep_program(self, body: UOp) -> UOp | None:
        """Return the instruction list of a body that an earlier program had, or None."""
        program = None if self.key is None else _PROGRAMS.get(body, self.key)
        if program is None:
            return None
        linear, *_ = program.src
        self.cached[linear] = program
        return linear

    def submit_for_compilation(self, body: UOp, linear: UOp) -> None:
        """Have the instruction list of a body compiled."""
        if linear not in self.bodies:
            self.queue.render_and_queue(linear)
        self.bodies.setdefault(linear, []).append(body)

    def wait_for_program_and_cache_it(self, linear: UOp) -> UOp:
        """Return the program of an instruction list, and keep it for later lowerings."""
        program = self.cached.get(linear) or self.queue.stop_worker_and_get_or_compile_program(linear)
        if self.key is not None:
            for body in self.bodies.get(linear, ()):
                _PROGRAMS.put(body, self.key, program)
        return program


@record(frozen=True, slots=True)
class Pass:
    """One pass: its name, its stage, and the dialects that it takes and gives.

    `run` takes a launch; if the pass is `per_kernel`, the body of a kernel. After kernels are split, a pass that is not leaves the
    bodies as they are. `after` pairs the name of an earlier pass with the reason why it must be earlier. `steps` names the steps
    that a pass on kernels leaves in `LoweringState.body_steps`.
    """

    name: str
    stage: str
    takes: Dialect
    gives: Dialect
    run: Callable[[UOp, LoweringState], UOp]
    after: tuple[tuple[str, str], ...] = ()
    per_kernel: bool = False
    steps: tuple[str, ...] = ()


def _callify_report_and_apply_fast_math_if_set(root: UOp, state: LoweringState) -> UOp:
    callified = convert_graph_to_call(root)
    call = callified.call
    log_callified_graph(root, call, (out.buffer for out in callified.outputs))
    _record_and_report_interface(describe_callified(callified, state.private), state)
    if not state.config.fast_math:
        return call
    from uops.compiler.passes.callify.relax import apply_fast_math_if_order_kept  # late: only fast-math needs it

    return apply_fast_math_if_order_kept(call)


def _record_and_report_interface(interface: ProgramInterface, state: LoweringState) -> None:
    """Record what the caller sees of the program, and tell it."""
    state.external = frozenset(interface.arguments)
    log = active_log()
    if log is not None:
        log.external = state.external
    if state.on_interface is not None:
        state.on_interface(interface)


def _machine_within_threads(state: LoweringState) -> MachineModel:
    """Return the machine model with no more cores than the program may use."""
    machine, threads = state.target.machine, state.config.threads
    return replace(machine, cores=threads) if 0 < threads < machine.cores else machine


def _fuse_kernels_if_scheduled_by_heuristics(root: UOp, state: LoweringState) -> UOp:
    """Fuse chains of kernels, if hand-written heuristics choose schedules.

    A search and drawn OptOps work on single kernels.
    """
    config = state.config
    single_kernels = not config.optimize or config.beam or config.forced is not None
    return root if single_kernels else fuse_kernel_chains(root, state.external, _machine_within_threads(state))


def _schedule_body(body: UOp, state: LoweringState) -> UOp:
    return (
        build_scan_or_scatter_or_schedule_kernel(body, _machine_within_threads(state), state.scheduler)
        if state.config.optimize
        else body
    )


def _select_instructions_and_record_step_bodies(body: UOp, state: LoweringState) -> UOp:
    """Run select on one kernel, and keep the body after every step if the caller asks for it."""
    after_steps = select_instructions(body, state.target)
    if state.steps is not None:
        for name, after in zip(STEPS, after_steps, strict=True):
            state.body_steps.setdefault(name, {})[body] = after
    return after_steps.simplify


def _render_body(linear: UOp, state: LoweringState) -> UOp:
    programs = state.programs
    return render_and_compile(linear, state.target) if programs is None else programs.wait_for_program_and_cache_it(linear)


# fmt: off
#: All passes, in order.
PIPELINE: tuple[Pass, ...] = (
    Pass("callify", "callify", Dialect.TENSOR, Dialect.CALLIFIED, _callify_report_and_apply_fast_math_if_set),
    Pass("rangeify", "rangeify", Dialect.CALLIFIED, Dialect.KERNEL, lambda u, s: rangeify(u, s.target.machine),
         (("callify", "kernels are split from one body without Functions, with its hazards made explicit"),)),
    Pass("join", "optimize", Dialect.KERNEL, Dialect.SCHEDULED, _fuse_kernels_if_scheduled_by_heuristics,
         (("rangeify", "kernels have the loops by which they are joined"),)),
    Pass("optimize", "optimize", Dialect.SCHEDULED, Dialect.SCHEDULED, _schedule_body,
         (("join", "each part of a kernel is scheduled by itself"),), per_kernel=True),
    Pass("expand", "expand", Dialect.SCHEDULED, Dialect.EXPANDED, lambda u, s: expand_vector_axes_and_split_ends(u),
         (("optimize", "it decides which ranges become shape"),), per_kernel=True),
    Pass("select", "select", Dialect.EXPANDED, Dialect.SELECTED, _select_instructions_and_record_step_bodies,
         (("rangeify", "callers see dtypes and Reduces of the language, kernels those of the target"),
          ("expand", "accumulators are made per lane")), per_kernel=True, steps=STEPS),
    Pass("linearize", "linearize", Dialect.SELECTED, Dialect.LINEAR, lambda u, s: linearize_kernel(u),
         (("select", "an instruction that is made later would have no place"),), per_kernel=True),
    Pass("wmma", "linearize", Dialect.LINEAR, Dialect.LINEAR, lambda u, s: lower_all_wmmas_to_loops_unless_supported(u, s.target),
         (("linearize", "loops show which lanes form a warp"),), per_kernel=True),
    Pass("workgroups", "linearize", Dialect.LINEAR, Dialect.LINEAR,
         lambda u, s: lower_workgroups_to_loops_unless_supported(u, s.target),
         (("linearize", "loops of lanes are distributed over the order of instructions"),
          ("wmma", "the lanes of a warp meet at Barriers")), per_kernel=True),
    Pass("private memory", "plan", Dialect.LINEAR, Dialect.LINEAR, lambda u, s: reuse_private_memory(u),
         (("workgroups", "it makes LOCAL memory, and loops of lanes that need no Barrier"),), per_kernel=True),
    Pass("plan", "plan", Dialect.LINEAR, Dialect.PLANNED, lambda u, s: place_intermediates_in_arenas_per_device(u, s.external),
         (("callify", "memory that callers see keeps its place"),
          ("linearize", "lifetimes are those of the final order"))),
    Pass("render", "render", Dialect.PLANNED, Dialect.PROGRAM, _render_body,
         (("linearize", "renderers take instruction lists"),), per_kernel=True),
)
# fmt: on


def require_legal_pass_order_and_dialects(passes: Sequence[Pass]) -> None:
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


require_legal_pass_order_and_dialects(PIPELINE)
#: Dialect -> the stage that gives it.
STAGE_OF_DIALECT = {gives: stage for stage, gives in {p.stage: p.gives for p in PIPELINE}.items()}


def lower(
    graph: UOp, target: Target, upto: str = "render", config: Config | None = None,
    on_interface: Callable[[ProgramInterface], None] | None = None, dialect: Dialect = Dialect.TENSOR,
) -> UOp:  # fmt: skip
    """Return `graph` after the stage `upto`. Raises SpecError, CompileError or Unsupported.

    A graph of another dialect than TENSOR enters at the stage that takes it (`uops.compiler.entry`). `on_interface` is called with
    what callers see of the program, before any pass but callify.
    """
    if upto not in STAGES:
        raise SpecError(f"no stage {upto!r}; the stages are {', '.join(STAGES)}")
    memory = active_cache() or LoweringCache()
    with use_lowering_cache(memory):  # callify goes through the same graph
        graph, dialect, private = convert_to_launch_or_tensor_graph(graph, dialect)
        _require_known_devices_and_verify_if_many(graph, target)
    effective_config = config or configuration.default_config()
    state = LoweringState(target, effective_config, memory=memory, on_interface=on_interface, entry=dialect, private=private)
    last = next(p.name for p in reversed(PIPELINE) if p.stage == upto)
    if dialect is Dialect.PROGRAM and upto == STAGES[-1]:
        lowered = _report_compiled_launch_interface(graph, state)
    elif last not in [p.name for p in passes_from(dialect)]:
        raise SpecError(f"a program of the {dialect.value} dialect is past the stage {upto!r}")
    else:
        with _record_if_validating(state), _overlap_compilation_unless_inspected(state) if upto == STAGES[-1] else nullcontext():
            lowered = next(lowered for p, lowered in _run_passes_validate_and_yield_graphs(graph, state) if p.name == last)
    if lowered.op is Op.LINEAR:
        require_programs_and_functions_for_target(lowered, target.name, target.key)
    return lowered


def _require_known_devices_and_verify_if_many(graph: UOp, target_for_message: Target) -> None:
    """Raise Unsupported for a device that no target has; verify a graph on several, as values must be where their users are (R72).

    Raises SpecError for a broken claim.
    """
    named = find_named_devices(graph)
    require_known_device_names(named, target_for_message.name)
    if len(named) > 1:
        from uops.spec.verify.verifier import verify  # late: programs on one device do not need the verifier

        verify(graph)


def _report_compiled_launch_interface(launch: UOp, state: LoweringState) -> UOp:
    """Return a launch of Programs as it is, and tell the caller what it sees of it."""
    if state.config.verify:
        _verify_dialect(launch, Dialect.PROGRAM, "", launch, state)
    _record_and_report_interface(describe_launch(launch, state.private), state)
    return launch


@contextmanager
def _overlap_compilation_unless_inspected(state: LoweringState) -> Iterator[None]:
    """Lower one kernel to its instruction list before the next, unless somebody looks at the graphs between passes.

    So the machine code of a kernel is compiled while the next is lowered. A kernel of an earlier program is not lowered again.
    """
    if state.config.verify or state.config.validate or active_log() is not None:
        yield
        return
    with CompileQueue(state.target) as queue:
        state.programs = KernelPrograms(queue, state.body_cache_key if state.config.reuse else None)
        yield


def stages(
    graph: UOp, target: Target, config: Config | None = None, on_stage: Callable[[str], None] = lambda stage: None
) -> dict[str, UOp]:
    """Return a TENSOR graph after each stage under the stage's name, and the graph itself under `tensor`.

    `on_stage` is called with the name of each stage when it is reached.
    """
    state = LoweringState(target, config or configuration.default_config())
    graphs = {"tensor": graph}
    last = {p.stage: p.name for p in PIPELINE}
    with _record_if_validating(state):
        for p, lowered in _run_passes_validate_and_yield_graphs(graph, state):
            if last[p.stage] == p.name:
                graphs[p.stage] = lowered
                on_stage(p.stage)
    return graphs


class RecordedLowering(NamedTuple):
    """The graph after each pass, the graphs after the steps of select, and the log: what `uops.compiler.validate` takes."""

    graphs_by_pass: dict[str, UOp]
    graphs_by_select_step: dict[str, UOp]
    log: LoweringLog


def record_lowering_up_to_plan(graph: UOp, target: Target, config: Config | None = None) -> RecordedLowering:
    """Lower a program as far as its plan, and return the graphs and the log. Raises what `lower` raises."""
    steps: dict[str, UOp] = {}
    state = LoweringState(target, config or configuration.default_config(), steps=steps)
    graphs: dict[str, UOp] = {}
    with record_transforms() as log:
        for p, lowered in _run_passes_validate_and_yield_graphs(graph, state):
            graphs[p.name] = lowered
            if p.name == "plan":
                break
    return RecordedLowering(graphs, steps, log)


def _record_if_validating(state: LoweringState) -> AbstractContextManager[object]:
    """Keep a log and the steps of passes, if kernels are to be validated."""
    if not state.config.validate:
        return nullcontext()
    state.steps = {}
    return record_transforms() if active_log() is None else nullcontext()


def _run_passes_validate_and_yield_graphs(graph: UOp, state: LoweringState) -> Iterator[tuple[Pass, UOp]]:
    """Yield each pass with the graph that it gives; of `per_kernel` neighbours that run together, the last one."""
    if state.config.verify:
        _verify_dialect(graph, state.entry, "", graph, state)
    graphs: dict[str, UOp] = {}
    if state.entry is not Dialect.TENSOR:
        _record_and_report_interface(describe_entering_program(graph, state.private), state)
    for passes in _group_neighbouring_per_kernel_passes(passes_from(state.entry), kernel_by_kernel=state.programs is not None):
        *_, p = passes
        graph = graphs[p.name] = _run_pass_group_and_verify(passes, graph, state)
        if p.name == "plan" and state.config.validate and state.entry in _VALIDATED:
            _require_proved_kernels_and_plan(graphs, state)
        yield p, graph


def passes_from(dialect: Dialect, passes: Sequence[Pass] | None = None) -> tuple[Pass, ...]:
    """Return the passes that a graph of a dialect goes through: from the first that takes it; none for a program.

    They are of `passes`, by default of PIPELINE. A SELECTED graph may be selected for another target, so instructions are
    selected again.
    """
    taken = Dialect.EXPANDED if dialect is Dialect.SELECTED else dialect
    return tuple(itertools.dropwhile(lambda p: p.takes is not taken, PIPELINE if passes is None else passes))


def _group_neighbouring_per_kernel_passes(passes: Sequence[Pass], kernel_by_kernel: bool) -> Iterator[tuple[Pass, ...]]:
    """Yield the passes in order: one at a time, or neighbours that are `per_kernel` together."""
    for per_kernel, neighbours in itertools.groupby(passes, lambda p: p.per_kernel):
        if per_kernel and kernel_by_kernel:
            yield tuple(neighbours)
        else:
            yield from ((p,) for p in neighbours)


def run_pass_and_verify(p: Pass, graph: UOp, state: LoweringState) -> UOp:
    """Run one pass on `graph`; with `Config.verify`, raise Crash if the result is ill-formed."""
    return _run_pass_group_and_verify((p,), graph, state)


def _run_pass_group_and_verify(passes: Sequence[Pass], root: UOp, state: LoweringState) -> UOp:
    """Run one pass on a launch, or several `per_kernel` ones on each kernel in turn, and verify the result."""
    *_, p = passes
    with use_lowering_cache(state.memory):
        if p.per_kernel:
            programs = state.programs if p.gives is Dialect.LINEAR else None
            lowered = map_kernel_bodies(root, functools.partial(_reuse_or_lower_and_submit_kernel, passes, state, programs))
            if state.steps is not None:
                state.steps |= {s: map_kernel_bodies(root, state.body_steps.pop(s, {}).__getitem__) for s in p.steps}
        else:
            lowered = p.run(root, state)
    if state.config.verify:
        _verify_dialect(lowered, p.gives, p.name, root, state)
    return lowered


def _reuse_or_lower_and_submit_kernel(
    passes: Sequence[Pass], state: LoweringState, programs: KernelPrograms | None, body: UOp
) -> UOp:
    """Run passes on one kernel, and have `programs` compile its instruction list meanwhile."""
    lowered = None if programs is None else programs.find_cached_instructions_and_keep_program(body)
    if lowered is not None:
        return lowered
    lowered = body
    for p in passes:
        lowered = p.run(lowered, state)
    if programs is not None:
        programs.submit_for_compilation(body, lowered)
    return lowered


#: Dialects of programs that are validated: claims are about all passes from callify on.
_VALIDATED = frozenset({Dialect.TENSOR, Dialect.CALLIFIED})


def _require_proved_kernels_and_plan(graphs: dict[str, UOp], state: LoweringState) -> None:
    """Raise Invalid if a kernel, or the plan, fails its validation."""
    from uops.compiler.validate import validate  # late: Z3 is optional, and only validation needs it

    log = active_log()
    assert log is not None and state.steps is not None
    validate(graphs, state.steps, log).raise_unless_proved()


@record(frozen=True, slots=True)
class _VerifierTarget:
    """The ops and dtypes that kernels may use: the target's, those of the nodes that hold its products, and those of ops that a
    later pass lowers, which are `until_lowered`, and the small floats that a Wmma takes.
    """

    target: Target
    until_lowered: frozenset[Op] = frozenset()
    has_wmma: bool = False

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def ops(self) -> frozenset[Op]:
        return self.target.ops | self.until_lowered | {Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.BINARY}

    @property
    def dtypes(self) -> frozenset[DType]:
        return self.target.dtypes | {dt.uint8} | (frozenset(SMALL) if self.has_wmma else frozenset())


def _find_ops_lowered_by_later_passes(pass_name: str) -> frozenset[Op]:
    """Return the ops that a pass after this one lowers where the target lacks them; "" stands for the input."""
    names = [p.name for p in PIPELINE]
    position = names.index(pass_name) if pass_name else -1
    wmma = {Op.WMMA} if position < names.index("wmma") else set()
    return frozenset(wmma | (WORKGROUP_OPS if position < names.index("workgroups") else set()))


#: The dialects of what select has not seen.
_BEFORE_SELECT = frozenset({Dialect.TENSOR, Dialect.CALLIFIED, Dialect.KERNEL, Dialect.SCHEDULED, Dialect.EXPANDED})


def _verify_dialect(graph: UOp, dialect: Dialect, pass_name: str, before: UOp, state: LoweringState) -> None:
    """Verify the result of a pass on `before`, or the input, which is `before` itself, if `pass_name` is empty.

    The target need not have the ops and dtypes of what select will replace: all that is before it, lists of instructions included.
    Nor need it have those of a Program that was compiled before: no pass lowers it, and its Source names its target (R169).
    """
    from uops.spec.verify.verifier import verify  # late: compilation does not need the verifier

    entering = not pass_name
    try:
        if dialect in _BEFORE_SELECT or (entering and dialect is Dialect.SELECTED):
            verify(graph, dialect)
            return
        until_lowered = _find_ops_lowered_by_later_passes(pass_name)
        has_wmma = bool(nodes_with_op(graph, Op.WMMA))
        target = _VerifierTarget(state.target, until_lowered, has_wmma)
        given = {call.body for call in before.src if call.body.op is Op.PROGRAM}
        if given:
            verify(graph, dialect)
            graph = graph.replace(src=tuple(call for call in graph.src if call.body not in given))
        verify(graph, dialect, target=target)
    except SpecError as e:
        if entering:
            raise
        raise Crash(f"pass {pass_name} gave no well-formed {dialect.name}: {e}") from e
