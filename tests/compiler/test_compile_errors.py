"""What the compiler cannot translate is shown as a line of text, with the ruling and where it was built."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from uops.compiler import Target, lower
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.expand import expand
from uops.compiler.passes.linearize import order_instructions
from uops.compiler.passes.select.index_widths import lower_index_arithmetic
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir import origins
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def _wide() -> None:
    i = b.range_(1 << 70, 0)
    lower_index_arithmetic(
        b.sink(b.end(b.store(b.at(b.param(0, (4,), dt.int8), UOp(Op.MOD, (i, b.index(4)))), b.const(1, dt.int8)), i))
    )


def _vector() -> None:
    lane = b.range_(4, 3, AxisType.UPCAST)
    body = b.sink(b.end(b.range_(b.add(lane, 1), 4), lane))
    expand(UOp(Op.LINEAR, (b.call(body),)))


def _devices() -> None:
    n = b.variable("n", 1, 4)
    callify(b.copy(b.param(0, (b.mul(n, 2), 3), dt.float32), ("D0", "D1")))


def _unbounded() -> None:
    n = b.param(0, (), dt.index)
    callify(b.expand(b.reshape(b.param(1, (), dt.int8), (1,)), (UOp(Op.MAX, (n, b.index(0))),)))


def _open() -> None:
    i, j = b.range_(43, 0), b.range_(43, 1)  # as no other test makes: a node that is there already has no origin
    target = b.at(b.param(0, (99,), dt.int8), UOp(Op.ADD, (i, j)))
    order_instructions(b.sink(b.end(b.store(target, b.const(1, dt.int8)), i)))


def _kernel() -> None:
    i, memory = b.range_(47, 0), b.buffer(94, dt.int8, "CPU", unique=1)
    body = b.sink(b.end(b.store(b.at(b.param(0, (47,), dt.int8), i), b.at(b.param(1, (47,), dt.int8), i)), i))
    callify(b.call(body, b.shrink(memory, (0,), (47,)), b.shrink(memory, (9,), (47,)), written=(0,)))


CASES: dict[str, tuple[Callable[[], None], str]] = {
    "width": (
        _wide,
        r"R08 \(index dtype\) at const 1180591620717411303424 : index: the value may be anything in .*, which int64 does not hold",
    ),
    "vector": (
        _vector,
        r"Lowering Pipeline/Expand at %2 = range %1, axis_id=4.*: its bound depends on a vector axis",
    ),
    "devices": (
        _devices,
        r"R75 \(n-tuple sizes\) at %\d+ = load .*: 2 devices share an axis whose extent depends on variables, expected a constant",
    ),
    "unbounded": (_unbounded, r"R48 \(symbolic sizes\) at %\d+ = max .*: an extent needs an upper bound, got "),
    "kernel": (_kernel, r"R166 .* at %\d+ = call .*: arguments 0 and 1 are different views of one memory, which the Call writes"),
    "open": (_open, r"R58 \(End\) at %\d+ = range 43, axis_id=1.*: no End closes this loop"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_message_shows_ruling_line_and_origin(case: str) -> None:
    make, says = CASES[case]
    with origins.record_origins(), pytest.raises(CompileError, match=says) as e:
        make()
    assert re.search(r" - built at \w+\.py:\d+$", str(e.value))
    assert "<UOp" not in str(e.value)


def _chain(x: UOp, grow: Callable[[UOp], UOp], times: int) -> UOp:
    for _ in range(times):
        x = grow(x)
    return x


@pytest.mark.parametrize(
    "value",
    [
        _chain(b.index(10), lambda x: b.mul(x, x), 60),
        _chain(b.index(3), lambda x: b.shl(b.index(1), x), 5),
        _chain(b.index(1), lambda x: b.shl(x, b.index(4000)), 60),
        _chain(b.variable("n", 1, 100), lambda x: b.mul(x, b.index(2**4000)), 60),
        b.mul(b.add(b.mul(b.variable("n", 1, 100), b.index(2**4000)), b.index(1)), b.index(2**4000)),
    ],
    ids=["squares", "shifts by shifts", "shifts", "coefficients", "sums"],
)
def test_index_arithmetic_beyond_all_widths_is_refused_at_once(pyref: Target, value: UOp) -> None:
    with pytest.raises(CompileError, match=r"R08 \(index dtype\)"):
        lower(b.mod(value, b.index(7)), pyref)
