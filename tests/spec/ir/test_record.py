"""A record is what `dataclasses.dataclass(frozen=True, slots=True)` would have made."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.record import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 2


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """A place."""

    x: int
    y: int = 2


def test_a_record_does_what_a_standard_one_does() -> None:
    for make in (Point, Standard):
        a: Any = make(1)
        assert (a.x, a.y) == (1, 2) and make(x=3, y=4).y == 4
        assert a == make(1, 2) != make(2, 2) and hash(a) == hash(make(1, 2))
        assert a != (1, 2) and Point(1) != Standard(1)
        assert repr(a) == f"{make.__name__}(x=1, y=2)"
        assert dataclasses.replace(a, y=9) == make(1, 9)
        assert [f.name for f in dataclasses.fields(a)] == ["x", "y"] and make.__doc__ == "A place."
        assert pickle.loads(pickle.dumps(a)) == copy.deepcopy(a) == a
        assert not hasattr(a, "__dict__")
        match a:
            case Point(x, y) | Standard(x, y):
                assert (x, y) == (1, 2)
        for change in (lambda a=a: setattr(a, "x", 5), lambda a=a: delattr(a, "x")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                change()
        for wrong in ((), (1, 2, 3)):
            with pytest.raises(TypeError):
                make(*wrong)


def test_a_record_without_equality_is_equal_to_itself_alone() -> None:
    a = Named("a")
    assert a == a != Named("a") and repr(a) == "a" and {a: 1}[a] == 1


def test_a_record_may_have_no_field() -> None:
    assert Empty() == Empty() and repr(Empty()) == "Empty()" and hash(Empty()) == hash(Empty())


def test_every_arg_class_can_be_copied_and_is_frozen() -> None:
    args = (A.SliceArg(3, dt.bfloat16), A.ConstArg(-0.0, dt.float32), A.ParamArg(0, dt.int8), A.CallArg(written=(1,)))
    for a in args:
        assert pickle.loads(pickle.dumps(a)) == a and hash(copy.deepcopy(a)) == hash(a)
        with pytest.raises(dataclasses.FrozenInstanceError):
            a.dtype = dt.int8  # type: ignore[misc, union-attr]
    assert A.ConstArg(0.0, dt.float32) != A.ConstArg(-0.0, dt.float32)


@pytest.mark.parametrize("settings", [{"frozen": False, "slots": True}, {"frozen": True, "slots": False}])
def test_only_frozen_classes_with_slots_are_records(settings: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match="frozen and has slots"):
        dataclass(**settings)(Named)  # type: ignore[call-overload]


def test_a_default_that_is_made_anew_is_refused() -> None:
    with pytest.raises(TypeError, match="defaults are values"):

        @dataclass(frozen=True, slots=True)
        class Listed:
            items: list[int] = dataclasses.field(default_factory=list)
