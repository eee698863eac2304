"""Buffers, addresses, loads and stores of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.flow import DEVICE_SOURCE
from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import at_most, divides, same_shape, show_shape
from uops.spec.rows.claims import (
    Draft,
    arg_dtype_is,
    boolean,
    dtype_is,
    off_the_axis,
    ranges_from,
    same_dtype,
    same_shape_as,
    scalar,
    source_ops,
    storable,
)  # fmt: skip
from uops.spec.rows.table.base import EFFECT, Table

ADDRESSES = frozenset({Op.B_INDEX, Op.POINTER_INDEX, Op.PTRCAT})
_ACCESSES = frozenset({Op.B_LOAD, Op.B_STORE, Op.PTRCAT})


def size(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.size >= 0 else f"got {u.arg.size}"


SIZE = Draft("size >= 0", size)
STORABLE = arg_dtype_is(storable, "not void and not index", "R29")


def _constant_bounds(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, r in enumerate(u.src[1:]) if r.src[0].op is not Op.CONST or r.src[0].arg.value < 0), None)
    return None if wrong is None else f"range {wrong} has none"


def _one_device(u: UOp, ctx: Context) -> str | None:
    return None if not isinstance(u.arg.device, tuple) else f"{len(u.arg.device)} devices"


def _indices(u: UOp) -> tuple[UOp, ...]:
    return u.src[1 : len(u.src) - u.arg.gated]


def _gate_there(u: UOp, ctx: Context) -> str | None:
    return "there is none" if u.arg.gated and len(u.src) < 2 else None


def _gate(u: UOp, ctx: Context) -> str | None:
    if not u.arg.gated:
        return None
    gate = u.src[-1]
    if not boolean(gate.dtype):
        return f"got {gate.dtype}"
    return None if gate.shape == () or same_shape(gate.shape, u.shape) else f"got {show_shape(gate.shape)}"


def _index_count(u: UOp, ctx: Context) -> str | None:
    rank = len(u.src[0].shape)
    return None if len(_indices(u)) <= rank else f"{len(_indices(u))} indices into rank {rank}"


def _index_forms(u: UOp, ctx: Context) -> str | None:
    for k, i in enumerate(_indices(u)):
        if not i.dtype.is_integer or len(i.shape) > 1:
            return f"index {k} is {i.dtype} {show_shape(i.shape)}"
    return None


def _memory(u: UOp, ctx: Context) -> str | None:
    return None if ctx.base(u.src[0]) is not None else f"got {ctx.not_a_reference(u.src[0])}"


MEMORY = Draft("source 0 is a Buffer, a Param, or a view of one", _memory, "R51", gate=True)


def _is_address(u: UOp, ctx: Context) -> str | None:
    """A gate has a meaning at an access only (R104)."""
    if u.op is Op.B_INDEX and not u.arg.gated:
        return None
    wrong = next((x for x in ctx.users[u] if x.op not in _ACCESSES), None)
    return None if wrong is None else f"used by {wrong.op.name.lower()}"


ONLY_ACCESSED = Draft("used by Load, Store and PtrCat only, if gated", _is_address, "R104")


def _pointer(u: UOp, ctx: Context) -> str | None:
    return None if len(u.src[0].shape) == 1 else f"got {show_shape(u.src[0].shape)}"


def _offset(u: UOp, ctx: Context) -> str | None:
    o, item = u.src[1], u.src[0].dtype.itemsize
    if not o.dtype.is_integer or len(o.shape) > 1:
        return f"got {o.dtype} {show_shape(o.shape)}"
    return f"{o.arg.value} bytes of {item} each" if o.op is Op.CONST and o.arg.value % item else None


def _same_memory(u: UOp, ctx: Context) -> str | None:
    return None if ctx.base(u.src[1]) is ctx.base(u.src[0]) else "the index leads elsewhere"


def _alt(u: UOp, ctx: Context) -> str | None:
    if len(u.src) < 3:
        return None
    at, alt = u.src[1:]
    if alt.dtype is at.dtype and same_shape(alt.shape, at.shape):
        return None
    return f"needs {at.dtype} {show_shape(at.shape)}, got {alt.dtype} {show_shape(alt.shape)}"


def _gated(address: UOp) -> bool:
    pending = [address]
    while pending:
        a = pending.pop()
        if a.op is Op.PTRCAT:
            pending += a.src
        elif a.op is Op.B_INDEX and a.arg.gated:
            return True
    return False


def _alt_gated(u: UOp, ctx: Context) -> str | None:
    return "alt without a gate" if len(u.src) > 2 and not _gated(u.src[1]) else None


def _per_axis(first: str, second: str) -> Draft:
    def check(u: UOp, ctx: Context) -> str | None:
        rank, found = len(u.src[0].shape), (len(getattr(u.arg, first)), len(getattr(u.arg, second)))
        return None if found == (rank, rank) else f"needs {rank}, got {found[0]} and {found[1]}"

    return Draft(f"{first} and {second} have one entry per axis of T", check, gate=True)


def _pads(u: UOp, ctx: Context) -> str | None:
    wrong = next((n for n in (*u.arg.begin, *u.arg.end) if n < 0), None)
    return None if wrong is None else f"got {wrong}"


def _window(u: UOp, ctx: Context) -> str | None:
    for k, (b, e, n) in enumerate(zip(u.arg.begins, u.arg.ends, u.src[0].shape)):
        if not 0 <= b <= e or not at_most(e, n):
            return f"axis {k} has [{b}, {e}) of {show_shape((n,))}"
    return None


def _view(u: UOp, ctx: Context) -> str | None:
    offset, n = u.arg.offset, u.arg.size
    inside = offset >= 0 and n >= 0 and at_most(offset + n, u.src[0].shape[0])
    return None if inside else f"[{offset}, {offset + n}) of {show_shape(u.src[0].shape)}"


def _shards(u: UOp, ctx: Context) -> str | None:
    device, s = u.src[1].arg.device, u.src[0].shape
    if not isinstance(device, tuple):
        return None
    return None if s and divides(len(device), s[0]) else f"{show_shape(s)} over {len(device)} devices"


r = Table(Family.BESTIARY)
# fmt: off
r(Op.B_BUFFER, None, "BUFFER", "unique device", "Memory of `size` elements, told apart by its identity source.", [
    source_ops("unique", 0, frozenset({Op.UNIQUE, Op.LUNIQUE}), "R62"),
    DEVICE_SOURCE,
    SIZE,
    STORABLE,
], LEGALIZE[Op.B_BUFFER])
r(Op.BUFFERIZE, None, "BUFFERIZE", "T range...", "T for all values of the ranges, which it closes, in memory of their extents.", [
    ranges_from(1, frozenset({Op.B_RANGE})),
    scalar("T", 0),
    Draft("the ranges have constant bounds", _constant_bounds, gate=True),
    dtype_is("T", storable, "is storable", "R29", 0),
    Draft("one device, or none", _one_device),
], LEGALIZE[Op.BUFFERIZE])
r(Op.B_INDEX, None, "INDEX", "buf i...",
  "The element or address at the indices, one per leading axis; with `gated`, the last source says where it may be touched.", [
    Draft("a gate is there if arg says so", _gate_there, gate=True),
    Draft("the gate is bool, () or of the result's shape", _gate, "R104"),
    Draft("at most one index per axis of buf", _index_count, gate=True),
    Draft("an index is an integer of rank at most 1", _index_forms, "R45"),
    MEMORY,
    ONLY_ACCESSED,
], LEGALIZE[Op.B_INDEX])
r(Op.POINTER_INDEX, None, "POINTER_INDEX", "ptr offset", "The address `offset` bytes behind ptr.", [
    Draft("ptr has rank 1", _pointer, "R103"),
    MEMORY,
    Draft("offset is an integer of rank at most 1, and whole elements where it is constant", _offset, "R103"),
], LEGALIZE[Op.POINTER_INDEX])
r(Op.B_LOAD, None, "LOAD", "buf index alt?", "What memory holds at the index; alt where its gate is false.", [
    source_ops("index", 1, ADDRESSES, "R100"),
    Draft("the index leads into buf", _same_memory, "R100"),
    Draft("alt has the index's dtype and shape", _alt, "R104"),
    Draft("alt comes with a gated index", _alt_gated, "R104"),
], LEGALIZE[Op.B_LOAD])
r(Op.B_STORE, None, "STORE", "index val range...",
  "Writes val at the index, where its gate is true, in the loops of the ranges, which it closes.", [
    source_ops("index", 0, ADDRESSES, "R100"),
    same_dtype("index and val", 0, 2),
    same_shape_as("index and val", 0, 1),
    ranges_from(2, frozenset({Op.B_RANGE})),
], LEGALIZE[Op.B_STORE], EFFECT)
r(Op.B_PAD, None, "PAD", "T", "T with zeros before and after, on each axis.", [
    _per_axis("begin", "end"),
    Draft("begin >= 0 and end >= 0", _pads, "R43"),
    off_the_axis(lambda u, a: bool(u.arg.begin[a] or u.arg.end[a]), "Pad"),
], LEGALIZE[Op.B_PAD])
r(Op.B_SHRINK, None, "SHRINK", "T", "Of each axis, the elements from begin up to end.", [
    _per_axis("begins", "ends"),
    Draft("0 <= begins <= ends <= s", _window, "R44"),
    off_the_axis(lambda u, a: u.arg.begins[a] != 0 or u.arg.ends[a] != u.src[0].shape[a], "Shrink"),
], LEGALIZE[Op.B_SHRINK])
r(Op.COPY, None, "Copy", "T device", "T in fresh memory on the device.", [
    DEVICE_SOURCE,
    Draft("an n-tuple device divides axis 0, which is there", _shards, "R75"),
    dtype_is("T", storable, "is storable", "R29", 0),
], LEGALIZE[Op.COPY])
r(Op.BUFFER_VIEW, None, "BufferView", "buf", "`size` elements of buf from element `offset`, without a copy.", [
    Draft("buf has rank 1", _pointer, "R46", gate=True),
    Draft("offset >= 0 and offset + size <= s", _view, "R46"),
    off_the_axis(lambda u, a: True, "view"),
    dtype_is("buf", storable, "is storable", "R29", 0),
], LEGALIZE[Op.BUFFER_VIEW])
r(Op.B_PARAM, None, "PARAM", "device?", "Stands for argument `slot`: memory of `size` elements.", [
    Draft("slot >= 0", lambda u, ctx: None if u.arg.slot >= 0 else f"got {u.arg.slot}"),
    SIZE,
    STORABLE,
    source_ops("device", 0, frozenset({Op.DEVICE})),
    Draft("one device, or none", lambda u, ctx: "an n-tuple" if u.src and isinstance(u.src[0].arg.device, tuple) else None, "R73"),
], LEGALIZE[Op.B_PARAM])
# fmt: on
ROWS = tuple(r.rows)
