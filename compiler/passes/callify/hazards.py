"""Copies against write-after-read hazards.

Takes: a callified body. Gives: the same body with a Contiguous around every value that would otherwise be read too late. Then each
value may be computed anywhere between its own place in topological order and its last use. Spec: R27 (one node, one value), R51
(references and values), R54 (Store), R55 (races), R59 (After), R161 (references used as values).

A value without a Buffer is computed where it is used, and reads memory there. That is too late if a Store to that memory stands in
between. A Store reads all that it needs before it writes (R54). So elements of its own memory are copied first, if another
iteration than the one that reads them overwrites them. A reference is read once for all its
uses as a value (R27, R161). Where a Store stands between two of them, all of them read one copy. Orders that the graph leaves open
do not matter, because two unordered accesses of which one is a write are a Trap (R55).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from uops.compiler.ir.bodies import list_possibly_written_arguments, order_outside_kernels
from uops.compiler.ir.buffers import COPIES
from uops.compiler.ir.views import STEP
from uops.compiler.log import log_transform
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ALU, MEMORY_ROOTS, Op
from uops.spec.ir.scope import VIEWS

_REFERRING = VIEWS | MEMORY_ROOTS
#: Memory that a value reads when it is computed, each with its version at that time.
_MemoryVersions = dict[UOp, int]
#: One use of a node: (user, position among the user's sources).
_NodeAndSourcePosition = tuple[UOp, int]


def insert_hazard_copies(body: UOp) -> UOp:
    """Insert a Contiguous wherever a value would be read after its memory changes."""
    order = order_outside_kernels(body)
    scan = _HazardScan(order)
    if not scan.mutated_memory:
        return body
    scan.mark_values_and_uses_to_copy(order)
    return _insert_copies_at_marks(order, scan.copied_values, scan.copied_uses) if scan.copied_values or scan.copied_uses else body


def keeps_order_of_copies_and_stores(body: UOp, rewritten_body: UOp, replacements: Mapping[UOp, UOp]) -> bool:
    """Return True if the copies and Stores of a body with explicit hazards are in the same order in `rewritten_body`.

    `replacements` maps nodes of `body` to nodes of `rewritten_body`. Any order is right where no memory changes that is read.
    """
    order = toposort(body)
    if not _HazardScan(order).mutated_memory:
        return True
    position = {u: k for k, u in enumerate(toposort(rewritten_body))}
    effects = [u for u in order if u.op in COPIES or u.op is Op.STORE]
    positions = [position[replacements[u]] for u in effects if replacements.get(u) in position]
    return positions == sorted(positions)


def map_base_memory(nodes_in_order: Iterable[UOp]) -> dict[UOp, UOp]:
    """Map each reference among `nodes_in_order` to the Param or Buffer whose memory it views (R51, references and values)."""
    memory: dict[UOp, UOp] = {}
    for u in [u for u in nodes_in_order if u.op in _REFERRING]:
        if u.op in VIEWS:
            viewed = u.src[0]  # operand, or buffer of an After
            if viewed in memory:
                memory[u] = memory[viewed]
        elif u.op is Op.BUFFER or u.arg.name is None:
            memory[u] = u
    return memory


def _insert_copies_at_marks(order: Sequence[UOp], copied_values: set[UOp], copied_uses: set[_NodeAndSourcePosition]) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(_copy(done[s]) if (u, k) in copied_uses else done.get(s, s) for k, s in enumerate(u.src))
        new = u if src == u.src else u.replace(src=src)
        done[u] = _copy(new) if u in copied_values else new
    log_transform("hazards", order[-1], done[order[-1]], done)
    return done[order[-1]]


def _copy(u: UOp) -> UOp:
    return u if u.op in COPIES else UOp(Op.CONTIGUOUS, (u,))


class _HazardScan:
    """A walk in execution order that tracks which version of which memory each value still has to read.

    `copied_values` are values to compute at their own place. `copied_uses` are uses of references to be copied for that use only.
    The reference itself stays, since a Store may target it later. `loads` holds, per reference, the version of its memory at its
    first use as a value, and all such uses.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.memory: Mapping[UOp, UOp] = map_base_memory(order)
        read = {self.memory[s] for u in order for k, s in enumerate(u.src) if s in self.memory and _may_read(u, k)}
        self.mutated_memory = {m for u in order for m in self._written_memory(u)} & read
        self.versions: _MemoryVersions = dict.fromkeys(self.mutated_memory, 0)
        self.reads: dict[UOp, _MemoryVersions] = {}
        self.copied_values: set[UOp] = set()
        self.copied_uses: set[_NodeAndSourcePosition] = set()
        self.loads: dict[UOp, tuple[int, list[_NodeAndSourcePosition]]] = {}

    def _written_memory(self, u: UOp) -> set[UOp]:
        """Return the memory that a Store writes, or that a Call may write."""
        targets = [u.buffer] if u.op is Op.STORE else list_possibly_written_arguments(u) if u.op is Op.CALL else []
        return {self.memory[t] for t in targets if t in self.memory}

    def mark_values_and_uses_to_copy(self, order: Sequence[UOp]) -> None:
        """Fill `copied_values` and `copied_uses`."""
        for u in order:
            if u.op is Op.STORE:
                self._mark_overwritten_operands_and_start_new_version(u)
            elif u.op is Op.CALL:
                for memory in self._written_memory(u) & self.mutated_memory:
                    self.versions[memory] += 1
            elif u.dtype is not dt.void:
                reads = self._collect_source_or_index_reads(u)
                self.reads[u] = {} if u.op in COPIES else reads

    def _collect_source_or_index_reads(self, u: UOp) -> _MemoryVersions:
        """Return the memory that computing `u` reads; for a reference, the memory that its index operands read."""
        reads: _MemoryVersions = {}
        for k in range(1 if u in self.memory and u.op in VIEWS else 0, len(u.src)):
            reads.update(self._get_source_reads_or_mark_copy(u, k))
        return reads

    def _get_source_reads_or_mark_copy(self, user: UOp, source_position: int) -> _MemoryVersions:
        """Return the memory that source `source_position` of `user` reads.

        If a Store changed that memory after the source's own place, mark the source to be copied there.
        """
        s = user.src[source_position]
        if s.dtype is dt.void or s in self.copied_values:
            return {}
        reads = {m: v for m, v in self.reads.get(s, {}).items() if self.versions[m] == v}
        if len(reads) < len(self.reads.get(s, {})):
            self._mark_value_or_its_indices_copied(s)
            reads = {}
        if self.memory.get(s) in self.mutated_memory:
            self._record_reference_read_or_mark_copies(user, source_position, reads)
        return reads

    def _record_reference_read_or_mark_copies(self, user: UOp, source_position: int, reads_to_extend: _MemoryVersions) -> None:
        """Record the use of a reference as a value. Its memory is added to `reads_to_extend`, unless a Store changed it since
        another use."""
        s = user.src[source_position]
        memory = self.memory[s]
        first_version, uses = self.loads.setdefault(s, (self.versions[memory], []))
        uses.append((user, source_position))
        if self.versions[memory] == first_version:
            reads_to_extend[memory] = first_version
        else:
            self.copied_uses.update(uses)

    def _mark_value_or_its_indices_copied(self, value: UOp) -> None:
        """Have `value` computed at its own place; for a reference, its index operands."""
        if value not in self.memory:
            self.copied_values.add(value)
            return
        for node, k in index_and_slice_operands(value):
            self._mark_use_if_reference_else_value_copied(node, k)

    def _mark_use_if_reference_else_value_copied(self, user: UOp, source_position: int) -> None:
        s = user.src[source_position]
        if s in self.memory:
            self.copied_uses.add((user, source_position))
        elif s.op is not Op.CONST:
            self.copied_values.add(s)

    def _mark_overwritten_operands_and_start_new_version(self, store: UOp) -> None:
        """Mark the operands that a Store overwrites, which must be copied (R54). Then start a new version of its memory."""
        memory = self.memory[store.buffer]
        for k in range(1, len(store.src)):
            if memory in self._get_source_reads_or_mark_copy(store, k):
                self._mark_overwritten_reads_copied(store, k, memory)
        for node, k in index_and_slice_operands(store.buffer):
            if memory in self._get_source_reads_or_mark_copy(node, k):
                self._mark_use_if_reference_else_value_copied(node, k)
        if memory in self.versions:
            self.versions[memory] += 1

    def _mark_overwritten_reads_copied(self, store: UOp, source_position: int, memory: UOp) -> None:
        """Copy the elements of the Store's memory that a source of the Store reads after another iteration overwrites them.

        Elementwise arithmetic may therefore change memory in place. Where several values would have to be copied, the source itself
        is copied instead.
        """
        uses = self._find_overwritten_reads(store, source_position, memory)
        if not uses:
            return
        user, k = uses[0]
        s = user.src[k]
        if len(uses) > 1 or user is store:
            self.copied_uses.add((store, source_position))
        elif s in self.memory:
            self.copied_uses.add((user, k))
        else:
            self.copied_values.add(s)

    def _find_overwritten_reads(self, store: UOp, source_position: int, memory: UOp) -> list[_NodeAndSourcePosition]:
        """Return the uses, below a source of a Store, that read elements which another iteration overwrites."""
        target = store.buffer
        pending: list[tuple[UOp, int, bool]] = [(store, source_position, True)]
        seen: set[tuple[UOp, bool]] = set()
        uses: list[_NodeAndSourcePosition] = []
        while pending:
            user, k, is_elementwise = pending.pop()  # whether an iteration needs only its own element
            s = user.src[k]
            if (s, is_elementwise) in seen or s in self.copied_values or memory not in self._memory_read_by_or_viewed(s):
                continue
            is_elementwise = is_elementwise and s.shape == target.shape
            if s in self.memory:
                if not (is_elementwise and are_same_movement_views(s, target)) and not are_surely_disjoint_shrinks(s, target):
                    uses.append((user, k))
                continue
            seen.add((s, is_elementwise))
            if s.op in ALU and is_elementwise:
                pending += [(s, j, True) for j in range(len(s.src))]
            elif s.op in STEP and user is not store:
                pending.append((s, 0, False))
            else:
                uses.append((user, k))
        return uses

    def _memory_read_by_or_viewed(self, value: UOp) -> _MemoryVersions:
        """Return the memory that a value reads; for a reference, its own memory too."""
        reads = dict(self.reads.get(value, {}))
        if value in self.memory:
            reads[self.memory[value]] = 0
        return reads


def _collect_views_if_all_movement(reference: UOp) -> tuple[UOp, ...] | None:
    """Return the views of a reference without Afters; None if one changes the dtype or takes positions from data."""
    views: list[UOp] = []
    while reference.op in VIEWS:
        if reference.op in (Op.BITCAST, Op.SLICE, Op.INDEX, Op.REPLICATED):
            return None
        if reference.op is not Op.AFTER:
            views.append(reference)
        reference = reference.src[0]  # operand, or buffer of an After
    return tuple(views)


def are_same_movement_views(a: UOp, b: UOp) -> bool:
    """Return True if two references of one memory are the same views, so that they name the same element at every index."""
    x, y = _collect_views_if_all_movement(a), _collect_views_if_all_movement(b)
    if x is None or y is None or len(x) != len(y):
        return False
    return all(_is_same_movement(u, v) for u, v in zip(x, y))


def _is_same_movement(u: UOp, v: UOp) -> bool:
    """Return True if two movement ops differ in their operand at most."""
    return u.op is v.op and u.arg == v.arg and u.src[1:] == v.src[1:]  # offsets and extents


def are_surely_disjoint_shrinks(a: UOp, b: UOp) -> bool:
    """Return True if two references of one memory are Shrinks of one view that do not overlap on some axis."""
    x, y = _collect_views_if_all_movement(a), _collect_views_if_all_movement(b)
    if x is None or y is None:
        return False
    common = 0
    for u, v in zip(reversed(x), reversed(y)):
        if not _is_same_movement(u, v):
            break
        common += 1
    if min(len(x), len(y)) <= common:
        return False
    u, v = x[-1 - common], y[-1 - common]
    if u.op is not Op.SHRINK or v.op is not Op.SHRINK:
        return False
    axes = zip(u.offsets.src, u.shape, v.offsets.src, v.shape, strict=True)
    return any(_ends_before(i, m, j) or _ends_before(j, n, i) for i, m, j, n in axes)


def _ends_before(start: UOp, n: Dim, other: UOp) -> bool:
    """Return True if `n` elements from `start` provably end before `other`, which takes constants."""
    return start.op is Op.CONST and other.op is Op.CONST and isinstance(n, int) and int(start.arg.value) + n <= other.arg.value


def _may_read(user: UOp, position: int) -> bool:
    """Return True if this use of a reference may read its memory: if it is neither a Store's target nor the source of a view."""
    return not (position == 0 and (user.op is Op.STORE or user.op in VIEWS))


def index_and_slice_operands(reference: UOp) -> list[_NodeAndSourcePosition]:
    """Return the index operands of a reference, as (node, source position)."""
    uses: list[_NodeAndSourcePosition] = []
    while reference.op in VIEWS:
        if reference.op in (Op.INDEX, Op.SLICE):
            uses += [(reference, k) for k in range(1, len(reference.src))]
        reference = reference.src[0]  # operand, or buffer of an After
    return uses
