"""Results of searches on disk: one small file per kernel, machine, target and version.

A file is JSON, sealed with its key (`uops.spec.untrusted`), and replaced as a whole. A file that does not belong to its key is
ignored with a warning and replaced by the next search. A folder that cannot be used stores nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from uops.compiler.target import MachineModel
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show
from uops.spec.optops import OPTOPS, OptOp
from uops.spec.untrusted import BadFile, SealMismatch, parse_json, read_bytes, seal, unseal, write_bytes

#: Kind of file, as its seal states it.
KIND = "schedule"
#: Version of the file format and of the search; incremented when either changes.
SCHEMA = 2
#: Most bytes of a file; a usual one has some hundreds.
MOST_BYTES = 1 << 20
#: OptOps by their names in files.
_TYPES: dict[str, type[OptOp]] = {o.__name__: o for o in OPTOPS}


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """The best schedule of a search: its start, its OptOps, its seconds, and whether the search was complete."""

    start: str
    opts: tuple[OptOp, ...]
    seconds: float
    complete: bool


class ScheduleStore:
    """A folder of stored schedules; with `root=None` it stores nothing. `target` names the toolchain and device that were timed."""

    def __init__(self, root: Path | None, target: str, version: str) -> None:
        self.root = root
        self.target, self.version = target, version

    def key(self, body: UOp, machine: MachineModel, width: int) -> str:
        """Return the name of a kernel's file."""
        parts = (str(SCHEMA), self.version, self.target, repr(machine), str(width), show(body))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def get(self, key: str) -> StoredSchedule | None:
        """Return the schedule stored for a key, or None."""
        if self.root is None:
            return None
        try:
            data = unseal(KIND, SCHEMA, key, read_bytes(self._path(key), max_bytes=MOST_BYTES, follow_links=False))
            return decode_schedule(parse_json(data, "what is sealed"))
        except (SealMismatch, BadFile, ValueError, KeyError, TypeError, AttributeError) as e:
            self.warn(key, str(e))
        except OSError:
            pass
        return None

    def warn(self, key: str, why: str) -> None:
        """Warn that a file is ignored."""
        warnings.warn(f"{self._path(key)} is not a schedule of this kernel and is ignored ({why})", RuntimeWarning, stacklevel=2)

    def put(self, key: str, schedule: StoredSchedule) -> None:
        """Store a schedule, if the folder can be written."""
        if self.root is None:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes(path, seal(KIND, SCHEMA, key, json.dumps(encode_schedule(schedule)).encode()), follow_links=False)
        except OSError:
            pass

    def _path(self, key: str) -> Path:
        return (self.root or Path()) / f"{key}.schedule"


def encode_schedule(schedule: StoredSchedule) -> dict[str, Any]:
    """Return a schedule as JSON data."""
    return {
        "start": schedule.start,
        "opts": [_encode_optop(o) for o in schedule.opts],
        "seconds": schedule.seconds,
        "complete": schedule.complete,
    }


def _encode_optop(o: OptOp) -> list[Any]:
    values = [v.name if isinstance(v, AxisType) else v for v in asdict(o).values()]
    return [type(o).__name__, *values]


def decode_schedule(data: Any) -> StoredSchedule:
    """Return the schedule of JSON data. Raises ValueError, KeyError or TypeError for anything else."""
    start, seconds, complete = data["start"], data["seconds"], data["complete"]
    if not (isinstance(start, str) and isinstance(seconds, float) and isinstance(complete, bool) and 0 <= seconds < math.inf):
        types = ", ".join(type(v).__name__ for v in (start, seconds, complete))
        raise ValueError(f"expected a name, finite seconds and a flag, got values of types {types}")
    return StoredSchedule(start, tuple(_decode_optop(o) for o in data["opts"]), seconds, complete)


def _decode_optop(name_and_values: Any) -> OptOp:
    name, *values = name_and_values
    declared = fields(_TYPES[name])
    arguments = [AxisType[v] if f.type == "AxisType" else v for f, v in zip(declared, values)]
    expected = {"AxisType": AxisType, "bool": bool}
    if len(values) > len(declared) or any(type(v) is not expected.get(str(f.type), int) for f, v in zip(declared, arguments)):
        raise ValueError(f"expected an OptOp, got {name_and_values!r}")
    return _TYPES[name](*arguments)
