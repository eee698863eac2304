"""A LINEAR kernel as LLVM IR text.

Takes: LINEAR over SELECTED ops. Gives: a module with one function, `void kernel(ptr buffers, ptr scalars)`.

`buffers` points at one address per kernel argument and `scalars` at one int64 per kernel argument; argument k is read from the
table of its kind (a named Param is a scalar), so both are indexed by slot. Everything a target machine decides (triple, data
layout, features) is left out, so that the same kernel has the same text everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from uops.backends.llvm.alu import EMIT
from uops.backends.llvm.builder import Builder
from uops.backends.llvm.types import bits, literal, storage_type, value_type
from uops.spec import dtypes as dt
from uops.spec.args import AddrSpace
from uops.spec.dtypes import DType
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.node import UOp
from uops.spec.ops import Op

ENTRY = "kernel"
#: LOCAL and REG buffers live on the stack; more than this does not belong there.
STACK_LIMIT = 1 << 20
#: A private array of at most this many elements starts as zeros; a larger one freezes what it reads instead (see `_allocate`).
ZEROED = 16

# No builtins: LLVM must not turn our loops into calls of memset and memcpy, so that an object needs no C library.
_ATTRIBUTES = 'attributes #0 = { nounwind "no-builtins" }'


class _Open(NamedTuple):
    """A Range or If that is not closed yet."""

    node: UOp
    number: int


def render(linear: UOp) -> str:
    """The module's text. Raises Unsupported for an op or dtype that this backend lacks, Crash for what is no LINEAR kernel."""
    if linear.op is not Op.LINEAR:
        raise Crash(f"the llvm renderer takes a Linear, got {linear!r}")
    return _Kernel(linear.src).text()


class _Kernel:
    """The state of one rendering: the builder, the operand of every value, the address of every reference."""

    def __init__(self, instructions: tuple[UOp, ...]) -> None:
        self.b = Builder()
        self.instructions = instructions
        self.operands: dict[UOp, str] = {}
        self.addresses: dict[UOp, str] = {}
        self.frozen: set[UOp] = set()
        self.entries: set[str] = set()
        self.open: list[_Open] = []
        self.number = 0

    def text(self) -> str:
        self._prologue()
        for k, u in enumerate(self.instructions):
            self.number = k
            if u not in self.operands and u not in self.addresses:
                self._statement(u)
        if self.open:
            raise Crash(f"{self.open[-1].node!r} is never closed")
        self.b.do("ret void")
        head = f"define void @{ENTRY}(ptr %buffers, ptr %scalars) #0 {{"
        parts = [head, "entry:", *self.b.lines, "}", "", *self.b.declarations, _ATTRIBUTES]
        return "\n".join(parts) + "\n"

    # Entry block: everything whose place must dominate the whole kernel.

    def _prologue(self) -> None:
        params = sorted((u for u in self.instructions if u.op is Op.PARAM), key=lambda u: int(u.arg.slot))
        for u in params:
            if u.arg.name is None:
                self._argument(u)
            else:
                self._variable(u)
        total = 0
        for u in self.instructions:
            if u.op is Op.BUFFER:
                total += u.arg.size * u.arg.dtype.itemsize
                if total > STACK_LIMIT:
                    raise CompileError(f"private and local buffers take more than {STACK_LIMIT} bytes of stack")
                self._allocate(u)

    def _argument(self, u: UOp) -> None:
        """Addresses are read once, before any store: a store through one of them cannot change the table as far as LLVM sees."""
        storage_type(u.dtype)
        self.addresses[u] = self._entry("p", u.arg.slot, "ptr", "%buffers")

    def _variable(self, u: UOp) -> None:
        """A named Param: passed as int64; its dtype was proved to hold every value within its bounds (R08)."""
        place, t = self._entry("s", u.arg.slot, "i64", "%scalars"), value_type(u.dtype)
        self.operands[u] = place if t == "i64" else self.b.emit(f"trunc i64 {place} to {t}")

    def _entry(self, letter: str, slot: int, t: str, table: str) -> str:
        """An entry of a table of arguments, read once, however many Params name the slot."""
        place = f"%{letter}{slot}"
        if place not in self.entries:
            self.entries.add(place)
            self.b.do(f"{place}.at = getelementptr {t}, ptr {table}, i64 {slot}")
            self.b.do(f"{place} = load {t}, ptr {place}.at, align 8")
        return place

    def _allocate(self, u: UOp) -> None:
        """A private buffer. Reading what was never written is a Trap in the language (R61), but it may not become undefined
        behaviour here: a small buffer starts as zeros (dead stores, mostly), a load from a large one is frozen."""
        t, size, place = storage_type(u.dtype), u.arg.size, f"%r{len(self.addresses)}"
        if u.arg.addrspace is AddrSpace.GLOBAL:
            raise Crash(f"{u!r}: a GLOBAL buffer reaches a kernel as a Param")
        self.b.do(f"{place} = alloca [{size} x {t}], align {max(16, u.dtype.itemsize)}")
        if size <= ZEROED:
            self.b.do(f"store [{size} x {t}] zeroinitializer, ptr {place}, align {u.dtype.itemsize}")
        else:
            self.frozen.add(u)
        self.addresses[u] = place

    # Body: one statement per instruction.

    def _statement(self, u: UOp) -> None:
        if u.op in EMIT and u.src[0] not in self.addresses:
            if u.shape != ():
                raise Unsupported(f"{u.op.name} of shape {u.shape} in a kernel", "llvm")
            self.operands[u] = EMIT[u.op](self.b, u, *map(self.operand, u.src))
        elif u.op in STATEMENT:
            STATEMENT[u.op](self, u)
        else:
            raise Unsupported(u.op.name, "llvm")

    def operand(self, u: UOp) -> str:
        """How an instruction names the value `u`."""
        found = self.operands.get(u)
        if found is not None:
            return found
        if u.op is Op.CONST:
            return literal(u.arg.value, u.dtype)
        raise Crash(f"{u!r} is used before it is computed")

    def address(self, u: UOp) -> str:
        if u not in self.addresses:
            raise Crash(f"{u!r} is no reference that this kernel has computed")
        return self.addresses[u]

    def nothing(self, u: UOp) -> None:
        """Consts stand where they are used; shape operands, Group and Sink have no code."""

    def same(self, u: UOp) -> None:
        """After, and a Bitcast of a reference: its first source under another node."""
        source = u.src[0]
        if source in self.addresses:
            self.addresses[u] = self.addresses[source]
        elif u.dtype is not dt.void:
            self.operands[u] = self.operand(source)

    def index(self, u: UOp) -> None:
        """The address of one element. No `inbounds`: an address that a false gate protects may be anything."""
        if len(u.src) != 2 or u.src[1].shape != ():
            raise Unsupported(f"Index with {len(u.src) - 1} operands in a kernel", "llvm")
        base, place = self.address(u.src[0]), self._extended(u.src[1])
        self.addresses[u] = self.b.emit(f"getelementptr {storage_type(u.dtype)}, ptr {base}, i64 {place}")

    def _extended(self, u: UOp) -> str:
        """An integer value as i64."""
        x = self.operand(u)
        if u.op is Op.CONST or bits(u.dtype) == 64:
            return x
        return self.b.emit(f"{'sext' if u.dtype.is_signed else 'zext'} {value_type(u.dtype)} {x} to i64")

    def load(self, u: UOp) -> None:
        """Read one element; with a gate the address is touched only where it holds (R52)."""
        if len(u.src) == 1:
            self.operands[u] = self._read(u)
            return
        alt, gate, before = self.operand(u.src[1]), self.operand(u.src[2]), self.b.block
        then, join = f"load{self.number}", f"loaded{self.number}"
        self.b.branch(gate, then, join)
        self.b.label(then)
        value = self._read(u)
        self.b.jump(join)
        self.b.label(join)
        self.operands[u] = self.b.emit(f"phi {value_type(u.dtype)} [ {value}, %{then} ], [ {alt}, %{before} ]")

    def _read(self, u: UOp) -> str:
        d, source = u.dtype, u.src[0]
        t = storage_type(d)
        value = self.b.emit(f"load {t}, ptr {self.address(source)}, align {d.itemsize}")
        if _base(source) in self.frozen:
            value = self.b.emit(f"freeze {t} {value}")
        return self.b.emit(f"icmp ne i8 {value}, 0") if d is dt.bool_ else value

    def store(self, u: UOp) -> None:
        if len(u.src) == 2:
            self._write(u)
            return
        then, join = f"store{self.number}", f"stored{self.number}"
        self.b.branch(self.operand(u.src[2]), then, join)
        self.b.label(then)
        self._write(u)
        self.b.jump(join)
        self.b.label(join)

    def _write(self, u: UOp) -> None:
        target, value = u.src[0], u.src[1]
        self._put(target, value.dtype, self.operand(value))

    def _put(self, target: UOp, d: DType, value: str) -> None:
        if d is dt.bool_:
            value = self.b.emit(f"zext i1 {value} to i8")
        self.b.do(f"store {storage_type(d)} {value}, ptr {self.address(target)}, align {d.itemsize}")

    def atomic_add(self, u: UOp) -> None:
        """One thread runs a kernel, so a plain read, add and write is the atomic sum (R56)."""
        target, value = u.src
        d, t = value.dtype, storage_type(value.dtype)
        old = self.b.emit(f"load {t}, ptr {self.address(target)}, align {d.itemsize}")
        new = self.b.emit(f"{'fadd' if d.is_float else 'add'} {t} {old}, {self.operand(value)}")
        self._put(target, d, new)

    # Control.

    def range(self, u: UOp) -> None:
        """Open a loop that tests first, signed, so that a bound <= 0 runs zero times (R57)."""
        n, t = self.number, value_type(u.dtype)
        bound, before = self.operand(u.src[0]), self.b.block
        if value_type(u.src[0].dtype) != t:
            raise Crash(f"{u!r} has a bound of dtype {u.src[0].dtype}")
        self.b.jump(f"loop{n}")
        self.b.label(f"loop{n}")
        self.operands[u] = f"%i{n}"
        self.b.do(f"%i{n} = phi {t} [ 0, %{before} ], [ %i{n}.next, %next{n} ]")
        self.b.do(f"%i{n}.in = icmp slt {t} %i{n}, {bound}")
        self.b.branch(f"%i{n}.in", f"body{n}", f"done{n}")
        self.b.label(f"body{n}")
        self.open.append(_Open(u, n))

    def end(self, u: UOp) -> None:
        """Close the ranges of an End, innermost first."""
        left = set(u.src[1:])
        while left:
            inner, n = self._close(left)
            left.discard(inner)
            self.b.jump(f"next{n}")
            self.b.label(f"next{n}")
            self.b.do(f"%i{n}.next = add {value_type(inner.dtype)} %i{n}, 1")
            self.b.jump(f"loop{n}")
            self.b.label(f"done{n}")

    def _close(self, expected: Iterable[UOp]) -> _Open:
        if not self.open or self.open[-1].node not in expected:
            raise Crash(f"instruction {self.number} closes {list(expected)!r}, but not the innermost open Range or If")
        return self.open.pop()

    def if_(self, u: UOp) -> None:
        self.b.branch(self.operand(u.src[0]), f"then{self.number}", f"endif{self.number}")
        self.b.label(f"then{self.number}")
        self.open.append(_Open(u, self.number))

    def endif(self, u: UOp) -> None:
        n = self._close(u.src[:1]).number
        self.b.jump(f"endif{n}")
        self.b.label(f"endif{n}")


def _base(u: UOp) -> UOp:
    """The Param or Buffer that a reference is a view of."""
    while u.op in (Op.INDEX, Op.AFTER, Op.BITCAST):
        u = u.src[0]
    return u


STATEMENT: dict[Op, Callable[[_Kernel, UOp], None]] = {
    Op.CONST: _Kernel.nothing,
    Op.STACK: _Kernel.nothing,
    Op.GROUP: _Kernel.nothing,
    Op.SINK: _Kernel.nothing,
    Op.AFTER: _Kernel.same,
    Op.BITCAST: _Kernel.same,
    Op.INDEX: _Kernel.index,
    Op.LOAD: _Kernel.load,
    Op.STORE: _Kernel.store,
    Op.ATOMICADD: _Kernel.atomic_add,
    Op.RANGE: _Kernel.range,
    Op.END: _Kernel.end,
    Op.IF: _Kernel.if_,
    Op.ENDIF: _Kernel.endif,
}

#: Every op that this renderer has.
OPS = frozenset({Op.LINEAR, Op.PARAM, Op.BUFFER, *EMIT, *STATEMENT})
