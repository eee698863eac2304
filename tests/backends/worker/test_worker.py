"""Worker processes: every way a case can end is an outcome, and the rest of the batch goes on."""

import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import uops
from uops.backends.registry import BrokenBackend
from uops.backends.worker.client import STATUSES, BackendProcess, BackendWorker, Limits, WorkerCase, run_cases_on_workers
from uops.backends.worker.frames import MARK
from uops.backends.worker.patience import Patience
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.text import show

FAKE = """
import ctypes, os, pathlib, signal, subprocess, sys, time
import numpy as np
from uops.backends.contract import Backend, Capabilities
from uops.backends.worker.guard import GuardedMemory, GuardSide
from uops.spec.errors import Trap, Unsupported
from uops.spec.result import Result

class Fake(Backend):
    name = "fake"
    def __init__(self, label="plain"):
        self.label, self.poisoned = label, False
    def version(self):
        return f"fake {self.label}"
    def capabilities(self):
        return Capabilities()
    def run(self, graph, inputs):
        getattr(self, str(inputs_name(inputs)))(inputs)
        if self.poisoned and "fragile" in inputs:
            ctypes.string_at(0)
        return Result((inputs["p0"] + inputs["p0"],), {"b7": inputs["p0"]})
    def do_nothing(self, inputs): pass
    def do_segfault(self, inputs): ctypes.string_at(0)
    def do_poison(self, inputs): self.poisoned = True
    def do_fpe(self, inputs): os.kill(os.getpid(), signal.SIGFPE)
    def do_abort(self, inputs): os.abort()
    def do_exit(self, inputs): os._exit(3)
    def do_leave(self, inputs): raise SystemExit("bye")
    def do_hang(self, inputs): time.sleep(1000)
    def do_hold(self, inputs): ctypes.PyDLL(None).sleep(1000)
    def do_group(self, inputs): os.killpg(0, signal.SIGTERM); time.sleep(1000)
    def do_breed(self, inputs):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        pathlib.Path(os.environ["FAKE_CHILD"]).write_text(str(child.pid))
    def do_breed_and_hold(self, inputs): self.do_breed(inputs); self.do_hold(inputs)
    def do_spin(self, inputs): np.arange(1 << 20); [None for _ in iter(int, 1)]
    def do_trap(self, inputs): raise Trap("out of bounds")
    def do_unsupported(self, inputs): raise Unsupported("Sin", "fake")
    def do_error(self, inputs): raise ValueError("bad value")
    def do_recurse(self, inputs): self.do_recurse(inputs)
    def do_memory(self, inputs): np.ones(1 << 34, np.uint8)
    def do_print(self, inputs): print("noise"); sys.stdout.flush(); os.write(1, b"more noise")
    def do_overrun(self, inputs):
        ctypes.memset(GuardedMemory(100, GuardSide.END).address + 100, 1, 1)
    def do_underrun(self, inputs):
        ctypes.memset(GuardedMemory(100, GuardSide.START).address - 1, 1, 1)

def inputs_name(inputs):
    return next((n for n in inputs if n.startswith("do_")), "do_nothing")

class Wrong(Fake):
    def run(self, graph, inputs):
        return 3

class Strange(Fake):
    def run(self, graph, inputs):
        return Result((np.array(["text"]),), {})

class Dies(Fake):
    def __init__(self):
        os.write(2, b"no licence")
        os._exit(9)

class Slow(Fake):
    def __init__(self):
        time.sleep(1000)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("fakes")
    (folder / "fake_backends.py").write_text(FAKE)
    return [str(folder)]


@pytest.fixture(scope="module")
def worker(path: list[str]):
    with BackendWorker("fake_backends:Fake", limits=Limits(timeout=1.0), path=path) as found:
        yield found


X = np.arange(3, dtype=np.float32)
GRAPH = B.add(B.param(0, (3,), dt.float32), B.param(0, (3,), dt.float32))


def case(*flags: str) -> WorkerCase:
    return WorkerCase(GRAPH, {"p0": X, **dict.fromkeys(flags, 1)})


@pytest.mark.parametrize(
    ("what", "status", "says", "signal"),
    [
        ("do_nothing", "ok", "", None),
        ("do_print", "ok", "", None),
        ("do_segfault", "crash", "SIGSEGV", "SIGSEGV"),
        ("do_fpe", "crash", "SIGFPE", "SIGFPE"),
        ("do_abort", "crash", "SIGABRT", "SIGABRT"),
        ("do_exit", "crash", "exited with status 3", None),
        ("do_leave", "crash", "bye", None),
        ("do_hang", "timeout", "no answer within 1 s", None),
        ("do_group", "crash", "SIGTERM", "SIGTERM"),
        ("do_spin", "timeout", "no answer within 1 s", None),
        ("do_trap", "trap", "out of bounds", None),
        ("do_unsupported", "unsupported", "fake does not support Sin", None),
        ("do_error", "error", "ValueError: bad value", None),
        ("do_recurse", "error", "RecursionError", None),
        ("do_memory", "error", "MemoryError", None),
        ("do_overrun", "crash", "SIGSEGV", "SIGSEGV"),
        ("do_underrun", "crash", "SIGSEGV", "SIGSEGV"),
    ],
)
def test_every_end_is_an_outcome_and_the_next_case_runs(
    worker: BackendWorker, what: str, status: str, says: str, signal: str | None
) -> None:
    assert status in STATUSES
    before, bad, after = worker.run_batch([case(), case(what), case()])
    assert (bad.status, bad.signal) == (status, signal), bad
    assert says in bad.message
    for good in (before, after):
        assert good.status == "ok"
        assert good.result.values[0].tolist() == [0.0, 2.0, 4.0]
        assert good.result.buffers["b7"].tolist() == X.tolist()


def test_a_process_that_is_kept_from_running_does_not_hang(path: list[str]) -> None:
    """The limit is one of processor time, unless the process sleeps."""
    with BackendWorker("fake_backends:Fake", limits=Limits(timeout=0.5), path=path) as w:
        assert w.run(case()).status == "ok"
        pid = w._start_process_if_none()._popen.pid
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()
        assert w.run(case()).status == "ok" and w.restarts == 0
        assert [w.run(case(do)).status for do in ("do_hang", "do_spin")] == ["timeout", "timeout"]


def test_a_process_that_stays_stopped_is_not_waited_for_without_end(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uops.backends.worker.patience.STOPPED", 1.0)
    with BackendWorker("fake_backends:Fake", limits=Limits(timeout=0.25), path=path) as w:
        assert w.run(case()).status == "ok"
        os.kill(w._start_process_if_none()._popen.pid, signal.SIGSTOP)
        start = time.monotonic()
        outcome = w.run(case())
        assert time.monotonic() - start >= 1.0
        assert (outcome.status, outcome.message) == ("timeout", "stopped by a signal, and not continued within 1 s")
        assert w.run(case()).status == "ok" and w.restarts == 1


BABBLE = """
import os, sys, time
from fake_backends import Fake
class Babbling(Fake):
    def __init__(self, says):
        super().__init__()
        self.says = says.encode("latin-1")
    def run(self, graph, inputs):
        if "do_babble" in inputs:
            os.write(int(sys.argv[2]), self.says)
            time.sleep(1000)
        return super().run(graph, inputs)
    def do_babble(self, inputs): pass
"""


@pytest.mark.parametrize(
    ("says", "word"),
    [
        (b"\xff" * 64, "expected a frame, got bytes that begin with"),
        (b"a", "expected a frame, got bytes that begin with b'a'"),
        (b"\1\0\0", "expected a frame, got bytes that begin with b'\\x01\\x00\\x00'"),
        (MARK + b"\xff" * 64, "bytes, where at most"),
        (MARK + b"\2" + bytes(7) + b"\0\0\0\x10", "bytes, where at most"),
        (MARK + struct.pack("<IQ", 3, 0) + b"[1]", "holds list"),
        (MARK + struct.pack("<IQ", 3, 0) + b"}\x1b{", "no JSON"),
        (MARK + struct.pack("<IQ", 2, 0) + b"{}", "status None"),
    ],
)
def test_a_process_that_babbles_is_ended_at_once_and_said_so(path: list[str], tmp_path: Path, says: bytes, word: str) -> None:
    (tmp_path / "babbling.py").write_text(BABBLE)
    options = {"says": says.decode("latin-1")}
    with BackendWorker("babbling:Babbling", options, Limits(timeout=60.0), [*path, str(tmp_path)]) as w:
        start = time.monotonic()
        before, bad, after = w.run_batch([case(), case("do_babble"), case()])
        assert time.monotonic() - start < 30.0
    assert (before.status, bad.status, after.status) == ("ok", "crash", "ok")
    assert "its answer cannot be read: " in bad.message and word in bad.message and bad.message.isprintable()


def test_the_system_ends_a_worker_before_the_process_that_judges_it(worker: BackendWorker) -> None:
    """Where memory is short. A worker's own limit comes first: that is an error of its case."""
    assert worker.run(case()).status == "ok"
    pid = worker._start_process_if_none()._popen.pid
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
    os.kill(pid, signal.SIGKILL)
    outcome = worker.run(case())
    assert (outcome.status, outcome.signal) == ("crash", "SIGKILL") and "memory is short" in outcome.message


def test_a_process_that_does_not_read_is_a_timeout(tmp_path: Path) -> None:
    class Deaf(BackendProcess):
        module = "deaf"

    imports = "import os, sys, time\nfrom uops.backends.worker.frames import pack_frame\n"
    greets = f'{imports}os.write(int(sys.argv[2]), pack_frame({{"ready": "deaf"}}))\n'
    (tmp_path / "deaf.py").write_text(f"{greets}time.sleep(60)\n")
    process = Deaf({}, Limits(), {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))})
    process.write_frame_or_mark_hung({}, bytes(8 << 20), 0.2)
    assert process.receive(60.0) is None
    assert process.end_and_explain_no_answer(0.2).status == "timeout"


def test_a_crash_that_an_earlier_case_prepared_says_so(worker: BackendWorker) -> None:
    """Alone the case is fine, so a report must not blame it without a word."""
    worker.close()
    poison, victim, after = worker.run_batch([case("do_poison"), case("fragile"), case()])
    assert (poison.status, victim.status, after.status) == ("ok", "crash", "ok")
    assert "not when run alone (ok)" in victim.message


def test_a_program_that_is_no_text_of_ours_is_an_error(worker: BackendWorker) -> None:
    bad, good = worker.run_batch([WorkerCase("%0 = nonsense ]["), WorkerCase(show(GRAPH), {"p0": X})])
    assert (bad.status, good.status) == ("error", "ok")
    assert "SpecValueError" in bad.message


@pytest.mark.parametrize("factory", ["Wrong", "Strange"])
def test_a_backend_that_returns_something_else_is_an_error(path: list[str], factory: str) -> None:
    with BackendWorker(f"fake_backends:{factory}", path=path) as w:
        found = w.run(case())
    assert found.status == "error"
    assert ("not a Result" in found.message) == (factory == "Wrong")


@pytest.mark.parametrize(
    ("factory", "says"), [("Dies", "no licence"), ("Slow", "no answer within"), ("Absent", "no attribute 'Absent'")]
)
def test_a_backend_that_does_not_start_is_broken(path: list[str], factory: str, says: str) -> None:
    with (
        pytest.raises(BrokenBackend, match=says),
        BackendWorker(f"fake_backends:{factory}", limits=Limits(start=2.0), path=path) as w,
    ):
        w.run(case())


def test_options_reach_the_backend(path: list[str]) -> None:
    with BackendWorker("fake_backends:Fake", {"label": "loud"}, path=path) as w:
        assert w.version() == "fake loud"


ARRAYS = [
    np.array(2.5, np.float32),
    np.zeros((2, 0, 3), np.int8),
    np.array([[True, False]]),
    np.array([1.5, -0.0], ml_dtypes.bfloat16),
    np.array([448.0], ml_dtypes.float8_e4m3fn),
    np.array([np.inf], ml_dtypes.float8_e5m2),
    np.array([0x7FA00001], np.uint32).view(np.float32),
    np.arange(12, dtype=np.uint64).reshape(3, 4).T,
    np.array([[2**70, -(2**80)]], dtype=object),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}")
def test_arrays_cross_with_every_bit(worker: BackendWorker, array) -> None:
    found = worker.run(WorkerCase(GRAPH, {"p0": array}))
    assert found.status == "ok"
    back = found.result.buffers["b7"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tolist() == array.tolist() if array.dtype == object else back.tobytes() == array.tobytes()


def test_an_array_in_another_byte_order_crosses_in_the_native_one(worker: BackendWorker) -> None:
    found = worker.run(WorkerCase(GRAPH, {"p0": np.array([1.0, 2.0], ">f4")}))
    back = found.result.buffers["b7"]
    assert back.dtype == np.dtype(np.float32) and back.tolist() == [1.0, 2.0]


def test_a_python_int_beyond_64_bits_crosses(worker: BackendWorker) -> None:
    found = worker.run(WorkerCase(GRAPH, {"p0": 2**99}))
    assert int(found.result.values[0]) == 2**100


def test_a_batch_of_hundreds_takes_one_process(worker: BackendWorker) -> None:
    before = worker.restarts
    assert all(o.status == "ok" for o in worker.run_batch([case()] * 500))
    assert worker.restarts == before


def test_a_process_is_renewed_between_batches_without_a_loss(worker: BackendWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uops.backends.worker.client._LIFE", 4)
    worker.close()
    before, processes = worker.restarts, []
    for _ in range(6):
        assert [o.status for o in worker.run_batch([case()] * 2)] == ["ok", "ok"]
        processes.append(worker._process)
    assert [p is q for p, q in pairwise(processes)] == [True, False, True, False, True]
    assert worker.restarts == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_run_all_keeps_the_order_over_crashes(path: list[str], jobs: int) -> None:
    kinds = ["do_nothing", "do_trap", "do_nothing", "do_segfault", "do_error"] * 5
    cases = (WorkerCase(GRAPH, {"p0": X + k, kind: 1}) for k, kind in enumerate(kinds))
    found = list(run_cases_on_workers("fake_backends:Fake", cases, jobs=jobs, batch=4, path=path))
    expected = {"do_nothing": "ok", "do_trap": "trap", "do_segfault": "crash", "do_error": "error"}
    assert [o.status for o in found] == [expected[kind] for kind in kinds]
    assert [o.result.values[0][0] for o in found if o.result] == [2.0 * k for k, kind in enumerate(kinds) if kind == "do_nothing"]


def test_run_all_reads_cases_as_it_needs_them_and_stops_when_asked(path: list[str]) -> None:
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield case()

    outcomes = run_cases_on_workers("fake_backends:Fake", endless(), batch=4, path=path)
    assert next(outcomes).status == "ok"
    outcomes.close()
    assert len(taken) <= 16


ORPHAN = """
import sys
from uops.backends.worker.client import BackendWorker, Limits, WorkerCase
worker = BackendWorker("fake_backends:Fake", limits=Limits(timeout=100), path=[sys.argv[1]])
worker.version()
print(worker._process._popen.pid, flush=True)
worker.run(WorkerCase(sys.argv[2], {"p0": 1, sys.argv[3]: 1}))
"""


@pytest.mark.parametrize("does", ["do_hang", "do_hold", "do_breed_and_hold"])
def test_a_killed_parent_leaves_no_process_whatever_its_worker_does(path: list[str], tmp_path: Path, does: str) -> None:
    """A worker that lets no other thread run is ended by the system, and so is what it has started."""
    bred = tmp_path / "bred"
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1]), "FAKE_CHILD": str(bred)}
    command = [sys.executable, "-c", ORPHAN, path[0], show(GRAPH), does]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        left = [int(parent.stdout.readline())]
        if "breed" in does:
            assert holds(lambda: bred.exists() and bred.read_text() != "")
            left.append(int(bred.read_text()))
        assert holds(lambda: sleeps(left[0]))
        parent.kill()
    assert holds(lambda: not any(map(alive, left)))


def test_a_worker_that_is_closed_leaves_nothing_that_it_has_started(
    path: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CHILD", str(tmp_path / "bred"))
    with BackendWorker("fake_backends:Fake", path=path) as w:
        assert w.run(case("do_breed")).status == "ok"
        bred = int((tmp_path / "bred").read_text())
        assert alive(bred)
    assert holds(lambda: not alive(bred))


@pytest.mark.parametrize("module", ["uops.backends.worker.serve", "uops.fuzz.campaign.serve", "uops.cli.apart"])
def test_every_process_of_foreign_code_leads_a_session_of_its_own(tmp_path: Path, module: str) -> None:
    (tmp_path / "talks.py").write_text("import os\nraise RuntimeError(f'{os.getsid(0)} {os.getpgrp()} {os.getppid()}')")

    class Talking(BackendProcess):
        pass

    Talking.module = module
    setup = {"backend": "talks:Backend", "seed": 0, "kinds": ["tensor"], "oracles": []}
    settings = {"backend": "talks:Backend", "options": {}, "setup": setup, "memory": 0, "path": [str(tmp_path)], "arguments": []}
    with pytest.raises(BrokenBackend, match=r"talks:Backend.*RuntimeError: ") as caught:
        Talking(settings, Limits(), {})
    session, group, parent = map(int, str(caught.value).rpartition(": ")[2].split())
    assert session == group != os.getpgrp() and parent == os.getpid()


def test_an_interrupted_start_leaves_no_process(path: list[str]) -> None:
    begun: list[BackendProcess] = []

    def interrupt(process: BackendProcess) -> None:
        begun.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BackendProcess({"backend": "fake_backends:Slow", "options": {}, "memory": 0, "path": path}, Limits(), {}, interrupt)
    assert begun[0]._popen.returncode == -signal.SIGKILL


@pytest.mark.parametrize("does", ["do_hang", "do_hold"])
def test_outcomes_that_nobody_wants_any_more_are_not_waited_for(path: list[str], does: str) -> None:
    cases = [case(), *[case(does)] * 8]
    outcomes = run_cases_on_workers("fake_backends:Fake", cases, batch=1, limits=Limits(timeout=100.0), path=path)
    assert next(outcomes).status == "ok"
    start = time.monotonic()
    outcomes.close()
    assert time.monotonic() - start < 10.0


@pytest.mark.parametrize(("seconds", "starved", "most"), [(0.5, 1.0, 0.75), (0.5, 3.0, 2.0)])
def test_a_process_that_others_keep_from_running_has_its_seconds_so_many_times(
    monkeypatch: pytest.MonkeyPatch, seconds: float, starved: float, most: float
) -> None:
    """A start has them once: its limit is one of the user's."""
    monkeypatch.setattr("uops.backends.worker.patience._read_cpu_seconds_and_states", lambda pid: (0.0, {"R"}))
    monkeypatch.setattr("uops.backends.worker.patience.LOOK", 0.125)
    start = time.monotonic()
    assert not Patience((0,), seconds, starved).wait_until_ready_or_time_out(select.poll())
    assert seconds * starved <= time.monotonic() - start < most + 1.0


def test_a_start_that_others_keep_from_running_ends_at_its_limit(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uops.backends.worker.patience._read_cpu_seconds_and_states", lambda pid: (0.0, {"R"}))
    start = time.monotonic()
    with pytest.raises(BrokenBackend, match="fake_backends:Slow: its process did not start: no answer within 1 s"):
        BackendWorker("fake_backends:Slow", limits=Limits(start=1.0), path=path).version()
    assert time.monotonic() - start < 6.0


def holds(claim: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Return True once the claim holds, False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not (found := claim()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def sleeps(pid: int) -> bool:
    """Return True if the main thread of a process is in a call of `sleep`."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
