"""Frozen, slotted value classes that cost little to make.

`dataclass` here is `dataclasses.dataclass(frozen=True, slots=True)` for classes that an import makes by the dozen: the same fields,
equality, hash, text, pickling and `replace`. The standard one compiles six functions per class, this one compiles `__init__`
alone and shares the rest. A hash is computed once per object: most of them are part of a node's identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from operator import attrgetter

    def dataclass(*, frozen, slots, eq=True):
        """The decorator; a method that the class defines itself is kept, and with eq=False identity or the class's own equality."""
        if not (frozen and slots):
            raise TypeError("a record is frozen and has slots")

        def make(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(_based(cls))
            fields = dataclasses.fields(made)
            names = tuple(f.name for f in fields)
            methods = {"__init__": _init(made, fields), "__reduce__": _reduce(names), "__repr__": _repr(names)}
            if eq:
                methods |= _equality(names)
            for name, method in methods.items():
                if name not in cls.__dict__:
                    setattr(made, name, method)
            made.__setattr__, made.__delattr__ = _refuse_set, _refuse_delete
            return made

        return make

    class _Hashed:
        """The place of a hash, None until it is asked for."""

        __slots__ = ("_hash",)

    def _based(cls):
        """The class with a place for the hash, which is no field."""
        space = {name: v for name, v in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        return type(cls)(cls.__name__, tuple(_Hashed if b is object else b for b in cls.__bases__), space)

    def _init(made, fields):
        if any(f.default_factory is not dataclasses.MISSING for f in fields):
            raise TypeError("a record's defaults are values")
        defaults = {f"_{f.name}": f.default for f in fields if f.default is not dataclasses.MISSING}
        given = ", ".join(f"{f.name}=_{f.name}" if f"_{f.name}" in defaults else f.name for f in fields)
        body = "".join(f"\n    _set_{f.name}(self, {f.name})" for f in fields) + "\n    _set__hash(self, None)"
        places = {f"_set_{name}": getattr(made, name).__set__ for name in (*(f.name for f in fields), "_hash")}
        exec(f"def __init__(self, {given}):{body}", space := {**defaults, **places})
        return space["__init__"]

    def _equality(names):
        key = attrgetter(*names) if names else lambda self: ()

        def __eq__(self, other):
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            found = self._hash
            if found is None:
                found = hash(key(self))
                object.__setattr__(self, "_hash", found)
            return found

        return {"__eq__": __eq__, "__hash__": __hash__}

    def _repr(names):
        def __repr__(self):
            return f"{self.__class__.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

        return __repr__

    def _reduce(names):
        def __reduce__(self):
            return self.__class__, tuple(getattr(self, n) for n in names)

        return __reduce__

    def _refuse_set(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
