"""Styled text for the terminal that spells out what rich's own drops, such as BEL, and what could act on a terminal."""

from __future__ import annotations

from typing import Any

from rich.text import Text as Base

from uops.spec.untrusted import printable

__all__ = ["Text"]


class Text(Base):
    """A `rich` text of printable characters; its parts are made printable before rich strips control characters from them."""

    def __init__(self, text: str = "", *style: Any, **settings: Any) -> None:
        super().__init__(printable(text), *style, **settings)

    def append(self, text: Base | str, *style: Any, **settings: Any) -> Text:
        super().append(printable(text) if isinstance(text, str) else text, *style, **settings)
        return self
