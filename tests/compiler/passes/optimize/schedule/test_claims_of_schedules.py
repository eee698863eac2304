"""Each claim of an axis type, an address space and an OptOp, by the interpreter and by the passes that schedule kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from scheduled_programs import matmul, p

from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.expand import expand
from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    close_output_loops_into_sink,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import PLAIN, MachineModel, Thresholds
from uops.interp import run
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import Trap
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Axis, Nolocals, OptOp, Padto, Split, Swap, apply_legal_optop_to_axes, illegality_reason
from uops.spec.rows.rows import NAMED_ROWS
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import find_broken_claims, verify
from uops.spec.wmma import DESCRIPTORS

T = AxisType
I32, F32 = dt.int32, dt.float32


#: Casts stay in the product's kernel: the cost model thinks of machines that convert element by element.
ONE_KERNEL = Thresholds(kernel_cost=1 << 40)
# ------------------------------------------------------------------------------------------------------- kernels by hand


def memory(slot: int, n: int) -> UOp:
    return b.param(slot, (n,), I32)


def zeros(n: int) -> Any:
    return np.zeros(n, np.int32)


def ended(effect: UOp, *loops: UOp) -> UOp:
    return b.sink(b.wrap_in_one_end_per_loop(effect, loops), name="k")


def barrier(*deps: UOp) -> UOp:
    return UOp(Op.BARRIER, deps)


def buffer(size: int, space: AddrSpace) -> UOp:
    return b.buffer(size, I32, addrspace=space, unique=1)


def _as_int(u: UOp) -> UOp:
    return b.cast(u, I32)


def horner(kind: AxisType) -> UOp:
    """Each iteration multiplies what the one before it left."""
    r = b.range_(4, 0, kind)
    here = b.at(b.after(memory(0, 1), r), b.index(0))
    return ended(b.store(b.at(memory(0, 1), b.index(0)), b.add(b.mul(b.load(here), 10), _as_int(r))), r)


# ------------------------------------------------------------------------------------------------------------- schedules

PRODUCT = matmul(p(0, 8, 12), p(1, 12, 16))


def started(graph: UOp, parallel: bool = True) -> tuple[UOp, Schedule]:
    launch = rangeify(callify(graph), MachineModel(thresholds=ONE_KERNEL))
    (call,) = launch.src
    s = create_initial_schedule(call.body)
    assert s is not None
    return launch, set_output_loop_types_before_optops(s, dict.fromkeys(s.outputs, T.GLOBAL)) if parallel else s


def keeps_the_result(graph: UOp, opts: Sequence[OptOp], machine: MachineModel = PLAIN, parallel: bool = True) -> UOp:
    """Apply OptOps, see that the kernel is well-formed and gives what it gave, and return it."""
    launch, s = started(graph, parallel)
    for opt in opts:
        assert find_rejection_reason(s, opt, machine) is None, opt
        s = apply(s, opt, machine)
    (call,) = launch.src
    scheduled = launch.replace(src=(call.replace(src=(close_output_loops_into_sink(s), *call.arguments)),))
    verify(scheduled, Dialect.SCHEDULED)
    rng, (out,) = np.random.default_rng(1), outputs(graph)
    params = [u for u in toposort(graph) if u.op is Op.PARAM]
    given = {f"p{u.arg.slot}": rng.integers(-2, 3, u.shape).astype(u.dtype.name) for u in params}
    expected = run(graph, given).values[0]
    for seed in (None, 1):
        got = run(scheduled, given, schedule=seed).buffers[f"b{out.buffer.arg.unique}"]
        assert np.array_equal(got.reshape(out.shape), expected)
    return scheduled


def axes(*kinds: AxisType, extent: int = 12) -> list[Axis]:
    return [Axis(k, kind, extent) for k, kind in enumerate(kinds)]


def reason(opt: OptOp, on: Sequence[Axis], **options: Any) -> str:
    return illegality_reason(opt, on, **options) or ""


def splits_into(target: AxisType) -> set[tuple[AxisType, bool]]:
    """The axis types that a Split may make `target` from, each with the half that it may be: True for the outer."""
    return {(kind, top) for kind in T for top in (False, True) if not reason(Split(0, 2, target, top), axes(kind))}


# ---------------------------------------------------------------------------------------------------- claims of axis types


def _runs_in_order(kind: AxisType) -> None:
    for seed in (None, 1, 2):
        assert run(horner(kind), {"p0": zeros(1)}, schedule=seed).buffers["p0"].tolist() == [123]


def _runs_in_any_order(kind: AxisType) -> None:
    with pytest.raises(Trap, match="race"):
        run(horner(kind), {"p0": zeros(1)})
    r = b.range_(4, 0, kind)
    free = ended(b.store(b.at(memory(0, 4), r), _as_int(r)), r)
    for seed in (None, 1, 2):
        assert run(free, {"p0": zeros(4)}, schedule=seed).buffers["p0"].tolist() == [0, 1, 2, 3]


def _shares_local_memory_at_barriers(kind: AxisType) -> None:
    lane, local = b.range_(4, 0, kind), buffer(4, AddrSpace.LOCAL)
    put = b.store(b.at(local, lane), _as_int(lane))
    taken = b.load(b.at(b.after(local, barrier(put)), b.sub(3, lane)))
    root = ended(b.store(b.at(memory(0, 4), lane), taken), lane)
    for seed in (None, 1, 2):
        assert run(root, {"p0": zeros(4)}, schedule=seed).buffers["p0"].tolist() == [3, 2, 1, 0]


def _has_memory_of_its_own(kind: AxisType) -> None:
    for space in (AddrSpace.LOCAL, AddrSpace.REG):
        r, own = b.range_(2, 0, kind), buffer(1, space)
        put = b.store(b.at(own, 0), b.const(1, I32), b.eq(r, 0))
        root = ended(b.store(b.at(memory(0, 2), r), b.load(b.at(b.after(own, put), 0))), r)
        with pytest.raises(Trap, match="never written"):
            run(root, {"p0": zeros(2)})


def _is_gone_after_expand(kind: AxisType) -> None:
    graph = PRODUCT if kind is T.UNROLL else b.add(p(0, 16), 1.0)
    axis = 2 if kind is T.UNROLL else 0
    scheduled = keeps_the_result(graph, [Split(axis, 4, kind)])
    kinds = [{u.arg.type for u in toposort(root) if u.op is Op.RANGE} for root in (scheduled, expand(scheduled))]
    assert kind in kinds[0] and kind not in kinds[1]


#: Axis type -> what a Split may make it from, with the half that it may be, as the table of the document says.
SPLITS: dict[AxisType, set[tuple[AxisType, bool]]] = {
    T.LOCAL: {(T.GLOBAL, False), (T.LOOP, False)},
    T.THREAD: {(T.GLOBAL, True)},
    T.GROUP_REDUCE: {(T.REDUCE, False), (T.REDUCE, True)},
    T.UPCAST: {(T.GLOBAL, False), (T.LOCAL, False), (T.LOOP, False)},
    T.UNROLL: {(T.REDUCE, False), (T.GROUP_REDUCE, False)},
}


def _is_split_from_what_the_table_says(kind: AxisType) -> None:
    assert splits_into(kind) == SPLITS[kind]
    claim = next(c.text for c in NAMED_ROWS[f"AxisType/{kind.name}"].claims if "Split" in c.text)
    assert all(source.name in claim for source, _ in SPLITS[kind])
    assert {top for _, top in SPLITS[kind]} == {h == "outer" for h in ("inner", "outer") if h in claim}


def _is_split_from_itself(kind: AxisType) -> None:
    assert splits_into(kind) == {(kind, False), (kind, True)}


def _is_of_the_second_document_alone(kind: AxisType) -> None:
    r = UOp(Op.B_RANGE, (b.index(4),), A.RangeArg(0, kind))
    assert {u.arg.type for u in toposort(legalize(b.cast(r, F32))) if u.op is Op.RANGE} == {T.LOOP}
    launch = rangeify(callify(b.add(p(0, 16), 1.0)))
    (call,) = launch.src
    (loop,) = (u for u in toposort(call.body) if u.op is Op.RANGE)
    body = substitute(call.body, {loop: b.range_(16, loop.arg.axis_id, kind)})
    changed = launch.replace(src=(call.replace(src=(body, *call.arguments)),))
    for dialect in (Dialect.KERNEL, Dialect.SCHEDULED):
        assert not find_broken_claims(launch, dialect) and find_broken_claims(changed, dialect)
    assert splits_into(kind) == set()


def _output_axes_have_it_first(kind: AxisType) -> None:
    _, s = started(PRODUCT, parallel=kind is T.GLOBAL)
    assert {r.arg.type for r in s.outputs} == {kind}
    if kind is T.GLOBAL:
        assert {source for source, _ in splits_into(kind)} == {kind}


def _axes_of_a_reduce_have_it_first(kind: AxisType) -> None:
    _, s = started(PRODUCT)
    assert {r.arg.type for r in set(s.ranges) - set(s.outputs)} == {kind}


def _tensor_cores_alone_make_it(kind: AxisType) -> None:
    assert splits_into(kind) == set()
    assert kind in {u.arg.type for u in toposort(keeps_the_result(*_on_tensor_cores(TC(0)))) if u.op is Op.RANGE}


#: The beginning of a claim -> its check.
_AXIS_CHECKS: dict[str, Callable[[AxisType], None]] = {
    "its iterations run in order": _runs_in_order,
    "its iterations may run in any order": _runs_in_any_order,
    "its iterations are lanes": _shares_local_memory_at_barriers,
    "each iteration is a workgroup": _has_memory_of_its_own,
    "every iteration becomes code": _is_gone_after_expand,
    "a Split makes it from its own type": _is_split_from_itself,
    "a Split makes it from": _is_split_from_what_the_table_says,
    "the BESTIARY dialect alone": _is_of_the_second_document_alone,
    "output axes": _output_axes_have_it_first,
    "the axes of a Reduce": _axes_of_a_reduce_have_it_first,
    "TC alone": _tensor_cores_alone_make_it,
}


def _check_of(text: str) -> Callable[[AxisType], None]:
    return next((check for start, check in _AXIS_CHECKS.items() if text.startswith(start)), _has_no_check)


def _has_no_check(kind: AxisType) -> None:
    pytest.fail(f"write a check of the claims of {kind}")


# ------------------------------------------------------------------------------------------------- claims of address spaces


def _is_seen_by_all() -> None:
    group, mine = b.range_(2, 0, T.GLOBAL), b.range_(2, 0, T.LOOP)
    first = ended(b.store(b.at(memory(0, 2), group), _as_int(group)), group)
    second = ended(b.store(b.at(memory(1, 2), mine), b.load(b.at(memory(0, 2), mine))), mine)
    shared, out = (b.buffer(2, I32, unique=k) for k in (1, 2))
    launch = UOp(Op.LINEAR, (b.call(first, shared), b.call(second, shared, out)))
    assert run(launch, {"b1": zeros(2) - 1, "b2": zeros(2)}).buffers["b2"].tolist() == [0, 1]


def _is_shared_by_a_workgroup() -> None:
    _shares_local_memory_at_barriers(T.LOCAL)
    _has_memory_of_its_own(T.GLOBAL)


def _belongs_to_a_lane() -> None:
    lane, own = b.range_(4, 0, T.LOCAL), buffer(1, AddrSpace.REG)
    put = b.store(b.at(own, 0), _as_int(lane))
    taken = b.load(b.at(b.after(own, barrier(put)), 0))
    root = ended(b.store(b.at(memory(0, 4), lane), taken), lane)
    assert run(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 1, 2, 3]


def _is_not_read_before_it_is_written(space: AddrSpace) -> None:
    if space is AddrSpace.GLOBAL:
        root, inputs = b.add(b.buffer(2, I32, unique=1), 1), {}
    else:
        r = b.range_(2, 0, T.LOCAL)
        root = ended(b.store(b.at(memory(0, 2), r), b.load(b.at(buffer(1, space), 0))), r)
        inputs = {"p0": zeros(2)}
    with pytest.raises(Trap, match="R61"):
        run(root, inputs)


# --------------------------------------------------------------------------------------------------------- claims of OptOps

_DESCRIPTOR = next(d for d in DESCRIPTORS if "m16n8k8" in d.name and d.dtype_in is dt.float16)
_TILE = A.WmmaArg(_DESCRIPTOR.name, _DESCRIPTOR.dims, _DESCRIPTOR.dtype_in, _DESCRIPTOR.dtype_out, "GPU", _DESCRIPTOR.threads)
_MACHINE = MachineModel(vector_bytes=16, workgroup=256, local_memory=48 << 10, tensor_cores=(_TILE,), thresholds=ONE_KERNEL)
_N, _M, _K = _TILE.dims


def _cast_product(m: int, k: int, n: int) -> UOp:
    x, y = p(0, m, k, dtype=_TILE.dtype_in), p(1, k, n, dtype=_TILE.dtype_in)
    left, right = b.reshape(b.cast(x, _TILE.dtype_out), (m, k, 1)), b.reshape(b.cast(y, _TILE.dtype_out), (1, k, n))
    return b.reshape(b.reduce(b.mul(left, right), Op.ADD, (1,)), (m, n))


def _on_tensor_cores(*opts: OptOp, extents: tuple[int, int, int] = (_M, 2 * _K, _N)) -> tuple[UOp, Sequence[OptOp], MachineModel]:
    return _cast_product(*extents), opts, _MACHINE


GEMM = (Axis(0, T.GLOBAL, 4 * _M), Axis(1, T.GLOBAL, 4 * _N), Axis(2, T.REDUCE, 4 * _K))


def _tc(*arguments: int, on: Sequence[Axis] = GEMM, **options: Any) -> str:
    return reason(TC(*arguments), on, **{"descriptors": (_TILE,)} | options)


def _split_keeps_the_result() -> None:
    keeps_the_result(PRODUCT, [Split(0, 2, T.LOCAL), Split(1, 4, T.UPCAST), Split(4, 3, T.UNROLL)])


def _split_gives_two_axes() -> None:
    for top in (False, True):
        made = apply_legal_optop_to_axes(Split(0, 3, T.LOOP, top), axes(T.LOOP))
        assert sorted(a.extent for a in made) == [3, 4]
        assert next(a.extent for a in made if a.id == 1) == 3
    for top, places in ((False, [0, 1, 2, 3, 4, 5]), (True, [0, 3, 1, 4, 2, 5])):
        _, s = started(b.add(b.param(0, (6,), I32), 1), parallel=False)
        s = apply(s, Split(0, 2, T.LOOP, top))
        (store,) = (u for u in toposort(s.effect) if u.op is Op.STORE)
        (position,) = store.buffer.positions
        values = [{r: b.index(k) for r, k in zip(s.ranges, (i, j))} for i in range(3) for j in range(2)]
        assert [int(run(substitute(position, v), {}).values[0]) for v in values] == places


def _split_divides_for_certain() -> None:
    assert "R90" in reason(Split(0, 0, T.LOCAL), axes(T.GLOBAL)) and "R90" in reason(Split(0, 5, T.LOCAL), axes(T.GLOBAL))
    n = b.variable("n", 1, 8)
    assert "for certain" in reason(Split(0, 2, T.LOCAL), [Axis(0, T.GLOBAL, n)])
    assert not reason(Split(0, 2, T.LOCAL), [Axis(0, T.GLOBAL, b.mul(n, 2))])


def _split_obeys_the_table() -> None:
    for target, sources in SPLITS.items():
        assert splits_into(target) == sources


def _split_tiles() -> None:
    for kind in T:
        assert ((kind, True) in splits_into(kind)) is (kind in (T.LOOP, T.GLOBAL, T.REDUCE))


def _split_numbers_the_new_axis() -> None:
    made = apply_legal_optop_to_axes(Split(1, 2, T.UPCAST), [Axis(3, T.GLOBAL, 4), Axis(7, T.GLOBAL, 4)])
    assert [(a.id, a.type) for a in made] == [(3, T.GLOBAL), (7, T.GLOBAL), (8, T.UPCAST)]


def _split_obeys_nolocals() -> None:
    for target, kind in ((T.LOCAL, T.GLOBAL), (T.GROUP_REDUCE, T.REDUCE)):
        assert "R96" in reason(Split(0, 2, target), axes(kind), applied=[Nolocals()])
    assert not reason(Split(0, 2, T.UPCAST), axes(T.GLOBAL), applied=[Nolocals()])


def _padto_keeps_the_result() -> None:
    keeps_the_result(PRODUCT, [Padto(0, 5), Padto(1, 7), Padto(2, 5)])


def _padto_stores_nothing_more() -> None:
    assert [a.extent for a in apply_legal_optop_to_axes(Padto(0, 5), axes(T.LOOP))] == [15]
    keeps_the_result(b.add(p(0, 6), 1.0), [Padto(0, 4), Split(0, 4, T.UPCAST)])  # a Store past the end would be a Trap


def _padto_gives_the_identity() -> None:
    for op in (Op.ADD, Op.MUL, Op.MAX):
        keeps_the_result(b.reduce(b.sub(p(0, 3, 6), 5.0), op, (1,)), [Padto(1, 4)])


def _padto_takes_any_axis() -> None:
    assert all(not reason(Padto(0, 5), axes(kind)) for kind in T)
    assert "R98" in reason(Padto(0, 0), axes(T.LOOP))
    assert not reason(Padto(0, 4), axes(T.LOOP))


def _padto_counts_axes_in_order() -> None:
    given = [Axis(0, T.REDUCE, 12), Axis(1, T.GLOBAL, 12), Axis(2, T.LOOP, 12)]
    assert {a.id for a in apply_legal_optop_to_axes(Padto(1, 5), given) if a.extent == 15} == {1}
    assert "R95" in reason(Padto(3, 5), given)


def _swap_keeps_the_result() -> None:
    keeps_the_result(PRODUCT, [Swap(0, 1)], parallel=False)


def _swap_exchanges_places() -> None:
    given = [Axis(0, T.LOOP, 3), Axis(1, T.LOOP, 4)]
    assert [a.extent for a in apply_legal_optop_to_axes(Swap(0, 1), given)] == [4, 3]


def _swap_takes_one_type() -> None:
    assert "R96" in reason(Swap(0, 1), axes(T.LOOP, T.REDUCE)) and not reason(Swap(0, 1), axes(T.LOOP, T.LOOP))


def _swap_takes_two_axes() -> None:
    assert "R98" in reason(Swap(0, 0), axes(T.LOOP, T.LOOP))


def _nolocals_keeps_the_result() -> None:
    keeps_the_result(PRODUCT, [Nolocals(), Split(1, 4, T.UPCAST)])


def _nolocals_comes_before_lanes() -> None:
    for kind in T:
        assert ("R96" in reason(Nolocals(), axes(kind))) is (kind in (T.LOCAL, T.WARP, T.GROUP_REDUCE))


def _tc_keeps_the_result() -> None:
    keeps_the_result(*_on_tensor_cores(TC(0)))


def _tc_comes_first() -> None:
    assert "R93" in _tc(0, applied=[Padto(0, 2)]) and not _tc(0)


def _tc_takes_products_of_casts() -> None:
    assert "R93" in _tc(0, is_matmul=False)
    assert "R93" in _tc(0, on=GEMM[1:])
    other = b.reduce(b.cast(b.mul(p(0, _M, _K, 1), p(1, 1, _K, _N)), F32), Op.ADD, (1,))
    _, s = started(other)
    assert "R93" in (find_rejection_reason(s, TC(0), _MACHINE) or "")


def _tc_numbers_descriptors() -> None:
    assert "R97" in _tc(0, 1) and not _tc(0, 0) and not _tc(0, -1)
    assert "R97" in _tc(0, -1, descriptors=())


def _tc_opt_says_what_fits() -> None:
    odd = (Axis(0, T.GLOBAL, _M + 1), *GEMM[1:])
    two = (*GEMM, Axis(3, T.REDUCE, 4))
    assert ["R97" in _tc(0, 0, opt, on=odd) for opt in (0, 1, 2)] == [True, True, False]
    assert ["R97" in _tc(0, 0, opt, on=two) for opt in (0, 1, 2)] == [True, False, False]
    assert "R97" in _tc(0, 0, 3)
    keeps_the_result(*_on_tensor_cores(TC(0, 0, 2), extents=(_M + 1, 2 * _K, _N)))


def _tc_mode_says_what_is_emitted() -> None:
    assert "R97" in _tc(0, 0, 0, 0)
    found = [keeps_the_result(*_on_tensor_cores(TC(0, 0, 0, mode))) for mode in (1, 2)]
    assert [Op.WMMA in {u.op for u in toposort(root)} for root in found] == [True, False]
    of_warps = [{u.arg.type: u.bound for u in toposort(root) if u.op is Op.RANGE and u.arg.type is T.WARP} for root in found]
    assert of_warps[0] == of_warps[1] != {}


_OPTOP_CHECKS: dict[str, tuple[Callable[[], None], ...]] = {
    "Split": (
        _split_keeps_the_result, _split_gives_two_axes, _split_divides_for_certain, _split_obeys_the_table, _split_tiles,
        _split_numbers_the_new_axis, _split_obeys_nolocals,
    ),
    "Padto": (
        _padto_keeps_the_result, _padto_stores_nothing_more, _padto_gives_the_identity, _padto_takes_any_axis,
        _padto_counts_axes_in_order,
    ),
    "Swap": (_swap_keeps_the_result, _swap_exchanges_places, _swap_takes_one_type, _swap_takes_two_axes),
    "Nolocals": (_nolocals_keeps_the_result, _nolocals_comes_before_lanes, _split_obeys_nolocals),
    "TC": (
        _tc_keeps_the_result, _tc_comes_first, _tc_takes_products_of_casts, _tc_numbers_descriptors, _tc_opt_says_what_fits,
        _tc_mode_says_what_is_emitted,
    ),
}  # fmt: skip
_SPACE_CHECKS = {
    AddrSpace.GLOBAL: _is_seen_by_all,
    AddrSpace.LOCAL: _is_shared_by_a_workgroup,
    AddrSpace.REG: _belongs_to_a_lane,
}


# ------------------------------------------------------------------------------------------------------------------ registry

HOLDS: dict[str, Callable[[], None]] = {}
for kind in AxisType:
    for claim in NAMED_ROWS[f"AxisType/{kind.name}"].claims:
        HOLDS[claim.id] = partial(_check_of(claim.text), kind)
for name, checks in _OPTOP_CHECKS.items():
    HOLDS |= {claim.id: check for claim, check in zip(NAMED_ROWS[f"OptOp/{name}"].claims, checks, strict=True)}
for space, check in _SPACE_CHECKS.items():
    first, second = NAMED_ROWS[f"AddrSpace/{space.name}"].claims
    HOLDS |= {first.id: check, second.id: partial(_is_not_read_before_it_is_written, space)}


def test_every_claim_of_a_schedule_has_a_test() -> None:
    rows = [row for row in NAMED_ROWS.values() if row.family in ("AxisType", "OptOp", "AddrSpace")]
    assert set(HOLDS) == {claim.id for row in rows for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(id: str) -> None:
    HOLDS[id]()
