"""A machine scaled down has less of everything and nothing new, and small programs get the schedules of large ones."""

from __future__ import annotations

import pytest

from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.passes.optimize.heuristics import block_fusion, products, scan, scatter
from uops.compiler.pipeline import lower
from uops.compiler.target import PLAIN, MachineModel, Thresholds
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.machines import THRESHOLDS, draw_scaled_machine
from uops.fuzz.oracles.subject import Subject

LARGE = MachineModel(vector_bytes=64, registers=32, caches=(32768, 1 << 20), cores=4, fma=True, masks=True)
GROUPS = MachineModel(workgroup=256, local_memory=48 << 10)


@pytest.mark.parametrize("machine", [PLAIN, LARGE, GROUPS], ids=["plain", "large", "groups"])
def test_a_scaled_machine_has_no_more_than_the_machine(machine: MachineModel) -> None:
    for seed in range(200):
        scaled = draw_scaled_machine(machine, SeededDraw(seed))
        assert scaled.vector_bytes <= machine.vector_bytes and scaled.registers <= machine.registers
        assert len(scaled.caches) == len(machine.caches) and scaled.workgroup <= machine.workgroup
        assert scaled.fma <= machine.fma and scaled.masks <= machine.masks
        assert (scaled.cores > 1) <= (machine.cores > 1) and scaled.tensor_cores == machine.tensor_cores


def test_every_threshold_is_scaled() -> None:
    assert THRESHOLDS.keys() == set(Thresholds._fields)


#: Functions that shape kernels of large programs alone.
LARGE_SCHEDULES = [
    (products, "_pack_reused_panel_or_block_deep_reduce"),
    (products, "_compute_deep_reduce_in_blocks"),
    (scan, "_split_scan_across_cores_with_prefix_reduces"),
    (scan, "_tile_scan_columns"),
    (scatter, "_clear_add_in_order_and_store_values"),
    (products, "accumulate_in_output_memory_if_allowed"),
    (block_fusion, "_fuse_chain"),
]


def test_small_programs_are_compiled_as_large_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each schedule of large programs shapes a kernel of a workload in miniature, and none does on the machine itself."""
    if create_backend("llvm").target.machine.vector_bytes == 0:
        pytest.skip("the machine has no vectors")
    reached: set[str] = set()

    def count(module: object, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: object, **named: object) -> object:
            reached.add(name)
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, counted)

    for module, name in LARGE_SCHEDULES:
        count(module, name)
    subject = Subject("llvm")
    target = subject.target
    assert target is not None
    for k in range(800):
        scaled = target.describe_as(draw_scaled_machine(LARGE, SeededDraw(k)))
        lower(kinds.sample(7, k, ("workloads",)).graph, scaled, "optimize", Config(reuse=False))
        if len(reached) == len(LARGE_SCHEDULES):
            break
    assert reached == {name for _, name in LARGE_SCHEDULES}
