"""The schedule of a kernel by hand-written choices, from a description of the machine.

`choose(schedule, machine, uniques)` gives the schedule after the OptOps that it chose, all of them legal; `uniques` numbers the
LOCAL Buffers that it inserts. On a machine without vectors it changes nothing. What it weighs, in order:

1. Loops that walk through memory as one are joined, so that a vector never ends at an inner extent.
2. One output loop becomes the lanes of vectors (UPCAST) if the kernel stores contiguous elements along it and most loads are
   contiguous or the same there; else the reduce loops do (UNROLL), where their loads are contiguous. Loads that are contiguous
   along another output loop get lanes of both: a square that is transposed in registers.
3. A product that is summed - a load that another output loop does not change - is computed as a tile of registers: that loop is
   UPCAST too, as far as accumulators, one row of operands and one broadcast fit the registers.
4. Extents that no factor divides are padded (Padto), if what is added is little.
5. A value that costs more than reading it, and is computed in two inner loops alike, is kept in LOCAL memory; so is the panel of
   operands that the rows of a product share, where there are rows enough to pay for the copy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from uops.compiler.optimize.accesses import Access, accesses, merged
from uops.compiler.optimize.clamp import clamped
from uops.compiler.optimize.schedule import Schedule, apply, around_fills
from uops.compiler.optimize.stage import repeated, staged, staged_in_output
from uops.compiler.optimize.sweep import swept
from uops.compiler.optimize.threads import WORTH, operations
from uops.compiler.passes.cost import work
from uops.compiler.target import Machine
from uops.spec import dtypes as dt
from uops.spec.axes import AxisType
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op
from uops.spec.optops import OptOp, Padto, Split, Swap
from uops.spec.scope import closed_by, open_ranges

#: What a vector access costs per element, as against a contiguous one: one element per lane.
GATHER = 8
#: Vectors per iteration of an elementwise loop, and accumulators of a reduction: enough to hide latency.
ELEMENTWISE_VECTORS = 2
REDUCE_VECTORS = 4
#: Panels of which the second cache holds this many need no blocks.
PANEL_SHARE = 2
#: Iterations of a deep Reduce in one block, and how much shorter one may be for a whole number of them.
DEPTH = 512
DEPTH_SLACK = 4
#: Bytes per cycle from the second cache, and how much loads need beside what they take when they never wait.
PANEL_BYTES = 24
LOAD_SLACK = 1.2
#: Most results of dot products that are summed side by side, and of one loop.
DOTS = 12
DOT_ROWS = 4
#: Vectors of columns that are reduced side by side: long pieces of a row of memory.
COLUMN_VECTORS = 16
#: Work, in units of `passes.cost`, from which a value that two loops share is kept; and how many of them at most.
KEPT_WORK = 14
_MOST_KEPT = 3
#: Rows of a product for which its columns, where no cache holds them, are read once in order.
FEW_ROWS = 8
#: Rows from which columns are swept, and how many rows are added to a tile of columns together.
SWEPT_ROWS = 16
ROWS_TOGETHER = 8
#: Iterations of a loop from which its lanes are worth a square of shuffles.
CROSSED = 4
#: Tiles of rows from which their shared panel is copied into LOCAL memory.
PACKED_ROWS = 4
#: Rows of a product that pay for a panel whose operands are gathered.
REUSED_ROWS = 24
_CACHES = (32 << 10, 512 << 10)
#: Loops shorter than this many vectors are not padded to a whole number of them.
_LEAST_PADDED = 2
#: Share of added iterations up to which an axis is padded for a register tile.
_MOST_ADDED = 0.25


def choose(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The schedule for a machine with vectors; `s` itself for one without."""
    if not machine.vector_bytes or any(r.src[0].op is not Op.CONST for r in s.ranges):
        return s
    s = _kept(merged(s), machine, uniques)
    return _vectorised(s, Facts(s), machine, uniques)


def _kept(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Rows of values that two inner loops share, in the output if they fit the second cache, else in LOCAL memory that fits the
    first cache beside what the loops read."""
    first, second = (machine.caches or _CACHES)[:2]
    for _ in range(_MOST_KEPT):
        uses = repeated(s, KEPT_WORK, work(toposort(s.effect)))
        if not uses:
            break
        value, (loop, *_) = uses[0]
        size = extent(loop) * value.dtype.itemsize * 2
        kept = staged_in_output(s, uses) if size <= second else None
        if kept is None and size > first:
            break
        s = kept or staged(s, uses, next(uniques))
    return s


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile: `rows` of `vectors` vectors each, for `beside` rows of columns."""

    rows: int
    vectors: int
    beside: int = 1


class Facts:
    """What the choices rest on, computed once per kernel."""

    def __init__(self, s: Schedule) -> None:
        self.order = toposort(s.effect)
        self.needs = open_ranges(self.order)
        self.accesses = accesses(s.effect)
        self.loads = [a for a in self.accesses if a.node.op is Op.LOAD]
        self.store = next(a for a in self.accesses if a.node is s.effect)
        self.reduces = [u for u in self.order if u.op is Op.REDUCE]
        # No vectors of these: their iterations share LOCAL memory, or may meet in one element.
        self.held = around_fills(s.effect) | {r for r in s.outputs if r.arg.axis_id in s.fixed}
        self.itemsize = max((u.dtype.itemsize for u in self.order if u.dtype in dt.STORABLE and u.op is not Op.CONST), default=4)

    def gather_cost(self, r: UOp, loads: Iterable[Access]) -> int:
        """What the loads that are made in the loop of `r` cost per element of it, 0 where it does not change them."""
        return sum(_COST.get(a.stride(r), GATHER) for a in loads)

    def below(self, u: UOp) -> list[Access]:
        """The loads of the operand of a Reduce, those of Reduces below it left out."""
        nodes = set(toposort(u.src[0], gate=lambda n: n.op is not Op.REDUCE or n is u))
        return [a for a in self.loads if a.node in nodes]


_COST: dict[int | None, int] = {0: 0, 1: 1}


def extent(r: UOp) -> int:
    return int(r.src[0].arg.value)


def _vectorised(s: Schedule, f: Facts, machine: Machine, uniques: Iterator[int]) -> Schedule:
    lanes = max(1, machine.vector_bytes // f.itemsize)
    turned = _turned(s, f, lanes, machine, uniques)
    if turned is not None:
        return _dots(turned, Facts(turned), lanes)
    lane = _output_lane(s, f, lanes)
    if lane is None and len(f.reduces) == 1 and not f.held:
        return _dots(s, f, lanes)
    if lane is not None:
        s = _lanes_of_output(s, f, lane, lanes, machine, uniques)
    for u in f.reduces:
        if lane is None or lane not in f.needs[u.src[0]]:
            s = _lanes_of_reduce(s, f, u, lanes, REDUCE_VECTORS)
    for u in f.order:
        if u.op is Op.END and closed_by(u)[-1] not in f.held:
            s = _split_lanes(s, closed_by(u)[-1], lanes, ELEMENTWISE_VECTORS, AxisType.UPCAST)
    return s


def _output_lane(s: Schedule, f: Facts, lanes: int) -> UOp | None:
    """The output loop for the lanes: contiguous in the Store, and not worse for the loads than the lanes of the reduces."""
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or extent(lane) < 2 or lane in f.held:
        return None
    inner = [u for u in f.reduces if lane in f.needs[u.src[0]]]
    rows = _row_loop(s, f, lane)
    if not inner or (rows is not None and extent(rows) >= REUSED_ROWS):
        return lane
    across = sum(f.gather_cost(lane, f.below(u)) for u in inner)
    along = sum(f.gather_cost(closed_by(u)[-1], f.below(u)) for u in inner)
    enough = all(extent(closed_by(u)[-1]) >= lanes for u in inner)
    return None if enough and along < across else lane


def _lanes_of_output(s: Schedule, f: Facts, lane: UOp, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule:
    rows = _row_loop(s, f, lane)
    if rows is None:
        summed = any(lane in f.needs[u.src[0]] for u in f.reduces)
        across = None if summed else _crossing_loop(s, f, lane)
        if across is not None:
            return _square(s, lane, across, lanes)
        vectors = min(COLUMN_VECTORS, machine.registers // 2) if summed else ELEMENTWISE_VECTORS
        if summed and extent(lane) > lanes * vectors and _rows_under(s, f, lane) >= SWEPT_ROWS:
            return _swept(s, f, lane, None, lanes, machine, uniques)
        return _split_lanes(s, lane, lanes, vectors, AxisType.UPCAST)
    streamed = _rows_under(s, f, lane) * extent(lane) * f.itemsize > (machine.caches or _CACHES)[1]
    if extent(rows) <= FEW_ROWS and streamed and len(f.reduces) == 1:
        return _swept(s, f, lane, rows, lanes, machine, uniques)
    return _tiled(s, f, rows, lane, machine, uniques)


def _tiled(s: Schedule, f: Facts, rows: UOp, lane: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """A register tile, and the panel of operands that its rows share."""
    lanes = min(machine.vector_bytes // f.itemsize, 1 << (extent(lane) - 1).bit_length())
    beside = _beside_loop(s, f, rows, lane) if extent(lane) <= 2 * lanes else None
    tile = _best_tile(extent(rows), extent(beside) if beside is not None else 1, extent(lane), lanes, machine)
    s = _split_by(s, lane, tile.vectors * lanes, AxisType.UPCAST)
    for loop, factor in ((rows, tile.rows), (beside, tile.beside)):
        if loop is not None and factor > 1:
            r = s.ranges[_number(s, loop)]
            s, r = clamped(s, r, factor) if extent(r) % factor else (s, r)
            s = apply(s, Split(_number(s, r), factor, AxisType.UPCAST))
    return _packed(s, rows, lane, machine, uniques)


def _swept(s: Schedule, f: Facts, lane: UOp, beside: UOp | None, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """Columns in tiles whose results fit half of the first cache, swept row by row; some rows at a time. `beside` is another output
    loop, for all of whose iterations the columns are read once."""
    n = lanes * ELEMENTWISE_VECTORS
    most = (machine.caches or _CACHES)[0] // 2 // f.itemsize // (extent(beside) if beside is not None else 1) // n * n
    tiles = -(-extent(lane) // most)
    if machine.cores > 1 and operations(f.order, f.needs) >= WORTH:  # a tile per core at least
        tiles = max(tiles, min(machine.cores, extent(lane) // n))
    tile = -(-extent(lane) // (tiles * n)) * n
    if extent(lane) % tile:
        s, lane = _then(s, lane, Padto(_number(s, lane), tile))
    s = apply(s, Split(_number(s, lane), n, AxisType.UPCAST))
    vectors = _newest(s)
    if tiles > 1:
        s = apply(s, Split(_number(s, lane), tile // n, AxisType.LOOP))
    columns: tuple[UOp, ...] = (_newest(s) if tiles > 1 else s.ranges[_number(s, lane)], vectors)
    if beside is not None:
        s = apply(s, Split(_number(s, beside), extent(beside), AxisType.UPCAST))
        columns = (_newest(s), *columns)
    for _ in f.reduces:
        u = _column_sum(s, columns)
        if u is None:
            break
        together = _divisor(extent(closed_by(u)[-1]), ROWS_TOGETHER)
        if together > 1:
            s = apply(s, Split(_number(s, closed_by(u)[-1]), together, AxisType.UNROLL))
        u = _column_sum(s, columns) or u
        s = swept(s, u, columns, [r for r in closed_by(u) if r.arg.type is AxisType.REDUCE], next(uniques))
    return s


def _rows_under(s: Schedule, f: Facts, lane: UOp) -> int:
    """Iterations of the shortest Reduce over values that change with the lanes."""
    return min(math.prod(map(extent, closed_by(u))) for u in f.reduces if lane in f.needs[u.src[0]])


def _column_sum(s: Schedule, columns: tuple[UOp, ...]) -> UOp | None:
    """The first Reduce in loops over values that change with the columns."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    summed = (u for u in order if u.op is Op.REDUCE and not needs[u.src[0]].isdisjoint(columns))
    return next((u for u in summed if any(r.arg.type is AxisType.REDUCE for r in closed_by(u))), None)


def _newest(s: Schedule) -> UOp:
    return max(s.ranges, key=lambda r: int(r.arg.axis_id))


def _crossing_loop(s: Schedule, f: Facts, lane: UOp) -> UOp | None:
    """The output loop along which most loads are contiguous that are not so along the lanes."""
    scattered = [a for a in f.loads if a.stride(lane) not in _COST]
    counts = {r: sum(a.stride(r) == 1 for a in scattered) for r in s.outputs if r not in f.held and extent(r) >= CROSSED}
    found = max(counts, key=lambda r: counts[r], default=None)
    return found if found is not None and counts[found] else None


def _square(s: Schedule, lane: UOp, across: UOp, lanes: int) -> Schedule:
    """As many lanes of two loops: what one loads along memory, the other stores along memory."""
    side = min(lanes, *(1 << extent(r).bit_length() - 1 for r in (lane, across)))
    s = _split_by(s, lane, side, AxisType.UPCAST)
    return _split_by(s, across, side, AxisType.UPCAST)


def _packed(s: Schedule, rows: UOp, lane: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The operands that change with the lanes and not with the rows, as a panel that all tiles of rows read; where that is more
    than the second cache holds, block after block of a deep Reduce."""
    here = {r.arg.axis_id: r for r in s.ranges}
    tiles, columns = here[rows.arg.axis_id], here[lane.arg.axis_id]
    if tiles not in s.outputs or columns not in s.outputs or extent(tiles) < PACKED_ROWS or _panel(s, tiles, columns) is None:
        return s
    if s.outputs.index(tiles) < s.outputs.index(columns) and tiles.arg.axis_id < columns.arg.axis_id:
        s = apply(s, Swap(_number(s, tiles), _number(s, columns)))
        tiles, columns = s.ranges[_number(s, columns)], s.ranges[_number(s, tiles)]
    panel = _panel(s, tiles, columns)
    assert panel is not None
    load, over = panel
    if math.prod(map(extent, over)) * load.dtype.itemsize * PANEL_SHARE > (machine.caches or _CACHES)[1]:
        return _blocked(s, tiles, columns, machine, uniques)
    return staged(s, [(load, over)], next(uniques))


def _blocked(s: Schedule, tiles: UOp, columns: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """A deep product in blocks: the outermost loop of its Reduce in parts, each of them for many tiles of rows."""
    (u,) = Facts(s).reduces
    k, *inner = closed_by(u)
    most = max(1, DEPTH // math.prod(map(extent, inner)))
    part = _divisor(extent(k), most)
    if part * DEPTH_SLACK < most:
        part = -(-extent(k) // -(-extent(k) // most))
        s, k = _then(s, k, Padto(_number(s, k), part)) if extent(k) % part else (s, k)
    s = apply(s, Split(_number(s, k), part, AxisType.REDUCE))
    depth = s.ranges[_number(s, k)]
    panel = _panel(s, tiles, columns)
    assert panel is not None
    load, over = panel
    s = staged(s, [(load, tuple(r for r in over if r is not depth))], next(uniques))
    vectors = [r for r in s.outputs if r.arg.type is AxisType.UPCAST]
    size = math.prod(map(extent, vectors)) * load.dtype.itemsize
    held = max(1, (machine.caches or _CACHES)[1] // 4 // size)
    if extent(tiles) > held:
        some = -(-extent(tiles) // -(-extent(tiles) // held))
        s, tiles = clamped(s, tiles, some) if extent(tiles) % some else (s, tiles)
        s = apply(s, Split(_number(s, tiles), some, AxisType.LOOP))
        tiles = _newest(s)
    f = Facts(s)
    vectors.sort(key=lambda r: -(f.store.stride(r) or 0))
    return swept(s, f.reduces[0], (tiles, *vectors), [depth], next(uniques))


def _panel(s: Schedule, rows: UOp, columns: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """The one Load of the kernel's Reduce that depends on `columns` and not on `rows`, with the loops that run through a panel."""
    f = Facts(s)
    if len(f.reduces) != 1:
        return None
    found = [a.node for a in f.below(f.reduces[0]) if columns in f.needs[a.node] and rows not in f.needs[a.node]]
    if len(found) != 1:
        return None
    reduced = closed_by(f.reduces[0])
    stores = {r: f.store.stride(r) or 0 for r in s.ranges}
    vectors = sorted((r for r in s.ranges if r.arg.type is AxisType.UPCAST and r in f.needs[found[0]]), key=lambda r: -stores[r])
    over = (*(r for r in s.ranges if r in reduced and r in f.needs[found[0]]), *vectors)
    return found[0], over


def _row_loop(s: Schedule, f: Facts, lane: UOp) -> UOp | None:
    """The output loop that reuses, in a Reduce, what the lanes load: one of its loads changes with the lanes and not with it."""
    rows = [r for r in reversed(s.outputs) if r is not lane and r not in f.held and extent(r) > 1]
    for u in f.reduces:
        loads = f.below(u)
        if len(loads) < 2 or lane not in f.needs[u.src[0]]:
            continue
        for r in rows:
            if r in f.needs[u.src[0]] and any(a.stride(lane) and a.stride(r) == 0 for a in loads):
                return r
    return None


def _beside_loop(s: Schedule, f: Facts, rows: UOp, lane: UOp) -> UOp | None:
    """Another output loop of columns: what changes with the rows is the same along it, as filters are along rows of an image."""
    (*_, u) = (u for u in f.reduces if lane in f.needs[u.src[0]])
    shared = [a.node for a in f.below(u) if rows in f.needs[a.node]]
    others = (r for r in reversed(s.outputs) if r not in (rows, lane) and r not in f.held and r in f.needs[u.src[0]])
    return next((r for r in others if not any(r in f.needs[a] for a in shared)), None)


def _best_tile(rows: int, beside: int, columns: int, lanes: int, machine: Machine) -> _Tile:
    """The tile that keeps the arithmetic units busiest with iterations that are no padding; of equal ones that with the most
    products per load. Two products, two loads and so many bytes of the panel, from the second cache, are done per cycle."""
    found, best = _Tile(1, 1, 1), 0.0
    for along, b in itertools.product(range(1, 5), range(1, 1 + min(beside, 4))):
        vectors = along * b
        most = max(1, (machine.registers - 1 - vectors) // vectors)
        for r in range(1, min(most, rows) + 1):
            used = _share(rows, r) * _share(columns, along * lanes) * _share(beside, b)
            products = r * vectors / 2
            cycles = max(products, LOAD_SLACK * (r + vectors) / 2, vectors * machine.vector_bytes / PANEL_BYTES)
            score = used * products / cycles * (1 + 0.02 * r * vectors / (r + vectors))
            if score > best:
                found, best = _Tile(r, along, b), score
    return found


def _share(n: int, k: int) -> float:
    """What share of the iterations is left when `n` is padded to a multiple of k."""
    return n / (-(-n // k) * k)


def _lanes_of_reduce(s: Schedule, f: Facts, u: UOp, lanes: int, vectors: int) -> Schedule:
    """The last loop of a Reduce as lanes, where its loads are contiguous."""
    return _split_lanes(s, closed_by(u)[-1], lanes, vectors, AxisType.UNROLL) if _has_lanes(f, u, lanes) else s


def _has_lanes(f: Facts, u: UOp, lanes: int) -> bool:
    r, loads = closed_by(u)[-1], f.below(u)
    return r not in f.held and extent(r) >= lanes and f.gather_cost(r, loads) <= len(loads)


def _dots(s: Schedule, f: Facts, lanes: int) -> Schedule:
    """One Reduce in lanes, for some results side by side: they share loads, and what folding the lanes costs in time."""
    (u,) = f.reduces
    if not _has_lanes(f, u, lanes):
        return s
    beside = 1
    for r in reversed([r for r in s.outputs if r in f.needs[u.src[0]]]):
        k = next(k for k in range(min(extent(r), DOT_ROWS), 0, -1) if k * beside <= DOTS)
        s, r = clamped(s, r, k) if extent(r) % k else (s, r)
        s, beside = _split_by(s, r, k, AxisType.UPCAST), beside * k
    return _lanes_of_reduce(s, Facts(s), Facts(s).reduces[0], lanes, max(1, min(REDUCE_VECTORS, 2 * REDUCE_VECTORS // beside)))


def _turned(s: Schedule, f: Facts, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule | None:
    """A product with fewer columns than a vector has lanes, ready for lanes along its Reduce: the operand that is not contiguous
    there is turned in LOCAL memory. None for any other kernel."""
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or extent(lane) >= lanes or len(f.reduces) != 1 or lane not in f.needs[f.reduces[0].src[0]] or f.held:
        return None
    k, loads = closed_by(f.reduces[0])[-1], f.below(f.reduces[0])
    across = [a for a in loads if a.stride(k) not in _COST]
    if len(across) != 1 or extent(k) < lanes or not any(a.stride(k) == 1 and lane not in f.needs[a.node] for a in loads):
        return None
    own = f.needs[across[0].node]
    over = (*(r for r in s.outputs if r in own), *(r for r in closed_by(f.reduces[0]) if r in own))
    size = math.prod(map(extent, over)) * across[0].node.dtype.itemsize
    reused = math.prod(extent(r) for r in s.outputs if r not in own)
    if reused < REUSED_ROWS or size * 2 > (machine.caches or _CACHES)[1] or not own <= set(over):
        return None
    return staged(s, [(across[0].node, over)], next(uniques))


# ---------------------------------------------------------------------------------------------------------------- OptOps


def _split_lanes(s: Schedule, r: UOp, lanes: int, vectors: int, target: AxisType) -> Schedule:
    """Up to `vectors` whole vectors of the loop; a short loop whole; a long one that no vector divides padded to one."""
    n = extent(r)
    width = next((lanes * k for k in range(vectors, 0, -1) if n % (lanes * k) == 0), 0)
    if not width and n >= _LEAST_PADDED * lanes:
        width = lanes * max(k for k in range(1, vectors + 1) if _share(n, lanes * k) >= 1 - _MOST_ADDED or k == 1)
    return _split_by(s, r, width or (n if n <= lanes * vectors else _divisor(n, lanes)), target)


def _divisor(n: int, most: int) -> int:
    return next(k for k in range(most, 0, -1) if n % k == 0)


def _split_by(s: Schedule, r: UOp, factor: int, target: AxisType) -> Schedule:
    """Split `r`, padded first if need be."""
    if factor <= 1:
        return s
    if extent(r) % factor:
        s, r = _then(s, r, Padto(_number(s, r), factor))
    return apply(s, Split(_number(s, r), factor, target))


def _then(s: Schedule, r: UOp, opt: OptOp) -> tuple[Schedule, UOp]:
    """The schedule after an OptOp that changes `r` in place, and what `r` is there."""
    changed = apply(s, opt)
    return changed, next(x for x in changed.ranges if x.arg.axis_id == r.arg.axis_id)


def _number(s: Schedule, r: UOp) -> int:
    """The number of a loop, which its id tells (R95)."""
    return next(k for k, x in enumerate(s.ranges) if x.arg.axis_id == r.arg.axis_id)
