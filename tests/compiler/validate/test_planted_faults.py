"""Faults planted into kernels: each is refuted, and the interpreter sees it."""

import pytest

from uops.compiler.prove.solver import Worker
from uops.compiler.validate.decide import decide
from uops.compiler.validate.kernel import kernel
from uops.compiler.validate.model import Kind
from uops.compiler.validate.plan import plan
from uops.fuzz.replay_kernel import replay_kernel, replay_launch
from uops.spec.node import UOp
from uops.spec.text import parse

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
    "index off by one": ({"second": "%10"}, {Kind.ONCE, Kind.COVER}),
    "index beyond the end": ({"first": "%12", "second": "%24"}, {Kind.BOUNDS}),
    "swapped strides": ({"stride": 3}, {Kind.ONCE, Kind.COVER}),
    "wrong loop extent": ({"rows": 2}, {Kind.COVER}),
    "too long a loop": ({"rows": 4}, {Kind.BOUNDS}),
    "duplicate store": ({"first": "%12"}, {Kind.ONCE}),
}


def after(**changed: object) -> UOp:
    text = AFTER.format(**{**FINE, **changed})
    extra = "%24 = add %12, %11\n" if "%24" in text.split("%23 = linear")[0] else ""
    head, tail = text.split("%13 = index", 1)
    return parse(head + extra + "%13 = index" + tail.replace("%12, %13", "%12, %24, %13" if extra else "%12, %13"))


@pytest.fixture(scope="module")
def worker():
    found = Worker()
    yield found
    found.close()


def refuted(before: UOp, changed: UOp, worker: Worker):
    return [v for v in kernel(before, changed, worker) if not v.proved]


def test_what_is_right_is_validated(worker):
    assert not refuted(parse(BEFORE), after(), worker)
    assert not replay_kernel(parse(BEFORE), after()).confirmed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refuted_and_replays(fault, worker):
    changes, kinds = FAULTS[fault]
    bad = refuted(parse(BEFORE), after(**changes), worker)
    assert bad and {v.kind for v in bad} & kinds
    assert all(v.counterexample is not None for v in bad)
    seen = replay_kernel(parse(BEFORE), after(**changes), bad[0].counterexample)
    assert seen.confirmed, seen.words


def test_what_is_written_more_than_before_is_refuted(worker):
    bad = refuted(parse(COPY.format(n=12, rows=2, columns=4, stride=4)), after(), worker)
    assert {v.kind for v in bad} == {Kind.COVER, Kind.READS}
    assert "element 8 is written, and was not before" in " ".join(map(str, bad))


def test_a_kernel_that_stores_nothing_any_more_is_refuted(worker):
    (bad,) = refuted(parse(ONES), parse("%0 = param (240), slot=0 : f32\n%1 = linear %0"), worker)
    assert bad.kind is Kind.COVER and not bad.proved


def test_a_thread_per_row_is_no_race_and_one_for_all_rows_is(worker):
    assert not refuted(parse(BEFORE), after(outer="thread"), worker)
    bad = refuted(parse(BEFORE), after(outer="thread", stride=0), worker)
    assert Kind.RACE in {v.kind for v in bad}
    assert replay_kernel(parse(BEFORE), after(outer="thread", stride=0)).confirmed


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
    assert {v.kind for v in refuted(before, parse(NEXT.format(outer="thread")), worker)} == {Kind.RACE}


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
        (5, "", ", %17", Kind.BOUNDS),
        (5, ", %14, %17", "", Kind.BOUNDS),
        (6, ", %14, %17", ", %17", Kind.BOUNDS),
        (4, ", %14, %17", ", %17", Kind.COVER),
    ],
)
def test_a_missing_or_wrong_gate_is_refuted_and_replays(limit, load, store, kind, worker):
    right = parse(GATED.format(limit=5, load=", %14, %17", store=", %17"))
    wrong = parse(GATED.format(limit=limit, load=load, store=store))
    assert not refuted(parse(FIVE), right, worker)
    bad = refuted(parse(FIVE), wrong, worker)
    assert kind in {v.kind for v in bad}
    assert replay_kernel(parse(FIVE), wrong, bad[0].counterexample).confirmed


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


def test_a_width_that_wraps_is_refuted_and_replays(worker):
    assert not refuted(parse(ONES), parse(WIDE.format(width="i16")), worker)
    bad = refuted(parse(ONES), parse(WIDE.format(width="i8")), worker)
    assert Kind.WIDTH in {v.kind for v in bad}
    assert replay_kernel(parse(ONES), parse(WIDE.format(width="i8")), bad[0].counterexample).confirmed


# A barrier

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
EIGHT = FIVE.replace("(5)", "(8)").replace("range 5", "range 8")


def test_a_dropped_barrier_is_refuted_and_replays(worker):
    right, wrong = (parse(SHARED.format(order=order, out="%12")) for order in ("barrier %8", "group %8"))
    assert not refuted(parse(EIGHT), right, worker)
    bad = refuted(parse(EIGHT), wrong, worker)
    assert {v.kind for v in bad} == {Kind.RACE}
    assert replay_kernel(parse(EIGHT), wrong).confirmed


@pytest.mark.parametrize("lanes", [2, 8])
def test_a_barrier_orders_nothing_that_comes_after_it(lanes, worker):
    wrong = (
        SHARED.format(order="barrier %8", out="%11").replace("range 8", f"range {lanes}").replace("const 7", f"const {lanes - 1}")
    )
    bad = refuted(parse(EIGHT), parse(wrong), worker)
    assert any(v.kind is Kind.RACE and v.place.startswith("argument 0") for v in bad)


# An index that memory holds

SCATTER = """
%0 = param (8), slot=0 : f32
%1 = range 3, axis_id=0, type={outer}
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


def scatter(root: str = LISTED, outer: str = "loop", held: str = "%1", column: str = "%2") -> UOp:
    return parse(SCATTER.format(root=root, outer=outer, held=held, column=column))


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, set()),
        ({"outer": "thread"}, {Kind.ONCE, Kind.RACE}),
        ({"column": "%7"}, {Kind.BOUNDS}),
        ({"column": "%1"}, {Kind.BOUNDS}),
    ],
)
def test_a_store_whose_index_memory_holds_stays_in_its_loops_in_their_order(changed, kinds, worker):
    found = kernel(scatter('%20 = sink %19, name="scatter"'), scatter(**changed), worker)
    assert {v.kind for v in found if not v.proved} == kinds


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
    assert bad.kind is Kind.COVER and str(bad).endswith("element 1 is not written, where n = 2")


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
    assert {v.kind for v in refuted(parse(before), parse(after.format(at="%2")), worker)} == {Kind.ONCE}


# A plan

LAUNCH = """
%0 = param (8), slot=0 : f32
%1 = range 8, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (8), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = store %2, %5
%7 = end %6, %1
%8 = sink %7, name="copy"
%9 = param (8), slot=0 : f32
%10 = buffer size=8, device="CPU", addrspace=global, unique=1 : f32
%11 = buffer size=8, device="CPU", addrspace=global, unique=2 : f32
%12 = buffer size=8, device="CPU", addrspace=global, unique=3 : f32
%13 = buffer size=8, device="CPU", addrspace=global, unique=4 : f32
%14 = buffer size=128, device="CPU", addrspace=global, unique=5 : u8
{places}
%17 = call %8, {a}, %10, written=[0]
%18 = call %8, {b}, %10, written=[0]
%19 = call %8, %13, {a}, written=[0]
%20 = call %8, %12, {b}, written=[0]
%21 = linear %17, %18, %19, %20
"""
OTHER = '%15 = buffer size=8, device="CPU", addrspace=global, unique=6 : f32'
PLACES = "%15 = slice %14, 0, size=8 : f32\n%16 = slice %14, {offset}, size=8 : f32"


def test_an_overlapping_plan_is_refuted_and_replays(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    right, wrong = (parse(LAUNCH.format(places=PLACES.format(offset=o), a="%15", b="%16")) for o in (64, 16))
    assert all(decide(c, worker).proved for c in plan(before, right))
    bad = [v for c in plan(before, wrong) if not (v := decide(c, worker)).proved]
    assert [v.kind for v in bad] == [Kind.PLAN] and "at the same time" in bad[0].place
    assert replay_launch(before, wrong).confirmed and not replay_launch(before, right).confirmed


def test_what_a_call_reads_and_what_it_writes_share_no_bytes(worker):
    chain = LAUNCH.replace("%18 = call %8, {b}, %10", "%18 = call %8, {b}, {a}").replace("%13, {a}, written", "%13, {b}, written")
    before = parse(chain.format(places=OTHER, a="%11", b="%15"))
    right, wrong = (parse(chain.format(places=PLACES.format(offset=o), a="%15", b="%16")) for o in (32, 0))
    assert all(decide(c, worker).proved for c in plan(before, right))
    bad = [v for c in plan(before, wrong) if not (v := decide(c, worker)).proved]
    assert [v.kind for v in bad] == [Kind.PLAN] and "at the same time" in bad[0].place


def test_a_place_beyond_the_arena_and_an_argument_passed_twice_are_refuted(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    beyond = parse(LAUNCH.format(places=PLACES.format(offset=112), a="%15", b="%16"))
    assert _open(before, beyond, worker) == {"buffer 6 is inside of its arena"}
    twice = parse(LAUNCH.replace("%13, {a}, written", "%13, %13, written").format(places=OTHER, a="%11", b="%15"))
    assert _open(twice, twice, worker) == {"call 2 writes argument 0 and has it once"}


def _open(before: UOp, after: UOp, worker: Worker) -> set[str]:
    return {v.place for v in (decide(c, worker) for c in plan(before, after)) if not v.proved}
