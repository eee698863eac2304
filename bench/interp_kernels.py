"""How much slower than NumPy kernels are in the reference interpreter, one thread, all asserts on.

python bench/interp_kernels.py [--repeat N] [--lanes]

Each program is a TENSOR graph after the compiler's stage `rangeify`: Calls of kernels. Three times are taken, as medians of
processor time in one run: NumPy's own expression; `kernels`, every kernel of the program by `run_kernel` on memories that are
there; `run`, the whole program by `uops.interp.run`. NumPy must have one thread. The bar for gemm and softmax is 20 times NumPy's
time, for `kernels` and for `run`; the last column names what is above it. The other programs are shown for comparison.

`--lanes` also evaluates each program, at an eighth of the extents, by the per-lane machine, and shows how many times slower than
the vectorised machine it is there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from uops.backends.registry import get
from uops.compiler.pipeline import stages
from uops.interp import run
from uops.interp.kernel.lane_machine.memory import Space, space
from uops.interp.kernel.run import run_kernel
from uops.interp.kernel.structure.blocks import Kernel, structure
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions

LOG2E = 1.4426950408889634
SHRINK = 8


class Program(NamedTuple):
    """`graph` on `inputs`, and NumPy's own way."""

    graph: UOp
    inputs: dict[str, Any]
    numpy: Callable[[], Any]


def random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def gemm(n: int) -> Program:
    x, y = random(n, n), random(n, n).T.copy()
    graph = compositions.gemm(b.param(0, (n, n), dt.float32), b.param(1, (n, n), dt.float32))
    return Program(graph, {"p0": x, "p1": y}, lambda: x @ y)


def softmax(n: int) -> Program:
    x, log2e = random(n, n), np.float32(LOG2E)
    u = b.param(0, (n, n), dt.float32)
    e = b.exp2(b.mul(b.sub(u, b.reduce(u, Op.MAX, (1,))), LOG2E))

    def own() -> Any:
        e = np.exp2((x - x.max(1, keepdims=True)) * log2e)
        return e / e.sum(1, keepdims=True)

    return Program(b.div(e, b.reduce(e, Op.ADD, (1,))), {"p0": x}, own)


def row_sums(n: int) -> Program:
    x = random(n, n)
    return Program(b.reduce(b.param(0, (n, n), dt.float32), Op.ADD, (1,)), {"p0": x}, lambda: x.sum(1, keepdims=True))


def transpose_add(n: int) -> Program:
    x = random(n, n)
    u = b.param(0, (n, n), dt.float32)
    return Program(b.add(u, b.permute(u, (1, 0))), {"p0": x}, lambda: x + x.T)


def convolution(n: int) -> Program:
    """A 3 x 3 window over an n x n image with a zero border, as sums of shifted copies in NumPy."""
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

    return Program(graph, {"p0": x, "p1": w}, own)


PROGRAMS: dict[str, tuple[Callable[[int], Program], int, float | None]] = {
    "gemm 64x64x64": (gemm, 64, 20.0),
    "softmax 256x256": (softmax, 256, 20.0),
    "row sums 512x512": (row_sums, 512, None),
    "transpose-add 512x512": (transpose_add, 512, None),
    "convolution 256x256": (convolution, 256, None),
}


class Kernels:
    """A program's kernels, bound to memories."""

    def __init__(self, launch: UOp, inputs: dict[str, Any]) -> None:
        self.memories: dict[UOp, Space] = {}
        self.bound = [self._bind(call, inputs) for call in launch.src]

    def _bind(self, call: UOp, inputs: dict[str, Any]) -> tuple[Kernel, dict[UOp, Any]]:
        kernel = structure(call.src[0], lambda u: u.op is Op.PARAM)
        return kernel, {leaf: self._memory(call.src[1 + leaf.arg.slot], inputs) for leaf in kernel.leaves}

    def _memory(self, u: UOp, inputs: dict[str, Any]) -> Space:
        if u not in self.memories:
            if u.op is Op.PARAM:
                self.memories[u] = space(f"p{u.arg.slot}", inputs[f"p{u.arg.slot}"].reshape(-1).copy())
            else:
                self.memories[u] = space(f"b{u.arg.unique}", np.zeros(u.arg.size, NUMPY[u.dtype]), np.zeros(u.arg.size, bool))
        return self.memories[u]

    def run(self, lanes: bool = False) -> None:
        for kernel, operands in self.bound:
            run_kernel(kernel, operands, lanes=lanes)


def seconds(action: Callable[[], object], repeat: int) -> float:
    """Processor time of one call, the median over `repeat` runs of enough calls for 20 ms."""
    action()
    start, calls = time.process_time(), 0
    while time.process_time() - start < 0.02:
        action()
        calls += 1

    def once() -> float:
        start = time.process_time()
        for _ in range(calls):
            action()
        return (time.process_time() - start) / calls

    return statistics.median(once() for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--lanes", action="store_true")
    options = parser.parse_args()
    target = get("llvm").target
    print(f"{'program':24} {'NumPy':>10} {'kernels':>10} {'ratio':>7} {'run':>10} {'ratio':>7} {'bar':>5}  above")
    for name, (make, extent, bar) in PROGRAMS.items():
        program = make(extent)
        launch = stages(program.graph, target)["rangeify"]
        kernels = Kernels(launch, program.inputs)
        own = seconds(program.numpy, options.repeat)
        ours = seconds(kernels.run, options.repeat)
        whole = seconds(partial(run, launch, program.inputs), options.repeat)
        ratios = {"kernels": ours / own, "run": whole / own}
        above = "" if bar is None else " ".join(k for k, r in ratios.items() if r > bar)
        times = f"{micro(ours)} {ratios['kernels']:7.1f} {micro(whole)} {ratios['run']:7.1f}"
        print(f"{name:24} {micro(own)} {times} {'' if bar is None else f'{bar:.0f}':>5}  {above}".rstrip())
    if options.lanes:
        show_lanes(target, options.repeat)


def show_lanes(target: Any, repeat: int) -> None:
    print(f"\n{'program':24} {'vectorised':>10} {'lanes':>10} {'ratio':>7}")
    for name, (make, extent, _) in PROGRAMS.items():
        program = make(extent // SHRINK)
        kernels = Kernels(stages(program.graph, target)["rangeify"], program.inputs)
        ours, lanes = seconds(kernels.run, repeat), seconds(partial(kernels.run, lanes=True), 3)
        print(f"{name.split()[0] + f' {extent // SHRINK}':24} {micro(ours)} {micro(lanes)} {lanes / ours:7.0f}")


def micro(t: float) -> str:
    return f"{t * 1e6:7.1f} us"


if __name__ == "__main__":
    main()
