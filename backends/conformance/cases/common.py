"""Helpers of the case modules: data by dtype and shape, and cases that test one cell with their whole output."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.answer import nonvoid_root_items
from uops.backends.arrays import DTYPE_OF
from uops.backends.conformance.model import ConformanceCase, Segment
from uops.backends.conformance.pools import ordinary_bits, random_bits, to_array
from uops.backends.contract import TENSOR_SURFACE
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import WRITES, Op
from uops.spec.ir.scope import base_memory
from uops.spec.rows.rows import ROWS

Array = npt.NDArray[Any]
Inputs = dict[str, Any]

#: Dtypes of the smoke tier for cases without arithmetic: one per kind of storage.
SAMPLE = (dt.float32, dt.uint8, dt.bool_, dt.int64, dt.bfloat16)


def make_ordinary_then_random_data(d: DType, shape: tuple[int, ...], *key: object) -> Array:
    """Create random bits, NaN payloads included (R28), that begin with ordinary values in an order that depends on the key."""
    n = math.prod(shape)
    bits = random_bits(d, n, *key, *shape).copy()
    first = 3 * sum(k for k in key if isinstance(k, int))
    for k in range(min(n, 8)):
        bits[k] = ordinary_bits(d)[(first + k) % 8]
    return to_array(bits, d).reshape(shape)


def put_nans_of_both_signs(inputs: Inputs) -> None:
    """Put a NaN of each sign with all payload bits into the middle of each array of floats, where moves must keep them (R28)."""
    for data in inputs.values():
        if isinstance(data, np.ndarray) and DTYPE_OF[data.dtype].is_float and data.size >= 3:
            ones = (1 << 8 * data.dtype.itemsize) - 1
            bits = data.reshape(-1).view(f"u{data.dtype.itemsize}")
            bits[data.size // 2], bits[data.size // 2 - 1] = ones, ones >> 1


def make_single_cell_case(
    op: Op, d: DType, edge: str, graph: UOp, inputs: Inputs, name: str | None = None, surface: str = TENSOR_SURFACE
) -> ConformanceCase:  # fmt: skip
    """Create a case of `op`'s row whose whole output tests the cell `edge`: every value of the root, and every buffer written."""
    segments = [Segment(edge, k, 0, math.prod(_max_extents(v))) for k, v in enumerate(nonvoid_root_items(graph))]
    segments += [Segment(edge, key_of_buffer(u), 0, math.prod(u.shape)) for u in collect_buffers_void_root_writes(graph)]
    return ConformanceCase(ROWS[op].id, d, name or edge, graph, inputs, tuple(segments), surface)


def _max_extents(u: UOp) -> tuple[int, ...]:
    """Return the largest extents: a symbolic one counts with its upper bound."""
    return tuple(n if isinstance(n, int) else int(n.min_max[1]) for n in u.shape)


def collect_buffers_void_root_writes(root: UOp) -> list[UOp]:
    """Return the Buffers that the Stores and AtomicAdds of a void root write. What its Calls write is not among them."""
    if root.dtype is not dt.void:
        return []
    writes = [u for u in toposort(root) if u.op in WRITES or u.op is Op.B_STORE]
    targets = dict.fromkeys(base_memory(u.buffer if u.op is Op.STORE else u.index) for u in writes)
    return [
        m
        for m in targets
        if (m.op is Op.BUFFER and m.arg.addrspace is AddrSpace.GLOBAL) or (m.op is Op.B_BUFFER and m.unique.op is Op.UNIQUE)
    ]


def key_of_buffer(memory: UOp) -> str:
    """Return the key of a Buffer's contents, in either document's form."""
    return f"b{memory.unique.arg.id if memory.op is Op.B_BUFFER else memory.arg.unique}"


def add_param(d: DType, shape: tuple[int, ...], inputs: Inputs, *key: object, values: Array | None = None) -> UOp:
    """Create the next free Param, and add its data to the inputs."""
    slot = sum(k.startswith("p") for k in inputs)
    inputs[f"p{slot}"] = make_ordinary_then_random_data(d, shape, "param", slot, *key) if values is None else values
    return b.param(slot, shape, d)


def add_buffer(d: DType, size: int, inputs: Inputs, *key: object, filled: bool = True) -> UOp:
    """Create a Buffer; if `filled`, add its initial contents to the inputs."""
    unique = sum(k.startswith("b") for k in inputs) + 1 + (0 if filled else 50)
    if filled:
        inputs[f"b{unique}"] = make_ordinary_then_random_data(d, (size,), "buffer", unique, *key)
    return b.buffer(size, d, unique=unique)
