"""Validation of a program: every kernel against its body before scheduling, and the memory plan.

Takes: the graphs of a lowering by pass, those of the steps of select, and its log. Gives: a `ValidationReport`, whose
`raise_unless_proved` raises Invalid for the first kernel, or the plan, that is not validated. Verdicts of kernels are memoized per
process.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping

from uops.compiler.log import LoweringLog
from uops.compiler.passes.select.select import STEPS
from uops.compiler.prove.solver.solver import SolverWorker, solver_version
from uops.compiler.runtime.queues import describe_launch_access, schedule_launches
from uops.compiler.validate.decide import decide_claim
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.launches.devices import generate_write_copy_and_order_claims
from uops.compiler.validate.launches.plan import (
    caller_buffer_numbers,
    generate_call_claims,
    generate_plan_claims,
    list_calls_of_written_kernels,
)
from uops.compiler.validate.model import Invalid, ValidationVerdict
from uops.compiler.validate.values import decide_value_preservation_or_leave_to_interpreter, group_rewriter_transforms_by_result
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
    moves = group_rewriter_transforms_by_result(log)
    launches = {name: (graphs_by_step if name in STEPS else graphs_by_pass)[name] for name in PASSES}
    kernels: dict[tuple[UOp, ...], KernelValidation] = {}
    split_calls = frozenset(graphs_by_pass.get("rangeify", before).src)
    with _PROCESS.lock:
        for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
            bodies = {name: launch.src[k].body for name, launch in launches.items()}
            is_fused = old not in split_calls
            key = (*bodies.values(), *((old,) if is_fused else ()))
            if key in kernels:
                continue
            start = _PROCESS.cpu_seconds()
            verdicts = _PROCESS.verdict_cache.get(key)
            if verdicts is None:
                proofs = validate_kernel(old.body, new.body, _PROCESS.worker)
                verdicts = (*proofs, *decide_value_preservation_or_leave_to_interpreter(bodies, moves, is_fused))
                _memoize_verdicts_and_evict_oldest(key, verdicts)
            kernels[key] = KernelValidation(
                _kernel_label(old.body, k), old.body, new.body, verdicts, _PROCESS.cpu_seconds() - start
            )
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
        report = ValidationReport(tuple(kernels.values()), plan_verdicts, log.applications_by_assuming_rule)
        _PROCESS.counts["kernels"] += len(kernels)
        if report.fast_math_counts:
            _PROCESS.counts["steps of fast-math"] += sum(report.fast_math_counts.values())
        _PROCESS.counts.update(f"{v.kind.value}: {v.by.value if v.is_proved and v.by else 'not proved'}" for v in report.verdicts)
    return report


def _memoize_verdicts_and_evict_oldest(kernel_bodies_by_pass: tuple[UOp, ...], verdicts: tuple[ValidationVerdict, ...]) -> None:
    """Memoize the verdicts of one kernel, and evict the oldest beyond KEPT."""
    _PROCESS.verdict_cache[kernel_bodies_by_pass] = verdicts
    while len(_PROCESS.verdict_cache) > KEPT:
        _PROCESS.verdict_cache.popitem(last=False)


def _kernel_label(body: UOp, k: int) -> str:
    return f"{k} ({escape_to_one_line(body.arg.name)})" if body.arg is not None else str(k)
