"""The backend under test in its process: a text is compiled once for all oracles of a case, but for those that ask for it anew."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.calling import HostKernel
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import compile
from uops.compiler.passes.render import Rendering
from uops.compiler.target import Beside, Enters, machine_of
from uops.fuzz import calls, kinds, oracles
from uops.fuzz.examine import Bench, Setup
from uops.fuzz.subject import Kept, Subject
from uops.spec import build as b
from uops.spec import dtypes as dt

X = b.param(0, (3,), dt.int32)
SAMPLE = kinds.Sample("tensor", b.add(X, X), {"p0": np.arange(3, dtype=np.int32)})


class Counting(LlvmTarget):
    """A target that counts what it is asked to compile and to link."""

    def __init__(self) -> None:
        super().__init__(Tier.FAST, ObjectCache(None))
        self.compiled, self.loaded = Counter[str](), Counter[bytes]()

    def compile(self, source: str) -> bytes:
        self.compiled[source] += 1
        return super().compile(source)

    def load(self, binary: bytes) -> HostKernel:
        self.loaded[binary] += 1
        return super().load(binary)


def context() -> tuple[oracles.Context, Counting]:
    subject, counting = Subject("llvm"), Counting()
    subject.target = Kept(counting)
    return oracles.Context(SAMPLE, subject, seed=3), counting


def test_a_text_is_compiled_and_linked_once_for_all_oracles_of_a_case() -> None:
    c, counting = context()
    assert oracles.first_fault(c, oracles.named(("allowed", "unoptimised", "scheduled", "searched"))) is None
    assert len(counting.compiled) >= 1
    assert set(counting.compiled.values()) == set(counting.loaded.values()) == {1}


def test_a_second_compilation_is_one() -> None:
    c, counting = context()
    assert oracles.first_fault(c, oracles.named(("allowed", "again"))) is None
    assert set(counting.compiled.values()) == set(counting.loaded.values()) == {2}


def test_a_kept_target_is_the_one_given_but_for_the_thread_that_compiles() -> None:
    target = Subject("llvm").target
    assert target is not None
    assert isinstance(target, Enters)
    assert isinstance(target.own, Beside)
    assert not isinstance(target, Beside)
    assert not Rendering(target).beside
    assert machine_of(target) is machine_of(target.own)
    assert copy.copy(target).own is target.own
    assert {"enter", "version"} <= vars(target).keys()  # where Python 3.12 looks for what a Protocol asks for


@pytest.mark.parametrize("asked", ["steps", "allowed"])
def test_who_looks_at_steps_hears_the_subjects_own_compilation(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """And what is compiled so is compiled so again where another oracle is asked alone."""
    found = Bench(Setup("llvm", 3, oracles=("reference", "allowed", "steps")))
    heard: list[bool] = []
    monkeypatch.setattr(oracles, "wrong_step", lambda steps, seed: heard.append(bool(list(steps))))
    k = next(k for k in range(100) if oracles.ORACLES["steps"] in found.due(found.seed(k)))
    assert found.case(k).fault is None
    assert heard == [True]
    c = found._context(found.sample(k), found.seed(k), asked)
    assert c.heard
    assert c.ran[1] is None
    assert c.moves


def test_a_call_in_python_has_the_kernels_of_the_native_one() -> None:
    _, counting = context()
    native = compile(SAMPLE.graph, counting, calls.Config())
    before = sum(counting.compiled.values())
    in_python = calls._InPython(SAMPLE.graph, counting, calls.Config())
    assert sum(counting.compiled.values()) == before
    assert native.function != native._general
    assert in_python.function == in_python._general
