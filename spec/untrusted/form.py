"""The form that a value of JSON must have, as data, and the first place where one has it not.

str, int, float, bool, None    a value of this type; an int is of 64 bits, a float is finite and may be an int
frozenset({"a", "b"})          one of these strings
[form]                         a list of such
(form, form)                   a list of exactly these
{str: form}                    an object with any keys
{"a": form, "b?": form}        an object with the key a, perhaps with b, and with no others; with others, too, if it has `...`
Either(form, form)             one of these
"""

from __future__ import annotations

import math
from typing import Any

from uops.spec.untrusted.printable import printable, quote_name

_NAMES: dict[Any, str] = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "an array", dict: "an object",
    None: "null", type(None): "null",
}  # fmt: skip
_WORD = 1 << 63
#: Characters of a value that a message shows.
_SHOWN = 40


class Either(tuple[Any, ...]):
    """One of several forms."""

    __slots__ = ()

    def __new__(cls, *forms: Any) -> Either:
        return super().__new__(cls, forms)


def misfit(value: Any, form: Any, place: str = "") -> str | None:
    """The first place where `value` has not the form, with what was expected and what is there; None if it has."""
    if isinstance(form, Either):
        return None if any(misfit(value, f) is None for f in form) else _describe_misfit(place, name(form), value)
    if isinstance(form, frozenset):
        return None if isinstance(value, str) and value in form else _describe_misfit(place, name(form), value)
    if isinstance(form, dict):
        return _of_object(value, form, place)
    if isinstance(form, (list, tuple)):
        return _of_list(value, form, place)
    return None if _is(value, form) else _describe_misfit(place, name(form), value)


def name(form: Any) -> str:
    """Name a form in words."""
    if isinstance(form, Either):
        return " or ".join(map(name, form))
    if isinstance(form, frozenset):
        return f"one of {', '.join(sorted(form))}"
    if isinstance(form, tuple):
        return f"an array of {len(form)}"
    return _NAMES[list] if isinstance(form, list) else _NAMES[dict] if isinstance(form, dict) else _NAMES[form]


def _is(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is int or (kind is float and type(value) is int):
        return type(value) is int and -_WORD <= value < _WORD
    return type(value) is kind and (kind is not float or math.isfinite(value))


def _of_object(value: Any, form: dict[Any, Any], place: str) -> str | None:
    if not isinstance(value, dict):
        return _describe_misfit(place, name(form), value)
    if str in form:
        return next((w for k, v in value.items() if (w := misfit(v, form[str], _below(place, k)))), None)
    for key, of in form.items():
        if key is ...:
            continue
        if (bare := key.removesuffix("?")) in value:
            if wrong := misfit(value[bare], of, _below(place, bare)):
                return wrong
        elif bare == key:
            return f"{_below(place, key)} is missing"
    known = {k.removesuffix("?") for k in form if k is not ...}
    other = None if ... in form else next((k for k in value if k not in known), None)
    return None if other is None else f"{_below(place, other)} is not known"


def _of_list(value: Any, form: Any, place: str) -> str | None:
    if not isinstance(value, list) or (isinstance(form, tuple) and len(value) != len(form)):
        return _describe_misfit(place, name(form), value)
    forms = form if isinstance(form, tuple) else form * len(value)
    return next((w for k, (v, of) in enumerate(zip(value, forms)) if (w := misfit(v, of, f"{place}[{k}]"))), None)


def _below(place: str, key: str) -> str:
    shown = quote_name(key[:_SHOWN])
    return f"{place}.{shown}" if place else shown


def _describe_misfit(place: str, expected: str, value: Any) -> str:
    got = _NAMES[type(value)]
    if isinstance(value, str):
        got = repr(printable(value[:_SHOWN]))
    elif isinstance(value, (int, float)):
        got = str(value) if abs(value) < _WORD else "a number beyond 64 bits"
    elif isinstance(value, list):
        got = f"an array of {len(value)}"
    return f"{place or 'it'}: expected {expected}, got {got}"
