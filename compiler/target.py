"""The compiler's contract of a target: a description, a renderer, a toolchain and a loader.

Calling convention of a loaded kernel: `kernel(addresses, scalars)`, both with one entry per argument of its Call, in slot order.
The entry of a buffer is its address (the other table's is ignored), the entry of a named variable its value.

A target declares what else it can do, as each `Ability` says. The runtime calls kernels while the memory that they use is lent.
Specials and Barriers become loops without workgroups, and for a kernel whose lanes cannot meet. So does a Wmma without instruction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any, NamedTuple

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


class Thresholds(NamedTuple):
    """Sizes from which schedules for large programs pay, as measured on CPUs.

    A model of a machine may have smaller ones. Small programs are then compiled as large ones are, which is how tests reach them.

    - `threaded_operations`: fewest operations on single elements that pay for threads: some 20 us of one core. Handing work to
      threads costs 2 to 5 us while they are awake and 50 us while they sleep.
    - `split_reduce_elements`: elements per result from which a Reduce is split into parts that cores share.
    - `kernel_cost`: cost of one more kernel, in operations on single elements.
    - `shared_scan_elements`: steps of all scans of a kernel from which cores share them: some 150 us of one core.
    - `scan_columns`: most accumulators of a tile of columns: what the first cache holds beside rows.
    - `scatter_vectors`: fewest outputs, in vectors, that pay for clearing memory and adding to the outputs that addends select.
    - `workgroup_scatter`: fewest outputs, and fewest addends, that pay for leaving the outputs of a column to one workgroup.
    - `reused_rows`: fewest rows of a product that pay for a panel whose operands are gathered.
    - `packed_row_tiles`: fewest tiles of rows whose shared panel is copied into LOCAL memory.
    - `swept_rows`: fewest rows from which reduced columns are accumulated row by row.
    - `block_rows`: fewest rows of a block of a fused chain that pay for its loops.
    - `workgroup_reduce_steps`: fewest steps of a Reduce that the lanes of a workgroup share.
    - `piece_instructions`: fewest instructions of a piece of a shared loop that pay for handing it to another thread.
    """

    threaded_operations: int = 200_000
    split_reduce_elements: int = 1 << 19
    kernel_cost: int = 4000
    shared_scan_elements: int = 1 << 17
    scan_columns: int = 2048
    scatter_vectors: int = 8
    workgroup_scatter: int = 512
    reused_rows: int = 24
    packed_row_tiles: int = 4
    swept_rows: int = 16
    block_rows: int = 32
    workgroup_reduce_steps: int = 128
    piece_instructions: int = 8_000


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
    - `thresholds`: sizes from which schedules for large programs pay.
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
    thresholds: Thresholds = Thresholds()

    def lanes(self, d: DType) -> int:
        """Return the elements of `d` in one vector register; 1 if there are no vectors."""
        return max(1, self.vector_bytes // d.itemsize)


#: The model of a target that has none.
PLAIN = MachineModel()


class Ability(Enum):
    """An optional part of a target, beyond rendering, compiling and loading. The value names the method that does it."""

    #: Its kernels reach only memory that is lent to them.
    LENDING = "lend"
    #: Its kernels run on after their calls have returned.
    WAITING = "wait"
    #: It runs a whole program by one native call.
    NATIVE_ENTRY = "enter"
    #: It launches workgroups, if it can number the lanes of a kernel.
    WORKGROUPS = "can_lanes_meet_at_barriers"
    #: It has instructions for some Wmmas.
    TENSOR_CORES = "has_tensor_core"
    #: What `compile` returns may come from a cache on disk.
    CODE_CACHE = "remake"
    #: It compiles the kernels of several texts at once faster than one by one.
    BATCHES = "compile_and_load_batch"


@dataclass(frozen=True, slots=True)
class NativeEntry:
    """The native ways into a program.

    `function(*arrays)` is a builtin that does a whole run for arguments that are exactly as the ProgramFrame says. It calls the
    fallback for all others. It is None if there is no such builtin. `execute(addresses, variables)` runs the launches on an
    address per base, whose memory is lent.
    """

    function: Callable[..., Any] | None
    execute: Callable[[Sequence[int], Sequence[int]], None]


#: The context in which kernels reach arrays as they are. It has no state, so all calls share it.
NOTHING_LENT: AbstractContextManager[object] = nullcontext()


class Target(ABC):
    """A compiled target. `key` names everything but the source that determines a binary.

    The last methods are abilities. A class that overrides one declares it in `abilities`; the default is for targets without it.
    `compiles_outside_lock` says that `compile` may run in another thread while this one runs Python.
    """

    name: str
    key: str
    dtypes: frozenset[DType]
    ops: frozenset[Op]
    machine: MachineModel = PLAIN
    abilities: frozenset[Ability] = frozenset()
    compiles_outside_lock: bool = False

    def __init_subclass__(cls) -> None:
        """Check that the class overrides the methods of its abilities and no others. Raises TypeError."""
        for ability in Ability:
            overrides = getattr(cls, ability.value) is not getattr(Target, ability.value)
            if overrides != (ability in cls.abilities):
                facts = ("overrides", "does not declare") if overrides else ("does not override", "declares")
                raise TypeError(f"{cls.__name__} {facts[0]} {ability.value}(), and {facts[1]} Ability.{ability.name}")

    @abstractmethod
    def render(self, linear: UOp) -> str:
        """Return the source of one LINEAR kernel."""

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """Return the binary of a source."""

    @abstractmethod
    def load(self, binary: bytes) -> Kernel:
        """Return the kernel of a binary. Raises Crash if it does not link."""

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[object]:
        """Let kernels of this thread reach the arrays by their addresses; afterwards the arrays hold what kernels wrote."""
        return NOTHING_LENT

    def wait(self) -> None:
        """Wait until all launches have ended. Raises Crash if one of them failed."""
        return

    def enter(self, frame: ProgramFrame, fallback: Callable[..., Any]) -> NativeEntry | None:
        """Return the native ways into the program; None if this process has none."""
        return None

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        """Return True if the lanes of a LINEAR kernel run at the same time, so that they can meet at its Barriers."""
        return True

    def has_tensor_core(self, arg: WmmaArg) -> bool:
        """Return True if a Wmma of this configuration is one instruction for the lanes of a warp."""
        return False

    def remake(self, source: str) -> bytes:
        """Compile a source anew, and replace what the cache holds."""
        return self.compile(source)

    def compile_and_load_batch(self, sources: Sequence[str]) -> list[Kernel]:
        """Compile and load one kernel per text, in order."""
        return [load_or_remake_kernel(self, source, self.compile(source)) for source in sources]


def load_or_remake_kernel(target: Target, source: str, binary: bytes) -> Kernel:
    """Load the kernel of a binary; if it does not link, compile the source anew, as a cache may have given it.

    Raises Crash if the new binary does not link, either.
    """
    try:
        return target.load(binary)
    except Crash:
        fresh = target.remake(source) if Ability.CODE_CACHE in target.abilities else binary
        if fresh == binary:
            raise
        return target.load(fresh)
