"""The table of docs/backends.md: what each backend is, needs, declares and takes to compile a kernel.

    python bench/backends.py [NAME...]       ask and measure the backends that are here, all by default, and write both files
    python bench/backends.py --write-page    write the page from the registry and docs/backends.json alone

Declarations and times are kept in docs/backends.json, each with the machine and versions that gave them. A backend that is not here
keeps its entry. Times are of six kernels, from a sum of 1024 floats to Sin in float64: the least of `ROUNDS` wall times from the
text to a loaded kernel, without the cache on disk. A cubin or a PoCL program may still be compiled at the first launch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from performance import describe_machine

from uops.backends import registry
from uops.backends.contract import Capabilities
from uops.backends.registry import BUILT_IN
from uops.cli.commands.backends import describe_features

DOCS = Path(__file__).parents[1] / "docs"
PAGE, RECORD = DOCS / "backends.md", DOCS / "backends.json"
BEGIN, END = "<!-- table of backends -->\n", "<!-- end of table -->\n"
ROUNDS = 3
Json = dict[str, Any]


def measure(name: str) -> Json:
    """Return what a backend declares and how long it compiles. Raises Unsupported where it is not here."""
    from uops.backends.contract import CompilerBackend

    backend = registry.create_backend(name)
    try:
        entry: Json = {"version": backend.version(), "declared": backend.capabilities().to_json()}
        if isinstance(backend, CompilerBackend):
            entry["milliseconds"] = sorted(round(1000 * s, 1) for s in _time_kernels(backend.target))
        return entry
    finally:
        backend.close()


def _time_kernels(target: Any) -> list[float]:
    """Return the seconds from text to kernel, one number per kernel."""
    from uops.compiler import lower
    from uops.spec.ir import build as b
    from uops.spec.ir import dtypes as dt
    from uops.spec.ir.node import toposort
    from uops.spec.ir.ops import Op

    x, m = b.param(0, (1024,), dt.float32), b.param(0, (64, 64), dt.float32)
    product = b.mul(b.reshape(m, (64, 64, 1)), b.reshape(b.param(1, (64, 64), dt.float32), (1, 64, 64)))
    graphs = (
        b.reduce(x, Op.ADD, (0,)), b.mul(b.add(x, 1.0), x), b.reduce(product, Op.ADD, (1,)), b.exp2(x),
        b.add(b.param(0, (1024,), dt.fp8e4m3), b.param(1, (1024,), dt.fp8e4m3)), b.sin(b.param(0, (1024,), dt.float64)),
    )  # fmt: skip
    seconds = []
    for graph in graphs:
        (program,) = (u for u in toposort(lower(graph, target)) if u.op is Op.PROGRAM)
        source = program.src[1].arg.code
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            target.load(target.compile(source))
            times.append(time.perf_counter() - start)
        seconds.append(min(times))
    return seconds


def measure_in_process(name: str) -> Json | None:
    """Return what `measure` gives in a process of its own; None where the backend is not here."""
    command = [sys.executable, __file__, "--one", name]
    done = subprocess.run(command, env={**os.environ, "UOPS_CACHE": "0"}, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}", file=sys.stderr)
        return None
    entry: Json = json.loads(done.stdout)
    return entry


def render_table(record: Json) -> str:
    """Return the table in Markdown, from the registry and the record. Sizes are in bytes."""
    lines = ["| `--backend` | What it is | Needs | Declares | Compiles a kernel in |", "|---|---|---|---|---|"]
    for name, backend in BUILT_IN.items():
        entry = record.get(name)
        declares, takes = "not asked yet", "-"
        if entry:
            declares = describe_features(Capabilities.of_json(entry["declared"]))
            if times := entry.get("milliseconds"):
                takes = f"{times[0]:g} to {times[-1]:g} ms"
        lines.append(f"| `{name}` | {backend.description} | {backend.needs} | {declares} | {takes} |")
    machines = dict.fromkeys(entry["machine"] for entry in record.values())
    return "\n".join(lines) + "\n\nThe declarations and times are from: " + "; ".join(machines) + ".\n"


def replace_table(page: str, table: str) -> str:
    """Return the page with its table replaced."""
    return re.sub(f"(?s){BEGIN}.*{END}", lambda _: f"{BEGIN}{table}{END}", page)


def main() -> None:
    """Ask, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write-page", action="store_true", help="measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    record: Json = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in () if arguments.write_page else arguments.names or BUILT_IN:
        if entry := measure_in_process(name):
            record[name] = {"machine": describe_machine(), **entry}
            print(name, entry.get("milliseconds", ""), file=sys.stderr)
    ordered = {name: record[name] for name in BUILT_IN if name in record}
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(replace_table(PAGE.read_text(), render_table(ordered)))


if __name__ == "__main__":
    main()
