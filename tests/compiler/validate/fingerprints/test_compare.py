"""The comparison of kernels: what the compiler makes is equal, and one changed node in it is not."""

import functools

import numpy as np
import pytest

from uops.backends.registry import create_backend
from uops.compiler import Config
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.tensor import Tensor, capture
from uops.compiler.validate.fingerprints.compare import (
    MAX_ENUMERATED,
    Comparison,
    compare_values,
)
from uops.compiler.validate.fingerprints.elements import count_elements_if_all_are_stored
from uops.compiler.validate.fingerprints.windows import find_sliding_windows
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ConstArg, LoadArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory


def tensor(*shape, dtype=np.float32):
    return Tensor.from_numpy(np.zeros(shape, dtype))


PROGRAMS = {
    "sum": lambda: tensor(64, 100).sum(1),
    "epilogue": lambda: tensor(64, 96).sum(1) * 2.0 + tensor(64),
    "greatest": lambda: tensor(33, 65).max(1),
    "product": lambda: tensor(33, 65) @ tensor(65, 47),
    "large product": lambda: tensor(192, 128) @ tensor(128, 256),
    "product of halves": lambda: tensor(32, 64, dtype=np.float16) @ tensor(64, 48, dtype=np.float16),
    "normalization": lambda: tensor(16, 96) / (tensor(16, 96).sum(1, keepdim=True) + 1.0),
    "transpose": lambda: tensor(64, 100).T + 1.0,
    "pad": lambda: tensor(30, 50).pad(((1, 2), (3, 4))) * 2.0,
    "gather": lambda: tensor(100, 8)[tensor(20, dtype=np.int32)],
    "prefix sums": lambda: tensor(300).cumsum(0),
    "large prefix sums": lambda: tensor(1 << 18).cumsum(0),
    "integers": lambda: (tensor(64, 100, dtype=np.int32) * 3 + 7).sum(1) % 5,
}
LARGE = ("large product", "product", "transpose")


@functools.cache
def lowered(name, backend):
    """The pairs of a body and its instructions before decompositions, of each kernel of a program."""
    graph = capture(PROGRAMS[name]()).graph
    graphs, steps, _ = record_lowering_up_to_plan(graph, create_backend(backend).target, Config(reuse=False))
    return [(old.body, linearize_kernel(new.body)) for old, new in zip(graphs["join"].src, steps["widths"].src, strict=True)]


@pytest.mark.parametrize("backend", ["llvm", "c", "opencl"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_compiler_makes_stores_the_same_terms(name, backend):
    pairs = lowered(name, backend)
    assert pairs and all(old is not new for old, new in pairs)
    assert [compare_values(old, new, {}) for old, new in pairs] == [Comparison(True)] * len(pairs)


def test_large_kernels_are_compared_without_all_iterations():
    for name in LARGE:
        for _, new in lowered(name, "c"):
            loops = [u for u in toposort(new) if u.op is Op.RANGE]
            total = 1
            for r in loops:
                total *= r.bound.arg.value
            assert total > MAX_ENUMERATED, name


SWAPPED = {Op.ADD: Op.SUB, Op.MUL: Op.ADD, Op.MAX: Op.MIN, Op.SUB: Op.ADD, Op.DIV: Op.MUL, Op.RECIP: Op.NEG, Op.EXP2: Op.SIN}


def changed_nodes(linear):
    """Each node of a list that computes, and another one in its place."""
    for u in toposort(linear):
        if u.op is Op.CONST and u.dtype.is_float and abs(u.arg.value) < 1e30 and u.arg.value != 0:
            yield u, u.replace(arg=ConstArg(u.arg.value * 2, u.dtype))
        elif u.op in SWAPPED:
            yield u, UOp(SWAPPED[u.op], u.src, u.arg)
        elif u.op is Op.MULACC:
            yield u, UOp(Op.MULACC, (u.lhs, u.lhs, u.addend))
        elif u.op is Op.LOAD and base_memory(u.buffer).op is Op.PARAM and u.buffer.op is Op.INDEX:
            (position,) = u.buffer.positions
            moved = UOp(Op.MUL, (position, like(position, 0)))
            yield u, u.replace(src=(u.buffer.replace(src=(u.buffer.operand, moved)), *u.src[1:]))


def like(u, value):
    """A constant of the dtype and lanes of a node."""
    c = b.const(value, u.dtype)
    return b.stack(*[c] * u.shape[0]) if u.shape else c


@pytest.mark.parametrize("backend", ["llvm", "c"])
@pytest.mark.parametrize(
    "name", ["sum", "epilogue", "greatest", "product", "large product", "normalization", "transpose", "gather", "prefix sums"]
)
def test_one_changed_node_is_seen(name, backend):
    """A change of what memory or a value is must not count as equal; one of an index may not be comparable."""
    total = 0
    for old, new in lowered(name, backend):
        in_use = needed_for_values(new)
        changes = [(u, other) for u, other in changed_nodes(new) if u in in_use]
        for u, other in changes[:: -(-len(changes) // 24)]:  # the nodes of tiles are alike
            total += 1
            wrong = substitute(new, {u: other})
            assert not compare_values(old, wrong, {}).is_equal, (u, u.src)
    assert total >= 1


def needed_for_values(linear):
    """The nodes that values of Stores need, without positions and gates."""
    seen, stack = set(), [u.value for u in linear.src if u.op is Op.STORE]
    while stack:
        u = stack.pop()
        if u in seen or u.op in MEMORY_ROOTS:
            continue
        seen.add(u)
        stack += [u.buffer] if u.op in (Op.LOAD, Op.AFTER) else [] if u.op is Op.INDEX and u.dtype is not dt.void else list(u.src)
        if u.op is Op.INDEX and base_memory(u.operand).op not in MEMORY_ROOTS:
            stack.append(u.operand)
    return seen


def test_a_store_that_is_missing_in_a_list_of_two_arguments_is_seen():
    x = b.param(2, (8,), dt.float32)
    r = b.range_(8, 0)
    stores = [b.store(b.at(b.param(k, (8,), dt.float32), r), b.load(b.at(x, r))) for k in (0, 1)]
    both, one = b.sink(b.end(b.group(*stores), r)), b.sink(b.end(stores[0], r))
    assert compare_values(both, both, {}).is_equal
    assert compare_values(both, one, {}).is_equal is False and compare_values(one, both, {}).is_equal is False


def copy_kernel(n, position, value=lambda x, r: b.load(b.at(x, r))):
    r = b.range_(n, 0)
    x = b.param(1, (n,), dt.float32)
    return b.sink(b.end(b.store(b.at(b.param(0, (n,), dt.float32), position(r)), value(x, r)), r))


@pytest.mark.parametrize("n", [8, 1 << 20])
def test_values_in_other_places_differ(n):
    straight = copy_kernel(n, lambda r: r)
    backwards = copy_kernel(n, lambda r: b.sub(n - 1, r), lambda x, r: b.load(b.at(x, b.sub(n - 1, r))))
    wrong = copy_kernel(n, lambda r: b.sub(n - 1, r))
    assert compare_values(straight, backwards, {}).is_equal and not compare_values(straight, wrong, {}).is_equal


def test_uninitialized_memory_is_equal_to_nothing():
    r, x = b.range_(8, 0), b.param(1, (8,), dt.float32)
    memory = b.buffer(8, dt.float32, addrspace=b.A.AddrSpace.REG)
    filled = b.after(memory, b.end(b.store(b.at(memory, r), b.load(b.at(x, r))), r))
    s = b.range_(8, 1)
    read = lambda m: b.sink(b.end(b.store(b.at(b.param(0, (8,), dt.float32), s), b.load(b.at(m, s))), s))  # noqa: E731
    half = b.range_(4, 2)
    some = b.after(memory, b.end(b.store(b.at(memory, half), b.load(b.at(x, half))), half))
    assert compare_values(copy_kernel(8, lambda r: r), read(filled), {}).is_equal
    assert not compare_values(copy_kernel(8, lambda r: r), read(some), {}).is_equal


X, OUT = b.param(1, (16,), dt.float32), b.param(0, (16,), dt.float32)


def registers(size):
    """Memory of a kernel, and what has zero in each of its elements."""
    memory, r = b.buffer(size, dt.float32, addrspace=b.A.AddrSpace.REG), b.range_(size, 90)
    return memory, b.end(b.store(b.at(memory, r), b.const(0.0, dt.float32)), r)


def sum_kernel(n, position):
    """A Reduce of elements of X over n iterations."""
    r = b.range_(n, 0, AxisType.REDUCE)
    return b.sink(b.store(b.at(OUT, 0), UOp(Op.REDUCE, (b.load(b.at(X, position(r))), r), b.A.ReduceArg(Op.ADD))))


def accumulating_kernel(n, position, is_cleared_in_loop=False):
    """The same sum in a register; cleared in each iteration, it is the last element alone."""
    (memory, zero), r = registers(1), b.range_(n, 0, AxisType.REDUCE)
    acc = b.after(memory, zero, r)
    acc = b.after(memory, b.store(b.at(acc, 0), b.const(0.0, dt.float32))) if is_cleared_in_loop else acc
    step = b.store(b.at(acc, 0), b.add(b.load(b.at(acc, 0)), b.load(b.at(X, position(r)))))
    return b.sink(b.store(b.at(OUT, 0), b.load(b.at(b.after(memory, b.end(step, r)), 0))))


@pytest.mark.parametrize("position", [lambda r: r, lambda r: b.index(3)], ids=["each", "one"])
def test_a_sum_has_as_many_terms_as_its_loop_has_iterations(position):
    for make in (sum_kernel, accumulating_kernel):
        assert compare_values(sum_kernel(8, position), make(8, position), {}).is_equal
        assert compare_values(sum_kernel(8, position), make(4, position), {}).is_equal is False


def test_an_accumulator_that_is_cleared_in_the_loop_is_no_sum():
    assert not compare_values(sum_kernel(8, lambda r: r), accumulating_kernel(8, lambda r: r, is_cleared_in_loop=True), {}).is_equal


def copied(value):
    """A kernel whose element i of OUT is a value."""
    i = b.range_(8, 5)
    return b.sink(b.end(b.store(b.at(OUT, i), value(i)), i))


def test_what_an_earlier_iteration_stored_is_not_what_was_there_before():
    (memory, zero), r = registers(9), b.range_(8, 0)
    m = b.after(memory, zero, r)
    out = b.store(b.at(OUT, r), b.load(b.at(m, r)))
    carried = b.sink(b.end(b.store(b.at(b.after(memory, out), b.add(r, 1)), b.load(b.at(X, r))), r))
    assert not compare_values(copied(lambda i: b.const(0.0, dt.float32)), carried, {}).is_equal


def test_the_last_store_of_an_element_is_that_of_the_last_iteration():
    (memory, zero), r, y = registers(9), b.range_(8, 0), b.param(2, (16,), dt.float32)
    first = b.store(b.at(b.after(memory, zero, r), r), b.load(b.at(X, r)))
    second = b.store(b.at(b.after(memory, first), b.add(r, 1)), b.load(b.at(y, r)))  # written over in the next iteration
    filled = b.after(memory, b.end(second, r))
    body = copied(lambda i: b.where(b.lt(i, 1), b.load(b.at(X, i)), b.load(b.at(y, b.sub(UOp(Op.MAX, (i, b.index(1))), 1)))))
    assert not compare_values(body, copied(lambda i: b.load(b.at(filled, i))), {}).is_equal


def test_a_sum_that_wraps_is_no_wider_sum():
    x, y, out = (b.param(k, (8,), d) for k, d in ((1, dt.uint8), (2, dt.uint8), (0, dt.int32)))

    def kernel(value):
        r = b.range_(8, 0)
        return b.sink(b.end(b.store(b.at(out, r), value(b.load(b.at(x, r)), b.load(b.at(y, r)))), r))

    wide = kernel(lambda p, q: b.add(b.cast(p, dt.int32), b.cast(q, dt.int32)))
    assert not compare_values(wide, kernel(lambda p, q: b.cast(b.add(p, q), dt.int32)), {}).is_equal
    assert compare_values(wide, kernel(lambda p, q: b.add(b.cast(q, dt.int32), b.cast(p, dt.int32))), {}).is_equal


def test_a_reduce_that_wraps_is_no_wider_reduce():
    x, out = b.param(1, (8,), dt.int8), b.param(0, (1,), dt.int32)

    def kernel(value):
        r = b.range_(8, 0, AxisType.REDUCE)
        return b.sink(b.store(b.at(out, 0), value(r, lambda term: UOp(Op.REDUCE, (term, r), b.A.ReduceArg(Op.ADD)))))

    wide = kernel(lambda r, total: total(b.cast(b.load(b.at(x, r)), dt.int32)))
    assert compare_values(wide, wide, {}).is_equal
    assert not compare_values(wide, kernel(lambda r, total: b.cast(total(b.load(b.at(x, r))), dt.int32)), {}).is_equal


def test_what_is_not_evaluated_is_undecided_with_a_reason():
    x = b.param(1, (8,), dt.int32)
    r = b.range_(8, 0)
    scattered = b.sink(
        b.end(b.store(b.at(b.param(0, (8,), dt.int32), b.cast(b.load(b.at(x, r)), dt.index)), b.const(1, dt.int32)), r)
    )
    assert compare_values(scattered, scattered, {}) == Comparison(None, "the position of a Store is a value of memory")


def scan_in_parts(n, parts, starts=lambda part: part, first=0.0, writes_first=False):
    """A prefix sum: each part begins with the sum of those before it, and adds its elements in turn."""
    size = n // parts
    x, out = b.param(1, (n,), dt.float32), b.param(0, (n,), dt.float32)
    part = b.range_(parts, 0, AxisType.THREAD)
    earlier, k, i = b.range_(starts(part), 1, AxisType.REDUCE), b.range_(size, 2, AxisType.REDUCE), b.range_(size, 3)
    held = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
    before = UOp(Op.REDUCE, (b.load(b.at(x, b.add(b.mul(earlier, size), k))), earlier, k), ReduceArg(Op.ADD, ()))
    begun = b.store(b.at(b.after(held, part), 0), b.add(before, first) if first else before)
    at = b.at(b.after(held, begun, i), 0)
    element = b.add(b.mul(part, size), i)
    read = b.load(at)
    total = b.add(read, b.load(b.at(x, element)))
    stores = [b.store(at, total), b.store(b.at(out, element), read if writes_first else total)]
    return b.sink(b.end(b.end(b.group(*stores), i), part))


def test_a_prefix_sum_in_parts_is_one_and_others_are_not():
    for n, parts in ((12, 3), (1200, 4)):
        i, r = b.range_(n, 0), b.range_(n, 1, AxisType.REDUCE)
        x = b.param(1, (n,), dt.float32)
        s = b.add(i, r)
        term = UOp(Op.LOAD, (b.at(x, b.sub(s, n - 1)), b.const(0.0), UOp(Op.CMPGE, (s, b.index(n - 1)))), LoadArg())
        whole = b.sink(b.end(b.store(b.at(b.param(0, (n,), dt.float32), i), UOp(Op.REDUCE, (term, r), ReduceArg(Op.ADD, ()))), i))
        assert compare_values(whole, scan_in_parts(n, parts), {}) == Comparison(True)
        for wrong in (
            scan_in_parts(n, parts, lambda part: b.add(part, 1)),
            scan_in_parts(n, parts, lambda part: b.sub(part, 1)),
            scan_in_parts(n, parts, first=1.0),
            scan_in_parts(n, parts, writes_first=True),
        ):
            assert not compare_values(whole, wrong, {}).is_equal


def test_sums_of_sliding_windows_are_those_of_their_terms():
    """A window of n elements at each of m places, as all pairs and as differences of sums."""
    for m, n in ((300, 300), (70_000, 3), (3, 70_000)):
        i, r = b.range_(m, 0), b.range_(n, 1, AxisType.REDUCE)
        x = b.param(1, (m + n - 1,), dt.float32)

        def windows(position, i=i, r=r, m=m, x=x):
            summed = UOp(Op.REDUCE, (b.load(b.at(x, position)), r), ReduceArg(Op.ADD, ()))
            return b.sink(b.end(b.store(b.at(b.param(0, (m,), dt.float32), i), summed), i))

        assert find_sliding_windows(toposort(windows(b.add(i, r))), [i, r], (), ())
        assert not find_sliding_windows(toposort(windows(b.add(i, r))), [i, r], {i}, ())
        apart = windows(b.sub(i, b.neg(r)))  # of another form, so each pair has its term
        assert not find_sliding_windows(toposort(apart), [i, r], (), ())
        assert compare_values(windows(b.add(i, r)), apart, {}) == Comparison(True)
        assert not compare_values(windows(b.add(i, r)), windows(i), {}).is_equal


def beside_a_sum(value, d, sums=(dt.float32,)):
    """A kernel that stores a value of elements x, y and z, and sums of others."""
    r, out = b.range_(8, 0), b.param(0, (8,), d)
    x, y, z = (b.load(b.at(b.param(k, (8,), dt.float16), r)) for k in (1, 2, 3))
    effects = [b.store(b.at(out, r), value(x, y, z))]
    for k, s in enumerate(sums):
        j = b.range_(8, 1 + k, AxisType.REDUCE)
        total = UOp(Op.REDUCE, (b.cast(b.load(b.at(b.param(4, (8,), dt.float16), j)), s), j), ReduceArg(Op.ADD, ()))
        effects.append(b.store(b.at(b.param(5 + k, (8,), s), r), total))
    return b.sink(b.end(b.group(*effects), r))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda x, y, z: b.mul(b.cast(x, dt.float32), b.cast(y, dt.float32)), lambda x, y, z: b.cast(b.mul(x, y), dt.float32)),
        (lambda x, y, z: b.cast(b.mul(x, y), dt.float32), lambda x, y, z: b.mul(b.cast(x, dt.float32), b.cast(y, dt.float32))),
        (
            lambda x, y, z: b.add(b.add(b.cast(x, dt.float32), b.cast(y, dt.float32)), b.cast(z, dt.float32)),
            lambda x, y, z: b.add(b.cast(x, dt.float32), b.add(b.cast(y, dt.float32), b.cast(z, dt.float32))),
        ),
    ],
)
def test_laws_of_sums_are_no_laws_of_what_stands_beside_them(right, wrong):
    old, new = (beside_a_sum(f, dt.float32) for f in (right, wrong))
    assert compare_values(old, old, {}, with_laws=False).is_equal
    assert not compare_values(old, new, {}).is_equal


def test_a_sum_is_not_narrowed_because_another_one_is_narrow():
    def kernel(sum_dtype):
        j = b.range_(8, 0, AxisType.REDUCE)
        x = b.load(b.at(b.param(2, (8,), dt.float16), j))
        wide = b.cast(UOp(Op.REDUCE, (b.cast(x, sum_dtype), j), ReduceArg(Op.ADD, ())), dt.float32)
        narrow = UOp(Op.REDUCE, (b.load(b.at(b.param(3, (8,), dt.float16), j)), j), ReduceArg(Op.ADD, ()))
        stores = [b.store(b.at(b.param(k, (1,), v.dtype), 0), v) for k, v in enumerate((wide, narrow))]
        return b.sink(*stores)

    assert compare_values(kernel(dt.float32), kernel(dt.float32), {}).is_equal
    assert not compare_values(kernel(dt.float32), kernel(dt.float16), {}).is_equal


def test_a_division_of_unknown_numbers_depends_on_the_dtype():
    """The least int8 by -1 wraps to itself, and is 128 as an int16 (R04)."""

    def kernel(divide):
        r = b.range_(8, 0)
        x, y = (b.load(b.at(b.param(k, (8,), dt.int8), r)) for k in (1, 2))
        return b.sink(b.end(b.store(b.at(b.param(0, (8,), dt.int16), r), divide(x, y)), r))

    def wide(x):
        return b.cast(x, dt.int16)

    narrow_first = kernel(lambda x, y: wide(UOp(Op.IDIV, (x, y))))
    assert not compare_values(narrow_first, kernel(lambda x, y: UOp(Op.IDIV, (wide(x), wide(y)))), {}).is_equal
    by_three = kernel(lambda x, y: wide(UOp(Op.IDIV, (x, b.const(3, dt.int8)))))
    assert compare_values(by_three, kernel(lambda x, y: UOp(Op.IDIV, (wide(x), b.const(3, dt.int16)))), {}).is_equal


def test_elements_are_counted_if_no_condition_stands_around_their_store():
    r = b.range_(96, 0)
    out, half = b.param(0, (96,), dt.float32), UOp(Op.IF, (UOp(Op.CMPLT, (r, b.index(48))),))
    store = b.store(b.at(out, r), b.const(1.0))
    instructions = (out, r, half.condition, half, store.buffer, store.value, store, UOp(Op.ENDIF, (half,)), b.end(store, r))
    guarded = UOp(Op.LINEAR, instructions)
    free = UOp(Op.LINEAR, tuple(u for u in instructions if u.op not in (Op.IF, Op.ENDIF)))
    assert count_elements_if_all_are_stored(free) == 96
    assert count_elements_if_all_are_stored(guarded) is None


# What stands beside a Reduce of the same dtype is not reassociated, nor fused

N = 1 << 14


def beside_reduce(value, extent=N, term=lambda x: x):
    """A body, and instructions with an accumulator, that store a value made of a sum and of the scalars a, c, d and e."""
    scalars = [b.load(b.at(b.param(k, (1,), dt.float32), 0)) for k in (2, 3, 4, 5)]

    def store(total):
        return b.sink(b.store(b.at(b.param(0, (1,), dt.float32), 0), value(total, *scalars)))

    r, x = b.range_(extent, 9, AxisType.REDUCE), b.param(1, (extent,), dt.float32)
    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=1)
    at = b.at(b.after(memory, b.store(b.at(memory, 0), b.const(0.0)), r), 0)
    step = b.store(at, b.add(b.load(at), term(b.load(b.at(x, r)))))
    held = b.load(b.at(b.after(memory, b.end(step, r)), 0))
    return store(UOp(Op.REDUCE, (term(b.load(b.at(x, r))), r), ReduceArg(Op.ADD))), linearize_kernel(store(held))


def by_memory(value):
    memory = b.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=7)
    return b.load(b.at(b.after(memory, b.store(b.at(memory, 0), value)), 0))


def first_of(*values):
    return UOp(Op.INDEX, (b.stack(*values), b.index(0)))


LEFT, RIGHT = (lambda a, c, d: b.add(b.add(a, c), d)), (lambda a, c, d: b.add(a, b.add(c, d)))


def times_right(s, a, c, d, e):
    return b.mul(s, RIGHT(a, c, d))


@pytest.mark.parametrize("extent", [4, N])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda s, a, c, d, e: b.mul(s, LEFT(a, c, d)), times_right),
        (lambda s, a, c, d, e: b.mul(s, b.add(by_memory(b.add(a, c)), d)), times_right),
        (
            lambda s, a, c, d, e: b.mul(s, b.add(first_of(b.add(a, c), b.add(d, e)), d)),
            times_right,
        ),
        (lambda s, a, c, d, e: b.add(b.add(s, a), c), lambda s, a, c, d, e: b.add(s, b.add(a, c))),
        (lambda s, a, c, d, e: b.mul(s, b.add(b.mul(a, c), d)), lambda s, a, c, d, e: b.mul(s, b.mulacc(a, c, d))),
        (lambda s, a, c, d, e: b.add(s, b.mul(a, c)), lambda s, a, c, d, e: b.mulacc(a, c, s)),
    ],
    ids=["sum", "memory", "vector", "sum of the Reduce", "product", "product of the Reduce"],
)
def test_values_beside_a_reduce_keep_their_order_and_roundings(right, wrong, extent):
    old, _ = beside_reduce(right, extent)
    _, new = beside_reduce(wrong, extent)
    assert compare_values(old, beside_reduce(right, extent)[1], {}).is_equal
    assert not compare_values(old, new, {}).is_equal


@pytest.mark.parametrize("extent", [4, N])
def test_a_value_that_a_reduce_sums_keeps_its_order_elsewhere(extent):
    scalars = [b.load(b.at(b.param(k, (1,), dt.float32), 0)) for k in (2, 3, 4)]
    left, right = LEFT(*scalars), RIGHT(*scalars)

    def pair(in_sum, beside):
        return beside_reduce(lambda s, *_: b.mul(s, beside), extent, lambda x: b.add(x, in_sum))

    assert compare_values(pair(right, right)[0], pair(right, right)[1], {}).is_equal
    assert not compare_values(pair(right, right)[0], pair(right, left)[1], {}).is_equal
    assert not compare_values(pair(right, right)[0], pair(left, left)[1], {}).is_equal
