"""Each dialect rejects every op that is foreign to it, wherever it stands, and accepts its own programs."""

import pytest
from all_examples import GOOD
from dialect_examples import LAUNCHED, D, body, c, good, launch, n, put, read

from uops.spec.ir import build as b
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import DIALECTS, Dialect, dialects_of
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


#: The little programs that two dialects share.
SHARED = [{D.LINEAR, D.PLANNED}, {D.SELECTED}, {D.KERNEL, D.SCHEDULED, D.EXPANDED, D.SELECTED}]


@pytest.mark.parametrize("d", Dialect, ids=_name)
def test_programs_of_other_stages_are_rejected(d):
    accepting = {other for other in Dialect if not find_broken_claims(good(d), other)}
    expected = next((group for group in SHARED if d in group), {d})
    assert accepting == expected | ({D.TENSOR} if d is D.CALLIFIED else set())  # a Tensor program may hold a Call of anything


def test_opaque_bodies_of_tensor_calls_are_not_judged_by_the_dialect():
    kernel = b.call(body(D.KERNEL, put(D.KERNEL, read(D.KERNEL))), *launch(D.KERNEL).src[0].src[1:])
    verify(b.sink(kernel), D.TENSOR)


def test_every_op_has_a_dialect():
    for op, row in ROWS.items():
        found = dialects_of(op)
        if row.family is Family.BESTIARY:
            assert found == (D.BESTIARY,) or op is Op.MIN
        elif op not in (Op.CUSTOM_FUNCTION,):
            assert set(found) - {D.BESTIARY}, op
