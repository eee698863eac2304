"""A graph of the second document means what its legal form means: on generated graphs of every family, from either driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uops.fuzz.generate.bestiary.families import FAMILIES, case, describe_legalize_disagreement, generate_family_case
from uops.fuzz.generate.strategies import HypothesisDraw
from uops.interp.bestiary import run
from uops.interp.bestiary.actions import ACTIONS
from uops.interp.bestiary.frame import BestiaryCell
from uops.spec.errors import UopsError
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.text import parse, show
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_dialect
from uops.spec.verify.verifier import verify

SEEDS = range(20)
BESTIARY = {op for op, row in ROWS.items() if row.family is Family.BESTIARY}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_means_what_its_legal_form_means(family: str) -> None:
    for seed in SEEDS:
        found = describe_legalize_disagreement(case(family, seed), order_seed=seed if seed % 2 else None)
        assert found is None, f"seed {seed}: {found}"


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_law_holds_for_shrinking_choices(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    c = generate_family_case(HypothesisDraw(data.draw), family)
    assert describe_legalize_disagreement(c, order_seed=data.draw(st.none() | st.integers(0, 3))) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_graphs_are_well_formed_text(family: str) -> None:
    for seed in SEEDS:
        c = case(family, seed)
        verify(c.graph, Dialect.BESTIARY)
        assert parse(show(c.graph)) is c.graph
        again = case(family, seed)
        assert again.graph is c.graph
        assert {k: np.asarray(x).tobytes() for k, x in again.inputs.items()} == {
            k: np.asarray(x).tobytes() for k, x in c.inputs.items()
        }


def test_the_families_make_every_op_of_the_document() -> None:
    """Machine code and templates of a target have no meaning of their own to compare."""
    made = {u.op for family in FAMILIES for seed in SEEDS for u in toposort(case(family, seed).graph)}
    assert BESTIARY - made == {Op.PROGRAM_BINARY, Op.CUSTOMI}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_most_graphs_of_a_family_are_of_the_second_document(family: str) -> None:
    assert sum(infer_dialect(case(family, seed).graph) is Dialect.BESTIARY for seed in SEEDS) > len(SEEDS) // 2


def _reversed(action: Callable[..., Any]) -> Callable[..., Any]:
    """The action, whose vectors come out the other way round."""
    return lambda s: np.flip(np.asarray(action(s)))


def _one_more(action: Callable[..., Any]) -> Callable[..., Any]:
    return lambda s: np.asarray(action(s)) + np.ones((), np.asarray(action(s)).dtype)


def _ungated(action: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(s: Any) -> Any:
        from dataclasses import replace

        return replace(action(s), gate=None)

    return wrong


def _unordered(action: Callable[..., Any]) -> Callable[..., Any]:
    """The value, but nothing of what happened before."""

    def wrong(s: Any) -> Any:
        return BestiaryCell(action(s), s.frame.base, s.frame)

    return wrong


MUTANTS: dict[Op, tuple[str, Callable[..., Any]]] = {
    Op.VECTORIZE: ("vectorize", _reversed),
    Op.GEP: ("gep", _reversed),
    Op.VCONST: ("vconst", _reversed),
    Op.CAT: ("cat", _reversed),
    Op.CONTRACT: ("contract", _reversed),
    Op.MSTACK: ("mstack", _reversed),
    Op.MSELECT: ("mselect", _reversed),
    Op.ALLREDUCE: ("allreduce", _reversed),
    Op.B_PAD: ("pad", _reversed),
    Op.MIN: ("minimum", _one_more),
    Op.DEFINE_VAR: ("variable", _one_more),
    Op.B_RANGE: ("end", _one_more),
    Op.B_LOAD: ("pointer_index", _one_more),
    Op.REDUCE_AXIS: ("reduce_axis", _one_more),
    Op.B_INDEX: ("gated", _ungated),
    Op.AFTER: ("register", _unordered),
}


@pytest.mark.parametrize("op", MUTANTS, ids=lambda o: o.name)
def test_the_law_notices_a_wrong_meaning(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    family, wrong = MUTANTS[op]
    monkeypatch.setitem(ACTIONS, op, wrong(ACTIONS[op]))  # type: ignore[arg-type]
    assert any(_differs(family, seed) for seed in SEEDS)


def _differs(family: str, seed: int) -> bool:
    c = case(family, seed)
    try:
        run(c.graph, c.inputs)
    except UopsError:
        return True
    return describe_legalize_disagreement(c) is not None
