"""The processes in which cases are made and judged; `uops.fuzz.campaign.process` is the other side.

Started as `python -m uops.fuzz.campaign.serve READ WRITE LIFE`, three inherited pipe ends as in `uops.backends.worker.serve`. The
first frame is {setup, memory, path}. This process imports what is needed and serves by a child, which greets with {ready, declared,
compiler, together, pid}; when a child ends, another one takes its place after {died: status}, which costs a tenth of a new process.
A child answers, one at a time:

    {do: batch, first, stop, skip, together} {at: k} before work on a case, {done: what those gave that are done} now and then, and
                                             {batch: what all gave}; `together`: several at once
    {do: case, k}                      {oracle} before each oracle, and {case: its finding}
    {do: judge, sample, seed, oracle}  {judged: the fault}
    {do: bisect, sample, seed, oracle} {bisected: the places that the fault comes from}
    {do: renew}                        nothing: it ends
    {do: settle, sample, seed, oracle} {settled: a sample that holds what the oracle drew, oracle}

Whatever ends the child - a crash of compiled code, a limit - is for the other side to see.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from typing import IO, BinaryIO

from uops.backends import registry
from uops.backends.worker.frames import BadFrame, pack, read_frame
from uops.backends.worker.serve import end_with, end_with_parent, explain, limit, offer_to_be_killed
from uops.fuzz.campaign.examine import Bench, Examined, Json, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.reduce.reproducer import from_packet, to_packet
from uops.interp.allowed import allowed

#: Cases between two collections of garbage, which graphs make much of.
COLLECT = 64
#: Cases that are examined at once: with twice as many, machine code takes a twentieth less.
TOGETHER = 16
#: Seconds after which a batch tells what is done of it: so much of it is done again where it is cut off.
TELLING = 0.25
#: Exit status of a child that was told to go.
_RENEWED = 3
#: Seconds between two looks at whether a child still lives.
_LOOK = 0.01


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    read, write, life = (int(a) for a in arguments)
    end_with(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other side, which ends this one
    with open(write, "wb", buffering=0) as answers, open(read, "rb", buffering=0) as requests:
        first = read_frame(requests)  # nothing is read ahead, as it would be lost with a child
        if first is None:
            return
        try:
            _prepare(first[0])
        except BaseException as e:  # also what foreign code raises to end a process
            answers.write(pack({"broken": explain(first[0], e)}))
            return
        while (status := _life(first[0], requests, answers)) != 0:
            answers.write(pack({"died": status}))


def _prepare(settings: Json) -> None:
    """Import what every child needs."""
    offer_to_be_killed()
    sys.path.extend(settings["path"])
    limit(resource.RLIMIT_CORE, 0)
    setup = Setup.of(settings["setup"])
    for name in filter(None, (setup.backend, setup.against)):
        registry.factory(name)
    allowed(*kinds.sample(0, 0)[1:3])
    gc.collect()
    gc.freeze()
    gc.disable()


def _life(settings: Json, requests: BinaryIO, answers: IO[bytes]) -> int:
    """One child, to its end: 0 where it was told to go, else its exit status, or a signal below 0."""
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            threading.Thread(target=end_with_parent, args=(ours,), daemon=True).start()
            Server(answers).serve(settings, requests)
            status = 0
        finally:
            faulthandler.disable()
            os._exit(status)
    parent = os.getppid()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != parent:  # the other side is gone
            os.kill(child, signal.SIGKILL)
            return 0
        time.sleep(_LOOK)


class Server:
    """The state of a child: a bench, and the pipe for answers."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers

    def serve(self, settings: Json, requests: BinaryIO) -> None:
        faulthandler.enable(all_threads=False)
        if settings["memory"]:
            limit(resource.RLIMIT_AS, settings["memory"])
        try:
            self.bench = Bench(Setup.of(settings["setup"]))
            subject = self.bench.subject
            version = registry.version(subject.name, subject.backend)
        except BaseException as e:
            self.tell({"broken": explain(settings, e)})
            return
        self.tell({"ready": version, "declared": self.bench.declared.to_json(), "pid": os.getpid(),
                   "compiler": subject.target is not None, "together": self.bench.together})  # fmt: skip
        while (request := read_frame(requests)) is not None:
            header, body = request
            if not isinstance(do := header.get("do"), str) or not hasattr(self, f"do_{do}"):
                raise BadFrame(f"nobody is asked to do {do!r:.80}")
            getattr(self, f"do_{do}")(header, body)

    def tell(self, header: Json, body: bytes = b"") -> None:
        self._answers.write(pack(header, body))

    def do_renew(self, asked: Json, body: bytes) -> None:
        """End; the next child starts with the memory that the first one had."""
        os._exit(_RENEWED)

    def do_batch(self, asked: Json, body: bytes) -> None:
        counts: Counter[str] = Counter()
        findings: list[Json] = []
        told = time.monotonic()
        cases = [k for k in range(asked["first"], asked["stop"]) if k not in asked["skip"]]
        size = TOGETHER if asked["together"] else 1
        for n in range(0, len(cases), size):
            for found in self.bench.cases(cases[n : n + size], lambda k: self.tell({"at": k})):
                counts.update(found.counts)
                if found.oracle is not None:
                    findings.append(_finding(found))
                if found.k % COLLECT == 0:
                    self._collect()
                if time.monotonic() - told > TELLING:
                    self.tell({"done": {"counts": counts, "findings": findings, "stop": found.k + 1}})
                    told = time.monotonic()
        self.tell({"batch": {"counts": counts, "findings": findings, "stop": asked["stop"]}})

    def _collect(self) -> None:
        """Collect garbage; what is left - modules, tables, memory of passes - is not looked at again in this child's life."""
        gc.collect()
        gc.freeze()

    def do_case(self, asked: Json, body: bytes) -> None:
        found = self.bench.case(asked["k"], lambda name: self.tell({"oracle": name}))
        self.tell({"case": None if found.oracle is None else _finding(found)})

    def do_judge(self, asked: Json, body: bytes) -> None:
        fault = self.bench.judge(from_packet(asked["sample"], body), asked["seed"], asked["oracle"])
        self.tell({"judged": fault and fault._asdict()})

    def do_bisect(self, asked: Json, body: bytes) -> None:
        self.tell({"bisected": self.bench.bisected(from_packet(asked["sample"], body), asked["seed"], asked["oracle"])})

    def do_settle(self, asked: Json, body: bytes) -> None:
        sample, oracle = self.bench.settled(from_packet(asked["sample"], body), asked["seed"], asked["oracle"])
        header, data = to_packet(sample)
        self.tell({"settled": header, "oracle": oracle}, data)


def _finding(found: Examined) -> Json:
    assert found.fault is not None
    return {"k": found.k, "oracle": found.oracle, "fault": found.fault._asdict()}


if __name__ == "__main__":
    main(sys.argv[1:])
