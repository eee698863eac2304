"""Values of a callified program: what it stores for each value of the tensor graph, and its effects.

Takes: a graph of TENSOR, the Call that callify made of it, and the Buffer of each value. Gives: one verdict.

The graph and the body are brought to one form: Functions are replaced by their bodies, markers by their operands, and a Param of the
body by the argument that it stands for. If the items then are the same nodes, the program is proved. Parts of values on several
devices have no such form. There the element of each value is written as an expression, by the graph and by the body, and both are
compared. Spec: R51 (references), R64 (Function), R73 (n-tuple Buffer), R76 (null axis on D), R175 (Contiguous), R182 (memory of
callers).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.log import CallifiedGraph, record_transforms
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.validate.arrays.definitions import KernelMemory, decide_pair
from uops.compiler.validate.arrays.elements import (
    TRUE,
    ZERO,
    ElementExpressions,
    Index,
    align_index,
    flatten_index,
    unflatten_position,
)
from uops.compiler.validate.arrays.forms import count_iterations_in_closed_form
from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.model import DecisionMethod, ObligationKind, ValidationVerdict
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import UOp, ops_below, rebuild, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, MARKERS, MEMORY_ROOTS, WRITES, Op
from uops.spec.ir.scope import base_memory, is_variable, root_items
from uops.spec.verify.infer import is_kernel_or_custom_function_body

#: The check that covers a program whose values are not decided.
COVERED = "stages: every bit, unless floats are reduced (R32)"
#: Decides that two bodies store the same.
Decide = Callable[[UOp, UOp], ValidationVerdict]


def decide_values_of_callified_program(program: CallifiedGraph, decide: Decide) -> ValidationVerdict:
    """Decide that a callified program stores the values of its tensor graph, and has its effects."""
    try:
        return replace(_decide_program(_ComparedProgram(program), decide), place="callify")
    except NotEvaluable as e:
        return leave_values_to_interpreter(str(e))


def leave_values_to_interpreter(reason: str) -> ValidationVerdict:
    """Return the verdict on a program whose values are not decided."""
    why = f"{COVERED} ({reason})"
    return ValidationVerdict(ObligationKind.VALUE, "callify", DecisionMethod.INTERPRETER, why=why)


class _ComparedProgram:
    """A tensor graph in normal form, and its callified program: items and effects in order, and the Buffer of each value."""

    def __init__(self, program: CallifiedGraph) -> None:
        self.arguments = program.call.arguments
        self.items = root_items(_state_graph_without_functions(program.root))
        self.effects = root_items(program.call.body)
        if len(self.effects) < len(self.items):
            raise NotEvaluable("the program lacks an effect")
        buffers = iter(program.buffers)
        self.buffers = [None if v.dtype is dt.void else next(buffers, None) for v in self.items]
        memory = {u for u in toposort(program.root) if u.op is Op.BUFFER}
        given = [b for b in self.buffers if b is not None]
        if len(set(given)) < len(given) or not memory.isdisjoint(given):
            raise NotEvaluable("a value has no Buffer of its own")


def _decide_program(program: _ComparedProgram, decide: Decide) -> ValidationVerdict:
    if _has_items_of_graph(program):
        return ValidationVerdict(ObligationKind.VALUE, "callify", DecisionMethod.STRUCTURE)
    if any(not WRITES.isdisjoint(ops_below(v)) for v in program.items):
        raise NotEvaluable("a program with Stores of its own, on several devices or with copies of what it overwrites")
    verdict = ValidationVerdict(ObligationKind.VALUE, "callify", DecisionMethod.STRUCTURE)
    for k in range(len(program.items)):
        verdict = decide_pair(*_state_value_and_effect(program, k), decide)
        if not verdict.is_proved:
            raise NotEvaluable(verdict.why or f"the terms of value {k} differ")
    return verdict


# One form


def _state_graph_without_functions(root: UOp) -> UOp:
    """Return a graph with the bodies of its Functions and Calls in place of these, without markers, on variables of index.

    Raises NotEvaluable for the Call of a kernel.
    """

    def state(u: UOp) -> UOp:
        if u.op in CALL_LIKE:
            return _apply_body(u)
        if u.op is Op.GETTUPLE:
            element: UOp = u.src[0].src[u.arg.index]  # of the packed values
            return element
        if u.op in MARKERS:
            operand: UOp = u.operand
            return operand
        if u.op is Op.PARAM and u.dtype is not dt.index and is_variable(u):
            return B.cast(u.replace(arg=ParamArg(u.arg.slot, dt.index, name=u.arg.name, bounds=u.arg.bounds)), u.dtype)
        if u.op is Op.PARAM and u.dtype is dt.index and not is_variable(u):
            return B.cast(u.replace(arg=replace(u.arg, dtype=dt.index.storage)), dt.index)
        return u

    for u in toposort(root):
        if u.op is Op.AFTER and base_memory(u).op not in MEMORY_ROOTS:
            raise NotEvaluable("a value that waits for an effect")
    return rebuild(root, state)


def _apply_body(call: UOp) -> UOp:
    """Return the body of a Function, or the effects of a Call, on its arguments."""
    body, arguments = call.body, call.arguments
    if call.op is Op.CALL and is_kernel_or_custom_function_body(body):
        raise NotEvaluable("a program that calls a kernel")
    params = {u: arguments[u.arg.slot] for u in toposort(body) if u.op is Op.PARAM and u.arg.slot is not None}
    applied = substitute(body, params)
    return applied if call.op is Op.FUNCTION else B.group(*root_items(applied))


def _has_items_of_graph(program: _ComparedProgram) -> bool:
    """Return True if the effects are the items of the graph, or store them, once Params are the arguments for which they stand."""
    if len(program.effects) != len(program.items):
        return False
    arguments = program.arguments
    for item, effect, buffer in zip(program.items, program.effects, program.buffers, strict=True):
        if buffer is not None:
            if effect.op is not Op.STORE or effect.gate is not None or not _is_front(effect.buffer, item, buffer, arguments):
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


def _is_front(view: UOp, value: UOp, buffer: UOp, arguments: Sequence[UOp]) -> bool:
    """Return True if a view is of the first elements of a Buffer, in row-major order of a value."""
    memory = base_memory(view)
    if memory.op is not Op.PARAM or arguments[memory.arg.slot] is not buffer or view.shape != value.shape:
        return False
    expressions = ElementExpressions(lambda u, stores, index, gate: None)
    index = tuple(expressions.open_loop(n, AxisType.LOOP) for n in view.shape)
    with record_transforms():  # what is simplified here is no step of the lowering
        simplify = Rewriter(INDEXING)
        return simplify(expressions.position_in(view, index)) is simplify(flatten_index(index, value.shape))


# Element by element


def _state_value_and_effect(program: _ComparedProgram, k: int) -> tuple[UOp, UOp]:
    """Return a body that stores value `k` of the graph, and one that stores what its effect does. Raises NotEvaluable."""
    value, effect, buffer = program.items[k], program.effects[k], program.buffers[k]
    if buffer is None or effect.op is not Op.STORE or effect.gate is not None:
        raise NotEvaluable("a value that no Store stores")
    target = base_memory(effect.buffer)
    if target.op is not Op.PARAM or program.arguments[target.arg.slot] is not buffer:
        raise NotEvaluable("a value that is stored to another Buffer than its own")
    memory = KernelMemory([(buffer, 0)])
    arguments = {_identify_memory(a): a for a in program.arguments if a.op in MEMORY_ROOTS and not is_variable(a)}

    def load_of_graph(u: UOp, stores: frozenset[UOp], index: Index, gate: UOp) -> UOp | None:
        if u.op not in MEMORY_ROOTS or is_variable(u):
            return None
        argument = arguments.get(_identify_memory(u))
        if argument is None:
            raise NotEvaluable("memory that is no argument of the program")
        return memory.load((argument, 0), flatten_index(index, u.shape), gate)

    temporaries = _TemporaryMemory(program, memory)
    by_graph, by_body = ElementExpressions(load_of_graph), temporaries.expressions
    index = tuple(by_graph.open_loop(n, AxisType.LOOP) for n in value.shape)
    stored_at = tuple(by_body.open_loop(n, AxisType.LOOP) for n in effect.buffer.shape)
    pairs = (
        (index, flatten_index(index, value.shape), by_graph.element(value, index)),
        (
            stored_at,
            by_body.position_in(effect.buffer, stored_at),
            by_body.element_of_operand(effect.value, stored_at),
        ),
    )
    with record_transforms():  # what is simplified here is no step of the lowering
        simplify = Rewriter(INDEXING)
        stated, done = (
            simplify(count_iterations_in_closed_form(simplify(_store_element(memory, buffer, *p)))) for p in pairs
        )
    return stated, done


def _store_element(memory: KernelMemory, buffer: UOp, index: Index, position: UOp, element: UOp) -> UOp:
    address = memory.address((buffer, 0), position)
    effect = B.store(address, B.cast(element, address.dtype))
    return B.sink(B.wrap_in_one_end_per_loop(effect, [r for r in index if r is not ZERO]))


def _identify_memory(u: UOp) -> tuple[object, ...]:
    """Return what memory of the caller has in common with the argument for it, whole or on several devices (R182)."""
    count = dim_node(1)
    for n in u.shape:
        count = B.mul(count, dim_node(n))
    return u.op, u.dtype.storage, u.arg.unique if u.op is Op.BUFFER else u.arg.slot, count if count.op is not Op.CONST else count.arg


class _TemporaryMemory:
    """Elements of a body, in which memory of its own has the values that Stores to boxes of it have left."""

    def __init__(self, program: _ComparedProgram, memory: KernelMemory) -> None:
        self.arguments, self.memory = program.arguments, memory
        self.expressions = ElementExpressions(self.load)

    def load(self, u: UOp, stores: frozenset[UOp], index: Index, gate: UOp) -> UOp | None:
        """Return an element of memory after Stores to it: of the value that was stored there, or of what the memory held before."""
        if u.op is not Op.PARAM or is_variable(u):
            return None
        position = flatten_index(index, u.shape)
        element = self.memory.load((self.arguments[u.arg.slot], 0), position, gate)
        _require_disjoint_boxes(stores)
        for store in stores:
            inside, target_index = _find_index_in_view(store.buffer, position)
            gate_inside = UOp(Op.AND, (gate, inside))
            value = self.expressions.element(store.value, align_index(target_index, store.value), gate_inside)
            element = B.where(inside, value, element)
        return element


def _find_index_in_view(view: UOp, position: UOp) -> tuple[UOp, Index]:
    """Return the condition under which a view has the element of its memory at a position, and its index in the view."""
    views = []
    while view.op is not Op.PARAM:
        views.append(view)
        view = view.src[0]  # operand, or buffer of an After
    index, inside = unflatten_position(position, view.shape), TRUE
    for u in reversed(views):
        if u.op is Op.RESHAPE:
            index = unflatten_position(flatten_index(index, u.operand.shape), u.shape)
        elif u.op is Op.SHRINK:
            index = tuple(B.sub(i, o) for i, o in zip(index, _list_offsets(u), strict=True))
            for i, n in zip(index, u.shape, strict=True):
                for part in (UOp(Op.CMPGE, (i, ZERO)), UOp(Op.CMPLT, (i, dim_node(n)))):
                    inside = UOp(Op.AND, (inside, part))
        elif u.op is not Op.AFTER:
            raise NotEvaluable(f"a Store to a {u.op.name} of memory of the program itself")
    return inside, index


def _require_disjoint_boxes(stores: frozenset[UOp]) -> None:
    """Raise NotEvaluable unless Stores write different elements of one view: boxes that differ along some axis."""
    if len(stores) < 2:
        return
    views, boxes = set(), []
    for store in stores:
        target = store.buffer
        is_cut = target.op is Op.SHRINK
        views.add(target.operand if is_cut else target)
        boxes.append([(o, o + n) for o, n in zip(_list_offsets(target) if is_cut else [0] * len(target.shape), target.shape)])
    for a, b in itertools.combinations(boxes, 2):
        if len(views) > 1 or not any(x[1] <= y[0] or y[1] <= x[0] for x, y in zip(a, b, strict=True)):
            raise NotEvaluable("Stores that may write the same elements of memory of the program itself")


def _list_offsets(shrink: UOp) -> list[int]:
    """Return the offsets of a Shrink. Raises NotEvaluable unless they, and its extents, are constants."""
    offsets = shrink.offsets.constants_of_stack
    if offsets is None or not all(isinstance(n, int) for n in shrink.shape):
        raise NotEvaluable("a part of memory of the program itself that depends on variables")
    return [int(o) for o in offsets]
