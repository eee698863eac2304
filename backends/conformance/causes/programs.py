"""Causes that are other programs: what a backend computes if it does one thing in another way.

Each is a change of a TENSOR program and its inputs, and None where the program has no node to change. The allowed sets of the
changed program say what such a backend gives. A change is made everywhere in the program.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import flush_subnormals, is_subnormal
from uops.backends.conformance.causes.elements import measure_inaccuracy_limit
from uops.backends.conformance.judge import ulp_distance
from uops.interp.allowed import AllowedSet
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import COMPARE, RING_OPS, SHIFT, Op
from uops.spec.rows.optional import list_nodes_outside_optional_bodies

Array = npt.NDArray[Any]
Inputs = Mapping[str, Any]
#: A program and its inputs.
Program = tuple[UOp, Inputs]
#: The replacement of a node whose sources are replaced already; None to keep it.
Replacement = Callable[[UOp], UOp | None]
#: A change of a program; None where it has no node to change.
Change = Callable[[UOp, Inputs], Program | None]


def _contains(changed: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(changed.contains(got))


@dataclass(frozen=True, slots=True)
class ProgramCause:
    """A cause: its id, a sentence about the backend, and the change of the program.

    `accepts` says which elements such a backend may give, by default those in the allowed sets of the changed program.
    A cause that `mixes` holds for some elements, and the others are right. One that `flushes_too` explains nothing where it
    explains all of the program that is not changed, too.
    """

    id: str
    text: str
    change: Change
    accepts: Callable[[AllowedSet, Array], npt.NDArray[np.bool_]] = _contains
    mixes: bool = False
    flushes_too: bool = False


def _by_node(replace: Replacement) -> Change:
    """Return the change that replaces nodes; for use as a decorator of the replacement.

    Bodies of optional rows stay: a library that has the function evaluates none of their ops.
    """

    def change(graph: UOp, inputs: Inputs) -> Program | None:
        changed = rebuild(graph, lambda u: replace(u) or u, frozenset(list_nodes_outside_optional_bodies(graph)))
        return None if changed is graph else (changed, inputs)

    return change


def _by_op(op: Op, build: Callable[..., UOp | None]) -> Change:
    """Return the change that builds each node of an op anew from its sources."""
    return _by_node(lambda u: build(*u.src) if u.op is op else None)


# --------------------------------------------------------------------------------------------------------------- subnormals


def _flush_inputs(graph: UOp, inputs: Inputs) -> Program | None:
    flushed = {k: flush_subnormals(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    changed = rebuild(graph, lambda u: _flush_constant(u) or u)
    return None if changed is graph and all(flushed[k] is inputs[k] for k in inputs) else (changed, flushed)


def _flush_constant(u: UOp) -> UOp | None:
    if u.op is not Op.CONST or not u.dtype.is_float or not 0 < abs(u.const) < u.dtype.smallest_normal:
        return None
    return b.const(math.copysign(0.0, u.const), u.dtype)


def _contains_or_is_flushed(changed: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    if not changed.dtype.is_float:
        return _contains(changed, got)
    return np.asarray(_contains(changed, got) | ((got == 0) & is_subnormal(np.asarray(changed.best), changed.dtype)))


def _contains_or_is_flushed_before_rounding(changed: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    if not changed.dtype.is_float:
        return _contains(changed, got)
    best = np.asarray(changed.best).astype(np.float64)
    return np.asarray(_contains(changed, got) | ((got == 0) & (np.abs(best) <= changed.dtype.smallest_normal)))


# ------------------------------------------------------------------------------------------------------------------ floats

#: Floats that many backends compute in float32.
_NARROW = frozenset(d for d in dt.STORABLE if d.is_float and d.bits < 32)
#: Ops that round.
_ROUNDING = frozenset({
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.SQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.POW, Op.MULACC, Op.REDUCE
})  # fmt: skip


@_by_node
def _round_each_through_float32(u: UOp) -> UOp | None:
    if u.op is Op.CAST and u.dtype in _NARROW and u.operand.dtype in (dt.float64, *_WIDE_INTEGERS):
        return b.cast(b.cast(u.operand, dt.float32), u.dtype)
    if u.op not in _ROUNDING or u.dtype not in _NARROW:
        return None
    wide = tuple([b.cast(s, dt.float32) if s.dtype.is_float else s for s in u.src])
    return b.cast(u.replace(src=wide), u.dtype)


_WIDE_INTEGERS = (dt.int32, dt.int64, dt.uint32, dt.uint64)


#: Functions that some backends compute in float32 alone.
_FUNCTIONS = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.POW})


@_by_node
def _compute_functions_of_float64_in_float32(u: UOp) -> UOp | None:
    if u.op not in _FUNCTIONS or u.dtype is not dt.float64:
        return None
    return b.cast(u.replace(src=tuple([b.cast(s, dt.float32) for s in u.src])), dt.float64)


def _keep_intermediates_in_float32(graph: UOp, inputs: Inputs) -> Program | None:
    if graph.dtype not in _NARROW or not any(u.op in _ROUNDING and u.dtype is graph.dtype for u in toposort(graph)):
        return None
    done: dict[UOp, UOp] = {}
    for u in toposort(graph):
        src = tuple([done[s] for s in u.src])
        if u.op in _ROUNDING and u.dtype is graph.dtype:
            done[u] = u.replace(src=tuple([b.cast(s, dt.float32) if s.dtype is graph.dtype else s for s in src]))
        else:
            done[u] = u.replace(src=tuple([b.cast(new, old.dtype) for new, old in zip(src, u.src)]))
    return b.cast(done[graph], graph.dtype), inputs


#: Dtype -> the exponent of the one number for which XLA's logarithm takes each subnormal: half of the smallest one.
_EXPONENTS = {dt.bfloat16: -150.0, dt.float32: -150.0, dt.float64: -1075.0}


def _take_subnormal_bases_for_one_number(x: UOp, y: UOp) -> UOp | None:
    if x.dtype not in _EXPONENTS:
        return None
    is_subnormal = b.and_(b.lt(0.0, x), b.lt(x, x.dtype.smallest_normal))
    exponent = b.cast(b.mul(b.cast(y, dt.float64), _EXPONENTS[x.dtype]), x.dtype)
    return b.where(is_subnormal, b.exp2(exponent), UOp(Op.POW, (x, y)))


#: Relative error of an argument of a sine that is reduced in float32, and the greatest argument of which the reduction is finite.
_ARGUMENT_ERROR, _GREATEST_REDUCED = 2.0**-21, 2.0**24


def _give_argument_of_sine(graph: UOp, inputs: Inputs) -> Program | None:
    """Return the argument of the sine that a program is, from which `_is_sine_of_rounded_argument` judges the result."""
    return (graph.operand, inputs) if graph.op is Op.SIN and graph.dtype is not dt.float64 else None


def _is_sine_of_rounded_argument(argument: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    """Return which results are sines of an argument nearby, if one of all is too far off to be a matter of accuracy."""
    x, given = np.asarray(argument.best).astype(np.float64), got.astype(np.float64)
    sine = np.sin(x).astype(got.dtype)
    steps = 2.0**-argument.dtype.man_bits * np.abs(np.sin(x))
    error = np.abs(given - np.sin(x))
    is_close = error <= np.maximum(np.abs(x), 1) * _ARGUMENT_ERROR + 2 * steps
    is_nan = np.isnan(given) & ~np.isfinite(x)
    infinite = ~np.isfinite(given) & (np.abs(x) > _GREATEST_REDUCED)
    far = ~is_nan & ~(ulp_distance(sine, got, argument.dtype.bits) <= measure_inaccuracy_limit(argument.dtype))
    return np.asarray((is_close | is_nan | infinite) & far.any())


#: Dtype -> the dtype of the intermediate results of a power, where it is not the same.
_WIDER = {dt.bfloat16: dt.float32}


def _compute_power_by_logarithm(x: UOp, y: UOp) -> UOp | None:
    """Return exp(y ln x), with intermediate results rounded."""
    if not x.dtype.is_float:
        return None
    d = _WIDER.get(x.dtype, x.dtype)
    logarithm = b.cast(b.mul(b.log2(b.cast(x, dt.float64)), math.log(2)), d)
    product = b.mul(b.cast(y, d), logarithm)
    return b.cast(b.cast(b.exp2(b.mul(b.cast(product, dt.float64), 1 / math.log(2))), d), x.dtype)


@_by_node
def _compute_powers_by_logarithms(u: UOp) -> UOp | None:
    if u.op is Op.EXP2:
        return _compute_power_by_logarithm(b.const(2.0, u.dtype), u.operand)
    return _compute_power_by_logarithm(*u.src) if u.op is Op.POW else None


def _flush_inputs_and_compute_powers_by_logarithms(graph: UOp, inputs: Inputs) -> Program | None:
    changed = _compute_powers_by_logarithms(graph, inputs)
    if changed is None or graph.dtype not in (dt.bfloat16, dt.float32, dt.float64):
        return changed
    return _flush_inputs(*changed) or changed


def _is_near_or_flushed(changed: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    """Return what is flushed, or near enough to be a matter of accuracy."""
    near = ulp_distance(np.asarray(changed.best), got, changed.dtype.bits) <= measure_inaccuracy_limit(changed.dtype)
    return np.asarray(near | _contains_or_is_flushed_before_rounding(changed, got))


def _divide_by_reciprocal(x: UOp, y: UOp) -> UOp | None:
    return b.mul(x, b.recip(y)) if x.dtype.is_float else None


def _is_nan(x: UOp) -> UOp:
    return b.ne(x, x)


def _maximum_that_skips_nan(x: UOp, y: UOp) -> UOp | None:
    return b.where(_is_nan(x), y, b.where(_is_nan(y), x, b.maximum(x, y))) if x.dtype.is_float else None


def _maximum_by_comparison(x: UOp, y: UOp) -> UOp | None:
    """Return the second operand unless the first is greater, as one instruction of x86 does."""
    return b.where(b.lt(y, x), x, y) if x.dtype.is_float else None


def _maximum_by_swapped_comparison(x: UOp, y: UOp) -> UOp | None:
    return b.where(b.lt(x, y), y, x) if x.dtype.is_float else None


# ---------------------------------------------------------------------------------------------------------------- integers


def _take_count_modulo_width(op: Op) -> Callable[[UOp, UOp], UOp]:
    return lambda x, count: UOp(op, (x, b.and_(count, b.const(x.dtype.bits - 1, count.dtype))))


def _take_narrow_count_modulo_32(op: Op) -> Callable[[UOp, UOp], UOp | None]:
    """Return the shift of an integer of 8 or 16 bits as one of 32 bits, which takes the count modulo 32."""
    return lambda x, count: UOp(op, (x, b.and_(count, b.const(31, count.dtype)))) if x.dtype.bits < 32 else None


@_by_node
def _mark_shifts_by_width_or_more(u: UOp) -> UOp | None:
    """Return 1 in place of a shift by the width or more, and 0 in place of others. The count is read as unsigned."""
    if u.op not in SHIFT or u.dtype is dt.index:
        return None
    count = b.bitcast(u.rhs, u.rhs.dtype.word)
    return b.cast(b.ge(count, b.const(u.dtype.bits, count.dtype)), u.dtype)


def _is_marked(changed: AllowedSet, got: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(np.asarray(changed.best) != 0)


def _rounds_apart(x: UOp, y: UOp) -> UOp:
    """Return where the quotient rounded down is 1 less than the one rounded towards zero."""
    is_inexact = b.and_(b.ne(y, 0), b.ne(b.mod(x, y), 0))
    return b.and_(is_inexact, b.ne(b.lt(x, 0), b.lt(y, 0)))


def _divide_truncating(x: UOp, y: UOp) -> UOp | None:
    """Return the quotient rounded towards zero; None for dtypes without a sign, where it is the same."""
    return b.where(_rounds_apart(x, y), b.add(b.idiv(x, y), 1), b.idiv(x, y)) if x.dtype.is_signed else None


def _remainder_of_truncating_division(x: UOp, y: UOp) -> UOp | None:
    return b.where(_rounds_apart(x, y), b.sub(b.mod(x, y), y), b.mod(x, y)) if x.dtype.is_signed else None


def _remainder_of_truncating_division_or_zero(x: UOp, y: UOp) -> UOp | None:
    remainder = _remainder_of_truncating_division(x, y)
    return None if remainder is None else b.where(b.eq(y, 0), b.const(0, x.dtype), remainder)


def _divide_least_by_minus_one_to_zero(x: UOp, y: UOp) -> UOp | None:
    if not x.dtype.is_signed or x.dtype is dt.index:
        return None
    overflows = b.and_(b.eq(x, b.const(x.dtype.min, x.dtype)), b.eq(y, -1))
    return b.where(overflows, b.const(0, x.dtype), b.idiv(x, y))


def _divide_to_all_ones_by_zero(x: UOp, y: UOp) -> UOp:
    all_ones = b.const(-1 if x.dtype.is_signed else x.dtype.max, x.dtype)
    return b.where(b.eq(y, 0), all_ones, b.idiv(x, y))


def _give_minus_one_or_two_for_zero_divisor(x: UOp, y: UOp) -> UOp | None:
    """Return a quotient by zero that has all bits set, less 1 where the remainder, which is the dividend, is not zero."""
    if not x.dtype.is_signed:
        return None
    return b.where(b.eq(y, 0), b.where(b.eq(x, 0), b.const(-1, x.dtype), b.const(-2, x.dtype)), b.idiv(x, y))


def _clamp(exact: UOp, d: DType) -> UOp:
    """Clamp an index to the range of an integer dtype."""
    least, greatest = b.index(int(d.min)), b.index(int(d.max))
    return b.cast(b.where(b.lt(exact, least), least, b.where(b.lt(greatest, exact), greatest, exact)), d)


def _saturate(subtracts_by_negation: bool) -> Change:
    """Return the change to arithmetic that saturates; with `subtracts_by_negation`, x - y is sat(x + sat(-y))."""

    def replace(u: UOp) -> UOp | None:
        if u.op not in RING_OPS | {Op.MULACC} or not u.dtype.is_integer or u.dtype is dt.index:
            return None
        exact = [b.cast(s, dt.index) for s in u.src]
        if u.op is Op.SUB and subtracts_by_negation:
            minuend, subtrahend = exact
            return _clamp(b.add(minuend, b.cast(_clamp(b.neg(subtrahend), u.dtype), dt.index)), u.dtype)
        if u.op is Op.MULACC:
            x, y, addend = exact
            return _clamp(b.add(b.cast(_clamp(b.mul(x, y), u.dtype), dt.index), addend), u.dtype)
        return _clamp(u.replace(src=tuple(exact)), u.dtype)

    return _by_node(replace)


def _assume_no_wrapping_in_comparisons(graph: UOp, inputs: Inputs) -> Program | None:
    exact: dict[UOp, UOp] = {}  # integer node -> its value as an index, which is not bounded

    def replace(u: UOp) -> UOp | None:
        if u.dtype.is_integer and u.dtype is not dt.index:
            wraps = u.op in RING_OPS and all(s in exact for s in u.src)
            exact[u] = u.replace(src=tuple([exact[s] for s in u.src])) if wraps else b.cast(u, dt.index)
        if u.op not in COMPARE or not any(s.op in RING_OPS and s in exact for s in u.src):
            return None
        return u.replace(src=tuple([exact[s] for s in u.src]))

    return _by_node(replace)(graph, inputs)


def _invert_opposite_comparison(builders: Mapping[Op, Callable[[UOp, UOp], UOp]]) -> Change:
    """Return the change that builds comparisons as complements of others."""
    return _by_node(lambda u: b.not_(builders[u.op](*u.src)) if u.op in builders else None)


def _differ_as_numbers(x: UOp, y: UOp) -> UOp | None:
    """Return an inequality that is False for NaN, as an ordered comparison of LLVM is."""
    return b.and_(b.ne(x, y), b.and_(b.eq(x, x), b.eq(y, y))) if x.dtype.is_float else None


@_by_node
def _convert_nan_to_false(u: UOp) -> UOp | None:
    if u.op is not Op.CAST or u.dtype is not dt.bool_ or not u.operand.dtype.is_float:
        return None
    return b.and_(u, b.eq(u.operand, u.operand))


def _take_remainder_by_zero_as_zero(x: UOp, y: UOp) -> UOp:
    return b.where(b.eq(y, 0), b.const(0, x.dtype), b.mod(x, y))


def _convert_or_least(x: UOp, d: DType) -> UOp:
    """Return a float64 as an integer; the least one for what the dtype does not hold, as instructions of x86 do."""
    is_inside = b.and_(b.le(float(d.min), b.trunc(x)), b.lt(b.trunc(x), -float(d.min)))
    return b.where(is_inside, b.cast(x, d), b.const(d.min, d))


@_by_node
def _convert_float_to_unsigned_by_two_signed_conversions(u: UOp) -> UOp | None:
    if u.op is not Op.CAST or u.dtype not in (dt.uint32, dt.uint64) or not u.operand.dtype.is_float:
        return None
    x, signed = b.cast(u.operand, dt.float64), _SIGNED[u.dtype]
    half = -float(signed.min)
    upper = b.xor(_convert_or_least(b.sub(x, half), signed), b.const(signed.min, signed))
    return b.bitcast(b.where(b.ge(x, half), upper, _convert_or_least(x, signed)), u.dtype)


@_by_node
def _convert_finite_float_by_way_of_int64(u: UOp) -> UOp | None:
    if u.op is not Op.CAST or not u.dtype.is_integer or not u.operand.dtype.is_float:
        return None
    x = b.cast(u.operand, dt.float64)
    return b.where(b.eq(b.sub(x, x), 0.0), b.cast(_convert_or_least(x, dt.int64), u.dtype), b.cast(x, u.dtype))


def _convert_float_by_way_of(wide: DType) -> Change:
    """Return the change that converts a float to an integer by way of `wide`, whose least value stands for what is out of range."""

    def replace(u: UOp) -> UOp | None:
        if u.op is not Op.CAST or not u.dtype.is_integer or not u.operand.dtype.is_float or u.dtype.bits > wide.bits:
            return None
        return b.cast(_convert_or_least(b.cast(u.operand, dt.float64), wide), u.dtype)

    return _by_node(replace)


def _convert_or_all_ones(x: UOp, d: DType) -> UOp:
    """Return a float64 as an unsigned integer; all bits set for what the dtype does not hold, as instructions of x86 do."""
    return b.where(b.and_(b.lt(-1.0, x), b.lt(x, float(d.max))), b.cast(x, d), b.const(d.max, d))


def _convert_by_instructions(x: UOp, d: DType) -> UOp:
    """Return a float64 as an integer by way of one that x86 converts to, cut to the width."""
    wide = dt.uint32 if d is dt.uint16 else d if d.bits > 16 else dt.int32
    return b.cast(_convert_or_least(x, wide) if wide.is_signed else _convert_or_all_ones(x, wide), d)


@_by_node
def _convert_float_to_unsigned_or_all_ones(u: UOp) -> UOp | None:
    if u.op is not Op.CAST or u.dtype not in (dt.uint16, dt.uint32, dt.uint64) or not u.operand.dtype.is_float:
        return None
    return _convert_by_instructions(b.cast(u.operand, dt.float64), u.dtype)


def _read_nan_of_fp8_as_number(x: UOp) -> UOp:
    """Return fp8 as float64, with the number for NaN that its exponent and mantissa spell."""
    bits = b.bitcast(x, dt.uint8)
    number = b.add(65536.0, b.mul(b.cast(b.and_(bits, 3), dt.float64), 16384.0)) if x.dtype.has_inf else b.const(480.0, dt.float64)
    return b.where(_is_nan(x), b.where(b.lt(bits, 128), number, b.neg(number)), b.cast(x, dt.float64))


@_by_node
def _convert_fp8_by_instructions_without_nan(u: UOp) -> UOp | None:
    if u.op is not Op.CAST or not u.dtype.is_integer or u.operand.dtype not in (dt.fp8e4m3, dt.fp8e5m2):
        return None
    return _convert_by_instructions(_read_nan_of_fp8_as_number(u.operand), u.dtype)


@_by_node
def _compare_negative_nan_of_fp8_as_number(u: UOp) -> UOp | None:
    if u.op not in COMPARE or u.src[0].dtype is not dt.fp8e4m3:  # the left operand
        return None
    is_negative_nan = [b.eq(b.bitcast(s, dt.uint8), 0xFF) for s in u.src]
    return u.replace(src=tuple([b.where(n, -480.0, b.cast(s, dt.float32)) for n, s in zip(is_negative_nan, u.src)]))


#: Ops whose result depends on whether the operands have a sign.
_SIGN_AWARE = frozenset({
    Op.CMPLT, Op.CMPGT, Op.CMPLE, Op.CMPGE, Op.MAX, Op.IDIV, Op.MOD, Op.SHR, Op.CAST
})  # fmt: skip
_SIGNED = {dt.uint8: dt.int8, dt.uint16: dt.int16, dt.uint32: dt.int32, dt.uint64: dt.int64}


@_by_node
def _take_unsigned_as_signed(u: UOp) -> UOp | None:
    first = u.src[0] if u.src else None  # the operand, or the left one
    if u.op not in _SIGN_AWARE or first is None or first.dtype not in _SIGNED:
        return None
    signed = u.replace(src=tuple([b.bitcast(s, _SIGNED[s.dtype]) if s.dtype in _SIGNED else s for s in u.src]))
    return signed if signed.dtype is u.dtype else b.bitcast(signed, u.dtype)


#: Ops of integers that some backends compute in floats.
_ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.REDUCE, Op.MAX, Op.MOD})


def _compute_integers_in_float(wide: DType) -> Change:
    """Return the change that computes integers in floats of a dtype."""

    def replace(u: UOp) -> UOp | None:
        d = u.src[0].dtype if u.src else u.dtype  # of the left operand
        if u.op not in _ARITHMETIC | COMPARE or not d.is_integer or d is dt.index or d.bits < 32:
            return None
        floats = [b.cast(s, wide) if s.dtype is d else s for s in u.src]
        if u.op in COMPARE:
            return u.replace(src=tuple(floats))
        if u.op is Op.MOD:  # a remainder of floats is exact
            return b.cast(b.mod(*[b.cast(x, dt.int64) for x in floats]), d)
        if u.op is Op.IDIV:
            return b.cast(_round_quotient_down(*floats), u.dtype)
        return b.cast(u.replace(src=tuple(floats)), u.dtype)

    return _by_node(replace)


def _round_quotient_down(x: UOp, y: UOp) -> UOp:
    quotient = b.div(x, y)
    floor = b.trunc(quotient)
    return b.where(b.lt(quotient, floor), b.sub(floor, 1.0), floor)


def _compute_remainder_of_rounded_quotient(x: UOp, y: UOp) -> UOp | None:
    """Return x - y floor(x / y) in float32, each step rounded. A remainder by zero is NaN, which becomes the least integer."""
    if not x.dtype.is_signed or x.dtype.bits < 32 or x.dtype is dt.index:
        return None
    m, n = b.cast(x, dt.float32), b.cast(y, dt.float32)
    remainder = b.cast(b.sub(m, b.mul(n, _round_quotient_down(m, n))), x.dtype)
    return b.where(b.eq(y, 0), b.const(x.dtype.min, x.dtype), remainder)


def _add_bools_as_bits(x: UOp, y: UOp) -> UOp | None:
    return b.xor(x, y) if x.dtype is dt.bool_ else None


@_by_node
def _sum_bools_as_bits(u: UOp) -> UOp | None:
    if u.op is not Op.REDUCE or u.dtype is not dt.bool_ or u.arg.op is not Op.ADD:
        return None
    total = UOp(Op.REDUCE, (b.cast(u.operand, dt.int32), *u.ranges), ReduceArg(Op.ADD, u.arg.axes))
    return b.ne(b.and_(total, 1), 0)


#: Ops whose operands are not interchangeable.
_ORDERED = (Op.SUB, Op.DIV, Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.POW, Op.CMPLT, Op.CMPGT, Op.CMPLE, Op.CMPGE)
#: Ops of one signature, of which a backend may compute one for another.
_ALIKE = (
    (Op.CMPLT, Op.CMPLE, Op.CMPGT, Op.CMPGE, Op.CMPEQ, Op.CMPNE),
    (Op.XOR, Op.OR, Op.AND),
    (Op.ADD, Op.SUB, Op.MUL, Op.MAX),
    (Op.SHL, Op.SHR),
    (Op.IDIV, Op.MOD),
    (Op.SQRT, Op.RECIP, Op.NEG, Op.TRUNC),
    (Op.EXP2, Op.LOG2, Op.SIN),
)


def _exchange(x: UOp, y: UOp, *, op: Op) -> UOp:
    return UOp(op, (y, x))


def _exchange_branches(condition: UOp, if_true: UOp, if_false: UOp) -> UOp:
    return b.where(condition, if_false, if_true)


def _compute_other_op(op: Op) -> Callable[..., UOp]:
    return lambda *src: UOp(op, src)


_EXCHANGED_OPERANDS = [
    ProgramCause(
        f"exchanged-{op.name.lower()}",
        f"the operands of {op.name.capitalize()} are exchanged",
        _by_op(op, functools.partial(_exchange, op=op)),
    )
    for op in _ORDERED
]
#: Comparisons that are each other with exchanged operands.
_MIRRORED = ({Op.CMPLT, Op.CMPGT}, {Op.CMPLE, Op.CMPGE})
_OTHER_OPS = [
    ProgramCause(
        f"{op.name.lower()}-as-{other.name.lower()}",
        f"{op.name.capitalize()} gives what {other.name.capitalize()} gives",
        _by_op(op, _compute_other_op(other)),
    )
    for group in _ALIKE
    for op, other in itertools.permutations(group, 2)
    if {op, other} not in _MIRRORED
]
# fmt: off
#: All causes of this kind, in the order in which they are asked: where several hold, the simpler one is claimed.
PROGRAM_CAUSES = (
    ProgramCause("flush-subnormals", "subnormal operands and results become zero",
                 _flush_inputs, _contains_or_is_flushed),
    ProgramCause("shift-left-count", "the count of a shift to the left is taken modulo the width",
                 _by_op(Op.SHL, _take_count_modulo_width(Op.SHL))),
    ProgramCause("shift-right-count", "the count of a shift to the right is taken modulo the width",
                 _by_op(Op.SHR, _take_count_modulo_width(Op.SHR))),
    ProgramCause("narrow-shift-left-count", "the count of a shift of 8 or 16 bits to the left is taken modulo 32",
                 _by_op(Op.SHL, _take_narrow_count_modulo_32(Op.SHL))),
    ProgramCause("narrow-shift-right-count", "the count of a shift of 8 or 16 bits to the right is taken modulo 32",
                 _by_op(Op.SHR, _take_narrow_count_modulo_32(Op.SHR))),
    ProgramCause("undefined-shift", "a shift by the width or more gives any value, as LLVM leaves it undefined (R06)",
                 _mark_shifts_by_width_or_more, _is_marked, mixes=True),
    ProgramCause("truncating-division", "integer division rounds towards zero, where Idiv rounds down",
                 _by_op(Op.IDIV, _divide_truncating)),
    ProgramCause("truncating-remainder", "a remainder has the sign of the dividend, where Mod has that of the divisor",
                 _by_op(Op.MOD, _remainder_of_truncating_division)),
    ProgramCause("remainder-by-zero", "a remainder by zero is zero, where Mod gives the dividend",
                 _by_op(Op.MOD, _take_remainder_by_zero_as_zero)),
    ProgramCause("truncating-remainder-or-zero", "a remainder has the sign of the dividend, and is zero for a zero divisor",
                 _by_op(Op.MOD, _remainder_of_truncating_division_or_zero)),
    ProgramCause("least-by-minus-one", "the quotient of the least integer and -1 is zero, where Idiv wraps (R04)",
                 _by_op(Op.IDIV, _divide_least_by_minus_one_to_zero)),
    ProgramCause("quotient-by-zero", "a quotient by zero has all bits set, where Idiv gives zero",
                 _by_op(Op.IDIV, _divide_to_all_ones_by_zero)),
    ProgramCause("quotient-by-zero-adjusted", "a quotient by zero has all bits set, less 1 unless the dividend is zero",
                 _by_op(Op.IDIV, _give_minus_one_or_two_for_zero_divisor)),
    ProgramCause("saturating-arithmetic", "sums, differences and products of integers saturate, where they wrap (R05)",
                 _saturate(subtracts_by_negation=False)),
    ProgramCause("saturating-negation", "integers saturate, and a difference is a sum with the saturating negative",
                 _saturate(subtracts_by_negation=True)),
    ProgramCause("complement-comparison", "a comparison with equality is the complement of the strict one, also for NaN (R13)",
                 _invert_opposite_comparison({Op.CMPGE: b.lt, Op.CMPLE: b.gt})),
    ProgramCause("complement-strict", "a strict comparison is the complement of the one with equality, also for NaN (R12)",
                 _invert_opposite_comparison({Op.CMPLT: b.ge, Op.CMPGT: b.le})),
    ProgramCause("comparison-before-wrapping", "integer operands of a comparison are computed as if they did not wrap (R05)",
                 _assume_no_wrapping_in_comparisons),
    ProgramCause("ordered-inequality", "CmpNe is False for NaN, which differs from every number (R12)",
                 _by_op(Op.CMPNE, _differ_as_numbers)),
    ProgramCause("nan-to-bool", "NaN becomes False, where a Cast to bool asks for a value other than zero (R15)",
                 _convert_nan_to_false),
    ProgramCause("float-to-int32", "a float is converted to int32, or to the least one if out of range, and cut to the width",
                 _convert_float_by_way_of(dt.int32)),
    ProgramCause("float-to-int64", "a float is converted to int64, or to the least one if out of range, and cut to the width",
                 _convert_float_by_way_of(dt.int64)),
    ProgramCause("float-to-unsigned", "a float is converted as to the signed integer, from 2^(n-1) on after that is subtracted",
                 _convert_float_to_unsigned_by_two_signed_conversions),
    ProgramCause("float-to-unsigned-all-ones", "a float out of range of uint32 or uint64 has all bits set, and is cut to the width",
                 _convert_float_to_unsigned_or_all_ones),
    ProgramCause("float-to-int-modulo", "a finite float out of range wraps, by way of int64, and an infinity saturates",
                 _convert_finite_float_by_way_of_int64),
    ProgramCause("unsigned-as-signed", "an unsigned integer is taken for a signed one", _take_unsigned_as_signed),
    ProgramCause("through-float32", "a narrow float is computed in float32 and rounded twice", _round_each_through_float32),
    ProgramCause("through-float32-flushed", "a narrow float is computed in float32 and rounded twice, and subnormals become zero",
                 _round_each_through_float32, _contains_or_is_flushed_before_rounding, flushes_too=True),
    ProgramCause("power-of-subnormal", "a power takes each subnormal base for one number, half of the smallest subnormal",
                 _by_op(Op.POW, _take_subnormal_bases_for_one_number), _contains_or_is_flushed_before_rounding, flushes_too=True),
    ProgramCause("power-by-logarithm", "a power is exp(y ln x), rounded in between: NaN for a negative base, and for 0^0",
                 _flush_inputs_and_compute_powers_by_logarithms, _is_near_or_flushed, flushes_too=True),
    ProgramCause("sine-of-reduced-argument", "a sine is off by as much as an argument in float32 is rounded, or infinite",
                 _give_argument_of_sine, _is_sine_of_rounded_argument),
    ProgramCause("fp8-nan-as-number", "a NaN of fp8 is converted as a number, and one out of range has all bits set or is least",
                 _convert_fp8_by_instructions_without_nan),
    ProgramCause("fp8-nan-compared", "a NaN of fp8e4m3 with a sign is compared as -480", _compare_negative_nan_of_fp8_as_number),
    ProgramCause("float64-in-float32", "a function of float64 is computed in float32",
                 _compute_functions_of_float64_in_float32),
    ProgramCause("excess-precision", "intermediate results of a narrow float stay in float32", _keep_intermediates_in_float32),
    ProgramCause("reciprocal-division", "a quotient is a product with the reciprocal", _by_op(Op.DIV, _divide_by_reciprocal)),
    ProgramCause("maximum-skips-nan", "a maximum is the other operand where one is NaN",
                 _by_op(Op.MAX, _maximum_that_skips_nan)),
    ProgramCause("maximum-second", "a maximum is the second operand unless the first is greater",
                 _by_op(Op.MAX, _maximum_by_comparison)),
    ProgramCause("maximum-first", "a maximum is the first operand unless the second is greater",
                 _by_op(Op.MAX, _maximum_by_swapped_comparison)),
    ProgramCause("integers-in-float64", "integers are computed in float64", _compute_integers_in_float(dt.float64)),
    ProgramCause("integers-in-float32", "integers are computed in float32", _compute_integers_in_float(dt.float32)),
    ProgramCause("remainder-of-rounded-quotient", "an integer remainder is x - y floor(x / y) in float32, or the least integer",
                 _by_op(Op.MOD, _compute_remainder_of_rounded_quotient)),
    ProgramCause("bools-as-bits", "a sum of bools is their exclusive or, where Add is their or",
                 _by_op(Op.ADD, _add_bools_as_bits)),
    ProgramCause("sum-of-bools-as-bits", "a Reduce of bools by Add counts modulo 2", _sum_bools_as_bits),
    ProgramCause("exchanged-branches", "Where takes one branch for the other", _by_op(Op.WHERE, _exchange_branches)),
    *_EXCHANGED_OPERANDS,
    *_OTHER_OPS,
)
# fmt: on
