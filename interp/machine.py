"""The evaluation of a graph: nodes in dependency order, iteratively, with a stack of nodes per frame and a stack of frames per run.

A node is one dictionary lookup and one call: a kernel of `elementwise` on the arrays of its sources, or an action of `actions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.interp import memory
from uops.interp.actions import ACTIONS, SOURCES, Action, Find, Foreign, foreign, no_sources
from uops.interp.checks import check_value
from uops.interp.elementwise import KERNELS
from uops.interp.memory import Ref, Storage, describe
from uops.interp.scope import VOID, WAIT, Cell, Scope
from uops.interp.storage import NUMPY, Array, validated
from uops.spec import dtypes as dt
from uops.spec.args import AddrSpace
from uops.spec.errors import Crash, SpecError, Unsupported, UopsError
from uops.spec.node import UNSET, UOp
from uops.spec.ops import Op
from uops.spec.resources import excess, nbytes

_ndarray = np.ndarray
#: What an ill-formed node, or one that is too large, makes Python raise.
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, MemoryError)
_BUFFER, _AFTER = Op.BUFFER, Op.AFTER  # a member is slow to reach through its class
#: What a scalar of each dtype is made an array of; an index may be a Python integer of any size.
_ASARRAY = {**NUMPY, dt.index: None}
_COUNT = max(op.value for op in Op) + 1
_KERNELS: list[Any] = [None] * _COUNT
_ACTIONS: list[Action] = [foreign] * _COUNT
_SOURCES: list[Find | None] = [None] * _COUNT
for _op in Op:
    _KERNELS[_op.value] = None if _op in ACTIONS else KERNELS.get(_op)
    _ACTIONS[_op.value] = ACTIONS.get(_op, foreign)
    _SOURCES[_op.value] = SOURCES.get(_op)


class Machine:
    """One run. `storages` holds the memory of every Buffer and free Param met so far; `schedule` and `lanes` are for its kernels,
    and `launches` is what these keep."""

    schedule: int | None = None
    lanes = False
    launches: Any = None

    def __init__(self, inputs: Mapping[str, Any], check: bool) -> None:
        self.inputs = inputs
        self.check = check
        self.root = Scope()
        self.scopes = [self.root]
        self.frames: list[tuple[Scope, list[UOp]]] = []
        self.storages: dict[UOp, Storage] = {}
        self.clock = 0

    def close(self) -> None:
        """Break the cycles between scopes and references, so that a run leaves nothing to the garbage collector."""
        for scope in self.scopes:
            scope.cells.clear()
            scope.inner.clear()
        for storage in self.storages.values():
            storage.reads, storage.writes = [], []

    # Evaluation

    def evaluate(self, scope: Scope, *nodes: UOp) -> None:
        """Give every node of `nodes` a cell in `scope`."""
        resting, self.frames = self.frames, [(scope, list(nodes[::-1]))]
        try:
            while self.frames:
                inner, stack = self.frames[-1]
                try:
                    self._advance(inner, stack)
                except _PYTHON_ERRORS as e:
                    raise _explained(stack[-1], e) from e
        finally:
            self.frames = resting

    def _advance(self, scope: Scope, stack: list[Any]) -> None:
        """Evaluate until the frame is done or another one lies above it. This is the loop whose speed matters.

        A node that waits for sources has the tuple of them above it on the stack, below those to evaluate; who meets the tuple
        again knows that they have cells.
        """
        cells, check, depth = scope.cells, self.check, len(self.frames)
        push, pop = stack.append, stack.pop
        while stack:
            u = stack[-1]
            if u.__class__ is tuple:
                sources = pop()
                u = stack[-1]
            elif u in cells:
                pop()
                continue
            elif sources := u.src:
                find = _SOURCES[u.op._value_]
                if find is not None:
                    sources = () if find is no_sources else find(u)
                ready = True
                for s in sources:
                    if s not in cells:
                        if ready:
                            push(sources)
                            ready = False
                        push(s)
                if not ready:
                    continue
            kernels = _KERNELS[number := u.op._value_]
            if kernels is not None:
                first = sources[0]
                a, d = cells[first], first._dtype
                kernel = kernels[first.dtype if d is UNSET else d]
                if a.__class__ is not _ndarray:
                    a = self.read(a)
                if len(sources) == 1:
                    cell = kernel(a)
                else:
                    b = cells[sources[1]]
                    if b.__class__ is not _ndarray:
                        b = self.read(b)
                    if len(sources) == 2:
                        cell = kernel(a, b)
                    else:
                        rest = [c if (c := cells[s]).__class__ is _ndarray else self.read(c) for s in sources[2:]]
                        cell = kernel(a, b, *rest)
            else:
                cell = _ACTIONS[number](self, scope, u, sources)
                if cell is WAIT:
                    if len(self.frames) == depth:
                        raise Crash(f"{describe(u)} waits for nothing")
                    return
            if cell.__class__ is _ndarray:
                if check:
                    check_value(u, cell, self, scope)
            elif cell is not VOID and cell.__class__ is not Ref:  # a NumPy scalar
                cell = np.asarray(cell, _ASARRAY[u.dtype])
                if check:
                    check_value(u, cell, self, scope)
            cells[u] = cell
            pop()
        self.frames.pop()

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
        value = cell.value
        return self._load(cell) if value is None else value

    def _load(self, ref: Ref) -> Array:
        storage = ref.storage
        value = memory.look(ref) if storage.ready is None and not ref.risky else memory.fetch(ref)
        bit = ref.bit = self.clock
        self.clock = bit + 1
        if storage.write_bits:
            self._ordered_read(ref, storage, bit)
        else:  # nothing to race with
            storage.reads.append(ref)
            storage.read_bits |= 1 << bit
        if self.check:
            check_value(ref.node, value, self, ref.scope)
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
        if u.op is Op.GETTUPLE and u.src[0].op is Op.FUNCTION:
            return [(scope.inner[u.src[0]], u.src[0].src[0].src[u.arg.index])]
        if u.op is Op.FUNCTION:
            return [(scope.inner[u], e) for e in u.src[0].src]
        if u.op is Op.PARAM and scope.outer is not None and u.arg.slot is not None:
            return [(scope.outer, scope.args[u.arg.slot])] if scope.call is None else []
        find = _SOURCES[u.op._value_]
        return [(scope, s) for s in (u.src if find is None else find(u))]

    # Storages

    def storage(self, u: UOp) -> Storage:
        """The memory of a Buffer or free Param, filled from the inputs."""
        found = self.storages.get(u)
        if found is None:
            found = self.storages[u] = self._allocate(u)
        return found

    def _allocate(self, u: UOp) -> Storage:
        a = u.arg
        key = f"b{a.unique}" if u.op is _BUFFER else f"p{a.slot}"
        given = self.inputs.get(key)
        if given is not None:
            shape = u.shape
            if given.__class__ is not _ndarray or given.shape != shape:
                shape = self.shape(self.root, u)
            return Storage(key, validated(key, given, a.dtype, shape), None)
        if u.op is not _BUFFER:
            raise SpecError(f"input {key!r} is missing: {a.dtype} of shape {self.shape(self.root, u)}")
        if a.addrspace is not AddrSpace.GLOBAL:
            raise Foreign(f"a {a.addrspace.name} Buffer is not in the TENSOR dialect")
        data = np.zeros(u.shape, NUMPY[a.dtype])
        return Storage(key, data, np.zeros(data.shape, f"u{data.itemsize}"))


def _passes_on(cell: Cell, u: UOp) -> bool:
    """Whether `u` uses its first source as a reference, without reading it as a whole."""
    return cell.__class__ is Ref or u.op is Op.STORE or (u.op is Op.LOAD and len(u.src) > 1)


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
