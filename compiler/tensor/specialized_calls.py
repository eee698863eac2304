"""A call of a compiled program as one generated Python function, for arguments of one structure.

Takes: the native function of a program, a sample of the arguments, and what the traced function returned. Gives: a function
`(args, kwargs)` that returns the result, or `DECLINED` if the arguments have another structure, if one is not realized, or if the
settings are others. It compares what costs little: classes, lengths, keys and constants. Shapes and dtypes are compared by the
native function, which raises SpecError for others.

A function for two Tensors is, shortened:

    def call(args, kwargs):
        if current_settings() is not settings or ...: return DECLINED
        try:
            if kwargs: return DECLINED
            t0, t1 = args
            if t0.__class__ is not Tensor or (a0 := t0._array) is None or ...: return DECLINED
            r0 = native(a0, a1)
        except UNFIT: return DECLINED
        u0 = new(Tensor); u0._array = r0; u0._links = ()
        return u0
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.compiler.config import SettingsGeneration
from uops.compiler.tensor.settings import current_settings
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import declared_attributes, list_undeclared_attributes, open_container
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp

#: Arguments and keyword arguments of a function -> its result, or DECLINED.
SpecializedCall = Callable[[tuple[Any, ...], dict[str, Any]], Any]
#: What a specialized call returns for arguments that are not its own.
DECLINED = object()
#: What arguments of another structure raise: on unpacking, at a key or an attribute, and in the native function.
_UNFIT = (ValueError, TypeError, KeyError, AttributeError, SpecError)


#: Classes of values that may be equal and differ: -0.0 equals 0.0, `range(0)` equals `range(2, 2)`, and a slice may hold either.
_EQUAL_BUT_DIFFERENT = (numbers.Number, range, slice)


def describe_constant(value: Any) -> Any:
    """Return a value that is equal for constants of one class, value, sign and parts only; it is hashable if `value` is."""
    kind = type(value)
    if kind is int or kind is str or kind is bool:
        return kind, value
    if isinstance(value, _EQUAL_BUT_DIFFERENT):
        return kind, repr(value), value if value == value else None  # a NaN is equal to nothing
    if isinstance(value, tuple):
        return kind, *map(describe_constant, value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(describe_constant, value))
    return kind, value


def _is_told_apart_by_class_and_equality(value: Any) -> bool:
    """Return True if no other constant of the same class is equal to `value`."""
    if isinstance(value, (float, np.floating)):
        return bool(value == value and value != 0)
    return isinstance(value, numbers.Integral) or not isinstance(value, (*_EQUAL_BUT_DIFFERENT, tuple, frozenset))


def decline_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return DECLINED: the call that fits no arguments."""
    return DECLINED


def generate_call_if_equality_tells_constants_apart(
    native: Callable[..., Any], arguments: Sequence[Any], sample: tuple[tuple[Any, ...], dict[str, Any]],
    outputs: Sequence[UOp], written_buffer_count: int, result: Any,
) -> SpecializedCall | None:  # fmt: skip
    """Return the generated function, or None if an argument may equal another: a zero does, of which there are two.

    `arguments` has, for each argument of the native function, the number of a Tensor of the sample, an array, or None. `outputs`
    are the nodes of the results, in order, and those of the Tensors in `result`. `written_buffer_count` arrays come after them.
    """
    writer = _CallWriter()
    args, kwargs = sample
    if not (writer.write_item_checks("args", args) and writer.write_dict_checks("kwargs", kwargs)):
        return None
    given = ", ".join(f"a{a}" if a.__class__ is int else writer.bind(a) for a in arguments)
    returned_count = len(outputs) + written_buffer_count
    results = "".join(f"r{k}, " for k in range(returned_count))
    call = f"{'r0' if returned_count == 1 else results} = native({given})"
    value = writer.write_result_tensors_and_return_expression(result, {u: f"r{k}" for k, u in enumerate(outputs)})
    settings = current_settings()
    names = {
        "current_settings": current_settings, "settings": settings,
        "SettingsGeneration": SettingsGeneration,
        "Tensor": Tensor, "DECLINED": DECLINED, "UNFIT": _UNFIT, "native": native, "new": object.__new__,
    }  # fmt: skip
    changed = f"SettingsGeneration.number != {SettingsGeneration.number}"
    text = "\n".join([
        "def call(args, kwargs):",
        f"    if current_settings() is not settings or {changed}: return DECLINED",
        "    try:",
        *[f"        {line}" for line in (*writer.checks, call)],
        "    except UNFIT: return DECLINED",
        *[f"    {line}" for line in writer.results],
        f"    return {value}",
    ])  # fmt: skip
    scope: dict[str, Any] = names | writer.constants
    exec(text, scope)
    generated: SpecializedCall = scope["call"]
    return generated


class _CallWriter:
    """The lines of a specialized call, and the objects that they name."""

    def __init__(self) -> None:
        self.checks: list[str] = []
        self.results: list[str] = []
        self.constants: dict[str, Any] = {}
        self._tensors = self._values = self._made = 0

    def bind(self, value: Any) -> str:
        """Return a name for an object."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def write_checks_if_they_can_tell(self, name: str, value: Any) -> bool:
        """Write the checks that the variable `name` has the structure of `value`; return False if none can tell."""
        kind: type = type(value)
        class_name = "Tensor" if kind is Tensor else self.bind(kind)
        if isinstance(value, Tensor):
            array = f"a{self._tensors}"
            self._tensors += 1
            self.checks.append(f"if {name}.__class__ is not {class_name} or ({array} := {name}._array) is None: return DECLINED")
            return True
        self.checks.append(f"if {name}.__class__ is not {class_name}: return DECLINED")
        container = open_container(value)
        if container is None:
            self.checks.append(f"if {name} != {self.bind(value)}: return DECLINED")
            return _is_told_apart_by_class_and_equality(value)
        if isinstance(value, (tuple, list)):
            return self.write_item_checks(name, value)
        if isinstance(value, dict):
            return self.write_dict_checks(name, value)
        if list_undeclared_attributes(value):
            return False
        if set(getattr(value, "__dict__", ())) == set(container.keys):
            return self._write_checks_of_attributes(name, value.__dict__)
        if hasattr(value, "__dict__"):
            self.checks.append(f"if not {name}.__dict__.keys() <= {self.bind(declared_attributes(kind))}: return DECLINED")
        return all(
            self._write_part_checks(f"{name}.{field}", part) for field, part in zip(container.keys, container.parts, strict=True)
        )

    def _write_checks_of_attributes(self, name: str, attributes: dict[str, Any]) -> bool:
        """Write the checks of an object whose attributes are its fields: it has each of them, and as many attributes."""
        own = self._name_value()
        self.checks.append(f"if len({own} := {name}.__dict__) != {len(attributes)}: return DECLINED")
        return all(self._write_part_checks(f"{own}[{field!r}]", part) for field, part in attributes.items())

    def write_item_checks(self, name: str, values: Sequence[Any]) -> bool:
        """Write the checks of the items of a tuple or list."""
        names = [self._name_value() for _ in values]
        self.checks.append(f"{', '.join(names)}, = {name}" if names else f"if {name}: return DECLINED")
        return all(self.write_checks_if_they_can_tell(part, value) for part, value in zip(names, values))

    def write_dict_checks(self, name: str, values: dict[Any, Any]) -> bool:
        """Write the checks of the keys, in order, and of the values of a dict."""
        keys, classes = tuple(values), tuple(map(type, values))
        self.checks.append(
            f"if tuple({name}) != {self.bind(keys)} or tuple(map(type, {name})) != {self.bind(classes)}: return DECLINED"
            if values
            else f"if {name}: return DECLINED"
        )
        return all(map(_is_told_apart_by_class_and_equality, keys)) and all(
            self._write_part_checks(f"{name}[{self.bind(key)}]", value) for key, value in values.items()
        )

    def _write_part_checks(self, expression: str, value: Any) -> bool:
        name = self._name_value()
        self.checks.append(f"{name} = {expression}")
        return self.write_checks_if_they_can_tell(name, value)

    def _name_value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def write_result_tensors_and_return_expression(self, value: Any, array_names: dict[UOp, str]) -> str:
        """Write the lines that make the Tensors of a result; return the expression of the whole."""

        def write(part: Any) -> str:
            if isinstance(part, Tensor):
                name = f"u{self._made}"
                self._made += 1
                self.results.append(f"{name} = new(Tensor); {name}._array = {array_names[part.uop]}; {name}._links = ()")
                return name
            container = open_container(part)
            if container is None:
                return self.bind(part)
            parts = "".join(f"{write(v)}, " for v in container.parts)
            return f"({parts})" if type(part) is tuple else f"{self.bind(container.rebuild)}([{parts}])"

        return write(value)
