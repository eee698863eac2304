"""Cases of ops on values of several devices: on the sharded axis, and beside it. Spec: R72 to R76, R79, R82, R83 (devices)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from uops.backends.conformance.cases.common import Inputs, add_param
from uops.backends.conformance.cases.launches import small_numbers
from uops.backends.conformance.cases.named.generate import NUMBERS, Build, NamedCase
from uops.backends.contract import DEVICES_SURFACE
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import Device
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.rows.rows import ROWS

#: Three devices, so that a program that knows two is seen.
DEVICES = ("D0", "D1", "D2")


def add_sharded_param(d: DType, shape: tuple[int, ...], axis: int | None, inputs: Inputs) -> UOp:
    """Add a Param that is sharded along an axis, or whole on each device."""
    slot = sum(k.startswith("p") for k in inputs)
    inputs[f"p{slot}"] = small_numbers(d, math.prod(shape)).reshape(shape)
    return b.param(slot, shape, d, DEVICES, axis)


def add_buffer_on_devices(d: DType, size_per_device: int, inputs: Inputs, devices: Device = DEVICES) -> UOp:
    """Add a Buffer with `size_per_device` elements on each device."""
    unique = 1 + sum(k.startswith("b") for k in inputs)
    inputs[f"b{unique}"] = small_numbers(d, size_per_device * (len(devices) if isinstance(devices, tuple) else 1))[::-1].copy()
    return b.buffer(size_per_device, d, devices, unique=unique)


def _build_on_shard(axis: int | None, build: Callable[[UOp], UOp], shape: tuple[int, ...] = (6, 3, 4)) -> Build:
    """Build a graph of one value that is sharded along an axis, or whole on each device."""
    return lambda d, i: build(add_sharded_param(d, shape, axis, i))


def _beside_a_whole_value(d: DType, i: Inputs) -> UOp:
    """Select from a sharded and a whole value, by a whole condition: each device takes its part of what is whole."""
    x, whole = add_sharded_param(d, (6, 4), 0, i), add_sharded_param(d, (6, 4), None, i)
    return UOp(Op.WHERE, (UOp(Op.CMPEQ, (whole, x)), b.flip(whole, (False, True)), b.const(1, d)))


def _beside_a_row(d: DType, i: Inputs) -> UOp:
    return b.where(
        add_sharded_param(dt.bool_, (6, 1), 0, i), add_sharded_param(d, (4,), None, i), add_sharded_param(d, (6, 4), 0, i)
    )


def _store_to_columns_of_sharded_buffer(value_axis: int | None, gated: bool = False) -> Build:
    """Store to columns of a sharded Buffer, of a value that is sharded or whole; then read all of it."""

    def make(d: DType, i: Inputs) -> UOp:
        buffer = add_buffer_on_devices(d, 6, i)
        target = b.shrink(b.reshape(buffer, (6, 3)), (0, 1), (6, 2))
        value = add_sharded_param(d, (6, 2), value_axis, i)
        gate = (add_sharded_param(dt.bool_, (6, 2), value_axis, i),) if gated else ()
        return b.tuple_(b.copy(b.after(buffer, b.store(target, b.flip(value, (False, True)), *gate)), "D0"), value)

    return make


def _store_then_copy(d: DType, i: Inputs) -> UOp:
    """Copy what was stored on every device, then what was there before: a copy that is late or early differs."""
    return _store_after_copy(lambda buffer: b.copy(b.contiguous(buffer), DEVICES[::-1]), d, i)


def _store_then_gather(d: DType, i: Inputs) -> UOp:
    """Collect memory on one device before it is stored to."""
    return _store_after_copy(lambda buffer: b.copy(buffer, "D2"), d, i)


def _store_after_copy(copy: Callable[[UOp], UOp], d: DType, i: Inputs) -> UOp:
    buffer = add_buffer_on_devices(d, 4, i)
    before = copy(buffer)
    stored = b.after(buffer, b.store(b.after(buffer, before), add_sharded_param(d, (12,), 0, i)))
    return b.tuple_(*[b.flip(b.copy(u, "D1"), (True,)) for u in (before, stored)])


def _change_copy_on_each_device_then_read_all(d: DType, i: Inputs) -> UOp:
    """Change the copy of one value on each device in another way, and read it once all are changed.

    Of memory that devices share, the last change would stay.
    """
    x, change = add_sharded_param(d, (4,), None, i), add_sharded_param(d, (3, 4), 0, i)
    keeps = add_sharded_param(dt.bool_, (3, 4), 0, i)
    i["p1"], i["p2"] = np.flip(i["p1"]).copy(), np.eye(3, 4, dtype=np.bool_)  # so no two devices change their copies alike
    copies = b.copy(b.expand(b.reshape(x, (1, 4)), (3, 4)), DEVICES)
    changed = b.contiguous(b.where(keeps, copies, change))
    others = b.copy(b.flip(b.copy(changed, "D1"), (True, False)), DEVICES)
    buffer = add_buffer_on_devices(d, 4, i)
    return b.after(buffer, b.store(b.reshape(buffer, (3, 4)), b.where(keeps, others, changed)))


def _gated_load(d: DType, i: Inputs) -> UOp:
    x, gate = add_sharded_param(d, (6, 2), 0, i), add_sharded_param(dt.bool_, (6, 2), None, i)
    return b.load(fill_like(x, d, i), gate=gate, alt=x)


def fill_like(x: UOp, d: DType, i: Inputs) -> UOp:
    """Add a sharded Buffer of the shape of `x`."""
    return b.reshape(add_buffer_on_devices(d, math.prod(x.shape) // len(DEVICES), i), x.shape)


def _redistribute(d: DType, i: Inputs) -> UOp:
    """Copy rows of what is sharded by columns to the devices in another order: every device sends a piece to every other."""
    return b.copy(b.flip(add_sharded_param(d, (6, 9), 1, i), (True, False)), DEVICES[::-1])


def _replicate(d: DType, i: Inputs) -> UOp:
    x = add_sharded_param(d, (2, 6), 1, i)
    return b.flip(b.replicated(b.copy(b.expand(b.reshape(x, (1, 2, 6)), (3, 2, 6)), DEVICES), 0), (False, True, True))


def _read_every_copy(d: DType, i: Inputs) -> UOp:
    """Put a value whole on each device, and take it from each of them: all copies are the same."""
    x = b.flip(add_sharded_param(d, (2, 6), 1, i), (True, False))
    whole = b.replicated(b.copy(b.expand(b.reshape(x, (1, 2, 6)), (3, 2, 6)), DEVICES), 0)
    return b.tuple_(*[b.copy(whole, device) for device in DEVICES])


def _to_bytes(d: DType, i: Inputs) -> UOp:
    return b.bitcast(add_sharded_param(d, (2, 6), 1, i), dt.uint8)


def _index_by_vector(d: DType, i: Inputs) -> UOp:
    i["p9"] = np.array([3, 0, 3], np.int32)
    return b.at(add_sharded_param(d, (4, 6), 1, i), b.cast(b.param(9, (3,), dt.int32, DEVICES), dt.index))


def _sum_on_every_device(d: DType, i: Inputs) -> UOp:
    total = b.reduce(add_sharded_param(d, (6, 2), 0, i), Op.ADD, (0,))
    return b.tuple_(*[b.copy(total, device) for device in DEVICES])


def _reduce_received_pieces(x: UOp) -> UOp:
    """Send a row to each device, and take the greatest of what each one receives."""
    return b.reduce(b.copy(b.permute(x, (1, 0, 2)), DEVICES), Op.MAX, (1,))


def _sum_over(*axes: int) -> Callable[[UOp], UOp]:
    return lambda x: b.reduce(x, Op.ADD, axes)


# fmt: off
#: (op, edge class, builder) of each case.
_OPS: tuple[tuple[Op, str, Build], ...] = (
    (Op.BUFFER, "sharded", lambda d, i: b.flip(b.copy(add_buffer_on_devices(d, 4, i), "CPU"), (True,))),
    (Op.PARAM, "sharded-inner", lambda d, i: b.flip(b.permute(add_sharded_param(d, (3, 6), 1, i), (1, 0)), (False, True))),
    (Op.PARAM, "whole-on-each", lambda d, i: b.flip(b.permute(add_sharded_param(d, (3, 5), None, i), (1, 0)), (True, False))),
    (Op.RESHAPE, "sharded-merge", _build_on_shard(1, lambda x: b.flip(b.reshape(x, (2, 24)), (True, False)), (2, 6, 4))),
    (Op.RESHAPE, "sharded-split", _build_on_shard(0, lambda x: b.flip(b.reshape(x, (3, 4, 2)), (False, True, True)), (12, 2))),
    (Op.RESHAPE, "beside-axis", _build_on_shard(0, lambda x: b.flip(b.reshape(x, (6, 2, 6)), (False, True, False)))),
    (Op.PERMUTE, "moves-axis", _build_on_shard(0, lambda x: b.permute(x, (2, 0, 1)))),
    (Op.PERMUTE, "beside-axis", _build_on_shard(0, lambda x: b.permute(x, (0, 2, 1)))),
    (Op.EXPAND, "beside-axis", _build_on_shard(0, lambda x: b.expand(b.reshape(x, (6, 1, 12)), (6, 2, 12)))),
    (Op.PAD, "beside-axis", _build_on_shard(1, lambda x: b.pad(x, (1, 0, 2), (4, 6, 5)), (2, 6, 3))),
    (Op.SHRINK, "beside-axis", _build_on_shard(1, lambda x: b.shrink(x, (1, 0, 0), (2, 6, 2)), (4, 6, 3))),
    (Op.FLIP, "beside-axis", _build_on_shard(1, lambda x: b.flip(x, (True, False, True)), (2, 6, 3))),
    (Op.INDEX, "beside-axis", _build_on_shard(1, lambda x: b.at(x, 2), (4, 6))),
    (Op.INDEX, "vector-beside-axis", _index_by_vector),
    (Op.STACK, "sharded", lambda d, i: b.stack(add_sharded_param(d, (6,), 0, i), b.at(add_sharded_param(d, (2, 6), 1, i), 1))),
    (Op.REPLICATED, "of-copies", _replicate),
    (Op.REPLICATED, "every-copy", _read_every_copy),
    (Op.BITCAST, "sharded-last-axis", _to_bytes),
    (Op.WHERE, "beside-whole", _beside_a_whole_value),
    (Op.WHERE, "sharded-broadcast", _beside_a_row),
    (Op.STORE, "sharded", _store_to_columns_of_sharded_buffer(0)),
    (Op.STORE, "of-whole", _store_to_columns_of_sharded_buffer(None)),
    (Op.STORE, "sharded-gate", _store_to_columns_of_sharded_buffer(0, gated=True)),
    (Op.AFTER, "copies-in-order", _store_then_copy),
    (Op.AFTER, "gather-before-store", _store_then_gather),
    (Op.CONTIGUOUS, "copies-apart", _change_copy_on_each_device_then_read_all),
    (Op.LOAD, "sharded-gate", _gated_load),
    (Op.LOAD, "scatter", lambda d, i: b.copy(b.flip(add_param(d, (6, 2), i), (True, False)), DEVICES)),
    (Op.LOAD, "gather-inner", _build_on_shard(1, lambda x: b.copy(b.flip(x, (True, False)), "D1"), (2, 6))),
    (Op.LOAD, "of-whole", _build_on_shard(None, lambda x: b.copy(b.flip(x, (True,)), "D2"), (5,))),
    (Op.LOAD, "redistribute", _redistribute),
    (Op.LOAD, "fewer-devices", _build_on_shard(0, lambda x: b.copy(b.flip(x, (False, True)), DEVICES[1:]), (6, 2))),
)
#: The same, of values that can be added.
_SUMS: tuple[tuple[Op, str, Build], ...] = (
    (Op.REDUCE, "sharded-axis", _build_on_shard(0, _sum_over(0))),
    (Op.REDUCE, "sharded-axis-and-other", _build_on_shard(1, _sum_over(0, 1), (2, 3, 5))),
    (Op.REDUCE, "beside-axis", _build_on_shard(0, _sum_over(1))),
    (Op.REDUCE, "sharded-axis-of-every-copy", _sum_on_every_device),
    (Op.REDUCE, "max-of-received-pieces", _build_on_shard(0, _reduce_received_pieces, (3, 3, 5))),
    (Op.REDUCE, "max-of-sharded-axis", _build_on_shard(0, lambda x: b.reduce(x, Op.MAX, (0,)))),
    (Op.ADD, "sharded",
     lambda d, i: UOp(Op.ADD, (add_sharded_param(d, (6, 2), 0, i), b.flip(add_sharded_param(d, (6, 2), 0, i), (False, True))))),
)
# fmt: on


def _collective_on(name: str, n: int) -> Build:
    """Build a collective over `n` devices, of 2n elements on each or on one."""
    devices = tuple(f"D{k}" for k in range(n))

    def make(d: DType, i: Inputs) -> UOp:
        if name in ("broadcast", "scatter"):
            operand = add_param(d, (2 * n,), i, values=small_numbers(d, 2 * n))
        else:
            operand = add_buffer_on_devices(d, 2 * n, i, devices)
        value = COLLECTIVES[name](operand, devices)
        return b.flip(value, (True,)) if value.axis is None else UOp(Op.ADD, (value, value))

    return make


CASES = (
    *(NamedCase(ROWS[op].id, edge, build, DEVICES_SURFACE) for op, edge, build in _OPS),
    *(NamedCase(ROWS[op].id, edge, build, DEVICES_SURFACE, NUMBERS) for op, edge, build in _SUMS),
    *(
        NamedCase(f"Collective/{name}", f"{n}-devices", _collective_on(name, n), DEVICES_SURFACE, NUMBERS)
        for name in COLLECTIVES
        for n in (1, 3, 4, 7)
    ),
)
