"""R16: a product is rounded to the nearest number. In fp8, what rounds up to the smallest normal number is 0 in IREE."""

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


KIND = "tensor<2xf8E4M3FN>"
a, b = np.array([2**-8, 2**-6], ml_dtypes.float8_e4m3fn), np.array([3.75, 1], ml_dtypes.float8_e4m3fn)
multiply = f"func.func @main(%a: {KIND}, %b: {KIND}) -> {KIND} {{%r = stablehlo.multiply %a, %b : {KIND}\n return %r : {KIND}}}"
convert = (
    f"func.func @main(%a: tensor<2xf32>) -> {KIND} {{%r = stablehlo.convert %a : (tensor<2xf32>) -> {KIND}\n return %r : {KIND}}}"
)
x = np.array([0.999 * 2**-6, 2**-6], np.float32)
got = [run(multiply, a, b).view(a.dtype).tolist(), run(convert, x).view(a.dtype).tolist()]
print(f"expected {[(a * b).tolist(), x.astype(a.dtype).tolist()]}, got {got}")
sys.exit(0 in got[0] + got[1])
