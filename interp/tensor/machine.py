"""The evaluation of a graph: nodes in dependency order, with a stack of nodes per frame and a stack of frames per run.

A node is one table lookup and one call: a kernel of `elementwise` on the arrays of its sources, what makes a value of an array
alone, or an action of `actions`. Sources are reached by recursion, which is faster than a stack, `_ROOM` levels at most; what lies
deeper, or waits for another frame, goes on the frame's stack together with the nodes above it, so that depth is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uops.interp.ops.elementwise import KERNELS
from uops.interp.tensor import memory
from uops.interp.tensor.checks import DTYPES, check_bounds, check_value
from uops.interp.tensor.memory import Ref, Storage, describe
from uops.interp.tensor.scope import VOID, WAIT, Cell, Scope
from uops.interp.tensor.storage import NUMPY, Array, validated
from uops.spec.errors import Crash, SpecError, Unsupported, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import Op
from uops.spec.resources import excess, nbytes

_ndarray, _asarray = np.ndarray, np.asarray
#: What an ill-formed node, or one that is too large, makes Python raise.
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError)
# A member is slow to reach through its class.
_BUFFER, _PARAM, _AFTER, _STORE, _LOAD = Op.BUFFER, Op.PARAM, Op.AFTER, Op.STORE, Op.LOAD
_GETTUPLE, _FUNCTION = Op.GETTUPLE, Op.FUNCTION
#: The NumPy dtypes any bits of which are a value of the dtype.
_EVIDENT = {d: NUMPY[d] for d in dt.STORABLE if d is not dt.bool_}
#: What a scalar of each dtype is made an array of; an index may be a Python integer of any size.
_ASARRAY = {**NUMPY, dt.index: None}
#: dtype -> NumPy's dtype of its values, and the bounds that no value can break.
_CERTAIN = {**DTYPES, UNSET: (None, None)}
#: Levels of recursion between two looks at a frame's stack.
_ROOM = 50


class Foreign(SpecError):
    """The graph is no tensor graph: it has an op that only kernels or the second document's dialect have."""


class Machine:
    """One run. `storages` holds the memory of every Buffer and free Param met so far; `schedule` and `lanes` are for its kernels,
    and `launches` is what these keep."""

    def __init__(self, inputs: Mapping[str, Any], check: bool, schedule: int | None = None, lanes: bool = False) -> None:
        self.inputs = inputs
        self.check = check
        self.schedule = schedule
        self.lanes = lanes
        self.launches: Any = None
        self.root = Scope()
        self.scopes = [self.root]
        self.frames: list[tuple[Scope, list[UOp]]] = []
        self.storages: dict[UOp, Storage] = {}
        self.clock = 0

    def close(self) -> None:
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

    def evaluate(self, scope: Scope, *nodes: UOp) -> None:
        """Give every node of `nodes` a cell in `scope`."""
        frames, cells = self.frames, scope.cells
        depth = len(frames)
        try:
            for u in nodes:
                stack: list[UOp] = []
                if u not in cells and self._give(scope, cells, stack, u, _ROOM) is WAIT:
                    frames.insert(depth, (scope, stack[::-1]))
                    while len(frames) > depth:
                        self._advance(*frames[-1])
        except BaseException:
            del frames[depth:]
            raise

    def _advance(self, scope: Scope, stack: list[UOp]) -> None:
        """Evaluate until the frame is done or another one lies above it."""
        cells, depth = scope.cells, len(self.frames)
        while stack:
            u = stack[-1]
            waiting: list[UOp] = []
            if u in cells or self._give(scope, cells, waiting, u, _ROOM) is not WAIT:
                stack.pop()
                continue
            stack += waiting[::-1]
            if len(self.frames) != depth:
                return
            if len(waiting) == 1:
                raise Crash(f"{describe(u)} waits for nothing")
        self.frames.pop()

    def _give(self, scope: Scope, cells: dict[UOp, Cell], waiting: list[UOp], u: UOp, room: int) -> Cell:
        """Give `u` a cell, its sources first, and return it; or add to `waiting` what `u` waits for and then `u`, and return WAIT.
        This is the code whose speed matters."""
        try:
            src = u.src
            count, make, kernels, find, action = PLANS[u.op._value_]
            if len(src) == count and (count == 1 or src[1]._spelt.__class__ is tuple):
                s = src[0]
                a = cells[s] if s in cells else self._give(scope, cells, waiting, s, room - 1) if room else WAIT
                if a.__class__ is _ndarray:
                    cell = make(u, a)
                elif a is WAIT:
                    return _suspend(cells, waiting, u, src[:1])
                else:
                    cell = action(self, scope, u, src[:1])
            elif kernels is not None and len(src) < 3:
                s = src[0]
                a = cells[s] if s in cells else self._give(scope, cells, waiting, s, room - 1) if room else WAIT
                if a is WAIT:
                    return _suspend(cells, waiting, u, src)
                d = s._dtype
                kernel = kernels[s.dtype if d is UNSET else d]
                if len(src) == 1:
                    cell = kernel(a if a.__class__ is _ndarray else self.read(a))
                else:
                    s = src[1]
                    b = cells[s] if s in cells else self._give(scope, cells, waiting, s, room - 1) if room else WAIT
                    if b is WAIT:
                        return _suspend(cells, waiting, u, src)
                    if a.__class__ is not _ndarray:
                        a = self.read(a)
                    cell = kernel(a, b if b.__class__ is _ndarray else self.read(b))
            else:
                sources = src if find is None or not src else find(u)
                for s in sources:
                    if s not in cells and (not room or self._give(scope, cells, waiting, s, room - 1) is WAIT):
                        return _suspend(cells, waiting, u, sources)
                cell = action(self, scope, u, sources)
            if cell.__class__ is not _ndarray:
                if cell is VOID or cell.__class__ is Ref:
                    cells[u] = cell
                    return cell
                if cell is WAIT:
                    waiting.append(u)
                    return WAIT
                d = u._dtype
                cell = _asarray(cell, _ASARRAY[u.dtype if d is UNSET else d])  # a NumPy scalar
            if self.check:
                wanted, whole = _CERTAIN[u._dtype]
                if cell.dtype is not wanted or cell.shape != u._shape:
                    check_value(u, cell, self, scope)
                elif (bounds := u._min_max) is not whole and (count != 2 or bounds is not src[0]._min_max):  # else as there
                    check_bounds(u, cell)
            cells[u] = cell
            return cell
        except _PYTHON_ERRORS as e:
            raise _explained(u, e) from e

    def shape(self, scope: Scope, u: UOp) -> tuple[Any, ...]:
        """The derived shape, its symbolic extents evaluated in `scope` (R48)."""
        shape = u.shape
        for n in shape:
            if n.__class__ is not int:
                return tuple(int(n) if isinstance(n, int) else self.integer(scope, n) for n in shape)
        return shape

    def integer(self, scope: Scope, u: UOp) -> int:
        self.evaluate(scope, u)
        return int(self.read(scope.cells[u]))

    def read(self, cell: Cell) -> Array:
        """The value of a cell; of a reference by its implicit Load (R51), which happens once per reference."""
        if cell.__class__ is _ndarray:
            return cell
        if cell is VOID:
            raise SpecError("a void node is used as a value")
        value: Array | None = cell.value
        return self._load(cell) if value is None else value

    def _load(self, ref: Ref) -> Array:
        storage = ref.storage
        if storage.ready is not None or ref.risky:
            value = memory.fetch(ref)
        else:
            value = storage.data if ref.parent is None else memory.look(ref)
        bit = ref.bit = self.clock
        self.clock = bit + 1
        if storage.write_bits:
            self._ordered_read(ref, storage, bit)
        else:  # nothing to race with
            storage.reads.append(ref)
            storage.read_bits |= 1 << bit
        if self.check:
            u = ref.node
            wanted, whole = _CERTAIN[u._dtype]
            if value.dtype is not wanted or value.shape != u._shape:
                check_value(u, value, self, ref.scope)
            elif u._min_max is not whole:
                check_bounds(u, value)
        ref.value = value
        return value

    def _ordered_read(self, ref: Ref, storage: Storage, bit: int) -> None:
        """Log a read of a storage that was written; mostly the Afters on the path name every write, and no search is needed."""
        before, step = 0, ref
        while step.parent is not None:
            if step.node.op is _AFTER:
                for dep in step.node.src[1:]:
                    before |= step.scope.own.get(dep, 0)
            step = step.parent
        if storage.write_bits & ~before:
            before = self.mask_of(ref.scope, ref.node)
        memory.record_read(storage, bit, ref, before)

    # Order of accesses

    def tick(self) -> int:
        self.clock += 1
        return self.clock - 1

    def mask_of(self, scope: Scope, node: UOp) -> int:
        """The accesses that happen before the end of `node` in `scope` (R59), as a set of bits; iterative, kept per node."""
        stack = [(scope, node)]
        while stack:
            sc, n = stack[-1]
            if n in sc.masks:
                stack.pop()
                continue
            before = self._before(sc, n)
            missing = [p for p in before if p[1] not in p[0].masks]
            if missing:
                stack.extend(missing)
                continue
            mask = sc.base | sc.own.get(n, 0)
            for k, (ps, pn) in enumerate(before):
                mask |= ps.masks[pn]
                cell = ps.cells.get(pn)
                if cell.__class__ is Ref and cell.bit is not None and not (k == 0 and _passes_on(sc.cells.get(n), n)):
                    mask |= 1 << cell.bit
            sc.masks[n] = mask
            stack.pop()
        return scope.masks[node]

    def _before(self, scope: Scope, u: UOp) -> list[tuple[Scope, UOp]]:
        """The nodes that `u` waits for, each in its scope."""
        if u.op is _GETTUPLE and u.src[0].op is _FUNCTION:
            return [(scope.inner[u.src[0]], u.src[0].src[0].src[u.arg.index])]
        if u.op is _FUNCTION:
            return [(scope.inner[u], e) for e in u.src[0].src]
        if u.op is _PARAM and scope.outer is not None and u.arg.slot is not None:
            return [(scope.outer, scope.args[u.arg.slot])] if scope.call is None else []
        find = PLANS[u.op.value][3]
        return [(scope, s) for s in (u.src if find is None else find(u))]

    # Storages

    def storage(self, u: UOp) -> Storage:
        """The memory of a Buffer or free Param, filled from the inputs."""
        found = self.storages.get(u)
        if found is not None:
            return found
        a = u.arg
        key = f"b{a.unique}" if u.op is _BUFFER else f"p{a.slot}"
        given = self.inputs.get(key)
        if given is None:
            found = self._allocate(u, key)
        else:
            if given.__class__ is not _ndarray or given.dtype is not _EVIDENT.get(a.dtype) or given.shape != u._shape:
                given = validated(key, given, a.dtype, self.shape(self.root, u))
            found = Storage(key, given, None)
        self.storages[u] = found
        return found

    def _allocate(self, u: UOp, key: str) -> Storage:
        """The memory of a Buffer that the inputs say nothing of."""
        a = u.arg
        if u.op is not _BUFFER:
            raise SpecError(f"input {key!r} is missing: {a.dtype} of shape {self.shape(self.root, u)}")
        if a.addrspace is not AddrSpace.GLOBAL:
            raise Foreign(f"a {a.addrspace.name} Buffer is not in the TENSOR dialect")
        data = np.zeros(u.shape, NUMPY[a.dtype])
        return Storage(key, data, np.zeros(data.shape, f"u{data.itemsize}"))


def _suspend(cells: Mapping[UOp, Cell], waiting: list[UOp], u: UOp, sources: Sequence[UOp]) -> Any:
    """Let `u` wait for those of its sources that have no cell."""
    waiting.extend([s for s in sources if s not in cells])
    waiting.append(u)
    return WAIT


def _passes_on(cell: Cell, u: UOp) -> bool:
    """Whether `u` uses its first source as a reference, without reading it as a whole."""
    return cell.__class__ is Ref or u.op is _STORE or (u.op is _LOAD and len(u.src) > 1)


def _explained(u: UOp, e: Exception) -> Exception:
    """What a Python error while evaluating `u` means: an ill-formed node where deriving its properties says so."""
    try:
        sources = [(s.dtype, s.shape) for s in u.src]
        _ = u.dtype, u.shape, u.min_max
    except UopsError as found:
        return found
    why = excess(nbytes(u.dtype, u.shape))
    if why or isinstance(e, MemoryError):
        return Unsupported(f"{describe(u)} of shape {u.shape}: {why or e or 'out of memory'}", "interp")
    kernels = KERNELS.get(u.op)
    if kernels is not None and u.src and u.src[0].dtype not in kernels:
        return SpecError(f"{describe(u)} is not defined on {u.src[0].dtype} (R09, R10)")
    return Crash(f"{describe(u)} cannot be evaluated on {sources}: {type(e).__name__}: {e}")


def refuse_foreign(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """The action of an op that no tensor graph has. Raises Foreign."""
    raise Foreign(f"{u.op.name} is not in the TENSOR dialect")


#: (machine, scope, node, its evaluated sources) -> cell.
Action = Callable[[Machine, Scope, UOp, Sequence[UOp]], Cell]
#: The sources to evaluate before a node, where they are not all of `src`.
Find = Callable[[UOp], tuple[UOp, ...]]
#: By the op's number: what makes its value of an array alone, where it has so many sources, the second one if any being constant
#: extents; its kernels per dtype; which sources come first; its action. Filled by `uops.interp.tensor.actions`.
PLANS: list[tuple[int, Any, Any, Find | None, Action]] = [(-1, None, None, None, refuse_foreign)] * (max(op.value for op in Op) + 1)
