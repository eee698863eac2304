"""Every claim has a graph it accepts and graphs it rejects, for exactly its id, and only as long as its check is on."""

import pytest
from all_examples import EXAMPLES, GOOD

from uops.interp import evaluate, run
from uops.spec.errors import SpecError
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import CLAIMS, ROWS
from uops.spec.rulings import RULINGS
from uops.spec.verify.verifier import find_broken_claims

pytestmark = pytest.mark.filterwarnings("error")


def _broken(id: str, root, **options):
    e = EXAMPLES[id]
    return {x.claim.id for x in find_broken_claims(root, e.dialect, target=e.target, **options)}


def _is_rejected(id: str, disabled: frozenset[str] = frozenset()) -> bool:
    """Whether each rejected graph of a claim breaks it and nothing else."""
    return all(_broken(id, g, disabled=disabled) == {id} for g in EXAMPLES[id].rejected)


def test_every_claim_has_examples():
    assert set(EXAMPLES) == set(CLAIMS)


def test_every_op_has_a_row_and_a_well_formed_node():
    assert set(ROWS) == set(Op) == set(GOOD)


@pytest.mark.parametrize("op", Op, ids=lambda o: o.name)
def test_well_formed_node_breaks_nothing(op):
    assert GOOD[op].op is op
    assert [str(x) for x in find_broken_claims(GOOD[op])] == []


@pytest.mark.parametrize("id", CLAIMS)
def test_accepted(id):
    e = EXAMPLES[id]
    assert [str(x) for x in find_broken_claims(e.accepted, e.dialect, target=e.target)] == []


@pytest.mark.parametrize("id", CLAIMS)
def test_rejected_for_exactly_this(id):
    for g in EXAMPLES[id].rejected:
        assert _broken(id, g) == {id}, [str(x) for x in find_broken_claims(g, EXAMPLES[id].dialect)]


@pytest.mark.parametrize("id", CLAIMS)
def test_switched_off_the_rejection_test_fails(id):
    assert _is_rejected(id)
    assert not _is_rejected(id, frozenset({id}))
    assert all(id not in _broken(id, g, disabled={id}) for g in EXAMPLES[id].rejected)


@pytest.mark.parametrize("id", [id for id, e in EXAMPLES.items() if e.dialect is None])
def test_the_interpreter_refuses_what_breaks_a_claim(id):
    """Those of dialects say where a graph may stand, not what it means."""
    for g in EXAMPLES[id].rejected:
        with pytest.raises(SpecError) as broken:
            run(g, {})
        assert broken.value.claim == id
        with pytest.raises(SpecError) as broken:
            evaluate(g, {})
        assert broken.value.claim == id


def test_claims_rest_on_rulings_that_exist():
    assert {c.ruling for c in CLAIMS.values() if c.ruling} <= set(RULINGS)


def test_claim_texts_tell_claims_of_a_row_apart():
    for row in ROWS.values():
        texts = [c.text for c in row.claims]
        assert len(set(texts)) == len(texts), row.id
