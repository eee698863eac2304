"""Frozen, slotted value classes that are cheap to create.

`dataclass` replaces `dataclasses.dataclass(frozen=True, slots=True)`, with the same fields, equality, hash, repr, pickling and
`replace`. The standard one compiles six functions per class, this one compiles `__init__` alone and shares the rest. That matters
for classes which an import creates by the dozen. The hash of an object is memoized: most records are part of a node's identity.
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
        """Return the class decorator; methods that the class defines itself are kept.

        With eq=False the class keeps its own equality, or identity. Raises TypeError unless `frozen` and `slots` are true.
        """
        if not (frozen and slots):
            raise TypeError("a record is frozen and has slots")

        def make_record(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__
            record = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(_add_hash_slot(cls))
            fields = dataclasses.fields(record)
            names = tuple(f.name for f in fields)
            methods = {
                "__init__": _make_init(record, fields),
                "__reduce__": _make_pickle_reduce(names),
                "__repr__": _make_repr(names),
            }
            if eq:
                methods |= _make_eq_and_memoized_hash(names)
            for name, method in methods.items():
                if name not in cls.__dict__:
                    setattr(record, name, method)
            record.__setattr__, record.__delattr__ = _refuse_set, _refuse_delete
            return record

        return make_record

    class _HashSlot:
        """The slot of the memoized hash, None until the hash is needed."""

        __slots__ = ("_hash",)

    def _add_hash_slot(cls):
        """Return a copy of the class that also inherits the slot of the hash, which is no field."""
        namespace = {name: v for name, v in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        return type(cls)(cls.__name__, tuple(_HashSlot if b is object else b for b in cls.__bases__), namespace)

    def _make_init(record, fields):
        if any(f.default_factory is not dataclasses.MISSING for f in fields):
            raise TypeError("a record's defaults are values")
        defaults = {f"_{f.name}": f.default for f in fields if f.default is not dataclasses.MISSING}
        parameters = ", ".join(f"{f.name}=_{f.name}" if f"_{f.name}" in defaults else f.name for f in fields)
        body = "".join(f"\n    _set_{f.name}(self, {f.name})" for f in fields) + "\n    _set__hash(self, None)"
        setters = {f"_set_{name}": getattr(record, name).__set__ for name in (*(f.name for f in fields), "_hash")}
        exec(f"def __init__(self, {parameters}):{body}", namespace := {**defaults, **setters})
        return namespace["__init__"]

    def _make_eq_and_memoized_hash(names):
        key = attrgetter(*names) if names else lambda self: ()

        def __eq__(self, other):
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            value = self._hash
            if value is None:
                value = hash(key(self))
                object.__setattr__(self, "_hash", value)
            return value

        return {"__eq__": __eq__, "__hash__": __hash__}

    def _make_repr(names):
        def __repr__(self):
            return f"{self.__class__.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

        return __repr__

    def _make_pickle_reduce(names):
        def __reduce__(self):
            return self.__class__, tuple(getattr(self, n) for n in names)

        return __reduce__

    def _refuse_set(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
