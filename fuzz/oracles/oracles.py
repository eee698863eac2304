"""The table of oracles. An oracle tests one claim about a program and the backend under test.

Takes: an `OracleContext`, which holds one sample and the backends of a campaign. Gives: a `Fault`, or None. Raises
SubjectRefused if the subject refuses the program and is entitled to. The oracles are asked in order. The first fault ends a
case, since later oracles would mostly report the same bug.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from uops.backends.cached_target import CachedTarget
from uops.backends.conformance.gradients.duals import NotComparable, find_wrong_gradient_at_random_point
from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.stage_judge import (
    Fault,
    Judge,
    Outputs,
    find_different_output,
    find_disallowed_output,
)
from uops.backends.worker.guard import GuardedProgram, GuardSide
from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.passes.optimize.schedule.schedule import Scheduler
from uops.compiler.pipeline import Pass
from uops.compiler.prove.solver.solver import NoSolver
from uops.compiler.rewrite.lowering_cache import LoweringCache, use_lowering_cache
from uops.compiler.rewrite.rule import RewriteStep
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.runtime.program import Compiled, compile
from uops.compiler.target import Ability, Target
from uops.compiler.validate.model import Invalid
from uops.fuzz.bisect import coverage
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.bisect.wrong_rule import find_wrong_step, record_rewrite_steps
from uops.fuzz.generate.bestiary.families import describe_legalize_disagreement, run_case_and_describe_disagreement
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import FuzzCase as Drawn
from uops.fuzz.generate.kinds import KINDS, ProgramSample, select_graph_inputs, stable_hash
from uops.fuzz.generate.machines import draw_scaled_machine
from uops.fuzz.generate.methods.beside import find_wrong_draw_beside
from uops.fuzz.generate.methods.references import find_fault_of_built_call, rebuild_call
from uops.fuzz.generate.methods.sessions import find_fault_of_session, rebuild_graph_of_session
from uops.fuzz.generate.schedules import (
    ScheduleTextFollower,
    find_illegal_optop_not_rejected_citing_ruling,
    list_part_kinds_and_neighbour_pairs,
    pipeline_with_scheduler,
    run_passes_up_to,
)
from uops.fuzz.oracles import calls, launches
from uops.fuzz.oracles.disk_cache import find_first_fault_with_disk_cache
from uops.fuzz.oracles.leaks import find_leak_in_repeated_calls
from uops.fuzz.oracles.native import load_and_run_first_calls
from uops.fuzz.oracles.native_text import replace_stores_of_kernels_by_text
from uops.fuzz.oracles.relations import draw_related_sample, run_without_index_or_selection_rule
from uops.fuzz.oracles.searches import find_fault_of_searched_schedules
from uops.fuzz.oracles.shipped import find_first_fault_of_shipped_calls
from uops.fuzz.oracles.subject import (
    PLAIN,
    CachingTarget,
    Subject,
    SubjectRefused,
    call_and_describe_error,
    describe_exception_as_fault,
    run_and_check_dtypes_and_shapes,
    run_and_judge_by_allowed_sets,
)
from uops.spec.errors import CompileError, SpecError, Unsupported, UopsError
from uops.spec.extras import install_command
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.result import Result
from uops.spec.rows.accuracy import SEVERAL_RESULTS
from uops.spec.suggest import format_did_you_mean
from uops.spec.verify.dialects import LAUNCH_DIALECTS, Dialect
from uops.spec.verify.verifier import verify

#: Requirements of oracles: a target of our compiler, a second backend.
COMPILER, AGAINST = "a target of the compiler", "a second backend"


@dataclass
class OracleContext:
    """The state of judging one sample.

    All choices of oracles depend on `seed` alone. With `records_steps`, `steps` holds the rewrite steps of the subject's
    own compilation, for the oracle that tests them. `memory` memoizes what lowerings of this program have in common. `reached` are
    the functions that ran meanwhile (`uops.fuzz.reach`).
    """

    sample: ProgramSample
    subject: Subject
    against: Subject | None = None
    seed: int = 0
    records_steps: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    steps: list[RewriteStep] = field(default_factory=list)
    memory: LoweringCache = field(default_factory=LoweringCache)
    reached: set[str] = field(default_factory=set)

    @property
    def guard_side(self) -> GuardSide:
        """The end of memory at which a guard page lies, by the seed."""
        return GuardSide.END if self.seed % 2 else GuardSide.START

    @functools.cached_property
    def expectation(self) -> Expectation:
        """The outputs that the interpreter allows."""
        return Expectation.of_program(self.sample.graph, self.sample.inputs)

    @functools.cached_property
    def compiled_program(self) -> Callable[[Mapping[str, Any]], Result]:
        """The sample as the subject compiles it. Buffers end or start at a guard page, by the seed."""
        if not self.records_steps:
            return self.subject.compile_to_function(self.sample.graph, PLAIN, self.guard_side)
        with record_rewrite_steps() as self.steps:
            return self.subject.compile_to_function(self.sample.graph, PLAIN, self.guard_side)

    @functools.cached_property
    def own_run(self) -> tuple[Outputs, Fault | None]:
        """The outputs of the subject's own run, and the fault."""
        return run_and_judge_by_allowed_sets(self.subject, self.expectation, lambda: self.compiled_program(self.sample.inputs))

    def require_target(self) -> CachingTarget:
        """Return the subject's target, for oracles that need one."""
        assert self.subject.target is not None
        return self.subject.target

    def run_on_backend_and_judge(
        self, subject: Subject, config: Config = PLAIN, guard_side: GuardSide = GuardSide.END
    ) -> tuple[Outputs, Fault | None]:
        """Run the sample on a backend; return the outputs and the fault."""
        graph, inputs = self.sample.graph, self.sample.inputs
        return run_and_judge_by_allowed_sets(subject, self.expectation, lambda: subject.run(graph, inputs, config, guard_side))

    def draw(self, name: str) -> SeededDraw:
        """Return the source of an oracle's choices."""
        return SeededDraw(stable_hash(self.seed, name))


class Compilation(NamedTuple):
    """A program, and the passes, settings and target that it was compiled with. No target is the subject's own."""

    sample: ProgramSample
    passes: Sequence[Pass] | None = None
    config: Config = PLAIN
    target: Target | None = None


@record(frozen=True, slots=True)
class Oracle:
    """A test of one claim. It judges one case in `every`, drawn by the seed; of some kinds, one in `every_of_kind`. 0 is none.

    `compilation` gives the program that the oracle compiled, for bisection. `freeze_choices` gives a sample that holds what the
    oracle draws, and the name of the oracle that judges that sample: reduction starts from it.
    """

    name: str
    what: str
    check: Callable[[OracleContext], Fault | None]
    every: int = 1
    needs: frozenset[str] = frozenset()
    dialects: frozenset[Dialect] = frozenset({Dialect.TENSOR})
    compilation: Callable[[OracleContext], Compilation] = lambda c: Compilation(c.sample)
    freeze_choices: Callable[[OracleContext], tuple[ProgramSample, str]] | None = None
    every_of_kind: tuple[tuple[str, int], ...] = ()


# -------------------------------------------------------------------------------------------------------------- the checks


class OracleNotApplicable(UopsError):
    """A case that an oracle cannot judge, and which does not count as judged by it."""


def _check_interpreter_evaluates_and_bounds_hold(c: OracleContext) -> Fault | None:
    """Check that the interpreter evaluates the program without an error, and that the bounds of every node hold (else
    Unsound).
    """
    try:
        _ = c.expectation.strict
    except Exception as e:
        return describe_exception_as_fault(e)
    return None


def _check_front_end_by_numpy(c: OracleContext) -> Fault | None:
    """Check that a call of a Tensor method gives what NumPy gives. The call is drawn again from the sample's choices."""
    if c.sample.kind != "methods" or c.sample.choices is None:
        raise OracleNotApplicable("no call of a Tensor method made the program")
    built = rebuild_call(c.sample.choices)
    if built.graph is not c.sample.graph or not _have_same_bits(c.sample.inputs, select_graph_inputs(built.graph, built.inputs)):
        raise OracleNotApplicable("the program is no longer that of the call")
    return find_fault_of_built_call(built)


def _check_front_end_beside_by_numpy(c: OracleContext) -> Fault | None:
    """Check that calls of Tensor methods or sessions, drawn for this case and interpreted, give what NumPy gives."""
    wrong = find_wrong_draw_beside(c.sample.kind, c.draw("beside"))
    return wrong and wrong.fault


def _freeze_wrong_call_or_session(c: OracleContext) -> tuple[ProgramSample, str]:
    wrong = find_wrong_draw_beside(c.sample.kind, c.draw("beside"))
    if wrong is None:
        return c.sample, "beside"
    sample = ProgramSample(c.sample.kind, wrong.program.graph, select_graph_inputs(*wrong.program), choices=wrong.choices)
    return sample, SESSIONS if c.sample.kind == SESSIONS else NUMPY


def _check_session_by_numpy(c: OracleContext) -> Fault | None:
    """Check that a session of the front end on the subject gives what NumPy gives."""
    if c.sample.kind != SESSIONS or c.sample.choices is None:
        raise OracleNotApplicable("no session made the program")
    if rebuild_graph_of_session(c.sample.choices) is not c.sample.graph:
        raise OracleNotApplicable("the program is no longer that of the session")
    find = functools.partial(find_fault_of_session, c.sample.choices, c.subject.name)
    found, error = call_and_describe_error(c.subject, c.sample.graph, find)
    return found or error


def _have_same_bits(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.asarray(v).tobytes() == np.asarray(b[k]).tobytes() for k, v in a.items())


def _check_sample_well_formed(c: OracleContext) -> Fault | None:
    try:
        verify(c.sample.graph, KINDS[c.sample.kind].dialect)
    except UopsError as e:
        return describe_exception_as_fault(e)
    return None


def _check_gradients_by_duals(c: OracleContext) -> Fault | None:
    if _count_elements(c.sample.graph) > MAX_STAGED_ELEMENTS:
        raise OracleNotApplicable("too large for exact fractions")
    try:
        wrong = find_wrong_gradient_at_random_point(c.sample.graph, c.sample.inputs, c.seed % 2**32)
    except NotComparable as e:
        raise OracleNotApplicable(str(e)) from None
    return None if wrong is None else Fault("value", wrong)


def _check_allowed(c: OracleContext) -> Fault | None:
    return c.own_run[1]


def _check_unoptimised(c: OracleContext) -> Fault | None:
    outputs, fault = c.run_on_backend_and_judge(c.subject, UNOPTIMISED)
    return fault or _check_same_bits_if_unambiguous(c, outputs, c.own_run[0])


def _count_elements(graph: UOp) -> int:
    """Return the number of elements in all values of a program."""
    return sum(math.prod(n for n in u.shape if isinstance(n, int)) for u in toposort(graph) if u.dtype is not dt.void)


def _bisect_stages_and_count_coverage(c: OracleContext) -> Fault | None:
    if _count_elements(c.sample.graph) > MAX_STAGED_ELEMENTS:
        raise OracleNotApplicable("too large to interpret every stage")
    stages = _compilation_to_interpret(c)
    target = stages.target or c.require_target()
    finding = bisect(c.sample.graph, c.sample.inputs, target, pipeline.PIPELINE, extra_orders=1, config=stages.config)
    c.counts.update(coverage.count_changing_passes_and_rule_outcomes(c.sample.graph, c.require_target()))
    return finding and finding.fault


def _check_native_stores(c: OracleContext) -> Fault | None:
    """Check that the program gives the same with Stores of its kernels as native text of the target."""
    language = c.subject.backend.capabilities().language
    graph = replace_stores_of_kernels_by_text(c.sample.graph, language, c.draw("native"))
    if graph is None:
        raise OracleNotApplicable("no kernel of the program has a plain Store")
    outputs, fault = run_and_judge_by_allowed_sets(
        c.subject, c.expectation, lambda: c.subject.run(graph, c.sample.inputs, PLAIN, c.guard_side)
    )
    return fault or _check_same_bits_if_unambiguous(c, outputs, c.own_run[0])


def _check_second_backend(c: OracleContext) -> Fault | None:
    assert c.against is not None
    outputs, fault = c.run_on_backend_and_judge(c.against)
    return fault or _check_same_bits_if_unambiguous(c, outputs, c.own_run[0])


def _check_same_bits_on_second_compile(c: OracleContext) -> Fault | None:
    """Check that the program, compiled and run once more, gives the same bits."""
    if c.subject.target is not None:
        c.subject.target.forget()
    with use_lowering_cache(LoweringCache()):
        outputs, fault = c.run_on_backend_and_judge(c.subject, guard_side=GuardSide.START if c.seed % 2 else GuardSide.END)
    first_outputs, first_fault = c.own_run
    return fault or first_fault or find_different_output(first_outputs, outputs, c.expectation.strict)


def _check_calls_for_aliasing_and_stale_caches(c: OracleContext) -> Fault | None:
    """Check the program as users call it: through all caches, or results that share memory; natively if the target can."""
    outputs, fault = c.own_run
    return fault or calls.find_first_fault_of_user_calls(
        c.sample.graph, c.sample.inputs, c.require_target(), outputs, c.draw("called"), c.require_target().uncached
    )


def _check_shipped_backend(c: OracleContext) -> Fault | None:
    """Check the backend with the settings that users get, called as they call it."""
    graph = c.sample.graph

    def call() -> Fault | None:
        return find_first_fault_of_shipped_calls(
            graph,
            c.sample.inputs,
            c.subject.default_backend.run,
            c.expectation,
            c.draw("shipped"),
            c.subject.target is not None,
        )

    found, error = call_and_describe_error(c.subject, graph, call)
    return found or error


def _check_with_disk_cache(c: OracleContext) -> Fault | None:
    """Check the program through a cache on disk, if the target has one."""
    target = c.require_target().uncached
    if not isinstance(target, CachedTarget):
        raise OracleNotApplicable("the target caches no machine code on disk")
    return find_first_fault_with_disk_cache(
        c.sample.graph, c.sample.inputs, target, c.subject.kept_objects,
        lambda run: run_and_judge_by_allowed_sets(c.subject, c.expectation, run)[1], c.draw("cached"),
    )  # fmt: skip


def _check_first_rewrite_steps_of_each_rule(c: OracleContext) -> Fault | None:
    """Check that `_STEPS_PER_RULE` different steps of each rule preserve the value for any values of their leaves."""
    _ = c.own_run
    counts: Counter[str] = Counter()
    steps: dict[tuple[str, UOp, UOp], RewriteStep] = {}
    for step in c.steps:
        key = step.rule, step.before, step.after
        if key not in steps and counts[step.rule] < _STEPS_PER_RULE:
            counts[step.rule] += 1
            steps[key] = step
    wrong = find_wrong_step(steps.values(), c.seed)
    return None if wrong is None else Fault("step", f"rule {wrong.rule} changes a value: {wrong.before!r} to {wrong.after!r}")


def _check_validator_refutes_nothing(c: OracleContext) -> Fault | None:
    """Check that the validator refutes no obligation of any kernel or of the memory plan. Undecided ones are counted."""
    validated = _compilation_to_validate(c)
    try:
        config = replace(validated.config, validate=True)
        pipeline.lower(c.sample.graph, validated.target or c.require_target(), upto="plan", config=config)
    except Invalid as e:
        refuted = next((v for v in e.verdicts if v.counterexample is not None), None)
        c.counts["validated:not decided"] += refuted is None
        return None if refuted is None else Fault("refuted", f"{e.kernel}: {refuted}")
    except NoSolver:
        raise OracleNotApplicable(f"no solver is installed: {install_command('prove')}") from None
    return None


def _compilation_to_validate(c: OracleContext) -> Compilation:
    return _draw_compilation(c, "validated way", ("plain", "plain", "forced", "scaled"))


def _compilation_to_interpret(c: OracleContext) -> Compilation:
    """Return the compilation whose stages are interpreted. Half have forced schedules, whose lanes a processor may run in turns.

    Machine code that runs lanes one after another hides their races, which the interpreter refuses (R55: races).
    """
    return _draw_compilation(c, "stages way", ("plain", "forced", "forced", "scaled"))


def _draw_compilation(c: OracleContext, salt: str, ways: tuple[str, ...]) -> Compilation:
    """Draw a compilation: a plain one, one with forced schedules, or one for a smaller machine."""
    way = c.draw(salt).choice(ways)
    config = _draw_forced_config(c) if way == "forced" else PLAIN
    target = _draw_scaled_target(c) if way == "scaled" else None
    return Compilation(c.sample, None, replace(config, reuse=False), target)


def _check_leaks(c: OracleContext) -> Fault | None:
    """Check that repeated calls of a compiled program keep no memory."""
    program = Compiled(c.sample.graph, c.require_target(), PLAIN)
    return find_leak_in_repeated_calls(lambda: program(c.sample.inputs))


def _check_legal_form_agrees(c: OracleContext) -> Fault | None:
    try:
        difference = describe_legalize_disagreement(Drawn(c.sample.graph, dict(c.sample.inputs)), order_seed=c.seed)
    except Exception as e:
        return describe_exception_as_fault(e)
    return None if difference is None else Fault("value", difference)


def _is_no_launch(error: SpecError) -> bool:
    """Return True if a graph has no form of a launch: a kernel that gives a value (R166), or that views memory."""
    dialect = (error.claim or "").partition(".")[0]
    return dialect in {d.name for d in LAUNCH_DIALECTS} or "a launch has results in memory alone" in str(error)


def _check_legal_form_native_against_interp(c: OracleContext) -> Fault | None:
    """Compile the legal form of a BESTIARY graph, run it, and compare its values with the interpreter's.

    Raises SubjectRefused for a graph that the compiler refuses.
    """
    graph, inputs = c.sample.graph, dict(c.sample.inputs)
    try:
        program = GuardedProgram(graph, c.require_target(), c.guard_side, PLAIN, Dialect.BESTIARY)
        result = program({k: v for k, v in inputs.items() if k in program.keys})
    except (CompileError, Unsupported) as e:
        raise SubjectRefused(str(e)) from e
    except Exception as e:
        if isinstance(e, SpecError) and _is_no_launch(e):
            raise SubjectRefused("the legal form is no launch") from e
        return describe_exception_as_fault(e)
    difference = run_case_and_describe_disagreement(Drawn(graph, inputs), result)
    return None if difference is None else Fault("value", difference)


def _check_random_schedule(c: OracleContext) -> Fault | None:
    """Check the program with the sample's schedule, or with one that is drawn."""
    return _check_native_outputs_under_schedule(c, _schedule_sequence(c))


def _check_search_schedule(c: OracleContext) -> Fault | None:
    """Check the program with a schedule that a search may choose."""
    return _check_native_outputs_under_schedule(c, _schedule_sequence(c, "beam"))


def _check_native_outputs_under_schedule(c: OracleContext, schedule_follower: ScheduleTextFollower) -> Fault | None:
    fault = _run_natively_and_judge(c, schedule_follower)
    c.counts.update(f"optop:{kind}" for kind in list_part_kinds_and_neighbour_pairs(schedule_follower.applied_text))
    return fault


def _run_natively_and_judge(c: OracleContext, scheduler: Scheduler) -> Fault | None:
    judge = Judge(c.sample.graph, c.sample.inputs, expected=c.expectation)
    program = run_passes_up_to(c.sample.graph, c.require_target(), pipeline_with_scheduler(scheduler))
    outputs = judge.read_outputs_and_check_inputs_unchanged(
        load_and_run_first_calls(program, c.require_target(), judge.initial_memory, guard_side=c.guard_side)
    )
    return find_disallowed_output(c.expectation, outputs)


def _check_forced_schedule(c: OracleContext) -> Fault | None:
    return c.run_on_backend_and_judge(c.subject, _draw_forced_config(c))[1]


def _draw_forced_config(c: OracleContext) -> Config:
    """Draw the seed of `--opts forced`: schedules with Wmma of any shape, in vector registers if there is no instruction."""
    return replace(PLAIN, forced=c.draw("forced").integer(0, 999))


def _check_beam_search(c: OracleContext) -> Fault | None:
    return find_fault_of_searched_schedules(c.require_target(), c.seed, lambda scheduler: _run_natively_and_judge(c, scheduler))


def _schedule_sequence(c: OracleContext, source: str = "draw") -> ScheduleTextFollower:
    return ScheduleTextFollower(f"{source} {stable_hash(c.seed, 'scheduled')}" if c.sample.opts is None else c.sample.opts)


def _compilation_with_schedule(c: OracleContext, source: str = "draw") -> Compilation:
    return Compilation(c.sample, pipeline_with_scheduler(_schedule_sequence(c, source)))


def _freeze_schedule_choices(c: OracleContext, source: str = "draw") -> tuple[ProgramSample, str]:
    sequence = _schedule_sequence(c, source)
    run_passes_up_to(c.sample.graph, c.require_target(), pipeline_with_scheduler(sequence), last_pass="optimize")
    return c.sample._replace(opts=sequence.applied_text), "scheduled"


def _check_on_scaled_machine(c: OracleContext, machine: str = "scaled") -> Fault | None:
    """Check the program as the heuristics compile it for a smaller machine, on which it is large. `machine` names what is drawn.

    In one case of four it is called as users call it, so that threads share the loops of its kernels if the target can do that.
    """
    target, side = _draw_scaled_target(c, machine), GuardSide.START if c.seed % 2 else GuardSide.END
    if Ability.NATIVE_ENTRY in target.abilities and c.draw(f"{machine} entry").chance(25):
        called = lambda: compile(c.sample.graph, target, Config(reuse=False))(c.sample.inputs)  # noqa: E731 - a fault if it raises
        return run_and_judge_by_allowed_sets(c.subject, c.expectation, called)[1]
    program = lambda: GuardedProgram(c.sample.graph, target, side, PLAIN)(c.sample.inputs)  # noqa: E731 - a fault if it raises
    return run_and_judge_by_allowed_sets(c.subject, c.expectation, program)[1]


def _draw_scaled_target(c: OracleContext, machine: str = "scaled") -> Target:
    target = c.require_target()
    return target.describe_as(draw_scaled_machine(target.machine, c.draw(machine)))


def _oracle_of_scaled_machine(name: str, what: str, every: int) -> Oracle:
    """Return the oracle that compiles for a machine that is drawn for its name. Workloads are judged by all of these."""
    return Oracle(
        name, what, functools.partial(_check_on_scaled_machine, machine=name), every, frozenset({COMPILER}),
        compilation=lambda c: Compilation(c.sample, target=_draw_scaled_target(c, name)), every_of_kind=(("workloads", 1),),
    )  # fmt: skip


def _check_illegal_optops(c: OracleContext) -> Fault | None:
    return find_illegal_optop_not_rejected_citing_ruling(c.sample.graph, c.require_target(), c.draw("illegal"))


def _check_lowering_deterministic(c: OracleContext) -> Fault | None:
    """Check that lowering the same graph again gives the same instructions."""
    first, second = (_lower_to_plan(c) for _ in range(2))
    return None if first is second else Fault("differs", "a second lowering gives other instructions")


def _lower_to_plan(c: OracleContext) -> UOp:
    """Lower without memoized results."""
    with use_lowering_cache(LoweringCache()):
        return run_passes_up_to(c.sample.graph, c.require_target(), pipeline.PIPELINE, "plan")


def _check_one_metamorphic_relation(c: OracleContext) -> Fault | None:
    related = draw_related_sample(c.sample, c.draw("related"))
    if related is None:
        raise OracleNotApplicable("no relation fits")
    relation, (sample, map_outputs_back) = related
    c.counts[f"relation:{relation.name}"] += 1
    return _run_related_and_check_mapped_back(c, sample, map_outputs_back)


def _run_related_and_check_mapped_back(
    c: OracleContext, related_sample: ProgramSample, map_outputs_back: Callable[[Outputs], Outputs]
) -> Fault | None:
    """Run a related sample, and judge its mapped outputs by the first sample's allowed sets."""
    outputs, fault = run_and_check_dtypes_and_shapes(
        c.subject, related_sample.graph, related_sample.inputs, lambda: c.subject.run(related_sample.graph, related_sample.inputs)
    )
    if fault is not None:
        return fault
    return find_disallowed_output(c.expectation, map_outputs_back(outputs))


def _freeze_relation_choice(c: OracleContext) -> tuple[ProgramSample, str]:
    related = draw_related_sample(c.sample, c.draw("related"))
    return (c.sample, "related") if related is None else (related[1].sample, "allowed")


def _check_with_one_applied_index_rule_disabled(c: OracleContext) -> Fault | None:
    """Check that the program gives the same without one of the rewrite rules that are applied to it.

    Without the rule, the width of an index may be unproved, and the program refused for it: that is no fault (R08, index dtype).
    """
    applied = {
        s.rule for transform in coverage.record_transforms_until_plan(c.sample.graph, c.require_target()) for s in transform.steps
    }
    rules = [r for r in INDEXING if r.name in applied]
    if not rules:
        raise OracleNotApplicable("no rule is applied")
    rule = c.draw("rule-off").choice(rules)
    c.counts[f"rule-off:{rule.name}"] += 1
    with run_without_index_or_selection_rule(rule), use_lowering_cache(LoweringCache()):
        fault = c.run_on_backend_and_judge(c.subject)[1]
    if fault is not None and fault.kind == "refused" and fault.message.startswith("R08"):
        raise OracleNotApplicable(f"{rule.name} proves the width of an index")
    return fault


def _check_same_memory_in_several_orders(c: OracleContext) -> Fault | None:
    try:
        return launches.check_same_memory_in_orders_and_machines(c.sample.graph, c.sample.inputs, c.seed % 1000)
    except Exception as e:
        return describe_exception_as_fault(e)


def _check_kernel_native_against_interp(c: OracleContext) -> Fault | None:
    try:
        return launches.check_launch_native_against_interpreter(
            c.sample.graph, c.sample.inputs, launches.Entry(KINDS[c.sample.kind].dialect, c.seed), c.require_target(), c.guard_side
        )
    except Exception as e:
        return describe_exception_as_fault(e)


def _check_launch_after_each_pass(c: OracleContext) -> Fault | None:
    entry = launches.Entry(KINDS[c.sample.kind].dialect, c.seed)
    try:
        wrong = launches.find_wrong_pass_of_launch(c.sample.graph, c.sample.inputs, entry, c.require_target())
    except Exception as e:
        return describe_exception_as_fault(e)
    return wrong and wrong[1]


#: Ops on floats among whose answers two schedules or backends may choose differently: those with several right ones, and others
#: that a backend may compute in several steps.
_AMBIGUOUS_OPS = SEVERAL_RESULTS | {Op.REDUCE, Op.WMMA, Op.SQRT, Op.RECIP, Op.DIV, Op.MULACC}


def _check_same_bits_if_unambiguous(c: OracleContext, actual: Outputs, expected: Outputs) -> Fault | None:
    """Check that two runs have the same bits if floats have one right answer. Elements that may be anything are not compared."""
    if any(u.dtype.is_float and u.op in _AMBIGUOUS_OPS for u in toposort(c.sample.graph)):
        return None
    exact = [k for k, s in c.expectation.strict.items() if s.is_exact and k in actual and k in expected]
    return find_different_output(expected, actual, exact)


# --------------------------------------------------------------------------------------------------------------- the table

#: Maximum number of elements in all values of a program whose stages are interpreted, some of them lane by lane, or whose
#: gradients are evaluated over fractions.
MAX_STAGED_ELEMENTS = 50_000
#: Maximum number of different steps per rule that are tested in one lowering.
_STEPS_PER_RULE = 4
#: Settings without schedules.
UNOPTIMISED = Config(reuse=False, optimize=False)
#: Name of the oracle that reads the steps of the subject's own compilation.
STEPS = "steps"
#: Names of the oracles that judge the front end, whose samples must keep their choices. One is that of its kind, too.
NUMPY, SESSIONS = "numpy", "sessions"

#: The part of sparse memory that an oracle judges which copies the inputs: none.
_NOT_OF_SPARSE = (("sparse", 0),)
#: The dialects of kinds that are launches.
_OF_LAUNCHES = frozenset({Dialect.KERNEL, Dialect.SCHEDULED})

#: Name -> oracle, in the order in which they are asked.
# fmt: off
ORACLES: dict[str, Oracle] = {o.name: o for o in (
    Oracle("form",        "the verifier accepts what the generator made", _check_sample_well_formed, 32,
           dialects=frozenset({Dialect.TENSOR, Dialect.BESTIARY, *_OF_LAUNCHES})),
    Oracle("reference",   "the interpreter and its intervals accept the program", _check_interpreter_evaluates_and_bounds_hold, 1),
    Oracle(NUMPY,         "a call of a Tensor method gives what NumPy gives", _check_front_end_by_numpy),
    Oracle("beside",      "other calls of Tensor methods and other sessions, interpreted, give what NumPy gives",
           _check_front_end_beside_by_numpy, 0, freeze_choices=_freeze_wrong_call_or_session,
           every_of_kind=(("methods", 1), (SESSIONS, 1))),
    Oracle(SESSIONS,      "statements of the front end in a row give what NumPy gives", _check_session_by_numpy),
    Oracle("duals",       "exact forward mode gives the derivatives that the gradient rules give", _check_gradients_by_duals, 8),
    Oracle("allowed",     "every element is in the interpreter's allowed set", _check_allowed),
    Oracle("unoptimised", "without schedules the same is given", _check_unoptimised, 8, frozenset({COMPILER}),
           compilation=lambda c: Compilation(c.sample, None, UNOPTIMISED)),
    Oracle("scheduled",   "with legal OptOps, drawn from their table, the same is given", _check_random_schedule, 4,
           frozenset({COMPILER}), compilation=_compilation_with_schedule, freeze_choices=_freeze_schedule_choices),
    Oracle("searched",    "with schedules that a search may choose the same is given", _check_search_schedule, 8,
           frozenset({COMPILER}), compilation=lambda c: _compilation_with_schedule(c, "beam"),
           freeze_choices=lambda c: _freeze_schedule_choices(c, "beam")),
    Oracle("forced",      "with schedules of `--opts forced` the same is given", _check_forced_schedule, 8, frozenset({COMPILER}),
           compilation=lambda c: Compilation(c.sample, None, _draw_forced_config(c))),
    Oracle("beam",        "with schedules that a beam search finds or has stored the same is given", _check_beam_search, 64,
           frozenset({COMPILER}), every_of_kind=_NOT_OF_SPARSE),
    _oracle_of_scaled_machine("scaled", "for a machine so small that the program is large the same is given", 2),
    *(_oracle_of_scaled_machine(f"scaled-{k}", f"for another such machine, number {k}, too", 0) for k in (2, 3, 4)),
    Oracle("called",      "called from Python, with arguments of any form, it does what it does otherwise",
           _check_calls_for_aliasing_and_stale_caches, 8, frozenset({COMPILER}), every_of_kind=_NOT_OF_SPARSE),
    Oracle("shipped",     "the backend with its own settings, called in the ways that users call it, is right too",
           _check_shipped_backend, 8, every_of_kind=_NOT_OF_SPARSE),
    Oracle("cached",      "with a cache on disk of other programs and settings, whose files are harmed, the same is given",
           _check_with_disk_cache, 64, frozenset({COMPILER})),
    Oracle("native",      "with Stores of its kernels as native text the same is given", _check_native_stores, 2,
           frozenset({COMPILER})),
    Oracle("illegal",     "illegal OptOps are rejected with a reason", _check_illegal_optops, 8, frozenset({COMPILER})),
    Oracle("related",     "a related program gives the same", _check_one_metamorphic_relation, 4,
           freeze_choices=_freeze_relation_choice, every_of_kind=_NOT_OF_SPARSE),
    Oracle("rule-off",    "without one of the rewrite rules the same is given", _check_with_one_applied_index_rule_disabled, 16,
           frozenset({COMPILER})),
    Oracle("again",       "a second compilation gives the same bits", _check_same_bits_on_second_compile, 32),
    Oracle("twice",       "a second lowering gives the same instructions", _check_lowering_deterministic, 32,
           frozenset({COMPILER})),
    Oracle(STEPS,         "rewrite steps keep the value, whatever the leaves are", _check_first_rewrite_steps_of_each_rule, 4,
           frozenset({COMPILER})),
    Oracle("stages",      "every stage gives what the one before it gives", _bisect_stages_and_count_coverage, 16,
           frozenset({COMPILER}), compilation=_compilation_to_interpret, every_of_kind=(("workloads", 64),)),
    Oracle("validated",   "what the validator asks of kernels and of the memory plan is not refuted",
           _check_validator_refutes_nothing, 16, frozenset({COMPILER}), compilation=_compilation_to_validate),
    Oracle("leaks",       "a program that is called again keeps no memory", _check_leaks, 64, frozenset({COMPILER})),
    Oracle("second",      "a second backend gives the same", _check_second_backend, 1, frozenset({AGAINST})),
    Oracle("orders",      "a kernel gives the same in every order, and in both machines of the interpreter",
           _check_same_memory_in_several_orders, dialects=_OF_LAUNCHES),
    Oracle("kernels",     "machine code of a launch gives what the interpreter gives",
           _check_kernel_native_against_interp, 1, frozenset({COMPILER}), _OF_LAUNCHES),
    Oracle("lowered",     "after each pass a launch leaves what it leaves before, and its lanes do not race",
           _check_launch_after_each_pass, 4, frozenset({COMPILER}), _OF_LAUNCHES),
    Oracle("legalized",   "a graph of the second document means what its legal form means", _check_legal_form_agrees,
           dialects=frozenset({Dialect.BESTIARY})),
    Oracle("compiled",    "machine code of the legal form gives what the second document says",
           _check_legal_form_native_against_interp, 1, frozenset({COMPILER}), frozenset({Dialect.BESTIARY})),
)}
# fmt: on
#: Names in place of an oracle's: of a program that cannot be generated, and of a process that ends.
GENERATOR, PROCESS = "generator", "process"
#: Oracles of programs and of the interpreter alone, which judge nothing of any other subject.
OF_PROGRAMS = frozenset({"form", "reference", NUMPY, "beside", "duals", "orders", "legalized"})
#: The ones of these that compare results of the interpreter, and judge it if it is the subject.
OF_INTERPRETER = frozenset({"orders", "legalized"})
#: The oracles of a campaign that names none.
DEFAULT = tuple(ORACLES)


#: Name of the interpreter's backend.
INTERP = "interp"


class UnknownOracle(UopsError, LookupError):
    """An unknown name of an oracle."""


def select_oracles_in_table_order(names: Sequence[str]) -> tuple[Oracle, ...]:
    """Return the oracles of these names, in the table's order. Raises UnknownOracle."""
    missing = [n for n in names if n not in ORACLES]
    if missing:
        raise UnknownOracle(
            f"no oracle is called {missing[0]!r}; known: {', '.join(ORACLES)}{format_did_you_mean(missing[0], ORACLES)}"
        )
    return tuple(o for o in ORACLES.values() if o.name in names)


def judges_backend(oracle: str, backend: str) -> bool:
    """Return True if the oracle judges what the backend called `backend` does."""
    return oracle not in OF_PROGRAMS or (backend == INTERP and oracle in OF_INTERPRETER)


def applicable_oracles(names: Sequence[str], subject: Subject, against: Subject | None) -> tuple[Oracle, ...]:
    """Return the oracles of these names whose needs are met. Raises UnknownOracle."""
    available = _available_needs(subject, against)
    return tuple(o for o in select_oracles_in_table_order(names) if o.needs <= available)


def _available_needs(subject: Subject, against: Subject | None) -> frozenset[str]:
    needs = {COMPILER} if subject.target is not None else set()
    return frozenset(needs | ({AGAINST} if against is not None else set()))


def is_due(oracle: Oracle, seed: int, kind: str) -> bool:
    """Return True if the oracle judges the case of this kind with this seed."""
    every = dict(oracle.every_of_kind).get(kind, oracle.every)
    return every == 1 or (every > 1 and stable_hash(seed, oracle.name, "due") % every == 0)


def find_first_objection(
    c: OracleContext, oracles: Sequence[Oracle], before_oracle: Callable[[str], Any] = lambda name: None
) -> tuple[str, Fault] | None:
    """Ask the oracles in order; return the name of the first one that objects, and the fault.

    `before_oracle` is called with each name before the oracle is asked. The context counts who has judged. Raises
    SubjectRefused.
    """
    dialect = KINDS[c.sample.kind].dialect
    for o in oracles:
        if dialect in o.dialects:
            before_oracle(o.name)
            fault = _run_oracle_with_unexpected_errors_as_faults(o, c)
            if fault is not None:
                return o.name, fault
    return None


def _run_oracle_with_unexpected_errors_as_faults(o: Oracle, c: OracleContext) -> Fault | None:
    """Ask one oracle; anything that it raises is a fault. Raises SubjectRefused."""
    try:
        fault = o.check(c)
    except OracleNotApplicable as e:
        c.counts[f"not asked:{o.name}, {e}"] += 1
        return None
    except SubjectRefused:
        raise
    except (CompileError, Unsupported) as e:  # a fault if the subject may not refuse
        if c.subject.may_refuse(c.sample.graph):
            raise SubjectRefused(str(e)) from e
        fault = Fault("refused", str(e))
    except Exception as e:
        fault = describe_exception_as_fault(e)
    c.counts[f"oracle:{o.name}"] += 1
    return fault
