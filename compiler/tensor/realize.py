"""Realization: from lazy graphs to arrays, through a runner that someone else installs.

`capture` turns nodes of the front end into a closed TENSOR graph and its inputs. Buffers become Params numbered in order of first
use, so graphs of one structure are one node whatever data they carry, and each is compiled once per backend. `install` sets the
runner (`uops.backends.api` does); `use` names the backend of a block. Indices are checked where values are realized
(`uops.compiler.tensor.checks`, R163): a captured graph is the program alone.
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from uops.compiler.config import default
from uops.compiler.tensor.chains import joined
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError, Trap
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

if TYPE_CHECKING:
    from uops.compiler.tensor.checks import IndexCheck

DEFAULT_BACKEND = "llvm"
#: Programs kept per thread, the least recently used dropped first.
CACHE_SIZE = 256

#: A compiled graph on arrays by key, and what makes one from a graph and the name of a backend.
Program = Callable[[Mapping[str, Any]], Result]
Runner = Callable[[UOp, str], Program]
_BODIED = frozenset({Op.FUNCTION, Op.CALL})
#: What IndexChecks are attached to.
_CHECKED = frozenset({Op.INDEX, Op.FUNCTION})


class Captured(NamedTuple):
    """A graph without Buffers that hold data, and the arrays of its Params; what every runner and the interpreter take."""

    graph: UOp
    inputs: dict[str, Any]


class _State:
    runner: Runner | None = None
    generation = 0


_backend: contextvars.ContextVar[str] = contextvars.ContextVar("uops_backend", default=DEFAULT_BACKEND)
_unchecked: contextvars.ContextVar[bool] = contextvars.ContextVar("uops_unchecked", default=False)
_tracing: contextvars.ContextVar[str] = contextvars.ContextVar("uops_tracing", default="")
_local = threading.local()


def install(runner: Runner) -> None:
    """Let `runner` compile from now on; programs of an earlier one are forgotten."""
    _State.runner = runner
    _State.generation += 1


@contextmanager
def use(backend: str | None = None, *, unchecked: bool | None = None) -> Iterator[None]:
    """Realize on the backend of that name inside the block, unless a call names another; with `unchecked`, nobody looks whether
    indices are in range (R163). None leaves a choice as it is outside."""
    tokens = _backend.set(backend or _backend.get()), _unchecked.set(_unchecked.get() if unchecked is None else unchecked)
    try:
        yield
    finally:
        _backend.reset(tokens[0])
        _unchecked.reset(tokens[1])


@contextmanager
def tracing(name: str) -> Iterator[None]:
    """A @function is being traced: nothing may be realized (its second step runs without device work)."""
    token = _tracing.set(name)
    try:
        yield
    finally:
        _tracing.reset(token)


def compute(nodes: Sequence[UOp], backend: str | None, unchecked: bool | None = None) -> list[tuple[Any, bool]]:
    """The array of each node, by one program, and whether the node depends on no data. Raises SpecIndexError for an index out of
    range, unless `unchecked`."""
    if _tracing.get():
        raise SpecTypeError(f"@function {_tracing.get()} runs lazily: the value of a Tensor is not known while it is traced")
    state = _Capture()
    closed = [state.closed(u) for u in nodes]
    checks = {} if (_unchecked.get() if unchecked is None else unchecked) else state.checks()
    program = _program(_packed([*closed, *checks], state.fresh), backend or _backend.get())
    try:
        values = program(state.inputs).values
    except Trap:
        _explain(checks.values(), backend)
        raise
    for check, number in zip(checks.values(), values[len(nodes) :], strict=True):
        check.judge(number)
    return [(value, c is u) for value, c, u in zip(values, closed, nodes)]


def _explain(checks: Iterable[IndexCheck], backend: str | None) -> None:
    """Raise SpecIndexError if an index out of range is why a backend that ends with a Trap gave no values."""
    for check in checks:
        check.find(compute([check.node], backend, unchecked=True)[0][0])


def _packed(nodes: Sequence[UOp], memories: int) -> UOp:
    """The graph of all nodes; where it fills several memories of its own, assignments to one Tensor share theirs."""
    graph = nodes[0] if len(nodes) == 1 else B.tuple_(*nodes)
    return joined(graph) if memories > 1 else graph


def _program(graph: UOp, backend: str) -> Program:
    """The compiled graph, from this thread's cache: a program of some backends serves one thread."""
    if _State.runner is None:
        raise SpecError("no runner is installed: import uops.backends.api, or take Tensor from uops")
    cache: OrderedDict[tuple[UOp, str, int, bool], Program] = _local.__dict__.setdefault("programs", OrderedDict())
    key = graph, backend, _State.generation, default().fast_math
    found = cache.get(key)
    if found is None:
        found = cache[key] = _State.runner(graph, backend)
        if len(cache) > CACHE_SIZE:
            cache.popitem(last=False)
    else:
        cache.move_to_end(key)
    return found


def capture(*values: Any) -> Captured:
    """The graph of Tensors or nodes: one value, or a Tuple of several; values realized before are inputs."""
    if not values:
        raise SpecTypeError("capture needs at least one Tensor")
    state = _Capture()
    closed = [state.closed(getattr(v, "uop", v)) for v in values]
    return Captured(_packed(closed, state.fresh), state.inputs)


class _Capture:
    """One graph in the making: `done` maps a node of the front end to its closed form."""

    def __init__(self) -> None:
        from uops.compiler.tensor import checks, storage  # NumPy, which naming a backend does not need

        self.array_of, self.known, self.is_stand_in = storage.array_of, storage.known, storage.is_stand_in
        self.of = checks
        self.inputs: dict[str, Any] = {}
        self.done: dict[UOp, UOp] = {}
        self.indexed: list[UOp] = []
        self.fresh = 0

    def closed(self, root: UOp) -> UOp:
        """`root` in terms of Params; iterative, and the bodies of Functions are not entered: they are closed already (R64)."""
        stack: list[tuple[UOp, tuple[UOp, ...] | None]] = [(root, None)]
        while stack:
            u, sources = stack.pop()
            if u in self.done:
                continue
            if sources is None:
                sources = self.below(u)
                stack.append((u, sources))
                stack.extend((s, None) for s in reversed(sources) if s not in self.done)
            else:
                self.done[u] = self.made(u, sources)
        return self.done[root]

    def checks(self) -> dict[UOp, IndexCheck]:
        """The IndexChecks of computed indices, by the number that the program computes for each. Raises SpecIndexError for data."""
        found: dict[UOp, IndexCheck] = {}
        for u in self.indexed:  # grows while an index is closed that the graph itself does not hold
            for c in self.of.checks_of(u):
                if not c.look():
                    found.setdefault(c.farthest(self.closed(c.node)), c)
        return found

    def below(self, u: UOp) -> tuple[UOp, ...]:
        """What is to be closed before `u`: the leaf that holds its value, or its sources."""
        if u.op in _BODIED:
            return u.src[1:]
        twin = self.known(u)
        return u.src if twin is None else (twin,)

    def made(self, u: UOp, sources: tuple[UOp, ...]) -> UOp:
        if u.op is Op.BUFFER:
            return self.memory(u)
        if u.op is Op.PARAM:
            raise SpecValueError(f"Param {u.arg.slot} is free in the graph of a Tensor: it has no value")
        closed = tuple(self.done[s] for s in sources)
        if u.op in _BODIED:
            closed = (self.of.strip_tags(u.src[0]) if u.tag == self.of.UNCHECKED else u.src[0], *closed)
        elif sources is not u.src:
            return closed[0]
        if u.op in _CHECKED:
            self.indexed.append(u)
            return UOp(u.op, closed, u.arg, None if u.tag == self.of.UNCHECKED else u.tag)
        return u if closed == u.src else UOp(u.op, closed, u.arg, u.tag)

    def memory(self, u: UOp) -> UOp:
        """A Param for data; memory that the program itself fills keeps its Buffer, numbered by order."""
        array = self.array_of(u)
        if array is None:
            if self.is_stand_in(u):
                raise SpecValueError(
                    "a Tensor computed inside a @function left it otherwise than by return: it has no value outside (R64)"
                )
            self.fresh += 1
            return B.buffer(u.arg.size, u.arg.dtype, u.arg.device, u.arg.addrspace, unique=self.fresh)
        slot = len(self.inputs)
        self.inputs[f"p{slot}"] = array
        return B.param(slot, (u.arg.size,), u.arg.dtype)
