"""The generator of graphs that the compiler's rewrite rules match: their left sides, over leaves and constants of any dtypes
that fit.

The programs depend on the rules as well as on the draw. Whether the condition of a rule holds is left to chance, so that a
condition that is too weak shows.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator

from uops.backends.testing.values import bits_to_number, edge_bits
from uops.compiler import pipeline  # noqa: F401 - loads the modules that hold rules
from uops.compiler.rewrite.pattern import Pattern, TypeVar, instantiate, variables
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING, VALUES
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.maker import GraphMaker
from uops.fuzz.generate.positions import broadcast_scalar, make_index_operand, make_index_times_factor_plus_any_rest
from uops.fuzz.generate.producers import LEAVES, PRODUCERS
from uops.spec.choices import ChoiceSource
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import BITWISE, SHIFT, Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: The rules whose left sides are drawn.
RULES = tuple(dict.fromkeys((*VALUES, *INDEXING)))
#: Number of assignments of dtypes that are tried per rule.
_ATTEMPTS = 24
#: Constants of any dtype.
_CONSTANTS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -2, -3)
#: Ops that an index does not have.
_BIT_OPS = SHIFT | BITWISE
#: (name of a variable or type variable, dtype), for each of a rule.
Types = tuple[tuple[str, DType], ...]


def generate_rule_left_sides(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a Tuple of the left sides of several rules."""
    m = GraphMaker(draw, 64, dt.STORABLE, PRODUCERS, LEAVES, declared=declared)
    shape = (m.draw_extent(40),) if draw.chance(80) else ()
    rules = RULES if declared.supports_everything else _drawable_rules(declared)
    left_sides = [_make_left_side_over_leaves(m, draw.choice(rules), shape) for _ in range(draw.integer(3, 6))]
    return FuzzCase(b.tuple_(*left_sides), m.inputs)


def _make_left_side_over_leaves(m: GraphMaker, rule: Rule, shape: tuple[int, ...]) -> UOp:
    types = m.draw.choice(_keep_supported_typings_else_all(m.declared, sample_typings_verifying_left_side(rule)))
    leaves = variables(rule.lhs)
    binding = {name: _make_param_index_or_constant(m, leaves[name], d, shape) if name in leaves else d for name, d in types}
    u = instantiate(rule.lhs, binding, next((d for _, d in types), dt.int32))
    u = b.cast(u, dt.int64) if u.dtype is dt.index else u
    return u if u.shape == shape else broadcast_scalar(u, shape)


@functools.lru_cache(8)
def _drawable_rules(declared: SupportedOpDtypes) -> tuple[Rule, ...]:
    """Return the rules whose left sides have supported ops alone; all rules if there are none."""
    return tuple(r for r in RULES if declared.supports_ops(_pattern_ops(r.lhs))) or RULES


def _pattern_ops(p: Pattern) -> Iterator[Op]:
    if p.op is not None:
        yield p.op
    for q in p.src:
        yield from _pattern_ops(q)


def _keep_supported_typings_else_all(declared: SupportedOpDtypes, all_typings: tuple[Types, ...]) -> tuple[Types, ...]:
    """Keep the typings whose dtypes are supported; all of them if there are none."""
    if declared.supports_everything:
        return all_typings
    dtypes = (dt.index, *declared.dtypes)
    return tuple(types for types in all_typings if all(d in dtypes for _, d in types)) or all_typings


def _make_param_index_or_constant(m: GraphMaker, p: Pattern, d: DType, shape: tuple[int, ...]) -> UOp:
    if not p.constant and m.draw.chance(85):
        return _make_index(m, shape) if d is dt.index else m.make_param_with_data_or_of_body(d, shape)
    if d is dt.index or m.draw.chance(60):
        return b.const(m.draw.choice(_CONSTANTS), d)
    return b.const(bits_to_number(m.draw.choice(edge_bits(d)), d), d)


def _make_index(m: GraphMaker, shape: tuple[int, ...]) -> UOp:
    index = make_index_operand(m, shape)
    return index if m.draw.chance(50) else make_index_times_factor_plus_any_rest(m, shape, index, m.draw.choice((2, 3, 4, 6, 8)))


@functools.cache
def sample_typings_verifying_left_side(rule: Rule) -> tuple[Types, ...]:
    """Find typings of a rule under which its left side is well-formed and every index fits int64 (R08: no index is wider in
    a kernel).
    """
    rng = random.Random(rule.name)
    free: dict[str, tuple[DType, ...]] = {name: p.dtypes for name, p in variables(rule.lhs).items()}
    free |= {t.name: t.among for t in _type_variables(rule.lhs)}
    valid: dict[Types, None] = {}
    for k in range(_ATTEMPTS if math.prod(map(len, free.values())) > 1 else 1):
        common = (dt.index, *dt.STORABLE)[k % (1 + len(dt.STORABLE))]
        types = tuple((n, common if common in among and rng.random() < 0.8 else rng.choice(among)) for n, among in free.items())
        if _verifies_with_indices_within_int64_bounds(rule.lhs, types):
            valid[types] = None
    return tuple(valid)


def _type_variables(p: Pattern) -> list[TypeVar]:
    variables_here = [p.to] if isinstance(p.to, TypeVar) else []
    return variables_here + [t for q in p.src for t in _type_variables(q)]


def _verifies_with_indices_within_int64_bounds(lhs: Pattern, types: Types) -> bool:
    pattern_variables = variables(lhs)
    leaves = {n: _make_typed_leaf(k, d) if n in pattern_variables else d for k, (n, d) in enumerate(types)}
    u = instantiate(lhs, leaves, next((d for _, d in types), dt.int32))
    try:
        verify(u, Dialect.TENSOR)
    except UopsError:
        return False
    return all(x.op not in _BIT_OPS and _fits_int64(x) for x in toposort(u) if x.dtype is dt.index and x.op is not Op.STACK)


def _make_typed_leaf(slot: int, d: DType) -> UOp:
    return b.cast(b.param(slot, (), dt.int16), d) if d is dt.index else b.param(slot, (), d)


def _fits_int64(u: UOp) -> bool:
    bounds = u.min_max
    return bounds is None or (dt.int64.min <= bounds[0] and bounds[1] <= dt.int64.max)
