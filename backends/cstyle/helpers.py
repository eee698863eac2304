"""Functions that stand before a kernel which needs them: what no single expression of C says without undefined behaviour.

Each is text common to the languages of the family, made for the dtypes that it is used with.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.backends.cstyle.language import ALIAS, Language, bits, exact, integer
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


def word(d: DType) -> str:
    """The unsigned type in which integers of `d` are computed: no narrower than `int`, so that nothing is promoted to signed."""
    return "u32" if bits(d) <= 32 else "u64"


def name(kind: str, dtypes: tuple[DType, ...]) -> str:
    return "_".join((kind, *(ALIAS[d] for d in dtypes)))


def text(kind: str, dtypes: tuple[DType, ...], language: Language) -> str:
    """The definition of a helper."""
    head, body = HELPERS[kind](*dtypes)
    return f"{language.function_head} {head.format(name(kind, dtypes))} {{\n{body}}}\n"


def _idiv(d: DType) -> tuple[str, str]:
    """floor(x / y); 0 for y = 0 (R03); x / -1 is the wrapped negation (R04)."""
    t = ALIAS[d]
    body = (
        "  if (y == 0) return 0;\n"
        f"  if (y == -1) return ({t})(0u - ({word(d)})x);\n"
        f"  const {t} q = x / y, r = x % y;\n"
        "  return r != 0 && (r ^ y) < 0 ? q - 1 : q;\n"
    )
    return f"{t} {{}}({t} x, {t} y)", body


def _mod(d: DType) -> tuple[str, str]:
    """x - y * floor(x / y), so its sign is y's (R02); x for y = 0 (R03)."""
    t = ALIAS[d]
    body = (
        f"  if (y == 0) return x;\n  if (y == -1) return 0;\n  const {t} r = x % y;\n  return r != 0 && (r ^ y) < 0 ? r + y : r;\n"
    )
    return f"{t} {{}}({t} x, {t} y)", body


def _saturate(source: DType, target: DType) -> tuple[str, str]:
    """Toward zero, saturating, NaN gives 0 (R15): C leaves a value that does not fit undefined."""
    t, f, width = ALIAS[target], ALIAS[source], bits(target)
    most = integer((1 << (width - target.is_signed)) - 1, target)
    above = f"  if (x >= {exact(2.0 ** (width - target.is_signed), source)}) return {most};\n"
    head = f"{t} {{}}({f} x)"
    if target.is_signed:
        least, edge = integer(-(1 << (width - 1)), target), exact(-(2.0 ** (width - 1)), source)
        return head, f"{above}  if (x <= {edge}) return {least};\n  return x == x ? ({t})x : 0;\n"
    if width < 64:
        return head, f"{above}  return x > 0 ? ({t})(i64)x : 0;\n"
    half = exact(2.0**63, source)  # signed conversions are instructions, an unsigned one is a library call of TinyCC
    return head, f"{above}  if (x >= {half}) return (u64)(i64)(x - {half}) + {1 << 63}ul;\n  return x > 0 ? (u64)(i64)x : 0;\n"


def _reinterpret(source: DType, target: DType) -> tuple[str, str]:
    """The same bits as another type (R46); C defines reading the other member of a union."""
    s, t = ALIAS[source], ALIAS[target]
    return f"{t} {{}}({s} x)", f"  union {{ {s} from; {t} to; }} bits;\n  bits.from = x;\n  return bits.to;\n"


def _unsigned(target: DType) -> tuple[str, str]:
    """u64 to a float, rounded once: above 2^63 half of it is converted, its last bit made sticky, and doubled."""
    f, two = ALIAS[target], exact(2.0, target)
    return f"{f} {{}}(u64 x)", f"  return x >> 63 ? {two} * ({f})(i64)(x >> 1 | (x & 1)) : ({f})(i64)x;\n"


def _trunc(d: DType) -> tuple[str, str]:
    """Toward zero. From here on a float has no fraction; a NaN is not within either. Below one the sign of a zero is that of x."""
    f, edge = ALIAS[d], exact(2.0**d.man_bits, d)
    zero, whole = exact(0.0, d), f"({f})({'i32' if d is dt.float32 else 'i64'})x"
    body = f"  if (!(x > -{edge} && x < {edge})) return x;\n  const {f} whole = {whole};\n"
    return f"{f} {{}}({f} x)", f"{body}  return whole == {zero} ? x * {zero} : whole;\n"


HELPERS: dict[str, Callable[..., tuple[str, str]]] = {
    "idiv": _idiv,
    "mod": _mod,
    "saturate": _saturate,
    "reinterpret": _reinterpret,
    "from_u64": _unsigned,
    "trunc": _trunc,
}

#: The floats among which conversions of u64 are made.
FROM_U64 = (dt.float32, dt.float64)
