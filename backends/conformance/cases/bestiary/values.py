"""Cases of the bestiary's rows that give values: tensors, memory as a whole, vectors, variables, and several devices.

Each element is moved, or is computed of small whole numbers, so that there is one result (R173).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from uops.backends.conformance.cases.common import (
    SAMPLE,
    Array,
    Inputs,
    make_ordinary_then_random_data,
    make_single_cell_case,
)
from uops.backends.conformance.cases.launches import make_groups_of_ones_and_twos
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.conformance.pools import edge_classes, ordinary_bits, to_array
from uops.backends.contract import DEVICES_SURFACE, TENSOR_SURFACE
from uops.backends.testing.values import bits_to_number
from uops.spec.bestiary import build as B
from uops.spec.bestiary.tables import REDUCE_OPS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Builds a graph for a dtype, and adds its data to the inputs.
BuildGraph = Callable[[DType, Inputs], UOp]
#: The devices of a value that is on several.
PAIR = ("D0", "D1")


def add_param(d: DType, shape: tuple[int, ...], inputs: Inputs, values: Array | None = None) -> UOp:
    """Create the next PARAM, in a shape, and add its data to the inputs."""
    slot, size = sum(k.startswith("p") for k in inputs), math.prod(shape)
    contents = make_ordinary_then_random_data(d, (size,), "param", slot) if values is None else values
    inputs[f"p{slot}"] = contents.reshape(-1)
    memory = B.param(slot, size, d)
    return memory if len(shape) == 1 else b.reshape(memory, shape)


def add_ordinary_param(d: DType, size: int, inputs: Inputs) -> UOp:
    """Create the next PARAM, with ordinary values of which element 3 and element 4 differ."""
    return add_param(d, (size,), inputs, to_array(ordinary_bits(d)[:size], d))


def add_bestiary_buffer(d: DType, total_size: int, inputs: Inputs, device: str | tuple[str, ...] = "CPU") -> UOp:
    """Create a BUFFER of the second document, with contents."""
    unique = sum(k.startswith("b") for k in inputs) + 1
    inputs[f"b{unique}"] = make_ordinary_then_random_data(d, (total_size,), "bestiary", unique)
    devices = len(device) if isinstance(device, tuple) else 1
    return B.buffer(total_size // devices, d, unique, device)


def _elements(d: DType, n: int, inputs: Inputs) -> list[UOp]:
    """Return the elements of a new Param, as scalars."""
    t = add_param(d, (n,), inputs)
    return [B.load(B.at(t, k)) for k in range(n)]


# ------------------------------------------------------------------------------------------------------------- tensors


def _reduce_axis(op: Op) -> BuildGraph:
    """Build a reduction of axis 1 of (3, 4, 2)."""

    def make(d: DType, i: Inputs) -> UOp:
        groups = make_groups_of_ones_and_twos(d, 6, 4).reshape(3, 2, 4).transpose(0, 2, 1)
        return B.reduce_axis(add_param(d, (3, 4, 2), i, groups), op, 1)

    return make


def _reduce_no_and_all_axes(d: DType, i: Inputs) -> UOp:
    """Build reductions of no axis, and of all axes, of several values."""
    values = [add_param(d, (2, 2), i, make_groups_of_ones_and_twos(d, 3, 4)[k].reshape(2, 2)) for k in range(3)]
    reduced = (B.reduce_axis(v, Op.MIN, 1, 0) for v in values)
    return b.tuple_(b.flip(B.reduce_axis(values[2], Op.MAX), (False, True)), *reduced)


def _reduce_empty_and_nonempty_axis(op: Op) -> BuildGraph:
    """Build a reduction of no elements, which gives the identity, beside one of elements."""

    def make(d: DType, i: Inputs) -> UOp:
        some = add_param(d, (3, 2), i, make_groups_of_ones_and_twos(d, 3, 2))
        return b.tuple_(B.reduce_axis(add_param(d, (2, 0), i), op, 1), B.reduce_axis(some, op, 1))

    return make


def _pad(*before_after: tuple[int, int]) -> BuildGraph:
    rank = len(before_after)
    return lambda d, i: b.flip(B.pad(add_param(d, (4,) * rank, i), *before_after), (True,) * rank)


def _shrink(*intervals: tuple[int, int]) -> BuildGraph:
    return lambda d, i: B.shrink(add_param(d, (4,) * len(intervals), i), *intervals)


def _mark_before_conversion(d: DType, i: Inputs) -> UOp:
    x = B.precast(b.flip(add_param(d, (7,), i), (True,)))
    return b.tuple_(x, b.cast(x, dt.bool_))


def _least_of_each(d: DType, i: Inputs) -> UOp:
    """Build the lesser of two values, neither of them a NaN nor zeros of both signs."""
    x, y = (to_array([*ordinary_bits(d)[k:], *ordinary_bits(d)], d) for k in (3, 1))
    return B.minimum(add_param(d, (12,), i, x[:12]), add_param(d, (12,), i, y[:12]))


def _take_minimum_of_nonzero_edge_pairs(d: DType, i: Inputs) -> UOp:
    """Build the lesser of each pair of the dtype's extreme values; with a NaN, whether it is one."""
    pool = [v for name, values in edge_classes(d).items() if name != "zero" for v in values[:4]]
    x = to_array([v for v in pool for _ in pool], d)
    y = to_array([v for _ in pool for v in pool], d)
    least = B.minimum(add_param(d, x.shape, i, x), add_param(d, y.shape, i, y))
    if not d.is_float:
        return least
    is_number = UOp(Op.CMPEQ, (least, least))
    return b.tuple_(is_number, b.where(is_number, least, b.const(0, d)))


# -------------------------------------------------------------------------------------------------------------- memory


def _read_memory(d: DType, i: Inputs) -> UOp:
    return b.flip(b.reshape(add_bestiary_buffer(d, 6, i), (2, 3)), (False, True))


def _two_identities(d: DType, i: Inputs) -> UOp:
    """Build two BUFFERs of one size, which their identities tell apart."""
    return b.tuple_(add_bestiary_buffer(d, 5, i), b.flip(add_bestiary_buffer(d, 5, i), (True,)))


def _write_memory(d: DType, i: Inputs) -> UOp:
    memory = add_bestiary_buffer(d, 5, i)
    return b.after(memory, B.store(B.at(memory), add_param(d, (5,), i)))


def _fill_local_memory(d: DType, i: Inputs) -> UOp:
    """Build memory of its own scope, which is filled before it is read, beside memory of the program with the same number."""
    own = B.buffer(5, d, 1, local=True)
    return b.tuple_(b.after(own, B.store(B.at(own), b.flip(add_param(d, (5,), i), (True,)))), add_bestiary_buffer(d, 5, i))


def _fill_two_local_buffers(d: DType, i: Inputs) -> UOp:
    filled = []
    for number in (1, 2):
        own = B.buffer(5, d, number, local=True)
        filled.append(b.after(own, B.store(B.at(own), add_param(d, (5,), i))))
    return b.stack(*filled)


def _stack_params_in_reverse(device: str | None) -> BuildGraph:
    def make(d: DType, i: Inputs) -> UOp:
        for k in range(2):
            i[f"p{k}"] = make_ordinary_then_random_data(d, (5,), "param", k)
        return b.stack(B.param(1, 5, d, device), B.param(0, 5, d, device))

    return make


def _view_memory(offset: int, size: int) -> BuildGraph:
    return lambda d, i: B.buffer_view(add_bestiary_buffer(d, 7, i), offset, size)


def _write_through_view(d: DType, i: Inputs) -> UOp:
    memory = add_bestiary_buffer(d, 7, i)
    return b.after(memory, B.store(B.at(B.buffer_view(memory, 2, 3)), add_param(d, (3,), i)))


def _copy_then_overwrite(d: DType, i: Inputs) -> UOp:
    """Build a COPY that is fresh memory: what is stored to its source afterwards does not change it."""
    memory = add_bestiary_buffer(d, 5, i)
    copied = B.copy(memory, "CPU")
    return b.stack(copied, b.after(memory, B.store(B.at(b.after(memory, copied)), add_param(d, (5,), i))))


def _copy_of_view(d: DType, i: Inputs) -> UOp:
    return B.copy(b.flip(b.permute(add_param(d, (3, 2), i), (1, 0)), (True, False)), "CPU")


# ------------------------------------------------------------------------------------------------------------- vectors


def _vectorize(d: DType, i: Inputs) -> UOp:
    lanes = _elements(d, 5, i)
    return B.vectorize(lanes[3], lanes[0], lanes[4], lanes[0])


def _gep_single_lanes(d: DType, i: Inputs) -> UOp:
    x = add_ordinary_param(d, 5, i)
    return b.tuple_(B.gep(x, 3), B.gep(x, 4))


def _gep_lanes(d: DType, i: Inputs) -> UOp:
    return B.gep(add_ordinary_param(d, 5, i), 4, 0, 0, 3)


def _constants(d: DType, i: Inputs) -> UOp:
    bits = [*ordinary_bits(d), *(v for pool in edge_classes(d).values() for v in pool[:4])]
    numbers = (bits_to_number(v, d) for v in bits)
    return B.vconst([bool(v) if d.kind is DTypeKind.BOOL else v for v in numbers if v == v], d)


def _concatenate(d: DType, i: Inputs) -> UOp:
    x, y = add_param(d, (3,), i), add_param(d, (4,), i)
    return B.cat(y, B.load(B.at(x, 1)), x)


# ----------------------------------------------------------------------------------------------------------- variables


def _reduce_axis_of_variable_extent(d: DType, i: Inputs) -> UOp:
    """Build a REDUCE_AXIS over as many columns as a variable says, which is given at run time."""
    i["n"] = 3
    n = B.define_var("n", 1, 4)
    columns = b.expand(add_param(d, (3, 1), i, make_groups_of_ones_and_twos(d, 3, 1)), (3, n))
    return b.flip(B.reduce_axis(columns, Op.MAX if d is dt.bool_ else Op.ADD, 1), (True, False))


def _load_two(x: UOp, position: UOp) -> UOp:
    return b.tuple_(B.load(B.at(x, position)), B.load(B.at(x, b.add(position, 1))))


def _variable_position(d: DType, i: Inputs) -> UOp:
    i["n"] = 3
    return _load_two(add_ordinary_param(d, 5, i), B.define_var("n", 0, 3))


def _bound_position(d: DType, i: Inputs) -> UOp:
    return _load_two(add_ordinary_param(d, 5, i), B.bind(B.define_var("n", 0, 3), 3))


def _use_variable_bound_elsewhere(d: DType, i: Inputs) -> UOp:
    """Build a variable that is bound in one place and used in another one (R112)."""
    n = B.define_var("n", 0, 3)
    x = add_ordinary_param(d, 5, i)
    return b.stack(B.load(B.at(x, b.add(n, 1))), B.load(B.at(x, B.bind(n, 3))))


# ------------------------------------------------------------------------------------------------------------- devices


def _copy_to(device: str | tuple[str, ...]) -> BuildGraph:
    return lambda d, i: b.flip(b.reshape(B.copy(add_param(d, (6, 2), i), device), (6, 2)), (False, True))


def _stack_shards(d: DType, i: Inputs) -> UOp:
    return B.mstack(*(b.flip(b.reshape(add_bestiary_buffer(d, 6, i, name), (2, 3)), (False, True)) for name in PAIR))


def _select_device(number: int) -> BuildGraph:
    return lambda d, i: b.flip(B.mselect(b.reshape(add_bestiary_buffer(d, 8, i, PAIR), (4, 2)), number), (False, True))


def _mark_axis(d: DType, i: Inputs) -> UOp:
    """Build a value on two devices that is sharded along axis 1, and what the second one holds of it."""
    t = B.multi(b.permute(b.reshape(add_bestiary_buffer(d, 8, i, PAIR), (4, 2)), (1, 0)), 1)
    return b.tuple_(t, B.mselect(t, 1))


def _all_reduce(op: Op, device: str | tuple[str, ...]) -> BuildGraph:
    def make(d: DType, i: Inputs) -> UOp:
        i["b1"] = make_groups_of_ones_and_twos(d, 4, 2).T.reshape(-1)
        return B.allreduce(b.reshape(B.buffer(4, d, 1, PAIR), (4, 2)), op, device)

    return make


_REDUCES = tuple((name.lower(), op) for name, op in REDUCE_OPS.items())
# fmt: off
#: (op, edge class, builder, surface of the graph's legal form) of each case.
TABLE: tuple[tuple[Op, str, BuildGraph, str], ...] = (
    *((op, edge, make, TENSOR_SURFACE) for op, edge, make in (
        *((Op.REDUCE_AXIS, name, _reduce_axis(op)) for name, op in _REDUCES),
        *((Op.REDUCE_AXIS, f"{name}-of-nothing", _reduce_empty_and_nonempty_axis(op)) for name, op in _REDUCES),
        (Op.REDUCE_AXIS, "no-and-all-axes", _reduce_no_and_all_axes),
        (Op.B_PAD,       "both-sides",   _pad((2, 1))),
        (Op.B_PAD,       "two-axes",     _pad((0, 2), (1, 0))),
        (Op.B_PAD,       "nothing",      _pad((0, 0))),
        (Op.B_SHRINK,    "inner",        _shrink((1, 3))),
        (Op.B_SHRINK,    "two-axes",     _shrink((0, 3), (2, 4))),
        (Op.PRECAST,     "value",        _mark_before_conversion),
        (Op.MIN,         "ordinary",     _least_of_each),
        (Op.MIN,         "limits",       _take_minimum_of_nonzero_edge_pairs),
        (Op.B_BUFFER,    "contents",     _read_memory),
        (Op.B_BUFFER,    "written",      _write_memory),
        (Op.UNIQUE,      "two",          _two_identities),
        (Op.LUNIQUE,     "own-memory",   _fill_local_memory),
        (Op.LUNIQUE,     "two",          _fill_two_local_buffers),
        (Op.B_PARAM,     "contents",     _stack_params_in_reverse(None)),
        (Op.B_PARAM,     "device",       _stack_params_in_reverse("CPU")),
        (Op.BUFFER_VIEW, "inner",        _view_memory(2, 4)),
        (Op.BUFFER_VIEW, "tail",         _view_memory(4, 3)),
        (Op.BUFFER_VIEW, "written",      _write_through_view),
        (Op.COPY,        "fresh-memory", _copy_then_overwrite),
        (Op.COPY,        "view",         _copy_of_view),
        (Op.VECTORIZE,   "scalars",      _vectorize),
        (Op.GEP,         "one-lane",     _gep_single_lanes),
        (Op.GEP,         "lanes",        _gep_lanes),
        (Op.VCONST,      "values",       _constants),
        (Op.CAT,         "parts",        _concatenate),
        (Op.DEFINE_VAR,  "extent",       _reduce_axis_of_variable_extent),
        (Op.DEFINE_VAR,  "position",     _variable_position),
        (Op.BIND,        "position",     _bound_position),
        (Op.BIND,        "everywhere",   _use_variable_bound_elsewhere),
    )),
    *((op, edge, make, DEVICES_SURFACE) for op, edge, make in (
        (Op.COPY,        "other-device", _copy_to("GPU")),
        (Op.COPY,        "two-devices",  _copy_to(PAIR)),
        (Op.DEVICE,      "one",          _copy_to("GPU")),
        (Op.DEVICE,      "two",          _copy_to(PAIR)),
        (Op.MSTACK,      "shards",       _stack_shards),
        (Op.MSELECT,     "first",        _select_device(0)),
        (Op.MSELECT,     "second",       _select_device(1)),
        (Op.MULTI,       "axis",         _mark_axis),
        *((Op.ALLREDUCE, f"{name}-{edge}", _all_reduce(op, device)) for name, op in _REDUCES
          for edge, device in (("one-device", "CPU"), ("all-devices", PAIR))),
    )),
)
# fmt: on


def generate_bestiary_value_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every row that gives values x dtype."""
    for op, edge, make, surface in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if d is dt.bool_ and edge.startswith(("add", "mul")):  # which are Or and And of bools
                continue
            inputs: Inputs = {}
            yield make_single_cell_case(op, d, edge, make(d, inputs), inputs, surface=surface)
