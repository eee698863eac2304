"""Rule column *device*: a name, an n-tuple of names, or None."""

from __future__ import annotations

from uops.spec.ir.args import Device
from uops.spec.ir.derive.dtype import tuple_element
from uops.spec.ir.node import Rule, UOp
from uops.spec.ir.ops import ALU, MARKERS, Op


def none(u: UOp) -> None:
    return None


def from_arg(u: UOp) -> Device | None:
    d: Device | None = u.arg.device
    return d


def of_first(u: UOp) -> Device | None:
    return u.src[0].device


def first_given(u: UOp) -> Device | None:
    """The sources' common device; a Const has none (R72)."""
    for s in u.src:
        found: Device | None = s.device
        if found is not None:
            return found
    return None


def of_load(u: UOp) -> Device | None:
    """From arg, by default the source's (R52)."""
    d: Device | None = u.arg.device
    return u.src[0].device if d is None else d


def of_call(u: UOp) -> Device | None:
    return u.src[1].device if len(u.src) > 1 else None


def of_tuple_element(u: UOp) -> Device | None:
    """The element's; a Function's element without one of its own is where the Function is (R77)."""
    own = tuple_element(u).device
    return u.src[0].device if own is None and u.src[0].op is Op.FUNCTION else own


def of_device_source(position: int) -> Rule:
    def rule(u: UOp) -> Device | None:
        if len(u.src) <= position or u.src[position].op is not Op.DEVICE:
            return None
        d: Device = u.src[position].arg.device
        return d

    rule.__name__ = f"of_device_source_{position}"
    return rule


def of_device(u: UOp) -> Device | None:
    d: Device | None = u.arg.device
    return d


def of_mstack(u: UOp) -> Device | None:
    names = tuple(s.device for s in u.src)
    return names if all(isinstance(n, str) for n in names) else None  # type: ignore[return-value]


def of_mselect(u: UOp) -> Device | None:
    d = u.src[0].device
    return d[u.arg.index] if isinstance(d, tuple) else d


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
    Op.B_BUFFER: of_device_source(1),
    Op.B_PARAM: of_device_source(0),
    Op.COPY: of_device_source(1),
    Op.ALLREDUCE: of_device_source(1),
    Op.B_PROGRAM: of_device_source(1),
    Op.DEVICE: of_device,
    Op.MSTACK: of_mstack,
    Op.MSELECT: of_mselect,
}
