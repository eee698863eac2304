"""R17: a function has its values at zeros, too. The angle of (0, 0) is NaN in IREE, and that of (-0.0, -1) is pi, not -pi."""

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


y, x = np.array([0, -0.0, 1], np.float32), np.array([0, -1, 1], np.float32)
kind = "tensor<3xf32>"
got = run(f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{%r = stablehlo.atan2 %a, %b : {kind}\n return %r : {kind}}}", y, x)
print(f"expected {np.arctan2(y, x).tolist()}, got {got.tolist()}")
sys.exit(not np.allclose(got, np.arctan2(y, x)))
