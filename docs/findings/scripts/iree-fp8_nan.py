"""R24: fp8e4m3 has two NaNs, 0x7f and 0xff. IREE takes 0xff for the number -480."""

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


x = np.array([0x7F, 0xFF], np.uint8).view(ml_dtypes.float8_e4m3fn)
CONVERT = "%r = stablehlo.convert %a : (tensor<2xf8E4M3FN>) -> tensor<2xf32>\n return %r : tensor<2xf32>}"
got = run("func.func @main(%a: tensor<2xf8E4M3FN>) -> tensor<2xf32> {" + CONVERT, x)
print(f"expected {x.astype(np.float32).tolist()}, got {got.tolist()}")
sys.exit(not np.isnan(got).all())
