"""Threads and lanes that meet in an element, unordered: each such kernel is refuted, and none that a barrier or a loop orders."""

import pytest

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.model import ObligationKind, ValidationVerdict
from uops.compiler.validate.reader import read_accesses
from uops.fuzz.bisect.replay_kernel import replay_bodies_if_counterexample_holds
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse


def refuted(before: UOp, changed: UOp, worker: SolverWorker):
    return [v for v in validate_kernel(before, changed, worker) if not v.is_proved]


#: Each element becomes the next one, in place.
NEXT = """
%0 = param (4), slot=0 : f32
%1 = range 3, axis_id=0, type={outer}
%2 = cast %1 : i32
%3 = const 1 : i32
%4 = add %2, %3
%5 = index %0, %4
%6 = load %5
%7 = index %0, %2
%8 = store %7, %6
%9 = end %8, %1
%10 = linear %0, %1, %2, %4, %5, %6, %7, %8, %9
"""


def test_a_thread_that_reads_what_another_one_writes_is_a_race(worker):
    before = parse(NEXT.format(outer="loop"))
    assert not refuted(before, before, worker)
    assert {v.kind for v in refuted(before, parse(NEXT.format(outer="thread")), worker)} == {ObligationKind.RACE}


#: The first element of a row goes to all of it.
ROW = """
%0 = param (6), slot=0 : f32
%1 = range 2, axis_id=0, type={outer}
%2 = mul %1, 3
%3 = index %0, %2
%4 = load %3
%5 = range 3, axis_id=1, type={inner}
%6 = add %2, %5
%7 = index %0, %6
%8 = store %7, %4
%9 = end %8, %5
%10 = end %9, %1
%11 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10
"""


def test_threads_of_an_inner_loop_are_others_than_those_around_it(worker):
    before = parse(ROW.format(outer="loop", inner="loop"))
    assert not refuted(before, parse(ROW.format(outer="thread", inner="loop")), worker)
    assert {v.kind for v in refuted(before, parse(ROW.format(outer="thread", inner="thread")), worker)} == {ObligationKind.RACE}


#: Eight lanes change a row that moves by one element per iteration of the other loop.
MOVING = """
%0 = param (11), slot=0 : f32
%1 = range {outer}
%2 = range {inner}
%3 = add %1, %2
%4 = index %0, %3
%5 = load %4
%6 = sqrt %5
%7 = store %4, %6
%8 = end %7, %2
%9 = end %8, %1
{root}
"""
LOOP, LANES = "4, axis_id=0, type=loop", "8, axis_id=1, type=local"


@pytest.mark.parametrize(("outer", "inner", "kinds"), [(LOOP, LANES, set()), (LANES, LOOP, {ObligationKind.RACE})])
def test_a_loop_around_all_lanes_runs_one_iteration_after_the_other(outer, inner, kinds, worker):
    """R57 (Range). A loop that each lane runs for itself does not wait for the other lanes."""
    before = parse(MOVING.format(outer=outer, inner=inner, root='%10 = sink %9, name="moving"'))
    listed = parse(MOVING.format(outer=outer, inner=inner, root="%10 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9"))
    assert {v.kind for v in refuted(before, listed, worker)} == kinds


#: Each thread adds its number to element 0 and reads an element.
COUNTED = """
%0 = param (3), slot=0 : i32
%1 = range 3, axis_id=0, type=thread
%2 = index %0, 0
%3 = cast %1 : i32
%4 = atomicadd %2, %3
%5 = index %0, {read}
%6 = load %5
%7 = param (3), slot=1 : i32
%8 = index %7, %1
%9 = store %8, %6
%10 = group %4, %9
%11 = end %10, %1
{root}
"""


@pytest.mark.parametrize(("read", "kinds"), [("2", set()), ("0", {ObligationKind.RACE})])
def test_threads_that_add_to_one_element_are_no_race_but_for_one_that_reads_it(read, kinds, worker):
    before = parse(COUNTED.format(read=read, root='%12 = sink %11, name="counted"'))
    listed = parse(COUNTED.format(read=read, root="%12 = linear %0, %7, %1, %2, %3, %4, %5, %6, %8, %9, %10, %11"))
    assert {v.kind for v in refuted(before, listed, worker)} == kinds


# Barriers

SHARED = """
%0 = param (8), slot=0 : f32
%1 = param (8), slot=1 : f32
%2 = buffer size=8, device="CPU", addrspace=local, unique=1 : f32
%3 = range 8, axis_id=0, type=local
%4 = cast %3 : i32
%5 = index %2, %4
%6 = index %1, %4
%7 = load %6
%8 = store %5, %7
%9 = {order}
%10 = after %2, %9
%11 = const 7 : i32
%12 = sub %11, %4
%13 = index %10, %12
%14 = load %13
%15 = index %0, {out}
%16 = store %15, %14
%17 = end %16, %3
%18 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %12, %13, %14, %15, %16, %17
"""
EIGHT = """
%0 = param (8), slot=0 : f32
%1 = range 8, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (8), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = store %2, %5
%7 = end %6, %1
%8 = sink %7, name="eight"
"""


def test_a_dropped_barrier_is_refuted_and_replays(worker):
    right, wrong = (parse(SHARED.format(order=order, out="%12")) for order in ("barrier %8", "group %8"))
    assert not refuted(parse(EIGHT), right, worker)
    bad = refuted(parse(EIGHT), wrong, worker)
    assert {v.kind for v in bad} == {ObligationKind.RACE}
    assert replay_bodies_if_counterexample_holds(parse(EIGHT), wrong).confirmed


@pytest.mark.parametrize("lanes", [2, 8])
def test_a_barrier_orders_nothing_that_comes_after_it(lanes, worker):
    wrong = (
        SHARED.format(order="barrier %8", out="%11").replace("range 8", f"range {lanes}").replace("const 7", f"const {lanes - 1}")
    )
    bad = refuted(parse(EIGHT), parse(wrong), worker)
    assert any(v.kind is ObligationKind.RACE and v.place.startswith("argument 0") for v in bad)


def test_a_barrier_in_a_loop_that_may_have_no_iteration_orders_nothing(worker):
    """The loop has n iterations, of which there may be none."""
    again = SHARED.replace(
        "%9 = {order}\n%10 = after %2, %9",
        "{n}%20 = range {times}, axis_id=1, type=loop\n%9 = barrier %8, %20\n%21 = end %9, %20\n%10 = after %2, %21",
    )
    again = again.replace("%8, %9, %10", "%8, %20, %9, %21, %10")
    some = '%19 = param (), slot=none, name="n", bounds=[{least}, 3] : index\n'
    for n, times, kinds in (
        ("", "3", set()),
        (some.format(least=1), "%19", set()),
        (some.format(least=0), "%19", {ObligationKind.RACE}),
    ):
        found = refuted(parse(EIGHT), parse(again.format(n=n, times=times, out="%12")), worker)
        assert {v.kind for v in found} == kinds, (n, times)


LOOPED = """
%0 = param (16), slot=0 : f32
%1 = param (16), slot=1 : f32
%2 = buffer size=8, device="CPU", addrspace=local, unique=1 : f32
%3 = range 8, axis_id=0, type=local
%4 = range 2, axis_id=1, type=loop
%5 = mul %4, 8
%6 = add %5, %3
%7 = index %2, %3
%8 = index %1, %6
%9 = load %8
%10 = store %7, %9
%11 = barrier %10
%12 = after %2, %11
%13 = sub 7, %3
%14 = index %12, %13
%15 = load %14
%16 = add %5, %13
%17 = index %0, %16
%18 = store %17, %15
%19 = {order} %18
%20 = end %19, %4
%21 = end %20, %3
%22 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21
"""
SIXTEEN = EIGHT.replace("(8)", "(16)").replace("range 8", "range 16")


def test_a_barrier_orders_what_one_iteration_reads_and_the_next_one_writes(worker):
    assert not refuted(parse(SIXTEEN), parse(LOOPED.format(order="barrier")), worker)
    bad = refuted(parse(SIXTEEN), parse(LOOPED.format(order="group")), worker)
    assert {v.kind for v in bad} == {ObligationKind.RACE} and all("local" in v.place for v in bad)


def test_a_loop_of_one_iteration_needs_no_barrier_before_the_next_one(worker):
    once = LOOPED.format(order="group").replace("range 2, axis_id=1", "range 1, axis_id=1")
    assert once != LOOPED.format(order="group")
    assert all(v.kind is not ObligationKind.RACE for v in refuted(parse(EIGHT), parse(once), worker))


#: Threads in a loop: element 1 is thread 1's in the first iteration, and thread 0's in the second one.
SHIFTED = """
%0 = param (4), slot=0 : f32
%1 = range 2, axis_id=0, type=loop
%2 = range 3, axis_id=1, type={inner}
%3 = add %1, %2
%4 = index %0, %3
%5 = load %4
%6 = neg %5
%7 = store %4, %6
%8 = end %7, %2
%9 = end %8, %1
%10 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9
"""


def test_threads_of_one_iteration_of_a_loop_do_not_meet_those_of_another(worker):
    assert not refuted(parse(SHIFTED.format(inner="loop")), parse(SHIFTED.format(inner="thread")), worker)


# Specials

STORED = """
%0 = param (4), slot=0 : i32
%1 = special 4, name="{name}"
%2 = const 0 : index
%3 = const 7 : i32
%4 = cmpeq %1, %2
%5 = index %0, {position}
%6 = store %5, %3{gate}
"""


def validated(text: str, listed: str, worker: SolverWorker) -> list[ValidationVerdict]:
    """The verdicts of a kernel without loops, and of the list of its instructions."""
    return validate_kernel(parse(text + '%30 = sink %6, name="k"'), parse(text + f"%30 = linear {listed}"), worker)


@pytest.mark.parametrize("name", ["lidx0", "gidx0"])
@pytest.mark.parametrize(
    ("position", "gate", "is_right"),
    [("%1", "", True), ("0", "", False), ("0", ", %4", True)],
    ids=["an element each", "one element", "one element, by the first alone"],
)
def test_a_special_numbers_threads_of_the_whole_body(name, position, gate, is_right, worker):
    verdicts = validated(STORED.format(name=name, position=position, gate=gate), "%0, %1, %4, %5, %6", worker)
    for kind in (ObligationKind.RACE, ObligationKind.ONCE):
        assert is_right in {v.is_proved for v in verdicts if v.kind is kind}
    assert all(v.is_proved for v in verdicts) is is_right


#: Lanes that read what another one stores.
EXCHANGED = """
%0 = param (8), slot=0 : i32
%1 = special 8, name="lidx0"
%2 = buffer size=8, device="CPU", addrspace=local, unique=1 : i32
%3 = cast %1 : i32
%4 = index %2, %1
%5 = store %4, %3
{barrier}
%11 = const 7 : i32
%12 = sub %11, %3
%13 = index %10, %12
%14 = load %13
%15 = index %0, %1
%6 = store %15, %14
"""


@pytest.mark.parametrize("has_barrier", [True, False])
def test_a_barrier_orders_the_lanes_of_a_special(has_barrier, worker):
    barrier = "%9 = barrier %5\n%10 = after %2, %9" if has_barrier else "%10 = after %2, %5"
    listed = f"%0, %2, %1, %3, %4, %5, {'%9, ' if has_barrier else ''}%10, %12, %13, %14, %15, %6"
    assert all(v.is_proved for v in validated(EXCHANGED.format(barrier=barrier), listed, worker)) is has_barrier


def test_a_barrier_in_an_if_on_a_special_is_none(worker):
    barrier = "%7 = const 4 : i32\n%8 = cmplt %3, %7\n%16 = if %8\n%9 = barrier %5\n%17 = endif %16\n%10 = after %2, %9"
    listed = "%0, %2, %1, %3, %4, %5, %8, %16, %9, %17, %10, %12, %13, %14, %15, %6"
    bad = [v for v in validated(EXCHANGED.format(barrier=barrier), listed, worker) if not v.is_proved]
    assert "may differ between the lanes" in " ".join(map(str, bad))


def test_lanes_of_a_special_around_workgroups_are_unordered(worker):
    """Each workgroup is stored to by one lane, another one each."""
    text = """
%0 = param (1), slot=0 : i32
%1 = special 4, name="lidx0"
%2 = range 4, axis_id=0, type=global
%3 = const 7 : i32
%4 = cmpeq %1, %2
%5 = index %0, 0
%7 = store %5, %3, %4
%6 = end %7, %2
"""
    bad = [v for v in validated(text, "%0, %1, %2, %4, %5, %7, %6", worker) if not v.is_proved]
    assert ObligationKind.RACE in {v.kind for v in bad}


def test_a_name_of_a_special_has_one_bound():
    text = STORED.format(name="lidx0", position="%7", gate="").replace("%5 =", '%7 = special 2, name="lidx0"\n%5 =', 1)
    with pytest.raises(SpecError, match="has one bound"):
        read_accesses(parse(text + "%30 = linear %0, %1, %7, %4, %5, %6"))
