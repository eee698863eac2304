"""The backend under test in its process: a text is compiled once for all oracles of a case, but for those that ask for it anew."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.calling import HostKernel
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import compile
from uops.compiler.passes.render import CompileQueue
from uops.compiler.target import Ability
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.oracles import calls, oracles
from uops.fuzz.oracles.subject import CachingTarget, Subject
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

X = b.param(0, (3,), dt.int32)
SAMPLE = kinds.ProgramSample("tensor", b.add(X, X), {"p0": np.arange(3, dtype=np.int32)})


class Counting(LlvmTarget):
    """A target that counts what it is asked to compile and to link."""

    def __init__(self) -> None:
        super().__init__(LlvmTier.FAST, ObjectCache(None))
        self.compiled, self.loaded, self.joined = Counter[str](), Counter[bytes](), list[int]()

    def compile(self, source: str) -> bytes:
        self.compiled[source] += 1
        return super().compile(source)

    def load(self, binary: bytes) -> HostKernel:
        self.loaded[binary] += 1
        return super().load(binary)

    def compile_and_load_batch(self, sources: Sequence[str]) -> list[HostKernel]:
        self.joined.append(len(sources))
        self.compiled.update(sources)
        self.loaded.update(map(str.encode, sources))
        return super().compile_and_load_batch(sources)


def context() -> tuple[oracles.OracleContext, Counting]:
    subject, counting = Subject("llvm"), Counting()
    subject.target = CachingTarget(counting)
    return oracles.OracleContext(SAMPLE, subject, seed=3), counting


def test_a_text_is_compiled_and_linked_once_for_all_oracles_of_a_case() -> None:
    c, counting = context()
    assert (
        oracles.find_first_objection(c, oracles.select_oracles_in_table_order(("allowed", "unoptimised", "scheduled", "searched")))
        is None
    )
    assert len(counting.compiled) >= 1
    assert set(counting.compiled.values()) == set(counting.loaded.values()) == {1}


def test_a_second_compilation_is_one() -> None:
    c, counting = context()
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(("allowed", "again"))) is None
    assert set(counting.compiled.values()) == set(counting.loaded.values()) == {2}


def examined(found: CaseRunner, ks: Sequence[int], at_once: bool) -> list[object]:
    return [tuple(e) for e in (found.run_cases_compiled_together(ks) if at_once else map(found.generate_and_judge_case, ks))]


@pytest.mark.parametrize("wrong", ["", "fadd "])
def test_cases_give_together_what_they_give_alone(wrong: str) -> None:
    ks, asked = range(24), ("tensor", "programs", "kernels", "rules")
    found = CaseRunner(Setup("llvm", 11, kinds=asked))
    counting = Counting()
    if wrong:
        counting.render = lambda linear: LlvmTarget.render(counting, linear).replace(wrong, "fsub ")  # type: ignore[method-assign]
    found.subject.target = CachingTarget(counting)
    together = examined(found, ks, True)
    assert max(counting.joined) >= len(ks) // 2
    assert together == examined(found, ks, False)
    assert wrong == "" or any(oracle for _, oracle, *_ in together)


def test_a_text_that_cannot_be_compiled_is_the_fault_of_its_own_case() -> None:
    counting = Counting()
    counting.render = lambda linear: LlvmTarget.render(counting, linear).replace("fadd ", "fadded ")  # type: ignore[method-assign]
    found = CaseRunner(Setup("llvm", 11, oracles=("reference", "allowed")))
    found.subject.target = CachingTarget(counting)
    ks = range(16)
    together = [(e.k, e.fault and e.fault.kind) for e in found.run_cases_compiled_together(ks)]
    assert {kind for _, kind in together} == {None, "crash"}
    assert counting.joined == [len(counting.compiled)]
    assert together == [(k, (f := found.generate_and_judge_case(k).fault) and f.kind) for k in ks]


def test_a_kept_target_is_the_one_given_but_for_the_thread_that_compiles() -> None:
    target = Subject("llvm").target
    assert target is not None
    assert target.abilities == target.uncached.abilities == {Ability.NATIVE_ENTRY, Ability.CODE_CACHE, Ability.BATCHES}
    assert target.uncached.compiles_outside_lock and not target.compiles_outside_lock
    assert not CompileQueue(target).in_thread
    assert target.machine is target.uncached.machine
    assert copy.copy(target).uncached is target.uncached
    assert all(getattr(target, a.value) == getattr(target.uncached, a.value) for a in Ability)


@pytest.mark.parametrize("asked", ["steps", "allowed"])
def test_who_looks_at_steps_hears_the_subjects_own_compilation(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """And what is compiled so is compiled so again where another oracle is asked alone."""
    found = CaseRunner(Setup("llvm", 3, oracles=("reference", "allowed", "steps")))
    heard: list[bool] = []
    monkeypatch.setattr(oracles, "find_wrong_step", lambda steps, seed: heard.append(bool(list(steps))))
    k = next(k for k in range(100) if oracles.ORACLES["steps"] in found.due_oracles(found.case_seed(k), "programs"))
    assert found.generate_and_judge_case(k).fault is None
    assert heard == [True]
    c = found._build_context_recording_steps_if_needed(found.draw_sample(k), found.case_seed(k), asked)
    assert c.records_steps
    assert c.own_run[1] is None
    assert c.steps


def test_a_call_in_python_has_the_kernels_of_the_native_one() -> None:
    _, counting = context()
    native = compile(SAMPLE.graph, counting, calls.Config())
    before = sum(counting.compiled.values())
    in_python = calls._bypass_native_entry(native)
    assert sum(counting.compiled.values()) == before
    assert native.function != native._check_arguments_and_run
    assert in_python.function == in_python._check_arguments_and_run
