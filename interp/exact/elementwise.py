"""The meaning of every elementwise op: one row per op, one column per kind of dtype (tinyspec, Elementwise and Decomposed tables).

A cell is a small function on exact values; an empty cell is an ill-formed use (R09, R10). `evaluate_op` is the entry.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from uops.interp.exact.answers import Answer, Level, anything, either
from uops.interp.exact.numbers import arithmetic as fl
from uops.interp.exact.numbers.casts import cast
from uops.interp.exact.numbers.formats import FORMATS, Format, int_value, wrap
from uops.interp.exact.numbers.power import pow_
from uops.interp.exact.numbers.threefry import threefry
from uops.interp.exact.numbers.transcendental import exp2, log2, sin, sqrt
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir.dtypes import DType, Kind, bool_, uint64
from uops.spec.ir.ops import Op

#: (operand dtypes, result dtype, operand bit patterns, core level?) -> allowed answer
Meaning = Callable[[Sequence[DType], DType, Sequence[int], bool], Answer]
OnInts = Callable[..., int]
OnFloats = Callable[..., Answer]

#: An index value of more bits than this is refused as a matter of resources, not of meaning.
INDEX_BITS = 1 << 16


def by_kind(ints: OnInts | None, bools: OnInts | None, floats: OnFloats | None) -> Meaning:
    """A row: `ints` on exact integers, reduced to the dtype afterwards (R05); `bools` on 0 and 1; `floats` on bit patterns."""

    def meaning(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
        d = args[0]
        if d.kind is Kind.FLOAT:
            if floats is not None:
                answer: Answer = floats(FORMATS[d], core, *bits)
                return answer
        elif d.kind is Kind.BOOL:
            if bools is not None:
                return Answer(out, bools(*bits))
        elif ints is not None and d.kind is not Kind.VOID:
            return Answer(out, wrap(out, ints(*[int_value(d, b) for b in bits])))
        raise SpecError(f"R10: not defined on {d.name}")

    return meaning


def _division(compute: Callable[[int, int], int]) -> Meaning:
    """Idiv and Mod: total under strict; under core a zero divisor gives any value (R03)."""
    total = by_kind(compute, None, None)

    def meaning(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
        answer = total(args, out, bits, core)
        return anything(out, answer.best) if core and not bits[1] else answer

    return meaning


def _idiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else a


def _compare(holds: Callable[[Any, Any], bool], unordered: bool, free: bool = False) -> Meaning:
    """A comparison; `unordered` is its value where an operand is NaN (R12, R13), which `free` leaves open under core."""

    def on_floats(fmt: Format, core: bool, a: int, b: int) -> Answer:
        if fmt.is_nan(a) or fmt.is_nan(b):
            return either(bool_, int(unordered), int(not unordered)) if core and free else Answer(bool_, int(unordered))
        return Answer(bool_, int(holds(fmt.key(a), fmt.key(b))))

    def on_ints(a: int, b: int) -> int:
        return int(holds(a, b))

    return by_kind(on_ints, on_ints, on_floats)


def _shift(left: bool) -> Meaning:
    """Shl and Shr: of a machine integer by an unsigned count (R06, R07), of an index by a non-negative one (R29)."""

    def meaning(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
        d, by = args
        if not (d.is_integer and by.is_integer):
            raise SpecError(f"R10: a shift of {d.name} by {by.name}")
        value, count = int_value(d, bits[0]), bits[1]
        if Kind.INDEX in (d.kind, by.kind):
            count = int_value(by, count)
            if count < 0:
                raise Trap(f"R29: a shift of index by {count}")
        wide = d.kind is not Kind.INDEX and count >= d.bits
        if wide:
            count = d.bits
        elif left and value and count > INDEX_BITS:
            raise Unsupported(f"an index shifted left by {count}", "the scalar interpreter")
        answer = Answer(out, wrap(out, value << count if left else value >> count))
        return anything(out, answer.best) if core and wide else answer

    return meaning


def _where(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
    """Keeps every bit of the operand it selects (R14, R28)."""
    return Answer(out, bits[1] if cast(args[0], bool_, bits[0]).best else bits[2])


def _cast(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
    return cast(args[0], out, bits[0], core)


def _trunc_int(a: int) -> int:
    return a


def _not(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
    if args[0] is not bool_:
        raise SpecError(f"R09: Not is for bool only, got {args[0].name}")
    return Answer(out, 1 - bits[0])


def _threefry(args: Sequence[DType], out: DType, bits: Sequence[int], core: bool) -> Answer:
    if args[0] is not uint64:
        raise SpecError(f"R22: Threefry is for uint64 only, got {args[0].name}")
    return Answer(out, threefry(bits[0], bits[1]))


def _mulacc(a: int, b: int, c: int) -> int:
    return a * b + c


def _or_and(a: int, b: int, c: int) -> int:
    return a & b | c


# fmt: off
MEANING: dict[Op, Meaning] = {
    # Elementwise     integers          bool           floats
    Op.RECIP:  by_kind(None,          None,          fl.recip),
    Op.TRUNC:  by_kind(_trunc_int,    _trunc_int,    fl.trunc),
    Op.CAST:   _cast,
    Op.ADD:    by_kind(operator.add,  operator.or_,  fl.add),
    Op.MUL:    by_kind(operator.mul,  operator.and_, fl.mul),
    Op.MAX:    by_kind(max,           max,           fl.maximum),
    Op.MOD:    _division(_mod),
    Op.IDIV:   _division(_idiv),
    Op.CMPLT:  _compare(operator.lt, unordered=False),
    Op.CMPNE:  _compare(operator.ne, unordered=True),
    Op.XOR:    by_kind(operator.xor,  operator.xor,  None),
    Op.OR:     by_kind(operator.or_,  operator.or_,  None),
    Op.AND:    by_kind(operator.and_, operator.and_, None),
    Op.SHR:    _shift(left=False),
    Op.SHL:    _shift(left=True),
    Op.WHERE:  _where,
    # Decomposed
    Op.NEG:    by_kind(operator.neg,  None,          fl.neg),
    Op.SUB:    by_kind(operator.sub,  None,          fl.sub),
    Op.DIV:    by_kind(None,          None,          fl.div),
    Op.CMPGT:  _compare(operator.gt, unordered=False),
    Op.CMPGE:  _compare(operator.ge, unordered=False, free=True),
    Op.CMPLE:  _compare(operator.le, unordered=False, free=True),
    Op.CMPEQ:  _compare(operator.eq, unordered=False),
    Op.NOT:    _not,
    Op.EXP2:   by_kind(None,          None,          exp2),
    Op.LOG2:   by_kind(None,          None,          log2),
    Op.SIN:    by_kind(None,          None,          sin),
    Op.SQRT:   by_kind(None,          None,          sqrt),
    Op.POW:    by_kind(None,          None,          pow_),
    Op.MULACC: by_kind(_mulacc,       _or_and,       fl.mulacc),
    Op.THREEFRY: _threefry,
    # Bestiary (R102)
    Op.MIN:    by_kind(min,           min,           fl.minimum),
}
# fmt: on


def evaluate_op(
    op: Op, arg_dtypes: Sequence[DType], result_dtype: DType, operand_bits: Sequence[int], level: Level = "strict"
) -> Answer:
    """The allowed answer of one elementwise op on one element.

    `operand_bits` are bit patterns (see `formats`), one per dtype of `arg_dtypes`. Raises Trap where the specification does, and
    SpecError for an op that is not elementwise or not defined on the dtype. Arity and dtype agreement are the verifier's duty.
    """
    meaning = MEANING.get(op)
    if meaning is None:
        raise SpecError(f"{op!r} is not elementwise")
    return meaning(arg_dtypes, result_dtype, operand_bits, level == "core")


def canonical(op: Op, arg_dtypes: Sequence[DType], result_dtype: DType, *operand_bits: int) -> int:
    """The canonical bits of `evaluate_op` under strict."""
    return evaluate_op(op, arg_dtypes, result_dtype, operand_bits).best
