"""What the reader takes ops to mean is what the interpreter computes; what memory holds is known only where it stays."""

import itertools

import numpy as np
import pytest

from uops.compiler.validate import terms as T
from uops.compiler.validate.reader import _RULES, _AccessReader, read_accesses
from uops.compiler.validate.sites import lane_unknown
from uops.compiler.validate.terms import Condition, LinearSum, Operation, Unknown
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse

NUMBERS = np.arange(-4, 5)
UNARY = (Op.NEG, Op.TRUNC)
BINARY = (
    Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.IDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.CMPLT, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ,
    Op.CMPNE,
)  # fmt: skip
LOGIC = (Op.AND, Op.OR, Op.XOR)


def expressions():
    """Name -> a function of two numbers."""
    for op in UNARY:
        yield op.name, lambda x, y, op=op: UOp(op, (x,))
    for op in BINARY:
        yield op.name, lambda x, y, op=op: UOp(op, (x, y))
    for op in LOGIC:
        yield f"{op.name} of truths", lambda x, y, op=op: UOp(op, (b.lt(x, 1), b.lt(y, 2)))
    for op in (Op.SHL, Op.SHR):
        yield op.name, lambda x, y, op=op: UOp(op, (x, b.const(3, x.dtype)))
    yield "MULACC", lambda x, y: UOp(Op.MULACC, (x, y, x))
    yield "WHERE", lambda x, y: b.where(b.lt(x, y), x, y)
    yield "WHERE of truths", lambda x, y: b.where(b.lt(x, y), b.lt(x, 2), b.lt(y, -1))
    yield "NOT", lambda x, y: UOp(Op.NOT, (b.lt(x, y),))
    yield "CAST", lambda x, y: b.cast(b.mul(x, b.mul(y, 20)), dt.int8)
    yield "CAST to unsigned", lambda x, y: b.cast(x, dt.uint8)
    yield "CAST to a truth", lambda x, y: b.cast(x, dt.bool_)
    yield "CAST of a truth", lambda x, y: b.cast(b.lt(x, y), dt.int32)


EXPRESSIONS = dict(expressions())


def test_every_op_that_is_read_is_tried():
    assert {name.split()[0] for name in EXPRESSIONS} == {op.name for op in _RULES}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("dtype", [dt.int32, dt.int8, dt.index], ids=str)
def test_an_op_is_read_as_the_interpreter_computes_it(name, dtype):
    f = EXPRESSIONS[name]
    loops = [b.range_(len(NUMBERS), k, AxisType.LOOP) for k in range(2)]
    own = f(*(b.add(b.cast(r, dtype), -4) for r in loops))
    found = _AccessReader(UOp(Op.LINEAR, ())).read_symbolic_value(own)
    at = {v: np.arange(9).reshape((-1, 1) if v.name == "r0" else (1, -1)) for v in T.collect_unknowns(found)}
    kept = dt.int64 if dtype is dt.index else dtype
    grid = np.meshgrid(NUMBERS, NUMBERS, indexing="ij")
    graph = f(*(b.cast(b.param(k, (9, 9), kept), dtype) for k in range(2)))
    inputs = {f"p{k}": x.astype(f"int{kept.bits}") for k, x in enumerate(grid)}
    want = run(graph if graph.dtype is not dt.index else b.cast(graph, dt.int64), inputs).values[0]
    assert np.array_equal(np.broadcast_to(T.evaluate_at_points(found, at), (9, 9)), want)


def read_vector(elements, count):
    """The values of a Stack in its lanes, as the reader has them."""
    found = _AccessReader(UOp(Op.LINEAR, ())).read_symbolic_value(b.stack(*elements))
    at = {lane_unknown(count): np.arange(count)}
    if isinstance(found, list):
        return [int(T.evaluate_at_points(x, at)) for x in found]
    return np.broadcast_to(T.evaluate_at_points(found, at), (count,)).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_each_lane_of_a_vector_of_constants_has_the_constant_that_stands_there(count):
    for numbers in itertools.product((0, 1, 2, 4), repeat=count):
        assert read_vector([b.const(n, dt.int32) for n in numbers], count) == list(numbers)
    for truths in itertools.product((False, True), repeat=count):
        assert read_vector([b.const(t, dt.bool_) for t in truths], count) == list(truths)


HELD = """
%0 = param (4), slot=0 : i32
%1 = param (4), slot=1 : i32
%2 = range 4, axis_id=0, type=loop
%3 = index {memory}, %2
%4 = load %3
%5 = cast %4 : index
%6 = index %0, %5
%7 = const 1 : i32
%8 = store %6, %7
%9 = end %8, %2
%10 = sink %9, name="held"
"""


@pytest.mark.parametrize(("memory", "known"), [("%1", True), ("%0", False)])
def test_what_memory_holds_is_a_function_of_the_element_where_the_kernel_does_not_write_it(memory, known):
    (store,) = (s for s in read_accesses(parse(HELD.format(memory=memory))).sites if s.writes)
    assert isinstance(store.index, LinearSum) and T.has_memory_value(store.index) is known
    assert any(v.loaded for v in T.collect_unknowns(store.index)) is not known


# Intervals

OPS = ("idiv", "mod", "mul", "max", "and", "or", "xor", "where", "wrap-i8", "wrap-u8")


@pytest.mark.parametrize("op", OPS)
def test_an_interval_holds_every_value(op):
    ends = [-130, -9, -4, -1, 0, 1, 3, 8, 130]
    intervals = [(low, high) for low in ends for high in ends if low <= high]
    for one in intervals if not op.startswith("wrap") else [*intervals, (-300, 300)]:
        for other in intervals if not op.startswith("wrap") else [(0, 0)]:
            x, y = Unknown("x", *one), Unknown("y", *other)
            args = (T.as_sum(x),) if op.startswith("wrap") else (T.as_sum(x), T.as_sum(y))
            args = (T.is_nonnegative(T.as_sum(x)), *args) if op == "where" else args
            at = {v: np.unique(np.linspace(v.low, v.high, 9).astype(np.int64)).reshape(s) for v, s in ((x, (-1, 1)), (y, (1, -1)))}
            found = T.evaluate_at_points(T.as_sum(Operation(op, args)), at)
            low, high = T.bounds(T.as_sum(Operation(op, args)))
            assert low <= found.min() and found.max() <= high, (op, one, other)


def test_an_interval_holds_every_entry_of_a_table():
    assert T.bounds(
        T.as_sum(Operation("table", (T.as_sum(Unknown("lane4", 0, 3)), LinearSum(3), LinearSum(-5), LinearSum(7), LinearSum(0))))
    ) == (-5, 7)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_part_of_a_condition_counts_at_points(count):
    for op, rare, usual in (("or", T.TRUE, T.FALSE), ("and", T.FALSE, T.TRUE)):
        parts = (*[usual] * (count - 1), rare)
        assert bool(T.evaluate_at_points(Condition(op, parts), {})) is (op == "or")
