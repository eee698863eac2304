"""gcc and clang as programs: C text to the bytes of a shared object, and these to a function of this process.

The flags are part of the meaning: no contraction, wrapping integers, no aliasing by type, no `errno`. The machine is this one.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from uops.spec.errors import CompileError, Crash, Unsupported

COMPILERS = ("gcc", "clang")
FLAGS = (
    "-std=gnu11", "-O2", "-march=native", "-fPIC", "-shared", "-w", "-x", "c",
    "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing", "-fno-ident",
)  # fmt: skip
_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A program, and what it says of itself and of this machine: all that decides what it makes of a text."""

    name: str
    path: str
    version: str
    machine: str


def missing(name: str) -> str | None:
    """Why a compiler cannot be used here, or None."""
    try:
        find(name)
    except Unsupported as e:
        return str(e)
    return None


@functools.cache
def find(name: str) -> Compiler:
    """The compiler called `name`; raises Unsupported where it is not installed."""
    path = shutil.which(name)
    if path is None:
        raise Unsupported(f"{name}: no such program is installed", "c")
    version = _run([path, "--version"], "").splitlines()[0]
    return Compiler(name, path, version, _run([path, "-march=native", "-E", "-dM", "-x", "c", "-"], ""))


def _run(command: list[str], text: str) -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise CompileError(f"{command[0]} cannot be run: {e}") from e
    if done.returncode != 0:
        raise Crash(f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()[-2000:]}\n{text}")
    return done.stdout


def compile_object(compiler: Compiler, source: str) -> bytes:
    """The shared object of a text; raises Crash with the compiler's messages, for rendered text is ours."""
    with tempfile.TemporaryDirectory(prefix="uops-c-") as folder:
        made = Path(folder) / "kernel.so"
        _run([compiler.path, *FLAGS, "-o", str(made), "-", "-lm"], source)
        return made.read_bytes()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Loaded:
    """Linked code: valid as long as this object lives."""

    address: int


def load_object(image: bytes, symbol: str) -> Loaded:
    """Link a shared object into this process, by way of a file that only this user can read and that is gone afterwards."""
    handle, path = tempfile.mkstemp(prefix="uops-c-", suffix=".so")
    try:
        with open(handle, "wb") as f:
            f.write(image)
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
            place = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except (OSError, AttributeError) as e:
            raise Crash(f"a compiled kernel cannot be loaded: {e}") from e
    finally:
        os.unlink(path)
    loaded = Loaded(place)
    weakref.finalize(loaded, _ctypes.dlclose, library._handle).atexit = False
    return loaded
