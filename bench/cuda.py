"""Compiled workloads on a GPU beside PyTorch, in one run.

    python bench/cuda.py [NAME...] [--seconds S]

Both sides have their operands on the device, and a run is all launches of a program without copies. Results are first compared
with PyTorch's in float64; a wrong one has no figure. For each workload a line has our seconds, PyTorch's, and the ratio (above
1: faster than PyTorch). `gemm-4096-*` are products of 4096 x 4096 matrices. PyTorch's products of float32 use no TF32.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from workloads import WORKLOADS, build

import uops
from uops import Tensor
from uops.backends.cuda.target import CudaTarget
from uops.compiler.runtime.program import Compiled
from uops.compiler.tensor.realize import capture

os.environ.setdefault("BENCH_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent / "peers"))

#: Matrices of 4096 x 4096: name -> dtype of the operands.
GEMMS = {"gemm-4096-f16": np.float16, "gemm-4096-bf16": ml_dtypes.bfloat16, "gemm-4096-f32": np.float32}


class DeviceProgram:
    """A compiled program whose memory stays on the device between runs."""

    def __init__(self, output: Tensor) -> None:
        graph, inputs = capture(output)
        self.target = CudaTarget()
        self.program: Compiled = uops.compile(graph, backend="cuda")
        self.arrays = [slot.prepare_array(inputs, {}) for slot in self.program._slots]
        self.addresses = [a.__array_interface__["data"][0] for a in self.arrays]

    def start(self) -> None:
        """Start all launches."""
        for launch in self.program._launches:
            launch.kernel([0 if b is None else self.addresses[b[0]] + b[1] for b in launch.buffers], [0] * len(launch.variables))

    def value(self) -> Any:
        """Run once and return the first value as an array."""
        with self.target.lend(self.arrays):
            self.start()
        base, shape = self.program._value_bases[0]
        return self.arrays[base].reshape(-1)[: int(np.prod(shape))].reshape(shape)

    def seconds(self, budget: float) -> float:
        """Return the mean seconds of a run, of as many as fit into `budget` seconds, after one that is not counted."""
        with self.target.lend(self.arrays):
            return mean_seconds(self.start, self.target.wait, budget)


def mean_seconds(start: Callable[[], object], wait: Callable[[], object], budget: float) -> float:
    """Return the mean seconds of a run; runs are started one behind the other, and waited for together."""
    start()
    wait()
    begin = time.perf_counter()
    start()
    wait()
    count = max(2, int(budget / max(1e-6, time.perf_counter() - begin)))
    count = min(count, 2000)
    begin = time.perf_counter()
    for _ in range(count):
        start()
    wait()
    return (time.perf_counter() - begin) / count


def operands(name: str) -> tuple[Tensor, list[Any], str]:
    """Return the lazy output of a workload, its operands as arrays, and the name of PyTorch's function."""
    if name in GEMMS:
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal((4096, 4096), np.float32).astype(GEMMS[name]) for _ in range(2))
        return Tensor.from_numpy(x) @ Tensor.from_numpy(y), [x, y], "gemm-2048"
    instance = build(name, full=True)
    return instance.output, [t.numpy() for t in instance.inputs], name


def measure(name: str, budget: float) -> str:
    """Return the line of one workload."""
    import torch
    from torch_peer import TABLE, tensor

    output, arrays, peer = operands(name)
    begin = time.perf_counter()
    ours = DeviceProgram(output)
    value = ours.value()
    first = time.perf_counter() - begin
    on_device = [tensor(a).cuda() for a in arrays]
    with torch.inference_mode():
        wide = TABLE[peer](*(t.double() if t.is_floating_point() else t for t in on_device))
        expected = wide.cpu().numpy()
        error = float((np.abs(value.astype(np.float64) - expected)).max() / np.abs(expected).max())
        if not error <= 2e-2:
            return f"{name:14} WRONG: {error:.1e} of the greatest magnitude"
        theirs = mean_seconds(lambda: TABLE[peer](*on_device), torch.cuda.synchronize, budget)
    seconds = ours.seconds(budget)
    kernels = len(ours.program._launches)
    return (
        f"{name:14} {seconds * 1e6:11.1f} us  PyTorch {theirs * 1e6:11.1f} us  ratio {theirs / seconds:6.3f}  "
        f"{kernels:4} kernels  first {first:6.2f} s  error {error:.0e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*GEMMS, *WORKLOADS])
    parser.add_argument("--seconds", type=float, default=0.2, help="time of one measurement")
    arguments = parser.parse_args()
    print(CudaTarget().version(), flush=True)
    for name in arguments.names:
        try:
            print(measure(name, arguments.seconds), flush=True)
        except Exception as e:
            print(f"{name:14} {type(e).__name__}: {str(e)[:300]}", flush=True)


if __name__ == "__main__":
    main()
