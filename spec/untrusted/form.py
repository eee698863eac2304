"""Forms of JSON values, as data, and the search for the first place where a value does not match its form.

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

from uops.spec.untrusted.printable import escape_to_one_line, escape_unprintable

_NAMES: dict[Any, str] = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "an array", dict: "an object",
    None: "null", type(None): "null",
}  # fmt: skip
#: Integers are from -_INT_LIMIT up to _INT_LIMIT, exclusive.
_INT_LIMIT = 1 << 63
#: The maximum characters of a value in a message.
_MAX_SHOWN = 40


class Either(tuple[Any, ...]):
    """A form that matches if one of several forms does."""

    __slots__ = ()

    def __new__(cls, *forms: Any) -> Either:
        return super().__new__(cls, forms)


def find_misfit(value: Any, form: Any, path: str = "") -> str | None:
    """Return None if `value` matches the form, else the first place where it does not, what was expected and what is there."""
    if isinstance(form, Either):
        return None if any(find_misfit(value, f) is None for f in form) else _describe_misfit(path, describe_form(form), value)
    if isinstance(form, frozenset):
        return None if isinstance(value, str) and value in form else _describe_misfit(path, describe_form(form), value)
    if isinstance(form, dict):
        return _find_object_misfit(value, form, path)
    if isinstance(form, (list, tuple)):
        return _find_list_or_tuple_misfit(value, form, path)
    return None if _is_finite_64_bit_value_of_type(value, form) else _describe_misfit(path, describe_form(form), value)


def describe_form(form: Any) -> str:
    """Return a form in words."""
    if isinstance(form, Either):
        return " or ".join(map(describe_form, form))
    if isinstance(form, frozenset):
        return f"one of {', '.join(sorted(form))}"
    if isinstance(form, tuple):
        return f"an array of {len(form)}"
    return _NAMES[list] if isinstance(form, list) else _NAMES[dict] if isinstance(form, dict) else _NAMES[form]


def _is_finite_64_bit_value_of_type(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is int or (kind is float and type(value) is int):
        return type(value) is int and -_INT_LIMIT <= value < _INT_LIMIT
    return type(value) is kind and (kind is not float or math.isfinite(value))


def _find_object_misfit(value: Any, form: dict[Any, Any], path: str) -> str | None:
    if not isinstance(value, dict):
        return _describe_misfit(path, describe_form(form), value)
    if str in form:
        return next((w for k, v in value.items() if (w := find_misfit(v, form[str], _member_path(path, k)))), None)
    for key, member_form in form.items():
        if key is ...:
            continue
        if (name := key.removesuffix("?")) in value:
            if fault := find_misfit(value[name], member_form, _member_path(path, name)):
                return fault
        elif name == key:
            return f"{_member_path(path, key)} is missing"
    names = {k.removesuffix("?") for k in form if k is not ...}
    unknown = None if ... in form else next((k for k in value if k not in names), None)
    return None if unknown is None else f"{_member_path(path, unknown)} is not known"


def _find_list_or_tuple_misfit(value: Any, form: Any, path: str) -> str | None:
    if not isinstance(value, list) or (isinstance(form, tuple) and len(value) != len(form)):
        return _describe_misfit(path, describe_form(form), value)
    forms = form if isinstance(form, tuple) else form * len(value)
    return next((w for k, (v, f) in enumerate(zip(value, forms)) if (w := find_misfit(v, f, f"{path}[{k}]"))), None)


def _member_path(place: str, key: str) -> str:
    shown = escape_to_one_line(key[:_MAX_SHOWN])
    return f"{place}.{shown}" if place else shown


def _describe_misfit(path: str, expected: str, value: Any) -> str:
    got = _NAMES[type(value)]
    if isinstance(value, str):
        got = repr(escape_unprintable(value[:_MAX_SHOWN]))
    elif isinstance(value, (int, float)):
        got = str(value) if abs(value) < _INT_LIMIT else "a number beyond 64 bits"
    elif isinstance(value, list):
        got = f"an array of {len(value)}"
    return f"{path or 'it'}: expected {expected}, got {got}"
