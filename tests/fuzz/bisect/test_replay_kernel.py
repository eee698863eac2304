"""Replay of kernels: what one body stores and the other does not, traps of the first, gaps in the slots, and bool memory."""

import pytest

from uops.fuzz.bisect.replay_kernel import replay_bodies_if_counterexample_holds
from uops.spec.ir.text import parse

TWO_STORES = """
%0 = param (4), slot=0 : f32
%1 = param (4), slot=1 : f32
%2 = param (4), slot=2 : f32
%3 = range 4, axis_id=0, type=loop
%4 = index %0, %3
%5 = index %1, %3
%6 = index %2, %3
%7 = load %6
%8 = store %4, %7
%9 = store %5, %7
%10 = group %8, %9
%11 = end %10, %3
%12 = sink %11, name="k"
"""
#: TWO_STORES without the store to slot 1, which is read only.
READS_SLOT_1 = """
%0 = param (4), slot=0 : f32
%1 = param (4), slot=1 : f32
%2 = param (4), slot=2 : f32
%3 = range 4, axis_id=0, type=loop
%4 = index %0, %3
%5 = index %1, %3
%6 = load %5
%7 = const 0 : f32
%8 = index %2, %3
%9 = load %8
%10 = mulacc %6, %7, %9
%11 = store %4, %10
%12 = end %11, %3
%13 = sink %12, name="k"
"""
COPY = """
%0 = param (4), slot={to} : {dtype}
%1 = param (4), slot={source} : {dtype}
%2 = range 4, axis_id=0, type=loop
%3 = index %0, %2
%4 = index %1, %2
%5 = load %4
%6 = store %3, %5
%7 = end %6, %2
%8 = sink %7, name="k"
"""
STORE_TRUE = COPY.replace("%6 = store %3, %5", "%9 = const true : bool\n%10 = or %5, %9\n%6 = store %3, %10")


def copy(to: int, source: int, dtype: str = "f32"):
    return parse(COPY.format(to=to, source=source, dtype=dtype))


def test_a_dropped_store_is_confirmed():
    outcome = replay_bodies_if_counterexample_holds(parse(TWO_STORES), parse(READS_SLOT_1))
    assert outcome.confirmed and "of b2" in outcome.words


def test_a_store_that_only_the_second_body_has_is_confirmed():
    outcome = replay_bodies_if_counterexample_holds(parse(READS_SLOT_1), parse(TWO_STORES))
    assert outcome.confirmed and "of b2" in outcome.words


def test_slots_with_a_gap_keep_their_memory():
    assert replay_bodies_if_counterexample_holds(copy(0, 2), copy(0, 2)).words == "not confirmed: both leave the same memory"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_param_of_one_body_alone_moves_no_memory_of_the_other(swapped):
    bodies = [parse(TWO_STORES), copy(0, 2)]  # the copy stores nothing to slot 1, which it does not have
    outcome = replay_bodies_if_counterexample_holds(*bodies[:: -1 if swapped else 1])
    assert outcome.confirmed and "of b2" in outcome.words


def test_bool_memory_holds_both_values():
    stores_true = parse(STORE_TRUE.format(to=0, source=1, dtype="bool"))
    assert replay_bodies_if_counterexample_holds(copy(0, 1, "bool"), stores_true).confirmed


def test_a_first_body_that_traps_confirms_nothing():
    beyond = parse(COPY.replace("range 4", "range 5").format(to=0, source=1, dtype="f32"))
    outcome = replay_bodies_if_counterexample_holds(beyond, beyond)
    assert not outcome.confirmed and outcome.words.startswith("not confirmed: the kernel before traps: ")
