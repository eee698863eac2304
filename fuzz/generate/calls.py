"""The generator of TENSOR programs that call kernels written by hand, among tensor ops, reads and Stores on the same Buffers.

A Call writes Buffers, or views of them, and reads memory, views, values, constants and Params; a variable of the kernel may be
bound to a variable, a number or an expression. Each Call comes after all reads of what it writes, and later statements read what
it wrote, so no order is left open (R55, R59). Memory that a Call writes is passed to it once, or by the same reference (R166).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.kernel_forms import draw_kernel_call
from uops.fuzz.generate.programs import MemoryState, ProgramMaker, rebase_view_on_new_reference
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


class CallingProgramMaker(ProgramMaker):
    """A program under construction some of whose statements are Calls of kernels."""

    def __init__(self, draw: ChoiceSource, max_elements: int, declared: SupportedOpDtypes) -> None:
        super().__init__(draw, max_elements, declared)
        self.declared = declared

    def add_kernel_call(self) -> None:
        """Add a Call of a kernel, and order the memory that it accesses around it."""
        of_memory = [m.dtype for m in self.memories]
        preferred = tuple(d for d in of_memory if d.is_integer) if self.draw.chance(70) else tuple(of_memory)
        drawn = draw_kernel_call(self.draw, f"k{self.maker.take_slot()}", self.declared, preferred)
        slots = drawn.arg.written
        written: dict[UOp, MemoryState] = {}
        references: dict[UOp, UOp] = {}
        for k in slots:
            placeholder = drawn.arguments[k]
            written[placeholder], references[placeholder] = self._choose_memory_to_write(placeholder, list(written.values()))
        read: list[MemoryState] = []
        for a in drawn.arguments:
            if a not in references:
                references[a] = self._bind_variable(a) if a.op is Op.PARAM else self._choose_argument_to_read(a, written, read)
        declares = self.draw.chance(75) or bool(read)
        call = b.call(drawn.body, *[references[a] for a in drawn.arguments], written=slots if declares else None)
        for memory in written.values():
            memory.current, memory.reads = b.after(memory.current, call), []
        for memory in read:
            memory.reads.append(call)

    def _choose_memory_to_write(self, placeholder: UOp, taken: list[MemoryState]) -> tuple[MemoryState, UOp]:
        """Choose memory for an argument that is written: all of it, or a view. Return it, and the reference to pass."""
        size, d = placeholder.arg.size, placeholder.dtype
        fitting = [m for m in self.memories if m.dtype is d and m.size >= size and m not in taken]
        memory = self.draw.choice(fitting) if fitting and self.draw.chance(60) else self._add_memory(size, d)
        view = self._view_of_size(memory, size)
        if memory.reads:
            ordered = b.after(memory.current, *memory.reads)
            view, memory.current = rebase_view_on_new_reference(view, memory.current, ordered), ordered
        return memory, view

    def _add_memory(self, size: int, d: dt.DType) -> MemoryState:
        """Add a Buffer of at least `size` elements, with data."""
        extent = size + (self.draw.integer(0, 3) if self.draw.chance(30) else 0)
        unique = 1000 + self.maker.take_slot()
        self.maker.inputs[f"b{unique}"] = self._draw_data(d, (extent,))
        self.memories.append(MemoryState(b.buffer(extent, d, unique=unique), d, extent))
        return self.memories[-1]

    def _draw_data(self, d: dt.DType, shape: tuple[int, ...]) -> Any:
        return draw_array(self.draw, d, shape, "small" if d.is_float else self.draw.choice(("small", "mixed", "bits")))

    def _view_of_size(self, memory: MemoryState, size: int) -> UOp:
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

    def _choose_argument_to_read(self, placeholder: UOp, written: dict[UOp, MemoryState], read: list[MemoryState]) -> UOp:
        """Choose memory, a view, a value, a constant or a Param for an argument that is only read."""
        size, d = placeholder.arg.size, placeholder.dtype
        kept = list(written.values())
        memories = [m for m in self.memories if m.dtype is d and m.size >= size and m not in kept]
        if memories and self.draw.chance(60):
            read.append(self.draw.choice(memories))
            return self._view_of_size(read[-1], size)
        values = [v for v in self.values if v.dtype is d and math.prod(v.shape) == size]
        options: list[Callable[[], UOp]] = [
            lambda: self.maker.make_param_with_data(d, self._draw_data(d, (size,))),
            lambda: b.reshape(self.maker.make_param_with_data(d, self._draw_data(d, (1, size))), (size, 1)),
            lambda: b.expand(b.reshape(b.const(self.draw.integer(0, 3), d), (1,)), (size,)),
            lambda: self.maker.make_value(d, (size,), self.draw.integer(1, 4)),
            lambda: b.contiguous(self.maker.make_param_with_data(d, self._draw_data(d, (size,)))),
        ]
        return self.draw.choice(values) if values and self.draw.chance(50) else self.draw.choice(options)()

    def _bind_variable(self, placeholder: UOp) -> UOp:
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
    statements = [program.add_kernel_call] * draw.integer(1, 4)
    others = (program.add_value_read_from_memory, program.add_store, program.add_shared_value)
    for _ in range(draw.integer(0, 4)):
        statements.insert(draw.integer(0, len(statements)), draw.choice(others))
    for add in statements:
        add()
    return FuzzCase(program.build_root(), program.maker.inputs)
