"""Stores that read what they overwrite: the interpreter's values whatever views are read and written, copies only where needed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import uops
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, Target, compile
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.callify.hazards import are_same_movement_views, are_surely_disjoint_shrinks
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

I32 = dt.int32
FRESH = Config(verify=True, reuse=False)
A = b.buffer(24, I32, unique=1)
GRID = b.reshape(A, (4, 6))
DATA = {"b1": (np.arange(24) * 37 % 101).astype(np.int32)}


def kernels(graph: UOp) -> int:
    return len(rangeify(callify(graph)).src)


def agree(graph: UOp, target: Target, inputs: dict[str, Any] | None = None) -> None:
    given = DATA if inputs is None else inputs
    wanted, got = run(graph, given), compile(graph, target, FRESH)(given)
    assert set(wanted.buffers) == set(got.buffers)
    for w, g in zip([*wanted.values, *wanted.buffers.values()], [*got.values, *(got.buffers[k] for k in wanted.buffers)]):
        np.testing.assert_array_equal(np.asarray(w), np.asarray(g))


def box(u: UOp, *bounds: tuple[int, int]) -> UOp:
    return b.shrink(u, tuple(lo for lo, _ in bounds), tuple(hi - lo for lo, hi in bounds))


MIDDLE = box(GRID, (1, 3), (1, 4))
#: A Store, and the kernels that it takes: one, and one per copy.
STORES: dict[str, tuple[UOp, int]] = {
    "a constant": (b.store(MIDDLE, b.expand(b.reshape(b.const(7), (1, 1)), (2, 3))), 1),
    "arithmetic in place": (b.store(MIDDLE, b.add(b.mul(MIDDLE, 2), 1)), 1),
    "arithmetic on two reads of the same element": (b.store(GRID, b.sub(b.mul(GRID, GRID), GRID)), 1),
    "in place through a permuted view": (b.store(b.permute(MIDDLE, (1, 0)), b.neg(b.permute(MIDDLE, (1, 0)))), 1),
    "in place through a flipped view": (b.store(b.flip(A, (True,)), b.add(b.flip(A, (True,)), 1)), 1),
    "rows that are apart": (b.store(box(GRID, (0, 2), (0, 6)), box(GRID, (2, 4), (0, 6))), 1),
    "columns that are apart, flipped": (b.store(box(GRID, (0, 4), (0, 3)), b.flip(box(GRID, (0, 4), (3, 6)), (True, True))), 1),
    "rows that overlap": (b.store(box(GRID, (0, 3), (0, 6)), box(GRID, (1, 4), (0, 6))), 2),
    "rows that overlap, downwards": (b.store(box(GRID, (1, 4), (0, 6)), box(GRID, (0, 3), (0, 6))), 2),
    "reversed": (b.store(A, b.flip(A, (True,))), 2),
    "its own transposed": (b.store(box(GRID, (0, 4), (0, 4)), b.permute(box(GRID, (0, 4), (0, 4)), (1, 0))), 2),
    "its own plus its reverse": (b.store(A, b.add(A, b.flip(A, (True,)))), 2),
    "less its greatest": (b.store(GRID, b.sub(GRID, b.reduce(GRID, Op.MAX, (1,)))), 2),
    "less its greatest, repeated": (b.store(GRID, b.sub(GRID, b.expand(b.reduce(GRID, Op.MAX, (1,)), (4, 6)))), 2),
    "one row everywhere": (b.store(GRID, b.expand(box(GRID, (2, 3), (0, 6)), (4, 6))), 2),
    "gated by itself": (b.store(GRID, b.neg(GRID), b.lt(GRID, 50)), 1),
    "gated by its reverse": (b.store(A, b.neg(A), b.lt(b.flip(A, (True,)), 50)), 2),
    "twice by the same reference, once moved": (
        b.store(b.flip(A, (True,)), b.maximum(b.add(A, b.flip(A, (True,))), A)),
        2,
    ),
    "the same elements by other views": (b.store(b.reshape(GRID, (24,)), b.add(A, b.reshape(b.permute(GRID, (1, 0)), (24,)))), 2),
}


@pytest.mark.parametrize("name", STORES)
def test_a_store_copies_only_what_it_overwrites_before_it_is_read(name: str) -> None:
    store, wanted = STORES[name]
    assert kernels(b.sink(store)) == wanted


@pytest.mark.parametrize("name", STORES)
def test_a_store_reads_all_before_it_writes(name: str, pyref: Target) -> None:
    store, _ = STORES[name]
    for target in (pyref, LlvmTarget(LlvmTier.FAST)):
        agree(b.sink(store), target)
        agree(b.after(GRID, store), target)


REVERSE = b.flip(A, (True,))
#: Programs that use a reference as a value before and after a Store to its memory: it is read once, before (R161).
SHARED = {
    "a view that is stored": b.tuple_(b.after(A, b.store(A, REVERSE)), REVERSE),
    "memory that is counted up": b.tuple_(b.after(A, b.store(A, b.add(A, 1))), A),
    "a view, used again": b.tuple_(b.after(A, b.store(A, REVERSE)), b.neg(REVERSE)),
    "a gate": b.tuple_(b.after(A, b.store(A, b.neg(A), b.lt(REVERSE, 50))), b.where(b.lt(REVERSE, 50), REVERSE, 0)),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_reference_has_one_value(name: str, pyref: Target) -> None:
    for target in (pyref, LlvmTarget(LlvmTier.FAST)):
        agree(SHARED[name], target)


def test_a_part_is_written_and_nothing_else_touched() -> None:
    """One kernel over the part: as many iterations as it has elements."""
    (call,) = rangeify(callify(b.sink(b.store(MIDDLE, b.param(0, (2, 3), I32))))).src
    assert call.src[0].arg.name == "e_2_3"


def test_which_references_are_the_same_and_which_are_apart() -> None:
    row, other = box(GRID, (0, 1), (0, 6)), box(GRID, (1, 2), (0, 6))
    assert are_same_movement_views(row, b.reshape(b.reshape(row, (6,)), (1, 6))) is False  # other views, though the same elements
    assert are_same_movement_views(row, box(b.after(GRID, b.store(GRID, GRID)), (0, 1), (0, 6)))
    assert are_surely_disjoint_shrinks(row, other)
    assert are_surely_disjoint_shrinks(b.flip(row, (False, True)), b.reshape(other, (6,)))
    assert not are_surely_disjoint_shrinks(row, row)
    assert not are_surely_disjoint_shrinks(row, box(GRID, (0, 4), (5, 6)))
    assert not are_surely_disjoint_shrinks(row, GRID)
    assert not are_surely_disjoint_shrinks(b.bitcast(row, dt.float32), b.bitcast(other, dt.float32))


# Drawn programs


class Draw:
    """Stores to views of one memory, of values made of views of it as it is then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kept: list[UOp] = []
        self.now: UOp = A

    def view(self, u: UOp, steps: int) -> UOp:
        for _ in range(steps):
            u = self.random.choice([self.split, self.permuted, self.flipped, self.shrunk])(u)
        return u

    def split(self, u: UOp) -> UOp:
        n = int(np.prod(u.shape))
        rows = self.random.choice([k for k in range(1, n + 1) if n % k == 0])
        return b.reshape(u, (rows, n // rows))

    def permuted(self, u: UOp) -> UOp:
        return b.permute(u, tuple(self.random.sample(range(len(u.shape)), len(u.shape))))

    def flipped(self, u: UOp) -> UOp:
        return b.flip(u, tuple(self.random.random() < 0.6 for _ in u.shape))

    def shrunk(self, u: UOp) -> UOp:
        bounds = []
        for n in u.shape:
            lo = self.random.randrange(n)
            bounds.append((lo, self.random.randint(lo + 1, n)) if self.random.random() < 0.6 else (0, n))
        return box(u, *bounds)

    def of_shape(self, shape: tuple[int, ...]) -> UOp:
        """A value of this shape from what memory holds now."""
        kind = self.random.randrange(5)
        n = int(np.prod(shape))
        if kind == 0:
            start = self.random.randint(0, 24 - n)
            return b.reshape(b.shrink(self.now, (start,), (n,)), shape)
        if kind == 1:
            return self.total(shape)
        if kind == 2 and self.kept:
            total = b.reduce(self.random.choice(self.kept), Op.MAX, (0,))
            return b.expand(b.reshape(total, (1,) * len(shape)), shape)
        part = b.reshape(b.shrink(self.now, (24 - n,), (n,)), shape)
        return b.flip(part, tuple(self.random.random() < 0.5 for _ in shape)) if kind == 3 else part

    def total(self, shape: tuple[int, ...]) -> UOp:
        v = self.view(self.now, 2)
        axes = tuple(range(len(v.shape)))
        return b.expand(b.reshape(b.reduce(v, Op.MAX, axes), (1,) * len(shape)), shape)

    def program(self) -> UOp:
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.5:
                self.kept.append(b.reshape(b.add(self.now, self.random.randint(1, 9)), (24,)))
            steps = self.random.randint(0, 3)
            state = self.random.getstate()
            read = self.view(self.now, steps)
            self.random.setstate(state)
            target = self.view(b.after(self.now, *self.kept) if self.kept else self.now, steps)
            value = self.of_shape(target.shape)
            if self.random.random() < 0.6:
                value = b.add(value, b.mul(read, self.random.randint(1, 3)))
            if self.random.random() < 0.3:
                value = b.maximum(value, self.of_shape(target.shape))
            gate = (b.lt(self.of_shape(target.shape), 40),) if self.random.random() < 0.25 else ()
            self.now = b.after(A, b.store(target, value, *gate))
        return b.tuple_(b.add(self.now, 0), *self.kept)


@pytest.mark.parametrize("block", range(4))
def test_drawn_stores_give_what_the_interpreter_gives(block: int) -> None:
    target = LlvmTarget(LlvmTier.FAST)
    for seed in range(block * 40, block * 40 + 40):
        agree(Draw(seed).program(), target)


def _agree(graph, inputs, backend="llvm"):
    want, got = uops.run(graph, inputs), uops.compile(graph, backend)(inputs)
    assert [x.tolist() for x in got.values] == [x.tolist() for x in want.values]
    assert {k: got.buffers[k].tolist() for k in want.buffers} == {k: v.tolist() for k, v in want.buffers.items()}
    return want


def test_shrinks_of_elements_that_repeat_are_not_disjoint():
    x = b.buffer(2, dt.int32, unique=1)
    repeated = b.at(x, b.shape_vector((0, 1, 1, 0)))
    swap = b.store(b.shrink(repeated, (0,), (2,)), b.shrink(repeated, (2,), (2,)))
    want = _agree(b.contiguous(b.after(x, swap)), {"b1": np.array([3, 5], np.int32)})
    assert want.values[0].tolist() == [5, 3]


def test_a_value_of_memory_is_read_before_a_call_that_takes_it_and_writes_the_memory():
    p, q, r = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(4, 0)
    body = b.sink(b.end(b.store(b.at(p, r), b.add(b.mul(b.load(b.at(p, r)), 2), b.load(b.at(q, r)))), r), name="k")
    x = b.buffer(4, dt.int32, unique=1)
    value = b.add(x, 1)
    call = b.call(body, x, value, written=(0,))
    _agree(b.contiguous(b.add(b.mul(b.after(x, call), 100), value)), {"b1": np.arange(4, dtype=np.int32)})
