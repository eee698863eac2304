"""A lane of a workgroup, and what it does with one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uops.interp.kernel.lane_machine.workgroup import Team
from uops.interp.kernel.structure.launch import natural
from uops.interp.kernel.structure.order import Stamp
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: A lane loop's range, the iteration, and how many there are.
Dim = tuple[UOp, int, int]


def _speed(dim: Dim) -> tuple[bool, list[tuple[int, str]]]:
    r = dim[0]
    return (True, natural(r.arg.name)) if r.op is Op.SPECIAL else (r.arg.type is not AxisType.WARP, [])


class Lane:
    """One thread of execution: the values of nodes, the way to the present block, and what names the lane and its workgroup."""

    __slots__ = ("dims", "group", "key", "prefix", "team", "values")

    def __init__(
        self,
        values: list[Any],
        prefix: Stamp = (),
        key: tuple[int, ...] = (),
        group: tuple[int, ...] = (),
        team: Team | None = None,
        dims: tuple[Dim, ...] = (),
    ) -> None:
        self.values = values
        self.prefix = prefix
        self.key = key
        self.group = group
        self.team = team
        self.dims = dims

    def number(self) -> int:
        """Its place among the lanes of the workgroup: WARP ranges vary fastest, then the innermost of the other loops; of Specials
        the one with the first name (R125)."""
        found, stride, inwards = 0, 1, list(self.dims)
        inwards.reverse()
        for _, i, n in sorted(inwards, key=_speed):
            found += i * stride
            stride *= n
        return found


#: (lane, stamp of the event) -> the node's value in that lane.
Step = Callable[[Lane, Stamp], Any]
