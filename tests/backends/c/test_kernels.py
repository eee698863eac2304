"""Kernels in C: the claims about any machine, and what the text of this one says."""

import re

import numpy as np
import pytest
from kernel_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import GOLDEN, linear, register
from render_claims import *  # noqa: F403 - the claims are tests
from render_claims import Renderer

from uops.backends.c.render import LIBRARY, OPS, render
from uops.backends.cstyle.language import ALIAS, NATIVE
from uops.compiler.target import STACK_LIMIT
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(render, frozenset(OPS), frozenset(NATIVE), STACK_LIMIT)


@pytest.fixture
def tier() -> str:
    return "tcc"


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rendered_text_is_the_golden_one(kernels, golden, name: str) -> None:
    golden(f"c-{name}.c", render(GOLDEN[name](kernels)))


@pytest.mark.parametrize("size", [1, 3, 300, 5000])
def test_an_unwritten_register_reads_as_zero_R61(kernels, tier: str, size: int) -> None:
    """The value is free, but reading it must be defined: TinyCC fills large arrays by a call."""
    reg, out, where = register(size, dt.int32, 903), B.param(0, (1,), dt.int32), B.param(1, (1,), dt.int32)
    got = np.full(1, 77, np.int32)
    root = B.store(B.at(out, 0), B.load(B.at(reg, B.load(B.at(where, 0)))))
    kernels.execute(linear(root), [got, np.full(1, size - 1, np.int32)], tier=tier)
    assert got[0] == 0


def test_no_name_of_a_kernel_is_the_name_of_a_type(kernels) -> None:
    """Instruction 16 may open a loop, and i16 is a type."""
    taken = {letter for alias in ALIAS.values() for letter in alias if not letter.isdigit()}
    texts = [render(make(kernels)) for make in GOLDEN.values()]
    own = {m for text in texts for m in re.findall(r"\b([a-z])\d+\b", text.partition("void kernel")[2])} - taken
    assert own >= {"v", "k", "p", "s", "r"}
    for text in texts:
        declared = re.findall(r"(?:const \w+ |\*const |\(i64 )([a-z]\w*) =", text)
        assert declared
        assert not [name for name in declared if name[0] in taken]


def test_signed_arithmetic_is_unsigned_unless_bounds_exclude_overflow_R05(kernels) -> None:
    free = render(kernels.elementwise(8, dt.int32, (dt.int32, dt.int32), B.add))
    assert "(i32)((u32)v" in free
    narrow = lambda x, y: B.add(*(UOp(Op.CAST, (v,), A.CastArg(dt.int32)) for v in (x, y)))  # noqa: E731
    assert "u32)v" not in render(kernels.elementwise(8, dt.int32, (dt.int8, dt.int8), narrow))


def test_constants_are_not_folded_in_long_double_R16(kernels, tier: str) -> None:
    """TinyCC adds two literals with 64 bits of significand and rounds again: 1 + (2^-53 + 2^-78) would become 1."""
    total = B.add(B.const(1.0, dt.float64), B.const(2.0**-53 + 2.0**-78, dt.float64))
    got = kernels.apply(lambda z: B.add(z, total), dt.float64, (dt.float64,), [[0.0]], tier)
    assert got[0] == 1 + 2.0**-52


def test_a_slot_may_be_named_with_two_dtypes(kernels, tier: str) -> None:
    words, reals, out = B.param(1, (4,), dt.uint32), B.param(1, (4,), dt.float32), B.param(0, (2,), dt.float32)
    as_float = UOp(Op.CAST, (B.load(B.at(words, 1)),), A.CastArg(dt.float32))
    got = np.zeros(2, np.float32)
    root = UOp(Op.GROUP, (B.store(B.at(out, 0), B.load(B.at(reals, 0))), B.store(B.at(out, 1), as_float)))
    kernels.execute(
        linear(root), [got, np.array([1.5, 0, 0, 0], np.float32).view(np.uint32) + np.array([0, 7, 0, 0], np.uint32)], tier=tier
    )
    assert got.tolist() == [1.5, 7.0]


def vector(*lanes: UOp) -> UOp:
    return UOp(Op.STACK, lanes)


def test_vector_values_are_computed_lane_by_lane(kernels, tier: str) -> None:
    """p0[4i + k] = p1[4i + 3 - k] * 2 + k, a gate leaving out the last lane of each row; then a lane of it into p2."""
    out, x, last = B.param(0, (8,), dt.float32), B.param(1, (8,), dt.float32), B.param(2, (2,), dt.float32)
    i = B.range_(2, 0)
    base = B.mul(i, B.index(4))
    where = [vector(*(B.add(base, B.index(k)) for k in order)) for order in ((0, 1, 2, 3), (3, 2, 1, 0))]
    loaded = UOp(Op.LOAD, (UOp(Op.INDEX, (x, where[1])),))
    twice = B.mul(loaded, vector(*(B.const(2.0) for _ in range(4))))
    value = B.add(twice, vector(*(B.const(float(k)) for k in range(4))))
    gate = vector(*(B.const(k < 3) for k in range(4)))
    store = UOp(Op.STORE, (UOp(Op.INDEX, (out, where[0])), value, gate))
    lane = B.store(B.at(last, i), UOp(Op.INDEX, (value, B.index(3))))
    got, extra, given = np.zeros(8, np.float32), np.zeros(2, np.float32), np.arange(8, dtype=np.float32)
    kernels.execute(linear(B.end(UOp(Op.GROUP, (store, lane)), i)), [got, given, extra], tier=tier)
    assert got.reshape(2, 4).tolist() == [[6, 5, 4, 0], [14, 13, 12, 0]]
    assert extra.tolist() == [3.0, 11.0]


def test_a_vector_accumulator_is_accessed_as_a_whole(kernels, tier: str) -> None:
    """p0[k] = the sum over i of p1[4i + k], in a register of four lanes."""
    out, x, acc = B.param(0, (4,), dt.float32), B.param(1, (12,), dt.float32), register(4, dt.float32, 905)
    lanes, i = vector(*(B.index(k) for k in range(4))), B.range_(3, 0)
    cleared = B.after(acc, UOp(Op.STORE, (acc, vector(*(B.const(0.0) for _ in range(4))))), i)
    base = B.mul(i, B.index(4))
    row = UOp(Op.LOAD, (UOp(Op.INDEX, (x, B.add(vector(*(base for _ in range(4))), lanes))),))
    step = B.end(UOp(Op.STORE, (cleared, B.add(UOp(Op.LOAD, (cleared,)), row))), i)
    root = UOp(Op.STORE, (UOp(Op.INDEX, (out, lanes)), UOp(Op.LOAD, (B.after(acc, step),))))
    got, given = np.zeros(4, np.float32), np.arange(12, dtype=np.float32)
    kernels.execute(linear(root), [got, given], tier=tier)
    assert got.tolist() == given.reshape(3, 4).sum(0).tolist()


def test_a_kernel_calls_nothing_that_is_not_correctly_rounded(kernels) -> None:
    ops = {Op.SQRT: 1, Op.TRUNC: 1, Op.MULACC: 3, Op.MAX: 2, Op.DIV: 2, Op.NEG: 1, Op.RECIP: 1}
    called = set()
    for op, n in ops.items():
        for d in (dt.float32, dt.float64):
            text = render(kernels.elementwise(4, d, (d,) * n, lambda *x, op=op: UOp(op, x)))
            called |= set(re.findall(r"^f\d\d (\w+)\(", text, re.MULTILINE))
    assert called == set(LIBRARY)
