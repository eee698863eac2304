"""R27: one value per node. A folded count of leading zeros of a negative int8 is -56, and 0 at run time."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


OPERATION = "%r = stablehlo.count_leading_zeros %a : tensor<3xi8>\n return %r : tensor<3xi8>}"
constant = "func.func @main() -> tensor<3xi8> {%a = stablehlo.constant dense<[-1, -128, 1]> : tensor<3xi8>\n"
folded = run(constant + OPERATION)[0].tolist()
computed = run("func.func @main(%a: tensor<3xi8>) -> tensor<3xi8> {" + OPERATION, np.array([-1, -128, 1], np.int8))[0].tolist()
print(f"expected [0, 0, 7], got {folded}; at run time {computed}")
sys.exit(folded != [0, 0, 7])
