"""Selection of instructions: what is refused."""

from __future__ import annotations

import pytest

from uops.backends.llvm.target import LlvmTarget
from uops.compiler.passes.select.select import select_instructions
from uops.spec.errors import Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op


def _atomic_add(d: DType) -> UOp:
    return b.sink(UOp(Op.ATOMICADD, (b.at(b.param(0, (4,), d), 1), b.const(1, d))), name="k")


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.fp8e4m3])
def test_an_atomic_add_of_a_small_float_is_refused_R56(d: DType) -> None:
    with pytest.raises(Unsupported, match="AtomicAdd of"):
        select_instructions(_atomic_add(d), LlvmTarget())


def test_an_atomic_add_of_a_native_float_stays() -> None:
    assert len(nodes_with_op(select_instructions(_atomic_add(dt.float32), LlvmTarget()).simplify, Op.ATOMICADD)) == 1
