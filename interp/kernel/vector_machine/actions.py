"""What each op does to values that have axes: arrays with one axis per loop around, then the node's own shape.

A value is an `Affine`; or an array whose leading axes are those around the place where it was computed, each of size 1 where
nothing varies, or none of them where nothing varies at all; or a `Ref`. `ACTIONS[op]` takes the machine, a node and the mask of
the Ifs around it, and gives the node's value. Ops mean what they mean in a tensor graph, by the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from uops.interp.kernel.vector_machine.affine import RULES, Affine, constant, fits
from uops.interp.kernel.vector_machine.axes import align_axes
from uops.interp.kernel.vector_machine.limits import GiveUp, is_large, within
from uops.interp.kernel.vector_machine.machine import Action, Machine, Value
from uops.interp.kernel.vector_machine.memory import Ref, Scattered, Strided, element, full, outside, whole
from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import outer
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, Array
from uops.interp.tensor.storage import constant as constant_array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op

_INTEGERS = frozenset({dt.index, *dt.INTS})
_ndarray = np.ndarray
f64 = np.float64


def dims(u: UOp) -> tuple[int, ...]:
    shape: tuple[int, ...] = u.shape
    if any(n.__class__ is not int for n in shape):
        raise GiveUp("a symbolic shape")
    return shape


# Values


def _const(m: Machine, u: UOp, live: Array | None) -> Value:
    d = u.arg.dtype
    return constant(u.arg.value) if d in _INTEGERS else constant_array(u.arg.value, d)


def _alu(m: Machine, u: UOp, live: Array | None) -> Value:
    cells, src = m.cells, u.src
    rule = RULES.get(u.op)
    if rule is not None:
        operands = [cells[s] for s in src]
        if all(c.__class__ is Affine for c in operands):
            found = rule(operands, m.extents)
            if isinstance(found, bool):
                return np.array(found)
            if found is not None and fits(found, u.dtype):
                return found
    rank = len(u.shape)
    if is_large(m.volume):
        m.affordable(src)
    return kernel_of(u.op, src)(*[m.value(s, rank) for s in src])


def _where(m: Machine, u: UOp, live: Array | None) -> Value:
    """A condition that is the same everywhere chooses one of the operands as it is."""
    p = m.cells[u.src[0]]
    if p.__class__ is _ndarray and not p.ndim and u.src[0].dtype is dt.bool_ and u.src[1].shape == u.src[2].shape:
        chosen = m.cells[u.src[1 if p else 2]]
        if chosen.__class__ is Affine or chosen.__class__ is _ndarray:
            return chosen
    return _alu(m, u, live)


def _cast(m: Machine, u: UOp, live: Array | None) -> Value:
    s, d = u.src[0], u.arg.dtype
    c = m.cells[s]
    if c.__class__ is Affine and fits(c, d):
        return c
    return CASTS[s.dtype, d](m.value(s, len(u.shape)))


def _reduce(m: Machine, u: UOp, live: Array | None) -> Value:
    """Over axes of the own shape."""
    x, own = m.value(u.src[0], len(u.shape)), len(u.shape)
    axes = tuple(a + x.ndim - own for a in u.arg.axes)
    return FOLDS[u.arg.op][u.dtype](x, axes) if axes else x


def _same(m: Machine, u: UOp, live: Array | None) -> Value:
    return m.cells[u.src[0]]


def _void(m: Machine, u: UOp, live: Array | None) -> Value:
    return None


# Movement


def _spelt(vector: UOp) -> tuple[int, ...]:
    sizes = vector.spelt
    if sizes is None:
        raise GiveUp("a symbolic shape")
    return sizes


def _own(lead: int, slices: Sequence[slice]) -> tuple[slice, ...]:
    """Parts of the own axes, all of the others."""
    return (slice(None),) * lead + tuple(slices)


def _moved(u: UOp, x: Array, own: int) -> Array:
    """A movement op on the own shape, the last `own` axes."""
    lead = x.ndim - own
    shape = dims(u)
    match u.op:
        case Op.RESHAPE:
            return x.reshape(x.shape[:lead] + shape)
        case Op.EXPAND:
            return np.broadcast_to(x, x.shape[:lead] + shape)
        case Op.PERMUTE:
            return x.transpose((*range(lead), *[lead + k for k in u.arg.order]))
        case Op.FLIP:
            return x[_own(lead, [slice(None, None, -1 if f else None) for f in u.arg.flags])]
        case Op.SHRINK:
            return x[_own(lead, [slice(o, o + n) for o, n in zip(_spelt(u.src[1]), shape)])]
        case Op.PAD:
            out: Array = np.zeros(x.shape[:lead] + shape, x.dtype)
            out[_own(lead, [slice(o, o + n) for o, n in zip(_spelt(u.src[1]), x.shape[lead:])])] = x
            return out
    raise GiveUp(f"{u.op.name} is not vectorised")


def _move(m: Machine, u: UOp, live: Array | None) -> Value:
    c = m.cells[u.src[0]]
    own = len(u.src[0].shape)
    if c.__class__ is Strided or c.__class__ is Scattered:
        if u.op in (Op.EXPAND, Op.PAD):
            raise GiveUp("a reference that is used as a value")
        return _moved_reference(m, u, c)
    return _moved(u, m.value(u.src[0], own), own)


def _moved_reference(m: Machine, u: UOp, ref: Ref) -> Ref:
    shape = dims(u)
    if isinstance(ref, Strided):
        if u.op is Op.RESHAPE and ref.strides == whole(ref.home, ref.shape).strides and math.prod(shape) == math.prod(ref.shape):
            return Strided(ref.home, ref.offset, shape, whole(ref.home, shape).strides)
        ref = ref.scattered(m.extents)
    at = _moved(u, ref.at, len(ref.shape))
    if at.shape[at.ndim - len(shape) :] != shape:
        raise GiveUp("a movement to another shape than the derived one")
    return Scattered(ref.home, at, shape)


def _stack(m: Machine, u: UOp, live: Array | None) -> Value:
    if not u.src:
        return np.zeros(0, np.int64)
    own = len(u.shape) - 1
    values = np.broadcast_arrays(*[full(m.value(s, own), own, len(m.extents)) for s in u.src])
    within(values[0].size * len(values))
    return np.stack(values, values[0].ndim - own)


def _bitcast(m: Machine, u: UOp, live: Array | None) -> Value:
    s, d = u.src[0], u.arg.dtype
    x = m.value(s, len(s.shape))  # a reference as a value gives up
    target = NUMPY[d]
    if d is dt.bool_ or s.dtype is dt.index:
        raise GiveUp("a Bitcast to bool")
    if x.dtype.itemsize == target.itemsize:
        return x.view(target)
    lead = x.ndim - len(s.shape)
    return np.ascontiguousarray(x).view(target).reshape(x.shape[:lead] + dims(u))


def _index(m: Machine, u: UOp, live: Array | None) -> Value:
    c = m.cells[u.src[0]]
    if c.__class__ is Strided:
        return _address(m, u, c)
    if c.__class__ is Scattered:
        raise GiveUp("an Index of gathered addresses")
    return _element(m, u)


def _element(m: Machine, u: UOp) -> Array:
    """Index of a value, by indices that are the same everywhere."""
    own = len(u.src[0].shape)
    x = m.value(u.src[0], own)
    indices = [m.value(s, len(s.shape)) for s in u.src[1:]]
    lead = x.ndim - own
    for k, (i, s) in enumerate(zip(indices, u.src[1:])):
        if i.ndim != len(s.shape) or ((i < 0) | (i >= x.shape[lead + k])).any():
            raise GiveUp("an Index of a value that varies, or is out of bounds")
    return np.asarray(x[(*(slice(None),) * lead, *outer(indices))])


def _address(m: Machine, u: UOp, ref: Strided) -> Ref:
    """The elements that an Index of a memory names; out of bounds is a fault only where they are accessed (R45)."""
    cells = m.cells
    found = element(ref, [cells[s] for s in u.src[1:]], m.extents)
    return _gathered(m, u, ref) if found is None else found


def _gathered(m: Machine, u: UOp, ref: Strided) -> Scattered:
    k = len(u.src) - 1
    rest = Strided(ref.home, ref.offset, ref.shape[k:], ref.strides[k:]).scattered(m.extents)
    shape = dims(u)
    at = align_axes(rest.at, len(rest.shape), len(shape), len(m.extents))
    bad: Array = np.zeros((), bool)
    done = 0
    for s, n, stride in zip(u.src[1:], ref.shape, ref.strides):
        own = len(s.shape)
        i = m.value(s, own)
        i = i.reshape(i.shape + (1,) * (len(shape) - done - own)) if i.ndim == own else _placed(i, own, done, len(shape))
        done += own
        bad = bad | (i < 0) | (i >= n)
        at = at + i.astype(np.int64, copy=False) * stride
    if bad.any():
        if m.is_value(ref.home):  # an Index of a value is a fault at once (R45)
            raise GiveUp("an Index of a value that is out of bounds")
        at = outside(at, bad)
    within(at.size)
    return Scattered(ref.home, at, shape)


def _placed(i: Array, own: int, before: int, rank: int) -> Array:
    """Index values with axes around them, their own axes from `before` on among `rank`."""
    lead = i.ndim - own
    return i.reshape(i.shape[:lead] + (1,) * before + i.shape[lead:] + (1,) * (rank - before - own))


# Memory


def _buffer(m: Machine, u: UOp, live: Array | None) -> Value:
    return whole(u, dims(u))


def _mask(m: Machine, u: UOp, gate: UOp | None, live: Array | None, rank: int) -> Array | bool:
    """Where an access happens; a bool where that is the same everywhere."""
    found = None if live is None else align_axes(live, 0, rank, len(m.extents))
    if gate is not None:
        value = m.value(gate, rank)
        found = value if found is None else np.logical_and(found, value)
    if found is None:
        return True
    return found if found.ndim else bool(found)


def _load(m: Machine, u: UOp, live: Array | None) -> Value:
    """The elements; where the gate is false alt's, and the address is not touched (R52)."""
    ref = m.cells[u.src[0]]
    gated = len(u.src) > 1
    if live is None and not gated and ref.__class__ is Strided:
        return m.load(u, ref, None)
    rank = len(u.shape)
    if ref.__class__ is not Strided and ref.__class__ is not Scattered:
        return np.where(m.value(u.src[2], rank), m.value(u.src[0], rank), m.value(u.src[1], rank)) if gated else ref
    if live is None and not gated:
        return m.load(u, ref, None)
    mask = _mask(m, u, u.src[2] if gated else None, live, rank)
    if mask is True:
        return m.load(u, ref, None)
    if mask is False:
        return m.value(u.src[1], rank) if gated else np.zeros(dims(u), NUMPY[u.dtype])
    found = m.load(u, ref, mask)
    return np.where(m.value(u.src[2], rank), found, m.value(u.src[1], rank)) if gated else found


def _target(m: Machine, u: UOp) -> Ref:
    ref = m.cells[u.src[0]]
    if ref.__class__ is not Strided and ref.__class__ is not Scattered:
        raise GiveUp("a write to what is no reference")
    return ref


def _store(m: Machine, u: UOp, live: Array | None) -> Value:
    ref, rank = _target(m, u), len(u.src[0].shape)
    value, own = m.value(u.src[1], rank), len(u.src[1].shape)
    if own != rank or value.shape[value.ndim - own :] != ref.shape or value.dtype != NUMPY[u.src[0].dtype]:
        raise GiveUp("a value of another form than its target")
    mask = True if live is None and len(u.src) == 2 else _mask(m, u, u.src[2] if len(u.src) > 2 else None, live, rank)
    if mask is not False:
        m.store(u, ref, value, None if mask is True else mask)


def _atomic(m: Machine, u: UOp, live: Array | None) -> Value:
    ref, rank, d = _target(m, u), len(u.src[0].shape), u.src[0].dtype
    if d not in dt.INTS:
        raise GiveUp("AtomicAdd of floats")
    value, own = m.value(u.src[1], rank), len(u.src[1].shape)
    if own != rank or value.shape[value.ndim - own :] != ref.shape or value.dtype != NUMPY[d]:
        raise GiveUp("a value of another form than its target")
    mask = _mask(m, u, None, live, rank)
    if mask is not False:
        m.add(u, ref, value, None if mask is True else mask)


def _if(m: Machine, u: UOp, live: Array | None) -> Value:
    """The mask inside of the If."""
    gate = m.value(u.src[0], 0)
    return gate if live is None else np.logical_and(align_axes(live, 0, 0, len(m.extents)), gate)


def _barrier(m: Machine, u: UOp, live: Array | None) -> Value:
    m.phase += 1


# fmt: off
ACTIONS: dict[Op, Action] = {
    **dict.fromkeys(KERNELS, _alu), **dict.fromkeys(MARKERS, _same),
    Op.WHERE: _where, Op.CONST: _const, Op.CAST: _cast, Op.REDUCE: _reduce, Op.AFTER: _same,
    **dict.fromkeys((Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.SHRINK, Op.PAD), _move),
    Op.STACK: _stack, Op.BITCAST: _bitcast, Op.INDEX: _index,
    Op.BUFFER: _buffer, Op.LOAD: _load, Op.STORE: _store, Op.ATOMICADD: _atomic, Op.IF: _if, Op.BARRIER: _barrier,
}
# fmt: on
