"""Rule column *shape*: a tuple of ints and, where symbolic, index expressions (R48)."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.derive.dtype import tuple_element
from uops.spec.ir.node import Dim, Rule, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, MARKERS, Op

Shape = tuple[Dim, ...]


def dims_of(vector: UOp) -> Shape:
    """The extents that a shape operand spells: a Stack of () index values (R40); constants become ints."""
    if (constant := vector.spelt) is not None:
        return constant
    if vector.op is not Op.STACK:
        raise SpecError(f"a shape operand is a Stack of index values (R40), got {vector.op.name}")
    return tuple(s.arg.value if s.op is Op.CONST else s for s in vector.src)


@functools.lru_cache(maxsize=1024, typed=True)
def index(value: int) -> UOp:
    """An index constant, of anything that Python takes for an index. Raises SpecError."""
    try:
        whole = operator.index(value)
    except TypeError as e:
        raise SpecTypeError(f"{value!r} is no value of index (R08)") from e
    return UOp(Op.CONST, (), ConstArg(whole, dt.index))


def dim_node(d: Dim) -> UOp:
    """A shape entry as a node."""
    return d if isinstance(d, UOp) else index(d)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Right-align; each axis equal or 1, and 1 with n gives n, also for n = 0 (R41). Raises SpecError."""
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
    """a + b, an index expression where one of them is."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return a + b
    return a if b == 0 else b if a == 0 else UOp(Op.ADD, (dim_node(a), dim_node(b)))


def scale_dim(a: Dim, n: int) -> Dim:
    """a * n."""
    return UOp(Op.MUL, (a, dim_node(n))) if isinstance(a, UOp) else a * n


def part_of_dim(a: Dim, n: int) -> Dim:
    """a / n, where n divides a."""
    return UOp(Op.IDIV, (a, dim_node(n))) if isinstance(a, UOp) else a // n


def elements(shape: Shape) -> int:
    """Number of elements of a constant shape."""
    return math.prod(shape)


def of_first(u: UOp) -> Shape:
    return u.src[0].shape


def scalar(u: UOp) -> Shape:
    return ()


def of_alu(u: UOp) -> Shape:
    shape: Shape = u.src[0].shape
    for s in u.src[1:]:
        own = s.shape
        if own != shape and own:  # () is that of any other
            if shape:
                return broadcast([s.shape for s in u.src])
            shape = own
    return shape


def of_param(u: UOp) -> Shape:
    return dims_of(u.src[0]) if u.src else ()


def of_buffer(u: UOp) -> Shape:
    device = u.arg.device
    return (u.arg.size * (len(device) if isinstance(device, tuple) else 1),)


def of_binary(u: UOp) -> Shape:
    return (len(u.arg.data),)


def of_permute(u: UOp) -> Shape:
    s = u.src[0].shape
    return tuple(s[k] for k in u.arg.order)


def of_shape_operand(u: UOp) -> Shape:
    """Reshape and Expand: the second source spells the shape."""
    return dims_of(u.src[1])


def of_pad(u: UOp) -> Shape:
    """Pad and Shrink: sources are T, offsets, shape."""
    return dims_of(u.src[2])


def of_index(u: UOp) -> Shape:
    indices = u.src[1:]
    return tuple(n for i in indices for n in i.shape) + u.src[0].shape[len(indices) :]


def of_stack(u: UOp) -> Shape:
    return (len(u.src), *(u.src[0].shape if u.src else ()))


def of_collapse(u: UOp) -> Shape:
    """Reduce and Replicated: the axes of arg become 1; a Reduce over ranges keeps the shape (R42)."""
    axes = u.arg.axes
    return tuple(1 if k in axes else n for k, n in enumerate(u.src[0].shape))


def of_slice(u: UOp) -> Shape:
    return (u.arg.size,)


def of_bitcast(u: UOp) -> Shape:
    """A different item size scales the last axis (R46). Item sizes are powers of two."""
    old, new, s = u.src[0].dtype.itemsize, u.arg.dtype.itemsize, u.src[0].shape
    if old == new or not s:  # BITCAST.C4 refuses a scalar of another size
        return s
    return (*s[:-1], scale_dim(s[-1], old // new) if old > new else part_of_dim(s[-1], new // old))


def of_tuple_element(u: UOp) -> Shape:
    """The element's shape; of a Function, with the arguments put for the Params that its sizes name."""
    shape = tuple_element(u).shape
    if u.src[0].op is not Op.FUNCTION:
        return shape
    args = u.src[0].src[1:]
    return tuple(bind_size(n, args) if isinstance(n, UOp) else n for n in shape)


def bind_size(size: UOp, args: tuple[UOp, ...]) -> Dim:
    """A size in the body of a Function, with the arguments put for the Params that it names."""
    slots = {p: args[p.arg.slot] for p in toposort(size) if p.op is Op.PARAM and p.arg.slot is not None}
    bound = substitute(size, slots)
    return bound.arg.value if bound.op is Op.CONST else bound


def of_vector(u: UOp) -> Shape:
    """VECTORIZE: one lane per source."""
    return (len(u.src), *u.src[0].shape)


def of_gep(u: UOp) -> Shape:
    return () if len(u.arg.indices) == 1 else (len(u.arg.indices),)


def of_vconst(u: UOp) -> Shape:
    return (len(u.arg.values),)


def of_cat(u: UOp) -> Shape:
    return (sum(s.shape[0] if s.shape else 1 for s in u.src),)


def of_lanes(u: UOp) -> Shape:
    """UNROLL and CONTRACT: one lane per combination of the axis values."""
    return (math.prod(n for _, n in u.arg.axes),)


def of_b_index(u: UOp) -> Shape:
    indices = u.src[1 : len(u.src) - u.arg.gated]
    return tuple(n for i in indices for n in i.shape) + u.src[0].shape[len(indices) :]


def of_b_reduce(u: UOp) -> Shape:
    """Range reduction gives a scalar; a wider vector folds its lanes (R105)."""
    return ()


def of_b_load(u: UOp) -> Shape:
    return u.src[1].shape


def of_sized(u: UOp) -> Shape:
    return (u.arg.size,)


def of_pointer_index(u: UOp) -> Shape:
    """One address per offset."""
    return u.src[1].shape


def of_b_buffer(u: UOp) -> Shape:
    """As Buffer: the whole of an n-tuple (R73)."""
    device = u.device
    return (u.arg.size * (len(device) if isinstance(device, tuple) else 1),)


def of_allreduce(u: UOp) -> Shape:
    """The shape of one shard (R110)."""
    source = u.src[0]
    devices, axis = source.device, source.axis
    if axis is None or not isinstance(devices, tuple):
        return source.shape
    return tuple(part_of_dim(n, len(devices)) if k == axis else n for k, n in enumerate(source.shape))


def of_bufferize(u: UOp) -> Shape:
    return tuple(r.src[0].arg.value if r.src[0].op is Op.CONST else r.src[0] for r in u.src[1:])


def of_b_pad(u: UOp) -> Shape:
    return tuple(add_dims(n, b + e) for b, n, e in zip(u.arg.begin, u.src[0].shape, u.arg.end, strict=True))


def of_b_shrink(u: UOp) -> Shape:
    return tuple(e - b for b, e in zip(u.arg.begins, u.arg.ends, strict=True))


def of_mstack(u: UOp) -> Shape:
    """Shards along axis 0, as an n-tuple Buffer (R73)."""
    s = u.src[0].shape
    return (scale_dim(s[0], len(u.src)), *s[1:]) if s else ()


def of_mselect(u: UOp) -> Shape:
    """One device's shard of a value sharded on axis 0."""
    source = u.src[0]
    s, device = source.shape, source.device
    if source.axis is None or not isinstance(device, tuple):
        return s
    return tuple(part_of_dim(n, len(device)) if k == source.axis else n for k, n in enumerate(s))


def of_wmma(u: UOp) -> Shape:
    return u.src[2].shape


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
