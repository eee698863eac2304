"""What each op means to the prover: a text of its own, which shares nothing with the interpreters nor with the constant folder.

`mean(model, op, to, operands)` gives the value of one op; it raises Unmodelled where there is no row. The rows of an op depend on
how the model represents the operands: tables BOOL, BITS, WHOLE, SLICE and FLOAT, and those of `reals`. Rulings stand beside the
rows that follow them. `result_dtype` is the typing rule of R09, R10 and R25.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.prove import reals
from uops.compiler.prove.casts import bitcast, cast, round_float, wrap
from uops.compiler.prove.model import FORMAT, SMALL, Form, Model, Unmodelled, Value, extract, to_float, zero_extend
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import RNE, RTZ, Term
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.ops import BITWISE, COMPARE, SHIFT, Op

# Typing

_FLOAT_ONLY = frozenset({Op.RECIP, Op.DIV, Op.SQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.POW})
_INTEGER_ONLY = frozenset({Op.IDIV, Op.MOD})
_NOT_BOOL = frozenset({Op.SUB, Op.NEG, Op.TRUNC}) | _FLOAT_ONLY | _INTEGER_ONLY


def result_dtype(op: Op, operands: Sequence[DType], to: DType | None = None) -> DType | None:
    """The dtype of an op on operands of these dtypes, or None where it is ill-formed (R09, R10, R25, R46, R80)."""
    if op is Op.CAST:
        return to
    if op is Op.BITCAST:
        same_size = to is not None and operands[0].bits == to.bits and dt.index not in (to, operands[0])
        return to if same_size and to is not dt.bool_ else None
    if op in SHIFT:
        return operands[0] if all(d.is_integer for d in operands) else None
    values = operands[1:] if op is Op.WHERE else operands
    d = values[0]
    if any(other is not d for other in values):
        return None
    if op in COMPARE or op is Op.WHERE:
        return dt.bool_ if op in COMPARE else d
    return d if _takes(op, d) else None


def _takes(op: Op, d: DType) -> bool:
    if op is Op.NOT:
        return d.kind is Kind.BOOL
    if op in BITWISE:
        return not d.is_float
    if op in _FLOAT_ONLY:
        return d.is_float
    if op in _INTEGER_ONLY:
        return d.is_integer
    return d.kind is not Kind.BOOL or op not in _NOT_BOOL


# One row per op and representation


def _app(head: str) -> Callable[..., Term]:
    def row(m: Model, d: DType, *args: Term) -> Term:
        return smt.app(head, *args, sort=args[0].sort)

    return row


def _relation(head: str, unsigned: str | None = None) -> Callable[..., Term]:
    def row(m: Model, d: DType, a: Term, b: Term) -> Term:
        return smt.compare(head if d.is_signed or unsigned is None else unsigned, a, b)

    return row


def _same(m: Model, d: DType, a: Term, b: Term) -> Term:
    return smt.same(a, b)


def _different(m: Model, d: DType, a: Term, b: Term) -> Term:
    return smt.not_(smt.same(a, b))


def _identity(m: Model, d: DType, a: Term) -> Term:
    return a


# Booleans: a lattice, false below true; Add and Max are Or, Mul is And (R09)


def _below(m: Model, d: DType, a: Term, b: Term) -> Term:
    return smt.and_(smt.not_(a), b)


def _swapped(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, a, b: row(m, d, b, a)


def _negated(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, *args: smt.not_(row(m, d, *args))


BOOL: dict[Op, Callable[..., Term]] = {
    Op.ADD: lambda m, d, a, b: smt.or_(a, b),
    Op.MUL: lambda m, d, a, b: smt.and_(a, b),
    Op.MAX: lambda m, d, a, b: smt.or_(a, b),
    Op.MULACC: lambda m, d, a, b, c: smt.or_(smt.and_(a, b), c),
    Op.AND: lambda m, d, a, b: smt.and_(a, b),
    Op.OR: lambda m, d, a, b: smt.or_(a, b),
    Op.XOR: _different,
    Op.NOT: lambda m, d, a: smt.not_(a),
    Op.CMPLT: _below,
    Op.CMPGT: _swapped(_below),
    Op.CMPLE: _negated(_swapped(_below)),
    Op.CMPGE: _negated(_below),
    Op.CMPEQ: _same,
    Op.CMPNE: _different,
}

# Bit vectors: they wrap by themselves (R05)


def _zero(d: DType) -> Term:
    return smt.word(0, d.bits)


def _bits_idiv(m: Model, d: DType, a: Term, b: Term) -> Term:
    """floor(a / b) (R01); 0 for b = 0 (R03); INT_MIN / -1 wraps (R04)."""
    if not d.is_signed:
        return smt.ite(smt.same(b, _zero(d)), _zero(d), smt.app("bvudiv", a, b, sort=a.sort))
    toward_zero = smt.app("bvsdiv", a, b, sort=a.sort)
    rest = smt.app("bvsrem", a, b, sort=a.sort)  # of the sign of a
    inexact = smt.not_(smt.same(rest, _zero(d)))
    negative = smt.not_(smt.same(smt.compare("bvslt", rest, _zero(d)), smt.compare("bvslt", b, _zero(d))))
    one_less = smt.app("bvsub", toward_zero, smt.word(1, d.bits), sort=a.sort)
    return smt.ite(smt.same(b, _zero(d)), _zero(d), smt.ite(smt.and_(inexact, negative), one_less, toward_zero))


def _bits_mod(m: Model, d: DType, a: Term, b: Term) -> Term:
    """The remainder with the divisor's sign (R02); a for b = 0 (R03)."""
    return smt.ite(smt.same(b, _zero(d)), a, smt.app("bvsmod" if d.is_signed else "bvurem", a, b, sort=a.sort))


def _bits_max(m: Model, d: DType, a: Term, b: Term) -> Term:
    return smt.ite(smt.compare("bvslt" if d.is_signed else "bvult", a, b), b, a)


def _bits_count(d: DType, n: Value) -> tuple[Term, Term]:
    """(whether a shift count, read as unsigned, is below the width; the count in the width of `d`) (R06)."""
    if n.dtype.bits > d.bits:
        return smt.compare("bvult", n.term, smt.word(d.bits, n.dtype.bits)), extract(n.term, d.bits - 1, 0)
    amount = zero_extend(n.term, d.bits - n.dtype.bits)
    return smt.compare("bvult", amount, smt.word(d.bits, d.bits)), amount


def _bits_shl(d: DType, a: Value, n: Value) -> Term:
    fits, amount = _bits_count(d, n)
    return smt.ite(fits, smt.app("bvshl", a.term, amount, sort=a.term.sort), _zero(d))


def _bits_shr(d: DType, a: Value, n: Value) -> Term:
    """Arithmetic where signed (R07); a count of the width or more leaves the sign."""
    fits, amount = _bits_count(d, n)
    if not d.is_signed:
        return smt.ite(fits, smt.app("bvlshr", a.term, amount, sort=a.term.sort), _zero(d))
    sign = smt.app("bvashr", a.term, smt.word(d.bits - 1, d.bits), sort=a.term.sort)
    return smt.ite(fits, smt.app("bvashr", a.term, amount, sort=a.term.sort), sign)


BITS: dict[Op, Callable[..., Term]] = {
    Op.ADD: _app("bvadd"),
    Op.SUB: _app("bvsub"),
    Op.MUL: _app("bvmul"),
    Op.NEG: _app("bvneg"),
    Op.MAX: _bits_max,
    Op.MULACC: lambda m, d, a, b, c: smt.app("bvadd", smt.app("bvmul", a, b, sort=a.sort), c, sort=a.sort),
    Op.IDIV: _bits_idiv,
    Op.MOD: _bits_mod,
    Op.AND: _app("bvand"),
    Op.OR: _app("bvor"),
    Op.XOR: _app("bvxor"),
    Op.TRUNC: _identity,
    Op.CMPLT: _relation("bvslt", "bvult"),
    Op.CMPGT: _relation("bvsgt", "bvugt"),
    Op.CMPLE: _relation("bvsle", "bvule"),
    Op.CMPGE: _relation("bvsge", "bvuge"),
    Op.CMPEQ: _same,
    Op.CMPNE: _different,
}

# Whole numbers: index values (R08), and machine integers by wrapping each result


def _wrapped(row: Callable[..., Term]) -> Callable[..., Term]:
    return lambda m, d, *args: wrap(d, row(*args))


def _whole_idiv(m: Model, d: DType, a: Term, b: Term) -> Term:
    zero = smt.integer(0)
    if b.kind is smt.Kind.LITERAL:
        return zero if b is zero else wrap(d, smt.floor_div(a, b))
    return wrap(d, smt.ite(smt.same(b, zero), zero, smt.floor_div(a, b)))


def _whole_mod(m: Model, d: DType, a: Term, b: Term) -> Term:
    zero = smt.integer(0)
    if b.kind is smt.Kind.LITERAL:
        return a if b is zero else smt.floor_mod(a, b)
    return smt.ite(smt.same(b, zero), a, smt.floor_mod(a, b))


def _whole_bitwise(name: str) -> Callable[..., Term]:
    """Some function of the two, one per width: nothing is known of it."""
    return lambda m, d, a, b: wrap(d, m.some(f"{name}.{d.short}", a, b, sort=smt.INT))


def _power_of_two(m: Model, n: Term) -> Term:
    """2^n for n >= 0: the number for a literal, else some positive number, 1 for 0."""
    if n.kind is smt.Kind.LITERAL and n.head.isdigit() and len(n.head) < 5:
        return smt.integer(1 << int(n.head))
    power = m.some("power-of-two", n, sort=smt.INT)
    m.facts.append(smt.compare(">=", power, smt.integer(1)))
    m.facts.append(smt.same(smt.same(n, smt.integer(0)), smt.same(power, smt.integer(1))))
    return power


def _whole_shift(m: Model, op: Op, d: DType, a: Value, n: Value) -> Term:
    """Shl = a * 2^n, Shr = floor(a / 2^n) (R29); where a or n is an index, a negative count is a Trap (R29, R81), else it is read
    as unsigned; a count of the width or more leaves 0 or the sign (R06)."""
    zero, count = smt.integer(0), n.term
    if Kind.INDEX in (d.kind, n.dtype.kind):
        m.defined.append(smt.compare(">=", count, zero))
    elif n.dtype.is_signed:
        count = smt.ite(smt.compare("<", count, zero), smt.plus(count, smt.integer(1 << n.dtype.bits)), count)
    power = _power_of_two(m, count)
    if op is Op.SHL:
        shifted, rest = smt.times(a.term, power), zero
    else:
        shifted, rest = smt.floor_div(a.term, power), smt.ite(smt.compare("<", a.term, zero), smt.integer(-1), zero)
    if d.kind is Kind.INDEX:
        return shifted
    return smt.ite(smt.compare("<", count, smt.integer(d.bits)), wrap(d, shifted), rest)


WHOLE: dict[Op, Callable[..., Term]] = {
    Op.ADD: _wrapped(smt.plus),
    Op.SUB: _wrapped(smt.minus),
    Op.MUL: _wrapped(smt.times),
    Op.NEG: _wrapped(smt.minus),
    Op.MAX: lambda m, d, a, b: smt.ite(smt.compare("<", a, b), b, a),
    Op.MULACC: _wrapped(lambda a, b, c: smt.plus(smt.times(a, b), c)),
    Op.IDIV: _whole_idiv,
    Op.MOD: _whole_mod,
    Op.AND: _whole_bitwise("and"),
    Op.OR: _whole_bitwise("or"),
    Op.XOR: _whole_bitwise("xor"),
    Op.TRUNC: _identity,
    Op.CMPLT: _relation("<"),
    Op.CMPGT: _relation(">"),
    Op.CMPLE: _relation("<="),
    Op.CMPGE: _relation(">="),
    Op.CMPEQ: _same,
    Op.CMPNE: _different,
}

# One bit of an index value: what can be said of every bit alike (R29)

SLICE: dict[Op, Callable[..., Term]] = {op: BOOL[op] for op in BITWISE}

# Floats: IEEE 754, one rounding to nearest even per op (R16). A float8 is computed in float32 and rounded to its dtype: products
# are exact there, and to round a sum, quotient or root twice does no harm (24 >= 2 * 4 + 2 bits; Figueroa 1995). The sum of a
# product is exact in float64, where it is computed.


def _rounded(head: str) -> Callable[..., Term]:
    def row(m: Model, d: DType, *args: Term) -> Term:
        wide = [_computed(d, a, dt.float64 if head == "fp.fma" else dt.float32) for a in args]
        return _narrowed(m, d, smt.app(head, RNE, *wide, sort=wide[0].sort))

    return row


def _computed(d: DType, a: Term, wide: DType) -> Term:
    return to_float(a, smt.fp(*FORMAT[wide])) if d in SMALL else a


def _narrowed(m: Model, d: DType, t: Term) -> Term:
    return round_float(m, d, t) if d in SMALL else t


def _recip(m: Model, d: DType, a: Term) -> Term:
    return _rounded("fp.div")(m, d, m.number(1.0, d).term, a)


def _float_max(m: Model, d: DType, a: Term, b: Term) -> Term:
    """NaN if either is (R11); of two zeros either one, which is a choice."""
    nan = smt.or_(smt.app("fp.isNaN", a, sort=smt.BOOL), smt.app("fp.isNaN", b, sort=smt.BOOL))
    zeros = smt.and_(smt.app("fp.isZero", a, sort=smt.BOOL), smt.app("fp.isZero", b, sort=smt.BOOL))
    first = m.fresh("choice", smt.BOOL)
    m.choices.append(first)
    greater = smt.ite(zeros, smt.ite(first, a, b), smt.ite(smt.compare("fp.lt", a, b), b, a))
    return smt.ite(nan, smt.ite(smt.app("fp.isNaN", a, sort=smt.BOOL), a, b), greater)


def _approximated(op: Op) -> Callable[..., Term]:
    """Some function (R27): one node has one value, and which one its kernel decides (R17, R18)."""
    return lambda m, d, *args: m.some(f"{op.name.lower()}.{d.short}", *args, sort=args[0].sort)


FLOAT: dict[Op, Callable[..., Term]] = {
    Op.ADD: _rounded("fp.add"),
    Op.SUB: _rounded("fp.sub"),
    Op.MUL: _rounded("fp.mul"),
    Op.DIV: _rounded("fp.div"),
    Op.SQRT: _rounded("fp.sqrt"),
    Op.MULACC: _rounded("fp.fma"),
    Op.RECIP: _recip,
    Op.NEG: _app("fp.neg"),
    Op.MAX: _float_max,
    Op.TRUNC: lambda m, d, a: smt.app("fp.roundToIntegral", RTZ, a, sort=a.sort),
    **{op: _approximated(op) for op in (Op.EXP2, Op.LOG2, Op.SIN, Op.POW)},
    # with NaN all but CmpNe are false (R12, R13)
    Op.CMPLT: _relation("fp.lt"),
    Op.CMPGT: _relation("fp.gt"),
    Op.CMPLE: _relation("fp.leq"),
    Op.CMPGE: _relation("fp.geq"),
    Op.CMPEQ: _relation("fp.eq"),
    Op.CMPNE: lambda m, d, a, b: smt.not_(smt.compare("fp.eq", a, b)),
}

TABLES = {Form.BOOL: BOOL, Form.BITS: BITS, Form.WHOLE: WHOLE, Form.SLICE: SLICE, Form.FLOAT: FLOAT, Form.REAL: reals.ROWS}


def mean(m: Model, op: Op, operands: Sequence[Value], to: DType | None = None) -> Value:
    """The value of `op` on well-typed operands."""
    if op is Op.CAST:
        assert to is not None
        return cast(m, to, operands[0])
    if op is Op.BITCAST:
        assert to is not None
        return bitcast(m, to, operands[0])
    if op is Op.WHERE:
        return _where(m, *operands)
    if op in SHIFT:
        return _shift(m, op, *operands)
    d = operands[0].dtype
    row = TABLES.get(m.form(d), {}).get(op)
    if row is None:
        raise Unmodelled(f"{op.name} of {d} as {m.form(d).value}")
    term = row(m, d, *(o.term for o in operands))
    if op is Op.NEG and operands[0].bits is not None:  # flips the sign bit, of a NaN too (R21)
        bits = operands[0].bits
        return Value(d, term, smt.app("bvxor", bits, smt.word(1 << (d.bits - 1), d.bits), sort=bits.sort))
    return Value(dt.bool_ if op in COMPARE else d, term)


def _where(m: Model, p: Value, a: Value, b: Value) -> Value:
    """P != 0 ? a : b, every bit kept (R14, R28)."""
    condition = cast(m, dt.bool_, p).term
    bits = None
    if a.bits is not None and b.bits is not None:
        bits = smt.ite(condition, a.bits, b.bits)
    return Value(a.dtype, smt.ite(condition, a.term, b.term), bits)


def _shift(m: Model, op: Op, a: Value, n: Value) -> Value:
    forms = {m.form(a.dtype), m.form(n.dtype)}
    if forms == {Form.BITS}:
        return Value(a.dtype, (_bits_shl if op is Op.SHL else _bits_shr)(a.dtype, a, n))
    if forms == {Form.WHOLE}:
        return Value(a.dtype, _whole_shift(m, op, a.dtype, a, n))
    raise Unmodelled(f"{op.name} of {a.dtype} by {n.dtype}")
