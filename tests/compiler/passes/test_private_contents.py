"""Which iterations of a loop may find what an earlier one left in a register."""

from __future__ import annotations

import pytest

from uops.compiler.passes.private_contents import may_read_before_writing
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

N = 4
REG = b.buffer(N, dt.int32, addrspace=AddrSpace.REG, unique=1)
FOUR, FEWER, PERHAPS = b.range_(N, 1), b.range_(3, 2), b.range_(b.variable("n", 0, 1), 3)
LANE = b.range_(N, 4, AxisType.LOCAL)
ONE = b.const(1, dt.int32)


def write(at: UOp | int, gate: UOp | None = None) -> UOp:
    return b.store(b.at(REG, at), ONE) if gate is None else b.store(b.at(REG, at), ONE, gate)


def read(at: UOp | int) -> UOp:
    return b.load(b.at(REG, at))


@pytest.mark.parametrize(
    ("accesses", "expected"),
    [
        ([(write(0), ()), (read(0), ())], False),
        ([(read(0), ()), (write(0), ())], True),
        ([(write(0), ()), (read(1), ())], True),
        ([(write(0), ()), (read(0), ()), (write(1), ()), (read(1), ())], False),
        ([(write(0, b.lt(FOUR, 2)), ()), (read(0), ())], True),
        ([(write(0), (PERHAPS,)), (read(0), (PERHAPS,))], False),
        ([(write(0), (PERHAPS,)), (read(0), ())], True),
        ([(write(0), (FOUR,)), (read(0), ())], False),
        ([(write(FOUR), (FOUR,)), (read(FEWER), (FEWER,))], False),
        ([(write(b.cast(FOUR, dt.int32)), (FOUR,)), (read(3), ())], False),
        ([(write(FOUR), (PERHAPS, FOUR)), (read(3), ())], True),
        ([(write(FEWER), (FEWER,)), (read(3), ())], True),
        ([(write(LANE), (LANE,)), (read(3), ())], True),
        ([(UOp(Op.STORE, (REG, b.stack(*[ONE] * N))), ()), (read(FOUR), (FOUR,))], False),
        ([(UOp(Op.ATOMICADD, (b.at(REG, 0), ONE)), ())], True),
        ([(UOp(Op.CUSTOM, (REG,)), ())], True),
    ],
    ids=[
        "write read", "read write", "another element", "element by element", "gated", "in a loop", "behind a loop",
        "behind a loop that runs", "filled", "filled by a cast counter", "perhaps filled", "partly filled", "by lanes",
        "whole", "atomic", "native text",
    ],
)  # fmt: skip
def test_an_iteration_may_read_what_it_does_not_write_first(accesses: list[tuple[UOp, tuple[UOp, ...]]], expected: bool) -> None:
    assert may_read_before_writing(REG, accesses) == expected
