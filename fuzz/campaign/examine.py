"""Examination of one case of a campaign: generate, judge and count; and of a failing one: judge again and bisect.

Takes: a `Setup`, which holds all that decides a campaign, and the number of a case. Gives: a `CaseOutcome`, a pure function of
the two except for time limits and memory. A case that is lost with its process can thus be examined again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from uops.backends.conformance.stage_judge import Fault
from uops.compiler import pipeline
from uops.compiler.rewrite.lowering_cache import use_lowering_cache
from uops.compiler.target import Target
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.generate import kinds
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.oracles import oracles
from uops.fuzz.oracles.launches import Entry, find_wrong_pass_or_backend_of_launch
from uops.fuzz.oracles.oracles import Oracle, OracleContext
from uops.fuzz.oracles.subject import Subject, SubjectRefused, describe_exception_as_fault
from uops.fuzz.reach.recorder import collect_reached_functions
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect

Json = dict[str, Any]
#: Called with the name of each oracle before it is asked.
OnOracle = Callable[[str], Any]
#: Upper ends of the classes in which widths of allowed sets are counted, in ulp.
WIDTHS = (0, 1, 2, 4, 8, 16, 64, 1024)


@dataclass(frozen=True, slots=True)
class Setup:
    """The decisions of a campaign: what cases it draws and who judges them. `options` go to the backend's factory; None
    selects its fastest settings. With `records_reach`, the functions that a judged case ran are counted (`uops.fuzz.reach`).
    """

    backend: str
    seed: int = 0
    kinds: tuple[str, ...] = kinds.DEFAULT
    oracles: tuple[str, ...] = oracles.DEFAULT
    against: str | None = None
    options: Json | None = None
    path: tuple[str, ...] = ()
    records_reach: bool = False

    def to_json(self) -> Json:
        """Return a JSON object without `path`, which only says where the process finds a backend `module:attribute`.

        `records_reach` is in it if it is true.
        """
        document = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        del document["path"]
        if not self.records_reach:
            del document["records_reach"]
        return document

    @classmethod
    def from_json(cls, document: Json) -> Setup:
        """Return the Setup that `to_json` wrote."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
        return cls(**values)


class CaseOutcome(NamedTuple):
    """The outcome of case `k`: the oracle that objected and its fault, or None twice. `counts` are the coverage that the
    case adds.
    """

    k: int
    oracle: str | None
    fault: Fault | None
    counts: Counter[str]


class FaultLocation(NamedTuple):
    """The stage, pass, step, rule and kernel that bisection found to be wrong."""

    stage: str
    pass_: str
    step: str | None
    rule: str | None
    kernel: str | None


#: Ops, as `list_ops_and_dtypes` spells them, that do not characterize a program.
_LEAVES = frozenset({"buffer", "const", "param"})
#: The location of machine code that ends its process.
MACHINE_CODE = FaultLocation("backend", "backend", None, None, None)


class TriagedFinding(NamedTuple):
    """A fault and its location. `location` is None if the subject is no target of our compiler, or if bisection finds
    nothing. `op_dtypes` lists the program's ops (`list_ops_and_dtypes`).
    """

    oracle: str
    fault: Fault
    location: FaultLocation | None
    op_dtypes: tuple[str, ...]

    @property
    def cause_key(self) -> tuple[str, ...]:
        """The key that identifies findings with one cause.

        It holds the oracle, the first wrong pass and its rule or step; without a location, the kind of fault and the
        place that raised it. If the last of these is unknown, it also holds the program's ops, and their dtypes if the
        pass is unknown, too.
        """
        if self.location is None:
            unplaced = self.oracle, self.fault.kind, fault_origin(self.fault)
            return unplaced if unplaced[2] else (*unplaced, *self.op_dtypes)
        placed = self.oracle, self.location.pass_, self.location.rule or self.location.step or ""
        return placed if placed[2] else (*placed, *sorted({word.partition(":")[0] for word in self.op_dtypes} - _LEAVES))

    @property
    def cause_key_without_ops(self) -> tuple[str, ...]:
        """The first part of the key. Its last word is "" for findings whose programs must be reduced before they can be
        told apart.
        """
        return self.cause_key[:3]

    def has_same_oracle_and_pass_or_fault(self, other: TriagedFinding) -> bool:
        """Return True if a smaller program fails alike: at the same oracle, with the same first wrong pass or the same
        kind of fault. The end of a process resembles no other fault.
        """
        if (self.fault.kind == "crash") != (other.fault.kind == "crash"):
            return False
        if self.location is not None or other.location is not None:
            return self.cause_key[:2] == other.cause_key[:2]
        return self.cause_key_without_ops == other.cause_key_without_ops

    def to_json(self) -> Json:
        """Return a JSON object."""
        location = None if self.location is None else self.location._asdict()
        return {"oracle": self.oracle, "fault": self.fault._asdict(), "place": location, "made_of": list(self.op_dtypes)}

    @classmethod
    def from_json(cls, document: Json) -> TriagedFinding:
        """Return the finding that `to_json` wrote."""
        location = document["place"] and FaultLocation(**document["place"])
        return cls(document["oracle"], Fault(**document["fault"]), location, tuple(document["made_of"]))


def _locate_wrong_pass_or_backend_of_launch(sample: ProgramSample, entry: Entry, target: Target) -> FaultLocation | None:
    """Locate the first wrong pass of a launch, or return None."""
    try:
        stage_and_pass = find_wrong_pass_or_backend_of_launch(sample.graph, sample.inputs, entry, target)
    except UopsError:
        return None
    return None if stage_and_pass is None else FaultLocation(*stage_and_pass, None, None, None)


def fault_origin(fault: Fault) -> str:
    """Return the place that raised an error, which does not differ from case to case; "" for wrong values."""
    origin = fault.message.rpartition("[")[2].rstrip("]") if fault.message.endswith("]") else ""
    return "" if fault.kind == "value" else origin


class CaseRunner:
    """The backends and oracles of a Setup, in this process."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        kinds.look_up_kinds(setup.kinds)
        self.subject = Subject(setup.backend, setup.options)
        self.against = Subject(setup.against) if setup.against else None
        #: The cells that cases are drawn from.
        self.declared = self.subject.declared.intersect(self.against.declared) if self.against else self.subject.declared
        self.oracles = oracles.applicable_oracles(setup.oracles, self.subject, self.against)
        #: Whether the subject compiles several cases at once faster.
        self.compiles_together = self.subject.target is not None and self.subject.target.compiles_together

    def draw_sample(self, k: int) -> ProgramSample:
        """Return case `k`. Raises what generating it raises."""
        return kinds.sample(self.setup.seed, k, self.setup.kinds, self.declared)

    def case_seed(self, k: int) -> int:
        """Return the seed of the oracles' own choices for case `k`."""
        return kinds.stable_hash(self.setup.seed, k)

    def due_oracles(self, seed: int, kind: str) -> list[Oracle]:
        """Return the oracles that judge the case of this kind with this seed."""
        return [o for o in self.oracles if oracles.is_due(o, seed, kind)]

    def generate_and_judge_case(self, case_number: int, on_oracle: OnOracle = lambda name: None) -> CaseOutcome:
        """Generate a case and judge it. `on_oracle` is called with the name of each oracle before it is asked."""
        on_oracle(oracles.GENERATOR)
        prepared = self._generate_context_or_failure_outcome(case_number)
        if isinstance(prepared, CaseOutcome):
            return prepared
        return self._run_due_oracles_until_objection_and_count(case_number, prepared, on_oracle)

    def run_cases_compiled_together(
        self, case_numbers: Sequence[int], on_case: Callable[[int], Any] = lambda k: None
    ) -> Iterator[CaseOutcome]:
        """Yield the outcomes of several cases, whose machine code is compiled together. `on_case` is called with each
        case before work on it.
        """
        cases = []
        for k in case_numbers:
            on_case(k)
            cases.append((k, prepared := self._generate_context_or_failure_outcome(k)))
            if not self.compiles_together or isinstance(prepared, CaseOutcome):
                continue
            if KINDS[prepared.sample.kind].dialect is Dialect.TENSOR:
                # What it raises, the subject's own run raises again.
                with suppress(Exception), use_lowering_cache(prepared.memory), collect_reached_functions(prepared.reached):
                    _ = prepared.compiled_program
        for k, prepared in cases:
            on_case(k)
            yield prepared if isinstance(prepared, CaseOutcome) else self._run_due_oracles_until_objection_and_count(k, prepared)

    def _generate_context_or_failure_outcome(self, case_number: int) -> OracleContext | CaseOutcome:
        """Generate a case; return its context, or the outcome if the generator fails."""
        try:
            sample = self.draw_sample(case_number)
        except Exception as e:
            return CaseOutcome(case_number, oracles.GENERATOR, describe_exception_as_fault(e), Counter(cases=1))
        context = self._build_context_recording_steps_if_needed(sample, self.case_seed(case_number))
        context.counts.update(cases=1, **{f"kind:{sample.kind}": 1})
        return context

    def _run_due_oracles_until_objection_and_count(
        self, case_number: int, context: OracleContext, on_oracle: OnOracle = lambda name: None
    ) -> CaseOutcome:
        with use_lowering_cache(context.memory):
            objection, accepted = None, True
            try:
                with collect_reached_functions(context.reached):
                    objection = oracles.find_first_objection(
                        context, self.due_oracles(context.seed, context.sample.kind), on_oracle
                    )
            except SubjectRefused as e:
                context.counts[f"refused:{_refusal_reason(e)}"] += 1
                accepted = False
            judges = [o for o in self.oracles if oracles.judges_backend(o.name, self.setup.backend)]
            if was_judged := any(context.counts[f"oracle:{o.name}"] for o in judges):
                context.counts["judged"] += 1
                context.counts.update(f"reached:{name}" for name in context.reached)
            if accepted or was_judged:
                _count_row_dtypes_and_allowed_set_widths(context)
        oracle, fault = objection or (None, None)
        return CaseOutcome(case_number, oracle, fault, context.counts)

    def judge_sample(self, sample: ProgramSample, seed: int, oracle: str) -> Fault | None:
        """Return the fault that one oracle finds in a sample, or None. A refusal is no fault.

        For PROCESS, all oracles that are due are asked, and only an end of this process would be the fault.
        """
        context = self._build_context_recording_steps_if_needed(sample, seed, oracle)
        try:
            objection = oracles.find_first_objection(context, self._select_judges(sample.kind, seed, oracle))
        except SubjectRefused:
            return None
        return None if objection is None or oracle == oracles.PROCESS else objection[1]

    def _select_judges(self, kind: str, seed: int, oracle: str) -> Sequence[Oracle]:
        """Select the oracles of a finding. The campaign need not have chosen them: `freeze_oracle_choices` may name another."""
        if oracle == oracles.PROCESS:
            return self.due_oracles(seed, kind)
        return oracles.applicable_oracles((oracle,), self.subject, self.against) if oracle in oracles.ORACLES else ()

    def freeze_oracle_choices(self, sample: ProgramSample, seed: int, oracle: str) -> tuple[ProgramSample, str]:
        """Return a sample that holds what the oracle draws for this one, and the name of the oracle that judges it."""
        freeze = oracles.ORACLES[oracle].freeze_choices if oracle in oracles.ORACLES else None
        return (sample, oracle) if freeze is None else freeze(self._build_context_recording_steps_if_needed(sample, seed))

    def bisect_sample(self, sample: ProgramSample, seed: int, oracle: str) -> FaultLocation | None:
        """Locate what an oracle objects to; return None if that is impossible or nothing is wrong."""
        target: Target | None = self.subject.target
        dialect = KINDS[sample.kind].dialect
        if target is None or oracle not in oracles.ORACLES or dialect is Dialect.BESTIARY:
            return None
        if dialect is not Dialect.TENSOR:
            return _locate_wrong_pass_or_backend_of_launch(sample, Entry(dialect, seed), target)
        compilation = oracles.ORACLES[oracle].compilation(self._build_context_recording_steps_if_needed(sample, seed))
        try:
            passes, target = compilation.passes or pipeline.PIPELINE, compilation.target or target
            finding = bisect(compilation.sample.graph, compilation.sample.inputs, target, passes, config=compilation.config)
        except UopsError:  # the program itself traps or is refused
            return None
        return None if finding is None else FaultLocation(finding.stage, finding.pass_, finding.step, finding.rule, finding.kernel)

    def _build_context_recording_steps_if_needed(self, sample: ProgramSample, seed: int, oracle: str = "") -> OracleContext:
        """Build the context of a sample. It records rewrite steps if `oracle` needs them, or if an oracle that is due
        does.
        """
        records_steps = oracle == oracles.STEPS or any(o.name == oracles.STEPS for o in self.due_oracles(seed, sample.kind))
        return OracleContext(sample, self.subject, self.against, seed, records_steps)


def list_ops_and_dtypes(root: UOp) -> tuple[str, ...]:
    """List the ops of a program with their dtypes, as `op:dtype`."""
    return tuple(sorted({f"{u.op.name.lower()}:{u.dtype.short}" for u in toposort(root) if u.dtype is not dt.index}))


# ---------------------------------------------------------------------------------------------------------------- coverage


def _refusal_reason(e: SubjectRefused) -> str:
    """Return the reason of a refusal without particulars: the rule, but not the node."""
    return re.split(r" at %\d+ = |:|\n", str(e), maxsplit=1)[0][:60]


def _count_row_dtypes_and_allowed_set_widths(context: OracleContext) -> None:
    """Count the dtypes of each row, and the widths of the allowed sets."""
    context.counts.update({f"row:{ROWS[u.op].id}|{u.dtype.name}" for u in toposort(context.sample.graph) if u.op in ROWS})
    expected = context.__dict__.get("expectation")
    for allowed in () if expected is None else expected.__dict__.get("strict", {}).values():
        for name, n in allowed.kinds().items():
            if n:
                context.counts[f"set:{name}"] += n
        if allowed.dtype.is_float:
            context.counts.update(_count_set_widths(allowed.measure_width_in_ulps_or_points_less_one()))


def _count_set_widths(widths: Any) -> Counter[str]:
    at = np.searchsorted(WIDTHS, widths.reshape(-1))
    names = [*(f"width:{w}" for w in WIDTHS), "width:more"]
    return Counter({names[k]: int(n) for k, n in enumerate(np.bincount(at, minlength=len(names))) if n})
