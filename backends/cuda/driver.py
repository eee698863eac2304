"""The CUDA driver by ctypes: a device, its memory, loaded kernels, and launches in one stream, one by one or as a graph.

No other module calls the driver. Calls are asynchronous until `synchronize`; an error of an earlier launch may be reported by
any later call. After such an error the process can no longer use the device, so run kernels in a worker.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from uops.spec.errors import Crash, Unsupported, find_unsupported_reason
from uops.spec.resources import limit_data_instead_of_addresses

_P, _I, _U, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
#: Function -> its argument types; all return a status, 0 for success.
_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cuInit": (_U,),
    "cuDriverGetVersion": (_P,),
    "cuDeviceGetCount": (_P,),
    "cuDeviceGet": (_P, _I),
    "cuDeviceGetName": (ctypes.c_char_p, _I, _I),
    "cuDeviceGetAttribute": (_P, _I, _I),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuCtxSetCurrent": (_P,),
    "cuStreamCreate": (_P, _U),
    "cuStreamSynchronize": (_P,),
    "cuMemAllocAsync": (_P, _Z, _P),
    "cuMemFreeAsync": (ctypes.c_uint64, _P),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, _P, _Z, _P),
    "cuMemcpyDtoHAsync_v2": (_P, ctypes.c_uint64, _Z, _P),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, _Z, _P),
    "cuModuleLoadData": (_P, ctypes.c_char_p),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "cuGraphCreate": (_P, _U),
    "cuGraphAddKernelNode": (_P, _P, _P, _Z, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, ctypes.c_ulonglong),
    "cuGraphExecKernelNodeSetParams": (_P, _P, _P),
    "cuGraphLaunch": (_P, _P),
    "cuGraphExecDestroy": (_P,),
    "cuGraphDestroy": (_P,),
    "cuGetErrorString": (_I, _P),
}
#: Attributes of a device and of a function, by the numbers of `cuda.h`.
_MULTIPROCESSORS, _MAJOR, _MINOR, _LOCAL_MEMORY, _MEMORY_POOLS = 16, 75, 76, 97, 115
_DYNAMIC_LOCAL_MEMORY = 8
#: Bytes of dynamic shared memory that a kernel may use without asking for it.
_LOCAL_MEMORY_FOR_ALL = 48 << 10
_NON_BLOCKING_STREAM = 1
_INVALID_CONTEXT = 201


def unavailable_reason() -> str | None:
    """Return why there is no GPU to run on, or None."""
    return find_unsupported_reason(open_device)


@functools.cache
def _load_driver() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise Unsupported(f"CUDA: no driver ({e})", "cuda") from e
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise Unsupported(f"CUDA: the driver has no {name}; version 11.4 or newer is needed", "cuda")
        function.restype, function.argtypes = _I, arguments
    return library


def _message(status: int) -> str:
    text = ctypes.c_char_p()
    _load_driver().cuGetErrorString(status, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode()} ({status})"


def _call(name: str, *arguments: object) -> None:
    """Call a function of the driver. Raises Crash with the driver's message."""
    status = getattr(_load_driver(), name)(*arguments)
    if status != 0:
        raise Crash(f"{name}: {_message(status)}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU with this process's context and stream. `architecture` is such as `sm_90`.

    `local_memory` is the most shared memory of a block, in bytes, and `units` the number of multiprocessors.
    """

    name: str
    driver: str
    architecture: str
    local_memory: int
    units: int
    context: int
    stream: int


@functools.cache
def open_device() -> Gpu:
    """Open the first GPU; memoized. Raises Unsupported with the reason where there is none."""
    library, count, handle = _load_driver(), _I(), _I()
    limit_data_instead_of_addresses()  # the driver reserves addresses for all memory of host and device
    for status in (library.cuInit(0), library.cuDeviceGetCount(ctypes.byref(count))):
        if status != 0:
            raise Unsupported(f"CUDA: no GPU can be used: {_message(status)}", "cuda")
    if not count.value:
        raise Unsupported("CUDA: the driver sees no GPU", "cuda")
    _call("cuDeviceGet", ctypes.byref(handle), 0)
    name, driver, context, stream = ctypes.create_string_buffer(256), _I(), _P(), _P()
    _call("cuDeviceGetName", name, len(name), handle.value)
    _call("cuDriverGetVersion", ctypes.byref(driver))
    if not _attribute(handle.value, _MEMORY_POOLS):
        raise Unsupported(f"CUDA: {name.value.decode()} has no pools of memory", "cuda")
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle.value)
    _call("cuCtxSetCurrent", context)
    _call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING_STREAM)
    return Gpu(
        name.value.decode(),
        f"CUDA {driver.value // 1000}.{driver.value % 1000 // 10}",
        f"sm_{_attribute(handle.value, _MAJOR)}{_attribute(handle.value, _MINOR)}",
        _attribute(handle.value, _LOCAL_MEMORY),
        _attribute(handle.value, _MULTIPROCESSORS),
        context.value or 0,
        stream.value or 0,
    )


def _attribute(device: int, number: int) -> int:
    value = _I()
    _call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


_current = threading.local()


def enter_context() -> Gpu:
    """Make the device's context that of this thread, and return the device."""
    d = open_device()
    if not getattr(_current, "entered", False):
        _call("cuCtxSetCurrent", d.context)
        _current.entered = True
    return d


def allocate(size: int) -> int:
    """Return the address of new device memory, ordered with the launches. Raises Crash if there is too little."""
    address = ctypes.c_uint64()
    _call("cuMemAllocAsync", ctypes.byref(address), size, enter_context().stream)
    return address.value


def free(address: int) -> None:
    """Free device memory after the launches before."""
    _call("cuMemFreeAsync", address, enter_context().stream)


def copy_to_device(address: int, host: int, size: int) -> None:
    """Copy host memory to the device."""
    _call("cuMemcpyHtoDAsync_v2", address, host, size, enter_context().stream)


def copy_to_host(host: int, address: int, size: int) -> None:
    """Copy device memory to the host; the host sees it after `synchronize`."""
    _call("cuMemcpyDtoHAsync_v2", host, address, size, enter_context().stream)


def copy_on_device(to: int, from_: int, size: int) -> None:
    """Copy device memory to other device memory, in order with the launches."""
    _call("cuMemcpyDtoDAsync_v2", to, from_, size, enter_context().stream)


def synchronize() -> None:
    """Wait for all copies and launches. Raises Crash if one of them failed."""
    _call("cuStreamSynchronize", enter_context().stream)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedKernel:
    """A kernel on the device, which stays loaded as long as this object lives."""

    function: int
    local_bytes: int


class DeviceLaunch(NamedTuple):
    """A launch of a kernel on `groups` blocks of `lanes` threads. Each argument is an address or a value of 64 bits."""

    kernel: LoadedKernel
    groups: int
    lanes: int
    arguments: tuple[int, ...]

    def start(self) -> None:
        """Queue the launch."""
        d, k = enter_context(), self.kernel
        table = _ArgumentTable(self.arguments)
        _call("cuLaunchKernel", k.function, self.groups, 1, 1, self.lanes, 1, 1, k.local_bytes, d.stream, table.address, None)


class _ArgumentTable:
    """The values of a launch and the pointers to them, which the driver reads during the call."""

    def __init__(self, arguments: Sequence[int]) -> None:
        n = len(arguments) or 1
        self._values = (ctypes.c_int64 * n)(*(a - (1 << 64) if a >> 63 == 1 else a for a in arguments))
        base = ctypes.addressof(self._values)
        self._pointers = (_P * n)(*(base + 8 * k for k in range(len(arguments))))
        self.address = ctypes.addressof(self._pointers)


class _NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v1 of `cuda.h`."""

    _fields_ = (
        ("function", _P), ("grid", 3 * _U), ("block", 3 * _U), ("local_bytes", _U), ("arguments", _P), ("extra", _P),
    )  # fmt: skip


class LaunchGraph:
    """A list of launches that one call queues. Everything but the kernels may change from one start to the next."""

    def __init__(self, launches: Sequence[DeviceLaunch]) -> None:
        """Make the graph, in which each launch waits for the one before. Raises Crash with the driver's message."""
        enter_context()
        graph, executable = _P(), _P()
        _call("cuGraphCreate", ctypes.byref(graph), 0)
        self._launches, self._nodes = list(launches), list[ctypes.c_void_p]()
        weakref.finalize(self, _load_driver().cuGraphDestroy, graph).atexit = False
        for launch in launches:
            node, table = _P(), _ArgumentTable(launch.arguments)
            before = ctypes.byref(self._nodes[-1]) if self._nodes else None
            parameters = self._describe_node(launch, table)
            _call("cuGraphAddKernelNode", ctypes.byref(node), graph, before, len(self._nodes[-1:]), ctypes.byref(parameters))
            self._nodes.append(node)
        _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        weakref.finalize(self, _load_driver().cuGraphExecDestroy, executable).atexit = False
        self._executable = executable

    @staticmethod
    def _describe_node(launch: DeviceLaunch, table: _ArgumentTable) -> _NodeParameters:
        one = (launch.groups, 1, 1), (launch.lanes, 1, 1)
        return _NodeParameters(launch.kernel.function, *one, launch.kernel.local_bytes, table.address, None)

    def patch_changed_launches_and_queue(self, launches: Sequence[DeviceLaunch]) -> None:
        """Queue the launches, which are of the graph's kernels in their order. Graphs that were queued before stay as they were."""
        for k, (before, launch) in enumerate(zip(self._launches, launches, strict=True)):
            if launch != before:
                table = _ArgumentTable(launch.arguments)
                parameters = self._describe_node(launch, table)
                _call("cuGraphExecKernelNodeSetParams", self._executable, self._nodes[k], ctypes.byref(parameters))
                self._launches[k] = launch
        _call("cuGraphLaunch", self._executable, enter_context().stream)


def load_kernel_and_raise_shared_memory_limit(cubin: bytes, entry: str, local_bytes: int) -> LoadedKernel:
    """Load a kernel of a cubin that uses `local_bytes` of dynamic shared memory. Raises Crash."""
    enter_context()
    module, function = _P(), _P()
    _call("cuModuleLoadData", ctypes.byref(module), cubin)
    _call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
    if local_bytes > _LOCAL_MEMORY_FOR_ALL:
        _call("cuFuncSetAttribute", function, _DYNAMIC_LOCAL_MEMORY, local_bytes)
    loaded = LoadedKernel(function.value or 0, local_bytes)
    weakref.finalize(loaded, _load_driver().cuModuleUnload, module).atexit = False
    return loaded
