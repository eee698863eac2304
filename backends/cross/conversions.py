"""Conversions of floats to integers lane by lane, for an emulator that ends at the vector instructions (FOUND Q01).

Takes and gives: LLVM IR text of a kernel. LLVM must not vectorize it.
"""

from __future__ import annotations

import re

_CONVERSION = re.compile(
    r"^  (?P<name>%\S+) = (?P<op>fpto[su]i) <(?P<lanes>\d+) x (?P<source>float|double)> (?P<x>\S+) to <\d+ x (?P<result>i\d+)>$",
    re.MULTILINE,
)


def convert_lane_by_lane(text: str) -> str:
    """Return the text with a scalar conversion per lane in place of each conversion of a vector of floats to integers."""
    return _CONVERSION.sub(_convert_lanes, text)


def _convert_lanes(m: re.Match[str]) -> str:
    """Return one vector conversion as instructions on its lanes."""
    name, lanes, source, result = m["name"], int(m["lanes"]), m["source"], m["result"]
    vector, lines = "poison", list[str]()
    for k in range(lanes):
        following = name if k == lanes - 1 else f"{name}.z{k}"
        lines += [
            f"  {name}.x{k} = extractelement <{lanes} x {source}> {m['x']}, i64 {k}",
            f"  {name}.y{k} = {m['op']} {source} {name}.x{k} to {result}",
            f"  {following} = insertelement <{lanes} x {result}> {vector}, {result} {name}.y{k}, i64 {k}",
        ]
        vector = following
    return "\n".join(lines)
