"""Gated accesses of kernels: addresses are shorter, and right wherever something is accessed."""

import numpy as np
import pytest

from uops.backends.llvm.target import LlvmTarget
from uops.compiler import compile
from uops.compiler.passes.rangeify.gated_accesses import simplify_divisions_in_gated_accesses
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import DIVISION

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
