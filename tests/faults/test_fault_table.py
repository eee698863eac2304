"""Seeded faults: each broken program is a Trap whose message says what the file asks for - both places, where there are two - and
its twin without the fault gives one result under every schedule.

`NAME.broken.uops` and `NAME.fixed.uops` differ in the fault alone; comments are those of `uops.fuzz.reduce.corpus`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from uops.fuzz.reduce.corpus import find_check_failures, load_file_test
from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.wmma import DESCRIPTORS
from uops.spec.wmma.maps import TableLaneMap
from uops.spec.wmma.registry import validate_and_register_descriptor

HERE = Path(__file__).parent
#: What must be told, by the name of its pair of files, or of its test here.
FAULTS = {
    "a barrier is missing": "missing-barrier",
    "a barrier is missing before memory is written at all": "missing-first-barrier",
    "a stride is wrong": "wrong-stride",
    "a gate is off by one": "off-by-one-gate",
    "a plan overlaps": "overlapping-plan",
    "an accumulator is uninitialised": "uninitialised-accumulator",
    "a barrier diverges": "divergent-barrier",
    "a store is a duplicate": "duplicate-store",
    "two stores have no order": "unordered-stores",
    "a sum of integers depends on the order": "order-dependent-sum",
    "groups race": "race-between-groups",
    "a lane map of a kernel is no bijection": "lane-map",
    "memory of another group is read": "memory-of-another-group",
}
NAMES = sorted(FAULTS.values())


def test_every_pair_of_files_is_in_the_table() -> None:
    for state in ("broken", "fixed"):
        assert sorted(p.name.removesuffix(f".{state}.uops") for p in HERE.glob(f"*.{state}.uops")) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lanes", [False, True], ids=["fast", "lanes"])
def test_the_fault_is_told_with_its_places(name: str, lanes: bool) -> None:
    test = load_file_test(HERE / f"{name}.broken.uops")
    assert len(test.trap_messages) >= 1
    with pytest.raises(Trap) as found:
        run(test.graph, test.inputs, lanes=lanes)
    assert [part for part in test.trap_messages if part not in str(found.value)] == [], str(found.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_is_told_under_every_schedule(name: str) -> None:
    test = load_file_test(HERE / f"{name}.broken.uops")
    for seed in range(20):
        with pytest.raises(Trap):
            run(test.graph, test.inputs, schedule=seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_twin_gives_one_result_under_every_schedule(name: str) -> None:
    test = load_file_test(HERE / f"{name}.fixed.uops")
    assert test.checks
    for options in ({}, {"lanes": True}, *({"schedule": seed} for seed in range(20))):
        assert find_check_failures(test, run(test.graph, test.inputs, **options).buffers) == [], options


def test_a_lane_map_of_a_descriptor_that_is_no_bijection_is_told_with_both_holders() -> None:
    d = next(d for d in DESCRIPTORS if d.c.lanes == 32)
    places = [[d.c.place(t, e) for e in range(d.c.elements)] for t in range(d.c.lanes)]
    twin = dataclasses.replace(d, name="twin", c=TableLaneMap(tuple(map(tuple, places))))
    validate_and_register_descriptor(twin)
    lost, places[5][1] = places[5][1], places[9][0]
    broken = dataclasses.replace(d, name="broken", c=TableLaneMap(tuple(map(tuple, places))))
    with pytest.raises(SpecError) as found:
        validate_and_register_descriptor(broken)
    message = str(found.value)
    assert f"lane 5 element 1 and lane 9 element 0 hold {places[9][0]}; {lost} is held by none" in message
