"""The values of a certified program, step by step from the tensor graph to the instructions.

Takes: the texts of a certificate as graphs, and its hints. Gives: the steps that do not keep the values, or are not decided.

Hints say in which Buffer a value is held, and what a large Reduce was split into. They choose what is compared, and a wrong one
proves nothing, but for the Buffers of the values themselves: these are part of the claim. A node of a graph is named by its
position among all nodes, sources first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from uops.compiler.log import CallifiedGraph, GraphTransform, LoweringLog
from uops.compiler.passes.select.select import decompose_node
from uops.compiler.validate.arrays.callified import decide_values_of_callified_program
from uops.compiler.validate.arrays.definitions import decide_values_of_split_kernels
from uops.compiler.validate.model import DecisionMethod, ObligationKind, ValidationVerdict
from uops.compiler.validate.values import decide_equal_terms, decide_scheduled_terms
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import escape_to_one_line

#: Hints of a certificate. Nodes are named by their positions, and Buffers by their ids.
#:
#: - `values`: the Buffer of each value of the tensor graph, in order.
#: - `held`: pairs of a node of the text `parts`, and the Buffer that holds it.
#: - `split`: pairs of a node of the text `callify`, and its replacement in `parts`.
ValueHints = Mapping[str, Any]
#: The schema of hints in a file.
HINTS_FORM = {"values": [int], "held": [(int, int)], "split": [(int, int)]}


def list_value_hints(log: LoweringLog, graphs: Mapping[str, UOp]) -> ValueHints:
    """Return the hints of a lowering, by its log and the graphs of the texts."""
    callify, parts = graphs["callify"], graphs["parts"]
    passed = {a for call in graphs["join"].src for a in call.arguments}
    realise = _find_split(log)
    reduce_parts = next((m for m in log.transforms if m.pass_name == "parts" and m.before is callify.body), None)
    held = {} if realise is None else realise.replacements
    part_by_reduce = {} if reduce_parts is None else reduce_parts.replacements
    in_callify, in_parts = (_number_nodes(g) for g in (callify, parts))
    return {
        "values": [] if log.callified is None else [b.arg.unique for b in log.callified.buffers],
        "held": [
            [in_parts[u], b.arg.unique]
            for u, b in held.items()
            if isinstance(b, UOp) and b.op is Op.BUFFER and b in passed and u in in_parts and u.op is not Op.STORE
        ],
        "split": [
            [in_callify[u], in_parts[new]]
            for u, new in part_by_reduce.items()
            if isinstance(new, UOp) and u in in_callify and new in in_parts and u is not new
        ],
    }


def find_program_before_split(log: LoweringLog, callify: UOp) -> UOp:
    """Return the callified program from which kernels were split: with large Reduces in parts."""
    realise = _find_split(log)
    return callify if realise is None else realise.before


def _find_split(log: LoweringLog) -> GraphTransform | None:
    """Return the transform that split a program into kernels, if there was one."""
    return next((m for m in log.transforms if m.pass_name == "realise"), None)


def _number_nodes(graph: UOp) -> dict[UOp, int]:
    return {u: k for k, u in enumerate(toposort(graph))}


class ValueFindings(NamedTuple):
    """The steps that do not keep the values, and those that are not decided, each as a line."""

    refuted: tuple[str, ...]
    undecided: tuple[str, ...]


def check_values(graphs: Mapping[str, UOp], hints: ValueHints) -> ValueFindings:
    """Decide for each step, from `tensor` to `decompose`, that it keeps the values. Raises LookupError for hints of no node, and
    ValueError for texts with different numbers of kernels."""
    refuted: dict[str, None] = {}
    undecided: dict[str, None] = {}
    for place, verdict in _decide_steps(graphs, hints):
        if verdict.counterexample is not None:
            refuted[f"the values of {place}: {verdict.counterexample.words}"] = None
        elif verdict.by is None or verdict.by is DecisionMethod.INTERPRETER:
            undecided[f"the values of {place}: {escape_to_one_line(verdict.why)}"] = None
    return ValueFindings(tuple(refuted), tuple(undecided))


def _decide_steps(graphs: Mapping[str, UOp], hints: ValueHints) -> Iterator[tuple[str, ValidationVerdict]]:
    callify, parts = graphs["callify"], graphs["parts"]
    buffer_by_id = {u.arg.unique: u for g in (callify, graphs["join"]) for u in toposort(g) if u.op is Op.BUFFER}
    buffers = tuple(buffer_by_id[n] for n in hints["values"])
    callified = CallifiedGraph(graphs["tensor"], callify, buffers)
    yield "the callified program", decide_values_of_callified_program(callified, decide_equal_terms)
    log = _build_log(callify, parts, buffer_by_id, hints)
    verdicts = decide_values_of_split_kernels(callify, graphs["join"], log, lambda a, b: decide_equal_terms(a, b, with_laws=False))
    yield from ((f"kernel {k} up to its body", verdict) for k, verdict in enumerate(verdicts))
    for k, calls in enumerate(zip(graphs["join"].src, graphs["widths"].src, graphs["decompose"].src, strict=True)):
        body, scheduled, primitive = (call.body for call in calls)
        if body is not scheduled:
            yield f"kernel {k} from its body to its schedule", decide_scheduled_terms(body, scheduled)
        if not is_decomposition(scheduled, primitive):
            why = "a node is replaced by something else than its decomposition"
            unknown = ValidationVerdict(ObligationKind.VALUE, "decompose", None, why=why)
            yield f"kernel {k} from its schedule to primitive ops", unknown


def _build_log(callify: UOp, parts: UOp, buffer_by_id: Mapping[int, UOp], hints: ValueHints) -> LoweringLog:
    """Return the log that the hints stand for."""
    in_callify, in_parts = toposort(callify), toposort(parts)
    if any(k < 0 for pair in (*hints["held"], *hints["split"]) for k in pair):
        raise LookupError("a hint names a node by a negative position")
    held = {in_parts[k]: buffer_by_id[n] for k, n in hints["held"]}
    log = LoweringLog()
    if parts is not callify:
        replaced = {in_callify[k]: in_parts[j] for k, j in hints["split"]}
        log.transforms.append(GraphTransform("parts", callify.body, parts.body, replaced))
    log.transforms.append(GraphTransform("realise", parts, parts, held))
    return log


def is_decomposition(before: UOp, after: UOp) -> bool:
    """Return True if each node of `before` is kept on its new sources, or replaced by its decomposition, and that gives `after`."""
    kept = set(toposort(after))
    done: dict[UOp, UOp] = {}
    for u in toposort(before):
        src = tuple([done[s] for s in u.src])
        same = u if src == u.src else u.replace(src=src)
        done[u] = same if same in kept else decompose_node(u, src)
    return done[before] is after
