"""Wmma as loops: kernels and schedules of tensor cores on targets without one, against the interpreter and its allowed error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_judge import CONFIG, barrier, count, judge, kernel, local, register, special, target
from schedules import DescribedTarget

from uops.compiler.config import Config
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.pipeline import lower
from uops.compiler.runtime.program import Compiled
from uops.compiler.target import PLAIN_OPS, MachineModel, Target
from uops.interp import run
from uops.interp.ops.wmma import allowed_error
from uops.interp.tensor.storage import NUMPY
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.wmma import (
    DESCRIPTORS,
    OPERANDS,
    Descriptor,
    TableLaneMap,
    find_descriptor,
    validate_and_register_descriptor,
)


def wmma_arg(d: Descriptor) -> WmmaArg:
    return WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads)


def named(name: str, dtype_in: dt.DType | None = None) -> Descriptor:
    return next(d for d in DESCRIPTORS if name in d.name and (dtype_in is None or d.dtype_in is dtype_in))


F16 = named("m16n8k8.row.col.f32.f16")
INT8 = named("m8n8k16.row.col.s32.s8")
COPIES = named("v_wmma_f32_16x16x16_f16")
AMX = [d for d in DESCRIPTORS if d.threads == 1]
WARPS = [d for d in DESCRIPTORS if d.threads > 1]
#: The first descriptor of each vendor with several lanes, and one whose result is a small float.
SOME = [
    named("m16n8k16.row.col.f32.bf16"),
    named("m16n8k8.row.col.f16.f16"),
    COPIES,
    named("v_mfma_i32_16x16x32_i8"),
    named("simdgroup"),
]


def ident(d: Descriptor) -> str:
    return f"{d.name}-{d.dtype_in}"


def dtype_of(d: Descriptor, operand: str) -> dt.DType:
    return d.dtype_out if operand == "C" else d.dtype_in


def places(slot: int, d: Descriptor, operand: str, lane: UOp, warps: int) -> list[UOp]:
    """This lane's elements of a fragment in memory, which holds them lane by lane."""
    n = d.map(operand).elements
    memory = b.param(slot, (n * d.threads * warps,), dtype_of(d, operand))
    return [b.at(memory, b.add(b.mul(lane, n), e)) for e in range(n)]


def fragment(slot: int, d: Descriptor, operand: str, lane: UOp, warps: int = 1) -> UOp:
    return b.stack(*map(b.load, places(slot, d, operand, lane, warps)))


def store_product(product: UOp, d: Descriptor, lane: UOp, warps: int = 1) -> UOp:
    """Store this lane's fragment to p3, by way of registers (R142: scalars and fragments)."""
    n = d.c.elements
    done = b.store(b.at(register(n, d.dtype_out, 50), b.stack(*map(b.index, range(n)))), product)
    results = b.after(register(n, d.dtype_out, 50), done)
    return b.group(*[b.store(at, b.load(b.at(results, e))) for e, at in enumerate(places(3, d, "C", lane, warps))])


def product_of_lane(d: Descriptor, lane: UOp, warps: int = 1) -> UOp:
    operands = [fragment(k, d, o, lane, warps) for k, o in enumerate(OPERANDS)]
    return store_product(UOp(Op.WMMA, tuple(operands), wmma_arg(d)), d, lane, warps)


def draw_matrices(d: Descriptor, warps: int = 1, seed: int = 0) -> list[list[Any]]:
    """The fragments of random matrices, by operand and warp. Integers are of the whole range, so that sums wrap."""
    rng = np.random.default_rng(seed)
    drawn = []
    for o in OPERANDS:
        t = dtype_of(d, o)
        drawn.append([])
        for _ in range(warps):
            wide = rng.standard_normal(d.shape(o)) if t.is_float else rng.integers(t.min, t.max, d.shape(o), endpoint=True)
            m, matrix = d.map(o), wide.astype(NUMPY[t])
            drawn[-1].append(np.array([[matrix[m.place(x, e)] for e in range(m.elements)] for x in range(m.lanes)], NUMPY[t]))
    return drawn


def memory_of(fragments: Sequence[Sequence[Any]]) -> dict[str, Any]:
    memory = {f"p{k}": np.concatenate(parts).reshape(-1) for k, parts in enumerate(fragments)}
    return {**memory, "p3": np.zeros_like(memory["p2"])}


def judge_product(d: Descriptor, root: UOp, warps: int, name: str, config: Config = CONFIG) -> None:
    """Check that the target's p3 is within the allowed error of the interpreter's; integers to the bit."""
    drawn = draw_matrices(d, warps)
    given = memory_of(drawn)
    expected = run(root, dict(given)).buffers["p3"]
    bound = np.concatenate([allowed_error(d, *parts) for parts in zip(*drawn)]).reshape(-1)
    got = Compiled(root, target(name), config, Dialect.SCHEDULED)(dict(given)).buffers["p3"]
    assert expected.any() and got.dtype == expected.dtype
    distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    assert (distance <= bound).all() if d.dtype_out.is_float else (got == expected).all()


# Every instruction


@pytest.mark.parametrize("d", WARPS, ids=ident)
def test_two_warps_multiply_their_fragments_on_c(d: Descriptor) -> None:
    judge_product(d, kernel(product_of_lane(d, special("lidx0", 2 * d.threads), 2)), 2, "c")


@pytest.mark.parametrize("d", [d for d in WARPS if d.vendor == "NVIDIA"], ids=ident)
def test_two_warps_multiply_their_fragments_by_mma_sync_on_cuda_s_shim(d: Descriptor) -> None:
    root = kernel(product_of_lane(d, special("lidx0", 2 * d.threads), 2))
    judge_product(d, root, 2, "cuda:shim")
    (text,) = [u.arg.code for u in toposort(lower(root, target("cuda:shim"), dialect=Dialect.SCHEDULED)) if u.op is Op.SOURCE]
    assert f"{d.name} {{" in text


@pytest.mark.parametrize("d", SOME, ids=ident)
def test_a_warp_multiplies_its_fragments_on_llvm(d: Descriptor) -> None:
    judge_product(d, kernel(product_of_lane(d, special("lidx0", d.threads))), 1, "llvm")


@pytest.mark.parametrize("d", [F16, INT8], ids=ident)
def test_two_warps_multiply_their_fragments_on_opencl(d: Descriptor) -> None:
    """There are workgroups, so the lanes stay lanes, and meet at Barriers."""
    judge_product(d, kernel(product_of_lane(d, special("lidx0", 2 * d.threads), 2)), 2, "opencl")


@pytest.mark.parametrize("d", AMX[:1], ids=ident)
def test_an_instruction_of_one_lane_needs_no_barrier(d: Descriptor) -> None:
    root, plain = kernel(product_of_lane(d, b.index(0))), Config(reuse=False, verify=False)
    linear = lower(root, target("c"), "linearize", plain, dialect=Dialect.SCHEDULED)
    assert all(count(op, linear) == 0 for op in (Op.WMMA, Op.BARRIER, Op.SPECIAL))
    assert {u.arg.addrspace.value for u in linear.src[0].body.src if u.op is Op.BUFFER} == {"reg"}
    judge_product(d, root, 1, "c", plain)


@pytest.mark.parametrize("d", [SOME[0], SOME[1], COPIES, INT8, named("v_mfma_f64")], ids=ident)
def test_the_lowered_kernel_is_one_of_workgroups_without_races(d: Descriptor) -> None:
    """The lane machine runs it, checks every access, and gives what it gave with the Wmma; copies are stored once."""
    root = kernel(product_of_lane(d, special("lidx0", d.threads)))
    linear = lower(root, NoTensorCores(), "linearize", CONFIG, dialect=Dialect.SCHEDULED)
    assert count(Op.WMMA, linear) == 0 and count(Op.BARRIER, linear) == 2
    given = memory_of(draw_matrices(d))
    expected = run(root, dict(given)).buffers["p3"].astype(np.float64)
    bound = allowed_error(d, *(parts[0] for parts in draw_matrices(d))).reshape(-1)
    for schedule in (None, 1):
        got = run(linear, dict(given), lanes=True, schedule=schedule).buffers["p3"]
        assert (np.abs(got.astype(np.float64) - expected) <= bound).all()


class NoTensorCores(DescribedTarget):
    """A target with workgroups and no Wmma, whose instruction lists the interpreter reads."""

    name, key = "no tensor cores", "no tensor cores"

    def __init__(self) -> None:
        self.dtypes = target("c").dtypes
        self.ops = target("c").ops | {Op.BARRIER, Op.SPECIAL}


# The lanes of a warp (R125)


@pytest.mark.parametrize("order", ["lidx", "ranges", "mixed"])
def test_a_warp_is_consecutive_lanes_whatever_numbers_them(order: str) -> None:
    """Of Specials the first name varies fastest; WARP ranges come before the innermost of the others, and both before Specials."""
    d, warps = F16, 2
    if order == "lidx":
        x, y = special("lidx0", 8), special("lidx1", 8)
        root = kernel(product_of_lane(d, b.add(x, b.mul(y, 8)), warps))
    elif order == "ranges":
        warp, outer, inner = b.range_(16, 1, AxisType.WARP), b.range_(2, 2, AxisType.LOCAL), b.range_(2, 3, AxisType.LOCAL)
        lane = b.add(warp, b.add(b.mul(inner, 16), b.mul(outer, 32)))
        root = kernel(b.end(b.end(b.end(product_of_lane(d, lane, warps), inner), outer), warp))
    else:
        x, r = special("lidx0", 4), b.range_(16, 1, AxisType.LOCAL)
        root = kernel(b.end(product_of_lane(d, b.add(r, b.mul(x, 16)), warps), r))
    judge_product(d, root, warps, "c")


@pytest.mark.parametrize("n", [1, 3])
def test_the_number_of_warps_may_be_a_variable(n: int) -> None:
    d, size = INT8, b.variable("n", 1, 3)
    root = kernel(product_of_lane(d, special("lidx0", b.mul(size, d.threads)), 3))
    judge(root, {**memory_of(draw_matrices(d, 3)), "n": n})


def test_no_lanes_multiply_nothing() -> None:
    judge(kernel(product_of_lane(INT8, special("lidx0", 0), 1)), memory_of(draw_matrices(INT8)))


def test_lanes_that_fill_no_warp_are_refused_R93() -> None:
    with pytest.raises(CompileError, match=r"R93 \(TC\) at .*expected warps of 32 lanes, got 33 lanes"):
        Compiled(kernel(product_of_lane(INT8, special("lidx0", 33), 2)), target("c"), CONFIG, Dialect.SCHEDULED)


# Wmma among other instructions


def sum_of_steps(d: Descriptor, lane: UOp, steps: UOp | int) -> UOp:
    """C plus the product of A and B, `steps` times, in an accumulator of registers."""
    n = d.c.elements
    acc, k = register(n, d.dtype_out, 51), b.range_(steps, 9, AxisType.REDUCE)
    started = [b.store(b.at(acc, e), b.load(at)) for e, at in enumerate(places(2, d, "C", lane, 1))]
    place = b.at(b.after(acc, *started, k), b.stack(*map(b.index, range(n))))
    product = UOp(Op.WMMA, (fragment(0, d, "A", lane), fragment(1, d, "B", lane), b.load(place)), wmma_arg(d))
    done = b.after(acc, b.end(b.store(place, product), k))
    return b.group(*[b.store(at, b.load(b.at(done, e))) for e, at in enumerate(places(3, d, "C", lane, 1))])


def whole_numbers(d: Descriptor) -> dict[str, Any]:
    """Fragments of small whole numbers, whose sums are exact."""
    rng = np.random.default_rng(3)
    memory = {
        f"p{k}": rng.integers(-3, 4, d.map(o).elements * d.threads).astype(NUMPY[dtype_of(d, o)]) for k, o in enumerate(OPERANDS)
    }
    return {**memory, "p3": np.zeros_like(memory["p2"])}


@pytest.mark.parametrize("d", [INT8, F16, named("m16n8k8.row.col.f16.f16")], ids=ident)
def test_a_wmma_in_a_loop_adds_up(d: Descriptor) -> None:
    judge(kernel(sum_of_steps(d, special("lidx0", d.threads), 3)), whole_numbers(d))
    steps = b.cast(b.load(b.at(b.param(4, (1,), dt.int32), 0)), dt.index)
    judge(kernel(sum_of_steps(d, special("lidx0", d.threads), steps)), {**whole_numbers(d), "p4": np.full(1, 2, np.int32)})


def test_an_accumulator_whose_elements_are_one_number_is_a_whole_fragment() -> None:
    d, lane = INT8, special("lidx0", INT8.threads)
    a, x = (fragment(k, d, OPERANDS[k], lane) for k in range(2))
    n = d.c.elements
    first = b.after(register(n, dt.int32, 60), b.store(b.at(register(n, dt.int32, 60), 0), b.load(places(2, d, "C", lane, 1)[0])))
    same = b.load(b.at(first, b.stack(*[b.index(0)] * n)))  # one address, loaded once
    judge(kernel(store_product(UOp(Op.WMMA, (a, x, same), wmma_arg(d)), d, lane)), whole_numbers(d))


def test_the_product_of_one_wmma_is_the_accumulator_of_the_next() -> None:
    d, lane = INT8, special("lidx0", INT8.threads)
    a, x, c = (fragment(k, d, o, lane) for k, o in enumerate(OPERANDS))
    first = UOp(Op.WMMA, (a, x, c), wmma_arg(d))
    second = UOp(Op.WMMA, (a, x, first), wmma_arg(d))
    judge(kernel(store_product(second, d, lane)), whole_numbers(d))


def test_a_wmma_takes_what_lanes_exchanged_in_local_memory() -> None:
    """Each lane's fragment of A is its opposite's, by LOCAL memory and a Barrier of the kernel's own."""
    d, n = INT8, INT8.a.elements
    lane, shared = special("lidx0", d.threads), local(n * INT8.threads, dt.int8)
    puts = [b.store(b.at(shared, b.add(b.mul(lane, n), e)), b.load(at)) for e, at in enumerate(places(0, d, "A", lane, 1))]
    there = b.after(shared, barrier(*puts))
    a = b.stack(*[b.load(b.at(there, b.add(b.mul(b.sub(d.threads - 1, lane), n), e))) for e in range(n)])
    product = UOp(Op.WMMA, (a, fragment(1, d, "B", lane), fragment(2, d, "C", lane)), wmma_arg(d))
    judge(kernel(store_product(product, d, lane)), whole_numbers(d))


def test_a_wmma_that_not_all_lanes_reach_is_refused_R93() -> None:
    lane = special("lidx0", 64)
    r = b.range_(b.add(b.idiv(lane, 32), 1), 9)
    place = b.at(b.after(register(INT8.c.elements, dt.int32, 51), r), b.stack(*map(b.index, range(INT8.c.elements))))
    operands = (*(fragment(k, INT8, o, lane, 2) for k, o in enumerate("AB")), b.load(place))
    product = UOp(Op.WMMA, operands, wmma_arg(INT8))
    root = kernel(b.end(b.store(place, product), r))
    for name in ("c", "opencl"):
        with pytest.raises(CompileError, match=r"R93 \(TC\).*a Wmma stands in this block, so its bound must be the same"):
            Compiled(root, target(name), CONFIG, Dialect.SCHEDULED)


# Lane maps without a formula, and arguments without a meaning


def test_a_lane_map_that_is_a_table_is_followed() -> None:
    """The fragments of INT8, and one whose lanes hold copies, with the lanes in another order."""
    for model in (INT8, COPIES):
        maps = {o: table_of(model, o) for o in OPERANDS}
        d = dataclasses.replace(model, name=f"table of {model.name}", a=maps["A"], b=maps["B"], c=maps["C"])
        validate_and_register_descriptor(d)
        judge_product(d, kernel(product_of_lane(d, special("lidx0", 64), 2)), 2, "c")


def table_of(d: Descriptor, operand: str) -> TableLaneMap:
    m = d.map(operand)
    return TableLaneMap(tuple(tuple(m.place(t * 5 % m.lanes, e) for e in range(m.elements)) for t in range(m.lanes)))


def test_a_wmma_without_a_descriptor_is_refused_R118() -> None:
    arg = WmmaArg("nobody", (1, 1, 1), dt.int32, dt.int32, "GPU", 1)
    values = tuple(b.stack(b.const(k, dt.int32)) for k in (2, 3, 4))
    done = b.store(b.at(register(1), b.stack(b.index(0))), UOp(Op.WMMA, values, arg))
    root = kernel(b.store(b.at(b.param(0, (1,), dt.int32), 0), b.load(b.at(b.after(register(1), done), 0))))
    assert find_descriptor(arg) is None
    with pytest.raises(CompileError, match=r"R118 \(Wmma's fragments\).*no descriptor says what the lanes hold"):
        Compiled(root, target("c"), CONFIG, Dialect.SCHEDULED)


# Schedules


class WithTensorCores:
    """A target of the CPU for schedules of a machine with tensor cores."""

    def __init__(self, base: Target, *descriptors: Descriptor) -> None:
        self.base = base
        self.machine = MachineModel(
            vector_bytes=16, workgroup=256, local_memory=48 << 10, tensor_cores=tuple(map(wmma_arg, descriptors))
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


def gemm(m: int, k: int, n: int, d: Descriptor) -> UOp:
    x, y = b.param(0, (m, k), d.dtype_in), b.param(1, (k, n), d.dtype_in)
    left, right = b.reshape(b.cast(x, d.dtype_out), (m, k, 1)), b.reshape(b.cast(y, d.dtype_out), (1, k, n))
    return b.reshape(b.reduce(b.mul(left, right), Op.ADD, (1,)), (m, n))


@pytest.mark.parametrize("name", ["c", "llvm"])
@pytest.mark.parametrize("d", [*SOME, F16, INT8], ids=ident)
def test_a_product_that_is_scheduled_for_tensor_cores_runs_on_the_cpu(d: Descriptor, name: str) -> None:
    n, m, k = d.dims
    graph, on = gemm(2 * m, 2 * k, 2 * n, d), WithTensorCores(target(name), d)
    assert 0 < count(Op.WMMA, optimize(rangeify(callify(graph), on.machine), on.machine))
    rng = np.random.default_rng(7)
    given = {f"p{s}": rng.integers(-2, 3, x).astype(NUMPY[d.dtype_in]) for s, x in enumerate(((2 * m, 2 * k), (2 * k, 2 * n)))}
    expected = run(graph, given).values[0]
    got = Compiled(graph, on, CONFIG)(given).values[0]
    np.testing.assert_array_equal(got, expected)
    assert expected.any()


class WithInstructions(WithTensorCores):
    """A target of workgroups that has the instructions of some descriptors."""

    ops = PLAIN_OPS | {Op.BARRIER, Op.WMMA}

    def has_tensor_core(self, arg: WmmaArg) -> bool:
        return arg in self.machine.tensor_cores

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        return True


def test_a_wmma_stays_where_the_target_has_its_instruction_and_warps_are_whole() -> None:
    root = kernel(product_of_lane(F16, special("lidx0", 64), 2))
    for d, products in ((F16, 1), (INT8, 0)):
        linear = lower(root, WithInstructions(target("llvm"), d), "linearize", CONFIG, dialect=Dialect.SCHEDULED)
        assert count(Op.WMMA, linear) == products
    n = b.variable("n", 0, 64, 4)
    some = kernel(product_of_lane(F16, special("lidx0", n), 2))
    linear = lower(some, WithInstructions(target("llvm"), F16), "linearize", CONFIG, dialect=Dialect.SCHEDULED)
    assert count(Op.WMMA, linear) == 0
