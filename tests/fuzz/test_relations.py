"""Metamorphic relations: what they make is well-formed and gives, in the interpreter, what the first program gives."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends.conformance.judge import outputs_of
from uops.compiler.compiled import steps
from uops.compiler.passes import select
from uops.compiler.rules import INDEXING
from uops.fuzz import kinds
from uops.fuzz.draw import SeededDraw
from uops.fuzz.kinds import Sample
from uops.fuzz.relations import IDENTITIES, RELATIONS, Relation, _above, _places, related, without
from uops.interp import run
from uops.spec.dialects import Dialect
from uops.spec.node import toposort
from uops.spec.ops import Op
from uops.spec.verify import verify


def samples() -> list[Sample]:
    return [kinds.sample(4, k, ("tensor", "programs", "bodies")) for k in range(60)]


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
        assert found.sample.graph is not s.graph or relation.name in ("renamed", "flipped", "permuted")
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
