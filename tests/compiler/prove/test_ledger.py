"""The committed ledger is of the rules as they are, and only what it proves fires."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from uops.compiler.prove import admission, ledger
from uops.compiler.prove.admission import DamagedLedger, UnprovedRule, admitted, digest, is_proved
from uops.compiler.prove.campaign import campaign, themes
from uops.compiler.prove.ledger import Entry, Unreadable, page
from uops.compiler.prove.verdicts import LEMMA, Status
from uops.compiler.rewrite.pattern import INDEX, lift, var
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import THEMES, VALUES
from uops.compiler.rewrite.rules.further import FURTHER
from uops.compiler.rewrite.rules.further import THEMES as FURTHER_THEMES
from uops.spec.ir import build as b
from uops.spec.untrusted import BadFile

RULES = tuple(rule for rules in THEMES.values() for rule in rules)
ALL = tuple(rule for rules in themes().values() for rule in rules)
i = var("i", INDEX)


def test_the_ledger_proves_every_rule_as_it_is_and_the_solver_need_not_be_asked() -> None:
    pages = ledger.read()
    report = campaign(
        ALL, known=ledger.proved(pages), progress=lambda done, count, v: pytest.fail(f"{v.obligation.name} is not in the ledger")
    )
    assert report.ok
    assert set(pages) == {r.name for r in ALL} | {LEMMA}
    assert {r.name: digest(r) for r in ALL} == {p.rule: p.digest for p in pages.values() if p.rule != LEMMA}


def test_there_are_a_thousand_obligations() -> None:
    assert sum(len(p.entries) for p in ledger.read().values()) >= 1000


def test_every_rule_of_the_default_set_is_proved() -> None:
    assert [r.name for r in VALUES if not is_proved(r)] == []
    assert set(VALUES) == set(RULES)


def test_further_rules_are_proved_and_are_no_rules_of_the_default_set() -> None:
    assert set(FURTHER) == {rule for rules in FURTHER_THEMES.values() for rule in rules}
    assert not set(FURTHER) & set(VALUES)
    assert len(VALUES) + len(FURTHER) >= 150


def test_an_unproved_rule_does_not_fire() -> None:
    wrong = Rule("add-zero", i + 1, i)
    with pytest.warns(UnprovedRule, match="add-zero"):
        rules = admitted((wrong,))
    e = b.add(b.variable("n", 0, 9), 1)
    assert Rewriter((wrong,))(e) is not e
    assert Rewriter(rules)(e) is e


@pytest.mark.parametrize(
    "change",
    [{"rhs": lift(0)}, {"name": "add-naught"}, {"when": i > 0}, {"lhs": var("i") + 0}],
    ids=["right", "name", "condition", "dtypes"],
)
def test_a_rule_that_was_changed_is_not_the_one_that_was_proved(change: dict[str, object]) -> None:
    proved = next(r for r in RULES if r.name == "add-zero")
    fields = {f: getattr(proved, f) for f in ("name", "lhs", "rhs", "when", "witness", "types")}
    assert is_proved(Rule(**fields))
    assert not is_proved(Rule(**{**fields, **change}))  # type: ignore[arg-type]


def test_a_rule_that_trusts_the_folder_is_another_than_one_that_does_not() -> None:
    fold = next(r for r in RULES if r.name == "fold-add")
    assert is_proved(fold)
    assert not is_proved(Rule(fold.name, fold.lhs, fold.rhs))


@pytest.fixture
def other_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ledger of one page; the committed one is out of sight."""
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setattr(admission, "_LEDGER", path)
    admission._proved.cache_clear()
    yield path
    admission._proved.cache_clear()


@pytest.mark.parametrize("status", Status, ids=lambda s: s.value)
def test_only_the_status_proved_admits(status: Status, other_ledger: Path) -> None:
    rule = Rule("mine", i + 0, i)
    ledger.write([page("mine", digest(rule), [Entry("index", "0" * 64, status, "whole")])], other_ledger)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = admitted((rule,))
    assert (found == (rule,)) == (status is Status.PROVED)
    assert len(said) == (status is not Status.PROVED)


def test_without_a_ledger_nothing_is_proved(other_ledger: Path) -> None:
    assert not other_ledger.exists() and ledger.read(other_ledger) == {}
    assert not is_proved(Rule("mine", i + 0, i))


def test_a_page_is_as_good_as_its_worst_obligation() -> None:
    good, open_, wrong = (Entry(at, "", s, "") for at, s in (("a", Status.PROVED), ("b", Status.UNKNOWN), ("c", Status.REFUTED)))
    assert page("r", "", [good, open_]).status is Status.UNKNOWN
    assert page("r", "", [good, open_, wrong]).status is Status.REFUTED
    assert page("r", "", []).status is Status.UNMODELLED


def test_the_ledger_reads_what_it_wrote(tmp_path: Path) -> None:
    pages = [page("b", "d1", [Entry("i8", "k", Status.PROVED, "bits")]), page("a", "d2", [])]
    path = tmp_path / "ledger.jsonl"
    ledger.write(pages, path)
    assert ledger.read(path) == {p.rule: p for p in pages}
    _, first, *rest = path.read_text().splitlines()
    assert [json.loads(line)["rule"] for line in rest] == ["a", "b"]
    assert json.loads(first)["proved"] == {"b": "d1"}


PAGES = [page("b", "d1", [Entry("i8", "k", Status.PROVED, "bits")]), page("a", "d2", [])]
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
    ledger.write(PAGES, path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises((Unreadable, BadFile), match=r"ledger\.jsonl") as caught:
        ledger.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["empty", "a line", "a bit of the index", "bytes ff fe", "text", "deep"])
def test_with_a_damaged_index_no_rule_fires_and_one_warning_names_the_file(other_ledger: Path, damage: str) -> None:
    mine = Rule("mine", i + 0, i)
    ledger.write([page("mine", digest(mine), [Entry("i", "k", Status.PROVED, "bits")]), *PAGES], other_ledger)
    other_ledger.write_bytes(DAMAGE[damage](other_ledger.read_bytes()))
    with pytest.warns(DamagedLedger, match=r"no rewrite rule fires: .*ledger\.jsonl is no ledger, or is damaged") as said:
        assert admitted((mine, Rule("other", i * 1, i))) == ()
    assert len(said) == 1


def test_an_import_reads_the_index_alone(other_ledger: Path) -> None:
    """Damaged pages are for `uops prove` to say: what the index holds was proved."""
    mine = Rule("mine", i + 0, i)
    ledger.write([page("mine", digest(mine), [Entry("i", "k", Status.PROVED, "bits")])], other_ledger)
    other_ledger.write_bytes(other_ledger.read_bytes()[:-3])
    assert admitted((mine,)) == (mine,)


def test_an_obligation_whose_lemma_is_open_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from uops.compiler.prove import campaign as module

    lossless = next(r for r in RULES if r.name == "cast-lossless")
    known = ledger.proved(ledger.read())
    real = module._Run._recorded

    def hidden(run: object, o: object) -> object:
        found = real(run, o)  # type: ignore[arg-type]
        return replace(found, status=Status.UNKNOWN) if found is not None and o.rule == LEMMA else found  # type: ignore[attr-defined]

    monkeypatch.setattr(module._Run, "_recorded", hidden)
    report = campaign((lossless,), known=known)
    assert report.pages["cast-lossless"].status is Status.UNKNOWN
    assert not report.ok
