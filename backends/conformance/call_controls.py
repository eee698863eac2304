"""Negative controls of calls: backends that are right about a fresh, small, contiguous input, and wrong about another.

Each fails the cells that ask about it (`cases/calls.py`), in the smoke tier but for size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.backends.arrays import flush_subnormals
from uops.backends.conformance.controls import Interp
from uops.backends.contract import Inputs
from uops.spec.ir.node import UOp
from uops.spec.result import Result


class RemembersFirstResult(Interp):
    """A control that gives the first result of a program for all later inputs."""

    name = "control-first-result"

    def __init__(self) -> None:
        self.results: dict[UOp, Result] = {}

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate a program that is new, and repeat the result of one that is not."""
        if graph not in self.results:
            self.results[graph] = super().run(graph, inputs)
        return self.results[graph]


class ChangesInputs(Interp):
    """A control that overwrites its inputs by their own elements in reverse."""

    name = "control-changes-inputs"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, then overwrite the inputs that can be written."""
        result = super().run(graph, inputs)
        for v in inputs.values():
            if isinstance(v, np.ndarray) and v.flags.writeable and v.size:
                v[...] = np.flip(v).copy()
        return result


class ReusesResults(Interp):
    """A control that gives every result of one position, shape and dtype in the same memory."""

    name = "control-reuses-results"

    def __init__(self) -> None:
        self.memory: dict[Any, Any] = {}

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph into the memory of an earlier result."""
        result = super().run(graph, inputs)
        return Result(tuple(self._copy_to_kept_memory(k, v) for k, v in enumerate(result.values)), result.buffers)

    def _copy_to_kept_memory(self, position: int, value: Any) -> Any:
        memory = self.memory.setdefault((position, value.shape, value.dtype), np.empty_like(value))
        memory[...] = value
        return memory


class WrongWhereLarge(Interp):
    """A control that loses all elements from the 4,097th on."""

    name = "control-large"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, and clear the elements beyond the first 4,096 of each value."""
        result = super().run(graph, inputs)
        return Result(tuple(map(_clear_beyond_4096_if_over_512k_elements, result.values)), result.buffers)


def _clear_beyond_4096_if_over_512k_elements(value: Any) -> Any:
    if value.size <= 1 << 19:  # smaller ones are those of other cases
        return value
    value = value.copy()
    value.reshape(-1)[4096:] = 0
    return value


class FlushesTail(Interp):
    """A control that flushes subnormal numbers in the last elements of a vector, as a scalar loop may."""

    name = "control-flushes-tail"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph, and flush float32 subnormals behind the last whole vector of 8."""
        result = super().run(graph, inputs)
        return Result(tuple(map(_flush_subnormals_in_tail, result.values)), result.buffers)


def _flush_subnormals_in_tail(value: Any) -> Any:
    if value.dtype != np.float32 or value.ndim != 1:
        return value
    tail = value.size // 8 * 8
    return np.concatenate([value[:tail], flush_subnormals(value[tail:])])


class IgnoresStrides(Interp):
    """A control that reads the memory of an array from its first byte on, whatever the strides are."""

    name = "control-ignores-strides"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph on the elements of each array in the order of memory."""
        return super().run(graph, {k: _in_order_of_memory(v) for k, v in inputs.items()})


def _in_order_of_memory(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.ndim == 0 or value.flags.c_contiguous:
        return value
    base = value.base if isinstance(value.base, np.ndarray) and value.base.dtype == value.dtype else value
    return np.resize(base.ravel(order="K"), value.shape)


class TakesSharedMemoryForOne(Interp):
    """A control that takes two inputs that share memory for one."""

    name = "control-shared-memory"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph with the first of two inputs that share memory in place of both."""
        arrays = {k: v for k, v in inputs.items() if isinstance(v, np.ndarray) and v.size}
        first = {k: next(v for v in arrays.values() if np.may_share_memory(v, a)) for k, a in arrays.items()}
        return super().run(graph, {k: first[k] if k in first and first[k].shape == np.shape(v) else v for k, v in inputs.items()})


class RefusesReadOnly(Interp):
    """A control that needs to write to its inputs."""

    name = "control-read-only"

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate the graph unless an input cannot be written."""
        if any(isinstance(v, np.ndarray) and not v.flags.writeable for v in inputs.values()):
            raise ValueError("assignment destination is read-only")
        return super().run(graph, inputs)
