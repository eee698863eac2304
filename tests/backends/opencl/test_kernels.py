"""Kernels on OpenCL: claims about any machine, workgroups, and memory that host and device share.

A kernel takes PoCL about half a second, so of the claims there are those that its compiler's settings decide; the conformance suite
has the rest. Every device runs them, and PoCL also the text for other platforms. Skipped, with the reason, where one is absent.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from alu_claims import (  # noqa: F401 - the claims are tests
    test_an_op_on_constants_is_no_less_defined_R16,
    test_float_binary_R11_R16_R19,
    test_float_neg_flips_the_sign_of_a_nan_and_keeps_its_payload_R21,
    test_float_unary_R16_R21,
    test_mulacc_rounds_once_R16,
    test_not_R09,
)
from kernel_claims import (  # noqa: F401
    linear,
    test_a_bitcast_of_a_reference_is_the_same_address,
    test_a_bool_is_stored_as_one_byte_of_0_or_1_R24,
    test_a_false_gate_leaves_the_address_untouched_R52,
    test_a_named_param_is_read_from_the_scalars_R48,
    test_an_if_runs_its_stores_only_when_the_gate_holds,
    test_atomic_add_sums_R56,
    test_load_store_where_and_registers_keep_nan_payloads_R28,
    test_nested_loops_and_an_accumulator,
    test_the_floating_point_environment_is_left_alone_R19,
)
from workgroup_claims import *  # noqa: F403 - the claims are tests
from workgroup_kernels import local, nest

import uops
from uops.backends import registry
from uops.backends.opencl import device, probe
from uops.backends.opencl.choice import open_device, unavailable_reason
from uops.backends.opencl.target import OpenClTarget
from uops.backends.worker.client import BackendWorker, Limits, WorkerCase
from uops.compiler import compile as compile_for
from uops.compiler.config import Config
from uops.compiler.runtime.program import Compiled
from uops.compiler.target import Ability
from uops.interp import run as interpreted
from uops.spec.errors import Crash, Unsupported
from uops.spec.extras import install_command
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

pytestmark = pytest.mark.skipif(unavailable_reason("pocl") is not None, reason=str(unavailable_reason("pocl")))

LIMITS = Limits(timeout=120.0, start=120.0)  # PoCL's compiler on a busy machine


@pytest.fixture(params=["opencl", "opencl:plain", "opencl:intel", "opencl:oclgrind"])
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("dtype", "size"), [(dt.int8, 2), (dt.int16, 4), (dt.int32, 2), (dt.float32, 2)], ids=str)
def test_a_small_register_that_lives_across_a_barrier_is_every_lane_s_own(dtype: dt.DType, size: int) -> None:
    """PoCL 3.0 shares it between all lanes where it is an array of 8 bytes that is cleared whole (P02)."""
    lane, e, k = B.range_(8, 0, AxisType.LOCAL), B.range_(size, 1), B.range_(3, 2, AxisType.REDUCE)
    x, out = (B.param(s, (8 * size,), dtype) for s in (1, 0))
    reg, tile = B.buffer(size, dtype, addrspace=A.AddrSpace.REG, unique=81), local(8, dtype, 82)
    where = [B.add(B.mul(lane, B.index(size)), B.index(j)) for j in range(size)]
    stored = [B.store(B.at(reg, j), B.load(B.at(x, at))) for j, at in enumerate(where)]
    met = UOp(Op.BARRIER, (B.store(B.at(tile, lane), B.load(B.at(x, lane))), *stored))
    place = B.at(B.after(reg, met, e, k), e)
    added = B.store(place, B.add(B.load(place), B.load(B.at(B.after(tile, met), k))))
    done = B.after(reg, UOp(Op.BARRIER, (B.end(B.end(added, k), e),)))
    results = [B.store(B.at(out, at), B.load(B.at(done, j))) for j, at in enumerate(where)]
    graph = B.sink(B.end(UOp(Op.GROUP, tuple(results)), lane), name="k")
    given = {"p0": np.zeros(8 * size, dtype.name), "p1": np.arange(8 * size).astype(dtype.name)}
    meant = interpreted(graph, given).buffers["p0"]
    program = Compiled(graph, target(), Config(reuse=False), Dialect.SCHEDULED)
    assert program(given).buffers["p0"].tolist() == meant.tolist()


@pytest.mark.parametrize(("count", "factor", "size"), [(5, 3, 8), (7, 3, 8), (9, 5, 16), (20, 7, 64)])
def test_a_loop_reads_at_multiples_of_its_counter_within_a_power_of_two(count: int, factor: int, size: int) -> None:
    """The vectorizer of PoCL 3.0 drops the remainder, and reads beyond the memory (P03)."""
    k = B.range_(count, 0)
    x, out = B.param(1, (size,), dt.int32), B.param(0, (count,), dt.int32)
    value = B.load(B.at(x, B.mod(B.mul(k, factor), size)))
    graph = B.sink(B.end(B.store(B.at(out, k), value), k), name="k")
    given = {"p0": np.zeros(count, np.int32), "p1": np.arange(size, dtype=np.int32)}
    program = Compiled(graph, target(), Config(reuse=False), Dialect.SCHEDULED)
    assert program(given).buffers["p0"].tolist() == [factor * n % size for n in range(count)]


@pytest.mark.parametrize(("count", "factor"), [(100, 3), (120, 5)])
def test_a_loop_reads_at_multiples_of_its_counter_that_wrap_in_a_byte(count: int, factor: int) -> None:
    """A cast to a byte is a remainder, too (P03)."""
    k = B.range_(count, 0)
    x, out = B.param(1, (256,), dt.int32), B.param(0, (count,), dt.int32)
    position = B.cast(B.cast(B.mul(B.cast(k, dt.int32), factor), dt.uint8), dt.index)
    graph = B.sink(B.end(B.store(B.at(out, k), B.load(B.at(x, position))), k), name="k")
    given = {"p0": np.zeros(count, np.int32), "p1": np.arange(256, dtype=np.int32)}
    program = Compiled(graph, target(), Config(reuse=False), Dialect.SCHEDULED)
    assert program(given).buffers["p0"].tolist() == [factor * n % 256 for n in range(count)]


def target() -> OpenClTarget:
    return OpenClTarget("pocl")


def test_memory_is_reached_by_address_while_it_is_lent_only() -> None:
    x = np.arange(16, dtype=np.int32)
    start, memory = x.ctypes.data, target().device.memory
    assert Ability.LENDING in target().abilities
    assert memory.find_buffer_and_offset(start) == (None, 0)
    with target().lend([x, x[4:8], np.zeros(0, np.int8)]):
        whole, zero = memory.find_buffer_and_offset(start)
        assert zero == 0
        assert memory.find_buffer_and_offset(start + 17) == (whole, 17)
        assert memory.find_buffer_and_offset(start + 64) == (None, 0)
        with target().lend([np.zeros(3)]):
            assert memory.find_buffer_and_offset(start) == (None, 0)
        assert memory.find_buffer_and_offset(start)[0] is whole
    assert memory.find_buffer_and_offset(start) == (None, 0)


def test_intermediate_values_lie_at_offsets_of_one_arena() -> None:
    """Two kernels in a row: the arena's slices are addresses inside of an array that is lent as a whole."""
    x = B.param(0, (5, 7), dt.float32)
    rows = B.contiguous(B.reduce(x, Op.ADD, (1,)))
    squares = B.contiguous(B.mul(rows, rows))
    graph = B.reduce(B.add(B.expand(rows, (5, 7)), B.expand(squares, (5, 7))), Op.ADD, (0,))
    given = np.arange(35, dtype=np.float32).reshape(5, 7)
    program = compile_for(graph, target())
    assert sum(a.op is Op.SLICE for c in program.program.src for a in c.src[1:]) >= 2
    s = given.sum(1, keepdims=True)
    assert program({"p0": given}).values[0].tolist() == np.broadcast_to(s + s * s, (5, 7)).sum(0, keepdims=True).tolist()


def test_empty_and_repeated_arrays_are_arguments() -> None:
    empty = B.add(B.param(0, (0,), dt.float32), 1.0)
    assert compile_for(empty, target())({"p0": np.zeros(0, np.float32)}).values[0].shape == (0,)
    x = np.arange(4, dtype=np.float32)
    both = compile_for(B.add(B.param(0, (4,), dt.float32), B.param(1, (4,), dt.float32)), target())
    assert both({"p0": x, "p1": x}).values[0].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("guard", ["end", "start"])
def test_a_guarded_kernel_runs_in_a_worker(guard: str) -> None:
    graph, x = B.add(B.param(0, (5,), dt.float32), 1.5), np.zeros(5, np.float32)
    with BackendWorker("opencl", {"guard": guard, "device": "pocl"}, LIMITS) as w:
        outcome = w.run(WorkerCase(graph, {"p0": x}))
    assert outcome.status == "ok", outcome.message
    assert outcome.result is not None
    assert outcome.result.values[0].tolist() == [1.5] * 5


CRASH = """
from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.opencl.target import OpenClTarget

class Overrun(CompilerBackend):
    name = "overrun"
    def __init__(self, by, guard):
        target = OpenClTarget("pocl")
        right = target.render
        target.render = lambda linear: right(linear).replace("p0[", f"p0[{by} + ")
        super().__init__(target, guard=guard)
    def version(self):
        return "overrun"
    def capabilities(self):
        return Capabilities()
"""


@pytest.mark.parametrize(("guard", "by"), [("end", 1), ("start", -1)])
def test_a_kernel_that_leaves_its_buffer_ends_the_worker_only(tmp_path: Path, guard: str, by: int) -> None:
    """The device works in the host's memory itself, so that guard pages guard it too."""
    (tmp_path / "overrun_backend.py").write_text(CRASH)
    graph, x = B.add(B.param(0, (5,), dt.float32), 1.5), np.zeros(5, np.float32)
    with BackendWorker("overrun_backend:Overrun", {"by": by, "guard": guard}, LIMITS, path=[str(tmp_path)]) as w:
        assert w.run(WorkerCase(graph, {"p0": x})).signal == "SIGSEGV"
    with BackendWorker("overrun_backend:Overrun", {"by": 0, "guard": guard}, LIMITS, path=[str(tmp_path)]) as w:
        assert w.run(WorkerCase(graph, {"p0": x})).status == "ok"


def test_an_object_is_loaded_by_another_process_and_compiled_once(tmp_path: Path) -> None:
    """It is the text, and has all that its launch needs. Machine code is made for the size of a group, and for no other."""
    text = target().render(nest((6, AxisType.GLOBAL), (4, AxisType.LOCAL)))
    (tmp_path / "object").write_bytes(target().compile(text))
    code = (
        "import sys, numpy as np; from uops.backends.opencl.target import OpenClTarget; t = OpenClTarget('pocl')\n"
        "made = open(sys.argv[1], 'rb').read(); t.compile(made.decode()); k, out = t.load(made), np.zeros(24, np.int32)\n"
        "with t.lend([out]): k([out.ctypes.data], [0])\n"
        "print(out.sum())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "object")], env=environment, capture_output=True, text=True)
    assert found.stdout == "24\n", found.stderr
    sizes = [f.parent.name.split("-")[:3] for f in (tmp_path / "pocl").rglob("entry.so")]
    assert sorted(sizes) == [["4", "1", "1"], [str(probe.LANES), "1", "1"]]  # the probe's, too


def test_a_text_is_built_once_for_its_check_and_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    real = device.Device.compile_program_uncached_without_warnings
    monkeypatch.setattr(device.Device, "compile_program_uncached_without_warnings", lambda *a: built.append(a) or real(*a))
    text = target().render(nest((7, AxisType.GLOBAL), (11, AxisType.LOCAL)))
    target().load(target().compile(text))
    assert len(built) == 1


def test_a_text_that_is_no_opencl_is_a_crash_that_shows_it() -> None:
    with pytest.raises(Crash, match=r"(?s)rejects.*oops"):
        target().compile("// launch {}\n__kernel void entry(oops) {")


#: Everything of OpenCL C that kernels call.
CALLS = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
__kernel void entry(__global uint *a, __global ulong *b, __global float *x, __global double *y, __local uint *c, __local ulong *d) {
  size_t k = get_group_id(0) + get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  atomic_cmpxchg((volatile __global uint *)a, 1u, 2u); atomic_cmpxchg((volatile __local uint *)c, 1u, 2u);
  atom_cmpxchg((volatile __global ulong *)b, 1ul, 2ul); atom_cmpxchg((volatile __local ulong *)d, 1ul, 2ul);
  x[k] = fma(x[k], x[k], sqrt(x[k])); y[k] = fma(y[k], y[k], sqrt(y[k]));
}
"""
_NAMES = "typedef unsigned uint; typedef unsigned long ulong; typedef unsigned long size_t;\n"


def test_what_kernels_call_is_declared_as_in_the_header_that_is_left_out() -> None:
    d = open_device("pocl")
    d.compile_program_uncached_without_warnings(device.DECLARED + _NAMES + CALLS, (*d.options, device.NO_HEADER))
    d.compile_program_uncached_without_warnings(device.DECLARED + CALLS, d.options)


def test_a_text_that_calls_what_is_not_declared_is_built_with_the_header() -> None:
    text = "__kernel void entry(__global int *x) { x[0] = popcount(x[1]); }"
    d = open_device("pocl")
    with pytest.raises(d.cl.Error):
        d.compile_program_uncached_without_warnings(device.DECLARED + text, (*d.options, device.NO_HEADER))
    assert d.build_program(text)


def test_the_version_names_what_decides_results() -> None:
    backend = registry.create_backend("opencl", device="pocl")
    assert all(words in backend.version() for words in ("Portable Computing Language", "PoCL", "LLVM", open_device("pocl").name))
    assert backend.capabilities().local_memory >= 1 << 15


ABSENT = """
import sys
sys.modules[{module!r}] = None
from uops.backends import registry
try:
    registry.create_backend("opencl")
except Exception as e:
    print(type(e).__name__, e)
"""


def test_an_absent_package_is_unsupported_with_the_reason() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    script = [sys.executable, "-c", ABSENT.format(module="pyopencl")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(Unsupported.__name__)
    assert install_command("opencl") in done.stdout


FOLDER = """
import os
from uops.backends import registry
from uops.spec.ir import build as B, dtypes as dt
import numpy as np
registry.create_backend("opencl", device="pocl").run(B.add(B.param(0, (4,), dt.float32), 2.5), {"p0": np.zeros(4, np.float32)})
print(os.environ["POCL_CACHE_DIR"], len(os.listdir(os.environ["POCL_CACHE_DIR"])) > 0)
"""


def test_what_pocl_keeps_on_disk_goes_with_the_process(tmp_path: Path) -> None:
    left = {k: v for k, v in os.environ.items() if k != "POCL_CACHE_DIR"}
    environment = {**left, "PYTHONPATH": str(Path(uops.__file__).parents[1]), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FOLDER], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [done.stdout.split()[0], "True"]
    assert not Path(done.stdout.split()[0]).exists()
    assert list(tmp_path.glob("**/*pocl*")) == []
