"""The lowering of a WMMA that ends ranges or computes a grid of tiles, to Wmmas of one tile (R178, configuration of a Wmma)."""

from __future__ import annotations

from dataclasses import replace

from uops.spec.bestiary.lower import LegalizeState, split_lanes
from uops.spec.ir import build as b
from uops.spec.ir.args import AddrSpace, WmmaArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, scope_nodes


def lower_wmma_grid_to_register_accumulation(u: UOp, state: LegalizeState) -> UOp:
    """Lower a WMMA: its accumulator becomes register memory, to which each Wmma of one tile adds in the loops of the ranges."""
    lhs, rhs, accumulator, *ranges = state.core_sources(u)
    along_n, along_m = u.arg.tile_grid
    if not ranges and (along_n, along_m) == (1, 1):
        return u.replace(src=(lhs, rhs, accumulator))
    size = len(split_lanes(accumulator))
    device = u.device if isinstance(u.device, str) else state.device
    registers = b.buffer(size, u.arg.dtype_out, device, AddrSpace.REG, state.get_unique_number_or_assign_fresh_id(u))
    outer = sorted(open_ranges(scope_nodes(u))[u], key=lambda r: (r.arg.axis_id, r.arg.renumbered))
    first = b.store(b.after(registers, *(state[r] for r in outer)), accumulator)
    running = b.after(registers, first, *ranges)
    left, right = _split_into_tiles(lhs, along_m), _split_into_tiles(rhs, along_n)
    tiles = along_m * along_n
    steps = []
    for tile in range(tiles):
        elements = range(tile * size // tiles, (tile + 1) * size // tiles)
        place = running if tiles == 1 else b.at(running, b.shape_vector(tuple(elements)))
        product = UOp(
            Op.WMMA, (left[tile // along_n], right[tile % along_n], b.load(place)), u.arg if tiles == 1 else _one_tile(u.arg)
        )
        steps.append(b.store(place, product))
    step = steps[0] if tiles == 1 else b.group(*steps)
    return b.load(b.after(registers, b.end(step, *ranges)))


def _split_into_tiles(fragments: UOp, count: int) -> list[UOp]:
    """Return the fragments of each of `count` tiles, which a lane holds one after the other."""
    if count == 1:
        return [fragments]
    lanes = split_lanes(fragments)
    size = len(lanes) // count
    return [b.stack(*lanes[k * size : (k + 1) * size]) for k in range(count)]


def _one_tile(arg: WmmaArg) -> WmmaArg:
    """Return the configuration of one tile of a grid; the axes that number the whole fragments are dropped."""
    return replace(arg, tile_grid=(1, 1), upcast_a=(), upcast_b=(), upcast_c=())
