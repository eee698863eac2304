"""What one run of a compiled program needs, as data: for whoever turns it into a native call (`uops.compiler.target.Enters`).

The memory of a run is a row of *bases*, one address each: arguments, constants, temporaries and results. A launch names the bases
of a kernel's buffers, with offsets into them, and the variables of its scalars. Sizes are bytes, shapes are known; a program whose
shapes depend on variables has `inputs` None: only its launches can be native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from uops.spec.ir.record import dataclass

#: A loaded kernel.
Kernel = Callable[[Sequence[int], Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """An array of exactly this dtype and shape, in C order; None stands for what `Frame.fixed` has, if it is `optional`. `bools`:
    its bytes have to be 0 or 1 (R24)."""

    base: int
    dtype: Any
    shape: tuple[int, ...]
    optional: bool
    bools: bool


@dataclass(frozen=True, slots=True)
class VariableInput:
    """An int within [low, high], which is the value of that variable (R48)."""

    variable: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Temporary:
    """Memory whose contents matter to nobody before or after a run."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Made:
    """An array that a run makes and gives back. It starts as a copy of base `source`; None: as anything."""

    base: int
    dtype: Any
    shape: tuple[int, ...]
    source: int | None


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel. `buffers`: per argument the base and the offset, None for a variable; `variables`: per argument the
    variable, None for a buffer. `extent`: iterations of the loop that threads may share, 0 for none. `work`: about how many
    instructions the call runs."""

    kernel: Kernel
    buffers: tuple[tuple[int, int] | None, ...]
    variables: tuple[int | None, ...]
    extent: int
    work: int


@dataclass(frozen=True, slots=True)
class Frame:
    """`bases` and `variables` are counts; `fixed` are arrays that are the memory of a base in every run, and have to live as long.
    `single`: what a run gives is its one array, not a tuple. `threads`: how many may share a loop, 0 for all cores."""

    bases: int
    variables: int
    inputs: tuple[ArrayInput | VariableInput, ...] | None
    fixed: tuple[tuple[int, Any], ...]
    temporaries: tuple[Temporary, ...]
    made: tuple[Made, ...]
    launches: tuple[Launch, ...]
    single: bool
    threads: int
