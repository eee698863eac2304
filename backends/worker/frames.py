"""Frames, the messages between two processes: a JSON header and a binary body.

Everything that a process with foreign code writes enters by `parse_first_frame_and_length`. It enforces limits and the form of a
frame, raises BadFrame otherwise, and makes every text of the header safe to print and to store (`escape_unprintable`). In the other
direction, `read_frame_or_none_at_end_or_cut` leaves texts unchanged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from uops.spec.errors import UopsError
from uops.spec.untrusted import BadFile, escape_unprintable, parse_json

#: The first bytes of a frame. No text has them, so other output is noticed at its first byte.
MARK = b"\xf5uop"
#: Largest sizes of a header and of a body, in bytes; a header of this size parses in seconds.
MOST_HEADER, MOST_BODY = 1 << 26, 1 << 36
#: Largest length of a message, in characters; the rest is cut off.
MOST_WORDS = 4000
#: Text for a KeyboardInterrupt that foreign code raised.
INTERRUPT = "KeyboardInterrupt, without anybody's Ctrl-C"
_SIZES = struct.Struct("<4sIQ")
#: Bytes per read of a stream, which bounds allocation by what arrives.
_CHUNK = 1 << 20

Frame = tuple[dict[str, Any], bytes]


class BadFrame(UopsError, ValueError):
    """The bytes of a process are not a frame, or a frame lacks required content. The message is one line."""


def pack_frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Encode one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _SIZES.pack(MARK, len(text), len(body)) + text + body


def read_frame_or_none_at_end_or_cut(stream: BinaryIO) -> Frame | None:
    """Read the next frame; None at the end of the stream. Raises BadFrame."""
    sizes = _read_up_to(stream, _SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    text, body = _unpack_sizes(sizes, MOST_BODY)
    data = _read_up_to(stream, text + body)
    return (_parse_object(data[:text]), data[text:]) if len(data) == text + body else None


def _read_up_to(stream: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, fewer at the end of the stream. An unbuffered pipe returns what is available."""
    data = bytearray()
    while len(data) < size and (part := stream.read(min(size - len(data), _CHUNK))):
        data += part
    return bytes(data)


def parse_first_frame_and_length(data: bytes | bytearray, max_body: int = MOST_BODY) -> tuple[Frame, int] | None:
    """Return the first frame in `data` and its length, or None while it is incomplete.

    Raises BadFrame, also for a body of more than `max_body` bytes.
    """
    _check_magic_prefix(data)
    if len(data) < _SIZES.size:
        return None
    text, body = _unpack_sizes(data, max_body)
    start, end = _SIZES.size + text, _SIZES.size + text + body
    if len(data) < end:
        return None
    return (parse_header_and_escape_texts(bytes(data[_SIZES.size : start])), bytes(data[start:end])), end


def _unpack_sizes(data: bytes | bytearray, max_body: int) -> tuple[int, int]:
    _check_magic_prefix(data)
    _, text, body = _SIZES.unpack_from(data)
    if text > MOST_HEADER or body > max_body:
        raise BadFrame(f"a frame of {text:,} and {body:,} bytes, where at most {MOST_HEADER:,} and {max_body:,} are read")
    return text, body


def _check_magic_prefix(data: bytes | bytearray) -> None:
    """Raise BadFrame unless `data` begins like a frame, as far as it goes."""
    start = bytes(data[: len(MARK)])
    if not MARK.startswith(start):
        raise BadFrame(f"expected a frame, got bytes that begin with {start!r}")


def parse_header_and_escape_texts(text: bytes) -> dict[str, Any]:
    """Parse a header, and make its texts printable. Raises BadFrame."""
    try:
        header = _parse_object(text)
        has_no_escapes = text.isascii() and b"\\" not in text and b"\x7f" not in text
        safe: dict[str, Any] = header if has_no_escapes else make_texts_printable(header)
        return safe
    except RecursionError:
        raise BadFrame("a frame nests too deep") from None


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text, "a frame")
    except BadFile as e:
        raise BadFrame(str(e)) from None
    if not isinstance(header, dict):
        raise BadFrame(f"a frame holds {type(header).__name__}, expected an object")
    return header


def make_texts_printable(value: Any) -> Any:
    """Return the same JSON value with every text made safe to print and to store."""
    if isinstance(value, str):
        return escape_unprintable(value)
    if isinstance(value, list):
        return [make_texts_printable(v) for v in value]
    return {escape_unprintable(k): make_texts_printable(v) for k, v in value.items()} if isinstance(value, dict) else value


def backend_name_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the backend in a first frame, or in the frame's `setup`, as one line."""
    scope = settings.get("setup", settings)
    return one_line(str(scope.get("backend", "?") if isinstance(scope, Mapping) else "?"))


def one_line(text: str) -> str:
    """Return a text's words on one line, cut off at MOST_WORDS characters."""
    line = " ".join(escape_unprintable(text[: 4 * MOST_WORDS]).split())
    return line if len(line) <= MOST_WORDS else line[:MOST_WORDS] + " ..."


def truncate_exception_message(e: BaseException) -> str:
    """Return the text of an exception, cut off at MOST_WORDS characters; a remark if `str` itself raises."""
    try:
        text = str(e)
    except BaseException as second:
        return f"(str() of it raised {type(second).__name__})"
    return text if len(text) <= MOST_WORDS else text[:MOST_WORDS] + " ..."


def describe_exception(e: BaseException) -> str:
    """Describe an exception in one line: its class, and its text if there is one."""
    text = truncate_exception_message(e)
    return one_line(f"{type(e).__name__}: {text}" if text else type(e).__name__)
