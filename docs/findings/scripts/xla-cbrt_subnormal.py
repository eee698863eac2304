"""R19: a subnormal is kept, or flushed to zero. The cube root of a positive one is negative."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


x = np.array([2.0**-149, 2.0**-140, 2.0**-127], np.float32)
kind = "tensor<3xf32>"
got = run(f"func.func @main(%a: {kind}) -> {kind} {{%r = stablehlo.cbrt %a : {kind}\n return %r : {kind}}}", x)[0].tolist()
print(f"expected {np.cbrt(x).tolist()} (flushed: 0), got {got}")
sys.exit(min(got) < 0)
