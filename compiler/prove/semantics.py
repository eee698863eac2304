"""The prover's semantics of ops, written independently of the interpreters and the constant folder.

Takes: an `SmtEncoder`, an op and its operands. Gives: the `EncodedValue` of `encode_op`, which raises Unmodelled for an op
without a row. The rows of an op depend on the representation of the operands: tables BOOL, BITS, WHOLE, SLICE and FLOAT, and
those of `reals`. Rulings stand beside the rows that follow them. `infer_result_dtype_if_legal` is the typing rule of R09 (bool),
R10 (dtype legality) and R25 (operand dtypes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.prove import reals
from uops.compiler.prove.casts import encode_bitcast, encode_cast, round_float_term_to_dtype, wrap_to_dtype
from uops.compiler.prove.model import (
    FORMAT,
    SMALL,
    EncodedValue,
    Representation,
    SmtEncoder,
    Unmodelled,
    ZeroChoice,
    extract,
    to_float,
    zero_extend,
)
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import RNE, RTZ, Term
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import BITWISE, COMPARE, DIVISION, SHIFT, Op

# Typing

_FLOAT_ONLY = frozenset({Op.RECIP, Op.DIV, Op.SQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.POW})
_NOT_BOOL = frozenset({Op.SUB, Op.NEG, Op.TRUNC}) | _FLOAT_ONLY | DIVISION


def infer_result_dtype_if_legal(op: Op, operands: Sequence[DType], cast_dtype: DType | None = None) -> DType | None:
    """Return the dtype of an op on operands of these dtypes, or None if it is ill-formed (R09, R10, R25, R46, R80)."""
    if op is Op.CAST:
        return cast_dtype
    if op is Op.BITCAST:
        same_size = cast_dtype is not None and operands[0].bits == cast_dtype.bits and dt.index not in (cast_dtype, operands[0])
        return cast_dtype if same_size and cast_dtype is not dt.bool_ else None
    if op in SHIFT:
        return operands[0] if all(d.is_integer for d in operands) else None
    values = operands[1:] if op is Op.WHERE else operands
    d = values[0]
    if any(other is not d for other in values):
        return None
    if op in COMPARE or op is Op.WHERE:
        return dt.bool_ if op in COMPARE else d
    return d if _accepts_dtype(op, d) else None


def _accepts_dtype(op: Op, d: DType) -> bool:
    """Return True if an arithmetic or bitwise op is legal on this dtype (R09, R10)."""
    if op is Op.NOT:
        return d.kind is DTypeKind.BOOL
    if op in BITWISE:
        return not d.is_float
    if op in _FLOAT_ONLY:
        return d.is_float
    if op in DIVISION:
        return d.is_integer
    return d.kind is not DTypeKind.BOOL or op not in _NOT_BOOL


# One row per op and representation


def _make_operator_encoder(smt_operator: str) -> Callable[..., Term]:
    """Return the row of an op that is one operator of the solver."""

    def row(m: SmtEncoder, d: DType, *args: Term) -> Term:
        return smt.app(smt_operator, *args, sort=args[0].sort)

    return row


def _make_relation_encoder(smt_relation: str, unsigned_relation: str | None = None) -> Callable[..., Term]:
    """Return the row of a comparison; `unsigned_relation` is the solver's relation for unsigned dtypes."""

    def row(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
        return smt.compare(smt_relation if d.is_signed or unsigned_relation is None else unsigned_relation, a, b)

    return row


def _encode_equal(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return smt.equals(a, b)


def _encode_not_equal(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return smt.not_(smt.equals(a, b))


def _identity(m: SmtEncoder, d: DType, a: Term) -> Term:
    return a


# Booleans: a lattice, false below true; Add and Max are Or, Mul is And (R09)


def _encode_bool_less(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return smt.and_(smt.not_(a), b)


def _swap_operands(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, a, b: row(m, d, b, a)


def _negate_result(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, *args: smt.not_(row(m, d, *args))


BOOL: dict[Op, Callable[..., Term]] = {
    Op.ADD: lambda m, d, a, b: smt.or_(a, b),
    Op.MUL: lambda m, d, a, b: smt.and_(a, b),
    Op.MAX: lambda m, d, a, b: smt.or_(a, b),
    Op.MULACC: lambda m, d, a, b, c: smt.or_(smt.and_(a, b), c),
    Op.AND: lambda m, d, a, b: smt.and_(a, b),
    Op.OR: lambda m, d, a, b: smt.or_(a, b),
    Op.XOR: _encode_not_equal,
    Op.NOT: lambda m, d, a: smt.not_(a),
    Op.CMPLT: _encode_bool_less,
    Op.CMPGT: _swap_operands(_encode_bool_less),
    Op.CMPLE: _negate_result(_swap_operands(_encode_bool_less)),
    Op.CMPGE: _negate_result(_encode_bool_less),
    Op.CMPEQ: _encode_equal,
    Op.CMPNE: _encode_not_equal,
}

# Bit vectors: they wrap by themselves (R05)


def _zero(d: DType) -> Term:
    return smt.word(0, d.bits)


def _encode_bit_vector_floor_div(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    """Encode floor(a / b) (R01); 0 for b = 0 (R03); INT_MIN / -1 wraps (R04)."""
    if not d.is_signed:
        return smt.ite(smt.equals(b, _zero(d)), _zero(d), smt.app("bvudiv", a, b, sort=a.sort))
    toward_zero = smt.app("bvsdiv", a, b, sort=a.sort)
    rest = smt.app("bvsrem", a, b, sort=a.sort)  # with the sign of a
    inexact = smt.not_(smt.equals(rest, _zero(d)))
    negative = smt.not_(smt.equals(smt.compare("bvslt", rest, _zero(d)), smt.compare("bvslt", b, _zero(d))))
    one_less = smt.app("bvsub", toward_zero, smt.word(1, d.bits), sort=a.sort)
    return smt.ite(smt.equals(b, _zero(d)), _zero(d), smt.ite(smt.and_(inexact, negative), one_less, toward_zero))


def _encode_bits_mod(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    """Encode the remainder with the divisor's sign (R02); a for b = 0 (R03)."""
    return smt.ite(smt.equals(b, _zero(d)), a, smt.app("bvsmod" if d.is_signed else "bvurem", a, b, sort=a.sort))


def _encode_bits_max(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return smt.ite(smt.compare("bvslt" if d.is_signed else "bvult", a, b), b, a)


def _shift_count_fits_and_resized(d: DType, shift_count: EncodedValue) -> tuple[Term, Term]:
    """Return whether a shift count, read as unsigned, is below the width, and the count in the width of `d` (R06)."""
    if shift_count.dtype.bits > d.bits:
        return smt.compare("bvult", shift_count.term, smt.word(d.bits, shift_count.dtype.bits)), extract(
            shift_count.term, d.bits - 1, 0
        )
    amount = zero_extend(shift_count.term, d.bits - shift_count.dtype.bits)
    return smt.compare("bvult", amount, smt.word(d.bits, d.bits)), amount


def _encode_bits_shl(d: DType, a: EncodedValue, n: EncodedValue) -> Term:
    fits, amount = _shift_count_fits_and_resized(d, n)
    return smt.ite(fits, smt.app("bvshl", a.term, amount, sort=a.term.sort), _zero(d))


def _encode_bit_vector_shr(d: DType, a: EncodedValue, shift_count: EncodedValue) -> Term:
    """Encode a right shift, arithmetic if signed (R07); a count of the width or more leaves the sign."""
    fits, amount = _shift_count_fits_and_resized(d, shift_count)
    if not d.is_signed:
        return smt.ite(fits, smt.app("bvlshr", a.term, amount, sort=a.term.sort), _zero(d))
    sign = smt.app("bvashr", a.term, smt.word(d.bits - 1, d.bits), sort=a.term.sort)
    return smt.ite(fits, smt.app("bvashr", a.term, amount, sort=a.term.sort), sign)


BITS: dict[Op, Callable[..., Term]] = {
    Op.ADD: _make_operator_encoder("bvadd"),
    Op.SUB: _make_operator_encoder("bvsub"),
    Op.MUL: _make_operator_encoder("bvmul"),
    Op.NEG: _make_operator_encoder("bvneg"),
    Op.MAX: _encode_bits_max,
    Op.MULACC: lambda m, d, a, b, c: smt.app("bvadd", smt.app("bvmul", a, b, sort=a.sort), c, sort=a.sort),
    Op.IDIV: _encode_bit_vector_floor_div,
    Op.MOD: _encode_bits_mod,
    Op.AND: _make_operator_encoder("bvand"),
    Op.OR: _make_operator_encoder("bvor"),
    Op.XOR: _make_operator_encoder("bvxor"),
    Op.TRUNC: _identity,
    Op.CMPLT: _make_relation_encoder("bvslt", "bvult"),
    Op.CMPGT: _make_relation_encoder("bvsgt", "bvugt"),
    Op.CMPLE: _make_relation_encoder("bvsle", "bvule"),
    Op.CMPGE: _make_relation_encoder("bvsge", "bvuge"),
    Op.CMPEQ: _encode_equal,
    Op.CMPNE: _encode_not_equal,
}

# Whole numbers: index values (R08), and machine integers by wrapping each result


def _wrap_result(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, *args: wrap_to_dtype(d, row(*args))


def _encode_integer_floor_div(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    zero = smt.integer(0)
    if b.kind is smt.TermKind.LITERAL:
        return zero if b is zero else wrap_to_dtype(d, smt.floor_div(a, b))
    return wrap_to_dtype(d, smt.ite(smt.equals(b, zero), zero, smt.floor_div(a, b)))


def _encode_integer_floor_mod(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    zero = smt.integer(0)
    if b.kind is smt.TermKind.LITERAL:
        return a if b is zero else smt.floor_mod(a, b)
    return smt.ite(smt.equals(b, zero), a, smt.floor_mod(a, b))


def _make_whole_bitwise_row(name: str) -> Callable[..., Term]:
    """Return the row of a bitwise op on whole numbers: an uninterpreted function, one per width."""
    return lambda m, d, a, b: wrap_to_dtype(d, m.apply_uninterpreted(f"{name}.{d.short}", a, b, sort=smt.INT))


def _encode_literal_power_of_two_else_abstract(m: SmtEncoder, exponent: Term) -> Term:
    """Return 2^n for n >= 0: the number for a literal, else an unknown positive number that is 1 only for n = 0."""
    if exponent.kind is smt.TermKind.LITERAL and exponent.head.isdigit() and len(exponent.head) < 5:
        return smt.integer(1 << int(exponent.head))
    power = m.apply_uninterpreted("power-of-two", exponent, sort=smt.INT)
    m.facts.append(smt.compare(">=", power, smt.integer(1)))
    m.facts.append(smt.equals(smt.equals(exponent, smt.integer(0)), smt.equals(power, smt.integer(1))))
    return power


def _encode_integer_shift(m: SmtEncoder, op: Op, d: DType, a: EncodedValue, shift_count: EncodedValue) -> Term:
    """Encode Shl = a * 2^n and Shr = floor(a / 2^n) (R29).

    If a or n is an index, a negative count is a Trap (R29, R81); otherwise the count is read as unsigned. A count of the width
    or more gives 0 or the sign (R06).
    """
    zero, count = smt.integer(0), shift_count.term
    if DTypeKind.INDEX in (d.kind, shift_count.dtype.kind):
        m.definedness.append(smt.compare(">=", count, zero))
    elif shift_count.dtype.is_signed:
        count = smt.ite(smt.compare("<", count, zero), smt.plus(count, smt.integer(1 << shift_count.dtype.bits)), count)
    power = _encode_literal_power_of_two_else_abstract(m, count)
    if op is Op.SHL:
        shifted, rest = smt.times(a.term, power), zero
    else:
        shifted, rest = smt.floor_div(a.term, power), smt.ite(smt.compare("<", a.term, zero), smt.integer(-1), zero)
    if d.kind is DTypeKind.INDEX:
        return shifted
    return smt.ite(smt.compare("<", count, smt.integer(d.bits)), wrap_to_dtype(d, shifted), rest)


WHOLE: dict[Op, Callable[..., Term]] = {
    Op.ADD: _wrap_result(smt.plus),
    Op.SUB: _wrap_result(smt.minus),
    Op.MUL: _wrap_result(smt.times),
    Op.NEG: _wrap_result(smt.minus),
    Op.MAX: lambda m, d, a, b: smt.ite(smt.compare("<", a, b), b, a),
    Op.MULACC: _wrap_result(lambda a, b, c: smt.plus(smt.times(a, b), c)),
    Op.IDIV: _encode_integer_floor_div,
    Op.MOD: _encode_integer_floor_mod,
    Op.AND: _make_whole_bitwise_row("and"),
    Op.OR: _make_whole_bitwise_row("or"),
    Op.XOR: _make_whole_bitwise_row("xor"),
    Op.TRUNC: _identity,
    Op.CMPLT: _make_relation_encoder("<"),
    Op.CMPGT: _make_relation_encoder(">"),
    Op.CMPLE: _make_relation_encoder("<="),
    Op.CMPGE: _make_relation_encoder(">="),
    Op.CMPEQ: _encode_equal,
    Op.CMPNE: _encode_not_equal,
}

# One bit of an index value: what can be said of every bit alike (R29)

SLICE: dict[Op, Callable[..., Term]] = {op: BOOL[op] for op in BITWISE}

# Floats: IEEE 754, one rounding to nearest even per op (R16). A float8 is computed in float32 and rounded to its dtype: products
# are exact there, and to round a sum, quotient or root twice does no harm (24 >= 2 * 4 + 2 bits; Figueroa 1995). The sum of a
# product is exact in float64, where it is computed.


def _make_rounded_float_encoder(smt_operator: str) -> Callable[..., Term]:
    """Return the row of a float op that rounds once (R16)."""

    def row(m: SmtEncoder, d: DType, *args: Term) -> Term:
        wide = [_widen_small_float(d, a, dt.float64 if smt_operator == "fp.fma" else dt.float32) for a in args]
        return _round_to_small_float(d, smt.app(smt_operator, RNE, *wide, sort=wide[0].sort))

    return row


def _widen_small_float(d: DType, a: Term, wide: DType) -> Term:
    """Convert a float8 to the dtype in which it is computed."""
    return to_float(a, smt.fp(*FORMAT[wide])) if d in SMALL else a


def _round_to_small_float(d: DType, t: Term) -> Term:
    """Round a result to a float8."""
    return round_float_term_to_dtype(d, t) if d in SMALL else t


def _encode_recip(m: SmtEncoder, d: DType, a: Term) -> Term:
    return _make_rounded_float_encoder("fp.div")(m, d, m.make_constant(1.0, d).term, a)


def _encode_nan_propagating_float_max(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    """Encode Max: NaN if either operand is (R11); of two zeros either one, which is a choice."""
    nan = smt.or_(smt.app("fp.isNaN", a, sort=smt.BOOL), smt.app("fp.isNaN", b, sort=smt.BOOL))
    zeros = smt.and_(smt.app("fp.isZero", a, sort=smt.BOOL), smt.app("fp.isZero", b, sort=smt.BOOL))
    first = m.fresh_constant("choice", smt.BOOL)
    m.choices.append(ZeroChoice(d, a, b, first))
    greater = smt.ite(zeros, smt.ite(first, a, b), smt.ite(smt.compare("fp.lt", a, b), b, a))
    return smt.ite(nan, smt.ite(smt.app("fp.isNaN", a, sort=smt.BOOL), a, b), greater)


def _make_uninterpreted_encoder(op: Op) -> Callable[..., Term]:
    """Return the row of an approximated op: an uninterpreted function.

    By R27 (one value per node), equal nodes have equal values; R17 and R18 leave the value itself to the kernel.
    """
    return lambda m, d, *args: m.apply_uninterpreted(f"{op.name.lower()}.{d.short}", *args, sort=args[0].sort)


FLOAT: dict[Op, Callable[..., Term]] = {
    Op.ADD: _make_rounded_float_encoder("fp.add"),
    Op.SUB: _make_rounded_float_encoder("fp.sub"),
    Op.MUL: _make_rounded_float_encoder("fp.mul"),
    Op.DIV: _make_rounded_float_encoder("fp.div"),
    Op.SQRT: _make_rounded_float_encoder("fp.sqrt"),
    Op.MULACC: _make_rounded_float_encoder("fp.fma"),
    Op.RECIP: _encode_recip,
    Op.NEG: _make_operator_encoder("fp.neg"),
    Op.MAX: _encode_nan_propagating_float_max,
    Op.TRUNC: lambda m, d, a: smt.app("fp.roundToIntegral", RTZ, a, sort=a.sort),
    **{op: _make_uninterpreted_encoder(op) for op in (Op.EXP2, Op.LOG2, Op.SIN, Op.POW)},
    # with NaN all but CmpNe are false (R12, R13)
    Op.CMPLT: _make_relation_encoder("fp.lt"),
    Op.CMPGT: _make_relation_encoder("fp.gt"),
    Op.CMPLE: _make_relation_encoder("fp.leq"),
    Op.CMPGE: _make_relation_encoder("fp.geq"),
    Op.CMPEQ: _make_relation_encoder("fp.eq"),
    Op.CMPNE: lambda m, d, a, b: smt.not_(smt.compare("fp.eq", a, b)),
}

TABLES = {
    Representation.BOOL: BOOL,
    Representation.BITS: BITS,
    Representation.WHOLE: WHOLE,
    Representation.SLICE: SLICE,
    Representation.FLOAT: FLOAT,
    Representation.REAL: reals.ROWS,
}

#: Elementwise ops without a row: Threefry, of which no rule speaks, and Min, which no core graph has.
UNMODELLED = frozenset({Op.THREEFRY, Op.MIN})


def encode_op(m: SmtEncoder, op: Op, operands: Sequence[EncodedValue], cast_dtype: DType | None = None) -> EncodedValue:
    """Encode `op` on well-typed operands; `cast_dtype` is the dtype of a Cast or Bitcast. Raises Unmodelled."""
    if op is Op.CAST:
        assert cast_dtype is not None
        return encode_cast(m, cast_dtype, operands[0])
    if op is Op.BITCAST:
        assert cast_dtype is not None
        return encode_bitcast(m, cast_dtype, operands[0])
    if op is Op.WHERE:
        return _encode_where(m, *operands)
    if op in SHIFT:
        return _encode_shift_by_representation(m, op, *operands)
    d = operands[0].dtype
    row = TABLES.get(m.representation(d), {}).get(op)
    if row is None:
        raise Unmodelled(f"{op.name} of {d} as {m.representation(d).value}")
    term = row(m, d, *(o.term for o in operands))
    if op is Op.NEG and operands[0].bits is not None:  # flips the sign bit, of a NaN too (R21)
        bits = operands[0].bits
        return EncodedValue(d, term, smt.app("bvxor", bits, smt.word(1 << (d.bits - 1), d.bits), sort=bits.sort))
    return EncodedValue(dt.bool_ if op in COMPARE else d, term)


def _encode_where(m: SmtEncoder, p: EncodedValue, a: EncodedValue, b: EncodedValue) -> EncodedValue:
    """Encode p != 0 ? a : b; every bit is kept (R14, R28)."""
    condition = encode_cast(m, dt.bool_, p).term
    bits = None
    if a.bits is not None and b.bits is not None:
        bits = smt.ite(condition, a.bits, b.bits)
    return EncodedValue(a.dtype, smt.ite(condition, a.term, b.term), bits)


def _encode_shift_by_representation(m: SmtEncoder, op: Op, a: EncodedValue, shift_count: EncodedValue) -> EncodedValue:
    """Encode a shift of bit vectors or of whole numbers."""
    forms = {m.representation(a.dtype), m.representation(shift_count.dtype)}
    if forms == {Representation.BITS}:
        return EncodedValue(a.dtype, (_encode_bits_shl if op is Op.SHL else _encode_bit_vector_shr)(a.dtype, a, shift_count))
    if forms == {Representation.WHOLE}:
        return EncodedValue(a.dtype, _encode_integer_shift(m, op, a.dtype, a, shift_count))
    raise Unmodelled(f"{op.name} of {a.dtype} by {shift_count.dtype}")
