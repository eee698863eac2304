"""R29, R70: the bounds of And, Or and Xor hold for every pair of operands, and are tight where an operand complements or is 0."""

from itertools import combinations_with_replacement, product

import pytest

from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

MEANING = {Op.AND: lambda a, b: a & b, Op.OR: lambda a, b: a | b, Op.XOR: lambda a, b: a ^ b}


def _bounded(name: str, lo: int, hi: int, d: DType) -> UOp:
    return UOp(Op.PARAM, (B.shape_vector(()),), ParamArg(0, d, name=name, bounds=(lo, hi)))


@pytest.mark.parametrize("op", MEANING)
@pytest.mark.parametrize(("d", "values"), [(dt.index, range(-5, 6)), (dt.int8, (-128, -127, -65, -2, -1, 0, 1, 63, 64, 126, 127))])
def test_bounds_hold_every_result(op: Op, d: DType, values: range) -> None:
    for (a, A), (b, B_) in product(combinations_with_replacement(values, 2), repeat=2):
        results = [MEANING[op](x, y) for x in range(a, A + 1) for y in (range(b, B_ + 1) if d is dt.index else (b, B_))]
        lo, hi = UOp(op, (_bounded("x", a, A, d), _bounded("y", b, B_, d))).min_max or (0, 0)
        assert lo <= min(results) and max(results) <= hi, (a, A, b, B_)
        assert max(map(abs, (lo, hi))) < 2 * max(1, *map(abs, (a, A, b, B_))) + 1


@pytest.mark.parametrize(("op", "k"), [(Op.OR, 0), (Op.OR, -1), (Op.XOR, 0), (Op.XOR, -1), (Op.AND, 0)])
def test_bounds_with_all_bits_alike_are_exact(op: Op, k: int) -> None:
    for a, A in combinations_with_replacement(range(-9, 10), 2):
        results = [MEANING[op](x, k) for x in range(a, A + 1)]
        for src in ((_bounded("x", a, A, dt.index), B.index(k)), (B.index(k), _bounded("x", a, A, dt.index))):
            assert UOp(op, src).min_max == (min(results), max(results))


def test_the_complement_of_a_wide_index_still_fits_int64() -> None:
    assert UOp(Op.XOR, (_bounded("n", -(2**62), 2**62, dt.index), B.index(-1))).min_max == (~(2**62), ~-(2**62))
