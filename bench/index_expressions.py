"""How short index expressions end: nodes, divisions and remainders after our rules, beside tinygrad's `simplify`.

    python bench/index_expressions.py [--each N] [--seed S] [--python PYTHON] [--worse N] [--json FILE]

Programs of ten families (tiled products, convolutions, poolings, chains of reshapes, ...; `index_programs.py`) are written in
both Tensor front ends. Each gives the address of every operand, and the gate where it is masked: ours as movement ops spell it,
with nothing simplified, tinygrad's as its rangeify makes it, which simplifies at every step. Symbolic shapes are ours alone. Every
expression is then simplified by both and counted in one language (`expressions.py`): nodes are those of the graph, leaves
included. What each makes of it is evaluated at random points and has to be what it was.

`tinygrad` is `UOp.simplify`, which the bar is about; `with masks` has the rules for masks that tinygrad's rangeify adds to it.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from expressions import Expression, Writer, counts, evaluate, same, spell
from index_programs import Program, programs

from uops.compiler.ir.views import STEP, ZERO, Indexing
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.tensor import Tensor
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ALU, Op

HERE = Path(__file__).parent
BAR, POINTS = 0.95, 200
NAMES = {
    Op.ADD: "add", Op.SUB: "sub", Op.NEG: "neg", Op.MUL: "mul", Op.IDIV: "idiv", Op.MOD: "mod", Op.MAX: "max", Op.CMPLT: "lt",
    Op.CMPGT: "gt", Op.CMPLE: "le", Op.CMPGE: "ge", Op.CMPEQ: "eq", Op.CMPNE: "ne", Op.AND: "and", Op.OR: "or", Op.NOT: "not",
    Op.WHERE: "where",
}  # fmt: skip
OPS = {name: op for op, name in NAMES.items()}


# Nodes and rows


def write(root: UOp) -> Expression:
    """The rows of a node."""
    out, at = Writer(), dict[UOp, int]()
    for u in toposort(root):
        if u.op is Op.CONST:
            at[u] = out.row("const", u.arg.value)
        elif u.op is Op.PARAM:
            at[u] = out.row("var", u.arg.name, *u.arg.bounds)
        elif u.op is Op.RANGE:
            at[u] = out.row("loop", u.arg.axis_id, at[u.src[0]])
        elif u.op is not Op.STACK:  # the shape of a Param
            at[u] = out.put(NAMES[u.op], *(at[s] for s in u.src))
    return out.expression(at[root])


def read(rows: Expression) -> UOp:
    """The node of some rows."""
    made: list[UOp] = []
    for op, *src in rows:
        if op == "const":
            made.append(UOp(Op.CONST, (), ConstArg(src[0], dt.bool_ if isinstance(src[0], bool) else dt.index)))
        elif op == "var":
            made.append(b.variable(*src))
        elif op == "loop":
            made.append(UOp(Op.RANGE, (made[src[1]],), b.range_(2, src[0]).arg))
        elif op == "le" and made[src[0]].op is Op.CONST:  # as both front ends write it
            made.append(UOp(Op.CMPGE, (made[src[1]], made[src[0]])))
        else:
            made.append(UOp(OPS[op], tuple(made[k] for k in src)))
    return made[-1]


def addresses(root: UOp, at: Indexing) -> Iterator[UOp]:
    """The address and the gate of every operand of a program, where loops run over its result."""
    loops = iter(range(1 << 20))
    pending: list[tuple[UOp, tuple[UOp, ...], UOp | None]] = []
    pending.append((root, tuple(_loop(n, next(loops)) for n in root.shape), None))
    seen, found = set(), dict[UOp, None]()
    while pending:
        u, index, gate = visit = pending.pop()
        if visit in seen:
            continue
        seen.add(visit)
        if u.op in STEP:
            step = STEP[u.op](at, u, index)
            pending.append((u.src[0], step.coords, at.both(gate, step.gate)))
        elif u.op is Op.REDUCE:
            s = u.src[0]
            inner = [_loop(n, next(loops)) if k in u.arg.axes else i for k, (n, i) in enumerate(zip(s.shape, index))]
            pending.append((s, tuple(inner), gate))
        elif u.op is Op.STACK:
            pending += [(s, index[1:], gate) for s in u.src]
        elif u.op in ALU or u.op in (Op.CONTIGUOUS, Op.CAST):
            pending += [(s, at.align(index, s.shape), gate) for s in u.src]
        elif u.shape and u.op is not Op.CONST:
            found.update(dict.fromkeys((at.flatten(index, u.shape), *(() if gate is None else (gate,)))))
    yield from found


def _loop(n: Dim, axis: int) -> UOp:
    return b.range_(n, axis) if isinstance(n, UOp) or n > 1 else ZERO


def ours(program: Program) -> list[Expression]:
    """What our front end writes for a program."""
    _, shapes, text = program
    operands = [Tensor(b.param(k, shape, dt.float32)) for k, shape in enumerate(shapes)]
    root = eval(text, {"t": operands}).uop
    return [write(u) for u in addresses(root, Indexing(lambda u: u))]


def times(*sizes: UOp | int) -> UOp:
    """The product of some sizes."""
    return functools.reduce(lambda x, y: UOp(Op.MUL, (x, y)), [dim_node(n) for n in sizes])


def symbolic(seed: int, each: int) -> Iterator[tuple[str, list[Expression]]]:
    """Reshapes, transposes, pads and cuts of shapes with variable extents."""
    rng = random.Random(f"{seed} symbolic")
    for _ in range(each):
        n, m = b.variable("n", 1, 64), b.variable("m", 1, 32)
        k = rng.choice((2, 3, 4, 8))
        t = b.param(0, (n, m, k), dt.float32)
        choices: list[tuple[str, Callable[[], UOp]]] = [
            ("rows", lambda: b.reshape(t, (n, times(m, k)))),  # noqa: B023
            ("all", lambda: b.reshape(t, (times(n, m, k),))),  # noqa: B023
            ("columns", lambda: b.reshape(b.permute(t, (1, 0, 2)), (m, times(n, k)))),  # noqa: B023
            ("back", lambda: b.reshape(b.reshape(t, (times(n, m), k)), (n, m, k))),  # noqa: B023
            ("turned", lambda: b.reshape(b.permute(b.reshape(t, (n, times(m, k))), (1, 0)), (m, k, n))),  # noqa: B023
        ]
        name, make = rng.choice(choices)
        yield f"{name} of (n, m, {k})", [write(u) for u in addresses(make(), Indexing(lambda u: u))]


# The peer


class Peer:
    """tinygrad in a process of its own."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, str(HERE / "peers" / "index_tinygrad.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **task: Any) -> Any:
        """The answer, or None with the reason on standard error."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        if "error" in found:
            print(f"tinygrad: {found['error']} at {task}"[:400], file=sys.stderr)
        return found.get("answer")


# Cases

Case = dict[str, Any]


def cases(seed: int, each: int, peer: Peer | None) -> Iterator[tuple[str, str, str, Expression]]:
    """(family, program, front end, expression), every expression once."""
    seen = set()
    for program in programs(seed, each):
        family, shapes, text = program
        made = [("uops", rows) for rows in ours(program)]
        if peer is not None:
            made += [("tinygrad", rows) for rows in peer.ask(do="addresses", shapes=shapes, text=text) or ()]
        for by, rows in made:
            if (key := json.dumps(rows)) not in seen:
                seen.add(key)
                yield family, f"{shapes} {text}", by, rows
    for text, expressions in symbolic(seed, each):
        yield from (("symbolic", text, "uops", rows) for rows in expressions)


def judged(rows: Expression, made: Expression | None) -> Expression | None:
    """A simplified expression, which must be what it was at random points."""
    if made is None:
        return None
    leaves: dict[str, Any] = {}
    if not same(evaluate(rows, leaves, POINTS, 1), evaluate(made, leaves, POINTS, 1)):
        raise SystemExit(f"not equal: {spell(rows)} and {spell(made)}")
    return made


def measure(seed: int, each: int, peer: Peer | None) -> Iterator[Case]:
    """Counts of every case."""
    for family, program, by, rows in cases(seed, each, peer):
        rewritten = write(Rewriter(INDEXING)(read(rows)))
        found: Case = {"family": family, "program": program, "by": by, "rows": rows, "before": counts(rows)}
        for name, made in (("uops", rewritten), *((h, peer.ask(do="simplify", rows=rows, **{"with": w})) for h, w in HOW if peer)):
            simplified = judged(rows, made)
            if simplified is not None:
                found[name], found[f"{name} text"] = counts(simplified), spell(simplified)
        yield found


HOW = (("tinygrad", "simplify"), ("with masks", "valid"))


def no_worse(case: Case, than: str) -> bool:
    return bool(case["uops"][0] <= case[than][0] and case["uops"][1] <= case[than][1])


def table(found: list[Case]) -> str:
    """Totals by family: nodes and divisions of each, and in how many cases ours has no more of both."""
    families = defaultdict(list)
    for case in found:
        families[case["family"]].append(case)
    lines = ["| family | cases | as written | uops | tinygrad | with masks | no worse |", "|---|---|---|---|---|---|---|"]
    for family, of in [*families.items(), ("all", found)]:
        both = [c for c in of if "tinygrad" in c]
        total = {k: f"{sum(c[k][0] for c in both if k in c)} ({sum(c[k][1] for c in both if k in c)})" for k in ("before", "uops")}
        total |= {k: f"{sum(c[k][0] for c in both if k in c)} ({sum(c[k][1] for c in both if k in c)})" for k, _ in HOW}
        good = sum(no_worse(c, "tinygrad") for c in both)
        share = f"{100 * good / len(both):.1f} %" if both else "-"
        cells = (family, len(both), total["before"], total["uops"], total["tinygrad"], total["with masks"], share)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Index expressions: nodes and divisions after our rules and after tinygrad's.")
    parser.add_argument("--each", type=int, default=40, help="programs of each family (40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable, help="the Python of an environment with tinygrad")
    parser.add_argument("--worse", type=int, default=5, help="show so many cases in which ours is longer (5)")
    parser.add_argument("--json", type=Path, help="write every case to this file")
    asked = parser.parse_args()
    peer = Peer(asked.python)
    found = list(measure(asked.seed, asked.each, peer))
    print(f"{peer.ask(do='version')}; nodes (divisions and remainders)\n\n{table(found)}\n")
    worse = sorted((c for c in found if "tinygrad" in c and not no_worse(c, "tinygrad")), key=lambda c: c["before"])
    print(Counter(c["family"] for c in worse))
    for c in worse[: asked.worse]:
        print(f"{c['family']} by {c['by']}: {c['program']}\n    {spell(c['rows'])}\n    uops     {c['uops']} {c['uops text']}")
        print(f"    tinygrad {c['tinygrad']} {c['tinygrad text']}")
    if asked.json:
        asked.json.write_text(json.dumps(found))
    both = [c for c in found if "tinygrad" in c]
    fewer = all(sum(c["uops"][k] for c in both) < sum(c["tinygrad"][k] for c in both) for k in (0, 1))
    sys.exit(0 if fewer and sum(no_worse(c, "tinygrad") for c in both) >= BAR * len(both) else 1)


if __name__ == "__main__":
    main()
