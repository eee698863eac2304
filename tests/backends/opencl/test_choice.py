"""Which device is taken, and what is said of the others; no device is needed but for the last tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import uops
from uops.backends.opencl import choice
from uops.backends.opencl.platforms import OCLGRIND, PLAIN, POCL, find_traits
from uops.backends.opencl.render import describe_language
from uops.backends.opencl.target import OpenClTarget
from uops.compiler import compile as compile_for
from uops.spec.errors import Crash, Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt

GPU, ACCELERATOR, CPU = 4, 8, 2
FLAGS = SimpleNamespace(DENORM=1, INF_NAN=2, ROUND_TO_NEAREST=4, FMA=32, CORRECTLY_ROUNDED_DIVIDE_SQRT=128)


class Platforms:
    """What the choice uses of pyopencl, with platforms of names, versions and devices."""

    class Error(Exception):
        pass

    device_type = SimpleNamespace(GPU=GPU, ACCELERATOR=ACCELERATOR, CPU=CPU)
    device_fp_config = FLAGS

    def __init__(self, *platforms: tuple[str, str, list[tuple[str, int]]], double: int = 39, single: int = 7) -> None:
        self.platforms = [
            SimpleNamespace(
                name=name,
                version=version,
                get_devices=lambda devices=devices: [
                    SimpleNamespace(name=d, type=t, single_fp_config=single, double_fp_config=double) for d, t in devices
                ],
            )
            for name, version, devices in platforms
        ]

    def get_platforms(self) -> list[Any]:
        return self.platforms


SEVERAL = Platforms(
    (POCL, "OpenCL 3.0 PoCL 3.0-rc2", [("pthread", CPU)]),
    (POCL, "OpenCL 3.0 PoCL 7.0", [("cpu", CPU)]),
    (OCLGRIND, "OpenCL 1.2 (Oclgrind 21.10)", [("Oclgrind Simulator", CPU | GPU | ACCELERATOR)]),
    ("Vendor", "OpenCL 3.0", [("a processor", CPU), ("GPU 0", GPU), ("GPU 1", GPU)]),
)


def chosen(text: str) -> list[str]:
    return [c.device for c in choice.list_candidates(SEVERAL) if c.is_chosen_but_emulator_only_if_named(text)]


def test_gpus_come_first_and_of_one_platform_the_newest_version() -> None:
    assert chosen("") == ["GPU 0", "GPU 1", "cpu", "pthread", "a processor"]


def test_a_version_is_newer_than_its_own_beginning() -> None:
    versions = ["X 1.2", "X 1.2.1", "X 1.3"]
    found = choice.list_candidates(Platforms(*(("X", v, [("a", CPU), ("b", CPU)]) for v in versions)))
    assert [(c.version, c.device) for c in found] == [(v, d) for v in reversed(versions) for d in "ab"]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("pocl", ["cpu", "pthread"]),
        ("PoCL 3", ["pthread"]),
        ("vendor:gpu 1", ["GPU 1"]),
        (":gpu", ["GPU 0", "GPU 1"]),
        ("oclgrind", ["Oclgrind Simulator"]),
        ("nothing", []),
    ],
)
def test_a_choice_is_a_part_of_the_names_of_platform_and_device(text: str, devices: list[str]) -> None:
    assert chosen(text) == devices


def test_no_platform_is_no_candidate() -> None:
    assert choice.list_candidates(Platforms()) == []


@pytest.mark.parametrize(
    ("single", "double", "words"),
    [
        (6, 39, "it lacks float32 with subnormals"),
        (7, 7, "it lacks float64 with subnormals, infinities, rounding to nearest and fma"),
        (5, 0, "it lacks float32 with subnormals, infinities and rounding to nearest, float64 with"),
    ],
)
def test_a_device_without_what_strict_results_need_is_refused_with_the_feature(single: int, double: int, words: str) -> None:
    cl = Platforms(("Vendor", "1", [("GPU", GPU)]), single=single, double=double)
    (c,) = choice.list_candidates(cl)
    assert str(choice._open_and_probe(cl, c)).startswith(words)


@pytest.mark.parametrize(
    "error",
    [Platforms.Error("failed\n\nerror: unknown target CPU 'generic'\n"), Crash("failed\nerror: unknown target CPU 'generic'")],
    ids=["pyopencl", "crash"],
)
def test_a_device_that_builds_no_program_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """PoCL's LLVM calls a processor newer than itself `generic`, a name that PoCL's own compiler may then refuse (P01)."""
    cl = Platforms((POCL, "1", [("cpu", CPU)]))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(choice, "Device", fail)
    (c,) = choice.list_candidates(cl)
    assert choice._open_and_probe(cl, c) == "it runs no kernel: error: unknown target CPU 'generic'"


def test_a_refusal_names_every_device_and_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pyopencl = pytest.importorskip("pyopencl")
    monkeypatch.setattr(pyopencl, "get_platforms", SEVERAL.get_platforms)
    monkeypatch.setattr(choice, "_open_candidate_once", lambda cl, c: f"{c.device} is broken")
    with pytest.raises(Unsupported) as refusal:
        choice._open_chosen_device.__wrapped__("")  # not what another test has opened
    assert refusal.value.what.startswith("OpenCL: no device conforms: ")
    assert all(f"{d} is broken" in refusal.value.what for d in ("GPU 0", "GPU 1", "cpu", "pthread", "a processor"))
    assert f"Oclgrind Simulator of Oclgrind: it is an emulator, which {choice.VARIABLE} must name" in refusal.value.what
    with pytest.raises(Unsupported, match=r"no device is called 'vendor:gpu 1' and conforms: .*it is not the one that was chosen"):
        choice._open_chosen_device.__wrapped__("vendor:gpu 1")


def test_platforms_are_compared_by_their_numbers() -> None:
    versions = ["OpenCL 3.0 PoCL 3.1  Linux", "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release", "OpenCL 2.0 pocl 1.10"]
    assert max(versions, key=choice._version_sort_key) == versions[0]


def test_only_emulators_must_be_named() -> None:
    assert find_traits("Vendor") == PLAIN and not find_traits(POCL).judges_accesses
    assert find_traits(OCLGRIND).judges_accesses


ENVIRONMENT = (
    "from uops.backends.opencl import choice\ntry:\n  print(choice.open_device().platform)\nexcept Exception as e:\n  print(e)"
)


@pytest.mark.skipif(choice.unavailable_reason("pocl") is not None, reason=str(choice.unavailable_reason("pocl")))
@pytest.mark.parametrize(("value", "words"), [("pocl:", POCL), ("no such platform", "no device is called 'no such platform'")])
def test_the_environment_names_a_device(value: str, words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1]), choice.VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", ENVIRONMENT], env=environment, capture_output=True, text=True, check=True)
    assert words in done.stdout


@pytest.mark.skipif(choice.unavailable_reason("pocl") is not None, reason=str(choice.unavailable_reason("pocl")))
def test_two_names_of_one_device_share_its_memory_and_no_text_of_another_language() -> None:
    """Programs share kernels, which find their arguments in the memory of their device."""
    one, other = OpenClTarget("pocl"), OpenClTarget("portable computing")
    assert one.device is other.device and one.key == other.key
    assert OpenClTarget("pocl", describe_language(PLAIN)).key != one.key
    given = {"p0": np.arange(4, dtype=np.float32)}
    graph = B.add(B.param(0, (4,), dt.float32), 1.25)
    assert [compile_for(graph, t)(given).values[0].tolist() for t in (one, other)] == [[1.25, 2.25, 3.25, 4.25]] * 2
