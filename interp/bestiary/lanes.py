"""Lanes that run together: they meet at barriers and tensor-core instructions (R60, R119).

A lane is a generator that yields a `Request` where it has to wait and is sent the `Answer`. `together` runs lanes to their next
request and merges these into one, for whoever runs the lanes around; at the boundary of a workgroup `workgroup` answers. Lanes
that do not all come to the same node are a Trap.
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
from uops.spec.ir.node import UOp
from uops.spec.untrusted import quote_name
from uops.spec.wmma import find

#: Of each loop or launch around a lane, outermost first: whether it numbers the lanes of a warp, and the lane's number.
Coordinates = tuple[tuple[bool, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """Lanes that wait at `node`: what happened before, and at a Wmma the fragments of each."""

    node: UOp
    before: int
    fragments: dict[Coordinates, tuple[Array, Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """What happened before any lane goes on, and at a Wmma the result of each."""

    before: int
    fragments: dict[Coordinates, Array] = field(default_factory=dict)


Run = Generator[Request, Answer, Any]


def order(n: int, schedule: int | None, salt: Hashable) -> list[int]:
    """The numbers 0 to n - 1 in the order in which unordered iterations run."""
    numbers = list(range(n))
    if schedule is not None:
        random.Random(f"{schedule}:{salt}").shuffle(numbers)
    return numbers


def workgroup(run: Run) -> Any:
    """Run a whole workgroup, which waits for nobody."""
    answer: Answer | None = None
    try:
        while True:
            request = run.send(answer)  # type: ignore[arg-type]
            answer = Answer(request.before, _multiplied(request) if request.fragments else {})
    except StopIteration as end:
        return end.value


def together(lanes: Sequence[Run], warp: bool, turns: Sequence[int]) -> Run:
    """Run lanes of one workgroup side by side, in the order `turns` between two meetings."""
    answers: dict[int, Any] = dict.fromkeys(turns)
    while True:
        arrived: dict[int, Request] = {}
        for k in turns:
            try:
                arrived[k] = lanes[k].send(answers[k])
            except StopIteration:
                continue
        if not arrived:
            return
        first = next(iter(arrived.values()))
        if len(arrived) < len(lanes) or any(r.node is not first.node for r in arrived.values()):
            raise Trap(f"{len(arrived)} of {len(lanes)} lanes came to {describe(first.node)}: a lane went another way (R60)")
        answer = yield _merged(first.node, arrived, warp)
        for k in turns:
            mine = {c[1:]: x for c, x in answer.fragments.items() if c[0] == (warp, k)}
            answers[k] = Answer(answer.before, mine)


def _merged(node: UOp, arrived: dict[int, Request], warp: bool) -> Request:
    before, fragments = 0, {}
    for k, request in arrived.items():
        before |= request.before
        fragments.update({((warp, k), *c): x for c, x in request.fragments.items()})
    return Request(node, before, fragments)


def warps(lanes: Sequence[Coordinates], threads: int) -> list[list[Coordinates]]:
    """The lanes of a workgroup in warps: WARP loops vary fastest, then the innermost of the others (R125)."""
    ordered = sorted(lanes, key=lambda c: sorted(c, key=lambda x: x[0]))
    return [ordered[k : k + threads] for k in range(0, len(ordered), threads)]


def _multiplied(request: Request) -> dict[Coordinates, Array]:
    """The result of each lane of a Wmma (R118, R119)."""
    from uops.interp.ops.wmma import multiply

    u = request.node
    found: dict[Coordinates, Array] = {}
    descriptor = find(u.arg)
    if descriptor is None:
        raise Trap(f"Opaque({quote_name(u.arg.name)}): no descriptor says which lane holds what (R118)")
    for warp in warps(list(request.fragments), u.arg.threads):
        if len(warp) != u.arg.threads:
            raise Trap(f"{describe(u)} needs warps of {u.arg.threads} lanes, got {len(warp)} (R60)")
        a, b, acc = (np.stack([request.fragments[c][k] for c in warp]) for k in range(3))
        found.update(zip(warp, multiply(descriptor, a, b, acc)))
    return found
