"""Each dialect rejects every op that is foreign to it, wherever it stands, and accepts its own programs."""

import pytest
from all_examples import GOOD
from dialect_examples import EARLY, LAUNCHED, LISTED, D, body, c, good, instructions, launch, n, put, read

from uops.spec.ir import build as b
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import DIALECTS, WRITTEN_OPS, Dialect, dialects_of
from uops.spec.verify.verifier import find_broken_claims, verify

FOREIGN_OUTSIDE = [(d, op) for d, s in DIALECTS.items() for op in Op if op not in s.outer]
FOREIGN_INSIDE = [(d, op) for d, s in DIALECTS.items() if s.body is not None for op in Op if op not in s.body]


def _name(v):
    return v.name


def _foreign(root, d: Dialect) -> set[Op]:
    return {x.node.op for x in find_broken_claims(root, d) if x.claim.id == f"{d.name}.D1"}


@pytest.mark.parametrize(("d", "op"), FOREIGN_OUTSIDE, ids=_name)
def test_foreign_op_outside_of_kernels(d, op):
    assert op in _foreign(GOOD[op], d)
    assert op in _foreign(n(Op.LINEAR, *good(d).src, GOOD[op]), d)


@pytest.mark.parametrize(("d", "op"), FOREIGN_INSIDE, ids=_name)
def test_foreign_op_inside_of_a_kernel(d, op):
    inside = b.call(b.sink(GOOD[op]))
    assert op in _foreign(inside if d is D.CALLIFIED else n(Op.LINEAR, inside), d)


@pytest.mark.parametrize("d", Dialect, ids=_name)
def test_own_program_is_accepted(d):
    verify(good(d), d)


@pytest.mark.parametrize("d", LAUNCHED, ids=_name)
def test_two_kernels_may_share_ranges(d):
    first = launch(d, put(d, read(d))).src
    verify(n(Op.LINEAR, *first, b.call(body(d, put(d, c(2.0))), *first[0].src[1:])), d)


#: The little programs that two dialects share, in stages of one kind of body.
SHARED = [{D.LINEAR, D.PLANNED}, {D.SELECTED}, {D.KERNEL, D.SCHEDULED, D.EXPANDED, D.SELECTED}]
#: The dialects of launches -> the form of their bodies: loops, lists of instructions, programs.
FORM_OF_BODY = dict.fromkeys((*EARLY, D.SELECTED), 0) | {D.LINEAR: 1, D.PLANNED: 1, D.PROGRAM: 2}


def _dialects_before(d: Dialect) -> set[Dialect]:
    """The dialects whose launches may hold a body written in `d` (R166): those with an earlier form of bodies."""
    return {other for other in LAUNCHED if FORM_OF_BODY[other] < FORM_OF_BODY.get(d, 0)}


@pytest.mark.parametrize("d", Dialect, ids=_name)
def test_programs_of_other_stages_are_rejected(d):
    """But for bodies of a later stage: a launch of an earlier one may hold lists of instructions and programs (R166)."""
    accepting = {other for other in Dialect if not find_broken_claims(good(d), other)}
    expected = next((group for group in SHARED if d in group), {d}) | _dialects_before(d)
    assert accepting == expected | ({D.TENSOR} if d is D.CALLIFIED else set())  # a Tensor program may hold a Call of anything


@pytest.mark.parametrize("d", LISTED, ids=_name)
@pytest.mark.parametrize("around", LAUNCHED, ids=_name)
def test_a_body_of_a_later_stage_is_judged_by_the_forms_of_its_own(d, around):
    """It has the forms of LINEAR or PROGRAM in every launch: an instruction before its sources is rejected everywhere (R166)."""
    effect = put(d, read(d))
    assert find_broken_claims(launch(d, listing=[u for u in instructions(effect) if u.op is not Op.LOAD]), around)
    if FORM_OF_BODY[around] <= FORM_OF_BODY[d]:
        verify(launch(d, effect), around)


def test_opaque_bodies_of_tensor_calls_are_not_judged_by_the_dialect():
    kernel = b.call(body(D.KERNEL, put(D.KERNEL, read(D.KERNEL))), *launch(D.KERNEL).src[0].src[1:])
    verify(b.sink(kernel), D.TENSOR)


def test_every_op_has_a_dialect():
    for op, row in ROWS.items():
        found = dialects_of(op)
        if row.family is Family.BESTIARY:
            assert D.BESTIARY in found
            assert found == (D.BESTIARY,) or op is Op.MIN or op in WRITTEN_OPS  # kernels written by hand have a CustomI, too
        elif op not in (Op.CUSTOM_FUNCTION,):
            assert set(found) - {D.BESTIARY}, op
