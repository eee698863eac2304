"""R15: a conversion to bfloat16 rounds once. IREE rounds an int32 and a float64 to float32 first."""

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


CONVERT = "%r = stablehlo.convert %a : (tensor<{0}>) -> tensor<bf16>\n return %r : tensor<bf16>}}"
text = "func.func @main(%a: tensor<{0}>) -> tensor<bf16> {{" + CONVERT
flags = ["--iree-input-demote-f64-to-f32=false", "--iree-llvmcpu-target-cpu=host"]
given = {"i32": np.int32(0x40400001), "f64": np.float64(1 + 2**-8 + 2**-30)}
got = [float(run(text.format(kind), x, flags=flags).view(ml_dtypes.bfloat16)) for kind, x in given.items()]
expected = [float(0x40800000), 1 + 2**-7]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
