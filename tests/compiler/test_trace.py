"""A trace records what became of each node, with the rules and passes that did it, claims no more than they told, and is free when
nobody records."""

from __future__ import annotations

import sys
import threading
from copy import copy
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from uops.compiler import Config, lower
from uops.compiler.log import LoweringLog, active_log, log_decisions, log_transform, record_transforms
from uops.compiler.passes.expand import expand
from uops.compiler.passes.linearize import linearize
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.select.select import select
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.target import MachineModel, Target
from uops.compiler.trace import LoweringTrace, NodeLink, trace_lowering
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse_file

VERIFY = Config(verify=True)
X, Y, Z = (b.param(k, (6,), dt.float32) for k in range(3))
EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "programs").glob("*.uops"))
PROGRAMS = [p for p in EXAMPLES if not p.stem.startswith("collective")]
#: Vectors and threads, so that schedules have OptOps and expand has work.
MACHINE = MachineModel(vector_bytes=32, registers=16, caches=(32768, 1 << 20), fma=True, masks=True)


def follow(found: LoweringTrace, u: UOp, stage: str, *, direct: bool = True) -> set[UOp]:
    """What `u` of the input became by `stage`."""
    reached = {u}
    for name in list(found.stages)[1:]:
        links = [x for entry in found.links_into(name) for x in entry.links]
        reached = {x.target for x in links if x.source in reached and not (direct and x.is_indirect)}
        if name == stage:
            break
    return reached


def links_of(found: LoweringTrace, stage: str) -> list[NodeLink]:
    return [x for entry in found.links_into(stage) for x in entry.links]


def test_no_links_lead_into_the_first_stage(pyref: Target) -> None:
    found = trace_lowering(b.add(X, 1), pyref, VERIFY)
    assert not links_of(found, next(iter(found.stages)))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_every_node_of_a_stage_comes_from_a_node_of_the_stage_before(pyref: Target, program: Path) -> None:
    found = trace_lowering(parse_file(program), pyref, VERIFY)
    for stage in list(found.stages)[1:]:
        for entry in found.links_into(stage):
            assert not entry.has_gap
            linked = {x.target for x in entry.links}
            assert linked == set(found.parts_of_stage(stage)[entry.target].nodes())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_a_link_joins_nodes_of_neighbouring_stages_once(pyref: Target, program: Path) -> None:
    found = trace_lowering(parse_file(program), pyref)
    names = list(found.stages)
    for before, stage in pairwise(names):
        for entry in found.links_into(stage):
            sources = set(found.parts_of_stage(before)[entry.source].nodes())
            pairs = [(x.source, x.target) for x in entry.links]
            assert len(set(pairs)) == len(pairs)
            assert all(source in sources for source, _ in pairs)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_steps_of_a_trace_can_be_replayed(pyref: Target, program: Path) -> None:
    found = trace_lowering(parse_file(program), pyref)
    rules = found.rules()
    for s in found.steps():
        again = rules[s.rule].apply(s.before)
        assert again is not None and again[0] is s.after


def test_recording_changes_no_result(pyref: Target) -> None:
    graph = b.reduce(b.mul(X, b.add(Y, 1.0)), Op.ADD, (0,))
    assert trace_lowering(graph, pyref).stages["render"] is lower(graph, pyref)


def test_two_values_are_told_apart_to_the_end(pyref: Target) -> None:
    left, right = b.mul(X, Y), b.mul(Y, Z)
    found = trace_lowering(b.add(left, right), pyref)
    (a,), (c,) = ({v for v in follow(found, u, "linearize") if v.op is Op.MUL} for u in (left, right))
    assert a is not c
    assert follow(found, b.add(left, right), "linearize") & {a, c} == set()


def test_a_rule_that_fired_is_named_with_its_node_before_and_after(pyref: Target) -> None:
    product = b.mul(b.cast(X, dt.int32), 1)
    found = trace_lowering(product, pyref)
    mine = [x for x in links_of(found, "rangeify") if x.source.op is Op.MUL and not x.is_indirect]
    assert [x.target.op for x in mine] == [Op.CAST]
    (step,) = (c.step for c in mine[0].causes if c.step is not None)
    assert (step.rule, step.before.op, step.after.op) == ("mul-one", Op.MUL, Op.CAST)


def test_what_is_decomposed_becomes_its_value_and_makes_the_rest(pyref: Target) -> None:
    found = trace_lowering(b.exp2(X), pyref)
    (kernel,) = found.parts_of_stage("expand")
    exp = next(u for u in kernel.nodes() if u.op is Op.EXP2)
    mine = [x for x in links_of(found, "select") if x.source is exp]
    assert len([x for x in mine if not x.is_indirect]) == 1
    assert len([x for x in mine if x.is_indirect]) > 10
    assert {"decompose"} <= {c.by for x in mine for c in x.causes}


def test_a_reduction_becomes_the_load_of_its_accumulator(pyref: Target) -> None:
    found = trace_lowering(b.reduce(X, Op.ADD, (0,)), pyref)
    (kernel,) = found.parts_of_stage("expand")
    reduction = next(u for u in kernel.nodes() if u.op is Op.REDUCE)
    mine = [x for x in links_of(found, "select") if x.source is reduction]
    assert [x.target.op for x in mine if not x.is_indirect] == [Op.LOAD]
    assert {Op.BUFFER, Op.STORE, Op.ADD} <= {x.target.op for x in mine if x.is_indirect}


def test_an_intermediate_buffer_leads_from_its_value_to_its_place_in_the_arena(pyref: Target) -> None:
    value = b.contiguous(b.add(X, Y))
    found = trace_lowering(b.mul(value, Z), pyref)
    assert {u.op for u in follow(found, value, "plan", direct=False)} >= {Op.SLICE}


def test_where_no_pass_told_only_shared_nodes_are_linked() -> None:
    before, after = b.sink(b.add(X, Y)), b.sink(b.mul(X, Z))
    (entry,) = LoweringTrace({"before": before, "after": after}, LoweringLog()).links_into("after")
    assert entry.has_gap
    assert {(x.source, x.target) for x in entry.links} == {(u, u) for u in set(toposort(before)) & set(toposort(after))}


def test_a_note_links_what_it_names_and_rebuilds_the_rest() -> None:
    before = b.sink(b.neg(b.add(X, Y)))
    after = b.sink(b.neg(b.mul(X, Z)))
    with record_transforms() as log:
        log_transform("swap", before, after, {b.add(X, Y): b.mul(X, Z)})
    (entry,) = LoweringTrace({"before": before, "after": after}, log).links_into("after")
    arrows = {(x.source, x.target): x for x in entry.links}
    assert not arrows[b.add(X, Y), b.mul(X, Z)].is_indirect
    assert not arrows[b.neg(b.add(X, Y)), b.neg(b.mul(X, Z))].is_indirect and not arrows[before, after].is_indirect
    assert [x.is_indirect for x in entry.links if x.target is Z] == [True]
    assert {c.by for x in entry.links for c in x.causes} == {"swap"}


def test_schedules_are_followed_and_their_decisions_named(pyref: Target) -> None:
    graph = b.reduce(b.mul(b.param(0, (16, 32), dt.float32), b.param(1, (32,), dt.float32)), Op.ADD, (1,))
    split = lower(graph, pyref, upto="rangeify")
    with record_transforms() as log:
        scheduled = optimize(split, MACHINE)
        expanded = expand(scheduled)
    found = LoweringTrace({"rangeify": split, "optimize": scheduled, "expand": expanded}, log)
    (entry,) = found.links_into("optimize")
    assert not entry.has_gap and entry.decisions and all(d.startswith("Split") for d in entry.decisions)
    ranges = {x.source for x in entry.links if x.target.op is Op.RANGE}
    assert any(u.op is Op.RANGE for u in ranges)
    (entry,) = found.links_into("expand")
    assert not entry.has_gap and {x.target for x in entry.links} == set(found.parts_of_stage("expand")[0].nodes())


def test_a_loop_that_is_clamped_is_followed(pyref: Target) -> None:
    """Rows that the tile of a product does not divide."""
    x, y = b.param(0, (65, 64, 1), dt.float32), b.param(1, (1, 64, 64), dt.float32)
    split = lower(b.reduce(b.mul(x, y), Op.ADD, (1,)), pyref, upto="rangeify")
    with record_transforms() as log:
        scheduled = optimize(split, MACHINE)
    found = LoweringTrace({"rangeify": split, "optimize": scheduled}, log)
    (entry,) = found.links_into("optimize")
    assert any(d.startswith("clamp") for d in entry.decisions)
    assert not entry.has_gap and {x.target for x in entry.links} == set(found.parts_of_stage("optimize")[0].nodes())


def test_decisions_that_led_elsewhere_are_left_out() -> None:
    before, after, other = (b.sink(b.neg(u)) for u in (X, Y, Z))
    with record_transforms() as log:
        log_transform("taken", before, after, {X: Y})
        log_transform("tried", before, other, {X: Z})
        log_decisions(("this",), before, after)
        log_decisions(("that",), before, other)
    (entry,) = LoweringTrace({"before": before, "after": after}, log).links_into("after")
    assert entry.decisions == ("this",)


def test_selected_vectors_are_followed(pyref: Target) -> None:
    graph = b.add(b.param(0, (64,), dt.float32), b.param(1, (64,), dt.float32))
    scheduled = optimize(lower(graph, pyref, upto="rangeify"), MACHINE)
    expanded = expand(scheduled)
    with record_transforms() as log:
        selected = select(expanded, pyref)
        listed = linearize(selected)
    found = LoweringTrace({"expand": expanded, "select": selected, "linearize": listed}, log)
    for stage in ("select", "linearize"):
        (entry,) = found.links_into(stage)
        assert not entry.has_gap and {x.target for x in entry.links} == set(found.parts_of_stage(stage)[0].nodes())


def test_kernels_of_the_same_form_are_kept_apart(pyref: Target) -> None:
    first, second = (b.contiguous(b.neg(b.mul(u, u))) for u in (X, Y))
    found = trace_lowering(b.tuple_(b.flip(first, [True]), b.flip(second, [True])), pyref)
    called = next(found.links_into("callify"))
    for root, other in ((first, second), (second, first)):
        (mine,) = {x.target for x in called.links if x.source is root.src[0] and not x.is_indirect}
        (theirs,) = {x.target for x in called.links if x.source is other.src[0] and not x.is_indirect}
        kernels = [e for e in found.links_into("rangeify") if any(x.source is mine and not x.is_indirect for x in e.links)]
        assert kernels and not any(
            x.source is theirs and not x.is_indirect for e in kernels for x in e.links if x.target.op is Op.NEG
        )


def test_every_kernel_of_a_chain_is_followed_into_the_joined_one(pyref: Target) -> None:
    """Attention: scores, softmax and values, two of which leave LOCAL memory, are three kernels and then one."""
    q, k, v = (b.param(n, (2, 64, 4), dt.float32) for n in range(3))
    scores = products(q, b.permute(k, (0, 2, 1)))
    high = b.expand(b.reshape(b.reduce(scores, Op.MAX, (2,)), (2, 64, 1)), (2, 64, 64))
    power = b.exp2(b.sub(scores, high))
    whole = b.expand(b.reshape(b.reduce(power, Op.ADD, (2,)), (2, 64, 1)), (2, 64, 64))
    found = trace_lowering(products(b.div(power, whole), v), joining(pyref), VERIFY)
    before, (part,) = found.parts_of_stage("rangeify"), found.parts_of_stage("optimize")
    entries = list(found.links_into("optimize"))
    assert [(e.source, e.target, e.has_gap) for e in entries] == [(j, 0, False) for j in range(len(before))] and len(before) > 1
    assert {x.target for e in entries for x in e.links} == set(part.nodes())
    own = [{x.target for x in e.links if not x.is_indirect} for e in entries]
    computed = [{u for u in nodes if u.op in (Op.REDUCE, Op.EXP2, Op.STORE)} for nodes in own]
    assert all(computed) and not any(x & y for x, y in combinations(computed, 2))
    assert {c.by for x in entries[0].links for c in x.causes} >= {"join", "parts", "replace ranges"}
    assert entries[0].decisions and len({e.decisions for e in entries}) == 1
    for stage in list(found.stages)[1:]:
        linked = {x.target for e in found.links_into(stage) for x in e.links}
        assert linked == {u for p in found.parts_of_stage(stage) for u in p.nodes()}, stage


def products(x: UOp, y: UOp) -> UOp:
    """(h, n, k) times (h, k, m)."""
    (h, n, k), m = x.shape, y.shape[2]
    terms = b.mul(b.reshape(x, (h, n, k, 1)), b.reshape(y, (h, 1, k, m)))
    return b.reshape(b.reduce(terms, Op.ADD, (2,)), (h, n, m))


def joining(target: Target) -> Target:
    """The target as a machine whose second cache holds few rows."""
    found = copy(target)
    found.machine = replace(MachineModel(vector_bytes=16, registers=16, fma=True), caches=(1 << 10, 40 << 10))  # type: ignore[attr-defined]
    return found


def test_kernels_keep_their_names_when_they_are_lists(pyref: Target) -> None:
    found = trace_lowering(b.tuple_(b.contiguous(b.neg(X)), b.reduce(Y, Op.ADD, (0,))), pyref)
    names = [p.name for p in found.parts_of_stage("rangeify")]
    assert len(set(names)) == len(names) and [p.name for p in found.parts_of_stage("plan")] == names
    assert [p.name for p in found.parts_of_stage("tensor")] == ["program"]
    assert all(p.code for p in found.parts_of_stage("render"))


def test_nothing_is_recorded_unless_asked_for() -> None:
    graph = b.mul(X, 1.0)
    rewriter = Rewriter(VALUES)
    rewriter(graph)
    assert active_log() is None and rewriter.log is None
    log_transform("nobody", graph, X)  # and nothing listens
    with record_transforms() as log:
        assert active_log() is log
        Rewriter(VALUES)(graph)
        assert len(log.transforms) == 1
    assert active_log() is None


def test_a_recording_hears_only_its_own_thread() -> None:
    heard: list[LoweringLog | None] = []
    with record_transforms():
        thread = threading.Thread(target=lambda: heard.append(active_log()))
        thread.start()
        thread.join()
    assert heard == [None]


def test_the_work_for_links_grows_with_the_nodes_and_not_with_nodes_times_kernels(pyref: Target) -> None:
    """Counted in calls of functions, which a busy machine does not change."""

    def calls(kernels: int) -> int:
        x = b.param(0, (4,), dt.float32)
        y = x
        for k in range(kernels):
            y = b.contiguous(b.add(b.flip(y, [True]), b.mul(x, float(k))))
        found, seen = trace_lowering(y, pyref), 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event == "call"

        sys.setprofile(count)
        try:
            links = sum(len(e.links) for stage in list(found.stages)[1:] for e in found.links_into(stage))
        finally:
            sys.setprofile(None)
        assert links > 50 * kernels
        return seen

    assert calls(48) < 6 * calls(12)


def test_passes_over_a_launch_and_what_they_tell_grow_with_its_kernels(pyref: Target) -> None:
    """Counted in lines of Python in the passes that see all kernels at once: 8 times the kernels, fewer than 12 times the lines."""
    files = tuple(
        str(Path("passes") / name) for name in ("rangeify/rangeify.py", "optimize/heuristics/block_fusion.py", "memory_plan.py")
    )

    def executed(kernels: int) -> int:
        x = y = b.param(0, (4, 4), dt.float32)
        for _ in range(kernels):
            x = b.contiguous(b.sqrt(b.add(x, y)))
        seen = 0

        def count(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal seen
            seen += event == "line"
            return count if frame.f_code.co_filename.endswith(files) else None

        before = sys.gettrace()
        sys.settrace(count)
        try:
            trace_lowering(x, pyref)
        finally:
            sys.settrace(before)
        return seen

    assert executed(96) < 12 * executed(12)
