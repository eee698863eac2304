"""Backends whose processes have something else wrong with them than a wrong value: `planted_machinery:NAME`."""

from __future__ import annotations

import os
import time
from typing import Any

from planted_backends import Plain, Several, WrongMax

from uops.backends.contract import Inputs
from uops.fuzz.generate import kinds
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result


class Undrawn(Plain):
    """Every eighth case cannot be made."""

    def __init__(self) -> None:
        drawn = kinds.sample

        def sample(seed: int, k: int, *more: Any) -> kinds.ProgramSample:
            if k % 8 == 3:
                raise ZeroDivisionError("the generator")
            return drawn(seed, k, *more)

        vars(kinds)["sample"] = sample


class Leaving(Plain):
    """Ends its process as if all were well."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        os._exit(0)


class Slow(Plain):
    """A twentieth of a second for each program."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        time.sleep(0.05)
        return super().run(graph, inputs)


class Stalling(WrongMax):
    """Hangs, where `STALLS` is set, at a program that it has met before: when it is asked again of a finding."""

    def __init__(self) -> None:
        self._met: set[UOp] = set()

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        if graph in self._met and os.environ.get("STALLS"):
            time.sleep(600)
        self._met.add(graph)
        return super().run(graph, inputs)


class Lasting(Several):
    """Has everything wrong, and takes its time."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        time.sleep(0.01)
        return super().run(graph, inputs)


class Seized(Plain):
    """Never answers for a Sin, nor lets another thread run: the process cannot end itself."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        if any(u.op is Op.SIN for u in toposort(graph)):
            sum(range(1 << 60))
        return super().run(graph, inputs)
