"""Values of counterexamples in the interpreter."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.typings import enumerate_rule_typings
from uops.compiler.rewrite.rules import fast_math
from uops.spec.ir import dtypes as dt


@pytest.mark.parametrize(("value", "expected"), [(10**400, math.inf), (-(10**400), -math.inf), (3, 3.0)])
def test_a_real_number_beyond_float64_is_an_infinity(value: int, expected: float) -> None:
    rule = next(iter(fast_math.THEMES.values()))[0]
    typing = next(iter(enumerate_rule_typings(rule)))
    values = {name: Fraction(value) for name in typing.types if isinstance(name, str)}
    graphs = RuleCounterexample(rule, typing, values).build_graphs_and_inputs()
    given = [np.array(bits, np.uint64).view(np.float64).item() for d, bits in graphs.inputs.values() if d is dt.float64]
    assert given and set(given) == {expected}
