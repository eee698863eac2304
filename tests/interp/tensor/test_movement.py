"""Source, movement, reduce and marker ops on values, with symbolic sizes, through `run`."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from uops.interp import find_executed_ops, run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

T = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
P = B.param(0, (2, 3, 4), dt.int32)


def value(root, **inputs):
    (v,) = run(root, {"p0": T, **inputs}).values
    return v


def test_permute_flip_reshape_shrink():
    assert np.array_equal(value(B.permute(P, (2, 0, 1))), T.transpose(2, 0, 1))
    assert np.array_equal(value(B.flip(P, (True, False, True))), T[::-1, :, ::-1])
    assert np.array_equal(value(B.reshape(B.permute(P, (2, 1, 0)), (6, 4))), T.transpose(2, 1, 0).reshape(6, 4))
    assert np.array_equal(value(B.shrink(P, (1, 0, 2), (1, 3, 2))), T[1:2, 0:3, 2:4])


def test_expand_broadcasts_size_one_axes():
    x = B.reshape(P, (2, 3, 4, 1))
    assert np.array_equal(value(B.expand(x, (2, 3, 4, 5))), np.broadcast_to(T[..., None], (2, 3, 4, 5)))
    big = value(B.expand(B.reshape(P, (24, 1)), (24, 5000)))
    assert big.shape == (24, 5000)
    assert (big == T.reshape(24, 1)).all()
    empty = value(B.expand(B.reshape(P, (24, 1)), (24, 0)))
    assert empty.shape == (24, 0)


def test_r43_pad_fills_with_zero():
    got = value(B.pad(P, (1, 0, 2), (3, 4, 6)))
    want = np.zeros((3, 4, 6), np.int32)
    want[1:, :3, 2:] = T
    assert np.array_equal(got, want)
    for d in (dt.bool_, dt.bfloat16, dt.fp8e4m3, dt.index):
        got = value(B.pad(B.cast(P, d), (0, 0, 1), (2, 3, 5)))
        assert not got[..., 0].astype(bool).any()


def test_r45_index_is_outer():
    rows, cols = B.stack(B.index(1), B.index(0), B.index(1)), B.stack(B.index(2), B.index(0))
    assert np.array_equal(value(B.at(P, rows, cols)), T[np.ix_([1, 0, 1], [2, 0])])
    assert np.array_equal(value(B.at(P, rows, 2)), T[[1, 0, 1]][:, 2])
    assert np.array_equal(value(B.at(P, 1, cols)), T[1][[2, 0]])
    assert np.array_equal(value(B.at(B.neg(P), 1, cols, rows)), -T[1][np.ix_([2, 0], [1, 0, 1])])
    assert value(B.at(P, 1, 2, 3)) == 23
    assert value(B.at(P, 1, 2, 3)).shape == ()


def test_r45_index_of_a_value_traps_at_once():
    for bad in (-1, 2, 2**70):
        with pytest.raises(Trap, match="R45"):
            value(B.at(B.neg(P), bad))
        with pytest.raises(Trap, match="R45"):  # a reference traps when it is read
            value(B.at(P, bad))
        with pytest.raises(Trap, match="R45"):
            value(B.at(B.neg(P), B.stack(B.index(0), B.index(bad))))


def test_r40_stack():
    assert np.array_equal(value(B.stack(P, B.neg(P))), np.stack([T, -T]))
    empty = value(B.SCALAR)
    assert empty.shape == (0,)
    assert empty.dtype == np.int64
    wide = value(B.stack(B.index(2**80), B.index(1)))
    assert wide.tolist() == [2**80, 1]


def test_r46_bitcast():
    f = np.array([[1.0, -2.0], [math.nan, 3.0]], np.float32)
    p = B.param(1, (2, 2), dt.float32)
    for d in (dt.uint8, dt.int16, dt.bfloat16, dt.uint32, dt.int64, dt.float64, dt.fp8e5m2):
        got = value(B.bitcast(p, d), p1=f)
        assert got.tobytes() == f.tobytes(), d
        assert got.shape == (2, 8 // d.itemsize)
        moved = B.permute(B.neg(B.neg(p)), (1, 0))
        assert value(B.bitcast(moved, d), p1=f).tobytes() == f.T.tobytes(), d
    assert value(B.bitcast(B.const(1.0), dt.uint32)) == 0x3F800000
    empty = B.bitcast(B.param(1, (3, 0), dt.float32), dt.uint8)
    assert value(empty, p1=np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_r46_slice_of_a_value_and_of_a_buffer():
    flat = B.reshape(P, (24,))
    assert value(B.slice_(flat, 5, 3)).tolist() == [5, 6, 7]
    assert value(B.slice_(B.neg(flat), 5, 3)).tolist() == [-5, -6, -7]
    for source in (flat, B.add(flat, 0)):
        assert value(B.slice_(source, 1, 6, dt.uint8)).tolist() == list(T.tobytes()[4:10])
        assert value(B.slice_(source, 2, 2, dt.uint64)).tolist() == T.ravel().view(np.uint64)[1:3].tolist()
        for offset, size, d in ((22, 3, None), (1, 1, dt.uint64), (-1, 2, None)):
            with pytest.raises(SpecError, match=r"SLICE\.C[56]"):
                value(B.slice_(source, offset, size, d))
    n = B.variable("n", 0, 22)
    with pytest.raises(Trap, match="R46"):
        run(UOp(Op.SLICE, (flat, n), B.slice_(flat, 0, 3).arg), {"p0": T, "n": 22}, check=False)


def test_r24_bool_bytes():
    raw = B.param(1, (3,), dt.uint8)
    with pytest.raises(SpecError) as broken:
        value(B.slice_(raw, 0, 2, dt.bool_), p1=np.array([1, 0, 2], np.uint8))
    assert broken.value.claim == "SLICE.C7"
    with pytest.raises(Trap, match="R24"):
        value(B.param(1, (2,), dt.bool_), p1=np.array([1, 3], np.uint8).view(np.bool_))


def test_r47_replicated():
    x = B.param(1, (3, 2), dt.float32)
    same = np.array([[1.0, math.nan]] * 3, np.float32)
    assert value(B.replicated(x, 0), p1=same).shape == (1, 2)
    for bad in (2.0, -1.0):
        other = same.copy()
        other[1, 0] = bad
        with pytest.raises(Trap, match="R47"):
            value(B.replicated(x, 0), p1=other)
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0]], np.float32)
    with pytest.raises(Trap, match="R47"):  # the same number, other bits (R76)
        value(B.replicated(x, 0), p1=zeros)


def test_r28_movement_keeps_every_bit():
    bits = np.array([0x7F800001, 0xFFC00123, 0x80000000, 1], np.uint32)
    p = B.param(1, (4,), dt.float32)
    chain = B.contiguous(B.load(B.detach(B.reshape(B.flip(B.expand(B.reshape(p, (4, 1)), (4, 1)), (True, False)), (4,)))))
    assert value(chain, p1=bits.view(np.float32)).view(np.uint32).tolist() == bits[::-1].tolist()


def test_const_and_binary():
    for d in dt.STORABLE:
        assert value(B.const(1, d)).dtype.itemsize == d.itemsize
    assert np.signbit(value(B.const(-0.0)))
    assert value(B.const(2**64 - 1, dt.uint64)) == 2**64 - 1
    assert value(B.const(0.5, dt.fp8e5m2)).dtype == ml_dtypes.float8_e5m2
    assert value(B.binary(b"\x00\xff")).tolist() == [0, 255]
    assert value(B.binary(b"")).shape == (0,)


def test_r41_broadcast_with_size_zero():
    a, b = B.param(1, (3, 1), dt.int32), B.param(2, (1, 0), dt.int32)
    got = value(B.add(a, b), p1=np.ones((3, 1), np.int32), p2=np.ones((1, 0), np.int32))
    assert got.shape == (3, 0)


# Reduce


@pytest.mark.parametrize("d", dt.STORABLE, ids=str)
def test_r32_r42_reduce_every_dtype(d):
    rng = np.random.default_rng(1)
    x = (
        rng.integers(0, 2, (3, 4, 5))
        if d is dt.bool_
        else rng.integers(-3, 4, (3, 4, 5))
        if d.is_signed
        else rng.integers(0, 5, (3, 4, 5))
    )
    x = value(B.cast(B.param(1, (3, 4, 5), dt.int64), d), p1=x.astype(np.int64))
    p = B.param(1, (3, 4, 5), d)
    exact = x.astype(np.float64).astype(np.int64)
    for axes in ((0,), (1, 2), (0, 1, 2), ()):
        for op, fold in ((Op.ADD, np.add), (Op.MAX, np.maximum), (Op.MUL, np.multiply)):
            want = fold.reduce(exact, axes, keepdims=True)
            want = value(B.cast(B.param(1, want.shape, dt.int64), d), p1=want.astype(np.int64))
            got = value(B.reduce(p, op, axes), p1=x)
            assert got.shape == want.shape
            assert np.array_equal(got, want), (op, axes)


def test_r05_reduce_wraps():
    p = B.param(1, (3,), dt.int8)
    assert value(B.reduce(p, Op.ADD, (0,)), p1=np.array([100, 100, 100], np.int8)).tolist() == [44]
    assert value(B.reduce(p, Op.MUL, (0,)), p1=np.array([100, 3, 1], np.int8)).tolist() == [44]


def test_r32_empty_reduce_gives_the_identity():
    for d, least in (
        (dt.float32, -math.inf),
        (dt.fp8e4m3, -448.0),
        (dt.int16, -(2**15)),
        (dt.uint8, 0),
        (dt.bool_, False),
        (dt.bfloat16, -math.inf),
    ):
        p, x = B.param(1, (2, 0), d), np.zeros((2, 0), value(B.const(0, d)).dtype)
        assert value(B.reduce(p, Op.MAX, (1,)), p1=x).astype(np.float64).tolist() == [[least]] * 2, d
        assert value(B.reduce(p, Op.ADD, (1,)), p1=x).astype(np.float64).tolist() == [[0]] * 2
        assert value(B.reduce(p, Op.MUL, (1,)), p1=x).astype(np.float64).tolist() == [[1]] * 2


def test_r11_r32_reduce_max_gives_nan():
    for d in dt.FLOATS:
        x = np.array([1.0, math.nan, 2.0]).astype(value(B.const(0, d)).dtype)
        got = value(B.reduce(B.param(1, (3,), d), Op.MAX, (0,)), p1=x)
        assert np.isnan(got.astype(np.float64)).all(), d


def test_r32_float_sum_rounds_once():
    """2048 ones in float16 and 300 in bfloat16: accumulated in their own dtype they would stop at 2048 and 256."""
    for d, n, want in ((dt.float16, 4000, 4000), (dt.bfloat16, 300, 300), (dt.fp8e4m3, 20, 20), (dt.float32, 2**24 + 4, 2**24 + 4)):
        ones = B.expand(B.reshape(B.const(1, d), (1,)), (n,))
        got = value(B.reduce(ones, Op.ADD, (0,)))
        assert float(got[0]) == want, d
    inf = np.array([math.inf, -math.inf, 1.0], np.float32)
    assert np.isnan(value(B.reduce(B.param(1, (3,), dt.float32), Op.ADD, (0,)), p1=inf)).all()
    assert value(B.reduce(B.param(1, (2,), dt.float16), Op.ADD, (0,)), p1=np.array([65504.0, 65504.0], np.float16)).tolist() == [
        math.inf
    ]
    most = np.array([448.0, 448.0], ml_dtypes.float8_e4m3fn)
    assert np.isnan(value(B.reduce(B.param(1, (2,), dt.fp8e4m3), Op.ADD, (0,)), p1=most).astype(np.float32)).all()


def test_r08_reduce_of_index_is_unbounded():
    x = B.cast(B.param(1, (3,), dt.int64), dt.index)
    big = np.array([2**62, 2**62, 2**62], np.int64)
    assert value(B.reduce(x, Op.ADD, (0,)), p1=big).tolist() == [3 * 2**62]
    assert value(B.reduce(x, Op.MUL, (0,)), p1=big).tolist() == [2**186]
    assert value(B.reduce(x, Op.MAX, (0,)), p1=big).tolist() == [2**62]
    assert value(B.reduce(B.mul(x, x), Op.MAX, (0,)), p1=big).tolist() == [2**124]


# Symbolic sizes


def test_r48_symbolic_shapes():
    n = B.variable("n", 1, 6)
    row = B.expand(B.reshape(B.const(3), (1,)), (n,))
    total = B.reduce(row, Op.ADD, (0,))
    for k in (1, 4, 6):
        assert value(total, n=k).tolist() == [3 * k]
        assert value(row, n=k).shape == (k,)
    part = B.shrink(B.reshape(P, (24,)), (n,), (B.mul(n, 2),))
    assert value(part, n=5).tolist() == list(range(5, 15))
    assert value(B.param(1, (n,), dt.int8), n=2, p1=np.zeros(2, np.int8)).shape == (2,)
    with pytest.raises(SpecError, match="p1"):
        value(B.param(1, (n,), dt.int8), n=3, p1=np.zeros(2, np.int8))


def test_r46_r48_bitcast_scales_a_symbolic_axis():
    n = B.variable("n", 0, 4)
    p = B.param(1, (2, B.mul(n, 2)), dt.float32)
    for k in range(5):
        f = np.arange(4 * k, dtype=np.float32).reshape(2, 2 * k)
        for d in (dt.uint8, dt.int16, dt.uint32, dt.float64):
            for t in (p, B.neg(B.neg(p))):
                assert np.array_equal(value(B.bitcast(t, d), n=k, p1=f), f.view(d.name)), (k, d)


def test_r48_a_variable_outside_its_bounds_traps():
    n = B.variable("n", 1, 6)
    for bad in (0, 7, -3, 2**90):
        with pytest.raises(Trap, match=r"'n'.*R48"):
            value(B.add(n, 1), n=bad)
    with pytest.raises(SpecError, match="'n'"):
        value(B.add(n, 1))
    assert value(B.add(B.variable("big", 0, 2**80), 1), big=2**70) == 2**70 + 1


def test_r48_a_symbolic_size_that_does_not_fit_traps():
    """What cannot be proved to fit is refused by its claim; the machine has a second look."""
    n = B.variable("n", 0, 100)
    flat = B.reshape(P, (24,))
    for root, k, claim in (
        (B.shrink(flat, (0,), (n,)), 25, "SHRINK.C2"),
        (B.pad(flat, (0,), (n,)), 23, "PAD.C2"),
        (B.reshape(P, (n, 2)), 11, "RESHAPE.C2"),
    ):
        with pytest.raises(SpecError) as broken:
            value(root, n=k)
        assert broken.value.claim == claim
        with pytest.raises(Trap, match=root.op.name):
            run(root, {"p0": T, "n": k}, check=False)
    with pytest.raises(SpecError):
        value(UOp(Op.SHRINK, (B.reshape(P, (24,)), B.shape_vector((3,)), B.shape_vector((22,)))))


# The run itself


def test_executed_and_trace_report_what_ran():
    graph = B.get(B.function(B.tuple_(B.neg(B.param(0, (2, 3, 4), dt.int32)), B.sin(B.const(1.0))), P), 0)
    assert find_executed_ops(graph, {"p0": T}) == {Op.PARAM, Op.NEG, Op.GETTUPLE, Op.FUNCTION}
    seen = []
    run(graph, {"p0": T}, trace=lambda u, v: seen.append((u.op, None if v is None else v.shape)))
    assert (Op.NEG, (2, 3, 4)) in seen


def test_a_foreign_op_is_rejected():
    with pytest.raises(SpecError, match="never closed"):
        value(B.range_(3, 0))


def test_deep_graphs_need_no_python_stack():
    x = B.const(0, dt.int32)
    for _ in range(100_000):
        x = B.UOp(Op.ADD, (x, B.const(1, dt.int32)))
    assert value(x) == 100_000


def test_results_do_not_alias_inputs():
    got = value(P)
    got[...] = 7
    assert T[0, 0, 0] == 0


def test_inputs_are_validated():
    cases = [
        ({}, "'p0' is missing"),
        ({"p0": T.astype(np.int64)}, "'p0' must have dtype int32"),
        ({"p0": T[0]}, r"'p0' must have shape \(2, 3, 4\)"),
    ]
    for inputs, message in cases:
        with pytest.raises(SpecError, match=message):
            run(P, inputs)
    with pytest.raises(SpecError, match="'n'"):
        run(B.variable("n", 0, 3), {"n": 1.5})
    with pytest.raises(SpecError, match="'b7'"):
        run(B.buffer(3, dt.int8, unique=7), {"b7": np.zeros(4, np.int8)})
