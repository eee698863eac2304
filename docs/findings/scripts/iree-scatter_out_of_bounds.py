"""R26: no write goes outside of memory. StableHLO skips an index that is out of bounds; IREE writes there."""

import os
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


SCATTER = '%r = "stablehlo.scatter"(%a, %p, %s) ({'
SCATTER += "^bb0(%x: tensor<i32>, %y: tensor<i32>): stablehlo.return %y : tensor<i32>}) {scatter_dimension_numbers = "
SCATTER += "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}"
SCATTER += " : (tensor<4xi32>, tensor<2x1xi64>, tensor<2xi32>) -> tensor<4xi32>\n"
main = "func.func @main(%a: tensor<4xi32>, %p: tensor<2x1xi64>, %s: tensor<2xi32>) -> tensor<4xi32> {"
statuses = {}
for index in (4, 1 << 40, 1 << 24):
    if not (process := os.fork()):
        arrays = np.arange(4, dtype=np.int32), np.array([[0], [index]]), np.array([7, 8], np.int32)
        print(f"index {index}: {run(main + SCATTER + ' return %r : tensor<4xi32>}', *arrays).tolist()}", flush=True)
        os._exit(0)
    statuses[index] = os.waitpid(process, 0)[1]
print(f"expected [7, 1, 2, 3] three times and no signal, got {statuses} (11 is SIGSEGV)")
sys.exit(any(statuses.values()))
