"""One exception per kind of failure (STYLE 15)."""

from __future__ import annotations


class UopsError(Exception):
    """Base of every error this package raises on purpose."""


class SpecError(UopsError):
    """A graph, a text or an argument is ill-formed; `claim` is the broken claim's id where there is one.

    `line` and `column` (1-based) are set when the fault is in text.
    """

    def __init__(self, message: str, *, claim: str | None = None, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.claim = claim
        self.line = line
        self.column = column


class SpecIndexError(SpecError, IndexError):
    """An index, an axis or a position does not exist."""


class SpecValueError(SpecError, ValueError):
    """An argument of the right type has a value that is not allowed."""


class SpecTypeError(SpecError, TypeError):
    """An argument, or an element's dtype, is of a type that is not allowed."""


class Trap(UopsError):
    """A failure that the specification defines for this program on these inputs (R26)."""


class CompileError(UopsError):
    """The compiler cannot translate a well-formed graph; the message says why."""


class Unsupported(UopsError):
    """A backend declared that it does not have this op or dtype."""

    def __init__(self, what: str, backend: str) -> None:
        super().__init__(f"{backend} does not support {what}")
        self.what = what
        self.backend = backend


class Unsound(UopsError):
    """A check of ours refuted a result of ours."""


class Crash(UopsError):
    """A bug in this package: a state that well-formed input cannot reach."""
