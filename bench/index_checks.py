"""Cost of checking indices that are data, in one run.

    OPENBLAS_NUM_THREADS=1 python bench/index_checks.py [--backend B] [--seconds S]

*gather* is that workload of `bench/workloads.py` at full size: rows of a table. *elements* takes a million single elements of as
many, where an index costs as much as the element. Indices are *copied* into a Tensor, which memoizes their range; *shared* with an
array, so that each call checks them; *computed*, so that the program checks them; or computed in the body of a `@function`
(*called*). A call is what a user writes, from `table.take(index, 0)` to the array, alternately with and without `unchecked=True`.
The table has the lower quartile of both times, their difference, and the difference as a share.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import WORKLOADS

from uops import Tensor, function, use

Call = Callable[[bool], Any]

INDICES: dict[str, Callable[[Any], Tensor]] = {
    "copied": Tensor,
    "shared": Tensor.from_numpy,
    "computed": Tensor.from_numpy,
    "called": Tensor.from_numpy,
}


def make_take_call(table: Tensor, index: Tensor, kind: str) -> Call:
    """Return a function that takes elements and realizes them; its first call compiles the program."""

    def take(t: Tensor, i: Tensor, unchecked: bool) -> Tensor:
        return t.take(i if kind in ("copied", "shared") else i * 3 // 3, 0, unchecked=unchecked)

    if kind == "called":
        forms = [function(lambda t, i, u=u: take(t, i, u)) for u in (False, True)]
        return lambda unchecked: forms[unchecked](table, index).realize()
    return lambda unchecked: take(table, index, unchecked).realize()


def time_lower_quartiles(call: Call, seconds: float) -> tuple[float, float]:
    """Return the lower quartile of the seconds of a call with checks, and without."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for unchecked in spent:
        call(unchecked)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for unchecked, times in spent.items():
            start = time.perf_counter()
            call(unchecked)
            times.append(time.perf_counter() - start)
    checked, plain = (float(np.quantile(times, 0.25)) for times in spent.values())
    return checked, plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows, columns, taken = WORKLOADS["gather"].full
    print(f"{'':19} {'checked':>12} {'unchecked':>12} {'difference':>12}")
    with use(options.backend):
        for name, (shape, count) in {"gather": ((rows, columns), taken), "elements": ((1_000_000,), 1_000_000)}.items():
            table, index = Tensor(rng.standard_normal(shape, np.float32)), rng.integers(0, shape[0], count).astype(np.int32)
            for kind, make in INDICES.items():
                checked, plain = time_lower_quartiles(make_take_call(table, make(index), kind), options.seconds)
                more = checked - plain
                times = "  ".join(f"{t * 1e6:8.1f} us" for t in (checked, plain, more))
                print(f"{name:9} {kind:9} {times} {more / plain:7.1%}", flush=True)


if __name__ == "__main__":
    main()
