"""`uops prove`: what it prints, writes and answers."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from uops.compiler.prove import ledger
from uops.compiler.prove.verdicts import LEMMA, list_exact_cast_lemmas
from uops.compiler.rewrite.pattern import INDEX, as_pattern, cst, var
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import THEMES

Uops = Callable[..., Result]


def test_rules_are_proved_and_written_and_then_taken_from_the_ledger(uops: Uops, tmp_path: Path) -> None:
    first = uops("prove", "--rules", "where-n*", "--ledger", "l.jsonl", "--json", "--jobs", "1")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert found["ok"]
    assert set(found["rules"]) == {"where-not", "where-nested-true", "where-nested-false"}
    assert (found["from_ledger"], found["obligations"]) == (0, {"proved": 48})
    assert set(ledger.read_ledger(tmp_path / "l.jsonl")) == set(found["rules"])
    again = json.loads(uops("prove", "--rules", "where-n*", "--ledger", "l.jsonl", "--json").stdout)
    assert again["from_ledger"] == 48
    cold = json.loads(uops("prove", "--rules", "where-n*", "--ledger", "l.jsonl", "--json", "--cold", "--seeds", "2").stdout)
    assert (cold["from_ledger"], cold["unstable"]) == (0, [])


def test_a_theme_is_chosen_by_its_name_and_nothing_is_written_unasked(uops: Uops, tmp_path: Path) -> None:
    result = uops("prove", "--rules", "booleans", "--ledger", "l.jsonl", "--no-write")
    assert result.exit_code == 1 and "l.jsonl: the page of eq-self is not what was proved" in result.stdout
    assert "booleans" in result.stdout
    assert "20 rules, 60 obligations, 0 of them from the ledger" in result.stdout
    assert not (tmp_path / "l.jsonl").exists()


def test_a_false_rule_is_refuted_with_values_that_the_interpreter_confirms(uops: Uops, monkeypatch: pytest.MonkeyPatch) -> None:
    i, c = var("i", INDEX), cst("c", INDEX)
    monkeypatch.setitem(
        THEMES, "mine", (Rule("small", i % c, i, when=i < c), Rule("never", i + 0, as_pattern(1), when=(i > 0) & (i < 0)))
    )
    result = uops("prove", "--rules", "mine", "--ledger", "l.jsonl")
    assert result.exit_code == 1
    assert "refuted small/index: c = " in result.stdout
    assert "the interpreter gives" in result.stdout
    assert "vacuous never/index" in result.stdout
    found = json.loads(uops("prove", "--rules", "mine", "--ledger", "l.jsonl", "--json").stdout)
    assert not found["ok"]
    assert found["rules"] == {"small": "refuted", "never": "vacuous"}
    assert set(found["counterexamples"]["small/index"]) <= {"i", "c"}


def test_a_name_that_no_rule_has_is_a_wrong_question(uops: Uops) -> None:
    result = uops("prove", "--rules", "nothing-like-it")
    assert result.exit_code == 2
    assert "no rule or theme matches" in result.output


def test_the_lemmas_are_chosen_by_the_name_of_their_theme(uops: Uops) -> None:
    result = uops("prove", "-r", "lemmas", "--no-write")
    assert result.exit_code == 0 and "1 rules, 27 obligations" in result.stdout, result.output
    (theme,) = (words for x in result.stdout.splitlines() if (words := x.split())[:1] == ["lemmas"])
    assert theme == ["lemmas", "1", "27", "27", "0"]


def test_the_lemmas_are_those_that_the_ledger_rests_on() -> None:
    assert list_exact_cast_lemmas() == tuple(sorted(e.typing for e in ledger.read_ledger(ledger.PATH)[LEMMA].entries))


def test_a_misspelt_theme_or_rule_is_a_wrong_question_with_a_hint(uops: Uops) -> None:
    for wrong, right in (("lemma", "lemmas"), ("boolean", "booleans"), ("where-nott", "where-not")):
        result = uops("prove", "-r", wrong, "-r", "where-not", "--no-write")
        assert result.exit_code == 2 and f"no rule or theme matches '{wrong}'; did you mean" in result.stderr
        assert right in result.stderr and result.stdout == ""


@pytest.mark.parametrize("options", [(), ("--cold",)], ids=["warm", "cold"])
def test_a_proof_that_is_not_written_checks_the_ledger(options: tuple[str, ...], uops: Uops, tmp_path: Path) -> None:
    arguments = ("prove", "--rules", "where-n*", "--ledger", "l.jsonl", *options)
    assert uops(*arguments).exit_code == 0
    assert uops(*arguments, "--no-write").exit_code == 0
    pages = ledger.read_ledger(tmp_path / "l.jsonl")
    page = pages["where-not"]
    forged = replace(page, entries=(replace(page.entries[0], key="0" * 64), *page.entries[1:]))
    ledger.write_ledger({**pages, "where-not": forged}.values(), tmp_path / "l.jsonl")
    result = uops(*arguments, "--no-write")
    assert result.exit_code == 1
    assert "the page of where-not is not what was proved" in result.stdout
    assert json.loads(uops(*arguments, "--no-write", "--json").stdout)["not_as_in_ledger"] == ["where-not"]
    ledger.write_ledger([p for name, p in pages.items() if name != "where-not"], tmp_path / "l.jsonl")
    assert uops(*arguments, "--no-write").exit_code == 1


def test_a_page_of_no_rule_is_surplus(uops: Uops, tmp_path: Path) -> None:
    pages = ledger.read_ledger(ledger.PATH)
    ledger.write_ledger([*pages.values(), replace(pages["where-not"], rule="gone")], tmp_path / "l.jsonl")
    result = uops("prove", "--ledger", "l.jsonl", "--no-write")
    assert result.exit_code == 1 and "l.jsonl: the page of gone is of no rule" in result.stdout
    assert "the page of where-not" not in result.stdout
