"""Where a call's arguments lie in an engine's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.cross.arguments import ArrayArgument, HostMemory, run_with_copies
from uops.backends.cross.processors import PROCESSORS
from uops.spec.errors import Crash


class RecordingEngine:
    """An engine whose kernels do nothing. `end` is that of the memory that was written."""

    name, processor = "recording", PROCESSORS["aarch64"]

    def __init__(self, size: int) -> None:
        self.data, self.memory, self.end, self.calls = range(64, 64 + size), bytearray(4096), 0, 0

    def write(self, address: int, data: bytes | memoryview) -> None:
        self.memory[address : address + len(data)] = data
        self.end = max(self.end, address + len(data))

    def read_into(self, address: int, data: memoryview) -> None:
        data[:] = self.memory[address : address + len(data)]

    def call(self, function: int, buffers: int, scalars: int) -> None:
        self.calls += 1


@pytest.mark.parametrize("scalars", [0, 1, 2, 10])
@pytest.mark.parametrize("arrays", [0, 1, 2])
def test_a_call_fits_into_the_memory_of_an_engine_or_writes_nothing(arrays: int, scalars: int) -> None:
    """The memory grows by a byte at a time, until all of it is used."""
    lent, memory = [np.zeros(4, np.float32) for _ in range(arrays)], HostMemory()
    kinds = [ArrayArgument(k, 4, 16, True) for k in range(arrays)]

    def run(engine: Any) -> None:
        with memory.lend_arrays(lent):
            run_with_copies(engine, memory, 0, kinds, [a.ctypes.data for a in lent], list(range(scalars)))

    for size in range(1000):
        engine = RecordingEngine(size)
        try:
            run(engine)
        except Crash as e:
            assert "the memory of recording has" in str(e) and (engine.end, engine.calls) == (0, 0)
        else:
            assert engine.calls == 1 and engine.end <= engine.data.stop
            break
    else:
        pytest.fail("no memory was large enough")
