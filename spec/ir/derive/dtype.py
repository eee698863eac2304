"""The rules of *dtype*."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Rule, UOp
from uops.spec.ir.ops import ALU, COMPARE, MARKERS, Op


def from_arg(u: UOp) -> DType:
    """Return the dtype that the arg states."""
    d: DType = u.arg.dtype
    return d


def of_first(u: UOp) -> DType:
    """Return the dtype of the first source, whatever its name."""
    return u.src[0].dtype  # the operand, lhs, bound, or the memory of an access


def of_second(u: UOp) -> DType:
    """Return the dtype of the second source of a Where or B_LOAD."""
    return u.src[1].dtype  # if_true, or the index, which a Bitcast may have given another dtype than its buf


def constant_rule(d: DType) -> Rule:
    """Return the rule of ops that always have dtype `d`."""

    def rule(u: UOp) -> DType:
        return d

    rule.__name__ = f"always_{d.name}"
    return rule


def of_stack(u: UOp) -> DType:
    """Return the dtype of the elements; the empty Stack is the shape () and has dtype index (R40, shape operands)."""
    return u.src[0].dtype if u.src else dt.index  # elements


def of_tuple_element(u: UOp) -> DType:
    """Return the dtype of the element that a GetTuple selects."""
    return node_selected_by_gettuple(u).dtype


def node_selected_by_gettuple(u: UOp) -> UOp:
    """Return the node that a GetTuple selects: an element of a Tuple, or of the Tuple that is a Function's body."""
    packed = u.src[0]  # packed
    if packed.op is Op.FUNCTION:
        packed = packed.src[0]  # body
    element: UOp = packed.src[u.arg.index]
    return element


def of_wmma(u: UOp) -> DType:
    """Return the dtype of a Wmma's accumulator."""
    d: DType = u.arg.dtype_out
    return d


_VOID = constant_rule(dt.void)

#: Op -> its rule; no op is without one.
RULES: dict[Op, Rule] = {
    **dict.fromkeys(ALU, of_first),
    **dict.fromkeys(COMPARE, constant_rule(dt.bool_)),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys(
        (Op.PARAM, Op.BUFFER, Op.CONST, Op.CAST, Op.BITCAST, Op.SLICE, Op.INS, Op.CUSTOM, Op.CUSTOMI)
        + (Op.B_BUFFER, Op.B_PARAM, Op.DEFINE_LOCAL, Op.DEFINE_REG, Op.VCONST),
        from_arg,
    ),
    **dict.fromkeys(
        (Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.REPLICATED, Op.REDUCE, Op.LOAD, Op.AFTER)
        + (Op.REDUCE_AXIS, Op.B_REDUCE, Op.ALLREDUCE, Op.BUFFERIZE, Op.B_INDEX, Op.POINTER_INDEX, Op.B_BARRIER)
        + (Op.VECTORIZE, Op.GEP, Op.CAT, Op.PTRCAT, Op.UNROLL, Op.CONTRACT, Op.BIND, Op.B_PAD, Op.B_SHRINK, Op.COPY)
        + (Op.BUFFER_VIEW, Op.MSTACK, Op.MSELECT, Op.MULTI, Op.PRECAST),
        of_first,
    ),
    **dict.fromkeys(
        (Op.FUNCTION, Op.CALL, Op.TUPLE, Op.STORE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.BARRIER, Op.IF, Op.ENDIF)
        + (Op.ATOMICADD, Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE, Op.B_STORE, Op.B_PROGRAM, Op.B_IF)
        + (Op.UNIQUE, Op.LUNIQUE, Op.DEVICE),
        _VOID,
    ),
    **dict.fromkeys((Op.RANGE, Op.SPECIAL), of_first),  # the bound's: index, or the machine integer that replaces it (R87)
    **dict.fromkeys((Op.B_RANGE, Op.DEFINE_VAR), constant_rule(dt.index)),
    **dict.fromkeys((Op.BINARY, Op.PROGRAM_BINARY), constant_rule(dt.uint8)),
    **dict.fromkeys((Op.WHERE, Op.B_LOAD), of_second),
    Op.STACK: of_stack,
    Op.GETTUPLE: of_tuple_element,
    Op.WMMA: of_wmma,
}
