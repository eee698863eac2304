"""Whole graphs: every node moved inside its own set, and everything after it recomputed, ends inside the graph's set (P2, R30)."""

from __future__ import annotations

import numpy as np
import pytest

from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import case, generate_tensor_graph
from uops.interp import run
from uops.interp.allowed import compute_allowed_sets
from uops.interp.allowed.layout import LAYOUT
from uops.interp.allowed.value import ANY, SetArray
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Ops whose meaning lies outside one node: memory and scopes have tests of their own.
SCOPED = {Op.BUFFER, Op.STORE, Op.FUNCTION, Op.CALL, Op.GETTUPLE, Op.TUPLE, Op.AFTER, Op.SINK, Op.GROUP, Op.REPLICATED}


def _is_operand(u: UOp) -> bool:
    """A node that only spells a shape, or has no value to move."""
    return u.op in (Op.CONST, Op.PARAM, Op.BINARY) or not u.src or u.dtype is dt.index


def _alone(u: UOp, values: dict[UOp, np.ndarray]) -> tuple[UOp, dict[str, np.ndarray]]:
    """The node on Params in place of its sources with values."""
    slots: dict[UOp, UOp] = {}
    for s in u.src:
        if s in values and s.op is not Op.CONST and s not in slots:
            slots[s] = b.param(900 + len(slots), s.shape, s.dtype)
    return u.replace(src=[slots.get(s, s) for s in u.src]), {f"p{p.arg.slot}": values[s] for s, p in slots.items()}


def _moved(sampler, found) -> np.ndarray:
    v = found._value
    if not isinstance(v, SetArray):
        return v
    x = sampler.member(v)
    if v.flags is not None and ((v.flags & ANY) != 0).any():
        noise = sampler.rng.integers(0, 256, x.nbytes, np.uint8).view(x.dtype).reshape(x.shape)
        noise = noise if x.dtype != np.bool_ else sampler.rng.random(x.shape) < 0.5
        x = np.where((v.flags & ANY) != 0, noise, x)
    return x


def _perturbed(root: UOp, inputs, sampler) -> np.ndarray:
    """A run in which every node takes a random member of its set on the values that its sources took."""
    values: dict[UOp, np.ndarray] = {}
    for u in toposort(root):
        if u.op is Op.PARAM and u.arg.name is None and u.dtype is not dt.index:
            values[u] = inputs[f"p{u.arg.slot}"]
        elif not _is_operand(u):
            graph, given = _alone(u, values)
            values[u] = _moved(sampler, compute_allowed_sets(graph, {**inputs, **given}).values[0])
    return values[root]


def test_members_of_each_node_lead_to_members_of_the_result(make_sampler):
    judged = inexact = 0
    for seed in range(2600):
        graph, inputs = generate_tensor_graph(SeededDraw(seed), nodes=9, max_elements=60, dtypes=(*dt.FLOATS, dt.bool_, dt.int32))
        if any(u.op in SCOPED for u in toposort(graph)) or _is_operand(graph):
            continue
        try:
            found = compute_allowed_sets(graph, inputs).values[0]
            if found.is_exact:
                continue
            for k in range(3):
                got = _perturbed(graph, inputs, make_sampler(seed * 10 + k))
                inside = found.contains(got)
                assert inside.all(), (seed, found.describe(int(np.flatnonzero(~inside.reshape(-1))[0])))
        except Trap:
            continue
        judged, inexact = judged + 1, inexact + found.kinds()["exact"]
    assert judged >= 60


def test_chains_of_inexact_ops_stay_inside(make_sampler):
    """Long chains with an approximation in every other step, on every float."""
    ops = [Op.SIN, Op.EXP2, Op.SQRT, Op.LOG2, Op.RECIP, Op.NEG, Op.TRUNC]
    for d in dt.FLOATS:
        for seed in range(12):
            s = make_sampler(seed)
            x = b.param(0, (15,), d)
            inputs = {"p0": s.rng.normal(size=15).astype(np.float32).astype(LAYOUT[d].np)}
            u = b.sin(x)
            for _ in range(5):
                op = ops[int(s.rng.integers(0, len(ops)))]
                v = UOp(op, (u,))
                u = [v, b.add(v, x), b.mul(v, u), b.div(v, u), b.maximum(v, x), b.where(b.lt(v, x), v, u)][
                    int(s.rng.integers(0, 6))
                ]
            found = compute_allowed_sets(u, inputs).values[0]
            for k in range(4):
                got = _perturbed(u, inputs, make_sampler(seed * 10 + k))
                assert found.contains(got).all(), (d, seed)


def test_r16_a_contracted_sum_is_allowed_through_movement_and_functions():
    rng = np.random.default_rng(0)
    a, c, e = (rng.normal(size=(6, 5)) for _ in range(3))
    inputs = {"p0": a, "p1": c, "p2": e.T.copy()}
    p, q, r = b.param(0, (6, 5), dt.float64), b.param(1, (6, 5), dt.float64), b.param(2, (5, 6), dt.float64)
    inner = b.param(0, (5, 6), dt.float64), b.param(1, (5, 6), dt.float64)
    product = b.contiguous(b.permute(b.mul(p, q), (1, 0)))
    fused = run(b.mulacc(b.permute(p, (1, 0)), b.permute(q, (1, 0)), r), inputs).values[0]
    for graph in (b.add(product, r), b.add(r, product), b.get(b.function(b.add(*inner), product, r), 0)):
        found = compute_allowed_sets(graph, inputs).values[0]
        plain = run(graph, inputs).values[0]
        assert (plain != fused).any(), "contraction changed nothing: the test would not test"
        assert found.contains(plain).all() and found.contains(fused).all()
        assert (
            found.kinds()["points"] == int((plain != fused).sum()) and found.measure_width_in_ulps_or_points_less_one().max() == 1
        )
    difference = compute_allowed_sets(b.sub(r, product), inputs).values[0]
    negated = run(b.mulacc(b.neg(b.permute(p, (1, 0))), b.permute(q, (1, 0)), r), inputs).values[0]
    assert difference.contains(negated).all() and not difference.contains(fused).any()


def test_r27_a_node_compared_with_itself_is_known():
    x = np.random.default_rng(1).normal(size=9).astype(np.float32)
    x[3] = np.nan
    u = b.sin(b.param(0, (9,), dt.float32))
    for op, want in ((Op.CMPEQ, True), (Op.CMPNE, False), (Op.CMPLT, False), (Op.CMPGE, True)):
        found = compute_allowed_sets(UOp(op, (u, u)), {"p0": x}).values[0]
        assert found.is_exact and found.best[0] == want
    assert not compute_allowed_sets(b.eq(u, u), {"p0": x}, "core").values[0].is_exact  # core: each evaluation may differ


def test_r27_the_maximum_of_an_inexact_value_is_found():
    x = np.array([0.1, 0.9, 0.5, 1.2], np.float32)
    u = b.sin(b.param(0, (4,), dt.float32))
    found = compute_allowed_sets(b.eq(u, b.expand(b.reduce(u, Op.MAX, (0,)), (4,))), {"p0": x}).values[0]
    assert found.contains(np.array([False, False, False, True])).all()
    assert not found.contains(np.array([True, True, True, True]))[:3].any()


@pytest.mark.parametrize("nodes", [3, 6])
def test_r31_shallow_graphs_have_narrow_sets_and_few_any(nodes):
    widths, kinds = [], {"exact": 0, "points": 0, "interval": 0, "any": 0}
    for seed in range(600):
        graph, inputs = case(seed, nodes=nodes, max_elements=200)
        try:
            values = compute_allowed_sets(graph, inputs).values
        except Trap:
            continue
        for found in values:
            for k, n in found.kinds().items():
                kinds[k] += n
            w = found.measure_width_in_ulps_or_points_less_one()
            widths.append(w[(w > 0) & np.isfinite(w)])
    wide = np.concatenate([w.reshape(-1) for w in widths])
    assert wide.size > 100 and np.median(wide) <= 8
    assert kinds["any"] <= 0.02 * sum(kinds.values()), kinds
