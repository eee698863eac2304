"""Slowdown of kernels in the reference interpreter beside NumPy, one thread, all asserts on.

    python bench/interp_kernels.py [--repeat N] [--lanes]

Each program is a TENSOR graph after the compiler's stage `rangeify`: Calls of kernels. Three medians of processor time are taken
in one run: NumPy's own expression; `kernels`, every kernel by `run_kernel` on existing memories; and `run`, the whole program by
`uops.interp.run`. NumPy must have one thread. The bar for gemm and softmax is 20 times NumPy's time, for `kernels` and for `run`;
the last column names those above it. The other programs are shown for comparison.

`--lanes` also evaluates each program by the lane machine, at an eighth of the extents, and shows its slowdown beside the vector
machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from uops.backends.registry import create_backend
from uops.compiler.pipeline import stages
from uops.interp import run
from uops.interp.kernel.lane_machine.memory import FlatMemory, make_flat_memory
from uops.interp.kernel.run import run_kernel
from uops.interp.kernel.structure.blocks import KernelStructure, build_kernel_structure
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions

LOG2E = 1.4426950408889634
#: Factor by which extents are divided for the lane machine.
SHRINK = 8


class InterpKernelProgram(NamedTuple):
    """A graph, its inputs, and the same computation in NumPy."""

    graph: UOp
    inputs: dict[str, Any]
    numpy: Callable[[], Any]


def random(*shape: int) -> Any:
    """Return standard normal float32."""
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def build_gemm(n: int) -> InterpKernelProgram:
    """Return a product of square matrices."""
    x, y = random(n, n), random(n, n).T.copy()
    graph = compositions.gemm(b.param(0, (n, n), dt.float32), b.param(1, (n, n), dt.float32))
    return InterpKernelProgram(graph, {"p0": x, "p1": y}, lambda: x @ y)


def build_softmax(n: int) -> InterpKernelProgram:
    """Return a softmax over rows."""
    x, log2e = random(n, n), np.float32(LOG2E)
    u = b.param(0, (n, n), dt.float32)
    e = b.exp2(b.mul(b.sub(u, b.reduce(u, Op.MAX, (1,))), LOG2E))

    def own() -> Any:
        e = np.exp2((x - x.max(1, keepdims=True)) * log2e)
        return e / e.sum(1, keepdims=True)

    return InterpKernelProgram(b.div(e, b.reduce(e, Op.ADD, (1,))), {"p0": x}, own)


def build_row_sums(n: int) -> InterpKernelProgram:
    """Return the sums of rows."""
    x = random(n, n)
    return InterpKernelProgram(b.reduce(b.param(0, (n, n), dt.float32), Op.ADD, (1,)), {"p0": x}, lambda: x.sum(1, keepdims=True))


def build_transpose_add(n: int) -> InterpKernelProgram:
    """Return the sum of a matrix and its transpose."""
    x = random(n, n)
    u = b.param(0, (n, n), dt.float32)
    return InterpKernelProgram(b.add(u, b.permute(u, (1, 0))), {"p0": x}, lambda: x + x.T)


def build_convolution(n: int) -> InterpKernelProgram:
    """Return a 3 x 3 window over an n x n image with a zero border; in NumPy a sum of shifted copies."""
    x, w = random(n, n), random(3, 3)
    padded = b.pad_by(b.param(0, (n, n), dt.float32), (1, 1), (1, 1))
    weights = b.param(1, (3, 3), dt.float32)
    terms = [b.mul(b.shrink(padded, (i, j), (n, n)), b.at(weights, i, j)) for i in range(3) for j in range(3)]
    graph = terms[0]
    for t in terms[1:]:
        graph = b.add(graph, t)

    def own() -> Any:
        p = np.pad(x, 1)
        return sum(p[i : i + n, j : j + n] * w[i, j] for i in range(3) for j in range(3))

    return InterpKernelProgram(graph, {"p0": x, "p1": w}, own)


PROGRAMS: dict[str, tuple[Callable[[int], InterpKernelProgram], int, float | None]] = {
    "gemm 64x64x64": (build_gemm, 64, 20.0),
    "softmax 256x256": (build_softmax, 256, 20.0),
    "row sums 512x512": (build_row_sums, 512, None),
    "transpose-add 512x512": (build_transpose_add, 512, None),
    "convolution 256x256": (build_convolution, 256, None),
}


class BoundKernels:
    """A program's kernels, bound to memories."""

    def __init__(self, launch: UOp, inputs: dict[str, Any]) -> None:
        self.memories: dict[UOp, FlatMemory] = {}
        self.bound = [self._bind(call, inputs) for call in launch.src]

    def _bind(self, call: UOp, inputs: dict[str, Any]) -> tuple[KernelStructure, dict[UOp, Any]]:
        """Return a call's kernel and the memories of its leaves."""
        kernel = build_kernel_structure(call.body, lambda u: u.op is Op.PARAM)
        return kernel, {leaf: self._bind_memory(call.src[1 + leaf.arg.slot], inputs) for leaf in kernel.leaves}

    def _bind_memory(self, u: UOp, inputs: dict[str, Any]) -> FlatMemory:
        """Return the memory of an argument: a copy of an input, or new memory."""
        if u not in self.memories:
            if u.op is Op.PARAM:
                self.memories[u] = make_flat_memory(f"p{u.arg.slot}", inputs[f"p{u.arg.slot}"].reshape(-1).copy())
            else:
                self.memories[u] = make_flat_memory(
                    f"b{u.arg.unique}", np.zeros(u.arg.size, NUMPY[u.dtype]), np.zeros(u.arg.size, bool)
                )
        return self.memories[u]

    def run(self, lanes: bool = False) -> None:
        """Run every kernel, on the vector machine or lane by lane."""
        for kernel, operands in self.bound:
            run_kernel(kernel, operands, lanes=lanes)


def median_seconds(action: Callable[[], object], repeat: int) -> float:
    """Return the processor seconds of one call: the median over `repeat` runs of enough calls for 20 ms."""
    action()
    start, calls = time.process_time(), 0
    while time.process_time() - start < 0.02:
        action()
        calls += 1

    def time_once() -> float:
        start = time.process_time()
        for _ in range(calls):
            action()
        return (time.process_time() - start) / calls

    return statistics.median(time_once() for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--lanes", action="store_true")
    options = parser.parse_args()
    target = create_backend("llvm").target
    print(f"{'program':24} {'NumPy':>10} {'kernels':>10} {'ratio':>7} {'run':>10} {'ratio':>7} {'bar':>5}  above")
    for name, (make, extent, bar) in PROGRAMS.items():
        program = make(extent)
        launch = stages(program.graph, target)["rangeify"]
        kernels = BoundKernels(launch, program.inputs)
        numpy_seconds = median_seconds(program.numpy, options.repeat)
        ours = median_seconds(kernels.run, options.repeat)
        whole = median_seconds(partial(run, launch, program.inputs), options.repeat)
        ratios = {"kernels": ours / numpy_seconds, "run": whole / numpy_seconds}
        above = "" if bar is None else " ".join(k for k, r in ratios.items() if r > bar)
        times = f"{micro(ours)} {ratios['kernels']:7.1f} {micro(whole)} {ratios['run']:7.1f}"
        print(f"{name:24} {micro(numpy_seconds)} {times} {'' if bar is None else f'{bar:.0f}':>5}  {above}".rstrip())
    if options.lanes:
        print_lane_ratios(target, options.repeat)


def print_lane_ratios(target: Any, repeat: int) -> None:
    """Print how many times slower the lane machine is."""
    print(f"\n{'program':24} {'vectorised':>10} {'lanes':>10} {'ratio':>7}")
    for name, (make, extent, _) in PROGRAMS.items():
        program = make(extent // SHRINK)
        kernels = BoundKernels(stages(program.graph, target)["rangeify"], program.inputs)
        ours, lanes = median_seconds(kernels.run, repeat), median_seconds(partial(kernels.run, lanes=True), 3)
        print(f"{name.split()[0] + f' {extent // SHRINK}':24} {micro(ours)} {micro(lanes)} {lanes / ours:7.0f}")


def micro(t: float) -> str:
    """Return seconds as text in microseconds."""
    return f"{t * 1e6:7.1f} us"


if __name__ == "__main__":
    main()
