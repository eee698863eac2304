"""A LINEAR kernel as text of a C language.

Takes: LINEAR over SELECTED ops, and a `Language`. Gives: the lines of a function body with the helpers it needs; the backends put
their own heads around them. Every value is a constant of its own, so that no expression nests and nothing depends on an order of
evaluation; a vector value is one constant per lane.

Ranges and Specials named in `placed` are given by the launch instead of by loops: `placed` has the expression of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.backends.cstyle import helpers
from uops.backends.cstyle.alu import EMIT, arithmetic
from uops.backends.cstyle.language import TYPEDEFS, Language, literal
from uops.compiler.target import STACK_LIMIT
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: An AtomicAdd of work-items that run at the same time: (where helpers are asked for, dtype, pointer, value, space) -> a statement.
Atomic = Callable[["Writer", DType, str, str, str], str]


@dataclass(frozen=True, slots=True)
class Place:
    """A reference: memory that starts at the pointer `base`, of elements of `dtype`; `index` has the element of each lane, and is
    None for the memory as a whole."""

    base: str
    dtype: DType
    space: AddrSpace
    index: tuple[str, ...] | None = None

    def element(self, lane: int) -> str:
        return f"{self.base}[{lane if self.index is None else self.index[lane]}]"


class Writer:
    """Lines of a function, and the helpers that they use."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.lines: list[str] = []
        self.depth = 1
        self._helpers: dict[str, str] = {}

    def do(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def open(self, line: str) -> None:
        self.do(line + " {")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.do("}")

    def helper(self, kind: str, *dtypes: DType) -> str:
        """The name of a helper."""
        name = helpers.name(kind, dtypes)
        if name not in self._helpers:
            self._helpers[name] = helpers.text(kind, dtypes, self.language)
        return name

    def define(self, name: str, text: str) -> str:
        """Have a function of the backend's own before the kernel; gives its name."""
        self._helpers.setdefault(name, text)
        return name

    def preamble(self) -> list[str]:
        """What stands before the kernel: pragmas, types, functions."""
        used = "\n".join((*self.lines, *self._helpers.values()))
        prototypes = [text for name, text in self.language.prototypes.items() if f"{name}(" in used]
        types = [*TYPEDEFS, f"typedef {self.language.bool_type} b1;"]
        return [*self.language.pragmas, *types, *prototypes, "", *self._helpers.values()]


class Kernel:
    """The state of one rendering: the lanes of every value, the place of every reference, what is open."""

    def __init__(
        self, linear: UOp, language: Language, placed: Mapping[UOp, str] | None = None, atomic: Atomic | None = None
    ) -> None:
        if linear.op is not Op.LINEAR:
            raise Crash(f"the {language.name} renderer takes a Linear, got {linear!r}")
        self.instructions = linear.src
        self.language = language
        self.w = Writer(language)
        self.placed = placed or {}
        self.atomic = atomic
        self.values: dict[UOp, tuple[str, ...]] = {}
        self.places: dict[UOp, Place] = {}
        self.arguments: dict[str, str] = {}
        self.open: list[UOp] = []
        self.number = 0

    def params(self) -> list[UOp]:
        """The arguments, in slot order; several Params may name one slot."""
        return sorted((u for u in self.instructions if u.op is Op.PARAM), key=lambda u: int(u.arg.slot))

    def body(self) -> list[str]:
        """Render every instruction; gives the lines."""
        self._arguments()
        self._buffers()
        for k, u in enumerate(self.instructions):
            self.number = k
            if u not in self.values and u not in self.places:
                self._statement(u)
        if self.open:
            raise Crash(f"{self.open[-1]!r} is never closed")
        return self.w.lines

    # What stands before all instructions.

    def _arguments(self) -> None:
        """Buffers as pointers `p<slot>`, variables as i64 `s<slot>`, each read once however many Params name the slot."""
        for u in self.params():
            slot, d = u.arg.slot, u.dtype
            if u.arg.name is None:
                pointer = f"{self.language.space(AddrSpace.GLOBAL)}{self.language.stored(d)} *"
                same = self._once(f"p{slot}", f"{pointer}const p{slot} = ({pointer}){self.language.buffer.format(slot)};")
                self.places[u] = Place(f"p{slot}" if same else f"(({pointer})p{slot})", d, AddrSpace.GLOBAL)
            else:  # its dtype was proved to hold every value within its bounds (R08)
                t = self.language.type(d)
                self._once(f"s{slot}", f"const i64 s{slot} = {self.language.scalar.format(slot)};")
                self.values[u] = (f"s{slot}" if t == "i64" else f"({t})s{slot}",)

    def _once(self, name: str, line: str) -> bool:
        """Write a declaration unless there is one of that name; gives whether that is the same."""
        if name not in self.arguments:
            self.arguments[name] = line
            self.w.do(line)
        return self.arguments[name] == line

    def _buffers(self) -> None:
        """LOCAL and REG buffers. Reading what was never written is a Trap in the language (R61), but it may not become undefined
        behaviour here: a private buffer starts as zeros. Memory of a workgroup has no initial value, and is no variable of which
        a compiler could know that it has none."""
        total = 0
        for u in self.instructions:
            if u.op is not Op.BUFFER:
                continue
            space, size, name = u.arg.addrspace, u.arg.size, f"r{len(self.places)}"
            if space is AddrSpace.GLOBAL:
                raise Crash(f"{u!r}: a GLOBAL buffer reaches a kernel as a Param")
            total += size * u.dtype.itemsize
            if total > STACK_LIMIT:
                raise CompileError(f"private and local buffers take more than {STACK_LIMIT} bytes of stack")
            qualifier = self.language.space(space)
            zeros = "" if qualifier else " = {0}"
            self.w.do(f"{qualifier}{self.language.stored(u.dtype)} {name}[{max(1, size)}]{zeros};")
            self.places[u] = Place(name, u.dtype, space)

    # One statement per instruction.

    def _statement(self, u: UOp) -> None:
        if u.op in EMIT and u.src[0] not in self.places:
            self._compute(u)
        elif u.op in STATEMENT:
            STATEMENT[u.op](self, u)
        else:
            raise Unsupported(u.op.name, self.language.name)

    def _compute(self, u: UOp) -> None:
        """An elementwise op, lane by lane."""
        if u.op is Op.BITCAST and u.dtype.bits != u.src[0].dtype.bits:
            raise Unsupported(f"{u.op.name} of {u.src[0].dtype} to {u.dtype} in a kernel", self.language.name)
        columns = [self.lanes(s) for s in u.src]
        if u.dtype.is_float and all(s.op is Op.CONST for s in u.src):
            # TinyCC folds constants in long double and then rounds again: an operand in a variable is not folded.
            columns[0] = self._bind(u.src[0].dtype, f"c{self.number}", columns[0])
        n = self._count(u)
        made = [EMIT[u.op](self.w, u, *(c[k % len(c)] for c in columns)) for k in range(n)]
        self.values[u] = self._bind(u.dtype, f"v{self.number}", made)

    def _bind(self, d: DType, name: str, expressions: Sequence[str]) -> tuple[str, ...]:
        """One constant per lane; gives their names."""
        names = (name,) if len(expressions) == 1 else tuple(f"{name}_{k}" for k in range(len(expressions)))
        for n, e in zip(names, expressions, strict=True):
            self.w.do(f"const {self.language.type(d)} {n} = {e};")
        return names

    def _count(self, u: UOp) -> int:
        """The number of lanes of a value."""
        if not all(isinstance(n, int) for n in u.shape):
            raise Unsupported(f"{u.op.name} of shape {u.shape} in a kernel", self.language.name)
        return math.prod(int(n) for n in u.shape if isinstance(n, int))

    def lanes(self, u: UOp) -> tuple[str, ...]:
        """How an instruction names the value `u`: one operand per lane."""
        found = self.values.get(u)
        if found is not None:
            return found
        if u.op is Op.CONST:
            return (literal(u.arg.value, u.dtype, self.w),)
        if u.op is Op.STACK:
            return tuple(x for s in u.src for x in self.lanes(s))
        raise Crash(f"{u!r} is used before it is computed")

    def operand(self, u: UOp) -> str:
        """The one lane of a scalar."""
        found = self.lanes(u)
        if len(found) != 1:
            raise Unsupported(f"a {u.op.name} of shape {u.shape} in the place of a scalar", self.language.name)
        return found[0]

    def place(self, u: UOp) -> Place:
        if u not in self.places:
            raise Crash(f"{u!r} is no reference that this kernel has computed")
        return self.places[u]

    def nothing(self, u: UOp) -> None:
        """Consts and Stacks stand where they are used; Group and Sink have no code."""

    def same(self, u: UOp) -> None:
        """After: its first source under another node."""
        source = u.src[0]
        if source in self.places:
            self.places[u] = self.places[source]
        elif u.dtype is not dt.void:
            self.values[u] = self.lanes(source)

    def viewed(self, u: UOp) -> None:
        """A Bitcast of a reference: the same memory as elements of another dtype, which a C compiler must be told."""
        at = self.place(u.src[0])
        base = at.base if at.index is None else f"&{at.element(0)}"
        if at.index is not None and len(at.index) != 1:
            raise Unsupported("BITCAST of a vector of addresses", self.language.name)
        t = self.language.stored(u.dtype)
        any_ = self.w.define(f"{t}_any", f"typedef {t} __attribute__((may_alias)) {t}_any;\n")
        pointer = f"(({self.language.space(at.space)}{any_} *)({base}))"
        self.places[u] = replace(at, base=pointer, dtype=u.dtype, index=None if at.index is None else ("0",))

    def index(self, u: UOp) -> None:
        """The place of one element, or of one per lane; of a value, some of its lanes."""
        if u.src[0] not in self.places:
            self.values[u] = self._picked(u)
            return
        at = self.place(u.src[0])
        if len(u.src) != 2 or at.index is not None:
            raise Unsupported(f"Index with {len(u.src) - 1} operands in a kernel", self.language.name)
        self.places[u] = replace(at, index=self.lanes(u.src[1]))

    def _picked(self, u: UOp) -> tuple[str, ...]:
        """Lanes of a vector value at constant positions: the indices are outer, in row-major order (R45)."""
        source, chosen = u.src[0], [_constants(i) for i in u.src[1:]]
        shape = [int(n) for n in source.shape if isinstance(n, int)]
        if any(c is None for c in chosen) or len(shape) != len(source.shape):
            raise Unsupported("INDEX of a value at a place that is not constant", self.language.name)
        axes = [c or [] for c in chosen] + [list(range(n)) for n in shape[len(chosen) :]]
        lanes = self.lanes(source)
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        return tuple(lanes[sum(i * s for i, s in zip(at, strides))] for at in itertools.product(*axes))

    # Memory.

    def load(self, u: UOp) -> None:
        """Read; with a gate the address is touched only where it holds (R52)."""
        at, d = self.place(u.src[0]), u.dtype
        read = [f"{at.element(k)} != 0" if d is dt.bool_ else at.element(k) for k in range(self._count(u))]
        if len(u.src) > 1:
            alt, gate = self.lanes(u.src[1]), self.lanes(u.src[2])
            read = [f"{gate[k % len(gate)]} ? {x} : {alt[k % len(alt)]}" for k, x in enumerate(read)]
        self.values[u] = self._bind(d, f"v{self.number}", read)

    def store(self, u: UOp) -> None:
        at, values = self.place(u.src[0]), self.lanes(u.src[1])
        gate = self.lanes(u.src[2]) if len(u.src) > 2 else ()
        for k in range(self._count(u.src[1]) if at.index is None else len(at.index)):
            guard = f"if ({gate[k % len(gate)]}) " if gate else ""
            self.w.do(f"{guard}{at.element(k)} = {values[k % len(values)]};")

    def atomic_add(self, u: UOp) -> None:
        """Where one work-item runs a kernel, a plain read, add and write is the atomic sum (R56)."""
        at, values = self.place(u.src[0]), self.lanes(u.src[1])
        for k in range(self._count(u.src[1]) if at.index is None else len(at.index)):
            x, y = at.element(k), values[k % len(values)]
            if self.placed and self.atomic is not None and at.space is not AddrSpace.REG:
                self.w.do(self.atomic(self.w, u.src[1].dtype, f"&{x}", y, self.language.space(at.space)))
            else:
                self.w.do(f"{x} = {arithmetic(self.w, Op.ADD, u.src[1].dtype, x, y)};")

    # Control.

    def range(self, u: UOp) -> None:
        """Open a loop that tests first, so that a bound <= 0 runs zero times (R57)."""
        name, t = f"k{self.number}", self.language.type(u.dtype)  # i8 and i16 are types
        self.values[u] = (name,)
        if u in self.placed:
            self.w.do(f"const {t} {name} = {self.placed[u]};")
            return
        if self.language.type(u.src[0].dtype) != t:
            raise Crash(f"{u!r} has a bound of dtype {u.src[0].dtype}")
        self.w.open(f"for ({t} {name} = 0; {name} < {self.operand(u.src[0])}; {name}++)")
        self.open.append(u)

    def special(self, u: UOp) -> None:
        """An index of the launch."""
        if u not in self.placed:
            raise Unsupported(u.op.name, self.language.name)
        self.values[u] = self._bind(u.dtype, f"k{self.number}", (self.placed[u],))

    def end(self, u: UOp) -> None:
        """Close the ranges of an End, innermost first."""
        left = {r for r in u.src[1:] if r not in self.placed}
        while left:
            left.discard(self._close(left))

    def _close(self, expected: Iterable[UOp]) -> UOp:
        if not self.open or self.open[-1] not in expected:
            raise Crash(f"instruction {self.number} closes {list(expected)!r}, but not the innermost open Range or If")
        self.w.close()
        return self.open.pop()

    def if_(self, u: UOp) -> None:
        self.w.open(f"if ({self.operand(u.src[0])})")
        self.open.append(u)

    def endif(self, u: UOp) -> None:
        self._close(u.src[:1])

    def barrier(self, u: UOp) -> None:
        if self.language.barrier is None:
            raise Unsupported(u.op.name, self.language.name)
        self.w.do(self.language.barrier)


def _constants(u: UOp) -> list[int] | None:
    """The values of a constant index, scalar or vector."""
    parts = u.src if u.op is Op.STACK else (u,)
    return [int(s.arg.value) for s in parts] if all(s.op is Op.CONST for s in parts) else None


STATEMENT: dict[Op, Callable[[Kernel, UOp], None]] = {
    Op.CONST: Kernel.nothing,
    Op.STACK: Kernel.nothing,
    Op.GROUP: Kernel.nothing,
    Op.SINK: Kernel.nothing,
    Op.AFTER: Kernel.same,
    Op.BITCAST: Kernel.viewed,
    Op.INDEX: Kernel.index,
    Op.LOAD: Kernel.load,
    Op.STORE: Kernel.store,
    Op.ATOMICADD: Kernel.atomic_add,
    Op.RANGE: Kernel.range,
    Op.END: Kernel.end,
    Op.IF: Kernel.if_,
    Op.ENDIF: Kernel.endif,
    Op.SPECIAL: Kernel.special,
    Op.BARRIER: Kernel.barrier,
}

#: Ops of the family; a language without workgroups lacks `WORKGROUP`.
WORKGROUP = frozenset({Op.SPECIAL, Op.BARRIER})
OPS = frozenset({Op.LINEAR, Op.PARAM, Op.BUFFER, *EMIT, *STATEMENT})
