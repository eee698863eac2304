"""R18: the power of a negative base with an integral exponent is a number, and 0^0 is 1. Both are NaN in IREE."""

import sys

import iree.compiler
import iree.runtime
import numpy as np


def run(text, *arrays, flags=()):
    code = iree.compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=list(flags))
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    return context.modules.module["main"](*(iree.runtime.asdevicearray(config.device, a) for a in arrays)).to_host()


a, b = np.array([-1, -0.5, -2, 0, 0.5], np.float32), np.array([3, 3, 4, 0, 3], np.float32)
kind = "tensor<5xf32>"
got = run(f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{%r = stablehlo.power %a, %b : {kind}\n return %r : {kind}}}", a, b)
print(f"expected {(a**b).tolist()}, got {got.tolist()}")
sys.exit(bool(np.isnan(got).any()))
