"""A program behind pipes: one for each process that asks."""

from __future__ import annotations

import os
import subprocess
import warnings
from typing import BinaryIO

from uops.backends.cross.child import ChildProcess


def start_that_answers_its_number(errors: int) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", "while read x; do echo $$; done"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)


def ask(requests: BinaryIO, answers: BinaryIO) -> bytes:
    requests.write(b"?\n")
    requests.flush()
    return answers.readline()


def test_a_fork_asks_a_program_of_its_own() -> None:
    """Else it and its parent take each other's answers from one pipe."""
    child = ChildProcess(start_that_answers_its_number)
    first = child.start_if_stopped_then_ask_or_return_empty(ask)
    pid = os.fork()
    if not pid:
        try:
            warnings.simplefilter("error")
            own = [child.start_if_stopped_then_ask_or_return_empty(ask) for _ in range(2)]
            well = own[0] == own[1] != first and child.stop_and_describe_exit() == "status 0"
            os._exit(0 if well else 3)
        except BaseException:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert child.start_if_stopped_then_ask_or_return_empty(ask) == first
    assert child.stop_and_describe_exit() == "status 0"


def test_a_fork_does_not_end_the_program_of_its_parent() -> None:
    child = ChildProcess(start_that_answers_its_number)
    first = child.start_if_stopped_then_ask_or_return_empty(ask)
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if child.stop_and_describe_exit() == "it does not run" else 3)
        except BaseException:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert child.start_if_stopped_then_ask_or_return_empty(ask) == first
    assert child.stop_and_describe_exit() == "status 0"
