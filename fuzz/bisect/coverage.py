"""Coverage of the compiler by one program: the passes that changed it, and the rewrite rules that fired or were refused.

Takes: a graph and a target. Gives: counters `stage:PASS`, `rule:NAME fired`, `rule:NAME refused`. A rule is refused on a node
of a normal form that its left side matches: the rule's condition did not hold there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.log import GraphTransform, record_transforms
from uops.compiler.pipeline import LoweringState, run_pass_and_verify
from uops.compiler.rewrite.pattern import match_pattern_and_bind
from uops.compiler.rewrite.rule import Rule
from uops.compiler.target import Target
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: The last pass that rewrites; rendering and machine code are not needed.
_LAST = "plan"
#: Maximum number of nodes of a normal form on which refusals are counted.
_NODES = 400


def count_changing_passes_and_rule_outcomes(graph: UOp, target: Target) -> Counter[str]:
    """Count the coverage of one lowering. Raises what lowering raises."""
    counts: Counter[str] = Counter()
    transforms = record_transforms_until_plan(graph, target, lambda name, changed: counts.update({f"stage:{name}": int(changed)}))
    for transform in transforms:
        counts.update(f"rule:{s.rule} fired" for s in transform.steps)
    for transform in transforms:
        counts.update(f"rule:{name} refused" for name in _list_matching_but_refused_rules(transform))
    return +counts


def record_transforms_until_plan(
    graph: UOp, target: Target, after_pass: Callable[[str, bool], None] = lambda name, changed: None
) -> list[GraphTransform]:
    """Lower a graph and return the recorded transforms.

    `after_pass(name, changed)` is called after each pass. Raises what lowering raises.
    """
    state = LoweringState(target, Config(reuse=False))
    with record_transforms() as log:
        for p in pipeline.PIPELINE:
            after = run_pass_and_verify(p, graph, state)
            after_pass(p.name, after is not graph)
            graph = after
            if p.name == _LAST:
                break
    return log.transforms


def _list_matching_but_refused_rules(transform: GraphTransform) -> list[str]:
    """List the conditional rules whose left sides match one of the first _NODES nodes that the transform left, once per match."""
    rules: dict[Op | None, list[Rule]] = {}
    for r in transform.rules:
        if r.when is not None or r.types is not None or r.witness is not None:
            rules.setdefault(r.lhs.op, []).append(r)
    return [r.name for u in toposort(transform.after)[:_NODES] for r in rules.get(u.op, ()) if match_pattern_and_bind(r.lhs, u, {})]
