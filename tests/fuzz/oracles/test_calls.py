"""Programs called as users call them: what a call may not do is noticed, and what it may is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.judge import outputs_of
from uops.backends.registry import create_backend
from uops.compiler import Compiled
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.oracles import calls
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.result import Result

X = b.param(0, (4,), dt.int32)
GRAPH = b.add(X, X)
INPUTS = {"p0": np.arange(4, dtype=np.int32)}


def target() -> Any:
    return create_backend("llvm", tier="fast").target


def faults(seed: int = 0) -> Any:
    return calls.find_first_fault_of_user_calls(GRAPH, INPUTS, target(), outputs_of(run(GRAPH, INPUTS)), SeededDraw(seed))


def test_nothing_is_wrong_with_calls_of_this_compiler() -> None:
    for k in range(12):
        sample = kinds.sample(5, k, ("tensor", "programs"))
        wanted = outputs_of(Compiled(sample.graph, target(), calls.Config(reuse=False))(sample.inputs))
        assert calls.find_first_fault_of_user_calls(sample.graph, sample.inputs, target(), wanted, SeededDraw(k)) is None, k


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (lambda p, x: Result((p.kept,), {}), "shared"),
        (lambda p, x: Result((x["p0"].__iadd__(1),), {}), "changed"),
        (lambda p, x: Result((x["p0"] * 3,), {}), "value"),
        (lambda p, x: Result((), {}), "form"),
        (lambda p, x: Result((x["p0"].astype(np.int64) * 2,), {}), "form"),
    ],
)
def test_what_a_call_may_not_do_is_a_fault(monkeypatch: pytest.MonkeyPatch, what: Any, kind: str) -> None:
    kept = INPUTS["p0"] * 2
    inputs = {"p0": INPUTS["p0"].copy()}
    wanted = {0: inputs["p0"] + 1} if kind == "changed" else {0: kept}
    monkeypatch.setattr(Compiled, "kept", kept, raising=False)
    monkeypatch.setattr(Compiled, "__call__", what)
    found = calls.find_first_fault_of_user_calls(GRAPH, inputs, target(), wanted, SeededDraw(0))
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("cache", ["programs", "objects"])
def test_a_cache_that_takes_one_program_for_another_is_a_fault(monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    if cache == "programs":
        first = []

        def by_first(graph: Any, *settings: Any) -> Any:
            first[:] = first or [Compiled(graph, *settings)]
            return first[0]

        monkeypatch.setattr(calls, "compile", by_first)
    else:
        monkeypatch.setattr("uops.backends.cache.digest_key", lambda *parts: str([len(p) for p in parts]))
    found = calls._check_caches_distinguish_constants(GRAPH, INPUTS, target())
    assert found is not None
    assert (found.kind, found.message) == ("cached", "beside the value, 1 is given for 2")


def test_a_native_call_that_takes_anything_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    end = calls._call_or_return_error_name
    natives = iter(range(10**6))
    monkeypatch.setattr(calls, "_call_or_return_error_name", lambda f, a: [np.zeros(1)] if next(natives) % 2 == 0 else end(f, a))
    found = [f for seed in range(8) if (f := faults(seed)) is not None]
    assert {f.kind for f in found} == {"argument"}
    assert any("a result natively, SpecError in Python" in f.message for f in found)
