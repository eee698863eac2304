"""Reproducers: what is written is read again, with every input that the program takes and no other; `uops run` and `uops fuzz` take
the file, and a header that cannot be used is named by file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from uops.backends.answer import collect_caller_input_nodes
from uops.cli import main
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.generate.schedules import find_unreadable_part
from uops.fuzz.reduce.reproducer import (
    Reproducer,
    format_reproducer,
    from_packet,
    read_dialect_or_none_without_header,
    read_reproducer,
    to_packet,
    write_reproducer,
)
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.verify.dialects import Dialect

ABOUT: dict[str, Any] = {"oracle": "allowed", "seed": 1, "setup": Setup("interp").to_json()}
PROGRAM = "%0 = param (2), slot=0 : i32\n%1 = neg %0\n"


def uops(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="uops")


def again(sample: ProgramSample, path: Path) -> ProgramSample:
    write_reproducer(path, Reproducer(sample, ABOUT))
    return read_reproducer(path).sample


def same(a: ProgramSample, other: ProgramSample) -> bool:
    arrays = [{k: (np.asarray(v).tobytes(), np.shape(v)) for k, v in s.inputs.items()} for s in (a, other)]
    return a.graph is other.graph and (a.kind, a.opts) == (other.kind, other.opts) and arrays[0] == arrays[1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_is_read_as_it_was_written_and_is_run(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    for k in range(25):
        sample = kinds.sample(7, k, (kind,))
        assert same(again(sample, path), sample)
        if k < 3:
            assert uops("run", path).exit_code == 0


def test_an_input_that_the_program_does_not_take_is_not_written(tmp_path: Path) -> None:
    """A Param of a body is bound: its number is no input's."""
    own, outer = b.param(0, (3,), dt.int32), b.param(1, (3,), dt.int32)
    called = b.get(b.function(b.tuple_(b.neg(own)), outer), 0)
    given = {k: np.arange(3, dtype=np.int32) for k in ("p0", "p1", "b7")}
    found = again(ProgramSample("bodies", called, given), tmp_path / "x.uops")
    assert found.inputs.keys() == collect_caller_input_nodes(called).keys() == {"p1"}


@pytest.mark.parametrize("opts", [None, "", "0:swap 0 1; 1:nolocals", "draw 7", "beam 7"])
def test_a_drawn_schedule_is_not_one_without_optops(opts: str | None, tmp_path: Path) -> None:
    sample = kinds.sample(7, 0)._replace(opts=opts)
    assert again(sample, tmp_path / "x.uops").opts == opts
    header, body = to_packet(sample)
    assert from_packet(json.loads(json.dumps(header)), body).opts == opts


def test_a_header_without_optops_means_that_they_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    assert kinds.sample(7, 0).opts is None
    path.write_text(f"; uops fuzz: {json.dumps(ABOUT | {'kind': 'tensor'})}\n{PROGRAM}", encoding="utf-8")
    assert read_reproducer(path).sample.opts is None


def test_an_oracle_runs_no_optops_where_the_sample_says_so() -> None:
    bench = CaseRunner(Setup("llvm"))
    drawn = next(
        s
        for s in (bench.freeze_oracle_choices(bench.draw_sample(k), bench.case_seed(k), "scheduled")[0] for k in range(40))
        if s.opts
    )
    assert bench.freeze_oracle_choices(drawn, 1, "scheduled")[0].opts == drawn.opts
    assert bench.freeze_oracle_choices(drawn._replace(opts=""), 1, "scheduled")[0].opts == ""


def test_uops_run_takes_the_dialect_of_the_kind(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    write_reproducer(path, Reproducer(kinds.sample(7, 0, ("kernels",)), ABOUT))
    assert read_dialect_or_none_without_header(path) is Dialect.SCHEDULED
    assert uops("run", path).exit_code == 0
    assert "TENSOR" in uops("run", path, "-d", "tensor").output
    assert uops("run", path, "-b", "llvm").exit_code == 0
    path.write_text(PROGRAM, encoding="utf-8")
    assert read_dialect_or_none_without_header(path) is None
    assert uops("run", path).exit_code == 0


def _with(*path: str, value: Any = ...) -> str:
    """A header with another value under a key, or without it."""
    about: dict[str, Any] = json.loads(json.dumps(ABOUT | {"kind": "tensor"}))
    *places, key = path
    inner = about
    for p in places:
        inner = inner[p]
    inner.pop(key, None)
    inner.update({} if value is ... else {key: value})
    return json.dumps(about)


# fmt: off
BROKEN = [
    ('{"kind": "tensor"',                             "it is no JSON: Expecting"),
    ("[1]",                                           "it is an array, expected an object"),
    ("1.5",                                           "it is a number, expected an object"),
    (_with("kind"),                                   "kind is missing"),
    (_with("kind", value="nothing"),                  "kind: 'nothing' is not known; known: tensor, "),
    (_with("kind", value=["tensor"]),                 "kind is an array, expected a string"),
    (_with("opts", value=3),                          "opts is an integer, expected a string or null"),
    (_with("opts", value="0:swap 0 1; 0:turn 1"),     "opts: '0:turn 1' is no OptOp"),
    (_with("oracle"),                                 "oracle is missing"),
    (_with("oracle", value="nobody"),                 "oracle: 'nobody' is not known; known: form, "),
    (_with("seed"),                                   "seed is missing"),
    (_with("seed", value=True),                       "seed is true or false, expected an integer"),
    (_with("setup"),                                  "setup is missing"),
    (_with("setup", value="interp"),                  "setup is a string, expected an object"),
    (_with("setup", "backend"),                       "setup.backend is missing"),
    (_with("setup", "more", value=1),                 "setup.more is not known; known: backend, seed, "),
    (_with("setup", "kinds", value=["tensor", "x"]),  "setup.kinds: 'x' is not known"),
    (_with("setup", "oracles", value=[["x"]]),        "setup.oracles: ['x'] is not known"),
    (_with("setup", "options", value=[]),             "setup.options is an array, expected an object or null"),
]
# fmt: on


@pytest.mark.parametrize(("header", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_a_header_that_cannot_be_used_is_named_by_file_line_and_key(header: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    path.write_text(f"; by hand\n; uops fuzz: {header}\n; input p0: 1 2\n{PROGRAM}", encoding="utf-8")
    with pytest.raises(SpecError) as e:
        read_reproducer(path)
    assert str(e.value).startswith(f"{path}, line 2: the header '; uops fuzz:' cannot be used: {message}")
    assert e.value.line == 2
    found = uops("fuzz", path)
    assert isinstance(found.exception, SystemExit) and found.exit_code == 2
    assert message in found.output


def test_every_setup_of_a_campaign_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    for setup in (Setup("llvm"), Setup("llvm", 3, ("tensor", "kernels"), ("allowed",), "interp", {"tier": "fast"}, ("/x",))):
        about = ABOUT | {"setup": setup.to_json()}
        path.write_text(format_reproducer(Reproducer(kinds.sample(7, 0), about)), encoding="utf-8")
        assert Setup.from_json(read_reproducer(path).about["setup"]) == Setup.from_json(setup.to_json())


def test_what_sequences_can_say() -> None:
    said = ("", " ", "draw 3", "beam 3", "0:chosen; 1:joined", "0:global; 0:split 1 4 UPCAST", "0:split 0 8 LOOP top", "1:nolocals")
    assert [find_unreadable_part(s) for s in said] == [None] * len(said)
    wrong = ("a:swap 0 1", "swap 0 1", "0:", "0:split 1 4", "0:split 1 4 NONE", "0:swap x", "0:swap 1 2 3", "draw x")
    assert [find_unreadable_part(s) for s in wrong] == list(wrong)
