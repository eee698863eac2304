"""Type checks of op args: is `arg` an instance of its op's dataclass, with fields of the declared types?

The validators are built once from the annotations in `uops.spec.ir.args`, so a new field needs no code here.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Union, get_args, get_origin

from uops.spec.ir import args
from uops.spec.ir.dtypes import DType
from uops.spec.ir.fields import FIELDS, Field, describe_type
from uops.spec.ir.ops import Op

Validator = Callable[[Any], bool]


def _is_device_name_or_distinct_name_tuple(value: Any) -> bool:
    """Return True for a nonempty name or a nonempty tuple of distinct nonempty names."""
    if isinstance(value, tuple):
        return bool(value) and all(type(d) is str and d for d in value) and len(set(value)) == len(value)
    return type(value) is str and value != ""


def _make_tuple_validator(hints: tuple[Any, ...]) -> Validator:
    if hints[-1] is Ellipsis:
        is_element = make_validator(hints[0])
        return lambda v: type(v) is tuple and all(map(is_element, v))
    validators = tuple(map(make_validator, hints))
    return lambda v: type(v) is tuple and len(v) == len(validators) and all(f(x) for f, x in zip(validators, v, strict=True))


def _make_union_or_device_validator(hints: tuple[Any, ...]) -> Validator:
    if str in hints and any(get_origin(h) is tuple for h in hints):  # args.Device
        hints = tuple(h for h in hints if h is not str and get_origin(h) is not tuple)
        others = tuple(map(make_validator, hints))
        return lambda v: _is_device_name_or_distinct_name_tuple(v) or any(f(v) for f in others)
    alternatives = tuple(map(make_validator, hints))
    return lambda v: any(f(v) for f in alternatives)


def make_validator(hint: Any) -> Validator:
    """Return a predicate that is true for the values of a type annotation."""
    if get_origin(hint) in (types.UnionType, Union):
        return _make_union_or_device_validator(get_args(hint))
    if get_origin(hint) is tuple:
        return _make_tuple_validator(get_args(hint))
    if hint is type(None):
        return lambda v: v is None
    if isinstance(hint, type) and issubclass(hint, (DType, Enum)):
        return lambda v: isinstance(v, hint)
    return lambda v: type(v) is hint


class _ValidatorTable(dict[type, tuple[tuple[str, Field, Validator], ...]]):
    """The validators per arg class, built on first use, as `FIELDS` is."""

    def __missing__(self, kind: type) -> tuple[tuple[str, Field, Validator], ...]:
        validators = self[kind] = tuple((f.name, f, make_validator(f.hint)) for f in FIELDS[kind])
        return validators


#: Arg class -> (field name, field, validator) per field.
VALIDATORS = _ValidatorTable()


def arg_fault(op: Op, arg: Any) -> str | None:
    """Return what is wrong with `arg` as the arg of `op`, or None."""
    expected = args.ARG_TYPE.get(op)
    if arg is None:
        return None if expected is None or op in args.ARG_OPTIONAL else f"needs a {expected.__name__}"
    if type(arg) is not expected:
        return f"needs {'no arg' if expected is None else 'a ' + expected.__name__}, got {type(arg).__name__}"
    for name, field, valid in VALIDATORS[expected]:
        if not valid(getattr(arg, name)):
            return f"{name} needs {describe_type(field.hint)}, got {getattr(arg, name)!r}"
    return None
