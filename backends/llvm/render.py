"""LINEAR kernels as LLVM IR text.

Takes: LINEAR over SELECTED ops. Gives: a module with the function `void kernel(ptr buffers, ptr scalars)`. If a kernel has a
loop for threads, that function runs all of `void part(ptr buffers, ptr scalars, i64 begin, i64 end)`, which runs some iterations
of the loop.

`buffers` points at one address per kernel argument and `scalars` at one int64 per kernel argument. Argument k is read from the
table of its kind (a named Param is a scalar), so both are indexed by slot. The text contains nothing that a target machine
decides (triple, data layout, features), so a kernel has the same text everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from uops.backends.calling import ENTRY, PART
from uops.backends.llvm.alu import EMIT, INSTRUCTION
from uops.backends.llvm.builder import IRBuilder
from uops.backends.llvm.layout import (
    find_address_nodes,
    find_params_buffers_and_views,
    find_register_buffers_used_as_whole,
    find_registers_stored_in_blocks,
    match_lane_offsets,
    never_wraps_in_own_dtype,
)
from uops.backends.llvm.shuffles import (
    emit_constant_lane_shuffle,
    emit_stack_vector,
    extract_lane,
    is_lane_at_constant_position,
    render_vector_literal,
)
from uops.backends.llvm.types import (
    bits,
    lanes_of,
    llvm_type_of_value,
    render_literal,
    splat,
    storage_type,
    value_type,
    vector_type,
    with_element,
)
from uops.compiler.ir.loops import find_parallelizable_outer_thread_loop
from uops.compiler.native import find_template_of_ins_or_custom, render_template
from uops.compiler.target import STACK_LIMIT
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, strip_afters

#: Alignment of private and local arrays in bytes, so that a vector access at their beginning crosses no cache line.
ALIGNMENT = 64
#: Smallest element, in bytes, that machines gather. For smaller ones, LLVM makes a branch per lane, which is large and slow. They
#: are read and written one by one instead, with inactive lanes redirected to a slot of the kernel's own.
GATHERED = 4
#: Greatest number of elements of a private array that starts as zeros; a larger one starts as anything
#: (`_alloca_zeroed_or_opaque_buffer`).
ZEROED = 16

#: Exclusive limit of trip counts given to LLVM as branch weights, which have 32 bits.
_MAX_WEIGHT = 1 << 31

# no-builtins keeps LLVM from turning loops into calls of memset and memcpy, so that an object needs no C library.
_ATTRIBUTES = 'attributes #0 = { nounwind "no-builtins" }'


class _OpenBlock(NamedTuple):
    """A Range or If that is not closed yet, with the values before it of the registers that it changes."""

    node: UOp
    number: int
    values_before: dict[UOp, str]
    block: str
    phi_lines: dict[UOp, int]  # of a Range: the line of each register's phi, which still lacks the value of the last iteration


class _VectorAddress(NamedTuple):
    """The addresses of a vector access: one for contiguous lanes, or one per lane."""

    contiguous: str | None
    lanes: list[str]


def render(linear: UOp) -> str:
    """Return the module's text. Raises Unsupported for an op or dtype of other backends, and Crash for anything but a LINEAR
    kernel."""
    if linear.op is not Op.LINEAR:
        raise Crash(f"the llvm renderer takes a Linear, got {linear!r}")
    return _KernelRenderer(linear.instructions).render_module()


class _KernelRenderer:
    """The state of one rendering: the builder, the operand of every value, and the address of every reference."""

    def __init__(self, instructions: tuple[UOp, ...]) -> None:
        self.b = IRBuilder()
        self.instructions = instructions
        self.operands: dict[UOp, str] = {}
        self.addresses: dict[UOp, str] = {}
        self.entries: set[str] = set()
        self.open_blocks: list[_OpenBlock] = []
        self.number = 0
        self.registers = find_register_buffers_used_as_whole(instructions)
        self.register_values: dict[UOp, str] = {}  # the values of registers
        self.vector_addresses: dict[UOp, _VectorAddress] = {}
        self.address_nodes = find_address_nodes(instructions, find_params_buffers_and_views(instructions))
        self.i64_operands: dict[UOp, str] = {}
        self.register_stores = find_registers_stored_in_blocks(instructions, self.registers)
        self.thread_loop = find_parallelizable_outer_thread_loop(instructions)
        self.needs_spare_slot = False

    def render_module(self) -> str:
        """Render the kernel; return the module's text."""
        self._bind_params_and_allocate_buffers()
        for k, u in enumerate(self.instructions):
            self.number = k
            if u not in self.operands and u not in self.addresses and u not in self.registers:
                self._emit_instruction_and_i64_copy(u)
        if self.open_blocks:
            raise Crash(f"{self.open_blocks[-1].node!r} is never closed")
        self.b.emit_void("ret void")
        tables = "ptr %buffers, ptr %scalars"
        name, head = (ENTRY, tables) if self.thread_loop is None else (PART, f"{tables}, i64 %begin, i64 %end")
        whole = [] if self.thread_loop is None else _render_whole_entry(tables, int(self.thread_loop.bound.arg.value))
        spare = ["  %spare = alloca i64, align 8", "  store i64 0, ptr %spare, align 8"] if self.needs_spare_slot else []
        body = [f"define void @{name}({head}) #0 {{", "entry:", *spare, *self.b.lines, "}", ""]
        return "\n".join([*body, *whole, *self.b.declarations, _ATTRIBUTES]) + "\n"

    # Entry block: definitions that dominate the whole kernel.

    def _bind_params_and_allocate_buffers(self) -> None:
        """Emit the entry block: arguments and private memory."""
        params = sorted([u for u in self.instructions if u.op is Op.PARAM], key=lambda u: int(u.arg.slot))
        for u in params:
            if u.arg.name is None:
                self._bind_buffer_argument(u)
            else:
                self._bind_variable(u)
        total = 0
        for u in self.instructions:
            if u in self.registers:
                self.register_values[u] = splat(vector_type(value_type(u.dtype), u.arg.size), _zero(u.dtype))
            elif u.op is Op.BUFFER:
                total += u.arg.size * u.arg.dtype.itemsize
                if total > STACK_LIMIT:
                    raise CompileError(f"private and local buffers take more than {STACK_LIMIT} bytes of stack")
                self._alloca_zeroed_or_opaque_buffer(u)

    def _bind_buffer_argument(self, u: UOp) -> None:
        """Load the address of a buffer.

        Addresses are loaded once, before any store, as LLVM has to assume that a store may change the table.
        """
        storage_type(u.dtype)
        self.addresses[u] = self._load_argument_once("p", u.arg.slot, "ptr", "%buffers")

    def _bind_variable(self, u: UOp) -> None:
        """Load a named Param: it is passed as int64, and its dtype holds every value within its bounds (R08)."""
        place, t = self._load_argument_once("s", u.arg.slot, "i64", "%scalars"), value_type(u.dtype)
        self.operands[u] = place if t == "i64" else self.b.emit(f"trunc i64 {place} to {t}")

    def _load_argument_once(self, name_prefix: str, slot: int, t: str, table: str) -> str:
        """Load an entry of a table of arguments, once for all Params of its slot."""
        place = f"%{name_prefix}{slot}"
        if place not in self.entries:
            self.entries.add(place)
            self.b.emit_void(f"{place}.at = getelementptr {t}, ptr {table}, i64 {slot}")
            self.b.emit_void(f"{place} = load {t}, ptr {place}.at, align 8")
        return place

    def _alloca_zeroed_or_opaque_buffer(self, u: UOp) -> None:
        """Allocate a private buffer.

        Reading an element before it is written is a Trap in the language (R61), but must not become undefined behaviour here. A
        small buffer starts as zeros, mostly by dead stores. A large one is passed to an empty piece of assembly that may have
        filled it, as far as LLVM knows. Freezing every load instead would separate it from the instruction that uses it.
        """
        t, size, place = storage_type(u.dtype), u.arg.size, f"%r{len(self.addresses)}"
        if u.arg.addrspace is AddrSpace.GLOBAL:
            raise Crash(f"{u!r}: a GLOBAL buffer reaches a kernel as a Param")
        self.b.emit_void(f"{place} = alloca [{size} x {t}], align {ALIGNMENT}")
        if size <= ZEROED:
            self.b.emit_void(f"store [{size} x {t}] zeroinitializer, ptr {place}, align {u.dtype.itemsize}")
        else:
            self.b.emit_void(f'call void asm sideeffect "", "r,~{{memory}}"(ptr captures(none) {place})')
        self.addresses[u] = place

    # Body: one statement per instruction.

    def _emit_instruction_and_i64_copy(self, u: UOp) -> None:
        """Emit one instruction; an integer for addresses is also, or only, computed in 64 bits."""
        if u not in self.address_nodes.address_only:
            self._emit_value_or_statement(u)
        if u in self.address_nodes.wide and u.shape == () and u.dtype is not dt.index:
            self.i64_operands[u] = self._compute_in_i64_if_never_wraps_else_extend(u)

    def _emit_value_or_statement(self, u: UOp) -> None:
        if u.op in EMIT and u.src[0] not in self.addresses:  # operand: a Bitcast of memory is a statement
            self.operands[u] = EMIT[u.op](self.b, u, *map(self.render_operand, u.src))
        elif u.op in STATEMENT:
            STATEMENT[u.op](self, u)
        else:
            raise Unsupported(u.op.name, "llvm")

    def render_operand(self, u: UOp) -> str:
        """Return the operand that names the value `u`."""
        operand = self.operands.get(u)
        if operand is not None:
            return operand
        if u.op is Op.CONST:
            return render_literal(u.arg.value, u.dtype)
        if u.op is Op.STACK and u.constants_of_stack is not None:
            self.operands[u] = render_vector_literal(u)
            return self.operands[u]
        if is_lane_at_constant_position(u):
            return extract_lane(self.b, u, self.render_operand)
        raise Crash(f"{u!r} is used before it is computed")

    def address(self, u: UOp) -> str:
        """Return the address of a reference."""
        if u not in self.addresses:
            raise Crash(f"{u!r} is no reference that this kernel has computed")
        return self.addresses[u]

    def skip(self, u: UOp) -> None:
        """Emit nothing: Consts are written at their uses, and Group and Sink have no code."""

    def alias_reference_to_source(self, u: UOp) -> None:
        """Name an After, or a Bitcast of a reference, by its source."""
        source = u.src[0]  # buffer or operand
        if source in self.vector_addresses or base_memory(u) in self.registers:
            return
        if source in self.addresses:
            self.addresses[u] = self.addresses[source]
        elif u.dtype is not dt.void:
            self.operands[u] = self.render_operand(source)

    def emit_index_address_or_lane_shuffle(self, u: UOp) -> None:
        """Emit the address of one element, or of several; of a value, a selection of lanes.

        There is no `inbounds`: an address that a false gate protects may be anything.
        """
        if base_memory(u) in self.registers:
            return
        operand, *positions = u.src
        if operand not in self.addresses:
            if not is_lane_at_constant_position(u):
                self.operands[u] = emit_constant_lane_shuffle(self.b, u, self.render_operand)
            return
        if len(positions) != 1:
            raise Unsupported(f"Index with {len(positions)} operands in a kernel", "llvm")
        t, base, (at,) = storage_type(u.dtype), self.address(operand), positions
        if at.shape == ():
            self.addresses[u] = self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._as_i64(at)}")
        else:
            self.vector_addresses[u] = self._emit_vector_address(t, base, at)

    def _emit_vector_address(self, t: str, base: str, index_vector: UOp) -> _VectorAddress:
        """Emit the addresses of the elements of an index vector."""
        offsets = match_lane_offsets(index_vector)
        if offsets is None and index_vector.op is Op.STACK:
            return _VectorAddress(
                None, [self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._as_i64(s)}") for s in index_vector.src]
            )
        if offsets is None:
            name, kind = self.render_operand(index_vector), llvm_type_of_value(index_vector)
            lanes = [self.b.emit(f"extractelement {kind} {name}, i64 {k}") for k in range(lanes_of(index_vector))]
            at64 = [self._extend_to_i64(x, index_vector.dtype) for x in lanes]
            return _VectorAddress(None, [self.b.emit(f"getelementptr {t}, ptr {base}, i64 {x}") for x in at64])
        first = base if offsets.base is None else self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._as_i64(offsets.base)}")
        touched = offsets.from_base[:1] if offsets.is_contiguous else offsets.from_base
        places = [self.b.emit(f"getelementptr {t}, ptr {first}, i64 {k}") if k else first for k in touched]
        return _VectorAddress(places[0], []) if offsets.is_contiguous else _VectorAddress(None, places)

    def _as_i64(self, u: UOp) -> str:
        """Return an integer value as i64."""
        if u.op is Op.CONST:
            return str(u.arg.value)
        return self.i64_operands[u] if u in self.i64_operands else self._extend_to_i64(self.render_operand(u), u.dtype)

    def _extend_to_i64(self, x: str, d: DType) -> str:
        return x if bits(d) == 64 else self.b.emit(f"{'sext' if d.is_signed else 'zext'} {value_type(d)} {x} to i64")

    def _compute_in_i64_if_never_wraps_else_extend(self, u: UOp) -> str:
        """Return a scalar integer in 64 bits: computed there if nothing wraps, else converted."""
        if not never_wraps_in_own_dtype(u):
            return self._extend_to_i64(self.render_operand(u), u.dtype)
        if u.op is Op.CAST:
            return self._as_i64(u.operand)
        x, y = map(self._as_i64, u.src)
        return self.b.emit(f"{INSTRUCTION[u.op]['s']} i64 {x}, {y}")

    def emit_stack(self, u: UOp) -> None:
        """Emit a vector of scalars; one of constants is written at its uses."""
        if not all(s.op is Op.CONST for s in u.src):
            self.operands[u] = emit_stack_vector(self.b, u, self.render_operand)

    def emit_load(self, u: UOp) -> None:
        """Emit a read of an element or a vector; with a gate, an address is touched only if it holds (R52)."""
        source = base_memory(u.buffer)
        if source in self.registers:
            self.operands[u] = self.register_values[source]
        elif u.gate is None:
            self.operands[u] = self._load_memory_ungated(u)
        elif u.gate.shape != ():
            self.operands[u] = self._load_masked(u)
        else:
            self._load_if_gate(u)

    def _load_if_gate(self, u: UOp) -> None:
        """Emit a read in a block of its own, entered only if a scalar gate holds."""
        assert u.alternative is not None and u.gate is not None
        alt, gate, before = self.render_operand(u.alternative), self.render_operand(u.gate), self.b.block
        then, join_ = f"load{self.number}", f"loaded{self.number}"
        self.b.branch(gate, then, join_)
        self.b.label(then)
        value = self._load_memory_ungated(u)
        self.b.jump(join_)
        self.b.label(join_)
        self.operands[u] = self.b.emit(f"phi {llvm_type_of_value(u)} [ {value}, %{then} ], [ {alt}, %{before} ]")

    def _load_memory_ungated(self, u: UOp) -> str:
        """Emit a read without a gate."""
        d, source = u.dtype, u.buffer
        t = storage_type(d)
        place = self._find_vector_address(source)
        if place is None:
            value = self.b.emit(f"load {t}, ptr {self.address(source)}, align {d.itemsize}")
        elif place.contiguous is not None:
            t = vector_type(t, lanes_of(u))
            value = self.b.emit(f"load {t}, ptr {place.contiguous}, align {d.itemsize}")
        else:
            value = self._load_lanes(t, place.lanes, d)
            t = vector_type(t, lanes_of(u))
        return self._from_storage(d, t, value)

    def _load_lanes(self, t: str, lanes: list[str], d: DType) -> str:
        """Emit a read of each lane."""
        return self.b.insert_lanes_into_zero_vector(t, [self.b.emit(f"load {t}, ptr {a}, align {d.itemsize}") for a in lanes])

    def _load_masked(self, u: UOp) -> str:
        """Emit a read under a vector gate."""
        d, w, align = u.dtype, lanes_of(u), str(u.dtype.itemsize)
        t = vector_type(storage_type(d), w)
        assert u.alternative is not None and u.gate is not None
        alt, gate = self._to_storage(u.alternative), self.render_operand(u.gate)
        place = self._find_vector_address(u.buffer)
        if place is None:
            raise Unsupported("a Load of one element under a vector gate", "llvm")
        if place.contiguous is not None:
            value = self.b.call_masked(
                "load", t, t, ("ptr", place.contiguous), ("i32", align), (with_element(t, "i1"), gate), (t, alt)
            )
        elif d.itemsize < GATHERED:
            read = self._load_lanes(storage_type(d), self._redirect_inactive_lanes_to_spare_slot(place.lanes, gate), d)
            value = self.b.emit(f"select {with_element(t, 'i1')} {gate}, {t} {read}, {t} {alt}")
        else:
            ptrs = self.b.insert_lanes_into_zero_vector("ptr", place.lanes)
            value = self.b.call_masked(
                "gather", t, t, (with_element(t, "ptr"), ptrs), ("i32", align), (with_element(t, "i1"), gate), (t, alt)
            )
        return self._from_storage(d, t, value)

    def _redirect_inactive_lanes_to_spare_slot(self, lane_addresses: list[str], gate: str) -> list[str]:
        """Replace the addresses of inactive lanes by a slot of zeros that nothing else reads."""
        self.needs_spare_slot = True
        on = [self.b.emit(f"extractelement <{len(lane_addresses)} x i1> {gate}, i64 {k}") for k in range(len(lane_addresses))]
        return [self.b.emit(f"select i1 {x}, ptr {a}, ptr %spare") for x, a in zip(on, lane_addresses, strict=True)]

    def _from_storage(self, d: DType, t: str, value: str) -> str:
        """Convert what was read to a value."""
        return self.b.emit(f"icmp ne {t} {value}, {splat(t, '0')}") if d is dt.bool_ else value

    def _find_vector_address(self, target: UOp) -> _VectorAddress | None:
        """Return the addresses of a vector access; None for one element."""
        return self.vector_addresses.get(strip_afters(target))

    def emit_store(self, u: UOp) -> None:
        """Emit a write of an element or a vector, under its gate."""
        target = base_memory(u.buffer)
        if target in self.registers:
            self.register_values[target] = self.render_operand(u.value)
        elif u.gate is None:
            self._store_memory_ungated(u)
        elif u.gate.shape != ():
            self._store_masked(u)
        else:
            then, join_ = f"store{self.number}", f"stored{self.number}"
            self.b.branch(self.render_operand(u.gate), then, join_)
            self.b.label(then)
            self._store_memory_ungated(u)
            self.b.jump(join_)
            self.b.label(join_)

    def _store_memory_ungated(self, u: UOp) -> None:
        """Emit a write without a gate."""
        target, value = u.buffer, u.value
        place, d = self._find_vector_address(target), value.dtype
        if place is None:
            self._store_scalar(target, d, self.render_operand(value))
            return
        x, t = self._to_storage(value), storage_type(d)
        if place.contiguous is not None:
            self.b.emit_void(f"store {vector_type(t, lanes_of(value))} {x}, ptr {place.contiguous}, align {d.itemsize}")
            return
        self._store_lanes(t, place.lanes, d, x)

    def _store_lanes(self, t: str, lane_addresses: list[str], d: DType, x: str) -> None:
        """Emit a write of each lane."""
        for k, a in enumerate(lane_addresses):
            lane = self.b.emit(f"extractelement {vector_type(t, len(lane_addresses))} {x}, i64 {k}")
            self.b.emit_void(f"store {t} {lane}, ptr {a}, align {d.itemsize}")

    def _store_masked(self, u: UOp) -> None:
        """Emit a write under a vector gate."""
        buffer, value, condition = u.src
        gate, place = self.render_operand(condition), self._find_vector_address(buffer)
        d, w, align = value.dtype, lanes_of(value), str(value.dtype.itemsize)
        t, x = vector_type(storage_type(d), w), self._to_storage(value)
        if place is None:
            raise Unsupported("a Store of one element under a vector gate", "llvm")
        if place.contiguous is not None:
            self.b.call_masked("store", "void", t, (t, x), ("ptr", place.contiguous), ("i32", align), (with_element(t, "i1"), gate))
        elif d.itemsize < GATHERED:
            self._store_lanes(storage_type(d), self._redirect_inactive_lanes_to_spare_slot(place.lanes, gate), d, x)
        else:
            ptrs = self.b.insert_lanes_into_zero_vector("ptr", place.lanes)
            self.b.call_masked(
                "scatter", "void", t, (t, x), (with_element(t, "ptr"), ptrs), ("i32", align), (with_element(t, "i1"), gate)
            )

    def _to_storage(self, u: UOp) -> str:
        """Convert a value to its form in memory."""
        x = self.render_operand(u)
        return self.b.emit(f"zext {llvm_type_of_value(u)} {x} to {vector_type('i8', lanes_of(u))}") if u.dtype is dt.bool_ else x

    def _store_scalar(self, target: UOp, d: DType, value: str) -> None:
        """Emit a write of one element."""
        if d is dt.bool_:
            value = self.b.emit(f"zext i1 {value} to i8")
        self.b.emit_void(f"store {storage_type(d)} {value}, ptr {self.address(target)}, align {d.itemsize}")

    def emit_nonatomic_add(self, u: UOp) -> None:
        """Emit an atomic sum: a plain read, add and write, as one thread runs a kernel (R56).

        Lanes of a vector take turns, as it may name an element several times.
        """
        d, t, x = u.value.dtype, storage_type(u.value.dtype), self.render_operand(u.value)
        place = self._find_vector_address(u.index)
        if place is None:
            self._add_to_memory(self.address(u.index), t, d, x)
        elif place.contiguous is not None:
            self._add_to_memory(place.contiguous, vector_type(t, lanes_of(u.value)), d, x)
        else:
            for k, address in enumerate(place.lanes):
                lane = self.b.emit(f"extractelement {vector_type(t, len(place.lanes))} {x}, i64 {k}")
                self._add_to_memory(address, t, d, lane)

    def _add_to_memory(self, address: str, t: str, d: DType, value: str) -> None:
        """Emit a read of the type `t`, a sum and a write of it."""
        old = self.b.emit(f"load {t}, ptr {address}, align {d.itemsize}")
        new = self.b.emit(f"{'fadd' if d.is_float else 'add'} {t} {old}, {value}")
        self.b.emit_void(f"store {t} {new}, ptr {address}, align {d.itemsize}")

    # Native text.

    def emit_native_text(self, u: UOp) -> None:
        """Emit an Ins, Custom or CUSTOMI by its template: an instruction of LLVM IR, without the name of its value (R168).

        An operand is written without its type. A reference stands for its address.
        """
        text = render_template(find_template_of_ins_or_custom("llvm", u), [self._render_untyped_native_operand(s) for s in u.src])
        if u.dtype is dt.void:
            self.b.emit_void(text)
        else:
            value_type(u.dtype)
            self.operands[u] = self.b.emit(text)

    def _render_untyped_native_operand(self, s: UOp) -> str:
        """Return an operand of native text; an effect, which only has to come first, is empty. Raises Unsupported for a vector."""
        if s in self.addresses:
            return self.addresses[s]
        if s.dtype is dt.void:
            return ""
        if s.shape != () or self._find_vector_address(s) is not None:
            raise Unsupported(f"native text on a {s.op.name.lower()} of shape {s.shape}", "llvm")
        return self.render_operand(s)

    # Control.

    def emit_range(self, u: UOp) -> None:
        """Open a loop with its test first, so that a bound <= 0 runs zero times (R57)."""
        n, t, extent = self.number, value_type(u.dtype), u.bound
        first, bound = (
            ("0", self.render_operand(extent))
            if u is not self.thread_loop
            else (self._part_bound("%begin", t), self._part_bound("%end", t))
        )
        before = self.b.block
        if value_type(extent.dtype) != t:
            raise Crash(f"{u!r} has a bound of dtype {extent.dtype}")
        self.b.jump(f"loop{n}")
        self.b.label(f"loop{n}")
        self.operands[u] = f"%i{n}"
        self.b.emit_void(f"%i{n} = phi {t} [ {first}, %{before} ], [ %i{n}.next, %next{n} ]")
        holes = {}
        for k, r in enumerate(self.register_stores.get(u, ())):
            name, kind = f"%a{n}.{k}", vector_type(value_type(r.dtype), r.arg.size)
            holes[r] = len(self.b.lines)
            self.b.emit_void(f"{name} = phi {kind} [ {self.register_values[r]}, %{before} ], [ ")
            self.register_values[r] = name
        d = u.dtype
        is_unsigned = d is dt.uint8 or d is dt.uint16 or d is dt.uint32 or d is dt.uint64
        self.b.emit_void(f"%i{n}.in = icmp {'ult' if is_unsigned and u is not self.thread_loop else 'slt'} {t} %i{n}, {bound}")
        if extent.op is Op.CONST and 0 < extent.arg.value < _MAX_WEIGHT:
            self.b.branch_with_trip_count(f"%i{n}.in", f"body{n}", f"done{n}", int(extent.arg.value))
        else:
            self.b.branch(f"%i{n}.in", f"body{n}", f"done{n}")
        self.open_blocks.append(_OpenBlock(u, n, {r: self.register_values[r] for r in holes}, f"loop{n}", holes))
        self.b.label(f"body{n}")

    def _part_bound(self, x: str, t: str) -> str:
        """Return the begin or end of a part in the loop's type, which can hold it."""
        return x if t == "i64" else self.b.emit(f"trunc i64 {x} to {t}")

    def emit_end(self, u: UOp) -> None:
        """Close the ranges of an End, innermost first. After a loop, a register has its value at the failed test."""
        left = set(u.ranges)
        while left:
            inner, n, before, _, holes = self._pop_innermost_block(left)
            left.discard(inner)
            self.b.jump(f"next{n}")
            self.b.label(f"next{n}")
            self.b.emit_void(f"%i{n}.next = add {value_type(inner.dtype)} %i{n}, 1")
            self.b.jump(f"loop{n}")
            self.b.label(f"done{n}")
            for r, line in holes.items():
                self.b.lines[line] += f"{self.register_values[r]}, %next{n} ]"
            self.register_values.update(before)

    def _pop_innermost_block(self, expected: Iterable[UOp]) -> _OpenBlock:
        """Return the innermost open block, which must be one of those expected, and which is open no more."""
        if not self.open_blocks or self.open_blocks[-1].node not in expected:
            raise Crash(f"instruction {self.number} closes {list(expected)!r}, but not the innermost open Range or If")
        return self.open_blocks.pop()

    def emit_if(self, u: UOp) -> None:
        """Open a block under a condition."""
        before = {r: self.register_values[r] for r in self.register_stores.get(u, ())}
        self.open_blocks.append(_OpenBlock(u, self.number, before, self.b.block, {}))
        self.b.branch(self.render_operand(u.condition), f"then{self.number}", f"endif{self.number}")
        self.b.label(f"then{self.number}")

    def emit_endif(self, u: UOp) -> None:
        """Close the block of an If."""
        opened, last = self._pop_innermost_block((u.if_node,)), self.b.block
        self.b.jump(f"endif{opened.number}")
        self.b.label(f"endif{opened.number}")
        for r, old in opened.values_before.items():
            kind = vector_type(value_type(r.dtype), r.arg.size)
            self.register_values[r] = self.b.emit(f"phi {kind} [ {self.register_values[r]}, %{last} ], [ {old}, %{opened.block} ]")


def _render_whole_entry(tables: str, extent: int) -> list[str]:
    """Return the function that runs the part for all iterations."""
    call = f"  call void @{PART}({tables}, i64 0, i64 {extent})"
    return [f"define void @{ENTRY}({tables}) #0 {{", call, "  ret void", "}", ""]


def _zero(d: DType) -> str:
    return render_literal(0.0 if d.is_float else 0, d)


STATEMENT: dict[Op, Callable[[_KernelRenderer, UOp], None]] = {
    Op.CONST: _KernelRenderer.skip,
    Op.STACK: _KernelRenderer.emit_stack,
    Op.GROUP: _KernelRenderer.skip,
    Op.SINK: _KernelRenderer.skip,
    Op.AFTER: _KernelRenderer.alias_reference_to_source,
    Op.BITCAST: _KernelRenderer.alias_reference_to_source,
    Op.INDEX: _KernelRenderer.emit_index_address_or_lane_shuffle,
    Op.LOAD: _KernelRenderer.emit_load,
    Op.STORE: _KernelRenderer.emit_store,
    Op.ATOMICADD: _KernelRenderer.emit_nonatomic_add,
    Op.CUSTOM: _KernelRenderer.emit_native_text,
    Op.CUSTOMI: _KernelRenderer.emit_native_text,
    Op.INS: _KernelRenderer.emit_native_text,
    Op.RANGE: _KernelRenderer.emit_range,
    Op.END: _KernelRenderer.emit_end,
    Op.IF: _KernelRenderer.emit_if,
    Op.ENDIF: _KernelRenderer.emit_endif,
}

#: Every op that this renderer has.
OPS = frozenset({Op.LINEAR, Op.PARAM, Op.BUFFER, *EMIT, *STATEMENT})
