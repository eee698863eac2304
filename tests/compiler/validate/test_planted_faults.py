"""Faults planted into kernels: each is refuted, and the interpreter sees it."""

import numpy as np
import pytest

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.model import DecisionMethod, ObligationKind
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.writes import view_elements_of_box_shaped_gate
from uops.fuzz.bisect.replay_kernel import replay_bodies_if_counterexample_holds
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse

COPY = """
%0 = param ({n}), slot=0 : f32
%1 = range {rows}, axis_id=0, type=loop
%2 = mul %1, {stride}
%3 = range {columns}, axis_id=1, type=loop
%4 = add %2, %3
%5 = index %0, %4
%6 = param ({n}), slot=1 : f32
%7 = index %6, %4
%8 = load %7
%9 = store %5, %8
%10 = end %9, %3
%11 = end %10, %1
%12 = sink %11, name="copy"
"""
BEFORE = COPY.format(n=12, rows=3, columns=4, stride=4)

#: The instructions of the copy: an outer loop over rows, two columns side by side.
AFTER = """
%0 = param (12), slot=0 : f32
%1 = param (12), slot=1 : f32
%2 = range {rows}, axis_id=0, type={outer}
%3 = cast %2 : {width}
%4 = const {stride} : {width}
%5 = mul %3, %4
%6 = range 2, axis_id=1, type=loop
%7 = cast %6 : {width}
%8 = const 2 : {width}
%9 = mul %7, %8
%10 = add %5, %9
%11 = const 1 : {width}
%12 = add %10, %11
%13 = index %0, {first}
%14 = index %1, {read}
%15 = load %14
%16 = store %13, %15
%17 = index %0, {second}
%18 = index %1, %12
%19 = load %18
%20 = store %17, %19
%21 = end {last}, %6
%22 = end %21, %2
%23 = linear %0, %1, %2, %3, %5, %6, %7, %9, %10, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22
"""
FINE = {
    "rows": 3, "outer": "loop", "width": "i32", "stride": 4, "first": "%10", "second": "%12", "read": "%10", "last": "%20",
}  # fmt: skip

#: Fault -> (what is changed, the obligations one of which it breaks).
FAULTS = {
    "index off by one": ({"second": "%10"}, {ObligationKind.ONCE, ObligationKind.COVER}),
    "index beyond the end": ({"first": "%12", "second": "%24"}, {ObligationKind.BOUNDS}),
    "swapped strides": ({"stride": 3}, {ObligationKind.ONCE, ObligationKind.COVER}),
    "wrong loop extent": ({"rows": 2}, {ObligationKind.COVER}),
    "too long a loop": ({"rows": 4}, {ObligationKind.BOUNDS}),
    "duplicate store": ({"first": "%12"}, {ObligationKind.ONCE}),
}


def after(**changed: object) -> UOp:
    text = AFTER.format(**{**FINE, **changed})
    extra = "%24 = add %12, %11\n" if "%24" in text.split("%23 = linear")[0] else ""
    head, tail = text.split("%13 = index", 1)
    return parse(head + extra + "%13 = index" + tail.replace("%12, %13", "%12, %24, %13" if extra else "%12, %13"))


def refuted(before: UOp, changed: UOp, worker: SolverWorker):
    return [v for v in validate_kernel(before, changed, worker) if not v.is_proved]


def test_what_is_right_is_validated(worker):
    assert not refuted(parse(BEFORE), after(), worker)
    assert not replay_bodies_if_counterexample_holds(parse(BEFORE), after()).confirmed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refuted_and_replays(fault, worker):
    changes, kinds = FAULTS[fault]
    bad = refuted(parse(BEFORE), after(**changes), worker)
    assert bad and {v.kind for v in bad} & kinds
    assert all(v.counterexample is not None for v in bad)
    seen = replay_bodies_if_counterexample_holds(parse(BEFORE), after(**changes), bad[0].counterexample)
    assert seen.confirmed, seen.words


def test_what_is_written_more_than_before_is_refuted(worker):
    bad = refuted(parse(COPY.format(n=12, rows=2, columns=4, stride=4)), after(), worker)
    assert {v.kind for v in bad} == {ObligationKind.COVER, ObligationKind.READS}
    assert "element 8 is written, and was not before" in " ".join(map(str, bad))


def test_a_kernel_that_stores_nothing_any_more_is_refuted(worker):
    (bad,) = refuted(parse(ONES), parse("%0 = param (240), slot=0 : f32\n%1 = linear %0"), worker)
    assert bad.kind is ObligationKind.COVER and not bad.is_proved


@pytest.mark.parametrize(("rows", "others", "place"), [(1 << 27, (1 << 27) - 1, "before"), ((1 << 27) - 1, 1 << 27, "after")])
def test_of_a_memory_too_great_to_mark_the_solver_finds_what_one_body_alone_writes(rows, others, place, worker):
    before, after = (
        parse(t.replace("240", str(n)).replace(f"({n})", f"({1 << 27})")) for t, n in ((ONES, rows), (ONES_LISTED, others))
    )
    (bad,) = refuted(before, after, worker)
    assert bad.kind is ObligationKind.COVER and bad.place == f"store of argument 0 {place}"


def test_stores_with_gates_of_their_own_are_not_one(worker):
    """Elements at odd places are written for five iterations."""
    text = """
%0 = param (134217728), slot=0 : f32
%1 = range 67108864, axis_id=0, type=loop
%2 = mul %1, 2
%3 = index %0, %2
%4 = const 1.0 : f32
%5 = store %3, %4
%6 = add %2, 1
%7 = index %0, %6
%8 = cmplt %1, {limit}
%9 = store %7, %4, %8
%10 = group %5, %9
%11 = end %10, %1
%12 = linear %0, %1, %2, %3, %5, %6, %7, %8, %9, %10, %11
"""
    before = parse(ONES.replace("240", str(1 << 27)))
    for limit, kinds in ((1 << 26, set()), (5, {ObligationKind.COVER})):
        assert {v.kind for v in refuted(before, parse(text.format(limit=limit)), worker)} == kinds


def test_a_thread_per_row_is_no_race_and_one_for_all_rows_is(worker):
    assert not refuted(parse(BEFORE), after(outer="thread"), worker)
    bad = refuted(parse(BEFORE), after(outer="thread", stride=0), worker)
    assert ObligationKind.RACE in {v.kind for v in bad}
    assert replay_bodies_if_counterexample_holds(parse(BEFORE), after(outer="thread", stride=0)).confirmed


def test_an_element_that_two_sums_of_counters_give_is_written_twice(worker):
    """5 is 1 + 4 and 0 + 5: each counter counts more than the one before it alone gives."""
    text = """
%0 = param (13), slot=0 : f32
%1 = range 4, axis_id=0, type=loop
%2 = range 2, axis_id=1, type=loop
%3 = range 2, axis_id=2, type=loop
%4 = mul %2, 4
%5 = mul %3, 5
%6 = add %1, %4
%7 = add %6, %5
%8 = index %0, %7
%9 = const 1.0 : f32
%10 = store %8, %9
%11 = end %10, %3
%12 = end %11, %2
%13 = end %12, %1
%14 = linear %0, %1, %2, %4, %3, %5, %6, %7, %8, %10, %11, %12, %13
"""
    assert {v.kind for v in refuted(parse(ONES.replace("240", "13")), parse(text), worker)} == {ObligationKind.ONCE}


def test_what_is_beyond_a_memory_is_no_part_of_it():
    (store,) = read_accesses(parse(ONES)).sites
    for size in (239, 240):
        assert (view_elements_of_box_shaped_gate(store, np.zeros(size, np.bool_)) is None) is (size < 240)


# A gate

GATED = """
%0 = param (5), slot=0 : f32
%1 = range 3, axis_id=0, type=loop
%2 = cast %1 : i32
%3 = const 2 : i32
%4 = mul %2, %3
%5 = stack %4, %4
%6 = const 0 : i32
%7 = const 1 : i32
%8 = stack %6, %7
%9 = add %5, %8
%10 = index %0, %9
%11 = param (5), slot=1 : f32
%12 = index %11, %9
%13 = const 0.0 : f32
%14 = stack %13, %13
%15 = const {limit} : i32
%16 = stack %15, %15
%17 = cmplt %9, %16
%18 = load %12{load}
%19 = store %10, %18{store}
%20 = end %19, %1
%21 = linear %0, %1, %2, %4, %5, %9, %10, %11, %12, %17, %18, %19, %20
"""
FIVE = """
%0 = param (5), slot=0 : f32
%1 = range 5, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (5), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = store %2, %5
%7 = end %6, %1
%8 = sink %7, name="five"
"""


@pytest.mark.parametrize(
    ("limit", "load", "store", "kind"),
    [
        (5, "", ", %17", ObligationKind.BOUNDS),
        (5, ", %14, %17", "", ObligationKind.BOUNDS),
        (6, ", %14, %17", ", %17", ObligationKind.BOUNDS),
        (4, ", %14, %17", ", %17", ObligationKind.COVER),
    ],
)
def test_a_missing_or_wrong_gate_is_refuted_and_replays(limit, load, store, kind, worker):
    right = parse(GATED.format(limit=5, load=", %14, %17", store=", %17"))
    wrong = parse(GATED.format(limit=limit, load=load, store=store))
    assert not refuted(parse(FIVE), right, worker)
    bad = refuted(parse(FIVE), wrong, worker)
    assert kind in {v.kind for v in bad}
    assert replay_bodies_if_counterexample_holds(parse(FIVE), wrong, bad[0].counterexample).confirmed


# A width

WIDE = """
%0 = param (240), slot=0 : f32
%1 = range 240, axis_id=0, type=loop
%2 = cast %1 : {width}
%3 = index %0, %2
%4 = const 1.0 : f32
%5 = store %3, %4
%6 = end %5, %1
%7 = linear %0, %1, %2, %3, %5, %6
"""
ONES = """
%0 = param (240), slot=0 : f32
%1 = range 240, axis_id=0, type=loop
%2 = index %0, %1
%3 = const 1.0 : f32
%4 = store %2, %3
%5 = end %4, %1
%6 = sink %5, name="ones"
"""


ONES_LISTED = WIDE.format(width="i32")


def test_a_width_that_wraps_is_refuted_and_replays(worker):
    assert not refuted(parse(ONES), parse(WIDE.format(width="i16")), worker)
    bad = refuted(parse(ONES), parse(WIDE.format(width="i8")), worker)
    assert ObligationKind.WIDTH in {v.kind for v in bad}
    assert replay_bodies_if_counterexample_holds(parse(ONES), parse(WIDE.format(width="i8")), bad[0].counterexample).confirmed


WIDE_FROM_MEMORY = """
%0 = param (240), slot=0 : f32
%1 = range 240, axis_id=0, type=loop
%2 = cast %1 : i8
%3 = cast %2 : index
%4 = param (240), slot=1 : i32
%5 = index %4, %1
%6 = load %5
%7 = cast %6 : index
%8 = add %3, %7
%9 = index %0, %8
%10 = const 1.0 : f32
%11 = store %9, %10
%12 = end %11, %1
{root}
"""


def test_a_width_that_wraps_beside_a_value_of_memory_has_no_index_to_evaluate(worker):
    before = parse(WIDE_FROM_MEMORY.format(root='%13 = sink %12, name="wide"'))
    listed = parse(WIDE_FROM_MEMORY.format(root="%13 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %11, %12"))
    (width,) = [v for v in refuted(before, listed, worker) if v.kind is ObligationKind.WIDTH]
    assert width.counterexample is not None and width.counterexample.graphs == ()


# A truth of which nothing is known

CHOSEN = """
%0 = param (3), slot=0 : f32
%1 = range 3, axis_id=0, type={outer}
%2 = param (3), slot=1 : f32
%3 = index %2, %1
%4 = load %3
%5 = const 0.0 : f32
%6 = {truth} %4, %5
%7 = not %6
%8 = index %0, %1
%9 = store %8, %5, %6
%10 = const 2 : index
%11 = sub %10, %1
%12 = index %0, %11
%13 = store %12, %5, %7
%14 = group {stores}
%15 = end %14, %1
{root}
"""
CHOSEN_LISTED = "%16 = linear %0, %1, %2, %3, %4, %6, %7, %8, %9, {other}%14, %15"


def chosen(outer: str = "loop", truth: str = "cmplt", stores: str = "%9, %13", listed: bool = True) -> UOp:
    other = "%11, %12, %13, " if "%13" in stores else ""
    root = CHOSEN_LISTED.format(other=other) if listed else '%16 = sink %15, name="chosen"'
    return parse(CHOSEN.format(outer=outer, truth=truth, stores=stores, root=root))


@pytest.mark.parametrize(
    ("outer", "kinds"), [("loop", {ObligationKind.ONCE}), ("thread", {ObligationKind.ONCE, ObligationKind.RACE})]
)
def test_a_truth_of_one_iteration_is_not_that_of_another(outer, kinds, worker):
    """An element is written at x[0] < 0 by the first Store, and by the other one where x[2] < 0 does not hold."""
    found = validate_kernel(chosen(listed=False), chosen(outer), worker)
    assert {v.kind for v in found if v.counterexample is not None} == kinds


def test_a_truth_of_the_body_before_is_not_another_one_after(worker):
    found = validate_kernel(chosen(stores="%9", listed=False), chosen(truth="cmpgt", stores="%9"), worker)
    assert {v.by for v in found if v.kind is ObligationKind.COVER} == {DecisionMethod.INTERPRETER}


# An index that memory holds

SCATTER = """
%0 = param (8), slot=0 : f32
%1 = range {rows}, axis_id=0, type={outer}
%2 = range 2, axis_id=1, type=loop
%3 = param (3), slot=1 : i32
%4 = index %3, {held}
%5 = load %4
%6 = cast %5 : index
%7 = const 2 : index
%8 = mul %6, %7
%9 = add %8, {column}
%10 = index %0, %9
%11 = const 1.0 : f32
%12 = const 0 : i32
%13 = cmpge %5, %12
%14 = const 4 : i32
%15 = cmplt %5, %14
%16 = and %13, %15
%17 = store %10, %11, %16
%18 = end %17, %2
%19 = end %18, %1
{root}
"""
LISTED = "%20 = linear %0, %1, %2, %3, %4, %5, %6, %8, %9, %10, %13, %15, %16, %17, %18, %19"


def scatter(root: str = LISTED, outer: str = "loop", held: str = "%1", column: str = "%2", rows: int = 3) -> UOp:
    return parse(SCATTER.format(root=root, outer=outer, held=held, column=column, rows=rows))


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, set()),
        ({"outer": "thread"}, {ObligationKind.ONCE, ObligationKind.RACE}),
        ({"rows": 2}, {ObligationKind.ONCE}),
        ({"column": "%7"}, {ObligationKind.BOUNDS}),
        ({"column": "%1"}, {ObligationKind.BOUNDS}),
    ],
)
def test_a_store_whose_index_memory_holds_stays_in_its_loops_in_their_order(changed, kinds, worker):
    found = validate_kernel(scatter('%20 = sink %19, name="scatter"'), scatter(**changed), worker)
    assert {v.kind for v in found if not v.is_proved} == kinds


#: Each iteration stores to an element that memory names, and to the one behind it.
TWO = """
%0 = param (4), slot=0 : f32
%1 = param (3), slot=1 : i32
%2 = const 0 : i32
%3 = const 2 : i32
%4 = const 1 : index
{stores}
{root}
"""
STORED = """
%{0} = range 3, axis_id={axis}, type=loop
%{1} = index %1, %{0}
%{2} = load %{1}
%{3} = cast %{2} : index
%{4} = cmpge %{2}, %2
%{5} = cmple %{2}, %3
%{6} = and %{4}, %{5}
"""


def test_stores_whose_index_memory_holds_do_not_leave_the_loop_that_orders_them(worker):
    """Where memory names 0 and then 1, element 1 is first the second Store's and then the first one's."""
    one = STORED.format(*range(10, 17), axis=0) + "%20 = index %0, %13\n%21 = const 1.0 : f32\n%22 = store %20, %21, %16\n"
    here = "%23 = add %13, %4\n%24 = index %0, %23\n%25 = const 2.0 : f32\n%26 = store %24, %25, %16\n"
    there = STORED.format(*range(30, 37), axis=1) + here.replace("%13", "%33").replace("%16", "%36")
    together = one + here + "%27 = group %22, %26\n%28 = end %27, %10\n"
    apart = one + "%27 = end %22, %10\n" + there + "%28 = end %26, %30\n"
    before = parse(TWO.format(stores=together, root='%40 = sink %28, name="two"'))
    listed = "%40 = linear %0, %1, %10, %11, %12, %13, %14, %15, %16, %20, %22, "
    same = parse(TWO.format(stores=together, root=listed + "%23, %24, %26, %27, %28"))
    other = listed + "%27, %30, %31, %32, %33, %34, %35, %36, %23, %24, %26, %28"
    assert not refuted(before, same, worker)
    assert ObligationKind.ONCE in {v.kind for v in refuted(before, parse(TWO.format(stores=apart, root=other)), worker)}


# A named variable

SOME = """
%0 = param (3), slot=0 : f32
%1 = param (), slot=none, name="n", bounds=[1, 3] : index
%2 = range %1, axis_id=0, type=loop
%3 = index %0, %2
%4 = const 1.0 : f32
%5 = store %3, %4
%6 = end %5, %2
%7 = sink %6, name="some"
"""
SOME_LISTED = """
%0 = param (3), slot=0 : f32
%1 = param (), slot=none, name="n", bounds=[1, 3] : index
%2 = range 3, axis_id=0, type=loop
%3 = index %0, %2
%4 = const 1.0 : f32
%5 = cmplt %2, %1
%6 = add %2, %1
%7 = const {never} : index
%8 = cmpne %6, %7
%9 = and %5, %8
%10 = store %3, %4, %9
%11 = end %10, %2
%12 = linear %0, %1, %2, %3, %5, %6, %8, %9, %10, %11
"""


def test_what_is_written_for_another_value_of_a_variable_does_not_count(worker):
    """All three elements are written for n = 3; for n = 2 it has to be two, of which the gate of the second one keeps one out."""
    assert not refuted(parse(SOME), parse(SOME_LISTED.format(never=9)), worker)
    (bad,) = refuted(parse(SOME), parse(SOME_LISTED.format(never=3)), worker)
    assert bad.kind is ObligationKind.COVER and str(bad).endswith("element 1 is not written, where n = 2")


def test_of_many_values_of_a_variable_each_has_its_own_elements(worker):
    """Of 200 values together, both bodies write all elements."""
    text = """
%0 = param (200), slot=0 : f32
%1 = param (), slot=none, name="n", bounds=[0, 199] : index
%2 = sub 199, %1
%3 = index %0, {at}
%4 = const 1.0 : f32
%5 = store %3, %4
%6 = {root}
"""
    before = parse(text.format(at="%1", root="sink %5"))
    for at, kinds in (("%1", set()), ("%2", {ObligationKind.COVER})):
        after = parse(text.format(at=at, root="linear %0, %1, %2, %3, %5"))
        assert {v.kind for v in refuted(before, after, worker)} == kinds


def test_a_variable_is_told_from_a_loop_that_has_its_name(worker):
    before = ONES.replace("240", "4")
    after = """
%0 = param (4), slot=0 : f32
%1 = range 4, axis_id=0, type=loop
%2 = param (), slot=none, name="r0", bounds=[0, 3] : index
%3 = index %0, {at}
%4 = const 1.0 : f32
%5 = store %3, %4
%6 = end %5, %1
%7 = linear %0, %1, %2, %3, %5, %6
"""
    assert not refuted(parse(before), parse(after.format(at="%1")), worker)
    assert {v.kind for v in refuted(parse(before), parse(after.format(at="%2")), worker)} == {ObligationKind.ONCE}


#: What is stored depends on `{read}` of the output; AROUND keeps other values there first.
ONTO = """
%0 = param (2), slot=0 : f32
%1 = range 2, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (2), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = load {read}
%7 = add %5, %6
%8 = store %2, %7
%9 = end %8, %1
%10 = sink %9, name="onto"
"""
AROUND = """
%0 = param (2), slot=0 : f32
%1 = param (2), slot=1 : f32
%2 = range 2, axis_id=0, type=loop
%3 = index %0, %2
%4 = index %1, %2
%5 = load %4
%6 = store %3, %5
%7 = after %3, %6
%8 = load %7
%9 = add %5, %8
%10 = store %3, %9
%11 = end %10, %2
%12 = linear %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11
"""


def test_values_are_kept_in_the_output_where_it_is_not_read(worker):
    """R146: of twice an element, the first one may wait in the output; of an element and what is there, it may not."""
    assert not refuted(parse(ONTO.format(read="%4")), parse(AROUND), worker)
    bad = refuted(parse(ONTO.format(read="%2")), parse(AROUND), worker)
    assert {v.kind for v in bad} == {ObligationKind.ONCE}


LAST_WINS = """
%0 = param (1), slot=0 : f32
%1 = range 4, axis_id=0, type=loop
%2 = after %0, %1
%3 = index %2, 0
%4 = load %3
%5 = index %0, 0
%6 = param (4), slot=1 : f32
%7 = index %6, %1
%8 = load %7
%9 = add %4, %8
%10 = store %5, %9{gate}
%11 = end %10, %1
%12 = sink %11, name="sum"
"""


def test_iterations_in_order_that_are_left_out_are_not_covered_by_the_first(worker):
    """Each iteration stores the same element, of which the last one counts."""
    gated = LAST_WINS.format(gate=", %13").replace("%10 = store", "%13 = cmplt %1, 1\n%10 = store")
    before, after = parse(LAST_WINS.format(gate="")), parse(gated)
    assert not [v for v in refuted(before, before, worker) if v.kind is ObligationKind.COVER]
    assert [v for v in refuted(before, after, worker) if v.kind is ObligationKind.COVER]
