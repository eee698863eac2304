"""Validation of a program: every kernel against its body before scheduling, and the memory plan.

Takes: the graphs of a lowering by pass, those of the steps of select, and its log. Gives: a `ValidationReport`, whose
`raise_unless_proved` raises Invalid for the first kernel, or the plan, that is not validated. Verdicts of kernels are memoized per
process.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.log import CallifiedGraph, LoweringLog
from uops.compiler.passes.select.select import STEPS
from uops.compiler.prove.solver.solver import SolverWorker, solver_version
from uops.compiler.runtime.queues import describe_launch_access, schedule_launches
from uops.compiler.validate.arrays.callified import decide_values_of_callified_program
from uops.compiler.validate.arrays.definitions import decide_values_of_split_kernels, leave_values_to_interpreter
from uops.compiler.validate.decide import decide_claim
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.launches.devices import generate_write_copy_and_order_claims
from uops.compiler.validate.launches.plan import (
    caller_buffer_numbers,
    generate_call_claims,
    generate_plan_claims,
    list_calls_of_written_kernels,
)
from uops.compiler.validate.model import DecisionMethod, Invalid, ObligationKind, ValidationVerdict
from uops.compiler.validate.values import (
    decide_equal_terms,
    decide_value_preservation_or_leave_to_interpreter,
    group_rewriter_transforms_by_result,
)
from uops.spec.ir.node import UOp
from uops.spec.ir.record import dataclass as record
from uops.spec.untrusted import escape_to_one_line

#: The passes, and steps of select, that change kernels one by one.
PASSES = ("join", "optimize", "expand", *STEPS, "linearize")
#: Time limit of a query, in seconds. The limit in steps ends it long before, on any usual machine.
SECONDS = 30.0
#: Greatest number of kernels with memoized verdicts per process.
KEPT = 4096


@record(frozen=True, slots=True)
class KernelValidation:
    """The verdicts of one kernel, and the seconds of processor time that they took.

    The time includes the solver's, and is near 0 for memoized verdicts.
    """

    name: str
    before: UOp
    after: UOp
    verdicts: tuple[ValidationVerdict, ...]
    seconds: float

    @property
    def failures(self) -> tuple[ValidationVerdict, ...]:
        """The verdicts that are not proved."""
        return tuple(v for v in self.verdicts if not v.is_proved)


@record(frozen=True, slots=True)
class ValidationReport:
    """The validation of a program: its distinct kernels, and its plan.

    `fast_math_counts` has the number of applications of each fast-math rule before kernels were split. Everything is proved of
    the program that these made.
    """

    kernels: tuple[KernelValidation, ...]
    plan: tuple[ValidationVerdict, ...]
    fast_math_counts: Mapping[str, int]

    @property
    def verdicts(self) -> tuple[ValidationVerdict, ...]:
        """The verdicts of all kernels, then those of the plan."""
        return (*(v for k in self.kernels for v in k.verdicts), *self.plan)

    def raise_unless_proved(self) -> None:
        """Raise Invalid unless everything is proved."""
        for k in self.kernels:
            if k.failures:
                raise Invalid(f"kernel {k.name}", k.failures)
        bad = tuple(v for v in self.plan if not v.is_proved)
        if bad:
            raise Invalid("the memory plan", bad)


class _ValidatorState:
    """The solver, memoized verdicts and counts of this process; one program at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker = SolverWorker(seconds=SECONDS)
        self.verdict_cache: OrderedDict[tuple[UOp, ...], tuple[ValidationVerdict, ...]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def cpu_seconds(self) -> float:
        """Return the seconds of processor time of this thread and of the solver."""
        return time.thread_time() + self.worker.cpu_seconds


_PROCESS = _ValidatorState()


def take_validation_counts() -> dict[str, int]:
    """Return and reset the counts of this process: `kernels` (distinct per program), and obligations by `kind: by`."""
    with _PROCESS.lock:
        counts, _PROCESS.counts = dict(_PROCESS.counts), Counter()
    return counts


def validate(graphs_by_pass: Mapping[str, UOp], graphs_by_step: Mapping[str, UOp], log: LoweringLog) -> ValidationReport:
    """Validate a program: its kernels from join to linearize, and its plan. Raises NoSolver without Z3."""
    solver_version()
    before, after = graphs_by_pass["join"], graphs_by_pass["linearize"]
    with _PROCESS.lock:
        kernels = _validate_distinct_kernels(graphs_by_pass, graphs_by_step, log)
        launch_claims = (
            *generate_call_claims(before, after),
            *generate_plan_claims(
                graphs_by_pass.get("workgroups", after),
                graphs_by_pass["plan"],
                caller_buffer_numbers(graphs_by_pass["callify"].arguments if log.external is None else log.external),
                list_calls_of_written_kernels(before),
            ),
            *generate_write_copy_and_order_claims(
                before,
                graphs_by_pass["plan"],
                schedule_launches([describe_launch_access(call) for call in graphs_by_pass["plan"].src]),
            ),
        )
        plan_verdicts = tuple(decide_claim(c, _PROCESS.worker) for c in launch_claims)
        report = ValidationReport(kernels, plan_verdicts, log.applications_by_assuming_rule)
        _PROCESS.counts["kernels"] += len(kernels)
        if report.fast_math_counts:
            _PROCESS.counts["steps of fast-math"] += sum(report.fast_math_counts.values())
        _PROCESS.counts.update(f"{v.kind.value}: {v.by.value if v.is_proved and v.by else 'not proved'}" for v in report.verdicts)
    return report


def _validate_distinct_kernels(
    graphs_by_pass: Mapping[str, UOp], graphs_by_step: Mapping[str, UOp], log: LoweringLog
) -> tuple[KernelValidation, ...]:
    """Return the validation of each kernel. Kernels are equal if their bodies after every pass are."""
    before, after = graphs_by_pass["join"].src, graphs_by_pass["linearize"].src
    launches = {name: (graphs_by_step if name in STEPS else graphs_by_pass)[name] for name in PASSES}
    bodies = [{name: launch.src[k].body for name, launch in launches.items()} for k in range(len(before))]
    split_calls = frozenset(graphs_by_pass.get("rangeify", graphs_by_pass["join"]).src)
    positions: dict[tuple[UOp, ...], list[int]] = {}
    for k, call in enumerate(before):
        positions.setdefault((*bodies[k].values(), *(() if call in split_calls else (call,))), []).append(k)
    moves = group_rewriter_transforms_by_result(log)
    split = list(_decide_split_and_measure_seconds(graphs_by_pass, graphs_by_pass["join"], log))
    start = _PROCESS.cpu_seconds()
    callified = _decide_callify(graphs_by_pass, log)
    seconds_of_program = _PROCESS.cpu_seconds() - start
    kernels: list[KernelValidation] = []
    for key, (k, *_) in positions.items():
        start = _PROCESS.cpu_seconds()
        verdicts = _PROCESS.verdict_cache.get(key)
        if verdicts is None:
            proofs = validate_kernel(before[k].body, after[k].body, _PROCESS.worker)
            is_fused = before[k] not in split_calls
            verdicts = (*proofs, *decide_value_preservation_or_leave_to_interpreter(bodies[k], moves, is_fused))
            _memoize_verdicts_and_evict_oldest(key, verdicts)
        seconds = _PROCESS.cpu_seconds() - start
        if split:
            of_calls = [split[j] for j in positions[key]]
            verdicts = _with_verdict_of_split(verdicts, [v for v, _ in of_calls])
            seconds += sum(s for _, s in of_calls)
        if callified is not None:
            verdicts = _insert_before_values(verdicts, callified)
        if not kernels:
            seconds += seconds_of_program
        kernels.append(KernelValidation(_kernel_label(before[k].body, k), before[k].body, after[k].body, verdicts, seconds))
    return tuple(kernels)


def _decide_callify(graphs_by_pass: Mapping[str, UOp], log: LoweringLog) -> ValidationVerdict | None:
    """Decide that the callified program has the values of its tensor graph; None for a program that entered without one."""
    if log.callified is None or "callify" not in graphs_by_pass:
        return None
    if log.callified.call is not graphs_by_pass["callify"] and not log.applications_by_assuming_rule:
        return leave_values_to_interpreter("callify", "the program changed after it was callified")
    return _decide_callified_memoized(log.callified)


@functools.lru_cache(KEPT)
def _decide_callified_memoized(program: CallifiedGraph) -> ValidationVerdict:
    return decide_values_of_callified_program(program, decide_equal_terms)


def _decide_split_and_measure_seconds(
    graphs_by_pass: Mapping[str, UOp], launch: UOp, log: LoweringLog
) -> Iterator[tuple[ValidationVerdict, float]]:
    """Yield for each kernel whether it stores values of the callified program, and the seconds that this took."""
    if "callify" not in graphs_by_pass:
        return
    start = _PROCESS.cpu_seconds()
    for verdict in decide_values_of_split_kernels(graphs_by_pass["callify"], launch, log, _decide_equal_terms_memoized):
        yield verdict, _PROCESS.cpu_seconds() - start
        start = _PROCESS.cpu_seconds()


@functools.lru_cache(KEPT)
def _decide_equal_terms_memoized(definition: UOp, body: UOp) -> ValidationVerdict:
    return decide_equal_terms(definition, body, with_laws=False)


def _with_verdict_of_split(
    verdicts: tuple[ValidationVerdict, ...], of_calls: Sequence[ValidationVerdict]
) -> tuple[ValidationVerdict, ...]:
    """Return the verdicts of a kernel with that of `rangeify`, which all Calls of the kernel share. It covers `join`, too."""
    verdict = next((v for v in of_calls if v.by is DecisionMethod.INTERPRETER), of_calls[0])
    if verdict.by is not DecisionMethod.INTERPRETER:
        verdicts = tuple(replace(verdict, place="join") if (v.kind, v.place, v.by) == _FUSED else v for v in verdicts)
    return _insert_before_values(verdicts, verdict)


def _insert_before_values(verdicts: tuple[ValidationVerdict, ...], verdict: ValidationVerdict) -> tuple[ValidationVerdict, ...]:
    """Return the verdicts of a kernel with one on values of an earlier pass."""
    k = next((k for k, v in enumerate(verdicts) if v.kind is ObligationKind.VALUE), len(verdicts))
    return (*verdicts[:k], verdict, *verdicts[k:])


#: The verdict of a kernel that `join` fused of others.
_FUSED = (ObligationKind.VALUE, "join", DecisionMethod.INTERPRETER)


def _memoize_verdicts_and_evict_oldest(kernel_bodies_by_pass: tuple[UOp, ...], verdicts: tuple[ValidationVerdict, ...]) -> None:
    """Memoize the verdicts of one kernel, and evict the oldest beyond KEPT."""
    _PROCESS.verdict_cache[kernel_bodies_by_pass] = verdicts
    while len(_PROCESS.verdict_cache) > KEPT:
        _PROCESS.verdict_cache.popitem(last=False)


def _kernel_label(body: UOp, k: int) -> str:
    return f"{k} ({escape_to_one_line(body.arg.name)})" if body.arg is not None else str(k)
