"""Programs as builtins of Python: the table of words of each, and the one native module that all of them enter through.

Takes a `Frame`. Gives its `Entered`, or None where this process is not one that the module knows: another CPython than the usual
one, another NumPy than 1 or 2, no ELF. What is assumed about objects is compared once with what Python says of them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.backends.cache import ObjectCache
from uops.backends.elf import is_linkable
from uops.backends.llvm import binding, entry
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.entry import Argument, Head
from uops.backends.llvm.entry import Launch as LaunchWords
from uops.backends.llvm.host import cores
from uops.backends.llvm.pool import FORKED
from uops.compiler.runtime.frame import ArrayInput, Frame, Launch, VariableInput
from uops.compiler.target import Entered
from uops.spec.errors import Crash

#: Instructions from which a run is worth letting other Python threads run, and from which a piece of a loop is worth handing out.
LONG_WORK = 40_000
PIECE_WORK = 8_000
#: Temporaries begin where cache lines do.
_LINE = 64
_FASTCALL = 0x80
#: The numbers that a word holds.
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class Native(NamedTuple):
    """The module in this process. `method` lives as long as any builtin made of it, which is as long as the process."""

    method: _Method
    execute: Any
    new_array: int
    set_base: int
    array_type: int


def enter(frame: Frame, fallback: Callable[..., Any], store: ObjectCache) -> Entered | None:
    """The native ways into a program, all of whose kernels are functions of this process."""
    native = load(store)
    if native is None:
        return None
    table = _table(frame, fallback, native)
    address = ctypes.cast(ctypes.c_char_p(table), ctypes.c_void_p)
    kept = (table, fallback, frame)

    def execute(addresses: Sequence[int], variables: Sequence[int]) -> None:
        bases = (ctypes.c_uint64 * (len(addresses) or 1))(*addresses)
        native.execute(kept and address, ctypes.addressof(bases), _int64(variables))

    return Entered(None if frame.inputs is None else _builtin(native.method, kept), execute)


def _int64(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * (len(values) or 1))(*values)


def _builtin(method: _Method, bound: tuple[Any, ...]) -> Callable[..., Any]:
    made: Callable[..., Any] = _new_builtin()(ctypes.byref(method), bound, None)
    return made


@functools.cache
def _new_builtin() -> Any:
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.argtypes, new.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object
    return new


# The table


def _table(frame: Frame, fallback: Callable[..., Any], native: Native) -> bytes:
    words = [0] * Head.SIZE

    def section(rows: Iterable[Sequence[int]]) -> int:
        at = len(words)
        for row in rows:
            words.extend(row)
        return at

    shapes = {m.shape: section([m.shape]) for m in (*(frame.inputs or ()), *frame.made) if not isinstance(m, VariableInput)}
    fixed = dict(frame.fixed)
    offsets, block = _placed([t.size for t in frame.temporaries])
    lists = [section(_pairs(launch)) for launch in frame.launches]
    inputs = frame.inputs or ()
    head = {
        Head.FALLBACK: id(fallback),
        Head.ARGUMENTS: len(inputs),
        Head.ARGUMENTS_AT: section(_argument(i, shapes) for i in inputs),
        Head.BASES: frame.bases,
        Head.BASES_AT: section([_address(fixed[k]) if k in fixed else 0] for k in range(frame.bases)),
        Head.TEMPORARIES: len(frame.temporaries),
        Head.TEMPORARIES_AT: section((t.base, at) for t, at in zip(frame.temporaries, offsets)),
        Head.BLOCK: block,
        Head.OUTPUTS: len(frame.made),
        Head.OUTPUTS_AT: section(
            (m.base, id(m.dtype), len(m.shape), shapes[m.shape], _bytes(m.dtype, m.shape), m.base if m.source is None else m.source)
            for m in frame.made
        ),
        Head.LAUNCHES: len(frame.launches),
        Head.LAUNCHES_AT: section(_launch(launch, at) for launch, at in zip(frame.launches, lists)),
        Head.VARIABLES: frame.variables,
        Head.WIDEST: max((len(launch.buffers) for launch in frame.launches), default=0),
        Head.SINGLE: frame.single,
        Head.LONG: sum(launch.work for launch in frame.launches) >= LONG_WORK,
        Head.THREADS: min(frame.threads or cores(), cores()),
        Head.NEW_ARRAY: native.new_array,
        Head.SET_BASE: native.set_base,
        Head.ARRAY_TYPE: native.array_type,
    }
    for k, value in head.items():
        words[k] = value
    return struct.pack(f"<{len(words)}q", *map(_signed, words))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else int(word)


def _interval(i: VariableInput) -> tuple[int, int]:
    """The bounds as int64, (1, 0) where no int64 is within them. The fallback judges the ints beyond int64."""
    low, high = max(i.low, _LEAST), min(i.high, _MOST)
    return (low, high) if low <= high else (1, 0)


def _argument(i: ArrayInput | VariableInput, shapes: dict[tuple[int, ...], int]) -> list[int]:
    row = [0] * Argument.SIZE
    if isinstance(i, VariableInput):
        row[Argument.KIND], row[Argument.TO] = entry.VARIABLE, i.variable
        row[Argument.LOW], row[Argument.HIGH] = _interval(i)
        return row
    row[Argument.KIND], row[Argument.TO] = entry.OPTIONAL if i.optional else entry.REQUIRED, i.base
    row[Argument.DTYPE] = id(i.dtype)
    row[Argument.DIMENSIONS], row[Argument.DIMENSIONS_AT] = len(i.shape), shapes[i.shape]
    row[Argument.BOOLS] = _bytes(i.dtype, i.shape) if i.bools else 0
    return row


def _launch(launch: Launch, at: int) -> list[int]:
    row = [0] * LaunchWords.SIZE
    part = launch.kernel.part if launch.extent else 0  # type: ignore[attr-defined]
    row[LaunchWords.KERNEL] = part or launch.kernel.address  # type: ignore[attr-defined]
    row[LaunchWords.ARGUMENTS], row[LaunchWords.ARGUMENTS_AT] = len(launch.buffers), at
    row[LaunchWords.EXTENT] = launch.extent if part else 0
    row[LaunchWords.CHUNKS] = min(launch.work // PIECE_WORK, _MOST)
    return row


def _pairs(launch: Launch) -> list[tuple[int, int]]:
    return [b if b is not None else (-1 - (v or 0), 0) for b, v in zip(launch.buffers, launch.variables)]


def _placed(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where each temporary begins, and the bytes of all."""
    offsets, total = [], 0
    for size in sizes:
        offsets.append(total)
        total += -(-size // _LINE) * _LINE
    return offsets, total


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _bytes(dtype: Any, shape: Sequence[int]) -> int:
    size = int(dtype.itemsize)
    for n in shape:
        size *= n
    return size


# The module

_LINKED = entry.CALL, entry.EXECUTE, FORKED


@functools.cache
def _loaded(image: bytes) -> Native | None:
    """The object in this process, for good: its code has to outlive every array that it made and every thread of its pool."""
    api = _numpy()
    if api is None:
        return None
    try:
        loaded = binding.load_object(image, *_LINKED)
    except Crash:  # a process without one of the symbols
        return None
    binding.keep(loaded)
    call, execute, forked = loaded.addresses
    renew = ctypes.CFUNCTYPE(None)(forked)
    renew()
    os.register_at_fork(after_in_child=renew)
    method = _Method(b"program", call, _FASTCALL, b"Run the program on arrays and ints, in the order of its keys.")
    return Native(method, _SIGNATURE(execute), *api)


@functools.cache
def load(store: ObjectCache) -> Native | None:
    """The native module, compiled where the cache does not have it; None where it cannot be."""
    host = binding.host()
    if sys.platform != "linux" or sys.implementation.name != "cpython" or "t" in sys.abiflags:  # t: objects without a lock
        return None
    text = entry.text(host.triple)
    named = "entry", host.llvm, host.triple, host.cpu, host.features, text

    def make() -> bytes:
        return binding.compile_object(text, host, Tier.FAST, entry.SYMBOLS)

    image = store.made(make, *named, usable=lambda found: is_linkable(found, *_LINKED))
    return _loaded(image) or _loaded(store.remake(make, *named))  # from the cache it may be one that does not link


#: Numbers of NumPy's C interface, the same in NumPy 1 and 2.
_ARRAY_TYPE, _NEW_FROM_DESCR, _SET_BASE_OBJECT = 2, 94, 282


@functools.cache
def _numpy() -> tuple[int, int, int] | None:
    """(PyArray_NewFromDescr, PyArray_SetBaseObject, the type of arrays), or None where arrays do not look as expected."""
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    if table[_ARRAY_TYPE] != id(np.ndarray) or not all(map(_as_expected, _probes())):
        return None
    return int(table[_NEW_FROM_DESCR] or 0), int(table[_SET_BASE_OBJECT] or 0), id(np.ndarray)


def _probes() -> list[Any]:
    whole = np.zeros((3, 4, 5), np.float32)
    return [
        whole,
        whole[:, ::2],
        whole.T,
        np.zeros((), np.int64),
        np.frombuffer(bytes(9), np.int32, 2, 1),
        np.zeros((0, 7), np.bool_),
    ]


def _as_expected(a: Any) -> bool:
    """Whether the fields of an array hold what its attributes say; what one points at is read last."""
    words = (ctypes.c_uint64 * 9).from_address(id(a))
    flags = a.flags.c_contiguous | a.flags.aligned << 8
    found = (words[1], words[2], words[3] & 0xFFFFFFFF, words[7], words[8] & 0x101)
    if found != (id(np.ndarray), _address(a), a.ndim, id(a.dtype), flags):
        return False
    return all(ctypes.c_int64.from_address(words[4] + 8 * k).value == n for k, n in enumerate(a.shape))
