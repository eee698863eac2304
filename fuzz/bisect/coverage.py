"""What a program made the compiler do: which passes changed it, and which rewrite rules fired or were refused by their condition.

Takes: a graph and a target. Gives: counters `stage:PASS`, `rule:NAME fired`, `rule:NAME refused`. A rule is refused on a node of a
normal form that its left side fits: had its condition held, it would have been applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.log import Move, recording
from uops.compiler.pipeline import Lowering, run_pass
from uops.compiler.rewrite.pattern import match
from uops.compiler.rewrite.rule import Rule
from uops.compiler.target import Target
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: The last pass that rewrites; machine code is not needed.
_LAST = "plan"
#: Nodes of one normal form that are looked at.
_NODES = 400


def lowering(graph: UOp, target: Target) -> Counter[str]:
    """The counters of one lowering. Raises what lowering raises."""
    counts: Counter[str] = Counter()
    moves = recorded(graph, target, lambda name, changed: counts.update({f"stage:{name}": int(changed)}))
    for move in moves:
        counts.update(f"rule:{s.rule} fired" for s in move.steps)
    for move in moves:
        counts.update(f"rule:{name} refused" for name in _refused(move))
    return +counts


def recorded(graph: UOp, target: Target, told: Callable[[str, bool], None] = lambda name, changed: None) -> list[Move]:
    """What one lowering did, move by move; `told` hears of each pass, and whether it changed anything. Raises what lowering
    raises."""
    state = Lowering(target, Config(reuse=False))
    with recording() as log:
        for p in pipeline.PIPELINE:
            after = run_pass(p, graph, state)
            told(p.name, after is not graph)
            graph = after
            if p.name == _LAST:
                break
    return log.moves


def _refused(move: Move) -> list[str]:
    rules: dict[Op | None, list[Rule]] = {}
    for r in move.rules:
        if r.when is not None or r.types is not None or r.witness is not None:
            rules.setdefault(r.lhs.op, []).append(r)
    return [r.name for u in toposort(move.after)[:_NODES] for r in rules.get(u.op, ()) if rules and match(r.lhs, u, {})]
