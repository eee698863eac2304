"""JAX with 64-bit dtypes: op by op (`jax`), and the whole graph as one XLA program (`jax:jit`), on the processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import FLUSHES_SUBNORMALS, Missing
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.host import Array, list_numpy_functions, list_numpy_optional_functions
from uops.backends.subjects.library import GraphFunction, import_library
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op


class Jax(Evaluator):
    """JAX, which compiles each op by itself."""

    name: ClassVar[str] = "jax"
    extra = "jax"
    distributions = ("jax", "jaxlib")
    lacks = (
        Missing("Decomposed/Mulacc", "*float*", "JAX has no fused multiply-add"),
        Missing("Decomposed/Mulacc", "fp8*", "JAX has no fused multiply-add"),
    )

    traits = (FLUSHES_SUBNORMALS,)  # JAX's document "The Sharp Bits"; https://github.com/jax-ml/jax/issues/16200

    recorded_modules = {"jax": "jax", "jnp": "jnp", "lax": "lax"}  # noqa: RUF012
    script_imports = (
        "import jax", "import jax.numpy as jnp", "from jax import lax", 'jax.config.update("jax_enable_x64", True)'
    )  # fmt: skip

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        self.jax = import_library("jax", self.extra)
        self.jax.config.update("jax_enable_x64", True)
        self.jnp, self.lax = self.jax.numpy, self.jax.lax
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return NumPy's dtypes and those of ml_dtypes, which JAX shares."""
        return {d: STORAGE[d] for d in dt.STORABLE}

    def list_functions(self) -> dict[Op, Callable[..., Any]]:
        """Return functions of `jax.numpy`, Exp2 of `jax.lax`, and Threefry of `jax.extend`."""
        return list_numpy_functions(self.jnp) | {Op.EXP2: self.lax.exp2, Op.THREEFRY: self._threefry}

    def list_optional_functions(self) -> dict[str, Callable[..., Any]]:
        """Return functions of `jax.numpy`, and of `jax.lax` where NumPy has none."""
        away = {"round_away": lambda x: self.lax.round(x, self.lax.RoundingMethod.AWAY_FROM_ZERO), "trunc_divide": self.lax.div}
        sorting = {"argsort": lambda x: self.jnp.argsort(x, stable=True)}
        return list_numpy_optional_functions(self.jnp) | away | sorting

    def _threefry(self, counter: Any, key: Any) -> Any:
        """Apply the block cipher under `jax.random` to the words of a counter and a key."""
        import_library("jax.extend.random", self.extra)
        counter, key = self.jnp.broadcast_arrays(counter, key)
        words = [w for x in (key, counter) for w in self._split_words(x)]
        low, high = self.jax.extend.random.threefry2x32_p.bind(*words)
        return self.lax.bitcast_convert_type(self.jnp.stack([low, high], -1), np.uint64)

    def _split_words(self, x: Any) -> tuple[Any, Any]:
        words = self.lax.bitcast_convert_type(x, np.uint32)
        return words[..., 0], words[..., 1]

    def import_array(self, array: Array, dtype: DType) -> Any:
        """Return a copy on the device."""
        return self.jnp.array(array)

    def export_array(self, value: Any, dtype: DType) -> Array:
        """Return a copy."""
        return np.array(value, order="C")

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        """Return an array of shape ()."""
        return self.jnp.asarray(np.array(value, STORAGE[dtype]))

    def cast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `astype`."""
        return x.astype(self.dtypes[target])

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        """Convert by `view`, which scales the last axis."""
        return x.view(self.dtypes[target])

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Reshape."""
        return self.jnp.reshape(x, shape)

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        """Transpose."""
        return self.jnp.transpose(x, order)

    def expand(self, x: Any, shape: Sequence[int]) -> Any:
        """Broadcast."""
        return self.jnp.broadcast_to(x, shape)

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        """Reverse axes."""
        return self.lax.rev(x, axes)

    def pad(self, x: Any, widths: Sequence[tuple[int, int]]) -> Any:
        """Pad with zeros."""
        return self.jnp.pad(x, widths) if widths else x

    def shrink(self, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
        """Slice."""
        return self.lax.slice(x, starts, stops)

    def take(self, x: Any, positions: Any, axis: int) -> Any:
        """Take along an axis."""
        return self.jnp.take(x, positions, axis)

    def stack(self, values: Sequence[Any]) -> Any:
        """Stack along a new axis."""
        return self.jnp.stack(values)

    def scatter(self, flat: Any, positions: Any, values: Any) -> Any:
        """Update a copy."""
        return flat.at[positions].set(values)

    def reduce(self, op: Op, x: Any, axes: tuple[int, ...], dtype: DType) -> Any:
        """Reduce in the dtype itself."""
        if dtype is dt.bool_:
            return (self.jnp.all if op is Op.MUL else self.jnp.any)(x, axes, keepdims=True)
        if op is Op.MAX:
            return self.jnp.max(x, axes, keepdims=True)
        return (self.jnp.sum if op is Op.ADD else self.jnp.prod)(x, axes, dtype=x.dtype, keepdims=True)


class JaxJit(Jax):
    """JAX, which compiles the whole graph."""

    name = "jax:jit"
    script_wrapper = "jax.jit({})"

    def compile(self, function: GraphFunction) -> GraphFunction:
        """Compile a function of arrays."""
        return self.jax.jit(function)  # type: ignore[no-any-return]
