"""Where a node was built: an optional side table, never part of a node's identity.

Off by default. Inside `with recording():` every node that is created notes the file and line of the first frame outside of the
specification's own builders; the first builder of an interned node wins. The table holds its nodes weakly.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from uops.spec.ir import node
from uops.spec.ir.node import UOp

_table: weakref.WeakKeyDictionary[UOp, tuple[str, int]] = weakref.WeakKeyDictionary()
_SPEC = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Frames of these files are skipped: they build for others.
_BUILDERS = frozenset(
    os.path.join(_SPEC, *path.split("/")) for path in ("ir/node.py", "ir/build.py", "rows/compositions.py", "rows/collectives.py")
)
_is_builder: dict[str, bool] = {}


def _skipped(filename: str) -> bool:
    known = _is_builder.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        known = _is_builder[filename] = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) in _REAL
    return known


_REAL = frozenset(os.path.join(os.path.realpath(os.path.dirname(p)), os.path.basename(p)) for p in _BUILDERS)


def _note(u: UOp) -> None:
    frame = sys._getframe(1)
    while frame is not None and _skipped(frame.f_code.co_filename):
        if frame.f_back is None:
            return
        frame = frame.f_back
    _table.setdefault(u, (frame.f_code.co_filename, frame.f_lineno))


@contextmanager
def recording() -> Iterator[None]:
    """Note the origin of every node created inside; may nest."""
    before = node.created
    node.created = _note
    try:
        yield
    finally:
        node.created = before


def of(u: UOp) -> str | None:
    """`file.py:line` of a node's first builder, None where none was recorded."""
    found = _table.get(u)
    return None if found is None else f"{os.path.basename(found[0])}:{found[1]}"
