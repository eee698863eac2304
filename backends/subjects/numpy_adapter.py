"""NumPy, with ml_dtypes for the floats that NumPy lacks: eager, one function per op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import Inputs, Missing
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.host import Array, NumpyMovement, list_numpy_functions, list_numpy_optional_functions
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

_REDUCTIONS = {Op.ADD: "add", Op.MUL: "multiply", Op.MAX: "maximum"}


class Numpy(NumpyMovement, Evaluator):
    """NumPy on arrays of the host."""

    name: ClassVar[str] = "numpy"
    distributions = ("numpy", "ml_dtypes")
    recorded_modules = {"np": "np"}  # noqa: RUF012
    lacks = (
        Missing("Decomposed/Mulacc", "*float*", "NumPy has no fused multiply-add"),
        Missing("Decomposed/Mulacc", "fp8*", "NumPy has no fused multiply-add"),
    )

    def list_dtypes(self) -> dict[DType, Any]:
        """Return NumPy's dtypes and those of ml_dtypes."""
        return {d: STORAGE[d] for d in dt.STORABLE}

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        """Return ufuncs, `where`, and a product with a sum."""
        return list_numpy_functions(self.np)

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        """Return ufuncs and the functions that sort."""
        return list_numpy_optional_functions(self.np)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate a graph without NumPy's warnings."""
        with np.errstate(all="ignore"):
            return super().run(graph, inputs)

    def apply(self, op: Op, values: Sequence[Any]) -> Any:
        """Apply a ufunc, whose result for shape () is a NumPy scalar."""
        return self.np.asarray(super().apply(op, values))

    def import_array(self, array: Array, dtype: DType) -> Any:
        """Return a copy."""
        return self.np.array(array)

    def export_array(self, value: Any, dtype: DType) -> Array:
        """Return a copy."""
        return np.array(value, order="C")

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        """Return an array of shape ()."""
        return self.np.array(value, self.dtypes[dtype])

    def cast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `astype`."""
        return x.astype(self.dtypes[target])

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `view`, which scales the last axis of contiguous arrays."""
        return self.np.array(x, order="C").view(self.dtypes[target])

    def scatter(self, flat: Any, positions: Any, values: Any) -> Any:
        """Assign to a copy."""
        out = flat.copy()
        out[positions] = values
        return out

    def reduce(self, op: Op, x: Any, axes: tuple[int, ...], dtype: DType) -> Any:
        """Reduce in the dtype itself."""
        return getattr(self.np, _REDUCTIONS[op]).reduce(x, axes, x.dtype, keepdims=True)
