"""The oracle of the cache on disk: objects of others, settings, features and harmed files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.conformance.judge import outputs_of
from uops.backends.conformance.stage_judge import Fault
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.oracles import disk_cache
from uops.fuzz.oracles.disk_cache import KeptObjects, find_first_fault_with_disk_cache
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

A = b.param(0, (4,), dt.int32)
SUM = b.add(A, b.expand(b.reshape(b.const(3, dt.int32), (1,)), (4,)))
INPUTS = {"p0": np.arange(4, dtype=np.int32)}


def judge(run: Any) -> Fault | None:
    (value,) = outputs_of(run()).values()
    return None if np.array_equal(value, INPUTS["p0"] + 3) else Fault("value", str(value))


def fault_of(target: LlvmTarget, kept: KeptObjects, seed: int) -> Fault | None:
    return find_first_fault_with_disk_cache(SUM, INPUTS, target, kept, judge, SeededDraw(seed))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_wrong_with_this_cache_whatever_happens_to_its_files(seed: int) -> None:
    kept = KeptObjects()
    assert fault_of(LlvmTarget(LlvmTier.FAST), kept, seed) is None
    assert fault_of(LlvmTarget(LlvmTier.FAST), kept, seed + 100) is None


@pytest.mark.parametrize("harm", disk_cache._HARMS)
def test_files_that_an_earlier_case_has_emptied_are_harmed_too(harm: Any, tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.obj").write_bytes(b"12" * k)
    harm(tmp_path, SeededDraw(1))
    assert len(list(tmp_path.iterdir())) == 3


def test_objects_are_kept_until_the_next_case() -> None:
    kept = KeptObjects()
    fault_of(LlvmTarget(LlvmTier.FAST), kept, 0)
    with kept.in_folder() as root:
        assert list(root.glob("*.obj"))
        new = root / "new.obj"
        new.write_bytes(b"1")
    assert not root.exists()
    with kept.in_folder() as root:
        assert (root / "new.obj").read_bytes() == b"1"
        for k in range(2 * disk_cache._KEPT):
            (root / f"{k:03}.obj").write_bytes(b"2")
    with kept.in_folder() as root:
        assert len(list(root.iterdir())) == disk_cache._KEPT
        assert not (root / "new.obj").exists()


def test_an_object_of_another_target_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of an object lacks the tier."""
    make = LlvmTarget.__init__

    def make_with_short_key(self: LlvmTarget, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.key = "one for all"

    monkeypatch.setattr(LlvmTarget, "__init__", make_with_short_key)
    kept = KeptObjects()
    faults = [fault_of(LlvmTarget(LlvmTier.FAST), kept, seed) for seed in range(4)]
    assert {f.kind for f in faults if f} == {"stale"}


@pytest.mark.parametrize("harm", disk_cache._HARMS)
def test_harm_changes_files(harm: Any, tmp_path: Path) -> None:
    names = [f"{k}.obj" for k in range(5)]
    for k, name in enumerate(names):
        (tmp_path / name).write_bytes(bytes([k]) * 20)
    before = [(tmp_path / name).read_bytes() for name in names]
    harm(tmp_path, SeededDraw(1))
    assert sum(old != (tmp_path / name).read_bytes() for old, name in zip(before, names, strict=True)) >= 2


def test_variants_of_llvm_have_keys_of_their_own(tmp_path: Path) -> None:
    variants = LlvmTarget(LlvmTier.FAST).list_variants(ObjectCache(tmp_path))
    assert variants[0].key == LlvmTarget(LlvmTier.FAST).key
    assert len({v.key for v in variants}) == len(variants) >= 2
    assert {v.store.root for v in variants} == {tmp_path}


def test_another_object_of_the_same_length_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toolchain gives other bytes each time, behind the ones that run."""
    make, count = LlvmTarget.make_binary, itertools.count()
    monkeypatch.setattr(LlvmTarget, "make_binary", lambda self, source: make(self, source) + b"%4d" % next(count))
    fault = fault_of(LlvmTarget(LlvmTier.FAST), KeptObjects(), 0)
    assert fault is not None and fault.kind == "stale"
