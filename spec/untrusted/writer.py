"""Replace a file whole: readers see the old contents or the new ones, whatever fails in between."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from uops.spec.untrusted.reader import Path

#: The ending of a file that is being written; one that a killed process left behind may be removed.
SCRATCH = ".uops-new"


def write_bytes(path: Path, data: bytes, *, durable: bool = False, follow_links: bool = True) -> None:
    """Write a file beside `path` and rename it to `path`; with `durable`, it is on the disk when this returns.

    Raises OSError, which names `path`; the file is then what it was before, and nothing lies beside it. Permissions of a file that
    was there are kept, and a symbolic link keeps pointing at the file, which is replaced. What is no regular file (a pipe,
    /dev/stdout) is written to directly. Without `follow_links` a file takes the place of a link or of what is no regular file.
    """
    target = os.fsdecode(os.path.realpath(path) if follow_links else path)
    mode = _mode(target, path, follow_links)
    if mode is not None and not stat.S_ISREG(mode):
        if follow_links:
            _write_directly(path, data)
            return
        mode = None
    scratch = os.path.join(os.path.dirname(target), f".{os.getpid()}-{secrets.token_hex(4)}{SCRATCH}")
    try:
        _write_new(scratch, data, None if mode is None else stat.S_IMODE(mode), durable)
        os.replace(scratch, target)
    except BaseException as e:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        if isinstance(e, OSError):
            raise _about(e, path) from e
        raise


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write text in UTF-8, as `write_bytes` does. A lone surrogate becomes its escape, `\\ud800`."""
    write_bytes(path, text.encode(errors="backslashreplace"), durable=durable)


def _mode(target: str, path: Path, follow_links: bool) -> int | None:
    """The kind and permissions of the file that is there; None where there is none."""
    try:
        return os.stat(target, follow_symlinks=follow_links).st_mode
    except FileNotFoundError:
        return None
    except OSError as e:
        raise _about(e, path) from e


def _write_new(path: str, data: bytes, mode: int | None, durable: bool) -> None:
    with open(path, "xb") as f:
        if mode is not None:
            os.fchmod(f.fileno(), mode)
        f.write(data)
        if durable:
            f.flush()
            os.fsync(f.fileno())


def _write_directly(path: Path, data: bytes) -> None:
    try:
        with open(path, "wb") as f:
            f.write(data)
    except OSError as e:
        raise _about(e, path) from e


def _about(e: OSError, path: Path) -> OSError:
    """The same error, of the file that was asked for."""
    return type(e)(e.errno, e.strerror, os.fspath(path)) if e.errno is not None else e
