"""NumPy arrays at the boundary of a backend: storage dtypes, and an encoding in which arrays cross processes.

A packet is a JSON header and one body of raw bytes. Decoding executes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from uops.backends.worker.frames import BadFrame, describe_exception
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.result import Result

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]

#: NumPy dtype of each storable dtype, and of `index` where the values fit (else an object array of Python ints).
STORAGE: dict[DType, np.dtype[Any]] = {
    d: np.dtype(getattr(ml_dtypes, d.ml_dtypes_name) if d.ml_dtypes_name else d.array_name) for d in (*dt.STORABLE, dt.index)
}
#: Storable dtype of each NumPy dtype.
DTYPE_OF: dict[np.dtype[Any], DType] = {STORAGE[d]: d for d in dt.STORABLE}
_BY_NAME = {d.name: d for d in STORAGE.values()}
_OBJECT = "object"

Header = dict[str, Any]


def as_array(value: Any) -> Array:
    """Return a value as an array. A Python int beyond int64 becomes an array of an object, as index values do (R08)."""
    is_beyond_int64 = isinstance(value, int) and not dt.int64.min <= value <= dt.int64.max
    return np.asarray(value, object) if is_beyond_int64 else np.asarray(value)


def is_subnormal(a: Array, d: DType) -> npt.NDArray[np.bool_]:
    """Return where a float array is subnormal."""
    with np.errstate(all="ignore"):
        magnitude = np.abs(a.astype(np.float64))
        return np.asarray((magnitude > 0) & (magnitude < d.smallest_normal))


def flush_subnormals(a: Array) -> Array:
    """Return an array with zeros of the same sign in place of subnormals; the array itself if it has none."""
    d = DTYPE_OF.get(a.dtype)
    if d is None or not d.is_float or not (small := is_subnormal(a, d)).any():
        return a
    return np.where(small, np.copysign(np.zeros_like(a), a), a).astype(a.dtype)


def is_int(value: Any) -> bool:
    """Return True for a Python int or a NumPy integer, which are index values. A bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def encode_arrays(arrays: Mapping[str, Any]) -> tuple[Header, bytes]:
    """Encode named arrays and Python ints as a packet; object arrays of ints hold index values beyond int64.

    An array in another byte order is encoded in the native one.
    """
    header: Header = {}
    body = bytearray()
    for name, value in arrays.items():
        if isinstance(value, int) and not isinstance(value, bool):
            header[name] = {"int": hex(value)}
            continue
        array = as_array(value)
        if array.dtype == object:
            if not all(map(is_int, array.ravel())):
                raise SpecError(f"{name} is an array of objects that are not all ints, which stores no dtype of the language")
            header[name] = {"dtype": _OBJECT, "shape": array.shape, "ints": [hex(v) for v in array.ravel()]}
            continue
        dtype = _BY_NAME.get(array.dtype.name)
        if dtype is None:
            raise SpecError(f"{name} has NumPy dtype {array.dtype}, which stores no dtype of the language")
        header[name] = {"dtype": dtype.name, "shape": array.shape, "offset": len(body)}
        body += array.astype(dtype, copy=False).tobytes()
    return header, bytes(body)


def decode_arrays(header: Any, body: bytes) -> dict[str, Any]:
    """Decode a packet of `encode_arrays` to arrays that own their memory and are writable.

    Raises BadFrame for anything else. Allocates little more than the size of the packet.
    """
    if not isinstance(header, dict):
        raise BadFrame(f"expected arrays by name, got {header!r:.80}")
    return {name: _decode_array_naming_it_in_errors(name, entry, body) for name, entry in header.items()}


def _decode_array_naming_it_in_errors(name: str, entry: Any, body: bytes) -> Any:
    try:
        return _decode_array_or_int(entry, body)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise BadFrame(f"array {name[:80]!r} is not as it was written: {describe_exception(e)[:200]}") from None


def _decode_array_or_int(entry: dict[str, Any], body: bytes) -> Any:
    if "int" in entry:
        return int(_require_type(str, entry["int"]), 16)
    shape = tuple(_require_type(int, n) for n in entry["shape"])
    if any(n < 0 for n in shape):
        raise ValueError(f"no array has shape {shape}")
    if entry["dtype"] == _OBJECT:
        flat = np.empty(len(entry["ints"]), dtype=object)
        flat[:] = [int(_require_type(str, text), 16) for text in entry["ints"]]
        return flat.reshape(shape)
    dtype, count, offset = _BY_NAME[entry["dtype"]], math.prod(shape), _require_type(int, entry["offset"])
    if not 0 <= offset <= len(body) - count * dtype.itemsize:
        raise ValueError(f"{count:,} elements at byte {offset:,} of {len(body):,}")
    return np.frombuffer(body, dtype, count, offset).reshape(shape).copy() if count else np.empty(shape, dtype)


def _require_type(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def encode_result(result: Result) -> tuple[Header, bytes]:
    """Encode a Result as a packet: values under their positions, buffers under their keys."""
    named = {**{f"v{k}": v for k, v in enumerate(result.values)}, **result.buffers}
    return encode_arrays({name: as_array(value) for name, value in named.items()})


def decode_result(header: Any, body: bytes) -> Result:
    """Decode a packet of `encode_result`. Raises BadFrame."""
    arrays = decode_arrays(header, body)
    value_names = [name for name in arrays if name.startswith("v")]
    if {*value_names} != {f"v{k}" for k in range(len(value_names))}:
        raise BadFrame(f"expected {len(value_names)} values by number, got {', '.join(value_names)[:80]}")
    buffers = {name: array for name, array in arrays.items() if not name.startswith("v")}
    return Result(tuple(arrays[f"v{k}"] for k in range(len(value_names))), buffers)
