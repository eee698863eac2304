"""`uops backends`: what is here, and how to get the rest."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from uops.backends.registry import BUILT_IN

Uops = Callable[..., Result]


def test_a_backend_that_is_here_shows_what_it_declares(uops: Uops) -> None:
    shown = uops("backends", "llvm", "interp", "--json")
    rows = {row["name"]: row for row in json.loads(shown.output)["backends"]}
    assert shown.exit_code == 0 and all(row["here"] for row in rows.values())
    assert rows["llvm"]["target"] and not rows["interp"]["target"] and "LLVM" in rows["llvm"]["version"]
    assert set(rows["llvm"]["declared"]["surfaces"]) >= {"tensor", "kernel"}


def test_one_that_is_missing_says_how_to_get_it(uops: Uops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    shown = uops("backends", "c:gcc", "s390x")
    text = " ".join(shown.output.split())
    assert shown.exit_code == 1
    assert "no such program is installed" in text and "qemu-s390x (Debian's package qemu-user)" in text


def test_all_are_listed_without_a_name(uops: Uops) -> None:
    shown = uops("backends")
    assert shown.exit_code == 0 and all(name in shown.output for name in BUILT_IN)


def test_an_unknown_name_is_an_error(uops: Uops) -> None:
    shown = uops("backends", "lvm")
    assert shown.exit_code == 2 and "no backend is called 'lvm'" in shown.output
