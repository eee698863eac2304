"""`pyref`: a target that executes instruction lists in Python, element by element: stages are tested without a toolchain."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.compiler import PLAIN_DTYPES, PLAIN_OPS, Target
from uops.compiler.rewrite.fold import FOLD
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, show

sys.path.insert(0, str(Path(__file__).parent))  # test modules share `schedules`
pytest.register_assert_rewrite("schedules")


class PyRef(Target):
    """Source and binary are the instruction list as text; an access outside of a Param's shape is an error."""

    name = "pyref"
    dtypes = PLAIN_DTYPES
    ops = PLAIN_OPS
    key = "pyref"

    def render(self, linear: UOp) -> str:
        return show(linear)

    def compile(self, source: str) -> bytes:
        return source.encode()

    def load(self, binary: bytes) -> Callable[[Sequence[int], Sequence[int]], None]:
        instructions = parse(binary.decode()).src
        return lambda addresses, scalars: Run(addresses, scalars).block(instructions)


class Run:
    """One execution: values, and references as (memory, position)."""

    def __init__(self, addresses: Sequence[int], scalars: Sequence[int]) -> None:
        self.addresses, self.scalars = addresses, scalars
        self.values: dict[UOp, Any] = {}

    def block(self, instructions: Sequence[UOp]) -> None:
        k = 0
        while k < len(instructions):
            u = instructions[k]
            if u.op is Op.RANGE:
                close = next(j for j, e in enumerate(instructions) if e.op is Op.END and e.src[1] is u)
                for i in range(self.value(u.src[0])):
                    self.values[u] = i
                    self.block(instructions[k + 1 : close])
                k = close
            elif u.op is not Op.END:
                self.step(u)
            k += 1

    def step(self, u: UOp) -> None:
        rule = STEP.get(u.op)
        if rule is not None:
            self.values[u] = rule(self, u)
        else:
            self.values[u] = FOLD[u.op](u, *map(self.value, u.src))

    def value(self, u: UOp) -> Any:
        return u.arg.value if u.op is Op.CONST else self.values[u]

    def param(self, u: UOp) -> Any:
        if u.arg.name is not None:
            return self.scalars[u.arg.slot]
        n = u.shape[0] if isinstance(u.shape[0], int) else u.shape[0].min_max[1]
        bytes_ = (ctypes.c_char * max(1, n * u.dtype.itemsize)).from_address(
            self.addresses[u.arg.slot] or ctypes.addressof(_NOTHING)
        )
        return np.frombuffer(bytes_, STORAGE(u), n)

    def buffer(self, u: UOp) -> Any:
        return np.zeros(u.arg.size, STORAGE(u))

    def index(self, u: UOp) -> Any:
        return self.values[u.src[0]], self.value(u.src[1])

    def after(self, u: UOp) -> Any:
        return self.values[u.src[0]]

    def load(self, u: UOp) -> Any:
        if len(u.src) == 3 and not self.value(u.src[2]):
            return self.value(u.src[1])
        return self.element(u.src[0])[0].item()

    def element(self, address: UOp) -> Any:
        memory, k = self.values[address]
        if not 0 <= k < len(memory):
            raise AssertionError(f"access {k} of {len(memory)} elements")
        return memory[k : k + 1]

    def store(self, u: UOp) -> None:
        if len(u.src) < 3 or self.value(u.src[2]):
            with np.errstate(all="ignore"):
                self.element(u.src[0])[0] = self.value(u.src[1])


_NOTHING = ctypes.c_double()


def STORAGE(u: UOp) -> np.dtype[Any]:
    return np.dtype(u.dtype.name)


STEP: dict[Op, Callable[[Run, UOp], Any]] = {
    Op.PARAM: Run.param,
    Op.BUFFER: Run.buffer,
    Op.INDEX: Run.index,
    Op.AFTER: Run.after,
    Op.LOAD: Run.load,
    Op.STORE: Run.store,
}


@pytest.fixture(scope="session")
def pyref() -> PyRef:
    return PyRef()
