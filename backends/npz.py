"""The input file format: named arrays in one `.npz`, read by `uops run --inputs` and written by reports.

A member has the name of the input: `p<slot>` for a Param, `b<unique>` for a Buffer's initial contents, or a variable's name.
NumPy's own dtypes are stored unchanged, so `numpy.savez(path, p0=..., n=7)` writes an input file. A value that NumPy cannot store
has a second member, `<name>.dtype`: a string with the encoding of the first.

    bfloat16, float8_e4m3fn, float8_e5m2    the first holds the bits, as uint16 or uint8
    index                                   the first holds decimal strings: an array of Python ints
    int                                     the first holds one decimal string: a Python int

Without `<name>.dtype`, a one-element integer member is a Python int, too, unless its name is `p<slot>` or `b<unique>`. No member is
pickled.

A file of unknown origin may declare arrays of any size in few bytes. `InputFile` reads the declarations first and inflates a member
on first use, so callers can check its `header` before. All members together have at most MOST_BYTES. Each has exactly the bytes
that its dtype and shape imply.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np
from numpy.lib import format as npy

from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.untrusted import describe_path, escape_to_one_line, escape_unprintable, open_regular_file, write_bytes

Array = np.ndarray[Any, np.dtype[Any]]

#: Dtypes that a `.npy` member cannot name -> (the dtype, the dtype of its bits).
FOREIGN: dict[str, tuple[np.dtype[Any], np.dtype[Any]]] = {
    d.ml_dtypes_name: (np.dtype(getattr(ml_dtypes, d.ml_dtypes_name)), np.dtype(d.word.name))
    for d in sorted(dt.FLOATS, key=lambda d: d.ml_dtypes_name)
    if d.ml_dtypes_name
}
_SUFFIX = ".dtype"
#: Largest total size of a file's arrays, in bytes, and largest number of members.
MOST_BYTES, MOST_MEMBERS = 1 << 33, 10_000
_NPY = ".npy"
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1
_ARRAY_KEY = re.compile(r"[pb]\d+")


class BadInputs(UopsError):
    """A file is not an input file, or one of its members is unreadable."""


def save(file: str | Path | BinaryIO, inputs: Mapping[str, Any]) -> None:
    """Write inputs to a file; equal inputs give equal bytes. A path is replaced atomically. Raises OSError with the path."""
    members: dict[str, Array] = {}
    for name in sorted(inputs):
        members.update(_encode_value_as_members(name, inputs[name]))
    if isinstance(file, (str, Path)):
        archive = io.BytesIO()
        _write_archive(archive, members)
        write_bytes(file, archive.getvalue())
    else:
        _write_archive(file, members)


def _write_archive(file: BinaryIO, members: Mapping[str, Array]) -> None:
    """Write the bytes of `numpy.savez`, whose own parameters are no names of members."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            with archive.open(name + _NPY, "w", force_zip64=True) as stream:
                npy.write_array(stream, array, allow_pickle=False)


def _encode_value_as_members(name: str, value: Any) -> dict[str, Array]:
    """Return the one or two members that store a value."""
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


class MemberHeader(NamedTuple):
    """The declared dtype and shape of a member; the dtype is that of its elements as stored."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of the array, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class _NpyHeader(NamedTuple):
    """The header of a member as NumPy has written it; `byte_size` is where the data begins."""

    header: MemberHeader
    is_fortran_order: bool
    byte_size: int


class InputFile(Mapping[str, Any]):
    """The inputs of a file, by name; each is read on first use. Raises BadInputs for an unreadable member."""

    def __init__(self, file: str | Path | BinaryIO) -> None:
        """Read the declarations of all members. Raises BadInputs for a file that is not an input file, and OSError."""
        self.file = file
        self.called = describe_path(file) if isinstance(file, (str, Path)) else "the file"
        self._known: dict[str, Any] = {}
        with self._open_archive() as archive:
            self._members = {
                name: self._read_and_check_header(archive, name) for name in self._list_and_check_member_names(archive)
            }
        total = sum(d.nbytes for d in self._members.values())
        if total > MOST_BYTES:
            raise BadInputs(f"{self.called} is not an input file: its arrays have {total:,} bytes, at most {MOST_BYTES:,} are read")
        self._kinds = {
            n: self._read_known_encoding_and_limit_digits(n, n + _SUFFIX) for n in self._members if n + _SUFFIX in self._members
        }

    def decoded_header(self, name: str) -> MemberHeader:
        """Return the header of a member, with the dtype that it encodes where NumPy cannot store that dtype."""
        dtype, shape = self._members[name]
        word = self._kinds.get(name)
        return MemberHeader(dtype if word is None else FOREIGN[word][0] if word in FOREIGN else np.dtype(object), shape)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._members if not name.endswith(_SUFFIX))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._members  # a Mapping would read it

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            if name not in self._members:
                raise KeyError(name)
            self._known[name] = _decode_array_or_int(f"{self.called}: {name}", name, self._read_array(name), self._kinds.get(name))
        return self._known[name]

    def _read_known_encoding_and_limit_digits(self, encoded_member: str, encoding_member: str) -> str:
        """Read the member that names another one's encoding. Raises BadInputs for an unknown encoding."""
        d = self._members[encoding_member]
        word = (
            str(self._read_array(encoding_member))
            if d.dtype.kind == "U" and d.shape == () and d.nbytes <= _LONGEST_WORD
            else str(d)
        )
        if word not in _READ:
            raise BadInputs(f"{self.called}: {_escape(encoding_member)} is {_escape(repr(word))}; known: {', '.join(_READ)}")
        if word not in FOREIGN and self._members[encoded_member].dtype.itemsize > _LONGEST_NUMBER:
            raise self._unreadable_error(
                encoded_member,
                f"its numbers have {self._members[encoded_member].dtype.itemsize:,} bytes each, at most {_LONGEST_NUMBER:,}",
            )
        return word

    @contextmanager
    def _open_archive(self) -> Iterator[zipfile.ZipFile]:
        """Open the file as an archive for the duration of the context."""
        if not isinstance(self.file, (str, Path)):
            with self._parse_zip_rejecting_bare_npy(self.file) as archive:
                yield archive
            return
        with open_regular_file(self.file) as f, self._parse_zip_rejecting_bare_npy(f) as archive:
            yield archive

    def _parse_zip_rejecting_bare_npy(self, f: BinaryIO) -> zipfile.ZipFile:
        try:
            if f.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise BadInputs(f"{self.called} is not an input file: it is one array, not an .npz of named arrays")
            f.seek(0)
            return zipfile.ZipFile(f)
        except BadInputs:
            raise
        except Exception as e:  # zipfile raises errors of half a dozen types on foreign bytes
            raise BadInputs(f"{self.called} is not an input file: it is no .npz of named arrays ({_describe_error(e)})") from e

    def _list_and_check_member_names(self, archive: zipfile.ZipFile) -> list[str]:
        """Return the members' names. Raises BadInputs for duplicates, and names that no array has."""
        names = [i.filename for i in archive.infolist()]
        if len(names) > MOST_MEMBERS:
            raise BadInputs(f"{self.called} is not an input file: it has {len(names):,} members, more than {MOST_MEMBERS:,}")
        duplicate = next((n for k, n in enumerate(names) if n in names[:k]), None) if len(set(names)) < len(names) else None
        if duplicate is not None:
            raise BadInputs(f"{self.called} is not an input file: member {_escape(duplicate.removesuffix(_NPY))} occurs twice")
        invalid_name = next((n for n in names if not n.endswith(_NPY) or set(n) & set("/\\\0\n\t")), None)
        if invalid_name is not None:
            raise BadInputs(f"{self.called} is not an input file: member {_escape(invalid_name)} is not an array")
        return [n.removesuffix(_NPY) for n in names]

    def _read_and_check_header(self, archive: zipfile.ZipFile, name: str) -> MemberHeader:
        """Read a member's header without its data. Raises BadInputs unless it declares a plain array of its file size."""
        info = archive.getinfo(name + _NPY)
        if info.flag_bits & _ENCRYPTED:
            raise BadInputs(f"{self.called} is not an input file: member {_escape(name)} is encrypted")
        if info.compress_type not in _METHODS:
            raise self._unreadable_error(name, f"expected compression store or deflate, got method {info.compress_type}")
        with self._open_member(archive, name) as stream:
            header, _, header_size = self._parse_npy_header(name, stream)
        if header.dtype.hasobject:
            raise BadInputs(
                f"{self.called}: member {_escape(name)} holds Python objects; save numbers, or index values by {__name__}"
            )
        if header.dtype.names or header.dtype.subdtype or min(header.shape, default=0) < 0:
            raise self._unreadable_error(name, f"expected an array of numbers, got {header.dtype}")
        if info.file_size != header_size + header.nbytes:
            declared = f"{header.dtype} of shape {header.shape} has {header_size + header.nbytes:,}"
            raise self._unreadable_error(name, f"it has {info.file_size:,} bytes, and {declared}")
        return header

    @contextmanager
    def _open_member(self, archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
        """Open a member for reading; turn any error of its decoding into BadInputs."""
        try:
            with archive.open(name + _NPY) as stream:
                yield stream
        except BadInputs:
            raise
        except Exception as e:  # NumPy, zlib and tokenize raise further types
            raise self._unreadable_error(name, _describe_error(e)) from e

    def _parse_npy_header(self, name: str, stream: IO[bytes]) -> _NpyHeader:
        """Read the header at the start of a member. Raises BadInputs."""
        start = stream.read(len(npy.MAGIC_PREFIX) + 2)
        if not start.startswith(npy.MAGIC_PREFIX):
            raise BadInputs(f"{self.called} is not an input file: member {_escape(name)} is not an array")
        reader = _HEADERS.get(start[-2:])
        if reader is None:
            raise self._unreadable_error(name, f"version {start[-2]}.{start[-1]} of .npy is not supported")
        shape, fortran, dtype = reader(stream)
        return _NpyHeader(MemberHeader(dtype, shape), fortran, stream.tell())

    def _read_array(self, name: str) -> Array:
        """Read a member's array. Raises BadInputs if it differs from its declaration."""
        with self._open_archive() as archive, self._open_member(archive, name) as stream:
            header, fortran, _ = self._parse_npy_header(name, stream)
            if header != self._members[name]:
                raise self._unreadable_error(name, "it was changed while it was read")
            flat = np.empty(math.prod(header.shape), header.dtype)
            if flat.nbytes:
                _fill_from_stream(stream, flat.view(np.uint8).data)
            if stream.read(1):
                raise ValueError("it is longer than it says")
        return flat.reshape(header.shape[::-1]).T if fortran else flat.reshape(header.shape)

    def _unreadable_error(self, name: str, why: str) -> BadInputs:
        return BadInputs(f"{self.called} is not an input file: member {_escape(name)} cannot be read: {why}")


#: Version bytes of a `.npy` member -> reader of its header; later versions are for structured dtypes alone.
_HEADERS = {b"\1\0": npy.read_array_header_1_0, b"\2\0": npy.read_array_header_2_0}
#: Largest size of the name of an encoding, in bytes.
_LONGEST_WORD = 4 * 64
#: Largest size of a decimal number, in bytes: Python parses no more digits.
_LONGEST_NUMBER = 4 * 4300


def load(file: str | Path | BinaryIO) -> dict[str, Any]:
    """Return all inputs of a file. Raises BadInputs for a file that is not an input file, and OSError."""
    return dict(InputFile(file))


def _fill_from_stream(stream: IO[bytes], buffer: memoryview) -> None:
    """Fill the buffer from a stream. Raises EOFError if the stream is too short."""
    while buffer:
        data = stream.read(min(len(buffer), 1 << 20))
        if not data:
            raise EOFError("it is shorter than it says")
        buffer[: len(data)] = data
        buffer = buffer[len(data) :]


#: Address in the error message about a header that holds code: it differs each time.
_PARSED = re.compile(r"<[\w.]+ object at 0x")


def _describe_error(e: BaseException) -> str:
    """Describe an error in one line. An error that names an object of Python's parser is about code in a header."""
    if _PARSED.search(str(e)):
        return "expected a literal, got code"
    return escape_unprintable(str(e) or type(e).__name__).partition("\n")[0][:200]


def _escape(name: str) -> str:
    return escape_to_one_line(name)[:100]


def _decode_array_or_int(error_prefix: str, name: str, a: Array, encoding: str | None) -> Any:
    if encoding is None:  # as NumPy has it
        is_number = a.size == 1 and a.dtype.kind in "iu" and not _ARRAY_KEY.fullmatch(name)
        return int(a.reshape(-1)[0]) if is_number else a
    try:
        return _READ[encoding](a)
    except (ValueError, TypeError, IndexError) as e:
        raise BadInputs(f"{error_prefix} cannot be read as {encoding}: {_describe_error(e)}") from e


def _array_from_bits(foreign_dtype_name: str, bits_array: Array) -> Array:
    dtype, bits = FOREIGN[foreign_dtype_name]
    if bits_array.dtype != bits:
        raise ValueError(f"its bits must be {bits}, got {bits_array.dtype}")
    array: Array = np.ascontiguousarray(bits_array).view(dtype)
    return array.reshape(bits_array.shape)


def _parse_integers(a: Array) -> Array:
    numbers = np.empty(a.size, object)
    numbers[:] = [int(str(v)) for v in a.ravel()]
    return numbers.reshape(a.shape)


_READ: dict[str, Any] = {
    **{word: (lambda a, word=word: _array_from_bits(word, a)) for word in FOREIGN},
    "index": _parse_integers,
    "int": lambda a: int(str(a.reshape(-1)[0])),
}
