"""Processor time of tinygrad's own Python on one workload: schedule and code generation, without the C compiler.

    DEV=CPU CCACHE=0 PARALLEL=0 python compile_tinygrad.py NAME FOLDER

The operands are those that `protocol.write_operands` wrote to the folder; the expression is built before the clock starts. The
output is one line of JSON: seconds of `schedule`, `codegen` and `native`, and the numbers of kernels run and compiled.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

from protocol import read_operands
from tinygrad import Device, Tensor
from tinygrad.engine.realize import compile_linear
from tinygrad_peer import TABLE

clock = time.process_time


class TimedCompiler:
    """The device's compiler, timed: this process's time has not that of the compiler, but that of waiting for it and loading."""

    def __init__(self, compiler):
        self.compile, self.seconds, self.calls = compiler.compile_cached, 0.0, 0
        compiler.compile_cached = self

    def __call__(self, source):
        start = clock()
        try:
            return self.compile(source)
        finally:
            self.seconds += clock() - start
            self.calls += 1


def main(name, folder):
    tensors = [Tensor(a).realize() for a in read_operands(Path(folder))]
    native = TimedCompiler(Device[Device.DEFAULT].renderer.compiler)
    out = TABLE[name](*tensors).contiguous()
    gc.collect()
    gc.disable()
    start = clock()
    linear = out.linear_with_vars()[0]
    scheduled = clock()
    compile_linear(linear)
    end = clock()
    answer = {"schedule": scheduled - start, "codegen": end - scheduled - native.seconds, "native": native.seconds}
    print(json.dumps({**answer, "kernels": len(linear.src), "compiled": native.calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])
