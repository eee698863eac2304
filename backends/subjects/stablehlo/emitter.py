"""StableHLO modules of whole graphs as text. A value is a node of a model, and its operator that of StableHLO."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import Missing
from uops.backends.subjects.host import Array
from uops.backends.subjects.nodes import CompiledNodes, Node, NodeEvaluator, make_node, sort_nodes
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import COMPARE, Op

#: Dtype -> the element type of StableHLO.
_TYPES = {
    dt.bool_: "i1", dt.int8: "i8", dt.int16: "i16", dt.int32: "i32", dt.int64: "i64", dt.uint8: "ui8", dt.uint16: "ui16",
    dt.uint32: "ui32", dt.uint64: "ui64", dt.fp8e4m3: "f8E4M3FN", dt.fp8e5m2: "f8E5M2", dt.float16: "f16", dt.bfloat16: "bf16",
    dt.float32: "f32", dt.float64: "f64",
}  # fmt: skip
#: Op -> the operator of the same meaning. On bools, `add` and `maximum` are or, and `multiply` is and.
_OPERATORS = {
    Op.ADD: "add", Op.SUB: "subtract", Op.MUL: "multiply", Op.DIV: "divide", Op.NEG: "negate", Op.MAX: "maximum", Op.IDIV: "divide",
    Op.MOD: "remainder", Op.XOR: "xor", Op.OR: "or", Op.AND: "and", Op.SHL: "shift_left", Op.NOT: "not", Op.WHERE: "select",
    Op.SIN: "sine", Op.SQRT: "sqrt", Op.POW: "power",
}  # fmt: skip
#: Comparison -> its direction.
_DIRECTIONS = {Op.CMPLT: "LT", Op.CMPNE: "NE", Op.CMPGT: "GT", Op.CMPGE: "GE", Op.CMPLE: "LE", Op.CMPEQ: "EQ"}
_SIGNED = ("int8", "int16", "int32", "int64")


class StableHloEvaluator(NodeEvaluator):
    """A compiler of StableHLO. A subclass compiles a text."""

    lacks = (
        *(Missing("Decomposed/Mulacc", d, "StableHLO has no fused multiply-add") for d in ("*float*", "fp8*")),
        *(Missing("Elementwise/Idiv", d, "StableHLO has no floor division: divide truncates") for d in _SIGNED),
        *(Missing("Elementwise/Mod", d, "remainder has the sign of the dividend") for d in _SIGNED),
        Missing("Movement/Bitcast", "bool", "StableHLO does not define the bits of bools"),
    )

    #: The lines of a script that make `f` of the module `TEXT`.
    script_loader: ClassVar[tuple[str, ...]]

    @abstractmethod
    def load_text(self, text: str, outputs: Sequence[Node]) -> Callable[[list[Array]], list[Array]]:
        """Compile a module, whose function `main` has all inputs as arguments, and load it."""

    def list_dtypes(self) -> dict[DType, Any]:
        """Return all dtypes."""
        return dict(_TYPES)

    def list_functions(self) -> dict[Op, Callable[..., Node]]:
        """Return builders of operators. There is no Log2; Exp2 is a power of 2, Recip a quotient, Trunc a floor or ceiling."""
        add, mul = _make_builder("add"), _make_builder("multiply")
        return {
            **{op: _make_builder(name) for op, name in _OPERATORS.items()},
            **{op: _make_comparison_builder(_DIRECTIONS[op]) for op in COMPARE},
            Op.SHR: lambda x, n: _make_builder(f"shift_right_{'arithmetic' if x.dtype.is_signed else 'logical'}")(x, n),
            Op.MULACC: lambda a, b, c: add(mul(a, b), c),
            Op.RECIP: lambda x: _make_builder("divide")(self.constant(1, x.dtype), x),
            Op.EXP2: lambda x: _make_builder("power")(self.constant(2, x.dtype), x),
            Op.TRUNC: self._truncate,
        }

    def list_optional_functions(self) -> dict[str, Callable[..., Node]]:
        """Return builders of operators. Of integers, divide truncates; remainder has the sign of the dividend."""
        names = {
            "floor": "floor", "ceil": "ceil", "round_to_even": "round_nearest_even", "round_away": "round_nearest_afz",
            "fmod": "remainder", "trunc_remainder": "remainder", "trunc_divide": "divide",
        }  # fmt: skip
        return {name: _make_builder(operator) for name, operator in names.items()}

    def _truncate(self, x: Node) -> Node:
        if not x.dtype.is_float:
            return x
        is_negative = _make_comparison_builder("LT")(x, self.constant(0, x.dtype))
        return _make_builder("select")(is_negative, _make_builder("ceil")(x), _make_builder("floor")(x))

    def cast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert."""
        return make_node("convert", target, x.shape, x)

    def bitcast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert bits; the elements of a wider type have an axis of their own."""
        if dt.bool_ in (source, target):
            raise Unsupported("bits of bools, which StableHLO does not define", self.name)
        *outer, n = x.shape or (1,)
        if target.itemsize > source.itemsize:
            ratio = target.itemsize // source.itemsize
            return make_node("bitcast_convert", target, (*outer, n // ratio), self.reshape(x, (*outer, n // ratio, ratio)))
        if target.itemsize == source.itemsize:
            return make_node("bitcast_convert", target, x.shape, x)
        ratio = source.itemsize // target.itemsize
        return self.reshape(make_node("bitcast_convert", target, (*x.shape, ratio), x), (*outer, n * ratio))

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """Reshape."""
        return make_node("reshape", x.dtype, shape, x)

    def permute(self, x: Node, order: Sequence[int]) -> Node:
        """Transpose."""
        return make_node("transpose", x.dtype, [x.shape[k] for k in order], x, permutation=_int_array(order))

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Broadcast."""
        return _broadcast(x, shape)

    def flip(self, x: Node, axes: Sequence[int]) -> Node:
        """Reverse axes."""
        return make_node("reverse", x.dtype, x.shape, x, dimensions=_int_array(axes))

    def pad(self, x: Node, widths: Sequence[tuple[int, int]]) -> Node:
        """Pad with zeros."""
        low, high = [a for a, _ in widths], [b for _, b in widths]
        shape = [a + n + b for a, n, b in zip(low, x.shape, high, strict=True)]
        attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": [0] * len(low)}
        return make_node("pad", x.dtype, shape, x, self.constant(0, x.dtype), **{k: _int_array(v) for k, v in attributes.items()})

    def shrink(self, x: Node, starts: Sequence[int], stops: Sequence[int]) -> Node:
        """Slice."""
        shape = [b - a for a, b in zip(starts, stops, strict=True)]
        attributes = {"start_indices": starts, "limit_indices": stops, "strides": [1] * len(shape)}
        return make_node("slice", x.dtype, shape, x, **{k: _int_array(v) for k, v in attributes.items()})

    def take(self, x: Node, positions: Any, axis: int) -> Node:
        """Gather."""
        p = self._import_positions(positions)
        shape = (*x.shape[:axis], *p.shape, *x.shape[axis + 1 :])
        offsets = [*range(axis), *range(axis + len(p.shape), len(shape))]
        sizes = [min(1, n) if k == axis else n for k, n in enumerate(x.shape)]
        numbers = f"offset_dims = {offsets}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}]"
        return make_node(
            "gather", x.dtype, shape, x, p,
            dimension_numbers=f"#stablehlo.gather<{numbers}, index_vector_dim = {len(p.shape)}>", slice_sizes=_int_array(sizes),
        )  # fmt: skip

    def stack(self, values: Sequence[Node]) -> Node:
        """Concatenate along a new axis."""
        first = values[0]
        parts = [self.reshape(x, (1, *x.shape)) for x in values]
        return make_node("concatenate", first.dtype, (len(values), *first.shape), *parts, dimension="0 : i64")

    def scatter(self, flat: Node, positions: Any, values: Node) -> Node:
        """Scatter elements."""
        numbers = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        return make_node(
            "scatter", flat.dtype, flat.shape, flat, self._import_positions(positions), values,
            body=_write_body(flat.dtype, ""), scatter_dimension_numbers=f"#stablehlo.scatter<{numbers}>",
        )  # fmt: skip

    def reduce(self, op: Op, x: Node, axes: tuple[int, ...], dtype: DType) -> Node:
        """Reduce from the neutral element on, in the dtype itself."""
        neutral = {Op.ADD: 0, Op.MUL: 1, Op.MAX: -math.inf if dtype.has_inf else dtype.min}[op]
        kept = [n for k, n in enumerate(x.shape) if k not in axes]
        reduced = make_node(
            "reduce", dtype, kept, x, self.constant(neutral, dtype),
            body=_write_body(dtype, _OPERATORS[op]), dimensions=_int_array(axes),
        )  # fmt: skip
        return self.reshape(reduced, [1 if k in axes else n for k, n in enumerate(x.shape)])

    def build(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> CompiledNodes:
        """Write the text of a module, and compile it."""
        run, keys = self.load_text(write_module(outputs, list(inputs.values())), outputs), list(inputs)
        return lambda arrays: run([arrays[k] for k in keys])

    def write_function(self, output: Node, inputs: Mapping[str, Node]) -> list[str]:
        """Write the text of the module, and load it."""
        return ['TEXT = """', *write_module([output], list(inputs.values())).splitlines(), '"""', *self.script_loader]

    def _import_positions(self, positions: Any) -> Node:
        return self.import_array(positions, dt.int64) if isinstance(positions, np.ndarray) else positions


def write_module(outputs: Sequence[Node], inputs: Sequence[Node]) -> str:
    """Return a module whose function `main` takes the inputs and returns the outputs."""
    names = {id(x): f"%a{k}" for k, x in enumerate(inputs)}
    arguments = ", ".join(f"{names[id(x)]}: {_write_type(x)}" for x in inputs)
    results = ", ".join(map(_write_type, outputs))
    lines = [f"func.func public @main({arguments}) -> ({results}) {{"]
    for x in sort_nodes(outputs):
        if id(x) not in names:
            names[id(x)] = f"%{len(names)}"
            lines.append(f"  {names[id(x)]} = {_write_constant(x.array) if x.array is not None else _write_operator(x, names)}")
    lines += [f"  return {', '.join(names[id(x)] for x in outputs)} : {results}", "}"]
    return "\n".join(lines) + "\n"


def _write_operator(x: Node, names: Mapping[int, str]) -> str:
    """Return an operator in the generic form. The attribute `body` is a region."""
    attributes = {k: v for k, v in x.attributes.items() if k != "body"}
    body = f" ({{{x.attributes['body']}}})" if "body" in x.attributes else ""
    dictionary = f" {{{', '.join(f'{k} = {v}' for k, v in attributes.items())}}}" if attributes else ""
    operands, types = ", ".join(names[id(s)] for s in x.operands), ", ".join(map(_write_type, x.operands))
    return f'"stablehlo.{x.operator}"({operands}){body}{dictionary} : ({types}) -> {_write_type(x)}'


def _write_constant(array: Array) -> str:
    """Return a constant by its bits, and one of bools by their names."""
    if not array.size:
        elements = ""
    else:
        elements = json.dumps(array.tolist()) if array.dtype == np.bool_ else f'"0x{array.tobytes().hex().upper()}"'
    return f"stablehlo.constant dense<{elements}> : {_write_tensor_type(_DTYPES[array.dtype], array.shape)}"


#: Dtype of NumPy -> dtype.
_DTYPES = {STORAGE[d]: d for d in _TYPES}


def _write_type(x: Node) -> str:
    return _write_tensor_type(x.dtype, x.shape)


def _write_tensor_type(dtype: DType, shape: Sequence[int]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{_TYPES[dtype]}>"


def _write_body(dtype: DType, operator: str) -> str:
    """Return the body of a reduction by an operator; without one, that of a scatter, which returns the new element."""
    t = _write_tensor_type(dtype, ())
    combine = f'%z = "stablehlo.{operator}"(%x, %y) : ({t}, {t}) -> {t} ' if operator else ""
    return f'^bb0(%x: {t}, %y: {t}): {combine}"stablehlo.return"({"%z" if operator else "%y"}) : ({t}) -> ()'


def _int_array(numbers: Sequence[int]) -> str:
    return f"array<i64{':' if numbers else ''} {', '.join(map(str, numbers))}>".replace(" >", ">")


def _broadcast(x: Node, shape: Sequence[int]) -> Node:
    if x.shape == tuple(shape):
        return x
    axes = range(len(shape) - len(x.shape), len(shape))
    return make_node("broadcast_in_dim", x.dtype, shape, x, broadcast_dimensions=_int_array(axes))


def _make_builder(operator: str) -> Callable[..., Node]:
    """Return a builder of an elementwise operator, whose operands it broadcasts."""

    def build(*operands: Node) -> Node:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        return make_node(operator, operands[-1].dtype, shape, *(_broadcast(x, shape) for x in operands))

    return build


def _make_comparison_builder(direction: str) -> Callable[[Node, Node], Node]:
    def build(x: Node, y: Node) -> Node:
        shape = np.broadcast_shapes(x.shape, y.shape)
        attribute = f"#stablehlo<comparison_direction {direction}>"
        return make_node("compare", dt.bool_, shape, _broadcast(x, shape), _broadcast(y, shape), comparison_direction=attribute)

    return build
