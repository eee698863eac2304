"""Render: the machine code.

Takes: PLANNED. Gives: PROGRAM (each kernel body a Program of its instructions, source and binary). Spec: Lowering
Pipeline/Render; Program.

`Rendering` does the same body by body, for who lowers other bodies meanwhile: sources are compiled in a thread of their own where
the target's compiler allows that.
"""

from __future__ import annotations

import sys
import threading
from queue import SimpleQueue
from types import TracebackType

from uops.compiler.ir.bodies import each
from uops.compiler.target import Target, machine_of
from uops.spec.ir import build as B
from uops.spec.ir.args import SourceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def render(root: UOp, target: Target) -> UOp:
    """`root` with every kernel rendered and compiled, equal kernels once."""
    return each(root, lambda linear: rendered(linear, target))


def rendered(linear: UOp, target: Target) -> UOp:
    """The Program of one instruction list."""
    source = target.render(linear)
    return _program(linear, source, target.compile(source))


def _program(linear: UOp, source: str, binary: bytes) -> UOp:
    return UOp(Op.PROGRAM, (linear, UOp(Op.SOURCE, (), SourceArg(source)), B.binary(binary)))


#: Seconds after which Python's lock is handed over while a compiler runs beside, which takes it back after each of a dozen calls:
#: at Python's own 5 ms it waits longer than it works.
SWITCH = 0.0002


class Rendering:
    """Programs in the making, inside of a `with`: `add` an instruction list, then, when all are there, ask for its `program`. What
    the compiler raises is raised by that, in the order of asking."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.beside = hasattr(target, "beside") and machine_of(target).cores > 1
        self.sources: dict[UOp, str] = {}
        self.made: dict[UOp, UOp | BaseException] = {}
        self.jobs: SimpleQueue[UOp | None] = SimpleQueue()
        self.worker: threading.Thread | None = None
        self.interval = 0.0  # the process's, to be put back

    def __enter__(self) -> Rendering:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.sources.clear()  # what was not begun need not be
        self._finish()

    def add(self, linear: UOp) -> None:
        """Render now and compile soon."""
        self.sources[linear] = self.target.render(linear)
        if self.beside:
            self.jobs.put(linear)
            if self.worker is None:
                self.worker = threading.Thread(target=self._work, name="uops-compile", daemon=True)
                self.interval = sys.getswitchinterval()
                if self.interval > SWITCH:
                    sys.setswitchinterval(SWITCH)
                self.worker.start()

    def program(self, linear: UOp) -> UOp:
        self._finish()
        if linear not in self.made:
            if linear not in self.sources:
                self.sources[linear] = self.target.render(linear)
            self._compile(linear)
        found = self.made[linear]
        if isinstance(found, BaseException):
            raise found
        return found

    def _finish(self) -> None:
        if self.worker is not None:
            self.jobs.put(None)
            self.worker.join()
            self.worker = None
            if self.interval > SWITCH:  # else another one runs, which will put it back
                sys.setswitchinterval(self.interval)

    def _work(self) -> None:
        while (linear := self.jobs.get()) is not None:
            if linear in self.sources:
                self._compile(linear)

    def _compile(self, linear: UOp) -> None:
        try:
            source = self.sources[linear]
            self.made[linear] = _program(linear, source, self.target.compile(source))
        except BaseException as e:
            self.made[linear] = e
