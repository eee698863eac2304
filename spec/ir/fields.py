"""The fields of the arg dataclasses, with their types: what the text format and the tables of the specification read.

Gives: `FIELDS[arg class]`, in order, and `coerce`, which turns a parsed literal into a field's type or raises ValueError.
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
    """One field of an arg class."""

    name: str
    hint: Any
    required: bool
    default: Any

    def is_default(self, value: Any) -> bool:
        return not self.required and type(value) is type(self.default) and bool(value == self.default)


def _fields(kind: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(
        Field(f.name, hints[f.name], f.default is dataclasses.MISSING, None if f.default is dataclasses.MISSING else f.default)
        for f in dataclasses.fields(kind)
    )


class _Fields(dict[type, tuple[Field, ...]]):
    """Looked up when first asked for: reading annotations takes longer than all else that an import of this module does."""

    def __missing__(self, kind: type) -> tuple[Field, ...]:
        if kind not in _KINDS:
            raise KeyError(kind)
        found = self[kind] = _fields(kind)
        return found


_KINDS = frozenset(A.ARG_TYPE.values())
FIELDS = _Fields()

_OPS = {op.name.lower(): op for op in Op}
_AXES = {a.name.lower(): a for a in AxisType}
_SPACES = {a.name.lower(): a for a in A.AddrSpace}
_WORDS: dict[Any, dict[str, Any]] = {DType: dt.SHORT, Op: _OPS, AxisType: _AXES, A.AddrSpace: _SPACES}
_PLAIN = (bool, int, float, str, bytes)


def coerce(field: Field, value: Any) -> Any:
    """`value` as `field`'s type; raises ValueError saying what was expected."""
    ok, found = _coerce(field.hint, value)
    if not ok:
        raise ValueError(f"expected {describe(field.hint)}, got {value!r}")
    return found


def _coerce(hint: Any, v: Any) -> tuple[bool, Any]:
    if hint in _WORDS:
        if isinstance(v, hint):
            return True, v
        found = _WORDS[hint].get(v) if isinstance(v, str) else None
        return found is not None, found
    if hint is A.ConstArg:  # the elements of a VCONST; they get their dtype from the node's
        return type(v) in (bool, int, float), v
    if hint in _PLAIN:
        return type(v) is hint, v
    if hint is type(None):
        return v is None, None
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next((r for r in (_coerce(h, v) for h in typing.get_args(hint)) if r[0]), (False, None))
    return _coerce_tuple(typing.get_args(hint), v)


def _coerce_tuple(hints: tuple[Any, ...], v: Any) -> tuple[bool, Any]:
    if not isinstance(v, tuple):
        return False, None
    if hints[1:] == (Ellipsis,):
        hints = (hints[0],) * len(v)
    if len(hints) != len(v):
        return False, None
    parts = [_coerce(h, x) for h, x in zip(hints, v, strict=True)]
    return all(ok for ok, _ in parts), tuple(x for _, x in parts)


def describe(hint: Any) -> str:
    """A field's type in words of the text format."""
    if hint is type(None):
        return "none"
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(describe(h) for h in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        return f"[{describe(inner[0])}, ...]" if inner[1:] == (Ellipsis,) else f"[{', '.join(map(describe, inner))}]"
    return {bool: "true or false", int: "an integer", float: "a float", str: "a string", bytes: "0x bytes", DType: "a dtype"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
