"""Index values on the host, and the movement ops of NumPy arrays.

An `index` is a mathematical integer (R08), which no library has. Constants, variables and what is computed from them alone are
Python integers in object arrays. An index that is computed from data is the library's int64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.spec.errors import Unsupported
from uops.spec.ir.build import wrap_to_width
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

Array = np.ndarray[Any, np.dtype[Any]]
#: Shape or order of axes.
Sizes = Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class HostValue:
    """An index value, or a comparison of index values, that depends on no data."""

    array: Array


class NumpyMovement:
    """The movement ops of NumPy arrays: no arithmetic."""

    np: Any = np

    def reshape(self, x: Any, shape: Sizes) -> Any:
        """Return the elements in row-major order in another shape."""
        return self.np.reshape(x, shape)

    def permute(self, x: Any, order: Sizes) -> Any:
        """Return `x` with axis k from axis `order[k]`."""
        return self.np.transpose(x, order)

    def expand(self, x: Any, shape: Sizes) -> Any:
        """Return `x` with its axes of extent 1 repeated."""
        return self.np.broadcast_to(x, shape)

    def flip(self, x: Any, axes: Sizes) -> Any:
        """Return `x` with some axes reversed."""
        return self.np.flip(x, tuple(axes))

    def pad(self, x: Any, widths: Sequence[tuple[int, int]]) -> Any:
        """Return `x` with zeros before and behind it on each axis."""
        return self.np.pad(x, widths) if widths else x

    def shrink(self, x: Any, starts: Sizes, stops: Sizes) -> Any:
        """Return the window of `x` between two corners."""
        return x[tuple(map(slice, starts, stops))]

    def take(self, x: Any, positions: Any, axis: int) -> Any:
        """Return the elements at positions of one axis; a single position drops the axis."""
        return self.np.take(x, self.np.asarray(positions, np.int64), axis)

    def stack(self, values: Sequence[Any]) -> Any:
        """Return values of one shape along a new first axis."""
        return self.np.stack(values)


def _compare(ufunc: np.ufunc) -> Callable[..., Array]:
    return lambda a, b: np.asarray(ufunc(a, b), bool)


# fmt: off
_FUNCTIONS: Mapping[Op, Callable[..., Any]] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.NEG: np.negative, Op.TRUNC: np.asarray,
    Op.MULACC: lambda a, b, c: a * b + c,
    Op.IDIV: np.frompyfunc(lambda a, b: a // b if b else 0, 2, 1),
    Op.MOD: np.frompyfunc(lambda a, b: a % b if b else a, 2, 1),
    Op.XOR: np.bitwise_xor, Op.OR: np.bitwise_or, Op.AND: np.bitwise_and, Op.SHL: np.left_shift, Op.SHR: np.right_shift,
    Op.CMPLT: _compare(np.less), Op.CMPNE: _compare(np.not_equal), Op.CMPGT: _compare(np.greater),
    Op.CMPGE: _compare(np.greater_equal), Op.CMPLE: _compare(np.less_equal), Op.CMPEQ: _compare(np.equal),
    Op.NOT: np.logical_not, Op.WHERE: np.where,
}
# fmt: on


#: Op -> the name of its function in NumPy, and in modules with NumPy's names.
_NUMPY_NAMES = {
    Op.ADD: "add", Op.SUB: "subtract", Op.MUL: "multiply", Op.DIV: "true_divide", Op.NEG: "negative", Op.MAX: "maximum",
    Op.IDIV: "floor_divide", Op.MOD: "remainder", Op.RECIP: "reciprocal", Op.TRUNC: "trunc", Op.XOR: "bitwise_xor",
    Op.OR: "bitwise_or", Op.AND: "bitwise_and", Op.SHL: "left_shift", Op.SHR: "right_shift", Op.NOT: "logical_not",
    Op.CMPLT: "less", Op.CMPNE: "not_equal", Op.CMPGT: "greater", Op.CMPGE: "greater_equal", Op.CMPLE: "less_equal",
    Op.CMPEQ: "equal", Op.WHERE: "where", Op.EXP2: "exp2", Op.LOG2: "log2", Op.SIN: "sin", Op.SQRT: "sqrt", Op.POW: "power",
}  # fmt: skip


def list_numpy_functions(module: Any) -> dict[Op, Callable[..., Any]]:
    """Return the functions of a module with NumPy's names, and a product with a sum for Mulacc."""
    functions: dict[Op, Callable[..., Any]] = {op: getattr(module, name) for op, name in _NUMPY_NAMES.items()}
    return functions | {Op.MULACC: lambda a, b, c: module.add(module.multiply(a, b), c)}


def list_numpy_optional_functions(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions of a module with NumPy's names for optional rows. NumPy has no quotient that is rounded toward zero."""
    return {
        "floor": module.floor, "ceil": module.ceil, "round_to_even": module.rint, "fmod": module.fmod,
        "floor_mod": module.remainder, "floor_divide": module.floor_divide, "trunc_remainder": module.fmod,
        "sort": module.sort, "argsort": lambda x: module.argsort(x, kind="stable"),
    }  # fmt: skip


def compute_host_value(op: Op, operands: Sequence[HostValue]) -> HostValue:
    """Return an elementwise op of host values. Raises Unsupported for an op that index values lack."""
    if op not in _FUNCTIONS:
        raise Unsupported(f"{op.name} of index values", "the evaluator")
    return HostValue(np.asarray(_FUNCTIONS[op](*(x.array for x in operands))))


def make_index_value(value: int) -> HostValue:
    """Return one index value."""
    return HostValue(np.array(int(value), object))


def wrap_host_value(x: HostValue, target: DType, storage: np.dtype[Any]) -> Array:
    """Return a host value as an array of an integer dtype, modulo its width (R29)."""
    wrapped = np.frompyfunc(lambda n: wrap_to_width(int(n), target), 1, 1)(x.array)
    return np.asarray(wrapped).astype(storage)
