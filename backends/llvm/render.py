"""A LINEAR kernel as LLVM IR text.

Takes: LINEAR over SELECTED ops. Gives: a module with one function, `void kernel(ptr buffers, ptr scalars)`. A kernel with a loop
for threads is all of `void part(ptr buffers, ptr scalars, i64 begin, i64 end)`, which does these iterations of that loop.

`buffers` points at one address per kernel argument and `scalars` at one int64 per kernel argument; argument k is read from the
table of its kind (a named Param is a scalar), so both are indexed by slot. Everything a target machine decides (triple, data
layout, features) is left out, so that the same kernel has the same text everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from uops.backends.facts import memory
from uops.backends.llvm.alu import EMIT, INSTRUCTION
from uops.backends.llvm.builder import Builder
from uops.backends.llvm.layout import addresses, changes, is_exact, references, registers, span
from uops.backends.llvm.shuffles import is_lane, join, lane, pick, vector_literal
from uops.backends.llvm.types import bits, each, lanes_of, like, literal, storage_type, type_of, value_type, wide
from uops.compiler.ir.loops import shared
from uops.compiler.target import STACK_LIMIT
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

ENTRY = "kernel"
#: The function that does some iterations of a THREAD loop.
PART = "part"
#: Of private and local arrays: a vector access that starts at their beginning crosses no cache line.
ALIGNMENT = 64
#: Bytes of the smallest element that machines gather. Of smaller ones LLVM makes a branch per lane, which is large, slow to make
#: and slow to run: they are read and written one by one, those that are off at a place of the kernel's own.
GATHERED = 4
#: A private array of at most this many elements starts as zeros; a larger one as anything (see `_allocate`).
ZEROED = 16

#: Iterations of a loop that LLVM is told of: its weights are 32 bits.
_MOST_TIMES = 1 << 31

# No builtins: LLVM must not turn our loops into calls of memset and memcpy, so that an object needs no C library.
_ATTRIBUTES = 'attributes #0 = { nounwind "no-builtins" }'


class _Open(NamedTuple):
    """A Range or If that is not closed yet, and the registers that it changes: their values before, by which an If is left too."""

    node: UOp
    number: int
    before: dict[UOp, str]
    block: str
    holes: dict[UOp, int]  # of a Range: the line of a register's phi, which needs the value of the last iteration


class _Vector(NamedTuple):
    """The places of a vector access: an address for all lanes that follow each other, or one for each lane."""

    contiguous: str | None
    lanes: list[str]


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
        self.entries: set[str] = set()
        self.open: list[_Open] = []
        self.number = 0
        self.registers = registers(instructions)
        self.current: dict[UOp, str] = {}  # the values of registers
        self.vectors: dict[UOp, _Vector] = {}
        self.places = addresses(instructions, references(instructions))
        self.wides: dict[UOp, str] = {}
        self.changes = changes(instructions, self.registers)
        self.shared = shared(instructions)
        self.spare = False

    def text(self) -> str:
        self._prologue()
        for k, u in enumerate(self.instructions):
            self.number = k
            if u not in self.operands and u not in self.addresses and u not in self.registers:
                self._instruction(u)
        if self.open:
            raise Crash(f"{self.open[-1].node!r} is never closed")
        self.b.do("ret void")
        tables = "ptr %buffers, ptr %scalars"
        name, head = (ENTRY, tables) if self.shared is None else (PART, f"{tables}, i64 %begin, i64 %end")
        whole = [] if self.shared is None else _whole(tables, int(self.shared.src[0].arg.value))
        spare = ["  %spare = alloca i64, align 8", "  store i64 0, ptr %spare, align 8"] if self.spare else []
        body = [f"define void @{name}({head}) #0 {{", "entry:", *spare, *self.b.lines, "}", ""]
        return "\n".join([*body, *whole, *self.b.declarations, _ATTRIBUTES]) + "\n"

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
            if u in self.registers:
                self.current[u] = each(wide(value_type(u.dtype), u.arg.size), _zero(u.dtype))
            elif u.op is Op.BUFFER:
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
        behaviour here: a small buffer starts as zeros (dead stores, mostly); a large one was perhaps filled by an empty piece of
        assembly, as far as LLVM knows. To freeze every load instead would keep it apart from the instruction that uses it."""
        t, size, place = storage_type(u.dtype), u.arg.size, f"%r{len(self.addresses)}"
        if u.arg.addrspace is AddrSpace.GLOBAL:
            raise Crash(f"{u!r}: a GLOBAL buffer reaches a kernel as a Param")
        self.b.do(f"{place} = alloca [{size} x {t}], align {ALIGNMENT}")
        if size <= ZEROED:
            self.b.do(f"store [{size} x {t}] zeroinitializer, ptr {place}, align {u.dtype.itemsize}")
        else:
            self.b.do(f'call void asm sideeffect "", "r,~{{memory}}"(ptr captures(none) {place})')
        self.addresses[u] = place

    # Body: one statement per instruction.

    def _instruction(self, u: UOp) -> None:
        """A statement; of an integer that is an address, also or only in 64 bits."""
        if u not in self.places.only:
            self._statement(u)
        if u in self.places.wide and u.shape == () and u.dtype is not dt.index:
            self.wides[u] = self._widened(u)

    def _statement(self, u: UOp) -> None:
        if u.op in EMIT and u.src[0] not in self.addresses:
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
        if u.op is Op.STACK and u.spelt is not None:
            self.operands[u] = vector_literal(u)
            return self.operands[u]
        if is_lane(u):
            return lane(self.b, u, self.operand)
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
        if source in self.vectors or memory(u) in self.registers:
            return
        if source in self.addresses:
            self.addresses[u] = self.addresses[source]
        elif u.dtype is not dt.void:
            self.operands[u] = self.operand(source)

    def index(self, u: UOp) -> None:
        """The address of one element, or of several. No `inbounds`: an address that a false gate protects may be anything."""
        if memory(u) in self.registers:
            return
        if u.src[0] not in self.addresses:
            if not is_lane(u):
                self.operands[u] = pick(self.b, u, self.operand)
            return
        if len(u.src) != 2:
            raise Unsupported(f"Index with {len(u.src) - 1} operands in a kernel", "llvm")
        t, base, at = storage_type(u.dtype), self.address(u.src[0]), u.src[1]
        if at.shape == ():
            self.addresses[u] = self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._wide(at)}")
        else:
            self.vectors[u] = self._vector(t, base, at)

    def _vector(self, t: str, base: str, at: UOp) -> _Vector:
        found = span(at)
        if found is None and at.op is Op.STACK:
            return _Vector(None, [self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._wide(s)}") for s in at.src])
        if found is None:
            name, kind = self.operand(at), type_of(at)
            lanes = [self.b.emit(f"extractelement {kind} {name}, i64 {k}") for k in range(lanes_of(at))]
            at64 = [self._extended(x, at.dtype) for x in lanes]
            return _Vector(None, [self.b.emit(f"getelementptr {t}, ptr {base}, i64 {x}") for x in at64])
        first = base if found.base is None else self.b.emit(f"getelementptr {t}, ptr {base}, i64 {self._wide(found.base)}")
        touched = found.steps[:1] if found.is_contiguous else found.steps
        places = [self.b.emit(f"getelementptr {t}, ptr {first}, i64 {k}") if k else first for k in touched]
        return _Vector(places[0], []) if found.is_contiguous else _Vector(None, places)

    def _wide(self, u: UOp) -> str:
        """An integer value as i64."""
        if u.op is Op.CONST:
            return str(u.arg.value)
        return self.wides[u] if u in self.wides else self._extended(self.operand(u), u.dtype)

    def _extended(self, x: str, d: DType) -> str:
        return x if bits(d) == 64 else self.b.emit(f"{'sext' if d.is_signed else 'zext'} {value_type(d)} {x} to i64")

    def _widened(self, u: UOp) -> str:
        """A scalar integer in 64 bits: computed there if nothing wraps, else converted."""
        if not is_exact(u):
            return self._extended(self.operand(u), u.dtype)
        if u.op is Op.CAST:
            return self._wide(u.src[0])
        x, y = map(self._wide, u.src)
        return self.b.emit(f"{INSTRUCTION[u.op]['s']} i64 {x}, {y}")

    def stack(self, u: UOp) -> None:
        """A vector of scalars; one of constants stands where it is used, as a shape does."""
        if not all(s.op is Op.CONST for s in u.src):
            self.operands[u] = join(self.b, u, self.operand)

    def load(self, u: UOp) -> None:
        """Read one element, or a vector; with a gate an address is touched only where it holds (R52)."""
        source = memory(u.src[0])
        if source in self.registers:
            self.operands[u] = self.current[source]
        elif len(u.src) == 1:
            self.operands[u] = self._read(u)
        elif u.src[2].shape != ():
            self.operands[u] = self._read_masked(u)
        else:
            self._read_if(u)

    def _read_if(self, u: UOp) -> None:
        alt, gate, before = self.operand(u.src[1]), self.operand(u.src[2]), self.b.block
        then, join_ = f"load{self.number}", f"loaded{self.number}"
        self.b.branch(gate, then, join_)
        self.b.label(then)
        value = self._read(u)
        self.b.jump(join_)
        self.b.label(join_)
        self.operands[u] = self.b.emit(f"phi {type_of(u)} [ {value}, %{then} ], [ {alt}, %{before} ]")

    def _read(self, u: UOp) -> str:
        d, source = u.dtype, u.src[0]
        t = storage_type(d)
        place = self._places(source)
        if place is None:
            value = self.b.emit(f"load {t}, ptr {self.address(source)}, align {d.itemsize}")
        elif place.contiguous is not None:
            t = wide(t, lanes_of(u))
            value = self.b.emit(f"load {t}, ptr {place.contiguous}, align {d.itemsize}")
        else:
            value = self._read_lanes(t, place.lanes, d)
            t = wide(t, lanes_of(u))
        return self._loaded(d, t, value)

    def _read_lanes(self, t: str, lanes: list[str], d: DType) -> str:
        return self.b.gathered(t, [self.b.emit(f"load {t}, ptr {a}, align {d.itemsize}") for a in lanes])

    def _read_masked(self, u: UOp) -> str:
        d, w, align = u.dtype, lanes_of(u), str(u.dtype.itemsize)
        t = wide(storage_type(d), w)
        alt, gate = self._stored(u.src[1]), self.operand(u.src[2])
        place = self._places(u.src[0])
        if place is None:
            raise Unsupported("a Load of one element under a vector gate", "llvm")
        if place.contiguous is not None:
            value = self.b.masked("load", t, t, ("ptr", place.contiguous), ("i32", align), (like(t, "i1"), gate), (t, alt))
        elif d.itemsize < GATHERED:
            read = self._read_lanes(storage_type(d), self._spared(place.lanes, gate), d)
            value = self.b.emit(f"select {like(t, 'i1')} {gate}, {t} {read}, {t} {alt}")
        else:
            ptrs = self.b.gathered("ptr", place.lanes)
            value = self.b.masked("gather", t, t, (like(t, "ptr"), ptrs), ("i32", align), (like(t, "i1"), gate), (t, alt))
        return self._loaded(d, t, value)

    def _spared(self, lanes: list[str], gate: str) -> list[str]:
        """The places of an access of all lanes: those that are off have one that starts as zeros and nobody else reads."""
        self.spare = True
        on = [self.b.emit(f"extractelement <{len(lanes)} x i1> {gate}, i64 {k}") for k in range(len(lanes))]
        return [self.b.emit(f"select i1 {x}, ptr {a}, ptr %spare") for x, a in zip(on, lanes, strict=True)]

    def _loaded(self, d: DType, t: str, value: str) -> str:
        """What was read, as a value."""
        return self.b.emit(f"icmp ne {t} {value}, {each(t, '0')}") if d is dt.bool_ else value

    def _places(self, target: UOp) -> _Vector | None:
        """The places of a vector access; None of one element."""
        while target.op is Op.AFTER:
            target = target.src[0]
        return self.vectors.get(target)

    def store(self, u: UOp) -> None:
        target = memory(u.src[0])
        if target in self.registers:
            self.current[target] = self.operand(u.src[1])
        elif len(u.src) == 2:
            self._write(u)
        elif u.src[2].shape != ():
            self._write_masked(u)
        else:
            then, join_ = f"store{self.number}", f"stored{self.number}"
            self.b.branch(self.operand(u.src[2]), then, join_)
            self.b.label(then)
            self._write(u)
            self.b.jump(join_)
            self.b.label(join_)

    def _write(self, u: UOp) -> None:
        target, value = u.src[0], u.src[1]
        place, d = self._places(target), value.dtype
        if place is None:
            self._put(target, d, self.operand(value))
            return
        x, t = self._stored(value), storage_type(d)
        if place.contiguous is not None:
            self.b.do(f"store {wide(t, lanes_of(value))} {x}, ptr {place.contiguous}, align {d.itemsize}")
            return
        self._write_lanes(t, place.lanes, d, x)

    def _write_lanes(self, t: str, lanes: list[str], d: DType, x: str) -> None:
        for k, a in enumerate(lanes):
            lane = self.b.emit(f"extractelement {wide(t, len(lanes))} {x}, i64 {k}")
            self.b.do(f"store {t} {lane}, ptr {a}, align {d.itemsize}")

    def _write_masked(self, u: UOp) -> None:
        value, gate, place = u.src[1], self.operand(u.src[2]), self._places(u.src[0])
        d, w, align = value.dtype, lanes_of(value), str(value.dtype.itemsize)
        t, x = wide(storage_type(d), w), self._stored(value)
        if place is None:
            raise Unsupported("a Store of one element under a vector gate", "llvm")
        if place.contiguous is not None:
            self.b.masked("store", "void", t, (t, x), ("ptr", place.contiguous), ("i32", align), (like(t, "i1"), gate))
        elif d.itemsize < GATHERED:
            self._write_lanes(storage_type(d), self._spared(place.lanes, gate), d, x)
        else:
            ptrs = self.b.gathered("ptr", place.lanes)
            self.b.masked("scatter", "void", t, (t, x), (like(t, "ptr"), ptrs), ("i32", align), (like(t, "i1"), gate))

    def _stored(self, u: UOp) -> str:
        """A value as memory holds it."""
        x = self.operand(u)
        return self.b.emit(f"zext {type_of(u)} {x} to {wide('i8', lanes_of(u))}") if u.dtype is dt.bool_ else x

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
        first, bound = ("0", self.operand(u.src[0])) if u is not self.shared else (self._bound("%begin", t), self._bound("%end", t))
        before = self.b.block
        if value_type(u.src[0].dtype) != t:
            raise Crash(f"{u!r} has a bound of dtype {u.src[0].dtype}")
        self.b.jump(f"loop{n}")
        self.b.label(f"loop{n}")
        self.operands[u] = f"%i{n}"
        self.b.do(f"%i{n} = phi {t} [ {first}, %{before} ], [ %i{n}.next, %next{n} ]")
        holes = {}
        for k, r in enumerate(self.changes.get(u, ())):
            name, kind = f"%a{n}.{k}", wide(value_type(r.dtype), r.arg.size)
            holes[r] = len(self.b.lines)
            self.b.do(f"{name} = phi {kind} [ {self.current[r]}, %{before} ], [ ")
            self.current[r] = name
        self.b.do(f"%i{n}.in = icmp slt {t} %i{n}, {bound}")
        if u.src[0].op is Op.CONST and 0 < u.src[0].arg.value < _MOST_TIMES:
            self.b.repeat(f"%i{n}.in", f"body{n}", f"done{n}", int(u.src[0].arg.value))
        else:
            self.b.branch(f"%i{n}.in", f"body{n}", f"done{n}")
        self.open.append(_Open(u, n, {r: self.current[r] for r in holes}, f"loop{n}", holes))
        self.b.label(f"body{n}")

    def _bound(self, x: str, t: str) -> str:
        """Where the iterations of a part begin or end, which the loop's type holds."""
        return x if t == "i64" else self.b.emit(f"trunc i64 {x} to {t}")

    def end(self, u: UOp) -> None:
        """Close the ranges of an End, innermost first. After the loop a register holds what it held when the test failed."""
        left = set(u.src[1:])
        while left:
            inner, n, before, _, holes = self._close(left)
            left.discard(inner)
            self.b.jump(f"next{n}")
            self.b.label(f"next{n}")
            self.b.do(f"%i{n}.next = add {value_type(inner.dtype)} %i{n}, 1")
            self.b.jump(f"loop{n}")
            self.b.label(f"done{n}")
            for r, line in holes.items():
                self.b.lines[line] += f"{self.current[r]}, %next{n} ]"
            self.current.update(before)

    def _close(self, expected: Iterable[UOp]) -> _Open:
        if not self.open or self.open[-1].node not in expected:
            raise Crash(f"instruction {self.number} closes {list(expected)!r}, but not the innermost open Range or If")
        return self.open.pop()

    def if_(self, u: UOp) -> None:
        before = {r: self.current[r] for r in self.changes.get(u, ())}
        self.open.append(_Open(u, self.number, before, self.b.block, {}))
        self.b.branch(self.operand(u.src[0]), f"then{self.number}", f"endif{self.number}")
        self.b.label(f"then{self.number}")

    def endif(self, u: UOp) -> None:
        opened, last = self._close(u.src[:1]), self.b.block
        self.b.jump(f"endif{opened.number}")
        self.b.label(f"endif{opened.number}")
        for r, old in opened.before.items():
            kind = wide(value_type(r.dtype), r.arg.size)
            self.current[r] = self.b.emit(f"phi {kind} [ {self.current[r]}, %{last} ], [ {old}, %{opened.block} ]")


def _whole(tables: str, extent: int) -> list[str]:
    """The kernel, of a part."""
    call = f"  call void @{PART}({tables}, i64 0, i64 {extent})"
    return [f"define void @{ENTRY}({tables}) #0 {{", call, "  ret void", "}", ""]


def _zero(d: DType) -> str:
    return literal(0.0 if d.is_float else 0, d)


STATEMENT: dict[Op, Callable[[_Kernel, UOp], None]] = {
    Op.CONST: _Kernel.nothing,
    Op.STACK: _Kernel.stack,
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
