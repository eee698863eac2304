"""`legalize` of each bestiary op, as functions from the node and the `Lowering` under way to a core node."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from uops.spec.bestiary.tables import EXPANDABLE
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.shape import part_of_dim, scale_dim
from uops.spec.ir.dtypes import Kind
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges, scope_nodes


class Lowering:
    """The state of one `legalize`: what each node became, and the identities given to new Buffers (R113)."""

    def __init__(self, order: Sequence[UOp]) -> None:
        self.done: dict[UOp, UOp] = {}
        ids = [u.arg.id for u in order if u.op is Op.UNIQUE] + [u.arg.unique for u in order if u.op is Op.BUFFER]
        self._next = max(ids, default=-1) + 1
        #: The ranges that a node other than a Call closes.
        self.closed = {r for u in order for r in closed_by(u)}
        self._given: dict[UOp, int] = {}
        devices = [u.arg.device for u in order if u.op is Op.DEVICE and isinstance(u.arg.device, str)]
        #: Where memory that names no device is.
        self.device: A.Device = devices[0] if devices else "CPU"

    def __getitem__(self, u: UOp) -> UOp:
        return self.done[u]

    def src(self, u: UOp) -> tuple[UOp, ...]:
        return tuple(self.done[s] for s in u.src)

    def identity(self, u: UOp) -> int:
        """A number for the Buffer that stands for `u`."""
        if u.op is Op.UNIQUE:
            return int(u.arg.id)
        if u not in self._given:
            self._given[u] = self._next
            self._next += 1
        return self._given[u]


Lower = Callable[[UOp, Lowering], UOp]

# --------------------------------------------------------------------------------------------------------------- helpers


def lanes(x: UOp) -> list[UOp]:
    """The scalars of a vector, or the scalar itself."""
    if x.shape == ():
        return [x]
    if x.op is Op.STACK:
        return list(x.src)
    return [b.at(x, k) for k in range(x.shape[0])]


def devices_of(x: UOp) -> tuple[str, ...]:
    """The devices that hold a value."""
    d = x.device
    return d if isinstance(d, tuple) else () if d is None else (d,)


def filled(value: UOp, shape: Sequence[Dim]) -> UOp:
    """The scalar repeated."""
    if not shape:
        return value
    return b.expand(b.reshape(value, (1,) * len(shape)), shape)


def reverse(x: UOp) -> UOp:
    """An order-reversing bijection that cannot overflow (R102)."""
    if x.dtype is dt.bool_:
        return UOp(Op.NOT, (x,))
    if x.dtype.is_float:
        return UOp(Op.NEG, (x,))
    ones = (1 << x.dtype.bits) - 1 if x.dtype.kind is Kind.UINT else -1
    return b.xor(x, b.const(ones, x.dtype))


def reduced(op: Op, t: UOp, *, ranges: Sequence[UOp] = (), axes: Sequence[int] = ()) -> UOp:
    """A core Reduce; Min is Max in the reversed order."""
    if op is Op.MIN:
        return reverse(reduced(Op.MAX, reverse(t), ranges=ranges, axes=axes))
    return UOp(Op.REDUCE, (t, *ranges), A.ReduceArg(op, tuple(axes)))


def lane_values(axes: Sequence[tuple[int, int]]) -> list[dict[int, int]]:
    """Axis id -> value, for each lane, the first axis outermost (R111)."""
    ids = [a for a, _ in axes]
    return [dict(zip(ids, values, strict=True)) for values in itertools.product(*(range(n) for _, n in axes))]


# ------------------------------------------------------------------------------------------------------ loops and reduces


def range_(u: UOp, low: Lowering) -> UOp:
    """Loops that must be open first become dependencies of the bound."""
    bound, *deps = low.src(u)
    return UOp(Op.RANGE, (UOp(Op.AFTER, (bound, *deps)) if deps else bound,), u.arg)


def reduce_axis(u: UOp, low: Lowering) -> UOp:
    return reduced(u.arg.op, low[u.src[0]], axes=u.arg.axes)


def reduce_ranges(u: UOp, low: Lowering) -> UOp:
    """The lanes of a vector are folded as well (R105)."""
    t, *ranges = low.src(u)
    if t.shape:
        t = b.reshape(reduced(u.arg.op, t, axes=(0,)), ())
    return reduced(u.arg.op, t, ranges=ranges) if ranges else t


def allreduce(u: UOp, low: Lowering) -> UOp:
    """R110: the shards side by side on a new axis, reduced over it, then brought to the device."""
    t, target = low[u.src[0]], u.src[1].arg.device
    n, a = len(devices_of(t)), t.axis or 0
    rest = [k for k in range(len(t.shape)) if k != a]
    x = b.permute(t, (a, *rest))
    shard = (part_of_dim(x.shape[0], n), *x.shape[1:])
    x = b.reshape(reduced(u.arg.op, b.reshape(x, (n, *shard)), axes=(0,)), shard)
    x = b.permute(x, [([a, *rest]).index(k) for k in range(len(t.shape))])
    if target == t.device:
        return x
    return b.copy(x, target) if isinstance(target, str) else whole_on(b.copy(x, target[0]), target)


def whole_on(t: UOp, devices: tuple[str, ...]) -> UOp:
    """All of `t` on every device."""
    n = len(devices)
    copies = b.copy(b.expand(b.reshape(t, (1, *t.shape)), (n, *t.shape)), devices)
    return b.reshape(b.replicated(copies, 0), t.shape)


# ----------------------------------------------------------------------------------------------------------------- memory


def buffer(u: UOp, low: Lowering) -> UOp:
    return b.buffer(u.arg.size, u.arg.dtype, u.src[1].arg.device, unique=low.identity(u.src[0]))


def bufferize(u: UOp, low: Lowering) -> UOp:
    """Buffer, Store, End and After."""
    value, *ranges = low.src(u)
    device = u.arg.device or value.device or low.device
    memory = b.buffer(math.prod(u.shape), u.dtype, device, u.arg.addrspace, low.identity(u))
    view = memory if len(u.shape) == 1 else b.reshape(memory, u.shape)
    where = UOp(Op.INDEX, (view, *ranges)) if ranges else view
    return b.after(view, b.end(b.store(where, value), *ranges))


def index(u: UOp, low: Lowering) -> UOp:
    """Without the gate, which goes to the access (R104)."""
    return UOp(Op.INDEX, tuple(low[s] for s in u.src[: len(u.src) - u.arg.gated]))


def pointer_index(u: UOp, low: Lowering) -> UOp:
    """R103: the offset is in bytes; one inside of an element is out of bounds (R122)."""
    pointer, offset = low.src(u)
    size = b.const(pointer.dtype.itemsize, offset.dtype)
    number = b.idiv(offset, size)
    if not _multiple(offset, pointer.dtype.itemsize):
        number = b.where(b.eq(b.mod(offset, size), b.const(0, offset.dtype)), number, b.const(-1, offset.dtype))
    return UOp(Op.INDEX, (pointer, number))


def _multiple(offset: UOp, size: int) -> bool:
    """Whether an offset is a multiple of an element's size by its form; a power of two, so that wrapping keeps it one."""
    factors = offset.src if offset.op is Op.MUL else (offset,)
    return size == 1 or any(s.op is Op.CONST and s.arg.value % size == 0 for s in factors)


def _gate(address: UOp, low: Lowering) -> UOp | None:
    return low[address.src[-1]] if address.op is Op.B_INDEX and address.arg.gated else None


def load(u: UOp, low: Lowering) -> UOp:
    alt = low[u.src[2]] if len(u.src) > 2 else None
    return _load(u.src[1], alt, low)


def _load(address: UOp, alt: UOp | None, low: Lowering) -> UOp:
    if address.op is Op.PTRCAT:
        return b.stack(*_load_each(address, alt, low))
    gate, memory = _gate(address, low), low[address]
    if gate is None:
        return b.load(memory)
    return b.load(memory, filled(b.const(0, memory.dtype), memory.shape) if alt is None else alt, gate)


def _load_each(address: UOp, alt: UOp | None, low: Lowering) -> list[UOp]:
    """One load per address (R117), as scalars."""
    others = [] if alt is None else lanes(alt)
    found: list[UOp] = []
    for s in address.src:
        n = s.shape[0] if s.shape else 1
        part = others[len(found) : len(found) + n]
        piece = None if not part else part[0] if s.shape == () else b.stack(*part)
        found += lanes(_load(s, piece if s.op is Op.PTRCAT or _gate(s, low) is not None else None, low))
    return found


def store(u: UOp, low: Lowering) -> UOp:
    """R105: the ranges end around it."""
    return b.end(_store(u.src[0], low[u.src[1]], low), *(low[r] for r in u.src[2:]))


def _store(address: UOp, value: UOp, low: Lowering) -> UOp:
    if address.op is not Op.PTRCAT:
        return b.store(low[address], value, _gate(address, low))
    parts, values, at = [], lanes(value), 0
    for s in address.src:
        n = s.shape[0] if s.shape else 1
        parts.append(_store(s, values[at] if s.shape == () else b.stack(*values[at : at + n]), low))
        at += n
    return b.group(*parts)


def pad(u: UOp, low: Lowering) -> UOp:
    return b.pad(low[u.src[0]], u.arg.begin, u.shape)


def shrink(u: UOp, low: Lowering) -> UOp:
    return b.shrink(low[u.src[0]], u.arg.begins, u.shape)


def copy(u: UOp, low: Lowering) -> UOp:
    return b.copy(low[u.src[0]], u.src[1].arg.device)


def buffer_view(u: UOp, low: Lowering) -> UOp:
    return b.slice_(low[u.src[0]], u.arg.offset, u.arg.size)


# ------------------------------------------------------------------------------------------------------- kernel structure


def program(u: UOp, low: Lowering) -> UOp:
    """R115: the most lowered stage."""
    sink, _, *stages = low.src(u)
    if len(stages) == 3:
        return UOp(Op.PROGRAM, tuple(stages))
    return stages[0] if stages else sink


def program_binary(u: UOp, low: Lowering) -> UOp:
    return b.binary(u.arg.data)


def barrier(u: UOp, low: Lowering) -> UOp:
    wait = UOp(Op.BARRIER, low.src(u))
    return wait if u.dtype is dt.void else b.after(low[u.src[0]], wait)


def if_(u: UOp, low: Lowering) -> UOp:
    """R114: the condition joins the gate of every Store."""
    gate, *body = low.src(u)
    return b.group(*(gated(s, gate) for s in body))


def gated(effect: UOp, gate: UOp) -> UOp:
    """An effect of Stores, with the gate in each."""
    done: dict[UOp, UOp] = {}
    for u in toposort(effect, gate=lambda n: n.op in (Op.END, Op.GROUP)):
        if u.op is Op.STORE:
            both = b.and_(u.src[2], gate) if len(u.src) > 2 else gate
            done[u] = UOp(Op.STORE, (*u.src[:2], both))
        else:
            done[u] = u.replace(src=tuple(done[s] for s in u.src)) if u.op in (Op.END, Op.GROUP) else u
    return done[effect]


def call(u: UOp, low: Lowering) -> UOp:
    """R121: the Ranges among the arguments that nothing else closes end around it."""
    done = u.replace(src=low.src(u))
    return b.end(done, *(low[r] for r in u.src[1:] if r.op is Op.B_RANGE and r not in low.closed))


def linear(u: UOp, low: Lowering) -> UOp:
    """R124: an If executes its body itself; what an instruction became stands before it, each node once."""
    if low.src(u) == u.src:
        return u
    bodies = {e for s in u.src if s.op is Op.B_IF for e in effects_of(s)}
    listed: dict[UOp, None] = {}
    for s in u.src:
        if s in bodies:
            continue
        for n in [low[s]] if s.op is Op.CALL else scope_nodes(low[s]):
            if n.op not in _UNLISTED:
                listed.setdefault(n)
    return u.replace(src=tuple(listed))


#: Used without being instructions.
_UNLISTED = frozenset({Op.CONST, Op.STACK, Op.PARAM, Op.BUFFER})


def effects_of(u: UOp) -> list[UOp]:
    """Every effect in the body of an IF."""
    found: list[UOp] = []
    pending = list(u.src[1:])
    while pending:
        e = pending.pop()
        found.append(e)
        below = {Op.END: e.src[:1], Op.GROUP: e.src, Op.ENDIF: e.src, Op.B_IF: e.src[1:]}
        pending += below.get(e.op, ())
    return found


# ---------------------------------------------------------------------------------------------------------------- vectors


def vectorize(u: UOp, low: Lowering) -> UOp:
    return b.stack(*low.src(u))


def gep(u: UOp, low: Lowering) -> UOp:
    v, picked = low[u.src[0]], u.arg.indices
    return b.at(v, picked[0]) if len(picked) == 1 else b.at(v, b.shape_vector(picked))


def vconst(u: UOp, low: Lowering) -> UOp:
    return b.stack(*(UOp(Op.CONST, (), c) for c in u.arg.values))


def cat(u: UOp, low: Lowering) -> UOp:
    return b.stack(*(lane for s in low.src(u) for lane in lanes(s)))


def unroll(u: UOp, low: Lowering) -> UOp:
    """R111: a scalar is computed once per lane, with the lane's values for the Ranges of the axes."""
    t = low[u.src[0]]
    if t.shape:
        return t
    ids = {a for a, _ in u.arg.axes}
    ranges = [r for r in open_ranges(scope_nodes(t))[t] if r.arg.axis_id in ids]
    return b.stack(*(substitute(t, {r: b.index(at[r.arg.axis_id]) for r in ranges}) for at in lane_values(u.arg.axes)))


def contract(u: UOp, low: Lowering) -> UOp:
    """R106, R111: a scalar is repeated; lanes are put into this node's order of axes."""
    t, axes = low[u.src[0]], u.arg.axes
    if not t.shape:
        return b.stack(*[t] * math.prod(n for _, n in axes))
    below = unrolled_axes(u.src[0])
    if below is None or below == axes:
        return t
    position = {tuple(sorted(at.items())): k for k, at in enumerate(lane_values(below))}
    picked = [position[tuple(sorted(at.items()))] for at in lane_values(axes)]
    return b.stack(*(lanes(t)[k] for k in picked))


def unrolled_axes(u: UOp) -> tuple[tuple[int, int], ...] | None:
    """The lane axes of the first UNROLL that spreads to `u`."""
    found = next((n for n in toposort(u, gate=lambda n: n.op in EXPANDABLE) if n.op is Op.UNROLL), None)
    return None if found is None else found.arg.axes


# ---------------------------------------------------------------------------------------------- definitions and devices


def param(u: UOp, low: Lowering) -> UOp:
    return b.param(u.arg.slot, (u.arg.size,), u.arg.dtype, u.src[0].arg.device if u.src else None)


def define(space: A.AddrSpace) -> Lower:
    def lower(u: UOp, low: Lowering) -> UOp:
        return b.buffer(u.arg.size, u.arg.dtype, low.device, space, low.identity(u))

    lower.__name__ = f"define_{space.name.lower()}"
    return lower


def define_var(u: UOp, low: Lowering) -> UOp:
    return b.variable(u.arg.name, u.arg.min_val, u.arg.max_val)


def mstack(u: UOp, low: Lowering) -> UOp:
    """R116: gathered on the first device, then dealt out."""
    shards = low.src(u)
    devices = tuple(d for s in shards for d in devices_of(s))
    joined = b.stack(*(b.copy(s, devices[0]) for s in shards))
    return b.copy(b.reshape(joined, (scale_dim(joined.shape[1], len(devices)), *joined.shape[2:])), devices)


def mselect(u: UOp, low: Lowering) -> UOp:
    t = low[u.src[0]]
    devices = devices_of(t)
    here = b.copy(t, devices[u.arg.index])
    if t.axis is None:
        return here
    shape = tuple(part_of_dim(n, len(devices)) if k == t.axis else n for k, n in enumerate(t.shape))
    return b.shrink(here, [scale_dim(n, u.arg.index) if k == t.axis else 0 for k, n in enumerate(shape)], shape)


def multi(u: UOp, low: Lowering) -> UOp:
    """The value is dealt out along the axis, unless it is already."""
    t, a = low[u.src[0]], u.arg.axis
    if t.axis == a:
        return t
    order = (a, *(k for k in range(len(t.shape)) if k != a))
    return b.permute(b.copy(b.permute(t, order), devices_of(t)), [order.index(k) for k in range(len(order))])


def same(u: UOp, low: Lowering) -> UOp:
    return low[u.src[0]]


def absorbed(u: UOp, low: Lowering) -> UOp:
    """Read by the node above it."""
    return u


def customi(u: UOp, low: Lowering) -> UOp:
    return UOp(Op.CUSTOM, low.src(u), u.arg)


def minimum(u: UOp, low: Lowering) -> UOp:
    x, y = low.src(u)
    return reverse(b.maximum(reverse(x), reverse(y)))
