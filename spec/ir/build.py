"""Builders: how people and passes make well-formed nodes.

Builders convert Python numbers, broadcast shapes, promote dtypes by the published lattice (R25) and spell shape operands; they
raise SpecError where the result cannot be typed. `UOp(...)` itself checks nothing; `uops.spec.verify.verifier` judges a finished
graph.
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
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import SHIFT, Op
from uops.spec.ir.sizes import show_shape

Value = UOp | bool | int | float
_unique = itertools.count(1)

#: Integers up to here are floats.
_EXACT = 1 << 53
#: The shape `()`: the Stack of nothing (R40).
SCALAR = UOp(Op.STACK)


def const(value: bool | int | float, dtype: DType | None = None) -> UOp:
    """A () constant, converted to `dtype` by Cast's rules (R23): int to int wraps, floats round once.

    Without a dtype a bool is bool, an int int32 and a float float32 (R25). NumPy's numbers count as Python's. Raises SpecError for
    what is no number.
    """
    if type(value) not in _NUMBERS:
        value = _number(value)
    if dtype is None:
        dtype = dt.bool_ if isinstance(value, bool) else dt.int32 if isinstance(value, int) else dt.float32
    return UOp(Op.CONST, (), A.ConstArg(convert(value, dtype), dtype))


_NUMBERS = frozenset({bool, int, float})


def _number(value: Any) -> bool | int | float:
    """The Python number that an array library's scalar is."""
    found: Any = value.item() if hasattr(value, "item") else value
    if not isinstance(found, (bool, int, float)):
        raise SpecTypeError(f"a constant is a bool, an int or a float, got {type(value).__name__}")
    return found


def convert(value: bool | int | float, dtype: DType) -> bool | int | float:
    """`value` in `dtype` by R15."""
    if dtype.kind is Kind.BOOL:
        return bool(value != 0)
    if dtype.is_float:
        return round_nearest(dtype, float(value) if -_EXACT <= value <= _EXACT else value)
    if isinstance(value, float):
        if not math.isfinite(value):
            if dtype is dt.index:
                raise SpecValueError(f"{value} has no integer value (R29)")
            return 0 if value != value else int(dtype.max if value > 0 else dtype.min)
        whole = math.trunc(value)
        return whole if dtype is dt.index else int(min(max(whole, dtype.min), dtype.max))
    return int(value) if dtype is dt.index else wrap(int(value), dtype)


def wrap(value: int, dtype: DType) -> int:
    """`value` modulo 2^bits, in the dtype's range (R05)."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind is Kind.INT and value >> (dtype.bits - 1) else value


def shape_vector(dims: Iterable[Dim]) -> UOp:
    """A shape operand: the Stack of the extents, ints or index nodes (R40)."""
    return UOp(Op.STACK, tuple([dim_node(d) for d in dims]))


def buffer(
    size: int, dtype: DType, device: A.Device = "CPU", addrspace: A.AddrSpace = A.AddrSpace.GLOBAL, unique: int | None = None
) -> UOp:
    """A fresh Buffer of `size` elements per device; `unique` defaults to a new identity (R62)."""
    return UOp(Op.BUFFER, (), A.BufferArg(size, dtype, device, addrspace, next(_unique) if unique is None else unique))


def param(slot: int, shape: Iterable[Dim], dtype: DType, device: A.Device | None = None, axis: int | None = None) -> UOp:
    """Placeholder for argument `slot`."""
    return UOp(Op.PARAM, (shape_vector(shape),), A.ParamArg(slot, dtype, device, axis=axis))


def variable(name: str, lo: int, hi: int, slot: int | None = None, dtype: DType = dt.index) -> UOp:
    """A named variable with inclusive bounds; bound by the environment, or by argument `slot` of a Function (R48)."""
    return UOp(Op.PARAM, (SCALAR,), A.ParamArg(slot, dtype, name=name, bounds=(index(lo).const, index(hi).const)))


def binary(data: bytes) -> UOp:
    return UOp(Op.BINARY, (), A.BinaryArg(data))


# Movement


def permute(t: UOp, order: Iterable[int]) -> UOp:
    return _typed(UOp(Op.PERMUTE, (t,), A.PermuteArg(tuple(order))))


def flip(t: UOp, flags: Iterable[bool]) -> UOp:
    return _typed(UOp(Op.FLIP, (t,), A.FlipArg(tuple(flags))))


def reshape(t: UOp, shape: Sequence[Dim]) -> UOp:
    """Row-major reinterpretation; one extent may be -1, inferred from the others (R49)."""
    dims = list(shape)
    holes = [k for k, d in enumerate(dims) if not isinstance(d, UOp) and d == -1]
    if holes:
        if any(isinstance(d, UOp) for d in (*dims, *t.shape)):
            raise SpecValueError(f"cannot infer -1 in Reshape of {show_shape(t.shape)} to {show_shape(tuple(dims))} (R49)")
        known = math.prod(d for d in dims if d != -1)
        total = math.prod(t.shape)
        if len(holes) > 1 or known == 0 or total % known:
            raise SpecValueError(f"cannot infer -1 in Reshape of {t.shape} to {tuple(shape)} (R49)")
        dims[holes[0]] = total // known
    return _typed(UOp(Op.RESHAPE, (t, shape_vector(dims))))


def expand(t: UOp, shape: Iterable[Dim]) -> UOp:
    return _typed(UOp(Op.EXPAND, (t, shape_vector(shape))))


def pad(t: UOp, offset: Iterable[Dim], shape: Iterable[Dim]) -> UOp:
    """`t` at `offset` in zeros of `shape`."""
    return _typed(UOp(Op.PAD, (t, shape_vector(offset), shape_vector(shape))))


def pad_by(t: UOp, *before_after: tuple[Dim, Dim]) -> UOp:
    """The listings' pad((b, a)): o = b, s' = b + s + a, one pair per axis (R49)."""
    if len(before_after) != len(t.shape):
        raise SpecValueError(f"{len(before_after)} pairs for Pad of {show_shape(t.shape)} (R49)")
    shape = [add_dims(add_dims(b, n), a) for (b, a), n in zip(before_after, t.shape)]
    return pad(t, [b for b, _ in before_after], shape)


def shrink(t: UOp, offset: Iterable[Dim], shape: Iterable[Dim]) -> UOp:
    return _typed(UOp(Op.SHRINK, (t, shape_vector(offset), shape_vector(shape))))


def shrink_to(t: UOp, *shape: Dim) -> UOp:
    """The listings' shrink_to(s): Shrink at offset 0 (R49)."""
    return shrink(t, [0] * len(shape), shape)


def at(t: UOp, *indices: UOp | int) -> UOp:
    """Index from the left; an int is an index constant."""
    return _typed(UOp(Op.INDEX, (t, *(i if isinstance(i, UOp) else index(i) for i in indices))))


def stack(*sources: UOp) -> UOp:
    return _typed(UOp(Op.STACK, sources))


def replicated(t: UOp, *axes: int) -> UOp:
    return _typed(UOp(Op.REPLICATED, (t,), A.ReplicatedArg(axes)))


def slice_(t: UOp, offset: int, size: int, dtype: DType | None = None) -> UOp:
    """`size` elements of `dtype` (default: t's) from element `offset` of the 1-D `t`, without a copy."""
    return _typed(UOp(Op.SLICE, (t, index(offset)), A.SliceArg(size, dtype or t.dtype)))


def bitcast(t: UOp, dtype: DType) -> UOp:
    return _typed(UOp(Op.BITCAST, (t,), A.BitcastArg(dtype)))


# Elementwise


def cast(t: UOp, dtype: DType) -> UOp:
    """`t` in `dtype`; `t` itself when it has it."""
    return t if t.dtype is dtype else _typed(UOp(Op.CAST, (t,), A.CastArg(dtype)))


def as_node(v: Value, like: DType | None = None) -> UOp:
    """A node for a Python number: in `like` where that holds the number's kind, else by R25."""
    if isinstance(v, UOp):
        return v
    if like is not None and (like.is_float or (isinstance(v, int) and like.kind is not Kind.BOOL) or isinstance(v, bool)):
        return const(v, like)
    return const(v)


def alu(op: Op, *operands: Value) -> UOp:
    """An elementwise node: numbers become constants beside the first node's dtype, dtypes are promoted (R25), shapes broadcast.

    The second operand of a shift keeps its dtype. `Where`'s condition takes no part in promotion.
    """
    like = next((v.dtype for v in operands[op is Op.WHERE :] if isinstance(v, UOp)), None)
    nodes = [as_node(v, like if k or op is not Op.WHERE else dt.bool_) for k, v in enumerate(operands)]
    free = {Op.WHERE: 1}.get(op, 0)
    mixed = nodes[free:] if op not in SHIFT else nodes[:1]
    common = mixed[0].dtype
    for n in mixed[1:]:
        common = common if n.dtype is common else dt.promote(common, n.dtype)
    nodes = [cast(n, common) if n in mixed else n for n in nodes]
    broadcast([n.shape for n in nodes])
    return _typed(UOp(op, tuple(nodes)))


def _unary(op: Op) -> Callable[[Value], UOp]:
    return lambda a: alu(op, a)


def _binary(op: Op) -> Callable[[Value, Value], UOp]:
    return lambda a, b: alu(op, a, b)


recip, trunc, neg, not_, exp2, log2, sin, sqrt = map(
    _unary, (Op.RECIP, Op.TRUNC, Op.NEG, Op.NOT, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT)
)
add, mul, maximum, mod, idiv, sub, div, pow_ = map(_binary, (Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.SUB, Op.DIV, Op.POW))
lt, ne, gt, ge, le, eq = map(_binary, (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ))
xor, or_, and_, shr, shl, threefry = map(_binary, (Op.XOR, Op.OR, Op.AND, Op.SHR, Op.SHL, Op.THREEFRY))


def where(p: Value, a: Value, b: Value) -> UOp:
    return alu(Op.WHERE, p, a, b)


def mulacc(a: Value, b: Value, c: Value) -> UOp:
    """a * b + c with one rounding."""
    return alu(Op.MULACC, a, b, c)


# Reduce, Call, Load, Store, order


def reduce(t: UOp, op: Op, axes: Iterable[int]) -> UOp:
    """Reduce `axes` to size 1; negative axes count from the end."""
    rank, given = len(t.shape), tuple(axes)
    if any(not -rank <= a < rank for a in given):
        raise SpecIndexError(f"axes {given} of {show_shape(t.shape)} [REDUCE.C3]", claim="REDUCE.C3")
    return _typed(UOp(Op.REDUCE, (t,), A.ReduceArg(op, tuple(sorted(a % rank for a in given)))))


def sum_(t: UOp, axis: int) -> UOp:
    """The listings' `.sum(axis)`: Reduce in T's dtype, then Reshape without the axis (R42)."""
    total = reduce(t, Op.ADD, (axis,))
    axis %= len(t.shape)
    return reshape(total, t.shape[:axis] + t.shape[axis + 1 :])


def tuple_(*values: UOp) -> UOp:
    return UOp(Op.TUPLE, values)


def function(body: UOp, *arguments: UOp, name: str | None = None) -> UOp:
    """A Function node; `body` is a Tuple (a single value is wrapped)."""
    return UOp(Op.FUNCTION, (body if body.op is Op.TUPLE else tuple_(body), *arguments), A.CallArg(name) if name else None)


def call(body: UOp, *arguments: UOp, name: str | None = None, written: tuple[int, ...] | None = None) -> UOp:
    return UOp(Op.CALL, (body, *arguments), A.CallArg(name, written) if name or written is not None else None)


def get(t: UOp, k: int) -> UOp:
    return _typed(UOp(Op.GETTUPLE, (t,), A.GetTupleArg(k)))


def load(
    buf: UOp, alt: UOp | None = None, gate: UOp | None = None, device: A.Device | None = None, addrspace: A.AddrSpace | None = None
) -> UOp:
    """A fresh anonymous buffer with the contents of `buf`; `alt` and `gate` come together (R52)."""
    extra = () if alt is None or gate is None else (alt, gate)
    return _typed(UOp(Op.LOAD, (buf, *extra), A.LoadArg(device, addrspace)))


def copy(t: UOp, device: A.Device) -> UOp:
    """Load to another device (R53)."""
    return load(t, device=device)


def store(buf: UOp, val: UOp, gate: UOp | None = None) -> UOp:
    return UOp(Op.STORE, (buf, val) if gate is None else (buf, val, gate))


def after(buf: UOp, *deps: UOp) -> UOp:
    return UOp(Op.AFTER, (buf, *deps))


def assign(buf: UOp, val: UOp) -> UOp:
    """Store, then the buffer with an ordering dependency on it."""
    return after(buf, store(buf, val))


def group(*nodes: UOp) -> UOp:
    return UOp(Op.GROUP, nodes)


def sink(*nodes: UOp, name: str | None = None) -> UOp:
    return UOp(Op.SINK, nodes, A.SinkArg(name) if name else None)


def range_(bound: Dim, axis_id: int, type: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Op.RANGE, (dim_node(bound),), A.RangeArg(axis_id, type))


def end(body: UOp, *ranges: UOp) -> UOp:
    return UOp(Op.END, (body, *ranges)) if ranges else body


def nested(body: UOp, loops: Sequence[UOp]) -> UOp:
    """The body in an End for each loop, the first loop outermost."""
    for r in reversed(loops):
        body = UOp(Op.END, (body, r))
    return body


def contiguous(t: UOp) -> UOp:
    return UOp(Op.CONTIGUOUS, (t,))


def detach(t: UOp) -> UOp:
    return UOp(Op.DETACH, (t,))


def _typed(u: UOp) -> UOp:
    """`u`, after its dtype and shape were derived without error."""
    _ = u.dtype, u.shape
    return u
