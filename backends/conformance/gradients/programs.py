"""For each op with a gradient rule, a graph of float64 around it that is smooth at its inputs, and graphs at edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Multiples of 1/4, none of them zero or equal to another, positive.
X = (np.arange(12) * 5 % 13 + 2).reshape(3, 4) / 4.0
Y = (np.arange(12) * 7 % 13 + 1).reshape(3, 4) / 4.0 + 0.125


class GradientProgram(NamedTuple):
    """A graph and its inputs."""

    graph: UOp
    inputs: dict[str, Any]
    is_rational: bool = True


def _param(slot: int, *shape: int, d: dt.DType = dt.float64) -> UOp:
    return b.param(slot, shape or (3, 4), d)


def _make_unary(f: Callable[[UOp], UOp], is_rational: bool = True) -> GradientProgram:
    """Return the program that applies a function to one operand."""
    return GradientProgram(f(_param(0)), {"p0": X}, is_rational)


def _make_binary(f: Callable[[UOp, UOp], UOp], is_rational: bool = True) -> GradientProgram:
    """Return the program that applies a function to two operands."""
    return GradientProgram(f(_param(0), _param(1)), {"p0": X, "p1": Y}, is_rational)


def _function(x: UOp, y: UOp) -> UOp:
    body = b.tuple_(b.mul(_param(0), _param(1)), b.add(_param(0), _param(1)))
    f = b.function(body, x, y)
    return b.add(b.get(f, 0), b.mul(b.get(f, 1), x))


def _overwrite_rows_with_repeated_index(x: UOp, y: UOp) -> UOp:
    """Rows 0 and 1 of 3 are overwritten by rows of y, the second of them twice."""
    memory = b.reshape(b.buffer(12, dt.float64, unique=7), (3, 4))
    old = b.after(memory, b.store(memory, b.mul(x, x)))
    rows = UOp(Op.STACK, (b.const(0), b.const(1), b.const(1)))
    return b.mul(b.after(old, b.store(b.at(old, rows), b.mul(y, 3.0))), x)


GATE = np.array([[True, False, True, True]] * 3)
# fmt: off
PROGRAMS: dict[Op, GradientProgram] = {
    Op.ADD:      _make_binary(lambda x, y: b.add(x, b.mul(y, y))),
    Op.SUB:      _make_binary(lambda x, y: b.sub(x, b.reduce(y, Op.ADD, (0,)))),
    Op.NEG:      _make_unary(lambda x: b.neg(b.mul(x, x))),
    Op.MUL:      _make_binary(b.mul),
    Op.MULACC:   _make_binary(lambda x, y: b.mulacc(x, y, b.mul(x, x))),
    Op.DIV:      _make_binary(b.div),
    Op.RECIP:    _make_unary(b.recip),
    Op.MAX:      _make_binary(b.maximum),
    Op.WHERE:    _make_binary(lambda x, y: b.where(b.lt(x, y), b.mul(x, x), b.mul(y, x))),
    Op.EXP2:     _make_unary(b.exp2, False),
    Op.LOG2:     _make_unary(b.log2, False),
    Op.SIN:      _make_unary(b.sin, False),
    Op.SQRT:     _make_unary(b.sqrt, False),
    Op.POW:      _make_binary(b.pow_, False),
    Op.CAST:     GradientProgram(b.mul(b.cast(_param(0, 3, 4, d=dt.float32), dt.float64), _param(1)),
                                 {"p0": X.astype(np.float32), "p1": Y}),
    Op.PERMUTE:  _make_binary(lambda x, y: b.mul(b.permute(x, (1, 0)), b.reshape(y, (4, 3)))),
    Op.FLIP:     _make_binary(lambda x, y: b.mul(b.flip(x, (True, False)), y)),
    Op.RESHAPE:  _make_binary(lambda x, y: b.mul(b.reshape(x, (2, 6)), b.reshape(y, (2, 6)))),
    Op.EXPAND:   _make_binary(lambda x, y: b.mul(b.expand(b.reshape(x, (1, 3, 4)), (5, 3, 4)), y)),
    Op.PAD:      _make_unary(lambda x: b.pad(b.mul(x, x), (1, 0), (6, 5))),
    Op.SHRINK:   _make_unary(lambda x: b.shrink(b.mul(x, x), (1, 1), (2, 2))),
    Op.INDEX:    _make_unary(lambda x: b.at(b.mul(x, x), UOp(Op.STACK, (b.const(2), b.const(0), b.const(2))), b.const(1))),
    Op.STACK:    _make_binary(lambda x, y: b.stack(x, b.mul(x, y), y)),
    Op.REPLICATED: _make_unary(lambda x: b.replicated(b.expand(b.reshape(b.mul(x, x), (3, 1, 4)), (3, 2, 4)), 1)),
    Op.SLICE:    _make_unary(lambda x: b.slice_(b.reshape(b.mul(x, x), (12,)), 3, 5)),
    Op.REDUCE:   _make_binary(lambda x, y: b.add(b.reduce(b.mul(x, y), Op.ADD, (0, 1)),
                                        b.add(b.reduce(x, Op.MUL, (1,)), b.reduce(y, Op.MAX, (1,))))),
    Op.LOAD:     GradientProgram(b.load(b.mul(_param(0), _param(0)), b.mul(_param(1), _param(1)), b.param(2, (3, 4), dt.bool_)),
                                 {"p0": X, "p1": Y, "p2": GATE}),
    Op.AFTER:    _make_binary(_overwrite_rows_with_repeated_index),
    Op.FUNCTION: _make_binary(_function),
    Op.TUPLE:    _make_binary(lambda x, y: b.get(b.tuple_(b.mul(x, y), x), 0)),
    Op.GETTUPLE: _make_binary(lambda x, y: b.mul(b.get(b.tuple_(b.mul(x, y), x), 0), b.get(b.tuple_(b.mul(x, y), x), 1))),
    Op.CONTIGUOUS: _make_unary(lambda x: b.contiguous(b.mul(x, x))),
    Op.CONTIGUOUS_BACKWARD: _make_unary(lambda x: UOp(Op.CONTIGUOUS_BACKWARD, (b.mul(x, x),))),
}
# fmt: on


class GradientEdge(NamedTuple):
    """A graph of one Param p0, the values of that, and the gradient by it of the sum of the graph's elements."""

    graph: UOp
    x: Any
    expected: Any


def _vector(n: int, d: dt.DType = dt.float64) -> UOp:
    return b.param(0, (n,), d)


def _return_value_twice(x: UOp) -> UOp:
    value = b.mul(_vector(2), 3.0)
    f = b.function(b.tuple_(value, value), x)
    return b.add(b.get(f, 0), b.mul(b.get(f, 1), 2.0))


def _store_under_gates(x: UOp) -> UOp:
    """Two values for one element, the second of which a gate keeps out, and one for an element that no gate opens."""
    memory = b.buffer(3, dt.float64, unique=8)
    zeros = b.after(memory, b.store(memory, b.expand(b.reshape(b.const(0.0, dt.float64), (1,)), (3,))))
    rows = UOp(Op.STACK, (b.const(1), b.const(1), b.const(2)))
    gate = UOp(Op.STACK, (b.const(True), b.const(False), b.const(False)))
    return b.after(zeros, b.store(b.at(zeros, rows), x, gate))


_INF, _NAN, _LN2 = math.inf, math.nan, math.log(2)
_ONE_OF_300 = np.arange(300) == 5
# fmt: off
#: Where calculus leaves the choice to a ruling (R184, gradients at edges), and where a rule may round, overflow or repeat.
EDGES: dict[Op, tuple[GradientEdge, ...]] = {
    Op.MAX:    (GradientEdge(b.maximum(_vector(3), 1.0), [0.0, 1.0, 2.0], [0.0, 0.5, 1.0]),),
    Op.SQRT:   (GradientEdge(b.sqrt(_vector(2)), [0.0, 4.0], [_INF, 0.25]),),
    Op.LOG2:   (GradientEdge(b.log2(_vector(2)), [0.0, 1.0], [_INF, 1 / _LN2]),),
    Op.WHERE:  (GradientEdge(b.where(b.gt(_vector(2), 0.0), b.log2(_vector(2)), 0.0), [0.0, 1.0], [_NAN, 1 / _LN2]),),
    Op.POW:    (GradientEdge(b.pow_(_vector(3), b.const(0.0, dt.float64)), [0.0, 2.0, -1.0], [0.0, 0.0, 0.0]),
                GradientEdge(b.pow_(b.const(0.0, dt.float64), _vector(2)), [0.0, 2.0], [0.0, 0.0])),
    Op.REDUCE: (GradientEdge(b.reduce(_vector(3), Op.MAX, (0,)), [2.0, 1.0, 2.0], [0.5, 0.0, 0.5]),
                GradientEdge(b.reduce(_vector(2), Op.MAX, (0,)), [1.0, _NAN], [0.0, 0.0]),
                GradientEdge(b.reduce(_vector(3), Op.MUL, (0,)), [0.0, 3.0, 5.0], [15.0, 0.0, 0.0]),
                GradientEdge(b.reduce(_vector(4, dt.float16), Op.MUL, (0,)), [256.0, 512.0, 2.0**-7, 2.0**-7],
                             [2.0**-5, 2.0**-6, 1024.0, 1024.0]),
                GradientEdge(b.reduce(_vector(257, dt.bfloat16), Op.MAX, (0,)), np.ones(257), np.full(257, 255.0 / 65536))),
    Op.INDEX:  (GradientEdge(b.at(_vector(300), b.const(5, dt.uint8)), np.zeros(300), _ONE_OF_300 * 1.0),
                GradientEdge(b.at(_vector(300), b.reshape(b.const(5, dt.uint8), (1,))), np.zeros(300), _ONE_OF_300 * 1.0)),
    Op.AFTER:  (GradientEdge(_store_under_gates(_vector(3)), [1.0, 2.0, 3.0], [1.0, 0.0, 0.0]),),
    Op.FUNCTION: (GradientEdge(_return_value_twice(_vector(2)), [1.0, 2.0], [9.0, 9.0]),),
}
# fmt: on
