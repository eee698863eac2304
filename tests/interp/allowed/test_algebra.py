"""Soundness of each op on sets: what members of the operands give lies in the set of the result (P2, R30).

An error of an approximated op is drawn within its bound, so that the whole set is exercised and not only its middle.
"""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp.allowed.elementwise import branch
from uops.interp.allowed.elementwise.arithmetic import RULES
from uops.interp.allowed.elementwise.power import _is_special_case
from uops.interp.allowed.elementwise.transcendental import APPROXIMATIONS
from uops.interp.allowed.layout import LAYOUT
from uops.interp.allowed.result import AllowedSet
from uops.interp.allowed.rules import apply_op_at_strict_level, apply_strict_cast, negate_float_set, unite_sets
from uops.interp.allowed.value import SetArray, best_of, from_points_widening_to_hull_or_any
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.rounding import CASTS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

ARITY = {Op.NEG: 1, Op.RECIP: 1, Op.SQRT: 1, Op.TRUNC: 1, Op.MULACC: 3}
ROUNDS = 40


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("op", [*RULES, Op.TRUNC, *branch.INTERVAL_COMPARISONS], ids=lambda op: op.name)
def test_r16_members_of_operands_give_members(op, d, make_sampler, judge):
    s, f, fn = make_sampler(op.value * 100 + d.bits), LAYOUT[d], KERNELS[op][d]
    out = dt.bool_ if op in branch.INTERVAL_COMPARISONS else d
    seen = 0
    for _ in range(ROUNDS if op is not Op.MULACC else 12):
        values = [s.set_of(d, int(s.rng.integers(1, 30))) for _ in range(1)]
        m = values[0].shape[0]
        values += [s.set_of(d, m) for _ in range(ARITY.get(op, 2) - 1)]
        found = apply_op_at_strict_level(op, f, values)
        seen += isinstance(found, SetArray)
        judge(out, found, np.asarray(fn(*map(best_of, values))), (op, "best"))
        for _ in range(6):
            members = [s.member(v) for v in values]
            judge(out, found, np.asarray(fn(*members)), (op, d, values))
            if op is Op.MAX:  # of two zeros either (R11), whichever the kernel gives
                judge(out, found, np.asarray(fn(*members[::-1])), (op, d, values))
    assert seen, "no set was ever inexact: the test would not test"


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("op", list(APPROXIMATIONS), ids=lambda op: op.name)
def test_r17_values_within_the_bound_are_members(op, d, make_sampler, judge):
    s, f, fn = make_sampler(7), LAYOUT[d], KERNELS[op][d]
    for _ in range(ROUNDS):
        v = s.set_of(d, 20)
        found = apply_op_at_strict_level(op, f, (v,))
        for _ in range(6):
            x = s.member(v)
            y = np.asarray(fn(x))
            moved = s.near(d, y, f.ulps, APPROXIMATIONS[op].is_exact(x, y))
            if op is Op.EXP2:
                moved = np.where(moved < 0, y, moved)  # a power of two is not negative
            judge(d, found, moved, (op, d))


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r18_powers_within_the_bound_are_members(d, make_sampler, judge):
    s, f, fn = make_sampler(8), LAYOUT[d], KERNELS[Op.POW][d]
    for _ in range(ROUNDS):
        a, b = s.set_of(d, 20), s.set_of(d, 20)
        found = apply_op_at_strict_level(Op.POW, f, (a, b))
        for _ in range(6):
            x, y = s.member(a), s.member(b)
            p = np.asarray(fn(x, y))
            moved = s.near(d, p, 2, _is_special_case(x, y, p))
            judge(d, found, np.where(np.signbit(moved) != np.signbit(p), p, moved), d)


@pytest.mark.parametrize("r", [*dt.STORABLE, dt.index], ids=str)
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r15_casts_of_members_are_members(d, r, make_sampler, judge):
    s, fn = make_sampler(9), CASTS[d, r]
    for _ in range(8):
        v = s.set_of(d, 20)
        if r is dt.index:  # a Cast of a non-finite value to index traps (R29), and so does one of a best value
            keep = np.isfinite(best_of(v)) & (np.abs(best_of(v).astype(np.float64)) < 1e9)
            v = v[keep] if not isinstance(v, SetArray) else v.map_components(lambda x, lead, keep=keep: x[..., keep])
        found = apply_strict_cast(LAYOUT[d], LAYOUT[r], v)
        for _ in range(6):
            x = s.member(v)
            fine = np.isfinite(x) & (np.abs(x.astype(np.float64)) < 2.0**62)
            judge(r, found, fn(np.where(fine, x, best_of(v)) if r is dt.index else x), (d, r))


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r30_a_bitcast_gives_the_bits_of_every_member_or_any(d, make_sampler, judge):
    s, f = make_sampler(10), LAYOUT[d]
    bits = {1: dt.uint8, 2: dt.int16, 4: dt.uint32, 8: dt.int64}[f.np.itemsize]
    kinds = set()
    for _ in range(ROUNDS):
        v = s.set_of(d, 20)
        if not isinstance(v, SetArray):
            continue
        found = branch.apply_bitcast_regrouping_last_axis(f, LAYOUT[bits], v)
        kinds |= {k for k, n in _kinds(bits, found).items() if n}
        for _ in range(6):
            judge(bits, found, s.member(v).view(LAYOUT[bits].np), d)
    assert kinds >= {"points", "any"}


@pytest.mark.parametrize("r", [dt.uint8, dt.int16, dt.float16, dt.uint32, dt.float32, dt.int64], ids=str)
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r46_a_bitcast_to_another_size_has_the_bits_of_every_members_parts(d, r, make_sampler, judge):
    """Each part of a word is a member by itself, and zeros of two signs are two of them."""
    s, f = make_sampler(14), LAYOUT[d]
    for _ in range(ROUNDS):
        v = s.set_of(d, 24)
        zeros = from_points_widening_to_hull_or_any(f, np.array([[0.0] * 24, [-0.0] * 24]).astype(f.np))
        for x in (v, zeros):
            if isinstance(x, SetArray):
                found = branch.apply_bitcast_regrouping_last_axis(f, LAYOUT[r], x)
                for _ in range(6):
                    judge(r, found, s.member(x).view(LAYOUT[r].np), (d, r))


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r30_an_open_condition_allows_both_branches(d, make_sampler, judge):
    s, f = make_sampler(11), LAYOUT[d]
    bool_, open_ = LAYOUT[dt.bool_], 0
    for _ in range(ROUNDS):
        a, b, x = (s.set_of(d, 20) for _ in range(3))
        p = apply_op_at_strict_level(Op.CMPLT, f, (x, np.zeros(20, f.np)))
        open_ += isinstance(p, SetArray)
        found = apply_op_at_strict_level(Op.WHERE, f, (p, a, b))
        for _ in range(6):
            judge(d, found, np.where(s.member(p), s.member(a), s.member(b)), d)
    assert open_ and bool_.np == np.bool_


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_unite_holds_both_and_negated_mirrors(d, make_sampler, judge):
    s, f = make_sampler(12), LAYOUT[d]
    for _ in range(ROUNDS):
        a, b = s.set_of(d, 20), s.set_of(d, 20)
        both = unite_sets(f, a, b)
        for _ in range(4):
            judge(d, both, s.member(a), "first")
            judge(d, both, s.member(b), "second")
            judge(d, negate_float_set(a), KERNELS[Op.NEG][d](s.member(a)), "negated")


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.IDIV, Op.SHL, Op.XOR, Op.MAX, Op.CMPLT], ids=lambda op: op.name)
@pytest.mark.parametrize("d", [dt.int8, dt.uint32, dt.int64], ids=str)
def test_r30_points_of_integers_combine(op, d, make_sampler, judge):
    s, f = make_sampler(13), LAYOUT[d]
    for _ in range(ROUNDS):
        a, b = (SetArray(f, None, None, s.rng.integers(0, 100, (k, 9)).astype(f.np)) for k in (2, 3))
        found = apply_op_at_strict_level(op, f, (a, b))
        out = dt.bool_ if op is Op.CMPLT else d
        for _ in range(6):
            judge(out, found, np.asarray(KERNELS[op][d](s.member(a), s.member(b))), op)


def _kinds(d, v):
    return AllowedSet(d, v).kinds()


@pytest.mark.parametrize("op", [Op.LOG2, Op.EXP2, Op.SIN, Op.RECIP, Op.TRUNC, Op.SQRT], ids=lambda op: op.name)
def test_the_order_of_memory_changes_no_set(op, make_sampler):
    s, f = make_sampler(21), LAYOUT[dt.float32]
    for _ in range(ROUNDS):
        v = s.set_of(dt.float32, 12)
        if isinstance(v, SetArray):
            square = v.map_components(lambda x, lead: x.reshape(*x.shape[:lead], 4, 3))
            turned = square.map_components(lambda x, lead: np.asfortranarray(x))
            a, c = (
                AllowedSet(dt.float32, apply_op_at_strict_level(op, f, (square,))),
                AllowedSet(dt.float32, apply_op_at_strict_level(op, f, (turned,))),
            )
            assert [a.describe(k) for k in range(12)] == [c.describe(k) for k in range(12)]
