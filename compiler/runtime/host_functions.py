"""Functions of the host as launches between kernels: the bodies of Calls that are a CustomFunction.

Takes: a Call of a CustomFunction, and the name of a target, whose registry says which function that is. Gives: a launch, whose
kernel takes addresses and calls the function with arrays over that memory. Spec: CustomFunction, Call; R63 (Call), R169 (functions
and programs).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.compiler.ir.bodies import list_possibly_written_slots
from uops.compiler.ir.buffers import byte_offset
from uops.compiler.native import HostFunction, find_function
from uops.compiler.runtime.arguments import Array, evaluate_shape, has_wrong_bool_byte, is_variable, numpy_dtype
from uops.compiler.runtime.frame import KernelLaunch
from uops.spec.errors import Trap
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.untrusted import escape_to_one_line

#: About how many instructions a call of a Python function takes, whatever it does.
_CALL_INSTRUCTIONS = 10_000


class MemoryArgument(NamedTuple):
    """Memory that a function gets as a flat array. `shape` may depend on variables."""

    dtype: np.dtype[Any]
    shape: tuple[Dim, ...]
    is_written: bool


class HostFunctionKernel:
    """A function of the host as a kernel: addresses become arrays, which are valid during the call.

    `arguments` has None for a variable, which is passed as an int. Scalars beyond the arguments are the values of
    `shape_variables`, by which sizes are known.
    """

    def __init__(
        self, name: str, function: HostFunction, arguments: Sequence[MemoryArgument | None], shape_variables: Sequence[str] = ()
    ) -> None:
        self.name, self.function = name, function
        self.arguments, self.shape_variables = tuple(arguments), tuple(shape_variables)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Call the function once. Raises whatever it raises, and Trap if it leaves a bool byte other than 0 and 1 (R24, bool)."""
        sizes = dict(zip(self.shape_variables, scalars[len(self.arguments) :]))
        values = [
            scalars[k] if a is None else _view_memory_as_flat_array(buffers[k], a, evaluate_shape(a.shape, sizes))
            for k, a in enumerate(self.arguments)
        ]
        self.function(*values)
        for a, value in zip(self.arguments, values):
            if a is not None and a.is_written and has_wrong_bool_byte(value):
                raise Trap(f"what CustomFunction {escape_to_one_line(self.name)} gives has a bool byte other than 0 and 1 (R24)")


def _view_memory_as_flat_array(address: int, argument: MemoryArgument, shape: tuple[int, ...]) -> Array:
    """Return a flat array over memory; one that the Call does not write is read-only."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(0, argument.dtype)
    memory = (ctypes.c_uint8 * (count * argument.dtype.itemsize)).from_address(address)
    array: Array = np.frombuffer(memoryview(memory), np.uint8).view(argument.dtype)
    array.flags.writeable = argument.is_written
    return array


def make_host_function_kernel(call: UOp, target: str) -> HostFunctionKernel:
    """Return the kernel of a Call of a CustomFunction. Raises Unsupported if the target has not registered it."""
    written = list_possibly_written_slots(call)
    arguments = [None if is_variable(a) else _describe_memory(a, k in written) for k, a in enumerate(call.arguments)]
    extents = [n for a in arguments if a is not None for n in a.shape if isinstance(n, UOp)]
    names = dict.fromkeys(str(u.arg.name) for u in toposort(*extents) if is_variable(u)) if extents else ()
    name = call.body.arg.name
    return HostFunctionKernel(name, find_function(target, name), arguments, tuple(names))


def make_host_function_launch(
    call: UOp, target: str, base_by_memory: Mapping[UOp, int], variable_positions: Mapping[str, int]
) -> KernelLaunch:
    """Return the launch of a Call of a CustomFunction. Raises Unsupported if the target has not registered it."""
    kernel = make_host_function_kernel(call, target)
    memory = [None if is_variable(a) else (base_by_memory[base_memory(a)], byte_offset(a)) for a in call.arguments]
    variables = [variable_positions[a.arg.name] if is_variable(a) else None for a in call.arguments]
    shapes = [variable_positions[name] for name in kernel.shape_variables]
    return KernelLaunch(kernel, (*memory, *[None for _ in shapes]), (*variables, *shapes), 0, _CALL_INSTRUCTIONS)


def _describe_memory(a: UOp, is_written: bool) -> MemoryArgument:
    if a.op is Op.BINARY:
        return MemoryArgument(np.dtype(np.uint8), (len(a.arg.data),), False)
    return MemoryArgument(numpy_dtype(a.dtype), (a.arg.size,) if a.op in (Op.BUFFER, Op.SLICE) else a.shape, is_written)
