"""The exhaustive tier on a Dask cluster gives what one machine gives, also where a worker is killed or the run resumes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from uops.backends.conformance import exhaustive
from uops.backends.conformance.exhaustive import LOG, run_or_resume_exhaustive_tier
from uops.backends.testing.cluster import NoCluster
from uops.cli import main

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
WORKERS = 2
pytest.importorskip("mpmath", reason="needs the extra exhaustive")
FUNCTIONS = ("sqrt/float64",)


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty chunks of the usual size would take a minute. Workers have the usual size, so it stays."""
    monkeypatch.setattr(exhaustive, "POINTS", 8 * exhaustive.POINT_CHUNK)


def test_workers_give_what_one_machine_gives_though_one_is_killed(tmp_path: Path, cluster: Any) -> None:
    alone = run_or_resume_exhaustive_tier("interp", 1, None, tmp_path / "alone", FUNCTIONS)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = min(client.run(os.getpid).values())
    done: list[int] = []
    killed: list[int] = []

    def kill_at_second_chunk() -> None:
        while len(done) < 2:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        killed.append(len(done))

    threading.Thread(target=kill_at_second_chunk, daemon=True).start()
    shared = run_or_resume_exhaustive_tier(
        "interp", 1, lambda k, n: done.append(k), tmp_path / "shared", FUNCTIONS, cluster.scheduler_address
    )
    assert killed and killed[0] < 8, "the run was over before a worker could be killed"
    assert shared == alone
    assert (tmp_path / "shared" / LOG).read_bytes() == (tmp_path / "alone" / LOG).read_bytes()


def test_what_one_machine_began_a_cluster_ends(tmp_path: Path, cluster: Any) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        run_or_resume_exhaustive_tier("interp", 1, interrupt, tmp_path, FUNCTIONS)
    done: list[int] = []
    tallies = run_or_resume_exhaustive_tier(
        "interp", 1, lambda k, n: done.append(k), tmp_path, FUNCTIONS, cluster.scheduler_address
    )
    assert done[0] == 4
    assert tallies["sqrt/float64"].inputs == exhaustive.POINTS


def test_a_worker_with_other_sources_is_refused(cluster: Any) -> None:
    header = exhaustive._make_journal_header("interp")
    with (
        pytest.raises(NoCluster, match=r"has sources .*, and this machine has other"),
        exhaustive._judge_here_or_on_cluster("interp", 1, cluster.scheduler_address, {**header, "sources": "other"}),
    ):
        pass


def test_the_other_tiers_take_no_cluster(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["conform", "--backend", "interp", "--cluster", "tcp://127.0.0.1:9", "--report", str(tmp_path)]
    )
    assert result.exit_code == 2
    assert "add --tier exhaustive" in result.output
