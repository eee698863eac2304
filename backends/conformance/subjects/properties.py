"""Cases of the specification: the derived properties, by the values that the interpreter computes and by what the rows say.

Values are those of every node of the suite's programs. Claims about illegal graphs ask the verifier, which must refuse them.
Spec: Derived Properties; R70 to R77, R82 (other ops on devices), R109 (order of axes).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.conformance.subjects.model import Answer, SubjectCase, cell_of_claim, expect, make_check_case
from uops.backends.contract import TENSOR_SURFACE
from uops.compiler.ir.loops import sort_closed_loops_outermost_first
from uops.interp import run
from uops.interp.kernel.structure.blocks import closed_ranges_outermost_first
from uops.spec.bestiary.tables import AXIS_NAMES, PRIORITY
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, COMPARE, Op
from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

_Faults = Iterator[str | None]
_D0, _D1 = "D0", "D1"
_PAIR = (_D0, _D1)
#: Dtypes of cases that do not depend on the dtype.
_FEW = (dt.float32, dt.int8, dt.bool_)
_FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


def _expect_refusal(what: str, build: Callable[[], UOp]) -> str | None:
    """Return a fault unless building or verifying a graph raises SpecError."""
    try:
        u = build()
        verify(u)
    except SpecError:
        return None
    return f"{what}: expected a broken claim, got a legal graph of shape {u.shape}, device {u.device} and axis {u.axis}"


# --------------------------------------------------------------------------------------------------------- values of programs


def _generate_derived_vs_computed_cases(tier: ConformanceTier) -> Iterator[SubjectCase]:
    """Yield a case per program of the suite, about every node of it."""
    for case in generate_cases(tier):
        is_tensor_graph = case.surface == TENSOR_SURFACE and infer_tensor_kernel_or_bestiary_dialect(case.graph) is Dialect.TENSOR
        if is_tensor_graph and (nodes := _list_all_value_nodes_or_root_if_effects(case.graph)):
            yield _make_derived_vs_computed_case(case, nodes)


def _make_derived_vs_computed_case(case: ConformanceCase, nodes: list[UOp]) -> SubjectCase:
    claims = ("PROPERTY.DTYPE.C1", "PROPERTY.SHAPE.C1", "PROPERTY.MIN_MAX.C1")
    dtype, shape, bounds = (cell_of_claim(claim, "values", case.dtype.name) for claim in claims)

    def ask() -> Iterator[Answer]:
        values = run(b.tuple_(*nodes), case.inputs).values
        for u, value in zip(nodes, map(np.asarray, values), strict=True):
            yield Answer(dtype, None if _has_dtype(value, u.dtype) else f"{u.op.name} has {value.dtype}, not {u.dtype}")
            yield Answer(shape, None if _has_shape(value, u) else f"{u.op.name} has {value.shape}, not {u.shape}")
            yield Answer(bounds, None if _is_within(value, u) else f"{u.op.name} leaves {u.min_max}: {value}")

    return SubjectCase(f"values of {case.id}", (dtype, shape, bounds), ask, case.graph, case.inputs)


def _list_all_value_nodes_or_root_if_effects(graph: UOp) -> list[UOp]:
    """Return the nodes with a value whose order no effect decides: all of a graph without effects, else the values of its root."""
    nodes = toposort(graph)
    if any(u.op in (Op.STORE, Op.AFTER, Op.CALL, Op.FUNCTION, Op.RANGE, Op.BUFFER) for u in nodes):
        return [u for u in (graph.src if graph.op is Op.TUPLE else (graph,)) if u.dtype is not dt.void]
    return [u for u in nodes if u.dtype is not dt.void]


def _has_dtype(value: Any, d: DType) -> bool:
    return value.dtype in (np.int64, object) if d is dt.index else bool(value.dtype == STORAGE[d])


def _has_shape(value: Any, u: UOp) -> bool:
    return len(value.shape) == len(u.shape) and all(
        n == m if isinstance(m, int) else m.min_max[0] <= n <= m.min_max[1] for n, m in zip(value.shape, u.shape, strict=True)
    )


def _is_within(value: Any, u: UOp) -> bool:
    """Return True if no element that is not NaN lies outside of the derived bounds."""
    lo, hi = _bounds_of(u)
    with np.errstate(invalid="ignore"):  # NaN payloads
        elements = value.reshape(-1).astype(np.float64) if u.dtype.is_float else value.reshape(-1)
    return all(lo <= x <= hi for x in elements.tolist() if x == x)


def _bounds_of(u: UOp) -> tuple[Any, Any]:
    """Return the derived bounds of a node that has a value."""
    bounds = u.min_max
    assert bounds is not None, u.op
    return bounds


# ----------------------------------------------------------------------------------------------------------------------- dtype


def _derive_dtype_of_alu(d: DType) -> _Faults:
    for op in sorted(ALU, key=lambda op: op.name):
        if op is Op.CAST:
            for to in dt.STORABLE:
                if accepts_dtypes(op, (d,), to):
                    yield expect(f"dtype of a Cast from {d} to {to}", to, UOp(op, (b.param(0, (3,), d),), CastArg(to)).dtype)
        elif accepts_dtypes(op, operand_dtypes(op, d)):
            u = UOp(op, tuple(b.param(k, (3,), x) for k, x in enumerate(operand_dtypes(op, d))))
            yield expect(f"dtype of {op.name} of {d}", dt.bool_ if op in COMPARE else d, u.dtype)


def _derive_void(d: DType) -> _Faults:
    x, memory = b.param(0, (3,), d), b.buffer(3, d, unique=1)
    packed, store, loop = b.tuple_(x), b.store(memory, x), b.range_(3, 0)
    call = b.call(b.sink(b.store(b.at(b.param(0, (3,), d), 0), b.const(1, d)), name="one"), memory)
    kept = b.end(b.store(b.at(memory, loop), b.at(x, loop)), loop)
    for u in (packed, b.function(packed, memory), call, store, kept, b.group(store), b.sink(store), UOp(Op.LINEAR, (call,))):
        yield expect(f"dtype of {u.op.name}", dt.void, u.dtype)


# ----------------------------------------------------------------------------------------------------------------------- shape

_SHAPES = ((), (1,), (4,), (0,), (3, 1), (3, 4), (1, 4), (2, 3, 4), (2, 1, 1), (2, 3), (5, 3, 4))


def _broadcast_shapes(d: DType) -> _Faults:
    for left, right in itertools.product(_SHAPES, repeat=2):
        shapes = f"{left} and {right}"
        operands = b.param(0, left, d), b.param(1, right, d)
        try:
            expected = np.broadcast_shapes(left, right)
        except ValueError:
            yield _expect_refusal(f"CMPNE of shapes {shapes}", lambda operands=operands: b.ne(*operands))  # type: ignore[misc]
            continue
        yield expect(f"shape of CMPNE of {shapes}", expected, b.ne(*operands).shape)
        where = b.where(b.ne(*operands), *operands)
        yield expect(f"shape of WHERE of {shapes}", expected, where.shape)


def _bound_rank(d: DType) -> _Faults:
    most = (1,) * 64
    yield expect("rank of a value of 64 axes", 64, len(b.reshape(b.param(0, (1,), d), most).shape))
    yield _expect_refusal("a Param of 65 axes", lambda: b.param(0, (*most, 1), d))
    yield _expect_refusal("a Reshape to 65 axes", lambda: b.reshape(b.param(0, (1,), d), (*most, 1)))
    yield _expect_refusal("an Expand to 65 axes", lambda: b.expand(b.param(0, most, d), (2, *most)))


# ---------------------------------------------------------------------------------------------------------------------- device


def _make_device_values(d: DType) -> tuple[UOp, UOp, UOp]:
    return b.buffer(4, d, _D0, unique=1), b.buffer(4, d, _D1, unique=2), b.const(1, d)


def _share_device(d: DType) -> _Faults:
    first, second, constant = _make_device_values(d)
    made: tuple[tuple[str, Callable[[UOp, UOp], UOp]], ...] = (
        ("CMPNE", b.ne),
        ("CMPEQ", b.eq),
        ("WHERE", lambda x, y: b.where(b.const(True), x, y)),
    )
    for name, make in made:
        for x, y in ((first, constant), (constant, first), (first, first)):
            yield expect(f"device of {name}", _D0, make(x, y).device)
        yield _expect_refusal(f"{name} of values on two devices", lambda make=make: make(first, second))  # type: ignore[misc]
    yield expect("device of STACK", _D0, b.stack(first, first).device)
    yield _expect_refusal("STACK of values on two devices", lambda: b.stack(first, second))
    yield expect("device of WHERE with a condition on a device", _D0, b.where(b.ne(first, constant), constant, constant).device)


def _change_device_only_by_copy(d: DType) -> _Faults:
    first, _, _ = _make_device_values(d)
    yield expect("device of a Load to another one", _D1, b.copy(first, _D1).device)
    yield expect("device of a Load to two", _PAIR, b.copy(first, _PAIR).device)
    matrix, identity = b.reshape(first, (2, 2)), b.function(b.tuple_(b.param(0, (4,), d)), first)
    for u in (
        matrix, b.permute(matrix, (1, 0)), b.flip(first, (True,)), b.expand(b.reshape(first, (1, 4)), (3, 4)),
        b.pad_by(first, (1, 1)), b.shrink_to(first, 2), b.at(first, 1), b.contiguous(first), b.detach(first),
        b.cast(first, dt.int32), b.ne(first, first), b.after(first, b.store(first, first)), b.load(first), identity,
        b.get(identity, 0),
    ):  # fmt: skip
        yield expect(f"device of {u.op.name} of a value on {_D0}", _D0, u.device)


def _leave_constants_without_device(d: DType) -> _Faults:
    x, y = b.const(93 if d is not dt.bool_ else True, d), b.const(0, d)
    for u in (x, b.expand(x, (3,)), b.ne(x, y), b.stack(x, y)):
        yield expect(f"device of {u.op.name} of constants", None, u.device)


# --------------------------------------------------------------------------------------------------------------------- min_max


def _round_bounds_outward(d: DType) -> _Faults:
    """The exact result of constants lies within the bounds of the op, though it is no value of the dtype."""
    numbers = (0.1, 0.7, -1.3, 3.0, 1e-3, 123.456)
    exact: dict[Op, Callable[[Fraction, Fraction], Fraction]] = {
        Op.ADD: lambda x, y: x + y, Op.SUB: lambda x, y: x - y, Op.MUL: lambda x, y: x * y,
    }  # fmt: skip
    for (op, compute), x, y in itertools.product(exact.items(), numbers, numbers):
        left, right = b.const(x, d), b.const(y, d)
        (lo, hi), result = _bounds_of(UOp(op, (left, right))), compute(Fraction(left.arg.value), Fraction(right.arg.value))
        holds = Fraction(lo) <= result <= Fraction(hi)
        yield None if holds else f"{op.name} of {x} and {y} is {float(result)!r}, which is not in [{lo!r}, {hi!r}]"


def _bound_overflow_by_dtype(d: DType) -> _Faults:
    x, one, whole = b.param(0, (3,), d), b.const(1, d), (d.min, d.max)
    for u in (b.add(x, one), b.sub(x, one), b.mul(x, b.const(2, d)), b.add(b.maximum(x, one), b.const(d.max, d))):
        yield expect(f"bounds of {u.op.name}, which may overflow", whole, u.min_max)
    yield expect("bounds of an addition that cannot overflow", (1, 2), b.add(b.mod(x, b.const(2, d)), one).min_max)


# ------------------------------------------------------------------------------------------------------------------------ axis


def _make_sharded(d: DType, *shape: int) -> UOp:
    """Return a value on two devices, of which each holds a part of axis 0."""
    return b.reshape(b.buffer(math.prod(shape) // 2, d, _PAIR, unique=1), shape)


def _shard_buffer(d: DType) -> _Faults:
    yield expect("axis of a Buffer on two devices", 0, b.buffer(4, d, _PAIR, unique=1).axis)
    yield expect("axis of a Buffer on one device", None, b.buffer(4, d, _D0, unique=1).axis)
    yield expect("elements of a Buffer of 4 on each of two devices", (8,), b.buffer(4, d, _PAIR, unique=1).shape)


def _derive_axis_of_loads(d: DType) -> _Faults:
    one, two = b.reshape(b.buffer(8, d, _D0, unique=1), (2, 4)), _make_sharded(d, 4, 2)
    yield expect("axis of a Load to two devices", 0, b.copy(one, _PAIR).axis)
    yield expect("axis of a Load to one device", None, b.copy(two, _D0).axis)
    yield expect("axis of a Load without a device", 0, b.load(two).axis)


def _keep_device_elements_through_movement(d: DType) -> _Faults:
    """Each device has the same elements before and after a Permute or Reshape."""
    moves: list[UOp] = [b.permute(_make_sharded(d, 4, 3, 2), order) for order in itertools.permutations(range(3))]
    moves += [b.reshape(_make_sharded(d, *old), new) for old, new in (
        ((8,), (2, 4)), ((8,), (4, 2)), ((4, 6), (24,)), ((4, 6), (4, 2, 3)), ((4, 6), (2, 2, 6)), ((2, 6), (1, 2, 6)),
    )]  # fmt: skip
    moves += [b.reshape(b.permute(_make_sharded(d, 4, 6), (1, 0)), new) for new in ((6, 2, 2), (2, 3, 4), (6, 4, 1))]
    for u in moves:
        yield expect(
            f"elements on each device after {u.op.name} to {u.shape}", *_list_elements_per_device_by_buffer_axis_and_own_axis(u)
        )
    across = b.permute(_make_sharded(d, 4, 6), (1, 0))
    yield _expect_refusal("a Reshape that moves elements between devices", lambda: b.reshape(across, (24,)))


def _list_elements_per_device_by_buffer_axis_and_own_axis(u: UOp) -> tuple[list[list[int]], list[list[int]]]:
    """Return which elements of its Buffer each device holds: by the Buffer's axis, and by the axis of `u`."""
    memory = next(x for x in toposort(u) if x.op is Op.BUFFER)
    numbers = np.arange(math.prod(memory.shape))
    value = np.asarray(run(_rebase_moves_on_int32_buffer(u), {"b1": numbers.astype(np.int32)}).values[0])
    before = np.split(numbers, 2)
    after = [] if u.axis is None else np.split(value, 2, axis=u.axis)
    return _sort_elements(before), _sort_elements(after)


def _sort_elements(parts: Iterable[Any]) -> list[list[int]]:
    return [sorted(part.reshape(-1).tolist()) for part in parts]


def _rebase_moves_on_int32_buffer(moved: UOp) -> UOp:
    """Return the same moves of a Buffer of int32, which tells its elements apart."""
    if moved.op is Op.BUFFER:
        return b.buffer(moved.arg.size, dt.int32, _PAIR, unique=1)
    return moved.replace(src=(_rebase_moves_on_int32_buffer(moved.operand), *moved.src[1:]))  # operand, and its extents or order


def _collapse_axis(d: DType) -> _Faults:
    x = _make_sharded(d, 4, 3)
    yield expect("axis after a Reduce over it", None, b.reduce(x, Op.MAX, (0,)).axis)
    yield expect("axis after a Reduce over another", 0, b.reduce(x, Op.MAX, (1,)).axis)
    yield expect("axis after a Replicated over it", None, b.replicated(_make_sharded(d, 2, 3), 0).axis)


def _agree_on_axis(d: DType) -> _Faults:
    rows, columns = _make_sharded(d, 4, 4), b.permute(_make_sharded(d, 4, 4), (1, 0))
    one = b.buffer(4, d, _PAIR, unique=1)
    yield expect("axis of CMPNE of values of one axis", 0, b.ne(rows, rows).axis)
    yield expect("axis of CMPNE with a constant", 1, b.ne(columns, b.const(1, d)).axis)
    vector = b.reshape(b.buffer(2, d, _PAIR, unique=2), (4,))
    yield expect("axis of CMPNE with a vector, right-aligned", 1, b.ne(columns, vector).axis)
    yield expect("axis of WHERE", 0, b.where(b.ne(rows, rows), rows, rows).axis)
    yield _expect_refusal("CMPNE of values of two axes", lambda: b.ne(rows, columns))
    yield expect("axis of a vector", 0, one.axis)


# -------------------------------------------------------------------------------------------------------------------- priority


def _check_loop_pairs_nest_by_priority(axis_type_name: str) -> _Faults:
    """The loops of one End nest by priority, then by id, in the interpreter and in the compiler."""
    yield expect(f"priority of {axis_type_name}", PRIORITY[axis_type_name], AXIS_NAMES[axis_type_name].priority)
    for other, ids in itertools.product(PRIORITY, ((0, 1), (1, 0))):
        loops = [b.range_(2, axis_id, AXIS_NAMES[x]) for x, axis_id in zip((axis_type_name, other), ids, strict=True)]
        expected = [
            r for _, _, r in sorted((PRIORITY[x], r.arg.axis_id, r) for x, r in zip((axis_type_name, other), loops, strict=True))
        ]
        what = f"loops of types {axis_type_name} and {other}, of ids {ids}"
        yield expect(f"{what}, in the interpreter", expected, list(closed_ranges_outermost_first(b.end(b.group(), *loops))))
        yield expect(f"{what}, in the compiler", expected, sort_closed_loops_outermost_first(loops))


# ---------------------------------------------------------------------------------------------------------------------- tables

#: (claim, what is asked, dtypes, the check).
_CHECKS: tuple[tuple[str, str, Iterable[DType], Callable[[DType], _Faults]], ...] = (
    ("PROPERTY.DTYPE.C2", "elementwise", dt.STORABLE, _derive_dtype_of_alu),
    ("PROPERTY.DTYPE.C3", "void", _FEW, _derive_void),
    ("PROPERTY.SHAPE.C2", "broadcast", _FEW, _broadcast_shapes),
    ("PROPERTY.SHAPE.C3", "rank", _FEW, _bound_rank),
    ("PROPERTY.DEVICE.C1", "sources", _FEW, _share_device),
    ("PROPERTY.DEVICE.C2", "changes", _FEW, _change_device_only_by_copy),
    ("PROPERTY.DEVICE.C3", "constants", _FEW, _leave_constants_without_device),
    ("PROPERTY.MIN_MAX.C2", "outward", _FLOATS, _round_bounds_outward),
    ("PROPERTY.MIN_MAX.C2", "overflow", dt.INTS, _bound_overflow_by_dtype),
    ("PROPERTY.AXIS.C1", "buffer", _FEW, _shard_buffer),
    ("PROPERTY.AXIS.C2", "load", _FEW, _derive_axis_of_loads),
    ("PROPERTY.AXIS.C3", "moves", _FEW, _keep_device_elements_through_movement),
    ("PROPERTY.AXIS.C4", "collapse", _FEW, _collapse_axis),
    ("PROPERTY.AXIS.C5", "elementwise", _FEW, _agree_on_axis),
)


def generate_property_cases(tier: ConformanceTier) -> Iterator[SubjectCase]:
    """Yield the cases of the specification."""
    for claim, what, dtypes, check in _CHECKS:
        for d in dtypes:
            yield make_check_case(claim, what, d.name, functools.partial(check, d))
    for k, name in enumerate(PRIORITY, 1):
        yield make_check_case(
            f"TABLE.PRIORITY.C{k}", name.lower(), "void", functools.partial(_check_loop_pairs_nest_by_priority, name)
        )
    yield from _generate_derived_vs_computed_cases(tier)
