"""Rule column *axis*: the sharded axis of a value on an n-tuple device (R73 to R76)."""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir.derive.dtype import tuple_element
from uops.spec.ir.node import Rule, UOp
from uops.spec.ir.ops import ALU, MARKERS, Op
from uops.spec.ir.sizes import divides, show_shape, total


def none(u: UOp) -> None:
    return None


def of_first(u: UOp) -> int | None:
    return u.src[0].axis


def of_buffer(u: UOp) -> int | None:
    return 0 if isinstance(u.arg.device, tuple) else None


def from_arg(u: UOp) -> int | None:
    a: int | None = u.arg.axis
    return a


def of_load(u: UOp) -> int | None:
    """To an n-tuple device: 0. To one device: null. Without a device the buffer stays as it is."""
    if u.arg.device is None:
        return u.src[0].axis
    return 0 if isinstance(u.arg.device, tuple) else None


def of_permute(u: UOp) -> int | None:
    a = u.src[0].axis
    return None if a is None else u.arg.order.index(a)


def of_reshape(u: UOp) -> int | None:
    """Axis k with prod(s'[:k]) = prod(s[:axis]) and n dividing s'_k (R74)."""
    a = u.src[0].axis
    if a is None:
        return None
    old, new, devices = u.src[0].shape, u.shape, u.device
    before, n = total(old[:a]), len(devices) if isinstance(devices, tuple) else 1
    for k, extent in enumerate(new):
        if extent != 1 and divides(n, extent) and total(new[:k]) == before:
            return k
    moved = f"Reshape {show_shape(old)} to {show_shape(new)}"
    raise SpecError(f"{moved} moves elements across the shards of axis {a} (R74)", claim="RESHAPE.C5")


def of_collapse(u: UOp) -> int | None:
    a = u.src[0].axis
    return None if a in u.arg.axes else a


def of_alu(u: UOp) -> int | None:
    """Right-aligned axes of the sources agree or are null."""
    rank = len(u.shape)
    found = {s.axis + rank - len(s.shape) for s in u.src if s.axis is not None}
    if len(found) > 1:
        raise SpecError(f"sources of {u.op.name} are sharded on different axes {sorted(found)} (R74)")
    return found.pop() if found else None


def of_stack(u: UOp) -> int | None:
    found = {s.axis for s in u.src if s.axis is not None}
    if len(found) > 1:
        raise SpecError(f"sources of Stack are sharded on different axes {sorted(found)} (R74)")
    return found.pop() + 1 if found else None


def of_index(u: UOp) -> int | None:
    a = u.src[0].axis
    if a is None:
        return None
    indices = u.src[1:]
    if a < len(indices):
        raise SpecError(f"Index on the sharded axis {a} (R74)", claim="INDEX.C5")
    return a - len(indices) + sum(len(i.shape) for i in indices)


def of_tuple_element(u: UOp) -> int | None:
    return tuple_element(u).axis


def of_multi(u: UOp) -> int | None:
    a: int = u.arg.axis
    return a


def of_device_source(u: UOp) -> int | None:
    """B_BUFFER and COPY: 0 on the n-tuple that the DEVICE source names."""
    return 0 if isinstance(u.device, tuple) else None


def of_mstack(u: UOp) -> int | None:
    return 0 if u.src[0].shape else None


RULES: dict[Op, Rule] = {
    **dict.fromkeys(Op, none),
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
