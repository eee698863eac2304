"""Machines scaled down, for which small programs are large.

Takes: the model of a target's machine. Gives: a model with smaller caches, fewer registers, narrower vectors and smaller
thresholds. The heuristics then compile hundreds of elements as they compile millions on the machine itself. Code for the smaller
machine runs on the larger one. Only what the machine has is scaled: a target without vectors or workgroups gets none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from uops.compiler.target import MachineModel, Thresholds
from uops.spec.choices import ChoiceSource

#: Bytes of the first cache, and how many times as large the next one is.
FIRST_CACHES, CACHE_RATIOS = (64, 256, 1024, 4096), (2, 4, 16)
#: Bytes of a vector register; the machine's own is drawn as often as all of these.
VECTORS = (8, 16, 32)
#: Numbers of vector registers and of cores.
REGISTERS, CORES = (2, 4, 8, 16), (1, 2, 3, 4)
#: Lanes of a workgroup, and bytes of its LOCAL memory.
WORKGROUPS, LOCAL_MEMORY = (8, 16, 64, 256), (256, 1024, 8192)
#: Values of each threshold. The machine's own is drawn in one case of five.
THRESHOLDS: dict[str, tuple[int, ...]] = {
    "threaded_operations": (0, 64, 1024),
    "split_reduce_elements": (32, 64, 256),
    "kernel_cost": (0, 16, 256, 1 << 20),
    "shared_scan_elements": (16, 64, 256),
    "scan_columns": (2, 8, 64),
    "scatter_vectors": (1, 2, 4),
    "workgroup_scatter": (2, 8, 32),
    "reused_rows": (2, 4, 8),
    "packed_row_tiles": (2, 3),
    "swept_rows": (2, 4, 8),
    "block_rows": (2, 4, 8),
    "workgroup_reduce_steps": (4, 16, 64),
    "piece_instructions": (1, 16, 256),
}


def draw_scaled_machine(machine: MachineModel, draw: ChoiceSource) -> MachineModel:
    """Return a machine on which small programs are compiled as large ones are on `machine`."""
    scaled: dict[str, Any] = {"thresholds": _draw_thresholds(draw)}
    if machine.vector_bytes:
        narrower = tuple(k for k in VECTORS if k < machine.vector_bytes)
        scaled["vector_bytes"] = machine.vector_bytes if not narrower or draw.chance(50) else draw.choice(narrower)
        scaled["registers"] = min(machine.registers, draw.choice(REGISTERS))
        scaled["fma"], scaled["masks"] = machine.fma and draw.chance(70), machine.masks and draw.chance(70)
    if machine.caches:
        first = draw.choice(FIRST_CACHES)
        scaled["caches"] = first, first * draw.choice(CACHE_RATIOS)
    if machine.cores > 1:
        scaled["cores"] = draw.choice(CORES)
    if machine.workgroup:
        scaled["workgroup"] = min(machine.workgroup, draw.choice(WORKGROUPS))
        scaled["local_memory"] = min(machine.local_memory or max(LOCAL_MEMORY), draw.choice(LOCAL_MEMORY))
    return replace(machine, **scaled)


def _draw_thresholds(draw: ChoiceSource) -> Thresholds:
    return Thresholds()._replace(**{name: draw.choice(values) for name, values in THRESHOLDS.items() if not draw.chance(20)})
