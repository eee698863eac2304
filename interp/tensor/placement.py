"""Assertions that values are where the derived device and axis say (R72 to R76, devices and sharding).

`check_derived_devices_and_axes` follows each value of a run from the memory that it came from. On n devices it moves, beside the
value, an array that says of each element which device owns it. The derived axis is right if these owners are the n parts of that
axis, in order. So neither follows the rules of `uops.spec.ir.derive`. A contradiction raises Unsound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uops.interp.ops.movement import MOVES, SHAPED, data_and_symbolic_sources
from uops.interp.tensor.checks import raise_unsound
from uops.interp.tensor.memory import StorageRef, shape_of
from uops.interp.tensor.scope import TensorScope
from uops.interp.tensor.storage import Array
from uops.spec.ir.args import Device
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, MARKERS, Op

if TYPE_CHECKING:
    from uops.interp.tensor.machine import TensorMachine


class Placement(NamedTuple):
    """The device of a value, and the owner of each element: device k as k + 1, 0 for an element that each device has.

    `owners` is None where every device holds the whole value. `open` says that a Param on no named device is below.
    """

    device: Device | None = None
    owners: Array | None = None
    open: bool = False


_NOWHERE = Placement()


def check_derived_devices_and_axes(m: TensorMachine) -> None:
    """Assert the derived device and axis of every node of a run. Raises Unsound."""
    placements: dict[tuple[TensorScope, UOp], Placement] = {}
    for scope in m.scopes:
        for u in list(scope.cells):
            _derive_and_assert_placement(m, placements, scope, u)


@lru_cache(256)
def check_derived_devices_and_axes_of_kernel(body: UOp, devices: tuple[Device | None, ...]) -> None:
    """Assert the derived device and axis of every node of a kernel whose arguments are on `devices`. Raises Unsound."""
    scope, placements = TensorScope(), dict[UOp, Placement]()
    for u in toposort(body):
        if u.op is Op.PARAM and u.arg.slot is not None and u.arg.slot < len(devices):
            found = Placement(devices[u.arg.slot], None, u.arg.device is None)
        else:
            found = _placement_of(None, scope, u, [placements[s] for _, s in _sources_of_placement(scope, u)])
        _assert_derived_device_and_axis(u, found, None)
        placements[u] = found


def _derive_and_assert_placement(
    m: TensorMachine, placements: dict[tuple[TensorScope, UOp], Placement], scope: TensorScope, u: UOp
) -> Placement:
    """Return the placement of an evaluated node, and assert it; sources first."""
    stack = [(scope, u)]
    while stack:
        at, n = stack[-1]
        if (at, n) in placements:
            stack.pop()
            continue
        sources = _sources_of_placement(at, n)
        missing = [s for s in sources if s not in placements]
        if missing:
            stack += missing
            continue
        found = _placement_of(m, at, n, [placements[s] for s in sources])
        _assert_derived_device_and_axis(n, found, _value_shape(at, n))
        placements[at, n] = found
        stack.pop()
    return placements[scope, u]


def _sources_of_placement(scope: TensorScope, u: UOp) -> list[tuple[TensorScope, UOp]]:
    """Return what the placement of a node depends on, each with its scope."""
    op = u.op
    if op is Op.PARAM and scope.outer is not None and u.arg.slot is not None:
        return [(scope.outer, scope.args[u.arg.slot])]
    if op is Op.GETTUPLE:
        if u.packed.op is Op.FUNCTION:
            if u.packed not in scope.inner:  # an argument that the body of another Function does not use
                return []
            return [(scope.inner[u.packed], u.packed.body.src[u.arg.index]), *((scope, a) for a in u.packed.arguments[:1])]
        return [(scope, u.packed.src[u.arg.index])]
    if op is Op.CALL or op is Op.FUNCTION:
        return [(scope, a) for a in u.arguments[:1]]
    if op in SHAPED:
        return [(scope, s) for s in data_and_symbolic_sources(u)[:1]]
    if op in _FIRST_ONLY:
        return [(scope, u.src[0])]  # the operand, or the memory of an access
    return [(scope, s) for s in u.src] if op in _COMBINING else []


def _value_shape(scope: TensorScope, u: UOp) -> tuple[int, ...] | None:
    """Return the shape of a node's value; None for a void node, and for one that was not evaluated."""
    cell = scope.cells.get(u)
    return None if cell is None else shape_of(cell) if isinstance(cell, StorageRef) else cell.shape


def _placement_of(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    place = _PLACES.get(u.op)
    if place is not None:
        return place(m, scope, u, sources)
    if u.op in _COMBINING:
        return _take_first_device_and_merge_owners(sources, _value_shape(scope, u))
    if u.op in _FIRST_ONLY or u.op is Op.CALL or u.op is Op.FUNCTION:
        return sources[0]._replace(owners=None if u.op not in _SAME_SHAPE else sources[0].owners) if sources else _NOWHERE
    return _NOWHERE


def split_among_devices(shape: Sequence[int], axis: int, devices: int) -> Array:
    """Return the owners of a value whose axis is cut into as many equal parts as there are devices."""
    along = np.arange(shape[axis]) // max(1, shape[axis] // devices) + 1
    return np.broadcast_to(along.reshape([-1 if k == axis else 1 for k in range(len(shape))]), tuple(shape))


def _place_buffer_or_param(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a Buffer, a free Param, or a Param of a body, which is where its argument is.

    A Param of a body may be on a device that its argument does not name: memory of the caller is on none (R182).
    """
    device = u.arg.device
    if sources:
        given, shape = sources[0], _value_shape(scope, u)
        return Placement(
            device if given.open and given.device is None else given.device,
            given.owners if given.owners is None or shape is None else given.owners.reshape(shape),  # of a Call (R86)
            given.open or device is None,
        )
    axis = 0 if u.op is Op.BUFFER else u.arg.axis
    if not isinstance(device, tuple) or axis is None:
        return Placement(device, None, device is None)
    shape = _value_shape(scope, u)
    return Placement(device, None if shape is None else split_among_devices(shape, axis, len(device)))


def _place_load_by_named_device_or_source(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a Load: on the devices that it names, cut along the first axis if they are several, else where the buffer is."""
    device, shape = u.arg.device, _value_shape(scope, u)
    if device is None:
        return sources[0]
    return Placement(device, split_among_devices(shape, 0, len(device)) if isinstance(device, tuple) and shape else None)


def _place_element(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a GetTuple: where the element is; one on no device is on the Function's (R77). One without a value is as derived."""
    if not sources:
        return Placement(u.device, None, u.device is None)
    element, *first = sources
    return first[0]._replace(owners=None) if first and element.device is None else element


def _place_moved(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place the result of a movement op: its elements keep their owners, and what a Pad adds is everyone's."""
    placed = sources[0]
    if placed.owners is None:
        return placed
    operands = [m.load_if_reference(scope.cells[s]) for s in (data_and_symbolic_sources(u) if u.op in SHAPED else u.src)[1:]]
    owners = placed.owners
    if u.op is Op.INDEX:  # a position out of bounds may be gated off; if it is not, the access itself traps (R45)
        extents = owners.shape[: len(operands)]
        if 0 in extents:
            owners = np.zeros((*[max(1, n) for n in extents], *owners.shape[len(operands) :]), owners.dtype)
        operands = [np.clip(i, 0, max(1, n) - 1) for i, n in zip(operands, extents, strict=True)]
    return placed._replace(owners=MOVES[u.op](u, owners, operands))


def _place_bitcast(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a Bitcast: an element that is split has parts of one owner, and elements that join had one."""
    placed, old, new = sources[0], u.operand.dtype.itemsize, u.arg.dtype.itemsize
    if placed.owners is None or old == new:
        return placed
    if new < old:
        return placed._replace(owners=np.repeat(placed.owners, old // new, axis=-1))
    *shape, last = placed.owners.shape
    groups = placed.owners.reshape((*shape, last // (new // old), new // old))
    if (groups != groups[..., :1]).any():
        raise_unsound(u, "axis", u.axis, "elements of several devices joined to one")
    return placed._replace(owners=groups[..., 0])


def _drop_owners_if_collapsed_axes_mix_devices(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a Reduce or Replicated: what comes from elements of several devices is whole on each of them (R76)."""
    placed = sources[0]
    if placed.owners is None or not placed.owners.size:
        return placed._replace(owners=None)
    most = placed.owners.max(axis=tuple(u.arg.axes), keepdims=True)
    is_of_one = (placed.owners == most) | (placed.owners == 0)  # an element that each device has goes with any other
    return placed._replace(owners=most if is_of_one.all() else None)


def _place_stack(m: Any, scope: TensorScope, u: UOp, sources: Sequence[Placement]) -> Placement:
    """Place a Stack: each element keeps its owners."""
    if all(s.owners is None for s in sources):
        return _take_first_device_and_merge_owners(sources, None)
    shape = _value_shape(scope, u)
    assert shape is not None
    parts = [np.zeros(shape[1:], np.int64) if s.owners is None else s.owners for s in sources]
    return _take_first_device_and_merge_owners([s._replace(owners=None) for s in sources], None)._replace(owners=np.stack(parts))


def _take_first_device_and_merge_owners(sources: Sequence[Placement], shape: tuple[int, ...] | None) -> Placement:
    """Return the placement of a value whose elements are computed from those of all sources, after broadcasting."""
    device = next((s.device for s in sources if s.device is not None), None)
    owners: Array | None = None
    for s in sources:
        if s.owners is not None and shape is not None:
            spread = np.broadcast_to(s.owners, shape)
            owners = spread if owners is None else np.maximum(owners, spread)
    return Placement(device, owners, any(s.open for s in sources))


def _assert_derived_device_and_axis(u: UOp, found: Placement, shape: tuple[int, ...] | None) -> None:
    """Raise Unsound if the derived device or axis of a node contradicts where its value is."""
    derived = u.device
    if derived != found.device and not (derived is None and found.open):
        raise_unsound(u, "device", derived, found.device)
    axis = u.axis
    if shape is None or 0 in shape:
        return
    n = len(found.device) if isinstance(found.device, tuple) else 1
    if axis is None:  # of one device, what it owns is whole
        if n > 1 and found.owners is not None and found.owners.any():
            raise_unsound(u, "axis", axis, "elements that single devices own")
        return
    if found.owners is None or not 0 <= axis < len(shape) or shape[axis] % n:
        raise_unsound(u, "axis", axis, f"a value of shape {shape} that is whole on {found.device}")
    right = split_among_devices(shape, axis, n)
    if ((found.owners != right) & (found.owners != 0)).any():
        raise_unsound(u, "axis", axis, "elements that other devices own")


_Place = Callable[[Any, TensorScope, UOp, Sequence[Placement]], Placement]
#: Op -> its placement, where it is no combination of its sources.
_PLACES: dict[Op, _Place] = {
    **dict.fromkeys(MOVES, _place_moved),
    **dict.fromkeys((Op.BUFFER, Op.PARAM), _place_buffer_or_param),
    **dict.fromkeys((Op.REDUCE, Op.REPLICATED), _drop_owners_if_collapsed_axes_mix_devices),
    Op.LOAD: _place_load_by_named_device_or_source,
    Op.GETTUPLE: _place_element,
    Op.BITCAST: _place_bitcast,
    Op.STACK: _place_stack,
}
#: Ops whose value combines those of all sources.
_COMBINING = frozenset(ALU - {Op.CAST} | {Op.STACK})
#: Ops that are where their first source is.
_FIRST_ONLY = MARKERS | {Op.CAST, Op.LOAD, Op.STORE, Op.AFTER, Op.REDUCE, Op.WMMA, Op.ATOMICADD} | frozenset(MOVES) - {Op.STACK}
#: Those of them that keep every element in its place.
_SAME_SHAPE = MARKERS | {Op.CAST, Op.AFTER}
