"""uops itself, by the protocol of the peers: each workload is compiled once and called by position."""

from __future__ import annotations

import os

from methods import TABLE
from protocol import serve

import uops
from uops import Tensor
from uops.compiler.tensor.realize import capture

BACKEND = os.environ.get("BENCH_BACKEND", "llvm")


def view_operand(t, layout):
    """Return the workload's operand as a view of the stored one."""
    if layout == "transposed" and t.dtype.is_float and t.ndim > 1:
        return t.transpose(-1, -2)
    return t[..., ::2] if layout == "strided" and t.dtype.is_float else t


def prepare(name, arrays, layout):
    """Return a function that runs a compiled workload."""
    tensors = [Tensor.from_numpy(a) for a in arrays]
    return compile_results(TABLE[name](*(view_operand(t, layout) for t in tensors)))


def prepare_gradient(name, arrays, targets):
    """Return a function that runs a compiled workload together with the gradients of targets."""
    *tensors, cotangent = map(Tensor.from_numpy, arrays)
    value = TABLE[name](*tensors)
    run = compile_results(value, *value.gradient(*(tensors[k] for k in targets), gradient=cotangent))
    return lambda: list(run())


def compile_results(*results):
    """Return a function that runs the compiled program of lazy results."""
    graph, inputs = capture(*results)
    program = uops.compile(graph, backend=BACKEND)
    operands = [inputs[key] for key in program.keys]
    return lambda: program.function(*operands)


if __name__ == "__main__":
    serve(prepare, uops.__version__, prepare_gradient)
