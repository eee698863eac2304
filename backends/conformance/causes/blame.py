"""Who is to blame for a cause: the backend, the adapter around it, a refusal, or the time limit."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from pathlib import Path

from uops.backends import subjects
from uops.backends.conformance.causes.find import EXCEPTION, REFUSAL, TIMEOUT
from uops.backends.registry import BrokenBackend, UnknownBackend, is_foreign, locate_factory


class Blame(Enum):
    """Who is to blame for a failing cell. Only BACKEND says something of the product that is judged."""

    BACKEND = "the backend"
    ADAPTER = "the adapter"
    REFUSAL = "a refusal"
    TIMEOUT = "the time limit"


#: Exceptions that code raises which does not fit the library that it calls.
_MISFITS = frozenset({
    "AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError", "NameError", "TypeError",
    "UnboundLocalError",
})  # fmt: skip
#: An exception with the innermost frame that raised it, as a worker describes it.
_RAISED = re.compile(r"(?:error: )?(\w+)\b.*\[([\w.]+\.py):\d+ [^\[\]]*\]\s*\Z", re.DOTALL)


def find_blame(cause: str, message: str, adapter: Collection[str]) -> Blame:
    """Return who is to blame for a cause, of which one failure has this message. `adapter` has the names of the adapter's files.

    An exception is the adapter's if it says that code does not fit the library, and the innermost Python frame is the adapter's.
    """
    if cause == TIMEOUT:
        return Blame.TIMEOUT
    if cause.startswith(REFUSAL):
        return Blame.REFUSAL
    raised = _RAISED.match(message) if cause.startswith(EXCEPTION) else None
    return Blame.ADAPTER if raised and raised[1] in _MISFITS and raised[2] in adapter else Blame.BACKEND


def list_adapter_files(backend: str) -> list[str]:
    """Return the names of the files between the judge and a library: the module of a foreign backend, and the base of adapters.

    There are none of a backend of this package, nor of a name that nothing is registered for.
    """
    if not is_foreign(backend):
        return []
    try:
        module = locate_factory(backend).module
    except (UnknownBackend, BrokenBackend):
        return []
    base = Path(next(iter(subjects.__path__))).rglob("*.py")
    return sorted({module.rpartition(".")[2] + ".py", *(p.name for p in base if p.name != "__init__.py")})
