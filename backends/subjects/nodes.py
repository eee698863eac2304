"""Graphs of nodes, for libraries that take a whole graph in a form of their own: a model, a text, or a module.

A value is a node. It has a dtype, a shape, and an operator in whatever form the library's adapter reads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.host import Array
from uops.backends.subjects.library import GraphFunction
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An array, an input (no array and no operator), or an operator with operands and attributes."""

    dtype: DType
    shape: tuple[int, ...]
    array: Array | None = None
    operator: Any = None
    operands: tuple[Node, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


#: Arrays of the inputs by key -> arrays of the outputs.
CompiledNodes = Callable[[Mapping[str, Array]], list[Array]]


class NodeEvaluator(Evaluator):
    """A library that takes whole graphs alone. A subclass builds a function of the nodes below the outputs."""

    has_eager_mode = False

    def write_function(self, output: Node, inputs: Mapping[str, Node]) -> list[str]:
        """Return the lines of a script that define `f`, a function of NumPy arrays that returns one. Raises Unsupported."""
        raise Unsupported("a script: its adapter does not write one", self.name)

    @abstractmethod
    def build(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> CompiledNodes:
        """Compile the nodes below the outputs, of which there is at least one."""

    def import_array(self, array: Array, dtype: DType) -> Node:
        """Return a copy, which is a constant unless `compile` makes an input of it."""
        return Node(dtype, array.shape, np.array(array, order="C"))

    def export_array(self, value: Node, dtype: DType) -> Array:
        """Return a copy."""
        return np.array(value.array if value.array is not None else self.build([value], {})({})[0], order="C")

    def constant(self, value: bool | int | float, dtype: DType) -> Node:
        """Return a constant of shape ()."""
        return Node(dtype, (), np.array(value, STORAGE[dtype]))

    def compile(self, function: GraphFunction) -> GraphFunction:
        """Build a function of the graph at the first call, with its arguments as inputs."""
        built: list[tuple[tuple[Node, ...], CompiledNodes]] = []

        def build_on_first_call_and_run(arrays: dict[str, Node]) -> tuple[Node, ...]:
            if not built:
                inputs = {k: Node(x.dtype, x.shape) for k, x in arrays.items()}
                outputs = function(inputs)
                built.append((outputs, self.build(outputs, inputs) if outputs else lambda _: []))
            ((outputs, run),) = built
            results = run({k: x.array for k, x in arrays.items() if x.array is not None})
            return tuple(Node(x.dtype, x.shape, r) for x, r in zip(outputs, results, strict=True))

        return build_on_first_call_and_run


def make_node(operator: Any, dtype: DType, shape: Sequence[int], /, *operands: Node, **attributes: Any) -> Node:
    """Return an operator of operands."""
    return Node(dtype, tuple(shape), None, operator, operands, attributes)


def make_elementwise_node(operator: Any, operands: Sequence[Node], result_dtype: DType | None = None) -> Node:
    """Return an operator that broadcasts; `result_dtype` is that of the result, if it is not the last operand's."""
    return make_node(operator, result_dtype or operands[-1].dtype, np.broadcast_shapes(*(x.shape for x in operands)), *operands)


def make_elementwise_builder(operator: Any, result_dtype: DType | None = None, bool_operator: Any = None) -> Callable[..., Node]:
    """Return a builder of an operator that broadcasts; bools may have another operator."""

    def build(*operands: Node) -> Node:
        is_bool = bool_operator is not None and operands[-1].dtype is dt.bool_
        return make_elementwise_node(bool_operator if is_bool else operator, operands, result_dtype)

    return build


def as_positions(positions: Node | Array) -> Node:
    """Return positions, which may be an array of the host, as a node."""
    return Node(dt.int64, positions.shape, positions) if isinstance(positions, np.ndarray) else positions


def sort_nodes(outputs: Sequence[Node]) -> list[Node]:
    """Return the nodes below `outputs`, operands first."""
    order: dict[int, Node] = {}
    stack = [(x, False) for x in reversed(outputs)]
    while stack:
        x, is_expanded = stack.pop()
        if id(x) in order:
            continue
        if is_expanded:
            order[id(x)] = x
        else:
            stack += [(x, True), *((s, False) for s in reversed(x.operands))]
    return list(order.values())
