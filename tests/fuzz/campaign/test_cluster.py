"""A campaign on a Dask cluster ends as one of this machine does, also where a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from uops.backends.testing.cluster import NoCluster
from uops.backends.worker.client import Limits
from uops.fuzz.campaign.campaign import Campaign
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.report import build_document

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
WORKERS = 3
HERE = str(Path(__file__).parents[1] / "planted")
SETUP = Setup("planted_backends:Several", path=(HERE,))
CASES, LIMITS = 5 * 32, Limits(timeout=60.0)


def timeless(c: Campaign) -> Any:
    doc = build_document(c.run())
    del doc["time"]
    return doc


def test_a_cluster_finds_what_one_process_finds_though_a_worker_is_killed(tmp_path: Path, cluster: Any) -> None:
    alone = timeless(Campaign(SETUP, tmp_path / "alone", cases=CASES, limits=LIMITS))
    c = Campaign(SETUP, tmp_path / "cluster", cases=CASES, limits=LIMITS, cluster=cluster.scheduler_address)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = min(client.run(os.getpid).values())
    killed: list[float] = []

    def kill() -> None:
        """Once there is something to lose."""
        while not c.journal.entries_under("batch"):
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        killed.append(time.monotonic())

    threading.Thread(target=kill, daemon=True).start()
    found = timeless(c)
    assert killed, "the campaign was over before a worker could be killed"
    assert found["findings"]
    assert found == alone
    assert {p.name: p.read_text() for p in (tmp_path / "cluster" / "findings").iterdir()} == {
        p.name: p.read_text() for p in (tmp_path / "alone" / "findings").iterdir()
    }


def test_a_scheduler_that_goes_away_is_said_so_and_what_was_done_is_kept(tmp_path: Path, cluster: Any) -> None:
    c = Campaign(SETUP, tmp_path, cases=4 * CASES, limits=LIMITS, cluster=cluster.scheduler_address)

    def close() -> None:
        while not c.journal.entries_under("batch"):
            time.sleep(0.01)
        cluster.close()

    threading.Thread(target=close, daemon=True).start()
    with pytest.raises(NoCluster, match="has gone; the same command goes on from the journal"):
        c.run()
    again = Campaign(SETUP, tmp_path, cases=CASES, limits=LIMITS)
    assert again.cases_before > 0
    assert again.run().cases >= CASES


def test_a_cluster_without_workers_is_waited_for(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    c = Campaign(SETUP, tmp_path, cases=CASES, limits=LIMITS, cluster=cluster.scheduler_address)
    assert c.pool.missing_workers_message == ""
    monkeypatch.setattr("uops.backends.testing.cluster._PERIOD", 0.5)
    monkeypatch.setattr(c.pool.cluster, "_ask_again", 0.0)
    cluster.scale(0)
    for _ in range(100):
        if c.pool.missing_workers_message:
            break
        time.sleep(0.1)
    assert c.pool.missing_workers_message == f"{cluster.scheduler_address} has no workers"
    c.stop()
    c.pool.close()


def test_no_scheduler_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uops.backends.testing.cluster._PATIENCE", 1)
    with pytest.raises(NoCluster, match=r"no scheduler at tcp://127\.0\.0\.1:9"):
        Campaign(SETUP, tmp_path, cases=1, cluster="tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "udp://127.0.0.1:9"])
def test_what_is_no_address_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr("distributed.Client", lambda a, **options: asked.append(a))
    with pytest.raises(NoCluster, match=f"no scheduler at {address}: "):
        Campaign(SETUP, tmp_path, cases=1, cluster=address)
    assert not asked
