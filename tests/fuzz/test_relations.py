"""Metamorphic relations: what they make is well-formed and gives, in the interpreter, what the first program gives."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.conformance.judge import outputs_of
from uops.compiler.compiled import steps
from uops.compiler.passes import select
from uops.compiler.rules import INDEXING
from uops.fuzz import kinds
from uops.fuzz.batch import along
from uops.fuzz.draw import SeededDraw
from uops.fuzz.kinds import Sample
from uops.fuzz.relations import IDENTITIES, RELATIONS, Relation, _above, _places, related, without
from uops.interp import run
from uops.spec import build as b
from uops.spec import dtypes as dt
from uops.spec.dialects import Dialect
from uops.spec.node import toposort
from uops.spec.ops import Op
from uops.spec.verify import verify


def samples() -> list[Sample]:
    return [kinds.sample(4, k, ("tensor", "programs", "bodies", "rules", "reduces")) for k in range(150)]


def same(x: object, y: object) -> bool:
    a, b = np.asarray(x), np.asarray(y)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.tobytes() == b.tobytes() or bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.name)
def test_a_related_program_gives_the_same(relation: Relation) -> None:
    tried = 0
    for k, s in enumerate(samples()):
        found = relation.make(s, SeededDraw(k))
        if found is None:
            continue
        verify(found.sample.graph, Dialect.TENSOR)
        wanted = outputs_of(run(s.graph, s.inputs))
        got = found.back(outputs_of(run(found.sample.graph, found.sample.inputs)))
        assert all(same(v, got[key]) for key, v in wanted.items()), (k, relation.name)
        assert found.sample.graph is not s.graph or relation.name in ("renamed", "flipped", "permuted", "batched")
        tried += 1
    assert tried > 15


@pytest.mark.parametrize("form", IDENTITIES, ids=lambda f: f.__name__)
def test_an_identity_changes_nothing(form: object) -> None:
    tried = 0
    for k, s in enumerate(samples()[:40]):
        draw = SeededDraw(k)
        places = _places(s.graph)
        new = form(u, draw, s.graph) if places and (u := draw.choice(places)) else None  # type: ignore[operator]
        if new is None:
            continue
        graph = _above(s.graph, u, new)
        verify(graph, Dialect.TENSOR)
        wanted, got = outputs_of(run(s.graph, s.inputs)), outputs_of(run(graph, s.inputs))
        assert all(same(v, got[key]) for key, v in wanted.items()), k
        assert new in toposort(graph)
        tried += 1
    assert tried > 8


def test_an_axis_that_an_op_lies_across_is_none_of_a_batch() -> None:
    x, y = b.param(0, (4, 3), dt.int32), b.param(1, (4, 1), dt.int32)
    rows = b.add(b.reduce(x, Op.ADD, (1,)), y)
    assert along([rows], 0) == {x: 0, y: 0}
    assert along([b.permute(rows, (1, 0))], 1) == {x: 0, y: 0}
    assert along([b.reshape(b.add(x, b.expand(y, (4, 3))), (2, 2, 3))], 0) is None
    assert along([b.reshape(x, (1, 4, 3))], 1) == {x: 0}
    assert along([b.add(x, b.expand(b.reduce(y, Op.MAX, (0,)), (4, 3)))], 0) == {x: 0}
    assert along([b.add(x, b.expand(y, (4, 3)))], 1) == {x: 1}
    assert along([b.flip(x, (True, False))], 0) is None
    assert along([b.pad(x, (1, 0), (6, 3))], 0) is None
    assert along([b.pad(x, (0, 1), (4, 5))], 0) == {x: 0}
    assert along([b.add(b.param(0, (2, 1), dt.int32), b.param(1, (1, 2), dt.int32))], 0) == {b.param(0, (2, 1), dt.int32): 0}
    memory = b.buffer(4, dt.int32, unique=1)
    assert along([b.reshape(memory, (4, 1)), y], 0) == {memory: 0, y: 0}
    square = b.param(2, (3, 3), dt.int32)
    assert along([b.add(square, b.permute(square, (1, 0)))], 0) is None


def test_an_op_across_the_batch_is_seen() -> None:
    """What is left out of `_place` or `_below` would be a false alarm: rows that are added up are of no batch."""
    x = b.param(0, (4, 3), dt.int32)
    crossed = b.add(x, b.flip(x, (True, False)))
    assert along([crossed], 0) is None
    assert along([crossed], 1) == {x: 1}


def test_most_programs_have_a_relation() -> None:
    assert sum(related(s, SeededDraw(k)) is not None for k, s in enumerate(samples())) > 50


def test_a_rule_is_off_inside_and_on_again_outside() -> None:
    rule = INDEXING[3]
    with without(rule):
        assert rule not in select.VALUES
        assert len(select.VALUES) == len(INDEXING) - 1
    assert select.VALUES is INDEXING


def test_without_a_rule_the_steps_of_other_ops_are_the_same() -> None:
    rule = next(r for r in INDEXING if r.lhs.op is Op.XOR)
    assert steps(INDEXING)[Op.NEG] is not steps(INDEXING)[Op.XOR]
    with without(rule):
        shorter = steps(select.VALUES)
        assert shorter[Op.NEG] is steps(INDEXING)[Op.NEG]
        assert shorter[Op.XOR] is not steps(INDEXING)[Op.XOR]
        assert rule not in shorter.by_op[Op.XOR]
