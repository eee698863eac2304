"""Backends with known bugs, for campaigns: worker processes find them as `planted_backends:NAME`."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import planted_passes

from uops.backends.cache import ObjectCache
from uops.backends.calling import HostKernel
from uops.backends.conformance.controls import Interp
from uops.backends.contract import Capabilities, CompilerBackend, Inputs, Missing
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import pipeline
from uops.interp import run
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS


class Plain(Interp):
    """The interpreter under another name: nothing is wrong."""

    name = "plain"


class Mapping(Interp):
    """The interpreter, which maps memory in each run and keeps it, as PoCL does for each kernel."""

    name = "mapping"

    def __init__(self) -> None:
        self.kept: list[mmap.mmap] = []

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        self.kept.append(mmap.mmap(-1, 100 << 20))
        return super().run(graph, inputs)


class WrongMax(Interp):
    """Min in place of Max."""

    name = "wrong-max"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        return run(planted_passes.nodes(_minimum)(graph), inputs)


def _minimum(u: UOp) -> UOp | None:
    if u.op is not Op.MAX or u.dtype is dt.index:
        return None
    return UOp(Op.WHERE, (UOp(Op.CMPLT, u.src), *u.src))


class Few(Interp):
    """Two dtypes and a dozen rows, and Unsupported for the rest. If `wrong`, a Max of a NaN in the second place is the first
    operand."""

    name = "few"
    rows = ("Elementwise/Add", "Elementwise/Mul", "Elementwise/Max", "Source/*", "Movement/*")

    def __init__(self, wrong: bool = False, dtypes: Sequence[str] = ("float32", "int32")) -> None:
        self.wrong, self.dtypes = wrong, dtypes

    def capabilities(self) -> Capabilities:
        missing = (r.id for r in ROWS.values() if not any(fnmatchcase(r.id, g) for g in self.rows))
        return Capabilities(tuple(dt.DTYPES[d] for d in self.dtypes), tuple(Missing(m, "*", "not there") for m in missing))

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        declared = self.capabilities()
        for u in toposort(*(graph.src if graph.op is Op.TUPLE else (graph,))):
            if declared.missing(ROWS[u.op].id, u.dtype):
                raise Unsupported(f"{u.op.name} of {u.dtype.name}", self.name)
        return run(planted_passes.nodes(_first)(graph) if self.wrong else graph, inputs)


def _first(u: UOp) -> UOp | None:
    if u.op is not Op.MAX or not u.dtype.is_float:
        return None
    return UOp(Op.WHERE, (UOp(Op.CMPNE, (u.src[1], u.src[1])), u.src[0], u))


class Several(WrongMax):
    """That, a process that ends at every Sin, an error at every Log2, and a Trap at every Sqrt."""

    name = "several"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        ops = {u.op for u in toposort(graph)}
        if Op.SIN in ops:
            os.abort()
        if Op.LOG2 in ops:
            raise ValueError(f"no Log2 of {len(ops)} ops")
        return super().run(graph, inputs)


class Hanging(Interp):
    """Never answers for a Sin."""

    name = "hanging"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        while any(u.op is Op.SIN for u in toposort(graph)):
            time.sleep(1)
        return run(graph, inputs)


class Dying(LlvmTarget):
    """A toolchain that ends its process at some text."""

    def __init__(self, at: str) -> None:
        super().__init__(LlvmTier.FAST, ObjectCache(None))
        self.at = at

    def compile(self, source: str) -> bytes:
        if self.at in source:
            os.abort()
        return super().compile(source)

    def compile_and_load_batch(self, sources: Sequence[str]) -> list[HostKernel]:
        if any(self.at in s for s in sources):
            os.abort()
        return super().compile_and_load_batch(sources)


class Swapped(LlvmTarget):
    """A renderer that spells several instructions wrong."""

    def __init__(self, swaps: Sequence[tuple[str, str]]) -> None:
        super().__init__(LlvmTier.FAST, ObjectCache(None))
        self.swaps = swaps

    def render(self, linear: UOp) -> str:
        found = super().render(linear)
        for right, wrong in self.swaps:
            found = found.replace(right, wrong)
        return found


class Compiled(CompilerBackend):
    """The llvm backend with a bug of `planted_passes`: behind a pass (`what`), in the renderer (`right`, `wrong`), or in a rule.

    Or one whose toolchain dies at a text (`dies`), or that spells several instructions wrong (`swaps`).
    """

    name = "planted"

    def __init__(
        self, what: str | None = None, right: str = "", wrong: str = "", rule: bool = False, dies: str = "",
        swaps: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        target: Any = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
        if right or dies:
            target = Dying(dies) if dies else planted_passes.Wrong(right, wrong)
        if swaps:
            target = Swapped(swaps)
        super().__init__(target)
        if what is not None:
            name, planted = planted_passes.PLANTED[what]
            pipeline.PIPELINE = planted_passes.behind(name, planted.change)
        if rule:
            from uops.compiler.passes.select import select

            select.VALUES = (*select.VALUES, replace(planted_passes.PLANTED_RULE))  # type: ignore[assignment]

    def version(self) -> str:
        return "planted"

    def capabilities(self) -> Capabilities:
        return Capabilities()
