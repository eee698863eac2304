"""Values: which steps of a lowering are replayed as proved rules, and which check of the interpreter covers the others.

Takes: bodies of neighbouring passes, and the steps that a Rewriter logged. Gives: verdicts `values` per pass. A step is an instance
of a rule that the ledger proves; the steps alone, applied bottom-up, have to give the body after. An instruction list has to hold
each instruction of its graph once, after what it needs. Spec: Lowering Pipeline.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from uops.compiler.log import Log, Move
from uops.compiler.prove.admission import is_proved
from uops.compiler.rewrite.rule import Rule, Step
from uops.compiler.validate.model import By, Counterexample, Kind, Verdict
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges

#: Pass or step -> the check that covers what it does to values: `uops stages` runs the interpreter on what the pass gives.
COVERED = {
    "join": "stages: every bit, unless floats are reduced (R32)",
    "optimize": "stages: every bit, unless floats are reduced (R32)",
    "expand": "stages: every bit, unless floats are reduced (R32)",
    "accumulate": "stages: the allowed sets (R30)",
    "widths": "the claims of width, and stages",
    "decompose": "conform --tier exhaustive: every input of one argument, and stages",
}


def values(bodies: Mapping[str, UOp], moves: Mapping[UOp, Sequence[Move]]) -> list[Verdict]:
    """The verdicts of one kernel, of which `bodies` holds what each pass from join to linearize gave, in their order."""
    found = [Verdict(Kind.VALUE, "join", By.INTERPRETER, why=COVERED["join"])]
    for (_, before), (name, after) in itertools.pairwise(bodies.items()):
        if before is after:
            found.append(Verdict(Kind.VALUE, name, By.STRUCTURE))
        elif name in COVERED:
            found.append(Verdict(Kind.VALUE, name, By.INTERPRETER, why=COVERED[name]))
        else:
            found.append(_REPLAYED[name](before, after, moves))
    return found


def moves_of(log: Log) -> dict[UOp, list[Move]]:
    """The moves of Rewriters, by what they made."""
    found: dict[UOp, list[Move]] = {}
    for m in log.moves:
        if m.rules:
            found.setdefault(m.after, []).append(m)
    return found


def replayed(before: UOp, after: UOp, moves: Mapping[UOp, Sequence[Move]]) -> Verdict:
    """That proved rules alone make `after` of `before`."""
    m = next((m for m in moves.get(after, ()) if m.before is before), None)
    if m is None:
        return Verdict(Kind.VALUE, "simplify", None, why="no Rewriter logged how it came about")
    why = replay(before, after, m.steps, {r.name: r for r in m.rules})
    return Verdict(Kind.VALUE, "simplify", By.RULES, None if why is None else Counterexample({}, why))


def replay(before: UOp, after: UOp, steps: Sequence[Step], rules: Mapping[str, Rule]) -> str | None:
    """Why the steps do not make `after` of `before`, or one of them is no instance of a proved rule; None where all is well."""
    by: dict[UOp, UOp] = {}
    for s in steps:
        rule = rules.get(s.rule)
        if rule is None or not _proved(rule):
            return f"rule {s.rule} is not proved"
        made = rule.apply(s.before)
        if made is None or made[0] is not s.after:
            return f"a step is no instance of rule {s.rule}"
        by[s.before] = s.after
    got = rewritten(before, by)
    return None if got is after else "the steps of the log give something else"


def used(before: UOp, steps: Sequence[Step]) -> list[Step]:
    """The steps that are taken on the way from `before`."""
    by = {s.before: s for s in steps}
    taken: set[UOp] = set()
    rewritten(before, {s.before: s.after for s in steps}, taken)
    return [s for s in by.values() if s.before in taken]


_KNOWN: dict[int, tuple[Rule, bool]] = {}  # by identity, as rules are big to hash


def _proved(rule: Rule) -> bool:
    known = _KNOWN.get(id(rule))
    if known is None or known[0] is not rule:
        known = _KNOWN[id(rule)] = rule, is_proved(rule)
    return known[1]


def rewritten(root: UOp, by: Mapping[UOp, UOp], taken: set[UOp] | None = None) -> UOp:
    """`root` with steps applied until none fits, sources first; iterative. What steps were taken from goes into `taken`. Raises
    Crash for steps that go round."""
    done: dict[UOp, UOp] = {}
    waiting: set[UOp] = set()
    stack = [root]
    while stack:
        u = stack[-1]
        missing = [s for s in u.src if s not in done] if u not in done else []
        if u in done:
            stack.pop()
        elif missing:
            stack += missing
        else:
            src = tuple([done[s] for s in u.src])
            v = u if src == u.src else UOp(u.op, src, u.arg, u.tag)
            then = done.get(v) or by.get(v)
            if then is not None and v not in done and taken is not None:
                taken.add(v)
            if then is None:
                done[v] = done[u] = v
            elif then in done:
                done[v] = done[u] = done[then]
            elif then in waiting:
                raise Crash("the steps of a log go round")
            else:
                waiting.add(then)
                stack.append(then)
    return done[root]


def arranged(graph: UOp, linear: UOp) -> Verdict:
    """That a list holds each instruction of a graph once, after what it needs, and each access in the loops that the graph has
    around it (R127)."""
    why = _misplaced(graph, linear)
    return Verdict(Kind.VALUE, "linearize", By.STRUCTURE, None if why is None else Counterexample({}, why))


def _misplaced(graph: UOp, linear: UOp) -> str | None:
    instructions = linear.src
    at = {u: k for k, u in enumerate(instructions)}
    if len(at) != len(instructions):
        return "an instruction is listed twice"
    order = toposort(graph)
    there = set(order)
    for u in instructions:
        if u not in there:
            return f"instruction {at[u]} is not in the graph"
        late = next((s for s in u.src if at.get(s, -1) > at[u]), None)
        if late is not None:
            return f"instruction {at[late]} is used by {at[u]}"
    missing = next((u for u in order if u.op in _EFFECTS and u not in at), None)
    return _outside(instructions, open_ranges(order)) if missing is None else f"a {missing.op.name} is not listed"


def _outside(instructions: Sequence[UOp], around: Mapping[UOp, frozenset[UOp]]) -> str | None:
    """Why loops do not nest, or an access or a loop is not in the innermost of its own loops; None where all is well."""
    loops: list[UOp] = []
    for k, u in enumerate(instructions):
        if u.op is Op.END:
            closed = {loops.pop() for _ in u.src[1:] if loops}
            if closed != set(u.src[1:]):
                return f"instruction {k} closes loops that are not the innermost ones"
        if u.op is Op.RANGE:
            loops.append(u)
        elif u.op in _EFFECTS and not (around[u].issubset(loops) and around[u].issuperset(loops[-1:])):
            return f"instruction {k} is not in the innermost of its loops"
    return None


#: Pass -> what shows that it keeps the values.
_REPLAYED: dict[str, Callable[[UOp, UOp, Mapping[UOp, Sequence[Move]]], Verdict]] = {
    "simplify": replayed,
    "linearize": lambda graph, linear, moves: arranged(graph, linear),
}
_EFFECTS = frozenset({Op.STORE, Op.ATOMICADD, Op.RANGE, Op.END, Op.BARRIER, Op.LOAD})
