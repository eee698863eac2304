"""Smaller programs: each shrink takes a sample and gives candidates, most promising first.

A candidate need not be well-formed, nor fail: `uops.fuzz.reduce.reduce` judges. Shrinks that replace a value by an input give that
input the value that the interpreter had there, so that what stands above still meets the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.answer import leaves
from uops.backends.arrays import STORAGE
from uops.compiler.passes.callify.callify import resolve
from uops.fuzz.generate.kinds import Sample, taken
from uops.fuzz.reduce.launch_shrinks import LAUNCH_SHRINKS
from uops.interp import evaluate
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op

Shrink = Callable[[Sample], Iterator[Sample]]
#: Ops that are leaves already, or have no value of their own.
_LEAVES = frozenset({Op.PARAM, Op.BUFFER, Op.CONST, Op.BINARY})
_ROOTS = frozenset({Op.TUPLE, Op.SINK, Op.GROUP})
#: Cones of a program, or of an output, that are asked about at once.
_SPREAD = 8
#: Ops whose second and later sources are shapes and offsets.
_SHAPED = frozenset({Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.PARAM})


def _with(s: Sample, graph: UOp, inputs: Mapping[str, Any] | None = None) -> Sample:
    """The sample with another graph, and of its inputs those that the graph still takes."""
    return s._replace(graph=graph, inputs=taken(graph, s.inputs if inputs is None else inputs))


def values(graph: UOp) -> list[UOp]:
    """The nodes that have a value of their own and are no leaves, small cones first."""
    return [u for u in toposort(graph) if u.op not in _LEAVES and u.dtype not in (dt.void, dt.index)]


# ----------------------------------------------------------------------------------------------------------------- the graph


#: Values of a program of which any two are tried alone.
_GRAFTED = 10


def some_roots(s: Sample) -> Iterator[Sample]:
    """A node in place of the whole, of a few that are spread evenly, small cones first: long programs lose their end in few
    questions."""
    found = values(s.graph)
    step = max(1, -(-len(found) // _SPREAD))
    yield from (_with(s, u) for u in found[step - 1 :: step] if u is not s.graph)


def roots(s: Sample) -> Iterator[Sample]:
    """A node in place of the whole: the smallest cone that fails."""
    for u in values(s.graph):
        if u is not s.graph:
            yield _with(s, u)


def fewer_outputs(s: Sample) -> Iterator[Sample]:
    """One output less, or one alone."""
    if s.graph.op in _ROOTS and len(s.graph.src) > 1:
        for k in range(len(s.graph.src)):
            yield _with(s, s.graph.replace(src=(*s.graph.src[:k], *s.graph.src[k + 1 :])))


def lower_outputs(s: Sample) -> Iterator[Sample]:
    """What an output is made of in its place, whatever its dtype and shape."""
    if s.graph.op is Op.TUPLE:
        for k, u in enumerate(s.graph.src):
            for x in values(u)[:-1][:_SPREAD]:
                yield _with(s, s.graph.replace(src=(*s.graph.src[:k], x, *s.graph.src[k + 1 :])))


def inlined(s: Sample) -> Iterator[Sample]:
    """Without Functions and Calls."""
    if any(u.op in (Op.FUNCTION, Op.CALL) for u in toposort(s.graph)):
        yield _with(s, resolve(s.graph))


def _free_slot(s: Sample) -> int:
    """A slot that no Param has, bound ones included."""
    return 1 + max((u.arg.slot for u in toposort(s.graph) if u.op is Op.PARAM and u.arg.slot is not None), default=-1)


def cuts(s: Sample) -> Iterator[Sample]:
    """An input in place of a value, the largest cones first."""
    try:
        known = evaluate(s.graph, s.inputs, check=False)
    except Exception:  # a program that the interpreter refuses is cut elsewhere
        return
    slot = _free_slot(s)
    for u in reversed(values(s.graph)):
        value = known.get(u)
        if u is s.graph or value is None or not all(isinstance(n, int) for n in u.shape):
            continue
        p = b.param(slot, u.shape, u.dtype)
        yield _with(s, substitute(s.graph, {u: p}), {**s.inputs, f"p{slot}": np.asarray(value)})


def identities(s: Sample) -> Iterator[Sample]:
    """A Function that gives what it gets in place of one that computes it."""
    calls = [u for u in values(s.graph) if u.op is Op.GETTUPLE and u.src[0].op is Op.FUNCTION]
    try:
        known = evaluate(s.graph, s.inputs, check=False) if calls else {}
    except Exception:
        return
    for u in calls:
        if u in known and all(isinstance(n, int) for n in u.shape):
            p = b.param(_free_slot(s), u.shape, u.dtype)
            f = b.function(b.tuple_(b.param(0, u.shape, u.dtype)), p)
            yield _with(s, substitute(s.graph, {u: b.get(f, 0)}), {**s.inputs, f"p{p.arg.slot}": np.asarray(known[u])})


def splices(s: Sample) -> Iterator[Sample]:
    """A source in place of a node of the same dtype and as many elements; first where the shapes are the same, too."""
    nodes = [u for u in reversed(toposort(s.graph)) if u.op not in _LEAVES and u.dtype is not dt.void]
    pairs = [(u, x) for u in nodes for x in dict.fromkeys(u.src) if x.dtype is u.dtype]
    for u, x in sorted(pairs, key=lambda p: p[1].shape != p[0].shape):
        if x.shape == u.shape or _elements(x) == _elements(u):
            yield _with(s, substitute(s.graph, {u: x}) if u is not s.graph else x)


def descended(s: Sample) -> Iterator[Sample]:
    """What is somewhere below a value in its place, of the same dtype and rank."""
    for u in reversed(values(s.graph)):
        fits = [x for x in reversed(toposort(u)[:-1]) if x.dtype is u.dtype and len(x.shape) == len(u.shape)]
        yield from (_with(s, substitute(s.graph, {u: x}) if u is not s.graph else x) for x in fits[:6])


def _elements(u: UOp) -> int | None:
    return math.prod(u.shape) if all(isinstance(n, int) for n in u.shape) else None


def shared(s: Sample) -> Iterator[Sample]:
    """A value that is there anyway in place of another one of the same dtype and shape, or of one element both."""
    order = [u for u in toposort(s.graph) if u.dtype not in (dt.void, dt.index)]
    for k, u in reversed(list(enumerate(order))):
        if u.op is not Op.CONST and u is not s.graph:
            same = [x for x in order[:k] if x.dtype is u.dtype and (x.shape == u.shape or _elements(x) == _elements(u) == 1)]
            yield from (_with(s, substitute(s.graph, {u: x}), _lent(s, u, x)) for x in same[:4])


def _lent(s: Sample, u: UOp, x: UOp) -> Mapping[str, Any]:
    """The inputs where `x` stands for `u`: a Param that only a body has takes the data of a free one."""
    if u.op is not Op.PARAM or x.op is not Op.PARAM:
        return s.inputs
    own, other = f"p{u.arg.slot}", f"p{x.arg.slot}"
    return {**s.inputs, other: s.inputs[own]} if own in s.inputs and other not in s.inputs else s.inputs


def grafted(s: Sample) -> Iterator[Sample]:
    """Of a small program two values alone, one in the place of a leaf of the other."""
    order = values(s.graph)
    for u in order if len(order) <= _GRAFTED else ():
        for leaf in (x for x in toposort(u) if x.op is Op.PARAM and x.dtype is not dt.index):
            for v in order:
                if v is not u and _elements(v) is not None and _elements(v) == _elements(leaf):
                    yield _with(s, substitute(u, {leaf: b.reshape(b.cast(v, leaf.dtype), leaf.shape)}))


def unindexed(s: Sample) -> Iterator[Sample]:
    """What is computed as an index and then cast, computed in the dtype that it is cast to."""
    for u in reversed(values(s.graph)):
        inner = u.src[0] if u.op is Op.CAST else u
        if inner is not u and inner.dtype is dt.index and inner.op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.MAX):
            below = [x.src[0] if x.op is Op.CAST else x for x in inner.src]
            yield _with(s, substitute(s.graph, {u: UOp(inner.op, tuple(b.cast(x, u.dtype) for x in below))}))


def shorter_tuples(s: Sample) -> Iterator[Sample]:
    """The Tuple of a Function with its first element alone."""
    for u in toposort(s.graph):
        if u.op is Op.TUPLE and len(u.src) > 1 and u is not s.graph:
            yield _with(s, substitute(s.graph, {u: u.replace(src=u.src[:1])}))


def fewer_operands(s: Sample) -> Iterator[Sample]:
    """A Group without one of its effects, or what it alone holds in its place; a Function without its last argument."""
    for u in reversed(toposort(s.graph)):
        if u is s.graph:
            continue
        if u.op is Op.GROUP and len(u.src) == 1:
            yield _with(s, substitute(s.graph, {u: u.src[0]}))
        elif u.op is Op.GROUP:
            yield from (_with(s, substitute(s.graph, {u: u.replace(src=(*u.src[:k], *u.src[k + 1 :]))})) for k in range(len(u.src)))
        elif u.op is Op.FUNCTION and len(u.src) > 1:
            yield _with(s, substitute(s.graph, {u: u.replace(src=u.src[:-1])}))


def one_operand(s: Sample) -> Iterator[Sample]:
    """A node of one operand, taken twice."""
    for u in reversed(values(s.graph)):
        if len(u.src) == 2 and u.src[0] is not u.src[1] and u.src[0].dtype is u.src[1].dtype:
            for y in u.src:
                node = UOp(u.op, (y, y), u.arg, u.tag)
                yield _with(s, node if u is s.graph else substitute(s.graph, {u: node}))


def buffers(s: Sample) -> Iterator[Sample]:
    """A Param in place of a Buffer, and of a Buffer or a Param that is reshaped."""
    slot = _free_slot(s)
    keys = {u: key for key, u in leaves(s.graph).items()}
    for u in toposort(s.graph):
        base = u.src[0] if u.op is Op.RESHAPE else u
        value = s.inputs.get(keys.get(base, ""))
        if value is None or u is s.graph or (base is u and u.op is not Op.BUFFER):
            continue
        if _elements(u) == np.size(value):  # not where an extent is a variable
            p = b.param(slot, u.shape, u.dtype)
            yield _with(s, substitute(s.graph, {u: p}), {**s.inputs, f"p{slot}": np.asarray(value).reshape(u.shape)})


def stored(s: Sample) -> Iterator[Sample]:
    """What a Store stores in place of the memory after it."""
    for u in reversed(values(s.graph)):
        store = u.src[-1] if u.op is Op.AFTER else u
        if store.op is Op.STORE and _elements(u) is not None and _elements(u) == _elements(store.src[1]):
            x = b.reshape(b.cast(store.src[1], u.dtype), u.shape)
            yield _with(s, substitute(s.graph, {u: x}) if u is not s.graph else x)


def apart(s: Sample) -> Iterator[Sample]:
    """What the last node is made of, side by side; of a memory after effects, what these store and where."""
    if s.graph.op not in _ROOTS:
        effects = s.graph.src[1:] if s.graph.op is Op.AFTER else ()
        below = (*s.graph.src[: len(s.graph.src) - len(effects)], *(x for e in effects for x in e.src))
        found = [x for x in dict.fromkeys(below) if x.dtype not in (dt.void, dt.index)]
        if len(found) > 1:
            yield _with(s, b.tuple_(*found))


def constants(s: Sample) -> Iterator[Sample]:
    """A Const in place of an input that is the same everywhere; 1 and 0 in place of other constants."""
    for u in toposort(s.graph):
        if u.op is Op.CONST and u.dtype is not dt.index and u.arg.value not in (0, 1):
            for v in (1, 0):
                yield _with(s, substitute(s.graph, {u: b.const(v, u.dtype)}) if u is not s.graph else s.graph)


# ------------------------------------------------------------------------------------------------------------------- extents


def extents(s: Sample) -> Iterator[Sample]:
    """A smaller extent wherever one stands."""
    found = sorted({n for u in toposort(s.graph) for n in u.shape if isinstance(n, int) and n > 1}, reverse=True)
    for n in found:
        for m in sorted({1, 2, n // 2, n - 1} & set(range(1, n))):
            yield from _tried(s, n, m)


def _tried(s: Sample, n: int, m: int) -> Iterator[Sample]:
    """With the first elements, then with the last; nothing where the shapes do not fit together any more."""
    try:
        yield resized(s, n, m)
        yield resized(s, n, m, last=True)
    except Exception:
        return


def resized(s: Sample, n: int, m: int, last: bool = False) -> Sample:
    """Every extent n becomes m; inputs keep their first elements, or their last ones. Raises whatever building raises where that
    does not fit."""
    part = slice(n - m, n) if last else slice(m)
    order = toposort(s.graph)
    needed = {u.src[0]: u for u in order if u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER}
    done: dict[UOp, UOp] = {}
    inputs = dict(s.inputs)
    for u in order:
        src = tuple(done[x] for x in u.src)
        if u.op is Op.BUFFER:
            done[u] = _smaller_buffer(u, needed.get(u), inputs, n, part)
        elif u.op in _SHAPED:
            done[u] = _smaller_view(u, src, n, m)
        else:
            done[u] = u.replace(src=src)
        if u.op is Op.PARAM and f"p{u.arg.slot}" in inputs and u.arg.name is None:
            inputs[f"p{u.arg.slot}"] = _kept(inputs[f"p{u.arg.slot}"], n, part)
    return _with(s, done[s.graph], inputs)


def _smaller_buffer(u: UOp, view: UOp | None, inputs: dict[str, Any], n: int, part: slice) -> UOp:
    key, shape = f"b{u.arg.unique}", view.shape if view is not None else u.shape
    if key in inputs:
        inputs[key] = _kept(np.asarray(inputs[key]).reshape(shape), n, part).reshape(-1)
    m = len(range(n)[part])
    return b.buffer(math.prod(_less(k, n, m) for k in shape), u.dtype, unique=u.arg.unique)


def _smaller_view(u: UOp, src: tuple[UOp, ...], n: int, m: int) -> UOp:
    if u.op is Op.PARAM:
        return u if u.arg.name is not None else b.param(u.arg.slot, [_less(k, n, m) for k in u.shape], u.dtype)
    shape = [_less(k, n, m) for k in u.shape]
    x = src[0]
    if u.op is Op.RESHAPE:
        return b.reshape(x, shape if math.prod(shape) == math.prod(x.shape) else (math.prod(x.shape),))
    if u.op is Op.EXPAND:
        return b.expand(x, shape)
    inner, outer = (x.shape, shape) if u.op is Op.PAD else (shape, x.shape)
    offset = [min(int(o.arg.value), int(k) - int(i)) for o, i, k in zip(u.src[1].src, inner, outer, strict=True)]
    return b.pad(x, offset, shape) if u.op is Op.PAD else b.shrink(x, offset, shape)


def _less(k: int, n: int, m: int) -> int:
    return m if k == n else k


def _kept(a: Any, n: int, part: slice) -> Any:
    return np.ascontiguousarray(np.asarray(a)[tuple(part if k == n else slice(None) for k in np.shape(a))])


# ------------------------------------------------------------------------------------------------------------ values, dtypes


def simpler_values(s: Sample) -> Iterator[Sample]:
    """Inputs of ones, of zeros, of small integers; then halves of an input set to zero, and single elements."""
    for key, value in s.inputs.items():
        if isinstance(value, int):
            yield from (s._replace(inputs={**s.inputs, key: v}) for v in (0, 1) if abs(v) < abs(value))
            continue
        for a in _simpler(np.asarray(value)):
            if not _equal(a, value):
                yield s._replace(inputs={**s.inputs, key: a})


def _simpler(a: Any) -> Iterator[Any]:
    yield np.zeros_like(a)
    yield np.ones_like(a)
    if a.size > 1:
        flat = a.reshape(-1)
        something = nonzero(flat)
        step = a.size // 2
        while step:
            for at in range(0, a.size, step):
                if something[at : at + step].any():
                    one = flat.copy()
                    one[at : at + step] = 0
                    yield one.reshape(a.shape)
            step = step // 2 if a.size <= 64 or step > a.size // 8 else 0


def nonzero(a: Any) -> Any:
    """Where an array is not 0; NaN is not, whatever its dtype."""
    with np.errstate(invalid="ignore"):  # a NaN, and a signalling one more so
        return np.asarray(a).astype(bool)


def _equal(x: Any, y: Any) -> bool:
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


#: What dtypes are tried in place of others, simplest first.
_SIMPLE: tuple[DType, ...] = (dt.float32, dt.int32)


def simpler_dtypes(s: Sample) -> Iterator[Sample]:
    """float32 or int32 in place of another dtype, everywhere; and one of the two in place of the other, where that saves a Cast."""
    found = {u.dtype for u in toposort(s.graph)} - {dt.void, dt.index, dt.bool_}
    for d in sorted(found, key=lambda d: d.name):
        for t in _SIMPLE:
            if d is not t and (d.is_float == t.is_float or d in _SIMPLE):
                yield retyped(s, d, t)


def retyped(s: Sample, d: DType, t: DType) -> Sample:
    """dtype `t` wherever `d` was."""
    done: dict[UOp, UOp] = {}
    inputs = dict(s.inputs)
    for u in toposort(s.graph):
        src = tuple(done[x] for x in u.src)
        done[u] = u.replace(src=src)
        if u.dtype is not d:
            continue
        if u.op is Op.CONST:
            done[u] = UOp(Op.CONST, (), ConstArg(b.convert(u.arg.value, t), t))
        elif u.op in (Op.CAST, Op.BITCAST):
            done[u] = src[0] if src[0].dtype is t else u.replace(src=src, arg=replace(u.arg, dtype=t))
        elif u.op is Op.PARAM and u.arg.name is None:
            done[u] = b.param(u.arg.slot, u.shape, t)
            _retype(inputs, f"p{u.arg.slot}", t)
        elif u.op is Op.BUFFER:
            done[u] = b.buffer(u.arg.size, t, unique=u.arg.unique)
            _retype(inputs, f"b{u.arg.unique}", t)
    return _with(s, done[s.graph], inputs)


def _retype(inputs: dict[str, Any], key: str, t: DType) -> None:
    if key in inputs:
        with np.errstate(all="ignore"):
            inputs[key] = np.asarray(inputs[key]).astype(STORAGE[t])


def fewer_opts(s: Sample) -> Iterator[Sample]:
    """Schedules with fewer OptOps: none, halves, single ones left out. A schedule that is drawn has none to leave out."""
    parts = [p for p in (s.opts or "").split(";") if p.strip()]
    step = len(parts)
    while step:
        for at in range(0, len(parts), step):
            yield s._replace(opts=";".join([*parts[:at], *parts[at + step :]]))
        step //= 2


#: In the order in which they are tried.
SHRINKS: tuple[Shrink, ...] = (
    *LAUNCH_SHRINKS, some_roots, fewer_outputs, lower_outputs, inlined, cuts, stored, apart, identities, splices, shorter_tuples,
    fewer_operands, one_operand, shared, descended, grafted, unindexed, roots, buffers, fewer_opts, extents, simpler_dtypes,
    constants, simpler_values,
)  # fmt: skip
