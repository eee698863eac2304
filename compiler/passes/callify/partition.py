"""Partition of a graph on several devices: one value per device, and copies between devices.

Takes: TENSOR without Functions, whose nodes may be on n-tuple devices. Gives: TENSOR in which each node is on one device or on
none. Only a Load with a device reads a value of another device.
Spec: Lowering Pipeline/Callify; R53 (Copy, Contiguous), R72 (device of ALU), R73 (n-tuple Buffer), R74 (axis), R75 (n-tuple sizes),
R76 (null axis on D), R79 (Param and axis), R82 (other ops on devices), R83 (sharded indices, stores), R182 (memory of callers).

A value on the devices D becomes a part per device. A sharded value has the n parts of its axis, any other is whole on each device.
An op runs on the parts of its sources, device by device. Two ops move data:

- A Load with a device builds each part of its result from the pieces of its operand's parts (`_DevicePartition._redistribute`).
- A Reduce along the sharded axis reduces each part, and then the n results on each device, in one order (R76, null axis on D).

Memory of callers is whole (R182, memory of callers). A Param that nothing writes is read where it is, by each device. Parts of
other memory are copies, and what was written goes back at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from uops.compiler.ir.bodies import list_possibly_written_arguments, order_outside_kernels
from uops.compiler.ir.buffers import COPIES
from uops.compiler.ir.devices import HOST
from uops.compiler.ir.extents import max_elements
from uops.compiler.ir.views import strip_views_and_collect_dependencies, view_front_of_memory
from uops.compiler.log import log_transform
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, EFFECT_GROUPS, MARKERS, MEMORY_ROOTS, RESULT_ROOTS, Op
from uops.spec.ir.scope import VIEWS, base_memory, root_items

#: Views below which a value is one range of memory, if Shrinks cut the first axis alone.
_WHOLE_OR_FRONT = frozenset({Op.AFTER, Op.RESHAPE})


def is_on_several_devices(order: Sequence[UOp]) -> bool:
    """Return True if a node is on an n-tuple device."""
    return tuple in [u.device.__class__ for u in order if u.op in MEMORY_ROOTS or u.op is Op.LOAD]


class PartitionedProgram(NamedTuple):
    """A graph whose nodes are on one device each.

    `temporaries` are its new Buffers, which no caller sees. `reached_params` maps each Param on a device that reads it to that of
    the caller.
    """

    root: UOp
    temporaries: frozenset[UOp] = frozenset()
    reached_params: Mapping[UOp, UOp] = MappingProxyType({})


def partition_over_devices(root: UOp, first_unique: int) -> PartitionedProgram:
    """Return a graph on several devices as one whose nodes are on one device each; any other graph as it is.

    New Buffers are numbered from `first_unique`. Raises CompileError for an argument of a kernel on several devices, and for a
    sharded axis of symbolic extent.
    """
    order = order_outside_kernels(root)
    if not is_on_several_devices(order):
        return PartitionedProgram(root)
    partition = _DevicePartition(root, order, first_unique)
    result = partition.build_root_and_put_memory_back()
    log_transform("partition", root, result, {u: tuple(p.parts) for u, p in partition.done.items()})
    return PartitionedProgram(result, frozenset(partition.buffers), partition.reached_params)


class _PlacedValue(NamedTuple):
    """A value as one part per device. A value on one device, or on none, has one part and `devices` None.

    An effect has a part per device, too: those of all parts of what it writes.
    """

    parts: tuple[UOp, ...]
    devices: tuple[str, ...] | None = None
    axis: int | None = None


class _DevicePartition:
    """The partition of one graph; `done` maps each node to its parts."""

    def __init__(self, root: UOp, order: Sequence[UOp], first_unique: int) -> None:
        self.root, self.order, self.first_unique = root, order, first_unique
        self.buffers: list[UOp] = []
        self.pieces: dict[UOp, tuple[tuple[UOp, ...], int]] = {}  # value that was received in pieces -> they, and their axis
        self.reached_params: dict[UOp, UOp] = {}  # Param on a device that reads it -> the Param of the caller
        self.done: dict[UOp, _PlacedValue] = {}
        self.written = {base_memory(u.buffer) for u in order if u.op is Op.STORE}
        self.written.update(base_memory(a) for u in order if u.op is Op.CALL for a in list_possibly_written_arguments(u))
        self.host: dict[UOp, UOp] = {}  # memory of the caller on D -> the same memory on the host
        self.effects: dict[UOp, list[UOp]] = {}  # such memory that is written -> the Stores to its parts

    def build_root_and_put_memory_back(self) -> UOp:
        """Return the root with its values whole, and written memory of callers put back."""
        for u in self.order:
            if u is not self.root or u.op not in RESULT_ROOTS:
                self.done[u] = self._place(u)
        items: list[UOp] = []
        for item in root_items(self.root):
            placed = self.done[item]
            items += placed.parts if item.dtype is dt.void else [self._gather(item, placed, HOST)]
        items += [self._store_gathered_parts_to_host_memory(memory) for memory in self.host if memory in self.written]
        if len(items) == 1 and self.root.op not in RESULT_ROOTS:
            return items[0]
        return UOp(Op.TUPLE, tuple(items)) if self.root.op not in EFFECT_GROUPS else self.root.replace(src=tuple(items))

    # Nodes

    def _place(self, u: UOp) -> _PlacedValue:
        """Return the parts of a node whose sources are done."""
        if u.op in MEMORY_ROOTS and u.device.__class__ is tuple:
            return self._reach_or_copy_parts_of_caller_memory(u)
        if u.op is Op.LOAD and u.arg.device is not None:
            return self._gather_or_shard_first_axis(u)
        if u.op is Op.CALL:
            return self._require_single_devices_and_place_call(u)
        placed = [self.done[s] for s in u.src]
        if u.op is Op.AFTER:
            return self._make_parts_wait_for_all_devices(u, placed)
        devices = next((p.devices for p in placed if p.devices is not None), None)
        if devices is None:
            return _PlacedValue((u.replace(src=tuple([p.parts[0] for p in placed])),))
        if u.op in EFFECT_GROUPS:
            return _PlacedValue((u.replace(src=tuple([part for p in placed for part in p.parts])),))
        if u.op not in _LOCAL:
            raise untranslatable_error("R72 (device)", u, f"{u.op.name} of values on several devices is not supported", self.root)
        if u.op is Op.REDUCE and u.operand.axis in u.arg.axes:
            return self._reduce_over_devices(u, placed[0])
        axis = u.buffer.axis if u.op is Op.STORE else u.axis
        parts = tuple([self._build_part(u, k, devices, axis) for k in range(len(devices))])
        if u.op is Op.STORE:
            self.effects.setdefault(base_memory(u.buffer), []).extend(parts)
        return _PlacedValue(parts, devices, axis)

    def _require_single_devices_and_place_call(self, u: UOp) -> _PlacedValue:
        """Place the Call of a kernel whose arguments are each on one device, which need not be the same."""
        placed = [self.done[a] for a in u.arguments]
        if any(p.devices is not None for p in placed):
            raise untranslatable_error("R72 (device)", u, "each argument of a kernel written by hand is on one device", self.root)
        return _PlacedValue((u.replace(src=(u.body, *[p.parts[0] for p in placed])),))

    def _build_part(self, u: UOp, k: int, devices: tuple[str, ...], axis: int | None) -> UOp:
        """Return the part of a node on device `k`."""
        n = len(devices)
        if u.op in _SHAPED:
            offsets = [self.done[u.offsets].parts[0]] if u.op in _PLACED else []
            shape = B.shape_vector(self._local_shape(u, axis, n))
            return u.replace(src=(self.done[u.operand].parts[k], *offsets, shape))
        if u.op is Op.REPLICATED:
            part = self.done[u.operand].parts[k]
            return part if part.shape == self._local_shape(u, axis, n) else u.replace(src=(part,))
        if u.op is Op.REDUCE and (folded := self._fold_received_pieces(u, self.done[u.operand].parts[k])) is not None:
            return folded
        return u.replace(src=tuple([self._part_for(u, s, k, axis, n) for s in u.src]))

    def _fold_received_pieces(self, reduce: UOp, part: UOp) -> UOp | None:
        """Return the Reduce of a value along the axis on which one element came from each device, without joining them first."""
        pieces, along = self.pieces.get(part, ((), 0))
        if not pieces or reduce.arg.axes != (along,) or any(p.shape[along] != 1 for p in pieces):
            return None
        total, *others = pieces
        for other in others:
            total = UOp(reduce.arg.op, (total, other))
        return total

    def _part_for(self, u: UOp, s: UOp, k: int, axis: int | None, n: int) -> UOp:
        """Return the part of a source that the part of `u` on device `k` needs: of a whole value, its part of the sharded axis."""
        placed = self.done[s]
        part = placed.parts[0] if placed.devices is None else placed.parts[k]
        if axis is None or placed.axis is not None or u.op not in _ALIGNED:
            return part
        rank = len(u.buffer.shape if u.op is Op.STORE else u.shape)
        along = axis - (rank - len(s.shape))
        return part if along < 0 or s.shape[along] == 1 else self._cut(u, part, along, k, n)

    def _make_parts_wait_for_all_devices(self, after: UOp, placed: list[_PlacedValue]) -> _PlacedValue:
        """Let each part wait for the effects on all devices."""
        buffer, *dependencies = placed
        effects = tuple(dict.fromkeys(part for d in dependencies for part in d.parts))
        return buffer._replace(parts=tuple([after.replace(src=(part, *effects)) for part in buffer.parts]))

    def _local_shape(self, u: UOp, axis: int | None, n: int) -> tuple[Dim, ...]:
        """Return the shape of one part of `u`."""
        return u.shape if axis is None else tuple([self._divide(u, d, n) if k == axis else d for k, d in enumerate(u.shape)])

    def _divide(self, u: UOp, extent: Dim, n: int) -> int:
        if isinstance(extent, UOp) or extent % n:
            got = "whose extent depends on variables" if isinstance(extent, UOp) else f"of extent {extent}"
            detail = f"{n} devices share an axis {got}, expected a constant that is a multiple of {n}"
            raise untranslatable_error("R75 (n-tuple sizes)", u, detail, self.root)
        return int(extent) // n

    def _cut(self, u: UOp, whole: UOp, axis: int, k: int, n: int) -> UOp:
        """Return part `k` of `n` of an axis."""
        size = self._divide(u, whole.shape[axis], n)
        return shrink_axis(whole, axis, k * size, size)

    # Memory

    def _reach_or_copy_parts_of_caller_memory(self, memory: UOp) -> _PlacedValue:
        """Return the parts of a Buffer or Param of the caller.

        They are copies in Buffers of their own if the memory is written. A Param that is only read is reached in place.
        """
        devices = memory.device
        assert isinstance(devices, tuple)
        axis, n = memory.axis, len(devices)
        if memory.op is Op.BUFFER:
            arg = replace(memory.arg, device=HOST, size=memory.arg.size * n)
            whole = UOp(Op.BUFFER, (), arg)
        else:
            whole = memory.replace(arg=replace(memory.arg, device=HOST if memory in self.written else None, axis=None))
        self.host[memory] = whole
        parts = []
        for k, device in enumerate(devices):
            part = self._reach_param_or_copy_to_device(whole if axis is None else self._cut(memory, whole, axis, k, n), device)
            if memory in self.written:
                own = self._allocate(part.shape, part.dtype, device)
                part = B.after(own, B.store(own, part))
            parts.append(part)
        return _PlacedValue(tuple(parts), devices, axis)

    def _store_gathered_parts_to_host_memory(self, memory: UOp) -> UOp:
        """Return the effect that writes the parts of a caller's memory back, after all Stores to them."""
        placed, whole = self.done[memory], self.host[memory]
        effects = self.effects.get(memory, [])
        parts = tuple([B.after(part, *effects) for part in placed.parts])
        value = self._gather(memory, placed._replace(parts=parts), HOST)
        return B.store(whole, value)

    def _allocate(self, shape: tuple[Dim, ...], dtype: DType, device: str) -> UOp:
        """Return a view of a new Buffer, of this shape."""
        unique = self.first_unique + len(self.buffers)
        buffer = UOp(Op.BUFFER, (), BufferArg(max_elements(shape), dtype.storage, device, AddrSpace.GLOBAL, unique))
        self.buffers.append(buffer)
        return view_front_of_memory(buffer, shape)

    # Copies

    def _gather_or_shard_first_axis(self, u: UOp) -> _PlacedValue:
        """Place a Load to devices: after its gate was applied where its operand is."""
        operand, placed = u.buffer, self.done[u.buffer]
        if u.gate is not None:
            local = u.replace(arg=replace(u.arg, device=None))
            self.done[local] = placed = self._place(local)
            operand = local
        target = u.arg.device
        if not isinstance(target, tuple) and placed.devices is None:
            return _PlacedValue((self._reach_param_or_copy_to_device(placed.parts[0], target),))
        if not isinstance(target, tuple):
            return _PlacedValue((self._gather(operand, placed, target),))
        n = len(target)
        size = self._divide(u, u.shape[0], n)
        parts = [self._redistribute(operand, placed, device, 0, k * size, size) for k, device in enumerate(target)]
        return _PlacedValue(tuple(parts), target, 0)

    def _gather(self, u: UOp, placed: _PlacedValue, device: str) -> UOp:
        """Return all of a value on several devices on one device; any other value as it is."""
        if placed.devices is None:
            return placed.parts[0]
        if not u.shape or placed.axis is None:
            return self._reach_param_or_copy_to_device(_part_on_or_first(placed, device), device)
        extent = u.shape[0]
        return self._redistribute(u, placed, device, None, 0, extent)

    def _redistribute(self, u: UOp, placed: _PlacedValue, device: str, axis: int | None, offset: int, size: Dim) -> UOp:
        """Return on one device the elements of a value from `offset` on along `axis`; all of them if that is None."""

        def select(value: UOp) -> UOp:
            return value if axis is None else shrink_axis(value, axis, offset, int(size))

        if placed.devices is None or placed.axis is None:
            return self._reach_param_or_copy_to_device(select(_part_on_or_first(placed, device)), device)
        n = len(placed.devices)
        along = placed.axis
        width = self._divide(u, u.shape[along], n)
        pieces: list[UOp] = []
        for j, part in enumerate(placed.parts):
            if along == axis:  # only what part j has of the elements; of no elements, the first part is taken
                first, last = max(offset, j * width), min(offset + int(size), (j + 1) * width)
                if first < last or (j == 0 and size == 0):
                    pieces.append(
                        self._reach_param_or_copy_to_device(shrink_axis(part, along, first - j * width, last - first), device)
                    )
            else:
                pieces.append(self._reach_param_or_copy_to_device(select(part), device))
        return self._concatenate(pieces, along, device)

    def _reach_param_or_copy_to_device(self, value: UOp, device: str) -> UOp:
        """Return a value on another device. What is sent is one range of memory, so that a device can send it as it is."""
        reached = self._reach_unwritten_param_view_from(value, device)
        if reached is not None:
            return reached
        if value.device == device:
            return value if _base_of_views(value).op in COPIES else B.contiguous(value)
        is_sendable = value.device is None or is_range_of_memory(value)
        return B.copy(value if is_sendable else B.contiguous(value), device)

    def _reach_unwritten_param_view_from(self, view: UOp, device: str) -> UOp | None:
        """Return a view of a Param on no device that nothing writes, as the device reaches it; None for any other value.

        A view that is indexed by a value on a device is another value.
        """
        base, dependencies = strip_views_and_collect_dependencies(view, VIEWS)
        param = self.reached_params.get(base, base)
        if param.op is not Op.PARAM or param.arg.name is not None or param.arg.device is not None:
            return None
        if param in self.written or dependencies:
            return None
        if any(u.op in MEMORY_ROOTS and u is not base and u.device is not None for u in toposort(view)):
            return None
        reached = param.replace(arg=replace(param.arg, device=device))
        self.reached_params[reached] = param
        return substitute(view, {base: reached})

    def _concatenate(self, pieces: Sequence[UOp], axis: int, device: str) -> UOp:
        """Return values on one device as one, in a Buffer of its own."""
        if len(pieces) == 1:
            return pieces[0]
        first = pieces[0]
        extents = [int(p.shape[axis]) for p in pieces]
        shape = (*first.shape[:axis], sum(extents), *first.shape[axis + 1 :])
        view = self._allocate(shape, first.dtype, device)
        stores, offset = [], 0
        for piece, extent in zip(pieces, extents, strict=True):
            stores.append(B.store(shrink_axis(view, axis, offset, extent), B.cast(piece, first.dtype.storage)))
            offset += extent
        joined = B.cast(B.after(view, *stores), first.dtype)
        self.pieces[joined] = tuple(pieces), axis
        return joined

    def _reduce_over_devices(self, u: UOp, placed: _PlacedValue) -> _PlacedValue:
        """Reduce each part, then the results of all devices on each of them, in the order of the devices."""
        assert placed.devices is not None
        partials = [UOp(Op.REDUCE, (part,), u.arg) for part in placed.parts]
        results = []
        for device in placed.devices:
            total, *others = [self._reach_param_or_copy_to_device(p, device) for p in partials]
            for other in others:
                total = UOp(u.arg.op, (total, other))
            results.append(total)
        return _PlacedValue(tuple(results), placed.devices)


def _part_on_or_first(placed: _PlacedValue, device: str) -> UOp:
    """Return the part of a whole value on a device, or else on the first one."""
    devices = placed.devices or ()
    return placed.parts[devices.index(device) if device in devices else 0]


def shrink_axis(value: UOp, axis: int, offset: int, size: int) -> UOp:
    """Return the elements of a value from `offset` on along one axis; of one that is repeated there, fewer repetitions."""
    if value.shape[axis] == size:
        return value
    if value.op is Op.EXPAND and value.operand.shape[axis] == 1:
        shape = tuple([size if k == axis else n for k, n in enumerate(value.shape)])
        return value.operand if value.operand.shape == shape else B.expand(value.operand, shape)
    return B.shrink(
        value,
        [offset if k == axis else 0 for k in range(len(value.shape))],
        [size if k == axis else n for k, n in enumerate(value.shape)],
    )


def _base_of_views(value: UOp) -> UOp:
    """Return what a value is a view of."""
    base, _ = strip_views_and_collect_dependencies(value, VIEWS)
    return base


def is_range_of_memory(value: UOp) -> bool:
    """Return True if a value is one contiguous range of a memory, in order."""
    while value.op in _WHOLE_OR_FRONT or _is_range_keeping_permute_or_shrink(value):
        value = value.src[0]  # operand, or buffer of an After
    return value.op in COPIES or value.op is Op.BUFFER or (value.op is Op.PARAM and value.arg.name is None)


def _is_range_keeping_permute_or_shrink(u: UOp) -> bool:
    """Return True for a Permute that moves axes of one element alone, and a Shrink of the first axis that has more than one."""
    if u.op is Op.PERMUTE:
        moved = [k for k in u.arg.order if u.operand.shape[k] != 1]
        return moved == sorted(moved)
    return u.op is Op.SHRINK and _cuts_first_axis_alone(u)


def _cuts_first_axis_alone(shrink: UOp) -> bool:
    """Return True if a Shrink keeps all of each axis but the first that has more than one element."""
    pairs = [(n, m) for n, m in zip(shrink.operand.shape, shrink.shape) if n != 1]
    return all(n == m for n, m in pairs[1:])


#: Ops with a source for the shape of their result, the last one.
_SHAPED = frozenset({Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK})
#: Those of them with offsets.
_PLACED = frozenset({Op.PAD, Op.SHRINK})
#: Ops whose sources are aligned with their result, or with the memory that they write.
_ALIGNED = ALU | {Op.STORE, Op.LOAD, Op.STACK}
#: Ops that run on the parts of their sources.
_LOCAL = (
    ALU
    | MARKERS
    | _SHAPED
    | {Op.PERMUTE, Op.FLIP, Op.BITCAST, Op.SLICE, Op.REPLICATED, Op.REDUCE, Op.STACK, Op.INDEX, Op.LOAD, Op.STORE, Op.CONTIGUOUS}
)
