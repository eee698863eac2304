"""The exceptions of this package, one per kind of failure."""

from __future__ import annotations

from collections.abc import Callable


class UopsError(Exception):
    """The base class of every error that this package raises on purpose."""


class SpecError(UopsError):
    """An ill-formed graph, text or argument; `claim` is the id of the broken claim where there is one.

    `line` and `column` (1-based) are set when the fault is in a text.
    """

    def __init__(self, message: str, *, claim: str | None = None, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.claim = claim
        self.line = line
        self.column = column


class SpecIndexError(SpecError, IndexError):
    """An index, an axis or a position that does not exist."""


class SpecValueError(SpecError, ValueError):
    """An argument of the right type with a value that is not allowed."""


class SpecTypeError(SpecError, TypeError):
    """An argument or an element dtype of a type that is not allowed."""


class Trap(UopsError):
    """A run-time failure that the specification defines for this program on these inputs (R26, Trap)."""


class CompileError(UopsError):
    """A well-formed graph that the compiler cannot translate; the message says why."""


class Unsupported(UopsError):
    """An op, a dtype or a feature that a backend does not support."""

    def __init__(self, what: str, backend: str) -> None:
        super().__init__(f"{backend} does not support {what}")
        self.what = what
        self.backend = backend


class Unsound(UopsError):
    """A result of this package that one of its own checks refuted."""


class Crash(UopsError):
    """A bug in this package: a state that no well-formed input may reach."""


def find_unsupported_reason(attempt: Callable[[], object]) -> str | None:
    """Return why something is unsupported here, by trying it; None if it is not."""
    try:
        attempt()
    except Unsupported as e:
        return e.what
    return None
