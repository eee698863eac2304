"""Pow against exact values and IEEE 754's table of special cases (R18)."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

INF, NAN = math.inf, math.nan
WIDE = (dt.float32, dt.float64)
BASES = [0.0, 1.0, 0.5, 2.0, 1.5, 0.75, 3.0, INF, 1e-40, 2.0**60, 1 + 2.0**-23, 1 - 2.0**-24]
EXPONENTS = [0.0, 1.0, 2.0, 3.0, 0.5, 0.25, 1.5, 1e-40, 2.0**23 + 1, 2.0**24 - 1, 2.0**25, 2.0**70, INF]
VALUES_X = [*BASES, *(-x for x in BASES), NAN]
VALUES_Y = [*EXPONENTS, *(-y for y in EXPONENTS), NAN]


def special(x: float, y: float) -> float | None:
    """The result where IEEE 754 (9.2.1) fixes it without arithmetic, else None."""
    integral = math.isfinite(y) and y == math.trunc(y)
    odd = integral and abs(y) < 2.0**53 and int(y) % 2 == 1
    if y == 0 or x == 1:
        return 1.0
    if x != x or y != y:
        return NAN
    if math.isinf(y):
        return 1.0 if abs(x) == 1 else INF if (abs(x) > 1) == (y > 0) else 0.0
    if x == 0 or math.isinf(x):
        size = INF if (x == 0) == (y < 0) else 0.0
        return math.copysign(size, x) if odd else size
    return NAN if x < 0 and not integral else None


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_r18_special_cases(d: DType, direct: Callable[..., Any]) -> None:
    x, y = (g.ravel().astype(d.name) for g in np.meshgrid(VALUES_X, VALUES_Y))
    got, cases = direct(Op.POW, d)(x, y), 0
    for a, e, g in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        want = special(a, e)
        if want is not None:
            cases += 1
            same = g != g if want != want else g == want and math.copysign(1, g) == math.copysign(1, want)
            assert same, f"{a!r} ** {e!r} is {g!r}, not {want!r} (R18)"
    assert cases > 300


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_r18_negative_base_has_the_sign_of_parity(d: DType, direct: Callable[..., Any]) -> None:
    run, y = direct(Op.POW, d), np.arange(-20.0, 21.0).astype(d.name)
    for base in (0.5, 3.0, 1.25):
        size = run(np.full(y.shape, base, d.name), y)
        assert np.array_equal(run(np.full(y.shape, -base, d.name), y), np.where(y % 2 == 1, -size, size))


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_r18_exact_powers_are_exact(d: DType, direct: Callable[..., Any]) -> None:
    cases = [(float(k), float(n)) for k in range(2, 40) for n in range(1, 12) if k**n < 1 << (d.man_bits + 1)]
    x, y = (np.array(c, d.name) for c in zip(*cases, strict=True))
    assert direct(Op.POW, d)(x, y).tolist() == [int(k) ** int(n) for k, n in cases]


def test_r18_float64(direct: Callable[..., Any], accuracy: ModuleType, points: ModuleType) -> None:
    run = direct(Op.POW, dt.float64)
    for label, make in points.DOUBLE_POINTS["pow"].items():
        x, y = make(np.random.default_rng(18), 1500)
        want = accuracy.evaluate_exactly("pow", x, y)
        bound = np.where(np.abs(want.high) < 2.0**-1022, 1.01, 0.502)  # a subnormal result is rounded twice
        error = accuracy.ulp_error(run(x, y), want)
        k = int((error - bound).argmax())
        assert error[k] <= bound[k], f"{label}: {error[k]:.4f} ulp at {float(x[k]).hex()} ** {float(y[k]).hex()} (R18)"


def test_r18_float32(direct: Callable[..., Any], accuracy: ModuleType, points: ModuleType) -> None:
    run = direct(Op.POW, dt.float32)
    for label, (x, y) in points.make_single_pow_points(np.random.default_rng(18), 1500).items():
        error = accuracy.ulp_error(run(x, y), accuracy.evaluate_exactly("pow", x, y))
        k = int(error.argmax())
        assert error[k] <= 0.54, f"{label}: {error[k]:.4f} ulp at {float(x[k]).hex()} ** {float(y[k]).hex()} (R18)"
