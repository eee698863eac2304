"""Evaluation of a TENSOR graph on dual numbers, node by node.

A reference is memory at one time: all its elements, and the positions of those that are viewed. A Store gives a later state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from uops.interp.duals.elementwise import Dual, NotRational, Objects, as_objects, evaluate_elementwise
from uops.spec.errors import Trap
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import ALU, EFFECT_GROUPS, Op
from uops.spec.ir.scope import is_variable, scope_nodes, scope_sources

#: The position of an element that an Index puts outside of its memory, an address that may not be accessed (R45).
_OUTSIDE = -1


class MemoryView(NamedTuple):
    """The elements of a Buffer or Param at one time, and the positions of those that are viewed, some of them `_OUTSIDE`."""

    base: UOp
    elements: Dual
    positions: np.ndarray[Any, np.dtype[np.intp]]

    def load(self, gate: Any = True) -> Dual:
        """Return the viewed elements; one outside is 0. Raises Trap if the gate is true for one outside (R45)."""
        if ((self.positions == _OUTSIDE) & gate).any():
            raise _make_index_trap(self.base)
        value, tangent = (None if x is None else as_objects(np.append(x, 0)[self.positions]) for x in self.elements)
        assert value is not None
        return Dual(value, tangent)


#: The result of a node: a value, memory, the results of a Tuple, or nothing.
NodeResult = Dual | MemoryView | tuple[Any, ...] | None


def make_dual(elements: Any, d: DType, tangents: Any = None) -> Dual:
    """Return elements of a dtype as a dual, with tangents of zero unless they are given. Raises NotRational for inf and NaN."""
    plain = np.asarray(elements)
    if not d.is_float:
        python = (
            plain.astype(object) if plain.dtype == object else as_objects(np.array(plain.tolist(), object)).reshape(plain.shape)
        )
        return Dual(as_objects(python), None)
    if plain.dtype != object:
        wide = plain.astype(np.float64)
        if not np.isfinite(wide).all():
            raise NotRational("inf or NaN")
        plain = as_objects(np.array([Fraction(x) for x in wide.reshape(-1).tolist()] or [], object)).reshape(plain.shape)
    zeros = as_objects(Fraction(0), plain.shape)
    return Dual(as_objects(plain), as_objects(zeros if tangents is None else tangents))


def evaluate_duals(root: UOp, inputs: Mapping[str, Any], tangents: Mapping[str, Any] | None = None) -> tuple[Dual, ...]:
    """Return the values of a graph, one for each element of a Tuple, and their derivatives in the direction `tangents`.

    `inputs` has arrays by key, as the interpreter takes them; `tangents` arrays of fractions for some of them. Raises NotRational
    for what has no exact meaning, and Trap for an index, a window or an offset out of range. An index of memory that is out of
    range traps only where it is accessed.
    """
    results = _Machine(inputs, tangents or {}, None).evaluate(root)
    values = (results,) if results is None or isinstance(results, (Dual, MemoryView)) else results
    return tuple(_value_of(r) for r in values)


def _value_of(r: NodeResult) -> Dual:
    if isinstance(r, MemoryView):
        return r.load()
    assert isinstance(r, Dual)
    return r


def _make_index_trap(memory: UOp) -> Trap:
    return Trap(f"an access of {memory.op.name} of shape {memory.shape} is at an index out of range (R45)")


def _window_or_trap_outside(
    u: UOp, offsets: tuple[int, ...], sizes: tuple[int, ...], extents: tuple[int, ...]
) -> tuple[slice, ...]:
    """Return the slices of `sizes` elements at `offsets`. Raises Trap unless they lie inside `extents` (R43, R44, R46)."""
    if any(o < 0 or n < 0 or o + n > s for o, n, s in zip(offsets, sizes, extents, strict=True)):
        raise Trap(f"{u.op.name}: {sizes} at {offsets} is not inside {extents}")
    return tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))


class _Machine:
    """The evaluation of one scope: the graph, or the body of a Function with its arguments."""

    def __init__(self, inputs: Mapping[str, Any], tangents: Mapping[str, Any], arguments: tuple[NodeResult, ...] | None) -> None:
        self.inputs, self.tangents, self.arguments = inputs, tangents, arguments
        self.done: dict[UOp, NodeResult] = {}

    def evaluate(self, root: UOp) -> NodeResult:
        """Return the result of a node."""
        for u in scope_nodes(root):
            if u not in self.done:
                self.done[u] = self._evaluate_node(u, [self.done[s] for s in scope_sources(u)])
        return self.done[root]

    def _evaluate_node(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        if u.op in ALU or u.op is Op.CAST:
            return evaluate_elementwise(u, [_value_of(s) for s in sources])
        if u.op in _VIEWS and isinstance(sources[0], MemoryView):
            memory = sources[0]
            return memory._replace(positions=self._move(u, memory.positions))
        if u.op in _MOVEMENTS:
            return self._move_dual(u, _value_of(sources[0]))
        evaluate = _BY_OP.get(u.op)
        if evaluate is None:
            raise NotRational(u.op.name)
        return evaluate(self, u, sources)

    # Sources

    def _evaluate_const(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        return make_dual(u.arg.value, u.dtype)

    def _evaluate_param(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        if is_variable(u) and (u.arg.slot is None or self.arguments is None):
            return make_dual(self.inputs[u.arg.name], u.dtype)
        if self.arguments is not None:
            argument: NodeResult = self.arguments[u.arg.slot]
            return argument
        return self._read_input(f"p{u.arg.slot}", u, self._dims(u.shape))

    def _evaluate_buffer(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        key, shape = f"b{u.arg.unique}", self._dims(u.shape)
        return self._read_input(key, u, shape) if key in self.inputs else self._view(u, make_dual(np.zeros(shape), u.dtype), shape)

    def _read_input(self, key: str, u: UOp, shape: tuple[int, ...]) -> NodeResult:
        elements = np.asarray(self.inputs[key]).reshape(shape)
        tangent = self.tangents.get(key)
        return self._view(u, make_dual(elements, u.dtype, None if tangent is None else np.reshape(tangent, shape)), shape)

    def _view(self, u: UOp, d: Dual, shape: tuple[int, ...]) -> MemoryView:
        flat = Dual(d.value.reshape(-1), None if d.tangent is None else d.tangent.reshape(-1))
        return MemoryView(u, flat, np.arange(math.prod(shape)).reshape(shape))

    def _dims(self, shape: tuple[Dim, ...]) -> tuple[int, ...]:
        """Return extents as ints, symbolic ones evaluated."""
        return tuple(int(_value_of(self.evaluate(n)).value.item()) if isinstance(n, UOp) else n for n in shape)

    def _entries(self, shape_operand: UOp) -> tuple[int, ...]:
        return tuple(int(_value_of(self.evaluate(n)).value.item()) for n in shape_operand.elements)

    # Movement

    def _move_dual(self, u: UOp, d: Dual) -> Dual:
        zero: Any = Fraction(0) if d.tangent is not None else False if u.dtype.kind is DTypeKind.BOOL else 0
        return Dual(
            as_objects(self._move(u, d.value, zero)), None if d.tangent is None else as_objects(self._move(u, d.tangent, zero))
        )

    def _move(self, u: UOp, x: Any, zero: Any = None) -> Any:
        """Move the elements of `x` as the movement op does; `zero` fills what a Pad adds."""
        match u.op:
            case Op.PERMUTE:
                return x.transpose(u.arg.order)
            case Op.FLIP:
                return x[tuple(slice(None, None, -1 if f else 1) for f in u.arg.flags)]
            case Op.RESHAPE:
                return x.reshape(self._dims(u.shape))
            case Op.EXPAND:
                return np.broadcast_to(x, self._dims(u.shape))
            case Op.SHRINK:
                return x[_window_or_trap_outside(u, self._entries(u.offsets), self._dims(u.shape), x.shape)]
            case Op.PAD:
                new = self._dims(u.shape)
                window = _window_or_trap_outside(u, self._entries(u.offsets), x.shape, new)
                out = np.full(new, zero, object)
                out[window] = x
                return out
            case Op.REPLICATED:
                return x[tuple(slice(0, 1) if k in u.arg.axes else slice(None) for k in range(x.ndim))]
            case Op.SLICE if u.dtype is u.operand.dtype:
                start = self._entries(UOp(Op.STACK, (u.offset,)))
                return x[_window_or_trap_outside(u, start, (u.arg.size,), x.shape)]
            case Op.INDEX:
                return self._index(u, x, is_view=zero is None)
        raise NotRational(u.op.name)

    def _index(self, u: UOp, x: Any, *, is_view: bool) -> Any:
        """Return the elements at the positions. For those of a view, an index out of range is `_OUTSIDE`, else a Trap (R45)."""
        for axis, position in reversed([*enumerate(u.positions)]):
            numbers = np.array(_value_of(self.evaluate(position)).value.tolist(), np.int64)
            extent = x.shape[axis]
            outside = (numbers < 0) | (numbers >= extent)
            if is_view:
                x = np.insert(x, extent, _OUTSIDE, axis)
                numbers = np.where(outside, extent, numbers)
            elif outside.any():
                raise Trap(f"an index is out of range for an axis of extent {extent} (R45)")
            x = np.take(x, numbers, axis)
        return x

    def _evaluate_stack(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        duals = [_value_of(s) for s in sources]
        if not duals:
            return make_dual(np.zeros((0,), np.int64), u.dtype)
        tangents = [d.tangent for d in duals]
        value = np.stack([d.value for d in duals])
        return Dual(value, None if tangents[0] is None else np.stack([t for t in tangents if t is not None]))

    # Reductions

    def _evaluate_reduce_over_axes(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        if len(sources) > 1:
            raise NotRational("a Reduce over Ranges")
        value, tangent = _value_of(sources[0])
        axes = u.arg.axes
        kept = tuple(k for k in range(value.ndim) if k not in axes)
        shape = tuple(1 if k in axes else n for k, n in enumerate(value.shape))
        rows = value.transpose(kept + axes).reshape(
            math.prod(value.shape[k] for k in kept), math.prod(value.shape[k] for k in axes)
        )
        if tangent is None:
            one = UOp(u.arg.op, (u.operand, u.operand))
            start = {Op.ADD: 0, Op.MUL: 1}.get(u.arg.op)
            if start is None and not rows.shape[1]:
                raise NotRational("the greatest of no integers")
            out = [_fold_integers_or_bools_without_tangents(one, row.tolist(), start) for row in rows]
            return Dual(as_objects(np.array(out, object)).reshape(shape), None)
        changes = tangent.transpose(kept + axes).reshape(rows.shape)
        pairs = [_REDUCTIONS[u.arg.op](row.tolist(), change.tolist()) for row, change in zip(rows, changes, strict=True)]
        values, tangents = (as_objects(np.array([p[k] for p in pairs], object)).reshape(shape) for k in (0, 1))
        return Dual(values, tangents)

    # Calls and memory

    def _evaluate_function(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        return _Machine(self.inputs, self.tangents, tuple(sources)).evaluate(u.body)

    def _evaluate_tuple(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        return tuple(sources)

    def _evaluate_gettuple(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        packed = sources[0]
        assert isinstance(packed, tuple)
        element: NodeResult = packed[u.arg.index]
        return element

    def _evaluate_same(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        return _value_of(sources[0])

    def _evaluate_detached(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        value, tangent = _value_of(sources[0])
        return Dual(value, None if tangent is None else as_objects(Fraction(0), value.shape))

    def _evaluate_load(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        if u.gate is None:
            return _value_of(sources[0])
        gate = _value_of(sources[2]).value.astype(bool)
        loaded = sources[0].load(gate) if isinstance(sources[0], MemoryView) else _value_of(sources[0])
        chosen = np.broadcast_to(gate, loaded.value.shape)
        other = _value_of(sources[1])
        tangent = None if loaded.tangent is None else as_objects(np.where(chosen, loaded.tangent, other.tangent_of_float))
        return Dual(as_objects(np.where(chosen, loaded.value, other.value)), tangent)

    def _evaluate_effect(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        return None

    def _evaluate_after(self, u: UOp, sources: list[NodeResult]) -> NodeResult:
        memory = sources[0]
        if not isinstance(memory, MemoryView):
            raise NotRational("After of what is no memory")
        elements, start = memory.elements, None
        for store in _list_stores(u):
            target = self.done[store.buffer]
            assert isinstance(target, MemoryView)
            if target.base is not memory.base:
                continue
            if start is None:
                elements = start = target.elements
            elif target.elements is not start:
                raise NotRational("several Stores to several states of one memory")
            elements = self._store(store, target.positions, elements)
        return MemoryView(memory.base, elements, memory.positions)

    def _store(self, store: UOp, positions: Any, before: Dual) -> Dual:
        new = _value_of(self.done[store.value])
        gate = None if store.gate is None else np.broadcast_to(_value_of(self.done[store.gate]).value, positions.shape).astype(bool)

        def write(old: Objects, stored: Objects) -> Objects:
            out = old.copy()
            for k, x, is_on in zip(
                positions.reshape(-1).tolist(), stored.reshape(-1), [True] * positions.size if gate is None else gate.reshape(-1)
            ):
                if is_on:
                    if k == _OUTSIDE:
                        raise _make_index_trap(store.buffer)
                    out[k] = x
            return out

        tangent = None if before.tangent is None or new.tangent is None else write(before.tangent, new.tangent)
        return Dual(write(before.value, new.value), tangent)


def _list_stores(after: UOp) -> list[UOp]:
    """Return the Stores that an After waits for, in order. Raises NotRational for other effects."""
    stores, stack = list[UOp](), list(reversed(after.dependencies))
    while stack:
        u = stack.pop()
        if u.op in EFFECT_GROUPS:
            stack.extend(reversed(u.effects))
        elif u.op is Op.STORE:
            stores.append(u)
        else:
            raise NotRational(f"After of {u.op.name}")
    return stores


def _fold_integers_or_bools_without_tangents(binary_node: UOp, row: list[Any], start: Any) -> Any:
    """Return integers or bools combined by the op of `binary_node`."""
    items = row if start is None else [bool(start) if binary_node.dtype.kind is DTypeKind.BOOL else start, *row]
    total = make_dual(items[0], binary_node.dtype)
    for x in items[1:]:
        total = evaluate_elementwise(binary_node, [total, make_dual(x, binary_node.dtype)])
    return total.value.item()


def _sum(row: list[Fraction], change: list[Fraction]) -> tuple[Fraction, Fraction]:
    return sum(row, Fraction(0)), sum(change, Fraction(0))


def _product(row: list[Fraction], change: list[Fraction]) -> tuple[Fraction, Fraction]:
    """Return the product and its derivative, by the product rule one factor at a time."""
    value, tangent = Fraction(1), Fraction(0)
    for x, dx in zip(row, change, strict=True):
        value, tangent = value * x, tangent * x + value * dx
    return value, tangent


def _max_with_mean_tangent_of_ties(row: list[Fraction], tangents: list[Fraction]) -> tuple[Fraction, Fraction]:
    """Return the greatest, and the mean of the tangents of those that are equal to it (R78)."""
    if not row:
        raise NotRational("the greatest of no numbers")
    value = max(row)
    winners = [dx for x, dx in zip(row, tangents, strict=True) if x == value]
    return value, sum(winners, Fraction(0)) / len(winners)


_REDUCTIONS: dict[Op, Callable[[list[Fraction], list[Fraction]], tuple[Fraction, Fraction]]] = {
    Op.ADD: _sum,
    Op.MUL: _product,
    Op.MAX: _max_with_mean_tangent_of_ties,
}
_MOVEMENTS = frozenset({Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.SLICE, Op.REPLICATED})
_VIEWS = frozenset({Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.SHRINK, Op.INDEX, Op.SLICE})
_BY_OP: dict[Op, Callable[[_Machine, UOp, list[NodeResult]], NodeResult]] = {
    Op.CONST: _Machine._evaluate_const,
    Op.PARAM: _Machine._evaluate_param,
    Op.BUFFER: _Machine._evaluate_buffer,
    Op.STACK: _Machine._evaluate_stack,
    Op.REDUCE: _Machine._evaluate_reduce_over_axes,
    Op.FUNCTION: _Machine._evaluate_function,
    Op.TUPLE: _Machine._evaluate_tuple,
    Op.GETTUPLE: _Machine._evaluate_gettuple,
    Op.DETACH: _Machine._evaluate_detached,
    Op.LOAD: _Machine._evaluate_load,
    Op.AFTER: _Machine._evaluate_after,
    **dict.fromkeys((Op.STORE, Op.GROUP, Op.SINK), _Machine._evaluate_effect),
    **dict.fromkeys((Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD), _Machine._evaluate_same),
}
