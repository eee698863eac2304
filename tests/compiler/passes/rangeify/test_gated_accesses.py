"""Gated accesses of kernels: addresses are shorter, and right wherever something is accessed."""

import numpy as np
import pytest

from uops.backends.llvm.target import LlvmTarget
from uops.compiler import compile
from uops.compiler.passes.rangeify.gated_accesses import simplify_divisions_in_gated_accesses, simplify_nested_conditions
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import DIVISION, Op

SIMPLIFY = Rewriter(INDEXING)
I32 = dt.int32


def divisions(root: UOp) -> int:
    return sum(u.op in DIVISION for u in toposort(root))


def kernel(position: UOp, gate: UOp, *loops: UOp) -> UOp:
    """Return a kernel that reads a gated element in each iteration."""
    out, x = b.param(0, (64,), I32), b.param(1, (60,), I32)
    read = b.load(b.at(x, position), b.const(0, I32), gate)
    return b.sink(b.wrap_in_one_end_per_loop(b.store(b.at(out, loops[0]), read), list(loops)))


def test_the_address_of_a_gated_load_loses_what_the_gate_decides() -> None:
    r = b.range_(64, 0)
    body = kernel(b.mod(r, 60), b.lt(r, 60), r)
    assert divisions(body) == 1 and divisions(simplify_divisions_in_gated_accesses(body, SIMPLIFY)) == 0


def test_an_address_that_reads_memory_stays() -> None:
    """The inner Load runs where the outer gate is false, where its own address must be in bounds."""
    r = b.range_(64, 0)
    inner = b.load(b.at(b.param(2, (60,), I32), b.mod(r, 60)))
    body = kernel(b.cast(inner, dt.index), b.lt(r, 60), r)
    assert simplify_divisions_in_gated_accesses(body, SIMPLIFY) is body


def test_a_loop_of_a_computed_extent_stays() -> None:
    n = b.variable("n", 0, 4)
    r = b.range_(b.mul(n, 3), 0)
    body = kernel(b.mod(r, 9), b.and_(b.lt(n, 3), b.lt(r, 9)), r)
    assert simplify_divisions_in_gated_accesses(body, SIMPLIFY) is body


def chosen(condition: UOp, value: UOp | float, other: UOp | float = 0.0) -> UOp:
    return b.where(condition, value, other)


def total(value: UOp) -> UOp:
    return UOp(Op.REDUCE, (value, INNER), ReduceArg(Op.ADD))


def storing(value: UOp, *loops: UOp) -> UOp:
    """Return a kernel that stores a value in each iteration."""
    out = b.param(0, (64,), value.dtype)
    return b.sink(b.wrap_in_one_end_per_loop(b.store(b.at(out, loops[0]), value), list(loops)))


OUTER, INNER = b.range_(64, 0), b.range_(3, 1, AxisType.REDUCE)
BELOW, REST = b.lt(OUTER, 60), b.lt(b.mod(OUTER, 60), 7)
X = b.load(b.at(b.param(1, (64,), dt.float32), OUTER))
#: name -> a value, and the divisions that are left in it.
NESTED = {
    "under the condition around it": (chosen(BELOW, chosen(REST, X)), 0),
    "below arithmetic": (chosen(BELOW, b.add(b.neg(chosen(REST, X)), X)), 0),
    "decided": (chosen(b.lt(OUTER, 7), chosen(REST, X)), 0),
    "decided against": (chosen(b.and_(BELOW, b.ge(OUTER, 7)), chosen(REST, X)), 0),
    "under two conditions": (chosen(b.lt(OUTER, 62), chosen(BELOW, chosen(REST, X))), 0),
    "inside of a Reduce": (chosen(BELOW, total(b.mul(chosen(REST, X), b.cast(INNER, dt.float32)))), 0),
    "of the other branch": (chosen(BELOW, X, chosen(REST, X)), 1),
    "used beside the condition": (b.add(chosen(BELOW, chosen(REST, X)), chosen(REST, X)), 1),
    "the condition itself": (chosen(b.and_(BELOW, b.ne(chosen(REST, X), 3.0)), X), 1),
    "an address": (chosen(BELOW, b.load(b.at(b.param(1, (64,), dt.float32), b.where(REST, OUTER, 0)))), 1),
    "a divisor": (b.cast(chosen(BELOW, b.idiv(9, b.where(REST, 2, 3)), 1), dt.float32), 1),
    "a loop of the Reduce": (chosen(b.lt(INNER, 2), total(chosen(b.lt(b.mod(INNER, 2), 1), X))), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_a_condition_loses_what_those_around_it_decide(name: str) -> None:
    value, left = NESTED[name]
    loops = [OUTER] + [INNER] * (name == "a loop of the Reduce")
    body = storing(value, *loops)
    assert divisions(simplify_nested_conditions(body, SIMPLIFY)) == left + (name == "a divisor")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_padded_value_of_a_computed_extent_compiles(n: int) -> None:
    size = b.variable("n", 0, 2)
    rows = b.mul(size, 3)
    x = b.reshape(b.param(0, (size, 3), I32), (size, 1, 3))
    flat = b.reshape(b.expand(x, (size, 3, 3)), (rows, 3))
    padded = b.pad(flat, (0, size), (rows, b.add(3, size)))
    inputs = {"n": n, "p0": np.arange(3 * n, dtype=np.int32).reshape(n, 3)}
    assert np.array_equal(compile(padded, LlvmTarget())(inputs).values[0], run(padded, inputs).values[0])


@pytest.mark.parametrize("tile", [3, 8, 16])
def test_tiles_with_overhang_read_what_they_did(tile: int) -> None:
    x = b.reshape(b.permute(b.reshape(b.param(0, (70,), I32), (7, 10)), (1, 0)), (70,))
    count = -(-70 // tile)
    tiles = b.reshape(b.pad(x, (0,), (count * tile,)), (count, tile))
    data = np.arange(1, 71, dtype=np.int32)
    expected = np.zeros(count * tile, np.int32)
    expected[:70] = data.reshape(7, 10).T.reshape(-1)
    program = compile(tiles, LlvmTarget())
    assert np.array_equal(program({"p0": data}).values[0], expected.reshape(count, tile))
