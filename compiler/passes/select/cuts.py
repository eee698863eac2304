"""Cuts: in which pieces a shaped value is computed, and what computing a piece costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uops.compiler.passes.select.positions import NOTHING, SCALAR, Lanes, Piece, Sums, index_of, size
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op


def cut(sums: Sums, u: UOp, width: int) -> list[Piece]:
    """The pieces in which a Store writes: consecutive in memory if any are, else in the order of its last axis."""
    n = size(u.src[1])
    if n == 1 or width == 1:
        return [(p,) for p in range(n)]
    lanes = sums.of(index_of(u), tuple(range(n)))
    found = runs(lanes, n) if lanes is not None else [list(range(n))]
    if max(map(len, found)) == 1:
        found = [list(range(n))]
    return [piece for run in found for piece in chunks(run, width)]


def chunks(run: Sequence[int], width: int) -> Iterator[Piece]:
    """A run in full vectors, then powers of two."""
    k = 0
    while k < len(run):
        while width > len(run) - k:
            width //= 2
        yield tuple(run[k : k + width])
        k += width


def runs(lanes: Lanes, n: int) -> list[list[int]]:
    """The positions in runs of consecutive addresses."""
    if lanes.steps == tuple(range(n)):
        return [list(range(n))]
    keys: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    varying = [k for k in lanes.terms.values() if isinstance(k, tuple)]
    addresses = lanes.constant if len(lanes.constant) > 1 else lanes.constant * n
    for p, (key, c) in enumerate(zip(zip(*varying) if varying else [()] * n, addresses)):
        keys.setdefault(key, []).append((c, p))
    found: list[list[int]] = []
    for places in keys.values():
        if len({c for c, _ in places}) < len(places):
            found += _steady(places)
            continue
        last = None
        for c, p in sorted(places):
            if last is None or c != last + 1:
                found.append([])
            found[-1].append(p)
            last = c
    return sorted(found)


def _steady(places: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Runs with one step from position to position, for (address, position) pairs that meet in an address: where a row is padded,
    its last positions, which are gated off, have the addresses of the next row's first."""
    address = {p: c for c, p in places}
    holders: dict[int, list[int]] = {}
    for c, p in places:
        holders.setdefault(c, []).append(p)
    found: list[list[int]] = []
    left = dict.fromkeys(sorted(address))
    while left:
        p = next(iter(left))
        step = min((q - p for q in holders.get(address[p] + 1, ()) if q > p and q in left), default=0)
        run = [p]
        while step and address.get(run[-1] + step) == address[run[-1]] + 1 and run[-1] + step in left:
            run.append(run[-1] + step)
        found.append(run)
        for q in run:
            del left[q]
    return found


def cost(sums: Sums, root: UOp, piece: Piece) -> int:
    """What computing a piece costs, roughly: 2 per access or operation of one vector, 1 for a scalar to be spread, 2 per lane of
    an access that is not contiguous."""
    total = 0
    pending, seen = [(root, piece)], set[tuple[UOp, Piece]]()
    while pending:
        u, piece = pending.pop()
        u, piece = sums.source(u, piece)
        if (u, piece) in seen or NOTHING in piece:
            continue
        seen.add((u, piece))
        if u.op is Op.LOAD:
            total += _access_cost(sums.of(index_of(u), piece), len(piece))
            pending += [(s, piece) for s in u.src[1:] if s.shape != ()]
        elif u.op in ALU and not (u.dtype is dt.index and sums.of(u, piece) is not None):
            total += 2 if len(piece) > 1 else 1
            pending += [(s, piece if s.shape else SCALAR) for s in u.src if u.shape]
    return total


def _access_cost(lanes: Lanes | None, w: int) -> int:
    if w == 1:
        return 1
    steps = None if lanes is None else lanes.steps
    return 1 if steps is not None and not any(steps) else 2 if steps == tuple(range(w)) else 2 * w
