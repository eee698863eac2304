"""Cases of the source, call, load, store, ordering and marker rows: small programs with values and final buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uops.backends.conformance.cases.common import (
    SAMPLE,
    Inputs,
    add_buffer,
    add_param,
    make_ordinary_then_random_data,
    make_single_cell_case,
    put_nans_of_both_signs,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.conformance.pools import edge_classes, ordinary_bits, to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Builds a graph for a dtype, and adds its data to the inputs.
BuildGraph = Callable[[DType, Inputs], UOp]


def _perturb(x: UOp) -> UOp:
    """Change every value of any dtype: negate a bool, add one to any other."""
    return UOp(Op.NOT, (x,)) if x.dtype is dt.bool_ else UOp(Op.ADD, (x, b.const(1, x.dtype)))


def _stack_edge_constants(d: DType, i: Inputs) -> UOp:
    bits = [*ordinary_bits(d), *(v for pool in edge_classes(d).values() for v in pool[:6])]
    values = to_array(bits, d)
    return b.stack(*(b.const(float(v) if d.is_float else bool(v) if d.kind is DTypeKind.BOOL else int(v), d) for v in values))


def _stack_shared_param(d: DType, i: Inputs) -> UOp:
    x, y = add_param(d, (5,), i), add_param(d, (5,), i)
    return b.stack(y, x, y)


def _binary(d: DType, i: Inputs) -> UOp:
    return b.binary(make_ordinary_then_random_data(dt.uint8, (19,), "binary").tobytes())


def _call_function_of_value_and_condition(d: DType, i: Inputs) -> UOp:
    body = b.where(b.param(1, (4,), dt.bool_), _perturb(b.param(0, (4,), d)), b.param(0, (4,), d))
    x, p = add_param(d, (4,), i), add_param(dt.bool_, (4,), i)
    f = b.function(b.tuple_(body), x, p)
    return b.get(f, 0)


def _call_nested_functions(d: DType, i: Inputs) -> UOp:
    """Build nested Functions; the inner body owns its Params (R64)."""
    inner = b.get(b.function(b.tuple_(b.flip(b.param(1, (4,), d), (True,))), b.param(1, (4,), d), b.param(0, (4,), d)), 0)
    outer = b.function(b.tuple_(b.stack(inner, b.param(1, (4,), d))), add_param(d, (4,), i), add_param(d, (4,), i))
    return b.get(outer, 0)


def _get_second_result(d: DType, i: Inputs) -> UOp:
    x = add_param(d, (5,), i)
    f = b.function(b.tuple_(b.cast(b.param(0, (5,), d), dt.bool_), _perturb(b.param(0, (5,), d))), x)
    return b.get(f, 1)


def _make_two_dtype_tuple(d: DType, i: Inputs) -> UOp:
    x = add_param(d, (5,), i)
    return b.tuple_(b.flip(x, (True,)), b.cast(x, dt.bool_))


def _read_result_of_storing_call(d: DType, i: Inputs) -> UOp:
    """Build a Call; its result is read through After (R63)."""
    body = b.sink(b.store(b.param(1, (6,), d), _perturb(b.param(0, (6,), d))))
    out = add_buffer(d, 6, i, filled=False)
    return b.after(out, b.call(body, add_param(d, (6,), i), out, written=(1,)))


def _load_with_gate(d: DType, i: Inputs) -> UOp:
    return b.load(add_param(d, (24,), i), add_param(d, (24,), i), add_param(dt.bool_, (24,), i))


def _load_with_scalar_gates(d: DType, i: Inputs) -> UOp:
    x, y, p = add_param(d, (6,), i), add_param(d, (6,), i), add_param(dt.bool_, (2,), i)
    return b.stack(b.load(x, y, b.at(p, 0)), b.load(x, y, b.at(p, 1)))


def _make_sink_of_store_to_view(view: Callable[[UOp], UOp], size: int) -> BuildGraph:
    def make(d: DType, i: Inputs) -> UOp:
        buf = add_buffer(d, size, i)
        target = view(buf)
        return b.sink(b.store(target, add_param(d, target.shape, i)))

    return make


def _store_with_gate(d: DType, i: Inputs) -> UOp:
    buf = add_buffer(d, 7, i)
    return b.sink(b.store(buf, add_param(d, (7,), i), add_param(dt.bool_, (7,), i)))


def _store_reversed_self(d: DType, i: Inputs) -> UOp:
    """Store a buffer reversed into itself; the value is read fully before the first write (R54)."""
    buf = add_buffer(d, 9, i)
    return b.sink(b.store(buf, b.flip(buf, (True,))))


def _store_overlapping_self(d: DType, i: Inputs) -> UOp:
    buf = add_buffer(d, 9, i)
    return b.sink(b.store(b.shrink(buf, (1,), (8,)), b.shrink(buf, (0,), (8,))))


def _store_through_bitcast(d: DType, i: Inputs) -> UOp:
    buf = add_buffer(dt.uint8, 4 * d.itemsize, i)
    return b.sink(b.store(b.bitcast(buf, d), add_param(d, (4,), i)))


def _read_between_two_writes(d: DType, i: Inputs) -> UOp:
    """Write twice in order, and read between, where only the first write is visible (R59: happens-before)."""
    buf = add_buffer(d, 4, i)
    first = b.assign(buf, add_param(d, (4,), i))
    loaded = b.load(first)
    second = b.after(buf, b.store(b.after(buf, loaded), add_param(d, (4,), i)))
    return b.stack(loaded, second)


def _order_read_by_transitive_after(d: DType, i: Inputs) -> UOp:
    """Order a read after a write through a dependency without an effect (R59: After is transitive)."""
    buf, other = add_buffer(d, 4, i), add_buffer(d, 4, i)
    write = b.store(buf, add_param(d, (4,), i))
    return b.stack(b.after(buf, b.after(other, write)), other)


def _group_two_stores(d: DType, i: Inputs) -> UOp:
    buf = add_buffer(d, 8, i)
    low, high = b.shrink(buf, (0,), (4,)), b.shrink(buf, (4,), (4,))
    return b.after(buf, b.group(b.store(low, add_param(d, (4,), i)), b.store(high, add_param(d, (4,), i))))


def _sink_two_stores(d: DType, i: Inputs) -> UOp:
    one, two = add_buffer(d, 5, i), add_buffer(d, 5, i)
    x = add_param(d, (5,), i)
    return b.sink(b.store(one, x), b.store(two, b.flip(x, (True,))))


def _make_marker_of_view(op: Op) -> BuildGraph:
    return lambda d, i: UOp(op, (b.permute(add_param(d, (3, 5), i), (1, 0)),))


def _shrink_param_of_variable_extent(d: DType, i: Inputs) -> UOp:
    """Shrink a Param whose inner size is a variable: the stride between its rows is known at the call."""
    i["n0"] = 5
    i["p0"] = make_ordinary_then_random_data(d, (3, 5), "param", "symbolic")
    return b.shrink(b.param(0, (3, b.variable("n0", 4, 9)), d), (1, 1), (2, 3))


# fmt: off
#: (op, edge class, builder of the program) of each case.
TABLE: tuple[tuple[Op, str, BuildGraph], ...] = (
    (Op.PARAM, "matrix",       lambda d, i: b.stack(add_param(d, (2, 3), i), add_param(d, (2, 3), i))),
    (Op.PARAM, "shared",       _stack_shared_param),
    (Op.PARAM, "symbolic",     _shrink_param_of_variable_extent),
    (Op.BUFFER, "contents",    lambda d, i: b.stack(add_buffer(d, 7, i), add_buffer(d, 7, i))),
    (Op.CONST, "edge-values",  _stack_edge_constants),
    (Op.BINARY, "bytes",       _binary),
    (Op.FUNCTION, "two-params", _call_function_of_value_and_condition),
    (Op.FUNCTION, "nested",    _call_nested_functions),
    (Op.GETTUPLE, "second",    _get_second_result),
    (Op.TUPLE, "two-dtypes",   _make_two_dtype_tuple),
    (Op.CALL, "one-output",    _read_result_of_storing_call),
    (Op.LOAD, "copy",          lambda d, i: b.load(b.permute(add_param(d, (3, 4), i), (1, 0)))),
    (Op.LOAD, "gated",         _load_with_gate),
    (Op.LOAD, "gated-scalar",  _load_with_scalar_gates),
    (Op.STORE, "whole",        _make_sink_of_store_to_view(lambda v: v, 6)),
    (Op.STORE, "shrunk",       _make_sink_of_store_to_view(lambda v: b.shrink(v, (2,), (3,)), 8)),
    (Op.STORE, "flipped",      _make_sink_of_store_to_view(lambda v: b.flip(v, (True,)), 6)),
    (Op.STORE, "transposed",   _make_sink_of_store_to_view(lambda v: b.permute(b.reshape(v, (3, 4)), (1, 0)), 12)),
    (Op.STORE, "indexed",      _make_sink_of_store_to_view(lambda v: b.at(b.reshape(v, (3, 4)), 1), 12)),
    (Op.STORE, "gated",        _store_with_gate),
    (Op.STORE, "reversed",     _store_reversed_self),
    (Op.STORE, "overlapping",  _store_overlapping_self),
    (Op.STORE, "bytes",        _store_through_bitcast),
    (Op.AFTER, "chain",        _read_between_two_writes),
    (Op.AFTER, "transitive",   _order_read_by_transitive_after),
    (Op.GROUP, "two-stores",   _group_two_stores),
    (Op.SINK, "two-outputs",   _sink_two_stores),
    (Op.CONTIGUOUS, "of-view", _make_marker_of_view(Op.CONTIGUOUS)),
    (Op.CONTIGUOUS_BACKWARD, "of-view", _make_marker_of_view(Op.CONTIGUOUS_BACKWARD)),
    (Op.DETACH, "of-view",     _make_marker_of_view(Op.DETACH)),
)
# fmt: on


#: Rows whose cases only move values.
_MOVING = frozenset(
    {Op.PARAM, Op.BUFFER, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK, Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD, Op.DETACH}
)


def generate_program_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every program row x dtype."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if (op is Op.BINARY and d is not dt.uint8) or (edge == "bytes" and op is Op.STORE and d is dt.bool_):
                continue
            inputs: Inputs = {}
            graph = make(d, inputs)
            if op in _MOVING:
                put_nans_of_both_signs(inputs)
            yield make_single_cell_case(op, d, edge, graph, inputs)
