"""Compilers that are wrong about devices fail cells of devices; ours passes them all, in one thread and in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uops.backends.c.target import TinyTarget
from uops.backends.conformance.cases.named import devices, graphs
from uops.backends.conformance.cases.named.generate import generate_named_cases
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.contract import DEVICES_SURFACE
from uops.compiler.config import Config
from uops.compiler.passes.callify.partition import _DevicePartition
from uops.compiler.runtime.program import Compiled
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.scope import base_memory

_DTYPES = ("float32", "uint8")


def list_cases() -> list[ConformanceCase]:
    """Return the cells of devices. They are made anew: other tests derive wrong axes of such nodes while these live."""
    return [
        c
        for c in generate_named_cases((*graphs.CASES, *devices.CASES), ConformanceTier.SMOKE)
        if c.surface == DEVICES_SURFACE and c.dtype.name in _DTYPES
    ]


def failing_cells(cases: list[ConformanceCase], **config: str) -> Iterator[str]:
    """Yield the cells that give other bits than the interpreter, or nothing. The inputs are such that each case has one result."""
    target = TinyTarget()
    for case in cases:
        want = run(case.graph, dict(case.inputs))
        try:
            found = Compiled(case.graph, target, Config(reuse=False, **config))(dict(case.inputs))  # type: ignore[arg-type]
        except Exception:
            yield f"{case.row} {case.segments[0].edge}"
            continue
        pairs = [*zip(found.values, want.values, strict=True), *((found.buffers[k], w) for k, w in want.buffers.items())]
        if any(np.asarray(f).tobytes() != np.asarray(w).tobytes() for f, w in pairs):
            yield f"{case.row} {case.segments[0].edge}"


@pytest.mark.parametrize("queues", ["always", "never"])
def test_our_compiler_passes_every_cell(queues: str) -> None:
    assert not list(failing_cells(list_cases(), queues=queues))


def shift_shards(patch: pytest.MonkeyPatch) -> None:
    """Give each device the part of the next one."""
    right = _DevicePartition._cut
    patch.setattr(_DevicePartition, "_cut", lambda self, u, whole, axis, k, n: right(self, u, whole, axis, (k + 1) % n, n))


def spoil_a_replica(patch: pytest.MonkeyPatch) -> None:
    """Let one device receive zeros."""
    right: Callable[..., UOp] = _DevicePartition._reach_param_or_copy_to_device

    def copy(self: _DevicePartition, value: UOp, device: str) -> UOp:
        return (
            right(self, b.expand(b.reshape(b.const(0, value.dtype), (1,) * len(value.shape)), value.shape), device)
            if device == "D1" and value.device not in (None, "D1")
            else right(self, value, device)
        )

    patch.setattr(_DevicePartition, "_reach_param_or_copy_to_device", copy)


def share_memory(patch: pytest.MonkeyPatch) -> None:
    """Give all devices one memory for values of equal shape."""
    right, shared = _DevicePartition._allocate, dict[object, UOp]()

    def allocate(self: _DevicePartition, shape: tuple[int, ...], dtype: object, device: str) -> UOp:
        key = id(self), shape, dtype
        if key not in shared:
            shared[key] = right(self, shape, dtype, device)  # type: ignore[arg-type]
        return shared[key]

    patch.setattr(_DevicePartition, "_allocate", allocate)


def copy_late(patch: pytest.MonkeyPatch) -> None:
    """Run all copies between devices after everything else."""
    right = Compiled._load_kernels_and_make_launches

    def load(self: Compiled) -> tuple[object, ...]:
        is_copy = [len({base_memory(a).device for a in c.arguments} - {None}) > 1 for c in self.program.instructions]
        launches = right(self)
        return tuple(launches[k] for k in sorted(range(len(launches)), key=is_copy.__getitem__))

    patch.setattr(Compiled, "_load_kernels_and_make_launches", load)


@pytest.mark.parametrize(
    ("control", "cells"),
    [
        (shift_shards, {"Source/Param sharded-inner", "Store/Store of-whole"}),
        (spoil_a_replica, {"Movement/Replicated every-copy", "Reduce/Reduce sharded-axis-of-every-copy"}),
        (share_memory, {"Ordering/After copies-in-order", "Store/Store sharded", "Marker/Contiguous copies-apart"}),
        (copy_late, {"Ordering/After copies-in-order", "Collective/allreduce 3-devices"}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_compiler_that_is_wrong_about_devices_fails(
    control: Callable[[pytest.MonkeyPatch], None], cells: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    control(monkeypatch)
    assert cells <= set(failing_cells(list_cases(), queues="never"))
