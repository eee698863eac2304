"""Text that a terminal shows as it is, and that UTF-8 can hold."""

from __future__ import annotations

import re

#: Controls but tab and newline (C0, DEL, C1), marks that reorder or hide text, separators of lines, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return `text` with every character that could act on a terminal, or that UTF-8 cannot encode, as a backslash escape.

    Tabs and newlines stay. An escape is spelled as Python spells it (`\\x1b`, `\\u202e`, `\\ud800`). Applying it twice changes
    nothing more.
    """
    return _UNSAFE.sub(_escape, text)


def quote_name(name: str) -> str:
    """Return somebody's name, or words that hold one, on one line: `printable`, and newlines and tabs as escapes, too.

    A name in a message goes through here; a text of several lines of ours goes through `printable`.
    """
    return printable(name).replace("\n", "\\n").replace("\t", "\\t")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
