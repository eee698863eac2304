"""Terms of the prover on many values at once, in NumPy: what SMT-LIB says of each operator, in a text of its own.

Booleans are bool arrays, whole numbers int64 arrays (values here stay far inside), bit vectors uint64 arrays, floats float64 arrays
of values that their format has.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import Sort, Term, TermKind
from uops.spec.ir import dtypes as dt

#: Formats of the solver -> (bias, bits of the mantissa). A float8 is rounded in one with the exponents of float16.
FORMATS = {smt.fp(d.exp_bits, d.man_bits + 1): (d.bias, d.man_bits) for d in dt.FLOATS if d.bits > 8}
FORMATS |= {smt.fp(5, d.man_bits + 1): (15, d.man_bits) for d in dt.FLOATS if d.bits == 8}


def evaluate(t: Term, env: Mapping[str, Any]) -> Any:
    """The value of `t` under arrays for its constants."""
    done: dict[Term, Any] = {}
    with np.errstate(all="ignore"):
        for s in smt.subterms([t]):
            done[s] = _one(s, [done[a] for a in s.args], env)
    return done[t]


def _one(t: Term, args: list[Any], env: Mapping[str, Any]) -> Any:
    if t.kind is TermKind.LITERAL:
        return _literal(t)
    if t.kind is TermKind.DECLARED and not args:
        return env[t.head]
    name = t.head.strip("()").split()
    head = name[1] if name[0] == "_" else t.head
    numbers = [int(n) for n in name[2:]] if name[0] == "_" else []
    if t.head.split(".")[0] in ("and", "or", "xor") and t.kind is TermKind.DECLARED:
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[t.head.split(".")[0]](*args)
    return OPS[head](t, numbers, *args)


def _literal(t: Term) -> Any:
    if t.sort == smt.ROUNDING:
        return t.head
    if t.sort == smt.BOOL:
        return np.bool_(t.head == "true")
    if t.sort == smt.INT:
        return np.int64(int(re.sub(r"[()\s]", "", t.head)))
    if m := re.fullmatch(r"\(_ bv(\d+) \d+\)", t.head):
        return np.uint64(int(m[1]))
    if special := re.match(r"\(_ (NaN|\+oo|-oo) ", t.head):
        return {"NaN": np.float64("nan"), "+oo": np.float64("inf"), "-oo": np.float64("-inf")}[special[1]]
    m = re.fullmatch(r"\(\(_ to_fp \d+ \d+\) RNE (.*)\)", t.head)
    assert m, t.head
    if f := re.fullmatch(r"\(/ ([\d.]+) ([\d.]+)\)", m[1]):
        return rounded(np.float64(float(f[1]) / float(f[2])), t.sort)
    return rounded(np.float64(float(re.sub(r"[()\s]", "", m[1]))), t.sort)


def mask(sort: Sort) -> np.uint64:
    return np.uint64((1 << sort.bits) - 1)


def signed(x: Any, sort: Sort) -> Any:
    """A bit vector as a signed number."""
    shift = np.int64(64 - sort.bits)
    return np.asarray(x).astype(np.uint64).view(np.int64) << shift >> shift


def bits_of(n: Any, sort: Sort) -> Any:
    return np.asarray(n).astype(np.int64).view(np.uint64) & mask(sort)


def rounded(x: Any, sort: Sort) -> Any:
    """A float64 to the nearest value of a format, ties to even."""
    bias, m = FORMATS[sort]
    x = np.asarray(x, np.float64)
    if m == 52:
        return x
    exponent = np.maximum(np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1, 1 - bias)
    units = np.rint(np.ldexp(x, m - exponent))
    value = np.copysign(np.ldexp(units, exponent - m), x)
    top = np.ldexp(2.0 - 2.0**-m, bias)
    return np.where(np.isfinite(x), np.where(np.abs(value) > top, np.copysign(np.inf, x), value), x)


def _from_bits(t: Term, x: Any) -> Any:
    bias, m = FORMATS[t.sort]
    x = np.asarray(x).astype(np.uint64)
    width = t.sort.bits
    sign = np.where((x >> np.uint64(width - 1)) & np.uint64(1), -1.0, 1.0)
    fraction = (x & np.uint64((1 << m) - 1)).astype(np.float64)
    e = ((x >> np.uint64(m)) & np.uint64(2 * bias + 1)).astype(np.int64)
    finite = np.where(e == 0, np.ldexp(fraction, 1 - bias - m), np.ldexp(fraction + 2.0**m, e - bias - m))
    special = np.where(fraction == 0, np.inf, np.nan)
    return sign * np.where(e == 2 * bias + 1, special, finite)


def _to_fp(t: Term, numbers: list[int], *args: Any) -> Any:
    if len(args) == 1:
        return _from_bits(t, args[0])
    source = t.args[1].sort
    if source.text.startswith("(_ BitVec"):
        return rounded(np.asarray(signed(args[1], source)).astype(np.float64), t.sort)
    return rounded(args[1], t.sort)


def _to_bv(t: Term, numbers: list[int], rounding: str, x: Any) -> Any:
    assert rounding == "RTZ"
    inside = np.where(np.abs(x) < 2.0**62, np.trunc(x), 0.0)
    return bits_of(inside.astype(np.int64), t.sort)


def _integral(t: Term, numbers: list[int], rounding: str, x: Any) -> Any:
    return np.copysign(np.trunc(x) if rounding == "RTZ" else np.rint(x), x)


def _float(f: Callable[..., Any]) -> Callable[..., Any]:
    """Computed in float64, where it is exact or as good as (see `semantics`), and rounded to the term's format."""
    return lambda t, numbers, rounding, *args: rounded(f(*args), t.sort)


def _word(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, numbers, *args: np.asarray(f(*args)).astype(np.uint64) & mask(t.sort)


def _signed_word(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, numbers, *args: bits_of(f(*(signed(a, t.args[0].sort) for a in args)), t.sort)


def _signed_test(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, numbers, *args: f(*(signed(a, t.args[0].sort) for a in args))


def _plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, numbers, *args: f(*args)


def _nonzero(b: Any) -> Any:
    return np.where(b == 0, np.ones_like(b), b)


def _toward_zero(a: Any, b: Any) -> Any:
    q = np.abs(a) // np.abs(_nonzero(b))
    return np.where((a < 0) == (b < 0), q, -q)


def _euclid(a: Any, b: Any) -> Any:
    r = np.mod(a, np.abs(_nonzero(b)))
    return (a - r) // _nonzero(b)


def _shift(f: Callable[..., Any]) -> Callable[..., Any]:
    def row(t: Term, numbers: list[int], a: Any, n: Any) -> Any:
        n = np.minimum(n, np.uint64(63))
        return np.asarray(f(a, n)).astype(np.uint64) & mask(t.sort)

    return row


def _ashr(t: Term, numbers: list[int], a: Any, n: Any) -> Any:
    return bits_of(signed(a, t.sort) >> np.minimum(n, np.uint64(63)).astype(np.int64), t.sort)


def _reduce(f: Callable[..., Any]) -> Callable[..., Any]:
    def row(t: Term, numbers: list[int], *args: Any) -> Any:
        found = args[0]
        for a in args[1:]:
            found = f(found, a)
        return found

    return row


def _same(t: Term, numbers: list[int], a: Any, b: Any) -> Any:
    if t.args[0].sort in FORMATS:
        return np.where(np.isnan(a), np.isnan(b), (a == b) & (np.signbit(a) == np.signbit(b)))
    return a == b


def _minus(t: Term, numbers: list[int], *args: Any) -> Any:
    return -args[0] if len(args) == 1 else args[0] - args[1]


OPS: dict[str, Callable[..., Any]] = {
    "and": _reduce(np.logical_and), "or": _reduce(np.logical_or), "not": _plain(np.logical_not),
    "=>": _plain(lambda a, b: np.logical_or(np.logical_not(a), b)), "=": _same, "ite": _plain(np.where),
    "+": _plain(np.add), "-": _minus, "*": _plain(np.multiply), "<": _plain(np.less), "<=": _plain(np.less_equal),
    ">": _plain(np.greater), ">=": _plain(np.greater_equal), "div": _plain(_euclid),
    "mod": _plain(lambda a, b: np.mod(a, np.abs(_nonzero(b)))),
    "floor-div": _plain(lambda a, b: np.floor_divide(a, _nonzero(b))), "floor-mod": _plain(lambda a, b: np.mod(a, _nonzero(b))),
    "power-of-two": _plain(lambda n: np.int64(1) << np.minimum(n, 62)),
    "bvadd": _word(np.add), "bvsub": _word(np.subtract), "bvmul": _word(np.multiply), "bvneg": _signed_word(np.negative),
    "bvand": _word(np.bitwise_and), "bvor": _word(np.bitwise_or), "bvxor": _word(np.bitwise_xor),
    "bvshl": _shift(np.left_shift), "bvlshr": _shift(np.right_shift), "bvashr": _ashr,
    "bvudiv": _word(lambda a, b: a // _nonzero(b)), "bvurem": _word(lambda a, b: a % _nonzero(b)),
    "bvsdiv": _signed_word(_toward_zero), "bvsrem": _signed_word(lambda a, b: a - _nonzero(b) * _toward_zero(a, _nonzero(b))),
    "bvsmod": _signed_word(lambda a, b: np.mod(a, _nonzero(b))),
    "bvult": _plain(np.less), "bvule": _plain(np.less_equal), "bvugt": _plain(np.greater), "bvuge": _plain(np.greater_equal),
    "bvslt": _signed_test(np.less), "bvsle": _signed_test(np.less_equal),
    "bvsgt": _signed_test(np.greater), "bvsge": _signed_test(np.greater_equal),
    "extract": lambda t, n, a: (a >> np.uint64(n[1])) & mask(t.sort),
    "concat": lambda t, n, a, b: (np.asarray(a).astype(np.uint64) << np.uint64(t.args[1].sort.bits)) | b,
    "zero_extend": lambda t, n, a: a, "sign_extend": lambda t, n, a: bits_of(signed(a, t.args[0].sort), t.sort),
    "fp.add": _float(np.add), "fp.sub": _float(np.subtract), "fp.mul": _float(np.multiply), "fp.div": _float(np.divide),
    "fp.sqrt": _float(np.sqrt), "fp.fma": _float(lambda a, b, c: a * b + c), "fp.roundToIntegral": _integral,
    "fp.neg": _plain(np.negative), "fp.abs": _plain(np.abs), "fp.lt": _plain(np.less), "fp.leq": _plain(np.less_equal),
    "fp.gt": _plain(np.greater), "fp.geq": _plain(np.greater_equal), "fp.eq": _plain(np.equal), "fp.isNaN": _plain(np.isnan),
    "fp.isZero": _plain(lambda a: a == 0), "fp.isInfinite": _plain(np.isinf),
    "fp.isNegative": _plain(lambda a: np.signbit(a) & ~np.isnan(a)),
    "to_fp": _to_fp, "to_fp_unsigned": lambda t, n, r, a: rounded(np.asarray(a).astype(np.float64), t.sort),
    "fp.to_sbv": _to_bv, "fp.to_ubv": _to_bv,
}  # fmt: skip
