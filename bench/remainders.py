"""Cost of `%` and `//` of floats with NumPy's bits, in one run.

    OPENBLAS_NUM_THREADS=1 UOPS_THREADS=1 python bench/remainders.py [--backends B,...] [--elements N]

Per dtype and operator, a line has the nodes of the graph of a Tensor by a Tensor, the microseconds to build it, and the
nanoseconds per element on each backend and in NumPy. Each time is the least of several.
"""

from __future__ import annotations

import argparse
import operator
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uops import Tensor
from uops.spec.ir.node import toposort

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"%": operator.mod, "//": operator.floordiv}
DTYPES = ("float16", "float32", "float64")
#: Timed calls, of which the least counts.
ROUNDS = 7


def least_seconds(call: Callable[[], Any]) -> float:
    """Return the least seconds of some calls, after one that does not count."""
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="llvm,c")
    parser.add_argument("--elements", type=int, default=1 << 20)
    options = parser.parse_args()
    backends = options.backends.split(",")
    rng = np.random.default_rng(0)
    print(f"{'':12} {'nodes':>6} {'build us':>9} " + " ".join(f"{name + ' ns':>9}" for name in (*backends, "NumPy")))
    for dtype in DTYPES:
        arrays = [(rng.standard_normal(options.elements) * scale).astype(dtype) for scale in (100, 10)]
        for name, apply in OPERATORS.items():
            a, b = map(Tensor.from_numpy, arrays)
            build = least_seconds(lambda a=a, b=b, apply=apply: apply(a, b))
            nodes = len(toposort(apply(a, b).uop)) - len(toposort(a.uop, b.uop))
            spent = [least_seconds(lambda a=a, b=b, apply=apply, on=on: apply(a, b).realize(backend=on)) for on in backends]
            with np.errstate(all="ignore"):
                spent.append(least_seconds(lambda x=arrays, apply=apply: apply(*x)))
            each = " ".join(f"{t * 1e9 / options.elements:9.1f}" for t in spent)
            print(f"{dtype:9} {name:2} {nodes:6} {build * 1e6:9.0f} {each}", flush=True)


if __name__ == "__main__":
    main()
