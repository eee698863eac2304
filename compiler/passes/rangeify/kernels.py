"""Kernels under construction, and their conversion to Calls.

A finished kernel is a Call of a Sink over its Store in its loops. Its Params are numbered: first the memory that it writes, then
the memory that it reads in order of first use, then named variables. Memory is flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from uops.compiler.ir.affine import clamp_index
from uops.compiler.ir.bodies import renumber_loops_and_map_nodes
from uops.compiler.ir.extents import finite_bounds, loop_extent, max_extent
from uops.compiler.ir.views import ZERO
from uops.compiler.ir.zero_trip import ValidElementCountByParam, gate_loads_of_zero_trip_loops
from uops.compiler.log import active_log, log_transform
from uops.compiler.passes.rangeify.gated_accesses import simplify_divisions_in_gated_accesses, simplify_nested_conditions
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg, ParamArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory


class KernelDraft:
    """The kernel of one realised value or one Store; `ranges` are its output loops, outermost first.

    Loops and placeholders are numbered per kernel. So equal computations of two kernels are the same nodes until memory is named.
    """

    def __init__(self, root: UOp) -> None:
        self.root = root
        self.coords: tuple[UOp, ...] = ()
        self.ranges: list[UOp] = []
        self.outer_loops: dict[UOp, frozenset[UOp]] = {}  # the loops around each loop
        self.placeholders: dict[Element, UOp] = {}  # for values that addresses and gates depend on
        self.placeholder_refs: dict[UOp, Element] = {}  # placeholder -> element
        self.store: UOp | None = None
        self.loop_count = 0
        self.has_product = False
        self.reduce_loops: list[frozenset[UOp]] = []  # the output loops around each Reduce that is computed here

    @property
    def root_ref(self) -> ElementRef:
        """The element of the root that the kernel computes. It is built anew, to avoid a reference cycle with the kernel."""
        return ElementRef(self, self.coords)

    def new_loop_or_zero_index(self, extent: Dim, kind: AxisType) -> UOp:
        """Return a new Range; the index 0 for an axis of one element.

        A symbolic bound is brought into normal form here, since simplification does not enter the ranges of a Reduce or End.
        """
        bound = Rewriter(INDEXING)(extent) if isinstance(extent, UOp) else dim_node(extent)
        if bound.op is Op.CONST and bound.const == 1:
            return ZERO
        self.loop_count += 1
        return UOp(Op.RANGE, (bound,), RangeArg(self.loop_count - 1, kind))

    def record_loop_nest(self, ranges: Iterable[UOp], enclosing: frozenset[UOp] = frozenset()) -> None:
        """Record that `ranges` nest in this order inside the loops `enclosing`."""
        for r in ranges:
            if r.op is Op.RANGE:
                self.outer_loops[r] = enclosing
                enclosing = enclosing | {r}

    def pin_reduce_loops(self, ref: ElementRef) -> None:
        """Record that a Reduce is computed at `ref`, so that the output loops around it stay around it."""
        self.reduce_loops.append(frozenset(ref.enclosing_loops() & set(self.ranges)))

    def try_nest_output_loops_around_reduce(self, ref: ElementRef) -> bool:
        """Reorder the output loops so that a Reduce at `ref` is computed once per element; return False if they cannot be.

        Loops that are pinned around other Reduces stay around them. The innermost loop stays innermost, because its iterations are
        neighbours in memory.
        """
        loops = frozenset(i for i in ref.coords if i is not ZERO)
        if ref.gate is not None or not loops < set(self.ranges) or self.ranges[-1] in loops or self.has_product:
            return False
        if not all(loops <= other or other <= loops for other in self.reduce_loops):
            return False
        sets = [*self.reduce_loops, loops]
        self.ranges.sort(key=lambda r: sum(r not in s for s in sets))
        self.record_loop_nest(self.ranges)
        return True

    def get_or_make_placeholder(self, u: UOp, ref: ElementRef) -> UOp:
        """Return the placeholder for the element `ref` of `u`, memoized."""
        element = u, ref
        if element not in self.placeholders:
            placeholder = make_placeholder(f"%{len(self.placeholders)}", u)
            self.placeholders[element], self.placeholder_refs[placeholder] = placeholder, element
        return self.placeholders[element]

    def try_claim_only_product(self, ref: ElementRef) -> bool:
        """Claim the kernel for a sum of products at `ref`. Return False if it has one already, or if `ref` is inside a Reduce."""
        if self.has_product or ref.is_in_reduce_loop():
            return False
        self.has_product = True
        return True


class ElementRef(NamedTuple):
    """An element of a value that a kernel needs: its index, and the gate under which it exists (None: always)."""

    kernel: KernelDraft
    coords: tuple[UOp, ...]
    gate: UOp | None = None

    def is_in_reduce_loop(self) -> bool:
        """Return True if the element is computed in the loop of a Reduce."""
        return any(r.arg.type is AxisType.REDUCE for r in self.enclosing_loops())

    def enclosing_loops(self) -> set[UOp]:
        """Return the loops in which the element is computed: those that its index or gate depends on, and all around them."""
        outer_loops, placeholder_refs = self.kernel.outer_loops, self.kernel.placeholder_refs
        loops: set[UOp] = set()
        pending = [*self.coords] if self.gate is None else [*self.coords, self.gate]
        seen: set[UOp] = set()
        while pending:
            i = pending.pop()
            if i.op is Op.RANGE:
                loops.add(i)
                loops |= outer_loops[i]
            elif i.op is not Op.CONST:
                for u in toposort(i):
                    if u not in seen and (u.op is Op.RANGE or u in placeholder_refs):
                        seen.add(u)
                        pending += (u,) if u.op is Op.RANGE else placeholder_refs[u][1].coords
        return loops

    def execution_count(self) -> int:
        """Return the greatest number of times that the element is computed."""
        return math.prod([max(1, max_extent(loop_extent(r))) for r in self.enclosing_loops()])

    def is_computed_once(self) -> bool:
        """Return True if every element is needed and computed once: at distinct loops, with no other around them and no gate."""
        indices = [i for i in self.coords if i is not ZERO]
        loops = frozenset(indices)
        are_distinct_loops = all(i.op is Op.RANGE for i in indices) and len(loops) == len(indices)
        return self.gate is None and are_distinct_loops and self.enclosing_loops() <= loops


#: An element of a value: (value, its index and kernel).
Element = tuple[UOp, ElementRef]


def ranges_of(index: Iterable[UOp]) -> list[UOp]:
    """Return the indices that are Ranges."""
    return [i for i in index if i.op is Op.RANGE]


def flat_param(p: UOp) -> UOp:
    """Return the one-dimensional form of a Param of memory."""
    return p if len(p.shape) == 1 else p.replace(src=(B.shape_vector((count_elements(p.shape),)),))


def count_elements(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape; an index expression for a symbolic one."""
    dims = list(shape)
    fixed = math.prod([d for d in dims if not isinstance(d, UOp)])
    product: Dim = fixed
    for d in dims:
        if isinstance(d, UOp):
            product = d if product == 1 and not isinstance(product, UOp) else UOp(Op.MUL, (d, dim_node(product)))
    return product


class FinishedKernel(NamedTuple):
    """The body that equal kernels share.

    `memory_positions` are the positions of its memory among the memory of the draft. `variables` are its named variables.
    """

    body: UOp
    memory_positions: tuple[int, ...]
    variables: tuple[UOp, ...]


class KernelFinisher:
    """The conversion of drafts to Calls. Kernels that differ only in their memory are finished once.

    `values` are the expressions that placeholders stand for, `arguments` those of the callified program, and `buffers` the Buffers
    of realised values.
    """

    def __init__(
        self, values: Mapping[Element, UOp], arguments: tuple[UOp, ...], buffers: Mapping[UOp, UOp], simplify: Callable[[UOp], UOp]
    ) -> None:
        self.values, self.arguments, self.simplify = values, arguments, simplify
        self.value_of_buffer = {buffer: u for u, buffer in buffers.items()}
        self.finished: dict[tuple[Any, ...], FinishedKernel] = {}

    def __call__(self, number: int, kernel: KernelDraft) -> UOp:
        """Return the Call of kernel `number`."""
        if kernel.store is None:
            raise Crash(f"the kernel of {kernel.root!r} stores nothing")
        placeholders = {p: clamp_to_placeholder_bounds(self.values[element], p) for p, element in kernel.placeholder_refs.items()}
        filled = _fill_placeholders(kernel.store, placeholders) if placeholders else kernel.store
        log_transform("values of addresses", kernel.store, filled, placeholders, kernel_number=number)
        memory = _accessed_memory(filled)
        params = {m: _kernel_param(m, k) for k, m in enumerate(memory)}
        store = substitute(filled, params)
        log_transform("arguments", filled, store, params, kernel_number=number)
        valid_counts = {params[m]: self._count_initialised_leading_elements(m) for m in memory}
        key = store, tuple(kernel.ranges), tuple(valid_counts.values())
        finished = self.finished.get(key)
        if finished is None or active_log() is not None:
            finished = self.finished[key] = _simplify_close_loops_and_renumber(
                number, store, kernel.ranges, self.simplify, valid_counts
            )
        memory = [memory[k] for k in finished.memory_positions]
        passed = [self.arguments[m.arg.slot] if m.op is Op.PARAM else m for m in memory]
        variables = [self.arguments[u.arg.slot] for u in finished.variables]
        return UOp(Op.CALL, (finished.body, *passed, *variables), CallArg(written=(0,)))

    def _count_initialised_leading_elements(self, memory: UOp) -> Dim:
        """Return the number of elements of memory, from the first on, that are known to hold a value.

        An input holds values everywhere, and a realised value fills the front of its Buffer. Nothing is known of a Buffer of the
        caller, which may be uninitialised (R61, fresh buffers).
        """
        if memory in self.value_of_buffer:
            return count_elements(self.value_of_buffer[memory].shape)
        return 0 if memory.op is Op.PARAM and self.arguments[memory.arg.slot].op is Op.BUFFER else count_elements(memory.shape)


def _simplify_close_loops_and_renumber(
    kernel_number: int,
    store: UOp,
    output_loops: Sequence[UOp],
    simplify: Callable[[UOp], UOp],
    valid_counts: ValidElementCountByParam,
) -> FinishedKernel:
    """Simplify a Store, close its loops, gate its Loads, and number its Params and loops."""
    body = simple = simplify(store)
    numbers = sorted(int(r.arg.axis_id) for r in output_loops)  # loops nest by number, not in the order of their creation
    renumbered: dict[UOp, UOp] = {
        r: r.replace(arg=RangeArg(k, r.arg.type)) for r, k in zip(output_loops, numbers) if r.arg.axis_id != k
    }
    if renumbered:
        nested = substitute(simple, renumbered)
        log_transform("order of loops", simple, nested, renumbered, kernel_number=kernel_number)
        body = simple = simplify(nested)
    body = simple = simplify_nested_conditions(simplify_divisions_in_gated_accesses(simple, simplify), simplify)
    memory = _accessed_memory(simple)
    body = B.wrap_in_one_end_per_loop(body, [renumbered.get(r, r) for r in output_loops])
    log_transform("loops", simple, body, kernel_number=kernel_number)
    body = gate_loads_of_zero_trip_loops(body, simplify, valid_counts)
    variables = [u for u in nodes_with_op(body, Op.PARAM) if u.arg.name is not None]
    slots: dict[UOp, UOp] = {u: u.replace(arg=_variable_arg(u.arg, k)) for k, u in enumerate(variables, len(memory))}
    for k, m in enumerate(memory):
        slots[m] = m if m.arg.slot == k and not variables else _kernel_param(m, k, substitute(m.extents, slots))
    numbered = B.sink(substitute(body, slots), name=_derive_kernel_name_from_extents(body))
    log_transform("numbers of arguments", body, numbered, slots, kernel_number=kernel_number)
    done, loops = renumber_loops_and_map_nodes(numbered)
    log_transform("numbers of loops", numbered, done, loops, kernel_number=kernel_number)
    return FinishedKernel(done, tuple([m.arg.slot for m in memory]), tuple(variables))


def make_placeholder(name: str, value: UOp) -> UOp:
    """Return a scalar variable that stands for an element of `value`, with its bounds if they are finite and say something."""
    bounds = finite_bounds(value) if not value.dtype.is_float else None
    bounds = None if bounds is None or bounds[0] <= value.dtype.min else bounds
    return UOp(Op.PARAM, (B.SCALAR,), ParamArg(None, value.dtype, name=name, bounds=bounds))


def clamp_to_placeholder_bounds(value: UOp, placeholder: UOp) -> UOp:
    """Return the value of a placeholder as an expression that provably lies in the placeholder's bounds.

    Addresses were built from these bounds. A value that is read back from memory keeps them, but min_max cannot prove it.
    """
    d, bounds, min_max = value.dtype, placeholder.arg.bounds, value.min_max
    if bounds is None or d is dt.bool_ or (min_max is not None and bounds[0] <= min_max[0] and min_max[1] <= bounds[1]):
        return value
    return clamp_index(value, *(B.const(k, d) for k in bounds))


def _fill_placeholders(root: UOp, values_by_placeholder: dict[UOp, UOp]) -> UOp:
    """Replace placeholders by their values until none is left; a value may contain further placeholders."""
    while any(u in values_by_placeholder for u in toposort(root)):
        root = substitute(root, values_by_placeholder)
    return root


def _accessed_memory(body: UOp) -> list[UOp]:
    """Return the memory that a kernel accesses: what it writes, then what it reads in order of first use."""
    accesses = nodes_with_op(body, Op.STORE) + nodes_with_op(body, Op.LOAD)
    return list(dict.fromkeys([base_memory(u.src[0]) for u in accesses]))  # buffer


def _kernel_param(memory: UOp, slot: int, shape: UOp | None = None) -> UOp:
    """Return the kernel's Param for memory `memory`. It has no device: the Call passes the memory (R72, device; R86, Call
    arguments)."""
    if shape is None:
        shape = memory.src[0] if memory.op is Op.PARAM else B.shape_vector(memory.shape)  # extents
    return UOp(Op.PARAM, (shape,), ParamArg(slot, memory.dtype))


def _variable_arg(arg: ParamArg, slot: int) -> ParamArg:
    return ParamArg(slot, arg.dtype, name=arg.name, bounds=arg.bounds)


def _derive_kernel_name_from_extents(body: UOp) -> str:
    """Return `r` for a kernel that reduces, else `e`, and the extents of its loops in nesting order. Equal kernels share a name."""
    kind = "r" if nodes_with_op(body, Op.REDUCE) else "e"
    ranges = sorted(nodes_with_op(body, Op.RANGE), key=lambda u: int(u.arg.axis_id))
    bounds = [r.src[0] for r in ranges]  # bound
    dims = [str(bound.arg.value) if bound.op is Op.CONST else "n" for bound in bounds]
    return "_".join((kind, *dims))
