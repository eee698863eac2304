"""The schedule of a kernel for a machine of workgroups, by hand-written choices.

`choose(s, machine, uniques)` gives the schedule after the OptOps that it chose, all of them legal. Output loops are GLOBAL, so that
iterations run side by side; what it weighs, in order:

0. A product that a tensor core of the machine has is done by it (TC), two by two tiles in a workgroup.
1. A sum of products of which each operand depends on one of two output loops is computed in tiles: a workgroup has a tile of both
   loops, a lane a tile of registers in it (UPCAST), and the operands of a piece of the reduction go through LOCAL memory, from
   which all lanes of a row or column read them (`shared`).
2. Without a reduction, what is read along another loop than it is written along goes through LOCAL memory, in squares.
3. A reduction whose loads are contiguous, or that has too few outputs to keep the machine busy, is done by the lanes of a
   workgroup together (GROUP_REDUCE).
4. Else the loop along which elements follow each other in memory becomes vectors of a lane (UPCAST), then lanes (LOCAL).

A loop that no factor divides is padded, if what is added is little. A kernel whose output loops keep their order stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from uops.compiler.passes.optimize.schedule.accesses import Access, accesses, merged
from uops.compiler.passes.optimize.schedule.optops import apply, greatest, reason_against
from uops.compiler.passes.optimize.schedule.schedule import Schedule, typed
from uops.compiler.passes.optimize.schedule.shared_memory import in_registers, shared
from uops.compiler.target import Machine
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import TC, OptOp, Padto, Split

#: Lanes and registers of a tile: (lanes of rows, lanes of columns, rows and columns of a lane's registers); the first that fits.
TILES = ((8, 16, 4, 4), (8, 8, 4, 4), (4, 8, 4, 4), (4, 4, 2, 2))
#: Steps of the reduction whose operands are in LOCAL memory at a time, and how many of them are unrolled.
PIECE, UNROLLED = 16, 4
#: Sides of a square that is read along one loop and written along another.
SQUARE = 16
#: Lanes of a workgroup where nothing else decides; of a reduction.
LANES, REDUCING = 64, 64
#: Outputs from which a reduction needs no more lanes.
BUSY = 4096
#: Steps of a reduction from which lanes share it.
LONG = 128
#: Share of added iterations up to which an axis is padded.
MOST_ADDED = 0.34
#: LOCAL memory that a machine has at least.
_LOCAL = 16 << 10


def choose(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The schedule for a machine with workgroups."""
    if s.fixed:
        return s
    if all(r.src[0].op is Op.CONST for r in s.ranges):
        s = merged(s)
    if s.outputs:
        s = typed(s, dict.fromkeys(s.outputs, AxisType.GLOBAL))
    f = _Facts(s)
    if machine.tensor_cores:
        for opt in (TC(0, -1, level) for level in range(3)):
            if reason_against(s, opt, machine) is None:
                return _warps(apply(s, opt, machine), machine)
    product = f.product()
    if product is not None:
        found = _tiled(s, product, machine, uniques)
        if found is not None:
            return found
    crossed = _crossed(s, f, machine, uniques)
    if crossed is not None:
        return crossed
    grouped = _shared_reductions(s, f, machine)
    return grouped if grouped is not s else _lanes(s, f, machine)


@dataclass(frozen=True, slots=True)
class _Product:
    """A Reduce of a product: the loop of rows, on which `left` depends, that of columns, on which `right` does, and the steps."""

    rows: UOp
    columns: UOp
    steps: UOp
    left: UOp
    right: UOp


class _Facts:
    """What the choices rest on."""

    def __init__(self, s: Schedule) -> None:
        self.outputs = s.outputs
        self.order = toposort(s.effect)
        self.needs = open_ranges(self.order)
        self.accesses = accesses(s.effect)
        self.reduces = [u for u in self.order if u.op is Op.REDUCE]
        self.store = next((a for a in self.accesses if a.node is s.effect), None)

    def below(self, u: UOp) -> list[Access]:
        """The loads of a Reduce's operand, those of Reduces below it left out."""
        nodes = set(toposort(u.src[0], gate=lambda n: n.op is not Op.REDUCE))
        return [a for a in self.accesses if a.node.op is Op.LOAD and a.node in nodes]

    def product(self) -> _Product | None:
        """The one Reduce of the kernel, if it is over a product of two loads and one loop."""
        if len(self.reduces) != 1 or len(closed_by(self.reduces[0])) != 1:
            return None
        u, (steps,) = self.reduces[0], closed_by(self.reduces[0])
        loads = self.below(u)
        if u.arg.op is not Op.ADD or len(loads) != 2 or any(steps not in self.needs[a.node] for a in loads):
            return None
        for left, right in (loads, loads[::-1]):
            own = [r for r in self.outputs if r in self.needs[left.node] and r not in self.needs[right.node]]
            other = [r for r in self.outputs if r in self.needs[right.node] and r not in self.needs[left.node]]
            if own and other and self.store is not None and self.store.stride(other[-1]) == 1:
                return _Product(own[-1], other[-1], steps, left.node, right.node)
        return None


def _warps(s: Schedule, machine: Machine) -> Schedule:
    """Neighbouring tiles of a tensor core's product in one workgroup, two by two."""
    for r in [r for r in s.outputs if r.arg.type is AxisType.GLOBAL][-2:]:
        split = Split(_number(s, int(r.arg.axis_id)), 2, AxisType.LOCAL)
        if reason_against(s, split, machine) is None:
            s = apply(s, split, machine)
    return s


# ----------------------------------------------------------------------------------------------------------------- tiles


def _tiled(s: Schedule, p: _Product, machine: Machine, uniques: Iterator[int]) -> Schedule | None:
    """The product in tiles; None where it is too small for any of them."""
    for lanes_r, lanes_c, regs_r, regs_c in TILES:
        rows, columns = lanes_r * regs_r, lanes_c * regs_c
        panels = (rows + columns) * PIECE * max(p.left.dtype.itemsize, p.right.dtype.itemsize)
        if lanes_r * lanes_c > machine.workgroup or panels > (machine.local_memory or _LOCAL):
            continue
        if not (_is_little(p.rows, rows) and _is_little(p.columns, columns) and _is_little(p.steps, PIECE)):
            continue
        ids = [int(r.arg.axis_id) for r in (p.rows, p.columns, p.steps)]
        for axis, factor, target in (
            (ids[0], rows, None), (ids[1], columns, None), (ids[2], PIECE, None),
            (ids[0], regs_r, AxisType.UPCAST), (ids[1], regs_c, AxisType.UPCAST),
            (ids[0], lanes_r, AxisType.LOCAL), (ids[1], lanes_c, AxisType.LOCAL),
            (ids[2], PIECE, AxisType.REDUCE),
        ):  # fmt: skip
            s = _then(s, Padto(_number(s, axis), factor) if target is None else Split(_number(s, axis), factor, target), machine)
        return _panels(s, machine, uniques)
    return None


def _panels(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Both operands in LOCAL memory, a piece of the reduction at a time; then some of its steps unrolled."""
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE)
    steps = closed_by(u)[-1]
    for _ in range(2):
        f = _Facts(s)
        load = next(a for a in f.below(f.reduces[0]) if a.node.src[0].src[0].op is Op.PARAM)
        over = [r for r in f.needs[load.node] if r is steps or r.arg.type in (AxisType.LOCAL, AxisType.UPCAST)]
        s = shared(s, load.node, sorted(over, key=lambda r: _by_stride(load, r)), next(uniques))
    at = next(k for k, r in enumerate(s.ranges) if r is steps)
    return in_registers(_then(s, Split(at, UNROLLED, AxisType.UNROLL), machine), next(uniques))


def _crossed(s: Schedule, f: _Facts, machine: Machine, uniques: Iterator[int]) -> Schedule | None:
    """Squares of a Load that runs along another loop than the Store, in LOCAL memory; None where there is no such Load."""
    lane = next((r for r in s.outputs if f.store is not None and f.store.stride(r) == 1), None)
    loads = [a for a in f.accesses if a.node.op is Op.LOAD]
    if lane is None or f.reduces or SQUARE * SQUARE > machine.workgroup or not _is_little(lane, SQUARE):
        return None
    for a in loads:
        along = next((r for r in s.outputs if r is not lane and a.stride(r) == 1), None)
        fits = SQUARE * SQUARE * a.node.dtype.itemsize <= (machine.local_memory or _LOCAL)
        if along is None or a.stride(lane) in (0, 1, None) or not fits or not _is_little(along, SQUARE):
            continue
        for r in (along, lane):
            axis = int(r.arg.axis_id)
            s = _then(s, Padto(_number(s, axis), SQUARE), machine)
            s = _then(s, Split(_number(s, axis), SQUARE, AxisType.LOCAL), machine)
        after = _Facts(s)
        load = next(x for x in after.accesses if x.node.op is Op.LOAD and x.node.src[0].src[0] is a.node.src[0].src[0])
        over = [r for r in after.needs[load.node] if r.arg.type is AxisType.LOCAL]
        return shared(s, load.node, sorted(over, key=lambda r: _by_stride(load, r)), next(uniques))
    return None


def _by_stride(load: Access, r: UOp) -> tuple[int, int]:
    """Long steps first, so that neighbours in memory are neighbours in the panel."""
    return -abs(load.stride(r) or 0), int(r.arg.axis_id)


def _is_little(r: UOp, multiple: int) -> bool:
    """Whether padding a loop to a multiple adds little."""
    n = greatest_of(r)
    return n >= multiple // 2 and -(-n // multiple) * multiple <= (1 + MOST_ADDED) * n


def greatest_of(r: UOp) -> int:
    bound = r.src[0]
    return greatest(int(bound.arg.value) if bound.op is Op.CONST else bound)


# ------------------------------------------------------------------------------------------------------------ reductions


def _shared_reductions(s: Schedule, f: _Facts, machine: Machine) -> Schedule:
    """The lanes of a workgroup share each reduction that is worth it."""
    outputs = math.prod(greatest_of(r) for r in s.outputs)
    for u in f.reduces:
        r = closed_by(u)[-1]
        n = greatest_of(r)
        contiguous = any(a.stride(r) == 1 for a in f.below(u))
        across = s.outputs and any(a.stride(s.outputs[-1]) == 1 for a in f.below(u))
        outer = any(x.arg.type is AxisType.REDUCE for x in f.needs[u])  # inside of another reduction
        if n < LONG or outer or (outputs >= BUSY and (across or not contiguous)):
            continue
        lanes = next((k for k in (REDUCING * 4, REDUCING * 2, REDUCING, 32) if k <= machine.workgroup and k * 4 <= n), 0)
        if not lanes:
            continue
        axis = int(r.arg.axis_id)
        padded = _then(s, Padto(_number(s, axis), lanes), machine)
        split = Split(_number(padded, axis), lanes, AxisType.GROUP_REDUCE)
        if reason_against(padded, split, machine) is None:
            s = apply(padded, split, machine)
    return s


# ----------------------------------------------------------------------------------------------------------------- lanes


def _lanes(s: Schedule, f: _Facts, machine: Machine) -> Schedule:
    """The contiguous loop as vectors and lanes; a kernel without one has the lanes of its last loops."""
    if f.store is None or not s.outputs:
        return s
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), s.outputs[-1])
    axis, n = int(lane.arg.axis_id), greatest_of(lane)
    width = max(1, machine.vector_bytes // max((a.node.dtype.itemsize for a in f.accesses if a.node.op is Op.LOAD), default=4))
    straight = all(a.stride(lane) in (0, 1) for a in f.accesses) and not f.reduces
    if straight and n >= width * LANES and n % width == 0 and lane.src[0].op is Op.CONST:
        s = _then(s, Split(_number(s, axis), width, AxisType.UPCAST), machine)
        n //= width
    wanted = min(LANES, machine.workgroup)
    return _local(s, axis, n, wanted, machine) if n > 1 else s


def _local(s: Schedule, axis: int, n: int, wanted: int, machine: Machine) -> Schedule:
    """Up to `wanted` lanes of a loop: a factor, or all that padding makes."""
    known = isinstance(s.axes[_number(s, axis)].extent, int)
    factor = next((k for k in range(min(n, wanted), 0, -1) if n % k == 0), 1) if known else 0
    if not known or (factor < wanted // 2 and n > wanted):
        s, factor = _then(s, Padto(_number(s, axis), wanted), machine), wanted
    split = Split(_number(s, axis), factor, AxisType.LOCAL)
    return apply(s, split, machine) if factor > 1 and reason_against(s, split, machine) is None else s


def _then(s: Schedule, opt: OptOp, machine: Machine) -> Schedule:
    return apply(s, opt, machine)


def _number(s: Schedule, axis: int) -> int:
    """The number of the loop with an id (R95)."""
    return next(k for k, r in enumerate(s.ranges) if r.arg.axis_id == axis)
