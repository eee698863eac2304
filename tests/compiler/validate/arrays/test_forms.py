"""Forms of bodies: the laws by which they are made."""

from __future__ import annotations

import itertools

from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.validate.arrays.forms import count_iterations_in_closed_form, inline_private_memory
from uops.compiler.validate.arrays.splits import is_body_with_split_reduces
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, LoadArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def test_a_count_of_iterations_is_what_counting_gives() -> None:
    for n, x, t in itertools.product(range(6), range(-3, 8), range(-3, 8)):
        r = b.range_(n, 0, AxisType.REDUCE)
        condition = UOp(Op.CMPGE, (UOp(Op.ADD, (b.index(x), r)), b.index(t)))
        term = b.where(condition, b.const(3, dt.int32), b.const(0, dt.int32))
        counted = count_iterations_in_closed_form(UOp(Op.REDUCE, (term, r), ReduceArg(Op.ADD, ())))
        assert counted.op is not Op.REDUCE
        assert Rewriter(INDEXING)(counted) is b.const(3 * sum(x + k >= t for k in range(n)), dt.int32)


def _body_with_row(offset: int, extent: int = 4) -> UOp:
    """Store a row in LOCAL memory, and then its elements from an offset on."""
    row = b.buffer(8, dt.int32, addrspace=AddrSpace.LOCAL, unique=1)
    i, j, k = (b.range_(n, axis) for axis, n in enumerate((2, 4, extent)))
    value = b.load(b.at(b.param(1, (8,), dt.int32), b.add(b.mul(i, 4), j)))
    filled = b.end(b.end(b.store(b.at(row, b.add(b.mul(i, 4), j)), value), j), i)
    read = UOp(Op.LOAD, (b.at(b.after(row, filled), b.add(k, offset)),), LoadArg())
    return b.sink(b.end(b.store(b.at(b.param(0, (extent,), dt.int32), k), read), k))


def test_a_load_of_private_memory_is_the_value_that_was_stored_there() -> None:
    inlined = inline_private_memory(_body_with_row(3))
    assert not [u for u in toposort(inlined) if u.op is Op.BUFFER]
    (position,) = (u.positions[0] for u in toposort(Rewriter(INDEXING)(inlined)) if u.op is Op.INDEX and u.operand.arg.slot == 1)
    assert position is b.add(b.range_(4, 2), 3)


def test_a_load_beyond_what_was_stored_is_left_alone() -> None:
    for body in (_body_with_row(5), _body_with_row(-1)):
        assert inline_private_memory(body) is body


def test_reduces_in_two_stages_are_the_whole_ones_or_are_not() -> None:
    x = b.param(0, (2, 12), dt.float32)
    whole = b.reduce(x, Op.ADD, (1,))

    def split(p: int, q: int, rest: int, op: Op = Op.ADD, begin: int = 0, axis: int = 1) -> UOp:
        part = b.shrink(x, (0, begin), (2, p * q)) if rest or begin else x
        parts = b.contiguous(b.reduce(b.reshape(part, (2, p, q)), op, (2,)))
        total = b.reshape(b.reduce(parts, op, (axis,)), whole.shape) if axis == 1 else whole
        return b.add(total, b.reduce(b.shrink(x, (0, p * q), (2, rest)), op, (1,))) if rest else total

    for new in (split(3, 4, 0), split(4, 3, 0), split(5, 2, 2)):
        assert is_body_with_split_reduces(whole, new, {whole: new})
    for new in (split(3, 4, 0, Op.MAX), split(5, 2, 1), split(5, 2, 2, begin=1), b.reduce(x, Op.MAX, (1,)), split(5, 2, 2).lhs):
        assert not is_body_with_split_reduces(whole, new, {whole: new})
    assert not is_body_with_split_reduces(whole, split(3, 4, 0), {})


def test_memory_that_is_stored_to_in_the_loop_of_its_load_is_left_alone() -> None:
    row, r = b.buffer(6, dt.int32, addrspace=AddrSpace.REG, unique=1), b.range_(6, 0)
    store = b.store(b.at(row, r), b.load(b.at(b.param(1, (6,), dt.int32), r)))
    earlier = UOp(Op.LOAD, (b.at(b.after(row, store), UOp(Op.MAX, (b.sub(r, 1), b.index(0)))),), LoadArg())
    body = b.sink(b.end(b.store(b.at(b.param(0, (6,), dt.int32), r), earlier), r))
    assert inline_private_memory(body) is body


def test_a_reduce_of_parts_over_another_axis_is_not_the_whole_one() -> None:
    x = b.param(0, (3, 3, 12), dt.float32)
    whole = b.reduce(x, Op.ADD, (0, 2))

    def split(*inner: int) -> UOp:
        parts = b.contiguous(b.reduce(b.reshape(x, (3, 3, 3, 4)), Op.ADD, inner))
        return b.reshape(b.reduce(parts, Op.ADD, (2,)), whole.shape)

    assert is_body_with_split_reduces(whole, split(0, 3), {whole: split(0, 3)})
    assert not is_body_with_split_reduces(whole, split(1, 3), {whole: split(1, 3)})
