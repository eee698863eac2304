"""Constants of decompositions are the well-formed ones (R23), whichever Python number asked for them first."""

import pytest

from uops.compiler.decompose.build import build_constant_or_stack_of_copies
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

#: Numbers that are equal to Python, in the order in which they are asked for; no other test asks for those above 1.
EQUAL: list[list[bool | int | float]] = [[0, False, 0.0], [False, 0.0, 0], [1.0, True, 1], [1, 1.0, True], [11.0, 11], [-0.0, 0.0]]


@pytest.mark.parametrize("d", [dt.bool_, *dt.INTS, *dt.FLOATS], ids=lambda d: d.name)
@pytest.mark.parametrize("numbers", EQUAL, ids=str)
def test_equal_numbers_are_the_constant_that_the_builder_makes(numbers: list[bool | int | float], d: DType) -> None:
    for n in numbers:
        assert build_constant_or_stack_of_copies(n, d) is b.const(n, d)
        assert build_constant_or_stack_of_copies(n, d, (2,)).src == (b.const(n, d),) * 2
