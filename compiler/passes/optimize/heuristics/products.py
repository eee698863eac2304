"""Products that are summed, as schedules: register tiles with packed panels, blocks of deep ones, dot products.

A tile is `rows` times `vectors` accumulators: each row's operand is broadcast to the vectors of a panel, which all tiles of rows
share and which is copied to LOCAL memory. A product of few columns is done as dot products, in lanes along the Reduce. Spec: Kernel
Optimizations (OptOps); Lowering Pipeline/Optimize; R91.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from uops.compiler.ir.accumulators import wide_of
from uops.compiler.passes.optimize.heuristics.sweep import swept, swept_in_output
from uops.compiler.passes.optimize.schedule.accesses import merged
from uops.compiler.passes.optimize.schedule.clamp import clamped
from uops.compiler.passes.optimize.schedule.local_memory import staged
from uops.compiler.passes.optimize.schedule.moves import (
    CACHES,
    COST,
    Facts,
    divisor,
    extent,
    newest,
    number_of,
    share,
    split_by,
    split_lanes,
    then,
)
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import STACK_LIMIT, Machine
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.scope import closed_by
from uops.spec.optops import Padto, Split, Swap

#: Accumulators of a reduction: enough to hide latency.
REDUCE_VECTORS = 4
#: Panels of which the second cache holds this many need no blocks.
PANEL_SHARE = 2
#: And the sums of a block, where they have memory of their own, one in so many.
SUMS_SHARE = 4
#: Panels that share one reading of the rows, where a cache does not hold these; a fraction is left of what reading them costs.
PANELS = 4
#: Pieces of a product that every core gets: to read the rows for two panels at once gains more than pieces that even out.
PIECES = 2
#: How much shorter a block of a deep Reduce may be than what a cache holds, for a whole number of them.
DEPTH_SLACK = 4
#: Bytes per cycle from the second cache, and what loading the operand of a row takes, in loads that never wait.
PANEL_BYTES = 24
ROW_LOADS = 2
#: Most results of dot products that are summed side by side, and of one loop.
DOTS = 12
DOT_ROWS = 4
#: Tiles of rows from which their shared panel is copied into LOCAL memory.
PACKED_ROWS = 4
#: Rows of a product that pay for a panel whose operands are gathered.
REUSED_ROWS = 24


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile: `rows` of `vectors` vectors each, for `beside` rows of columns."""

    rows: int
    vectors: int
    beside: int = 1
    score: float = 0.0


def tiled(s: Schedule, f: Facts, rows: UOp, lane: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """A register tile, and the panel of operands that its rows share."""
    full = machine.vector_bytes // f.itemsize
    lanes = min(full, 1 << (extent(lane) - 1).bit_length())
    beside = _beside_loop(s, f, rows, lane) if extent(lane) <= 2 * lanes else None
    tile = _best_tile(extent(rows), extent(beside) if beside is not None else 1, extent(lane), lanes, full, machine)
    s = split_by(s, lane, tile.vectors * lanes, AxisType.UPCAST)
    for loop, factor in ((rows, tile.rows), (beside, tile.beside)):
        if loop is not None and factor > 1:
            r = s.ranges[number_of(s, loop)]
            s, r = clamped(s, r, factor) if extent(r) % factor else (s, r)
            s = apply(s, Split(number_of(s, r), factor, AxisType.UPCAST))
    return _packed(s, rows, lane, machine, uniques)


def row_loop(s: Schedule, f: Facts, lane: UOp) -> UOp | None:
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


def _best_tile(rows: int, beside: int, columns: int, lanes: int, full: int, machine: Machine) -> _Tile:
    """The tile with the best score; vectors have `lanes` of the columns, rows of columns beside them fill up `full` ones."""
    found = _Tile(1, 1)
    for along, b in itertools.product(range(1, 5), range(1, 1 + min(beside, 4 * full // lanes))):
        vectors = -(-along * b * lanes // full)
        used = share(columns, along * lanes) * share(beside, b) * share(along * b * lanes, full)
        found = max(found, _with_rows(rows, _Tile(1, along, b), vectors, used, machine), key=lambda t: t.score)
    return found


def _with_rows(rows: int, tile: _Tile, vectors: int, used: float, machine: Machine) -> _Tile:
    """The tile with the number of rows that keeps the arithmetic units busiest with iterations that are no padding; of equal ones
    with the most products per load. Two products, two loads and so many bytes of the panel, from the second cache, are done per
    cycle; the operands of rows lie apart in memory and wait for it more often."""
    found = tile
    most = max(1, (machine.registers - 1 - vectors) // vectors)
    for r in range(1, min(most, rows) + 1):
        products = r * vectors / 2
        cycles = max(products, (ROW_LOADS * r + vectors) / 2, vectors * machine.vector_bytes / PANEL_BYTES)
        score = used * share(rows, r) * products / cycles * (1 + 0.02 * r * vectors / (r + vectors))
        if score > found.score:
            found = replace(tile, rows=r, score=score)
    return found


def _packed(s: Schedule, rows: UOp, lane: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The operands that change with the lanes and not with the rows, as a panel that all tiles of rows read; where that is more
    than the second cache holds, block after block of a deep Reduce."""
    here = {r.arg.axis_id: r for r in s.ranges}
    tiles, columns = here[rows.arg.axis_id], here[lane.arg.axis_id]
    if tiles not in s.outputs or columns not in s.outputs or extent(tiles) < PACKED_ROWS or _panel(s, tiles, columns) is None:
        return s
    if s.outputs.index(tiles) < s.outputs.index(columns) and tiles.arg.axis_id < columns.arg.axis_id:
        s = apply(s, Swap(number_of(s, tiles), number_of(s, columns)))
        tiles, columns = s.ranges[number_of(s, columns)], s.ranges[number_of(s, tiles)]
    panel = _panel(s, tiles, columns)
    assert panel is not None
    load, over = panel
    size, cache = math.prod(map(extent, over)) * load.dtype.itemsize, _held(machine)
    beside = _panels_beside(columns, PANELS, machine) if _row_bytes(s, tiles, load) >= cache * PANEL_SHARE else 1
    k = closed_by(Facts(s).reduces[0])[0]
    divides = _divides(extent(k), _most(k, size, cache // beside))
    if size > min(cache * PANEL_SHARE, STACK_LIMIT) or (size * beside > cache and divides and (size > cache or _is_stored(s))):
        return _blocked(s, tiles, columns, size, machine, uniques)
    beside = _panels_beside(columns, cache // size, machine) if beside > 1 else 1
    s, load, over = _several(s, tiles, columns, beside)
    return merged(staged(s, [(load, over)], next(uniques), machine.vector_bytes // load.dtype.itemsize), only_reduces=True)


def _row_bytes(s: Schedule, tiles: UOp, load: UOp) -> int:
    """Bytes of what changes with the rows, and not with what panels of `load` change with; panel after panel reads all of it."""
    f = Facts(s)
    common = f.needs[load] - set(closed_by(f.reduces[0]))
    rows = (a.node for a in f.below(f.reduces[0]) if tiles in f.needs[a.node])
    return max((math.prod(map(extent, f.needs[u] - common)) * u.dtype.itemsize for u in rows), default=0)


def _panels_beside(columns: UOp, most: int, machine: Machine) -> int:
    """How many panels are filled together, so that rows are read once for all of them: `most` or less, to divide all that there are
    and to leave enough for the cores."""
    shared_out = extent(columns) // (PIECES * machine.cores) if machine.cores > 1 else most
    return divisor(extent(columns), max(1, min(most, shared_out, PANELS)))


def _several(s: Schedule, tiles: UOp, columns: UOp, beside: int) -> tuple[Schedule, UOp, tuple[UOp, ...]]:
    """The schedule whose columns are done in panels side by side, and what is staged for them."""
    if beside > 1:
        s = apply(s, Split(number_of(s, columns), beside, AxisType.LOOP))
        columns = newest(s)
    panel = _panel(s, tiles, columns)
    assert panel is not None
    load, over = panel
    return s, load, (columns, *over) if beside > 1 else over


def _is_stored(s: Schedule) -> bool:
    """Whether sums of the Reduce may be kept where it is stored."""
    (u,) = Facts(s).reduces
    return swept_in_output(s, u, (), closed_by(u)[0]) is not None


def _blocked(s: Schedule, tiles: UOp, columns: UOp, size: int, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """A deep product in blocks: the outermost loop of its Reduce in parts, each of them for many tiles of rows.
    A panel of all its iterations takes `size` bytes."""
    k, *inner = closed_by(Facts(s).reduces[0])
    stored = _is_stored(s)
    beside = _panels_beside(columns, PANELS, machine) if stored else 1
    most = _most(k, size, (_held(machine) if stored else min(_held(machine), STACK_LIMIT - _summed(machine))) // beside)
    part = divisor(extent(k), most)
    if not _divides(extent(k), most):
        part = -(-extent(k) // -(-extent(k) // most))
        s, k = then(s, k, Padto(number_of(s, k), part)) if extent(k) % part else (s, k)
    s = apply(s, Split(number_of(s, k), part, AxisType.REDUCE))
    depth, innermost = s.ranges[number_of(s, k)], newest(s)
    for r in inner:  # the part takes the first place of them, and each the next one's
        s = apply(s, Swap(number_of(s, innermost), number_of(s, r)))
    s, load, over = _several(s, tiles, columns, beside)
    lanes = machine.vector_bytes // load.dtype.itemsize
    s = staged(s, [(load, tuple(r for r in over if r is not depth))], next(uniques), lanes)
    found = swept_in_output(s, Facts(s).reduces[0], (tiles, over[0]) if beside > 1 else (tiles,), depth)
    return merged(found, only_reduces=True) if found else _in_registers(s, tiles, depth, machine, uniques)


def _held(machine: Machine) -> int:
    """Bytes that panels may take, of the second cache and of the stack."""
    return min((machine.caches or CACHES)[1] // PANEL_SHARE, STACK_LIMIT)


def _summed(machine: Machine) -> int:
    """Bytes that sums may take in memory of their own, beside a panel."""
    return min((machine.caches or CACHES)[1], STACK_LIMIT) // SUMS_SHARE


def _most(k: UOp, size: int, held: int) -> int:
    """The most iterations of loop `k`, of a Reduce, for which `held` bytes hold a panel that is `size` for all."""
    return max(1, extent(k) * held // size)


def _divides(n: int, most: int) -> bool:
    """Whether there are blocks of a good size that need no padding, which gates Loads in the loop of the products."""
    return divisor(n, most) * DEPTH_SLACK >= most


def _in_registers(s: Schedule, tiles: UOp, depth: UOp, machine: Machine, uniques: Iterator[int]) -> Schedule:
    """The sums of blocks of rows in memory of their own, as much as a part of the second cache."""
    vectors = [r for r in s.outputs if r.arg.type is AxisType.UPCAST]
    size = math.prod(map(extent, vectors)) * wide_of(Facts(s).reduces[0].dtype).itemsize
    held = max(1, _summed(machine) // size)
    if extent(tiles) > held:
        some = -(-extent(tiles) // -(-extent(tiles) // held))
        s, tiles = clamped(s, tiles, some) if extent(tiles) % some else (s, tiles)
        s = apply(s, Split(number_of(s, tiles), some, AxisType.LOOP))
        tiles = newest(s)
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


def lanes_of_reduce(s: Schedule, f: Facts, u: UOp, lanes: int, vectors: int) -> Schedule:
    """The last loop of a Reduce as lanes, where its loads are contiguous."""
    return split_lanes(s, closed_by(u)[-1], lanes, vectors, AxisType.UNROLL) if _has_lanes(f, u, lanes) else s


def _has_lanes(f: Facts, u: UOp, lanes: int) -> bool:
    return f.walks(u) and extent(closed_by(u)[-1]) >= lanes


def dots(s: Schedule, f: Facts, lanes: int) -> Schedule:
    """One Reduce in lanes, for some results side by side: they share loads, and what folding the lanes costs in time."""
    (u,) = f.reduces
    if not _has_lanes(f, u, lanes):
        return s
    beside = 1
    for r in reversed([r for r in s.outputs if r in f.needs[u.src[0]]]):
        k = next(k for k in range(min(extent(r), DOT_ROWS), 0, -1) if k * beside <= DOTS)
        s, r = clamped(s, r, k) if extent(r) % k else (s, r)
        s, beside = split_by(s, r, k, AxisType.UPCAST), beside * k
    return lanes_of_reduce(s, Facts(s), Facts(s).reduces[0], lanes, max(1, min(REDUCE_VECTORS, 2 * REDUCE_VECTORS // beside)))


def turned(s: Schedule, f: Facts, lanes: int, machine: Machine, uniques: Iterator[int]) -> Schedule | None:
    """A product with fewer columns, in all, than a vector has lanes, ready for lanes along its Reduce: the operand that is not
    contiguous there is turned in LOCAL memory. None for any other kernel."""
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or extent(lane) >= lanes or len(f.reduces) != 1 or lane not in f.needs[f.reduces[0].src[0]] or f.held:
        return None
    rows = row_loop(s, f, lane)
    beside = _beside_loop(s, f, rows, lane) if rows is not None else None
    if beside is not None and extent(lane) * extent(beside) >= lanes:
        return None
    k, loads = closed_by(f.reduces[0])[-1], f.below(f.reduces[0])
    across = [a for a in loads if a.stride(k) not in COST]
    if len(across) != 1 or extent(k) < lanes or not any(a.stride(k) == 1 and lane not in f.needs[a.node] for a in loads):
        return None
    own = f.needs[across[0].node]
    over = (*(r for r in s.outputs if r in own), *(r for r in closed_by(f.reduces[0]) if r in own))
    size = math.prod(map(extent, over)) * across[0].node.dtype.itemsize
    reused = math.prod(extent(r) for r in s.outputs if r not in own)
    if reused < REUSED_ROWS or size * 2 > (machine.caches or CACHES)[1] or not own <= set(over):
        return None
    return staged(s, [(across[0].node, over)], next(uniques))
