"""Lanes and workgroups: what Specials number, the order of lanes, and values that lanes may differ in."""

from uops.compiler.ir.lanes import (
    find_values_that_lanes_may_differ_in,
    sort_lanes_fastest_first,
    sort_specials_by_name,
)
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import numbers_workgroups


def special(name: str) -> UOp:
    return UOp(Op.SPECIAL, (b.index(2),), SpecialArg(name))


def test_a_special_numbers_workgroups_or_lanes_by_its_name_R125() -> None:
    assert [numbers_workgroups(special(n)) for n in ("gidx0", "blockIdx1", "tidx", "threadpool", "lidx0", "threadIdx0")] == [
        *[True] * 4, *[False] * 2,
    ]  # fmt: skip
    names = ["lidx10", "lidx2", "lidx1"]
    assert [u.arg.name for u in sort_specials_by_name(map(special, names))] == ["lidx1", "lidx2", "lidx10"]


def test_warp_ranges_vary_fastest_then_the_innermost_then_specials_R125() -> None:
    outer, warp, inner = (b.range_(2, k, t) for k, t in enumerate((AxisType.LOCAL, AxisType.WARP, AxisType.LOCAL)))
    second, first, group = special("lidx1"), special("lidx0"), special("gidx0")
    assert sort_lanes_fastest_first((second, group, first), (outer, warp, inner)) == [warp, inner, outer, first, second]


def test_lanes_may_differ_in_what_their_number_or_a_register_of_theirs_gives() -> None:
    memory, lane, group = b.param(0, (8,), dt.int32), special("lidx0"), special("gidx0")
    register = b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=3)
    own, shared, at_lane = b.load(b.at(register, 0)), b.load(b.at(memory, group)), b.load(b.at(memory, lane))
    later = b.load(b.at(b.after(memory, b.store(b.at(memory, lane), at_lane)), group))
    inner = b.range_(b.cast(at_lane, dt.index), 5)
    values = (own, shared, at_lane, later, b.add(shared, later), b.add(shared, own), inner)
    differing = find_values_that_lanes_may_differ_in(UOp(Op.LINEAR, tuple(toposort(*values))))
    assert [u in differing for u in values] == [True, False, True, False, False, True, True]
