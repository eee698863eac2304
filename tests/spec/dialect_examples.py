"""Examples of the dialects' claims: one small program per dialect, and each form broken in it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

from claim_examples import GLOBAL, LOCAL, REG, b8, buf, c, claim, f32, i, i32, n, rng, v

from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import DIALECTS, Dialect

D = Dialect
EARLY = (D.KERNEL, D.SCHEDULED, D.EXPANDED)
LISTED = (D.LINEAR, D.PLANNED, D.PROGRAM)
LAUNCHED = (*EARLY, D.SELECTED, *LISTED)
IN, OUT = buf(unique=12), buf(unique=11)
P0, P1 = b.param(0, (4,), f32), b.param(1, (4,), f32)


TILE = A.WmmaArg("tile", (16, 16, 16), dt.float16, f32, "GPU", 32)
FRAGMENTS = tuple(n(Op.STACK, *[c(1.0, x)] * 8) for x in (dt.float16, dt.float16, f32))


class Toy(NamedTuple):
    """A target."""

    name: str
    ops: frozenset[Op]
    dtypes: frozenset[DType]


TOY = Toy("toy", frozenset(Op) - {Op.SQRT}, frozenset({f32, i32, b8}))


def counter(d: Dialect, axis_id: int = 0, type: AxisType = AxisType.LOOP) -> UOp:
    """A Range of the dtype that the dialect counts in."""
    return n(Op.RANGE, i(4) if d in EARLY else c(4, i32), arg=A.RangeArg(axis_id, type))


def instructions(*effects: UOp) -> list[UOp]:
    sizes = set(toposort(*(u.src[0] for u in toposort(*effects) if u.op is Op.PARAM)))
    return [u for u in toposort(*effects) if u not in sizes and u.op is not Op.CONST]


def body(d: Dialect, *effects: UOp, listing: Iterable[UOp] | None = None) -> UOp:
    if d not in LISTED:
        return b.sink(*effects, name="k")
    linear = n(Op.LINEAR, *(instructions(*effects) if listing is None else listing))
    return linear if d is not D.PROGRAM else n(Op.PROGRAM, linear, n(Op.SOURCE, arg=A.SourceArg("k")), b.binary(b"k"))


def launch(d: Dialect, *effects: UOp, arguments: tuple[UOp, ...] = (OUT, IN), listing: Iterable[UOp] | None = None) -> UOp:
    """A program of one kernel."""
    if d is D.CALLIFIED:
        return b.call(b.sink(*effects), *arguments)
    return n(Op.LINEAR, b.call(body(d, *effects, listing=listing), *arguments))


def at(p: UOp, *indices: UOp) -> UOp:
    return n(Op.INDEX, p, *indices)


def read(d: Dialect) -> UOp:
    return b.load(at(P1, counter(d)))


def put(d: Dialect, value: UOp, *more: UOp) -> UOp:
    """The store of a value in a loop."""
    return b.end(b.store(at(P0, counter(d)), value), counter(d), *more)


def good(d: Dialect) -> UOp:
    if d is D.TENSOR:
        return b.neg(v())
    if d is D.BESTIARY:
        return n(Op.PRECAST, c(1.0))
    return launch(d, b.store(P0, b.neg(P1)) if d is D.CALLIFIED else put(d, b.neg(read(d))))


def _foreign(d: Dialect) -> list[UOp]:
    if d in (D.TENSOR, D.BESTIARY):
        return [n(Op.SPECIAL, i(4), arg=A.SpecialArg("g"))] if d is D.TENSOR else [buf()]
    if d is D.CALLIFIED:
        return [launch(d, b.store(P0, b.detach(P1)))]
    return [launch(d, put(d, n(Op.DETACH, read(d))))]


def _tagged(d: Dialect) -> list[UOp]:
    if d in (D.TENSOR, D.BESTIARY):
        return [good(d).replace(tag=1)]
    if d is D.CALLIFIED:
        return [launch(d, b.store(P0, n(Op.NEG, P1).replace(tag=0)))]
    return [launch(d, put(d, n(Op.NEG, read(d)).replace(tag="x")))]


def _spaces(d: Dialect) -> list[UOp]:
    if d is D.TENSOR:
        return [buf(space=LOCAL), buf(space=REG), n(Op.LOAD, buf(), arg=A.LoadArg(None, REG))]
    ends = n(Op.B_RANGE, i(4), arg=A.RangeArg(0, AxisType.LOOP))
    return [n(Op.BUFFERIZE, c(1.0), ends, arg=A.BufferizeArg("CPU", REG))]


def _roots(d: Dialect) -> list[UOp]:
    return [buf()] if d is D.CALLIFIED else [good(d).src[0], n(Op.LINEAR, buf())]


def _arguments(d: Dialect) -> list[UOp]:
    effect = b.store(P0, P1) if d is D.CALLIFIED else put(d, read(d))
    return [launch(d, effect, arguments=(OUT, IN, c(1.0)))]


def _bodies(d: Dialect) -> list[UOp]:
    if d is D.CALLIFIED:
        return [b.call(b.group(b.store(P0, P1)), OUT, IN)]
    other = b.sink(put(d, read(d))) if d not in LISTED else b.sink(put(d, read(d)), name="k")
    if d is D.PROGRAM:
        other = body(D.LINEAR, put(d, read(d)))
    return [n(Op.LINEAR, b.call(other, OUT, IN))] + (
        [] if d in LISTED else [n(Op.LINEAR, b.call(b.group(put(d, read(d))), OUT, IN))]
    )


def _sinks(d: Dialect) -> list[UOp]:
    if d is D.CALLIFIED:
        return [launch(d, b.after(P0, b.store(P0, P1)))]
    return [launch(d, b.group(c(1.0)))]


def _wrong_arguments(d: Dialect) -> list[UOp]:
    return [launch(d, b.store(P0, P1), arguments=a) for a in ((OUT, v((2, 2))), (OUT, buf(4, i32)))]


def _unbound(d: Dialect) -> list[UOp]:
    return [launch(d, b.store(at(P0, b.variable("n", 0, 3)), c(1.0)))]


def _params(d: Dialect) -> list[UOp]:
    square = b.param(1, (2, 2), f32)
    free = b.variable("n", 0, 3) if d in EARLY else n(Op.PARAM, b.SCALAR, arg=A.ParamArg(None, i32, name="n", bounds=(0, 3)))
    return [launch(d, put(d, b.load(at(square, counter(d), counter(d))))), launch(d, b.store(at(P0, free), c(1.0)))]


def _addresses(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, b.cast(b.load(b.bitcast(at(P1, counter(d)), i32)), f32)))]


def _unloaded(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, b.neg(at(P1, counter(d))))), launch(d, put(d, at(P1, counter(d))))]


def _conditions(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, n(Op.WHERE, read(d), c(1.0), c(2.0))))]


def _types(d: Dialect) -> list[UOp]:
    wrong = {D.KERNEL: AxisType.GLOBAL, D.SCHEDULED: AxisType.PLACEHOLDER}.get(d, AxisType.UPCAST)
    r = counter(d, 0, wrong)
    return [launch(d, b.end(b.store(at(P0, r), c(1.0)), r))]


def _open(d: Dialect) -> list[UOp]:
    return [launch(d, b.store(at(P0, counter(d)), c(1.0))), launch(d, put(d, b.cast(counter(d, 5), f32)))]


def _machine_bound(d: Dialect) -> list[UOp]:
    r = counter(D.SELECTED)
    return [launch(d, b.end(b.store(at(P0, r), c(1.0)), r))]


def _dtypes(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, read(d)), arguments=(OUT, buf(4, i32, unique=12)))]


def _vectors(d: Dialect) -> list[UOp]:
    return [launch(d, b.store(at(P0), b.load(at(P1))))]


def _stacks(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, at(n(Op.STACK, c(1.0), c(2.0)), i(0))))]


def _spelled(d: Dialect) -> list[UOp]:
    return [n(Op.GEP, n(Op.STACK, c(1.0), c(2.0)), arg=A.GepArg((0,)))]


def _kinds(d: Dialect) -> list[UOp]:
    r, s = rng(4, 0, AxisType.REDUCE), rng(4, 1)
    total = n(Op.REDUCE, b.load(at(P1, s)), s, arg=A.ReduceArg(Op.ADD))
    return [launch(d, b.end(b.store(at(P0, r), c(1.0)), r)), launch(d, put(d, total))]


def _buffers(d: Dialect) -> list[UOp]:
    return [launch(d, b.end(b.store(at(buf(4, unique=9, space=GLOBAL), counter(d)), read(d)), counter(d)))]


def _shapes(d: Dialect) -> list[UOp]:
    two = n(Op.STACK, c(1.0), c(2.0))
    return [launch(d, put(d, at(n(Op.ADD, two, c(1.0)), c(0, i32))))]


def _two_shapes(d: Dialect) -> list[UOp]:
    two, one = n(Op.STACK, c(1.0), c(2.0)), n(Op.STACK, c(1.0))
    return [launch(d, put(d, at(n(Op.WHERE, c(True, b8), two, one), c(0, i32))))]


def _index_math(d: Dialect) -> list[UOp]:
    r = rng()
    return [launch(d, b.end(b.store(at(P0, n(Op.MOD, r, i(4))), c(1.0)), r))]


def _targets(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, b.cast(b.cast(read(d), dt.float64), f32))), launch(d, put(d, n(Op.SQRT, read(d))))]


def _order(d: Dialect) -> list[UOp]:
    found = instructions(put(d, read(d)))
    k = next(k for k, u in enumerate(found) if u.op is Op.LOAD)
    swapped = [*found[: k - 1], found[k], found[k - 1], *found[k + 1 :]]
    pair = b.store(at(P0, n(Op.STACK, c(1, i32), c(2, i32))), n(Op.STACK, b.load(at(P1, c(3, i32))), c(1.0)))
    hidden = [u for u in instructions(pair) if u.op not in (Op.LOAD, Op.STACK)]  # a Load whose only user is a Stack
    unlisted = [u for u in found if u.op is not Op.LOAD]
    return [launch(d, listing=x) for x in (swapped, [*found[:k], found[k], *found[k:]], unlisted, hidden)]


def _nests(d: Dialect) -> list[UOp]:
    r, s = counter(d, 0), counter(d, 1)
    inner = b.end(b.store(at(P0, r), c(1.0)), r)
    found = instructions(put(d, read(d)))
    gate = n(Op.IF, c(True, b8))
    crossed = [r, s, P0, at(P0, r), b.store(at(P0, r), c(1.0)), inner, b.end(inner, s)]
    return [
        launch(d, listing=x) for x in (found[:-1], crossed, [gate], [gate, r, n(Op.ENDIF, gate), at(P0, r), inner.src[0], inner])
    ]


def _twice(d: Dialect) -> list[UOp]:
    if d is D.SCHEDULED:  # whose only vectors are fragments
        place, value = n(Op.STACK, *(i(k % 7) for k in range(8))), n(Op.WMMA, *FRAGMENTS, arg=TILE)
        return [launch(d, b.store(at(buf(8, unique=9, space=REG), place), value))]
    place, value = n(Op.STACK, *(c(k, i32) for k in (1, 2, 1))), n(Op.STACK, *(c(float(k)) for k in range(3)))
    return [launch(d, b.store(at(P0, place), value))]


def _grids(d: Dialect) -> list[UOp]:
    place = n(Op.STACK, *(i(k) if d is D.SCHEDULED else c(k, i32) for k in range(32)))
    whole = tuple(n(Op.STACK, *s.src * tiles) for s, tiles in zip(FRAGMENTS, (2, 2, 4)))
    value = n(Op.WMMA, *whole, arg=dataclasses.replace(TILE, tile_grid=(2, 2)))
    return [launch(d, b.store(at(buf(32, unique=9, space=REG), place), value))]


def _loads(d: Dialect) -> list[UOp]:
    return [launch(d, put(d, n(Op.LOAD, at(P1, counter(d)), arg=A.LoadArg(None, space)))) for space in (LOCAL, GLOBAL)]


def _single(d: Dialect) -> list[UOp]:
    r, s = counter(d, 0), counter(d, 1)
    store = b.store(at(P0, r), c(1.0))
    return [launch(d, listing=[s, r, P0, at(P0, r), store, b.end(store, r, s)])]


#: Name of the check -> graphs that break it, by dialect.
BREAKS: dict[str, Callable[[Dialect], list[UOp]]] = {
    "op_in_dialect_form": _foreign,
    "_check_no_tag": _tagged,
    "outer_address_space_form": _spaces,
    "_check_root_is_call": _roots,
    "root_is_linear_of_calls_form": _roots,
    "call_argument_ops_form": _arguments,
    "call_body_form": _bodies,
    "sink_and_group_source_ops_form": _sinks,
    "_check_argument_dtypes_and_shapes_if_constant": _wrong_arguments,
    "_check_param_has_slot": _unbound,
    "_check_kernel_param": _params,
    "_check_access_through_index": _addresses,
    "_check_no_reference_as_value": _unloaded,
    "_check_bool_condition": _conditions,
    "axis_type_form": _types,
    "_check_no_open_range": _open,
    "_check_bound_is_index": _machine_bound,
    "_check_argument_dtypes": _dtypes,
    "_check_scalar_value": _vectors,
    "_check_scalar_or_fragment": _vectors,
    "_check_shape_or_fragment": _stacks,
    "_check_closed_axis_type": _kinds,
    "_check_kernel_buffer": _buffers,
    "check_all_same_shape": _shapes,
    "_check_vector_sources_share_shape": _two_shapes,
    "_check_no_index_arithmetic": _index_math,
    "_check_target_has_op_and_dtype": _targets,
    "_check_instructions_unique_after_sources": _order,
    "_check_blocks_nest": _nests,
    "_check_single_end": _single,
    "_check_constant_store_indices_distinct": _twice,
    "_check_one_tile": _grids,
    "_check_load_to_registers": _loads,
}

for _d, _spec in DIALECTS.items():
    for _claim, _form in _spec.claims:
        _name = _claim.check.__qualname__.split(".")[0]
        if _name == "_make_stack_used_as_extents_check":
            _graphs = (_spelled if _d is D.BESTIARY else _stacks)(_d)
        else:
            _graphs = BREAKS[_name](_d)
        claim(_claim.id, good(_d), *_graphs, dialect=_d, target=TOY if _name == "_check_target_has_op_and_dtype" else None)
