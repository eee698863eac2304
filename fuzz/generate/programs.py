"""Generators of programs of several statements on memory, and of programs with symbolic shapes.

`generate_statements_on_buffers` makes reads through views, and Stores of a part or the whole, some of values that read the
memory they replace. Every Store comes after all reads of what it overwrites (R51: a use as a value is a Load; R55: unordered
accesses race; R59: After orders), so no order is left open. `generate_program_with_kernel_calls` adds Calls of kernels written by
hand. These write Buffers or views of them, and read memory, views, values, constants and Params. A variable of a kernel is bound
to a variable, a number or an expression. Memory that a Call writes is passed to it once, or by the same reference (R166).
`generate_symbolic_shape_graph` applies ops, from inputs to
outputs, to values whose extents are variables (R48: symbolic sizes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uops.backends.testing.values import Array, draw_array
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.kernels.written_by_hand import draw_kernel_call_on_placeholders
from uops.fuzz.generate.maker import GraphMaker
from uops.fuzz.generate.positions import make_sums_into_segments
from uops.fuzz.generate.producers import FEATURES, LEAVES, PRODUCERS
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import LoadArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import strip_afters
from uops.spec.ir.sizes import divides

#: Features of the values of statements. Memory and bodies are left to the statements.
_VALUES = FEATURES - {"assign", "call", "group", "shards", "everywhere", "sink", "buffer", "slice"}
#: Dtypes of Buffers.
_DTYPES = (dt.float32, dt.int32, dt.uint8, dt.float16, dt.int64, dt.bool_, dt.bfloat16, dt.float64)
#: Ops that `draw_view` puts around a part of a Buffer.
_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})


@dataclass
class MemoryState:
    """A Buffer under construction. `current` is the reference after all Stores so far; `reads` are the values read from it
    since. `part_ends` has the first and last elements of the parts used so far.
    """

    current: UOp
    dtype: DType
    size: int
    reads: list[UOp] = field(default_factory=list)
    part_ends: list[int] = field(default_factory=list)


class ProgramMaker:
    """A program under construction, one statement after the other."""

    def __init__(self, draw: ChoiceSource, max_elements: int, declared: SupportedOpDtypes = EVERYTHING) -> None:
        producers = tuple(p for p in PRODUCERS if p.name in _VALUES and (p.always or draw.chance(60)))
        self.draw = draw
        self.maker = GraphMaker(draw, max_elements, _DTYPES, producers, LEAVES, declared=declared)
        self.memories = [self._make_memory_state_with_data(max_elements) for _ in range(draw.integer(1, 3))]
        self.values: list[UOp] = []
        self.sums_segments = declared.supports_ops((Op.REDUCE, Op.WHERE, Op.CMPEQ, Op.ADD, Op.SUB))
        self.pairwise_producers = declared.filter_producers(tuple(p for p in PRODUCERS if p.name == "crossed"))

    def _make_memory_state_with_data(self, max_extent: int) -> MemoryState:
        d, size = self.draw.choice(self.maker.dtypes), self.maker.draw_extent(max_extent) * self.draw.integer(1, 3)
        unique = 1000 + self.maker.take_slot()
        self.maker.inputs[f"b{unique}"] = draw_array(self.draw, d, (size,), self.draw.choice(("small", "small", "edge")))
        return MemoryState(b.buffer(size, d, unique=unique), d, size)

    def draw_view(self, memory: MemoryState) -> UOp:
        """Draw a reference to a Buffer or a part of it, sometimes as another dtype."""
        view = memory.current
        fitting = (d for d in self.maker.dtypes if d is not memory.dtype and memory.size * memory.dtype.itemsize % d.itemsize == 0)
        other_dtypes = [d for d in fitting if d is not dt.bool_]
        if other_dtypes and memory.dtype is not dt.bool_ and self.draw.chance(15):
            view = b.bitcast(view, self.draw.choice(other_dtypes))
        size = view.shape[0]
        if size > 1 and self.draw.chance(40):
            start, count = self._draw_part_sharing_ends_with_others(memory.part_ends, size)
            view = b.shrink(view, [start], [count])
        rows = [k for k in (2, 3, 4) if view.shape[0] % k == 0]
        if rows and self.draw.chance(50):
            view = _split_rows(view, self.draw.choice(rows))
            if self.draw.chance(40):
                view = b.permute(view, (1, 0))
        return b.flip(view, [self.draw.chance(50) for _ in view.shape]) if self.draw.chance(30) else view

    def _draw_part_sharing_ends_with_others(self, part_ends: list[int], size: int) -> tuple[int, int]:
        """Draw the first element and the length of a part of `size` elements. It often has one element in common with another."""
        start = self.draw.integer(0, size - 1)
        count = self.draw.integer(1, size - start)
        shared = [e for e in part_ends if e < size]
        if shared and self.draw.chance(40):
            end = self.draw.choice(shared)
            start = end if self.draw.chance(50) else self.draw.integer(0, end)
            count = self.draw.integer(1, size - end) if start == end else end - start + 1
        part_ends += (start, start + count - 1)
        return start, count

    def add_value_read_from_memory(self) -> None:
        """Add a value that is read now and may be used by any later statement."""
        buffer = self.draw.choice(self.memories)
        ref = self.draw_view(buffer)
        forms: list[Callable[[UOp], UOp]] = [b.load, b.contiguous, self._wrap_in_where]
        self._record_read_and_make_reusable(buffer, self.draw.choice(forms)(ref))

    def _record_read_and_make_reusable(self, buffer: MemoryState, value: UOp) -> None:
        """Make a value available to later statements, and order the Buffer's next Store after it."""
        buffer.reads.append(value)
        self.values.append(value)
        self.maker.values_by_type.setdefault((value.dtype, tuple(value.shape)), []).append(value)

    def _wrap_in_where(self, u: UOp) -> UOp:
        return UOp(
            Op.WHERE, (self.maker.make_value(dt.bool_, tuple(u.shape), 2), u, self.maker.make_value(u.dtype, tuple(u.shape), 2))
        )

    def add_store(self) -> None:
        """Add a Store of a new value, sometimes of one that reads the same memory in another order."""
        buffer = self.draw.choice(self.memories)
        ref = self.draw_view(buffer)
        shape = tuple(ref.shape)
        reread, value = None, self._make_value_or_pairwise_reduce_to_store(ref.dtype, shape)
        if self.draw.chance(50):
            reread = self.draw.choice((ref, ref, b.flip(ref, [True] * len(shape)), self._shift_view_within_memory(ref)))
            value = reread if self.draw.chance(15) else UOp(Op.WHERE, (self.maker.make_value(dt.bool_, shape, 1), reread, value))
        if buffer.reads:
            ordered = b.after(buffer.current, *buffer.reads)
            ref = rebase_view_on_new_reference(ref, buffer.current, ordered)
        gate = (self.maker.make_value(dt.bool_, shape, 1),) if self.draw.chance(15) else ()
        # Later statements may use the stored value, but not a view: it would read the memory as it is then (R55: races).
        if self.draw.chance(30) and value is not reread:
            self.values.append(value)
            self.maker.values_by_type.setdefault((ref.dtype, shape), []).append(value)
        buffer.current, buffer.reads = b.after(buffer.current, b.store(ref, value, *gate)), []

    def add_sums_to_memory(self) -> None:
        """Store sums that data select to all of a memory, or add them to what is there."""
        buffer = self.draw.choice(self.memories)
        if buffer.dtype is dt.bool_ or buffer.size < 2 or not self.sums_segments:
            self.add_store()
            return
        columns = self.draw.choice([n for n in (1, 2, 4) if buffer.size % n == 0 and buffer.size > n])
        reference = b.after(buffer.current, *buffer.reads) if buffer.reads else buffer.current
        reference = b.reshape(reference, (buffer.size // columns, columns))
        sums = make_sums_into_segments(self.maker, buffer.dtype, *reference.shape)
        value = self.draw.choice((sums, b.add(sums, reference), b.add(reference, sums)))
        buffer.current, buffer.reads = b.after(buffer.current, b.store(reference, value)), []

    def add_store_at_positions(self) -> None:
        """Store to elements at positions that data hold, some of them several times; the value may be made of the elements."""
        buffer = self.draw.choice(self.memories)
        if not self.maker.declared.supports_ops((Op.INDEX,)) or buffer.dtype is dt.bool_:
            self.add_store()
            return
        count = self.draw.integer(1, 6)
        data = np.mod(draw_array(self.draw, dt.int32, (count,), "bits"), min(buffer.size, self.draw.choice((2, 4, 100))))
        positions = b.cast(self.maker.make_param_with_data(dt.int32, data.astype(np.int32)), dt.index)
        memory = b.after(buffer.current, *buffer.reads) if buffer.reads else buffer.current
        elements = b.at(memory, positions)
        value = self.maker.make_value(buffer.dtype, (count,), self.draw.integer(1, 3))
        if self.draw.chance(60):
            value = b.where(self.maker.make_value(dt.bool_, (count,), 1), elements, b.maximum(elements, value))
        buffer.current, buffer.reads = b.after(buffer.current, b.store(elements, value)), []

    def _make_value_or_pairwise_reduce_to_store(self, d: DType, shape: tuple[int, ...]) -> UOp:
        """Make a value to store. Some are pairwise reductions, whose intermediate values a compiler may keep in the
        stored memory (R146).
        """
        budget = self.draw.integer(1, 5)
        fitting = [p for p in self.pairwise_producers if p.admits(self.maker, d, shape, 3)]
        if fitting and self.draw.chance(30):
            return fitting[0].make(self.maker, d, shape, budget)
        return self.maker.make_value(d, shape, budget)

    def _shift_view_within_memory(self, ref: UOp) -> UOp:
        """Shift a view to other elements, which may overlap those of `ref`; return `ref` itself if it covers all of the
        memory.
        """
        if ref.op is Op.SHRINK:
            (memory_size,), (size,), (start,) = ref.operand.shape, ref.shape, ref.offsets.elements
            last = memory_size - size
            touching = [s for s in (start.const - size + 1, start.const + size - 1) if 0 <= s <= last]  # in one element
            other = self.draw.choice(touching) if touching and self.draw.chance(40) else self.draw.integer(0, last)
            return b.shrink(ref.operand, [other], [size])
        if ref.op not in _VIEWS:
            return ref
        operand, *sizes = ref.src  # offsets, extents
        return ref.replace(src=(self._shift_view_within_memory(operand), *sizes))

    def add_shared_value(self) -> None:
        """Add a value that several later statements may share."""
        d = self.draw.choice(self.maker.dtypes)
        value = self.maker.make_value(d, self.maker.draw_shape(self.maker.max_elements), self.draw.integer(2, 6))
        self.values.append(b.contiguous(value) if self.draw.chance(40) else value)

    def build_root(self) -> UOp:
        """Return the program of the statements so far: the final contents of its Buffers, and some of the values."""
        contents = [b.reshape(x.current, (x.size,)) for x in self.memories]
        values = [v for v in self.values if self.draw.chance(40)]
        outputs = [*values[-2:], *contents] if self.draw.chance(40) else [*contents, *values[-2:]]  # values of before, wanted late
        return outputs[0] if len(outputs) == 1 else b.tuple_(*outputs)


def _split_rows(u: UOp, rows: int) -> UOp:
    return b.reshape(u, (rows, u.shape[0] // rows))


def rebase_view_on_new_reference(view: UOp, old_reference: UOp, new_reference: UOp) -> UOp:
    """Return the same view of another reference to the same memory."""
    if view is old_reference:
        return new_reference
    operand, *sizes = view.src  # offsets, extents
    return view.replace(src=(rebase_view_on_new_reference(operand, old_reference, new_reference), *sizes))


def generate_statements_on_buffers(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate two to eight statements on one to three Buffers."""
    program = ProgramMaker(draw, draw.choice((4, 8, 16, 32)), declared)
    for _ in range(draw.integer(2, 8)):
        draw.choice(
            (
                program.add_value_read_from_memory,
                program.add_store,
                program.add_store,
                program.add_shared_value,
                program.add_sums_to_memory,
            )
        )()
    return FuzzCase(program.build_root(), program.maker.inputs)


# ------------------------------------------------------------------------------------------------------- Calls of kernels


class CallingProgramMaker(ProgramMaker):
    """A program under construction some of whose statements are Calls of kernels."""

    def __init__(self, draw: ChoiceSource, max_elements: int, declared: SupportedOpDtypes) -> None:
        super().__init__(draw, max_elements, declared)
        self.declared = declared

    def add_kernel_call(self) -> None:
        """Add a Call of a kernel, and order the memory that it accesses around it."""
        of_memory = [m.dtype for m in self.memories]
        preferred = tuple(d for d in of_memory if d.is_integer) if self.draw.chance(70) else tuple(of_memory)
        drawn = draw_kernel_call_on_placeholders(self.draw, f"k{self.maker.take_slot()}", self.declared, preferred)
        slots = drawn.arg.written
        written: dict[UOp, MemoryState] = {}
        references: dict[UOp, UOp] = {}
        for k in slots:
            placeholder = drawn.arguments[k]
            written[placeholder], references[placeholder] = self._choose_memory_to_write_ordered_after_reads(
                placeholder, list(written.values())
            )
        read: list[MemoryState] = []
        for a in drawn.arguments:
            if a not in references:
                references[a] = (
                    self._make_argument_within_variable_bounds(a)
                    if a.op is Op.PARAM
                    else self._choose_value_or_unwritten_memory_to_read(a, written, read)
                )
        declares = self.draw.chance(75) or bool(read)
        for _ in range(self.draw.choice((1, 1, 1, 2))):  # the same Call a second time, on what the first one left
            arguments = self._drop_waits_of_repeated_arguments([references[a] for a in drawn.arguments])
            if self.draw.chance(30):  # an argument of which the body makes no use, and which waits for nothing
                arguments += [strip_afters(a) for a in arguments if a.op is Op.AFTER][:1]
            body, written_slots = drawn.body, slots
            if self.draw.chance(15) and not any(a.dtype is dt.index for a in arguments):
                body, arguments, written_slots = self._wrap_in_body_with_other_numbers(body, arguments, slots)
            call = b.call(body, *arguments, written=written_slots if declares else None)
            for placeholder, memory in written.items():
                current = b.after(memory.current, call)
                references[placeholder] = rebase_view_on_new_reference(references[placeholder], memory.current, current)
                memory.current, memory.reads = current, []
        for memory in read:
            memory.reads.append(call)

    def _wrap_in_body_with_other_numbers(
        self, kernel: UOp, arguments: Sequence[UOp], written: Sequence[int]
    ) -> tuple[UOp, list[UOp], tuple[int, ...]]:
        """Return a body that calls a kernel on its own Params, with its arguments in another order, and what it writes of them."""
        order = draw_permutation(self.draw, len(arguments))
        params = {k: b.param(slot, arguments[k].shape, arguments[k].dtype) for slot, k in enumerate(order)}
        inner = b.call(kernel, *[params[k] for k in range(len(arguments))], written=tuple(written))
        return b.sink(inner), [arguments[k] for k in order], tuple(sorted(order.index(k) for k in written))

    def _drop_waits_of_repeated_arguments(self, arguments: Sequence[UOp]) -> list[UOp]:
        """Return arguments of which the second of two equal ones waits for no effect, in some cases: the first one does."""
        return [
            strip_afters(a) if a in arguments[:k] and a.op is Op.AFTER and self.draw.chance(50) else a
            for k, a in enumerate(arguments)
        ]

    def add_call_on_memory_of_symbolic_size(self) -> None:
        """Add a Call of a kernel that copies rows of memory with a variable number of rows, or a view or a value of it.

        The body has a Param of the symbolic shape, or of the least number of rows, in any order.
        """
        numbers = [x for x in self.maker.dtypes if x is not dt.bool_]
        if not numbers:
            self.add_kernel_call()
            return
        draw, d = self.draw, self.draw.choice(numbers)
        low, high, columns = draw.integer(1, 3), draw.integer(3, 5), draw.integer(1, 3)
        rows = self.maker.make_variable_with_value(low, high)
        data = self._draw_data(d, (int(self.maker.inputs[rows.arg.name]), columns))
        memory = b.param(self.maker.take_slot(), (rows, columns), d)
        self.maker.inputs[f"p{memory.arg.slot}"] = data
        view = b.flip(memory, (draw.chance(50), draw.chance(50))) if draw.chance(60) else memory
        is_symbolic = draw.chance(60)
        if not is_symbolic:
            view = b.shrink(view, (0, 0), (low, columns))
        count = b.variable(f"{rows.arg.name}_", low, high, slot=2) if is_symbolic else b.index(low)
        out, source = b.param(0, (high * columns,), d), b.param(1, (count if is_symbolic else low, columns), d)
        i, j = b.range_(count, 0), b.range_(columns, 1)
        taken = b.sub(b.sub(count, 1), i) if draw.chance(40) else i
        value = b.load(b.at(source, taken, j))
        if is_symbolic and draw.chance(60):  # a sum of elements of two rows before, if there are as many
            r = b.range_(b.sub(i, 1), 2, AxisType.REDUCE)
            gate = (b.const(0, d), b.lt(j, draw.integer(1, columns))) if draw.chance(50) else ()
            earlier = UOp(Op.LOAD, (b.at(b.after(source, r), b.sub(i, 2), j), *gate), LoadArg())
            value = b.add(value, UOp(Op.REDUCE, (earlier, r), ReduceArg(Op.ADD, ())))
        stored = b.store(b.at(out, b.add(b.mul(i, columns), j)), value)
        body = b.sink(b.end(stored, i, j), name=f"k{self.maker.take_slot()}")
        target, written = self._choose_memory_to_write_ordered_after_reads(b.buffer(high * columns, d, unique=0), [])
        call = b.call(body, written, view, *((rows,) if is_symbolic else ()), written=(0,))
        target.current = b.after(target.current, call)

    def _choose_memory_to_write_ordered_after_reads(self, placeholder: UOp, taken: list[MemoryState]) -> tuple[MemoryState, UOp]:
        """Choose memory for an argument that is written: all of it, or a view. Return it, and the reference to pass."""
        size, d = placeholder.arg.size, placeholder.dtype
        fitting = [m for m in self.memories if m.dtype is d and m.size >= size and m not in taken]
        read = [m for m in fitting if m.reads]
        fitting = read if read and self.draw.chance(60) else fitting  # what was read must be read before it is written
        memory = self.draw.choice(fitting) if fitting and self.draw.chance(75) else self._add_memory(size, d)
        view = self._draw_view_of_size(memory, size)
        if memory.reads:
            ordered = b.after(memory.current, *memory.reads)
            view, memory.current = rebase_view_on_new_reference(view, memory.current, ordered), ordered
        return memory, view

    def _add_memory(self, min_size: int, d: dt.DType) -> MemoryState:
        """Add a Buffer of at least `min_size` elements, with data."""
        extent = min_size + (self.draw.integer(0, 3) if self.draw.chance(30) else 0)
        unique = 1000 + self.maker.take_slot()
        self.maker.inputs[f"b{unique}"] = self._draw_data(d, (extent,))
        self.memories.append(MemoryState(b.buffer(extent, d, unique=unique), d, extent))
        return self.memories[-1]

    def _draw_data(self, d: dt.DType, shape: tuple[int, ...]) -> Array:
        return draw_array(self.draw, d, shape, "small" if d.is_float else self.draw.choice(("small", "mixed", "bits")))

    def _draw_view_of_size(self, memory: MemoryState, size: int) -> UOp:
        """Return a view of `size` elements of a memory, in one or two dimensions."""
        view = memory.current
        if memory.size > size:
            view = b.shrink(view, [self.draw.integer(0, memory.size - size)], [size])
        rows = [n for n in (2, 3, 4) if size % n == 0]
        if rows and self.draw.chance(30):
            n = self.draw.choice(rows)
            view = b.reshape(view, (n, size // n))
            view = b.permute(view, (1, 0)) if self.draw.chance(40) else view
        return b.flip(view, [self.draw.chance(50) for _ in view.shape]) if self.draw.chance(20) else view

    def _choose_value_or_unwritten_memory_to_read(
        self, placeholder: UOp, written: dict[UOp, MemoryState], read: list[MemoryState]
    ) -> UOp:
        """Choose memory, a view, a value, a constant or a Param for an argument that is only read."""
        size, d = placeholder.arg.size, placeholder.dtype
        kept = list(written.values())
        memories = [m for m in self.memories if m.dtype is d and m.size >= size and m not in kept]
        if memories and self.draw.chance(60):
            read.append(self.draw.choice(memories))
            return self._draw_view_of_size(read[-1], size)
        values = [v for v in self.values if v.dtype is d and math.prod(v.shape) == size]
        options: list[Callable[[], UOp]] = [
            lambda: self.maker.make_param_with_data(d, self._draw_data(d, (size,))),
            lambda: b.reshape(self.maker.make_param_with_data(d, self._draw_data(d, (1, size))), (size, 1)),
            lambda: b.expand(b.reshape(b.const(self.draw.integer(0, 3), d), (1,)), (size,)),
            lambda: self.maker.make_value(d, (size,), self.draw.integer(1, 4)),
            lambda: b.contiguous(self.maker.make_param_with_data(d, self._draw_data(d, (size,)))),
        ]
        return self.draw.choice(values) if values and self.draw.chance(50) else self.draw.choice(options)()

    def _make_argument_within_variable_bounds(self, placeholder: UOp) -> UOp:
        """Bind a variable of the kernel: to a variable, to a number, or to an expression of a variable within its bounds."""
        lo, hi = placeholder.arg.bounds
        if self.draw.chance(30):
            return b.index(self.draw.integer(lo, hi))
        variable = _rename_variable(placeholder, f"v{self.maker.take_slot()}")
        self.maker.inputs[variable.arg.name] = self.draw.choice((lo, hi, self.draw.integer(lo, hi)))
        return b.sub(lo + hi, variable) if self.draw.chance(30) else variable


def _rename_variable(variable: UOp, name: str) -> UOp:
    """Return a variable of the same bounds with another name."""
    return variable.replace(arg=replace(variable.arg, name=name))


def generate_program_with_kernel_calls(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate one to four Calls of kernels, with up to four other statements around them."""
    program = CallingProgramMaker(draw, draw.choice((4, 8, 16)), declared)
    calls = (program.add_kernel_call,) * 6 + (program.add_call_on_memory_of_symbolic_size,)
    statements = [draw.choice(calls) for _ in range(draw.integer(1, 4))]
    others = (program.add_value_read_from_memory, program.add_store, program.add_store_at_positions, program.add_shared_value)
    for _ in range(draw.integer(0, 4)):
        statements.insert(draw.integer(0, len(statements)), draw.choice(others))
    if draw.chance(40):
        statements += [program.add_value_read_from_memory, program.add_kernel_call]
    for add in statements:
        add()
    return FuzzCase(program.build_root(), program.maker.inputs)


# ---------------------------------------------------------------------------------------------------------------- symbolic

#: Ops that a step applies, in the order in which a draw chooses among them.
_UNARY = (b.neg, b.exp2, b.sqrt, b.recip)
_BINARY = (b.add, b.mul, b.maximum, b.sub)
#: Dtypes of symbolic values.
_SYMBOLIC = (dt.float32, dt.int32, dt.float32, dt.int16, dt.float16, dt.float64, dt.uint8, dt.int64)


class _SymbolicMaker:
    """A symbolic program under construction. Extents are variables, which may be 0, constants, or sums and products of these."""

    def __init__(self, draw: ChoiceSource, declared: SupportedOpDtypes) -> None:
        self.draw, self.declared = draw, declared
        self.inputs: dict[str, Any] = {}
        self.slots = 0
        names = ("n", "m")[: draw.integer(1, 2)]
        self.variables = []
        for name in names:
            lo = draw.choice((0, 0, 0, 1, 2))
            hi = draw.choice((max(lo, 1), 2, draw.integer(3, 12), draw.integer(3, 12)))
            self.variables.append(b.variable(name, lo, hi))
            self.inputs[name] = draw.choice((lo, draw.integer(lo, hi), hi))
        self.value = self.make_param_with_data(
            [self.variables[0], *(self.draw.choice(self.dims()) for _ in range(draw.integer(0, 1)))]
        )

    def dims(self) -> list[Dim]:
        """Return the extents to choose from; variables are more frequent."""
        return [*self.variables, *self.variables, 2, 3, 4]

    def evaluate_extent(self, d: Dim) -> int:
        """Evaluate an extent under the inputs."""
        if not isinstance(d, UOp):
            return int(d)
        if d.op is Op.PARAM:
            return int(self.inputs[d.arg.name])
        if d.op is Op.CONST:
            return int(d.arg.value)
        lhs, rhs = (self.evaluate_extent(s) for s in d.src)
        return lhs + rhs if d.op is Op.ADD else lhs * rhs if d.op is Op.MUL else lhs // rhs

    def make_param_with_data(self, shape: list[Dim], d: DType | None = None) -> UOp:
        """Make a Param of this shape with data."""
        dtype = d or self.draw.choice(self.declared.filter_dtypes(_SYMBOLIC))
        p = b.param(self.slots, shape, dtype)
        self.inputs[f"p{self.slots}"] = draw_array(self.draw, dtype, tuple(self.evaluate_extent(n) for n in shape), "small")
        self.slots += 1
        return p

    def make_integer_variable(self, d: DType) -> UOp:
        """Make a variable of an integer dtype, which is used as a value."""
        name, lo, hi = f"k{self.slots}", int(self.draw.choice((d.min, 0, d.max - 9))), int(d.max)
        self.inputs[name] = self.draw.choice((lo, hi, self.draw.integer(lo, hi)))
        self.slots += 1
        return b.variable(name, lo, hi, dtype=d)

    def replace_value_by_random_op_unless_too_large(self) -> None:
        """Apply one op to the value, unless the result would have more than 512 elements."""
        options = (
            self.apply_unary, self.apply_binary_with_param_variable_or_self, self.apply_cast,
            self.apply_bitcast_replacing_float_by_param,
            self.apply_where_on_own_comparison, self.apply_permute, self.apply_flip, self.apply_pad,
            self.pad_and_shrink_to_former_shape,
            self.merge_leading_two_axes_or_add_one, self.expand_new_axis, self.repeat_elements,
            self.apply_reduce,
        )  # fmt: skip
        result = self.draw.choice(options)(self.value)
        if math.prod(self.evaluate_extent(n) for n in result.shape) <= 512:
            self.value = result

    def apply_unary(self, x: UOp) -> UOp:
        """Apply a unary op."""
        return self.draw.choice(_UNARY)(x) if x.dtype.is_float else b.neg(x)

    def apply_binary_with_param_variable_or_self(self, x: UOp) -> UOp:
        """Apply a binary op, with an operand that may broadcast, a variable or the value itself."""
        shape = [1 if self.draw.chance(30) else n for n in x.shape]
        if x.dtype.is_integer and self.draw.chance(20):
            return self.draw.choice(_BINARY)(x, self.make_integer_variable(x.dtype))
        other = x if self.draw.chance(20) else self.make_param_with_data(shape, x.dtype)
        return self.draw.choice(_BINARY)(x, self.shift_toward_start(other) if self.draw.chance(40) else other)

    def apply_cast(self, x: UOp) -> UOp:
        """Cast to another dtype."""
        return b.cast(x, self.draw.choice(self.declared.filter_dtypes(_SYMBOLIC)))

    def apply_bitcast_replacing_float_by_param(self, x: UOp) -> UOp:
        """Bitcast to another dtype, which may scale the last axis. A float is replaced by data: bits of an inexact
        float may be anything (R30).
        """
        if x.dtype.is_float:
            x = self.make_param_with_data(list(x.shape), x.dtype)
        size = x.dtype.itemsize
        dtypes = self.declared.filter_dtypes(_SYMBOLIC)
        fitting = [d for d in dtypes if d.itemsize <= size or divides(d.itemsize // size, x.shape[-1])]
        return b.bitcast(x, self.draw.choice(fitting))

    def apply_where_on_own_comparison(self, x: UOp) -> UOp:
        """Choose between the value and an operand by a comparison of both."""
        other = self.make_param_with_data([1 if self.draw.chance(40) else n for n in x.shape], x.dtype)
        return b.where(
            self.draw.choice((b.lt, b.ne))(x, other), x, other if self.draw.chance(50) else b.flip(x, [True] * len(x.shape))
        )

    def apply_permute(self, x: UOp) -> UOp:
        """Reverse the order of the axes."""
        return b.permute(x, tuple(range(len(x.shape)))[::-1])

    def apply_flip(self, x: UOp) -> UOp:
        """Flip random axes."""
        return b.flip(x, [self.draw.chance(60) for _ in x.shape])

    def apply_pad(self, x: UOp) -> UOp:
        """Pad before each axis by a constant or a variable."""
        before = [self.draw.choice([0, 0, 1, *self.variables]) for _ in x.shape]
        return b.pad(x, before, [_plus(n, lo) for n, lo in zip(x.shape, before, strict=True)])

    def pad_and_shrink_to_former_shape(self, x: UOp) -> UOp:
        """Pad the value and shrink it to its former shape, which is in bounds for all values of the variables."""
        k = self.draw.integer(0, 2)
        return _move_with_zeros_behind(x, [k] * len(x.shape), [self.draw.integer(0, k) for _ in x.shape])

    def shift_toward_start(self, x: UOp) -> UOp:
        """Shift the value along its axes by up to two elements, and fill it up with zeros; an axis of one element stays.

        Where an operand broadcasts, a gate then does not depend on all loops.
        """
        added = [0 if n == 1 else 2 for n in x.shape]
        return _move_with_zeros_behind(x, added, [self.draw.integer(0, k) if k else 0 for k in added])

    def merge_leading_two_axes_or_add_one(self, x: UOp) -> UOp:
        """Merge the two leading axes, or add one."""
        if len(x.shape) < 2:
            return b.reshape(x, (1, *x.shape))
        n, k, *rest = x.shape
        return b.reshape(x, (_times(n, k), *rest))

    def expand_new_axis(self, x: UOp) -> UOp:
        """Expand the value along a new leading axis."""
        return b.expand(b.reshape(x, (1, *x.shape)), (self.draw.choice(self.dims()), *x.shape))

    def repeat_elements(self, x: UOp) -> UOp:
        """Repeat each element of an axis, so that a position is a quotient."""
        if not x.shape:
            return self.expand_new_axis(x)
        k = self.draw.integer(0, len(x.shape) - 1)
        before, n, behind = x.shape[:k], x.shape[k], x.shape[k + 1 :]
        times = self.draw.choice((2, 3, 4, *self.variables))
        wide = b.expand(b.reshape(x, (*before, n, 1, *behind)), (*before, n, times, *behind))
        return b.reshape(wide, (*before, _times(n, times), *behind))

    def apply_reduce(self, x: UOp) -> UOp:
        """Reduce random axes."""
        axes = [k for k in range(len(x.shape)) if self.draw.chance(50)]
        return b.reduce(x, self.draw.choice((Op.ADD, Op.MAX, Op.ADD)), axes) if axes else b.contiguous(x)


def _move_with_zeros_behind(x: UOp, added: list[int], offsets: list[int]) -> UOp:
    """Pad the end of each axis by as many zeros as are `added`, and take the value's shape out of that, from `offsets` on."""
    longer = b.pad(x, [0] * len(x.shape), [_plus(n, k) for n, k in zip(x.shape, added, strict=True)])
    return b.shrink(longer, offsets, x.shape)


def _plus(n: Dim, k: Dim) -> Dim:
    return b.add(n, k) if isinstance(n, UOp) or isinstance(k, UOp) else n + k


def _times(n: Dim, k: Dim) -> Dim:
    return b.mul(n, k) if isinstance(n, UOp) or isinstance(k, UOp) else n * k


def generate_symbolic_shape_graph(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate one to eight ops on values of symbolic shape."""
    maker = _SymbolicMaker(draw, declared)
    for _ in range(draw.integer(1, 8)):
        maker.replace_value_by_random_op_unless_too_large()
    return FuzzCase(maker.value, maker.inputs)
