"""The runtime: compiled programs as callables on NumPy arrays.

`compile(graph, target)` gives a `Compiled`; calling it takes arrays by key (`p<slot>` for a free Param, `b<unique>` for the
initial contents of a Buffer, a variable's name) and gives a `Result`. Inputs are checked against the graph: SpecError names the
key, what was expected and what was got; a variable outside its bounds, or a bool byte other than 0 and 1, is a Trap (R24, R48).
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.frame import ArrayInput, Frame, Launch, Made, Temporary, VariableInput
from uops.compiler.loops import instructions_run, shared
from uops.compiler.passes.callify import Output, callify, outputs, storage
from uops.compiler.pipeline import lower
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.compiler.target import Entered, Enters, Kernel, Target, lender
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import CompileError, SpecError, Trap, Unsupported
from uops.spec.node import Dim, UOp, substitute, toposort
from uops.spec.ops import Op
from uops.spec.resources import excess, nbytes
from uops.spec.result import Result

Array = Any
Inputs = Mapping[str, Any]
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

    `keys` names its arguments in order: Params by slot, variables by name, then Buffers that the graph does not fill, whose
    contents are zeros unless they are given. There are two ways to call it, which agree. `program(inputs)` takes a mapping by key
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
        self.outputs: tuple[Output, ...] = outputs(graph)
        self._fit(o.buffer for o in self.outputs)
        called = callify(graph)
        self.external = called.src[1:]
        self.written = frozenset(self.external[k] for k in called.arg.written)
        self.program = lower(graph, target, config=config)
        self._known = {_key(u) for u in toposort(graph) if u.op in (Op.PARAM, Op.BUFFER)}
        self._variables = [u for u in self.external if _is_variable(u)]
        self._memory = list(dict.fromkeys(m for c in self.program.src for a in c.src[1:] if not _is_variable(m := _root(a))))
        self._memory += [u for u in self.external if not _is_variable(u) and u not in self._memory]
        self._fit(self._memory)
        own = {o.buffer for o in self.outputs}
        self._given = frozenset(u for u in self.external if u.op is Op.BUFFER and u not in own)
        self._returned = tuple(u for u in self.external if u in self.written and u not in own)
        self.keys = tuple(_key(u) for u in self._arguments())
        self.written_keys = tuple(_key(u) for u in self._returned)
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
                f"a program of this size ({_key(largest)}: {largest.arg.size:,} x {largest.dtype}): {why}", self.target.name
            )

    def _arguments(self) -> list[UOp]:
        """What may be given, in the order of `keys`."""
        params = [u for u in self.external if u.op is Op.PARAM and not _is_variable(u)]
        buffers = [u for u in self.external if u in self._given]
        return [
            *sorted(params, key=lambda u: int(u.arg.slot)),
            *sorted(self._variables, key=lambda u: str(u.arg.name)),
            *sorted(buffers, key=lambda u: int(u.arg.unique)),
        ]

    def _load(self) -> tuple[Launch, ...]:
        at = {m: k for k, m in enumerate(self._memory)}
        variables = {u.arg.name: k for k, u in enumerate(self._variables)}
        kernels = {p: _Loaded.of(p, self.target) for p in dict.fromkeys(c.src[0] for c in self.program.src)}
        return tuple(_launch(c, kernels[c.src[0]], at, variables) for c in self.program.src)

    def _enter(self, config: Config) -> Entered | None:
        if not (self.native and config.entry == "native" and isinstance(self.target, Enters)):
            return None
        return self.target.enter(self._frame(config.threads), self._general)

    def _frame(self, threads: int) -> Frame:
        """The program as data; a base per memory, and one more for what an array that is written starts as."""
        shapes = [u.shape for u in self._arguments() if not _is_variable(u)] + [o.shape for o in self.outputs]
        static = not any(isinstance(d, UOp) for shape in shapes for d in shape)
        at = {m: k for k, m in enumerate(self._memory)}
        source = {m: len(at) + k for k, m in enumerate(self._returned)}
        fixed = [(at[m], np.frombuffer(m.arg.data, np.uint8)) for m in self._memory if m.op is Op.BINARY]
        fixed += [(source.get(m, at[m]), np.zeros(m.arg.size, numpy_dtype(m.dtype))) for m in self._memory if m in self._given]
        own = {o.buffer for o in self.outputs}
        temporaries = [m for m in self._memory if m.op is Op.BUFFER and m not in self._given and m not in own]
        made = [Made(at[o.buffer], _storage(o.buffer), o.shape, None) for o in self.outputs] if static else []
        made += [Made(at[m], _storage(m), _extents(m), source[m]) for m in self._returned] if static else []
        return Frame(
            bases=len(at) + len(source),
            variables=len(self._variables),
            inputs=tuple(self._input(u, source.get(u, at.get(u, 0))) for u in self._arguments()) if static else None,
            fixed=tuple(fixed),
            temporaries=tuple(Temporary(at[m], nbytes(m.dtype, (m.arg.size,))) for m in temporaries),
            made=tuple(made),
            launches=self._launches,
            single=self._single,
            threads=threads,
        )

    def _input(self, u: UOp, base: int) -> ArrayInput | VariableInput:
        if _is_variable(u):
            return VariableInput(self._variables.index(u), *_bounds(u))
        return ArrayInput(base, _storage(u), _extents(u), u in self._given, u.dtype is dt.bool_)

    # Calls

    def __call__(self, inputs: Inputs | None = None, /) -> Result:
        """Run once; the arrays given are not changed."""
        inputs = {} if inputs is None else inputs
        unknown = next((k for k in inputs if k not in self._known), None)
        if unknown is not None:
            raise SpecError(f"input {unknown!r} names nothing in the graph; it has {', '.join(sorted(self._known)) or 'no inputs'}")
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
        variables = {u.arg.name: _variable(u, inputs) for u in self._variables}
        arrays = [self._array(m, inputs, variables) for m in self._memory]
        self._run([int(a.__array_interface__["data"][0]) for a in arrays], list(variables.values()), arrays)
        return self._result(dict(zip(self._memory, arrays)), variables)

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

    def _array(self, m: UOp, inputs: Inputs, variables: Mapping[str, int]) -> Array:
        """The memory of one argument: given, fresh, or constant."""
        if m.op is Op.BINARY:
            return np.frombuffer(m.arg.data, np.uint8)
        if m.op is Op.PARAM:
            found = _checked(_key(m), inputs, m.dtype, tuple(_extent(d, variables) for d in m.shape))
            return found.copy() if m in self.written else found
        if m not in self._given:
            return np.empty(m.arg.size, numpy_dtype(m.dtype))
        if _key(m) not in inputs:
            return np.zeros(m.arg.size, numpy_dtype(m.dtype))
        found = _checked(_key(m), inputs, m.dtype, (m.arg.size,))
        return found.copy() if m in self.written else found

    def _result(self, arrays: Mapping[UOp, Array], variables: Mapping[str, int]) -> Any:
        values = [_shaped(arrays[o.buffer], tuple(_extent(d, variables) for d in o.shape)) for o in self.outputs]
        return values[0] if self._single else (*values, *(arrays[u] for u in self._returned))


class _Loaded(NamedTuple):
    """A kernel with what its instructions say about a call of it, as in `Launch`."""

    kernel: Kernel
    extent: int
    work: int

    @classmethod
    def of(cls, program: UOp, target: Target) -> _Loaded:
        instructions = program.src[0].src
        loop = shared(instructions)
        return cls(
            target.load(program.src[2].arg.data), 0 if loop is None else int(loop.src[0].arg.value), instructions_run(instructions)
        )


def _launch(call: UOp, loaded: _Loaded, at: Mapping[UOp, int], variables: Mapping[str, int]) -> Launch:
    arguments = call.src[1:]
    return Launch(
        loaded.kernel,
        tuple(None if _is_variable(a) else (at[_root(a)], _offset(a)) for a in arguments),
        tuple(variables[a.arg.name] if _is_variable(a) else None for a in arguments),
        loaded.extent,
        loaded.work,
    )


def _offset(a: UOp) -> int:
    return int(a.src[1].arg.value) if a.op is Op.SLICE else 0


def _root(a: UOp) -> UOp:
    """The memory behind a Call's argument: an arena, or the argument itself."""
    return a.src[0] if a.op is Op.SLICE else a


def _is_variable(u: UOp) -> bool:
    return u.op is Op.PARAM and u.arg.name is not None


def _key(u: UOp) -> str:
    if u.op is Op.BUFFER:
        return f"b{u.arg.unique}"
    return str(u.arg.name) if u.arg.name is not None else f"p{u.arg.slot}"


def _bounds(u: UOp) -> tuple[int, int]:
    """The values that a variable may have."""
    lo, hi = u.arg.bounds or (dt.int64.min, dt.int64.max)
    return int(lo), int(hi)


def _storage(u: UOp) -> np.dtype[Any]:
    return numpy_dtype(storage(u.dtype))


def _extents(u: UOp) -> tuple[int, ...]:
    """The shape of memory, all of whose dimensions are known."""
    return (int(u.arg.size),) if u.op is Op.BUFFER else tuple(int(d) for d in u.shape)


# Checks


def _variable(u: UOp, inputs: Inputs) -> int:
    name = u.arg.name
    if name not in inputs:
        raise SpecError(f"input {name!r} is missing: variable {name} needs an int")
    value = inputs[name]
    try:
        found = int(value.item() if isinstance(value, np.ndarray) else value)
        exact = found == value
    except (TypeError, ValueError, OverflowError) as e:
        raise SpecError(f"input {name!r} needs an int, got {value!r}") from e
    if not np.all(exact):
        raise SpecError(f"input {name!r} needs an int, got {value!r}")
    lo, hi = _bounds(u)
    if not lo <= found <= hi:
        raise Trap(f"variable {name} = {found} is outside of its bounds [{lo}, {hi}] (R48)")
    return found


def _checked(key: str, inputs: Inputs, d: DType, shape: tuple[int, ...]) -> Array:
    """The input as a contiguous array of the storage dtype and shape of what it is for."""
    if key not in inputs:
        raise SpecError(f"input {key!r} is missing: it needs {d.name} of shape {shape}")
    array, wanted = np.asarray(inputs[key]), numpy_dtype(storage(d))
    if array.dtype == object:
        array = _whole(key, array)
    if array.dtype.newbyteorder("=") != wanted or array.shape != shape:
        raise SpecError(f"input {key!r} needs {wanted.name} of shape {shape}, got {array.dtype.name} of shape {array.shape}")
    array = np.require(array, wanted, ("C", "A")).reshape(shape)
    if d is dt.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise Trap(f"input {key!r} has a bool byte that is neither 0 nor 1 (R24)")
    return array


def _whole(key: str, array: Array) -> Array:
    """Python ints as int64."""
    try:
        return array.astype(np.int64)
    except (OverflowError, TypeError, ValueError) as e:
        raise CompileError(f"input {key!r} has values that int64 does not hold (R08)") from e


def _extent(d: Dim, variables: Mapping[str, int]) -> int:
    """A dimension under the values of the variables."""
    if not isinstance(d, UOp):
        return int(d)
    named = {u: B.index(variables[u.arg.name]) for u in toposort(d) if _is_variable(u)}
    return int(Rewriter(INDEXING)(substitute(d, named)).const)


def _shaped(flat: Array, shape: Sequence[int]) -> Array:
    n = 1
    for d in shape:
        n *= d
    return flat[:n].reshape(tuple(shape))


# NumPy dtypes


@functools.cache
def numpy_dtype(d: DType) -> np.dtype[Any]:
    """The storage dtype of `d`; index values are int64."""
    if d in _ML_DTYPES:
        import ml_dtypes  # only programs on small floats need it

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[d]))
        return small
    return np.dtype("int64" if d is dt.index else d.name)


_ML_DTYPES = {dt.bfloat16: "bfloat16", dt.fp8e4m3: "float8_e4m3fn", dt.fp8e5m2: "float8_e5m2"}
