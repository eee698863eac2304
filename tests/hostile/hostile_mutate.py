"""Mutations of files that know how the files are made. Each is a pure function of a generator of numbers and some samples.

A mutation takes a `random.Random` and whole samples of one format, and gives bytes. `of(kind)` gives those that fit a kind of file;
bytes are changed whatever they mean.
"""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

Samples = Sequence[bytes]
Mutation = Callable[[random.Random, Samples], bytes]

#: What stands where a value is expected.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x",
    "\ud800", "\x1b[31m", "\u202e", "a\nb", "../../etc/passwd", "9" * 5000, [], {}, [[]], [None], {"": 0},
)  # fmt: skip
#: What stands where a number is.
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"inf",
    b"9" * 30,
    b"9" * 5000,
    b"0x" + b"f" * 17,
    b"1.5",
    b"",
    b"2147483648",
    b"\xd9\xa3",
)
STRANGE = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    "\u202e".encode(),
    b"\xc2",
    b"\x85",
    b"[" * 3000,
)


# ------------------------------------------------------------------------------------------------------------------- bytes


def flip(draw: random.Random, samples: Samples) -> bytes:
    """Some bits."""
    data = bytearray(draw.choice(samples))
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        if data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def cut(draw: random.Random, samples: Samples) -> bytes:
    """The beginning, or the end."""
    data = draw.choice(samples)
    at = draw.randrange(len(data) + 1)
    return data[:at] if draw.random() < 0.8 else data[at:]


def repeat_or_drop(draw: random.Random, samples: Samples) -> bytes:
    """A part twice, or not at all."""
    data = draw.choice(samples)
    a, b = sorted(draw.randrange(len(data) + 1) for _ in "ab")
    return data[:b] + data[a:] if draw.random() < 0.5 else data[:a] + data[b:]


def put(draw: random.Random, samples: Samples) -> bytes:
    """Strange bytes somewhere, or at the beginning."""
    data, strange = draw.choice(samples), draw.choice(STRANGE)
    at = draw.choice((0, draw.randrange(len(data) + 1)))
    return data[:at] + strange + data[at + draw.choice((0, len(strange))) :]


def splice(draw: random.Random, samples: Samples) -> bytes:
    """The beginning of one, the end of another."""
    a, b = draw.choice(samples), draw.choice(samples)
    return a[: draw.randrange(len(a) + 1)] + b[draw.randrange(len(b) + 1) :]


def fill(draw: random.Random, samples: Samples) -> bytes:
    """A part of zeros, or nothing but strange bytes."""
    data = bytearray(draw.choice(samples))
    if draw.random() < 0.1:
        return draw.choice(STRANGE) * draw.choice((0, 1, 1000))
    a, b = sorted(draw.randrange(len(data) + 1) for _ in "ab")
    data[a:b] = bytes([draw.choice((0, 255, 32))]) * (b - a)
    return bytes(data)


# ------------------------------------------------------------------------------------------------------------ text and lines


def numbers(draw: random.Random, samples: Samples) -> bytes:
    """Another number in place of one."""
    data = draw.choice(samples)
    at = [k for k, c in enumerate(data) if 48 <= c < 58 and not (k and 48 <= data[k - 1] < 58)]
    if not at:
        return data
    start = end = draw.choice(at)
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    return data[:start] + draw.choice(NUMBERS) + data[end:]


def lines(draw: random.Random, samples: Samples) -> bytes:
    """Lines that are dropped, doubled, moved, swapped, or of another file."""
    found = draw.choice(samples).splitlines(keepends=True) or [b""]
    others = draw.choice(samples).splitlines(keepends=True) or [b""]
    for _ in range(draw.choice((1, 1, 2, 4))):
        k, j = draw.randrange(len(found)), draw.randrange(len(found))
        what = draw.randrange(6)
        if what == 0:
            del found[k]
        elif what == 1:
            found.insert(j, found[k])
        elif what == 2:
            found.insert(j, found.pop(k))
        elif what == 3:
            found[k], found[j] = found[j], found[k]
        elif what == 4:
            found[k] = draw.choice(others)
        else:
            found = found[: k + 1]
        found = found or [b""]
    return b"".join(found)


def words(draw: random.Random, samples: Samples) -> bytes:
    """Words that are dropped, doubled, swapped, or of another file."""
    found = draw.choice(samples).split(b" ")
    others = draw.choice(samples).split(b" ")
    k, j = draw.randrange(len(found)), draw.randrange(len(found))
    what = draw.randrange(4)
    if what == 0:
        del found[k]
    elif what == 1:
        found.insert(j, found[k])
    elif what == 2:
        found[k], found[j] = found[j], found[k]
    else:
        found[k] = draw.choice(others)
    return b" ".join(found)


# --------------------------------------------------------------------------------------------------------------------- JSON


def values(draw: random.Random, samples: Samples) -> bytes:
    """A value of a JSON document of another type, dropped, renamed, swapped with another, or of another document."""
    head, document, tail = _document(draw, samples)
    other = _document(draw, samples)[1]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            break
        container, key = draw.choice(places)
        what = draw.randrange(6)
        if what <= 1:
            container[key] = copy.deepcopy(draw.choice(VALUES))
        elif what == 2:
            del container[key]
        elif what == 3:
            elsewhere, at = draw.choice(places)
            container[key], elsewhere[at] = elsewhere[at], container[key]
            document = json.loads(json.dumps(document)) if not _loops(document) else {}
        elif what == 4:
            at = [(c, k) for c, k in _places(other)] or [([0], 0)]
            c, k = draw.choice(at)
            container[key] = copy.deepcopy(c[k])
        elif isinstance(container, dict):
            container[draw.choice(("", "x", key + "x", key.upper()))] = container.pop(key)
        else:
            container.insert(draw.randrange(len(container) + 1), copy.deepcopy(container[key]))
    return head + _json(document) + tail


def deep(draw: random.Random, samples: Samples) -> bytes:
    """A value that nests, or is long."""
    head, document, tail = _document(draw, samples)
    places = list(_places(document))
    marker = "~deep~"
    if not places:
        return b"[" * 100_000
    container, key = draw.choice(places)
    container[key] = marker
    n = draw.choice((10, 500, 5000, 50_000))
    inside = draw.choice((b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n, b'"' + b"x" * n + b'"', b"1" * n, b"[" * n))
    return head + _json(document).replace(json.dumps(marker).encode(), inside) + tail


def keys_twice(draw: random.Random, samples: Samples) -> bytes:
    """An object with a key twice."""
    data = draw.choice(samples)
    at = [k for k, c in enumerate(data) if c == 123]
    if not at:
        return data
    k = draw.choice(at)
    name = draw.choice((b"format", b"rows", b"status", b"proved", b"crc32", b"sum", b"texts", b"opts"))
    return data[: k + 1] + b'"%s":%s,' % (name, _json(draw.choice(VALUES))) + data[k + 1 :]


def _document(draw: random.Random, samples: Samples) -> tuple[bytes, Any, bytes]:
    """A document of JSON in a file, with what is before and behind it: the file, or one of its lines."""
    data = draw.choice(samples)
    try:
        return b"", json.loads(data), b""
    except ValueError:
        pass
    found = data.splitlines(keepends=True)
    at = [k for k, line in enumerate(found) if line[:1] in (b"{", b"[")]
    k = draw.choice(at) if at else 0
    try:
        return b"".join(found[:k]), json.loads(found[k]), (b"\n" if found[k].endswith(b"\n") else b"") + b"".join(found[k + 1 :])
    except (ValueError, IndexError):
        return b"", {}, b""


def _json(document: Any) -> bytes:
    return json.dumps(document).encode(errors="surrogatepass")


def _places(document: Any) -> Any:
    """Every (container, key) below a document."""
    stack = [document]
    while stack:
        x = stack.pop()
        for key in list(x) if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
            yield x, key
            if isinstance(x[key], (dict, list)):
                stack.append(x[key])


def _loops(document: Any) -> bool:
    try:
        json.dumps(document)
    except (ValueError, RecursionError):
        return True
    return False


# ---------------------------------------------------------------------------------------------------------------------- zip


def members(draw: random.Random, samples: Samples) -> bytes:
    """The members of a zip file renamed, doubled, swapped, of another file, changed, or under another method."""
    found = [(name, data) for s in samples for name, data in _members(s)] if draw.random() < 0.3 else _members(draw.choice(samples))
    for _ in range(draw.choice((1, 1, 2))):
        if not found:
            break
        k, j = draw.randrange(len(found)), draw.randrange(len(found))
        name, data = found[k]
        what = draw.randrange(6)
        if what == 0:
            del found[k]
        elif what == 1:
            found.append(found[k])
        elif what == 2:
            found[k], found[j] = (found[j][0], data), (name, found[j][1])
        elif what == 3:
            found[k] = draw.choice((" ", "x", "p0.npy", "../p0.npy", "/p0.npy", "a\\b.npy", "n\n.npy", name + ".npy")), data
        elif what == 4:
            found[k] = name, draw.choice((flip, cut, fill, header))(draw, [data])
        else:
            found[k] = name, data + bytes(draw.choice((1, 1 << 16)))
    return _zip(draw, found)


_SHAPES = ("()", "(0,)", "(-1,)", "(3, 5)", f"({2**40},)", f"({10**30},)", "(3,", "3", "(True,)", "('a',)", "(1,) * 9**9")
_DESCRIPTIONS: tuple[Any, ...] = (
    "<f4", "|O", "<U9", "<U99999999", "|V7", "f", "<f16", "<M8[s]", [("a", "<f4")], ("<f4", (9, 9)), "\u202e", 7,
)  # fmt: skip


def header(draw: random.Random, samples: Samples) -> bytes:
    """The header of an array that declares something else."""
    data = draw.choice(samples)
    if not data.startswith(b"\x93NUMPY"):
        return data
    shape = draw.choice(
        ("()", "(0,)", "(-1,)", "(3, 5)", f"({2**40},)", f"({10**30},)", "(3,", "3", "(True,)", "('a',)", "(1,) * 9**9")
    )
    kind = draw.choice(
        ("<f4", "|O", "<U9", "<U99999999", "|V7", "f", "<f16", "<M8[s]", [("a", "<f4")], ("<f4", (9, 9)), "\u202e", 7)
    )
    text = f"{{'descr': {kind!r}, 'fortran_order': {draw.choice((True, False, 1))!r}, 'shape': {shape}, }}\n".encode()
    text = draw.choice((text, text, text[:-5], b"[" * 9000, text + b" " * 60_000))
    version = draw.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\t\t"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", draw.choice((len(text), len(text), 0, 65535)) & 0xFFFF)
    return b"\x93NUMPY" + version + size + text + data[-64:]


def directory(draw: random.Random, samples: Samples) -> bytes:
    """A field of the headers of a zip file: sizes, offsets, flags, methods, counts."""
    data = bytearray(draw.choice(samples))
    at = [k for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for k in _found(bytes(data), mark)]
    for _ in range(draw.choice((1, 1, 3))):
        if at:
            k, width = draw.choice(at) + draw.randrange(4, 46), draw.choice((1, 2, 4))
            value = draw.choice((0, 1, 8, 12, 14, 93, 255, 0xFFFF, 0xFFFFFFFF, draw.getrandbits(32)))
            data[k : k + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(data)


def _found(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def _members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return [(i.filename, z.read(i)) for i in z.infolist()]


def _zip(draw: random.Random, found: Sequence[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(made, "w", method) as z, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in found:
            z.writestr(name, data)
    return made.getvalue()


_BYTES: tuple[Mutation, ...] = (flip, cut, repeat_or_drop, put, splice, fill)
_KINDS: dict[str, tuple[Mutation, ...]] = {
    "bytes": (),
    "text": (numbers, lines, words, numbers, lines, words),
    "lines": (lines, lines, lines, numbers, values, keys_twice),
    "json": (values, values, values, values, deep, keys_twice, numbers),
    "zip": (members, members, members, directory, directory),
}


def of(kind: str) -> tuple[Mutation, ...]:
    """The mutations for a kind of file."""
    return _BYTES + _KINDS[kind]
