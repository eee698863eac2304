"""Reductions as accumulators: the first step of instruction selection.

A Reduce over ranges becomes a REG Buffer of one element. The identity is stored before the loops, every iteration combines into
it, and the result is loaded after the last End. Small floats accumulate in float32 and are rounded once at the end (R32 allows a
wider type).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges


def reduction_identity(op: Op, d: DType) -> UOp:
    """Return the result of an empty reduction (R32)."""
    if op is Op.MAX:
        return B.const(d.min, d)
    return B.const(1 if op is Op.MUL else 0, d)


def lower_reduces(kernel: UOp, uniques: Iterator[int] | None = None) -> UOp:
    """Replace every Reduce of a kernel by loops over an accumulator.

    `uniques` numbers the accumulators' Buffers; by default from 1.
    """
    uniques = itertools.count(1) if uniques is None else uniques
    order = toposort(kernel)
    inside = open_ranges(order)
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(done[s] for s in u.src)
        if u.op is Op.REDUCE:
            outer = sorted(inside[u], key=lambda r: int(r.arg.axis_id))
            done[u] = _lower_reduce(u, src, [done[r] for r in outer], next(uniques))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    log_transform("accumulate", kernel, done[kernel], done)
    return done[kernel]


def _lower_reduce(reduce: UOp, replaced_sources: tuple[UOp, ...], replaced_outer_loops: list[UOp], register_unique: int) -> UOp:
    """Return the value of Reduce `reduce` on replaced sources, in the loops `replaced_outer_loops`."""
    value, *ranges = replaced_sources
    register, cleared = build_register_and_clear_effect(reduce, replaced_outer_loops, register_unique)
    running = element_address(B.after(register, cleared, *ranges))
    step = B.store(running, combine_with_accumulator(reduce, running, value))
    return B.cast(_load(element_address(B.after(register, B.wrap_in_one_end_per_loop(step, ranges)))), reduce.dtype)


def accumulator_dtype(d: DType) -> DType:
    """Return the dtype of an accumulator for values of `d` (R32: in the source dtype or wider)."""
    return d.wide


def cast_value_or_factors_to_accumulator(value: UOp) -> UOp:
    """Return a value in the accumulator's dtype; a product is computed there, so that it is exact."""
    wide = accumulator_dtype(value.dtype)
    if value.op is Op.MUL and wide is not value.dtype:
        return UOp(Op.MUL, tuple(B.cast(x, wide) for x in value.src))
    return B.cast(value, wide)


def build_register_and_clear_effect(
    reduce: UOp, clearing_loops: Sequence[UOp], register_unique: int, element_loops: Sequence[UOp] = ()
) -> tuple[UOp, UOp]:
    """Build the register of Reduce `reduce` and the effect that stores the identity there.

    The register has an element per iteration of `element_loops`, whose extents are constants. It is cleared in every iteration of
    the loops `clearing_loops`.
    """
    sizes, wide = [constant_extent(r) for r in element_loops], accumulator_dtype(reduce.dtype)
    register = UOp(Op.BUFFER, (), BufferArg(math.prod(sizes), wide, buffer_device(reduce), AddrSpace.REG, register_unique))
    before = element_address(B.after(register, *clearing_loops) if clearing_loops else register, element_loops, sizes)
    return register, B.wrap_in_one_end_per_loop(
        B.store(before, accumulator_identity(reduce.arg.op, reduce.dtype, wide)), sort_by_nesting(element_loops)
    )


def combine_with_accumulator(u: UOp, running: UOp, value: UOp) -> UOp:
    """Return the contents of the register after one more value of Reduce `u`."""
    return UOp(u.arg.op, (_load(running), B.cast(value, running.dtype)))


def accumulator_identity(op: Op, d: DType, wide: DType) -> UOp:
    """Return the identity of the value's own dtype, in the accumulator's: e4m3 has no -inf."""
    return reduction_identity(op, wide) if d.kind is not DTypeKind.FLOAT else B.const(reduction_identity(op, d).const, wide)


def buffer_device(value: UOp) -> str:
    """Return the device of a Buffer for a value."""
    return value.device if isinstance(value.device, str) else "CPU"


def element_address(memory: UOp, index: Sequence[UOp] = (), sizes: Sequence[int] = ()) -> UOp:
    """Return the address of the element at `index` of memory with these sizes, row-major."""
    flat: UOp = index_constant(0)
    for i, n in zip(index, sizes, strict=True):
        flat = i if flat is index_constant(0) else UOp(Op.ADD, (UOp(Op.MUL, (flat, index_constant(n))), i))
    return UOp(Op.INDEX, (memory, flat))


def _load(address: UOp) -> UOp:
    return UOp(Op.LOAD, (address,), LoadArg())
