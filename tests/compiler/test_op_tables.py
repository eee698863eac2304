"""What the compiler and its prover know of every elementwise op: no table leaves one out. Each failure names the file to edit."""

from itertools import product

import pytest

from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import ALU, COMPARE, SHIFT, Op

CORE = sorted(ALU - {Op.MIN}, key=lambda op: op.value)


def test_every_elementwise_op_is_folded_or_never_folded() -> None:
    from uops.compiler.rewrite.fold import FOLD, UNFOLDED  # which asserts it at import

    assert not FOLD.keys() & UNFOLDED, "compiler/rewrite/fold.py"


def test_every_folded_op_has_a_rule() -> None:
    from uops.compiler.rewrite.fold import FOLD
    from uops.compiler.rewrite.rules.folding import FOLDS  # which asserts it at import

    assert {rule.lhs.op for rule in FOLDS} == FOLD.keys()


def test_every_commutative_op_is_known_to_be() -> None:
    """By their meaning: the exact interpreter gives the same for swapped operands of 8 bits, and of bools."""
    from uops.compiler.rewrite.pattern import COMMUTATIVE
    from uops.interp.exact.elementwise import evaluate_canonical
    from uops.spec.ir.ops import BINARY
    from uops.spec.rows.signatures import accepts_dtypes

    samples = (0, 1, 2, 3, 7, 56, 64, 127, 128, 184, 255)
    commutes = set[Op]()
    for op in BINARY - {Op.MIN, Op.THREEFRY}:
        kinds = [d for d in (dt.int8, dt.uint8, dt.fp8e5m2, dt.bool_) if accepts_dtypes(op, (d, d))]
        same = [
            evaluate_canonical(op, (d, d), out, x, y) == evaluate_canonical(op, (d, d), out, y, x)
            for d in kinds
            for out in [dt.bool_ if op in COMPARE else d]
            for x, y in product((0, 1) if d is dt.bool_ else samples, repeat=2)
            if op is not Op.MAX or not d.is_float  # either of two zeros
        ]
        if all(same):
            commutes.add(op)
    assert commutes == set(COMMUTATIVE), f"compiler/rewrite/pattern.py: COMMUTATIVE is wrong about {commutes ^ set(COMMUTATIVE)}"


def test_every_elementwise_op_has_costs() -> None:
    from uops.compiler.rewrite.costs import COSTS  # which asserts it at import

    assert all(cost.weight > 0 and cost.work > 0 for cost in COSTS.values())


def test_every_elementwise_op_reaches_the_target_or_is_decomposed() -> None:
    from uops.compiler.decompose.elementary import WIDE_RULES
    from uops.compiler.passes.select.select import _OWN
    from uops.compiler.target import PLAIN_OPS

    lost = set(CORE) - PLAIN_OPS - WIDE_RULES.keys() - _OWN.keys()
    assert not lost, f"compiler/decompose/elementary.py: decompose {lost}, which plain targets lack"


def test_every_elementwise_op_is_lowered_on_small_floats() -> None:
    from uops.compiler.decompose.small import SMALL_RULES  # which asserts it at import
    from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes

    missing = {op for op in CORE if op not in (Op.CAST, Op.WHERE) and accepts_dtypes(op, operand_dtypes(op, dt.float16))}
    assert missing == SMALL_RULES.keys() - {Op.MIN}, f"compiler/decompose/small.py: {missing ^ SMALL_RULES.keys()}"


def test_the_prover_types_ops_as_their_rows_do() -> None:
    from uops.compiler.prove.semantics import UNMODELLED, infer_result_dtype_if_legal
    from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes

    wrong = [
        (op.name, d.name)
        for op in CORE
        if op is not Op.CAST and op not in UNMODELLED
        for d in (*dt.STORABLE, dt.index)
        if (op, d) != (Op.TRUNC, dt.bool_)  # the identity, of which no rule speaks
        if (infer_result_dtype_if_legal(op, operand_dtypes(op, d)) is not None) != accepts_dtypes(op, operand_dtypes(op, d))
    ]
    assert not wrong, f"compiler/prove/semantics.py: which dtypes an op takes is not what its row says: {wrong}"


@pytest.mark.parametrize("op", [op for op in CORE if op not in SHIFT | {Op.CAST, Op.WHERE}], ids=lambda op: op.name)
def test_the_prover_has_a_row_for_every_dtype_that_it_types(op: Op) -> None:
    from uops.compiler.prove.model import Representation as R
    from uops.compiler.prove.semantics import TABLES, UNMODELLED, infer_result_dtype_if_legal
    from uops.spec.rows.signatures import operand_dtypes

    tables = {
        dt.bool_: [R.BOOL],
        dt.int8: [R.BITS, R.WHOLE],
        dt.uint8: [R.BITS, R.WHOLE],
        dt.index: [R.WHOLE],
        dt.float32: [R.FLOAT],
    }
    for d, representations in tables.items():
        if op not in UNMODELLED and infer_result_dtype_if_legal(op, operand_dtypes(op, d)) is not None:
            missing = [r.value for r in representations if op not in TABLES[r]]
            assert not missing, f"compiler/prove/semantics.py: add the row of {op} on {d} as {missing}"


def test_the_prover_has_a_row_over_the_real_numbers() -> None:
    from uops.compiler.prove import reals, semantics
    from uops.spec.rows.signatures import operand_dtypes

    lost = {
        op
        for op in CORE
        if op not in SHIFT | reals.UNMODELLED | semantics.UNMODELLED | {Op.CAST, Op.WHERE}
        and semantics.infer_result_dtype_if_legal(op, operand_dtypes(op, dt.float32)) is not None
        and op not in reals.ROWS
    }
    assert not lost, f"compiler/prove/reals.py: add the rows of {lost}"


def test_the_validator_reads_every_op_of_integers() -> None:
    from uops.compiler.validate.reader import _RULES
    from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes

    integer = {op for op in CORE if op is not Op.CAST and accepts_dtypes(op, operand_dtypes(op, dt.int32))}
    assert integer <= _RULES.keys(), f"compiler/validate/reader.py: add the rules of {integer - _RULES.keys()}"


def test_instruction_selection_may_leave_every_op_of_plain_targets() -> None:
    from uops.compiler.target import PLAIN_OPS
    from uops.spec.verify.dialects import SELECTED_OPS

    assert PLAIN_OPS & ALU <= SELECTED_OPS, f"spec/verify/dialects.py: add {(PLAIN_OPS & ALU) - SELECTED_OPS} to SELECTED_OPS"
