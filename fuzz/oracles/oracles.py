"""Oracles: how a program can be found to be wrong. Each is a value with a name and what it needs.

Takes: a `Context`, one sample and the backends of a campaign. Gives: a `Fault`, or None where all is well; raises Refused where the
subject may and does say that it cannot take the program. Oracles are asked in order, and the first fault ends a case: what comes
later would most often say the same again.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.model import Case
from uops.backends.worker.guard import Side
from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.pipeline import Pass
from uops.compiler.prove.solver.solver import NoSolver
from uops.compiler.rewrite.lowering_cache import Memory, remembering
from uops.compiler.rewrite.rule import Step
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.runtime.program import Compiled
from uops.compiler.validate.model import Invalid
from uops.fuzz.bisect import coverage
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.bisect.wrong_rule import taken, wrong_step
from uops.fuzz.generate.bestiary import disagreement
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import Case as Drawn
from uops.fuzz.generate.kinds import KINDS, Sample, number
from uops.fuzz.generate.schedules import Sequencer, illegal_faults, kinds_of, lowered, passes
from uops.fuzz.oracles import calls, launches
from uops.fuzz.oracles.leaks import leak
from uops.fuzz.oracles.native import run_program
from uops.fuzz.oracles.relations import related, without
from uops.fuzz.oracles.stages import Fault, Judge, Outputs, differs, outside
from uops.fuzz.oracles.subject import PLAIN, Kept, Refused, Subject, judged, judged_form, raised
from uops.spec.errors import CompileError, Unsupported, UopsError
from uops.spec.extras import how_to_install
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record
from uops.spec.result import Result
from uops.spec.suggest import suggest_names
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: What an oracle may need: a target of our compiler, a second backend.
COMPILER, AGAINST = "a target of the compiler", "a second backend"


@dataclass
class Context:
    """One sample under judgement. `seed` is all that an oracle's own choices depend on. With `heard`, `steps` are those of the
    subject's own compilation, for the oracle that looks at them. `memory` is of the program's nodes, which most oracles ask the
    same about."""

    sample: Sample
    subject: Subject
    against: Subject | None = None
    seed: int = 0
    heard: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    @functools.cached_property
    def expected(self) -> Expectation:
        """What the interpreter allows."""
        return Expectation(Case("", dt.void, "", self.sample.graph, dict(self.sample.inputs), ()))

    @functools.cached_property
    def program(self) -> Callable[[Mapping[str, Any]], Result]:
        """What the subject makes of the sample, buffers against the page after them or the page before."""
        side = Side.END if self.seed % 2 else Side.START
        if not self.heard:
            return self.subject.compiled(self.sample.graph, PLAIN, side)
        with taken() as self.steps:
            return self.subject.compiled(self.sample.graph, PLAIN, side)

    @functools.cached_property
    def ran(self) -> tuple[Outputs, Fault | None]:
        """The subject's own run."""
        return judged(self.subject, self.expected, lambda: self.program(self.sample.inputs))

    def target(self) -> Kept:
        """The subject's target; for oracles that need one."""
        assert self.subject.target is not None
        return self.subject.target

    def judged(self, subject: Subject, config: Config = PLAIN, side: Side = Side.END) -> tuple[Outputs, Fault | None]:
        """A run of the sample on some backend, and what is wrong with it."""
        graph, inputs = self.sample.graph, self.sample.inputs
        return judged(subject, self.expected, lambda: subject.run(graph, inputs, config, side))

    def draw(self, name: str) -> SeededDraw:
        return SeededDraw(number(self.seed, name))


class Made(NamedTuple):
    """A program, and the passes and settings that it was compiled with."""

    sample: Sample
    passes: Sequence[Pass] | None = None
    config: Config = PLAIN


@record(frozen=True, slots=True)
class Oracle:
    """`every`: it judges one case in so many, drawn by the seed; `made`: the program that it has compiled, and how, for bisection.
    `settle` gives a sample that holds what the oracle draws, and the oracle that judges that: what reduction starts from."""

    name: str
    what: str
    check: Callable[[Context], Fault | None]
    every: int = 1
    needs: frozenset[str] = frozenset()
    dialects: frozenset[Dialect] = frozenset({Dialect.TENSOR})
    made: Callable[[Context], Made] = lambda c: Made(c.sample)
    settle: Callable[[Context], tuple[Sample, str]] | None = None


# -------------------------------------------------------------------------------------------------------------- the checks


class NotAsked(UopsError):
    """An oracle cannot judge this case, which does not count as judged by it."""


def _reference(c: Context) -> Fault | None:
    """The interpreter evaluates the program without a complaint; bounds of every node hold (Unsound, if not)."""
    try:
        _ = c.expected.strict
    except Exception as e:
        return raised(e)
    return None


def _well_formed(c: Context) -> Fault | None:
    try:
        verify(c.sample.graph, KINDS[c.sample.kind].dialect)
    except UopsError as e:
        return raised(e)
    return None


def _allowed(c: Context) -> Fault | None:
    return c.ran[1]


def _unoptimised(c: Context) -> Fault | None:
    found, fault = c.judged(c.subject, UNOPTIMISED)
    return fault or _same(c, found, c.ran[0])


def _stages(c: Context) -> Fault | None:
    order = toposort(c.sample.graph)
    if sum(math.prod(n for n in u.shape if isinstance(n, int)) for u in order if u.dtype is not dt.void) > STAGED:
        raise NotAsked("too large to interpret every stage")
    found = bisect(c.sample.graph, c.sample.inputs, c.target(), pipeline.PIPELINE, schedules=1)
    c.counts.update(coverage.lowering(c.sample.graph, c.target()))
    return found and found.fault


def _second(c: Context) -> Fault | None:
    assert c.against is not None
    found, fault = c.judged(c.against)
    return fault or _same(c, found, c.ran[0])


def _again(c: Context) -> Fault | None:
    """The same program, compiled and run once more, gives the same bits."""
    if c.subject.target is not None:
        c.subject.target.forget()
    with remembering(Memory()):
        found, fault = c.judged(c.subject, side=Side.START if c.seed % 2 else Side.END)
    return fault or next((f for k in c.expected.strict if (f := differs(k, c.ran[0][k], found[k]))), None)


def _called(c: Context) -> Fault | None:
    """The program as users call it, through all caches and natively where the target has that."""
    return calls.faults(c.sample.graph, c.sample.inputs, c.target(), c.ran[0], c.draw("called"), c.target().own)


def _steps(c: Context) -> Fault | None:
    """Every rewrite step keeps the value, whatever its leaves are."""
    _ = c.ran
    tried: Counter[str] = Counter()
    some: dict[tuple[str, UOp, UOp], Step] = {}
    for step in c.steps:
        key = step.rule, step.before, step.after
        if key not in some and tried[step.rule] < _PER_RULE:
            tried[step.rule] += 1
            some[key] = step
    wrong = wrong_step(some.values(), c.seed)
    return None if wrong is None else Fault("step", f"rule {wrong.rule} changes a value: {wrong.before!r} to {wrong.after!r}")


def _validated(c: Context) -> Fault | None:
    """No obligation of any kernel, nor of the memory plan, is refuted; what is not decided is counted."""
    try:
        pipeline.lower(c.sample.graph, c.target(), upto="plan", config=Config(reuse=False, validate=True))
    except Invalid as e:
        refuted = next((v for v in e.verdicts if v.counterexample is not None), None)
        c.counts["validated:not decided"] += refuted is None
        return None if refuted is None else Fault("refuted", f"{e.kernel}: {refuted}")
    except NoSolver:
        raise NotAsked(f"no solver is installed: {how_to_install('prove')}") from None
    return None


def _leaks(c: Context) -> Fault | None:
    """A compiled program that is called again and again keeps nothing."""
    program = Compiled(c.sample.graph, c.target(), PLAIN)
    return leak(lambda: program(c.sample.inputs))


def _legalized(c: Context) -> Fault | None:
    try:
        found = disagreement(Drawn(c.sample.graph, dict(c.sample.inputs)), schedule=c.seed)
    except Exception as e:
        return raised(e)
    return None if found is None else Fault("value", found)


def _scheduled(c: Context) -> Fault | None:
    """The program with the sample's schedule, or a drawn one."""
    return _with_schedules(c, _sequence(c))


def _searched(c: Context) -> Fault | None:
    """The program with schedules that a search may choose."""
    return _with_schedules(c, _sequence(c, "beam"))


def _with_schedules(c: Context, sequence: Sequencer) -> Fault | None:
    judge = Judge(c.sample.graph, c.sample.inputs, expected=c.expected)
    side = Side.END if c.seed % 2 else Side.START
    program = lowered(c.sample.graph, c.target(), passes(sequence))
    found = judge.read(run_program(program, c.target(), judge.given, side=side))
    c.counts.update(f"optop:{kind}" for kind in kinds_of(sequence.done))
    return next((f for k in judge.sets if (f := outside(c.expected, k, found))), None)


def _sequence(c: Context, source: str = "draw") -> Sequencer:
    return Sequencer(f"{source} {number(c.seed, 'scheduled')}" if c.sample.opts is None else c.sample.opts)


def _settled_schedule(c: Context, source: str = "draw") -> tuple[Sample, str]:
    sequence = _sequence(c, source)
    lowered(c.sample.graph, c.target(), passes(sequence), upto="optimize")
    return c.sample._replace(opts=sequence.done), "scheduled"


def _illegal(c: Context) -> Fault | None:
    return illegal_faults(c.sample.graph, c.target(), c.draw("illegal"))


def _twice(c: Context) -> Fault | None:
    """Lowering is a function: the same graph gives the same instructions."""
    first, second = (_planned(c) for _ in range(2))
    return None if first is second else Fault("differs", "a second lowering gives other instructions")


def _planned(c: Context) -> UOp:
    """A lowering that remembers nothing."""
    with remembering(Memory()):
        return lowered(c.sample.graph, c.target(), pipeline.PIPELINE, "plan")


def _related(c: Context) -> Fault | None:
    found = related(c.sample, c.draw("related"))
    if found is None:
        raise NotAsked("no relation fits")
    relation, (sample, back) = found
    c.counts[f"relation:{relation.name}"] += 1
    return _through(c, sample, back)


def _through(c: Context, sample: Sample, back: Callable[[Outputs], Outputs]) -> Fault | None:
    """Run another sample, and judge what comes back by the first one's sets."""
    outputs, fault = judged_form(c.subject, sample.graph, sample.inputs, lambda: c.subject.run(sample.graph, sample.inputs))
    if fault is not None:
        return fault
    returned = back(outputs)
    return next((f for k in c.expected.strict if (f := outside(c.expected, k, returned))), None)


def _settled_relation(c: Context) -> tuple[Sample, str]:
    found = related(c.sample, c.draw("related"))
    return (c.sample, "related") if found is None else (found[1].sample, "allowed")


def _rule_off(c: Context) -> Fault | None:
    """One of the rules that were applied to it: without another one nothing changes."""
    applied = {s.rule for move in coverage.recorded(c.sample.graph, c.target()) for s in move.steps}
    rules = [r for r in INDEXING if r.name in applied]
    if not rules:
        raise NotAsked("no rule is applied")
    rule = c.draw("rule-off").choice(rules)
    c.counts[f"rule-off:{rule.name}"] += 1
    with without(rule), remembering(Memory()):
        return c.judged(c.subject)[1]


def _orders(c: Context) -> Fault | None:
    try:
        return launches.orders(c.sample.graph, c.sample.inputs, c.seed % 1000)
    except Exception as e:
        return raised(e)


def _kernels(c: Context) -> Fault | None:
    side = Side.END if c.seed % 2 else Side.START
    lacking = {u.op for u in toposort(c.sample.graph)} & {Op.BARRIER} - c.target().ops
    if lacking:
        raise Refused("the target has no Barrier")
    try:
        return launches.machine_code(c.sample.graph, c.sample.inputs, c.target(), side)
    except Exception as e:
        if isinstance(e, CompileError) and "R60" in str(e):  # lanes that meet inside of a loop are no launch
            raise Refused(str(e)) from e
        return raised(e)


#: Ops on floats of which two schedules, or two backends, may choose different answers.
_SEVERAL = frozenset({Op.REDUCE, Op.WMMA, Op.MAX, Op.EXP2, Op.LOG2, Op.SIN, Op.POW, Op.SQRT, Op.RECIP, Op.DIV, Op.MULACC})


def _same(c: Context, found: Outputs, other: Outputs) -> Fault | None:
    """Two runs of a program whose floats have one answer have the same bits; an answer that is *any* is none."""
    if any(u.dtype.is_float and u.op in _SEVERAL for u in toposort(c.sample.graph)):
        return None
    exact = [k for k, s in c.expected.strict.items() if s.exact and k in found and k in other]
    return next((f for k in exact if (f := differs(k, other[k], found[k]))), None)


# --------------------------------------------------------------------------------------------------------------- the table

#: Elements of all values of a program of which every stage is interpreted, some of them lane by lane.
STAGED = 50_000
#: Different steps of one rule that are tried, of one lowering.
_PER_RULE = 4
UNOPTIMISED = Config(reuse=False, optimize=False)
#: Who looks at how the subject's own run was compiled.
STEPS = "steps"

# fmt: off
ORACLES: dict[str, Oracle] = {o.name: o for o in (
    Oracle("form",        "the verifier accepts what the generator made", _well_formed, 32,
           dialects=frozenset({Dialect.TENSOR, Dialect.BESTIARY, Dialect.SCHEDULED})),
    Oracle("reference",   "the interpreter and its intervals accept the program", _reference, 1),
    Oracle("allowed",     "every element is in the interpreter's allowed set", _allowed),
    Oracle("unoptimised", "without schedules the same is given", _unoptimised, 8, frozenset({COMPILER}),
           made=lambda c: Made(c.sample, None, UNOPTIMISED)),
    Oracle("scheduled",   "with legal OptOps, drawn from their table, the same is given", _scheduled, 4, frozenset({COMPILER}),
           made=lambda c: Made(c.sample, passes(_sequence(c))), settle=_settled_schedule),
    Oracle("searched",    "with schedules that a search may choose the same is given", _searched, 8, frozenset({COMPILER}),
           made=lambda c: Made(c.sample, passes(_sequence(c, "beam"))), settle=lambda c: _settled_schedule(c, "beam")),
    Oracle("called",      "called from Python, with arguments of any form, it does what it does otherwise", _called, 8,
           frozenset({COMPILER})),
    Oracle("illegal",     "illegal OptOps are rejected with a reason", _illegal, 8, frozenset({COMPILER})),
    Oracle("related",     "a related program gives the same", _related, 4, settle=_settled_relation),
    Oracle("rule-off",    "without one of the rewrite rules the same is given", _rule_off, 16, frozenset({COMPILER})),
    Oracle("again",       "a second compilation gives the same bits", _again, 32),
    Oracle("twice",       "a second lowering gives the same instructions", _twice, 32, frozenset({COMPILER})),
    Oracle(STEPS,         "every rewrite step keeps the value, whatever its leaves are", _steps, 4, frozenset({COMPILER})),
    Oracle("stages",      "every stage gives what the one before it gives", _stages, 32, frozenset({COMPILER})),
    Oracle("validated",   "what the validator asks of kernels and of the memory plan is not refuted", _validated, 32,
           frozenset({COMPILER})),
    Oracle("leaks",       "a program that is called again keeps no memory", _leaks, 64, frozenset({COMPILER})),
    Oracle("second",      "a second backend gives the same", _second, 1, frozenset({AGAINST})),
    Oracle("orders",      "a kernel gives the same in every order, and in both machines of the interpreter", _orders,
           dialects=frozenset({Dialect.SCHEDULED})),
    Oracle("kernels",     "machine code of a scheduled kernel gives what the interpreter gives", _kernels, 1,
           frozenset({COMPILER}), frozenset({Dialect.SCHEDULED})),
    Oracle("legalized",   "a graph of the second document means what its legal form means", _legalized,
           dialects=frozenset({Dialect.BESTIARY})),
)}
# fmt: on
#: Who objects where no oracle was asked: a program that cannot be made, a process that ends.
GENERATOR, PROCESS = "generator", "process"
#: Those that look at programs and at the interpreter alone: whatever they say, nothing of another subject was judged.
OF_PROGRAMS = frozenset({"form", "reference", "orders", "legalized"})
#: Of these, those that compare what the interpreter gives: where it is the subject, they judge it.
OF_INTERPRETER = frozenset({"orders", "legalized"})
#: What a campaign asks where nothing is said.
DEFAULT = tuple(ORACLES)


#: The interpreter, as a backend.
INTERP = "interp"


class UnknownOracle(UopsError, LookupError):
    """No oracle has the name."""


def named(names: Sequence[str]) -> tuple[Oracle, ...]:
    """The oracles of these names, in the table's order. Raises UnknownOracle."""
    missing = [n for n in names if n not in ORACLES]
    if missing:
        raise UnknownOracle(f"no oracle is called {missing[0]!r}; known: {', '.join(ORACLES)}{suggest_names(missing[0], ORACLES)}")
    return tuple(o for o in ORACLES.values() if o.name in names)


def judges(oracle: str, backend: str) -> bool:
    """Return True if the oracle judges what the backend called `backend` does."""
    return oracle not in OF_PROGRAMS or (backend == INTERP and oracle in OF_INTERPRETER)


def chosen(names: Sequence[str], subject: Subject, against: Subject | None) -> tuple[Oracle, ...]:
    """Of the oracles of these names those that have what they need. Raises UnknownOracle."""
    there = _there(subject, against)
    return tuple(o for o in named(names) if o.needs <= there)


def _there(subject: Subject, against: Subject | None) -> frozenset[str]:
    found = {COMPILER} if subject.target is not None else set()
    return frozenset(found | ({AGAINST} if against is not None else set()))


def due(oracle: Oracle, seed: int) -> bool:
    """Whether the oracle judges the case whose oracles' choices depend on this seed."""
    return oracle.every == 1 or number(seed, oracle.name, "due") % oracle.every == 0


def first_fault(c: Context, oracles: Sequence[Oracle], told: Callable[[str], Any] = lambda name: None) -> tuple[str, Fault] | None:
    """The first oracle that objects, and why; `told` hears of each before it is asked. Counts who has judged. Raises Refused."""
    dialect = KINDS[c.sample.kind].dialect
    for o in oracles:
        if dialect in o.dialects:
            told(o.name)
            fault = _asked(o, c)
            if fault is not None:
                return o.name, fault
    return None


def _asked(o: Oracle, c: Context) -> Fault | None:
    """What an oracle finds, whatever it raises. Raises Refused."""
    try:
        fault = o.check(c)
    except NotAsked as e:
        c.counts[f"not asked:{o.name}, {e}"] += 1
        return None
    except Refused:
        raise
    except (CompileError, Unsupported) as e:  # of one that may not refuse, a fault
        if c.subject.may_refuse(c.sample.graph):
            raise Refused(str(e)) from e
        fault = Fault("refused", str(e))
    except Exception as e:
        fault = raised(e)
    c.counts[f"oracle:{o.name}"] += 1
    return fault
