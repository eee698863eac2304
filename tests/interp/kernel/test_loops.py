"""Loops, values, gates and Ifs of kernels in one lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError, Unsound, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg, SourceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

I32, F32 = dt.int32, dt.float32
Agree = Callable[..., Result]
TYPES = [t for t in AxisType if t is not AxisType.PLACEHOLDER]


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


def zeros(n: int, d: Any = np.int32) -> Any:
    return np.zeros(n, d)


def reg(unique: int = 1, n: int = 1, d: dt.DType = I32) -> UOp:
    return b.buffer(n, d, addrspace=AddrSpace.REG, unique=unique)


def reduce_over(value: UOp, op: Op, *ranges: UOp) -> UOp:
    return UOp(Op.REDUCE, (value, *ranges), ReduceArg(op))


def kernel(*effects: UOp) -> UOp:
    return b.sink(*effects, name="k")


# Ranges


@pytest.mark.parametrize("kind", TYPES)
def test_a_range_of_every_type_runs_each_iteration_once(kind: AxisType, agree: Agree) -> None:
    i = b.range_(5, 1, kind)
    root = kernel(b.end(b.store(b.at(p(1, 5), i), b.mul(b.load(b.at(p(0, 5), i)), 3)), i))
    found = agree(root, {"p0": i32(1, 2, 3, 4, 5), "p1": zeros(5)})
    assert found.buffers["p1"].tolist() == [3, 6, 9, 12, 15]
    assert "p0" not in found.buffers


@pytest.mark.parametrize("bound", [0, -3])
def test_a_bound_that_is_not_positive_runs_nothing(bound: int, agree: Agree) -> None:
    i = b.range_(bound, 1)
    root = kernel(b.end(b.store(b.at(p(0, 2), i), b.const(1, I32)), i))
    assert agree(root, {"p0": zeros(2)}).buffers == {}


def test_a_triangular_loop_runs_as_far_as_its_outer_range_says(agree: Agree) -> None:
    i = b.range_(4, 1)
    j = b.range_(i, 2)
    at = b.add(b.mul(i, 4), j)
    root = kernel(b.end(b.end(b.store(b.at(p(0, 16), at), b.cast(b.add(at, 1), I32)), j), i))
    found = agree(root, {"p0": zeros(16)}).buffers["p0"].reshape(4, 4)
    assert np.array_equal(found, np.tril(np.arange(1, 17).reshape(4, 4), -1))


def test_a_bound_may_be_a_variable(agree: Agree) -> None:
    n = b.variable("n", 0, 6)
    i = b.range_(n, 1)
    root = kernel(b.end(b.store(b.at(p(0, 6), i), b.const(1, I32)), i))
    for k in (1, 3, 6):
        assert agree(root, {"p0": zeros(6), "n": k}).buffers["p0"].sum() == k


def test_a_bound_may_be_loaded(agree: Agree) -> None:
    i = b.range_(b.cast(b.load(b.at(p(0, 1), 0)), dt.index), 1)
    root = kernel(b.end(b.store(b.at(p(1, 6), i), b.const(1, I32)), i))
    assert agree(root, {"p0": i32(4), "p1": zeros(6)}).buffers["p1"].sum() == 4


def test_a_range_of_a_machine_integer_counts_in_it(agree: Agree) -> None:
    i = UOp(Op.RANGE, (b.const(4, I32),), b.range_(4, 1).arg)
    root = kernel(b.end(b.store(b.at(p(0, 4), i), b.mul(i, i)), i))
    assert agree(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 1, 4, 9]


@pytest.mark.parametrize("kind", [AxisType.LOOP, AxisType.REDUCE])
def test_ordered_loops_pass_values_on_through_memory(kind: AxisType, agree: Agree) -> None:
    i = b.range_(6, 1, kind)
    out = p(0, 7)
    step = b.store(b.at(out, b.add(i, 1)), b.add(b.load(b.at(out, i)), 1))
    assert agree(kernel(b.end(step, i)), {"p0": zeros(7)}).buffers["p0"].tolist() == list(range(7))


def test_an_effect_that_does_not_depend_on_the_range_runs_once(agree: Agree) -> None:
    i = b.range_(6, 1, AxisType.LOOP)
    add = UOp(Op.ATOMICADD, (b.at(p(0, 1), 0), b.const(1, I32)))
    assert agree(kernel(b.end(add, i)), {"p0": zeros(1)}).buffers["p0"].tolist() == [1]
    inside = UOp(Op.ATOMICADD, (b.at(b.after(p(0, 1), i), 0), b.const(1, I32)))
    assert agree(kernel(b.end(inside, i)), {"p0": zeros(1)}).buffers["p0"].tolist() == [6]


# Reduce


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("op", "expected"), [(Op.ADD, 10), (Op.MUL, 24), (Op.MAX, 4)])
def test_a_reduce_folds_all_iterations(kind: AxisType, op: Op, expected: int, agree: Agree) -> None:
    r = b.range_(4, 1, kind)
    total = reduce_over(b.load(b.at(p(0, 4), r)), op, r)
    root = kernel(b.store(b.at(p(1, 1), 0), total))
    assert agree(root, {"p0": i32(1, 2, 3, 4), "p1": zeros(1)}).buffers["p1"].tolist() == [expected]


def test_a_reduce_over_several_ranges_is_one_multiset(agree: Agree) -> None:
    i, j, k = b.range_(2, 1), b.range_(3, 2, AxisType.REDUCE), b.range_(2, 3, AxisType.UNROLL)
    value = b.load(b.at(p(0, 12), b.add(b.add(b.mul(i, 6), b.mul(j, 2)), k)))
    root = kernel(b.end(b.store(b.at(p(1, 2), i), reduce_over(value, Op.ADD, j, k)), i))
    found = agree(root, {"p0": np.arange(12, dtype=np.int32), "p1": zeros(2)})
    assert found.buffers["p1"].tolist() == [15, 51]


@pytest.mark.parametrize(
    ("op", "d", "identity"), [(Op.ADD, I32, 0), (Op.MUL, F32, 1.0), (Op.MAX, I32, -(2**31)), (Op.MAX, F32, -np.inf)]
)
def test_a_reduce_of_no_iterations_is_the_identity(op: Op, d: dt.DType, identity: float, agree: Agree) -> None:
    r = b.range_(b.variable("n", 0, 3), 1, AxisType.REDUCE)
    root = kernel(b.store(b.at(p(1, 1, d), 0), reduce_over(b.load(b.at(p(0, 3, d), r)), op, r)))
    kind = np.dtype(d.name)
    assert agree(root, {"p0": np.ones(3, kind), "p1": np.ones(1, kind), "n": 0}).buffers["p1"].tolist() == [identity]


def test_a_reduce_counts_a_value_that_its_range_does_not_change(agree: Agree) -> None:
    r = b.range_(5, 1, AxisType.REDUCE)
    root = kernel(b.store(b.at(p(1, 1), 0), reduce_over(b.load(b.at(p(0, 1), 0)), Op.ADD, r)))
    assert agree(root, {"p0": i32(7), "p1": zeros(1)}).buffers["p1"].tolist() == [35]


def test_the_value_of_a_reduce_is_used_by_another(agree: Agree) -> None:
    i, j = b.range_(3, 1, AxisType.REDUCE), b.range_(3, 2, AxisType.REDUCE)
    x = b.load(b.at(p(0, 3), i))
    most = reduce_over(x, Op.MAX, i)
    total = reduce_over(b.sub(b.load(b.at(p(0, 3), j)), most), Op.ADD, j)
    root = kernel(b.store(b.at(p(1, 1), 0), total))
    assert agree(root, {"p0": i32(4, 9, 2), "p1": zeros(1)}).buffers["p1"].tolist() == [-12]


def test_float_sums_do_not_depend_on_the_schedule(agree: Agree) -> None:
    r = b.range_(50, 1, AxisType.UNROLL)
    root = kernel(b.store(b.at(p(1, 1, F32), 0), reduce_over(b.load(b.at(p(0, 50, F32), r)), Op.ADD, r)))
    values = (np.random.default_rng(1).normal(size=50) * 10.0 ** np.arange(50).clip(0, 20)).astype(np.float32)
    inputs = {"p0": values, "p1": zeros(1, np.float32)}
    found = {run(root, inputs, schedule=s).buffers["p1"].tobytes() for s in range(20)}
    assert len(found) == 1


# Registers


def test_an_accumulator_in_a_register(agree: Agree) -> None:
    i, r = b.range_(3, 1), b.range_(4, 2, AxisType.REDUCE)
    acc = reg()
    init = b.store(b.at(b.after(acc, i), 0), b.const(0, I32))
    place = b.at(b.after(acc, init, r), 0)
    end = b.end(b.store(place, b.add(b.load(place), b.load(b.at(p(0, 12), b.add(b.mul(i, 4), r))))), r)
    root = kernel(b.end(b.store(b.at(p(1, 3), i), b.load(b.at(b.after(acc, end), 0))), i))
    found = agree(root, {"p0": np.arange(12, dtype=np.int32), "p1": zeros(3)})
    assert found.buffers["p1"].tolist() == [6, 22, 38]


def test_registers_are_no_result(agree: Agree) -> None:
    done = b.store(b.at(reg(7), 0), b.const(1, I32))
    root = kernel(b.store(b.at(p(0, 1), 0), b.load(b.at(b.after(reg(7), done), 0))))
    assert set(agree(root, {"p0": zeros(1)}).buffers) == {"p0"}


# Gates and Ifs


def test_a_gate_keeps_an_address_from_being_touched(agree: Agree) -> None:
    i = b.range_(6, 1)
    inside = b.lt(i, 4)
    value = b.load(b.at(p(0, 4), i), b.const(-1, I32), inside)
    root = kernel(b.end(b.store(b.at(p(1, 6), i), value), i))
    assert agree(root, {"p0": i32(1, 2, 3, 4), "p1": zeros(6)}).buffers["p1"].tolist() == [1, 2, 3, 4, -1, -1]


@pytest.mark.parametrize("n", [4, 3])
def test_a_place_of_an_outer_loop_under_a_gate_of_an_inner_one(agree: Agree, n: int) -> None:
    """FOUND 063: loops of equal extents took each other's places."""
    i, k = b.range_(n, 0), b.range_(4, 1)
    place = b.mod(b.add(i, 1), n)
    value = b.load(b.at(p(0, n), place), b.const(-1, I32), b.lt(k, 2))
    root = kernel(b.end(b.end(b.store(b.at(p(1, 4 * n), b.add(b.mul(k, n), i)), value), k), i))
    row = [*range(2, n + 1), 1]
    assert agree(root, {"p0": i32(*range(1, n + 1)), "p1": zeros(4 * n)}).buffers["p1"].tolist() == [*row, *row, *[-1] * 2 * n]
    once = kernel(b.end(b.end(b.store(b.at(p(0, n), place), b.cast(b.add(i, 5), I32), b.eq(k, 2)), k), i))
    assert agree(once, {"p0": zeros(n)}).buffers["p0"].tolist() == [n + 4, *range(5, n + 4)]


def test_a_gated_store_leaves_the_rest(agree: Agree) -> None:
    i = b.range_(6, 1)
    root = kernel(b.end(b.store(b.at(p(0, 3), i), b.const(5, I32), b.and_(b.gt(i, 0), b.lt(i, 3))), i))
    assert agree(root, {"p0": i32(1, 2, 3)}).buffers["p0"].tolist() == [1, 5, 5]


def test_an_if_in_a_graph(agree: Agree) -> None:
    i = b.range_(4, 1)
    x = b.load(b.at(p(0, 4), i))
    condition = UOp(Op.IF, (b.lt(x, 3),))
    effect = b.store(b.at(b.after(p(1, 4), condition), i), b.mul(x, 10))
    root = kernel(b.end(b.group(effect, UOp(Op.ENDIF, (condition,))), i))
    assert agree(root, {"p0": i32(1, 5, 2, 9), "p1": zeros(4)}).buffers["p1"].tolist() == [10, 0, 20, 0]


def test_an_if_protects_an_address_out_of_bounds(agree: Agree) -> None:
    i = b.range_(6, 1)
    condition = UOp(Op.IF, (b.lt(i, 4),))
    x = b.load(b.at(b.after(p(0, 4), condition), i))
    root = kernel(b.end(b.store(b.at(p(1, 6), i), x), i))
    assert agree(root, {"p0": i32(1, 2, 3, 4), "p1": zeros(6)}).buffers["p1"].tolist() == [1, 2, 3, 4, 0, 0]


def listed(*roots: UOp) -> UOp:
    return UOp(Op.LINEAR, roots)


def test_an_if_in_a_list(agree: Agree) -> None:
    i = b.range_(4, 1)
    source, target = b.at(p(0, 4), i), b.at(p(1, 4), i)
    x = b.load(source)
    gate = b.lt(x, 3)
    condition = UOp(Op.IF, (gate,))
    again = b.range_(2, 2)
    twice = b.store(b.at(b.after(p(2, 8), again), b.add(b.mul(i, 2), again)), x)
    end = b.end(twice, again)
    effect = b.store(target, b.mul(x, 10))
    root = listed(
        p(0, 4), p(1, 4), p(2, 8), i, source, x, gate, target, condition, b.mul(x, 10), effect, again, b.mul(i, 2),
        b.add(b.mul(i, 2), again), twice.src[0].src[0], twice.src[0], twice, end, UOp(Op.ENDIF, (condition,)), b.end(effect, i),
    )  # fmt: skip
    found = agree(root, {"p0": i32(1, 5, 2, 9), "p1": zeros(4), "p2": zeros(8)})
    assert found.buffers["p1"].tolist() == [10, 0, 20, 0]
    assert found.buffers["p2"].tolist() == [1, 1, 0, 0, 2, 2, 0, 0]


def test_nested_ifs_in_a_list(agree: Agree) -> None:
    i = b.range_(4, 1)
    outer_gate, inner_gate = b.lt(i, 3), b.gt(i, 0)
    outer, inner = UOp(Op.IF, (outer_gate,)), UOp(Op.IF, (inner_gate,))
    place = b.at(p(0, 4), i)
    effect = b.store(place, b.const(1, I32))
    root = listed(
        p(0, 4), i, outer_gate, inner_gate, place, outer, inner, effect,
        UOp(Op.ENDIF, (inner,)), UOp(Op.ENDIF, (outer,)), b.end(effect, i),
    )  # fmt: skip
    assert agree(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 1, 1, 0]


def test_a_value_of_an_if_that_did_not_run_is_no_value() -> None:
    gate = b.lt(b.load(b.at(p(0, 1), 0)), 0)
    condition = UOp(Op.IF, (gate,))
    x = b.load(b.at(b.after(p(0, 1), condition), 0))
    use = b.store(b.at(p(1, 1), 0), x)
    items = (p(0, 1), p(1, 1), gate.src[0].src[0], gate.src[0], gate, condition, x.src[0].src[0], x.src[0], x)
    root = listed(*items, UOp(Op.ENDIF, (condition,)), use.src[0], use)
    with pytest.raises(SpecError, match="If"):
        run(root, {"p0": i32(1), "p1": zeros(1)})


# Values


def test_programs_run_their_list(agree: Agree) -> None:
    place = b.at(p(0, 1), 0)
    effect = b.store(place, b.const(3, I32))
    body = listed(p(0, 1), place, effect)
    root = UOp(Op.PROGRAM, (body, UOp(Op.SOURCE, (), SourceArg("k")), b.binary(b"x")))
    assert agree(root, {"p0": zeros(1)}).buffers["p0"].tolist() == [3]


def test_every_value_is_checked_against_what_the_specification_derives(monkeypatch: pytest.MonkeyPatch) -> None:
    from uops.interp.ops.elementwise import KERNELS

    i = b.range_(4, 1)
    root = kernel(b.end(b.store(b.at(p(0, 4), i), b.cast(b.add(i, 1), I32)), i))
    monkeypatch.setitem(KERNELS[Op.ADD], dt.index, lambda x, y: x + y + 100)
    with pytest.raises(Unsound, match="min_max of ADD"):
        run(root, {"p0": zeros(4)}, lanes=True)


def test_an_op_without_a_meaning_in_kernels_is_refused() -> None:
    with pytest.raises(SpecError, match="TUPLE has no meaning in a kernel"):
        run(kernel(b.store(b.at(p(0, 1), 0), b.get(b.tuple_(b.const(1, I32)), 0))), {"p0": zeros(1)})


def nest(depth: int) -> UOp:
    """That many loops of one iteration around a Store."""
    ranges = [b.range_(1, k) for k in range(depth)]
    effect = b.store(b.at(b.after(p(0, 1), *ranges), 0), b.const(1, I32))
    for r in reversed(ranges):
        effect = b.end(effect, r)
    return kernel(effect)


def test_a_deep_nest_of_loops_runs() -> None:
    assert run(nest(200), {"p0": zeros(1)}, lanes=True).buffers["p0"].tolist() == [1]


def test_a_nest_that_is_too_deep_is_told() -> None:
    with pytest.raises(Unsupported, match="loops nested deeper"):
        run(nest(600), {"p0": zeros(1)}, lanes=True)
