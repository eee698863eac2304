"""R17: within 2 ulp. In float64, exp(x) - 1 and log(1 + x) lose a small x, of which both functions are x itself."""

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


x = np.array([1e-20, 1e-10])
kind, flags = "tensor<2xf64>", ["--iree-input-demote-f64-to-f32=false"]
got = [
    run(f"func.func @main(%a: {kind}) -> {kind} {{%r = stablehlo.{op} %a : {kind}\n return %r : {kind}}}", x, flags=flags).tolist()
    for op in ("exponential_minus_one", "log_plus_one")
]
print(f"expected {[np.expm1(x).tolist(), np.log1p(x).tolist()]}, got {got}")
sys.exit(not all(np.allclose(g, x, rtol=1e-8, atol=0) for g in got))
