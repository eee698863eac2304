"""The meaning of every elementwise op: one row per op, one column per kind of dtype (tinyspec, Elementwise and Decomposed
tables).

A cell is a small function on exact values. An empty cell is an ill-formed use (R09: bool, R10: dtype legality). `evaluate_op` is
the entry.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from uops.interp.exact.answers import AnswerSet, Level, anything, one_of
from uops.interp.exact.numbers import arithmetic as fl
from uops.interp.exact.numbers.casts import cast
from uops.interp.exact.numbers.formats import FORMATS, FloatFormat, decode_integer, wrap_integer
from uops.interp.exact.numbers.power import evaluate_pow_with_core_decomposition
from uops.interp.exact.numbers.threefry import threefry
from uops.interp.exact.numbers.transcendental import (
    evaluate_sin_adding_absolute_error_in_core,
    evaluate_sqrt_with_core_decomposition,
    exp2,
    log2,
)
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir.dtypes import DType, DTypeKind, bool_, uint64
from uops.spec.ir.ops import ALU, Op

#: (operand dtypes, result dtype, operand bit patterns, core level?) -> allowed answer
Meaning = Callable[[Sequence[DType], DType, Sequence[int], bool], AnswerSet]
#: A function of exact integers.
OnInts = Callable[..., int]
#: (format, core level?, *bit patterns) -> allowed answer
OnFloats = Callable[..., AnswerSet]

#: The most bits of an index value that a shift may make; more is refused for want of memory, not as ill-formed.
MAX_INDEX_BITS = 1 << 16


def dispatch_by_kind(ints: OnInts | None, bools: OnInts | None, floats: OnFloats | None) -> Meaning:
    """Return a row with a function per kind of dtype.

    `ints` takes exact integers, and its result is reduced to the dtype (R05: overflow wraps). `bools` takes 0 and 1, `floats` bit
    patterns.
    """

    def evaluate_by_kind_of_first_operand(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
        d = args[0]
        if d.kind is DTypeKind.FLOAT:
            if floats is not None:
                answer: AnswerSet = floats(FORMATS[d], core, *bits)
                return answer
        elif d.kind is DTypeKind.BOOL:
            if bools is not None:
                return AnswerSet(out, bools(*bits))
        elif ints is not None and d.kind is not DTypeKind.VOID:
            return AnswerSet(out, wrap_integer(out, ints(*[decode_integer(d, b) for b in bits])))
        raise SpecError(f"R10: not defined on {d.name}")

    return evaluate_by_kind_of_first_operand


def _make_integer_division_any_by_zero_in_core(total_division: Callable[[int, int], int]) -> Meaning:
    """Return the row of Idiv or Mod: under core a zero divisor gives any value (R03: strict has a total function)."""
    total = dispatch_by_kind(total_division, None, None)

    def evaluate_division(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
        answer = total(args, out, bits, core)
        return anything(out, answer.best) if core and not bits[1] else answer

    return evaluate_division


def _idiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else a


def _make_comparison(relation: Callable[[Any, Any], bool], result_on_nan: bool, core_allows_both_on_nan: bool = False) -> Meaning:
    """Return the row of a comparison.

    `result_on_nan` is its value where an operand is NaN (R12, R13); with `core_allows_both_on_nan` core allows both.
    """

    def compare_float_bits(fmt: FloatFormat, core: bool, a: int, b: int) -> AnswerSet:
        if fmt.is_nan(a) or fmt.is_nan(b):
            either = core and core_allows_both_on_nan
            return one_of(bool_, int(result_on_nan), int(not result_on_nan)) if either else AnswerSet(bool_, int(result_on_nan))
        return AnswerSet(bool_, int(relation(fmt.key(a), fmt.key(b))))

    def compare_ints(a: int, b: int) -> int:
        return int(relation(a, b))

    return dispatch_by_kind(compare_ints, compare_ints, compare_float_bits)


def _make_shift(left: bool) -> Meaning:
    """Return the row of Shl or Shr.

    A machine integer is shifted by an unsigned count (R06, R07), an index by a non-negative one (R29).
    """

    def shift_or_any_beyond_width_in_core(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
        d, count_dtype = args
        if not (d.is_integer and count_dtype.is_integer):
            raise SpecError(f"R10: a shift of {d.name} by {count_dtype.name}")
        value, count = decode_integer(d, bits[0]), bits[1]
        if DTypeKind.INDEX in (d.kind, count_dtype.kind):
            count = decode_integer(count_dtype, count)
            if count < 0:
                raise Trap(f"R29: a shift of index by {count}")
        exceeds_width = d.kind is not DTypeKind.INDEX and count >= d.bits
        if exceeds_width:
            count = d.bits
        elif left and value and count > MAX_INDEX_BITS:
            raise Unsupported(f"an index shifted left by {count}", "the scalar interpreter")
        answer = AnswerSet(out, wrap_integer(out, value << count if left else value >> count))
        return anything(out, answer.best) if core and exceeds_width else answer

    return shift_or_any_beyond_width_in_core


def _where(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
    """Return the chosen operand, whose bits are all kept (R14, R28)."""
    condition, if_true, if_false = bits
    return AnswerSet(out, if_true if cast(args[0], bool_, condition).best else if_false)


def _cast(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
    return cast(args[0], out, bits[0], core)


def _trunc_int(a: int) -> int:
    return a


def _not(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
    if args[0] is not bool_:
        raise SpecError(f"R09: Not is for bool only, got {args[0].name}")
    return AnswerSet(out, 1 - bits[0])


def _threefry(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> AnswerSet:
    if args[0] is not uint64:
        raise SpecError(f"R22: Threefry is for uint64 only, got {args[0].name}")
    return AnswerSet(out, threefry(bits[0], bits[1]))


def _mulacc(a: int, b: int, c: int) -> int:
    return a * b + c


def _or_and(a: int, b: int, c: int) -> int:
    return a & b | c


# fmt: off
#: op -> its meaning
MEANING: dict[Op, Meaning] = {
    # Elementwise                integers       bool           floats
    Op.RECIP:  dispatch_by_kind(None,          None,          fl.recip),
    Op.TRUNC:  dispatch_by_kind(_trunc_int,    _trunc_int,    fl.trunc),
    Op.CAST:   _cast,
    Op.ADD:    dispatch_by_kind(operator.add,  operator.or_,  fl.add),
    Op.MUL:    dispatch_by_kind(operator.mul,  operator.and_, fl.mul),
    Op.MAX:    dispatch_by_kind(max,           max,           fl.maximum),
    Op.MOD:    _make_integer_division_any_by_zero_in_core(_mod),
    Op.IDIV:   _make_integer_division_any_by_zero_in_core(_idiv),
    Op.CMPLT:  _make_comparison(operator.lt, result_on_nan=False),
    Op.CMPNE:  _make_comparison(operator.ne, result_on_nan=True),
    Op.XOR:    dispatch_by_kind(operator.xor,  operator.xor,  None),
    Op.OR:     dispatch_by_kind(operator.or_,  operator.or_,  None),
    Op.AND:    dispatch_by_kind(operator.and_, operator.and_, None),
    Op.SHR:    _make_shift(left=False),
    Op.SHL:    _make_shift(left=True),
    Op.WHERE:  _where,
    # Decomposed
    Op.NEG:    dispatch_by_kind(operator.neg,  None,          fl.neg),
    Op.SUB:    dispatch_by_kind(operator.sub,  None,          fl.sub),
    Op.DIV:    dispatch_by_kind(None,          None,          fl.evaluate_div_with_core_decomposition),
    Op.CMPGT:  _make_comparison(operator.gt, result_on_nan=False),
    Op.CMPGE:  _make_comparison(operator.ge, result_on_nan=False, core_allows_both_on_nan=True),
    Op.CMPLE:  _make_comparison(operator.le, result_on_nan=False, core_allows_both_on_nan=True),
    Op.CMPEQ:  _make_comparison(operator.eq, result_on_nan=False),
    Op.NOT:    _not,
    Op.EXP2:   dispatch_by_kind(None,          None,          exp2),
    Op.LOG2:   dispatch_by_kind(None,          None,          log2),
    Op.SIN:    dispatch_by_kind(None,          None,          evaluate_sin_adding_absolute_error_in_core),
    Op.SQRT:   dispatch_by_kind(None,          None,          evaluate_sqrt_with_core_decomposition),
    Op.POW:    dispatch_by_kind(None,          None,          evaluate_pow_with_core_decomposition),
    Op.MULACC: dispatch_by_kind(_mulacc,       _or_and,       fl.evaluate_mulacc_unfused_too_in_core),
    Op.THREEFRY: _threefry,
    # Bestiary (R102)
    Op.MIN:    dispatch_by_kind(min,           min,           fl.minimum),
}
# fmt: on
assert MEANING.keys() == ALU, f"interp/exact/elementwise.py: add the meaning of {ALU - MEANING.keys()}"


def evaluate_op(
    op: Op, arg_dtypes: Sequence[DType], result_dtype: DType, operand_bits: Sequence[int], level: Level = "strict"
) -> AnswerSet:
    """Return the allowed answer of one elementwise op on one element.

    `operand_bits` are bit patterns (see `formats`), one per dtype of `arg_dtypes`. Arity and equal dtypes are the verifier's
    duty.

    Raises Trap where the specification does, and SpecError for an op that is not elementwise or not defined on the dtype.
    """
    meaning = MEANING.get(op)
    if meaning is None:
        raise SpecError(f"{op!r} is not elementwise")
    return meaning(arg_dtypes, result_dtype, operand_bits, level == "core")


def evaluate_canonical(op: Op, arg_dtypes: Sequence[DType], result_dtype: DType, *operand_bits: int) -> int:
    """Return the canonical bits of `evaluate_op` at the strict level."""
    return evaluate_op(op, arg_dtypes, result_dtype, operand_bits).best
