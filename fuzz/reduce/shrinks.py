"""Shrinks: each takes a sample and yields smaller candidates, most promising first.

A candidate may be ill-formed, and need not fail: `uops.fuzz.reduce.reduce` judges it. A shrink that replaces a value by an
input takes the input's data from the interpreter. The rest of the program then computes the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.arrays import STORAGE
from uops.compiler.passes.callify.callify import inline_calls_and_drop_gradient_markers
from uops.fuzz.generate.kinds import ProgramSample, select_graph_inputs
from uops.fuzz.reduce.launch_shrinks import LAUNCH_SHRINKS
from uops.interp import evaluate
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, CONVERSIONS, RESULT_ROOTS, Op

#: A function that yields smaller candidates of a sample.
Shrink = Callable[[ProgramSample], Iterator[ProgramSample]]
#: Ops of leaves.
_LEAVES = frozenset({Op.PARAM, Op.BUFFER, Op.CONST, Op.BINARY})
#: Number of evenly spread subgraphs that are tried in place of a program or of an output.
_SPREAD = 8
#: Ops with extents or offsets among their sources.
_SHAPED = frozenset({Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.PARAM})


def _with(s: ProgramSample, graph: UOp, inputs: Mapping[str, Any] | None = None) -> ProgramSample:
    """Return the sample with another graph, and with the inputs that this graph takes."""
    return s._replace(graph=graph, inputs=select_graph_inputs(graph, s.inputs if inputs is None else inputs))


def list_values(graph: UOp) -> list[UOp]:
    """List the nodes that are values and no leaves, in topological order: small subgraphs come first."""
    return [u for u in toposort(graph) if u.op not in _LEAVES and u.dtype not in (dt.void, dt.index)]


# ----------------------------------------------------------------------------------------------------------------- the graph


#: Maximum number of values in a program for which pairs of values are tried.
_MAX_GRAFT_VALUES = 10


def replace_root_by_evenly_spread_value(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace the root by one of a few evenly spread values, small subgraphs first, so that long programs shrink in few
    questions.
    """
    values = list_values(s.graph)
    step = max(1, -(-len(values) // _SPREAD))
    yield from (_with(s, u) for u in values[step - 1 :: step] if u is not s.graph)


def replace_root_by_value(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace the root by a value, small subgraphs first."""
    for u in list_values(s.graph):
        if u is not s.graph:
            yield _with(s, u)


def keep_or_drop_one_output(s: ProgramSample) -> Iterator[ProgramSample]:
    """Keep one output or one element of a Stack alone, or drop one output."""
    root, is_result = s.graph, s.graph.op in RESULT_ROOTS
    if is_result and len(root.src) > 2:
        yield from (_with(s, root.replace(src=(u,))) for u in root.src)
    stacks = [u for u in (root.src if is_result else (root,)) if u.op is Op.STACK]
    for u in [x for stack in stacks for x in stack.src]:  # its elements
        yield _with(s, root.replace(src=(u,)) if is_result else u)
    if is_result and len(root.src) > 1:
        for k in range(len(root.src)):
            yield _with(s, root.replace(src=(*root.src[:k], *root.src[k + 1 :])))


def replace_output_by_transitive_operand(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace an output by a value that it is computed from, of any dtype and shape."""
    if s.graph.op is Op.TUPLE:
        for k, u in enumerate(s.graph.src):
            for x in list_values(u)[:-1][:_SPREAD]:
                yield _with(s, s.graph.replace(src=(*s.graph.src[:k], x, *s.graph.src[k + 1 :])))


def inline_all_calls(s: ProgramSample) -> Iterator[ProgramSample]:
    """Inline all Functions and Calls."""
    if any(u.op in CALL_LIKE for u in toposort(s.graph)):
        yield _with(s, inline_calls_and_drop_gradient_markers(s.graph))


def _free_slot(s: ProgramSample) -> int:
    """Return a slot that no Param has, Params of bodies included."""
    return 1 + max((u.arg.slot for u in toposort(s.graph) if u.op is Op.PARAM and u.arg.slot is not None), default=-1)


def replace_value_by_param_with_its_data(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a value by an input, large subgraphs first."""
    try:
        values = evaluate(s.graph, s.inputs, check=False)
    except Exception:  # without the interpreter's values there is no candidate
        return
    slot = _free_slot(s)
    for u in reversed(list_values(s.graph)):
        value = values.get(u)
        if u is s.graph or value is None or not all(isinstance(n, int) for n in u.shape):
            continue
        p = b.param(slot, u.shape, u.dtype)
        yield _with(s, substitute(s.graph, {u: p}), {**s.inputs, f"p{slot}": np.asarray(value)})


def replace_function_result_by_identity_on_its_data(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a Function that computes a value by one that returns its argument."""
    calls = [u for u in list_values(s.graph) if u.op is Op.GETTUPLE and u.packed.op is Op.FUNCTION]
    try:
        values = evaluate(s.graph, s.inputs, check=False) if calls else {}
    except Exception:
        return
    for u in calls:
        if u in values and all(isinstance(n, int) for n in u.shape):
            p = b.param(_free_slot(s), u.shape, u.dtype)
            f = b.function(b.tuple_(b.param(0, u.shape, u.dtype)), p)
            yield _with(s, substitute(s.graph, {u: b.get(f, 0)}), {**s.inputs, f"p{p.arg.slot}": np.asarray(values[u])})


def replace_node_by_source_of_same_dtype_and_size(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a node by a source of the same dtype and number of elements; sources of the same shape come first."""
    nodes = [u for u in reversed(toposort(s.graph)) if u.op not in _LEAVES and u.dtype is not dt.void]
    pairs = [(u, x) for u in nodes for x in dict.fromkeys(u.src) if x.dtype is u.dtype]
    for u, x in sorted(pairs, key=lambda p: p[1].shape != p[0].shape):
        if x.shape == u.shape or _element_count(x) == _element_count(u):
            yield _with(s, substitute(s.graph, {u: x}) if u is not s.graph else x)


def replace_value_by_same_dtype_and_rank_operand(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a value by a value below it that has the same dtype and rank."""
    for u in reversed(list_values(s.graph)):
        candidates = [x for x in reversed(toposort(u)[:-1]) if x.dtype is u.dtype and len(x.shape) == len(u.shape)]
        yield from (_with(s, substitute(s.graph, {u: x}) if u is not s.graph else x) for x in candidates[:6])


def _element_count(u: UOp) -> int | None:
    return math.prod(u.shape) if all(isinstance(n, int) for n in u.shape) else None


def replace_value_by_earlier_of_equal_type(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a value by an earlier one of the same dtype and shape, or of one element each."""
    order = [u for u in toposort(s.graph) if u.dtype not in (dt.void, dt.index)]
    for k, u in reversed(list(enumerate(order))):
        if u.op is not Op.CONST and u is not s.graph:
            candidates = [
                x for x in order[:k] if x.dtype is u.dtype and (x.shape == u.shape or _element_count(x) == _element_count(u) == 1)
            ]
            yield from (_with(s, substitute(s.graph, {u: x}), _inherit_input_of_replaced_param(s, u, x)) for x in candidates[:4])


def _inherit_input_of_replaced_param(s: ProgramSample, old_param: UOp, new_param: UOp) -> Mapping[str, Any]:
    """Return the inputs after `new_param` replaces `old_param`. A Param that only a body has takes the data of the other one."""
    if old_param.op is not Op.PARAM or new_param.op is not Op.PARAM:
        return s.inputs
    old_key, new_key = f"p{old_param.arg.slot}", f"p{new_param.arg.slot}"
    return {**s.inputs, new_key: s.inputs[old_key]} if old_key in s.inputs and new_key not in s.inputs else s.inputs


def replace_leaf_by_value_and_make_root(s: ProgramSample) -> Iterator[ProgramSample]:
    """Combine two values of a small program: one replaces a leaf of the other."""
    order = list_values(s.graph)
    for u in order if len(order) <= _MAX_GRAFT_VALUES else ():
        for leaf in (x for x in toposort(u) if x.op is Op.PARAM and x.dtype is not dt.index):
            for v in order:
                if v is not u and _element_count(v) is not None and _element_count(v) == _element_count(leaf):
                    yield _with(s, substitute(u, {leaf: b.reshape(b.cast(v, leaf.dtype), leaf.shape)}))


def compute_index_in_cast_dtype(s: ProgramSample) -> Iterator[ProgramSample]:
    """Compute an index that is cast in the dtype that it is cast to."""
    for u in reversed(list_values(s.graph)):
        index = u.operand if u.op is Op.CAST else u
        if index is not u and index.dtype is dt.index and index.op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.MAX):
            operands = [x.operand if x.op is Op.CAST else x for x in index.src]
            yield _with(s, substitute(s.graph, {u: UOp(index.op, tuple(b.cast(x, u.dtype) for x in operands))}))


def keep_first_value_of_inner_tuples(s: ProgramSample) -> Iterator[ProgramSample]:
    """Keep the first value of a Tuple inside of the program."""
    for u in toposort(s.graph):
        if u.op is Op.TUPLE and len(u.src) > 1 and u is not s.graph:
            yield _with(s, substitute(s.graph, {u: u.replace(src=u.values[:1])}))


def drop_group_effect_or_last_function_argument(s: ProgramSample) -> Iterator[ProgramSample]:
    """Drop one effect of a Group, replace a Group by its only effect, or drop the last argument of a Function."""
    for u in reversed(toposort(s.graph)):
        if u is s.graph:
            continue
        if u.op is Op.GROUP and len(u.effects) == 1:
            (effect,) = u.effects
            yield _with(s, substitute(s.graph, {u: effect}))
        elif u.op is Op.GROUP:
            yield from (_with(s, substitute(s.graph, {u: u.replace(src=(*u.src[:k], *u.src[k + 1 :]))})) for k in range(len(u.src)))
        elif u.op is Op.FUNCTION and u.arguments:
            yield _with(s, substitute(s.graph, {u: u.replace(src=(u.body, *u.arguments[:-1]))}))


def duplicate_operand(s: ProgramSample) -> Iterator[ProgramSample]:
    """Use one operand of a binary node as both operands."""
    for u in reversed(list_values(s.graph)):
        if len(u.src) == 2 and len(set(u.src)) == 2 and len({x.dtype for x in u.src}) == 1:
            for operand in u.src:
                node = UOp(u.op, (operand, operand), u.arg, u.tag)
                yield _with(s, node if u is s.graph else substitute(s.graph, {u: node}))


def replace_buffer_or_reshaped_memory_by_param(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a Buffer by a Param, and a reshaped Buffer or Param by a Param of that shape."""
    slot = _free_slot(s)
    keys = {u: key for key, u in collect_caller_input_nodes(s.graph).items()}
    for u in toposort(s.graph):
        base = u.operand if u.op is Op.RESHAPE else u
        value = s.inputs.get(keys.get(base, ""))
        if value is None or u is s.graph or (base is u and u.op is not Op.BUFFER):
            continue
        if _element_count(u) == np.size(value):  # else an extent is a variable
            p = b.param(slot, u.shape, u.dtype, u.device)
            yield _with(s, substitute(s.graph, {u: p}), {**s.inputs, f"p{slot}": np.asarray(value).reshape(u.shape)})


def replace_memory_by_stored_value(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace memory after a Store by the stored value."""
    for u in reversed(list_values(s.graph)):
        *_, store = u.src if u.op is Op.AFTER else (u,)
        if store.op is Op.STORE and _element_count(u) is not None and _element_count(u) == _element_count(store.value):
            x = b.reshape(b.cast(store.value, u.dtype), u.shape)
            yield _with(s, substitute(s.graph, {u: x}) if u is not s.graph else x)


def replace_root_by_tuple_of_operands(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace the root by the Tuple of its operands. For memory after effects, take the operands of the effects, too."""
    if s.graph.op not in RESULT_ROOTS:
        effects = s.graph.dependencies if s.graph.op is Op.AFTER else ()
        below = (*s.graph.src[: len(s.graph.src) - len(effects)], *(x for e in effects for x in e.src))
        operands = [x for x in dict.fromkeys(below) if x.dtype not in (dt.void, dt.index)]
        if len(operands) > 1:
            yield _with(s, b.tuple_(*operands))


def replace_constant_by_one_or_zero(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a constant by 0, or by 1."""
    for u in toposort(s.graph):
        if u.op is Op.CONST and u.dtype is not dt.index and u.const != 0:
            for v in (0, 1):
                yield _with(s, substitute(s.graph, {u: b.const(v, u.dtype)}))


# ------------------------------------------------------------------------------------------------------------------- extents


def shrink_extents(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace an extent by a smaller one wherever it occurs."""
    extents = sorted({n for u in toposort(s.graph) for n in u.shape if isinstance(n, int) and n > 1}, reverse=True)
    for n in extents:
        for m in sorted({1, 2, n // 2, n - 1} & set(range(1, n))):
            yield from _yield_resizes_if_they_build(s, n, m)


def _yield_resizes_if_they_build(s: ProgramSample, old_extent: int, new_extent: int) -> Iterator[ProgramSample]:
    """Yield two resized samples: the inputs of one keep their first elements, those of the other their last.

    Yield nothing if the shapes no longer fit.
    """
    try:
        yield resize_extent(s, old_extent, new_extent)
        yield resize_extent(s, old_extent, new_extent, keep_last=True)
    except Exception:
        return


def resize_extent(s: ProgramSample, old_extent: int, new_extent: int, keep_last: bool = False) -> ProgramSample:
    """Replace every extent `old_extent` by `new_extent`.

    Inputs keep their first elements, or their last ones. Raises what building raises if the shapes no longer fit.
    """
    part = slice(old_extent - new_extent, old_extent) if keep_last else slice(new_extent)
    order = toposort(s.graph)
    views = {u.operand: u for u in order if u.op is Op.RESHAPE and u.operand.op is Op.BUFFER}
    resized: dict[UOp, UOp] = {}
    inputs = dict(s.inputs)
    for u in order:
        src = tuple(resized[x] for x in u.src)
        if u.op is Op.BUFFER:
            resized[u] = _resize_buffer_and_its_data(u, views.get(u), inputs, old_extent, part)
        elif u.op in _SHAPED:
            resized[u] = _resize_view_or_param(u, src, old_extent, new_extent)
        else:
            resized[u] = u.replace(src=src)
        if u.op is Op.PARAM and f"p{u.arg.slot}" in inputs and u.arg.name is None:
            inputs[f"p{u.arg.slot}"] = _slice_data(inputs[f"p{u.arg.slot}"], old_extent, part)
    return _with(s, resized[s.graph], inputs)


def _resize_buffer_and_its_data(
    u: UOp, reshape_of_buffer: UOp | None, inputs: dict[str, Any], old_extent: int, kept_slice: slice
) -> UOp:
    key, shape = f"b{u.arg.unique}", reshape_of_buffer.shape if reshape_of_buffer is not None else u.shape
    if key in inputs:
        inputs[key] = _slice_data(np.asarray(inputs[key]).reshape(shape), old_extent, kept_slice).reshape(-1)
    m = len(range(old_extent)[kept_slice])
    return b.buffer(math.prod(_resize_dim(k, old_extent, m) for k in shape), u.dtype, u.arg.device, unique=u.arg.unique)


def _resize_view_or_param(u: UOp, src: tuple[UOp, ...], old_extent: int, new_extent: int) -> UOp:
    if u.op is Op.PARAM:
        if u.arg.name is not None:
            return u
        return b.param(u.arg.slot, [_resize_dim(k, old_extent, new_extent) for k in u.shape], u.dtype, u.device)
    shape = [_resize_dim(k, old_extent, new_extent) for k in u.shape]
    x, *_ = src
    if u.op is Op.RESHAPE:
        return b.reshape(x, shape if math.prod(shape) == math.prod(x.shape) else (math.prod(x.shape),))
    if u.op is Op.EXPAND:
        return b.expand(x, shape)
    inner, outer = (x.shape, shape) if u.op is Op.PAD else (shape, x.shape)
    offset = [min(int(o.arg.value), int(k) - int(i)) for o, i, k in zip(u.offsets.src, inner, outer, strict=True)]
    return b.pad(x, offset, shape) if u.op is Op.PAD else b.shrink(x, offset, shape)


def _resize_dim(extent: int, old_extent: int, new_extent: int) -> int:
    return new_extent if extent == old_extent else extent


def _slice_data(a: Any, n: int, kept_slice: slice) -> Any:
    return np.ascontiguousarray(np.asarray(a)[tuple(kept_slice if k == n else slice(None) for k in np.shape(a))])


# ------------------------------------------------------------------------------------------------------------ values, dtypes


def simplify_input_values(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a number by 0 or 1, and an array by zeros or ones; then set halves of an array and ever smaller pieces to zero.

    An array of at most 64 elements is taken apart to single elements, a longer one to eighths.
    """
    for key, value in s.inputs.items():
        if isinstance(value, int):
            yield from (s._replace(inputs={**s.inputs, key: v}) for v in (0, 1) if abs(v) < abs(value))
            continue
        for a in _yield_zeros_ones_and_zeroed_chunks(np.asarray(value)):
            if not _are_bytes_equal(a, value):
                yield s._replace(inputs={**s.inputs, key: a})


def _yield_zeros_ones_and_zeroed_chunks(a: Any) -> Iterator[Any]:
    yield np.zeros_like(a)
    yield np.ones_like(a)
    if a.size > 1:
        flat = a.reshape(-1)
        is_nonzero = nonzero(flat)
        step = a.size // 2
        while step:
            for at in range(0, a.size, step):
                if is_nonzero[at : at + step].any():
                    simpler = flat.copy()
                    simpler[at : at + step] = 0
                    yield simpler.reshape(a.shape)
            step = step // 2 if a.size <= 64 or step > a.size // 8 else 0


def nonzero(a: Any) -> Any:
    """Return a mask of the elements that are not 0; NaN is not, whatever its dtype."""
    with np.errstate(invalid="ignore"):  # a NaN, and a signalling one more so
        return np.asarray(a).astype(bool)


def _are_bytes_equal(x: Any, y: Any) -> bool:
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


#: Dtypes that replace others, simplest first.
_SIMPLE: tuple[DType, ...] = (dt.float32, dt.int32)


def simplify_dtypes(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a dtype by float32 or int32 everywhere, and one of these two by the other if that saves a Cast."""
    dtypes = {u.dtype for u in toposort(s.graph)} - {dt.void, dt.index, dt.bool_}
    for d in sorted(dtypes, key=lambda d: d.name):
        for simple in _SIMPLE:
            if d is not simple and (d.is_float == simple.is_float or d in _SIMPLE):
                yield replace_dtype(s, d, simple)


def replace_dtype(s: ProgramSample, old_dtype: DType, new_dtype: DType) -> ProgramSample:
    """Replace a dtype by another one everywhere."""
    retyped: dict[UOp, UOp] = {}
    inputs = dict(s.inputs)
    for u in toposort(s.graph):
        src = tuple(retyped[x] for x in u.src)
        retyped[u] = u.replace(src=src)
        if u.dtype is not old_dtype:
            continue
        if u.op is Op.CONST:
            retyped[u] = UOp(Op.CONST, (), ConstArg(b.convert_constant(u.arg.value, new_dtype), new_dtype))
        elif u.op in CONVERSIONS:
            retyped[u] = src[0] if src[0].dtype is new_dtype else u.replace(src=src, arg=replace(u.arg, dtype=new_dtype))
        elif u.op is Op.PARAM and u.arg.name is None:
            retyped[u] = b.param(u.arg.slot, u.shape, new_dtype, u.device)
            _retype_input(inputs, f"p{u.arg.slot}", new_dtype)
        elif u.op is Op.BUFFER:
            retyped[u] = b.buffer(u.arg.size, new_dtype, u.arg.device, unique=u.arg.unique)
            _retype_input(inputs, f"b{u.arg.unique}", new_dtype)
    return _with(s, retyped[s.graph], inputs)


def _retype_input(inputs: dict[str, Any], key: str, t: DType) -> None:
    if key in inputs:
        with np.errstate(all="ignore"):
            inputs[key] = np.asarray(inputs[key]).astype(STORAGE[t])


def drop_optops(s: ProgramSample) -> Iterator[ProgramSample]:
    """Drop OptOps of a schedule: all, halves, single ones. A schedule that the oracle draws has none to drop."""
    parts = [p for p in (s.opts or "").split(";") if p.strip()]
    step = len(parts)
    while step:
        for at in range(0, len(parts), step):
            yield s._replace(opts=";".join([*parts[:at], *parts[at + step :]]))
        step //= 2


#: In the order in which they are tried.
SHRINKS: tuple[Shrink, ...] = (
    *LAUNCH_SHRINKS, replace_root_by_evenly_spread_value, keep_or_drop_one_output, replace_output_by_transitive_operand,
    inline_all_calls,
    replace_value_by_param_with_its_data, replace_memory_by_stored_value, replace_root_by_tuple_of_operands,
    replace_function_result_by_identity_on_its_data, replace_node_by_source_of_same_dtype_and_size,
    keep_first_value_of_inner_tuples,
    drop_group_effect_or_last_function_argument, duplicate_operand, replace_value_by_earlier_of_equal_type,
    replace_value_by_same_dtype_and_rank_operand, replace_leaf_by_value_and_make_root, compute_index_in_cast_dtype,
    replace_root_by_value, replace_buffer_or_reshaped_memory_by_param, drop_optops, shrink_extents, simplify_dtypes,
    replace_constant_by_one_or_zero, simplify_input_values,
)  # fmt: skip
