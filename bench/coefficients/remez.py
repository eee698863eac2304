"""Minimax fits with machine-number coefficients, by the exchange algorithm on a dense grid in multiple precision.

`fit` returns the coefficients c that minimize max |w(x) * (f(x) - sum c_k * phi_k(x))| over Chebyshev-spaced points.
`fit_with_rounding` rounds the coefficients one by one, the most significant first, and fits the others again, so that they absorb
the rounding of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp

Real = Any
Function = Callable[[Real], Real]
Rounding = Callable[[Real], Real]


@dataclass(frozen=True)
class MinimaxProblem:
    """The approximation of `f` on [a, b] by sum c_k * basis[k], with the error weighted by `weight`."""

    f: Function
    basis: Sequence[Function]
    a: Real
    b: Real
    weight: Function


@dataclass(frozen=True)
class Grid:
    """A sampled problem: weighted targets, and one weighted column per basis function."""

    points: list[Real]
    target: list[Real]
    columns: list[list[Real]]


def make_power_basis(low: int, high: int) -> list[Function]:
    """Return the functions x^low .. x^high."""

    def power(k: int) -> Function:
        return lambda x: x**k

    return [power(k) for k in range(low, high + 1)]


def sample_problem(p: MinimaxProblem, per_coefficient: int = 25) -> Grid:
    """Sample a problem at Chebyshev-spaced points."""
    n = 2 * (per_coefficient * (len(p.basis) + 1) // 2) + 1  # odd: no point at the middle, where odd terms vanish
    mid, half = (p.a + p.b) / 2, (p.b - p.a) / 2
    points = [mid - half * mp.cos(mp.pi * k / n) for k in range(n + 1)]
    weights = [p.weight(x) for x in points]
    target = [w * p.f(x) for x, w in zip(points, weights, strict=True)]
    columns = [[w * phi(x) for x, w in zip(points, weights, strict=True)] for phi in p.basis]
    return Grid(points, target, columns)


def solve_by_exchange(target: list[Real], columns: list[list[Real]], rounds: int = 60) -> tuple[list[Real], Real]:
    """Return the minimax coefficients on the grid, and the error."""
    target, columns = _normalize_signs(target, columns)
    n, size = len(columns), len(target)
    reference = [round(k * (size - 1) / n) for k in range(n + 1)]
    for _ in range(rounds):
        rows = mp.matrix([[c[i] for c in columns] + [(-1) ** j] for j, i in enumerate(reference)])
        solution = mp.lu_solve(rows, mp.matrix([target[i] for i in reference]))
        coefficients, level = list(solution)[:n], abs(solution[n])
        errors = [t - mp.fsum(c * col[i] for c, col in zip(coefficients, columns, strict=True)) for i, t in enumerate(target)]
        worst = max(abs(e) for e in errors)
        if worst <= level * (1 + mp.mpf(2) ** -12):
            break
        reference = _find_alternating_extrema(errors, n + 1, reference)
    return coefficients, worst


def _normalize_signs(target: list[Real], columns: list[list[Real]]) -> tuple[list[Real], list[list[Real]]]:
    """Negate the rows in which the first column is negative.

    With x^k as the first basis function, the error alternates up to its sign.
    """
    flip = [c < 0 for c in columns[0]]
    return _negate(target, flip), [_negate(c, flip) for c in columns]


def _negate(values: list[Real], flip: list[bool]) -> list[Real]:
    return [-v if f else v for v, f in zip(values, flip, strict=True)]


def _find_alternating_extrema(errors: list[Real], count: int, old: list[int]) -> list[int]:
    """Return the `count` extrema of alternating sign with the largest errors."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (errors[peaks[-1]] < 0) == (e < 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks if len(peaks) == count else _swap_in_worst_point(errors, old)


def _swap_in_worst_point(errors: list[Real], old: list[int]) -> list[int]:
    """Replace the neighbour of equal sign in `old` by the worst point: slower, but it always has enough points."""
    worst = max(range(len(errors)), key=lambda i: abs(errors[i]))
    positive = errors[worst] > 0
    right = sum(i < worst for i in old)
    for k in (right, right - 1):
        if 0 <= k < len(old) and (errors[old[k]] > 0) == positive:
            return [*old[:k], worst, *old[k + 1 :]]
    return [worst, *old[:-1]] if right == 0 else [*old[1:], worst]


def fit(p: MinimaxProblem) -> tuple[list[Real], Real]:
    """Return the exact minimax coefficients and the weighted error."""
    g = sample_problem(p)
    return solve_by_exchange(g.target, g.columns)


def least_squares(target: list[Real], columns: list[list[Real]]) -> list[Real]:
    """Return the coefficients of least squared error; the working precision covers the condition of the normal equations."""
    rows = [[mp.fdot(a, b) for b in columns] for a in columns]
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix([mp.fdot(a, target) for a in columns])))


def fit_with_rounding(p: MinimaxProblem, rounding: Sequence[Rounding]) -> tuple[list[Real], Real]:
    """Return coefficients, each rounded by its own `rounding`, and the weighted error that they reach on the grid.

    The minimax polynomial comes first. The refits after each rounding follow it in least squares. Where the free terms vanish, the
    rounding error of the fixed ones stays, so that these problems have no alternating solution.
    """
    g = sample_problem(p)
    exact, _ = solve_by_exchange(g.target, g.columns)
    ideal = _combine(exact, g.columns)
    rest, rounded = ideal, []
    for k, to_machine in enumerate(rounding):
        c = to_machine(least_squares(rest, g.columns[k:])[0])
        rounded.append(c)
        rest = [t - c * x for t, x in zip(rest, g.columns[k], strict=True)]
    return rounded, max(abs(t - v) for t, v in zip(g.target, _combine(rounded, g.columns), strict=True))


def _combine(coefficients: list[Real], columns: list[list[Real]]) -> list[Real]:
    return [mp.fdot(coefficients, row) for row in zip(*columns, strict=True)]


def make_binary_rounding(bits: int) -> Rounding:
    """Return a rounding to `bits` significant bits, to nearest even."""

    def rounding(x: Real) -> Real:
        with mp.workprec(bits):
            return +mp.mpf(x)

    return rounding


def round_to_pair(x: Real) -> Real:
    """Round to an unevaluated sum of two float64."""
    high = make_binary_rounding(53)(x)
    return high + make_binary_rounding(53)(x - high)
