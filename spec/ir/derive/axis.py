"""The rules of *axis*, the sharded axis of a value on an n-tuple device (R73 to R76)."""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir.derive.dtype import node_selected_by_gettuple
from uops.spec.ir.node import Rule, UOp
from uops.spec.ir.ops import ALU, MARKERS, Op
from uops.spec.ir.sizes import divides, element_count_polynomial, show_shape

#: The number of the axis along which a value is sharded; None where it is whole.
ShardedAxis = int | None


def none(u: UOp) -> None:
    """Return None: a value that is on no n-tuple device."""
    return


def of_first(u: UOp) -> ShardedAxis:
    """Return the axis of the first source, whatever its name."""
    return u.src[0].axis  # the operand, the buffer of an After, the variable of a BIND


def of_buffer(u: UOp) -> ShardedAxis:
    """Return 0 for a Buffer on several devices (R73, n-tuple Buffer)."""
    return 0 if isinstance(u.arg.device, tuple) else None


def from_arg(u: UOp) -> ShardedAxis:
    """Return the axis that a Param states (R79)."""
    a: ShardedAxis = u.arg.axis
    return a


def of_load(u: UOp) -> ShardedAxis:
    """Return 0 for a Load to an n-tuple device, None to one device and the buffer's axis without a device (R74, axis)."""
    if u.arg.device is None:
        return u.buffer.axis
    return 0 if isinstance(u.arg.device, tuple) else None


def of_permute(u: UOp) -> ShardedAxis:
    """Return the new position of the sharded axis."""
    a = u.operand.axis
    return None if a is None else u.arg.order.index(a)


def of_reshape(u: UOp) -> ShardedAxis:
    """Return the axis k with prod(s'[:k]) = prod(s[:axis]) and n dividing s'_k (R74); raises SpecError if there is none.

    One device divides every extent: then it is the first such axis whose extent is not 1, or the first one if all are 1.
    """
    a = u.operand.axis
    if a is None:
        return None
    old, new, devices = u.operand.shape, u.shape, u.device
    before, n = element_count_polynomial(old[:a]), len(devices) if isinstance(devices, tuple) else 1
    candidates = [k for k, extent in enumerate(new) if divides(n, extent) and element_count_polynomial(new[:k]) == before]
    if candidates:
        return next((k for k in candidates if new[k] != 1), candidates[0])
    moved = f"Reshape {show_shape(old)} to {show_shape(new)}"
    raise SpecError(f"{moved} moves elements across the shards of axis {a} (R74)", claim="RESHAPE.C5")


def of_collapse(u: UOp) -> ShardedAxis:
    """Return the sharded axis of a Reduce or Replicated, None if it is one that becomes 1."""
    a = u.operand.axis
    return None if a in u.arg.axes else a


def of_alu(u: UOp) -> ShardedAxis:
    """Return the common sharded axis of the sources, after right-alignment; raises SpecError if they differ (R74)."""
    rank = len(u.shape)
    axes = {s.axis + rank - len(s.shape) for s in u.src if s.axis is not None}
    if len(axes) > 1:
        raise SpecError(f"sources of {u.op.name} are sharded on different axes {sorted(axes)} (R74)")
    return axes.pop() if axes else None


def of_stack(u: UOp) -> ShardedAxis:
    """Return the common sharded axis of the elements, behind the new first axis; raises SpecError if they differ (R74)."""
    axes = {s.axis for s in u.elements if s.axis is not None}
    if len(axes) > 1:
        raise SpecError(f"sources of Stack are sharded on different axes {sorted(axes)} (R74)")
    return axes.pop() + 1 if axes else None


def of_index(u: UOp) -> ShardedAxis:
    """Return the new position of the sharded axis; raises SpecError if it is indexed (R74)."""
    a = u.operand.axis
    if a is None:
        return None
    if a < len(u.positions):
        raise SpecError(f"Index on the sharded axis {a} (R74)", claim="INDEX.C5")
    return a - len(u.positions) + sum(len(i.shape) for i in u.positions)


def of_tuple_element(u: UOp) -> ShardedAxis:
    """Return the axis of the element that a GetTuple selects."""
    return node_selected_by_gettuple(u).axis


def of_multi(u: UOp) -> ShardedAxis:
    """Return the axis that a MULTI marks (R116)."""
    a: int = u.arg.axis
    return a


def of_device_source(u: UOp) -> ShardedAxis:
    """Return 0 for a B_BUFFER or COPY whose DEVICE source names several devices."""
    return 0 if isinstance(u.device, tuple) else None


def of_mstack(u: UOp) -> ShardedAxis:
    """Return 0, the axis along which an MSTACK joins its shards (R116); None for scalars."""
    return 0 if u.elements[0].shape else None


#: Op -> its rule; no op is without one.
RULES: dict[Op, Rule] = {
    **dict.fromkeys(
        (Op.CONST, Op.BINARY, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.STORE, Op.RANGE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.BARRIER)
        + (Op.INS, Op.SPECIAL, Op.IF, Op.ENDIF, Op.WMMA, Op.CUSTOM, Op.CUSTOMI, Op.ATOMICADD, Op.CUSTOM_FUNCTION, Op.PROGRAM)
        + (Op.SOURCE, Op.B_RANGE, Op.B_REDUCE, Op.ALLREDUCE, Op.BUFFERIZE, Op.B_INDEX, Op.POINTER_INDEX, Op.B_LOAD, Op.B_STORE)
        + (Op.B_PROGRAM, Op.PROGRAM_BINARY, Op.VECTORIZE, Op.GEP, Op.VCONST, Op.CAT, Op.PTRCAT, Op.UNROLL, Op.CONTRACT, Op.B_IF)
        + (Op.B_PARAM, Op.DEFINE_LOCAL, Op.DEFINE_VAR, Op.DEFINE_REG, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE, Op.BUFFER_VIEW)
        + (Op.MSELECT,),
        none,
    ),
    **dict.fromkeys(ALU, of_alu),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys(
        (Op.FLIP, Op.EXPAND, Op.PAD, Op.SHRINK, Op.BITCAST, Op.SLICE, Op.AFTER, Op.B_PAD, Op.B_SHRINK, Op.PRECAST, Op.BIND)
        + (Op.B_BARRIER,),
        of_first,
    ),
    **dict.fromkeys((Op.REDUCE, Op.REPLICATED, Op.REDUCE_AXIS), of_collapse),
    Op.BUFFER: of_buffer,
    Op.PARAM: from_arg,
    Op.LOAD: of_load,
    Op.PERMUTE: of_permute,
    Op.RESHAPE: of_reshape,
    Op.STACK: of_stack,
    Op.INDEX: of_index,
    Op.GETTUPLE: of_tuple_element,
    Op.MULTI: of_multi,
    Op.MSTACK: of_mstack,
    Op.B_BUFFER: of_device_source,
    Op.COPY: of_device_source,
}
