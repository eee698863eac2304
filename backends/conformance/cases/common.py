"""What the case modules share: data by dtype and shape, and cases that test one cell with their whole output."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from uops.backends.conformance.model import Case, Segment
from uops.backends.conformance.pools import ordinary, random_bits, to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS

Array = npt.NDArray[Any]
Inputs = dict[str, Any]

#: The dtypes of the smoke tier's cases that do not depend on arithmetic: one per storage kind.
SAMPLE = (dt.float32, dt.uint8, dt.bool_, dt.int64, dt.bfloat16)


def data(d: DType, shape: tuple[int, ...], *key: object) -> Array:
    """Random bits (NaN payloads included, R28) that begin with ordinary values, in an order of the key's own."""
    n = math.prod(shape)
    bits = random_bits(d, n, *key, *shape).copy()
    first = 3 * sum(k for k in key if isinstance(k, int))
    for k in range(min(n, 8)):
        bits[k] = ordinary(d)[(first + k) % 8]
    return to_array(bits, d).reshape(shape)


def single(op: Op, d: DType, edge: str, graph: UOp, inputs: Inputs, name: str | None = None) -> Case:
    """A case of `op`'s row whose whole output tests the cell `edge`: every value of the root, and every buffer written."""
    segments = [Segment(edge, k, 0, math.prod(_extents(v))) for k, v in enumerate(values_of(graph))]
    segments += [Segment(edge, f"b{u.arg.unique}", 0, math.prod(u.shape)) for u in written(graph)]
    return Case(ROWS[op].id, d, name or edge, graph, inputs, tuple(segments))


def _extents(u: UOp) -> tuple[int, ...]:
    """Greatest extents: a symbolic one counts with its upper bound."""
    return tuple(n if isinstance(n, int) else int(n.min_max[1]) for n in u.shape)


def values_of(root: UOp) -> list[UOp]:
    """The values a run of `root` gives, in order."""
    if root.dtype is not dt.void:
        return [root]
    if root.op in (Op.TUPLE, Op.SINK, Op.GROUP):
        return [v for s in root.src for v in values_of(s)]
    return []


def written(root: UOp) -> list[UOp]:
    """The Buffers that a void root writes."""
    from uops.spec.ir.node import toposort

    if root.dtype is not dt.void:
        return []
    found: dict[UOp, None] = {}
    for u in toposort(root):
        if u.op is Op.STORE:
            target = u.src[0]
            while target.op is not Op.BUFFER and target.src:
                target = target.src[0]
            if target.op is Op.BUFFER:
                found[target] = None
    return list(found)


def param(d: DType, shape: tuple[int, ...], inputs: Inputs, *key: object, values: Array | None = None) -> UOp:
    """The next free Param, with data."""
    slot = sum(k.startswith("p") for k in inputs)
    inputs[f"p{slot}"] = data(d, shape, "param", slot, *key) if values is None else values
    return b.param(slot, shape, d)


def buffer(d: DType, size: int, inputs: Inputs, *key: object, filled: bool = True) -> UOp:
    """A Buffer, with initial contents unless not `filled`."""
    unique = sum(k.startswith("b") for k in inputs) + 1 + (0 if filled else 50)
    if filled:
        inputs[f"b{unique}"] = data(d, (size,), "buffer", unique, *key)
    return b.buffer(size, d, unique=unique)
