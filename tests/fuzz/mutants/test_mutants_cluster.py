"""Mutants hunted by the workers of a Dask cluster: the same kills, the same journal, and nothing lost with a worker."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from uops.backends.testing.cluster import NoCluster
from uops.fuzz.mutants import run
from uops.fuzz.mutants.catalogue import load_mutants_by_id_or_class
from uops.fuzz.mutants.run import MutantRun

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
WORKERS = 2
#: Limit of a hunt. These mutants are seen long before it, also if a busy machine makes processes start slowly.
SECONDS = 120.0
#: Seen soon by everybody.
NAMES = ("max-from-zero", "c-divide-truncates", "c-shift-fill")
MUTANTS = [m for name in NAMES for m in load_mutants_by_id_or_class(name)]


def test_workers_hunt_though_one_is_killed_and_the_run_resumes_from_their_results(tmp_path: Path, cluster: Any) -> None:
    hunts = MutantRun(MUTANTS, tmp_path, seconds=SECONDS, cluster=cluster.scheduler_address)
    assert hunts.jobs == 2
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = min(client.run(os.getpid).values())
    threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()
    results = hunts.run()
    assert sorted(r.mutant.id for r in results) == sorted(NAMES)
    assert all(r.differential for r in results)
    assert not hunts.passed_over
    again = MutantRun(MUTANTS, tmp_path, seconds=SECONDS)
    assert again.results == results
    again.journal.close()


def test_a_run_that_is_stopped_ends_the_hunts_of_its_workers(tmp_path: Path, cluster: Any) -> None:
    (survivor,) = load_mutants_by_id_or_class("private-escaped-shared")
    hunts = MutantRun([survivor], tmp_path, seconds=300.0, cluster=cluster.scheduler_address)
    seen: list[int] = []
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        workers = {str(pid) for pid in client.run(os.getpid).values()}

    def stop_once_it_hunts() -> None:
        while not (running := count_hunts(workers)):
            time.sleep(0.1)
        seen.append(running)
        hunts._stop.set()

    threading.Thread(target=stop_once_it_hunts, daemon=True).start()
    assert hunts.run() == []
    assert seen
    for _ in range(100):
        if not count_hunts(workers):
            break
        time.sleep(0.2)
    assert not count_hunts(workers), "a hunt goes on"


def count_hunts(workers: set[str]) -> int:
    """Return the number of processes that the hunts of some workers started and that still run."""
    stats = {stat.parent: read_or_empty(stat).rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat")}
    children = [folder for folder, fields in stats.items() if fields and fields[1] in workers and fields[0] != "Z"]
    return sum("uops." in read_or_empty(folder / "cmdline") for folder in children)


def read_or_empty(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_workers_of_another_generator_are_refused(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "VERSION", -1)
    with pytest.raises(NoCluster, match=r"has generator \d+, and this machine has -1"):
        MutantRun(MUTANTS, tmp_path, seconds=30.0, cluster=cluster.scheduler_address)


def test_the_descriptions_of_hunts_are_json() -> None:
    assert json.loads(json.dumps(run.describe_hunts(NAMES)))["mutants"] != run.describe_hunts(NAMES[:1])["mutants"]
