"""Movement ops on arrays: no arithmetic, every bit kept (R28).

`MOVES[op](u, x, more)`: x is the first source, `more` the other sources that had to be evaluated: the indices of an Index, the
sources of a Stack after the first, and those entries of a shape operand that are not constants (R40, R48). The same functions move
the byte positions of a reference (`memory`), so an op is defined once for values and for views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uops.interp.tensor.storage import BITS, NUMPY, Array, check_bool
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import Op
from uops.spec.resources import excess

Move = Callable[[UOp, Array, Sequence[Array]], Array]

# An Enum member is slow to reach through its class.
_STACK, _CONST = Op.STACK, Op.CONST
_prod, _empty = math.prod, np.empty
_NOT_BAD, _BAD = np.array(False), np.array(True)
_ALL, _REVERSED = slice(None), slice(None, None, -1)
#: An Expand beyond this many elements stays a view of its source.
_LARGE = 1 << 16


def operand_sources(u: UOp) -> tuple[UOp, ...]:
    """What must be evaluated before an op with shape operands: its first source and the operands' symbolic entries."""
    src = u.src
    if len(src) == 2 and src[1]._spelt.__class__ is tuple:  # the commonest, at a third of the cost
        return src[:1]
    return (src[0], *[s for vector in src[1:] if vector.spelt is None for s in vector.src if s.op is not _CONST])


def extents(vector: UOp, evaluated: Iterable[Array] = ()) -> tuple[int, ...]:
    """The integers that a shape operand spells; its entries that are not constants come from `evaluated`, in order."""
    sizes = vector._spelt
    if sizes is UNSET:
        sizes = vector.spelt
    if sizes is not None and (not sizes or min(sizes) >= 0):
        return sizes  # type: ignore[no-any-return]
    evaluated = iter(evaluated)
    if vector.op is not _STACK:
        raise SpecError(f"a shape operand is a Stack of index values, got {vector.op.name} (R40)")
    sizes = tuple([s.arg.value if s.op is _CONST else int(next(evaluated)) for s in vector.src])
    if sizes and min(sizes) < 0:
        raise Trap(f"negative extent in {sizes} (R48)")
    return sizes


def _broken(u: UOp, claim: str, what: str) -> Exception:
    """A wrong constant makes the graph ill-formed; a wrong symbolic value is a failure of this run."""
    text = f"{u.op.name} {claim}: {what}"
    return Trap(text) if len(operand_sources(u)) > 1 else SpecError(text, claim=claim)


def permute(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    return x.transpose(u.arg.order)


def flip(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    return x[tuple([_REVERSED if f else _ALL for f in u.arg.flags])]


def reshape(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    sizes = u.src[1]._spelt
    if sizes.__class__ is not tuple:
        sizes = extents(u.src[1], more)
    if -1 not in sizes:  # for which NumPy has its own meaning
        try:
            return x.reshape(sizes)
        except ValueError:
            pass
    sizes = extents(u.src[1], more)
    _ = u.shape  # raises where the sizes are too many (R65), however many elements they hold
    raise _broken(u, "RESHAPE.C1", f"{x.shape} has not the elements of {sizes}")


def expand(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    sizes = u.src[1]._spelt
    if sizes.__class__ is not tuple:
        sizes = extents(u.src[1], more)
    try:
        if len(sizes) == x.ndim:
            if _prod(sizes) > _LARGE:
                return _view(x, sizes)
            out: Array = _empty(sizes, x.dtype)
            out[...] = x  # broadcasts by the very rule: each axis equal, or 1
            return out
    except ValueError:
        pass
    sizes = extents(u.src[1], more)
    raise _broken(u, "EXPAND.C1", f"{x.shape} does not expand to {sizes}")


def _view(x: Array, sizes: tuple[int, ...]) -> Array:
    if why := excess(_prod(sizes) * x.dtype.itemsize):
        raise Unsupported(f"an EXPAND to {sizes}: {why}", "interp")
    return np.broadcast_to(x, sizes)


def pad(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    """The fill is zero (R43)."""
    rest = iter(more)
    offsets, sizes = extents(u.src[1], rest), extents(u.src[2], rest)
    if any(o + n > s for o, n, s in zip(offsets, x.shape, sizes)):
        raise _broken(u, "PAD.C2", f"{x.shape} at {offsets} does not fit in {sizes} (R43)")
    out: Array = np.zeros(sizes, x.dtype)
    out[tuple([slice(o, o + n) for o, n in zip(offsets, x.shape)])] = x
    return out


def shrink(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    rest = iter(more)
    offsets, sizes = extents(u.src[1], rest), extents(u.src[2], rest)
    if any(o + n > s for o, n, s in zip(offsets, sizes, x.shape)):
        raise _broken(u, "SHRINK.C2", f"{sizes} at {offsets} is not inside {x.shape} (R44)")
    return x[tuple([slice(o, o + n) for o, n in zip(offsets, sizes)])]


def out_of_bounds(i: Array, n: int) -> Array:
    """Which positions an axis of n elements does not have; a negative one is out of bounds (R45)."""
    if not i.ndim:
        return _NOT_BAD if 0 <= i.item() < n else _BAD
    bad: Array = np.asarray((i < 0) | (i >= n), bool)
    return bad


def within(i: Array, n: int) -> bool:
    """Whether an axis of n elements has every position of `i`."""
    if not i.ndim:
        return bool(0 <= i.item() < n)
    return not i.size or bool(i.item(i.argmin()) >= 0 and i.item(i.argmax()) < n)


def outer(indices: Sequence[Array]) -> tuple[Any, ...]:
    """Index vectors of rank 0 and 1, shaped so that NumPy combines them as an outer product (R45)."""
    rank = sum([i.ndim for i in indices])
    if not rank:
        return tuple([int(i) for i in indices])
    found, axis = [], 0
    for i in indices:
        if i.ndim:
            axis += 1
            i = i.reshape((-1, *(1,) * (rank - axis)))
        found.append(i.astype(np.int64, copy=False))
    return tuple(found)


def index(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    """Index of a value: out of bounds is a Trap at once (R45)."""
    for axis, i in enumerate(more):
        if not within(i, x.shape[axis]):
            raise Trap(f"Index {_example(i, x.shape[axis])} is out of bounds for axis {axis} of {x.shape} (R45)")
    return np.asarray(x[outer(more)])


def _example(i: Array, n: int) -> int:
    return int(i[out_of_bounds(i, n)].ravel()[0])


def stack(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    dtype = x.dtype if x.dtype != np.int64 or u.dtype is dt.int64 else np.result_type(x, *more)  # index may need objects
    out: Array = np.empty((1 + len(more), *x.shape), dtype)
    out[0] = x
    for k, y in enumerate(more, 1):
        if y.shape != x.shape:
            raise SpecError(f"STACK.C2: shapes {x.shape} and {y.shape} differ", claim="STACK.C2")
        out[k] = y
    return out


def replicated(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    """Collapse axes whose copies hold the same bits, else a Trap (R47, R76)."""
    pattern = x.view(BITS[u.dtype]) if u.dtype.is_float else x
    keep = tuple([slice(0, 1) if k in u.arg.axes else _ALL for k in range(x.ndim)])
    if any(x.shape[k] == 0 for k in u.arg.axes):
        raise Trap(f"Replicated has no copy to take from {x.shape} (R47)")
    if not (pattern == pattern[keep]).all():
        raise Trap(f"Replicated along {u.arg.axes}: the copies differ (R47)")
    return x[keep]


def slice_bytes(u: UOp, offset: int, itemsize: int, nbytes: int) -> tuple[int, int]:
    """The byte range of a Slice from element `offset` of `nbytes` bytes: inside them and aligned to the new dtype (R46)."""
    d = u.arg.dtype
    first = offset * itemsize
    last = first + u.arg.size * d.itemsize
    if first < 0 or last > nbytes or first % d.itemsize:
        raise Trap(f"Slice of {u.arg.size} {d} at byte {first} is not inside {nbytes} bytes, or not aligned (R46)")
    return first, last


def slice_(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    """`size` elements of a dtype from element `offset` of 1-D x (R46)."""
    first, last = slice_bytes(u, int(more[0]), x.dtype.itemsize, x.nbytes)
    out: Array = np.ascontiguousarray(x).view(np.uint8)[first:last].view(NUMPY[u.arg.dtype])
    if u.arg.dtype is dt.bool_:
        check_bool(out, "Slice")
    return out


def bitcast(u: UOp, x: Array, more: Sequence[Array] = ()) -> Array:
    """Little-endian reinterpretation; another item size scales the last axis (R46)."""
    target = NUMPY[u.arg.dtype]
    if x.dtype.itemsize == target.itemsize:
        return x.view(target)
    sizes = (*x.shape[:-1], x.shape[-1] * x.dtype.itemsize // target.itemsize)
    return np.ascontiguousarray(x).view(target).reshape(sizes) if x.size else np.empty(sizes, target)


# fmt: off
MOVES: dict[Op, Move] = {
    Op.PERMUTE:    permute,
    Op.FLIP:       flip,
    Op.RESHAPE:    reshape,
    Op.EXPAND:     expand,
    Op.PAD:        pad,
    Op.SHRINK:     shrink,
    Op.INDEX:      index,
    Op.STACK:      stack,
    Op.REPLICATED: replicated,
    Op.SLICE:      slice_,
    Op.BITCAST:    bitcast,
}
#: Moves whose later sources are shape operands.
SHAPED = (Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK)
# fmt: on
