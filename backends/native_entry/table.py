"""Programs as builtins of Python: the table of words of each, and the native module that all of them enter through.

Takes: a `ProgramFrame`. Gives: its `NativeEntry`, or None in a process that the module does not support: another CPython than
the usual one, another NumPy than 1 or 2, no ELF. Assumptions about the layout of objects are compared once with what Python says
of them.
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
from uops.backends.elf import is_linkable_or_host_lacks_elf
from uops.backends.llvm import binding
from uops.backends.llvm.binding import LlvmTier
from uops.backends.native_entry import module, sharing
from uops.backends.native_entry.module import ArgumentEntry, TableHeader
from uops.backends.native_entry.module import LaunchEntry as LaunchWords
from uops.backends.native_entry.pool import FORKED
from uops.compiler.runtime.frame import ArrayInput, KernelLaunch, ProgramFrame, VariableInput
from uops.compiler.target import NativeEntry
from uops.spec.errors import Crash

#: Least work, in instructions, of a run that releases the interpreter's lock.
LONG_WORK = 40_000
#: Alignment of temporaries in bytes: a cache line.
_LINE = 64
_FASTCALL = 0x80
#: Range of a word.
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _PyMethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class NumpyApi(NamedTuple):
    """Addresses of PyArray_NewFromDescr, PyArray_SetBaseObject and the type of arrays."""

    new_array: int
    set_base: int
    array_type: int


class NativeModule(NamedTuple):
    """The module in this process. `method` must outlive every builtin made of it, so it lives as long as the process."""

    method: _PyMethodDef
    execute: Any
    numpy: NumpyApi


def build_native_entry(frame: ProgramFrame, fallback: Callable[..., Any], store: ObjectCache) -> NativeEntry | None:
    """Build the native entries of a program, all of whose kernels are functions of this process; None if unsupported."""
    native = load_or_compile_native_module(store)
    if native is None:
        return None
    table = _encode_program_table(frame, fallback, native)
    address = ctypes.cast(ctypes.c_char_p(table), ctypes.c_void_p)
    bound = (table, fallback, frame)

    def execute(addresses: Sequence[int], variables: Sequence[int]) -> None:
        bases = (ctypes.c_uint64 * (len(addresses) or 1))(*addresses)
        native.execute(bound and address, ctypes.addressof(bases), _int64_array(variables))

    return NativeEntry(None if frame.inputs is None else _make_builtin(native.method, bound), execute)


def _int64_array(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * (len(values) or 1))(*values)


def _make_builtin(method: _PyMethodDef, bound: tuple[Any, ...]) -> Callable[..., Any]:
    builtin: Callable[..., Any] = _load_builtin_constructor()(ctypes.byref(method), bound, None)
    return builtin


@functools.cache
def _load_builtin_constructor() -> Any:
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.argtypes, new.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object
    return new


# The table


def _encode_program_table(frame: ProgramFrame, fallback: Callable[..., Any], native: NativeModule) -> bytes:
    """Build the table of words of a program (`module.TableHeader`)."""
    words = [0] * TableHeader.SIZE

    def append_section(rows: Iterable[Sequence[int]]) -> int:
        at = len(words)
        for row in rows:
            words.extend(row)
        return at

    shapes = {
        m.shape: append_section([m.shape]) for m in (*(frame.inputs or ()), *frame.outputs) if not isinstance(m, VariableInput)
    }
    fixed = dict(frame.fixed_arrays)
    offsets, block = _align_offsets_and_sum_bytes([t.size for t in frame.temporaries])
    lists = [append_section(_argument_pairs(launch)) for launch in frame.launches]
    inputs = frame.inputs or ()
    head = {
        TableHeader.FALLBACK: id(fallback),
        TableHeader.ARGUMENTS: len(inputs),
        TableHeader.ARGUMENTS_AT: append_section(_build_argument_entry(i, shapes) for i in inputs),
        TableHeader.BASES: frame.base_count,
        TableHeader.BASES_AT: append_section([_data_address(fixed[k]) if k in fixed else 0] for k in range(frame.base_count)),
        TableHeader.TEMPORARIES: len(frame.temporaries),
        TableHeader.TEMPORARIES_AT: append_section((t.base, at) for t, at in zip(frame.temporaries, offsets)),
        TableHeader.BLOCK: block,
        TableHeader.OUTPUTS: len(frame.outputs),
        TableHeader.OUTPUTS_AT: append_section(
            (
                m.base,
                id(m.dtype),
                len(m.shape),
                shapes[m.shape],
                _size_bytes(m.dtype, m.shape),
                m.base if m.source is None else m.source,
            )
            for m in frame.outputs
        ),
        TableHeader.LAUNCHES: len(frame.launches),
        TableHeader.LAUNCHES_AT: append_section(
            _build_launch_entry(launch, at, frame.piece_instructions) for launch, at in zip(frame.launches, lists)
        ),
        TableHeader.VARIABLES: frame.variable_count,
        TableHeader.WIDEST: max((len(launch.buffers) for launch in frame.launches), default=0),
        TableHeader.SINGLE: frame.returns_single,
        TableHeader.LONG: sum(launch.instruction_count for launch in frame.launches) >= LONG_WORK,
        TableHeader.THREADS: sharing.count_usable_threads(frame),
        TableHeader.NEW_ARRAY: native.numpy.new_array,
        TableHeader.SET_BASE: native.numpy.set_base,
        TableHeader.ARRAY_TYPE: native.numpy.array_type,
    }
    for k, value in head.items():
        words[k] = value
    return struct.pack(f"<{len(words)}q", *map(_to_signed_word, words))


def _to_signed_word(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else int(word)


def _clamp_bounds_to_int64(i: VariableInput) -> tuple[int, int]:
    """Return the bounds as int64; (1, 0) if they contain no int64. The fallback judges larger ints."""
    low, high = max(i.low, _LEAST), min(i.high, _MOST)
    return (low, high) if low <= high else (1, 0)


def _build_argument_entry(i: ArrayInput | VariableInput, shape_positions: dict[tuple[int, ...], int]) -> list[int]:
    row = [0] * ArgumentEntry.SIZE
    if isinstance(i, VariableInput):
        row[ArgumentEntry.KIND], row[ArgumentEntry.TO] = module.VARIABLE, i.variable
        row[ArgumentEntry.LOW], row[ArgumentEntry.HIGH] = _clamp_bounds_to_int64(i)
        return row
    row[ArgumentEntry.KIND], row[ArgumentEntry.TO] = module.OPTIONAL if i.optional else module.REQUIRED, i.base
    row[ArgumentEntry.DTYPE] = id(i.dtype)
    row[ArgumentEntry.DIMENSIONS], row[ArgumentEntry.DIMENSIONS_AT] = len(i.shape), shape_positions[i.shape]
    row[ArgumentEntry.BOOLS] = _size_bytes(i.dtype, i.shape) if i.is_bool else 0
    return row


def _build_launch_entry(launch: KernelLaunch, arguments_word_position: int, piece_instructions: int) -> list[int]:
    row = [0] * LaunchWords.SIZE
    part = launch.kernel.part if launch.thread_extent else 0  # type: ignore[attr-defined]
    row[LaunchWords.KERNEL] = part or launch.kernel.address  # type: ignore[attr-defined]
    row[LaunchWords.ARGUMENTS], row[LaunchWords.ARGUMENTS_AT] = len(launch.buffers), arguments_word_position
    row[LaunchWords.EXTENT] = launch.thread_extent if part else 0
    row[LaunchWords.CHUNKS] = min(launch.instruction_count // piece_instructions, _MOST)
    return row


def _argument_pairs(launch: KernelLaunch) -> list[tuple[int, int]]:
    return [b if b is not None else (-1 - (v or 0), 0) for b, v in zip(launch.buffers, launch.variables)]


def _align_offsets_and_sum_bytes(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Return the offset of each temporary, and the bytes of all."""
    offsets, total = [], 0
    for size in sizes:
        offsets.append(total)
        total += -(-size // _LINE) * _LINE
    return offsets, total


def _data_address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _size_bytes(dtype: Any, shape: Sequence[int]) -> int:
    size = int(dtype.itemsize)
    for n in shape:
        size *= n
    return size


# The module

_LINKED = module.CALL, module.EXECUTE, FORKED


@functools.cache
def _link_native_module_for_good(image: bytes) -> NativeModule | None:
    """Link the object into this process for good, as its code must outlive every array and thread that it made."""
    api = _load_numpy_api_if_layout_fits()
    if api is None:
        return None
    try:
        loaded = binding.load_object(image, *_LINKED)
    except Crash:  # the process lacks one of the symbols
        return None
    binding.keep_alive(loaded)
    call, execute, forked = loaded.addresses
    renew = ctypes.CFUNCTYPE(None)(forked)
    renew()
    os.register_at_fork(after_in_child=renew)
    method = _PyMethodDef(b"program", call, _FASTCALL, b"Run the program on arrays and ints, in the order of its keys.")
    return NativeModule(method, _SIGNATURE(execute), api)


@functools.cache
def load_or_compile_native_module(store: ObjectCache) -> NativeModule | None:
    """Return the native module, compiled unless the cache has it; None in an unsupported process."""
    host = binding.detect_host_without_gfni()
    if sys.platform != "linux" or sys.implementation.name != "cpython" or "t" in sys.abiflags:  # t: free-threaded
        return None
    text = module.render_entry_module(host.triple)
    named = "entry", host.llvm, host.triple, host.cpu, host.features, text

    def make() -> bytes:
        return binding.compile_object(text, host, LlvmTier.FAST, module.SYMBOLS)

    image = store.get_or_make(make, *named, usable=lambda image_bytes: is_linkable_or_host_lacks_elf(image_bytes, *_LINKED))
    return _link_native_module_for_good(image) or _link_native_module_for_good(
        store.remake(make, *named)
    )  # a cached object may not link here


#: Numbers of NumPy's C interface, the same in NumPy 1 and 2.
_ARRAY_TYPE, _NEW_FROM_DESCR, _SET_BASE_OBJECT = 2, 94, 282


@functools.cache
def _load_numpy_api_if_layout_fits() -> NumpyApi | None:
    """Return addresses in NumPy's C interface; None if arrays have another layout."""
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    if table[_ARRAY_TYPE] != id(np.ndarray) or not all(map(_has_expected_layout, _make_probe_arrays())):
        return None
    return NumpyApi(int(table[_NEW_FROM_DESCR] or 0), int(table[_SET_BASE_OBJECT] or 0), id(np.ndarray))


def _make_probe_arrays() -> list[Any]:
    """Return arrays of various shapes, strides and alignments."""
    whole = np.zeros((3, 4, 5), np.float32)
    return [
        whole,
        whole[:, ::2],
        whole.T,
        np.zeros((), np.int64),
        np.frombuffer(bytes(9), np.int32, 2, 1),
        np.zeros((0, 7), np.bool_),
    ]


def _has_expected_layout(array: Any) -> bool:
    """Return True if the fields of an array hold what its attributes say; pointers are followed last."""
    words = (ctypes.c_uint64 * 9).from_address(id(array))
    flags = array.flags.c_contiguous | array.flags.aligned << 8
    fields = (words[1], words[2], words[3] & 0xFFFFFFFF, words[7], words[8] & 0x101)
    if fields != (id(np.ndarray), _data_address(array), array.ndim, id(array.dtype), flags):
        return False
    return all(ctypes.c_int64.from_address(words[4] + 8 * k).value == n for k, n in enumerate(array.shape))
