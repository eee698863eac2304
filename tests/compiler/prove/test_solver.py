"""The door to the solver: limits, deaths, and answers as data."""

import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uops.compiler.prove.solver.solver import SolverPool, SolverWorker
from uops.spec.errors import SpecError

PLAIN = "(declare-const x Int)(assert (> x 41))(assert (< x 43))"
IMPOSSIBLE = "(declare-const x Int)(assert (> x x))"
#: To factor a product of two primes of 40 bits.
HARD = """(declare-const x (_ BitVec 80))(declare-const y (_ BitVec 80))
(assert (= (bvmul x y) (_ bv1208925819335353221265601 80)))(assert (bvult x (_ bv1099511627776 80)))
(assert (bvult y (_ bv1099511627776 80)))(assert (bvugt x (_ bv1 80)))(assert (bvugt y (_ bv1 80)))"""

#: Three cubes that give 42: nobody has found small ones.
ENDLESS = """(declare-const x Int)(declare-const y Int)(declare-const z Int)
(assert (= 42 (+ (* x x x) (* y y y) (* z z z))))(assert (> (* x y z) 7))"""


@pytest.fixture
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker()
    yield w
    w.close()


def test_values_come_back(worker: SolverWorker) -> None:
    answer = worker.run_query(PLAIN, 1_000_000, ["x"])
    assert (answer.result, answer.model) == ("sat", {"x": 42})


def test_what_cannot_be_is_unsatisfiable(worker: SolverWorker) -> None:
    assert worker.run_query(IMPOSSIBLE, 1_000_000).result == "unsat"


def test_a_query_that_is_none_is_unknown_with_the_reason(worker: SolverWorker) -> None:
    answer = worker.run_query("(assert (= x 1))", 1_000_000)
    assert answer.result == "unknown"
    assert "unknown constant x" in answer.reason
    assert worker.run_query(IMPOSSIBLE, 1_000_000).result == "unsat"


def test_steps_limit_a_query(worker: SolverWorker) -> None:
    assert worker.run_query(HARD, 1000).result == "unknown"


def test_a_worker_over_its_time_is_killed_and_the_next_query_gets_a_new_one(
    monkeypatch: pytest.MonkeyPatch, worker: SolverWorker
) -> None:
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"
    first = worker.process
    monkeypatch.setattr("uops.compiler.prove.solver.solver.GRACE", -119.999)
    answer = worker.run_query(HARD, 1 << 40)
    assert (answer.result, answer.reason) == ("unknown", "killed after its time")
    monkeypatch.undo()
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"
    assert worker.process is not first


def test_the_answer_of_an_interrupted_query_is_not_that_of_the_next(monkeypatch: pytest.MonkeyPatch, worker: SolverWorker) -> None:
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"
    wait = select.select
    with monkeypatch.context() as patch:

        def interrupt(read: list[int], written: list[int], *more: Any) -> Any:
            if not written:  # the query is sent
                raise KeyboardInterrupt
            return wait(read, written, *more)

        patch.setattr(select, "select", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker.run_query(IMPOSSIBLE, 1_000_000)
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"


def test_a_worker_whose_close_is_interrupted_starts_a_new_process(monkeypatch: pytest.MonkeyPatch, worker: SolverWorker) -> None:
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"
    process = worker.process
    assert process is not None

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(process, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker.close()
    process.communicate()
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"


def test_a_solver_works_below_a_lower_limit_of_memory() -> None:
    command = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1900 << 20, 1900 << 20))\n"
        "from uops.compiler.prove.solver.solver import SolverWorker\n"
        f"print(SolverWorker().run_query({PLAIN!r}, 1_000_000).result)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "sat", done.stderr


def test_a_worker_that_dies_is_an_unknown(worker: SolverWorker) -> None:
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"
    assert worker.process is not None
    worker.process.kill()
    worker.process.wait()
    assert worker.run_query(PLAIN, 1_000_000).reason == "the solver's process died"
    assert worker.run_query(PLAIN, 1_000_000).result == "sat"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import time; time.sleep(60)", "killed after its time"),
        ("while True: print(end='x' * 4096, flush=True)", "killed after its time"),
        ("print('no answer', flush=True); input()", "the solver's process gave no answer but other text"),
        ("print(7, flush=True); input()", "the solver's process gave no answer but other text"),
        ('print(\'{"version": "1"}\', flush=True); input()', "the solver's process gave no answer but other text"),
    ],
    ids=["takes nothing", "writes without an end", "speaks of other things", "says a number", "says its version"],
)
def test_a_process_that_does_not_do_its_work_is_killed_on_time(
    monkeypatch: pytest.MonkeyPatch, worker: SolverWorker, program: str, reason: str
) -> None:
    """Also one that does not take the query, of more than a pipe holds, or writes as long as one reads."""
    worker.process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    monkeypatch.setattr("uops.compiler.prove.solver.solver.GRACE", 0.0)
    worker.seconds = 1.0
    query, lost, began = PLAIN + " " * 200_000, worker.process, time.monotonic()
    assert worker.run_query(query, 1_000_000).reason == reason
    assert time.monotonic() - began < 10.0 and lost.poll() is not None
    worker.seconds = 60.0
    assert worker.run_query(query, 1_000_000).result == "sat"


def test_a_solver_ends_with_the_process_that_asked_it() -> None:
    """Nobody is left to stop a query of it."""
    script = f"""

from uops.compiler.prove.solver.solver import SolverWorker
w = SolverWorker(seconds=100.0)
w.run_query("(assert true)", 1000)
print(w.process.pid, flush=True)
w.run_query({ENDLESS!r}, 1 << 31)"""
    asking = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert asking.stdout is not None
    solver = int(asking.stdout.readline())
    time.sleep(0.3)  # until it is at work
    asking.kill()
    asking.wait()
    asking.stdout.close()
    end = time.monotonic() + 10.0
    while lives(solver):
        assert time.monotonic() < end, "the solver is at work for nobody"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_pool_gives_every_result() -> None:
    asked = [f"(declare-const x Int)(assert (= x {n}))" for n in range(6)]
    pool: SolverPool[str, int] = SolverPool(lambda w, q: int(w.run_query(q, 1_000_000, ["x"]).model["x"]), jobs=2)
    assert sorted(pool.map_unordered(asked)) == list(range(6))


def test_an_error_of_a_pool_s_work_is_raised() -> None:
    def fails(w: SolverWorker, n: int) -> int:
        raise ValueError(n)

    with pytest.raises(ValueError, match="3"):
        list(SolverPool(fails).map_unordered([3]))


def map_within_seconds(pool: SolverPool[int, int], items: list[int], seconds: float = 10.0) -> list[int] | Exception:
    """The results in order, or the error. A pool that hangs is left to itself."""
    results: list[list[int] | Exception] = []

    def collect() -> None:
        try:
            results.append(sorted(pool.map_unordered(items)))
        except Exception as e:
            results.append(e)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, "the pool hangs"
    return results[0]


def halve(w: SolverWorker, n: int) -> int:
    if n % 2:
        raise ValueError(n)
    return n // 2


def test_a_pool_maps_again_and_after_an_error() -> None:
    pool = SolverPool(halve, jobs=2)
    assert map_within_seconds(pool, [2, 4]) == [1, 2]
    assert map_within_seconds(pool, [6, 8]) == [3, 4]
    assert isinstance(map_within_seconds(pool, [5, 5, 5]), ValueError)
    assert map_within_seconds(pool, [10]) == [5]


@pytest.mark.parametrize("jobs", [0, -1])
def test_a_pool_needs_a_worker(jobs: int) -> None:
    error = map_within_seconds(SolverPool(halve, jobs), [2])
    assert isinstance(error, SpecError) and str(error) == f"jobs must be at least 1, got {jobs}"
