"""What a graph takes, and what a backend must give back for it.

`leaves(graph)` are its inputs by key. A result has an array per value of the root and one per buffer written, of the derived dtypes
and shapes: `fault(graph, inputs, result)` says what is wrong with it, or None. Only the form is judged; the conformance suite
judges the numbers. R08: index values are int64, or Python ints where that does not hold them. R48: extents may depend on variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import BODIED, VIEWS
from uops.spec.result import Result

#: Ops below which not everything has to be evaluated: a body or a Tuple may hold what nobody asks for.
_LAZY = BODIED | {Op.GETTUPLE}
_OBJECT = np.dtype(object)


def fault(graph: UOp, inputs: Mapping[str, Any], result: Result) -> str | None:
    """The first thing wrong with `result` as the answer to `graph` on `inputs`: what was expected and what was got."""
    expected, given = values_of(graph), result.values
    if len(given) != len(expected):
        return f"expected {_count(len(expected))}, got {_count(len(given))}"
    named = {f"value {k}": (u, given[k]) for k, u in enumerate(expected)}
    memory = {k: u for k, u in leaves(graph).items() if not is_variable(u)}
    wanted, got = _written(graph), result.buffers
    if not wanted.keys() <= got.keys() <= memory.keys():
        return f"expected the contents of {_list(wanted or memory)}, got those of {_list(got)}"
    named |= {f"buffer {k}": (memory[k], got[k]) for k in sorted(got)}
    return next((f"{name}: {wrong}" for name, (u, a) in named.items() if (wrong := _mismatch(u, inputs, a))), None)


def values_of(root: UOp) -> tuple[UOp, ...]:
    """The nodes whose values a run of `root` gives, in order."""
    if root.op is Op.FUNCTION:
        return root.src[0].src
    if root.op in (Op.TUPLE, Op.SINK, Op.GROUP):
        return tuple(u for u in root.src if u.dtype is not dt.void)
    return () if root.dtype is dt.void else (root,)


def leaves(root: UOp) -> dict[str, UOp]:
    """What the caller may give: every Buffer, free Param and variable, by key; a body's Params with a slot are bound (R64)."""
    found = [u for u in toposort(root) if u.op is Op.BUFFER or (u.op is Op.PARAM and u.arg.slot is None)]
    seen, stack = {root}, [root]
    while stack:
        u = stack.pop()
        found.append(u)
        for s in u.src[1:] if u.op in BODIED else u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return _by_key(found)


def is_variable(u: UOp) -> bool:
    """Whether a leaf is a named variable, which an int is given for (R48)."""
    return u.op is Op.PARAM and u.arg.name is not None and u.arg.bounds is not None


def _by_key(nodes: Iterable[UOp]) -> dict[str, UOp]:
    found: dict[str, UOp] = {}
    for u in nodes:
        if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL:
            found[f"b{u.arg.unique}"] = u
        elif u.op is Op.PARAM:
            found[u.arg.name if is_variable(u) else f"p{u.arg.slot}"] = u
    return found


def _written(root: UOp) -> dict[str, UOp]:
    """The memory that a run of `root` writes for certain."""
    return _by_key(_base(u) for u in toposort(root, gate=lambda u: u.op not in _LAZY) if u.op is Op.STORE)


def _base(u: UOp) -> UOp:
    """The node whose memory a Store or a view is about."""
    while u.op is Op.STORE or u.op in VIEWS:
        u = u.src[0]
    return u


def _mismatch(u: UOp, inputs: Mapping[str, Any], given: Any) -> str | None:
    a, shape = np.asarray(given), _extents(u, inputs)
    fits = a.dtype == STORAGE[u.dtype] or (u.dtype is dt.index and a.dtype == _OBJECT)
    same = a.ndim == len(shape) and all(lo <= n <= hi for n, (lo, hi) in zip(a.shape, shape, strict=True))
    if fits and same:
        return None
    return f"expected {STORAGE[u.dtype]} of shape {_spelled(shape)}, got {a.dtype} of shape {_spelled((n, n) for n in a.shape)}"


def _extents(u: UOp, inputs: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The least and the greatest value of each extent, under the values of the variables."""
    return tuple(_bounds(n, inputs) for n in u.shape)


def _bounds(n: Dim, inputs: Mapping[str, Any]) -> tuple[int, int]:
    if not isinstance(n, UOp):
        return int(n), int(n)
    names = [v for v in toposort(n) if v.op is Op.PARAM and v.arg.name in inputs]
    lo, hi = substitute(n, {v: b.const(int(inputs[v.arg.name]), v.dtype) for v in names}).min_max or (dt.index.min, dt.index.max)
    return int(max(lo, 0)), int(min(hi, dt.int64.max))


def _spelled(extents: Iterable[tuple[int, int]]) -> str:
    texts = [str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in extents]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _count(n: int) -> str:
    return f"{n} value{'s' * (n != 1)}"


def _list(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)) or "no buffer"
