"""ONNX models of whole graphs, for the runtimes that take them. The operator of a node is the name of ONNX's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from uops.backends.contract import Missing
from uops.backends.subjects.host import Array
from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import (
    CompiledNodes,
    Node,
    NodeEvaluator,
    as_positions,
    make_elementwise_builder,
    make_node,
    sort_nodes,
)
from uops.backends.subjects.scripts.values import write_array
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: The version of ONNX's operators.
OPSET = 22
_SIGNED = (dt.int8, dt.int16, dt.int32, dt.int64)
_SIGNED_SHIFT = "ONNX shifts unsigned integers alone"
_SIGNED_DIVISION = "ONNX has no floor division: Div of integers truncates"


def _ints(numbers: Sequence[int]) -> Node:
    array = np.array(numbers, np.int64)
    return Node(dt.int64, array.shape, array)


def _make_unguarded_bit_shift_builder(direction: str) -> Callable[[Node, Node], Node]:
    def build(x: Node, n: Node) -> Node:
        return make_node("BitShift", x.dtype, np.broadcast_shapes(x.shape, n.shape), x, n, direction=direction)

    return build


def _make_remainder_of_c(x: Node, y: Node) -> Node:
    return make_node("Mod", x.dtype, np.broadcast_shapes(x.shape, y.shape), x, y, fmod=1)


class OnnxEvaluator(NodeEvaluator):
    """A runtime of ONNX models. A subclass runs a model."""

    lacks = (
        Missing("Decomposed/Mulacc", "float*", "ONNX has no fused multiply-add"),
        *(Missing("Elementwise/Idiv", d.name, _SIGNED_DIVISION) for d in _SIGNED),
        *(Missing(row, d.name, _SIGNED_SHIFT) for d in _SIGNED for row in ("Elementwise/Shl", "Elementwise/Shr")),
        Missing("Movement/Bitcast", "*", "its runtimes have no operator that reinterprets bits"),
    )
    is_probed = True

    def __init__(self) -> None:
        self.onnx = import_library("onnx", self.extra)
        #: Dtype -> ONNX's; positions are int64, also for a runtime that does not declare it.
        self.types = OnnxEvaluator.list_dtypes(self)
        super().__init__()

    #: The lines of a script that make `f` of a `model` with the inputs `names`.
    script_loader: ClassVar[tuple[str, ...]]

    @abstractmethod
    def load_document(self, document: bytes) -> CompiledNodes:
        """Load a serialized model."""

    def list_dtypes(self) -> dict[DType, Any]:
        """Return the dtypes that it shares with NumPy; the other floats have few kernels on the processor."""
        types = self.onnx.TensorProto
        names = {dt.bool_: "BOOL", dt.float32: "FLOAT", dt.float64: "DOUBLE"}
        return {d: getattr(types, names.get(d, d.name.upper())) for d in dt.STORABLE if not d.ml_dtypes_name}

    def list_functions(self) -> dict[Op, Callable[..., Node]]:
        """Return builders of ONNX operators. It has no Trunc, Exp2 and Log2."""
        make = make_elementwise_builder
        add, mul, equal = make("Add", None, "Or"), make("Mul", None, "And"), make("Equal", dt.bool_)
        compare = {
            Op.CMPLT: "Less", Op.CMPGT: "Greater", Op.CMPGE: "GreaterOrEqual", Op.CMPLE: "LessOrEqual", Op.CMPEQ: "Equal",
        }  # fmt: skip
        # fmt: off
        return {
            Op.ADD: add, Op.SUB: make("Sub"), Op.MUL: mul, Op.DIV: make("Div"), Op.NEG: make("Neg"),
            Op.MAX: make("Max", None, "Or"),
            Op.IDIV: make("Div"), Op.MOD: make("Mod"), Op.RECIP: make("Reciprocal"), Op.XOR: make("BitwiseXor", None, "Xor"),
            Op.OR: make("BitwiseOr", None, "Or"), Op.AND: make("BitwiseAnd", None, "And"), Op.NOT: make("Not"),
            Op.SHL: _make_unguarded_bit_shift_builder("LEFT"), Op.SHR: _make_unguarded_bit_shift_builder("RIGHT"),
            **{op: make(name, dt.bool_) for op, name in compare.items()}, Op.CMPNE: lambda a, b: make("Not")(equal(a, b)),
            Op.WHERE: make("Where"), Op.SIN: make("Sin"), Op.SQRT: make("Sqrt"), Op.POW: make("Pow"),
            Op.MULACC: lambda a, b, c: add(mul(a, b), c),
        }
        # fmt: on

    def list_optional_functions(self) -> dict[str, Callable[..., Node]]:
        """Return builders of ONNX operators. Mod of floats is C's fmod, and Div of integers truncates."""
        fmod, make = _make_remainder_of_c, make_elementwise_builder
        rounding = {"floor": make("Floor"), "ceil": make("Ceil"), "round_to_even": make("Round")}
        return rounding | {"fmod": fmod, "trunc_remainder": fmod, "trunc_divide": make("Div")}

    def cast(self, x: Node, source: DType, target: DType) -> Node:
        """Cast."""
        return make_node("Cast", target, x.shape, x, to=self.types[target])

    def bitcast(self, x: Node, source: DType, target: DType) -> Node:
        """Refuse."""
        raise Unsupported("an operator that reinterprets bits", self.name)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """Reshape; an extent of 0 is one."""
        return make_node("Reshape", x.dtype, shape, x, _ints(shape), allowzero=1)

    def permute(self, x: Node, order: Sequence[int]) -> Node:
        """Transpose."""
        return make_node("Transpose", x.dtype, [x.shape[k] for k in order], x, perm=list(order))

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Expand."""
        return make_node("Expand", x.dtype, shape, x, _ints(shape))

    def flip(self, x: Node, axes: Sequence[int]) -> Node:
        """Slice backwards."""
        ends = [-(1 << 62)] * len(axes)
        operands = [_ints(n) for n in ([-1] * len(axes), ends, axes, [-1] * len(axes))]
        return make_node("Slice", x.dtype, x.shape, x, *operands) if axes else x

    def pad(self, x: Node, widths: Sequence[tuple[int, int]]) -> Node:
        """Pad with zeros."""
        shape = [low + n + high for n, (low, high) in zip(x.shape, widths, strict=True)]
        before, behind = [low for low, _ in widths], [high for _, high in widths]
        return make_node("Pad", x.dtype, shape, x, _ints([*before, *behind])) if widths else x

    def shrink(self, x: Node, starts: Sequence[int], stops: Sequence[int]) -> Node:
        """Slice."""
        shape = [b - a for a, b in zip(starts, stops, strict=True)]
        return make_node("Slice", x.dtype, shape, x, _ints(starts), _ints(stops)) if shape else x

    def take(self, x: Node, positions: Any, axis: int) -> Node:
        """Gather."""
        positions = as_positions(positions)
        shape = (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :])
        return make_node("Gather", x.dtype, shape, x, positions, axis=axis)

    def stack(self, values: Sequence[Node]) -> Node:
        """Concatenate along a new axis."""
        first, axis = values[0], _ints([0])
        parts = [make_node("Unsqueeze", x.dtype, (1, *x.shape), x, axis) for x in values]
        return make_node("Concat", first.dtype, (len(values), *first.shape), *parts, axis=0)

    def scatter(self, flat: Node, positions: Any, values: Node) -> Node:
        """Scatter elements."""
        positions = as_positions(positions)
        return make_node("ScatterElements", flat.dtype, flat.shape, flat, positions, values, axis=0)

    def reduce(self, op: Op, x: Node, axes: tuple[int, ...], dtype: DType) -> Node:
        """Reduce; on bools the maximum is or, and the minimum is and."""
        names = {Op.ADD: "ReduceSum", Op.MUL: "ReduceProd", Op.MAX: "ReduceMax"}
        name = names[op] if dtype is not dt.bool_ else "ReduceMin" if op is Op.MUL else "ReduceMax"
        return make_node(name, dtype, [1 if k in axes else n for k, n in enumerate(x.shape)], x, _ints(axes), keepdims=1)

    def write_function(self, output: Node, inputs: Mapping[str, Node]) -> list[str]:
        """Write a model node by node, and load it."""
        model = _collect_parts_by_name([output], inputs)
        nodes = [
            f"    node({x.operator!r}, {x.operands}, [{x.name!r}]{''.join(f', {k}={v!r}' for k, v in x.attributes.items())}),"
            for x in model.nodes
        ]
        constants = [f"    onnx.numpy_helper.from_array({write_array(a)}, {name!r})," for name, a in model.constants.items()]
        used, results = (
            ", ".join(f"value({name!r}, {self.types[x.dtype]}, {x.shape})" for name, x in values.items())
            for values in (model.used, model.results)
        )
        return [
            "node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info",
            *("nodes = [", *nodes, "]"),
            *("constants = [", *constants, "]"),
            f'graph = onnx.helper.make_graph(nodes, "g", [{used}], [{results}], constants)',
            f'model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", {OPSET})], ir_version=10)',
            f"names = {list(model.used)}",
            *self.script_loader,
        ]

    def build(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> CompiledNodes:
        """Write a model of the nodes below `outputs`, and load it in a session of its own."""
        helper, parts = self.onnx.helper, _collect_parts_by_name(outputs, inputs)
        nodes = [helper.make_node(x.operator, x.operands, [x.name], **x.attributes) for x in parts.nodes]
        constants = [self.onnx.numpy_helper.from_array(a, name) for name, a in parts.constants.items()]
        used, results = (
            [helper.make_tensor_value_info(name, self.types[x.dtype], x.shape) for name, x in values.items()]
            for values in (parts.used, parts.results)
        )
        graph = helper.make_graph(nodes, "g", used, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        run = self.load_document(model.SerializeToString())
        return lambda arrays: run({k: arrays[k] for k in parts.used})


class _ModelNode(NamedTuple):
    """An operator of a model, with the names of its operands and of its result."""

    operator: str
    operands: list[str]
    name: str
    attributes: Mapping[str, Any]


class _ModelParts(NamedTuple):
    """The parts of a model by name. `used` are the inputs that it reads."""

    nodes: list[_ModelNode]
    constants: dict[str, Array]
    used: dict[str, Node]
    results: dict[str, Node]


def _collect_parts_by_name(outputs: Sequence[Node], inputs: Mapping[str, Node]) -> _ModelParts:
    """Name the nodes below `outputs`. An output has a name of its own, even if it is an input or a constant."""
    names = {id(node): key for key, node in inputs.items()}
    parts = _ModelParts([], {}, {}, {f"out{k}": x for k, x in enumerate(outputs)})
    for x in sort_nodes(outputs):
        name = names.setdefault(id(x), f"v{len(names)}")
        if x.array is not None:
            parts.constants[name] = x.array
        elif x.operator:
            parts.nodes.append(_ModelNode(x.operator, [names[id(s)] for s in x.operands], name, x.attributes))
        else:
            parts.used[name] = x
    parts.nodes.extend(_ModelNode("Identity", [names[id(x)]], name, {}) for name, x in parts.results.items())
    return parts
