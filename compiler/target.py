"""The compiler's contract of a target: a description, a renderer, a toolchain and a loader.

Calling convention of a loaded kernel: `kernel(addresses, scalars)`, both with one entry per argument of its Call, in slot order.
The entry of a buffer is its address (the other table's is ignored), the entry of a named variable its value.

- A target whose kernels cannot follow a host address also has `lend`. The runtime calls kernels while the memory that they use is
  lent.
- A target whose kernels run on after their calls has `wait`.
- A target that can run a whole program by one native call has `enter`.
- A target with workgroups may have `can_lanes_meet_at_barriers`. Where it says that the lanes of a kernel cannot meet at its
  Barriers, they become loops, as they do for a target without workgroups.
- A target with tensor cores has `has_tensor_core`. Its kernels may hold the Wmmas for which that is true. All others become loops.
- A target whose `compile` uses a cache has `remake`. Kernels are loaded by `load_or_remake_kernel`, which drops from the cache
  what does not link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

from uops.compiler.decompose import NATIVE
from uops.compiler.runtime.frame import Kernel as Kernel  # what a loader gives is part of the contract
from uops.compiler.runtime.frame import ProgramFrame
from uops.spec.errors import Crash
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BITWISE, COMPARE, SHIFT, Op
from uops.spec.ir.record import dataclass

#: The dtypes of kernels after instruction selection for a target without small floats.
PLAIN_DTYPES: frozenset[DType] = NATIVE
# fmt: off
#: The ops of kernels after instruction selection for such a target.
PLAIN_OPS: frozenset[Op] = SHIFT | BITWISE | COMPARE | {
    Op.PARAM, Op.CONST, Op.BUFFER, Op.RANGE, Op.END, Op.INDEX, Op.STACK, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK, Op.LINEAR,
    Op.CAST, Op.BITCAST, Op.TRUNC, Op.NOT, Op.WHERE, Op.ADD, Op.MUL, Op.MAX, Op.SUB, Op.NEG, Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC,
    Op.IDIV, Op.MOD,
}
# fmt: on

#: Bytes of LOCAL and REG memory that a kernel of a CPU may use: they are on the stack of its thread. OpenCL's LOCAL memory is
#: as small.
STACK_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class MachineModel:
    """The hardware as schedules and instruction selection see it. The defaults describe no hardware: scalar code for one core.

    - `vector_bytes`: size of one vector register, 0 for scalar code only; `registers`: their number.
    - `caches`: bytes of the data caches of one core, L1 first; `line`: bytes of a cache line.
    - `cores`: threads that run at the same time.
    - `fma`: a fused multiply-add is one instruction; `masks`: an access to some lanes of a vector is one instruction.
    - `local_memory`: bytes of LOCAL memory of a workgroup; `workgroup`: the most lanes of one, 0 for none.
    - `access_bytes`: size of the widest access of one lane of a workgroup, 0 for that of a vector.
    - `tensor_cores`: the instructions that TC may choose from.
    """

    vector_bytes: int = 0
    registers: int = 16
    caches: tuple[int, ...] = ()
    line: int = 64
    cores: int = 1
    fma: bool = False
    masks: bool = False
    local_memory: int = 0
    workgroup: int = 0
    access_bytes: int = 0
    tensor_cores: tuple[WmmaArg, ...] = ()

    def lanes(self, d: DType) -> int:
        """Return the elements of `d` in one vector register; 1 if there are no vectors."""
        return max(1, self.vector_bytes // d.itemsize)


#: The model of a target that has none.
PLAIN = MachineModel()


class Target(Protocol):
    """A compiled target. `key` names everything but the source that determines a binary."""

    @property
    def name(self) -> str:
        """The name of the target in messages."""
        ...

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that kernels may use."""
        ...

    @property
    def ops(self) -> frozenset[Op]:
        """The ops that kernels may use."""
        ...

    @property
    def key(self) -> str:
        """All but the source that determines a binary."""
        ...

    def render(self, linear: UOp) -> str:
        """Return the source of one LINEAR kernel."""
        ...

    def compile(self, source: str) -> bytes:
        """Return the binary of a source."""
        ...

    def load(self, binary: bytes) -> Kernel:
        """Return the kernel of a binary. Raises Crash if it does not link."""
        ...


@runtime_checkable
class SupportsLending(Protocol):
    """A Target whose kernels reach only memory that is lent to them."""

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Let kernels of this thread reach the arrays by their addresses; afterwards the arrays hold what kernels wrote."""
        ...


@runtime_checkable
class SupportsWaiting(Protocol):
    """A Target whose kernels may run on after their calls have returned, until the memory is returned or `wait` is called."""

    def wait(self) -> None:
        """Wait until all launches have ended. Raises Crash if one of them failed."""
        ...


def wait_for_launches(target: Target) -> None:
    """Wait until all launches of a target have ended; on most targets they have when their calls return."""
    if isinstance(target, SupportsWaiting):
        target.wait()


def memory_lender(target: Target) -> Callable[[Sequence[Any]], AbstractContextManager[object]]:
    """Return the function that lends memory to the target's kernels; for most targets it does nothing."""
    lend: Callable[[Sequence[Any]], AbstractContextManager[object]] = getattr(target, "lend", nullcontext)  # as in machine_model_of
    return lend


@dataclass(frozen=True, slots=True)
class NativeEntry:
    """The native ways into a program.

    `function(*arrays)` is a builtin that does a whole run for arguments that are exactly as the ProgramFrame says. It calls the
    fallback for all others. It is None if there is no such builtin. `execute(addresses, variables)` runs the launches on an
    address per base.
    """

    function: Callable[..., Any] | None
    execute: Callable[[Sequence[int], Sequence[int]], None]


@runtime_checkable
class SupportsNativeEntry(Protocol):
    """A Target that can run a whole program by one native call."""

    def enter(self, frame: ProgramFrame, fallback: Callable[..., Any]) -> NativeEntry | None:
        """Return the native ways into the program; None if this process has none."""
        ...


@runtime_checkable
class SupportsWorkgroups(Protocol):
    """A Target that launches workgroups, if it can number the lanes of a kernel."""

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        """Return True if the lanes of a LINEAR kernel run at the same time, so that they can meet at its Barriers."""
        ...


@runtime_checkable
class SupportsTensorCores(Protocol):
    """A Target with workgroups that has instructions for some Wmmas."""

    def has_tensor_core(self, arg: WmmaArg) -> bool:
        """Return True if a Wmma of this configuration is one instruction for the lanes of a warp."""
        ...


@runtime_checkable
class SupportsRemake(Protocol):
    """A Target whose `compile` may return what a cache on disk holds."""

    def remake(self, source: str) -> bytes:
        """Compile a source anew, and replace what the cache holds."""
        ...


def load_or_remake_kernel(target: Target, source: str, binary: bytes) -> Kernel:
    """Load the kernel of a binary; if it does not link, compile the source anew, as a cache may have given it.

    Raises Crash if the new binary does not link, either.
    """
    try:
        return target.load(binary)
    except Crash:
        remake: Callable[[str], bytes] | None = getattr(target, "remake", None)
        fresh = binary if remake is None else remake(source)
        if fresh == binary:
            raise
        return target.load(fresh)


@runtime_checkable
class SupportsThreadedCompile(Protocol):
    """A Target whose `compile` may run in another thread while this one runs Python."""

    @property
    def beside(self) -> bool:
        """True if `compile` may run beside this thread."""
        ...


@runtime_checkable
class SupportsMachineModel(Protocol):
    """A Target that describes its hardware."""

    @property
    def machine(self) -> MachineModel:
        """The hardware of the target."""
        ...


def machine_model_of(target: Target) -> MachineModel:
    """Return the description of the target's hardware; PLAIN if it has none."""
    machine: MachineModel = getattr(target, "machine", PLAIN)  # ten times as fast as isinstance with a Protocol
    return machine
