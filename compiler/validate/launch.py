"""The validation of a program: every kernel against its body before it was scheduled, and the memory plan.

Takes: the graphs of a lowering by pass, those of the steps of select, and its log. Gives: a `Report`; `require` raises Invalid
for the first kernel, or the plan, that is not validated. Kernels that were validated before in this process are not done again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping

from uops.compiler.log import Log
from uops.compiler.passes.select.select import STEPS
from uops.compiler.prove.solver.solver import Worker, version
from uops.compiler.validate.decide import decide
from uops.compiler.validate.kernel import kernel
from uops.compiler.validate.model import Invalid, Verdict
from uops.compiler.validate.plan import callers, kept, plan
from uops.compiler.validate.values import moves_of, values
from uops.spec.ir.node import UOp
from uops.spec.ir.record import dataclass as record
from uops.spec.untrusted import quote_name

#: The passes, and steps of select, that change kernels one by one.
PASSES = ("join", "optimize", "expand", *STEPS, "linearize")
#: Seconds after which the solver is given up; steps limit its queries, long before, on any machine that works.
SECONDS = 30.0
#: Kernels whose verdicts are kept per process.
KEPT = 4096


@record(frozen=True, slots=True)
class Validated:
    """The verdicts of one kernel; `seconds` of processor time that they took, the solver's included, hardly any where they were
    known."""

    name: str
    before: UOp
    after: UOp
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def bad(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if not v.proved)


@record(frozen=True, slots=True)
class Report:
    """A program: its distinct kernels, and its plan. `assumed`: how often each rule of fast-math was applied before there were
    kernels; what is proved is proved of the program that these made."""

    kernels: tuple[Validated, ...]
    plan: tuple[Verdict, ...]
    assumed: Mapping[str, int]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return (*(v for k in self.kernels for v in k.verdicts), *self.plan)

    def require(self) -> None:
        """Raise Invalid unless everything is proved."""
        for k in self.kernels:
            if k.bad:
                raise Invalid(f"kernel {k.name}", k.bad)
        bad = tuple(v for v in self.plan if not v.proved)
        if bad:
            raise Invalid("the memory plan", bad)


class _Process:
    """The solver, what is known, and what was counted in this process; one program at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker = Worker(seconds=SECONDS)
        self.known: OrderedDict[tuple[UOp, ...], tuple[Verdict, ...]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def spent(self) -> float:
        """Seconds of processor time, of this thread and of the solver."""
        return time.thread_time() + self.worker.spent


_PROCESS = _Process()


def taken() -> dict[str, int]:
    """What this process validated since it was last asked: `kernels`, a program's distinct ones, and obligations as `kind: by`."""
    with _PROCESS.lock:
        found, _PROCESS.counts = dict(_PROCESS.counts), Counter()
    return found


def validate(passed: Mapping[str, UOp], steps: Mapping[str, UOp], log: Log) -> Report:
    """The verdicts of a program: its kernels from join to linearize, and the plan. Raises NoSolver without Z3."""
    version()
    before, after = passed["join"], passed["linearize"]
    moves = moves_of(log)
    launches = {name: (steps if name in STEPS else passed)[name] for name in PASSES}
    found: dict[tuple[UOp, ...], Validated] = {}
    with _PROCESS.lock:
        for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
            bodies = {name: launch.src[k].src[0] for name, launch in launches.items()}
            key = tuple(bodies.values())
            if key in found:
                continue
            start = _PROCESS.spent()
            verdicts = _PROCESS.known.get(key)
            if verdicts is None:
                proofs = kernel(old.src[0], new.src[0], _PROCESS.worker)
                verdicts = (*proofs, *values(bodies, moves))
                _remember(key, verdicts)
            found[key] = Validated(_name(old.src[0], k), old.src[0], new.src[0], verdicts, _PROCESS.spent() - start)
        launched = (*kept(before, after), *plan(after, passed["plan"], callers(passed["callify"])))
        planned = tuple(decide(c, _PROCESS.worker) for c in launched)
        report = Report(tuple(found.values()), planned, log.assumed)
        _PROCESS.counts["kernels"] += len(found)
        if report.assumed:
            _PROCESS.counts["steps of fast-math"] += sum(report.assumed.values())
        _PROCESS.counts.update(f"{v.kind.value}: {v.by.value if v.proved and v.by else 'not proved'}" for v in report.verdicts)
    return report


def _remember(key: tuple[UOp, ...], verdicts: tuple[Verdict, ...]) -> None:
    _PROCESS.known[key] = verdicts
    while len(_PROCESS.known) > KEPT:
        _PROCESS.known.popitem(last=False)


def _name(body: UOp, k: int) -> str:
    return f"{k} ({quote_name(body.arg.name)})" if body.arg is not None else str(k)
