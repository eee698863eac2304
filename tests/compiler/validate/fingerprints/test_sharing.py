"""Accumulators are sums only where each iteration adds to what the one before it left; other texts are not proved, nor refuted."""

import pytest

from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.validate.fingerprints.compare import Comparison, compare_values
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, LoadArg, ReduceArg, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def element(slot, position, size):
    return b.load(b.at(b.param(slot, (size,), dt.float32), position))


def loop(extent, axis):
    return b.range_(extent, axis, AxisType.REDUCE)


def total(term, *loops):
    return UOp(Op.REDUCE, (term, *loops), ReduceArg(Op.ADD, ()))


def close(effect, *loops):
    for r in reversed(loops):
        effect = b.end(effect, r)
    return effect


def stored(value, size=1):
    return b.sink(b.store(b.at(b.param(0, (size,), dt.float32), 0), value))


def gated(address, alternative, gate):
    return UOp(Op.LOAD, (address, b.const(alternative), gate), LoadArg())


def register(unique=1):
    """Memory of one element, which holds 0."""
    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=unique)
    return memory, b.store(b.at(memory, 0), b.const(0.0))


def held(memory, effect):
    return b.load(b.at(b.after(memory, effect), 0))


def sum_of_both(n):
    r = loop(n, 1)
    return stored(b.add(total(element(1, r, n), r), total(element(2, r, n), r)))


def add_one_and_the_other(n, is_lost=False):
    """In each iteration x is added, and then y: to what x left, or to what was there before."""
    memory, zero = register()
    r = loop(n, 1)
    before = b.load(b.at(b.after(memory, zero, r), 0))
    first = b.store(b.at(b.after(memory, zero, r), 0), b.add(before, element(1, r, n)))
    left = before if is_lost else b.load(b.at(b.after(memory, first), 0))
    second = b.store(b.at(b.after(memory, first), 0), b.add(left, element(2, r, n)))
    return stored(held(memory, close(second, r)))


@pytest.mark.parametrize("n", [100, 10_000])
def test_an_update_between_load_and_store_is_lost(n):
    assert compare_values(sum_of_both(n), linearize_kernel(add_one_and_the_other(n)), {}) == Comparison(True)
    lost = compare_values(sum_of_both(n), linearize_kernel(add_one_and_the_other(n, is_lost=True)), {})
    assert lost == Comparison(None, "an accumulator is stored between its Load and its Store")


def sum_of_matrix(rows, columns, is_hoisted):
    memory, zero = register()
    i, k = loop(rows, 1), loop(columns, 2)
    before = b.load(b.at(b.after(memory, zero, i) if is_hoisted else b.after(memory, zero, i, k), 0))
    step = b.store(b.at(b.after(memory, zero, i, k), 0), b.add(before, element(1, b.add(b.mul(i, columns), k), rows * columns)))
    return stored(held(memory, close(step, i, k)))


@pytest.mark.parametrize(("rows", "columns"), [(4, 16), (600, 600)])
def test_an_accumulator_is_loaded_in_the_loop_that_adds_to_it(rows, columns):
    i, k = loop(rows, 1), loop(columns, 2)
    body = stored(total(element(1, b.add(b.mul(i, columns), k), rows * columns), i, k))
    assert compare_values(body, linearize_kernel(sum_of_matrix(rows, columns, False)), {}) == Comparison(True)
    hoisted = compare_values(body, linearize_kernel(sum_of_matrix(rows, columns, True)), {})
    assert hoisted == Comparison(None, "an accumulator is loaded outside of the loop that adds to it")


def test_prefix_sums_load_in_each_iteration():
    def kernel(is_hoisted):
        rows, columns = 8, 16
        i, k = b.range_(rows, 1), b.range_(columns, 2)
        memory, zero = register()
        before = b.load(b.at(b.after(memory, zero, i) if is_hoisted else b.after(memory, zero, i, k), 0))
        value = b.add(before, element(1, at := b.add(b.mul(i, columns), k), rows * columns))
        step = b.store(b.at(b.after(memory, zero, i, k), 0), value)
        out = b.param(0, (rows * columns,), dt.float32)
        return linearize_kernel(b.sink(close(b.store(b.at(b.after(out, step), at), value), i, k)))

    n = 128
    i, r = b.range_(n, 8), loop(n, 9)
    term = UOp(Op.WHERE, (b.lt(r, b.add(i, 1)), element(1, r, n), b.const(0.0)))
    body = b.sink(b.end(b.store(b.at(b.param(0, (n,), dt.float32), i), total(term, r)), i))
    assert compare_values(body, kernel(False), {}) == Comparison(True)
    assert not compare_values(body, kernel(True), {}).is_equal


def test_an_accumulator_that_is_cleared_and_stored_again_is_no_other_value():
    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
    block = b.range_(2, 0)
    five = b.store(b.at(memory, 0), b.const(5.0))
    at = b.at(b.after(memory, five, block), 0)
    again = close(b.store(at, gated(at, 7.0, b.lt(0, block))), block)
    assert not compare_values(stored(b.const(5.0)), linearize_kernel(stored(held(memory, again))), {}).is_equal


@pytest.mark.parametrize("is_wrong", [False, True])
def test_lanes_are_no_loop_of_a_sum(is_wrong):
    """Each lane sums a row, and has a Store to shared memory that its gate never lets happen."""
    n = 600
    i, c = b.range_(n, 0), loop(n, 1)
    out = b.param(0, (n,), dt.float32)
    body = b.sink(b.end(b.store(b.at(out, i), total(element(1, b.add(b.mul(i, n), c), n * n), c)), i))
    lane = UOp(Op.SPECIAL, (b.const(n, dt.index),), SpecialArg("lidx0"))
    shared = b.buffer(1, dt.float32, addrspace=AddrSpace.LOCAL, unique=5)
    never = b.store(b.at(shared, 0), b.const(1.0), b.lt(b.add(lane, n), n))
    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=6)
    zero = b.store(b.at(b.after(memory, never), 0), b.const(0.0))
    at = b.at(b.after(memory, zero, c), 0)
    position = b.add(b.mul(c, n), lane) if is_wrong else b.add(b.mul(lane, n), c)
    step = b.end(b.store(at, b.add(b.load(at), element(1, position, n * n))), c)
    lanes = linearize_kernel(b.sink(b.store(b.at(out, lane), held(memory, step))))
    assert compare_values(body, lanes, {}).is_equal is not is_wrong


@pytest.mark.parametrize("n", [8, 1 << 14])
def test_a_loop_without_iterations_stores_nothing(n):
    i, z = b.range_(n, 0), b.range_(0, 1)
    out = b.param(0, (n,), dt.float32)

    def body(slot):
        return b.sink(b.end(b.store(b.at(out, i), element(slot, i, n)), i))

    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
    first = b.store(b.at(b.after(memory, i), 0), element(1, i, n))
    never = b.end(b.store(b.at(b.after(memory, first, z), 0), element(2, i, n)), z)
    kernel = linearize_kernel(b.sink(b.end(b.store(b.at(out, i), held(memory, never)), i)))
    assert compare_values(body(1), kernel, {}) == Comparison(True)
    assert not compare_values(body(2), kernel, {}).is_equal


def test_a_value_that_is_added_often_keeps_its_fingerprint():
    loops = [loop(1 << 16, k) for k in range(4)]
    memory, zero = register()
    at = b.at(b.after(memory, zero, *loops), 0)
    for term in (lambda: element(1, 0, 1), lambda: b.const(3.0)):
        kernel = stored(held(memory, close(b.store(at, b.add(b.load(at), term())), *loops)))
        assert not compare_values(stored(b.const(0.0)), linearize_kernel(kernel), {}).is_equal


# Not refuted


@pytest.mark.parametrize("n", [8, 1 << 14])
def test_equal_kernels_of_other_terms_are_not_refuted(n):
    i = b.range_(n, 0)
    out, flags = b.param(0, (n,), dt.float32), b.param(3, (n,), dt.bool_)
    flag = b.load(b.at(flags, i))
    plain = b.sink(b.end(b.store(b.at(out, i), element(1, i, n)), i))
    masked = b.sink(b.end(b.store(b.at(out, i), UOp(Op.WHERE, (flag, element(1, i, n), b.const(0.0)))), i))

    twice = b.store(b.at(b.after(out, b.store(b.at(out, i), b.const(0.0))), i), element(1, i, n))
    assert compare_values(plain, linearize_kernel(b.sink(b.end(twice, i))), {}).is_equal is not False

    some = UOp(Op.STORE, (b.at(b.after(out, b.store(b.at(out, i), b.const(0.0))), i), element(1, i, n), flag))
    assert compare_values(masked, linearize_kernel(b.sink(b.end(some, i))), {}).is_equal is not False

    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
    first = UOp(Op.STORE, (b.at(b.after(memory, i), 0), element(2, 0, 1), b.lt(i, 1)))
    carried = b.store(b.at(out, i), b.mul(held(memory, first), element(1, i, n)))
    by_first = b.sink(b.end(b.store(b.at(out, i), b.mul(element(2, 0, 1), element(1, i, n))), i))
    assert compare_values(by_first, linearize_kernel(b.sink(b.end(carried, i))), {}).is_equal is not False


@pytest.mark.parametrize("n", [8, 600])
def test_memory_that_was_never_stored_is_equal_in_no_two_texts(n):
    def kernel(factor):
        i, memory = b.range_(n, 0), b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
        out = b.param(0, (n,), dt.float32)
        last = b.store(b.at(out, i), gated(b.at(b.after(memory, i), 0), 0.0, b.lt(0, i)))
        keep = b.store(b.at(b.after(memory, last), 0), b.mul(element(1, i, n), factor))
        return b.sink(b.end(keep, i))

    assert not compare_values(kernel(1.0), linearize_kernel(kernel(2.0)), {}).is_equal


def test_an_element_that_two_counters_reach_is_not_refuted():
    """Positions 2 i + j, and i beside i + 1: later iterations write over what earlier ones wrote."""
    n = 1 << 14
    out = b.param(0, (n + 2,), dt.float32)
    i, j = b.range_(n, 0), b.range_(2, 1)
    body = b.sink(b.end(b.store(b.at(b.param(0, (n + 2,), dt.float32), i), b.const(1.0)), i))
    overlapping = b.sink(close(b.store(b.at(out, b.add(i, j)), UOp(Op.WHERE, (b.lt(j, 1), b.const(1.0), b.const(2.0)))), i, j))
    assert compare_values(body, linearize_kernel(overlapping), {}).is_equal is not False
    first = b.store(b.at(out, b.add(i, 1)), b.const(2.0))
    beside = b.sink(b.end(b.store(b.at(b.after(out, first), i), b.const(1.0)), i))
    assert compare_values(body, linearize_kernel(beside), {}).is_equal is not False
    plain = b.sink(b.end(b.store(b.at(out, i), b.const(2.0)), i))
    assert compare_values(body, linearize_kernel(plain), {}).is_equal is False


# Outputs and memory that several Stores or iterations write


@pytest.mark.parametrize("n", [4, 1 << 14])
def test_two_stores_of_one_loop_may_write_one_element(n):
    """Each iteration stores 0, and then the element after it: all but the last are overwritten."""
    i = b.range_(n, 0)
    out = b.param(0, (n + 1,), dt.float32)
    zero = b.store(b.at(out, i), b.const(0.0))
    following = b.store(b.at(b.after(out, zero), b.add(i, 1)), element(1, b.add(i, 1), n + 1))
    p = b.range_(n + 1, 0)
    value = UOp(Op.WHERE, (b.lt(p, 1), b.const(0.0), element(1, p, n + 1)))
    body = b.sink(b.end(b.store(b.at(out, p), value), p))
    assert not compare_values(body, linearize_kernel(b.sink(b.end(following, i))), {}).is_equal


@pytest.mark.parametrize("n", [4, 5000])
def test_a_store_under_a_condition_on_memory_keeps_what_an_earlier_one_wrote(n):
    i = b.range_(n, 0)
    out, flag = b.param(0, (n,), dt.float32), b.load(b.at(b.param(3, (n,), dt.bool_), i))
    some = UOp(Op.STORE, (b.at(out, i), element(1, i, n), flag))
    seven = b.store(b.at(out, i), b.const(7.0))
    both = UOp(Op.STORE, (b.at(b.after(out, seven), i), element(1, i, n), flag))
    body = b.sink(b.end(some, i))
    assert not compare_values(body, linearize_kernel(b.sink(b.end(both, i))), {}).is_equal


@pytest.mark.parametrize("columns", [4, 3000])
@pytest.mark.parametrize("rows", [4, 6])
def test_a_body_whose_iterations_store_one_element_is_not_solved(columns, rows):
    """Position 3 j + i of more than 3 rows i: the last row that reaches an element stores it, and not the first."""
    n = 3 * columns + 3
    i, j = b.range_(rows, 0), b.range_(columns, 1)
    out = b.param(0, (n,), dt.float32)
    body = b.sink(close(b.store(b.at(out, b.add(b.mul(j, 3), i)), element(1, b.add(b.mul(i, columns), j), rows * columns)), i, j))
    p = b.range_(3 * columns, 0)
    row, column = UOp(Op.MOD, (p, b.index(3))), UOp(Op.IDIV, (p, b.index(3)))
    first = b.store(b.at(out, p), element(1, b.add(b.mul(row, columns), column), rows * columns))
    assert not compare_values(body, linearize_kernel(b.sink(b.end(first, p))), {}).is_equal


def test_an_element_that_several_iterations_store_is_not_refuted():
    n = 1 << 13
    i, p = b.range_(n, 0), b.range_(n // 2, 0)
    out = b.param(0, (n // 2,), dt.float32)
    twice = b.sink(b.end(b.store(b.at(out, UOp(Op.IDIV, (i, b.index(2)))), element(1, i, n)), i))
    body = b.sink(b.end(b.store(b.at(out, p), element(1, b.add(b.mul(p, 2), 1), n)), p))
    assert compare_values(body, linearize_kernel(twice), {}).is_equal is not False


def test_a_counter_is_not_divided_by_its_own_extent():
    """(2 i + 5 j) // 4 is j, where i and j are below 2."""
    n = 3000
    out, size = b.param(0, (4 * n,), dt.float32), 4 * n

    def kernel(column):
        j, i, t = b.range_(2, 0), b.range_(2, 1), b.range_(n, 2)
        at = b.add(b.mul(t, 4), b.add(b.mul(column(i, j), 2), i))
        place = b.add(b.mul(t, 4), b.add(b.mul(j, 2), i))
        return b.sink(close(b.store(b.at(out, place), element(1, at, size)), j, i, t))

    divided = kernel(lambda i, j: UOp(Op.IDIV, (b.add(b.mul(i, 2), b.mul(j, 5)), b.index(4))))
    assert compare_values(kernel(lambda i, j: j), linearize_kernel(divided), {}).is_equal is not False
