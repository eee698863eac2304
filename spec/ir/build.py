"""Builders of well-typed nodes.

Builders convert Python numbers, broadcast shapes, promote dtypes by the lattice of R25 (operand dtypes) and build shape operands.
They raise SpecError if the dtype or shape of the result cannot be derived. `UOp(...)` itself checks nothing;
`uops.spec.verify.verifier` checks a finished graph.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from uops.spec.errors import SpecIndexError, SpecTypeError, SpecValueError
from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.derive.shape import add_dims, broadcast, dim_node
from uops.spec.ir.derive.shape import index as index
from uops.spec.ir.derive.shape import index_of_int as index_of_int
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import SHIFT, Op
from uops.spec.ir.sizes import show_shape

#: An operand of a builder: a node, or a number that becomes a Const.
Value = UOp | bool | int | float
_unique = itertools.count(1)

#: Integers up to this magnitude are exact as a Python float.
_EXACT = 1 << 53
#: The shape operand of the shape (): an empty Stack (R40, shape operands).
SCALAR = UOp(Op.STACK)


def const(value: bool | int | float, dtype: DType | None = None) -> UOp:
    """Build a () constant, converted to `dtype` as Cast does (R15): integers wrap, floats round once.

    Without a dtype, a bool is bool, an int int32 and a float float32 (R25, operand dtypes). Scalars of NumPy and other array
    libraries count as Python's numbers. Raises SpecError for a value that is no number.
    """
    if type(value) not in _NUMBERS:
        value = _to_python_number(value)
    if dtype is None:
        dtype = dt.bool_ if isinstance(value, bool) else dt.int32 if isinstance(value, int) else dt.float32
    return UOp(Op.CONST, (), A.ConstArg(convert_constant(value, dtype), dtype))


_NUMBERS = frozenset({bool, int, float})


def _to_python_number(value: Any) -> bool | int | float:
    """Return the Python number equal to an array library's scalar; raises SpecTypeError for anything else."""
    try:
        number: Any = value.item() if hasattr(value, "item") else value
    except ValueError:  # an array of several elements
        number = None
    if not isinstance(number, (bool, int, float)):
        raise SpecTypeError(f"expected a bool, an int or a float as a constant, got {type(value).__name__}")
    return number


def convert_constant(value: bool | int | float, dtype: DType) -> bool | int | float:
    """Return `value` converted to `dtype` as Cast does (R15); raises SpecError for inf or NaN as an index."""
    if dtype.kind is DTypeKind.BOOL:
        return bool(value != 0)
    if dtype.is_float:
        return round_nearest(dtype, float(value) if -_EXACT <= value <= _EXACT else value)
    if isinstance(value, float):
        if not math.isfinite(value):
            if dtype is dt.index:
                raise SpecValueError(f"expected a finite number as an index, got {value} (R29)")
            return 0 if value != value else int(dtype.max if value > 0 else dtype.min)
        whole = math.trunc(value)
        return whole if dtype is dt.index else int(min(max(whole, dtype.min), dtype.max))
    return int(value) if dtype is dt.index else wrap_to_width(int(value), dtype)


def wrap_to_width(value: int, dtype: DType) -> int:
    """Return `value` modulo 2^bits, in the range of `dtype` (R05, integer overflow)."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind is DTypeKind.INT and value >> (dtype.bits - 1) else value


def shape_vector(dims: Iterable[Dim]) -> UOp:
    """Build a shape operand: the Stack of the extents, which are ints or index nodes (R40)."""
    return UOp(Op.STACK, tuple([dim_node(d) for d in dims]))


def buffer(
    size: int, dtype: DType, device: A.Device = "CPU", addrspace: A.AddrSpace = A.AddrSpace.GLOBAL, unique: int | None = None
) -> UOp:
    """Build a Buffer of `size` elements per device; `unique` defaults to a new identity (R62)."""
    return UOp(Op.BUFFER, (), A.BufferArg(size, dtype, device, addrspace, next(_unique) if unique is None else unique))


def param(slot: int, shape: Iterable[Dim], dtype: DType, device: A.Device | None = None, axis: int | None = None) -> UOp:
    """Build a Param for argument `slot`; `axis` is its sharded axis."""
    return UOp(Op.PARAM, (shape_vector(shape),), A.ParamArg(slot, dtype, device, axis=axis))


def variable(name: str, lo: int, hi: int, slot: int | None = None, dtype: DType = dt.index) -> UOp:
    """Build a named variable with inclusive bounds (R48, symbolic sizes).

    Its value comes from the environment, or from argument `slot` of a Function.
    """
    return UOp(Op.PARAM, (SCALAR,), A.ParamArg(slot, dtype, name=name, bounds=(index(lo).const, index(hi).const)))


def binary(data: bytes) -> UOp:
    """Build a Binary, a vector of raw bytes."""
    return UOp(Op.BINARY, (), A.BinaryArg(data))


# Movement


def permute(t: UOp, order: Iterable[int]) -> UOp:
    """Build a Permute: axis k of the result is axis order[k] of `t`."""
    return _require_typed(UOp(Op.PERMUTE, (t,), A.PermuteArg(tuple(order))))


def flip(t: UOp, flags: Iterable[bool]) -> UOp:
    """Build a Flip: reverse the axes whose flag is true."""
    return _require_typed(UOp(Op.FLIP, (t,), A.FlipArg(tuple(flags))))


def reshape(t: UOp, shape: Sequence[Dim]) -> UOp:
    """Build a Reshape in row-major order; one extent may be -1 and is inferred from the others (R49, listing helpers)."""
    dims = list(shape)
    inferred = [k for k, d in enumerate(dims) if not isinstance(d, UOp) and d == -1]
    if inferred:
        if any(isinstance(d, UOp) for d in (*dims, *t.shape)):
            raise SpecValueError(f"cannot infer -1 in Reshape of {show_shape(t.shape)} to {show_shape(tuple(dims))} (R49)")
        stated = math.prod(d for d in dims if d != -1)
        total = math.prod(t.shape)
        if len(inferred) > 1 or stated == 0 or total % stated:
            raise SpecValueError(f"cannot infer -1 in Reshape of {t.shape} to {tuple(shape)} (R49)")
        dims[inferred[0]] = total // stated
    return _require_typed(UOp(Op.RESHAPE, (t, shape_vector(dims))))


def expand(t: UOp, shape: Iterable[Dim]) -> UOp:
    """Build an Expand: repeat the axes of size 1 to the extents of `shape`."""
    return _require_typed(UOp(Op.EXPAND, (t, shape_vector(shape))))


def pad(t: UOp, offset: Iterable[Dim], shape: Iterable[Dim]) -> UOp:
    """Build a Pad: place `t` at `offset` in zeros of `shape`."""
    return _require_typed(UOp(Op.PAD, (t, shape_vector(offset), shape_vector(shape))))


def pad_by(t: UOp, *before_after: tuple[Dim, Dim]) -> UOp:
    """Build the listings' pad((b, a)): `b` zeros before and `a` after, one pair per axis (R49, listing helpers)."""
    if len(before_after) != len(t.shape):
        raise SpecValueError(f"expected one pair per axis of {show_shape(t.shape)} for Pad, got {len(before_after)} (R49)")
    shape = [add_dims(add_dims(b, n), a) for (b, a), n in zip(before_after, t.shape)]
    return pad(t, [b for b, _ in before_after], shape)


def shrink(t: UOp, offset: Iterable[Dim], shape: Iterable[Dim]) -> UOp:
    """Build a Shrink: the part of `t` that begins at `offset` and has the given shape."""
    return _require_typed(UOp(Op.SHRINK, (t, shape_vector(offset), shape_vector(shape))))


def shrink_to(t: UOp, *shape: Dim) -> UOp:
    """Build the listings' shrink_to(s): a Shrink at offset 0 (R49, listing helpers)."""
    return shrink(t, [0] * len(shape), shape)


def at(t: UOp, *indices: UOp | int) -> UOp:
    """Build an Index of the leading axes; an int becomes an index constant."""
    return _require_typed(UOp(Op.INDEX, (t, *(i if isinstance(i, UOp) else index(i) for i in indices))))


def stack(*elements: UOp) -> UOp:
    """Build a Stack along a new first axis."""
    return _require_typed(UOp(Op.STACK, elements))


def replicated(t: UOp, *axes: int) -> UOp:
    """Build a Replicated: state that `t` is the same along `axes`, which become 1."""
    return _require_typed(UOp(Op.REPLICATED, (t,), A.ReplicatedArg(axes)))


def slice_(t: UOp, offset: int, size: int, dtype: DType | None = None) -> UOp:
    """Build a Slice: a view of `size` elements of `dtype` (default: t's) from element `offset` of the vector `t` on."""
    return _require_typed(UOp(Op.SLICE, (t, index(offset)), A.SliceArg(size, dtype or t.dtype)))


def bitcast(t: UOp, dtype: DType) -> UOp:
    """Build a Bitcast: reinterpret the bytes of `t` as `dtype`."""
    return _require_typed(UOp(Op.BITCAST, (t,), A.BitcastArg(dtype)))


# Elementwise


def cast(t: UOp, dtype: DType) -> UOp:
    """Build a Cast, or return `t` if it already has this dtype."""
    return t if t.dtype is dtype else _require_typed(UOp(Op.CAST, (t,), A.CastArg(dtype)))


def as_node_in_preferred_dtype(value: Value, preferred_dtype: DType | None = None) -> UOp:
    """Return a node for an operand: a number becomes a Const of dtype `preferred_dtype` if that holds its kind, else by R25."""
    if isinstance(value, UOp):
        return value
    if type(value) not in _NUMBERS:
        value = _to_python_number(value)
    if preferred_dtype is not None and (
        preferred_dtype.is_float
        or (isinstance(value, int) and preferred_dtype.kind is not DTypeKind.BOOL)
        or isinstance(value, bool)
    ):
        return const(value, preferred_dtype)
    return const(value)


def build_alu_with_promotion(op: Op, *operands: Value) -> UOp:
    """Build an elementwise node.

    Numbers become constants of the first node's dtype, dtypes are promoted (R25, operand dtypes), shapes broadcast. The count of a
    shift and the condition of a Where take no part in promotion.
    """
    is_where = op is Op.WHERE
    like = next((v.dtype for v in operands[is_where:] if isinstance(v, UOp)), None)
    nodes = [as_node_in_preferred_dtype(v, like if k or not is_where else dt.bool_) for k, v in enumerate(operands)]
    part = slice(is_where, 1 if op in SHIFT else None)
    promoted = nodes[part]
    common = promoted[0].dtype
    for n in promoted[1:]:
        common = common if n.dtype is common else dt.promote(common, n.dtype)
    nodes[part] = [cast(n, common) for n in promoted]
    broadcast([n.shape for n in nodes])
    return _require_typed(UOp(op, tuple(nodes)))


def _unary_builder(op: Op) -> Callable[[Value], UOp]:
    return lambda a: build_alu_with_promotion(op, a)


def _binary_builder(op: Op) -> Callable[[Value, Value], UOp]:
    return lambda a, b: build_alu_with_promotion(op, a, b)


recip, trunc, neg, not_, exp2, log2, sin, sqrt = map(
    _unary_builder, (Op.RECIP, Op.TRUNC, Op.NEG, Op.NOT, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT)
)
add, mul, maximum, mod, idiv, sub, div, pow_ = map(
    _binary_builder, (Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.SUB, Op.DIV, Op.POW)
)
lt, ne, gt, ge, le, eq = map(_binary_builder, (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ))
xor, or_, and_, shr, shl, threefry = map(_binary_builder, (Op.XOR, Op.OR, Op.AND, Op.SHR, Op.SHL, Op.THREEFRY))


def where(p: Value, a: Value, b: Value) -> UOp:
    """Build a Where: `a` where `p` is true, else `b`."""
    return build_alu_with_promotion(Op.WHERE, p, a, b)


def mulacc(a: Value, b: Value, c: Value) -> UOp:
    """Build a Mulacc: a * b + c with one rounding."""
    return build_alu_with_promotion(Op.MULACC, a, b, c)


# Reduce, Call, Load, Store, order


def reduce(t: UOp, op: Op, axes: Iterable[int]) -> UOp:
    """Build a Reduce of `axes`, which become 1; negative axes count from the end.

    Raises SpecIndexError for an axis that `t` does not have.
    """
    rank, axes = len(t.shape), tuple(axes)
    if any(not -rank <= a < rank for a in axes):
        raise SpecIndexError(f"axes {axes} are out of range for {show_shape(t.shape)} [REDUCE.C3]", claim="REDUCE.C3")
    return _require_typed(UOp(Op.REDUCE, (t,), A.ReduceArg(op, tuple(sorted(a % rank for a in axes)))))


def sum_and_drop_axis(t: UOp, axis: int) -> UOp:
    """Build the listings' `.sum(axis)`: a Reduce in t's dtype, then a Reshape that drops the axis (R42, Reduce shape)."""
    total = reduce(t, Op.ADD, (axis,))
    axis %= len(t.shape)
    return reshape(total, t.shape[:axis] + t.shape[axis + 1 :])


def tuple_(*values: UOp) -> UOp:
    """Build a Tuple of values."""
    return UOp(Op.TUPLE, values)


def function(body: UOp, *arguments: UOp, name: str | None = None) -> UOp:
    """Build a Function; a `body` that is no Tuple is wrapped in one."""
    return UOp(Op.FUNCTION, (body if body.op is Op.TUPLE else tuple_(body), *arguments), A.CallArg(name) if name else None)


def call(body: UOp, *arguments: UOp, name: str | None = None, written: tuple[int, ...] | None = None) -> UOp:
    """Build a Call; `written` lists the argument positions that it may write, None means all (R63)."""
    return UOp(Op.CALL, (body, *arguments), A.CallArg(name, written) if name or written is not None else None)


def get(t: UOp, k: int) -> UOp:
    """Build a GetTuple: element `k` of a Tuple, or of the Tuple that a Function returns."""
    return _require_typed(UOp(Op.GETTUPLE, (t,), A.GetTupleArg(k)))


def load(
    buf: UOp,
    alt: UOp | None = None,
    gate: UOp | None = None,
    to_device: A.Device | None = None,
    to_addrspace: A.AddrSpace | None = None,
) -> UOp:
    """Build a Load: a fresh buffer with the contents of `buf`, or `alt` where `gate` is false.

    `alt` and `gate` are given together or not at all (R52, gated accesses); SpecTypeError otherwise.
    """
    if (alt is None) is not (gate is None):
        raise SpecTypeError(f"a Load takes alt and gate together or neither (R52), got only {'gate' if alt is None else 'alt'}")
    optional = () if alt is None or gate is None else (alt, gate)
    return _require_typed(UOp(Op.LOAD, (buf, *optional), A.LoadArg(to_device, to_addrspace)))


def copy(t: UOp, device: A.Device) -> UOp:
    """Build a Load to another device (R53, Copy)."""
    return load(t, to_device=device)


def store(buf: UOp, val: UOp, gate: UOp | None = None) -> UOp:
    """Build a Store of `val` into `buf`, where `gate` is true if given."""
    return UOp(Op.STORE, (buf, val) if gate is None else (buf, val, gate))


def after(buf: UOp, *deps: UOp) -> UOp:
    """Build an After: `buf`, once all `deps` have been executed."""
    return UOp(Op.AFTER, (buf, *deps))


def assign(buf: UOp, val: UOp) -> UOp:
    """Build a Store of `val` and an After: the buffer, once it is stored."""
    return after(buf, store(buf, val))


def group(*effects: UOp) -> UOp:
    """Build a Group of effects without an order."""
    return UOp(Op.GROUP, effects)


def sink(*effects: UOp, name: str | None = None) -> UOp:
    """Build a Sink, the root of effects; with a name, the root of a kernel."""
    return UOp(Op.SINK, effects, A.SinkArg(name) if name else None)


def range_(bound: Dim, axis_id: int, type: AxisType = AxisType.LOOP) -> UOp:
    """Build a Range, a loop variable from 0 to bound - 1."""
    return UOp(Op.RANGE, (dim_node(bound),), A.RangeArg(axis_id, type))


def end(body: UOp, *ranges: UOp) -> UOp:
    """Build an End of `ranges` around `body`, or return `body` if there are none."""
    return UOp(Op.END, (body, *ranges)) if ranges else body


def wrap_in_one_end_per_loop(body: UOp, loops: Sequence[UOp]) -> UOp:
    """Wrap `body` in one End per loop, the first loop outermost."""
    for r in reversed(loops):
        body = UOp(Op.END, (body, r))
    return body


def contiguous(t: UOp) -> UOp:
    """Build a Contiguous: `t`, laid out row-major in memory."""
    return UOp(Op.CONTIGUOUS, (t,))


def detach(t: UOp) -> UOp:
    """Build a Detach: `t`, through which no gradient passes."""
    return UOp(Op.DETACH, (t,))


def _require_typed(u: UOp) -> UOp:
    """Return `u` if its dtype and shape can be derived; raises SpecError otherwise."""
    _ = u.dtype, u.shape
    return u
