"""`uops check-certificate` of damaged and forged files: never a traceback, never that it holds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uops.backends.registry import create_backend
from uops.compiler.validate import certificate as C
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

Json = dict[str, Any]


@pytest.fixture(scope="module")
def certificate() -> Json:
    """Of a kernel that rules simplify."""
    return C.certify(b.contiguous(b.permute(b.param(0, (3, 5), dt.float32), (1, 0))), create_backend("llvm").target)


def put(made: Json, value: Any, *place: str | int) -> Json:
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


EMPTY = "%0 = linear\n"
#: A program without effects, and all that a certificate says of it.
NOTHING = {
    "texts": {
        **dict.fromkeys(C.TEXTS, EMPTY),
        **dict.fromkeys(("callify", "parts"), "%0 = sink\n%1 = call %0, written=[]\n"),
        "tensor": "%0 = sink\n",
    },
    "hints": {"values": [], "held": [], "split": []},
    "claims": [],
    "steps": [],
    "rules": {},
}
# fmt: off
NO_CERTIFICATE: dict[str, tuple[Callable[[Json], Any], str]] = {
    "a list":             (lambda m: [m], "expected an object, got an array of 1"),
    "no texts":           (lambda m: {k: v for k, v in m.items() if k != "texts"}, "texts is missing"),
    "a text less":        (lambda m: {**m, "texts": {"join": ""}}, "texts.tensor is missing"),
    "a text is a number": (lambda m: put(m, 7, "texts", "plan"), "texts.plan: expected a string, got 7"),
    "texts are a list":   (lambda m: {**m, "texts": []}, "texts: expected an object, got an array of 0"),
    "callers are text":   (lambda m: {**m, "callers": "1"}, "callers: expected an array, got '1'"),
    "a caller is huge":   (lambda m: {**m, "callers": [1 << 70]}, "callers[0]: expected an integer, got a number beyond 64 bits"),
    "rules are a list":   (lambda m: {**m, "rules": ["x"]}, "rules: expected an object, got an array of 1"),
    "a claim is short":   (lambda m: put(m, ["bounds"], "claims", 0), "claims[0]: expected an array of 3, got an array of 1"),
    "claims are null":    (lambda m: {**m, "claims": None}, "claims: expected an array, got null"),
    "a step is a number": (lambda m: put(m, 3, "steps", 0, 0), "steps[0][0]: expected an array of 3, got 3"),
    "trusted is text":    (lambda m: {**m, "trusted": "all"}, "trusted: expected an array, got 'all'"),
    "format is text":     (lambda m: {**m, "format": "3"}, "format: expected an integer, got '3'"),
    "another format":     (lambda m: {**m, "format": 1}, "its format is 1, expected 4"),
    "fast-math is true":  (lambda m: {**m, "fast_math": True}, "fast_math: expected an object, got True"),
    "a field more":       (lambda m: {**m, "more": 1, "digest": ""}, "more is not known"),
}
DOES_NOT_HOLD: dict[str, tuple[Callable[[Json], Json], str]] = {
    "no claims":          (lambda m: {**m, "claims": []}, "the claims of the texts are not those written down"),
    "a claim twice":      (lambda m: {**m, "claims": [m["claims"][0], *m["claims"]]}, "not those written down"),
    "another solver":     (lambda m: {**m, "solver": "mine"}, "it was made with mine, expected"),
    "another program":    (lambda m: {**m, "program": "0" * 64}, "its digest of the tensor graph is not that of the text"),
    "no rules":           (lambda m: {**m, "rules": {}}, "its rules are not those of its steps"),
    "a rule more":        (lambda m: {**m, "rules": {**m["rules"], "x\x1b": ""}}, "rule x\\x1b is not proved by the ledger"),
    "nothing is trusted": (lambda m: {**m, "trusted": []}, "the trusted base is not the one"),
    "empty texts":        (lambda m: {**m, "texts": dict.fromkeys(C.TEXTS, "")}, "texts.tensor: expected at least one node"),
    "other dialect":      (lambda m: put(m, m["texts"]["join"], "texts", "plan"), "no lowering: SpecError: texts.plan"),
    "nothing at all":     (lambda m: {**m, **NOTHING}, "it claims nothing"),
    "steps of none":      (lambda m: {**m, "steps": []}, "the texts are no lowering"),
    "a step is no text":  (lambda m: put(m, "%", "steps", 0, 0, 1), "the texts are no lowering"),
    "a rest":             (lambda m: put(m, m["texts"]["linearize"] + "%x = const 3 : f64\n", "texts", "linearize"),
                           "the texts are no lowering"),
}
# fmt: on


@pytest.mark.parametrize("damage", NO_CERTIFICATE)
def test_what_is_no_certificate_is_one_line_with_the_place(certificate: Json, damage: str, uops: Any, tmp_path: Path) -> None:
    change, says = NO_CERTIFICATE[damage]
    (tmp_path / "c.json").write_text(json.dumps(change(copy.deepcopy(certificate))))
    result = uops("check-certificate", "c.json")
    assert result.exit_code == 2 and result.stdout == ""
    assert "c.json is no certificate" in result.stderr and says in result.stderr


@pytest.mark.parametrize("damage", DOES_NOT_HOLD)
def test_what_a_forger_leaves_out_or_adds_does_not_hold(certificate: Json, damage: str, uops: Any, tmp_path: Path) -> None:
    change, says = DOES_NOT_HOLD[damage]
    (tmp_path / "c.json").write_text(C.dump_certificate(change(copy.deepcopy(certificate))))
    result = uops("check-certificate", "c.json")
    assert result.exit_code == 1, result.output
    assert any(says in line for line in result.stdout.splitlines()), result.stdout
    assert all(line.startswith("c.json: ") for line in result.stdout.splitlines())
    assert "\x1b" not in result.stdout


def test_what_no_claim_is_about_is_tied_to_the_rest(certificate: Json, uops: Any, tmp_path: Path) -> None:
    """The numbers of the caller's Buffers, and names of kernels, were free."""
    made = {**certificate, "digest": json.loads(C.dump_certificate(certificate))["digest"]}
    for damaged in (put(copy.deepcopy(made), [], "callers"), put(copy.deepcopy(made), [*made["callers"], 7], "callers")):
        (tmp_path / "c.json").write_text(json.dumps(damaged))
        result = uops("check-certificate", "c.json")
        assert result.exit_code == 2 and "c.json is no certificate: its digest is not that of its contents" in result.stderr


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000, b'{"format": NaN}'])
def test_bytes_of_any_kind_are_one_line(data: bytes, uops: Any, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(data)
    result = uops("check-certificate", "c.json")
    assert result.exit_code == 2 and "c.json" in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_a_time_limit_is_one_that_timers_have(certificate: Json, uops: Any, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(C.dump_certificate(certificate))
    assert uops("check-certificate", "c.json", "--seconds", str(10**9)).exit_code == 0
    result = uops("check-certificate", "c.json", "--seconds", str(10**20))
    assert result.exit_code == 2 and "is not in the range" in result.stderr


def test_a_byte_order_mark_does_no_harm(certificate: Json, uops: Any, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b"\xef\xbb\xbf" + C.dump_certificate(certificate).encode())
    assert uops("check-certificate", "c.json").exit_code == 0


def test_a_check_ends_when_its_time_is_over(certificate: Json, uops: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the solver takes it, or the reader of texts."""
    (tmp_path / "c.json").write_text(C.dump_certificate(certificate))
    clock = iter(range(0, 100_000, 1000))
    with monkeypatch.context() as patched:
        patched.setattr(C.time, "monotonic", lambda: next(clock))
        result = uops("check-certificate", "c.json", "--seconds", "1")
    assert result.exit_code == 1 and "out of time" in result.stdout

    def slow(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(C, "_parse_texts_and_verify_ir", slow)
    monkeypatch.setattr(C, "SECONDS", 1)
    result = uops("check-certificate", "c.json", "--seconds", "1")
    assert result.exit_code == 1 and "not decided within 1 s" in result.stdout
