"""Every row has a cell that fails when the row is misread: one op, axis type or OptOp at a time has another meaning.

A misreading changes the graph that the interpreter is given in the backend's place. It counts only where wrong elements come out:
a program that is refused, or that traps, shows nothing of the row's values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uops.backends.api import compile
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.kernel_controls import IgnoresBarriers, LosesAdds, first_iteration_of, rebuild
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier
from uops.backends.contract import Backend
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import UopsError
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import OPTOPS
from uops.spec.result import Result
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import NAMED_ROWS, ROWS, rows_of_subject

#: Returns another node in place of one of the row's op.
Change = Callable[[UOp], UOp]


@pytest.fixture(scope="module")
def cases_by_row() -> dict[str, list[tuple[ConformanceCase, Expectation]]]:
    """The smoke cases, without those of dtypes that others stand for."""
    by_row: dict[str, list[tuple[ConformanceCase, Expectation]]] = {}
    for c in generate_cases(ConformanceTier.SMOKE):
        by_row.setdefault(c.row, []).append((c, Expectation(c)))
    return by_row


def change_value(u: UOp) -> UOp:
    """Return another value for every value of any dtype."""
    if u.dtype is dt.index:
        return UOp(Op.ADD, (u, b.index(1)))
    if u.dtype is dt.bool_:
        return UOp(Op.NOT, (u,))
    return UOp(Op.NEG, (u,)) if u.dtype.is_float else UOp(Op.XOR, (u, b.const(1, u.dtype)))


def change_arg(**fields: Any) -> Change:
    return lambda u: u.replace(arg=replace(u.arg, **fields))


def nothing(u: UOp) -> UOp:
    return b.group()


def keep_first(u: UOp) -> UOp:
    return u.replace(src=u.src[:1])


def give_first(u: UOp) -> UOp:
    return u.replace(src=(u.src[0],) * len(u.src))


def reverse_elements(u: UOp) -> UOp:
    return u if u.dtype is dt.index else u.replace(src=u.src[::-1])


def change_source(k: int) -> Change:
    return lambda u: u.replace(src=tuple(change_value(s) if n == k else s for n, s in enumerate(u.src)))


def set_position_to_zero(u: UOp) -> UOp:
    return u if len(u.src) < 2 or u.src[1].shape else u.replace(src=(u.src[0], b.index(0), *u.src[2:]))


def run_once(u: UOp) -> UOp:
    return u.replace(src=(b.const(1, u.bound.dtype), *u.src[1:]))


def close_loops_of_one_iteration(u: UOp) -> UOp:
    return rebuild(u, lambda x: run_once(x) if x.op in (Op.RANGE, Op.B_RANGE) else x)


def drop_last_call(u: UOp) -> UOp:
    return u.replace(src=u.src[:-1]) if len(u.src) > 1 and u.src[0].op is Op.CALL else u


def do_nothing_in_body(u: UOp) -> UOp:
    """A Program whose machine code does nothing, and a function that does nothing."""
    return UOp(Op.SINK, (), A.SinkArg("nothing"))


def end_blocks_late(u: UOp) -> UOp:
    """A list of instructions in which each Endif stands before the last instruction."""
    late = [x for x in u.src if x.op is Op.ENDIF]
    return u.replace(src=(*[x for x in u.src[:-1] if x not in late], *late, u.src[-1])) if late else u


#: Ops that are misread otherwise than by another value.
CHANGES: dict[Op, Change] = {
    Op.STORE: nothing, Op.B_STORE: nothing, Op.B_IF: nothing, Op.CALL: nothing,
    Op.PROGRAM: do_nothing_in_body, Op.B_PROGRAM: do_nothing_in_body, Op.CUSTOM_FUNCTION: do_nothing_in_body,
    Op.CUSTOM: lambda u: u.src[0] if u.dtype is not dt.void else nothing(u),
    Op.RANGE: run_once, Op.B_RANGE: run_once, Op.SPECIAL: run_once, Op.END: close_loops_of_one_iteration,
    Op.SINK: keep_first, Op.GROUP: keep_first, Op.LINEAR: drop_last_call,
    Op.IF: lambda u: u.replace(src=(b.const(True),)),
    Op.AFTER: lambda u: u.src[0],
    Op.TUPLE: give_first, Op.GETTUPLE: lambda u: u.replace(arg=A.GetTupleArg(0)),
    Op.FUNCTION: change_source(1), Op.STACK: reverse_elements, Op.PTRCAT: reverse_elements, Op.BUFFERIZE: change_source(0),
    Op.B_INDEX: set_position_to_zero, Op.POINTER_INDEX: set_position_to_zero,
    Op.UNIQUE: lambda u: u.replace(arg=A.UniqueArg({1: 2, 2: 1}.get(u.arg.id, u.arg.id))),
    Op.BIND: lambda u: b.index(0),
    Op.MSELECT: lambda u: u.replace(arg=A.MSelectArg(1 - u.arg.index)),
    Op.MSTACK: lambda u: u.replace(src=u.src[::-1]),
}  # fmt: skip
#: Ops whose row is misread if another op has another meaning: a Source and a Binary do nothing if their Program does nothing.
STANDS_FOR: dict[Op, Op] = {Op.SOURCE: Op.PROGRAM, Op.PROGRAM_BINARY: Op.B_PROGRAM}
#: Ops that a backend of `kernel_controls` misreads, in the legal form.
CONTROLS: dict[Op, type[Backend]] = {
    Op.BARRIER: IgnoresBarriers, Op.B_BARRIER: IgnoresBarriers, Op.DEFINE_LOCAL: IgnoresBarriers, Op.ATOMICADD: LosesAdds,
}  # fmt: skip


#: Ops whose misreading is a test of its own.
OF_THEIR_OWN = frozenset({Op.DEVICE, Op.LUNIQUE, Op.DEFINE_REG})


def failing_edges(cases: list[tuple[ConformanceCase, Expectation]], misread: Callable[[ConformanceCase], Result]) -> set[str]:
    """The edge classes in which wrong elements come out. Memory that is not written keeps its contents."""
    failed = set()
    for case, expected in cases:
        try:
            with np.errstate(all="ignore"):
                result = misread(case)
        except UopsError:
            continue
        kept = {str(s.output): case.inputs[str(s.output)] for s in case.segments if str(s.output) in case.inputs}
        result = Result(result.values, kept | result.buffers)
        for level in ConformanceLevel:
            for v in judge(expected, result, level):
                if v.failed and all("no such output" not in f.message for f in v.failures):
                    failed.add(v.segment.edge)
    return failed


def misread_op(op: Op) -> Callable[[ConformanceCase], Result]:
    if op in CONTROLS:
        control = CONTROLS[op]()
        return lambda case: control.run(legalize(case.graph), case.inputs)
    op = STANDS_FOR.get(op, op)
    change = CHANGES.get(op, change_value)
    if op is Op.ENDIF:
        return lambda case: interpret(rebuild(case.graph, lambda u: end_blocks_late(u) if u.op is Op.LINEAR else u), case.inputs)
    return lambda case: interpret(rebuild(case.graph, lambda u: change(u) if u.op is op else u), case.inputs)


@pytest.mark.parametrize("op", [op for op in ROWS if op not in OF_THEIR_OWN], ids=lambda op: op.name)
def test_a_row_that_is_misread_fails_a_cell_of_its_own(op: Op, cases_by_row: dict[str, Any]) -> None:
    assert failing_edges(cases_by_row[ROWS[op].id], misread_op(op))


def test_a_device_that_is_misread_is_seen(cases_by_row: dict[str, Any]) -> None:
    """Where a value lies is no element of it: all that can be seen is that the program has no meaning on other devices."""
    seen = set()
    for case, _ in cases_by_row[ROWS[Op.DEVICE].id]:
        other = rebuild(case.graph, lambda u: u.replace(arg=A.DeviceArg(("A", "B", "C", "D", "E"))) if u.op is Op.DEVICE else u)
        with pytest.raises(UopsError):
            interpret(other, case.inputs)
        seen.add(case.name)
    assert seen == {"one", "two"}


@pytest.mark.parametrize("kind", AxisType, ids=lambda t: t.name)
def test_an_axis_type_that_is_misread_fails_a_cell_of_its_own(kind: AxisType, cases_by_row: dict[str, Any]) -> None:
    control = first_iteration_of(kind)()
    if kind is AxisType.PLACEHOLDER:

        def misread(case: ConformanceCase) -> Result:
            return interpret(rebuild(case.graph, lambda u: run_once(u) if u.op is Op.B_RANGE else u), case.inputs)
    else:

        def misread(case: ConformanceCase) -> Result:
            return control.run(case.graph, case.inputs)

    assert "counter" in failing_edges(cases_by_row[f"AxisType/{kind.name}"], misread)


def shorten_loop(u: UOp) -> UOp:
    bound = u.bound
    return u.replace(src=(b.const(bound.const - 1, bound.dtype),)) if bound.op is Op.CONST and bound.const > 1 else u


def misapply(graph: UOp) -> UOp:
    """The instruction of a TC left out; of other OptOps, loops that are one iteration shorter than they must be."""
    if any(u.op is Op.WMMA for u in toposort(graph)):
        return rebuild(graph, lambda u: u.accumulator if u.op is Op.WMMA else u)
    return rebuild(graph, lambda u: shorten_loop(u) if u.op is Op.RANGE else u)


@pytest.mark.parametrize("optop", OPTOPS, ids=lambda o: o.__name__)
def test_an_optop_that_is_misapplied_fails_all_its_cells(optop: type, cases_by_row: dict[str, Any]) -> None:
    cases = cases_by_row[f"OptOp/{optop.__name__}"]
    failed = failing_edges(cases, lambda case: interpret(misapply(case.graph), case.inputs))
    assert failed == {c.name for c, _ in cases}


@pytest.mark.parametrize(
    ("row", "op", "edge"), [("Bestiary/DEFINE_REG", Op.DEFINE_REG, "across-barrier"), ("AddrSpace/REG", Op.BUFFER, "per-lane")]
)
def test_a_register_that_lanes_share_fails_a_cell(row: str, op: Op, edge: str, cases_by_row: dict[str, Any]) -> None:
    """The interpreter would find a race, so a compiler is given the register as memory of the workgroup."""

    def share(u: UOp) -> UOp:
        if u.op is Op.BUFFER and u.arg.addrspace is A.AddrSpace.REG:
            return u.replace(arg=replace(u.arg, addrspace=A.AddrSpace.LOCAL))
        return u

    assert edge in failing_edges(cases_by_row[row], lambda c: compile(rebuild(legalize(c.graph), share), "llvm")(c.inputs))


@pytest.mark.parametrize("edge", ["own-memory", "two"])
def test_memory_of_a_scope_that_the_program_shares_fails_a_cell(edge: str, cases_by_row: dict[str, Any]) -> None:
    def share(u: UOp) -> UOp:
        return UOp(Op.UNIQUE, (), A.UniqueArg(1)) if u.op is Op.LUNIQUE else u

    cases = cases_by_row[ROWS[Op.LUNIQUE].id]
    assert edge in failing_edges(cases, lambda c: compile(rebuild(c.graph, share), "llvm")(c.inputs))


def test_memory_of_the_device_that_one_kernel_alone_sees_fails_a_cell(cases_by_row: dict[str, Any]) -> None:
    cases = cases_by_row["AddrSpace/GLOBAL"]
    first_alone = failing_edges(cases, lambda c: interpret(c.graph.replace(src=c.graph.src[:1]), c.inputs))
    last_alone = failing_edges(cases, lambda c: interpret(c.graph.replace(src=c.graph.src[1:]), c.inputs))
    assert first_alone == last_alone == {"two-kernels"}


def test_memory_of_a_workgroup_whose_lanes_do_not_share_it_fails_a_cell(cases_by_row: dict[str, Any]) -> None:
    control = IgnoresBarriers()
    assert "per-workgroup" in failing_edges(cases_by_row["AddrSpace/LOCAL"], lambda c: control.run(c.graph, c.inputs))


def sum_wrongly(u: UOp) -> UOp:
    return change_value(u) if u.op in (Op.REDUCE, Op.B_REDUCE) else u


@pytest.mark.parametrize(
    "row", [r for r in (x.id for x in NAMED_ROWS.values()) if r.startswith(("Composition/", "Collective/", "Table/ReduceOp"))]
)
def test_a_composition_that_sums_or_places_wrongly_fails_its_cells(row: str, cases_by_row: dict[str, Any]) -> None:
    def place_wrongly(u: UOp) -> UOp:
        return change_source(0)(u) if u.op is Op.LOAD else u

    def misread(case: ConformanceCase) -> Result:
        summed = rebuild(case.graph, sum_wrongly)
        return interpret(summed if summed is not case.graph else rebuild(case.graph, place_wrongly), case.inputs)

    cases = cases_by_row[row]
    assert failing_edges(cases, misread) == {s.edge for c, _ in cases for s in c.segments}


@pytest.mark.parametrize("table", ["RangeEnding", "Expandable"])
def test_every_entry_of_a_table_fails_if_its_loops_or_lanes_are_misread(table: str, cases_by_row: dict[str, Any]) -> None:
    def misread(case: ConformanceCase) -> Result:
        change = {"RangeEnding": (Op.B_RANGE, run_once), "Expandable": (Op.UNROLL, repeat_first_lane)}[table]
        return interpret(rebuild(case.graph, lambda u: change[1](u) if u.op is change[0] else u), case.inputs)

    cases = cases_by_row[f"Table/{table}"]
    #: Memory that is filled in part is a Trap, and so is a Wmma of one lane.
    traps = {"bufferize", "wmma"} if table == "RangeEnding" else set()
    assert failing_edges(cases, misread) == {c.name for c, _ in cases} - traps
    for case, _ in cases:
        if case.name in traps:
            with pytest.raises(UopsError):
                misread(case)


def repeat_first_lane(u: UOp) -> UOp:
    return UOp(Op.GEP, (u,), A.GepArg((0,) * u.shape[0]))


def test_every_row_that_judges_backends_has_a_cell(cases_by_row: dict[str, Any]) -> None:
    assert cases_by_row.keys() == {row.id for row in rows_of_subject(RowSubject.BACKEND)}
