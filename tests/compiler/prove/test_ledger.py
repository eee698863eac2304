"""The committed ledger is of the rules as they are, and only what it proves fires."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from uops.compiler.prove import admission, ledger
from uops.compiler.prove.admission import DamagedLedger, UnprovedRule, digest_rule, is_rule_in_ledger, select_proved_rules_and_warn
from uops.compiler.prove.campaign import (
    collect_rules_to_prove_by_theme,
    find_rules_with_missing_or_stale_page,
    prove_rules,
)
from uops.compiler.prove.ledger import LedgerEntry, UnreadableLedger, make_page
from uops.compiler.prove.verdicts import LEMMA, ProofStatus
from uops.compiler.rewrite.pattern import INDEX, as_pattern, var
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import THEMES, VALUES
from uops.compiler.rewrite.rules.further import FURTHER
from uops.compiler.rewrite.rules.further import THEMES as FURTHER_THEMES
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.untrusted import BadFile, seal

RULES = tuple(rule for rules in THEMES.values() for rule in rules)
ALL = tuple(rule for rules in collect_rules_to_prove_by_theme().values() for rule in rules)
i = var("i", INDEX)


def test_the_ledger_proves_every_rule_as_it_is_and_the_solver_need_not_be_asked() -> None:
    pages = ledger.read_ledger()
    report = prove_rules(
        ALL,
        proved_entries_by_key=ledger.index_proved_entries(pages),
        progress=lambda done, count, v: pytest.fail(f"{v.obligation.name} is not in the ledger"),
    )
    assert report.ok
    assert set(pages) == {r.name for r in ALL} | {LEMMA}
    assert {r.name: digest_rule(r) for r in ALL} == {p.rule: p.digest for p in pages.values() if p.rule != LEMMA}


def test_there_are_a_thousand_obligations() -> None:
    assert sum(len(p.entries) for p in ledger.read_ledger().values()) >= 1000


def test_every_rule_of_the_default_set_is_proved() -> None:
    assert [r.name for r in VALUES if not is_rule_in_ledger(r)] == []
    assert set(VALUES) == set(RULES)


def test_further_rules_are_proved_and_are_no_rules_of_the_default_set() -> None:
    assert set(FURTHER) == {rule for rules in FURTHER_THEMES.values() for rule in rules}
    assert not set(FURTHER) & set(VALUES)
    assert len(VALUES) + len(FURTHER) >= 150


def test_an_unproved_rule_does_not_fire() -> None:
    wrong = Rule("add-zero", i + 1, i)
    with pytest.warns(UnprovedRule, match="add-zero"):
        rules = select_proved_rules_and_warn((wrong,))
    e = b.add(b.variable("n", 0, 9), 1)
    assert Rewriter((wrong,))(e) is not e
    assert Rewriter(rules)(e) is e


@pytest.mark.parametrize(
    "change",
    [{"rhs": as_pattern(0)}, {"name": "add-naught"}, {"when": i > 0}, {"lhs": var("i") + 0}],
    ids=["right", "name", "condition", "dtypes"],
)
def test_a_rule_that_was_changed_is_not_the_one_that_was_proved(change: dict[str, object]) -> None:
    proved = next(r for r in RULES if r.name == "add-zero")
    fields = {f: getattr(proved, f) for f in ("name", "lhs", "rhs", "when", "witness", "types")}
    assert is_rule_in_ledger(Rule(**fields))
    assert not is_rule_in_ledger(Rule(**{**fields, **change}))  # type: ignore[arg-type]


def test_a_rule_that_trusts_the_folder_is_another_than_one_that_does_not() -> None:
    fold = next(r for r in RULES if r.name == "fold-add")
    assert is_rule_in_ledger(fold)
    assert not is_rule_in_ledger(Rule(fold.name, fold.lhs, fold.rhs))


@pytest.fixture
def other_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ledger of one page; the committed one is out of sight."""
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setattr(admission, "_LEDGER", path)
    admission._load_proved_digests_or_warn_if_damaged.cache_clear()
    yield path
    admission._load_proved_digests_or_warn_if_damaged.cache_clear()


@pytest.mark.parametrize("status", ProofStatus, ids=lambda s: s.value)
def test_only_the_status_proved_admits(status: ProofStatus, other_ledger: Path) -> None:
    rule = Rule("mine", i + 0, i)
    ledger.write_ledger([make_page("mine", digest_rule(rule), [LedgerEntry("index", "0" * 64, status, "whole")])], other_ledger)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = select_proved_rules_and_warn((rule,))
    assert (found == (rule,)) == (status is ProofStatus.PROVED)
    assert len(said) == (status is not ProofStatus.PROVED)


def test_without_a_ledger_nothing_is_proved(other_ledger: Path) -> None:
    assert not other_ledger.exists() and ledger.read_ledger(other_ledger) == {}
    assert not is_rule_in_ledger(Rule("mine", i + 0, i))


def test_a_page_is_as_good_as_its_worst_obligation() -> None:
    good, open_, wrong = (
        LedgerEntry(at, "", s, "") for at, s in (("a", ProofStatus.PROVED), ("b", ProofStatus.UNKNOWN), ("c", ProofStatus.REFUTED))
    )
    assert make_page("r", "", [good, open_]).status is ProofStatus.UNKNOWN
    assert make_page("r", "", [good, open_, wrong]).status is ProofStatus.REFUTED
    assert make_page("r", "", []).status is ProofStatus.UNMODELLED


def test_the_ledger_reads_what_it_wrote(tmp_path: Path) -> None:
    pages = [make_page("b", "d1", [LedgerEntry("i8", "k", ProofStatus.PROVED, "bits")]), make_page("a", "d2", [])]
    path = tmp_path / "ledger.jsonl"
    ledger.write_ledger(pages, path)
    assert ledger.read_ledger(path) == {p.rule: p for p in pages}
    _, first, *rest = path.read_text().splitlines()
    assert [json.loads(line)["rule"] for line in rest] == ["a", "b"]
    assert json.loads(first)["proved"] == {"b": "d1"}


PAGES = [make_page("b", "d1", [LedgerEntry("i8", "k", ProofStatus.PROVED, "bits")]), make_page("a", "d2", [])]
# fmt: off
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty":               lambda b: b"",
    "a line":              lambda b: b.split(b"\n")[0] + b"\n",
    "the index":           lambda b: b"\n".join(b.split(b"\n")[:2]) + b"\n",
    "a page less":         lambda b: b"\n".join(b.split(b"\n")[:3]) + b"\n",
    "cut by a byte":       lambda b: b[:-1],
    "a page twice":        lambda b: b + b.split(b"\n")[2] + b"\n",
    "a bit of a page":     lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:],
    "a bit of the index":  lambda b: b.replace(b"d1", b"d2", 1),
    "bytes ff fe":         lambda b: b"\xff\xfe" + b,
    "text":                lambda b: b'{"proved": {}}\n{"rule": "a"}\n',
    "deep":                lambda b: b"[" * 100_000,
}
# fmt: on


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ledger_is_an_error_of_one_line_that_names_the_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.write_ledger(PAGES, path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises((UnreadableLedger, BadFile), match=r"ledger\.jsonl") as caught:
        ledger.read_ledger(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["empty", "a line", "a bit of the index", "bytes ff fe", "text", "deep"])
def test_with_a_damaged_index_no_rule_fires_and_one_warning_names_the_file(other_ledger: Path, damage: str) -> None:
    mine = Rule("mine", i + 0, i)
    ledger.write_ledger(
        [make_page("mine", digest_rule(mine), [LedgerEntry("i", "k", ProofStatus.PROVED, "bits")]), *PAGES], other_ledger
    )
    other_ledger.write_bytes(DAMAGE[damage](other_ledger.read_bytes()))
    with pytest.warns(DamagedLedger, match=r"no rewrite rule fires: .*ledger\.jsonl is no ledger, or is damaged") as said:
        assert select_proved_rules_and_warn((mine, Rule("other", i * 1, i))) == ()
    assert len(said) == 1


def test_an_import_reads_the_index_alone(other_ledger: Path) -> None:
    """Damaged pages are for `uops prove` to say: what the index holds was proved."""
    mine = Rule("mine", i + 0, i)
    ledger.write_ledger([make_page("mine", digest_rule(mine), [LedgerEntry("i", "k", ProofStatus.PROVED, "bits")])], other_ledger)
    other_ledger.write_bytes(other_ledger.read_bytes()[:-3])
    assert select_proved_rules_and_warn((mine,)) == (mine,)


def test_an_obligation_whose_lemma_is_open_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from uops.compiler.prove import campaign as module

    lossless = next(r for r in RULES if r.name == "cast-lossless")
    known = ledger.index_proved_entries(ledger.read_ledger())
    real = module._CampaignRun._find_reusable_entry_and_add_its_lemmas

    def hidden(run: object, o: object) -> object:
        found = real(run, o)  # type: ignore[arg-type]
        return replace(found, status=ProofStatus.UNKNOWN) if found is not None and o.rule == LEMMA else found  # type: ignore[attr-defined]

    monkeypatch.setattr(module._CampaignRun, "_find_reusable_entry_and_add_its_lemmas", hidden)
    report = prove_rules((lossless,), proved_entries_by_key=known)
    assert report.pages["cast-lossless"].status is ProofStatus.UNKNOWN
    assert not report.ok


def test_a_rule_that_has_no_dtypes_is_unmodelled_and_never_proved() -> None:
    x = var("x", (dt.int8,))
    rule = Rule("of-no-dtype", x + 1, x, types=lambda types: False)
    report = prove_rules([rule])
    assert not report.ok
    assert report.pages["of-no-dtype"].status is ProofStatus.UNMODELLED
    assert find_rules_with_missing_or_stale_page({}, report, [rule]) == ["of-no-dtype"]
    assert find_rules_with_missing_or_stale_page(report.pages, report, [rule]) == []


#: What may be wrong with a page: the entries of a rule -> others.
SPOILED: dict[str, Callable[[list[LedgerEntry]], list[LedgerEntry]]] = {
    "the first is missing": lambda e: e[1:],
    "the last is missing": lambda e: e[:-1],
    "one alone is left": lambda e: e[2:3],
    "none is left": lambda e: [],
    "one is twice": lambda e: [*e, e[0]],
    "one is in another's place": lambda e: [e[0], e[0], *e[2:]],
    "one more typing": lambda e: [*e, replace(e[0], typing="of-no-rule")],
    "another typing": lambda e: [*e[:-1], replace(e[-1], typing="of-no-rule")],
    "one is open": lambda e: [*e[:-1], replace(e[-1], status=ProofStatus.UNKNOWN)],
    "all are open": lambda e: [replace(x, status=ProofStatus.UNKNOWN) for x in e],
    "another query": lambda e: [*e[:-1], replace(e[-1], key="0" * 64)],
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_page_is_stale_unless_it_has_each_obligation_of_its_rule_once(spoiled: str) -> None:
    pages = ledger.read_ledger()
    rule = next(r for r in RULES if r.name == "add-zero")
    report = prove_rules([rule], proved_entries_by_key=ledger.index_proved_entries(pages))
    page = pages[rule.name]
    assert len(page.entries) > 3 and not find_rules_with_missing_or_stale_page(pages, report, [rule])
    other = make_page(rule.name, page.digest, SPOILED[spoiled]([*page.entries]))
    assert find_rules_with_missing_or_stale_page({**pages, rule.name: other}, report, [rule]) == [rule.name]


def test_an_index_of_infinitely_many_pages_is_damaged(tmp_path: Path) -> None:
    lines = seal(admission.INDEX, admission.SCHEMA, "", b'{"proved":{},"pages":1e999,"sha256":"a"}').decode()
    with pytest.raises(admission.UnreadableLedger, match="is damaged"):
        admission.parse_ledger_index(lines, tmp_path / "ledger")
