"""Whether, and by how many threads, the loop of a launch is shared. The module loads neither NumPy nor LLVM."""

from __future__ import annotations

from uops.backends.host import available_cores
from uops.compiler.runtime.frame import KernelLaunch, ProgramFrame


def count_usable_threads(frame: ProgramFrame) -> int:
    """Return how many threads may run a kernel of the program, the caller's included."""
    return min(frame.threads or available_cores(), available_cores())


def has_loop_worth_sharing(frame: ProgramFrame) -> bool:
    """Return True if several threads may run the program, and a loop of it has work for more than one."""
    return any(_is_worth_sharing(launch, frame.piece_instructions) for launch in frame.launches) and count_usable_threads(frame) > 1


def _is_worth_sharing(launch: KernelLaunch, piece_instructions: int) -> bool:
    part: int = getattr(launch.kernel, "part", 0)
    return part != 0 and launch.thread_extent > 1 and launch.instruction_count >= 2 * piece_instructions
