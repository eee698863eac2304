"""The fields of the arg dataclasses with their types, for the text format and the specification's tables.

Gives: `FIELDS[arg class]`, in order, and `resolve_words_or_raise_value_error`, which converts a parsed literal to a field's type.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an arg class: its name, type annotation and default."""

    name: str
    hint: Any
    required: bool
    default: Any

    def is_default(self, value: Any) -> bool:
        """Return True if the field has a default and `value` is it, in type and value."""
        return not self.required and type(value) is type(self.default) and bool(value == self.default)


def _read_fields(arg_class: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(arg_class)
    return tuple(
        Field(f.name, hints[f.name], f.default is dataclasses.MISSING, None if f.default is dataclasses.MISSING else f.default)
        for f in dataclasses.fields(arg_class)
    )


class _FieldTable(dict[type, tuple[Field, ...]]):
    """The fields per arg class, read on first use: resolving all annotations would dominate the import time of this module."""

    def __missing__(self, kind: type) -> tuple[Field, ...]:
        if kind not in _ARG_CLASSES:
            raise KeyError(kind)
        fields = self[kind] = _read_fields(kind)
        return fields


_ARG_CLASSES = frozenset(A.ARG_TYPE.values())
#: Arg class -> its fields, in order.
FIELDS = _FieldTable()

#: The name of an op in the text format -> op.
OPS_BY_NAME = {op.name.lower(): op for op in Op}
_AXIS_TYPES = {a.name.lower(): a for a in AxisType}
_ADDR_SPACES = {a.name.lower(): a for a in A.AddrSpace}
#: Type -> its values by their bare words in the text format.
_WORDS: dict[Any, dict[str, Any]] = {DType: dt.SHORT, Op: OPS_BY_NAME, AxisType: _AXIS_TYPES, A.AddrSpace: _ADDR_SPACES}
#: Types whose literals need no conversion.
_LITERALS = (bool, int, float, str, bytes)


def resolve_words_or_raise_value_error(field: Field, value: Any) -> Any:
    """Return `value` as a value of `field`'s type; raises ValueError with the expected type."""
    ok, coerced = _try_coerce(field.hint, value)
    if not ok:
        raise ValueError(f"expected {describe_type(field.hint)}, got {value!r}")
    return coerced


def _try_coerce(hint: Any, value: Any) -> tuple[bool, Any]:
    """Return whether `value` fits the annotation, and the converted value."""
    if hint in _WORDS:
        if isinstance(value, hint):
            return True, value
        member = _WORDS[hint].get(value) if isinstance(value, str) else None
        return member is not None, member
    if hint is A.ConstArg:  # the elements of a VCONST, which get the dtype of the node
        return type(value) in (bool, int, float), value
    if hint in _LITERALS:
        return type(value) is hint, value
    if hint is type(None):
        return value is None, None
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next((r for r in (_try_coerce(h, value) for h in typing.get_args(hint)) if r[0]), (False, None))
    return _try_coerce_elements_of_tuple(typing.get_args(hint), value)


def _try_coerce_elements_of_tuple(hints: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    if not isinstance(value, tuple):
        return False, None
    if hints[1:] == (Ellipsis,):
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        return False, None
    parts = [_try_coerce(h, x) for h, x in zip(hints, value, strict=True)]
    return all(ok for ok, _ in parts), tuple(x for _, x in parts)


def describe_type(hint: Any) -> str:
    """Return a type annotation in the words of the text format, for messages."""
    if hint is type(None):
        return "none"
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(describe_type(h) for h in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        return f"[{describe_type(inner[0])}, ...]" if inner[1:] == (Ellipsis,) else f"[{', '.join(map(describe_type, inner))}]"
    return {bool: "true or false", int: "an integer", float: "a float", str: "a string", bytes: "0x bytes", DType: "a dtype"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
