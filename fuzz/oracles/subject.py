"""The backend under test, in this process, and how one run of it ends.

Takes: a backend's name and options, and programs with inputs. Gives: the outputs of a run, or the `Fault` that it is. A target of
the compiler is driven past its runtime's cache: every program is compiled anew, with every buffer between guard pages.

A refusal (CompileError, Unsupported) is no fault where a program is on several devices or not of what the backend declares, or the
backend no target of our compiler: it raises `Refused`, which campaigns count.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from uops.backends import registry
from uops.backends.answer import fault as form_fault
from uops.backends.conformance.judge import Expectation, outputs_of
from uops.backends.contract import Backend, CompilerBackend
from uops.backends.worker.frames import message_of
from uops.backends.worker.guard import GuardedProgram, Side
from uops.compiler.config import Config
from uops.compiler.target import Kernel, Target, load
from uops.fuzz.generate.declared import Declared
from uops.fuzz.oracles.stages import Fault, Outputs, outside
from uops.spec.errors import CompileError, SpecError, Unsupported, UopsError
from uops.spec.ir.node import UOp, toposort
from uops.spec.result import Result

#: Options that make a backend fast to compile with.
FAST: dict[str, dict[str, Any]] = {"llvm": {"tier": "fast"}}
PLAIN = Config(reuse=False)
#: Kernels of which a target knows the machine code again.
_KEPT = 128


@runtime_checkable
class Together(Protocol):
    """What a Target also has if it makes the kernels of several texts at once faster than one by one."""

    def together(self, sources: Sequence[str]) -> Sequence[Kernel]: ...


class Kept:
    """A target that compiles and links a text once while it is one of the last `_KEPT` - the oracles of a case make many kernels
    again - and in the thread that asks: what else is idle has cases of its own. In all else it is the one given, `own`.

    If it `joins`, the binary of a kernel is its text. Machine code is made when a kernel is called, of all that are loaded by then,
    and what the toolchain raises is raised by the call."""

    def __init__(self, target: Target) -> None:
        vars(self).update((n, getattr(target, n)) for n in dir(target) if not n.startswith("_") and n != "beside")
        self.own = target
        self.name, self.key, self.dtypes, self.ops, self.render = target.name, target.key, target.dtypes, target.ops, target.render
        self._together = target.together if isinstance(target, Together) else None
        self._waiting: list[_Later] = []
        self.forget()

    @property
    def joins(self) -> bool:
        """Whether kernels of several texts are made at once."""
        return self._together is not None

    def forget(self) -> None:
        """The next texts are compiled anew."""
        self.compile = str.encode if self.joins else functools.lru_cache(_KEPT)(self.own.compile)
        self.load = functools.lru_cache(_KEPT)(self._later if self.joins else self.own.load)

    def _later(self, binary: bytes) -> Kernel:
        self._waiting.append(_Later(binary.decode(), self._make))
        return self._waiting[-1]

    def _make(self) -> None:
        """The machine code of what waits, one by one where it cannot be made together."""
        waiting, self._waiting = self._waiting, []
        try:
            made = self._together([k.source for k in waiting]) if self._together and len(waiting) > 1 else []
        except Exception:
            made = []
        for k, kernel in zip_longest(waiting, made):
            k.made = kernel or self._alone(k.source)

    def _alone(self, source: str) -> Kernel | Exception:
        try:
            return load(self.own, source, self.own.compile(source))
        except Exception as e:
            return e


@dataclass(slots=True, eq=False)
class _Later:
    """A kernel that is made when it is needed."""

    source: str
    make: Callable[[], None]
    made: Any = None

    def __call__(self, addresses: Sequence[int], scalars: Sequence[int]) -> None:
        self._kernel()(addresses, scalars)

    def __getattr__(self, name: str) -> Any:
        """What else the target's own kernels have."""
        return getattr(self._kernel(), name)

    def _kernel(self) -> Any:
        if self.made is None:
            self.make()
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


class Refused(UopsError):
    """The subject says that it cannot take the program, and may."""


class Subject:
    """A backend by name. Raises UnknownBackend, BrokenBackend."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.backend: Backend = registry.get(name, **(FAST.get(name, {}) if options is None else options))
        self.declared = Declared.by(registry.declared(name, self.backend))
        #: What the compiler compiles for, of a backend that is a target of it.
        self.target = Kept(self.backend.target) if isinstance(self.backend, CompilerBackend) else None

    def run(self, graph: UOp, inputs: Mapping[str, Any], config: Config = PLAIN, side: Side = Side.END) -> Result:
        """One run; raises whatever the subject raises."""
        return self.compiled(graph, config, side)(inputs)

    def compiled(self, graph: UOp, config: Config = PLAIN, side: Side = Side.END) -> Callable[[Mapping[str, Any]], Result]:
        """What runs the graph."""
        if self.target is None:
            return functools.partial(self.backend.run, graph)
        return GuardedProgram(graph, self.target, side, config)

    def may_refuse(self, graph: UOp) -> bool:
        """Whether it may say that it does not have what the graph needs."""
        several = any(isinstance(u.device, tuple) for u in toposort(graph))
        return self.target is None or several or not self.declared.holds(graph)


def judged(subject: Subject, expected: Expectation, run: Callable[[], Result]) -> tuple[Outputs, Fault | None]:
    """The outputs of a run and what is wrong with them. Raises Refused."""
    found, fault = judged_form(subject, expected.case.graph, expected.case.inputs, run)
    if fault is not None:
        return found, fault
    return found, next((f for k in expected.strict if (f := outside(expected, k, found))), None)


def judged_form(
    subject: Subject, graph: UOp, inputs: Mapping[str, Any], run: Callable[[], Result]
) -> tuple[Outputs, Fault | None]:  # fmt: skip
    """The outputs of a run that came to its end, in the form that the graph says. Raises Refused."""
    try:
        result = run()
    except (CompileError, Unsupported) as e:
        if subject.may_refuse(graph):
            raise Refused(str(e)) from e
        return {}, Fault("refused", str(e))
    except Exception as e:  # a backend may raise anything
        return {}, raised(e)
    wrong = form_fault(graph, inputs, result)
    return ({}, Fault("form", wrong)) if wrong is not None else (outputs_of(result), None)


def raised(e: BaseException) -> Fault:
    """An exception as a fault: its class, its words, and where it was raised."""
    if isinstance(e, MemoryError):
        return Fault("memory", message_of(e) or "not enough memory")
    frames = traceback.extract_tb(e.__traceback__)
    place = f" [{Path(frames[-1].filename).name}: {frames[-1].name}]" if frames else ""
    words = message_of(e)
    claim = f"{e.claim}: " if isinstance(e, SpecError) and e.claim and e.claim not in words else ""
    return Fault(type(e).__name__.lower(), f"{claim}{words}{place}")
