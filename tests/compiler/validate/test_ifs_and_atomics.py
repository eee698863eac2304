"""Ifs and AtomicAdds: kernels that lose an addition, or move an access or Barrier into an If, are refused."""

import pytest

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate.certificate import generate_distinct_claims_of_kernel
from uops.compiler.validate.decide import decide_by_solver
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.model import DecisionMethod, ObligationKind
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.values import validate_linearization
from uops.spec.ir.args import SinkArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, show

HEAD = """
%0 = param (8), slot=0 : i32
%1 = range 8, axis_id=0, type={kind}
%2 = index %0, %1
%3 = const 1 : i32
"""
ONE_SUM = "%4 = atomicadd %2, %3\n%5 = end %4, %1\n"
TWO_SUMS = "%4 = atomicadd %2, %3\n%6 = const 2 : i32\n%7 = atomicadd %2, %6\n%8 = group %4, %7\n%5 = end %8, %1\n"
STORE = "%4 = store %2, %3\n%5 = end %4, %1\n"


def graph(effects: str, kind: str = "global") -> UOp:
    return parse(HEAD.format(kind=kind) + effects + '%9 = sink %5, name="k"')


def listing(effects: str, listed: str, kind: str = "global") -> UOp:
    return parse(HEAD.format(kind=kind) + effects + f"%9 = linear %0, %1, %2, {listed}")


def refused(before: UOp, after: UOp, worker: SolverWorker):
    return [v for v in validate_kernel(before, after, worker) if not v.is_proved]


LISTED_SUM = listing(ONE_SUM, "%4, %5")
LISTED_STORE = listing(STORE, "%4, %5")
LOOPED_SUM = listing(
    "%6 = range 3, axis_id=1, type=loop\n%4 = atomicadd %2, %3\n%7 = end %4, %6\n%5 = end %7, %1\n", "%6, %4, %7, %5"
)
CLEARED_SUM = listing(
    "%6 = store %2, %3\n%7 = after %0, %6\n%8 = index %7, %1\n%4 = atomicadd %8, %3\n%5 = end %4, %1\n", "%6, %7, %8, %4, %5"
)
SUM_THEN_STORE = listing(
    "%4 = atomicadd %2, %3\n%7 = after %0, %4\n%8 = index %7, %1\n%6 = store %8, %3\n%5 = end %6, %1\n", "%4, %7, %8, %6, %5"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [(graph(ONE_SUM), LISTED_SUM), (graph(TWO_SUMS), listing(TWO_SUMS, "%4, %7, %8, %5")), (graph(STORE), CLEARED_SUM)],
    ids=["one sum", "two sums", "a Store that becomes a sum behind a Store"],
)
def test_as_many_additions_are_validated(before, after, worker):
    assert not refused(before, after, worker)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (graph(TWO_SUMS), LISTED_SUM, "element 0 is added to 1 times, and was 2 times"),
        (graph(ONE_SUM), LOOPED_SUM, "element 0 is added to 3 times, and was 1 times"),
        (graph(ONE_SUM), LISTED_STORE, "element 0 is added to 0 times, and was 1 times"),
        (graph(STORE), LISTED_SUM, "element 0 is not written"),
        (graph(ONE_SUM), CLEARED_SUM, "element 0 is written, and was not before"),
        (graph(STORE), SUM_THEN_STORE, "to what is stored before: not decided"),
    ],
    ids=["two become one", "one becomes three", "a Store for a sum", "a sum for a Store", "a Store before the sum", "a late Store"],
)
def test_other_additions_are_refused(before, after, words, worker):
    bad = refused(before, after, worker)
    assert ObligationKind.COVER in {v.kind for v in bad}
    assert words in " ".join(map(str, bad))
    claims = generate_distinct_claims_of_kernel(read_accesses(before), read_accesses(after))
    assert not all(decide_by_solver(c, worker).is_proved for c in claims), "a certificate has no such claim"


STORE_THEN_SUM = CLEARED_SUM
#: Each iteration stores one element, and adds to one.
IN_TURN = """%6 = store %2, %3
%7 = after %0, %6
%10 = const 7 : index
%11 = sub %10, %1
%8 = index %7, {added}
%4 = atomicadd %8, %3
%5 = end %4, %1
"""


def kernel_of(listed: UOp) -> UOp:
    """The graph whose instructions are listed."""
    return UOp(Op.SINK, (listed.src[-1],), SinkArg("k"))


def enlarge(root: UOp) -> UOp:
    """The same kernel of more elements than are marked one by one."""
    return parse(show(root).replace("param (8)", "param (300000000)").replace("range 8", "range 300000000"))


def is_certified(before: UOp, after: UOp, worker: SolverWorker) -> bool:
    return all(
        decide_by_solver(c, worker).is_proved
        for c in generate_distinct_claims_of_kernel(read_accesses(before), read_accesses(after))
    )


@pytest.mark.parametrize("size", [lambda root: root, enlarge], ids=["few elements", "many elements"])
def test_a_store_and_a_sum_of_one_element_keep_their_order(size, worker):
    listed = [size(STORE_THEN_SUM), size(SUM_THEN_STORE)]
    for before in map(kernel_of, listed):
        for after in listed:
            is_same = kernel_of(after) is before
            assert (not refused(before, after, worker)) is is_same
            assert is_certified(before, after, worker) is is_same
            if not is_same:
                assert "a Store and an addition may change places" in " ".join(map(str, refused(before, after, worker)))


@pytest.mark.parametrize(("added", "is_right"), [("%1", True), ("%11", False)], ids=["its own", "one of another iteration"])
def test_a_sum_is_to_an_element_that_an_earlier_iteration_stores(added, is_right, worker):
    before, after = graph(STORE, "loop"), listing(IN_TURN.format(added=added), "%6, %7, %11, %8, %4, %5", "loop")
    assert (not refused(before, after, worker)) is is_right
    assert is_certified(before, after, worker) is is_right


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_store_that_adds_may_stand_behind_a_sum(dtype, worker):
    text = "%4 = atomicadd %2, %3\n%7 = after %0, %4\n%8 = index %7, %1\n%10 = load %8\n%11 = add %10, %3\n"
    text = listing(text + "%6 = store %8, %11\n%5 = end %6, %1\n", "%4, %7, %8, %10, %11, %6, %5")
    after = parse(show(text).replace("i32", dtype).replace("const 1 :", "const 1.0 :"))
    assert not refused(kernel_of(after), after, worker)


#: Each element counts its own number of the argument.
COUNTS = """
%0 = param (8), slot=0 : i32
%10 = param (8), slot=1 : i32
%1 = range 8, axis_id=0, type=loop
%11 = index %10, %1
%12 = load %11
%13 = const 7 : i32
%14 = and %12, %13
%2 = index %0, %14
%3 = const 1 : i32
%4 = atomicadd %2, %3
"""


@pytest.mark.parametrize(("trips", "is_refused"), [(1, False), (2, True)])
def test_of_elements_by_value_all_additions_are_counted(trips, is_refused, worker):
    before = parse(COUNTS + '%5 = end %4, %1\n%9 = sink %5, name="k"')
    loop = f"%6 = range {trips}, axis_id=1, type=loop\n"
    after = parse(loop + COUNTS + "%7 = end %4, %6\n%5 = end %7, %1\n%9 = linear %0, %10, %1, %11, %12, %14, %2, %6, %4, %7, %5")
    (found,) = (v for v in validate_kernel(before, after, worker) if v.place.startswith("sums"))
    assert found.is_proved is not is_refused
    assert found.by is (DecisionMethod.POINTS if is_refused else DecisionMethod.INTERPRETER)


# Ifs

#: Half of the elements are stored to.
HALF = (
    "%6 = cast %1 : i32\n%7 = const 4 : i32\n%8 = cmplt %6, %7\n%10 = if %8\n%4 = store %2, %3\n%11 = endif %10\n%5 = end %4, %1\n"
)


def test_a_store_in_an_if_writes_what_its_gate_says(worker):
    gated = graph(HALF.replace("%4 = store %2, %3", "%4 = store %2, %3, %8"), "loop")
    in_if = listing(HALF, "%6, %8, %10, %4, %11, %5", "loop")
    assert not refused(gated, in_if, worker)
    assert not refused(gated, listing(HALF.replace("%2, %3", "%2, %3, %8"), "%6, %8, %10, %4, %11, %5", "loop"), worker)
    bad = refused(graph(STORE, "loop"), in_if, worker)
    assert "element 4 is not written" in " ".join(map(str, bad))
    bad = refused(gated, listing(STORE, "%4, %5", "loop"), worker)
    assert "element 4 is written, and was not before" in " ".join(map(str, bad))


def test_an_if_of_a_graph_is_a_gate_too(worker):
    text = HALF.replace("%4 = store %2, %3", "%12 = after %0, %10\n%13 = index %12, %1\n%4 = store %13, %3")
    assert not refused(graph(text, "loop"), listing(text, "%6, %8, %10, %12, %13, %4, %11, %5", "loop"), worker)
    assert refused(graph(text, "loop"), listing(STORE, "%4, %5", "loop"), worker)


def test_an_if_gates_what_is_out_of_bounds(worker):
    text = "%20 = add %1, 4\n%21 = index %0, %20\n" + HALF.replace("store %2", "store %21")
    assert not refused(
        graph(text.replace("%21, %3", "%21, %3, %8"), "loop"), listing(text, "%20, %21, %6, %8, %10, %4, %11, %5", "loop"), worker
    )
    bad = refused(graph(text, "loop"), listing(text, "%20, %21, %4, %5", "loop"), worker)
    assert {v.kind for v in bad} == {ObligationKind.BOUNDS}


#: A reversal in LOCAL memory; the Barrier may stand in an If.
REVERSED = """
%0 = param (8), slot=0 : i32
%1 = range 8, axis_id=0, type=local
%2 = buffer size=8, device="CPU", addrspace=local, unique=1 : i32
%3 = cast %1 : i32
%4 = index %2, %1
%5 = store %4, %3
%6 = const 4 : i32
%7 = cmplt %3, %6
%8 = if %7
%9 = barrier %5
%19 = endif %8
%10 = after %2, %9
%11 = const 7 : i32
%12 = sub %11, %3
%13 = index %10, %12
%14 = load %13
%15 = index %0, %1
%16 = store %15, %14
%17 = end %16, %1
%18 = """


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("%5, %9, %10", ""),
        ("%5, %7, %8, %9, %19, %10", "it is in an If whose condition may differ between the lanes of a workgroup"),
    ],
)
def test_a_barrier_in_a_divergent_if_is_none(listed, words, worker):
    after = parse(REVERSED + f"linear %0, %2, %1, %3, %4, {listed}, %12, %13, %14, %15, %16, %17")
    bad = refused(parse(REVERSED + 'sink %17, name="k"'), after, worker)
    assert bool(bad) is bool(words) and words in " ".join(map(str, bad))


# Lists

ROOT = """
%0 = param (8), slot=0 : f32
%1 = range 8, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (8), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = sqrt %5
%7 = const 1.0 : f32
%8 = cmplt %5, %7
%9 = store %2, %6, %8
%10 = end %9, %1
"""


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("%0, %3, %1, %4, %5, %8, %20, %2, %6, %9, %21, %10", ""),
        ("%0, %3, %1, %4, %5, %8, %2, %6, %9, %21, %20, %10", "instruction 10 is used by 9"),
        ("%0, %3, %1, %4, %5, %8, %21, %20, %2, %6, %9, %10", "instruction 7 is used by 6"),
        ("%0, %3, %1, %4, %5, %20, %2, %6, %9, %21, %10", "a CMPLT that instruction 5 uses is not listed"),
        ("%0, %3, %1, %4, %5, %8, %20, %2, %9, %21, %10", "a SQRT that instruction 8 uses is not listed"),
    ],
)
def test_a_list_closes_an_if_behind_it_and_has_all_operands(listed, words):
    graph = parse(ROOT + "%11 = sink %10")
    found = validate_linearization(graph, parse(ROOT + f"%20 = if %8\n%21 = endif %20\n%30 = linear {listed}")).counterexample
    assert (found.words if found else "") == words


#: One Store in an If of the graph, and one behind it.
BRANCHED = """
%0 = param (8), slot=0 : i32
%1 = param (8), slot=1 : i32
%2 = range 8, axis_id=0, type=loop
%3 = cast %2 : i32
%4 = const 4 : i32
%5 = cmplt %3, %4
%6 = if %5
%7 = after %0, %6
%8 = index %7, %2
%9 = store %8, %3
%10 = endif %6
%11 = index %1, %2
%12 = store %11, %3
%13 = group %9, %10, %12
%14 = end %13, %2
"""


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("%6, %7, %8, %9, %10, %11, %12", ""),
        ("%11, %12, %6, %7, %8, %9, %10", ""),
        ("%6, %7, %8, %9, %11, %12, %10", "instruction 10 is not in the Ifs that guard it"),
        ("%6, %10, %7, %8, %9, %11, %12", "instruction 7 is not in the Ifs that guard it"),
        ("%6, %7, %8, %9, %11, %10, %12", "instruction 11 needs a INDEX of a block that is closed"),
    ],
)
def test_an_if_of_the_graph_holds_what_it_guards_and_nothing_else(listed, words):
    graph = parse(BRANCHED + "%15 = sink %14")
    found = validate_linearization(graph, parse(BRANCHED + f"%15 = linear %0, %1, %2, %3, %5, {listed}, %13, %14")).counterexample
    assert (found.words if found else "") == words


def test_an_if_that_ends_outside_of_its_loop_does_not_nest():
    text = BRANCHED.replace("group %9, %10, %12", "group %9, %12")
    graph = parse(text + "%15 = sink %14")
    found = validate_linearization(
        graph, parse(text + "%15 = linear %0, %1, %2, %3, %5, %11, %12, %6, %7, %8, %9, %13, %14, %10")
    ).counterexample
    assert found is not None and found.words == "instruction 12 closes loops that are not the innermost ones"
