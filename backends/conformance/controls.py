"""Negative controls and the positive one: backends whose score is known before they run.

`Empty` implements nothing, `Zeros` returns zeros, `FirstInput` its first operand, `NoNan` drops NaNs, `Interp` is the interpreter.
They are run by the suite's own tests; a suite that lets one of the first three score is broken.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from uops.backends.contract import Backend, Capabilities, Deviation, Inputs, Missing
from uops.interp import run
from uops.spec.errors import Unsupported
from uops.spec.ir.dtypes import float32
from uops.spec.ir.node import UOp, toposort
from uops.spec.result import Result


class Interp(Backend):
    """The reference interpreter as a backend: it scores 100%."""

    name = "interp"

    def version(self) -> str:
        from uops import __version__

        return f"uops {__version__} interpreter, NumPy {np.__version__}"

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        return run(graph, inputs)


class _Control(Interp):
    """Starts from the right result and spoils it."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        good = run(graph, inputs)
        return Result(
            tuple(self.spoil(v, inputs) for v in good.values), {k: self.spoil(v, inputs) for k, v in good.buffers.items()}
        )

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        raise NotImplementedError


class RefusingFloats(Interp):
    """Declares everything, and refuses what has a float32."""

    name = "control-refusing-floats"

    def capabilities(self) -> Capabilities:
        said = (Deviation("*", "*", level, "says nothing of refusals", "https://example.org") for level in ("strict", "core"))
        return Capabilities(deviations=tuple(said))

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        if any(u.dtype is float32 for u in toposort(graph)):
            raise Unsupported(graph.op.name, "refusing")
        return super().run(graph, inputs)


class Empty(Interp):
    """Declares that it has nothing: nothing is run and nothing passes."""

    name = "control-empty"

    def capabilities(self) -> Capabilities:
        return Capabilities(unsupported=(Missing("*", "*", "implements nothing"),))


class Refusing(Interp):
    """Declares everything and refuses each program when it comes: an undeclared gap is a failure."""

    name = "control-refusing"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        raise Unsupported(graph.op.name, self.name)


class Zeros(_Control):
    name = "control-zeros"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        return np.zeros_like(value)


class AllNan(_Control):
    """All NaN; all ones bits where the dtype has no NaN."""

    name = "control-nan"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        a = np.asarray(value)
        if a.dtype == np.bool_:
            return np.ones_like(a)
        return np.full(a.shape, -1 % (1 << 8 * a.dtype.itemsize), f"u{a.dtype.itemsize}").view(a.dtype)


class FirstInput(_Control):
    """The first input's elements, in the result's dtype and shape."""

    name = "control-first-input"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        return first_input(value, inputs)


def first_input(value: Any, inputs: Inputs) -> Any:
    """What a backend that returns its first input's bits would give in place of `value`."""
    arrays = [inputs[k] for k in sorted(inputs) if isinstance(inputs[k], np.ndarray)]
    a = np.asarray(value)
    if not arrays or not arrays[0].size:
        return np.zeros_like(a)
    bits = np.ascontiguousarray(arrays[0]).reshape(-1).view(f"u{arrays[0].dtype.itemsize}").astype(f"u{a.dtype.itemsize}")
    if a.dtype == np.bool_:
        bits &= 1
    return np.resize(bits, a.shape).view(a.dtype)


class NoNan(_Control):
    """Drops NaNs: a NaN result becomes zero."""

    name = "control-no-nan"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        a = np.asarray(value)
        if a.dtype.kind in "iub":
            return a
        return np.where(np.isnan(a.astype(np.float64)), np.zeros_like(a), a)


class Fussy(Interp):
    """Raises on every program with a NaN among its inputs."""

    name = "control-fussy"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        for value in inputs.values():
            if np.isnan(np.asarray(value).astype(np.float64)).any():
                raise ValueError("cannot convert a NaN")
        return run(graph, inputs)


class Narrow(Interp):
    """Raises on every program with more than 90 different values in an input."""

    name = "control-narrow"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        if any(len(np.unique(value)) > 90 for value in inputs.values()):
            raise ValueError("too many values")
        return run(graph, inputs)


class Crashing(Interp):
    """Its process ends on every program with a float32 input."""

    name = "control-crashing"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        if _has_float32(inputs):
            os.abort()
        return run(graph, inputs)


class Hanging(Interp):
    """Never answers for a program with a float32 input."""

    name = "control-hanging"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        while _has_float32(inputs):
            time.sleep(1)
        return run(graph, inputs)


def _has_float32(inputs: Inputs) -> bool:
    return any(isinstance(v, np.ndarray) and v.dtype == np.float32 for v in inputs.values())
