"""Compiled objects on disk, shared by concurrent processes.

One file per object, named by a digest of everything that decides its bytes, and sealed with that name (`uops.spec.untrusted`): an
object under another one's name is a miss, as whatever is truncated, damaged or foreign is, and is removed. What `usable` refuses
is removed, too. A file is written beside its place, then renamed, so that a reader sees a whole object or none. Nothing here ever
fails a compilation: a directory that cannot be used makes every lookup a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from uops.compiler.config import cache_folder
from uops.spec.untrusted import SCRATCH, BadFile, Damaged, read_bytes, seal, unseal, write_bytes

KIND = "object"
#: Changes when the file format or the meaning of a key does.
SCHEMA = 2
_MAGIC = b"uops-object-%d\n" % SCHEMA
#: Bytes of a header, at most.
_HEADER = 128
_SUFFIX = ".obj"
#: A scratch file this old belongs to a process that died.
_STALE_SECONDS = 3600.0
#: The size is looked at on the first write of a process and then every so many writes.
_SWEEP_EVERY = 128
DEFAULT_LIMIT = 256 << 20


def key(*parts: str | bytes) -> str:
    """Name of an object: a digest of the parts in order. Lengths are part of it, so ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def directory(environment: Mapping[str, str]) -> Path | None:
    """Where objects go (`uops.compiler.config.cache_folder`)."""
    return cache_folder(environment)


class ObjectCache:
    """A folder of objects, bounded to about `limit` bytes; the least recently used go first. `root=None` stores nothing."""

    def __init__(self, root: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.root = root
        self.limit = limit
        self.hits = 0
        self.misses = 0
        self._writes = 0
        self._usable: bool | None = None

    def made(self, make: Callable[[], bytes], *parts: str | bytes, usable: Callable[[bytes], bool] = lambda payload: True) -> bytes:
        """The object that `parts` name; made, and stored, where it is not there or is not `usable`."""
        if self.root is None:  # nobody asks for its name
            self.misses += 1
            return make()
        found = self.get(key(*parts))
        return found if found is not None and usable(found) else self.remake(make, *parts)

    def remake(self, make: Callable[[], bytes], *parts: str | bytes) -> bytes:
        """Make the object that `parts` name anew, and store it in place of what is there."""
        fresh = make()
        if self.root is not None:
            self.put(key(*parts), fresh)
        return fresh

    def get(self, name: str) -> bytes | None:
        """The object, or None. A damaged file is removed."""
        found = self._read(name)
        self.hits += found is not None
        self.misses += found is None
        return found

    def put(self, name: str, payload: bytes) -> None:
        """Store an object; does nothing where that is impossible."""
        if not self._prepared():
            return
        assert self.root is not None
        try:
            write_bytes(self.root / (name + _SUFFIX), seal(KIND, SCHEMA, name, payload), follow_links=False)
        except OSError:
            return
        if self._writes % _SWEEP_EVERY == 0:
            self.sweep()
        self._writes += 1

    def sweep(self) -> None:
        """Remove stale scratch files and, above the limit, the least recently used objects down to 3/4 of it.

        A time that has not come yet says that the clock was set back: such a scratch file is stale, such an object goes first.
        """
        now, total, objects = time.time(), 0, []
        for entry in self._entries():
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if entry.name.endswith(SCRATCH) and abs(now - info.st_mtime) > _STALE_SECONDS:
                    os.unlink(entry.path)
                elif entry.name.endswith(_SUFFIX):
                    # Blocks, where the system says: thousands of small files take more than the sum of their lengths.
                    taken = max(info.st_size, getattr(info, "st_blocks", 0) * 512)
                    objects.append((info.st_mtime if info.st_mtime <= now + _STALE_SECONDS else 0.0, taken, entry.path))
                    total += taken
        if total <= self.limit:
            return
        for _, taken, path in sorted(objects):
            if total <= self.limit * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= taken

    def _entries(self) -> list[os.DirEntry[str]]:
        if self.root is None:
            return []
        try:
            with os.scandir(self.root) as found:
                return list(found)
        except OSError:
            return []

    def _read(self, name: str) -> bytes | None:
        if not self._prepared():
            return None
        assert self.root is not None
        path = self.root / (name + _SUFFIX)
        try:
            payload = unseal(KIND, SCHEMA, name, read_bytes(path, most=self.limit + _HEADER, follow_links=False))
        except (Damaged, BadFile):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def _prepared(self) -> bool:
        """Whether the folder exists and only this user (or root) can have put code there; asked once."""
        if self._usable is None:
            self._usable = self.root is not None and _trusted(self.root)
        return self._usable


def _trusted(root: Path) -> bool:
    """Make the folder if need be. What is read from it will be executed, so a folder that others may write to is not used."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.stat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in (0, os.getuid()) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
