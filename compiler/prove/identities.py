"""Laws of index arithmetic that passes rely on, proved for all ranks and extents. Like the laws of `optops`, they are `Rule`s that
are never matched: `lhs` equals `rhs` for all values under `when`.

    Reshape   `passes.views` writes the row-major position of an index and reads it in another shape, one axis at a time. A step
              keeps the position x of the axes to the left, and splits off or appends the last digit l of extent p. By induction
              over the axes, any rank decodes to what was encoded, and every position decodes to an index in bounds.
    Movement  The other movement ops act on each axis separately: two of a kind compose to one, and inverses cancel.
    Series    The closed form of a loop: it is the value of no iteration at trip count 0, and one more iteration adds the term.
    Division  An unsigned n below w (2^64 for 64 bits) by a constant d: floor(n m / u) for a power of two u and an m with
              0 <= m d - u <= u / w (Granlund and Montgomery 1994, theorem 4.2).
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import INDEX, Pattern, as_pattern, eq, maximum, ne, var, where
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir import dtypes as dt

a, b, d, f, h, i, j, k, l, m, n, o, p, u, x, y = (var(name, INDEX) for name in "abdfhijklmnopuxy")  # noqa: E741
_NATURALS = (dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.index)
v, w = var("v", _NATURALS), var("w", _NATURALS)
true = as_pattern(True)


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


def _in_unpadded_range(t: Pattern, before: object, extent: object) -> Pattern:
    """Return the condition that an index of a padded axis lies on an element of the source."""
    return _within(t - before, extent)


MOVEMENTS = (
    Rule("flip-stays-inside", _within((n - 1) - i, n), true, when=_within(i, n)),
    Rule("flip-twice", (n - 1) - ((n - 1) - i), i),
    Rule("flip-of-a-cut", ((o + n) - 1) - i, o + ((n - 1) - i)),
    Rule("flip-of-a-split", (n * p - 1) - (x * p + l), ((n - 1) - x) * p + ((p - 1) - l)),
    Rule("shrink-stays-inside", _within(i + o, n), true, when=_within(i, k) & (o >= 0) & (o + k <= n)),
    Rule("shrink-twice", (i + o) + a, i + (o + a)),
    Rule("pad-then-shrink", (i + o) - o, i),
    Rule("pad-then-shrink-is-inside", _in_unpadded_range(i + o, o, n), true, when=_within(i, n)),
    Rule("shrink-then-pad", (i - o) + o, i),
    Rule("pad-twice", (i - a) - b, i - (a + b)),
    Rule(
        "pad-twice-mask",
        _in_unpadded_range(i, a, m) & _in_unpadded_range(i - a, b, n),
        _in_unpadded_range(i, a + b, n),
        when=(b >= 0) & (b + n <= m),
    ),
    Rule("pad-of-a-flip", _in_unpadded_range((h - 1) - i, a, n), _in_unpadded_range(i, (h - a) - n, n)),
    Rule("repeat-is-a-remainder", (x * n + i) % n, i % n, when=n > 0),
)

#: The lower bound of the count of r in [0, n) and [a, b): `passes.closed` counts max(0, min(n, b) - max(0, a)).
_LOW = maximum(a, 0)


def _minimum(s: Pattern, t: Pattern) -> Pattern:
    return where(s < t, s, t)


def _count(bound: Pattern) -> Pattern:
    return maximum(_minimum(bound, b) - _LOW, 0)


SERIES = (
    Rule("count-of-none", _count(as_pattern(0) * n), as_pattern(0)),
    Rule("count-one-more", _count(n + 1), where((n >= a) & (n < b), _count(n) + 1, _count(n)), when=n >= 0),
    Rule("multiple-of-none", (n - n) * x, as_pattern(0)),
    Rule("multiple-one-more", (n + 1) * x, n * x + x),
    Rule("sum-of-numbers", ((n + 1) * n) // 2, (n * (n - 1)) // 2 + n, when=n >= 0),
    Rule("selected-of-none", _within(x, 0), as_pattern(False)),
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
