"""The runtime: compiled programs as callables on NumPy arrays.

`compile(graph, target)` gives a `Compiled`. A call of it takes arrays by key and gives a `Result`. A key is `p<slot>` for a free
Param, `b<unique>` for the initial contents of a Buffer, or a variable's name. Inputs are checked against the graph: SpecError
names the key, what was expected and what was got. A variable outside its bounds, or a bool byte other than 0 and 1, is a Trap
(R24, R48).
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.entry import ProgramInterface
from uops.compiler.ir.buffers import byte_offset
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import estimate_executed_instruction_count, find_parallelizable_outer_thread_loop
from uops.compiler.native import blame_native_text, registry_version
from uops.compiler.pipeline import lower
from uops.compiler.runtime.arguments import (
    Array,
    BufferOrigin,
    BufferSlot,
    Inputs,
    evaluate_shape,
    input_key,
    is_variable,
    numpy_dtype,
    read_and_check_variable,
    variable_bounds,
)
from uops.compiler.runtime.frame import ArrayInput, ArrayOutput, KernelLaunch, ProgramFrame, ScratchBuffer, VariableInput
from uops.compiler.runtime.host_functions import HostFunctionKernel, make_host_function_launch
from uops.compiler.runtime.queues import ExecuteStep, QueueRunner, describe_launch_access, schedule_launches
from uops.compiler.target import NOTHING_LENT, Ability, Kernel, NativeEntry, Target, load_or_remake_kernel
from uops.spec.errors import SpecError, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory
from uops.spec.resources import array_bytes_with_symbolic_dims_as_one, describe_memory_excess
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect

__all__ = ["compile", "Compiled", "numpy_dtype"]

#: Least work of a program on several devices, in instructions, that gets a thread per device.
QUEUE_WORK = 400_000
#: The most programs that a process keeps; the least recently used is dropped first.
CACHE_SIZE = 512


def compile(graph: UOp, target: Target, config: Config | None = None, dialect: Dialect = Dialect.TENSOR) -> Compiled:
    """Compile `graph`, which is written in `dialect`, for `target`; the same graph is compiled once per process.

    Raises SpecError, CompileError or Unsupported, the last also for Buffers that do not fit into memory.
    """
    config = config or configuration.default_config()
    if not config.reuse:
        return Compiled(graph, target, config, dialect)
    return _PROGRAMS.get_or_compile(graph, target, config, dialect)


class _ProgramCache:
    """Compiled programs by graph, target and config; graphs are interned, so a node is its own key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.programs: OrderedDict[tuple[UOp, str, Config, Dialect, int], Compiled] = OrderedDict()

    def get_or_compile(self, graph: UOp, target: Target, config: Config, dialect: Dialect) -> Compiled:
        """Return the program of a graph, compiled if there is none. Safe in threads."""
        key = graph, target.key, config, dialect, registry_version()
        with self.lock:
            program = self.programs.get(key)
            if program is not None:
                self.programs.move_to_end(key)
                return program
        program = Compiled(graph, target, config, dialect)
        with self.lock:
            program = self.programs.setdefault(key, program)
            while len(self.programs) > CACHE_SIZE:
                self.programs.popitem(last=False)
        return program


_PROGRAMS = _ProgramCache()


class Compiled:
    """A compiled program; a call may run in several threads at once. `program` is its PROGRAM graph.

    `keys` names its arguments in order: Params by slot, variables by name, Buffers by number. The contents of a Buffer before the
    run are zeros unless they are given. There are two ways to call a program, which agree:

    - `program(inputs)` takes a mapping by key and gives a Result.
    - `program.function(*arguments)` takes arguments in the order of `keys`. Trailing ones may be absent, and None counts as
      absent. It returns the one array of a program that has one value and writes nothing. Else it returns a tuple: the values,
      then the contents of what was written, in the order of `written_keys`.

    An argument for memory is an array, or what NumPy converts to one, of the memory's storage dtype and shape. One that is not
    aligned, C-contiguous and in native byte order is copied first. All arrays that come back are new.

    Raises SpecError for an argument that is missing, too many, of another dtype or shape, or no int where a variable needs one.
    Raises Trap for a bool byte other than 0 and 1, and for a variable outside of its bounds.
    """

    #: True if the target's native entry may be used.
    allows_native_entry = True

    def __init__(self, graph: UOp, target: Target, config: Config, dialect: Dialect = Dialect.TENSOR) -> None:
        self.graph, self.target, self._lend = graph, target, target.lend
        on_interface = self._store_interface_and_check_it_fits_memory
        self.program = lower(graph, target, config=config, on_interface=on_interface, dialect=dialect)
        named = toposort(graph) if dialect is Dialect.TENSOR else self.external
        named_memory = [u for u in named if u.op in MEMORY_ROOTS]
        self._input_keys = {input_key(u) for u in named_memory}
        self._index_keys = {input_key(u) for u in named_memory if u.dtype is dt.index}
        self._variables = [u for u in self.external if is_variable(u)]
        calls = self.program.instructions
        memory = list(dict.fromkeys(m for c in calls for a in c.arguments if not is_variable(m := base_memory(a))))
        memory += [u for u in self.external if not is_variable(u) and u not in memory]
        self._require_buffers_fit_process_memory_limit(memory)
        self._slots = self._make_buffer_slots(memory)
        self._base_of = {m: k for k, m in enumerate(memory)}
        self._value_bases = [(self._base_of[o.buffer], o.shape) for o in self.outputs]
        value_buffers = {o.buffer for o in self.outputs}
        self._returned_slots = [p for p in self._slots if p.is_written and p.memory not in value_buffers]
        self._arguments = self._order_params_then_variables_then_buffers()
        self.keys = tuple(input_key(u) for u in self._arguments)
        self.written_keys = tuple(p.key for p in self._returned_slots)
        self._single = len(self.outputs) == 1 and not self._returned_slots
        self._launches = self._load_kernels_and_make_launches()
        groups = itertools.groupby(self._launches, lambda launch: isinstance(launch.kernel, HostFunctionKernel))
        self._launch_groups = [(on_host, tuple(launches)) for on_host, launches in groups]
        self._queues = self._make_device_queues_if_worthwhile(config)
        values = {k for k, _ in self._value_bases}
        self._temporary_slots = [k for k, p in enumerate(self._slots) if p.origin is BufferOrigin.FRESH and k not in values]
        self._spare_arenas: list[dict[int, Array]] = []
        self._native_entry = self._make_native_entry(config) if self._queues is None else None
        native = self._native_entry and self._native_entry.function
        self.function: Callable[..., Any] = native or self._check_arguments_and_run

    @property
    def has_native_function(self) -> bool:
        """True if `function` is a builtin, which checks and makes all arrays itself."""
        return self._native_entry is not None and self._native_entry.function is not None

    def _store_interface_and_check_it_fits_memory(self, interface: ProgramInterface) -> None:
        """Take the outputs and arguments of the program. Raises Unsupported for outputs that do not fit into memory."""
        self.outputs, self.external, self.written = interface
        self._require_buffers_fit_process_memory_limit(o.buffer for o in self.outputs)

    def _require_buffers_fit_process_memory_limit(self, memory: Iterable[UOp]) -> None:
        """Raise Unsupported if the Buffers of one run need more memory than there is."""
        sizes = {m: array_bytes_with_symbolic_dims_as_one(m.dtype, (m.arg.size,)) for m in memory if m.op is Op.BUFFER}
        if why := describe_memory_excess(sum(sizes.values())):
            largest = max(sizes, key=lambda m: sizes[m])
            raise Unsupported(
                f"a program of this size ({input_key(largest)}: {largest.arg.size:,} x {largest.dtype}): {why}", self.target.name
            )

    def _make_buffer_slots(self, memory: Iterable[UOp]) -> list[BufferSlot]:
        shapes = {o.buffer: o.shape for o in self.outputs}
        optional = {u for u in self.external if u.op is Op.BUFFER and u not in shapes}
        origins = {Op.BINARY: BufferOrigin.CONSTANT, Op.PARAM: BufferOrigin.GIVEN}
        slots = []
        for m in memory:
            origin = BufferOrigin.OPTIONAL if m in optional else origins.get(m.op, BufferOrigin.FRESH)
            shape = shapes.get(m, (m.arg.size,) if m.op is Op.BUFFER else m.shape if m.op is Op.PARAM else ())
            is_index = m.op is not Op.BINARY and input_key(m) in self._index_keys
            slots.append(BufferSlot.for_memory(m, origin, shape, m in self.written, is_index))
        return slots

    def _order_params_then_variables_then_buffers(self) -> list[UOp]:
        """Return the arguments in the order of `keys`: Params by slot, variables by name, Buffers by number."""
        params = [p.memory for p in self._slots if p.origin is BufferOrigin.GIVEN]
        buffers = [p.memory for p in self._slots if p.origin is BufferOrigin.OPTIONAL]
        return [
            *sorted(params, key=lambda u: int(u.arg.slot)),
            *sorted(self._variables, key=lambda u: str(u.arg.name)),
            *sorted(buffers, key=lambda u: int(u.arg.unique)),
        ]

    def _load_kernels_and_make_launches(self) -> tuple[KernelLaunch, ...]:
        variables = {u.arg.name: k for k, u in enumerate(self._variables)}
        calls = self.program.instructions
        programs = dict.fromkeys(c.body for c in calls if c.body.op is Op.PROGRAM)
        kernels = {p: _KernelWithCost.load_kernel_and_estimate_cost(p, self.target) for p in programs}
        return tuple(
            _make_launch(c, kernels[c.body], self._base_of, variables)
            if c.body.op is Op.PROGRAM
            else make_host_function_launch(c, self.target.name, self._base_of, variables)
            for c in calls
        )

    def _make_device_queues_if_worthwhile(self, config: Config) -> QueueRunner | None:
        """Return the queues of a program on several devices; None if one thread runs all launches.

        Memory that has to be lent belongs to one thread, so that such targets run all devices in one.
        """
        if config.queues == "never" or self.target.abilities & {Ability.LENDING, Ability.WAITING}:
            return None
        accesses = [describe_launch_access(call) for call in self.program.instructions]
        devices = dict.fromkeys(a.device for a in accesses)
        work = sum(launch.instruction_count for launch in self._launches)
        if len(devices) < 2 or (config.queues == "auto" and work < QUEUE_WORK):
            return None
        schedule = schedule_launches(accesses)
        machine = self.target.machine
        threads = max(1, (config.threads or machine.cores) // len(devices))
        return QueueRunner(
            schedule, [self._make_queue_step([self._launches[k] for k in s.launches], config, threads) for s in schedule.steps]
        )

    def _make_queue_step(self, launches: Sequence[KernelLaunch], config: Config, threads: int) -> ExecuteStep:
        """Return a function that runs some launches, by one native call if the target can."""
        entry = self._make_native_entry_if_supported(launches, replace(config, threads=threads))

        def execute(addresses: Sequence[int], variable_values: Sequence[int]) -> None:
            for launch in launches:
                launch.kernel(*launch.make_tables(addresses, variable_values))

        return execute if entry is None else entry.execute

    def _make_native_entry(self, config: Config) -> NativeEntry | None:
        return self._make_native_entry_if_supported(self._launches, config)

    def _make_native_entry_if_supported(self, launches: Sequence[KernelLaunch], config: Config) -> NativeEntry | None:
        """Return the native ways into some launches of the program, if the target has any."""
        if not (self.allows_native_entry and config.entry == "native" and Ability.NATIVE_ENTRY in self.target.abilities):
            return None
        if any(isinstance(launch.kernel, HostFunctionKernel) for launch in launches):
            return None
        frame = self._describe_program_for_native_entry(config.threads)
        if launches is not self._launches:
            frame = replace(frame, inputs=None, outputs=(), launches=tuple(launches))
        return self.target.enter(frame, self._check_arguments_and_run)

    def _describe_program_for_native_entry(self, threads: int) -> ProgramFrame:
        """Describe the program as data: a base per slot, and one more for the initial contents of each array that is written."""
        is_static = not any(p.shape is None for p in self._slots)
        source = {p.memory: len(self._slots) + k for k, p in enumerate(self._returned_slots)}
        values = {k for k, _ in self._value_bases}
        slots = {origin: [(k, p) for k, p in enumerate(self._slots) if p.origin is origin] for origin in BufferOrigin}
        fixed = [(k, p.constant) for k, p in slots[BufferOrigin.CONSTANT]]
        fixed += [(source.get(p.memory, k), np.zeros(p.memory.arg.size, p.dtype)) for k, p in slots[BufferOrigin.OPTIONAL]]
        sizes = [
            (k, array_bytes_with_symbolic_dims_as_one(p.memory.dtype, (p.memory.arg.size,)))
            for k, p in slots[BufferOrigin.FRESH]
            if k not in values
        ]
        results = [ArrayOutput(k, self._slots[k].dtype, self._slots[k].shape or (), None) for k, _ in self._value_bases]
        results += [ArrayOutput(self._base_of[p.memory], p.dtype, p.shape or (), source[p.memory]) for p in self._returned_slots]
        return ProgramFrame(
            base_count=len(self._slots) + len(source),
            variable_count=len(self._variables),
            inputs=tuple(self._describe_argument_for_native_entry(u, source) for u in self._arguments) if is_static else None,
            fixed_arrays=tuple(fixed),
            temporaries=tuple(ScratchBuffer(k, size) for k, size in sizes),
            outputs=tuple(results) if is_static else (),
            launches=self._launches,
            returns_single=self._single,
            threads=threads,
            piece_instructions=self.target.machine.thresholds.piece_instructions,
        )

    def _describe_argument_for_native_entry(
        self, argument: UOp, initial_contents_bases: Mapping[UOp, int]
    ) -> ArrayInput | VariableInput:
        if is_variable(argument):
            return VariableInput(self._variables.index(argument), *variable_bounds(argument))
        k = self._base_of[argument]
        p = self._slots[k]
        return ArrayInput(
            initial_contents_bases.get(argument, k),
            p.dtype,
            p.shape or (),
            p.origin is BufferOrigin.OPTIONAL,
            argument.dtype is dt.bool_,
        )

    # Calls

    def __call__(self, inputs: Inputs | None = None, /) -> Result:
        """Run the program once; the arrays given are not changed."""
        inputs = {} if inputs is None else inputs
        if not isinstance(inputs, Mapping):
            raise SpecError(f"expected a mapping of inputs by key ({', '.join(self.keys)}), got {type(inputs).__name__}")
        for k in inputs:
            if k not in self._input_keys:
                names = ", ".join(sorted(self._input_keys)) or "no inputs"
                raise SpecError(f"the graph has no input {k!r}; it has {names}")
        returned = self.function(*map(inputs.get, self.keys))
        if self._single:
            return Result((returned,), {})
        n = len(self.outputs)
        return Result(returned[:n], dict(zip(self.written_keys, returned[n:])))

    def _check_arguments_and_run(self, *arguments: Any) -> Any:
        """Run the program on any arguments: convert those that may be converted, and raise for all others."""
        if len(arguments) > len(self.keys):
            raise SpecError(f"expected {len(self.keys)} arguments ({', '.join(self.keys)}), got {len(arguments)}")
        inputs = {k: a for k, a in zip(self.keys, arguments) if a is not None}
        variables = {u.arg.name: read_and_check_variable(u, inputs) for u in self._variables}
        if self._queues is None:
            arenas, arrays = {}, [self._prepare_array(p, inputs, variables) for p in self._slots]
        else:
            arenas = self._reuse_or_allocate_arenas(inputs, variables)
            arrays = [arenas[k] if k in arenas else self._prepare_array(p, inputs, variables) for k, p in enumerate(self._slots)]
        self._run_all_launches([a.__array_interface__["data"][0] for a in arrays], list(variables.values()), arrays)
        if arenas:
            self._spare_arenas[:] = [arenas]
        values = [_view_leading_elements_in_shape(arrays[k], shape, variables) for k, shape in self._value_bases]
        return values[0] if self._single else (*values, *(arrays[self._base_of[p.memory]] for p in self._returned_slots))

    def _reuse_or_allocate_arenas(self, inputs: Inputs, variables: Mapping[str, int]) -> dict[int, Array]:
        """Return the temporaries of a program on several devices by slot: those of an earlier run, if no other run has them.

        Large memory that is new for each run would be cleared by the system, page by page.
        """
        try:
            return self._spare_arenas.pop()
        except IndexError:
            return {k: self._prepare_array(self._slots[k], inputs, variables) for k in self._temporary_slots}

    def _prepare_array(self, slot: BufferSlot, inputs: Inputs, variables: Mapping[str, int]) -> Array:
        """Return the memory of a slot for one run."""
        return slot.prepare_array(inputs, variables)

    def _run_all_launches(self, addresses: list[int], variable_values: list[int], arrays_to_lend: Sequence[Array]) -> None:
        """Run all launches, by a thread per device, by one native call, or one by one."""
        if self._queues is not None:
            self._queues.run(addresses, variable_values)
            return
        if self._native_entry is not None:
            with self._lend(arrays_to_lend):
                self._native_entry.execute(addresses, variable_values)
            return
        for on_host, launches in self._launch_groups:
            with NOTHING_LENT if on_host else self._lend(arrays_to_lend):
                for launch in launches:
                    launch.kernel(*launch.make_tables(addresses, variable_values))


class _KernelWithCost(NamedTuple):
    """A kernel, the trip count of its shared loop, and its instruction count, as in `KernelLaunch`."""

    kernel: Kernel
    thread_extent: int
    instruction_count: int

    @classmethod
    def load_kernel_and_estimate_cost(cls, program: UOp, target: Target) -> _KernelWithCost:
        """Load the kernel of a Program."""
        linear, source, binary = program.src
        loop = find_parallelizable_outer_thread_loop(linear.instructions)
        extent = 0 if loop is None else constant_extent(loop)
        with blame_native_text(linear, target.name):
            kernel = load_or_remake_kernel(target, source.arg.code, binary.arg.data)
        return cls(kernel, extent, estimate_executed_instruction_count(linear.instructions))


def _make_launch(
    call: UOp, kernel: _KernelWithCost, base_by_memory: Mapping[UOp, int], variable_positions: Mapping[str, int]
) -> KernelLaunch:
    arguments = call.arguments
    return KernelLaunch(
        kernel.kernel,
        tuple(None if is_variable(a) else (base_by_memory[base_memory(a)], byte_offset(a)) for a in arguments),
        tuple(variable_positions[a.arg.name] if is_variable(a) else None for a in arguments),
        kernel.thread_extent,
        kernel.instruction_count,
    )


def _view_leading_elements_in_shape(array: Array, shape: tuple[Dim, ...], variable_values: Mapping[str, int]) -> Array:
    """Return the part of a memory that a value fills, in the value's shape at these variables."""
    if array.ndim == len(shape) and array.shape == shape:
        return array
    extents = evaluate_shape(shape, variable_values)
    return array[: math.prod(extents)].reshape(extents)
