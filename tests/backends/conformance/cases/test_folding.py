"""Cases that a compiler decides: every op of a wrapped range leaves the range of its dtype."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.cases.folding import _make_wrapped_range_case
from uops.interp import run
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

EXACT: dict[Op, Callable[..., Any]] = {
    Op.ADD: operator.add, Op.MUL: operator.mul, Op.SUB: operator.sub, Op.NEG: operator.neg, Op.SHL: operator.lshift,
    Op.CAST: lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("d", dt.INTS, ids=lambda d: d.name)
def test_every_op_of_a_wrapped_range_wraps(d: DType) -> None:
    values = dict.fromkeys(comparison.src[0] for comparison in _make_wrapped_range_case(Op.CMPLT, d).graph.src)
    assert [u.op for u in values] == [*EXACT]
    for u in values:
        operands = [np.asarray(run(s, {}).values[0]).astype(object) for s in u.src]
        exact = np.broadcast_arrays(*operands)
        elements = [EXACT[u.op](*map(int, given)) for given in zip(*exact, strict=True)]
        assert len(elements) == 10 and any(not d.min <= v <= d.max for v in elements), u.op
