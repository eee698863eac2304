"""What both interpreters and the allowed sets say of every elementwise op: no table leaves one out. Each failure names the file."""

import pytest

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import ALU, Op

DTYPES = (*dt.STORABLE, dt.index)


def _accepted(op: Op) -> set[DType]:
    from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes

    return {d for d in DTYPES if accepts_dtypes(op, operand_dtypes(op, d))}


@pytest.mark.parametrize("op", sorted(ALU - {Op.CAST, Op.MIN}, key=lambda op: op.value), ids=lambda op: op.name)
def test_the_numpy_interpreter_has_a_kernel_for_every_dtype_that_the_row_accepts(op: Op) -> None:
    from uops.interp.ops.elementwise import KERNELS

    missing = (_accepted(op) | ({dt.bool_} if op is Op.WHERE else set())) ^ KERNELS[op].keys()
    assert not missing, f"interp/ops/elementwise.py: the kernels of {op} and its row differ on {missing}"


@pytest.mark.parametrize("op", sorted(ALU - {Op.CAST}, key=lambda op: op.value), ids=lambda op: op.name)
def test_the_exact_interpreter_means_every_dtype_that_the_row_accepts(op: Op) -> None:
    from uops.interp.exact.elementwise import evaluate_op
    from uops.spec.errors import SpecError
    from uops.spec.ir.ops import COMPARE
    from uops.spec.rows.signatures import operand_dtypes

    meant = set[DType]()
    for d in DTYPES:
        kinds = operand_dtypes(op, d)
        try:
            evaluate_op(op, kinds, dt.bool_ if op in COMPARE else d, (0,) * len(kinds))
        except SpecError:
            continue
        meant.add(d)
    assert meant == _accepted(op), f"interp/exact/elementwise.py: the meaning of {op} and its row differ on {meant ^ _accepted(op)}"


def test_every_elementwise_op_has_an_allowed_set() -> None:
    from uops.interp.allowed.elementwise.transcendental import APPROXIMATIONS
    from uops.interp.allowed.rules import STRICT_RULES  # which asserts it at import
    from uops.spec.rows.accuracy import ACCURACY, Accuracy

    approximated = {op for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED}
    assert STRICT_RULES.keys() >= ALU
    missing = approximated ^ (APPROXIMATIONS.keys() | {Op.POW})
    assert not missing, f"interp/allowed/elementwise/transcendental.py: {missing} is approximated here, or in its accuracy, only"


def test_every_elementwise_op_has_a_set_at_core() -> None:
    from uops.interp.allowed.core import CORE_WIDENINGS, NOT_WIDENED

    missing = (CORE_WIDENINGS.keys() | NOT_WIDENED) ^ ALU
    assert not missing, f"interp/allowed/core.py: say how core widens {missing}"
    assert not CORE_WIDENINGS.keys() & NOT_WIDENED, "interp/allowed/core.py"
