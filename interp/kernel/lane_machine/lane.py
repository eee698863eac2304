"""The state of one lane of a workgroup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uops.interp.kernel.lane_machine.workgroup import Workgroup
from uops.interp.kernel.structure.launch import natural_sort_key
from uops.interp.kernel.structure.order import Stamp
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: A lane loop's range, the iteration, and the trip count.
Dim = tuple[UOp, int, int]


def _dimension_sort_key(dim: Dim) -> tuple[bool, list[tuple[int, str]]]:
    """Return a sort key that puts the dimension that varies fastest first."""
    r = dim[0]
    return (True, natural_sort_key(r.arg.name)) if r.op is Op.SPECIAL else (r.arg.type is not AxisType.WARP, [])


class LaneState:
    """One thread of execution: the values of nodes by slot, and its place in the kernel.

    `prefix` is the stamp of the present block. `key` names the lane, `group` its workgroup, and `dims` its iterations of lane
    loops.
    """

    __slots__ = ("dims", "group", "key", "prefix", "values", "workgroup")

    def __init__(
        self,
        values: list[Any],
        prefix: Stamp = (),
        key: tuple[int, ...] = (),
        group: tuple[int, ...] = (),
        workgroup: Workgroup | None = None,
        dims: tuple[Dim, ...] = (),
    ) -> None:
        self.values = values
        self.prefix = prefix
        self.key = key
        self.group = group
        self.workgroup = workgroup
        self.dims = dims

    def index_in_workgroup(self) -> int:
        """Return the number of the lane in the workgroup.

        WARP ranges vary fastest, then the innermost of the other loops; of Specials the one with the first name (R125).
        """
        index, stride, innermost_first = 0, 1, list(self.dims)
        innermost_first.reverse()
        for _, i, n in sorted(innermost_first, key=_dimension_sort_key):
            index += i * stride
            stride *= n
        return index


#: (lane, stamp of the event) -> the node's value in that lane.
LaneStep = Callable[[LaneState, Stamp], Any]
