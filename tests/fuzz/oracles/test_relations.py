"""Metamorphic relations: what they make is well-formed and gives, in the interpreter, what the first program gives."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.conformance.judge import outputs_of
from uops.backends.testing.values import draw_array
from uops.compiler.passes.rangeify import rangeify
from uops.compiler.passes.select import select
from uops.compiler.rewrite.matchers import get_or_make_matcher_table
from uops.compiler.rewrite.rules import INDEXING, SELECTED_VALUES
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles.batch import ACROSS, THROUGH, trace_output_axis_to_input_axes
from uops.fuzz.oracles.relations import (
    IDENTITIES,
    RELATIONS,
    MetamorphicRelation,
    _list_values_to_insert_identity_after,
    _replace_in_all_users,
    draw_related_sample,
    run_without_index_or_selection_rule,
)
from uops.interp import run
from uops.interp.ops.elementwise import KERNELS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, UNARY, Op
from uops.spec.verify.dialects import ELEMENTWISE, TENSOR_OPS, Dialect
from uops.spec.verify.verifier import verify


def samples() -> list[ProgramSample]:
    return [kinds.sample(4, k, ("tensor", "programs", "bodies", "rules", "reduces")) for k in range(150)]


def same(x: object, y: object) -> bool:
    a, b = np.asarray(x), np.asarray(y)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.tobytes() == b.tobytes() or bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.name)
def test_a_related_program_gives_the_same(relation: MetamorphicRelation) -> None:
    tried = 0
    for k, s in enumerate(samples()):
        found = relation.make(s, SeededDraw(k))
        if found is None:
            continue
        verify(found.sample.graph, Dialect.TENSOR)
        wanted = outputs_of(run(s.graph, s.inputs))
        got = found.map_outputs_back(outputs_of(run(found.sample.graph, found.sample.inputs)))
        assert all(same(v, got[key]) for key, v in wanted.items()), (k, relation.name)
        assert found.sample.graph is not s.graph or relation.name in ("renamed", "flipped", "permuted", "batched")
        tried += 1
    assert tried > 15


@pytest.mark.parametrize("form", IDENTITIES, ids=lambda f: f.__name__)
def test_an_identity_changes_nothing(form: object) -> None:
    tried = 0
    for k, s in enumerate(samples()[:40]):
        draw = SeededDraw(k)
        places = _list_values_to_insert_identity_after(s.graph)
        new = form(u, draw, s.graph) if places and (u := draw.choice(places)) else None  # type: ignore[operator]
        if new is None:
            continue
        graph = _replace_in_all_users(s.graph, u, new)
        verify(graph, Dialect.TENSOR)
        wanted, got = outputs_of(run(s.graph, s.inputs)), outputs_of(run(graph, s.inputs))
        assert all(same(v, got[key]) for key, v in wanted.items()), k
        assert new in toposort(graph)
        tried += 1
    assert tried > 8


def test_an_axis_that_an_op_lies_across_is_none_of_a_batch() -> None:
    x, y = b.param(0, (4, 3), dt.int32), b.param(1, (4, 1), dt.int32)
    rows = b.add(b.reduce(x, Op.ADD, (1,)), y)
    assert trace_output_axis_to_input_axes([rows], 0) == {x: 0, y: 0}
    assert trace_output_axis_to_input_axes([b.permute(rows, (1, 0))], 1) == {x: 0, y: 0}
    assert trace_output_axis_to_input_axes([b.reshape(b.add(x, b.expand(y, (4, 3))), (2, 2, 3))], 0) is None
    assert trace_output_axis_to_input_axes([b.reshape(x, (1, 4, 3))], 1) == {x: 0}
    assert trace_output_axis_to_input_axes([b.add(x, b.expand(b.reduce(y, Op.MAX, (0,)), (4, 3)))], 0) == {x: 0}
    assert trace_output_axis_to_input_axes([b.add(x, b.expand(y, (4, 3)))], 1) == {x: 1}
    assert trace_output_axis_to_input_axes([b.flip(x, (True, False))], 0) is None
    assert trace_output_axis_to_input_axes([b.pad(x, (1, 0), (6, 3))], 0) is None
    assert trace_output_axis_to_input_axes([b.pad(x, (0, 1), (4, 5))], 0) == {x: 0}
    assert trace_output_axis_to_input_axes([b.add(b.param(0, (2, 1), dt.int32), b.param(1, (1, 2), dt.int32))], 0) == {
        b.param(0, (2, 1), dt.int32): 0
    }
    memory = b.buffer(4, dt.int32, unique=1)
    assert trace_output_axis_to_input_axes([b.reshape(memory, (4, 1)), y], 0) == {memory: 0, y: 0}
    square = b.param(2, (3, 3), dt.int32)
    assert trace_output_axis_to_input_axes([b.add(square, b.permute(square, (1, 0)))], 0) is None


def test_an_op_across_the_batch_is_seen() -> None:
    """What is left out of `_place` or `_below` would be a false alarm: rows that are added up are of no batch."""
    x = b.param(0, (4, 3), dt.int32)
    crossed = b.add(x, b.flip(x, (True, False)))
    assert trace_output_axis_to_input_axes([crossed], 0) is None
    assert trace_output_axis_to_input_axes([crossed], 1) == {x: 1}


def test_every_op_of_tensor_programs_says_whether_an_axis_goes_through_it() -> None:
    assert THROUGH.keys() | ACROSS | MEMORY_ROOTS | {Op.CONST} == TENSOR_OPS
    assert len(THROUGH) + len(ACROSS) + len(MEMORY_ROOTS) + 1 == len(TENSOR_OPS)


def _examples(op: Op) -> list[UOp]:
    """Nodes of an op on square values, where another axis would be taken for the right one."""
    d = next(d for d in (dt.float32, dt.uint8, dt.uint64, dt.bool_) if d in KERNELS.get(op, {d}))
    x, row, column = b.param(0, (4, 4), d), b.param(1, (4,), d), b.param(2, (4, 1), d)
    if op in ELEMENTWISE:
        if op is Op.CAST:
            return [b.cast(x, dt.int16), b.cast(row, dt.int16)]
        if op is Op.WHERE:
            return [UOp(op, (x, b.param(3, (4,), dt.int8), b.param(4, (4, 4), dt.int8)))]
        if op in (Op.SHL, Op.SHR):
            return [UOp(op, (x, row)), UOp(op, (column, x))]
        count = 1 if op in UNARY else 3 if op is Op.MULACC else 2
        return [UOp(op, (x, row, column)[:count]), UOp(op, (column, x, row)[:count]), UOp(op, (row, column, x)[:count])]
    return {
        Op.PERMUTE: [b.permute(x, (1, 0)), b.permute(b.param(5, (2, 2, 2), d), (1, 2, 0))],
        Op.FLIP: [b.flip(x, (True, False)), b.flip(x, (False, True)), b.flip(x, (True, True))],
        Op.RESHAPE: [b.reshape(x, s) for s in ((16,), (2, 2, 4), (4, 2, 2), (1, 4, 4), (4, 1, 4), (2, 8))],
        Op.EXPAND: [b.expand(column, (4, 4)), b.expand(b.reshape(row, (1, 4)), (4, 4)), b.expand(x, (4, 4))],
        Op.PAD: [b.pad(x, (1, 0), (6, 4)), b.pad(x, (0, 2), (4, 6)), b.pad(x, (0, 0), (4, 4))],
        Op.SHRINK: [b.shrink(x, (1, 0), (2, 4)), b.shrink(x, (0, 2), (4, 2)), b.shrink(x, (0, 0), (4, 4))],
        Op.BITCAST: [b.bitcast(b.param(6, s, source), to) for s, source, to in (
            ((4, 4), dt.int32, dt.float32), ((4, 4), dt.int32, dt.uint8), ((4, 4), dt.uint8, dt.int32), ((4,), dt.int16, dt.int32),
            ((2, 1), dt.uint16, dt.uint8), ((1, 1), dt.uint16, dt.uint8), ((2, 8), dt.uint8, dt.int32),
        )],
        Op.REDUCE: [b.reduce(x, Op.MAX, axes) for axes in ((0,), (1,), ())],
    }.get(op, [UOp(op, (x,))])  # fmt: skip


@pytest.mark.parametrize("op", sorted(THROUGH, key=lambda op: op.name), ids=lambda op: op.name)
def test_an_axis_that_goes_through_an_op_goes_through_its_values(op: Op) -> None:
    """What is followed is so; of each op something is."""
    found = 0
    for u in _examples(op):
        assert u.op is op
        verify(u, Dialect.TENSOR)
        leaves = [x for x in toposort(u) if x.op is Op.PARAM]
        draw = SeededDraw(op.value)
        inputs = {f"p{x.arg.slot}": draw_array(draw, x.dtype, x.shape) for x in leaves}
        for axis in [k for k, n in enumerate(u.shape) if n > 1]:
            put = trace_output_axis_to_input_axes([u], axis)
            if put is None:
                continue
            order = np.roll(np.arange(u.shape[axis]), 1)
            other = {k: np.take(v, order, put[x]) if (x := _leaf(leaves, k)) in put else v for k, v in inputs.items()}
            (wanted,), (got,) = run(u, inputs).values, run(u, other).values
            assert same(np.take(wanted, order, axis), got), (op, axis, u.shape)
            found += 1
    assert found


def _leaf(leaves: list[UOp], key: str) -> UOp:
    return next(x for x in leaves if f"p{x.arg.slot}" == key)


def test_an_axis_of_bytes_that_make_words_is_none_of_a_batch() -> None:
    """An element of the last axis is of several of the source, or several are of one."""
    bytes_, words = b.param(0, (4, 8), dt.uint8), b.param(2, (1, 1, 1, 1), dt.uint16)
    assert trace_output_axis_to_input_axes([b.bitcast(bytes_, dt.int32)], 1) is None
    assert trace_output_axis_to_input_axes([b.bitcast(bytes_, dt.int32)], 0) == {bytes_: 0}
    assert trace_output_axis_to_input_axes([b.bitcast(bytes_, dt.int8)], 1) == {bytes_: 1}
    beside = b.param(1, (1, 1, 1, 2), dt.uint8)
    assert trace_output_axis_to_input_axes([b.bitcast(words, dt.uint8), beside], 3) is None


def test_an_extent_that_equals_the_axis_as_an_expression_is_no_single_element() -> None:
    n = b.variable("n", 1, 8)
    four = b.sub(b.add(n, 4), n)
    assert trace_output_axis_to_input_axes([b.expand(b.param(1, (four,), dt.int32), (4,))], 0) is None


def test_most_programs_have_a_relation() -> None:
    assert sum(draw_related_sample(s, SeededDraw(k)) is not None for k, s in enumerate(samples())) > 50


def test_a_rule_is_off_inside_and_on_again_outside() -> None:
    rule = INDEXING[3]
    for module, name, rules in ((rangeify, "INDEXING", INDEXING), (select, "VALUES", SELECTED_VALUES)):
        with run_without_index_or_selection_rule(rule):
            assert rule not in getattr(module, name)
            assert len(getattr(module, name)) == len(rules) - 1
        assert getattr(module, name) is rules


def test_what_a_call_writes_is_given_to_it_as_it_is() -> None:
    """A copy of it would be written instead."""
    out, i = b.buffer(4, dt.int32, unique=1), b.range_(4, 0)
    body = b.sink(b.end(b.store(b.at(b.param(0, (4,), dt.int32), i), b.load(b.at(b.param(1, (4,), dt.int32), i))), i), name="k")
    view, read = b.flip(out, (True,)), b.neg(b.param(5, (4,), dt.int32))
    for written in ((0,), None):
        values = _list_values_to_insert_identity_after(b.after(out, b.call(body, view, read, written=written)))
        assert view not in values
        assert (read in values) is (written == (0,))


def test_an_enclosed_program_stores_a_value_that_it_gives_twice_twice() -> None:
    """Each output has a Buffer of its own (FOUND 147)."""
    x = b.param(1, (3,), dt.float32)
    sample = kinds.sample(4, 0, ("tensor",))._replace(graph=b.tuple_(x, x), inputs={"p1": np.arange(3, dtype=np.float32)})
    enclosed = next(r for r in RELATIONS if r.name == "enclosed").make(sample, SeededDraw(1))
    assert enclosed is not None
    got = enclosed.map_outputs_back(outputs_of(run(enclosed.sample.graph, enclosed.sample.inputs)))
    assert [got[k].tolist() for k in (0, 1)] == [[0.0, 1.0, 2.0]] * 2


def test_without_a_rule_the_steps_of_other_ops_are_the_same() -> None:
    rule = next(r for r in INDEXING if r.lhs.op is Op.XOR)
    table = get_or_make_matcher_table(SELECTED_VALUES)
    assert table[Op.NEG] is not table[Op.XOR]
    with run_without_index_or_selection_rule(rule):
        shorter = get_or_make_matcher_table(select.VALUES)
        assert shorter[Op.NEG] is table[Op.NEG]
        assert shorter[Op.XOR] is not table[Op.XOR]
        assert rule not in shorter.by_op[Op.XOR]
