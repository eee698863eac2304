"""Every derived property is asserted: a wrong rule of the specification is refuted by a run (R70, R71)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import uops.spec.ir.derive  # noqa: F401 - fills RULES
from uops.interp import exact, run
from uops.interp.allowed import compute_allowed_sets
from uops.spec.errors import SpecError, Unsound
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, SliceArg
from uops.spec.ir.node import RULES, UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import scatter
from uops.spec.verify import verifier

INPUTS = {"p0": np.array([3, 200], np.uint8), "p1": np.array([math.nan, 2.0], np.float32)}


def planted(monkeypatch, slot, op, rule):
    monkeypatch.setitem(RULES[slot], op, rule)


@pytest.mark.parametrize(
    ("slot", "rule", "message"),
    [
        ("_min_max", lambda u: (0, 200), "min_max"),
        ("_min_max", lambda u: (4, 255), "min_max"),
        ("_dtype", lambda u: dt.int8, "dtype"),
        ("_shape", lambda u: (3,), "shape"),
    ],
)
def test_a_planted_rule_is_refuted(monkeypatch, slot, rule, message):
    planted(monkeypatch, slot, Op.XOR, rule)
    x = B.param(0, (2,), dt.uint8)
    root = UOp(Op.XOR, (x, B.const(len(message) % 3, dt.uint8)), None, (slot, message, id(rule)))  # the tag makes the node fresh
    with pytest.raises(Unsound, match=f"{message} of XOR"):
        run(root, INPUTS)
    run(root, INPUTS, check=False)


def test_a_planted_float_bound_ignores_nan(monkeypatch):
    planted(monkeypatch, "_min_max", Op.RECIP, lambda u: (0.5, 0.5))
    good = UOp(Op.RECIP, (B.param(1, (2,), dt.float32),), None, "float bound")
    assert np.isnan(run(good, INPUTS).values[0][0])
    with pytest.raises(Unsound):
        run(good, {"p1": np.array([math.nan, 4.0], np.float32)})
    wide = np.full(1000, 2.0, np.float32)
    many = UOp(Op.RECIP, (B.param(1, (1000,), dt.float32),), None, "float bound")
    run(many, {"p1": np.where(np.arange(1000) % 2, np.float32(math.nan), wide)})
    wide[777] = 4.0
    with pytest.raises(Unsound):
        run(many, {"p1": wide})


@pytest.mark.parametrize("d", dt.STORABLE, ids=str)
@pytest.mark.parametrize("n", [1, 40])
def test_bounds_are_checked_in_every_dtype(monkeypatch, d, n):
    one = B.const(1, d).arg.value
    planted(monkeypatch, "_min_max", Op.CONTIGUOUS, lambda u: (one, one))
    node = UOp(Op.CONTIGUOUS, (B.param(0, (n,), d),), None, f"every dtype {d} {n}")
    ones = run(B.expand(B.reshape(B.const(1, d), (1,)), (n,)), {}).values[0]
    run(node, {"p0": ones})
    ones[n // 2] = 0
    with pytest.raises(Unsound, match="min_max of CONTIGUOUS"):
        run(node, {"p0": ones})


def test_the_fill_of_a_pad_is_checked_against_its_sources_bounds(monkeypatch):
    """Only an op all of whose elements are its source's may rely on the check of the source."""
    planted(monkeypatch, "_min_max", Op.PAD, lambda u: u.src[0].min_max)
    padded = B.pad(B.reshape(B.const(5, dt.uint8), (1,)), (1,), (3,))
    node = UOp(Op.PAD, padded.src, None, "fill")
    with pytest.raises(Unsound, match="min_max of PAD"):
        run(node, {})


def test_a_view_is_checked_where_its_bounds_are_not_its_sources(monkeypatch):
    planted(monkeypatch, "_min_max", Op.RESHAPE, lambda u: (0, 4))
    node = UOp(Op.RESHAPE, B.reshape(B.const(5, dt.uint8), (1,)).src, None, "other bounds")
    with pytest.raises(Unsound, match="min_max of RESHAPE"):
        run(node, {})


def test_a_reference_is_checked_when_it_is_read(monkeypatch):
    planted(monkeypatch, "_min_max", Op.FLIP, lambda u: (0, 5))
    node = UOp(Op.FLIP, (B.param(0, (2,), dt.uint8),), B.flip(B.param(0, (2,), dt.uint8), (True,)).arg, "reference")
    with pytest.raises(Unsound, match="min_max of FLIP"):
        run(node, INPUTS)


def test_an_ill_formed_node_is_a_spec_error():
    with pytest.raises(SpecError):
        run(UOp(Op.ADD, (B.param(0, (2,), dt.uint8), B.reshape(B.binary(b"abc"), (3,)))), INPUTS)
    sine = UOp(Op.SIN, (B.param(0, (2,), dt.uint8),))
    with pytest.raises(SpecError) as broken:
        run(sine, INPUTS)
    assert broken.value.claim == "SIN.C2"
    with pytest.raises(SpecError, match="R09, R10"):
        run(sine, INPUTS, check=False)
    with pytest.raises(SpecError):
        run(UOp(Op.GETTUPLE, (B.tuple_(B.const(1)),), B.get(B.tuple_(B.const(1), B.const(2)), 1).arg), INPUTS)


PAIR = ("CPU:0", "CPU:1")
SHARDED = B.param(0, (4, 4), dt.uint8, PAIR, 0)
N = B.variable("n", 1, 3)


@pytest.mark.parametrize(
    ("root", "claim"),
    [
        (B.shrink(SHARDED, (0, 0), (2, 4)), "SHRINK.C6"),
        (B.flip(SHARDED, (True, False)), "FLIP.C3"),
        (B.slice_(B.param(0, (4,), dt.uint8, PAIR, 0), 0, 2), "SLICE.C9"),
        (B.pad(SHARDED, (0, 0), (6, 4)), "PAD.C6"),
        (scatter(B.param(0, (7,), dt.uint8), PAIR), "LOAD.C7"),
        (UOp(Op.BITCAST, (B.param(0, (3,), dt.uint8),), BitcastArg(dt.int16)), "BITCAST.C4"),
        (UOp(Op.SLICE, (B.param(0, (8,), dt.uint8), B.index(0)), SliceArg(N, dt.uint8)), "SLICE.C1"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_an_ill_formed_graph_is_refused_by_its_claim(root, claim):
    """Also where what it computes would look right, and wherever it stands."""
    whole = B.function(B.tuple_(root), B.param(0, root.src[0].shape, dt.uint8, root.src[0].device, root.src[0].axis))
    for graph in (root, B.contiguous(root), B.tuple_(B.const(1.0), root), B.get(whole, 0)):
        for evaluate, zeros in ((run, np.zeros), (compute_allowed_sets, np.zeros), (exact.run, lambda n, d: [0] * math.prod(n))):
            with pytest.raises(SpecError) as broken:
                evaluate(graph, {"p0": zeros(root.src[0].shape, np.uint8), "n": 2})
            assert broken.value.claim == claim


def test_a_graph_that_keeps_its_claims_is_judged_once(monkeypatch):
    judged = []
    monkeypatch.setattr(verifier, "find_broken_claims", lambda root, *rest, **options: judged.append(root) or [])
    root = B.add(B.param(0, (2,), dt.uint8), B.const(77, dt.uint8))
    for _ in range(3):
        run(root, INPUTS)
    run(B.neg(root), INPUTS, check=False)
    assert judged == [root]


@pytest.mark.parametrize("wrong", [None, 1.0, True, "1", [[1]], np.array([1]), np.array(True, object), [1, [2, 3]]], ids=repr)
def test_a_variable_that_is_no_integer_is_named(wrong):
    with pytest.raises(SpecError, match="variable 'n' "):
        run(B.variable("n", 0, 9), {"n": wrong})
    assert run(B.variable("n", 0, 9), {"n": np.array(5, ">u2")}).values[0] == 5


def test_arrays_may_have_either_byte_order():
    x = np.array([1, 256, -2], ">i4")
    assert run(B.add(B.param(0, (3,), dt.int32), 1), {"p0": x}).values[0].tolist() == [2, 257, -1]
    assert run(B.add(B.param(0, (3,), dt.index), 1), {"p0": x}).values[0].tolist() == [2, 257, -1]
    with pytest.raises(SpecError, match="p0"):
        run(B.param(0, (3,), dt.int32), {"p0": [[1], [2, 3]]})


@pytest.mark.parametrize("inputs", [None, [np.zeros(2, np.uint8)], np.zeros(2, np.uint8)], ids=["none", "list", "array"])
def test_inputs_are_a_mapping(inputs):
    with pytest.raises(SpecError, match="expected a mapping of inputs by key, got"):
        run(B.param(0, (2,), dt.uint8), inputs)
