"""R28: a Flip moves the bits of any dtype. IREE compiles no reverse of unsigned integers, and one of signed integers."""

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


results = {}
for kind, dtype in (("i32", np.int32), ("ui32", np.uint32)):
    t = f"tensor<3x{kind}>"
    try:
        text = f"func.func @main(%a: {t}) -> {t} {{%r = stablehlo.reverse %a, dims = [0] : {t}\n return %r : {t}}}"
        results[kind] = run(text, np.array([1, 2, 3], dtype)).tolist()
    except iree.compiler.tools.CompilerToolError as e:
        results[kind] = next(line for line in str(e).splitlines() if "error:" in line)[:90]
print(f"expected [3, 2, 1] twice, got {results}")
sys.exit(results["ui32"] != [3, 2, 1])
