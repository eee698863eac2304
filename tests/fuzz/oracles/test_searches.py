"""Schedules of `--opts forced` and of a beam search as oracles: right ones pass, and planted faults are seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.stage_judge import Fault
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.passes.optimize.search import random_schedules
from uops.compiler.passes.optimize.search.store import ScheduleStore
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles import oracles, searches
from uops.fuzz.oracles.oracles import OracleContext
from uops.fuzz.oracles.subject import Subject
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, nodes_with_op, substitute
from uops.spec.ir.ops import Op

X, Y = b.param(0, (8, 8), dt.int32), b.param(1, (8, 8), dt.int32)
PRODUCT = b.reduce(b.mul(b.reshape(X, (8, 8, 1)), b.reshape(Y, (1, 8, 8))), Op.ADD, (1,))


def context(seed: int = 0) -> OracleContext:
    inputs = {f"p{k}": np.arange(64, dtype=np.int32).reshape(8, 8) + k for k in range(2)}
    return OracleContext(ProgramSample("tensor", PRODUCT, inputs), Subject("llvm"), seed=seed)


def ask(oracle: str, c: OracleContext) -> Fault | None:
    found = oracles.find_first_objection(c, oracles.select_oracles_in_table_order([oracle]))
    assert c.counts[f"oracle:{oracle}"] == 1
    return None if found is None else found[1]


@pytest.mark.parametrize("oracle", ["forced", "beam"])
def test_right_schedules_pass(oracle: str) -> None:
    for seed in range(4):
        assert ask(oracle, context(seed)) is None


def _add_where_multiplied(schedule: Callable[..., Schedule]) -> Callable[..., Schedule]:
    """Return a scheduler like this one, whose kernels add what they should multiply."""

    def choose(*arguments: Any) -> Schedule:
        s = schedule(*arguments)
        products = [u for u in nodes_with_op(s.effect, Op.MUL) if u.dtype is dt.int32]
        return dataclasses.replace(s, effect=substitute(s.effect, {u: UOp(Op.ADD, u.src) for u in products}))

    return choose


def test_a_wrong_drawn_schedule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_schedules, "schedule_randomly", _add_where_multiplied(random_schedules.schedule_randomly))
    fault = ask("forced", context())
    assert fault is not None
    assert fault.kind == "value"


def test_a_wrong_searched_schedule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches.Beam, "__call__", _add_where_multiplied(searches.Beam.__call__))
    fault = ask("beam", context())
    assert fault is not None
    assert fault.kind == "value"


def test_a_store_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScheduleStore, "get", lambda self, key: None)
    assert ask("beam", context()) == Fault("searched", "1 kernels were searched again, though their schedules were stored")


def test_a_search_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is drawn, not read."""
    stored: list[list[Any]] = []
    put = ScheduleStore.put

    def record(self: ScheduleStore, key: str, schedule: Any) -> None:
        stored[-1].append((key, schedule))
        put(self, key, schedule)

    monkeypatch.setattr(ScheduleStore, "put", record)
    for _ in range(2):
        stored.append([])
        assert ask("beam", context(5)) is None
    assert stored[0] == stored[1] != []
