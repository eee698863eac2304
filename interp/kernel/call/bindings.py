"""Bindings of a kernel in a run of the tensor machine: values, and memory that it may change.

For the graph around a kernel, all its accesses are those of one node: the Call, the End or Reduce, or the root. They are logged
as one read and one write per memory, with the elements that were touched (R55, R59, R63: races, After, Calls).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from uops.interp.kernel.call.bodies import KernelBody
from uops.interp.kernel.lane_machine.memory import FlatMemory, MemoryWindow, make_flat_memory
from uops.interp.kernel.run import run_kernel
from uops.interp.tensor import memory as references
from uops.interp.tensor.machine import TensorMachine
from uops.interp.tensor.memory import StorageAccess, StorageRef, TensorStorage, describe
from uops.interp.tensor.scope import VOID, Cell, TensorScope
from uops.interp.tensor.storage import NUMPY, Array, check_variable_bounds, to_index_array
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import is_variable

#: What names an argument of a Call: its leaf in a kernel, or its number.
Key = TypeVar("Key", bound=Hashable)


@dataclass(eq=False, slots=True)
class KernelRunState:
    """State that the kernels of one run share.

    `arenas` has the owners of the bytes of each arena (R126: Slices of one Buffer in a launch). `atomic_add_accesses` has, per
    storage, the accesses that were AtomicAdds alone, as a set of bits.
    """

    arenas: dict[TensorStorage, ArenaOwners] = field(default_factory=dict)
    atomic_add_accesses: dict[TensorStorage, int] = field(default_factory=dict)


def get_or_make_kernel_state(m: TensorMachine) -> KernelRunState:
    """Return the shared state of the kernels of a run, made on first use."""
    if m.kernel_state is None:
        m.kernel_state = KernelRunState()
    state: KernelRunState = m.kernel_state
    return state


class KernelBindings:
    """The memory and values that a kernel gets from a run, by the cells of its leaves."""

    def __init__(
        self, m: TensorMachine, scope: TensorScope, body: KernelBody, cells: Mapping[UOp, Cell], arguments: Mapping[UOp, UOp]
    ) -> None:
        self.m, self.scope, self.body, self.effects = m, scope, body, body.effects
        self.arguments = arguments
        self.operands: dict[UOp, Any] = {}
        self.bindings: list[MemoryBinding] = []
        refs_of_storage: dict[TensorStorage, dict[UOp, StorageRef]] = {}
        sizes = body.sizes
        for leaf, cell in cells.items():
            if cell.__class__ is not StorageRef or (leaf in arguments and is_variable(leaf)):
                if cell is not VOID:  # an effect outside of all loops has happened already
                    self.operands[leaf] = self._make_value_operand_or_reject(leaf, cell)
                continue
            storage = cell.storage
            if leaf in self.effects.stored_bases:
                references.reject_undeclared_write(scope, cell)
            if leaf in arguments:
                size = storage.data.size if cell.covers_storage else math.prod(references.shape_of(cell))
                expected = sizes[leaf]
                if (expected[0] is not None and expected[0] != size) or expected[1] != cell.node.dtype.itemsize:
                    raise self._size_mismatch_error(leaf, size, cell.node.dtype)
            if storage in refs_of_storage:
                refs_of_storage[storage][leaf] = cell
            else:
                refs_of_storage[storage] = {leaf: cell}
        for storage, refs in refs_of_storage.items():
            self._assign_memories_sharing_overlapping_refs(storage, refs)

    def run_kernel_and_write_back(self, accessing_node: UOp, is_after_all_accesses: bool = False) -> Cell:
        """Run the kernel as `accessing_node` and return its value; with `is_after_all_accesses`, no other node ran beside it."""
        m = self.m
        value = run_kernel(self.body.kernel, self.operands, check=m.check, schedule=m.schedule, lanes=m.lanes)
        check_races_and_write_back(AccessRecorder(m, self.scope, accessing_node, is_after_all_accesses), self.bindings)
        return value

    def _assign_memories_sharing_overlapping_refs(self, storage: TensorStorage, refs_by_leaf: Mapping[UOp, StorageRef]) -> None:
        """Give the references to one storage memories of the kernel.

        Each distinct set of elements gets one memory. Where sets overlap, one memory stands for the storage, with a window for
        each.
        """
        owners = get_or_make_kernel_state(self.m).arenas.get(storage)
        if len(refs_by_leaf) == 1:
            for leaf, ref in refs_by_leaf.items():
                self.operands[leaf] = self._bind_storage_to_leaves(ref, (leaf,), owners).memory
            return
        if owners is not None:
            trap_if_written_slice_overlaps(refs_by_leaf, self.arguments, self.effects.modified_bases)
        groups = _group_refs_with_same_elements(refs_by_leaf, in_arena=owners is not None)
        if owners is None and next(_generate_overlapping_pairs([refs_by_leaf[g[0]] for g in groups]), None) is not None:
            binding = self._bind_storage_to_leaves(
                StorageRef(storage, self.scope, refs_by_leaf[groups[0][0]].node), list(refs_by_leaf), None
            )
            for leaf, ref in refs_by_leaf.items():
                self.operands[leaf] = MemoryWindow(binding.memory, references.byte_positions_of(ref))
            return
        for g in groups:
            binding = self._bind_storage_to_leaves(refs_by_leaf[g[0]], g, owners)
            self.operands.update(dict.fromkeys(g, binding.memory))

    def _bind_storage_to_leaves(self, ref: StorageRef, leaves: Sequence[UOp], arena_owners: ArenaOwners | None) -> MemoryBinding:
        """Bind the elements of `ref` to these leaves."""
        arguments = [self.arguments[leaf] for leaf in leaves if leaf in self.arguments]
        binding, effects = MemoryBinding(ref, arena_owners, next((a for a in arguments if a.op is Op.SLICE), None)), self.effects
        if effects.modified_bases.isdisjoint(leaves):
            binding.may_write = False
        else:
            binding.memory.borrowed = True
            binding.may_read = not effects.read_bases.isdisjoint(leaves)
            binding.is_atomic_only = effects.atomic_only_bases.issuperset(leaves)
        self.bindings.append(binding)
        return binding

    def _size_mismatch_error(self, leaf: UOp, count: int, d: DType) -> SpecError:
        """Return the error for an argument that has not as many elements as its Param, of the same size (R86)."""
        expected = self.body.sizes[leaf][0]
        return SpecError(f"argument {leaf.arg.slot} has {count} elements of {d}, its Param {expected} of {leaf.dtype} (R86)")

    def _make_value_operand_or_reject(self, leaf: UOp, cell: Any) -> Array | FlatMemory:
        """Return the operand of a leaf that is a value: a variable, or for a Call's argument memory that can only be read."""
        value = self.m.load_if_reference(cell)
        if leaf not in self.arguments:
            return value
        slot = leaf.arg.slot
        if is_variable(leaf):
            if value.shape != ():
                raise SpecError(f"argument {slot} is variable {leaf.arg.name!r} and has shape {value.shape} (R86)")
            number = int(value)
            if leaf.arg.bounds is not None:
                check_variable_bounds(leaf.arg.name, number, leaf.arg.bounds)
            return to_index_array(number) if leaf.dtype is dt.index else np.array(number, NUMPY[leaf.dtype])
        if leaf in self.effects.modified_bases:
            raise SpecError(f"the Call writes argument {slot}, which is a value and no memory (R51, R86)")
        elements, itemsize = self.body.sizes[leaf]
        d = self.arguments[leaf].dtype
        if (elements is not None and elements != value.size) or itemsize != d.itemsize:
            raise self._size_mismatch_error(leaf, value.size, d)
        return make_flat_memory(f"argument {slot}", np.ascontiguousarray(value).reshape(-1))


def _have_same_elements_in_same_order(a: StorageRef, b: StorageRef) -> bool:
    """Return True if two references of one storage have the same elements in the same order."""
    if a.covers_storage or b.covers_storage:
        return a.covers_storage and b.covers_storage
    x, y = references.byte_positions_of(a), references.byte_positions_of(b)
    return a.node.dtype.itemsize == b.node.dtype.itemsize and x.size == y.size and bool((x.ravel() == y.ravel()).all())


def _group_refs_with_same_elements(refs_by_key: Mapping[Key, StorageRef], in_arena: bool) -> list[list[Key]]:
    """Return the keys of references to one storage, grouped by the elements and their order.

    In an arena also by dtype, since Slices of two dtypes are two values (R126).
    """
    groups: list[list[Key]] = []
    for key, ref in refs_by_key.items():
        for g in groups:
            first = refs_by_key[g[0]]
            if (not in_arena or first.node.dtype is ref.node.dtype) and _have_same_elements_in_same_order(first, ref):
                g.append(key)
                break
        else:
            groups.append([key])
    return groups


def _generate_overlapping_pairs(refs: Sequence[StorageRef]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of each two of these references of one storage that share a byte."""
    spans = [references.touched_byte_mask(r, None) for r in refs] if len(refs) > 1 else []
    for i, span in enumerate(spans):
        for j in range(i):
            if (spans[j] & span).any():
                yield j, i


def trap_if_written_slice_overlaps(
    refs_by_key: Mapping[Key, StorageRef], arguments: Mapping[Key, UOp], written: Collection[Key]
) -> None:
    """Raise Trap if two values of one arena share bytes and the Call whose arguments they are writes one of them (R126)."""
    groups = _group_refs_with_same_elements(refs_by_key, in_arena=True)
    for pair in _generate_overlapping_pairs([refs_by_key[g[0]] for g in groups]):
        if any(key in written for k in pair for key in groups[k]):
            first_slice, second_slice = (_describe_slice(arguments.get(groups[k][0])) for k in pair)
            raise Trap(f"{first_slice} and {second_slice} overlap, and the Call writes one of them (R126)")


class ArenaOwners:
    """The Slice of an arena that last wrote each byte (R126).

    `owner_of_byte` holds positions in `slices`. It is 0 where the Buffer itself was written last, which every Slice sees, or
    nothing.
    """

    def __init__(self, arena: UOp) -> None:
        self.owner_of_byte = np.zeros(arena.arg.size * arena.dtype.itemsize, np.int32)
        self.slices: list[UOp | None] = [None]

    def find_or_add_slice_number(self, u: UOp) -> int:
        """Return the number of Slice `u`, which is added if it is new."""
        if u not in self.slices:
            self.slices.append(u)
        return self.slices.index(u)


class MemoryBinding:
    """One memory of a storage that a kernel uses: all of it, or the elements of a view.

    `may_write` and `may_read` say what the kernel may do with it, `is_atomic_only` that AtomicAdds alone access it.
    `was_written` is set after the run.
    """

    __slots__ = (
        "arena_owners",
        "byte_positions",
        "covers_storage",
        "is_atomic_only",
        "may_read",
        "may_write",
        "memory",
        "ref",
        "slice_number",
        "storage",
        "was_written",
    )

    def __init__(self, ref: StorageRef, arena_owners: ArenaOwners | None, argument: UOp | None) -> None:
        self.ref, self.storage = ref, ref.storage
        self.covers_storage = ref.covers_storage
        self.byte_positions: Array | None = None
        self.arena_owners, self.slice_number = arena_owners, 0
        storage, data = ref.storage, ref.storage.data
        ready, marks = storage.ready, None
        if self.covers_storage:
            flat = data.ravel()
            if ready is not None:
                marks = np.asarray(ready.reshape(-1) == references.fully_written_mark(ready.dtype))
        else:
            self.byte_positions = references.touched_byte_positions_or_trap_outside(ref, None)
            flat = references.flat_bytes(data)[self.byte_positions].reshape(-1).view(NUMPY[ref.node.dtype])
            if ready is not None:
                marks = np.asarray((references.flat_bytes(ready)[self.byte_positions] != 0).all(axis=1))
        self.may_write, self.may_read, self.is_atomic_only, self.was_written = True, True, False, False
        self.memory: FlatMemory = make_flat_memory(storage.key, flat, marks)
        if arena_owners is not None and argument is not None and argument.op is Op.SLICE:
            self._invalidate_elements_last_written_by_others(arena_owners, argument)

    def _invalidate_elements_last_written_by_others(self, arena_owners: ArenaOwners, own_slice: UOp) -> None:
        """Mark elements as holding no value where another Slice wrote one of their bytes last (R126)."""
        self.slice_number = arena_owners.find_or_add_slice_number(own_slice)
        assert self.byte_positions is not None
        owner_of_byte = arena_owners.owner_of_byte[self.byte_positions]
        is_own = ((owner_of_byte == self.slice_number) | (owner_of_byte == 0)).all(axis=1)
        ready = self.memory.ready
        self.memory.ready = is_own if ready is None else is_own & ready

        def explain_overwritten_element(element: int) -> str:
            """Return which Slice has overwritten element `element`, or nothing."""
            other_number = next((int(n) for n in owner_of_byte[element] if n and n != self.slice_number), 0)
            if not other_number:
                return ""
            return f"{_describe_slice(arena_owners.slices[other_number])} has overwritten {_describe_slice(own_slice)} (R126)"

        self.memory.explain_missing = explain_overwritten_element

    def copy_and_mark_read_or_trap_if_unwritten(self, u: UOp, may_be_unwritten: bool) -> Array:
        """Return a copy of an argument for a CustomFunction.

        Raises Trap if an element of an argument that it only reads was never written (R61).
        """
        memory = self.memory
        if memory.ready is not None and not may_be_unwritten and not memory.ready.all():
            k = int(np.argmin(memory.ready))
            why = memory.explain_missing(k) if memory.explain_missing is not None else ""
            raise Trap(f"{describe(u)} reads element {k} of {memory.name}, which {why or 'was never written (R61)'}")
        memory.read_mask[:] = True if memory.ready is None else memory.ready
        return memory.data.copy()

    def replace_contents_by_custom_function_result(self, value: Any) -> None:
        """Replace all contents by what a CustomFunction gave."""
        memory = self.memory
        value = np.asarray(value)
        if value.size != memory.data.size or value.dtype != memory.data.dtype:
            expected = f"{memory.data.dtype} of {memory.data.size} elements of {memory.name}"
            raise SpecError(f"a CustomFunction gives {value.dtype} {value.shape} for {expected} (R63)")
        memory.data = value.reshape(-1).copy()
        memory.written_mask[:] = True
        memory.ready = None

    def check_races_and_log_accesses(self, accesses: AccessRecorder) -> None:
        """Order the touched elements with the accesses of other nodes; AtomicAdds do not race with each other (R56)."""
        memory = self.memory
        if self.may_read and not self.is_atomic_only:
            accesses.check_race_and_record_read(self.storage, self.byte_positions, memory.read_mask)
        if self.may_write:
            adds = get_or_make_kernel_state(accesses.m).atomic_add_accesses if self.is_atomic_only else {}
            unrelated = adds.get(self.storage, 0)
            bit = accesses.check_race_and_record_write_returning_bit(
                self.storage, self.byte_positions, memory.written_mask, unrelated
            )
            adds[self.storage] = unrelated | bit
            self.was_written = bit != 0

    def write_back_if_written(self) -> None:
        """Make the storage hold what the kernel wrote."""
        if not self.was_written:
            return
        memory, storage = self.memory, self.storage
        storage.version += 1
        if self.arena_owners is not None:
            owner_of_byte, written = self.arena_owners.owner_of_byte, memory.written_mask
            at = np.repeat(written, memory.data.itemsize) if self.byte_positions is None else self.byte_positions[written]
            owner_of_byte[at] = self.slice_number
        if self.byte_positions is None:
            storage.data = memory.data.reshape(storage.data.shape)
            ready = storage.ready
            if ready is not None:
                marked = ready.dtype.type(references.fully_written_mark(ready.dtype))
                _set_ready_marks(storage, None if memory.ready is None else np.where(memory.ready, marked, ready.reshape(-1)))
            return
        written_bytes = self.byte_positions[memory.written_mask]
        data = storage.data.copy(order="C")
        element_bytes = memory.data.view(np.uint8).reshape(-1, self.ref.node.dtype.itemsize)
        data.reshape(-1).view(np.uint8)[written_bytes] = element_bytes[memory.written_mask]
        storage.data = data
        if storage.ready is not None:
            ready = storage.ready.copy(order="C")
            ready.reshape(-1).view(np.uint8)[written_bytes] = 1
            _set_ready_marks(storage, ready)


def check_races_and_write_back(accesses: AccessRecorder, bindings: Collection[MemoryBinding]) -> None:
    """Log the accesses of a kernel to all its memories, and make the storages hold what it wrote."""
    for binding in bindings:
        binding.check_races_and_log_accesses(accesses)
    for binding in bindings:
        binding.write_back_if_written()


def _set_ready_marks(storage: TensorStorage, ready: Array | None) -> None:
    """Set `TensorStorage.ready`, given the marks of all bytes."""
    if ready is None or ready.view(np.uint8).all():
        storage.ready = None
    else:
        storage.ready = ready.reshape(storage.data.shape)


#: A stand-in for the reference of a `KernelAccess`, which has its own mask of bytes.
_NO_REF = StorageRef(TensorStorage("", np.zeros(0, np.uint8), None), TensorScope(), UOp(Op.GROUP))


class KernelAccess(StorageAccess):
    """An access to the elements that `marks` picks from a storage, or from the elements at `byte_positions` of it."""

    __slots__ = ("byte_positions", "marks", "storage")

    def __init__(self, bit: int, node: UOp, storage: TensorStorage, byte_positions: Array | None, marks: Array) -> None:
        self.bit = bit
        self.node = node
        self.ref = _NO_REF
        self.storage = storage
        self.byte_positions = byte_positions
        self.marks = marks

    def touched_byte_mask(self) -> Array:
        """Return a mask of the bytes of the storage that the access touches."""
        data = self.storage.data
        if self.byte_positions is None:
            return np.repeat(self.marks, data.dtype.itemsize)
        mask = np.zeros(data.nbytes, bool)
        mask[self.byte_positions[self.marks]] = True
        return mask


class AccessRecorder:
    """The log of the accesses of one node, each after the one before it; with `is_after_all_accesses`, after all others too."""

    def __init__(self, m: TensorMachine, scope: TensorScope, node: UOp, is_after_all_accesses: bool = False) -> None:
        self.m, self.scope, self.node, self.is_after_all_accesses = m, scope, node, is_after_all_accesses
        self.own_accesses = scope.own_accesses.get(node, 0)
        self.mask: int | None = None

    def check_race_and_record_read(self, storage: TensorStorage, byte_positions: Array | None, touched: Array) -> None:
        """Log a read of the touched elements, if there are any."""
        if np.count_nonzero(touched):
            before = self._compute_preceding_mask_exact_on_conflicts(storage.write_bits)
            access = KernelAccess(self._allocate_access_bit_and_add_to_node(), self.node, storage, byte_positions, touched)
            references.check_race_and_record_read(storage, access.bit, access, before)

    def check_race_and_record_write_returning_bit(
        self, storage: TensorStorage, byte_positions: Array | None, touched: Array, exempt_access_bits: int
    ) -> int:
        """Log a write of the touched elements, if there are any, and return its bit; it does not race with `exempt_access_bits`
        accesses."""
        if not np.count_nonzero(touched):
            return 0
        before = self._compute_preceding_mask_exact_on_conflicts(storage.read_bits | storage.write_bits)
        access = KernelAccess(self._allocate_access_bit_and_add_to_node(), self.node, storage, byte_positions, touched)
        references.check_race_and_record_write(storage, access, before | exempt_access_bits)
        return 1 << access.bit

    def _compute_preceding_mask_exact_on_conflicts(self, conflicting_accesses: int) -> int:
        """Return accesses before the next one of the node; the graph is searched only if `conflicting_accesses` needs it."""
        if self.is_after_all_accesses:
            return conflicting_accesses
        if conflicting_accesses & ~self.own_accesses and self.mask is None:
            self.mask = self.m.accesses_before_end_of(self.scope, self.node)
        return self.own_accesses | (self.mask or 0)

    def _allocate_access_bit_and_add_to_node(self) -> int:
        """Return the number of a new access of the node."""
        bit = self.m.next_access_bit()
        self.own_accesses |= 1 << bit
        self.scope.own_accesses[self.node] = self.own_accesses
        self.scope.masks.pop(self.node, None)
        return bit


def _describe_slice(u: UOp | None) -> str:
    """Return a Slice for a message."""
    if u is None or u.op is not Op.SLICE:
        return "an argument"
    return f"slice of {u.arg.size} {u.arg.dtype} at {u.offset.arg.value}"
