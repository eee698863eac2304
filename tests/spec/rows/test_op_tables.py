"""What the specification says of every op: no table leaves one out. Each failure names the file to edit."""

import inspect
from collections.abc import Iterator

import pytest

from uops.spec.ir.ops import ALU, Op

CORE = sorted(ALU - {Op.MIN}, key=lambda op: op.value)


def test_every_op_has_a_row() -> None:
    from uops.spec.rows.rows import ROWS

    missing = set(Op) - ROWS.keys()
    assert not missing, f"spec/rows/table/elementwise.py or spec/rows/table/decomposed.py: add the row of {missing}"


def test_every_op_has_a_gradient() -> None:
    from uops.spec.rows.gradients.reverse import GRADIENTS
    from uops.spec.rows.rows import ROWS  # which asserts it at import

    assert GRADIENTS.keys() == ROWS.keys()


def test_every_op_has_a_rule_of_each_property() -> None:
    from uops.spec.ir import derive  # which asserts it at import
    from uops.spec.ir.node import RULES

    assert all(rules.keys() == set(Op) for rules in RULES.values()), derive.__file__


@pytest.mark.parametrize("op", CORE, ids=lambda op: op.name)
def test_the_operands_have_the_names_and_number_of_the_row(op: Op) -> None:
    from uops.spec.ir.operands import OPERANDS
    from uops.spec.rows.signatures import arity

    assert op in OPERANDS, f"spec/ir/operands.py: name the operands of {op}"
    assert len(OPERANDS[op].split()) == arity(op), f"spec/ir/operands.py or the schema in spec/rows/table: operands of {op}"


def test_every_elementwise_op_has_an_accuracy() -> None:
    from uops.spec.rows.accuracy import ACCURACY  # which asserts it at import

    assert ACCURACY.keys() == ALU


def test_every_approximated_op_has_a_ruling() -> None:
    from uops.spec.rows.accuracy import ACCURACY, Accuracy
    from uops.spec.rows.rows import ROWS
    from uops.spec.rulings import RULINGS

    topics = {name for ruling in RULINGS.values() for name in ruling.topic.split(", ")}
    names = {ROWS[op].name for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED}
    assert names <= topics, f"spec/rulings.md: say how exact {names - topics} is"


def _built_ops() -> Iterator[Op]:
    """The ops of what the builders make of constants: of floats, integers and bools."""
    from uops.spec.errors import SpecError
    from uops.spec.ir import build as b

    for name, builder in vars(b).items():
        if name.startswith("_") or not inspect.isfunction(builder) or builder.__module__ != b.__name__:
            continue
        parameters = inspect.signature(builder).parameters.values()
        if not parameters or any(p.annotation not in ("Value", p.empty) for p in parameters):
            continue
        for constant in (1.5, 1, True):
            try:
                yield builder(*[b.const(constant)] * len(parameters)).op
            except SpecError:
                continue


def test_every_elementwise_op_has_a_builder() -> None:
    from uops.spec.ir import build as b
    from uops.spec.ir import dtypes as dt

    built = {*_built_ops(), b.threefry(b.const(1, dt.uint64), b.const(1, dt.uint64)).op, b.cast(b.const(1), dt.int8).op}
    assert built >= set(CORE), f"spec/ir/build.py: add the builder of {set(CORE) - built}"
