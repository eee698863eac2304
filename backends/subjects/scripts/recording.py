"""Values and modules of a library that record what is called on them, as lines of a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from uops.backends.subjects.scripts.values import write_array, write_dtype

#: Types of attributes that a script writes as values.
_PLAIN = (bool, int, float, str, type(None))


class Recorder:
    """The lines of a function body, and the names of the values in them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._next = 0

    def add_call(self, expression: str) -> str:
        """Add a line that assigns an expression to a new name, and return the name."""
        name = f"v{self._next}"
        self._next += 1
        self.lines.append(f"{name} = {expression}")
        return name

    def wrap(self, value: Any, expression: str) -> Any:
        """Return a result of the library as a recorded value under a new name; numbers, shapes and dtypes as they are."""
        if isinstance(value, _PLAIN) or not hasattr(value, "shape"):
            return value
        return Recorded(self, value, self.add_call(expression))

    def call(self, function: Callable[..., Any], path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the library on values, and record the call."""
        shown = [*map(write_argument, args), *(f"{k}={write_argument(v)}" for k, v in kwargs.items())]
        result = function(*map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()})
        return self.wrap(result, f"{path}({', '.join(shown)})")


class RecordedModule:
    """A module of a library whose calls are recorded. `path` is its name in the script."""

    def __init__(self, recorder: Recorder, module: Any, path: str) -> None:
        self._recorder, self._module, self._path = recorder, module, path

    def __getattr__(self, name: str) -> Any:
        attribute, path = getattr(self._module, name), f"{self._path}.{name}"
        if isinstance(attribute, ModuleType):
            return RecordedModule(self._recorder, attribute, path)
        if not callable(attribute):
            return attribute
        return RecordedFunction(self._recorder, attribute, path)


class RecordedFunction:
    """A function or method whose calls are recorded. Its own attributes may be functions, too, such as `np.add.reduce`."""

    def __init__(self, recorder: Recorder, function: Any, path: str) -> None:
        self._recorder, self._function, self._path = recorder, function, path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.call(self._function, self._path, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return RecordedFunction(self._recorder, getattr(self._function, name), f"{self._path}.{name}")


class Recorded:
    """An array of a library, or a part of one such as `x.at`, whose methods are recorded. `name` is its expression."""

    def __init__(self, recorder: Recorder, value: Any, name: str) -> None:
        self._recorder, self.value, self.name = recorder, value, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute, expression = getattr(self.value, name), f"{self.name}.{name}"
        if callable(attribute) and not hasattr(attribute, "shape"):
            return RecordedFunction(self._recorder, attribute, expression)
        if name in ("shape", "ndim", "dtype", "size") or isinstance(attribute, _PLAIN):
            return attribute
        return Recorded(self._recorder, attribute, expression)  # a view such as `x.at`

    def __getitem__(self, key: Any) -> Any:
        expression = f"{self.name}[{write_argument(key, is_key=True)}]"
        item = self.value[_unwrap(key)]
        return self._recorder.wrap(item, expression) if hasattr(item, "shape") else Recorded(self._recorder, item, expression)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._recorder.lines.append(f"{self.name}[{write_argument(key, is_key=True)}] = {write_argument(value)}")
        self.value[_unwrap(key)] = _unwrap(value)


def _unwrap(x: Any) -> Any:
    """Return an argument with the library's own values in place of recorded ones."""
    if isinstance(x, Recorded):
        return x.value
    if isinstance(x, RecordedFunction):
        return x._function
    if isinstance(x, (tuple, list)):
        return type(x)(map(_unwrap, x))
    return x


def write_argument(x: Any, is_key: bool = False) -> str:
    """Return the expression of an argument: of a recorded value its name, of a NumPy array or dtype what makes it."""
    if isinstance(x, Recorded):
        return x.name
    if isinstance(x, RecordedFunction):
        return x._path
    if isinstance(x, np.ndarray):
        return write_array(x)
    if isinstance(x, np.dtype):
        return write_dtype(x)
    if isinstance(x, slice):
        bounds = ["" if k is None else str(k) for k in (x.start, x.stop)]
        return ":".join(bounds if x.step is None else [*bounds, str(x.step)])
    if isinstance(x, tuple) and is_key:
        return ", ".join(write_argument(e, is_key=True) for e in x) or "()"
    if isinstance(x, (tuple, list)):
        inner = ", ".join(map(write_argument, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner}{',' if len(x) == 1 else ''})"
    if isinstance(x, (float, np.floating)) and not math.isfinite(x):
        return f"float('{float(x)}')"
    if isinstance(x, np.generic):
        return repr(x.item())
    if isinstance(x, type):
        return f"np.{x.__name__}" if x.__module__ == "numpy" else x.__name__
    return repr(x)
