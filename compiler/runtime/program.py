"""The runtime: compiled programs as callables on NumPy arrays.

`compile(graph, target)` gives a `Compiled`; calling it takes arrays by key (`p<slot>` for a free Param, `b<unique>` for the
initial contents of a Buffer, a variable's name) and gives a `Result`. Inputs are checked against the graph: SpecError names the
key, what was expected and what was got; a variable outside its bounds, or a bool byte other than 0 and 1, is a Trap (R24, R48).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.ir.loops import instructions_run, shared
from uops.compiler.passes.callify.callify import Output, callify, outputs
from uops.compiler.pipeline import lower
from uops.compiler.rewrite.lowering_cache import Memory, remembering
from uops.compiler.rewrite.lowering_cache import memory as in_use
from uops.compiler.runtime.arguments import (
    Array,
    Inputs,
    Kind,
    Place,
    bounds,
    extents,
    is_variable,
    key_of,
    numpy_dtype,
    variable,
)
from uops.compiler.runtime.frame import ArrayInput, Frame, Launch, Made, Temporary, VariableInput
from uops.compiler.target import Entered, Enters, Kernel, Target, lender, load
from uops.spec.errors import SpecError, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.resources import excess, nbytes
from uops.spec.result import Result

__all__ = ["compile", "Compiled", "numpy_dtype"]

#: Programs kept per process, the least recently used dropped first.
CACHE_SIZE = 512


def compile(graph: UOp, target: Target, config: Config | None = None) -> Compiled:
    """The program of `graph` for `target`; the same graph is compiled once. Raises SpecError, CompileError or Unsupported,
    that also for Buffers that do not fit into memory."""
    config = config or configuration.default()
    if not config.reuse:
        return Compiled(graph, target, config)
    return _PROGRAMS.get(graph, target, config)


class _Programs:
    """The structural cache: graphs are interned, so that a node is its own key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: OrderedDict[tuple[UOp, str, Config], Compiled] = OrderedDict()

    def get(self, graph: UOp, target: Target, config: Config) -> Compiled:
        key = graph, target.key, config
        with self.lock:
            known = self.found.get(key)
            if known is not None:
                self.found.move_to_end(key)
                return known
        made = Compiled(graph, target, config)
        with self.lock:
            made = self.found.setdefault(key, made)
            while len(self.found) > CACHE_SIZE:
                self.found.popitem(last=False)
        return made


_PROGRAMS = _Programs()


class Compiled:
    """A program. `program` is its PROGRAM graph; a call may run in several threads at once.

    `keys` names its arguments in order: Params by slot, variables by name, Buffers by number, whose contents before the run are
    zeros unless they are given. There are two ways to call it, which agree. `program(inputs)` takes a mapping by key
    and gives a Result. `program.function(*arguments)` takes them in the order of `keys`, of which the last ones, and every None,
    count as not given; it gives the one array of a program that has one value and writes nothing, else a tuple: the values, then
    the contents of what was written, in the order of `written_keys`.

    An argument for memory is an array, or what NumPy makes one of, of the storage dtype and the shape of what it is for; one that
    is not aligned, C-contiguous and in native byte order is copied first. All arrays that come back are new. Raises SpecError for
    an argument that is missing, too many, of another dtype or shape, or no int where a variable needs one; Trap for a bool byte
    other than 0 and 1, and for a variable outside of its bounds.
    """

    #: Whether a target's own way into a program may be taken.
    native = True

    def __init__(self, graph: UOp, target: Target, config: Config) -> None:
        self.graph, self.target, self._lend = graph, target, lender(target)
        with remembering(in_use() or Memory()):
            self.outputs: tuple[Output, ...] = outputs(graph)
            self._fit(o.buffer for o in self.outputs)
            called = callify(graph)
            self.external = called.src[1:]
            self.written = frozenset(self.external[k] for k in called.arg.written)
            self.program = lower(graph, target, config=config)
        self._known = {key_of(u) for u in toposort(graph) if u.op in (Op.PARAM, Op.BUFFER)}
        self._variables = [u for u in self.external if is_variable(u)]
        memory = list(dict.fromkeys(m for c in self.program.src for a in c.src[1:] if not is_variable(m := _root(a))))
        memory += [u for u in self.external if not is_variable(u) and u not in memory]
        self._fit(memory)
        self._places = self._placed(memory)
        self._at = {m: k for k, m in enumerate(memory)}
        self._values = [(self._at[o.buffer], o.shape) for o in self.outputs]
        own = {o.buffer for o in self.outputs}
        self._returned = [p for p in self._places if p.written and p.memory not in own]
        self._arguments = self._in_order()
        self.keys = tuple(key_of(u) for u in self._arguments)
        self.written_keys = tuple(p.key for p in self._returned)
        self._single = len(self.outputs) == 1 and not self._returned
        self._launches = self._load()
        self._entered = self._enter(config)
        entered = self._entered and self._entered.function
        self.function: Callable[..., Any] = entered or self._general

    def _fit(self, memory: Iterable[UOp]) -> None:
        """Raise Unsupported where the Buffers of one run need more than there is."""
        sizes = {m: nbytes(m.dtype, (m.arg.size,)) for m in memory if m.op is Op.BUFFER}
        if why := excess(sum(sizes.values())):
            largest = max(sizes, key=lambda m: sizes[m])
            raise Unsupported(
                f"a program of this size ({key_of(largest)}: {largest.arg.size:,} x {largest.dtype}): {why}", self.target.name
            )

    def _placed(self, memory: Iterable[UOp]) -> list[Place]:
        shapes = {o.buffer: o.shape for o in self.outputs}
        given = {u for u in self.external if u.op is Op.BUFFER and u not in shapes}
        kinds = {Op.BINARY: Kind.CONSTANT, Op.PARAM: Kind.GIVEN}
        found = []
        for m in memory:
            kind = Kind.OPTIONAL if m in given else kinds.get(m.op, Kind.FRESH)
            shape = shapes.get(m, (m.arg.size,) if m.op is Op.BUFFER else m.shape if m.op is Op.PARAM else ())
            found.append(Place.of(m, kind, shape, m in self.written))
        return found

    def _in_order(self) -> list[UOp]:
        """What may be given, in the order of `keys`."""
        params = [p.memory for p in self._places if p.kind is Kind.GIVEN]
        buffers = [p.memory for p in self._places if p.kind is Kind.OPTIONAL]
        return [
            *sorted(params, key=lambda u: int(u.arg.slot)),
            *sorted(self._variables, key=lambda u: str(u.arg.name)),
            *sorted(buffers, key=lambda u: int(u.arg.unique)),
        ]

    def _load(self) -> tuple[Launch, ...]:
        variables = {u.arg.name: k for k, u in enumerate(self._variables)}
        kernels = {p: _Loaded.of(p, self.target) for p in dict.fromkeys(c.src[0] for c in self.program.src)}
        return tuple(_launch(c, kernels[c.src[0]], self._at, variables) for c in self.program.src)

    def _enter(self, config: Config) -> Entered | None:
        if not (self.native and config.entry == "native" and isinstance(self.target, Enters)):
            return None
        return self.target.enter(self._frame(config.threads), self._general)

    def _frame(self, threads: int) -> Frame:
        """The program as data; a base per place, and one more for what an array that is written starts as."""
        static = not any(p.shape is None for p in self._places)
        source = {p.memory: len(self._places) + k for k, p in enumerate(self._returned)}
        values = {k for k, _ in self._values}
        kinds = {kind: [(k, p) for k, p in enumerate(self._places) if p.kind is kind] for kind in Kind}
        fixed = [(k, p.constant) for k, p in kinds[Kind.CONSTANT]]
        fixed += [(source.get(p.memory, k), np.zeros(p.memory.arg.size, p.dtype)) for k, p in kinds[Kind.OPTIONAL]]
        sizes = [(k, nbytes(p.memory.dtype, (p.memory.arg.size,))) for k, p in kinds[Kind.FRESH] if k not in values]
        made = [Made(k, self._places[k].dtype, self._places[k].shape or (), None) for k, _ in self._values]
        made += [Made(self._at[p.memory], p.dtype, p.shape or (), source[p.memory]) for p in self._returned]
        return Frame(
            bases=len(self._places) + len(source),
            variables=len(self._variables),
            inputs=tuple(self._input(u, source) for u in self._arguments) if static else None,
            fixed=tuple(fixed),
            temporaries=tuple(Temporary(k, size) for k, size in sizes),
            made=tuple(made) if static else (),
            launches=self._launches,
            single=self._single,
            threads=threads,
        )

    def _input(self, u: UOp, source: Mapping[UOp, int]) -> ArrayInput | VariableInput:
        if is_variable(u):
            return VariableInput(self._variables.index(u), *bounds(u))
        k = self._at[u]
        p = self._places[k]
        return ArrayInput(source.get(u, k), p.dtype, p.shape or (), p.kind is Kind.OPTIONAL, u.dtype is dt.bool_)

    # Calls

    def __call__(self, inputs: Inputs | None = None, /) -> Result:
        """Run once; the arrays given are not changed."""
        inputs = {} if inputs is None else inputs
        if not isinstance(inputs, Mapping):
            raise SpecError(f"inputs are a mapping by key ({', '.join(self.keys)}), got {type(inputs).__name__}")
        for k in inputs:
            if k not in self._known:
                names = ", ".join(sorted(self._known)) or "no inputs"
                raise SpecError(f"input {k!r} names nothing in the graph; it has {names}")
        found = self.function(*map(inputs.get, self.keys))
        if self._single:
            return Result((found,), {})
        n = len(self.outputs)
        return Result(found[:n], dict(zip(self.written_keys, found[n:])))

    def _general(self, *arguments: Any) -> Any:
        """`function` for any arguments: converts what may be converted, and says what is wrong with the rest."""
        if len(arguments) > len(self.keys):
            raise SpecError(f"the program takes {len(self.keys)} arguments ({', '.join(self.keys)}), got {len(arguments)}")
        inputs = {k: a for k, a in zip(self.keys, arguments) if a is not None}
        variables = {u.arg.name: variable(u, inputs) for u in self._variables}
        arrays = [self._array(p, inputs, variables) for p in self._places]
        self._run([a.__array_interface__["data"][0] for a in arrays], list(variables.values()), arrays)
        values = [_shaped(arrays[k], shape, variables) for k, shape in self._values]
        return values[0] if self._single else (*values, *(arrays[self._at[p.memory]] for p in self._returned))

    def _array(self, place: Place, inputs: Inputs, variables: Mapping[str, int]) -> Array:
        """The memory of one run at a place."""
        return place.array(inputs, variables)

    def _run(self, addresses: list[int], variables: list[int], arrays: Sequence[Array]) -> None:
        """All launches, by one call or one by one."""
        if self._entered is not None:
            self._entered.execute(addresses, variables)
            return
        with self._lend(arrays):
            for launch in self._launches:
                launch.kernel(
                    [0 if b is None else addresses[b[0]] + b[1] for b in launch.buffers],
                    [0 if v is None else variables[v] for v in launch.variables],
                )


class _Loaded(NamedTuple):
    """A kernel with what its instructions say about a call of it, as in `Launch`."""

    kernel: Kernel
    extent: int
    work: int

    @classmethod
    def of(cls, program: UOp, target: Target) -> _Loaded:
        instructions = program.src[0].src
        loop = shared(instructions)
        extent = 0 if loop is None else int(loop.src[0].arg.value)
        kernel = load(target, program.src[1].arg.code, program.src[2].arg.data)
        return cls(kernel, extent, instructions_run(instructions))


def _launch(call: UOp, loaded: _Loaded, at: Mapping[UOp, int], variables: Mapping[str, int]) -> Launch:
    arguments = call.src[1:]
    return Launch(
        loaded.kernel,
        tuple(None if is_variable(a) else (at[_root(a)], _offset(a)) for a in arguments),
        tuple(variables[a.arg.name] if is_variable(a) else None for a in arguments),
        loaded.extent,
        loaded.work,
    )


def _offset(a: UOp) -> int:
    return int(a.src[1].arg.value) if a.op is Op.SLICE else 0


def _root(a: UOp) -> UOp:
    """The memory behind a Call's argument: an arena, or the argument itself."""
    return a.src[0] if a.op is Op.SLICE else a


def _shaped(array: Array, shape: tuple[Dim, ...], variables: Mapping[str, int]) -> Array:
    """The front of the memory of a value whose shape depends on variables; any other has its shape."""
    if array.ndim == len(shape) and array.shape == shape:
        return array
    wanted = extents(shape, variables)
    return array[: math.prod(wanted)].reshape(wanted)
