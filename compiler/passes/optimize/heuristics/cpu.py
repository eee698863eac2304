"""The schedule of a kernel by hand-written choices, from a description of the machine.

`choose(schedule, machine, uniques)` gives the schedule after the OptOps that it chose, all of them legal; `uniques` numbers the
LOCAL Buffers that it inserts. On a machine without vectors it changes nothing. What it weighs, in order:

1. Loops that walk through memory as one are joined, so that a vector never ends at an inner extent; where a row is greatest is
   found in one pass (`paired`).
2. One output loop becomes the lanes of vectors (UPCAST) if the kernel stores contiguous elements along it and most loads are
   contiguous or the same there; else the reduce loops do (UNROLL), where their loads are contiguous: one of Reduces in one another.
   Loads that are contiguous along another output loop get lanes of both: a square that is transposed in registers.
3. Columns that are reduced, more than registers hold, are swept row by row (`sweep`).
4. A product that is summed - a load that another output loop does not change - is computed as a tile of registers, from packed
   panels and, if it is deep, in blocks; one of few columns as dot products (`products`).
5. Extents that no factor divides are padded (Padto), if what is added is little.
6. A value that costs more than reading it, and is computed in two inner loops alike, is kept: in the row of the output that it
   becomes, or in LOCAL memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from uops.compiler.passes.optimize.heuristics.argmax import paired
from uops.compiler.passes.optimize.heuristics.products import (
    REDUCE_VECTORS,
    REUSED_ROWS,
    dots,
    lanes_of_reduce,
    row_loop,
    tiled,
    turned,
)
from uops.compiler.passes.optimize.heuristics.sweep import swept
from uops.compiler.passes.optimize.heuristics.symbolic import vectorised
from uops.compiler.passes.optimize.heuristics.threads import WORTH, operations
from uops.compiler.passes.optimize.schedule.accesses import merged
from uops.compiler.passes.optimize.schedule.local_memory import repeated, staged, staged_in_output
from uops.compiler.passes.optimize.schedule.moves import (
    CACHES,
    COST,
    Facts,
    divisor,
    extent,
    newest,
    number_of,
    split_by,
    split_lanes,
    then,
)
from uops.compiler.passes.optimize.schedule.optops import apply, around_fills
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.passes.rangeify.cost import work
from uops.compiler.target import Machine
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import Padto, Split

#: Vectors per iteration of an elementwise loop, and operations on each from which there is one: the loop's own cost no more.
ELEMENTWISE_VECTORS = 2
LONG = 6
#: Vectors of columns that are reduced side by side: long pieces of a row of memory.
COLUMN_VECTORS = 16
#: Work, in units of `passes.cost`, from which a value that two loops share is kept; and how many of them at most.
KEPT_WORK = 14
_MOST_KEPT = 3
#: Rows of a product for which its columns, where no cache holds them, are read once in order.
FEW_ROWS = 16
#: Rows from which columns are swept, and how many rows are added to a tile of columns together.
SWEPT_ROWS = 16
ROWS_TOGETHER = 8
#: The same, times the rows of a product that are done beside each other.
ROWS_BESIDE = 32
#: Iterations of a loop from which its lanes are worth a square of shuffles.
CROSSED = 4


def choose(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The schedule for a machine with vectors; `s` itself for one without."""
    if not machine.vector_bytes:
        return s
    if any(r.src[0].op is not Op.CONST for r in s.ranges):
        return vectorised(s, machine)
    s = merged(s)
    search = paired(s, machine, uniques)
    if search is not None:
        return search
    s = _kept(s, machine, uniques)
    return _vectorised(s, Facts(s), machine, uniques)


def _kept(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Rows of values that two inner loops share, in the output if they fit the second cache, else in LOCAL memory that fits the
    first cache beside what the loops read."""
    first, second = (machine.caches or CACHES)[:2]
    for _ in range(_MOST_KEPT):
        uses = repeated(s, KEPT_WORK, work)
        if not uses:
            break
        value, (loop, *_) = uses[0]
        size = extent(loop) * value.dtype.itemsize * 2
        kept = staged_in_output(s, uses) if size <= second else None
        if kept is None and size > first:
            break
        s = kept or staged(s, uses, next(uniques))
    return s


def _vectorised(s: Schedule, f: Facts, machine: Machine, uniques: Iterator[int]) -> Schedule:
    lanes = max(1, machine.vector_bytes // f.itemsize)
    found = turned(s, f, lanes, machine, uniques)
    if found is not None:
        return dots(found, Facts(found), lanes)
    lane = _output_lane(s, f, lanes)
    if lane is None and len(f.reduces) == 1 and not f.held:
        return dots(s, f, lanes)
    if lane is not None:
        s = _lanes_of_output(s, f, lane, lanes, machine, uniques)
    around = set[UOp]()  # of Reduces in lanes: lanes of these loops would do each of them many times, side by side
    for u in f.reduces:
        if (lane is None or lane not in f.needs[u.src[0]]) and closed_by(u)[-1] not in around:
            before, s = s, lanes_of_reduce(s, f, u, lanes, REDUCE_VECTORS)
            around |= f.needs[u] if s is not before else set()
    for u in f.ends:
        if closed_by(u)[-1] not in f.held | around:
            s = split_lanes(s, closed_by(u)[-1], lanes, ELEMENTWISE_VECTORS, AxisType.UPCAST)
    return s


def _output_lane(s: Schedule, f: Facts, lanes: int) -> UOp | None:
    """The output loop for the lanes: contiguous in the Store, and not worse for the loads than the lanes of the reduces."""
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or extent(lane) < 2 or lane in f.held:
        return None
    inner = [u for u in f.reduces if lane in f.needs[u.src[0]]]
    rows = row_loop(s, f, lane)
    if not inner or (rows is not None and extent(rows) >= REUSED_ROWS):
        return lane
    across = sum(f.gather_cost(lane, f.below(u)) for u in inner)
    last = [r for u in inner if extent(r := closed_by(u)[-1]) >= lanes]
    along = [_cost_along(f, u, last) for u in inner]
    return None if None not in along and sum(filter(None, along)) < across else lane


def _cost_along(f: Facts, u: UOp, last: Sequence[UOp]) -> int | None:
    """What the loads of a Reduce cost along its own last loop or that of a Reduce around it, if that is one of `last`."""
    return min((f.gather_cost(r, f.below(u)) for r in last if r in f.needs[u.src[0]]), default=None)


def _lanes_of_output(s: Schedule, f: Facts, lane: UOp, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule:
    rows = row_loop(s, f, lane)
    if rows is None:
        summed = any(lane in f.needs[u.src[0]] for u in f.reduces)
        across = None if summed else _crossing_loop(s, f, lane)
        if across is not None:
            return _square(s, lane, across, lanes)
        streams = summed and all(a.stride(lane) is not None for a in f.loads)
        vectors = min(COLUMN_VECTORS, machine.registers // 2) if streams else _side_by_side(f)
        if streams and extent(lane) > lanes * vectors and rows_under(s, f, lane) >= SWEPT_ROWS:
            return _swept(s, f, lane, None, lanes, machine, uniques)
        return split_lanes(s, lane, lanes, vectors, AxisType.UPCAST)
    streamed = rows_under(s, f, lane) * extent(lane) * f.itemsize > (machine.caches or CACHES)[1]
    if extent(rows) <= FEW_ROWS and streamed and len(f.reduces) == 1:
        return _swept(s, f, lane, rows, lanes, machine, uniques)
    return tiled(s, f, rows, lane, machine, uniques)


def _side_by_side(f: Facts) -> int:
    """Vectors per iteration of a loop in which nothing is summed."""
    operations = sum(u.op in ALU and u.dtype is not dt.index for u in f.order)
    return 1 if operations >= LONG and not f.reduces else ELEMENTWISE_VECTORS


def _swept(s: Schedule, f: Facts, lane: UOp, beside: UOp | None, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Columns in tiles whose results fit half of the first cache, swept row by row; some rows at a time. `beside` is another output
    loop, for all of whose iterations the columns are read once."""
    n = lanes * ELEMENTWISE_VECTORS
    most = (machine.caches or CACHES)[0] // 2 // f.itemsize // (extent(beside) if beside is not None else 1) // n * n
    tiles = -(-extent(lane) // most)
    if machine.cores > 1 and operations(f.order, f.needs) >= WORTH:  # a tile per core at least
        tiles = max(tiles, min(machine.cores, extent(lane) // n))
    tile = -(-extent(lane) // (tiles * n)) * n
    if extent(lane) % tile:
        s, lane = then(s, lane, Padto(number_of(s, lane), tile))
    s = apply(s, Split(number_of(s, lane), n, AxisType.UPCAST))
    vectors = newest(s)
    if tiles > 1:
        s = apply(s, Split(number_of(s, lane), tile // n, AxisType.LOOP))
    columns: tuple[UOp, ...] = (newest(s) if tiles > 1 else s.ranges[number_of(s, lane)], vectors)
    if beside is not None:
        s = apply(s, Split(number_of(s, beside), extent(beside), AxisType.UPCAST))
        columns = (newest(s), *columns)
    for _ in f.reduces:
        u = _column_sum(s, columns)
        if u is None:
            break
        most = min(ROWS_TOGETHER, max(1, ROWS_BESIDE // extent(beside))) if beside is not None else ROWS_TOGETHER
        rows = closed_by(u)[-1]
        together = divisor(extent(rows), most) if rows not in around_fills(s.effect, registers=True) else 1
        if together > 1:
            s = apply(s, Split(number_of(s, rows), together, AxisType.UNROLL))
        u = _column_sum(s, columns) or u
        s = swept(s, u, columns, [r for r in closed_by(u) if r.arg.type is AxisType.REDUCE], next(uniques))
    return s


def rows_under(s: Schedule, f: Facts, lane: UOp) -> int:
    """Iterations of the shortest Reduce over values that change with the lanes."""
    return min(math.prod(map(extent, closed_by(u))) for u in f.reduces if lane in f.needs[u.src[0]])


def _column_sum(s: Schedule, columns: tuple[UOp, ...]) -> UOp | None:
    """The first Reduce in loops over values that change with the columns."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    summed = (u for u in order if u.op is Op.REDUCE and not needs[u.src[0]].isdisjoint(columns))
    return next((u for u in summed if any(r.arg.type is AxisType.REDUCE for r in closed_by(u))), None)


def _crossing_loop(s: Schedule, f: Facts, lane: UOp) -> UOp | None:
    """The output loop along which most loads are contiguous that are not so along the lanes."""
    scattered = [a for a in f.loads if a.stride(lane) not in COST]
    counts = {r: sum(a.stride(r) == 1 for a in scattered) for r in s.outputs if r not in f.held and extent(r) >= CROSSED}
    found = max(counts, key=lambda r: counts[r], default=None)
    return found if found is not None and counts[found] else None


def _square(s: Schedule, lane: UOp, across: UOp, lanes: int) -> Schedule:
    """As many lanes of two loops: what one loads along memory, the other stores along memory."""
    side = min(lanes, *(1 << extent(r).bit_length() - 1 for r in (lane, across)))
    s = split_by(s, lane, side, AxisType.UPCAST)
    return split_by(s, across, side, AxisType.UPCAST)
