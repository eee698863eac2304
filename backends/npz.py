"""The input file format: named arrays in one `.npz`, as `uops run --inputs` reads them and reports write them.

A member is named like the input: `p<slot>` for a Param, `b<unique>` for a Buffer's initial contents, a variable's name. NumPy's
own dtypes are stored as they are, so a file made by `numpy.savez(path, p0=..., n=7)` is one. What NumPy cannot store by itself
has a second member, `<name>.dtype`, a string that says how to read the first:

    bfloat16, float8_e4m3fn, float8_e5m2    the first holds the bits, as uint16 or uint8
    index                                   the first holds decimal strings: an array of Python ints
    int                                     the first holds one decimal string: a Python int

A one-element integer member without it, under a name that is neither `p<slot>` nor `b<unique>`, is a Python int too. No member is
pickled.

A file of unknown origin may declare arrays of any size in few bytes. `Inputs` reads what members declare: one is inflated when it
is asked for, so a caller who knows what it wants looks at `header` before. Together members have at most MOST_BYTES, and
each has exactly the bytes that its dtype and shape say.
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
from uops.spec.untrusted import describe_path, open_file, printable, quote_name, write_bytes

Array = np.ndarray[Any, np.dtype[Any]]

#: Dtypes that a `.npy` member cannot name, and the dtype of their bits.
FOREIGN: dict[str, tuple[np.dtype[Any], np.dtype[Any]]] = {
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)),
    "float8_e4m3fn": (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.uint8)),
    "float8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), np.dtype(np.uint8)),
}
_SUFFIX = ".dtype"
#: Bytes that all arrays of a file may have, and how many there may be.
MOST_BYTES, MOST_MEMBERS = 1 << 33, 10_000
_NPY = ".npy"
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1
_ARRAY_KEY = re.compile(r"[pb]\d+")


class BadInputs(UopsError):
    """A file is no input file, or one of its members cannot be read."""


def save(file: str | Path | BinaryIO, inputs: Mapping[str, Any]) -> None:
    """Write `inputs`; equal inputs give equal bytes. A path is replaced whole; raises OSError, which names it."""
    members: dict[str, Array] = {}
    for name in sorted(inputs):
        members.update(_members(name, inputs[name]))
    if isinstance(file, (str, Path)):
        made = io.BytesIO()
        np.savez(made, allow_pickle=False, **members)
        write_bytes(file, made.getvalue())
    else:
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


class MemberHeader(NamedTuple):
    """The dtype and shape that a member declares for its array; the dtype is that of the elements as they are stored."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Inputs(Mapping[str, Any]):
    """The inputs of a file, by name; each is read when it is first asked for. Raises BadInputs for one that cannot be read."""

    def __init__(self, file: str | Path | BinaryIO) -> None:
        """Read what the members declare. Raises BadInputs on a file that is no input file, and OSError."""
        self.file = file
        self.called = describe_path(file) if isinstance(file, (str, Path)) else "the file"
        self._known: dict[str, Any] = {}
        with self._open() as archive:
            self._members = {name: self._check_member(archive, name) for name in self._list_members(archive)}
        total = sum(d.nbytes for d in self._members.values())
        if total > MOST_BYTES:
            raise BadInputs(f"{self.called} is no input file: its arrays have {total:,} bytes, at most {MOST_BYTES:,} are read")
        self._kinds = {n: self._read_word(n, n + _SUFFIX) for n in self._members if n + _SUFFIX in self._members}

    def header(self, name: str) -> MemberHeader:
        """The header of a member; where NumPy cannot store its dtype, with the dtype that it stands for."""
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
            self._known[name] = _value(f"{self.called}: {name}", name, self._read_array(name), self._kinds.get(name))
        return self._known[name]

    def _read_word(self, name: str, of: str) -> str:
        """Read the text of a member that says how to read another."""
        d = self._members[of]
        word = str(self._read_array(of)) if d.dtype.kind == "U" and d.shape == () and d.nbytes <= _LONGEST_WORD else str(d)
        if word not in _READ:
            raise BadInputs(f"{self.called}: {_escape(of)} is {_escape(repr(word))}; known: {', '.join(_READ)}")
        if word not in FOREIGN and self._members[name].dtype.itemsize > _LONGEST_NUMBER:
            raise self._unreadable(
                name, f"its numbers have {self._members[name].dtype.itemsize:,} bytes each, at most {_LONGEST_NUMBER:,}"
            )
        return word

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        if not isinstance(self.file, (str, Path)):
            with self._archive(self.file) as archive:
                yield archive
            return
        with open_file(self.file) as f, self._archive(f) as archive:
            yield archive

    def _archive(self, f: BinaryIO) -> zipfile.ZipFile:
        try:
            if f.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise BadInputs(f"{self.called} is no input file: it is one array, not an .npz of named arrays")
            f.seek(0)
            return zipfile.ZipFile(f)
        except BadInputs:
            raise
        except Exception as e:  # zipfile raises errors of half a dozen types on foreign bytes
            raise BadInputs(f"{self.called} is no input file: it is no .npz of named arrays ({_line(e)})") from e

    def _list_members(self, archive: zipfile.ZipFile) -> list[str]:
        """The members' names, each once."""
        found = [i.filename for i in archive.infolist()]
        if len(found) > MOST_MEMBERS:
            raise BadInputs(f"{self.called} is no input file: it has {len(found):,} members, more than {MOST_MEMBERS:,}")
        twice = next((n for k, n in enumerate(found) if n in found[:k]), None) if len(set(found)) < len(found) else None
        if twice is not None:
            raise BadInputs(f"{self.called} is no input file: member {_escape(twice.removesuffix(_NPY))} is there twice")
        odd = next((n for n in found if not n.endswith(_NPY) or set(n) & set("/\\\0\n\t")), None)
        if odd is not None:
            raise BadInputs(f"{self.called} is no input file: member {_escape(odd)} is no array")
        return [n.removesuffix(_NPY) for n in found]

    def _check_member(self, archive: zipfile.ZipFile, name: str) -> MemberHeader:
        info = archive.getinfo(name + _NPY)
        if info.flag_bits & _ENCRYPTED:
            raise BadInputs(f"{self.called} is no input file: member {_escape(name)} is encrypted")
        if info.compress_type not in _METHODS:
            raise self._unreadable(name, f"compression method {info.compress_type} is none of an .npz")
        with self._member(archive, name) as stream:
            found, _, head = self._parse_header(name, stream)
        if found.dtype.hasobject:
            raise BadInputs(
                f"{self.called}: member {_escape(name)} holds Python objects; save numbers, or index values by {__name__}"
            )
        if found.dtype.names or found.dtype.subdtype or min(found.shape, default=0) < 0:
            raise self._unreadable(name, f"an array of {found.dtype} is none of numbers")
        if info.file_size != head + found.nbytes:
            said = f"{found.dtype} of shape {found.shape} has {head + found.nbytes:,}"
            raise self._unreadable(name, f"it has {info.file_size:,} bytes, and {said}")
        return found

    @contextmanager
    def _member(self, archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
        """A member to be read; what is wrong with its bytes is said in our words."""
        try:
            with archive.open(name + _NPY) as stream:
                yield stream
        except BadInputs:
            raise
        except Exception as e:  # as above; NumPy, zlib and tokenize have more of them
            raise self._unreadable(name, _line(e)) from e

    def _parse_header(self, name: str, stream: IO[bytes]) -> tuple[MemberHeader, bool, int]:
        """Read a header: what it declares, True if columns come first, and its length in bytes."""
        start = stream.read(len(npy.MAGIC_PREFIX) + 2)
        if not start.startswith(npy.MAGIC_PREFIX):
            raise BadInputs(f"{self.called} is no input file: member {_escape(name)} is no array")
        reader = _HEADERS.get(start[-2:])
        if reader is None:
            raise self._unreadable(name, f"version {start[-2]}.{start[-1]} of .npy is not known")
        shape, fortran, dtype = reader(stream)
        return MemberHeader(dtype, shape), fortran, stream.tell()

    def _read_array(self, name: str) -> Array:
        with self._open() as archive, self._member(archive, name) as stream:
            found, fortran, _ = self._parse_header(name, stream)
            if found != self._members[name]:
                raise self._unreadable(name, "it was changed while it was read")
            flat = np.empty(math.prod(found.shape), found.dtype)
            if flat.nbytes:
                _fill(stream, flat.view(np.uint8).data)
            if stream.read(1):
                raise ValueError("it is longer than it says")
        return flat.reshape(found.shape[::-1]).T if fortran else flat.reshape(found.shape)

    def _unreadable(self, name: str, why: str) -> BadInputs:
        return BadInputs(f"{self.called} is no input file: member {_escape(name)} cannot be read: {why}")


#: By the version that a member begins with; what is above these writes names of fields, and we have none.
_HEADERS = {b"\1\0": npy.read_array_header_1_0, b"\2\0": npy.read_array_header_2_0}
#: Bytes of the word that says how to read a member, at most.
_LONGEST_WORD = 4 * 64
#: Bytes of a number as text, at most: Python reads no more digits.
_LONGEST_NUMBER = 4 * 4300


def load(file: str | Path | BinaryIO) -> dict[str, Any]:
    """All inputs of a file. Raises BadInputs on anything that is not one, and OSError."""
    return dict(Inputs(file))


def _fill(stream: IO[bytes], into: memoryview) -> None:
    """Read exactly as many bytes. Raises EOFError if there are fewer."""
    while into:
        part = stream.read(min(len(into), 1 << 20))
        if not part:
            raise EOFError("it is shorter than it says")
        into[: len(part)] = part
        into = into[len(part) :]


#: What is in the message of an error about a header that holds code: another address each time.
_PARSED = re.compile(r"<[\w.]+ object at 0x")


def _line(e: BaseException) -> str:
    """An error in one line; one that names an object of Python's parser is about code in a header."""
    if _PARSED.search(str(e)):
        return "expected a literal, got code"
    return printable(str(e) or type(e).__name__).partition("\n")[0][:200]


def _escape(name: str) -> str:
    return quote_name(name)[:100]


def _value(called: str, name: str, a: Array, word: str | None) -> Any:
    if word is None:  # as NumPy has it
        free = a.size == 1 and a.dtype.kind in "iu" and not _ARRAY_KEY.fullmatch(name)
        return int(a.reshape(-1)[0]) if free else a
    try:
        return _READ[word](a)
    except (ValueError, TypeError, IndexError) as e:
        raise BadInputs(f"{called} cannot be read as {word}: {_line(e)}") from e


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
