"""Sums over loops of which one iteration stands for all: equal where they are, in any order, and nowhere else.

The sums of SIZE terms are too large to be evaluated term by term.
"""

import numpy as np
import pytest

from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.validate.fingerprints.compare import Comparison, compare_values
from uops.compiler.validate.fingerprints.integers import Counter, Integer
from uops.compiler.validate.fingerprints.slices import MemoryAccess, Slicing, find_independent_loops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, LoadArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

SIZE = 1 << 23
FEW = 600


def element(slot, position, d=dt.float32, size=SIZE):
    return b.load(b.at(b.param(slot, (size,), d), position))


def loop(extent, axis):
    return b.range_(extent, axis, AxisType.REDUCE)


def total(term, *loops, op=Op.ADD):
    return UOp(Op.REDUCE, (term, *loops), ReduceArg(op, ()))


def stored(value):
    """A body that stores one value."""
    return b.sink(b.store(b.at(b.param(0, (1,), value.dtype), 0), value))


class Accumulators:
    """Instructions that keep sums in registers."""

    def __init__(self):
        self.count = 0

    def add_in_loops(self, make_term, *loops, first=0.0, d=dt.float32, after=()):
        """Return a value: what a register holds after the loops, outermost first, each of which adds a term."""
        self.count += 1
        register = b.buffer(1, d, addrspace=AddrSpace.REG, unique=self.count)
        begun = b.store(b.at(b.after(register, *after) if after else register, 0), b.const(first, d))
        at = b.at(b.after(register, begun, *loops), 0)
        step = b.store(at, b.add(b.load(at), make_term()))
        for r in reversed(loops):
            step = b.end(step, r)
        return b.load(b.at(b.after(register, step), 0))


def instructions(value):
    return linearize_kernel(stored(value))


def sum_of(make_term, *loops, **options):
    return instructions(Accumulators().add_in_loops(make_term, *loops, **options))


R = loop(SIZE, 1)
BODY = stored(total(b.mul(element(1, R), element(2, R)), R))


def test_a_sum_of_any_size_is_that_of_its_loop():
    def product(r):
        return lambda: b.mul(element(2, r), element(1, r))

    assert compare_values(BODY, sum_of(product(R), R), {}) == Comparison(True)
    q = loop(SIZE, 7)
    assert compare_values(BODY, sum_of(product(q), q), {}) == Comparison(True)


@pytest.mark.parametrize(
    "make",
    [
        lambda r: sum_of(lambda: b.mul(element(1, r), element(1, r)), r),
        lambda r: sum_of(lambda: b.mul(element(1, r), element(2, b.mul(r, 0))), r),
        lambda r: sum_of(lambda: b.mul(element(1, r), element(2, b.sub(SIZE - 1, r))), r),
        lambda r: sum_of(lambda: b.add(element(1, r), element(2, r)), r),
        lambda r: sum_of(lambda: b.mul(element(1, r), element(2, r)), r, first=1.0),
        lambda r: instructions(b.mul(element(1, 0), element(2, 0))),
    ],
    ids=["x * x", "one y", "y reversed", "x + y", "and one more", "first term"],
)
def test_sums_of_other_terms_differ(make):
    assert not compare_values(BODY, make(R), {}).is_equal


def test_a_sum_of_fewer_terms_differs():
    for n in (SIZE - 1, SIZE // 2):
        q = loop(n, 1)
        assert not compare_values(BODY, sum_of(lambda q=q: b.mul(element(1, q), element(2, q)), q), {}).is_equal


def test_a_sum_in_parts_of_a_loop_is_the_sum():
    """Four in each iteration, four blocks, and both."""
    body = stored(total(element(1, R), R))

    def position(block, r, k, size, step):
        return b.add(b.add(b.mul(block, size * step), b.mul(r, step)), k)

    for blocks, step in ((1, 4), (4, 1), (4, 8)):
        size = SIZE // blocks // step
        block, r, k = loop(blocks, 1), loop(size, 2), loop(step, 3)
        right = sum_of(lambda: element(1, position(block, r, k, size, step)), block, r, k)  # noqa: B023
        assert compare_values(body, right, {}) == Comparison(True)
        wrong = sum_of(lambda: element(1, position(block, r, b.mul(k, 0), size, step)), block, r, k)  # noqa: B023
        if step > 1:
            assert not compare_values(body, wrong, {}).is_equal
        overlapping = sum_of(lambda: element(1, position(block, r, k, size - 1, step)), block, r, k)  # noqa: B023
        if blocks > 1:
            assert not compare_values(body, overlapping, {}).is_equal


def test_what_is_added_once_is_not_added_in_each_iteration():
    inside = stored(total(b.add(element(1, R), element(2, 0)), R))
    outside = stored(b.add(total(element(1, R), R), element(2, 0)))
    once = instructions(b.add(Accumulators().add_in_loops(lambda: element(1, R), R), element(2, 0)))
    often = sum_of(lambda: b.add(element(1, R), element(2, 0)), R)
    assert compare_values(outside, once, {}) == Comparison(True) and compare_values(inside, often, {}) == Comparison(True)
    assert not compare_values(inside, once, {}).is_equal and not compare_values(outside, often, {}).is_equal


def test_counters_of_sums_are_bound():
    """Within a sum over d, copies of x[d] are no sum over c of x[c], though both loops have one extent."""
    c, d = loop(SIZE, 1), loop(SIZE, 2)
    body = stored(total(b.mul(element(2, d), total(element(1, c), c)), d))
    registers = Accumulators()
    hoisted = registers.add_in_loops(lambda: element(1, c), c)
    right = instructions(registers.add_in_loops(lambda: b.mul(element(2, d), hoisted), d))
    assert compare_values(body, right, {}) == Comparison(True)
    nested = Accumulators()
    copies = instructions(
        nested.add_in_loops(lambda: b.mul(element(2, d), nested.add_in_loops(lambda: element(1, d), c, after=(d,))), d)
    )
    assert not compare_values(body, copies, {}).is_equal
    same = Accumulators()
    together = instructions(same.add_in_loops(lambda: b.mul(element(2, d), b.mul(element(1, d), float(SIZE))), d))
    assert not compare_values(body, together, {}).is_equal


def test_nested_loops_of_one_extent_are_not_exchanged():
    n = FEW
    c, d = loop(n, 1), loop(n, 2)

    def term(outer, inner):
        return b.mul(element(1, b.add(b.mul(outer, n), inner), size=n * n), element(2, outer, size=n))

    body = stored(total(term(c, d), c, d))
    assert compare_values(body, sum_of(lambda: term(c, d), c, d), {}) == Comparison(True)
    assert compare_values(body, sum_of(lambda: term(c, d), d, c), {}) == Comparison(True)
    assert compare_values(body, sum_of(lambda: term(d, c), c, d), {}) == Comparison(True)  # renamed
    mixed = b.mul(element(1, b.add(b.mul(c, n), d), size=n * n), element(2, d, size=n))
    assert not compare_values(body, sum_of(lambda: mixed, c, d), {}).is_equal


def test_a_product_of_sums_of_integers_is_no_sum_of_products():
    n, d = FEW * 8, dt.int32
    c, q = loop(n, 1), loop(n, 2)
    body = stored(b.mul(total(element(1, c, d, n), c), total(element(2, q, d, n), q)))
    registers = Accumulators()
    sums = [registers.add_in_loops(lambda k=k: element(k, c, d, n), c, first=0, d=d) for k in (1, 2)]
    assert compare_values(body, instructions(b.mul(*sums)), {}) == Comparison(True)
    products = Accumulators().add_in_loops(lambda: b.mul(element(1, c, d, n), element(2, c, d, n)), c, first=0, d=d)
    assert not compare_values(body, instructions(b.mul(products, b.const(n, d))), {}).is_equal
    many = Accumulators().add_in_loops(lambda: b.const(1, d), q, first=0, d=d)
    assert not compare_values(body, instructions(b.mul(products, many)), {}).is_equal


def test_what_the_last_iteration_leaves_is_no_sum():
    register = b.buffer(1, dt.float32, addrspace=AddrSpace.REG)
    last = b.end(b.store(b.at(b.after(register, R), 0), element(1, R)), R)
    left = instructions(b.load(b.at(b.after(register, last), 0)))
    assert not compare_values(stored(total(element(1, R), R)), left, {}).is_equal
    assert not compare_values(stored(element(1, 0)), left, {}).is_equal


def through_memory(position, first=64, inner=12):
    """A sum over memory that two loops fill, in one loop of as many iterations as both."""
    n = first * inner
    i, j, k = b.range_(first, 1), b.range_(inner, 2), loop(n, 3)
    panel = b.buffer(n, dt.float32, addrspace=AddrSpace.REG, unique=9)
    filled = b.end(b.end(b.store(b.at(panel, b.add(b.mul(i, inner), j)), element(1, b.add(b.mul(i, inner), j), size=n)), j), i)
    return sum_of(lambda: b.mul(b.load(b.at(b.after(panel, filled), position(k, n))), element(2, k, size=n)), k)


def test_a_sum_over_memory_that_other_loops_fill():
    def body(n):
        k = loop(n, 3)
        return stored(total(b.mul(element(1, k, size=n), element(2, k, size=n)), k))

    for first, inner in ((64, 12), (SIZE // 4, 4)):
        right = through_memory(lambda k, n: k, first, inner)
        assert compare_values(body(first * inner), right, {}) == Comparison(True)
        wrong = through_memory(lambda k, n: b.sub(n - 1, k), first, inner)
        assert not compare_values(body(first * inner), wrong, {}).is_equal


def test_a_loop_with_steps_loads_slices():
    first, whole = b.range_(64, 0), loop(64 * 9, 1)
    counters = {first: Counter(0, 0, 63), whole: Counter(1, 0, 575)}
    memory = b.buffer(64 * 9, dt.float32, addrspace=AddrSpace.REG)
    one = np.ones(1, np.int64)

    def access(r, factor, is_store):
        return MemoryAccess(frozenset([r]), Integer(one * 0, {counters[r]: one * factor}), is_store)

    def groups(accesses, with_steps=True):
        found = find_independent_loops({first: 64, whole: 576}, counters, {memory: accesses}, {memory: ()}, with_steps)
        return [(g.loops, g.extent, g.steps, g.slicings) for g in found if memory in g.slicings]

    load = access(whole, 1, False)
    assert groups([access(first, 9, True), load]) == [((first, whole), 64, {whole: 9}, {memory: Slicing(9, 9, 0)})]
    assert groups([access(first, 9, True), load], with_steps=False) == []
    assert groups([access(first, 9, False), access(whole, 1, True)]) == []
    assert groups([access(first, 8, True), load]) == []


@pytest.mark.parametrize("blocks", [2, 3])
def test_the_first_block_of_a_sum_may_clear_the_output(blocks):
    """Blocks of a sum are added to the output, which the first one does not load."""
    rows, size = 1 << 14, 512
    body_row, whole = b.range_(rows, 0), loop(blocks * size, 1)
    n = rows * blocks * size

    def place(row, k):
        return b.add(b.mul(row, blocks * size), k)

    out = b.param(0, (rows,), dt.float32)
    body = b.sink(b.end(b.store(b.at(out, body_row), total(element(1, place(body_row, whole), size=n), whole)), body_row))

    def kernel(condition=lambda block: b.lt(0, block), alternative=0.0, stores=1):
        block, row, k = b.range_(blocks, 0), b.range_(rows, 1), loop(size, 2)
        registers = Accumulators()
        part = registers.add_in_loops(lambda: element(1, place(row, b.add(b.mul(block, size), k)), size=n), k, after=(block, row))
        at = b.at(b.after(out, block, row), row)
        kept = UOp(Op.LOAD, (at, b.const(alternative), condition(block)), LoadArg())
        step = b.store(at, b.add(kept, part))
        if stores == 2:
            again = b.at(b.after(out, step), row)
            step = b.store(again, b.add(b.load(again), element(1, place(row, 0), size=n)))
        return linearize_kernel(b.sink(b.end(b.end(step, row), block)))

    assert compare_values(body, kernel(), {}) == Comparison(True)
    for wrong in (
        kernel(lambda block: b.lt(1, block)),
        kernel(lambda block: b.lt(block, 1)),
        kernel(lambda block: b.lt(block, blocks)),
        kernel(alternative=1.0),
        kernel(stores=2),
    ):
        assert not compare_values(body, wrong, {}).is_equal


# Bodies with memory of their own


def joined(kept=lambda i, j: None, rows=300, columns=40, factor=2.0):
    """Row sums of x * x: a body that keeps products in memory of its own, which may be read at other elements."""
    x, out = b.param(1, (rows * columns,), dt.float32), b.param(0, (rows,), dt.float32)
    memory = b.buffer(rows * columns, dt.float32, addrspace=AddrSpace.LOCAL, unique=5)
    i, j, k = b.range_(rows, 0), b.range_(columns, 1), b.range_(rows, 2)
    r = loop(columns, 3)

    def place(row, column):
        return b.add(b.mul(row, columns), column)

    product = b.mul(b.load(b.at(x, place(i, j))), b.load(b.at(x, place(i, j))))
    filled = b.end(b.end(b.store(b.at(memory, place(i, j)), product), j), i)
    position = kept(k, r) or place(k, r)
    summed = total(b.load(b.at(b.after(memory, filled), position)), r)
    return b.sink(b.end(b.store(b.at(out, k), b.mul(summed, factor)), k))


def squares(rows=300, columns=40, column=lambda r: r):
    """The same row sums, without memory."""
    k, r = b.range_(rows, 0), loop(columns, 3)
    registers = Accumulators()
    x = element(1, b.add(b.mul(k, columns), column(r)), size=rows * columns)
    value = registers.add_in_loops(lambda: b.mul(x, x), r, after=(k,))
    out = b.param(0, (rows,), dt.float32)
    return linearize_kernel(b.sink(b.end(b.store(b.at(out, k), b.mul(value, 2.0)), k)))


def test_a_body_may_keep_values_in_memory_of_its_own():
    assert compare_values(joined(), squares(), {}) == Comparison(True)
    reversed_rows = joined(lambda k, r: b.add(b.mul(k, 40), b.sub(39, r)))
    assert compare_values(reversed_rows, squares(), {}) == Comparison(True)
    assert compare_values(reversed_rows, squares(column=lambda r: b.sub(39, r)), {}) == Comparison(True)
    for other in (
        joined(lambda k, r: b.add(b.mul(b.sub(299, k), 40), r)),
        joined(lambda k, r: b.mul(k, 40)),
        joined(lambda k, r: r),
        joined(factor=3.0),
    ):
        assert not compare_values(other, squares(), {}).is_equal


def test_a_body_that_reads_what_it_has_not_written_is_not_equal():
    """The memory is read in the loop that fills it, before and after its element is stored."""
    x, out = b.param(1, (5000,), dt.float32), b.param(0, (5000,), dt.float32)

    def kernel(is_stored_first):
        memory, i = b.buffer(5000, dt.float32, addrspace=AddrSpace.LOCAL, unique=5), b.range_(5000, 0)
        store = b.store(b.at(b.after(memory, i), i), b.load(b.at(x, i)))
        if is_stored_first:
            return b.sink(b.end(b.store(b.at(out, i), b.load(b.at(b.after(memory, store), i))), i))
        read = b.store(b.at(out, i), b.load(b.at(b.after(memory, i), i)))
        return b.sink(b.end(b.store(b.at(b.after(memory, read), i), b.load(b.at(x, i))), i))

    i = b.range_(5000, 0)
    copy = linearize_kernel(b.sink(b.end(b.store(b.at(out, i), b.load(b.at(x, i))), i)))
    assert compare_values(kernel(True), copy, {}) == Comparison(True)
    assert not compare_values(kernel(False), copy, {}).is_equal


# Divided counters


def transposed(n, rows, wrong=0):
    """The transpose of a matrix, in one loop whose counter gives row and column."""
    x, out = b.param(1, (n,), dt.float32), b.param(0, (n,), dt.float32)
    i = b.range_(n, 0)
    row, column = (UOp(op, (i, b.index(n // rows))) for op in (Op.IDIV, Op.MOD))
    at = b.add(b.mul(column, rows), row)
    return b.sink(b.end(b.store(b.at(out, b.add(at, wrong) if wrong else at), b.load(b.at(x, i))), i))


def test_a_counter_is_divided_where_positions_divide_it():
    rows, columns = 1 << 11, 1 << 12
    n = rows * columns
    x, out = b.param(1, (n,), dt.float32), b.param(0, (n,), dt.float32)
    i, j = b.range_(rows, 0), b.range_(columns, 1)
    two_loops = b.sink(
        b.end(b.end(b.store(b.at(out, b.add(b.mul(j, rows), i)), b.load(b.at(x, b.add(b.mul(i, columns), j)))), j), i)
    )
    assert compare_values(two_loops, linearize_kernel(transposed(n, rows)), {}) == Comparison(True)
    assert not compare_values(two_loops, linearize_kernel(transposed(n, columns)), {}).is_equal
    assert not compare_values(two_loops, linearize_kernel(transposed(n, rows, wrong=1)), {}).is_equal


# Gates and chains


def test_elements_beyond_a_gate_are_shared_by_none():
    """Tiles of 6 rows fill memory of 128 rows: the gate of the last tile keeps 2 of its Stores."""
    rows, columns = 128, 64
    x, out = b.param(1, (rows * columns,), dt.float32), b.param(0, (rows * columns,), dt.float32)
    k, m = b.range_(rows, 0), b.range_(columns, 1)
    at = b.add(b.mul(k, columns), m)
    body = b.sink(b.end(b.end(b.store(b.at(out, at), b.mul(b.load(b.at(x, at)), 2.0)), m), k))

    def kernel(limit):
        memory = b.buffer(rows * columns, dt.float32, addrspace=AddrSpace.LOCAL, unique=5)
        tile, j = b.range_(22, 2), b.range_(columns, 3)
        stores = []
        for step in range(6):
            row = b.add(b.mul(tile, 6), step)
            place = b.add(b.mul(row, columns), j)
            gate = b.lt(row, limit)
            value = UOp(Op.LOAD, (b.at(x, place), b.const(0.0), gate), LoadArg())
            stores.append(UOp(Op.STORE, (b.at(memory, place), value, gate)))
        filled = b.end(b.end(b.group(*stores), j), tile)
        read = b.load(b.at(b.after(memory, filled), at))
        return linearize_kernel(b.sink(b.end(b.end(b.store(b.at(out, at), b.mul(read, 2.0)), m), k)))

    assert compare_values(body, kernel(rows), {}) == Comparison(True)
    assert not compare_values(body, kernel(rows - 1), {}).is_equal


def test_a_chain_beside_an_unrolled_sum_keeps_its_groups():
    """Four terms of a sum in each iteration, and sums of two values beside it, which are no parts of one sum."""
    y, z, v, w = (element(k, 0, size=1) for k in (2, 3, 4, 5))
    r, q = loop(SIZE, 1), loop(SIZE // 4, 2)
    body = stored(b.add(b.mul(total(element(1, r), r), b.add(y, z)), b.add(b.add(v, w), b.add(y, v))))

    def kernel(combine):
        def chain():
            first, *others = (element(1, b.add(b.mul(q, 4), k)) for k in range(4))
            for x in others:
                first = b.add(first, x)
            return first

        value = Accumulators().add_in_loops(chain, q)
        return instructions(b.add(b.mul(value, b.add(y, z)), combine))

    assert compare_values(body, kernel(b.add(b.add(v, w), b.add(y, v))), {}) == Comparison(True)
    assert not compare_values(body, kernel(b.add(v, b.add(w, b.add(y, v)))), {}).is_equal
    assert not compare_values(body, kernel(b.add(b.add(v, v), b.add(y, w))), {}).is_equal
