"""The data of the page in chunks that decode independently; equal chunks are stored once.

Takes: lines and links of one group. Gives: compressed JSON. Lines that differ in the numbers of nodes alone share a template. A
node is named by its distance in lines, so equal kernels have equal chunks, and long ones compress well.
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
from typing import Any, NamedTuple

Json = Any
#: Placeholder for the name of a node in a template; program text is printable and cannot contain it.
HOLE = "\x01"
_NAME = re.compile(r"%(0|[1-9][0-9]{0,8})(?![0-9])")


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node without its name: `add %5, %6` as op and rest, its type, and the number of loops around it."""

    op: str
    rest: str
    type: str
    family: str
    axis: str
    depth: int


class LineLink(NamedTuple):
    """A link from a line of one column to a line of the next; `cause` is a position in the causes of their chunk."""

    source: int
    target: int
    is_indirect: bool
    cause: int


class ChunkStore:
    """Compressed values by position, each stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[bytes, int] = {}

    def add_once(self, value: Json) -> int:
        """Store a value, unless an equal one is there, and return the position of its chunk."""
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="backslashreplace")
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._known[digest] = len(self.texts)
            self.texts.append(base64.b64encode(zlib.compress(data, 6)).decode())
        return self._known[digest]


def pack_lines_as_templates_and_distances(lines: Iterable[NodeLine], number_of_first_line: int) -> Json:
    """Pack numbered lines: templates, the template and depth of each line, and the contents of holes.

    A hole holds the number of its line minus the number of the node that it names.
    """
    templates: dict[tuple[str, ...], int] = {}
    which, depths, holes = list[int](), list[int](), list[int]()
    for k, line in enumerate(lines, number_of_first_line):
        holes += [k - int(n) for n in _NAME.findall(line.rest)]
        style = f"a-{line.axis}" if line.axis else f"f-{line.family}"
        which.append(templates.setdefault((line.op, _NAME.sub(HOLE, line.rest), line.type, style), len(templates)))
        depths.append(line.depth)
    return {"templates": list(templates), "which": which, "depths": depths, "holes": holes}


def delta_encode_links(links: Sequence[LineLink], causes: Json, steps: Json) -> Json:
    """Pack links between lines.

    Source and target are stored as differences from those of the link before, the rest as 2 * cause + is_indirect.
    """
    return {
        "from": _delta_encode([link.source for link in links]),
        "to": _delta_encode([link.target for link in links]),
        "why": [2 * link.cause + link.is_indirect for link in links],
        "causes": causes,
        "steps": steps,
    }


def _delta_encode(numbers: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise((0, *numbers))]
