"""Each claim of a stage of the pipeline, on the graphs that the stage takes and gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops.compiler import PIPELINE, STAGES, Config, stages
from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.expand import expand
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.select.select import select
from uops.compiler.target import MachineModel, Target
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import GRID, OUTPUT_LOOPS, SEQUENTIAL, UNROLLED
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, scope_nodes
from uops.spec.rows.rows import NAMED_ROWS
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

F32 = dt.float32
#: A machine with all that parallelizes: vectors, cores and workgroups.
PARALLEL = MachineModel(vector_bytes=16, cores=4)


def matmul(x: UOp, y: UOp) -> UOp:
    (m, k), n = x.shape, y.shape[1]
    return b.sum_and_drop_axis(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), 1)


def chain() -> UOp:
    """Four products, one after the other, and a function of the last, through a Function."""
    x = b.param(0, (6, 6), F32)
    for slot in range(1, 5):
        x = matmul(x, b.param(slot, (6, 6), F32))
    p = b.param(0, (6, 6), F32)
    return b.get(b.function(b.tuple_(b.where(b.lt(p, 3.0), b.mul(p, p), b.neg(p))), x), 0)


GRAPH = chain()
INPUTS = {f"p{k}": (np.arange(36, dtype=np.float32).reshape(6, 6) * (k + 2) + k) % 5 - 2 for k in range(5)}
#: The Buffer that holds the result.
OUTPUT = f"b{outputs(GRAPH)[0].buffer.arg.unique}"


def around(stage: str, target: Target) -> tuple[UOp, UOp]:
    """The graphs that a stage takes and gives."""
    graphs = list(stages(GRAPH, target, Config(reuse=False)).items())
    k = next(k for k, (name, _) in enumerate(graphs) if name == stage)
    return graphs[k - 1][1], graphs[k][1]


def after(stage: str, target: Target) -> UOp:
    return around(stage, target)[1]


def bodies(launch: UOp) -> Iterator[tuple[UOp, list[UOp]]]:
    """The bodies of a launch's kernels, each with its nodes."""
    for call in launch.src:
        yield call.body, scope_nodes(call.body)


# ------------------------------------------------------------------------------------------------------- for every stage


def _takes_and_gives_its_dialects(stage: str, target: Target) -> None:
    row = NAMED_ROWS[f"Stage/{stage}"]
    takes, gives = Dialect(row.columns["takes"]), Dialect(row.columns["gives"])
    passes = [p for p in PIPELINE if p.stage == stage]
    assert (passes[0].takes, passes[-1].gives) == (takes, gives)
    assert takes.name in row.claims[0].text and gives.name in row.claims[0].text
    given, made = around(stage, target)
    verify(given, takes, target=target)
    verify(made, gives, target=target)


def _computes_the_same(stage: str, target: Target) -> None:
    expected = run(GRAPH, INPUTS).values[0].reshape(-1)
    for graph in around(stage, target):
        result = run(graph, INPUTS)
        got = result.values[0] if graph is GRAPH else result.buffers[OUTPUT]
        assert np.array_equal(got.reshape(-1), expected)


# -------------------------------------------------------------------------------------------------------- for one of them


def _memory_enters_by_arguments(stage: str, target: Target) -> None:
    call = after(stage, target)
    body = scope_nodes(call.body)
    assert Op.BUFFER not in {u.op for u in body} and Op.BUFFER in {a.op for a in call.arguments}
    assert {u.arg.slot for u in body if u.op is Op.PARAM} == set(range(len(call.arguments)))


def _values_have_shape_nothing(stage: str, target: Target) -> None:
    given, made = around(stage, target)
    assert any(u.shape for u in toposort(given) if u.op in ALU)
    values = [u for _, nodes in bodies(made) for u in nodes if u.op in ALU | {Op.LOAD, Op.REDUCE, Op.CONST, Op.RANGE}]
    assert values and all(u.shape == () for u in values)


def _parallel_iterations_never_meet(stage: str, target: Target) -> None:
    """Any order of unordered loops gives the result; loops whose Stores may meet in an element stay sequential."""
    size = (64, 512)
    free = b.add(b.param(0, size, F32), b.param(1, size, F32))
    launch = optimize(rangeify(callify(free)), PARALLEL)
    assert {u.arg.type for u in toposort(launch) if u.op is Op.RANGE} & (GRID | UNROLLED) - OUTPUT_LOOPS
    given = {f"p{k}": np.arange(size[0] * size[1], dtype=np.float32).reshape(size) for k in range(2)}
    (out,) = outputs(free)
    for seed in (None, 0):
        found = run(launch, given, schedule=seed).buffers[f"b{out.buffer.arg.unique}"]
        assert np.array_equal(found.reshape(size), given["p0"] * 2)
    meeting = b.store(b.at(b.buffer(512, dt.int32, unique=1), b.param(1, (512,), dt.int32)), b.param(0, (512,), dt.int32))
    launch = optimize(rangeify(callify(b.sink(meeting))), PARALLEL)
    assert {u.arg.type for u in toposort(launch) if u.op is Op.RANGE} <= SEQUENTIAL


def _leaves_no_vector_loop(stage: str, target: Target) -> None:
    scheduled = optimize(rangeify(callify(b.add(b.param(0, (64,), F32), 1.0))), PARALLEL)
    assert any(u.arg.type in UNROLLED for u in toposort(scheduled) if u.op is Op.RANGE)
    assert not any(u.arg.type in UNROLLED for u in toposort(expand(scheduled)) if u.op is Op.RANGE)


def _leaves_ops_of_the_target(stage: str, target: Target) -> None:
    graph = b.exp2(b.cast(b.param(0, (5,), dt.float16), F32))
    before = expand(optimize(rangeify(callify(graph))))
    made = select(before, target)
    held = frozenset({Op.PARAM, Op.SINK})
    for launch, is_left in ((before, False), (made, True)):
        nodes = [u for _, nodes in bodies(launch) for u in nodes if u.op not in MEMORY_ROOTS and u.dtype is not dt.index]
        ops = {u.op for u in nodes} - held <= target.ops | {Op.GROUP, Op.END, Op.STACK}
        dtypes = {u.dtype for u in nodes} <= target.dtypes | {dt.void}
        assert (ops and dtypes) is is_left


def _gives_indices_a_width(stage: str, target: Target) -> None:
    for extent, width in ((1 << 10, dt.int32), (1 << 33, dt.int64)):
        graph = b.add(b.param(0, (extent,), dt.uint8), 1)
        launch = select(expand(optimize(rangeify(callify(graph)))), target)
        positions = {i.dtype for u in toposort(launch.src[0].body) if u.op is Op.INDEX for i in u.positions}
        assert positions == {width}


def _orders_instructions(stage: str, target: Target) -> None:
    for linear, _ in bodies(after(stage, target)):
        position = {u: k for k, u in enumerate(linear.instructions)}
        ends = {r: k for u, k in position.items() if u.op is Op.END for r in u.ranges}
        assert ends
        for u, k in position.items():
            for s in u.src:
                assert position.get(s, -1) < k
                assert s.op is not Op.RANGE or k <= ends[s]


def _live_values_share_no_byte(stage: str, target: Target) -> None:
    given, made = around(stage, target)
    uses: dict[UOp, list[int]] = {}
    slices: dict[UOp, UOp] = {}
    for k, (before, planned) in enumerate(zip(given.src, made.src, strict=True)):
        for buffer, a in zip(before.arguments, planned.arguments, strict=True):
            if a.op is Op.SLICE:
                uses.setdefault(buffer, []).append(k)
                slices[buffer] = a
    assert len(uses) >= 3
    starts = {u: int(s.offset.arg.value) for u, s in slices.items()}
    bytes_of = {u: range(starts[u], starts[u] + s.arg.size * s.dtype.itemsize) for u, s in slices.items()}
    shared = 0
    for s, t in itertools.combinations(uses, 2):
        live_together = max(uses[s][0], uses[t][0]) <= min(uses[s][-1], uses[t][-1])
        overlap = len(range(max(bytes_of[s].start, bytes_of[t].start), min(bytes_of[s].stop, bytes_of[t].stop)))
        assert not (live_together and overlap)
        shared += overlap
    assert shared  # memory is reused


def _callers_memory_stays(stage: str, target: Target) -> None:
    given, made = around(stage, target)
    seen = {b.param(k, (6, 6), F32) for k in range(5)} | {outputs(GRAPH)[0].buffer}
    for launch in (given, made):
        assert seen <= {a for call in launch.src for a in call.arguments}
    kept = {base_memory(a) for call in made.src for a in call.arguments if a.op is Op.SLICE}
    assert kept.isdisjoint(seen)


def _gives_programs(stage: str, target: Target) -> None:
    given, made = around(stage, target)
    for (linear, _), (program, _) in zip(bodies(given), bodies(made), strict=True):
        assert program.op is Op.PROGRAM
        assert (program.linear, program.source.op, program.binary.op) == (linear, Op.SOURCE, Op.BINARY)
        assert program.source.arg.code == target.render(linear) and program.binary.arg.data == target.compile(target.render(linear))


Check = Callable[[str, Any], None]
_OF_ALL: tuple[Check, ...] = (_takes_and_gives_its_dialects, _computes_the_same)
_OF_ONE: dict[str, tuple[Check, ...]] = {
    "callify": (_memory_enters_by_arguments,),
    "rangeify": (_values_have_shape_nothing,),
    "optimize": (_parallel_iterations_never_meet,),
    "expand": (_leaves_no_vector_loop,),
    "select": (_leaves_ops_of_the_target, _gives_indices_a_width),
    "linearize": (_orders_instructions,),
    "plan": (_live_values_share_no_byte, _callers_memory_stays),
    "render": (_gives_programs,),
}
HOLDS = {
    claim.id: (check, stage)
    for stage in STAGES
    for claim, check in zip(NAMED_ROWS[f"Stage/{stage}"].claims, (*_OF_ALL, *_OF_ONE[stage]), strict=True)
}


def test_every_claim_of_a_stage_has_a_test() -> None:
    rows = [row for row in NAMED_ROWS.values() if row.family == "Stage"]
    assert [row.name for row in rows] == list(STAGES)
    assert set(HOLDS) == {claim.id for row in rows for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(pyref: Any, id: str) -> None:
    check, stage = HOLDS[id]
    check(stage, pyref)
