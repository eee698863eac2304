"""Plans of LOCAL and REG memory that are wrong are refuted."""

import pytest

from uops.compiler.validate import terms as T
from uops.compiler.validate.launches.private import generate_private_plan_claims
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def _listed(*effects):
    return UOp(Op.LINEAR, tuple(u for u in toposort(*effects) if u.op is not Op.CONST and (u.op is not Op.STACK)))


def _private(size, unique):
    return b.buffer(size, dt.int32, addrspace=AddrSpace.REG, unique=unique)


def _merged(before, later, earlier, end):
    """Return the list with one Buffer in place of another, after an instruction, as the pass writes it."""
    new, listed = {}, []
    for u in before.src:
        if u is later:
            continue
        new[u] = u.replace(src=tuple(new.get(s, s) for s in u.src))
        listed.append(new[u])
        if u is end:
            new[later] = b.after(new[earlier], new[end])
            listed.append(new[later])
    return UOp(Op.LINEAR, tuple(listed))


def _refuted(before, after):
    claims = list(generate_private_plan_claims("k", before, after))
    return [c.place for c in claims if c.goal is not T.TRUE]


def _store(memory, position, value, *waits, gate=None):
    return b.store(
        b.at(b.after(memory, *waits) if waits else memory, position),
        b.const(value, dt.int32) if isinstance(value, int) else value,
        gate,
    )


def _load(memory, position, *waits):
    return b.load(b.at(b.after(memory, *waits), position))


def _one_after_the_other(size_of_second=1):
    out, one, other = b.param(0, (2,), dt.int32), _private(1, 1), _private(size_of_second, 2)
    first = _store(one, 0, 3)
    keep = _store(out, 0, _load(one, 0, first))
    second = _store(other, size_of_second - 1, 4, keep)
    before = _listed(_store(out, 1, _load(other, size_of_second - 1, second), keep))
    return before, _merged(before, other, one, keep)


def test_fine():
    assert not _refuted(*_one_after_the_other())


def test_memory_that_is_too_small_is_refuted():
    assert _refuted(*_one_after_the_other(size_of_second=2))


def _second_between(make_first, read_first):
    """Return a list in which one Buffer gets contents, another is stored and loaded, and the first is accessed again."""
    out, one, other = b.param(0, (2,), dt.int32), _private(2, 1), _private(2, 2)
    first = make_first(one)
    second = b.group(_store(other, 0, 4, *first), _store(other, 1, 5, *first))
    keep = _store(out, 0, b.add(_load(other, 0, *second.src), _load(other, 1, *second.src)))
    before = _listed(_store(out, 1, read_first(one, keep), keep))
    return before, _merged(before, other, one, first[-1])


def test_one_constant_position_is_not_all_of_a_memory():
    def fill(one):
        return _store(one, 0, 1), _store(one, 1, 2)

    before, after = _second_between(fill, lambda one, keep: _load(one, 1, _store(one, 0, 7, keep)))
    assert _refuted(before, after)


def test_a_gated_store_ends_no_contents():
    out, one, other = b.param(0, (2,), dt.int32), _private(1, 1), _private(1, 2)
    gate = b.load(b.at(b.param(1, (1,), dt.bool_), 0))
    first = _store(one, 0, 1)
    second = _store(other, 0, 4, first)
    keep = _store(out, 0, _load(other, 0, second))
    again = _store(one, 0, 7, keep, gate=gate)
    before = _listed(_store(out, 1, _load(one, 0, again), keep))
    assert _refuted(before, _merged(before, other, one, first))


@pytest.mark.parametrize(("bound", "is_refuted"), [(2, False), (0, True), (b.variable("n", 0, 2), True)], ids=["2", "0", "n"])
def test_a_store_in_a_loop_ends_contents_if_the_loop_certainly_runs(bound, is_refuted):
    out, one, other = b.param(0, (2,), dt.int32), _private(1, 1), _private(1, 2)
    first = _store(one, 0, 1)
    second = _store(other, 0, 4, first)
    keep = _store(out, 0, _load(other, 0, second))
    r = b.range_(bound, 0)
    again = b.end(_store(one, 0, 7, keep, r), r)
    before = _listed(_store(out, 1, _load(one, 0, again), keep))
    assert bool(_refuted(before, _merged(before, other, one, first))) == is_refuted


def test_an_atomic_sum_reads_what_it_adds_to():
    out, one, other = b.param(0, (2,), dt.int32), _private(1, 1), _private(1, 2)
    first = _store(one, 0, 1)
    second = _store(other, 0, 4, first)
    keep = _store(out, 0, _load(other, 0, second))
    total = UOp(Op.ATOMICADD, (b.at(b.after(one, keep), 0), b.const(5, dt.int32)))
    before = _listed(total)
    assert _refuted(before, _merged(before, other, one, first))


def test_a_loop_that_reads_what_it_fills_does_not_end_contents():
    out, one, other = b.param(0, (2,), dt.int32), _private(2, 1), _private(2, 2)
    first = _store(one, 1, 2, _store(one, 0, 1))
    second = _store(other, 1, 5, _store(other, 0, 4, first))
    keep = _store(out, 0, _load(other, 0, second))
    r = b.range_(2, 0)
    stored = b.store(b.at(b.after(one, keep, r), r), b.const(9, dt.int32))
    loaded = b.load(b.at(b.after(one, stored), b.sub(1, r)))
    before = _listed(b.end(b.store(b.at(b.after(out, keep, r), r), loaded), r))
    assert _refuted(before, _merged(before, other, one, first))


@pytest.mark.parametrize("stored", [(0, 1), (1,)], ids=["all", "some"])
@pytest.mark.parametrize("loop", [AxisType.LOOP, AxisType.REDUCE], ids=lambda t: t.name)
def test_stores_to_single_elements_end_the_contents_of_an_earlier_iteration(loop, stored):
    out, one, other = b.param(0, (2,), dt.int32), _private(2, 1), _private(2, 2)
    i = b.range_(2, 0, loop)
    first = [_store(one, k, 3, i) for k in stored]
    keep = _store(out, i, b.add(_load(one, 0, *first), _load(one, 1, *first)))
    second = [_store(other, k, 4, keep) for k in (0, 1)]
    last = _store(out, i, b.add(_load(other, 0, *second), _load(other, 1, *second)), keep)
    before = _listed(b.end(last, i))
    assert bool(_refuted(before, _merged(before, other, one, keep))) is (len(stored) == 1)


@pytest.mark.parametrize("position", [-1, 1 << 62])
def test_a_position_out_of_bounds_in_a_loop_that_never_runs_ends_no_contents(position):
    out, one, other, never = b.param(0, (2,), dt.int32), _private(1, 1), _private(1, 2), b.range_(0, 0)
    first = _store(one, 0, 3)
    skipped = b.end(_store(one, position, 7, first, never), never)
    second = _store(other, 0, 4, skipped)
    keep = _store(out, 0, _load(other, 0, second))
    before = _listed(_store(out, 1, _load(one, 0, keep), keep))
    assert _refuted(before, _merged(before, other, one, first))


def _lane_registers_around_which_a_loop_runs(carries, lanes):
    """Return a list, and the same on merged registers: lanes in a loop store to a register, and then to another.

    If `carries`, each iteration of the loop reads the first register before it stores to it.
    """
    out, one, other = b.param(0, (2,), dt.int32), _private(1, 1), _private(1, 2)
    i, m = b.range_(2, 0), b.range_(2, 1, lanes)
    carried = _store(out, m, _load(one, 0, i, m)) if carries else i
    first = _store(one, 0, 3, carried, m)
    keep = _store(out, m, _load(one, 0, first))
    second = _store(other, 0, 4, keep)
    last = _store(out, m, _load(other, 0, second), keep)
    before = _listed(b.end(b.end(last, m), i))
    return before, _merged(before, other, one, keep)


@pytest.mark.parametrize("lanes", [AxisType.LOCAL, AxisType.WARP, AxisType.GLOBAL], ids=lambda t: t.name)
@pytest.mark.parametrize("carries", [True, False])
def test_a_loop_around_lanes_keeps_the_contents_of_their_registers_R128(carries, lanes):
    assert bool(_refuted(*_lane_registers_around_which_a_loop_runs(carries, lanes))) is carries


@pytest.mark.parametrize("store_in_lanes", [lambda one, out, m: _store(out, m, 9), lambda one, out, m: _store(one, m, 9)],
                         ids=["result", "register"])  # fmt: skip
@pytest.mark.parametrize("lanes", [AxisType.LOCAL, AxisType.WARP, AxisType.GLOBAL], ids=lambda t: t.name)
def test_a_loop_of_lanes_leaves_the_contents_of_registers_outside_R128(lanes, store_in_lanes):
    out, one, other = b.param(0, (2,), dt.int32), _private(2, 1), _private(2, 2)
    first = _store(one, 1, 3, _store(one, 0, 2))
    m = UOp(Op.RANGE, (b.const(2, dt.index),), RangeArg(0, lanes))
    inner = b.end(store_in_lanes(b.after(one, first), b.after(out, first), m), m)
    second = _store(other, 1, 5, _store(other, 0, 4, inner))
    keep = _store(out, 0, _load(other, 0, second))
    before = _listed(_store(out, 1, _load(one, 1, keep), keep))
    assert _refuted(before, _merged(before, other, one, first))


def test_accesses_in_another_order_are_refuted():
    out, one = b.param(0, (2,), dt.int32), _private(1, 1)
    first = _store(one, 0, 1)
    x = _load(one, 0, first)
    before = _listed(_store(out, 0, x), _store(one, 0, 2))
    order = list(before.src)
    k, j = (
        next(i for i, u in enumerate(order) if u.op is op and (op is Op.LOAD or (u.value.op is Op.CONST and u.value.const == 2)))
        for op in (Op.LOAD, Op.STORE)
    )
    late = order.pop(j)
    order.insert(k, late)
    assert not _refuted(before, before)
    assert _refuted(before, UOp(Op.LINEAR, tuple(order)))
