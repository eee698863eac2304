"""Measure the decompositions: operations, speed and the largest error in ulp.

    python bench/coefficients/measure.py ops
    python bench/coefficients/measure.py f32 [--step K]      every K-th block of 2^20 float32 (1: all 2^32, minutes per function)
    python bench/coefficients/measure.py f64 [--points N]    N points of each kind, against mpmath
    python bench/coefficients/measure.py small               every float16, bfloat16 and fp8

Run with `src` on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from accuracy import exactly, in_double, ulp_error
from evaluate import Kernel
from points import DOUBLE_POINTS, single_pow

from uops.compiler.decompose import SMALL, decompose, lower, widen
from uops.compiler.decompose.build import BITS, E
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

UNARY = {"exp2": Op.EXP2, "log2": Op.LOG2, "sin": Op.SIN}
NAMES = {**UNARY, "pow": Op.POW}
BLOCK = 1 << 20


def kernel(name: str, d: DType) -> Kernel:
    op = NAMES[name]
    leaves = [b.param(k, (), d) for k in range(2 if op is Op.POW else 1)]
    return Kernel(decompose(b.alu(op, *leaves)), leaves)


def operations(u: UOp) -> int:
    """Nodes that cost an instruction: all but constants, leaves and Bitcasts."""
    return sum(n.op not in (Op.CONST, Op.STACK, Op.PARAM, Op.BITCAST) for n in toposort(u))


def measure_ops() -> None:
    random = np.random.default_rng(0).uniform(0.1, 8, BLOCK)
    for name, op in NAMES.items():
        for d in (dt.float32, dt.float64):
            leaves = [b.param(k, (), d) for k in range(2 if op is Op.POW else 1)]
            graph = decompose(b.alu(op, *leaves))
            run = Kernel(graph, leaves)
            arrays = [random.astype(d.name), random[::-1].astype(d.name)][: len(leaves)]
            best = min(_seconds(run, arrays) for _ in range(7))
            print(f"{name:5} {d.name:8} {operations(graph):4} operations  {best / BLOCK * 1e9:7.2f} ns per element")


def _seconds(run: Kernel, arrays: list[Any]) -> float:
    start = time.perf_counter()
    run(*arrays)
    return time.perf_counter() - start


def every_float32(step: int) -> Iterator[Any]:
    for start in range(0, 1 << 32, BLOCK * step):
        yield np.arange(start, start + BLOCK, dtype=np.uint64).astype(np.uint32).view(np.float32)


def measure_f32(step: int) -> None:
    for name in UNARY:
        run, worst, at, start = kernel(name, dt.float32), 0.0, 0.0, time.time()
        for x in every_float32(step):
            error = ulp_error(run(x), in_double(name, x))
            k = int(error.argmax())
            if error[k] > worst:
                worst, at = float(error[k]), float(x[k])
        print(f"{name:5} float32 step {step}: max {worst:.4f} ulp at {at.hex()} ({time.time() - start:.0f} s)", flush=True)


def measure_f64(points: int) -> None:
    random = np.random.default_rng(7)
    for name, kinds in DOUBLE_POINTS.items():
        run = kernel(name, dt.float64)
        for label, make in kinds.items():
            _report(name, label, run, make(random, points))
    run = kernel("pow", dt.float32)
    for label, arguments in single_pow(random, points).items():
        _report("pow", label, run, arguments)


def _report(name: str, label: str, run: Kernel, arguments: tuple[Any, ...]) -> None:
    error = ulp_error(run(*arguments), exactly(name, *arguments))
    k = int(error.argmax())
    at = ", ".join(float(a[k]).hex() for a in arguments)
    print(f"{name:5} {arguments[0].dtype!s:8} {label:32} {error.size:8} points: max {error[k]:.4f} ulp at {at}", flush=True)


def measure_small() -> None:
    for name, op in UNARY.items():
        for d in SMALL:
            leaf, bits = b.param(0, (), d), b.param(0, (), BITS[d])
            (graph,) = lower([b.alu(op, leaf)], {leaf: bits})
            value = Kernel(widen(E.of(bits), d).u, [bits])
            every = np.arange(1 << d.bits, dtype=np.uint64).astype(BITS[d].name)
            got = value(Kernel(graph, [bits])(every)).astype(np.float64)
            want = in_double(name, value(every)).high
            unit = np.maximum(
                2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 1e-300))) - d.man_bits), 2.0 ** (1 - d.bias - d.man_bits)
            )
            finite = np.isfinite(want) & (np.abs(want) <= d.max_finite)
            print(f"{name:5} {d.name:8} all: max {float(np.max(np.abs(got - want)[finite] / unit[finite])):.4f} ulp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ops", "f32", "f64", "small"))
    parser.add_argument("--step", type=int, default=64)
    parser.add_argument("--points", type=int, default=10_000)
    given = parser.parse_args()
    with np.errstate(all="ignore"):
        run = {
            "ops": measure_ops,
            "f32": lambda: measure_f32(given.step),
            "f64": lambda: measure_f64(given.points),
            "small": measure_small,
        }
        run[given.what]()


if __name__ == "__main__":
    main()
