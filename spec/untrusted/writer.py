"""Atomic writes: readers of a file see the old contents or the new ones, whatever fails in between."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from uops.spec.untrusted.reader import Path

#: The suffix of a file that is being written; one that a killed process left behind may be removed.
SCRATCH = ".uops-new"


def write_bytes(path: Path, data: bytes, *, durable: bool = False, follow_links: bool = True) -> None:
    """Write a file beside `path` and rename it to `path`; with `durable`, file and name are on the disk when this returns.

    An existing file keeps its permissions. A symbolic link stays, and the file it points at is replaced. A pipe or a device is
    written to directly, and `durable` adds nothing. Without `follow_links` the new file replaces a link, a pipe or a device itself.
    Raises OSError with `path`; no file is left beside it, and the old file is unchanged unless the new name alone may be lost.
    """
    mode = _stat_st_mode_or_none_if_missing(path, follow_links)  # not of its real path, which the link /dev/stdout to a pipe lacks
    if mode is not None and not stat.S_ISREG(mode):
        if follow_links:
            _write_in_place(path, data)
            return
        mode = None
    target = os.fsdecode(os.path.realpath(path) if follow_links else path)
    scratch = os.path.join(os.path.dirname(target), f".{os.getpid()}-{secrets.token_hex(4)}{SCRATCH}")
    try:
        _write_scratch_file(scratch, data, None if mode is None else stat.S_IMODE(mode), durable)
        _rename(scratch, target, durable)
    except BaseException as e:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        if isinstance(e, OSError):
            raise _error_naming_path(e, path) from e
        raise


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write text in UTF-8, as `write_bytes` does. A lone surrogate becomes its escape, `\\ud800`."""
    write_bytes(path, text.encode(errors="backslashreplace"), durable=durable)


def _stat_st_mode_or_none_if_missing(path: Path, follow_links: bool) -> int | None:
    """Return the type and permissions of the file at `path`; None if there is none."""
    try:
        return os.stat(path, follow_symlinks=follow_links).st_mode
    except FileNotFoundError:
        return None
    except OSError as e:
        raise _error_naming_path(e, path) from e


def _write_scratch_file(path: str, data: bytes, mode: int | None, durable: bool) -> None:
    with open(path, "xb") as f:
        if mode is not None:
            os.fchmod(f.fileno(), mode)
        f.write(data)
        if durable:
            f.flush()
            os.fsync(f.fileno())


def _rename(path: str, target: str, durable: bool) -> None:
    """Rename a file in its folder; with `durable`, the folder is on the disk when this returns."""
    if not durable:
        os.replace(path, target)
        return
    folder = os.open(os.path.dirname(target) or os.curdir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.replace(path, target)
        os.fsync(folder)
    finally:
        os.close(folder)


def _write_in_place(path: Path, data: bytes) -> None:
    try:
        with open(path, "wb") as f:
            f.write(data)
    except OSError as e:
        raise _error_naming_path(e, path) from e


def _error_naming_path(e: OSError, path: Path) -> OSError:
    """Return the same error with `path` as its file name."""
    return type(e)(e.errno, e.strerror, os.fspath(path)) if e.errno is not None else e
