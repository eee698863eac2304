"""The text of kernels in CUDA C, its launch, and that nvrtc takes it; no GPU is needed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kernel_claims import GOLDEN, linear, register
from workgroup_kernels import nest, reversal, special

from uops.backends.cstyle.language import MAX_LANES
from uops.backends.cstyle.launch import LaunchShape, parse_launch_comment
from uops.backends.cuda import nvrtc, shim
from uops.backends.cuda.render import CUDA, OPS, render
from uops.compiler.target import PLAIN_OPS
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

needs_nvrtc = pytest.mark.skipif(nvrtc.unavailable_reason() is not None, reason=str(nvrtc.unavailable_reason()))


def shape_of(kernel: UOp) -> LaunchShape:
    return parse_launch_comment(render(kernel))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rendered_text_is_the_golden_one(kernels, golden, name: str) -> None:
    golden(f"cuda-{name}.cu", render(GOLDEN[name](kernels)))


def test_shared_memory_and_barriers_have_a_text_of_their_own(golden) -> None:
    golden("cuda-workgroup-reversal.cu", text := render(reversal(4, 8)))
    assert "__shared__" in text and "__syncthreads();" in text
    assert parse_launch_comment(text).local_bytes == 32


def test_the_renderer_has_every_op_that_selection_leaves_and_those_of_workgroups() -> None:
    assert PLAIN_OPS | {Op.SPECIAL, Op.BARRIER, Op.ATOMICADD, Op.IF, Op.ENDIF} <= OPS
    assert CUDA.workgroups is not None


def test_all_ranges_of_a_launch_share_one_dimension_the_innermost_fastest() -> None:
    text = render(nest((6, AxisType.GLOBAL), (4, AxisType.GLOBAL), (8, AxisType.LOCAL), (2, AxisType.LOCAL), (3, AxisType.LOOP)))
    shape = parse_launch_comment(text)
    assert (shape.groups, shape.lanes) == ((6, 4), (8, 2)) and text.count("for (") == 1
    assert shape.count_groups_and_lanes([0]) == (24, 16)
    assert "= blockIdx.x % 4;" in text.replace("(", "").replace(")", "")
    assert "= threadIdx.x % 2;" in text.replace("(", "").replace(")", "")
    assert "__launch_bounds__(16)" in text


def test_lanes_of_outputs_are_faster_than_those_of_a_reduction() -> None:
    shape = shape_of(nest((4, AxisType.GLOBAL), (32, AxisType.LOCAL), (16, AxisType.GROUP_REDUCE)))
    assert shape.lanes == (16, 32)


def variable(slot: int) -> UOp:
    return UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(slot, dt.index, name=f"n{slot}", bounds=(-9, 9)))


@pytest.mark.parametrize(("sizes", "groups"), [((2, 3), 30), ((1, 9), 45), ((0, 3), 0), ((-2, -3), 0)])
def test_variable_extents_share_the_dimension_too_R57(sizes: tuple[int, int], groups: int) -> None:
    ranges = [UOp(Op.RANGE, (variable(1),), A.RangeArg(0, AxisType.GLOBAL)), B.range_(5, 1, AxisType.GLOBAL)]
    ranges.append(UOp(Op.RANGE, (variable(2),), A.RangeArg(2, AxisType.GLOBAL)))
    where: UOp = B.index(0)
    for r in ranges:
        where = B.add(B.mul(where, B.index(9)), r)
    root = B.store(B.at(B.param(0, (4096,), dt.int32), where), B.const(1))
    for r in reversed(ranges):
        root = B.end(root, r)
    text = render(linear(root))
    assert parse_launch_comment(text).count_groups_and_lanes([0, *sizes]) == (groups, 1)
    assert "(blockIdx.x / ((u32)n2 * 5))" in text and "% (u32)n2" in text


def test_strides_of_several_variables_are_their_product() -> None:
    ranges = [UOp(Op.RANGE, (variable(1 + k),), A.RangeArg(k, AxisType.GLOBAL)) for k in range(3)]
    where: UOp = B.index(0)
    for r in ranges:
        where = B.add(B.mul(where, B.index(9)), r)
    root = B.store(B.at(B.param(0, (4096,), dt.int32), where), B.const(1))
    for r in reversed(ranges):
        root = B.end(root, r)
    assert "(blockIdx.x / ((u32)n3 * (u32)n2))" in render(linear(root))


def test_specials_number_blocks_and_threads_by_their_names() -> None:
    where: UOp = B.index(0)
    for name, n in (("gidx0", 4), ("lidx0", 2), ("lidx1", 8)):
        where = B.add(B.mul(where, B.index(n)), special(name, B.index(n)))
    shape = parse_launch_comment(text := render(linear(B.store(B.at(B.param(0, (64,), dt.int32), where), B.const(1)))))
    assert (shape.groups, shape.lanes) == ((4,), (8, 2))
    assert "(threadIdx.x % 2)" in text  # number 0 varies fastest


def test_more_lanes_than_a_block_has_stay_loops_and_cannot_meet() -> None:
    text = render(nest((MAX_LANES, AxisType.LOCAL), (2, AxisType.LOCAL)))
    assert parse_launch_comment(text).lanes == (MAX_LANES,) and text.count("for (") == 1
    with pytest.raises(CompileError, match="R60"):
        render(reversal(4, 2 * MAX_LANES))
    where = B.add(B.mul(special("lidx0", B.index(64)), B.index(64)), special("lidx1", B.index(64)))
    with pytest.raises(Unsupported, match="SPECIAL in a launch"):
        render(linear(B.store(B.at(B.param(0, (4096,), dt.int32), where), B.const(1))))


def test_arguments_that_a_kernel_may_write_are_marked(kernels) -> None:
    assert shape_of(reversal(4, 8)).arguments == ("written", "buffer")
    x, out = B.param(0, (3,), dt.int32), B.param(1, (3,), dt.int32)
    add = UOp(Op.ATOMICADD, (B.at(out, 0), B.load(B.at(x, 1))))
    assert shape_of(linear(add)).arguments == ("buffer", "written")
    opaque = UOp(Op.CUSTOM, (B.at(x, 0), B.load(B.at(out, 0))), A.CustomArg("{0} = {1};", dt.void))
    assert shape_of(linear(opaque)).arguments == ("written", "written")


def sums_in_a_loop(size: int, steps: int) -> UOp:
    """p0[k] = the sum of p1[r] over `steps` iterations r, for each k of a tile in registers."""
    reg, r = register(size, dt.float32, 5), B.range_(steps, 0, AxisType.REDUCE)
    out, x = B.param(0, (size,), dt.float32), B.param(1, (steps,), dt.float32)
    zeros = [B.store(B.at(reg, k), B.const(0.0)) for k in range(size)]
    place = [B.at(B.after(reg, *zeros, r), k) for k in range(size)]
    added = B.end(UOp(Op.GROUP, tuple(B.store(p, B.add(B.load(p), B.load(B.at(x, r)))) for p in place)), r)
    return linear(UOp(Op.GROUP, tuple(B.store(B.at(out, k), B.load(B.at(B.after(reg, added), k))) for k in range(size))))


@pytest.mark.parametrize(("size", "steps", "hinted"), [(16, 8, True), (16, 7, False), (16, 4, False), (4, 8, False)])
def test_a_loop_is_unrolled_by_a_hint_if_no_iteration_is_left_over(size: int, steps: int, hinted: bool) -> None:
    """nvrtc 13 counts wrongly where some are (N02): 1089 of a campaign on an H200."""
    assert ("#pragma unroll 4\n" in render(sums_in_a_loop(size, steps))) == hinted


@needs_nvrtc
@pytest.mark.parametrize("name", GOLDEN)
def test_nvrtc_makes_a_cubin_of_a_text(kernels, name: str) -> None:
    cubin = nvrtc.compile_to_cubin(render(GOLDEN[name](kernels)), nvrtc.DEFAULT_ARCHITECTURE)
    assert cubin.startswith(b"\x7fELF") and b"entry" in cubin


#: Everything that the shim defines for kernels, as CUDA has it.
CALLS = """typedef unsigned int u32;
extern "C" __global__ void __launch_bounds__(8) entry(u32 *a, unsigned long long *b, float *x, double *y) {
  extern __shared__ __align__(16) unsigned char shared[];
  u32 k = blockIdx.x + threadIdx.x;
  __syncthreads();
  a[k] = atomicCAS(a, 1u, 2u) + __popc(a[k]) + __popcll(b[k]) + __byte_perm(a[k], 0, 0x0123) + shared[k];
  b[k] = atomicCAS(b, 1ull, 2ull);
  x[k] = __fmaf_rn(x[k], x[k], truncf(__fsqrt_rn(x[k]))); y[k] = __fma_rn(y[k], y[k], trunc(__dsqrt_rn(y[k])));
}
"""


@needs_nvrtc
def test_what_the_shim_defines_is_what_cuda_has() -> None:
    assert nvrtc.compile_to_cubin(CALLS, nvrtc.DEFAULT_ARCHITECTURE).startswith(b"\x7fELF")
    names = ("__fmaf_rn", "__fma_rn", "__fsqrt_rn", "__dsqrt_rn", "atomicCAS", "__syncthreads", "__popc", "__popcll", "__byte_perm")
    assert all(n in shim._HEADER and n in CALLS for n in names)


@needs_nvrtc
def test_a_text_that_nvrtc_rejects_is_a_crash_that_shows_it() -> None:
    with pytest.raises(Crash, match=r"(?s)nvrtc rejects.*oops"):
        nvrtc.compile_to_cubin("// launch {}\n__global__ void entry(oops) {", nvrtc.DEFAULT_ARCHITECTURE)
    with pytest.raises(Crash, match="nvrtc"):
        nvrtc.compile_to_cubin("__global__ void entry() {}", "sm_1")


def test_an_absent_library_is_unsupported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidate_libraries", lambda: iter(["/nowhere/libnvrtc.so"]))
    monkeypatch.setattr(nvrtc, "load_nvrtc", nvrtc.load_nvrtc.__wrapped__)
    assert "nvrtc is not installed" in str(nvrtc.unavailable_reason())


def test_a_library_that_the_loader_finds_takes_no_builtins_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libnvrtc-builtins.so.13").write_bytes(b"no library")
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(nvrtc, "_candidate_libraries", lambda: iter(["libnvrtc.so.13"]))
    monkeypatch.setattr(
        nvrtc.ctypes, "CDLL", lambda path: asked.append(path) or SimpleNamespace(nvrtcGetErrorString=SimpleNamespace())
    )
    nvrtc.load_nvrtc.__wrapped__()
    assert asked == ["libnvrtc.so.13"]


LIMITED = """
import resource
from uops.spec.resources import limit_data_instead_of_addresses, compute_min_of_ram_and_rlimits
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))
before = compute_min_of_ram_and_rlimits()
limit_data_instead_of_addresses()
assert resource.getrlimit(resource.RLIMIT_AS)[0] == hard
assert compute_min_of_ram_and_rlimits() == before <= 4 << 30
"""


def test_a_worker_s_limit_of_addresses_becomes_one_of_data() -> None:
    """The driver reserves addresses for all memory of host and device, and kernels use little of them."""
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    subprocess.run([sys.executable, "-c", LIMITED], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})
