"""Escaping of text for terminals, UTF-8 files and messages."""

from __future__ import annotations

import re

#: Matches controls but tab and newline (C0, DEL, C1), marks that reorder or hide text, line separators and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def escape_unprintable(text: str) -> str:
    """Return `text` with every character that could act on a terminal, or that UTF-8 cannot encode, as a backslash escape.

    Tabs and newlines stay. The escapes are those of Python (`\\x1b`, `\\u202e`, `\\ud800`). A second application changes nothing.
    """
    return _UNSAFE.sub(_escape_character, text)


def escape_to_one_line(text: str) -> str:
    """Return a name, or words that contain one, on one line: as `escape_unprintable`, with newlines and tabs escaped, too.

    Names in messages need this function; texts of several lines need `escape_unprintable`.
    """
    return escape_unprintable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
