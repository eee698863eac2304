"""Diagnostics of Oclgrind, an emulator of OpenCL devices that reports races, accesses out of bounds and barriers that diverge.

It writes them to a file and goes on. Here, what a launch adds to that file becomes Crash: the rendered text is wrong, or the
kernel writes what it must not. Its settings are read when a context is made.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from uops.spec.errors import Crash
from uops.spec.untrusted import escape_to_one_line

#: Settings of every judged context. It would fall silent after a thousand messages of a process.
SETTINGS = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_MAX_ERRORS": str((1 << 31) - 1)}
#: Length of a message that an error shows, in lines. The first one names the fault, the others the places.
_SHOWN_LINES = 16


class DiagnosticsLog:
    """The file to which Oclgrind writes, and how much of it has been read. It goes with this process."""

    def __init__(self) -> None:
        """Set the environment for the contexts of this process. Another process must not share its file, so it is always new."""
        folder = tempfile.mkdtemp(prefix="uops-oclgrind-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, "log")
        os.environ.update(SETTINGS, OCLGRIND_LOG=str(self.path))
        self._read_bytes = 0

    def raise_for_new_diagnostics(self) -> None:
        """Raise Crash with the first message, and the number of all, if Oclgrind has written any since the last call."""
        if not self.path.exists() or self.path.stat().st_size == self._read_bytes:
            return
        with self.path.open("rb") as f:
            f.seek(self._read_bytes)
            text = f.read()
        self._read_bytes += len(text)
        messages = split_messages(text.decode(errors="replace"))
        if messages:
            more = f"\n... and {len(messages) - 1} more" if len(messages) > 1 else ""
            raise Crash(f"Oclgrind: {messages[0]}{more}")


def split_messages(text: str) -> list[str]:
    """Return the messages of a log: each begins at a line that is not indented, and its other lines are."""
    messages: list[list[str]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("\t"):
            messages.append([])
        if line.strip() and messages:
            messages[-1].append(escape_to_one_line(line.strip()))
    return ["\n  ".join(lines[:_SHOWN_LINES]) for lines in messages]
