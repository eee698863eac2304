"""Test of tinygrad's `simplify` on random 8- and 16-bit expressions of `random_expressions.py`, without index arithmetic.

    python bench/random_tinygrad.py [--count N] [--seed S] [--python PYTHON] [--json FILE]

Shifts and divisions are by constants for which all implementations agree. tinygrad itself evaluates an expression and its
simplification (`exec_alu`, op by op): nothing of ours judges. Prints the counts and the shortest expressions that differ.
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

from random_expressions import INPUTS, LEAST_OPS, ExpressionDraw, count_ops

from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Points at which an expression is evaluated.
POINTS = 24
NAMES = {Op.CMPLT: "lt", Op.CMPGE: "ge", Op.CMPNE: "ne", Op.CMPEQ: "eq"}


def write_rows(root: UOp) -> list[list[Any]]:
    """Return an expression as rows, sources first."""
    rows: list[list[Any]] = []
    at: dict[UOp, int] = {}
    for u in toposort(root):
        if u.op is Op.STACK:
            continue
        at[u] = len(rows)
        if u.op is Op.PARAM:
            rows.append(["in", u.arg.slot, u.dtype.name])
        elif u.op is Op.CONST:
            rows.append(["const", u.arg.value, u.dtype.name])
        elif u.op is Op.CAST:
            rows.append(["cast", at[u.operand], u.dtype.name])
        else:
            rows.append([NAMES.get(u.op, u.op.name.lower()), *(at[s] for s in u.src)])
    return rows


def draw_inputs(root: UOp, rng: random.Random) -> list[dict[int, int]]:
    """Draw random inputs, edges among them."""
    params = [u for u in toposort(root) if u.op is Op.PARAM]

    def draw_value(p: UOp) -> int:
        low, high = int(p.dtype.min), int(p.dtype.max)
        return rng.choice((low, high, 0, 1, high // 2 + 1)) if rng.random() < 0.3 else rng.randint(low, high)

    return [{p.arg.slot: draw_value(p) for p in params} for _ in range(POINTS)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Random expressions under tinygrad's simplify.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable, help="the Python of an environment with tinygrad")
    parser.add_argument("--json", type=Path, help="write all that differ to this file")
    options = parser.parse_args()
    peer = Path(__file__).parent / "peers" / "random_peer.py"
    process = subprocess.Popen([options.python, str(peer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None

    def ask(task: Any) -> Any:
        """Return the peer's answer to a task."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    print(ask("version")["answer"])
    total: Counter[str] = Counter()
    wrong: list[Any] = []
    for k in range(options.count):
        rng = random.Random(f"{options.seed} {k}")
        draw = ExpressionDraw(rng, index=False)
        u = draw.wrap_in_expression(draw.draw_value(rng.choice(INPUTS), 3))
        if count_ops(u) < LEAST_OPS:
            continue
        answer = ask({"rows": write_rows(u), "values": draw_inputs(u, rng)})
        changes = answer.get("answer", {})
        total.update(expressions=1, changed=bool(changes.get("changed")), differ="wrong" in changes)
        if "error" in answer:
            total[f"error {answer['error']}"] += 1
        if "wrong" in changes:
            wrong.append({"k": k, "ops": count_ops(u), **changes["wrong"]})
    print(json.dumps(total, indent=1))
    for w in sorted(wrong, key=lambda w: len(w["before"]))[:8]:
        print(json.dumps(w))
    if options.json:
        options.json.write_text(json.dumps({"counts": total, "wrong": wrong}))


if __name__ == "__main__":
    main()
