"""The llvm renderer on vectors: every lane is what the scalar form computes, and accesses touch what they say."""

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.layout import (
    LaneOffsets,
    find_address_nodes,
    find_register_buffers_used_as_whole,
    match_lane_offsets,
    never_wraps_in_own_dtype,
)
from uops.backends.llvm.render import render
from uops.backends.worker.guard import GuardedMemory
from uops.spec.errors import Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import BITWISE, COMPARE, SHIFT, Op

INTS = dt.INTS
FLOATS = (dt.float32, dt.float64)
VALUES = (dt.bool_, *INTS, *FLOATS)


def linear(*roots: UOp) -> UOp:
    return UOp(Op.LINEAR, tuple(u for u in toposort(*roots) if u.op is not Op.CONST))


def lanes(*values: int) -> UOp:
    return UOp(Op.STACK, tuple(B.const(v, dt.int32) for v in values))


def at(memory: UOp, base: UOp | int, w: int) -> UOp:
    """A contiguous access."""
    b = B.const(base, dt.int32) if isinstance(base, int) else base
    return UOp(Op.INDEX, (memory, UOp(Op.ADD, (UOp(Op.STACK, (b,) * w), lanes(*range(w))))))


def pool(d: DType) -> list[Any]:
    if d is dt.bool_:
        return [False, True]
    if d.is_float:
        big = [3e9, -3e9, 1e19, -1e19, 127.99, -128.99, 255.5, 65535.9, 2.0**31, -(2.0**63), 2.0**64]
        return [0.0, -0.0, 1.5, -1.5, 0.49, np.inf, -np.inf, np.nan, 1e-40, *big]
    return sorted(
        {int(d.min), int(d.min) + 1, int(d.max), int(d.max) - 1, 0, 1, 2, 3, 7, 63, 64, 100, *((-1, -2, -7) if d.min else ())}
    )


BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.DIV, Op.IDIV, Op.MOD, *sorted(BITWISE | COMPARE | SHIFT, key=lambda o: o.value))
UNARY = (Op.NEG, Op.NOT, Op.RECIP, Op.SQRT, Op.TRUNC)


def applies(op: Op, d: DType) -> bool:
    """R09, R10."""
    if op in (Op.DIV, Op.RECIP, Op.SQRT):
        return d.is_float
    if op in (Op.IDIV, Op.MOD) or op in SHIFT:
        return d in INTS
    if op in BITWISE:
        return not d.is_float
    return d is dt.bool_ if op is Op.NOT else op not in (Op.SUB, Op.NEG, Op.TRUNC) or d is not dt.bool_


def vector_and_scalar(tier: LlvmTier, make: Callable[..., UOp], columns: list[Any], w: int, execute: Any) -> tuple[Any, Any]:
    """`make` of columns in lanes of w, and element by element."""
    n = -(-len(columns[0]) // w) * w
    arrays = [np.resize(c, n) for c in columns]
    dtypes = [DTYPES[a.dtype.name] for a in arrays]
    found = []
    for width in (w, 1):
        i = B.range_(n // width, 0)
        base = UOp(Op.MUL, (B.cast(i, dt.int32), B.const(width, dt.int32)))
        params = [B.param(k, (n,), d) for k, d in enumerate(dtypes, 1)]
        places = [at(p, base, width) if width > 1 else UOp(Op.INDEX, (p, base)) for p in params]
        value = make(*(B.load(p) for p in places))
        out = B.param(0, (n,), value.dtype)
        target = at(out, base, width) if width > 1 else UOp(Op.INDEX, (out, base))
        result = np.zeros(n, value.dtype.name)
        execute(linear(B.end(B.store(target, value), i)), [result, *arrays], tier=tier)
        found.append(result)
    return found[0], found[1]


DTYPES = {d.name: d for d in VALUES}


def same(a: Any, b: Any) -> bool:
    return bool(
        np.all((a == b) & ((a != 0) | (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else True) | ((a != a) & (b != b)))
    )


@pytest.mark.parametrize("d", VALUES, ids=lambda d: d.name)
def test_lanes_of_binary_ops_are_the_scalars(kernels, tier, d: DType) -> None:
    pairs = list(itertools.product(pool(d), pool(d)))
    columns = [np.array([p[k] for p in pairs], d.name) for k in (0, 1)]
    for op in BINARY:
        if applies(op, d):
            got, wanted = vector_and_scalar(
                tier, functools.partial(B.build_alu_with_promotion, op), columns, 64 // d.itemsize, kernels.execute
            )
            assert same(got, wanted), op


@pytest.mark.parametrize("d", VALUES, ids=lambda d: d.name)
def test_lanes_of_unary_and_ternary_ops_are_the_scalars(kernels, tier, d: DType) -> None:
    column, w = np.array(pool(d) * 3, d.name), 16
    for op in UNARY:
        if applies(op, d):
            got, wanted = vector_and_scalar(tier, functools.partial(B.build_alu_with_promotion, op), [column], w, kernels.execute)
            assert same(got, wanted), op
    choose = vector_and_scalar(tier, lambda x, y: B.where(B.lt(x, y), x, y), [column, np.roll(column, 3)], w, kernels.execute)
    assert same(*choose)
    fused = vector_and_scalar(tier, B.mulacc, [column, np.roll(column, 1), np.roll(column, 5)], w, kernels.execute)
    assert same(*fused)


@pytest.mark.parametrize("of", VALUES, ids=lambda d: d.name)
def test_lanes_of_casts_are_the_scalars(kernels, tier, of: DType) -> None:
    """R15, in the vector form that LLVM's saturating conversions do not have."""
    for to in VALUES:
        column = [np.array(pool(of), of.name)]
        got, wanted = vector_and_scalar(tier, lambda x, to=to: B.cast(x, to), column, 8, kernels.execute)
        assert same(got, wanted), to
        if to.bits == of.bits and to is not dt.bool_ and of is not dt.bool_ and to is not of:
            got, wanted = vector_and_scalar(
                tier, lambda x, to=to: B.bitcast(x, to), [np.array(pool(of), of.name)], 8, kernels.execute
            )
            assert np.array_equal(got.view(np.uint8), wanted.view(np.uint8)), to


@pytest.mark.parametrize("d", [dt.int8, dt.uint8], ids=lambda d: d.name)
def test_division_by_floats_is_exact_for_all_bytes(kernels, d: DType) -> None:
    every = np.arange(256, dtype=np.uint8).view(d.name)
    x, y = (a.reshape(-1).copy() for a in np.meshgrid(every, every))
    for op in (Op.IDIV, Op.MOD):
        assert same(
            *vector_and_scalar(LlvmTier.FULL, functools.partial(B.build_alu_with_promotion, op), [x, y], 64, kernels.execute)
        )


@pytest.mark.parametrize("d", [dt.int16, dt.uint16, dt.int32, dt.uint32], ids=lambda d: d.name)
def test_division_by_floats_is_exact_next_to_multiples(kernels, d: DType) -> None:
    rng = np.random.default_rng(7)
    y = np.concatenate([rng.integers(1, d.max, 2000), rng.integers(1, 300, 2000)])
    k = np.concatenate([d.max // y[:3000], rng.integers(1, 300, 1000) % (d.max // y[3000:]) + 1])
    x = np.minimum(np.concatenate([y * k + e for e in (-1, 0, 1)]), d.max)
    y = np.tile(y, 3)
    for op in (Op.IDIV, Op.MOD):
        columns = [x.astype(d.name), y.astype(d.name)]
        assert same(
            *vector_and_scalar(LlvmTier.FULL, functools.partial(B.build_alu_with_promotion, op), columns, 16, kernels.execute)
        )


# Accesses


def copy_kernel(n: int, w: int, d: DType, gate: Callable[[UOp], UOp], source: Callable[[UOp], UOp]) -> UOp:
    """out[0:w] = memory[source], both where the gate holds."""
    out, memory, mask = B.param(0, (w,), d), B.param(1, (n,), d), B.param(2, (w,), dt.bool_)
    g = gate(B.load(at(mask, 0, w)))
    alt = UOp(Op.STACK, (B.const(1, d),) * w)
    return linear(B.store(at(out, 0, w), B.load(source(memory), alt, g), g))


@pytest.mark.parametrize("d", VALUES, ids=lambda d: d.name)
def test_a_masked_access_touches_no_lane_outside_of_its_mask_R52(kernels, tier, d: DType) -> None:
    """Both buffers end at a page that may not be touched, and the mask leaves out what lies on it."""
    w, inside = 16, 11
    held = [GuardedMemory(inside * d.itemsize), GuardedMemory(inside * d.itemsize)]
    out, memory = (g.data.view(d.name) for g in held)
    memory[:], out[:] = np.arange(inside), 0
    kernel = copy_kernel(inside, w, d, lambda g: g, lambda m: at(m, 0, w))
    kernels.execute(kernel, [out, memory, np.arange(w) < inside], tier=tier)
    assert np.array_equal(out, memory)


def test_elements_side_by_side_are_one_access_wherever_they_begin(kernels, tier) -> None:
    """Both buffers are touched up to their ends, and not beyond."""
    w = 4
    for masked in (False, True):
        held = [GuardedMemory(4 * n) for n in (w + 1, w + 3)]
        out, memory = (g.data.view(np.int32) for g in held)
        memory[:], out[:] = np.arange(w + 3) * 10, -1
        to, source = (UOp(Op.INDEX, (B.param(k, (w + 3,), dt.int32), lanes(*range(n, n + w)))) for k, n in ((0, 1), (1, 3)))
        mask = [B.load(at(B.param(2, (w,), dt.bool_), 0, w))] if masked else []
        alt = [UOp(Op.STACK, (B.const(7, dt.int32),) * w)] if masked else []
        kernel = linear(B.store(to, B.load(source, *alt, *mask), *mask))
        assert "insertelement" not in render(kernel)
        kernels.execute(kernel, [out, memory, np.array([True] * (w - 1) + [not masked])], tier=tier)
        assert out.tolist() == [-1, 30, 40, 50, -1 if masked else 60]


@pytest.mark.parametrize("d", [dt.int32, dt.float64, dt.int16, dt.uint8, dt.bool_], ids=str)
def test_a_masked_gather_and_scatter(kernels, tier, d: DType) -> None:
    w, storage = 8, STORAGE[d]
    mask = np.array([1, 0, 1, 1, 0, 0, 1, 1], bool)
    at_ = (3, 1 << 28, 0, 7, -(1 << 28), 1 << 30, 5, 1)
    places, here = lanes(*at_), [k for k, m in zip(at_, mask, strict=True) if m]
    memory = (np.array([3, 10, 0, 30, 0, 50, 60, 70])).astype(storage)
    mask_at, alt = B.load(at(B.param(2, (w,), dt.bool_), 0, w)), UOp(Op.STACK, (B.const(1, d),) * w)
    read = B.load(UOp(Op.INDEX, (B.param(1, (8,), d), places)), alt, mask_at)
    gather = linear(B.store(at(B.param(0, (w,), d), 0, w), read))
    out, wanted = np.zeros(8, storage), np.ones(8, storage)
    kernels.execute(gather, [out, memory, mask], tier=tier)
    wanted[mask] = memory[here]
    assert out.tolist() == wanted.tolist()
    value = B.load(at(B.param(1, (w,), d), 0, w))
    scatter = linear(B.store(UOp(Op.INDEX, (B.param(0, (8,), d), places)), value, mask_at))
    assert ["llvm.masked" in render(kernel) for kernel in (gather, scatter)] == [d.itemsize >= 4] * 2
    out, wanted = np.zeros(8, storage), np.zeros(8, storage)
    kernels.execute(scatter, [out, memory, mask], tier=tier)
    wanted[here] = memory[mask]
    assert out.tolist() == wanted.tolist()


def test_a_gate_of_one_element_skips_the_whole_vector(kernels, tier) -> None:
    for holds in (True, False):
        out, memory = np.zeros(8, np.int32), np.arange(8, dtype=np.int32)
        first = copy_kernel(8, 8, dt.int32, lambda g: UOp(Op.INDEX, (g, B.const(0, dt.int32))), lambda m: at(m, 0, 8))
        kernels.execute(first, [out, memory, np.array([holds] + [True] * 7)], tier=tier)
        assert out.tolist() == (memory.tolist() if holds else [0] * 8)


def test_lanes_are_picked_joined_and_spread(kernels, tier) -> None:
    x = B.load(at(B.param(1, (8,), dt.int32), 0, 8))
    y = B.load(at(B.param(2, (8,), dt.int32), 0, 8))

    def lane(v: UOp, k: int) -> UOp:
        return UOp(Op.INDEX, (v, B.const(k, dt.int32)))

    values = {
        "picked": (UOp(Op.INDEX, (x, lanes(7, 0, 0, 3))), [7, 0, 0, 3]),
        "of two": (UOp(Op.STACK, (lane(x, 1), lane(y, 1), lane(x, 6), lane(y, 0))), [1, 101, 6, 100]),
        "spread": (UOp(Op.STACK, (lane(y, 5),) * 4), [105] * 4),
        "scalars": (UOp(Op.STACK, (B.add(lane(x, 2), 1), lane(y, 3), B.const(9), lane(x, 0))), [3, 103, 9, 0]),
        "constants": (lanes(4, -1, 0, 9), [4, -1, 0, 9]),
    }
    for name, (value, wanted) in values.items():
        out = np.zeros(4, np.int32)
        kernel = linear(B.sink(B.store(at(B.param(0, (4,), dt.int32), 0, 4), value)))
        kernels.execute(kernel, [out, np.arange(8, dtype=np.int32), np.arange(100, 108, dtype=np.int32)], tier=tier)
        assert out.tolist() == wanted, name


def test_a_lane_that_is_not_constant_is_refused() -> None:
    x = B.load(at(B.param(1, (8,), dt.int32), 0, 8))
    k = B.load(at(B.param(2, (4,), dt.int32), 0, 4))
    with pytest.raises(Unsupported, match="not constant"):
        render(linear(B.sink(B.store(at(B.param(0, (4,), dt.int32), 0, 4), UOp(Op.INDEX, (x, k))))))


# What is decided before rendering


def register(size: int, unique: int) -> UOp:
    return B.buffer(size, dt.float32, addrspace=AddrSpace.REG, unique=unique)


def test_a_register_that_is_used_as_a_whole_is_a_value() -> None:
    r = register(8, 1)
    zeros = UOp(Op.STACK, (B.const(0.0),) * 8)
    cleared = B.store(at(r, 0, 8), zeros)
    kernel = linear(B.sink(B.store(at(B.param(0, (8,), dt.float32), 0, 8), B.load(at(B.after(r, cleared), 0, 8)))))
    assert find_register_buffers_used_as_whole(kernel.src) == {r}
    assert "alloca" not in render(kernel)


@pytest.mark.parametrize("case", ["one lane", "half", "gated", "moving"])
def test_a_register_that_is_used_in_parts_stays_memory(case: str) -> None:
    r = register(8, 1)
    place = {
        "one lane": lambda: B.store(B.at(r, 3), B.const(1.0)),
        "half": lambda: B.store(at(r, 0, 4), UOp(Op.STACK, (B.const(0.0),) * 4)),
        "gated": lambda: B.store(at(r, 0, 8), UOp(Op.STACK, (B.const(0.0),) * 8), B.const(True)),
        "moving": lambda: B.store(at(r, B.load(B.at(B.param(1, (1,), dt.int32), 0)), 8), UOp(Op.STACK, (B.const(0.0),) * 8)),
    }[case]()
    assert find_register_buffers_used_as_whole(linear(B.sink(place)).src) == frozenset()


def test_a_register_changes_in_nested_loops_and_ifs(kernels, tier) -> None:
    """Sum of i * j over i < 3, j < 4, and 100 for each i that is 1: values that meet where control does."""
    r, out = register(1, 1), B.param(0, (1,), dt.float32)
    i, j = B.range_(3, 0), B.range_(4, 1)
    cleared = B.store(B.at(r, 0), B.const(0.0))
    first = B.at(B.after(r, cleared, i, j), 0)
    inner = B.store(first, B.add(B.load(first), B.cast(B.mul(i, j), dt.float32)))
    closed = B.end(inner, j)
    condition = UOp(Op.IF, (B.eq(B.cast(i, dt.int32), 1),))
    second = B.at(B.after(r, closed, condition), 0)
    added = B.store(second, B.add(B.load(second), 100.0))
    endif = UOp(Op.ENDIF, (condition,))
    outer = B.end(B.group(closed, endif), i)
    done = B.store(B.at(out, 0), B.load(B.at(B.after(r, outer), 0)))
    order: dict[UOp, None] = {}
    for root in (out, cleared, i, inner, closed, added, endif, outer, done):
        order.update(dict.fromkeys(toposort(root)))
    kernel = UOp(Op.LINEAR, tuple(u for u in order if u.op not in (Op.CONST, Op.GROUP, Op.STACK)))
    assert "alloca" not in render(kernel)
    result = np.zeros(1, np.float32)
    kernels.execute(kernel, [result], tier=tier)
    assert result[0] == 3 * 6 + 100


def test_the_forms_of_index_vectors() -> None:
    b = B.load(B.at(B.param(1, (1,), dt.int32), 0))
    spread = UOp(Op.STACK, (b,) * 4)
    assert match_lane_offsets(UOp(Op.ADD, (spread, lanes(0, 1, 2, 3)))) == LaneOffsets(b, (0, 1, 2, 3))
    assert match_lane_offsets(UOp(Op.ADD, (lanes(0, 2, 4, 6), spread))) == LaneOffsets(b, (0, 2, 4, 6))
    assert match_lane_offsets(lanes(5, 6)) == LaneOffsets(None, (5, 6))
    assert match_lane_offsets(UOp(Op.ADD, (spread, spread))) is None
    assert match_lane_offsets(UOp(Op.MUL, (spread, lanes(0, 1, 2, 3)))) is None
    assert all(LaneOffsets(b, steps).is_contiguous for steps in ((0, 1), (3, 4, 5, 6), (-1, 0)))
    assert not any(LaneOffsets(b, steps).is_contiguous for steps in ((1, 0), (0, 2), (3, 3)))


def test_addresses_that_cannot_wrap_are_computed_in_64_bits() -> None:
    i, memory = B.range_(1000, 0), B.param(1, (1 << 20,), dt.float32)
    k = B.cast(i, dt.int32)
    place = B.add(B.mul(k, 64), 3)
    kernel = linear(B.end(B.store(B.at(B.param(0, (1000,), dt.float32), k), B.load(B.at(memory, place))), i))
    text = render(kernel).partition("\n}\n")[0]
    assert "sext" not in text and "trunc" not in text and " i32 " not in text
    found = find_address_nodes(kernel.src, [u for u in kernel.src if u.op is Op.PARAM])
    assert {k, place} <= found.address_only


def test_an_address_that_may_wrap_is_computed_as_it_is_written() -> None:
    x = B.load(B.at(B.param(1, (4,), dt.int32), 0))
    assert (
        not never_wraps_in_own_dtype(B.add(x, 1))
        and not never_wraps_in_own_dtype(B.mul(x, x))
        and never_wraps_in_own_dtype(B.cast(B.range_(7, 0), dt.int32))
    )
    kernel = linear(B.sink(B.store(B.at(B.param(0, (4,), dt.int32), B.add(x, 1)), B.const(5))))
    assert re.search(r"add i32 .*\n.*sext i32", render(kernel))


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.IDIV, Op.CMPLT], ids=lambda o: o.name)
def test_no_flag_and_no_scalar_in_the_text_of_a_vector_kernel(op: Op) -> None:
    d = dt.int32
    x, y = (B.load(at(B.param(k, (16,), d), 0, 16)) for k in (1, 2))
    value = B.build_alu_with_promotion(op, x, y)
    text = render(linear(B.sink(B.store(at(B.param(0, (16,), value.dtype), 0, 16), value))))
    assert not re.search(r"\b(nsw|nuw|exact|inbounds|fast|contract|undef|poison)\b", text)
    assert "extractelement" not in text and "insertelement" not in text


def test_vector_code_stays_vector_code_in_the_machine_code() -> None:
    if not binding.detect_host_without_gfni().has("avx2"):
        pytest.skip("this machine has no AVX2 to look for")
    x, y = (B.load(at(B.param(k, (8,), dt.float32), 0, 8)) for k in (1, 2))
    kernel = linear(B.sink(B.store(at(B.param(0, (8,), dt.float32), 0, 8), B.maximum(B.mulacc(x, y, y), B.sqrt(x)))))
    text = binding.emit_assembly(render(kernel), binding.detect_host_without_gfni(), LlvmTier.FULL)
    assert len(re.findall(r"vfmadd\w+ps\b.*ymm", text)) == 1
    assert not re.search(r"vfmadd\w+ss|\bcall", text)
