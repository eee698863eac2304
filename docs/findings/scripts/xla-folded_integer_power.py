"""R165: (-1)^n of integers is -1 or 1. XLA folds a negative power to 0, whatever the base."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


OPERATION = "%r = stablehlo.power %a, %b : tensor<3xi32>\n return %r : tensor<3xi32>}"
BASES = "%a = stablehlo.constant dense<[-1, -1, 2]> : tensor<3xi32>\n"
constants = BASES + "%b = stablehlo.constant dense<[-1, -2, -1]> : tensor<3xi32>\n"
folded = run("func.func @main() -> tensor<3xi32> {" + constants + OPERATION)[0].tolist()
given = [np.array(x, np.int32) for x in ([-1, -1, 2], [-1, -2, -1])]
computed = run("func.func @main(%a: tensor<3xi32>, %b: tensor<3xi32>) -> tensor<3xi32> {" + OPERATION, *given)[0].tolist()
print(f"expected [-1, 1, 0], got {folded}; at run time {computed}")
sys.exit(folded != [-1, 1, 0])
