"""Size of simplified index expressions: nodes, divisions and remainders after our rules, beside tinygrad's `simplify`.

    python bench/index_expressions.py [--each N] [--seed S] [--python PYTHON] [--worse N] [--json FILE]

Programs of twelve families (tiled products, convolutions, poolings, chains of reshapes, ...; `index_programs.py`) are written in
both Tensor front ends. Each yields the address of every operand, and the gate if it is masked. In two families an expression is
an address with its gate, and must be right where the gate is true. Ours come from movement ops, with
nothing simplified; tinygrad's come from its rangeify, which simplifies at every step. Symbolic shapes are ours alone. Both
simplify every expression, and the results are counted in one language (`expressions.py`): nodes are those of the graph, leaves
included. Each result must equal the original expression at random points.

`tinygrad` is `UOp.simplify`, to which the bar refers; `with masks` adds the rules for masks of tinygrad's rangeify.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from expressions import Expression, ExpressionWriter, count_nodes_and_divisions, evaluate_at_random_points, format_expression, same
from index_programs import MASKED_FAMILIES, Program, generate_programs

from uops.compiler.ir.views import STEP, TRUE, ZERO, IndexArithmetic
from uops.compiler.rewrite.gates import simplify_gate, simplify_under_gate
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
#: Least share of cases in which ours is no worse, and points at which expressions are compared.
BAR, POINTS = 0.95, 200
#: Programs of a family of addresses with gates, for each program of another family.
MASKED_EACH = 12
NAMES = {
    Op.ADD: "add", Op.SUB: "sub", Op.NEG: "neg", Op.MUL: "mul", Op.IDIV: "idiv", Op.MOD: "mod", Op.MAX: "max", Op.CMPLT: "lt",
    Op.CMPGT: "gt", Op.CMPLE: "le", Op.CMPGE: "ge", Op.CMPEQ: "eq", Op.CMPNE: "ne", Op.AND: "and", Op.OR: "or", Op.NOT: "not",
    Op.WHERE: "where",
}  # fmt: skip
OPS = {name: op for op, name in NAMES.items()}


# Nodes and rows


def write_rows(root: UOp, gate: UOp | None = None) -> Expression:
    """Return the rows of a node; with a gate, of an address that is used where the gate is true."""
    out, at = ExpressionWriter(), dict[UOp, int]()
    for u in toposort(root, *(() if gate is None else (gate,))):
        if u.op is Op.CONST:
            at[u] = out.add_row("const", u.arg.value)
        elif u.op is Op.PARAM:
            at[u] = out.add_row("var", u.arg.name, *u.arg.bounds)
        elif u.op is Op.RANGE:
            at[u] = out.add_row("loop", u.arg.axis_id, at[u.bound])
        elif u.op is not Op.STACK:  # the shape of a Param
            at[u] = out.add_op(NAMES[u.op], *(at[s] for s in u.src))
    return out.expression(at[root] if gate is None else out.add_op("masked", at[gate], at[root]))


def read_rows(rows: Expression) -> tuple[UOp, UOp | None]:
    """Return the node of some rows, and the gate of an address that has one."""
    *rest, (root_op, *operands) = rows
    if root_op == "masked":
        nodes = _read_nodes(rest)
        return nodes[operands[1]], nodes[operands[0]]
    return _read_nodes(rows)[-1], None


def _read_nodes(rows: Expression) -> list[UOp]:
    """Return the node of each row."""
    nodes: list[UOp] = []
    for op, *src in rows:
        if op == "const":
            nodes.append(UOp(Op.CONST, (), ConstArg(src[0], dt.bool_ if isinstance(src[0], bool) else dt.index)))
        elif op == "var":
            nodes.append(b.variable(*src))
        elif op == "loop":
            nodes.append(UOp(Op.RANGE, (nodes[src[1]],), b.range_(2, src[0]).arg))
        elif op == "le" and nodes[src[0]].op is Op.CONST:  # as both front ends write it
            nodes.append(UOp(Op.CMPGE, (nodes[src[1]], nodes[src[0]])))
        else:
            nodes.append(UOp(OPS[op], tuple(nodes[k] for k in src)))
    return nodes


def simplify_rows(rows: Expression) -> Expression:
    """Return the rows that our rules give."""
    root, gate = read_rows(rows)
    simplify = Rewriter(INDEXING)
    if gate is None:
        return write_rows(simplify(root))
    gate = simplify_gate(simplify(gate), simplify)
    root = simplify_under_gate(root, gate, simplify)
    return write_rows(root, None if gate is TRUE else gate)


def collect_addresses(root: UOp, at: IndexArithmetic) -> Iterator[tuple[UOp, UOp | None]]:
    """Yield the address of every operand of a program with its gate, if it has one; the program's loops are over its result."""
    loops = iter(range(1 << 20))
    pending: list[tuple[UOp, tuple[UOp, ...], UOp | None]] = []
    pending.append((root, tuple(_loop(n, next(loops)) for n in root.shape), None))
    seen, addresses = set(), dict[tuple[UOp, UOp | None], None]()
    while pending:
        u, index, gate = visit = pending.pop()
        if visit in seen:
            continue
        seen.add(visit)
        if u.op in STEP:
            step = STEP[u.op](at, u, index)
            source, *_ = u.src
            pending.append((source, step.coords, at.conjoin_gates(gate, step.gate)))
        elif u.op is Op.REDUCE:
            s = u.operand
            inner = [_loop(n, next(loops)) if k in u.arg.axes else i for k, (n, i) in enumerate(zip(s.shape, index))]
            pending.append((s, tuple(inner), gate))
        elif u.op is Op.STACK:
            pending += [(s, index[1:], gate) for s in u.src]
        elif u.op in ALU or u.op in (Op.CONTIGUOUS, Op.CAST):
            pending += [(s, at.align_broadcast_index(index, s.shape), gate) for s in u.src]
        elif u.shape and u.op is not Op.CONST:
            addresses[at.flatten(index, u.shape), gate] = None
    yield from addresses


def _loop(n: Dim, axis: int) -> UOp:
    """Return a loop, or 0 in place of a loop of one iteration."""
    return b.range_(n, axis) if isinstance(n, UOp) or n > 1 else ZERO


def collect_our_expressions(program: Program) -> list[Expression]:
    """Return the expressions that our front end writes for a program.

    These are addresses and gates, or, in the families that are so, addresses with their gates.
    """
    family, shapes, text = program
    operands = [Tensor(b.param(k, shape, dt.float32)) for k, shape in enumerate(shapes)]
    addresses = collect_addresses(eval(text, {"t": operands}).uop, IndexArithmetic(lambda u: u))
    if family in MASKED_FAMILIES:
        return [write_rows(u, gate) for u, gate in addresses if gate is not None]
    return list(_write_apart(addresses))


def _write_apart(addresses: Iterable[tuple[UOp, UOp | None]]) -> Iterator[Expression]:
    """Yield the rows of addresses and gates, each once."""
    yield from map(write_rows, dict.fromkeys(u for pair in addresses for u in pair if u is not None))


def multiply_sizes(*sizes: UOp | int) -> UOp:
    """Return the product of some sizes."""
    return functools.reduce(lambda x, y: UOp(Op.MUL, (x, y)), [dim_node(n) for n in sizes])


def generate_symbolic_programs(seed: int, each: int) -> Iterator[tuple[str, list[Expression]]]:
    """Yield reshapes, transposes, pads and cuts of shapes with variable extents."""
    rng = random.Random(f"{seed} symbolic")
    for _ in range(each):
        n, m = b.variable("n", 1, 64), b.variable("m", 1, 32)
        k = rng.choice((2, 3, 4, 8))
        t = b.param(0, (n, m, k), dt.float32)
        choices: list[tuple[str, Callable[[], UOp]]] = [
            ("rows", lambda: b.reshape(t, (n, multiply_sizes(m, k)))),  # noqa: B023
            ("all", lambda: b.reshape(t, (multiply_sizes(n, m, k),))),  # noqa: B023
            ("columns", lambda: b.reshape(b.permute(t, (1, 0, 2)), (m, multiply_sizes(n, k)))),  # noqa: B023
            ("back", lambda: b.reshape(b.reshape(t, (multiply_sizes(n, m), k)), (n, m, k))),  # noqa: B023
            ("turned", lambda: b.reshape(b.permute(b.reshape(t, (n, multiply_sizes(m, k))), (1, 0)), (m, k, n))),  # noqa: B023
        ]
        name, make = rng.choice(choices)
        yield f"{name} of (n, m, {k})", list(_write_apart(collect_addresses(make(), IndexArithmetic(lambda u: u))))


# The peer


class TinygradPeer:
    """tinygrad in a process of its own."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, str(HERE / "peers" / "index_tinygrad.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **task: Any) -> Any:
        """Return the answer, or None with the reason on standard error."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            print(f"tinygrad: {answer['error']} at {task}"[:400], file=sys.stderr)
        return answer.get("answer")


# Cases

Case = dict[str, Any]


def generate_cases(seed: int, each: int, peer: TinygradPeer | None) -> Iterator[tuple[str, str, str, Expression]]:
    """Yield (family, program, front end, expression), every expression once."""
    seen = set()
    for program in (*generate_programs(seed, each), *generate_programs(seed, MASKED_EACH * each, MASKED_FAMILIES)):
        family, shapes, text = program
        written = [("uops", rows) for rows in collect_our_expressions(program)]
        if peer is not None:
            masked = family in MASKED_FAMILIES
            written += [("tinygrad", rows) for rows in peer.ask(do="addresses", shapes=shapes, text=text, masked=masked) or ()]
        for by, rows in written:
            if (key := json.dumps(rows)) not in seen:
                seen.add(key)
                yield family, f"{shapes} {text}", by, rows
    for text, expressions in generate_symbolic_programs(seed, each):
        yield from (("symbolic", text, "uops", rows) for rows in expressions)


def check_equal_at_points(rows: Expression, simplified: Expression | None) -> Expression | None:
    """Return a simplified expression; exit if it differs from the original at random points."""
    if simplified is None:
        return None
    leaves: dict[str, Any] = {}
    if not same(evaluate_at_random_points(rows, leaves, POINTS, 1), evaluate_at_random_points(simplified, leaves, POINTS, 1)):
        raise SystemExit(f"not equal: {format_expression(rows)} and {format_expression(simplified)}")
    return simplified


def measure_cases(seed: int, each: int, peer: TinygradPeer | None) -> Iterator[Case]:
    """Yield the counts of every case."""
    for family, program, by, rows in generate_cases(seed, each, peer):
        rewritten = simplify_rows(rows)
        case: Case = {"family": family, "program": program, "by": by, "rows": rows, "before": count_nodes_and_divisions(rows)}
        for name, result in (
            ("uops", rewritten),
            *((h, peer.ask(do="simplify", rows=rows, **{"with": w})) for h, w in HOW if peer),
        ):
            simplified = check_equal_at_points(rows, result)
            if simplified is not None:
                case[name], case[f"{name} text"] = count_nodes_and_divisions(simplified), format_expression(simplified)
        yield case


HOW = (("tinygrad", "simplify"), ("with masks", "valid"))


def no_worse(case: Case, than: str) -> bool:
    """Return True if ours has no more nodes and no more divisions than the other one."""
    return bool(case["uops"][0] <= case[than][0] and case["uops"][1] <= case[than][1])


def format_table(cases: list[Case]) -> str:
    """Return a table of totals by family.

    It has nodes and divisions of each simplifier, and the share of cases in which ours has no more of both.
    """
    families = defaultdict(list)
    for case in cases:
        families[case["family"]].append(case)
    lines = ["| family | cases | as written | uops | tinygrad | with masks | no worse |", "|---|---|---|---|---|---|---|"]
    for family, of in [*families.items(), ("all", cases)]:
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
    options = parser.parse_args()
    peer = TinygradPeer(options.python)
    cases = list(measure_cases(options.seed, options.each, peer))
    print(f"{peer.ask(do='version')}; nodes (divisions and remainders)\n\n{format_table(cases)}\n")
    worse = sorted((c for c in cases if "tinygrad" in c and not no_worse(c, "tinygrad")), key=lambda c: c["before"])
    print(Counter(c["family"] for c in worse))
    for c in worse[: options.worse]:
        print(f"{c['family']} by {c['by']}: {c['program']}\n    {format_expression(c['rows'])}")
        print(f"    uops     {c['uops']} {c['uops text']}")
        print(f"    tinygrad {c['tinygrad']} {c['tinygrad text']}")
    if options.json:
        options.json.write_text(json.dumps(cases))
    both = [c for c in cases if "tinygrad" in c]
    fewer = all(sum(c["uops"][k] for c in both) < sum(c["tinygrad"][k] for c in both) for k in (0, 1))
    sys.exit(0 if fewer and sum(no_worse(c, "tinygrad") for c in both) >= BAR * len(both) else 1)


if __name__ == "__main__":
    main()
