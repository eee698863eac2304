"""R17: a sine is within 2 ulp, and between -1 and 1. That of IREE is infinite at 1e30, and inaccurate at 0.001."""

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


x = np.array([0.001, 100, 30000, 1e30], np.float32)
kind = "tensor<4xf32>"
sine, cosine = (
    run(f"func.func @main(%a: {kind}) -> {kind} {{%r = stablehlo.{name} %a : {kind}\n return %r : {kind}}}", x)
    for name in ("sine", "cosine")
)
expected = np.sin(x.astype(np.float64)).astype(np.float32)
ulps = (abs(sine - expected) / np.spacing(abs(expected))).tolist()
print(f"expected {expected.tolist()}, got {sine.tolist()}: {ulps} ulp off; the cosine of 1e30 is {cosine[3]}")
sys.exit(max(ulps) > 16)
