"""TC: a sum of products by a tensor core's instruction (R93, R97, R118, R119, R142).

`match(s, opt, machine)` says how the Reduce over the OptOp's axis fits one of the machine's descriptors, or why it does not.
`apply_tc(s, opt, machine)` does it. The axes m, n and k of the product split into M, N and K of the descriptor and the rest. In
the program that remains outside of the Reduce, m and n of a tile are what the lane map of C says for lane t, a WARP loop, and its
element e, an UPCAST loop:

    out[m, n] = f(Reduce(Cast(A[m, k]) * Cast(B[k, n]), k))   becomes, with mode 1,

    acc[e] = 0 for all e; for each step of k: acc = Wmma(fragment of A, fragment of B, acc); out[m(t, e), n(t, e)] = f(acc[e])

A fragment is the Stack of what a lane holds by the lane maps of A and B; where the axes were padded, what lies beyond k is 0.
With mode 2 the axes are the same, and the Reduce stays: over the steps, and over K as an UNROLL loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.passes.callify.callify import highest_unique
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, next_id, pad_loop
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import TC, Padto
from uops.spec.wmma import Affine, Descriptor, Digit, LaneMap, find

_OUTPUT = frozenset({AxisType.LOOP, AxisType.GLOBAL})


@dataclass(frozen=True, slots=True)
class Match:
    """The Reduce `u` as a product for `arg`: `left` of rows m and `right` of columns n, before their Casts."""

    u: UOp
    arg: WmmaArg
    descriptor: Descriptor
    rows: UOp
    columns: UOp
    steps: UOp
    left: UOp
    right: UOp


def match(s: Schedule, opt: TC, descriptors: Sequence[WmmaArg]) -> Match | str:
    """How the Reduce over an axis fits a descriptor, or why it does not."""
    reduces = [r for r in s.ranges if r.arg.type is AxisType.REDUCE]
    if not 0 <= opt.axis < len(reduces):
        return f"there is no reduce axis {opt.axis} (R97)"
    r = reduces[opt.axis]
    order = toposort(s.effect)
    needs = open_ranges(order)
    u = next(u for u in order if r in closed_by(u))
    product = _factors(u)
    if product is None:
        return "the kernel reduces no Mul(Cast(a), Cast(b)) (R93)"
    chosen = descriptors if opt.tc == -1 else descriptors[opt.tc : opt.tc + 1]
    reasons = [_fit(s, needs, u, r, product, arg, opt) for arg in chosen]
    found = next((m for m in reasons if isinstance(m, Match)), None)
    return found or (str(reasons[0]) if reasons else "the target has no tensor core (R97)")


def _factors(u: UOp) -> tuple[UOp, UOp] | None:
    value = u.src[0]
    if u.op is not Op.REDUCE or u.arg.op is not Op.ADD or value.op is not Op.MUL:
        return None
    return value.src[0], value.src[1]


def _fit(
    s: Schedule, needs: Mapping[UOp, frozenset[UOp]], u: UOp, r: UOp, product: tuple[UOp, UOp], arg: WmmaArg, opt: TC
) -> Match | str:  # fmt: skip
    d = find(arg)
    if d is None or not all(isinstance(m, Affine) for m in (d.a, d.b, d.c)):
        return f"nothing is known of the fragments of {arg.name} (R118)"
    factors = [_given(f, d) for f in product]
    if u.dtype is not d.dtype_out or any(f is None for f in factors):
        return f"{d.name} multiplies {d.dtype_in} into {d.dtype_out} (R93)"
    n, m, k = d.dims
    for left, right in (factors, factors[::-1]):
        assert left is not None and right is not None
        if r not in needs[left] or r not in needs[right]:
            return "one factor does not change with the reduce axis (R93)"
        rows = [x for x in _own(s, needs[left] - needs[right]) if opt.opt == 2 or _divides(m, x)]
        columns = [x for x in _own(s, needs[right] - needs[left]) if opt.opt == 2 or _divides(n, x)]
        if rows and columns and (opt.opt == 2 or _divides(k, r)):
            return Match(u, arg, d, rows[-1], columns[-1], r, left, right)
    return f"N = {n}, M = {m} and K = {k} fit no axes of which each factor has its own (R93, R97)"


def _given(factor: UOp, d: Descriptor) -> UOp | None:
    """The factor in the descriptor's input dtype."""
    if d.dtype_in is d.dtype_out:
        return factor if factor.dtype is d.dtype_in else None
    source = factor.src[0] if factor.op is Op.CAST else factor
    return source if factor.op is Op.CAST and source.dtype is d.dtype_in and factor.dtype is d.dtype_out else None


def _own(s: Schedule, ranges: frozenset[UOp]) -> list[UOp]:
    """Output loops among these, of constant extent, whose iterations may run side by side."""
    free = [r for r in s.outputs if r in ranges and r.arg.type in _OUTPUT and r.arg.axis_id not in s.fixed]
    return [r for r in free if isinstance(axis_of(r).extent, int)]


def _divides(n: int, r: UOp) -> bool:
    extent = axis_of(r).extent
    return isinstance(extent, int) and extent % n == 0


# ------------------------------------------------------------------------------------------------------------------ doing


@dataclass(frozen=True, slots=True)
class _Tile:
    """The loops of a product in tiles: the rest of m, n and k, the lane and its element."""

    rows: UOp
    columns: UOp
    steps: UOp
    lane: UOp | None
    element: UOp


def apply_tc(s: Schedule, opt: TC, found: Match) -> Schedule:
    """The schedule with the product in tiles."""
    d, (n, m, k) = found.descriptor, found.descriptor.dims
    swapped = found.u.src[0].src[0] is not found.left and _given(found.u.src[0].src[0], d) is not found.left
    ids = [int(r.arg.axis_id) for r in (found.rows, found.columns, found.steps)]
    for axis, size in zip(ids, (m, n, k)):
        s = pad_loop(s, Padto(next(j for j, r in enumerate(s.ranges) if r.arg.axis_id == axis), size))
    rows, columns, steps = (next(r for r in s.ranges if r.arg.axis_id == axis) for axis in ids)
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE and steps in closed_by(u))
    free = next_id(s)
    lane = _loop(free, AxisType.WARP, d.threads) if d.threads > 1 else None
    element = _loop(free + 1, AxisType.UPCAST, d.c.elements)
    tile = _Tile(_rest(rows, m), _rest(columns, n), _rest(steps, k), lane, element)
    if opt.mode == 1:
        result = _multiplied(u, found, _Places(rows, columns, steps, swapped), tile, free + 2)
    else:
        inner = _loop(free + 2, AxisType.UNROLL, k)
        loops = tuple(x for r in closed_by(u) for x in ((tile.steps, inner) if r is steps else (r,)))
        result = u.replace(src=(substitute(u.src[0], {steps: _at(tile.steps, k, inner)}), *loops))
    row, column = _place(d.c, lane, element)
    effect = substitute(s.effect, {u: result})
    effect = substitute(effect, {rows: _at(tile.rows, m, row), columns: _at(tile.columns, n, column)})
    changed = {rows: tile.rows, columns: tile.columns}
    outputs = (*(changed.get(r, r) for r in s.outputs), *((lane,) if lane is not None else ()), element)
    note("tensor core", s.effect, effect, {u: result})
    return replace(s, effect=effect, outputs=outputs)


@dataclass(frozen=True, slots=True)
class _Places:
    """The padded loops of m, n and k, and whether B is the first factor."""

    rows: UOp
    columns: UOp
    steps: UOp
    swapped: bool


def _multiplied(u: UOp, found: Match, at: _Places, tile: _Tile, axis: int) -> UOp:
    """The element of the accumulator after all steps."""
    d, (n, m, k) = found.descriptor, found.descriptor.dims
    value = u.src[0]
    inside = value.src[0] if value.op is Op.WHERE else None  # of a padded k
    factors = (value.src[1] if inside is not None else value).src
    left, right = (_given(f, d) for f in (factors[::-1] if at.swapped else factors))
    assert left is not None and right is not None
    a, b = (_inside(x, inside) for x in (left, right))
    fragment_a, fragment_b = (
        UOp(Op.STACK, tuple(
            substitute(x, {outer: _at(rest, size, place[major]), at.steps: _at(tile.steps, k, place[1 - major])})
            for place in _elements(lanes, tile.lane)
        ))
        for x, lanes, outer, rest, size, major in (
            (a, d.a, at.rows, tile.rows, m, 0), (b, d.b, at.columns, tile.columns, n, 1),
        )
    )  # fmt: skip
    count = d.c.elements
    register = UOp(Op.BUFFER, (), BufferArg(count, d.dtype_out, "CPU", AddrSpace.REG, _FAR + highest_unique([u])))
    outer = open_ranges(toposort(u))[u] - {at.rows, at.columns} | {tile.rows, tile.columns} | ({tile.lane} if tile.lane else set())
    before = B.after(register, *in_order(outer))
    clearing = _loop(axis, AxisType.UPCAST, count)
    cleared = UOp(Op.END, (B.store(UOp(Op.INDEX, (before, clearing)), B.const(0, d.dtype_out)), clearing))
    loops = tuple(tile.steps if r is at.steps else r for r in closed_by(u))
    whole = UOp(Op.STACK, tuple(number(e) for e in range(count)))
    place = UOp(Op.INDEX, (B.after(register, cleared, *loops), whole))
    step = B.store(place, UOp(Op.WMMA, (fragment_a, fragment_b, UOp(Op.LOAD, (place,), LoadArg())), found.arg))
    return UOp(Op.LOAD, (UOp(Op.INDEX, (B.after(register, B.nested(step, loops)), tile.element)),), LoadArg())


#: The accumulator's number, far from those that are handed out one by one (R130).
_FAR = 1 << 16


def _loop(axis: int, kind: AxisType, extent: int) -> UOp:
    return UOp(Op.RANGE, (number(extent),), RangeArg(axis, kind))


def _rest(r: UOp, size: int) -> UOp:
    """The loop over the tiles of a loop."""
    return UOp(Op.RANGE, (number(int(r.src[0].arg.value) // size),), r.arg)


def _at(tile: UOp, size: int, inner: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (tile, number(size))), inner))


def _inside(x: UOp, inside: UOp | None) -> UOp:
    return x if inside is None else UOp(Op.WHERE, (inside, x, B.const(0, x.dtype)))


def _place(m: LaneMap, lane: UOp | None, element: UOp) -> tuple[UOp, UOp]:
    """Row and column that a lane holds as an element, as index expressions."""
    assert isinstance(m, Affine)
    row, column = number(0), number(0)
    for source, digits in ((lane, m.lane), (element, m.element)):
        below = 1
        for digit in digits:
            if source is not None and digit.size > 1:
                part = _digit(source, below, digit)
                row, column = _plus(row, part, digit.row), _plus(column, part, digit.col)
            below *= digit.size
    return row, column


def _digit(source: UOp, below: int, digit: Digit) -> UOp:
    whole = source if below == 1 else UOp(Op.IDIV, (source, number(below)))
    return UOp(Op.MOD, (whole, number(digit.size)))


def _plus(total: UOp, part: UOp, step: int) -> UOp:
    if not step:
        return total
    term = part if step == 1 else UOp(Op.MUL, (part, number(step)))
    return term if total is number(0) else UOp(Op.ADD, (total, term))


def _elements(m: LaneMap, lane: UOp | None) -> Iterator[tuple[UOp, UOp]]:
    """The places of all elements of a lane."""
    return (_place(m, lane, number(e)) for e in range(m.elements))
