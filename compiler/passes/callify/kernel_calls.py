"""Calls of kernels in a program: their bodies in the forms of a launch, their arguments as whole memory.

Takes: a program without Functions, whose Calls have kernels as bodies. Gives: the same program. Each body has the forms of
SCHEDULED or LINEAR, and each argument is a Buffer, a Param, a variable, or a Contiguous value. Spec: Call, Param; R51 (references
and values), R63 (Call), R86 (Call arguments), R166 (kernels written by hand).

A kernel takes memory of one dimension. Its multi-dimensional Params become flat, and a reference that it uses as a value becomes a
Load. An argument that is a value is stored first. One that is a part or a view of a memory is copied to memory of its own, and back
where the Call writes it. A scalar argument becomes part of the body, as an expression of variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.ir.extents import max_elements
from uops.compiler.place import untranslatable_error
from uops.spec.errors import SpecError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, CallArg, ParamArg, SinkArg
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, EFFECT_GROUPS, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import BASES, VIEWS, base_memory, is_variable
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: Views that keep all elements of a memory in order.
_WHOLE_VIEWS = frozenset({Op.AFTER, Op.RESHAPE})
#: Ops whose first source is a reference that they access or pass on.
_REFERENCE_USERS = frozenset({Op.INDEX, Op.LOAD, Op.STORE, Op.ATOMICADD, Op.AFTER})
#: Ops that order or close effects: their sources are no values.
_VALUE_USERS = ALU | {
    Op.REDUCE,
    Op.STORE,
    Op.LOAD,
    Op.INDEX,
    Op.ATOMICADD,
    Op.STACK,
    Op.WMMA,
    Op.CAST,
    Op.CUSTOM,
    Op.CUSTOMI,
    Op.INS,
}


#: Ops of a scalar argument that the caller's variables determine.
_SCALAR_OPS = ALU | {Op.CONST, Op.CAST, Op.STACK}


class MemoryCallProgram(NamedTuple):
    """A program whose Calls take whole memory, and the Buffers that were made for copies of arguments."""

    root: UOp
    temporaries: frozenset[UOp]


def pass_memory_to_kernel_calls(root: UOp, first_unique: int) -> MemoryCallProgram:
    """Bring each Call of a kernel into the form of a launch. New Buffers are numbered from `first_unique`.

    Raises SpecError for a kernel that breaks a claim of its dialect, CompileError for arguments that no launch can have.
    """
    order = order_outside_kernels(root)
    if not any(u.op is Op.CALL for u in order):
        return MemoryCallProgram(root, frozenset())
    done: dict[UOp, UOp] = {}
    temporaries: list[UOp] = []
    for u in order:
        if done.keys().isdisjoint(u.src) and u.op is not Op.CALL:
            continue
        if u.op is Op.CALL:
            call = u.replace(src=(u.body, *[done.get(a, a) for a in u.arguments]))
            done[u] = _CallInMemory(call, root, first_unique + len(temporaries), temporaries).build()
        else:
            done[u] = u.replace(src=tuple([done.get(s, s) for s in u.src]))
    return MemoryCallProgram(done.get(root, root), frozenset(temporaries))


class _CallInMemory:
    """One Call under conversion. `temporaries` receives the Buffers that it needs."""

    def __init__(self, call: UOp, error_root: UOp, first_unique: int, temporaries: list[UOp]) -> None:
        self.call, self.error_root, self.temporaries, self.next_unique = call, error_root, temporaries, first_unique
        self.body = call.body
        self.params = {p.arg.slot: p for p in toposort(call.body) if p.op is Op.PARAM and p.arg.slot is not None}
        self.copies_back: list[tuple[UOp, UOp]] = []  # the reference that is written, the memory that holds its elements

    def build(self) -> UOp:
        """Return the Call, or a Group of it and of the Stores that write copies back."""
        written = find_written_slots(self.body) if self.call.arg is None or self.call.arg.written is None else self.call.arg.written
        written = tuple(range(len(self.call.arguments))) if written is None else written
        self._refuse_shared_memory(written)
        arguments = [self._pass_argument(k, a, k in written) for k, a in enumerate(self.call.arguments)]
        body, kept = self._bind_scalars_and_number_memory(arguments)
        slots = tuple(n for n, k in enumerate(kept.slots) if k in written)
        verify_kernel(body)
        call = UOp(Op.CALL, (body, *kept.arguments), CallArg(written=slots))
        stores = [B.store(target, B.reshape(B.after(memory, call), target.shape)) for target, memory in self.copies_back]
        return B.group(call, *stores) if stores else call

    def _refuse_shared_memory(self, written: tuple[int, ...]) -> None:
        """Raise CompileError if two arguments share memory that the Call writes, unless they are the same reference."""
        memory = [base_memory(a) for a in self.call.arguments]
        for k in written:
            for j, m in enumerate(memory):
                if j != k and m is memory[k] and m.op in BASES and self.call.arguments[j] is not self.call.arguments[k]:
                    detail = f"arguments {min(j, k)} and {max(j, k)} are different views of one memory, which the Call writes"
                    raise untranslatable_error("R166 (kernels written by hand)", self.call, detail, self.error_root)

    def _pass_argument(self, slot: int, a: UOp, is_written: bool) -> UOp:
        """Return the memory, value or scalar to pass for argument `a`."""
        p = self.params.get(slot)
        if p is not None and is_variable(p):
            return a
        base, dependencies = _strip_whole_views(a)
        if base.op in MEMORY_ROOTS and not is_variable(base) and (p is None or base.dtype is p.dtype):
            return B.after(base, *dependencies) if dependencies else base
        if not is_written:
            return B.contiguous(a)
        temporary = self._make_temporary(a)
        if base_memory(a).op in MEMORY_ROOTS:
            self.copies_back.append((a, temporary))
        flat = B.reshape(temporary, a.shape) if a.shape != temporary.shape else temporary
        return B.after(temporary, B.store(flat, a))

    def _make_temporary(self, a: UOp) -> UOp:
        device = a.device if isinstance(a.device, str) else "CPU"
        arg = BufferArg(max_elements(a.shape), a.dtype.storage, device, AddrSpace.GLOBAL, self.next_unique)
        self.next_unique += 1
        self.temporaries.append(UOp(Op.BUFFER, (), arg))
        return self.temporaries[-1]

    def _bind_scalars_and_number_memory(self, arguments: list[UOp]) -> tuple[UOp, _KeptArguments]:
        """Put scalar arguments into the body, and number its memory from 0, the variables of the scalars last."""
        scalars = {k: a for k, a in enumerate(arguments) if k in self.params and is_variable(self.params[k])}
        memory = [k for k in range(len(arguments)) if k not in scalars]
        variables = dict.fromkeys(v for a in scalars.values() for v in self._variables_of_scalar(a))
        numbered = {v: _index_param(v, len(memory) + n) for n, v in enumerate(variables)}
        inner = {v: B.cast(p, v.dtype) if v.dtype is not dt.index else p for v, p in numbered.items()}
        replacements = {self.params[k]: _cast(substitute(a, inner), self.params[k].dtype) for k, a in scalars.items()}
        for n, k in enumerate(memory):
            if k in self.params:
                replacements[self.params[k]] = _flat_param(self.params[k], n)
        kept = _KeptArguments([arguments[k] for k in memory] + list(variables), memory)
        return _write_in_launch_forms(self.body, replacements), kept

    def _variables_of_scalar(self, a: UOp) -> Iterator[UOp]:
        """Yield the variables of a scalar argument. Raises CompileError if it needs more than these, such as memory."""
        for u in toposort(a):
            if is_variable(u):
                yield u
            elif u.op not in _SCALAR_OPS:
                detail = f"the argument of a variable is computed by {u.op.name.lower()}, expected an expression of variables"
                raise untranslatable_error("R86 (Call arguments)", self.call, detail, self.error_root)


class _KeptArguments(NamedTuple):
    """The arguments of a Call without its scalars, and the slots that those which are memory had."""

    arguments: list[UOp]
    slots: list[int]


def _strip_whole_views(reference: UOp) -> tuple[UOp, list[UOp]]:
    """Return what a reference is a view of without Afters and Reshapes, and the effects that the Afters wait for."""
    dependencies: list[UOp] = []
    while reference.op in _WHOLE_VIEWS:
        if reference.op is Op.AFTER:
            dependencies += reference.dependencies
        reference = reference.src[0]  # operand, or buffer of an After
    return reference, dependencies


def _index_param(variable: UOp, slot: int) -> UOp:
    return UOp(Op.PARAM, (B.SCALAR,), ParamArg(slot, dt.index, name=variable.arg.name, bounds=variable.arg.bounds))


def _cast(u: UOp, d: dt.DType) -> UOp:
    return u if u.dtype is d else B.cast(u, d)


def _flat_param(p: UOp, slot: int) -> UOp:
    """Return a Param of memory with one dimension, at a slot."""
    size: Dim = math.prod(n for n in p.shape if isinstance(n, int))
    for n in p.shape:
        size = B.mul(n, dim_node(size)) if isinstance(n, UOp) else size
    return UOp(Op.PARAM, (B.shape_vector((size,)),), replace(p.arg, slot=slot, device=None))


def find_written_slots(body: UOp) -> tuple[int, ...] | None:
    """Return the slots of the Params that a kernel may write; None if nothing is known of it, so that it may write all."""
    order = toposort(body)
    if body.op is Op.CUSTOM_FUNCTION or any(u.op in OPAQUE_INSTRUCTIONS for u in order):
        return None
    targets = [u.index if u.op is Op.ATOMICADD else u.buffer for u in order if u.op in (Op.STORE, Op.ATOMICADD)]
    memory = dict.fromkeys(map(base_memory, targets))
    return tuple(sorted(int(m.arg.slot) for m in memory if m.op is Op.PARAM))


def verify_kernel(body: UOp) -> None:
    """Verify the forms of a kernel's body in a launch. Raises SpecError."""
    params = {p.arg.slot: p for p in toposort(body) if p.op is Op.PARAM}
    unused = B.buffer(1, dt.float32, unique=1)
    arguments = [params.get(k, unused) for k in range(max(params, default=-1) + 1)]
    verify(UOp(Op.LINEAR, (UOp(Op.CALL, (body, *arguments)),)), Dialect.KERNEL)


def _write_in_launch_forms(body: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Return the body with its Params replaced, flat memory, explicit Loads and a named Sink."""
    done: dict[UOp, UOp] = {}
    for u in toposort(body):
        if u in replacements:
            done[u] = replacements[u]
            continue
        src = [done[s] for s in u.src]
        if u.op is Op.INDEX and len(u.operand.shape) > 1 and strip_to_base(u.operand) in replacements:
            src = [src[0], _flatten_positions(u, src[1:])]
        if u.op in _VALUE_USERS:
            src = [B.load(s) if _is_used_as_value(u, k) else s for k, s in enumerate(src)]
        done[u] = u if tuple(src) == u.src else u.replace(src=tuple(src))
    root = done[body]
    if root.op in (Op.LINEAR, Op.PROGRAM, Op.CUSTOM_FUNCTION):
        return root
    effects = root.src if root.op in EFFECT_GROUPS else (root,)
    name = root.arg.name if root.op is Op.SINK and root.arg is not None else "kernel"
    return UOp(Op.SINK, effects, SinkArg(name, scheduled=True))


def strip_to_base(reference: UOp) -> UOp:
    """Return the memory below the Afters of a reference."""
    while reference.op is Op.AFTER:
        reference = reference.buffer
    return reference


def _flatten_positions(index: UOp, positions: list[UOp]) -> UOp:
    """Return the row-major position of an Index of all axes of a memory."""
    shape = index.operand.shape
    if len(positions) != len(shape):
        raise SpecError(f"an Index of {len(shape)} axes in a kernel has {len(positions)} positions, expected one per axis (R166)")
    flat = positions[0]
    for n, i in zip(shape[1:], positions[1:]):
        flat = B.add(B.mul(flat, dim_node(n)), i)
    return flat


def _is_used_as_value(user: UOp, position: int) -> bool:
    """Return True if a source of `user` is a reference of which the elements are used."""
    s = user.src[position]
    if position == 0 and user.op in _REFERENCE_USERS:
        return False
    return s.op in VIEWS | BASES and s.dtype is not dt.index and not is_variable(s) and _leads_to_memory(s)


def _leads_to_memory(reference: UOp) -> bool:
    base = base_memory(reference)
    return base.op in BASES and not is_variable(base)
