"""One case of a campaign: made, judged, counted; and a failing one: judged again, and bisected.

Takes: a `Setup`, which says all that decides a campaign, and the number of a case. Gives: `Examined`, a pure function of the two
(but for what a time limit or the machine's memory decides), so that a case lost with its process can be had again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from uops.compiler import pipeline
from uops.compiler.rewrite.lowering_cache import remembering
from uops.compiler.target import Target
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.generate import kinds
from uops.fuzz.generate.kinds import KINDS, Sample
from uops.fuzz.oracles import oracles
from uops.fuzz.oracles.launches import culprit
from uops.fuzz.oracles.oracles import Context, Oracle
from uops.fuzz.oracles.stages import Fault
from uops.fuzz.oracles.subject import Refused, Subject, raised
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect

Json = dict[str, Any]
Told = Callable[[str], Any]
#: Upper ends of the classes that widths of allowed sets are counted in, in ulp.
WIDTHS = (0, 1, 2, 4, 8, 16, 64, 1024)


@dataclass(frozen=True, slots=True)
class Setup:
    """What decides the cases of a campaign and who judges them; `options` go to the backend's factory, None for its fastest."""

    backend: str
    seed: int = 0
    kinds: tuple[str, ...] = kinds.DEFAULT
    oracles: tuple[str, ...] = oracles.DEFAULT
    against: str | None = None
    options: Json | None = None
    path: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """All but `path`, which says where the process finds a backend `module:attribute`, and decides nothing."""
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        del found["path"]
        return found

    @classmethod
    def of(cls, found: Json) -> Setup:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        return cls(**values)


class Examined(NamedTuple):
    """What became of case `k`: the oracle that objected and why, None if none did; `counts` are the coverage that it adds."""

    k: int
    oracle: str | None
    fault: Fault | None
    counts: Counter[str]


class Place(NamedTuple):
    """Where bisection puts the blame."""

    stage: str
    pass_: str
    step: str | None
    rule: str | None
    kernel: str | None


#: Ops, as `made_of` calls them, that say nothing of a program.
_LEAVES = frozenset({"buffer", "const", "param"})
#: Machine code that ends its process.
MACHINE_CODE = Place("backend", "backend", None, None, None)


class Triaged(NamedTuple):
    """A fault and where it comes from; `place` is None of a subject that is no target of our compiler, and where bisection sees
    nothing. `made_of`: see `made_of`."""

    oracle: str
    fault: Fault
    place: Place | None
    made_of: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Findings of one key are one: the oracle, the first bad pass and its rule or step, or, where bisection sees nothing, what
        was raised and where. Where the last of these is not known, also what the program is made of: its ops, and their dtypes
        where no pass is known either."""
        if self.place is None:
            found = self.oracle, self.fault.kind, signature(self.fault)
            return found if found[2] else (*found, *self.made_of)
        placed = self.oracle, self.place.pass_, self.place.rule or self.place.step or ""
        return placed if placed[2] else (*placed, *sorted({word.partition(":")[0] for word in self.made_of} - _LEAVES))

    @property
    def kind(self) -> tuple[str, ...]:
        """What findings have in common whose programs have to be reduced to be told apart; the last word is "" of those alone."""
        return self.key[:3]

    def like(self, other: Triaged) -> bool:
        """Whether a smaller program shows the same: the oracle, and the same first bad pass or the same kind of fault; the end of a
        process is like no other fault."""
        if (self.fault.kind == "crash") != (other.fault.kind == "crash"):
            return False
        if self.place is not None or other.place is not None:
            return self.key[:2] == other.key[:2]
        return self.key[:3] == other.key[:3]

    def to_json(self) -> Json:
        place = None if self.place is None else self.place._asdict()
        return {"oracle": self.oracle, "fault": self.fault._asdict(), "place": place, "made_of": list(self.made_of)}

    @classmethod
    def of(cls, found: Json) -> Triaged:
        place = found["place"] and Place(**found["place"])
        return cls(found["oracle"], Fault(**found["fault"]), place, tuple(found["made_of"]))


def _culprit(sample: Sample, target: Target) -> Place | None:
    """Where a launch goes wrong first."""
    try:
        found = culprit(sample.graph, sample.inputs, target)
    except UopsError:
        return None
    return None if found is None else Place(*found, None, None, None)


def signature(fault: Fault) -> str:
    """What an error says, without what differs from case to case: the place that raised it."""
    place = fault.message.rpartition("[")[2].rstrip("]") if fault.message.endswith("]") else ""
    return "" if fault.kind == "value" else place


class Bench:
    """The backends and oracles of a Setup, in this process."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        kinds.known(setup.kinds)
        self.subject = Subject(setup.backend, setup.options)
        self.against = Subject(setup.against) if setup.against else None
        #: What cases are drawn from.
        self.declared = self.subject.declared.both(self.against.declared) if self.against else self.subject.declared
        self.oracles = oracles.chosen(setup.oracles, self.subject, self.against)
        #: Whether several cases are examined faster at once.
        self.together = self.subject.target is not None and self.subject.target.joins

    def sample(self, k: int) -> Sample:
        return kinds.sample(self.setup.seed, k, self.setup.kinds, self.declared)

    def seed(self, k: int) -> int:
        """What the oracles' own choices for case `k` depend on."""
        return kinds.number(self.setup.seed, k)

    def due(self, seed: int) -> list[Oracle]:
        """Who judges a case."""
        return [o for o in self.oracles if oracles.due(o, seed)]

    def case(self, k: int, told: Told = lambda name: None) -> Examined:
        """Make case `k` and judge it; `told` hears of each oracle before it is asked."""
        told(oracles.GENERATOR)
        made = self._made(k)
        return made if isinstance(made, Examined) else self._examined(k, made, told)

    def cases(self, ks: Sequence[int], at: Callable[[int], Any] = lambda k: None) -> Iterator[Examined]:
        """What `case` gives of each, with the machine code of their own runs made together; `at` hears what is at work."""
        begun = []
        for k in ks:
            at(k)
            begun.append((k, made := self._made(k)))
            if isinstance(made, Context) and self.together and KINDS[made.sample.kind].dialect is Dialect.TENSOR:
                with suppress(Exception), remembering(made.memory):  # its own run meets again what is raised
                    _ = made.program
        for k, made in begun:
            at(k)
            yield made if isinstance(made, Examined) else self._examined(k, made)

    def _made(self, k: int) -> Context | Examined:
        try:
            sample = self.sample(k)
        except Exception as e:
            return Examined(k, oracles.GENERATOR, raised(e), Counter(cases=1))
        c = self._context(sample, self.seed(k))
        c.counts.update(cases=1, **{f"kind:{sample.kind}": 1})
        return c

    def _examined(self, k: int, c: Context, told: Told = lambda name: None) -> Examined:
        with remembering(c.memory):
            found, taken = None, True
            try:
                found = oracles.first_fault(c, self.due(c.seed), told)
            except Refused as e:
                c.counts[f"refused:{_reason(e)}"] += 1
                taken = False
            if judged := any(c.counts[f"oracle:{o.name}"] for o in self.oracles if oracles.judges(o.name, self.setup.backend)):
                c.counts["judged"] += 1
            if taken or judged:
                _cover(c)
        oracle, fault = found or (None, None)
        return Examined(k, oracle, fault, c.counts)

    def judge(self, sample: Sample, seed: int, oracle: str) -> Fault | None:
        """What one oracle objects to in a sample; a refusal is no objection."""
        try:
            found = oracles.first_fault(self._context(sample, seed, oracle), [o for o in self.oracles if o.name == oracle])
        except Refused:
            return None
        return None if found is None else found[1]

    def settled(self, sample: Sample, seed: int, oracle: str) -> tuple[Sample, str]:
        """A sample that holds what the oracle drew for this one, and the oracle that judges that."""
        settle = oracles.ORACLES[oracle].settle if oracle in oracles.ORACLES else None
        return (sample, oracle) if settle is None else settle(self._context(sample, seed))

    def bisected(self, sample: Sample, seed: int, oracle: str) -> Place | None:
        """Where what an oracle looks at goes wrong first; None where it does not, or cannot be told."""
        target = self.subject.target
        dialect = KINDS[sample.kind].dialect
        if target is None or oracle not in oracles.ORACLES or dialect not in (Dialect.TENSOR, Dialect.SCHEDULED):
            return None
        if dialect is Dialect.SCHEDULED:
            return _culprit(sample, target)
        made = oracles.ORACLES[oracle].made(self._context(sample, seed))
        try:
            f = bisect(
                made.sample.graph, made.sample.inputs, target, made.passes or pipeline.PIPELINE, config=made.config
            )  # fmt: skip
        except UopsError:  # the program itself traps, or is refused
            return None
        return None if f is None else Place(f.stage, f.pass_, f.step, f.rule, f.kernel)

    def _context(self, sample: Sample, seed: int, oracle: str = "") -> Context:
        """With `oracle`, for that one alone; all else is compiled as it is where all are asked that are due."""
        heard = oracle == oracles.STEPS or any(o.name == oracles.STEPS for o in self.due(seed))
        return Context(sample, self.subject, self.against, seed, heard)


def made_of(root: UOp) -> tuple[str, ...]:
    """What a program is made of: its ops with their dtypes."""
    return tuple(sorted({f"{u.op.name.lower()}:{u.dtype.short}" for u in toposort(root) if u.dtype is not dt.index}))


# ---------------------------------------------------------------------------------------------------------------- coverage


def _reason(e: Refused) -> str:
    """A refusal without its particulars: the rule, but not the node."""
    return re.split(r" at %\d+ = |:|\n", str(e), maxsplit=1)[0][:60]


def _cover(c: Context) -> None:
    """Count which rows met which dtypes, and how wide the allowed sets are."""
    c.counts.update({f"row:{ROWS[u.op].id}|{u.dtype.name}" for u in toposort(c.sample.graph) if u.op in ROWS})
    expected = c.__dict__.get("expected")
    for s in () if expected is None else expected.__dict__.get("strict", {}).values():
        for name, n in s.kinds().items():
            if n:
                c.counts[f"set:{name}"] += n
        if s.dtype.is_float:
            c.counts.update(_widths(s.width_ulps()))


def _widths(widths: Any) -> Counter[str]:
    at = np.searchsorted(WIDTHS, widths.reshape(-1))
    names = [*(f"width:{w}" for w in WIDTHS), "width:more"]
    return Counter({names[k]: int(n) for k, n in enumerate(np.bincount(at, minlength=len(names))) if n})
