"""The rules of *device*: a name, an n-tuple of names, or None."""

from __future__ import annotations

from uops.spec.ir.args import Device
from uops.spec.ir.derive.dtype import node_selected_by_gettuple
from uops.spec.ir.node import Rule, UOp
from uops.spec.ir.ops import ALU, MARKERS, Op


def none(u: UOp) -> None:
    """Return None: an op that is on every device, or an effect."""
    return


def from_arg(u: UOp) -> Device | None:
    """Return the device that the arg names."""
    d: Device | None = u.arg.device
    return d


def of_first(u: UOp) -> Device | None:
    """Return the device of the first source, whatever its name."""
    return u.src[0].device  # the operand, or the memory of an access


def first_given(u: UOp) -> Device | None:
    """Return the sources' common device, which Consts do not have (R72, device of ALU)."""
    for s in u.src:
        device: Device | None = s.device
        if device is not None:
            return device
    return None


def of_load(u: UOp) -> Device | None:
    """Return the device that the arg names, by default the buffer's (R52, Load)."""
    d: Device | None = u.arg.device
    return u.buffer.device if d is None else d


def of_call(u: UOp) -> Device | None:
    """Return the device of the first argument of a Call or Function."""
    return u.src[1].device if len(u.src) > 1 else None  # the first of arguments


def of_tuple_element(u: UOp) -> Device | None:
    """Return the device of the element that a GetTuple selects; an element without one is on the Function's device (R77)."""
    device = node_selected_by_gettuple(u).device
    return u.packed.device if device is None and u.packed.op is Op.FUNCTION else device


def make_rule_reading_device_node(position: int) -> Rule:
    """Return the rule that reads the DEVICE node at a position of the sources; None without one."""

    def read_device_node_at_position(u: UOp) -> Device | None:
        if len(u.src) <= position or u.src[position].op is not Op.DEVICE:
            return None
        d: Device = u.src[position].arg.device
        return d

    read_device_node_at_position.__name__ = f"of_device_source_{position}"
    return read_device_node_at_position


def of_device(u: UOp) -> Device | None:
    """Return the device that a DEVICE node names."""
    d: Device | None = u.arg.device
    return d


def of_mstack(u: UOp) -> Device | None:
    """Return the n-tuple of the elements' devices; None if one is on no device or on several."""
    names = tuple(s.device for s in u.elements)
    return names if all(isinstance(n, str) for n in names) else None  # type: ignore[return-value]


def of_mselect(u: UOp) -> Device | None:
    """Return the device whose part an MSELECT takes."""
    d = u.operand.device
    return d[u.arg.index] if isinstance(d, tuple) else d


#: Op -> its rule; no op is without one.
RULES: dict[Op, Rule] = {
    **dict.fromkeys(ALU, first_given),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys((Op.STACK, Op.VECTORIZE, Op.CAT, Op.PTRCAT), first_given),
    **dict.fromkeys((Op.PARAM, Op.BUFFER, Op.BUFFERIZE), from_arg),
    **dict.fromkeys(
        (Op.CONST, Op.BINARY, Op.RANGE, Op.SPECIAL, Op.TUPLE, Op.GROUP, Op.SINK, Op.LINEAR, Op.END, Op.BARRIER, Op.IF, Op.ENDIF)
        + (Op.INS, Op.CUSTOM, Op.CUSTOMI, Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE, Op.PROGRAM_BINARY, Op.B_RANGE, Op.B_IF)
        + (Op.VCONST, Op.DEFINE_LOCAL, Op.DEFINE_REG, Op.DEFINE_VAR, Op.UNIQUE, Op.LUNIQUE),
        none,
    ),
    **dict.fromkeys(
        (Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.REPLICATED, Op.SLICE, Op.BITCAST, Op.REDUCE)
        + (Op.STORE, Op.AFTER, Op.ATOMICADD, Op.WMMA, Op.REDUCE_AXIS, Op.B_REDUCE, Op.B_INDEX, Op.POINTER_INDEX, Op.B_LOAD)
        + (Op.B_STORE, Op.B_BARRIER, Op.GEP, Op.UNROLL, Op.CONTRACT, Op.BIND, Op.B_PAD, Op.B_SHRINK, Op.BUFFER_VIEW)
        + (Op.MULTI, Op.PRECAST),
        of_first,
    ),
    Op.LOAD: of_load,
    Op.FUNCTION: of_call,
    Op.CALL: of_call,
    Op.GETTUPLE: of_tuple_element,
    Op.B_BUFFER: make_rule_reading_device_node(1),
    Op.B_PARAM: make_rule_reading_device_node(0),
    Op.COPY: make_rule_reading_device_node(1),
    Op.ALLREDUCE: make_rule_reading_device_node(1),
    Op.B_PROGRAM: make_rule_reading_device_node(1),
    Op.DEVICE: of_device,
    Op.MSTACK: of_mstack,
    Op.MSELECT: of_mselect,
}
