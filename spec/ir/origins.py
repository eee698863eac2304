"""Origins: the source lines that built nodes, in an optional side table that is no part of a node's identity.

Off by default. Inside `with record_origins():` each new node gets the file and line of the innermost frame outside of the
specification's own builders. An interned node keeps the line that built it first. The table holds its nodes weakly.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from uops.spec.ir import node
from uops.spec.ir.node import UOp

#: Node -> the file name and line that built it.
_table: weakref.WeakKeyDictionary[UOp, tuple[str, int]] = weakref.WeakKeyDictionary()
_SPEC = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Files whose frames are skipped, since they build nodes for their callers.
_BUILDERS = frozenset(
    os.path.join(_SPEC, *path.split("/")) for path in ("ir/node.py", "ir/build.py", "rows/compositions.py", "rows/collectives.py")
)
#: File name -> whether the file, with links resolved, is one of `_BUILDERS`.
_is_builder: dict[str, bool] = {}


def _is_builder_file(filename: str) -> bool:
    is_builder = _is_builder.get(filename)
    if is_builder is None:
        is_builder = _is_builder[filename] = _resolve_folder(os.path.abspath(filename)) in _RESOLVED_BUILDERS
    return is_builder


def _resolve_folder(path: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


_RESOLVED_BUILDERS = frozenset(map(_resolve_folder, _BUILDERS))


def _record_origin(u: UOp) -> None:
    """Record the innermost frame outside of the builders as the origin of `u`, unless it has one."""
    frame = sys._getframe(1)
    while frame is not None and _is_builder_file(frame.f_code.co_filename):
        if frame.f_back is None:
            return
        frame = frame.f_back
    _table.setdefault(u, (frame.f_code.co_filename, frame.f_lineno))


@contextmanager
def record_origins() -> Iterator[None]:
    """Record the origin of every node that is created inside the `with` block; blocks may nest."""
    previous = node.created
    node.created = _record_origin
    try:
        yield
    finally:
        node.created = previous


def origin_of(u: UOp) -> str | None:
    """Return `file.py:line` of the code that first built a node; None if its origin was not recorded."""
    origin = _table.get(u)
    return None if origin is None else f"{os.path.basename(origin[0])}:{origin[1]}"
