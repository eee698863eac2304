"""R15: a conversion rounds to the nearest number. In fp8, what rounds up to the smallest normal number is 0 in IREE."""

import sys

import iree.compiler
import iree.runtime
import ml_dtypes
import numpy as np


def run(text, *arrays, flags=()):
    code = iree.compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=list(flags))
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    return context.modules.module["main"](*(iree.runtime.asdevicearray(config.device, a) for a in arrays)).to_host()


cases = {"f8E4M3FN": (2.0**-6, ml_dtypes.float8_e4m3fn), "f8E5M2": (2.0**-14, ml_dtypes.float8_e5m2)}
results = {}
for kind, (smallest, dtype) in cases.items():
    x = np.array([smallest * 0.999, smallest * 0.875, smallest], np.float32)
    CONVERT = f"%r = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3x{kind}>\n return %r : tensor<3x{kind}>}}"
    got = run(f"func.func @main(%a: tensor<3xf32>) -> tensor<3x{kind}> {{" + CONVERT, x).view(dtype)
    results[kind] = got.tolist()
    print(f"expected {x.astype(dtype).tolist()}, got {got.tolist()}")
sys.exit(any(r[0] == 0 for r in results.values()))
