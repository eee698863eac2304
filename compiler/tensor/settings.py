"""The settings of the front end: one value per thread or task, which context managers change.

Equal settings outside of traced functions are one object, so that a compiled call compares them by identity.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

DEFAULT_BACKEND = "llvm"


class FrontEndSettings(NamedTuple):
    """The backend, whether indices are unchecked, and which function is traced or differentiated.

    `use` and the transforms set them. `tracing` is the name of the function that is traced now, or "". `differentiating` is true in
    a function that is differentiated afterwards.
    """

    backend: str = DEFAULT_BACKEND
    unchecked: bool = False
    tracing: str = ""
    differentiating: bool = False


_DEFAULT = FrontEndSettings()
_shared: dict[FrontEndSettings, FrontEndSettings] = {_DEFAULT: _DEFAULT}
_settings: contextvars.ContextVar[FrontEndSettings] = contextvars.ContextVar("uops_front_end", default=_DEFAULT)
#: Returns the settings of this thread or task.
current_settings = _settings.get


@contextmanager
def change_settings(**changes: Any) -> Iterator[None]:
    """Change some fields of the settings inside the block."""
    changed = current_settings()._replace(**changes)
    token = _settings.set(changed if changed.tracing else _shared.setdefault(changed, changed))
    try:
        yield
    finally:
        _settings.reset(token)
