"""OptOps, proved once for all sizes: what they do to the iterations of a kernel, as laws in the language of rules.

Each law is a `Rule` that is never matched: `lhs` is `rhs` for all values under `when`, extents included. The forms are those that
`uops.compiler.passes.optimize.schedule.schedule` builds; tests hold the two together.

    Split    of an extent m*k by k: iteration i is o*k + e, or e*m + o with top. It stays inside, is found again (so no iteration
             comes twice), covers all, and keeps the order of the loops as they nest. Cache tiling (R91) is the same, twice.
    Padto    n grows to the next multiple of m; the mask i < n selects the old iterations; a masked step of a Reduce leaves its
             accumulator, for the identity of every reduce op in every dtype (R92).
    Swap     two loops are the two halves of one: either order visits the same pairs; a Reduce may be done in any order, as its op
             commutes and associates (floats by R32, where any order is right).
    Group    is a Split, and the sum of partial sums is the sum.
    Unroll   the constants 0 to n - 1 are the iterations, each once: by induction over n.
    TC       a lane map puts each element of a fragment at a place of its own, up to the copies that its descriptor states, inside
             the matrix; there are as many elements as places, so that all are held (R118).

What a law says of one step holds for a loop by induction over its iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from uops.compiler.ir.accumulators import identity
from uops.compiler.rewrite.pattern import INDEX, Pattern, eq, lift, operation, var, where
from uops.compiler.rewrite.rule import Rule
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.wmma import OPERANDS
from uops.spec.wmma.maps import Affine, Digit
from uops.spec.wmma.registry import DESCRIPTORS

i, j, k, m, n, o, e, p, f, x = (var(name, INDEX) for name in "ijkmnoepfx")
true = lift(True)

#: Split: the iteration of the old loop that the new ones (outer o of extent m, inner e of extent k) stand for.
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
    Rule("padto-is-a-multiple", PADDED % m, lift(0), when=m > 0),
    Rule("padto-mask", _within(i, PADDED) & (i < n), _within(i, n), when=m > 0),
)

SWAPS = (
    Rule("swap-finds-first", (j * n + i) % n, i, when=_within(i, n)),
    Rule("swap-finds-second", (j * n + i) // n, j, when=_within(i, n)),
    Rule("swap-stays-inside", _within(j * n + i, m * n), true, when=_within(i, n) & _within(j, m)),
)

UNROLLS = (
    Rule("unroll-one-more", _within(i, n + 1), _within(i, n) | eq(i, n), when=n >= 0),
    Rule("unroll-each-once", (i < n) & eq(i, n), lift(False)),
)

# Reduce: its op is a commutative monoid, with the identity that the compiler takes

REDUCES = (Op.ADD, Op.MUL, Op.MAX)
_DTYPES = (*dt.STORABLE, dt.index)


def _neutral(op: Op, d: DType) -> bool | int | float | None:
    """The identity that the compiler takes; none for the Max of index (R85)."""
    return None if op is Op.MAX and d is dt.index else identity(op, d).const


def _identities() -> Iterator[Rule]:
    """op(x, identity) is x; for a float sum the sign of a zero is free (R32)."""
    for op in REDUCES:
        for d in _DTYPES:
            z = _neutral(op, d)
            if z is None:
                continue
            v, name = var("v", (d,)), f"identity-{op.name.lower()}-{d.short}"
            if op is Op.ADD and d.is_float:
                yield Rule(name, operation(op, v, z), v, when=operation(Op.CMPNE, v, z))
                yield Rule(f"{name}-zero", eq(operation(op, v, z), v), true, when=eq(v, z))
            else:
                yield Rule(name, operation(op, v, z), v)


def _masked_steps() -> Iterator[Rule]:
    """A step with the identity where the mask is false leaves the accumulator."""
    for op in REDUCES:
        exact = tuple(d for d in _DTYPES if not d.is_float and _neutral(op, d) is not None)
        for d in exact:
            a, v, inside = var("a", (d,)), var("v", (d,)), var("inside", (dt.bool_,))
            masked = operation(op, a, where(inside, v, _neutral(op, d)))
            yield Rule(f"masked-{op.name.lower()}-{d.short}", masked, where(inside, operation(op, a, v), a))


def _laws(op: Op, among: tuple[DType, ...]) -> Iterator[Rule]:
    a, b, c, d = (var(name, among) for name in "abcd")
    name = op.name.lower()

    def both(x: object, y: object) -> Pattern:
        return operation(op, x, y)

    yield Rule(f"any-order-{name}", both(both(a, b), c), both(both(a, c), b))
    yield Rule(f"partial-{name}", both(both(a, b), both(c, d)), both(both(both(a, b), c), d))


MONOIDS = (
    *_identities(),
    *_masked_steps(),
    *(law for op in REDUCES for law in _laws(op, tuple(d for d in _DTYPES if not d.is_float))),
)


# TC: lane maps


def _digits(number: Pattern, digits: tuple[Digit, ...]) -> list[Pattern]:
    """The parts of a number, least significant first."""
    found, below = [], 1
    for d in digits:
        found.append((number // below) % d.size)
        below *= d.size
    return found


def _place(lane: Pattern, element: Pattern, a: Affine) -> tuple[Pattern, Pattern]:
    row, col = lift(0) * lane, lift(0) * lane
    for number, digits in ((lane, a.lane), (element, a.element)):
        for value, d in zip(_digits(number, digits), digits, strict=True):
            row, col = (row + value * d.row if d.row else row), (col + value * d.col if d.col else col)
    return row, col


def _same_holder(a: Affine) -> Pattern:
    """That two lanes with their elements differ in copies only."""
    t, u = (var(name, INDEX) for name in "tu")
    found = eq(t, t)
    for one, other, digits in ((t, u, a.lane), (e, f, a.element)):
        for x_, y_, d in zip(_digits(one, digits), _digits(other, digits), digits, strict=True):
            if d.row or d.col:
                found = found & eq(x_, y_)
    return found


def _lane_laws(name: str, a: Affine, rows: int, cols: int, copies: int) -> Iterator[Rule]:
    if a.lanes * a.elements != rows * cols * copies or copies_of_a_place(a) != copies:
        raise Crash(f"{name}: {a.lanes} lanes of {a.elements} elements are not {copies} copies of {rows} x {cols}")
    t, u = (var(v, INDEX) for v in "tu")
    holds = _within(t, a.lanes) & _within(e, a.elements)
    (row, col), (row2, col2) = _place(t, e, a), _place(u, f, a)
    yield Rule(f"{name}-inside", _within(row, rows) & _within(col, cols), true, when=holds)
    again = holds & _within(u, a.lanes) & _within(f, a.elements)
    yield Rule(f"{name}-apart", eq(row, row2) & eq(col, col2), _same_holder(a), when=again)


def _lane_maps() -> Iterator[Rule]:
    """The laws of every lane map of every descriptor, once per map and matrix."""
    seen = set()
    for d in DESCRIPTORS:
        for operand in OPERANDS:
            a, shape, copies = d.map(operand), d.shape(operand), d.copies(operand)
            if isinstance(a, Affine) and (a, shape) not in seen:
                seen.add((a, shape))
                dims = "x".join(map(str, d.dims))
                yield from _lane_laws(f"lanes-{d.name}-{dims}-{d.dtype_in.short}-{operand}", a, *shape, copies)


def copies_of_a_place(a: Affine) -> int:
    """How many holders a place has, by the digits that are copies."""
    return math.prod(d.size for d in (*a.lane, *a.element) if not (d.row or d.col))


LANES = tuple(_lane_maps())
THEMES: dict[str, tuple[Rule, ...]] = {
    "split": SPLITS,
    "padto": PADS,
    "swap": SWAPS,
    "unroll": UNROLLS,
    "reduce": MONOIDS,
    "tensor cores": LANES,
}
RULES: tuple[Rule, ...] = tuple(law for laws in THEMES.values() for law in laws)
