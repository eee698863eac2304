"""Frames in which two processes speak: a JSON header and a binary body.

Whatever a process of somebody's code writes enters here, by `split_frame`: a frame is within limits and a JSON object, or BadFrame,
and every text of its header is safe to print and to store (`printable`). The other way, by `read_frame`, texts stay as they are.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from uops.spec.errors import UopsError
from uops.spec.untrusted import BadFile, parse_json, printable

#: What a frame begins with. No text does, so whatever else a process prints is noticed at its first byte.
MARK = b"\xf5uop"
#: Bytes of a header and of a body, at most; such a header is read in seconds.
MOST_HEADER, MOST_BODY = 1 << 26, 1 << 36
#: Characters of a message, at most: what follows them is left out.
MOST_WORDS = 4000
#: What a KeyboardInterrupt is called that foreign code raised.
INTERRUPT = "KeyboardInterrupt, without anybody's Ctrl-C"
_SIZES = struct.Struct("<4sIQ")
#: Bytes that are asked of a stream at a time, so that no more is allocated than comes.
_CHUNK = 1 << 20

Frame = tuple[dict[str, Any], bytes]


class BadFrame(UopsError, ValueError):
    """Bytes of a process are no frame, or a frame does not say what it has to. The message is one line."""


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Spell one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _SIZES.pack(MARK, len(text), len(body)) + text + body


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame; None at the end of the stream. Raises BadFrame."""
    sizes = _read_up_to(stream, _SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    text, body = _unpack_sizes(sizes, MOST_BODY)
    data = _read_up_to(stream, text + body)
    return (_parse_object(data[:text]), data[text:]) if len(data) == text + body else None


def _read_up_to(stream: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, fewer at the end of the stream. A pipe without a buffer gives what is there."""
    found = bytearray()
    while len(found) < size and (more := stream.read(min(size - len(found), _CHUNK))):
        found += more
    return bytes(found)


def split_frame(data: bytes | bytearray, most: int = MOST_BODY) -> tuple[Frame, int] | None:
    """The first frame in `data` and its length, or None while it is incomplete. Raises BadFrame, also for a body above `most`."""
    _check_mark(data)
    if len(data) < _SIZES.size:
        return None
    text, body = _unpack_sizes(data, most)
    start, end = _SIZES.size + text, _SIZES.size + text + body
    if len(data) < end:
        return None
    return (header_of(bytes(data[_SIZES.size : start])), bytes(data[start:end])), end


def _unpack_sizes(data: bytes | bytearray, most: int) -> tuple[int, int]:
    _check_mark(data)
    _, text, body = _SIZES.unpack_from(data)
    if text > MOST_HEADER or body > most:
        raise BadFrame(f"a frame of {text:,} and {body:,} bytes, where at most {MOST_HEADER:,} and {most:,} are read")
    return text, body


def _check_mark(data: bytes | bytearray) -> None:
    """Raise BadFrame unless `data` begins as a frame does, as far as it goes."""
    found = bytes(data[: len(MARK)])
    if not MARK.startswith(found):
        raise BadFrame(f"expected a frame, got bytes that begin with {found!r}")


def header_of(text: bytes) -> dict[str, Any]:
    """The JSON object of a header, its texts made safe. Raises BadFrame."""
    try:
        found = _parse_object(text)
        plain = text.isascii() and b"\\" not in text and b"\x7f" not in text
        safe: dict[str, Any] = found if plain else printable_texts(found)
        return safe
    except RecursionError:
        raise BadFrame("a frame nests too deep") from None


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        found = parse_json(text, "a frame")
    except BadFile as e:
        raise BadFrame(str(e)) from None
    if not isinstance(found, dict):
        raise BadFrame(f"a frame holds {type(found).__name__}, expected an object")
    return found


def printable_texts(value: Any) -> Any:
    """Return the same JSON value with every text in it safe to print and to store."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_texts(v) for v in value]
    return {printable(k): printable_texts(v) for k, v in value.items()} if isinstance(value, dict) else value


def name_of(settings: Mapping[str, Any]) -> str:
    """The backend that a first frame names, itself or in its `setup`, as one line."""
    found = settings.get("setup", settings)
    return one_line(str(found.get("backend", "?") if isinstance(found, Mapping) else "?"))


def one_line(text: str) -> str:
    """The words of a text on one line, cut off where they are too many."""
    line = " ".join(printable(text[: 4 * MOST_WORDS]).split())
    return line if len(line) <= MOST_WORDS else line[:MOST_WORDS] + " ..."


def message_of(e: BaseException) -> str:
    """The text of an exception, cut off at MOST_WORDS characters; a remark in its place if the text cannot be had."""
    try:
        text = str(e)
    except BaseException as again:
        return f"(its text cannot be had: {type(again).__name__})"
    return text if len(text) <= MOST_WORDS else text[:MOST_WORDS] + " ..."


def describe(e: BaseException) -> str:
    """An exception as one line: its class and what it says, if it says something."""
    text = message_of(e)
    return one_line(f"{type(e).__name__}: {text}" if text else type(e).__name__)
