"""Campaigns: proofs of a set of rules by obligations, ledger and solver.

Takes: rules, and proved entries of a ledger. Gives: a `ProofReport`. `prove_rules` builds every obligation, reuses ledger
entries with equal keys, and asks the solver about the rest. An obligation proved by the theory `numbers` rests on lemmas about
casts; it counts as unknown while one of these lemmas is not proved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from uops.compiler.prove import ledger
from uops.compiler.prove.admission import digest_rule
from uops.compiler.prove.ledger import LedgerEntry, LedgerPage
from uops.compiler.prove.obligations import Obligation, obligations
from uops.compiler.prove.solver.solver import solver_version
from uops.compiler.prove.verdicts import LEMMA, ProofStatus, ProofVerdict, make_cast_lemma_obligation, prove
from uops.compiler.rewrite.rule import Rule

#: Callback per verdict, with (obligations done, obligations in all, the verdict).
Progress = Callable[[int, int, ProofVerdict], None]


@dataclass(slots=True)
class ProofReport:
    """The pages of the rules, the verdicts of the solver, the number of obligations found in the ledger, and verdicts that
    depend on the seed."""

    pages: dict[str, LedgerPage] = field(default_factory=dict)
    verdicts: list[ProofVerdict] = field(default_factory=list)
    ledger_hits: int = 0
    unstable_verdicts: list[tuple[str, int, ProofStatus]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[ProofStatus]:
        """The number of obligations with each status."""
        return Counter(e.status for p in self.pages.values() for e in p.entries)

    @property
    def ok(self) -> bool:
        """True if every rule is proved with every seed."""
        return not self.unstable_verdicts and all(p.status is ProofStatus.PROVED for p in self.pages.values())


def collect_rules_to_prove_by_theme() -> dict[str, tuple[Rule, ...]]:
    """Return all rules to be proved by theme: rewrite rules, laws of OptOps, and laws of index arithmetic."""
    # late: the laws are many rules, which only a campaign over all themes needs
    from uops.compiler.prove import identities, optops
    from uops.compiler.rewrite.rules import THEMES, fast_math, further

    laws = {"optops": optops.THEMES, "laws": identities.THEMES}
    named_laws = {f"{group}: {name}": rules for group, themes in laws.items() for name, rules in themes.items()}
    return {**THEMES, **further.THEMES, **fast_math.THEMES, "fast-math/laws": fast_math.LAWS, **named_laws}


def prove_rules(
    rules: Sequence[Rule],
    *,
    jobs: int = 1,
    proved_entries_by_key: Mapping[str, LedgerEntry] | None = None,
    seed_count: int = 1,
    extra_cast_lemmas: Collection[str] = (),
    progress: Progress = lambda done, count, verdict: None,
) -> ProofReport:
    """Prove `rules`, and `extra_cast_lemmas` beside the lemmas that these proofs need.

    `proved_entries_by_key` are ledger entries by key. With several seeds, the solver decides every obligation outside the ledger
    once per seed. `unstable_verdicts` lists the verdicts that differ from those of the first seed.
    """
    run = _CampaignRun(solver_version(), proved_entries_by_key or {}, jobs, seed_count, progress)
    run.reuse_ledger_or_prove_per_seed([o for rule in rules for o in obligations(rule)])
    run.reuse_ledger_or_prove_per_seed(
        [make_cast_lemma_obligation(pair) for pair in sorted(run.needed_lemmas.union(extra_cast_lemmas))]
    )
    digests = {r.name: digest_rule(r) for r in rules}
    for name in digests.keys() - run.entries.keys():
        run.entries[name] = []  # a rule without a typing claims nothing, which is no proof
    run.report.pages = {name: ledger.make_page(name, digests.get(name, ""), entries) for name, entries in run.entries.items()}
    _mark_all_numbers_unknown_if_any_lemma_open(run.report)
    return run.report


def find_rules_with_missing_or_stale_page(
    ledger_pages: Mapping[str, LedgerPage], report: ProofReport, rules: Sequence[Rule]
) -> list[str]:
    """Return the names in `report` whose ledger page is missing, is about another rule, or has other verdicts or queries.

    The same rule may be proved by any of several plans, whichever the solver decides first.
    """
    made = [o for rule in rules for o in obligations(rule)]
    made += [make_cast_lemma_obligation(e.typing) for e in report.pages[LEMMA].entries] if LEMMA in report.pages else []
    by_rule: dict[str, dict[str, Obligation]] = {}
    for o in made:
        by_rule.setdefault(o.rule, {})[o.typing] = o
    return [
        name
        for name, new in report.pages.items()
        if name not in ledger_pages
        or not _has_same_verdicts_and_only_present_queries(ledger_pages[name], new, by_rule.get(name, {}))
    ]


def _has_same_verdicts_and_only_present_queries(
    ledger_page: LedgerPage, proved: LedgerPage, obligations_by_typing: Mapping[str, Obligation]
) -> bool:
    """Return True if a page has the verdicts of another one, by queries of the same obligations."""
    if ledger_page.digest != proved.digest or sorted((e.typing, e.status) for e in ledger_page.entries) != sorted(
        (e.typing, e.status) for e in proved.entries
    ):
        return False
    return all(
        any(e.key == ledger.plan_key(make(), solver_version()) for make in obligations_by_typing[e.typing].plans)
        for e in ledger_page.entries
    )


@dataclass(slots=True)
class _CampaignRun:
    """The state of one campaign."""

    solver: str
    proved_entries: Mapping[str, LedgerEntry]
    jobs: int
    seeds: int
    progress: Progress
    report: ProofReport = field(default_factory=ProofReport)
    entries: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    needed_lemmas: set[str] = field(default_factory=set)

    def reuse_ledger_or_prove_per_seed(self, obligations_to_decide: Sequence[Obligation]) -> None:
        """Take each obligation from the ledger, or ask the solver about it once per seed."""
        todo = []
        for o in obligations_to_decide:
            self.entries.setdefault(o.rule, [])
            entry = self._find_reusable_entry_and_add_its_lemmas(o)
            if entry is None:
                todo.append(o)
            else:
                self.report.ledger_hits += 1
                self.entries[o.rule].append(entry)
        first = _prove_unordered_with_progress(todo, self.jobs, 0, self.progress)
        for v in first:
            self.report.verdicts.append(v)
            self.entries[v.obligation.rule].append(ledger.entry_from_verdict(v, self.solver))
            self.needed_lemmas.update(v.plan.lemmas if v.plan is not None else ())
        before = {v.obligation.name: v.status for v in first}
        for seed in range(1, self.seeds):
            again = _prove_unordered_with_progress(todo, self.jobs, seed, self.progress)
            self.report.unstable_verdicts += [
                (v.obligation.name, seed, v.status) for v in again if v.status is not before[v.obligation.name]
            ]

    def _find_reusable_entry_and_add_its_lemmas(self, obligation: Obligation) -> LedgerEntry | None:
        """Return the ledger's entry for a plan of this obligation, if any. Another typing may have made the same queries."""
        if not self.proved_entries:
            return None
        for make in obligation.plans:
            plan = make()
            entry = self.proved_entries.get(ledger.plan_key(plan, self.solver)) if plan.attempts else None
            if entry is not None:
                self.needed_lemmas.update(plan.lemmas)
                return replace(entry, typing=obligation.typing)
        return None


def _prove_unordered_with_progress(
    obligations_to_prove: Sequence[Obligation], jobs: int, seed: int, report_progress: Progress
) -> list[ProofVerdict]:
    """Decide the obligations and report each verdict to `report_progress`."""
    verdicts = []
    for v in prove(obligations_to_prove, jobs, seed):
        verdicts.append(v)
        report_progress(len(verdicts), len(obligations_to_prove), v)
    return verdicts


def _mark_all_numbers_unknown_if_any_lemma_open(report: ProofReport) -> None:
    """Mark the proofs by the theory `numbers` as unknown if a lemma about casts is not proved."""
    lemmas = report.pages.get(LEMMA)
    if lemmas is None or lemmas.status is ProofStatus.PROVED:
        return
    for name, p in report.pages.items():
        if name != LEMMA:
            entries = [replace(e, status=ProofStatus.UNKNOWN, by="a lemma is open") if e.by == "numbers" else e for e in p.entries]
            report.pages[name] = LedgerPage(p.rule, p.digest, tuple(entries))
