"""What the compiler asks of a target: a description, a renderer, a toolchain and a loader.

Calling convention of a loaded kernel: `kernel(addresses, scalars)`, both with one entry per argument of its Call, in slot order.
The entry of a buffer is its address (the other table's is ignored), the entry of a named variable its value. A target whose kernels
cannot follow a host address as it is also has `lend`; the runtime calls kernels while the memory that they use is lent. One that
can make a whole program one native call has `enter`. One whose `compile` asks a cache has `remake`; whoever runs a kernel loads it
by `load`, which drops from the cache what does not link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

from uops.compiler.runtime.frame import Frame
from uops.compiler.runtime.frame import Kernel as Kernel  # what a loader gives is part of the contract
from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BITWISE, COMPARE, SHIFT, Op
from uops.spec.ir.record import dataclass

#: What instruction selection leaves on a target that computes in bool, the machine integers, float32 and float64.
PLAIN_DTYPES: frozenset[DType] = frozenset({dt.bool_, *dt.INTS, dt.float32, dt.float64})
PLAIN_OPS: frozenset[Op] = (
    frozenset({Op.PARAM, Op.CONST, Op.BUFFER, Op.RANGE, Op.END, Op.INDEX, Op.STACK, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK})
    | {
        Op.CAST,
        Op.BITCAST,
        Op.TRUNC,
        Op.NOT,
        Op.WHERE,
        Op.ADD,
        Op.MUL,
        Op.MAX,
        Op.SUB,
        Op.NEG,
        Op.DIV,
        Op.RECIP,
        Op.SQRT,
        Op.MULACC,
    }
    | {Op.IDIV, Op.MOD, Op.LINEAR}
    | SHIFT
    | BITWISE
    | COMPARE
)


#: Bytes of LOCAL and REG memory that a kernel of a CPU may take: they live on the stack of its thread (LOCAL ones of OpenCL in as
#: small a memory), and more than this does not belong there.
STACK_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """What schedules and instruction selection ask about the hardware. The defaults describe no hardware: scalar code for one core.

    `vector_bytes`: of one vector register, 0 for scalar code only; `registers`: how many of them; `caches`: bytes of the data
    caches of one core, L1 first; `line`: bytes of a cache line; `cores`: threads that run at the same time; `fma`: a fused
    multiply-add is one instruction; `masks`: an access to some lanes of a vector is one instruction; `local_memory`: bytes of LOCAL
    memory of a workgroup; `workgroup`: most lanes of one, 0 for none; `tensor_cores`: the instructions that TC may choose from.
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
    tensor_cores: tuple[WmmaArg, ...] = ()

    def lanes(self, d: DType) -> int:
        """Elements of `d` in one vector register; 1 where there are no vectors."""
        return max(1, self.vector_bytes // d.itemsize)


#: A target that says nothing about itself.
PLAIN = Machine()


class Target(Protocol):
    """One machine. `key` names everything but the source that decides a binary."""

    @property
    def name(self) -> str: ...

    @property
    def dtypes(self) -> frozenset[DType]: ...

    @property
    def ops(self) -> frozenset[Op]: ...

    @property
    def key(self) -> str: ...

    def render(self, linear: UOp) -> str:
        """The source of one LINEAR kernel."""
        ...

    def compile(self, source: str) -> bytes: ...

    def load(self, binary: bytes) -> Kernel: ...


@runtime_checkable
class Lends(Protocol):
    """What a Target also has if its kernels reach only memory that was announced."""

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Let kernels of this thread reach the arrays by their addresses; afterwards the arrays hold what kernels wrote."""
        ...


def lender(target: Target) -> Callable[[Sequence[Any]], AbstractContextManager[object]]:
    """How memory is lent to the target's kernels; most need nothing."""
    found: Callable[[Sequence[Any]], AbstractContextManager[object]] = getattr(target, "lend", nullcontext)  # as in machine_of
    return found


@dataclass(frozen=True, slots=True)
class Entered:
    """Native ways into a program. `function(*arrays)` is a builtin that does the whole of a run for arguments that are exactly what
    the Frame says, and calls the fallback for all others; None where there is none. `execute(addresses, variables)` runs the
    launches on an address per base."""

    function: Callable[..., Any] | None
    execute: Callable[[Sequence[int], Sequence[int]], None]


@runtime_checkable
class Enters(Protocol):
    """What a Target also has if a whole program can be one native call."""

    def enter(self, frame: Frame, fallback: Callable[..., Any]) -> Entered | None:
        """The native ways into the program; None where this process offers none."""
        ...


@runtime_checkable
class Remakes(Protocol):
    """The method that a Target also has if its `compile` may give what a cache on disk holds."""

    def remake(self, source: str) -> bytes:
        """Make the binary of a source anew, in place of what the cache holds."""
        ...


def load(target: Target, source: str, binary: bytes) -> Kernel:
    """The kernel of a binary, which is made again from its source if a cache gave one that does not link. Raises Crash if what is
    made now does not, either."""
    try:
        return target.load(binary)
    except Crash:
        remake: Callable[[str], bytes] | None = getattr(target, "remake", None)
        fresh = binary if remake is None else remake(source)
        if fresh == binary:
            raise
        return target.load(fresh)


@runtime_checkable
class Beside(Protocol):
    """What a Target also has if `compile` may run in another thread, and lets this one run Python meanwhile."""

    @property
    def beside(self) -> bool: ...


@runtime_checkable
class Described(Protocol):
    """What a Target also has if it describes its hardware."""

    @property
    def machine(self) -> Machine: ...


def machine_of(target: Target) -> Machine:
    """The description of the target's hardware; PLAIN for a target without one."""
    found: Machine = getattr(target, "machine", PLAIN)  # a tenth of what asking for a Protocol takes
    return found
