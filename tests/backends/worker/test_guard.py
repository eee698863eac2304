"""Guard pages: memory is whole, ends where it says, and a write beside it is found."""

import ctypes
import mmap

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.worker.guard import GuardedMemory, GuardedProgram, GuardSide
from uops.spec.errors import Unsound
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt


@pytest.mark.parametrize("side", GuardSide)
@pytest.mark.parametrize("size", [0, 1, 7, 4095, 4096, 4097, 100_000])
def test_the_memory_is_all_there(side: GuardSide, size: int) -> None:
    guarded = GuardedMemory(size, side)
    guarded.data[:] = 3
    assert guarded.data.size == size
    assert ctypes.string_at(guarded.address, size) == b"\3" * size
    edge = guarded.address + size if side is GuardSide.END else guarded.address
    assert edge % mmap.PAGESIZE == 0
    guarded.check_slack_unwritten()


@pytest.mark.parametrize("side", GuardSide)
@pytest.mark.parametrize("place", [-1, -40, 100, 140])
def test_a_write_into_the_slack_is_found(side: GuardSide, place: int) -> None:
    guarded = GuardedMemory(100, side)
    if (place < 0) != (side is GuardSide.END):
        return  # that side is the guard page: test_worker sees it crash
    ctypes.memset(guarded.address + place, 0, 1)
    with pytest.raises(Unsound, match=f"1 bytes outside a buffer of 100 bytes were written, the first at byte {place}"):
        guarded.check_slack_unwritten()


def test_arrays_of_any_item_size_fit_against_the_page() -> None:
    for item in (1, 2, 4, 8):
        assert GuardedMemory(3 * item).address % item == 0


@pytest.mark.parametrize("side", GuardSide)
def test_what_a_program_does_not_write_is_the_pattern(side: GuardSide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what another run left in that memory, which may be what is right."""
    program = GuardedProgram(b.add(b.param(0, (5,), dt.int32), 1), LlvmTarget(LlvmTier.FAST, ObjectCache(None)), side)
    assert program({"p0": np.arange(5, dtype=np.int32)}).values[0].tolist() == [1, 2, 3, 4, 5]
    monkeypatch.setattr(program, "_run_all_launches", lambda *given: None)
    assert program({"p0": np.arange(5, dtype=np.int32)}).values[0].tobytes() == b"\xa5" * 20
