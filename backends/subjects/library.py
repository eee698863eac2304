"""What the evaluator needs of a library: a table of functions of its values, and a method for all that no such function says.

A value is whatever the library computes with: an array, a tracer, a node of a model. It has `shape`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from uops.backends.subjects.host import Array, HostValue
from uops.spec.errors import SpecError, Unsupported
from uops.spec.extras import install_command
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import ALU, Op
from uops.spec.rows.optional import OptionalFunction
from uops.spec.rows.rows import ROWS

Value = Any
#: The functions of a library, by op.
Functions = Mapping[Op, Callable[..., Value]]


#: The evaluation of a whole graph: values of the inputs by key -> values of the outputs.
GraphFunction = Callable[[dict[str, Value]], tuple[Value, ...]]
#: The elementwise ops for which a library has functions, in order of their names.
FUNCTION_OPS = sorted(ALU - {Op.CAST, Op.MIN}, key=lambda op: op.name)


class Library(ABC):
    """The dtypes, functions and methods of a library."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.dtypes: Mapping[DType, Any] = self.list_dtypes()
        self.functions: Functions = self.list_functions()
        self.optional_functions: Mapping[str, Callable[..., Value]] = self.list_optional_functions()

    @abstractmethod
    def list_dtypes(self) -> dict[DType, Any]:
        """Return the library's dtype for each dtype that it has."""

    @abstractmethod
    def list_functions(self) -> dict[Op, Callable[..., Value]]:
        """Return a function of the library for each elementwise op that it has."""

    def list_optional_functions(self) -> dict[str, Callable[..., Value]]:
        """Return a function of the library for each optional row (R188) that it has, by name; conversions need none."""
        return {}

    @abstractmethod
    def import_array(self, array: Array, dtype: DType) -> Value:
        """Return an array of the host as a value, which shares no memory with it."""

    @abstractmethod
    def export_array(self, value: Value, dtype: DType) -> Array:
        """Return a value as an array of the host, which shares no memory with it."""

    @abstractmethod
    def constant(self, value: bool | int | float, dtype: DType) -> Value:
        """Return a constant of shape ()."""

    @abstractmethod
    def cast(self, x: Value, source: DType, target: DType) -> Value:
        """Convert elements by value."""

    @abstractmethod
    def bitcast(self, x: Value, source: DType, target: DType) -> Value:
        """Convert elements by bits; another item size scales the last axis."""

    @abstractmethod
    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Return the elements in row-major order in another shape."""

    @abstractmethod
    def permute(self, x: Value, order: Sequence[int]) -> Value:
        """Return `x` with axis k from axis `order[k]`."""

    @abstractmethod
    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """Return `x` with its axes of extent 1 repeated."""

    @abstractmethod
    def flip(self, x: Value, axes: Sequence[int]) -> Value:
        """Return `x` with some axes reversed."""

    @abstractmethod
    def pad(self, x: Value, widths: Sequence[tuple[int, int]]) -> Value:
        """Return `x` with zeros before and behind it on each axis."""

    @abstractmethod
    def shrink(self, x: Value, starts: Sequence[int], stops: Sequence[int]) -> Value:
        """Return the window of `x` between two corners."""

    @abstractmethod
    def take(self, x: Value, positions: Any, axis: int) -> Value:
        """Return the elements at positions of one axis; a single position drops the axis.

        The positions are an int64 array of the host, or a value.
        """

    @abstractmethod
    def stack(self, values: Sequence[Value]) -> Value:
        """Return values of one shape along a new first axis."""

    @abstractmethod
    def scatter(self, flat: Value, positions: Any, values: Value) -> Value:
        """Return a copy of 1-D `flat` with `values` at different positions, which are an int64 array of the host or a value."""

    @abstractmethod
    def reduce(self, op: Op, x: Value, axes: tuple[int, ...], dtype: DType) -> Value:
        """Reduce over axes, which become size 1."""

    def compile(self, function: GraphFunction) -> GraphFunction:
        """Return the compiled form of a function; a library that evaluates eagerly returns the function itself."""
        return function

    def is_refusal(self, error: Exception) -> bool:
        """Return True for an exception by which the library says that it lacks something."""
        return isinstance(error, (NotImplementedError, Unsupported))

    def require_function(self, op: Op, dtype: DType) -> None:  # noqa: B027 - a library lacks nothing unless it says so
        """Raise Unsupported if the library lacks an elementwise op for a dtype."""

    def apply(self, op: Op, values: Sequence[Value]) -> Value:
        """Apply the library's function for an elementwise op. Raises Unsupported."""
        if op not in self.functions:
            raise Unsupported(ROWS[op].id, self.name)
        return self.functions[op](*values)

    def apply_optional(self, function: OptionalFunction, values: Sequence[Value], dtype: DType) -> Value:
        """Apply the library's own function for an optional row to operands of a dtype. Raises Unsupported."""
        if not self.has_optional(function):
            raise Unsupported(function.row, self.name)
        own = self.optional_functions.get(function.name)
        return self.cast(values[0], dtype, dt.int32) if own is None else own(*values)

    def has_optional(self, function: OptionalFunction) -> bool:
        """Return True if the library has a function for an optional row. Each has the conversion of C, which is its Cast."""
        return function.name == "cast_by_c" or function.name in self.optional_functions

    def read_index(self, cell: Any) -> Array:
        """Return index values that a shape or an offset needs. Raises Unsupported if the graph is compiled before it is run."""
        if isinstance(cell, HostValue):
            return cell.array
        if type(self).compile is not Library.compile:
            raise Unsupported("a shape that is computed from data", self.name)
        values: Array = self.export_array(cell, dt.int64)
        return values

    def select(self, gate: Value, if_true: Value, if_false: Value) -> Value:
        """Return a Where by a bool."""
        return self.functions[Op.WHERE](gate, if_true, if_false)

    def replace_outside_positions_by_zero(self, positions: Value, extent: int) -> Value:
        """Return positions with 0 for those that are out of bounds."""
        is_inside = self.functions[Op.AND](
            self.functions[Op.CMPLT](self.constant(-1, dt.int64), positions),
            self.functions[Op.CMPLT](positions, self.constant(extent, dt.int64)),
        )
        return self.select(is_inside, positions, self.constant(0, dt.int64))


def import_library(module: str, extra: str) -> Any:
    """Import a module of a library. Raises SpecError with the command that installs its extra."""
    try:
        return import_module(module)
    except ImportError as e:
        raise SpecError(f"{module} is not installed: {install_command(extra)}") from e
