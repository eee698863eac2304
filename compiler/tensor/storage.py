"""Data of Tensors: the array behind each Buffer, and values that are known already.

A Buffer of the front end has an array for as long as a graph refers to it; the array is flat, contiguous and never written. Since
no Buffer's contents change, a node's value is fixed, and `known` may map a realized node to the Buffer that holds its value.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor.dtypes import as_dtype
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Array = np.ndarray[Any, np.dtype[Any]]

_arrays: weakref.WeakKeyDictionary[UOp, Array] = weakref.WeakKeyDictionary()
_stand_ins: weakref.WeakSet[UOp] = weakref.WeakSet()
_known: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
#: Least and greatest element of each Buffer whose memory nobody else holds; None before they are asked for.
_ranges: weakref.WeakKeyDictionary[UOp, tuple[int, int] | None] = weakref.WeakKeyDictionary()


def leaf(array: Array, shared: bool = False) -> UOp:
    """A fresh Buffer with this array's elements, in its shape, on the array's memory where that is contiguous; `shared` if others
    may hold that memory."""
    dtype = as_dtype(array.dtype)
    flat = np.ascontiguousarray(array, numpy_dtype(dtype)).reshape(-1)
    flat = flat.view()
    flat.flags.writeable = False
    buffer = B.buffer(flat.size, dtype)
    _arrays[buffer] = flat
    if not shared:
        _ranges[buffer] = None
    return shaped(buffer, array.shape)


def stand_in(u: UOp) -> UOp:
    """A Buffer without data in place of `u`, which tells the uses of `u` as an input of a @function from all other nodes."""
    buffer = B.buffer(math.prod(u.shape), u.dtype)
    _stand_ins.add(buffer)
    return shaped(buffer, u.shape)


def is_stand_in(buffer: UOp) -> bool:
    """Whether a Buffer stands for an input of a @function that was traced."""
    return buffer in _stand_ins


def shaped(u: UOp, shape: tuple[int, ...]) -> UOp:
    """`u` in that shape; a Reshape of a Reshape is one."""
    source = u.src[0] if u.op is Op.RESHAPE else u
    return source if source.shape == shape else B.reshape(source, shape)


def array_of(buffer: UOp) -> Array | None:
    """The array of a Buffer of the front end."""
    return _arrays.get(buffer)


def value_of(u: UOp) -> Array | None:
    """The read-only array of a node that needs no computation: a Buffer with data, or a Reshape of one."""
    found = data_of(u)
    return None if found is None else found.reshape(u.shape)


def data_of(u: UOp) -> Array | None:
    """The same, flat."""
    source = _skip_reshapes(u)
    return _arrays.get(source) if source.op is Op.BUFFER else None


def range_of(u: UOp) -> tuple[int, int] | None:
    """Least and greatest of the integers, at least one, that a Buffer of memory of our own holds; None for any other node. It is
    remembered."""
    buffer = _skip_reshapes(u)
    found = _ranges.get(buffer)
    if found is None and buffer in _ranges:
        array = _arrays[buffer]
        found = _ranges[buffer] = int(array.min()), int(array.max())
    return found


def _skip_reshapes(u: UOp) -> UOp:
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u


def known(u: UOp) -> UOp | None:
    """The leaf that holds the value of a node realized before."""
    return _known.get(u)


def remember(u: UOp, array: Array, constant: bool) -> UOp:
    """The leaf that stands for `u`, whose value is `array`. A constant node may outlive every Tensor, in a cache of programs: its
    array is not kept for it."""
    found = leaf(array, shared=True)  # a backend may give memory that it was given
    if not constant:
        _known[u] = found
    return found
