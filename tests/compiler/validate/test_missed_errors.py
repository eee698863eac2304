"""Kernels whose faults the validator once missed, and a legal one that it refused."""

from __future__ import annotations

import numpy as np
import pytest

from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.certificate import generate_distinct_claims_of_kernel
from uops.compiler.validate.decide import decide_by_solver
from uops.compiler.validate.kernel import validate_kernel
from uops.compiler.validate.model import ObligationKind, ValidationClaim
from uops.compiler.validate.races import decide_races
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.terms import LinearSum, Operation, Unknown
from uops.spec.errors import SpecError
from uops.spec.ir.text import parse


def list_instructions(text: str) -> str:
    """The text of a kernel as a list of its instructions, in the order of the lines."""
    *lines, sink = text.strip().splitlines()
    numbers = ", ".join(line.split(" = ")[0] for line in lines if " = const " not in line)
    return "\n".join([*lines, f"{sink.split(' = ')[0]} = linear {numbers}"])


def is_proved(before: str, after: str, worker: SolverWorker) -> bool:
    return all(v.is_proved for v in validate_kernel(parse(before), parse(list_instructions(after)), worker))


_FILL = """
%0 = param (8), slot=0 : f32
%1 = param (), slot=none, name="n", bounds=[0, 1] : index
%2 = range 8, axis_id=0, type=loop
%3 = index %0, %2
%4 = const 1.0 : f32
"""
_ALWAYS = _FILL + '%6 = store %3, %4\n%7 = end %6, %2\n%8 = sink %7, name="k"'
_FOR_ONE_N = _FILL + '%5 = cmpeq %1, 1\n%6 = store %3, %4, %5\n%7 = end %6, %2\n%8 = sink %7, name="k"'
_FOR_EACH_N = (
    _FILL
    + """%9 = const 2.0 : f32
%5 = cmpeq %1, 0
%6 = cmpeq %1, 1
%7 = store %3, %4, %5
%8 = store %3, %9, %6
%10 = group %7, %8
%11 = end %10, %2
%12 = sink %11, name="k"
"""
)


def test_a_gate_on_a_variable_counts(worker: SolverWorker) -> None:
    assert is_proved(_FOR_ONE_N, _FOR_ONE_N, worker) and is_proved(_FOR_EACH_N, _FOR_EACH_N, worker)
    assert not is_proved(_FOR_ONE_N, _ALWAYS, worker)
    assert not is_proved(_ALWAYS, _FOR_ONE_N, worker)


_BY_REGISTER = """
%0 = param (8), slot=0 : f32
%1 = param (8), slot=1 : i32
%2 = range 8, axis_id=0, type=loop
%3 = index %0, %2
%4 = const 1.0 : f32
%10 = buffer size=1, device="CPU", addrspace=reg, unique=1 : i32
%11 = index %1, %2
%12 = load %11
%13 = index %10, 0
%14 = store %13, %12
%15 = after %10, %14
%16 = index %15, 0
%17 = load %16
%18 = const 5 : i32
%5 = cmplt %17, %18
%6 = store %3, %4, {gate}
%7 = end %6, %2
%8 = sink %7, name="k"
"""


def test_no_points_stand_for_a_gate_on_a_loaded_value(worker: SolverWorker) -> None:
    gated, ungated = _BY_REGISTER.format(gate="%5"), _BY_REGISTER.replace(", {gate}", "")
    verdicts = validate_kernel(parse(gated), parse(list_instructions(ungated)), worker)
    assert [v for v in verdicts if "all written" in str(v) and "by points" in str(v)] == []


_DIGITS = """
%0 = param (5000), slot=0 : f32
%1 = param (), slot=none, name="n", bounds=[1, 1000] : index
%2 = range 8, axis_id=0, type={kind}
%3 = range %1, axis_id=1, type={kind}
%4 = mul %3, 4
%5 = add %2, %4
%6 = index %0, %5
%7 = const 4 : index
%8 = cmplt %2, %7
%9 = cmpge %2, %7
%10 = const 1.0 : f32
%11 = const 2.0 : f32
%12 = store %6, %10, %8
%13 = store %6, %11, %9
%14 = group %12, %13
%15 = end %14, %3
%16 = end %15, %2
%17 = sink %16, name="k"
"""


@pytest.mark.parametrize("kind", ["thread", "local"])
def test_two_gates_may_make_the_digits_of_one_number_overlap(kind: str, worker: SolverWorker) -> None:
    text = list_instructions(_DIGITS.format(kind=kind))
    assert not all(v.is_proved for v in decide_races(read_accesses(parse(text)), worker))


_LANES = """
%0 = param (4), slot=0 : f32
%1 = param (2), slot=1 : u8
%30 = buffer size=2, device="CPU", addrspace=reg, unique=1 : u8
%2 = range 4, axis_id=0, type=loop
%23 = const 0 : i32
%4 = cast %2 : i32
%5 = const 0 : i32
%3 = range 4, axis_id=1, type=loop
%25 = cast %3 : i32
%6 = stack %4, %25
%7 = stack 0, 1
%8 = index %1, %7
%9 = load %8
%31 = index %30, %7
%10 = store %31, %9
%32 = after %30, %10
%33 = index %32, %7
%34 = load %33
%35 = cast %34 : i32
%11 = add %35, %6
%12 = index %11, 0
%13 = index %11, 1
%14 = sub %12, %13
%16 = max %14, %23
%17 = const 1.0 : f32
%18 = index %0, %16
%19 = load %18
%26 = param (16), slot=2 : f32
%27 = mul %2, 4
%28 = add %27, %3
%29 = index %26, %28
%36 = store %29, %19
%21 = end %36, %3
%22 = end %21, %2
%24 = sink %22, name="k"
"""


def test_each_lane_of_a_loaded_vector_is_an_unknown_of_its_own(worker: SolverWorker) -> None:
    assert not is_proved(_LANES, _LANES, worker)


_TABLE_OF_TABLES = """
%0 = param (64), slot=0 : f32
%1 = range 2, axis_id=0, type=loop
%2 = const 0 : i32
%3 = const 1 : i32
%4 = const 10 : i32
%5 = const 11 : i32
%6 = stack %2, %3
%7 = stack %4, %5
%8 = stack %6, %7
%9 = index %8, %1, 1
%10 = index %0, {element}
%11 = const 1.0 : f32
%12 = store %10, %11
%13 = end %12, %1
%14 = sink %13, name="k"
"""


@pytest.mark.parametrize(("step", "offset", "is_right"), [(10, 1, True), (11, 0, False)])
def test_a_stack_of_stacks_is_read_by_all_of_its_positions(step: int, offset: int, is_right: bool, worker: SolverWorker) -> None:
    """The kernel writes elements 1 and 11; once it was read as one that writes elements 0 and 11."""
    elements = f"%15 = mul %1, {step}\n%16 = add %15, {offset}\n%10 ="
    before = _TABLE_OF_TABLES.format(element="%16").replace("%10 =", elements)
    after = _TABLE_OF_TABLES.format(element="%9")
    assert is_proved(before, after, worker) is is_right
    claims = generate_distinct_claims_of_kernel(*(read_accesses(parse(t)) for t in (before, list_instructions(after))))
    assert is_right or not all(decide_by_solver(c, worker).is_proved for c in claims)


@pytest.mark.parametrize("positions", ["%1, 2", "2, %1"])
def test_each_position_in_a_stack_of_stacks_is_in_range(positions: str, worker: SolverWorker) -> None:
    text = _TABLE_OF_TABLES.format(element="%9").replace("index %8, %1, 1", f"index %8, {positions}")
    assert not is_proved(text, text, worker)


def test_an_access_by_several_axes_is_not_read() -> None:
    rows = _TABLE_OF_TABLES.replace("index %8, %1, 1", "const 0 : i32").format(element="%8")
    with pytest.raises(SpecError, match="at most one axis, got 2"):
        read_accesses(parse(rows))


_COUNT = """
%0 = param (4), slot=0 : i32
%1 = range 4, axis_id=0, type=global
%2 = range {trips}, axis_id=1, type=loop
%3 = after %0, %2
%4 = index %3, %1
%5 = load %4
%6 = const 1 : i32
%7 = add %5, %6
%8 = store %4, %7
{second}%9 = end %8, %2
%10 = end %9, %1
%11 = sink %10, name="k"
"""
_SECOND = """%12 = after %3, %8
%13 = index %12, %1
%14 = store %13, %6
%9 = end %14, %2
"""


def certified(before: str, after: str, worker: SolverWorker) -> bool:
    claims = generate_distinct_claims_of_kernel(read_accesses(parse(before)), read_accesses(parse(list_instructions(after))))
    return all(decide_by_solver(c, worker).is_proved for c in claims)


@pytest.mark.parametrize("second", ["", _SECOND], ids=["in a loop", "by two Stores"])
def test_an_element_that_both_bodies_read_is_written_again_only_if_it_was_before(second: str, worker: SolverWorker) -> None:
    once, thrice = (_COUNT.format(trips=trips, second="") for trips in (1, 3))
    again = _COUNT.format(trips=1 if second else 3, second=second).replace("%9 = end %8, %2\n" if second else "no line", "")
    for holds in (is_proved, certified):
        assert holds(once, once, worker)
        assert holds(again, again, worker)
        assert not holds(once, again, worker)
    assert certified(thrice, thrice, worker)


_FROM_TABLE = """
%0 = param (64), slot=0 : f32
%1 = range 2, axis_id=0, type={kind}
%2 = const 3 : i32
%3 = const 5 : i32
%4 = const 9 : i32
%5 = const {first} : i32
%6 = cast %1 : i32
%7 = stack %2, %3, {last}
%8 = add %6, %5
%9 = index %7, %8
%10 = index %0, %9
%11 = const 1.0 : f32
%12 = const 1 : i32
%13 = cmplt %6, %12
%14 = store %10, %11, %13
%15 = end %14, %1
%16 = sink %15, name="k"
"""


@pytest.mark.parametrize("kind", ["loop", "global"])
@pytest.mark.parametrize("last", ["%4", "%6"], ids=["constants", "one that is none"])
@pytest.mark.parametrize(("first", "is_right"), [(1, True), (2, False), (-1, False)])
def test_a_position_in_a_table_is_in_range_whatever_the_gate(
    kind: str, last: str, first: int, is_right: bool, worker: SolverWorker
) -> None:
    """An Index of a value traps at once (R45)."""
    text = _FROM_TABLE.format(kind=kind, first=first, last=last)
    verdicts = validate_kernel(parse(text), parse(list_instructions(text)), worker)
    assert all(v.is_proved for v in verdicts if "position" in v.place) is is_right
    assert is_proved(text, text, worker) is is_right
    assert certified(text, text, worker) is (is_right and last == "%4"), (
        "the element of a table is known if its entries are constants"
    )


def test_a_constant_position_is_in_range(worker: SolverWorker) -> None:
    for position, is_right in ((2, True), (3, False), (-1, False)):
        text = _FROM_TABLE.format(kind="loop", first=0, last="%6").replace("index %7, %8", f"index %7, {position}")
        assert is_proved(text, text, worker) is is_right


@pytest.mark.parametrize("position", [-2, -1, 0, 2, 3])
def test_an_entry_of_a_table_is_the_one_that_the_solver_takes(position: int, worker: SolverWorker) -> None:
    k = Unknown("k", position, position)
    entry = T.as_sum(Operation("table", (T.as_sum(k), LinearSum(3), LinearSum(5), LinearSum(9))))
    value = LinearSum(int(T.evaluate_at_points(entry, {k: np.int64(position)})))
    claim = ValidationClaim(ObligationKind.BOUNDS, "", T.TRUE, T.is_zero(T.add(entry, value, -1)))
    assert decide_by_solver(claim, worker).is_proved
