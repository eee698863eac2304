"""The generator of what the compiler's rewrite rules rewrite: their left sides, of leaves and constants of any dtypes that fit.

Which rules there are decides the programs beside the draw. Whether the condition of a rule holds is left to chance, so that one
that asks for too little is seen.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator

from uops.backends.testing.values import Draw, edge_bits, number
from uops.compiler import pipeline  # noqa: F401 - loads the modules that hold rules
from uops.compiler.rewrite.pattern import Pattern, TypeVar, instantiate, variables
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING, VALUES
from uops.fuzz.generate.declared import Declared
from uops.fuzz.generate.graphs import Case
from uops.fuzz.generate.maker import Maker
from uops.fuzz.generate.positions import filled, index_value, with_rest
from uops.fuzz.generate.producers import LEAVES, PRODUCERS
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import SHIFT, Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

RULES = tuple(dict.fromkeys((*VALUES, *INDEXING)))
#: Ways to give dtypes to a rule's variables that are tried.
_TRIED = 24
_CONSTANTS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -2, -3)
_BITWISE = SHIFT | {Op.AND, Op.OR, Op.XOR}
Types = tuple[tuple[str, DType], ...]


def generate(draw: Draw, declared: Declared) -> Case:
    """The left sides of several rules, side by side."""
    m = Maker(draw, 64, dt.STORABLE, PRODUCERS, LEAVES, declared=declared)
    shape = (m.extent(40),) if draw.chance(80) else ()
    rules = RULES if declared.everything else _of(declared)
    found = [_left_side(m, draw.choice(rules), shape) for _ in range(draw.integer(3, 6))]
    return Case(b.tuple_(*found), m.inputs)


def _left_side(m: Maker, rule: Rule, shape: tuple[int, ...]) -> UOp:
    types = m.draw.choice(_declared(m.declared, typings(rule)))
    known = variables(rule.lhs)
    binding = {name: _leaf(m, known[name], d, shape) if name in known else d for name, d in types}
    u = instantiate(rule.lhs, binding, next((d for _, d in types), dt.int32))
    u = b.cast(u, dt.int64) if u.dtype is dt.index else u
    return u if u.shape == shape else filled(u, shape)


@functools.lru_cache(8)
def _of(declared: Declared) -> tuple[Rule, ...]:
    """The rules whose left sides may be drawn; all of them where none may."""
    return tuple(r for r in RULES if declared.has(_ops(r.lhs))) or RULES


def _ops(p: Pattern) -> Iterator[Op]:
    if p.op is not None:
        yield p.op
    for q in p.src:
        yield from _ops(q)


def _declared(declared: Declared, found: tuple[Types, ...]) -> tuple[Types, ...]:
    """Those whose dtypes are; all of them where none are."""
    if declared.everything:
        return found
    known = (dt.index, *declared.dtypes)
    return tuple(types for types in found if all(d in known for _, d in types)) or found


def _leaf(m: Maker, p: Pattern, d: DType, shape: tuple[int, ...]) -> UOp:
    if not p.constant and m.draw.chance(85):
        return _index(m, shape) if d is dt.index else m.param(d, shape)
    if d is dt.index or m.draw.chance(60):
        return b.const(m.draw.choice(_CONSTANTS), d)
    return b.const(number(m.draw.choice(edge_bits(d)), d), d)


def _index(m: Maker, shape: tuple[int, ...]) -> UOp:
    found = index_value(m, shape)
    return found if m.draw.chance(50) else with_rest(m, shape, found, m.draw.choice((2, 3, 4, 6, 8)))


@functools.cache
def typings(rule: Rule) -> tuple[Types, ...]:
    """Some dtypes of variables and type variables with which the left side is well-formed, and no index is more than a machine
    integer holds (R08)."""
    chosen = random.Random(rule.name)
    free: dict[str, tuple[DType, ...]] = {name: p.dtypes for name, p in variables(rule.lhs).items()}
    free |= {t.name: t.among for t in _type_variables(rule.lhs)}
    found: dict[Types, None] = {}
    for k in range(_TRIED if math.prod(map(len, free.values())) > 1 else 1):
        common = (dt.index, *dt.STORABLE)[k % (1 + len(dt.STORABLE))]
        types = tuple(
            (n, common if common in among and chosen.random() < 0.8 else chosen.choice(among)) for n, among in free.items()
        )
        if _is_typed(rule.lhs, types):
            found[types] = None
    return tuple(found)


def _type_variables(p: Pattern) -> list[TypeVar]:
    own = [p.to] if isinstance(p.to, TypeVar) else []
    return own + [t for q in p.src for t in _type_variables(q)]


def _is_typed(lhs: Pattern, types: Types) -> bool:
    known = variables(lhs)
    leaves = {n: _typed_leaf(k, d) if n in known else d for k, (n, d) in enumerate(types)}
    u = instantiate(lhs, leaves, next((d for _, d in types), dt.int32))
    try:
        verify(u, Dialect.TENSOR)
    except UopsError:
        return False
    return all(x.op not in _BITWISE and _is_narrow(x) for x in toposort(u) if x.dtype is dt.index and x.op is not Op.STACK)


def _typed_leaf(slot: int, d: DType) -> UOp:
    return b.cast(b.param(slot, (), dt.int16), d) if d is dt.index else b.param(slot, (), d)


def _is_narrow(u: UOp) -> bool:
    bounds = u.min_max
    return bounds is None or (dt.int64.min <= bounds[0] and bounds[1] <= dt.int64.max)
