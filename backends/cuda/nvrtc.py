"""nvrtc, NVIDIA's compiler of CUDA C as a library: from a text to a cubin for one architecture.

The library comes from PyPI (`nvidia-cuda-nvrtc`) or from a CUDA toolkit. It needs neither a GPU nor a driver. The options are
part of a kernel's meaning: no contraction, correctly rounded division and square root, subnormals kept.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from uops.spec.errors import Crash, Unsupported, find_unsupported_reason
from uops.spec.extras import install_command

OPTIONS = (
    "--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--disable-warnings",
    "--device-as-default-execution-space",
)  # fmt: skip
#: The architecture for which kernels are compiled where no GPU says its own.
DEFAULT_ARCHITECTURE = "sm_90"
_P = ctypes.c_void_p


def unavailable_reason() -> str | None:
    """Return why nvrtc cannot be used on this system, or None."""
    return find_unsupported_reason(load_nvrtc)


@functools.cache
def load_nvrtc() -> ctypes.CDLL:
    """Load the newest library that is installed. Raises Unsupported where there is none."""
    for path in _candidate_libraries():
        try:
            for builtins in _list_builtins_beside(path):  # the library looks for it by its name alone
                ctypes.CDLL(str(builtins))
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise Unsupported(f"CUDA: the library nvrtc is not installed ({install_command('cuda')})", "cuda")


def _list_builtins_beside(path: str) -> list[Path]:
    """List the libraries of built-in functions in a library's folder. A bare name, which the loader resolves, has no folder."""
    return list(Path(path).parent.glob("libnvrtc-builtins.so.*")) if "/" in path else []


def _candidate_libraries() -> Iterator[str]:
    """Yield the paths of libraries: those of Python packages, newest first, then those that the system's loader knows."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [p for folder in folders for p in Path(folder).glob("*/lib/libnvrtc.so.*")]
    yield from map(str, sorted(found, key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)], reverse=True))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so")


@functools.cache
def version() -> str:
    """Return the name and version of the library."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    load_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


def compile_to_cubin(source: str, architecture: str) -> bytes:
    """Compile CUDA C to machine code, such as for `sm_90`. Raises Crash with nvrtc's messages: rendered text must compile."""
    library, program = load_nvrtc(), _P()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in OPTIONS)]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status != 0:
            raise Crash(f"nvrtc rejects the rendered kernel: {_read_log(program)}\n{source}")
        return _read_sized_output(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read_log(program: ctypes.c_void_p) -> str:
    library = load_nvrtc()
    log = _read_sized_output(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _read_sized_output(program: ctypes.c_void_p, get_size: Callable[..., int], get: Callable[..., int]) -> bytes:
    size = ctypes.c_size_t()
    _check(get_size(program, ctypes.byref(size)))
    output = ctypes.create_string_buffer(size.value)
    _check(get(program, output))
    return output.raw[: size.value]


def _check(status: int) -> None:
    if status != 0:
        raise Crash(f"nvrtc failed: {load_nvrtc().nvrtcGetErrorString(status).decode()}")
