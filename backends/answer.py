"""The form of a backend's answer: the inputs that a graph takes, and the arrays that a run must return.

`collect_caller_input_nodes(graph)` maps input keys to nodes. A result has one array per value of the root and one per buffer
written, with the derived dtypes and shapes. `find_result_form_mismatch(graph, inputs, result)` describes the first deviation, or
returns None. It checks the form alone; the conformance suite judges the numbers.

R08 (index values): they are int64, or Python ints beyond its range. R48 (variables): extents may depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE, as_array, is_int
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import CALL_LIKE, COUNTERS, Op
from uops.spec.ir.scope import base_memory, root_items, scope_sources
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

#: Ops whose sources need not all be evaluated: a body or a Tuple may hold values that nothing reads.
_LAZY = CALL_LIKE | {Op.GETTUPLE}
_OBJECT = np.dtype(object)


def find_result_form_mismatch(graph: UOp, inputs: Mapping[str, Any], result: Result) -> str | None:
    """Describe the first error in the form of `result` as the answer to `graph` on `inputs`; None if it is well-formed."""
    unnamed: frozenset[UOp] = frozenset()
    if infer_tensor_kernel_or_bestiary_dialect(graph) is Dialect.BESTIARY:
        from uops.compiler.entry import find_unnamed_buffers  # late: only this dialect needs it
        from uops.spec.bestiary.legalize import legalize

        given, graph = graph, legalize(graph)
        unnamed = find_unnamed_buffers(given, graph)  # which are in no result (R120)
    expected, values = nonvoid_root_items(graph), result.values
    if len(values) != len(expected):
        return f"expected {_format_value_count(len(expected))}, got {_format_value_count(len(values))}"
    arrays = {f"value {k}": (u, values[k]) for k, u in enumerate(expected)}
    memory = {k: u for k, u in collect_caller_input_nodes(graph).items() if not is_variable(u) and u not in unnamed}
    required, got = {k: u for k, u in _collect_written_memory(graph).items() if u not in unnamed}, result.buffers
    if not required.keys() <= got.keys() <= memory.keys():
        return f"expected the contents of {_format_keys(required or memory)}, got those of {_format_keys(got)}"
    arrays |= {f"buffer {k}": (memory[k], got[k]) for k in sorted(got)}
    return next(
        (f"{name}: {wrong}" for name, (u, a) in arrays.items() if (wrong := _describe_dtype_or_shape_mismatch(u, inputs, a))), None
    )


def nonvoid_root_items(root: UOp) -> tuple[UOp, ...]:
    """Return the nodes whose values a run of `root` returns, in order."""
    if root.op is Op.FUNCTION:
        return root.body.src
    return tuple(u for u in root_items(root) if u.dtype is not dt.void)


def collect_caller_input_nodes(root: UOp) -> dict[str, UOp]:
    """Return the inputs that a caller may give, by key: Buffers, free Params and variables.

    A body's Params with a slot are bound by its arguments (R64: a body owns its Params), so they are no inputs.
    """
    nodes = [u for u in toposort(root) if u.op is Op.BUFFER or (u.op is Op.PARAM and u.arg.slot is None)]
    seen, stack = {root}, [root]
    while stack:
        u = stack.pop()
        nodes.append(u)
        for s in scope_sources(u):
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return _filter_inputs_and_index_by_key(nodes)


def memory_key(m: UOp) -> str:
    """Return the key of a Buffer or Param: `b<unique>` or `p<slot>`."""
    return f"b{m.arg.unique}" if m.op is Op.BUFFER else f"p{m.arg.slot}"


def is_variable(u: UOp) -> bool:
    """Return True if an input node is a named variable, whose value is an int (R48)."""
    return u.op is Op.PARAM and u.arg.name is not None and u.arg.bounds is not None


def _filter_inputs_and_index_by_key(nodes: Iterable[UOp]) -> dict[str, UOp]:
    by_key: dict[str, UOp] = {}
    for u in nodes:
        if u.op is Op.PARAM or (u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL):
            by_key[u.arg.name if is_variable(u) else memory_key(u)] = u
    return by_key


def _collect_written_memory(root: UOp) -> dict[str, UOp]:
    """Return the memory that every run of `root` writes, by key: of its Stores, and of its Calls if it is a launch."""
    targets = [u.buffer for u in toposort(root, gate=lambda u: u.op not in _LAZY) if u.op is Op.STORE]
    for call in root.src if root.op is Op.LINEAR else ():
        targets += [call.arguments[p.arg.slot] for p in _list_params_every_run_writes(call.body)]
    return _filter_inputs_and_index_by_key(map(base_memory, targets))


def _list_params_every_run_writes(body: UOp) -> list[UOp]:
    """Return the Params of a kernel that it writes whatever its inputs are; none if a loop or block of it may be left out."""
    nodes = toposort(body)
    if any(u.op is Op.IF or (u.op in COUNTERS and (u.bound.min_max or (0,))[0] < 1) for u in nodes):
        return []
    targets = [u.buffer for u in nodes if u.op is Op.STORE and u.gate is None] + [u.index for u in nodes if u.op is Op.ATOMICADD]
    return [m for m in map(base_memory, targets) if m.op is Op.PARAM]


def _describe_dtype_or_shape_mismatch(expected_node: UOp, inputs: Mapping[str, Any], value: Any) -> str | None:
    a, shape = as_array(value), _shape_bounds(expected_node, inputs)
    fits = a.dtype == STORAGE[expected_node.dtype] or (expected_node.dtype is dt.index and a.dtype == _OBJECT)
    same = a.ndim == len(shape) and all(lo <= n <= hi for n, (lo, hi) in zip(a.shape, shape, strict=True))
    if fits and same:
        return _describe_element_that_is_no_int(a) if a.dtype == _OBJECT else None
    got = _format_extents((n, n) for n in a.shape)
    return f"expected {STORAGE[expected_node.dtype]} of shape {_format_extents(shape)}, got {a.dtype} of shape {got}"


def _describe_element_that_is_no_int(a: Any) -> str | None:
    return next((f"expected ints, got {v!r:.80}" for v in a.ravel() if not is_int(v)), None)


def _shape_bounds(u: UOp, inputs: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Return the least and the greatest value of each extent, given the values of the variables."""
    return tuple(_dim_bounds(n, inputs) for n in u.shape)


def _dim_bounds(n: Dim, inputs: Mapping[str, Any]) -> tuple[int, int]:
    if not isinstance(n, UOp):
        return int(n), int(n)
    names = [v for v in toposort(n) if v.op is Op.PARAM and v.arg.name in inputs]
    lo, hi = substitute(n, {v: b.const(int(inputs[v.arg.name]), v.dtype) for v in names}).min_max or (dt.index.min, dt.index.max)
    return int(max(lo, 0)), int(min(hi, dt.int64.max))


def _format_extents(extents: Iterable[tuple[int, int]]) -> str:
    texts = [str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in extents]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _format_value_count(n: int) -> str:
    return f"{n} value{'s' * (n != 1)}"


def _format_keys(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)) or "no buffer"
