"""Derivation of every constant of `compiler/decompose/coefficients.py`.

`python bench/coefficients/derive.py` prints the module; `--check PATH` compares it with a file and exits with 1 if they differ.
The comment at each table states the weighted error that the rounded coefficients reach.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
from remez import MinimaxProblem, Rounding, fit_with_rounding, make_binary_rounding, make_power_basis, round_to_pair

Real = Any
#: Bits of the multiple-precision values.
PRECISION = 320
#: Bits per chunk and number of chunks of 1/(2 pi) for float32 reduction.
CHUNK_BITS, CHUNKS = 28, 5
#: Bits per word, number of words and leading zeros of 1/(2 pi) for float64 reduction.
WORD_BITS, WORDS, LEADING_ZEROS = 64, 19, 52


def _exp2(r: Real) -> Real:
    return mp.mpf(2) ** r - 1


def _log2_over_f(f: Real) -> Real:
    return mp.log1p(f) / mp.log(2) / f if f else 1 / mp.log(2)


def _sin_tail(z: Real) -> Real:
    """Return (sin(r) / r - 1) / z at z = r * r."""
    r = mp.sqrt(z)
    return (mp.sin(r) / r - 1) / z


def _cos_tail(z: Real) -> Real:
    """Return (cos(r) - 1 + z/2) / z^2 at z = r * r."""
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _atanh(z: Real) -> Real:
    """Return 2 atanh(s) / (s ln 2) at z = s * s."""
    s = mp.sqrt(z)
    return 2 / mp.log(2) * (mp.atanh(s) / s if z else 1)


def _exp_tail(w: Real) -> Real:
    return (mp.exp(w) - 1 - w - w * w / 2) / w**3 if w else mp.mpf(1) / 6


def _exp2_problem(degree: int) -> MinimaxProblem:
    half = mp.mpf(1) / 2
    return MinimaxProblem(_exp2, make_power_basis(1, degree), -half, half, lambda r: mp.mpf(2) ** -r)


def _log2_problem(degree: int) -> MinimaxProblem:
    root = mp.sqrt(2)
    return MinimaxProblem(_log2_over_f, make_power_basis(0, degree), root / 2 - 1, root - 1, lambda f: 1 / _log2_over_f(f))


def _sin_problem(degree: int, limit: Real) -> MinimaxProblem:
    return MinimaxProblem(_sin_tail, make_power_basis(0, degree), mp.mpf(2) ** -60, limit**2, lambda z: z / (1 + z * _sin_tail(z)))


def _cos_problem(degree: int) -> MinimaxProblem:
    return MinimaxProblem(
        _cos_tail, make_power_basis(0, degree), mp.mpf(2) ** -60, (mp.pi / 4) ** 2, lambda z: z**2 / mp.cos(mp.sqrt(z))
    )


def _atanh_problem(degree: int) -> MinimaxProblem:
    root = mp.sqrt(2)
    return MinimaxProblem(_atanh, make_power_basis(0, degree), mp.mpf(0), ((root - 1) / (root + 1)) ** 2, lambda z: 1 / _atanh(z))


def _exp_problem(degree: int) -> MinimaxProblem:
    w = mp.log(2) / 8
    return MinimaxProblem(_exp_tail, make_power_basis(0, degree), -w, w, lambda w: w**3 / mp.exp(w))


SINGLE, DOUBLE = make_binary_rounding(24), make_binary_rounding(53)
# fmt: off
#: name -> (meaning, problem, the rounding of each coefficient)
TABLES: dict[str, tuple[str, Callable[[], MinimaxProblem], list[Rounding]]] = {
    "EXP2_32":     ("2^r - 1 = r*(c0 + c1 r + ..), |r| <= 1/2",          lambda: _exp2_problem(6),   [SINGLE] * 6),
    "EXP2_64":     ("the same in float64",                               lambda: _exp2_problem(11),  [DOUBLE] * 11),
    "EXP2_POW32":  ("the same, for float32 Pow in float64",              lambda: _exp2_problem(7),   [DOUBLE] * 7),
    "LOG2_32":     ("log2(1 + f) / f, 1 + f in [sqrt(1/2), sqrt(2)]",    lambda: _log2_problem(9),   [SINGLE] * 10),
    "LOG2_64":     ("the same in float64",                               lambda: _log2_problem(20),  [DOUBLE] * 21),
    "LOG2_POW32":  ("the same, for float32 Pow in float64",              lambda: _log2_problem(12),  [DOUBLE] * 13),
    "SIN_32":      ("(sin(r) / r - 1) / z, z = r*r <= (pi/2)^2",         lambda: _sin_problem(4, mp.pi / 2), [SINGLE] * 5),
    "SIN_64":      ("the same in float64, z <= 1",                       lambda: _sin_problem(6, mp.mpf(1)), [DOUBLE] * 7),
    "COS_64":      ("(cos(r) - 1 + z/2) / z^2, z = r*r <= (pi/4)^2",     lambda: _cos_problem(5),    [DOUBLE] * 6),
    "ATANH_HEAD":  ("2 atanh(s) / (s ln 2), z = s*s, first as pairs",    lambda: _atanh_problem(9),
                    [round_to_pair] * 4 + [DOUBLE] * 6),
    "EXP_TAIL":    ("(exp(w) - 1 - w - w*w/2) / w^3, |w| <= ln(2)/8",    lambda: _exp_problem(6),    [DOUBLE] * 7),
}
# fmt: on


def _hex(x: Real) -> str:
    return f'_f("{float(x).hex()}")'


def _format_pair(x: Real, parts: int = 2) -> str:
    """Return a number as the source of a tuple of float64 whose sum it is."""
    out = []
    for _ in range(parts):
        out.append(_hex(DOUBLE(x)))
        x -= DOUBLE(x)
    return f"({', '.join(out)})"


def _lines(name: str, items: list[str]) -> list[str]:
    return [f"{name} = (", *(f"    {item}," for item in items), ")"]


def _derive_polynomials() -> list[str]:
    """Return the source lines of the polynomials' coefficients."""
    out: list[str] = []
    for name, (meaning, problem, rounding) in TABLES.items():
        coefficients, error = fit_with_rounding(problem(), rounding)
        out.append(f"#: {meaning}; weighted error 2^{float(mp.log(error, 2)):.2f}.")
        pairs = sum(r is round_to_pair for r in rounding)
        if pairs:
            out += _lines(name, [_format_pair(c) for c in coefficients[:pairs]])
            out += [f"#: The remaining terms of {name}.", *_lines("ATANH_TAIL", [_hex(c) for c in coefficients[pairs:]])]
        else:
            out += _lines(name, [_hex(c) for c in coefficients])
    return out


def _bits(x: Real, start: int, count: int) -> int:
    """Return `count` bits of x from weight 2^-(start + 1) on."""
    return int(mp.floor(mp.ldexp(x, start + count))) & ((1 << count) - 1)


def _derive_inverse_two_pi() -> list[str]:
    """Return the source lines of 1/(2 pi): exact chunks for float32, words for float64."""
    turn = 1 / (2 * mp.pi)
    chunks, start = [], 2  # the first two bits are zero
    for _ in range(CHUNKS):
        chunks.append(mp.ldexp(mp.mpf(_bits(turn, start, CHUNK_BITS)), -start - CHUNK_BITS))
        start += CHUNK_BITS
    chunks.append(DOUBLE(turn - mp.fsum(chunks)))
    with mp.workprec(WORD_BITS * WORDS + 64):
        shifted = mp.ldexp(1 / (2 * mp.pi), -LEADING_ZEROS)
        words = [_bits(shifted, WORD_BITS * k, WORD_BITS) for k in range(WORDS)]
    return [
        f"#: 1/(2 pi) as chunks of {CHUNK_BITS} bits (a product with a float32 is exact in float64) and a rounded rest.",
        *_lines("TURN_CHUNKS", [_hex(c) for c in chunks]),
        f"#: The bits of 2^-{LEADING_ZEROS}/(2 pi), {WORD_BITS} to a word, most significant first.",
        *_lines("TURN_WORDS", [f"0x{w:016X}" for w in words]),
    ]


def _derive_double_pairs() -> list[str]:
    """Return the source lines of the constants that are sums of float64."""
    return [
        "#: Unevaluated sums of doubles.",
        f"PI = {_format_pair(mp.pi, 3)}",
        f"LN2 = {_format_pair(mp.log(2))}",
        "#: 2^0, 2^(1/4), 2^(1/2), 2^(3/4).",
        *_lines("ROOTS", [_format_pair(mp.mpf(2) ** (mp.mpf(n) / 4)) for n in range(4)]),
        f"INV_PI = {_hex(1 / mp.pi)}",
        f"TWO_PI = {_hex(2 * mp.pi)}",
    ]


HEADER = '''"""Constants of the decompositions; generated by `bench/coefficients/derive.py`, which also checks them. Do not edit."""

from __future__ import annotations

_f = float.fromhex
'''


def generate_module() -> str:
    """Return the source of the generated module."""
    with mp.workprec(PRECISION):
        return HEADER + "\n" + "\n".join([*_derive_polynomials(), *_derive_inverse_two_pi(), *_derive_double_pairs()]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=Path, help="compare with this file instead of printing")
    path = parser.parse_args().check
    text = generate_module()
    if path is None:
        print(text, end="")
        return 0
    same = path.read_text() == text
    print("equal" if same else f"{path} differs from the derived constants")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
