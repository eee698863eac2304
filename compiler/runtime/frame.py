"""A run of a compiled program as data, for targets that make one native call of it (`Ability.NATIVE_ENTRY`).

The memory of a run is a row of *bases*, one address each: arguments, constants, temporaries and results. A launch names the bases
of a kernel's buffers, with offsets into them, and the variables of its scalars. Sizes are in bytes, and shapes are known. A
program whose shapes depend on variables has `inputs` None: only its launches can be native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from uops.spec.ir.record import dataclass

#: A loaded kernel: (addresses, scalars) -> None.
Kernel = Callable[[Sequence[int], Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """An array argument of exactly this dtype and shape, in C order.

    If it is `optional`, None stands for the array in `ProgramFrame.fixed_arrays`. If `is_bool`, its bytes must be 0 or 1 (R24).
    """

    base: int
    dtype: Any
    shape: tuple[int, ...]
    optional: bool
    is_bool: bool


@dataclass(frozen=True, slots=True)
class VariableInput:
    """An int argument within [low, high]: the value of a variable (R48)."""

    variable: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ScratchBuffer:
    """Memory whose contents matter neither before nor after a run; `size` is in bytes."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class ArrayOutput:
    """An array that a run creates and returns: it starts as a copy of base `source`, or uninitialised if that is None."""

    base: int
    dtype: Any
    shape: tuple[int, ...]
    source: int | None


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One call of a kernel.

    `buffers` has per argument the base and the byte offset, None for a variable. `variables` has per argument the variable, None
    for a buffer. `thread_extent` is the trip count of the loop that threads may share, 0 if there is none. `instruction_count` is
    about how many instructions the call runs.
    """

    kernel: Kernel
    buffers: tuple[tuple[int, int] | None, ...]
    variables: tuple[int | None, ...]
    thread_extent: int
    instruction_count: int

    def make_tables(self, addresses: Sequence[int], variable_values: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the addresses and the scalars of the kernel's call, for an address per base; 0 where the other table has one."""
        count = len(self.variables)
        if self.variables.count(None) == count:  # most kernels have no variable
            return [addresses[base] + offset for base, offset in self.buffers], [0] * count  # type: ignore[misc]
        return (
            [0 if b is None else addresses[b[0]] + b[1] for b in self.buffers],
            [0 if v is None else variable_values[v] for v in self.variables],
        )


@dataclass(frozen=True, slots=True)
class ProgramFrame:
    """All that a run of a program needs.

    `fixed_arrays` are (base, array) pairs: each array is the memory of its base in every run, and must live as long as the frame.
    With `returns_single` a run returns its one array, not a tuple. `threads` is how many may share a loop, 0 for all cores, in
    pieces of at least `piece_instructions`.
    """

    base_count: int
    variable_count: int
    inputs: tuple[ArrayInput | VariableInput, ...] | None
    fixed_arrays: tuple[tuple[int, Any], ...]
    temporaries: tuple[ScratchBuffer, ...]
    outputs: tuple[ArrayOutput, ...]
    launches: tuple[KernelLaunch, ...]
    returns_single: bool
    threads: int
    piece_instructions: int
