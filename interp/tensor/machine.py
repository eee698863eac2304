"""The evaluation of a graph: nodes in dependency order, with a stack of nodes per frame and a stack of frames per run.

A node is one table lookup and one call. The call goes to a kernel of `elementwise` on the arrays of its sources, to a function
of one array, or to an action of `actions`. Sources are reached by recursion, which is faster than a stack, `_ROOM` levels at
most. A node that lies deeper, or waits for another frame, goes on the frame's stack together with the nodes above it, so that
depth is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uops.interp.ops.elementwise import KERNELS
from uops.interp.tensor import memory
from uops.interp.tensor.checks import DTYPES, check_derived_properties, check_min_max, note_call
from uops.interp.tensor.memory import StorageRef, TensorStorage, describe
from uops.interp.tensor.scope import VOID, WAIT, Cell, TensorScope
from uops.interp.tensor.storage import NUMPY, Array, validate_input
from uops.spec.errors import Crash, SpecError, Unsupported, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import Op
from uops.spec.resources import array_bytes_with_symbolic_dims_as_one, describe_memory_excess

_ndarray, _asarray = np.ndarray, np.asarray
#: The Python errors of evaluating an ill-formed node, or one that is too large.
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError)
# Local names: a member is slower to reach through its class.
_BUFFER, _PARAM, _AFTER, _STORE, _LOAD = Op.BUFFER, Op.PARAM, Op.AFTER, Op.STORE, Op.LOAD
_GETTUPLE, _FUNCTION = Op.GETTUPLE, Op.FUNCTION
#: dtype -> NumPy's dtype, where any bits are a value: an array of it needs no validation.
_EVIDENT = {d: NUMPY[d] for d in dt.STORABLE if d is not dt.bool_}
#: dtype -> NumPy's dtype for the array of a scalar; None for index, which may be a Python integer of any size.
_ASARRAY = {**NUMPY, dt.index: None}
#: dtype -> NumPy's dtype of its values, and the bounds of all of them.
_CERTAIN = {**DTYPES, UNSET: (None, None)}
#: Levels of recursion before nodes go on the frame's stack.
_ROOM = 50


class TensorMachine:
    """One run of a tensor graph.

    `storages` holds the memory of every Buffer and free Param met so far. `schedule` and `lanes` are for the run's kernels, and
    `kernel_state` is what these share.
    """

    def __init__(self, inputs: Mapping[str, Any], check: bool, schedule: int | None = None, lanes: bool = False) -> None:
        self.inputs = inputs
        self.check = check
        self.schedule = schedule
        self.lanes = lanes
        self.kernel_state: Any = None
        self.root = TensorScope()
        self.scopes = [self.root]
        self.frames: list[tuple[TensorScope, list[UOp]]] = []
        self.storages: dict[UOp, TensorStorage] = {}
        self.clock = 0

    def clear_cells_to_break_reference_cycles(self) -> None:
        """Break the cycles between scopes and references, so that a run leaves nothing to the garbage collector."""
        for scope in self.scopes:
            scope.cells.clear()
            if scope.inner:
                scope.inner.clear()
        for storage in self.storages.values():
            storage.reads.clear()
            if storage.writes:
                storage.writes.clear()

    # Evaluation

    def evaluate(self, scope: TensorScope, *nodes: UOp) -> None:
        """Give every node of `nodes` a cell in `scope`."""
        frames, cells = self.frames, scope.cells
        depth = len(frames)
        try:
            for u in nodes:
                stack: list[UOp] = []
                if u not in cells and self._evaluate_node_recursively_or_wait(scope, cells, stack, u, _ROOM) is WAIT:
                    frames.insert(depth, (scope, stack[::-1]))
                    while len(frames) > depth:
                        self._resume_frame(*frames[-1])
        except BaseException as e:
            if len(frames) > depth and (call := frames[-1][0].call) is not None:
                note_call(e, call)
            del frames[depth:]
            raise

    def _resume_frame(self, scope: TensorScope, stack: list[UOp]) -> None:
        """Evaluate nodes of the stack until it is empty or another frame lies above this one."""
        cells, depth = scope.cells, len(self.frames)
        while stack:
            u = stack[-1]
            waiting: list[UOp] = []
            if u in cells or self._evaluate_node_recursively_or_wait(scope, cells, waiting, u, _ROOM) is not WAIT:
                stack.pop()
                continue
            stack += waiting[::-1]
            if len(self.frames) != depth:
                return
            if len(waiting) == 1:
                raise Crash(f"{describe(u)} waits for nothing")
        self.frames.pop()

    def _evaluate_node_recursively_or_wait(
        self, scope: TensorScope, cells: dict[UOp, Cell], pending: list[UOp], u: UOp, recursion_levels_left: int
    ) -> Cell:
        """Evaluate `u`, its sources first, and return its cell; or return WAIT.

        In that case `pending` gets the nodes that `u` waits for and then `u`. `recursion_levels_left` is the depth of recursion
        that is left. The speed of the interpreter is the speed of this function.
        """
        try:
            src = u.src
            count, make, kernels, find, action = PLANS[u.op._value_]
            if len(src) == count and (count == 1 or src[1]._spelt.__class__ is tuple):  # extents
                s = src[0]  # operand
                a = (
                    cells[s]
                    if s in cells
                    else self._evaluate_node_recursively_or_wait(scope, cells, pending, s, recursion_levels_left - 1)
                    if recursion_levels_left
                    else WAIT
                )
                if a.__class__ is _ndarray:
                    cell = make(u, a)
                elif a is WAIT:
                    return _push_missing_sources_and_wait(cells, pending, u, src[:1])  # operand
                else:
                    cell = action(self, scope, u, src[:1])  # operand
            elif kernels is not None and len(src) < 3:
                s = src[0]  # operand or lhs
                a = (
                    cells[s]
                    if s in cells
                    else self._evaluate_node_recursively_or_wait(scope, cells, pending, s, recursion_levels_left - 1)
                    if recursion_levels_left
                    else WAIT
                )
                if a is WAIT:
                    return _push_missing_sources_and_wait(cells, pending, u, src)
                d = s._dtype
                kernel = kernels[s.dtype if d is UNSET else d]
                if len(src) == 1:
                    cell = kernel(a if a.__class__ is _ndarray else self.load_if_reference(a))
                else:
                    s = src[1]  # rhs
                    b = (
                        cells[s]
                        if s in cells
                        else self._evaluate_node_recursively_or_wait(scope, cells, pending, s, recursion_levels_left - 1)
                        if recursion_levels_left
                        else WAIT
                    )
                    if b is WAIT:
                        return _push_missing_sources_and_wait(cells, pending, u, src)
                    if a.__class__ is not _ndarray:
                        a = self.load_if_reference(a)
                    cell = kernel(a, b if b.__class__ is _ndarray else self.load_if_reference(b))
            else:
                sources = src if find is None or not src else find(u)
                for s in sources:
                    if s not in cells and (
                        not recursion_levels_left
                        or self._evaluate_node_recursively_or_wait(scope, cells, pending, s, recursion_levels_left - 1) is WAIT
                    ):
                        return _push_missing_sources_and_wait(cells, pending, u, sources)
                cell = action(self, scope, u, sources)
            if cell.__class__ is not _ndarray:
                if cell is VOID or cell.__class__ is StorageRef:
                    cells[u] = cell
                    return cell
                if cell is WAIT:
                    pending.append(u)
                    return WAIT
                d = u._dtype
                cell = _asarray(cell, _ASARRAY[u.dtype if d is UNSET else d])  # a NumPy scalar
            if self.check:
                dtype, whole = _CERTAIN[u._dtype]
                if cell.dtype is not dtype or cell.shape != u._shape:
                    check_derived_properties(u, cell, self, scope)
                elif (bounds := u._min_max) is not whole and (count != 2 or bounds is not src[0]._min_max):  # operand, checked
                    check_min_max(u, cell)
            cells[u] = cell
            return cell
        except _PYTHON_ERRORS as e:
            raise _make_uops_error_from_python_error(u, e) from e

    def shape(self, scope: TensorScope, u: UOp) -> tuple[Any, ...]:
        """Return the derived shape of `u`, its symbolic extents evaluated in `scope` (R48)."""
        shape = u.shape
        for n in shape:
            if n.__class__ is not int:
                return tuple(int(n) if isinstance(n, int) else self.eval_integer(scope, n) for n in shape)
        return shape

    def eval_integer(self, scope: TensorScope, u: UOp) -> int:
        """Return the value of an integer node."""
        self.evaluate(scope, u)
        return int(self.load_if_reference(scope.cells[u]))

    def load_if_reference(self, cell: Cell) -> Array:
        """Return the value of a cell; of a reference by its implicit Load (R51), which happens once per reference."""
        if cell.__class__ is _ndarray:
            return cell
        if cell is VOID:
            raise SpecError("a void node is used as a value")
        value: Array | None = cell.value
        return self._load_and_log_reference(cell) if value is None else value

    def _load_and_log_reference(self, ref: StorageRef) -> Array:
        """Perform the implicit Load of a reference, log the access and return the value."""
        storage = ref.storage
        if storage.ready is not None or ref.may_be_out_of_bounds:
            value = memory.load_elements_zeroing_inactive(ref)
        else:
            value = storage.data if ref.parent is None else memory.view_current_data(ref)
        bit = ref.bit = self.clock
        self.clock = bit + 1
        if storage.write_bits:
            self._check_race_and_record_implicit_read(ref, storage, bit)
        else:  # never written, so there is nothing to race with
            storage.reads.append(ref)
            storage.read_bits |= 1 << bit
        if self.check:
            u = ref.node
            dtype, whole = _CERTAIN[u._dtype]
            if value.dtype is not dtype or value.shape != u._shape:
                check_derived_properties(u, value, self, ref.scope)
            elif u._min_max is not whole:
                check_min_max(u, value)
        ref.value = value
        return value

    def _check_race_and_record_implicit_read(self, ref: StorageRef, storage: TensorStorage, bit: int) -> None:
        """Log a read of a storage that was written.

        Mostly the Afters on the path name every write, and no search is needed.
        """
        before, step = 0, ref
        while step.parent is not None:
            if step.node.op is _AFTER:
                for dep in step.node.dependencies:
                    before |= step.scope.own_accesses.get(dep, 0)
            step = step.parent
        if storage.write_bits & ~before:
            before = self.accesses_before_end_of(ref.scope, ref.node)
        memory.check_race_and_record_read(storage, bit, ref, before)

    # Order of accesses

    def next_access_bit(self) -> int:
        """Return the number of a new access."""
        self.clock += 1
        return self.clock - 1

    def accesses_before_end_of(self, scope: TensorScope, node: UOp) -> int:
        """Return the accesses that happen before the end of `node` in `scope` (R59), as a set of bits; memoized per node."""
        stack = [(scope, node)]
        while stack:
            sc, n = stack[-1]
            if n in sc.masks:
                stack.pop()
                continue
            before = self._list_direct_predecessors_through_functions(sc, n)
            missing = [p for p in before if p[1] not in p[0].masks]
            if missing:
                stack.extend(missing)
                continue
            mask = sc.base_accesses | sc.own_accesses.get(n, 0)
            for k, (ps, pn) in enumerate(before):
                mask |= ps.masks[pn]
                cell = ps.cells.get(pn)
                if (
                    cell.__class__ is StorageRef
                    and cell.bit is not None
                    and not (k == 0 and _uses_source_as_reference(sc.cells.get(n), n))
                ):
                    mask |= 1 << cell.bit
            sc.masks[n] = mask
            stack.pop()
        return scope.masks[node]

    def _list_direct_predecessors_through_functions(self, scope: TensorScope, u: UOp) -> list[tuple[TensorScope, UOp]]:
        """Return the nodes that `u` waits for, each with its scope."""
        if u.op is _GETTUPLE and u.packed.op is _FUNCTION:
            function = u.packed
            return [(scope.inner[function], function.body.src[u.arg.index])]
        if u.op is _FUNCTION:
            return [(scope.inner[u], e) for e in u.body.src]
        if u.op is _PARAM and scope.outer is not None and u.arg.slot is not None:
            return [(scope.outer, scope.args[u.arg.slot])] if scope.call is None else []
        find = PLANS[u.op.value][3]
        return [(scope, s) for s in (u.src if find is None else find(u))]

    # Storages

    def get_or_bind_input_storage(self, buffer_or_param: UOp) -> TensorStorage:
        """Return the memory of a Buffer or free Param; on first use it is the input's array, or uninitialised if there is none."""
        storage = self.storages.get(buffer_or_param)
        if storage is not None:
            return storage
        a = buffer_or_param.arg
        key = f"b{a.unique}" if buffer_or_param.op is _BUFFER else f"p{a.slot}"
        contents = self.inputs.get(key)
        if contents is None:
            storage = self._allocate_or_reject_missing_input(buffer_or_param, key)
        else:
            if (
                contents.__class__ is not _ndarray
                or contents.dtype is not _EVIDENT.get(a.dtype)
                or contents.shape != buffer_or_param._shape
            ):
                contents = validate_input(key, contents, a.dtype, self.shape(self.root, buffer_or_param))
            storage = TensorStorage(key, contents, None)
        self.storages[buffer_or_param] = storage
        return storage

    def _allocate_or_reject_missing_input(self, u: UOp, key: str) -> TensorStorage:
        """Return uninitialised memory for a Buffer without an input. Raises SpecError for a Param."""
        a = u.arg
        if u.op is not _BUFFER:
            raise SpecError(f"input {key!r} is missing: {a.dtype} of shape {self.shape(self.root, u)}")
        if a.addrspace is not AddrSpace.GLOBAL:
            raise SpecError(f"a {a.addrspace.name} Buffer is not in the TENSOR dialect")
        data = np.zeros(u.shape, NUMPY[a.dtype])
        return TensorStorage(key, data, np.zeros(data.shape, f"u{data.itemsize}"))


def _push_missing_sources_and_wait(cells: Mapping[UOp, Cell], pending: list[UOp], u: UOp, sources: Sequence[UOp]) -> Any:
    """Add `u` and its sources without a cell to `pending`, and return WAIT."""
    pending.extend([s for s in sources if s not in cells])
    pending.append(u)
    return WAIT


def _uses_source_as_reference(cell: Cell, u: UOp) -> bool:
    """Return True if `u` uses its first source as a reference, without reading it as a whole."""
    return cell.__class__ is StorageRef or u.op is _STORE or (u.op is _LOAD and len(u.src) > 1)


def _make_uops_error_from_python_error(u: UOp, e: Exception) -> Exception:
    """Return the error that a Python error while evaluating `u` stands for.

    It is SpecError for an ill-formed node and Unsupported for one that is too large.
    """
    try:
        sources = [(s.dtype, s.shape) for s in u.src]
        _ = u.dtype, u.shape, u.min_max
    except UopsError as error:
        return error
    why = describe_memory_excess(array_bytes_with_symbolic_dims_as_one(u.dtype, u.shape))
    if why or isinstance(e, MemoryError):
        return Unsupported(f"{describe(u)} of shape {u.shape}: {why or e or 'out of memory'}", "interp")
    kernels = KERNELS.get(u.op)
    if kernels is not None and sources and sources[0][0] not in kernels:
        return SpecError(f"{describe(u)} is not defined on {sources[0][0]} (R09, R10)")
    return Crash(f"{describe(u)} cannot be evaluated on {sources}: {type(e).__name__}: {e}")


def reject_foreign_op(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Raise SpecError: the action of an op that no tensor graph has."""
    raise SpecError(f"{u.op.name} is not in the TENSOR dialect")


#: (machine, scope, node, its evaluated sources) -> cell.
Action = Callable[[TensorMachine, TensorScope, UOp, Sequence[UOp]], Cell]
#: A function that gives the sources to evaluate before a node, where they are not all of `src`.
FindSources = Callable[[UOp], tuple[UOp, ...]]
#: Dispatch table by the op's number: (count, make, kernels, find, action), filled by `uops.interp.tensor.actions`. `make` gives the
#: value of a node from its operand's array, if it has `count` sources, of which a second one is constant extents. `kernels` are its
#: kernels per dtype, `find` the sources to evaluate first, `action` what evaluates it otherwise.
PLANS: list[tuple[int, Any, Any, FindSources | None, Action]] = [(-1, None, None, None, reject_foreign_op)] * (
    max(op.value for op in Op) + 1
)
