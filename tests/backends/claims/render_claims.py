"""What the renderer of any processor does with a LINEAR kernel: its ops, its limits, and what is no kernel.

A test module of a backend imports the claims and says with the fixture `renderer` whose text they are about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from kernel_claims import register

from uops.compiler.target import PLAIN_DTYPES, PLAIN_OPS
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(frozen=True)
class Renderer:
    """`render` with what it says of itself: its ops, its dtypes, and the bytes of stack that a kernel may take."""

    render: Callable[[UOp], str]
    ops: frozenset[Op]
    dtypes: frozenset[dt.DType]
    stack: int


def test_the_renderer_has_every_op_that_selection_leaves(renderer: Renderer) -> None:
    assert PLAIN_OPS <= renderer.ops
    assert renderer.dtypes == PLAIN_DTYPES


@pytest.mark.parametrize("op", [Op.SPECIAL, Op.BARRIER, Op.WMMA], ids=lambda op: op.name)
def test_an_op_that_this_target_lacks_is_refused_by_name(renderer: Renderer, op: Op) -> None:
    arg = A.SpecialArg("g0") if op is Op.SPECIAL else None
    with pytest.raises(Unsupported, match=op.name):
        renderer.render(UOp(Op.LINEAR, (UOp(op, (), arg),)))
    assert op not in renderer.ops


def test_an_instruction_that_nobody_registered_is_refused_by_name_and_dtypes(renderer: Renderer) -> None:
    unknown = UOp(Op.INS, (B.const(1.0, dt.float32),), A.InsArg("vfoo", dt.int32))
    with pytest.raises(Unsupported, match=r"INS vfoo of \(float32\) to int32: it is registered for no dtypes"):
        renderer.render(UOp(Op.LINEAR, (unknown,)))
    known = UOp(Op.INS, (B.const(1.0, dt.float32),), A.InsArg("popcnt", dt.float32))
    with pytest.raises(Unsupported, match=r"registered for \(uint32\) to uint32 and \(uint64\) to uint64"):
        renderer.render(UOp(Op.LINEAR, (known,)))


def test_what_is_no_kernel_is_a_crash_of_ours(renderer: Renderer) -> None:
    i, out = B.range_(3, 0), B.param(0, (3,), dt.int32)
    place = B.at(out, i)
    store = B.store(place, B.const(1))
    with pytest.raises(Crash, match="never closed"):
        renderer.render(UOp(Op.LINEAR, (out, i, place, store)))
    with pytest.raises(Crash, match="before it is computed"):
        renderer.render(UOp(Op.LINEAR, (out, place, i, store)))
    with pytest.raises(Crash, match="not the innermost"):
        renderer.render(UOp(Op.LINEAR, (out, i, place, store, B.end(store, i), B.end(store, i))))
    with pytest.raises(Crash, match="takes a Linear"):
        renderer.render(store)


def test_private_buffers_that_do_not_fit_the_stack_are_refused(renderer: Renderer) -> None:
    with pytest.raises(CompileError, match="stack"):
        renderer.render(UOp(Op.LINEAR, (register(renderer.stack // 4 + 1, dt.float32, 904),)))
