"""A reader of the accesses of a kernel: the elements of each Load and Store, their loops, their gates, and the Ifs around them.

Takes: a body, as a graph of KERNEL or SCHEDULED or as a LINEAR. Gives: a `KernelAccesses`. The lanes of a vector are one unknown
if its elements are evenly spaced; otherwise each lane is an AccessSite of its own. An integer that a machine dtype may not hold
becomes a `wrap` of it (R05: integer overflow wraps), so that terms mean what the machine computes. Raises SpecError for an
access of an unsupported form.
Spec: Memory; R05 (integer overflow), R08 (index), R45 (Index), R52 (Load), R57 (Range), R60 (Barrier), R114 (If), R125 (Special).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.lanes import sort_specials_by_name
from uops.compiler.ir.loops import find_ifs_around, sort_by_nesting
from uops.compiler.validate import terms as T
from uops.compiler.validate.postorder import compute_sources_first
from uops.compiler.validate.sites import (
    LANES,
    AccessSite,
    BarrierSite,
    KernelAccesses,
    PositionSite,
    address_of,
    base_memory,
    lane_unknown,
    loop_counter,
    loop_type,
    named_variable,
)
from uops.compiler.validate.terms import Condition, LinearSum, Operation, Unknown
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir import scope
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import CONVERSIONS, COUNTERS, MEMORY_ROOTS, WHOLE_MEMORY, Op
from uops.spec.ir.scope import is_variable, numbers_workgroups, open_ranges, strip_afters

#: The value of a node: one formula for all lanes, one per lane, or None if it is not an integer or bool, or has several axes.
SymbolicValue = LinearSum | Condition | list["LinearSum | Condition"] | None


def read_accesses(root: UOp) -> KernelAccesses:
    """Read the accesses of a body. Raises SpecError for an unsupported form."""
    return _AccessReader(root).read_accesses_and_barriers()


class _AccessReader:
    """The state of one reading: values of nodes, names of unknowns, and the memory that the body writes."""

    def __init__(self, root: UOp) -> None:
        while root.op is Op.PROGRAM:
            assert root.linear is not None
            root = root.linear
        self.root = root
        self.specials = _list_special_loops(root)
        self.values: dict[UOp, SymbolicValue] = {}
        self.names: dict[object, str] = {}
        self.written_memories: set[UOp] = set()

    def read_accesses_and_barriers(self) -> KernelAccesses:
        """Read all accesses and barriers in order."""
        placed = place_nodes_in_blocks(self.root)
        self.written_memories = {base_memory(address_of(p.node)) for p in placed if p.node.op in _KIND and p.node.op is not Op.LOAD}
        sites: list[AccessSite] = []
        barriers, positions = [], list[PositionSite]()
        for at, p in enumerate(placed):
            if p.node.op in _KIND:
                sites += self._read_one_site_or_one_per_listed_lane(p, at)
            elif p.node.op is Op.INDEX and scope.base_memory(p.node.operand).op not in MEMORY_ROOTS:
                positions += self._read_positions_unless_constants_in_range(p)
            elif p.node.op is Op.BARRIER:
                barriers.append(BarrierSite(at, p.loops, p.ifs, all(map(self._is_uniform, p.ifs))))
        return KernelAccesses(self.root, tuple(sites), tuple(barriers), tuple(positions))

    def _read_if_condition(self, if_node: UOp) -> Condition:
        """Read the condition of an If."""
        value = self.read_symbolic_value(if_node.condition)
        assert isinstance(value, LinearSum | Condition)
        return value if isinstance(value, Condition) else T.negate(T.is_zero(value))

    def _is_uniform(self, opening: UOp) -> bool:
        """Return True if the condition of an If is seen to be equal in all lanes of a workgroup."""
        loops = (r for r in toposort(opening.condition) if r.op in COUNTERS)
        lanes = {loop_counter(r) for r in loops if loop_type(r) in LANES}
        return not any(v.loaded or v in lanes for v in T.collect_unknowns(self._read_if_condition(opening)))

    def _read_gate(self, gate: UOp | None, ifs: Sequence[UOp]) -> SymbolicValue:
        """Read the condition of an access: those of the Ifs around it, the outermost first, and its gate."""
        own = T.TRUE if gate is None else self.read_symbolic_value(gate)
        around = T.TRUE
        for f in ifs:
            condition = self._read_if_condition(f)
            if not isinstance(own, Condition) or condition not in T.conjuncts(own):
                around = T.conjoin(around, condition)
        if isinstance(own, list):
            return [T.conjoin(around, c) for c in own if isinstance(c, Condition)]
        return T.conjoin(around, own) if isinstance(own, Condition) else own

    def _read_one_site_or_one_per_listed_lane(self, placed: PlacedNode, instruction_position: int) -> list[AccessSite]:
        """Read the sites of one Load, Store or AtomicAdd in its loops and Ifs."""
        access, loops = placed.node, (*self.specials, *placed.loops)
        address, gate = address_of(access), None if access.op is Op.ATOMICADD else access.gate
        if len(address.shape or ()) > 1:
            raise SpecError(f"an access needs at most one axis, got {len(address.shape or ())}")
        formulas: list[SymbolicValue] = [self._read_single_index_or_whole_memory_lanes(address), self._read_gate(gate, placed.ifs)]
        loop_condition = self._read_loop_condition(loops)
        n = (address.shape or (1,))[0] if address.shape else 1
        memory = base_memory(address)
        lane = lane_unknown(int(n)) if address.shape else None
        size, sites = self.memory_element_count(memory), []
        for index, condition, site_lane in _split_by_lane_if_listed(formulas, lane):
            assert isinstance(index, LinearSum) and isinstance(condition, Condition)
            index = T.resolve_wheres_whose_condition_is_listed(index, T.conjuncts(condition))
            sites.append(
                AccessSite(
                    _KIND[access.op],
                    access,
                    memory,
                    index,
                    condition,
                    loops,
                    site_lane,
                    loop_condition,
                    instruction_position,
                    size,
                    ifs=placed.ifs,
                )
            )
        return sites

    def _read_loop_condition(self, loops: Sequence[UOp]) -> Condition:
        """Read the condition that the counters are within the bounds of their loops, as far as no Unknown says it."""
        loop_condition = T.TRUE
        for r in loops:
            if r.bound.op is Op.CONST:
                loop_condition = loop_condition if r.bound.arg.value > 0 else T.FALSE
            else:
                last = T.add(self._require_scalar_integer(r.bound), T.ONE, -1)
                loop_condition = T.conjoin(loop_condition, T.is_nonnegative(T.add(last, T.as_sum(loop_counter(r)), -1)))
        return loop_condition

    def _read_positions_unless_constants_in_range(self, placed: PlacedNode) -> Iterator[PositionSite]:
        """Read the positions of an Index of a value, each per lane. Raises SpecError for an axis of symbolic extent."""
        for position, extent in zip(placed.node.positions, placed.node.operand.shape):
            if not isinstance(extent, int):
                raise SpecError(f"an Index of a value needs an axis of a known extent, got {extent}")
            if position.op is Op.CONST and 0 <= position.arg.value < extent:
                continue
            value = self.read_symbolic_value(position)
            by_lane = value if isinstance(value, list) else [value]
            within, gate = self._read_loop_condition((*self.specials, *placed.loops)), self._read_gate(None, placed.ifs)
            for x in by_lane:
                assert isinstance(x, LinearSum) and isinstance(gate, Condition)
                yield PositionSite(x, extent, T.conjoin(within, gate))

    def memory_element_count(self, memory: UOp) -> LinearSum:
        """Return the number of elements of a memory, which may depend on variables (R48: symbolic sizes)."""
        size = LinearSum(int(memory.arg.size)) if memory.op is Op.BUFFER else T.ONE
        for d in memory.shape or () if memory.op is Op.PARAM else ():
            size = T.mul(size, LinearSum(d) if isinstance(d, int) else self._require_scalar_integer(d))
        return size

    def _read_single_index_or_whole_memory_lanes(self, address: UOp) -> SymbolicValue:
        """Read the element of an address; of a whole memory, each of its lanes."""
        address = strip_afters(address)
        if address.op is Op.INDEX and len(address.positions) == 1 and address.operand.op in WHOLE_MEMORY:
            return self.read_symbolic_value(address.positions[0])
        if address.op in MEMORY_ROOTS:
            shape = address.shape or ()
            if len(shape) <= 1 and all(isinstance(n, int) for n in shape):
                return T.as_sum(lane_unknown(int(shape[0]))) if shape else T.ZERO
        sources = ", ".join(s.op.name.lower() for s in address.src) or "nothing"
        raise SpecError(f"an access needs one position in a Param or Buffer, got {address.op.name.lower()} of {sources}")

    # Values

    def read_symbolic_value(self, u: UOp) -> SymbolicValue:
        """Read an integer or a bool."""
        return compute_sources_first(u, self.values, _sources_to_read_first, self._compute_symbolic_value)

    def _require_scalar_integer(self, u: UOp) -> LinearSum:
        """Read a value that must be an integer without lanes of its own."""
        value = self.read_symbolic_value(u)
        assert isinstance(value, LinearSum)
        return value

    def _compute_symbolic_value(self, u: UOp) -> SymbolicValue:
        """Read a node whose sources are read."""
        if u.dtype.is_float or u.dtype is dt.void or len(u.shape or ()) > 1:
            return None
        if u.op is Op.STACK:
            return _join_lanes_into_formula_or_list([self.values[s] for s in u.src])
        if u.op is Op.INDEX and u.operand in self.values:
            return self._read_element_of_symbolic_vector_or_make_unknown(u)
        leaf = _LEAVES.get(u.op)
        if leaf is not None:
            return leaf(self, u)
        operands = [self.values.get(s) for s in u.src]
        read = [x for x in operands if x is not None]
        if u.op not in _RULES or len(read) < len(operands):
            return self.make_unknown_per_lane_within_bounds(u)
        rule = _RULES[u.op]
        lists = [x for x in read if isinstance(x, list)]
        if not lists:
            return rule(self, u, *read)
        n = len(lists[0])
        return _join_lanes_into_formula_or_list([rule(self, u, *(_select_lane(x, k, n) for x in read)) for k in range(n)])

    def read_load_as_function_of_index_or_unknown(self, load: UOp) -> SymbolicValue:
        """Read a Load: of memory that the body only reads, a function of the element; otherwise an unknown."""
        buffer, *gating = load.src  # gating: alternative and gate
        memory, index = base_memory(buffer), self._read_single_index_or_whole_memory_lanes(buffer)
        read = [x for x in map(self.values.get, gating) if isinstance(x, LinearSum | Condition)]
        is_known = isinstance(index, LinearSum) and len(read) == len(gating)
        if memory.op is not Op.PARAM or memory in self.written_memories or not is_known:
            return self.make_unknown_per_lane_within_bounds(load, is_memory_written=memory in self.written_memories)
        assert isinstance(index, LinearSum)
        if load.dtype is dt.bool_:
            value: LinearSum | Condition = Condition("held", (str(memory.arg.slot), index))
        else:
            value = T.as_sum(Operation(f"held-{load.dtype.short}-{memory.arg.slot}", (index,)))
        if not read:
            return value
        alternative, gate = read
        return _read_where(self, load, gate, value, alternative)

    def _read_element_of_symbolic_vector_or_make_unknown(self, u: UOp) -> SymbolicValue:
        """Read an element of a vector, or of Stacks of Stacks."""
        if len(u.positions) > 1:
            return self._choose_from_stacks_or_make_unknown(u)
        whole, k = self.values[u.operand], self.values.get(u.positions[0])
        n = (u.operand.shape or (1,))[0]
        if not isinstance(n, int) or not isinstance(k, LinearSum):
            return self.make_unknown_per_lane_within_bounds(u)
        if isinstance(whole, list):
            at = _lane_positions(k, u.shape)
            if any(x.terms or not 0 <= x.const < len(whole) for x in at):
                return self.make_unknown_per_lane_within_bounds(u)
            chosen = [whole[x.const] for x in at]
            return _join_lanes_into_formula_or_list([*chosen]) if u.shape else chosen[0]
        if whole is not None and not any(v.loaded for v in T.collect_unknowns(whole)):
            lane: SymbolicValue = T.substitute(whole, {lane_unknown(n): k})
            return lane
        return self.make_unknown_per_lane_within_bounds(u)

    def _choose_from_stacks_or_make_unknown(self, u: UOp) -> SymbolicValue:
        """Read an integer in Stacks of Stacks, whose positions are claimed to be in range, from one table of all of them."""
        entries, number = [u.operand], T.ZERO
        for position, extent in zip(u.positions, u.operand.shape):
            k = self.values.get(position)
            if u.shape or not isinstance(k, LinearSum) or any(e.op is not Op.STACK for e in entries):
                return self.make_unknown_per_lane_within_bounds(u)
            number = T.add(T.scale(number, int(extent)), k)
            entries = [element for e in entries for element in e.elements]
        values = [v for v in map(self.values.get, entries) if isinstance(v, LinearSum)]
        if len(values) < len(entries):
            return self.make_unknown_per_lane_within_bounds(u)
        return T.as_sum(Operation("table", (number, *values)))

    def make_unknown_per_lane_within_bounds(self, u: UOp, is_memory_written: bool = False) -> SymbolicValue:
        """Return an unknown of which only the bounds are known, or one per lane of a vector."""
        name = self.names.setdefault(u, f"v{len(self.names)}")
        low, high = (0, 1) if u.dtype is dt.bool_ else u.min_max or (u.dtype.min, u.dtype.max)
        if low == high:  # the number of a single lane
            return LinearSum(int(low), ())

        def make_unknown(name: str) -> LinearSum | Condition:
            unknown = T.as_sum(Unknown(name, int(low), int(high), True, is_memory_written))
            return T.negate(T.is_zero(unknown)) if u.dtype is dt.bool_ else unknown

        count = u.shape[0] if len(u.shape) == 1 else 1
        if not isinstance(count, int) or count == 1:
            return make_unknown(name)
        return [make_unknown(f"{name}.{k}") for k in range(count)]


def _list_special_loops(root: UOp) -> tuple[UOp, ...]:
    """Return the Specials of a body as the loops around it, outermost first. Raises SpecError for two of one name (R125)."""
    specials = [u for u in toposort(root) if u.op is Op.SPECIAL]
    if len({u.arg.name for u in specials}) < len(specials):
        raise SpecError("a name of a Special has one bound (R125), got two")
    return tuple(sorted(sort_specials_by_name(specials), key=lambda u: not numbers_workgroups(u)))


def _sources_to_read_first(u: UOp) -> Sequence[UOp]:
    """Return the sources whose values are read before a node."""
    if u.op is Op.LOAD:
        address, *gating = u.src  # gating: alternative and gate
        address = strip_afters(address)
        return () if u.dtype.is_float else (*(address.positions if address.op is Op.INDEX else ()), *gating)
    if u.dtype.is_float or u.dtype is dt.void or u.op in (Op.PARAM, Op.BUFFER, Op.RANGE, Op.SPECIAL, Op.CONST, Op.AFTER, Op.REDUCE):
        return ()
    if u.op is Op.INDEX:
        return u.src if u.operand.op not in WHOLE_MEMORY else ()
    return () if u.op in CONVERSIONS and u.operand.dtype.is_float else u.src


class PlacedNode(NamedTuple):
    """A node with the loops and the Ifs around it, outermost first."""

    node: UOp
    loops: tuple[UOp, ...]
    ifs: tuple[UOp, ...] = ()


def place_nodes_in_blocks(root: UOp) -> list[PlacedNode]:
    """Return each node of a body, sources first, or each instruction of a list, with the blocks around it."""
    return _blocks_around_instructions(root.src) if root.op is Op.LINEAR else _blocks_around_nodes(root)


def _blocks_around_nodes(root: UOp) -> list[PlacedNode]:
    """Return each node of a graph with the blocks around it.

    A node is in the loops that it depends on. An instruction that an End closes is also in that End's loops, which repeat it.
    """
    order = toposort(root)
    live, guards, closed = open_ranges(order), find_ifs_around(order), _find_loops_of_enclosing_ends(order)
    at = {u: k for k, u in enumerate(order)}
    return [
        PlacedNode(u, tuple(sort_by_nesting(live[u] | closed[u])), tuple(sorted(guards.get(u, ()), key=at.__getitem__)))
        for u in order
    ]


def _find_loops_of_enclosing_ends(order: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return the loops of the Ends around each instruction, through Groups and other Ends."""
    closed: dict[UOp, frozenset[UOp]] = dict.fromkeys(order, frozenset())
    for u in reversed(order):
        if u.op is Op.END or u.op is Op.GROUP:
            for s in u.src:
                if s.dtype is dt.void:
                    closed[s] |= closed[u].union(scope.ranges_closed_by(u))
    return closed


def _blocks_around_instructions(instructions: Sequence[UOp]) -> list[PlacedNode]:
    """Return each instruction of a list with the blocks around it."""
    placed, loops, ifs = [], list[UOp](), list[UOp]()
    for u in instructions:
        if u.op is Op.END:
            loops = [r for r in loops if r not in u.ranges]
        elif u.op is Op.ENDIF:
            ifs = [f for f in ifs if f is not u.if_node]
        placed.append(PlacedNode(u, tuple(loops), tuple(ifs)))
        if u.op is Op.RANGE:
            loops.append(u)
        elif u.op is Op.IF:
            ifs.append(u)
    return placed


def _lane_positions(k: LinearSum, shape: tuple[Dim, ...] | None) -> list[LinearSum]:
    """Return the position that an index has in each lane."""
    n = int(str(shape[0])) if shape else 1
    return [T.fold_constant(T.substitute(k, {lane_unknown(n): LinearSum(j)})) for j in range(n)] if shape else [k]


def _select_lane(x: SymbolicValue, lane: int, lane_count: int) -> SymbolicValue:
    """Return lane k of n."""
    if isinstance(x, list):
        return x[lane]
    return x if x is None else T.substitute(x, {lane_unknown(lane_count): LinearSum(lane)})


def _join_lanes_into_formula_or_list(value_by_lane: list[SymbolicValue]) -> SymbolicValue:
    """Join elements to a vector: one formula if they differ by constants."""
    if not value_by_lane or any(p is None or isinstance(p, list) for p in value_by_lane):
        return None
    first = value_by_lane[0]
    if all(p == first for p in value_by_lane):
        return first
    if isinstance(first, LinearSum):
        steps = [T.add(p, first, -1) for p in value_by_lane]  # type: ignore[arg-type]
        if not any(s.terms for s in steps):
            return T.add(first, _express_constants_as_function_of_lane(steps))
    elif all(p in (T.TRUE, T.FALSE) for p in value_by_lane):
        return T.negate(T.is_zero(_express_constants_as_function_of_lane([LinearSum(int(p == T.TRUE)) for p in value_by_lane])))
    return value_by_lane  # type: ignore[return-value]


def _express_constants_as_function_of_lane(constant_by_lane: Sequence[LinearSum]) -> LinearSum:
    """Return the number of each lane as a function of the lane."""
    lane = T.as_sum(lane_unknown(len(constant_by_lane)))
    step = constant_by_lane[1].const if len(constant_by_lane) > 1 else 0
    if all(x.const == k * step for k, x in enumerate(constant_by_lane)):
        return T.scale(lane, step)
    return T.as_sum(Operation("table", (lane, *constant_by_lane)))


def _split_by_lane_if_listed(
    index_and_gate: list[SymbolicValue], lane: Unknown | None
) -> list[tuple[SymbolicValue, SymbolicValue, Unknown | None]]:
    """Return (index, gate, lane) once as one formula, or once per lane."""
    if not any(isinstance(x, list) for x in index_and_gate):
        return [(index_and_gate[0], index_and_gate[1], lane)]
    assert lane is not None
    n = lane.high + 1
    return [(_select_lane(index_and_gate[0], k, n), _select_lane(index_and_gate[1], k, n), None) for k in range(n)]


# Semantics of index arithmetic

_KIND = {Op.LOAD: "load", Op.STORE: "store", Op.ATOMICADD: "atomic"}


def _wrap_unless_fits(d: DType, x: LinearSum) -> LinearSum:
    """Wrap a number to `d` unless it fits (R05: integer overflow wraps); index holds any (R08)."""
    if d is dt.index:
        return x
    low, high = T.bounds(x)
    return x if d.min <= low and high <= d.max else T.as_sum(Operation(f"wrap-{d.short}", (x,)))


def _read_constant(reader: _AccessReader, u: UOp) -> SymbolicValue:
    if u.dtype is dt.bool_:
        return T.TRUE if u.arg.value else T.FALSE
    return LinearSum(int(u.arg.value))


def _read_param(reader: _AccessReader, u: UOp) -> SymbolicValue:
    return T.as_sum(named_variable(u)) if is_variable(u) else None


_LEAVES: dict[Op, Callable[[_AccessReader, UOp], SymbolicValue]] = {
    Op.CONST: _read_constant,
    Op.PARAM: _read_param,
    Op.RANGE: lambda reader, u: T.as_sum(loop_counter(u)),
    Op.SPECIAL: lambda reader, u: T.as_sum(loop_counter(u)),
    Op.BUFFER: lambda reader, u: None,
    Op.LOAD: lambda reader, u: reader.read_load_as_function_of_index_or_unknown(u),
    Op.AFTER: lambda reader, u: None,
}


def _as_sum(x: LinearSum | Condition) -> LinearSum:
    """Return a bool as 0 or 1."""
    return x if isinstance(x, LinearSum) else T.as_sum(Operation("where", (x, T.ONE, T.ZERO)))


def _make_wrapping_integer_rule(compute_number: Callable[..., LinearSum]) -> Callable[..., SymbolicValue]:
    """Return the rule of an op on integers that is computed by `compute_number`."""

    def rule(reader: _AccessReader, u: UOp, *args: LinearSum | Condition) -> SymbolicValue:
        if u.dtype is dt.bool_:
            return reader.make_unknown_per_lane_within_bounds(u)
        return _wrap_unless_fits(u.dtype, compute_number(*args))

    return rule


def _make_application(name: str) -> Callable[..., LinearSum]:
    return lambda *args: T.as_sum(Operation(name, args))


def _make_bitwise_or_logic_rule(name: str) -> Callable[..., SymbolicValue]:
    """Return the rule of a bitwise op on integers, or of its logical form on bools."""

    def rule(reader: _AccessReader, u: UOp, *args: LinearSum | Condition) -> SymbolicValue:
        if u.dtype is not dt.bool_:
            return _wrap_unless_fits(u.dtype, T.as_sum(Operation(name, args)))
        a, b = args
        if name == "xor":
            return Condition("or", (Condition("and", (a, T.negate(b))), Condition("and", (T.negate(a), b))))  # type: ignore[arg-type]
        return Condition(name, (a, b))

    return rule


def _make_comparison_rule(compare: Callable[[LinearSum, LinearSum], Condition]) -> Callable[..., SymbolicValue]:
    """Return the rule of a comparison."""

    def rule(reader: _AccessReader, u: UOp, a: LinearSum | Condition, b: LinearSum | Condition) -> SymbolicValue:
        return compare(_as_sum(a), _as_sum(b))

    return rule


def _less(a: LinearSum, b: LinearSum) -> Condition:
    return T.is_nonnegative(T.add(T.add(b, a, -1), T.ONE, -1))


def _not_less(a: LinearSum, b: LinearSum) -> Condition:
    return T.is_nonnegative(T.add(a, b, -1))


def _read_cast(reader: _AccessReader, u: UOp, a: LinearSum | Condition) -> SymbolicValue:
    if u.dtype is dt.bool_:
        return a if isinstance(a, Condition) else T.negate(T.is_zero(a))
    return _wrap_unless_fits(u.dtype, _as_sum(a))


def _read_where(
    reader: _AccessReader, u: UOp, condition: LinearSum | Condition, if_true: LinearSum | Condition, if_false: LinearSum | Condition
) -> SymbolicValue:
    condition = condition if isinstance(condition, Condition) else T.negate(T.is_zero(condition))
    if isinstance(if_true, Condition) and isinstance(if_false, Condition):
        return Condition("or", (Condition("and", (condition, if_true)), Condition("and", (T.negate(condition), if_false))))
    return T.as_sum(Operation("where", (condition, if_true, if_false)))


def _make_division_folding_divisor_one(name: str) -> Callable[..., LinearSum]:
    """Return a division that is folded for the divisor 1."""

    def f(a: LinearSum, b: LinearSum) -> LinearSum:
        if not b.terms and b.const == 1:
            return a if name == "idiv" else T.ZERO
        return T.as_sum(Operation(name, (a, b)))

    return f


def _read_constant_shift_or_make_unknown(
    reader: _AccessReader, u: UOp, a: LinearSum | Condition, shift_count: LinearSum | Condition
) -> SymbolicValue:
    """Read a shift by a constant as a product or a division; any other is unknown."""
    if (
        isinstance(a, LinearSum)
        and isinstance(shift_count, LinearSum)
        and not shift_count.terms
        and 0 <= shift_count.const < min(63, u.dtype.bits if u.dtype is not dt.index else 63)
    ):
        left = u.op is Op.SHL
        return _wrap_unless_fits(
            u.dtype,
            T.scale(a, 1 << shift_count.const) if left else T.as_sum(Operation("idiv", (a, LinearSum(1 << shift_count.const)))),
        )
    return reader.make_unknown_per_lane_within_bounds(u)


_RULES: dict[Op, Callable[..., SymbolicValue]] = {
    Op.ADD: _make_wrapping_integer_rule(T.add),
    Op.SUB: _make_wrapping_integer_rule(lambda a, b: T.add(a, b, -1)),
    Op.NEG: _make_wrapping_integer_rule(lambda a: T.scale(a, -1)),
    Op.MUL: _make_wrapping_integer_rule(T.mul),
    Op.MULACC: _make_wrapping_integer_rule(lambda a, b, c: T.add(T.mul(a, b), c)),
    Op.MAX: _make_wrapping_integer_rule(_make_application("max")),
    Op.IDIV: _make_wrapping_integer_rule(_make_division_folding_divisor_one("idiv")),
    Op.MOD: _make_wrapping_integer_rule(_make_division_folding_divisor_one("mod")),
    Op.TRUNC: lambda reader, u, a: a,
    Op.AND: _make_bitwise_or_logic_rule("and"),
    Op.OR: _make_bitwise_or_logic_rule("or"),
    Op.XOR: _make_bitwise_or_logic_rule("xor"),
    Op.SHL: _read_constant_shift_or_make_unknown,
    Op.SHR: _read_constant_shift_or_make_unknown,
    Op.NOT: lambda reader, u, a: T.negate(a),
    Op.CMPLT: _make_comparison_rule(_less),
    Op.CMPGT: _make_comparison_rule(lambda a, b: _less(b, a)),
    Op.CMPGE: _make_comparison_rule(_not_less),
    Op.CMPLE: _make_comparison_rule(lambda a, b: _not_less(b, a)),
    Op.CMPEQ: _make_comparison_rule(lambda a, b: T.is_zero(T.add(a, b, -1))),
    Op.CMPNE: _make_comparison_rule(lambda a, b: T.negate(T.is_zero(T.add(a, b, -1)))),
    Op.CAST: _read_cast,
    Op.WHERE: _read_where,
}
