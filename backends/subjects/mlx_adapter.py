"""MLX on the processor: op by op (`mlx`), and the whole graph by `mx.compile` (`mlx:compile`), which needs g++ to fuse ops."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import Missing
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.host import Array
from uops.backends.subjects.library import GraphFunction, import_library
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op


class Mlx(Evaluator):
    """MLX, which runs one kernel per op when its arrays are evaluated."""

    name: ClassVar[str] = "mlx"
    extra = "mlx"
    distributions = ("mlx", "mlx-cpu")
    lacks = (Missing("Decomposed/Mulacc", "*float*", "MLX has no fused multiply-add of elements"),)
    is_probed = True

    recorded_modules = {"mx": "mx"}  # noqa: RUF012
    script_imports = ("import mlx.core", "import mlx.core as mx", "mx.set_default_device(mx.cpu)")

    def __init__(self) -> None:
        self.mx = import_library("mlx.core", self.extra)
        self.mx.set_default_device(self.mx.cpu)  # the only device that has float64
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return all dtypes but fp8, which MLX only converts from and to."""
        names = {dt.bool_: "bool_"}
        return {d: getattr(self.mx, names.get(d, d.name)) for d in dt.STORABLE if not d.name.startswith("fp8")}

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        """Return functions of `mlx.core`, which has no Exp2 and no Threefry of given words."""
        m = self.mx
        # fmt: off
        return {
            Op.ADD: m.add, Op.SUB: m.subtract, Op.MUL: m.multiply, Op.DIV: m.divide, Op.NEG: m.negative, Op.MAX: m.maximum,
            Op.IDIV: m.floor_divide, Op.MOD: m.remainder, Op.RECIP: m.reciprocal, Op.TRUNC: m.trunc,
            Op.XOR: m.bitwise_xor, Op.OR: m.bitwise_or, Op.AND: m.bitwise_and,
            Op.SHL: m.left_shift, Op.SHR: m.right_shift, Op.NOT: m.logical_not,
            Op.CMPLT: m.less, Op.CMPNE: m.not_equal, Op.CMPGT: m.greater, Op.CMPGE: m.greater_equal, Op.CMPLE: m.less_equal,
            Op.CMPEQ: m.equal, Op.WHERE: m.where, Op.LOG2: m.log2, Op.SIN: m.sin, Op.SQRT: m.sqrt, Op.POW: m.power,
            Op.MULACC: lambda a, b, c: m.add(m.multiply(a, b), c),
        }
        # fmt: on

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        """Return functions of `mlx.core`, which has no remainder with the sign of the dividend."""
        m = self.mx
        return {
            "floor": m.floor, "ceil": m.ceil, "round_to_even": m.round, "floor_mod": m.remainder, "floor_divide": m.floor_divide,
            "sort": m.sort, "argsort": lambda x: m.argsort(x).astype(m.int64),
        }  # fmt: skip

    def is_refusal(self, error: Exception) -> bool:
        """Return True for a function that MLX does not have for the dtype."""
        words = ("not supported", "not implemented", "not yet implemented", "does not support")
        kinds = (RuntimeError, ValueError)
        return super().is_refusal(error) or (isinstance(error, kinds) and any(w in str(error).lower() for w in words))

    def import_array(self, array: Array, dtype: DType) -> Any:
        """Return a copy; without its dtype, float64 would become float32."""
        return self.mx.array(np.array(array, order="C"), self.dtypes[dtype])

    def export_array(self, value: Any, dtype: DType) -> Array:
        """Evaluate and return a copy; the bits of bfloat16, which NumPy lacks, pass as integers."""
        if dtype.ml_dtypes_name:
            value = self.mx.view(value, self.mx.uint16)
        self.mx.eval(value)
        array = np.array(value, order="C")
        return array.view(STORAGE[dtype]) if dtype.ml_dtypes_name else array

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        """Return an array of shape ()."""
        return self.import_array(np.array(value, STORAGE[dtype]), dtype)

    def cast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `astype`."""
        return x.astype(self.dtypes[target])

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `view`, which scales the last axis."""
        return self.mx.view(x, self.dtypes[target])

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Reshape."""
        return self.mx.reshape(x, tuple(shape))

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        """Transpose."""
        return self.mx.transpose(x, tuple(order))

    def expand(self, x: Any, shape: Sequence[int]) -> Any:
        """Broadcast."""
        return self.mx.broadcast_to(x, tuple(shape))

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        """Reverse axes."""
        return self.mx.flip(x, tuple(axes))

    def pad(self, x: Any, widths: Sequence[tuple[int, int]]) -> Any:
        """Pad with zeros."""
        return self.mx.pad(x, list(widths)) if widths else x

    def shrink(self, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
        """Slice."""
        return x[tuple(map(slice, starts, stops))]

    def take(self, x: Any, positions: Any, axis: int) -> Any:
        """Take along an axis."""
        return self.mx.take(x, self._import_positions(positions), axis)

    def stack(self, values: Sequence[Any]) -> Any:
        """Stack along a new axis."""
        return self.mx.stack(list(values))

    def scatter(self, flat: Any, positions: Any, values: Any) -> Any:
        """Put elements into a copy."""
        return self.mx.put_along_axis(flat, self._import_positions(positions), values, 0)

    def reduce(self, op: Op, x: Any, axes: tuple[int, ...], dtype: DType) -> Any:
        """Reduce; sums and products of narrow integers are 32 bits wide and are converted back."""
        m = self.mx
        if dtype is dt.bool_:
            return (m.all if op is Op.MUL else m.any)(x, axes, keepdims=True)
        function = {Op.ADD: m.sum, Op.MUL: m.prod, Op.MAX: m.max}[op]
        return function(x, axes, keepdims=True).astype(x.dtype)

    def _import_positions(self, positions: Any) -> Any:
        return self.import_array(positions, dt.int64) if isinstance(positions, np.ndarray) else positions


class MlxCompile(Mlx):
    """MLX, which simplifies the whole graph and fuses its elementwise ops."""

    name = "mlx:compile"
    script_wrapper = "mx.compile({})"

    def __init__(self) -> None:
        if not shutil.which("g++"):
            raise SpecError("mx.compile fuses nothing without a C++ compiler: put g++ on the path")
        super().__init__()

    def compile(self, function: GraphFunction) -> GraphFunction:
        """Compile a function of arrays."""
        return self.mx.compile(function)  # type: ignore[no-any-return]
