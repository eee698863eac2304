"""Proving a set of rules: obligations, ledger and solver put together.

`campaign(rules)` makes every obligation of the rules, takes from the ledger what is proved there under the same key, asks the
solver about the rest, and gives a `Report`. An obligation proved by a theory of numbers rests on lemmas about casts; where one of
them is not proved, it is not either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from uops.compiler.prove import ledger
from uops.compiler.prove.admission import digest
from uops.compiler.prove.ledger import Entry, Page
from uops.compiler.prove.obligations import Obligation, obligations
from uops.compiler.prove.solver.solver import version
from uops.compiler.prove.verdicts import LEMMA, Status, Verdict, lemma_obligation, prove
from uops.compiler.rewrite.rule import Rule

#: Told of each verdict: (how many are done, of how many, the verdict).
Progress = Callable[[int, int, Verdict], None]


@dataclass(slots=True)
class Report:
    """Pages of the rules that were asked about, verdicts that the solver gave, and how many were taken from the ledger."""

    pages: dict[str, Page] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    taken: int = 0
    unstable: list[tuple[str, int, Status]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Status]:
        """How many obligations have each status."""
        return Counter(e.status for p in self.pages.values() for e in p.entries)

    @property
    def ok(self) -> bool:
        """Whether every rule is proved, whatever the seed."""
        return not self.unstable and all(p.status is Status.PROVED for p in self.pages.values())


def themes() -> dict[str, tuple[Rule, ...]]:
    """Everything that is to be proved, by theme: the rewrite rules, the laws of OptOps, and those of index arithmetic."""
    from uops.compiler.prove import identities, optops
    from uops.compiler.rewrite.rules import THEMES, fast_math, further

    laws = {"optops": optops.THEMES, "laws": identities.THEMES}
    stated = {f"{of}: {name}": found for of, themes in laws.items() for name, found in themes.items()}
    return {**THEMES, **further.THEMES, **fast_math.THEMES, "fast-math/laws": fast_math.LAWS, **stated}


def campaign(
    rules: Sequence[Rule],
    *,
    jobs: int = 1,
    known: Mapping[str, Entry] | None = None,
    seeds: int = 1,
    lemmas: Collection[str] = (),
    progress: Progress = lambda done, count, verdict: None,
) -> Report:
    """Prove `rules`, and `lemmas` beside those that the proofs rest on; `known` are proved entries by key.

    With several seeds all that is not known is asked once per seed, and a verdict that differs from the first seed's is `unstable`.
    """
    run = _Run(version(), known or {}, jobs, seeds, progress)
    run.over([o for rule in rules for o in obligations(rule)])
    run.over([lemma_obligation(pair) for pair in sorted(run.needs.union(lemmas))])
    digests = {r.name: digest(r) for r in rules}
    run.report.pages = {name: ledger.page(name, digests.get(name, ""), found) for name, found in run.entries.items()}
    _rest_on_lemmas(run.report)
    return run.report


@dataclass(slots=True)
class _Run:
    """One campaign: what it found so far."""

    solver: str
    known: Mapping[str, Entry]
    jobs: int
    seeds: int
    progress: Progress
    report: Report = field(default_factory=Report)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)

    def over(self, wanted: Sequence[Obligation]) -> None:
        """Settle these obligations."""
        todo = []
        for o in wanted:
            self.entries.setdefault(o.rule, [])
            found = self._recorded(o)
            if found is None:
                todo.append(o)
            else:
                self.report.taken += 1
                self.entries[o.rule].append(found)
        first = _ask(todo, self.jobs, 0, self.progress)
        for v in first:
            self.report.verdicts.append(v)
            self.entries[v.obligation.rule].append(ledger.entry(v, self.solver))
            self.needs.update(v.plan.needs if v.plan is not None else ())
        before = {v.obligation.name: v.status for v in first}
        for seed in range(1, self.seeds):
            again = _ask(todo, self.jobs, seed, self.progress)
            self.report.unstable += [
                (v.obligation.name, seed, v.status) for v in again if v.status is not before[v.obligation.name]
            ]

    def _recorded(self, o: Obligation) -> Entry | None:
        """The ledger's entry of a plan of this obligation: another typing may ask the same."""
        if not self.known:
            return None
        for make in o.plans:
            plan = make()
            found = self.known.get(ledger.key(plan, self.solver)) if plan.attempts else None
            if found is not None:
                self.needs.update(plan.needs)
                return replace(found, at=o.at)
        return None


def _ask(todo: Sequence[Obligation], jobs: int, seed: int, progress: Progress) -> list[Verdict]:
    found = []
    for v in prove(todo, jobs, seed):
        found.append(v)
        progress(len(found), len(todo), v)
    return found


def _rest_on_lemmas(report: Report) -> None:
    """What a theory of numbers proved is open while a lemma is."""
    lemmas = report.pages.get(LEMMA)
    if lemmas is None or lemmas.status is Status.PROVED:
        return
    for name, p in report.pages.items():
        if name != LEMMA:
            entries = [replace(e, status=Status.UNKNOWN, by="a lemma is open") if e.by == "numbers" else e for e in p.entries]
            report.pages[name] = Page(p.rule, p.digest, tuple(entries))
