"""Changes to kernels that keep clear of instructions which an emulator gets wrong.

Takes and gives: LLVM IR text of a kernel, with the same meaning. Each function names what it avoids. FOUND.md has the details.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Conversions of vectors of floats to integers, and truncations of such vectors.
_CONVERSION = re.compile(
    r"^  (?P<name>%\S+) = (?P<op>fpto[su]i) <(?P<lanes>\d+) x (?P<source>float|double)> (?P<x>\S+) to <\d+ x (?P<result>i\d+)>$",
    re.MULTILINE,
)
_TRUNCATION = re.compile(
    r"^  (?P<name>%\S+) = call <(?P<lanes>\d+) x (?P<result>float|double)>"
    r" @llvm\.trunc\.v\d+f(?P<bits>\d+)\(<\d+ x \w+> (?P<x>\S+)\)$",
    re.MULTILINE,
)
_EXTENSION = re.compile(r"^  (?P<name>%\S+) = fpext float (?P<x>\S+) to double$", re.MULTILINE)
_EXTENSION_APART = r"""  \g<name>.wide = fpext float \g<x> to double
  \g<name> = call double asm "", "=f,0"(double \g<name>.wide)"""


def scalarize_vector_fptoint_and_trunc(text: str) -> str:
    """Return the text with scalar conversions to integers and scalar truncations in place of those of vectors of floats.

    qemu 7.2 ends at RISC-V's `vfcvt.rtz` (FOUND Q01). LLVM must not vectorize the text again.
    """
    types = {m["bits"]: m["result"] for m in _TRUNCATION.finditer(text)}
    text = _TRUNCATION.sub(_truncate_lanes, _CONVERSION.sub(_convert_lanes, text))
    declarations = [f"declare {t} @llvm.trunc.f{bits}({t})" for bits, t in types.items()]
    return "\n".join([text.rstrip("\n"), *(d for d in declarations if d not in text), ""])


def hide_fpext_behind_inline_asm(text: str) -> str:
    """Return the text with each extended scalar float hidden from its users, so that none of them extends it itself.

    qemu 7.2 computes s390x's `mdeb` and `mdebr` wrongly, which multiply floats of 32 bits to one of 64 (FOUND Q02). The empty piece
    of assembly may change the value, as far as LLVM knows.
    """
    return _EXTENSION.sub(_EXTENSION_APART, text)


def _convert_lanes(m: re.Match[str]) -> str:
    source, result = m["source"], m["result"]
    return _split_into_lanes(m, source, lambda lane: f"{m['op']} {source} {lane} to {result}")


def _truncate_lanes(m: re.Match[str]) -> str:
    t = m["result"]
    return _split_into_lanes(m, t, lambda lane: f"call {t} @llvm.trunc.f{m['bits']}({t} {lane})")


def _split_into_lanes(m: re.Match[str], source: str, instruction: Callable[[str], str]) -> str:
    """Return instructions that take the lanes of a vector of `source` apart, and put the results together."""
    name, lanes, result = m["name"], int(m["lanes"]), m["result"]
    vector, lines = "poison", list[str]()
    for k in range(lanes):
        following = name if k == lanes - 1 else f"{name}.z{k}"
        lines += [
            f"  {name}.x{k} = extractelement <{lanes} x {source}> {m['x']}, i64 {k}",
            f"  {name}.y{k} = {instruction(f'{name}.x{k}')}",
            f"  {following} = insertelement <{lanes} x {result}> {vector}, {result} {name}.y{k}, i64 {k}",
        ]
        vector = following
    return "\n".join(lines)
