"""Values of a callified program: what it stores for each value of the tensor graph, and its effects.

Takes: a graph of TENSOR, the Call that callify made of it, and the Buffer of each value. Gives: one verdict.

The graph and the body are brought to one form: Functions are replaced by their bodies, markers by their operands, and a Param of
the body by the argument that it stands for. If the items then are the same nodes, the program is proved. Parts of values on several
devices have no such form. There the element of each value, and of memory that is written, is an expression by the graph, and
another one by the body. Both are compared.

Spec: R51 (references), R64 (Function), R73 (n-tuple Buffer), R76 (null axis on D), R175 (Contiguous), R182 (memory of callers).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.log import CallifiedGraph
from uops.compiler.validate.arrays.definitions import KernelMemory, decide_pair, fits_argument, leave_values_to_interpreter
from uops.compiler.validate.arrays.elements import TRUE, ZERO, ElementExpressions, flatten_index, unflatten_position
from uops.compiler.validate.arrays.forms import simplify_and_count_iterations, simplify_unrecorded
from uops.compiler.validate.arrays.stored import StoredElements
from uops.compiler.validate.arrays.versions import require_consistent_reads
from uops.compiler.validate.fingerprints.compare import is_enumerated
from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.model import DecisionMethod, ObligationKind, ValidationVerdict
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import UOp, rebuild, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, MARKERS, MEMORY_ROOTS, WRITES, Op
from uops.spec.ir.scope import base_memory, is_variable, root_items
from uops.spec.verify.infer import is_kernel_or_custom_function_body

#: Decides that two bodies store the same.
Decide = Callable[[UOp, UOp], ValidationVerdict]


def decide_values_of_callified_program(program: CallifiedGraph, decide: Decide) -> ValidationVerdict:
    """Decide that a callified program stores the values of its tensor graph, and has its effects. Nothing is refuted."""
    try:
        return replace(_decide_program(_ComparedProgram(program), decide), place="callify")
    except NotEvaluable as e:
        return leave_values_to_interpreter("callify", str(e))


class _ComparedProgram:
    """A tensor graph in normal form, and its callified program: items and effects in order, and the Buffer of each value.

    Raises NotEvaluable for a program whose arguments do not fit its Params, that writes what it does not name or passes twice, or
    that gives values in memory of the graph.
    """

    def __init__(self, program: CallifiedGraph) -> None:
        self.arguments = program.call.arguments
        self.items = root_items(_inline_and_normalize(program.root))
        self.effects = root_items(program.call.body)
        buffers = iter(program.buffers)
        self.buffers = [None if v.dtype is dt.void else next(buffers, None) for v in self.items]
        self.graph, self.body = toposort(*self.items), order_outside_kernels(program.call.body)
        memory = [a for a in self.arguments if a.op is Op.BUFFER]
        if len({a.arg.unique for a in memory}) < len(set(memory)):
            raise NotEvaluable("two arguments that are one memory")
        given = [b for b in self.buffers if b is not None]
        if len(set(given)) < len(given) or {b.arg.unique for b in given} & {u.arg.unique for u in self.graph if u.op is Op.BUFFER}:
            raise NotEvaluable("a value has no Buffer of its own")
        for u in self.body:
            if u.op is Op.BUFFER or (u.op is Op.PARAM and not _fits_argument_and_shape(u, self.arguments)):
                raise NotEvaluable("a Param of the program is of another kind than its argument")
        written = {base_memory(u.buffer).arg.slot for u in self.body if u.op is Op.STORE and base_memory(u.buffer).op is Op.PARAM}
        if set(program.call.arg.written or ()) != written and not any(u.op is Op.CALL for u in self.body):
            raise NotEvaluable("the program does not name what it writes")
        if any(self.arguments.count(self.arguments[slot]) > 1 for slot in written):
            raise NotEvaluable("memory that is written is two arguments")


def _fits_argument_and_shape(param: UOp, arguments: Sequence[UOp]) -> bool:
    """Return True if an argument is the variable, or memory of the shape and dtype, for which a Param stands."""
    if param.arg.slot is None or param.arg.slot >= len(arguments):
        return False
    argument = arguments[param.arg.slot]
    if argument.op not in MEMORY_ROOTS or param.dtype is not argument.dtype or not fits_argument(param, arguments):
        return False
    extents = [rebuild(dim_node(n), lambda u: _replace_by_argument(u, arguments)) for n in param.shape]
    return extents == [dim_node(n) for n in argument.shape]


def _decide_program(program: _ComparedProgram, decide: Decide) -> ValidationVerdict:
    verdict = ValidationVerdict(ObligationKind.VALUE, "callify", DecisionMethod.STRUCTURE)
    require_consistent_reads(program.items)
    require_consistent_reads(program.effects, are_ordered=True)
    if _has_items_of_graph(program):
        return verdict
    for expected, actual in _ElementComparison(program).list_pairs():
        of_pair = decide_pair(expected, actual, decide)
        if not of_pair.is_proved:
            raise NotEvaluable(of_pair.why or "the terms of a value differ")
        verdict = verdict if of_pair.by is DecisionMethod.STRUCTURE else of_pair
    return verdict


# One form


def _inline_and_normalize(root: UOp) -> UOp:
    """Return a graph with inlined Functions and Calls, without markers, on variables of index.

    Raises NotEvaluable for the Call of a kernel, and for a value that waits for an effect: a marker there is a copy.
    """
    inlined = rebuild(root, _replace_by_body)
    for u in toposort(inlined):
        if u.op is Op.AFTER and base_memory(u).op not in MEMORY_ROOTS:
            raise NotEvaluable("a value that waits for an effect")
    return rebuild(inlined, _normalize_marker_or_param)


def _replace_by_body(u: UOp) -> UOp:
    """Return the body of a Function or Call on its arguments, the element of a GetTuple, and any other node as it is.

    Raises NotEvaluable for the Call of a kernel.
    """
    if u.op is Op.GETTUPLE:
        element: UOp = u.src[0].src[u.arg.index]  # of the packed values
        return element
    if u.op not in CALL_LIKE:
        return u
    if u.op is Op.CALL and is_kernel_or_custom_function_body(u.body):
        raise NotEvaluable("a program that calls a kernel")
    params = [p for p in toposort(u.body) if p.op is Op.PARAM and p.arg.slot is not None]
    passed = {p: B.cast(u.arguments[p.arg.slot], p.dtype) for p in params if is_variable(p)}
    for p in params:
        argument = u.arguments[p.arg.slot]
        if p not in passed:
            extents = [substitute(dim_node(n), passed) for n in p.shape]
            has_shape = extents == [dim_node(n) for n in argument.shape]
            passed[p] = argument if has_shape else UOp(Op.RESHAPE, (argument, substitute(p.extents, passed)))
    applied = substitute(u.body, passed)
    return applied if u.op is Op.FUNCTION else B.group(*root_items(applied))


def _normalize_marker_or_param(u: UOp) -> UOp:
    """Return the operand of a marker, a variable as callify has it: an index, and index memory as it is stored: as int64 (R29)."""
    if u.op in MARKERS:
        operand: UOp = u.operand
        return operand
    if u.op is Op.PARAM and u.dtype is not dt.index and is_variable(u):
        return B.cast(u.replace(arg=ParamArg(u.arg.slot, dt.index, name=u.arg.name, bounds=u.arg.bounds)), u.dtype)
    if u.op is Op.PARAM and u.dtype is dt.index and not is_variable(u):
        return B.cast(u.replace(arg=replace(u.arg, dtype=dt.index.storage)), dt.index)
    return u


def _has_items_of_graph(program: _ComparedProgram) -> bool:
    """Return True if each effect is its item, or an ungated Store of it, with arguments in place of Params."""
    if len(program.effects) != len(program.items):
        return False
    arguments = program.arguments
    for item, effect, buffer in zip(program.items, program.effects, program.buffers, strict=True):
        if buffer is not None:
            if (
                effect.op is not Op.STORE
                or effect.gate is not None
                or not _covers_leading_elements(effect.buffer, item, buffer, arguments)
            ):
                return False
            item, effect = B.cast(item, item.dtype.storage), effect.value
        for u in order_outside_kernels(effect):
            if u.op is Op.CALL or (u.op is Op.AFTER and base_memory(u).op is not Op.PARAM):
                return False
            if u.op is Op.PARAM and u.arg.slot >= len(arguments):
                return False
        if rebuild(effect, lambda u: _replace_by_argument(u, arguments)) is not item:
            return False
    return True


def _replace_by_argument(u: UOp, arguments: Sequence[UOp]) -> UOp:
    if u.op is Op.PARAM:
        argument: UOp = arguments[u.arg.slot]
        return argument
    stated: UOp = u.operand if u.op in MARKERS else u
    return stated


def _covers_leading_elements(view: UOp, value: UOp, buffer: UOp, arguments: Sequence[UOp]) -> bool:
    """Return True if a view has the leading elements of a Buffer, in row-major order of a value."""
    memory = base_memory(view)
    if any(u.op is Op.AFTER for u in toposort(view)):
        return False
    if memory.op is not Op.PARAM or arguments[memory.arg.slot] is not buffer or view.shape != value.shape:
        return False
    expressions = ElementExpressions(lambda u, stores, index, gate: None)
    index = tuple(expressions.open_loop(n, AxisType.LOOP) for n in view.shape)
    return simplify_unrecorded(expressions.position_in(view, index)) is simplify_unrecorded(flatten_index(index, value.shape))


# Element by element


class _ElementComparison:
    """Elements of the values and of the written memory of a program, by its graph and by its body.

    Raises NotEvaluable for a program that calls kernels, or writes other memory of the caller than the graph.
    """

    def __init__(self, program: _ComparedProgram) -> None:
        self.program = program
        memory = [a for a in program.arguments if a.op in MEMORY_ROOTS and not is_variable(a)]
        self.argument_by_identity = {_identify_memory(a): a for a in memory}
        if len(self.argument_by_identity) < len(set(memory)):
            raise NotEvaluable("two arguments that are one memory")
        if any(u.op is Op.CALL or (u.op in WRITES and u.op is not Op.STORE) for u in (*program.graph, *program.body)):
            raise NotEvaluable("a program that calls a kernel, or adds atomically")
        self.stores_of_graph = self._list_stores(program.graph, self._find_argument_of_graph)
        self.stores_of_body = self._list_stores(program.body, self._find_argument_of_body)
        values = {b for b in program.buffers if b is not None}
        given = {self._find_argument_of_graph(u) for u in program.graph if u.op in MEMORY_ROOTS and not is_variable(u)}
        given |= {a for a in memory if a.op is Op.PARAM}
        if not self.stores_of_body.keys() & given <= self.stores_of_graph.keys() or values & given:
            raise NotEvaluable("memory of the caller is written that the graph does not write")

    def _list_stores(self, nodes: Sequence[UOp], find_argument: Callable[[UOp], UOp]) -> dict[UOp, list[UOp]]:
        """Return each memory, as the argument for it, and the Stores to it."""
        stores: dict[UOp, list[UOp]] = {}
        for u in nodes:
            if u.op is Op.STORE:
                if base_memory(u.buffer).op not in MEMORY_ROOTS:
                    raise NotEvaluable("a Store to what is no memory")
                stores.setdefault(find_argument(base_memory(u.buffer)), []).append(u)
        return stores

    def _find_argument_of_graph(self, u: UOp) -> UOp:
        """Return the argument for memory of the graph, which may be on several devices. Raises NotEvaluable if there is none."""
        argument = self.argument_by_identity.get(_identify_memory(u))
        if argument is None:
            raise NotEvaluable("memory that is no argument of the program")
        return argument

    def _find_argument_of_body(self, u: UOp) -> UOp:
        argument: UOp = self.program.arguments[u.arg.slot]
        return argument

    def list_pairs(self) -> Iterator[tuple[UOp, UOp]]:
        """Yield pairs of bodies that store a value, or written memory: by the graph, and by the body. Raises NotEvaluable."""
        for item, buffer in zip(self.program.items, self.program.buffers, strict=True):
            if buffer is not None:
                yield self._pair_contents(buffer, item, None)
            elif item.dtype is not dt.void:
                raise NotEvaluable("a value without a Buffer")
        for argument, stores in self.stores_of_graph.items():
            yield self._pair_contents(argument, base_memory(stores[0].buffer), stores)

    def _pair_contents(self, argument: UOp, value: UOp, stores: Sequence[UOp] | None) -> tuple[UOp, UOp]:
        """Return bodies that store the elements of a value, or of memory after Stores, to the argument: expected and actual."""
        memory = KernelMemory([(argument, 1)])
        by_graph = StoredElements(memory, self._find_argument_of_graph)
        by_body = StoredElements(memory, self._find_argument_of_body)
        stores_of_body = self.stores_of_body.get(argument, [])
        if not stores_of_body:
            raise NotEvaluable("a value, or memory, that no Store stores to")
        param = base_memory(stores_of_body[0].buffer)
        index = tuple(by_graph.expressions.open_loop(n, AxisType.LOOP) for n in value.shape)
        by_body.expressions.axis_ids = by_graph.expressions.axis_ids
        position = flatten_index(index, value.shape)
        expected = by_graph.expressions.element(value, index) if stores is None else by_graph.load(value, stores, index, TRUE)
        actual = by_body.load(param, stores_of_body, unflatten_position(position, param.shape), TRUE)
        address = memory.address((argument, 1), position)  # a version of its own: the initial contents stay readable
        loops = [r for r in index if r is not ZERO]
        bodies = []
        for element in (expected, actual):
            assert element is not None
            effect = B.wrap_in_one_end_per_loop(B.store(address, B.cast(element, address.dtype)), loops)
            bodies.append(_simplify_unless_enumerated(B.sink(effect)))
        return bodies[0], bodies[1]


def _simplify_unless_enumerated(body: UOp) -> UOp:
    """Return a large body in the form in which few of its iterations stand for all."""
    if is_enumerated(body):
        return body
    return simplify_and_count_iterations(body)


def _identify_memory(u: UOp) -> tuple[object, ...]:
    """Return a key that memory of the graph shares with the argument for it, whole or on several devices (R182)."""
    count = functools.reduce(B.mul, map(dim_node, u.shape), dim_node(1))
    number = u.arg.unique if u.op is Op.BUFFER else u.arg.slot
    return u.op, u.dtype.storage, number, count.arg if count.op is Op.CONST else count
