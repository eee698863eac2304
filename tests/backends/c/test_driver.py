"""The driver of gcc and clang: a program on PATH that is no compiler that works is a reason, not a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from uops.backends import registry
from uops.backends.c import driver
from uops.spec.errors import Crash, Unsupported


@pytest.fixture(autouse=True)
def forget_compilers() -> Iterator[None]:
    driver.find_compiler.cache_clear()
    yield
    driver.find_compiler.cache_clear()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho no licence >&2; exit 3\n", "failed with 3: no licence"),
        ("#!/bin/sh\nexit 0\n", "gives no version, or not the macros of a C compiler"),
        ('#!/bin/sh\necho "gcc $@"\n', "gives no version, or not the macros of a C compiler"),
        ("#!/bin/sh\nprintf '\\377\\376\\n'\n", "gives no version, or not the macros of a C compiler"),
        ('#!/bin/sh\n[ "$1" = --version ] && echo gcc 12 && exit 0\necho no cc1 >&2; exit 1\n', "failed with 1: no cc1"),
        ("#!/no/such/interpreter\n", "cannot be run"),
    ],
    ids=["status", "silent", "echo", "bytes", "parts", "interpreter"],
)
def test_a_broken_compiler_is_unavailable_with_a_reason(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "gcc"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert reason in str(driver.unavailable_reason("gcc"))
    with pytest.raises(Unsupported, match="gcc: "):
        registry.create_backend("c:gcc")


def count_mapped_kernels() -> int:
    """Return the number of mappings of kernels that this process has."""
    return Path("/proc/self/maps").read_text().count("uops-c-")


@pytest.mark.skipif(driver.unavailable_reason("gcc") is not None, reason="gcc does not work")
def test_an_object_that_lacks_a_function_is_unloaded() -> None:
    image = driver.compile_shared_object(driver.find_compiler("gcc"), "int x(void) { return 1; }")
    before = count_mapped_kernels()
    loaded = driver.load_shared_object(image, "x")
    assert count_mapped_kernels() > before
    del loaded
    with pytest.raises(Crash, match="nosuch"):
        driver.load_shared_object(image, "x", "nosuch")
    assert count_mapped_kernels() == before
