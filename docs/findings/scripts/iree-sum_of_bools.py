"""R09: a sum of bools is their or, in a reduction too. IREE gives their exclusive or."""

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


x = np.array([True, True])
ADD = "%r = stablehlo.add %a, %a : tensor<2xi1>\n return %r : tensor<2xi1>}"
REDUCE = "%z = stablehlo.constant dense<false> : tensor<i1>\n%r = stablehlo.reduce(%a init: %z) applies stablehlo.add"
REDUCE += " across dimensions = [0] : (tensor<2xi1>, tensor<i1>) -> tensor<i1>\n return %r : tensor<i1>}"
got = run("func.func @main(%a: tensor<2xi1>) -> tensor<2xi1> {" + ADD, x).tolist()
total = run("func.func @main(%a: tensor<2xi1>) -> tensor<i1> {" + REDUCE, x).tolist()
print(f"expected [True, True] and True, got {got} and {total}")
sys.exit(got != [True, True] or not total)
