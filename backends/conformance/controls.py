"""Negative controls and a positive one: backends whose score is known in advance.

`Empty` declares nothing, `Zeros` returns zeros, `FirstInput` its first operand, `NoNan` drops NaNs, and `Interp` is the
interpreter. The suite's own tests run them; a suite in which one of the first three scores is broken.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from uops import __version__
from uops.backends.arrays import flush_subnormals
from uops.backends.conformance.judge import interpret
from uops.backends.contract import COMPILED_SURFACES, FLUSHES_SUBNORMALS, Backend, Capabilities, Deviation, Inputs, Missing
from uops.spec.errors import Unsupported
from uops.spec.ir.args import SourceArg
from uops.spec.ir.build import binary
from uops.spec.ir.dtypes import float32
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result


class Interp(Backend):
    """The reference interpreter as a backend, which scores 100%."""

    name = "interp"

    def version(self) -> str:
        """Return the versions of the interpreter and NumPy."""
        return f"uops {__version__} interpreter, NumPy {np.__version__}"

    def capabilities(self) -> Capabilities:
        """Declare everything, on every surface."""
        return Capabilities(surfaces=COMPILED_SURFACES, bestiary=True)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph with the interpreter."""
        return interpret(graph, inputs)

    def precompile(self, launch: UOp) -> UOp:
        """Return a launch of Programs without machine code; the interpreter runs their lists of instructions."""
        stages = UOp(Op.SOURCE, (), SourceArg("interpreted")), binary(b"")
        calls = [call.replace(src=(UOp(Op.PROGRAM, (call.body, *stages)), *call.arguments)) for call in launch.src]
        return launch.replace(src=tuple(calls))


class _SpoilingControl(Interp):
    """A control that computes the right result and spoils it."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        result = super().run(graph, inputs)
        return Result(
            tuple(self.spoil(v, inputs) for v in result.values), {k: self.spoil(v, inputs) for k, v in result.buffers.items()}
        )

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        raise NotImplementedError


class RefusingFloat32(Interp):
    """A control that declares everything, and refuses programs with a float32."""

    name = "control-refusing-floats"

    def capabilities(self) -> Capabilities:
        """Declare everything, with a deviation for every cell, which must not excuse a refusal."""
        deviations = (Deviation("*", "*", level, "says nothing of refusals", "https://example.org") for level in ("strict", "core"))
        return Capabilities(deviations=tuple(deviations), surfaces=COMPILED_SURFACES)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, or raise Unsupported if it has a float32."""
        if any(u.dtype is float32 for u in toposort(graph)):
            raise Unsupported(graph.op.name, "refusing")
        return super().run(graph, inputs)


class Empty(Interp):
    """A control that declares nothing: nothing is run and nothing passes."""

    name = "control-empty"

    def capabilities(self) -> Capabilities:
        """Declare every cell unsupported."""
        return Capabilities(unsupported=(Missing("*", "*", "implements nothing"),), surfaces=COMPILED_SURFACES)


class Refusing(Interp):
    """A control that declares everything and refuses each program: an undeclared gap is a failure."""

    name = "control-refusing"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Raise Unsupported."""
        raise Unsupported(graph.op.name, self.name)


class Zeros(_SpoilingControl):
    """A control that returns zeros."""

    name = "control-zeros"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        """Return zeros in place of `value`."""
        return np.zeros_like(value)


class FlushingSubnormals(_SpoilingControl):
    """A control that makes subnormal operands and results zero, as it declares; its sums are wrong beside that."""

    name = "control-flushing"

    def capabilities(self) -> Capabilities:
        """Declare the trait."""
        return Capabilities(surfaces=COMPILED_SURFACES, traits=(FLUSHES_SUBNORMALS,))

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph on flushed inputs, and flush the results."""
        self.adds = any(u.op is Op.ADD for u in toposort(graph))
        return super().run(graph, {k: flush_subnormals(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()})

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        """Return zeros in place of the subnormals of `value`; of a sum, in place of its infinities, too."""
        flushed = flush_subnormals(np.asarray(value))
        return np.where(np.isinf(flushed), 0, flushed).astype(flushed.dtype) if self.adds else flushed


class AllBitsSet(_SpoilingControl):
    """A control that returns NaNs; all bits set where the dtype has no NaN."""

    name = "control-nan"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        """Return all bits set in place of `value`."""
        a = np.asarray(value)
        if a.dtype == np.bool_:
            return np.ones_like(a)
        return np.full(a.shape, -1 % (1 << 8 * a.dtype.itemsize), f"u{a.dtype.itemsize}").view(a.dtype)


class FirstInput(_SpoilingControl):
    """A control that returns the first input's elements, in the result's dtype and shape."""

    name = "control-first-input"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        """Return the first input in place of `value`."""
        return repeat_first_input(value, inputs)


def repeat_first_input(value: Any, inputs: Inputs) -> Any:
    """Return the first input's bits, repeated to the shape of `value` and converted to its dtype."""
    arrays = [inputs[k] for k in sorted(inputs) if isinstance(inputs[k], np.ndarray)]
    a = np.asarray(value)
    if not arrays or not arrays[0].size:
        return np.zeros_like(a)
    bits = np.ascontiguousarray(arrays[0]).reshape(-1).view(f"u{arrays[0].dtype.itemsize}").astype(f"u{a.dtype.itemsize}")
    if a.dtype == np.bool_:
        bits &= 1
    return np.resize(bits, a.shape).view(a.dtype)


class NoNan(_SpoilingControl):
    """A control that drops NaNs: a NaN result becomes zero."""

    name = "control-no-nan"

    def spoil(self, value: Any, inputs: Inputs) -> Any:
        """Return `value` with zeros in place of NaNs."""
        a = np.asarray(value)
        if a.dtype.kind in "iub":
            return a
        return np.where(np.isnan(a.astype(np.float64)), np.zeros_like(a), a)


class RaisesOnNanInput(Interp):
    """A control that raises on every program with a NaN in its inputs."""

    name = "control-fussy"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, or raise ValueError for a NaN."""
        for value in inputs.values():
            if np.isnan(np.asarray(value).astype(np.float64)).any():
                raise ValueError("cannot convert a NaN")
        return super().run(graph, inputs)


class RaisesOnManyDistinctInputValues(Interp):
    """A control that raises on every program with more than 90 distinct values in an input."""

    name = "control-narrow"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, or raise ValueError for more than 90 distinct values."""
        if any(len(np.unique(value)) > 90 for value in inputs.values()):
            raise ValueError("too many values")
        return super().run(graph, inputs)


class CrashingOnFloat32Input(Interp):
    """A control whose process ends on every program with a float32 input."""

    name = "control-crashing"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, or abort the process for a float32 input."""
        if _has_float32(inputs):
            os.abort()
        return super().run(graph, inputs)


class HangingOnFloat32Input(Interp):
    """A control that never answers for a program with a float32 input."""

    name = "control-hanging"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, or hang for a float32 input."""
        while _has_float32(inputs):
            time.sleep(1)
        return super().run(graph, inputs)


def _has_float32(inputs: Inputs) -> bool:
    return any(isinstance(v, np.ndarray) and v.dtype == np.float32 for v in inputs.values())
