"""Suggest the names that a name which names nothing may have been meant for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from uops.spec.untrusted import quote_name


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Spell the end of a message, `; did you mean llvm?`; empty where nothing known is close. Case says nothing."""
    names = {n.lower(): n for n in known}
    close = difflib.get_close_matches(name.lower(), sorted(names), n=3)
    return f"; did you mean {' or '.join(quote_name(names[c]) for c in close)}?" if close else ""
