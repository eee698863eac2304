"""The process in which cases are made and judged; `uops.fuzz.process` is its other side.

Started as `python -m uops.fuzz.serve READ WRITE`, two inherited pipe ends; frames as in `uops.backends.serve`. The first frame is
{setup, memory, path}. Then, one at a time:

    {do: batch, first, stop, skip}     {at: k} before each case, and {batch: what they gave together}
    {do: case, k}                      {oracle} before each oracle, and {case: its finding}
    {do: judge, sample, seed, oracle}  {judged: the fault}
    {do: bisect, sample, oracle}       {bisected: the places that the fault comes from}

Whatever ends the process - a crash of compiled code, a limit - is for the other side to see.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
from collections import Counter
from typing import IO, BinaryIO

from uops.backends.serve import end_with_parent, limit, pack, read_frame
from uops.fuzz.examine import Bench, Examined, Json, Setup
from uops.fuzz.reproducer import from_packet

#: Cases between two collections of garbage, which graphs make much of.
_COLLECT = 64


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        Server(answers).serve(requests)


class Server:
    """The state of the process: a bench, and the pipe for answers."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers

    def serve(self, requests: BinaryIO) -> None:
        faulthandler.enable(all_threads=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other side, which ends this one
        threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
        first = read_frame(requests)
        if first is None:
            return
        try:
            self.bench = _bench(first[0])
        except Exception as e:
            self.tell({"broken": f"{type(e).__name__}: {e}"})
            return
        self.tell({"ready": self.bench.subject.backend.version()})
        gc.freeze()
        gc.disable()
        while (request := read_frame(requests)) is not None:
            header, body = request
            getattr(self, f"do_{header['do']}")(header, body)

    def tell(self, header: Json, body: bytes = b"") -> None:
        self._answers.write(pack(header, body))

    def do_batch(self, asked: Json, body: bytes) -> None:
        counts: Counter[str] = Counter()
        findings = []
        for k in range(asked["first"], asked["stop"]):
            if k in asked["skip"]:
                continue
            self.tell({"at": k})
            found = self.bench.case(k)
            counts.update(found.counts)
            if found.oracle is not None:
                findings.append(_finding(found))
            if k % _COLLECT == 0:
                gc.collect()
        self.tell({"batch": {"counts": counts, "findings": findings}})

    def do_case(self, asked: Json, body: bytes) -> None:
        found = self.bench.case(asked["k"], lambda name: self.tell({"oracle": name}))
        self.tell({"case": None if found.oracle is None else _finding(found)})

    def do_judge(self, asked: Json, body: bytes) -> None:
        fault = self.bench.judge(from_packet(asked["sample"], body), asked["seed"], asked["oracle"])
        self.tell({"judged": fault and fault._asdict()})

    def do_bisect(self, asked: Json, body: bytes) -> None:
        self.tell({"bisected": self.bench.bisected(from_packet(asked["sample"], body), asked["oracle"])})


def _bench(settings: Json) -> Bench:
    sys.path.extend(settings["path"])
    limit(resource.RLIMIT_CORE, 0)
    if settings["memory"]:
        limit(resource.RLIMIT_AS, settings["memory"])
    return Bench(Setup.of(settings["setup"]))


def _finding(found: Examined) -> Json:
    assert found.fault is not None
    return {"k": found.k, "oracle": found.oracle, "fault": found.fault._asdict()}


if __name__ == "__main__":
    main(sys.argv[1:])
