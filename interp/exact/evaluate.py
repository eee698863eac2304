"""Evaluates a graph of the TENSOR dialect, every value of at most `limit` elements (tinyspec, all tables but Codegen).

Takes: a root and inputs by name. Gives: arrays of allowed answers. A node's answers are computed from its operands' *canonical*
bits, so each set judges one op; sets do not grow along the graph. One node has one value per run (R27). Iterative: depth is not
limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from uops.interp.exact.answers import Answer, Level
from uops.interp.exact.inputs import Inputs, elements
from uops.interp.exact.memory import Memory
from uops.interp.exact.values import Array, Ref, Storage, answers, whole
from uops.spec.errors import Crash, SpecError, Trap, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result


class Slot(NamedTuple):
    """What a node gave: a value, a reference, the slots of a Tuple, or nothing (void); `mask` is what happened before it."""

    value: Array | Ref | Pack | None
    mask: int


class Pack(NamedTuple):
    """What Tuple, Function, Sink and Group gave."""

    slots: tuple[Slot, ...]


class Frame:
    """One level of substitution: the arguments that Params stand for, None at the top (R64)."""

    __slots__ = ("args", "children", "done")

    def __init__(self, args: tuple[Slot, ...] | None) -> None:
        self.args = args
        self.done: dict[UOp, Slot] = {}
        self.children: dict[UOp, Frame] = {}


class Machine:
    """State of one run."""

    def __init__(self, inputs: Inputs, limit: int, level: Level) -> None:
        self.inputs = inputs
        self.limit = limit
        self.level = level
        self.memory = Memory()

    def storage(self, name: str, u: UOp, size: int) -> Storage:
        """The storage of a Buffer or free Param, made on first use with its initial contents."""
        found = self.memory.storages.get(name)
        if found is None:
            self.check_size(u, size)
            found = self.memory.storages[name] = Storage(name, u.dtype, size)
            if name in self.inputs:
                w = u.dtype.itemsize
                for k, a in enumerate(elements(name, u.dtype, size, self.inputs[name])):
                    found.put(range(k * w, k * w + w), a)
        elif found.dtype is not u.dtype or found.size != size:
            raise SpecError(f"{name} is used as {u.dtype.name} x {size} and as {found.dtype.name} x {found.size}")
        return found

    def check_size(self, u: UOp, size: int) -> None:
        if size > self.limit:
            raise Unsupported(f"{u.op.name} of {size} elements (the limit is {self.limit})", "the scalar interpreter")

    def evaluate(self, root: UOp) -> Slot:
        """The slot of `root`, its sources first."""
        top = Frame(None)
        stack = [(top, root)]
        while stack:
            frame, u = stack[-1]
            if u in frame.done:
                stack.pop()
                continue
            missing = [s for s in _operands(u) if s not in frame.done]
            if missing:
                stack.extend((frame, s) for s in reversed(missing))
                continue
            body = self._body(frame, u)
            if body is not None and body[1] not in body[0].done:
                stack.append(body)
                continue
            frame.done[u] = Task(self, frame, u).evaluate()
            stack.pop()
        return top.done[root]

    @staticmethod
    def _body(frame: Frame, u: UOp) -> tuple[Frame, UOp] | None:
        if u.op not in BODIED:
            return None
        child = frame.children.get(u)
        if child is None:
            child = frame.children[u] = Frame(tuple(frame.done[a] for a in u.src[1:]))
        return child, u.src[0]


BODIED = frozenset({Op.FUNCTION, Op.CALL})


def _operands(u: UOp) -> tuple[UOp, ...]:
    return u.src[1:] if u.op in BODIED else u.src


class Task:
    """The evaluation of one node: access to its operands, and the accesses that happened before its result."""

    def __init__(self, machine: Machine, frame: Frame, u: UOp) -> None:
        self.machine = machine
        self.memory = machine.memory
        self.frame = frame
        self.u = u
        self.mask = 0
        for s in _operands(u):
            self.mask |= frame.done[s].mask

    def evaluate(self) -> Slot:
        handler = HANDLERS.get(self.u.op)
        if handler is None:
            raise Unsupported(self.u.op.name, "the scalar interpreter")
        result = handler(self)
        if isinstance(result, Slot):
            return result
        if isinstance(result, Array | Ref):
            self._check(result)
        return Slot(result, self.mask)

    def _check(self, result: Array | Ref) -> None:
        """The derived dtype and constant extents must be those found."""
        u = self.u
        fixed = [(n, m) for n, m in zip(u.shape, result.shape, strict=False) if isinstance(n, int)]
        if u.dtype is not result.dtype or len(u.shape) != len(result.shape) or any(n != m for n, m in fixed):
            raise Crash(f"{u!r}: derived {u.dtype.name}{u.shape}, evaluated {result.dtype.name}{result.shape}")

    def slot(self, k: int) -> Slot:
        return self.frame.done[self.u.src[k]]

    def raw(self, k: int) -> Array | Ref:
        """Operand k without reading it: a reference stays one."""
        return self.operand(self.u.src[k])

    def operand(self, u: UOp) -> Array | Ref:
        """What an evaluated node of this frame gave."""
        v = self.frame.done[u].value
        if isinstance(v, Array | Ref):
            return v
        raise SpecError(f"{u.op.name}, a source of {self.u.op.name}, has no value")

    def value(self, k: int) -> Array:
        """Operand k as a value; a reference is loaded (R51)."""
        return self.read(self.raw(k))

    def read(self, v: Array | Ref) -> Array:
        if isinstance(v, Array):
            return v
        out = self.memory.implicit_load(v)
        self.mask |= v.access
        return out

    def dims(self, k: int) -> tuple[int, ...]:
        """Operand k as a shape or offset vector (R40)."""
        v = self.value(k)
        if len(v.shape) != 1 or not v.dtype.is_integer:
            raise SpecError(f"R40: source {k} of {self.u.op.name} is no vector of index values")
        return integers(v)

    def gate(self, k: int, count: int) -> list[bool]:
        """Operand k as a gate over `count` elements (R52)."""
        bits = [a.best != 0 for a in answers(self.value(k))]
        return bits * count if self.value(k).shape == () else bits

    def reject(self, message: str) -> Exception:
        """SpecError where the operands that decide are constants, else the Trap of a run-time size (R48)."""
        text = f"{message} [{self.u.op.name}]"
        return SpecError(text) if all(_constant(s) for s in self.u.src[1:]) else Trap(text)

    def sized(self, shape: Sequence[int]) -> None:
        self.machine.check_size(self.u, prod(shape))


def integers(v: Array) -> tuple[int, ...]:
    return tuple(int(n) for n in v.numbers if n is not None)


def _constant(u: UOp) -> bool:
    return u.op is Op.CONST or (u.op is Op.STACK and all(s.op is Op.CONST for s in u.src))


Handler = Callable[[Task], Array | Ref | Slot | Pack | None]
#: Op -> its evaluation; filled by `handlers`, which the package imports.
HANDLERS: dict[Op, Handler] = {}


def run(root: UOp, inputs: Inputs, limit: int = 64, level: Level = "strict") -> Result:
    """Evaluate `root`.

    `inputs`: `p<slot>` for a free Param, `b<unique>` for a Buffer's initial contents (absent: uninitialised), a variable's name for
    a named Param; each a flat row-major sequence of Python numbers, or `Bits`. Gives a Result of `Array`s: a value root gives one;
    Tuple and Function one per element; Sink and Group one per source that is not void; Store and Call none. `buffers` holds each
    Buffer (and free Param, `p<slot>`) written. Raises Trap and SpecError as the specification does, Unsupported for a value above
    `limit` elements and for ops outside the dialect.
    """
    machine = Machine(inputs, limit, level)
    values = tuple(_results(machine, root))
    written = {s.name: s.contents() for s in machine.memory.storages.values() if s.written}
    return Result(values, written)


def _results(machine: Machine, root: UOp) -> list[Array]:
    slot = machine.evaluate(root)
    found = [s.value for s in slot.value.slots] if isinstance(slot.value, Pack) else [slot.value]
    out = []
    for v in found:
        if isinstance(v, Ref):
            v = machine.memory.implicit_load(v)
        if isinstance(v, Array):
            out.append(v)
    return out


def best(elements: Sequence[Answer]) -> list[int]:
    return [a.best for a in elements]


__all__ = ["HANDLERS", "Array", "Frame", "Handler", "Machine", "Pack", "Ref", "Slot", "Task", "best", "integers", "run", "whole"]
