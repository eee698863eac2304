"""The process in which cases are examined; `uops.fuzz.campaign.process` is its client.

Started as `python -m uops.fuzz.campaign.serve READ WRITE LIFE`, with three inherited pipe ends as in
`uops.backends.worker.serve`. The first frame is {setup, memory, path}. This process imports what is needed and serves through a
forked child, which greets with {ready, declared, compiler, together, pid}. When a child ends, the process answers {died:
status} and forks another one, which costs a tenth of a new process. A child answers one question at a time:

    {do: batch, first, stop, skip, together} {at: k} before work on a case, {done: result} of the cases done so far now and
                                             then, and {batch: result, full} of all; `together`: compile several at once,
                                             `full`: much of the memory limit is used, and the child should be replaced
    {do: case, k}                      {oracle} before each oracle, and {case: its finding}
    {do: judge, sample, seed, oracle}  {judged: the fault}
    {do: bisect, sample, seed, oracle} {bisected: the location of the fault}
    {do: renew}                        nothing: it ends
    {do: freeze_choices, sample, seed, oracle}
                                       {frozen: a sample that holds what the oracle drew, oracle}

A crash of compiled code, or a limit, ends the child; the client sees that.
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
from uops.backends.worker.frames import BadFrame, pack_frame, read_frame_or_none_at_end_or_cut
from uops.backends.worker.serve import (
    arrange_group_kill_on_close,
    explain_load_failure,
    poll_parent_and_exit_when_orphaned,
    raise_oom_score,
    set_resource_limit,
)
from uops.fuzz.campaign.examine import CaseOutcome, CaseRunner, Json, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.oracles.leaks import measure_mapped_bytes
from uops.fuzz.reduce.reproducer import from_packet, to_packet
from uops.interp.allowed import compute_allowed_sets

#: Number of cases between two garbage collections; graphs produce much garbage.
COLLECT = 64
#: Number of cases compiled together. Twice as many would save only 5 % of the compile time.
TOGETHER = 16
#: Seconds between two reports of a batch's progress; an interruption loses at most that much work.
TELLING = 0.25
#: Exit status of a child that was asked to end.
_RENEWED = 3
#: Share of the memory limit above which a child should be replaced. What is left is for the next batch: PoCL maps 4 MB per case.
FULL = 0.5
#: Seconds between two checks whether a child still runs.
_LOOK = 0.01


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    read, write, life = (int(a) for a in arguments)
    arrange_group_kill_on_close(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which ends this process
    with open(write, "wb", buffering=0) as answers, open(read, "rb", buffering=0) as requests:
        first = read_frame_or_none_at_end_or_cut(requests)  # unbuffered: a child that ends would lose frames that it has read ahead
        if first is None:
            return
        try:
            _preload_modules_and_prepare_for_forks(first[0])
        except BaseException as e:  # foreign code may raise SystemExit
            answers.write(pack_frame({"broken": explain_load_failure(first[0], e)}))
            return
        while (status := _fork_case_server_and_wait(first[0], requests, answers)) != 0:
            answers.write(pack_frame({"died": status}))


def _preload_modules_and_prepare_for_forks(settings: Json) -> None:
    """Import everything that a child needs, and freeze it."""
    raise_oom_score()
    sys.path.extend(settings["path"])
    set_resource_limit(resource.RLIMIT_CORE, 0)
    setup = Setup.from_json(settings["setup"])
    for name in filter(None, (setup.backend, setup.against)):
        registry.import_factory(name)
    compute_allowed_sets(*kinds.sample(0, 0)[1:3])
    gc.collect()
    gc.freeze()
    gc.disable()


def _fork_case_server_and_wait(settings: Json, requests: BinaryIO, answers: IO[bytes]) -> int:
    """Fork a child and wait for its end.

    Return 0 if it was asked to end or the client is gone, else its exit status, or a negative signal number.
    """
    server_pid = os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            threading.Thread(target=poll_parent_and_exit_when_orphaned, args=(server_pid,), daemon=True).start()
            CaseServer(answers).serve(settings, requests)
            status = 0
        finally:
            faulthandler.disable()
            os._exit(status)
    parent = os.getppid()
    while True:
        ended_pid, status = os.waitpid(child, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != parent:  # the client is gone
            os.kill(child, signal.SIGKILL)
            return 0
        time.sleep(_LOOK)


class CaseServer:
    """The state of a child: the runner of cases, and the pipe for answers."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self.memory_limit = 0  # in bytes of mapped memory; 0 for none

    def serve(self, settings: Json, requests: BinaryIO) -> None:
        """Greet, and answer questions until the request pipe is closed. Raises BadFrame if a question is unknown."""
        faulthandler.enable(all_threads=False)
        self.memory_limit = settings["memory"] or 0
        if self.memory_limit:
            set_resource_limit(resource.RLIMIT_AS, self.memory_limit)
        try:
            self.runner = CaseRunner(Setup.from_json(settings["setup"]))
            subject = self.runner.subject
            version = registry.query_version(subject.name, subject.backend)
        except BaseException as e:
            self.send({"broken": explain_load_failure(settings, e)})
            return
        self.send({"ready": version, "declared": self.runner.declared.to_json(), "pid": os.getpid(),
                   "compiler": subject.target is not None, "together": self.runner.compiles_together})  # fmt: skip
        while (request := read_frame_or_none_at_end_or_cut(requests)) is not None:
            header, body = request
            if not isinstance(do := header.get("do"), str) or not hasattr(self, f"do_{do}"):
                raise BadFrame(f"expected a known question under 'do', got {do!r:.80}")
            getattr(self, f"do_{do}")(header, body)

    def send(self, header: Json, body: bytes = b"") -> None:
        """Write one answer."""
        self._answers.write(pack_frame(header, body))

    def do_renew(self, request: Json, body: bytes) -> None:
        """End; the next child starts with the memory of the first one."""
        os._exit(_RENEWED)

    def do_batch(self, request: Json, body: bytes) -> None:
        """Examine the cases of a batch, reporting progress."""
        counts: Counter[str] = Counter()
        findings: list[Json] = []
        reported = time.monotonic()
        cases = [k for k in range(request["first"], request["stop"]) if k not in request["skip"]]
        size = TOGETHER if request["together"] else 1
        for n in range(0, len(cases), size):
            for outcome in self.runner.run_cases_compiled_together(cases[n : n + size], lambda k: self.send({"at": k})):
                counts.update(outcome.counts)
                if outcome.oracle is not None:
                    findings.append(_finding_to_json(outcome))
                if outcome.k % COLLECT == 0:
                    self._collect_garbage()
                if time.monotonic() - reported > TELLING:
                    self.send({"done": {"counts": counts, "findings": findings, "stop": outcome.k + 1}})
                    reported = time.monotonic()
        result = {"counts": counts, "findings": findings, "stop": request["stop"]}
        self.send({"batch": result, "full": self._uses_much_memory()})

    def _uses_much_memory(self) -> bool:
        """Return True if much of the memory limit is used; False without a limit, and where the system does not tell."""
        try:
            return bool(self.memory_limit) and measure_mapped_bytes() > FULL * self.memory_limit
        except OSError:
            return False

    def _collect_garbage(self) -> None:
        """Collect garbage, and exclude what is left from later collections: modules, tables, memoized results of passes."""
        gc.collect()
        gc.freeze()

    def do_case(self, request: Json, body: bytes) -> None:
        """Examine one case, reporting each oracle."""
        outcome = self.runner.generate_and_judge_case(request["k"], lambda name: self.send({"oracle": name}))
        self.send({"case": None if outcome.oracle is None else _finding_to_json(outcome)})

    def do_judge(self, request: Json, body: bytes) -> None:
        """Ask one oracle about a sample."""
        fault = self.runner.judge_sample(from_packet(request["sample"], body), request["seed"], request["oracle"])
        self.send({"judged": fault and fault._asdict()})

    def do_bisect(self, request: Json, body: bytes) -> None:
        """Locate the fault that an oracle finds in a sample."""
        self.send({"bisected": self.runner.bisect_sample(from_packet(request["sample"], body), request["seed"], request["oracle"])})

    def do_freeze_choices(self, request: Json, body: bytes) -> None:
        """Replace the choices that an oracle draws by a sample that holds them."""
        sample, oracle = self.runner.freeze_oracle_choices(from_packet(request["sample"], body), request["seed"], request["oracle"])
        header, data = to_packet(sample)
        self.send({"frozen": header, "oracle": oracle}, data)


def _finding_to_json(outcome: CaseOutcome) -> Json:
    assert outcome.fault is not None
    return {"k": outcome.k, "oracle": outcome.oracle, "fault": outcome.fault._asdict()}


if __name__ == "__main__":
    main(sys.argv[1:])
