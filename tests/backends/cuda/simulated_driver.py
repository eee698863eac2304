"""A CUDA driver in Python: it runs what is queued as late as it may, on memory of its own, so that missing waits and copies show.

It takes the calls that `uops.backends.cuda.driver` makes, with the types that `cuda.h` gives. A module is CUDA C text, whose kernel
the shim runs. New memory and freed memory hold a pattern. Nothing queued happens before the stream is synchronized.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

from uops.backends.cstyle.launch import parse_launch_comment
from uops.backends.cuda.render import SCALAR
from uops.backends.cuda.shim import ShimKernel

SUCCESS, INVALID_VALUE = 0, 1
PATTERN = 0xA5


class NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v1, field by field."""

    _fields_ = (
        ("func", ctypes.c_void_p), ("gridDimX", ctypes.c_uint), ("gridDimY", ctypes.c_uint), ("gridDimZ", ctypes.c_uint),
        ("blockDimX", ctypes.c_uint), ("blockDimY", ctypes.c_uint), ("blockDimZ", ctypes.c_uint),
        ("sharedMemBytes", ctypes.c_uint), ("kernelParams", ctypes.c_void_p), ("extra", ctypes.c_void_p),
    )  # fmt: skip


def plain(value: Any) -> int:
    """The number that an argument of a call is."""
    return int(getattr(value, "value", value) or 0)


def pointed_to(reference: Any) -> Any:
    """What `ctypes.byref` refers to."""
    return reference._obj


class SimulatedDriver:
    """One device, `architecture` as (major, minor)."""

    def __init__(self, architecture: tuple[int, int] = (9, 0)) -> None:
        self.attributes = {16: 4, 75: architecture[0], 76: architecture[1], 97: 227 << 10, 115: 1}
        self.queue: list[Callable[[], None]] = []
        self.memory: dict[int, Any] = {}
        self.handles = count(1)
        self.modules: dict[int, ShimKernel] = {}
        self.graphs: dict[int, list[int]] = {}
        self.nodes: dict[int, tuple[int, int, int, list[int]]] = {}
        self.executables: dict[int, dict[int, tuple[int, int, int, list[int]]]] = {}
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        """Note the calls by name."""
        value = object.__getattribute__(self, name)
        if name.startswith("cu"):
            self.calls.append(name)
        return value

    # Device

    def cuInit(self, flags: int) -> int:
        return SUCCESS

    def cuDeviceGetCount(self, out: Any) -> int:
        pointed_to(out).value = 1
        return SUCCESS

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:
        pointed_to(out).value = 0
        return SUCCESS

    def cuDeviceGetName(self, out: Any, size: int, device: int) -> int:
        out.value = b"simulated"
        return SUCCESS

    def cuDriverGetVersion(self, out: Any) -> int:
        pointed_to(out).value = 12040
        return SUCCESS

    def cuDeviceGetAttribute(self, out: Any, number: int, device: int) -> int:
        pointed_to(out).value = self.attributes[number]
        return SUCCESS

    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> int:
        pointed_to(out).value = 1
        return SUCCESS

    def cuCtxSetCurrent(self, context: int) -> int:
        return SUCCESS

    def cuStreamCreate(self, out: Any, flags: int) -> int:
        pointed_to(out).value = 1
        return SUCCESS

    def cuGetErrorString(self, status: int, out: Any) -> int:
        pointed_to(out).value = f"status {status}".encode()
        return SUCCESS

    # Memory

    def cuMemAllocAsync(self, out: Any, size: int, stream: int) -> int:
        block = ctypes.create_string_buffer(bytes([PATTERN]) * (size + 256), size + 256)
        address = ctypes.addressof(block) + -ctypes.addressof(block) % 256
        self.memory[address] = block
        pointed_to(out).value = address
        return SUCCESS

    def cuMemFreeAsync(self, address: int, stream: int) -> int:
        if address not in self.memory:
            return INVALID_VALUE
        block = self.memory.pop(address)
        self.queue.append(lambda: ctypes.memset(block, PATTERN, len(block)) and None)
        return SUCCESS

    def _copy(self, to: int, from_: int, size: int) -> int:
        self.queue.append(lambda: ctypes.memmove(to, from_, size) and None)
        return SUCCESS

    def cuMemcpyHtoDAsync_v2(self, to: int, host: int, size: int, stream: int) -> int:
        return self._copy(to, host, size)

    def cuMemcpyDtoHAsync_v2(self, host: int, from_: int, size: int, stream: int) -> int:
        return self._copy(host, from_, size)

    def cuMemcpyDtoDAsync_v2(self, to: int, from_: int, size: int, stream: int) -> int:
        return self._copy(to, from_, size)

    def cuStreamSynchronize(self, stream: int) -> int:
        queue, self.queue = self.queue, []
        for step in queue:
            step()
        return SUCCESS

    # Kernels

    def cuModuleLoadData(self, out: Any, image: bytes) -> int:
        text = image.decode()
        handle = next(self.handles)
        self.modules[handle] = ShimKernel(text, parse_launch_comment(text))
        pointed_to(out).value = handle
        return SUCCESS

    def cuModuleUnload(self, module: Any) -> int:
        return SUCCESS if self.modules.pop(plain(module), None) else INVALID_VALUE

    def cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> int:
        pointed_to(out).value = plain(module)
        return SUCCESS

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        return SUCCESS

    def _read_arguments(self, function: int, table: int) -> list[int]:
        """Read the arguments while the call lasts, as the driver does."""
        n = sum(map(bool, self.modules[function].shape.arguments))
        pointers = (ctypes.c_void_p * n).from_address(table) if n else []
        return [ctypes.c_uint64.from_address(p).value for p in pointers]

    def _enqueue(self, function: int, groups: int, lanes: int, values: list[int]) -> None:
        kernel = self.modules[function]
        kinds = kernel.shape.arguments
        given = iter(values)
        tables: tuple[list[int], list[int]] = [0] * len(kinds), [0] * len(kinds)
        for k, kind in enumerate(kinds):
            if kind:
                value = next(given)
                tables[kind == SCALAR][k] = value - (1 << 64) if kind == SCALAR and value >> 63 else value
        assert kernel.shape.count_groups_and_lanes(tables[1]) == (groups, lanes)
        self.queue.append(lambda: kernel(*tables))

    def cuLaunchKernel(
        self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, table: int, extra: Any
    ) -> int:  # fmt: skip
        if (gy, gz, by, bz) != (1, 1, 1, 1) or shared != self.modules[function].shape.local_bytes:
            return INVALID_VALUE
        self._enqueue(function, gx, bx, self._read_arguments(function, table))
        return SUCCESS

    # Graphs

    def cuGraphCreate(self, out: Any, flags: int) -> int:
        handle = next(self.handles)
        self.graphs[handle] = []
        pointed_to(out).value = handle
        return SUCCESS

    def _read_node(self, parameters: Any) -> tuple[int, int, int, list[int]] | None:
        p = NodeParameters.from_address(ctypes.addressof(pointed_to(parameters)))
        fits = (p.gridDimY, p.gridDimZ, p.blockDimY, p.blockDimZ, p.extra) == (1, 1, 1, 1, None)
        if not fits or p.sharedMemBytes != self.modules[p.func].shape.local_bytes:
            return None
        return p.func, p.gridDimX, p.blockDimX, self._read_arguments(p.func, p.kernelParams)

    def cuGraphAddKernelNode(self, out: Any, graph: Any, before: Any, before_count: int, parameters: Any) -> int:
        nodes, node = self.graphs[plain(graph)], self._read_node(parameters)
        expected = nodes[-1:]
        given = [pointed_to(before).value] if before_count else []
        if node is None or given != expected:  # without its dependency, a launch could run too early
            return INVALID_VALUE
        handle = next(self.handles)
        self.nodes[handle] = node
        nodes.append(handle)
        pointed_to(out).value = handle
        return SUCCESS

    def cuGraphInstantiateWithFlags(self, out: Any, graph: Any, flags: int) -> int:
        handle = next(self.handles)
        self.executables[handle] = {node: self.nodes[node] for node in self.graphs[plain(graph)]}
        pointed_to(out).value = handle
        return SUCCESS

    def cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, parameters: Any) -> int:
        nodes, changed = self.executables[plain(executable)], self._read_node(parameters)
        if changed is None or plain(node) not in nodes or changed[0] != nodes[plain(node)][0]:
            return INVALID_VALUE
        nodes[plain(node)] = changed
        return SUCCESS

    def cuGraphLaunch(self, executable: Any, stream: int) -> int:
        for node in self.executables[plain(executable)].values():
            self._enqueue(*node)
        return SUCCESS

    def cuGraphExecDestroy(self, executable: Any) -> int:
        return SUCCESS if self.executables.pop(plain(executable), None) is not None else INVALID_VALUE

    def cuGraphDestroy(self, graph: Any) -> int:
        return SUCCESS if self.graphs.pop(plain(graph), None) is not None else INVALID_VALUE
