"""Replace a file whole: readers see the old contents or the new ones, whatever fails in between."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from uops.spec.untrusted.reader import Path

#: The ending of a file that is being written; one that a killed process left behind may be removed.
SCRATCH = ".uops-new"


def write_bytes(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file beside `path` and rename it to `path`; with `durable`, it is on the disk when this returns.

    Raises OSError, which names `path`; the file is then what it was before, and nothing lies beside it. Permissions of a file that
    was there are kept, and a symbolic link keeps pointing at the file, which is replaced. What is no regular file (a pipe,
    /dev/stdout) is written to directly.
    """
    target = os.path.realpath(path)
    try:
        kind: int | None = os.stat(target).st_mode
    except FileNotFoundError:
        kind = None
    except OSError as e:
        raise _about(e, path) from e
    if kind is not None and not stat.S_ISREG(kind):
        _write_directly(path, data)
        return
    scratch = f"{target}.{os.getpid()}-{secrets.token_hex(4)}{SCRATCH}"
    try:
        _write_new(scratch, data, None if kind is None else stat.S_IMODE(kind), durable)
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
