"""Exchange with NumPy, Python and DLPack.

`Tensor(array)` copies the array. `from_numpy` and `from_dlpack` share memory where they can; whoever owns it must then leave it
unchanged while a Tensor or a graph refers to it. `numpy()` is a read-only view of the Tensor's memory, `np.array(t)` a copy.
`__dlpack__` shares memory with consumers that respect read-only arrays (DLPack 1.0 and later) and copies for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.core import Core
from uops.compiler.tensor.dtypes import DTypeLike, as_dtype, default_dtype
from uops.compiler.tensor.faults import fault
from uops.compiler.tensor.methods.create import Creation
from uops.compiler.tensor.numbers import array_of_numbers, check_fit
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import MOST_AXES, UOp

_READ_ONLY = (1, 0)  # the DLPack version whose consumers know the read-only flag


class Exchange(Creation):
    """From and to arrays, lists and numbers."""

    __slots__ = ()

    def __init__(self, data: Any = (), dtype: DTypeLike | None = None) -> None:
        """From a number (a constant), a list of numbers or Tensors' values, an array (copied), a Tensor or a node.

        Python numbers are bool, int32 or float32 (R25), or of `dtype` directly, which converts all else.
        """
        wanted = None if dtype is None else as_dtype(dtype)
        if isinstance(data, Core):
            node = data.uop
        elif isinstance(data, UOp):
            node = data
        elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
            d = wanted or default_dtype(data)
            node = B.const(check_fit(data, d), d)
        else:
            node = storage.leaf(_array(data, wanted))
        self.uop, self._links = node if wanted is None else B.cast(node, wanted), ()

    @classmethod
    def from_numpy(cls, array: storage.Array) -> Self:
        """A Tensor on the array's own memory, where that is contiguous and of a dtype of the language."""
        if not isinstance(array, np.ndarray):
            raise fault("from_numpy", None, f"{type(array).__name__} is no array", SpecTypeError)
        return cls.of(storage.leaf(array, shared=True))

    @classmethod
    def from_dlpack(cls, source: Any) -> Self:
        """A Tensor on the memory of any CPU array with `__dlpack__`."""
        try:
            return cls.of(storage.leaf(np.from_dlpack(source), shared=True))
        except (AttributeError, BufferError, RuntimeError, TypeError) as e:
            raise fault("from_dlpack", None, str(e), SpecTypeError) from e

    def numpy(self) -> storage.Array:
        """The value as a read-only array on this Tensor's memory; realizes."""
        return self._array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> storage.Array:
        found = self._array()
        if dtype is not None and np.dtype(dtype) != found.dtype:
            if copy is False:
                raise ValueError(f"an array of {np.dtype(dtype)} needs a copy of this Tensor of {self.dtype}")
            return found.astype(dtype)
        return found.copy() if copy else found

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the value; realizes. Raises BufferError for a dtype that DLPack's NumPy side lacks."""
        found = self._array()
        shared = copy is not True and max_version is not None and max_version >= _READ_ONLY
        if copy is False and not shared:
            raise BufferError(
                "a Tensor's memory is read-only, which DLPack says since version 1.0: pass max_version, or allow a copy"
            )
        given = found if shared else found.copy()
        return given.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): the CPU."""
        return 1, 0

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers; realizes."""
        return self._array().tolist()

    def item(self) -> bool | int | float:
        """The only element, as a Python number; realizes."""
        if self.numel() != 1:
            raise fault("item", None, f"shape {self.shape} has {self.numel()} elements, not one")
        value: bool | int | float = self._array().item()
        return value

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        value = self.item()
        try:
            return int(value)
        except (ValueError, OverflowError) as e:
            raise fault("__int__", None, f"{value} has no integer value") from e

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise fault("__index__", None, f"a Tensor of {self.dtype} is no index", SpecTypeError)
        return int(self.item())

    def __iter__(self) -> Iterator[Self]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"<Tensor {self.shape} {self.dtype}{'' if self.is_realized else ' lazy'}>"

    # Casts by name

    def float(self) -> Self:
        return self.cast("float32")

    def half(self) -> Self:
        return self.cast("float16")

    def bfloat16(self) -> Self:
        return self.cast("bfloat16")

    def double(self) -> Self:
        return self.cast("float64")

    def int(self) -> Self:
        return self.cast("int32")

    def long(self) -> Self:
        return self.cast("int64")

    def bool(self) -> Self:
        return self.cast("bool")


def _check_depth(data: Any) -> None:
    """Raise SpecValueError for lists that nest deeper than a value has axes."""
    for _ in range(MOST_AXES):
        if not isinstance(data, (list, tuple)) or not data:
            return
        data = data[0]
    if isinstance(data, (list, tuple)):
        raise SpecValueError(f"Tensor: lists nest deeper than {MOST_AXES}, the most axes that a value has (R65)")


def _array(data: Any, wanted: DType | None) -> storage.Array:
    """A fresh array of a dtype of the language; Python numbers in lists are of the dtype wanted, or of those they have alone."""
    if isinstance(data, (list, tuple)):
        _check_depth(data)
        try:
            found = np.array([v.numpy() if isinstance(v, Exchange) else v for v in data])
        except ValueError as e:
            raise fault("__init__", None, f"the rows of a list have one shape, and it at most 64 axes; {e}") from e
        return found if _has_arrays(data) else array_of_numbers(data, found, wanted)
    if isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__"):
        return np.array(data)
    raise fault("__init__", None, f"cannot make a Tensor of {type(data).__name__}", SpecTypeError)


def _has_arrays(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_has_arrays, data))
    return isinstance(data, (np.ndarray, np.generic, Core))
