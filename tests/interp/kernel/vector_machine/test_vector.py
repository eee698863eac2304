"""The vectorised machine: which kernels it runs, that it agrees with the per-lane machine on them, and what it leaves to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.pipeline import stages
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import generate_tensor_graph
from uops.fuzz.generate.producers import FEATURES
from uops.interp import run
from uops.interp.kernel.lane_machine.memory import make_flat_memory
from uops.interp.kernel.run import run_kernel
from uops.interp.kernel.structure.blocks import build_kernel_structure
from uops.interp.kernel.vector_machine import evaluate, limits
from uops.interp.kernel.vector_machine.affine import RULES, AffineValue, fits_dtype
from uops.interp.ops.elementwise import KERNELS
from uops.interp.tensor.storage import Array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions as c

I32, F32 = dt.int32, dt.float32
TARGET = LlvmTarget(LlvmTier.FAST)
LOWERED = ("rangeify", "select", "linearize", "plan")


# Affine values


def affine(rng: random.Random, extents: list[int]) -> AffineValue:
    return AffineValue(rng.randrange(-20, 60), tuple(rng.choice((0, 0, 1, 3, 8, -2)) for _ in extents), extents)


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_an_affine_result_is_that_of_the_op_on_arrays(op: Op) -> None:
    rng, found = random.Random(op.value), 0
    for _ in range(300):
        extents = [rng.randrange(1, 5) for _ in range(3)]
        operands = [affine(rng, extents) for _ in range(3 if op is Op.MULACC else 1 if op is Op.NEG else 2)]
        if op in (Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.MUL):
            operands[1] = AffineValue(rng.randrange(1, 9), (), ())
        result = RULES[op](operands, extents)
        if result is None:
            continue
        found += 1
        wanted = np.asarray(KERNELS[op][dt.index](*(a.get_or_compute_broadcastable_values(extents) for a in operands)))
        if isinstance(result, AffineValue):
            assert np.array_equal(
                np.broadcast_to(wanted, extents), np.broadcast_to(result.get_or_compute_broadcastable_values(extents), extents)
            )
            assert (result.lo, result.hi) == (wanted.min(), wanted.max())
        else:
            assert (wanted == result).all()
    assert found > 30


def test_an_affine_value_that_would_wrap_does_not_fit_its_dtype() -> None:
    assert fits_dtype(AffineValue(120, (1,), [8]), dt.int8)
    assert not fits_dtype(AffineValue(120, (1,), [9]), dt.int8)
    assert not fits_dtype(AffineValue(-1, (), ()), dt.uint64)
    assert fits_dtype(AffineValue(1 << 70, (), ()), dt.index)


# Programs of the compiler


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why kernels were left to the per-lane machine."""
    reasons: list[str] = []

    def attempt(*arguments: Any) -> evaluate.VectorOutcome | None:
        try:
            return evaluate.evaluate_or_give_up(*arguments)
        except evaluate.FAULTS as e:
            reasons.append(f"{type(e).__name__}: {e}")
            return None

    monkeypatch.setattr(evaluate, "try_evaluate", attempt)
    return reasons


def p(slot: int, *shape: int, d: dt.DType = F32) -> UOp:
    return b.param(slot, shape, d)


def eighths(*shape: int) -> Array:
    """Floats whose sums and products are exact."""
    n = int(np.prod(shape))
    return (np.arange(n, dtype=np.float32) * 7 % 23 / 8 - 1).reshape(shape)


def programs() -> dict[str, tuple[UOp, dict[str, Any]]]:
    x, y = p(0, 6, 5), p(1, 5, 4)
    data = {"p0": eighths(6, 5), "p1": eighths(5, 4)}
    one = {"p0": data["p0"]}
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    padded = b.pad(x, (1, 1), (8, 7))
    window = b.add(b.shrink(padded, (0, 1), (6, 5)), b.mul(b.shrink(padded, (2, 2), (6, 5)), 3.0))
    places = {"p0": eighths(6, 5), "p1": np.array([4, 0, 5, 5], np.int32)}
    half = p(0, 6, d=dt.float16)
    a = b.buffer(30, F32, unique=1)
    return {
        "gemm": (c.gemm(x, y), data),
        "softmax": (b.div(e, b.reduce(e, Op.ADD, (1,))), one),
        "sum of rows": (b.reduce(x, Op.ADD, (1,)), one),
        "maximum of everything": (b.reduce(x, Op.MAX, (0, 1)), one),
        "product": (b.reduce(b.cast(x, dt.int16), Op.MUL, (0,)), one),
        "transpose and add": (b.add(b.permute(x, (1, 0)), b.reshape(b.flip(x, (True, False)), (5, 6))), one),
        "window over a border": (window, one),
        "gather": (b.at(x, b.cast(p(1, 4, d=I32), dt.index)), places),
        "prefix sum": (c.prefix_sum(p(0, 9)), {"p0": eighths(9)}),
        "scatter add": (c.scatter_add(p(0, 6), p(1, 4, d=I32), p(2, 4)), {**places, "p0": eighths(6), "p2": eighths(4)}),
        "half": (b.reduce(b.mul(half, half), Op.ADD, (0,)), {"p0": eighths(6).astype(np.float16)}),
        "in place": (b.assign(a, b.add(b.mul(a, 2.0), b.flip(a, (True,)))), {"b1": eighths(30)}),
    }


PROGRAMS = programs()


@pytest.mark.parametrize("stage", LOWERED)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_lowered_program_is_vectorised_and_agrees_bit_for_bit(name: str, stage: str, given_up: list[str]) -> None:
    graph, inputs = PROGRAMS[name]
    launch = stages(graph, TARGET)[stage]
    got, wanted = run(launch, inputs).buffers, run(launch, inputs, lanes=True).buffers
    assert given_up == []
    assert got.keys() == wanted.keys()
    for k, v in wanted.items():
        assert v.tobytes() == got[k].tobytes(), k


def test_generated_programs_are_vectorised_and_agree_bit_for_bit(given_up: list[str]) -> None:
    exact = (*dt.INTS, dt.bool_)
    for seed in range(20):
        case = generate_tensor_graph(
            SeededDraw(seed), nodes=12, max_elements=80, dtypes=exact, features=FEATURES - {"shards", "everywhere"}
        )
        for stage in ("rangeify", "linearize"):
            launch = stages(case.graph, TARGET)[stage]
            got, wanted = run(launch, case.inputs).buffers, run(launch, case.inputs, lanes=True).buffers
            assert {k: v.tobytes() for k, v in wanted.items()} == {k: v.tobytes() for k, v in got.items()}, seed
    assert len(given_up) <= 4, given_up  # index values beyond 64 bits


def test_r32_a_sum_of_products_lies_within_the_bound_of_any_order() -> None:
    n, rng = 16, np.random.default_rng(1)
    x, y = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    launch = stages(c.gemm(p(0, n, n), p(1, n, n)), TARGET)["rangeify"]
    exact = x.astype(np.float64) @ y.astype(np.float64)
    bound = n * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)) * (1 + 1e-9)
    for lanes in (False, True):
        (got,) = run(launch, {"p0": x, "p1": y}, lanes=lanes).buffers.values()
        assert (np.abs(got.reshape(n, n) - exact) <= bound).all()


# Kernels with lanes and memory of their own

Kernels = Callable[..., tuple[Array, ...]]


@pytest.fixture
def both() -> Kernels:
    """Run a kernel, which must be vectorised, by both machines; gives the contents of its memories, by slot."""

    def check(root: UOp, *contents: Any) -> tuple[Array, ...]:
        kernel = build_kernel_structure(root, lambda u: u.op is Op.PARAM)
        ours, wanted = ([make_flat_memory(f"p{k}", np.array(a)) for k, a in enumerate(contents)] for _ in range(2))
        found = evaluate.evaluate_or_give_up(kernel, {u: ours[u.arg.slot] for u in kernel.leaves})
        assert all(np.array_equal(s.data, a) for s, a in zip(ours, contents, strict=True)), "nothing changes before the commit"
        found.commit()
        run_kernel(kernel, {u: wanted[u.arg.slot] for u in kernel.leaves}, lanes=True)
        for s, t in zip(ours, wanted, strict=True):
            assert s.data.tobytes() == t.data.tobytes()
            assert np.array_equal(s.read_mask, t.read_mask)
            assert np.array_equal(s.written_mask, t.written_mask)
        return tuple(s.data for s in ours)

    return check


def special(name: str, n: int) -> UOp:
    return UOp(Op.SPECIAL, (b.index(n),), SpecialArg(name))


def local(n: int, d: dt.DType = I32) -> UOp:
    return b.buffer(n, d, addrspace=AddrSpace.LOCAL, unique=1)


def register(d: dt.DType = I32) -> UOp:
    return b.buffer(1, d, addrspace=AddrSpace.REG, unique=2)


def barrier(*deps: UOp) -> UOp:
    return UOp(Op.BARRIER, deps)


def kernel_of(root: UOp) -> Any:
    return build_kernel_structure(root, lambda u: u.op is Op.PARAM)


def numbers(n: int) -> Array:
    return np.arange(1, n + 1, dtype=np.int32)


def zeros(n: int) -> Array:
    return np.zeros(n, np.int32)


def ints(slot: int, n: int) -> UOp:
    return p(slot, n, d=I32)


def test_a_tree_of_sums_in_local_memory(both: Kernels) -> None:
    group, lane, held = special("gidx0", 3), special("lidx0", 8), local(8)
    done = barrier(b.store(b.at(held, lane), b.load(b.at(ints(0, 24), b.add(b.mul(group, 8), lane)))))
    for half in (4, 2, 1):
        now, low = b.after(held, done), b.lt(lane, half)
        other = b.load(b.at(now, b.add(lane, half)), b.const(0, I32), low)
        total = b.add(b.load(b.at(now, lane)), other)
        done = barrier(b.store(b.at(b.after(held, barrier(total)), lane), total))
    out = b.store(b.at(ints(1, 3), group), b.load(b.at(b.after(held, done), b.index(0))), b.lt(lane, 1))
    _, sums = both(b.sink(out, name="k"), numbers(24), zeros(3))
    assert sums.tolist() == numbers(24).reshape(3, 8).sum(1).tolist()


def test_tiles_pass_through_local_memory_between_barriers(both: Kernels) -> None:
    """Per workgroup, a loop over tiles: all lanes put one element each, then each reads all of them."""
    group, lane = b.range_(2, 0, AxisType.GLOBAL), b.range_(4, 1, AxisType.LOCAL)
    tile, k = b.range_(3, 2, AxisType.REDUCE), b.range_(4, 3, AxisType.REDUCE)
    held, total = local(4), register()
    start = b.store(b.at(b.after(total, group, lane), b.index(0)), b.const(0, I32))
    at = b.add(b.mul(group, 12), b.add(b.mul(tile, 4), lane))
    put = b.store(b.at(b.after(held, tile), lane), b.load(b.at(ints(0, 24), at)))
    now = b.at(b.after(total, start, tile, k), b.index(0))
    add = b.end(b.store(now, b.add(b.load(now), b.load(b.at(b.after(held, barrier(put)), k)))), k)
    tiles = b.end(barrier(add), tile)
    out = b.store(b.at(ints(1, 8), b.add(b.mul(group, 4), lane)), b.load(b.at(b.after(total, tiles), b.index(0))))
    _, sums = both(b.sink(b.end(b.end(out, lane), group), name="k"), numbers(24), zeros(8))
    assert sums.tolist() == np.repeat(numbers(24).reshape(2, 12).sum(1), 4).tolist()


def test_a_loop_that_carries_runs_in_order_across_an_axis(both: Kernels) -> None:
    """Running sums of each row, in the argument itself."""
    row, k = b.range_(3, 0, AxisType.GLOBAL), b.range_(4, 1)
    at = b.add(b.mul(row, 5), k)
    held = b.after(ints(0, 15), k)
    step = b.store(b.at(held, b.add(at, 1)), b.add(b.load(b.at(held, at)), b.load(b.at(held, b.add(at, 1)))))
    root = b.sink(b.end(b.end(step, k), row), name="k")
    (sums,) = both(root, numbers(15))
    assert sums.tolist() == numbers(15).reshape(3, 5).cumsum(1).ravel().tolist()


def test_registers_are_private_to_a_loop_that_passes_nothing_on(both: Kernels) -> None:
    i = b.range_(6, 0)
    put = b.store(b.at(b.after(register(), i), b.index(0)), b.load(b.at(ints(0, 6), i)))
    held = b.load(b.at(b.after(register(), put), b.index(0)))
    root = b.sink(b.end(b.store(b.at(ints(1, 6), i), b.mul(held, held)), i), name="k")
    assert evaluate._prepare_program(root, kernel_of(root).leaves, evaluate.VectorizationLevel.EAGER).plan.sequential == frozenset()
    assert both(root, numbers(6), zeros(6))[1].tolist() == [1, 4, 9, 16, 25, 36]


def test_a_histogram_by_atomic_adds(both: Kernels) -> None:
    lane = special("lidx0", 9)
    add = UOp(Op.ATOMICADD, (b.at(ints(1, 4), b.cast(b.load(b.at(ints(0, 9), lane)), dt.index)), b.const(1, I32)))
    where = np.array([0, 3, 3, 1, 0, 3, 3, 1, 1], np.int32)
    assert both(b.sink(add, name="k"), where, zeros(4))[1].tolist() == [2, 3, 0, 4]


def test_a_permutation_that_is_loaded_decides_where_lanes_write(both: Kernels) -> None:
    lane = special("lidx0", 5)
    at = b.cast(b.load(b.at(ints(0, 5), lane)), dt.index)
    root = b.sink(b.store(b.at(ints(1, 5), at), b.cast(lane, I32)), name="k")
    assert both(root, np.array([3, 1, 4, 0, 2], np.int32), zeros(5))[1].tolist() == [3, 1, 4, 0, 2]
    kernel = kernel_of(root)
    twice = {u: make_flat_memory(f"p{u.arg.slot}", np.array([3, 1, 3, 0, 2], np.int32)) for u in kernel.leaves}
    assert evaluate.try_evaluate(kernel, twice) is None


def test_vectors_are_own_axes_beside_those_of_loops(both: Kernels) -> None:
    i = b.range_(3, 0)
    four = b.stack(*(b.add(b.mul(i, 4), k) for k in range(4)))
    loaded = b.load(b.at(ints(0, 12), four))
    reversed_ = b.reshape(b.flip(b.reshape(loaded, (2, 2)), (True, True)), (4,))
    summed = b.add(reversed_, b.expand(b.reduce(loaded, Op.ADD, (0,)), (4,)))
    root = b.sink(b.end(b.store(b.at(ints(1, 12), four), summed), i), name="k")
    rows = numbers(12).reshape(3, 4)
    assert both(root, numbers(12), zeros(12))[1].tolist() == (rows[:, ::-1] + rows.sum(1, keepdims=True)).ravel().tolist()


def test_a_reduce_over_ranges_is_the_value_of_its_kernel() -> None:
    r = b.range_(7, 0, AxisType.REDUCE)
    root = UOp(Op.REDUCE, (b.load(b.at(ints(0, 7), r)), r), b.reduce(ints(0, 7), Op.MAX, (0,)).arg.__class__(Op.MAX))
    kernel = kernel_of(root)
    found = evaluate.try_evaluate(kernel, {u: make_flat_memory("p0", numbers(7)) for u in kernel.leaves})
    assert found is not None
    assert found.value is not None
    assert found.value.shape == ()
    assert found.value == 7


# What is left to the definition


def copied(n: int, bound: int) -> UOp:
    i = b.range_(bound, 0)
    return b.sink(b.end(b.store(b.at(ints(1, n), i), b.load(b.at(ints(0, n), i))), i), name="k")


def test_there_is_no_outcome_of_an_access_out_of_bounds_or_to_what_was_never_written() -> None:
    for bound, ready, fine in ((4, None, True), (5, None, False), (4, np.array([True, True, False, True]), False)):
        kernel = kernel_of(copied(4, bound))
        spaces = {u: make_flat_memory("p", numbers(4), ready if u.arg.slot == 0 else None) for u in kernel.leaves}
        assert (evaluate.try_evaluate(kernel, spaces) is not None) is fine


def test_there_is_no_outcome_where_arguments_share_memory() -> None:
    kernel, whole = kernel_of(copied(4, 4)), numbers(6)
    parts = {u: make_flat_memory("p", whole[u.arg.slot :][:4]) for u in kernel.leaves}
    assert evaluate.try_evaluate(kernel, parts) is None
    one = make_flat_memory("p", numbers(4))
    assert evaluate.try_evaluate(kernel, dict.fromkeys(kernel.leaves, one)) is None


def test_there_is_no_outcome_where_a_bool_byte_is_no_bool() -> None:
    i, x = b.range_(2, 0), p(0, 2, d=dt.bool_)
    root = b.sink(b.end(b.store(b.at(ints(1, 2), i), b.cast(b.load(b.at(x, i)), I32)), i), name="k")
    kernel = kernel_of(root)
    for byte, fine in ((1, True), (2, False)):
        data = (np.array([0, byte], np.uint8).view(bool), zeros(2))
        assert (
            evaluate.try_evaluate(kernel, {u: make_flat_memory("p", data[u.arg.slot]) for u in kernel.leaves}) is not None
        ) is fine


def test_there_is_no_outcome_beyond_the_largest_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of products that is a matrix product needs no array of all products."""
    monkeypatch.setattr(limits, "LARGEST", 500)
    graph, inputs = c.gemm(p(0, 10, 10), p(1, 10, 10)), {"p0": eighths(10, 10), "p1": eighths(10, 10)}
    (call,) = stages(graph, TARGET)["rangeify"].src
    kernel = kernel_of(call.src[0])
    contents = [np.zeros(100, np.float32), *(v.ravel() for v in inputs.values())]
    found = evaluate.evaluate_or_give_up(kernel, {u: make_flat_memory("p", contents[u.arg.slot]) for u in kernel.leaves})
    found.commit()
    assert np.array_equal(contents[0].reshape(10, 10), inputs["p0"] @ inputs["p1"])
    i, j = b.range_(30, 0), b.range_(30, 1)
    product = b.mul(b.load(b.at(ints(1, 30), i)), b.load(b.at(ints(1, 30), j)))
    put = b.store(b.at(ints(0, 900), b.add(b.mul(i, 30), j)), product)
    kernel = kernel_of(b.sink(b.end(b.end(put, j), i), name="k"))
    spaces = {u: make_flat_memory("p", zeros(u.shape[0])) for u in kernel.leaves}
    assert evaluate.try_evaluate(kernel, spaces) is None


@pytest.mark.parametrize("check", [True, False])
def test_a_sum_of_products_is_rounded_before_it_is_used(check: bool) -> None:
    """Once, from float64 (R32): what a sum that is a matrix product is squared as has the dtype of its factors."""
    n, rng = 12, np.random.default_rng(0)
    i, j, k = b.range_(n, 0), b.range_(n, 1), b.range_(n, 2, AxisType.REDUCE)
    left, right = (b.load(b.at(p(s, n * n), b.add(b.mul(x, n), y))) for s, x, y in ((1, i, k), (2, k, j)))
    total = UOp(Op.REDUCE, (b.mul(left, right), k), ReduceArg(Op.ADD))
    put = b.store(b.at(p(0, n * n), b.add(b.mul(i, n), j)), b.mul(total, total))
    kernel = kernel_of(b.sink(b.end(b.end(put, j), i), name="k"))
    a, c, out = (rng.standard_normal(n * n).astype(np.float32) for _ in range(3))
    evaluate.evaluate_or_give_up(kernel, {u: make_flat_memory("p", (out, a, c)[u.arg.slot]) for u in kernel.leaves}, check).commit()
    sums = (a.reshape(n, n).astype(np.float64) @ c.reshape(n, n).astype(np.float64)).astype(np.float32)
    assert np.array_equal(out.reshape(n, n), sums * sums)


def test_what_is_derived_is_asserted_of_every_element() -> None:
    i = b.range_(4, 0)
    value = b.add(b.load(b.at(ints(0, 4), i)), 12345)
    object.__setattr__(value, "_min_max", (12345, 12348))
    kernel = kernel_of(b.sink(b.end(b.store(b.at(ints(1, 4), i), value), i), name="k"))
    for data, check, fine in ((range(4), True, True), ((0, 1, 2, 4), True, False), ((0, 1, 2, 4), False, True)):
        contents = np.array(data, np.int32), zeros(4)
        found = evaluate.try_evaluate(kernel, {u: make_flat_memory("p", contents[u.arg.slot]) for u in kernel.leaves}, check)
        assert (found is not None) is fine


def test_memory_of_several_axes_and_a_symbolic_size_is_read_by_all_its_indices() -> None:
    n, m = b.variable("n", 1, 4), b.variable("n", 1, 4, slot=2)
    p, q, i, j = b.param(0, (12,), dt.int32), b.param(1, (m, 3), dt.int32), b.range_(m, 0), b.range_(3, 1)
    body = b.sink(b.end(b.store(b.at(p, b.add(b.mul(i, 3), j)), b.load(b.at(q, i, j))), i, j), name="k")
    out = b.buffer(12, dt.int32, unique=1)
    graph = b.after(out, b.call(body, out, b.param(0, (n, 3), dt.int32), n, written=(0,)))
    found = run(graph, {"p0": np.arange(9, dtype=np.int32).reshape(3, 3), "n": 3, "b1": np.zeros(12, np.int32)})
    assert found.values[0].tolist() == [*range(9), 0, 0, 0]
