"""The launches of a program as one submission to the GPU.

Arrays whose contents do not matter before a run are not copied to the device, and temporaries are not copied back. Two or more
launches become a CUDA graph, which later runs start again with their own addresses and sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from uops.backends.cuda.driver import LaunchGraph
from uops.backends.cuda.memory import DeviceMemory
from uops.compiler.runtime.frame import ProgramFrame


class ProgramSubmission:
    """The launches of one program. Runs of it exclude each other while they are queued, since they share the graph."""

    def __init__(self, frame: ProgramFrame, memory: DeviceMemory) -> None:
        self._launches, self._memory = frame.launches, memory
        self._kernels: list[Any] = [launch.kernel for launch in frame.launches]  # each can prepare a launch
        self._temporaries = [t.base for t in frame.temporaries]
        self._without_contents = [*self._temporaries, *(o.base for o in frame.outputs if o.source is None)]
        self._graph: LaunchGraph | None = None
        self._lock = threading.Lock()

    def execute(self, addresses: Sequence[int], variables: Sequence[int]) -> None:
        """Queue all launches on lent memory, an address per base."""
        for base in self._without_contents:
            self._memory.allocate_without_contents(addresses[base])
        with self._lock:
            self._launch_as_graph_or_one_by_one(addresses, variables)
        for base in self._temporaries:
            self._memory.keep_host_contents(addresses[base])

    def _launch_as_graph_or_one_by_one(self, addresses: Sequence[int], variables: Sequence[int]) -> None:
        tables = [launch.make_tables(addresses, variables) for launch in self._launches]
        if len(tables) > 1:
            prepared = [kernel.prepare(*t) for kernel, t in zip(self._kernels, tables, strict=True)]
            complete = [p for p in prepared if p is not None]
            if len(complete) == len(tables):
                if self._graph is None:
                    self._graph = LaunchGraph(complete)
                self._graph.patch_changed_launches_and_queue(complete)
                return
        for kernel, t in zip(self._kernels, tables, strict=True):
            kernel(*t)
