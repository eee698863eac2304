"""Lanes that run side by side: they wait for each other at barriers and tensor-core instructions (R60, R119).

A lane is a generator that yields a `SyncRequest` where it has to wait and is sent the `SyncReply`. `run_lanes_together_for_effects`
runs lanes to their next request and merges these into one, for the loop or launch around them. At the boundary of a workgroup
`run_workgroup` answers. Lanes that do not all come to the same node are a Trap.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import Trap
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.node import UOp
from uops.spec.untrusted import escape_to_one_line
from uops.spec.wmma import find_descriptor

#: Per loop or launch around a lane, outermost first: True if it numbers the lanes of a warp, and the lane's number.
Coordinates = tuple[tuple[bool, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class SyncRequest:
    """A request of lanes that wait at `node`: the events that happened before, and at a Wmma the fragments of each."""

    node: UOp
    before: int
    fragments: dict[Coordinates, tuple[Array, Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class SyncReply:
    """The reply to a request: the events that happened before any lane goes on, and at a Wmma the result of each."""

    before: int
    fragments: dict[Coordinates, Array] = field(default_factory=dict)


#: A running lane.
BestiaryCoroutine = Generator[SyncRequest, SyncReply, Any]


def iteration_order(count: int, schedule: int | None, salt: Hashable) -> list[int]:
    """Return the numbers 0 to count - 1 in the order in which unordered iterations run."""
    numbers = list(range(count))
    if schedule is not None:
        random.Random(f"{schedule}:{salt}").shuffle(numbers)
    return numbers


def run_workgroup(coroutine: BestiaryCoroutine) -> Any:
    """Run a whole workgroup, which waits for no other."""
    reply: SyncReply | None = None
    try:
        while True:
            request = coroutine.send(reply)  # type: ignore[arg-type]
            reply = SyncReply(request.before, _compute_wmma_of_each_warp(request) if request.fragments else {})
    except StopIteration as end:
        return end.value


def run_lanes_together_for_effects(
    lanes: Sequence[BestiaryCoroutine], is_warp_axis: bool, turn_order: Sequence[int]
) -> BestiaryCoroutine:
    """Run lanes of one workgroup side by side, in the order `turn_order` between two requests."""
    replies: dict[int, Any] = dict.fromkeys(turn_order)
    while True:
        arrived: dict[int, SyncRequest] = {}
        for k in turn_order:
            try:
                arrived[k] = lanes[k].send(replies[k])
            except StopIteration:
                continue
        if not arrived:
            return
        first = next(iter(arrived.values()))
        if len(arrived) < len(lanes) or any(r.node is not first.node for r in arrived.values()):
            raise Trap(f"{len(arrived)} of {len(lanes)} lanes came to {describe(first.node)}: a lane went another way (R60)")
        merged_reply = yield _join_requests_of_lanes(first.node, arrived, is_warp_axis)
        for k in turn_order:
            own_fragments = {c[1:]: x for c, x in merged_reply.fragments.items() if c[0] == (is_warp_axis, k)}
            replies[k] = SyncReply(merged_reply.before, own_fragments)


def _join_requests_of_lanes(node: UOp, arrived: dict[int, SyncRequest], is_warp_axis: bool) -> SyncRequest:
    """Return the request of all lanes that arrived at a node."""
    before, fragments = 0, {}
    for k, request in arrived.items():
        before |= request.before
        fragments.update({((is_warp_axis, k), *c): x for c, x in request.fragments.items()})
    return SyncRequest(node, before, fragments)


def group_into_warps(lanes: Sequence[Coordinates], threads: int) -> list[list[Coordinates]]:
    """Return the lanes of a workgroup in warps: WARP loops vary fastest, then the innermost of the others (R125)."""
    ordered = sorted(lanes, key=lambda c: sorted(c, key=lambda x: x[0]))
    return [ordered[k : k + threads] for k in range(0, len(ordered), threads)]


def _compute_wmma_of_each_warp(request: SyncRequest) -> dict[Coordinates, Array]:
    """Return the result of a Wmma for each lane (R118, R119)."""
    from uops.interp.ops.wmma import multiply_tile_grid  # late: few graphs have a Wmma

    u = request.node
    results: dict[Coordinates, Array] = {}
    arg: WmmaArg = u.arg
    descriptor = find_descriptor(arg)
    if descriptor is None:
        raise Trap(
            f"Opaque({escape_to_one_line(u.arg.name)}): no descriptor says "
            f"which lane of {escape_to_one_line(arg.device)} holds what (R118)"
        )
    for warp in group_into_warps(list(request.fragments), u.arg.threads):
        if len(warp) != u.arg.threads:
            raise Trap(f"{describe(u)} needs warps of {u.arg.threads} lanes, got {len(warp)} (R60)")
        a, b, acc = (np.stack([request.fragments[c][k] for c in warp]) for k in range(3))
        results.update(zip(warp, multiply_tile_grid(descriptor, u.arg.tile_grid, a, b, acc)))
    return results
