"""uops itself, through the same door as the peers: each workload compiled once, called by position."""

from __future__ import annotations

import os

from methods import TABLE
from protocol import serve

import uops
from uops import Tensor
from uops.compiler.tensor.realize import capture

BACKEND = os.environ.get("BENCH_BACKEND", "llvm")


def seen(t, layout):
    if layout == "transposed" and t.dtype.is_float and t.ndim > 1:
        return t.transpose(-1, -2)
    return t[..., ::2] if layout == "strided" and t.dtype.is_float else t


def prepare(name, arrays, layout):
    tensors = [Tensor.from_numpy(a) for a in arrays]
    graph, inputs = capture(TABLE[name](*(seen(t, layout) for t in tensors)))
    program = uops.compile(graph, backend=BACKEND)
    operands = [inputs[key] for key in program.keys]
    return lambda: program.function(*operands)


if __name__ == "__main__":
    serve(prepare, uops.__version__)
