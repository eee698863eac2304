"""Argmax in one pass: vector lanes keep the greatest element so far and its position side by side.

A kernel that computes argmax reads each row twice: M = max of x(r), then max of (x(r) = M ? v(r) : z). There v decreases with r,
so that the first position wins. Fused, each of the lanes that share a row keeps its own greatest element and its v:

    for r: for l: if x[r, l] > m[l]: m[l], k[l] = x[r, l], v(r, l)

The two reductions over the row then become two reductions over the lanes. A lane starts at -inf and at the v of its first element,
which is right even if all its elements are -inf. A NaN is greater than all numbers and stays (R11: Max on floats).

Spec: Reduce; Lowering Pipeline/Optimize; R11, R32 (a Reduce may take any order), R61 (fresh buffers).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.accumulators import buffer_device, element_address, reduction_identity
from uops.compiler.ir.affine import extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.accesses import collect_accesses
from uops.compiler.passes.optimize.schedule.schedule import Schedule, next_id
from uops.compiler.target import MachineModel
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by

#: Most vectors of a row per iteration: enough independent compares and selects to hide their latency.
VECTORS = 4


class _ArgmaxPattern(NamedTuple):
    """A Reduce that finds the position of the greatest `x` over `r`: the largest `v` where `x` is the maximum, `missing`
    elsewhere."""

    node: UOp
    x: UOp
    v: UOp
    missing: UOp
    r: UOp


def fuse_max_and_argmax(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule | None:
    """Compute a kernel's argmax in one pass over its rows.

    Returns None if the kernel has no argmax, if no number of vectors divides its rows, or if a row is not contiguous.
    """
    f = next((f for f in map(_match_argmax, nodes_with_op(s.effect, Op.REDUCE)) if f is not None), None)
    if f is None or not _reads_contiguously(f):
        return None
    n, lanes = constant_extent(f.r), min(machine.lanes(f.x.dtype), machine.lanes(f.v.dtype))
    vectors = next((k for k in range(VECTORS, 0, -1) if n % (lanes * k) == 0), 0)
    return _build_fused_argmax(s, f, lanes, vectors, uniques) if vectors and n > lanes * vectors else None


def _reads_contiguously(f: _ArgmaxPattern) -> bool:
    """Return True if the row is contiguous in memory."""
    strides = {a.stride(f.r) for a in collect_accesses(f.x)}
    return 1 in strides and strides <= {0, 1}


def _match_argmax(u: UOp) -> _ArgmaxPattern | None:
    """Return the argmax that Reduce `u` computes, or None."""
    if u.arg.op is not Op.MAX or len(u.ranges) != 1 or u.operand.op is not Op.WHERE:
        return None
    (r,), (condition, v, missing) = ranges_closed_by(u), u.operand.src
    if r.bound.op is not Op.CONST or missing.op is not Op.CONST or not _decreases_with_loop(v, r) or not _at_least(v, missing):
        return None
    terms = condition.src if condition.op is Op.OR else (condition,)
    x = next((x for t in terms if (x := _match_operand_equal_to_its_max(t, r)) is not None), None)
    if x is None or len(terms) != (2 if x.dtype.is_float else 1):
        return None
    takes_nan = not x.dtype.is_float or any(t.op is Op.CMPNE and t.src == (x, x) for t in terms)
    return _ArgmaxPattern(u, x, v, missing, r) if takes_nan else None


def _match_operand_equal_to_its_max(comparison: UOp, r: UOp) -> UOp | None:
    """Return x of a comparison x(r) = max of x over all r, or None."""
    for x, m in (comparison.src, comparison.src[::-1]) if comparison.op is Op.CMPEQ else ():
        if m.op is not Op.REDUCE or m.arg.op is not Op.MAX or len(m.ranges) != 1:
            continue
        (loop,) = m.ranges
        same = loop.bound is r.bound and substitute(m.operand, {loop: r}) is x
        if same and not any(u.op is Op.REDUCE for u in toposort(x)):
            return x
    return None


def _decreases_with_loop(v: UOp, r: UOp) -> bool:
    """Return True if `v` is a constant minus an index that grows with `r`, and neither of the two wraps."""
    if v.op is not Op.SUB or v.lhs.op is not Op.CONST or v.rhs.op is not Op.CAST or not v.dtype.is_integer:
        return False
    start, index = v.lhs.arg.value, v.rhs.operand
    bounds = index.min_max
    ends = () if bounds is None else (*bounds, start - bounds[1], start - bounds[0])
    fits = bool(ends) and all(v.dtype.min <= end <= v.dtype.max for end in ends)
    terms = extract_affine_sum(index).terms if fits else {}
    return terms.keys() == {r} and terms[r] > 0


def _at_least(v: UOp, least: UOp) -> bool:
    return v.min_max is not None and bool(v.min_max[0] >= least.arg.value)


def _build_fused_argmax(
    s: Schedule, match: _ArgmaxPattern, lanes_per_vector: int, vector_count: int, uniques: Iterator[int]
) -> Schedule:
    """Replace the argmax by `vector_count` vectors of `lanes_per_vector` with two registers each: the greatest element and its
    position."""
    order = toposort(s.effect)
    outside = sorted(open_ranges(order)[match.node], key=lambda r: int(r.arg.axis_id))
    free = next_id(s)
    first, second, last, lane_of_max = (
        UOp(Op.RANGE, (index_constant(lanes_per_vector),), RangeArg(free + k, AxisType.UPCAST if k < 2 else AxisType.UNROLL))
        for k in range(4)
    )
    step = UOp(
        Op.RANGE,
        (index_constant(constant_extent(match.r) // (lanes_per_vector * vector_count)),),
        RangeArg(free + 4, AxisType.REDUCE),
    )
    registers = [[_register(u, lanes_per_vector, next(uniques)) for u in (match.x, match.v)] for _ in range(vector_count)]

    def at(memory: UOp, lane: UOp, *after: UOp) -> UOp:
        return element_address(B.after(memory, *after) if after else memory, [lane], [lanes_per_vector])

    starts = list[UOp]()
    for k, (greatest, place) in enumerate(registers):
        v = substitute(match.v, {match.r: _add(index_constant(k * lanes_per_vector), first)})
        starts += (
            B.store(at(greatest, first, *outside), reduction_identity(Op.MAX, match.x.dtype)),
            B.store(at(place, first, *outside), v),
        )
    initialized = B.end(B.group(*starts), first)
    stores = list[UOp]()
    for k, pair in enumerate(registers):
        begin = UOp(
            Op.MUL, (_add(UOp(Op.MUL, (step, index_constant(vector_count))), index_constant(k)), index_constant(lanes_per_vector))
        )
        new = [substitute(u, {match.r: _add(begin, second)}) for u in (match.x, match.v)]
        addresses = [at(memory, second, initialized, step) for memory in pair]
        old = [_load(address) for address in addresses]
        better = _build_exceeds_max_or_is_first_nan(new[0], old[0])
        stores += [B.store(p, UOp(Op.WHERE, (better, x, y))) for p, x, y in zip(addresses, new, old, strict=True)]
    done = B.end(B.end(B.group(*stores), second), step)
    total = UOp(Op.REDUCE, (_maximum([_load(at(greatest, last, done)) for greatest, _ in registers]), last), match.node.arg)
    candidates = [[_load(at(memory, lane_of_max, done)) for memory in pair] for pair in registers]
    positions = [UOp(Op.WHERE, (_build_is_max(x, total), v, match.missing)) for x, v in candidates]
    result = UOp(Op.REDUCE, (_maximum(positions), lane_of_max), match.node.arg)
    effect = substitute(s.effect, {match.node: result})
    log_transform("pair", s.effect, effect, {match.node: result})
    return replace(s, effect=effect)


def _register(u: UOp, lanes: int, unique: int) -> UOp:
    return UOp(Op.BUFFER, (), BufferArg(lanes, u.dtype, buffer_device(u), AddrSpace.REG, unique))


def _load(address: UOp) -> UOp:
    return UOp(Op.LOAD, (address,), LoadArg())


def _add(a: UOp, b: UOp) -> UOp:
    return UOp(Op.ADD, (a, b))


def _maximum(values: Sequence[UOp]) -> UOp:
    return functools.reduce(lambda a, b: UOp(Op.MAX, (a, b)), values)


def _build_is_max(x: UOp, greatest: UOp) -> UOp:
    """Return the condition that `x` is the greatest element or a NaN."""
    equal = UOp(Op.CMPEQ, (x, greatest))
    return UOp(Op.OR, (equal, UOp(Op.CMPNE, (x, x)))) if x.dtype.is_float else equal


def _build_exceeds_max_or_is_first_nan(x: UOp, max_so_far: UOp) -> UOp:
    """Return the condition that `x` replaces the greatest element so far: it is greater, or the first NaN."""
    if not x.dtype.is_float:
        return UOp(Op.CMPLT, (max_so_far, x))
    return UOp(Op.AND, (UOp(Op.NOT, (UOp(Op.CMPLE, (x, max_so_far)),)), UOp(Op.CMPEQ, (max_so_far, max_so_far))))
