"""R09: a sum of bools is their or. XLA folds it to their exclusive or, and computes it right at run time."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


OPERATION = "%r = stablehlo.add %a, %a : tensor<1xi1>\n return %r : tensor<1xi1>}"
constant = "func.func @main() -> tensor<1xi1> {%a = stablehlo.constant dense<true> : tensor<1xi1>\n"
folded = run(constant + OPERATION)[0].tolist()
computed = run("func.func @main(%a: tensor<1xi1>) -> tensor<1xi1> {" + OPERATION, np.array([True]))[0].tolist()
print(f"expected [True], got {folded}; at run time {computed}")
sys.exit(folded != [True])
