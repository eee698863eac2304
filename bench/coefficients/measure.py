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
from accuracy import evaluate_exactly, evaluate_in_double, ulp_error
from evaluate import ElementwiseKernel
from points import DOUBLE_POINTS, make_single_pow_points

from uops.compiler.decompose import SMALL, decompose_node_or_keep_primitive, lower_elementwise, small_float_bits_to_float32
from uops.compiler.decompose.build import BITS, Expr
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

UNARY = {"exp2": Op.EXP2, "log2": Op.LOG2, "sin": Op.SIN}
NAMES = {**UNARY, "pow": Op.POW}
#: Elements per block.
BLOCK = 1 << 20


def compile_function(name: str, d: DType) -> ElementwiseKernel:
    """Compile the decomposition of a function."""
    op = NAMES[name]
    leaves = [b.param(k, (), d) for k in range(2 if op is Op.POW else 1)]
    return ElementwiseKernel(decompose_node_or_keep_primitive(b.build_alu_with_promotion(op, *leaves)), leaves)


def count_operations(u: UOp) -> int:
    """Count the nodes that cost an instruction: all but constants, leaves and Bitcasts."""
    return sum(n.op not in (Op.CONST, Op.STACK, Op.PARAM, Op.BITCAST) for n in toposort(u))


def measure_ops() -> None:
    """Print operations and nanoseconds per element of each decomposition."""
    random = np.random.default_rng(0).uniform(0.1, 8, BLOCK)
    for name, op in NAMES.items():
        for d in (dt.float32, dt.float64):
            leaves = [b.param(k, (), d) for k in range(2 if op is Op.POW else 1)]
            graph = decompose_node_or_keep_primitive(b.build_alu_with_promotion(op, *leaves))
            run = ElementwiseKernel(graph, leaves)
            arrays = [random.astype(d.name), random[::-1].astype(d.name)][: len(leaves)]
            best = min(_time_run(run, arrays) for _ in range(7))
            print(f"{name:5} {d.name:8} {count_operations(graph):4} operations  {best / BLOCK * 1e9:7.2f} ns per element")


def _time_run(run: ElementwiseKernel, arrays: list[Any]) -> float:
    """Return the seconds of one run."""
    start = time.perf_counter()
    run(*arrays)
    return time.perf_counter() - start


def every_float32(step: int) -> Iterator[Any]:
    """Yield the blocks of float32, every `step`-th."""
    for start in range(0, 1 << 32, BLOCK * step):
        yield np.arange(start, start + BLOCK, dtype=np.uint64).astype(np.uint32).view(np.float32)


def measure_f32(step: int) -> None:
    """Print the largest error of each function over float32."""
    for name in UNARY:
        run, worst, at, start = compile_function(name, dt.float32), 0.0, 0.0, time.time()
        for x in every_float32(step):
            error = ulp_error(run(x), evaluate_in_double(name, x))
            k = int(error.argmax())
            if error[k] > worst:
                worst, at = float(error[k]), float(x[k])
        print(f"{name:5} float32 step {step}: max {worst:.4f} ulp at {at.hex()} ({time.time() - start:.0f} s)", flush=True)


def measure_f64(points: int) -> None:
    """Print the largest error of each function at hard points of float64, and of float32 Pow."""
    random = np.random.default_rng(7)
    for name, kinds in DOUBLE_POINTS.items():
        run = compile_function(name, dt.float64)
        for label, make in kinds.items():
            _report_worst_error(name, label, run, make(random, points))
    run = compile_function("pow", dt.float32)
    for label, arguments in make_single_pow_points(random, points).items():
        _report_worst_error("pow", label, run, arguments)


def _report_worst_error(name: str, label: str, run: ElementwiseKernel, arguments: tuple[Any, ...]) -> None:
    """Print the largest error at the given points."""
    error = ulp_error(run(*arguments), evaluate_exactly(name, *arguments))
    k = int(error.argmax())
    at = ", ".join(float(a[k]).hex() for a in arguments)
    print(f"{name:5} {arguments[0].dtype!s:8} {label:32} {error.size:8} points: max {error[k]:.4f} ulp at {at}", flush=True)


def measure_small() -> None:
    """Print the largest error of each function over all small floats."""
    for name, op in UNARY.items():
        for d in SMALL:
            leaf, bits = b.param(0, (), d), b.param(0, (), BITS[d])
            (graph,) = lower_elementwise([b.build_alu_with_promotion(op, leaf)], {leaf: bits})
            value = ElementwiseKernel(small_float_bits_to_float32(Expr.of(bits), d).u, [bits])
            every = np.arange(1 << d.bits, dtype=np.uint64).astype(BITS[d].name)
            got = value(ElementwiseKernel(graph, [bits])(every)).astype(np.float64)
            want = evaluate_in_double(name, value(every)).high
            unit = np.maximum(2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 1e-300))) - d.man_bits), d.smallest_subnormal)
            finite = np.isfinite(want) & (np.abs(want) <= d.max_finite)
            print(f"{name:5} {d.name:8} all: max {float(np.max(np.abs(got - want)[finite] / unit[finite])):.4f} ulp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ops", "f32", "f64", "small"))
    parser.add_argument("--step", type=int, default=64)
    parser.add_argument("--points", type=int, default=10_000)
    options = parser.parse_args()
    with np.errstate(all="ignore"):
        run = {
            "ops": measure_ops,
            "f32": lambda: measure_f32(options.step),
            "f64": lambda: measure_f64(options.points),
            "small": measure_small,
        }
        run[options.what]()


if __name__ == "__main__":
    main()
