"""Numba on the processor: the whole graph as the text of one Python function, which `njit` compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from uops.backends.contract import Missing
from uops.backends.subjects.host import Array, list_numpy_functions, list_numpy_optional_functions
from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import (
    CompiledNodes,
    Node,
    NodeEvaluator,
    as_positions,
    make_elementwise_node,
    make_node,
    sort_nodes,
)
from uops.backends.subjects.scripts.values import write_array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import COMPARE, Op


class _CallsOfNumpy:
    """A module with NumPy's names, whose functions return nodes. The operator of a node is a statement with fields."""

    def __getattr__(self, name: str) -> Callable[..., Node]:
        return lambda *operands: _write_call(f"np.{name}", operands)


def _write_call(function: str, operands: Sequence[Node]) -> Node:
    """Return a call of a function of elements. Arrays of shape () give a scalar, of which `asarray` makes an array."""
    call = f"{function}({', '.join(f'{{{k}}}' for k in range(len(operands)))})"
    has_axes = any(x.shape for x in operands)
    return make_elementwise_node(f"{{out}} = {call if has_axes else f'np.asarray({call})'}", operands)


def _give_bools(compare: Callable[..., Node]) -> Callable[..., Node]:
    return lambda a, b: replace(compare(a, b), dtype=dt.bool_)


def _write_slices(slices: Sequence[str]) -> str:
    return f"[{', '.join(slices) or '()'}]"


class Numba(NodeEvaluator):
    """Numba, which compiles calls of NumPy's functions on arrays, and loops over the rows that are reduced."""

    name: ClassVar[str] = "numba"
    extra = "numba"
    distributions = ("numba", "llvmlite", "numpy")
    lacks = (Missing("Decomposed/Mulacc", "float*", "Numba has no fused multiply-add"),)
    script_imports = ("import numba", "import numpy as np")
    #: Options of `njit`.
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self.numba = import_library("numba", self.extra)
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return NumPy's dtypes but float16, which Numba does not compile for the processor."""
        return {d: f"np.{'bool_' if d is dt.bool_ else d.name}" for d in dt.STORABLE if not d.is_float or d.bits >= 32}

    def list_functions(self) -> dict[Op, Callable[..., Node]]:
        """Return calls of NumPy's functions; there is no Threefry."""
        functions = list_numpy_functions(_CallsOfNumpy())
        return {op: _give_bools(f) if op in COMPARE else f for op, f in functions.items()}

    def list_optional_functions(self) -> dict[str, Callable[..., Node]]:
        """Return calls of NumPy's functions."""
        sorting = {"argsort": lambda x: make_node("{out} = np.argsort({0}, kind='mergesort')", dt.int64, x.shape, x)}
        return list_numpy_optional_functions(_CallsOfNumpy()) | sorting

    def is_refusal(self, error: Exception) -> bool:
        """Return True for a function that Numba does not have for the types."""
        errors = self.numba.core.errors
        return super().is_refusal(error) or isinstance(error, (errors.TypingError, errors.UnsupportedError))

    def cast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert by `astype`."""
        return make_node(f"{{out}} = {{0}}.astype({self.dtypes[target]})", target, x.shape, x)

    def bitcast(self, x: Node, source: DType, target: DType) -> Node:
        """Convert by `view`, which scales the last axis of contiguous arrays."""
        shape = x.shape
        if source.itemsize != target.itemsize:
            shape = (*shape[:-1], shape[-1] * source.itemsize // target.itemsize)
        return make_node(f"{{out}} = {{0}}.copy().view({self.dtypes[target]})", target, shape, x)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """Reshape a contiguous copy."""
        return make_node(f"{{out}} = {{0}}.copy().reshape({tuple(shape)})", x.dtype, shape, x)

    def permute(self, x: Node, order: Sequence[int]) -> Node:
        """Transpose."""
        shape = [x.shape[k] for k in order]
        return make_node(f"{{out}} = np.transpose({{0}}, {tuple(order)})", x.dtype, shape, x) if shape else x

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Broadcast."""
        return make_node(f"{{out}} = np.broadcast_to({{0}}, {tuple(shape)})", x.dtype, shape, x)

    def flip(self, x: Node, axes: Sequence[int]) -> Node:
        """Slice backwards."""
        slices = ["::-1" if k in axes else ":" for k in range(len(x.shape))]
        return make_node(f"{{out}} = {{0}}{_write_slices(slices)}", x.dtype, x.shape, x) if slices else x

    def pad(self, x: Node, widths: Sequence[tuple[int, int]]) -> Node:
        """Assign to a window of zeros."""
        shape = tuple(low + n + high for n, (low, high) in zip(x.shape, widths, strict=True))
        window = _write_slices([f"{low}:{low + n}" for n, (low, _) in zip(x.shape, widths, strict=True)])
        text = f"{{out}} = np.zeros({shape}, {self.dtypes[x.dtype]})\n{{out}}{window} = {{0}}"
        return make_node(text, x.dtype, shape, x) if widths else x

    def shrink(self, x: Node, starts: Sequence[int], stops: Sequence[int]) -> Node:
        """Slice."""
        shape = [b - a for a, b in zip(starts, stops, strict=True)]
        slices = _write_slices([f"{a}:{b}" for a, b in zip(starts, stops, strict=True)])
        return make_node(f"{{out}} = {{0}}{slices}", x.dtype, shape, x) if shape else x

    def take(self, x: Node, positions: Any, axis: int) -> Node:
        """Index one axis by an array, or by an integer."""
        p = as_positions(positions)
        element = "{0}" + _write_slices([*[":"] * axis, "{1}" if p.shape else "{1}[()]", *[":"] * (len(x.shape) - axis - 1)])
        shape = (*x.shape[:axis], *p.shape, *x.shape[axis + 1 :])
        return make_node(f"{{out}} = {element if shape else f'np.asarray({element})'}", x.dtype, shape, x, p)

    def stack(self, values: Sequence[Node]) -> Node:
        """Stack along a new axis."""
        first, fields = values[0], "".join(f"{{{k}}}, " for k in range(len(values)))
        return make_node(f"{{out}} = np.stack(({fields}))", first.dtype, (len(values), *first.shape), *values)

    def scatter(self, flat: Node, positions: Any, values: Node) -> Node:
        """Assign to a copy."""
        return make_node("{out} = {0}.copy()\n{out}[{1}] = {2}", flat.dtype, flat.shape, flat, as_positions(positions), values)

    def reduce(self, op: Op, x: Node, axes: tuple[int, ...], dtype: DType) -> Node:
        """Reduce rows, one by one, because `prod` and `max` have no axis in Numba."""
        names = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max"} if dtype is not dt.bool_ else {Op.MUL: "all"}
        kept, reduced = ([k for k in range(len(x.shape)) if (k in axes) is wanted] for wanted in (False, True))
        rows, columns = (int(np.prod([x.shape[k] for k in some], dtype=int)) for some in (kept, reduced))
        moved = x if [*kept, *reduced] == sorted([*kept, *reduced]) else self.permute(x, [*kept, *reduced])
        table = moved if moved.shape == (rows, columns) else self.reshape(moved, (rows, columns))
        start = f"{{out}} = np.empty({rows}, {self.dtypes[dtype]})"
        loop = f"for i in range({rows}):\n    {{out}}[i] = np.{names.get(op, 'any')}({{0}}[i])"
        result = make_node(f"{start}\n{loop}", dtype, (rows,), table)
        return self.reshape(result, [1 if k in axes else n for k, n in enumerate(x.shape)])

    def write_function(self, output: Node, inputs: Mapping[str, Node]) -> list[str]:
        """Write the function and its decorator. Arrays are global."""
        lines, arrays = self._write_graph([output], inputs)
        options = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        arguments = ", ".join(f"arrays[{k!r}]" for k in inputs)
        return [
            *(f"{name} = {write_array(a)}" for name, a in arrays.items()),
            *lines,
            "",
            f"run = numba.njit({options})(graph)",
            "",
            "def f(**arrays):",
            f"    return run({arguments})[0]",
        ]

    def build(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> CompiledNodes:
        """Write a function, and compile it at its first call."""
        lines, arrays = self._write_graph(outputs, inputs)
        names: dict[str, Any] = {"np": np, **arrays}
        exec("\n".join(lines), names)
        compiled = self.numba.njit(**self.options)(names["graph"])
        return lambda given: list(compiled(*(given[k] for k in inputs)))

    def _write_graph(self, outputs: Sequence[Node], inputs: Mapping[str, Node]) -> tuple[list[str], dict[str, Array]]:
        """Return the lines of a function, and its global arrays. Constants of shape () are literals."""
        names, lines = {id(x): key for key, x in inputs.items()}, []
        arrays: dict[str, Array] = {}
        for x in sort_nodes(outputs):
            name = names.setdefault(id(x), f"v{len(names)}")
            if x.operator:
                lines += x.operator.format(*(names[id(s)] for s in x.operands), out=name).split("\n")
            elif x.array is not None and x.shape:
                arrays[name] = x.array
            elif x.array is not None:
                lines.append(f"{name} = np.asarray({self.dtypes[x.dtype]}({_write_literal(x.array)}))")
        result = "".join(f"{names[id(x)]}, " for x in outputs)
        return [f"def graph({', '.join(inputs)}):", *(f"    {x}" for x in [*lines, f"return ({result})"])], arrays


def _write_literal(x: Array) -> str:
    """Return the element of an array of shape () as an expression."""
    text = repr(x.item())
    return text if np.isfinite(x) else f"np.{text.lstrip('-')} * {np.copysign(1, x)}"
