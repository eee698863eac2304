"""Readers of untrusted files: a regular file of a limited size, or an error of one line that names the file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from uops.spec.errors import UopsError
from uops.spec.untrusted.printable import escape_to_one_line, escape_unprintable

#: The default limit of a file's size, in bytes.
MOST_BYTES = 1 << 28
#: The least number of bytes of a read.
_CHUNK = 1 << 16
_BOM = b"\xef\xbb\xbf"
_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip

Path = str | os.PathLike[str]


class BadFile(UopsError, ValueError):
    """A file that cannot be read as expected; the message is one line with the file, and the place in it if there is one."""


def describe_path(path: Path) -> str:
    """Return the name of a file for a message."""
    return escape_to_one_line(os.fsdecode(path))


@contextmanager
def open_regular_file(path: Path, *, pipes: bool = False, follow_links: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading; with `pipes`, also a pipe.

    Raises BadFile for a directory or a device, and OSError if the system refuses. Without `pipes` it never blocks.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK) | (0 if follow_links else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except ValueError as e:  # a null character, or one that the file system's encoding lacks
        raise BadFile(f"{escape_to_one_line(str(path))} is not a file name: {escape_to_one_line(str(e))}") from None
    try:
        kind = os.fstat(handle).st_mode
        if not (stat.S_ISREG(kind) or (pipes and stat.S_ISFIFO(kind))):
            raise BadFile(f"{describe_path(path)} is {_KINDS.get(stat.S_IFMT(kind), 'no regular file')}; expected a file")
        with open(handle, "rb", closefd=False) as f:
            yield f
    finally:
        os.close(handle)


def read_bytes(path: Path, *, max_bytes: int = MOST_BYTES, pipes: bool = False, follow_links: bool = True) -> bytes:
    """Return the contents of a regular file; with `pipes`, also of a pipe, until its writer closes it.

    Raises as `open_regular_file` does, and BadFile if there are more than `max_bytes`. It never reads more, even if the file grows.
    """
    with open_regular_file(path, pipes=pipes, follow_links=follow_links) as f:
        size = os.fstat(f.fileno()).st_size
        parts: list[bytes] = []
        left = max_bytes + 1 if size <= max_bytes else 0
        try:
            while left and (part := f.read(min(left, max(size, _CHUNK) + 1))):
                parts.append(part)
                left -= len(part)
        except OSError as e:  # the system's error lacks the file
            raise type(e)(e.errno, e.strerror, os.fspath(path)) from e
    if not left:
        raise BadFile(f"{describe_path(path)} is too large: expected at most {max_bytes:,} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_text(path: Path, *, max_bytes: int = MOST_BYTES, pipes: bool = False) -> str:
    """Return the text of a UTF-8 file without a byte order mark; line ends become newlines.

    Raises as `read_bytes` does, and BadFile with the line if the file is not UTF-8.
    """
    data = read_bytes(path, max_bytes=max_bytes, pipes=pipes).removeprefix(_BOM)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise BadFile(f"{describe_path(path)}:{line} is not UTF-8 text: {e.reason} (byte 0x{data[e.start]:02x})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, *, max_bytes: int = MOST_BYTES) -> Any:
    """Return the value of a JSON file; raises as `read_text` does, and BadFile with the place if it is not JSON."""
    return parse_json(read_text(path, max_bytes=max_bytes), describe_path(path))


def parse_json(text: str | bytes, source_name: str) -> Any:
    """Return the value of a JSON text, which messages call `source_name`; raises BadFile if it is not JSON or nests too deep."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as e:
        raise BadFile(f"{source_name}:{e.lineno}:{e.colno} is no JSON: {escape_unprintable(e.msg)}") from None
    except RecursionError:
        raise BadFile(f"{source_name} is no JSON that can be read: it nests too deep") from None
    except ValueError as e:  # a number with too many digits, a constant that JSON lacks, bytes that are not UTF-8
        raise BadFile(f"{source_name} is no JSON that can be read: {escape_unprintable(str(e))}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
