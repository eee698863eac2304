"""Exp2, Log2 and Sin against exact values: R17's 2 ulp, exact points, NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from uops.compiler.decompose import decompose_node_or_keep_primitive
from uops.compiler.decompose.build import Expr
from uops.compiler.decompose.sin import BOUNDED, sin
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op

UNARY = {"exp2": Op.EXP2, "log2": Op.LOG2, "sin": Op.SIN}
WIDE = (dt.float32, dt.float64)
#: Largest errors that the derivations allow, in ulp; R17 grants 2. float32 is measured over every input (see `exhaustive`).
BOUND = {("exp2", 32): 1.0, ("log2", 32): 1.6, ("sin", 32): 1.8, ("exp2", 64): 1.01, ("log2", 64): 1.6, ("sin", 64): 0.95}
INF = math.inf
# fmt: off
#: (function, argument, exact result); a NaN stands for any NaN.
SPECIAL = [
    ("exp2", 0.0, 1.0), ("exp2", -0.0, 1.0), ("exp2", INF, INF), ("exp2", -INF, 0.0), ("exp2", math.nan, math.nan),
    ("exp2", 1e30, INF), ("exp2", -1e30, 0.0), ("exp2", 1e-40, 1.0),
    ("log2", 0.0, -INF), ("log2", -0.0, -INF), ("log2", INF, INF), ("log2", -INF, math.nan), ("log2", -1.0, math.nan),
    ("log2", -1e-40, math.nan), ("log2", math.nan, math.nan), ("log2", 1.0, 0.0),
    ("sin", 0.0, 0.0), ("sin", -0.0, -0.0), ("sin", INF, math.nan), ("sin", -INF, math.nan), ("sin", math.nan, math.nan),
]
# fmt: on


def check(error: Any, bound: float, arguments: tuple[Any, ...]) -> None:
    k = int(error.argmax())
    assert error[k] <= bound, f"{error[k]:.4f} ulp at {[float(a[k]).hex() for a in arguments]} (R17)"


@pytest.mark.parametrize("name", UNARY)
def test_r17_float32_strided(name: str, direct: Callable[..., Any], accuracy: ModuleType) -> None:
    x = np.arange(0, 1 << 32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    check(accuracy.ulp_error(direct(UNARY[name], dt.float32)(x), accuracy.evaluate_in_double(name, x)), BOUND[name, 32], (x,))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
def test_r17_float32_every_input(name: str, direct: Callable[..., Any], accuracy: ModuleType) -> None:
    run = direct(UNARY[name], dt.float32)
    for start in range(0, 1 << 32, 1 << 22):
        x = np.arange(start, start + (1 << 22), dtype=np.uint64).astype(np.uint32).view(np.float32)
        check(accuracy.ulp_error(run(x), accuracy.evaluate_in_double(name, x)), BOUND[name, 32], (x,))


@pytest.mark.parametrize("name", UNARY)
def test_r17_float64(name: str, direct: Callable[..., Any], accuracy: ModuleType, points: ModuleType) -> None:
    run = direct(UNARY[name], dt.float64)
    for make in points.DOUBLE_POINTS[name].values():
        (x,) = make(np.random.default_rng(17), 1500)
        check(accuracy.ulp_error(run(x), accuracy.evaluate_exactly(name, x)), BOUND[name, 64], (x,))


@pytest.mark.parametrize("d", WIDE, ids=str)
@pytest.mark.parametrize(("name", "x", "want"), SPECIAL)
def test_r17_special_values(name: str, x: float, want: float, d: DType, direct: Callable[..., Any]) -> None:
    got = direct(UNARY[name], d)(np.array([x] * 9, d.name))
    assert all(math.isnan(g) if math.isnan(want) else g == want and math.copysign(1, g) == math.copysign(1, want) for g in got)


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_r17_exact_points(d: DType, direct: Callable[..., Any]) -> None:
    k = np.arange(1 - d.bias - d.man_bits, d.bias + 1)
    powers = np.ldexp(np.ones(1, d.name), k).astype(d.name)
    assert np.array_equal(direct(Op.EXP2, d)(k.astype(d.name)), powers)
    assert np.array_equal(direct(Op.LOG2, d)(powers), k.astype(d.name))


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_r17_exp2_at_the_edges_of_the_range(d: DType, direct: Callable[..., Any]) -> None:
    least = 1 - d.bias - d.man_bits
    x = np.array([d.bias + 1, least - 1, np.nextafter(np.asarray(least - 1, d.name), np.asarray(0, d.name)), least], d.name)
    tiny = np.ldexp(np.ones((), d.name), least)
    assert direct(Op.EXP2, d)(x).tolist() == [INF, 0.0, tiny, tiny], "overflow, half of the least subnormal, just above it, itself"


@pytest.mark.parametrize("d", WIDE, ids=str)
def test_sin_with_a_known_bound_reduces_as_well(d: DType, compiled: Callable[..., Any], accuracy: ModuleType) -> None:
    leaf = b.param(0, (), d)
    run = compiled(sin(Expr.of(leaf), BOUNDED).u, [leaf])
    random = np.random.default_rng(3)
    multiples = random.integers(1, 1 << 28, 1500) * np.pi
    for x in (random.uniform(-BOUNDED, BOUNDED, 1500), random.uniform(-4, 4, 1500), multiples, 2.0 ** -random.uniform(0, 149, 500)):
        x = x.astype(d.name)
        check(accuracy.ulp_error(run(x), accuracy.evaluate_exactly("sin", x)), BOUND["sin", d.bits], (x,))
    edges = run(np.array([0.0, -0.0, math.nan, INF, -INF], d.name))
    assert np.signbit(edges[:2]).tolist() == [False, True] and np.isnan(edges[2:]).all()


@pytest.mark.parametrize("d", [dt.int16, dt.float16, dt.fp8e4m3], ids=str)
def test_sin_of_a_small_range_has_the_cheap_reduction(d: DType) -> None:
    free = decompose_node_or_keep_primitive(b.sin(b.param(0, (), dt.float32)))
    assert len(toposort(decompose_node_or_keep_primitive(b.sin(b.cast(b.param(0, (), d), dt.float32))))) < len(toposort(free)) - 20
