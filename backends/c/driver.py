"""gcc and clang as child processes: from C text to a shared object, and from that to a function of this process.

The flags are part of the kernel's meaning: no contraction, no type-based alias analysis, no `errno`. Code is compiled for this
machine. There is no `-fwrapv`. A kernel uses unsigned integers wherever a signed sum might overflow (R05). With that flag, the
addresses of neighbouring lanes might wrap, so no compiler makes vectors of such lanes.

gcc 12.2 adds wrongly where one loop has several sums of signed integers that may wrap (FOUND G01). So it makes no vectors of loops
in a kernel that stores signed integers, but of lanes alone.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from uops.backends.c.render import SIGNED_STORES
from uops.spec.errors import CompileError, Crash, Unsupported

COMPILERS = ("gcc", "clang")
FLAGS = (
    "-std=gnu11", "-O2", "-march=native", "-fPIC", "-shared", "-w", "-x", "c",
    "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-strict-aliasing", "-fno-ident",
)  # fmt: skip
#: Compiler -> its further flags for a kernel that stores signed integers.
_SIGNED_FLAGS = {"gcc": ("-fno-tree-loop-vectorize",)}
#: A macro that every C compiler defines.
_STANDARD_MACRO = re.compile(r"^#define __STDC__ 1$", re.MULTILINE)
#: Time limit of one compiler run, in seconds.
_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """An installed compiler: its path, its version and its macros for this machine, which decide the code that it makes."""

    name: str
    path: str
    version: str
    machine: str


def unavailable_reason(compiler_name: str) -> str | None:
    """Return why a compiler cannot be used on this system, or None."""
    try:
        find_compiler(compiler_name)
    except Unsupported as e:
        return str(e)
    return None


@functools.cache
def find_compiler(name: str) -> Compiler:
    """Find a compiler by name. Raises Unsupported where it is not installed, or does not answer as a C compiler does."""
    path = shutil.which(name)
    if path is None:
        raise Unsupported(f"{name}: no such program is installed", "c")
    try:
        version = _run_compiler([path, "--version"], "")
        machine = _run_compiler([path, "-march=native", "-E", "-dM", "-x", "c", "-"], "")
    except (CompileError, Crash) as e:
        raise Unsupported(f"{name}: {str(e).strip()}", "c") from e
    if not version.strip() or not _STANDARD_MACRO.search(machine):
        raise Unsupported(f"{name}: {path} gives no version, or not the macros of a C compiler: is it broken?", "c")
    return Compiler(name, path, version.strip().splitlines()[0], machine)


def _run_compiler(command: list[str], stdin_text: str) -> str:
    try:
        done = subprocess.run(
            command, input=stdin_text, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise CompileError(f"{command[0]} cannot be run: {e}") from e
    if done.returncode != 0:
        raise Crash(f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()[-2000:]}\n{stdin_text}")
    return done.stdout


def compile_shared_object(compiler: Compiler, source: str) -> bytes:
    """Compile C text to a shared object. Raises Crash with the compiler's messages: rendered text must compile."""
    with tempfile.TemporaryDirectory(prefix="uops-c-") as folder:
        output = Path(folder) / "kernel.so"
        flags = FLAGS + (_SIGNED_FLAGS.get(compiler.name, ()) if source.startswith(SIGNED_STORES) else ())
        _run_compiler([compiler.path, *flags, "-o", str(output), "-", "-lm"], source)
        return output.read_bytes()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedLibrary:
    """The addresses of the functions asked for, in order, which stay valid as long as this object lives."""

    addresses: tuple[int, ...]


def load_shared_object(image: bytes, *symbols: str) -> LoadedLibrary:
    """Link a shared object into this process, through a temporary file that only this user can read, and find these functions.

    Raises Crash.
    """
    handle, path = tempfile.mkstemp(prefix="uops-c-", suffix=".so")
    try:
        with open(handle, "wb") as f:
            f.write(image)
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as e:
            raise Crash(f"a compiled kernel cannot be loaded: {e}") from e
    finally:
        os.unlink(path)
    try:
        addresses = tuple(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0 for symbol in symbols)
    except AttributeError as e:
        _ctypes.dlclose(library._handle)
        raise Crash(f"a compiled kernel cannot be loaded: {e}") from e
    loaded = LoadedLibrary(addresses)
    weakref.finalize(loaded, _ctypes.dlclose, library._handle).atexit = False
    return loaded
