"""Evaluation of a graph of the TENSOR dialect, with values of at most `limit` elements (tinyspec, all tables but Codegen).

Takes: a root and inputs by name. Gives: arrays of allowed answers. The answers of a node are computed from its operands'
*canonical* bits. So each set judges one op, and sets do not grow along the graph. One node has one value per run (R27). The
evaluation is iterative, so the depth of a graph is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from uops.interp.exact.answers import AnswerSet, Level
from uops.interp.exact.inputs import Inputs, check_and_convert_input
from uops.interp.exact.memory import ExactMemory
from uops.interp.exact.values import Array, ExactRef, ExactStorage, elements_of
from uops.spec.errors import Crash, SpecError, Trap, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import CALL_LIKE, Op
from uops.spec.ir.scope import is_variable, scope_nodes
from uops.spec.result import Result
from uops.spec.verify.verifier import verify


class NodeResult(NamedTuple):
    """The result of a node: a value, a reference, a Tuple's results, or nothing (void).

    `happened_before` has bit k set if access k happened before the result.
    """

    value: Array | ExactRef | ResultTuple | None
    happened_before: int


class ResultTuple(NamedTuple):
    """The results of a Tuple, Function, Sink or Group."""

    results: tuple[NodeResult, ...]


class SubstitutionFrame:
    """One level of substitution: the arguments that Params stand for, None at the top (R64: a Function is its substituted body).

    A Call passes memory (R86) and runs its body after all of its arguments (R63). `happened_before` has the accesses before that.
    """

    __slots__ = ("args", "children", "done", "happened_before", "is_call")

    def __init__(self, args: tuple[NodeResult, ...] | None, is_call: bool = False, happened_before: int = 0) -> None:
        self.args = args
        self.is_call = is_call
        self.happened_before = happened_before
        self.done: dict[UOp, NodeResult] = {}
        self.children: dict[UOp, SubstitutionFrame] = {}


class ExactMachine:
    """The state of one run."""

    def __init__(self, inputs: Inputs, limit: int, level: Level) -> None:
        self.inputs = inputs
        self.limit = limit
        self.level = level
        self.memory = ExactMemory()

    def get_or_create_storage_filled_if_input(self, name: str, u: UOp, size: int) -> ExactStorage:
        """Return the storage of a Buffer or free Param, made on first use with its initial contents.

        Raises SpecError if two nodes use the name with different dtypes or sizes.
        """
        storage = self.memory.storages.get(name)
        if storage is None:
            self.check_size(u, size)
            storage = self.memory.storages[name] = ExactStorage(name, u.dtype, size)
            if name in self.inputs:
                width = u.dtype.itemsize
                for k, answer in enumerate(check_and_convert_input(name, u.dtype, size, self.inputs[name])):
                    storage.write_element(range(k * width, k * width + width), answer)
        elif storage.dtype is not u.dtype or storage.size != size:
            raise SpecError(f"{name} is used as {u.dtype.name} x {size} and as {storage.dtype.name} x {storage.size}")
        return storage

    def check_size(self, u: UOp, size: int) -> None:
        """Raise Unsupported for a value of more elements than the limit."""
        if size > self.limit:
            raise Unsupported(f"{u.op.name} of {size} elements (the limit is {self.limit})", "the scalar interpreter")

    def evaluate(self, root: UOp) -> NodeResult:
        """Return the result of `root`, after that of every node below it."""
        top = SubstitutionFrame(None)
        stack = [(top, root)]
        while stack:
            frame, u = stack[-1]
            if u in frame.done:
                stack.pop()
                continue
            missing = [s for s in _evaluated_sources(u) if s not in frame.done]
            if missing:
                stack.extend((frame, s) for s in reversed(missing))
                continue
            body = self._find_or_make_call_frame_and_body(frame, u)
            if body is not None and body[1] not in body[0].done:
                stack.append(body)
                continue
            frame.done[u] = NodeEvaluation(self, frame, u).evaluate()
            stack.pop()
        return top.done[root]

    def _find_or_make_call_frame_and_body(self, frame: SubstitutionFrame, u: UOp) -> tuple[SubstitutionFrame, UOp] | None:
        """Return the frame and the root of a Function's or Call's body; None for other nodes."""
        if u.op not in CALL_LIKE:
            return None
        child = frame.children.get(u)
        if child is None:
            args = tuple(frame.done[a] for a in u.arguments)
            child = frame.children[u] = self._make_call_frame(u, args) if u.op is Op.CALL else SubstitutionFrame(args)
        return child, u.body

    def _make_call_frame(self, u: UOp, args: tuple[NodeResult, ...]) -> SubstitutionFrame:
        """Return the frame of a Call's body; variables are read before it runs."""
        happened_before = 0
        for argument in args:
            happened_before |= argument.happened_before
        for slot in sorted({p.arg.slot for p in scope_nodes(u.body) if is_variable(p)} & set(range(len(args)))):
            v = args[slot].value
            if isinstance(v, ExactRef) and v.shape == () and v.dtype.is_integer:
                self.memory.implicit_load_once(v)
                happened_before |= v.access
        return SubstitutionFrame(args, True, happened_before)


def _evaluated_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the sources that are evaluated in the frame of `u`: all but a body."""
    return u.arguments if u.op in CALL_LIKE else u.src


class NodeEvaluation:
    """The evaluation of one node: access to its operands, and the accesses that happened before its result."""

    def __init__(self, machine: ExactMachine, frame: SubstitutionFrame, u: UOp) -> None:
        self.machine = machine
        self.memory = machine.memory
        self.frame = frame
        self.u = u
        self.happened_before = frame.happened_before
        for s in _evaluated_sources(u):
            self.happened_before |= frame.done[s].happened_before

    def evaluate(self) -> NodeResult:
        """Return the result of the node; Unsupported if its op is outside the dialect."""
        handler = HANDLERS.get(self.u.op)
        if handler is None:
            raise Unsupported(self.u.op.name, "the scalar interpreter")
        result = handler(self)
        if isinstance(result, NodeResult):
            return result
        if isinstance(result, Array | ExactRef):
            self._crash_unless_result_has_derived_type(result)
        return NodeResult(result, self.happened_before)

    def _crash_unless_result_has_derived_type(self, result: Array | ExactRef) -> None:
        """Raise Crash unless the derived dtype and constant extents are the evaluated ones."""
        u = self.u
        fixed = [(n, m) for n, m in zip(u.shape, result.shape, strict=False) if isinstance(n, int)]
        if u.dtype is not result.dtype or len(u.shape) != len(result.shape) or any(n != m for n, m in fixed):
            raise Crash(f"{u!r}: derived {u.dtype.name}{u.shape}, evaluated {result.dtype.name}{result.shape}")

    def result_of(self, operand: UOp) -> NodeResult:
        """Return the result of an operand, which may be void."""
        return self.frame.done[operand]

    def read_without_load(self, operand: UOp) -> Array | ExactRef:
        """Return an operand without a Load: a reference stays one. Raises SpecError for a void operand."""
        v = self.frame.done[operand].value
        if isinstance(v, Array | ExactRef):
            return v
        raise SpecError(f"{operand.op.name}, a source of {self.u.op.name}, has no value")

    def value_of(self, operand: UOp) -> Array:
        """Return an operand as a value; a reference is loaded (R51: its implicit Load)."""
        return self.load_if_reference(self.read_without_load(operand))

    def load_if_reference(self, v: Array | ExactRef) -> Array:
        """Return a value, or the implicit Load of a reference, which then happened before this node's result."""
        if isinstance(v, Array):
            return v
        loaded = self.memory.implicit_load_once(v)
        self.happened_before |= v.access
        return loaded

    def require_canonical_integer_vector(self, operand: UOp) -> tuple[int, ...]:
        """Return an operand as a shape or a vector of offsets. Raises SpecError for another value (R40)."""
        v = self.value_of(operand)
        if len(v.shape) != 1 or not v.dtype.is_integer:
            got = f"{v.dtype.name}{v.shape}"
            raise SpecError(f"R40: {self.u.op.name} needs a vector of index values as a shape or offset, got {got}")
        return integers(v)

    def canonical_gate_mask(self, gate: UOp, count: int) -> list[bool]:
        """Return a gate's bool per element of `count` elements; one of shape () is repeated (R52)."""
        v = self.value_of(gate)
        bits = [a.best != 0 for a in elements_of(v)]
        return bits * count if v.shape == () else bits

    def make_rejection(self, message: str, *sizes: UOp) -> Exception:
        """Return the error for operands that do not fit: SpecError if the sizes are constants, else a Trap (R48)."""
        text = f"{message} [{self.u.op.name}]"
        return SpecError(text) if all(_is_constant(s) for s in sizes) else Trap(text)

    def check_size(self, shape: Sequence[int]) -> None:
        """Raise Unsupported for a value of this shape with more elements than the limit."""
        self.machine.check_size(self.u, prod(shape))


def integers(v: Array) -> tuple[int, ...]:
    """Return the canonical values of an array of integers or bools as Python ints."""
    return tuple(int(n) for n in v.numbers if n is not None)


def _is_constant(u: UOp) -> bool:
    return u.op is Op.CONST or (u.op is Op.STACK and all(s.op is Op.CONST for s in u.elements))


#: The evaluation of one op.
Handler = Callable[[NodeEvaluation], Array | ExactRef | NodeResult | ResultTuple | None]
#: op -> its evaluation; filled by `actions`, which the package imports
HANDLERS: dict[Op, Handler] = {}


def run(root: UOp, inputs: Inputs, max_elements: int = 64, level: Level = "strict", *, check: bool = True) -> Result:
    """Evaluate `root` on `inputs`.

    - `inputs` has `p<slot>` for a free Param, `b<unique>` for a Buffer's initial contents (absent: uninitialised), and a
      variable's name for a named Param. Each is a flat row-major sequence of Python numbers, or `Bits`.

    Returns a Result of `Array`s. A value root gives one, Tuple and Function one per element, Sink and Group one per source that
    is not void, Store and Call none. `buffers` holds each Buffer and free Param that was written. With `check`, the claims of all
    rows are verified first.

    Raises Trap and SpecError as the specification does, and Unsupported for a value above `max_elements` elements or an op outside
    the dialect.
    """
    if check:
        verify(root)
    machine = ExactMachine(inputs, max_elements, level)
    values = tuple(_evaluate_and_collect_values(machine, root))
    written = {s.name: s.contents_or_none_where_unwritten() for s in machine.memory.storages.values() if s.written}
    return Result(values, written)


def _evaluate_and_collect_values(machine: ExactMachine, root: UOp) -> list[Array]:
    """Return the values of `root`, references loaded, without void ones."""
    result = machine.evaluate(root).value
    values = []
    for v in [r.value for r in result.results] if isinstance(result, ResultTuple) else [result]:
        if isinstance(v, ExactRef):
            values.append(machine.memory.implicit_load_once(v))
        elif isinstance(v, Array):
            values.append(v)
    return values


def canonical_bits(elements: Sequence[AnswerSet]) -> list[int]:
    """Return the canonical bits of some elements."""
    return [a.best for a in elements]
