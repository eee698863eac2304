"""Apache TVM on the processor: the whole graph as one Relax function, compiled by its default pipeline and LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

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
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import COMPARE, Op


class Tvm(NodeEvaluator):
    """TVM. The operator of a node is a function of Relax expressions and attributes.

    It was seen to read a zero of fp8 as another number, so fp8 is not declared.
    """

    name: ClassVar[str] = "tvm"
    extra = "tvm"
    distributions = ("apache-tvm", "numpy")
    lacks = (
        Missing("Decomposed/Mulacc", "*float*", "Relax has no lowering of ewise_fma"),
        Missing("Decomposed/Pow", "bfloat16", "power only applies to float"),
    )

    def __init__(self) -> None:
        self.tvm = import_library("tvm", self.extra)
        self.relax = import_library("tvm.relax", self.extra)
        self.topi = import_library("tvm.topi", self.extra)
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return all dtypes but fp8, by their names in TVM."""
        return {d: d.array_name for d in dt.STORABLE if not d.name.startswith("fp8")}

    def list_functions(self) -> dict[Op, Callable[..., Node]]:
        """Return operators of Relax, and those of tensor expressions that Relax lacks. There is no Recip and no Threefry."""
        r, make = self.relax.op, make_elementwise_builder
        compare = {
            Op.CMPLT: r.less, Op.CMPNE: r.not_equal, Op.CMPGT: r.greater, Op.CMPGE: r.greater_equal, Op.CMPLE: r.less_equal,
            Op.CMPEQ: r.equal,
        }  # fmt: skip
        # fmt: off
        operators = {
            Op.SUB: r.subtract, Op.DIV: r.divide, Op.NEG: r.negative, Op.IDIV: r.floor_divide, Op.MOD: r.floor_mod,
            Op.XOR: (r.bitwise_xor, r.logical_xor), Op.OR: (r.bitwise_or, r.logical_or), Op.AND: (r.bitwise_and, r.logical_and),
            Op.ADD: (r.add, r.logical_or), Op.MUL: (r.multiply, r.logical_and), Op.MAX: (r.maximum, r.logical_or),
            Op.TRUNC: r.trunc, Op.SHL: r.left_shift, Op.SHR: r.right_shift, Op.NOT: r.logical_not, Op.WHERE: r.where, Op.SIN: r.sin,
            Op.SQRT: r.sqrt, Op.POW: r.power, Op.MULACC: lambda a, b, c: r.add(r.multiply(a, b), c),
            Op.LOG2: self._use_tensor_expression(self.topi.log2),
            Op.EXP2: self._use_tensor_expression(self._exp2),
        }
        # fmt: on
        functions = {op: make(f[0], None, f[1]) if isinstance(f, tuple) else make(f) for op, f in operators.items()}
        return functions | {op: make(compare[op], dt.bool_) for op in COMPARE}

    def list_optional_functions(self) -> dict[str, Callable[..., Node]]:
        """Return operators of Relax. `mod` has the sign of the dividend; of halves, TVM's `round` does not say which it takes."""
        r, make = self.relax.op, make_elementwise_builder
        return {
            "floor": make(r.floor), "ceil": make(r.ceil), "floor_mod": make(r.floor_mod), "fmod": make(r.mod),
            "floor_divide": make(r.floor_divide), "trunc_remainder": make(r.mod),
            "sort": lambda x: make_node(r.sort, x.dtype, x.shape, x, axis=0),
            "argsort": lambda x: make_node(r.argsort, dt.int64, x.shape, x, axis=0, dtype="int64"),
        }  # fmt: skip

    def _use_tensor_expression(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: self.relax.BlockBuilder.current().call_te(function, *xs)

    def _exp2(self, x: Any) -> Any:
        return self.tvm.te.compute(x.shape, lambda *i: self.tvm.tirx.exp2(x(*i)))

    def cast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert by `astype`."""
        return make_node(self.relax.op.astype, target, x.shape, x, dtype=self.dtypes[target])

    def bitcast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert by a view of the memory, which scales the last axis."""
        shape = x.shape
        if source.itemsize != target.itemsize:
            shape = (*shape[:-1], shape[-1] * source.itemsize // target.itemsize)
        return make_node(self.relax.op.memory.view, target, shape, x, shape=shape, dtype=self.dtypes[target])

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """Reshape."""
        return make_node(self.relax.op.reshape, x.dtype, shape, x, shape=tuple(shape))

    def permute(self, x: Node, order: Sequence[int]) -> Node:
        """Permute."""
        return make_node(self.relax.op.permute_dims, x.dtype, [x.shape[k] for k in order], x, axes=list(order))

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Broadcast."""
        return make_node(self.relax.op.broadcast_to, x.dtype, shape, x, shape=tuple(shape))

    def flip(self, x: Node, axes: Sequence[int]) -> Node:
        """Flip one axis at a time."""
        for axis in axes:
            x = make_node(self.relax.op.flip, x.dtype, x.shape, x, axis=axis)
        return x

    def pad(self, x: Node, widths: Sequence[tuple[int, int]]) -> Node:
        """Pad with zeros."""
        shape = [low + n + high for n, (low, high) in zip(x.shape, widths, strict=True)]
        pairs = [n for pair in widths for n in pair]
        return make_node(self.relax.op.nn.pad, x.dtype, shape, x, pad_width=pairs) if widths else x

    def shrink(self, x: Node, starts: Sequence[int], stops: Sequence[int]) -> Node:
        """Slice."""
        shape = [b - a for a, b in zip(starts, stops, strict=True)]
        corners = {"axes": list(range(len(shape))), "begin": list(starts), "end": list(stops)}
        return make_node(self.relax.op.strided_slice, x.dtype, shape, x, **corners) if shape else x

    def take(self, x: Node, positions: Any, axis: int) -> Node:
        """Take along an axis."""
        p = as_positions(positions)
        return make_node(self.relax.op.take, x.dtype, (*x.shape[:axis], *p.shape, *x.shape[axis + 1 :]), x, p, axis=axis)

    def stack(self, values: Sequence[Node]) -> Node:
        """Stack along a new axis."""
        first = values[0]
        return make_node(lambda *xs: self.relax.op.stack(list(xs)), first.dtype, (len(values), *first.shape), *values)

    def scatter(self, flat: Node, positions: Any, values: Node) -> Node:
        """Scatter elements."""
        return make_node(self.relax.op.scatter_elements, flat.dtype, flat.shape, flat, as_positions(positions), values)

    def reduce(self, op: Op, x: Node, axes: tuple[int, ...], dtype: DType) -> Node:
        """Reduce; on bools the maximum is or, and the minimum is and."""
        r = self.relax.op
        function = {Op.ADD: r.sum, Op.MUL: r.prod, Op.MAX: r.max}[op]
        if dtype is dt.bool_:
            function = r.min if op is Op.MUL else r.max
        shape = [1 if k in axes else n for k, n in enumerate(x.shape)]
        return make_node(function, dtype, shape, x, axis=list(axes), keepdims=True)

    def build(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> CompiledNodes:
        """Compile a function of a module, and load it into a virtual machine."""
        relax, builder = self.relax, self.relax.BlockBuilder()
        parameters = {k: relax.Var(k, relax.TensorType(x.shape, self.dtypes[x.dtype])) for k, x in inputs.items()}
        with builder.function("main", list(parameters.values())):
            with builder.dataflow():
                values = {id(x): parameters[k] for k, x in inputs.items()}
                for x in sort_nodes(outputs):
                    if x.operator:
                        values[id(x)] = builder.emit(x.operator(*(values[id(s)] for s in x.operands), **x.attributes))
                    elif x.array is not None:
                        values[id(x)] = relax.const(self._import(x.array), self.dtypes[x.dtype])
                result = builder.emit_output(relax.Tuple([values[id(x)] for x in outputs]))
            builder.emit_func_output(result)
        machine = relax.VirtualMachine(self.tvm.compile(builder.finalize(), "llvm"), self.tvm.cpu())
        return lambda arrays: [t.numpy() for t in machine["main"](*(self._import(arrays[k]) for k in inputs))]

    def _import(self, array: Array) -> Any:
        return self.tvm.runtime.tensor(array)
