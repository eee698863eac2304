"""LINEAR kernels as text of a C language.

Takes: LINEAR over SELECTED ops, and a `Language`. Gives: the lines of a function body with the helpers it needs; the backends add
their own heads. Every value is a constant of its own, so no expression nests and nothing depends on an order of evaluation. A
vector value is one constant per lane.

`launch_indices` has the expressions of Ranges and Specials that the launch provides instead of loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.backends.cstyle import helpers
from uops.backends.cstyle.alu import EMIT, render_wrapping_arithmetic
from uops.backends.cstyle.language import TYPEDEFS, Language, render_literal
from uops.compiler.decompose import SMALL
from uops.compiler.ir.loops import find_parallelizable_outer_thread_loop
from uops.compiler.native import find_template_of_ins_or_custom, render_template
from uops.compiler.target import STACK_LIMIT
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op

#: An AtomicAdd of parallel work-items: (writer, dtype, pointer, value, space) -> a statement.
Atomic = Callable[["CWriter", DType, str, str, str], str]


#: Iterations of a loop that a hint unrolls, and bytes of REG memory from which a kernel has a tile of sums.
UNROLLED, TILE = 4, 64
#: Alignment of LOCAL buffers in a pool, and the smallest word that can be exchanged, in bytes.
_ALIGNMENT, _WORD = 16, 4


@dataclass(frozen=True, slots=True)
class CMemoryRef:
    """A reference: memory at the pointer `base`, with elements of `dtype`.

    `index` has the element of each lane; None stands for the memory as a whole.
    """

    base: str
    dtype: DType
    space: AddrSpace
    index: tuple[str, ...] | None = None

    def element(self, lane: int) -> str:
        """Return the expression of the element of a lane."""
        return f"{self.base}[{lane if self.index is None else self.index[lane]}]"


class CWriter:
    """The lines of a function, and the helpers that they use."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.lines: list[str] = []
        self.depth = 1
        self._helpers: dict[str, str] = {}

    def write_line(self, line: str) -> None:
        """Append a line at the current depth."""
        self.lines.append("  " * self.depth + line)

    def open_block(self, line: str) -> None:
        """Append a line that opens a block."""
        self.write_line(line + " {")
        self.depth += 1

    def close_block(self) -> None:
        """Close the innermost block."""
        self.depth -= 1
        self.write_line("}")

    def require_helper(self, kind: str, *dtypes: DType) -> str:
        """Have a helper defined before the kernel; return its name."""
        name = helpers.helper_name(kind, dtypes)
        if name not in self._helpers:
            self._helpers[name] = helpers.render_helper(kind, dtypes, self.language)
        return name

    def define_function(self, name: str, text: str) -> str:
        """Define a function of the backend's own before the kernel; return its name."""
        self._helpers.setdefault(name, text)
        return name

    def render_preamble(self) -> list[str]:
        """Return the lines before the kernel: pragmas, types, functions."""
        used = "\n".join((*self.lines, *self._helpers.values()))
        prototypes = [text for name, text in self.language.prototypes.items() if f"{name}(" in used]
        types = [*TYPEDEFS, f"typedef {self.language.bool_type} b1;"]
        return [*self.language.pragmas, *types, *prototypes, "", *self._helpers.values()]


class CKernelRenderer:
    """The state of one rendering: the lanes of every value, the memory of every reference, and the open blocks."""

    def __init__(
        self, linear: UOp, language: Language, launch_indices: Mapping[UOp, str] | None = None, atomic: Atomic | None = None
    ) -> None:
        if linear.op is not Op.LINEAR:
            raise Crash(f"the {language.name} renderer takes a Linear, got {linear!r}")
        self.instructions = linear.instructions
        self.language = language
        self.w = CWriter(language)
        self.launch_indices = launch_indices or {}
        self.atomic = atomic
        self.values: dict[UOp, tuple[str, ...]] = {}
        self.memory_refs: dict[UOp, CMemoryRef] = {}
        self.arguments: dict[str, str] = {}
        self.open_blocks: list[UOp] = []
        self.innermost_loops = find_innermost_loops(self.instructions)
        self.non_affine_loops = (
            find_loops_with_non_affine_loads(self.instructions) if language.non_affine_loop_hint else frozenset()
        )
        self.thread_loop = find_parallelizable_outer_thread_loop(self.instructions) if language.part_bounds else None
        self.number = 0
        self.local_bytes = self.private_bytes = 0

    def params(self) -> list[UOp]:
        """Return the Params in slot order; several may name one slot."""
        return sorted((u for u in self.instructions if u.op is Op.PARAM), key=lambda u: int(u.arg.slot))

    def render_body(self) -> list[str]:
        """Render every instruction; return the lines."""
        self._declare_locals_for_params()
        self._declare_local_and_reg_buffers()
        for k, u in enumerate(self.instructions):
            self.number = k
            if u not in self.values and u not in self.memory_refs:
                self._render_instruction(u)
        if self.open_blocks:
            raise Crash(f"{self.open_blocks[-1]!r} is never closed")
        return self.w.lines

    # Declarations before all instructions.

    def _declare_locals_for_params(self) -> None:
        """Declare buffers as pointers `p<slot>` and variables as i64 `s<slot>`, each read once for all Params of the slot."""
        for u in self.params():
            slot, d = u.arg.slot, u.dtype
            if u.arg.name is None:
                pointer = f"{self.language.space_qualifier(AddrSpace.GLOBAL)}{self.language.native_storage_type(d)} *"
                same = self._declare_if_new_and_return_if_consistent(
                    f"p{slot}", f"{pointer}const p{slot} = ({pointer}){self.language.buffer.format(slot)};"
                )
                self.memory_refs[u] = CMemoryRef(f"p{slot}" if same else f"(({pointer})p{slot})", d, AddrSpace.GLOBAL)
            else:  # its dtype holds every value within its bounds (R08)
                t = self.language.native_value_type(d)
                self._declare_if_new_and_return_if_consistent(
                    f"s{slot}", f"const i64 s{slot} = {self.language.scalar.format(slot)};"
                )
                self.values[u] = (f"s{slot}" if t == "i64" else f"({t})s{slot}",)

    def _declare_if_new_and_return_if_consistent(self, name: str, declaration: str) -> bool:
        """Write a declaration unless the name has one; return True if the one it has is the same."""
        if name not in self.arguments:
            self.arguments[name] = declaration
            self.w.write_line(declaration)
        return self.arguments[name] == declaration

    def _declare_local_and_reg_buffers(self) -> None:
        """Declare LOCAL and REG buffers.

        Reading an element before it is written is a Trap in the language (R61), but must not become undefined behaviour here, so
        a private buffer starts as zeros. Memory of a workgroup has no initial value. It is no variable that a compiler could
        know to be uninitialised.
        """
        private_bytes = local_bytes = 0
        has_atomics = self.atomic is not None and any(u.op is Op.ATOMICADD for u in self.instructions)
        pool = self.language.workgroups and self.language.workgroups.local_pool
        least_bytes = self.language.least_private_bytes if any(u.op is Op.BARRIER for u in self.instructions) else 0
        for u in self.instructions:
            if u.op is not Op.BUFFER:
                continue
            space, size, name = u.arg.addrspace, u.arg.size, f"r{len(self.memory_refs)}"
            if space is AddrSpace.GLOBAL:
                raise Crash(f"{u!r}: a GLOBAL buffer reaches a kernel as a Param")
            bytes_ = size * u.dtype.itemsize
            if space is AddrSpace.LOCAL:
                start = local_bytes
                local_bytes += -(-bytes_ // _ALIGNMENT) * _ALIGNMENT
            else:
                private_bytes += bytes_
            if private_bytes + local_bytes > STACK_LIMIT:
                raise CompileError(f"private and local buffers take more than {STACK_LIMIT} bytes of stack")
            qualifier, t = self.language.space_qualifier(space), self.language.native_storage_type(u.dtype)
            if pool and space is AddrSpace.LOCAL:
                self.w.write_line(f"{qualifier}{t} *const {name} = ({qualifier}{t} *)({pool} + {start});")
            else:
                zeros, least = ("", 1) if qualifier else (" = {0}", least_bytes // u.dtype.itemsize)
                if has_atomics and space is AddrSpace.LOCAL and u.dtype.itemsize < _WORD:  # words are exchanged (`atomic`)
                    zeros, least = f" __attribute__((aligned({_WORD})))", -(-bytes_ // _WORD) * _WORD // u.dtype.itemsize
                self.w.write_line(f"{qualifier}{t} {name}[{max(1, least, size)}]{zeros};")
            self.memory_refs[u] = CMemoryRef(name, u.dtype, space)
        self.local_bytes, self.private_bytes = local_bytes, private_bytes

    # One statement per instruction.

    def _render_instruction(self, u: UOp) -> None:
        if u.op in EMIT and u.src[0] not in self.memory_refs:  # operand: a Bitcast of memory is a statement
            self._render_elementwise(u)
        elif u.op in STATEMENT:
            getattr(self, STATEMENT[u.op].__name__)(u)  # a language may override it
        else:
            self.render_language_specific_op(u)

    def render_language_specific_op(self, u: UOp) -> None:
        """Render an op that only some languages of the family have. Raises Unsupported."""
        raise Unsupported(u.op.name, self.language.name)

    def _render_elementwise(self, u: UOp) -> None:
        """Render an elementwise op, lane by lane."""
        if u.op is Op.BITCAST and (u.dtype in SMALL or u.operand.dtype in SMALL):  # of an op that takes or gives the bits
            self.values[u] = self.operand_text_by_lane(u.operand)
            return
        if u.op is Op.BITCAST and u.dtype.bits != u.operand.dtype.bits:
            raise Unsupported(f"{u.op.name} of {u.operand.dtype} to {u.dtype} in a kernel", self.language.name)
        columns = [self.operand_text_by_lane(s) for s in u.src]
        if u.dtype.is_float and all(s.op is Op.CONST for s in u.src):
            # TinyCC folds constants in long double and then rounds again: an operand in a variable is not folded. nvrtc's folding
            # takes 0.0 / 0.0 for a number that is equal to itself (N03).
            first, *_ = u.src  # of any op
            opaque = self.language.opaque_functions.get(first.dtype)
            kept = columns[0] if opaque is None else [f"{self.w.define_function(*opaque)}({c})" for c in columns[0]]
            columns[0] = self._declare_lane_constants(first.dtype, f"c{self.number}", kept)
        n = self._lane_count(u)
        expressions = [EMIT[u.op](self.w, u, *(c[k % len(c)] for c in columns)) for k in range(n)]
        self.values[u] = self._declare_lane_constants(u.dtype, f"v{self.number}", expressions)

    def _declare_lane_constants(self, d: DType, name: str, expressions: Sequence[str]) -> tuple[str, ...]:
        """Declare one constant per lane; return their names."""
        names = (name,) if len(expressions) == 1 else tuple(f"{name}_{k}" for k in range(len(expressions)))
        for n, e in zip(names, expressions, strict=True):
            self.w.write_line(f"const {self.language.native_value_type(d)} {n} = {e};")
        return names

    def _lane_count(self, u: UOp) -> int:
        """Return the number of lanes of a value. Raises Unsupported."""
        if not all(isinstance(n, int) for n in u.shape):
            raise Unsupported(f"{u.op.name} of shape {u.shape} in a kernel", self.language.name)
        return math.prod(int(n) for n in u.shape if isinstance(n, int))

    def operand_text_by_lane(self, u: UOp) -> tuple[str, ...]:
        """Return the operand of each lane of the value `u`."""
        operands = self.values.get(u)
        if operands is not None:
            return operands
        if u.op is Op.CONST:
            return (render_literal(u.arg.value, u.dtype, self.w),)
        if u.op is Op.STACK:
            return tuple(x for s in u.src for x in self.operand_text_by_lane(s))
        raise Crash(f"{u!r} is used before it is computed")

    def scalar_operand(self, u: UOp) -> str:
        """Return the operand of a scalar. Raises Unsupported."""
        lanes = self.operand_text_by_lane(u)
        if len(lanes) != 1:
            raise Unsupported(f"a {u.op.name} of shape {u.shape} instead of a scalar", self.language.name)
        return lanes[0]

    def require_computed_memory_ref(self, u: UOp) -> CMemoryRef:
        """Return the memory of a reference."""
        if u not in self.memory_refs:
            raise Crash(f"{u!r} is no reference that this kernel has computed")
        return self.memory_refs[u]

    def skip(self, u: UOp) -> None:
        """Render nothing: Consts and Stacks are written at their uses, and Group and Sink have no code."""

    def alias_after_to_buffer(self, u: UOp) -> None:
        """Name an After by its buffer."""
        source = u.buffer
        if source in self.memory_refs:
            self.memory_refs[u] = self.memory_refs[source]
        elif u.dtype is not dt.void:
            self.values[u] = self.operand_text_by_lane(source)

    def record_memory_reinterpreted_by_bitcast(self, u: UOp) -> None:
        """Render a Bitcast of a reference: the same memory with elements of another dtype, in a type that may alias."""
        at = self.require_computed_memory_ref(u.operand)
        base = at.base if at.index is None else f"&{at.element(0)}"
        if at.index is not None and len(at.index) != 1:
            raise Unsupported("BITCAST of a vector of addresses", self.language.name)
        t = self.language.native_storage_type(u.dtype)
        any_ = self.w.define_function(f"{t}_any", f"typedef {t} __attribute__((may_alias)) {t}_any;\n")
        pointer = f"(({self.language.space_qualifier(at.space)}{any_} *)({base}))"
        self.memory_refs[u] = replace(at, base=pointer, dtype=u.dtype, index=None if at.index is None else ("0",))

    def record_index_or_select_lanes(self, u: UOp) -> None:
        """Name one element, or one per lane; of a value, some of its lanes."""
        if u.operand not in self.memory_refs:
            self.values[u] = self._select_lanes_at_constant_positions(u)
            return
        at = self.require_computed_memory_ref(u.operand)
        if len(u.positions) != 1 or at.index is not None:
            raise Unsupported(f"Index with {len(u.positions)} operands in a kernel", self.language.name)
        (position,) = u.positions
        self.memory_refs[u] = replace(at, index=self.operand_text_by_lane(position))

    def _select_lanes_at_constant_positions(self, u: UOp) -> tuple[str, ...]:
        """Return the lanes of a vector value at constant positions; several indices are outer, in row-major order (R45)."""
        source, chosen = u.operand, [_constant_indices(i) for i in u.positions]
        shape = [int(n) for n in source.shape if isinstance(n, int)]
        if any(c is None for c in chosen) or len(shape) != len(source.shape):
            raise Unsupported("INDEX of a value at a position that is not constant", self.language.name)
        axes = [c or [] for c in chosen] + [list(range(n)) for n in shape[len(chosen) :]]
        lanes = self.operand_text_by_lane(source)
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        return tuple(lanes[sum(i * s for i, s in zip(at, strides))] for at in itertools.product(*axes))

    # Memory.

    def render_load(self, u: UOp) -> None:
        """Render a read; with a gate, the address is touched only if it holds (R52)."""
        at, d = self.require_computed_memory_ref(u.buffer), u.dtype
        elements = [f"{at.element(k)} != 0" if d is dt.bool_ else at.element(k) for k in range(self._lane_count(u))]
        if u.alternative is not None and u.gate is not None:
            alt, gate = self.operand_text_by_lane(u.alternative), self.operand_text_by_lane(u.gate)
            elements = [f"{gate[k % len(gate)]} ? {x} : {alt[k % len(alt)]}" for k, x in enumerate(elements)]
        self.values[u] = self._declare_lane_constants(d, f"v{self.number}", elements)

    def render_store(self, u: UOp) -> None:
        """Render a write, lane by lane, each under its gate."""
        at, values = self.require_computed_memory_ref(u.buffer), self.operand_text_by_lane(u.value)
        gate = () if u.gate is None else self.operand_text_by_lane(u.gate)
        for k in range(self._lane_count(u.value) if at.index is None else len(at.index)):
            guard = f"if ({gate[k % len(gate)]}) " if gate else ""
            self.w.write_line(f"{guard}{at.element(k)} = {values[k % len(values)]};")

    def render_atomic_add(self, u: UOp) -> None:
        """Render an atomic sum; a plain read, add and write if one work-item runs the kernel (R56)."""
        at, values = self.require_computed_memory_ref(u.index), self.operand_text_by_lane(u.value)
        for k in range(self._lane_count(u.value) if at.index is None else len(at.index)):
            x, y = at.element(k), values[k % len(values)]
            if self.launch_indices and self.atomic is not None and at.space is not AddrSpace.REG:
                self.w.write_line(self.atomic(self.w, u.value.dtype, f"&{x}", y, self.language.space_qualifier(at.space)))
            else:
                self.w.write_line(f"{x} = {render_wrapping_arithmetic(self.w, Op.ADD, u.value.dtype, x, y)};")

    # Native text.

    def render_native_text(self, u: UOp) -> None:
        """Render an Ins, Custom or CUSTOMI by its template: a line, or an expression with a value (R168).

        A reference stands for its element, and whole memory for its pointer.
        """
        text = render_template(
            find_template_of_ins_or_custom(self.language.name, u),
            [self._render_operand_as_element_pointer_or_value(s) for s in u.src],
        )
        if u.dtype is dt.void:
            self.w.write_line(text)
        else:
            self.values[u] = self._declare_lane_constants(u.dtype, f"v{self.number}", (text,))

    def _render_operand_as_element_pointer_or_value(self, s: UOp) -> str:
        """Return an operand of native text; an effect, which only has to come first, is empty. Raises Unsupported for a vector."""
        at = self.memory_refs.get(s)
        if at is None:
            return "" if s.dtype is dt.void else self.scalar_operand(s)
        if at.index is not None and len(at.index) != 1:
            raise Unsupported("native text on a vector of addresses", self.language.name)
        return at.base if at.index is None else at.element(0)

    # Control.

    def open_loop_or_bind_launch_index(self, u: UOp) -> None:
        """Open a loop that tests first, so that a bound <= 0 runs zero times (R57)."""
        name, t = f"k{self.number}", self.language.native_value_type(u.dtype)  # i8 and i16 are types
        self.values[u] = (name,)
        if u in self.launch_indices:
            self.w.write_line(f"const {t} {name} = {self.launch_indices[u]};")
            return
        if self.language.native_value_type(u.bound.dtype) != t:
            raise Crash(f"{u!r} has a bound of dtype {u.bound.dtype}")
        if self.language.unroll_hint and self._can_unroll_innermost_evenly_over_tile(u):
            self.w.write_line(self.language.unroll_hint.format(UNROLLED))
        if u in self.non_affine_loops:
            self.w.write_line(self.language.non_affine_loop_hint)
        first, bound = "0", self.scalar_operand(u.bound)
        if u is self.thread_loop and self.language.part_bounds:
            first, bound = (x if t == "i64" else f"({t}){x}" for x in self.language.part_bounds)  # t holds the whole bound
        self.w.open_block(f"for ({t} {name} = {first}; {name} < {bound}; {name}++)")
        self.open_blocks.append(u)

    def _can_unroll_innermost_evenly_over_tile(self, u: UOp) -> bool:
        """Return True for an innermost loop in a kernel with a tile of sums, if no iteration is left over.

        Smaller bodies are unrolled without a hint. With one, nvrtc 13.0 counts wrongly where iterations are left over (N02).
        """
        extent = u.bound.arg.value if u.bound.op is Op.CONST else 0
        return u in self.innermost_loops and self.private_bytes >= TILE and extent > UNROLLED and extent % UNROLLED == 0

    def bind_special_to_launch_index(self, u: UOp) -> None:
        """Name an index of the launch."""
        if u not in self.launch_indices:
            raise Unsupported(u.op.name, self.language.name)
        self.values[u] = self._declare_lane_constants(u.dtype, f"k{self.number}", (self.launch_indices[u],))

    def render_end(self, u: UOp) -> None:
        """Close the ranges of an End, innermost first."""
        left = {r for r in u.ranges if r not in self.launch_indices}
        while left:
            left.discard(self._close_innermost_block(left))

    def _close_innermost_block(self, expected: Iterable[UOp]) -> UOp:
        """Close the innermost block, which must be one of those expected."""
        if not self.open_blocks or self.open_blocks[-1] not in expected:
            raise Crash(f"instruction {self.number} closes {list(expected)!r}, but not the innermost open Range or If")
        self.w.close_block()
        return self.open_blocks.pop()

    def render_if(self, u: UOp) -> None:
        """Open a block under a condition."""
        self.w.open_block(f"if ({self.scalar_operand(u.condition)})")
        self.open_blocks.append(u)

    def render_endif(self, u: UOp) -> None:
        """Close the block of an If."""
        self._close_innermost_block((u.if_node,))

    def render_barrier(self, u: UOp) -> None:
        """Render a Barrier. Raises Unsupported in a language without workgroups."""
        if self.language.workgroups is None:
            raise Unsupported(u.op.name, self.language.name)
        self.w.write_line(self.language.workgroups.barrier)


def find_loops_with_non_affine_loads(instructions: Sequence[UOp]) -> frozenset[UOp]:
    """Return the loops on whose counters the address of a Load depends by an op that is not affine, or in less than 32 bits.

    A cast of a 64-bit counter to 32 bits keeps its value, and counts as affine. An index has no size.
    """
    counters: dict[UOp, frozenset[UOp]] = {}  # node -> the loops on whose counters it depends
    non_affine: dict[UOp, frozenset[UOp]] = {}  # node -> those on which it depends by another op
    for u in instructions:
        if u.op is Op.LOAD:
            continue  # a compiler cannot analyze a position that was loaded
        below = frozenset().union(*(counters.get(s, ()) for s in u.src), (u,) if u.op is Op.RANGE else ())
        is_non_affine = u.op in ALU and u.dtype is not dt.bool_ and (u.op not in _AFFINE or 0 < u.dtype.itemsize < 4)
        counters[u] = below
        non_affine[u] = below if is_non_affine else frozenset().union(*(non_affine.get(s, ()) for s in u.src))
    loads = [u.buffer for u in instructions if u.op is Op.LOAD]
    return frozenset().union(*(non_affine.get(address, ()) for address in loads))


#: Ops that the vectorizers follow correctly.
_AFFINE = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.MULACC, Op.CAST, Op.WHERE, Op.MAX})


def find_innermost_loops(instructions: Sequence[UOp]) -> set[UOp]:
    """Return the Ranges of a list of instructions in which no other one opens."""
    innermost: set[UOp] = set()
    open_: list[UOp] = []
    for u in instructions:
        if u.op is Op.RANGE:
            innermost -= set(open_)
            innermost.add(u)
            open_.append(u)
        elif u.op is Op.END:
            open_ = [r for r in open_ if r not in u.ranges]
    return innermost


def _constant_indices(u: UOp) -> list[int] | None:
    """Return the values of a constant index, scalar or vector; None for any other."""
    parts = u.src if u.op is Op.STACK else (u,)
    return [int(s.arg.value) for s in parts] if all(s.op is Op.CONST for s in parts) else None


STATEMENT: dict[Op, Callable[[CKernelRenderer, UOp], None]] = {
    Op.CONST: CKernelRenderer.skip,
    Op.STACK: CKernelRenderer.skip,
    Op.GROUP: CKernelRenderer.skip,
    Op.SINK: CKernelRenderer.skip,
    Op.AFTER: CKernelRenderer.alias_after_to_buffer,
    Op.BITCAST: CKernelRenderer.record_memory_reinterpreted_by_bitcast,
    Op.INDEX: CKernelRenderer.record_index_or_select_lanes,
    Op.LOAD: CKernelRenderer.render_load,
    Op.STORE: CKernelRenderer.render_store,
    Op.ATOMICADD: CKernelRenderer.render_atomic_add,
    Op.CUSTOM: CKernelRenderer.render_native_text,
    Op.CUSTOMI: CKernelRenderer.render_native_text,
    Op.INS: CKernelRenderer.render_native_text,
    Op.RANGE: CKernelRenderer.open_loop_or_bind_launch_index,
    Op.END: CKernelRenderer.render_end,
    Op.IF: CKernelRenderer.render_if,
    Op.ENDIF: CKernelRenderer.render_endif,
    Op.SPECIAL: CKernelRenderer.bind_special_to_launch_index,
    Op.BARRIER: CKernelRenderer.render_barrier,
}

#: Ops of the family; a language without workgroups lacks `WORKGROUP`.
WORKGROUP = frozenset({Op.SPECIAL, Op.BARRIER})
OPS = frozenset({Op.LINEAR, Op.PARAM, Op.BUFFER, *EMIT, *STATEMENT})
