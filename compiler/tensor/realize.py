"""Realization: from lazy graphs to arrays, through a runner that another module installs.

`capture` turns nodes of the front end into a closed TENSOR graph and its inputs. Buffers become Params, numbered by first use. So
graphs of one structure are one node whatever their data, and each is compiled once per backend. `install` sets the runner
(`uops.backends.api` does); `use` names the backend of a block. Indices are checked when values are realized
(`uops.compiler.tensor.checks`; R163: indices of Tensors): a captured graph is the program alone.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uops.compiler.config import SettingsGeneration, default_config
from uops.compiler.tensor.chains import elide_copies_in_assignment_chains
from uops.compiler.tensor.settings import change_settings, current_settings
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError, Trap
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, CALL_LIKE, RESHAPING, Op
from uops.spec.result import Result

if TYPE_CHECKING:
    from uops.compiler.tensor.checks import IndexCheck

#: Programs kept per thread; the least recently used is dropped first.
CACHE_SIZE = 256

#: A compiled graph, called with arrays by key, and a function that compiles a graph for the backend of a name.
Program = Callable[[Mapping[str, Any]], Result]
Runner = Callable[[UOp, str], Program]
#: Ops whose nodes may have IndexChecks.
_CHECKED = frozenset({Op.INDEX, Op.FUNCTION, Op.CONTIGUOUS_BACKWARD})
#: Ops that a program holds as they are, on other sources. No index of theirs is checked.
_KEPT = ALU | RESHAPING | {Op.BITCAST, Op.CONST, Op.CONTIGUOUS, Op.DETACH, Op.REDUCE, Op.STACK}


class CapturedGraph(NamedTuple):
    """A graph without Buffers that hold data, and the arrays of its Params: the input of every runner and of the interpreter."""

    graph: UOp
    inputs: dict[str, Any]


class TracedProgram(NamedTuple):
    """A program of a traced function, the arrays that the function captures, by key, and the checks that its last values answer."""

    program: Program
    captured: Mapping[str, Any]
    checks: tuple[IndexCheck, ...]


class ComputedValue(NamedTuple):
    """The array of a node, whether the node depends on no data, and the Buffers that its program read."""

    array: Any
    is_constant: bool
    inputs: tuple[weakref.ref[UOp], ...]


class RunnerState:
    """The installed runner, and how many were installed before it."""

    runner: Runner | None = None
    generation = 0


_local = threading.local()
T = TypeVar("T")


def install(runner: Runner) -> None:
    """Compile with `runner` from now on; programs of an earlier one are forgotten."""
    RunnerState.runner = runner
    RunnerState.generation += 1
    SettingsGeneration.number += 1


def use(backend: str | None = None, *, unchecked: bool | None = None) -> AbstractContextManager[None]:
    """Realize on the backend of that name inside the block, unless a call names another.

    With `unchecked`, indices are not checked (R163: indices of Tensors). None keeps the setting from outside.
    """
    changes = {"backend": backend or None, "unchecked": unchecked}
    return change_settings(**{name: value for name, value in changes.items() if value is not None})


def forbid_realization(function_name: str) -> AbstractContextManager[None]:
    """Forbid realization inside the block, in which the @function `function_name` is traced."""
    return change_settings(tracing=function_name)


def is_tracing() -> bool:
    """Return True while a function is traced, in which nothing may be realized."""
    return bool(current_settings().tracing)


def compilation_settings() -> tuple[str, bool, int, bool]:
    """Return what a compiled program depends on beside its graph: backend, checks of indices, the runner, and fast-math."""
    settings = current_settings()
    return settings.backend, settings.unchecked, RunnerState.generation, default_config().fast_math


def compile_with_inputs(nodes: Sequence[UOp], params: Mapping[UOp, UOp]) -> TracedProgram:
    """Compile one program for nodes in which `params` (Buffer -> Param 0, 1, ...) stand for what each call gives.

    A Param may have another shape than its Buffer, with as many elements.
    """
    graph = _GraphCapture()
    for memory, param in params.items():
        graph.done[memory] = param if param.shape == memory.shape else B.reshape(param, memory.shape)
        graph.inputs[f"p{param.arg.slot}"] = None
    closed = [graph.replace_buffers_by_params(u) for u in nodes]
    settings = current_settings()
    checks = {} if settings.unchecked else graph.check_known_indices_and_collect_computed_checks()
    program = _get_or_compile_program(_build_output_graph([*closed, *checks], graph.fresh), settings.backend)
    given = {f"p{param.arg.slot}" for param in params.values()}
    return TracedProgram(program, {k: a for k, a in graph.inputs.items() if k not in given}, tuple(checks.values()))


def compute_in_one_program(nodes: Sequence[UOp], backend: str | None, unchecked: bool | None = None) -> list[ComputedValue]:
    """Return the value of each node, computed by one program.

    Raises SpecIndexError for an index out of range, unless `unchecked`.
    """
    settings = current_settings()
    if settings.tracing:
        raise SpecTypeError(f"@function {settings.tracing} runs lazily: the value of a Tensor is not known while it is traced")
    backend = backend or settings.backend
    structure = _describe_graph_structure(nodes)
    if structure is not None:
        known = _get_recently_used(_programs_of_structures(), _cache_key(structure.key, backend))
        if known is not None:
            values = known.program({key: structure.arrays[k] for key, k in known.leaf_of_input.items()}).values
            inputs = tuple([weakref.ref(structure.buffers[k]) for k in known.leaf_of_input.values()])
            return [ComputedValue(value, is_constant, inputs) for value, is_constant in zip(values, known.are_constant)]
    graph = _GraphCapture()
    closed = [graph.replace_buffers_by_params(u) for u in nodes]
    if graph.has_copies_to_devices:
        _verify_nodes_for_device_errors(nodes)
    checks = (
        {} if (settings.unchecked if unchecked is None else unchecked) else graph.check_known_indices_and_collect_computed_checks()
    )
    program = _get_or_compile_program(_build_output_graph([*closed, *checks], graph.fresh), backend)
    if structure is not None:
        number_of_buffer = {u: k for k, u in enumerate(structure.buffers)}
        leaf_of_input = {f"p{k}": number_of_buffer[u] for k, u in enumerate(graph.buffers)}
        known = _ProgramOfStructure(program, leaf_of_input, [c is u for c, u in zip(closed, nodes)])
        _keep_recently_used(_programs_of_structures(), _cache_key(structure.key, backend), known)
    try:
        values = program(graph.inputs).values
    except Trap:
        _raise_index_error(checks.values(), backend)
        raise
    for check, number in zip(checks.values(), values[len(nodes) :], strict=True):
        check.raise_if_greatest_offset_outside(number)
    inputs = tuple(map(weakref.ref, graph.buffers))
    return [ComputedValue(value, c is u, inputs) for value, c, u in zip(values, closed, nodes)]


def _verify_nodes_for_device_errors(nodes: Sequence[UOp]) -> None:
    """Raise SpecError for operands on different devices (R72); Params of the closed graph are on none, so it would not show."""
    from uops.spec.verify.verifier import verify  # late: programs on one device do not need the verifier

    for u in nodes:
        verify(u)


def _raise_index_error(checks: Iterable[IndexCheck], backend: str | None) -> None:
    """Raise SpecIndexError if an index out of range explains the Trap of a backend that stops at one."""
    for check in checks:
        check.raise_if_out_of_range(compute_in_one_program([check.node], backend, unchecked=True)[0].array)


def _build_output_graph(nodes: Sequence[UOp], memories: int) -> UOp:
    """Return the graph of all nodes. If it fills several memories of its own, assignments to one Tensor share theirs."""
    graph = nodes[0] if len(nodes) == 1 else B.tuple_(*nodes)
    return elide_copies_in_assignment_chains(graph) if memories > 1 else graph


def _get_or_compile_program(graph: UOp, backend: str) -> Program:
    """Return the compiled graph from this thread's cache, since programs of some backends serve one thread."""
    if RunnerState.runner is None:
        raise SpecError("no runner is installed: import uops.backends.api, or take Tensor from uops")
    cache: OrderedDict[Any, Program] = _local.__dict__.setdefault("programs", OrderedDict())
    key = _cache_key(graph, backend)
    program = _get_recently_used(cache, key)
    if program is None:
        program = RunnerState.runner(graph, backend)
        _keep_recently_used(cache, key, program)
    return program


def _cache_key(graph: Any, backend: str) -> tuple[Any, str, int, bool]:
    """Return what a program depends on, given its graph or the structure of that."""
    return graph, backend, RunnerState.generation, default_config().fast_math


def _get_recently_used(cache: OrderedDict[Any, T], key: Any) -> T | None:
    value = cache.get(key)
    if value is not None:
        cache.move_to_end(key)
    return value


def _keep_recently_used(cache: OrderedDict[Any, T], key: Any, value: T) -> None:
    cache[key] = value
    if len(cache) > CACHE_SIZE:
        cache.popitem(last=False)


# Graphs of equal structure have one program. Its structure is found in less time than its graph is rebuilt.


class _Structure(NamedTuple):
    """A graph without its data.

    `key` has the op, the arg and the numbers of the sources of each node, and the size and dtype of each Buffer with data, which
    `buffers` and `arrays` have in the order of their first use. Graphs of equal keys differ in their data alone.
    """

    key: tuple[Any, ...]
    buffers: list[UOp]
    arrays: list[Any]


class _ProgramOfStructure(NamedTuple):
    """A program, the number of the Buffer that each of its inputs is, and which of its values depend on no data."""

    program: Program
    leaf_of_input: dict[str, int]
    are_constant: list[bool]


def _describe_graph_structure(roots: Sequence[UOp]) -> _Structure | None:
    """Return the structure of graphs, or None if they have an op that `_GraphCapture` checks or replaces."""
    from uops.compiler.tensor.storage import array_of, find_realized_leaf  # late: it loads NumPy

    numbers: dict[UOp, int] = {}
    parts: list[Any] = []
    buffers: list[UOp] = []
    arrays: list[Any] = []
    stack: list[UOp | None] = list(reversed(roots))  # None stands on top of a node whose sources have numbers
    while stack:
        u = stack.pop()
        if u is None:
            u = stack.pop()
            assert u is not None
            if u not in numbers:
                numbers[u] = len(numbers)
                parts.append((u.op, u.arg, *[numbers[s] for s in u.src]))
        elif u in numbers:
            pass
        elif u.op is Op.BUFFER:
            array = array_of(u)
            if array is None:
                return None
            numbers[u] = len(numbers)
            parts.append((u.arg.size, u.arg.dtype))
            buffers.append(u)
            arrays.append(array)
        elif u.op not in _KEPT or u.tag is not None:
            return None
        elif (leaf := find_realized_leaf(u)) is None:
            stack += (u, None)
            stack += [s for s in reversed(u.src) if s not in numbers]
        elif leaf in numbers:
            numbers[u] = numbers[leaf]
        else:
            stack += (u, leaf)
    return _Structure((*parts, *[numbers[u] for u in roots]), buffers, arrays)


def _programs_of_structures() -> OrderedDict[Any, _ProgramOfStructure]:
    """Return the programs of this thread, by structure."""
    cache: OrderedDict[Any, _ProgramOfStructure] = _local.__dict__.setdefault("structures", OrderedDict())
    return cache


def capture(*values: Any) -> CapturedGraph:
    """Return the graph of Tensors or nodes: one value, or a Tuple of several. Values realized before are inputs."""
    if not values:
        raise SpecTypeError("capture: expected at least one Tensor, got none")
    graph = _GraphCapture()
    closed = [graph.replace_buffers_by_params(getattr(v, "uop", v)) for v in values]
    return CapturedGraph(_build_output_graph(closed, graph.fresh), graph.inputs)


class _GraphCapture:
    """A graph under construction.

    `done` maps nodes of the front end to their form in terms of Params; `fresh` counts new memories.
    """

    def __init__(self) -> None:
        from uops.compiler.tensor import checks, storage  # late: they load NumPy, which naming a backend does not need

        self.array_of, self.find_realized_leaf, self.is_stand_in = storage.array_of, storage.find_realized_leaf, storage.is_stand_in
        self.checks_module = checks
        self.inputs: dict[str, Any] = {}
        self.buffers: list[UOp] = []
        self.done: dict[UOp, UOp] = {}
        self.checked_nodes: list[UOp] = []
        self.fresh = 0
        self.has_copies_to_devices = False

    def replace_buffers_by_params(self, root: UOp) -> UOp:
        """Return `root` in terms of Params. Bodies of Functions are not entered: they are closed already (R64: Function)."""
        stack: list[tuple[UOp, tuple[UOp, ...] | None]] = [(root, None)]
        while stack:
            u, sources = stack.pop()
            if u in self.done:
                continue
            if sources is None:
                sources = self.list_realized_leaf_or_sources(u)
                stack.append((u, sources))
                stack.extend((s, None) for s in reversed(sources) if s not in self.done)
            else:
                self.done[u] = self.rebuild_node_or_get_rebuilt_leaf(u, sources)
        return self.done[root]

    def check_known_indices_and_collect_computed_checks(self) -> dict[UOp, IndexCheck]:
        """Return the IndexChecks of computed indices, by the node that computes each one's farthest index.

        Raises SpecIndexError for data out of range.
        """
        checks: dict[UOp, IndexCheck] = {}
        for u in self.checked_nodes:  # grows while indices are replaced that the graph itself does not hold
            for c in self.checks_module.checks_of(u):
                if not c.check_known_data_or_return_false():
                    checks.setdefault(c.build_farthest_index(self.replace_buffers_by_params(c.node)), c)
        return checks

    def list_realized_leaf_or_sources(self, u: UOp) -> tuple[UOp, ...]:
        """Return the nodes to rebuild before `u`: the leaf with its value, or its sources."""
        if u.op in CALL_LIKE:
            return u.arguments
        leaf = self.find_realized_leaf(u)
        return u.src if leaf is None else (leaf,)

    def rebuild_node_or_get_rebuilt_leaf(self, u: UOp, leaf_or_sources: tuple[UOp, ...]) -> UOp:
        """Return `u` on the rebuilt `leaf_or_sources`. Raises SpecValueError for a free Param."""
        if u.op is Op.BUFFER:
            return self.bind_data_or_renumber_buffer(u)
        if u.op is Op.PARAM:
            raise SpecValueError(f"Param {u.arg.slot} is free in the graph of a Tensor: it has no value")
        closed = tuple(self.done[s] for s in leaf_or_sources)
        if u.op is Op.DETACH and u.tag is not None:  # stands for an argument of a function that is differentiated
            return closed[0]
        if u.op in CALL_LIKE:
            closed = (self.checks_module.strip_unchecked_tags(u.body) if u.tag == self.checks_module.UNCHECKED else u.body, *closed)
        elif leaf_or_sources is not u.src:
            return closed[0]
        if u.op is Op.LOAD and u.arg.device is not None:
            self.has_copies_to_devices = True
        if u.op in _CHECKED:
            self.checked_nodes.append(u)
            return UOp(u.op, closed, u.arg, None if u.tag == self.checks_module.UNCHECKED else u.tag)
        return u if closed == u.src else UOp(u.op, closed, u.arg, u.tag)

    def bind_data_or_renumber_buffer(self, buffer: UOp) -> UOp:
        """Return a Param for data. Memory that the program itself fills keeps a Buffer, numbered by order."""
        array = self.array_of(buffer)
        if array is None:
            if self.is_stand_in(buffer):
                raise SpecValueError("a Tensor computed inside a @function left it otherwise than by return: return it (R64)")
            self.fresh += 1
            return B.buffer(buffer.arg.size, buffer.arg.dtype, buffer.arg.device, buffer.arg.addrspace, unique=self.fresh)
        slot = len(self.inputs)
        self.inputs[f"p{slot}"] = array
        self.buffers.append(buffer)
        return B.param(slot, (buffer.arg.size,), buffer.arg.dtype)
