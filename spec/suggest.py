"""Spelling suggestions for unknown names in error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from uops.spec.untrusted import escape_to_one_line


def format_did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the end of a message, such as `; did you mean llvm?`, or an empty string if no candidate is close.

    The comparison ignores case.
    """
    names = {n.lower(): n for n in candidates}
    close = difflib.get_close_matches(name.lower(), sorted(names), n=3)
    return f"; did you mean {' or '.join(escape_to_one_line(names[c]) for c in close)}?" if close else ""
