"""Machine widths of index values, the second step of instruction selection.

Index values are mathematical integers (R08, index dtype). A kernel computes them in int32 if min_max proves that every one fits,
else in int64. Otherwise it cannot be compiled. Loop counters, named variables and the shapes of Params keep the dtype index. A
counter or variable is cast where its value is used. `lower_index_arithmetic` does that to a kernel of scalars; vectors are built in
their width (`vectors`).
"""

from __future__ import annotations

from collections.abc import Iterable

from uops.compiler.log import log_transform
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UNSET, UOp, toposort
from uops.spec.ir.ops import Op


def lower_index_arithmetic(kernel: UOp) -> UOp:
    """Lower the index arithmetic of a scalar kernel to int32 or int64. Raises CompileError if int64 is too narrow."""
    order = toposort(kernel)
    width = choose_index_dtype(order, kernel)
    done: dict[UOp, UOp] = {}
    values: dict[UOp, UOp] = {}  # index value -> machine integer
    for u in order:
        lowered = done[u] = _rebuild_node_with_integer_indices(u, done, values, width)
        if u.dtype is not _INDEX or u.op not in _COUNTERS:
            values[u] = lowered
    log_transform("widths", kernel, done[kernel], done)
    return done[kernel]


_INDEX = dt.index
#: Nodes of dtype index that stay; their value is cast to a machine integer where it is used.
_COUNTERS = frozenset({Op.CONST, Op.RANGE, Op.PARAM})
_INT32_BOUNDS, _INT64_BOUNDS = (dt.int32.min, dt.int32.max), (dt.int64.min, dt.int64.max)


def choose_index_dtype(nodes: Iterable[UOp], kernel: UOp) -> DType:
    """Return int32 if it holds every index value of a kernel, else int64. A constant that only spells a shape is no value.

    `nodes` are those of the kernel. Raises CompileError for a value that int64 does not hold.
    """
    chosen, (least, most) = dt.int32, _INT32_BOUNDS
    values: set[UOp] | None = None
    for u in nodes:
        if u.dtype is not _INDEX or u.op is Op.STACK:
            continue
        cached = u._min_max
        lo, hi = (u.min_max if cached is UNSET else cached) or (_INDEX.min, _INDEX.max)
        if least <= lo and hi <= most:
            continue
        if u.op is Op.CONST:
            if values is None:
                values = set(toposort(kernel, gate=_is_no_param))
            if u not in values:
                continue
        if not (_INT64_BOUNDS[0] <= lo and hi <= _INT64_BOUNDS[1]):
            detail = f"the value may be anything in [{lo}, {hi}], which int64 does not hold"
            raise untranslatable_error("R08 (index dtype)", u, detail, kernel)
        chosen = dt.int64
    return chosen


def _is_no_param(u: UOp) -> bool:
    return u.op is not Op.PARAM


def as_integer(x: UOp, integer_dtype: DType) -> UOp:
    """Return a number that is cast to index as a machine integer of that width."""
    return UOp(Op.CAST, (x,), CastArg(integer_dtype)) if not x.dtype.is_float else B.cast(B.cast(x, dt.int64), integer_dtype)


def _rebuild_node_with_integer_indices(
    u: UOp, lowered_nodes: dict[UOp, UOp], integer_memo: dict[UOp, UOp], index_dtype: DType
) -> UOp:
    """Rebuild `u` on lowered sources. A source that is a Range, variable or constant is replaced by its value in `index_dtype`."""
    op = u.op
    if op is Op.PARAM or op is Op.CONST:  # the shape of a Param is part of the Param, and stays
        return u
    if op is Op.RANGE:
        bound = u.bound
        if bound.op in (Op.CONST, Op.PARAM):
            return u
        return u.replace(src=(B.cast(_cast_index_source_to_integer(bound, lowered_nodes, integer_memo, index_dtype), dt.int64),))
    if op is Op.END or op is Op.AFTER:
        src = tuple([lowered_nodes[s] for s in u.src])
    else:
        src = tuple(
            [integer_memo.get(s) or _cast_index_source_to_integer(s, lowered_nodes, integer_memo, index_dtype) for s in u.src]
        )
    if op is Op.CAST and u.dtype is _INDEX:
        (operand,) = src
        return as_integer(operand, index_dtype)
    return u if src == u.src else UOp(op, src, u.arg, u.tag)


def _cast_index_source_to_integer(
    source: UOp, lowered_nodes: dict[UOp, UOp], integer_memo: dict[UOp, UOp], index_dtype: DType
) -> UOp:
    """Return a source as a machine integer if it is an index value, memoized in `integer_memo`."""
    integer = integer_memo.get(source)
    if integer is None:
        is_constant = source.op is Op.CONST
        integer = (
            UOp(Op.CONST, (), ConstArg(source.arg.value, index_dtype))
            if is_constant
            else UOp(Op.CAST, (lowered_nodes[source],), CastArg(index_dtype))
        )
        integer_memo[source] = integer
    return integer
