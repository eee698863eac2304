"""The rules of *shape*, a tuple of ints and, where symbolic, index expressions (R48, symbolic sizes)."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.derive.dtype import node_selected_by_gettuple
from uops.spec.ir.node import Dim, Rule, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, MARKERS, Op

Shape = tuple[Dim, ...]


def shape_operand_dims(vector: UOp) -> Shape:
    """Return the extents in a shape operand, a Stack of () index values (R40); constants become ints.

    Raises SpecError for another op.
    """
    if (constant := vector.constants_of_stack) is not None:
        return constant
    if vector.op is not Op.STACK:
        raise SpecError(f"a shape operand is a Stack of index values (R40), got {vector.op.name}")
    return tuple(s.arg.value if s.op is Op.CONST else s for s in vector.src)


def index(value: int) -> UOp:
    """Build an index constant from any object that Python accepts as an index; raises SpecTypeError for others."""
    try:
        return index_of_int(operator.index(value))
    except TypeError as e:
        raise SpecTypeError(f"{value!r} is no value of index (R08)") from e


@functools.lru_cache(maxsize=1024, typed=True)
def index_of_int(value: int) -> UOp:
    """Build an index constant from a Python int, without a check."""
    return UOp(Op.CONST, (), ConstArg(value, dt.index))


def dim_node(d: Dim) -> UOp:
    """Return an extent as a node."""
    return d if isinstance(d, UOp) else index(d)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the common shape of right-aligned shapes (R41, operand shapes); raises SpecValueError if there is none.

    On each axis the extents are equal or 1, and 1 with n gives n, also for n = 0.
    """
    if not shapes:
        return ()
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(map(len, shapes))
    out: list[Dim] = [1] * rank
    for s in shapes:
        for k, n in enumerate(s, rank - len(s)):
            if out[k] == 1 and not isinstance(out[k], UOp):
                out[k] = n
            elif n != out[k] and (isinstance(n, UOp) or n != 1):
                raise SpecValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast at axis {k} (R41)")
    return tuple(out)


def add_dims(a: Dim, b: Dim) -> Dim:
    """Return a + b, an index expression if one of them is one."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return a + b
    return a if b == 0 else b if a == 0 else UOp(Op.ADD, (dim_node(a), dim_node(b)))


def scale_dim(a: Dim, n: int) -> Dim:
    """Return a * n."""
    return UOp(Op.MUL, (a, dim_node(n))) if isinstance(a, UOp) else a * n


def divide_dim(a: Dim, n: int) -> Dim:
    """Return a / n for an n that divides a."""
    return UOp(Op.IDIV, (a, dim_node(n))) if isinstance(a, UOp) else a // n


def of_first(u: UOp) -> Shape:
    """Return the shape of the first source, whatever its name."""
    return u.src[0].shape  # the operand, the buffer of a Load or After, the variable of a BIND


def scalar(u: UOp) -> Shape:
    """Return (): a scalar, or an op without a value."""
    return ()


def of_alu(u: UOp) -> Shape:
    """Return the common shape of the sources, which broadcast."""
    shape: Shape = u.src[0].shape  # elements
    for s in u.src:
        other = s.shape
        if other is not shape and other != shape and other:  # () broadcasts to any shape
            if shape:
                return broadcast([s.shape for s in u.src])
            shape = other
    return shape


def of_param(u: UOp) -> Shape:
    """Return the extents that a Param states; () without a source."""
    return shape_operand_dims(u.src[0]) if u.src else ()  # extents


def of_buffer(u: UOp) -> Shape:
    """Return (n * size,) for a Buffer on n devices (R73, n-tuple Buffer)."""
    device = u.arg.device
    return (u.arg.size * (len(device) if isinstance(device, tuple) else 1),)


def of_binary(u: UOp) -> Shape:
    """Return the number of bytes."""
    return (len(u.arg.data),)


def of_permute(u: UOp) -> Shape:
    """Return the operand's extents in the order of the arg."""
    s = u.operand.shape
    return tuple(s[k] for k in u.arg.order)


def of_shape_operand(u: UOp) -> Shape:
    """Return the extents that a Reshape or Expand states."""
    return shape_operand_dims(u.extents)


def of_pad(u: UOp) -> Shape:
    """Return the extents that a Pad or Shrink states."""
    return shape_operand_dims(u.extents)


def of_index(u: UOp) -> Shape:
    """Return the shapes of the positions, then the axes that are not indexed (R45, Index)."""
    positions = u.src[1:]  # positions
    return tuple([n for i in positions for n in i.shape]) + u.src[0].shape[len(positions) :]  # operand


def of_stack(u: UOp) -> Shape:
    """Return the number of elements, then the shape of an element."""
    return (len(u.src), *(u.src[0].shape if u.src else ()))  # elements


def of_collapse(u: UOp) -> Shape:
    """Return the operand's shape with 1 for the axes of the arg; a Reduce over ranges keeps the shape (R42, Reduce shape)."""
    axes = u.arg.axes
    return tuple(1 if k in axes else n for k, n in enumerate(u.operand.shape))


def of_slice(u: UOp) -> Shape:
    """Return the number of elements that a Slice states."""
    return (u.arg.size,)


def of_bitcast(u: UOp) -> Shape:
    """Return the operand's shape, the last axis scaled by the ratio of the item sizes, which are powers of two (R46)."""
    old, new, s = u.operand.dtype.itemsize, u.arg.dtype.itemsize, u.operand.shape
    if old == new or not s:  # a scalar of another size breaks BITCAST.C4
        return s
    return (*s[:-1], scale_dim(s[-1], old // new) if old > new else divide_dim(s[-1], new // old))


def of_tuple_element(u: UOp) -> Shape:
    """Return the shape of the element that a GetTuple selects, in terms of the arguments if a Function returns it."""
    shape = node_selected_by_gettuple(u).shape
    if u.packed.op is not Op.FUNCTION:
        return shape
    arguments = u.packed.arguments
    return tuple(substitute_size_params(n, arguments) if isinstance(n, UOp) else n for n in shape)


def substitute_size_params(size: UOp, arguments: tuple[UOp, ...]) -> Dim:
    """Return a size in the body of a Function with its Params replaced by the arguments."""
    slots = {p: arguments[p.arg.slot] for p in toposort(size) if p.op is Op.PARAM and p.arg.slot is not None}
    bound = substitute(size, slots)
    return bound.arg.value if bound.op is Op.CONST else bound


def of_vector(u: UOp) -> Shape:
    """Return one lane per element of a VECTORIZE."""
    return (len(u.elements), *u.elements[0].shape)


def of_gep(u: UOp) -> Shape:
    """Return () for one lane of a GEP, else their number."""
    return () if len(u.arg.indices) == 1 else (len(u.arg.indices),)


def of_vconst(u: UOp) -> Shape:
    """Return the number of lane constants."""
    return (len(u.arg.values),)


def of_cat(u: UOp) -> Shape:
    """Return the total number of lanes; a scalar is one."""
    return (sum(s.shape[0] if s.shape else 1 for s in u.elements),)


def of_lanes(u: UOp) -> Shape:
    """Return one lane per combination of the axis values of an UNROLL or CONTRACT."""
    return (math.prod(n for _, n in u.arg.axes),)


def of_b_index(u: UOp) -> Shape:
    """Return the shapes of the positions, then the axes that are not indexed; a gate is no position."""
    positions = ungated_positions(u)
    return tuple(n for i in positions for n in i.shape) + u.buffer.shape[len(positions) :]


def ungated_positions(u: UOp) -> tuple[UOp, ...]:
    """Return the positions of a B_INDEX without the gate, which is the last source."""
    return u.positions[: len(u.positions) - u.arg.gated]


def of_b_reduce(u: UOp) -> Shape:
    """Return (): a reduction of ranges gives a scalar, and folds the lanes of a vector (R105)."""
    return ()


def of_b_load(u: UOp) -> Shape:
    """Return the shape of the index of a B_LOAD."""
    return u.index.shape


def of_sized(u: UOp) -> Shape:
    """Return the number of elements that the arg states."""
    return (u.arg.size,)


def of_pointer_index(u: UOp) -> Shape:
    """Return one address per offset."""
    return u.offset.shape


def of_b_buffer(u: UOp) -> Shape:
    """Return (n * size,) for a BUFFER on n devices (R73, n-tuple Buffer)."""
    device = u.device
    return (u.arg.size * (len(device) if isinstance(device, tuple) else 1),)


def of_allreduce(u: UOp) -> Shape:
    """Return the shape of one shard (R110, ALLREDUCE)."""
    return shard_shape(u.operand)


def shard_shape(t: UOp) -> Shape:
    """Return the shape of one device's part of a value: its sharded axis divided by the number of devices."""
    if t.axis is None or not isinstance(t.device, tuple):
        return t.shape
    return tuple(divide_dim(n, len(t.device)) if k == t.axis else n for k, n in enumerate(t.shape))


def of_bufferize(u: UOp) -> Shape:
    """Return the bounds of the ranges that a BUFFERIZE closes."""
    return tuple(r.bound.arg.value if r.bound.op is Op.CONST else r.bound for r in u.ranges)


def of_b_pad(u: UOp) -> Shape:
    """Return the operand's shape with the zeros before and after each axis."""
    return tuple(add_dims(n, b + e) for b, n, e in zip(u.arg.begin, u.operand.shape, u.arg.end, strict=True))


def of_b_shrink(u: UOp) -> Shape:
    """Return end - begin of each axis."""
    return tuple(e - b for b, e in zip(u.arg.begins, u.arg.ends, strict=True))


def of_mstack(u: UOp) -> Shape:
    """Return the shape of the elements joined along axis 0 (R116); () for scalars."""
    s = u.elements[0].shape
    return (scale_dim(s[0], len(u.elements)), *s[1:]) if s else ()


def of_mselect(u: UOp) -> Shape:
    """Return the shape of one shard (R116, MSELECT)."""
    return shard_shape(u.operand)


def of_wmma(u: UOp) -> Shape:
    """Return the shape of a lane's accumulator."""
    return u.accumulator.shape


#: Op -> its rule; no op is without one.
RULES: dict[Op, Rule] = {
    **dict.fromkeys(ALU, of_alu),
    **dict.fromkeys(MARKERS, of_first),
    **dict.fromkeys(
        (Op.CONST, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.STORE, Op.RANGE, Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.BARRIER, Op.INS)
        + (Op.SPECIAL, Op.IF, Op.ENDIF, Op.CUSTOM, Op.ATOMICADD, Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE, Op.B_RANGE)
        + (Op.B_STORE, Op.B_PROGRAM, Op.B_IF, Op.DEFINE_VAR, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE, Op.CUSTOMI),
        scalar,
    ),
    **dict.fromkeys(
        (Op.FLIP, Op.LOAD, Op.AFTER, Op.B_BARRIER, Op.BIND, Op.COPY, Op.MULTI, Op.PRECAST),
        of_first,
    ),
    **dict.fromkeys((Op.B_PARAM, Op.DEFINE_LOCAL, Op.DEFINE_REG, Op.BUFFER_VIEW), of_sized),
    Op.PARAM: of_param,
    Op.BUFFER: of_buffer,
    Op.BINARY: of_binary,
    Op.PROGRAM_BINARY: of_binary,
    Op.PERMUTE: of_permute,
    Op.RESHAPE: of_shape_operand,
    Op.EXPAND: of_shape_operand,
    Op.PAD: of_pad,
    Op.SHRINK: of_pad,
    Op.INDEX: of_index,
    Op.STACK: of_stack,
    Op.REPLICATED: of_collapse,
    Op.REDUCE: of_collapse,
    Op.REDUCE_AXIS: of_collapse,
    Op.SLICE: of_slice,
    Op.BITCAST: of_bitcast,
    Op.GETTUPLE: of_tuple_element,
    Op.WMMA: of_wmma,
    Op.VECTORIZE: of_vector,
    Op.GEP: of_gep,
    Op.VCONST: of_vconst,
    Op.CAT: of_cat,
    Op.PTRCAT: of_cat,
    Op.UNROLL: of_lanes,
    Op.CONTRACT: of_lanes,
    Op.B_INDEX: of_b_index,
    Op.POINTER_INDEX: of_pointer_index,
    Op.B_BUFFER: of_b_buffer,
    Op.ALLREDUCE: of_allreduce,
    Op.B_REDUCE: of_b_reduce,
    Op.B_LOAD: of_b_load,
    Op.BUFFERIZE: of_bufferize,
    Op.B_PAD: of_b_pad,
    Op.B_SHRINK: of_b_shrink,
    Op.MSTACK: of_mstack,
    Op.MSELECT: of_mselect,
}
