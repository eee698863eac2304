"""Random 8- and 16-bit expressions under tinygrad's `simplify`: the generator of `random_expressions.py`, without index arithmetic.

    python bench/random_tinygrad.py [--count N] [--seed S] [--python PYTHON] [--json FILE]

Shifts and divisions are by constants with which they mean the same to everybody. What an expression and its simplification are is
tinygrad's own word (`exec_alu`, op by op): nothing of ours judges. Prints the counts and the shortest that differ.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from random_expressions import INPUTS, LEAST_OPS, Draw, ops

from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

POINTS = 24
NAMES = {Op.CMPLT: "lt", Op.CMPGE: "ge", Op.CMPNE: "ne", Op.CMPEQ: "eq"}


def rows(root: UOp) -> list[list[Any]]:
    """An expression as rows, sources first."""
    found: list[list[Any]] = []
    at: dict[UOp, int] = {}
    for u in toposort(root):
        if u.op is Op.STACK:
            continue
        at[u] = len(found)
        if u.op is Op.PARAM:
            found.append(["in", u.arg.slot, u.dtype.name])
        elif u.op is Op.CONST:
            found.append(["const", u.arg.value, u.dtype.name])
        elif u.op is Op.CAST:
            found.append(["cast", at[u.src[0]], u.dtype.name])
        else:
            found.append([NAMES.get(u.op, u.op.name.lower()), *(at[s] for s in u.src)])
    return found


def values(root: UOp, rng: random.Random) -> list[dict[int, int]]:
    """Random inputs, edges among them."""
    params = [u for u in toposort(root) if u.op is Op.PARAM]

    def drawn(p: UOp) -> int:
        low, high = int(p.dtype.min), int(p.dtype.max)
        return rng.choice((low, high, 0, 1, high // 2 + 1)) if rng.random() < 0.3 else rng.randint(low, high)

    return [{p.arg.slot: drawn(p) for p in params} for _ in range(POINTS)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Random expressions under tinygrad's simplify.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable, help="the Python of an environment with tinygrad")
    parser.add_argument("--json", type=Path, help="write all that differ to this file")
    asked = parser.parse_args()
    peer = Path(__file__).parent / "peers" / "random_peer.py"
    process = subprocess.Popen([asked.python, str(peer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None

    def ask(task: Any) -> Any:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    print(ask("version")["answer"])
    total: Counter[str] = Counter()
    wrong: list[Any] = []
    for k in range(asked.count):
        rng = random.Random(f"{asked.seed} {k}")
        draw = Draw(rng, index=False)
        u = draw.around(draw.value(rng.choice(INPUTS), 3))
        if ops(u) < LEAST_OPS:
            continue
        answer = ask({"rows": rows(u), "values": values(u, rng)})
        found = answer.get("answer", {})
        total.update(expressions=1, changed=bool(found.get("changed")), differ="wrong" in found)
        if "error" in answer:
            total[f"error {answer['error']}"] += 1
        if "wrong" in found:
            wrong.append({"k": k, "ops": ops(u), **found["wrong"]})
    print(json.dumps(total, indent=1))
    for w in sorted(wrong, key=lambda w: len(w["before"]))[:8]:
        print(json.dumps(w))
    if asked.json:
        asked.json.write_text(json.dumps({"counts": total, "wrong": wrong}))


if __name__ == "__main__":
    main()
