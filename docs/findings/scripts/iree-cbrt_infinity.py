"""R17: a function has its limit at infinity. The cube root of infinity is NaN in IREE."""

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


x = np.array([np.inf, -np.inf, 27], np.float32)
kind = "tensor<3xf32>"
got = run(f"func.func @main(%a: {kind}) -> {kind} {{%r = stablehlo.cbrt %a : {kind}\n return %r : {kind}}}", x)
print(f"expected [inf, -inf, 3.0], got {got.tolist()}")
sys.exit(bool(np.isnan(got).any()))
