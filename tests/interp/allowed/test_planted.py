"""The sets are judged: an error of three bounds is caught always, for each inexact op and dtype, on either side."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp.allowed import compute_allowed_sets
from uops.interp.allowed.layout import LAYOUT, from_order_keys, to_order_keys, ulp
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

N = 200


def _data(d, seed, positive=False):
    x = np.random.default_rng(seed).normal(size=N) * 2.0 ** np.random.default_rng(seed + 1).integers(-3, 4, N)
    x = np.abs(x) + 2.0**-5 if positive else x
    x *= min(1.0, LAYOUT[d].max / 64)  # so that no error of three bounds overflows
    return x if d is dt.float64 else x.astype(np.float32).astype(LAYOUT[d].np)


def _unary(op):
    return lambda d: (b.build_alu_with_promotion(op, b.param(0, (N,), d)), {"p0": _data(d, 1, op is Op.LOG2)})


def _pow(d):
    return b.pow_(b.param(0, (N,), d), b.param(1, (N,), d)), {"p0": _data(d, 2, True), "p1": _data(d, 3)}


def _reduced(op):
    def make(d):
        x = _data(d, 4, op is Op.MUL)[:196].reshape(28, 7)
        if op is Op.MUL:
            x = np.clip(x.astype(np.float32), 0.6, 1.6).astype(x.dtype)
        return b.reduce(b.param(0, (28, 7), d), op, (1,)), {"p0": x}

    return make


def _dot(d):
    p, q = b.param(0, (28, 7), d), b.param(1, (28, 7), d)
    return b.reduce(b.mul(p, q), Op.ADD, (1,)), {
        "p0": _data(d, 5)[:196].reshape(28, 7),
        "p1": _data(d, 6)[:196].reshape(28, 7),
    }


def _contracted(d):
    p, q, r = (b.param(k, (N,), d) for k in range(3))
    return b.add(b.mul(p, q), r), {f"p{k}": _data(d, 7 + k) for k in range(3)}


CASES = {
    "exp2": _unary(Op.EXP2),
    "log2": _unary(Op.LOG2),
    "sin": _unary(Op.SIN),
    "pow": _pow,
    "sum": _reduced(Op.ADD),
    "product": _reduced(Op.MUL),
    "dot": _dot,
    "contracted": _contracted,
}


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_an_error_of_three_bounds_is_always_caught(name, d):
    graph, inputs = CASES[name](d)
    found = compute_allowed_sets(graph, inputs).values[0]
    f, best = LAYOUT[d], found.best
    finite = np.isfinite(found._value.rows).all(0)
    inexact = ~found._value.exact_mask() & finite
    assert inexact.sum() >= 5, "nothing was inexact: the test would not test"
    rows = found._value.rows.astype(np.float64)
    center = best.astype(np.float64)
    bound = np.maximum(np.maximum(center - rows[0], rows[2] - center), ulp(f, best))
    for sign in (-1.0, 1.0):
        wrong = center + sign * 3 * bound
        stored = (wrong.astype(np.float32) if f.np.itemsize == 1 else wrong).astype(f.np)
        caught = ~found.contains(np.where(finite, stored, best))
        assert caught[finite].all()  # exact elements too: their bound is taken as one ulp


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_one_step_beyond_either_end_is_caught_and_the_ends_are_not(name, d):
    graph, inputs = CASES[name](d)
    found = compute_allowed_sets(graph, inputs).values[0]
    f, v = LAYOUT[d], found._value
    plain = np.isfinite(v.rows).all(0) & (v.rows[0] != 0) & (v.rows[2] != 0)
    if v.flags is not None:
        plain &= v.flags == 0
    for row, step in ((0, -1), (2, 1)):
        end = v.rows[row]
        beyond = from_order_keys(f, to_order_keys(f, end).astype(np.int64) + step)
        assert found.contains(end)[plain].all()
        assert not found.contains(beyond)[plain].any()


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r16_correctly_rounded_ops_allow_one_value(d):
    p, q = b.param(0, (N,), d), b.param(1, (N,), d)
    inputs = {"p0": _data(d, 11), "p1": _data(d, 12, True)}
    for graph in (b.add(p, q), b.mul(p, q), b.div(p, q), b.sub(p, q), b.recip(q), b.sqrt(q), b.trunc(p), b.mulacc(p, q, p)):
        found = compute_allowed_sets(graph, inputs).values[0]
        assert found.is_exact and not found.contains(from_order_keys(LAYOUT[d], to_order_keys(LAYOUT[d], found.best) + 1)).any()


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r17_exact_points_are_exact(d):
    x = np.array([0.0, -0.0, 1.0, 2.0, -1.0, 3.0, np.inf, -np.inf, np.nan]).astype(np.float32).astype(LAYOUT[d].np)
    assert compute_allowed_sets(b.exp2(b.param(0, x.shape, d)), {"p0": x}).values[0].is_exact
    powers = np.array([1.0, 2.0, 4.0, 0.5, 0.0, np.inf, -1.0, np.nan]).astype(np.float32).astype(LAYOUT[d].np)
    assert compute_allowed_sets(b.log2(b.param(0, powers.shape, d)), {"p0": powers}).values[0].is_exact
    zeros = np.array([0.0, -0.0, np.inf, np.nan]).astype(np.float32).astype(LAYOUT[d].np)
    assert compute_allowed_sets(b.sin(b.param(0, zeros.shape, d)), {"p0": zeros}).values[0].is_exact
