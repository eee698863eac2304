"""Every gradient rule agrees with exact forward mode and with differences, and each of these finds the rule planted wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

import numpy as np
import pytest

from uops import Tensor
from uops.backends.conformance.gradients.differences import find_gradient_far_from_differences
from uops.backends.conformance.gradients.duals import (
    NotComparable,
    find_wrong_gradient_at_first_comparable_draw,
    find_wrong_gradient_at_random_point,
)
from uops.backends.conformance.gradients.programs import PROGRAMS
from uops.compiler.tensor.realize import capture
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import generate_tensor_graph
from uops.fuzz.generate.producers import FEATURES
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.gradients import reverse
from uops.spec.rows.gradients.base import Cotangent, Gradient, GradientRule

#: Producers of graphs of rational numbers on one device.
RATIONAL = FEATURES - {"exp2", "log2", "sin", "sqrt", "pow", "bitcast", "threefry", "call", "shards", "everywhere", "sink"}
RULES = [op for op, gradient in reverse.GRADIENTS.items() if gradient.rule is not None]


def _judges(is_rational: bool) -> list[Callable[..., str | None]]:
    return [find_gradient_far_from_differences, *([find_wrong_gradient_at_first_comparable_draw] if is_rational else [])]


def test_every_rule_has_a_program() -> None:
    assert PROGRAMS.keys() == set(RULES), "backends/conformance/gradients/programs.py"


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_a_rule_agrees_with_its_judges(op: Op) -> None:
    graph, inputs, is_rational = PROGRAMS[op]
    for judge in _judges(is_rational):
        assert all(judge(graph, inputs, seed) is None for seed in range(3))


def _scaled(
    rule: GradientRule, u: UOp, g: Any, needed: Set[UOp], factor: float, only: int | None
) -> Iterator[tuple[UOp, Cotangent]]:
    for k, (operand, c) in enumerate(rule(u, g, needed)):
        is_wrong = only is None or k == only
        if isinstance(c, UOp):
            yield operand, b.mul(c, factor) if is_wrong else c
        else:
            yield operand, tuple(None if x is None else b.mul(x, factor) if is_wrong else x for x in c)


@pytest.mark.parametrize("judge", _judges(True), ids=lambda j: j.__module__.rpartition(".")[2])
def test_a_wrong_gradient_of_one_element_is_found_at_every_draw(
    judge: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No draw has a weight or a direction of 0, at which every gradient is right."""
    x = b.param(0, (1,), dt.float64)

    def differentiate_wrongly(*given: Any) -> dict[UOp, UOp]:
        return {u: b.mul(g, 2.0) for u, g in reverse.differentiate(*given).items()}

    monkeypatch.setattr(f"{judge.__module__}.differentiate", differentiate_wrongly)
    assert all(judge(b.mul(x, 3.0), {"p0": np.ones(1)}, seed) for seed in range(100))


#: What is wrong with a planted rule -> (factor, the number of the only contribution that is wrong).
WRONG = {"sign": (-1.0, None), "size": (1.0625, None), "nothing flows": (0.0, None), "first operand": (2.0, 0)}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_a_wrong_rule_is_found(op: Op, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = reverse.GRADIENTS[op].rule
    assert right is not None
    factor, only = WRONG[what]

    def wrong(u: UOp, g: Any, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
        return _scaled(right, u, g, needed, factor, only)

    monkeypatch.setitem(reverse.GRADIENTS, op, Gradient("planted", wrong))
    graph, inputs, is_rational = PROGRAMS[op]
    for judge in _judges(is_rational):
        assert any(judge(graph, inputs, seed) for seed in range(3)), judge.__name__


def test_a_gradient_that_no_memory_holds_is_not_judged() -> None:
    """The gradient of 32,769 elements that are read at nine positions (FOUND 262)."""
    x = Tensor(np.zeros(32769, np.float32))
    graph, inputs = capture(x[Tensor(np.arange(9, dtype=np.int32))])
    with pytest.raises(NotComparable, match="2,147,647,490 fractions"):
        find_wrong_gradient_at_random_point(graph, inputs, 0)


def test_random_rational_graphs_have_exact_gradients() -> None:
    judged = 0
    for seed in range(400):
        graph, inputs = generate_tensor_graph(
            SeededDraw(seed), nodes=2 + seed % 11, max_elements=32, dtypes=(dt.float32, dt.float64, dt.float16), features=RATIONAL
        )
        try:
            assert find_wrong_gradient_at_random_point(graph, inputs, seed) is None
            judged += 1
        except NotComparable:
            pass
    assert judged > 100
