"""Truncation of floats lane by lane, for an emulator that ends at the vector instructions (FOUND Q01).

Takes and gives: LLVM IR text of a kernel. LLVM must not vectorize it.
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


def truncate_lane_by_lane(text: str) -> str:
    """Return the text with a scalar instruction per lane in place of each conversion to integers, and each truncation, of a
    vector."""
    types = {m["bits"]: m["result"] for m in _TRUNCATION.finditer(text)}
    text = _TRUNCATION.sub(_truncate_lanes, _CONVERSION.sub(_convert_lanes, text))
    declarations = [f"declare {t} @llvm.trunc.f{bits}({t})" for bits, t in types.items()]
    return "\n".join([text.rstrip("\n"), *(d for d in declarations if d not in text), ""])


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
