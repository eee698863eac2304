"""Objects of the cache that are whole and do not link: each user drops them and makes them again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends import cache, elf
from uops.backends.c import driver
from uops.backends.c.target import DriverTarget
from uops.backends.cache import ObjectCache
from uops.backends.elf import is_linkable_or_host_lacks_elf
from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.native_entry import module, table
from uops.compiler import Config, compile, lower
from uops.compiler.passes.optimize.search.clock import TargetClock
from uops.fuzz.oracles.native import load_and_run_first_calls
from uops.spec.errors import Crash
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

X = b.param(0, (4,), dt.float32)
INPUTS = {"p0": np.arange(4, dtype=np.float32)}
PLAIN = Config(reuse=False)
TARGETS: dict[str, Callable[[Path], Any]] = {
    "llvm": lambda folder: LlvmTarget(LlvmTier.FAST, ObjectCache(folder)),
    "gcc": lambda folder: DriverTarget("gcc", ObjectCache(folder)),
}


def plus(number: float) -> UOp:
    return b.add(X, b.const(number))


def values(target: Any, number: float) -> list[float]:
    found: list[float] = compile(plus(number), target, PLAIN)(INPUTS).values[0].tolist()
    return found


def name(target: Any, number: float) -> str:
    """What the cache calls the object of the only kernel."""
    (call,) = lower(plus(number), target, config=PLAIN).src
    return cache.digest_key(target.key, call.src[0].src[1].arg.code)


def foreign(target: Any) -> bytes:
    """An object with a kernel that calls what is nowhere."""
    if isinstance(target, LlvmTarget):
        text = "declare void @nowhere()\ndefine void @kernel(ptr %a, ptr %b) {\n  call void @nowhere()\n  ret void\n}\n"
        return binding.compile_object(text, target.host, LlvmTier.FAST, ("nowhere",))
    return driver.compile_shared_object(target.compiler, "void nowhere(void);\nvoid kernel(void *a, void *b) { nowhere(); }\n")


# fmt: off
DAMAGE: dict[str, Callable[[Any, bytes], bytes]] = {
    "empty":              lambda target, image: b"",
    "text":               lambda target, image: b"#!/bin/sh\n",
    "a bare magic":       lambda target, image: image[:4],
    "a header":           lambda target, image: image[:64],
    "cut in half":        lambda target, image: image[: len(image) // 2],
    "cut by a byte":      lambda target, image: image[:-1],
    "another processor":  lambda target, image: image[:18] + bytes([image[18] ^ 1]) + image[19:],
    "another symbol":     lambda target, image: image.replace(b"\0kernel\0", b"\0kettle\0"),
    "nothing to call":    lambda target, image: foreign(target),
}
# fmt: on


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "gcc" and (why := driver.unavailable_reason("gcc")):
        pytest.skip(why)
    return TARGETS[request.param](tmp_path)


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_object_that_does_not_link_is_dropped_and_made_again(target: Any, damage: str) -> None:
    place = name(target, 1.5)
    whole = target.store.get(place)
    target.store.put(place, DAMAGE[damage](target, whole))
    assert values(target, 1.5) == [1.5, 2.5, 3.5, 4.5]
    assert is_linkable_or_host_lacks_elf(target.store.get(place), "kernel") and target.store.get(place) != foreign(target)


def test_whoever_runs_kernels_makes_them_again(target: Any) -> None:
    """The search for schedules, campaigns, and several texts at once."""
    (call,) = lower(plus(1.5), target, config=PLAIN).src
    source = call.src[0].src[1].arg.code
    users: dict[str, Callable[[], object]] = {
        "search": lambda: TargetClock(target)._load_kernel(source),
        "campaign": lambda: load_and_run_first_calls(lower(plus(1.5), target, config=PLAIN), target, INPUTS),
        "together": lambda: (
            LlvmTarget(LlvmTier.FULL, target.store).compile_and_load_batch([source]) if isinstance(target, LlvmTarget) else None
        ),
    }
    for use in users.values():
        target.store.put(name(target, 1.5), foreign(target))
        use()
        assert values(target, 1.5) == [1.5, 2.5, 3.5, 4.5]


def test_an_object_under_the_name_of_another_is_not_run(target: Any) -> None:
    """The symbols of all kernels are the same: only the name, which is sealed, tells their objects apart."""
    places = [target.store.root / f"{name(target, x)}.obj" for x in (1.5, 4.5)]
    shutil.copy(places[1], places[0])
    assert values(target, 1.5) == [1.5, 2.5, 3.5, 4.5]
    assert values(target, 4.5) == [4.5, 5.5, 6.5, 7.5]


def test_a_kernel_that_never_links_is_an_error(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "compile_object", lambda *_: image)
    image = b"never"
    monkeypatch.setattr(driver, "compile_shared_object", lambda *_: image)
    with pytest.raises(Crash):
        values(target, 1.5)


def test_the_native_entry_is_made_again(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path)
    if table.load_or_compile_native_module(store) is None:
        pytest.skip("this process has no native entry")
    (place,) = (p.stem for p in tmp_path.iterdir())
    for image in (b"no object", foreign(LlvmTarget(LlvmTier.FAST, store))):
        store.put(place, image)
        table.load_or_compile_native_module.cache_clear()
        table._link_native_module_for_good.cache_clear()
        assert table.load_or_compile_native_module(store) is not None
        assert is_linkable_or_host_lacks_elf(store.get(place), module.CALL)


def test_the_tables_of_an_object_are_read_without_trust() -> None:
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    image = target.compile(target.render(linearized(target)))
    assert is_linkable_or_host_lacks_elf(image, "kernel") and not is_linkable_or_host_lacks_elf(image, "kernel", "other")
    draw = np.random.default_rng(0)
    for _ in range(500):
        broken = bytearray(image)
        for at in draw.integers(0, 64, 3):
            broken[at] = draw.integers(256)
        assert is_linkable_or_host_lacks_elf(bytes(broken), "kernel") in (True, False)


@pytest.mark.parametrize("path", [None, ""])
def test_where_python_does_not_know_its_executable_any_object_counts(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", path)
    monkeypatch.setattr(elf, "_read_python_executable_header", elf._read_python_executable_header.__wrapped__)
    assert is_linkable_or_host_lacks_elf(b"no object", "kernel")


def linearized(target: Any) -> UOp:
    """The instructions of a kernel."""
    (call,) = lower(plus(1.5), target, config=PLAIN).src
    found: UOp = call.src[0].src[0]
    return found
