"""Callify: the tensor graph becomes one stateless Call.

Takes: TENSOR. Gives: CALLIFIED (one Call of a Sink of Stores; no Buffer, Function, Tuple or gradient marker in its body).
Spec: Lowering Pipeline/Callify; Function and Call rows; R48, R51, R54, R63, R64.

Functions are replaced by their substituted bodies and Calls by the effects of theirs. Every Buffer, free Param and named variable
becomes an argument and, in the body, the Param of that position; a variable is an index there, cast to its own dtype. Each value
of the root is stored to a fresh Buffer, which is an argument too; `outputs` says which. An index value is stored as int64 (R29: no
Buffer of index).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from uops.compiler.ir.views import base
from uops.compiler.log import note
from uops.compiler.passes.callify.hazards import protect
from uops.compiler.place import untranslatable
from uops.compiler.rewrite.lowering_cache import remembered
from uops.spec.errors import CompileError, SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg, ParamArg
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

_DROPPED = frozenset({Op.DETACH, Op.CONTIGUOUS_BACKWARD})
#: Ops whose device is their own; that of every other value is one of its sources'.
_PLACED = frozenset({Op.PARAM, Op.BUFFER, Op.LOAD})
_OUTER = frozenset({Op.PARAM, Op.BUFFER})
_RESOLVED = _DROPPED | {Op.FUNCTION, Op.CALL, Op.GETTUPLE}


class Output(NamedTuple):
    """One value of the root: the Buffer that receives it, its shape (a dimension may be symbolic) and its dtype."""

    buffer: UOp
    shape: tuple[Dim, ...]
    dtype: DType


@remembered
def callify(root: UOp) -> UOp:
    """The one Call that does what `root` says."""
    resolved = resolve(root)
    targets, items = iter(_fresh(root, resolved)), _items(resolved)
    copied = any(v.op is Op.CONTIGUOUS for v in items)
    within = {s for v in items for u in toposort(v) for s in u.src} if copied else set()
    effects = [_store(next(targets), _contents(v, within)) if v.dtype is not dt.void else v for v in items]
    body = B.sink(*effects)
    note("store", resolved, body, {v: (v, effect) for v, effect in zip(items, effects)})
    params, arguments = _arguments(body)
    stateless = substitute(body, params)
    note("arguments", body, stateless, params)
    changing = Op.STORE in {u.op for u in toposort(resolved)}
    body = protect(stateless) if changing else stateless  # else nothing changes that is read
    called = UOp(Op.CALL, (body, *arguments), CallArg(written=written(body)))
    note("store", root, called, {v: base(effect.src[0]) for v, effect in zip(items, effects) if effect is not v})
    return called


def outputs(root: UOp) -> tuple[Output, ...]:
    """The values of `root` in order, each with the Buffer in which `callify(root)` leaves it."""
    return _fresh(root, resolve(root))


@remembered
def resolve(root: UOp) -> UOp:
    """`root` without Function, GetTuple, Call and gradient markers: what each stands for is put in, innermost first (R64)."""
    done: dict[UOp, UOp] = {}  # what became of the nodes that are not the same
    for u in toposort(root):
        if u.op in _RESOLVED or not done.keys().isdisjoint(u.src):
            done[u] = _resolve(u, tuple([done.get(s, s) for s in u.src]), root)
        elif u.op in _PLACED and u.device.__class__ is tuple:
            raise _several_devices(u, root)
    resolved = done.get(root, root)
    note("resolve", root, resolved, done)
    return resolved


def _resolve(u: UOp, src: tuple[UOp, ...], root: UOp) -> UOp:
    if u.op in (Op.FUNCTION, Op.CALL):
        return _apply(u, src, root)
    if u.op is Op.GETTUPLE:
        element: UOp = src[0].src[u.arg.index]
        return element
    if u.op in _DROPPED:
        return src[0]
    if isinstance(u.device, tuple):
        raise _several_devices(u, root)
    return u if src == u.src else u.replace(src=src)


def _several_devices(u: UOp, root: UOp) -> CompileError:
    devices = ", ".join(map(quote_name, u.device))  # type: ignore[arg-type]
    return untranslatable(
        "Lowering Pipeline/Callify", u, f"on the devices {devices}, but the compiler takes graphs of one device", root
    )


def _apply(u: UOp, src: tuple[UOp, ...], root: UOp) -> UOp:
    """The body with each Param k replaced by argument k; of a Call, the Group of its effects."""
    body, arguments = src[0], src[1:]
    if body.op in (Op.CUSTOM_FUNCTION, Op.PROGRAM):
        raise untranslatable("R63 (Call)", u, f"its body is a {body.op.name}, which the compiler cannot look into", root)
    order = toposort(body)
    loop = next((x for x in order if x.op in (Op.RANGE, Op.SPECIAL)), None)
    if loop is not None:
        raise untranslatable("R63 (Call)", u, f"its body is a kernel already: it has a {loop.op.name}", root)
    slots = [p for p in order if p.op is Op.PARAM and p.arg.slot is not None]
    missing = [p.arg.slot for p in slots if p.arg.slot >= len(arguments)]
    if missing:
        raise SpecError(f"{u.op.name} has {len(arguments)} arguments but its body uses Param {missing[0]} (R64)")
    applied = substitute(body, {p: arguments[p.arg.slot] for p in slots})
    if u.op is Op.FUNCTION:
        return applied
    return B.group(*applied.src) if applied.op in (Op.SINK, Op.GROUP) else B.group(applied)


def _items(resolved: UOp) -> tuple[UOp, ...]:
    """What the root is about: the elements of a Tuple, the sources of a Sink or Group, or the root itself."""
    return resolved.src if resolved.op in (Op.TUPLE, Op.SINK, Op.GROUP) else (resolved,)


def storage(d: DType) -> DType:
    """The dtype that a Buffer has for values of `d` (R29)."""
    return dt.int64 if d is dt.index else d


def extent(d: Dim) -> int:
    """A dimension, or the greatest value of a symbolic one."""
    if not isinstance(d, UOp):
        return int(d)
    bounds = d.min_max
    if bounds is None or math.isinf(bounds[1]):
        raise untranslatable("R48 (symbolic sizes)", d, f"an extent needs an upper bound, got {bounds}")
    return max(0, int(bounds[1]))


def extents(shape: Iterable[Dim]) -> int:
    """The most elements that a value of this shape has."""
    return math.prod(extent(d) for d in shape)


def highest_unique(nodes: Iterable[UOp]) -> int:
    return max([u.arg.unique for u in nodes if u.op is Op.BUFFER], default=0)


def uniques(body: UOp) -> Iterator[int]:
    """Identities for Buffers that `body` has not, found when the first one is asked for."""
    yield from itertools.count(highest_unique(toposort(body)) + 1)


def _fresh(root: UOp, resolved: UOp) -> tuple[Output, ...]:
    """A new Buffer per value, numbered after those of the graph, unused ones too, so that one graph has one translation and no key
    stands for two."""
    first = highest_unique(toposort(root)) + 1
    values = [v for v in _items(resolved) if v.dtype is not dt.void]
    return tuple(Output(_buffer(v, first + k), v.shape, v.dtype) for k, v in enumerate(values))


def _buffer(v: UOp, unique: int) -> UOp:
    device = v.device if isinstance(v.device, str) else "CPU"
    return UOp(Op.BUFFER, (), BufferArg(extents(v.shape), storage(v.dtype), device, AddrSpace.GLOBAL, unique))


def _contents(v: UOp, within: set[UOp]) -> UOp:
    """What to store for a value: a copy that nothing else reads is made by the Store."""
    found: UOp = v.src[0] if v.op is Op.CONTIGUOUS and v not in within else v
    return found


def _store(out: Output, v: UOp) -> UOp:
    """Store `v` into the front of its Buffer, in row-major order."""
    total: Dim = math.prod(d for d in v.shape if not isinstance(d, UOp))
    for d in v.shape:
        total = total if not isinstance(d, UOp) else d if total == 1 else UOp(Op.MUL, (dim_node(total), d))
    target = out.buffer if not isinstance(total, UOp) else B.shrink(out.buffer, (0,), (total,))
    if target.shape != v.shape:
        target = UOp(Op.RESHAPE, (target, B.shape_vector(v.shape)))
    return B.store(target, B.cast(v, storage(v.dtype)))


def _arguments(body: UOp) -> tuple[dict[UOp, UOp], tuple[UOp, ...]]:
    """What to put for each outer node of the body, and the arguments in slot order: memory first, then named variables."""
    outer = [u for u in toposort(body) if u.op in _OUTER]
    memory = [u for u in outer if u.op is Op.BUFFER or u.arg.name is None]
    named = [u for u in outer if u.op is Op.PARAM and u.arg.name is not None]
    put: dict[UOp, UOp] = {}
    for k, u in enumerate(named, len(memory)):
        number = _number(u, k)
        put[u] = number if u.dtype is dt.index else B.cast(number, u.dtype)  # arithmetic wraps as that dtype's does
    for k, u in enumerate(memory):
        shape = B.shape_vector(u.shape) if u.op is Op.BUFFER else substitute(u.src[0], put) if u.src else B.SCALAR
        param = UOp(Op.PARAM, (shape,), ParamArg(k, storage(u.dtype), u.device))
        put[u] = param if u.dtype is not dt.index else B.cast(param, dt.index)
    given = [u if u.dtype is not dt.index else u.replace(arg=ParamArg(u.arg.slot, dt.int64, u.arg.device)) for u in memory]
    return put, (*given, *[u if u.dtype is dt.index else _number(u, u.arg.slot) for u in named])


def _number(u: UOp, slot: int | None) -> UOp:
    """A named variable as an index of this slot."""
    return u.replace(arg=ParamArg(slot, dt.index, name=u.arg.name, bounds=u.arg.bounds))


def written(body: UOp) -> tuple[int, ...]:
    """The slots that the Stores of a body write."""
    return tuple(sorted({base(u.src[0]).arg.slot for u in toposort(body) if u.op is Op.STORE}))
