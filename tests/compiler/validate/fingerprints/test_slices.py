"""Loops whose iterations access slices of their own: large kernels are compared by one iteration, and wrong ones are not equal."""

import numpy as np
import pytest

from uops.compiler.validate.fingerprints.compare import Comparison, compare_values
from uops.compiler.validate.fingerprints.integers import Counter, Integer
from uops.compiler.validate.fingerprints.slices import IndependentLoops, MemoryAccess, Slicing, find_independent_loops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Rows and columns of more elements than one evaluation may have.
ROWS, COLUMNS = 1 << 20, 16


def nest(axis, rows, columns, make_store):
    """Two loops around a Store of a row and a column; the inner one is of columns."""
    i, j = b.range_(rows, axis), b.range_(columns, axis + 1)
    return b.end(b.end(make_store(i, j), j), i)


def straight(i, j, columns=COLUMNS):
    return b.add(b.mul(i, columns), j)


def body(rows=ROWS, columns=COLUMNS):
    """Each element of X, doubled."""
    x, out = (b.param(k, (rows * columns,), dt.float32) for k in (1, 0))
    return b.sink(
        nest(0, rows, columns, lambda i, j: b.store(b.at(out, at := straight(i, j, columns)), b.mul(b.load(b.at(x, at)), 2.0)))
    )


def through_memory(write, read, rows=ROWS, columns=COLUMNS, extra=0, swaps_loops=False):
    """The same kernel, which keeps X in memory of its own first."""
    x, out = (b.param(k, (rows * columns,), dt.float32) for k in (1, 0))
    kept = b.buffer(rows * columns + extra, dt.float32, addrspace=AddrSpace.REG)
    first, second = (columns, rows) if swaps_loops else (rows, columns)

    def place(i, j):
        return (j, i) if swaps_loops else (i, j)

    filled = b.after(
        kept,
        nest(
            0,
            first,
            second,
            lambda i, j: b.store(b.at(kept, write(*place(i, j))), b.load(b.at(x, straight(*place(i, j), columns)))),
        ),
    )
    return b.sink(
        nest(
            2, first, second,
            lambda k, m: b.store(b.at(out, straight(*place(k, m), columns)), b.mul(b.load(b.at(filled, read(*place(k, m)))), 2.0)),
        )
    )  # fmt: skip


def test_a_value_in_memory_of_the_kernel_is_compared_row_by_row():
    assert compare_values(body(), through_memory(straight, straight), {}) == Comparison(True)


def test_rows_are_found_in_the_inner_loop_too():
    assert compare_values(body(), through_memory(straight, straight, swaps_loops=True), {}) == Comparison(True)


@pytest.mark.parametrize(
    "read",
    [
        lambda k, m, rows: b.add(b.mul(k, COLUMNS), b.sub(COLUMNS - 1, m)),
        lambda k, m, rows: b.mul(k, COLUMNS),
        lambda k, m, rows: b.add(straight(k, m), 1),
        lambda k, m, rows: b.add(straight(k, m), COLUMNS),
        lambda k, m, rows: b.sub(straight(k, m), COLUMNS),
        lambda k, m, rows: straight(b.sub(rows - 1, k), m),
        lambda k, m, rows: b.add(b.mul(m, rows), k),
        lambda k, m, rows: m,
    ],
    ids=["reversed row", "one column", "next column", "next row", "last row", "reversed rows", "transposed", "one row"],
)
def test_another_element_of_the_memory_is_not_equal(read):
    for rows in (ROWS, 512):  # the smaller ones can be evaluated whole
        kernel = through_memory(straight, lambda k, m, rows=rows: read(k, m, rows), rows, extra=COLUMNS)
        assert not compare_values(body(rows), kernel, {}).is_equal


def in_place(last_column, is_first_stored=True):
    """The same kernel, which stores X in its output first, and doubles the columns below `last_column` there, row by row."""
    x, out = (b.param(k, (ROWS * COLUMNS,), dt.float32) for k in (1, 0))
    row, i, j = b.range_(ROWS, 0), b.range_(COLUMNS, 1), b.range_(last_column, 2)
    first = b.end(b.store(b.at(out, straight(row, i)), b.load(b.at(x, straight(row, i)))), i)
    filled = b.after(out, first) if is_first_stored else b.after(out, row)
    second = b.store(b.at(filled, straight(row, j)), b.mul(b.load(b.at(filled, straight(row, j))), 2.0))
    return b.sink(b.end(b.end(second, j), row))


def test_an_output_that_is_loaded_again_is_compared_row_by_row():
    assert compare_values(body(), in_place(COLUMNS), {}) == Comparison(True)
    for wrong in (in_place(COLUMNS - 1), in_place(COLUMNS, is_first_stored=False)):
        assert compare_values(body(), wrong, {}).is_equal is False


def test_what_a_row_leaves_for_the_next_one_is_no_slice():
    """Row i is what row i - 1 of X was: the memory's row i is read before the next one is filled."""
    x, out = (b.param(k, (ROWS * COLUMNS,), dt.float32) for k in (1, 0))
    kept = b.buffer((ROWS + 1) * COLUMNS, dt.float32, addrspace=AddrSpace.REG)
    i, j = b.range_(ROWS, 0), b.range_(COLUMNS, 1)
    read = b.store(b.at(out, straight(i, j)), b.mul(b.load(b.at(b.after(kept, i, j), straight(i, j))), 2.0))
    write = b.store(b.at(b.after(kept, read), b.add(straight(i, j), COLUMNS)), b.load(b.at(x, straight(i, j))))
    assert not compare_values(body(), b.sink(b.end(b.end(write, j), i)), {}).is_equal


# Groups

EXTENT = 8
R, S, T = (b.range_(EXTENT, k) for k in range(3))
COUNTERS = {r: Counter(k, 0, EXTENT - 1) for k, r in enumerate((R, S, T))}
M, N = (b.buffer(1 << 10, dt.float32, addrspace=AddrSpace.REG, unique=k) for k in (1, 2))


def access(loops, factors, first=0, is_store=True):
    arrays = {COUNTERS[r]: np.array([f], np.int64) for r, f in factors.items()}
    return MemoryAccess(frozenset(loops), Integer(np.array([first], np.int64), arrays), is_store)


def groups(accesses, extents=None, private=None):
    extents = extents or dict.fromkeys(COUNTERS, EXTENT)
    found = find_independent_loops(extents, COUNTERS, accesses, {m: (private or {}).get(m, ()) for m in accesses})
    return [g for g in found if not g.shared]


def test_loops_of_one_extent_and_stride_are_a_group():
    found = groups({M: [access([R], {R: 4}), access([S], {S: 4}, first=3, is_store=False)]})
    assert found == [IndependentLoops((R, S), EXTENT, {M: Slicing(4, 4, 0)}), IndependentLoops((T,), EXTENT)]


@pytest.mark.parametrize(
    "second",
    [
        access([S], {S: 4}, first=4),
        access([S], {S: 4}, first=-1),
        access([S], {S: 5}),
        access([S], {}),
        access([R, S], {R: 4, S: 4}),
        MemoryAccess(frozenset([S]), None, False),
    ],
    ids=["next slice", "slice before", "another stride", "one element", "nested loops", "unknown"],
)
def test_other_accesses_make_no_group_of_the_loops_around_them(second):
    assert not any(R in g.loops for g in groups({M: [access([R], {R: 4}), second]}))


def test_loops_of_two_extents_are_no_group():
    accesses = {M: [access([R], {R: 4}), access([S], {S: 4})]}
    assert not any({R, S} & {*g.loops} for g in groups(accesses, {R: EXTENT, S: EXTENT - 1, T: EXTENT}))


def test_columns_are_slices_of_rows_in_turn():
    rows_and_columns = [access([R, S], {R: 32, S: 4}), access([R, S], {R: 32, S: 4}, first=3)]
    found = {g.loops: g.slicings for g in groups({M: rows_and_columns})}
    assert found[R,] == {M: Slicing(32, 32, 0)} and found[S,] == {M: Slicing(4, 4, 1)}
    beyond = [access([R, S], {R: 32, S: 4}), access([R, S], {R: 32, S: 4}, first=33)]  # row r + 1, column s
    assert [g.loops for g in groups({M: beyond})] == [(S,), (T,)]


def test_memories_connect_loops():
    accesses = {M: [access([R], {R: 4}), access([S], {S: 4})], N: [access([S], {S: 1}), access([T], {T: 1})]}
    assert groups(accesses) == [IndependentLoops((R, S, T), EXTENT, {M: Slicing(4, 1, 0), N: Slicing(1, 1, 0)})]
    accesses[N][1] = access([T], {T: 2})
    assert groups(accesses) == []


def test_memory_with_a_copy_per_iteration_needs_no_slices():
    accesses = {M: [access([R, S], {S: 1}), access([R, T], {T: 1}, is_store=False)]}
    found = {g.loops: g.slicings for g in groups(accesses, private={M: (R,)})}
    assert found == {(R,): {}, (S, T): {M: Slicing(1, 1, 0)}}
    assert not any(R in g.loops for g in groups(accesses))


def test_the_last_iterations_of_a_group_are_evaluated_apart_in_all_its_loops():
    """The last row holds 1. A nest of its own fills the memory that is stored."""

    def kernel(limit):
        x, out = (b.param(k, (ROWS * COLUMNS,), dt.float32) for k in (1, 0))
        kept = b.buffer(ROWS * COLUMNS, dt.float32, addrspace=AddrSpace.REG)

        def choose(i, value):
            return UOp(Op.WHERE, (b.lt(i, limit), value, b.const(1.0)))

        fill = nest(0, ROWS, COLUMNS, lambda i, j: b.store(b.at(kept, straight(i, j)), choose(i, b.load(b.at(x, straight(i, j))))))
        filled = b.after(kept, fill)
        return b.sink(nest(2, ROWS, COLUMNS, lambda k, m: b.store(b.at(out, straight(k, m)), b.load(b.at(filled, straight(k, m))))))

    x, out = (b.param(k, (ROWS * COLUMNS,), dt.float32) for k in (1, 0))
    plain = b.sink(
        nest(
            0, ROWS, COLUMNS,
            lambda i, j: b.store(
                b.at(out, at := straight(i, j)), UOp(Op.WHERE, (b.lt(i, ROWS - 1), b.load(b.at(x, at)), b.const(1.0)))
            ),
        )
    )  # fmt: skip
    assert compare_values(plain, kernel(ROWS - 1), {}) == Comparison(True)
    assert not compare_values(plain, kernel(ROWS - 2), {}).is_equal and not compare_values(plain, kernel(1), {}).is_equal
