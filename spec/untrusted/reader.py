"""Read a file of unknown origin: a regular file, within a size, or an error of one line that names it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from uops.spec.errors import UopsError
from uops.spec.untrusted.printable import printable, quote_name

#: Bytes of a file, at most, where the caller says nothing else.
MOST_BYTES = 1 << 28
#: Bytes that are read at once, at least.
_CHUNK = 1 << 16
_BOM = b"\xef\xbb\xbf"
_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip

Path = str | os.PathLike[str]


class BadFile(UopsError, ValueError):
    """A file cannot be read as what it should be. The message is one line that names the file, and the place where there is one."""


def describe_path(path: Path) -> str:
    """Spell the name of a file for a message."""
    return quote_name(os.fsdecode(path))


@contextmanager
def open_file(path: Path, *, pipes: bool = False, follow_links: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file to be read; with `pipes`, also a pipe.

    Raises BadFile if it is a directory or a device; OSError if the system refuses. Without `pipes` it never blocks.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK) | (0 if follow_links else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except ValueError as e:  # a zero in it, or what the file system's encoding does not have
        raise BadFile(f"{quote_name(str(path))} is no name of a file: {quote_name(str(e))}") from None
    try:
        kind = os.fstat(handle).st_mode
        if not (stat.S_ISREG(kind) or (pipes and stat.S_ISFIFO(kind))):
            raise BadFile(f"{describe_path(path)} is {_KINDS.get(stat.S_IFMT(kind), 'no regular file')}; expected a file")
        with open(handle, "rb", closefd=False) as f:
            yield f
    finally:
        os.close(handle)


def read_bytes(path: Path, *, most: int = MOST_BYTES, pipes: bool = False, follow_links: bool = True) -> bytes:
    """Return the contents of a regular file; with `pipes`, also of a pipe, until its writer closes it.

    Raises as `open_file` does, and BadFile if there are more than `most` bytes; it never reads more, whatever the file does
    meanwhile.
    """
    with open_file(path, pipes=pipes, follow_links=follow_links) as f:
        size = os.fstat(f.fileno()).st_size
        parts: list[bytes] = []
        left = most + 1 if size <= most else 0
        try:
            while left and (part := f.read(min(left, max(size, _CHUNK) + 1))):
                parts.append(part)
                left -= len(part)
        except OSError as e:  # the system does not say of which file
            raise type(e)(e.errno, e.strerror, os.fspath(path)) from e
    if not left:
        raise BadFile(f"{describe_path(path)} has more than the {most:,} bytes that are read")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_text(path: Path, *, most: int = MOST_BYTES, pipes: bool = False) -> str:
    """Return the text of a UTF-8 file, without the byte order mark that some editors put first; line ends become newlines.

    Raises as `read_bytes` does, and BadFile with the line if it is no UTF-8.
    """
    data = read_bytes(path, most=most, pipes=pipes).removeprefix(_BOM)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise BadFile(f"{describe_path(path)}:{line} is not UTF-8 text: {e.reason} (byte 0x{data[e.start]:02x})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, *, most: int = MOST_BYTES) -> Any:
    """Return the value of a JSON file. Raises as `read_text` does, and BadFile with the place if it is no JSON."""
    return parse_json(read_text(path, most=most), describe_path(path))


def parse_json(text: str | bytes, what: str) -> Any:
    """Return the value of a JSON text; `what` names it in messages. Raises BadFile, however deep or long it is."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as e:
        raise BadFile(f"{what}:{e.lineno}:{e.colno} is no JSON: {printable(e.msg)}") from None
    except RecursionError:
        raise BadFile(f"{what} is no JSON of ours: it nests too deep") from None
    except ValueError as e:  # a number of too many digits, a constant that JSON does not have, bytes that are no UTF-8
        raise BadFile(f"{what} is no JSON of ours: {printable(str(e))}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
