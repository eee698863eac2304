"""What validating kernels takes, and what decides their obligations.

    python bench/validation.py [--backend NAME]... [--seconds N] [--seed N] [--json FILE]

For each backend: every distinct kernel of the conformance suite (tier smoke), of the workloads in their full sizes and of the
examples, in seeded order, for at most `--seconds` per backend (0: all). A row has the kernels, the obligations by what decided
them, those that nothing decided, and milliseconds per kernel: the median, the 95th percentile and the greatest, as wall time, the
solver included. Times of processes beside it count, so measure on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workloads import WORKLOADS, build

from uops.backends.conformance.cases import cases
from uops.backends.conformance.model import Tier
from uops.backends.registry import get
from uops.compiler.config import Config
from uops.compiler.tensor.realize import capture
from uops.compiler.validate.launch import recorded, validate
from uops.spec.errors import CompileError, Unsupported
from uops.spec.node import UOp
from uops.spec.text import parse_file

BACKENDS = ("llvm", "c", "opencl")
EXAMPLES = Path(__file__).parents[1] / "examples" / "programs"


def programs() -> Iterator[tuple[str, UOp]]:
    for name in WORKLOADS:
        yield name, capture(build(name, full=True).output).graph
    for path in sorted(EXAMPLES.glob("*.uops")):
        yield path.stem, parse_file(str(path))
    for case in cases(Tier.SMOKE):
        yield case.id, case.graph


def measure(backend: str, everything: Sequence[tuple[str, UOp]], seconds: float) -> dict[str, Any]:
    """The row of one backend."""
    target = get(backend).target
    took: dict[tuple[UOp, UOp], float] = {}
    decided: Counter[str] = Counter()
    refused, failed, done = 0, list[str](), 0
    end = time.monotonic() + seconds
    for name, graph in everything:
        if seconds and time.monotonic() > end:
            break
        try:
            report = validate(*recorded(graph, target, Config(reuse=False)))
        except (CompileError, Unsupported):
            refused += 1
            continue
        failed += [f"{name}: {v}" for v in report.verdicts if not v.proved]
        done += 1
        for k in report.kernels:
            if (k.before, k.after) not in took:
                took[k.before, k.after] = k.seconds * 1e3
                decided.update(v.by.value if v.proved and v.by else "not decided" for v in k.verdicts)
    times = sorted(took.values())
    spread = {q: round(times[min(len(times) - 1, int(len(times) * q / 100))], 1) for q in (50, 95, 100)}
    return {
        "backend": backend, "programs": done, "refused": refused, "kernels": len(times), "decided": dict(sorted(decided.items())),
        "p50": spread[50], "p95": spread[95], "max": spread[100], "failed": failed,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    everything = list(programs())
    random.Random(chosen.seed).shuffle(everything)
    rows = [measure(b, everything, chosen.seconds) for b in chosen.backend or BACKENDS]
    means = sorted({m for r in rows for m in r["decided"]} | {"not decided"})
    print("backend  programs  kernels  " + "  ".join(means) + "  p50 ms  p95 ms  max ms")
    for r in rows:
        counts = "  ".join(f"{r['decided'].get(m, 0):>{len(m)}}" for m in means)
        print(f"{r['backend']:<7}  {r['programs']:>8}  {r['kernels']:>7}  {counts}  {r['p50']:>6}  {r['p95']:>6}  {r['max']:>6}")
        for line in r["failed"]:
            print(f"  {line[:300]}")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
