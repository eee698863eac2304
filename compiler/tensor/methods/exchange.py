"""Exchange with NumPy, Python and DLPack.

`Tensor(array)` copies the array. `from_numpy` and `from_dlpack` share memory where they can; its owner must then leave it
unchanged while a Tensor or a graph refers to it. `numpy()` is a read-only view of the Tensor's memory, `np.array(t)` a copy.
`__dlpack__` shares memory with consumers that respect read-only arrays (DLPack 1.0 and later), and copies for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.core import LazyTensorBase
from uops.compiler.tensor.dtypes import DTypeLike, as_dtype, default_dtype
from uops.compiler.tensor.faults import fault
from uops.compiler.tensor.methods.create import CreationMethods
from uops.compiler.tensor.numbers import cast_numbers_without_double_rounding, require_in_range_if_integer_dtype
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import MOST_AXES, UOp

#: The first DLPack version whose consumers know the read-only flag.
_READ_ONLY = (1, 0)


class ExchangeMethods(CreationMethods):
    """Conversion from and to arrays, lists and numbers."""

    __slots__ = ()

    def __init__(self, data: Any = (), dtype: DTypeLike | None = None) -> None:
        """Create a Tensor from a number, a list of numbers or Tensors' values, an array (copied), a Tensor or a node.

        Python numbers are bool, int32 or float32 (R25: operand dtypes), or of `dtype` directly, which converts everything else.
        """
        wanted = None if dtype is None else as_dtype(dtype)
        if isinstance(data, LazyTensorBase):
            node = data.uop
        elif isinstance(data, UOp):
            node = data
        elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
            d = wanted or default_dtype(data)
            node = B.const(require_in_range_if_integer_dtype(data, d), d)
        else:
            node = storage.make_leaf_on_contiguous_memory_or_copy(_make_array_from_list_or_array(data, wanted))
        self.uop, self._links, self._array = node if wanted is None else B.cast(node, wanted), (), None

    @classmethod
    def from_numpy(cls, array: storage.Array) -> Self:
        """Return a Tensor on the array's own memory, if that is contiguous and of a dtype of the language."""
        if not isinstance(array, np.ndarray):
            raise fault("from_numpy", None, f"expected an array, got {type(array).__name__}", SpecTypeError)
        return cls.of(storage.make_leaf_on_contiguous_memory_or_copy(array, may_others_change_it=True))

    @classmethod
    def from_dlpack(cls, source: Any) -> Self:
        """Return a Tensor on the memory of any CPU array with `__dlpack__`."""
        try:
            return cls.of(storage.make_leaf_on_contiguous_memory_or_copy(np.from_dlpack(source), may_others_change_it=True))
        except (AttributeError, BufferError, RuntimeError, TypeError) as e:
            raise fault("from_dlpack", None, str(e), SpecTypeError) from e

    def numpy(self) -> storage.Array:
        """Return the value as a read-only array on this Tensor's memory; realizes."""
        return self._realize_array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> storage.Array:
        array = self._realize_array()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"an array of {np.dtype(dtype)} needs a copy of this Tensor of {self.dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule of the value; realizes. Raises BufferError for a dtype that NumPy's DLPack lacks."""
        array = self._realize_array()
        shared = copy is not True and max_version is not None and max_version >= _READ_ONLY
        if copy is False and not shared:
            raise BufferError(
                "a Tensor's memory is read-only, which DLPack can express since version 1.0: pass max_version, or allow a copy"
            )
        owner = array if shared else array.copy()
        return owner.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (1, 0): the CPU."""
        return 1, 0

    def tolist(self) -> Any:
        """Return the value as nested lists of Python numbers; realizes."""
        return self._realize_array().tolist()

    def item(self) -> bool | int | float:
        """Return the only element as a Python number; realizes."""
        if self.numel() != 1:
            raise fault("item", None, f"expected one element, got {self.numel()} of shape {self.shape}")
        value: bool | int | float = self._realize_array().item()
        return value

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        value = self.item()
        try:
            return int(value)
        except (ValueError, OverflowError) as e:
            raise fault("__int__", None, f"expected a finite value, got {value}") from e

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise fault("__index__", None, f"expected a Tensor of an integer dtype, got {self.dtype}", SpecTypeError)
        return int(self.item())

    def __iter__(self) -> Iterator[Self]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"<Tensor {self.shape} {self.dtype}{'' if self.is_realized else ' lazy'}>"

    # Casts by name

    def float(self) -> Self:
        """Cast to float32."""
        return self.cast("float32")

    def half(self) -> Self:
        """Cast to float16."""
        return self.cast("float16")

    def bfloat16(self) -> Self:
        """Cast to bfloat16."""
        return self.cast("bfloat16")

    def double(self) -> Self:
        """Cast to float64."""
        return self.cast("float64")

    def int(self) -> Self:
        """Cast to int32."""
        return self.cast("int32")

    def long(self) -> Self:
        """Cast to int64."""
        return self.cast("int64")

    def bool(self) -> Self:
        """Cast to bool."""
        return self.cast("bool")


def _require_nesting_within_most_axes(data: Any) -> None:
    """Raise SpecValueError for lists nested deeper than a value has axes (R65: rank)."""
    for _ in range(MOST_AXES):
        if not isinstance(data, (list, tuple)) or not data:
            return
        data = data[0]
    if isinstance(data, (list, tuple)):
        raise SpecValueError(f"Tensor: expected lists nested at most {MOST_AXES} deep, one level per axis (R65)")


def _make_array_from_list_or_array(data: Any, wanted_dtype_of_numbers: DType | None) -> storage.Array:
    """Return a fresh array of a dtype of the language.

    Python numbers in lists have dtype `wanted_dtype_of_numbers`, or that which they have alone.
    """
    if isinstance(data, (list, tuple)):
        _require_nesting_within_most_axes(data)
        try:
            array = np.array([v.numpy() if isinstance(v, ExchangeMethods) else v for v in data])
        except ValueError as e:
            raise fault("__init__", None, f"expected rows of equal shape with at most {MOST_AXES - 1} axes: {e}") from e
        return (
            array
            if _contains_arrays_or_tensors(data)
            else cast_numbers_without_double_rounding(data, array, wanted_dtype_of_numbers)
        )
    if isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__"):
        return np.array(data)
    raise fault("__init__", None, f"expected a number, list, array, Tensor or node, got {type(data).__name__}", SpecTypeError)


def _contains_arrays_or_tensors(data: Any) -> bool:
    """Return True if a nested list contains an array or a Tensor."""
    if isinstance(data, (list, tuple)):
        return any(map(_contains_arrays_or_tensors, data))
    return isinstance(data, (np.ndarray, np.generic, LazyTensorBase))
