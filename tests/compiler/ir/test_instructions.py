"""Instruction lists under construction: the places of arithmetic, and blocks without an effect."""

from uops.compiler.ir.instructions import InstructionList
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def test_arithmetic_stands_once_behind_the_last_of_its_sources() -> None:
    """What depends on the outer loop alone stands there, whichever inner loop asks for it first."""
    out, memory = InstructionList(), b.param(0, (64,), dt.int32)
    out.prepend(memory)
    outer = out.append(b.range_(4, 0))
    square = b.mul(b.cast(outer, dt.int32), b.cast(outer, dt.int32))
    for axis in (1, 2):
        inner = out.append(b.range_(3, axis))
        out.append(b.store(b.at(memory, b.add(square, b.cast(inner, dt.int32))), square))
        out.close_block_or_remove_if_effectless(inner)
    out.close_block_or_remove_if_effectless(outer)
    listed = list(out)
    assert len(listed) == len(set(listed)) and listed[0] is memory
    assert listed.index(square) == listed.index(outer) + 2  # behind the Cast of the counter
    assert [u.op for u in listed if u.op in (Op.RANGE, Op.END)] == [Op.RANGE, Op.RANGE, Op.END, Op.RANGE, Op.END, Op.END]


def test_a_block_without_an_effect_is_removed_with_all_that_stands_in_it() -> None:
    out, memory = InstructionList(), b.param(0, (4,), dt.int32)
    out.prepend(memory)
    loop = out.append(b.range_(4, 0))
    out.append(b.load(b.at(memory, b.cast(loop, dt.int32))))
    assert out.close_block_or_remove_if_effectless(loop) is None and list(out) == [memory]
    condition = out.append(UOp(Op.IF, (b.eq(b.load(b.at(memory, 0)), 1),)))
    effect = out.append(b.store(b.at(memory, 1), b.const(2, dt.int32)))
    closing = out.close_block_or_remove_if_effectless(condition)
    assert closing is not None and closing.op is Op.ENDIF and out.last_effect() is closing
    assert list(out)[-2:] == [effect, closing]
