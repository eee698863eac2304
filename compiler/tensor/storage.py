"""Data of Tensors: the array behind each Buffer, and values that are already computed.

A Buffer of the front end has an array for as long as a graph refers to it. The array is flat, contiguous and never written. No
Buffer's contents change, so a node's value is fixed. `find_realized_leaf` maps a realized node to the Buffer with its value.
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
#: Realized node -> leaf with its value.
_realized: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
#: Least and greatest element of each Buffer whose memory nobody else holds; None until they are needed.
_ranges: weakref.WeakKeyDictionary[UOp, tuple[int, int] | None] = weakref.WeakKeyDictionary()


def make_leaf_buffer(array: Array, is_memory_shared: bool = False) -> UOp:
    """Return a fresh Buffer with an array's elements, in its shape, on the array's memory if that is contiguous.

    `is_memory_shared` says that others may hold that memory.
    """
    dtype = as_dtype(array.dtype)
    flat = np.ascontiguousarray(array, numpy_dtype(dtype)).reshape(-1)
    flat = flat.view()
    flat.flags.writeable = False
    buffer = B.buffer(flat.size, dtype)
    _arrays[buffer] = flat
    if not is_memory_shared:
        _ranges[buffer] = None
    return reshape_node(buffer, array.shape)


def make_stand_in_for_function_input(u: UOp) -> UOp:
    """Return a Buffer without data in place of `u`, which marks the uses of `u` as an input of a @function."""
    buffer = B.buffer(math.prod(u.shape), u.dtype)
    _stand_ins.add(buffer)
    return reshape_node(buffer, u.shape)


def is_stand_in(buffer: UOp) -> bool:
    """Return True if a Buffer stands for an input of a traced @function."""
    return buffer in _stand_ins


def reshape_node(u: UOp, shape: tuple[int, ...]) -> UOp:
    """Return `u` in another shape; a Reshape of a Reshape becomes one."""
    source = u.operand if u.op is Op.RESHAPE else u
    return source if source.shape == shape else B.reshape(source, shape)


def array_of(buffer: UOp) -> Array | None:
    """Return the array of a Buffer of the front end, or None."""
    return _arrays.get(buffer)


def value_of(u: UOp) -> Array | None:
    """Return the read-only array of a node that needs no computation, a Buffer with data or a Reshape of one; else None."""
    data = data_of(u)
    return None if data is None else data.reshape(u.shape)


def data_of(u: UOp) -> Array | None:
    """Return the flat array of a node that needs no computation, or None."""
    source = _skip_reshapes(u)
    return _arrays.get(source) if source.op is Op.BUFFER else None


def range_of_unshared_integer_buffer(u: UOp) -> tuple[int, int] | None:
    """Return the least and greatest element of a Buffer of integers on memory of our own, or None for any other node.

    The Buffer has at least one element. The result is memoized.
    """
    buffer = _skip_reshapes(u)
    bounds = _ranges.get(buffer)
    if bounds is None and buffer in _ranges:
        array = _arrays[buffer]
        bounds = _ranges[buffer] = int(array.min()), int(array.max())
    return bounds


def _skip_reshapes(u: UOp) -> UOp:
    while u.op is Op.RESHAPE:
        u = u.operand
    return u


def find_realized_leaf(u: UOp) -> UOp | None:
    """Return the leaf with the value of a node realized before, or None."""
    return _realized.get(u)


def make_leaf_and_record_unless_constant(realized_node: UOp, array: Array, is_constant: bool) -> UOp:
    """Return the leaf that stands for `realized_node`, whose value is `array`.

    A constant node may outlive every Tensor, in a cache of programs: it is not recorded, so that its array can be freed.
    """
    leaf = make_leaf_buffer(array, is_memory_shared=True)  # a backend may give memory that it was given
    if not is_constant:
        _realized[realized_node] = leaf
    return leaf
