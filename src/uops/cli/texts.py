"""Styled text for the terminal that escapes control characters, which rich drops without a trace."""

from __future__ import annotations

from typing import Any

from rich.text import Text as Base

from uops.spec.untrusted import escape_unprintable

__all__ = ["Text"]


class Text(Base):
    """A `rich` text of printable characters; its parts are escaped before rich drops control characters."""

    def __init__(self, text: str = "", *style: Any, **settings: Any) -> None:
        super().__init__(escape_unprintable(text), *style, **settings)

    def append(self, text: Base | str, *style: Any, **settings: Any) -> Text:
        """Append a text, with control characters escaped."""
        super().append(escape_unprintable(text) if isinstance(text, str) else text, *style, **settings)
        return self
