"""Execution of a PROGRAM graph, or its first kernels, on a target, with all memory afterwards.

Takes: the graph, a target, inputs by key. Gives: the final contents of all memory that its Calls name, by key. The runtime of
`uops.compiler` lowers graphs itself; this module runs graphs that were lowered elsewhere, wrong code included. Memory without
input holds a pattern. Spec: Program; Slice; R61 (uninitialised memory is not read).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.answer import memory_key
from uops.backends.arrays import STORAGE
from uops.backends.testing.sparse import is_sparse
from uops.backends.worker.guard import GuardedMemory, GuardSide
from uops.compiler.runtime.host_functions import HostFunctionKernel, make_host_function_kernel
from uops.compiler.target import Kernel, Target, load_or_remake_kernel
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

Array = npt.NDArray[Any]
#: Byte that fills memory without input; a bool is True there.
_PATTERN = 0xA5


def load_and_run_first_calls(
    compiled_program: UOp, target: Target, inputs: Mapping[str, Any], call_count: int | None = None,
    guard_side: GuardSide | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Return the memory after the first `call_count` Calls, or after all of them, as flat arrays. The input arrays are copied,
    except for sparse ones.

    With `guard_side`, all memory lies between guard pages. An access beyond it then ends the process or raises Unsound
    afterwards.
    """
    calls = compiled_program.src[:call_count]
    arguments = [base_memory(a) for c in compiled_program.src for a in c.arguments]
    memory = {m: _contents_from_input_or_pattern(m, inputs) for m in arguments if not is_variable(m)}
    guards = {m: GuardedMemory(a.nbytes, guard_side) for m, a in memory.items() if guard_side is not None and not is_sparse(a)}
    for m, g in guards.items():
        g.data[:] = memory[m].view(np.uint8)
        memory[m] = g.data.view(memory[m].dtype)
    kernels = {c: _load_binary_or_make_host_kernel(c, target) for c in calls}
    for on_host, group in itertools.groupby(calls, lambda c: isinstance(kernels[c], HostFunctionKernel)):
        with nullcontext() if on_host else target.lend(list(memory.values())):
            for c in group:
                addresses = [_address_or_zero_for_variable(a, memory) for a in c.arguments]
                sizes = [int(inputs[name]) for name in getattr(kernels[c], "shape_variables", ())]
                kernels[c](addresses, [*[_argument_scalar(a, inputs) for a in c.arguments], *sizes])
    for g in guards.values():
        g.check_slack_unwritten()
    return {memory_key(m): a.copy() if m in guards else a for m, a in memory.items() if m.op is not Op.BINARY}


def _load_binary_or_make_host_kernel(call: UOp, target: Target) -> Kernel:
    if call.body.op is Op.CUSTOM_FUNCTION:
        return make_host_function_kernel(call, target.name)
    _, source, binary = call.body.src
    return load_or_remake_kernel(target, source.arg.code, binary.arg.data)


def is_variable(u: UOp) -> bool:
    """Return True if a node is a variable (R48: a Param with a name)."""
    return u.op is Op.PARAM and u.arg.name is not None


def view_flat_memory_of_argument(argument: UOp, memory: Mapping[str, Array]) -> Array:
    """Return the part of memory that an argument names."""
    whole = memory[memory_key(base_memory(argument))].reshape(-1)
    if argument.op is not Op.SLICE:
        return whole
    offset, d = int(argument.offset.arg.value), _storage_dtype(argument.dtype)
    return whole.view(np.uint8)[offset : offset + argument.arg.size * d.itemsize].view(d)


def _contents_from_input_or_pattern(memory: UOp, inputs: Mapping[str, Any]) -> Array:
    if memory.op is Op.BINARY:
        return np.frombuffer(memory.arg.data, np.uint8)
    if memory_key(memory) in inputs:
        given = np.asarray(inputs[memory_key(memory)])
        array = given if is_sparse(given) else given.copy()
        return np.ascontiguousarray(array.astype(_storage_dtype(memory.dtype), copy=False)).reshape(-1)
    contents = np.zeros(memory.arg.size, _storage_dtype(memory.dtype))
    contents.view(np.uint8)[...] = 1 if memory.dtype is dt.bool_ else _PATTERN
    return contents


def _storage_dtype(d: DType) -> np.dtype[Any]:
    return STORAGE[d]


def _address_or_zero_for_variable(argument: UOp, memory: Mapping[UOp, Array]) -> int:
    if is_variable(argument):
        return 0
    offset = int(argument.offset.arg.value) if argument.op is Op.SLICE else 0
    return int(memory[base_memory(argument)].ctypes.data) + offset


def _argument_scalar(a: UOp, inputs: Mapping[str, Any]) -> int:
    return int(inputs[str(a.arg.name)]) if is_variable(a) else 0
