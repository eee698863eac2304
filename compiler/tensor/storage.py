"""Data of Tensors: the array behind each Buffer, and values that are already computed.

A Buffer of the front end has an array for as long as a graph refers to it. The array is flat, contiguous and never written. No
Buffer's contents change, so a node's value is fixed. `find_realized_leaf` maps a realized node to the Buffer with its value.
"""

from __future__ import annotations

import itertools
import math
import weakref
from typing import Any

import numpy as np

from uops.compiler.ir.devices import HOST
from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor.dtypes import as_dtype
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import Device
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import replicate_on_devices

Array = np.ndarray[Any, np.dtype[Any]]

#: NumPy's dtype -> ours. The name of a NumPy dtype is found more slowly.
_DTYPES = {numpy_dtype(d): d for d in dt.STORABLE}
_arrays: weakref.WeakKeyDictionary[UOp, Array] = weakref.WeakKeyDictionary()
_stand_ins: weakref.WeakSet[UOp] = weakref.WeakSet()
#: Copy of a leaf on other devices -> the leaf.
_placed: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
#: Realized node -> leaf with its value.
_realized: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
#: Buffer whose data a program computed -> the Buffers that the program read, as far as they are in use.
_read_by_program: weakref.WeakKeyDictionary[UOp, tuple[weakref.ref[UOp], ...]] = weakref.WeakKeyDictionary()
#: Slots of stand-ins that are Params.
_stand_in_slots = itertools.count(1 << 32)
#: Least and greatest element of each Buffer of integers whose memory nobody else holds; None until they are needed.
_ranges: weakref.WeakKeyDictionary[UOp, tuple[int, int] | None] = weakref.WeakKeyDictionary()


def make_leaf_on_contiguous_memory_or_copy(array: Array, may_others_change_it: bool = False) -> UOp:
    """Return a fresh Buffer with an array's elements, in its shape, on the array's memory if that is contiguous.

    `may_others_change_it` says that others may hold that memory.
    """
    dtype = _DTYPES.get(array.dtype) or as_dtype(array.dtype)
    flat = np.ascontiguousarray(array, numpy_dtype(dtype)).reshape(-1).view()
    flat.flags.writeable = False
    buffer = B.buffer(flat.size, dtype)
    _arrays[buffer] = flat
    if dtype.is_integer and not may_others_change_it:
        _ranges[buffer] = None
    return reshape_node(buffer, array.shape)


def make_computed_leaf(array: Array, dtype: DType, shape: tuple[int, ...]) -> UOp:
    """Return a fresh Buffer with an array that a program computed, contiguous and of the storage dtype of `dtype`, in a shape."""
    flat = np.asarray(array).reshape(-1).view()
    flat.flags.writeable = False
    buffer = B.buffer(flat.size, dtype)
    _arrays[buffer] = flat
    _read_by_program[buffer] = ()
    return buffer if buffer.shape == shape else B.reshape(buffer, shape)


def make_stand_in_for_function_input(u: UOp) -> UOp:
    """Return a Buffer without data in place of `u`, which marks the uses of `u` as an input of a @function.

    A value on other devices has a Param, as no Buffer is whole on several devices, or sharded along an inner axis (R73).
    """
    device = u.device
    if device is not None and device != HOST:
        return B.param(next(_stand_in_slots), u.shape, u.dtype, device, u.axis)
    buffer = B.buffer(math.prod(u.shape), u.dtype)
    _stand_ins.add(buffer)
    return reshape_node(buffer, u.shape)


def make_param_like(slot: int, u: UOp) -> UOp:
    """Return the Param of a Function for an argument like `u`. It names devices only if `u` is not on the host (R79)."""
    device = u.device
    if device is None or device == HOST:
        return B.param(slot, u.shape, u.dtype)
    return B.param(slot, u.shape, u.dtype, device, u.axis)


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


def realized_value_of(u: UOp) -> Array | None:
    """Return the read-only array of a node that needs no computation, or was realized before, or None."""
    return value_of(_realized.get(u) or u)


def data_of(u: UOp) -> Array | None:
    """Return the flat array of a node that needs no computation, or None."""
    source = _skip_reshapes_and_leaf_placement(u)
    return _arrays.get(source) if source.op is Op.BUFFER else None


def find_range_of_unshared_integer_buffer(u: UOp) -> tuple[int, int] | None:
    """Return the least and greatest element of a Buffer of integers on memory of our own, or None for any other node.

    The Buffer has at least one element. The result is memoized.
    """
    buffer = _skip_reshapes_and_leaf_placement(u)
    bounds = _ranges.get(buffer)
    if bounds is None and buffer in _ranges:
        array = _arrays[buffer]
        bounds = _ranges[buffer] = int(array.min()), int(array.max())
    return bounds


def _skip_reshapes_and_leaf_placement(u: UOp) -> UOp:
    """Return the node below Reshapes; of a leaf's copy on other devices, what is below those of the leaf."""
    while True:
        leaf = _placed.get(u) if _placed else None
        if leaf is None and u.op is not Op.RESHAPE:
            return u
        u = u.operand if leaf is None else leaf


def find_realized_leaf(u: UOp) -> UOp | None:
    """Return the leaf with the value of a node realized before, or None."""
    return _realized.get(u)


def copy_to_devices(u: UOp, device: Device, axis: int | None) -> UOp:
    """Build a copy of `u` on a device, or on several: sharded along `axis`, or whole on each of them if that is None."""
    if not isinstance(device, tuple):
        return B.copy(u, device)
    if axis is None:
        return replicate_on_devices(u, device)
    rank = len(u.shape)
    first = B.permute(u, (axis, *range(axis), *range(axis + 1, rank))) if axis else u  # a Load shards the first axis (R74)
    copied = B.copy(first, device)
    return B.permute(copied, (*range(1, axis + 1), 0, *range(axis + 1, rank))) if axis else copied


def is_computed_leaf(buffer: UOp) -> bool:
    """Return True if a program computed the data of a Buffer."""
    return buffer in _read_by_program


def was_computed_from(buffer: UOp, source: UOp) -> bool:
    """Return True if the data of a Buffer was computed by programs from that of the Buffer `source`."""
    pending, seen = [buffer], {buffer}
    while pending:
        for reference in _read_by_program.get(pending.pop(), ()):
            read = reference()
            if read is source:
                return True
            if read is not None and read not in seen:
                seen.add(read)
                pending.append(read)
    return False


def make_leaf_and_memoize_by_realized_node(
    realized_node: UOp, array: Array, is_constant: bool, inputs: tuple[weakref.ref[UOp], ...] = ()
) -> UOp:
    """Return the node that stands for `realized_node`, whose value is `array`: its leaf, or a copy of that on other devices.

    A constant node may outlive every Tensor, in a cache of programs: it is not recorded, so that its array can be freed.
    """
    leaf = make_leaf_on_contiguous_memory_or_copy(array, may_others_change_it=True)  # a backend may give memory that it was given
    _read_by_program[_skip_reshapes_and_leaf_placement(leaf)] = inputs
    device = realized_node.device
    if device is not None and device != HOST:
        host_leaf, leaf = leaf, copy_to_devices(leaf, device, realized_node.axis)
        _placed[leaf] = host_leaf
    if not is_constant:
        _realized[realized_node] = leaf
    return leaf
