"""A program in the form in which a stage of the compiler gives it: what a backend does with programs of any dialect.

Takes: a backend, a program and a dialect. Gives: the result of the program, computed by the backend from the form in that dialect.
The compiler lowers for the backend's own target, or for that of `llvm` if the backend is none of ours. Spec: Lowering Pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uops.backends.answer import collect_caller_input_nodes, is_variable, memory_key
from uops.backends.arrays import STORAGE
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse, show
from uops.spec.result import Result
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

if TYPE_CHECKING:
    from uops.backends.contract import Backend
    from uops.compiler.entry import ProgramInterface
    from uops.compiler.target import Target
    from uops.spec.verify.dialects import Dialect


def run_in_dialect(backend: Backend, graph: UOp, inputs: Mapping[str, Any], dialect: Dialect) -> Result:
    """Return the result of a program that the backend is given in `dialect`. Raises what the lowering and the backend raise."""
    from uops.compiler.entry import convert_to_launch_or_tensor_graph  # late: a backend that evaluates graphs needs no compiler
    from uops.compiler.pipeline import STAGE_OF_DIALECT, lower

    if convert_to_launch_or_tensor_graph(graph, infer_tensor_kernel_or_bestiary_dialect(graph)).dialect is dialect:
        return backend.run(graph, inputs)
    interfaces: list[ProgramInterface] = []
    lowered = lower(
        graph,
        _find_target_or_default_to_llvm(backend),
        STAGE_OF_DIALECT[dialect],
        on_interface=interfaces.append,
        dialect=infer_tensor_kernel_or_bestiary_dialect(graph),
    )
    used = collect_caller_input_nodes(lowered)  # a stage may find out that an input is not needed
    buffers = backend.run(parse(show(lowered)), {k: v for k, v in inputs.items() if k in used}).buffers
    variables = {k: int(inputs[k]) for k, u in collect_caller_input_nodes(graph).items() if is_variable(u)}
    return _read_result_from_buffers(interfaces[0], buffers, variables)


def _find_target_or_default_to_llvm(backend: Backend) -> Target:
    from uops.backends import registry  # late, like the compiler that it loads
    from uops.backends.contract import CompilerBackend

    compiles = backend if isinstance(backend, CompilerBackend) else registry.create_backend("llvm")
    assert isinstance(compiles, CompilerBackend)
    return compiles.target


def _read_result_from_buffers(interface: ProgramInterface, buffers: Mapping[str, Any], variables: Mapping[str, int]) -> Result:
    """Return the values of a program, which a launch leaves in memory, and the memory that it writes."""
    from uops.compiler.runtime.arguments import evaluate_shape  # late: what lowered the program loaded it

    values = []
    for output in interface.outputs:
        shape = evaluate_shape(output.shape, variables)
        count = int(np.prod(shape))
        memory = buffers[memory_key(output.buffer)].reshape(-1)[:count] if count else np.zeros(0, STORAGE[output.dtype])
        values.append(memory.reshape(shape))
    own = {memory_key(output.buffer) for output in interface.outputs}
    written = {memory_key(m) for m in interface.written} - own
    return Result(tuple(values), {k: a for k, a in buffers.items() if k in written})
