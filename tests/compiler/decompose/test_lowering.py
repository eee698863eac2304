"""The form of the lowered graphs: primitive ops and dtypes only, well typed, vectors like scalars, few operations, constants as
derived."""

from __future__ import annotations

from types import ModuleType

import pytest

from uops.compiler.decompose import NATIVE, SMALL, decompose_node_or_keep_primitive, lower_elementwise, soften_dtype
from uops.compiler.decompose import coefficients as k
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.verifier import verify

# fmt: off
PRIMITIVE = frozenset({
    Op.CONST, Op.STACK, Op.PARAM, Op.CAST, Op.BITCAST, Op.ADD, Op.SUB, Op.MUL, Op.MULACC, Op.DIV, Op.RECIP, Op.SQRT, Op.NEG,
    Op.TRUNC, Op.MAX, Op.CMPLT, Op.CMPNE, Op.CMPEQ, Op.WHERE, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR,
})
# fmt: on
ARITY = {
    Op.EXP2: 1,
    Op.LOG2: 1,
    Op.SIN: 1,
    Op.SQRT: 1,
    Op.RECIP: 1,
    Op.NEG: 1,
    Op.TRUNC: 1,
    Op.POW: 2,
    Op.ADD: 2,
    Op.SUB: 2,
    Op.MUL: 2,
    Op.DIV: 2,
    Op.MAX: 2,
    Op.CMPLT: 2,
    Op.CMPNE: 2,
    Op.CMPEQ: 2,
    Op.MULACC: 3,
}  # fmt: skip
#: Operations, Bitcasts not counted: a budget that no change may exceed unseen.
BUDGET = {
    (Op.EXP2, dt.float32): 19, (Op.LOG2, dt.float32): 26, (Op.SIN, dt.float32): 33, (Op.POW, dt.float32): 68,
    (Op.EXP2, dt.float64): 24, (Op.LOG2, dt.float64): 39, (Op.SIN, dt.float64): 158, (Op.POW, dt.float64): 172,
}  # fmt: skip


def lowered(op: Op, d: DType, shape: tuple[int, ...] = ()) -> tuple[UOp, UOp]:
    """The node and its lowered graph over Params in storage dtypes."""
    leaves = [b.param(i, shape, d) for i in range(ARITY[op])]
    held = [b.param(i, shape, soften_dtype(d)) for i in range(ARITY[op])]
    root = b.build_alu_with_promotion(op, *leaves)
    return root, lower_elementwise([root], dict(zip(leaves, held, strict=True)))[0]


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
@pytest.mark.parametrize("op", ARITY, ids=lambda op: op.name)
def test_lowered_graph_is_primitive_and_well_typed(op: Op, d: DType, shape: tuple[int, ...]) -> None:
    root, graph = lowered(op, d, shape)
    verify(graph)
    assert (graph.dtype, graph.shape) == (soften_dtype(root.dtype), shape)
    for u in toposort(graph):
        assert u.op in PRIMITIVE, u
        assert u.dtype in NATIVE or u.dtype is dt.index, u
        assert u.shape == shape or u.op in (Op.CONST, Op.STACK), u


@pytest.mark.parametrize("d", SMALL, ids=str)
@pytest.mark.parametrize("op", ARITY, ids=lambda op: op.name)
def test_decompose_leaves_only_casts_and_bit_moves_of_small_floats(op: Op, d: DType) -> None:
    graph = decompose_node_or_keep_primitive(b.build_alu_with_promotion(op, *(b.param(i, (), d) for i in range(ARITY[op]))))
    for u in toposort(graph):
        touches = u.op not in (Op.PARAM, Op.STACK) and (u.dtype in SMALL or any(s.dtype in SMALL for s in u.src))
        assert not touches or u.op in (Op.CAST, Op.BITCAST), u


@pytest.mark.parametrize("op", [Op.ADD, Op.SQRT, Op.DIV, Op.MULACC, Op.WHERE], ids=lambda op: op.name)
def test_primitive_nodes_are_returned_as_they_are(op: Op) -> None:
    x = b.param(0, (), dt.float64)
    condition = b.param(1, (), dt.bool_)
    u = b.where(condition, x, b.add(x, 1.0)) if op is Op.WHERE else b.build_alu_with_promotion(op, *[x] * ARITY[op])
    assert decompose_node_or_keep_primitive(u) is u


def test_lower_keeps_bits_through_where_bitcast_and_constants() -> None:
    x, p = b.param(0, (), dt.bfloat16), b.param(1, (), dt.bool_)
    bits = b.param(0, (), dt.uint16)
    root = b.where(p, x, b.const(1.5, dt.bfloat16))
    (graph,) = lower_elementwise([root], {x: bits, p: p})
    assert graph is b.where(p, bits, b.const(0x3FC0, dt.uint16))
    (same,) = lower_elementwise([b.bitcast(b.bitcast(x, dt.int16), dt.bfloat16)], {x: bits})
    assert [u.op for u in toposort(same)].count(Op.CAST) == 0 and same.dtype is dt.uint16


def test_lower_leaves_a_native_half_to_the_target() -> None:
    x = b.param(0, (), dt.float16)
    (graph,) = lower_elementwise([b.add(x, x)], {x: x}, NATIVE | {dt.float16})
    wide = b.cast(x, dt.float32)
    assert graph is b.cast(b.add(wide, wide), dt.float16)


@pytest.mark.parametrize(("op", "d"), BUDGET, ids=str)
def test_operation_counts(op: Op, d: DType) -> None:
    graph = decompose_node_or_keep_primitive(b.build_alu_with_promotion(op, *(b.param(i, (), d) for i in range(ARITY[op]))))
    cost = sum(u.op not in (Op.CONST, Op.STACK, Op.PARAM, Op.BITCAST) for u in toposort(graph))
    assert cost <= BUDGET[op, d]


def test_constants_are_those_that_the_script_derives(derive: ModuleType) -> None:
    with open(k.__file__) as f:
        assert f.read() == derive.generate_module()
