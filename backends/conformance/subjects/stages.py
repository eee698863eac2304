"""Cases of the compiler: each stage of the lowering of the suite's programs, for a target. Spec: Lowering Pipeline.

Takes: a target, a tier. Gives: a case per program, with the answers of all stages that the program goes through. A stage is right
if its graph is of its dialect, computes what the program computes (`uops.backends.conformance.stage_judge`), and keeps the claims
of its own row. These are read from the graphs before and after it, with nothing of the compiler's.

A program that the compiler refuses fails the cells of the stage that refused it: every program of the suite is legal.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from uops.backends.conformance.cases.compiled import list_programs_every_target_compiles
from uops.backends.conformance.model import ConformanceCase, ConformanceCell, ConformanceTier
from uops.backends.conformance.stage_judge import Judge, begin_judged_lowering_of_tensor_or_launch
from uops.backends.conformance.subjects.model import Answer, SubjectCase, cell_of_claim
from uops.compiler.config import Config
from uops.compiler.entry import convert_to_launch_or_tensor_graph
from uops.compiler.pipeline import LoweringState, Pass, passes_from, run_pass_and_verify
from uops.compiler.target import Target
from uops.interp import run
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import GRID, UNROLLED, WORKGROUP
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, scope_nodes
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import find_broken_claims

#: Axis types of threads, whose iterations are unordered.
_PARALLEL = GRID | WORKGROUP


@dataclass(frozen=True)
class _StageStep:
    """A stage of one lowering: the graphs before and after it, the memory that the caller sees, and the target."""

    before: UOp
    after: UOp
    external: frozenset[UOp]
    target: Target
    judge: Judge

    @functools.cached_property
    def kernel_nodes(self) -> list[UOp]:
        """The nodes of the kernels after the stage, each once."""
        return list(dict.fromkeys(u for body in _list_kernel_bodies(self.after) for u in toposort(body)))

    @functools.cached_property
    def computed_nodes(self) -> list[UOp]:
        """The nodes of the kernels without the sizes of memories, which a launch knows and no instruction computes."""
        bodies = _list_kernel_bodies(self.after)
        return list(dict.fromkeys(u for body in bodies for u in toposort(body, gate=lambda u: u.op not in MEMORY_ROOTS)))


#: Says what breaks a claim of a stage: a fault for each place that is asked, None where nothing is wrong.
_StageCheck = Callable[[_StageStep], Iterator[str | None]]


def _list_kernel_bodies(graph: UOp) -> list[UOp]:
    """Return the kernels of a launch, each once; those of a Program are its instructions."""
    bodies = (c.body for c in graph.src if c.op is Op.CALL) if graph.op is Op.LINEAR else ()
    lists = (x.linear if x.op is Op.PROGRAM else x for x in bodies if x.op is not Op.CUSTOM_FUNCTION)
    return list(dict.fromkeys(x for x in lists if x is not None))


# ------------------------------------------------------------------------------------------------- claims of single stages


def _find_memory_in_function(step: _StageStep) -> Iterator[str | None]:
    function = step.after.body
    for body in (function, *(c.body for c in scope_nodes(function) if c.op is Op.CALL)):
        inside = [u for u in scope_nodes(body) if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL]
        yield f"Buffer {inside[0].arg.unique} in the function is none of its arguments" if inside else None


def _find_shapes_in_kernels(step: _StageStep) -> Iterator[str | None]:
    extents = {u for u in step.kernel_nodes if u.op is Op.STACK and u.dtype is dt.index}
    for u in step.kernel_nodes:
        if u.dtype is not dt.void and u not in extents and base_memory(u).op not in MEMORY_ROOTS:
            yield f"{u.op.name} in a kernel has shape {u.shape}" if u.shape else None


def _run_lane_by_lane_to_find_races(step: _StageStep) -> Iterator[str | None]:
    if not any(u.op is Op.RANGE and u.arg.type in _PARALLEL for u in step.kernel_nodes):
        return
    try:
        run(step.after, step.judge.initial_memory, lanes=True)
    except UopsError as e:
        yield f"lane by lane: {type(e).__name__}: {e}"
    else:
        yield None


def _find_vector_ranges(step: _StageStep) -> Iterator[str | None]:
    for u in step.kernel_nodes:
        if u.op is Op.RANGE:
            yield f"a Range of type {u.arg.type.name} is left" if u.arg.type in UNROLLED else None


def _find_ops_and_dtypes_that_target_lacks(step: _StageStep) -> Iterator[str | None]:
    lowered_later = {Op.WMMA, Op.SPECIAL, Op.BARRIER, Op.IF, Op.ENDIF}
    has_wmma = any(u.op is Op.WMMA for u in step.kernel_nodes)
    for u in step.kernel_nodes:
        if u.op not in step.target.ops | lowered_later:
            yield f"op {u.op.name} is none of the target"
        elif u.dtype not in (*step.target.dtypes, dt.void, dt.uint8, dt.index) and not has_wmma:
            yield f"dtype {u.dtype} of {u.op.name} is none of the target"
        else:
            yield None


def _find_unsized_index_arithmetic_or_narrow_cast(step: _StageStep) -> Iterator[str | None]:
    """Loop counters alone are of dtype index behind select. What is computed with them has a width that holds their values."""
    for u in step.computed_nodes:
        if u.op is Op.CAST and u.operand.dtype is dt.index:
            bounds, d = u.operand.min_max, u.dtype
            fits = d in dt.INTS and bounds is not None and d.min <= bounds[0] and bounds[1] <= d.max
            yield None if fits else f"a Cast of values of {bounds} to {d}, which does not hold them"
        elif u.op in ALU:
            yield f"{u.op.name} of dtype index, which has no width" if u.dtype is dt.index else None


def _find_duplicate_or_misplaced_instructions(step: _StageStep) -> Iterator[str | None]:
    for body in _list_kernel_bodies(step.after):
        place = {u: k for k, u in enumerate(body.src)}
        yield "an instruction stands twice in the list" if len(place) != len(body.src) else None
        ends = {r: place[e] for e in body.src if e.op is Op.END for r in e.ranges}
        loops: dict[UOp, frozenset[UOp]] = {}  # the loops that each instruction depends on
        for u in body.src:
            late = [s.op.name for s in u.src if s in place and place[s] >= place[u]]
            yield f"{u.op.name} stands before its source {late[0]}" if late else None
            opened, closed = ({u} if u.op is Op.RANGE else set()), (u.ranges if u.op is Op.END else ())
            loops[u] = frozenset(opened).union(*(loops.get(s, frozenset()) for s in u.src)).difference(closed)
            left = any(r in ends and not place[r] <= place[u] <= ends[r] for r in loops[u])
            yield f"{u.op.name} stands outside of a loop that it depends on" if left else None


def _find_overlapping_memory(step: _StageStep) -> Iterator[str | None]:
    lives: dict[UOp, tuple[int, int]] = {}
    places: dict[UOp, tuple[UOp, int, int]] = {}
    for k, (call, planned) in enumerate(zip(step.before.src, step.after.src, strict=True)):
        for old, new in zip(call.arguments, planned.arguments, strict=True):
            memory = base_memory(old)
            if memory.op is Op.BUFFER and memory not in step.external:
                first, _ = lives.get(memory, (k, k))
                lives[memory] = first, k
                start = _first_byte(new) - _first_byte(old)
                places[memory] = base_memory(new), start, start + memory.arg.size * memory.dtype.itemsize
    memories = list(lives)
    for n, x in enumerate(memories):
        for y in memories[:n]:
            together = lives[x][0] <= lives[y][1] and lives[y][0] <= lives[x][1]
            (arena, start, end), (other, other_start, other_end) = places[x], places[y]
            shared = arena is other and start < other_end and other_start < end
            yield f"Buffers {x.arg.unique} and {y.arg.unique} live at once and share bytes" if together and shared else None


def _first_byte(argument: UOp) -> int:
    """Return the first byte of an argument in its memory."""
    if argument.op is Op.SLICE:
        return _first_byte(argument.operand) + int(argument.offset.arg.value) * argument.operand.dtype.itemsize
    return 0 if argument.op in MEMORY_ROOTS else _first_byte(argument.src[0])  # the operand of a view


def _find_moved_external_arguments(step: _StageStep) -> Iterator[str | None]:
    for call, planned in zip(step.before.src, step.after.src, strict=True):
        for old, new in zip(call.arguments, planned.arguments, strict=True):
            if base_memory(old) in step.external:
                yield None if old is new else f"{base_memory(old).op.name}, which the caller sees, has another place"


def _find_kernels_without_complete_program(step: _StageStep) -> Iterator[str | None]:
    for call, rendered in zip(step.before.src, step.after.src, strict=True):
        if call.body.op is Op.LINEAR:
            program = rendered.body
            has_code = program.op is Op.PROGRAM and program.linear is call.body and _has_source_and_binary(program)
            yield None if has_code else f"a kernel became {program.op.name}, which lacks its instructions, source or machine code"


def _has_source_and_binary(program: UOp) -> bool:
    source, binary = program.source, program.binary
    return source is not None and binary is not None and bool(source.arg.code) and bool(binary.arg.data)


class _OwnClaim(NamedTuple):
    """A claim of one stage: its number, what is asked, the check, and whether each dtype has a cell or all have one together."""

    number: int
    what: str
    check: _StageCheck
    by_dtype: bool = True


#: Stage -> the claims of its own; the first two of each stage are those of every stage.
_CHECKS: Mapping[str, tuple[_OwnClaim, ...]] = {
    "callify": (_OwnClaim(3, "memory", _find_memory_in_function),),
    "rangeify": (_OwnClaim(3, "scalars", _find_shapes_in_kernels),),
    "optimize": (_OwnClaim(3, "races", _run_lane_by_lane_to_find_races, by_dtype=False),),
    "expand": (_OwnClaim(3, "vector-ranges", _find_vector_ranges),),
    "select": (
        _OwnClaim(3, "target", _find_ops_and_dtypes_that_target_lacks),
        _OwnClaim(4, "index-width", _find_unsized_index_arithmetic_or_narrow_cast),
    ),
    "linearize": (_OwnClaim(3, "order", _find_duplicate_or_misplaced_instructions),),
    "plan": (
        _OwnClaim(3, "lifetimes", _find_overlapping_memory, by_dtype=False),
        _OwnClaim(4, "arguments", _find_moved_external_arguments),
    ),
    "render": (_OwnClaim(3, "programs", _find_kernels_without_complete_program),),
}


# ---------------------------------------------------------------------------------------------------------------- one program


@dataclass(frozen=True, slots=True)
class _StageCells:
    """The cells of a stage for programs of a dtype: its dialect, its values, and those of `_CHECKS`."""

    dialect: ConformanceCell
    values: ConformanceCell
    own: tuple[ConformanceCell, ...]

    def all(self) -> tuple[ConformanceCell, ...]:
        return self.dialect, self.values, *self.own


def _cells_of_stage(stage: str, dtype: str) -> _StageCells:
    prefix = f"STAGE.{stage.upper()}.C"
    own = tuple(cell_of_claim(f"{prefix}{c.number}", c.what, dtype if c.by_dtype else "void") for c in _CHECKS[stage])
    return _StageCells(cell_of_claim(f"{prefix}1", "dialect", dtype), cell_of_claim(f"{prefix}2", "values", dtype), own)


def _make_case(case: ConformanceCase, target: Target, config: Config) -> SubjectCase:
    entering = convert_to_launch_or_tensor_graph(case.graph, infer_tensor_kernel_or_bestiary_dialect(case.graph))
    passes = passes_from(entering.dialect)
    stages = tuple(dict.fromkeys(p.stage for p in passes))
    cells = tuple(cell for stage in stages for cell in _cells_of_stage(stage, case.dtype.name).all())

    def ask() -> Iterator[Answer]:
        judge, state = begin_judged_lowering_of_tensor_or_launch(
            case.graph, entering, case.inputs, target, replace(config, verify=False)
        )
        return _answer_stages_until_a_pass_raises(entering.graph, passes, state, judge, case.dtype.name)

    return SubjectCase(f"stages of {case.id}", cells, ask, case.graph, case.inputs)


def _answer_stages_until_a_pass_raises(
    graph: UOp, passes: Iterable[Pass], state: LoweringState, judge: Judge, dtype: str
) -> Iterator[Answer]:
    """Yield the answers of each stage, up to the first whose graph cannot be lowered further."""
    outputs = judge.reference_outputs()
    for stage, of_stage in itertools.groupby(passes, key=lambda p: p.stage):
        cells, before, wrong_value = _cells_of_stage(stage, dtype), graph, None
        for p in of_stage:
            try:
                after = run_pass_and_verify(p, graph, state)
            except Exception as e:
                yield Answer(cells.dialect, f"pass {p.name}: {type(e).__name__}: {e}")
                return
            if wrong_value is None and after is not graph:
                fault, now = judge.judge_pass(p.name, graph, outputs, after)
                wrong_value = None if fault is None else f"pass {p.name}: {fault.kind}: {fault.message}"
                outputs = now or outputs  # nothing is known of a graph that cannot be run
            graph, dialect = after, p.gives
        broken = find_broken_claims(graph, dialect)
        yield Answer(cells.dialect, str(broken[0]) if broken else None)
        yield Answer(cells.values, wrong_value)
        step = _StageStep(before, graph, state.external, state.target, judge)
        for cell, claim in zip(cells.own, _CHECKS[stage], strict=True):
            yield from (Answer(cell, fault) for fault in claim.check(step))


def generate_stage_cases(tier: ConformanceTier, target: Target, config: Config) -> Iterator[SubjectCase]:
    """Yield a case per program of the suite that every target compiles; of the smoke tier, two of each row and dtype."""
    for case in _list_programs_smoke_two_per_row_and_dtype(tier):
        yield _make_case(case, target, config)


def _list_programs_smoke_two_per_row_and_dtype(tier: ConformanceTier) -> list[ConformanceCase]:
    programs = list_programs_every_target_compiles(tier)
    if tier is not ConformanceTier.SMOKE:
        return programs
    first_and_last: dict[tuple[str, str], list[ConformanceCase]] = {}
    for case in programs:
        kept = first_and_last.setdefault((case.row, case.dtype.name), [])
        kept[1:] = [case]
    return [case for kept in first_and_last.values() for case in kept]
