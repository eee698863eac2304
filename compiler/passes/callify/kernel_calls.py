"""Calls of kernels in a program: their bodies in the forms of a launch, their arguments as whole memory.

Takes: a program without Functions, whose Calls have kernels as bodies. Gives: the same program. Each body has the forms of
SCHEDULED or LINEAR, and each argument is a Buffer, a Param, a variable, or a Contiguous value. Spec: Call, Param; R51 (references
and values), R63 (Call), R86 (Call arguments), R166 (kernels written by hand).

A kernel takes whole memory of one dimension; `kernel_forms` brings its body into that form. An argument that is a value is stored
first. Of a view with constant offsets the body indexes the memory itself. Any other view is copied to memory of its own, and back
where the Call writes it. Arguments that are the same reference become one. A scalar argument becomes part of the body, as an
expression of variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.bodies import SCALAR_OPS, order_outside_kernels
from uops.compiler.ir.equal_effects import chain_atomic_adds_per_memory_and_loops, wait_for_equal_calls
from uops.compiler.ir.extents import max_elements
from uops.compiler.ir.loops import bind_accesses_to_loops_and_split_ends
from uops.compiler.ir.views import WHOLE_VIEWS, strip_views_and_collect_dependencies, view_front_of_memory
from uops.compiler.native import require_variables_within_program_bounds
from uops.compiler.passes.callify.kernel_forms import replace_params_and_lower_unscheduled_kernel
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg, ParamArg
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.native import OPAQUE_BODIES
from uops.spec.ir.node import Dim, UOp, ops_below, substitute, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import BASES, VIEWS, base_memory, is_variable, strip_afters
from uops.spec.verify.dialects import Dialect

#: Views that a body may follow itself, if their offsets are constants.
_FOLLOWED = frozenset({Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP})


class MemoryCallProgram(NamedTuple):
    """A program whose Calls take whole memory, and the Buffers that were made for copies of arguments."""

    root: UOp
    temporaries: frozenset[UOp]


def convert_kernel_calls_to_launch_form(root: UOp, first_unique: int) -> MemoryCallProgram:
    """Bring each Call of a kernel into the form of a launch. New Buffers are numbered from `first_unique`.

    Raises SpecError for a kernel that breaks a claim of its dialect, CompileError for arguments that no launch can have.
    """
    order = order_outside_kernels(root)
    if Op.CALL not in ops_below(root):
        return MemoryCallProgram(root, frozenset())
    done: dict[UOp, UOp] = {}
    temporaries: list[UOp] = []
    calls: set[UOp] = set()
    for u in order:
        if done.keys().isdisjoint(u.src) and u.op is not Op.CALL:
            continue
        if u.op is Op.CALL:
            call = pass_global_buffers_as_call_arguments(u.replace(src=(u.body, *[done.get(a, a) for a in u.arguments])))
            done[u] = _CallInMemory(call, root, first_unique + len(temporaries), temporaries, calls).build_call_and_copies_back()
        else:
            done[u] = u.replace(src=tuple([done.get(s, s) for s in u.src]))
    return MemoryCallProgram(done.get(root, root), frozenset(temporaries))


def is_global_buffer(u: UOp) -> bool:
    """Return True for a Buffer that is memory of the device."""
    return u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL


def make_param_without_device(argument: UOp, slot: int) -> UOp:
    """Return the Param at a slot that stands for a Buffer or a Param."""
    if argument.op is Op.PARAM:
        return argument.replace(arg=replace(argument.arg, slot=slot, device=None))
    return UOp(Op.PARAM, (B.shape_vector(argument.shape),), ParamArg(slot, argument.dtype))


def pass_global_buffers_as_call_arguments(call: UOp) -> UOp:
    """Return the Call of a kernel whose GLOBAL Buffers are arguments of its Call."""
    own = [u for u in toposort(call.body) if is_global_buffer(u)]
    if not own or call.body.op is not Op.SINK:
        return call
    params = {u: make_param_without_device(u, len(call.arguments) + k) for k, u in enumerate(own)}
    body, arg = substitute(call.body, params), call.arg
    if arg is not None and arg.written is not None:
        arg = replace(arg, written=tuple(sorted({*arg.written, *(find_written_slots(body) or ())})))
    return call.replace(src=(body, *call.arguments, *own), arg=arg)


class _CallInMemory:
    """One Call under conversion. `temporaries` receives the Buffers that it needs, `calls` the new Call.

    `references` has what each argument refers to: a whole memory, whatever Afters and Reshapes the argument has, or the argument.
    """

    def __init__(self, call: UOp, error_root: UOp, first_unique: int, temporaries: list[UOp], calls: set[UOp]) -> None:
        self.call, self.error_root, self.temporaries, self.next_unique = call, error_root, temporaries, first_unique
        self.calls = calls
        self.body = call.body
        self.params = {p.arg.slot: p for p in toposort(call.body) if p.op is Op.PARAM and p.arg.slot is not None}
        self.references: list[UOp] = []
        self.waits: dict[UOp, list[UOp]] = {}  # reference -> the effects that it waits for
        for a in call.arguments:
            base, dependencies = strip_views_and_collect_dependencies(a, WHOLE_VIEWS)
            reference = base if base.op in MEMORY_ROOTS else a
            self.references.append(reference)
            self.waits.setdefault(reference, []).extend(dependencies if reference is base else ())
        self.copies_back: list[tuple[UOp, UOp]] = []  # the reference that is written, the memory that holds its elements

    def build_call_and_copies_back(self) -> UOp:
        """Return the Call, or a Group of it and of the Stores that write copies back."""
        written = find_written_slots(self.body) if self.call.arg is None or self.call.arg.written is None else self.call.arg.written
        written = tuple(range(len(self.call.arguments))) if written is None else written
        written = tuple(k for k in written if self._may_use(k))
        self._refuse_write_through_different_views(written)
        writes, passed = {self.references[k] for k in written}, dict[UOp, UOp]()
        for slot in sorted(range(len(self.references)), key=lambda k: k not in self.params):  # a slot with a Param decides
            reference = self.references[slot]
            if reference not in passed:
                passed[reference] = self._choose_memory_value_or_scalar_to_pass(slot, reference, reference in writes)
        if self.body.op in OPAQUE_BODIES:  # which take their arguments as they are numbered
            arguments = [passed[r] for r in self.references]
            body, kept = self.body, _KeptArguments(arguments, {k: k for k in range(len(arguments))})
            if body.op is Op.PROGRAM:
                require_variables_within_program_bounds(self.call, self.error_root)
        else:
            body, kept = self._inline_scalars_and_build_launch_body([passed[r] for r in self.references])
        slots = tuple(sorted({n for k, n in kept.numbers.items() if k in written}))
        verify_kernel(body)
        call = wait_for_equal_calls(UOp(Op.CALL, (body, *kept.arguments), CallArg(written=slots)), self.calls)
        self.calls.add(call)
        stores = [B.store(target, view_front_of_memory(B.after(memory, call), target.shape)) for target, memory in self.copies_back]
        return B.group(call, *stores) if stores else call

    def _may_use(self, slot: int) -> bool:
        """Return True if the kernel may read or write an argument: it has a Param of it, or is opaque."""
        return slot in self.params or self.body.op in OPAQUE_BODIES

    def _refuse_write_through_different_views(self, written_slots: tuple[int, ...]) -> None:
        """Raise CompileError if two arguments share memory that the Call writes, unless they are the same reference."""
        memory = [base_memory(a) for a in self.references]
        for k in written_slots:
            for j, m in enumerate(memory):
                if m is memory[k] and m.op in BASES and self._may_use(j) and self.references[j] is not self.references[k]:
                    detail = f"arguments {min(j, k)} and {max(j, k)} are different views of one memory, which the Call writes"
                    raise untranslatable_error("R166 (kernels written by hand)", self.call, detail, self.error_root)

    def _choose_memory_value_or_scalar_to_pass(self, slot: int, reference: UOp, is_written: bool) -> UOp:
        """Return the memory, value or scalar to pass for an argument."""
        p = self.params.get(slot)
        if self._is_scalar(slot, reference):
            return reference
        if reference.op in MEMORY_ROOTS and not is_variable(reference) and (p is None or reference.dtype is p.dtype):
            return B.after(reference, *self.waits[reference]) if self.waits[reference] else reference
        if self._may_follow_views(reference, p):
            return _strip_to_memory(reference)
        if not is_written and all(isinstance(n, int) for n in reference.shape):
            return B.contiguous(reference)
        temporary = self._make_temporary_buffer_like(reference)
        if is_written and base_memory(reference).op in MEMORY_ROOTS:
            self.copies_back.append((reference, temporary))
        return B.after(temporary, B.store(view_front_of_memory(temporary, reference.shape), reference))

    def _is_scalar(self, slot: int, reference: UOp) -> bool:
        """Return True for the argument of a variable, and for an expression of variables of which the body makes no use."""
        p = self.params.get(slot)
        if p is not None or self.body.op in OPAQUE_BODIES:
            return is_variable(reference if p is None else p)
        return is_variable(reference) or (reference.op in SCALAR_OPS and reference.shape == ())

    def _may_follow_views(self, a: UOp, p: UOp | None) -> bool:
        """Return True if the body may index the memory below an argument itself: the argument is a view with constant offsets.

        A list of instructions, a scheduled body, and one that passes memory on to opaque instructions stay as they are.
        """
        memory = base_memory(a)
        if p is None or a.op not in VIEWS or memory.op not in MEMORY_ROOTS or is_variable(memory) or memory.dtype is not p.dtype:
            return False
        is_fixed = self.body.op is not Op.SINK or (self.body.arg is not None and self.body.arg.scheduled)
        if (
            is_fixed
            or any(u.op in OPAQUE_INSTRUCTIONS for u in toposort(self.body))
            or any(isinstance(n, UOp) for n in memory.shape)
        ):
            return False
        views = [u for u in _views_of(a) if u.op is not Op.AFTER]
        operands = [s for u in views for s in u.src[1:]]  # offsets and extents
        return all(u.op in _FOLLOWED for u in views) and all(s.constants_of_stack is not None for s in operands)

    def _make_temporary_buffer_like(self, a: UOp) -> UOp:
        device = a.device if isinstance(a.device, str) else "CPU"
        arg = BufferArg(max_elements(a.shape), a.dtype.storage, device, AddrSpace.GLOBAL, self.next_unique)
        self.next_unique += 1
        self.temporaries.append(UOp(Op.BUFFER, (), arg))
        return self.temporaries[-1]

    def _inline_scalars_and_build_launch_body(self, arguments: list[UOp]) -> tuple[UOp, _KeptArguments]:
        """Put scalar arguments into the body, and number its memory from 0, the variables of the scalars last.

        Params of one argument become one, so that every pass knows that they are the same memory.
        """
        scalars = {k: a for k, a in enumerate(arguments) if self._is_scalar(k, a)}
        memory = list(dict.fromkeys(a for k, a in enumerate(arguments) if k not in scalars))
        numbers = {k: memory.index(a) for k, a in enumerate(arguments) if k not in scalars}
        variables = dict.fromkeys(v for k, a in scalars.items() if k in self.params for v in self._variables_of_scalar(a))
        variables |= dict.fromkeys(v for a in memory for n in _extents_of_param(a) for v in toposort(n) if is_variable(v))
        numbered = {v: _index_param(v, len(memory) + n) for n, v in enumerate(variables)}
        inner = {v: B.cast(p, v.dtype) if v.dtype is not dt.index else p for v, p in numbered.items()}
        used = {p: scalars[k] for k, p in self.params.items() if k in scalars}
        bound = {p: B.cast(substitute(a, inner), p.dtype) for p, a in used.items()}
        body = bind_accesses_to_loops_and_split_ends(self.body, numbers)
        body = chain_atomic_adds_per_memory_and_loops(body, numbers)  # before any two become equal
        body = substitute(body, bound) if bound else body
        params = [p for p in toposort(body) if p.op is Op.PARAM and p.arg.slot in numbers and not is_variable(p)]
        flat = {p: _flat_param(p, numbers[p.arg.slot], arguments[p.arg.slot], inner) for p in params}
        views = {p: a for p in params if self._may_follow_views(a := self.references[p.arg.slot], p)}
        if views:  # below a view stands a Param of a free slot first, as the new number may be the old one of another Param
            free = 1 + max(p.arg.slot for p in params)
            below = {p: flat[p].replace(arg=replace(flat[p].arg, slot=free + k)) for k, p in enumerate(views)}
            body = substitute(body, {p: _apply_views_to_flat_param(a, below[p], p.shape) for p, a in views.items()})
            flat = {below.get(p, p): f for p, f in flat.items()}
        return replace_params_and_lower_unscheduled_kernel(body, flat), _KeptArguments([*memory, *variables], numbers)

    def _variables_of_scalar(self, a: UOp) -> Iterator[UOp]:
        """Yield the variables of a scalar argument. Raises CompileError if it needs more than these, such as memory."""
        for u in toposort(a):
            if is_variable(u):
                yield u
            elif u.op not in SCALAR_OPS:
                detail = f"the argument of a variable is computed by {u.op.name.lower()}, expected an expression of variables"
                raise untranslatable_error("R86 (Call arguments)", self.call, detail, self.error_root)


class _KeptArguments(NamedTuple):
    """The arguments of a Call without its scalars, and the number of each that is memory by the slot that it had."""

    arguments: list[UOp]
    numbers: dict[int, int]


def _views_of(reference: UOp) -> list[UOp]:
    """Return the views of a reference, outermost first."""
    views = []
    while reference.op in VIEWS:
        views.append(reference)
        reference = reference.src[0]  # operand, or buffer of an After
    return views


def _strip_to_memory(reference: UOp) -> UOp:
    """Return the whole memory below a reference, after the effects that its Afters wait for."""
    memory, dependencies = strip_views_and_collect_dependencies(reference, VIEWS)
    return B.after(memory, *dependencies) if dependencies else memory


def _apply_views_to_flat_param(reference: UOp, flat: UOp, result_shape: Sequence[Dim]) -> UOp:
    """Return a view of a flat Param of the same elements as `reference` has of its memory, in a shape."""
    memory = base_memory(reference)
    view = B.reshape(flat, memory.shape) if flat.shape != memory.shape else flat
    for u in reversed(_views_of(reference)):
        view = view if u.op is Op.AFTER else u.replace(src=(view, *u.src[1:]))  # offsets and extents
    return B.reshape(view, result_shape) if view.shape != tuple(result_shape) else view


def _index_param(variable: UOp, slot: int) -> UOp:
    return UOp(Op.PARAM, (B.SCALAR,), ParamArg(slot, dt.index, name=variable.arg.name, bounds=variable.arg.bounds))


def _extents_of_param(argument: UOp) -> list[UOp]:
    """Return the symbolic extents of an argument that is a Param of the program; a Buffer has as many elements as it may need."""
    memory = strip_afters(argument)
    return [n for n in memory.shape if isinstance(n, UOp)] if memory.op is Op.PARAM else []


def _flat_param(p: UOp, slot: int, argument: UOp, variables: dict[UOp, UOp]) -> UOp:
    """Return a Param of memory with one dimension, at a slot, that has as many elements as the memory of its argument."""
    size: Dim = max_elements(argument.shape)
    if extents := _extents_of_param(argument):
        size = math.prod(n for n in strip_afters(argument).shape if isinstance(n, int))
        for n in extents:
            size = B.mul(substitute(n, variables), dim_node(size))
    return UOp(Op.PARAM, (B.shape_vector((size,)),), replace(p.arg, slot=slot, device=None))


def find_written_slots(body: UOp) -> tuple[int, ...] | None:
    """Return the slots of the Params that a kernel may write; None if nothing is known of it, so that it may write all.

    Native text may write what its operands refer to (R168).
    """
    if body.op is Op.CUSTOM_FUNCTION:
        return None
    order = toposort(body)
    targets = [u.index if u.op is Op.ATOMICADD else u.buffer for u in order if u.op in WRITES]
    targets += [s for u in order if u.op in OPAQUE_INSTRUCTIONS for s in u.src]
    memory = dict.fromkeys(map(base_memory, targets))
    return tuple(sorted(int(m.arg.slot) for m in memory if m.op is Op.PARAM and not is_variable(m)))


def verify_kernel(body: UOp) -> None:
    """Verify the forms of a kernel's body in a launch. Raises SpecError."""
    from uops.spec.verify.verifier import verify  # late: programs of TENSOR do not need it

    params = {p.arg.slot: p for p in toposort(body) if p.op is Op.PARAM}
    unused = B.buffer(1, dt.float32, unique=1)
    arguments = [params.get(k, unused) for k in range(max(params, default=-1) + 1)]
    verify(UOp(Op.LINEAR, (UOp(Op.CALL, (body, *arguments)),)), Dialect.KERNEL)
