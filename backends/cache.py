"""A cache of compiled objects on disk, shared by concurrent processes.

Each object is one file, named by a digest of everything that decides its bytes and sealed with that name (`uops.spec.untrusted`). A
file that is truncated, damaged, foreign or sealed with another name counts as a miss and is removed; so is one that `usable`
rejects. A file is written beside its final path and renamed, so readers see a whole object or none. The cache never fails a
compilation: if the directory is unusable, every lookup is a miss.
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
from uops.spec.untrusted import SCRATCH, BadFile, SealMismatch, read_bytes, seal, unseal, write_bytes

KIND = "object"
#: Version of the file format and of the meaning of keys.
SCHEMA = 2
_MAGIC = b"uops-object-%d\n" % SCHEMA
#: Largest size of a header, in bytes.
_HEADER = 128
_SUFFIX = ".obj"
#: Age in seconds from which a scratch file is removed: its writer is dead.
_STALE_SECONDS = 3600.0
#: Writes between two sweeps of a process; the first write sweeps.
_SWEEP_EVERY = 128
#: Size of the folder, in bytes, above which `evict_to_three_quarters_and_remove_stale_scratch` removes objects.
DEFAULT_LIMIT = 256 << 20


def digest_key(*parts: str | bytes) -> str:
    """Return the name of an object: a digest of the parts and their lengths, so ("ab", "c") differs from ("a", "bc")."""
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def directory(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the objects (`uops.compiler.config.cache_folder`), or None."""
    return cache_folder(environment)


class ObjectCache:
    """A folder of objects of about `limit` bytes, evicted least recently used first. `root=None` stores nothing."""

    def __init__(self, root: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.root = root
        self.limit = limit
        self.hits = 0
        self.misses = 0
        self._writes = 0
        self._usable: bool | None = None

    def get_or_make(
        self, make: Callable[[], bytes], *parts: str | bytes, usable: Callable[[bytes], bool] = lambda payload: True
    ) -> bytes:
        """Return the object that `parts` name. Make and store it on a miss, or if the stored one is not `usable`."""
        if self.root is None:  # no file, so no name
            self.misses += 1
            return make()
        stored = self.get(digest_key(*parts), usable)
        return self.remake(make, *parts) if stored is None else stored

    def remake(self, make: Callable[[], bytes], *parts: str | bytes) -> bytes:
        """Make the object that `parts` name anew and replace the stored one."""
        fresh = make()
        if self.root is not None:
            self.put(digest_key(*parts), fresh)
        return fresh

    def get(self, name: str, usable: Callable[[bytes], bool] = lambda payload: True) -> bytes | None:
        """Return the object of this name, or None. Removes a damaged file, and an object that is not `usable`."""
        payload = self._read_and_touch_or_remove_damaged(name)
        if payload is not None and not usable(payload):
            self._remove(name)
            payload = None
        self.hits += payload is not None
        self.misses += payload is None
        return payload

    def put(self, name: str, payload: bytes) -> None:
        """Store an object under a name; do nothing where that is impossible."""
        if not self._is_folder_usable():
            return
        assert self.root is not None
        try:
            write_bytes(self.root / (name + _SUFFIX), seal(KIND, SCHEMA, name, payload), follow_links=False)
        except OSError:
            return
        if self._writes % _SWEEP_EVERY == 0:
            self.evict_to_three_quarters_and_remove_stale_scratch()
        self._writes += 1

    def evict_to_three_quarters_and_remove_stale_scratch(self) -> None:
        """Remove stale scratch files; above the limit, evict least recently used objects down to 3/4 of it.

        A time in the future means that the clock was set back. Such a scratch file is stale, and such an object is evicted first.
        """
        now, total, candidates = time.time(), 0, []
        for entry in self._scan_folder_or_empty():
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if entry.name.endswith(SCRATCH) and abs(now - info.st_mtime) > _STALE_SECONDS:
                    os.unlink(entry.path)
                elif entry.name.endswith(_SUFFIX):
                    # Allocated blocks where known: many small files occupy more than the sum of their lengths.
                    size = max(info.st_size, getattr(info, "st_blocks", 0) * 512)
                    candidates.append((info.st_mtime if info.st_mtime <= now + _STALE_SECONDS else 0.0, size, entry.path))
                    total += size
        if total <= self.limit:
            return
        for _, size, path in sorted(candidates):
            if total <= self.limit * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size

    def _scan_folder_or_empty(self) -> list[os.DirEntry[str]]:
        if self.root is None:
            return []
        try:
            with os.scandir(self.root) as entries:
                return list(entries)
        except OSError:
            return []

    def _read_and_touch_or_remove_damaged(self, name: str) -> bytes | None:
        if not self._is_folder_usable():
            return None
        assert self.root is not None
        path = self.root / (name + _SUFFIX)
        try:
            payload = unseal(KIND, SCHEMA, name, read_bytes(path, max_bytes=self.limit + _HEADER, follow_links=False))
        except (SealMismatch, BadFile):
            self._remove(name)
            return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def _remove(self, name: str) -> None:
        assert self.root is not None
        with contextlib.suppress(OSError):
            (self.root / (name + _SUFFIX)).unlink()

    def _is_folder_usable(self) -> bool:
        """Return True if the folder exists and only this user (or root) can write to it; checked once."""
        if self._usable is None:
            self._usable = self.root is not None and _prepare_private_folder(self.root)
        return self._usable


def _prepare_private_folder(root: Path) -> bool:
    """Create the folder if needed. Return False if other users may write to it, since its files are executed."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.stat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in (0, os.getuid()) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
