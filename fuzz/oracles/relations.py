"""Metamorphic relations: programs that must give what another one gives.

A relation takes a sample and draws another one, with a way back from its outputs to those of the first. What comes back is judged
by the first one's allowed sets, so that nothing is said about a program that its own sets would not say - but other passes run:
what was one kernel is two, what was an output is an intermediate, memory has other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from uops.compiler import pipeline  # noqa: F401 - loads the modules that hold rules
from uops.compiler.passes.callify.callify import highest_unique
from uops.compiler.rewrite.matchers import steps
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kinds import Sample
from uops.fuzz.oracles.batch import along
from uops.fuzz.oracles.stages import Outputs
from uops.fuzz.reduce.shrinks import values
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import BODIED, scope_nodes


class Related(NamedTuple):
    """Another sample, and its outputs as those of the first one."""

    sample: Sample
    back: Callable[[Outputs], Outputs]


@dataclass(frozen=True, slots=True)
class Relation:
    """`make` gives None for a sample that it has nothing for."""

    name: str
    what: str
    make: Callable[[Sample, SeededDraw], Related | None]


def _one_value(s: Sample) -> tuple[int, ...] | None:
    """The shape of the root's value, where there is one and it has a rank."""
    u = s.graph
    if u.dtype is dt.void or isinstance(u.device, tuple):
        return None
    shape = tuple(u.shape)
    return tuple(int(n) for n in shape) if shape and all(isinstance(n, int) for n in shape) else None


def _only(back: Callable[[Any], Any]) -> Callable[[Outputs], Outputs]:
    """Change output 0, keep the buffers."""
    return lambda found: {**found, 0: np.ascontiguousarray(back(found[0]))} if 0 in found else found


def _permuted(s: Sample, draw: SeededDraw) -> Related | None:
    shape = _one_value(s)
    if shape is None or len(shape) < 2:
        return None
    order = _order(len(shape), draw)
    inverse = [order.index(k) for k in range(len(order))]
    return Related(s._replace(graph=b.permute(s.graph, order)), _only(lambda a: a.transpose(inverse)))


def _order(n: int, draw: SeededDraw) -> list[int]:
    """The first numbers in any order."""
    order = list(range(n))
    for k in range(n - 1, 0, -1):
        j = draw.integer(0, k)
        order[k], order[j] = order[j], order[k]
    return order


def _batched(s: Sample, draw: SeededDraw) -> Related | None:
    """The same program, of inputs in another order along an axis of all of them that has to do with the order."""
    values = s.graph.src if s.graph.op is Op.TUPLE else (s.graph,)
    shape = tuple(values[0].shape)
    if any(tuple(u.shape) != shape or isinstance(u.device, tuple) for u in values):
        return None
    found = [(axis, put) for axis, n in enumerate(shape) if isinstance(n, int) and n > 1 and (put := along(values, axis))]
    if not found:
        return None
    axis, put = draw.choice(found)
    order = _order(int(shape[axis]), draw)
    inverse = [order.index(k) for k in range(len(order))]
    inputs = dict(s.inputs)
    for u, place in put.items():
        key = f"b{u.arg.unique}" if u.op is Op.BUFFER else f"p{u.arg.slot}"
        if key in inputs:
            inputs[key] = np.take(np.asarray(inputs[key]), order, place)
    return Related(
        s._replace(inputs=inputs),
        lambda outputs: {k: v.take(inverse, axis) if isinstance(k, int) else v for k, v in outputs.items()},
    )


def _flipped(s: Sample, draw: SeededDraw) -> Related | None:
    shape = _one_value(s)
    if shape is None:
        return None
    axes = [draw.chance(60) for _ in shape]
    chosen = tuple(slice(None, None, -1) if f else slice(None) for f in axes)
    return Related(s._replace(graph=b.flip(s.graph, axes)), _only(lambda a: a[chosen]))


def _padded(s: Sample, draw: SeededDraw) -> Related | None:
    shape = _one_value(s)
    if shape is None:
        return None
    before, after = ([draw.integer(0, 3) for _ in shape] for _ in range(2))
    outer = [lo + n + hi for lo, n, hi in zip(before, shape, after, strict=True)]
    chosen = tuple(slice(lo, lo + n) for lo, n in zip(before, shape, strict=True))
    return Related(s._replace(graph=b.pad(s.graph, before, outer)), _only(lambda a: a[chosen]))


def _split(s: Sample, draw: SeededDraw) -> Related | None:
    """Two parts as two outputs, which the other side joins."""
    shape = _one_value(s)
    axes = [k for k, n in enumerate(shape or ()) if n > 1]
    if shape is None or not axes:
        return None
    axis = draw.choice(axes)
    cut = draw.integer(1, shape[axis] - 1)
    parts = []
    for lo, hi in ((0, cut), (cut, shape[axis])):
        offset, size = [0] * len(shape), list(shape)
        offset[axis], size[axis] = lo, hi - lo
        parts.append(b.shrink(s.graph, offset, size))

    def back(found: Outputs) -> Outputs:
        rest: Outputs = {k: v for k, v in found.items() if not isinstance(k, int)}
        return {**rest, 0: np.concatenate([found[0], found[1]], axis)} if {0, 1} <= found.keys() else rest

    return Related(s._replace(graph=b.tuple_(*parts)), back)


def _renamed(s: Sample, draw: SeededDraw) -> Related | None:
    """Other numbers for memory, other names for variables."""
    shift = draw.integer(1, 50)
    put: dict[UOp, UOp] = {}
    keys: dict[str, str] = {}
    for u in _outside(s.graph):
        if u.op is Op.BUFFER:
            put[u] = u.replace(arg=_with(u.arg, unique=u.arg.unique + shift))
            keys[f"b{u.arg.unique}"] = f"b{u.arg.unique + shift}"
        elif u.op is Op.PARAM and u.arg.name is not None:
            put[u] = u.replace(arg=_with(u.arg, name=f"{u.arg.name}x{shift}"))
            keys[u.arg.name] = f"{u.arg.name}x{shift}"
        elif u.op is Op.PARAM:
            put[u] = u.replace(arg=_with(u.arg, slot=u.arg.slot + shift))
            keys[f"p{u.arg.slot}"] = f"p{u.arg.slot + shift}"
    graph = _rebuilt(s.graph, put)
    back = {new: old for old, new in keys.items()}
    inputs = {keys.get(k, k): v for k, v in s.inputs.items()}
    return Related(s._replace(graph=graph, inputs=inputs), lambda found: {back.get(str(k), k): v for k, v in found.items()})


def _with(arg: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(arg, **changes)


def _outside(root: UOp) -> list[UOp]:
    """The nodes that are in no body: bodies number their Params themselves (R64)."""
    return scope_nodes(root)


def _rebuilt(root: UOp, put: dict[UOp, UOp]) -> UOp:
    """`root` with nodes replaced outside of bodies."""
    done: dict[UOp, UOp] = {}
    for u in _outside(root):
        new = put.get(u, u)
        first = (new.src[0],) if u.op in BODIED else ()
        done[u] = new.replace(src=(*first, *(done[x] for x in new.src[len(first) :])))
    return done[root]


# -------------------------------------------------------------------------------------------------- inside of the program


def _inserted(s: Sample, draw: SeededDraw) -> Related | None:
    """A value's identity in some form, between it and its users."""
    places = _places(s.graph)
    if not places:
        return None
    u = draw.choice(places)
    forms = [f for f in IDENTITIES if f is not _stored or draw.chance(50)]
    new = draw.choice(forms)(u, draw, s.graph)
    return None if new is None else Related(s._replace(graph=_above(s.graph, u, new)), lambda found: found)


def _places(root: UOp) -> list[UOp]:
    """Values outside of bodies with a static shape on one device, that are no views of memory that is written."""
    written = {x for u in toposort(root) if u.op is Op.STORE for x in toposort(u.src[0])}
    outside = set(_outside(root))
    return [
        u
        for u in values(root)
        if u in outside and u not in written and u.op is not Op.AFTER and u.op not in (Op.TUPLE, Op.FUNCTION)
        and all(isinstance(n, int) for n in u.shape) and not isinstance(u.device, tuple)
    ]  # fmt: skip


def _above(root: UOp, u: UOp, new: UOp) -> UOp:
    """`root` with `new`, which stands on `u`, in place of `u` wherever it is used."""
    if root is u:
        return new
    done: dict[UOp, UOp] = {}
    for x in toposort(root):
        src = tuple(new if y is u else done[y] for y in x.src)
        done[x] = x if src == x.src else x.replace(src=src)
    return done[root]


def _contiguous(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.contiguous(u)


def _flips(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    axes = [draw.chance(60) for _ in u.shape]
    return b.flip(b.flip(u, axes), axes)


def _reshapes(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.reshape(b.reshape(u, (int(np.prod(u.shape)), 1)), u.shape)


def _pads(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    before = [draw.integer(0, 2) for _ in u.shape]
    outer = [lo + n + draw.integer(0, 2) for lo, n in zip(before, u.shape, strict=True)]
    return b.shrink(b.pad(u, before, outer), before, u.shape)


def _expands(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    n = draw.integer(2, 3)
    wide = b.expand(b.reshape(u, (1, *u.shape)), (n, *u.shape))
    return UOp(Op.INDEX, (wide, b.index(draw.integer(0, n - 1))))


def _loads(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.load(u)


def _halves(u: UOp, draw: SeededDraw, root: UOp) -> UOp | None:
    """Split and stacked again."""
    if not u.shape or u.shape[0] < 2 or u.shape[0] > 8:
        return None
    return b.stack(*(UOp(Op.INDEX, (u, b.index(k))) for k in range(u.shape[0])))


def _stored(u: UOp, draw: SeededDraw, root: UOp) -> UOp | None:
    """Through a Buffer of its own."""
    size = int(np.prod(u.shape))
    buf = b.buffer(size, u.dtype, unique=_free_unique(root))
    return b.reshape(b.after(buf, b.store(b.reshape(buf, u.shape), u)), u.shape)


def _free_unique(root: UOp) -> int:
    return highest_unique(toposort(root)) + 1


IDENTITIES: tuple[Callable[[UOp, SeededDraw, UOp], UOp | None], ...] = (
    _contiguous, _flips, _reshapes, _pads, _expands, _loads, _halves, _stored,
)  # fmt: skip

RELATIONS: tuple[Relation, ...] = (
    Relation("permuted", "a permuted output is permuted", _permuted),
    Relation("batched", "inputs permuted along an axis that goes through the program permute the output", _batched),
    Relation("flipped", "a flipped output is flipped", _flipped),
    Relation("padded", "a padded output has the output inside", _padded),
    Relation("split", "two parts of an output, joined, are the output", _split),
    Relation("renamed", "numbers of memory and names of variables mean nothing", _renamed),
    Relation("inserted", "an identity between a value and its users changes nothing", _inserted),
)


def related(s: Sample, draw: SeededDraw) -> tuple[Relation, Related] | None:
    """One relation that has something for the sample."""
    left = list(RELATIONS)
    while left:
        r = left.pop(draw.integer(0, len(left) - 1))
        found = r.make(s, draw)
        if found is not None:
            return r, found
    return None


# ------------------------------------------------------------------------------------------------------------ one rule off


@contextmanager
def without(rule: Rule) -> Iterator[None]:
    """The compiler without one of its rewrite rules: wherever a pass holds the list of them, it holds a shorter one, of which
    only the step of the rule's own op is another."""
    shorter = tuple(r for r in INDEXING if r is not rule)
    steps(shorter).update((op, step) for op, step in steps(INDEXING).items() if op is not rule.lhs.op)
    changed = [(m, name) for m in _modules() for name, v in vars(m).items() if v is INDEXING]
    try:
        for m, name in changed:
            setattr(m, name, shorter)
        yield
    finally:
        for m, name in changed:
            setattr(m, name, INDEXING)


def _modules() -> list[Any]:
    import sys

    return [m for name, m in list(sys.modules.items()) if name.startswith("uops.compiler.") and m is not None]
