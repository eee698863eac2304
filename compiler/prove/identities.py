"""Laws of index arithmetic that passes rest on, proved once for all ranks and extents. Like those of `optops` they are `Rule`s that
are never matched: `lhs` is `rhs` for all values under `when`.

    Reshape   `passes.views` writes the row-major position of an index and reads it in another shape, one axis at a time. A step
              leaves the position of the axes to the left, x, and takes or gives the last digit l of extent p; so by induction
              over the axes any rank is decoded as it was encoded, and every position is decoded to an index inside.
    Movement  The other movement ops move every axis by itself: two of a kind are one, and inverses cancel.
    Series    What a closed form puts for a loop: its value is that of no iteration at 0, and one iteration more adds the term.
    Division  An unsigned n below w (2^64 for 64 bits) by a constant d: floor(n m / u) for a power of two u and an m with
              0 <= m d - u <= u / w (Granlund and Montgomery 1994, theorem 4.2).
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import INDEX, Pattern, eq, lift, maximum, ne, var, where
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt

a, b, d, f, h, i, j, k, l, m, n, o, p, u, x, y = (var(name, INDEX) for name in "abdfhijklmnopuxy")  # noqa: E741
_NATURALS = (dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.index)
v, w = var("v", _NATURALS), var("w", _NATURALS)
true = lift(True)


def _within(t: Pattern, extent: object) -> Pattern:
    return (t >= 0) & (t < extent)


_DIGIT = _within(l, p)

RESHAPES = (
    Rule("reshape-leaves-the-left", (x * p + l) // p, x, when=_DIGIT),
    Rule("reshape-takes-the-last", (x * p + l) % p, l, when=_DIGIT),
    Rule("reshape-stays-inside", _within(x * p + l, n * p), true, when=_DIGIT & _within(x, n)),
    Rule("reshape-left-is-inside", _within(f // p, n), true, when=_within(f, n * p) & (p > 0)),
    Rule("reshape-last-is-inside", _within(f % p, p), true, when=p > 0),
    Rule("reshape-finds-all", (f // p) * p + f % p, f),
    Rule("reshape-tells-apart", eq(x * p + l, y * p + m), eq(x, y) & eq(l, m), when=_DIGIT & _within(m, p)),
    Rule("reshape-of-groups", ((x * (n * p)) + (y * p + l)) // (n * p), x, when=_DIGIT & _within(y, n)),
    Rule("reshape-in-two-steps", (f // p) // n, f // (n * p), when=(p > 0) & (n > 0)),
    Rule("reshape-of-a-remainder", (f % (n * p)) // p, (f // p) % n, when=(p > 0) & (n > 0)),
    Rule("reshape-extents", (n * k) * p, n * (k * p)),
)


def _padded(t: Pattern, before: object, extent: object) -> Pattern:
    """Where an axis that was padded has an element of its source."""
    return _within(t - before, extent)


MOVEMENTS = (
    Rule("flip-stays-inside", _within((n - 1) - i, n), true, when=_within(i, n)),
    Rule("flip-twice", (n - 1) - ((n - 1) - i), i),
    Rule("flip-of-a-cut", ((o + n) - 1) - i, o + ((n - 1) - i)),
    Rule("flip-of-a-split", (n * p - 1) - (x * p + l), ((n - 1) - x) * p + ((p - 1) - l)),
    Rule("shrink-stays-inside", _within(i + o, n), true, when=_within(i, k) & (o >= 0) & (o + k <= n)),
    Rule("shrink-twice", (i + o) + a, i + (o + a)),
    Rule("pad-then-shrink", (i + o) - o, i),
    Rule("pad-then-shrink-is-inside", _padded(i + o, o, n), true, when=_within(i, n)),
    Rule("shrink-then-pad", (i - o) + o, i),
    Rule("pad-twice", (i - a) - b, i - (a + b)),
    Rule("pad-twice-mask", _padded(i, a, m) & _padded(i - a, b, n), _padded(i, a + b, n), when=(b >= 0) & (b + n <= m)),
    Rule("pad-of-a-flip", _padded((h - 1) - i, a, n), _padded(i, (h - a) - n, n)),
    Rule("repeat-is-a-remainder", (x * n + i) % n, i % n, when=n > 0),
)

#: How many r with 0 <= r < n lie in lo <= r < hi (lo = a, hi = b): `passes.closed` counts max(0, min(n, hi) - max(0, lo)).
_LOW = maximum(a, 0)


def _least(s: Pattern, t: Pattern) -> Pattern:
    return where(s < t, s, t)


def _count(bound: Pattern) -> Pattern:
    return maximum(_least(bound, b) - _LOW, 0)


SERIES = (
    Rule("count-of-none", _count(lift(0) * n), lift(0)),
    Rule("count-one-more", _count(n + 1), where((n >= a) & (n < b), _count(n) + 1, _count(n)), when=n >= 0),
    Rule("multiple-of-none", (n - n) * x, lift(0)),
    Rule("multiple-one-more", (n + 1) * x, n * x + x),
    Rule("sum-of-numbers", ((n + 1) * n) // 2, (n * (n - 1)) // 2 + n, when=n >= 0),
    Rule("selected-of-none", _within(x, 0), lift(False)),
    Rule("selected-one-more", _within(x, n + 1), _within(x, n) | eq(x, n), when=n >= 0),
)

_LIMIT = 2**64
DIVISIONS = (
    Rule(
        "fast-division-64",
        (n * m) // u,
        n // d,
        when=(d > 0) & (u > 0) & _within(n, _LIMIT) & (m * d >= u) & ((m * d - u) * _LIMIT <= u),
    ),
    Rule("fast-multiplier-exists", ((u + (d - 1)) // d) * d - u < d, true, when=(d > 0) & (u > 0)),
    Rule("fast-division-rounded-up", ((u + (d - 1)) // d) * d >= u, true, when=(d > 0) & (u > 0)),
    # Every integer is its quotient and remainder, and x // 0 = 0, x % 0 = x (R03).
    Rule("recompose-divided", (v // w) * w + v % w, v),
    Rule("mod-is-the-rest", x - (x // y) * y, x % y),
    Rule("quotient-of-a-multiple", (x * y) // y, x, when=ne(y, 0)),
)

THEMES: dict[str, tuple[Rule, ...]] = {
    "reshape": RESHAPES,
    "movement": MOVEMENTS,
    "series": SERIES,
    "division": DIVISIONS,
}
RULES: tuple[Rule, ...] = tuple(law for laws in THEMES.values() for law in laws)
