"""The lowering of each bestiary op: functions of a node and the `LegalizeState` that return a core node.

`LEGALIZE` has the function of each op. `uops spec` prints the functions' names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.spec.bestiary.tables import EXPANDABLE
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import divide_dim, scale_dim, shard_shape, ungated_positions
from uops.spec.ir.dtypes import DTypeKind
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import EFFECT_WRAPPERS, Op
from uops.spec.ir.scope import RANGES, is_instruction, open_ranges, ranges_closed_by, scope_nodes, scope_sources
from uops.spec.rows.collectives import replicate_on_devices


class LegalizeState:
    """The state of one `legalize`: the core node of each node, and the identities of new Buffers (R113)."""

    def __init__(self, order: Sequence[UOp]) -> None:
        self.core_nodes: dict[UOp, UOp] = {}
        ids = [u.arg.id for u in order if u.op is Op.UNIQUE] + [u.arg.unique for u in order if u.op is Op.BUFFER]
        self._next_id = max(ids, default=-1) + 1
        #: The ranges that some node closes; a Call closes the others among its arguments (R121).
        self.closed_ranges = {r for u in order for r in ranges_closed_by(u)}
        self._buffer_ids: dict[UOp, int] = {}
        self._next_axis_id = max((u.arg.axis_id for u in order if u.op in RANGES), default=-1) + 1
        self._cloned_range_args: dict[tuple[UOp, LaneValues], A.RangeArg] = {}
        devices = [u.arg.device for u in order if u.op is Op.DEVICE and isinstance(u.arg.device, str)]
        #: The device of memory that names none.
        self.device: A.Device = devices[0] if devices else "CPU"

    def __getitem__(self, u: UOp) -> UOp:
        return self.core_nodes[u]

    def core_sources(self, u: UOp) -> tuple[UOp, ...]:
        """Return the core nodes of the sources of `u`."""
        return tuple(self.core_nodes[s] for s in u.src)

    def get_unique_number_or_assign_fresh_id(self, u: UOp) -> int:
        """Return the identity of the Buffer that replaces `u`: the number of a UNIQUE, else a free one (R113, ids)."""
        if u.op is Op.UNIQUE:
            return int(u.arg.id)
        if u not in self._buffer_ids:
            self._buffer_ids[u] = self._next_id
            self._next_id += 1
        return self._buffer_ids[u]

    def get_or_assign_cloned_range_arg(self, r: UOp, lane: LaneValues) -> A.RangeArg:
        """Return the arg, with a free axis id, of the clone of a core Range in a lane of an UNROLL (R88, closing ranges)."""
        if (r, lane) not in self._cloned_range_args:
            self._cloned_range_args[r, lane] = replace(r.arg, axis_id=self._next_axis_id)
            self._next_axis_id += 1
        return self._cloned_range_args[r, lane]


#: The values of unrolled Ranges in a lane of an UNROLL.
LaneValues = frozenset[tuple[UOp, int]]
#: The lowering of an op.
Lower = Callable[[UOp, LegalizeState], UOp]

# --------------------------------------------------------------------------------------------------------------- helpers


def split_lanes(x: UOp) -> list[UOp]:
    """Return the scalars of a vector; a scalar is its own only lane."""
    if x.shape == ():
        return [x]
    if x.op is Op.STACK:
        return list(x.elements)
    return [b.at(x, k) for k in range(x.shape[0])]


def device_tuple(x: UOp) -> tuple[str, ...]:
    """Return the devices that hold a value, as a tuple."""
    d = x.device
    return d if isinstance(d, tuple) else () if d is None else (d,)


def splat(value: UOp, shape: Sequence[Dim]) -> UOp:
    """Build a value of the given shape with a scalar in every element."""
    if not shape:
        return value
    return b.expand(b.reshape(value, (1,) * len(shape)), shape)


def reverse_value_order_within_dtype(x: UOp) -> UOp:
    """Build a bijection that reverses the order of values and cannot overflow (R102, Min as a reduce op)."""
    if x.dtype is dt.bool_:
        return UOp(Op.NOT, (x,))
    if x.dtype.is_float:
        return UOp(Op.NEG, (x,))
    ones = (1 << x.dtype.bits) - 1 if x.dtype.kind is DTypeKind.UINT else -1
    return b.xor(x, b.const(ones, x.dtype))


def build_core_reduce(op: Op, operand: UOp, *, ranges: Sequence[UOp] = (), axes: Sequence[int] = ()) -> UOp:
    """Build a core Reduce; Min becomes Max in the reversed order."""
    if op is Op.MIN:
        return reverse_value_order_within_dtype(
            build_core_reduce(Op.MAX, reverse_value_order_within_dtype(operand), ranges=ranges, axes=axes)
        )
    return UOp(Op.REDUCE, (operand, *ranges), A.ReduceArg(op, tuple(axes)))


def lane_axis_values(axes: Sequence[tuple[int, int]]) -> list[dict[int, int]]:
    """Return axis id -> value for each lane, the first axis outermost (R111, UNROLL and CONTRACT)."""
    ids = [a for a, _ in axes]
    return [dict(zip(ids, values, strict=True)) for values in itertools.product(*(range(n) for _, n in axes))]


# ------------------------------------------------------------------------------------------------------ loops and reduces


def lower_range_with_deps_in_bound(u: UOp, state: LegalizeState) -> UOp:
    """Lower a RANGE: the loops that it depends on become dependencies of its bound, and a Placeholder becomes LOOP (R170)."""
    bound, *deps = state.core_sources(u)
    arg = replace(u.arg, type=AxisType.LOOP) if u.arg.type is AxisType.PLACEHOLDER else u.arg
    return UOp(Op.RANGE, (UOp(Op.AFTER, (bound, *deps)) if deps else bound,), arg)


def reduce_axis(u: UOp, state: LegalizeState) -> UOp:
    """Lower a REDUCE_AXIS (R101)."""
    return build_core_reduce(u.arg.op, state[u.operand], axes=u.arg.axes)


def reduce_all_lanes_then_ranges(u: UOp, state: LegalizeState) -> UOp:
    """Lower a REDUCE of ranges, which also folds the lanes of a vector (R105)."""
    t, *ranges = state.core_sources(u)
    if t.shape:
        t = b.reshape(build_core_reduce(u.arg.op, t, axes=(0,)), ())
    return build_core_reduce(u.arg.op, t, ranges=ranges) if ranges else t


def allreduce(u: UOp, state: LegalizeState) -> UOp:
    """Lower an ALLREDUCE (R110): reduce over a new axis of shards, then copy the result to the named device."""
    operand, device_node = u.src
    t, target = state[operand], device_node.arg.device
    n, a = len(device_tuple(t)), t.axis or 0
    order = (a, *(k for k in range(len(t.shape)) if k != a))
    x = b.permute(t, order)
    shard = (divide_dim(x.shape[0], n), *x.shape[1:])
    x = b.reshape(build_core_reduce(u.arg.op, b.reshape(x, (n, *shard)), axes=(0,)), shard)
    x = b.permute(x, [order.index(k) for k in range(len(order))])
    if target == t.device:
        return x
    return b.copy(x, target) if isinstance(target, str) else replicate_on_devices(b.copy(x, target[0]), target)


# ----------------------------------------------------------------------------------------------------------------- memory


def buffer(u: UOp, state: LegalizeState) -> UOp:
    """Lower a BUFFER; scopes may use one LUNIQUE for different memory (R130, ids of memory inside of a body)."""
    unique, device_node = u.src
    buffer_id = state.get_unique_number_or_assign_fresh_id(unique if unique.op is Op.UNIQUE else u)
    return b.buffer(u.arg.size, u.arg.dtype, device_node.arg.device, unique=buffer_id)


def bufferize(u: UOp, state: LegalizeState) -> UOp:
    """Lower a BUFFERIZE to a Buffer, a Store in the loops of its ranges, and an After."""
    value, *ranges = state.core_sources(u)
    device = u.arg.device or value.device or state.device
    memory = b.buffer(math.prod(u.shape), u.dtype, device, u.arg.addrspace, state.get_unique_number_or_assign_fresh_id(u))
    view = memory if len(u.shape) == 1 else b.reshape(memory, u.shape)
    element = UOp(Op.INDEX, (view, *ranges)) if ranges else view
    return b.after(view, b.end(b.store(element, value), *ranges))


def index(u: UOp, state: LegalizeState) -> UOp:
    """Lower an INDEX without its gate, which moves to the access (R104)."""
    return UOp(Op.INDEX, tuple(state[s] for s in (u.buffer, *ungated_positions(u))))


def lower_byte_offset_to_element_index(u: UOp, state: LegalizeState) -> UOp:
    """Lower a POINTER_INDEX, whose offset is in bytes (R103); one inside of an element is out of bounds (R122)."""
    pointer, offset = state.core_sources(u)
    size = b.const(pointer.dtype.itemsize, offset.dtype)
    number = b.idiv(offset, size)
    if not _has_constant_multiple_factor(offset, pointer.dtype.itemsize):
        is_aligned = b.eq(b.mod(offset, size), b.const(0, offset.dtype))
        number = b.where(is_aligned, b.cast(number, dt.index), b.index(-1))  # an unsigned dtype has no -1
    return UOp(Op.INDEX, (pointer, number))


def _has_constant_multiple_factor(offset: UOp, size: int) -> bool:
    """Return True if an offset is a product with a constant multiple of `size`.

    The size of an element is a power of two, so the product stays a multiple when it wraps.
    """
    factors = (offset.lhs, offset.rhs) if offset.op is Op.MUL else (offset,)
    return size == 1 or any(s.op is Op.CONST and s.arg.value % size == 0 for s in factors)


def _address_gate(address: UOp, state: LegalizeState) -> UOp | None:
    return state[address.positions[-1]] if address.op is Op.B_INDEX and address.arg.gated else None


def load(u: UOp, state: LegalizeState) -> UOp:
    """Lower a LOAD; the gate of its index becomes its own (R104)."""
    return _load_from_address(u.index, None if u.alternative is None else state[u.alternative], state)


def _load_from_address(address: UOp, alt: UOp | None, state: LegalizeState) -> UOp:
    if address.op is Op.PTRCAT:
        return b.stack(*_load_lanes_from_ptrcat(address, alt, state))
    gate, memory = _address_gate(address, state), state[address]
    if gate is None:
        return b.load(memory)
    return b.load(memory, splat(b.const(0, memory.dtype), memory.shape) if alt is None else alt, gate)


def _load_lanes_from_ptrcat(ptrcat: UOp, alt: UOp | None, state: LegalizeState) -> list[UOp]:
    """Return the lanes of one Load per address of a PTRCAT (R117)."""
    alternatives = [] if alt is None else split_lanes(alt)
    lanes: list[UOp] = []
    for s in ptrcat.elements:
        n = s.shape[0] if s.shape else 1
        part = alternatives[len(lanes) : len(lanes) + n]
        alternative = None if not part else part[0] if s.shape == () else b.stack(*part)
        if s.op is not Op.PTRCAT and _address_gate(s, state) is None:
            alternative = None
        lanes += split_lanes(_load_from_address(s, alternative, state))
    return lanes


def store(u: UOp, state: LegalizeState) -> UOp:
    """Lower a STORE; its ranges become an End around it (R105)."""
    return b.end(_store_to_address(u.index, state[u.value], state), *(state[r] for r in u.ranges))


def _store_to_address(address: UOp, value: UOp, state: LegalizeState) -> UOp:
    if address.op is not Op.PTRCAT:
        return b.store(state[address], value, _address_gate(address, state))
    stores, lanes, k = [], split_lanes(value), 0
    for s in address.elements:
        n = s.shape[0] if s.shape else 1
        stores.append(_store_to_address(s, lanes[k] if s.shape == () else b.stack(*lanes[k : k + n]), state))
        k += n
    return b.group(*stores)


def pad(u: UOp, state: LegalizeState) -> UOp:
    """Lower a PAD."""
    return b.pad(state[u.operand], u.arg.begin, u.shape)


def shrink(u: UOp, state: LegalizeState) -> UOp:
    """Lower a SHRINK."""
    return b.shrink(state[u.operand], u.arg.begins, u.shape)


def copy(u: UOp, state: LegalizeState) -> UOp:
    """Lower a COPY to a Load (R53)."""
    operand, device_node = u.src
    return b.copy(state[operand], device_node.arg.device)


def buffer_view(u: UOp, state: LegalizeState) -> UOp:
    """Lower a BUFFER_VIEW to a Slice."""
    return b.slice_(state[u.buffer], u.arg.offset, u.arg.size)


# ------------------------------------------------------------------------------------------------------- kernel structure


def lower_to_most_lowered_stage(u: UOp, state: LegalizeState) -> UOp:
    """Lower a PROGRAM to its most lowered stage (R115); Source and Binary have no meaning without the other."""
    sink, _, *stages = state.core_sources(u)
    if len(stages) == 3:
        return UOp(Op.PROGRAM, tuple(stages))
    return stages[0] if stages else sink


def program_binary(u: UOp, state: LegalizeState) -> UOp:
    """Lower a PROGRAM_BINARY to a Binary."""
    return b.binary(u.arg.data)


def barrier(u: UOp, state: LegalizeState) -> UOp:
    """Lower a BARRIER; one that passes a value on becomes an After."""
    wait = UOp(Op.BARRIER, state.core_sources(u))
    return wait if u.dtype is dt.void else b.after(state[u.operand], wait)


def if_(u: UOp, state: LegalizeState) -> UOp:
    """Lower an IF: its condition becomes part of the gate of every Store in its body (R114)."""
    condition, *effects = state.core_sources(u)
    return b.group(*(gate_stores(s, condition) for s in effects))


def gate_stores(effect: UOp, gate: UOp) -> UOp:
    """Return an effect, made of Stores, Ends and Groups, in which every Store has the gate, too."""
    rebuilt: dict[UOp, UOp] = {}
    for u in toposort(effect, gate=lambda n: n.op in EFFECT_WRAPPERS):
        if u.op is Op.STORE:
            rebuilt[u] = b.store(u.buffer, u.value, gate if u.gate is None else b.and_(u.gate, gate))
        else:
            rebuilt[u] = u.replace(src=tuple(rebuilt[s] for s in u.src)) if u.op in EFFECT_WRAPPERS else u
    return rebuilt[effect]


def call(u: UOp, state: LegalizeState) -> UOp:
    """Lower a CALL: Ranges among its arguments that no other node closes become an End around it (R121)."""
    core = u.replace(src=state.core_sources(u))
    return b.end(core, *(state[r] for r in u.arguments if r.op is Op.B_RANGE and r not in state.closed_ranges))


def flatten_linear_to_core_instructions(u: UOp, state: LegalizeState) -> UOp:
    """Lower a LINEAR: list the core nodes of its instructions in order, without the bodies of IFs (R124).

    The node of an instruction stands once, that of a Call as often as the Call (R151, entries of a launch).
    """
    if state.core_sources(u) == u.src:
        return u
    if_effects = set[UOp]().union(*(collect_effects_in_if_body(s) for s in u.instructions if s.op is Op.B_IF))
    listed: list[UOp] = []
    seen: set[UOp] = set()
    for s in u.instructions:
        if s in if_effects:
            continue
        nodes = [state[s]] if s.op is Op.CALL else [n for n in scope_nodes(state[s]) if n not in seen]
        listed += [n for n in nodes if is_instruction(n)]
        seen.update(nodes)
    return u.replace(src=tuple(listed))


def collect_effects_in_if_body(u: UOp) -> set[UOp]:
    """Return every effect in the body of an IF, also those inside of other effects."""
    effects: set[UOp] = set()
    pending = list(u.effects)
    while pending:
        e = pending.pop()
        if e in effects:
            continue
        effects.add(e)
        if e.op is Op.END:
            pending.append(e.body)
        elif e.op is Op.ENDIF:
            pending.append(e.if_node)
        elif e.op in (Op.GROUP, Op.B_IF):
            pending += e.effects
    return effects


# ---------------------------------------------------------------------------------------------------------------- vectors


def vectorize(u: UOp, state: LegalizeState) -> UOp:
    """Lower a VECTORIZE to a Stack."""
    return b.stack(*state.core_sources(u))


def gep(u: UOp, state: LegalizeState) -> UOp:
    """Lower a GEP to an Index of the lanes."""
    vector, lanes = state[u.operand], u.arg.indices
    return b.at(vector, lanes[0]) if len(lanes) == 1 else b.at(vector, b.shape_vector(lanes))


def vconst(u: UOp, state: LegalizeState) -> UOp:
    """Lower a VCONST to a Stack of Consts."""
    return b.stack(*(UOp(Op.CONST, (), c) for c in u.arg.values))


def cat(u: UOp, state: LegalizeState) -> UOp:
    """Lower a CAT or PTRCAT to a Stack of all lanes."""
    return b.stack(*(lane for s in state.core_sources(u) for lane in split_lanes(s)))


def stack_scalar_at_each_lanes_axis_values(u: UOp, state: LegalizeState) -> UOp:
    """Lower an UNROLL: clone a scalar per lane, with the lane's values for the Ranges of the axes (R111)."""
    t = state[u.operand]
    if t.shape:
        return t
    ids = {a for a, _ in u.arg.axes}
    order = scope_nodes(t)
    loops = open_ranges(order)
    unrolled = [r for r in loops[t] if r.arg.axis_id in ids]
    lanes = [{r: values[r.arg.axis_id] for r in unrolled} for values in lane_axis_values(u.arg.axes)]
    return b.stack(*(_clone_in_lane(order, loops, values, state) for values in lanes))


def _clone_in_lane(order: Sequence[UOp], loops: dict[UOp, frozenset[UOp]], values: dict[UOp, int], state: LegalizeState) -> UOp:
    """Return the last node of a scope with `values` for the unrolled Ranges; `loops` has the Ranges around each node.

    A Range that a clone closes has an axis id of its own (R88, closing ranges). It is the same in all UNROLLs with a lane of
    these values, so that they share what they compute.
    """
    clones = {r: b.index(value) for r, value in values.items()}
    args: dict[UOp, A.RangeArg] = {}
    for u in order:
        lane = frozenset((r, values[r]) for r in loops[u] if r in values)
        if lane:
            for r in sorted(ranges_closed_by(u), key=lambda r: (r.arg.axis_id, r.arg.renumbered)):  # which they nest by (R109)
                args[r] = state.get_or_assign_cloned_range_arg(r, lane)
    for u in order:
        if u not in values and not (loops[u].isdisjoint(values) and loops[u].isdisjoint(args)):
            sources = tuple(clones.get(s, s) for s in scope_sources(u))
            clones[u] = u.replace(src=u.src[: len(u.src) - len(sources)] + sources, arg=args.get(u, u.arg))
    return clones.get(order[-1], order[-1])


def splat_scalar_or_permute_lanes(u: UOp, state: LegalizeState) -> UOp:
    """Lower a CONTRACT: splat a scalar (R106), or permute the lanes into the order of this node's axes (R111)."""
    t, axes = state[u.operand], u.arg.axes
    if not t.shape:
        return b.stack(*[t] * math.prod(n for _, n in axes))
    unrolled = find_axes_of_unroll_whose_lanes_reach(u.operand)
    if unrolled is None or unrolled == axes:
        return t
    lane_of = {tuple(sorted(values.items())): k for k, values in enumerate(lane_axis_values(unrolled))}
    order = [lane_of[tuple(sorted(values.items()))] for values in lane_axis_values(axes)]
    return b.stack(*(split_lanes(t)[k] for k in order))


def find_axes_of_unroll_whose_lanes_reach(u: UOp) -> tuple[tuple[int, int], ...] | None:
    """Return the lane axes of the first UNROLL whose lanes propagate to `u`; None if there is none.

    They propagate through values. What a value waits for has no lanes of it.
    """
    pending, seen = [u], {u}
    while pending:
        n = pending.pop()
        if n.op is Op.UNROLL:
            axes: tuple[tuple[int, int], ...] = n.arg.axes
            return axes
        if n.op in EXPANDABLE:
            pending += [s for s in reversed(n.src) if s.shape and s not in seen]
            seen.update(n.src)
    return None


# ---------------------------------------------------------------------------------------------- definitions and devices


def param(u: UOp, state: LegalizeState) -> UOp:
    """Lower a PARAM."""
    return b.param(u.arg.slot, (u.arg.size,), u.arg.dtype, None if u.device_node is None else u.device_node.arg.device)


def define(space: A.AddrSpace) -> Lower:
    """Return the lowering of DEFINE_LOCAL or DEFINE_REG: a Buffer in `space`."""

    def lower(u: UOp, state: LegalizeState) -> UOp:
        return b.buffer(u.arg.size, u.arg.dtype, state.device, space, state.get_unique_number_or_assign_fresh_id(u))

    lower.__name__ = f"define_{space.name.lower()}"
    return lower


def define_var(u: UOp, state: LegalizeState) -> UOp:
    """Lower a DEFINE_VAR to a named variable."""
    return b.variable(u.arg.name, u.arg.min_val, u.arg.max_val)


def mstack(u: UOp, state: LegalizeState) -> UOp:
    """Lower an MSTACK (R116): gather the elements on the first device, then shard them over all."""
    shards = state.core_sources(u)
    devices = tuple(d for s in shards for d in device_tuple(s))
    joined = b.stack(*(b.copy(s, devices[0]) for s in shards))
    return b.copy(b.reshape(joined, (scale_dim(joined.shape[1], len(devices)), *joined.shape[2:])), devices)


def mselect(u: UOp, state: LegalizeState) -> UOp:
    """Lower an MSELECT (R116): copy the value to the device, then shrink it to the device's shard."""
    t = state[u.operand]
    copy_on_device = b.copy(t, device_tuple(t)[u.arg.index])
    if t.axis is None:
        return copy_on_device
    shape = shard_shape(t)
    return b.shrink(copy_on_device, [scale_dim(n, u.arg.index) if k == t.axis else 0 for k, n in enumerate(shape)], shape)


def lower_multi_to_sharding_copy(u: UOp, state: LegalizeState) -> UOp:
    """Lower a MULTI (R116): shard the value along the axis, unless it is sharded already."""
    t, a = state[u.operand], u.arg.axis
    if t.axis == a:
        return t
    order = (a, *(k for k in range(len(t.shape)) if k != a))
    return b.permute(b.copy(b.permute(t, order), device_tuple(t)), [order.index(k) for k in range(len(order))])


def same(u: UOp, state: LegalizeState) -> UOp:
    """Lower a PRECAST or BIND, which is its first source."""
    return state[u.src[0]]  # operand, variable


def absorbed(u: UOp, state: LegalizeState) -> UOp:
    """Keep a UNIQUE, LUNIQUE or DEVICE, which is a part of its user."""
    return u


def customi(u: UOp, state: LegalizeState) -> UOp:
    """Lower a CUSTOMI to a Custom."""
    return UOp(Op.CUSTOM, state.core_sources(u), u.arg)


def minimum(u: UOp, state: LegalizeState) -> UOp:
    """Lower a MIN to a Max in the reversed order (R102)."""
    x, y = state.core_sources(u)
    return reverse_value_order_within_dtype(b.maximum(reverse_value_order_within_dtype(x), reverse_value_order_within_dtype(y)))
