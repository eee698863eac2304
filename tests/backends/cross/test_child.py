"""A program behind pipes: one for each process that asks."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from typing import BinaryIO

from uops.backends.cross.child import ChildProcess


def start_that_answers_its_number(errors: int) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", "while read x; do echo $$; done"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)


def ask(requests: BinaryIO, answers: BinaryIO) -> bytes:
    requests.write(b"?\n")
    requests.flush()
    return answers.readline()


def test_a_fork_asks_a_program_of_its_own(status_in_fork: Callable[[Callable[[], object]], int]) -> None:
    """Else it and its parent take each other's answers from one pipe."""
    child = ChildProcess(start_that_answers_its_number)
    first = child.start_if_stopped_then_ask_or_return_empty(ask)

    def ask_twice_and_stop() -> None:
        warnings.simplefilter("error")
        own = [child.start_if_stopped_then_ask_or_return_empty(ask) for _ in range(2)]
        assert own[0] == own[1] != first and child.stop_and_describe_exit() == "status 0"

    assert status_in_fork(ask_twice_and_stop) == 0
    assert child.start_if_stopped_then_ask_or_return_empty(ask) == first
    assert child.stop_and_describe_exit() == "status 0"


def test_a_fork_does_not_end_the_program_of_its_parent(status_in_fork: Callable[[Callable[[], object]], int]) -> None:
    child = ChildProcess(start_that_answers_its_number)
    first = child.start_if_stopped_then_ask_or_return_empty(ask)

    def stop() -> None:
        assert child.stop_and_describe_exit() == "it does not run"

    assert status_in_fork(stop) == 0
    assert child.start_if_stopped_then_ask_or_return_empty(ask) == first
    assert child.stop_and_describe_exit() == "status 0"
