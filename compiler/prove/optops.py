"""Laws of OptOps, proved once for all sizes: their effect on the iterations of a kernel, as rules.

Each law is a `Rule` that is never matched: `lhs` equals `rhs` for all values under `when`, extents included. The forms are those
that `uops.compiler.passes.optimize.schedule.schedule` builds; tests compare the two.

    Split    Of an extent m*k by k: iteration i is o*k + e, or e*m + o with top. It stays in bounds, its parts can be recovered
             (so no iteration repeats), every iteration occurs, and nested loops keep the order. Cache tiling (R91) is two Splits.
    Padto    n grows to the next multiple of m; the mask i < n selects the old iterations. A masked step of a Reduce keeps its
             accumulator, by the identity of every reduce op in every dtype (R92).
    Swap     Two loops are the two halves of one: either order visits the same pairs. A Reduce may run in any order, as its op
             commutes and associates (R32: floats accept any order).
    Group    A Group is a Split, and the sum of partial sums is the sum.
    Unroll   The constants 0 to n - 1 are the iterations, each once: by induction over n.
    TC       A lane map puts each element of a fragment at its own position inside the matrix, up to the copies that its
             descriptor states. There are as many elements as positions, so all are held (R118).

A law about one step holds for a loop by induction over its iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from uops.compiler.ir.accumulators import reduction_identity
from uops.compiler.rewrite.pattern import INDEX, Pattern, as_pattern, eq, operation, var, where
from uops.compiler.rewrite.rule import Rule
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import REDUCTIONS, Op
from uops.spec.optops import TC, Nolocals, OptOp, Padto, Split, Swap, require_every_optop
from uops.spec.wmma import OPERANDS
from uops.spec.wmma.maps import AffineLaneMap, MapDigit
from uops.spec.wmma.registry import DESCRIPTORS

i, j, k, m, n, o, e, p, f, x = (var(name, INDEX) for name in "ijkmnoepfx")
true = as_pattern(True)

#: Split: the iteration of the old loop, by the outer iteration o of extent m and the inner e of extent k.
SPLIT, SPLIT_TOP = o * k + e, e * m + o
#: Padto: the longer extent.
PADDED = ((n + (m - 1)) // m) * m


def _within(v: Pattern, extent: object) -> Pattern:
    return (v >= 0) & (v < extent)


_OUTER, _INNER = _within(o, m), _within(e, k)
_BOTH = _OUTER & _INNER

SPLITS = (
    Rule("split-stays-inside", _within(SPLIT, m * k), true, when=_BOTH),
    Rule("split-finds-outer", SPLIT // k, o, when=_INNER),
    Rule("split-finds-inner", SPLIT % k, e, when=_INNER),
    Rule("split-covers", (i // k) * k + i % k, i),
    Rule("split-covers-outer", _within(i // k, m), true, when=_within(i, m * k) & (k > 0)),
    Rule("split-covers-inner", _within(i % k, k), true, when=k > 0),
    Rule("split-keeps-order", SPLIT < p * k + f, (o < p) | (eq(o, p) & (e < f)), when=_INNER & _within(f, k)),
    Rule("split-extent", (m * k) // k, m, when=k > 0),
    Rule("split-top-stays-inside", _within(SPLIT_TOP, m * k), true, when=_BOTH),
    Rule("split-top-finds-new", SPLIT_TOP // m, e, when=_OUTER),
    Rule("split-top-finds-old", SPLIT_TOP % m, o, when=_OUTER),
    Rule("split-top-covers-new", _within(i // m, k), true, when=_within(i, m * k) & (m > 0)),
    Rule("split-top-keeps-order", SPLIT_TOP < f * m + p, (e < f) | (eq(e, f) & (o < p)), when=_OUTER & _within(p, m)),
    Rule("tile-of-a-tile", (x * k + e) // k, x, when=_INNER),
)

PADS = (
    Rule("padto-covers", n <= PADDED, true, when=m > 0),
    Rule("padto-is-the-next", PADDED < n + m, true, when=m > 0),
    Rule("padto-is-a-multiple", PADDED % m, as_pattern(0), when=m > 0),
    Rule("padto-mask", _within(i, PADDED) & (i < n), _within(i, n), when=m > 0),
)

SWAPS = (
    Rule("swap-finds-first", (j * n + i) % n, i, when=_within(i, n)),
    Rule("swap-finds-second", (j * n + i) // n, j, when=_within(i, n)),
    Rule("swap-stays-inside", _within(j * n + i, m * n), true, when=_within(i, n) & _within(j, m)),
)

UNROLLS = (
    Rule("unroll-one-more", _within(i, n + 1), _within(i, n) | eq(i, n), when=n >= 0),
    Rule("unroll-each-once", (i < n) & eq(i, n), as_pattern(False)),
)

# Reduce: its op is a commutative monoid, with the identity that the compiler takes

REDUCES = tuple(op for op in Op if op in REDUCTIONS)
_DTYPES = (*dt.STORABLE, dt.index)


def _neutral_element(op: Op, d: DType) -> bool | int | float | None:
    """Return the identity of a reduce op that the compiler uses; None for the Max of index, which has none (R85)."""
    return None if op is Op.MAX and d is dt.index else reduction_identity(op, d).const


def _generate_reduce_identity_laws() -> Iterator[Rule]:
    """Yield op(x, identity) = x; for a float sum, the sign of a zero is free (R32)."""
    for op in REDUCES:
        for d in _DTYPES:
            z = _neutral_element(op, d)
            if z is None:
                continue
            v, name = var("v", (d,)), f"identity-{op.name.lower()}-{d.short}"
            if op is Op.ADD and d.is_float:
                yield Rule(name, operation(op, v, z), v, when=operation(Op.CMPNE, v, z))
                yield Rule(f"{name}-zero", eq(operation(op, v, z), v), true, when=eq(v, z))
            else:
                yield Rule(name, operation(op, v, z), v)


def _generate_masked_step_keeps_accumulator_laws() -> Iterator[Rule]:
    """Yield the law that a step whose mask is false keeps the accumulator."""
    for op in REDUCES:
        exact = tuple(d for d in _DTYPES if not d.is_float and _neutral_element(op, d) is not None)
        for d in exact:
            a, v, inside = var("a", (d,)), var("v", (d,)), var("inside", (dt.bool_,))
            masked = operation(op, a, where(inside, v, _neutral_element(op, d)))
            yield Rule(f"masked-{op.name.lower()}-{d.short}", masked, where(inside, operation(op, a, v), a))


def _generate_any_order_and_partial_laws(op: Op, dtypes: tuple[DType, ...]) -> Iterator[Rule]:
    """Yield the laws that a reduce op allows any order, and partial results."""
    a, b, c, d = (var(name, dtypes) for name in "abcd")
    name = op.name.lower()

    def combine(x: object, y: object) -> Pattern:
        return operation(op, x, y)

    yield Rule(f"any-order-{name}", combine(combine(a, b), c), combine(combine(a, c), b))
    yield Rule(f"partial-{name}", combine(combine(a, b), combine(c, d)), combine(combine(combine(a, b), c), d))


MONOIDS = (
    *_generate_reduce_identity_laws(),
    *_generate_masked_step_keeps_accumulator_laws(),
    *(law for op in REDUCES for law in _generate_any_order_and_partial_laws(op, tuple(d for d in _DTYPES if not d.is_float))),
)


# TC: lane maps


def _split_into_digits(number: Pattern, digits: tuple[MapDigit, ...]) -> list[Pattern]:
    """Return the digits of a number, least significant first."""
    parts, weight = [], 1
    for d in digits:
        parts.append((number // weight) % d.size)
        weight *= d.size
    return parts


def _map_to_matrix_position(lane: Pattern, element: Pattern, lane_map: AffineLaneMap) -> tuple[Pattern, Pattern]:
    """Return the row and column that a lane map gives to an element of a lane."""
    row, col = as_pattern(0) * lane, as_pattern(0) * lane
    for number, digits in ((lane, lane_map.lane), (element, lane_map.element)):
        for value, d in zip(_split_into_digits(number, digits), digits, strict=True):
            row, col = (row + value * d.row if d.row else row), (col + value * d.col if d.col else col)
    return row, col


def _build_equal_noncopy_digits_claim(lane_map: AffineLaneMap) -> Pattern:
    """Return the condition that two (lane, element) pairs have equal digits, except for copies."""
    t, u = (var(name, INDEX) for name in "tu")
    condition = eq(t, t)
    for left, right, digits in ((t, u, lane_map.lane), (e, f, lane_map.element)):
        for x_, y_, d in zip(_split_into_digits(left, digits), _split_into_digits(right, digits), digits, strict=True):
            if d.row or d.col:
                condition = condition & eq(x_, y_)
    return condition


def _generate_lane_map_laws(name: str, lane_map: AffineLaneMap, rows: int, cols: int, copies: int) -> Iterator[Rule]:
    """Yield the laws of one lane map: it stays inside the matrix, and positions are distinct."""
    if lane_map.lanes * lane_map.elements != rows * cols * copies or copies_per_position(lane_map) != copies:
        raise Crash(f"{name}: {lane_map.lanes} lanes of {lane_map.elements} elements are not {copies} copies of {rows} x {cols}")
    t, u = (var(v, INDEX) for v in "tu")
    holds = _within(t, lane_map.lanes) & _within(e, lane_map.elements)
    (row, col), (row2, col2) = _map_to_matrix_position(t, e, lane_map), _map_to_matrix_position(u, f, lane_map)
    yield Rule(f"{name}-inside", _within(row, rows) & _within(col, cols), true, when=holds)
    both_hold = holds & _within(u, lane_map.lanes) & _within(f, lane_map.elements)
    yield Rule(f"{name}-apart", eq(row, row2) & eq(col, col2), _build_equal_noncopy_digits_claim(lane_map), when=both_hold)


def _generate_all_lane_map_laws() -> Iterator[Rule]:
    """Yield the laws of every lane map of every descriptor, once per map and matrix."""
    seen = set()
    for d in DESCRIPTORS:
        for operand in OPERANDS:
            a, shape, copies = d.map(operand), d.shape(operand), d.copies(operand)
            if isinstance(a, AffineLaneMap) and (a, shape) not in seen:
                seen.add((a, shape))
                dims = "x".join(map(str, d.dims))
                yield from _generate_lane_map_laws(f"lanes-{d.name}-{dims}-{d.dtype_in.short}-{operand}", a, *shape, copies)


def copies_per_position(a: AffineLaneMap) -> int:
    """Return how many (lane, element) pairs hold one position, by the digits that are copies."""
    return math.prod(d.size for d in (*a.lane, *a.element) if not (d.row or d.col))


LANES = tuple(_generate_all_lane_map_laws())
#: OptOp -> its laws.
LAWS: dict[type[OptOp], tuple[Rule, ...]] = {
    Split: SPLITS,
    Padto: PADS,
    Swap: SWAPS,
    Nolocals: (),  # it changes no iteration
    TC: LANES,
}
require_every_optop(LAWS, "compiler/prove/optops.py")
THEMES: dict[str, tuple[Rule, ...]] = {
    **{o.__name__.lower(): laws for o, laws in LAWS.items() if laws and o is not TC},
    "unroll": UNROLLS,
    "reduce": MONOIDS,
    "tensor cores": LANES,
}
RULES: tuple[Rule, ...] = tuple(law for laws in THEMES.values() for law in laws)
