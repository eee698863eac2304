"""R03: an integer division by zero traps nowhere. XLA ends the process with SIGFPE when it folds one."""

import os
import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


OPERATION = "%r = stablehlo.{0} %a, %b : tensor<ui8>\n return %r : tensor<ui8>}}"
SEVEN = "%a = stablehlo.constant dense<7> : tensor<ui8>\n"
CONSTANTS = f"func.func @main() -> tensor<ui8> {{{{{SEVEN}%b = stablehlo.constant dense<0> : tensor<ui8>\n"
statuses = {}
for name in ("divide", "remainder"):
    at_run_time = "func.func @main(%a: tensor<ui8>, %b: tensor<ui8>) -> tensor<ui8> {{" + OPERATION
    if not (process := os.fork()):
        print(f"{name} at run time: {run(at_run_time.format(name), np.uint8(7), np.uint8(0))[0]}", flush=True)
        run((CONSTANTS + OPERATION).format(name))
        os._exit(0)
    statuses[name] = os.waitpid(process, 0)[1]
print(f"expected no signal, got {statuses} (8 is SIGFPE)")
sys.exit(any(statuses.values()))
