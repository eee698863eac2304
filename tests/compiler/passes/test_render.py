"""Kernels that are compiled beside the lowering: Python's lock changes hands quickly meanwhile, and as before afterwards."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from uops.compiler.passes.render import SWITCH_INTERVAL, CompileQueue
from uops.compiler.target import Kernel, MachineModel, Target
from uops.spec.errors import CompileError
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


class Beside(Target):
    """A target that notes how long a thread holds the lock while it compiles."""

    name = key = "beside"
    ops, dtypes = frozenset[Op](), frozenset[DType]()
    compiles_outside_lock, machine = True, MachineModel(cores=2)

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.seen: list[float] = []

    def render(self, linear: UOp) -> str:
        return ""

    def compile(self, source: str) -> bytes:
        self.seen.append(sys.getswitchinterval())
        if self.fails:
            raise CompileError("no code")
        return b"code"

    def load(self, binary: bytes) -> Kernel:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_the_lock_changes_hands_quickly_while_a_compiler_runs(usual: float) -> None:
    target, linear = Beside(), UOp(Op.LINEAR)
    with CompileQueue(target) as rendering:  # type: ignore[arg-type] # it loads nothing
        rendering.render_and_queue(linear)
        assert rendering.stop_worker_and_get_or_compile_program(linear).op is Op.PROGRAM
    assert target.seen == [pytest.approx(SWITCH_INTERVAL, rel=0.02)]
    assert sys.getswitchinterval() == usual


def test_a_compiler_that_fails_leaves_the_lock_as_it_was(usual: float) -> None:
    linear = UOp(Op.LINEAR)
    with CompileQueue(Beside(fails=True)) as rendering:  # type: ignore[arg-type]
        rendering.render_and_queue(linear)
        with pytest.raises(CompileError, match="no code"):
            rendering.stop_worker_and_get_or_compile_program(linear)
    assert sys.getswitchinterval() == usual


def test_a_thread_that_does_not_start_leaves_the_lock_as_it_was(usual: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start"), CompileQueue(Beside()) as rendering:  # type: ignore[arg-type]
        rendering.render_and_queue(UOp(Op.LINEAR))
    assert sys.getswitchinterval() == usual


def test_two_at_a_time_put_back_what_the_first_found(usual: float) -> None:
    a, b = CompileQueue(Beside()), CompileQueue(Beside())  # type: ignore[arg-type]
    with a:
        a.render_and_queue(UOp(Op.LINEAR))
        with b:
            b.render_and_queue(UOp(Op.LINEAR))
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL, rel=0.02)
    assert sys.getswitchinterval() == usual
