"""Frames between processes, harmed in either direction: an outcome or one line, and no traceback, hang, or allocation without end.

Inputs are functions of a seed and a number. Each is a stream of frames as a process writes them, changed where its structure says
that it hurts: values and keys of the header, the two sizes, the body, or single bytes.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops.backends import arrays
from uops.backends.arrays import encode_arrays, encode_result
from uops.backends.conformance.controls import Interp
from uops.backends.conformance.stage_judge import Fault
from uops.backends.contract import Capabilities
from uops.backends.registry import BackendInfo, BrokenBackend
from uops.backends.worker import client, frames, serve
from uops.backends.worker.client import STATUSES, Limits, Outcome, _WorkerProcess
from uops.backends.worker.frames import MARK, BadFrame, Frame, pack_frame
from uops.fuzz.campaign import process as fuzz_process
from uops.fuzz.campaign.examine import FaultLocation, Setup
from uops.fuzz.campaign.process import BatchResult, Examiner, ProcessLost, _CaseServerProcess
from uops.fuzz.generate.declared import EVERYTHING
from uops.fuzz.generate.kinds import KINDS, ProgramSample, sample
from uops.fuzz.reduce.reproducer import to_packet
from uops.spec.result import Result
from uops.spec.untrusted import escape_unprintable

#: Inputs of each direction in the usual tests, and in an environment of their own.
SAMPLE, MANY = 250, 20_000
#: Seconds for one input, and bytes that all of them may add to the memory of this process.
SECONDS, GROWTH = 5.0, 256 << 20
SEED = 28

GREETING = BackendInfo("fake", "fake 1", Capabilities(), False).to_json()
SERVING = {"ready": "fake 1", "declared": EVERYTHING.to_json(), "pid": 1, "compiler": True, "together": False}
RESULT = Result((np.arange(6, dtype=np.float32).reshape(2, 3),), {"b1": np.array([2**70, 1], dtype=object)})
FAULT = {"kind": "value", "message": "wrong", "output": 0, "element": 1, "got": "1", "allowed": "2"}
SPELL = "\x1b[31m\ud800\u202e"
NASTY = (None, True, -1, 0, 2**31, 2**63, 2**200, 1.5, -0.0, "", SPELL, "x" * 5000, "9" * 5000, [], {}, [[]], {"": {}})


# ----------------------------------------------------------------------------------------------------------------- mutation


def harmed(frame: tuple[dict[str, Any], bytes], draw: random.Random) -> bytes:
    """A frame with one to three harms."""
    header, body = json.loads(json.dumps(frame[0])), frame[1]
    kind = draw.choice(("value", "value", "value", "key", "body", "sizes", "bytes", "text", "none"))
    for _ in range(draw.randint(1, 3)):
        if kind == "value":
            header = replaced(header, draw)
        elif kind == "key":
            header = rekeyed(header, draw)
    if kind == "body":
        body = draw.choice((b"", body[: draw.randint(0, len(body))], body + bytes(draw.randint(1, 64)), b"\xff" * len(body)))
    data = pack_frame(header, body) if isinstance(header, dict) else framed(json.dumps(header).encode(), body)
    if kind == "sizes":
        sizes = [draw.choice((0, 1, 7, 1 << 20, (1 << 32) - 1)), draw.choice((0, 1, 1 << 20, 1 << 40, 1 << 60, (1 << 64) - 1))]
        data = MARK + struct.pack("<IQ", *sizes) + data[16:]
    elif kind == "text":
        deep = b'{"a":' * 900 + b"1" + b"}" * 900
        words = (b"[1]", b"[" * 100_000, b"{", b"\xff\xfe", b"NaN", b'{"status":NaN}', deep, b'"\\ud800"')
        data = framed(draw.choice(words), body)
    elif kind == "bytes":
        at = draw.randrange(len(data) + 1)
        other = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        data = draw.choice((data[:at], other, b"\xff" * 64, data[at:], data + data[:at]))
    return data


def framed(text: bytes, body: bytes) -> bytes:
    return MARK + struct.pack("<IQ", len(text), len(body)) + text + body


def replaced(value: Any, draw: random.Random) -> Any:
    """The value with something in it replaced."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        k = draw.choice(sorted(value))
        return {**value, k: replaced(value[k], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        k = draw.randrange(len(value))
        return [*value[:k], replaced(value[k], draw), *value[k + 1 :]]
    if isinstance(value, str) and draw.random() < 0.4:
        return value + SPELL
    if type(value) is int and draw.random() < 0.5:
        return value + draw.choice((-1, 1, 7))
    return draw.choice(NASTY)


def rekeyed(value: Any, draw: random.Random) -> Any:
    """The value with a key left out, added or renamed somewhere."""
    if not isinstance(value, dict) or not value:
        return value
    k = draw.choice(sorted(value))
    if isinstance(value[k], dict) and draw.random() < 0.5:
        return {**value, k: rekeyed(value[k], draw)}
    rest = {n: v for n, v in value.items() if n != k}
    more = draw.choice(("v7", "int", "died", "broken", SPELL))
    return draw.choice((rest, {**rest, k + "x": value[k]}, {**value, more: draw.choice(NASTY)}))


def streams(title: str, whole: list[tuple[dict[str, Any], bytes]], count: int) -> Iterator[tuple[int, bytes]]:
    """Numbers and streams: whole frames, one of which is harmed."""
    for k in range(count):
        draw = random.Random(f"{title}/{SEED}/{k}")
        at = draw.randrange(len(whole))
        yield k, b"".join(harmed(f, draw) if n == at else pack_frame(*f) for n, f in enumerate(whole))


# ------------------------------------------------------------------------------------------------------ a process that is none


class NoProcess:
    """What `Process` asks of `subprocess.Popen`, of a process that has ended; no process has its number."""

    pid = 1 << 30

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def kill(self) -> None:
        pass


def answering(data: bytes, monkeypatch: pytest.MonkeyPatch, kind: type[Any], *more: Any) -> Any:
    """A process whose answers are these bytes, and then the end; `more` is what its kind takes. Raises BrokenBackend."""
    made: list[int] = []
    pipe = client._make_large_pipe

    def ours() -> tuple[int, int]:
        read, write = pipe()
        made.append(write)
        if len(made) == 2:  # that of the answers
            end = os.dup(write)
            threading.Thread(target=fill, args=(end, data), daemon=True).start()
        return read, write

    monkeypatch.setattr(client, "_make_large_pipe", ours)
    monkeypatch.setattr(subprocess, "Popen", NoProcess)
    monkeypatch.setattr(kind, "write_frame_or_mark_hung", lambda self, *arguments: None)
    return kind({}, Limits(timeout=SECONDS, start=SECONDS), {}, *more)


def fill(end: int, data: bytes) -> None:
    try:
        with open(end, "wb") as f:
            f.write(data)
    except BrokenPipeError:
        pass


# ------------------------------------------------------------------------------------------------------------- what may happen


def from_a_worker(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Two outcomes, read by the side that started the process; what is wrong with what came of it."""
    try:
        process = answering(data, monkeypatch, _WorkerProcess)
    except BrokenBackend as e:
        return line(str(e))
    wrong = next((w for w in map(line, (process.version, process.backend_info.name)) if w), None)
    for _ in range(2):
        found = process.receive_outcome(SECONDS)
        lost = found is None
        found = process.end_and_explain_no_answer(SECONDS) if found is None else found
        wrong = wrong or outcome_wrong(found, len(data))
        if lost:
            return wrong
    process.end(0.0)
    return wrong


def outcome_wrong(found: Outcome, size: int) -> str | None:
    if found.status not in STATUSES or (found.status == "ok") != (found.result is not None):
        return f"status {found.status}"
    given = [] if found.result is None else [*found.result.values, *found.result.buffers.values()]
    if sum(np.asarray(a).nbytes for a in given) > 8 * size:
        return "arrays larger than what came"
    if not all(type(n) is int and n >= 0 for n in (*found.applied.values(), *found.validated.values())):
        return f"counts {found.applied} and {found.validated}"
    names = (found.message, *found.applied, *(found.result.buffers if found.result else ()))
    return next((w for n in names if (w := line(n))), None)


def line(text: object) -> str | None:
    if not isinstance(text, str) or escape_unprintable(text) != text or len(text) > 10_000 or "\n" in text:
        return f"not one printable line: {text!r:.200}"
    return None


def from_a_campaign(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Answers of the process of a campaign."""
    try:
        process = answering(data, monkeypatch, _CaseServerProcess, lambda begun: None)
    except BrokenBackend as e:
        return line(str(e))
    examiner = Examiner(Setup("fake"), Limits(timeout=SECONDS))
    examiner._process = process
    some = sample(0, 0)
    asked: tuple[Callable[[], Any], ...] = (
        lambda: examiner._run_batch_once(0, 2, [], [0], False), lambda: examiner._run_one_case_in_current_child(3),
        lambda: examiner._query_fault_or_process_loss(some, 0, "allowed"),
        lambda: examiner._query_location_else_machine_code_on_crash(some, 0, "allowed"),
        lambda: examiner.move_oracle_draws_into_sample_if_still_faulty(some, 0, "allowed"),
    )  # fmt: skip
    for ask in asked:
        if examiner._process is None:
            return None
        try:
            found = ask()
        except ProcessLost as lost:
            return line(lost.outcome.message)
        if wrong := told_wrong(found):
            return wrong
    process.end(0.0)
    return None


def told_wrong(found: Any) -> str | None:
    """What is wrong with a batch, a finding, a fault, a place or a sample."""
    if isinstance(found, BatchResult):
        return next((w for f in found.findings if (w := told_wrong(f))), None) or next(
            (f"count {n!r}" for n in found.counts.values() if type(n) is not int), None
        )
    if isinstance(found, dict):
        return line(found["oracle"]) or told_wrong(Fault(**found["fault"])) if type(found["k"]) is int else f"case {found['k']!r}"
    if isinstance(found, Fault):
        fits = all(v is None or isinstance(v, int | str) for v in found[2:])
        return (line(found.kind) or line(found.message)) if fits else f"fault {found!r:.200}"
    if isinstance(found, FaultLocation):
        return next((w for v in found if v is not None and (w := line(v))), None)
    if isinstance(found, ProgramSample):
        return None if found.kind in KINDS else f"kind {found.kind!r}"
    if isinstance(found, tuple):
        return next((w for v in found if (w := told_wrong(v))), None)
    return None if found is None or isinstance(found, bool) else line(found)


class Echo(Interp):
    def run(self, graph: Any, inputs: Any) -> Result:
        return Result(tuple(inputs.values()), {})


def from_us(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Requests, read by the process of a backend."""
    try:
        told = replies(data, monkeypatch)
    except (BadFrame, MemoryError) as e:
        return line(str(e))
    size = len(data) + sum(len(body) for _, body in told)
    outcomes = [client._parse_outcome(*found) for found in told if "status" in found[0]]
    return next((w for found in outcomes if (w := outcome_wrong(found, size))), None)


def replies(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """What the process of a backend writes, of which these bytes are the requests. Raises BadFrame or MemoryError."""
    known = BackendInfo("echo", "1", Capabilities(), False)
    loaded = serve.LoadedBackend(Echo(), known)
    monkeypatch.setattr(serve, "load_backend_under_memory_limit", lambda settings: loaded)
    told = io.BytesIO()
    serve.load_backend_and_serve_batches(io.BytesIO(data), told)
    rest, found = told.getvalue(), []
    while rest:
        split = frames.parse_first_frame_and_length(rest)
        assert split is not None
        found.append(split[0])
        rest = rest[split[1] :]
    return found


def answer(status: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "message": "", "result": None, "seconds": 0.1, "applied": {"Swap": 1}, **more}


def directions() -> dict[str, tuple[list[tuple[dict[str, Any], bytes]], Callable[[bytes, pytest.MonkeyPatch], str | None]]]:
    header, body = encode_result(RESULT)
    packet, inputs = to_packet(sample(0, 0))
    given, data = encode_arrays({"p0": np.arange(4, dtype=np.int16), "n": 7})
    done = {"done": {"counts": {"cases": 1}, "findings": [], "stop": 1}}
    batch = {
        "batch": {"counts": {"cases": 2}, "findings": [{"k": 1, "oracle": "allowed", "fault": FAULT}], "stop": 2},
        "full": False,
    }
    case = {"case": {"k": 3, "oracle": "allowed", "fault": FAULT}}
    campaign = [
        (SERVING, b""), ({"at": 0}, b""), (done, b""), ({"at": 1}, b""), (batch, b""), ({"oracle": "allowed"}, b""), (case, b""),
        ({"judged": FAULT}, b""), ({"bisected": ["select", "select", None, "rule", None]}, b""),
        ({"frozen": packet, "oracle": "allowed"}, inputs),
    ]  # fmt: skip
    ours = [({"backend": "echo", "options": {}, "memory": 0, "path": []}, b""),
            ({"cases": [{"program": "%0 = const 1 : i32\n", "inputs": given}] * 2}, data)]  # fmt: skip
    judged = [(GREETING, b""), (answer("ok", result=header), body), (answer("error", message="ValueError: no"), b"")]
    return {"worker": (judged, from_a_worker), "campaign": (campaign, from_a_campaign), "us": (ours, from_us)}


def wrongs(title: str, count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that went wrong, each with its number."""
    whole, judge = directions()[title]
    found = []
    for k, data in streams(title, whole, count):
        start = time.monotonic()
        try:
            with monkeypatch.context() as patch:
                wrong = judge(data, patch)
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"[:300]
        if time.monotonic() - start > SECONDS:
            wrong = f"no answer within {SECONDS} s"
        if wrong:
            found.append(f"{title}, input {k}: {wrong}")
    return found


DIRECTIONS = ("worker", "campaign", "us")


@pytest.mark.parametrize("title", DIRECTIONS)
def test_whole_frames_are_what_they_were(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise AssertionError("whole frames were refused")

    whole, judge = directions()[title]
    monkeypatch.setattr(client.BackendProcess, "end_and_explain_no_answer", fail)
    assert judge(b"".join(pack_frame(*f) for f in whole), monkeypatch) is None


def test_whole_requests_are_answered_with_what_they_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else harmed ones would reach no reader of cases and of arrays."""
    whole, _ = directions()["us"]
    greeting, *answers = replies(b"".join(pack_frame(*f) for f in whole), monkeypatch)
    assert greeting[0]["name"] == "echo"
    for found in (client._parse_outcome(*a) for a in answers):
        assert (found.status, found.message) == ("ok", "") and found.result is not None
        assert [np.asarray(v).tolist() for v in found.result.values] == [[0, 1, 2, 3], 7]
    assert len(answers) == 2


@pytest.mark.parametrize("title", DIRECTIONS)
def test_harmed_frames_are_an_outcome_or_a_line(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert wrongs(title, SAMPLE, monkeypatch) == []
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < GROWTH


HOLES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "texts are not made safe": ("worker", lambda m: m.setattr(frames, "make_texts_printable", lambda value: value)),
    "arrays are believed": (
        "worker",
        lambda m: m.setattr(arrays, "_decode_array_naming_it_in_errors", lambda name, *rest: arrays._decode_array_or_int(*rest)),
    ),
    "counts are believed": ("worker", lambda m: m.setattr(client, "_read_counts", lambda h, name: h.get(name, {}).copy())),
    "faults are believed": (
        "campaign", lambda m: m.setattr(fuzz_process, "_parse_fault", lambda found: fuzz_process.Fault(**found))
    ),
    "requests are believed": ("us", lambda m: m.setattr(frames, "_parse_object", json.loads)),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_a_planted_hole_is_found(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    title, plant = HOLES[hole]
    plant(monkeypatch)
    assert wrongs(title, SAMPLE, monkeypatch)


@pytest.mark.hostile
@pytest.mark.parametrize("title", DIRECTIONS)
def test_many_harmed_frames_are_an_outcome_or_a_line(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrongs(title, MANY, monkeypatch) == []
