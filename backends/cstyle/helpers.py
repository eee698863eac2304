"""Helper functions in front of a kernel, for what no C expression says without undefined behaviour.

Takes: a kind of helper and its dtypes. Gives: the text of its definition, common to the languages of the family.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.backends.cstyle.language import ALIAS, Language, render_finite_float, render_integer
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


def unsigned_word_type(d: DType) -> str:
    """Return the unsigned type that computes integers of `d`: at least as wide as `int`, so that C promotes nothing to signed."""
    return "u32" if d.storage.bits <= 32 else "u64"


def helper_name(kind: str, dtypes: tuple[DType, ...]) -> str:
    """Return the name of a helper."""
    return "_".join((kind, *(ALIAS[d] for d in dtypes)))


def render_helper(kind: str, dtypes: tuple[DType, ...], language: Language) -> str:
    """Return the definition of a helper."""
    head, body = HELPERS[kind](*dtypes)
    return f"{language.function_head} {head.format(helper_name(kind, dtypes))} {{\n{body}}}\n"


def _make_idiv_head_and_body(d: DType) -> tuple[str, str]:
    """Define floor(x / y); 0 for y = 0 (R03); x / -1 is the wrapped negation (R04)."""
    t = ALIAS[d]  # a quotient of narrower integers is an int, and wraps in its conversion
    body = (
        "  if (y == 0) return 0;\n"
        f"{f'  if (y == -1) return ({t})(0u - ({unsigned_word_type(d)})x);{chr(10)}' if d.storage.bits >= 32 else ''}"
        f"  const {t} q = x / y, r = x % y;\n"
        "  return r != 0 && (r ^ y) < 0 ? q - 1 : q;\n"
    )
    return f"{t} {{}}({t} x, {t} y)", body


def _make_mod_head_and_body(d: DType) -> tuple[str, str]:
    """Define x - y * floor(x / y), which has the sign of y (R02); x for y = 0 (R03)."""
    t = ALIAS[d]
    body = (
        f"  if (y == 0) return x;\n  if (y == -1) return 0;\n  const {t} r = x % y;\n  return r != 0 && (r ^ y) < 0 ? r + y : r;\n"
    )
    return f"{t} {{}}({t} x, {t} y)", body


def _make_saturate_head_and_body(source: DType, target: DType) -> tuple[str, str]:
    """Define the conversion toward zero, saturating, NaN to 0 (R15): C leaves values out of range undefined."""
    t, f, width = ALIAS[target], ALIAS[source], target.storage.bits
    most = render_integer((1 << (width - target.is_signed)) - 1, target)
    above = f"  if (x >= {render_finite_float(2.0 ** (width - target.is_signed), source)}) return {most};\n"
    head = f"{t} {{}}({f} x)"
    if target.is_signed:
        least, edge = render_integer(-(1 << (width - 1)), target), render_finite_float(-(2.0 ** (width - 1)), source)
        return head, f"{above}  if (x <= {edge}) return {least};\n  return x == x ? ({t})x : 0;\n"
    if width < 64:
        return head, f"{above}  return x > 0 ? ({t})(i64)x : 0;\n"
    half = render_finite_float(2.0**63, source)  # signed conversions are instructions, an unsigned one is a library call of TinyCC
    return head, f"{above}  if (x >= {half}) return (u64)(i64)(x - {half}) + {1 << 63}ul;\n  return x > 0 ? (u64)(i64)x : 0;\n"


def _make_reinterpret_head_and_body(source: DType, target: DType) -> tuple[str, str]:
    """Define the reinterpretation of bits as another type (R46); C defines reading the other member of a union."""
    s, t = ALIAS[source], ALIAS[target]
    return f"{t} {{}}({s} x)", f"  union {{ {s} from; {t} to; }} bits;\n  bits.from = x;\n  return bits.to;\n"


def _make_from_u64_head_and_body(target: DType) -> tuple[str, str]:
    """Define the conversion of u64 to a float, rounded once.

    Above 2^63, half of the number is converted with its last bit made sticky, and doubled.
    """
    f, two = ALIAS[target], render_finite_float(2.0, target)
    return f"{f} {{}}(u64 x)", f"  return x >> 63 ? {two} * ({f})(i64)(x >> 1 | (x & 1)) : ({f})(i64)x;\n"


def _make_trunc_head_and_body(d: DType) -> tuple[str, str]:
    """Define the truncation toward zero.

    Floats beyond the edge have no fraction, and NaN is not within either bound. Below one, the zero keeps the sign of x.
    """
    f, edge = ALIAS[d], render_finite_float(2.0**d.man_bits, d)
    zero, whole = render_finite_float(0.0, d), f"({f})({'i32' if d is dt.float32 else 'i64'})x"
    body = f"  if (!(x > -{edge} && x < {edge})) return x;\n  const {f} whole = {whole};\n"
    return f"{f} {{}}({f} x)", f"{body}  return whole == {zero} ? x * {zero} : whole;\n"


def _make_float32_fma_head_and_body(_float32: DType) -> tuple[str, str]:
    """Define x * y + z of float32, rounded once, by float64.

    The product is exact, and the error of the sum is computed exactly. An inexact sum takes its odd neighbour, which is never in
    the middle of two float32 (rounding to odd: Boldo and Melquiond, 2008). Of an infinity or NaN, the error is NaN.
    """
    body = (
        "  const f64 product = (f64)x * (f64)y, sum = product + (f64)z;\n"
        "  const f64 part = sum - product, error = (product - (sum - part)) + ((f64)z - part);\n"
        "  union { f64 value; u64 bits; } odd;\n"
        "  odd.value = sum;\n"
        "  if ((error < 0.0 || error > 0.0) && !(odd.bits & 1ul)) odd.bits += (error > 0.0) == (sum > 0.0) ? 1ul : ~0ul;\n"
        "  return (f32)odd.value;\n"
    )
    return "f32 {}(f32 x, f32 y, f32 z)", body


def _make_int64_to_float32_head_and_body(source: DType) -> tuple[str, str]:
    """Define the conversion of a 64-bit integer to float32, rounded once, by float64.

    Above 2^53, float64 cannot hold all of its bits. The last 11 become one that says if any of them is set, so 53 are left.
    """
    t, one = ALIAS[source], render_integer(1, source)
    inside = f"x <= {one} << 53" + (f" && x >= -({one} << 53)" if source.is_signed else "")
    sticky = f"(x >> 11 | ({t})((x & {render_integer(2047, source)}) != 0)) * {render_integer(2048, source)}"
    return f"f32 {{}}({t} x)", f"  return (f32)(f64)({inside} ? x : {sticky});\n"


HELPERS: dict[str, Callable[..., tuple[str, str]]] = {
    "idiv": _make_idiv_head_and_body,
    "mod": _make_mod_head_and_body,
    "saturate": _make_saturate_head_and_body,
    "reinterpret": _make_reinterpret_head_and_body,
    "from_u64": _make_from_u64_head_and_body,
    "trunc": _make_trunc_head_and_body,
    "from_wide": _make_int64_to_float32_head_and_body,
    "fma": _make_float32_fma_head_and_body,
}
