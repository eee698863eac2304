"""Ways to call a program that change none of its results: other calls before it, and inputs of other forms.

Takes: a function that runs a program on inputs, the inputs, and a `InvocationMode`. Gives: the result of the last call on these
inputs. Raises ChangedMemory if a call changes its inputs or an earlier result. Spec: Param (the caller's values at each run).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.spec.errors import UopsError
from uops.spec.result import Result

Array = npt.NDArray[Any]
Inputs = Mapping[str, Any]


class InvocationMode(StrEnum):
    """A way to call a program. A form of inputs concerns arrays of at least one axis."""

    PLAIN = "plain"
    #: After a call with other values.
    SECOND = "second"
    #: After a call with the same values and one with others.
    AGAIN = "again"
    #: Every second element of memory, along the last axis.
    STRIDED = "strided"
    #: From the end of memory to its beginning.
    REVERSED = "reversed"
    #: In column-major order.
    TRANSPOSED = "transposed"
    #: At an address that is no multiple of the item size. Arrays of Python objects stay as they are.
    UNALIGNED = "unaligned"
    READ_ONLY = "read-only"
    #: One row of memory for all rows. The rows of the values must be equal.
    BROADCAST = "broadcast"
    #: Two vectors of one memory. The second must be the first from its second element on, with one more element.
    OVERLAPPING = "overlapping"


class ChangedMemory(UopsError):
    """A call changed memory that is not its own."""


def run_in_mode_and_check_memory(run: Callable[[Inputs], Result], inputs: Inputs, mode: InvocationMode) -> Result:
    """Return the result of the last call. Raises what `run` raises, and ChangedMemory."""
    given = arrange_inputs(inputs, mode)
    before = {k: _copy_bytes(v) for k, v in given.items()}
    earlier = run(given) if mode is InvocationMode.AGAIN else None
    kept = None if earlier is None else [_copy_bytes(v) for v in _arrays_of(earlier)]
    if mode in (InvocationMode.SECOND, InvocationMode.AGAIN):
        run({k: reverse_elements(v) for k, v in inputs.items()})
    if earlier is not None and [_copy_bytes(v) for v in _arrays_of(earlier)] != kept:
        raise ChangedMemory("a later call changed the result of an earlier one")
    result = run(given)
    changed = [k for k, v in given.items() if _copy_bytes(v) != before[k]]
    if changed:
        raise ChangedMemory(f"the backend changed its input {changed[0]}")
    return result


def arrange_inputs(inputs: Inputs, mode: InvocationMode) -> dict[str, Any]:
    """Return inputs of the same values in the form of a mode."""
    if mode is InvocationMode.OVERLAPPING:
        return _overlap_first_two_inputs(inputs)
    arrange = _FORMS.get(mode)
    return {k: v if arrange is None or np.ndim(v) == 0 else arrange(np.asarray(v)) for k, v in inputs.items()}


def _arrange_strided(a: Array) -> Array:
    memory = np.repeat(a, 2, axis=-1)
    memory[..., 1::2] = np.flip(a, -1)
    return memory[..., ::2]


def _arrange_reversed(a: Array) -> Array:
    return np.flip(np.ascontiguousarray(np.flip(a)))


def _arrange_unaligned(a: Array) -> Array:
    if a.dtype.hasobject:  # its bytes are references to Python objects
        return a
    memory = np.empty(a.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8)
    return memory[1:].view(a.dtype).reshape(a.shape)


def _arrange_read_only(a: Array) -> Array:
    a = a.copy()
    a.setflags(write=False)
    return a


def _arrange_broadcast(a: Array) -> Array:
    return np.broadcast_to(a[:1].copy(), a.shape)


_FORMS: dict[InvocationMode, Callable[[Array], Array]] = {
    InvocationMode.STRIDED: _arrange_strided,
    InvocationMode.REVERSED: _arrange_reversed,
    InvocationMode.TRANSPOSED: np.asfortranarray,
    InvocationMode.UNALIGNED: _arrange_unaligned,
    InvocationMode.READ_ONLY: _arrange_read_only,
    InvocationMode.BROADCAST: _arrange_broadcast,
}


def _overlap_first_two_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return the first two inputs as views of one memory."""
    first, second = list(inputs)[:2]
    memory = np.concatenate([inputs[first][:1], inputs[second]])
    return {**inputs, first: memory[:-1], second: memory[1:]}


def reverse_elements(value: Any) -> Any:
    """Return the elements of an array in reverse; a scalar stays."""
    return value if np.ndim(value) == 0 else np.ascontiguousarray(np.flip(value))


def _arrays_of(result: Result) -> list[Any]:
    return [*result.values, *result.buffers.values()]


def _copy_bytes(value: Any) -> bytes:
    return np.ascontiguousarray(value).tobytes()
