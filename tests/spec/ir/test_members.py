"""Enumerations that are quick to name are Enums in all that is used of them."""

from __future__ import annotations

import copy
import pickle
from enum import Enum

import pytest

from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DTypeKind
from uops.spec.ir.ops import Op


@pytest.mark.parametrize("cls", [Op, AxisType, AddrSpace, DTypeKind])
def test_naming_a_member_runs_no_python(cls: type[Enum]) -> None:
    assert not hasattr(type(cls), "__getattr__")
    assert cls.__hash__ is object.__hash__


@pytest.mark.parametrize("cls", [Op, AxisType, AddrSpace, DTypeKind])
def test_members_are_found_by_name_value_and_order(cls: type[Enum]) -> None:
    members = list(cls)
    assert len(members) == len(cls) == len(cls.__members__) == len(set(members))
    for m in members:
        assert cls[m.name] is getattr(cls, m.name) is cls(m.value) is m
        assert isinstance(m, cls)
        assert m in cls
    with pytest.raises(KeyError):
        cls["nothing of this name"]
    with pytest.raises(ValueError, match="nothing"):
        cls("nothing of this value")


@pytest.mark.parametrize("member", [Op.ADD, AxisType.LOOP, AddrSpace.REG, DTypeKind.BOOL])
def test_a_member_stays_the_only_one_through_copies(member: Enum) -> None:
    assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is copy.copy(member) is member
