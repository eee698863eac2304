"""PyTorch on the processor: op by op (`torch`), and the whole graph by Inductor (`torch:compile`), which needs a C++ compiler."""

from __future__ import annotations

import os
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

_NAMES = {dt.bool_: "bool", dt.fp8e4m3: "float8_e4m3fn", dt.fp8e5m2: "float8_e5m2"}
_ONE_ROUNDING = "torch.addcmul does not promise one rounding"


class Torch(Evaluator):
    """PyTorch, eager."""

    name: ClassVar[str] = "torch"
    extra = "torch"
    distributions = ("torch",)
    lacks = (Missing("Decomposed/Mulacc", "*float*", _ONE_ROUNDING), Missing("Decomposed/Mulacc", "fp8*", _ONE_ROUNDING))
    is_probed = True
    recorded_modules = {"torch": "torch"}  # noqa: RUF012
    script_imports = ("import torch",)

    def __init__(self) -> None:
        self.torch = import_library("torch", self.extra)
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return all dtypes."""
        return {d: getattr(self.torch, _NAMES.get(d, d.name)) for d in dt.STORABLE}

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        """Return functions of `torch`."""
        t = self.torch
        # fmt: off
        return {
            Op.ADD: t.add, Op.SUB: t.sub, Op.MUL: t.mul, Op.DIV: t.true_divide, Op.NEG: t.neg, Op.MAX: t.maximum,
            Op.IDIV: t.floor_divide, Op.MOD: t.remainder, Op.RECIP: t.reciprocal, Op.TRUNC: t.trunc,
            Op.XOR: t.bitwise_xor, Op.OR: t.bitwise_or, Op.AND: t.bitwise_and,
            Op.SHL: t.bitwise_left_shift, Op.SHR: t.bitwise_right_shift, Op.NOT: t.logical_not,
            Op.CMPLT: t.lt, Op.CMPNE: t.ne, Op.CMPGT: t.gt, Op.CMPGE: t.ge, Op.CMPLE: t.le, Op.CMPEQ: t.eq, Op.WHERE: t.where,
            Op.EXP2: t.exp2, Op.LOG2: t.log2, Op.SIN: t.sin, Op.SQRT: t.sqrt, Op.POW: t.pow,
            Op.MULACC: lambda a, b, c: t.add(t.mul(a, b), c),
        }
        # fmt: on

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        """Return functions of `torch`, which has no rounding away from zero."""
        t = self.torch
        return {
            "floor": t.floor, "ceil": t.ceil, "round_to_even": t.round, "fmod": t.fmod, "floor_mod": t.remainder,
            "floor_divide": t.floor_divide, "trunc_divide": lambda x, y: t.div(x, y, rounding_mode="trunc"),
            "trunc_remainder": t.fmod, "sort": lambda x: t.sort(x).values, "argsort": lambda x: t.argsort(x, stable=True),
        }  # fmt: skip

    def is_refusal(self, error: Exception) -> bool:
        """Return True for an op without a kernel for the dtype."""
        words = ("not implemented for", "not supported", "not yet supported", "unsupported")
        return super().is_refusal(error) or (isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words))

    def import_array(self, array: Array, dtype: DType) -> Any:
        """Return a copy; the bits of floats that NumPy lacks pass as integers."""
        array = np.array(array, order="C")
        if dtype.ml_dtypes_name:
            return self.torch.from_numpy(array.view(f"i{dtype.itemsize}")).view(self.dtypes[dtype])
        return self.torch.from_numpy(array)

    def export_array(self, value: Any, dtype: DType) -> Array:
        """Return a copy; the bits of floats that NumPy lacks pass as integers."""
        value = value.contiguous()
        if dtype.ml_dtypes_name:
            value = value.view(self.torch.int8 if dtype.itemsize == 1 else self.torch.int16)
            return np.array(value.numpy(), order="C").view(STORAGE[dtype])
        return np.array(value.numpy(), order="C")

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        """Return a tensor of shape ()."""
        return self.torch.tensor(value, dtype=self.dtypes[dtype])

    def cast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `to`."""
        return x.to(self.dtypes[target])

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `view`, which scales the last axis."""
        return x.contiguous().view(self.dtypes[target])

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Reshape."""
        return self.torch.reshape(x, tuple(shape))

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        """Permute."""
        return self.torch.permute(x, tuple(order))

    def expand(self, x: Any, shape: Sequence[int]) -> Any:
        """Expand."""
        return x.expand(tuple(shape))

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        """Flip."""
        return self.torch.flip(x, tuple(axes))

    def pad(self, x: Any, widths: Sequence[tuple[int, int]]) -> Any:
        """Pad with zeros; PyTorch lists the last axis first."""
        return self.torch.nn.functional.pad(x, [n for pair in reversed(widths) for n in pair]) if widths else x

    def shrink(self, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
        """Slice."""
        return x[tuple(map(slice, starts, stops))]

    def take(self, x: Any, positions: Any, axis: int) -> Any:
        """Select one position, or several by a vector."""
        if isinstance(positions, np.ndarray):
            if not positions.ndim:
                return x.select(axis, int(positions))
            positions = self.torch.from_numpy(positions)
        taken = self.torch.index_select(x, axis, positions.reshape(-1))
        return taken if positions.ndim else taken.squeeze(axis)

    def stack(self, values: Sequence[Any]) -> Any:
        """Stack along a new axis."""
        return self.torch.stack(list(values))

    def scatter(self, flat: Any, positions: Any, values: Any) -> Any:
        """Put elements into a copy."""
        if isinstance(positions, np.ndarray):
            positions = self.torch.from_numpy(positions)
        return self.torch.index_put(flat, (positions,), values)

    def reduce(self, op: Op, x: Any, axes: tuple[int, ...], dtype: DType) -> Any:
        """Reduce in the dtype itself; a product has one axis at a time."""
        t = self.torch
        if dtype is dt.bool_:
            return (t.all if op is Op.MUL else t.any)(x, axes, keepdim=True)
        if op is Op.MUL:
            for axis in axes:
                x = t.prod(x, axis, keepdim=True, dtype=x.dtype)
            return x
        return t.amax(x, axes, keepdim=True) if op is Op.MAX else t.sum(x, axes, keepdim=True, dtype=x.dtype)


class TorchCompile(Torch):
    """PyTorch, which compiles the whole graph by Inductor."""

    name = "torch:compile"
    script_wrapper = "torch.compile({}, fullgraph=True, dynamic=False)"

    def __init__(self) -> None:
        if not (shutil.which("g++") or shutil.which("clang++")):
            raise SpecError("torch.compile needs a C++ compiler: put g++ or clang++ on the path")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # compile in this process, which the judge controls
        super().__init__()

    def compile(self, function: GraphFunction) -> GraphFunction:
        """Trace the graph to ATen ops at the first call, without computing anything, and compile that."""
        make_fx = import_library("torch.fx.experimental.proxy_tensor", self.extra).make_fx
        compiled: list[Any] = []

        def compile_on_first_call_and_run(inputs: dict[str, Any]) -> tuple[Any, ...]:
            arrays = list(inputs.values())
            if not compiled:
                module = make_fx(
                    lambda *xs: function(dict(zip(inputs, xs, strict=True))), tracing_mode="fake", _allow_non_fake_inputs=True
                )(*arrays)
                compiled.append(self.torch.compile(module, fullgraph=True, dynamic=False))
            return tuple(compiled[0](*arrays))

        return compile_on_first_call_and_run
