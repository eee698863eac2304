"""The choice of an OpenCL device: the first one that conforms, or the first of those that the user names.

Takes: the name of a choice, `platform[:device]`, as the option `device` or the variable `UOPS_OPENCL` gives it. Both parts are
parts of names, in any case of letters; that of a platform may also be part of its version. Gives: an open `Device`.

A device conforms if it has the features that strict results need, and if its answers to the probe are right. Without a choice,
GPUs come first, then accelerators, then processors. Among equals the order is that of the platforms' names, and of one name the
newest version comes first. Emulators that judge accesses are taken only by name.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from uops.backends.cstyle.language import Language
from uops.backends.opencl import probe
from uops.backends.opencl.device import Device
from uops.backends.opencl.kernel import OpenClKernel
from uops.backends.opencl.platforms import find_traits
from uops.backends.opencl.render import is_linear
from uops.spec.errors import CompileError, Crash, Unsupported, find_unsupported_reason
from uops.spec.extras import install_command
from uops.spec.untrusted import escape_to_one_line

#: The variable that names a device.
VARIABLE = "UOPS_OPENCL"


class Candidate(NamedTuple):
    """A device that a platform lists, and what decides if it is taken. `rank` orders candidates, the best first."""

    platform: str
    version: str
    device: str
    rank: tuple[int, str, tuple[int, ...], int]
    handle: Any

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of this candidate, with its position among equal ones."""
        return self.platform, self.version, self.device, str(self.rank[-1])

    def is_chosen_but_emulator_only_if_named(self, choice: str) -> bool:
        """Return True if a choice names this candidate. No choice names any but emulators."""
        platform, _, device = choice.casefold().partition(":")
        if not platform and find_traits(self.platform).judges_accesses:
            return False
        return platform in f"{self.platform}\n{self.version}".casefold() and device in self.device.casefold()


def unavailable_reason(choice: str | None = None) -> str | None:
    """Return why there is no device to run on, or None."""
    return find_unsupported_reason(lambda: open_device(choice))


def open_device(choice: str | None = None) -> Device:
    """Open the device of a choice, by default that of the environment; memoized. Raises Unsupported with all reasons."""
    return _open_chosen_device(os.environ.get(VARIABLE, "") if choice is None else choice)


@functools.cache
def _open_chosen_device(choice: str) -> Device:
    _use_temporary_pocl_cache_unless_set()
    try:
        import pyopencl
    except ImportError as e:
        raise Unsupported(f"OpenCL: the package pyopencl is not installed ({install_command('opencl')})", "opencl") from e
    refused = list[str]()
    for c in list_candidates(pyopencl):
        reason = "it is not the one that was chosen"
        if c.is_chosen_but_emulator_only_if_named(choice):
            found = _open_candidate_once(pyopencl, c)
            if isinstance(found, Device):
                return found
            reason = found
        elif not choice:
            reason = f"it is an emulator, which {VARIABLE} must name"
        refused.append(f"{escape_to_one_line(c.device)} of {escape_to_one_line(c.platform)}: {reason}")
    wanted = f" is called {escape_to_one_line(choice)!r} and" if choice else ""
    seen = "; ".join(refused) or f"there is none ({install_command('opencl')})"
    raise Unsupported(f"OpenCL: no device{wanted} conforms: {seen}", "opencl")


def list_candidates(cl: Any) -> list[Candidate]:
    """Return the devices of all platforms, the best first."""
    candidates: list[Candidate] = []
    try:
        platforms: Sequence[Any] = cl.get_platforms()
    except cl.Error:  # no platform at all
        return []
    for p in platforms:
        try:
            devices: Sequence[Any] = p.get_devices()
        except cl.Error:
            continue
        newest_first = (*(-n for n in _version_sort_key(p.version)), 1)  # the 1 puts 1.2.1 before 1.2
        for k, d in enumerate(devices):
            rank = _rank_of_type(cl, d.type), p.name, newest_first, k
            candidates.append(Candidate(p.name.strip(), p.version.strip(), d.name.strip(), rank, d))
    return sorted(candidates, key=lambda c: c.rank)


def _rank_of_type(cl: Any, types: int) -> int:
    """Return the rank of a device's type: GPUs, accelerators, processors, others."""
    kinds = cl.device_type
    return next((k for k, kind in enumerate((kinds.GPU, kinds.ACCELERATOR, kinds.CPU)) if types & kind), 3)


def _open_candidate_once(cl: Any, c: Candidate) -> Device | str:
    """Open a device, or return why it does not conform. A device that is open is not opened again, whatever choice names it."""
    if c.identity not in _opened:
        _opened[c.identity] = _open_and_probe(cl, c)
    return _opened[c.identity]


#: What became of the candidates so far. The kernels of a device, which programs share, know its memory.
_opened: dict[tuple[str, ...], Device | str] = {}


def _open_and_probe(cl: Any, c: Candidate) -> Device | str:
    """Open a device, or return why it does not conform."""
    missing = [
        f.name
        for f in _list_required_float32_and_float64_features(cl, c.handle)
        if f.device_config & f.required_bits != f.required_bits
    ]
    if missing:
        return f"it lacks {', '.join(missing)}"
    try:
        device = Device(cl, c.handle)
        fault = run_probe_kernel_and_find_fault(device, device.language)
    except (cl.Error, Crash, CompileError) as e:
        return f"it runs no kernel: {find_reason(str(e))}"
    return device if fault is None else fault


def run_probe_kernel_and_find_fault(device: Device, language: Language) -> str | None:
    """Return what a device computes wrongly, or None. Raises what building and launching a kernel raise."""
    source, arrays = probe.render_probe(language), probe.create_probe_arrays()
    kernel = OpenClKernel(device, source, is_linear=is_linear(language))
    with device.memory.lend_arrays(arrays):
        kernel([a.ctypes.data for a in arrays], [0] * len(arrays))
    return probe.find_arithmetic_fault(arrays)


def find_reason(message: str) -> str:
    """Return the first line of a compiler's messages that begins with `error:`, or else the first line."""
    lines = [line.strip() for line in message.splitlines()] or ["no reason is given"]
    return next((line for line in lines if line.startswith("error:")), lines[0])


def _use_temporary_pocl_cache_unless_set() -> None:
    """Set PoCL's cache, which it never cleans, to a folder that is removed with this process, unless the environment names one.

    PoCL reads the variable when platforms are listed, so that it is set before they are known.
    """
    if "POCL_CACHE_DIR" not in os.environ:
        folder = os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="uops-pocl-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _version_sort_key(version: str) -> tuple[int, ...]:
    """Return the release numbers in a version, for comparison."""
    return tuple(map(int, re.findall(r"\d+", version)))


class _RequiredFeature(NamedTuple):
    """A feature that strict results need of a device, by bits that the device's configuration must have."""

    name: str
    required_bits: int
    device_config: int


def _list_required_float32_and_float64_features(cl: Any, device: Any) -> Iterator[_RequiredFeature]:
    """Yield the features that strict results need of a device, whether it has them or not.

    Of float32 they do not include fma and correctly rounded division: float64 can stand in for both.
    """
    f = cl.device_fp_config
    common = f.DENORM | f.INF_NAN | f.ROUND_TO_NEAREST
    yield _RequiredFeature("float32 with subnormals, infinities and rounding to nearest", common, device.single_fp_config)
    yield _RequiredFeature(
        "float64 with subnormals, infinities, rounding to nearest and fma", common | f.FMA, _query_double_fp_config(cl, device)
    )


def _query_double_fp_config(cl: Any, device: Any) -> int:
    """Return a device's configuration of float64, 0 if it has no such type."""
    try:
        return int(device.double_fp_config)
    except (cl.Error, AttributeError):
        return 0
