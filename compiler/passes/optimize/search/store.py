"""What searches found, on disk: one small file per kernel, machine, target and version.

A file is JSON, sealed with its key (`uops.spec.untrusted`), and replaced whole. One that is not what was stored under its key is
ignored with a warning, and written anew by the next search. A folder that cannot be used stores nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uops.compiler.target import Machine
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show
from uops.spec.optops import TC, Nolocals, OptOp, Padto, Split, Swap
from uops.spec.untrusted import BadFile, Damaged, parse_json, read_bytes, seal, unseal, write_bytes

KIND = "schedule"
#: Changes when the file format, or what a search may find, does.
SCHEMA = 2
#: Bytes of a file, at most; one has some hundred.
MOST_BYTES = 1 << 20
_TYPES: dict[str, type] = {t.__name__: t for t in (Split, Padto, Swap, Nolocals, TC)}


@dataclass(frozen=True, slots=True)
class Found:
    """The best schedule of a search: where it starts, its OptOps, its seconds, and whether the search came to its end."""

    start: str
    opts: tuple[OptOp, ...]
    seconds: float
    complete: bool


class Store:
    """A folder of findings; `root=None` stores nothing. `target` names the toolchain and device that were timed."""

    def __init__(self, root: Path | None, target: str, version: str) -> None:
        self.root = root
        self.target, self.version = target, version

    def key(self, body: UOp, machine: Machine, width: int) -> str:
        """The name of a kernel's file."""
        parts = (str(SCHEMA), self.version, self.target, repr(machine), str(width), show(body))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def get(self, key: str) -> Found | None:
        """What was found for a key, or None."""
        if self.root is None:
            return None
        try:
            data = unseal(KIND, SCHEMA, key, read_bytes(self._path(key), most=MOST_BYTES, follow_links=False))
            return decoded(parse_json(data, "what is sealed"))
        except (Damaged, BadFile, ValueError, KeyError, TypeError, AttributeError) as e:
            self.warn(key, str(e))
        except OSError:
            pass
        return None

    def warn(self, key: str, why: str) -> None:
        """Say that a file is of no use."""
        warnings.warn(f"{self._path(key)} is no schedule of this kernel and is ignored ({why})", RuntimeWarning, stacklevel=2)

    def put(self, key: str, found: Found) -> None:
        """Store; does nothing where that is impossible."""
        if self.root is None:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes(path, seal(KIND, SCHEMA, key, json.dumps(encoded(found)).encode()), follow_links=False)
        except OSError:
            pass

    def _path(self, key: str) -> Path:
        return (self.root or Path()) / f"{key}.schedule"


def encoded(found: Found) -> dict[str, Any]:
    """As JSON."""
    return {"start": found.start, "opts": [_opt(o) for o in found.opts], "seconds": found.seconds, "complete": found.complete}


def _opt(o: OptOp) -> list[Any]:
    values = [v.name if isinstance(v, AxisType) else v for v in asdict(o).values()]
    return [type(o).__name__, *values]


def decoded(data: Any) -> Found:
    """From JSON. Raises ValueError, KeyError or TypeError for what is no finding."""
    start, seconds, complete = data["start"], data["seconds"], data["complete"]
    if not (isinstance(start, str) and isinstance(seconds, float) and isinstance(complete, bool) and 0 <= seconds < math.inf):
        raise ValueError("fields of wrong types")
    return Found(start, tuple(_made(o) for o in data["opts"]), seconds, complete)


def _made(entry: Any) -> OptOp:
    name, *values = entry
    arguments = [AxisType[v] if isinstance(v, str) else v for v in values]
    if any(not isinstance(v, (AxisType, int)) for v in arguments):
        raise ValueError(f"{entry!r} is no OptOp")
    opt: OptOp = _TYPES[name](*arguments)
    return opt
