"""Is this `arg` an instance of its op's dataclass, with fields of the declared types?

The validators are built once from the annotations in `uops.spec.ir.args`, so that a new field is checked without more code.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Union, get_args, get_origin

from uops.spec.ir import args
from uops.spec.ir.dtypes import DType
from uops.spec.ir.fields import FIELDS, Field, describe
from uops.spec.ir.ops import Op

Valid = Callable[[Any], bool]


def _is_device(v: Any) -> bool:
    """A name that is not empty, or a tuple of distinct such names."""
    if isinstance(v, tuple):
        return bool(v) and all(type(d) is str and d for d in v) and len(set(v)) == len(v)
    return type(v) is str and v != ""


def _tuple_of(hints: tuple[Any, ...]) -> Valid:
    if hints[-1] is Ellipsis:
        one = validator(hints[0])
        return lambda v: type(v) is tuple and all(map(one, v))
    each = tuple(map(validator, hints))
    return lambda v: type(v) is tuple and len(v) == len(each) and all(f(x) for f, x in zip(each, v, strict=True))


def _any_of(hints: tuple[Any, ...]) -> Valid:
    if str in hints and any(get_origin(h) is tuple for h in hints):  # args.Device
        hints = tuple(h for h in hints if h is not str and get_origin(h) is not tuple)
        rest = tuple(map(validator, hints))
        return lambda v: _is_device(v) or any(f(v) for f in rest)
    options = tuple(map(validator, hints))
    return lambda v: any(f(v) for f in options)


def validator(hint: Any) -> Valid:
    """A predicate for one annotation."""
    if get_origin(hint) in (types.UnionType, Union):
        return _any_of(get_args(hint))
    if get_origin(hint) is tuple:
        return _tuple_of(get_args(hint))
    if hint is type(None):
        return lambda v: v is None
    if isinstance(hint, type) and issubclass(hint, (DType, Enum)):
        return lambda v: isinstance(v, hint)
    return lambda v: type(v) is hint


class _Validators(dict[type, tuple[tuple[str, Field, Valid], ...]]):
    """Made when first asked for, as FIELDS is."""

    def __missing__(self, kind: type) -> tuple[tuple[str, Field, Valid], ...]:
        found = self[kind] = tuple((f.name, f, validator(f.hint)) for f in FIELDS[kind])
        return found


#: arg class -> (field name, field, validator) per field.
VALIDATORS = _Validators()


def arg_fault(op: Op, arg: Any) -> str | None:
    """What is wrong with the arg of `op`, or None."""
    expected = args.ARG_TYPE.get(op)
    if arg is None:
        return None if expected is None or op in args.ARG_OPTIONAL else f"needs a {expected.__name__}"
    if type(arg) is not expected:
        return f"needs {'no arg' if expected is None else 'a ' + expected.__name__}, got {type(arg).__name__}"
    for name, field, valid in VALIDATORS[expected]:
        if not valid(getattr(arg, name)):
            return f"{name} needs {describe(field.hint)}, got {getattr(arg, name)!r}"
    return None
