"""The backend under test, in this process, and the outcome of one run.

Takes: a backend's name and options, and programs with inputs. Gives: the outputs of a run, or a `Fault`. A target of the
compiler is driven past its runtime's cache: every program is compiled anew, with every buffer between guard pages.

A refusal (CompileError, Unsupported) raises `SubjectRefused`, which campaigns count, if the subject may refuse: if a program has
undeclared cells, or if the backend is no target of our compiler. Any other refusal is a fault.
"""

from __future__ import annotations

import copy
import functools
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from uops.backends import registry
from uops.backends.answer import find_result_form_mismatch as form_fault
from uops.backends.conformance.judge import Expectation, outputs_of
from uops.backends.conformance.stage_judge import Fault, Outputs, find_disallowed_output
from uops.backends.contract import Backend, CompilerBackend
from uops.backends.worker.frames import truncate_exception_message
from uops.backends.worker.guard import GuardedProgram, GuardSide
from uops.compiler.config import Config
from uops.compiler.target import Ability, Kernel, MachineModel, Target, load_or_remake_kernel
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.oracles.disk_cache import KeptObjects
from uops.spec.errors import CompileError, SpecError, Unsupported, UopsError
from uops.spec.ir.node import UOp
from uops.spec.result import Result

T = TypeVar("T")

#: Backend -> options with which it compiles fastest.
FAST: dict[str, dict[str, Any]] = {name: {"tier": "fast"} for name in ("llvm", *registry.CROSS_BACKENDS)}
#: Settings of most runs: no result of an earlier compilation is used.
PLAIN = Config(reuse=False, queues="always")
#: Number of kernels whose machine code a target memoizes.
_CACHE_SIZE = 128


class CachingTarget(Target):
    """A target that memoizes the last `_CACHE_SIZE` compiled texts, since the oracles of a case compile many kernels again.

    It compiles in the thread that asks, as idle threads have cases of their own. In all else it behaves like the target
    that it wraps, `uncached`. If `compiles_together`, the binary of a kernel is its text. All kernels loaded by then are
    compiled when one of them is called, and that call raises what the toolchain raises.
    """

    def __init__(self, target: Target) -> None:
        self.uncached = target
        self.name, self.key, self.dtypes, self.ops = target.name, target.key, target.dtypes, target.ops
        self.machine, self.abilities = target.machine, target.abilities
        vars(self).update((ability.value, getattr(target, ability.value)) for ability in Ability)
        self._waiting: list[_LazyKernel] = []
        self._lock = threading.Lock()  # of several devices, a thread each calls kernels
        self.forget()

    @property
    def compiles_together(self) -> bool:
        """True if kernels of several texts are compiled at once."""
        return Ability.BATCHES in self.abilities

    def describe_as(self, machine: MachineModel) -> CachingTarget:
        """Return a target that compiles for another machine, and shares all compiled texts with this one."""
        other = copy.copy(self)
        other.machine, other.key = machine, f"{self.key} {machine}"
        return other

    def forget(self) -> None:
        """Forget all compiled texts."""
        self._compile = str.encode if self.compiles_together else functools.lru_cache(_CACHE_SIZE)(self.uncached.compile)
        self._load = functools.lru_cache(_CACHE_SIZE)(self._defer_load if self.compiles_together else self.uncached.load)

    def render(self, linear: UOp) -> str:
        """Render as the wrapped target does."""
        return self.uncached.render(linear)

    def compile(self, source: str) -> bytes:
        """Return the memoized binary; the text itself if kernels are compiled together."""
        return self._compile(source)

    def load(self, binary: bytes) -> Kernel:
        """Return the memoized kernel, which may be compiled later."""
        return self._load(binary)

    def _defer_load(self, binary: bytes) -> Kernel:
        self._waiting.append(_LazyKernel(binary.decode(), self._compile_waiting_kernels_as_batch))
        return self._waiting[-1]

    def _compile_waiting_kernels_as_batch(self) -> None:
        """Compile all kernels that are loaded but not compiled, one by one if they cannot be compiled together."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            try:
                compiled = self.uncached.compile_and_load_batch([k.source for k in waiting]) if len(waiting) > 1 else []
            except Exception:
                compiled = []
            for k, kernel in zip_longest(waiting, compiled):
                k.loaded = kernel or self._compile_on_wrapped_target_or_return_error(k.source)

    def _compile_on_wrapped_target_or_return_error(self, source: str) -> Kernel | Exception:
        try:
            return load_or_remake_kernel(self.uncached, source, self.uncached.compile(source))
        except Exception as e:
            return e


@dataclass(slots=True, eq=False)
class _LazyKernel:
    """A kernel that is compiled at the first call."""

    source: str
    compile_waiting: Callable[[], None]
    loaded: Any = None

    def __call__(self, addresses: Sequence[int], scalars: Sequence[int]) -> None:
        self._ensure_compiled_or_raise()(addresses, scalars)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that the target's own kernels have."""
        return getattr(self._ensure_compiled_or_raise(), name)

    def _ensure_compiled_or_raise(self) -> Any:
        if self.loaded is None:
            self.compile_waiting()
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


class SubjectRefused(UopsError):
    """A refusal of a program by the subject, which is entitled to it."""


class Subject:
    """A backend under test, by name. Raises UnknownBackend, BrokenBackend."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name, self.options = name, options
        self.backend: Backend = registry.create_backend(name, **(FAST.get(name, {}) if options is None else options))
        self.declared = SupportedOpDtypes.from_capabilities(registry.query_capabilities(name, self.backend))
        #: Objects of earlier programs in the cache on disk.
        self.kept_objects = KeptObjects()
        #: The target, if the backend is one of the compiler.
        self.target = CachingTarget(self.backend.target) if isinstance(self.backend, CompilerBackend) else None

    @functools.cached_property
    def default_backend(self) -> Backend:
        """The backend with the settings that users get."""
        return registry.create_backend(self.name, **(self.options or {}))

    def run(self, graph: UOp, inputs: Mapping[str, Any], config: Config = PLAIN, side: GuardSide = GuardSide.END) -> Result:
        """Run a graph once. Raises whatever the subject raises."""
        return self.compile_to_function(graph, config, side)(inputs)

    def compile_to_function(
        self, graph: UOp, config: Config = PLAIN, guard_side: GuardSide = GuardSide.END
    ) -> Callable[[Mapping[str, Any]], Result]:
        """Compile a graph; return a function that runs it."""
        if self.target is None:
            return functools.partial(self.backend.run, graph)
        return GuardedProgram(graph, self.target, guard_side, config)

    def may_refuse(self, graph: UOp) -> bool:
        """Return True if the subject may refuse the graph."""
        return self.target is None or not self.declared.supports_graph(graph)


def run_and_judge_by_allowed_sets(
    subject: Subject, expected: Expectation, run: Callable[[], Result]
) -> tuple[Outputs, Fault | None]:
    """Run and judge by the allowed sets; return the outputs and the fault. Raises SubjectRefused."""
    outputs, fault = run_and_check_dtypes_and_shapes(subject, expected.case.graph, expected.case.inputs, run)
    if fault is not None:
        return outputs, fault
    return outputs, find_disallowed_output(expected, outputs)


def call_and_describe_error(subject: Subject, graph: UOp, call: Callable[[], T]) -> tuple[T | None, Fault | None]:
    """Return what a call of the subject gives, or the fault that its error is. Raises SubjectRefused."""
    try:
        return call(), None
    except (CompileError, Unsupported) as e:
        if subject.may_refuse(graph):
            raise SubjectRefused(str(e)) from e
        return None, Fault("refused", str(e))
    except Exception as e:  # a backend may raise anything
        return None, describe_exception_as_fault(e)


def run_and_check_dtypes_and_shapes(
    subject: Subject, graph: UOp, inputs: Mapping[str, Any], run: Callable[[], Result]
) -> tuple[Outputs, Fault | None]:  # fmt: skip
    """Run and check that the result has the dtypes and shapes of the graph; return the outputs and the fault. Raises
    SubjectRefused.
    """
    result, fault = call_and_describe_error(subject, graph, run)
    if result is None:
        return {}, fault
    form_error = form_fault(graph, inputs, result)
    return ({}, Fault("form", form_error)) if form_error is not None else (outputs_of(result), None)


def describe_exception_as_fault(error: BaseException) -> Fault:
    """Describe an exception as a Fault: its class, its text, and the place that raised it."""
    if isinstance(error, MemoryError):
        return Fault("memory", truncate_exception_message(error) or "not enough memory")
    frames = traceback.extract_tb(error.__traceback__)
    origin = f" [{Path(frames[-1].filename).name}: {frames[-1].name}]" if frames else ""
    text = truncate_exception_message(error)
    claim = f"{error.claim}: " if isinstance(error, SpecError) and error.claim and error.claim not in text else ""
    return Fault(type(error).__name__.lower(), f"{claim}{text}{origin}")
