"""Threads that share the loop of a C kernel: every iteration once, with any compiler, number of threads and extent."""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thread_kernels import PIECE, check_a_part_does_its_iterations_and_the_kernel_all, counting, load, share

import uops
from uops.backends.c import driver
from uops.backends.c import machine as machines
from uops.backends.c.driver import Compiler
from uops.backends.c.render import find_functions, render
from uops.backends.c.target import DriverTarget, TinyTarget
from uops.backends.cache import ObjectCache
from uops.backends.calling import ENTRY, PART
from uops.backends.conformance.cases.launches import KernelBuilder, make_launch
from uops.backends.native_entry import sharing
from uops.backends.worker.client import BackendWorker, WorkerCase
from uops.compiler import Config, compile
from uops.compiler.runtime.frame import KernelLaunch, ProgramFrame
from uops.compiler.target import MachineModel, Thresholds
from uops.spec.errors import Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

MAKE: dict[str, Callable[[], Any]] = {
    "tcc": lambda: TinyTarget(ObjectCache(None)),
    "gcc": lambda: DriverTarget("gcc", ObjectCache(None)),
    "clang": lambda: DriverTarget("clang", ObjectCache(None)),
}


@pytest.fixture(params=MAKE)
def target(request: pytest.FixtureRequest, skip_absent: Callable[[str, Exception], Any]) -> Any:
    try:
        return MAKE[request.param]()
    except Unsupported as e:
        return skip_absent(request.param, e)


@pytest.mark.parametrize("d", [dt.index, dt.int32, dt.int8], ids=str)
def test_a_part_does_its_iterations_and_the_kernel_all(target: Any, d: DType) -> None:
    text = render(counting(10, 10, d=d))
    assert find_functions(text) == (ENTRY, PART)
    kernel = load(target, counting(10, 10, d=d))
    check_a_part_does_its_iterations_and_the_kernel_all(kernel)


@pytest.mark.parametrize("n", [2, 3, 17, 1001])
def test_every_iteration_is_done_once(target: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with fewer iterations than threads, and with fewer pieces than both."""
    kernel = load(target, counting(n, n))
    for threads in (2, 3, 7):
        for pieces in (2, 5, 1000):
            run, found = share(target, kernel, n, pieces * PIECE, threads, monkeypatch), np.zeros(n, np.int64)
            for _ in range(20):
                run(found)
            assert found.tolist() == [20] * n


def test_several_threads_work_at_one_job(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load(target, counting(64, 64, inner=2_000_000))
    run, found = share(target, kernel, 64, 64 * PIECE, 2, monkeypatch), np.zeros(64, np.int64)
    mine, all_ = time.thread_time(), time.process_time()
    run(found)
    mine, all_ = time.thread_time() - mine, time.process_time() - all_
    assert found.tolist() == [2_000_000] * 64
    if all_ > 0.1:  # a compiler may have found the sum in closed form
        assert 0.1 * all_ < mine < 0.9 * all_


def test_a_loop_of_variable_extent_is_no_part(target: Any) -> None:
    """Its kernel runs every iteration, and none for an extent of 0."""
    n = B.variable("n", 0, 9, slot=1)
    text = render(counting(n, 9))
    assert find_functions(text) == (ENTRY,)
    kernel = load(target, counting(n, 9))
    assert kernel.part == 0
    for extent in (0, 1, 5, 9):
        found = np.zeros(9, np.int64)
        kernel([found.ctypes.data, 0], [0, extent])
        assert found.tolist() == [1] * extent + [0] * (9 - extent)


def test_an_empty_loop_runs_no_iteration(target: Any) -> None:
    kernel, found = load(target, counting(0, 4)), np.zeros(4, np.int64)
    kernel([found.ctypes.data], [0])
    assert found.tolist() == [0] * 4


@pytest.mark.parametrize(("n", "work", "threads"), [(0, 1 << 20, 2), (1, 1 << 20, 2), (8, 1, 2), (8, 1 << 20, 1)])
def test_nothing_to_share_needs_no_native_entry(
    target: Any, n: int, work: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "available_cores", lambda: threads)
    launch = KernelLaunch(load(target, counting(n, 8)), ((0, 0),), (None,), n, work)
    assert target.enter(ProgramFrame(1, 0, None, (), (), (), (launch,), False, 0, PIECE), lambda: None) is None


def x(slot: int, *shape: Any) -> UOp:
    return B.param(slot, shape, dt.float32)


#: Programs whose results do not depend on the order of sums.
PROGRAMS: dict[str, Callable[[], UOp]] = {
    "elementwise": lambda: B.add(B.mul(x(0, 37, 29), x(1, 37, 29)), x(0, 37, 29)),
    "transposed": lambda: B.mul(B.permute(x(0, 37, 29), (1, 0)), 3.0),
    "row maxima": lambda: B.reduce(x(0, 37, 29), Op.MAX, (1,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_threads_has_the_bits_of_one_without(target: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "available_cores", lambda: 3)
    graph, rng = PROGRAMS[name](), np.random.default_rng(1)
    given = {k: rng.standard_normal((37, 29)).astype(np.float32) for k in ("p0", "p1")}
    runs = {}
    for cores in (1, 3):
        target.machine = MachineModel(cores=cores, thresholds=Thresholds(threaded_operations=0, piece_instructions=1))
        program = compile(graph, target, Config(reuse=False))
        shared = [launch for launch in program._launches if launch.thread_extent > 1 and launch.kernel.part]
        assert bool(shared) == (cores > 1) == (program._native_entry is not None)
        runs[cores] = program({k: given[k] for k in program.keys}).values[0]
    assert runs[1].tobytes() == runs[3].tobytes()


def test_a_setting_of_one_thread_shares_nothing(target: Any) -> None:
    target.machine = MachineModel(cores=3)
    program = compile(B.add(x(0, 1024, 512), 1.0), target, Config(reuse=False, threads=1))
    assert program._native_entry is None
    assert all(launch.thread_extent == 0 for launch in program._launches)


def test_a_kernel_calls_the_part_beside_it(target: Any) -> None:
    """Whatever the libraries of the process export: the kernel of a shared object is not bound to another `part`."""
    folder = tempfile.TemporaryDirectory()
    if isinstance(target, DriverTarget):
        other = Path(folder.name) / "other.so"
        other.write_bytes(driver.compile_shared_object(target.compiler, f"void {PART}(void) {{ }}"))
        ctypes.CDLL(str(other), mode=os.RTLD_GLOBAL)
    found = np.zeros(3000, np.int64)
    load(target, counting(3000, 3000, 3))([found.ctypes.data], [0])
    assert found.tolist() == [3] * 3000
    folder.cleanup()


def test_a_kernel_without_threads_is_one_function(target: Any, kernels: Any) -> None:
    kernel = kernels.elementwise(8, dt.float32, (dt.float32,), lambda v: v)
    assert find_functions(render(kernel)) == (ENTRY,)
    assert load(target, kernel).part == 0


SCRIPT = """
import os, signal, sys
import numpy as np, pytest
sys.path[:0] = sys.argv[1:]
from test_threads import *
patch, target = pytest.MonkeyPatch(), MAKE["tcc"]()
"""


def script(text: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT + text, str(Path(__file__).parent), str(Path(__file__).parents[1] / "claims")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def needs_tcc(skip_absent: Callable[[str, Exception], Any]) -> None:
    try:
        MAKE["tcc"]()
    except Unsupported as e:
        skip_absent("tcc", e)


@pytest.mark.usefixtures("needs_tcc")
def test_a_child_of_a_fork_has_threads_of_its_own() -> None:
    done = script("""
kernel, found = load(target, counting(64, 64, inner=2000)), np.zeros(64, np.int64)
run = share(target, kernel, 64, 64 * PIECE, 4, patch)
run(found)
child = os.fork()
if not child:
    mine = np.zeros(64, np.int64)
    run(mine)
    os._exit(0 if mine.tolist() == [2000] * 64 and len(os.listdir("/proc/self/task")) == 4 else 3)
assert os.waitpid(child, 0)[1] == 0
run(found)
assert found.tolist() == [4000] * 64
print("well")
""")
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


@pytest.mark.usefixtures("needs_tcc")
def test_a_process_ends_while_its_threads_wait() -> None:
    done = script("""
share(target, load(target, counting(64, 64)), 64, 64 * PIECE, 4, patch)(np.zeros(64, np.int64))
print("well", flush=True)
""")
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


@pytest.mark.usefixtures("needs_tcc")
def test_a_kernel_that_faults_in_a_thread_ends_the_process() -> None:
    done = script("""
run = share(target, load(target, counting(1 << 40, 1 << 40)), 1 << 40, 64 * PIECE, 4, patch)
run(np.zeros(64, np.int64))
""")
    assert -done.returncode in (signal.SIGSEGV, signal.SIGABRT), done.stderr  # the C library may see the damaged heap first


@pytest.mark.usefixtures("needs_tcc")
def test_a_worker_reports_the_fault_of_a_shared_loop_and_goes_on() -> None:
    with BackendWorker("c") as worker:
        outcomes = list(worker.run_batch([scattering(0), scattering(1 << 40), scattering(0)]))
    assert [o.status for o in outcomes] == ["ok", "crash", "ok"], outcomes
    assert outcomes[1].signal == "SIGSEGV"


def scattering(far: int) -> WorkerCase:
    """A launch of a kernel with a THREAD loop that writes `far` elements behind its buffer, as its data say."""
    k = KernelBuilder({})
    out = k.add_target(dt.int64, 64)
    places = k.add_source(dt.int64, 64, np.arange(64, dtype=np.int64) + far)
    i, j = k.make_range(64, AxisType.THREAD), k.make_range(1000)
    at = B.at(out, B.cast(B.load(B.at(places, i)), dt.index))
    effect = B.end(B.end(B.store(at, B.cast(j, dt.int64)), j), i)
    return WorkerCase(make_launch(k.call(effect)), k.inputs)


MACROS = {
    "avx512": ("#define __AVX512VL__ 1\n#define __AVX2__ 1\n#define __SSE2__ 1\n#define __FMA__ 1\n", (64, 32, True)),
    "avx2": ("#define __AVX2__ 1\n#define __SSE2__ 1\n#define __FMA__ 1\n", (32, 16, True)),
    "sse2": ("#define __SSE2__ 1\n#define NOT__FMA__ 1\n", (16, 16, False)),
    "neon": ("#define __ARM_NEON 1\n#define __ARM_FEATURE_FMA 1\n", (16, 32, True)),
    "nothing": ("", (0, 16, False)),
}


@pytest.mark.parametrize("name", MACROS)
def test_the_macros_of_a_compiler_say_what_its_vectors_are(name: str) -> None:
    text, expected = MACROS[name]
    found = machines.describe_machine_by_compiler_macros(Compiler("gcc", "/gcc", "1", text))
    assert (found.vector_bytes, found.registers, found.fma) == expected
    assert not found.masks
    assert found.cores == machines.available_cores()


def test_a_target_has_the_machine_of_its_compiler(target: Any) -> None:
    found = target.machine
    if isinstance(target, TinyTarget):
        assert found == MachineModel(cores=machines.available_cores())
    elif platform.machine() == "x86_64":
        assert found.vector_bytes >= 16


@pytest.mark.usefixtures("needs_tcc")
def test_a_program_without_shared_loops_loads_no_llvm() -> None:
    text = """
import sys
import numpy as np
import uops
from uops.backends.c.target import TinyTarget
from uops.compiler import compile
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
graph = B.add(B.param(0, (3,), dt.float32), 1.0)
assert compile(graph, TinyTarget())({"p0": np.ones(3, np.float32)}).values[0].tolist() == [2.0] * 3
print([name for name in sys.modules if name.startswith("llvmlite")])
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
