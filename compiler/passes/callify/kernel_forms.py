"""The body of a kernel written by hand, in the forms of a launch: flat memory, explicit Loads, one scalar per value.

Takes: the body of a Call, in any legal form. Gives: a Sink in the forms of SCHEDULED, which keeps the loops of the body.
Spec: Load, Store, Index, Wmma; Movement; R45 (Index), R51 (references and values), R142 (tensor cores in a schedule), R166 (kernels
written by hand), R180 (vectors in kernels written by hand).

A view below an access is followed to the flat memory by the index functions of `uops.compiler.ir.views`. An access that is not
provably in bounds is gated. The gates of an Index or Pad reach all accesses below it, since a Where protects none (R26, Trap).
A vector is computed element by element: where each element is used once, and by a Store to other memory than it is read from,
in a loop around that Store, else with one node per element, which all uses share. So each element is still computed once (R27),
and read before any is overwritten.

Elements, positions and memory are computed by rules that are generators. A rule yields the parts that it needs and receives them,
so no rule calls another one, however deep the body is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.equal_effects import substitute_keeping_accesses_distinct, wait_in_access
from uops.compiler.ir.lanes import is_register
from uops.compiler.ir.views import STEP, ZERO, Index, IndexArithmetic, SourceElement
from uops.compiler.passes.callify.hazards import index_and_slice_operands, map_base_memory
from uops.compiler.place import untranslatable_error
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, ReduceArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import UOp, collect_users, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import COUNTERS, EFFECT_GROUPS, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by, strip_afters

#: Elements of a vector that are computed together: by one node each, or in an UPCAST loop. A longer one becomes a LOOP.
MAX_LANES = 256
#: Elements of a fragment of a Wmma: the largest instruction known, of Intel's AMX, has 512.
MAX_FRAGMENT = 1024


class _Part(Enum):
    """The parts of a node that rules compute: an element, its position in memory, the memory, the fragment of a Wmma."""

    VALUE = "value"
    POSITION = "position"
    MEMORY = "memory"
    FRAGMENT = "fragment"


class _Request(NamedTuple):
    """A part of a node, at the index `coords`, which is in bounds where `gate` holds (None: always)."""

    part: _Part
    node: UOp
    coords: Index = ()
    gate: UOp | None = None


#: A rule under way: it yields requests, receives their answers, and returns its own.
_Steps = Generator[_Request, Any, Any]


def replace_params_and_lower_unscheduled_kernel(body: UOp, flat_params: Mapping[UOp, UOp]) -> UOp:
    """Return a body with each Param replaced by one of one dimension.

    That is all that changes in a list of instructions, and in a Sink that has the forms of SCHEDULED already.

    Raises CompileError for a view or a vector that no such form expresses.
    """
    if body.op is Op.LINEAR:
        return substitute_keeping_accesses_distinct(body, flat_params)
    if body.op in (Op.PROGRAM, Op.CUSTOM_FUNCTION) or (body.op is Op.SINK and body.arg is not None and body.arg.scheduled):
        return substitute(body, dict(flat_params))
    writer = _FormWriter(_simplify_loop_bounds(body), flat_params)
    root: UOp = writer.compute(_Request(_Part.VALUE, writer.body))
    name = root.arg.name if root.op is Op.SINK and root.arg is not None else "kernel"
    effects = root.src if root.op in EFFECT_GROUPS else (root,)
    return UOp(Op.SINK, effects, SinkArg(name, scheduled=True))


def _simplify_loop_bounds(body: UOp) -> UOp:
    """Return a body with the bounds of its loops and Specials in the form that they get in positions: each stays one node."""
    rewrite = Rewriter(INDEXING)
    simpler = {r: rewrite(r) for op in (Op.RANGE, Op.SPECIAL) for r in nodes_with_op(body, op)}
    return substitute(body, {r: new for r, new in simpler.items() if new.op is r.op})


class _FormWriter:
    """A body under conversion. `memory` maps each reference to the Param or Buffer below it."""

    def __init__(self, body: UOp, flat_params: Mapping[UOp, UOp]) -> None:
        order = toposort(body)
        self.body, self.flat_params = body, flat_params
        self.memory = {u: m for u, m in map_base_memory(order).items() if m.dtype is not dt.index}
        self.indexing = IndexArithmetic(Rewriter(INDEXING))
        self.users = collect_users(order)
        self.next_axis = 1 + max((int(u.arg.axis_id) for u in order if u.op is Op.RANGE), default=-1)
        self.next_unique = 1 + max((int(u.arg.unique) for u in order if u.op is Op.BUFFER), default=-1)
        self.answers: dict[_Request, Any] = {}
        self.loops = open_ranges(order)
        self.ranges = [u for u in order if u.op is Op.RANGE]
        self.lanes = [u for u in order if u.op is Op.SPECIAL]
        #: New node -> the loops and lanes that it depends on.
        self.loops_and_lanes: dict[UOp, frozenset[UOp]] = {}

    def _make_memory_depend_on_lost_loops(
        self, memory: UOp, new_operands: Iterable[UOp | None], old_access: UOp
    ) -> Generator[_Request, Any, UOp]:
        """Return the memory of a new access, ordered in the loops of the old one that its operands no longer depend on.

        So accesses of different loops stay different nodes, though they access one element. An AtomicAdd depends on all lanes
        (R125, R127).
        """
        lanes = self.lanes if old_access.op is Op.ATOMICADD else ()
        loops: list[UOp] = []
        for r in (*[r for r in self.ranges if r in self.loops[old_access]], *lanes):
            loops.append((yield _Request(_Part.VALUE, r)))
        if not loops:
            return memory
        depended = frozenset[UOp]().union(*[self._find_loops_and_lanes(u) for u in (memory, *new_operands) if u is not None])
        lost = [r for r in loops if r not in depended]
        return B.after(memory, *lost) if lost else memory

    def _find_loops_and_lanes(self, u: UOp) -> frozenset[UOp]:
        """Return the loops and lanes that a new node depends on. Memoized per node."""
        known = self.loops_and_lanes
        for v in toposort(u, gate=lambda v: v not in known):
            if v not in known:
                own = (v,) if v.op in COUNTERS else ()
                known[v] = frozenset(own).union(*[known[s] for s in v.src]).difference(ranges_closed_by(v))
        return known[u]

    def compute(self, request: _Request) -> Any:
        """Return the answer to a request. Without recursion."""
        pending = [(request, self._start_rule(request))]
        answer: Any = None
        while pending:
            current, steps = pending[-1]
            try:
                needed = _drop_gate_of_index_in_bounds(steps.send(answer))
            except StopIteration as finished:
                answer = self.answers[current] = finished.value
                pending.pop()
                continue
            answer = self.answers.get(needed)
            if answer is None:
                pending.append((needed, self._start_rule(needed)))
        return answer

    def _start_rule(self, request: _Request) -> _Steps:
        part, u, coords, gate = request
        if part is _Part.MEMORY:
            return self._find_flat_memory_or_wmma_registers(u)
        if part is _Part.POSITION:
            return _POSITION_RULES.get(u.op, _FormWriter._flatten_position_in_base)(self, u, coords, gate)
        if part is _Part.FRAGMENT:
            return self._build_wmma_register_load_or_stack(u)
        if u in self.memory:
            return self._load(u, coords, gate)
        return _VALUE_RULES.get(u.op, _FormWriter._rebuild)(self, u, coords, gate)

    def refuse(self, u: UOp, detail: str) -> Exception:
        """Return the error that a node of the body has no form in a launch."""
        return untranslatable_error("R166 (kernels written by hand)", u, detail, self.body)

    def new_range(self, bound: UOp, axis_type: AxisType) -> UOp:
        """Return a Range that the body does not have yet, with the bound in the form that it gets in positions."""
        self.next_axis += 1
        return B.range_(self.indexing.simplify(bound), self.next_axis - 1, axis_type)

    # ------------------------------------------------------------------------------------------------------ references

    def _find_flat_memory_or_wmma_registers(self, u: UOp) -> _Steps:
        """Return the flat memory of a reference, ordered as its Afters say; for a Wmma, registers that hold its product."""
        if u.op is Op.WMMA:
            product = yield _Request(_Part.FRAGMENT, u)
            n = u.shape[0]
            registers = UOp(Op.BUFFER, (), BufferArg(n, u.dtype, "CPU", AddrSpace.REG, self.next_unique))
            self.next_unique += 1
            return B.after(registers, B.store(UOp(Op.INDEX, (registers, _count_up_to(n))), product))
        if u is self.memory[u]:
            return self._flatten_memory(u)
        memory = yield _Request(_Part.MEMORY, u.src[0])  # of the viewed operand, or of the buffer of an After
        if u.op is not Op.AFTER:
            return memory
        dependencies = yield from self._rebuild_dependencies(u.dependencies)
        return UOp(Op.AFTER, (memory, *dependencies), u.arg) if dependencies else memory

    def _flatten_memory(self, memory: UOp) -> UOp:
        """Return the flat memory of a Param or Buffer, which all Params of one argument share."""
        return self.flat_params.get(memory, memory)

    def _rebuild_dependencies(self, dependencies: Iterable[UOp]) -> Generator[_Request, Any, list[UOp]]:
        rebuilt: list[UOp] = []
        for d in dependencies:
            if d in self.memory:
                rebuilt.append((yield _Request(_Part.MEMORY, d)))
            else:
                for coords in self._constant_coords(d):
                    rebuilt.append((yield _Request(_Part.VALUE, d, coords)))
        return [d for d in dict.fromkeys(rebuilt) if d.op is not Op.GROUP or d.effects]

    def _flatten_position_in_base(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return the position of an element of a Param or Buffer."""
        yield from ()
        position = coords[0] if len(coords) == 1 else self.indexing.flatten(coords, u.shape)
        return SourceElement((position,))

    def _locate_through_movement(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return the position of an element of a movement op, with the gate under which it is in bounds."""
        inner, _ = STEP[u.op](self.indexing, u, coords)  # no Pad is a reference
        below = yield _Request(_Part.POSITION, u.src[0], inner, gate)  # of the operand, or of the buffer of an After
        return below

    def _locate_through_index(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        inner, inside = yield from self._map_to_operand_index_and_gate(u, coords, gate)
        below = yield _Request(_Part.POSITION, u.operand, inner, self.indexing.conjoin_gates(gate, inside))
        return SourceElement(below.coords, self.indexing.conjoin_gates(inside, below.gate))

    def _map_to_operand_index_and_gate(self, u: UOp, coords: Index, gate: UOp | None) -> Generator[_Request, Any, SourceElement]:
        """Return the index in an Index's operand of an element, and the gate under which there is one if `gate` holds."""
        inner: list[UOp] = []
        inside: UOp | None = None
        for position, n in zip(u.positions, u.operand.shape):
            rank = len(position.shape)
            scalar = yield _Request(_Part.VALUE, position, coords[:rank], gate)
            coords = coords[rank:]
            on_axis, inside_axis = (
                (scalar, None) if _is_provably_inside(scalar, n) else self.indexing.index_on_axis_and_in_range_gate(scalar, n)
            )
            inner.append(on_axis)
            inside = self.indexing.conjoin_gates(inside, inside_axis)
        return SourceElement((*inner, *coords), inside)

    def _locate_in_slice(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        self._require_same_item_size(u)
        offset = yield _Request(_Part.VALUE, u.offset)
        inner, inside = self.indexing.index_on_axis_and_in_range_gate(
            B.add(coords[0], B.cast(offset, dt.index)), u.operand.shape[0]
        )
        below = yield _Request(_Part.POSITION, u.operand, (inner,), self.indexing.conjoin_gates(gate, inside))
        return SourceElement(below.coords, self.indexing.conjoin_gates(inside, below.gate))

    def _locate_in_bitcast(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        self._require_same_item_size(u)
        below = yield _Request(_Part.POSITION, u.operand, coords, gate)
        return below

    def _require_same_item_size(self, u: UOp) -> None:
        if u.dtype.itemsize != u.operand.dtype.itemsize:
            detail = f"a view of {u.operand.dtype} as {u.dtype}, expected a dtype of the same size: pass the memory as {u.dtype}"
            raise self.refuse(u, detail)

    # ------------------------------------------------------------------------------------------------------- accesses

    def _load(
        self, access: UOp, coords: Index, gate: UOp | None, alternative: UOp | None = None, condition: UOp | None = None
    ) -> _Steps:
        """Return the Load of one element for a Load, or for a reference that is used as a value."""
        reference, arg = (access.buffer, access.arg) if access.op is Op.LOAD else (access, LoadArg())
        memory = yield _Request(_Part.MEMORY, reference)
        (position,), inside = yield _Request(_Part.POSITION, reference, coords, gate)
        for other_gate in (condition, inside):
            gate = self.indexing.conjoin_gates(gate, other_gate)
        memory = yield from self._make_memory_depend_on_lost_loops(memory, (position, alternative, gate), access)
        address = UOp(Op.INDEX, (memory, position))
        if gate is None:
            return _bitcast(UOp(Op.LOAD, (address,), arg), reference.dtype)
        other = B.const(0, memory.dtype) if alternative is None else _bitcast(alternative, memory.dtype)
        return _bitcast(UOp(Op.LOAD, (address, other, gate), arg), reference.dtype)

    def _load_explicitly(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        if u.buffer not in self.memory:  # a Load of a value gives that value
            value = yield _Request(_Part.VALUE, u.buffer, coords, gate)
            return value
        operands: list[UOp] = []
        for s in (u.alternative, u.gate):
            if s is not None:
                operands.append((yield _Request(_Part.VALUE, s, self._align(coords, s), gate)))
        load = yield from self._load(u, coords, gate, *operands)
        return load

    def _scalarize_store_or_atomic_add(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return a Store or AtomicAdd on scalars; of a vector, a loop or a Group."""
        target = u.src[0]  # the buffer of a Store, the index of an AtomicAdd
        if target not in self.memory:
            detail = f"it writes a value, {target.op.name.lower()}, expected a view of memory (R51)"
            raise self.refuse(u, detail)
        if self._keeps_whole_fragment(u, target):
            return (yield from self._store_fragment(u, target))
        if target.shape == ():
            return (yield from self._write_element(u, target, ()))
        read = [*u.src[1:], *[node.src[k] for node, k in index_and_slice_operands(target)]]  # value, gate and positions
        reads_target = self._flatten_memory(self.memory[target]) in [
            self._flatten_memory(self.memory[r]) for r in toposort(*read) if r in self.memory
        ]
        if u.op is Op.STORE and 0 not in target.shape and not reads_target and self._is_only_user_of_vector_elements(u):
            coords = self._loops_over_elements(target)
            store = yield from self._write_element(u, target, coords)
            return B.end(store, *[r for r in coords if r is not ZERO])
        elements: list[UOp] = []
        for c in self._constant_coords(target):
            elements.append((yield from self._write_element(u, target, c)))
        if reads_target:  # all is read before any of it is written
            operands = (x for e in elements for x in (*e.src[0].positions, *e.src[1:]))  # of its address; value and gate
            values = dict.fromkeys(x for x in operands if x.op is not Op.CONST)
            elements = [wait_in_access(e, values) for e in elements]
        if u.op is Op.ATOMICADD and not _have_distinct_constant_positions(elements):
            for k in range(1, len(elements)):
                elements[k] = wait_in_access(elements[k], (elements[k - 1],))
        return B.group(*elements)

    def _write_element(self, u: UOp, target: UOp, coords: Index) -> Generator[_Request, Any, UOp]:
        memory = yield _Request(_Part.MEMORY, target)
        (position,), gate = yield _Request(_Part.POSITION, target, coords)
        value = yield _Request(_Part.VALUE, u.value, self._align(coords, u.value))
        value = _bitcast(value, memory.dtype)
        if u.op is Op.ATOMICADD:  # it has no gate: out of bounds, where anything may be written, the first element changes
            position = position if gate is None else B.where(gate, position, ZERO)
            memory = yield from self._make_memory_depend_on_lost_loops(memory, (position, value), u)
            return u.replace(src=(UOp(Op.INDEX, (memory, position)), value))
        if u.gate is not None:
            gate = self.indexing.conjoin_gates((yield _Request(_Part.VALUE, u.gate, self._align(coords, u.gate))), gate)
        memory = yield from self._make_memory_depend_on_lost_loops(memory, (position, value, gate), u)
        return u.replace(src=(UOp(Op.INDEX, (memory, position)), value, *(() if gate is None else (gate,))))

    # ------------------------------------------------------------------------------------------------------- fragments

    def _keeps_whole_fragment(self, u: UOp, target: UOp) -> bool:
        """Return True for the Store of a Wmma's product to registers (R142, tensor cores in a schedule)."""
        memory = self.memory[target]
        return u.op is Op.STORE and u.value.op is Op.WMMA and u.gate is None and is_register(memory)

    def _store_fragment(self, u: UOp, target: UOp) -> _Steps:
        address = yield from self._build_vector_index_of_fragment(target)
        product = yield _Request(_Part.FRAGMENT, u.value)
        return u.replace(src=(address, product))

    def _build_vector_index_of_fragment(self, reference: UOp) -> Generator[_Request, Any, UOp]:
        memory = yield _Request(_Part.MEMORY, reference)
        positions: list[UOp] = []
        for coords in self._constant_coords(reference):
            (position,), _ = yield _Request(_Part.POSITION, reference, coords)
            positions.append(position)
        return UOp(Op.INDEX, (memory, UOp(Op.STACK, tuple(positions))))

    def _build_wmma_register_load_or_stack(self, u: UOp) -> _Steps:
        """Return a vector as a source of a Wmma: a Wmma, a Load of registers, or a Stack."""
        if u.op is Op.WMMA:
            fragments: list[UOp] = []
            for s in (u.lhs, u.rhs, u.accumulator):
                fragments.append((yield _Request(_Part.FRAGMENT, s)))
            ranges = yield from self._rebuild_all(u.src[3:])  # the Ranges that it closes
            return u.replace(src=(*fragments, *ranges))
        reference = u.buffer if u.op is Op.LOAD and u.gate is None else u
        if reference in self.memory and is_register(self.memory[reference]):
            address = yield from self._build_vector_index_of_fragment(reference)
            return UOp(Op.LOAD, (address,), u.arg if u.op is Op.LOAD else LoadArg())
        elements: list[UOp] = []
        for coords in self._constant_coords(u, MAX_FRAGMENT):
            elements.append((yield _Request(_Part.VALUE, u, coords)))
        return UOp(Op.STACK, tuple(elements))

    def _load_from_product(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return an element of a Wmma's product, which is kept in registers."""
        registers = yield _Request(_Part.MEMORY, u)
        address = UOp(Op.INDEX, (registers, *coords))
        return B.load(address) if gate is None else B.load(address, B.const(0, u.dtype), gate)

    # ---------------------------------------------------------------------------------------------------------- values

    def _rebuild(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return an op on the elements of its sources at the same index, which a source of fewer axes is broadcast to (R41)."""
        src: list[UOp] = []
        for s in u.src:
            if s in self.memory and u.op in OPAQUE_INSTRUCTIONS:
                src.append((yield from self._memory_or_address_for_native_text(u, s)))
            elif s.dtype is dt.void:
                src.append((yield _Request(_Part.VALUE, s)))
            elif len(s.shape) > len(coords):
                raise self.refuse(u, f"it takes a vector, {s.op.name.lower()} of {len(s.shape)} axes, expected a scalar")
            else:
                src.append((yield _Request(_Part.VALUE, s, self._align(coords, s), gate)))
        return u if tuple(src) == u.src else u.replace(src=tuple(src))

    def _memory_or_address_for_native_text(self, u: UOp, reference: UOp) -> Generator[_Request, Any, UOp]:
        """Return what native text gets for a reference: the whole memory, or the address of one element (R168)."""
        memory: UOp = yield _Request(_Part.MEMORY, reference)
        if strip_afters(reference) is self.memory[reference]:
            return memory
        if reference.shape != ():
            raise self.refuse(u, f"native text takes a view of {len(reference.shape)} axes, expected a memory or one element of it")
        (position,), gate = yield _Request(_Part.POSITION, reference)
        if gate is not None:
            raise self.refuse(u, "native text takes an element that may be out of bounds, expected one that is inside")
        return UOp(Op.INDEX, (memory, position))

    def _rebuild_all(self, nodes: Iterable[UOp]) -> Generator[_Request, Any, list[UOp]]:
        rebuilt: list[UOp] = []
        for s in nodes:
            rebuilt.append((yield _Request(_Part.VALUE, s)))
        return rebuilt

    def _keep(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        yield from ()
        return u

    def _rebuild_effects_of_sink_group_or_barrier(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return a Sink, Group or Barrier of effects; of a value, the effects that it waits for."""
        effects: list[UOp] = []
        for s in u.src:
            for e in (s,) if s.dtype is dt.void else _effects_below(s):
                effects.append((yield _Request(_Part.VALUE, e)))
        effects = list(dict.fromkeys(effects))
        return u if tuple(effects) == u.src else u.replace(src=tuple(effects))

    def _order_value(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        value = yield _Request(_Part.VALUE, u.buffer, coords, gate)
        dependencies = yield from self._rebuild_dependencies(u.dependencies)
        return u.replace(src=(value, *dependencies))

    def _move(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        inner, inside = STEP[u.op](self.indexing, u, coords)
        if inside is B.const(False, dt.bool_):  # the operand may have no element to choose
            return B.const(0, u.dtype)
        value = yield _Request(_Part.VALUE, u.src[0], inner, self.indexing.conjoin_gates(gate, inside))  # operand
        return value if inside is None else B.where(inside, value, B.const(0, u.dtype))

    def _bitcast_value(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        self._require_same_item_size(u)
        value = yield _Request(_Part.VALUE, u.operand, coords, gate)
        return u if value is u.operand else u.replace(src=(value,))

    def _index_value(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        inner, inside = yield from self._map_to_operand_index_and_gate(u, coords, gate)
        value = yield _Request(_Part.VALUE, u.operand, inner, self.indexing.conjoin_gates(gate, inside))
        return value

    def _choose_from_stack(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return the element of a Stack at a position, which chooses among all of them if it is no constant."""
        position, *inner = coords
        if position.op is Op.CONST:
            k = int(position.arg.value)
            if not 0 <= k < len(u.elements):
                raise self.refuse(u, f"its element {k} is used, but it has {len(u.elements)} (R45)")
            return (yield _Request(_Part.VALUE, u.elements[k], tuple(inner), gate))
        chosen: UOp | None = None
        for k, e in reversed(list(enumerate(u.elements))):
            value = yield _Request(_Part.VALUE, e, tuple(inner), gate)
            chosen = value if chosen is None else B.where(B.eq(position, index_constant(k)), value, chosen)
        return chosen

    def _reduce_one_element_in_loops(self, u: UOp, coords: Index, gate: UOp | None) -> _Steps:
        """Return the Reduce of one element: over loops of its own if it reduces axes, or if it has several elements (R88)."""
        axes = {a: self.new_range(dim_node(u.operand.shape[a]), AxisType.REDUCE) for a in u.arg.axes}
        value = yield _Request(_Part.VALUE, u.operand, tuple([axes.get(a, i) for a, i in enumerate(coords)]), gate)
        ranges = yield from self._rebuild_all(u.ranges)
        if u.shape != () and ranges:
            if _writes_in_loops(value, ranges):
                raise self.refuse(u, "a Reduce of a vector has effects in its loops, expected a Reduce per element")
            fresh: dict[UOp, UOp] = {}
            for r in [v for v in toposort(*ranges) if v in ranges]:  # a loop may bound the ones inside of it
                fresh[r] = self.new_range(substitute(r.bound, fresh), r.arg.type)
            value, ranges = substitute(value, fresh), [fresh[r] for r in ranges]
        loops = [*axes.values(), *ranges]
        if not loops:
            return value
        value = B.cast(value, u.dtype.storage)  # an accumulator has memory, an index has none (R29)
        return B.cast(UOp(Op.REDUCE, (value, *loops), ReduceArg(u.arg.op)), u.dtype)

    # --------------------------------------------------------------------------------------------------------- vectors

    def _align(self, coords: Index, s: UOp) -> Index:
        return self.indexing.align_broadcast_index(coords, s.shape) if coords else ()

    def _constant_coords(self, u: UOp, most: int = MAX_LANES) -> Iterator[Index]:
        """Yield the index of each element of a vector, or () for a scalar or an effect; it has at most `most` elements."""
        shape = () if u.dtype is dt.void else u.shape
        if any(isinstance(n, UOp) for n in shape) or math.prod(map(int, shape)) > most:
            detail = f"a vector of shape {tuple(map(str, shape))} in a kernel, expected at most {most} elements: use a Range"
            raise self.refuse(u, detail)
        for coords in itertools.product(*(range(int(n)) for n in shape)):
            yield tuple(map(index_constant, coords))

    def _loops_over_elements(self, target: UOp) -> Index:
        """Return the loops in which a Store writes a vector, in any order: UPCAST, or LOOP for a long one."""
        is_long = any(isinstance(n, UOp) for n in target.shape) or math.prod(map(int, target.shape)) > MAX_LANES
        axis_type = AxisType.LOOP if is_long else AxisType.UPCAST
        return tuple([ZERO if n == 1 else self.new_range(dim_node(n), axis_type) for n in target.shape])

    def _is_only_user_of_vector_elements(self, store: UOp) -> bool:
        """Return True if a Store alone uses the elements of the vectors below it, each at one index."""
        pending, seen = list(store.src), {store}
        while pending:
            u = pending.pop()
            if u in seen or u.dtype is dt.void or u.op in MEMORY_ROOTS:
                continue
            seen.add(u)
            if u.shape == () and u not in self.memory:
                continue
            if u.op in (Op.STACK, Op.WMMA) or (u not in self.memory and len(set(self.users[u])) > 1):
                return False
            pending += _list_sources_but_extents_and_waits(u)
        return True


def _drop_gate_of_index_in_bounds(request: _Request) -> _Request:
    """Return a request without its gate if its index is in bounds anyway, so that all users of an element share one access."""
    if request.gate is None or not all(map(_is_provably_inside, request.coords, request.node.shape)):
        return request
    return request._replace(gate=None)


def _list_sources_but_extents_and_waits(u: UOp) -> Sequence[UOp]:
    """Return the sources of a vector that its elements are computed from: not its extents, nor what it waits for."""
    if u.op is Op.INDEX or (u.op not in STEP and u.op is not Op.SLICE):
        return u.src
    return u.src[:1]  # the operand, or the buffer of an After


def _writes_in_loops(value: UOp, ranges: Iterable[UOp]) -> bool:
    """Return True if a value waits for a Store or AtomicAdd that runs in one of the loops."""
    inside = set(ranges)
    for u in toposort(value):
        if not inside.isdisjoint(u.src):
            inside.add(u)
    return any(u.op in WRITES for u in inside)


def _have_distinct_constant_positions(writes: Sequence[UOp]) -> bool:
    """Return True if the positions of Stores or AtomicAdds show that each writes another element, whatever rewrites follow."""
    positions = [write.src[0].positions for write in writes]  # of the buffer of a Store, or of the index of an AtomicAdd
    return all(i.op is Op.CONST for p in positions for i in p) and len(set(positions)) == len(positions)


def _effects_below(value: UOp) -> list[UOp]:
    """Return the effects that a value waits for, directly or through other values."""
    return [u for u in toposort(value, gate=lambda u: u.dtype is not dt.void) if u.dtype is dt.void]


def _is_provably_inside(position: UOp, n: int | UOp) -> bool:
    """Return True if the bounds of an index show that it is one of an axis of `n` elements."""
    if position.dtype is not dt.index or isinstance(n, UOp):
        return False
    bounds = position.min_max
    return bounds is not None and bool(bounds[0] >= 0 and bounds[1] < n)


def _count_up_to(n: int) -> UOp:
    return UOp(Op.STACK, tuple(map(index_constant, range(n))))


def _bitcast(u: UOp, d: dt.DType) -> UOp:
    return u if u.dtype is d else B.bitcast(u, d)


#: Op of a reference -> the rule for the position of an element in its memory; Params and Buffers have none.
_POSITION_RULES: dict[Op, Callable[[_FormWriter, UOp, Index, UOp | None], _Steps]] = {
    **dict.fromkeys(STEP, _FormWriter._locate_through_movement),
    Op.INDEX: _FormWriter._locate_through_index,
    Op.SLICE: _FormWriter._locate_in_slice,
    Op.BITCAST: _FormWriter._locate_in_bitcast,
}
#: Op of a value or effect -> the rule for an element of it; all others are rebuilt on elements of their sources.
_VALUE_RULES: dict[Op, Callable[[_FormWriter, UOp, Index, UOp | None], _Steps]] = {
    **dict.fromkeys(STEP, _FormWriter._move),
    **dict.fromkeys((*EFFECT_GROUPS, Op.BARRIER), _FormWriter._rebuild_effects_of_sink_group_or_barrier),
    **dict.fromkeys((Op.CONST, *MEMORY_ROOTS), _FormWriter._keep),
    **dict.fromkeys(WRITES, _FormWriter._scalarize_store_or_atomic_add),
    Op.LOAD: _FormWriter._load_explicitly,
    Op.AFTER: _FormWriter._order_value,
    Op.INDEX: _FormWriter._index_value,
    Op.BITCAST: _FormWriter._bitcast_value,
    Op.STACK: _FormWriter._choose_from_stack,
    Op.REDUCE: _FormWriter._reduce_one_element_in_loops,
    Op.WMMA: _FormWriter._load_from_product,
}
