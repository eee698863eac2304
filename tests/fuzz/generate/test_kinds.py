"""The kinds of programs: each makes well-formed programs that the interpreter evaluates, with what it is there for."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.registry import create_backend
from uops.fuzz.bisect import coverage
from uops.fuzz.generate import kinds, programs
from uops.fuzz.generate.draw import CheckedReplayDraw, RecordingDraw, SeededDraw
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.generate.methods import chains
from uops.fuzz.generate.patterns import laws
from uops.fuzz.generate.strategies import samples
from uops.fuzz.oracles import launches, oracles
from uops.fuzz.oracles.subject import Subject
from uops.interp import run
from uops.interp.allowed import compute_allowed_sets
from uops.spec.errors import CompileError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.verify.dialects import MOVEMENT, Dialect
from uops.spec.verify.verifier import verify


def some(name: str, count: int = 60) -> list[ProgramSample]:
    return [kinds.sample(11, k, (name,)) for k in range(count)]


@pytest.mark.parametrize("name", KINDS)
def test_programs_are_well_formed_and_are_evaluated(name: str) -> None:
    for s in some(name, 40):
        assert s.kind == name
        verify(s.graph, KINDS[name].dialect)
        if KINDS[name].dialect is Dialect.TENSOR:
            compute_allowed_sets(s.graph, s.inputs)
        else:
            run(s.graph, s.inputs)


@pytest.mark.parametrize("name", KINDS)
def test_programs_take_every_input_that_they_have(name: str) -> None:
    for s in some(name, 40):
        assert s.inputs == kinds.select_graph_inputs(s.graph, s.inputs)
        if KINDS[name].dialect is not Dialect.BESTIARY:
            assert s.inputs.keys() <= collect_caller_input_nodes(s.graph).keys()


def test_left_sides_of_rules_have_dtypes_and_are_rewritten() -> None:
    assert all(laws.sample_typings_verifying_left_side(r) for r in laws.RULES)
    target = create_backend("llvm", tier="fast").target
    fired = {
        step.rule
        for s in some("rules", 12)
        for move in coverage.record_transforms_until_plan(s.graph, target)
        for step in move.steps
    }
    assert len(fired & {r.name for r in laws.RULES}) >= 25


@pytest.mark.parametrize("name", KINDS)
def test_recorded_choices_make_the_same_program(name: str) -> None:
    for seed in range(10):
        recorded = RecordingDraw(SeededDraw(seed))
        first = kinds.generate_sample_of_supported_cells_else_first(KINDS[name], recorded)
        again = kinds.generate_sample_of_supported_cells_else_first(KINDS[name], CheckedReplayDraw(recorded.choices))
        assert again.graph is first.graph
        assert all(np.array_equal(_bits(v), _bits(again.inputs[k])) for k, v in first.inputs.items())
        with pytest.raises(ValueError, match=", got None: record the choices again"):
            kinds.generate_sample_of_supported_cells_else_first(KINDS[name], CheckedReplayDraw(recorded.choices[:-1]))


def _bits(a: Any) -> Any:
    return np.frombuffer(np.asarray(a).tobytes(), np.uint8)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(KINDS)).flatmap(samples))
def test_hypothesis_draws_every_kind(s: ProgramSample) -> None:
    verify(s.graph, KINDS[s.kind].dialect)
    run(s.graph, s.inputs)


def ops(name: str) -> Counter[Op]:
    return Counter(op for s in some(name, 100) for op in {u.op for u in toposort(s.graph)})


def test_statements_write_memory_again_after_it_was_read() -> None:
    graphs = [toposort(s.graph) for s in some("programs", 400)]
    assert sum(any(u.op is Op.STORE and _stored_before(u) for u in g) for g in graphs) > 160
    assert sum(any(u.op is Op.AFTER for u in g) for g in graphs) > 350  # of 92 %, which deviate by 5


def test_statements_read_and_write_memory_as_of_another_dtype() -> None:
    graphs = [toposort(s.graph) for s in some("programs", 400)]
    for op in (Op.STORE, Op.LOAD):
        assert sum(any(u.op is op and _is_recast(u.src[0]) for u in g) for g in graphs) > 8, op


def _is_recast(reference: UOp) -> bool:
    return any(u.op is Op.BITCAST for u in toposort(reference, gate=lambda u: u.op in MOVEMENT))


def _stored_before(store: UOp) -> bool:
    return any(u.op is Op.STORE for u in toposort(store.src[0]))


def test_no_statement_shares_a_view_of_memory() -> None:
    """A view would be read where it is used, beside the Stores of later statements (R55)."""
    for seed in range(300):
        p = programs.ProgramMaker(SeededDraw(seed), 16)
        memories = [x.current for x in p.memories]
        for _ in range(4):
            p.add_store()
        for value in (*p.values, *(v for found in p.maker.values_by_type.values() for v in found)):
            while value.op in MOVEMENT or value.op is Op.AFTER:
                value = value.src[0]
            assert value not in memories


def test_extents_are_variables() -> None:
    symbolic = [s for s in some("symbolic", 60) if any(isinstance(n, UOp) for u in toposort(s.graph) for n in u.shape)]
    assert len(symbolic) > 55
    assert {Op.REDUCE, Op.PAD, Op.SHRINK, Op.EXPAND, Op.FLIP, Op.PERMUTE, Op.RESHAPE, Op.CAST, Op.WHERE} <= ops("symbolic").keys()
    assert sum(any(s.inputs.get(n) == 0 for n in "nm") for s in symbolic) > 5, "loops that do not run"
    casts = [u for s in some("symbolic", 600) for u in toposort(s.graph) if u.op is Op.BITCAST]
    sizes = [u.dtype.itemsize - u.src[0].dtype.itemsize for u in casts if any(isinstance(n, UOp) for n in u.shape[-1:])]
    assert min(sum(k < 0 for k in sizes), sum(k > 0 for k in sizes), sizes.count(0)) > 3, "axes of more and of fewer elements"


def test_chains_reduce_what_was_reduced() -> None:
    """Rows to a row, and that again, on more than whole vectors."""
    found = some("chains", 200)
    depth = [_reduces_below(s.graph) for s in found]
    assert sum(d >= 2 for d in depth) > 80
    wide = sum(any(isinstance(n, int) and n >= 64 for u in toposort(s.graph) for n in u.shape) for s in found)
    assert wide > 100
    assert {u.dtype for s in found for u in toposort(s.graph) if u.op is Op.PARAM} == set(dt.STORABLE)
    assert {Op.REDUCE, Op.INDEX, Op.WHERE, Op.STACK, Op.PAD, Op.SHRINK, Op.FLIP, Op.PERMUTE, Op.EXPAND} <= ops("chains").keys()


def _reduces_below(root: UOp) -> int:
    depth: dict[UOp, int] = {}
    for u in toposort(root):
        depth[u] = (u.op is Op.REDUCE) + max((depth[x] for x in u.src), default=0)
    return depth[root]


def test_every_step_of_a_chain_is_taken_and_makes_no_large_value() -> None:
    for step in chains.STEPS:
        for seed in range(20):
            c = chains.Chain(SeededDraw(seed), 600)
            t = c.make_data(dt.int32, c.draw_shape())
            made = step.make(c, t)
            assert all(math.prod(u.shape) <= 4 * chains.WINDOWS for u in toposort(made.uop)), step.name


def test_variables_have_integer_dtypes() -> None:
    names = ("tensor", "ops", "symbolic", "programs")
    found = {u.dtype for n in names for s in some(n, 150) for u in toposort(s.graph) if u.op is Op.PARAM and u.arg.name is not None}
    assert found == {dt.index, *dt.INTS}


def test_bodies_are_called() -> None:
    found = ops("bodies")
    assert found[Op.FUNCTION] > 20
    assert found[Op.CALL] > 20


def test_kernels_have_workgroups_local_memory_and_barriers() -> None:
    found = ops("kernels")
    assert found[Op.BARRIER] > 20
    types = {u.arg.type for s in some("kernels", 60) for u in toposort(s.graph) if u.op is Op.RANGE}
    assert {AxisType.GLOBAL, AxisType.LOCAL, AxisType.THREAD, AxisType.LOOP} <= types
    assert {AxisType.UPCAST, AxisType.UNROLL, AxisType.REDUCE} <= types
    spaces = {u.arg.addrspace for s in some("kernels", 60) for u in toposort(s.graph) if u.op is Op.BUFFER}
    assert spaces == {AddrSpace.GLOBAL, AddrSpace.LOCAL}


def test_kernels_have_every_number_and_what_is_exact_of_it() -> None:
    """Sums of small floats would be rounded, and in another order otherwise."""
    found: dict[dt.DType, set[Op]] = {}
    for s in some("kernels", 300):
        for u in toposort(s.graph):
            if u.op is Op.REDUCE or u.op in ALU:
                found.setdefault(u.dtype, set()).add(u.arg.op if u.op is Op.REDUCE else u.op)
    assert {*dt.INTS, *dt.FLOATS} <= found.keys()
    for d in (dt.float16, dt.bfloat16, dt.fp8e4m3, dt.fp8e5m2):
        assert found[d] <= {Op.MAX, Op.WHERE}
    assert found[dt.float32] | found[dt.float64] == {Op.ADD, Op.SUB, Op.MAX, Op.WHERE}
    assert {Op.ADD, Op.MUL, Op.IDIV, Op.MOD, Op.XOR, Op.SHL, Op.SHR, Op.CAST} <= set().union(*[found[d] for d in dt.INTS])


def test_effects_of_kernels_stand_beside_loops_of_lanes() -> None:
    """What a launch of work-items must not do once per lane."""
    beside = sum(
        any(e.op is Op.STORE for e in u.src) and any(e.op is Op.END and e.src[1].arg.type is AxisType.LOCAL for e in u.src)
        for s in some("kernels", 200)
        for u in toposort(s.graph)
        if u.op is Op.GROUP
    )
    assert beside > 10


def test_kernels_give_the_same_in_every_order() -> None:
    for k, s in enumerate(some("kernels", 30)):
        assert launches.check_same_memory_in_orders_and_machines(s.graph, s.inputs, k) is None


def test_a_race_of_a_kernel_is_seen() -> None:
    """Without its Barriers, a kernel whose lanes exchange values has none of the order that it needs."""
    found = [s for s in some("kernels", 60) if any(u.op is Op.BARRIER for u in toposort(s.graph))]
    racing = 0
    for k, s in enumerate(found[:15]):
        try:
            racing += launches.check_same_memory_in_orders_and_machines(_without_barriers(s.graph), s.inputs, k) is not None
        except Trap:
            racing += 1
    assert racing > 5


def _without_barriers(root: UOp) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple(done[x] for x in u.src)
        done[u] = src[0] if u.op is Op.BARRIER else u.replace(src=src)
    return done[root]


def test_any_error_of_a_launch_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target takes every launch, Barriers included, so none is refused."""
    subject = Subject("llvm")
    monkeypatch.setattr(subject, "target", SimpleNamespace(ops=set(Op)))
    context = oracles.OracleContext(kinds.sample(0, 0, ("kernels",)), subject)

    def refuse(*arguments: Any) -> None:
        raise CompileError("R60 (Barrier): the lanes of axes [1] are a loop here")

    monkeypatch.setattr(launches, "check_launch_native_against_interpreter", refuse)
    found = oracles.find_first_objection(context, oracles.select_oracles_in_table_order(["kernels"]))
    assert found is not None and found[1].kind == "compileerror"
