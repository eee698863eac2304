"""Rendering of instruction lists to source text and machine code.

Takes: PLANNED. Gives: PROGRAM (each kernel body a Program of its instructions, source and binary). Spec: Lowering
Pipeline/Render; Program.

`CompileQueue` does the same one body at a time while its user lowers further bodies. It compiles in a worker thread where the
target allows that.
"""

from __future__ import annotations

import sys
import threading
from queue import SimpleQueue
from types import TracebackType

from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.native import blame_native_text, describe_target
from uops.compiler.target import Target
from uops.spec.ir import build as B
from uops.spec.ir.args import SourceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def render(root: UOp, target: Target) -> UOp:
    """Render and compile every distinct kernel of a launch."""
    return map_kernel_bodies(root, lambda linear: render_and_compile(linear, target))


def render_and_compile(linear: UOp, target: Target) -> UOp:
    """Return the Program of one instruction list. Raises what the target's renderer or compiler raises."""
    return _compile_to_program(linear, target.render(linear), target)


def _compile_to_program(linear: UOp, source: str, target: Target) -> UOp:
    with blame_native_text(linear, target.name):
        binary = target.compile(source)
    text = UOp(Op.SOURCE, (), SourceArg(source, describe_target(target.name, target.key)))
    return UOp(Op.PROGRAM, (linear, text, B.binary(binary)))


#: Seconds between offers of Python's lock to another thread while the worker compiles. The compiler takes the lock back after each
#: of about a dozen calls. At Python's default of 5 ms it would wait longer than it works.
SWITCH_INTERVAL = 0.0002


class CompileQueue:
    """Kernels that are compiled while others are lowered; a context manager.

    `render_and_queue` every instruction list, then ask for each one's program. An error of the compiler is raised when its program
    is asked for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.in_thread = target.compiles_outside_lock and target.machine.cores > 1
        self.sources: dict[UOp, str] = {}
        self.results: dict[UOp, UOp | BaseException] = {}
        self.jobs: SimpleQueue[UOp | None] = SimpleQueue()
        self.worker: threading.Thread | None = None
        self.switch_interval = 0.0  # the process's own, restored when the worker ends

    def __enter__(self) -> CompileQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.sources.clear()  # cancels the jobs that have not begun
        self._stop_worker_and_restore_switch_interval()

    def render_and_queue(self, linear: UOp) -> None:
        """Render an instruction list now, and have it compiled in the worker thread if there is one."""
        self.sources[linear] = self.target.render(linear)
        if self.in_thread:
            self.jobs.put(linear)
            if self.worker is None:
                worker = threading.Thread(target=self._compile_queued, name="uops-compile", daemon=True)
                self.switch_interval = sys.getswitchinterval()
                if self.switch_interval > SWITCH_INTERVAL:
                    sys.setswitchinterval(SWITCH_INTERVAL)
                try:
                    worker.start()
                except RuntimeError:  # the system has no more threads
                    self._restore_switch_interval()
                    raise
                self.worker = worker

    def stop_worker_and_get_or_compile_program(self, linear: UOp) -> UOp:
        """Return the Program of an instruction list, after the worker thread has compiled all lists that it was given.

        A list that it was not given is compiled now. Raises what the compiler raised.
        """
        self._stop_worker_and_restore_switch_interval()
        if linear not in self.results:
            if linear not in self.sources:
                self.sources[linear] = self.target.render(linear)
            self._compile_and_record_result_or_error(linear)
        result = self.results[linear]
        if isinstance(result, BaseException):
            raise result
        return result

    def _stop_worker_and_restore_switch_interval(self) -> None:
        if self.worker is not None:
            self.jobs.put(None)
            self.worker.join()
            self.worker = None
            self._restore_switch_interval()

    def _restore_switch_interval(self) -> None:
        if self.switch_interval > SWITCH_INTERVAL:  # else another queue changed the interval and will restore it
            sys.setswitchinterval(self.switch_interval)

    def _compile_queued(self) -> None:
        while (linear := self.jobs.get()) is not None:
            if linear in self.sources:
                self._compile_and_record_result_or_error(linear)

    def _compile_and_record_result_or_error(self, linear: UOp) -> None:
        try:
            source = self.sources[linear]
            self.results[linear] = _compile_to_program(linear, source, self.target)
        except BaseException as e:
            self.results[linear] = e
