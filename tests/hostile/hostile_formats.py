"""The table of formats that are read: one row each.

A row is a maker of samples, the reader as users reach it, and what may come out of a harmed file; `HOLES` has a hole for each,
which the harness has to find.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from click.testing import CliRunner
from hostile_harness import Format, Late

from uops.backends import elf, npz
from uops.backends.cache import KIND as OBJECT
from uops.backends.cache import SCHEMA as OBJECTS
from uops.backends.cache import ObjectCache, digest_key
from uops.backends.conformance import decided
from uops.backends.conformance.decided import CaseRecord
from uops.backends.conformance.judge import SegmentVerdict
from uops.backends.conformance.model import (
    CellResult,
    CellStatus,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Failure,
    Segment,
)
from uops.backends.conformance.report import document as report
from uops.backends.conformance.report.diff import diff_reports
from uops.backends.conformance.runner import ConformanceRun
from uops.backends.elf import is_linkable_or_host_lacks_elf
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.registry import create_backend
from uops.backends.testing import journal
from uops.backends.testing.journal import Journal
from uops.cli import main
from uops.cli.inputs import check_and_convert_inputs
from uops.compiler import Config, config, lower
from uops.compiler.passes.optimize.search import store
from uops.compiler.passes.optimize.search.store import ScheduleStore, StoredSchedule
from uops.compiler.prove import admission, ledger
from uops.compiler.prove.ledger import LedgerEntry, make_page
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.verdicts import ProofStatus as Proved
from uops.compiler.validate import certificate
from uops.fuzz.reduce import corpus, reproducer
from uops.spec.errors import Crash, SpecError, UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir import text
from uops.spec.ir.axes import AxisType
from uops.spec.ir.text import parse, parse_file, show
from uops.spec.optops import TC, Nolocals, Padto, Split, Swap
from uops.spec.untrusted import seal
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "examples" / "programs"
Samples = Sequence[bytes]

# ------------------------------------------------------------------------------------------------------------------ programs


def programs() -> Samples:
    """One of every dialect, and those of the examples."""
    files = [*sorted(PROGRAMS.glob("*.uops")), *sorted((HERE.parent / "dialects").glob("*-arguments.uops"))]
    return [f.read_bytes() for f in files if f.stat().st_size < 10_000]


def read_program(path: Path) -> str | None:
    """Parse, look whether it is well-formed, and spell it."""
    root = parse_file(path)
    try:
        verify(root, Dialect.TENSOR)
    except SpecError as e:
        return e.claim
    assert parse(show(root)) is root
    return show(root)


def programs_with_inputs() -> Samples:
    """File tests, and a reproducer of a campaign."""
    files = [f for f in sorted((HERE.parent / "corpus").glob("*.uops")) if f.stat().st_size < 3000]
    x = b.param(0, (2,), dt.float32)
    about = {"oracle": "allowed", "seed": 3, "setup": {"backend": "c", "seed": 1, "kinds": ["tensor"]}}
    made = reproducer.Reproducer(reproducer.ProgramSample("tensor", b.add(x, x), {"p0": np.ones(2, np.float32)}, None), about)
    return [reproducer.format_reproducer(made).encode(), *(f.read_bytes() for f in files[:6])]


def read_program_with_inputs(path: Path) -> Any:
    """What `uops run` and `uops fuzz FILE` take from it."""
    found = corpus.load_file_test(path)
    reproducer.read_dialect_or_none_without_header(path)
    return sorted(found.inputs), found.checks


# -------------------------------------------------------------------------------------------------------------------- inputs

ROOT = b.tuple_(
    b.neg(b.param(0, (b.variable("n", 1, 9),), dt.float32)),
    b.param(1, (2, 2), dt.bfloat16),
    b.cast(b.param(2, (2,), dt.index), dt.int32),
)


def input_files() -> Samples:
    import ml_dtypes

    given = {
        "n": 3, "p0": np.arange(3, dtype=np.float32), "p1": np.ones((2, 2), ml_dtypes.bfloat16),
        "p2": np.array([1, -(1 << 70)], object),
    }  # fmt: skip
    files = [io.BytesIO() for _ in range(3)]
    npz.save(files[0], given)
    npz.save(files[1], {**given, "n": 9, "p0": np.zeros(9, np.float32)})
    np.savez_compressed(files[2], n=3, p0=np.zeros(3, np.float32), p1=np.zeros((2, 2)), p2=np.array([1, 2]))
    return [f.getvalue() for f in files]


def read_inputs(path: Path) -> Any:
    """What `uops run --inputs` takes, and all that there is."""
    try:
        return len(check_and_convert_inputs(ROOT, npz.InputFile(path)))
    finally:
        npz.load(path)


# ------------------------------------------------------------------------------------------------------------------- reports


def run_of(statuses: Sequence[CellStatus]) -> ConformanceRun:
    """A run with cells of these statuses."""
    run = ConformanceRun(
        "fake", "fake 1.0", ConformanceTier.SMOKE, "*", {level: {} for level in ConformanceLevel}, cases=2, seconds=1.0
    )
    for k, status in enumerate(statuses):
        for level in ConformanceLevel:
            failures = [Failure("Movement/Flip/x", "element 2", 0, 2, ("p0 = 3",), "-1", "0")] if status is CellStatus.FAIL else []
            cell = ConformanceCell("Movement/Flip" if k % 2 else "Elementwise/Add", "float32", f"edge{k}")
            run.cells[level][cell] = CellResult(cell, status, 8, 1, 0.5, None, failures, {"exact": 8})
    return run


@cache
def reports() -> Samples:
    return [
        report.to_canonical_json(report.build_document(run_of(s))).encode()
        for s in (list(CellStatus), list(CellStatus)[::-1], [CellStatus.PASS])
    ]


def read_report(path: Path) -> Any:
    """The cells, and how they differ from another report's."""
    found = report.read_report(path)
    other = json.loads(reports()[0])
    for level in ConformanceLevel:
        diff_reports(other, found, level).to_json()
        diff_reports(found, other, level).to_json()
    return len(found["cells"])


@cache
def _other_report() -> str:
    folder = Path(tempfile.mkdtemp(prefix="uops-hostile-"))
    (folder / "other.json").write_bytes(reports()[0])
    return str(folder / "other.json")


def read_baseline(path: Path) -> Any:
    """By `uops conform --diff`: a status, and one line of an error."""
    result = CliRunner().invoke(main, ["conform", "--diff", str(path), _other_report()])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code == 2 and result.stderr.startswith("Error: "):
        raise UopsError(result.stderr.removeprefix("Error: ").rstrip("\n"))
    return result.exit_code


# ------------------------------------------------------------------------------------------------------------------ journals

HEADING = {"campaign": {"backend": "c", "seed": 1, "kinds": ["tensor", "ops"]}, "batch": 32}


def _decided(case: str) -> dict[str, Any]:
    verdict = SegmentVerdict(Segment("zero", 0, 0, 3), 3, 1, failures=[Failure(case, "wrong", 0, 1, ("p0 = 1",), "2", "3")])
    return {"decided": CaseRecord(case, [(case, ConformanceLevel.STRICT, [verdict])], {}, {}, 0.5).to_json()}


def journals() -> Samples:
    lines = [HEADING, *(_decided(f"Movement/Flip/float32/{k}") for k in range(5))]
    return [
        journal.encode_journal(lines),
        journal.encode_journal(lines[:3]),
        journal.encode_journal([{"campaign": {}}, *lines[1:]]),
    ]


def read_journal(path: Path) -> Any:
    """Its lines: of a run that goes on from it."""
    kept = Journal(path, HEADING)
    try:
        return tuple(json.dumps(line) for line in kept.lines_after_heading())
    finally:
        kept.close()


def is_prefix(result: Any, allowed: Sequence[Any]) -> bool:
    """A journal with fewer lines is the one that there was before: what it does not say is done again."""
    return any(result == whole[: len(result)] for whole in allowed)


def rechained(data: bytes) -> bytes:
    """A journal of these lines with right sums: of who may write it."""
    found = []
    for line in data.splitlines():
        try:
            found.append({k: v for k, v in json.loads(line).items() if k != "sum"})
        except (ValueError, AttributeError, RecursionError):
            continue
    return journal.encode_journal([HEADING, *(x for x in found[1:] if x)])


class _Case:
    """What `decided.known` asks of a case."""

    def __init__(self, name: str) -> None:
        self.id = name


def read_decided(path: Path) -> Any:
    """What a run of the suite takes from its journal."""
    kept = Journal(path, HEADING)
    try:
        return len(decided.read_case_records(kept, [_Case(f"Movement/Flip/float32/{k}") for k in range(5)]))  # type: ignore[list-item]
    finally:
        kept.close()


# ------------------------------------------------------------------------------------------------------------------- ledgers


@cache
def ledgers() -> Samples:
    pages = [
        make_page(
            f"rule-{k}",
            f"{k}" * 64,
            [LedgerEntry("i8", "k" * 64, Proved.PROVED, "bits"), LedgerEntry("i16", "", Proved.UNKNOWN, "")],
        )
        for k in "123"
    ]
    pages += [make_page(f"good-{k}", f"{k}" * 64, [LedgerEntry("i8", "k" * 64, Proved.PROVED, "bits")]) for k in "456"]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for some in (pages, pages[2:5], []):
            ledger.write_ledger(some, Path(folder, "l"))
            found.append(Path(folder, "l").read_bytes())
    return found


def read_at_import(path: Path) -> Any:
    """The rules that are admitted."""
    before = admission._LEDGER
    admission._LEDGER = path
    admission._load_proved_digests_or_warn_if_damaged.cache_clear()
    try:
        return admission._load_proved_digests_or_warn_if_damaged() or {}
    finally:
        admission._LEDGER = before
        admission._load_proved_digests_or_warn_if_damaged.cache_clear()


def is_one_of(result: Any, allowed: Sequence[Any]) -> bool:
    """What an unharmed file says, or what no file says."""
    return not result or result in allowed


# -------------------------------------------------------------------------------------------------------------- certificates

_WORKER = SolverWorker()
atexit.register(_WORKER.close)


@cache
def certificates() -> Samples:
    graphs = [
        b.contiguous(b.permute(b.param(0, (3, 5), dt.float32), (1, 0))),
        b.add(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32)),
    ]
    return [certificate.dump_certificate(certificate.certify(g, create_backend("llvm").target)).encode() for g in graphs]


def read_certificate(path: Path) -> Any:
    """What it proves, of which texts; nothing where it does not hold."""
    made = certificate.load_certificate_and_check_digest(path)
    wrong = next(certificate.check_certificate_and_yield_faults(made, _WORKER, 5.0), None)
    return None if wrong else (tuple(map(parse, made["texts"].values())), tuple(map(tuple, made["claims"])), tuple(made["callers"]))


def digested(data: bytes) -> bytes:
    """A certificate of these parts with the right digest: of who forges one."""
    try:
        return certificate.dump_certificate({k: v for k, v in json.loads(data).items() if k != "digest"}).encode(
            errors="surrogatepass"
        )
    except (ValueError, AttributeError, RecursionError):
        return data


def read_forged(path: Path) -> Any:
    """Whether it holds: it may, of another program, or of other Buffers of the caller."""
    return read_certificate(path) is not None


# ------------------------------------------------------------------------------------------------------------- what is cached

NAME, OTHER = digest_key("a kernel"), digest_key("another kernel")


def objects() -> Samples:
    payload = bytes(range(256)) * 4
    return [seal(OBJECT, OBJECTS, NAME, payload), seal(OBJECT, OBJECTS, OTHER, payload[::-1])]


def read_object(path: Path) -> bytes | None:
    return ObjectCache(path.parent).get(NAME)


@cache
def images() -> Samples:
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    graphs = [b.add(b.param(0, (4,), dt.float32), b.const(x)) for x in (1.5, 4.5)]
    return [call.src[0].src[2].arg.data for g in graphs for call in lower(g, target, config=Config(reuse=False)).src]


def read_image(path: Path) -> bool:
    """Whether it may be linked, by its tables; nothing is."""
    found = ObjectCache(path.parent).get(NAME)
    return found is not None and is_linkable_or_host_lacks_elf(found, "kernel")


def schedules() -> Samples:
    opts = (Split(1, 8, AxisType.UPCAST, top=True), Padto(0, 3), Swap(0, 1), Nolocals(), TC(0, -1, 2, 1))
    found = [StoredSchedule("plain", opts, 1.5e-5, complete=True), StoredSchedule("chosen", opts[1:3], 0.25, complete=False)]
    return [json.dumps(store.encode_schedule(f)).encode() for f in found]


def sealed_schedules() -> Samples:
    return [seal(store.KIND, store.SCHEMA, k, s) for k, s in zip((NAME, OTHER), schedules())]


def read_schedule(path: Path) -> Any:
    """What a search finds of an earlier one."""
    return ScheduleStore(path.parent, "target", "1").get(NAME)


# ------------------------------------------------------------------------------------------------------------------ settings


def settings() -> Samples:
    lines = (
        "UOPS_VERIFY=1\nUOPS_VALIDATE=0\nUOPS_FAST_MATH=1\nUOPS_REUSE=0\nUOPS_OPTIMIZE=1\nUOPS_FORCED=7\nUOPS_BEAM=2\n"
        "UOPS_BEAM_SECONDS=10\nUOPS_THREADS=4\nUOPS_ENTRY=ctypes\nUOPS_CACHE=1\nUOPS_CACHE_DIR=/c\nXDG_CACHE_HOME=/x\nHOME=/h\n"
    )
    return [lines.encode(), b"UOPS_ENTRY=native\nUOPS_THREADS=9223372036854775807\nUOPS_FORCED=\n"]


def read_settings(path: Path) -> Any:
    """An environment of such variables; one with a zero byte does not exist."""
    pairs = (os.fsdecode(line).partition("=") for line in path.read_bytes().split(b"\n") if b"\0" not in line)
    environment = {name: value for name, _, value in pairs}
    return config.Config.from_environment(environment), config.cache_folder(environment)


# -------------------------------------------------------------------------------------------------------------------- the table

# fmt: off
FORMATS: tuple[Format, ...] = (
    Format("text",                  "text",  programs,             read_program),
    Format("text with inputs",      "text",  programs_with_inputs, read_program_with_inputs),
    Format("npz",                   "zip",   input_files,          read_inputs, says=("input '",)),
    Format("report",                "json",  reports,              read_report),
    Format("baseline",              "json",  reports,              read_baseline),
    Format("journal",               "lines", journals,             read_journal, told_apart=is_prefix),
    Format("journal, right sums",   "lines", journals,             read_decided, seal=rechained),
    Format("ledger",                "lines", ledgers,              ledger.read_ledger, told_apart=is_one_of),
    Format("ledger, at import",     "lines", ledgers,              read_at_import, told_apart=is_one_of),
    Format("certificate",           "json",  certificates,         read_certificate, told_apart=is_one_of),
    Format("certificate, right digest", "json", certificates,      read_forged, seal=digested),
    Format("cache entry",           "bytes", objects,              read_object, name=f"{NAME}.obj", told_apart=is_one_of),
    Format("cache entry, right seal", "bytes", images,             read_image, name=f"{NAME}.obj",
           seal=lambda data: seal(OBJECT, OBJECTS, NAME, data)),
    Format("search store",          "json",  sealed_schedules,     read_schedule, name=f"{NAME}.schedule", told_apart=is_one_of),
    Format("search store, right seal", "json", schedules,          read_schedule, name=f"{NAME}.schedule",
           seal=lambda data: seal(store.KIND, store.SCHEMA, NAME, data)),
    Format("settings",              "text",  settings,             read_settings, says=("UOPS_",)),
)

Hole = Callable[[pytest.MonkeyPatch], None]


def _payload(kind: str, schema: int, key: str | bytes, data: bytes) -> bytes:
    """What is sealed, whatever the seal says."""
    return data.partition(b"\n")[2]


def _element(word: str, d: Any, real: Any = corpus.parse_element) -> Any:
    return real(word, d) if word.isalnum() else {}[word]


def _without_sum(line: Any) -> Any:
    return {k: v for k, v in line.items() if k != "sum"}


def _number(environment: Any, name: str, default: int, least: int = 0) -> int:
    return int(environment.get(name, "") or default)


class _Strict(dict[str, Any]):
    """A table whose `get` raises KeyError for an unknown key."""

    get = dict.__getitem__  # type: ignore[assignment]


#: Of each format a reader that leaves out a check.
HOLES: dict[str, Hole] = {
    "text":                   lambda m: m.setattr(text, "OPS_BY_NAME", _Strict(text.OPS_BY_NAME)),
    "text with inputs":       lambda m: m.setattr(corpus, "parse_element", _element),
    "npz":                    lambda m: m.setattr(
        npz.InputFile, "_parse_zip_rejecting_bare_npy", lambda self, f: zipfile.ZipFile(f)
    ),
    "report":                 lambda m: m.setattr(report, "find_misfit", lambda *_: None),
    "baseline":               lambda m: m.setattr(report, "find_misfit", lambda *_: None),
    "journal":                lambda m: m.setattr(journal, "_verify_and_parse_line", lambda raw, _: _without_sum(json.loads(raw))),
    "journal, right sums":    lambda m: m.setattr(Journal, "refuse_malformed_lines", lambda self: nullcontext()),
    "ledger":                 lambda m, real=admission.parse_ledger_index: m.setattr(
        ledger, "parse_ledger_index", lambda t, p: real(t, p) | {"sha256": ANY}
    ),
    "ledger, at import":      lambda m: m.setattr(admission, "unseal", _payload),
    "certificate":            lambda m: m.setattr(certificate, "read_json", lambda path, most: json.loads(path.read_text())),
    "certificate, right digest": lambda m: m.setattr(certificate, "_UNREADABLE", Crash),
    "cache entry":            lambda m: m.setattr("uops.backends.cache.unseal", _payload),
    "cache entry, right seal": lambda m: m.setattr(elf, "struct", SimpleNamespace(unpack_from=elf.struct.unpack_from, error=Late)),
    "search store":           lambda m: m.setattr(store, "unseal", _payload),
    "search store, right seal": lambda m: m.setattr(store, "_decode_optop", lambda entry: [].pop()),
    "settings":               lambda m: m.setattr(config, "_read_number", _number),
}
# fmt: on
