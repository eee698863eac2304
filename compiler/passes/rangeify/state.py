"""State of the translation of one callified body to kernels: the elements that are needed of each value, and their expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.buffers import COPIES, highest_unique
from uops.compiler.ir.extents import max_elements
from uops.compiler.ir.views import STEP, IndexArithmetic, strip_views_and_collect_dependencies
from uops.compiler.log import log_transform
from uops.compiler.passes.rangeify.cost import RealiseCostModel
from uops.compiler.passes.rangeify.elements import find_closed_forms_of_reduces
from uops.compiler.passes.rangeify.kernels import Element, ElementRef, KernelDraft, ranges_of
from uops.compiler.passes.rangeify.layouts import BIJECTIVE, StorageLayout, map_stored_views_to_layouts
from uops.compiler.passes.rangeify.storage import StoreTarget, load_element_gated_unless_in_bounds_and_hoistable
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.target import MachineModel
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import ALU, RESHAPING, Op
from uops.spec.ir.scope import VIEWS, strip_afters

#: Ops whose elements cost an address only, so that they may be computed at several places.
_CHEAP = VIEWS | {Op.EXPAND, Op.PAD, Op.REPLICATED}
#: Values that are in memory or are constants.
_LEAVES = COPIES | {Op.PARAM, Op.CONST, Op.BINARY}
#: Ops that need no source element twice if none of their own elements is needed twice; elementwise ops only for equal shapes.
_ONCE = ALU | BIJECTIVE | {Op.REDUCE, Op.CONTIGUOUS, Op.SHRINK}


class RangeifyState:
    """The state of one translation, which the functions of `handlers` read and change."""

    def __init__(
        self,
        indexing: IndexArithmetic,
        order: Sequence[UOp],
        arguments: tuple[UOp, ...],
        handlers: OpHandlers,
        machine: MachineModel,
    ) -> None:
        self.indexing, self.order, self.arguments, self.handlers = indexing, order, arguments, handlers
        self.cheap = _find_memory_and_constant_views(order)
        self.refs: dict[UOp, dict[ElementRef, None]] = {}  # value -> its elements that are needed
        self.source_elements: dict[Element, list[Element]] = {}  # element -> the elements that it is computed from
        self.kernels: dict[UOp, KernelDraft] = {}  # by realised value or Store
        self.buffers: dict[UOp, UOp] = {}  # by realised value
        self.targets: dict[UOp, StoreTarget] = {}  # by Store
        self.values: dict[Element, UOp] = {}  # element -> its expression
        self.closed_reduces = find_closed_forms_of_reduces(order, indexing)
        #: By element of a closed Reduce: the substitution of its general index and remaining loops.
        self.index_bindings: dict[Element, dict[UOp, UOp]] = {}
        self.cost_model = RealiseCostModel(order, self.closed_reduces, machine)
        has_views = not BIJECTIVE.isdisjoint({u.op for u in order})
        self.layouts = map_stored_views_to_layouts(order, self.cost_model.use_counts, self.cheap) if has_views else {}
        self.computed_once: set[Element] = set()  # references that name no element of a value twice
        self.last_unique = highest_unique(arguments)

    # Consumers first: the elements of each value that are needed.

    def request_elements_and_open_kernels(self) -> None:
        """Find the elements of each value that are needed, and open a kernel for each Store and realised value."""
        for u in reversed(self.order):
            if u.op is Op.STORE:
                self._open_kernel_over_store_target(u)
            elif u.op is Op.CALL:
                for a in u.arguments:
                    if a.op is Op.CONTIGUOUS:
                        self.refs.setdefault(a, {})
            elif u in self.refs:
                self._realise_node_or_request_its_sources(u)

    def _realise_node_or_request_its_sources(self, u: UOp) -> None:
        """Open a kernel for a value that is realised; request the source elements of any other."""
        if not self._decide_to_realise_else_adapt_kernel_loops(u):
            for ref in self.refs[u]:
                self._request_source_elements((u, ref))
            return
        self.buffers[u] = self._new_buffer(u)
        if 0 in u.shape:
            return
        layout = self.layouts.get(u)
        if layout is None:
            self._request_source_elements((u, self._open_kernel(u, u.shape).root_ref))
        else:
            self._open_kernel_over_layout_loops(u, layout)

    def _open_kernel_over_layout_loops(self, view: UOp, layout: StorageLayout) -> None:
        """Open the kernel of a value that is stored in the order of its view `view`."""
        kernel = self._open_kernel(view, layout.loops.shape)
        loops = kernel.coords
        kernel.coords = layout.map_loop_index_to_stored_view(self.indexing, loops)
        inner = ElementRef(kernel, layout.map_loop_index_to_value(self.indexing, loops))
        self.source_elements[view, kernel.root_ref] = [self.request_element(layout.value, inner)]
        self.computed_once.add((layout.value, inner))

    def _open_kernel_over_store_target(self, u: UOp) -> None:
        """Open a kernel over the elements of a Store's target, if it has any."""
        _, *operands = u.src  # value, and the gate if there is one
        shape = u.buffer.shape
        if 0 in shape:
            return
        kernel = self._open_kernel(u, shape)
        self.targets[u] = self.handlers.store_target(self, kernel, u.buffer)
        self.source_elements[u, kernel.root_ref] = [self.request_element(s, self.align_ref(kernel.root_ref, s)) for s in operands]

    def _decide_to_realise_else_adapt_kernel_loops(self, u: UOp) -> bool:
        """Decide whether a value is computed into memory. Loops of its kernel may be reordered or pinned to avoid that."""
        if u.op in COPIES:
            return not self._can_sole_store_read_copy_source_directly(u)
        if u in self.cheap:
            return False
        value = self.layouts[u].value if u in self.layouts else u
        refs = list(self.refs[u])
        first, has_loop = refs[0], value.op is Op.REDUCE and self.cost_model.needs_reduce_loop(value)
        once = len(refs) == 1 and ((u, first) in self.computed_once or first.is_computed_once())
        if once:
            self.computed_once.add((u, first))
        if value.op in RESHAPING:  # its operand is realised, or not
            return False
        if not once and len(refs) == 1 and value in self.cost_model.noncontraction_values:
            once = first.kernel.try_nest_output_loops_around_reduce(first)
        if self.cost_model.should_realise_else_claim_as_kernel_contraction(value, refs, once):
            return True
        if has_loop:
            first.kernel.pin_reduce_loops(first)
        return False

    def _can_sole_store_read_copy_source_directly(self, copy: UOp) -> bool:
        """Return True for a copy from another device that one Store puts into place, if what is sent never changes.

        The Store then reads it from there, and no memory lies between.
        """
        if copy.op is not Op.LOAD or copy.arg.device is None or copy.gate is not None or len(self.refs[copy]) != 1:
            return False
        (ref,) = self.refs[copy]
        base, _ = strip_views_and_collect_dependencies(copy.buffer, VIEWS)
        return ref.kernel.root.op is Op.STORE and ref.kernel.root.src[1:] == (copy,) and base.op in COPIES  # its value, ungated

    def _request_source_elements(self, element: Element) -> None:
        """Request the elements that an element is computed from."""
        u, ref = element
        sources = self.source_elements[element] = self.handlers.source_elements.get(u.op, _find_movement_source)(self, u, ref)
        for s, source_ref in sources:
            self.refs.setdefault(s, {})[source_ref] = None
        if u.op in _ONCE and element in self.computed_once and u not in self.closed_reduces:
            keeps_all = u.op in (Op.REDUCE, Op.SHRINK) or u.op in BIJECTIVE
            self.computed_once.update(sources if keeps_all else [(s, r) for s, r in sources if s.shape == u.shape])

    def request_element(self, u: UOp, ref: ElementRef) -> Element:
        """Record that an element is needed, and return it."""
        self.refs.setdefault(u, {})[ref] = None
        return u, ref

    def align_ref(self, ref: ElementRef, s: UOp) -> ElementRef:
        """Return the element of an operand that broadcasts to the element `ref` of the result (R41, operand shapes)."""
        coords = self.indexing.align_broadcast_index(ref.coords, s.shape)
        return ref if coords is ref.coords else ElementRef(ref.kernel, coords, ref.gate)

    def make_placeholder(self, u: UOp, ref: ElementRef) -> UOp:
        """Return a placeholder for an element that an address or a gate needs before the element is computed."""
        self.request_element(u, ref)
        return ref.kernel.get_or_make_placeholder(u, ref)

    # Kernels and their loops.

    def _open_kernel(self, value_or_store: UOp, loop_extents: Sequence[Dim]) -> KernelDraft:
        """Open a kernel with an output loop per axis of `loop_extents`."""
        kernel = self.kernels[value_or_store] = KernelDraft(value_or_store)
        kernel.coords = tuple([kernel.new_loop_or_zero_index(n, AxisType.LOOP) for n in loop_extents])
        kernel.ranges = ranges_of(kernel.coords)
        kernel.record_loop_nest(kernel.ranges)
        self.computed_once.add((value_or_store, kernel.root_ref))
        return kernel

    def _new_buffer(self, realised_value: UOp) -> UOp:
        self.last_unique += 1
        device = realised_value.device if isinstance(realised_value.device, str) else "CPU"
        arg = BufferArg(
            max_elements(realised_value.shape),
            choose_storage_dtype_narrowing_index(realised_value),
            device,
            AddrSpace.GLOBAL,
            self.last_unique,
        )
        return UOp(Op.BUFFER, (), arg)

    # Sources first: the expression of every element that is needed.

    def build_expressions_and_stores(self) -> None:
        """Build the expression of every element that is needed, and the Store of every kernel."""
        for u in self.order:
            if u in self.kernels:
                self._build_and_set_kernel_store(u, self.kernels[u])
            elif u in self.buffers:
                pass
            else:
                for ref in self.refs.get(u, ()):
                    self.values[u, ref] = self._element_expression(u, ref)
            if u in self.buffers:
                for ref in self.refs[u]:
                    position = self.indexing.flatten(ref.coords, u.shape)
                    self.values[u, ref] = B.cast(
                        load_element_gated_unless_in_bounds_and_hoistable(self.buffers[u], position, ref.gate), u.dtype
                    )

    def _element_expression(self, u: UOp, ref: ElementRef) -> UOp:
        if ref.gate is not None and ref.gate.op is Op.CONST:  # never true
            return B.const(0, u.dtype)
        return self.handlers.expressions[u.op](self, u, ref, list(map(self.values.__getitem__, self.source_elements[u, ref])))

    def _build_and_set_kernel_store(self, value_or_store: UOp, kernel: KernelDraft) -> None:
        """Build the Store of a kernel from the expressions of its source elements."""
        sources = self.source_elements[value_or_store, kernel.root_ref]
        if value_or_store.op is Op.STORE:
            kernel.store = self.targets[value_or_store].build_element_or_byte_store_under_gates([self.values[s] for s in sources])
            kernel.ranges = [*kernel.ranges, *self.targets[value_or_store].byte_ranges]
            return
        value = (
            self._element_expression(value_or_store, kernel.root_ref)
            if value_or_store not in self.layouts
            else self.values[sources[0]]
        )
        target = UOp(Op.INDEX, (self.buffers[value_or_store], self.indexing.flatten(kernel.coords, value_or_store.shape)))
        kernel.store = UOp(Op.STORE, (target, B.cast(value, choose_storage_dtype_narrowing_index(value_or_store))))

    def kernels_in_order(self) -> Iterator[KernelDraft]:
        """Return the kernels in execution order."""
        return (self.kernels[u] for u in self.order if u in self.kernels)

    def insert_handwritten_kernel_calls(self, launch: UOp) -> UOp:
        """Return the launch with the Calls of kernels that are written by hand in their places (R166)."""
        if Op.CALL not in {u.op for u in self.order}:
            return launch
        finished = iter(launch.src)
        calls = []
        for u in self.order:
            if u in self.kernels:
                calls.append(next(finished))
            elif u.op is Op.CALL:
                calls.append(u.replace(src=(u.body, *map(self._resolve_argument_to_buffer_or_outer_argument, u.arguments))))
        return launch.replace(src=tuple(calls))

    def _resolve_argument_to_buffer_or_outer_argument(self, call_argument: UOp) -> UOp:
        """Return the memory or variable that the Call of a kernel gets for an argument."""
        if call_argument in self.buffers:
            return self.buffers[call_argument]
        base = strip_afters(call_argument)
        while base.op is Op.CAST:  # of an index value to its own dtype
            base = base.operand
        argument: UOp = self.arguments[base.arg.slot]
        return argument

    def log_values_computed_by_each_kernel(self, body: UOp, terms: Rewriter | None) -> None:
        """Log the expressions that each kernel computes of each value."""
        expressions: dict[int, dict[UOp, tuple[UOp, ...]]] = {}
        for (u, ref), node in self.values.items():
            by_value = expressions.setdefault(id(ref.kernel), {})
            by_value[u] = (*by_value.get(u, ()), node)
        for n, kernel in enumerate(self.kernels_in_order()):
            replacements = expressions.get(id(kernel), {})
            if kernel.store is not None:
                replacements[kernel.root] = (kernel.store if kernel.root.op is Op.STORE else kernel.store.value,)
                extra_nodes = {kernel.root: (kernel.store, *kernel.ranges)}
                log_transform(
                    "ranges", body, kernel.store, replacements, kernel_number=n, term_rewrites=terms, extra_nodes=extra_nodes
                )


def _find_memory_and_constant_views(order: Sequence[UOp]) -> set[UOp]:
    """Return the values that are read from memory or constant, up to an address."""
    cheap: set[UOp] = set()
    for u in order:
        if u.op in _LEAVES or (u.op in _CHEAP and u.src[0] in cheap):  # operand, or buffer of an After
            cheap.add(u)
    return cheap


def _find_movement_source(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return the one source element of an element of a movement op, perhaps gated."""
    if u.op not in STEP:
        raise Crash(f"rangeify has no handler for elements of {u.op.name}, got {u!r}")
    index, gate = STEP[u.op](state.indexing, u, ref.coords)
    source = u.src[0]  # operand, or buffer of an After
    return [(source, ElementRef(ref.kernel, index, state.indexing.conjoin_gates(ref.gate, gate)))]


def choose_storage_dtype_narrowing_index(u: UOp) -> DType:
    """Return the dtype of the Buffer of an intermediate value, which no caller sees.

    An index value is stored as int32 if its bounds allow that, else as any index is (R08, index dtype).
    """
    if u.dtype is not dt.index:
        return u.dtype
    lo, hi = u.min_max or (dt.index.min, dt.index.max)
    return dt.int32 if dt.int32.min <= lo and hi <= dt.int32.max else dt.index.storage


class OpHandlers(NamedTuple):
    """The functions per op.

    `source_elements[op]` returns the elements that an element is computed from; a movement op without an entry has one source
    element. `expressions[op]` builds the expression of an element from theirs. `store_target` follows the target of a Store to its
    memory.
    """

    source_elements: Mapping[Op, Callable[[RangeifyState, UOp, ElementRef], list[Element]]]
    expressions: Mapping[Op, Callable[[RangeifyState, UOp, ElementRef, Sequence[UOp]], UOp]]
    store_target: Callable[[RangeifyState, KernelDraft, UOp], StoreTarget]
