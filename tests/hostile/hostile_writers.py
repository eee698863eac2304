"""The table of what is written: each writer puts a first and a second version of its files into a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from hostile_formats import HEADING, NAME, PROGRAMS, _decided, certificates, run_of

from uops.backends import npz
from uops.backends.cache import ObjectCache
from uops.backends.conformance.model import CellStatus
from uops.backends.conformance.report.write import write_report as write_report
from uops.backends.conformance.stage_judge import Fault
from uops.backends.testing.journal import Journal
from uops.cli import main
from uops.compiler.passes.optimize.search.store import ScheduleStore, StoredSchedule
from uops.compiler.prove import ledger
from uops.compiler.prove.ledger import LedgerEntry, make_page
from uops.compiler.prove.verdicts import ProofStatus as Proved
from uops.fuzz.bisect.bisect import Finding
from uops.fuzz.campaign.campaign import Summary
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.report import write_campaign_report as write_campaign
from uops.fuzz.reduce import reproducer
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.untrusted import write_bytes, write_text

X = b.param(0, (2,), dt.float32)


@dataclass(frozen=True)
class Writer:
    """`write(folder, version)`; `quiet` ones do nothing where they cannot write. `calls` are those that can fail."""

    title: str
    write: Callable[[Path, int], object]
    calls: tuple[str, ...] = ("open", "write", "replace")
    quiet: bool = False


def command(*words: str) -> None:
    """A command that writes a file. Raises OSError with what it says if it cannot."""
    result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        raise OSError(result.stderr)


def compiled(folder: Path, version: int) -> None:
    stage = ("rangeify", "linearize")[version - 1]
    command("compile", str(PROGRAMS / "gather.uops"), "-b", "llvm", "-s", stage, "-o", str(folder / "out.uops"))


def objects(folder: Path, version: int) -> None:
    name = ("gather", "arange")[version - 1]
    command("compile", str(PROGRAMS / f"{name}.uops"), "-b", "llvm", "-s", "object", "-o", str(folder / "out.o"))


def viewed(folder: Path, version: int) -> None:
    name = ("gather", "arange")[version - 1]
    command("view", str(PROGRAMS / f"{name}.uops"), "-b", "llvm", "-o", str(folder / "page.html"))


def reported(folder: Path, version: int) -> None:
    write_report(run_of([CellStatus.PASS, CellStatus.FAIL][:version]), folder)


def recorded(folder: Path, version: int) -> None:
    ledger.write_ledger([make_page("rule", str(version), [LedgerEntry("i8", "k", Proved.PROVED, "bits")])], folder / "ledger.jsonl")


def bisected(folder: Path, version: int) -> None:
    finding = Finding("select", "select", None, "kernel", Fault("value", f"version {version}"), "%0 = const 1 : i32\n", "%0\n")
    finding.write_to_directory(folder, b.add(X, float(version)), {"p0": np.full(2, version, np.float32)})


def reproduced(folder: Path, version: int) -> None:
    sample = reproducer.ProgramSample("tensor", b.add(X, float(version)), {"p0": np.zeros(2, np.float32)}, None)
    reproducer.write_reproducer(
        folder / "r.uops", reproducer.Reproducer(sample, {"oracle": "allowed", "seed": version, "setup": {"backend": "c"}})
    )


def campaigned(folder: Path, version: int) -> None:
    write_campaign(Summary(Setup("planted"), f"planted {version}", 64, Counter({"cases": 64})), folder)


def appended(folder: Path, version: int) -> None:
    kept = Journal(folder / "journal.jsonl", HEADING)
    try:
        kept.add(_decided(f"case {version}"))
    finally:
        kept.close()


def searched(folder: Path, version: int) -> None:
    ScheduleStore(folder, "target", "1").put(NAME, StoredSchedule("plain", (), float(version), complete=True))


# fmt: off
WRITERS: tuple[Writer, ...] = (
    Writer("bytes",          lambda f, v: write_bytes(f / "x", b"%d" % v * 100)),
    Writer("durable text",   lambda f, v: write_text(f / "x", f"{v}" * 100, durable=True), ("open", "write", "fsync", "replace")),
    Writer("compile -o",     compiled),
    Writer("object code",    objects),
    Writer("view",           viewed),
    Writer("certificate",    lambda f, v: write_bytes(f / "c.json", certificates()[v - 1])),
    Writer("npz",            lambda f, v: npz.save(f / "in.npz", {"n": v, "p0": np.zeros(9)})),
    Writer("report",         reported),
    Writer("ledger",         recorded),
    Writer("finding",        bisected),
    Writer("reproducer",     reproduced),
    Writer("campaign",       campaigned),
    Writer("journal",        appended, ("os.write", "fsync")),
    Writer("cache entry",    lambda f, v: ObjectCache(f).put(NAME, b"%d" % v * 100), quiet=True),
    Writer("search store",   searched, quiet=True),
)
# fmt: on
