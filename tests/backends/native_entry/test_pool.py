"""Threads that share a loop: every iteration once, whoever calls, before and after a fork, and nothing left running."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from thread_kernels import PIECE, check_a_part_does_its_iterations_and_the_kernel_all, counting, load, share

import uops
from uops.backends.cache import ObjectCache
from uops.backends.calling import PART
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.native_entry import table
from uops.backends.native_entry.module import LaunchEntry
from uops.compiler.runtime.frame import KernelLaunch

TARGET = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
Execute = Callable[[Any], None]


def executor(n: int, work: int, threads: int, monkeypatch: pytest.MonkeyPatch, inner: int = 1) -> Execute:
    """Runs the counting kernel on an array, as if it did `work`, with as many threads, cores or not."""
    kernel = load(TARGET, counting(n, n, inner))
    assert kernel.part
    return share(TARGET, kernel, n, work, threads, monkeypatch)


def test_a_part_does_its_iterations_and_the_kernel_all() -> None:
    text = TARGET.render(counting(10, 10))
    assert f"@{PART}(" in text
    check_a_part_does_its_iterations_and_the_kernel_all(TARGET.load(TARGET.compile(text)))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("pieces", [0, 1, 2, 5, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 17, 1001])
def test_every_iteration_is_done_once(n: int, pieces: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = executor(n, pieces * PIECE, threads, monkeypatch), np.zeros(n, np.int64)
    for _ in range(20):
        run(found)
    assert found.tolist() == [20] * n


def test_many_short_jobs_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that arrive late at a job find the next one."""
    run, found = executor(8, 8 * PIECE, 4, monkeypatch), np.zeros(8, np.int64)
    for _ in range(20_000):
        run(found)
    assert found.tolist() == [20_000] * 8


def test_several_callers_at_once_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = executor(64, 64 * PIECE, 3, monkeypatch, inner=200)
    arrays = [np.zeros(64, np.int64) for _ in range(5)]

    def work(array: Any) -> None:
        for _ in range(300):
            run(array)

    callers = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert all(a.tolist() == [60_000] * 64 for a in arrays)


def tasks() -> list[str]:
    return os.listdir("/proc/self/task")


def test_several_threads_work_at_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = executor(64, 64 * PIECE, 2, monkeypatch, inner=2_000_000), np.zeros(64, np.int64)
    mine, all_ = time.thread_time(), time.process_time()
    run(found)
    mine, all_ = time.thread_time() - mine, time.process_time() - all_
    assert 0.1 * all_ < mine < 0.9 * all_


def test_there_are_as_many_threads_as_the_greatest_job_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = np.zeros(64, np.int64)
    executor(64, 64 * PIECE, 7, monkeypatch)(found)
    before = len(tasks())
    for threads in (2, 5, 7, 3):
        executor(64, 64 * PIECE, threads, monkeypatch)(found)
    assert len(tasks()) == before


def test_signals_go_to_threads_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(tasks())
    executor(64, 64 * PIECE, 9, monkeypatch)(np.zeros(64, np.int64))
    made = set(tasks()) - before
    assert made
    for task in made:
        status = dict(
            line.split(":\t") for line in Path(f"/proc/self/task/{task}/status").read_text().splitlines() if ":\t" in line
        )
        assert int(status["SigBlk"], 16) & (1 << 1)  # SIGINT


def test_idle_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    executor(64, 64 * PIECE, 4, monkeypatch)(np.zeros(64, np.int64))
    time.sleep(0.1)
    spent = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - spent < 0.02


SCRIPT = """
import os, sys, threading, time
import numpy as np, pytest
sys.path[:0] = sys.argv[1:]
from test_pool import PIECE, executor, tasks
patch = pytest.MonkeyPatch()
"""


def script(text: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT + text, str(Path(__file__).parent), str(Path(__file__).parents[1] / "claims")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


def test_a_child_has_a_pool_of_its_own() -> None:
    """After a fork between jobs, and after one in the middle of another thread's job."""
    script("""
run, found = executor(64, 64 * PIECE, 4, patch, inner=20_000), np.zeros(64, np.int64)
for turn in range(6):
    run(found)
    busy = threading.Thread(target=lambda: [run(np.zeros(64, np.int64)) for _ in range(40)])
    if turn % 2:
        busy.start()
        time.sleep(0.002)
    child = os.fork()
    if not child:
        mine = np.zeros(64, np.int64)
        for _ in range(50):
            run(mine)
        os._exit(0 if mine.tolist() == [1_000_000] * 64 and len(tasks()) == 4 else 3)
    assert os.waitpid(child, 0)[1] == 0
    if turn % 2:
        busy.join()
assert found.tolist() == [120_000] * 64
print("well")
""")


def test_a_process_ends_whatever_its_threads_do() -> None:
    """While they look for work, and while they sleep."""
    for pause in (0.0, 0.2):
        script(f"""
executor(64, 64 * PIECE, 4, patch)(np.zeros(64, np.int64))
time.sleep({pause})
print("well", flush=True)
""")


def test_threads_that_cannot_be_made_are_done_without() -> None:
    script("""
import resource
run, found = executor(64, 64 * PIECE, 4, patch), np.zeros(64, np.int64)
before = len(tasks())
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
run(found)
assert found.tolist() == [1] * 64 and len(tasks()) == before, tasks()
print("well")
""")


@pytest.mark.parametrize(("work", "pieces"), [(100, 3), (29, 0)])
def test_a_loop_is_cut_into_pieces_of_so_many_instructions_at_least(work: int, pieces: int) -> None:
    launch = KernelLaunch(SimpleNamespace(part=1, address=2), ((0, 0),), (None,), 64, work)
    row = table._build_launch_entry(launch, 0, piece_instructions=30)
    assert row[LaunchEntry.CHUNKS] == pieces
