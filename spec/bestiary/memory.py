"""Buffers, addresses, loads and stores of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.flow import DEVICE_SOURCE
from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.ir.derive.shape import ungated_positions
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import provably_at_most, same_shape, show_shape
from uops.spec.rows.claims import (
    ClaimDraft,
    arg_dtype_claim,
    claim_sources_share_dtype,
    distinct_ranges_claim,
    dtype_claim,
    is_boolean,
    is_storable,
    same_shape_claim,
    scalar_claim,
    sharded_axis_untouched_claim,
    source_op_claim,
)  # fmt: skip
from uops.spec.rows.table.base import RowTable
from uops.spec.rows.table.memory import alternative_fault, find_axis_0_divisibility_fault

#: Ops whose value is an address.
ADDRESSES = frozenset({Op.B_INDEX, Op.POINTER_INDEX, Op.PTRCAT})


def check_size(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that the size in the arg is at least 0."""
    return None if u.arg.size >= 0 else f"got {u.arg.size}"


SIZE = ClaimDraft("size >= 0", check_size)
STORABLE = arg_dtype_claim(is_storable, "not void and not index", "R29")


def _check_constant_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    wrong = next((k for k, r in enumerate(u.ranges) if r.bound.op is not Op.CONST or r.bound.arg.value < 0), None)
    return None if wrong is None else f"range {wrong} has none"


def _check_one_device(u: UOp, ctx: VerifyContext) -> str | None:
    return None if not isinstance(u.arg.device, tuple) else f"{len(u.arg.device)} devices"


def _check_gate_present(u: UOp, ctx: VerifyContext) -> str | None:
    return "there is none" if u.arg.gated and not u.positions else None


def _check_gate_dtype_and_shape(u: UOp, ctx: VerifyContext) -> str | None:
    if not u.arg.gated:
        return None
    gate = u.positions[-1]
    if not is_boolean(gate.dtype):
        return f"got {gate.dtype}"
    return None if gate.shape == () or same_shape(gate.shape, u.shape) else f"got {show_shape(gate.shape)}"


def _check_index_count(u: UOp, ctx: VerifyContext) -> str | None:
    n, rank = len(ungated_positions(u)), len(u.buffer.shape)
    return None if n <= rank else f"{n} indices into rank {rank}"


def _check_indices_are_integer_scalars_or_vectors(u: UOp, ctx: VerifyContext) -> str | None:
    for k, i in enumerate(ungated_positions(u)):
        if not i.dtype.is_integer or len(i.shape) > 1:
            return f"index {k} is {i.dtype} {show_shape(i.shape)}"
    return None


def _check_source_is_memory(u: UOp, ctx: VerifyContext) -> str | None:
    memory = u.src[0]  # the buffer of an INDEX, the pointer of a POINTER_INDEX
    return None if ctx.underlying_buffer(memory) is not None else f"got {ctx.describe_end_of_view_chain(memory)}"


MEMORY = ClaimDraft("source 0 is a Buffer, a Param, or a view of one", _check_source_is_memory, "R51", gate=True)


def _check_accesses_only_unless_ungated_index(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that an INDEX with a gate, or a PTRCAT, is used as an address only (R104, INDEX gate)."""
    if u.op is Op.B_INDEX and not u.arg.gated:
        return None
    wrong = next((x for x in ctx.users[u] if not _uses_as_address_only(x, u)), None)
    return None if wrong is None else f"used as a value by {wrong.op.name.lower()}"


def _uses_as_address_only(user: UOp, address: UOp) -> bool:
    """Return True if a node accesses an address, or joins it to others, and does not read it as a value."""
    if user.op in (Op.B_LOAD, Op.B_STORE):
        return user.index is address and user.src.count(address) == 1
    return user.op is Op.PTRCAT


ONLY_ACCESSED = ClaimDraft(
    "used by Load and Store, as their index, and by PtrCat only, if gated", _check_accesses_only_unless_ungated_index, "R104"
)


def _check_pointer_rank(u: UOp, ctx: VerifyContext) -> str | None:
    memory = u.src[0]  # the pointer of a POINTER_INDEX, the buffer of a BUFFER_VIEW
    return None if len(memory.shape) == 1 else f"got {show_shape(memory.shape)}"


def _check_byte_offset_type_and_constant_alignment(u: UOp, ctx: VerifyContext) -> str | None:
    offset, item = u.offset, u.pointer.dtype.itemsize
    if not offset.dtype.is_integer or len(offset.shape) > 1:
        return f"got {offset.dtype} {show_shape(offset.shape)}"
    return f"{offset.arg.value} bytes of {item} each" if offset.op is Op.CONST and offset.arg.value % item else None


def _check_index_into_buffer(u: UOp, ctx: VerifyContext) -> str | None:
    buffer = ctx.underlying_buffer(u.buffer)
    return None if all(ctx.underlying_buffer(a) is buffer for a in _addresses_in(u.index)) else "the index leads elsewhere"


def _check_alt_type(u: UOp, ctx: VerifyContext) -> str | None:
    return alternative_fault(u.index, u.alternative)


def _addresses_in(address: UOp) -> list[UOp]:
    """Return the addresses that a PTRCAT concatenates, itself or through others; any other address is its own only one."""
    return [a for a in toposort(address, gate=lambda a: a.op is Op.PTRCAT) if a.op is not Op.PTRCAT]


def _check_alt_has_gate(u: UOp, ctx: VerifyContext) -> str | None:
    gated = any(a.op is Op.B_INDEX and a.arg.gated for a in _addresses_in(u.index))
    return "alt without a gate" if u.alternative is not None and not gated else None


def _one_entry_per_axis_claim(first_field: str, second_field: str) -> ClaimDraft:
    """Return the claim that two fields of the arg have one entry per axis of the operand."""

    def check_entry_counts(u: UOp, ctx: VerifyContext) -> str | None:
        rank, counts = len(u.operand.shape), (len(getattr(u.arg, first_field)), len(getattr(u.arg, second_field)))
        return None if counts == (rank, rank) else f"needs {rank}, got {counts[0]} and {counts[1]}"

    return ClaimDraft(f"{first_field} and {second_field} have one entry per axis of T", check_entry_counts, gate=True)


def _check_pads_nonnegative(u: UOp, ctx: VerifyContext) -> str | None:
    wrong = next((n for n in (*u.arg.begin, *u.arg.end) if n < 0), None)
    return None if wrong is None else f"got {wrong}"


def _check_shrink_window(u: UOp, ctx: VerifyContext) -> str | None:
    for k, (begin, end, n) in enumerate(zip(u.arg.begins, u.arg.ends, u.operand.shape)):
        if not 0 <= begin <= end or not provably_at_most(end, n):
            return f"axis {k} has [{begin}, {end}) of {show_shape((n,))}"
    return None


def _check_view_in_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    offset, n = u.arg.offset, u.arg.size
    inside = offset >= 0 and n >= 0 and provably_at_most(offset + n, u.buffer.shape[0])
    return None if inside else f"[{offset}, {offset + n}) of {show_shape(u.buffer.shape)}"


def _check_shards_divide(u: UOp, ctx: VerifyContext) -> str | None:
    operand, device_node = u.src
    return find_axis_0_divisibility_fault(operand, device_node.arg.device)


def _check_param_device(u: UOp, ctx: VerifyContext) -> str | None:
    device = u.device_node
    return "an n-tuple" if device is not None and isinstance(device.arg.device, tuple) else None


def _check_params_of_slot_agree(u: UOp, ctx: VerifyContext) -> str | None:
    other = ctx.param_slot_clashes.get(u)
    if other is None or (other.arg == u.arg and other.device == u.device):
        return None
    return f"slot {u.arg.slot} is also {other.arg.dtype} ({other.arg.size},) on {other.device}"


def _check_buffer_identity(u: UOp, ctx: VerifyContext) -> str | None:
    return f"another BUFFER also has {u.unique.op.name} {u.unique.arg.id}" if u in ctx.buffer_id_clashes else None


r = RowTable(Family.BESTIARY)
# fmt: off
r(Op.B_BUFFER, None, "BUFFER", "unique device", "Memory of `size` elements, told apart by its identity source.", [
    source_op_claim("unique", 0, frozenset({Op.UNIQUE, Op.LUNIQUE}), "R62"),
    DEVICE_SOURCE,
    SIZE,
    STORABLE,
    ClaimDraft("no other BUFFER has the same identity", _check_buffer_identity, "R62"),
], LEGALIZE[Op.B_BUFFER])
r(Op.BUFFERIZE, None, "BUFFERIZE", "T range...", "T for all values of the ranges, which it closes, in memory of their extents.", [
    distinct_ranges_claim(1, frozenset({Op.B_RANGE})),
    scalar_claim("T", 0),
    ClaimDraft("the ranges have constant bounds", _check_constant_bounds, gate=True),
    dtype_claim("T", is_storable, "is storable", "R29", 0),
    ClaimDraft("one device, or none", _check_one_device),
], LEGALIZE[Op.BUFFERIZE])
r(Op.B_INDEX, None, "INDEX", "buf i...",
  "The element or address at the indices, one per leading axis; with `gated`, the last source says where it may be touched.", [
    ClaimDraft("a gate is there if arg says so", _check_gate_present, gate=True),
    ClaimDraft("the gate is bool, () or of the result's shape", _check_gate_dtype_and_shape, "R104"),
    ClaimDraft("at most one index per axis of buf", _check_index_count, gate=True),
    ClaimDraft("an index is an integer of rank at most 1", _check_indices_are_integer_scalars_or_vectors, "R45"),
    MEMORY,
    ONLY_ACCESSED,
], LEGALIZE[Op.B_INDEX])
r(Op.POINTER_INDEX, None, "POINTER_INDEX", "ptr offset", "The address `offset` bytes behind ptr.", [
    ClaimDraft("ptr has rank 1", _check_pointer_rank, "R103"),
    MEMORY,
    ClaimDraft("offset is an integer of rank at most 1, and whole elements where it is constant",
        _check_byte_offset_type_and_constant_alignment, "R103"),
], LEGALIZE[Op.POINTER_INDEX])
r(Op.B_LOAD, None, "LOAD", "buf index alt?", "What memory holds at the index; alt where its gate is false.", [
    source_op_claim("index", 1, ADDRESSES, "R100"),
    ClaimDraft("the index leads into buf", _check_index_into_buffer, "R100"),
    ClaimDraft("alt has the index's dtype and shape", _check_alt_type, "R104"),
    ClaimDraft("alt comes with a gated index", _check_alt_has_gate, "R104"),
], LEGALIZE[Op.B_LOAD])
r(Op.B_STORE, None, "STORE", "index val range...",
  "Writes val at the index, where its gate is true, in the loops of the ranges, which it closes.", [
    source_op_claim("index", 0, ADDRESSES, "R100"),
    claim_sources_share_dtype("index and val", 0, 2),
    same_shape_claim("index and val", 0, 1),
    distinct_ranges_claim(2, frozenset({Op.B_RANGE})),
], LEGALIZE[Op.B_STORE])
r(Op.B_PAD, None, "PAD", "T", "T with zeros before and after, on each axis.", [
    _one_entry_per_axis_claim("begin", "end"),
    ClaimDraft("begin >= 0 and end >= 0", _check_pads_nonnegative, "R43"),
    sharded_axis_untouched_claim(lambda u, a: bool(u.arg.begin[a] or u.arg.end[a]), "Pad"),
], LEGALIZE[Op.B_PAD])
r(Op.B_SHRINK, None, "SHRINK", "T", "Of each axis, the elements from begin up to end.", [
    _one_entry_per_axis_claim("begins", "ends"),
    ClaimDraft("0 <= begins <= ends <= s", _check_shrink_window, "R44"),
    sharded_axis_untouched_claim(lambda u, a: u.arg.begins[a] != 0 or u.arg.ends[a] != u.operand.shape[a], "Shrink"),
], LEGALIZE[Op.B_SHRINK])
r(Op.COPY, None, "Copy", "T device", "T in fresh memory on the device.", [
    DEVICE_SOURCE,
    ClaimDraft("an n-tuple device divides axis 0, which is there", _check_shards_divide, "R75"),
    dtype_claim("T", is_storable, "is storable", "R29", 0),
], LEGALIZE[Op.COPY])
r(Op.BUFFER_VIEW, None, "BufferView", "buf", "`size` elements of buf from element `offset`, without a copy.", [
    ClaimDraft("buf has rank 1", _check_pointer_rank, "R46", gate=True),
    ClaimDraft("offset >= 0 and offset + size <= s", _check_view_in_bounds, "R46"),
    sharded_axis_untouched_claim(lambda u, a: True, "view"),
    dtype_claim("buf", is_storable, "is storable", "R29", 0),
], LEGALIZE[Op.BUFFER_VIEW])
r(Op.B_PARAM, None, "PARAM", "device?", "Stands for argument `slot`: memory of `size` elements.", [
    ClaimDraft("slot >= 0", lambda u, ctx: None if u.arg.slot >= 0 else f"got {u.arg.slot}"),
    SIZE,
    STORABLE,
    source_op_claim("device", 0, frozenset({Op.DEVICE})),
    ClaimDraft("one device, or none", _check_param_device, "R73"),
    ClaimDraft("the PARAMs of one slot in a scope agree", _check_params_of_slot_agree, "R64"),
], LEGALIZE[Op.B_PARAM])
# fmt: on
ROWS = tuple(r.rows)
