"""Generator of docs/performance.md: runs every measurement of this folder that has a peer, and writes the results.

    python bench/document.py [--python PYTHON] [--output FILE] [--peers P,...] [--rounds R] [--seconds S]
                             [SECTION...]

Each section is the output of one script, with its command. `--python` runs the peers (an environment with the extra `bench`).
Sections that are not named keep their text. So does a section whose script fails, and the failure is the exit status.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HEAD = """# Performance

`python bench/document.py` writes this page. Ratios carry over from machine to machine better than absolute figures do. A *peer* is
another library that runs the same workload. These are the bars of the project:

- compiled code reaches at least 0.8 of the speed of the best peer, and an odd shape at least half of its row's ratio;
- compiling takes at most a fifth of tinygrad's Python time, and 2.5 ms for a small graph;
- the first result of the encoder comes no later than that of jax.jit;
- a call costs at most one allocating `np.add`.
"""


@dataclass(frozen=True)
class Section:
    """One section of the document: its heading, how to read it, and the script with its arguments."""

    title: str
    text: str
    command: tuple[str, ...]
    blocks: bool = False  # of bench/performance.py, which takes --rounds and --seconds
    peers: bool = True

    def run_script(self, python: str, rounds: int, seconds: float, peers: str | None) -> str:
        """Run the script and return the section's text. Raises CalledProcessError."""
        timing = ("--rounds", str(rounds), "--seconds", str(seconds)) if self.blocks else ()
        timing += ("--peers", peers) if self.blocks and peers else ()
        argv = (*self.command, *timing)
        print(f"{self.title}: python {shlex.join(argv)}", file=sys.stderr, flush=True)
        added = ("--python", python) if self.peers else ()
        output = subprocess.run(
            [sys.executable, *argv, *added], cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        body = output.strip() if self.blocks else f"```\n{output.rstrip()}\n```"
        return f"## {self.title}\n\n{self.text}\n\n`python {shlex.join(argv)}`\n\n{body}\n"


SECTIONS = {
    "one-core": Section(
        "One core",
        "Throughput per workload. The ratio is the best peer's time over ours: above 1, ours is faster than every peer.",
        ("bench/performance.py",),
        blocks=True,
    ),
    "gradients": Section(
        "With gradients",
        "Each workload together with the gradients of its operands, for a random cotangent. Figures count the operations of the "
        "result.",
        ("bench/performance.py", "--gradients"),
        blocks=True,
    ),
    "odd": Section(
        "Odd shapes",
        "Prime extents, drawn by seed. Operands are plain, transposed, or strided (every second element of an array).",
        ("bench/performance.py", "--odd", "20", "--seed", "1"),
        blocks=True,
    ),
    "two-cores": Section(
        "Two cores", "The workloads of the first table, with two threads.", ("bench/performance.py", "--threads", "2"), blocks=True
    ),
    "compile": Section(
        "What compiling costs",
        "Processor time of compilation in Python, beside that of tinygrad, and the time to the encoder's first result.",
        ("bench/compile_time.py", "--rounds", "6"),
    ),
    "remainders": Section(
        "Remainders of floats",
        "`%` and `//` of floats give NumPy's bits, which a rounded quotient would not. Both operands are Tensors. One core.",
        ("bench/remainders.py",),
        peers=False,
    ),
    "indices": Section(
        "What the check of indices costs",
        "Time from the call of the method to the array, with and without `unchecked=True` (R163, indices of Tensors). The bar is "
        "3 % on gather.",
        ("bench/index_checks.py",),
        peers=False,
    ),
    "call": Section(
        "What a call costs, and what threads give",
        "Costs of a call in nanoseconds and in calls of `np.add`, then times of kernels on one and on two threads.",
        ("bench/call.py",),
        peers=False,
    ),
}


def read_sections(path: Path) -> dict[str, str]:
    """Return the sections of a file, by title."""
    text = path.read_text() if path.exists() else ""
    return {m[1]: m[0].rstrip() + "\n" for m in re.finditer(r"^## (.+?)\n.*?(?=^## |\Z)", text, re.M | re.S)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--peers", help="those of bench/performance.py, all by default")
    parser.add_argument("--output", type=Path, default=HERE.parent / "docs" / "performance.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    o = parser.parse_args()
    if unknown := [n for n in o.sections if n not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    texts, failed = read_sections(o.output), []
    for name in o.sections or SECTIONS:
        section = SECTIONS[name]
        try:
            texts[section.title] = section.run_script(o.python, o.rounds, o.seconds, o.peers)
        except subprocess.CalledProcessError:
            failed.append(name)
        o.output.write_text("\n".join([HEAD, *(texts[s.title] for s in SECTIONS.values() if s.title in texts)]))
    if failed:
        sys.exit(f"no figures for {', '.join(failed)}")


if __name__ == "__main__":
    main()
