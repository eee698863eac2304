"""The generator makes well-typed TENSOR graphs by every producer, from either driver, without rejecting anything."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uops.backends.arrays import STORAGE
from uops.backends.testing import values
from uops.backends.testing.values import (
    cast_drops_digits,
    draw_array,
    draw_mulacc_operands_with_halfway_product,
    draw_near_cast_ties_or_over_integer_range,
    encode_representable_value_unchecked,
)
from uops.fuzz.generate import maker, positions, producers
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import FuzzCase, case, generate_tensor_graph
from uops.fuzz.generate.strategies import arrays, cases
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.text import parse, show
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import TENSOR_OPS, Dialect
from uops.spec.verify.verifier import verify

SEEDS = 1500


@pytest.fixture(scope="module")
def many() -> list[FuzzCase]:
    return [case(seed) for seed in range(SEEDS)]


def test_every_graph_is_well_formed(many: list[FuzzCase]) -> None:
    for c in many:
        verify(c.graph, Dialect.TENSOR)


def test_every_graph_round_trips_as_text(many: list[FuzzCase]) -> None:
    assert all(parse(show(c.graph)) is c.graph for c in many)


def test_every_graph_runs_without_a_trap(many: list[FuzzCase]) -> None:
    for c in many:
        run(c.graph, c.inputs)


def test_the_same_seed_gives_the_same_case() -> None:
    for seed in range(50):
        a, b = case(seed), case(seed)
        assert a.graph is b.graph
        assert a.inputs.keys() == b.inputs.keys()
        assert all(np.array_equal(_bits(a.inputs[k]), _bits(b.inputs[k])) for k in a.inputs)


def _bits(x: Any) -> Any:
    a = np.atleast_1d(np.asarray(x))
    return a.view(f"u{a.dtype.itemsize}")


def test_every_family_dtype_and_producible_op_occurs(many: list[FuzzCase]) -> None:
    nodes = [u for c in many for u in toposort(c.graph)]
    ops = {u.op for u in nodes}
    tensor_families = {Family.SOURCE, Family.MOVEMENT, Family.REDUCE, Family.CALL, Family.LOAD, Family.STORE, Family.ORDERING}
    assert {ROWS[op].family for op in ops} == tensor_families | {Family.ELEMENTWISE, Family.DECOMPOSED, Family.MARKER}
    assert {u.dtype for u in nodes} == {*dt.STORABLE, dt.index, dt.void}
    assert ops >= TENSOR_OPS


def test_calls_say_what_they_write_or_nothing(many: list[FuzzCase]) -> None:
    calls = {u for c in many for u in toposort(c.graph) if u.op is Op.CALL}
    assert {u.src[0].op for u in calls} == {Op.SINK, Op.GROUP, Op.STORE}
    assert {u.arg.written if u.arg else None for u in calls} == {(0,), None}
    assert any(len(u.src) > 3 for u in calls)


def test_roots_are_values_tuples_and_effects(many: list[FuzzCase]) -> None:
    roots = Counter(c.graph.op for c in many)
    assert min(roots[op] for op in (Op.TUPLE, Op.SINK, Op.GROUP)) > 10
    assert any(len(c.graph.src) > 1 for c in many if c.graph.op in (Op.SINK, Op.GROUP))


def test_equal_copies_are_made_on_one_device_and_on_several(many: list[FuzzCase]) -> None:
    devices = {u.device for c in many for u in toposort(c.graph) if u.op is Op.REPLICATED}
    assert {len(d) for d in devices if isinstance(d, tuple)} == {2, 3, 4} and any(not isinstance(d, tuple) for d in devices)


def test_features_choose_what_a_graph_may_have() -> None:
    new = {Op.CALL, Op.GROUP, Op.SINK, Op.REPLICATED}
    assert {p.name for p in producers.PRODUCERS} | {"sink"} == producers.FEATURES
    for seed in range(400):
        some = generate_tensor_graph(SeededDraw(seed), features=producers.VALUES).graph
        assert not new & {u.op for u in toposort(some)}
    few = frozenset({"add", "where", "cast"})
    assert {u.op for s in range(50) for u in toposort(generate_tensor_graph(SeededDraw(s), features=few).graph)} >= {
        Op.ADD,
        Op.WHERE,
        Op.CAST,
    }


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases(max_nodes=8, max_elements=64, swarm=False, features=frozenset({"call", "group", "replicated", "everywhere", "sink"})))
def test_the_hypothesis_driver_makes_calls_and_effects_too(c: FuzzCase) -> None:
    verify(c.graph, Dialect.TENSOR)
    run(c.graph, c.inputs)


def test_every_producer_makes_something(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()

    def counting(p: producers.Producer) -> producers.Producer:
        def make(*args: Any) -> Any:
            made[p.name] += 1
            return p.make(*args)

        return producers.Producer(p.name, p.admits, make, p.always)

    from uops.fuzz.generate import graphs as module

    monkeypatch.setattr(module, "PRODUCERS", tuple(map(counting, producers.PRODUCERS)))
    monkeypatch.setattr(module, "LEAVES", tuple(map(counting, producers.LEAVES)))
    for seed in range(1500):
        case(seed)
    assert set(made) == {p.name for p in (*producers.PRODUCERS, *producers.LEAVES)}


def test_values_stay_within_the_element_cap(many: list[FuzzCase]) -> None:
    sizes = [
        math.prod(u.shape) for c in many for u in toposort(c.graph) if u.dtype not in (dt.void, dt.index) and u.op is not Op.PARAM
    ]
    symbolic = [s for s in sizes if not isinstance(s, int)]
    assert not symbolic
    assert max(sizes) <= 8 * 1000  # bytes of the widest dtype, when a Bitcast or Slice spells them


@pytest.mark.parametrize("d", dt.FLOATS, ids=lambda d: d.short)
def test_products_lie_halfway_and_addends_decide(d: DType) -> None:
    for seed in range(10):
        a, b, c = (x.astype(np.float64) for x in draw_mulacc_operands_with_halfway_product(SeededDraw(seed), d, (3, 4)))
        for x, y, z in zip(a.flat, b.flat, c.flat, strict=True):
            product = abs(Fraction(x) * Fraction(y))
            last = Fraction(2) ** (math.frexp(float(product))[1] - 1 - d.man_bits)
            assert (product / last).denominator == 2
            assert abs(Fraction(z)) < last / 2


def test_sums_all_but_halfway_are_made_of_every_float() -> None:
    """Two roundings of them would be seen in a graph of an op or two."""
    found: Counter[DType] = Counter()
    for seed in range(3000):
        m = maker.GraphMaker(SeededDraw(seed), 16, dt.FLOATS, producers.PRODUCERS, producers.LEAVES)
        d = dt.FLOATS[seed % len(dt.FLOATS)]
        u = next(p for p in producers.PRODUCERS if p.name == "mulacc").make(m, d, (4,), 3)
        found[d] += [x.shape for x in u.src] == [(4,)] * 3 and set(m.inputs) == {"p0", "p1", "p2"}
    assert all(found[d] > 50 for d in dt.FLOATS)


def _digits(x: Fraction) -> int:
    """From the first binary digit that is not 0 to the last one."""
    units = abs(x.numerator) * 2 ** (256 * (x.denominator != 1)) // x.denominator
    return (units // (units & -units)).bit_length()


@pytest.mark.parametrize("target", dt.FLOATS, ids=lambda d: d.short)
def test_numbers_that_floats_round_are_halfway_or_next_to_that(target: DType) -> None:
    for source in (d for d in (*dt.INTS, *dt.FLOATS) if cast_drops_digits(d, target)):
        found = [Fraction(x.item()) for k in range(20) for x in _numbers(SeededDraw(k), source, target)]
        if source.bits > 16:
            halves = sum(_digits(x) == target.man_bits + 2 for x in found if x)
            longer = sum(_digits(x) > target.man_bits + 2 for x in found if x)
            assert halves > 30 and longer > 60, source
            assert not source.is_signed or any(x < 0 for x in found)
        if source.is_integer:
            assert sum(_digits(x) == source.bits - source.is_signed for x in found) > 5


@pytest.mark.parametrize("target", [*dt.INTS, *dt.FLOATS], ids=lambda d: d.short)
def test_a_cast_rounds_where_some_number_does_not_come_back(target: DType) -> None:
    """Of all digits that the source has, the first and the last are ones."""
    assert not cast_drops_digits(target, dt.bool_) and not cast_drops_digits(dt.bool_, target)
    for source in (*dt.INTS, *dt.FLOATS) if target.is_float else dt.FLOATS:
        x = 1 + Fraction(1, 1 << source.man_bits) if source.is_float else Fraction(2 ** (source.bits - source.is_signed - 1) + 1)
        given = np.array([float(x) if source.is_float else int(x)]).astype(STORAGE[source])
        (there,) = run(b.cast(b.param(0, (1,), source), target), {"p0": given}).values
        assert cast_drops_digits(source, target) == (there.item() != x), source


def _numbers(draw: SeededDraw, source: DType, target: DType) -> list[np.generic]:
    x = draw_near_cast_ties_or_over_integer_range(draw, source, target, (2, 4))
    with np.errstate(invalid="ignore"):  # NaN
        wide = x if source.is_integer else x.astype(np.float64)
    return [v for v in wide.flat if math.isfinite(v)]


@pytest.mark.parametrize("target", dt.INTS, ids=lambda d: d.short)
def test_numbers_that_integers_take_lie_all_over_their_range(target: DType) -> None:
    for source in (dt.float32, dt.float64):
        x = np.concatenate(
            [draw_near_cast_ties_or_over_integer_range(SeededDraw(k), source, target, (8,)) for k in range(20)]
        ).astype(np.float64)
        middle = (int(target.min) + int(target.max)) / 2
        for part in (
            x < int(target.min),
            (x > int(target.min)) & (x < middle),
            (x > middle) & (x < int(target.max)),
            x > int(target.max),
        ):
            assert part.sum() > 5


@pytest.mark.parametrize("d", dt.FLOATS, ids=lambda d: d.short)
def test_float_bits_is_the_storage_encoding(d: DType) -> None:
    every = np.arange(1 << min(d.bits, 16), dtype=np.uint64) << max(0, d.bits - 16)
    stored = every.astype(f"u{d.itemsize}").view(STORAGE[d])
    for bits, value in zip(every.tolist(), stored.astype(np.float64).tolist(), strict=True):
        if math.isfinite(value):
            assert encode_representable_value_unchecked(d, value) == bits


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases(max_nodes=8, max_elements=64))
def test_the_hypothesis_driver_gives_runnable_cases(c: FuzzCase) -> None:
    verify(c.graph, Dialect.TENSOR)
    run(c.graph, c.inputs)


@settings(max_examples=60, deadline=None)
@given(arrays())
def test_array_strategies_have_storage_dtypes(a: Any) -> None:
    assert a.dtype in STORAGE.values()


@given(st.integers(0, 2**40), st.sampled_from(dt.STORABLE))
@settings(max_examples=40, deadline=None)
def test_arrays_have_the_shape_and_dtype_asked_for(seed: int, d: DType) -> None:
    a = draw_array(SeededDraw(seed), d, (3, 5))
    assert a.shape == (3, 5) and a.dtype == STORAGE[d]


def test_generated_arrays_are_stored_as_backends_store_them() -> None:
    """One table, so that no dtype can be stored in two ways."""
    assert values.STORAGE is STORAGE
    assert all(draw_array(SeededDraw(0), d, (2,), style).dtype == STORAGE[d] for d in dt.STORABLE for style in values.STYLES)


@pytest.mark.parametrize("d", [dt.int32, dt.uint8, dt.float32], ids=lambda d: d.short)
def test_sequences_are_linear_in_the_position(d: DType) -> None:
    for seed in range(20):
        m = maker.GraphMaker(SeededDraw(seed), 100, dt.STORABLE, producers.PRODUCERS, producers.LEAVES)
        (found,) = run(positions.make_sequence_on_short_axis_or_any_value(m, d, (5, 1), 2), m.inputs).values
        steps = np.diff(found.astype(np.int64).reshape(-1)) % (256 if d is dt.uint8 else 1 << 32)
        assert len(set(steps.tolist())) == 1


def test_bounds_of_indices_are_known_and_often_negative() -> None:
    bounds = []
    for seed in range(60):
        m = maker.GraphMaker(SeededDraw(seed), 100, dt.STORABLE, producers.PRODUCERS, producers.LEAVES)
        u = positions.make_index_operand(m, (5,))
        assert u.min_max is not None
        bounds.append(u.min_max)
    assert all(-(1 << 20) < lo and hi < 1 << 20 for lo, hi in bounds)
    assert sum(lo < 0 for lo, _ in bounds) > 20


def test_options_limit_dtypes_and_sizes() -> None:
    for seed in range(200):
        c = generate_tensor_graph(SeededDraw(seed), nodes=6, max_elements=16, dtypes=(dt.float32,))
        assert c.graph.op is Op.TUPLE or math.prod(c.graph.shape) <= 16
