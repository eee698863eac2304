"""The input file format: named arrays in one `.npz`, as `uops run --inputs` reads them and reports write them.

A member is named like the input: `p<slot>` for a Param, `b<unique>` for a Buffer's initial contents, a variable's name. NumPy's
own dtypes are stored as they are, so a file made by `numpy.savez(path, p0=..., n=7)` is one. What NumPy cannot store by itself
has a second member, `<name>.dtype`, a string that says how to read the first:

    bfloat16, float8_e4m3fn, float8_e5m2    the first holds the bits, as uint16 or uint8
    index                                   the first holds decimal strings: an array of Python ints
    int                                     the first holds one decimal string: a Python int

A one-element integer member without it, under a name that is neither `p<slot>` nor `b<unique>`, is a Python int too. No member is
pickled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from uops.spec.errors import UopsError

Array = np.ndarray[Any, np.dtype[Any]]

#: Dtypes that a `.npy` member cannot name, and the dtype of their bits.
FOREIGN: dict[str, tuple[np.dtype[Any], np.dtype[Any]]] = {
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)),
    "float8_e4m3fn": (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.uint8)),
    "float8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), np.dtype(np.uint8)),
}
_SUFFIX = ".dtype"
_ARRAY_KEY = re.compile(r"[pb]\d+")


class BadInputs(UopsError):
    """A file is no input file, or one of its members cannot be read."""


def save(file: str | Path | BinaryIO, inputs: Mapping[str, Any]) -> None:
    """Write `inputs`; equal inputs give equal bytes."""
    members: dict[str, Array] = {}
    for name in sorted(inputs):
        members.update(_members(name, inputs[name]))
    np.savez(file, allow_pickle=False, **members)


def _members(name: str, value: Any) -> dict[str, Array]:
    if isinstance(value, int) and not isinstance(value, bool):
        return {name: np.array(str(value)), name + _SUFFIX: np.array("int")}
    a = np.asarray(value)
    if a.dtype == object:
        return {name: np.array([str(int(v)) for v in a.ravel()], str).reshape(a.shape), name + _SUFFIX: np.array("index")}
    if a.dtype.name in FOREIGN:
        return {
            name: np.ascontiguousarray(a).view(FOREIGN[a.dtype.name][1]).reshape(a.shape),
            name + _SUFFIX: np.array(a.dtype.name),
        }
    return {name: a}


def load(file: str | Path | BinaryIO) -> dict[str, Any]:
    """The inputs of a file. Raises BadInputs on anything that is not one."""
    try:
        members = np.load(file, allow_pickle=False)
    except Exception as e:  # NumPy, zipfile, zlib and tokenize raise errors of a dozen types on foreign bytes
        why = "it is no .npz of named arrays" if _is_about_objects(e) else e
        raise BadInputs(f"{_called(file)} is no input file: {why}") from e
    if isinstance(members, np.ndarray):
        raise BadInputs(f"{_called(file)} is one array, not an .npz of named arrays")
    with members:
        found = {name: _member(file, members, name) for name in members.files}
    return {name: _value(name, a, found.get(name + _SUFFIX)) for name, a in found.items() if not name.endswith(_SUFFIX)}


def _member(file: str | Path | BinaryIO, members: Mapping[str, Any], name: str) -> Array:
    try:
        found = members[name]
    except Exception as e:  # as above
        if _is_about_objects(e):
            raise BadInputs(
                f"{_called(file)}: member {name} holds Python objects; save numbers, or index values by uops.backends.npz"
            ) from e
        raise BadInputs(f"{_called(file)} is no input file: member {name} cannot be read: {e}") from e
    if not isinstance(found, np.ndarray):
        raise BadInputs(f"{_called(file)} is no input file: member {name} is no array")
    return found


def _is_about_objects(e: Exception) -> bool:
    """NumPy speaks of pickling where an array, or a file it does not know, could only be read as Python objects."""
    return "pickle" in str(e)


def _called(file: str | Path | BinaryIO) -> str:
    return str(file) if isinstance(file, (str, Path)) else "the file"


def _value(name: str, a: Array, kind: Array | None) -> Any:
    if kind is None:  # as NumPy has it
        free = a.size == 1 and a.dtype.kind in "iu" and not _ARRAY_KEY.fullmatch(name)
        return int(a.reshape(-1)[0]) if free else a
    word = str(kind)
    try:
        return _READ[word](a)
    except KeyError:
        raise BadInputs(f"{name}{_SUFFIX} is {word!r}; known: {', '.join(_READ)}") from None
    except (ValueError, TypeError, IndexError) as e:
        raise BadInputs(f"{name} cannot be read as {word}: {e}") from e


def _from_bits(word: str, a: Array) -> Array:
    dtype, bits = FOREIGN[word]
    if a.dtype != bits:
        raise ValueError(f"its bits must be {bits}, got {a.dtype}")
    found: Array = np.ascontiguousarray(a).view(dtype)
    return found.reshape(a.shape)


def _integers(a: Array) -> Array:
    found = np.empty(a.size, object)
    found[:] = [int(str(v)) for v in a.ravel()]
    return found.reshape(a.shape)


_READ: dict[str, Any] = {
    **{word: (lambda a, word=word: _from_bits(word, a)) for word in FOREIGN},
    "index": _integers,
    "int": lambda a: int(str(a.reshape(-1)[0])),
}
