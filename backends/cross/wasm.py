"""WebAssembly objects as modules: LLVM's object is a module that exports nothing.

Takes: an object. Gives: the module that exports a function. Raises Crash for an object with data, which would need a linker.
Sources: WebAssembly Core Specification 5.5 (modules); the tool conventions' "WebAssembly Object File Linking".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from uops.spec.errors import Crash

_HEADER = b"\0asm\1\0\0\0"
_CUSTOM, _EXPORT, _DATA = 0, 7, 11
#: The order of the sections behind that of exports: start, elements, the count of data, code, data.
_AFTER_EXPORTS = (8, 9, 12, 10, 11)
_LINKING, _SYMBOL_TABLE = "linking", 8
_FUNCTION, _UNDEFINED, _EXPLICIT_NAME = 0, 0x10, 0x40
#: Kind of symbol -> how many numbers it has behind its flags, if it is neither a function nor data nor a section.
_INDEXED_KINDS = (0, 2, 4, 5)


class _Reader:
    """Bytes, read from a position on."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Read an unsigned LEB128 number."""
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return value

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise IndexError("the object is truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        return self.take(self.number()).decode()

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.data)


def export_functions(image: bytes, names: Iterable[str]) -> bytes:
    """Return an object as a module that exports these of its functions. Raises Crash if it lacks one."""
    try:
        sections = list(_read_sections(image))
        functions = _read_defined_functions(sections)
    except (IndexError, UnicodeDecodeError) as e:
        raise Crash(f"wasm: the object is damaged: {e}") from e
    wanted = list(names)
    if missing := [n for n in wanted if n not in functions]:
        raise Crash(f"wasm: the object does not define {', '.join(missing)}")
    if any(kind == _DATA for kind, _ in sections):
        raise Crash("wasm: the object has data, which nothing places")
    entries = b"".join(_encode_name(n) + b"\0" + _encode_number(functions[n]) for n in wanted)
    exports = (_EXPORT, _encode_number(len(wanted)) + entries)
    kept = [s for s in sections if s[0] != _CUSTOM]
    first = [s for s in kept if s[0] not in _AFTER_EXPORTS]
    last = [s for s in kept if s[0] in _AFTER_EXPORTS]
    return _HEADER + b"".join(bytes([kind]) + _encode_number(len(body)) + body for kind, body in (*first, exports, *last))


def _read_sections(image: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the contents of each section."""
    if image[: len(_HEADER)] != _HEADER:
        raise Crash("wasm: the object is no WebAssembly module")
    reader = _Reader(image[len(_HEADER) :])
    while not reader.is_at_end:
        kind = reader.byte()
        yield kind, reader.take(reader.number())


def _read_defined_functions(sections: Iterable[tuple[int, bytes]]) -> dict[str, int]:
    """Return the numbers of the functions that an object defines, by name."""
    for kind, body in sections:
        reader = _Reader(body)
        if kind == _CUSTOM and reader.name() == _LINKING:
            reader.number()  # the version
            while not reader.is_at_end:
                part = reader.byte()
                contents = reader.take(reader.number())
                if part == _SYMBOL_TABLE:
                    return _read_symbols(_Reader(contents))
    return {}


def _read_symbols(reader: _Reader) -> dict[str, int]:
    functions: dict[str, int] = {}
    for _ in range(reader.number()):
        kind, flags = reader.byte(), reader.number()
        is_undefined = bool(flags & _UNDEFINED)
        if kind in _INDEXED_KINDS:
            index = reader.number()
            name = "" if is_undefined and not flags & _EXPLICIT_NAME else reader.name()
            if kind == _FUNCTION and not is_undefined:
                functions[name] = index
        elif kind == 1:  # data
            reader.name()
            for _ in range(0 if is_undefined else 3):
                reader.number()
        else:  # a section
            reader.number()
    return functions


def _encode_number(value: int) -> bytes:
    """Encode an unsigned LEB128 number."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _encode_name(name: str) -> bytes:
    return _encode_number(len(name.encode())) + name.encode()
