"""The data of the page in chunks, each of which can be read without the others; equal chunks are stored once.

Takes: lines and links of one group. Gives: compressed JSON. Lines that differ only in the numbers of nodes have one template, and a
node is named by how many lines before it stands, so equal kernels have equal chunks, and long ones compress well.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Json = Any
#: Stands for the name of a node in a template; text of a program cannot have it, for it is printable.
HOLE = "\x01"
_NAME = re.compile(r"%(0|[1-9][0-9]{0,8})(?![0-9])")


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node but for its name: `add %5, %6` as its op and rest, with its type and the number of loops around it."""

    op: str
    rest: str
    type: str
    family: str
    axis: str
    depth: int


class Chunks:
    """Compressed values by position."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[bytes, int] = {}

    def add(self, value: Json) -> int:
        """The position of the chunk that holds `value`."""
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="backslashreplace")
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._known[digest] = len(self.texts)
            self.texts.append(base64.b64encode(zlib.compress(data, 6)).decode())
        return self._known[digest]


def pack_lines(lines: Iterable[NodeLine], first: int) -> Json:
    """Lines of which the first is named `%first`: templates, the template and depth of each line, and what is in the holes.

    A hole holds the number of the line less that of the node that it names.
    """
    templates: dict[tuple[str, ...], int] = {}
    which, depths, holes = list[int](), list[int](), list[int]()
    for k, x in enumerate(lines, first):
        holes += [k - int(n) for n in _NAME.findall(x.rest)]
        style = f"a-{x.axis}" if x.axis else f"f-{x.family}"
        which.append(templates.setdefault((x.op, _NAME.sub(HOLE, x.rest), x.type, style), len(templates)))
        depths.append(x.depth)
    return {"templates": list(templates), "which": which, "depths": depths, "holes": holes}


def pack_links(rows: Sequence[tuple[int, int, int, int]], causes: Json, steps: Json) -> Json:
    """Links [from, to, made, cause]: `from` and `to` each less that of the row before, and twice the cause, plus made."""
    return {
        "from": _differences([row[0] for row in rows]),
        "to": _differences([row[1] for row in rows]),
        "why": [2 * cause + made for _, _, made, cause in rows],
        "causes": causes,
        "steps": steps,
    }


def _differences(numbers: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise((0, *numbers))]
