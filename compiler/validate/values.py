"""Values: terms that are compared by fingerprints, rewrite steps that are replayed as proved rules, and decompositions.

Takes: bodies of neighbouring passes, and the transforms that were logged. Gives: verdicts `values` per pass.

- Of `callify`, the program must store the values of the tensor graph (`arrays`).
- Of `rangeify` and `join`, each kernel must store values of the callified program (`arrays`).
- From `join` to `widths`, the body and the result must store the same terms (`fingerprints`).
- Of `decompose`, each node must be kept, or be the decomposition of that node alone.
- Of `simplify`, each step must be an instance of a rule that the ledger proves, and the steps alone, applied bottom-up, must give
  the body after.
- An instruction list must have each instruction of its graph once, after its sources.

What is not decided is left to the interpreter's check that covers the pass. Spec: Lowering Pipeline.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from uops.compiler.ir.loops import find_ifs_around
from uops.compiler.log import GraphTransform, LoweringLog
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.select.select import decompose_node
from uops.compiler.prove.admission import is_rule_in_ledger
from uops.compiler.rewrite.rule import RewriteStep, Rule
from uops.compiler.validate.budget import BudgetExhausted, limit_kernel_budget
from uops.compiler.validate.fingerprints.argmax_loops import rewrite_argmax_loops_as_reduces
from uops.compiler.validate.fingerprints.compare import compare_values
from uops.compiler.validate.model import ClaimCounterexample, DecisionMethod, ObligationKind, ValidationVerdict
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, ops_below, toposort
from uops.spec.ir.ops import ACCESSES, ALU, BLOCK_OPENERS, COLLECTIVE, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import is_variable, open_ranges

#: Greatest number of combinations of named variables for which terms are compared.
MAX_VARIABLE_VALUES = 16

#: Pass or step -> the check that covers its effect on values where it is not decided: `uops stages` runs the interpreter on the
#: result of each pass.
COVERED = {
    "join": "stages: every bit, unless floats are reduced (R32)",
    "optimize": "stages: every bit, unless floats are reduced (R32)",
    "expand": "stages: every bit, unless floats are reduced (R32)",
    "accumulate": "stages: the allowed sets (R30)",
    "widths": "the claims of width, and stages",
    "decompose": "conform --tier exhaustive: every input of one argument, and stages",
}


def decide_value_preservation_or_leave_to_interpreter(
    bodies_by_pass: Mapping[str, UOp], transforms_by_result: Mapping[UOp, Sequence[GraphTransform]], is_fused: bool
) -> list[ValidationVerdict]:
    """Decide the values of one kernel; `bodies_by_pass` has the result of each pass from join to linearize, in order.

    `is_fused` states that `join` made the kernel of others.
    """
    joined = ValidationVerdict(ObligationKind.VALUE, "join", DecisionMethod.INTERPRETER, why=COVERED["join"])
    verdicts = [joined if is_fused else ValidationVerdict(ObligationKind.VALUE, "join", DecisionMethod.STRUCTURE)]
    scheduled: ValidationVerdict | None = None
    for (_, before), (name, after) in itertools.pairwise(bodies_by_pass.items()):
        if before is after:
            verdicts.append(ValidationVerdict(ObligationKind.VALUE, name, DecisionMethod.STRUCTURE))
        elif name in _COMPARED:
            scheduled = scheduled or decide_scheduled_terms(bodies_by_pass["join"], bodies_by_pass[_COMPARED[-1]])
            why = scheduled.why if scheduled.by is None else ""
            covered = ValidationVerdict(ObligationKind.VALUE, name, DecisionMethod.INTERPRETER, why=f"{COVERED[name]} ({why})")
            verdicts.append(covered if scheduled.by is None else replace(scheduled, place=name))
        else:
            verdicts.append(_REPLAYED[name](before, after, transforms_by_result))
    return verdicts


#: The passes whose results are compared with the body before them by fingerprints, as one.
_COMPARED = ("optimize", "expand", "accumulate", "widths")


def decide_scheduled_terms(before: UOp, after: UOp) -> ValidationVerdict:
    """Decide that a body and its result after `widths` store the same terms."""
    restated = rewrite_argmax_loops_as_reduces(after)
    verdict = decide_equal_terms(before, linearize_kernel(after) if restated is after else restated)
    fault = verdict.counterexample
    return verdict if fault is None else replace(verdict, counterexample=replace(fault, after=after))


def decide_equal_terms(before: UOp, after: UOp, with_laws: bool = True) -> ValidationVerdict:
    """Decide that a body and a later form of it store the same terms, for all values of the named variables.

    With `with_laws`, the later form may be scheduled: its Reduces may be unrolled, and made in wider dtypes.
    """
    undecided = ValidationVerdict(ObligationKind.VALUE, _COMPARED[-1], None)
    variables = [u for u in toposort(before) if u.op is Op.PARAM and is_variable(u)]
    bounds = [u.arg.bounds or (u.dtype.min, u.dtype.max) for u in variables]
    if math.prod(int(high - low + 1) for low, high in bounds) > MAX_VARIABLE_VALUES:
        return replace(undecided, why="the named variables have too many values")
    for numbers in itertools.product(*(range(int(low), int(high) + 1) for low, high in bounds)):
        values = {str(u.arg.name): n for u, n in zip(variables, numbers, strict=True)}
        try:
            with limit_kernel_budget():
                result = compare_values(before, after, values, with_laws)
        except BudgetExhausted as e:
            return replace(undecided, why=str(e))
        if result.is_equal is None or not (result.is_equal or has_one_form(before)):
            return replace(undecided, why=result.why)
        if not result.is_equal:
            return ValidationVerdict(
                ObligationKind.VALUE, _COMPARED[-1], DecisionMethod.FINGERPRINTS,
                ClaimCounterexample(values, result.why, before=before, after=after),
            )  # fmt: skip
    return ValidationVerdict(ObligationKind.VALUE, _COMPARED[-1], DecisionMethod.FINGERPRINTS)


def has_one_form(body: UOp) -> bool:
    """Return True if texts of different terms surely are different kernels: those of floats whose only Reduces are plain sums.

    Integers and other Reduces have equal values in forms that the comparison tells apart, such as a greatest value taken twice.
    """
    nodes = toposort(body)
    stored = {u.value.dtype if u.op is Op.STORE else u.dtype for u in nodes if u.op in ACCESSES}
    reduces = [u for u in nodes if u.op is Op.REDUCE]
    return (
        all(d.is_float for d in stored)
        and not any(u.op is Op.BUFFER or u.op is Op.BITCAST for u in nodes)
        and all(u.arg.op is Op.ADD and u.dtype in _WIDE and Op.REDUCE not in ops_below(u.operand) for u in reduces)
        and not (reduces and any(u.op is Op.ADD and u.dtype.is_float and any(s.op is Op.ADD for s in u.src) for u in nodes))
    )


#: Floats in which sums are made as they are.
_WIDE = frozenset({dt.float32, dt.float64})


def decide_decompositions(
    before: UOp, after: UOp, transforms_by_result: Mapping[UOp, Sequence[GraphTransform]]
) -> ValidationVerdict:
    """Decide that each node is kept on replaced sources, or replaced by its decomposition."""
    m = next((m for m in transforms_by_result.get(after, ()) if m.before is before and m.pass_name == "decompose"), None)
    if m is None:
        return ValidationVerdict(ObligationKind.VALUE, "decompose", DecisionMethod.INTERPRETER, why=COVERED["decompose"])
    for u in toposort(before):
        src = tuple(_single(m.replacements.get(s, s)) for s in u.src)
        result = _single(m.replacements.get(u, u))
        kept = u if src == u.src else u.replace(src=src)
        if result is not kept and result is not decompose_node(u, src):
            fault = ClaimCounterexample({}, f"a {u.op.name} is replaced by something else than its decomposition")
            return ValidationVerdict(ObligationKind.VALUE, "decompose", DecisionMethod.STRUCTURE, fault)
    if before.op is Op.LINEAR or _single(m.replacements.get(before, before)) is after:
        return ValidationVerdict(ObligationKind.VALUE, "decompose", DecisionMethod.STRUCTURE)
    return ValidationVerdict(ObligationKind.VALUE, "decompose", DecisionMethod.INTERPRETER, why=COVERED["decompose"])


def _single(replacement: UOp | tuple[UOp, ...]) -> UOp:
    assert isinstance(replacement, UOp)
    return replacement


def group_rewriter_transforms_by_result(log: LoweringLog) -> dict[UOp, list[GraphTransform]]:
    """Return the graph transforms of Rewriters and of decompositions by their results."""
    moves: dict[UOp, list[GraphTransform]] = {}
    for m in log.transforms:
        if m.rules or m.pass_name == "decompose":
            moves.setdefault(m.after, []).append(m)
    return moves


def decide_simplify_by_proved_rules(
    before: UOp, after: UOp, transforms_by_result: Mapping[UOp, Sequence[GraphTransform]]
) -> ValidationVerdict:
    """Decide that proved rules alone lead from `before` to `after`."""
    m = next((m for m in transforms_by_result.get(after, ()) if m.before is before and m.rules), None)
    if m is None:
        return ValidationVerdict(ObligationKind.VALUE, "simplify", None, why="no Rewriter logged how it came about")
    fault = replay_proved_steps_and_find_fault(before, after, m.steps, {r.name: r for r in m.rules})
    return ValidationVerdict(
        ObligationKind.VALUE, "simplify", DecisionMethod.RULES, None if fault is None else ClaimCounterexample({}, fault)
    )


def replay_proved_steps_and_find_fault(
    before: UOp, after: UOp, steps: Sequence[RewriteStep], rules_by_name: Mapping[str, Rule]
) -> str | None:
    """Return the reason why the steps do not lead from `before` to `after` by proved rules; None if they do."""
    step_results: dict[UOp, UOp] = {}
    for s in steps:
        rule = rules_by_name.get(s.rule)
        if rule is None or not _is_rule_in_ledger_memoized(rule):
            return f"rule {s.rule} is not proved"
        result = rule.apply(s.before)
        if result is None or result[0] is not s.after:
            return f"a step is no instance of rule {s.rule}"
        step_results[s.before] = s.after
    replayed = apply_steps_to_fixpoint(before, step_results)
    return None if replayed is after else "the steps of the log give something else"


def select_used_steps(before: UOp, steps: Sequence[RewriteStep]) -> list[RewriteStep]:
    """Return the steps that are taken on the way from `before`."""
    steps_by_source = {s.before: s for s in steps}
    taken: set[UOp] = set()
    apply_steps_to_fixpoint(before, {s.before: s.after for s in steps}, taken)
    return [s for s in steps_by_source.values() if s.before in taken]


_PROVED_MEMO: dict[int, tuple[Rule, bool]] = {}  # rule id -> (rule, is proved): hashing a rule costs more


def _is_rule_in_ledger_memoized(rule: Rule) -> bool:
    memo = _PROVED_MEMO.get(id(rule))
    if memo is None or memo[0] is not rule:
        memo = _PROVED_MEMO[id(rule)] = rule, is_rule_in_ledger(rule)
    return memo[1]


def apply_steps_to_fixpoint(root: UOp, step_results: Mapping[UOp, UOp], applied_nodes: set[UOp] | None = None) -> UOp:
    """Apply steps until none fits, sources first; iterative.

    Nodes that steps were applied to are added to `applied_nodes`. Raises Crash for a cycle of steps.
    """
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
            replacement = done.get(v) or step_results.get(v)
            if replacement is not None and v not in done and applied_nodes is not None:
                applied_nodes.add(v)
            if replacement is None:
                done[v] = done[u] = v
            elif replacement in done:
                done[v] = done[u] = done[replacement]
            elif replacement in waiting:
                raise Crash("the steps of a log go round")
            else:
                waiting.add(replacement)
                stack.append(replacement)
    return done[root]


def validate_linearization(graph: UOp, linear: UOp) -> ValidationVerdict:
    """Decide that a list has each instruction of a graph once, after its sources, and each effect in its loops and Ifs.

    An If that the graph lacks may stand around Stores under its condition, and what they alone need. A list that is the graph
    itself may get the memory that it leaves out. Spec: R114 (If), R127 (loops of a node).
    """
    fault = _find_linearization_fault(graph, linear)
    return ValidationVerdict(
        ObligationKind.VALUE, "linearize", DecisionMethod.STRUCTURE, None if fault is None else ClaimCounterexample({}, fault)
    )


def _find_linearization_fault(graph: UOp, linear: UOp) -> str | None:
    """Return the reason why a list is no linearization of a graph; None if it is one."""
    at = {u: k for k, u in enumerate(linear.src)}
    if len(at) != len(linear.src):
        return "an instruction is listed twice"
    order = toposort(graph)
    nodes = set(order)
    if graph.op is Op.LINEAR:
        kept = tuple(u for u in linear.src if u.op not in MEMORY_ROOTS or u in graph.src)
        return None if kept == graph.src and nodes.issuperset(linear.src) else "the list is not the one given, with its memory"
    added = {u for u in linear.src if u.op is Op.IF and u not in nodes}
    if fault := next((f for u in added if (f := _find_added_branch_fault(u, linear.src, at))), None):
        return fault
    ended = nodes | added
    for u in linear.src:
        if u not in ended and not (u.op is Op.ENDIF and u.if_node in ended):
            return f"instruction {at[u]} is not in the graph"
        late = next((s for s in u.src if at.get(s, -1) > at[u]), None)
        if late is not None:
            return f"instruction {at[late]} is used by {at[u]}"
    missing = next((u for u in order if u.op in _EFFECTS and u not in at), None)
    if missing is not None:
        return f"a {missing.op.name} is not listed"
    return _find_block_fault(linear.src, order, added) or _find_operand_missing_from_list(linear.src, order)


def _find_operand_missing_from_list(instructions: Sequence[UOp], graph_nodes: Sequence[UOp]) -> str | None:
    """Return the reason why instructions are not listed that others use; None if all are. The sizes of Params need not be."""
    listed = set(instructions).union(toposort(*[u.extents for u in graph_nodes if u.op is Op.PARAM and u.src]))
    for k, u in enumerate(instructions):
        unlisted = next((s for s in u.src if s not in listed and not _needs_no_place(s)), None)
        if unlisted is not None:
            return f"a {unlisted.op.name} that instruction {k} uses is not listed"
    return None


def _needs_no_place(u: UOp) -> bool:
    """Return True for a node that instructions may use without its being listed: memory, and constants."""
    return u.op is Op.CONST or u.op in MEMORY_ROOTS or (u.op is Op.STACK and u.constants_of_stack is not None)


def _find_added_branch_fault(branch: UOp, instructions: Sequence[UOp], at: Mapping[UOp, int]) -> str | None:
    """Return the reason why an If changes what is executed; None if its block is executed for Stores under its condition alone."""
    end = next((k for k, u in enumerate(instructions) if u.op is Op.ENDIF and u.if_node is branch), None)
    if end is None:
        return f"instruction {at[branch]} has no end"
    if at.get(branch.condition, -1) > at[branch]:
        return f"instruction {at[branch.condition]} is used by {at[branch]}"
    block = set(instructions[at[branch] + 1 : end])
    for u in block:
        if u.op is Op.STORE and u.gate is not branch.condition:
            return f"instruction {at[u]} is stored under another condition"
        if u.op is not Op.STORE and (u.op in _EFFECTS or u.op not in _PURE):
            return f"instruction {at[u]} is not executed where the condition is false"
    skipped = {u for u in block if u.op is not Op.STORE}
    user = next((u for u in instructions if u not in block and not skipped.isdisjoint(u.src)), None)
    return None if user is None else f"instruction {at[user]} needs what is not computed where the condition is false"


def _find_block_fault(instructions: Sequence[UOp], order: Sequence[UOp], added_ifs: Collection[UOp]) -> str | None:
    """Return the reason why blocks do not nest, or why an instruction is not in the blocks of its graph; None if all is well.

    `order` has the nodes of the graph, and `added_ifs` the Ifs that the graph lacks.
    """
    loops_around, ifs_around = open_ranges(order), find_ifs_around(order)
    blocks: list[UOp] = []
    path: dict[UOp, tuple[UOp, ...]] = {}
    for k, u in enumerate(instructions):
        closed = u.ranges if u.op is Op.END else (u.if_node,) if u.op is Op.ENDIF else ()
        if {blocks.pop() for _ in closed if blocks} != set(closed):
            return f"instruction {k} closes {'loops' if u.op is Op.END else 'an If'} that are not the innermost ones"
        path[u] = tuple(blocks)
        left = next(
            (s for s in _list_nonvoid_sources_except_order_only(u) if s in path and path[s] != path[u][: len(path[s])]), None
        )
        if left is not None:
            return f"instruction {k} needs a {left.op.name} of a block that is closed"
        loops, ifs = ([b for b in blocks if b.op is op] for op in (Op.RANGE, Op.IF))
        if (
            u.op in _EFFECTS
            and u.op is not Op.RANGE
            and not (loops_around[u].issubset(loops) and loops_around[u].issuperset(loops[-1:]))
        ):
            return f"instruction {k} is not in the innermost of its loops"
        guards = ifs_around.get(u, frozenset())
        if not guards.issubset(ifs) or (u.op in _GUARDED and not guards.issuperset(set(ifs).difference(added_ifs))):
            return f"instruction {k} is not in the Ifs that guard it"
        if u.op in BLOCK_OPENERS:
            blocks.append(u)
    return None if not blocks else f"the {blocks[-1].op.name} of instruction {list(instructions).index(blocks[-1])} has no end"


def _list_nonvoid_sources_except_order_only(u: UOp) -> Sequence[UOp]:
    """Return the sources whose values an instruction needs; it only waits for the others."""
    if u.op is Op.AFTER:
        return (u.buffer,)
    return () if u.op in _WAITING else [s for s in u.src if s.dtype is not dt.void]


#: Pass -> the decision that it keeps the values.
_REPLAYED: dict[str, Callable[[UOp, UOp, Mapping[UOp, Sequence[GraphTransform]]], ValidationVerdict]] = {
    "decompose": decide_decompositions,
    "simplify": decide_simplify_by_proved_rules,
    "linearize": lambda graph, linear, moves: validate_linearization(graph, linear),
}
#: Instructions that compute a value and do nothing else.
_PURE = ALU | {Op.BITCAST, Op.INDEX, Op.STACK}
_EFFECTS = frozenset({Op.STORE, Op.ATOMICADD, Op.RANGE, Op.END, Op.BARRIER, Op.LOAD, Op.CUSTOM, Op.INS})
#: Instructions that an If around them must guard: executed less often, they change more than their own value.
_GUARDED = WRITES | OPAQUE_INSTRUCTIONS | COLLECTIVE
#: Instructions that have no value, and wait for their sources.
_WAITING = frozenset({Op.END, Op.ENDIF, Op.GROUP, Op.BARRIER})
