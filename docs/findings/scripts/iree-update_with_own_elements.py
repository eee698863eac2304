"""R54: a value is read whole before it is written. IREE writes into an operand that the update is still read from."""

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


x = np.arange(6, dtype=np.int32)
SLICE = "%s = stablehlo.slice %a [0:5] : (tensor<6xi32>) -> tensor<5xi32>\n"
UPDATE = "%r = stablehlo.dynamic_update_slice %a, %s, %i : (tensor<6xi32>, tensor<5xi32>, tensor<i64>) -> tensor<6xi32>\n"
SCATTER = '%p = stablehlo.constant dense<[[1], [2], [3], [4], [5]]> : tensor<5x1xi64>\n%r = "stablehlo.scatter"(%a, %p, %s) ({'
SCATTER += "^bb0(%x: tensor<i32>, %y: tensor<i32>): stablehlo.return %y : tensor<i32>}) {scatter_dimension_numbers = "
SCATTER += "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}"
SCATTER += " : (tensor<6xi32>, tensor<5x1xi64>, tensor<5xi32>) -> tensor<6xi32>\n"
main = "func.func @main(%a: tensor<6xi32>, %i: tensor<i64>) -> tensor<6xi32> {"
got = [run(main + SLICE + op + " return %r : tensor<6xi32>}", x.copy(), np.int64(1)).tolist() for op in (UPDATE, SCATTER)]
print(f"expected [0, 0, 1, 2, 3, 4] twice, got {got}")
sys.exit(got != [[0, 0, 1, 2, 3, 4]] * 2)
